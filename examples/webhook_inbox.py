"""
An inbox for the webhooks of a chat: each thread is a session, and each burst of messages one prompt.

A webhook that is delivered again changes nothing. A scripted model: no key. Time is played.
"""

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from turnwheel import Agent, Policy, Session
from turnwheel.effects import (
    CallModel,
    DoneReason,
    ModelFinished,
    Notice,
    RunEnded,
    StopReason,
    TextPiece,
    TurnEnded,
    Usage,
)
from turnwheel.engine import SessionKind, SessionStatus, listed
from turnwheel.performers import Clock, PerformContext
from turnwheel.testing import ManualClock

logger = logging.getLogger(__name__)

Post = Callable[[str, str], Awaitable[None]]
"""Posts a text to a thread of the chat."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """What a webhook brings; *id* is the same when it is delivered again."""

    id: str
    thread: str
    sender: str
    text: str


@dataclass(eq=False)
class Thread:
    """A thread that is open in this process; *arriving* messages are being stored."""

    session: Session
    arriving: int = 0

    @property
    def idle(self) -> bool:
        """Whether no message waits, no run is under way and none of its questions is open."""
        return not (self.arriving or self.session.queue or self.session.unfinished)


class Inbox:
    """Answers messages in their threads. Use it as an async context manager."""

    def __init__(self, agent: Agent, post: Post) -> None:
        self._agent = agent
        self._post = post
        self._threads: dict[str, Thread] = {}
        self._readers = asyncio.TaskGroup()

    async def receive(self, message: Message) -> None:
        """
        Store *message* and return: a handler of webhooks answers 200 then, and 500 where this raises.

        The run begins in the background, once the sender has been silent for `Policy.coalesce` seconds.
        """
        thread = self._opened(message.thread)
        thread.arriving += 1
        try:
            await thread.session.send(message.text, id=message.id, sender=message.sender, start=True)
        finally:
            thread.arriving -= 1
            await self._close_idle(message.thread)

    async def _answer(self, name: str, notices: AsyncIterable[Notice]) -> None:
        """Post the answers of a thread until it is closed."""
        answer = ""
        async for notice in notices:
            match notice:
                case TurnEnded(message=message):
                    answer = message.text
                case RunEnded(reason=reason):
                    answered = reason is DoneReason.END_TURN
                    await self._posted(name, answer if answered else f"I have no answer: {reason}.")
                    await self._close_idle(name)
                case _:
                    pass

    async def _posted(self, name: str, text: str) -> None:
        try:
            await self._post(name, text)
        except Exception:
            # The chat may be away. The answer is in the session, and other threads are answered.
            logger.exception("thread %r: the answer could not be posted", name)

    def _opened(self, name: str) -> Thread:
        # One object for a thread, so that it drives the session for all messages that arrive here.
        if name not in self._threads:
            session = self._agent.session(name)
            self._threads[name] = Thread(session)
            # Subscribed before a run begins.
            self._readers.create_task(self._answer(name, session.subscribe()))
        return self._threads[name]

    async def _close_idle(self, name: str) -> None:
        thread = self._threads.get(name)
        if thread is not None and thread.idle:
            # Before the first await: a message that arrives meanwhile opens the thread anew.
            del self._threads[name]
            await thread.session.close()

    async def __aenter__(self) -> Self:
        await self._readers.__aenter__()
        # What an earlier process stored and did not answer.
        store = self._agent.store
        for stored in () if store is None else await listed(store):
            about = stored.about
            left = about.prompts or about.state is SessionStatus.UNFINISHED
            # A child goes on with its parent.
            if left and about.kind is not SessionKind.CHILD:
                self._opened(stored.session).session.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The subscriptions end with their sessions, and the readers with them. A run that is under way is
        # left, and the next process goes on with it.
        for thread in self._threads.values():
            await thread.session.close()
        await self._readers.__aexit__(kind, error, trace)


async def model(request: CallModel, scene: PerformContext) -> ModelFinished:
    """Repeat the prompt in one line."""
    lines = scene.history[-1].text.splitlines()
    return ModelFinished(
        at=scene.clock.now(),
        request=request.id,
        stop=StopReason.END_TURN,
        usage=Usage(input=20, output=10),
        pieces=(TextPiece(f"I read: {' / '.join(lines)}"),),
    )


def new_agent(folder: Path, clock: Clock) -> Agent:
    """Wait two seconds for more of one sender, but ten at most."""
    return Agent(
        model="scripted",
        policy=Policy(coalesce=2.0, coalesce_longest=10.0),
        store=folder / "threads.db",
        performers={CallModel: model},
        clock=clock,
    )


async def play(folder: Path) -> None:
    """Two threads, a retried webhook, and a process that ends before it answered."""
    clock = ManualClock()
    posted = asyncio.Queue[str]()

    async def post(thread: str, text: str) -> None:
        await posted.put(f"{thread}: {text}")

    async with new_agent(folder, clock) as agent, Inbox(agent, post) as inbox:
        first = Message(id="e1", thread="deploys", sender="ann", text="Deploy the site")
        await inbox.receive(first)
        clock.move(1.5)
        await inbox.receive(Message(id="e2", thread="deploys", sender="ann", text="to staging, please"))
        await inbox.receive(first)
        await inbox.receive(Message(id="e3", thread="lunch", sender="bob", text="Pizza?"))
        clock.move(2.0)
        print(*sorted([await posted.get(), await posted.get()]), sep="\n")

        await inbox.receive(first)
        await inbox.receive(Message(id="e4", thread="lunch", sender="eve", text="Soup!"))
    print(f"stopped, with {posted.qsize()} answers for a message within its window")

    async with new_agent(folder, clock) as agent, Inbox(agent, post):
        clock.move(2.0)
        print(await posted.get())


def main() -> None:
    """Play it with sessions in a file."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


if __name__ == "__main__":
    main()
