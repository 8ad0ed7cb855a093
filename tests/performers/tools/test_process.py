"""What is kept of the output of a process, and whether any of its group is left."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnwheel.performers.tools.process import _Kept, _signal, run  # pyright: ignore[reportPrivateUsage]  # its parts


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b"abcdef", "abcdef"),
        (b"abcd\xff\xfe", "abcd\ufffd\ufffd"),
        (b"ab\xff--\xffcd", "ab\ufffd\n[... 2 bytes cut ...]\n\ufffdcd"),
    ],
)
def test_the_beginning_and_the_end_are_kept_whatever_their_bytes(said: bytes, kept: str) -> None:
    output = _Kept(6)
    for number in range(len(said)):
        output.add(said[number : number + 1])
    assert output.text() == kept


def test_a_group_that_has_ended_has_no_process_left() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    )
    assert _signal(process.pid, 0)
    process.communicate(b"\n")
    assert not _signal(process.pid, 0)
    assert not _signal(process.pid, signal.SIGTERM)


async def test_output_of_any_bytes_is_text(tmp_path: Path) -> None:
    code = "import os; os.write(1, b'a' * 50 + b'\\xff' * 50)"
    ended = await run([sys.executable, "-c", code], cwd=tmp_path, seconds=20, keep=60)
    assert ended.output == "a" * 30 + "\n[... 40 bytes cut ...]\n" + "\ufffd" * 30
