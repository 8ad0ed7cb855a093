"""Tells who watches a session, and who waits for prompts of it, what becomes of its runs here."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, final

import attrs

from ...effects import errors
from ...effects.messages import Outcome, Role
from ...effects.notices import DoneReason, InputDropped, InputTaken, LeftBecause, RunEnded, RunLeft
from ...states.state import Done
from .environment import Result
from .refusals import left_unfinished

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ...effects import Effect
    from ...effects.requests import AskApproval
    from ..core.machine import Machine
    from .children import Children
    from .feed import Feed
    from .followed import Followed
    from .session_log import SessionLog
    from .wanted_outputs import WantedOutputs

# The errors of a caller while another one may work on the session.
AWAY = (errors.SessionBusy, errors.SessionClosed)


@final
@attrs.define(eq=False, repr=False)
class RunReport:
    """
    Tells of the runs that are opened or taken over here, of the session of *log*, which has these *children*.

    Of each, subscribers to *feed* are told once that it has ended, or that it is left here.
    """

    _log: SessionLog
    _children: Children
    _feed: Feed
    _outputs: WantedOutputs
    # The run that is being opened or goes on, until its end is told.
    _run: str = attrs.field(default="", init=False)
    # Whether it began earlier.
    _resumed: bool = attrs.field(default=False, init=False)
    # The callers' runs and prompts of which something is still to be told.
    _followed: tuple[Followed, ...] = attrs.field(default=(), init=False)

    def follow(self, runs: Followed) -> None:
        """Tell *runs* which run takes which prompt, and how it ends here, until no prompt of it waits."""
        if runs not in self._followed:
            self._followed = (*self._followed, runs)

    def result(self) -> Result:
        """How far the latest run has come; `UnknownSession` before the first."""
        machine = self._log.state.machine
        if machine is None:
            raise errors.UnknownSession(self._log.journal.session)
        return result_of(machine, self._log.journal.session, self._children.waiting, self._outputs)

    def opening(self, run: str, *, resumed: bool = False) -> None:
        """*run* is about to be opened, or *resumed*."""
        self._run, self._resumed = str(run), resumed

    def opened(self, first: Iterable[Effect], before: set[str]) -> None:
        """The run is open, or taken over, with the effects *first*; the inputs *before* waited until then."""
        if not self._followed:
            return
        state, resumed = self._log.state, self._resumed
        read = [name for effect in first if isinstance(effect, InputTaken) for name in effect.ids]
        taken, queued = {*read, *state.beginning}, state.waiting
        if not resumed:
            # It has dropped them as it began, and tells of none. One that is resumed does so in a step.
            self.withdrawn(before - taken - queued)
        for each in self._followed:
            each.begins(self._run, taken, queued, resumed=resumed)

    def withdrawn(self, inputs: Collection[str]) -> None:
        """The *inputs* were taken back before a run took them."""
        for each in self._followed if inputs else ():
            each.withdrawn(inputs)

    def tell(self, last: Effect) -> None:
        """Tell of *last*, with which a step ended: the end of the run, or an input that was dropped."""
        if isinstance(last, InputDropped):
            self.withdrawn((last.id,))
        else:
            self.ended()

    def ended(self) -> None:
        """The end of the run was told."""
        self._run = ""
        if self._followed:
            self._end(self.result(), None)

    def _end(self, result: Result | None, error: BaseException | None) -> None:
        for each in self._followed:
            each.ends(result, error)

    def stops(
        self, error: BaseException | None, let_go: LeftBecause | None, at: float, *, rests: bool
    ) -> None:
        """The work stops, *at* a time, for *error* or because the session is *let go*; the run may rest."""
        run, machine = self._run, self._log.state.machine
        if run and not self._log.unread and (machine is None or machine.memory.run != run):
            # It was not opened.
            run = ""
        result = self.result() if run and machine is not None and machine.memory.run == run else None
        if result is not None and result.reason is not None and not isinstance(error, errors.StoreConflict):
            # Its last step is stored, although the append failed. The end of one that was taken over is told
            # where it came to it.
            self._feed.publish(
                RunEnded(run=run, reason=result.reason, spent=result.spent, at=at, detail=result.detail)
            )
        elif (run and not (rests and error is None)) or self._cannot_begin(error):
            why = let_go or why_left(error)
            self._feed.publish(RunLeft(at=at, run=run, why=why, detail=detail_of(error)))
        self._run = ""
        self._end(result, error)

    def _cannot_begin(self, error: BaseException | None) -> bool:
        return isinstance(error, Exception) and not isinstance(error, AWAY) and bool(self._log.state.prompts)

    def over(self, error: BaseException | None, let_go: LeftBecause | None) -> None:
        """The session is free; prompts that still wait do so because of *error*, or of what was *let go*."""
        why: BaseException | None = error if isinstance(error, Exception) else None
        if let_go is not None:
            why = errors.SessionClosed(self._log.journal.session)
        elif why is None and self._log.state.unfinished:
            why = left_unfinished(self._log)
        self.withdrawn(self._log.state.withdrawn)
        for each in self._followed:
            each.stops(why, self._log.state)
        self._followed = tuple([each for each in self._followed if not each.over.is_set()])


def why_left(error: BaseException | None) -> LeftBecause:
    """Why a run is left that *error* ended the work on."""
    if isinstance(error, errors.StoreConflict):
        return LeftBecause.TAKEN_OVER
    return LeftBecause.FAILED if isinstance(error, Exception) else LeftBecause.LEFT


def detail_of(error: BaseException | None) -> str:
    """*error* in words; empty where none of the outside world or of a caller ended the work."""
    if isinstance(error, errors.StoreConflict):
        return str(error)
    return f"{type(error).__name__}: {error}" if isinstance(error, Exception) else ""


def result_of(
    machine: Machine,
    session: str,
    waiting: tuple[AskApproval, ...],
    outputs: WantedOutputs,
) -> Result:
    """
    How far the run of *machine* in *session* has come; these questions are *waiting*.

    *outputs* say which class its output is read as.
    """
    over = machine.state if isinstance(machine.state, Done) else None
    # Back to the prompt and no further: an earlier run's answer is not this one's.
    run = [*takewhile(lambda message: message.role is not Role.USER, reversed(machine.memory.history))]
    # Results at a natural end are of calls that were skipped, or an empty answer, which is not kept, came
    # behind them. No earlier answer is then the last.
    ran = any(result.outcome is not Outcome.SKIPPED for message in run[:1] for result in message.results)
    if ran and over is not None and over.reason in {DoneReason.END_TURN, DoneReason.REFUSAL}:
        run = []
    spec, output = machine.config.output, "" if over is None else over.output
    # Without an output the value of the run is its text.
    wanted = None if spec is None or not output else outputs.of_run(machine.memory.run, spec)
    text = next((message.text for message in run if message.role is Role.ASSISTANT), "")
    return Result(
        session=session,
        run=machine.memory.run,
        # That of a tool stands in no text.
        text=output or text,
        reason=None if over is None else over.reason,
        # After a branch, the memory's account may go on; the bill of that run was closed when it ended.
        spent=machine.memory.spent if over is None else over.spent,
        waiting=waiting,
        detail="" if over is None else over.detail,
        read=None if wanted is None or spec is None else wanted.reader(output, spec),
    )
