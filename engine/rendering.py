"""
States, effects, events and memory as text: one line each, stable and short.

Notebooks, `turnwheel replay` and scenarios share it. A line begins with the name of the class; requests are
named by their ids, texts stand in quotes, and fields at their default are left out. It is not read back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from ..effects import Effect
from ..effects.config import Limits
from ..effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    ControlReceived,
    Decision,
    Deny,
    Event,
    HookAnswered,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    ToolFinished,
    UserSent,
    UserSteered,
)
from ..effects.history import History
from ..effects.hooks import HookAnswer, HookSaid
from ..effects.messages import (
    Binary,
    Finish,
    Message,
    Part,
    Reasoning,
    Role,
    StopReason,
    Text,
    ToolCall,
)
from ..effects.notices import (
    AgentStarted,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    CallJudged,
    CallSettled,
    Compacted,
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
    ModelCalled,
    ReasoningDelta,
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
from ..effects.permissions import Basis, Verdict
from ..effects.pieces import CallPiece, Piece, ReasoningPiece
from ..effects.records import (
    AddContext,
    AddUsage,
    AppendMessage,
    ClearContext,
    CountCompaction,
    GrantRule,
    ReplaceHistory,
    SetInstructions,
    SetMode,
    SetModel,
    TakeMail,
    UseFallback,
    UseIds,
    WithdrawTool,
)
from ..effects.requests import (
    AskApproval,
    CallModel,
    Cancel,
    Conversation,
    FireHook,
    Purpose,
    ReadInstructions,
    RunAgent,
    RunTool,
    SetTimer,
    View,
)
from ..effects.usage import Spent, Usage
from ..states.batch.batch import Batch, Call, Settled
from ..states.context import Mail, Memory
from ..states.state import Done, State

TEXT_SHOWN = 120
"""Characters of a text that a line shows: of a longer one the beginning and the end."""

TEXT_END = 40
"""Characters of the end of a long text."""

Render = Callable[[Any], str]
"""What a value of one class says behind its name."""


def line_of(value: Effect | Event) -> str:
    """*value*, an effect or an event, on one line."""
    kind = type(value)
    words = WORDING[kind](value) if kind in WORDING else fields_of(value)
    return printable(f"{kind.__name__} {words}")


def state_line(state: State) -> str:
    """*state* on one line: its label, why it ended, and its calls or the requests that it waits for."""
    batch = getattr(state, "batch", None)
    if isinstance(state, Done):
        line = _spaced("done:", state.reason, quoted(state.detail) if state.detail else "")
    elif isinstance(batch, Batch):
        line = f"{state.label}: {', '.join(_call(call) for call in batch.calls)}"
    else:
        line = f"{state.label}, waits for {', '.join(state.open)}" if state.open else state.label
    return printable(line)


def _call(call: Call) -> str:
    phase = call.phase
    if isinstance(phase, Settled):
        return f"{call.call.name} {phase.result.outcome}"
    return _spaced(call.call.name, type(phase).__name__.lower(), *call.open)


def memory_lines(memory: Memory) -> Iterator[str]:
    """What *memory* holds, a line each; what was never used is left out."""
    yield from map(printable, _settings_and_mail(memory))
    yield from history_lines(memory.history)


def _settings_and_mail(memory: Memory) -> Iterator[str]:
    model = memory.progress.fallback or memory.session.model
    yield f"run {memory.run}, model {model}, mode {memory.session.mode}"
    if str(spent := spent_of(memory.spent)):
        yield f"spent {spent}"
    if memory.earlier != Spent():
        yield f"spent before {spent_of(memory.earlier)}"
    yield from (f"waits: {_mail(mail)}" for mail in memory.session.mail)
    yield from (f"granted: {rule}" for rule in memory.session.granted)
    yield from (f"withdrawn: {one.tool} until turn {one.until}" for one in memory.progress.withdrawn)
    yield from (f"context: {quoted(text)}" for text in memory.conversation.pending_context)
    if memory.conversation.cleared:
        yield f"cleared: tool results before message {memory.conversation.cleared}"


def history_lines(history: History) -> Iterator[str]:
    """The messages of *history*, a line each."""
    yield from (message_line(message, whole=True) for message in history)


def message_line(message: Message, *, whole: bool = False) -> str:
    """*message* on one line: who speaks, and what; of results the outcomes, and where *whole*, the texts."""
    if message.role is Role.TOOL:
        results = [
            _spaced(one.name, one.outcome, quoted(one.content) if whole else "") for one in message.results
        ]
        return printable(f"tool: {', '.join(results)}")
    return printable(_spaced(message.role, ", ".join(filter(None, map(_part, message.parts)))))


def _mail(mail: Mail) -> str:
    return _spaced(mail.lane, f"of {mail.sender}" if mail.sender else "", quoted(mail.text))


def _part(part: Part) -> str:
    match part:
        case Text(text=text):
            return quoted(text)
        case Reasoning(text=text, signature=signature, redacted=redacted):
            proof = f" proof {quoted(signature)}" if signature else ""
            return f"hidden thinking {quoted(redacted)}" if redacted else f"thinking {quoted(text)}{proof}"
        case ToolCall():
            return f"call {part.name} {short(part.arguments)}".rstrip()
        case Binary():
            return f"file {part.media_type} of {len(part.data)} bytes"
        case Finish(reason=reason) if reason not in {StopReason.END_TURN, StopReason.TOOL_USE}:
            return f"stopped by {reason}"
        case _:
            return ""


# Parts of lines


def quoted(text: str) -> str:
    """*text* in quotes, on one line; of a long one the beginning and the end, and how long it is."""
    if len(text) <= TEXT_SHOWN:
        return _escaped(text)
    first, last = text[: TEXT_SHOWN - TEXT_END], text[-TEXT_END:]
    return f"{_escaped(first)} ... {_escaped(last)} ({len(text):,})"


def _escaped(text: str) -> str:
    return printable(json.dumps(text, ensure_ascii=False))


def printable(line: str) -> str:
    """*line* with escapes for what a terminal or an editor would act on: models make up names and ids."""
    return "".join([each if each.isprintable() else json.dumps(each)[1:-1] for each in line]).strip()


def short(text: str) -> str:
    """*text*, which is JSON, on one line; of a long one the beginning."""
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_SHOWN else f"{flat[:TEXT_SHOWN]}..."


def count(number: int, what: str) -> str:
    """*number* of *what*, as in ``1 message`` and ``2 messages``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def plain(number: float) -> str:
    """*number* without a fraction that says nothing: times and seconds."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def spent_of(spent: Spent) -> str:
    """What was *spent*; empty for nothing."""
    used = spent.usage
    parts = (
        count(spent.turns, "turn") if spent.turns else "",
        _usage(used) if used.total else "",
        f"{spent.cost} USD" if spent.cost else "",
        f"{plain(spent.seconds)} s" if spent.seconds else "",
        f"{spent.unpriced} tokens without a price" if spent.unpriced and spent.cost else "",
    )
    return ", ".join(filter(None, parts))


def _usage(used: Usage) -> str:
    guessed = f" ({used.estimated} estimated)" if used.estimated else ""
    return f"{used.input} + {used.output} tokens{guessed}"


def fields_of(value: object) -> str:
    """The fields of *value* that are not at their default, as ``name=value``."""
    fields = attrs.fields(type(value))  # type: ignore[arg-type]  # every word is an attrs class
    shown = [(field.name, getattr(value, field.name), field.default) for field in fields]
    return " ".join(f"{name}={_plain(each)}" for name, each, default in shown if each != default)


def _plain(value: object) -> str:  # noqa: PLR0911  # one return for each kind of value
    match value:
        case bool() | None:
            return str(value).lower()
        case float():
            return plain(value)
        case Spent():
            return f"({spent_of(value)})"
        case str() as text:
            return str(text) if text.isidentifier() or _is_id(text) else quoted(text)
        case tuple():
            return f"({', '.join(map(_plain, value))})"
        case Message():
            return message_line(value)
        case _ if attrs.has(type(value)):
            return _spaced(type(value).__name__, fields_of(value))
        case _:
            return str(value)


def _is_id(text: str) -> bool:
    return bool(text) and text.replace("-", "").isalnum()


def _spaced(*words: str) -> str:
    return " ".join(filter(None, words))


def _listed(label: str, names: tuple[str, ...]) -> str:
    return f"{label} {' '.join(names)}" if names else f"no {label}"


# Requests


def _view(view: View) -> str:
    if isinstance(view, Conversation):
        cleared = f", results cleared before {view.cleared}" if view.cleared else ""
        return count(view.length, "message") + cleared
    return f"transcript of {count(view.length, 'message')} in {view.limit} tokens"


def _call_model(value: Any) -> str:  # noqa: ANN401  # the table below gives each class its function
    inside = (
        _view(value.view),
        _listed("tools", value.tools) if value.purpose is Purpose.TURN else "",
        f"thinking {value.thinking}" if value.thinking is not None else "",
        f"at most {value.max_output} tokens" if value.max_output is not None else "",
        f"system {quoted(value.system)}" if value.system and value.purpose is Purpose.TURN else "",
        f"instructions {quoted(value.instructions)}" if value.instructions else "",
    )
    purpose = "" if value.purpose is Purpose.TURN else f"for a {value.purpose}"
    again = f"try {value.attempt}" if value.attempt > 1 else ""
    return f"{_spaced(value.id, value.model, purpose, again)} ({', '.join(filter(None, inside))})"


def _run_tool(value: Any) -> str:  # noqa: ANN401  # as above
    return _spaced(value.id, value.tool, short(value.arguments), "again" if value.again else "")


def _ask(value: Any) -> str:  # noqa: ANN401  # as above
    until = f" until {plain(value.due)}" if value.due is not None else ""
    why = f": {value.why}" if value.why else ""
    return f"{_spaced(value.id, value.tool, short(value.arguments))}{why}{until}"


def _run_agent(value: Any) -> str:  # noqa: ANN401  # as above
    mode = "" if value.mode.value == "default" else f", mode {value.mode}"
    return (
        f"{value.id} {value.agent} {quoted(value.prompt)} "
        f"({_listed('tools', value.tools)}{mode}{_limits(value.limits)})"
    )


def _limits(limits: Limits) -> str:
    told = fields_of(limits)
    return f", limits {told}" if told else ""


# Decisions and hooks


def decision_of(decision: Decision) -> str:
    """*decision* in words."""
    match decision:
        case Approve(arguments=arguments):
            return f"yes, with {short(arguments)}" if arguments else "yes"
        case ApproveAlways(where=where):
            return _spaced("yes, always", " ".join(f"{name}={glob}" for name, glob in where))
        case Deny():
            message = quoted(decision.message) if decision.message else ""
            return _spaced("no", message, "and stop" if decision.interrupt else "")


def said_of(said: tuple[HookSaid, ...]) -> str:
    """What hooks *said*, each by its name; most have nothing to say."""
    return ", ".join(_spaced(one.name, _said(one)) for one in said)


def _said(one: HookSaid) -> str:
    if one.fault:
        return f"failed {quoted(one.fault)}"
    return "" if one.answer == HookAnswer() else fields_of(one.answer)


# Pieces


def pieces_of(pieces: tuple[Piece, ...]) -> str:
    """What *pieces* of an answer say."""
    return ", ".join(map(_piece, pieces))


def _piece(piece: Piece) -> str:
    match piece:
        case CallPiece():
            return f"call {piece.name} {short(piece.arguments)}".rstrip()
        case ReasoningPiece():
            return f"thinking {quoted(piece.text)}"
        case _:
            return quoted(piece.text)


def _finished(value: Any) -> str:  # noqa: ANN401  # as above
    return _spaced(f"{value.request} {value.stop}, {_usage(value.usage)}", pieces_of(value.pieces))


def _failed(value: Any) -> str:  # noqa: ANN401  # as above
    wait = "" if value.retry_after is None else f"retry after {plain(value.retry_after)} s"
    return _spaced(value.request, value.failure, quoted(value.message), wait)


def _ended(value: Any) -> str:  # noqa: ANN401  # as above
    outcome = "" if value.outcome.value == "ok" else str(value.outcome)
    files = f"with {count(len(value.files), 'file')}" if getattr(value, "files", ()) else ""
    return _spaced(value.request, outcome, quoted(value.content), files)


def _tool_ended(value: Any) -> str:  # noqa: ANN401  # as above
    return _spaced(value.tool, value.outcome, quoted(value.content))


def _run_ended(value: Any) -> str:  # noqa: ANN401  # as above
    detail = f": {quoted(value.detail)}" if value.detail else ""
    return f"{value.run} {value.reason}{detail} ({spent_of(value.spent) or 'nothing spent'})"


def _judged(value: Any) -> str:  # noqa: ANN401  # as above
    return _spaced(
        f"{value.tool} {value.verdict} by {value.ground}", quoted(value.detail) if value.detail else ""
    )


WORDING: Final[Mapping[type[Any], Render]] = {
    # Requests
    CallModel: _call_model,
    RunTool: _run_tool,
    AskApproval: _ask,
    FireHook: lambda value: f"{value.id} {value.hook}: {', '.join(value.names)}",
    ReadInstructions: lambda value: f"{value.id} {' '.join(value.files)}",
    RunAgent: _run_agent,
    SetTimer: lambda value: f"{value.id} until {plain(value.due)}",
    Cancel: lambda value: str(value.request),
    # Records
    AppendMessage: lambda value: message_line(value.message),
    AddUsage: lambda value: spent_of(value.spent),
    ReplaceHistory: lambda value: (
        f"{', '.join(map(message_line, value.head))} in place of {count(value.keep, 'message')}"
    ),
    WithdrawTool: lambda value: f"{value.tool} until turn {value.until}",
    GrantRule: lambda value: str(value.rule),
    SetModel: lambda value: str(value.model),
    SetMode: lambda value: str(value.mode),
    UseFallback: lambda value: str(value.model),
    SetInstructions: lambda value: quoted(value.text),
    AddContext: lambda value: quoted(value.text),
    # Notices
    TextDelta: lambda value: quoted(value.text),
    ReasoningDelta: lambda value: quoted(value.text),
    RetryScheduled: lambda value: f"until {plain(value.due)}: {value.failure}",
    SettingRefused: lambda value: quoted(value.reason),
    InputBlocked: lambda value: quoted(value.reason),
    CallJudged: _judged,
    ToolOutput: lambda value: quoted(value.text),
    CallSettled: _tool_ended,
    ApprovalRequested: lambda value: f"{value.request} {value.tool} {short(value.arguments)}",
    ApprovalResolved: lambda value: f"{value.request} {decision_of(value.decision)}",
    Compacted: lambda value: f"from {value.before} to {value.after} tokens",
    FallbackUsed: lambda value: f"to {value.model} from {value.instead_of}: {value.failure}",
    LoopDetected: lambda value: f"{value.stage} {' '.join(value.tools)} x{value.count}: {quoted(value.text)}",
    Warned: lambda value: quoted(value.text),
    Ignored: lambda value: str(value.event),
    RunEnded: _run_ended,
    # Events
    ModelStreamed: lambda value: f"{value.request} {pieces_of(value.pieces)}",
    ModelFinished: _finished,
    ModelFailed: _failed,
    ToolFinished: _ended,
    AgentFinished: _ended,
    ApprovalGiven: lambda value: _spaced(
        f"{value.request} {decision_of(value.decision)}", f"by {value.by}" if value.by else ""
    ),
    HookAnswered: lambda value: f"{value.request} {said_of(value.said)}",
    UserSent: lambda value: quoted(value.text),
    UserSteered: lambda value: f"{value.how} {quoted(value.text)}",
    ControlReceived: lambda value: f"{type(value.change).__name__} {fields_of(value.change)}",
}
"""What each class says that is worth more than its fields."""

# A story tells each thing once: these say again what a request, a message or the command above them says.
SAID_ELSEWHERE: Final = frozenset(
    {UseIds, AddUsage, TakeMail, RunStarted, ModelCalled, ToolStarted, AgentStarted, TurnEnded}
    | {InputTaken, InputReceived, InterruptRequested, SettingChanged, HookAsked, HookEnded}
    | {
        ApprovalRequested,
        ApprovalResolved,
        ApprovalWithdrawn,
        CompactionStarted,
        ClearContext,
        CountCompaction,
    }
)


def told_in_story(effect: Effect) -> bool:
    """Whether a story tells *effect*: what is asked, what changes, and what nothing else says."""
    if isinstance(effect, CallJudged):
        # A question and its answer, and a tool that runs as it says of itself, explain themselves.
        plainly = effect.ground in {Basis.TOOL, Basis.PERSON, Basis.LOST}
        return not plainly and effect.verdict is not Verdict.ASK
    if isinstance(effect, SetInstructions):
        return bool(effect.text)
    if isinstance(effect, ApprovalWithdrawn):
        return effect.late
    return type(effect) not in SAID_ELSEWHERE
