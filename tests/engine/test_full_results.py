"""Results that are too long for a conversation: it holds a part, and a model can read the whole."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from turnwheel import (
    Agent,
    ChildSpec,
    Compaction,
    Deny,
    MemoryStore,
    ModelSpec,
    Policy,
    Session,
    SQLiteStore,
    ToolContext,
    builtin_tools,
    tool,
)
from turnwheel.effects import Effect
from turnwheel.effects.config import READER
from turnwheel.effects.events import AgentFinished, Event, ModelFinished, ToolFinished
from turnwheel.effects.history import CallPiece, Piece, TextPiece
from turnwheel.effects.messages import Binary, Message, Outcome, Role, StopReason, ToolResult
from turnwheel.effects.notices import CallSettled, Compacted
from turnwheel.effects.records import AppendMessage
from turnwheel.effects.requests import CallModel, Purpose, RunAgent
from turnwheel.effects.usage import Usage
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Stepped
from turnwheel.engine.journal.fold import FullResults
from turnwheel.engine.journal.journal import Journal
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.performers.tools.builtin import read_result
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.harness import MachineHarness, call, config
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says
from turnwheel.testing.stores import StoreOver

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
    given: dict[str, Any] = {
        "model": "scripted",
        "performers": {CallModel: model},
        "tools": [dump, peep, read_result],
        "clock": AutoClock(100.0),
    }
    return Agent(**{**given, **settings})


def results(session: Session) -> list[ToolResult]:
    return [result for message in session.history for result in message.results]


async def read_by(store: Store | None, id_: str, session: str = "s", **settings: Any) -> str:
    """What a model reads of the result *id_* in a process that opens *session* again."""
    later = Reader(id_)
    async with agent(later, store=store, **settings).session(session) as opened:
        await opened.run("again")
    return "".join(later.pages)


# A model reads on


@pytest.mark.parametrize("where", ["no store", "memory", "file"])
async def test_what_was_left_out_can_be_read_page_by_page(where: str, tmp_path: Path) -> None:
    # The conversation holds a tenth of the limit from each end, and each page whole.
    made: dict[str, Callable[[], Store | None]] = {
        "no store": lambda: None,
        "memory": MemoryStore,
        "file": lambda: SQLiteStore(tmp_path / "agent.db", "process"),
    }
    model, store = Reader(), made[where]()
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
    if store is not None:
        await store.close()


@pytest.mark.parametrize("limit", [1_000, 5_000, 10_050, 30_000])
async def test_what_is_read_is_never_cut_again(limit: int) -> None:
    model = Reader()
    async with agent(model, compaction=Compaction(result_limit=limit)).session() as session:
        await session.run("go")
        pages = [result.content for result in results(session)][1:]
    assert "".join(model.pages) == WHOLE
    assert max(map(len, pages)) <= limit
    assert max(map(len, model.pages)) == min(10_000, limit - 100)


async def test_in_another_process_and_in_a_copy_it_can_still_be_read() -> None:
    # The journal has it whole, so nothing of it is kept anywhere else.
    store, model = MemoryStore(), Reader()
    async with agent(model, store=store).session("s") as session:
        await session.run("go")
    for _ in range(2):
        assert await read_by(store, model.id) == WHOLE
    text = b"".join(await store.load("s"))
    assert text.count(b"line   1500") == 4  # the result, and the page with it that was read three times
    async with agent(model, store=store).session("s") as session:
        copy = await session.fork("t")
    await copy.close()
    await store.delete("s")
    assert await read_by(store, model.id, "t") == WHOLE


async def test_after_a_summary_it_can_still_be_read() -> None:
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
        answer = await self.model(request, scene) if request.purpose is not Purpose.SUMMARY else None
        at, stop, pieces = scene.clock.now(), StopReason.END_TURN, (TextPiece("They read."),)
        summary = ModelFinished(at=at, request=request.id, stop=stop, usage=Usage(), pieces=pieces)
        return attrs.evolve(answer, usage=Usage()) if answer else summary


async def test_where_a_session_went_back_to_it_can_still_be_read() -> None:
    store, model = MemoryStore(), Reader()
    async with agent(model, store=store).session("s") as session:
        await session.run("go")
        await session.branch()
        assert len(session.history) == 0
        model.pages.clear()
        await session.run("again")
        assert "".join(model.pages) == WHOLE
    assert await read_by(store, model.id) == WHOLE


async def test_a_result_of_a_lost_process_can_be_read() -> None:
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
    assert await read_by(store, first.call) == WHOLE


async def test_what_a_person_said_for_a_call_can_be_read() -> None:
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


class Then:
    """A model that says *first*, and then what *model* says."""

    def __init__(self, first: Reply, model: Reader) -> None:
        self.first: ScriptedModel | None = ScriptedModel(first)
        self.model = model

    async def __call__(self, request: CallModel, scene: PerformContext) -> Any:
        scripted, self.first = self.first, None
        return await (scripted or self.model)(request, scene)


@tool(side_effect="read_only")
def photo() -> list[str | Binary]:
    """Look, and say much."""
    return [WHOLE, Binary(media_type="image/png", data=b"x")]


async def found(request: RunAgent, scene: PerformContext) -> AgentFinished:
    return AgentFinished(at=scene.clock.now(), request=request.id, content=WHOLE)


KID = {"children": [ChildSpec(name="kid")]}
SAID = "".join(f"{number}\n" for number in range(1, 20_001)) + "[exit code 0]"
LONG: dict[str, tuple[tuple[str, dict[str, Any]], dict[str, Any], str]] = {
    "with files": (("photo", {}), {"tools": [photo, read_result]}, WHOLE + "\n[image/png, 1 bytes]"),
    "of a command": (("bash", {"command": "seq 20000"}), {"tools": builtin_tools()}, SAID),
    "of a child": (("run_agent", {"agent": "kid", "prompt": "look"}), KID, WHOLE),
}


@pytest.mark.parametrize("kind", LONG)
async def test_a_long_result_can_be_read(kind: str, tmp_path: Path) -> None:
    first, settings, whole = LONG[kind]
    model = Reader()
    performers = {CallModel: Then(calls(first), model), RunAgent: found}
    made = agent(model, **settings, performers=performers, policy=ALLOWED, cwd=tmp_path)
    async with made.session("s") as session:
        await session.run("go")
        shown = results(session)[0]
    assert "".join(model.pages) == whole
    assert len(shown.content) < 5_000
    assert f"of {len(whole)} characters" in shown.content
    assert [file.data for file in shown.files] == [b"x"] * (kind == "with files")


async def test_a_child_reads_its_own_results_and_no_other() -> None:
    # Each dumps; then the child, and after it the parent, reads its own and the other's result.
    ids: dict[str, str] = {}
    outcomes: dict[str, list[str]] = {}

    async def family(request: CallModel, scene: PerformContext) -> ModelFinished:
        me = scene.config.agent or "parent"
        seen = [result for message in scene.history for result in message.results]
        last = seen[-1].name if seen else ""
        if last == "dump":
            ids[me] = seen[-1].call
        reads = [(READER, f'{{"id":"{ids.get(one)}","limit":10}}') for one in ("kid", "parent")]
        starts = [("run_agent", '{"agent":"kid","prompt":"go"}')]
        after = {"": [("dump", "{}")], "dump": reads if me == "kid" else starts, "run_agent": reads}
        pieces: list[Piece] = [CallPiece(n, f"w{n}", *wish) for n, wish in enumerate(after.get(last, []))]
        stop, at = StopReason.TOOL_USE if pieces else StopReason.END_TURN, scene.clock.now()
        if not pieces:
            outcomes[me] = [result.outcome.value for result in seen[-2:]]
            pieces.append(TextPiece("done"))
        return ModelFinished(at=at, request=request.id, stop=stop, usage=Usage(), pieces=tuple(pieces))

    async with agent(family, **KID, store=MemoryStore(), policy=ALLOWED).session("s") as session:
        await session.run("go")
    assert outcomes == {"kid": ["ok", "error"], "parent": ["error", "ok"]}


# What is kept of it


class Counting(StoreOver):
    """A store that notes from where on it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[int] = []

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self.loaded.append(start)
        return await super().load(session, start, end, incarnation)


