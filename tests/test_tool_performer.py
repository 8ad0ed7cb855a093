"""Running tools: one answer for every request, whatever the tool does."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

import attrs
import pytest

from turnwheel.effects.config import Compaction, Config, ModelSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Event, ToolFinished, ToolProgressed
from turnwheel.effects.history import History
from turnwheel.effects.messages import Binary, Outcome, user
from turnwheel.effects.requests import RunTool
from turnwheel.performers import (
    Tool,
    ToolContext,
    ToolRunner,
    tool,
)
from turnwheel.performers.base import PassThroughNotice, PerformContext, SystemClock
from turnwheel.performers.tools.result import MAX_RESULT
from turnwheel.performers.tools.runner import MAX_PROGRESS
from turnwheel.performers.worker_pool import MAX_THREADS

PATIENCE = 10.0
"""Seconds within which whatever a test waits for must have come."""


class Said(list[Event | PassThroughNotice]):
    """The events that came before an answer."""


@pytest.fixture
def said() -> Said:
    """What was emitted."""
    return Said()


@pytest.fixture
def scene(said: Said) -> PerformContext:
    """A scene around a request."""
    config = Config(model=ModelSpec(name="openai:none"))
    return PerformContext(
        session="s-1", run="r-1", config=config, history=History.of(), clock=SystemClock(), emit=said.append
    )


def request(name: str, arguments: str = "{}", timeout: float | None = PATIENCE) -> RunTool:
    """A request to run the tool called *name*."""
    return RunTool(id="r-1-7", call="call-3", tool=name, arguments=arguments, timeout=timeout)


async def run(made: Tool[..., Any], scene: PerformContext, arguments: str = "{}") -> ToolFinished:
    """The answer of a runner that has this one tool."""
    return await ToolRunner([made])(request(made.spec.name, arguments), scene)


def fail(error: BaseException) -> NoReturn:
    """Raise *error*."""
    raise error


def both(function: Callable[[], object]) -> list[Tool[..., Any]]:
    """A sync and an async tool that return what *function* does."""

    @tool
    def sync() -> object:
        return function()

    @tool
    async def coroutine() -> object:
        await asyncio.sleep(0)
        return function()

    return [sync, coroutine]


class Level(StrEnum):
    """A string that is more than one."""

    HIGH = "high"


class Opaque:
    """Something without a JSON form."""

    def __repr__(self) -> str:
        return "<opaque>"


class Secretive(Opaque):
    """Something that does not even have a repr."""

    def __repr__(self) -> str:
        msg = "no comment"
        raise ValueError(msg)


@attrs.frozen
class Pair:
    """Two numbers."""

    a: int
    b: int


def endless() -> list[Any]:
    """A list that contains itself."""
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        (Level.HIGH, "high"),
        (7, "7"),
        (True, "true"),
        (["ä", 1.5, None], '["ä",1.5,null]'),
        ({"b": 1, "a": Pair(1, 2)}, '{"b":1,"a":{"a":1,"b":2}}'),
        (Opaque(), "<opaque>"),
        (endless(), "[[...]]"),
        ("half a pair: \ud83d", "half a pair: ?"),
    ],
)
async def test_what_is_returned_is_what_the_model_reads(
    value: object, content: str, scene: PerformContext
) -> None:
    """Strings as they are, other values as JSON, what has no JSON form as its repr."""
    for made in both(lambda: value):
        answer = await run(made, scene)
        assert (answer.outcome, answer.content) == (Outcome.OK, content)


PICTURE = Binary(media_type="image/png", data=b"\x89PNG", name="a.png")
SCAN = Binary(media_type="application/pdf", data=b"%PDF-1234")


@pytest.mark.parametrize(
    ("value", "content", "files"),
    [
        (PICTURE, "[image/png, 4 bytes, 'a.png']", (PICTURE,)),
        (("Here:", SCAN), "Here:\n[application/pdf, 9 bytes]", (SCAN,)),
        (
            [PICTURE, "and", SCAN, "", None, 7],
            "[image/png, 4 bytes, 'a.png']\nand\n[application/pdf, 9 bytes]\n7",
            (PICTURE, SCAN),
        ),
        (
            Binary(media_type="image/png", data=bytearray(b"x"), name="\ud83d"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # as some libraries return
            "[image/png, 1 bytes, '?']",
            (Binary(media_type="image/png", data=b"x", name="?"),),
        ),
        (("a", "b"), '["a","b"]', ()),
        ([], "[]", ()),
    ],
)
async def test_files_go_beside_the_text(
    value: object, content: str, files: tuple[Binary, ...], scene: PerformContext
) -> None:
    """Where one stood, the text says what it is; a list without any is a value like others."""
    for made in both(lambda: value):
        answer = await run(made, scene)
        assert (answer.outcome, answer.content, answer.files) == (Outcome.OK, content, files)


def sized(*sizes: int) -> list[Binary]:
    """Pictures of so many bytes."""
    return [Binary(media_type="image/png", data=b"x" * size) for size in sizes]


@pytest.mark.parametrize(
    ("value", "kept", "line"),
    [
        (sized(750_000), 1, "[image/png, 750,000 bytes]"),
        (sized(750_001), 0, "[left out: image/png, 750,001 bytes; the limit for a file is 750,000 bytes]"),
        (sized(*[750_000] * 5), 5, "[image/png, 750,000 bytes]"),
        (
            sized(*[750_000] * 5, 1),
            5,
            "[left out: image/png, 1 bytes; the limit for all files of a result is 3,750,000 bytes]",
        ),
        (sized(0), 0, "[left out: image/png, 0 bytes; it is empty]"),
        (sized(*[1] * 21), 20, "[left out: image/png, 1 bytes; the limit for a result is 20 files]"),
    ],
)
async def test_files_are_bounded(value: list[Binary], kept: int, line: str, scene: PerformContext) -> None:
    """In base64 a file has a megabyte at most and a result five; what is left out is said, with its size."""
    answer = await run(both(lambda: value)[1], scene)
    lines = answer.content.split("\n")
    assert (len(answer.files), len(lines), lines[-1]) == (kept, len(value), line)


async def test_a_file_after_one_that_was_left_out_is_kept(scene: PerformContext) -> None:
    """One that is too large takes no room."""
    answer = await run(both(lambda: sized(10_000_000, 7))[0], scene)
    assert answer.files == tuple(sized(7))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"media_type": "image/png", "data": "text"}, "the data of a Binary must be bytes; got str"),
        (
            {"media_type": "png", "data": b""},
            "the media type of a Binary must be such as 'image/png'; got 'png'",
        ),
        (
            {"media_type": None, "data": b""},
            "the media type of a Binary must be such as 'image/png'; got None",
        ),
    ],
)
async def test_a_file_that_is_none_is_an_error(
    fields: dict[str, Any], problem: str, scene: PerformContext
) -> None:
    """Nothing is written down that no journal and no provider takes."""
    answer = await run(both(lambda: Binary(**fields))[0], scene)
    assert (answer.outcome, answer.files) == (Outcome.ERROR, ())
    assert answer.content == f"Tool raised an exception: {problem}"


async def test_the_files_of_a_late_tool_are_kept(scene: PerformContext) -> None:
    """As its text is."""

    @tool
    async def slow() -> Binary:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return PICTURE
        raise AssertionError

    answer = await ToolRunner([slow])(request("slow", timeout=0.05), scene)
    assert (answer.outcome, answer.files) == (Outcome.TIMED_OUT, (PICTURE,))


class Mute(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        msg = "and neither can this"
        raise ValueError(msg)


class Deadly(Exception):
    """An exception that would end the process when it is shown."""

    def __str__(self) -> str:
        raise SystemExit(1)


def deeper(depth: int = 0) -> int:
    """Recurse without end."""
    return deeper(depth + 1) + 1


async def asynchronously() -> None:
    """Nothing, later."""


@pytest.mark.parametrize(
    ("function", "outcome", "content"),
    [
        (lambda: fail(ValueError("no such city")), Outcome.ERROR, "Tool raised an exception: no such city"),
        (lambda: fail(ValueError()), Outcome.ERROR, "Tool raised an exception: ValueError"),
        (
            lambda: fail(Mute()),
            Outcome.ERROR,
            "Tool raised an exception: Mute, whose message cannot be shown (ValueError)",
        ),
        (
            lambda: fail(Deadly()),
            Outcome.ERROR,
            "Tool raised an exception: Deadly, whose message cannot be shown (SystemExit)",
        ),
        (deeper, Outcome.ERROR, "Tool raised an exception: maximum recursion depth exceeded"),
        (Secretive, Outcome.ERROR, "Tool raised an exception: no comment"),
        (
            lambda: fail(ExceptionGroup("two", [ValueError("a"), TypeError("b")])),
            Outcome.ERROR,
            "Tool raised an exception: two (2 sub-exceptions): a; b",
        ),
        (asynchronously, Outcome.ERROR, "Tool raised an exception: it returned something to be awaited"),
        (lambda: sys.exit(3), Outcome.CRASHED, "Tool execution crashed: SystemExit: 3"),
        (lambda: fail(KeyboardInterrupt()), Outcome.CRASHED, "Tool execution crashed: KeyboardInterrupt"),
        (lambda: fail(GeneratorExit()), Outcome.CRASHED, "Tool execution crashed: GeneratorExit"),
        (
            lambda: fail(asyncio.CancelledError()),
            Outcome.CRASHED,
            "Tool execution crashed: it cancelled itself",
        ),
        (
            lambda: fail(BaseExceptionGroup("both", [SystemExit(1), ValueError("b")])),
            Outcome.CRASHED,
            "Tool execution crashed: BaseExceptionGroup: both (2 sub-exceptions): 1; b",
        ),
    ],
)
async def test_what_is_raised_is_an_answer(
    function: Callable[[], object], outcome: Outcome, content: str, scene: PerformContext
) -> None:
    """An exception is an error the model reads; what would end a process is a crash of the tool alone."""
    for made in both(function):
        answer = await run(made, scene)
        assert answer.outcome is outcome
        assert answer.content.startswith(content)


async def test_an_unknown_tool_is_an_error(scene: PerformContext) -> None:
    """A tool that is not there does not run."""
    answer = await ToolRunner([])(request("teleport"), scene)
    assert (answer.outcome, answer.content) == (Outcome.ERROR, "Tool not found: teleport")


async def test_wrong_arguments_are_an_error(scene: PerformContext) -> None:
    """The function is not called, and the model reads what was wrong."""

    @tool
    def square(number: int) -> NoReturn:
        """The square."""
        raise AssertionError(number)

    answer = await run(square, scene, '{"number":"two"}')
    assert answer.outcome is Outcome.ERROR
    assert answer.content.startswith("Invalid arguments for tool 'square': Expected `int`, got `str`")


async def test_an_answer_names_its_request_and_its_times(scene: PerformContext) -> None:
    """It carries the request's id, the time by the scene's clock, and how long it took."""
    ticks = iter([100.0, 107.5])

    class Ticking:
        def now(self) -> float:
            return next(ticks)

        async def sleep_until(self, due: float) -> None:
            raise AssertionError(due)

    answer = await run(both(lambda: "x")[1], attrs.evolve(scene, clock=Ticking()))
    assert (answer.request, answer.at, answer.seconds) == ("r-1-7", 107.5, 7.5)


async def test_a_context_says_where_and_for_whom_a_tool_runs(scene: PerformContext, tmp_path: Path) -> None:
    """Directories are absolute and free of symlinks, ids are those of the request, deps the host's own."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    seen: list[ToolContext[str]] = []

    @tool
    def look(context: ToolContext[str]) -> None:
        """Look around."""
        seen.append(context)

    roots: list[Path | str] = [str(tmp_path), tmp_path / "a"]
    await ToolRunner([look], cwd=tmp_path / "b", directories=roots, deps="mine")(request("look"), scene)
    (context,) = seen
    assert (context.cwd, context.directories) == (tmp_path / "a", (tmp_path / "a", tmp_path))
    assert (context.session, context.call, context.key, context.deps) == ("s-1", "call-3", "r-1-7", "mine")


