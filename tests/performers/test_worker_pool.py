"""Work that is left behind, and tasks that finish what they owe although they are cancelled."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest
from support.patience import PATIENCE

from turnwheel.performers import worker_pool
from turnwheel.performers.worker_pool import BLOCKED, CancelShield, Work, WorkerPool, finish

Until = Callable[[Callable[[], bool]], Awaitable[None]]


def started(
    pool: WorkerPool,
    function: Callable[[], Any],
    name: str | None = None,
    blocked: Callable[[float], object] | None = None,
) -> Work[tuple[str, object]]:
    """*function*, set to work by *pool*: what it ends with says whether it returned or raised."""
    return pool.start(
        function, name, lambda value: ("returned", value), lambda error: ("raised", error), blocked
    )


def counted() -> int:
    """The cancellations of the task that asks which were not forgotten."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# Cancellations


async def test_a_shield_forgets_the_cancellations_since_it_was_made_and_no_others() -> None:
    left: list[int] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            shield = CancelShield()
            shield.absorb()
            left.append(counted())
            for _ in range(2):
                task.cancel()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                shield.absorb()
            left.append(counted())

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert left == [1, 1]


async def test_what_is_to_be_finished_is_so_however_often_its_caller_is_cancelled() -> None:
    done = asyncio.get_running_loop().create_future()

    async def ask() -> None:
        await finish(done)

    task = asyncio.create_task(ask())
    for why in ("first", "second"):
        await turns()
        task.cancel(why)
    await turns()
    assert not task.done()
    done.set_result("done")
    with pytest.raises(asyncio.CancelledError, match="second"):
        await task
    assert not done.cancelled()


async def test_what_is_finished_returns_its_result_and_an_error_goes_before_a_cancellation() -> None:
    async def well() -> str:
        return "well"

    assert await finish(well()) == "well"
    broken = asyncio.get_running_loop().create_future()

    async def ask() -> None:
        await finish(broken)

    task = asyncio.create_task(ask())
    await turns()
    task.cancel()
    await turns()
    broken.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await task


async def test_each_cancellation_is_handed_on_where_that_is_asked_for_and_may_end_the_wait() -> None:
    done = asyncio.get_running_loop().create_future()
    told: list[str] = []

    async def ask(on_cancel: Callable[[asyncio.CancelledError], object]) -> tuple[object, int]:
        return await finish(done, on_cancel), counted()

    def tell(error: asyncio.CancelledError) -> None:
        told.append(str(error))

    def leave(error: asyncio.CancelledError) -> None:
        raise RuntimeError(*error.args)

    task, leaving = asyncio.create_task(ask(tell)), asyncio.create_task(ask(leave))
    await turns()
    for why in ("first", "second"):
        task.cancel(why)
        await turns()
    leaving.cancel("enough")
    with pytest.raises(RuntimeError, match="enough"):
        await leaving
    done.set_result("done")
    assert await task == ("done", 0)
    assert told == ["first", "second"]


async def test_who_was_cancelled_before_stays_so_and_may_still_finish() -> None:
    async def ask() -> tuple[str, int]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await finish(asyncio.sleep(0, "done")), counted()
        return "", 0

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == ("done", 1)


# Work and its end


async def test_work_ends_with_what_is_made_of_its_value_or_of_its_error() -> None:
    pool, error = WorkerPool(), ValueError("no")

    def well() -> int:
        return 5

    def broken() -> int:
        raise error

    async def later() -> int:
        await asyncio.sleep(0)
        return well()

    async def never() -> int:
        await asyncio.sleep(0)
        return broken()

    for function, name in ((well, None), (later, "n")):
        assert await started(pool, function, name).result() == ("returned", 5)
    for function, name in ((broken, None), (never, "n")):
        assert await started(pool, function, name).result() == ("raised", error)


async def test_what_makes_something_of_a_value_may_raise_too() -> None:
    def refuse(value: object) -> str:
        raise ValueError(value)

    async def later() -> int:
        return 5

    for function, name in ((lambda: 5, None), (later, "n")):
        given: Callable[[], Any] = function
        work = WorkerPool().start(given, name, refuse, lambda error: f"raised {error}")
        assert await work.result() == "raised 5"


