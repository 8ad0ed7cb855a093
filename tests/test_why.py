"""Why a call ran, or did not: every way it can go is told from its journal, with its grounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

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
from turnwheel.effects.errors import JournalError, UnknownCall, UnknownSession
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import ToolStarted
from turnwheel.effects.requests import CallModel
from turnwheel.engine.session.archive import explain
from turnwheel.performers.hooks import HostHook
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
)

Reaction = Callable[[Session, Any], Awaitable[object]]

PAY = calls(("pay", {"amount": 2}))
LOOK = calls(("look", {}))
BOTH = calls(("pay", {"amount": 2}), ("look", {}))
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
        """The session ``s`` in one more process."""
        agent = Agent(
            model="scripted",
            tools=[look, pay, dig, build],
            store=self.store,
            clock=self.clock,
            performers={CallModel: ScriptedModel(*replies, *ANSWERS)},
            **settings,
        )
        return agent.session("s")

    async def play(self, session: Session, prompt: str | None = "go", **on: Reaction) -> None:
        """Run *session*, and do what *on* says at each notice of the kind of that name."""
        async with aclosing(session.stream(prompt)) as notices:
            async for notice in notices:
                if (react := on.get(type(notice).__name__)) is not None:
                    await react(session, notice)

    async def leave(self, session: Session) -> None:
        """Run *session* until a tool starts, and be gone."""
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


@pytest.fixture
def case() -> Case:
    """A new case."""
    return Case()


def guard(answer: HookAnswer | Exception, at: Hook = Hook.PRE_TOOL_USE) -> HostHook[Any]:
    """A hook that says *answer*, or fails with it."""

    @hook(at, name="guard")
    def made(_: HookCall) -> HookAnswer:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return made


def answers(decision: Any, by: str = "") -> Reaction:
    """Answer a question with *decision*."""
    return lambda session, notice: session.approve(notice.request, decision, by=by)


# What is judged without anybody being asked


@pytest.mark.parametrize(
    ("script", "settings", "judged", "end"),
    [
        (LOOK, {}, "allow, by tool: it only reads", "ok: seen"),
        (PAY, {"policy": Policy(mode="bypass")}, "allow, by mode: bypass", "ok: paid 2"),
        (PAY, {"rules": [Rule(verdict="allow", tool="p*")]}, "allow, by rule: allow p*", "ok: paid 2"),
        (
            PAY,
            {"rules": [Rule(verdict="deny", tool="pay")]},
            "deny, by rule: deny pay",
            "denied: Denied by a rule",
        ),
        (PAY, {"policy": Policy(mode="plan")}, "deny, by mode: plan", "denied: Denied: the permission mode"),
        (
            PAY,
            {"policy": Policy(mode="dont_ask")},
            "deny, by mode: dont_ask",
            "denied: Denied: the permission",
        ),
    ],
)
async def test_a_judgement_names_its_ground(
    case: Case, script: Reply, settings: dict[str, Any], judged: str, end: str
) -> None:
    """The tool itself, the mode, or the very rule; it starts only where that allows it."""
    await case.play(case.session(script, **settings))
    wished, judgement, *started, ended = await case.told()
    assert wished.startswith("wished: ")
    assert judgement == f"judged: {judged}"
    assert [each.partition(":")[0] for each in started] == ["started"] * judged.startswith("allow")
    assert ended.startswith(f"ended: {end}")


@pytest.mark.parametrize(
    ("answer", "said", "judged", "started"),
    [
        (
            HookAnswer(verdict="allow", reason="fine"),
            "guard: allow, because fine",
            "allow, by hook: guard",
            '"amount": 2',
        ),
        (HookAnswer(verdict="deny", reason="no"), "guard: deny, because no", "deny, by hook: guard: no", ""),
        (
            HookAnswer(verdict="allow", arguments='{"amount": 7}'),
            'guard: allow, with {"amount": 7}',
            "allow, by hook: guard",
            '"amount": 7',
        ),
        (HookAnswer(), "guard: nothing to say", "ask, by tool", ""),
        (ValueError("broke"), "guard has no say: it raised ValueError: broke", "ask, by tool", ""),
        (HookAnswer(verdict="ask", reason="hm"), "guard: ask, because hm", "ask, by hook: guard: hm", ""),
    ],
)
async def test_what_a_hook_said_is_told(
    case: Case, answer: HookAnswer | Exception, said: str, judged: str, started: str
) -> None:
    """In its own words, and what came of them; also that it was asked and had no say."""
    await case.play(case.session(PAY, hooks=[guard(answer)]))
    _, asked, heard, judgement, *rest = await case.told()
    assert asked == "hooks: asked at pre_tool_use: guard"
    assert heard == f"hook: {said}"
    assert judgement.startswith(f"judged: {judged}")
    assert [each for each in rest if each.startswith("started")] == [f"started: pay {{{started}}}"] * bool(
        started
    )


async def test_what_a_hook_said_of_the_result_comes_last(case: Case) -> None:
    """It was asked when the call was over."""
    await case.play(case.session(LOOK, hooks=[guard(HookAnswer(context="mind"), Hook.POST_TOOL_USE)]))
    assert (await case.told())[-3:] == [
        "ended: ok: seen",
        "hooks: asked at post_tool_use: guard",
        "hook: guard: adds context",
    ]


# What a person decided


@pytest.mark.parametrize(
    ("decision", "answered", "judged", "end"),
    [
        (Approve(), "yes, by ann", "allow, by person", ['started: pay {"amount": 2}', "ended: ok: paid 2"]),
        (
            ApproveAlways(),
            "yes, always, by ann",
            "allow, by person",
            ['started: pay {"amount": 2}', "ended: ok: paid 2"],
        ),
        (
            ApproveAlways(where=(("amount", "2"),)),
            "yes, always where (('amount', '2'),), by ann",
            "allow, by person",
            ['started: pay {"amount": 2}', "ended: ok: paid 2"],
        ),
        (
            Approve(arguments='{"amount": 1}'),
            'yes, with {"amount": 1}, by ann',
            "allow, by person: with other arguments",
            ['started: pay {"amount": 1}', "ended: ok: paid 1"],
        ),
        (
            Deny(message="too dear"),
            "no: too dear, by ann",
            "deny, by person: too dear",
            ["ended: denied: too dear"],
        ),
        (
            Deny(interrupt=True),
            "no, and stop, by ann",
            "deny, by person",
            ["ended: denied: Denied by the user. Do not try this again without asking."],
        ),
    ],
)
async def test_a_question_and_its_answer_are_told(
    case: Case, decision: Any, answered: str, judged: str, end: list[str]
) -> None:
    """Why somebody was asked, who answered what, and what came of it."""
    await case.play(case.session(PAY), ApprovalRequested=answers(decision, "ann"))
    _, first, asked, answer, judgement, *rest = await case.told()
    assert first == "judged: ask, by tool: it may change anything"
    assert asked.startswith("asked: a person, because of tool: it may change anything; the question is ")
    assert answer == f"answered: {answered}"
    assert judgement == f"judged: {judged}"
    assert rest == end


async def test_a_grant_is_the_ground_of_what_comes_after_it(case: Case) -> None:
    """Nobody is asked again, and the account says why."""
    session = case.session(PAY, *ANSWERS[:1], PAY)
    await case.play(session, ApprovalRequested=answers(ApproveAlways()))
    await case.play(session, "again")
    assert "judged: allow, by grant: allow pay" in await case.told(1)


async def test_who_has_no_answer_in_time_has_one(case: Case) -> None:
    """Nobody's silence is a yes."""
    await case.session(PAY, policy=Policy(answer_within=5.0)).run("go", wait=True)
    assert (await case.told())[-3:] == [
        "withdrawn: no answer came in time",
        "judged: deny, by person: nobody answered in time",
        "ended: denied: Denied: nobody answered within 5 s. Do not try this again without asking.",
    ]