@pytest.mark.parametrize("limit", [5_000, None])
async def test_a_context_says_how_much_a_conversation_holds_and_finds_the_rest(
    limit: int | None, scene: PerformContext
) -> None:
    """A tool that can go on returns no more, and one that reads what was left out finds it."""
    seen: list[object] = []

    @tool
    async def look(context: ToolContext[None]) -> None:
        """Look around."""
        seen.extend(
            [context.result_limit, await context.full_result("call-1"), await context.full_result("call-2")]
        )

    async def whole(call: str) -> str | None:
        return "all of it" if call == "call-1" else None

    config = attrs.evolve(scene.config, compaction=Compaction(result_limit=limit))
    await run(look, attrs.evolve(scene, config=config, full_result=whole))
    assert seen == [limit, "all of it", None]


async def test_a_context_made_by_hand_holds_all_and_has_no_rest() -> None:
    """A test of a tool need not say more."""
    context = ToolContext(cwd=Path("/"), deps=None)
    assert (context.result_limit, await context.full_result("call-1")) == (None, None)


@pytest.mark.parametrize("kind", ["missing", "a file", "with\0null"])
def test_a_directory_that_is_none_is_a_wrong_setting(kind: str, tmp_path: Path) -> None:
    """It is told when the runner is made, not when the first tool fails."""
    (tmp_path / "a file").write_text("")
    with pytest.raises(ConfigError, match="tools cannot work in"):
        ToolRunner([], cwd=tmp_path / kind)


