"""The parts of the command line, each on its own: what is shown of what, and what typed words mean."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path

import attrs
import pytest

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    Deny,
    DoneReason,
    PermissionMode,
    Policy,
    Price,
    Rule,
    Session,
    SetMode,
    SetModel,
    SetThinking,
)
from turnwheel.apps.chat.commands import (
    Alter,
    Cancel,
    Edit,
    Explain,
    Quit,
    Reply,
    Say,
    ShowHelp,
    ShowQueue,
    Steer,
    Word,
    meaning,
)
from turnwheel.apps.chat.key_decoder import Key, KeyDecoder
from turnwheel.apps.chat.line_editor import MOST_ROWS, LineEditor, laid_out
from turnwheel.apps.chat.questions import Questions, meant
from turnwheel.apps.cli.call_report import account
from turnwheel.apps.cli.exit_codes import Exit
from turnwheel.apps.cli.option_types import (
    HookOption,
    hook,
    meant_question,
    priced_model,
    rule,
    short,
    span,
    thinking,
)
from turnwheel.apps.cli.run_table import branches
from turnwheel.apps.cli.run_table import meant as meant_run
from turnwheel.apps.cli.session_table import age, forest
from turnwheel.apps.cli.signals import Signals
from turnwheel.apps.terminal.approval_card import Question, card
from turnwheel.apps.terminal.call_summary import (
    essence,
    gist,
    preview,
    took,
)
from turnwheel.apps.terminal.countdown import countdown
from turnwheel.apps.terminal.notice_lines import decided
from turnwheel.apps.terminal.recovery_notes import told
from turnwheel.apps.terminal.sanitize import clean, first_lines, one_line
from turnwheel.apps.terminal.screen import Screen
from turnwheel.apps.terminal.spend_format import money
from turnwheel.apps.terminal.terminal import Terminal
from turnwheel.apps.terminal.wrap import Wrap
from turnwheel.effects.config import ModelSpec, OnLost, OnMaxTokens, Steering
from turnwheel.effects.errors import (
    ConfigError,
    StoreError,
    UnknownRequest,
    UnknownRun,
)
from turnwheel.effects.events import Decision, Failure, ModelFinished
from turnwheel.effects.hooks import (
    Hook,
    HookAnswer,
    HookSaid,
    HookSpec,
)
from turnwheel.effects.messages import (
    Outcome,
    StopReason,
    ToolCall,
    user,
)
from turnwheel.effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    ApprovalRequested,
    ApprovalResolved,
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
    InputReceived,
    InputTaken,
    InterruptRequested,
    LoopDetected,
    LoopStage,
    Notice,
    ReasoningDelta,
    RequestDelayed,
    ResultsCleared,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SettingChanged,
    SettingRefused,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Warned,
)
from turnwheel.effects.permissions import Basis, Verdict
from turnwheel.effects.records import MailKind
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.inspect.explain import Explanation, Moment
from turnwheel.engine.inspect.run_tree import RunInfo
from turnwheel.engine.journal.summary import SessionSummary
from turnwheel.engine.session.listing import Listed
from turnwheel.performers.base import PerformContext
from turnwheel.states.context import Mail
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import MachineHarness, config
from turnwheel.testing.harness import calls as wished
from turnwheel.testing.scripted import ScriptedModel, stalls
from turnwheel.testing.stores import FaultyStore


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own."""
    monkeypatch.chdir(tmp_path)


# The face


def shown(*notices: Notice, verbose: bool = False) -> str:
    """What a person is shown of *notices* in a pipe."""
    file = io.StringIO()
    mails = {
        "p": Mail(lane=MailKind.PROMPT, id="p", text="then\nthis", at=0.0),
        "s": Mail(lane=MailKind.STEER, id="s", text="not so", at=0.0, how=Steering.NOW),
    }
    face = Terminal(Screen(file), verbose=verbose, by="me", mail=mails.get)
    for notice in notices:
        face.notice(notice)
    return file.getvalue()


STARTED = ToolStarted(call="r-1", tool="read", arguments='{"path": "a"}')
ENDED = CallSettled(call="r-1", tool="read", outcome=Outcome.OK, content="     1\tx", seconds=1.25)
SPENT = Spent(turns=2, usage=Usage(input=1_000, output=300), cost=Decimal("0.01234"), seconds=4.5)


def of_child(call: str, *notices: Notice) -> list[Notice]:
    """The *notices* of the child on *call*."""
    return [AgentNoticed(call=call, notice=notice) for notice in notices]


