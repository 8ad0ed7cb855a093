"""What is kept of the output of a process, and whether any of its group is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnwheel.performers.tools import process
from turnwheel.performers.tools.process import _Kept, _Reporter, _signal, run  # pyright: ignore[reportPrivateUsage]  # its parts


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


async def test_the_lines_of_a_running_program_are_reported_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "REPORTS_AFTER", 0.0)
    monkeypatch.setattr(process, "REPORTS_EVERY", 0.0)
    reader, writer = os.pipe()
    reports: list[str] = []

    def report(text: str) -> None:
        reports.append(text)
        os.write(writer, b"\n")

    script = "echo compiling; printf '10%%\\r20%%\\r'; read -u 9 go; printf 'half a li'; echo the end >&2"
    ended = await run(
        ["bash", "-c", f"exec 9<&{reader}; {script}"],
        cwd=tmp_path,
        keep=1_000,
        descriptors=[reader],
        report=report,
    )
    # It goes on only when a report has come, so the first was made while it ran.
    assert reports[0].splitlines()[0] == "compiling"
    assert ended.output == "compiling\n10%\r20%\rhalf a lithe end\n"


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ([b"one\ntwo\n"], ["one\ntwo"]),
        ([b"password=hun", b"ter2\nnext"], ["password=hunter2"]),
        ([b"caf\xc3", b"\xa9\r\n"], ["caf\u00e9"]),
        ([b"password=" + b"x" * process.MAX_REPORT, b"\nlast\n"], ["last"]),
        ([b"no line yet"], []),
    ],
)
async def test_a_report_has_whole_lines_only(
    written: list[bytes], reported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "REPORTS_AFTER", 0.0)
    monkeypatch.setattr(process, "REPORTS_EVERY", 0.0)
    reports: list[str] = []
    reporter = _Reporter(reports.append)
    for data in written:
        reporter.add(data)
        for _ in range(3):
            await asyncio.sleep(0)
    reporter.end()
    assert reports == reported
