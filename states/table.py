"""
The machine, on one page.

Rule 1: every way from one state to another is a row here, with its reason. A handler that goes where no row
leads raises `IllegalTransition`, and nothing has changed.

Rule 2: every event in every state has a row, or is named in `IGNORED`. There is no third case.

Rule 3: this file decides nothing. Which of several rows is taken is the handler's business; what is drawn,
checked and covered by tests comes from here.

Theory of operation. A run begins at ``thinking.start`` and ends at ``done``. A state that waits for nothing
is fed `Entered` until one waits. Model calls leave from ``thinking.go`` only, and every way back leads there:
that is where limits are read and where the context is weighed. ``executing``, ``confirming`` and
``dispatching`` are one batch of calls under three names; which one depends on what is open, so each of
them leads to each. A run ends through ``thinking.end`` only, where all records are in the memory, so that
its account is complete. A state that is being given up has ``.stopping`` in its name.
"""

from __future__ import annotations

from typing import final

import attrs

from ..effects.events import (
    AgentFinished,
    ApprovalGiven,
    ControlReceived,
    Entered,
    Event,
    HookAnswered,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    ToolProgressed,
    UserSent,
    UserSteered,
)


@final
@attrs.frozen
class Row:
    """From *state* on *event* to *target*; *why* is what the arrow says."""

    state: str
    event: type[Event]
    target: str
    why: str


def _batch(name: str, event: type[Event], why: str) -> tuple[Row, ...]:
    """The rows of a batch in state *name* that goes on after *event*, under whichever name fits."""
    return (
        Row(name, event, "executing", f"{why}; tools are at work"),
        Row(name, event, "confirming", f"{why}; a question is open"),
        Row(name, event, "dispatching", f"{why}; a child is at work"),
        Row(name, event, "thinking.go", f"{why}; every call has its result"),
    )


