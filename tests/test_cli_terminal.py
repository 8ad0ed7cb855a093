"""The command line at a real terminal: keys, questions, Ctrl-C, and what is left on the screen."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import http.server
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import final

import pytest
from rich.cells import cell_len
from rich.text import Text

from turnwheel import SetThinking, SQLiteStore
from turnwheel.apps.terminal.screen import Dock
from turnwheel.apps.terminal.screen import Screen as Written
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.machine import Machine
from turnwheel.states.batch.batch import Asked
from turnwheel.states.state import Confirming

PATIENCE = 15.0
"""Seconds until a test gives up on something to appear."""

LAUNCH = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if "OUTPUT" in os.environ:
    os.dup2(os.open(os.environ["OUTPUT"], os.O_WRONLY | os.O_CREAT), 1)
os.execv(sys.executable, [sys.executable, "-m", "turnwheel.apps.cli", *sys.argv[1:]])
"""
"""Makes its stdin the controlling terminal, so that Ctrl-C typed there is a signal, and becomes the CLI."""

CODE = re.compile(r"\x1b\[(\??[0-9;]*)([a-zA-Z])|\x1b|[^\x1b]", re.DOTALL)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CTRL_C = "\x03"
KEYS = "y yes   n no   a always"


@final
class Paper:
    """What a terminal of endless height shows, as far as it is told what to do here; it has *columns*."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._rows: list[list[str]] = [[]]
        self._row = 0
        self._column = 0
        self._rest = ""

    def write(self, text: str) -> None:
        """Show *text*, and obey the codes in it."""
        text, self._rest = self._rest + text, ""
        for match in CODE.finditer(text):
            if match[0] == "\x1b":  # the rest of the code has not come yet
                self._rest = text[match.start() :]
                return
            if match[2]:
                self._obey(match[1], match[2])
            else:
                self._show(match[0])

    def _obey(self, number: str, code: str) -> None:
        match code:
            case "A":
                self._row = max(0, self._row - int(number or 1))
            case "C":
                self._column = min(self.columns, self._column + int(number or 1))
            case "J":
                del self._rows[self._row + 1 :], self._rows[self._row][self._column :]
            case "K":
                self._rows[self._row] = []
            case _:
                pass  # colours, and modes that draw nothing

    def _show(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n" or self._column + cell_len(char) > self.columns:
            self._row += 1
            self._column = self._column if char == "\n" else 0
            if self._row == len(self._rows):
                self._rows.append([])
        if char >= " ":
            row = self._rows[self._row]
            row += [" "] * (self._column - len(row))
            row[self._column : self._column + cell_len(char)] = [char, *[""] * (cell_len(char) - 1)]
            self._column += cell_len(char)

    @property
    def text(self) -> str:
        """All rows, without the blanks at their ends."""
        return "\n".join("".join(row).rstrip() for row in self._rows)


@final
class Screen:
    """The CLI with *arguments* in a terminal of its own: `raw` is all it wrote, `text` how that looks."""

    def __init__(self, folder: Path, store: Path, *arguments: str, **more: str) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        unset = {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TURNWHEEL_MODEL", "NO_COLOR", "VISUAL", "EDITOR"}
        env = {name: value for name, value in os.environ.items() if name not in unset}
        env |= {"TURNWHEEL_STORE": str(store), "TERM": "xterm-256color", "PYTHONUTF8": "1", **more}
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
        self._before = termios.tcgetattr(inner)
        self._inner = inner
        self._open: tuple[int, ...] = (self._terminal, inner)
        self.raw = ""
        self.paper = Paper(100)
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._seen = 0

    @property
    def text(self) -> str:
        """What is on the screen, with what has scrolled away."""
        return self.paper.text

    def expect(self, text: str) -> None:
        """Wait until *text* is there, behind what was expected before on lines that did not change since."""
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
        same = takewhile(lambda both: both[0] == both[1], zip(before, self.text, strict=False))
        changed = self.text.rfind("\n", 0, sum(1 for _ in same)) + 1
        self._seen = min(self._seen, changed)
        return bool(data)

    def type(self, keys: str) -> None:
        """Press *keys*."""
        os.write(self._terminal, keys.encode())

    def insist(self, key: str, text: str) -> None:
        """Press *key* again and again until *text* appears: one that comes with others is no answer."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.text[self._seen :]:
            assert time.monotonic() < deadline, self.text
            self.type(key)
            self._more(time.monotonic() + 0.5)
        self.expect(text)

    def ends(self) -> int:
        """Wait for the end; returns the exit code. The terminal is as it was before."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._more(time.monotonic() + 0.02)
        while self._more(time.monotonic()):
            pass
        after = termios.tcgetattr(self._inner)
        assert after == self._before
        assert self.raw.count("\x1b[?25l") == self.raw.count("\x1b[?25h")  # the cursor is shown again
        assert self.raw.rfind("\x1b[?2004h") <= self.raw.rfind("\x1b[?2004l")  # pastes are as they were
        return self.process.returncode

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window."""
        self.paper.columns = columns
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Close the terminal."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open = ()

    def close(self) -> None:
        """End what is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


Opens = Callable[..., Screen]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the sessions of a test are."""
    return tmp_path / "sessions.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the agent of a test works."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "README.md").write_text("# Demo\n", "utf-8")
    return here