# What comes over a call


async def test_a_call_that_was_skipped_says_after_what(case: Case) -> None:
    """It was never judged."""
    await case.play(case.session(BOTH), ApprovalRequested=answers(Deny()))
    assert await case.told(1) == [
        "wished: look {}",
        "ended: skipped: Skipped: a person denied another call of this message.",
    ]


async def test_a_call_that_was_steered_away_says_so(case: Case) -> None:
    """The question about it is taken back."""
    await case.play(case.session(BOTH), ApprovalRequested=lambda session, _: session.steer("no, wait"))
    end = "ended: skipped: Skipped: the user said something new, which comes next."
    assert (await case.told())[-2:] == ["withdrawn: the question was taken back", end]
    assert await case.told(1) == ["wished: look {}", end]


@pytest.mark.parametrize(
    ("name", "end"),
    [("dig", "cancelled: Cancelled"), ("build", "cancelled: Cancelled"), ("pay", "cancelled: Cancelled")],
)
async def test_a_call_that_was_given_up_is_told_from_one_whose_run_was_stopped(
    case: Case, name: str, end: str
) -> None:
    """Both end as cancelled; who wanted what is told."""
    wishes = calls((name, {"amount": 1} if name == "pay" else {}), ("look", {}))

    async def give_up(session: Session, notice: Any) -> None:
        if notice.tool == name:
            await session.cancel(notice.call)

    await case.play(case.session(wishes), ToolStarted=give_up, ApprovalRequested=give_up)
    assert "given up: a person gave up this call" in await case.told()
    assert (await case.told())[-1] == f"ended: {end}"
    assert (await case.told(1))[-1] == "ended: ok: seen"

    case = Case()
    await case.play(
        case.session(wishes),
        ToolStarted=lambda session, _: session.interrupt(),
        ApprovalRequested=lambda session, _: session.interrupt(),
    )
    for number in (0, 1):
        told = await case.told(number)
        assert "interrupted: the run was asked to stop" in told
        assert told[-1] == f"ended: {end}"