def test_two_tools_of_one_name_are_a_wrong_setting() -> None:
    """Neither could be told from the other."""
    (one, _), (two, _) = both(str), both(str)
    with pytest.raises(ConfigError, match="two tools of one name: 'sync'"):
        ToolRunner([one, two])


def test_a_runner_tells_its_specifications() -> None:
    """A configuration is made of the tools that can be run, in their order."""
    made = both(str)
    assert ToolRunner(made).specs == tuple(each.spec for each in made)


async def test_a_long_result_is_cut_in_its_middle(scene: PerformContext) -> None:
    """Of ten megabytes, the beginning and the end are kept, and what was cut is counted."""
    for made in both(lambda: "a" * 5_000_000 + "b" * 5_000_000):
        content = (await ToolRunner([made], max_result=100)(request(made.spec.name), scene)).content
        assert content == "a" * 50 + "\n[... 9,999,900 characters cut ...]\n" + "b" * 50
        assert MAX_RESULT < len((await run(made, scene)).content) < MAX_RESULT + 100


async def test_a_long_error_is_cut_too(scene: PerformContext) -> None:
    """An exception can be as long as a result."""
    made, _ = both(lambda: fail(ValueError("x" * 1_000_000)))
    answer = await ToolRunner([made], max_result=100)(request("sync"), scene)
    assert len(answer.content) < 200