@pytest.fixture
def opens(folder: Path, store: Path) -> Iterator[Opens]:
    """Starts the command line in a terminal."""
    screens: list[Screen] = []

    def start(*arguments: str, **env: str) -> Screen:
        screen = Screen(folder, store, *arguments, **env)
        screens.append(screen)
        return screen

    yield start
    for screen in screens:
        screen.close()


@pytest.fixture
def run(opens: Opens) -> Opens:
    """Starts `turnwheel run` with the stand-in in a terminal."""
    return partial(opens, "run")


@pytest.fixture
def chat(opens: Opens) -> Opens:
    """Starts `turnwheel chat` in session ``s`` with the stand-in that runs commands, and waits for it."""

    def start(*arguments: str, **env: str) -> Screen:
        screen = opens("chat", "s", "--model", "openai:stand-in-bash", *arguments, **env)
        screen.expect("> ask for something, or /help")
        return screen

    return start


@pytest.fixture
def elsewhere(folder: Path, store: Path) -> Callable[..., str]:
    """Does a command in another process; returns what it said."""

    def do(*arguments: str) -> str:
        command = [sys.executable, "-m", "turnwheel.apps.cli", *arguments, "--store", str(store)]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout

    return do


def command(text: str) -> tuple[str, ...]:
    """The arguments that make the stand-in want to run *text* in session ``s``."""
    return ("--session", "s", "--model", "openai:stand-in-bash", f"run: {text}")


def after(store: Path) -> Machine:
    """The machine of session ``s``, as it was stored."""

    async def load() -> Machine:
        kept = SQLiteStore(store)
        machine = fold(await kept.load("s"), "s").machine
        await kept.close()
        assert machine is not None
        return machine

    return asyncio.run(load())


def until(it_is_so: Callable[[], bool]) -> None:
    """Look again and again whether *it_is_so*."""
    deadline = time.monotonic() + PATIENCE
    while not it_is_so():
        assert time.monotonic() < deadline


def outcomes(machine: Machine) -> list[Outcome]:
    """How the calls of *machine*'s history ended."""
    return [result.outcome for message in machine.memory.history for result in message.results]


def test_yes_runs_what_was_shown(run: Opens, folder: Path) -> None:
    """The call, its preview, the keys; then the result, the answer and the bill."""
    screen = run("Write a report to R.md")
    screen.expect("scripted stand-in (no model, no key)")
    screen.expect("> Write a report to R.md")
    screen.expect("? write R.md")
    screen.expect("+ # Report")
    screen.expect(KEYS)
    assert not (folder / "R.md").exists()
    screen.type("y")
    screen.expect("✓ yes")
    screen.expect("● write R.md")
    screen.expect("⎿ wrote ")
    screen.expect("4 turns · ")
    assert screen.ends() == 0
    assert (folder / "R.md").exists()
    assert COLOUR.search(screen.raw)


def test_no_is_told_to_the_model_with_the_reason(run: Opens, folder: Path, store: Path) -> None:
    """And the call does not run."""
    screen = run(*command("touch made"))
    screen.expect("$ touch made")
    screen.expect(KEYS)
    screen.type("n")
    screen.expect("why?")
    screen.type("häßlich\n")
    screen.expect("⎿ häßlich")
    assert screen.ends() == 0
    assert not (folder / "made").exists()
    assert outcomes(after(store)) == [Outcome.DENIED]


def test_always_holds_for_the_session(run: Opens, store: Path) -> None:
    """The next run of it is not asked again."""
    first = run(*command("echo one"))
    first.expect(KEYS)
    first.type("a")
    first.expect("✓ always bash")
    assert first.ends() == 0
    second = run("--resume", "s", "run: echo two")
    second.expect("⎿ two")
    assert second.ends() == 0
    assert "always" not in second.text
    assert outcomes(after(store)) == [Outcome.OK, Outcome.OK]


def test_arguments_are_edited_at_the_prompt(run: Opens) -> None:
    """What is no JSON, or does not fit the tool, is told; what does is asked about once more."""
    screen = run(*command("echo one"))
    screen.expect(KEYS)
    screen.type("e")
    screen.expect('now: {"command": "echo one"}')
    screen.expect("new (JSON, one line; Enter leaves it):")
    screen.type("\n")
    screen.expect(KEYS)
    screen.type("e")
    screen.expect("Enter leaves it):")
    screen.type("{oops\n")
    screen.expect("no JSON object")
    screen.expect("e edit again")
    screen.type("n")
    screen.expect("as it was")
    screen.expect(KEYS)
    screen.type("e")
    screen.expect("Enter leaves it):")
    screen.type("{oops\n")
    screen.expect("e edit again")
    screen.type("e")
    screen.expect("Enter leaves it):")
    screen.type('{"command": 1}\n')
    screen.expect("must be of type string")
    screen.expect("e edit again")
    screen.type("e")
    screen.expect("Enter leaves it):")
    screen.type('{"command": "echo two"}\n')
    screen.expect("$ echo two")
    screen.expect("y yes   n no   e edit")
    screen.type("y")
    screen.expect("⎿ two")
    assert screen.ends() == 0


