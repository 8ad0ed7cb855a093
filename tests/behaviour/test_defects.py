"""What is known to have gone wrong in other agents, each as a test that would fail on it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from turnwheel import (
    Agent,
    Approve,
    ChildSpec,
    Deny,
    DoneReason,
    HookAnswer,
    HookCall,
    Limits,
    ModelSpec,
    PermissionMode,
    Policy,
    Price,
    Rule,
    hook,
    tool,
)
from turnwheel.effects.config import Concurrency, Loops
from turnwheel.effects.errors import StoreError
from turnwheel.effects.events import (
    Decision,
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
)
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import (
    AgentStarted,
    ApprovalRequested,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    InterruptRequested,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Warned,
)
from turnwheel.effects.pieces import CallPiece, TextPiece
from turnwheel.effects.requests import CallModel, Purpose, SetTimer
from turnwheel.effects.usage import Usage
from turnwheel.engine.session.listing import listed
from turnwheel.performers.base import PerformContext
from turnwheel.testing.scripted import (
    Reply,
    calls,
    fails,
    says,
)
from turnwheel.testing.stores import FaultyStore

if TYPE_CHECKING:
    from behaviour.conftest import Stage

FOUR = calls(("look", {"at": "a"}), ("pay", {}), ("look", {"at": "b"}), ("put", {}))
UNTOLD = Usage()
"""Of a provider that does not say what it used."""


@pytest.mark.behaviour("the-last-allowed-answer-is-never-read")
async def test_the_last_allowed_answer_is_not_thrown_away(stage: Stage) -> None:
    """Elsewhere a turn was counted when its request left, so the last one was asked for and thrown away."""
    result = await stage.session(says("here it is"), limits=Limits(turns=1)).run("go")
    assert (result.text, result.spent.turns, stage.asked) == ("here it is", 1, 1)


@pytest.mark.behaviour("an-abort-replaces-a-natural-end")
@pytest.mark.parametrize("at", [TextDelta, TurnEnded])
async def test_an_abort_does_not_replace_a_natural_end(stage: Stage, at: type) -> None:
    """Elsewhere the abort was looked at after each step and replaced what the step had come to."""
    session = stage.session(says("done"))

    async def stop(_: object) -> None:
        for _ in range(5):  # by now the answer is whole, whether that has been seen or not
            await asyncio.sleep(0)
        await session.interrupt()

    result = await stage.play(session, on={at: stop})
    assert (result.reason, result.text) == (DoneReason.END_TURN, "done")
    assert stage.seen(InterruptRequested) == []


@pytest.mark.behaviour("calls-of-an-aborted-answer-stay-unanswered")
@pytest.mark.parametrize("whole", [False, True])
async def test_calls_of_an_aborted_answer_do_not_stay_unanswered(stage: Stage, *, whole: bool) -> None:
    """Also where the model came to its end just when it was cut: nothing of it runs."""
    pieces = (TextPiece("I will"), CallPiece(0, "w0", "look", '{"at": "a"}'), CallPiece(1, "w1", "put", "{}"))

    async def model(request: CallModel, scene: PerformContext) -> ModelFinished:
        if len(scene.history) > 1:
            last = (TextPiece("well"),)
            return ModelFinished(
                at=0.0, request=request.id, stop=StopReason.END_TURN, usage=UNTOLD, pieces=last
            )
        scene.emit(ModelStreamed(at=0.0, request=request.id, before=0, count=3, pieces=pieces))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not whole:
                raise
        return ModelFinished(at=0.0, request=request.id, stop=StopReason.TOOL_USE, usage=UNTOLD)

    session = stage.session(performers={CallModel: model}, policy=Policy(mode="bypass"))
    result = await stage.play(session, on={TextDelta: lambda _: session.interrupt()})
    assert (result.reason, stage.ran) == (DoneReason.INTERRUPTED, [])
    assert stage.said(session)[1:] == (
        ["assistant: I will [look, put]", "tool: Cancelled | Cancelled"] if whole else ["assistant: I will"]
    )


@pytest.mark.behaviour("a-denial-drops-the-calls-behind-it")
async def test_a_denial_does_not_drop_the_calls_behind_it(stage: Stage) -> None:
    """Elsewhere the queue was forgotten, and the provider refused the next request."""
    session = stage.session(FOUR, says("well"))
    await stage.play(session, on={ApprovalRequested: lambda one: session.approve(one.request, Deny())})
    assert stage.outcomes(session) == ["look: ok", "pay: denied", "look: skipped", "put: skipped"]
    assert [result.call for result in stage.model.seen[1][2].results] == [
        call.id for call in stage.model.seen[1][1].calls
    ]


@pytest.mark.behaviour("an-approval-forgets-the-results-before-it")
async def test_an_approval_does_not_forget_the_results_before_it(stage: Stage) -> None:
    """Elsewhere the way back from the question began with no results."""
    session = stage.session(FOUR, says("well"))
    await stage.play(session, on={ApprovalRequested: lambda one: session.approve(one.request)})
    assert stage.shown(2)[-1] == "tool: saw a | paid 1 | saw b | put"


@pytest.mark.behaviour("an-approval-is-lost-with-its-process")
async def test_an_approval_is_not_lost_with_its_process(stage: Stage) -> None:
    """Elsewhere approvals were kept in memory only."""
    session = stage.session(FOUR)
    resting = await session.run("go")
    await session.approve(resting.waiting[0].id)
    await session.close()

    session = stage.session(says("well"), rules=[Rule(verdict="allow", tool="put")])
    await stage.play(session, None)
    assert (stage.seen(ApprovalRequested), stage.ran) == ([], ["look a", "pay 1", "look b", "put"])


@pytest.mark.behaviour("the-timer-of-a-question-outlives-its-answer")
@pytest.mark.parametrize("decision", [Approve(), Deny()])
async def test_the_timer_of_a_question_does_not_outlive_its_answer(
    stage: Stage, decision: Approve | Deny
) -> None:
    """Elsewhere the timer went on, and nobody was left to hear it."""
    gone: list[str] = []

    async def alarm(request: SetTimer, _: PerformContext) -> TimerFired:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            gone.append(request.id)
            raise
        raise AssertionError

    @tool(side_effect="read_only")
    async def check() -> str:
        """Say whether the alarm is off."""
        for _ in range(3):
            await asyncio.sleep(0)
        return f"off: {len(gone)}"

    policy = Policy(answer_within=60.0, on_denial="go_on")
    session = stage.session(
        calls(("pay", {}), ("check", {})),
        says("well"),
        policy=policy,
        performers={SetTimer: alarm},
        tools=[*stage.tools, check],
    )

    async def answer(notice: ApprovalRequested) -> None:
        await asyncio.sleep(0)
        await session.approve(notice.request, decision)

    await stage.play(session, on={ApprovalRequested: answer})
    assert stage.said(session)[2].endswith("off: 1")


@hook("pre_tool_use")
async def guard(_: HookCall) -> HookAnswer:
    """Let nothing run."""
    return HookAnswer(verdict="deny", reason="closed")


@pytest.mark.behaviour("reads-run-before-anybody-was-asked")
@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ('{"at": 1}', {}),
        ('{"at": "a"}', {"rules": [Rule(verdict="deny", tool="look")]}),
        ('{"at": "a"}', {"rules": [Rule(verdict="ask", tool="look")]}),
        ('{"at": "a"}', {"hooks": [guard]}),
        ('{"at": "a"}', {}),
    ],
    ids=["arguments", "a rule denies", "a rule asks", "a hook", "nothing against it"],
)
@pytest.mark.parametrize("concurrency", list(Concurrency))
async def test_reads_do_not_run_before_anybody_was_asked(
    stage: Stage, arguments: str, settings: dict[str, Any], concurrency: Concurrency
) -> None:
    """Elsewhere what only reads ran while the answer was still coming, whatever stood against it."""
    stage.held = (1,)
    pieces = (CallPiece(0, "w0", "look", arguments), TextPiece("look"))
    reply = Reply(pieces=pieces, stop=StopReason.TOOL_USE)
    session = stage.session(reply, says("well"), policy=Policy(concurrency=concurrency), **settings)

    async def wait(notice: TextDelta) -> None:
        if notice.text == "look":
            for _ in range(20):
                await asyncio.sleep(0)
            assert stage.ran == []
            stage.release()

    await stage.play(session, on={TextDelta: wait})
    passes = arguments == '{"at": "a"}' and not settings
    assert stage.ran == (["look a"] if passes else [])


@pytest.mark.behaviour("a-read-runs-ahead-of-a-write")
async def test_a_read_does_not_run_ahead_of_a_write(stage: Stage) -> None:
    """However many calls may run at once."""
    shelf: list[str] = []

    @tool(approval="never")
    async def store(what: str) -> str:
        """Put something on the shelf."""
        for _ in range(10):
            await asyncio.sleep(0)
        shelf.append(what)
        return "stored"

    @tool(side_effect="read_only")
    async def shelves() -> str:
        """Look at the shelf."""
        return str(shelf)

    wishes = calls(("shelves", {}), ("store", {"what": "jam"}), ("shelves", {}))
    session = stage.session(wishes, says("ok"), tools=[store, shelves], policy=Policy(concurrency="parallel"))
    await session.run("go")
    assert stage.shown(2)[-1] == "tool: [] | stored | ['jam']"


@pytest.mark.behaviour("half-a-call-stays-in-the-conversation")
async def test_half_a_call_does_not_stay_in_the_conversation(stage: Stage) -> None:
    """Elsewhere it was taken out of the answer after that had entered the conversation."""
    pieces = (TextPiece("I"), CallPiece(0, "w0", "put", '{"value": "hal'))
    session = stage.session(Reply(pieces=pieces, stop=StopReason.MAX_TOKENS), says("well"))
    await stage.play(session)
    await session.run("go on")
    assert stage.shown(2) == ["user: go", "assistant: I", "user: go on"]
    assert len(stage.seen(Warned)) == 1


@pytest.mark.behaviour("an-interrupt-answers-one-call-only")
async def test_an_interrupt_does_not_answer_one_call_only(stage: Stage) -> None:
    """Elsewhere those behind it stayed without a result."""
    session = stage.session(calls(("dig", {}), ("look", {}), ("pay", {}), ("look", {})))
    await stage.play(session, on={ToolOutput: lambda _: session.interrupt()})
    assert stage.said(session)[-1] == "tool: Cancelled | Cancelled | Cancelled | Cancelled"


@pytest.mark.behaviour("an-aborted-tool-runs-on")
async def test_an_aborted_tool_does_not_run_on(stage: Stage) -> None:
    """Elsewhere it was forgotten, and finished behind everybody's back."""
    before = asyncio.all_tasks()
    session = stage.session(calls(("build", {})))
    await stage.play(session, on={ToolOutput: lambda _: session.interrupt()})
    assert stage.ran == ["build", "build was stopped"]
    assert asyncio.all_tasks() == before


