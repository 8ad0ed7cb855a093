"""A run for a caller that is not async: it returns, whatever its tools do to their event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from support.patience import PATIENCE

from turnwheel import Agent, DoneReason, SQLiteStore, tool
from turnwheel.effects.requests import CallModel
from turnwheel.engine import listed, sync
from turnwheel.performers.tools.runner import ToolRunner
from turnwheel.testing.scripted import ScriptedModel, calls, says

kept = list[Any]()
"""What keeps work alive that its tool does not wait for."""


@tool(side_effect="read_only", timeout=0.01)
async def deaf() -> None:
    """Ignore being cancelled, once for the timeout and once for the end."""
    for _ in range(3):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@tool(side_effect="read_only")
async def hangs() -> None:
    """Leave a thread behind."""
    kept.append(asyncio.get_running_loop().run_in_executor(None, HELD.wait, 20))


@tool(side_effect="read_only")
async def cancels() -> None:
    """Cancel each task of the loop."""
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)


@tool(side_effect="read_only")
async def stops() -> None:
    """Stop the loop."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


@tool(side_effect="read_only")
async def closes() -> None:
    """Close the loop."""
    asyncio.get_running_loop().close()


@tool(side_effect="read_only")
async def shuts() -> None:
    """Close the executor."""
    await asyncio.get_running_loop().shutdown_default_executor()


@tool(side_effect="read_only")
async def exits() -> None:
    """End the process."""
    sys.exit(3)


@tool(side_effect="read_only")
async def exits_beside() -> None:
    """End the process from a task of its own."""

    async def beside() -> None:
        sys.exit(3)

    kept.append(asyncio.create_task(beside()))
    await asyncio.Event().wait()


@tool(side_effect="read_only")
async def breaks() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


HELD = threading.Event()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No test waits for as long as a person would."""
    monkeypatch.setattr(sync, "LEAVE_WITHIN", 0.05)
    monkeypatch.setitem(ToolRunner.__init__.__kwdefaults__ or {}, "grace", 0.01)
    HELD.clear()
    yield
    HELD.set()
    for future in kept:
        if future.done():
            future.exception()  # else asyncio would report it once more
    kept.clear()


def made(does: Any, **settings: Any) -> Agent:
    model = ScriptedModel(calls((does.spec.name, {})), says("done"))
    return Agent(model="m", tools=[does], performers={CallModel: model}, **settings)


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (deaf, "tool deaf: it ignored its cancellation for 0.05 s and was left behind"),
        (hangs, "a function in the event loop's executor: it was left behind after 0.05 s"),
    ],
)
def test_a_sync_run_returns_although_its_tool_does_not_end(
    does: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is warned of once: asyncio says nothing of it besides."""
    with pytest.warns(RuntimeWarning, match=why) as warned:
        assert made(does).run_sync("go").text == "done"
    assert [one.filename for one in warned] == [__file__]
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize(
    ("does", "raised", "reason"),
    [
        (stops, None, DoneReason.END_TURN),
        (closes, None, DoneReason.END_TURN),
        (shuts, None, DoneReason.END_TURN),
        (exits, None, DoneReason.END_TURN),
        (breaks, None, DoneReason.END_TURN),
        (cancels, asyncio.CancelledError, DoneReason.ABORTED),
        (exits_beside, SystemExit, DoneReason.ABORTED),
    ],
    ids=lambda one: getattr(getattr(one, "spec", None), "name", ""),
)
def test_a_tool_that_breaks_the_event_loop_leaves_no_run_without_an_end(
    does: Any, raised: type[BaseException] | None, reason: DoneReason, tmp_path: Any
) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    agent = made(does, store=store)
    if raised is None:
        assert agent.run_sync("go").text == "done"
    else:
        with pytest.raises(raised):
            agent.run_sync("go")
    (found,) = asyncio.run(listed(store))
    assert (found.about.state, found.about.reason) == ("idle", reason)


# The thread and the loop by themselves


async def test_work_runs_beside_a_loop_that_runs_with_the_variables_of_its_caller() -> None:
    who = ContextVar("who", default="")
    who.set("ann")

    async def work() -> tuple[str, str, bool]:
        thread = threading.current_thread()
        return who.get(), thread.name, thread.daemon

    assert sync.run_in_thread(work()) == ("ann", "turnwheel-run", True)


@pytest.mark.parametrize("fault", [RuntimeError("mine"), ValueError("mine"), SystemExit(3)])
def test_what_the_work_raises_is_raised_to_the_caller(fault: BaseException) -> None:
    async def work() -> None:
        raise fault

    with pytest.raises(type(fault)) as caught:
        sync.run_in_thread(work())
    assert caught.value is fault


def test_what_is_at_work_beside_it_is_cancelled_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends in time is no reason for a warning."""
    monkeypatch.setattr(sync, "LEAVE_WITHIN", PATIENCE)
    ended, alive = list[str](), list[object]()

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("beside")

    async def work() -> str:
        alive.append(asyncio.create_task(beside()))
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.01)
        await asyncio.sleep(0)
        return "done"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sync.run_in_thread(work()) == "done"
    assert ended == ["beside"]


def test_a_generator_that_does_not_close_and_a_thread_are_left_behind() -> None:
    alive = list[object]()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await asyncio.Event().wait()

    async def work() -> None:
        kept.append(asyncio.get_running_loop().run_in_executor(None, HELD.wait, 20))
        alive.append(steps := endless())
        await anext(steps)

    with pytest.warns(RuntimeWarning) as warned:
        sync.run_in_thread(work())
    told = [str(one.message).partition(":")[0] for one in warned]
    assert told == ["an async generator", "a function in the event loop's executor"]
    # It must not hold up the end of the process.
    left = [thread for thread in threading.enumerate() if thread.name == "turnwheel-executor-end"]
    assert [thread.daemon for thread in left] == [True]


def test_ctrl_c_waits_until_the_work_has_ended() -> None:
    ended = list[str]()

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)
            ended.append("cancelled")
            raise

    with pytest.raises(KeyboardInterrupt):
        sync.run_in_thread(work())
    assert ended == ["cancelled"]
    assert [thread.name for thread in threading.enumerate() if thread.name == "turnwheel-run"] == []


SLOW_START = """
import time
begin = threading.Thread.start
def start(thread):
    begin(thread)
    time.sleep(0.3)
threading.Thread.start = start
"""


@pytest.mark.parametrize("start", ["", SLOW_START], ids=["at work", "starting"])
def test_a_sync_run_that_is_interrupted_has_stopped_when_it_returns(start: str) -> None:
    """Ctrl-C does not leave a tool at work behind the caller's back, also while the thread is started."""
    program = f"""
import asyncio, os, signal, threading
from turnwheel import Agent, tool
from turnwheel.effects.requests import CallModel
from turnwheel.testing.scripted import ScriptedModel, calls, says
{start}
@tool(side_effect="read_only")
async def slow() -> str:
    "Take long."
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(30)
    print("finished after all", flush=True)
    return ""

model = ScriptedModel(calls(("slow", {{}})), says("no"))
agent = Agent(model="m", tools=[slow], performers={{CallModel: model}})
try:
    agent.run_sync("go")
except KeyboardInterrupt:
    print("stopped", threading.active_count(), flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert ended.stdout == "stopped 1\n"


def test_ctrl_c_before_the_thread_begins_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, late = list[str](), list[Callable[[], None]]()

    def interrupted(thread: threading.Thread) -> None:
        late.append(thread.run)
        raise KeyboardInterrupt

    async def work() -> None:
        begun.append("work")

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sync.run_in_thread(work())
    late[0]()
    assert begun == []