def test_arguments_are_edited_in_an_editor(run: Opens, tmp_path: Path) -> None:
    """VISUAL gets a file of readable JSON; Ctrl-C is its own business while it is open."""
    editor = tmp_path / "my editor"
    text = (
        f"#!{sys.executable}\n"
        "import os, pathlib, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "path = pathlib.Path(sys.argv[-1])\n"
        'assert path.read_text() == \'{\\n  "command": "echo one"\\n}\\n\'\n'
        'path.write_text(\'{"command": "echo edited"}\')\n'
    )
    editor.write_text(text, "utf-8")
    editor.chmod(0o700)
    screen = run(*command("echo one"), VISUAL=f"'{editor}'")
    screen.expect(KEYS)
    screen.type("e")
    screen.expect("$ echo edited")
    screen.expect("y yes   n no   e edit")
    screen.type("y")
    screen.expect("⎿ edited")
    assert screen.ends() == 0


@pytest.mark.parametrize(("editor", "told"), [("/nowhere/vi", "not edited: "), ("false", "exit code 1")])
def test_an_editor_that_fails_changes_nothing(editor: str, told: str, run: Opens) -> None:
    """It is told, and the question stands."""
    screen = run(*command("echo one"), EDITOR=editor)
    screen.expect(KEYS)
    screen.type("e")
    screen.expect(told)
    screen.expect(KEYS)
    screen.type("y")
    screen.expect("⎿ one")
    assert screen.ends() == 0


def test_other_keys_are_no_answer(run: Opens) -> None:
    """Neither a cursor key, which sends an A, nor a paste, nor what was typed too early."""
    screen = run(*command("echo one"))
    screen.type("yyy")
    screen.expect(KEYS)
    for keys in ("\x1b[A", "x", "yes please"):
        screen.type(keys)
    screen.insist("n", "✗ no")
    screen.expect("why?")
    screen.type("\n")
    assert screen.ends() == 0
    assert "✓" not in screen.text


def test_ctrl_c_keeps_what_was_said(run: Opens, store: Path) -> None:
    """The run ends, the text so far is in the history, and the next run goes on from there."""
    screen = run("--session", "s", "--model", "openai:stand-in-slow", "hello")
    screen.expect("I am the scripted")
    screen.type(CTRL_C)
    screen.expect("stopping; Ctrl-C again leaves at once")
    screen.expect("what was said is kept")
    screen.expect('go on with: turnwheel run --resume s "PROMPT"')
    assert screen.ends() == 130
    last = after(store).memory.history[-1]
    assert last.text.startswith("I am the scripted")
    assert json.dumps(str(StopReason.INTERRUPTED)) in json.dumps(
        [str(getattr(part, "reason", "")) for part in last.parts]
    )
    again = run("--resume", "s", "hi")
    again.expect("I am the scripted stand-in of turnwheel")
    again.type(CTRL_C)
    assert again.ends() == 130


def test_ctrl_c_at_a_question_interrupts_the_run(run: Opens, folder: Path, store: Path) -> None:
    """Nothing runs, and nothing stays open."""
    screen = run(*command("touch made"))
    screen.expect(KEYS)
    screen.type(CTRL_C)
    screen.expect("what was said is kept")
    assert screen.ends() == 130
    assert not (folder / "made").exists()
    assert outcomes(after(store)) == [Outcome.CANCELLED]


def test_ctrl_c_at_a_reason_interrupts_the_run(run: Opens, store: Path) -> None:
    """The no was not finished, so it was none."""
    screen = run(*command("echo one"))
    screen.expect(KEYS)
    screen.type("n")
    screen.expect("why?")
    screen.type(CTRL_C)
    assert screen.ends() == 130
    assert outcomes(after(store)) == [Outcome.CANCELLED]


def test_ctrl_c_ends_a_command(run: Opens, folder: Path, store: Path) -> None:
    """With what it started."""
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    screen = run("--allow", "bash", *command("echo begun > fifo; exec sleep 600"))
    assert fifo.read_text("utf-8") == "begun\n"
    screen.type(CTRL_C)
    assert screen.ends() == 130
    assert len(outcomes(after(store))) == 1


def test_to_be_terminated_leaves_the_run_unfinished(run: Opens, store: Path) -> None:
    """It says how to go on, and the question is asked again there."""
    screen = run(*command("echo one"))
    screen.expect(KEYS)
    screen.process.send_signal(signal.SIGTERM)
    screen.expect("terminated by SIGTERM; the run can be resumed")
    screen.expect("go on with: turnwheel run --resume s\n")
    assert screen.ends() == 143
    assert not after(store).done
    again = run("--resume", "s")
    again.expect("$ echo one")
    again.expect(KEYS)
    again.type("y")
    again.expect("⎿ one")
    assert again.ends() == 0


