"""A session as several processes have it: their models, their tools, their stores, and who watches them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import aclosing
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from provers.tasks import turns
from support.patience import PATIENCE
from support.postgres import IN_A_DATABASE, stores_over

from turnwheel import Agent, ChildSpec, MemoryStore, Result, Session, SQLiteStore, Tool, tool
from turnwheel.effects.errors import StoreError
from turnwheel.effects.events import Event, ModelFailed, ModelFinished
from turnwheel.effects.messages import Outcome, Role, ToolResult
from turnwheel.effects.notices import AgentNoticed, Notice, RunEnded
from turnwheel.effects.requests import CallModel, ReadInstructions, RunTool, SetTimer
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import Entry, Stepped
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.session.run_stream import RunStream
from turnwheel.performers.base import Clock, PerformContext, sleep
from turnwheel.performers.instructions import InstructionReader
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.performers.tools.runner import ToolRunner
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel
from turnwheel.testing.stores import StoreOver

CHILDREN = (ChildSpec(name="payer", tools=("look", "pay")), ChildSpec(name="scout"), ChildSpec(name="digger"))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await turns(1)


class Tape(StoreOver):
    """
    A store in memory that takes a turn of the event loop before and after each call, and can be told to fail.

    With the *fault* ``before`` entries are not kept, with ``after`` they are, and ``load`` is of reading.
    *meddlers* are called before a session is written to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fault = ""
        self.meddlers: list[Callable[[str, Sequence[bytes]], Awaitable[object]]] = []

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        await asyncio.sleep(0)
        self._fail("before")
        for meddle in list(self.meddlers):
            await meddle(session, entries)
        there = await super().append(session, expected, entries, about, incarnation)
        await asyncio.sleep(0)
        self._fail("after")
        return there

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        await asyncio.sleep(0)
        self._fail("load")
        entries = await super().load(session, start, end, incarnation)
        await asyncio.sleep(0)
        return entries

    async def close(self) -> None:
        """Other processes go on with it."""

    def _fail(self, when: str) -> None:
        if self.fault == when:
            msg = f"failed {when} it was written"
            raise StoreError(msg)


