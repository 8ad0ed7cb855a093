"""The stage on which behaviours are shown: an agent over a script, seen as its user sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from turnwheel import Agent, MemoryStore, Result, Session, Tool, ToolContext, tool
from turnwheel.effects.events import ModelFailed, ModelFinished
from turnwheel.effects.history import clear_results
from turnwheel.effects.messages import Message, Role
from turnwheel.effects.notices import Notice
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.performers.base import PerformContext, Performer
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.scripted import Reply, ScriptedModel

Reaction = Callable[[Any], Awaitable[object]]
"""What a watcher does when it sees a notice."""


class Stage:
    """
    One scripted world, and what is seen of it.

    *ran* is what tools did, in order, *notices* what the streams that were played told. The tools `dig` and
    `build` say that they are at it, and they and the end of the answers number *held* wait for `release`.
    """

    def __init__(self) -> None:
        self.clock = AutoClock(100.0)
        self.store = MemoryStore()
        self.ran: list[str] = []
        self.notices: list[Notice] = []
        self.faults: list[str] = []
        self.model = ScriptedModel()
        self.held: tuple[int, ...] = ()
        self._gate = asyncio.Event()

    # Who acts

    @property
    def tools(self) -> list[Tool[..., Any]]:
        """A read, an idempotent write, an unsafe tool, two that take their time, and one that goes wrong."""
        return [*self._quick(), *self._slow()]

    def _quick(self) -> list[Tool[..., Any]]:
        @tool(side_effect="read_only")
        async def look(at: str = "") -> str:
            """Look at something."""
            return self._did("look", at, f"saw {at}".strip())

        @tool(side_effect="idempotent", edits=True)
        async def put(value: str = "") -> str:
            """Put something."""
            return self._did("put", value, "put")

        @tool
        async def pay(amount: int = 1) -> str:
            """Pay."""
            return self._did("pay", amount, f"paid {amount}")

        @tool(side_effect="read_only")
        async def fail(how: str = "") -> str:
            """Fail."""
            self._did("fail", how, "")
            raise SystemExit(how) if how == "exit" else ValueError(how)

        return [look, put, pay, fail]

    def _slow(self) -> list[Tool[..., Any]]:
        @tool(side_effect="read_only")
        async def dig(context: ToolContext[Any], at: str = "") -> str:
            """Look at something that is deep down."""
            return await self._slowly("dig", at, context)

        @tool(approval="never")
        async def build(context: ToolContext[Any], what: str = "") -> str:
            """Build something, without being asked about."""
            return await self._slowly("build", what, context)

        return [dig, build]

    def _did(self, name: str, about: object, result: str) -> str:
        self.ran.append(f"{name} {about}".strip())
        return result

    async def _slowly(self, name: str, about: str, context: ToolContext[Any]) -> str:
        what = f"{name} {about}".strip()
        self.ran.append(what)
        context.progress("at it")
        try:
            await self._gate.wait()
        except asyncio.CancelledError:
            self.ran.append(f"{what} was stopped")
            raise
        return f"{what} done"

    def release(self) -> None:
        self._gate.set()

    def agent(self, *replies: Reply, summary: str = "They talked.", **settings: Any) -> Agent:
        self.model = ScriptedModel(*replies, summary=summary)
        performers = {CallModel: self._answered_by(self.model), **settings.pop("performers", {})}
        given: dict[str, Any] = {
            "model": "scripted",
            "clock": self.clock,
            "store": self.store,
            "tools": self.tools,
        }
        return Agent(performers=performers, **{**given, **settings})

    def session(self, *replies: Reply, **settings: Any) -> Session:
        return self.agent(*replies, **settings).session("s")

    def _answered_by(self, model: ScriptedModel) -> Performer[CallModel]:
        async def answer(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
            self.faults += unanswered(scene.history.slice(0, request.view.length))
            answered = await model(request, scene)
            if len(model.requests) in self.held:
                await self._gate.wait()
            return answered

        return answer

    # Who watches

    async def play(
        self,
        session: Session,
        prompt: str | None = "go",
        on: Mapping[type, Reaction] | None = None,
        *,
        wait: bool = False,
    ) -> Result:
        """Run *session* on *prompt*, do what *on* says at each notice of a kind, and return the result."""
        async with aclosing(session.stream(prompt, wait=wait)) as notices:
            async for notice in notices:
                self.notices.append(notice)
                if on is not None and type(notice) in on:
                    await on[type(notice)](notice)
        return session.result()

    async def leave(self, session: Session, prompt: str | None, at: type) -> None:
        """Run *session* until a notice of the kind *at*, and then be gone as a lost process is."""
        async with aclosing(session.stream(prompt)) as notices:
            async for notice in notices:
                if isinstance(notice, at):
                    break
        await session.close()

    @staticmethod
    async def until(holds: Callable[[], object]) -> None:
        for _ in range(10_000):
            if holds():
                return
            await asyncio.sleep(0)
        pytest.fail(f"{holds} never held")

    def seen(self, *kinds: type) -> list[Any]:
        return [notice for notice in self.notices if type(notice) in kinds]

    def order(self, *kinds: type) -> list[str]:
        return [type(notice).__name__ for notice in self.notices if not kinds or type(notice) in kinds]

    def shown(self, number: int) -> list[str]:
        """What the model was shown at its request *number*, from 1, a line a message."""
        view, messages = self.model.requests[number - 1].view, self.model.seen[number - 1]
        old = view.cleared if isinstance(view, Conversation) else 0
        return lines([*map(clear_results, messages[:old]), *messages[old:]])

    @property
    def purposes(self) -> str:
        """What the model was asked for, a letter a request: a turn, a Summary or a Name."""
        letters = {"turn": "t", "summary": "S", "title": "N"}
        return "".join(letters[request.purpose] for request in self.model.requests)

    @property
    def asked(self) -> int:
        return len(self.model.requests)

    @staticmethod
    def said(session: Session) -> list[str]:
        return lines(session.history)

    @staticmethod
    def outcomes(session: Session) -> list[str]:
        results = [result for message in session.history for result in message.results]
        return [f"{result.name}: {result.outcome}" for result in results]


def lines(messages: Iterable[Message]) -> list[str]:
    """A line for each of *messages*: who speaks, the text, calls in brackets, results between bars."""
    return [line(message) for message in messages]


def line(message: Message) -> str:
    if message.role is Role.TOOL:
        return f"tool: {' | '.join(result.content for result in message.results)}"
    wishes = f"[{', '.join(call.name for call in message.calls)}]" if message.calls else ""
    return f"{message.role}: {' '.join(filter(None, [message.text, wishes]))}"


def unanswered(messages: Sequence[Message]) -> list[str]:
    """What no provider would take: calls whose results do not stand right behind them, in their order."""
    faults: list[str] = []
    for message, following in zip(messages, [*messages[1:], None], strict=True):
        answered = [] if following is None else [result.call for result in following.results]
        if [call.id for call in message.calls] != (answered if message.calls else []):
            faults.append(f"{line(message)} is followed by {following and line(following)}")
        if message.role is Role.TOOL and not message.results:
            faults.append(f"{line(message)} has no results")
    return faults


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A stage; whatever was played on it, the model was never shown a conversation with a call unanswered."""
    made = Stage()
    yield made
    assert made.faults == []


@pytest.fixture
def wall() -> ManualClock:
    return ManualClock()