@pytest.mark.behaviour("broken-arguments-become-none-at-all")
@pytest.mark.parametrize("arguments", ['{"at": "a', "{at: a}", '{"at"', "[]", "look at a", "null"])
async def test_broken_arguments_do_not_become_none_at_all(stage: Stage, arguments: str) -> None:
    """Elsewhere they were taken for an empty object, and the tool ran on its defaults."""
    reply = Reply(pieces=(CallPiece(0, "w0", "look", arguments),), stop=StopReason.TOOL_USE)
    session = stage.session(reply, says("oh"))
    await session.run("go")
    assert (stage.ran, stage.outcomes(session)) == ([], ["look: error"])
    assert "no valid JSON object" in stage.shown(2)[-1]


@pytest.mark.behaviour("a-call-without-a-name-is-taken-for-one")
async def test_a_call_without_a_name_is_not_taken_for_one(stage: Stage) -> None:
    """Providers refuse it when it is sent back."""
    pieces = (CallPiece(0, "w0", "", "{}"), CallPiece(1, "", "look", "{}"))
    session = stage.session(Reply(pieces=pieces, stop=StopReason.TOOL_USE), says("well"))
    await stage.play(session)
    assert stage.shown(2)[1:] == ["assistant: [look]", "tool: saw"]
    assert ["(no name)" in notice.text for notice in stage.seen(Warned)] == [True]


