"""What watchers see, in which order, and that none of them can hold up the work."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from behaviour.conftest import Stage

from turnwheel import Deny, Rule, Singleton
from turnwheel.effects.history import ReasoningPiece
from turnwheel.effects.messages import Reasoning, Role
from turnwheel.effects.notices import (
    AnswerKept,
    ApprovalRequested,
    CallJudged,
    CallSettled,
    NoticesMissed,
    RunEnded,
    TextDelta,
    ToolStarted,
    TurnEnded,
)
from turnwheel.engine.session.completed_texts import Delivery
from turnwheel.projections import AgentEvents, SdkMessages, SseEvents, TurnEvents
from turnwheel.testing.scripted import Reply, calls, says, stalls


@pytest.mark.behaviour("notices-tell-the-story-in-order")
async def test_a_run_is_told_from_its_start_over_each_round_to_its_end(stage: Stage) -> None:
    await stage.play(stage.session(calls(("look", {}), text="so"), says("done")))
    assert stage.order() == [
        *("RunStarted", "InputTaken"),
        *("ModelCalled", "TextDelta", "CallDelta", "TurnEnded"),
        *("CallJudged", "ToolStarted", "CallSettled"),
        *("ModelCalled", "TextDelta", "TurnEnded", "RunEnded"),
    ]


@pytest.mark.behaviour("notices-tell-the-story-in-order")
async def test_each_call_is_told_to_its_end_once_whether_it_ran_or_not(stage: Stage) -> None:
    wishes = calls(("look", {}), ("nowhere", {}), ("put", {}), ("pay", {}), ("look", {}), wrong=True)
    session = stage.session(wishes, says("well"), rules=[Rule(verdict="deny", tool="put")])
    await stage.play(session, on={ApprovalRequested: lambda one: session.approve(one.request, Deny())})

    wished = [call.id for call in stage.seen(TurnEnded)[0].calls]
    ended = stage.seen(CallSettled)
    assert [notice.call for notice in ended] == wished
    assert [(one.call, one.content, one.outcome) for one in ended] == [
        (result.call, result.content, result.outcome) for result in session.history[2].results
    ]
    assert [notice.call for notice in stage.seen(ToolStarted)] == wished[:1]
    judged = [(notice.call, notice.verdict) for notice in stage.seen(CallJudged)]
    assert judged == [(wished[0], "allow"), (wished[2], "deny"), (wished[3], "ask"), (wished[3], "deny")]


@pytest.mark.behaviour("the-end-of-an-answer-has-all-of-it")
async def test_each_answer_is_told_with_the_message_that_the_history_keeps(stage: Stage) -> None:
    thinks = Reply(pieces=(ReasoningPiece("no words"),))
    session = stage.session(calls(("look", {}), text="so"), thinks, stalls("As far as"))
    await stage.play(session)
    await stage.play(session, on={TextDelta: lambda _: session.interrupt()})

    told = [notice.message for notice in stage.notices if isinstance(notice, TurnEnded | AnswerKept)]
    kept = [message for message in session.history if message.role is Role.ASSISTANT]
    assert [message for message in told if message in kept] == kept
    (thought,) = [message for message in told if message not in kept]
    assert (len(kept), thought.parts[0]) == (2, Reasoning(text="no words"))


@pytest.mark.behaviour("watchers-never-hold-up-a-run")
async def test_a_watcher_that_is_slow_misses_some_and_always_sees_the_end(stage: Stage) -> None:
    session = stage.session(says(" ".join(str(number) for number in range(200))))
    slow = session.subscribe()
    async with session:
        await stage.play(session)

    seen = [notice async for notice in slow]
    gaps = [notice for notice in seen if isinstance(notice, NoticesMissed)]
    assert (len(seen) - len(gaps), slow.dropped) == (64, len(stage.notices) - 64)
    assert sum(gap.count for gap in gaps) == slow.dropped
    assert isinstance(seen[-1], RunEnded)
    places = [stage.notices.index(notice) for notice in seen if notice not in gaps]
    assert places == sorted(places)


@pytest.mark.behaviour("what-is-told-of-an-answer-is-whole")
@pytest.mark.parametrize("vocabulary", [SdkMessages, SseEvents, TurnEvents, AgentEvents])
async def test_no_vocabulary_tells_a_part_of_an_answer_as_the_answer(
    stage: Stage, vocabulary: type[SdkMessages | SseEvents | TurnEvents | AgentEvents]
) -> None:
    text = " ".join(str(number) for number in range(200))
    session = stage.session(says(text))
    slow = session.subscribe()
    async with session:
        await stage.play(session)

    told, shown = vocabulary.of("s"), ""
    async for event in (event async for notice in slow for event in told.take(notice)):
        shown = shown[: len(shown) - int(str(event.get("characters", 0)))]
        shown += str(event.get("content", event.get("delta", "")))
        assert (
            "1 2 3" not in str(event)
            or event["type"] in {"text_delta", "message_delta"}
            or text in str(event)
        )
    assert shown in {text, ""}


@pytest.mark.behaviour("what-is-told-of-an-answer-is-whole")
async def test_an_answer_names_the_posts_that_it_is_to(stage: Stage) -> None:
    session = stage.session(*[says(str(number)) for number in range(3)])
    async with Singleton(session) as one:
        watched = one.subscribe()
        posts = [await one.post(f"question {number}", sender=f"sender {number}") for number in range(3)]
        await one.idle()
    told = AgentEvents.of("s")
    answers = [event async for notice in watched for event in told.take(notice)]
    assert [event["ids"] for event in answers] == [[post] for post in posts]


@pytest.mark.behaviour("watchers-never-hold-up-a-run")
async def test_how_far_a_watcher_may_lag_behind_is_a_setting(stage: Stage) -> None:
    session = stage.session(says("one two three four five six"), watch=Delivery(buffer=3))
    slow = session.subscribe()
    async with session:
        await stage.play(session)
    seen = [notice async for notice in slow if not isinstance(notice, NoticesMissed)]
    assert (len(seen), type(seen[-1])) == (3, RunEnded)


@pytest.mark.behaviour("watchers-never-hold-up-a-run")
async def test_a_watcher_sees_what_comes_after_it_began_until_the_session_is_closed(stage: Stage) -> None:
    session = stage.session(says("one"), says("two"))
    await session.run("a")
    watched, left = session.subscribe(), session.subscribe()
    await left.aclose()
    await session.run("b")
    await session.close()

    assert [notice.text async for notice in watched if isinstance(notice, TextDelta)] == ["two"]
    assert [notice async for notice in left] == []
    assert [notice async for notice in session.subscribe()] == []


@pytest.mark.behaviour("a-watcher-may-come-late")
async def test_a_watcher_that_comes_back_goes_on_behind_what_it_saw(stage: Stage) -> None:
    session = stage.session(calls(("look", {})), says("one"), says("two"))
    await session.run("a")
    async with aclosing(session.watch()) as watching:
        seen = [await anext(watching) for _ in range(4)]
    await session.run("b")
    await session.close()

    rest = [watched async for watched in session.watch(since=seen[-1].id)]
    whole = [watched async for watched in session.watch()]
    assert seen + rest == whole
    assert [type(one.notice) for one in whole].count(RunEnded) == 2
    assert len({one.id for one in whole}) == len(whole)


TURNS = (
    "agent_start message_applied message_start message_delta turn_end tool_execution_start "
    "tool_execution_end message_start message_delta agent_end"
)


@pytest.mark.behaviour("one-run-in-four-vocabularies")
@pytest.mark.parametrize(
    ("vocabulary", "types"),
    [
        (SdkMessages, "system/init assistant tool_progress tool_progress assistant result/success"),
        (SseEvents, "init text_delta tool_call_delta tool_call_start tool_call_result text_delta done"),
        (TurnEvents, TURNS),
        (AgentEvents, "response"),
    ],
)
async def test_others_read_the_same_run_in_their_own_words(
    stage: Stage, vocabulary: type[SdkMessages | SseEvents | TurnEvents | AgentEvents], types: str
) -> None:
    await stage.play(stage.session(calls(("look", {"at": "a"}), text="so"), says("done")))
    told = vocabulary.of("s")
    events = [event for notice in stage.notices for event in told.take(notice)]
    names = [f"{event['type']}/{event.get('subtype', '')}".removesuffix("/") for event in events]
    assert " ".join(names) == types