ASKED = ApprovalRequested(request="r-5", call="r-4", tool="bash", arguments='{"command": "x"}')
SHOWN: dict[str, tuple[list[Notice], str]] = {
    "text as it came": ([TextDelta("one "), TextDelta("two\n"), TextDelta("three")], "one two\nthree"),
    "text, then a call": (
        [TextDelta("look"), STARTED, ENDED],
        "look\n\n● read a  #1\n  ⎿ 1 line  1.2 s\n\n",
    ),
    "thinking, then text": ([ReasoningDelta("hm"), TextDelta("\nso")], "hm\nso"),
    "two at once": (
        [STARTED, ToolStarted(call="r-2", tool="ls", arguments="{}"), ENDED],
        "● read a  #1\n● ls  #2\n● read a  #1\n  ⎿ 1 line  1.2 s\n\n",
    ),
    "a call that did not run": (
        [CallSettled(call="r-3", tool="bash", outcome=Outcome.SKIPPED, content="Skipped: why")],
        "● bash  #3\n  ⎿ Skipped: why\n\n",
    ),
    "a call that did not run, as it was wished": (
        [
            TurnEnded(
                turn=1,
                stop=StopReason.TOOL_USE,
                usage=Usage(),
                calls=(ToolCall(id="r-3", wire_id="c", name="bash", arguments='{"command": "rm x"}'),),
            ),
            CallSettled(
                call="r-3", tool="bash", outcome=Outcome.DENIED, content="Denied by a rule: deny bash."
            ),
        ],
        "● bash rm x  #3\n  ⎿ Denied by a rule: deny bash.\n\n",
    ),
    "progress": ([STARTED, ToolOutput(call="r-1", text="half\nway")], "● read a  #1\n  half way\n"),
    "a word between a call and its end": (
        [STARTED, Warned(text="odd"), ENDED],
        "● read a  #1\nodd\n● read a  #1\n  ⎿ 1 line  1.2 s\n\n",
    ),
    "a retry at once": ([RetryScheduled(attempt=2, due=0.0, failure=Failure.LOST, message="gone")], ""),
    "a broken answer": (
        [TextDelta("hal"), AnswerDropped(request="r")],
        "hal\n\nwhat the model said is void: its answer broke off\n",
    ),
    "an interrupt": ([InterruptRequested()], "stopping; Ctrl-C again leaves at once\n"),
    "a warning": ([Warned(text="odd")], "odd\n"),
    "a summary": (
        [CompactionStarted(size=9_000, reason="threshold"), Compacted(before=9_000, after=1_000)],
        "summarising the conversation (9,000 tokens)\nsummarised: 9,000 tokens are now 1,000\n",
    ),
    "another model": (
        [FallbackUsed(model="n", instead_of="m", failure=Failure.OVERLOADED, message="busy")],
        "overloaded: busy\nfrom now on n answers in place of m, until the run is over\n",
    ),
    "circles": (
        [
            LoopDetected(stage=LoopStage.WARNED, tools=("read",), count=3, text="read 3 times."),
            LoopDetected(stage=LoopStage.WARNED, tools=("read",), count=3, text="read 3 times."),
            LoopDetected(stage=LoopStage.WITHDRAWN, tools=("read",), count=5, text="no read."),
            LoopDetected(stage=LoopStage.WARNED, tools=("read",), count=5, text="read 5 times."),
            LoopDetected(stage=LoopStage.STOPPED, tools=("read",), count=8, text="stopped"),
        ],
        ("it goes in circles, and is told so: read 3 times.\nit goes in circles, and is told so: no read.\n"),
    ),
    "old results": (
        [ResultsCleared(count=1, tokens=900), ResultsCleared(count=11, tokens=9_000)],
        (
            "left out of what the model reads: 1 old tool result (about 900 tokens)\n"
            "left out of what the model reads: 11 old tool results (about 9,000 tokens)\n"
        ),
    ),
    "no summary": ([CompactionFailed(reason="too small")], "the conversation stays as it is: too small\n"),
    "a prompt that waits": ([InputReceived(id="p")], "'then\\nthis' waits for its turn\n"),
    "a steer": ([InputReceived(id="s")], "'not so' is read now\n"),
    "an input nobody knows": ([InputReceived(id="x")], ""),
    "what was taken": (
        [InputTaken(ids=("p", "s"), messages=(user("then\nthis"), user("not so")))],
        "> then\nthis\n\n> not so\n\n",
    ),
    "what a hook stopped": (
        [InputBlocked(ids=("p",), reason=""), InputBlocked(ids=("p",), reason="no")],
        "a hook did not let that in: it gave no reason\na hook did not let that in: no\n",
    ),
    "settings": (
        [
            SettingChanged(change=SetModel(model="m")),
            SettingChanged(change=SetMode(mode=PermissionMode.PLAN)),
            SettingChanged(change=SetThinking(tokens=4000)),
            SettingChanged(change=SetThinking(tokens=None)),
            SettingRefused(change=SetModel(model="m"), reason="no price"),
        ],
        (
            "from now on: model m\nfrom now on: mode plan\nfrom now on: thinking up to 4,000 tokens\n"
            "from now on: thinking as the provider does\nnot changed: model m: no price\n"
        ),
    ),
    "a hook at fault": (
        [
            HookEnded(
                request="r-1", hook=Hook.STOP, said=(HookSaid(name="h", fault="it broke"), HookSaid(name="g"))
            )
        ],
        "hook h has no say: it broke\n",
    ),
    "an answer of one's own": ([ASKED, ApprovalResolved(request="r-5", decision=Approve(), by="me")], ""),
    "an answer of somebody else's": (
        [ASKED, ApprovalResolved(request="r-5", decision=Deny(message="not now"), by="ann")],
        "#4 was answered by ann: no: not now\n",
    ),
    "a judgement": (
        [
            CallJudged(
                call="r-1", tool="read", verdict=Verdict.ALLOW, ground=Basis.TOOL, detail="it only reads"
            )
        ],
        "",
    ),
    "a child": (
        [
            AgentStarted(call="r-6", agent="scout", prompt="look around"),
            *of_child(
                "r-6",
                RunStarted(run="c", model="m", tools=(), at=0.0),
                TextDelta("hm"),
                STARTED,
                ENDED,
                CallSettled(call="c-2", tool="ls", outcome=Outcome.ERROR, content="no\nfolder"),
                FallbackUsed(model="n", instead_of="m", failure=Failure.SERVER, message="broke"),
                RunEnded(run="c", reason=DoneReason.END_TURN, spent=SPENT, at=9.0),
            ),
            CallSettled(call="r-6", tool="run_agent", outcome=Outcome.OK, content="found it"),
        ],
        (
            "● scout look around  #6\n  ● read a\n    ⎿ no folder\n  server: broke\n"
            "  from now on n answers in place of m, until the run is over\n"
            "  ⎿ found it\n    2 turns · 1,300 tokens · $0.0123 · 4.5 s\n\n"
        ),
    ),
    "two children": (
        [
            AgentStarted(call="r-6", agent="scout", prompt="north"),
            AgentStarted(call="r-7", agent="scout", prompt="south"),
            *of_child("r-6", STARTED),
            *of_child("r-7", STARTED, RunEnded(run="d", reason=DoneReason.MAX_TURNS, spent=Spent(), at=9.0)),
            CallSettled(call="r-7", tool="run_agent", outcome=Outcome.OK, content="half"),
            *of_child("r-6", STARTED),
        ],
        (
            "● scout north  #6\n● scout south  #7\n  #6 ● read a\n  #7 ● read a\n"
            "  ⎿ half\n    ended: max_turns · 0 turns · 0 tokens · $0\n\n  #6 ● read a\n"
        ),
    ),
    "a child that goes on where a lost process was": (
        [*of_child("r-6", TextDelta("hm")), *of_child("r-6", STARTED)],
        "● a child  #6\n  ● read a\n",
    ),
}


