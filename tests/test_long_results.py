"""Results that are too long for a conversation: it holds a part, and a model can read the whole."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel import (
    Agent,
    ChildSpec,
    Compaction,
    Deny,
    MemoryStore,
    ModelSpec,
    Policy,
    SQLiteStore,
    ToolContext,
    builtin_tools,
    tool,
)
from turnwheel.effects.config import READER
from turnwheel.effects.events import (
    AgentFinished,
    Event,
    ModelFinished,
    ToolFinished,
)
from turnwheel.effects.messages import (
    Binary,
    Message,
    Outcome,
    Role,
    StopReason,
    ToolResult,
)
from turnwheel.effects.notices import CallSettled, Compacted
from turnwheel.effects.pieces import CallPiece, Piece, TextPiece
from turnwheel.effects.records import AppendMessage
from turnwheel.effects.requests import CallModel, Purpose, RunAgent
from turnwheel.effects.usage import Usage
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Stepped
from turnwheel.engine.journal.fold import FullResults
from turnwheel.engine.session.session_log import read_entry
from turnwheel.performers.stores.base import Store
from turnwheel.performers.tools.builtin import read_result
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.harness import MachineHarness, call, config
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
)

if TYPE_CHECKING:
    from turnwheel import Session
    from turnwheel.performers.base import PerformContext

WHOLE = "".join(f"line {number:>6}\n" for number in range(3_000))
"""36,000 characters, no two lines of which are equal."""

ALLOWED = Policy(mode="bypass")


@tool(side_effect="read_only")
def dump() -> str:
    """Say much."""
    return WHOLE


@tool(side_effect="read_only")
def peep() -> str:
    """Say little."""
    return "peep"


class Reader:
    """
    A model that dumps, and then reads all that was left out of what it was shown, page by page.

    *pages* is what it read. Asked to go on, it reads the result of the call *id* again.
    """

    def __init__(self, id: str = "") -> None:  # noqa: A002  # the tool's word
        self.id = id
        self.pages: list[str] = []

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished:
        """What comes next."""
        shown = scene.history.slice(0, request.view.length)[-1]
        piece: Piece = TextPiece("done")
        if shown.role is Role.USER:
            piece = self._read(0) if self.id else CallPiece(0, "w", "dump", "{}")
        elif left := re.search(rf"are left out: {READER} with id '(.+)' reads them", _last(shown)):
            self.id = left[1]
            piece = self._read(0)
        elif noted := re.fullmatch(
            r"(.*)\n\[characters \d+ to (\d+) of [\d,]+(.*)\]", _last(shown), re.DOTALL
        ):
            self.pages.append(noted[1])
            if noted[3].endswith("goes on"):
                piece = self._read(int(noted[2]))
        stop = StopReason.TOOL_USE if isinstance(piece, CallPiece) else StopReason.END_TURN
        at, used = scene.clock.now(), Usage(input=10, output=1)
        return ModelFinished(at=at, request=request.id, stop=stop, usage=used, pieces=(piece,))

    def _read(self, offset: int) -> CallPiece:
        return CallPiece(0, "w", READER, f'{{"id":"{self.id}","offset":{offset}}}')


def _last(message: Message) -> str:
    return message.results[-1].content if message.results else message.text


def agent(model: object, /, **settings: Any) -> Agent:
    """An agent that dumps and reads."""
    given: dict[str, Any] = {
        "model": "scripted",
        "performers": {CallModel: model},
        "tools": [dump, peep, read_result],
        "clock": AutoClock(100.0),
    }
    return Agent(**{**given, **settings})


def results(session: Session) -> list[ToolResult]:
    """All tool results of *session*, in order."""
    return [result for message in session.history for result in message.results]


@pytest.fixture(params=["no store", "memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store | None]:
    """Where a session is kept, if it is."""
    made: Store | None = None
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "file":
        made = SQLiteStore(tmp_path / "agent.db", "process")
    yield made
    if made is not None:
        await made.close()


# A model reads on


async def test_what_was_left_out_can_be_read_page_by_page(store: Store | None) -> None:
    """The conversation holds a tenth of the limit from each end, and each page whole."""
    model = Reader()
    async with agent(model, store=store).session("s") as session:
        result = await session.run("go")
        first, *pages = results(session)
    assert result.text == "done"
    assert "".join(model.pages) == WHOLE
    assert [len(page) for page in model.pages] == [10_000, 10_000, 10_000, 6_000]
    assert len(first.content) < 4_200
    assert first.content.startswith(WHOLE[:2_000] + "\n[... 32000 of 36000 characters are left out")
    assert first.content.endswith(WHOLE[-2_000:])
    assert all(page.outcome is Outcome.OK for page in pages)


@pytest.mark.parametrize("limit", [1_000, 5_000, 10_050, 30_000])
async def test_what_is_read_is_never_cut_again(limit: int) -> None:
    """Pages are as large as the conversation holds, ten thousand characters unless told."""
    model = Reader()
    async with agent(model, compaction=Compaction(result_limit=limit)).session() as session:
        await session.run("go")
        pages = [result.content for result in results(session)][1:]
    assert "".join(model.pages) == WHOLE
    assert max(map(len, pages)) <= limit
    assert max(map(len, model.pages)) == min(10_000, limit - 100)


async def test_in_a_later_run_and_in_another_process_it_can_still_be_read() -> None:
    """The journal has it whole, so nothing of it is kept anywhere else."""
    store = MemoryStore()
    model = Reader()
    async with agent(model, store=store).session("s") as session:
        await session.run("go")
    for _ in range(2):
        later = Reader(model.id)
        async with agent(later, store=store).session("s") as session:
            await session.run("again")
        assert "".join(later.pages) == WHOLE
    text = b"".join(await store.load("s"))
    assert text.count(b"line   1500") == 4  # the result, and the page with it that was read three times


async def test_after_a_summary_it_can_still_be_read() -> None:
    """The message that held its beginning and its end is gone."""
    model = Reader()
    window = ModelSpec(name="scripted", window=4_000)
    async with agent(Summarised(model), model=window).session("s") as session:
        notices = [notice async for notice in session.stream("go")]
        model.pages.clear()
        assert any(isinstance(notice, Compacted) for notice in notices)
        assert not any(result.content.startswith("line      0") for result in results(session))
        await session.run("again")
    assert "".join(model.pages) == WHOLE


class Summarised:
    """*model*, which says how full the window is, and whose summaries say nothing."""

    def __init__(self, model: Reader) -> None:
        self.model = model

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished:
        """What *model* says, or a summary."""
        if request.purpose is Purpose.SUMMARY:
            pieces = (TextPiece("They read."),)
            return ModelFinished(
                at=scene.clock.now(),
                request=request.id,
                stop=StopReason.END_TURN,
                usage=Usage(),
                pieces=pieces,
            )
        answer = await self.model(request, scene)
        return attrs.evolve(answer, usage=Usage())


async def test_where_a_session_went_back_to_it_can_still_be_read() -> None:
    """What was read on another branch, too: its id is still an id."""
    store, model = MemoryStore(), Reader()
    async with agent(model, store=store).session("s") as session:
        await session.run("go")
        await session.branch()
        assert len(session.history) == 0
        model.pages.clear()
        await session.run("again")
        assert "".join(model.pages) == WHOLE
    later = Reader(model.id)
    async with agent(later, store=store).session("s") as session:
        await session.run("and again")
    assert "".join(later.pages) == WHOLE


async def test_a_copy_of_a_session_reads_its_own() -> None:
    """Also when the one it was copied from is gone."""
    store, model = MemoryStore(), Reader()
    async with agent(model, store=store).session("s") as session:
        await session.run("go")
        copy = await session.fork("t")
    await copy.close()
    await store.delete("s")
    later = Reader(model.id)
    async with agent(later, store=store).session("t") as session:
        await session.run("again")
    assert "".join(later.pages) == WHOLE


async def test_a_result_of_a_lost_process_can_be_read() -> None:
    """Here it went away when one call of two was over; the answer's other one is run again."""
    store, gate = MemoryStore(), asyncio.Event()

    @tool(side_effect="read_only")
    async def wait() -> str:
        """Take time."""
        await gate.wait()
        return "waited"

    tools = [dump, wait, read_result]
    both = calls(("dump", {}), ("wait", {}))
    lost = agent(ScriptedModel(both), store=store, tools=tools).session("s")
    async with lost, aclosing(lost.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, CallSettled):
                break
    gate.set()
    async with agent(ScriptedModel(says("done")), store=store, tools=tools).session("s") as session:
        await session.resume()
        first = results(session)[0]
    later = Reader(first.call)
    async with agent(later, store=store).session("s") as session:
        await session.run("again")
    assert "".join(later.pages) == WHOLE