async def test_a_call_that_nobody_waited_for_may_have_run(case: Case) -> None:
    """After the second interrupt."""

    async def twice(session: Session, _: Any) -> None:
        await session.interrupt()
        await session.interrupt()

    await case.play(case.session(calls(("build", {}))), ToolStarted=twice)
    *_, first, second, end = await case.told()
    assert (first, second) == ("interrupted: the run was asked to stop",) * 2
    assert end == "ended: unknown: Interrupted while this tool was running: it may have run."


@pytest.mark.parametrize(
    ("script", "settings", "end"),
    [
        (BOTH, {"limits": Limits(tokens=5)}, "cancelled: Cancelled: the budget of this run is used up."),
        (
            Reply(pieces=BOTH.pieces, stop=StopReason.MAX_TOKENS),
            {},
            "skipped: Not run: the answer ended before its calls could be trusted.",
        ),
        (calls(("fly", {})), {}, "error: Tool not found: fly. Available: look, pay, dig, build."),
        (
            calls(("pay", {})),
            {},
            "error: Invalid arguments for pay: amount is missing. The tool was not run.",
        ),
    ],
)
async def test_a_call_that_could_not_run_says_why(
    case: Case, script: Reply, settings: dict[str, Any], end: str
) -> None:
    """Nobody judged it."""
    await case.play(case.session(script, **settings))
    wished, ended = await case.told()
    assert wished.startswith("wished: ")
    assert ended == f"ended: {end}"


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("build", "unknown: The process stopped while this tool was running: it may have run."),
        ("dig", "cancelled: Cancelled"),
    ],
)
async def test_a_call_whose_process_was_lost_says_so(case: Case, name: str, end: str) -> None:
    """And what whoever went on made of it."""
    await case.leave(case.session(calls((name, {}), ("look", {}))))
    session = case.session()
    await session.interrupt()
    await case.play(session, None)
    told = await case.told()
    over = "taken over: another process went on with the run, or the same one later, while the call was open"
    assert told[:4] == [f"wished: {name} {{}}", told[1], f"started: {name} {{}}", over]
    assert told[-1].startswith(f"ended: {end}")
    assert over in await case.told(1)


async def test_a_question_that_was_answered_elsewhere_says_by_whom(case: Case) -> None:
    """It was answered when they said it, and what follows is of when somebody took that up."""
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
    """Its own calls have their own accounts there."""
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
    """Where it is not, those it may be are named."""
    session = case.session(BOTH, *ANSWERS[:1], LOOK)
    await case.play(session, ApprovalRequested=answers(Approve()))
    first, second = [wish.id for wish in session.history[1].calls]
    number = second.partition("-")[2]
    for name in (second, number, f"-{number}"):
        assert (await explain(case.store, "s", name)).call == second
    await case.play(session, "again")
    third = session.history[-3].calls[0].id
    assert first.partition("-")[2] == third.partition("-")[2]
    with pytest.raises(UnknownCall) as told:
        await explain(case.store, "s", third.partition("-")[2])
    assert told.value.open == (first, third)
    assert (await explain(case.store, "s", third)).call == third


@pytest.mark.parametrize("name", ["", "-", "99", "nothing", "look"])
async def test_a_call_that_is_not_there_is_refused_with_those_that_are(case: Case, name: str) -> None:
    """Whatever it is called."""
    session = case.session(LOOK)
    await case.play(session)
    with pytest.raises(UnknownCall) as told:
        await explain(case.store, "s", name)
    assert told.value.open == (session.history[1].calls[0].id,)


async def test_a_session_that_is_not_there_is_refused() -> None:
    """By its name."""
    with pytest.raises(UnknownSession, match="no session 'nobody'"):
        await explain(MemoryStore(), "nobody", "1")


async def test_the_account_grows_with_the_journal(case: Case) -> None:
    """At every point of it, what is told is the beginning of what is told in the end."""
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
    """Nothing is told from a guess."""
    await case.play(case.session(LOOK))
    journal = list(await case.store.load("s"))
    cut = MemoryStore()
    await cut.append("s", 0, [*journal[:-1], journal[-1][:-5]])
    with pytest.raises(JournalError, match=f"entry {len(journal) - 1} of session 's' cannot be read"):
        await explain(cut, "s", "2")
