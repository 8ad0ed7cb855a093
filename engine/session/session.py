"""
The session: many runs over one history.

A session owns what lies around a run. It opens runs, takes over one that a process left behind, and is where
prompts, steers, answers, changed settings and interrupts come in, from whichever process. A run that rests
(only questions are open) holds nothing: it is rows in a store until somebody answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import copy
from typing import TYPE_CHECKING, cast, final

import attrs

from ...effects.config import Steering
from ...effects.errors import ConfigError, SessionClosed, StoreConflict, UnknownSession
from ...effects.events import Approve, Decision, Interrupted
from ...effects.history import History
from ...effects.messages import Role
from ...effects.notices import DoneReason, InputBlocked, InputTaken, Notice, RunEnded
from ...effects.requests import AskApproval
from ...effects.usage import Spent, Usage
from ...effects.validators import clean, named
from ...states.state import Done
from ..inputs import (
    Input,
    approval_event,
    cancel_event,
    check_question,
    control_event,
    prompt_input,
    steer_input,
)
from ..journal.entries import Titled
from ..journal.summary import first_line
from .environment import Environment
from .runner import Closed, SessionRunner

if TYPE_CHECKING:
    from decimal import Decimal

    from ...effects.messages import Binary
    from ...effects.records import Change
    from ...performers.stores.base import Store
    from ...states.context import Mail
    from ..inspect.fork import Replacement
    from ..inspect.run_tree import RunInfo
    from ..machine import Machine
    from ..open_work import ChildLink
    from .delivery import Subscription


@final
@attrs.frozen(kw_only=True)
class Result:
    """
    A run that is over, or rests.

    *text* is the last answer. *reason* is why it ended, or None where it is not over; *waiting* are the
    questions it then rests on. *spent* is its account (turns, tokens, USD, seconds). *detail* says more
    where *reason* is not enough, such as the provider's words of an error.
    """

    session: str
    run: str
    text: str
    reason: DoneReason | None
    spent: Spent
    waiting: tuple[AskApproval, ...] = ()
    detail: str = ""

    @classmethod
    def of(cls, session: str, machine: Machine, waiting: tuple[AskApproval, ...]) -> Result:
        """The result of *machine*'s run, as far as it has come."""
        over = machine.state if isinstance(machine.state, Done) else None
        return cls(
            session=session,
            run=machine.memory.run,
            text=_last_answer(machine),
            reason=None if over is None else over.reason,
            # A session that went back stands at the end of a run whose bill was closed long ago.
            spent=machine.memory.spent if over is None else over.spent,
            waiting=waiting,
            detail="" if over is None else over.detail,
        )


def _last_answer(machine: Machine) -> str:
    """The text of the last assistant message since the last prompt."""
    history = machine.memory.history
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if message.role is Role.ASSISTANT:
            return message.text
        if message.role is Role.USER:
            break
    return ""