def test_a_terminal_that_is_closed_leaves_the_run_unfinished(run: Opens, store: Path) -> None:
    """Nobody said no."""
    screen = run(*command("echo one"))
    screen.expect(KEYS)
    screen.hang_up()
    assert screen.process.wait(PATIENCE) == 129
    state = after(store).state
    assert isinstance(state, Confirming)
    assert [type(call.phase) for call in state.batch.calls] == [Asked]


def test_what_is_asked_goes_to_stderr(run: Opens, folder: Path) -> None:
    """So the output can be put into a file, question by question."""
    screen = run(*command("echo one"), OUTPUT="answer.txt")
    screen.expect("$ echo one")
    screen.expect(KEYS)
    screen.type("y")
    assert screen.ends() == 0
    text = (folder / "answer.txt").read_text("utf-8")
    assert "⎿ one" in text
    assert "yes" not in text
    assert "⎿" not in screen.text


def test_quiet_asks_and_then_says_the_last_answer(run: Opens) -> None:
    """What is asked has to be seen."""
    screen = run("--quiet", *command("echo one"))
    screen.expect("$ echo one")
    screen.expect(KEYS)
    screen.type("y")
    screen.expect("✓ yes\n`bash` returned:")
    assert screen.ends() == 0


def test_no_color_is_respected(run: Opens) -> None:
    """The cursor may move, colours stay away."""
    screen = run("hello", NO_COLOR="1")
    screen.expect("1 turn · ")
    assert screen.ends() == 0
    assert [code for code in COLOUR.findall(screen.raw) if re.search(r"3[0-9]|4[0-9]", code)] == []


@pytest.fixture
def busy() -> Iterator[str]:
    """The base URL of a model that asks for three seconds of patience before it says *here I am*."""

    class Model(http.server.BaseHTTPRequestHandler):
        asked = False

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            chunk = {"choices": [{"index": 0, "delta": {"content": "here I am"}, "finish_reason": "stop"}]}
            body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n" if Model.asked else "{}"
            self.send_response(200 if Model.asked else 429)
            self.send_header("retry-after", "3")
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())
            Model.asked = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_wait_is_counted_down(command: str, opens: Opens, busy: str) -> None:
    """Second by second, below its reason; then the model is asked."""
    chats = command == "chat"
    screen = opens(command, "s" if chats else "hello", "--base-url", busy)
    if chats:
        screen.expect("> ask for something")
        screen.type("hello\r")
    screen.expect("rate_limit: http 429")
    screen.expect(" · try 2 in 3 s\n")
    for seconds in (3, 2, 1):
        screen.expect(f"try 2 in {seconds} s · Ctrl-C stops" if chats else f"try 2 in {seconds} s")
    screen.expect("here I am")
    screen.expect("1 turn · ")
    if chats:
        screen.expect("> ask for something")
        screen.type("\x04")
    assert screen.ends() == 0


def test_tables_have_headings_and_numbers_below_each_other(opens: Opens) -> None:
    """The last column is cut to the width there is."""
    for options in (["--session", "s"], ["--resume", "s"]):
        assert opens("run", *options, "What is in README.md? " * 9).ends() == 0
    shown: dict[str, list[str]] = {}
    for command in (["sessions"], ["runs", "s"], ["usage", "s"]):
        screen = opens(*command)
        assert screen.ends() == 0
        shown[command[0]] = screen.text.splitlines()
    heading, row = shown["sessions"]
    assert re.fullmatch(r"session  state           runs  tokens  cost  active +title", heading)
    assert re.fullmatch(r"s        done: end_turn     2 +[0-9,]+    \$0  just now  What is in .*\.\.\.", row)
    heading, first, second = shown["runs"]
    assert re.fullmatch(r"run                 state           tokens  cost  began +prompt", heading)
    assert [len(first), first[-3:], second[14:18]] == [100, "...", "here"]
    heading, *rows = shown["usage"]
    assert re.fullmatch(r"account +turns +in  cached +out +active  cost", heading)
    assert [row.split()[0] for row in rows] == ["s", "openai:stand-in", "tools"]
    assert {row.rfind("$0") for row in rows[:2]} == {heading.find("cost")}


def test_a_terminal_without_the_signs_gets_plain_ones(run: Opens) -> None:
    """Where the encoding has no bullet, a star does."""
    screen = run("Who wrote README.md?", PYTHONUTF8="0", PYTHONIOENCODING="ascii", LC_ALL="C")
    screen.expect("* read README.md")
    assert screen.ends() == 0


def test_no_and_stop_ends_the_run(run: Opens, store: Path) -> None:
    """The model is not asked any more."""
    screen = run(*command("echo one"))
    screen.expect("s no, and stop")
    screen.type("s")
    screen.expect("✗ no, and stop")
    screen.expect("why?")
    screen.type("enough\n")
    screen.expect("interrupted; what was said is kept")
    assert screen.ends() == 130
    assert outcomes(after(store)) == [Outcome.DENIED]


