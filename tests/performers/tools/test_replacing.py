"""The temporary files of `write` and `edit`: a killed process leaves one, and none stays for good."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnwheel.performers.tools.builtin import edit, write
from turnwheel.performers.tools.decorator import ToolContext

# A process that writes `a.txt`. At the system call {call}, it says so and waits for a line of input.
WRITER = """
import fcntl, os
from pathlib import Path
from turnwheel.performers.tools.builtin import write
from turnwheel.performers.tools.decorator import ToolContext

real = {call}

def pause(*arguments):
    print("paused", flush=True)
    input()
    return real(*arguments)

{call} = pause
write(ToolContext(cwd=Path(), deps=None), "a.txt", "from the other process")
"""


def paused_writer(folder: Path, call: str) -> subprocess.Popen[str]:
    """A process that writes in *folder* and has come to the system call *call*."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER.format(call=call)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for_pause(process)
    return process


def wait_for_pause(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "paused\n"


def finish(process: subprocess.Popen[str]) -> None:
    """Let *process* write to the end, however often it pauses."""
    process.communicate("\n\n\n", timeout=60)
    assert process.returncode == 0


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def temporaries(folder: Path) -> list[Path]:
    return list(folder.glob(".turnwheel-*"))


@pytest.fixture
def context(tmp_path: Path) -> ToolContext[object]:
    return ToolContext(cwd=tmp_path, deps=None)


# Before the file is locked, and when it is locked and has its content.
@pytest.mark.parametrize("call", ["fcntl.flock", "os.fsync"])
def test_the_next_write_removes_the_temporary_file_of_a_killed_process(
    call: str, context: ToolContext[object]
) -> None:
    kill(paused_writer(context.cwd, call))
    assert len(temporaries(context.cwd)) == 1
    write(context, "b.txt", "x")
    assert [path.name for path in context.cwd.iterdir()] == ["b.txt"]


def test_the_next_edit_removes_the_temporary_file_of_a_killed_process(context: ToolContext[object]) -> None:
    write(context, "b.txt", "x")
    kill(paused_writer(context.cwd, "os.fsync"))
    assert len(temporaries(context.cwd)) == 1
    edit(context, "b.txt", "x", "y")
    assert [path.name for path in context.cwd.iterdir()] == ["b.txt"]


def test_the_temporary_file_of_a_live_process_stays(context: ToolContext[object]) -> None:
    process = paused_writer(context.cwd, "os.fsync")
    (temporary,) = temporaries(context.cwd)
    write(context, "b.txt", "x")
    assert temporaries(context.cwd) == [temporary]
    finish(process)
    assert (context.cwd / "a.txt").read_text() == "from the other process"
    assert temporaries(context.cwd) == []


def test_a_writer_that_loses_its_temporary_file_before_the_lock_takes_another(
    context: ToolContext[object],
) -> None:
    process = paused_writer(context.cwd, "fcntl.flock")
    write(context, "b.txt", "x")
    assert temporaries(context.cwd) == []
    finish(process)
    assert (context.cwd / "a.txt").read_text() == "from the other process"


def test_a_writer_that_finds_its_temporary_file_locked_takes_another(context: ToolContext[object]) -> None:
    process = paused_writer(context.cwd, "fcntl.flock")
    (temporary,) = temporaries(context.cwd)
    with temporary.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        wait_for_pause(process)  # at the lock of the second file
        temporary.unlink(missing_ok=True)
    finish(process)
    assert (context.cwd / "a.txt").read_text() == "from the other process"
    assert temporaries(context.cwd) == []


def test_where_files_cannot_be_locked_a_write_succeeds_and_leftovers_stay(
    context: ToolContext[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    leftover = context.cwd / ".turnwheel-0123456789abcdef.tmp"
    leftover.touch()
    monkeypatch.setattr(fcntl, "flock", unsupported)
    write(context, "a.txt", "x")
    assert (context.cwd / "a.txt").read_text() == "x"
    assert temporaries(context.cwd) == [leftover]


def test_files_with_similar_names_stay(context: ToolContext[object]) -> None:
    similar = [".turnwheel-notes", ".turnwheel-0123456789abcdef", ".turnwheel-0123456789abcdef.tmp.bak"]
    for name in similar:
        (context.cwd / name).touch()
    os.mkfifo(context.cwd / ".turnwheel-aaaaaaaaaaaaaaaa.tmp")
    (context.cwd / ".turnwheel-bbbbbbbbbbbbbbbb.tmp").mkdir()
    (context.cwd / ".turnwheel-cccccccccccccccc.tmp").symlink_to("a.txt")
    write(context, "a.txt", "x")
    assert len(temporaries(context.cwd)) == len(similar) + 3