@final
class Session:
    """
    One conversation. Made by `Agent.session`; use it as an async context manager or call `close`.

    One run at a time: a second one raises `SessionBusy`. `send`, `steer`, `approve`, `control`, `cancel` and
    `interrupt` work at any time and from any process; with a store, what they say is kept when they return.
    All methods belong to one event loop.
    """

    def __init__(
        self,
        id: str,  # noqa: A002  # the field's word
        environment: Environment,
        store: Store | None = None,
        *,
        fresh: bool = False,
    ) -> None:
        self.id = id
        self._lent = False
        self._runner = SessionRunner(id, environment, store, Session, fresh=fresh)
        self._log = self._runner.log
        self._environment = environment

    # What it is

    @property
    def machine(self) -> Machine | None:
        """The machine of the latest run, or None before the first; look, do not advance."""
        return self._log.state.machine

    @property
    def history(self) -> History:
        """Everything that was said and not summarised away."""
        return History.of() if self.machine is None else self.machine.memory.history

    @property
    def unfinished(self) -> bool:
        """Whether the latest run is not over: it rests, or its process was lost."""
        return self._log.state.unfinished

    @property
    def unbegun(self) -> frozenset[str]:
        """The open requests that nobody has begun, of a run that was handed over; see `drain`."""
        return self._log.state.unbegun

    @property
    def running(self) -> bool:
        """Whether a run is under way here."""
        return self._runner.driver is not None

    @property
    def resting(self) -> bool:
        """Whether the run that is under way here waits for people, and for nothing else."""
        driver = self._runner.driver
        return driver is not None and driver.resting

    @property
    def waiting(self) -> tuple[AskApproval, ...]:
        """The questions that nobody has answered yet: its own, then those of its children."""
        quiet = self._log.state.stopped or not self._log.state.unfinished
        asked = () if quiet else self._runner.children.waiting(self.machine)
        return (*self._log.state.questions, *asked)

    @property
    def children(self) -> tuple[ChildLink, ...]:
        """The children that are not over, in the order of the calls they work for."""
        return self._runner.children.links(self.machine)

    def child(self, call: str) -> Session:
        """
        The session of the child that works for *call*, or did: to look at it, steer it, interrupt it.

        It goes on with its parent: it cannot be run by itself, and letting go of it leaves it alone. One that
        is over takes nothing any more: what is said to it is a `ConfigError`. Raises `UnknownCall` where
        *call* is not known to be a child's.
        """
        lent = cast("Session", copy(self._runner.children.session(call, self.machine)))
        lent._lent = True  # noqa: SLF001  # it is one of these
        return lent

    @property
    def queue(self) -> tuple[Mail, ...]:
        """The prompts that wait for a run of their own, in the order they came."""
        return self._log.state.prompts

    @property
    def title(self) -> str:
        """What it is called, empty for nothing yet."""
        return self._log.state.title

    @property
    def spent(self) -> Spent:
        """The account of all its runs, on every branch, and of its title."""
        return self._log.state.spent

    def result(self) -> Result:
        """The result of the latest run, as far as it has come; `UnknownSession` before the first."""
        if self.machine is None:
            raise UnknownSession(self.id)
        return Result.of(self.id, self.machine, self.waiting)

    def subscribe(self) -> Subscription:
        """Watch from aside what this object runs from now on; a watcher that is slow misses some of it."""
        return self._runner.broker.subscribe()

    async def load(self) -> Session:
        """
        Read what is new in the journal; every other method that needs it does this by itself.

        While a run is under way here there is nothing to read: it knows more than the store.
        """
        await self._runner.load()
        if self._log.state.unfinished:
            await self._runner.children.load(self.machine)
        return self

    # Where it stands, and its way there

    async def runs(self) -> tuple[RunInfo, ...]:
        """
        Its runs, in the order they began; they form a tree, of which it stands at one.

        Read from the journal, all of it; `ConfigError` without a store, as in what follows here.
        """
        from ..inspect.run_tree import runs_of  # noqa: PLC0415  # it needs the converter

        return runs_of(await self._log.store.load(self.id), self.id)

    async def heads(self) -> tuple[RunInfo, ...]:
        """Those of its runs that no other goes on from: the ends of its branches."""
        return tuple([run for run in await self.runs() if run.head])

    async def branch(self, run: str = "") -> None:
        """
        Go back to where *run* ended, or to the beginning: the next run goes on from there.

        What was said since stays, as a branch that one can go back to. Raises `SessionBusy` where a run is
        not over, and `UnknownRun` with those there are.
        """
        self._check_own()
        async with self._runner.at_rest() as log:
            await log.branch(run, self._now())

    async def fork(
        self,
        id: str | None = None,  # noqa: A002  # the field's word
        *,
        at: int | None = None,
        instead: Replacement | None = None,
    ) -> Session:
        """
        A session of its own, called *id*, that begins with all that was said in this one before step *at*.

        A step is an entry of the journal, as `replay` numbers them; without *at* it is where the session
        stands, and a run that is not over is a `SessionBusy`. *instead* is what happens in place of that
        step: an event, such as the one that stands there with something changed; a setting, such as another
        model; another decision; or the text of another answer, result or prompt. A run that was copied in its
        middle is gone on with by `resume`, as after a lost process.

        It has the branches, the rules that were granted and the title, but its account begins with nothing,
        and what waits is answered here only. Raises `ConfigError` where it cannot be cut, and says where.
        """
        # Most processes never fork, and the converter costs more to set up than the rest of the engine.
        from ..inspect.fork import ForkPoint, check_replacement, fork_entries  # noqa: PLC0415  # see above

        name = self._environment.new_id() if id is None else id
        named("the id of a session", name)
        if at is None:
            async with self._runner.at_rest() as log:
                at = log.length  # as it was when it was seen to be at rest
        check_replacement(instead)
        store = self._log.store
        entries = await store.load(self.id)
        if instead is not None and self._environment.redactor is not None:
            instead = await self._environment.redactor.instead(instead)
        point = ForkPoint(at=at, now=self._now(), new_id=self._environment.new_id, instead=instead)
        copied, summary = fork_entries(entries, self.id, name, point)
        try:
            await store.append(name, 0, copied, summary)
        except StoreConflict as conflict:
            msg = f"session {name!r} is there already; fork into one that is not"
            raise ConfigError(msg) from conflict
        return await Session(name, self._environment, store).load()

    async def retitle(self, text: str) -> None:
        """Call it *text*, at any time and from any process; empty for nothing."""
        title = first_line(clean(text))
        await self._runner.add(lambda: Titled(at=self._now(), title=title))

    # Running it

    async def run(
        self,
        prompt: str,
        *,
        files: tuple[Binary, ...] = (),
        id: str | None = None,  # noqa: A002  # the field's word
        wait: bool = False,
    ) -> Result:
        """
        Run the agent on *prompt* and *files* to its end, or until it rests on a question.

        Prompts that wait already are answered before, those that come in meanwhile after it, each by a run
        of its own; the result is this prompt's. *id* is the sender's own: what was sent under it before is
        not sent again. A resting run's result has no reason and names the questions in `waiting`: answer them
        with `approve` and go on with `resume`. With *wait*, it does not rest but waits for the answers.
        Raises `SessionBusy` where a run is under way or unfinished.
        """
        sender = self._environment.new_id() if id is None else id
        return await self._to_the_end(self.stream(prompt, files=files, id=sender, wait=wait), sender)

    async def resume(self, *, wait: bool = False) -> Result:
        """
        Go on with the run that rests or was left behind by a lost process, and then with prompts that wait.
        """
        return await self._to_the_end(self.stream(wait=wait), None)

    async def _to_the_end(self, stream: AsyncGenerator[Notice, None], sender: str | None) -> Result:
        """The result of the run that took the prompt of *sender*, once *stream* has ended."""
        mine: Result | None = None
        taken = False
        async with aclosing(stream) as notices:
            async for notice in notices:
                if isinstance(notice, InputTaken | InputBlocked):
                    taken = taken or sender in notice.ids
                elif isinstance(notice, RunEnded) and taken and mine is None:
                    # Now: a run for a prompt that came in meanwhile may follow in the same stream.
                    mine = self.result()
        if isinstance(self._runner.owner, Closed) or sender in [mail.id for mail in self.queue]:
            raise SessionClosed(self.id)
        return mine or self.result()

    def start(self, prompt: str | None = None, *, files: tuple[Binary, ...] = ()) -> Handle:
        """As `stream`, in the background, at once: the handle is the stream, the account and the end."""
        return Handle(self, self.stream(prompt, files=files, wait=True))

    def stream(
        self,
        prompt: str | None = None,
        *,
        files: tuple[Binary, ...] = (),
        id: str | None = None,  # noqa: A002  # the field's word
        wait: bool = False,
    ) -> AsyncGenerator[Notice, None]:
        """
        As `run`, or as `resume` without a *prompt*, yielding notices as they come.

        It ends when no prompt waits any more. Leaving early stops the work and leaves the run unfinished;
        `resume` goes on with it.
        """
        if self._lent:
            self._check_own()
        said = None if prompt is None else self._said(prompt, files, id)
        return self._runner.stream(said, wait=wait)

    def _check_own(self) -> None:
        """Leave a child's conversation to its parent."""
        if self._lent:
            msg = f"session {self.id!r} is a child's: it goes on when its parent does"
            raise ConfigError(msg)

    # What is said to it

    async def send(
        self,
        text: str,
        *,
        files: tuple[Binary, ...] = (),
        id: str | None = None,  # noqa: A002  # the field's word
        sender: str = "",
    ) -> str:
        """
        Queue a prompt for a run of its own; its id, which is *id* where the sender gave one.

        Whoever runs the session answers it; where nobody does, `resume` or `stream` will. What was sent under
        the same id before is not sent again. *sender* is who and through which channel, in free words.
        """
        said = self._said(text, files, id, sender)
        await self._runner.post(lambda: prompt_input(said, self._log.state, self._now()))
        return said.id

    async def steer(
        self,
        text: str,
        how: Steering | None = None,
        *,
        files: tuple[Binary, ...] = (),
        id: str | None = None,  # noqa: A002  # the field's word
    ) -> str:
        """
        Say something into the run that is under way, which is read when *how* says; its id, as `send`.

        Without *how* the policy's holds. Where no run is under way it is a prompt.
        """
        said = self._said(text, files, id)
        when = self._environment.config.policy.steering if how is None else Steering(how)
        # What is said to a child before it has begun is no task of its own.
        always = bool(self._environment.config.agent)
        await self._runner.post(lambda: steer_input(said, when, self._log.state, self._now(), always=always))
        return said.id

    async def approve(
        self,
        request: str,
        decision: Decision = Approve(),  # noqa: B008  # a frozen value
        *,
        by: str = "",
    ) -> None:
        """
        Answer the open question *request* with *decision*: `Approve`, `ApproveAlways` or `Deny`.

        It may be a child's question. A run that rests takes the answer up when it is resumed, here or in
        another process. *by* is who answers, in free words. Raises `UnknownRequest` where no such question is
        open, and `ArgumentError` for a decision that is none.
        """
        answer = approval_event(request, decision, self._now(), by)
        await self.load()
        child = self._runner.children.asking(request, self.machine)
        if child is None or self._log.state.stopped:
            await self._runner.post(lambda: check_question(answer, self._log.state, self.waiting))
        else:
            await child.approve(request, decision, by=by)

    async def control(self, change: Change) -> None:
        """
        Change a setting, for this run and those after it: `SetModel`, `SetMode` or `SetThinking`.

        A mode is its children's, too, once the run has taken it up. Raises `ConfigError` where that cannot
        be done, and says why.
        """
        control = control_event(change, self._environment.config, self._now(), self._environment.new_id())
        await self._runner.post(lambda: control)

    async def cancel(self, call: str) -> None:
        """
        Give up the one call whose id is *call*: it does not start, or is told to stop. The run goes on.

        Raises `UnknownCall` where no such call is under way.
        """
        await self._runner.post(lambda: cancel_event(call, self.machine, self._now()))

    async def interrupt(self) -> None:
        """
        Ask the run to stop: what runs is cancelled, what was read is kept. Twice: nothing is waited for.

        One that rests is stopped when it is resumed. Without any, nothing happens.
        """
        if (driver := self._runner.heeds) is not None:
            driver.post(Interrupted(at=self._now()))  # it need not wait until that is written
            return
        await self._runner.post(lambda: Interrupted(at=self._now()) if self.unfinished else None)

    def _said(self, text: str, files: tuple[Binary, ...], name: str | None, sender: str = "") -> Input:
        known = self._environment.new_id() if name is None else name
        return Input(text=text, files=files, id=known, sender=sender)

    def _now(self) -> float:
        return self._environment.clock.now()

    # Letting go of it

    async def drain(self, within: float | None = None) -> None:
        """
        Let what is at work come to its end, begin nothing any more, and let go as `close` does.

        Whoever goes on with the run begins what follows. What still works after *within* seconds is left. A
        `run` gives how far it has come; one whose prompt had not come in raises `SessionClosed`.
        """
        self._check_own()
        await self._runner.drain(within)

    async def close(self) -> None:
        """
        Let go. A run that is under way is left: its work stops, and it can be resumed from the store.

        Closing twice is fine.
        """
        if not self._lent:
            await self._runner.close()

    async def __aenter__(self) -> Session:
        return await self.load()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


