"""
Sessions as a player uses them: runs opened, left, taken over, steered, interrupted, answered at any moment.

Several session objects over one store, as in several processes, any of which may drive while others send,
steer, answer, change a setting or give up a call; a store that fails; a model that stumbles. After every move
the promises are checked, and at last all that waits is brought to its end by a process that knows only the
store. Everything is drawn from the player's `Choices`, and nothing waits for time to pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, final

import attrs

from provers.choices import (
    Choices,
    Seeded,
    chance,
    pick,
    weighted,
)
from provers.planned import DONE
from provers.simulation.jobs import (
    World,
    job,
    machine_faults,
    steer,
)
from provers.simulation.plans import SESSION_MOVES
from provers.tasks import (
    PATIENCE,
    at_work,
    ended,
    turns,
)
from turnwheel.effects.config import Concurrency, Steering
from turnwheel.effects.errors import CallerError, StoreConflict, StoreError
from turnwheel.effects.events import (
    Approve,
    ApproveAlways,
    Decision,
    Deny,
)
from turnwheel.effects.notices import ApprovalRequested, DoneReason
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import (
    Change,
    SetMode,
    SetModel,
    SetThinking,
)
from turnwheel.engine.core.machine import calls_in
from turnwheel.engine.session.session import Session

SESSION = "s"
CHANGES: tuple[Change, ...] = (
    SetMode(mode=PermissionMode.DEFAULT),
    SetMode(mode=PermissionMode.PLAN),
    SetMode(mode=PermissionMode.BYPASS),
    SetModel(model="wire:other"),
    SetThinking(tokens=100),
)

DECISIONS: tuple[Decision, ...] = (Approve(), Approve(), Deny(), Deny(message="no"), ApproveAlways())

REFUSED = (CallerError, StoreConflict, StoreError)
"""What a move may be told that comes at the wrong moment."""

SOON = 60
"""Turns in which whatever was told to stop has stopped; a run takes many more."""

ROUNDS = 40
"""No run needs to be taken over so often before it is over."""


@final
class SessionBroken(AssertionError):
    """*faults* were found after *moves*."""

    def __init__(self, faults: list[str], moves: list[str]) -> None:
        self.faults = faults
        self.moves = moves
        super().__init__(faults, moves)

    def __str__(self) -> str:
        return "\n".join([*self.faults, "", "after " + ", ".join(self.moves)])


async def to_the_end(session: Session, *, asks: bool = True) -> list[str]:
    """
    Go on with *session*, saying yes to everything, until nothing waits any more; what went wrong.

    Where it *asks* somebody who answers at once, there is nothing left to say yes to.
    """
    for _ in range(ROUNDS):
        await session.load()
        if session.machine is None and not session.queue:
            return []
        result = await session.resume()
        if session.machine is not None and not session.machine.memory.run:
            return []  # it went back to its beginning, where nobody has said anything
        if result.reason is DoneReason.END_TURN and result.text != DONE:
            return [f"a run ended with {result.text!r}"]
        if not session.unfinished and not session.queue:
            return []
        if asks or not session.waiting:
            return [f"{session.machine} rests on {session.waiting}, and there is an approver: {asks}"]
        for question in session.waiting:
            await session.approve(question.id)
    return [f"{session.machine} is not over after {ROUNDS} rounds"]


async def play_sessions(seed: int) -> list[str]:
    """The moves that *seed* determines. Raises `SessionBroken`."""
    return await SessionPlayer(Seeded(seed)).play()


@final
class SessionPlayer:
    """Who uses the sessions of one store. What was done and what came of it is in `moves`."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._trouble = weighted(choices, {0: 50, 3: 25, 10: 25})
        self.world = World(choices, self._fault, stumbles=weighted(choices, {0: 60, 5: 40}))
        self.moves: list[str] = []
        self._asks = chance(choices, 40)
        self._hooked = chance(choices, 40)
        self._coalesce = weighted(choices, {0.0: 75, 1.0: 25})
        self._poll = weighted(choices, {0.0: 50, 1_000.0: 50})
        self._concurrency = pick(choices, tuple(Concurrency))
        self._made = 0
        self._jobs = 0
        self._steers = 0
        self._sessions: list[Session] = []
        self._tasks: list[tuple[Session, asyncio.Task[None]]] = []
        self._playing: set[asyncio.Task[Any] | None] = set()
        self._astray = False  # whether something may be at work that is no task of ours

    def _fault(self, _: int) -> str:
        return pick(self._choices, ("before", "after")) if chance(self._choices, self._trouble) else ""

    async def play(self) -> list[str]:
        """Play, then have the last run ended by a process that knows only the store."""
        self._playing = {asyncio.current_task()}
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        loop.set_exception_handler(self._unheard)
        try:
            self._sessions.append(self._session())
            self._start_job(self._sessions[0])
            for _ in range(3 + self._choices.below(14)):
                await turns(self._choices.below(30))
                await self._move()
                self._check([])
            await self._settle()
        finally:
            loop.set_exception_handler(handler)
        return self.moves

    def _unheard(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.world.faults.append(
            f"the event loop was told: {context['message']} {context.get('exception')!r}"
        )

    def _session(self) -> Session:
        """
        The session as another process has it, which may be set up differently.

        It looks all the time for what others posted, or never, and then is told when it writes itself.
        """
        self._made += 1
        agent = self.world.agent(
            self._concurrency,
            asks=self._asks,
            system=pick(self._choices, ("", "", "Be quick.")),
            hooked=self._hooked,
            coalesce=self._coalesce,
        )
        made = agent.session(SESSION)
        setting = made._environment  # pyright: ignore[reportPrivateUsage]  # no host wants to set this
        return Session(SESSION, attrs.evolve(setting, poll=self._poll, lease=3_600.0), self.world.store)

    def _check(self, faults: list[str]) -> None:
        faults = faults + self.world.faults
        for session in self._sessions:
            if session.machine is not None:
                faults += machine_faults(session.machine)
        if faults:
            raise SessionBroken(faults, self.moves)

    # Moves

    async def _move(self) -> None:  # noqa: C901, PLR0912  # one branch for each move
        move = weighted(self._choices, SESSION_MOVES)
        self.moves.append(move)
        session = pick(self._choices, self._sessions)
        match move:
            case "run":
                self._start_job(session)
            case "resume":
                self._start(session, None)
            case "approve":
                self._spawn(session, lambda: self._answer(session))
            case "send":
                self._spawn(session, lambda: self._send(session))
            case "steer":
                self._spawn(session, lambda: self._steer(session))
            case "control":
                self._spawn(session, lambda: self._control(session))
            case "give up":
                self._spawn(session, lambda: self._give_up(session))
            case "interrupt":
                self._spawn(session, lambda: self._interrupt(session))
            case "branch":
                self._spawn(session, lambda: self._branch(session))
            case "fork":
                self._spawn(session, lambda: self._fork(session))
            case "cancel" if self._tasks:
                pick(self._choices, self._tasks)[1].cancel()
            case "close":
                await self._close(session)
            case "drain":
                self._drain(session)
            case "second":
                self._sessions.append(self._session())
            case _:
                await turns(100)

    def _start_job(self, session: Session) -> None:
        self._jobs += 1
        self._start(session, job(self._jobs))

    def _start(self, session: Session, prompt: str | None) -> None:
        how = weighted(self._choices, {"all": 60, "break": 20, "aclose": 20})
        self._spawn(session, lambda: self._watch(session, prompt, how))

    def _spawn(self, session: Session, work: Callable[[], Awaitable[None]]) -> None:
        name = self.moves[-1] if self.moves else "the first run"

        async def guarded() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                self.moves.append(f"{name} was cancelled")
            except REFUSED as error:
                self._refused(name, error)

        self._tasks.append((session, asyncio.ensure_future(guarded())))

    def _refused(self, name: str, error: Exception) -> None:
        self.moves.append(f"{name} was told {type(error).__name__}")
        failed = self.world.store.failed
        if isinstance(error, StoreError) and not failed:
            self.world.faults.append(f"{name}: {error!r} although the store works")
        if isinstance(error, StoreConflict) and self._made == 1 and not failed:
            self.world.faults.append(f"{name}: {error!r} although nobody else is there")

    async def _watch(self, session: Session, prompt: str | None, how: str) -> None:
        seen = PATIENCE if how == "all" else 1 + self._choices.below(40)
        takeover = chance(self._choices, 70)
        if how == "break":
            self._astray = True
            async for notice in session.stream(prompt, takeover=takeover):
                seen -= 1
                await self._noticed(session, notice)
                if not seen:
                    break
            return
        async with aclosing(session.stream(prompt, takeover=takeover)) as notices:
            async for notice in notices:
                seen -= 1
                await self._noticed(session, notice)
                if not seen:
                    break
        alone = sum(not task.done() for _, task in self._tasks) == 1 and not self._astray
        if alone and (left := at_work() - self._playing):
            self.world.faults.append(f"a stream was closed and left {left}")

    async def _noticed(self, session: Session, notice: object) -> None:
        if chance(self._choices, 10):
            await asyncio.sleep(0)
        if isinstance(notice, ApprovalRequested):
            self.world.asked(notice.request)
            if not self._asks and chance(self._choices, 50):
                await self._decide(session, notice.request, notice.call)

    # What people say, through any of the sessions

    async def _send(self, session: Session) -> None:
        """Queue a job, or one that was accepted before and is not to be done twice."""
        accepted = self.world.accepted
        if accepted and chance(self._choices, 25):
            name = pick(self._choices, list(accepted))
            text = accepted[name]
        else:
            self._jobs += 1
            name, text = f"sent-{self._jobs}", job(self._jobs)
        sender = pick(self._choices, ("", "they"))
        others = [pick(self._choices, self._sessions)] if chance(self._choices, 30) else []
        sent = [one.send(text, id=name, sender=sender) for one in (session, *others)]
        for came in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(came, BaseException):
                raise came
        accepted[name] = text

    async def _steer(self, session: Session) -> None:
        self._steers += 1
        name, text = f"steer-{self._steers}", steer(self._steers)
        self.world.meddled = True
        await session.steer(text, pick(self._choices, tuple(Steering)), id=name)
        self.world.accepted[name] = text

    async def _control(self, session: Session) -> None:
        change = pick(self._choices, CHANGES)
        self.world.trusting |= change == SetMode(mode=PermissionMode.BYPASS)
        # What it denies is given up by whoever takes the run over.
        self.world.meddled |= change == SetMode(mode=PermissionMode.PLAN)
        await session.control(change)

    async def _give_up(self, session: Session) -> None:
        await session.load()
        calls = () if session.machine is None else calls_in(session.machine.state)
        if calls:
            self.world.meddled = True
            await session.cancel(pick(self._choices, calls))

    async def _branch(self, session: Session) -> None:
        """Go back to where a run ended, or to the beginning."""
        runs = [info.run for info in await session.runs()]
        await session.branch(pick(self._choices, ["", *runs]))

    async def _fork(self, session: Session) -> None:
        """Copy the session, and do a job in the copy, which goes its own way from there."""
        self._jobs += 1
        number = self._jobs
        copy = await session.fork(f"{SESSION}-fork-{number}")

        async def work() -> None:
            async with copy:
                await copy.run(job(number))

        self._spawn(copy, work)

    async def _interrupt(self, session: Session) -> None:
        self.world.meddled = True
        for _ in range(1 + self._choices.below(2)):
            await session.load()
            at_rest = session.unfinished and at_work() == self._playing
            before = len(await self.world.store.kept.load(SESSION))
            await session.interrupt()
            if at_rest and len(await self.world.store.kept.load(SESSION)) == before:
                self.world.faults.append("a run that rests was interrupted, and nothing of it is kept")

    async def _answer(self, session: Session) -> None:
        """Answer all that is open, some twice, and perhaps what nobody asked."""
        if chance(self._choices, 20):
            with suppress(CallerError):
                await session.approve("nothing that was asked")
                self.world.faults.append("a question that is not open was answered")
        await session.load()
        for question in session.waiting:
            at_rest = at_work() == self._playing
            await self._decide(session, question.id, question.call)
            if at_rest:
                self.world.settled.add(question.id)

    async def _decide(self, session: Session, request: str, call: str) -> None:
        for _ in range(1 + chance(self._choices, 20)):
            decision = pick(self._choices, DECISIONS)
            if not isinstance(decision, Deny):
                self.world.yes.add(call)
                self.world.trusting |= isinstance(decision, ApproveAlways)
            await session.approve(request, decision)

    async def _close(self, session: Session) -> None:
        self._astray = True
        error = await ended(session.close())
        if error is not None:
            self.world.faults.append(f"close raised {error!r}")
        mine = [task for owner, task in self._tasks if owner is session]
        if not await turns(SOON, lambda: all(task.done() for task in mine)):
            self.world.faults.append("a closed session goes on")
        self._let_go(session)

    def _drain(self, session: Session) -> None:
        """Leave when what is at work has come to its end, or at once where there is no time for that."""
        within, self._astray = (None if chance(self._choices, 70) else 0), True
        self._spawn(session, lambda: session.drain(within))
        self._let_go(session)

    def _let_go(self, session: Session) -> None:
        self._sessions.remove(session)
        if not self._sessions:
            self._sessions.append(self._session())

    # The end

    async def _settle(self) -> None:
        for _, task in self._tasks:
            task.cancel()
        await turns(PATIENCE, lambda: not at_work())
        faults = [f"left over: {task}" for task in at_work()]
        for _, task in self._tasks:
            if not task.cancelled() and task.done() and (error := task.exception()) is not None:
                faults.append(f"a move raised {error!r}")
        self._check(faults)
        self.world.store.fault = lambda _: ""
        await self._finish(self._session())

    async def _finish(self, session: Session) -> None:
        faults: list[str] = []

        async def finish() -> None:
            async with session:
                faults.extend(await to_the_end(session, asks=self._asks))

        self.world.trusting = True  # a yes may come from here now
        if (error := await ended(finish())) is not None:
            faults.append(f"going on to the end raised {error!r}")
        await turns(PATIENCE, lambda: not at_work())
        faults += [f"left over: {task}" for task in at_work()]
        self._check(faults + await self.world.kept_faults(session))