DETAILS: dict[str, tuple[Notice, str]] = {
    "a judgement": (
        CallJudged(call="r-1", tool="read", verdict=Verdict.ALLOW, ground=Basis.TOOL, detail="it only reads"),
        "#1 read: allow, by tool: it only reads\n",
    ),
    "one without a reason": (
        CallJudged(call="r-1", tool="read", verdict=Verdict.ALLOW, ground=Basis.PERSON),
        "#1 read: allow, by person\n",
    ),
    "hooks": (HookAsked(request="r", hook=Hook.STOP, names=("a", "b")), "stop: a, b\n"),
    "answers": (
        HookEnded(
            request="r",
            hook=Hook.PRE_TOOL_USE,
            said=(
                HookSaid(name="a"),
                HookSaid(name="b", answer=HookAnswer(verdict="deny", reason="no", interrupt=True)),
                HookSaid(name="c", answer=HookAnswer(arguments="{}", context="mind")),
                HookSaid(name="d", answer=HookAnswer(go_on=True, reason="more")),
                HookSaid(name="e", fault="broke"),
            ),
        ),
        (
            "hook e has no say: broke\nhook a: nothing to say\nhook b: deny, because no, and stop\n"
            "hook c: arguments {}, context mind\nhook d: go on: more\n"
        ),
    ),
    "what came too late": (Ignored(event="TimerFired", state="done"), "TimerFired came too late for done\n"),
}


@pytest.mark.parametrize("name", DETAILS)
def test_whoever_wants_to_know_is_told_more(name: str) -> None:
    """What else there is, where it is asked for."""
    notice, text = DETAILS[name]
    assert shown(notice, verbose=True) == text


@pytest.mark.parametrize("name", SHOWN)
def test_a_notice_is_shown_as_a_person_reads_it(name: str) -> None:
    """Whatever follows whatever, lines begin where lines begin."""
    notices, text = SHOWN[name]
    assert shown(*notices) == text


OVERLOADED = RetryScheduled(attempt=2, due=0.0, failure=Failure.OVERLOADED, message="busy")
HELD = RequestDelayed(request="r-1", due=0.0, reason="m said 429")


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
        (AgentNoticed(call="r-6", notice=HELD), 12, "● a child  #6\n  m said 429 · asked in 12 s\n"),
    ],
)
def test_a_wait_says_why_and_how_long(
    notice: RetryScheduled | RequestDelayed | AgentNoticed, seconds: float, line: str
) -> None:
    """One that takes longer says until when, too; one that is over before it is read is not told."""
    due = time.time() + seconds
    if isinstance(notice, AgentNoticed):
        assert isinstance(notice.notice, RequestDelayed)
        text = shown(attrs.evolve(notice, notice=attrs.evolve(notice.notice, due=due)))
    else:
        text = shown(attrs.evolve(notice, due=due))
    assert text == line.replace("TIME", time.strftime("%H:%M:%S", time.localtime(due)))


def test_a_wait_is_counted_down() -> None:
    """To the second, and then it says what is done."""
    now = time.time()
    assert countdown(attrs.evolve(OVERLOADED, due=now + 75))() == "try 2 in 1 min 15 s"
    assert countdown(attrs.evolve(OVERLOADED, due=now + 8))() == "try 2 in 8 s"
    assert countdown(attrs.evolve(HELD, due=now - 1))() == "asked"


@pytest.mark.parametrize(
    ("cost", "tokens", "unpriced", "said"),
    [
        ("0", 0, 0, "$0"),
        ("0", 1_300, 0, "$0"),
        ("0", 1_300, 1_300, "no price known"),
        ("0", 5_500, 4_200, "$0 + 4,200 tokens without a price"),
        ("0.01234", 1_300, 0, "$0.0123"),
        ("0.01234", 5_500, 4_200, "$0.0123 + 4,200 tokens without a price"),
        ("0.00001", 10, 1, "<$0.0001 + 1 token without a price"),
        ("1234.5", 10, 0, "$1,234.5000"),
    ],
)
def test_money_is_told_as_far_as_prices_are_known(cost: str, tokens: int, unpriced: int, said: str) -> None:
    """What has no price is no nothing."""
    spent = Spent(usage=Usage(input=tokens), cost=Decimal(cost), unpriced=unpriced)
    assert money(spent) == said


def test_what_comes_during_a_question_is_shown_behind_it() -> None:
    """In the order in which it came."""
    file = io.StringIO()
    face = Terminal(Screen(file))
    face.notice(STARTED)
    face.hold()
    face.notice(ENDED)
    face.notice(Warned(text="odd"))
    assert file.getvalue() == "● read a  #1\n"
    face.release()
    assert file.getvalue() == "● read a  #1\n  ⎿ 1 line  1.2 s\n\nodd\n"


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
    """However small the bits are in which it comes; what is wider than a line is left to the terminal."""
    wrap = Wrap(lambda: 11)
    bits = [text[at : at + size] for at in range(0, len(text), size)]
    assert "".join([*map(wrap.feed, bits), wrap.end()]) == "\n".join(lines)


def test_a_long_prompt_is_cut() -> None:
    """Whoever wrote it knows it."""
    taken = InputTaken(ids=("p",), messages=(user("\n".join("abcdefghij")),))
    assert shown(taken) == "> a\nb\nc\nd\ne\nf\n... 4 more lines\n\n"


def test_it_begins_with_who_is_asked() -> None:
    """And what else is to be known."""
    file = io.StringIO()
    Terminal(Screen(file)).begin("m", "s", "mode plan")
    assert file.getvalue() == "m  session s  mode plan\n\n"


# The small parts


