"""
The session: many runs over one history.

A session owns what lies around a run. It opens runs, takes over one that a process left behind, keeps the
journal, and is where a person's answers and interrupts come in. A run that rests (only questions are open)
holds nothing: it is rows in a store until somebody answers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, final

import attrs

from ..effects import is_notice
from ..effects.errors import SessionBusy, SessionClosed, UnknownRequest, UnknownSession
from ..effects.events import ApprovalGiven, Approve, Decision, Interrupted
from ..effects.history import History
from ..effects.notices import ApprovalRequested, Notice
from ..effects.requests import AskApproval
from ..effects.text import clean
from .driver import Driver, Performers
from .entries import VERSION, Reconfigured, RunOpened
from .machine import Machine
from .recovery import recover
from .result import Result

if TYPE_CHECKING:
    from ..effects import Effect
    from ..effects.config import Config
    from ..effects.performers.base import Clock
    from ..effects.performers.stores.base import Store
    from .journal import Journal


@final
@attrs.frozen(kw_only=True)
class Setting:
    """What a session works with: its *config* and *clock*, and who performs what."""

    config: Config
    performers: Performers
    clock: Clock
    new_id: Callable[[], str]


@final
class Session:
    """
    One conversation. Made by `Agent.session`; use it as an async context manager or call `close`.

    One run at a time: a second one raises `SessionBusy`. All methods belong to one event loop.
    """

    def __init__(self, id: str, setting: Setting, store: Store | None = None) -> None:  # noqa: A002  # the field's word
        self.id = id
        self._setting = setting
        self._store = store
        self._journal: Journal | None = None
        self._machine: Machine | None = None
        self._driver: Driver | None = None
        self._loaded = store is None
        self._closed = False
        self._posted: list[ApprovalGiven | Interrupted] = []

    # What it is

    @property
    def machine(self) -> Machine | None:
        """The machine of the latest run, or None before the first; look, do not advance."""
        return self._machine

    @property
    def history(self) -> History:
        """Everything that was said and not summarised away."""
        return History.of() if self._machine is None else self._machine.memory.history

    @property
    def unfinished(self) -> bool:
        """Whether the latest run is not over: it rests, or its process was lost."""
        return self._machine is not None and not self._machine.done

    @property
    def waiting(self) -> tuple[AskApproval, ...]:
        """The questions that are open."""
        if self._machine is None:
            return ()
        again = recover(self._machine, self._setting.clock.now()).again
        return tuple([request for request in again if isinstance(request, AskApproval)])

    # What it does

    async def load(self) -> Session:
        """Read the journal where it has to be; every other method that needs it does this first."""
        if self._closed:
            raise SessionClosed(self.id)
        if not self._loaded and self._store is not None:
            # The converter costs more to set up than the rest of the engine together.
            from .journal import Journal, fold  # noqa: PLC0415  # only with a store

            entries = await self._store.load(self.id)
            self._machine = fold(entries, self.id)
            self._journal = Journal(self._store, self.id, len(entries))
            self._loaded = True
        return self

    async def run(self, prompt: str, *, wait: bool = False) -> Result:
        """
        Run the agent on *prompt* to its end, or until it rests on a question.

        A resting run's result has no reason and names the questions in `waiting`: answer them with
        `approve` and go on with `resume`. With *wait*, it does not rest but waits for the answers.
        Raises `SessionBusy` where a run is under way or unfinished.
        """
        async with aclosing(self.stream(prompt, wait=wait)) as notices:
            async for _ in notices:
                pass
        return self.result()

    async def resume(self, *, wait: bool = False) -> Result:
        """Go on with the run that rests or was left behind by a lost process; as `run`."""
        async with aclosing(self.stream(wait=wait)) as notices:
            async for _ in notices:
                pass
        return self.result()

    async def stream(self, prompt: str | None = None, *, wait: bool = False) -> AsyncGenerator[Notice, None]:
        """
        As `run`, or as `resume` without a *prompt*, yielding notices as they come.

        Leaving early stops the work and leaves the run unfinished; `resume` goes on with it.
        """
        await self.load()
        if self._driver is not None or (prompt is not None and self.unfinished):
            raise SessionBusy(self.id)
        begun = await (self._take_over() if prompt is None else self._open(prompt))
        if begun is None:
            return
        driver, first = begun
        # Left in the middle, by whatever, the journal is what holds: it is read again before the next use.
        self._loaded = self._store is None
        try:
            async with aclosing(driver.effects(first, wait=wait)) as effects:
                async for effect in effects:
                    if is_notice(effect):
                        yield effect
            self._loaded = True
        finally:
            self._driver = None

    async def _open(self, prompt: str) -> tuple[Driver, tuple[Effect, ...]]:
        setting = self._setting
        run = setting.new_id()
        at = setting.clock.now()
        opened = RunOpened(
            at=at,
            run=run,
            sender=f"{run}-prompt",
            prompt=clean(prompt),
            config=setting.config,
            version=VERSION,
        )
        if self._journal is not None:
            await self._journal.write(opened)
        machine = Machine.open(opened, self._machine)
        return self._drive(machine), machine.advance(at=at)

    async def _take_over(self) -> tuple[Driver, tuple[Effect, ...]] | None:
        machine = self._machine
        if machine is None:
            raise UnknownSession(self.id)
        if machine.done:
            return None
        now = self._setting.clock.now()
        if machine.config != self._setting.config:
            if self._journal is not None:
                await self._journal.write(Reconfigured(at=now, config=self._setting.config))
            machine.config = self._setting.config
        recovery = recover(machine, now)
        driver = self._drive(machine)
        for event in recovery.events:
            driver.post(event)
        asked = [_asked(request) for request in recovery.again if isinstance(request, AskApproval)]
        return driver, (*recovery.again, *asked)

    def _drive(self, machine: Machine) -> Driver:
        self._machine = machine
        self._driver = Driver(
            machine=machine,
            performers=self._setting.performers,
            session=self.id,
            journal=self._journal,
            clock=self._setting.clock,
        )
        for event in self._posted:
            self._driver.post(event)
        self._posted.clear()
        return self._driver

    def approve(self, request: str, decision: Decision = Approve()) -> None:  # noqa: B008  # a frozen value
        """
        Answer the open question *request* with *decision*: `Approve`, `ApproveAlways` or `Deny`.

        A resting run takes the answer up when it is resumed. Raises `UnknownRequest` where no such question
        is open.
        """
        open_ = tuple([question.id for question in self.waiting])
        if request not in open_:
            raise UnknownRequest(request, open_)
        self._post(ApprovalGiven(at=self._setting.clock.now(), request=request, decision=decision))

    def interrupt(self) -> None:
        """
        Ask the run to stop: what runs is cancelled, what was read is kept. Twice: nothing is waited for.

        Without a run that is not over, nothing happens.
        """
        if self.unfinished:
            self._post(Interrupted(at=self._setting.clock.now()))

    def _post(self, event: ApprovalGiven | Interrupted) -> None:
        if self._driver is not None:
            self._driver.post(event)
        else:
            self._posted.append(event)

    def result(self) -> Result:
        """The result of the latest run, as far as it has come; `UnknownSession` before the first."""
        if self._machine is None:
            raise UnknownSession(self.id)
        return Result.of(self.id, self._machine, self.waiting)

    async def close(self) -> None:
        """Forget everything in memory; the journal stays. Closing twice is fine."""
        self._closed = True
        self._machine = None

    async def __aenter__(self) -> Session:
        return await self.load()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _asked(question: AskApproval) -> ApprovalRequested:
    """What whoever watches a run that is taken over is told of a question that was open."""
    return ApprovalRequested(
        request=question.id, call=question.call, tool=question.tool, arguments=question.arguments
    )