def test_a_question_that_is_answered_elsewhere_goes_away(run: Opens, elsewhere: Callable[..., str]) -> None:
    """Whether a key or a reason is waited for; who answered is told."""
    screen = run("--parallel", *command("echo 1 and run: echo 2"))
    screen.expect(KEYS)
    screen.type("n")
    screen.expect("why?")
    first, second = re.findall(r"#(\d+)", elsewhere("questions", "s"))
    elsewhere("approve", "s", first)
    screen.expect(f"#{first} was answered by ")
    screen.expect(f"? bash  #{second}")
    elsewhere("deny", "s", second, "--message", "rather not")
    screen.expect(f"#{second} was answered by ")
    screen.expect("(deny): no: rather not")
    assert screen.ends() == 0
    assert "⎿ 1" in screen.text


# Chatting


def test_a_chat_goes_on_over_several_turns(opens: Opens, folder: Path, store: Path) -> None:
    """Text, a question with its card, a no that the model reacts to, and an account of it all."""
    screen = opens("chat", "s")
    screen.expect("scripted stand-in (no model, no key)  session s")
    screen.expect("> ask for something, or /help")
    screen.type("How long is README.md?\r")
    screen.expect("> How long is README.md?")
    screen.expect("● read README.md")
    screen.expect("README.md has 1 lines")
    screen.expect("2 turns · ")
    screen.expect("> ask for something")
    screen.type("Write a report to R.md\r")
    screen.expect("? write R.md")
    screen.expect("+ # Report")
    screen.expect(KEYS)
    screen.type("n put it into S.md\r")
    screen.expect("⎿ put it into S.md")
    screen.expect("You said no to R.md, so I write it to S.md.")
    screen.expect(KEYS)
    screen.type("y\r")
    screen.expect("✓ write #")
    screen.expect("The report is in S.md.")
    screen.expect("> ask for something")
    screen.type("what did you do?\r")
    screen.expect("I made 7 tool calls: ")
    screen.expect("> ask for something")
    screen.type("\x04")
    screen.expect("go on with: turnwheel chat s\n")
    assert screen.ends() == 0
    assert [path.name for path in sorted(folder.iterdir())] == ["README.md", "S.md"]
    again = opens("chat", "s")
    again.expect("> what did you do?")
    again.expect("I made 7 tool calls: ")
    again.expect("> ask for something")
    again.type("/quit\r")
    assert again.ends() == 0
    assert len(outcomes(after(store))) == 7


def test_questions_are_answered_in_any_order(chat: Opens, store: Path) -> None:
    """Each by its number; which one is meant has to be said."""
    screen = chat("--parallel")
    screen.type("run: echo one and run: echo two\r")
    screen.expect("$ echo one")
    screen.expect("$ echo two")
    screen.expect("about ")
    screen.expect(f" or all: {KEYS}")
    first, second = re.findall(r"bash  #(\d+)", screen.text)[:2]
    screen.type("y\r")
    screen.expect(f"2 questions are open: say which one, {first} or {second}, or all")
    screen.type(f"n {second} not two\r")
    screen.expect("⎿ not two")
    screen.type("y\r")
    screen.expect("⎿ one")
    screen.expect("> ask for something")
    screen.type(CTRL_C)
    assert screen.ends() == 0
    assert outcomes(after(store)) == [Outcome.OK, Outcome.DENIED]


def test_what_is_typed_while_it_works_waits_or_steers(chat: Opens, folder: Path) -> None:
    """The line that is being typed stays below what is written above it."""
    os.mkfifo(folder / "fifo")
    screen = chat("--allow", "bash")
    screen.type("run: cat fifo\r")
    screen.expect("● bash cat fifo")
    screen.type("run: echo later\r")
    screen.expect("'run: echo later' waits for its turn")
    screen.expect("1 prompt waiting")
    screen.type("/queue\r")
    screen.expect("> /queue\n1  run: echo later")
    screen.type("half a line")
    screen.expect("> half a line")
    (folder / "fifo").write_text("through\n", "utf-8")
    screen.expect("⎿ through")
    screen.expect("> half a line")
    screen.expect("> run: echo later")
    screen.expect("⎿ later")
    screen.expect("> half a line")
    screen.type("\x15run: cat fifo\r")
    screen.expect("● bash cat fifo")
    screen.type("!enough of this\r")
    screen.expect("⎿ Cancelled")
    screen.expect("> enough of this")
    screen.expect("so I stop here")
    screen.expect("> ask for something")
    screen.type("\x04")
    assert screen.ends() == 0