@pytest.mark.parametrize(
    ("text", "tool", "where"),
    [
        ("bash", "bash", ()),
        ("mcp_*", "mcp_*", ()),
        ("write:path=*.md", "write", (("path", "*.md"),)),
        ("x:a=1,2,b=c=d", "x", (("a", "1,2"), ("b", "c=d"))),
        ("x:a=", "x", (("a", ""),)),
    ],
)
@pytest.mark.parametrize("verdict", Verdict)
def test_a_rule_is_read(text: str, tool: str, where: tuple[tuple[str, str], ...], verdict: Verdict) -> None:
    """Globs may hold commas and equals signs."""
    assert rule(text, verdict) == Rule(verdict=verdict, tool=tool, where=where)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("stop=./done.sh", HookOption(at=Hook.STOP, command=("./done.sh",))),
        (
            "pre_tool_use:b*=check 'a b' c=d",
            HookOption(at=Hook.PRE_TOOL_USE, tool="b*", command=("check", "a b", "c=d")),
        ),
    ],
)
def test_a_hook_is_read_and_told_again(text: str, option: HookOption) -> None:
    """As it has to be told to go on with a session."""
    assert hook(text) == option
    assert hook(str(option)) == option


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("openai:x", ModelSpec(name="openai:x")),
        ("openai:x=1,2.5", ModelSpec(name="openai:x", price=Price(input=1, output=2.5))),
    ],
)
def test_a_model_is_read_with_its_price(text: str, spec: ModelSpec) -> None:
    """Where it has one."""
    assert priced_model(text) == spec


@pytest.mark.parametrize(("text", "tokens"), [("off", None), ("1", 1), ("32000", 32_000)])
def test_a_budget_to_think_is_read(text: str, tokens: int | None) -> None:
    """Off is the provider's own way."""
    assert thinking(text) == tokens


@pytest.mark.parametrize("text", ["0", "-1", "much", "1.5", "", "9999999999"])
def test_no_budget_is_none(text: str) -> None:
    """It is told what is one."""
    with pytest.raises(ValueError, match="write one above 0, or off"):
        thinking(text)


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("r-5", "r-5"),
        ("5", "r-5"),
        ("r-4", "r-5"),
        ("4", "r-5"),
        ("#4", "r-5"),
        ("6", None),
        ("", None),
        ("x", None),
    ],
)
def test_a_question_goes_by_its_own_number_or_its_calls(name: str, request_: str | None) -> None:
    """Which never are the same, since they are counted together."""
    assert meant_question(name, {"r-5": "r-4", "r-9": "r-8"}) == request_


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("dos\r\nlines", "dos\nlines"),
        ("over\rwritten", r"over\x0dwritten"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b\x00\x7f", r"\x9b\x00\x7f"),
        ("a\u202eb\u2066", r"a\u202eb\u2066"),
        ("\udcff", r"\udcff"),
        ("日本 👩\u200d🔬 é", "日本 👩\u200d🔬 é"),
    ],
)
def test_only_what_a_terminal_obeys_is_changed(raw: str, shown: str) -> None:
    """Controls, C1, what turns the order of reading, halves of characters; never a letter."""
    assert clean(raw) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "width", "line"),
    [
        ("short", 10, "short"),
        ("a\n  b\tc", 10, "a b c"),
        ("0123456789a", 10, "0123456..."),
        ("日本語日本語", 10, "日本語..."),
    ],
)
def test_a_line_fits(text: str, width: int, line: str) -> None:
    """Counted in columns."""
    assert one_line(text, width) == line


def test_lines_beyond_are_counted() -> None:
    """And not shown."""
    assert first_lines("a\nb\nc\n", 2) == (["a", "b"], 1)


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("read", '{"path": "a b", "offset": 3}', "a b"),
        ("grep", '{"pattern": "x", "glob": "*.py"}', "x *.py"),
        ("bash", '{"command": "ls\\nrm x"}', "ls rm x"),
        ("other", '{"n": 1, "s": "t", "l": [true]}', "n=1 s=t l=[true]"),
        ("other", "{", "{"),
        ("other", "{}", ""),
    ],
)
def test_what_a_call_is_about_fits_a_line(tool: str, arguments: str, line: str) -> None:
    """The essential arguments of a tool that is known, all of another."""
    assert essence(tool, arguments, 80) == line


@pytest.mark.parametrize(
    ("tool", "outcome", "content", "line"),
    [
        ("read", Outcome.OK, "     1\ta\n     2\tb", "2 lines"),
        ("read", Outcome.OK, "[the file is empty]", "[the file is empty]"),
        (
            "grep",
            Outcome.OK,
            "a:1: x\n[stopped after 1; narrow the search]",
            "1 match [stopped after 1; narrow the search]",
        ),
        ("ls", Outcome.OK, "a\nb", "2 entries"),
        ("bash", Outcome.OK, "one\ntwo\n[exit code 0]", "two (2 lines)"),
        ("bash", Outcome.OK, "no\n[exit code 1]", "no [exit code 1]"),
        ("bash", Outcome.OK, "[exit code 0]", "no output"),
        ("write", Outcome.OK, "wrote 3 bytes to a", "wrote 3 bytes to a"),
        ("other", Outcome.OK, "one\ntwo\nthree", "one (+2 lines)"),
        ("other", Outcome.OK, "", "no output"),
        ("read", Outcome.ERROR, "Tool raised an exception:\nno", "Tool raised an exception: no"),
    ],
)
def test_what_came_of_a_call_fits_a_line(tool: str, outcome: Outcome, content: str, line: str) -> None:
    """Its size, its end or its beginning, whichever says most."""
    assert gist(tool, outcome, content, 80) == line


def test_a_change_is_shown_as_a_change() -> None:
    """Of a file that is there, what goes and what comes; of a new one, all of it."""
    Path("a.txt").write_text("one\ntwo\n-- three\nfour\n", "utf-8")
    same = json.dumps({"path": "a.txt", "content": "one\ntwo\n-- three\nfour\n"})
    other = json.dumps({"path": "a.txt", "content": "one\nTWO\nfour\n"})
    new = json.dumps({"path": "b.txt", "content": "x\ny"})
    assert preview("write", same, Path()) == [(" ", "nothing changes")]
    assert preview("write", other, Path()) == [
        (" ", "one"),
        ("-", "two"),
        ("-", "-- three"),
        ("+", "TWO"),
        (" ", "four"),
    ]
    assert preview("write", new, Path()) == [("+", "x"), ("+", "y")]


@pytest.mark.parametrize(
    ("tool", "arguments", "lines"),
    [
        ("bash", {"command": "a\nb", "timeout": 3}, [("$", "a"), ("$", "b"), (" ", "timeout: 3")]),
        (
            "edit",
            {"path": "a", "old": "x", "new": "y", "all": True},
            [("-", "x"), ("+", "y"), (" ", "all: true")],
        ),
        ("other", {"a": "1\n2", "b": None}, [(" ", "a: 1"), (" ", "2"), (" ", "b: null")]),
        ("write", {"path": "../../etc", "content": "\x1b"}, [("+", r"\x1b")]),
    ],
)
def test_a_call_is_shown_before_it_is_approved(
    tool: str, arguments: dict[str, object], lines: list[tuple[str, str]]
) -> None:
    """All that it would do, cleaned."""
    assert preview(tool, json.dumps(arguments), Path()) == lines


