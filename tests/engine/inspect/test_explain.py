"""Why a call ran, or did not: every way it can go is told from its journal, with its grounds."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    ChildSpec,
    Deny,
    HookAnswer,
    HookCall,
    Limits,
    MemoryStore,
    Policy,
    Rule,
    Session,
    hook,
    tool,
)
from turnwheel.effects import events
from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.errors import JournalError, UnknownCall, UnknownSession
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import ToolStarted
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.inspect.archive import explain
from turnwheel.engine.inspect.explain import account, find_wish
from turnwheel.engine.inspect.replay import replayed
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import Entry, Posted, RunOpened, Stepped
from turnwheel.performers.hooks import HostHook
from turnwheel.performers.slices import Slices
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says

Reaction = Callable[[Session, Any], Awaitable[object]]

PAY = calls(("pay", {"amount": 2}))
LOOK = calls(("look", {}))
BOTH = calls(("pay", {"amount": 2}), ("look", {}))
DEAR = calls(("pay", {"amount": 2}), ("look", {}), usage=Usage(input=2_000))
ANSWERS = [says("so be it")] * 3


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(side_effect="read_only")
async def dig() -> str:
    """Take for ever."""
    await asyncio.Event().wait()
    return ""


@tool(approval="never")
async def build() -> str:
    """Take for ever, and change something."""
    await asyncio.Event().wait()
    return ""


class Case:
    """What was told of each call that a script wished."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = AutoClock(100.0)

    def session(self, *replies: Reply, **settings: Any) -> Session:
        agent = Agent(
            model="scripted",
            tools=[look, pay, dig, build],
            store=self.store,
            clock=self.clock,
            performers={CallModel: ScriptedModel(*replies, *ANSWERS)},
            **settings,
        )
        return agent.session("s")

    async def play(
        self, session: Session, prompt: str | None = "go", *, waits: Any = False, **on: Reaction
    ) -> None:
        """Run *session*, and do what *on* says at each notice of the kind of that name."""
        async with aclosing(session.stream(prompt, wait=bool(waits))) as notices:
            async for notice in notices:
                if (react := on.get(type(notice).__name__)) is not None:
                    await react(session, notice)

    async def leave(self, session: Session) -> None:
        async with aclosing(session.stream("go")) as notices:
            async for notice in notices:
                if isinstance(notice, ToolStarted):
                    break
        await session.close()

    async def told(self, number: int = 0) -> list[str]:
        """The story of the call *number* of all that were wished, a line a moment."""
        session = await self.session().load()
        wishes = [wish for message in session.history for wish in message.calls]
        account = await explain(self.store, "s", wishes[number].id)
        assert (account.session, account.call) == ("s", wishes[number].id)
        assert (account.tool, account.arguments) == (wishes[number].name, wishes[number].arguments)
        times = [moment.at for moment in account.moments]
        assert times == sorted(times)
        return [f"{moment.what}: {moment.text}" for moment in account.moments]

    async def all_told(self) -> list[str]:
        session = await self.session().load()
        wishes = [wish for message in session.history for wish in message.calls]
        stories = [await self.told(number) for number in range(len(wishes))]
        return [re.sub("[0-9a-f]{12}", "RUN", line) for story in stories for line in (*story, "")][:-1]


@pytest.fixture
def case() -> Case:
    return Case()


def guard(answer: HookAnswer | Exception, at: Hook = Hook.PRE_TOOL_USE) -> HostHook[Any]:
    @hook(at, name="guard")
    def made(_: HookCall) -> HookAnswer:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return made


def answers(decision: Any, by: str = "") -> Reaction:
    return lambda session, notice: session.approve(notice.request, decision, by=by)


async def interrupt(session: Session, _: Any) -> None:
    await session.interrupt()


async def interrupt_twice(session: Session, _: Any) -> None:
    await session.interrupt()
    await session.interrupt()


def give_up(name: str) -> Reaction:
    async def react(session: Session, notice: Any) -> None:
        if notice.tool == name:
            await session.cancel(notice.call)

    return react


def both(reaction: Reaction) -> dict[str, Reaction]:
    return {"ToolStarted": reaction, "ApprovalRequested": reaction}


