"""
A service as it is on a bad day: many sessions at once, and whoever uses them does so in every way there is.

Conversations are opened, gone on with and closed, in memory and on a disk. Their runs are watched, steered,
interrupted, cancelled and left; two go on with one session at once; models stumble, say too much or nothing;
tools are slow, and sync, and broken; a store fails. Nothing of that is an error of the service's.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable
from contextlib import aclosing, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, final

from provers.choices import (
    Choices,
    chance,
    pick,
    weighted,
)
from turnwheel.effects.config import ChildSpec, Concurrency, ModelSpec, Policy, Steering
from turnwheel.effects.errors import CallerError, SessionGone, StoreConflict, StoreError
from turnwheel.effects.events import (
    Approve,
    Decision,
    Deny,
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
)
from turnwheel.effects.history import CallPiece, Piece, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer
from turnwheel.effects.messages import Role, StopReason
from turnwheel.effects.requests import CallModel, Purpose
from turnwheel.effects.usage import Usage
from turnwheel.engine.agent import Agent
from turnwheel.performers import ToolContext, tool
from turnwheel.performers.base import PerformContext
from turnwheel.performers.hooks import HookCall, hook
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.stores import StoreOver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnwheel.engine.session.handle import Handle
    from turnwheel.engine.session.session import Session
    from turnwheel.performers.stores.base import Store

LONGEST = 25
"""Turns after which a conversation is over, and another one begins, under a name of its own."""

MOST = 8
"""Messages since a person last said something after which the model comes to an end."""

ANSWERS: tuple[Decision, ...] = (Approve(), Approve(), Deny())
"""What people say when they are asked."""

USES = {
    "run": 30,
    "watch": 15,
    "hold": 10,
    "steer": 10,
    "interrupt": 10,
    "cancel": 8,
    "leave": 8,
    "break": 5,
    "close": 5,
    "both": 5,
    "fork": 2,
}
"""What is done with a session, and how often in a hundred times."""

TOLD = (CallerError, SessionGone, StoreConflict, StoreError)
"""What whoever uses a session may be told on such a day."""


@final
class FlakyStore(StoreOver):
    """A *store* of which one append in *share* fails, half of those after it took effect; 0 for none."""

    def __init__(self, store: Store, choices: Choices, share: int) -> None:
        super().__init__(store)
        self.share = share
        self._choices = choices

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """As a store does, or fail."""
        fails = bool(self.share) and not self._choices.below(self.share)
        if fails and chance(self._choices, 50):
            self._fail()
        there = await super().append(session, expected, entries, about, incarnation)
        if fails:
            self._fail()
        return there

    def _fail(self) -> None:
        msg = "the store has a bad day"
        raise StoreError(msg)

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """As a store does, or fail."""
        if self.share and not self._choices.below(self.share):
            self._fail()
        await super().keep_checkpoint(session, position, body, first, incarnation)


@final
class Service:
    """
    An agent and the *stores* of its sessions, as *choices* go.

    `turns` counts answers of models, `done` what was done, and `told` what anybody was told.
    """

    def __init__(self, stores: Sequence[FlakyStore], choices: Choices) -> None:
        self.stores = stores
        self.turns = 0
        self.done: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self._choices = choices
        self._names = count()
        self._agent = Agent(
            model=ModelSpec(name="wire:model", window=3_000),
            tools=(peek, put, pay, think, fail),
            hooks=(hook(Hook.POST_TOOL_USE)(look_on),),
            children=(ChildSpec(name="kid", tools=("peek", "put")),),
            performers={CallModel: self.speak},
            policy=Policy(concurrency=Concurrency.PARALLEL_READS),
            titles="model",
            clock=AutoClock(),
            deps=self,
        )

    def fresh(self) -> str:
        """A name that no conversation had."""
        return f"s{next(self._names)}"

    def session(self, name: str, store: FlakyStore) -> Session:
        """The session called *name* in *store*."""
        return self._agent.session(name, store)

    async def close(self) -> None:
        """Let go of all."""
        await self._agent.aclose()
        for store in self.stores:
            await store.close()

    # The model and the tools

    async def speak(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """Perform `CallModel`: say something, and mostly come to an end."""
        how = weighted(self._choices, {"well": 92, "overloaded": 4, "refused": 1, "silent": 3})
        try:
            for before, piece in enumerate(pieces := self._pieces(request, scene)):
                at = scene.clock.now()
                scene.emit(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
                await asyncio.sleep(0)
            if how == "silent":
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            return _failed(request, scene, Failure.CANCELLED)
        if how in {"overloaded", "refused"}:
            return _failed(request, scene, Failure.OVERLOADED if how == "overloaded" else Failure.AUTH)
        self.turns += 1
        calls = any(isinstance(piece, CallPiece) for piece in pieces)
        return ModelFinished(
            at=scene.clock.now(),
            request=request.id,
            stop=StopReason.TOOL_USE if calls else StopReason.END_TURN,
            usage=Usage(input=20 * request.view.length, output=20),
        )

    def _pieces(self, request: CallModel, scene: PerformContext) -> tuple[Piece, ...]:
        since = 0
        for index in range(request.view.length - 1, -1, -1):
            if scene.history[index].role is Role.USER:
                break
            since += 1
        if request.purpose is not Purpose.TURN or since > MOST or chance(self._choices, 20):
            return TextPiece("That is "), TextPiece("all there is to say.")
        names = ["peek", "put", "pay", "think", "fail"] if scene.config.children else ["peek", "put"]
        wishes = [pick(self._choices, names) for _ in range(1 + self._choices.below(2))]
        if scene.config.children and chance(self._choices, 10):
            wishes.append("run_agent")
        given = {"run_agent": json.dumps({"agent": "kid", "prompt": "look around"})}
        calls = [
            CallPiece(index, f"call_{index}", name, given.get(name, json.dumps({"what": "x" * 50})))
            for index, name in enumerate(wishes)
        ]
        return TextPiece("Let me see. "), *calls

    # Those who use it

    async def use(self, name: str, store: FlakyStore) -> str:
        """Do something with the session called *name*, or with a new one where it is long; its name."""
        use = weighted(self._choices, USES)
        try:
            if await self._is_over(name, store):
                name = self.fresh()
            async with self.session(name, store) as session:
                self.done[use] += 1
                await self._use(use, session, store)
        except TOLD as error:
            self.told[type(error).__name__] += 1
        except asyncio.CancelledError:
            self.told["CancelledError"] += 1
        return name

    async def visit(self) -> None:
        """Do what is rarely done with a session that is forgotten at once, so that it was done early."""
        (store,) = self.stores
        with suppress(*TOLD):
            async with self.session("visit", store) as session:
                await self._use("fork", session, store)
        for info in await store.list():
            await store.delete(info.session)

    async def _is_over(self, name: str, store: FlakyStore) -> bool:
        """End what is not over of the session called *name*, and forget it where it has become long."""
        async with self.session(name, store) as session:
            for _ in range(3):
                if not session.unfinished:
                    break
                await self._to_its_end(session, None)
            if session.spent.turns <= LONGEST:
                return False
            for info in session.children:
                await store.delete(info.session)
            return await store.delete(session.id)

    async def _use(self, use: str, session: Session, store: FlakyStore) -> None:
        prompt = "Do this: " + "please " * self._choices.below(30)
        match use:
            case "watch":
                await self._watched(session, prompt)
            case "hold":
                await self._held(session, prompt)
            case "cancel":
                await self._cancelled(self._to_its_end(session, prompt))
            case "leave" | "break":
                await self._left(session, prompt, closes=use == "leave")
            case "both":
                other = self.session(session.id, store)
                async with other:
                    both = self._to_its_end(session, prompt), self._to_its_end(other, None)
                    await _all(*both)
            case "fork":
                await self._to_its_end(session, prompt)
                copy = await session.fork(f"{session.id}-fork")
                async with copy:
                    await self._to_its_end(copy, prompt)
                await store.delete(copy.id)
            case "steer" | "interrupt" | "close":
                await _all(self._to_its_end(session, prompt), self._disturbed(use, session))
            case _:
                await self._to_its_end(session, prompt)

    async def _to_its_end(self, session: Session, prompt: str | None) -> None:
        """Run until nothing waits, and answer what is asked."""
        result = await (session.resume() if prompt is None else session.run(prompt))
        for _ in range(20):
            if result.reason is not None:
                return
            for question in session.waiting:
                with suppress(CallerError):  # somebody else was quicker
                    await session.approve(question.id, pick(self._choices, ANSWERS))
            result = await session.resume()

    async def _disturbed(self, use: str, session: Session) -> None:
        await self._pause()
        if use == "steer":
            await session.steer("Take care.", pick(self._choices, tuple(Steering)))
        elif use == "close":
            await session.close()
        else:
            for _ in range(1 + self._choices.below(2)):
                await session.interrupt()

    async def _pause(self) -> None:
        for _ in range(self._choices.below(60)):
            await asyncio.sleep(0)

    async def _cancelled(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        await self._pause()
        task.cancel()
        await task

    async def _watched(self, session: Session, prompt: str) -> None:
        """Some look on: to the end, for a while, or without ever looking."""
        idle = session.subscribe()
        async with session.subscribe() as first, session.subscribe() as second:
            readers = [
                asyncio.ensure_future(_read(each, most)) for each, most in ((first, 1_000), (second, 5))
            ]
            try:
                await self._to_its_end(session, prompt)
            finally:
                await first.aclose()
                await second.aclose()
                await asyncio.gather(*readers)
        del idle  # and nobody closes it

    async def _held(self, session: Session, prompt: str) -> None:
        """In the background, until a question is asked or it is over."""
        async with session.start(prompt) as handle:
            await _read_to_question(handle, session)
            if not handle.done and chance(self._choices, 50):
                await handle.interrupt()
                await _read_to_question(handle, session)
            if handle.done:
                await handle.wait()

    async def _left(self, session: Session, prompt: str, *, closes: bool) -> None:
        """Look for a while, and go; *closes*: and say so."""
        most = 1 + self._choices.below(30)
        if closes:
            async with aclosing(session.stream(prompt)) as notices:
                await _read(notices, most)
        else:
            await _read(session.stream(prompt), most)


async def _read(notices: Any, most: int) -> None:  # a stream, or a subscription
    async for _ in notices:
        most -= 1
        if not most:
            break


async def _read_to_question(handle: Handle, session: Session) -> None:
    """Read until *handle* has no more, or a question is open."""
    reading = asyncio.ensure_future(_read(handle, 1_000))
    try:
        # The question may be that of a prompt that was kept on a bad day and comes first: its notices are
        # none of the handle's.
        while not (reading.done() or session.waiting):  # noqa: ASYNC110  # no notice tells it here
            await asyncio.sleep(0.001)
    finally:
        reading.cancel()
        await asyncio.wait({reading})
    if not reading.cancelled():
        reading.result()


async def _all(*works: Awaitable[None]) -> None:
    """Wait for all of *works*, and raise what one of them raised."""
    for came in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(came, BaseException):
            raise came


def _failed(request: CallModel, scene: PerformContext, failure: Failure) -> ModelFailed:
    return ModelFailed(at=scene.clock.now(), request=request.id, failure=failure, message="a bad day")


async def look_on(about: HookCall) -> HookAnswer | None:
    """Look at what a tool did."""
    return HookAnswer(context=f"{about.tool} was seen")


@tool(side_effect="read_only")
async def peek(what: str) -> str:
    """Look at something."""
    await asyncio.sleep(0)
    return f"saw {what}"


@tool(side_effect="idempotent", approval="never")
def put(what: str) -> str:
    """Put something somewhere, in a thread."""
    return f"put {what}"


@tool
async def pay(what: str, context: ToolContext[Service]) -> str:
    """Pay, when somebody said yes."""
    context.progress("paying")
    await asyncio.sleep(0)
    return f"paid {what}"


@tool(side_effect="read_only", timeout=0.02)
async def think(what: str) -> str:
    """Take longer than one may."""
    await asyncio.sleep(10)
    return what


@tool(side_effect="read_only")
async def fail(what: str) -> str:
    """Break."""
    msg = f"cannot {what}"
    raise ValueError(msg)