def test_a_long_preview_is_cut_and_says_so() -> None:
    """A command less soon than a text."""
    text = "\n".join(map(str, range(100)))
    assert preview("bash", json.dumps({"command": text}), Path())[-1] == (" ", "... 40 more lines")
    assert preview("write", json.dumps({"path": "n", "content": text}), Path())[-1] == (
        " ",
        "... 76 more lines",
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "just now"), (60, "1 minute ago"), (7_300, "2 hours ago"), (90_000, "1 day ago")],
)
def test_an_age_is_told_roughly(seconds: float, said: str) -> None:
    """In the largest unit there is one of."""
    assert age(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0001, "1 ms"), (0.0349, "35 ms"), (1.24, "1.2 s"), (59.9, "59.9 s"), (125.2, "2 min 5 s")],
)
def test_a_time_is_told_in_a_unit_that_says_something(seconds: float, said: str) -> None:
    """A read takes milliseconds and a build takes minutes."""
    assert took(seconds) == said


# A line that is typed


KEYS: dict[str, tuple[bytes, list[Key | str]]] = {
    "text": (b"abc", ["abc"]),
    "text with letters of many bytes": ("hä日".encode(), ["hä日"]),
    "a line": (b"ab\r", ["ab", Key.ENTER]),
    "where the terminal makes one of it": (b"ab\n", ["ab", Key.ENTER]),
    "arrows": (b"\x1b[A\x1b[B\x1bOC\x1bOD", [Key.UP, Key.DOWN, Key.RIGHT, Key.LEFT]),
    "words": (b"\x1bb\x1bf\x1b[1;5D\x17", [Key.WORD_LEFT, Key.WORD_RIGHT, Key.WORD_LEFT, Key.DELETE_WORD]),
    "keys of Emacs": (
        b"\x01\x05\x0b\x15\x04",
        [Key.HOME, Key.END, Key.DELETE_BEHIND, Key.DELETE_BEFORE, Key.END_OF_INPUT],
    ),
    "another line": (b"a\x1b\rb", ["a", Key.NEWLINE, "b"]),
    "a paste": (b"a\x1b[200~one\r\ntwo\rthree\n\x1b[201~b\r", ["a", "one\ntwo\nthree\n", "b", Key.ENTER]),
    "what means nothing": (b"\x1b[5~a\x1b[<0;1;1Mb\x0c\x1bx\t", ["a", "b"]),
    "a torn letter": (b"a\xe6", ["a"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_read_from_bytes(name: str) -> None:
    """Whole, and one byte at a time: text comes in bits then, keys do not."""
    data, keys = KEYS[name]
    assert list(KeyDecoder().feed(data)) == keys
    one_by_one = KeyDecoder()
    found = [key for byte in data for key in one_by_one.feed(bytes([byte]))]
    assert [key for key in found if isinstance(key, Key)] == [key for key in keys if isinstance(key, Key)]
    assert "".join(key for key in found if not isinstance(key, Key)) == "".join(
        key for key in keys if not isinstance(key, Key)
    )


def line(text: str = "", *keys: Key | str, before: tuple[str, ...] = ()) -> LineEditor:
    """A line in which *text* and then *keys* were typed."""
    made = LineEditor(list(before), iter(range(100)).__next__)
    for key in (text, *keys):
        if isinstance(key, Key):
            made.press(key)
        else:
            made.put(key)
    return made


@pytest.mark.parametrize(
    ("text", "keys", "left"),
    [
        ("abc", [Key.LEFT, "x"], "abx|c"),
        ("abc", [Key.HOME, Key.RIGHT, "x"], "ax|bc"),
        ("abc", [Key.HOME, Key.LEFT, Key.BACKSPACE, Key.DELETE], "|bc"),
        ("abc", [Key.BACKSPACE, Key.RIGHT, Key.DELETE], "ab|"),
        ("one two  ", [Key.DELETE_WORD], "one |"),
        ("one two", [Key.WORD_LEFT, Key.WORD_LEFT, Key.WORD_RIGHT], "one| two"),
        ("one two", [Key.WORD_LEFT, Key.DELETE_BEFORE], "|two"),
        ("one two", [Key.WORD_LEFT, Key.DELETE_BEHIND], "one |"),
        ("one", [Key.NEWLINE, "two", Key.HOME, Key.LEFT, Key.HOME, Key.END], "one|\ntwo"),
        ("e\u0301x", [Key.LEFT, Key.LEFT, Key.DELETE], "|x"),
        ("", [Key.UP], "second|"),
        ("dra", [Key.UP, Key.UP, Key.UP], "first|"),
        ("dra", [Key.UP, Key.DOWN, "ft"], "draft|"),
        ("dra", [Key.DOWN], "dra|"),
    ],
)
def test_a_line_is_edited(text: str, keys: list[Key | str], left: str) -> None:
    """As in a shell; what is being typed is not lost by looking back."""
    made = line(text, *keys, before=("first", "second"))
    assert f"{made.text[: made.caret]}|{made.text[made.caret :]}" == left


def test_a_line_that_was_sent_can_be_brought_back() -> None:
    """Once, however often it was sent."""
    before: list[str] = []
    for _ in range(2):
        made = LineEditor(before, time.monotonic)
        made.put("again")
        assert made.take() == "again"
        assert made.text == ""
    assert before == ["again"]


def test_a_line_knows_when_it_was_begun() -> None:
    """Anew where it was emptied, and where it was brought back: that is when somebody decided to send it."""
    made = line("a", "b", before=("old",))
    assert made.started == 0
    made.clear()
    made.put("c")
    assert made.started == 1
    made.press(Key.UP)
    assert made.started == 2


@pytest.mark.parametrize(
    ("text", "caret", "laid"),
    [
        ("abc", 3, (["abc"], 0, 3)),
        ("abcdef", 2, (["abcde", "f"], 0, 2)),
        ("abcdef", 5, (["abcde", "f"], 1, 0)),
        ("abcde", 5, (["abcde", ""], 1, 0)),
        ("ab\ncd", 2, (["ab", "cd"], 0, 2)),
        ("ab\ncd", 3, (["ab", "cd"], 1, 0)),
        ("ab\n", 3, (["ab", ""], 1, 0)),
        ("日本語", 3, (["日本", "語"], 1, 2)),
        ("a\x1bb", 3, (["a\\x1b", "b"], 1, 1)),
        ("", 0, ([""], 0, 0)),
    ],
)
def test_a_line_is_laid_out_on_rows(text: str, caret: int, laid: tuple[list[str], int, int]) -> None:
    """Of five columns here; nothing in it moves the cursor but the caret."""
    assert laid_out(text, caret, 5) == laid


@pytest.mark.parametrize(("caret", "first"), [(0, 0), (40, 16), (20, 6)])
def test_of_a_long_line_the_rows_around_the_caret_are_shown(caret: int, first: int) -> None:
    """No more than fit below a conversation."""
    text = "\n".join("abcdefghijklmnopqrstuvwx")
    rows, row, _ = laid_out(text, min(caret, len(text)), 5)
    assert len(rows) == MOST_ROWS
    assert rows[0] == text.split("\n")[first]
    assert rows[row] == text.split("\n")[first + row]


# What a line means

MEANINGS: list[tuple[str, Word]] = [
    ("do it", Say("do it")),
    ("  y ", Say("y")),
    (" /help", Say("/help")),
    ("!no", Steer("no", Steering.NOW)),
    ("!> no", Steer("no", Steering.AFTER_TOOL)),
    ("!>>no", Steer("no", Steering.WHEN_DONE)),
    ("/model openai:x", Alter(SetModel(model="openai:x"))),
    ("/mode plan", Alter(SetMode(mode=PermissionMode.PLAN))),
    ("/think 99", Alter(SetThinking(tokens=99))),
    ("/think off", Alter(SetThinking(tokens=None))),
    ("/cancel #7", Cancel("#7")),
    ("/why 7", Explain("7")),
    ("/queue", ShowQueue()),
    ("/help ", ShowHelp()),
    ("/quit", Quit()),
]
ANSWERS: list[tuple[str, Word]] = [
    ("y", Reply("", Approve())),
    ("yes", Reply("", Approve())),
    ("y 7", Reply("7", Approve())),
    ("y #7", Reply("7", Approve())),
    ("y all", Reply("all", Approve())),
    ("n", Reply("", Deny())),
    ("n not now", Reply("", Deny(message="not now"))),
    ("no 7 not\nnow", Reply("7", Deny(message="not\nnow"))),
    ("n 7up is fine", Reply("", Deny(message="7up is fine"))),
    ("s", Reply("", Deny(interrupt=True))),
    ("stop that", Reply("", Deny(message="that", interrupt=True))),
    ("a", Reply("", ApproveAlways())),
    ("always 7", Reply("7", ApproveAlways())),
    ("a path=docs/*,content=x", Reply("", ApproveAlways(where=(("path", "docs/*"), ("content", "x"))))),
    ("e", Edit("", "")),
    ("e 7", Edit("7", "")),
    ('e {"a": 1}', Edit("", '{"a": 1}')),
]
SENTENCES = ["a small thing", "yes please", "edit the file", "nothing", "always use tabs", "you", "e 7 x"]


@pytest.mark.parametrize(("text", "word"), MEANINGS)
@pytest.mark.parametrize("asked", [False, True], ids=["idle", "asked"])
def test_a_line_has_a_meaning(text: str, word: Word, *, asked: bool) -> None:
    """Whether or not a question is open."""
    assert meaning(text, asked=asked) == word


@pytest.mark.parametrize(("text", "word"), ANSWERS)
def test_a_letter_answers_a_question(text: str, word: Word) -> None:
    """Where there is one; else it is said as any other text."""
    assert meaning(text, asked=True) == word
    assert meaning(text, asked=False) == Say(text)


@pytest.mark.parametrize("text", SENTENCES)
def test_a_sentence_is_no_answer(text: str) -> None:
    """However it begins: nothing is approved by chance."""
    assert meaning(text, asked=True) == Say(text)


# Questions that are open


def asked(*calls: str) -> Questions:
    """Questions about *calls*, of which each came a second after the one before."""
    questions = Questions(iter(range(100)).__next__)
    for call in calls:
        notice = ApprovalRequested(request=f"r-{call}0", call=f"r-{call}", tool="bash", arguments="{}")
        questions.add(notice, None)
    return questions


def test_the_only_question_needs_no_name() -> None:
    """Of several each has one, and all together."""
    assert [one.name for one in asked("1").named("", 9.0)] == ["1"]
    assert [one.name for one in asked("1", "2").named("2", 9.0)] == ["2"]
    assert [one.name for one in asked("1", "2").named("all", 9.0)] == ["1", "2"]
    with pytest.raises(ConfigError, match="2 questions are open: say which one, 1 or 2, or all"):
        asked("1", "2").named("", 9.0)
    with pytest.raises(UnknownRequest, match="no open question '3'; open: '1', '2'"):
        asked("1", "2").named("3", 9.0)


def test_nobody_says_yes_to_what_they_have_not_seen() -> None:
    """A question that came after a line was begun is not answered by it, nor one that has gone."""
    with pytest.raises(ConfigError, match="came while you typed"):
        asked("1").named("", -1.0)
    questions = asked("1")
    assert questions.close("r-10") is not None
    assert questions.close("r-10") is None
    with pytest.raises(ConfigError, match="no question is open any more"):
        questions.named("", 9.0)


def test_a_yes_to_edited_arguments_says_which() -> None:
    """Always would say something of calls that nobody has seen."""
    questions = asked("1")
    (question,) = questions.named("", 9.0)
    edited = questions.edit(question, '{"a": 1}', {})
    assert questions.open == (edited,)
    assert meant(edited, Approve()) == Approve(arguments='{"a": 1}')
    assert meant(edited, Deny()) == Deny()
    assert meant(question, Approve()) == Approve()
    with pytest.raises(ConfigError, match="say y to this one"):
        meant(edited, ApproveAlways())
    with pytest.raises(ConfigError, match="no JSON object"):
        questions.edit(question, "[]", {})


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Approve(), "yes"),
        (Approve(arguments="{}"), "yes, with {}"),
        (ApproveAlways(), "yes, always"),
        (ApproveAlways(where=(("a", "b*"), ("c", "d"))), "yes, always where a=b*,c=d"),
        (Deny(), "no"),
        (Deny(message="why"), "no: why"),
        (Deny(message="why", interrupt=True), "no, and stop: why"),
    ],
)
def test_a_decision_is_told_in_words(decision: Decision, said: str) -> None:
    """All of it."""
    assert decided(decision) == said