async def test_what_somebody_else_said_for_a_call_can_be_read() -> None:
    """A person may deny it at length."""

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    store = MemoryStore()
    first = agent(ScriptedModel(calls(("pay", {}))), store=store, tools=[pay, read_result]).session("s")
    async with first as session:
        result = await session.run("go")
        await session.approve(result.waiting[0].id, Deny(message=WHOLE))
    model = Reader()
    async with agent(model, store=store, tools=[pay, read_result]).session("s") as session:
        await session.resume()
    assert "".join(model.pages) == WHOLE


# Children


async def test_what_a_child_found_can_be_read_by_its_parent() -> None:
    """It is the result of the call that started it."""

    async def found(request: RunAgent, scene: PerformContext) -> AgentFinished:
        return AgentFinished(at=scene.clock.now(), request=request.id, content=WHOLE)

    store, model = MemoryStore(), Reader()
    first = calls(("run_agent", {"agent": "kid", "prompt": "look"}))
    parent = Agent(
        model="scripted",
        performers={CallModel: Then(first, model), RunAgent: found},
        tools=[read_result],
        children=[ChildSpec(name="kid")],
        store=store,
        policy=ALLOWED,
    )
    async with parent.session("s") as session:
        await session.run("go")
    assert "".join(model.pages) == WHOLE