@pytest.mark.behaviour("an-approval-is-for-every-call-of-its-id")
async def test_an_approval_is_not_for_every_call_of_its_id(stage: Stage) -> None:
    """Elsewhere an answer named the provider's id, which is not always its own."""
    twice = tuple(CallPiece(n, "call_0", "pay", f'{{"amount": {n + 1}}}') for n in range(2))
    policy = Policy(on_denial="go_on")
    session = stage.session(Reply(pieces=twice, stop=StopReason.TOOL_USE), says("well"), policy=policy)
    answers: dict[str, Decision] = {'{"amount": 1}': Deny(message="no"), '{"amount": 2}': Approve()}
    await stage.play(
        session, on={ApprovalRequested: lambda one: session.approve(one.request, answers[one.arguments])}
    )
    assert (stage.ran, stage.shown(2)[-1]) == (["pay 2"], "tool: no | paid 2")


@pytest.mark.behaviour("a-failed-answer-is-kept-in-part")
async def test_a_failed_answer_is_not_kept_in_part(stage: Stage) -> None:
    """Elsewhere a message was committed for a stream that had failed."""
    session = stage.session(fails(Failure.CUT, after="half an"), says("well"))
    await session.run("go")
    await session.run("again")
    assert stage.shown(2) == ["user: go", "user: again"]