def ask(reaction: Reaction) -> dict[str, Reaction]:
    return {"ApprovalRequested": reaction}


DIGS, BUILDS = calls(("dig", {}), ("look", {})), calls(("build", {}), ("look", {}))
CUT_SHORT = Reply(pieces=BOTH.pieces, stop=StopReason.MAX_TOKENS)
STEERS: Reaction = lambda session, _: session.steer("no, wait")  # noqa: E731  # as those above
GRANT = ApproveAlways(where=(("amount", "2"),))
WAYS: dict[str, tuple[Reply, dict[str, Any], dict[str, Reaction]]] = {
    # The tool itself, the mode, or the very rule; it starts only where that allows it.
    "judged: it only reads": (LOOK, {}, {}),
    "judged: everything allowed": (PAY, {"policy": Policy(mode="bypass")}, {}),
    "judged: plan": (PAY, {"policy": Policy(mode="plan")}, {}),
    "judged: no questions": (PAY, {"policy": Policy(mode="dont_ask")}, {}),
    "judged: a rule allows": (PAY, {"rules": [Rule(verdict="allow", tool="p*")]}, {}),
    "judged: a rule denies": (PAY, {"rules": [Rule(verdict="deny", tool="pay")]}, {}),
    # In its own words, and what came of them; also that it was asked and had no say.
    "hook: allows": (PAY, {"hooks": [guard(HookAnswer(verdict="allow", reason="fine"))]}, {}),
    "hook: denies": (PAY, {"hooks": [guard(HookAnswer(verdict="deny", reason="no"))]}, {}),
    "hook: changes arguments": (
        PAY,
        {"hooks": [guard(HookAnswer(verdict="allow", arguments='{"amount": 7}'))]},
        {},
    ),
    "hook: says nothing": (PAY, {"hooks": [guard(HookAnswer())]}, {}),
    "hook: broke": (PAY, {"hooks": [guard(ValueError("broke"))]}, {}),
    "hook: asks": (PAY, {"hooks": [guard(HookAnswer(verdict="ask", reason="hm"))]}, {}),
    "hook: after the call": (
        LOOK,
        {"hooks": [guard(HookAnswer(context="mind"), Hook.POST_TOOL_USE)]},
        {},
    ),
    "person: yes": (PAY, {}, ask(answers(Approve(), "ann"))),
    "person: always": (PAY, {}, ask(answers(ApproveAlways(), "ann"))),
    "person: always where": (PAY, {}, ask(answers(GRANT, "ann"))),
    "person: other arguments": (PAY, {}, ask(answers(Approve(arguments='{"amount": 1}'), "ann"))),
    "person: no": (PAY, {}, ask(answers(Deny(message="too dear"), "ann"))),
    "person: no and stop": (PAY, {}, ask(answers(Deny(interrupt=True), "ann"))),
    "person: silent": (PAY, {"policy": Policy(answer_within=5.0)}, {}),
    "skipped: after a denial": (BOTH, {}, ask(answers(Deny()))),
    "skipped: steered away": (BOTH, {}, ask(STEERS)),
    "given up: a read": (DIGS, {}, both(give_up("dig"))),
    "given up: a write": (BUILDS, {}, both(give_up("build"))),
    "given up: a question": (BOTH, {}, both(give_up("pay"))),
    "interrupted: a read": (DIGS, {}, both(interrupt)),
    "interrupted: a write": (BUILDS, {}, both(interrupt)),
    "interrupted: a question": (BOTH, {}, both(interrupt)),
    "interrupted twice": (BUILDS, {}, both(interrupt_twice)),
    "not run: over budget": (DEAR, {"limits": Limits(tokens=2_000)}, {}),
    "not run: the answer was cut": (CUT_SHORT, {}, {}),
    "not run: no such tool": (calls(("fly", {}), wrong=True), {}, {}),
    "not run: wrong arguments": (calls(("pay", {}), wrong=True), {}, {}),
}
"""Every way a call can go, by what the model wishes, the settings, and the reactions of people."""

RECORDED = Path(__file__).parent / "explain.txt"