TABLE: tuple[Row, ...] = (
    # Thinking: between model calls
    Row("thinking.start", Entered, "thinking.prompt", "the run begins"),
    Row("thinking.start", UserSent, "thinking.start", "the prompt waits"),
    Row("thinking.prompt", Entered, "thinking.go", "the prompts become messages"),
    Row("thinking.prompt", UserSent, "thinking.prompt", "the prompt waits"),
    Row("thinking.go", Entered, "streaming", "the model is called"),
    Row("thinking.go", Entered, "compacting.weigh", "the context is over its threshold"),
    Row("thinking.go", Entered, "thinking.end", "a limit is reached"),
    Row("thinking.go", UserSent, "thinking.go", "the prompt waits"),
    Row("thinking.retry", TimerFired, "thinking.go", "the wait is over"),
    Row("thinking.retry", Interrupted, "thinking.end", "the timer is cancelled"),
    Row("thinking.retry", UserSent, "thinking.retry", "the prompt waits"),
    Row("thinking.end", Entered, "done", "the account is complete"),
    Row("thinking.end", UserSent, "thinking.end", "the prompt waits"),
    # Streaming: a model answers
    Row("streaming", ModelStreamed, "streaming", "pieces are gathered"),
    Row("streaming", ModelFinished, "executing", "the answer has calls"),
    Row("streaming", ModelFinished, "thinking.end", "the answer is the end"),
    Row("streaming", ModelFinished, "compacting.weigh", "the answer was cut at its token limit"),
    Row("streaming", ModelFailed, "thinking.retry", "it may go better the next time"),
    Row("streaming", ModelFailed, "compacting.weigh", "the conversation is too large"),
    Row("streaming", ModelFailed, "thinking.end", "it cannot go better"),
    Row("streaming", Interrupted, "streaming.stopping", "the answer is cancelled"),
    Row("streaming", UserSent, "streaming", "the prompt waits"),
    Row("streaming.stopping", ModelStreamed, "streaming.stopping", "pieces that were under way"),
    Row(
        "streaming.stopping",
        ModelFinished,
        "thinking.end",
        "the answer came all the same; its calls do not run",
    ),
    Row("streaming.stopping", ModelFailed, "thinking.end", "the text that was read is kept"),
    Row("streaming.stopping", Interrupted, "thinking.end", "nothing is waited for"),
    Row("streaming.stopping", UserSent, "streaming.stopping", "the prompt waits"),
    # Executing: tools are at work
    *_batch("executing", Entered, "calls are judged and started"),
    *_batch("executing", ToolFinished, "a tool ended"),
    Row("executing", ToolFinished, "executing.stopping", "a tool ended and the budget is used up"),
    Row("executing", ToolProgressed, "executing", "a tool said something"),
    Row("executing", Interrupted, "executing.stopping", "tools are cancelled"),
    Row("executing", UserSent, "executing", "the prompt waits"),
    Row("executing.stopping", ToolFinished, "executing.stopping", "others are still at work"),
    Row(
        "executing.stopping",
        ToolFinished,
        "dispatching.stopping",
        "a child that was approved is started after all",
    ),
    Row("executing.stopping", ToolFinished, "thinking.go", "the rest was skipped"),
    Row("executing.stopping", ToolFinished, "thinking.end", "the interrupt is complete"),
    Row("executing.stopping", ToolProgressed, "executing.stopping", "a tool said something"),
    Row("executing.stopping", Interrupted, "executing.stopping", "tools are cancelled after all"),
    Row("executing.stopping", Interrupted, "thinking.end", "what still ran may have run"),
    Row("executing.stopping", UserSent, "executing.stopping", "the prompt waits"),
    # Confirming: a question is open
    *_batch("confirming", ApprovalGiven, "a question was answered"),
    Row("confirming", ApprovalGiven, "executing.stopping", "denied; tools are still at work"),
    Row("confirming", ApprovalGiven, "confirming.stopping", "denied; other questions stay open"),
    Row("confirming", ApprovalGiven, "dispatching.stopping", "denied; a child is still at work"),
    Row("confirming", ApprovalGiven, "thinking.end", "denied, which is to end the run"),
    Row("confirming", ToolFinished, "confirming", "a tool ended"),
    Row("confirming", ToolFinished, "executing.stopping", "a tool ended and the budget is used up"),
    Row(
        "confirming", ToolFinished, "dispatching.stopping", "the budget is used up; a child is still at work"
    ),
    Row("confirming", ToolFinished, "thinking.go", "the budget is used up; questions are withdrawn"),
    Row("confirming", AgentFinished, "confirming", "a child ended"),
    Row("confirming", AgentFinished, "executing.stopping", "a child ended and the budget is used up"),
    Row(
        "confirming", AgentFinished, "dispatching.stopping", "the budget is used up; another child is at work"
    ),
    Row("confirming", AgentFinished, "thinking.go", "the budget is used up; questions are withdrawn"),
    Row("confirming", ToolProgressed, "confirming", "a tool said something"),
    Row("confirming", Interrupted, "executing.stopping", "questions are withdrawn, tools cancelled"),
    Row("confirming", Interrupted, "dispatching.stopping", "questions are withdrawn, a child cancelled"),
    Row("confirming", Interrupted, "thinking.end", "questions are withdrawn, nothing ran"),
    Row("confirming", UserSent, "confirming", "the prompt waits"),
    Row("confirming.stopping", ApprovalGiven, "confirming.stopping", "other questions stay open"),
    Row("confirming.stopping", ApprovalGiven, "executing.stopping", "the last question; tools are at work"),
    Row(
        "confirming.stopping", ApprovalGiven, "dispatching.stopping", "the last question; a child is at work"
    ),
    Row("confirming.stopping", ApprovalGiven, "thinking.go", "the last question; the rest was skipped"),
    Row("confirming.stopping", ToolFinished, "confirming.stopping", "a tool ended"),
    Row("confirming.stopping", ToolFinished, "executing.stopping", "a tool ended and the budget is used up"),
    Row(
        "confirming.stopping",
        ToolFinished,
        "dispatching.stopping",
        "the budget is used up; a child is at work",
    ),
    Row("confirming.stopping", ToolFinished, "thinking.go", "the budget is used up; questions are withdrawn"),
    Row("confirming.stopping", AgentFinished, "confirming.stopping", "a child ended"),
    Row(
        "confirming.stopping", AgentFinished, "executing.stopping", "a child ended and the budget is used up"
    ),
    Row(
        "confirming.stopping",
        AgentFinished,
        "dispatching.stopping",
        "the budget is used up; another child is",
    ),
    Row(
        "confirming.stopping", AgentFinished, "thinking.go", "the budget is used up; questions are withdrawn"
    ),
    Row("confirming.stopping", ToolProgressed, "confirming.stopping", "a tool said something"),
    Row("confirming.stopping", Interrupted, "executing.stopping", "questions are withdrawn, tools cancelled"),
    Row(
        "confirming.stopping",
        Interrupted,
        "dispatching.stopping",
        "questions are withdrawn, a child cancelled",
    ),
    Row("confirming.stopping", Interrupted, "thinking.end", "questions are withdrawn, nothing ran"),
    Row("confirming.stopping", UserSent, "confirming.stopping", "the prompt waits"),
    # Dispatching: a child is at work
    *_batch("dispatching", AgentFinished, "a child ended"),
    Row("dispatching", AgentFinished, "executing.stopping", "a child ended and the budget is used up"),
    Row(
        "dispatching",
        AgentFinished,
        "dispatching.stopping",
        "the budget is used up; another child is at work",
    ),
    Row("dispatching", ToolFinished, "dispatching", "a tool ended"),
    Row("dispatching", ToolFinished, "dispatching.stopping", "a tool ended and the budget is used up"),
    Row("dispatching", ToolProgressed, "dispatching", "a tool said something"),
    Row("dispatching", Interrupted, "dispatching.stopping", "the child is cancelled"),
    Row("dispatching", UserSent, "dispatching", "the prompt waits"),
    Row("dispatching.stopping", AgentFinished, "dispatching.stopping", "another child is still at work"),
    Row("dispatching.stopping", AgentFinished, "executing.stopping", "tools are still at work"),
    Row("dispatching.stopping", AgentFinished, "thinking.go", "the rest was skipped"),
    Row("dispatching.stopping", AgentFinished, "thinking.end", "the interrupt is complete"),
    Row("dispatching.stopping", ToolFinished, "dispatching.stopping", "a tool ended"),
    Row("dispatching.stopping", ToolProgressed, "dispatching.stopping", "a tool said something"),
    Row("dispatching.stopping", Interrupted, "dispatching.stopping", "the child is cancelled after all"),
    Row("dispatching.stopping", Interrupted, "thinking.end", "what still ran may have run"),
    Row("dispatching.stopping", UserSent, "dispatching.stopping", "the prompt waits"),
    # Compacting: the context is being shrunk
    Row("compacting.weigh", Entered, "compacting.summary", "the old part is summarised"),
    Row("compacting.weigh", Entered, "thinking.go", "nothing to cut; it goes on as it is"),
    Row("compacting.weigh", Entered, "thinking.end", "nothing to cut, and it cannot go on as it is"),
    Row("compacting.weigh", UserSent, "compacting.weigh", "the prompt waits"),
    Row("compacting.summary", ModelStreamed, "compacting.summary", "pieces are gathered"),
    Row(
        "compacting.summary",
        ModelFinished,
        "thinking.go",
        "the summary takes the old part's place, or failed",
    ),
    Row("compacting.summary", ModelFinished, "thinking.end", "no use, and it cannot go on as it is"),
    Row("compacting.summary", ModelFailed, "compacting.weigh", "the answer was lost; once more"),
    Row("compacting.summary", ModelFailed, "thinking.go", "it goes on as it is"),
    Row("compacting.summary", ModelFailed, "thinking.end", "it cannot go on as it is"),
    Row("compacting.summary", Interrupted, "compacting.stopping", "the summary is cancelled"),
    Row("compacting.summary", UserSent, "compacting.summary", "the prompt waits"),
    Row("compacting.stopping", ModelStreamed, "compacting.stopping", "pieces that were under way"),
    Row("compacting.stopping", ModelFinished, "thinking.end", "the interrupt is complete"),
    Row("compacting.stopping", ModelFailed, "thinking.end", "the interrupt is complete"),
    Row("compacting.stopping", Interrupted, "thinking.end", "nothing is waited for"),
    Row("compacting.stopping", UserSent, "compacting.stopping", "the prompt waits"),
)
"""Every legal transition."""