def test_a_card_shows_what_would_be_done_and_why_it_is_asked() -> None:
    """The latter where it is not the nature of the tool, or where somebody wants to know."""
    question = Question(
        request="r-2",
        call="r-1",
        tool="write",
        arguments='{"path": "a.txt", "content": "x"}',
        why="rule: ask write",
        within=30.0,
    )
    lines = [text.plain for text in card(question, Path(), 80)]
    assert lines == ["? write a.txt  #1", "  + x", "  rule: ask write; a no after 30 s"]
    plain = Question(request="r-2", call="r-1", tool="write", arguments="{}", why="tool: it changes things")
    assert [text.plain for text in card(plain, Path(), 80)] == ["? write  #1", "    {}"]
    assert [text.plain for text in card(plain, Path(), 80, told=True)][-1] == "  tool: it changes things"


def test_a_card_says_that_a_call_may_have_run() -> None:
    """In words that nobody overlooks; and always is no answer to it."""
    question = Question(
        request="r-2", call="r-1", tool="pay", arguments="{}", why=f"lost: {model_messages.AGAIN}"
    )
    assert [text.plain for text in card(question, Path(), 80, told=True)] == [
        "? pay  #1",
        "    {}",
        "  it may have run when its process was lost; run it again?",
    ]
    assert meant(question, Approve()) == Approve()
    with pytest.raises(ConfigError, match="say y to run this one again"):
        meant(question, ApproveAlways())