class House:
    """
    The processes over one store, which each of them may *open_* for itself, and what their tools did.

    `dig`, `send`, `linger` and the answers with a number in *held* wait for `release`; *poll* is how often
    each process looks what others said, in seconds.
    """

    def __init__(self, open_: Callable[[], Store | None] | Store) -> None:
        self._open: Callable[[], Store | None] = open_ if callable(open_) else lambda: open_
        self._ids = count(1)
        self.gate = asyncio.Event()
        self.clock = AutoClock(100.0)
        self.poll = 0.0
        self.held: Container[int] = ()
        self.ran: list[str] = []
        self.ended: list[tuple[str, str]] = []
        self.models: list[ScriptedModel] = []
        self.cast: dict[str, ScriptedModel] = {}

    @cached_property
    def store(self) -> Store:
        store = self._open()
        assert store is not None
        return store

    def release(self) -> None:
        self.gate.set()

    def agent(self, *replies: Reply, children: Sequence[ChildSpec] = (), **settings: Any) -> Agent:
        """An agent whose model says *replies*; what its *children* say are settings with their names."""
        lines = {child.name: settings.pop(child.name, ()) for child in children}
        self.cast = cast = {name: ScriptedModel(*said) for name, said in {"": replies, **lines}.items()}
        self.models.append(cast[""])

        async def answer(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
            model = cast[scene.config.agent]
            answered = await model(request, scene)
            if len(model.requests) in self.held:
                await self.gate.wait()
            return answered

        performers = {CallModel: answer, **settings.pop("performers", {})}
        given: dict[str, Any] = {"model": "one", "tools": self._tools(), "clock": self.clock, **settings}
        given.setdefault("store", self._open())
        return Agent(children=children, performers=performers, **given)

    def session(self, *replies: Reply, **settings: Any) -> Session:
        return self.agent(*replies, **settings).session("s")

    def process(
        self,
        *replies: Reply,
        session: str = "s",
        children: Sequence[ChildSpec] = CHILDREN,
        clock: Clock | None = None,
        **settings: Any,
    ) -> Session:
        """*session* in one more process, which looks all the time what others said."""
        agent = self.agent(*replies, children=children, **settings)
        performers: dict[type, Any] = {
            RunTool: ToolRunner(agent.tools),
            SetTimer: sleep,
            ReadInstructions: InstructionReader(settings.get("cwd", "."), ()),
            **agent.performers,
        }
        setting = Environment(
            config=agent.config,
            performers=performers,
            clock=clock or self.clock,
            new_id=lambda: f"id{next(self._ids)}",
            ended=self._ended,
            poll=self.poll,
        )
        return Session(session, setting, agent.store)

    async def _ended(self, session: str, reason: str) -> None:
        self.ended.append((session, reason))

    def _tools(self) -> list[Tool[..., Any]]:
        async def look(at: str = "") -> str:
            return self._did("look", at, "seen")

        async def dig() -> str:
            self.ran.append("dig")
            await self.gate.wait()
            return "found"

        async def linger() -> str:
            """Take long, also to stop."""
            try:
                return await dig()
            finally:
                await turns(50)

        async def peek(at: str = "") -> str:
            return self._did("peek", at, "seen")

        async def send() -> str:
            self.ran.append("send")
            await self.gate.wait()
            return "sent"

        async def pay(amount: int = 1) -> str:
            return self._did("pay", amount, "paid")

        async def buy(amount: int = 1) -> str:
            return self._did("buy", amount, "bought")

        reads: list[Callable[..., Any]] = [look, dig, linger]
        return [
            *[tool(side_effect="read_only")(each) for each in reads],
            tool(side_effect="read_only", approval="always")(peek),
            tool(pay),
            tool(approval="never")(send),
            tool(approval="never")(buy),
        ]

    def _did(self, name: str, about: object, result: str) -> str:
        self.ran.append(f"{name} {about}".strip())
        return result

    async def entries(self, session: str = "s") -> list[Entry]:
        return [decode_entry(data) for data in await self.store.load(session)]

    async def steps(self) -> list[Event]:
        return [entry.event for entry in await self.entries() if isinstance(entry, Stepped)]

    async def finish(self, session: Session) -> None:
        """Go on with *session*, saying yes to everything, until nothing is left to do."""
        await session.load()
        async with asyncio.timeout(PATIENCE):
            while session.unfinished or session.queue:
                result = await session.resume()
                for question in result.waiting:
                    await session.approve(question.id)
        assert session.machine == fold(await self.store.load("s"), "s").machine


class Watch:
    """Drives *session* in the background and keeps its notices."""

    def __init__(
        self, session: Session, prompt: str | None = "go", *, wait: bool = True, takeover: bool = False
    ) -> None:
        self.notices: list[Notice] = []
        stream = session.stream(prompt, id=prompt, wait=wait, takeover=takeover)
        self.task = asyncio.ensure_future(self._watch(stream))

    async def _watch(self, stream: RunStream) -> None:
        async with aclosing(stream) as notices:
            async for notice in notices:
                self.notices.append(notice)

    async def until(self, kind: type, number: int = 1) -> None:
        await until(lambda: self.task.done() or len(self.got(kind)) >= number)

    def got(self, kind: type) -> list[Any]:
        plain = [one.notice if isinstance(one, AgentNoticed) else one for one in self.notices]
        return [notice for notice in plain if isinstance(notice, kind)]

    @property
    def reasons(self) -> list[str]:
        return [str(notice.reason) for notice in self.notices if isinstance(notice, RunEnded)]


def results(session: Session) -> list[ToolResult]:
    return [result for message in session.history for result in message.results]


def told(session: Session) -> list[str]:
    return [result.content for result in results(session)]


def outcomes(session: Session) -> list[Outcome]:
    return [result.outcome for result in results(session)]


def said(session: Session) -> list[str]:
    return [message.text for message in session.history if message.role is Role.USER]


def asked(session: Session | Result) -> list[str]:
    return [f"{question.tool} {question.arguments}" for question in session.waiting]


@pytest.fixture
async def quiet() -> AsyncIterator[None]:
    """Holds that a test leaves nothing at work, and no error that was raised to no caller."""
    heard = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    yield
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert heard == []


@pytest.fixture(params=["memory", "slow", "sqlite", IN_A_DATABASE])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """A house with each kind of store; processes that share one each open it for themselves."""
    if request.param in {"memory", "slow"}:
        yield House(MemoryStore() if request.param == "memory" else Tape())
        return
    if request.param == "postgres":
        async with stores_over(request.getfixturevalue("postgres_server")) as open_store:
            yield House(open_store)
        return
    opened: list[SQLiteStore] = []

    def open_() -> SQLiteStore:
        opened.append(SQLiteStore(tmp_path / "s.db", "process"))
        return opened[-1]

    yield House(open_)
    for each in opened:
        await each.close()


@pytest.fixture
def tape() -> Tape:
    return Tape()


@pytest.fixture
def one() -> House:
    return House(MemoryStore())


@pytest.fixture
def home() -> House:
    return House(lambda: None)