class Then:
    """A model that says *first*, and then what *model* says."""

    def __init__(self, first: Reply, model: Reader) -> None:
        self.first: ScriptedModel | None = ScriptedModel(first)
        self.model = model

    async def __call__(self, request: CallModel, scene: PerformContext) -> Any:
        """What comes next."""
        scripted, self.first = self.first, None
        return await (scripted or self.model)(request, scene)


async def test_a_child_reads_its_own_results_and_no_other() -> None:
    """Neither does its parent read the child's."""
    ids: dict[str, str] = {}

    class Family:
        """Each dumps; then the child, and after it the parent, reads its own and the other's result."""

        async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished:
            me = scene.config.agent or "parent"
            results = [result for message in scene.history for result in message.results]
            wishes: list[tuple[str, str]] = []
            if not results:
                wishes = [("dump", "{}")]
            elif results[-1].name == "dump":
                ids[me] = results[-1].call
                wishes = self._read() if me == "kid" else [("run_agent", '{"agent":"kid","prompt":"go"}')]
            elif results[-1].name == "run_agent":
                wishes = self._read()
            pieces: tuple[Piece, ...] = tuple([CallPiece(n, f"w{n}", *wish) for n, wish in enumerate(wishes)])
            if not pieces:
                found.append((me, [result.outcome.value for result in results[-2:]]))
            stop = StopReason.TOOL_USE if pieces else StopReason.END_TURN
            at = scene.clock.now()
            return ModelFinished(
                at=at, request=request.id, stop=stop, usage=Usage(), pieces=pieces or (TextPiece("done"),)
            )

        def _read(self) -> list[tuple[str, str]]:
            return [(READER, f'{{"id":"{ids[one]}","limit":10}}') for one in ("kid", "parent")]

    found: list[tuple[str, list[str]]] = []
    parent = Agent(
        model="scripted",
        performers={CallModel: Family()},
        tools=[dump, read_result],
        children=[ChildSpec(name="kid")],
        store=MemoryStore(),
        policy=ALLOWED,
    )
    async with parent.session("s") as session:
        await session.run("go")
    assert found == [("kid", ["ok", "error"]), ("parent", ["error", "ok"])]


# What is kept of it


class Counting:
    """A store that notes from where on it was read."""

    def __init__(self) -> None:
        self.kept = MemoryStore()
        self.loaded: list[int] = []

    async def load(self, session: str, start: int = 0) -> Any:
        """The entries from *start* on."""
        self.loaded.append(start)
        return await self.kept.load(session, start)

    def __getattr__(self, name: str) -> Any:  # all else is as it is
        return getattr(self.kept, name)


async def test_no_more_is_read_than_has_to_be() -> None:
    """From the entry with the result on, and nothing for a result that was not cut."""
    store = Counting()
    model = ScriptedModel(calls(("peep", {}), ("dump", {})), says("done"))
    async with agent(model, store=store).session("s") as session:
        await session.run("go")
        small, large = results(session)
        entries = await store.kept.load("s")
        (number,) = [number for number, entry in enumerate(entries) if b"line   1500" in entry]
        store.loaded.clear()
        script = calls((READER, {"id": large.call}), (READER, {"id": small.call}), (READER, {"id": "else"}))
        async with agent(ScriptedModel(script, says("done")), store=store).session("s") as again:
            await again.run("read")
            outcomes = [result.outcome.value for result in results(again)[2:]]
    assert outcomes == ["ok", "error", "error"]
    assert [start for start in store.loaded if start == number] == [number]


