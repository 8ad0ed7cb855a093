"""
States, effects, events and memory as text: one line each, stable and short.

Notebooks, `turnwheel replay` and scenarios share it. A line begins with the name of the class; requests are
named by their ids, texts stand in quotes, and fields at their default are left out. It is not read back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, assert_never

import attrs

from .. import states
from ..effects import Effect, events, history, messages, notices, records, requests
from ..effects.findings import Finding
from ..effects.hooks import HookSaid
from ..effects.messages import StopReason
from ..effects.usage import Spent, Usage
from ..states.context import Memory
from ..states.rules.model_messages import count
from ..states.state import Done, State, batch_of

# Enough for most texts to be whole, and little enough that a step is a line and not a page.
# Characters of a text that a line shows: of a longer one the beginning and the end.
TEXT_SHOWN = 120

# An error message mostly has its point at the end, so the end is worth a third of the line.
# Characters of the end of a long text.
TEXT_END = 40

# The words for phases whose classes have a name of several words.
PHASES: dict[type, str] = {
    states.RunningChild: "child",
    **dict.fromkeys((states.AwaitingHooks, states.AllowedAwaitingHooks), "hooks"),
    **dict.fromkeys((states.Inspecting, states.AllowedInspecting), "inspecting"),
}

# What a value of one class says behind its name.
Render = Callable[[Any], str]


def line_of(value: Effect | events.Event) -> str:
    """*value*, an effect or an event, on one line."""
    # By the exact class, since all words are final. A new word needs no entry: its fields are shown.
    kind = type(value)
    words = WORDING[kind](value) if kind in WORDING else fields_of(value)
    return printable(f"{kind.__name__} {words}")


def state_line(state: State) -> str:
    """*state* on one line: its label, why it ended, and its calls or the requests that it waits for."""
    if isinstance(state, Done):
        line = _spaced("done:", state.reason, _after("", state.detail))
    elif (batch := batch_of(state)) is not None:
        line = f"{state.label}: {', '.join(_call(call) for call in batch.calls)}"
    else:
        line = f"{state.label}, waits for {', '.join(state.open)}" if state.open else state.label
    return printable(line)


def _call(call: states.Call) -> str:
    # The outcome and not the text, which the message with the results shows.
    phase = call.phase
    if isinstance(phase, states.Settled):
        return f"{call.call.name} {phase.result.outcome}"
    # With its open requests: those are the ids that an answer has to name.
    return _spaced(call.call.name, PHASES.get(type(phase)) or type(phase).__name__.lower(), *call.open)


def memory_lines(memory: Memory) -> Iterator[str]:
    """What *memory* holds, a line each; what was never used is left out."""
    # Settings and mail have texts of models and people in them; messages come printable already.
    yield from map(printable, _settings_and_mail(memory))
    yield from history_lines(memory.history)


def _settings_and_mail(memory: Memory) -> Iterator[str]:
    # The model that is asked now: during a fallback, the chosen one is not what the next request names.
    model = memory.progress.fallback or memory.session.model
    yield f"run {memory.run}, model {model}, mode {memory.session.mode}"
    if str(spent := spent_of(memory.spent)):
        yield f"spent {spent}"
    # Apart, since a budget of the run looks at the first account and one of the session at both.
    if memory.earlier != Spent():
        yield f"spent before {spent_of(memory.earlier)}"
    for mail in memory.session.mail:
        yield _spaced("waits:", mail.lane, f"of {mail.sender}" if mail.sender else "", quoted(mail.text))
    yield from (f"granted: {grant.rule}" for grant in memory.session.granted)
    yield from (f"withdrawn: {one.tool} until turn {one.until}" for one in memory.progress.withdrawn)
    yield from (f"context: {quoted(text)}" for text in memory.conversation.pending_context)
    if memory.conversation.cleared:
        yield f"cleared: tool results before message {memory.conversation.cleared}"


def history_lines(told: history.History) -> Iterator[str]:
    """The messages of *told*, a line each."""
    # Whole, since no other line of the memory tells what a tool has said.
    yield from (message_line(message, whole=True) for message in told)


def message_line(message: messages.Message, *, whole: bool = False) -> str:
    """*message* on one line: who speaks, and what; of results the outcomes, and where *whole*, the texts."""
    # Among the effects of a step the text stands a line above, where the call settled.
    if message.role is messages.Role.TOOL:
        results = [
            _spaced(one.name, one.outcome, quoted(one.content) if whole else "") for one in message.results
        ]
        return printable(f"tool: {', '.join(results)}")
    return printable(_spaced(message.role, _parts(message.parts)))


def _parts(parts: Iterable[messages.Part | history.Piece]) -> str:
    # Parts that say nothing drop out, such as an ordinary end.
    return ", ".join(filter(None, map(_part, parts)))


def _part(part: messages.Part | history.Piece) -> str:  # noqa: PLR0911  # one return for each kind
    match part:
        case messages.Text() | history.TextPiece():
            return quoted(part.text)
        case messages.Reasoning() | history.ReasoningPiece() if part.redacted:
            return f"hidden thinking {quoted(part.redacted)}"
        case messages.Reasoning() | history.ReasoningPiece():
            # Shown, since providers refuse thinking whose signature is missing or changed.
            return f"thinking {quoted(part.text)}" + _after(" proof ", part.signature)
        case messages.ToolCall() | history.CallPiece():
            return f"call {part.name} {short(part.arguments)}".rstrip()
        case messages.ProviderCall():
            return _spaced("provider call", part.name, short(part.arguments), part.status)
        case messages.Citation():
            return f"source {part.url or quoted(part.title)}"
        case messages.Binary():
            # Never the content: it may have megabytes, and no terminal can show it.
            return f"file {part.media_type} of {len(part.data)} bytes"
        # Almost every message ends in one of these two, so only the others are worth a word.
        case messages.Finish(reason=reason) if reason not in {StopReason.END_TURN, StopReason.TOOL_USE}:
            return f"stopped by {reason}"
        case messages.Finish() | messages.ToolResult():
            return ""
        case _:
            assert_never(part)


# Parts of lines


def quoted(text: str) -> str:
    """*text* in quotes, on one line; of a long one the beginning and the end, and how long it is."""
    if len(text) <= TEXT_SHOWN:
        return _escaped(text)
    # Cut before it is escaped: half an escape would read as other characters.
    first, last = text[: TEXT_SHOWN - TEXT_END], text[-TEXT_END:]
    return f"{_escaped(first)} ... {_escaped(last)} ({len(text):,})"


def _escaped(text: str) -> str:
    # Text of other scripts stays as it is: escapes of it would be of no use to its readers.
    return printable(json.dumps(text, ensure_ascii=False))


def printable(line: str) -> str:
    """*line* with escapes for what a terminal or an editor would act on: models make up names and ids."""
    # Line ends could fake a line, escape sequences clear a screen, and marks of direction turn a text.
    if line.isprintable():
        return line.strip()
    return "".join([each if each.isprintable() else json.dumps(each)[1:-1] for each in line]).strip()


def short(text: str) -> str:
    """*text*, which is JSON, on one line; of a long one the beginning."""
    # Outer quotes would escape all inner ones, so JSON stands as it is. Its end is cut: names come first.
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_SHOWN else f"{flat[:TEXT_SHOWN]}..."


def plain(number: float) -> str:
    """*number* without a fraction that says nothing: times and seconds."""
    # Finer parts of a second are noise, and would make the lines of two equal runs differ.
    return f"{number:.3f}".rstrip("0").rstrip(".")


def spent_of(spent: Spent) -> str:
    """What was *spent*; empty for nothing."""
    # What is nothing is left out: most runs have no price and no tool time, and would show zeros.
    used = spent.usage
    parts = (
        count(spent.turns, "turn") if spent.turns else "",
        _usage(used) if used.total else "",
        f"{spent.cost} USD" if spent.cost else "",
        f"{plain(spent.seconds)} s" if spent.seconds else "",
        # Only beside a cost: without any price there is no sum that is too small.
        f"{spent.unpriced} tokens without a price" if spent.unpriced and spent.cost else "",
    )
    return ", ".join(filter(None, parts))


def _usage(used: Usage) -> str:
    # Marked, since no provider bills by our estimate.
    guessed = f" ({used.estimated} estimated)" if used.estimated else ""
    return f"{used.input} + {used.output} tokens{guessed}"


def fields_of(value: object) -> str:
    """The fields of *value* that are not at their default, as ``name=value``; of a notice not its time."""
    fields = attrs.fields(value.__class__)  # type: ignore[arg-type]  # every word is an attrs class
    if notices.is_notice(value):
        # The event that led to it has the same, and a line of its own.
        fields = [field for field in fields if field.name != "at"]
    # The default of a factory is the factory, so such a field is always shown.
    shown = [(field.name, getattr(value, field.name), field.default) for field in fields]
    return " ".join(f"{name}={_plain(each)}" for name, each, default in shown if each != default)


def _plain(value: object) -> str:  # noqa: PLR0911  # one return for each kind of value
    match value:
        # As JSON spells them, so that one search finds a word in lines and in journals.
        case bool() | None:
            return str(value).lower()
        case float():
            return plain(value)
        case Spent():
            return f"({spent_of(value)})"
        case str() as text:
            # Members of enums come here, too. `str` makes their plain word, as a journal has it.
            # Ids stand without quotes, so that they can be searched for as a whole word.
            return str(text) if text.isidentifier() or text.replace("-", "").isalnum() else quoted(text)
        case tuple():
            return f"({', '.join(map(_plain, value))})"
        # Before the case for all our classes, which would list each field of each part.
        case messages.Message():
            return message_line(value)
        case _ if attrs.has(value.__class__):
            return _spaced(type(value).__name__, fields_of(value))
        case _:
            return str(value)


def _spaced(*words: str) -> str:
    return " ".join(filter(None, words))


def _after(words: str, text: str) -> str:
    """*words* and *text* in quotes; nothing where there is no text."""
    return f"{words}{quoted(text)}" if text else ""


def _listed(label: str, names: tuple[str, ...]) -> str:
    # Said and not left out: a request with no tools may be what explains the answer.
    return f"{label} {' '.join(names)}" if names else f"no {label}"


# Requests


def _view(view: requests.View) -> str:
    # Not the messages: a request names a length of the one history, and so does its line.
    if isinstance(view, requests.Conversation):
        cleared = f", results cleared before {view.cleared}" if view.cleared else ""
        return count(view.length, "message") + cleared
    return f"transcript of {count(view.length, 'message')} in {view.limit} tokens"


def _call_model(value: Any) -> str:  # noqa: ANN401  # the table below gives each class its function
    # Other purposes have a fixed prompt of ours, which would fill the line and tell nothing.
    turn = value.purpose is requests.Purpose.TURN
    inside = (
        _view(value.view),
        _listed("tools", value.tools) if turn else "",
        f"tool choice {value.tool_choice}" if value.tool_choice else "",
        f"thinking {value.thinking}" if value.thinking is not None else "",
        f"at most {value.max_output} tokens" if value.max_output is not None else "",
        _after("system ", value.system) if turn else "",
        _after("instructions ", value.instructions),
    )
    purpose = "" if turn else f"for a {value.purpose}"
    again = f"try {value.attempt}" if value.attempt > 1 else ""
    # A turn at its first try is the common case, so it goes without words for both.
    return f"{_spaced(value.id, value.model, purpose, again)} ({', '.join(filter(None, inside))})"


def _ask(value: Any) -> str:  # noqa: ANN401  # as above
    why = f": {value.why}" if value.why else ""
    # No words for a question without a deadline: it waits until there is an answer.
    return f"{_asked(value)}{why}" + (f" {_until(value.due)}" if value.due is not None else "")


def _run_agent(value: Any) -> str:  # noqa: ANN401  # as above
    # Only a mode that differs: almost every child runs in the default one.
    mode = "" if value.mode.value == "default" else f", mode {value.mode}"
    limits = f", limits {told}" if (told := fields_of(value.limits)) else ""
    return f"{value.id} {value.agent} {quoted(value.prompt)} ({_listed('tools', value.tools)}{mode}{limits})"


# Events and notices


def decision_of(decision: events.Decision) -> str:
    """*decision* in words."""
    # With no last case: the type checker then names a decision that is missing here.
    match decision:
        case events.Approve(arguments=arguments):
            return f"yes, with {short(arguments)}" if arguments else "yes"
        case events.ApproveAlways(where=where):
            return _spaced("yes, always", " ".join(f"{name}={glob}" for name, glob in where))
        case events.Deny():
            return _spaced("no", _after("", decision.message), "and stop" if decision.interrupt else "")


def said_of(said: tuple[HookSaid, ...]) -> str:
    """What hooks *said*, each by its name; most have nothing to say."""
    # Silent hooks are named, too: that they were asked is part of why a call ran. Of a failed hook the fault
    # alone is shown: its answer does not count.
    return ", ".join(_spaced(one.name, _after("failed ", one.fault) or fields_of(one.answer)) for one in said)


def _ended(value: Any) -> str:  # noqa: ANN401  # as above
    outcome = "" if value.outcome.value == "ok" else str(value.outcome)
    # Tools may bring files, children bring none and have no such field.
    files = f"with {count(len(value.files), 'file')}" if getattr(value, "files", ()) else ""
    return _spaced(value.request, outcome, quoted(value.content), files)


def _run_ended(value: Any) -> str:  # noqa: ANN401  # as above
    # A spend of nothing is told, too: such a run mostly never reached a model.
    return (
        f"{value.run} {value.reason}{_after(': ', value.detail)} ({spent_of(value.spent) or 'nothing spent'})"
    )


def _until(due: float) -> str:
    return f"until {plain(due)}"


# Texts of models, tools and people are quoted, so none of them can pass for a word of ours.
# How a field of this name is said where its name is left out; any other one as it is.
BY_FIELD: Final[Mapping[str, Render]] = {
    **dict.fromkeys(("text", "content", "reason", "message"), quoted),
    "detail": partial(_after, ""),
    "arguments": short,
    "due": _until,
    "ground": lambda ground: f"by {ground}",
    # Who decided is for the audit. A host without names for its people leaves it empty.
    "by": lambda by: by and f"by {by}",
    # Told, since a second try with the same key is what a reader looks for after a crash.
    "again": lambda again: "again" if again else "",
    # Only where the provider asked for one: our own waits are told by the timer that follows.
    "retry_after": lambda wait: "" if wait is None else f"retry after {plain(wait)} s",
    "decision": decision_of,
    "said": said_of,
    "pieces": _parts,
    "spent": spent_of,
    "change": _plain,
}


def _of(*names: str) -> Render:
    """The fields of these *names*, in this order, without their names."""
    return lambda value: _spaced(*[BY_FIELD.get(name, str)(getattr(value, name)) for name in names])


def finding_text(finding: Finding) -> str:
    """What was found of a call: what its paths reach, the commands it runs, and what is in doubt."""
    paths = [f"{one.argument} reaches {', '.join(one.real[:1])}" for one in finding.paths]
    doubts = [one.doubt for one in finding.paths] + [one.unread or one.beyond for one in finding.commands]
    runs = [" ".join(each.words) for one in finding.commands for each in one.commands]
    return "; ".join(filter(None, [*paths, *[f"runs {text}" for text in runs], *doubts])) or "nothing"


_asked = _of("id", "tool", "arguments")

# A table and no methods: the words of `effects` stay free of how they are shown. Its functions take anything,
# since no type can say that a key fixes the class of its value.
# What each class says that is worth more than its fields.
WORDING: Final[Mapping[type[Any], Render]] = {
    # Each line begins with the id where there is one: answers and cancels name it.
    # Requests
    requests.CallModel: _call_model,
    requests.RunTool: _of("id", "tool", "arguments", "again"),
    requests.AskApproval: _ask,
    requests.FireHook: lambda value: f"{value.id} {value.hook}: {', '.join(value.names)}",
    requests.InspectCall: _of("id", "tool", "arguments"),
    requests.ReadInstructions: lambda value: f"{value.id} {' '.join(value.files)}",
    requests.DecodeOutput: _of("id", "text"),
    requests.RunAgent: _run_agent,
    requests.SetTimer: _of("id", "due"),
    requests.Cancel: _of("request"),
    # Records
    records.AppendMessage: lambda value: message_line(value.message),
    # Without the size of the context: a model told it, but it is no spend.
    records.AddUsage: _of("spent"),
    records.ReplaceHistory: lambda value: (
        f"{', '.join(map(message_line, value.head))} in place of {count(value.keep, 'message')}"
    ),
    records.WithdrawTool: lambda value: f"{value.tool} until turn {value.until}",
    records.GrantRule: lambda value: _spaced(
        str(value.rule), f"(outvotes {', '.join(map(str, value.outvotes))})" if value.outvotes else ""
    ),
    # A setting is told by its new value alone: the old one stands in an earlier line.
    records.SetMode: _of("mode"),
    **dict.fromkeys((records.SetModel, records.UseFallback), _of("model")),
    **dict.fromkeys((records.SetInstructions, records.AddContext), _of("text")),
    # Notices
    **dict.fromkeys((notices.TextDelta, notices.ReasoningDelta, notices.ToolOutput), _of("text")),
    notices.OutputDelta: lambda value: short(json.dumps(value.partial, ensure_ascii=False)),
    **dict.fromkeys((notices.SettingRefused, notices.InputBlocked), _of("reason")),
    notices.Warned: _of("text"),
    notices.ProviderCalled: _of("tool", "arguments", "status"),
    notices.SourceCited: lambda value: _spaced(value.url, quoted(value.title)),
    notices.CacheMissed: _of("reason", "expected", "cached"),
    # The message is told where it enters the history.
    notices.AnswerKept: _of("request"),
    notices.RetryScheduled: lambda value: f"{_until(value.due)}: {value.failure}",
    notices.CallJudged: _of("tool", "verdict", "ground", "detail"),
    # Here the text belongs: in the message below, a story has the outcomes only.
    notices.CallSettled: _of("tool", "outcome", "content"),
    notices.ApprovalRequested: _of("request", "tool", "arguments"),
    notices.ApprovalResolved: _of("request", "decision"),
    notices.Compacted: lambda value: f"from {value.before} to {value.after} tokens",
    notices.FallbackUsed: lambda value: f"to {value.model} from {value.instead_of}: {value.failure}",
    notices.LoopDetected: lambda value: (
        f"{value.stage} {' '.join(value.tools)} x{value.count}: {quoted(value.text)}"
    ),
    notices.Ignored: _of("event"),
    notices.RunEnded: _run_ended,
    notices.RunLeft: lambda value: f"{_spaced(value.run, value.why)}{_after(': ', value.detail)}",
    # Events
    events.ModelStreamed: _of("request", "pieces"),
    events.ModelFinished: lambda value: _spaced(
        f"{value.request} {value.stop}, {_usage(value.usage)}", _parts(value.pieces)
    ),
    events.ModelFailed: _of("request", "failure", "message", "retry_after"),
    events.ToolFinished: _ended,
    events.AgentFinished: _ended,
    events.ApprovalGiven: _of("request", "decision", "by"),
    events.HookAnswered: _of("request", "said"),
    events.CallInspected: lambda value: f"{value.request} {finding_text(value.finding)}",
    events.UserSent: _of("text"),
    events.UserSteered: _of("how", "text"),
    events.InputWithdrawn: _of("input"),
    # Without the id of the sender: it tells repeats apart and says nothing about the change.
    events.ControlReceived: _of("change"),
}