async def test_progress_comes_before_the_answer_from_tasks_and_threads(
    scene: PerformContext, said: Said
) -> None:
    """What a tool says meanwhile is emitted in order, in the event loop's own thread."""
    threads: list[int] = []

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


async def test_what_is_said_at_once_meanwhile_is_bounded(scene: PerformContext, said: Said) -> None:
    """It is for whoever watches, and is forgotten."""

    @tool
    async def work(context: ToolContext[None]) -> None:
        """Work."""
        context.progress("x" * 1_000_000)

    await run(work, scene)
    (event,) = said
    assert isinstance(event, ToolProgressed)
    assert MAX_PROGRESS < len(event.text) < MAX_PROGRESS + 100


async def test_sync_tools_run_side_by_side(scene: PerformContext) -> None:
    """As many as there are threads wait for each other; with fewer, none would get on."""
    barrier = threading.Barrier(MAX_THREADS, timeout=PATIENCE)

    @tool
    def meet() -> str:
        barrier.wait()
        return "met"

    runner = ToolRunner([meet])
    answers = await asyncio.gather(*[runner(request("meet"), scene) for _ in range(MAX_THREADS)])
    assert {answer.content for answer in answers} == {"met"}


async def test_more_sync_tools_than_threads_wait_their_turn(scene: PerformContext) -> None:
    """Never more than the threads run at once, and each gets its turn."""
    lock = threading.Lock()
    running: list[int] = [0]
    most: list[int] = [0]

    @tool
    def count() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        with lock:
            running[0] -= 1

    runner = ToolRunner([count])
    answers = await asyncio.gather(*[runner(request("count"), scene) for _ in range(5 * MAX_THREADS)])
    assert {answer.outcome for answer in answers} == {Outcome.OK}
    assert 0 < most[0] <= MAX_THREADS


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a hanging sync tool waits for; opened at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_tool_that_takes_too_long_is_stopped(scene: PerformContext) -> None:
    """It is cancelled, cleans up, and the answer names the seconds."""
    cleaned: list[bool] = []

    @tool
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    answer = await ToolRunner([slow])(request("slow", timeout=0.05), scene)
    assert (answer.outcome, answer.content) == (Outcome.TIMED_OUT, "Tool timed out after 0.05 s")
    assert cleaned == [True]