@pytest.mark.behaviour("the-last-usage-replaces-the-rest")
async def test_the_last_usage_does_not_replace_the_rest(stage: Stage) -> None:
    """Elsewhere each step overwrote what the session had used."""
    used = [Usage(input=100, output=1, cached=50), Usage(input=10, output=20, reasoning=5)]
    script = [calls(("look", {}), usage=used[0]), says("done", usage=used[1])]
    result = await stage.session(*script).run("go")
    assert result.spent.usage == Usage(input=110, output=21, cached=50, reasoning=5)


@pytest.mark.behaviour("a-long-run-on-one-prompt-cannot-be-shortened")
async def test_a_long_run_on_one_prompt_can_be_shortened(stage: Stage) -> None:
    """Elsewhere the cut was looked for between prompts, and there was but one."""
    rounds = [calls(("look", {"at": "x" * 200}), usage=UNTOLD) for _ in range(12)]
    session = stage.session(*rounds, says("done"), model=ModelSpec(name="scripted", window=600))
    result = await stage.play(session)

    assert (result.text, result.spent.turns) == ("done", 13)
    assert len(stage.seen(Compacted)) >= 2
    for before, after in [(notice.before, notice.after) for notice in stage.seen(Compacted)]:
        assert after < before
    assert all(len(shown) < 12 for shown in stage.model.seen)


@pytest.mark.behaviour("shortening-is-tried-at-every-step")
async def test_shortening_is_not_tried_at_every_step(stage: Stage) -> None:
    """Elsewhere the threshold led back there after each batch, without effect."""
    rounds = [calls(("look", {}), usage=Usage(input=590, output=5)) for _ in range(12)]
    settings: dict[str, Any] = {"model": ModelSpec(name="scripted", window=600), "loops": Loops.never()}
    session = stage.session(*rounds, says("done"), summary=" ", **settings)
    result = await stage.play(session, "go on " * 200)

    assert (result.text, result.spent.turns) == ("done", 13)
    assert len(stage.seen(CompactionFailed)) == 3
    order = stage.order(CompactionStarted, TurnEnded)
    assert ("CompactionStarted", "CompactionStarted") not in pairwise(order)


@pytest.mark.behaviour("results-and-calls-weigh-nothing")
@pytest.mark.parametrize("large", ["result", "arguments"])
async def test_results_and_calls_do_not_weigh_nothing(stage: Stage, large: str) -> None:
    """Elsewhere everything but text was four tokens, so the conversation outgrew its model unnoticed."""

    @tool(side_effect="read_only")
    async def fetch(note: str = "") -> str:
        """Get much."""
        return "" if note else "y" * 4_000

    wish = calls(("fetch", {"note": "x" * 4_000} if large == "arguments" else {}), usage=UNTOLD)
    settings: dict[str, Any] = {"tools": [fetch], "model": ModelSpec(name="scripted", window=1_000)}
    session = stage.session(wish, says("done", usage=UNTOLD), says("more"), **settings)
    await session.run("go")
    await session.run("and?")
    assert Purpose.SUMMARY in [request.purpose for request in stage.model.requests]


