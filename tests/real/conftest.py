"""
Programs of others that tests ask: aimock (npm), a LiteLLM proxy and schemathesis (PyPI), installed and run.

aimock plays the models of all providers, each in its own dialect, and LiteLLM in front of it translates.
Everything that goes to aimock goes over a `Tap`, which shows it as it was sent.

Each is installed once, in a version that is pinned, below ``.cache/real`` of the checkout, and kept. Where
that cannot be done because a program or the network is missing, the tests are skipped and say so; every other
trouble is a failure, since a test that does not run hides what it would have found.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import httpx
import pytest
from support.installing import CACHE, install, install_npm
from support.ports import free_ports

AIMOCK = "1.43.0"
LITELLM = "1.106.2"
SCHEMATHESIS = "4.32.5"
AG_UI_CLIENT = "1.0.0"
AI_SDK = "7.0.173"

STARTING = 120.0
"""Seconds a server may take to be ready; LiteLLM needs five to fifteen."""

KEY = "sk-real"
"""What LiteLLM is started with and all agents send; it wants it to begin like this."""

PROXY = """\
model_list:
  - model_name: "oai/*"
    litellm_params: {{model: "openai/*", api_key: x, api_base: "{tap}/v1"}}
  - model_name: "anth/*"
    litellm_params: {{model: "anthropic/*", api_key: x, api_base: "{tap}"}}
  - model_name: "think/*"
    litellm_params:
      model: "anthropic/*"
      api_key: x
      api_base: "{tap}"
      thinking: {{type: enabled, budget_tokens: 2048}}
  - model_name: "router/*"
    litellm_params: {{model: "openrouter/*", api_key: x, api_base: "{tap}/api/v1"}}
  - model_name: "ollama/*"
    litellm_params: {{model: "ollama_chat/*", api_key: x, api_base: "{tap}"}}
  - model_name: "gemini/*"
    litellm_params: {{model: "gemini/*", api_key: x, api_base: "{tap}/v1beta"}}
  - model_name: mock-text
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: "Hello from LiteLLM itself."}}
  - model_name: mock-429
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: litellm.RateLimitError}}
  - model_name: mock-500
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: litellm.InternalServerError}}
  - model_name: mock-overflow
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: litellm.ContextWindowExceededError}}
  - model_name: mock-408
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_timeout: true, timeout: 0.1}}
  - model_name: mock-fallback
    litellm_params: {{model: openai/gpt-4o, api_key: x, mock_response: litellm.InternalServerError}}
litellm_settings: {{num_retries: 0, use_chat_completions_url_for_anthropic_messages: true}}
router_settings:
  num_retries: 0
  disable_cooldowns: true
  fallbacks: [{{mock-fallback: [anth/claude-sonnet-4-5]}}]
general_settings: {{master_key: {key}}}
"""
"""
LiteLLM's configuration: nothing is tried twice there, so that what fails is seen here.