async def test_a_thread_has_the_context_of_its_caller_and_a_task_its_name() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    variable.set("mine")

    async def name() -> str:
        task = asyncio.current_task()
        return "" if task is None else task.get_name()

    pool = WorkerPool()
    assert await pool.thread(variable.get).result() == "mine"
    assert await started(pool, name, "hook x").result() == ("returned", "hook x")
    work = started(pool, lambda: threading.current_thread().daemon)
    assert await work.result() == ("returned", True)


async def test_work_that_takes_too_long_is_stopped_and_then_abandoned() -> None:
    told: list[str] = []
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work = Work(ended, lambda: told.append("stop"), lambda: told.append("abandon"))
    with pytest.raises(TimeoutError):
        await work.result(0.01, grace=0.01)
    assert told == ["stop", "abandon"]
    assert not ended.cancelled()
    told.clear()
    assert [type(one) for one in await work.outlast(0.01, 0.0)] == [TimeoutError]
    assert told == ["stop", "abandon"]


async def test_work_that_ends_when_it_is_stopped_is_not_abandoned_and_yet_was_late() -> None:
    told: list[str] = []
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stop() -> None:
        told.append("stop")
        ended.set_result("partial")

    work = Work(ended, stop, lambda: told.append("abandon"))
    assert [type(one) for one in await work.outlast(0.01, 10.0)] == [TimeoutError]
    assert told == ["stop"]
    assert await work.outlast(0.01, 10.0) == [], "it is over"
    assert await work.result(0.0) == "partial"


async def test_work_whose_caller_is_cancelled_is_stopped_and_a_second_time_abandoned() -> None:
    told: list[str] = []
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work = Work(ended, lambda: told.append("stop"), lambda: told.append("abandon"))

    async def ask() -> tuple[list[str], int]:
        return [str(reason) for reason in await work.outlast(None, PATIENCE)], counted()

    task = asyncio.create_task(ask())
    for why, expected in (("first", ["stop"]), ("second", ["stop", "abandon"])):
        await turns()
        task.cancel(why)
        await turns()
        assert told == expected
    assert await task == (["first", "second"], 0)


async def test_of_several_reasons_the_last_is_raised() -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work = Work(ended, lambda: None, lambda: None)
    task = asyncio.create_task(work.result(0.01, PATIENCE))
    await asyncio.sleep(0.05)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task


async def test_work_that_ends_in_time_leaves_no_alarm_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, alarms = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def noted(*given: Any) -> asyncio.TimerHandle:
        alarms.append(call_later(*given))
        return alarms[-1]

    monkeypatch.setattr(loop, "call_later", noted)
    ended: asyncio.Future[str] = loop.create_future()
    work = Work(ended, lambda: None, lambda: None)
    task = asyncio.create_task(work.result(PATIENCE))
    await turns()
    ended.set_result("done")
    assert await task == "done"
    assert [alarm.cancelled() for alarm in alarms] == [True]


# Blocking