async def test_no_more_is_read_than_has_to_be() -> None:
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
    shown = ToolResult(call=call, wire_id="", name="dump", content=kept or content)
    effects: list[Effect] = [
        CallSettled(call=call, tool="dump", outcome=Outcome.OK, content=content, at=0.0),
        AppendMessage(message=Message(role=Role.TOOL, parts=(shown,))),
    ]
    wholes.note(ToolFinished(at=1.0, request="r-1", content=content), effects, number)


def test_where_there_is_a_journal_only_the_number_of_what_was_cut_is_kept() -> None:
    wholes = FullResults()
    noted(wholes, WHOLE, 7, kept="line")
    noted(wholes, WHOLE, 8, call="c-2")
    assert (wholes.places.get("c-1"), wholes.places.get("c-2"), wholes.places.get("c-3")) == (7, None, None)
    # Without one the oldest go when there are too many: a long session must not grow for ever.
    bounded = FullResults(most=25)
    for number in range(4):
        noted(bounded, f"{number}" * 10, None, kept="cut", call=f"c-{number}")
    assert [bounded.places.get(f"c-{number}") for number in range(4)] == [None, None, "2" * 10, "3" * 10]


def test_what_is_cut_is_what_the_conversation_really_holds() -> None:
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
    results = run.machine.memory.history[-1].results
    assert [wholes.places.get(result.call) for result in results] == [None, 5, None]