async def test_what_a_late_tool_still_returns_is_told(scene: PerformContext) -> None:
    """It is a time-out all the same."""

    @tool
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "half of it"
        raise AssertionError

    answer = await ToolRunner([slow])(request("slow", timeout=0.05), scene)
    expected = "Tool timed out after 0.05 s; it ended shortly after:\nhalf of it"
    assert (answer.outcome, answer.content) == (Outcome.TIMED_OUT, expected)


async def test_a_sync_tool_that_hangs_is_left_behind(
    scene: PerformContext, gate: threading.Event, said: Said
) -> None:
    """The answer says that it may still be running, and what it says later is dropped."""
    ended = threading.Event()

    @tool
    def hang(context: ToolContext[object]) -> None:
        gate.wait()
        context.progress("too late")
        ended.set()

    answer = await ToolRunner([hang], grace=0.05)(request("hang", timeout=0.05), scene)
    expected = "Tool timed out after 0.05 s; it did not stop in time and may still be running"
    assert (answer.outcome, answer.content) == (Outcome.TIMED_OUT, expected)
    gate.set()
    assert await asyncio.to_thread(ended.wait, PATIENCE)
    await asyncio.sleep(0)
    assert said == []


async def test_tools_that_hang_do_not_use_up_the_threads(
    scene: PerformContext, gate: threading.Event
) -> None:
    """Each one left behind makes room for another."""

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
    """It never runs, so it is simply cancelled."""
    loop, full, started = asyncio.get_running_loop(), asyncio.Event(), list[int]()

    @tool
    def hang(number: int) -> None:
        started.append(number)
        if len(started) == MAX_THREADS:
            loop.call_soon_threadsafe(full.set)
        gate.wait()

    runner = ToolRunner([hang])
    tasks = [
        asyncio.create_task(runner(request("hang", f'{{"number":{number}}}'), scene))
        for number in range(MAX_THREADS + 1)
    ]
    await asyncio.wait_for(full.wait(), PATIENCE)
    tasks[-1].cancel()
    answer = await tasks[-1]
    assert (answer.outcome, answer.content) == (Outcome.CANCELLED, "Cancelled")
    gate.set()
    await asyncio.gather(*tasks)
    assert sorted(started) == list(range(MAX_THREADS))


async def cancelled(
    runner: ToolRunner, name: str, scene: PerformContext, started: asyncio.Event
) -> tuple[ToolFinished, int]:
    """The answer of a run cancelled when its tool has *started*, and what is left of the cancellation."""
    task = asyncio.create_task(runner(request(name), scene))
    await asyncio.wait_for(started.wait(), PATIENCE)
    task.cancel()
    return await asyncio.wait_for(task, PATIENCE), task.cancelling()