HANDLE_BUFFER = 64
"""Notices that may wait for a reader. Beyond that the run waits: nothing is lost and nothing piles up."""


@final
class Handle:
    """
    What `Session.start` returns at once: the run goes on in a task of its own.

    Iterate it for the notices, none of which is lost: a run whose reader is slow waits for it, and several
    readers share them. `wait` reads what nobody else does. `interrupt` asks the run to stop and `close`
    leaves it. *session* is its session, through which more is said to it.
    """

    def __init__(self, session: Session, notices: AsyncGenerator[Notice, None]) -> None:
        self.session = session
        self._waiting: deque[Notice] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room_for: int | None = HANDLE_BUFFER
        self._readers = 0
        self._begun = False
        self._told = False
        self._task = asyncio.ensure_future(self._pump(notices))
        # Not in the task itself: one that is cancelled before its first step runs no line of its own.
        self._task.add_done_callback(lambda _: self._news.set())

    async def _pump(self, stream: AsyncGenerator[Notice, None]) -> None:
        async with aclosing(stream) as notices:
            async for notice in notices:
                self._begun = True
                while self._room_for is not None and len(self._waiting) >= self._room_for:
                    self._room.clear()
                    await self._room.wait()
                self._waiting.append(notice)
                self._news.set()

    async def __aiter__(self) -> AsyncGenerator[Notice, None]:
        self._readers += 1
        try:
            while self._waiting or not self.done:
                if self._waiting:
                    self._room.set()
                    yield self._waiting.popleft()
                else:
                    self._news.clear()
                    await self._news.wait()
        finally:
            self._readers -= 1
            self._news.set()  # whoever waits for the end reads on
        self._raise()

    async def wait(self) -> Result:
        """
        The result, once the run is over and no prompt waits; raises what ended it, where that was an error.

        Of one that was left it is how far it has come.
        """
        while True:
            if not self._readers:
                self._waiting.clear()
                self._room.set()
            if self.done:
                break
            self._news.clear()
            await self._news.wait()
        self._raise()
        return self.session.result()

    def _raise(self) -> None:
        """Raise what ended the run, if it was an error; being closed is none."""
        self._told = True
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def interrupt(self) -> None:
        """Ask the run to stop; asked twice, nothing is waited for."""
        await self.session.interrupt()

    async def drain(self, within: float | None = None) -> None:
        """As `Session.drain`. It waits for no reader: notices that nobody has read can be read afterwards."""
        self._room_for = None
        self._room.set()
        await self.session.drain(within)

    async def close(self) -> None:
        """
        Leave the run: its work stops, and the session can go on with it. Closing twice is fine.

        Raises the error that had ended it, where nobody was told of that yet.
        """
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._told:
            self._raise()

    async def __aenter__(self) -> Handle:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._told = self._told or kind is not None  # an error of whoever used it comes first
        await self.close()

    # What is known of it, at any time

    @property
    def done(self) -> bool:
        """Whether it is over, or was left."""
        return self._task.done()

    @property
    def reason(self) -> DoneReason | None:
        """Why the latest run ended; None while it goes on."""
        return None if self._machine is None else self.session.result().reason

    @property
    def spent(self) -> Spent:
        """The account of the latest run so far."""
        return Spent() if self._machine is None else self._machine.memory.spent

    @property
    def _machine(self) -> Machine | None:
        """The machine of the latest run, which is none that was over before this began."""
        machine = self.session.machine
        return machine if self._begun or self.done or self.session.unfinished else None

    @property
    def turns(self) -> int:
        """Completed model responses."""
        return self.spent.turns

    @property
    def cost(self) -> Decimal:
        """USD, as far as prices are known."""
        return self.spent.cost

    @property
    def usage(self) -> Usage:
        """Tokens."""
        return self.spent.usage
