"""Running tools: one answer for every request, whatever the tool does."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

import attrs
import pytest
from structlog.testing import capture_logs
from support.odd_values import Mute, fail
from support.patience import PATIENCE

from turnwheel.effects.config import Compaction
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Event, ToolFinished, ToolProgressed
from turnwheel.effects.history import History
from turnwheel.effects.messages import Binary, Outcome, user
from turnwheel.effects.requests import RunTool
from turnwheel.performers import worker_pool
from turnwheel.performers.base import PassThroughNotice, PerformContext
from turnwheel.performers.tools.decorator import Tool, ToolContext, tool
from turnwheel.performers.tools.process import ProcessEnd
from turnwheel.performers.tools.returned import ErrorResult
from turnwheel.performers.tools.runner import ToolRunner
from turnwheel.performers.worker_pool import MAX_THREADS


def request(name: str, arguments: str = "{}", timeout: float | None = PATIENCE) -> RunTool:
    return RunTool(id="r-1-7", call="call-3", tool=name, arguments=arguments, timeout=timeout)


async def run(
    made: Tool[..., Any], scene: PerformContext, arguments: str = "{}", **settings: Any
) -> ToolFinished:
    return await ToolRunner([made], **settings)(request(made.spec.name, arguments), scene)


def both(function: Callable[[], object]) -> list[Tool[..., Any]]:
    @tool
    def sync() -> object:
        return function()

    @tool
    async def coroutine() -> object:
        await asyncio.sleep(0)
        return function()

    return [sync, coroutine]


# What is returned


class Level(StrEnum):
    """A string that is more than one."""

    HIGH = "high"


@attrs.frozen
class Pair:
    """Two numbers."""

    a: int
    b: int


PICTURE = Binary(media_type="image/png", data=b"\x89PNG", name="a.png")
SCAN = Binary(media_type="application/pdf", data=b"%PDF-1234")
ODD: Any = {"media_type": "image/png", "data": bytearray(b"x"), "name": "\ud83d"}  # as some libraries return
KEPT = Binary(media_type="image/png", data=b"x", name="?")
SHOWN = "[image/png, 4 bytes, 'a.png']"


@pytest.mark.parametrize(
    ("value", "content", "files"),
    [
        ("plain", "plain", ()),
        ("", "", ()),
        (None, "", ()),
        (Level.HIGH, "high", ()),
        (7, "7", ()),
        (True, "true", ()),
        (["ä", 1.5, None], '["ä",1.5,null]', ()),
        ({"b": 1, "a": Pair(1, 2)}, '{"b":1,"a":{"a":1,"b":2}}', ()),
        ("half a pair: \ud83d", "half a pair: ?", ()),
        (("a", "b"), '["a","b"]', ()),
        ([], "[]", ()),
        (PICTURE, SHOWN, (PICTURE,)),
        (("Here:", SCAN), "Here:\n[application/pdf, 9 bytes]", (SCAN,)),
        (
            [PICTURE, "and", SCAN, "", None, 7],
            f"{SHOWN}\nand\n[application/pdf, 9 bytes]\n7",
            (PICTURE, SCAN),
        ),
        (Binary(**ODD), "[image/png, 1 bytes, '?']", (KEPT,)),
    ],
)
async def test_what_is_returned_is_what_the_model_reads(
    value: object, content: str, files: tuple[Binary, ...], scene: PerformContext
) -> None:
    # Strings as they are, other values as JSON; files beside the text.
    for made in both(lambda: value):
        answer = await run(made, scene)
        assert (answer.outcome, answer.content, answer.files) == (Outcome.OK, content, files)
    failed = await run(both(lambda: ErrorResult(value))[0], scene)
    assert (failed.outcome, failed.content, failed.files) == (Outcome.ERROR, content, files)


async def test_a_file_that_is_empty_or_too_large_is_left_out_and_takes_no_room(scene: PerformContext) -> None:
    files = [Binary(media_type="image/png", data=b"x" * size) for size in (0, 10_000_000, 7)]
    answer = await run(both(lambda: files)[0], scene)
    assert answer.files == (files[2],)
    assert answer.content.split("\n") == [
        "[left out: image/png, 0 bytes; it is empty]",
        "[left out: image/png, 10,000,000 bytes; the limit for a file is 750,000 bytes]",
        "[image/png, 7 bytes]",
    ]


@pytest.mark.parametrize(
    ("media_type", "data", "problem"),
    [
        ("image/png", "text", "Binary.data must be bytes; got str (encode it)"),
        ("png", b"", "the media type of a Binary must be such as 'image/png'; got 'png'"),
        (None, b"", "the media type of a Binary must be such as 'image/png'; got None"),
    ],
)
async def test_a_file_that_is_none_is_refused(
    media_type: Any, data: Any, problem: str, scene: PerformContext
) -> None:
    answer = await run(both(lambda: Binary(media_type=media_type, data=data))[0], scene)
    assert (answer.outcome, answer.files) == (Outcome.ERROR, ())
    assert answer.content == f"Tool raised an exception: {problem}"


async def test_a_long_error_is_cut(scene: PerformContext) -> None:
    made, _ = both(lambda: fail(ValueError("x" * 1_000_000)))
    assert len((await run(made, scene, max_result=100)).content) < 200


# What is raised


class Deadly(Exception):
    """An exception that would end the process when it is shown."""

    def __str__(self) -> str:
        return str(fail(SystemExit(1)))


def deeper(depth: int = 0) -> int:
    return deeper(depth + 1) + 1


async def asynchronously() -> None: ...


GROUP = ExceptionGroup("two", [ValueError("a"), TypeError("b")])
KEYS = ExceptionGroup("one", [KeyError("a")])
WORSE = BaseExceptionGroup("both", [SystemExit(1), ValueError("b")])


@pytest.mark.parametrize(
    ("function", "outcome", "content"),
    [
        (lambda: fail(ValueError("no such city")), Outcome.ERROR, "no such city"),
        (lambda: fail(ValueError()), Outcome.ERROR, "ValueError"),
        (lambda: fail(KeyError("a")), Outcome.ERROR, "KeyError: 'a'"),
        (lambda: fail(KeyError()), Outcome.ERROR, "KeyError"),
        (lambda: fail(KEYS), Outcome.ERROR, "one (1 sub-exception): KeyError: 'a'"),
        (lambda: fail(Mute()), Outcome.ERROR, "Mute, whose message cannot be shown (ValueError)"),
        (lambda: fail(Deadly()), Outcome.ERROR, "Deadly, whose message cannot be shown (SystemExit)"),
        (deeper, Outcome.ERROR, "maximum recursion depth exceeded"),
        (lambda: fail(GROUP), Outcome.ERROR, "two (2 sub-exceptions): a; b"),
        (asynchronously, Outcome.ERROR, "it returned something to be awaited"),
        (lambda: sys.exit(3), Outcome.CRASHED, "SystemExit: 3"),
        (lambda: fail(KeyboardInterrupt()), Outcome.CRASHED, "KeyboardInterrupt"),
        (lambda: fail(GeneratorExit()), Outcome.CRASHED, "GeneratorExit"),
        (lambda: fail(asyncio.CancelledError()), Outcome.CRASHED, "it cancelled itself"),
        (lambda: fail(WORSE), Outcome.CRASHED, "BaseExceptionGroup: both (2 sub-exceptions): 1; b"),
    ],
)
async def test_what_is_raised_is_an_answer(
    function: Callable[[], object], outcome: Outcome, content: str, scene: PerformContext
) -> None:
    # An exception is an error the model reads; what would end a process is a crash of the tool alone.
    head = "Tool raised an exception: " if outcome is Outcome.ERROR else "Tool execution crashed: "
    for made in both(function):
        answer = await run(made, scene)
        assert answer.outcome is outcome
        assert answer.content.startswith(head + content)


async def test_an_unknown_tool_and_wrong_arguments_are_errors(scene: PerformContext) -> None:
    answer = await ToolRunner([])(request("teleport"), scene)
    assert (answer.outcome, answer.content) == (Outcome.ERROR, "Tool not found: teleport")

    @tool
    def square(number: int) -> NoReturn:
        raise AssertionError(number)

    answer = await run(square, scene, '{"number":"two"}')
    assert answer.outcome is Outcome.ERROR
    assert answer.content.startswith("Invalid arguments for square: Expected `int`, got `str`")


# What a tool is told, and an answer says


async def test_an_answer_names_its_request_and_its_times(scene: PerformContext) -> None:
    ticks = iter([100.0, 107.5])

    class Ticking:
        def now(self) -> float:
            return next(ticks)

        async def sleep_until(self, due: float) -> None:
            raise AssertionError(due)

    answer = await run(both(lambda: "x")[1], attrs.evolve(scene, clock=Ticking()))
    assert (answer.request, answer.at, answer.seconds) == ("r-1-7", 107.5, 7.5)


@pytest.mark.parametrize("limit", [5_000, None])
async def test_a_context_says_where_a_tool_runs(
    limit: int | None, scene: PerformContext, tmp_path: Path
) -> None:
    # Directories are absolute and free of symlinks, ids are those of the request, deps the host's own; a tool
    # that can go on returns no more than the conversation holds, and one that reads the rest finds it.
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    seen: list[ToolContext[str]] = []

    @tool
    def look(context: ToolContext[str]) -> int:
        seen.append(context)
        return len(context.history)

    async def whole(call: str) -> str | None:
        return "all of it" if call == "call-1" else None

    before = History.of(user("hi"))
    before.append(user("meanwhile"))
    config = attrs.evolve(scene.config, compaction=Compaction(result_limit=limit))
    around = attrs.evolve(scene, config=config, full_result=whole, history=before)
    roots: list[Path | str] = [str(tmp_path), tmp_path / "a"]
    answer = await run(look, around, cwd=tmp_path / "b", directories=roots, deps="mine")
    (context,) = seen
    assert (context.cwd, context.directories) == (tmp_path / "a", (tmp_path / "a", tmp_path))
    assert (context.session, context.call, context.key, context.deps) == ("s-1", "call-3", "r-1-7", "mine")
    assert context.result_limit == limit
    assert (await context.full_result("call-1"), await context.full_result("call-2")) == ("all of it", None)
    assert answer.content == "1"  # it sees the conversation as it was when it started


async def test_a_context_made_by_hand_holds_all_and_has_no_rest() -> None:
    context = ToolContext(cwd=Path("/"), deps=None)
    assert (context.result_limit, await context.full_result("call-1")) == (None, None)


@pytest.mark.parametrize("kind", ["missing", "a file", "with\0null"])
def test_a_directory_that_is_none_is_a_wrong_setting(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(ConfigError, match="tools cannot work in"):
        ToolRunner([], cwd=tmp_path / kind)


def test_a_runner_has_tools_of_different_names_in_their_order() -> None:
    made = both(str)
    assert ToolRunner(made).specs == tuple(each.spec for each in made)
    with pytest.raises(ConfigError, match="two tools of one name: 'sync'"):
        ToolRunner([made[0], both(str)[0]])


async def test_progress_comes_before_the_answer_from_tasks_and_threads(scene: PerformContext) -> None:
    # What a tool says meanwhile is emitted in order, in the event loop's own thread.
    threads: list[int] = []
    said: list[Event | PassThroughNotice] = []

    @tool
    def sync(context: ToolContext[object]) -> str:
        context.progress("1")
        context.progress("2")
        return "done"

    @tool
    async def coroutine(context: ToolContext[object]) -> str:
        context.progress("1")
        await asyncio.to_thread(context.progress, "2")
        return "done"

    def emit(event: Event | PassThroughNotice) -> None:
        threads.append(threading.get_ident())
        said.append(event)

    for made in (sync, coroutine):
        said.clear()
        await run(made, attrs.evolve(scene, emit=emit))
        progressed = [event for event in said if isinstance(event, ToolProgressed)]
        assert [(event.request, event.text) for event in progressed] == [("r-1-7", "1"), ("r-1-7", "2")]
    assert set(threads) == {threading.get_ident()}


# Threads


async def test_as_many_sync_tools_run_side_by_side_as_there_are_threads(scene: PerformContext) -> None:
    barrier = threading.Barrier(MAX_THREADS, timeout=PATIENCE)  # with fewer, none would get on
    lock, running, most = threading.Lock(), [0], [0]

    @tool
    def meet() -> str:
        barrier.wait()
        return "met"

    @tool
    def count() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        with lock:
            running[0] -= 1

    runner = ToolRunner([meet, count])
    answers = await asyncio.gather(*[runner(request("meet"), scene) for _ in range(MAX_THREADS)])
    assert {answer.content for answer in answers} == {"met"}
    answers = await asyncio.gather(*[runner(request("count"), scene) for _ in range(5 * MAX_THREADS)])
    assert {answer.outcome for answer in answers} == {Outcome.OK}
    assert 0 < most[0] <= MAX_THREADS


async def test_tools_that_hang_do_not_use_up_the_threads(
    scene: PerformContext, gate: threading.Event
) -> None:
    @tool
    def hang() -> None:
        gate.wait()

    quick, _ = both(lambda: "still here")
    runner = ToolRunner([hang, quick], grace=0.01)
    hung = await asyncio.gather(
        *[runner(request("hang", timeout=0.05), scene) for _ in range(2 * MAX_THREADS)]
    )
    assert {answer.outcome for answer in hung} == {Outcome.TIMED_OUT}
    assert (await runner(request("sync"), scene)).content == "still here"


async def test_a_tool_that_waits_for_a_thread_can_be_cancelled(
    scene: PerformContext, gate: threading.Event
) -> None:
    loop, full, started = asyncio.get_running_loop(), asyncio.Event(), list[int]()

    @tool
    def hang(number: int) -> None:
        started.append(number)
        if len(started) == MAX_THREADS:
            loop.call_soon_threadsafe(full.set)
        gate.wait()

    runner = ToolRunner([hang])
    requests = [request("hang", f'{{"number":{number}}}') for number in range(MAX_THREADS + 1)]
    tasks = [asyncio.create_task(runner(each, scene)) for each in requests]
    await asyncio.wait_for(full.wait(), PATIENCE)
    tasks[-1].cancel()
    answer = await tasks[-1]
    assert (answer.outcome, answer.content) == (Outcome.CANCELLED, "Cancelled")
    gate.set()
    await asyncio.gather(*tasks)
    assert sorted(started) == list(range(MAX_THREADS))  # the last one never ran


# What takes too long


@pytest.mark.parametrize(
    ("last_word", "content", "files"),
    [
        (None, "", ()),
        ("half of it", "; it ended shortly after:\nhalf of it", ()),
        (PICTURE, f"; it ended shortly after:\n{SHOWN}", (PICTURE,)),
    ],
)
async def test_a_tool_that_takes_too_long_is_stopped(
    last_word: object, content: str, files: tuple[Binary, ...], scene: PerformContext
) -> None:
    cleaned: list[bool] = []

    @tool
    async def slow() -> object:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if last_word is None:
                raise
        finally:
            cleaned.append(True)
        return last_word

    answer = await ToolRunner([slow])(request("slow", timeout=0.05), scene)
    expected = (Outcome.TIMED_OUT, "Tool timed out after 0.05 s" + content, files)
    assert (answer.outcome, answer.content, answer.files) == expected
    assert cleaned == [True]


@pytest.mark.parametrize("where", ["at once", "later", "and fails", "when cancelled", "briefly", "thread"])
async def test_an_async_tool_that_blocks_the_event_loop_is_named_in_the_log(
    where: str, scene: PerformContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once a call, however often; another tool that only waits meanwhile is not.
    now, begun, over = [0.0], asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(worker_pool, "monotonic", lambda: now[0])

    def hold_up(seconds: float = 1.5) -> None:
        now[0] += seconds

    @tool
    async def block() -> None:
        if where == "later":
            await asyncio.sleep(0)
        if where == "when cancelled":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        for _ in range(1 if where == "when cancelled" else 2):
            hold_up(0.75 if where == "briefly" else 1.5)
            if where == "and fails":
                raise ValueError
            await asyncio.sleep(0)

    @tool
    async def wait() -> None:
        begun.set()
        await over.wait()

    @tool
    def work() -> None:
        hold_up()

    runner, name = ToolRunner([block, wait, work]), "work" if where == "thread" else "block"
    with capture_logs() as lines:
        waits = asyncio.ensure_future(runner(request("wait"), scene))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        await runner(request(name, timeout=0.05 if where == "when cancelled" else PATIENCE), scene)
        over.set()
        await waits
    told = {"event": "a tool blocked the event loop", "log_level": "warning", "tool": "block"}
    expected = {**told, "call": "call-3", "seconds": 1.5, "session": scene.session, "run": scene.run}
    found = [line for line in lines if "seconds" in line]
    assert found == [expected] * (where not in {"briefly", "thread"})


async def test_a_sync_tool_that_hangs_is_left_behind(scene: PerformContext, gate: threading.Event) -> None:
    # The answer says that its thread still runs, and what it says later is dropped.
    late, said = threading.Event(), list[Event | PassThroughNotice]()

    @tool
    def hang(context: ToolContext[object]) -> None:
        gate.wait()
        context.progress("too late")
        late.set()

    runner = ToolRunner([hang], grace=0.05)
    answer = await runner(request("hang", timeout=0.05), attrs.evolve(scene, emit=said.append))
    expected = "Tool timed out after 0.05 s; it did not stop in time and its thread still runs"
    assert (answer.outcome, answer.content) == (Outcome.TIMED_OUT, expected)
    gate.set()
    assert await asyncio.to_thread(late.wait, PATIENCE)
    await asyncio.sleep(0)
    assert said == []


HANGS = """
import asyncio, threading
from turnwheel.effects.config import Config
from turnwheel.effects.history import History
from turnwheel.effects.config import ModelSpec
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.tools.decorator import tool
from turnwheel.performers.tools.runner import ToolRunner
from turnwheel.effects.requests import RunTool

