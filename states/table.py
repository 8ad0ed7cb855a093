"""The machine, on one page: every way from one state to another, and why it is taken."""

# Rule 1: every way from one state to another is a row here, with its reason. A handler that goes where no row
# leads raises `IllegalTransition`, and nothing has changed: the check stands before state and memory move.
#
# Rule 2: every event in every state has a row, or is named in `IGNORED`. There is no third case. So an event
# that is new to the machine cannot be forgotten in a state: it is ignored there, in plain sight.
#
# Rule 3: this file decides nothing. Which of several rows is taken is the handler's business. What is drawn,
# checked and covered by tests comes from here, and so do the pictures in the docs.
#
# Theory of operation.
#
# A run begins at `thinking.start` and ends at `done`. A state that waits for nothing is fed `Entered` until
# one waits, so a driver never has to know which states these are.
#
# Model calls leave from `thinking.go` only, and every way back leads there. That is where limits are read,
# where people's words become messages, and where the context is weighed.
#
# `executing`, `confirming` and `dispatching` are one batch of calls under three names, for a person who asks
# "what is it waiting for?". Which name it has depends on what is open, so each of them leads to each.
#
# A run ends through `thinking.end` only, where all records are in the memory, so that its account is
# complete. A hook may be asked between that and the end.
#
# A state that is being given up has `.stopping` in its name. It waits for the answers of what it has
# cancelled, since those say what was used and what was done. A second interrupt does not wait.
#
# Inputs and controls are welcome in every state but the last: a person need not know where a run is to speak.

from __future__ import annotations

from typing import TYPE_CHECKING, final, get_args

import attrs

