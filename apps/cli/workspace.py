"""Where a command works: its store, its agent, its session, and the stand-in where no model is asked."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, final

import attrs

from ...effects.config import Config
from ...effects.errors import ConfigError, UnknownSession
from ...effects.permissions import PermissionMode
from ...effects.records import SetMode, SetModel
from ...engine.agent import Agent
from ...engine.journal.fold import fold
from ...engine.session.listing import latest
from ...engine.session.session import Session
from ...performers.base import Performer
from ...performers.stores.base import Store
from ...performers.stores.memory import MemoryStore
from ...performers.stores.sqlite import SQLiteStore
from ...states.context import NotBegun
from ..stand_in.server import StandIn
from ..terminal.sanitize import one_line
from .build_settings import agent_for
from .run_options import (
    RunOptions,
    default_store,
    is_stand_in,
    model_of,
)

T = TypeVar("T")

TITLE_WIDTH = 40
"""Columns of a session's title."""

CALLED = "scripted stand-in (no model, no key)"
"""What the stand-in is called on screen: nobody shall take it for a model."""


@final
@attrs.frozen(kw_only=True)
class Workspace:
    """An *agent* and its *session*, kept in *store*."""

    store: Store
    agent: Agent
    session: Session

    @property
    def model(self) -> str:
        """Who is asked, as it is shown: what a person chose for the session, else what is configured."""
        config, machine = self.agent.config, self.session.machine
        name = config.model.name
        if machine is not None and machine.memory.model != machine.config.model.name:
            name = machine.memory.model
        return CALLED if is_stand_in(name) and self.agent.api_key == "" else name

    @property
    def about(self) -> str:
        """What else is to be known at the beginning: a title, an unusual mode, what is read first."""
        config, machine = self.agent.config, self.session.machine
        mode = config.policy.mode if machine is None else machine.memory.mode
        words = [f"'{one_line(self.session.title, TITLE_WIDTH)}'"] if self.session.title else []
        words += [] if mode is PermissionMode.DEFAULT else [f"mode {mode}"]
        if machine is None or isinstance(machine.memory.instructions, NotBegun):
            words += [f"reads {file}" for file in config.instructions if self._has(file)]
        return "  ".join(words)

    def _has(self, file: str) -> bool:
        folders = (self.agent.cwd, *self.agent.directories)
        return any((Path(folder) / file).is_file() for folder in folders)

    @property
    def waits(self) -> bool:
        """Whether questions have a deadline, so that a run goes on by itself, and need not rest."""
        return self.agent.config.policy.answer_within is not None


def open_store(path: Path) -> SQLiteStore:
    """The store at *path*; our own directory is made for its owner's eyes only."""
    if path == default_store():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SQLiteStore(path)


def looked_in(path: Path) -> Store:
    """The store at *path* for whoever looks for a session in it, who makes no file where there is none."""
    return open_store(path) if path.exists() else MemoryStore()


def with_store(path: Path, act: Callable[[Store], Awaitable[T]]) -> T:
    """What *act* makes of the store at *path*."""

    async def work() -> T:
        kept = looked_in(path)
        try:
            return await act(kept)
        finally:
            await kept.close()

    return asyncio.run(work())


def somebody(where: str) -> str:
    """Who answers and *where*, as the journal is told."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = "somebody"
    return f"{user} ({where})"


async def before(store: Store, session: str) -> Config | None:
    """How *session* was set up; None where prompts wait for its first run. Raises `UnknownSession`."""
    entries = await store.load(session)
    if not entries:
        raise UnknownSession(session)
    machine = fold(entries, session).machine
    return None if machine is None else machine.config


async def continued(job: RunOptions) -> RunOptions:
    """
    *job* with the session it goes on with, where it said no more than that it is the newest one.

    Raises `ConfigError` where there is none; where settings said so, that is a new session.
    """
    if not job.newest:
        return job
    store = looked_in(job.store)
    try:
        found = await latest(store, job.cwd)
    finally:
        await store.close()
    if found is None and not job.settings.session.latest:
        here = str(job.cwd.resolve())
        msg = f"no session has worked in {here!r}; begin one without --continue, or see turnwheel sessions"
        raise ConfigError(msg)
    return attrs.evolve(job, newest=False, resume=found)


async def exists(path: Path, session: str) -> bool:
    """Whether there is *session* in the store at *path*."""
    store = looked_in(path)
    try:
        return bool(await store.load(session))
    finally:
        await store.close()


@asynccontextmanager
async def opened(
    job: RunOptions, performers: Mapping[type, Performer[Any]], pace: float
) -> AsyncGenerator[Workspace, None]:
    """
    The place that *job* asks for, while it is needed; *performers* take the place of the agent's own.

    *pace* is the stand-in's, in seconds between two pieces.
    """
    async with AsyncExitStack() as stack:
        store: Store = open_store(job.store) if job.settings.session.persist else MemoryStore()
        stack.push_async_callback(store.close)
        config = None if job.resume is None else await before(store, job.resume)
        url = job.base_url
        if url is None and is_stand_in(model_of(job, config)):
            url = (await stack.enter_async_context(StandIn(pace=pace))).base_url
        agent = agent_for(job, config, base_url=url, store=store, performers=performers)
        await stack.enter_async_context(agent)
        session = agent.session(job.resume or job.session)
        await stack.enter_async_context(session)
        yield Workspace(store=store, agent=agent, session=session)


async def insist(job: RunOptions, place: Workspace) -> None:
    """What the command line says of title, model and mode holds, whatever a person chose before."""
    if job.title is not None:
        await place.session.retitle(job.title)
    machine, model = place.session.machine, place.agent.config.model.name
    if machine is None:
        return
    if job.mode is not None:
        await place.session.control(SetMode(mode=job.mode))
    if (job.model is not None or job.stand_in) and machine.memory.model != model:
        await place.session.control(SetModel(model=model))
