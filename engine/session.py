"""
The session: many runs over one history.

A session owns what lies around a run. It opens runs, takes over one that a process left behind, keeps the
journal, and is where a person's answers and interrupts come in. A run that rests (only questions are open)
holds nothing: it is rows in a store until somebody answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, final, get_args

import attrs

from ..effects import is_notice
from ..effects.errors import (
    ArgumentError,
    ConfigError,
    SessionBusy,
    SessionClosed,
    UnknownRequest,
    UnknownSession,
)
from ..effects.events import ApprovalGiven, Approve, Decision, Deny, Event, Interrupted
from ..effects.history import History
from ..effects.notices import ApprovalRequested, Notice
from ..effects.requests import AskApproval
from ..effects.text import clean
from .driver import Driver, Performers
from .entries import VERSION, Posted, RunOpened, TakenOver
from .machine import Machine
from .recovery import questions, recover
from .result import Result

if TYPE_CHECKING:
    from ..effects import Effect
    from ..effects.config import Config
    from ..effects.performers.base import Clock
    from ..effects.performers.stores.base import Store
    from .journal import Journal


DECISIONS = frozenset(get_args(Decision))

TURNS_TO_NOTICE = 5
"""
Turns of the event loop after which a stream that was merely dropped (a ``break`` without `aclosing`) has
begun to close: asyncio closes it in a task of its own.
"""


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

    Theory of operation. Whoever streams claims the session before the first await, so two cannot both begin.
    What the machine in memory knows and the journal does not (a store that failed, a stream that was left)
    did not happen: the journal is read again before the next use.
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
        self._busy = False  # somebody runs, or is about to
        self._leaving = False  # they are on their way out
        self._free = asyncio.Event()
        self._reading = asyncio.Lock()
        self._posted: list[Event] = []  # for the run that rests
        self._early: list[Event] = []  # for the run that is being opened

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
        return questions(self._machine)

    # What it does

    async def load(self) -> Session:
        """
        Read the journal where that is due; every other method that needs it does this by itself.

        While a run is under way there is nothing to read: it knows more than the store.
        """
        async with self._reading:
            if not self._busy:
                await self._read()
        return self

    async def _read(self) -> None:
        if self._closed:
            raise SessionClosed(self.id)
        if self._loaded or self._store is None:
            return
        # The converter costs more to set up than the rest of the engine together.
        from .journal import Journal, fold  # noqa: PLC0415  # only with a store

        entries = await self._store.load(self.id)
        folded = fold(entries, self.id)
        self._machine, self._posted = folded.machine, [*folded.posted, *self._posted]
        self._journal = Journal(self._store, self.id, len(entries))
        self._loaded = True

    async def run(self, prompt: str, *, wait: bool = False) -> Result:
        """
        Run the agent on *prompt* to its end, or until it rests on a question.

        A resting run's result has no reason and names the questions in `waiting`: answer them with
        `approve` and go on with `resume`. With *wait*, it does not rest but waits for the answers.
        Raises `SessionBusy` where a run is under way or unfinished.
        """
        return await self._to_the_end(self.stream(prompt, wait=wait))

    async def resume(self, *, wait: bool = False) -> Result:
        """Go on with the run that rests or was left behind by a lost process; as `run`."""
        return await self._to_the_end(self.stream(wait=wait))

    async def _to_the_end(self, stream: AsyncGenerator[Notice, None]) -> Result:
        async with aclosing(stream) as notices:
            async for _ in notices:
                pass
        if self._closed:
            raise SessionClosed(self.id)
        return self.result()

    async def stream(self, prompt: str | None = None, *, wait: bool = False) -> AsyncGenerator[Notice, None]:
        """
        As `run`, or as `resume` without a *prompt*, yielding notices as they come.

        Leaving early stops the work and leaves the run unfinished; `resume` goes on with it.
        """
        await self._claim()
        try:
            begun = await self._begin(prompt)
            if begun is None:
                return
            async with aclosing(self._notices(*begun, wait=wait)) as notices:
                async for notice in notices:
                    yield notice
            self._loaded = True
        except GeneratorExit:
            self._leaving = True
            raise
        finally:
            self._driver = None
            self._early.clear()
            self._busy = self._leaving = False
            self._free.set()

    async def _begin(self, prompt: str | None) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of the run that is opened or taken over; None where the last one is over."""
        async with self._reading:
            await self._read()
            before = self._machine
            # Left in the middle, by whatever, the journal is what holds: it is read before the next use.
            loaded = self._store is None
            if prompt is not None:
                if self.unfinished:
                    raise SessionBusy(self.id)
                self._loaded = loaded
                machine, first = await self._open(prompt)
            elif before is None:
                raise UnknownSession(self.id)
            elif before.done:
                self._posted.clear()
                return None
            else:
                self._loaded = loaded
                machine, first = await self._take_over(before)
            if self._closed:
                raise SessionClosed(self.id)
            return self._drive(machine), first

    async def _notices(
        self, driver: Driver, first: tuple[Effect, ...], *, wait: bool
    ) -> AsyncGenerator[Notice, None]:
        async with aclosing(driver.effects(first, wait=wait)) as effects:
            async for effect in effects:
                if is_notice(effect):
                    yield effect

    async def _claim(self) -> None:
        """Be the one who runs. Between looking and taking nobody else gets a turn."""
        for _ in range(TURNS_TO_NOTICE):
            if not self._busy or self._leaving:
                break
            await asyncio.sleep(0)
        while self._busy and self._leaving:
            await self._free.wait()
        if self._closed:
            raise SessionClosed(self.id)
        if self._busy:
            raise SessionBusy(self.id)
        self._busy = True
        self._free.clear()

    async def _open(self, prompt: str) -> tuple[Machine, tuple[Effect, ...]]:
        if not prompt.strip():
            msg = f"a prompt has to say something; got {prompt!r}"
            raise ConfigError(msg)
        self._posted.clear()  # what waited was meant for a run that is over
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
        return machine, machine.advance(at=at)

    async def _take_over(self, machine: Machine) -> tuple[Machine, tuple[Effect, ...]]:
        now = self._setting.clock.now()
        config = None if machine.config == self._setting.config else self._setting.config
        if self._journal is not None:
            await self._journal.write(TakenOver(at=now, config=config))
        if config is not None:
            machine.reconfigure(config)
        recovery = recover(machine, now, kept=self._journal is not None)
        answered = {event.request for event in self._posted if isinstance(event, ApprovalGiven)}
        self._posted[:0] = recovery.events
        again = [one for one in recovery.again if not isinstance(one, AskApproval) or one.id not in answered]
        asked = [_asked(request) for request in again if isinstance(request, AskApproval)]
        return machine, (*again, *asked)

    def _drive(self, machine: Machine) -> Driver:
        self._machine = machine
        self._driver = Driver(
            machine=machine,
            performers=self._setting.performers,
            session=self.id,
            journal=self._journal,
            clock=self._setting.clock,
        )
        for event in [*self._posted, *self._early]:
            self._driver.post(event)
        self._posted.clear()
        self._early.clear()
        return self._driver

    async def approve(self, request: str, decision: Decision = Approve()) -> None:  # noqa: B008  # a frozen value
        """
        Answer the open question *request* with *decision*: `Approve`, `ApproveAlways` or `Deny`.

        A run that rests takes the answer up when it is resumed, here or in another process: with a store the
        answer is kept when this returns. Raises `UnknownRequest` where no such question is open, and
        `ArgumentError` for a decision that is none.
        """
        if type(decision) not in DECISIONS:
            msg = f"a decision is Approve(), ApproveAlways() or Deny(), not {decision!r}"
            raise ArgumentError(msg)
        async with self._reading:
            if self._driver is None:
                await self._read()
            open_ = tuple([question.id for question in self.waiting])
            if request not in open_:
                raise UnknownRequest(request, open_)
            if isinstance(decision, Deny):
                decision = Deny(message=clean(decision.message))
            event = ApprovalGiven(at=self._setting.clock.now(), request=request, decision=decision)
            if self._driver is not None:
                self._driver.post(event)
                return
            if self._journal is not None:
                self._loaded = False  # until it is known that nobody else wrote
                await self._journal.write(Posted(event=event))
                self._loaded = True
            self._posted.append(event)

    def interrupt(self) -> None:
        """
        Ask the run to stop: what runs is cancelled, what was read is kept. Twice: nothing is waited for.

        A run that is just being opened is stopped when it begins, one that rests when it is resumed in this
        object; without any, nothing happens.
        """
        event = Interrupted(at=self._setting.clock.now())
        if self._driver is not None:
            self._driver.post(event)
        elif self._busy:
            self._early.append(event)
        elif self.unfinished:
            self._posted.append(event)

    def result(self) -> Result:
        """The result of the latest run, as far as it has come; `UnknownSession` before the first."""
        if self._machine is None:
            raise UnknownSession(self.id)
        return Result.of(self.id, self._machine, self.waiting)

    async def close(self) -> None:
        """
        Let go. A run that is under way is left: its work stops, and it can be resumed from the store.

        Closing twice is fine.
        """
        self._closed = True
        if self._driver is not None:
            await self._driver.leave()

    async def __aenter__(self) -> Session:
        return await self.load()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _asked(question: AskApproval) -> ApprovalRequested:
    """What whoever watches a run that is taken over is told of a question that was open."""
    return ApprovalRequested(
        request=question.id, call=question.call, tool=question.tool, arguments=question.arguments
    )