async def test_each_way_of_a_call_is_told_as_it_is_recorded() -> None:
    told: list[str] = []
    for name, (script, settings, reactions) in WAYS.items():
        case = Case()
        session = case.session(script, **settings)
        await case.play(session, "go", waits="answer_within" in str(settings), **reactions)
        told += [f"=== {name}", *await case.all_told(), ""]
    for name in ("build", "dig"):
        case = Case()
        await case.leave(case.session(calls((name, {}), ("look", {}))))
        session = case.session()
        await session.interrupt()
        await case.play(session, None)
        told += [f"=== lost with its process: {name}", *await case.all_told(), ""]
    if os.environ.get("RECORD"):
        RECORDED.write_text("\n".join(told), "utf-8")
    assert told == RECORDED.read_text("utf-8").split("\n")


async def test_a_grant_is_the_ground_of_what_comes_after_it(case: Case) -> None:
    session = case.session(PAY, *ANSWERS[:1], PAY)
    await case.play(session, ApprovalRequested=answers(ApproveAlways()))
    await case.play(session, "again")
    assert "judged: allow, by grant: allow pay" in await case.told(1)


async def test_a_question_that_was_answered_elsewhere_says_by_whom(case: Case) -> None:
    question = (await case.session(PAY).run("go")).waiting[0]
    case.clock.move(60.0)
    await case.session().approve(question.id, by="ann (mail)")
    case.clock.move(3_600.0)
    await case.session().resume()
    assert "answered: yes, by ann (mail)" in await case.told()
    account = await explain(case.store, "s", question.call)
    assert [(moment.what, moment.at) for moment in account.moments] == [
        ("wished", 100.0),
        ("judged", 100.0),
        ("asked", 100.0),
        ("answered", 160.0),
        ("taken over", 3_760.0),
        ("judged", 3_760.0),
        ("started", 3_760.0),
        ("ended", 3_760.0),
    ]


async def test_what_a_child_did_is_in_the_session_that_is_named(case: Case) -> None:
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "look around"}))
    children = (ChildSpec(name="scout", tools=("look",)),)
    await case.play(case.session(spawn, LOOK, says("I saw it"), children=children))
    session = await case.session(children=children).load()
    call = session.history[1].calls[0].id
    assert await case.told() == [
        'wished: run_agent {"agent": "scout", "prompt": "look around"}',
        "judged: allow, by tool: it is never asked about",
        f"started: agent scout, in session s.{call}: look around",
        "ended: ok: I saw it",
    ]
    account = await explain(case.store, f"s.{call}", "2")
    assert [moment.what for moment in account.moments] == ["wished", "judged", "started", "ended"]


# Which call


async def test_the_end_of_an_id_is_enough_where_it_is_the_only_one(case: Case) -> None:
    session = case.session(BOTH, *ANSWERS[:1], LOOK)
    await case.play(session, ApprovalRequested=answers(Approve()))
    first, second = [wish.id for wish in session.history[1].calls]
    number = second.partition("-")[2]
    for name in (second, number, f"-{number}"):
        assert (await explain(case.store, "s", name)).call == second
    await case.play(session, "again")
    third = session.history[-3].calls[0].id
    # The numbers go on from run to run.
    assert int(first.partition("-")[2]) < int(number) < int(third.partition("-")[2])
    assert (await explain(case.store, "s", third.partition("-")[2])).call == third


@pytest.mark.parametrize("name", ["", "-", "99", "nothing", "look"])
async def test_a_call_that_is_not_there_is_refused_with_those_that_are(case: Case, name: str) -> None:
    session = case.session(LOOK)
    await case.play(session)
    with pytest.raises(UnknownCall) as told:
        await explain(case.store, "s", name)
    assert told.value.open == (session.history[1].calls[0].id,)


async def test_a_session_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownSession, match="no session 'nobody'"):
        await explain(MemoryStore(), "nobody", "1")


