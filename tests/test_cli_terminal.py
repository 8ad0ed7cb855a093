"""The command line at a real terminal: keys, questions, Ctrl-C, and what is left on the screen."""

from __future__ import annotations

import asyncio
import fcntl
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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

import pytest

from turnwheel import SQLiteStore
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.engine.journal import fold
from turnwheel.engine.machine import Machine
from turnwheel.states.state import Asked, Confirming

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

CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CTRL_C = "\x03"
KEYS = "y yes   n no   a always"


@final
class Screen:
    """The CLI with *arguments* in a terminal of its own; `raw` is all it wrote."""

    def __init__(self, folder: Path, store: Path, *arguments: str, **more: str) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        unset = {"OPENAI_API_KEY", "TURNWHEEL_MODEL", "NO_COLOR", "VISUAL", "EDITOR"}
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
        self._seen = 0

    @property
    def text(self) -> str:
        """What was written, without colours and cursor moves."""
        return CODES.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, text: str) -> None:
        """Wait until *text* appears behind what was expected before."""
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
        self.raw += data.decode()
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
        return self.process.returncode

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
def run(folder: Path, store: Path) -> Iterator[Opens]:
    """Starts `turnwheel run` with the stand-in in a terminal."""
    screens: list[Screen] = []

    def start(*arguments: str, **env: str) -> Screen:
        screen = Screen(folder, store, "run", *arguments, **env)
        screens.append(screen)
        return screen

    yield start
    for screen in screens:
        screen.close()


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
    screen.expect("new (JSON, one line; Enter leaves it): ")
    screen.type("{oops\n")
    screen.expect("no JSON object")
    screen.expect("e edit again")
    screen.type("e")
    screen.expect("Enter leaves it): ")
    screen.type('{"command": 1}\n')
    screen.expect("must be of type string")
    screen.expect("e edit again")
    screen.type("e")
    screen.expect("Enter leaves it): ")
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


def test_no_color_is_respected(run: Opens) -> None:
    """The cursor may move, colours stay away."""
    screen = run("hello", NO_COLOR="1")
    screen.expect("1 turn · ")
    assert screen.ends() == 0
    assert [code for code in COLOUR.findall(screen.raw) if re.search(r"3[0-9]|4[0-9]", code)] == []


def test_a_terminal_without_the_signs_gets_plain_ones(run: Opens) -> None:
    """Where the encoding has no bullet, a star does."""
    screen = run("Who wrote README.md?", PYTHONUTF8="0", PYTHONIOENCODING="ascii", LC_ALL="C")
    screen.expect("* read README.md")
    assert screen.ends() == 0
