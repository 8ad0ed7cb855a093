"""Ctrl-C: it interrupts the run, then leaves; at rest it does what it was given."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial

import pytest

from turnwheel import Agent, Session
from turnwheel.apps.cli.exit_codes import Exit
from turnwheel.apps.terminal.signals import Signals
from turnwheel.effects import errors, events, messages, requests, usage
from turnwheel.performers.base import PerformContext
from turnwheel.testing.scripted import ScriptedModel, stalls
from turnwheel.testing.stores import FaultyStore


async def worked(session: Session, signals: Signals, **on: Callable[[], object]) -> None:
    """Run *session* until it is over or a signal ends that; *on* a notice of that name, do something."""

    async def work() -> Exit:
        signals.interrupts(session)
        async with aclosing(session.stream("hi")) as notices:
            async for notice in notices:
                on.get(type(notice).__name__, lambda: None)()
        return Exit.ENDED

    await signals.guard(work)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def test_the_third_ctrl_c_leaves() -> None:
    signals, over = Signals(), asyncio.Event()

    async def slow(request: requests.CallModel, scene: PerformContext) -> events.ModelFinished:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()
        return events.ModelFinished(
            at=scene.clock.now(), request=request.id, stop=messages.StopReason.END_TURN, usage=usage.Usage()
        )

    async def let_it_stop() -> None:
        while signals.ended_by is None:  # noqa: ASYNC110  # a signal sets it, and no event
            await asyncio.sleep(0)
        over.set()

    loop = asyncio.get_running_loop()
    stops = asyncio.ensure_future(let_it_stop())
    async with Agent(model="m", performers={requests.CallModel: slow}).session() as session:
        third = partial(loop.call_soon, press)
        await worked(session, signals, ModelCalled=press, InterruptRequested=press, RunEnded=third)
    await stops
    assert signals.ended_by is Exit.INTERRUPTED


async def test_an_interrupt_that_cannot_be_kept_is_told() -> None:
    store = FaultyStore()

    def fail() -> None:
        store.works = False
        press()

    agent = Agent(model="m", performers={requests.CallModel: ScriptedModel(stalls("so"))}, store=store)
    async with agent.session() as session:
        with pytest.raises(errors.StoreError, match="no space left"):
            await worked(session, Signals(), TextDelta=fail)
