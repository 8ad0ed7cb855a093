"""A terminal, a pipe and a model for the tests of apps/; what test_stories.py plays its stories with."""

from __future__ import annotations

import codecs
import fcntl
import http.server
import json
import os
import pty
import select
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar, final

import attrs
import pyte
import pytest
from support.forked import Forked, Piped
from support.patience import PATIENCE

from turnwheel.apps.cli import main
from turnwheel.testing.scripted import Reply, calls, says

FOREIGN = "OPENAI_API_KEY ANTHROPIC_API_KEY TURNWHEEL_MODEL TURNWHEEL_DEBUG NO_COLOR FORCE_COLOR VISUAL"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own to work in, with a README, a store beside it, and no key."""
    for name in (*FOREIGN.split(), "EDITOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNWHEEL_STORE", str(tmp_path / "state" / "sessions.db"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = tmp_path / "here"
    here.mkdir()
    (here / "README.md").write_text("# Demo\n", "utf-8")
    monkeypatch.chdir(here)
    return here


Outputs = tuple[int, str, str]


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outputs]:
    """The command line in this process: the exit code, and what it wrote; *given* is what stdin has."""

    def run(*arguments: str, given: bytes | None = None) -> Outputs:
        before = sys.stdin
        if given is not None:
            path = Path(os.environ["TURNWHEEL_STORE"]).parents[1] / "stdin"
            path.write_bytes(given)
            sys.stdin = path.open(encoding="utf-8")
        try:
            code = main(arguments)
        finally:
            if given is not None:
                sys.stdin.close()
            sys.stdin = before
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@attrs.frozen
class Answer:
    """An answer of a model: text and calls, or in their place a status of HTTP, with the seconds to wait."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    status: int = 200
    patience: str = ""

    @classmethod
    def read(cls, written: str) -> Answer:
        """The answer *written* in a story: ``says Hi. & look {"at": "all"}``, ``cut half``, ``429 2``."""
        if written[0].isdecimal():
            status, _, patience = written.partition(" ")
            return cls(status=int(status), patience=patience)
        text, finish, wishes = "", "stop", list[tuple[str, str]]()
        for part in written.split(" & "):
            verb, _, rest = part.partition(" ")
            if verb in {"says", "cut"}:
                text = json.loads(rest) if rest.startswith('"') else rest
                finish = "length" if verb == "cut" else "stop"
            else:
                wishes.append((verb, rest or "{}"))
        return cls(text=text, calls=tuple(wishes), finish="tool_calls" if wishes else finish)

    def reply(self) -> Reply:
        if not self.calls:
            return says(self.text)
        return calls(*[(name, json.loads(arguments)) for name, arguments in self.calls], text=self.text)

    def stream(self) -> bytes:
        """It as a server streams it; 10 tokens came in and 5 went out."""
        wishes = [
            {"index": n, "id": f"c{n}", "type": "function", "function": {"name": name, "arguments": what}}
            for n, (name, what) in enumerate(self.calls)
        ]
        delta = {"role": "assistant", "content": self.text} | ({"tool_calls": wishes} if wishes else {})
        chunks = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]},
            {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
        ]
        return "".join([*[f"data: {json.dumps(each)}\n\n" for each in chunks], "data: [DONE]\n\n"]).encode()


@final
class _Model(http.server.BaseHTTPRequestHandler):
    """Gives the *answers* one by one, the last of them for ever."""

    answers: ClassVar[list[Answer]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        refused = answer.status != 200
        body = b'{"error":{"message":"it is so"}}' if refused else answer.stream()
        self.send_response(answer.status)
        self.send_header("content-type", "application/json" if refused else "text/event-stream")
        self.send_header("content-length", str(len(body)))
        if answer.patience:
            self.send_header("retry-after", answer.patience)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
        """Say nothing."""


@pytest.fixture
def model() -> Iterator[Callable[..., str]]:
    """A model server on loopback; calling sets its answers, begins it and returns its base URL."""
    with ExitStack() as begun:
        server: http.server.ThreadingHTTPServer | None = None

        def put(*answers: str) -> str:
            nonlocal server
            _Model.answers = [Answer.read(each) for each in answers]
            if server is None:
                server = begun.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Model))
                thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
                thread.start()
                begun.callback(thread.join)
                begun.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/v1"

        yield put


