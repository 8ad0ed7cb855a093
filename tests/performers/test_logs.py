"""What the host's log has of failures: through `logging` or structlog, with whose it is, and no secret."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
import structlog
from structlog.testing import capture_logs

from turnwheel.effects.errors import StoreError
from turnwheel.performers.logs import MAX_LINE, MAX_TRACEBACK, FaultLog, listens, warn

WHOSE = {"session": "s", "run": "r"}


def fail(error: Exception) -> None:
    raise error


def raised(error: Exception) -> Exception:
    """*error*, as a function of the host raises it."""
    try:
        fail(error)
    except Exception as caught:  # noqa: BLE001  # whatever it is
        return caught
    return error


def shout(text: str) -> str:
    return text.replace("hunter2", "[redacted]")


FAULTS = FaultLog(session="s", run="r", redact=shout)


def test_a_failure_is_a_warning_with_fields_and_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    FAULTS.raised("a tool raised", raised(ValueError("100% wrong: hunter2")), tool="look", call="r-2")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("turnwheel", "WARNING")
    assert record.getMessage() == (
        "a tool raised: ValueError: 100% wrong: [redacted] (session=s, run=r, tool=look, call=r-2)"
    )
    fields = [getattr(record, name) for name in ("event", "error", "session", "run", "tool", "call")]
    assert fields == ["a tool raised", "ValueError", "s", "r", "look", "r-2"]
    assert "in fail\n    raise error\n" in (record.exc_text or "")
    assert "ValueError: 100% wrong: [redacted]" in caplog.text
    assert "hunter2" not in caplog.text
    # The exception itself would be printed as it is.
    assert record.exc_info is None


def test_a_failure_goes_to_structlog_where_the_host_configured_it(caplog: pytest.LogCaptureFixture) -> None:
    structlog.configure()
    with capture_logs() as lines:
        FAULTS.raised("a tool raised", raised(ValueError("hunter2")), tool="look", call="r-2")
    (line,) = lines
    assert line.pop("exception").endswith("ValueError: [redacted]")
    assert line == {
        "event": "a tool raised",
        "log_level": "warning",
        "error": "ValueError",
        "tool": "look",
        "call": "r-2",
        **WHOSE,
    }
    assert caplog.records == []


def test_python_prints_a_failure_where_nothing_is_configured() -> None:
    code = (
        "from turnwheel import Agent, tool\n"
        "from turnwheel.effects import CallModel\n"
        "from turnwheel.testing import ScriptedModel, calls, says\n"
        "@tool(side_effect='read_only')\n"
        "def look(password: str) -> str:\n"
        "    raise KeyError(password)\n"
        "model = ScriptedModel(calls(('look', {'password': 'hunter2hunter2'})), says('sorry'))\n"
        "print(Agent(tools=[look], performers={CallModel: model}).run_sync('go').text)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "sorry\n"
    assert done.stderr.startswith("a tool raised: KeyError: '[secret password ")
    assert ", tool=look, call=" in done.stderr.splitlines()[0]
    assert 'File "<string>", line 6, in look\n' in done.stderr
    assert done.stderr.count("KeyError: '[secret password ") == 2
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("hunter2"), "ValueError: (its text may hold a secret)"),
        (StoreError("no space left"), "StoreError: no space left"),
        (StoreError(), "StoreError"),
    ],
    ids=str,
)
def test_without_a_redactor_only_errors_of_ours_show_their_text(
    error: Exception, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn("a fault", raised(error), session="s")
    (record,) = caplog.records
    assert record.getMessage() == f"a fault: {says} (session=s)"
    assert "in fail\n" in caplog.text
    assert "hunter2" not in caplog.text


def test_the_cause_of_an_exception_is_in_the_traceback_and_redacted(caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("on top")
    error.__cause__ = raised(OSError("hunter2"))
    FAULTS.report("a fault", error)
    assert "OSError: [redacted]\n\nThe above exception was the direct cause" in caplog.text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Unprintable(), "Unprintable: (its text cannot be shown: SystemExit)"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("x" * 100_000), "ValueError: xxx"),
        (KeyError("k"), "KeyError: 'k'"),
    ],
    ids=["unprintable", "lines", "long", "key"],
)
def test_any_exception_can_be_logged(error: Exception, line: str, caplog: pytest.LogCaptureFixture) -> None:
    FAULTS.report("a fault", error)
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith(f"a fault: {line}")
    assert len(said) < MAX_LINE + 100
    assert len(record.exc_text or "") < MAX_TRACEBACK + 100


@pytest.mark.parametrize("level", [logging.ERROR, logging.CRITICAL])
def test_a_level_silences_what_is_below_it(level: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(level, "turnwheel")
    FAULTS.report("a fault", ValueError())
    warn("an error", ValueError(), level=logging.ERROR)
    assert [vars(record)["event"] for record in caplog.records] == ["an error"] * (level == logging.ERROR)


def test_step_logs_are_listened_to_only_where_they_would_be_read(caplog: pytest.LogCaptureFixture) -> None:
    assert (listens(logging.INFO), listens(logging.WARNING)) == (False, True)
    caplog.set_level(logging.INFO, "turnwheel")
    assert listens(logging.INFO)


def test_structlog_listens_to_all_levels() -> None:
    assert not listens(logging.DEBUG)
    structlog.configure()
    assert listens(logging.DEBUG)


def test_what_blocked_the_event_loop_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    FAULTS.blocked("a hook blocked the event loop", {"hook": "h"}, 1.23456)
    assert caplog.messages == ["a hook blocked the event loop (session=s, run=r, hook=h, seconds=1.235)"]


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_what_ends_a_process_or_a_task_ends_no_run(
    ends: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    ended = list[BaseException]()
    log = FaultLog(ends=lambda error, _: ended.append(error))
    fault = partial(log.raised, "a tool raised")
    fault(error := ValueError())
    fault(ends())
    assert (ended, len(caplog.records)) == ([error], 1)