from ..effects.events import (
    AgentFinished,
    AgentProgressed,
    ApprovalGiven,
    CallCancelled,
    ControlReceived,
    Entered,
    Event,
    HookAnswered,
    InstructionsRead,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    ToolLost,
    ToolProgressed,
    UserSent,
    UserSteered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What the table is written in: a row, and the ways that come again in many states.

# What may come in at any time and leaves a state as it is, with what becomes of it.
WELCOME: Mapping[type[Event], str] = {
    UserSent: "the prompt waits for a run of its own",
    UserSteered: "it waits for the next model call",
    ControlReceived: "it holds from now on",
}

# Where a hook leads that ends the run while a question is open.
ENDED_BY_HOOK: Mapping[str, str] = {
    "executing.stopping": "a hook ends the run; tools are cancelled",
    "dispatching.stopping": "a hook ends the run; a child is cancelled",
    "thinking.end": "a hook ends the run",
}

# Where an interrupt leads while a question is open.
WITHDRAWN: Mapping[str, str] = {
    "executing.stopping": "questions are withdrawn, tools cancelled",
    "dispatching.stopping": "questions are withdrawn, a child cancelled",
    "thinking.end": "questions are withdrawn, nothing ran",
}


@final
@attrs.frozen
class Row:
    """From *state* on *event* to *target*; *why* is what the arrow says."""

    state: str
    event: type[Event]
    target: str
    why: str

    @property
    def welcome(self) -> bool:
        """Whether it is one of those that come again in every state."""
        return self.state == self.target and self.event in WELCOME


def on(why: str, **more: str) -> Mapping[str, str]:
    """Where a batch can go on after *why*: under whichever name fits, or back; and *more* ways."""
    return {
        "executing": f"{why}; tools are at work",
        "confirming": f"{why}; a question is open",
        "dispatching": f"{why}; a child is at work",
        "thinking.go": f"{why}; every call has its result",
        **{target.replace("_", "."): reason for target, reason in more.items()},
    }


def winds_down(why: str, **more: str) -> Mapping[str, str]:
    """Where a batch that is being given up can go on after *why*; and *more* ways."""
    return {
        "executing.stopping": f"{why}; tools are still at work",
        "dispatching.stopping": f"{why}; a child is still at work",
        "thinking.go": f"{why}; the rest was skipped",
        **{target.replace("_", "."): reason for target, reason in more.items()},
    }


def refused(why: str) -> Mapping[str, str]:
    """More ways `on` from an open question where the call is given up, because of *why*."""
    return {
        "executing_stopping": f"{why}; tools are still at work",
        "confirming_stopping": f"{why}; other questions stay open",
        "dispatching_stopping": f"{why}; a child is still at work",
        "thinking_end": f"{why}, which ends the run",
    }


def progress(state: str) -> Mapping[type[Event], Mapping[str, str]]:
    """What a tool or a child at work reports, which leaves *state* as it is."""
    return {
        ToolProgressed: {state: "a tool said something"},
        AgentProgressed: {state: "a child told what it has spent"},
    }


WAYS: Mapping[str, Mapping[type[Event], Mapping[str, str]]] = {
    # Thinking: between model calls
    "thinking.start": {
        Entered: {
            "thinking.reading": "the session begins; its instructions are read",
            "thinking.opening": "the session begins; hooks are asked",
            "thinking.prompt": "the run begins",
        }
    },
    "thinking.reading": {
        InstructionsRead: {
            "thinking.opening": "hooks are asked",
            # Not read again by later runs: a system prompt that changes loses the provider's cache.
            "thinking.prompt": "they hold for the whole session",
        },
        Interrupted: {"thinking.end": "the prompt does not come in"},
    },
    "thinking.opening": {
        HookAnswered: {
            "thinking.prompt": "the session may begin",
            "thinking.end": "it may not; the prompt does not come in",
        },
        Interrupted: {"thinking.end": "the prompt does not come in"},
    },
    "thinking.prompt": {
        Entered: {
            "thinking.admitting": "hooks are asked about the prompt",
            "thinking.go": "the prompt becomes a message",
        }
    },
    "thinking.steer": {
        Entered: {
            "thinking.admitting": "hooks are asked about what was said",
            "thinking.go": "what was said becomes messages",
        }
    },
    "thinking.admitting": {
        HookAnswered: {
            "thinking.go": "it comes in, or it goes on without",
            "thinking.end": "it does not come in, and without it nothing goes on",
        },
        Interrupted: {"thinking.end": "it does not come in"},
    },
    "thinking.go": {
        Entered: {
            "streaming": "the model is called",
            "thinking.steer": "a person said something",
            "compacting.weigh": "the context is over its threshold",
            # It comes back to itself after each of these, to look again at all that stands before a call.
            "thinking.go": "old results are left out, or a tool is taken away",
            "thinking.end": "a limit is reached, or it goes in circles",
        }
    },
    "thinking.retry": {
        TimerFired: {"thinking.go": "the wait is over"},
        # Only where the steer says so. Any other one waits in the mail for the call that comes anyway.
        UserSteered: {"thinking.go": "a person cannot wait"},
        Interrupted: {"thinking.end": "the timer is cancelled"},
    },
    "thinking.end": {
        Entered: {
            "done": "the account is complete",
            "thinking.ending": "hooks are asked whether it may end",
            # A steer is for this run, and this is the last moment at which the run can read it.
            "thinking.go": "a person said something before the end",
        }
    },
    "thinking.ending": {
        HookAnswered: {
            "done": "it may end",
            "thinking.go": "a hook makes it go on, or a person said something",
        },
        Interrupted: {"thinking.end": "the hooks are not waited for"},
    },
    # Streaming: a model answers
    "streaming": {
        ModelStreamed: {"streaming": "pieces are gathered"},
        ModelFinished: {
            "executing": "the answer has calls",
            "thinking.end": "the answer is the end",
            "compacting.weigh": "the answer was cut at its token limit",
        },
        ModelFailed: {
            "thinking.retry": "it may go better the next time",
            "thinking.go": "it may go better with another model, or it was never asked",
            "compacting.weigh": "the conversation is too large",
            "thinking.end": "it cannot go better",
        },
        # What has come of the answer is kept and ends with a mark that it was cut: a person has read it.
        UserSteered: {"streaming.stopping": "a person cannot wait; the answer is cancelled"},
        Interrupted: {"streaming.stopping": "the answer is cancelled"},
    },
    "streaming.stopping": {
        ModelStreamed: {"streaming.stopping": "pieces that were under way"},
        ModelFinished: {
            # A cancellation may come too late. The answer was paid for and read, so it is kept.
            "thinking.end": "the answer came all the same; its calls do not run",
            "thinking.go": "the answer came all the same; now to what was said",
        },
        ModelFailed: {
            "thinking.end": "the text that was read is kept",
            "thinking.go": "the text that was read is kept; now to what was said",
        },
        Interrupted: {
            "streaming.stopping": "the run is to end after all",
            "thinking.end": "nothing is waited for",
        },
    },
    # Executing: tools are at work
    "executing": {
        Entered: on("calls are judged and started"),
        ToolFinished: on(
            "a tool ended", executing_stopping="the budget is used up; other tools are still at work"
        ),
        # Not `ToolFinished` with an error: the tool may have done its work, and an error invites a model to
        # repeat it.
        ToolLost: on("a tool may have run; that is told, or asked about"),
        HookAnswered: on(
            "hooks answered",
            executing_stopping="a hook ends the run; tools are cancelled",
            thinking_end="a hook ends the run",
        ),
        ToolProgressed: {"executing": "a tool said something"},
        CallCancelled: on("a call is given up"),
        UserSteered: {
            "executing.stopping": "the rest is skipped; tools are still at work",
            # Where nothing was at work, there is nothing to wait for.
            "thinking.go": "the rest is skipped",
        },
        Interrupted: {"executing.stopping": "tools are cancelled", "thinking.end": "nothing was at work"},
    },
    "executing.stopping": {
        ToolFinished: winds_down(
            "a tool ended",
            dispatching_stopping="a child that was approved is started after all",
            thinking_end="the interrupt is complete",
        ),
        ToolLost: winds_down(
            "a tool may have run",
            confirming_stopping="a tool may have run, which is asked about",
            dispatching_stopping="a child that was approved is started after all",
            thinking_end="the interrupt is complete",
        ),
        HookAnswered: winds_down(
            "hooks answered",
            dispatching_stopping="a child that was approved is started after all",
            thinking_end="a hook ends the run",
        ),
        ToolProgressed: {"executing.stopping": "a tool said something"},
        CallCancelled: winds_down(
            "a call is given up", dispatching_stopping="a child that was approved is started after all"
        ),
        UserSteered: {"thinking.go": "the rest is skipped"},
        Interrupted: {
            "executing.stopping": "tools are cancelled after all",
            "thinking.end": "what still ran may have run",
        },
    },
    # Confirming: a question is open
    "confirming": {
        ApprovalGiven: on("a question was answered", **refused("denied")),
        # The deadline of a question is a timer, a request like any other. So a no by silence is an event in
        # the journal.
        TimerFired: on("no answer came in time", **refused("so it is denied")),
        HookAnswered: {"confirming": "hooks answered", **ENDED_BY_HOOK},
        ToolFinished: {"confirming": "a tool ended", **winds_down("the budget is used up")},
        ToolLost: {"confirming": "a tool may have run; that is told, or asked about"},
        AgentFinished: {"confirming": "a child ended", **winds_down("the budget is used up")},
        **progress("confirming"),
        CallCancelled: on("a call is given up"),
        UserSteered: winds_down("questions are withdrawn"),
        Interrupted: WITHDRAWN,
    },
    "confirming.stopping": {
        ApprovalGiven: winds_down(
            "the last question is answered",
            confirming_stopping="other questions stay open",
            thinking_end="denied, which ends the run",
        ),
        TimerFired: winds_down(
            "no answer to the last question came in time",
            confirming_stopping="other questions stay open",
            thinking_end="so it is denied, which ends the run",
        ),
        HookAnswered: {"confirming.stopping": "hooks answered", **ENDED_BY_HOOK},
        ToolFinished: {"confirming.stopping": "a tool ended", **winds_down("the budget is used up")},
        ToolLost: {"confirming.stopping": "a tool may have run; that is told, or asked about"},
        AgentFinished: {"confirming.stopping": "a child ended", **winds_down("the budget is used up")},
        **progress("confirming.stopping"),
        CallCancelled: winds_down("a call is given up", confirming_stopping="other questions stay open"),
        UserSteered: winds_down("questions are withdrawn"),
        Interrupted: WITHDRAWN,
    },
    # Dispatching: a child is at work
    "dispatching": {
        AgentFinished: on(
            "a child ended",
            executing_stopping="the budget is used up; tools are still at work",
            dispatching_stopping="the budget is used up; another child is at work",
        ),
        ToolFinished: {
            "dispatching": "a tool ended",
            "confirming": "a tool ended, and what was allowed is asked about after all",
            "dispatching.stopping": "the budget is used up; the child is still at work",
        },
        ToolLost: {
            "dispatching": "a tool may have run, which is told",
            "confirming": "a tool may have run, which is asked about, or the next one is",
        },
        HookAnswered: {
            "dispatching": "hooks answered",
            "confirming": "hooks answered; a question is open",
            "dispatching.stopping": "a hook ends the run; the child is cancelled",
        },
        **progress("dispatching"),
        CallCancelled: {
            "dispatching": "a call is given up",
            "confirming": "a call is given up, and the next one asked about",
        },
        # A child is let finish, unless the steer cannot wait: what it has done so far is paid for.
        UserSteered: {"dispatching.stopping": "the rest is skipped; the child is still at work"},
        Interrupted: {"dispatching.stopping": "the child is cancelled"},
    },
    "dispatching.stopping": {
        AgentFinished: winds_down("a child ended", thinking_end="the interrupt is complete"),
        ToolFinished: {"dispatching.stopping": "a tool ended"},
        ToolLost: {
            "dispatching.stopping": "a tool may have run, which is told",
            "confirming.stopping": "a tool may have run, which is asked about",
        },
        HookAnswered: {"dispatching.stopping": "hooks answered"},
        **progress("dispatching.stopping"),
        CallCancelled: {"dispatching.stopping": "a call is given up"},
        Interrupted: {
            "dispatching.stopping": "the child is cancelled after all",
            "thinking.end": "what still ran may have run",
        },
    },
    # Compacting: the context is being shrunk
    "compacting.weigh": {
        Entered: {
            "compacting.consulting": "hooks are asked",
            "compacting.summary": "the old part is summarised",
            # At the threshold there is still room for an answer. Only a context that cannot be sent ends
            # the run.
            "thinking.go": "nothing to cut; it goes on as it is",
            "thinking.end": "nothing to cut, and it cannot go on as it is",
        }
    },
    "compacting.consulting": {
        HookAnswered: {
            "compacting.summary": "the old part is summarised",
            "thinking.go": "a hook is against it; it goes on as it is",
            "thinking.end": "a hook is against it, and without it nothing goes on",
        },
        Interrupted: {"thinking.end": "the hooks are not waited for"},
    },
    "compacting.summary": {
        ModelStreamed: {"compacting.summary": "pieces are gathered"},
        ModelFinished: {
            "thinking.go": "the summary takes the old part's place, or failed",
            "thinking.end": "no use, and it cannot go on as it is",
        },
        ModelFailed: {
            # Weighed again and not only asked again: another model may read less than the plan has room
            # for.
            "compacting.weigh": "it was lost or never asked for, or another model is asked; once more",
            "compacting.pausing": "it may go better the next time",
            "compacting.summary": "it was too much to read; once more with less",
            "thinking.go": "it goes on as it is",
            "thinking.end": "it cannot go on as it is",
        },
        Interrupted: {"compacting.stopping": "the summary is cancelled"},
    },
    "compacting.pausing": {
        TimerFired: {"compacting.summary": "the wait is over"},
        UserSteered: {"compacting.summary": "a person cannot wait"},
        Interrupted: {"thinking.end": "the timer is cancelled"},
    },
    "compacting.stopping": {
        ModelStreamed: {"compacting.stopping": "pieces that were under way"},
        # A summary that comes after an interrupt is dropped; only its cost is kept.
        ModelFinished: {"thinking.end": "the interrupt is complete"},
        ModelFailed: {"thinking.end": "the interrupt is complete"},
        Interrupted: {"thinking.end": "nothing is waited for"},
    },
}


def _rows(state: str) -> Iterable[Row]:
    for event, targets in WAYS[state].items():
        yield from [Row(state, event, target, why) for target, why in targets.items()]
    yield from [Row(state, event, state, why) for event, why in WELCOME.items()]


TABLE: tuple[Row, ...] = tuple(row for state in WAYS for row in _rows(state))


# What follows from the table: which transitions are legal, and what a state does not act on.


_EVERY: frozenset[type[Event]] = frozenset(get_args(Event))

# What a state does not act on at all, by name. What it acts on may still name a request that is not open.
IGNORED: dict[str, frozenset[type[Event]]] = {
    state: _EVERY - {row.event for row in TABLE if row.state == state}
    for state in dict.fromkeys([*(row.state for row in TABLE), *(row.target for row in TABLE)])
}

# The rows as a set, for the check after each transition.
LEGAL: frozenset[tuple[str, type[Event], str]] = frozenset((r.state, r.event, r.target) for r in TABLE)