@pytest.mark.behaviour("a-no-that-ends-the-run-does-not-end-it")
async def test_a_no_that_ends_the_run_does_end_it(stage: Stage) -> None:
    """Elsewhere a `break` left only the innermost block, and the loop went on."""
    session = stage.session(FOUR, says("never"))
    no = Deny(interrupt=True)
    result = await stage.play(session, on={ApprovalRequested: lambda one: session.approve(one.request, no)})
    assert (result.reason, stage.asked) == (DoneReason.INTERRUPTED, 1)
    assert [notice.tool for notice in stage.seen(ToolStarted)] == ["look"]


# Of runs and conversations that are long


ROOM = ModelSpec(name="scripted", window=1_000)
LONG = "tell me " * 150
NEARLY_FULL = Usage(input=800, output=5)
AGAIN = calls(("look", {"at": "a"}))


@pytest.mark.behaviour("a-failed-summary-drops-what-is-old")
@pytest.mark.parametrize("summary", [fails(Failure.AUTH), fails(Failure.SERVER), says("")])
async def test_a_failed_summary_does_not_drop_what_is_old(stage: Stage, summary: Reply) -> None:
    """Elsewhere the old part was thrown away where nobody could summarise it."""
    stage.summaries = [summary] * 4
    session = stage.session(says("Once.", usage=NEARLY_FULL), says("done"), model=ROOM)
    await session.run(LONG)
    await session.run("and?")
    assert stage.shown(stage.asked) == [f"user: {LONG}", "assistant: Once.", "user: and?"]


@pytest.mark.behaviour("what-is-left-out-is-gone")
async def test_what_is_left_out_of_a_request_is_not_gone(stage: Stage) -> None:
    """Elsewhere the marker was written over the result."""

    @tool(side_effect="read_only")
    async def page(number: int) -> str:
        """A page."""
        return f"{number}:" + "x" * 1_000

    rounds = [calls(("page", {"number": number}), usage=UNTOLD) for number in range(20)]
    session = stage.session(*rounds, says("done"), tools=[page])
    await session.run("go")
    await session.close()
    session = await stage.session().load()
    kept = [result.content for message in session.history for result in message.results]
    assert kept == [f"{number}:" + "x" * 1_000 for number in range(20)]


@pytest.mark.behaviour("a-summary-has-another-one-in-front")
async def test_summaries_do_not_pile_up(stage: Stage) -> None:
    """Elsewhere each stood beside the ones before, or was made of them and forgot what they knew."""
    script = [says("so " * 300, usage=UNTOLD) for _ in range(15)]
    session = stage.session(*script, model=ROOM)
    for _ in range(15):
        await session.run("and?")
    assert stage.purposes.count("S") >= 3
    for number, request in enumerate(stage.model.requests, start=1):
        summaries = [line.startswith("user: [Summary") for line in stage.shown(number)]
        assert sum(summaries[1:]) == 0, request.id


@pytest.mark.behaviour("a-summary-speaks-as-the-model")
async def test_a_summary_does_not_speak_as_the_model(stage: Stage) -> None:
    """Elsewhere it was kept as an answer and turned round for each request."""
    session = stage.session(says("Once.", usage=NEARLY_FULL), says("done"), model=ROOM)
    await session.run(LONG)
    await session.run("and?")
    assert session.history[0].role == stage.model.seen[2][0].role == "user"


@pytest.mark.behaviour("a-summary-resets-the-account")
async def test_a_summary_does_not_reset_the_account(stage: Stage) -> None:
    """Elsewhere the session's tokens were those of the summary afterwards, and what it had read was 0."""
    stage.summaries = [says("They talked.", usage=Usage(input=300, output=7))]
    session = stage.session(says("Once.", usage=NEARLY_FULL), says("done"), model=ROOM)
    await session.run(LONG)
    result = await session.run("and?")
    assert result.spent.usage == Usage(input=310, output=12)
    assert session.machine is not None
    assert session.machine.memory.earlier.usage == NEARLY_FULL


