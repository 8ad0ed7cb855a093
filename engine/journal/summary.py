"""A session in one row of its store, so that a list of sessions need not read journals."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never, final

import attrs

from ...effects.config import Config
from ...effects.notices import DoneReason
from ...effects.usage import Spent
from ...states import state as states
from .entries import RunOpened
from .fold import SessionState

# Characters of a title.
MAX_TITLE = 60


class SessionKind(StrEnum):
    """How a session came to be: from a caller, as a child of a run, or as a copy of another."""

    MAIN = "main"
    CHILD = "child"
    FORK = "fork"


class SessionStatus(StrEnum):
    """
    Where a session is: `IDLE` between runs, `RESTING` on questions, `UNFINISHED` in the middle of a run.

    An unfinished one is at work in some process, or was left behind by one. `UNREADABLE`: this version cannot
    read its journal.
    """

    IDLE = "idle"
    RESTING = "resting"
    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"


class Activity(StrEnum):
    """What a session does now, in the four words of others; the label of its state says more."""

    IDLE = "idle"
    RUNNING = "running"
    STREAMING = "streaming"
    EXECUTING_TOOLS = "executing_tools"


def activity_of(state: states.State | None) -> Activity:
    """What a session with a run in *state* does, None for no run."""
    match state:
        case None | states.Done():
            return Activity.IDLE
        case states.Streaming():
            return Activity.STREAMING
        case states.Executing() | states.Confirming() | states.Dispatching():
            return Activity.EXECUTING_TOOLS
        case states.Thinking() | states.Compacting():
            return Activity.RUNNING
        case _:
            assert_never(state)


@final
@attrs.frozen(kw_only=True)
class SessionSummary:
    """
    A session, as its last writer described it.

    *parent* is the session it is a child or a fork of, empty for none. *messages* are those on the way to
    where it stands, *spent* the account of all its *runs* and its title. *summary* is the number of the
    journal's entry with the latest summary, 0 for none. *cwd* is its directory, *agent* its child agent.
    *questions* are open, *prompts* wait for a run of their own. *reason* is why the last run ended, None
    while it goes on.
    """

    # A default for each field: a row lists what differs from it, and rows from before a new field still read.
    kind: SessionKind = SessionKind.MAIN
    parent: str = ""
    title: str = ""
    runs: int = 0
    messages: int = 0
    spent: Spent = Spent()
    summary: int = 0
    cwd: str = ""
    agent: str = ""
    state: SessionStatus = SessionStatus.IDLE
    questions: int = 0
    prompts: int = 0
    reason: DoneReason | None = None

    @property
    def key(self) -> SummaryKey:
        """The part that is worth writing a row when it changes."""
        # Without messages and spend, which change with every step: a row for each would double the writes.
        return self.state, self.questions, self.prompts, self.runs, self.summary, self.title


SummaryKey = tuple[SessionStatus, int, int, int, int, str]


def summary_key(state: SessionState) -> SummaryKey:
    """The `key` of the summary of *state*, without making one."""
    # At every step, while a summary is made for a few of them only. In the order of `SessionSummary.key`: a
    # mix-up would write a row at every step.
    machine = state.machine
    over = machine is None or isinstance(machine.state, states.Done)
    batch = None if machine is None else states.batch_of(machine.state)
    questions = () if batch is None else state.questions
    status = SessionStatus.UNFINISHED
    if over:
        # Also where prompts wait: no run has them yet, and `prompts` says that they are there.
        status = SessionStatus.IDLE
    elif batch is not None and questions and batch.rests:
        # Once the last question has an answer, the worker goes on; a batch with a tool at work never rested.
        status = SessionStatus.RESTING
    # A steer that came too late for its run waits as a prompt does; while the run goes on, it is none yet.
    prompts = len(state.prompts) + (len(state.late) if over else 0)
    return status, len(questions), prompts, state.runs, state.summary, state.title


def summarize(state: SessionState, session: str, prompts: int | None = None) -> SessionSummary:
    """The summary of *session*, which has this *state*; *prompts* wait, or those of the state."""
    status, questions, waiting, *_ = summary_key(state)
    prompts = waiting if prompts is None else prompts
    machine = state.machine
    if machine is None:
        # A title or a prompt may be journaled before the first run. No configuration says then what kind of
        # session it is.
        return SessionSummary(title=state.title, spent=state.title_spent, prompts=prompts)
    kind, parent = _origin(session, machine.config, state.copied)
    reason = machine.state.reason if isinstance(machine.state, states.Done) else None
    return SessionSummary(
        kind=kind,
        parent=parent,
        title=state.title,
        runs=state.runs,
        messages=state.messages,
        spent=state.spent,
        summary=state.summary,
        cwd=machine.config.cwd,
        agent=machine.config.agent,
        state=status,
        questions=questions,
        prompts=prompts,
        # A session that went back to its beginning stands after no run: nothing has ended there.
        reason=reason if machine.memory.run else None,
    )


def summarize_opened(
    opened: RunOpened, title: str, state: SessionState, session: str, prompts: int
) -> SessionSummary:
    """The summary of *session* once it has *opened* another run, has the *title*, and *prompts* wait."""
    # Run and summary are one append, so the summary is made before the run exists.
    kind, parent = _origin(session, opened.config, state.copied)
    # As before but for these. The prompt of this run is counted by a later summary, once a step appends it.
    return attrs.evolve(
        summarize(state, session, prompts),
        kind=kind,
        parent=parent,
        # Passed in: the title may be journaled together with this very run.
        title=title,
        runs=state.runs + 1,
        cwd=opened.config.cwd,
        agent=opened.config.agent,
        state=SessionStatus.UNFINISHED,
        reason=None,
    )


def _origin(session: str, config: Config, copied: str) -> tuple[SessionKind, str]:
    """How a session came to be and of which; a child is named after its parent and the call."""
    # Before the agent: a copy of a child's session belongs to no call, so it is listed with the forks.
    if copied:
        return SessionKind.FORK, copied
    # Only a child's configuration names an agent: the parent puts the name there.
    if config.agent:
        # From the name: a child's own journal does not say whose child it is.
        return SessionKind.CHILD, session.rpartition(".")[0]
    return SessionKind.MAIN, ""


def first_line(text: str) -> str:
    """The first line of *text* that is not blank, cut at a word where it is long."""
    lines = text.strip().splitlines()
    # A tab or several blanks would shift the columns of a list.
    line = " ".join(lines[0].split()) if lines else ""
    if len(line) <= MAX_TITLE:
        return line
    cut = line[:MAX_TITLE]
    # Without a blank to cut at, one character makes room for the ellipsis.
    return (cut.rpartition(" ")[0] or cut[:-1]) + "…"