def test_the_account_of_a_call_is_told_with_its_times() -> None:
    """What lies between two moments, where anything does."""
    moments = (
        Moment(at=0.0, what="wished", text="bash {}"),
        Moment(at=0.0, what="judged", text="ask"),
        Moment(at=90.0, what="ended", text="ok: one\ntwo"),
    )
    found = Explanation(session="s", call="r-1", tool="bash", arguments="{}", moments=moments)
    lines = [re.sub(r"[-\d]{10} [:\d]{8}", "AT", row) for row in account(found)]
    assert lines == [
        "bash  r-1, session s",
        "  AT  wished  bash {}",
        "  AT  judged  ask",
        "  AT  ended   ok: one  +1 min 30 s",
        "                               two",
    ]


# What there is, as trees


def listed(session: str, parent: str = "") -> Listed:
    """A stored session that comes from *parent*."""
    return Listed(session=session, created=0.0, updated=0.0, about=SessionSummary(parent=parent))


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ([listed("b"), listed("a")], [(0, "b"), (0, "a")]),
        ([listed("a.1", "a"), listed("b"), listed("a")], [(0, "a"), (1, "a.1"), (0, "b")]),
        (
            [listed("c", "b"), listed("d", "a"), listed("b", "a"), listed("a")],
            [(0, "a"), (1, "d"), (1, "b"), (2, "c")],
        ),
        ([listed("b", "gone")], [(0, "b")]),
        ([listed("a", "b"), listed("b", "a")], [(0, "b"), (1, "a")]),
        ([listed("a", "a")], [(0, "a")]),
    ],
    ids=["alone", "a child", "forks of forks", "an orphan", "each from the other", "from itself"],
)
def test_sessions_stand_below_those_they_come_from(found: list[Listed], shown: list[tuple[int, str]]) -> None:
    """Each once, a family where its first member would; none is lost."""
    assert [(depth, one.session) for depth, one in forest(found)] == shown


def ran(run: str, parent: str = "", *, here: bool = False) -> RunInfo:
    """A run that goes on from *parent*."""
    return RunInfo(run=run, parent=parent, prompt="", at=0.0, current=here)


@pytest.mark.parametrize(
    ("runs", "shown"),
    [
        ([ran("a"), ran("b", "a", here=True)], [(0, "a"), (0, "b")]),
        ([ran("a"), ran("b", "a"), ran("c", "a", here=True)], [(0, "a"), (1, "b"), (0, "c")]),
        ([ran("a"), ran("b", "a", here=True), ran("c", "a")], [(0, "a"), (1, "c"), (0, "b")]),
        (
            [ran("a"), ran("b", "a"), ran("c", "b"), ran("d", "b"), ran("e", "a", here=True)],
            [(0, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "e")],
        ),
        ([ran("a"), ran("b", here=True)], [(0, ""), (1, "a"), (0, "b")]),
        ([ran("a")], [(0, ""), (0, "a")]),
        ([], [(0, "")]),
    ],
    ids=["a line", "left", "gone back to", "left in what was left", "two beginnings", "at its start", "none"],
)
def test_runs_that_were_left_are_set_in(runs: list[RunInfo], shown: list[tuple[int, str]]) -> None:
    """The way to where the session stands is one line, however long it is."""
    assert [(depth, "" if run is None else run.run) for depth, run in branches(runs)] == shown


def test_a_long_line_of_runs_is_no_deep_one() -> None:
    """It does not matter how many there are."""
    runs = [ran(str(number), str(number - 1) if number else "") for number in range(3_000)]
    assert {depth for depth, _ in branches([*runs[:-1], attrs.evolve(runs[-1], current=True)])} == {0}


@pytest.mark.parametrize(
    ("name", "run"), [("abc", "abc"), ("abd", "abd"), ("ab", None), ("b", "b-1"), ("start", ""), ("", None)]
)
def test_a_run_goes_by_how_its_id_begins(name: str, run: str | None) -> None:
    """Where that is sure."""
    runs = [ran("abc"), ran("abd"), ran("b-1")]
    if run is None:
        with pytest.raises(UnknownRun):
            meant_run(name, runs)
    else:
        assert meant_run(name, runs) == run


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("90 m", 5_400), ("12h", 43_200), ("2w", 1_209_600)]
)
def test_a_span_of_time_is_read(text: str, seconds: float) -> None:
    """A number and its unit."""
    assert span(text) == seconds