def test_a_setting_is_changed_and_a_call_explained(chat: Opens, folder: Path) -> None:
    """In the middle of a conversation."""
    screen = chat("--also-model", "anthropic:x")
    screen.type("/mode plan\r")
    screen.expect("from the next run on: mode plan")
    screen.type("/model openai:gpt-5\r")
    screen.expect("no switch to 'openai:gpt-5'")
    screen.type("/model openai:stand-in\r")
    screen.expect("from the next run on: model openai:stand-in\n")
    screen.type("/model openai:stand-in-bash\r")
    screen.expect("from the next run on: model openai:stand-in-bash\n")
    screen.type("run: touch made\r")
    screen.expect("Denied: the permission mode is plan.")
    screen.expect("> ask for something")
    call = re.findall(r"bash touch made  #(\d+)", screen.text)[0]
    screen.type(f"/why {call}\r")
    screen.expect("judged  deny, by mode: plan")
    screen.type("/fly\r")
    screen.expect("no command '/fly'")
    screen.type("/quit\r")
    assert screen.ends() == 0
    assert not (folder / "made").exists()
    again = chat()
    assert "session s  'run: touch made'  mode plan" in again.text
    again.type("\x04")
    assert again.ends() == 0


def test_a_call_is_given_up_by_its_number(chat: Opens) -> None:
    """And the run goes on."""
    screen = chat("--allow", "bash")
    screen.type("run: sleep 600\r")
    screen.expect("● bash sleep 600  #")
    call = re.findall(r"sleep 600  #(\d+)", screen.text)[0]
    screen.type("/cancel 99\r")
    screen.expect(f"no call '99' under way; there are: '{call}'")
    screen.type(f"/cancel {call}\r")
    screen.expect("⎿ Cancelled")
    screen.expect("`bash` did not succeed")
    screen.expect("> ask for something")
    screen.type("\x04")
    assert screen.ends() == 0


def test_arguments_are_edited_on_the_line(chat: Opens) -> None:
    """They stand there to be changed; what is made of them is shown and asked about once more."""
    screen = chat()
    screen.type("run: echo one\r")
    screen.expect(KEYS)
    screen.type("e\r")
    screen.expect("; Enter takes them")
    screen.expect('> {"command": "echo one"}')
    screen.type("\r")
    screen.expect("the arguments stay as they were")
    screen.type("e\r")
    screen.expect('> {"command": "echo one"}')
    screen.type("oops\r")
    screen.expect("no JSON object")
    screen.type('e {"command": "echo two"}\r')
    screen.expect("$ echo two")
    screen.type("a\r")
    screen.expect("say y to this one")
    screen.type("y\r")
    screen.expect("⎿ two")
    screen.expect("> ask for something")
    screen.type("\x04")
    assert screen.ends() == 0