async def test_the_account_grows_with_the_journal(case: Case) -> None:
    session = case.session(PAY)
    await case.play(session, ApprovalRequested=answers(Approve()))
    call = session.history[1].calls[0].id
    whole = (await explain(case.store, "s", call)).moments
    journal = await case.store.load("s")
    wished = next(number for number, data in enumerate(journal, 1) if b"ModelFinished" in data)
    lengths = []
    for length in range(wished, len(journal) + 1):
        cut = MemoryStore()
        await cut.append("s", 0, journal[:length])
        moments = (await explain(cut, "s", call)).moments
        assert whole[: len(moments)] == moments
        lengths.append(len(moments))
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (3, len(whole))


async def test_a_journal_that_was_half_written_is_refused_at_the_entry_that_is_broken(case: Case) -> None:
    await case.play(case.session(LOOK))
    journal = list(await case.store.load("s"))
    cut = MemoryStore()
    await cut.append("s", 0, [*journal[:-1], journal[-1][:-5]])
    with pytest.raises(JournalError, match=f"entry {len(journal) - 1} of session 's' cannot be read"):
        await explain(cut, "s", "2")


# Journals that were written by hand

OPENED = RunOpened(
    at=2.0,
    run="r",
    config=Config(model=ModelSpec(name="m"), tools=(ToolSpec(name="look", approval="never"),)),
)
WISHES = events.ModelFinished(
    at=3.0,
    request="r-1",
    stop=StopReason.TOOL_USE,
    usage=Usage(),
    pieces=(CallPiece(0, "w", "look", "{}"),),
)
LOOKS = (
    Posted(event=events.UserSent(at=1.0, id="p", text="Look")),
    OPENED,
    Stepped(event=WISHES, label="executing"),
)
SEEN = (
    Stepped(event=events.ToolFinished(at=4.0, request="r-3", content="seen"), label="streaming"),
    Stepped(event=attrs.evolve(WISHES, at=5.0, request="r-4"), label="executing"),
)


def journal(*entries: Entry) -> list[bytes]:
    return [encode_entry(entry) for entry in (*LOOKS, *entries)]


async def test_a_number_that_two_runs_have_given_means_neither() -> None:
    answer = attrs.evolve(
        WISHES, at=6.0, request="r-4", stop=StopReason.END_TURN, pieces=(TextPiece("Seen"),)
    )
    entries = journal(
        SEEN[0],
        Stepped(event=answer, label="done"),
        Posted(event=events.UserSent(at=7.0, id="q", text="Again")),
        attrs.evolve(OPENED, at=8.0, run="r2"),
        Stepped(event=attrs.evolve(WISHES, at=9.0, request="r2-1"), label="executing"),
    )
    store = MemoryStore()
    await store.append("s", 0, entries)
    with pytest.raises(UnknownCall) as told:
        await explain(store, "s", "2")
    assert told.value.open == ("r-2", "r2-2")
    assert (await explain(store, "s", "r2-2")).call == "r2-2"


@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("r-2", 2),
        ("r-3", 2),
        ("r-4", 2),
        ("r-5", 4),
        ("r-99", 4),
        ("r-1", None),
        ("r-x", None),
        ("q-2", None),
    ],
)
def test_a_call_was_wished_by_the_last_answer_before_its_number(call: str, step: int | None) -> None:
    assert find_wish(journal(*SEEN), call) == step


async def test_an_account_looks_at_no_step_behind_the_batch_of_its_call() -> None:
    """So what is damaged there does not matter to it."""
    steps = islice(replayed([*journal(*SEEN), b"{"], "s"), 2, None)
    found = await account(Slices(steps), "r-2", "s")
    assert found is not None
    assert [moment.what for moment in found.moments] == ["wished", "judged", "started", "ended"]
    assert next(steps).number == 4


async def test_a_stop_that_waited_is_told_at_the_time_when_it_was_sent() -> None:
    stop = events.Interrupted(at=3.5)
    output = Stepped(event=events.ToolProgressed(at=6.0, request="r-3", text="..."), label="executing")
    entries = journal(Posted(event=stop), output, Stepped(event=stop, label="executing.stopping"))
    steps = islice(replayed(entries, "s"), 2, None)
    found = await account(Slices(steps), "r-2", "s")
    assert found is not None
    assert [(one.what, one.at) for one in found.moments if one.what == "interrupted"] == [
        ("interrupted", 3.5)
    ]