@pytest.mark.parametrize(
    ("id_", "name"), [("4f2a-7", "7"), ("4f2a-7-3", "7-3"), ("12-3", "3"), ("a-b-1", "1")]
)
def test_a_call_has_a_short_name(id_: str, name: str) -> None:
    """That of a child's stands behind its parent's."""
    assert short(id_) == name


# What is told of a run whose process was lost


def at_work(*tools: str, **settings: object) -> MachineHarness:
    """A run whose model wanted *tools*."""
    hand = MachineHarness(config(**settings))
    hand.say(*wished(*tools))
    return hand


def retrying() -> MachineHarness:
    """A run that waits to ask the model again."""
    hand = MachineHarness(config())
    hand.fail(Failure.OVERLOADED)
    return hand


def stopping() -> MachineHarness:
    """A run that was interrupted while a read was at work."""
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
    """A run whose child is configured no more."""
    hand = at_work("send")
    hand.machine.reconfigure(config(children=()))
    return hand


def resting() -> MachineHarness:
    """A run that waits to ask for its summary again."""
    small = ModelSpec(name="wire:model", window=1_000)
    hand = MachineHarness(
        config(model=small, policy=Policy(on_max_tokens=OnMaxTokens.COMPACT)), "do it " * 400
    )
    hand.say("half", stop=StopReason.MAX_TOKENS)
    hand.fail(Failure.OVERLOADED)
    assert hand.label == "compacting.pausing"
    return hand


LOST: dict[str, tuple[Callable[[], MachineHarness], list[str]]] = {
    "an answer": (
        lambda: MachineHarness(config()),
        ["recovered: the answer that was under way is lost, the model is asked again"],
    ),
    "a read": (lambda: at_work("look"), ["recovered: look path=a agent=kid prompt=go - is run again"]),
    "a read that was given up": (stopping, ["recovered: look path=a agent=kid prompt=go - cancelled"]),
    "a tool that may have run": (
        unsafe,
        ["recovered: write a - it may have run and is not run again"],
    ),
    "a tool that is asked about": (
        lambda: unsafe(OnLost.ASK),
        ["recovered: write a - it may have run; you are asked about it"],
    ),
    "a child that is gone": (
        childless,
        ["recovered: send path=a agent=kid prompt=go - it is not there any more, and may have run"],
    ),
    "a child": (lambda: at_work("send"), ["recovered: agent kid - goes on"]),
    "a question": (lambda: at_work("write", policy=Policy(answer_within=9.0)), []),
    "a wait": (retrying, ["recovered: the model is asked again when its time has come"]),
    "a wait for a summary": (resting, ["recovered: the model is asked again when its time has come"]),
    "hooks": (
        lambda: at_work("look", hooks=(HookSpec(name="guard", hook=Hook.PRE_TOOL_USE),)),
        ["recovered: hooks are asked again: guard"],
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_what_becomes_of_lost_work_is_told(name: str) -> None:
    """A line for each piece of it; a question is simply asked again."""
    make, lines = LOST[name]
    machine = make().machine
    assert list(told(machine, machine.config, 99.0)) == lines


# Ctrl-C


async def worked(session: Session, signals: Signals, **on: Callable[[], object]) -> None:
    """Run *session* until it is over or a signal ends that; *on* a notice of that name, do something."""

    async def work() -> Exit:
        signals.interrupts(session)
        async with aclosing(session.stream("hi")) as notices:
            async for notice in notices:
                on.get(type(notice).__name__, lambda: None)()
        return Exit.ENDED

    await signals.heeded(work)


def press() -> None:
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


async def test_ctrl_c_interrupts_the_run() -> None:
    """It ends as one that was interrupted, and nothing else does."""
    agent = Agent(model="m", performers={CallModel: ScriptedModel(stalls("so"))})
    signals = Signals()
    async with agent.session() as session:
        await worked(session, signals, TextDelta=press)
        assert session.result().reason is DoneReason.INTERRUPTED
    assert signals.ended_by is None


async def test_the_third_ctrl_c_leaves() -> None:
    """Where something is slow to stop, whoever leaves is not asked again what comes next."""
    signals, over = Signals(), asyncio.Event()

    async def slow(request: CallModel, scene: PerformContext) -> ModelFinished:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()
        return ModelFinished(
            at=scene.clock.now(), request=request.id, stop=StopReason.END_TURN, usage=Usage()
        )

    async def let_it_stop() -> None:
        while signals.ended_by is None:  # noqa: ASYNC110  # a signal sets it, and no event
            await asyncio.sleep(0)
        over.set()

    loop = asyncio.get_running_loop()
    stops = asyncio.ensure_future(let_it_stop())
    async with Agent(model="m", performers={CallModel: slow}).session() as session:
        third = partial(loop.call_soon, press)
        await worked(session, signals, ModelCalled=press, InterruptRequested=press, RunEnded=third)
    await stops
    assert signals.ended_by is Exit.INTERRUPTED


async def test_an_interrupt_that_cannot_be_kept_is_told() -> None:
    """Whoever asked must not wait for nothing."""
    store = FaultyStore()

    def fail() -> None:
        store.works = False
        press()

    agent = Agent(model="m", performers={CallModel: ScriptedModel(stalls("so"))}, store=store)
    async with agent.session() as session:
        with pytest.raises(StoreError, match="no space left"):
            await worked(session, Signals(), TextDelta=fail)


async def all_heard() -> None:
    """Wait until every signal so far has been: they are heard in their order."""
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, heard.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await heard.wait()
    loop.remove_signal_handler(signal.SIGUSR1)


async def test_where_nothing_goes_on_ctrl_c_does_what_it_was_told() -> None:
    """And nothing at all while another program has the terminal."""
    pressed: list[str] = []
    signals = Signals(lambda: pressed.append("idle"))
    async with Agent(model="m", performers={CallModel: ScriptedModel()}).session() as session:

        async def work() -> Exit:
            signals.interrupts(session)
            press()
            await all_heard()
            with signals.deaf():
                press()
                await all_heard()
            return Exit.ENDED

        await signals.heeded(work)
    assert (pressed, signals.ended_by) == (["idle"], None)
