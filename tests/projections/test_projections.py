"""Notices in the words of others: six vocabularies, the order of their events, and the page about them."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import get_args

import attrs
import pytest
from provers.simulation.player import Play, play

from turnwheel import Agent, ChildSpec, tool
from turnwheel.effects import is_notice
from turnwheel.effects.errors import ArgumentError
from turnwheel.effects.events import Approve, ApproveAlways, Deny, Failure
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import (
    Binary,
    Finish,
    Message,
    Outcome,
    Part,
    Reasoning,
    Role,
    StopReason,
    Text,
    ToolCall,
    user,
)
from turnwheel.effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    AnswerFailed,
    AnswerKept,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    CacheMissed,
    CallDelta,
    CallJudged,
    CallSettled,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    DoneReason,
    FallbackUsed,
    HookAsked,
    HookEnded,
    Ignored,
    InputBlocked,
    InputDropped,
    InputReceived,
    InputTaken,
    InterruptRequested,
    LeftBecause,
    LoopDetected,
    LoopStage,
    ModelCalled,
    Notice,
    NoticesMissed,
    OutputDelta,
    ProviderCalled,
    ReasoningDelta,
    RequestDelayed,
    ResultsCleared,
    RetryScheduled,
    RunEnded,
    RunLeft,
    RunResumed,
    RunStarted,
    SettingChanged,
    SettingRefused,
    SourceCited,
    SummaryEnded,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Warned,
)
from turnwheel.effects.permissions import Basis, PermissionMode, Verdict
from turnwheel.effects.records import AppendMessage, SetModel
from turnwheel.effects.requests import CallModel, Purpose
from turnwheel.effects.usage import CacheMissReason, Spent, Usage
from turnwheel.engine.session.feed import Feed
from turnwheel.projections import (
    AgentEvents,
    AgUiEvents,
    JsonEvent,
    Projection,
    SdkMessages,
    SseEvents,
    TurnEvents,
    UiMessageChunks,
    to_sse,
)
from turnwheel.projections.json_events import BUDGET_USD, ERROR_ENDS, MODE_WORDS, REASON_WORDS, subtype
from turnwheel.projections.run_view import RunView
from turnwheel.testing.scripted import ScriptedModel, calls, says

RECORDED = Path(__file__).parent / "recorded.txt"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"

MAKERS: dict[str, Callable[[], Projection]] = {
    "sdk": lambda: SdkMessages.of("s", include_partial=True),
    "sse": lambda: SseEvents.of("s"),
    "turns": lambda: TurnEvents.of("s"),
    "agent_events": lambda: AgentEvents.of("s"),
    "ag-ui": lambda: AgUiEvents.of("s"),
    "ui-messages": lambda: UiMessageChunks.of("s"),
}

each_vocabulary = pytest.mark.parametrize("vocabulary", MAKERS)


def told(projection: Projection, notices: Iterable[Notice]) -> list[JsonEvent]:
    return [event for notice in notices for event in projection.take(notice)]


def names(events: Iterable[JsonEvent]) -> list[object]:
    return [event["type"] for event in events]


# Runs by hand

WISH = ToolCall(id="r-2", wire_id="call_0", name="put", arguments='{"at":"a","api_key":"hush"}')


def turn(number: int, stop: StopReason, *said: Part, usage: Usage = Usage()) -> TurnEnded:  # noqa: B008  # a frozen value
    """The end of turn *number*, whose message is what was *said*."""
    message = Message(role=Role.ASSISTANT, parts=(*said, Finish(reason=stop)), model="m")
    return TurnEnded(
        request=f"r-{number}",
        turn=number,
        message=message,
        stop=stop,
        usage=usage,
        calls=message.calls,
        at=0.0,
    )


SPENT = Spent(turns=2, usage=Usage(input=30, output=12, cached=8, cache_write=2), cost=Decimal("0.25"))
RUN: list[Notice] = [
    RunStarted(run="r", model="m", tools=("put",), at=100.0, mode=PermissionMode.ACCEPT_EDITS, cwd="/here"),
    InputTaken(ids=("p",), messages=(user("put it there"),), at=0.0),
    ModelCalled(request="r-1", model="m", attempt=1, at=0.0),
    ReasoningDelta("hm", at=0.0),
    TextDelta("So ", at=0.0),
    TextDelta("be it.", at=0.0),
    turn(
        1,
        StopReason.TOOL_USE,
        Reasoning(text="hm"),
        Text(text="So be it."),
        WISH,
        usage=Usage(input=10, output=6, cached=8),
    ),
    CallJudged(call="r-2", tool="put", verdict=Verdict.ASK, ground=Basis.TOOL, at=0.0),
    ApprovalRequested(request="r-3", call="r-2", tool="put", arguments=WISH.arguments, why="it puts", at=0.0),
    ApprovalResolved(request="r-3", decision=Approve(), at=0.0),
    ToolStarted(call="r-2", tool="put", arguments=WISH.arguments, at=0.0),
    ToolOutput(call="r-2", text="half way", at=0.0),
    CallSettled(call="r-2", tool="put", outcome=Outcome.OK, content="there", seconds=1.5, at=0.0),
    ModelCalled(request="r-4", model="m", attempt=1, at=0.0),
    TextDelta("Done.", at=0.0),
    turn(4, StopReason.END_TURN, Text(text="Done."), usage=Usage(input=20, output=6)),
    RunEnded(run="r", reason=DoneReason.END_TURN, spent=SPENT, at=107.25),
]
START = RUN[:3]


def over(reason: DoneReason, detail: str = "") -> RunEnded:
    return RunEnded(run="r", reason=reason, spent=Spent(), at=101.0, detail=detail)


DROPPED: list[Notice] = [
    *START,
    ReasoningDelta("let me see", at=0.0),
    TextDelta("wrong", at=0.0),
    AnswerDropped(request="r-1", at=0.0),
    RetryScheduled(request="r-1", attempt=2, due=105.0, failure=Failure.LOST, message="gone", at=0.0),
    ModelCalled(request="r-2", model="m", attempt=2, at=0.0),
    TextDelta("right", at=0.0),
    turn(2, StopReason.END_TURN, Text(text="right")),
    over(DoneReason.END_TURN),
]


def texts_of(message: JsonEvent) -> str:
    return "".join([str(block["text"]) for block in blocks_of(message) if block["type"] == "text"])


def blocks_of(message: JsonEvent) -> list[JsonEvent]:
    inner = message["message"]
    assert isinstance(inner, dict)
    return list(inner["content"])


def messages_in(events: list[JsonEvent]) -> list[JsonEvent]:
    """The messages that the last of *events*, the end of a run, tells."""
    messages = events[-1]["messages"]
    assert isinstance(messages, list)
    return messages


AS_FAR = Message(
    role=Role.ASSISTANT, parts=(Text(text="As far"), Finish(reason=StopReason.INTERRUPTED)), model="m"
)
CUT: list[Notice] = [
    *START,
    ReasoningDelta("hm", at=0.0),
    TextDelta("As far", at=0.0),
    InterruptRequested(at=0.0),
    AnswerKept(request="r-1", message=AS_FAR, at=0.0),
]


def wished(number: int) -> ToolCall:
    return ToolCall(id=f"c-{number}", wire_id="", name="put", arguments=f'{{"at":{number}}}')


def ended(number: int, outcome: Outcome = Outcome.OK) -> CallSettled:
    return CallSettled(call=f"c-{number}", tool="put", outcome=outcome, content=f"result {number}", at=0.0)


def batch(*notices: Notice, calls: int = 1) -> list[Notice]:
    """A run whose one answer has so many *calls*, about which *notices* tell."""
    wishes = tuple(wished(number) for number in range(calls))
    return [*START, turn(1, StopReason.TOOL_USE, *wishes), *notices, over(DoneReason.MAX_TURNS)]


COMPACTING = CompactionStarted(size=900, reason="threshold", at=0.0)


def in_child(notices: Iterable[Notice]) -> list[Notice]:
    started = AgentStarted(call="c-0", agent="scout", prompt="look", at=0.0)
    return batch(started, *[AgentNoticed(call="c-0", notice=notice, at=0.0) for notice in notices], ended(0))


SECRETS = (
    '{"path":"a","size":1.5}',
    '{"API_KEY":"x","authorization":["y"]}',
    '{"env":[{"db_password":"x","user":"u"}]}',
    *('{"secret', '["token"]', '{"huge":1e999}', ""),
)
FELL = FallbackUsed(model="n", instead_of="m", failure=Failure.OVERLOADED, message="busy", at=0.0)
HELD = RequestDelayed(request="r-1", due=9.0, reason="m said 429", at=0.0)
FILE = Binary(media_type="image/png", data=b"123", name="a.png")
LOOPS = [
    LoopDetected(stage=stage, tools=("put",), count=3, text="put was called alike 3 times", at=0.0)
    for stage in LoopStage
]
SAMPLES: dict[str, list[Notice]] = {
    "a run": RUN,
    "an answer that broke off is in no message": DROPPED,
    "an answer breaks off in thought": [
        *START,
        ReasoningDelta("let me see", at=0.0),
        *DROPPED[len(START) + 2 :],
    ],
    "calls are told as the model writes them, also where their bits alternate": [
        *START,
        TextDelta("So ", at=0.0),
        CallDelta(0, "put", at=0.0),
        CallDelta(0, arguments='{"api_key', at=0.0),
        CallDelta(1, arguments='{"at":', at=0.0),
        CallDelta(0, arguments='":"hush"}', at=0.0),
        CallDelta(1, "put", "2}", at=0.0),
        TextDelta("be it.", at=0.0),
    ],
    "an output is told as far as it is written": [
        *START,
        TextDelta('{"city": "Rome", ', at=0.0),
        OutputDelta({"city": "Rome"}, at=0.0),
        TextDelta('"api_key": "x"}', at=0.0),
        OutputDelta({"city": "Rome", "api_key": "x"}, at=0.0),
        turn(1, StopReason.END_TURN, Text(text='{"city": "Rome", "api_key": "x"}')),
        over(DoneReason.END_TURN),
    ],
    "an answer that was cut short is kept": [*CUT, over(DoneReason.INTERRUPTED)],
    "an answer that was cut short comes before what follows: input": [
        *CUT,
        InputTaken(ids=("q",), messages=(user("stop", files=(FILE,)),), at=0.0),
        over(DoneReason.INTERRUPTED),
    ],
    "an answer that was cut short comes before what follows: the next answer": [
        *CUT,
        ModelCalled(request="r-9", model="m", attempt=1, at=0.0),
    ],
    "an answer of nothing but thought leaves nothing when it is cut": [
        *START,
        ReasoningDelta("hm", at=0.0),
        over(DoneReason.INTERRUPTED),
    ],
    "a call that never started is skipped": batch(
        *[ended(n, outcome) for n, outcome in enumerate(Outcome) if outcome is not Outcome.OK],
        ended(9),
        calls=10,
    ),
    "a call whose start was not seen has run where it may have": [
        ended(0),
        ended(1, Outcome.ERROR),
        ended(2, Outcome.UNKNOWN),
    ],
    "results are told in the order of their calls": batch(
        ended(2),
        ended(0),
        ended(1),
        turn(2, StopReason.END_TURN),
        calls=3,
    ),
    "only a yes is told as one": [
        *RUN[:9],
        ApprovalResolved(request="r-3", decision=ApproveAlways(), at=0.0),
        RUN[8],
        ApprovalResolved(request="r-3", decision=Deny(), at=0.0),
    ],
    "a compaction": [
        *START,
        COMPACTING,
        ModelCalled(at=0.0, request="r-2", model="m", attempt=1, purpose=Purpose.SUMMARY),
        SummaryEnded(at=0.0, request="r-2", usage=Usage(input=900, output=90), stop=StopReason.END_TURN),
        Compacted(before=900, after=90, at=0.0),
        over(DoneReason.INTERRUPTED),
    ],
    "a compaction that was lost and begun anew": [
        *START,
        COMPACTING,
        COMPACTING,
        Compacted(before=900, after=90, at=0.0),
    ],
    "a compaction that failed, and one that never began": [
        *START,
        COMPACTING,
        AnswerFailed(at=0.0, request="r-2", usage=Usage(), failure=Failure.SERVER, message="no"),
        CompactionFailed(reason="too long", at=0.0),
        CompactionFailed(reason="nothing old enough", at=0.0),
    ],
    "a compaction that is given up with its run": [*START, COMPACTING, over(DoneReason.ERROR)],
    "text that was missed is told again": [
        *START,
        TextDelta("So ", at=0.0),
        NoticesMissed(count=2, at=0.0),
        RUN[6],
        ended(2),
        NoticesMissed(count=1, at=0.0),
        turn(4, StopReason.END_TURN, Reasoning(text="", redacted="x"), Text(text="Done.")),
        over(DoneReason.END_TURN),
    ],
    "another model, a wait, a loop and cleared results": [
        *START,
        RetryScheduled(request="r-1", attempt=2, due=9.0, failure=Failure.OVERLOADED, message="busy", at=0.0),
        HELD,
        FELL,
        *LOOPS,
        ResultsCleared(count=11, tokens=9_000, at=0.0),
        over(DoneReason.LOOP_DETECTED, LOOPS[0].text),
    ],
    "what the provider does with its own tools": [
        *START,
        TextDelta("So ", at=0.0),
        ProviderCalled(id="ws", tool="web_search", arguments='{"query": "x"}', status="completed", at=0.0),
        TextDelta("it is.", at=0.0),
        SourceCited(url="https://a.example", title="A", start=3, end=9, at=0.0),
        CacheMissed(
            request="r-1",
            model="m",
            reason=CacheMissReason.TOOLS,
            expected=9_000,
            cached=0,
            at=0.0,
        ),
        turn(1, StopReason.END_TURN, Text(text="So it is.")),
        over(DoneReason.END_TURN),
    ],
    "what has no price is not told as free": [
        *START,
        attrs.evolve(over(DoneReason.END_TURN), spent=attrs.evolve(SPENT, unpriced=12)),
    ],
    "hooks, settings and what is odd": [
        *START,
        HookAsked(request="h", hook=Hook.STOP, names=("a",), at=0.0),
        HookEnded(request="h", hook=Hook.STOP, said=(), at=0.0),
        ApprovalWithdrawn(request="r-3", at=0.0),
        SettingChanged(change=SetModel(model="n"), at=0.0),
        SettingRefused(change=SetModel(model="n"), reason="no such model", at=0.0),
        InputReceived(id="q", at=0.0),
        InputBlocked(ids=("q",), reason="no", at=0.0),
        InputDropped(id="p", at=0.0),
        Warned(text="odd", at=0.0),
        RunLeft(run="r", why=LeftBecause.FAILED, detail="StoreError: full", at=0.0),
        Ignored(event="TimerFired", state="done", at=0.0),
    ],
    "a child": in_child(RUN),
    "a child that fails": in_child([*START, over(DoneReason.ERROR, "no luck")]),
    "a run whose start was not seen begins with its first event": [
        RunResumed(at=0.0, run="r", model="m", tools=("put",)),
        Ignored(event="TimerFired", state="done", at=0.0),
        *RUN[10:],
    ],
    **{
        f"the end: {reason} {detail}".strip(): [*START, over(reason, detail)]
        for reason in DoneReason
        for detail in (["", "no luck"] if reason in ERROR_ENDS else [""])
    },
    # By the name of an argument, at any depth; what is no object is not shown at all.
    "secrets in arguments are not sent": [
        ToolStarted(call="c", tool="put", arguments=arguments, at=0.0) for arguments in SECRETS
    ],
}
"""Runs by hand; what each vocabulary says of each of their notices is recorded in recorded.txt."""


def as_told(run: Iterable[Notice]) -> str:
    """Each notice of *run* with the events that it is in each vocabulary, a line of JSON each."""
    projections = {name: maker() for name, maker in MAKERS.items()}
    lines: list[str] = []
    for notice in run:
        lines.append(type(notice).__name__)
        for name, projection in projections.items():
            lines += [f"  {name} {json.dumps(event)}" for event in projection.take(notice)]
    return "\n".join(lines)


def test_each_notice_is_told_as_it_is_recorded() -> None:
    told = "".join(f"=== {name}\n{as_told(run)}\n\n" for name, run in SAMPLES.items())
    if os.environ.get("RECORD"):
        RECORDED.write_text(told, "utf-8")
    assert told == RECORDED.read_text("utf-8")


def test_partial_messages_are_said_only_where_asked_for() -> None:
    for run in SAMPLES.values():
        whole = [event for event in told(MAKERS["sdk"](), run) if event["type"] != "stream_event"]
        assert told(SdkMessages.of("s"), run) == whole


def test_a_long_result_is_cut_on_its_way_to_a_client() -> None:
    for more, sent in (("", ""), ("x", "\n[1 more characters]")):
        long = attrs.evolve(ended(0), content="x" * 50_000 + more)
        assert told(SseEvents.of("s"), batch(long))[-2]["result"] == "x" * 50_000 + sent


@pytest.mark.parametrize(
    ("first", "second"),
    [(DROPPED, RUN), (DROPPED, RUN[10:]), (RUN[:12], RUN), ([*CUT, COMPACTING], RUN)],
    ids=["one after the other", "start not seen", "left in a tool", "left in an answer"],
)
# The names in the others are places in the conversation, so these differ from run to run.
@pytest.mark.parametrize("vocabulary", ["sdk", "sse", "turns", "agent_events"])
def test_runs_of_a_session_do_not_mix(vocabulary: str, first: list[Notice], second: list[Notice]) -> None:
    projection = MAKERS[vocabulary]()
    told(projection, first)
    events, alone = told(projection, second), told(MAKERS[vocabulary](), second)
    if vocabulary == "turns":
        events[-1]["messages"] = messages_in(events)[-len(messages_in(alone)) :]
    assert events == alone


def test_the_end_of_a_run_tells_the_whole_conversation() -> None:
    projection = TurnEvents.of("s", [user("before"), user("then")])
    first, second = messages_in(told(projection, RUN)), messages_in(told(projection, DROPPED))
    assert [message["content"] for message in first] == [
        *("before", "then"),
        *("put it there", "So be it.", "there", "Done."),
    ]
    assert second == [*first, *messages_in(told(TurnEvents.of("s"), DROPPED))]


# A real session


@tool(side_effect="read_only")
def look(at: str = "") -> str:
    """Look at something."""
    return f"saw {at}"


async def test_a_session_tells_all_its_watchers_the_same() -> None:
    model = ScriptedModel(
        calls(("run_agent", {"agent": "scout", "prompt": "look around"})),
        calls(("look", {"at": "x"})),
        says("It is x."),
        says("All done."),
    )
    children = (ChildSpec(name="scout", tools=("look",)),)
    agent = Agent(tools=[look], children=children, performers={CallModel: model})
    async with agent.session("s") as session, session.subscribe() as subscription:
        streamed = [notice async for notice in session.stream("go")]
        await session.close()
        subscribed = [notice async for notice in subscription]
    events = told(SseEvents.of("s"), streamed)
    assert events == told(SseEvents.of("s"), subscribed)
    assert names(events[:3] + events[-2:]) == [
        *("init", "tool_call_delta", "tool_call_start"),
        *("text_delta", "done"),
    ]
    of_child = [event["event_type"] for event in events if event["type"] == "subagent_event"]
    assert of_child == ["tool_call_start", "tool_call_end", "thought", "thought", "thought", "complete"]
    messages = told(SdkMessages.of("s"), subscribed)
    answers = [
        (message["parent_tool_use_id"] is not None, texts_of(message))
        for message in messages
        if message["type"] == "assistant"
    ]
    assert answers == [(False, ""), (True, ""), (True, "It is x."), (False, "All done.")]


# Many runs: what must always hold


@pytest.fixture(scope="module")
def plays() -> list[Play]:
    # A call that was lost and is run again starts twice, which the rules below leave out.
    return [one for one in map(play, range(120)) if _starts_once(one)]


def _starts_once(one: Play) -> bool:
    started = [effect.call for effect in one.effects if isinstance(effect, ToolStarted)]
    return len(started) == len(set(started))


def notices_of(one: Play) -> list[Notice]:
    return [effect for effect in one.effects if is_notice(effect)]


BRACKETS = {
    "sdk": ({"system"}, {"result"}),
    "sse": ({"init"}, {"done"}),
    "turns": ({"agent_start"}, {"agent_end", "agent_abort"}),
}


@pytest.mark.parametrize("vocabulary", BRACKETS)
def test_every_run_begins_once_and_ends_once(vocabulary: str, plays: list[Play]) -> None:
    begins, ends = BRACKETS[vocabulary]
    for one in plays:
        said = [
            event["type"]
            for event in told(MAKERS[vocabulary](), notices_of(one))
            if event.get("subtype") != "compact_boundary"
        ]
        assert said[0] in begins
        assert said[-1] in ends
        assert not (begins | ends) & set(said[1:-1])


@each_vocabulary
def test_every_event_is_json(vocabulary: str, plays: list[Play]) -> None:
    for one in plays:
        for event in told(MAKERS[vocabulary](), notices_of(one)):
            assert json.loads(to_sse(event).split(b"data: ")[1]) == event


def kept(one: Play, role: Role) -> list[Message]:
    """The messages of *role* that the history of *one* was given."""
    appended = [effect.message for effect in one.effects if isinstance(effect, AppendMessage)]
    return [message for message in appended if message.role is role]


def test_assistant_messages_are_those_of_the_history(plays: list[Play]) -> None:
    for one in plays:
        answers = [m for m in told(SdkMessages.of("s"), notices_of(one)) if m["type"] == "assistant"]
        said = [
            (texts_of(answer), [block["id"] for block in blocks_of(answer) if block["type"] == "tool_use"])
            for answer in answers
        ]
        assert [each for each in said if each != ("", [])] == [
            (message.text, [call.id for call in message.calls]) for message in kept(one, Role.ASSISTANT)
        ]


def test_the_end_tells_the_results_of_the_history(plays: list[Play]) -> None:
    for one in plays:
        *_, end = told(TurnEvents.of("s"), notices_of(one))
        results = [m for m in messages_in([end]) if m["role"] == "tool_result"]
        # Settings may have changed meanwhile: of what the stricter of them left out, only the ends are there.
        limits = [each.config.compaction.result_limit for each in (one.began, one.end)]
        limit = min([each for each in limits if each is not None], default=None)
        assert [(m["call_id"], shown_of(str(m["content"]), limit)) for m in results] == [
            (result.call, shown_of(result.content, limit))
            for m in kept(one, Role.TOOL)
            for result in m.results
        ]


def shown_of(content: str, limit: int | None) -> tuple[str, str]:
    """As much of the two ends of *content* as a model is shown of a result beyond *limit*."""
    side = len(content) if limit is None else limit // 10
    return content[:side], content[-side:]


def test_an_assistant_comes_before_its_progress(plays: list[Play]) -> None:
    for one in plays:
        wishes, outcomes = set[object](), dict[object, list[object]]()
        for message in told(SdkMessages.of("s"), notices_of(one)):
            if message["type"] == "assistant":
                wishes |= {block["id"] for block in blocks_of(message) if block["type"] == "tool_use"}
            if message["type"] == "tool_progress":
                assert message["tool_use_id"] in wishes
                outcomes.setdefault(message["tool_use_id"], []).append(message["outcome"])
        assert set(outcomes) == wishes
        assert all(said[-1] and said[:-1] in ([], [None]) for said in outcomes.values())


def test_a_turn_ends_before_its_calls_and_each_has_one_end(plays: list[Play]) -> None:
    for one in plays:
        open_, running = set[object](), set[object]()
        for event in told(TurnEvents.of("s"), notices_of(one)):
            call = event.get("call_id")
            match event:
                case {"type": "turn_end", "message": {"tool_calls": wishes}}:
                    assert not open_
                    open_ = {wish["call_id"] for wish in wishes}
                    assert open_
                case {"type": "tool_execution_start"}:
                    assert call in open_ - running
                    running.add(call)
                case {"type": "tool_execution_end"}:
                    running.remove(call)
                    open_.remove(call)
                case {"type": "tool_skipped"}:
                    assert call not in running
                    open_.remove(call)
                case _:
                    pass
        assert not open_


def test_a_result_follows_its_start_and_done_has_the_usage(plays: list[Play]) -> None:
    for one in plays:
        notices = notices_of(one)
        events = told(SseEvents.of("s"), notices)
        running = list[object]()
        for event in events:
            if event["type"] == "tool_call_start":
                running.append(event["tool_id"])
            elif event["type"] == "tool_call_result" and event["tool_id"] in running:
                running.remove(event["tool_id"])
        assert running == []
        (end,) = [notice for notice in notices if isinstance(notice, RunEnded)]
        usage = events[-1]["usage"]
        assert isinstance(usage, dict)
        assert (usage["total"], events[-1]["turns"]) == (end.spent.usage.total, end.spent.turns)


def test_one_agent_event_is_done_and_it_is_the_last(plays: list[Play]) -> None:
    for one in plays:
        *before, last = told(AgentEvents.of("s"), notices_of(one))
        assert (last["type"] in {"response", "error"}, last["done"]) == (True, True)
        assert all((event["type"], event["done"]) == ("compact", False) for event in before)


@each_vocabulary
def test_a_projection_is_a_pure_fold(vocabulary: str, plays: list[Play]) -> None:
    project = MAKERS[vocabulary]().project
    for one in plays[:50]:
        state, steps = (
            RunView(session="s"),
            list[tuple[RunView, Notice, tuple[RunView, tuple[JsonEvent, ...]]]](),
        )
        for notice in notices_of(one):
            steps.append((state, notice, project(state, notice)))
            state = steps[-1][2][0]
        assert all(project(before, notice) == after for before, notice, after in reversed(steps))


@each_vocabulary
def test_a_watcher_that_misses_notices_is_told_what_can_be_told(vocabulary: str, plays: list[Play]) -> None:
    for seed, one in enumerate(plays):
        draw = random.Random(seed)
        seen = [n for n in notices_of(one) if isinstance(n, RunEnded) or draw.random() < 0.6]
        events = told(MAKERS[vocabulary](), seen)
        if vocabulary in BRACKETS:
            begins, ends = BRACKETS[vocabulary]
            assert events[0]["type"] in begins
            assert [name for name in names(events) if name in ends] == [events[-1]["type"]]
        assert events == told(MAKERS[vocabulary](), seen)


async def test_the_outcome_is_the_same_for_a_reader_that_is_slow(plays: list[Play]) -> None:
    for seed, one in enumerate(plays):
        broker, whole = Feed(size=1 + seed % 5), notices_of(one)
        slow = broker.subscribe()
        for notice in whole:
            broker.publish(notice)
        broker.close()
        seen = [notice async for notice in slow]
        assert told(AgentEvents.of("s"), seen)[-1] == told(AgentEvents.of("s"), whole)[-1]
        results = [told(SdkMessages.of("s"), notices)[-1] for notices in (seen, whole)]
        assert results[0]["result"] == results[1]["result"]


# ReasonWords and frames


def test_every_reason_and_mode_has_its_words() -> None:
    assert set(REASON_WORDS) == set(DoneReason)
    assert set(MODE_WORDS) == set(PermissionMode)


@pytest.mark.parametrize("reason", DoneReason)
def test_a_budget_can_be_called_otherwise(reason: DoneReason) -> None:
    budgets = {DoneReason.TOKEN_BUDGET, DoneReason.MAX_BUDGET, DoneReason.TIME_BUDGET}
    (*_, result) = told(SdkMessages.of("s", budget_subtype=BUDGET_USD), [*START, over(reason)])
    assert result["subtype"] == (BUDGET_USD if reason in budgets else subtype(reason))
    assert result["is_error"] == (reason is not DoneReason.END_TURN)


DEEP = '{"a":' * 900 + "1" + "}" * 900


@each_vocabulary
def test_arguments_that_cannot_be_read_stop_nothing(vocabulary: str) -> None:
    for arguments in (DEEP, DEEP[:-1], '{"a":'):
        wish = attrs.evolve(WISH, arguments=arguments)
        ended = turn(1, StopReason.TOOL_USE, wish)
        started = ToolStarted(call="r-2", tool="put", arguments=arguments, at=0.0)
        for event in told(MAKERS[vocabulary](), [*START, ended, started, over(DoneReason.ERROR)]):
            assert to_sse(event).endswith(b"\n\n")


def test_a_frame_is_its_name_and_one_line() -> None:
    frame = to_sse({"type": "text_delta", "content": "a\r\nb\n\nд\ud800"})
    assert frame == 'event: text_delta\ndata: {"type":"text_delta","content":"a\\r\\nb\\n\\nд?"}\n\n'.encode()


def test_a_frame_may_have_an_id_of_one_line() -> None:
    assert to_sse({"type": "done"}, id="12.1") == b'id: 12.1\nevent: done\ndata: {"type":"done"}\n\n'
    with pytest.raises(ArgumentError, match="the id of a frame is one line"):
        to_sse({"type": "done"}, id="12\ndata: x")


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({}, "an event has a 'type' that names it; got {}"),
        ({"type": "a\nb"}, "an event has a 'type' that names it; got"),
        ({"type": 1}, "an event has a 'type' that names it; got"),
        ({"type": "a", "cost": Decimal(1)}, "an event is made of what JSON is made of; got"),
        ({"type": "a", "cost": float("nan")}, "an event is made of what JSON is made of; got"),
    ],
)
def test_what_is_no_event_is_not_framed(event: JsonEvent, says: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(says)):
        to_sse(event)


# The page


@pytest.fixture(scope="module")
def observed(plays: list[Play]) -> dict[str, list[tuple[str, str, JsonEvent]]]:
    """By vocabulary, all that is said: the notice, the name of the event, and the event."""
    whole = [run for run in SAMPLES.values() if isinstance(run[0], RunStarted)]
    runs = [*whole, *map(notices_of, plays)]
    return {name: [said for run in runs for said in said_in(maker(), run)] for name, maker in MAKERS.items()}


def said_in(projection: Projection, run: list[Notice]) -> Iterator[tuple[str, str, JsonEvent]]:
    for notice in run:
        for event in projection.take(notice):
            name = str(event["type"])
            yield type(notice).__name__, f"{name}/{event['subtype']}" if name == "system" else name, event


def table(heading: str) -> list[list[list[str]]]:
    """The rows of the first table below *heading* on the page: for each cell, what is in backticks."""
    section = re.split(rf"^## {re.escape(heading)}$", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1]
    lines = section.split("\n## ")[0].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("| ---"))
    rows = list[list[list[str]]]()
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")])
    return rows


def test_the_page_has_every_notice() -> None:
    listed = {notice: fields for (notice,), _, fields in table("Notices")}
    assert listed == {
        kind.__name__: [field.name for field in attrs.fields(kind) if field.name != "at"]
        for kind in get_args(Notice)
    }
    assert all("at" in attrs.fields_dict(kind) for kind in get_args(Notice))


def test_the_samples_have_every_notice() -> None:
    assert {type(notice) for run in SAMPLES.values() for notice in run} == set(get_args(Notice))


def test_the_page_says_of_every_notice_what_it_is() -> None:
    assert [row[0] for row in table("Notices as events")] == [row[0] for row in table("Notices")]


@each_vocabulary
def test_the_page_says_what_each_notice_is(
    vocabulary: str, observed: dict[str, list[tuple[str, str, JsonEvent]]]
) -> None:
    column = 1 + list(MAKERS).index(vocabulary)
    listed = {(row[0][0], event) for row in table("Notices as events") for event in row[column]}
    assert listed == {(notice, name) for notice, name, _ in observed[vocabulary]}


@each_vocabulary
def test_the_page_says_what_each_event_has(
    vocabulary: str, observed: dict[str, list[tuple[str, str, JsonEvent]]]
) -> None:
    listed = {event: {"type", *fields} for (event,), fields, *_ in table(f"`{vocabulary}`")}
    seen: dict[str, set[str]] = {}
    for _, name, event in observed[vocabulary]:
        fields = {"type", *listed["subagent_event"]} if name == "subagent_event" else set(event)
        seen[name] = seen.get(name, set()) | (fields & set(event))
    assert seen == listed


def test_the_page_has_every_reason() -> None:
    listed = {reason: words for (reason,), *words in table("Reasons")}
    assert listed == {
        reason.value: [[words.exit], [words.subtype], [words.done], [words.finish]]
        for reason, words in REASON_WORDS.items()
    }
