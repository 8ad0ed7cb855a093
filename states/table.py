"""The machine, on one page: every way from one state to another, and why it is taken."""

# Rule 1: every way from one state to another is a row in `WAYS`, with its reason. A handler that goes where
# no row leads raises `IllegalTransition`, and nothing has changed: the check stands before state and memory
# move.
#
# Rule 2: an event without a row in a state is ignored there. `IGNORED` names these for each state; it follows
# from the rows.
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

from collections.abc import Mapping
from typing import final, get_args

import attrs

from ..effects import events
from ..effects.events import Event

# What the table is written in: a row, and the ways that come again in many states.

# What may come in at any time and leaves a state as it is, with what becomes of it.
WELCOME: Mapping[type[Event], str] = {
    events.UserSent: "the prompt waits for a run of its own",
    events.UserSteered: "it waits for the next model call",
    events.InputWithdrawn: "what waits under that id is dropped",
    events.ControlReceived: "it holds from now on",
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


# A row without the state that it stands under.
Move = tuple[type[Event], str, str]


def on(event: type[Event], why: str) -> tuple[Move, ...]:
    """Where a batch can go on after *event*, because of *why*: under whichever name fits, or back."""
    return (
        (event, "executing", f"{why}; tools are at work"),
        (event, "confirming", f"{why}; a question is open"),
        (event, "dispatching", f"{why}; a child is at work"),
        (event, "thinking.go", f"{why}; every call has its result"),
    )


def winds_down(event: type[Event], why: str, child: str = "") -> tuple[Move, ...]:
    """Where a batch that is being given up can go after *event*, because of *why*; to a child for *child*."""
    return (
        (event, "executing.stopping", f"{why}; tools are still at work"),
        (event, "dispatching.stopping", child or f"{why}; a child is still at work"),
        (event, "thinking.go", f"{why}; the rest was skipped"),
    )


# Why a batch that is being given up can come to wait for a child.
APPROVED = "a child that was approved is started after all"

WAYS: Mapping[str, tuple[Move, ...]] = {
    # Thinking: between model calls
    "thinking.start": (
        (events.Entered, "thinking.reading", "the session begins; its instructions are read"),
        (events.Entered, "thinking.opening", "the session begins; hooks are asked"),
        (events.Entered, "thinking.prompt", "the run begins"),
        (events.InputWithdrawn, "thinking.end", "what it was to begin with was taken back"),
    ),
    "thinking.reading": (
        (events.InstructionsRead, "thinking.opening", "hooks are asked"),
        # Not read again by later runs: a system prompt that changes loses the provider's cache.
        (events.InstructionsRead, "thinking.prompt", "they hold for the whole session"),
        (events.Interrupted, "thinking.end", "the prompt does not come in"),
        (events.InputWithdrawn, "thinking.end", "what it was to begin with was taken back"),
    ),
    "thinking.opening": (
        (events.HookAnswered, "thinking.prompt", "the session may begin"),
        (events.HookAnswered, "thinking.end", "it may not; the prompt does not come in"),
        (events.Interrupted, "thinking.end", "the prompt does not come in"),
        (events.InputWithdrawn, "thinking.end", "what it was to begin with was taken back"),
    ),
    "thinking.prompt": (
        (events.Entered, "thinking.admitting", "hooks are asked about the prompt"),
        (events.Entered, "thinking.go", "the prompt becomes a message"),
        (events.InputWithdrawn, "thinking.end", "what it was to begin with was taken back"),
    ),
    "thinking.steer": (
        (events.Entered, "thinking.admitting", "hooks are asked about what was said"),
        (events.Entered, "thinking.go", "what was said becomes messages, or was taken back"),
        (events.Entered, "thinking.end", "what was said was taken back, and nothing else goes on"),
        (events.Entered, "thinking.checking", "what was said was taken back; an output had been given"),
    ),
    "thinking.admitting": (
        (events.HookAnswered, "thinking.go", "it comes in, or it goes on without"),
        (events.HookAnswered, "thinking.end", "it does not come in, and without it nothing goes on"),
        (events.HookAnswered, "thinking.checking", "it does not come in; an output had been given"),
        (events.Interrupted, "thinking.end", "it does not come in"),
        # Hooks have judged all the words together. So they are asked again, about what is left.
        (events.InputWithdrawn, "thinking.prompt", "a prompt, or what came with it, was taken back"),
        (events.InputWithdrawn, "thinking.steer", "something that was said was taken back"),
        (events.InputWithdrawn, "thinking.end", "what it was to begin with was taken back"),
    ),
    "thinking.go": (
        (events.Entered, "streaming", "the model is called"),
        (events.Entered, "thinking.steer", "a person said something"),
        (events.Entered, "compacting.weigh", "the context is over its threshold"),
        # It comes back to itself after each of these, to look again at all that stands before a call.
        (events.Entered, "thinking.go", "old results are left out, or a tool is taken away"),
        (events.Entered, "thinking.end", "a limit is reached, or it goes in circles"),
        # The driver takes both steps at once; people who step the machine by hand may stop between.
        (events.InputWithdrawn, "thinking.end", "what was said before the end was taken back"),
        (
            events.InputWithdrawn,
            "thinking.checking",
            "what was said was taken back; an output had been given",
        ),
    ),
    "thinking.checking": (
        (events.Entered, "thinking.decoding", "the output fits its schema; its class has the last word"),
        (events.Entered, "thinking.end", "the output is taken, or it was wrong too often"),
        (events.Entered, "thinking.go", "the output is wrong; it is asked for again"),
    ),
    "thinking.decoding": (
        (events.OutputDecoded, "thinking.end", "the output is taken, or it was wrong too often"),
        (events.OutputDecoded, "thinking.go", "the output is wrong; it is asked for again"),
        (events.Interrupted, "thinking.end", "the output is not waited for"),
    ),
    "thinking.retry": (
        (events.TimerFired, "thinking.go", "the wait is over"),
        # Only where the steer says so. Any other one waits in the mail for the call that comes anyway.
        (events.UserSteered, "thinking.go", "a person cannot wait"),
        (events.Interrupted, "thinking.end", "the timer is cancelled"),
    ),
    "thinking.end": (
        (events.Entered, "done", "the account is complete"),
        (events.Entered, "thinking.ending", "hooks are asked whether it may end"),
        # A steer is for this run, and this is the last moment at which the run can read it.
        (events.Entered, "thinking.go", "a person said something before the end"),
    ),
    "thinking.ending": (
        (events.HookAnswered, "done", "it may end"),
        (events.HookAnswered, "thinking.go", "a hook makes it go on, or a person said something"),
        (events.Interrupted, "thinking.end", "the hooks are not waited for"),
    ),
    # Streaming: a model answers
    "streaming": (
        (events.ModelStreamed, "streaming", "pieces are gathered"),
        (events.ModelFinished, "executing", "the answer has calls"),
        (events.ModelFinished, "thinking.go", "the provider paused it in the middle of work of its own"),
        (events.ModelFinished, "thinking.checking", "the answer is to be the output"),
        (events.ModelFinished, "thinking.end", "the answer is the end"),
        (events.ModelFinished, "compacting.weigh", "the answer was cut at its token limit"),
        (events.ModelFailed, "thinking.retry", "it may go better the next time"),
        (events.ModelFailed, "thinking.go", "it may go better with another model, or it was never asked"),
        (events.ModelFailed, "compacting.weigh", "the conversation is too large"),
        (events.ModelFailed, "thinking.end", "it cannot go better"),
        # What has come of the answer is kept and ends with a mark that it was cut: a person has read it.
        (events.UserSteered, "streaming.stopping", "a person cannot wait; the answer is cancelled"),
        (events.Interrupted, "streaming.stopping", "the answer is cancelled"),
    ),
    "streaming.stopping": (
        (events.ModelStreamed, "streaming.stopping", "pieces that were under way"),
        # A cancellation may come too late. The answer was paid for and read, so it is kept.
        (events.ModelFinished, "thinking.end", "the answer came all the same; its calls do not run"),
        (events.ModelFinished, "thinking.go", "the answer came all the same; now to what was said"),
        # The cancel was sent when the steer came, and is not undone. The model is asked to go on instead.
        (
            events.ModelFinished,
            "thinking.steer",
            "the answer came all the same; what was said was taken back",
        ),
        (events.ModelFailed, "thinking.end", "the text that was read is kept"),
        (events.ModelFailed, "thinking.go", "the text that was read is kept; now to what was said"),
        (
            events.ModelFailed,
            "thinking.steer",
            "the text that was read is kept; what was said was taken back",
        ),
        (events.Interrupted, "streaming.stopping", "the run is to end after all"),
        (events.Interrupted, "thinking.end", "nothing is waited for"),
    ),
    # Executing: tools are at work
    "executing": (
        *on(events.Entered, "calls are judged and started"),
        (events.Entered, "thinking.checking", "all calls give the output"),
        *on(events.ToolFinished, "a tool ended"),
        # What stands beside other calls is taken only where all of these went well.
        (events.ToolFinished, "thinking.checking", "the last tool ended well, beside the output"),
        (events.ToolFinished, "executing.stopping", "the budget is used up; other tools are still at work"),
        # Not `ToolFinished` with an error: the tool may have done its work, and an error invites a model to
        # repeat it.
        *on(events.ToolLost, "a tool may have run; that is told, or asked about"),
        *on(events.HookAnswered, "hooks answered"),
        (events.HookAnswered, "thinking.checking", "hooks looked at the last result, beside the output"),
        (events.HookAnswered, "executing.stopping", "a hook ends the run; tools are cancelled"),
        (events.HookAnswered, "thinking.end", "a hook ends the run"),
        *on(events.CallInspected, "a call was looked at"),
        (events.ToolProgressed, "executing", "a tool said something"),
        *on(events.CallCancelled, "a call is given up"),
        (events.UserSteered, "executing.stopping", "the rest is skipped; tools are still at work"),
        # Where nothing was at work, there is nothing to wait for.
        (events.UserSteered, "thinking.go", "the rest is skipped"),
        (events.Interrupted, "executing.stopping", "tools are cancelled"),
        (events.Interrupted, "thinking.end", "nothing was at work"),
    ),
    "executing.stopping": (
        *winds_down(events.ToolFinished, "a tool ended", APPROVED),
        # A budget that is used up takes nothing away that is there.
        (events.ToolFinished, "thinking.checking", "the last tool ended well, beside the output"),
        (events.ToolFinished, "thinking.end", "the interrupt is complete"),
        *winds_down(events.ToolLost, "a tool may have run", APPROVED),
        (events.ToolLost, "confirming.stopping", "a tool may have run, which is asked about"),
        (events.ToolLost, "thinking.end", "the interrupt is complete"),
        *winds_down(events.HookAnswered, "hooks answered", APPROVED),
        (events.HookAnswered, "thinking.checking", "hooks looked at the last result, beside the output"),
        (events.HookAnswered, "thinking.end", "a hook ends the run"),
        *winds_down(events.CallInspected, "a call that was approved was looked at", APPROVED),
        (events.ToolProgressed, "executing.stopping", "a tool said something"),
        *winds_down(events.CallCancelled, "a call is given up", APPROVED),
        (events.UserSteered, "thinking.go", "the rest is skipped"),
        (events.Interrupted, "executing.stopping", "tools are cancelled after all"),
        (events.Interrupted, "thinking.end", "what still ran may have run"),
    ),
    # Confirming: a question is open
    "confirming": (
        *on(events.ApprovalGiven, "a question was answered"),
        (events.ApprovalGiven, "executing.stopping", "denied; tools are still at work"),
        (events.ApprovalGiven, "confirming.stopping", "denied; other questions stay open"),
        (events.ApprovalGiven, "dispatching.stopping", "denied; a child is still at work"),
        (events.ApprovalGiven, "thinking.end", "denied, which ends the run"),
        # The deadline of a question is a timer, a request like any other. So a no by silence is an event in
        # the journal.
        *on(events.TimerFired, "no answer came in time"),
        (events.TimerFired, "executing.stopping", "so it is denied; tools are still at work"),
        (events.TimerFired, "confirming.stopping", "so it is denied; other questions stay open"),
        (events.TimerFired, "dispatching.stopping", "so it is denied; a child is still at work"),
        (events.TimerFired, "thinking.end", "so it is denied, which ends the run"),
        (events.HookAnswered, "confirming", "hooks answered"),
        (events.HookAnswered, "executing.stopping", "a hook ends the run; tools are cancelled"),
        (events.HookAnswered, "dispatching.stopping", "a hook ends the run; a child is cancelled"),
        (events.HookAnswered, "thinking.end", "a hook ends the run"),
        (events.CallInspected, "confirming", "a call was looked at"),
        (events.ToolFinished, "confirming", "a tool ended"),
        *winds_down(events.ToolFinished, "the budget is used up"),
        (events.ToolLost, "confirming", "a tool may have run; that is told, or asked about"),
        (events.AgentFinished, "confirming", "a child ended"),
        *winds_down(events.AgentFinished, "the budget is used up"),
        (events.ToolProgressed, "confirming", "a tool said something"),
        (events.AgentProgressed, "confirming", "a child told what it has spent"),
        *on(events.CallCancelled, "a call is given up"),
        *winds_down(events.UserSteered, "questions are withdrawn"),
        (events.Interrupted, "executing.stopping", "questions are withdrawn, tools cancelled"),
        (events.Interrupted, "dispatching.stopping", "questions are withdrawn, a child cancelled"),
        (events.Interrupted, "thinking.end", "questions are withdrawn, nothing ran"),
    ),
    "confirming.stopping": (
        *winds_down(events.ApprovalGiven, "the last question is answered"),
        (events.ApprovalGiven, "confirming.stopping", "other questions stay open"),
        (events.ApprovalGiven, "thinking.end", "denied, which ends the run"),
        *winds_down(events.TimerFired, "no answer to the last question came in time"),
        (events.TimerFired, "confirming.stopping", "other questions stay open"),
        (events.TimerFired, "thinking.end", "so it is denied, which ends the run"),
        (events.HookAnswered, "confirming.stopping", "hooks answered"),
        (events.HookAnswered, "executing.stopping", "a hook ends the run; tools are cancelled"),
        (events.HookAnswered, "dispatching.stopping", "a hook ends the run; a child is cancelled"),
        (events.HookAnswered, "thinking.end", "a hook ends the run"),
        (events.CallInspected, "confirming.stopping", "a call that was approved was looked at"),
        (events.ToolFinished, "confirming.stopping", "a tool ended"),
        *winds_down(events.ToolFinished, "the budget is used up"),
        (events.ToolLost, "confirming.stopping", "a tool may have run; that is told, or asked about"),
        (events.AgentFinished, "confirming.stopping", "a child ended"),
        *winds_down(events.AgentFinished, "the budget is used up"),
        (events.ToolProgressed, "confirming.stopping", "a tool said something"),
        (events.AgentProgressed, "confirming.stopping", "a child told what it has spent"),
        *winds_down(events.CallCancelled, "a call is given up"),
        (events.CallCancelled, "confirming.stopping", "other questions stay open"),
        *winds_down(events.UserSteered, "questions are withdrawn"),
        (events.Interrupted, "executing.stopping", "questions are withdrawn, tools cancelled"),
        (events.Interrupted, "dispatching.stopping", "questions are withdrawn, a child cancelled"),
        (events.Interrupted, "thinking.end", "questions are withdrawn, nothing ran"),
    ),
    # Dispatching: a child is at work
    "dispatching": (
        *on(events.AgentFinished, "a child ended"),
        (events.AgentFinished, "thinking.checking", "the last child ended well, beside the output"),
        (events.AgentFinished, "executing.stopping", "the budget is used up; tools are still at work"),
        (events.AgentFinished, "dispatching.stopping", "the budget is used up; another child is at work"),
        (events.ToolFinished, "dispatching", "a tool ended"),
        (events.ToolFinished, "confirming", "a tool ended, and what was allowed is asked about after all"),
        (events.ToolFinished, "dispatching.stopping", "the budget is used up; the child is still at work"),
        (events.ToolLost, "dispatching", "a tool may have run, which is told"),
        (events.ToolLost, "confirming", "a tool may have run, which is asked about, or the next one is"),
        (events.HookAnswered, "dispatching", "hooks answered"),
        (events.HookAnswered, "confirming", "hooks answered; a question is open"),
        (events.HookAnswered, "dispatching.stopping", "a hook ends the run; the child is cancelled"),
        (events.CallInspected, "dispatching", "a call was looked at"),
        (events.CallInspected, "confirming", "a call was looked at; a question is open"),
        (events.ToolProgressed, "dispatching", "a tool said something"),
        (events.AgentProgressed, "dispatching", "a child told what it has spent"),
        (events.CallCancelled, "dispatching", "a call is given up"),
        (events.CallCancelled, "confirming", "a call is given up, and the next one asked about"),
        # A child is let finish, unless the steer cannot wait: what it has done so far is paid for.
        (events.UserSteered, "dispatching.stopping", "the rest is skipped; the child is still at work"),
        (events.Interrupted, "dispatching.stopping", "the child is cancelled"),
    ),
    "dispatching.stopping": (
        *winds_down(events.AgentFinished, "a child ended"),
        (events.AgentFinished, "thinking.checking", "the last child ended well, beside the output"),
        (events.AgentFinished, "thinking.end", "the interrupt is complete"),
        (events.ToolFinished, "dispatching.stopping", "a tool ended"),
        (events.ToolLost, "dispatching.stopping", "a tool may have run, which is told"),
        (events.ToolLost, "confirming.stopping", "a tool may have run, which is asked about"),
        (events.HookAnswered, "dispatching.stopping", "hooks answered"),
        (events.CallInspected, "dispatching.stopping", "a call that was approved was looked at"),
        (events.ToolProgressed, "dispatching.stopping", "a tool said something"),
        (events.AgentProgressed, "dispatching.stopping", "a child told what it has spent"),
        (events.CallCancelled, "dispatching.stopping", "a call is given up"),
        (events.Interrupted, "dispatching.stopping", "the child is cancelled after all"),
        (events.Interrupted, "thinking.end", "what still ran may have run"),
    ),
    # Compacting: the context is being shrunk
    "compacting.weigh": (
        (events.Entered, "compacting.consulting", "hooks are asked"),
        (events.Entered, "compacting.summary", "the old part is summarised"),
        # At the threshold there is still room for an answer. Only a context that cannot be sent ends the run.
        (events.Entered, "thinking.go", "nothing to cut; it goes on as it is"),
        (events.Entered, "thinking.end", "nothing to cut, and it cannot go on as it is"),
    ),
    "compacting.consulting": (
        (events.HookAnswered, "compacting.summary", "the old part is summarised"),
        (events.HookAnswered, "thinking.go", "a hook is against it; it goes on as it is"),
        (events.HookAnswered, "thinking.end", "a hook is against it, and without it nothing goes on"),
        (events.Interrupted, "thinking.end", "the hooks are not waited for"),
    ),
    "compacting.summary": (
        (events.ModelStreamed, "compacting.summary", "pieces are gathered"),
        (events.ModelFinished, "thinking.go", "the summary takes the old part's place, or failed"),
        (events.ModelFinished, "thinking.end", "no use, and it cannot go on as it is"),
        # Weighed again and not only asked again: another model may read less than the plan has room for.
        (
            events.ModelFailed,
            "compacting.weigh",
            "it was lost or never asked for, or another model is asked; once more",
        ),
        (events.ModelFailed, "compacting.pausing", "it may go better the next time"),
        (events.ModelFailed, "compacting.summary", "it was too much to read; once more with less"),
        (events.ModelFailed, "thinking.go", "it goes on as it is"),
        (events.ModelFailed, "thinking.end", "it cannot go on as it is"),
        (events.Interrupted, "compacting.stopping", "the summary is cancelled"),
    ),
    "compacting.pausing": (
        (events.TimerFired, "compacting.summary", "the wait is over"),
        (events.UserSteered, "compacting.summary", "a person cannot wait"),
        (events.Interrupted, "thinking.end", "the timer is cancelled"),
    ),
    "compacting.stopping": (
        (events.ModelStreamed, "compacting.stopping", "pieces that were under way"),
        # A summary that comes after an interrupt is dropped; only its cost is kept.
        (events.ModelFinished, "thinking.end", "the interrupt is complete"),
        (events.ModelFailed, "thinking.end", "the interrupt is complete"),
        (events.Interrupted, "thinking.end", "nothing is waited for"),
    ),
}

TABLE: tuple[Row, ...] = tuple(
    Row(state, *way)
    for state, ways in WAYS.items()
    for way in (*ways, *[(event, state, why) for event, why in WELCOME.items()])
)


# What follows from the table: which transitions are legal, and what a state does not act on.


_EVERY: frozenset[type[Event]] = frozenset(get_args(Event))

# What a state does not act on at all, by name. What it acts on may still name a request that is not open.
IGNORED: dict[str, frozenset[type[Event]]] = {
    state: _EVERY - {row.event for row in TABLE if row.state == state}
    for state in dict.fromkeys([*(row.state for row in TABLE), *(row.target for row in TABLE)])
}

# The rows as a set, for the check after each transition.
LEGAL: frozenset[tuple[str, type[Event], str]] = frozenset((r.state, r.event, r.target) for r in TABLE)