@pytest.mark.parametrize(
    ("last_word", "outcome", "content"),
    [
        (asyncio.CancelledError, Outcome.CANCELLED, "Cancelled"),
        (lambda: "it was done already", Outcome.OK, "it was done already"),
        (lambda: fail(OSError("disk full")), Outcome.ERROR, "Tool raised an exception: disk full"),
    ],
)
async def test_a_cancelled_tool_gives_its_real_end(
    last_word: Callable[[], object], outcome: Outcome, content: str, scene: PerformContext
) -> None:
    """One that obeys is cancelled; one that had its result, or fails on the way out, says so."""
    started = asyncio.Event()

    @tool
    async def work() -> object:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            result = last_word()
            if isinstance(result, asyncio.CancelledError):
                raise
            return result
        raise AssertionError

    answer, left = await cancelled(ToolRunner([work]), "work", scene, started)
    assert (answer.outcome, answer.content, left) == (outcome, content, 0)


async def test_a_tool_that_ignores_its_cancel_is_left_behind(scene: PerformContext) -> None:
    """After the grace the answer is given; the tool is kept until it ends by itself."""
    started, gate, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await gate.wait()
        await gate.wait()
        ended.set()

    answer, _ = await cancelled(ToolRunner([stubborn], grace=0.05), "stubborn", scene, started)
    expected = "Cancelled; it did not stop in time and may still be running"
    assert (answer.outcome, answer.content) == (Outcome.CANCELLED, expected)
    gate.set()
    await asyncio.wait_for(ended.wait(), PATIENCE)


async def test_a_second_cancel_ends_the_grace(scene: PerformContext) -> None:
    """Who asks twice gets the answer at once, however long the grace is."""
    started, cancelling, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        started.set()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            cancelling.set()
            await gate.wait()

    task = asyncio.create_task(ToolRunner([stubborn], grace=1_000)(request("stubborn"), scene))
    await started.wait()
    task.cancel()
    await cancelling.wait()
    task.cancel()
    answer = await asyncio.wait_for(task, PATIENCE)
    assert answer.outcome is Outcome.CANCELLED
    assert "may still be running" in answer.content
    gate.set()


async def test_the_end_of_a_cancelled_sync_tool_is_waited_for(
    scene: PerformContext, gate: threading.Event
) -> None:
    """A thread cannot be stopped, but what it does within the grace is what happened."""
    loop, started = asyncio.get_running_loop(), asyncio.Event()

    @tool
    def work() -> str:
        loop.call_soon_threadsafe(started.set)
        loop.call_soon_threadsafe(gate.set)
        gate.wait()
        return "written"

    answer, _ = await cancelled(ToolRunner([work], grace=PATIENCE), "work", scene, started)
    assert (answer.outcome, answer.content) == (Outcome.OK, "written")


def test_a_runner_works_in_one_event_loop_after_another(scene: PerformContext) -> None:
    """It is bound to none of them."""
    made = both(lambda: "here")
    runner = ToolRunner(made)
    for name in ("sync", "coroutine", "sync"):
        assert asyncio.run(runner(request(name), scene)).content == "here"


def test_a_sync_tool_that_hangs_does_not_keep_the_interpreter() -> None:
    """A program ends though a thread of its tools never will."""
    program = textwrap.dedent("""
        import asyncio, threading
        from turnwheel.effects.config import Config
        from turnwheel.effects.config import ModelSpec
        from turnwheel.effects.history import History
        from turnwheel.performers.base import PerformContext, SystemClock
        from turnwheel.performers import ToolRunner, tool
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
    """)
    before = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == (b"timed_out\n", b"")
    assert time.monotonic() - before < 30


async def test_a_tool_sees_the_conversation_as_it_was_when_it_started(scene: PerformContext) -> None:
    """A snapshot: what is said meanwhile is not in it."""
    before = History.of(user("hi"))

    @tool
    def look(context: ToolContext[None]) -> int:
        """Count what was said."""
        return len(context.history)

    scene = attrs.evolve(scene, history=before)
    before.append(user("meanwhile"))
    ended = await ToolRunner([look])(RunTool(id="r-2", call="r-1", tool="look", arguments="{}"), scene)
    assert ended.content == "1"