def noted(
    wholes: FullResults, content: str, number: int | None, *, kept: str = "", call: str = "c-1"
) -> None:
    """A tool ended with *content*, of which the history has *kept*; that is entry *number*."""
    wholes.note(
        ToolFinished(at=1.0, request="r-1", content=content),
        [
            CallSettled(call=call, tool="dump", outcome=Outcome.OK, content=content),
            AppendMessage(
                message=Message(
                    role=Role.TOOL,
                    parts=(ToolResult(call=call, wire_id="", name="dump", content=kept or content),),
                )
            ),
        ],
        number,
    )


def test_where_there_is_a_journal_only_a_number_is_kept() -> None:
    """And only of what was cut."""
    wholes = FullResults()
    noted(wholes, WHOLE, 7, kept="line")
    noted(wholes, WHOLE, 8, call="c-2")
    assert (wholes.where("c-1"), wholes.where("c-2"), wholes.where("c-3")) == (7, None, None)


async def test_the_files_of_a_long_result_stay(tmp_path: Path) -> None:
    """Only text is cut, and only text is read."""

    @tool(side_effect="read_only")
    def photo() -> list[str | Binary]:
        """Look, and say much."""
        return [WHOLE, Binary(media_type="image/png", data=b"x")]

    model = Reader()
    first = Then(calls(("photo", {})), model)
    async with agent(first, tools=[photo, read_result], cwd=tmp_path).session() as session:
        await session.run("go")
        shown = results(session)[0]
    assert [file.data for file in shown.files] == [b"x"]
    assert len(shown.content) < 5_000
    assert "".join(model.pages) == WHOLE + "\n[image/png, 1 bytes]"


def test_without_a_journal_the_oldest_go_when_there_are_too_many() -> None:
    """A session that goes on for days must not grow for ever."""
    wholes = FullResults(most=25)
    for number in range(4):
        noted(wholes, f"{number}" * 10, None, kept="cut", call=f"c-{number}")
    assert [wholes.where(f"c-{number}") for number in range(4)] == [None, None, "2" * 10, "3" * 10]


def test_what_is_cut_is_what_the_conversation_really_holds() -> None:
    """The limit that counts is that of the moment when the results enter it."""
    run = MachineHarness(config(compaction=Compaction(result_limit=1_000)))
    wholes = FullResults()

    def end(tool: str, content: str) -> None:
        effects = run.end(tool, content)
        wholes.note(ToolFinished(at=1.0, request="r-1", content=content), effects, 5)

    run.say(call(0, "look", path="a"), call(1, "look", path="b"), call(2, "look", path="c"))
    end("look", "a" * 900)
    end("look", "b" * 1_000)
    run.machine.reconfigure(config(compaction=Compaction(result_limit=950)))
    end("look", "c" * 10)
    assert [wholes.where(result.call) for result in run.machine.memory.history[-1].results] == [None, 5, None]


async def test_an_entry_that_says_something_else_is_no_result() -> None:
    """Nor is one of a session that is gone."""
    store = MemoryStore()
    event: Event = AgentFinished(at=1.0, request="r-1", content="found")
    await store.append("s", 0, [encode_entry(Stepped(event=event, label="executing"))])
    assert await read_entry(store, "s", 0) == "found"
    assert await read_entry(store, "s", 1) is None
    assert await read_entry(store, "t", 0) is None
    assert isinstance(decode_entry((await store.load("s"))[0]), Stepped)


# The tool


def context(room: int | None = None, **wholes: str) -> ToolContext[None]:
    """What the tool is told: the whole results by their ids, and the room there is."""

    async def whole(call: str) -> str | None:
        return wholes.get(call)

    return ToolContext(cwd=Path("/"), deps=None, result_limit=room, full_result=whole)


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, 4, "abcd\n[characters 0 to 4 of 10; offset=4 goes on]"),
        (4, 4, "efgh\n[characters 4 to 8 of 10; offset=8 goes on]"),
        (8, 4, "ij\n[characters 8 to 10 of 10, its end]"),
        (0, 10, "abcdefghij\n[characters 0 to 10 of 10, its end]"),
        (9, 1, "j\n[characters 9 to 10 of 10, its end]"),
        (0, 99, "abcdefghij\n[characters 0 to 10 of 10, its end]"),
    ],
)
async def test_a_page_says_where_it_is_and_how_to_go_on(offset: int, limit: int, expected: str) -> None:
    """Characters are counted from 0."""
    assert await read_result(context(x="abcdefghij"), "x", offset, limit) == expected


