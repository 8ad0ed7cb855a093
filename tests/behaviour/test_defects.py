"""What is known to have gone wrong in other agents, each as a test that would fail on it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import (
    Approve,
    Concurrency,
    Deny,
    DoneReason,
    HookAnswer,
    HookCall,
    Limits,
    ModelSpec,
    Policy,
    Rule,
    hook,
    tool,
)
from turnwheel.effects.events import Decision, Failure, ModelFinished, ModelStreamed, TimerFired
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import (
    ApprovalRequested,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    InterruptRequested,
    TextDelta,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Warned,
)
from turnwheel.effects.performers.base import Scene
from turnwheel.effects.pieces import CallPiece, TextPiece
from turnwheel.effects.requests import CallModel, Purpose, SetTimer
from turnwheel.effects.usage import Usage
from turnwheel.testing.scripted import Reply, calls, fails, says

if TYPE_CHECKING:
    from tests.behaviour.conftest import Stage

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

    async def model(request: CallModel, scene: Scene) -> ModelFinished:
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

    async def alarm(request: SetTimer, _: Scene) -> TimerFired:
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
    await stage.play(session, on={ToolProgress: lambda _: session.interrupt()})
    assert stage.said(session)[-1] == "tool: Cancelled | Cancelled | Cancelled | Cancelled"


@pytest.mark.behaviour("an-aborted-tool-runs-on")
async def test_an_aborted_tool_does_not_run_on(stage: Stage) -> None:
    """Elsewhere it was forgotten, and finished behind everybody's back."""
    before = asyncio.all_tasks()
    session = stage.session(calls(("build", {})))
    await stage.play(session, on={ToolProgress: lambda _: session.interrupt()})
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
    session = stage.session(*rounds, says("done"), model=ModelSpec(name="scripted", window=600), summary=" ")
    result = await stage.play(session)

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