Without the setting on completions, what it is asked as messages would go to an OpenAI server in a third
dialect, that of responses; where thinking is wanted it does all the same.
"""


# Installing


@pytest.fixture(scope="session")
def aimock_program() -> tuple[str, ...]:
    """The command that starts aimock, installed."""
    folder = CACHE / f"aimock-{AIMOCK}"
    node = install_npm(folder, f"@copilotkit/aimock@{AIMOCK}")
    return node, str(folder / "node_modules/@copilotkit/aimock/dist/cli.js")


@pytest.fixture(scope="session")
def protocol_judges() -> tuple[str, ...]:
    """The command that starts the judges of protocols: a case on each line of stdin, a verdict of stdout."""
    folder = CACHE / f"protocols-{AG_UI_CLIENT}-{AI_SDK}"
    node = install_npm(folder, f"@ag-ui/client@{AG_UI_CLIENT}", f"ai@{AI_SDK}")
    # It finds the packages from where it lies.
    shutil.copy(Path(__file__).with_name("protocol_judges.mjs"), folder)
    return node, str(folder / "protocol_judges.mjs")


def install_pip(name: str, version: str, extra: str, script: str) -> tuple[str, ...]:
    """
    Install the package *name* with its *extra* in an environment of its own; the command that is *script*.

    The versions of all that it needs, as they were when it was tried here, are in a file beside this one.
    """
    folder = CACHE / f"{name}-{version}-{sys.implementation.cache_tag}"
    python = str(folder / "bin/python")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    constraints = Path(__file__).with_name(f"{name}.txt")
    commands = [
        (sys.executable, "-m", "venv", str(folder)),
        (*pip, "--constraint", str(constraints), f"{name}{extra}=={version}"),
    ]
    install(folder, commands, (sys.executable, "-m", "pip", "index", "versions", name))
    # By its interpreter: a script names it by the path of the day it was installed, and a checkout may move.
    return python, str(folder / "bin" / script)


@pytest.fixture(scope="session")
def litellm_program() -> tuple[str, ...]:
    """The command that starts a LiteLLM proxy."""
    return install_pip("litellm", LITELLM, "[proxy]", "litellm")


@pytest.fixture(scope="session")
def schemathesis() -> tuple[str, ...]:
    """The command that asks a server all that its OpenAPI document allows, and more."""
    return install_pip("schemathesis", SCHEMATHESIS, "", "st")


# Running


class Server:
    """A server that *command* starts in *folder*; it serves once *ready*, an address, answers."""

    def __init__(self, command: Sequence[str], ready: str, folder: Path, env: Mapping[str, str]) -> None:
        self.command, self.ready, self.folder = command, ready, folder
        # Nothing else of the environment: keys, proxies and addresses in it would change what it does.
        self.env = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), **env}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def crashed(self) -> bool:
        """Whether it was started and has ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def start(self) -> None:
        """Start it unless it is at work, and return when it serves; it may crash twice at that."""
        crashes = 0
        while self.process is None or self.crashed:
            with (self.folder / "log").open("ab") as out:
                self.process = subprocess.Popen(
                    self.command,
                    cwd=self.folder,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            try:
                wait(self.process, self.ready, self.folder / "log")
            except pytest.fail.Exception:
                crashes += self.crashed
                if not self.crashed or crashes > 2:
                    raise

    @contextmanager
    def serving(self) -> Generator[None]:
        """It serves in the block, and is stopped at its end."""
        try:
            self.start()
            yield
        finally:
            if self.process is not None:
                self.process.terminate()
                try:
                    self.process.wait(10)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()


class ServerCrashed(Exception):
    """A server ended by itself while a test was asking it, so the test shows nothing."""


PROXIES: list[Server] = []
"""The LiteLLM proxies of this process: one, once a test asked for it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a test again in whose time LiteLLM crashed: its native code segfaults now and then."""
    # `make test` collects these tests and leaves them out, and it does not install the plugin.
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=[ServerCrashed.__name__]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Name the crash where it is the reason that a test failed."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        if any(proxy.crashed for proxy in PROXIES):
            msg = "LiteLLM ended by itself"
            raise ServerCrashed(msg) from error
        raise


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


@pytest.fixture(scope="session")
def aimock(aimock_program: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running aimock. It refuses what no test has scripted."""
    folder = tmp_path_factory.mktemp("aimock")
    script = folder / "script.json"
    script.write_text('{"fixtures": [{"match": {}, "response": {"content": "unscripted"}}]}', "utf-8")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = (*aimock_program, "--port", str(port), "--fixtures", str(script), "--strict")
    with Server(command, f"{url}/__aimock/health", folder, {"AIMOCK_STRICT_TURN_INDEX": "1"}).serving():
        yield url


@pytest.fixture(scope="session")
def proxy(
    tap: Tap, litellm_program: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    """A LiteLLM proxy in front of aimock, and its address."""
    folder = tmp_path_factory.mktemp("litellm")
    config = folder / "config.yaml"
    config.write_text(PROXY.format(tap=tap.url, key=KEY), "utf-8")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = (*litellm_program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port))
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "NO_PROXY": "127.0.0.1"}
    server = Server(command, f"{url}/health/liveliness", folder, env)
    PROXIES.append(server)
    with server.serving():
        yield server, url


@pytest.fixture
def litellm(proxy: tuple[Server, str]) -> str:
    """The address of a LiteLLM proxy that is at work, started again if it crashed."""
    server, url = proxy
    server.start()
    return url


# Listening in


LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Tap(socketserver.ThreadingTCPServer):
    """
    A line to *target*, a loopback port, that says nothing of its own.

    It keeps what is asked in `asked`, path and body, in the order it was complete. Where `cut` is set, the
    line is cut at that word of the next answer that holds it, right behind it: in the middle of whatever.
    """

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.target = target
        self.asked: list[tuple[str, bytes]] = []
        self.cut = b""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class Connection(socketserver.BaseRequestHandler):
    """One connection over a `Tap`: what ends on one side ends on the other."""

    request: socket.socket

    @property
    def tap(self) -> Tap:
        """What it is a connection over."""
        return cast("Tap", self.server)

    def handle(self) -> None:
        """Hand on what is asked, until nobody asks any more."""
        said = bytearray()
        with socket.create_connection(("127.0.0.1", self.tap.target)) as there:
            answers = threading.Thread(target=self._answer, args=(there,))
            answers.start()
            for data in received(self.request):
                said += data
                self._keep(said)
                send(there, data)
            hang_up(there)
            answers.join()

    def _keep(self, said: bytearray) -> None:
        """Keep the whole requests in *said*, and take them out."""
        while (end := said.find(b"\r\n\r\n") + 4) >= 4:
            length = LENGTH.search(said, 0, end)
            whole = end + (int(length[1]) if length else 0)
            if len(said) < whole:
                break
            path = said.split(b" ", 2)[1].decode()
            self.tap.asked.append((path, bytes(said[end:whole])))
            del said[:whole]

    def _answer(self, there: socket.socket) -> None:
        before = b""
        for data in received(there):
            heard, word = before + data, self.tap.cut
            if word and word in heard:
                self.tap.cut = b""
                send(self.request, heard[len(before) : heard.index(word) + len(word)])
                break
            before = heard[-100:]
            send(self.request, data)
        hang_up(self.request)


def received(line: socket.socket) -> Iterator[bytes]:
    """What comes over *line* until it ends, one way or another."""
    with suppress(OSError):
        while data := line.recv(65_536):
            yield data


def send(line: socket.socket, data: bytes) -> None:
    """Send *data*, if anybody is there."""
    with suppress(OSError):
        line.sendall(data)


def hang_up(line: socket.socket) -> None:
    """End *line* for both sides."""
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="session")
def tap(aimock: str) -> Iterator[Tap]:
    """The line to aimock."""
    with Tap(int(aimock.rpartition(":")[2])) as line:
        serving = threading.Thread(target=line.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        yield line
        line.shutdown()
        serving.join()