@pytest.mark.parametrize(
    ("id_", "offset", "problem"),
    [
        ("y", 0, "there is no long result 'y'; its id stands where characters of it are left out"),
        ("", 0, "there is no long result ''; its id stands"),
        ("y" * 90_000, 0, f"there is no long result {'y' * 50!r}; its id stands"),
        ("x", 10, "there is no character 10: the result has 10; the first is 0"),
        ("x", 10**30, "there is no character 1000000000000000000000000000000: the result has 10"),
    ],
)
async def test_what_is_not_there_is_said(id_: str, offset: int, problem: str) -> None:
    """And nothing of what else there is."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        await read_result(context(x="abcdefghij", z="secret"), id_, offset)


@pytest.mark.parametrize("arguments", ['{"id":"x","offset":-1}', '{"id":"x","limit":0}', "{}", '{"id":1}'])
def test_arguments_that_mean_nothing_are_refused(arguments: str) -> None:
    """With what there is."""
    with pytest.raises(ValueError, match=r"it takes: id, offset \(optional\), limit \(optional\)"):
        read_result.bind(arguments, context())


@given(st.integers(1, 3_000), st.integers(1, 700), st.integers(101, 600) | st.none())
def test_all_pages_together_are_the_whole(length: int, limit: int, room: int | None) -> None:
    """Whatever is asked for and however little there is room for; none is longer than there is room for."""
    whole = "".join(chr(97 + number % 26) for number in range(length))
    read, offset = "", 0

    async def page() -> str:
        return await read_result(context(room, x=whole), "x", offset, limit)

    while offset < length:
        content = asyncio.run(page())
        text, _, note = content.rpartition("\n")
        assert room is None or len(content) <= room
        assert text
        read, offset = read + text, offset + len(text)
        assert ("goes on" in note) is (offset < length)
    assert read == whole


def test_who_may_read_need_not_be_asked() -> None:
    """It is among the built-in tools, and can be had alone."""
    assert read_result in builtin_tools()
    spec = read_result.spec
    assert (spec.name, spec.side_effect.value, spec.approval.value) == (READER, "read_only", "never")
    assert spec.resources == ()


async def test_what_a_command_says_is_cut_in_one_place_and_can_be_read(tmp_path: Path) -> None:
    """The command's own tool keeps all of it, within reason."""
    output = "".join(f"{number}\n" for number in range(1, 20_001)) + "[exit code 0]"
    model = Reader()
    settings: dict[str, Any] = {"tools": builtin_tools(), "cwd": tmp_path, "policy": ALLOWED}
    command = calls(("bash", {"command": "seq 20000"}))
    async with agent(Then(command, model), **settings).session() as session:
        await session.run("go")
        assert f"of {len(output)} characters" in results(session)[0].content
    assert "".join(model.pages) == output


async def test_a_long_file_is_read_by_its_lines(tmp_path: Path) -> None:
    """What `read` returns is not cut: each part ends with a whole line and says where the next begins."""
    (tmp_path / "a.txt").write_text("".join(f"{number} {'x' * 60}\n" for number in range(2_500)))
    wishes = [calls(("read", {"path": "a.txt", "offset": offset})) for offset in (1, 270, 2_100)]
    settings: dict[str, Any] = {"tools": builtin_tools(), "cwd": tmp_path}
    async with agent(ScriptedModel(*wishes, says("done")), **settings).session() as session:
        await session.run("go")
        parts = [result.content for result in results(session)]
    assert all(19_000 < len(part) <= 20_000 for part in parts)
    assert all(re.search(r"x\n\[lines \d+ to \d+ of 2,500; offset=\d+ goes on\]$", part) for part in parts)


async def test_where_it_is_not_offered_nothing_is_said_of_it() -> None:
    """A model would look for it in vain."""
    model = ScriptedModel(calls(("dump", {})), says("done"))
    async with agent(model, tools=[dump]).session() as session:
        await session.run("go")
        (only,) = results(session)
    assert READER not in only.content
    assert "[... 32000 of 36000 characters are left out ...]" in only.content
