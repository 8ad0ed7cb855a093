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

STAND_IN_LABEL = "scripted stand-in (no model, no key)"
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
        return STAND_IN_LABEL if is_stand_in(name) and self.agent.api_key == "" else name

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


def open_for_reading(path: Path) -> Store:
    """The store at *path* for whoever looks for a session in it, who makes no file where there is none."""
    return open_store(path) if path.exists() else MemoryStore()


def with_store(path: Path, act: Callable[[Store], Awaitable[T]]) -> T:
    """What *act* makes of the store at *path*."""

    async def work() -> T:
        kept = open_for_reading(path)
        try:
            return await act(kept)
        finally:
            await kept.close()

    return asyncio.run(work())


def answerer(where: str) -> str:
    """Who answers and *where*, as the journal is told."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = "somebody"
    return f"{user} ({where})"


async def stored_config(store: Store, session: str) -> Config | None:
    """How *session* was set up; None where prompts wait for its first run. Raises `UnknownSession`."""
    entries = await store.load(session)
    if not entries:
        raise UnknownSession(session)
    machine = fold(entries, session).machine
    return None if machine is None else machine.config


async def resolve_newest(options: RunOptions) -> RunOptions:
    """
    *job* with the session it goes on with, where it said no more than that it is the newest one.

    Raises `ConfigError` where there is none; where settings said so, that is a new session.
    """
    if not options.newest:
        return options
    store = open_for_reading(options.store)
    try:
        found = await latest(store, options.cwd)
    finally:
        await store.close()
    if found is None and not options.settings.session.latest:
        here = str(options.cwd.resolve())
        msg = f"no session has worked in {here!r}; begin one without --continue, or see turnwheel sessions"
        raise ConfigError(msg)
    return attrs.evolve(options, newest=False, resume=found)


async def session_exists(path: Path, session: str) -> bool:
    """Whether there is *session* in the store at *path*."""
    store = open_for_reading(path)
    try:
        return bool(await store.load(session))
    finally:
        await store.close()


@asynccontextmanager
async def open_workspace(
    options: RunOptions, performers: Mapping[type, Performer[Any]], pace: float
) -> AsyncGenerator[Workspace, None]:
    """
    The place that *job* asks for, while it is needed; *performers* take the place of the agent's own.

    *pace* is the stand-in's, in seconds between two pieces.
    """
    async with AsyncExitStack() as stack:
        store: Store = open_store(options.store) if options.settings.session.persist else MemoryStore()
        stack.push_async_callback(store.close)
        config = None if options.resume is None else await stored_config(store, options.resume)
        url = options.base_url
        if url is None and is_stand_in(model_of(options, config)):
            url = (await stack.enter_async_context(StandIn(pace=pace))).base_url
        agent = agent_for(options, config, base_url=url, store=store, performers=performers)
        await stack.enter_async_context(agent)
        session = agent.session(options.resume or options.session)
        await stack.enter_async_context(session)
        yield Workspace(store=store, agent=agent, session=session)


async def apply_choices(options: RunOptions, workspace: Workspace) -> None:
    """What the command line says of title, model and mode holds, whatever a person chose before."""
    if options.title is not None:
        await workspace.session.retitle(options.title)
    machine, model = workspace.session.machine, workspace.agent.config.model.name
    if machine is None:
        return
    if options.mode is not None:
        await workspace.session.control(SetMode(mode=options.mode))
    if (options.model is not None or options.stand_in) and machine.memory.model != model:
        await workspace.session.control(SetModel(model=model))