@pytest.mark.parametrize(
    ("script", "told"),
    [("""echo '{"command": "echo two"}' > "$1\"""", "$ echo two"), ("exit 1", "not edited: ")],
)
def test_arguments_are_edited_in_an_editor_meanwhile(
    script: str, told: str, chat: Opens, tmp_path: Path, store: Path, elsewhere: Callable[..., str]
) -> None:
    """It has the terminal; what comes meanwhile is shown when it is left."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\ncat {fifo}\n{script}\n", "utf-8")
    editor.chmod(0o700)
    screen = chat(EDITOR=str(editor))
    screen.type("run: echo one\r")
    screen.expect(KEYS)
    screen.type("e\r")
    for tokens in (7, 8):
        elsewhere("control", "s", "--think", str(tokens))
    # One step follows the other, so that by now the first has been told.
    until(lambda: after(store).memory.thinking == SetThinking(tokens=8))
    with fifo.open("w", encoding="utf-8") as gate:
        gate.write("this is an editor\n")
    screen.expect("this is an editor\nfrom now on: thinking up to 7 tokens")
    screen.expect(told)
    screen.expect(KEYS)
    screen.type("y\r")
    screen.expect("⎿ ")
    screen.expect("> ask for something")
    screen.type("\x04")
    assert screen.ends() == 0


def test_a_question_of_a_chat_may_be_answered_elsewhere(chat: Opens, elsewhere: Callable[..., str]) -> None:
    """It goes away, and who answered is told; a letter that comes too late is no prompt."""
    screen = chat()
    screen.type("run: echo one\r")
    screen.expect(KEYS)
    screen.type("y")
    elsewhere("approve", "s", "all")
    screen.expect("was answered by ")
    screen.expect("⎿ one")
    screen.expect("s active")
    screen.type("\r")
    screen.expect("no question is open any more")
    screen.type("\x04")
    assert screen.ends() == 0


def test_what_others_say_to_a_chat_is_heeded(chat: Opens, elsewhere: Callable[..., str], store: Path) -> None:
    """Prompts, steers and an interrupt, as if they had been typed."""
    screen = chat("--allow", "bash")
    screen.type("/think off\r")
    screen.expect("from the next run on: thinking as the provider does")
    elsewhere("send", "s", "run: sleep 600")
    screen.expect("> run: sleep 600")
    screen.expect("● bash sleep 600")
    elsewhere("send", "s", "run: echo next")
    screen.expect("'run: echo next' waits for its turn")
    elsewhere("interrupt", "s")
    screen.expect("stopping; Ctrl-C again leaves at once")
    screen.expect("interrupted; what was said is kept")
    screen.expect("⎿ next")
    screen.expect("> ask for something")
    screen.type("\x04")
    assert screen.ends() == 0
    assert outcomes(after(store)) == [Outcome.CANCELLED, Outcome.OK]


def test_ctrl_c_stops_the_run_and_not_the_chat(chat: Opens, folder: Path) -> None:
    """What waits comes next; twice waits for nothing. Where nothing goes on it clears the line or leaves."""
    os.mkfifo(folder / "fifo")
    screen = chat("--allow", "bash")
    screen.type("run: trap '' TERM INT; echo begun > fifo; sleep 600; sleep 600\r")
    assert (folder / "fifo").read_text("utf-8") == "begun\n"
    screen.type("run: echo next\r")
    screen.expect("waits for its turn")
    screen.type(CTRL_C)
    screen.expect("stopping; Ctrl-C again leaves at once")
    screen.type(CTRL_C)
    screen.expect("it may have run")
    screen.expect("interrupted; what was said is kept")
    screen.expect("⎿ next")
    screen.expect("> ask for something")
    screen.type("some text")
    screen.expect("some text")
    screen.type(CTRL_C)
    screen.expect("> ask for something")
    screen.type(CTRL_C)
    screen.expect("go on with: turnwheel chat s")
    assert screen.ends() == 0


def test_a_chat_that_is_left_at_work_goes_on_later(chat: Opens, opens: Opens, store: Path) -> None:
    """Ctrl-D leaves; the question is asked again, and what was queued is answered."""
    screen = chat()
    screen.type("run: echo one\r")
    screen.expect(KEYS)
    screen.type("run: echo two\r")
    screen.expect("waits for its turn")
    screen.type("\x04")
    screen.expect("the run rests on 1 question:")
    screen.expect("answer with: turnwheel approve s CALL, or deny; CALL may be all")
    screen.expect("go on with: turnwheel chat s\n")
    assert screen.ends() == 3
    assert not after(store).done
    again = opens("chat", "s")
    again.expect(KEYS)
    again.type("y\r")
    again.expect("⎿ one")
    again.expect("> run: echo two")
    again.expect(KEYS)
    again.type("s\r")
    again.expect("interrupted; what was said is kept")
    again.expect("> ask for something")
    again.type("\x04")
    assert again.ends() == 0


def test_a_chat_that_is_ended_from_outside_goes_on_later(chat: Opens, opens: Opens, store: Path) -> None:
    """SIGTERM says how, a terminal that is gone is told nothing."""
    screen = chat()
    screen.type("run: echo one\r")
    screen.expect(KEYS)
    screen.process.send_signal(signal.SIGTERM)
    screen.expect("terminated by SIGTERM; the run can be resumed")
    screen.expect("go on with: turnwheel chat s\n")
    assert screen.ends() == 143
    again = opens("chat", "s")
    again.expect(KEYS)
    again.hang_up()
    assert again.process.wait(PATIENCE) == 129
    assert not after(store).done


def test_a_chat_may_be_left_in_the_middle_of_its_work(chat: Opens, opens: Opens, store: Path) -> None:
    """What was at work is stopped, and the next chat says what became of it."""
    screen = chat("--allow", "bash")
    screen.type("run: sleep 600\r")
    screen.expect("● bash sleep 600")
    screen.type("hello\r")
    screen.expect("waits for its turn")
    screen.type("/quit\r")
    screen.expect("the run is not over\n1 prompt waiting\ngo on with: turnwheel chat s\n")
    assert screen.ends() == 3
    assert not after(store).done
    again = opens("chat", "s")
    again.expect("recovered: bash sleep 600 - it may have run and is not run again")
    again.expect("> hello")
    again.expect("give me a command")
    again.expect("> ask for something")
    again.type("\x04")
    assert again.ends() == 0


def test_arguments_nobody_asks_about_any_more_are_no_prompt(
    chat: Opens, elsewhere: Callable[..., str], store: Path
) -> None:
    """Somebody else answered while they were being edited."""
    screen = chat()
    screen.type("run: echo one\r")
    screen.expect(KEYS)
    screen.type("e\r")
    screen.expect('> {"command": "echo one"}')
    elsewhere("deny", "s", "all")
    screen.expect("was answered by ")
    screen.expect("> ask for something")
    screen.type("\r\x04")
    assert screen.ends() == 0
    assert len([message for message in after(store).memory.history if message.text.startswith("{")]) == 0


def test_a_row_that_is_full_is_one_row(chat: Opens) -> None:
    """The line below it does not tear what is written on."""
    screen = chat("--allow", "bash")
    screen.type("run: printf '%0100d\\n' 0\r")
    screen.expect(f"```\n{'0' * 100}\n[exit code 0]\n```\n")
    screen.expect("> ask for something")
    screen.type("\x04")
    assert screen.ends() == 0


def test_lines_are_edited_pasted_and_brought_back(chat: Opens, store: Path) -> None:
    """As one is used to; what is pasted is one prompt however many lines it has."""
    screen = chat("--allow", "bash")
    screen.type("run: echo onnn\x7f\x7fe\r")
    screen.expect("⎿ one")
    screen.expect("> ask for something")
    screen.type("\x1b[A")
    screen.expect("> run: echo one")
    screen.type(" more\r")
    screen.expect("⎿ one more")
    screen.expect("> ask for something")
    screen.type("\x1b[200~hello\nrun: echo pasted\x1b[201~")
    screen.expect("  run: echo pasted")
    screen.type("\r")
    screen.expect("⎿ pasted")
    screen.expect("> ask for something")
    screen.type("\x04")
    assert screen.ends() == 0
    assert len(outcomes(after(store))) == 3


def test_the_line_is_drawn_again_where_that_is_needed(chat: Opens) -> None:
    """When the window changes its size, and when one comes back from the shell."""
    screen = chat()
    screen.type("a line that is typed")
    screen.expect("> a line that is typed")
    screen.resize(50, 14)
    screen.expect("> a line that\n   is typed")
    screen.resize(50, 100)
    screen.expect("> a line that is typed")
    screen.process.send_signal(signal.SIGSTOP)
    screen.process.send_signal(signal.SIGCONT)
    screen.expect("> a line that is typed")
    screen.type("\x15\x04")
    assert screen.ends() == 0


def test_in_a_chat_nothing_can_be_slipped_under_a_question(chat: Opens) -> None:
    """What models and tools say is shown as codes, what is typed too."""
    screen = chat("--allow", "bash")
    screen.type("run: printf '\\033[2Jevil\\n'\r")
    screen.expect("\\x1b[2Jevil")
    screen.expect("> ask for something")
    screen.type("\x1b[200~\x9b2J\x1b[201~")
    screen.expect("> \\x9b2J")
    screen.type("\x15\x04")
    assert screen.ends() == 0


def test_a_terminal_that_can_do_little_gets_lines(opens: Opens) -> None:
    """One types as it lets one."""
    screen = opens("chat", "s", TERM="dumb")
    screen.expect("session s")
    screen.type("hello\n")
    screen.expect("I am the scripted stand-in")
    screen.type("Write a report to R.md\n")
    screen.expect("? write R.md")
    screen.expect(KEYS)
    screen.type("y\n")
    screen.expect("The report is in R.md")
    screen.expect("s active")
    screen.type("\x04")
    assert screen.ends() == 0


# What it did, step by step


def test_steps_fit_the_terminal_and_look_different(opens: Opens, run: Opens) -> None:
    """At 80 columns each step is a line, long texts are cut, and where something moved stands out."""
    screen = run("--session", "s", "--stand-in", "Write a report to R.md, " + "please " * 30)
    screen.expect("? write R.md")
    screen.insist("n", "why")
    screen.type("\x15not now\n")  # it may have been pressed once more
    assert screen.ends() == 0
    steps = opens("replay", "s", "--effects", COLUMNS="80")
    assert steps.ends() == 0
    heading, *lines = steps.text.splitlines()
    assert heading == "step  time      state               what happened"
    assert max(len(text) for text in lines) <= 80
    assert any(text.endswith("...") for text in lines)
    assert "no, not now" in steps.text
    assert "\x1b[1mexecuting" in steps.raw  # it has moved there
    assert "\x1b[36mModelFinished" in steps.raw
    denied = next(int(text.split()[0]) for text in lines if "ApprovalGiven #" in text)
    fork = opens("fork", "s", "t", "--at", str(denied), "--approve")
    fork.expect("go on with: turnwheel run --resume t")
    assert fork.ends() == 0
    parts = opens("bisect", "s", "t")
    parts.expect("they part in event.decision.type")
    assert parts.ends() == 9


# The dock, on its own


@final
class Tty(io.StringIO):
    """A terminal that keeps what it is told."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def rows_of(codes: str) -> list[str]:
    """What a terminal of ten columns shows that was told *codes*."""
    paper = Paper(10)
    paper.write(codes.replace("\n", "\r\n"))
    return paper.text.splitlines()


