"""
Model servers that nobody here wrote: aimock (npm) and a LiteLLM proxy (PyPI), installed, started and stopped.

Each is installed once, in a version that is pinned, below ``.cache/real`` of the checkout, and kept. Where
that cannot be done because a program or the network is missing, the tests are skipped and say so; every other
trouble is a failure, since a test that does not run hides what it would have found.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnwheel import Agent, Retries

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "real"

AIMOCK = "1.43.0"
LITELLM = "1.106.2"

CONSTRAINTS = Path(__file__).with_name("litellm.txt")
"""The versions of all that LiteLLM needs, as they were when it was tried here."""

INSTALLING = 900.0
"""Seconds an installation may take: it is 750 MB for LiteLLM."""

STARTING = 120.0
"""Seconds a server may take to be ready; LiteLLM needs five to fifteen."""

KEY = "sk-real"
"""What LiteLLM is started with and all agents send; it wants it to begin like this."""

MODELS = {"aimock": "gpt-5-mini", "litellm": "oai/gpt-5-mini", "litellm-anthropic": "anth/claude-sonnet-4-5"}
"""The ways to aimock and what the model is called there: straight, and behind LiteLLM in either dialect."""

PROXY = """\
model_list:
  - model_name: "oai/*"
    litellm_params: {{model: "openai/*", api_key: x, api_base: "{aimock}/v1"}}
  - model_name: "anth/*"
    litellm_params: {{model: "anthropic/*", api_key: x, api_base: "{aimock}"}}
  - model_name: mock-text
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: "Hello from LiteLLM itself."}}
  - model_name: mock-429
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: litellm.RateLimitError}}
  - model_name: mock-500
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: litellm.InternalServerError}}
  - model_name: mock-overflow
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: litellm.ContextWindowExceededError}}
litellm_settings: {{num_retries: 0}}
router_settings: {{num_retries: 0, disable_cooldowns: true}}
general_settings: {{master_key: {key}}}
"""
"""LiteLLM's configuration: nothing is tried twice there, so that what fails is seen here."""


# Installing


def install(folder: Path, commands: Sequence[Sequence[str]], look: Sequence[str]) -> None:
    """
    Run *commands*, which fill *folder*, unless that was done before; an interrupted one is done again.

    Two test runs do not collide: the second waits for the first. Skips the test where a command fails and
    *look*, a command that only looks the package up, fails as well: then there is no registry.
    """
    done = folder / "installed"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for command in commands:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=INSTALLING,
                check=False,
            )
            if ended.returncode:
                if subprocess.run(look, capture_output=True, timeout=120, check=False).returncode:
                    pytest.skip(f"no registry can be reached: {folder.name} cannot be installed")
                output = ended.stdout.decode(errors="replace")[-2_000:]
                pytest.fail(f"{' '.join(command)} failed with {ended.returncode}:\n{output}", pytrace=False)
        done.touch()


@pytest.fixture(scope="session")
def aimock_program() -> tuple[str, ...]:
    """The command that starts aimock, installed."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        missing = "npm" if npm is None else "node"
        pytest.skip(f"{missing} is not installed: aimock, the model server of these tests, needs it")
    folder = CACHE / f"aimock-{AIMOCK}"
    quiet = ("--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    command = (npm, "install", *quiet, "--prefix", str(folder), f"@copilotkit/aimock@{AIMOCK}")
    install(folder, [command], (npm, "view", "@copilotkit/aimock", "version"))
    return node, str(folder / "node_modules/@copilotkit/aimock/dist/cli.js")


@pytest.fixture(scope="session")
def litellm_program() -> str:
    """The program that starts a LiteLLM proxy, installed in an environment of its own."""
    folder = CACHE / f"litellm-{LITELLM}-{sys.implementation.cache_tag}"
    python = str(folder / "bin/python")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    commands = [
        (sys.executable, "-m", "venv", str(folder)),
        (*pip, "--constraint", str(CONSTRAINTS), f"litellm[proxy]=={LITELLM}"),
    ]
    install(folder, commands, (sys.executable, "-m", "pip", "index", "versions", "litellm"))
    return str(folder / "bin/litellm")


# Running


@contextmanager
def running(command: Sequence[str], ready: str, folder: Path, env: Mapping[str, str]) -> Generator[None]:
    """The server that *command* starts in *folder*, once *ready*, an address, answers; stopped at the end."""
    log = folder / "log"
    # Nothing else of the environment: keys, proxies and addresses in it would change what the server does.
    clean = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), **env}
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command, cwd=folder, env=clean, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        ) as server,
    ):
        try:
            wait(server, ready, log)
            yield
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def wait(server: subprocess.Popen[bytes], ready: str, log: Path) -> None:
    """Return when *ready* answers; fails with the *log* where *server* ends, or takes too long."""
    limit = time.monotonic() + STARTING
    with httpx.Client(trust_env=False) as client:
        while server.poll() is None and time.monotonic() < limit:
            try:
                if client.get(ready).is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
    said = log.read_text("utf-8", "replace")[-2_000:]
    pytest.fail(f"{server.args!r} did not become ready (exit code {server.poll()}):\n{said}", pytrace=False)


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def aimock(aimock_program: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running aimock. It refuses what no test has scripted."""
    folder = tmp_path_factory.mktemp("aimock")
    script = folder / "script.json"
    script.write_text('{"fixtures": [{"match": {}, "response": {"content": "unscripted"}}]}', "utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = (*aimock_program, "--port", str(port), "--fixtures", str(script), "--strict")
    with running(command, f"{url}/__aimock/health", folder, {"AIMOCK_STRICT_TURN_INDEX": "1"}):
        yield url


@pytest.fixture(scope="session")
def litellm(aimock: str, litellm_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running LiteLLM proxy in front of aimock."""
    folder = tmp_path_factory.mktemp("litellm")
    config = folder / "config.yaml"
    config.write_text(PROXY.format(aimock=aimock, key=KEY), "utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = (litellm_program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port))
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "NO_PROXY": "127.0.0.1"}
    with running(command, f"{url}/health/liveliness", folder, env):
        yield url


# What tests use


@pytest.fixture
def play(aimock: str) -> Callable[..., None]:
    """Have aimock forget everything and answer with what is given: its fixtures, the first that matches."""

    def play(*fixtures: dict[str, Any]) -> None:
        with httpx.Client(base_url=aimock, trust_env=False) as client:
            client.post("/__aimock/reset").raise_for_status()
            client.post("/__aimock/fixtures", json={"fixtures": fixtures}).raise_for_status()

    return play


@pytest.fixture
def heard(aimock: str) -> Callable[[], list[dict[str, Any]]]:
    """What aimock was asked since `play`: the bodies of all requests."""

    def heard() -> list[dict[str, Any]]:
        with httpx.Client(base_url=aimock, trust_env=False) as client:
            entries: list[dict[str, Any]] = client.get("/__aimock/journal").raise_for_status().json()
        return [entry["body"] for entry in entries]

    return heard


@pytest.fixture(params=MODELS)
def server(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each way to aimock: a base URL and the name of a model."""
    root: str = request.getfixturevalue(request.param.partition("-")[0])
    return f"{root}/v1", MODELS[request.param]


@pytest.fixture
def make(server: tuple[str, str]) -> Callable[..., Agent]:
    """Make an agent that asks *server*; whichever it is, nothing else differs."""
    base_url, model = server

    def make(**settings: Any) -> Agent:  # whatever an agent takes
        asked: dict[str, Any] = {"model": model, "retries": Retries(base=0.01), **settings}
        return Agent(base_url=base_url, api_key=KEY, **asked)

    return make