@final
class Paper:
    """What a terminal with *columns* and *rows* shows down to its cursor, and what has scrolled out of it."""

    def __init__(self, columns: int, rows: int = 50) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.Stream(self._screen)
        self._above: list[str] = []
        self.text = ""

    def write(self, text: str) -> None:
        self._stream.feed(text)
        self._look()

    def resize(self, rows: int, columns: int) -> None:
        self._screen.resize(rows, columns)
        self._look()

    def _look(self) -> None:
        scrolled, columns = self._screen.history.top, self._screen.columns
        new = range(len(self._above), len(scrolled))
        self._above += ["".join(scrolled[row][x].data for x in range(columns)).rstrip() for row in new]
        shown = [row.rstrip() for row in self._screen.display]
        while len(shown) > self._screen.cursor.y + 1 and not shown[-1]:
            shown.pop()
        self.text = "\n".join([*self._above, *shown])


@final
class Terminal:
    """The CLI with *arguments* in a terminal of its own: `raw` is all it wrote, `text` how that looks."""

    def __init__(self, *arguments: str, **more: str) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", **more}
        # First: on a busy machine the process may be quicker to change it.
        self._before = termios.tcgetattr(inner)
        self.process = Forked(arguments, (inner, inner, inner), env)
        self._open: tuple[int, ...] = (self._terminal, inner)
        self.raw = ""
        self.paper = Paper(100)
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._seen = 0

    @property
    def text(self) -> str:
        return self.paper.text

    def see(self, text: str) -> None:
        """Wait until *text* is there, behind what was seen before on lines that did not change since."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.text.find(text, self._seen)) < 0:
            assert self._more(deadline), f"no {text!r} in {self.text[self._seen :]!r}"
        self._seen = found + len(text)

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._terminal, 65_536)
        except OSError:  # the last one who had it open is gone
            return False
        before, new = self.text, self._decode(data)
        self.raw += new
        self.paper.write(new)
        self._look_again(before)
        return bool(data)

    def _look_again(self, before: str) -> None:
        """Count as not seen what has changed since the text was *before*."""
        same = takewhile(lambda both: both[0] == both[1], zip(before, self.text, strict=False))
        changed = self.text.rfind("\n", 0, sum(1 for _ in same)) + 1
        self._seen = min(self._seen, changed)

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def insist(self, key: str, text: str) -> None:
        """Press *key* again and again until *text* appears: one that comes with others is no answer."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.text[self._seen :]:
            assert time.monotonic() < deadline, self.text
            self.type(key)
            self._more(time.monotonic() + 0.5)
        self.see(text)

    def ends(self) -> int:
        """Wait for the end; returns the exit code. The terminal is as it was before."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._more(time.monotonic() + 0.02)
        while self._more(time.monotonic()):
            pass
        assert termios.tcgetattr(self._open[1]) == self._before
        assert self.raw.rfind("\x1b[?25l") <= self.raw.rfind("\x1b[?25h")  # the cursor is shown again
        assert self.raw.rfind("\x1b[?2004h") <= self.raw.rfind("\x1b[?2004l")  # pastes are as they were
        return self.process.wait()

    def resize(self, rows: int, columns: int) -> None:
        before = self.text
        self.paper.resize(rows, columns)
        self._look_again(before)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open = ()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


@final
class Talk:
    """`turnwheel ... --json` with *arguments* in a process of its own, spoken to line by line."""

    def __init__(self, *arguments: str) -> None:
        self._piped = Piped(*arguments)
        self.process = self._piped.process
        self.notices: list[dict[str, Any]] = []

    def say(self, line: str) -> None:
        self._piped.stdin.write(f"{line}\n")
        self._piped.stdin.flush()

    def until(self, kind: str) -> dict[str, Any]:
        for line in self._piped.stdout:
            notice: dict[str, Any] = json.loads(line)
            self.notices.append(notice)
            if notice["type"] == kind:
                return notice
        pytest.fail(f"no {kind}: {self._piped.communicate()}")

    def warned(self) -> str:
        return self._piped.stderr.readline()

    def ends(self) -> tuple[int, str]:
        """No more lines: the exit code, and what is on stderr."""
        out, err = self._piped.communicate()
        self.notices += map(json.loads, out.splitlines())
        return self.process.wait(), err

    def close(self) -> None:
        self._piped.close()


@pytest.fixture
def opens(folder: Path) -> Iterator[Callable[..., Terminal | Talk]]:
    """Opens terminals and pipes in *folder*, and ends what is left of them."""
    assert folder.is_dir()
    with ExitStack() as opened:

        def start(kind: str, *arguments: str, **env: str) -> Terminal | Talk:
            made = Terminal(*arguments, **env) if kind == "terminal" else Talk(*arguments)
            opened.callback(made.close)
            return made

        yield start


@pytest.fixture
def answer() -> type[Answer]:
    return Answer


@pytest.fixture
def paper() -> type[Paper]:
    return Paper
