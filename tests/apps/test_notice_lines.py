"""What a person is shown of notices, and of a run whose process was lost."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import attrs
import pytest

from turnwheel import Approve, Deny, DoneReason, PermissionMode, Policy, SetMode, SetModel, SetThinking
from turnwheel.apps.terminal.countdown import countdown
from turnwheel.apps.terminal.recovery_notes import recovery_lines
from turnwheel.apps.terminal.screen import Screen
from turnwheel.apps.terminal.terminal import Terminal
from turnwheel.apps.terminal.wrap import Wrap
from turnwheel.effects.config import ModelSpec, OnLost, OnMaxTokens, Steering
from turnwheel.effects.events import Failure
from turnwheel.effects.hooks import Hook, HookAnswer, HookSaid, HookSpec
from turnwheel.effects.messages import Citation, Message, Outcome, Role, StopReason, Text, ToolCall, user
from turnwheel.effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    ApprovalRequested,
    ApprovalResolved,
    CacheMissed,
    CallJudged,
    CallSettled,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    FallbackUsed,
    HookAsked,
    HookEnded,
    Ignored,
    InputBlocked,
    InputDropped,
    InputReceived,
    InputTaken,
    InterruptRequested,
    LoopDetected,
    LoopStage,
    Notice,
    ProviderCalled,
    ReasoningDelta,
    RequestDelayed,
    ResultsCleared,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SettingChanged,
    SettingRefused,
    SourceCited,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Warned,
)
from turnwheel.effects.permissions import Basis, Verdict
from turnwheel.effects.records import MailKind
from turnwheel.effects.usage import CacheMissReason, Spent, Usage
from turnwheel.engine.journal.fold import try_name
from turnwheel.states.context import Mail
from turnwheel.testing.harness import MachineHarness, calls as wished, config

RECORDED = Path(__file__).parent / "notice_lines.txt"
"""What a person is shown of each of what is below; RECORD=1 writes it anew."""

# The face


def shown(*notices: Notice, verbose: bool = False) -> str:
    file = io.StringIO()
    mails = {
        "p": Mail(lane=MailKind.PROMPT, id="p", text="then\nthis", at=0.0),
        "s": Mail(lane=MailKind.STEER, id="s", text="not so", at=0.0, how=Steering.NOW),
    }
    face = Terminal(Screen(file), verbose=verbose, by="me", mail=mails.get)
    for notice in notices:
        face.notice(notice)
    return file.getvalue()


STARTED = ToolStarted(call="r-1", tool="read", arguments='{"path": "a"}', at=0.0)
ENDED = CallSettled(call="r-1", tool="read", outcome=Outcome.OK, content="     1\tx", seconds=1.25, at=0.0)
SPENT = Spent(turns=2, usage=Usage(input=1_000, output=300), cost=Decimal("0.01234"), seconds=4.5)


def of_child(call: str, *notices: Notice) -> list[Notice]:
    return [AgentNoticed(call=call, notice=notice, at=0.0) for notice in notices]


JUDGED = CallJudged(
    call="r-1", tool="read", verdict=Verdict.ALLOW, ground=Basis.TOOL, detail="it only reads", at=0.0
)
ASKED = ApprovalRequested(request="r-5", call="r-4", tool="bash", arguments='{"command": "x"}', at=0.0)
SHOWN: dict[str, list[Notice]] = {
    "text as it came": [TextDelta("one ", at=0.0), TextDelta("two\n", at=0.0), TextDelta("three", at=0.0)],
    "text, then a call": [TextDelta("look", at=0.0), STARTED, ENDED],
    "thinking, then text": [ReasoningDelta("hm", at=0.0), TextDelta("\nso", at=0.0)],
    "two at once": [STARTED, ToolStarted(call="r-2", tool="ls", arguments="{}", at=0.0), ENDED],
    "a call that did not run": [
        CallSettled(call="r-3", tool="bash", outcome=Outcome.SKIPPED, content="Skipped: why", at=0.0)
    ],
    "a call that did not run, as it was wished": [
        TurnEnded(
            request="r",
            turn=1,
            message=Message(role=Role.ASSISTANT, parts=()),
            stop=StopReason.TOOL_USE,
            usage=Usage(),
            calls=(ToolCall(id="r-3", wire_id="c", name="bash", arguments='{"command": "rm x"}'),),
            at=0.0,
        ),
        CallSettled(
            call="r-3", tool="bash", outcome=Outcome.DENIED, content="Denied by a rule: deny bash.", at=0.0
        ),
    ],
    "progress": [STARTED, ToolOutput(call="r-1", text="half\nway", at=0.0)],
    "a word between a call and its end": [STARTED, Warned(text="odd", at=0.0), ENDED],
    "a retry at once": [
        RetryScheduled(request="r-1", attempt=2, due=0.0, failure=Failure.LOST, message="gone", at=0.0)
    ],
    "a broken answer": [TextDelta("hal", at=0.0), AnswerDropped(request="r", at=0.0)],
    "an interrupt": [InterruptRequested(at=0.0)],
    "a warning": [Warned(text="odd", at=0.0)],
    "a summary": [
        CompactionStarted(size=9_000, reason="threshold", at=0.0),
        Compacted(before=9_000, after=1_000, at=0.0),
    ],
    "another model": [
        FallbackUsed(model="n", instead_of="m", failure=Failure.OVERLOADED, message="busy", at=0.0)
    ],
    "circles": [
        LoopDetected(stage=LoopStage.WARNED, tools=("read",), count=3, text="read 3 times.", at=0.0),
        LoopDetected(stage=LoopStage.WARNED, tools=("read",), count=3, text="read 3 times.", at=0.0),
        LoopDetected(stage=LoopStage.WITHDRAWN, tools=("read",), count=5, text="no read.", at=0.0),
        LoopDetected(stage=LoopStage.WARNED, tools=("read",), count=5, text="read 5 times.", at=0.0),
        LoopDetected(stage=LoopStage.STOPPED, tools=("read",), count=8, text="stopped", at=0.0),
    ],
    "a provider that searches": [
        TextDelta("look. ", at=0.0),
        ProviderCalled(id="ws", tool="web_search", arguments='{"query": "x"}', status="completed", at=0.0),
        ProviderCalled(id="wf", tool="web_fetch", status="failed", at=0.0),
        TextDelta("so", at=0.0),
        SourceCited(url="https://a.example", title="A", end=2, at=0.0),
        TextDelta(" it is", at=0.0),
        TurnEnded(
            request="r",
            turn=1,
            message=Message(
                role=Role.ASSISTANT,
                parts=(
                    Text(text="look. so it is"),
                    *[Citation(url="https://a.example", title="A")] * 2,
                    Citation(url="", title="b.txt"),
                    Citation(url="", quote="nameless"),
                ),
            ),
            stop=StopReason.END_TURN,
            usage=Usage(),
            at=0.0,
        ),
    ],
    "old results": [
        ResultsCleared(count=1, tokens=900, at=0.0),
        ResultsCleared(count=11, tokens=9_000, at=0.0),
    ],
    "no summary": [CompactionFailed(reason="too small", at=0.0)],
    "a prompt that waits": [InputReceived(id="p", at=0.0)],
    "a steer": [InputReceived(id="s", at=0.0)],
    "an input that is unknown": [InputReceived(id="x", at=0.0)],
    "what was taken": [InputTaken(ids=("p", "s"), messages=(user("then\nthis"), user("not so")), at=0.0)],
    "what a hook stopped": [
        InputBlocked(ids=("p",), reason="", at=0.0),
        InputBlocked(ids=("p",), reason="no", at=0.0),
    ],
    "what was taken back": [InputDropped(id="p", at=0.0)],
    "settings": [
        SettingChanged(change=SetModel(model="m"), at=0.0),
        SettingChanged(change=SetMode(mode=PermissionMode.PLAN), at=0.0),
        SettingChanged(change=SetThinking(tokens=4000), at=0.0),
        SettingChanged(change=SetThinking(tokens=None), at=0.0),
        SettingRefused(change=SetModel(model="m"), reason="no price", at=0.0),
    ],
    "a hook at fault": [
        HookEnded(
            request="r-1",
            hook=Hook.STOP,
            said=(HookSaid(name="h", fault="it broke"), HookSaid(name="g")),
            at=0.0,
        )
    ],
    "an answer of one's own": [ASKED, ApprovalResolved(request="r-5", decision=Approve(), by="me", at=0.0)],
    "an answer of another person": [
        ASKED,
        ApprovalResolved(request="r-5", decision=Deny(message="not now"), by="ann", at=0.0),
    ],
    "a judgement": [JUDGED],
    "a long prompt is cut": [InputTaken(ids=("p",), messages=(user("\n".join("abcdefghij")),), at=0.0)],
    "a child": [
        AgentStarted(call="r-6", agent="scout", prompt="look around", at=0.0),
        *of_child(
            "r-6",
            RunStarted(run="c", model="m", tools=(), at=0.0),
            TextDelta("hm", at=0.0),
            STARTED,
            ENDED,
            CallSettled(call="c-2", tool="ls", outcome=Outcome.ERROR, content="no\nfolder", at=0.0),
            FallbackUsed(model="n", instead_of="m", failure=Failure.SERVER, message="broke", at=0.0),
            RunEnded(run="c", reason=DoneReason.END_TURN, spent=SPENT, at=9.0),
        ),
        CallSettled(call="r-6", tool="run_agent", outcome=Outcome.OK, content="found it", at=0.0),
    ],
    "two children": [
        AgentStarted(call="r-6", agent="scout", prompt="north", at=0.0),
        AgentStarted(call="r-7", agent="scout", prompt="south", at=0.0),
        *of_child("r-6", STARTED),
        *of_child("r-7", STARTED, RunEnded(run="d", reason=DoneReason.MAX_TURNS, spent=Spent(), at=9.0)),
        CallSettled(call="r-7", tool="run_agent", outcome=Outcome.OK, content="half", at=0.0),
        *of_child("r-6", STARTED),
    ],
    "a child that goes on where a lost process was": [
        *of_child("r-6", TextDelta("hm", at=0.0)),
        *of_child("r-6", STARTED),
    ],
}


SAID = (
    HookSaid(name="a"),
    HookSaid(name="b", answer=HookAnswer(verdict="deny", reason="no", interrupt=True)),
    HookSaid(name="c", answer=HookAnswer(arguments="{}", context="mind")),
    HookSaid(name="d", answer=HookAnswer(go_on=True, reason="more")),
    HookSaid(name="e", fault="broke"),
)
DETAILS: dict[str, list[Notice]] = {
    "judgements": [JUDGED, attrs.evolve(JUDGED, ground=Basis.PERSON, detail="")],
    "hooks": [HookAsked(request="r", hook=Hook.STOP, names=("a", "b"), at=0.0)],
    "answers": [HookEnded(request="r", hook=Hook.PRE_TOOL_USE, said=SAID, at=0.0)],
    "a cache that was missed": [
        CacheMissed(request="r", model="m", reason=reason, expected=9_000, cached=1_024, at=0.0)
        for reason in CacheMissReason
    ],
    "too late": [Ignored(event="TimerFired", state="done", at=0.0)],
}


OVERLOADED = RetryScheduled(
    request="r-1", attempt=2, due=0.0, failure=Failure.OVERLOADED, message="busy", at=0.0
)
HELD = RequestDelayed(request="r-1", due=0.0, reason="m said 429", at=0.0)


@pytest.mark.parametrize(
    ("notice", "seconds", "line"),
    [
        (OVERLOADED, -1, ""),
        (OVERLOADED, 0.5, "overloaded: busy · try 2 in 1 s\n"),
        (OVERLOADED, 12, "overloaded: busy · try 2 in 12 s\n"),
        (OVERLOADED, 125, "overloaded: busy · try 2 in 2 min 5 s, at TIME\n"),
        (attrs.evolve(OVERLOADED, message="x" * 500), 12, f"overloaded: {'x' * 129}... · try 2 in 12 s\n"),
        (HELD, 0.5, ""),
        (HELD, 12, "m said 429 · asked in 12 s\n"),
        (AgentNoticed(call="r-6", notice=HELD, at=0.0), 12, "● a child  #6\n  m said 429 · asked in 12 s\n"),
    ],
)
def test_a_wait_says_why_and_how_long(
    notice: RetryScheduled | RequestDelayed | AgentNoticed, seconds: float, line: str
) -> None:
    due = time.time() + seconds
    if isinstance(notice, AgentNoticed):
        assert isinstance(notice.notice, RequestDelayed)
        text = shown(attrs.evolve(notice, notice=attrs.evolve(notice.notice, due=due)))
    else:
        text = shown(attrs.evolve(notice, due=due))
    assert text == line.replace("TIME", time.strftime("%H:%M:%S", time.localtime(due)))


def test_a_wait_is_counted_down() -> None:
    now = time.time()
    assert countdown(attrs.evolve(OVERLOADED, due=now + 75))() == "try 2 in 1 min 15 s"
    assert countdown(attrs.evolve(OVERLOADED, due=now + 8))() == "try 2 in 8 s"
    assert countdown(attrs.evolve(HELD, due=now - 1))() == "asked"


def test_what_comes_during_a_question_is_shown_behind_it() -> None:
    file = io.StringIO()
    face = Terminal(Screen(file))
    face.begin("m", "s", "mode plan")
    face.notice(STARTED)
    face.hold()
    face.notice(ENDED)
    face.notice(Warned(text="odd", at=0.0))
    assert file.getvalue() == "m  session s  mode plan\n\n● read a  #1\n"
    face.release()
    assert file.getvalue().endswith("● read a  #1\n  ⎿ 1 line  1.2 s\n\nodd\n")


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three four", ["one two", "three four"]),
        ("one\n\n  two three", ["one", "", "  two three"]),
        ("one  two", ["one  two"]),
        ("123456789012 3", ["123456789012 3"]),
        ("日本語日本 本", ["日本語日本", "本"]),
        ("ends ", ["ends"]),
    ],
)
def test_text_is_broken_at_spaces(text: str, lines: list[str], size: int) -> None:
    wrap = Wrap(lambda: 11)
    bits = [text[at : at + size] for at in range(0, len(text), size)]
    assert "".join([*map(wrap.feed, bits), wrap.end()]) == "\n".join(lines)


# What is told of a run whose process was lost


def at_work(*tools: str, **settings: object) -> MachineHarness:
    hand = MachineHarness(config(**settings))
    hand.say(*wished(*tools))
    return hand


def retrying() -> MachineHarness:
    hand = MachineHarness(config())
    hand.fail(Failure.OVERLOADED)
    return hand


def stopping() -> MachineHarness:
    hand = at_work("look")
    hand.interrupt()
    return hand


def unsafe(on_lost: OnLost = OnLost.REPORT) -> MachineHarness:
    """A run in which a write is at work, and another one waits to be asked about."""
    hand = MachineHarness(config(policy=Policy(on_lost=on_lost)))
    hand.say(*wished("write", "write"))
    hand.decide("write", Approve())
    return hand


def childless() -> MachineHarness:
    hand = at_work("send")
    hand.machine.reconfigure(config(children=()))
    return hand


def resting() -> MachineHarness:
    small = ModelSpec(name="wire:model", window=1_000)
    hand = MachineHarness(
        config(model=small, policy=Policy(on_max_tokens=OnMaxTokens.COMPACT)), "do it " * 400
    )
    hand.say("half", stop=StopReason.MAX_TOKENS)
    hand.fail(Failure.OVERLOADED)
    assert hand.label == "compacting.pausing"
    return hand


LOST: dict[str, Callable[[], MachineHarness]] = {
    "an answer": lambda: MachineHarness(config()),
    "a read": lambda: at_work("look"),
    "a read that was given up": stopping,
    "a tool that may have run": unsafe,
    "a tool that is asked about": lambda: unsafe(OnLost.ASK),
    "a child that is gone": childless,
    "a child": lambda: at_work("send"),
    "a question": lambda: at_work("write", policy=Policy(answer_within=9.0)),
    "a wait": retrying,
    "a wait for a summary": resting,
    "hooks": lambda: at_work("look", hooks=(HookSpec(name="guard", hook=Hook.PRE_TOOL_USE),)),
}


def test_each_is_shown_as_it_is_recorded() -> None:
    told = {name: shown(*notices) for name, notices in SHOWN.items()}
    told |= {f"with -v: {name}": shown(*notices, verbose=True) for name, notices in DETAILS.items()}
    for name, make in LOST.items():
        machine = make().machine
        lines = recovery_lines(machine, machine.config, 99.0)
        told[f"lost: {name}"] = "".join(f"{line}\n" for line in lines)
        tries = dict.fromkeys([try_name(each, machine) for each in machine.state.open], 9)
        again = "".join(f"{line}\n" for line in recovery_lines(machine, machine.config, 99.0, tries=tries))
        if again != told[f"lost: {name}"]:
            told[f"lost too often: {name}"] = again
    text = "".join(f"=== {name}\n{line}\n" for name, line in told.items())
    if os.environ.get("RECORD"):
        RECORDED.write_text(text, "utf-8")
    assert text == RECORDED.read_text("utf-8")
