"""
One turn of a session, as an invocation that Restate does again after a crash.

Theory of operation. The session itself is not deterministic: tools end in any order, and there are clocks
and new ids. What counts of it are the asks to its store, and they pass one place. So each step that Restate
keeps is "what the session asks next". A step that is kept is not taken again: what was asked is done, as
before. The first step that is not kept opens the session over the journal that was led to, as a process that
takes over. An ask is answered once Restate has it, so nothing is performed before its entry is safe. A worker
that has lost its invocation gets no answer, and so performs nothing more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Protocol, assert_never, final

import attrs

from ...effects.errors import NewerVersion, StoreError
from ...engine.session.poller import written
from ...performers.logs import warn
from ...performers.stores.base import Entries
from . import asks
from .asks import Accepted, Ask, AskAnswer, AskingStore, Bodies, Conflict, EndTurn, Given, StoreAsk

if TYPE_CHECKING:
    from ...engine.agent import Agent
    from ...engine.session.session import Session
    from ...performers.stores.base import Mark, SessionInfo
    from .shelf import Shelf

# Seconds until a session whose journal is newer than this code is gone on with by a turn of its own.
NEWER_CODE = 2.0


class Invocation(Protocol):
    """What Restate gives to a handler at work; all of it happens again, in the same order, after a crash."""

    async def next(self, step: Callable[[], Awaitable[bytes]]) -> bytes | Given:
        """The result of *step*, the same one until it has come; or an input that came before it."""
        ...

    def reply(self, awakeable: str, answer: AskAnswer) -> None:
        """Give *answer* to the other process that waits for *awakeable*."""
        ...

    def wake(self, seconds: float) -> None:
        """Have the session go on in so many *seconds*."""
        ...


async def take_turn(invocation: Invocation, shelf: Shelf, work: TurnWork, given: Given) -> None:
    """Take *given* in, and do the *work* that follows from it, until the run is over or rests."""
    if await _taken(invocation, shelf, given) and given.runs:
        async with work:
            while not await _stepped(invocation, shelf, work):
                pass


async def _stepped(invocation: Invocation, shelf: Shelf, work: TurnWork) -> bool:
    """Do what comes next; whether the turn is over."""
    came = await invocation.next(work.step)
    if isinstance(came, Given):
        if await _taken(invocation, shelf, came) and came.append is not None:
            work.wrote(came.append.session)
        return False
    asked = asks.decode_asks(came)
    answers = [await shelf.answer(ask) for ask in asked]
    work.answer(answers)
    for ask, answer in zip(asked, answers, strict=True):
        if isinstance(ask, EndTurn) and isinstance(answer, Accepted):
            if ask.wake is not None:
                invocation.wake(ask.wake)
            return True
    return False


async def _taken(invocation: Invocation, shelf: Shelf, given: Given) -> bool:
    """Append what is *given* and say so to its sender; whether it was not refused."""
    if given.append is None:
        return True
    # An input comes twice, by a signal and by a turn of its own. The second one finds another length.
    answer = await shelf.answer(given.append)
    invocation.reply(given.answer, answer)
    return isinstance(answer, Accepted)


@final
@attrs.define(eq=False)
class TurnWork:
    """
    The session *name* of *agent* in this worker, opened by the first step that is really taken.

    A step that nothing is asked in takes *beat* seconds: so Restate knows that the worker is alive.
    """

    agent: Agent
    name: str
    beat: float
    store: TurnStore = attrs.field(factory=lambda: TurnStore(), init=False)  # noqa: PLW0108  # it is defined below
    _task: asyncio.Task[None] | None = attrs.field(default=None, init=False)

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # First: what stops must write nothing more, and wait for no answer.
        self.store.leave()
        if self._task is not None:
            # At a turn's own end the hooks of the session's end are given their time.
            if kind is not None:
                self._task.cancel()
            await asyncio.wait({self._task})
            # What failed here is raised by the step, or of no interest any more.
            if not self._task.cancelled():
                self._task.exception()

    async def step(self) -> bytes:
        """What the session asks next, nothing after a while; raises what ended it."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(lambda _: self.store.stir())
        asked = await self.store.asked(self.beat)
        if not asked and self._task.done():
            try:
                self._task.result()
            except NewerVersion as error:
                # Restate would try this turn again with this code only; one that begins goes to the newest.
                warn("a turn is left to newer code", error, session=self.name)
                return asks.encode([EndTurn(lengths={}, wake=NEWER_CODE)])
        return asks.encode(asked)

    def answer(self, answers: Sequence[AskAnswer]) -> None:
        """Give *answers* to the latest step, where it was taken here."""
        self.store.answer(answers)

    def wrote(self, session: str) -> None:
        """Another process wrote to *session*."""
        self.store.wrote(session)

    async def _run(self) -> None:
        async with self.agent.session(self.name, self.store) as session:
            while True:
                if session.machine is not None or session.queue:
                    async with aclosing(session.stream()) as notices:
                        async for _ in notices:
                            pass
                if session.unfinished and not session.waiting:
                    # Drained, since this process ends: another worker goes on.
                    msg = f"session {self.name!r}: this worker has left its run; Restate tries another one"
                    raise StoreError(msg)
                # An input that came meanwhile begins or goes on with a run.
                open_here = [self.name, *[link.session for link in session.children]]
                if await self.store.end(open_here, _wake(session, self.agent.clock.now())):
                    return
                await session.load()