@pytest.mark.parametrize(
    ("bits", "rows"),
    [
        (["one ", "two"], ["one two"]),
        (["one\n", "two"], ["one", "two"]),
        (["0123456789", "\nnext"], ["0123456789", "next"]),
        (["0123456789", "", "\n", "next"], ["0123456789", "next"]),
        (["0123456789", "next"], ["0123456789", "next"]),
        (["0123456789", "\n\nnext"], ["0123456789", "", "next"]),
        (["日本語日本", "語"], ["日本語日本", "語"]),
        (["123456789", "日"], ["123456789", "日"]),
        (["a\tb", "c"], ["a       bc"]),
    ],
)
def test_what_is_written_above_a_dock_goes_on_where_it_was(
    bits: list[str], rows: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the dock is drawn in between, and however full a row is."""
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("TERM", "xterm")
    file = Tty()
    screen = Written(file)
    with screen.dock(lambda: Dock((Text("status"), Text("> typed")), 1, 7)):
        for bit in bits:
            screen.run_on(bit)
        assert rows_of(file.getvalue()) == [*rows, "status", "> typed"]
        screen.line("below")
        assert rows_of(file.getvalue()) == [*rows, "below", "status", "> typed"]
    assert rows_of(file.getvalue()) == [*rows, "below"]
