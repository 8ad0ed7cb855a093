"""Turn notices into styled lines for a person."""

from __future__ import annotations

from collections.abc import Iterator

from ...effects.events import (
    Approve,
    ApproveAlways,
    Decision,
    Deny,
)
from ...effects.hooks import HookSaid
from ...effects.messages import Message
from ...effects.notices import (
    CacheMissed,
    CallJudged,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    FallbackUsed,
    HookAsked,
    HookEnded,
    Ignored,
    InputBlocked,
    InputDropped,
    LoopDetected,
    LoopStage,
    Notice,
    ProviderCalled,
    ResultsCleared,
    RunLeft,
    SettingChanged,
    SettingRefused,
    Warned,
)
from ...effects.records import Change, SetMode, SetModel
from ...effects.usage import CacheMissReason
from ..cli.option_types import short
from .call_summary import essence, number

StyledLine = tuple[str, str]
"""A line and its style."""

ABOUT = 100
"""Characters of what a call of the provider's is about."""

CACHE_MISSES: dict[CacheMissReason, str] = {
    CacheMissReason.SYSTEM: "the system prompt changed",
    CacheMissReason.TOOLS: "the tools changed",
    CacheMissReason.SETTINGS: "the settings of the model changed",
    CacheMissReason.COMPACTED: "the conversation was summarised",
    CacheMissReason.CLEARED: "old tool results were left out",
    CacheMissReason.UNCHANGED: "the prompt begins as before",
}
"""Why a prompt was not in the provider's cache, in words."""


def notice_lines(notice: Notice) -> Iterator[StyledLine]:
    """The lines that every person sees of *notice*."""
    match notice:
        case Warned(text=text):
            yield text, "warning"
        case RunLeft(run=run, why=why, detail=detail):
            what = f"the run was left here ({why})" if run else "no run could begin here"
            yield f"{what}{': ' * bool(detail)}{detail}", "warning"
        case SettingChanged(change=change):
            yield f"from now on: {change_text(change)}", "setting"
        case SettingRefused(change=change, reason=reason):
            yield f"not changed: {change_text(change)}: {reason}", "warning"
        case InputDropped():
            yield "a message was taken back before it was read", "dim"
        case InputBlocked(reason=reason):
            yield f"a hook blocked the input: {reason or 'it gave no reason'}", "warning"
        case ProviderCalled(tool=tool, arguments=arguments, status=status):
            came = "" if status == "completed" else f": {status}"
            yield f"the provider ran {tool} {essence(tool, arguments, ABOUT)}".rstrip() + came, "dim"
        case HookEnded(said=answers):
            yield from ((f"hook {one.name} failed: {one.fault}", "warning") for one in answers if one.fault)
        case _:
            yield from _upkeep(notice)


def _upkeep(notice: Notice) -> Iterator[StyledLine]:
    """The lines for notices that keep a long run going."""
    match notice:
        case FallbackUsed(model=model, instead_of=other):
            yield f"{notice.failure}: {notice.message}", "warning"
            yield f"from now on {model} answers in place of {other}, until the run is over", "warning"
        case LoopDetected(stage=LoopStage.WARNED | LoopStage.WITHDRAWN, text=text):
            yield f"repetition: the model is warned: {text}", "warning"  # the end of the run shows a stop
        case ResultsCleared(count=count, tokens=tokens):
            old = f"{number(count, 'old tool result')} (about {number(tokens, 'token')})"
            yield f"cleared {old}", "dim"
        case CompactionStarted(size=size):
            yield f"summarising the conversation ({size:,} tokens)", "dim"
        case Compacted(before=before, after=after):
            yield f"summarised: {before:,} tokens are now {after:,}", "dim"
        case CompactionFailed(reason=reason):
            yield f"the conversation was not summarised: {reason}", "warning"
        case _:
            pass


def source_lines(message: Message) -> Iterator[StyledLine]:
    """The sources that an answer names, once each."""
    named = [" ".join(filter(None, [source.title, source.url])) for source in message.citations]
    yield from ((f"source: {name}", "dim") for name in dict.fromkeys(filter(None, named)))


def verbose_lines(notice: Notice) -> Iterator[StyledLine]:
    """The additional lines of *notice* for `--verbose`."""
    match notice:
        case CallJudged(call=call, tool=tool):
            detail = f": {notice.detail}" if notice.detail else ""
            yield f"#{short(call)} {tool}: {notice.verdict}, by {notice.ground}{detail}", "dim"
        case HookAsked(hook=hook, names=names):
            yield f"{hook}: {', '.join(names)}", "dim"
        case HookEnded(said=answers):
            yield from ((f"hook {one.name}: {_answer(one)}", "dim") for one in answers if not one.fault)
        case CacheMissed(reason=reason, cached=cached, expected=expected):
            read = f"{cached:,} of {number(expected, 'token')} came from the provider's cache"
            yield f"{read}: {CACHE_MISSES[reason]}", "dim"
        case Ignored(event=event, state=state):
            yield f"{event} came too late for {state}", "dim"
        case _:
            pass


def _answer(hook: HookSaid) -> str:
    answer = hook.answer
    words = [
        str(answer.verdict or ""),
        f"because {answer.reason}" if answer.reason and answer.verdict else "",
        f"go on: {answer.reason}" if answer.go_on else "",
        f"arguments {answer.arguments}" if answer.arguments else "",
        f"context {answer.context}" if answer.context else "",
        "and stop" if answer.interrupt else "",
    ]
    return ", ".join(filter(None, words)) or "nothing to say"


def change_text(change: Change) -> str:
    """The new value of a setting in a word or two."""
    match change:
        case SetModel(model=model):
            return f"model {model}"
        case SetMode(mode=mode):
            return f"mode {mode}"
        case _:
            return (
                "the provider's default thinking" if change.tokens is None else thinking_text(change.tokens)
            )


def thinking_text(tokens: int) -> str:
    """A limit of thinking tokens, in words."""
    return f"thinking up to {number(tokens, 'token')}"


def decision_text(decision: Decision) -> str:
    """A decision in words."""
    match decision:
        case Approve(arguments=""):
            return "yes"
        case Approve(arguments=edited):
            return f"yes, with {edited}"
        case ApproveAlways(where=where):
            globs = ",".join(f"{name}={glob}" for name, glob in where)
            return f"yes, always{' where ' * bool(globs)}{globs}"
        case Deny(message=message, interrupt=ends):
            return f"no{', and stop' * ends}{': ' * bool(message)}{message}"