def _wake(session: Session, now: float) -> float | None:
    """In how many seconds the first of the open questions of *session* runs out; None where none does."""
    due = [asked.due for asked in session.waiting if asked.due is not None]
    return max(min(due) - now, 0.0) if due else None


def _size(ask: Ask) -> int:
    """The bytes of what *ask* has kept."""
    match ask:
        case asks.Append():
            return sum([len(entry) for entry in ask.entries])
        case asks.KeepCheckpoint():
            return len(ask.body)
        case asks.Load() | asks.Look() | asks.LoadCheckpoints() | asks.LoadJournal():
            return 0
        case asks.Delete() | asks.EndTurn():
            return 0
        case _:
            assert_never(ask)


@final
@attrs.frozen
class _Known:
    """
    The *entries* of a journal of that *incarnation*, from the number *start* on.

    They are the last ones, unless *more* follow.
    """

    start: int
    entries: Sequence[bytes]
    incarnation: str
    more: bool = False

    @property
    def end(self) -> int:
        """The number behind them."""
        return self.start + len(self.entries)


@final
@attrs.define(eq=False)
class TurnStore(AskingStore):
    """
    The store of a session at work: its asks become steps, in the order in which they come.

    Nothing is written to its journals but by this turn. So a read is no step where the end is known, and no
    input was taken in since.
    """

    tells_news = True

    _queue: deque[tuple[Ask, asyncio.Future[AskAnswer]]] = attrs.field(factory=deque, init=False)
    # Those of the latest step, which wait for their answers.
    _given: Sequence[tuple[Ask, asyncio.Future[AskAnswer]]] = attrs.field(default=(), init=False)
    _news: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    # As far as the session knows each of its journals.
    _lengths: dict[str, int] = attrs.field(factory=dict, init=False)
    # Of those to which no other process wrote since.
    _known: dict[str, _Known] = attrs.field(factory=dict, init=False)
    # The sessions that others wrote to, in that order.
    _written: list[str] = attrs.field(factory=list, init=False)

    async def _ask(self, ask: Ask) -> AskAnswer:
        if self._closed:
            raise self._left
        future: asyncio.Future[AskAnswer] = asyncio.get_running_loop().create_future()
        self._queue.append((ask, future))
        self._news.set()
        return await future

    def stir(self) -> None:
        """End the wait of `asked`."""
        self._news.set()

    async def asked(self, within: float) -> Sequence[Ask]:
        """What is asked next, nothing after *within* seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._news.wait()
        self._news.clear()
        # What several children write at the same time is one step, as far as one message may hold it.
        given = list[tuple[Ask, asyncio.Future[AskAnswer]]]()
        size = 0
        while self._queue:
            size += _size(self._queue[0][0])
            if given and size > asks.MOST_APPENDED:
                self._news.set()
                break
            given.append(self._queue.popleft())
        self._given = given
        return [ask for ask, _ in given]

    def answer(self, answers: Sequence[AskAnswer]) -> None:
        """Answer the asks that `asked` gave last."""
        given, self._given = self._given, ()
        for (ask, future), answer in zip(given, answers, strict=False):
            if not isinstance(ask, EndTurn):
                self._note(ask, answer)
            if not future.done():
                future.set_result(answer)

    def _note(self, ask: StoreAsk, answer: AskAnswer) -> None:
        """Note what *answer* tells of the end of the journal."""
        match ask, answer:
            case asks.Append(), Accepted():
                known = _Known(ask.expected + len(ask.entries), (), answer.incarnation)
            case asks.Load(end=None), Bodies():
                known = _Known(ask.start + len(answer.bodies), (), answer.incarnation, answer.more)
            case asks.LoadJournal(), asks.FoundJournal():
                found = answer.entries
                known = _Known(answer.start, found.bodies, found.incarnation, found.more)
            case (asks.Look() | asks.KeepCheckpoint(), _) | (asks.Load(), Bodies()):
                # Neither changes the journal; a part of it does not tell where it ends.
                return
            case _:
                # It was refused or deleted: what is there now is not known.
                self._known.pop(ask.session, None)
                return
        self._lengths[ask.session] = known.end
        self._known[ask.session] = known

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from index *start* to before *end*; see `Store.load`."""
        known = None if self._closed or end is not None else self._known.get(session)
        if known is None or start < known.start or incarnation not in {"", known.incarnation}:
            return await super().load(session, start, end, incarnation)
        # They are read once.
        self._known[session] = _Known(known.end, (), known.incarnation, known.more)
        found = known.entries[start - known.start :]
        if known.more:
            found = [*found, *await super().load(session, start + len(found), None, known.incarnation)]
        return Entries(found, known.incarnation)

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*; the entries behind them, which are read next, come in one step."""
        answer = await self._answer(asks.LoadJournal(session=session, incarnation=incarnation))
        return asks.expect(asks.FoundJournal, answer).checkpoints

    async def end(self, sessions: Sequence[str], wake: float | None) -> bool:
        """
        Say that the run is over or rests; False where another process wrote to one of *sessions* before.

        They are those that may go on: what is written to a child that is over changes nothing.
        """
        lengths = {session: self._lengths.get(session, 0) for session in sessions}
        return not isinstance(await self._ask(EndTurn(lengths=lengths, wake=wake)), Conflict)

    def leave(self) -> None:
        """Answer nothing more: the invocation is over here."""
        self._closed = True
        for _, future in (*self._given, *self._queue):
            if not future.done():
                future.set_exception(self._left)
                # It is no fault where the asker is gone, too.
                future.exception()

    @property
    def _left(self) -> StoreError:
        return StoreError("Restate has given this turn to another worker, or it is over")

    def wrote(self, session: str) -> None:
        """Another process wrote to *session*."""
        self._known.pop(session, None)
        self._written.append(session)
        written(id(self), session, None)

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        """The *sessions* that others wrote to after the mark *since*; see `Store.news`."""
        known = since[0] if since else 0
        return (len(self._written),), [one for one in sessions if one in self._written[known:]]

    async def list(
        self,
        limit: int | None = None,  # noqa: ARG002  # see below
        after: int | None = None,  # noqa: ARG002  # as above
        prefix: str = "",  # noqa: ARG002  # as above
    ) -> Sequence[SessionInfo]:
        """Nothing: a `RestateStore` lists the sessions of all objects."""
        return ()
