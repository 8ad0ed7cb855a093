"""Whatever a machine says or remembers is told on one line each, which a terminal shows as it is."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from turnwheel.display.rendering import (
    WORDING,
    line_of,
    memory_lines,
    message_line,
    quoted,
    short,
    state_line,
)
from turnwheel.effects import events, messages, notices, records, requests
from turnwheel.effects.config import Limits
from turnwheel.effects.events import Event
from turnwheel.effects.findings import CommandFound, Finding, PathFound, SimpleCommand
from turnwheel.effects.history import CallPiece, History, ReasoningPiece, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer, HookSaid
from turnwheel.effects.messages import Message
from turnwheel.effects.notices import Notice
from turnwheel.effects.permissions import PermissionMode, Rule
from turnwheel.effects.records import GrantRule, Record, WithdrawTool
from turnwheel.effects.requests import Cancel, Request
from turnwheel.effects.usage import Spent, Usage
from turnwheel.states.context import ConversationMemory, Mail, Memory, RunProgress, SessionMemory
from turnwheel.states.state import State
from turnwheel.testing.harness import MachineHarness, calls
from turnwheel.testing.state_fixtures import run_at

WORDS = [*get_args(Event), *get_args(Request), *get_args(Record), *get_args(Notice), Cancel]


def one_line(text: str) -> bool:
    return text == text.strip() != "" and len(text.splitlines()) == 1 and text.isprintable()


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.__name__)
@given(data=st.data())
@settings(max_examples=25)
def test_each_word_is_told_on_one_line_that_begins_with_its_name(
    word: type[Any], data: st.DataObject
) -> None:
    line = line_of(data.draw(st.from_type(word)))
    assert line.startswith(word.__name__)
    assert one_line(line)


@given(st.one_of(*map(st.from_type, get_args(State))))
def test_a_state_is_told_on_one_line_that_begins_with_its_label(state: State) -> None:
    line = state_line(state)
    assert line.startswith(state.label)
    assert one_line(line)


def several(kind: type[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.from_type(kind), max_size=2).map(tuple)


MEMORIES = st.builds(
    Memory,
    run=st.text(),
    spent=st.from_type(Spent),
    earlier=st.from_type(Spent),
    session=st.builds(SessionMemory, model=st.text(), mail=several(Mail), granted=several(GrantRule)),
    conversation=st.builds(
        ConversationMemory,
        history=several(Message).map(lambda messages: History.of(*messages)),
        pending_context=several(str),
        cleared=st.integers(0, 3),
    ),
    progress=st.builds(RunProgress, withdrawn=several(WithdrawTool), fallback=st.text()),
)


@given(MEMORIES)
def test_a_memory_is_told_on_lines(memory: Memory) -> None:
    lines = list(memory_lines(memory))
    assert lines
    assert all(map(one_line, lines))


@given(st.from_type(Message))
def test_a_message_is_told_on_one_line(message: Message) -> None:
    assert one_line(message_line(message))
    assert one_line(message_line(message, whole=True))


@given(st.text(max_size=400))
def test_a_text_in_quotes_is_short_and_says_how_long_it_is(text: str) -> None:
    shown = quoted(text)
    assert one_line(shown)
    assert (f"({len(text)})" in shown) or len(text) <= 120 or text.endswith(f"({len(text)})")


def test_nothing_has_words_that_is_none() -> None:
    assert set(WORDING) <= set(WORDS)


# The very words

DEAR = Spent(
    turns=1, usage=Usage(input=10, output=5, estimated=3), cost=Decimal("0.25"), seconds=1.50, unpriced=7
)
WISH = messages.ToolCall(id="r-2", wire_id="w", name="look", arguments='{"a":\n 1}')
BRIEF = requests.Conversation(revision=0, length=1)
LATER = requests.Conversation(revision=0, length=2, cleared=1)
OLD = requests.Transcript(revision=0, length=2, limit=90)
ASKED: dict[str, Any] = {"id": "r-1", "call": "c", "tool": "look", "arguments": '{"a": 1}'}
ANSWER: dict[str, Any] = {"at": 1.0, "request": "r-1"}
REACHED = Finding(
    paths=(
        PathFound(argument="path", value="a", real=("/a", "/b")),
        PathFound(argument="p", value="c", real=("/c",), doubt="odd"),
    ),
    commands=(
        CommandFound(argument="x", commands=(SimpleCommand(words=("ls", "-l")),)),
        CommandFound(argument="x", unread="cannot"),
        CommandFound(argument="x", beyond="more"),
    ),
)

LINES: tuple[tuple[Any, str], ...] = (
    (requests.CallModel(id="r-1", model="m", view=BRIEF), "CallModel r-1 m (1 message, no tools)"),
    (
        requests.CallModel(
            id="r-1",
            model="m",
            view=LATER,
            tools=("look", "write"),
            thinking=0,
            max_output=0,
            system="be brief",
            instructions="and kind",
            attempt=2,
        ),
        (
            "CallModel r-1 m try 2 (2 messages, results cleared before 1, tools look write, thinking 0, "
            'at most 0 tokens, system "be brief", instructions "and kind")'
        ),
    ),
    (
        requests.CallModel(
            id="r-1",
            model="m",
            view=OLD,
            purpose=requests.Purpose.SUMMARY,
            system="be brief",
            tools=("look",),
            instructions="sum it up",
        ),
        'CallModel r-1 m for a summary (transcript of 2 messages in 90 tokens, instructions "sum it up")',
    ),
    (requests.RunTool(**ASKED, timeout=2.0), 'RunTool r-1 look {"a": 1}'),
    (requests.RunTool(**ASKED, again=True), 'RunTool r-1 look {"a": 1} again'),
    (requests.AskApproval(**ASKED), 'AskApproval r-1 look {"a": 1}'),
    (
        requests.AskApproval(**ASKED, why="tool: it may", due=0.0),
        'AskApproval r-1 look {"a": 1}: tool: it may until 0',
    ),
    (requests.FireHook(id="r-1", hook=Hook.STOP, names=("a", "b")), "FireHook r-1 stop: a, b"),
    (requests.RunAgent(id="r-1", call="c", agent="kid", prompt="go"), 'RunAgent r-1 kid "go" (no tools)'),
    (
        requests.RunAgent(
            id="r-1",
            call="c",
            agent="kid",
            prompt="go",
            tools=("look",),
            limits=Limits(turns=2, seconds=1.5),
            mode=PermissionMode.PLAN,
        ),
        'RunAgent r-1 kid "go" (tools look, mode plan, limits turns=2 seconds=1.5)',
    ),
    (requests.SetTimer(id="r-1", due=3.25), "SetTimer r-1 until 3.25"),
    (records.AppendMessage(message=messages.user("hi")), 'AppendMessage user "hi"'),
    (
        records.AddUsage(spent=DEAR, context=9),
        "AddUsage 1 turn, 10 + 5 tokens (3 estimated), 0.25 USD, 1.5 s, 7 tokens without a price",
    ),
    (records.AddUsage(spent=Spent(turns=2, unpriced=7)), "AddUsage 2 turns"),
    (records.AddUsage(spent=Spent(usage=Usage(input=1))), "AddUsage 1 + 0 tokens"),
    (
        records.ReplaceHistory(head=(messages.user("sum"),), keep=1),
        'ReplaceHistory user "sum" in place of 1 message',
    ),
    (records.SetThinking(tokens=None), "SetThinking tokens=none"),
    (records.SetThinking(tokens=5), "SetThinking tokens=5"),
    (
        notices.RunEnded(run="r", reason=notices.DoneReason.END_TURN, spent=Spent(), at=1.0),
        "RunEnded r end_turn (nothing spent)",
    ),
    (
        notices.RunEnded(run="r", reason=notices.DoneReason.ERROR, spent=Spent(turns=1), at=1.0, detail="no"),
        'RunEnded r error: "no" (1 turn)',
    ),
    (
        notices.LoopDetected(
            stage=notices.LoopStage.WARNED, tools=("look", "write"), count=3, text="t", at=0.0
        ),
        'LoopDetected warned look write x3: "t"',
    ),
    (
        notices.HookAsked(request="r-1", hook=Hook.STOP, names=("a",), at=0.0),
        "HookAsked request=r-1 hook=stop names=(a)",
    ),
    (notices.Warned(text="a\nb", at=0.0), 'Warned "a\\nb"'),
    (notices.OutputDelta({"a": ["b\n", None]}, at=0.0), 'OutputDelta {"a": ["b\\n", null]}'),
    (
        notices.TurnEnded(
            request="r-1",
            turn=1,
            message=messages.user("x"),
            stop=messages.StopReason.END_TURN,
            usage=Usage(input=1),
            calls=(WISH,),
            at=0.0,
        ),
        (
            'TurnEnded request=r-1 usage=Usage input=1 stop=end_turn turn=1 message=user "x" '
            r'calls=(ToolCall id=r-2 wire_id=w name=look arguments="{\"a\":\n 1}")'
        ),
    ),
    (
        events.ModelStreamed(
            **ANSWER,
            before=0,
            count=3,
            pieces=(TextPiece(""), ReasoningPiece("hm", "sig"), CallPiece(0, "w", "look", "{}")),
        ),
        'ModelStreamed r-1 "", thinking "hm" proof "sig", call look {}',
    ),
    (
        events.ModelFinished(**ANSWER, stop=messages.StopReason.END_TURN, usage=Usage(input=3, output=4)),
        "ModelFinished r-1 end_turn, 3 + 4 tokens",
    ),
    (
        events.ModelFailed(**ANSWER, failure=events.Failure.OVERLOADED, message="busy", retry_after=1.5),
        'ModelFailed r-1 overloaded "busy" retry after 1.5 s',
    ),
    (events.ToolFinished(**ANSWER, content="ok"), 'ToolFinished r-1 "ok"'),
    (
        events.ToolFinished(
            **ANSWER, content="no", outcome="error", files=(messages.Binary(media_type="a/b", data=b"123"),)
        ),
        'ToolFinished r-1 error "no" with 1 file',
    ),
    (events.AgentFinished(**ANSWER, content="ok"), 'AgentFinished r-1 "ok"'),
    (events.ApprovalGiven(**ANSWER, decision=events.Approve(), by="ann"), "ApprovalGiven r-1 yes by ann"),
    (
        events.ApprovalGiven(**ANSWER, decision=events.Approve(arguments='{"a": 1}')),
        'ApprovalGiven r-1 yes, with {"a": 1}',
    ),
    (
        events.ApprovalGiven(**ANSWER, decision=events.ApproveAlways(where=(("a", "b*"), ("c", "d")))),
        "ApprovalGiven r-1 yes, always a=b* c=d",
    ),
    (
        events.ApprovalGiven(**ANSWER, decision=events.Deny("not now", interrupt=True)),
        'ApprovalGiven r-1 no "not now" and stop',
    ),
    (events.ApprovalGiven(**ANSWER, decision=events.Deny()), "ApprovalGiven r-1 no"),
    (
        events.HookAnswered(
            **ANSWER,
            said=(
                HookSaid(name="a", answer=HookAnswer()),
                HookSaid(name="b", answer=HookAnswer(verdict="deny", reason="no way")),
                HookSaid(name="c", fault="broke"),
            ),
        ),
        'HookAnswered r-1 a, b verdict=deny reason="no way", c failed "broke"',
    ),
    (events.CallInspected(**ANSWER), "CallInspected r-1 nothing"),
    (
        events.CallInspected(**ANSWER, finding=REACHED),
        "CallInspected r-1 path reaches /a; p reaches /c; runs ls -l; odd; cannot; more",
    ),
    (
        events.InstructionsRead(**ANSWER, text="be brief", faults=("gone",)),
        'InstructionsRead at=1 request=r-1 text="be brief" faults=(gone)',
    ),
    (events.Interrupted(at=1.25, aborted=True), "Interrupted at=1.25 aborted=true"),
    (
        events.AgentProgressed(**ANSWER, spent=Spent(turns=1)),
        "AgentProgressed at=1 request=r-1 spent=(1 turn)",
    ),
)


@pytest.mark.parametrize(("word", "line"), LINES, ids=lambda part: part if isinstance(part, str) else "")
def test_a_line_says_what_matters_and_leaves_out_what_is_as_usual(word: Any, line: str) -> None:
    assert line_of(word) == line


def test_an_answer_is_told_by_its_parts_and_results_by_their_outcomes() -> None:
    whole = Message(
        role=messages.Role.ASSISTANT,
        parts=(
            messages.Text(text="hi"),
            WISH,
            messages.Reasoning(text="", redacted="zz"),
            messages.Reasoning(text="hm"),
            messages.Binary(media_type="a/b", data=b"123"),
            messages.Finish(reason=messages.StopReason.TOOL_USE),
        ),
    )
    assert message_line(whole) == (
        'assistant "hi", call look {"a": 1}, hidden thinking "zz", thinking "hm", file a/b of 3 bytes'
    )
    cut = attrs.evolve(whole, parts=(messages.Finish(reason=messages.StopReason.MAX_TOKENS),))
    assert message_line(cut) == "assistant stopped by max_tokens"
    results = (
        messages.ToolResult(call="c", wire_id="", name="look", content="seen"),
        messages.ToolResult(call="d", wire_id="", name="write", content="no", outcome=messages.Outcome.ERROR),
    )
    said = Message(role=messages.Role.TOOL, parts=results)
    assert message_line(said) == "tool: look ok, write error"
    assert message_line(said, whole=True) == 'tool: look ok "seen", write error "no"'


def test_of_a_long_text_both_ends_are_shown_and_of_long_arguments_the_beginning() -> None:
    assert quoted("a" * 120) == f'"{"a" * 120}"'
    assert quoted("a" * 80 + "-" + "b" * 40) == f'"{"a" * 80}" ... "{"b" * 40}" (121)'
    assert quoted("a" * 1_200).endswith(" (1,200)")
    assert quoted("Grüße, 世界") == '"Grüße, 世界"'
    assert short("a" * 120) == "a" * 120
    assert short("a" * 120 + "b") == "a" * 120 + "..."


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("streaming", "streaming, waits for r-1"),
        ("executing", "executing: look running r-4, write queued"),
        ("done", "done: end_turn"),
    ],
)
def test_a_state_says_what_it_waits_for(place: str, line: str) -> None:
    assert state_line(run_at(place).machine.state) == line


def test_calls_are_told_with_their_outcome_or_where_they_are_and_what_is_asked() -> None:
    run = MachineHarness()
    run.say(*calls("fly", "write", "look"))
    assert state_line(run.machine.state) == "confirming: fly error, write asked r-5, look queued"


def test_a_memory_tells_what_was_used_and_nothing_else() -> None:
    empty = Memory(run="r", session=SessionMemory(model="m"))
    assert list(memory_lines(empty)) == ["run r, model m, mode default"]
    full = Memory(
        run="r",
        spent=Spent(turns=1),
        earlier=Spent(turns=2),
        session=SessionMemory(
            model="m",
            mail=(Mail(lane=records.MailKind.STEER, id="i", text="left", at=0.0, sender="ann"),),
            granted=(GrantRule(rule=Rule(verdict="allow", tool="look")),),
        ),
        conversation=ConversationMemory(
            history=History.of(messages.user("hi")), pending_context=("mind",), cleared=1
        ),
        progress=RunProgress(fallback="spare", withdrawn=(WithdrawTool(tool="look", until=3, count=5),)),
    )
    assert list(memory_lines(full)) == [
        "run r, model spare, mode default",
        "spent 1 turn",
        "spent before 2 turns",
        'waits: steer of ann "left"',
        "granted: allow look",
        "withdrawn: look until turn 3",
        'context: "mind"',
        "cleared: tool results before message 1",
        'user "hi"',
    ]