_ANSWERS: frozenset[type[Event]] = frozenset(
    {ModelFinished, ModelFailed, ToolFinished, ApprovalGiven, HookAnswered, AgentFinished, TimerFired}
)
_MODEL: frozenset[type[Event]] = frozenset({ModelStreamed, ModelFinished, ModelFailed})
_TOOLS: frozenset[type[Event]] = frozenset({ToolProgressed, ToolFinished, AgentFinished, ApprovalGiven})
_UNUSED: frozenset[type[Event]] = frozenset({HookAnswered, UserSteered, ControlReceived})
_PASSING: frozenset[type[Event]] = _ANSWERS | _MODEL | _TOOLS | _UNUSED | {Interrupted}

IGNORED: dict[str, frozenset[type[Event]]] = {
    # States that wait for nothing: they are left before anything else can come.
    "thinking.start": _PASSING,
    "thinking.prompt": _PASSING,
    "thinking.go": _PASSING,
    "thinking.end": _PASSING,
    "compacting.weigh": _PASSING,
    # States that wait: what is not for them comes late, twice, or from elsewhere.
    "thinking.retry": _MODEL | _TOOLS | _UNUSED | {Entered},
    "streaming": _TOOLS | _UNUSED | {Entered, TimerFired},
    "streaming.stopping": _TOOLS | _UNUSED | {Entered, TimerFired},
    "executing": _MODEL | _UNUSED | {ApprovalGiven, AgentFinished, TimerFired},
    "executing.stopping": _MODEL | _UNUSED | {Entered, ApprovalGiven, AgentFinished, TimerFired},
    "confirming": _MODEL | _UNUSED | {Entered, TimerFired},
    "confirming.stopping": _MODEL | _UNUSED | {Entered, TimerFired},
    "dispatching": _MODEL | _UNUSED | {Entered, ApprovalGiven, TimerFired},
    "dispatching.stopping": _MODEL | _UNUSED | {Entered, ApprovalGiven, TimerFired},
    "compacting.summary": _TOOLS | _UNUSED | {Entered, TimerFired},
    "compacting.stopping": _TOOLS | _UNUSED | {Entered, TimerFired},
    "done": _PASSING | {Entered, UserSent},
}
"""What a state does not act on at all, by name. What it acts on may still name a request that is not open."""

LEGAL: frozenset[tuple[str, type[Event], str]] = frozenset(
    (row.state, row.event, row.target) for row in TABLE
)
"""The rows as a set, for the check after each transition."""