@pytest.mark.behaviour("a-model-that-nobody-knows-is-never-too-full")
async def test_a_model_that_nobody_knows_does_get_too_full(stage: Stage) -> None:
    """Elsewhere a conversation with it was never shortened."""
    usage = Usage(input=190_000, output=5)
    long = Reply(pieces=(TextPiece("so " * 80_000),), usage=usage)
    session = stage.session(long, says("done"), model="nobody-knows-it")
    await session.run("tell " * 60_000)
    await session.run("and?")
    assert stage.purposes == "tSt"


@pytest.mark.behaviour("a-warning-stands-in-the-conversation")
async def test_a_warning_does_not_stand_in_the_conversation(stage: Stage) -> None:
    """Elsewhere it was a message of the system's, in a place in which some providers take none."""
    session = stage.session(*[AGAIN] * 4, says("done"))
    await session.run("go")
    assert stage.model.requests[3].instructions
    for number in range(1, stage.asked + 1):
        assert {line.partition(":")[0] for line in stage.shown(number)} <= {"user", "assistant", "tool"}
    assert [line.partition(":")[0] for line in stage.shown(4)] == ["user", *["assistant", "tool"] * 3]


@pytest.mark.behaviour("a-threshold-is-larger-than-what-is-looked-at")
@pytest.mark.parametrize("stop", [8, 12, 30, 60])
@pytest.mark.parametrize("at_once", [1, 3])
async def test_a_threshold_is_not_larger_than_what_is_looked_at(
    stage: Stage, stop: int, at_once: int
) -> None:
    """Elsewhere sixteen messages were looked at, in which eight calls have just room."""
    wish = calls(*[("look", {"at": "a"})] * at_once)
    only_stop = Loops(warn=None, withdraw=None, same=None, stop=stop)
    session = stage.session(*[wish] * (stop + 3), loops=only_stop)
    result = await session.run("go")
    assert (result.reason, stage.asked) == (DoneReason.LOOP_DETECTED, -(-stop // at_once))


# Of models that fail


@pytest.mark.behaviour("an-answer-that-was-seen-is-given-again")
@pytest.mark.parametrize("settings", [{}, {"fallback": "other"}])
async def test_an_answer_that_was_seen_is_not_given_again(stage: Stage, settings: dict[str, Any]) -> None:
    """Elsewhere a stream that broke off was begun anew, and its beginning was shown twice."""
    session = stage.session(fails(Failure.CUT, after="Once upon"), says("Once upon a time"), **settings)
    await stage.play(session)
    assert ([notice.text for notice in stage.seen(TextDelta)], stage.asked) == (["Once upon"], 1)


@pytest.mark.behaviour("tries-and-waits-have-no-end")
@pytest.mark.parametrize("failure", [one for one in Failure if one not in {"lost", "unbegun"}])
async def test_tries_and_waits_have_an_end(stage: Stage, failure: Failure) -> None:
    """Elsewhere there was no number of tries, or a provider's word was taken for a wait of any length."""
    await stage.session(*[fails(failure)] * 99).run("go")
    assert stage.asked <= 9
    assert sum(stage.clock.slept) < 620

    asked = stage.agent(fails(failure, retry_after=86_400.0), says("the next day"))
    assert (await asked.run("go")).reason is DoneReason.ERROR
    assert sum(stage.clock.slept) < 620


@pytest.mark.behaviour("all-that-were-refused-come-back-at-once")
async def test_not_all_that_were_refused_come_back_at_once(stage: Stage) -> None:
    """Elsewhere the share that was to spread them was the same for all."""
    shares = iter([0.0, 0.3, 0.9])

    async def refused(request: CallModel, scene: PerformContext) -> ModelFailed:
        if scene.history[-1].text == "go" and request.attempt == 1:
            share = next(shares)
            at, busy = scene.clock.now(), Failure.RATE_LIMIT
            return ModelFailed(at=at, request=request.id, failure=busy, message="busy", jitter=share)
        return ModelFailed(at=scene.clock.now(), request=request.id, failure=Failure.AUTH, message="no")

    agent = stage.agent(performers={CallModel: refused})
    for _ in range(3):
        await agent.run("go")
    assert stage.clock.slept == pytest.approx([2.0, 2.12, 2.36])


# Of agents that work for an agent


def sends(prompt: str) -> Reply:
    """An answer that gives *prompt* to a child."""
    return calls(("run_agent", {"agent": "scout", "prompt": prompt}))


@pytest.mark.behaviour("a-child-starts-children")
@pytest.mark.parametrize("tools", [None, ("run_agent", "look"), ("run_agent",)])
async def test_a_child_does_not_start_children(stage: Stage, tools: tuple[str, ...] | None) -> None:
    """Elsewhere the tool for that was among its own."""
    script = (sends("you"), sends("no, you"), says("nobody does it"), says("done"))
    session = stage.session(*script, children=[ChildSpec(name="scout", tools=tools)])
    await stage.play(session)
    assert "run_agent" not in stage.model.requests[1].tools
    assert len(stage.seen(AgentStarted)) == 1
    assert "Tool not found: run_agent" in stage.shown(3)[-1]


@pytest.mark.behaviour("a-child-may-do-what-its-parent-may-not")
@pytest.mark.parametrize("mode", [mode for mode in PermissionMode if mode is not PermissionMode.BYPASS])
async def test_a_child_may_not_do_what_its_parent_may_not(stage: Stage, mode: PermissionMode) -> None:
    """Elsewhere one that works in the background was allowed everything."""
    script = (sends("buy"), calls(("pay", {})), says("I may not"), says("done"))
    children = [ChildSpec(name="scout", tools=("pay",))]
    agent = stage.agent(*script, children=children, policy=Policy(mode=mode), store=None)
    await agent.run("go")
    assert stage.ran == []


@pytest.mark.behaviour("a-child-overspends-its-parent")
async def test_a_child_does_not_overspend_its_parent(stage: Stage) -> None:
    """Elsewhere what it used was added when it had ended, so nothing held it back."""
    rounds = [calls(("look", {"at": str(number)}), usage=Usage(input=50)) for number in range(9)]
    children = [ChildSpec(name="scout", limits=Limits(tokens=10_000))]
    session = stage.session(sends("look"), *rounds, children=children, limits=Limits(tokens=200))
    result = await session.run("go")
    assert (result.reason, stage.asked) == (DoneReason.TOKEN_BUDGET, 5)
    assert result.spent.usage.total == 215  # the answer that reaches a budget is paid for


@pytest.mark.behaviour("children-of-one-id-are-one")
async def test_children_of_one_id_are_not_one(stage: Stage) -> None:
    """Elsewhere a child's session was named after the provider's id of the call, which comes again."""
    script = (sends("one"), says("first"), says("so"), sends("two"), says("second"), says("and so"))
    session = stage.session(*script, children=[ChildSpec(name="scout")])
    await session.run("a")
    await session.run("b")
    assert [stage.shown(number) for number in (2, 5)] == [["user: one"], ["user: two"]]
    assert [call.wire_id for message in session.history for call in message.calls] == ["call_0"] * 2


# Of sessions


@pytest.mark.behaviour("a-title-is-a-session")
async def test_a_title_is_no_session_in_the_list(stage: Stage) -> None:
    """Elsewhere it had one of its own, under a name made of its parent's."""
    session = stage.session(says("I will"), says("A roof"), titles="model")
    await session.run("the roof leaks")
    await stage.until(lambda: session.title)
    await session.close()
    assert [one.session for one in await listed(stage.store)] == ["s"]


@pytest.mark.behaviour("the-last-run-replaces-the-rest")
async def test_the_tokens_of_a_session_are_not_those_of_its_last_run(stage: Stage) -> None:
    """Elsewhere each overwrote those before it; only the money was summed."""
    session = stage.session(*[says("so", usage=Usage(input=100 * n, output=n, cached=n)) for n in (1, 2, 3)])
    for _ in range(3):
        await session.run("go")
    assert session.spent.usage == Usage(input=600, output=6, cached=6)
    [found] = await listed(stage.store)
    assert found.about.spent == session.spent


# Of whoever stands around


@pytest.mark.behaviour("what-nobody-can-be-asked-about-runs")
async def test_what_nobody_can_be_asked_about_does_not_run(stage: Stage) -> None:
    """Elsewhere everything was approved where nobody was there to ask."""
    agent = stage.agent(calls(("pay", {}), ("look", {})), says("well"), store=None)
    assert (await agent.run("go")).text == "well"
    assert stage.ran == []
    assert stage.shown(2)[-1].startswith("tool: Denied: nobody can be asked.")


@pytest.mark.behaviour("a-store-that-fails-is-passed-over")
async def test_a_store_that_fails_is_not_passed_over(stage: Stage) -> None:
    """Elsewhere a run went on, and what it did was nowhere."""
    store = FaultyStore()
    session = stage.session(calls(("look", {})), calls(("put", {})), says("done"), store=store)

    async def fill_the_disk(_: ToolStarted) -> None:
        store.works = False

    with pytest.raises(StoreError, match="no space left"):
        await stage.play(session, on={ToolStarted: fill_the_disk})
    assert (stage.ran, stage.asked) == (["look"], 1)
    store.works = True
    assert len(await store.load("s")) > 0


@pytest.mark.behaviour("a-conversation-is-mended-when-it-is-sent")
@pytest.mark.parametrize("place", [TextDelta, ToolOutput, ApprovalRequested])
async def test_a_conversation_is_not_mended_when_it_is_sent(stage: Stage, place: type) -> None:
    """Elsewhere what was kept had calls without results, and each request made them up anew."""
    wishes = calls(("look", {}), ("dig", {}), ("pay", {}), ("look", {}), text="so")
    session = stage.session(wishes, says("well"))

    async def stop(_: object) -> None:
        if place is ApprovalRequested:
            await session.interrupt()
        await session.interrupt()

    async def go_on(_: object) -> None:
        stage.release()

    await stage.play(session, on={ToolOutput: go_on, place: stop}, wait=True)
    kept = stage.said(session)
    await session.close()
    session = stage.session(says("well"))
    await session.run("again")
    assert stage.shown(1) == [*kept, "user: again"]


def chunks(*deltas: dict[str, Any], usage: dict[str, Any] | None = None) -> bytes:
    """An answer as OpenAI streams it."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices[-1]["finish_reason"] = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
    events: list[dict[str, Any]] = [{"choices": [choice]} for choice in choices]
    events.append({"choices": [], "usage": usage or {"prompt_tokens": 10, "completion_tokens": 5}})
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events) + b"data: [DONE]\n\n"


def provider(*answers: bytes) -> httpx.AsyncClient:
    """A client of a provider that gives *answers*, one after the other."""
    left = iter(answers)
    return httpx.AsyncClient(
        transport=httpx.MockTransport(
            lambda _: httpx.Response(
                200,
                headers={"content-type": "text/event-stream"},
                stream=httpx.ByteStream(next(left)),
            )
        )
    )


@pytest.mark.behaviour("arguments-that-come-in-bits-are-lost")
async def test_arguments_that_come_in_bits_are_not_lost(stage: Stage) -> None:
    """Elsewhere only what a call began with was read."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    bits = [{"index": 0, "function": {"arguments": bit}} for bit in ('{"at"', ': "a', ' b"}')]
    deltas = [{"tool_calls": [one]} for one in (call, *bits)]
    async with provider(chunks(*deltas), chunks({"content": "done"})) as client:
        agent = Agent(model="openai:m", client=client, api_key="k", tools=stage.tools, clock=stage.clock)
        assert (await agent.run("go")).text == "done"
    assert stage.ran == ["look a b"]


@pytest.mark.behaviour("cached-tokens-are-taken-for-others")
async def test_cached_tokens_are_not_taken_for_others(stage: Stage) -> None:
    """Elsewhere those that were read from a cache counted as answered, those written to it twice."""
    details = {"prompt_tokens_details": {"cached_tokens": 80}}
    told = {"prompt_tokens": 100, "completion_tokens": 5, **details}
    price = Price(input=1, output=100, cached="0.1")
    async with provider(chunks({"content": "done"}, usage=told)) as client:
        model = ModelSpec(name="openai:m", price=price)
        result = await Agent(model=model, client=client, api_key="k", clock=stage.clock).run("go")
    assert result.spent.usage == Usage(input=100, output=5, cached=80)
    assert str(result.spent.cost) == "0.000528"
