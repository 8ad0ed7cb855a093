"""Titles: from the first prompt, from a model, or none; who pays, and what happens when none is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st
from provers.tasks import turns
from structlog.testing import capture_logs

from turnwheel import (
    Agent,
    ChildSpec,
    DoneReason,
    Limits,
    MemoryStore,
    ModelSpec,
    Price,
    Session,
    SetModel,
    tool,
)
from turnwheel.effects.events import Failure, ModelFinished
from turnwheel.effects.history import ReasoningPiece, TextPiece
from turnwheel.effects.messages import Binary, StopReason
from turnwheel.effects.notices import RequestDelayed
from turnwheel.effects.requests import CallModel, Conversation, Purpose
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.inspect.listing import listed
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import Entry, Titled
from turnwheel.engine.journal.fold import SessionState
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.journal.summary import MAX_TITLE, first_line
from turnwheel.engine.session.environment import Environment, Titles
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.engine.session.titles import TITLE_WITHIN, begin_title, tidy
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, fails, says, stalls

PRICE = Price(input=Decimal(1_000_000), output=Decimal(1_000_000))  # a dollar a token


class Namer:
    """A model that answers turns with *turns*, and the request for a title with *title*, once it may."""

    def __init__(self, title: Reply, *turns: Reply) -> None:
        self.turns = ScriptedModel(*turns)
        self.titles = ScriptedModel(title)
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self, request: CallModel, scene: PerformContext) -> Any:
        if request.purpose is not Purpose.TITLE:
            return await self.turns(request, scene)
        await self.may.wait()
        return await self.titles(request, scene)


def made(model: Any, titles: str = "model", **settings: Any) -> Agent:
    """An agent that asks *model*, with a store of its own unless one is given."""
    given: dict[str, Any] = {
        "model": ModelSpec(name="scripted", price=PRICE),
        "store": MemoryStore(),
        "clock": AutoClock(100.0),
    }
    return Agent(performers={CallModel: model}, titles=titles, **{**given, **settings})


async def titled(agent: Agent, session: str = "s") -> list[Titled]:
    assert agent.store is not None
    entries: list[Entry] = [decode_entry(data) for data in await agent.store.load(session)]
    return [entry for entry in entries if isinstance(entry, Titled)]


async def soon(holds: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if holds():
            return
        await asyncio.sleep(0)
    pytest.fail("it does not come to that")


# Inline


@pytest.mark.parametrize(
    ("made_of", "text", "title"),
    [
        (first_line, "How long is README.md?", "How long is README.md?"),
        (first_line, "\n\n  two   words \n and a second line", "two words"),
        (first_line, "x" * 60, "x" * 60),
        (first_line, "x" * 61, "x" * 59 + "…"),
        (first_line, "twelve chars " * 6, "twelve chars twelve chars twelve chars twelve chars twelve…"),
        (first_line, "a" * 58 + " bc d", "a" * 58 + "…"),
        (first_line, " \n\t\n", ""),
        (first_line, "", ""),
        # What a model puts around a title is no part of it.
        (tidy, '"Counting Words."', "Counting Words"),
        (tidy, "**Counting Words**\n\nIt is about counting.", "Counting Words"),
        (tidy, "\n\n« Compter les mots »\n", "Compter les mots"),
        (tidy, "A title that goes on " * 5, "A title that goes on A title that goes on A title that goes…"),
        (tidy, "'It's so'", "It's so"),
        (tidy, '""', ""),
    ],
)
def test_a_title_is_made_of_a_text(made_of: Callable[[str], str], text: str, title: str) -> None:
    assert made_of(text) == title


@given(st.text(max_size=200))
def test_a_title_is_one_short_line(text: str) -> None:
    for title in (first_line(text), tidy(text)):
        assert len(title) <= MAX_TITLE
        assert title == " ".join(title.split())
        assert first_line(title) == title


async def test_a_session_without_a_title_gets_one_with_its_next_run() -> None:
    store = MemoryStore()
    await made(ScriptedModel(says("x")), "off", store=store).session("s").run("first")
    async with made(ScriptedModel(says("y")), "inline", store=store).session("s") as session:
        await session.run("second")
        assert session.title == "first"


async def test_a_prompt_of_files_only_gives_no_title() -> None:
    agent = made(ScriptedModel(says("x")), "inline")
    async with agent.session("s") as session:
        await session.run("", files=(Binary(media_type="image/png", data=b"x"),))
        assert session.title == ""


async def test_without_a_store_there_is_a_title_too() -> None:
    model = Namer(says("Words Counted Quickly"), says("x"))
    async with made(model, store=None).session("s") as session:
        await session.run("count")
        await soon(lambda: bool(session.title))
        assert session.title == "Words Counted Quickly"
        await session.retitle("mine")
        assert session.title == "mine"


# By a model


async def test_a_model_is_asked_after_the_first_run() -> None:
    model = Namer(says("Counting Words", usage=Usage(input=20, output=3)), says("x"), says("y"))
    agent = made(model)
    async with agent.session("s") as session:
        result = await session.run("count " * 200)
        await soon(lambda: bool(session.title))
        (request,) = model.titles.requests
        assert (request.purpose, request.tools, request.view) == (
            Purpose.TITLE,
            (),
            Conversation(revision=0, length=1),
        )
        assert "3 to 6 words" in request.system
        assert [message.text for message in model.titles.seen[0]] == ["count " * 83 + "co"]
        assert (session.title, session.spent.cost) == ("Counting Words", result.spent.cost + 23)
        assert session.spent.turns == 1
        await session.run("again")
    assert len(model.titles.requests) == 1
    async with agent.session("s") as again:
        assert (again.title, again.spent.cost) == ("Counting Words", Decimal(15 + 23 + 15))


async def test_no_run_waits_for_a_title() -> None:
    model = Namer(says("Late But Nice"), says("one"), says("two"))
    model.may.clear()
    agent = made(model)
    async with agent.session("s") as session:
        assert (await session.run("a")).text == "one"
        async for _ in session.stream("b"):
            model.may.set()
        await soon(lambda: bool(session.title))
        assert [message.text for message in session.history] == ["a", "one", "b", "two"]
    async with agent.session("s") as again:
        assert (again.title, len(again.history)) == ("Late But Nice", 4)


async def test_a_title_may_come_while_another_process_drives() -> None:
    model = Namer(says("From Aside"), says("one"), calls(("look", {})), says("two"))
    model.may.clear()
    opened: list[Session] = []

    @tool(side_effect="read_only")
    async def look() -> str:
        """Look."""
        model.may.set()
        await soon(lambda: bool(opened[0].title))
        return "seen"

    agent = made(model, tools=[look])
    async with agent.session("s") as here, agent.session("s") as there:
        opened.append(here)
        await here.run("a")
        result = await there.run("b")
        assert (result.text, result.reason) == ("two", DoneReason.END_TURN)
        await there.load()
        await here.load()
        assert here.title == there.title == "From Aside"
        assert here.spent == there.spent
    async with agent.session("s") as again:
        assert (again.title, again.spent) == ("From Aside", there.spent)


async def test_a_title_that_a_person_gave_stays() -> None:
    model = Namer(says("Not This One"), says("one"))
    model.may.clear()
    agent = made(model)
    async with agent.session("s") as session:
        await session.run("a")
        await session.retitle("  Mine,\nand no other ")
        model.may.set()
        await soon(lambda: session.spent.cost > 15)
        assert session.title == "Mine,"
    assert [entry.title for entry in await titled(agent)] == ["Mine,", "Mine,"]


@pytest.mark.parametrize(
    ("reply", "cost", "why"),
    [
        (fails(Failure.RATE_LIMIT), 0, "rate_limit: "),
        (fails(Failure.CUT, after="Half a"), None, "cut: "),
        (says("Half a", stop=StopReason.MAX_TOKENS), 15, "the answer ended with max_tokens"),
        (says("I cannot", stop=StopReason.REFUSAL), 15, "the answer ended with refusal"),
        (says("  "), 15, ""),
        (Reply(pieces=(ReasoningPiece("hm"),)), 15, ""),
    ],
)
async def test_where_a_model_finds_none_the_first_line_stands_in_once_the_session_is_closed(
    reply: Reply, cost: int | None, why: str
) -> None:
    agent = made(Namer(reply, says("one"), says("two")))
    with capture_logs() as lines:
        async with agent.session("s") as session:
            assert (await session.run("a")).reason is DoneReason.END_TURN
            await session.run("b")
            assert session.title == ""
    reasons = [line["reason"] for line in lines if line["event"] == "no title"]
    assert [reason.startswith(why) for reason in reasons] == ([True] if why else [])
    async with agent.session("s") as again:
        assert again.title == "a"
        guessed = again.spent.usage.estimated
        assert (guessed > 0) == (cost is None)
        assert again.spent.cost == 15 + 15 + (guessed if cost is None else cost)
    # What was paid for is on the account of the session.
    assert [entry.title for entry in await titled(agent)] == (["a"] if cost == 0 else ["", "a"])


async def test_what_goes_wrong_is_a_line_in_the_log() -> None:
    async def broken(request: CallModel, _: PerformContext) -> Any:
        if request.purpose is Purpose.TITLE:
            msg = "no such wire"
            raise RuntimeError(msg)
        return ModelFinished(at=1.0, request=request.id, stop=StopReason.END_TURN, usage=Usage())

    async def mute(request: CallModel, scene: PerformContext) -> Any:
        return None if request.purpose is Purpose.TITLE else await broken(request, scene)

    with capture_logs() as lines:
        for model in (broken, mute):
            async with made(model, store=None).session("s") as session:
                await session.run("a")
                await soon(lambda: any(line["event"] == "no title" for line in lines))
                assert session.title == ""
            reasons = [line["exception"].splitlines()[-1] for line in lines if line["event"] == "no title"]
            lines.clear()
            assert reasons in (
                ["RuntimeError: no such wire"],
                ["TypeError: performer of CallModel: answered None; return ModelFinished or ModelFailed"],
            )


async def test_a_title_is_paid_for_out_of_the_sessions_budget() -> None:
    model = Namer(says("A title", usage=Usage(input=90)), says("done"), says("never"))
    agent = made(model, session_limits=Limits(tokens=100))
    async with agent.session("s") as session:
        await session.run("go")
        await soon(lambda: bool(session.title))
        assert session.spent.usage.total == 15 + 90
        result = await session.run("more")
        assert (result.reason, model.turns.requests[1:]) == (DoneReason.TOKEN_BUDGET, [])
        assert session.spent.usage.total == 15 + 90
    again = await agent.session("s").load()
    assert again.spent.usage.total == 15 + 90


async def test_a_title_that_a_host_finds_without_asking_a_model_is_kept() -> None:
    async def names(request: CallModel, scene: PerformContext) -> Any:
        if request.purpose is not Purpose.TITLE:
            return await ScriptedModel(says("done"))(request, scene)
        pieces = (TextPiece("Out of a table"),)
        return ModelFinished(
            at=100.0, request=request.id, stop=StopReason.END_TURN, usage=Usage(), pieces=pieces
        )

    agent = made(names)
    async with agent.session("s") as session:
        await session.run("go")
        await turns(50)
        assert session.title == "Out of a table"
    (entry,) = await titled(agent)
    assert entry.spent == Spent()


async def test_a_title_is_no_longer_than_the_budget_pays_for() -> None:
    model = Namer(says("A title"), says("done"))
    async with made(model, session_limits=Limits(tokens=500)).session("s") as session:
        await session.run("go")
        await soon(lambda: bool(session.title))
        assert 0 < (model.titles.requests[0].max_output or 0) < 500 - 15


@pytest.mark.parametrize("drained", [True, False])
async def test_closing_waits_for_a_title_that_was_asked_for(*, drained: bool) -> None:
    model = Namer(says("Late But Nice"), says("one"))
    model.may.clear()
    agent = made(model, clock=ManualClock())
    session = agent.session("s")
    await session.run("a")
    await turns(10)
    closing = asyncio.ensure_future(session.drain() if drained else session.close())
    await turns(10)
    assert not closing.done()
    model.may.set()
    await closing
    (entry,) = await titled(agent)
    assert (entry.title, entry.spent.usage.total) == ("Late But Nice", 15)


async def test_closing_gives_up_a_title_that_does_not_come_and_pays_for_what_was_used() -> None:
    clock = ManualClock()
    agent = made(Namer(stalls("Half"), says("one")), clock=clock)
    session = agent.session("s")
    await session.run("a")
    await turns(10)
    closing = asyncio.ensure_future(session.close())
    await turns(10)
    clock.move(TITLE_WITHIN - 0.1)
    await turns(10)
    assert not closing.done()
    clock.move(0.1)
    await closing
    async with agent.session("s") as again:
        assert again.title == "a"
        assert again.spent.usage.estimated > 0
        assert again.spent.cost == 15 + again.spent.usage.estimated


async def test_a_caller_that_is_cancelled_while_it_closes_waits_no_longer() -> None:
    model = Namer(says("Never"), says("one"))
    model.may.clear()
    agent = made(model, clock=ManualClock())
    session = agent.session("s")
    await session.run("a")
    await turns(10)
    closing = asyncio.ensure_future(session.close())
    await turns(10)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_a_drain_without_time_does_not_wait_for_a_title() -> None:
    model = Namer(says("Never"), says("one"))
    model.may.clear()
    agent = made(model, clock=ManualClock())
    session = agent.session("s")
    await session.run("a")
    await turns(10)
    draining = asyncio.ensure_future(session.drain(0.0))
    await turns(50)
    assert draining.done()
    assert [entry.title for entry in await titled(agent)] == ["a"]


async def test_without_a_store_closing_does_not_wait_for_a_title() -> None:
    model = Namer(says("Never"), says("one"))
    model.may.clear()
    async with made(model, store=None, clock=ManualClock()).session("s") as session:
        await session.run("a")
        await turns(10)
    assert session.title == ""


async def test_an_unfinished_run_gets_no_line_in_the_place_of_its_title() -> None:
    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    model = Namer(says("Paying"), calls(("pay", {})), says("done"))
    agent = made(model, tools=[pay])
    async with agent.session("s") as session:
        waiting = (await session.run("a")).waiting
    assert await titled(agent) == []
    async with agent.session("s") as again:
        await again.approve(waiting[0].id)
        await again.resume()
        await soon(lambda: bool(again.title))
    assert [entry.title for entry in await titled(agent)] == ["Paying"]


async def test_a_session_that_is_closed_at_once_or_has_no_budget_left_asks_no_model() -> None:
    model = Namer(says("Never"), says("one"))
    agent = made(model)
    result = await agent.run("a")
    assert (result.text, model.titles.requests) == ("one", [])
    assert [entry.title for entry in await titled(agent, result.session)] == ["a"]
    model = Namer(says("A title"), says("done"))
    agent = made(model, session_limits=Limits(tokens=10))
    async with agent.session("s") as session:
        await session.run("go")
        await asyncio.sleep(0)
    assert model.titles.requests == []
    assert [(entry.title, entry.spent) for entry in await titled(agent)] == [("go", Spent())]
    assert made(ScriptedModel(), "off").titles is made(ScriptedModel(), Titles.OFF).titles is Titles.OFF


async def test_the_model_that_is_asked_is_the_one_in_use() -> None:
    other = ModelSpec(name="other")
    model = Namer(says("Chosen"), says("one"))
    async with made(model, models=[other]).session("s") as session:
        await session.control(SetModel(model="other"))
        await session.run("a")
        await soon(lambda: bool(session.title))
        assert [request.model for request in model.titles.requests] == ["other"]
        assert session.spent.unpriced == session.spent.usage.total


@pytest.mark.parametrize("lacks", ["a title", "a run", "a prompt with a text"])
async def test_no_model_is_asked_where_there_is_nothing_to_call_or_it_is_called_something(lacks: str) -> None:
    agent, log = made(Namer(says("Never")), store=None), SessionLog(Journal("s", None))
    log.state = SessionState(machine=Machine.start(agent.config, "go"), opening="go", title="")
    if lacks == "a title":
        log.state.title = "mine"
    elif lacks == "a run":
        log.state.machine = None
    else:
        log.state.opening = " \n"
    setting = Environment(
        config=agent.config,
        performers={CallModel: ScriptedModel()},
        clock=AutoClock(100.0),
        new_id=lambda: "i",
    )

    async def add(_: object) -> None:
        raise AssertionError

    assert begin_title(log, setting, add) is None


async def test_a_session_whose_turns_are_used_up_asks_no_model() -> None:
    model = Namer(says("Never"), says("one"))
    async with made(model, session_limits=Limits(turns=1)).session("s") as session:
        await session.run("go")
        await asyncio.sleep(0)
    assert model.titles.requests == []


@pytest.mark.parametrize("kept", [True, False])
async def test_a_model_that_is_asked_for_a_title_has_the_sessions_store_and_may_tell_of_delays(
    *, kept: bool
) -> None:
    stores: list[Store | None] = []

    async def answer(request: CallModel, scene: PerformContext) -> Any:
        if request.purpose is Purpose.TITLE:
            stores.append(scene.store)
            scene.emit(RequestDelayed(request=request.id, due=200.0, reason="too many", at=0.0))
        return await ScriptedModel(says("Told Late"))(request, scene)

    agent = made(answer, store=MemoryStore() if kept else None)
    async with agent.session("s") as session:
        await session.run("go")
        await soon(lambda: bool(session.title))
        assert session.title == "Told Late"
    assert stores == [agent.store]


@pytest.mark.parametrize(("titles", "title"), [("model", "Helpers At Work"), ("inline", "send a child")])
async def test_a_child_gets_no_title(titles: str, title: str) -> None:
    model = Namer(
        says("Helpers At Work"),
        calls(("run_agent", {"agent": "kid", "prompt": "go"})),
        says("found"),
        says("done"),
    )
    agent = made(model, titles, children=[ChildSpec(name="kid")])
    async with agent.session("s") as session:
        await session.run("send a child")
        await soon(lambda: bool(session.title))
    assert agent.store is not None
    found = {one.session == "s": one.about.title for one in await listed(agent.store)}
    assert found == {True: title, False: ""}


async def test_any_process_may_call_it_something_else() -> None:
    agent = made(ScriptedModel(says("one"), stalls("half")), "inline")
    async with agent.session("s") as session, agent.session("s") as other:
        await session.run("a")
        await other.retitle("first")
        async for _ in session.stream("b"):
            if session.unfinished and session.title != "second":
                await other.retitle("second")
                await session.retitle("second")
                await session.interrupt()
        await other.load()
        assert session.title == other.title == "second"
    assert agent.store is not None
    assert [one.about.title for one in await listed(agent.store)] == ["second"]
