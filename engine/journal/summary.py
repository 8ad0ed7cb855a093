"""What a session is about, in one row of its store, so that a list need not read journals."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, final

import attrs

from ...effects.notices import DoneReason
from ...effects.usage import Spent
from ...states.state import Confirming, Done

if TYPE_CHECKING:
    from ...effects.config import Config
    from .entries import RunOpened
    from .fold import SessionState


MAX_TITLE = 60
"""Characters of a title."""


class SessionKind(StrEnum):
    """How a session came to be: by somebody's wish, as a child of a run, or as a copy of another."""

    MAIN = "main"
    CHILD = "child"
    FORK = "fork"


class SessionStatus(StrEnum):
    """
    Where a session is: `IDLE` between runs, `RESTING` on questions, `UNFINISHED` in the middle of a run.

    An unfinished one is at work in some process, or was left behind by one. `UNREADABLE` is what is stored
    of it, here.
    """

    IDLE = "idle"
    RESTING = "resting"
    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"


@final
@attrs.frozen(kw_only=True)
class SessionSummary:
    """
    A session, described by whoever wrote to it last.

    *parent* is the session it is a child or a fork of, empty for none. *messages* are those that were said on
    the way to where it stands, *spent* the account of all its *runs* and its title. *summary* is the number
    of the journal's entry by which the latest summary took the place of older messages, 0 for none. *cwd* is
    where it worked, *agent* which child it is. *questions* are open, *prompts* wait for a run of their own.
    *reason* is why the last run ended, None while it goes on.
    """

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
        """What is worth a row of its own when it changes."""
        return self.state, self.questions, self.prompts, self.runs, self.summary, self.title


SummaryKey = tuple[SessionStatus, int, int, int, int, str]


def summary_key(folded: SessionState) -> SummaryKey:
    """The `SessionSummary.key` of the session that *folded* is of."""
    state, questions = status_of(folded), len(folded.questions)
    return state, questions, _prompts(folded), folded.runs, folded.summary, folded.title


def _prompts(folded: SessionState) -> int:
    """How many prompts wait, with what came too late for its run."""
    return len(folded.prompts) + (0 if folded.unfinished else len(folded.late))


def status_of(folded: SessionState) -> SessionStatus:
    """Where the session that *folded* is of stands."""
    machine = folded.machine
    if machine is None or machine.done:
        return SessionStatus.IDLE
    state = machine.state
    rests = isinstance(state, Confirming) and state.batch.rests and folded.questions
    return SessionStatus.RESTING if rests else SessionStatus.UNFINISHED


def summarize(folded: SessionState, session: str) -> SessionSummary:
    """What *session*, of which *folded* is known, is about."""
    machine = folded.machine
    if machine is None:
        return SessionSummary(title=folded.title, spent=folded.titling, prompts=_prompts(folded))
    kind, parent = _origin(session, machine.config, folded.copied)
    reason = machine.state.reason if isinstance(machine.state, Done) else None
    return SessionSummary(
        kind=kind,
        parent=parent,
        title=folded.title,
        runs=folded.runs,
        messages=folded.said,
        spent=folded.spent,
        summary=folded.summary,
        cwd=machine.config.cwd,
        agent=machine.config.agent,
        state=status_of(folded),
        questions=len(folded.questions),
        prompts=_prompts(folded),
        reason=reason if machine.memory.run else None,  # back at the beginning, nothing has ended
    )


def summarize_opened(
    opened: RunOpened, title: str, state: SessionState, session: str, prompts: int
) -> SessionSummary:
    """The summary of *session* once it has *opened* another run, is called *title*, and *prompts* wait."""
    kind, parent = _origin(session, opened.config, state.copied)
    return SessionSummary(
        kind=kind,
        parent=parent,
        title=title,
        runs=state.runs + 1,
        messages=state.said,
        spent=state.titling if state.machine is None else state.spent,
        summary=state.summary,
        cwd=opened.config.cwd,
        agent=opened.config.agent,
        state=SessionStatus.UNFINISHED,
        prompts=prompts,
    )


def _origin(session: str, config: Config, copied: str) -> tuple[SessionKind, str]:
    """How a session came to be and of which; a child is named after its parent and the call."""
    if copied:
        return SessionKind.FORK, copied
    if config.agent:
        return SessionKind.CHILD, session.rpartition(".")[0]
    return SessionKind.MAIN, ""


def first_line(text: str) -> str:
    """The first line of *text* that is not blank, cut at a word where it is long."""
    lines = text.strip().splitlines()
    line = " ".join(lines[0].split()) if lines else ""
    if len(line) <= MAX_TITLE:
        return line
    cut = line[:MAX_TITLE]
    return (cut.rpartition(" ")[0] or cut[:-1]) + "…"