@pytest.mark.parametrize(("seconds", "told"), [(BLOCKED, [BLOCKED]), (BLOCKED / 2, [])])
async def test_a_task_that_keeps_the_event_loop_is_told_of_once(
    seconds: float, told: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, heard = [0.0], list[float]()
    monkeypatch.setattr(worker_pool, "monotonic", lambda: now[0])

    async def blocking() -> str:
        for _ in range(3):
            now[0] += seconds
            await asyncio.sleep(0)
        return "done"

    assert await started(WorkerPool(), blocking, "n", heard.append).result() == ("returned", "done")
    assert heard == told
    # Who does not want to know is not told.
    assert await started(WorkerPool(), blocking, "n").result() == ("returned", "done")


async def test_what_keeps_the_event_loop_while_it_is_stopped_is_told_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, heard = [0.0], list[float]()
    monkeypatch.setattr(worker_pool, "monotonic", lambda: now[0])

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            now[0] += 2 * BLOCKED
            return f"stopped: {error}"
        return ""

    work = started(WorkerPool(), stubborn, "n", heard.append)
    await turns()
    work.ended.cancel("now")
    assert await work.ended == ("returned", "stopped: now")
    assert heard == [2 * BLOCKED]


# Places


async def test_only_so_many_run_in_threads_at_once_and_in_their_order(
    gate: threading.Event, until: Until
) -> None:
    pool, begun = WorkerPool(threads=2), list[int]()

    def work(number: int) -> int:
        begun.append(number)
        gate.wait()
        return number

    def one(number: int) -> Callable[[], int]:
        return lambda: work(number)

    several = [pool.thread(one(number)) for number in range(5)]
    await until(lambda: len(begun) == 2)
    assert begun == [0, 1]
    gate.set()
    assert [await each.result() for each in several] == [0, 1, 2, 3, 4]


async def test_one_that_waits_for_a_place_never_begins_where_it_is_stopped(
    gate: threading.Event, until: Until
) -> None:
    pool, begun = WorkerPool(threads=1), list[str]()

    def hold() -> None:
        begun.append("hold")
        gate.wait()

    first, second, third = (pool.thread(hold) for _ in range(3))
    await until(lambda: begun == ["hold"])
    second.stop()
    assert second.ended.cancelled()
    first.stop()
    assert not first.ended.done(), "nothing stops a thread"
    gate.set()
    await first.result()
    await third.result()
    assert begun == ["hold"] * 2


async def test_the_place_of_one_that_is_abandoned_is_the_next_ones_and_only_once(
    gate: threading.Event, until: Until
) -> None:
    pool, begun, ended = WorkerPool(threads=1), list[str](), threading.Event()

    def hang() -> None:
        begun.append("hang")
        gate.wait()

    def short(name: str) -> Callable[[], None]:
        def work() -> None:
            begun.append(name)
            ended.wait()

        return work

    hung = pool.thread(hang)
    second, third = pool.thread(short("second")), pool.thread(short("third"))
    await until(lambda: begun == ["hang"])
    hung.abandon()
    await until(lambda: begun == ["hang", "second"])
    # That it ends at last makes no room: it has lost its place already.
    gate.set()
    await hung.ended
    hung.abandon()
    await turns()
    assert begun == ["hang", "second"]
    ended.set()
    await second.result()
    await third.result()
    assert begun == ["hang", "second", "third"]


async def test_a_task_that_is_abandoned_is_held_until_it_ends() -> None:
    pool, ended = WorkerPool(), list[str]()

    class Held:
        """What the task waits for; only the task holds it."""

        def __init__(self) -> None:
            self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    held: list[weakref.ref[Held]] = []

    def stubborn() -> Coroutine[Any, Any, None]:
        what = Held()
        held.append(weakref.ref(what))

        async def wait() -> None:
            await what.future
            ended.append("ended")

        return wait()

    work = started(pool, stubborn, "n")
    await turns()
    work.abandon()
    del work
    gc.collect()
    what = held[0]()
    assert what is not None
    what.future.set_result(None)
    del what
    await turns()
    assert ended == ["ended"]
    gc.collect()
    assert held[0]() is None, "nor is it held any longer"


async def test_where_there_are_no_more_threads_it_is_told_or_waited_for(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    pool, begun = WorkerPool(threads=3), list[str]()

    def hold() -> None:
        begun.append("first")
        gate.wait()

    with monkeypatch.context() as patched:

        def refuse(_: object) -> None:
            msg = "can't start new thread"
            raise RuntimeError(msg)

        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            pool.thread(hold)
        patched.undo()
        first = pool.thread(hold)
        await until(lambda: begun == ["first"])
        patched.setattr(threading.Thread, "start", refuse)
        # One that runs will come to it.
        second = pool.thread(lambda: "second")
        first.abandon()
        await turns()
        assert not second.ended.done()
        patched.undo()
        third = pool.thread(lambda: "third")
        assert [await second.result(), await third.result()] == ["second", "third"]
    gate.set()


def test_work_may_end_after_its_event_loop(gate: threading.Event) -> None:
    pool, begun = WorkerPool(threads=1), threading.Event()

    def hold() -> None:
        begun.set()
        gate.wait()

    async def leave() -> None:
        pool.thread(hold)
        assert begun.wait(PATIENCE)

    asyncio.run(leave())
    gate.set()

    async def go_on() -> str:
        return await pool.thread(lambda: "next").result()

    assert asyncio.run(go_on()) == "next"
