"""
The commands of the README work one after another, in a copy of the tracked files and with an empty home.

Without the mark `real` the copy has the environment of this test run. Its commands run the package of the
original checkout, which is installed there.
"""

from __future__ import annotations

import http.server
import json
import os
import pty
import re
import runpy
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import pytest
from markdown_it import MarkdownIt
from support.checkout import ROOT, tracked
from support.patience import PATIENCE

README = (ROOT / "README.md").read_text("utf-8")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    (\S.*?)(?:\s{2,}# (.*))?$", re.MULTILINE)
INLINE = re.compile(r"`(pip install [^`]+)`")

LOCAL_SERVER = "http://127.0.0.1:11434/v1"
"""The address of Ollama in the README; a test has a server at another port."""

FROM_A_REGISTRY = ("make wheel", "pip install ")
"""Commands that download packages: only the test of the real installation runs them."""

RECURSIVE = ("make test",)
"""Commands that would run this test again."""

SILENCE = 0.5
"""Seconds without output after which a single key is pressed again: one that comes too early is no answer."""

INSTALLING = 900.0
"""Seconds that a command may take which downloads packages; others have `PATIENCE`."""

TALKS = {
    "turnwheel run --stand-in": [("no, and stop", "y")],
    "turnwheel chat": [("ask for something", "hi\r"), ("Hello!", "\x04")],
}
"""What a person types at a command, each behind the text that asks for it."""

COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def commands() -> list[tuple[str, str]]:
    """The shell commands of the README, in order, each with its comment."""
    return COMMAND.findall(FENCED.sub("", README))


# The models that commands ask


def chat_answer() -> Iterator[Mapping[str, object]]:
    yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello!"}}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def messages_answer() -> Iterator[Mapping[str, object]]:
    yield {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {}}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello!"}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}
    yield {"type": "message_stop"}


@final
class Provider(http.server.BaseHTTPRequestHandler):
    """Answers "Hello!" as OpenAI or Anthropic would; *asked* has the path, model and key of each request."""

    asked: ClassVar[list[tuple[str, str, str]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers["x-api-key"] or (self.headers["authorization"] or "").removeprefix("Bearer ")
        self.asked.append((self.path, body["model"], key))
        events = messages_answer() if self.path == "/v1/messages" else chat_answer()
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
        """Say nothing."""


@pytest.fixture
def provider() -> Iterator[str]:
    """The base URL of a server that answers as OpenAI and as Anthropic."""
    Provider.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


# The shell of a new user


def copy_of_the_checkout(folder: Path) -> Path:
    """Copy the tracked files of the checkout to *folder*, and return it."""
    for name in tracked():
        if (ROOT / name).is_file():  # else it was deleted, and the deletion is not committed yet
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
    return folder


def with_this_environment(clone: Path) -> None:
    """Give *clone* a `.venv` that is the running one, so that make has nothing to install."""
    (clone / ".venv").mkdir()
    for part in Path(sys.prefix).iterdir():
        if part.name in {"bin", "lib", "pyvenv.cfg"}:
            (clone / ".venv" / part.name).symlink_to(part)
    rules = subprocess.run(["make", "-pn", "run"], cwd=clone, capture_output=True, text=True, check=True)
    stamps = re.findall(r"^(?:RUNNING|TESTING) := (\S+)$", rules.stdout, re.MULTILINE)
    assert len(stamps) == 2
    for stamp in stamps:
        (clone / stamp).touch()


@final
class Shell:
    """A shell of a person whose home is empty: exported variables stay from one command to the next."""

    def __init__(self, clone: Path, home: Path, more: Mapping[str, str]) -> None:
        self.clone = clone
        self._state = home / ".exported"
        self._state.touch()
        self.env = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            **more,
        }

    def run(self, command: str, seconds: float = PATIENCE) -> tuple[int, str]:
        """Run *command* in a terminal; returns the exit code and the output."""
        state = shlex.quote(str(self._state))
        script = f". {state}\n{command}\ncode=$?\nexport -p > {state}\nexit $code"
        outer, inner = pty.openpty()
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.clone,
            env=self.env,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        talk = next((talk for start, talk in TALKS.items() if command.startswith(start)), [])
        try:
            output = converse(outer, talk, time.monotonic() + seconds)
            return shell.wait(PATIENCE), output
        finally:
            os.close(outer)
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()


def converse(terminal: int, talk: Sequence[tuple[str, str]], deadline: float) -> str:
    """What comes on *terminal* until its end; the keys of *talk* are typed when their texts have come."""
    output, typed, open_steps = "", "", list(talk)
    while True:
        assert time.monotonic() < deadline, f"the command does not end:\n{output}"
        ready, _, _ = select.select([terminal], [], [], SILENCE)
        if ready:
            try:
                data = os.read(terminal, 65_536)
            except OSError:  # how Linux reports that no process has the terminal open any more
                return output
            if not data:  # how other systems report it
                return output
            output += COLOUR.sub("", data.decode(errors="replace"))
        elif len(typed) == 1:
            os.write(terminal, typed.encode())
        if open_steps and open_steps[0][0] in output:
            typed = open_steps.pop(0)[1]
            os.write(terminal, typed.encode())


def follow(shell: Shell, provider: str, *, real: bool) -> None:
    """Run the commands of the README in *shell*; without *real*, those alone that download nothing."""
    report = shell.clone / "REPORT.md"
    for command, comment in commands():
        if command.startswith(RECURSIVE) or (command.startswith(FROM_A_REGISTRY) and not real):
            continue
        report.unlink(missing_ok=True)
        if key := re.search(r"with (\w+_API_KEY)", comment):
            shell.env[key[1]] = "secret"
        before = len(Provider.asked)
        seconds = INSTALLING if real else PATIENCE
        code, output = shell.run(command.replace(LOCAL_SERVER, provider), seconds)
        assert code == 0, f"{command}\n{output}"
        if command.startswith("export "):
            # From here on, models are asked; the addresses of their providers are replaced by ours.
            shell.env["TURNWHEEL_BASE_URL"] = provider
        elif command.startswith("turnwheel ") and "--stand-in" not in command:
            assert_asked(command, Provider.asked[before:], output)
        elif "REPORT.md" in f"{command} {comment}":
            assert report.read_text("utf-8").startswith("#"), output


def assert_asked(command: str, asked: list[tuple[str, str, str]], output: str) -> None:
    """That *command* asked the model that it names, by the wire of its prefix and with a key."""
    model = re.search(r"--model (\S+)", command)
    wire, _, wanted = (model[1] if model else "openai:gpt-5").rpartition(":")
    path = {"anthropic": "/v1/messages"}.get(wire, "/v1/chat/completions")
    key = {"anthropic": "secret"}.get(wire, "...")
    assert asked == [(path, wanted, key)], f"{command}\n{output}"
    assert "Hello!" in output


@pytest.mark.timeout(300)
def test_the_commands_of_the_readme_work(tmp_path: Path, provider: str) -> None:
    clone = copy_of_the_checkout(tmp_path / "clone")
    with_this_environment(clone)
    home = tmp_path / "home"
    home.mkdir()
    path = os.pathsep.join([str(Path(sys.prefix, "bin")), os.environ["PATH"]])
    # Without an index pip installs nothing into the running environment, whatever make believes.
    shell = Shell(clone, home, {"PATH": path, "PIP_NO_INDEX": "1"})
    follow(shell, provider, real=False)
    for command, _ in commands():
        if command.startswith("make "):
            assert shell.run(command.replace("make", "make --dry-run", 1))[0] == 0


@pytest.mark.parametrize(
    ("target", "extras"), [("run", ["'.[cli]'"]), ("test", ["'.[cli,test]'"]), ("wheel", [])]
)
def test_a_target_installs_what_it_needs(target: str, extras: list[str], tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    # A make that runs below another one, as in `make test`, inherits the arguments of that one.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | {"ARGS": ""}
    command = ["make", "-n", target]
    plan = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert re.findall(r"--editable (\S+)", plan.stdout) == extras


def test_the_readme_installs_the_wheel_that_make_builds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wheel = f"dist/{project['name']}-{project['version']}-py3-none-any.whl"
    installed = [re.findall(r"'([^'\[]+)\[(\w+)\]'", command) for command in pip_commands()]
    assert [place for pairs in installed for place, _ in pairs] == [wheel, project["name"]]
    extras = {extra for pairs in installed for _, extra in pairs}
    assert extras <= set(project["optional-dependencies"])


def described(**project: str) -> list[str]:
    """The targets of links and pictures in the description of the package, as a package index shows it."""
    text = runpy.run_path(str(ROOT / "setup.py"))["description"](README, **project)
    tokens = [child for token in MarkdownIt().parse(text) for child in token.children or ()]
    return [str(token.attrs.get("href", token.attrs.get("src"))) for token in tokens if token.attrs]


def test_no_link_of_the_package_leads_into_its_checkout() -> None:
    """A package index shows the README without the files beside it."""
    assert all("://" in target for target in described())


def test_the_links_of_a_package_with_a_home_lead_to_its_version() -> None:
    home = "https://forge.example/turnwheel"
    targets = described(source=home, version="1.2.3")
    places = [target.removeprefix(f"{home}/").partition("/v1.2.3/") for target in targets]
    assert ("raw", "/v1.2.3/", "diagrams/machine.svg") in places
    assert ("blob", "/v1.2.3/", "docs/tutorial.md") in places
    assert all((ROOT / path.partition("#")[0]).exists() for _, _, path in places)


def pip_commands() -> list[str]:
    blocks = [command for command, _ in commands() if command.startswith("pip ")]
    return [*blocks, *INLINE.findall(README)]


@pytest.mark.real
@pytest.mark.timeout(3 * INSTALLING)
def test_the_readme_works_where_nothing_is_installed(tmp_path: Path, provider: str) -> None:
    """Make installs into the copy's own `.venv`, the wheel is built, and pip installs it and an extra."""
    home = tmp_path / "home"
    home.mkdir()
    registry = {name: value for name, value in os.environ.items() if is_about_the_network(name)}
    for settings in (".config/pip", ".pip"):
        if (Path.home() / settings).is_dir():
            shutil.copytree(Path.home() / settings, home / settings)
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if sys.prefix not in part)
    shell = Shell(copy_of_the_checkout(tmp_path / "clone"), home, {"PATH": path, **registry})
    if shell.run("pip download --no-deps --dest $HOME/look attrs", INSTALLING)[0]:
        pytest.skip("no registry can be reached")
    follow(shell, provider, real=True)
    for command in INLINE.findall(README):
        code, output = shell.run(command, INSTALLING)
        assert code == 0, output
    assert shell.run("python -c 'import aiohttp, turnwheel; assert \"agents\" in turnwheel.__file__'")[0] == 0


def is_about_the_network(name: str) -> bool:
    """Whether the environment variable *name* says how this machine reaches a registry."""
    return name.startswith(("PIP_", "SSL_")) or name.lower().endswith("_proxy")
