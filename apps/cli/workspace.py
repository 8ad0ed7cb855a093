"""Open the store, the agent and the session of a command, and the stand-in if the run uses it."""

from __future__ import annotations

import getpass
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, final

import attrs

from ...effects.config import Config
from ...effects.errors import ConfigError, UnknownSession
from ...effects.permissions import PermissionMode
from ...effects.records import SetMode, SetModel
from ...engine.agent import Agent
from ...engine.inspect.listing import latest
from ...engine.journal.fold import fold
from ...engine.session.session import Session
from ...performers.base import Performer
from ...performers.stores.base import Store
from ...performers.stores.memory import MemoryStore
from ...performers.stores.place import StorePlace
from ...states.context import NotBegun
from ..stand_in.server import StandIn
from ..terminal.sanitize import one_line
from .build_settings import agent_for
from .run_options import (
    RunOptions,
    is_stand_in,
    model_of,
)
from .stores import open_for_reading, open_store

T = TypeVar("T")

TITLE_WIDTH = 40
"""Columns of a session's title."""

STAND_IN_LABEL = "scripted stand-in (no model, no key)"
"""The label of the stand-in on screen, so that no person takes it for a model."""


@final
@attrs.frozen(kw_only=True)
class Workspace:
    """An *agent* and its *session*, kept in *store*."""

    store: Store
    agent: Agent
    session: Session

    @property
    def model(self) -> str:
        """The model on screen: the one a person chose for the session, else the configured one."""
        config, machine = self.agent.config, self.session.machine
        name = config.model.name
        if machine is not None and machine.memory.session.model != machine.config.model.name:
            name = machine.memory.session.model
        return STAND_IN_LABEL if is_stand_in(name) and self.agent.api_key == "" else name

    @property
    def about(self) -> str:
        """Other facts for the first line: a title, an unusual mode, the instruction files."""
        config, machine = self.agent.config, self.session.machine
        mode = config.policy.mode if machine is None else machine.memory.session.mode
        words = [f"'{one_line(self.session.title, TITLE_WIDTH)}'"] if self.session.title else []
        words += [] if mode is PermissionMode.DEFAULT else [f"mode {mode}"]
        if machine is None or isinstance(machine.memory.session.instructions, NotBegun):
            words += [f"reads {file}" for file in config.instructions if self._has(file)]
        return "  ".join(words)

    def _has(self, file: str) -> bool:
        folders = (self.agent.cwd, *self.agent.directories)
        return any((Path(folder) / file).is_file() for folder in folders)

    @property
    def waits(self) -> bool:
        """Whether questions have a deadline, so that a run need not rest on them."""
        return self.agent.config.policy.answer_within is not None


def answerer(where: str) -> str:
    """The name of the answering person and the command *where*, for the journal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # some containers have no name for the user
        user = "unknown user"
    return f"{user} ({where})"


async def stored_config(store: Store, session: str) -> Config | None:
    """The stored configuration of *session*; None before its first run. Raises `UnknownSession`."""
    entries = await store.load(session)
    if not entries:
        raise UnknownSession(session)
    machine = fold(entries, session).machine
    return None if machine is None else machine.config


async def resolve_newest(options: RunOptions) -> RunOptions:
    """
    *options* with the session that `--continue` or the settings mean.

    Raises `ConfigError` if this directory has no session; if only the settings asked for it, a new one
    begins.
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
        msg = f"no session in {here!r}; leave out --continue to begin one, or see turnwheel sessions"
        raise ConfigError(msg)
    return attrs.evolve(options, newest=False, resume=found)


async def session_exists(place: StorePlace, session: str) -> bool:
    """Whether the store at *place* has *session*."""
    store = open_for_reading(place)
    try:
        return bool(await store.load(session))
    finally:
        await store.close()


def enter_store(options: RunOptions, stack: AsyncExitStack) -> Store:
    """The store of *options*, which *stack* closes."""
    store: Store = open_store(options.store) if options.settings.session.persist else MemoryStore()
    stack.push_async_callback(store.close)
    return store


async def enter_model(
    options: RunOptions, config: Config | None, stack: AsyncExitStack, pace: float
) -> str | None:
    """
    Where the models of *options* are asked, None for their own address; *stack* ends a stand-in.

    *config* is that of the session that goes on, *pace* the stand-in's, in seconds between two pieces.
    """
    # A stand-in model at an address of the person's own needs no server here.
    if options.base_url is None and is_stand_in(model_of(options, config)):
        return (await stack.enter_async_context(StandIn(pace=pace))).base_url
    return options.base_url


@asynccontextmanager
async def open_workspace(
    options: RunOptions, performers: Mapping[type, Performer[Any]], pace: float
) -> AsyncGenerator[Workspace, None]:
    """
    The workspace of *options*, open inside the context; *performers* replace the agent's own.

    *pace* is the stand-in's, in seconds between two pieces.
    """
    async with AsyncExitStack() as stack:
        store = enter_store(options, stack)
        config = None if options.resume is None else await stored_config(store, options.resume)
        url = await enter_model(options, config, stack, pace)
        agent = agent_for(options, config, base_url=url, store=store, performers=performers)
        await stack.enter_async_context(agent)
        session = agent.session(options.resume or options.session)
        await stack.enter_async_context(session)
        yield Workspace(store=store, agent=agent, session=session)


async def apply_choices(options: RunOptions, workspace: Workspace) -> None:
    """
    Apply the title, model and mode of the command line, over those a person chose in the session.

    Raises `ConfigError`, with nothing stored, where the model cannot be asked.
    """
    machine, model = workspace.session.machine, workspace.agent.config.model.name
    # Without an option, the model that a person chose in the session stays.
    chosen = options.model is not None or options.stand_in
    workspace.session.check_models(model if chosen else "")
    if options.title is not None:
        await workspace.session.retitle(options.title)
    if machine is None:
        return
    if options.mode is not None:
        await workspace.session.control(SetMode(mode=options.mode))
    if chosen and machine.memory.session.model != model:
        await workspace.session.control(SetModel(model=model))