async def test_an_entry_that_says_something_else_is_no_result() -> None:
    store = MemoryStore()
    event: Event = AgentFinished(at=1.0, request="r-1", content="found")
    await store.append("s", 0, [encode_entry(Stepped(event=event, label="executing"))])
    assert await Journal("s", store).full_result(0) == "found"
    assert await Journal("s", store).full_result(1) is None
    assert await Journal("t", store).full_result(0) is None
    assert isinstance(decode_entry((await store.load("s"))[0]), Stepped)


# The tool


def context(room: int | None = None, **wholes: str) -> ToolContext[None]:
    async def whole(call: str) -> str | None:
        return wholes.get(call)

    return ToolContext(cwd=Path("/"), deps=None, result_limit=room, full_result=whole)


async def test_a_page_says_where_it_is_and_how_to_go_on() -> None:
    for offset, limit, expected in (
        (0, 4, "abcd\n[characters 0 to 4 of 10; offset=4 goes on]"),
        (4, 4, "efgh\n[characters 4 to 8 of 10; offset=8 goes on]"),
        (8, 4, "ij\n[characters 8 to 10 of 10, its end]"),
        (0, 10, "abcdefghij\n[characters 0 to 10 of 10, its end]"),
        (9, 1, "j\n[characters 9 to 10 of 10, its end]"),
        (0, 99, "abcdefghij\n[characters 0 to 10 of 10, its end]"),
    ):
        assert await read_result(context(x="abcdefghij"), "x", offset, limit) == expected
    for id_, offset, problem in (
        ("y", 0, "there is no long result 'y'; its id stands where characters of it are left out"),
        ("", 0, "there is no long result ''; its id stands"),
        ("y" * 90_000, 0, f"there is no long result {'y' * 50!r}; its id stands"),
        ("x", 10, "there is no character 10: the result has 10; the first is 0"),
        ("x", 10**30, "there is no character 1000000000000000000000000000000: the result has 10"),
    ):
        with pytest.raises(ValueError, match=re.escape(problem)):
            await read_result(context(x="abcdefghij", z="secret"), id_, offset)


def test_arguments_that_mean_nothing_are_refused() -> None:
    for arguments in ('{"id":"x","offset":-1}', '{"id":"x","limit":0}', "{}", '{"id":1}'):
        with pytest.raises(ValueError, match=r"it takes: id, offset \(optional\), limit \(optional\)"):
            read_result.bind(arguments, context())


@settings(max_examples=40)
@given(st.integers(1, 600), st.integers(1, 300), st.integers(101, 600) | st.none())
def test_all_pages_together_are_the_whole(length: int, limit: int, room: int | None) -> None:
    # However little there is room for; no page is longer than that.
    whole = "".join(chr(97 + number % 26) for number in range(length))

    async def read() -> None:
        offset = 0
        while offset < length:
            content = await read_result(context(room, x=whole), "x", offset, limit)
            text, _, note = content.rpartition("\n")
            assert room is None or len(content) <= room
            assert text
            assert whole[offset:].startswith(text)
            offset += len(text)
            assert ("goes on" in note) is (offset < length)

    asyncio.run(read())


def test_who_may_read_need_not_be_asked() -> None:
    assert read_result in builtin_tools()
    spec = read_result.spec
    assert (spec.name, spec.side_effect.value, spec.approval.value) == (READER, "read_only", "never")
    assert spec.resources == ()


async def test_where_it_is_not_offered_nothing_is_said_of_it() -> None:
    model = ScriptedModel(calls(("dump", {})), says("done"))
    async with agent(model, tools=[dump]).session() as session:
        await session.run("go")
        (only,) = results(session)
    assert READER not in only.content
    assert "[... 32000 of 36000 characters are left out ...]" in only.content


@pytest.mark.parametrize(("tools", "held"), [([dump], 0), ([dump, read_result], len(WHOLE))])
async def test_without_a_store_a_text_is_held_only_where_it_can_be_read(tools: list[Any], held: int) -> None:
    async with agent(ScriptedModel(calls(("dump", {})), says("done")), tools=tools).session() as session:
        await session.run("go")
        assert session._log.state.full_results.held == held  # pyright: ignore[reportPrivateUsage]  # memory that no caller sees