@tool
def hang() -> None:
    threading.Event().wait()

config = Config(model=ModelSpec(name="openai:none"))
scene = PerformContext(
    session="", run="", config=config, history=History.of(), clock=SystemClock(), emit=print
)
request = RunTool(id="1", call="1", tool="hang", arguments="{}", timeout=0.05)
print(asyncio.run(ToolRunner([hang], grace=0.05)(request, scene)).outcome)
"""


def test_a_sync_tool_that_hangs_does_not_keep_the_interpreter() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (b"timed_out\n", b"")


# What is cancelled


async def cancelled(
    runner: ToolRunner, name: str, scene: PerformContext, started: asyncio.Event
) -> tuple[Outcome, str, int]:
    """The answer of a run cancelled when its tool has *started*, and what is left of the cancellation."""
    task = asyncio.create_task(runner(request(name), scene))
    await asyncio.wait_for(started.wait(), PATIENCE)
    task.cancel()
    answer = await asyncio.wait_for(task, PATIENCE)
    return answer.outcome, answer.content, task.cancelling()


@pytest.mark.parametrize(
    ("last_word", "outcome", "content"),
    [
        (lambda: fail(asyncio.CancelledError()), Outcome.CANCELLED, "Cancelled"),
        (lambda: "it was done already", Outcome.OK, "it was done already"),
        (lambda: fail(OSError("disk full")), Outcome.ERROR, "Tool raised an exception: disk full"),
    ],
)
async def test_a_cancelled_tool_gives_its_real_end(
    last_word: Callable[[], object], outcome: Outcome, content: str, scene: PerformContext
) -> None:
    started = asyncio.Event()

    @tool
    async def work() -> object:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return last_word()
        raise AssertionError

    assert await cancelled(ToolRunner([work]), "work", scene, started) == (outcome, content, 0)


async def test_the_output_of_a_cancelled_program_is_kept(scene: PerformContext, tmp_path: Path) -> None:
    @tool
    async def work(context: ToolContext[object]) -> str:
        command = "echo half done; echo > begun; exec sleep 1000"
        return (await context.run(("sh", "-c", command))).output

    task = asyncio.create_task(ToolRunner([work], cwd=tmp_path)(request("work"), scene))
    async with asyncio.timeout(PATIENCE):
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)
    task.cancel()
    answer = await asyncio.wait_for(task, PATIENCE)
    assert answer.outcome is Outcome.CANCELLED
    assert answer.content == "Cancelled; until then it said:\nhalf done\n"


async def test_the_output_of_a_program_whose_tool_timed_out_is_kept(scene: PerformContext) -> None:
    @tool
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise asyncio.CancelledError(ProcessEnd("half done\n", None)) from None

    answer = await asyncio.wait_for(ToolRunner([work])(request("work", timeout=0.05), scene), PATIENCE)
    assert answer.outcome is Outcome.TIMED_OUT
    assert answer.content == "Tool timed out after 0.05 s; until then it said:\nhalf done\n"


async def test_the_end_of_a_cancelled_sync_tool_is_waited_for(
    scene: PerformContext, gate: threading.Event
) -> None:
    # A thread cannot be stopped, but what it does within the grace is what happened.
    loop, started = asyncio.get_running_loop(), asyncio.Event()

    @tool
    def work() -> str:
        loop.call_soon_threadsafe(started.set)
        loop.call_soon_threadsafe(gate.set)
        gate.wait()
        return "written"

    runner = ToolRunner([work], grace=PATIENCE)
    assert await cancelled(runner, "work", scene, started) == (Outcome.OK, "written", 0)


@pytest.mark.parametrize(("grace", "cancels"), [(0.05, 1), (1_000, 2)])
async def test_a_tool_that_ignores_a_cancel_is_left(
    grace: float, cancels: int, scene: PerformContext
) -> None:
    # After the grace, or at a second cancel, the answer is given; the tool is kept until it ends by itself.
    started, stopping, gate, late = (asyncio.Event() for _ in range(4))

    @tool
    async def stubborn() -> None:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await gate.wait()
        stopping.set()
        await gate.wait()
        late.set()

    task = asyncio.create_task(ToolRunner([stubborn], grace=grace)(request("stubborn"), scene))
    for event in (started, stopping)[:cancels]:
        await asyncio.wait_for(event.wait(), PATIENCE)
        task.cancel()
    answer = await asyncio.wait_for(task, PATIENCE)
    expected = "Cancelled; it did not stop in time and may still be running"
    assert (answer.outcome, answer.content) == (Outcome.CANCELLED, expected)
    gate.set()
    await asyncio.wait_for(late.wait(), PATIENCE)


def test_a_runner_works_in_one_event_loop_after_another(scene: PerformContext) -> None:
    runner = ToolRunner(both(lambda: "here"))
    for name in ("sync", "coroutine", "sync"):
        assert asyncio.run(runner(request(name), scene)).content == "here"


async def test_a_sync_tool_without_a_thread_of_the_systems_crashes_and_the_next_one_runs(
    scene: PerformContext, monkeypatch: pytest.MonkeyPatch, gate: threading.Event, until: Any
) -> None:
    begun = threading.Event()

    @tool
    def work() -> str:
        return "done"

    @tool
    def hold() -> str:
        begun.set()
        gate.wait(PATIENCE)
        return "held"

    def none_left(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")  # noqa: TRY003, EM101  # the system's words

    runner = ToolRunner([work, hold])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        answer = await runner(request("work"), scene)
    assert (answer.outcome, answer.content) == (
        Outcome.CRASHED,
        "Tool execution crashed: can't start new thread",
    )
    # With one under way, the next waits for its thread.
    held = asyncio.create_task(runner(request("hold"), scene))
    await until(begun.is_set)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        waiting = asyncio.create_task(runner(request("work"), scene))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    gate.set()
    assert ((await held).content, (await waiting).content) == ("held", "done")
