"""The children of a session: which are at work, where their sessions are, and what they wait for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

import attrs

from ...effects.config import ToolKind
from ...effects.errors import (
    ConfigError,
    SessionClosed,
    UnknownCall,
    UnknownSession,
)
from ...effects.events import ControlReceived
from ...effects.records import SetMode
from ...effects.requests import RunAgent
from ...performers.stores.memory import MemoryStore
from ...states.batch.batch import RunningChild
from ...states.context import INPUTS
from ...states.rules.limits import child_prompt
from ...states.rules.schema import arguments_of
from ...states.state import Confirming, Dispatching, Executing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from ...effects.config import Config
    from ...effects.errors import WorldError
    from ...effects.events import Post
    from ...effects.messages import ToolCall
    from ...effects.records import Change
    from ...effects.requests import AskApproval, Cancel, Request
    from ...performers.base import Clock
    from ...performers.stores.base import Store
    from ...states.state import State
    from ..machine import Machine
    from .inputs import Input
    from .runner import Environment
    from .session import Session
    from .session_state import SessionLog


@final
@attrs.frozen(kw_only=True)
class ChildLink:
    """A child that is not over: the *call* it works for, the *session* it has and which *agent* it is."""

    call: str
    session: str
    agent: str


def links_of(state: State, session: str) -> tuple[ChildLink, ...]:
    """The children of *session* that are not over in *state*, in call order; each is named after its call."""
    if not isinstance(state, Executing | Confirming | Dispatching):
        return ()
    return tuple(
        [
            ChildLink(call=one.call.id, session=f"{session}.{one.call.id}", agent=_agent(one.call))
            for one in state.batch.calls
            if isinstance(one.phase, RunningChild)
        ]
    )


@final
class Children:
    """
    The children of the session *session*, which works with *setting*, by the calls they work for.

    *nudge* lets whoever drives the session look around; *ours* raises `StoreConflict` where that is somebody
    else; *leave* has them leave it as it is kept, and says why.

    Theory of operation. A child is a session of its own, named after its parent's and the call, in the same
    *store*; where its parent has none, in one that ends with it. Whoever runs a child here puts it into
    `here`. A child that is run elsewhere, that rests or is over, is reached through the store by a session
    object that has no task, and so runs nothing: what is said through it is taken up by whoever does.
    """

    def __init__(self, session: str, setting: Environment, store: Store | None) -> None:
        self.here: dict[str, Session] = {}
        self.nudge: Callable[[], None] = _nobody
        self.ours: Callable[[], Awaitable[None]] = _surely
        self.leave: Callable[[WorldError], None] = _told
        self._session = session
        self._setting = setting
        self._store = MemoryStore() if store is None else store

    def name(self, call: str) -> str:
        """The id of the session of the child that works for *call*."""
        return f"{self._session}.{call}"

    def links(self, machine: Machine | None) -> tuple[ChildLink, ...]:
        """The children that are not over in *machine*, in call order."""
        return () if machine is None else links_of(machine.state, self._session)

    def session(self, call: str, machine: Machine | None) -> Session:
        """
        The session of the child that works for *call* in *machine*, or did.

        Raises `UnknownCall` with the children that are not over.
        """
        if (known := self.here.get(call)) is not None:
            return known
        agents = {link.call: link.agent for link in self.links(machine)}
        agent = agents.get(call) or _agent_before(call, machine)
        if not agent:
            raise UnknownCall(call, tuple(agents))
        return self._seen(call, agent)

    def _seen(self, call: str, agent: str) -> Session:
        """The session of the child *agent*, for whoever looks at it or speaks to it."""
        config = attrs.evolve(self._setting.config, agent=agent, children=())
        return self._made(call, attrs.evolve(self._setting, config=config))

    def open(self, task: Input, config: Config, clock: Clock) -> tuple[Session, Session | None]:
        """
        The session of the child that is to be run here for *task*, which has the id of its call.

        With the one that it takes the place of, if there is one: that is to be closed.
        """
        before = self.here.get(task.id)
        setting = attrs.evolve(self._setting, config=config, clock=clock, task=task, rested=self.nudge)
        self.here[task.id] = self._made(task.id, setting)
        return self.here[task.id], before

    async def over(self, call: str) -> None:
        """The child that was run here for *call* has come to its end."""
        if (child := self.here.pop(call, None)) is not None:  # else its parent was let go of
            await child.close()

    def drained(self, within: float | None) -> list[Coroutine[Any, Any, None]]:
        """What drains those that are known here; see `Session.drain`."""
        return [child.drain(within) for child in self.here.values()]

    async def close(self) -> None:
        """Let go of those that are known here."""
        while self.here:
            await self.here.popitem()[1].close()

    def _made(self, call: str, setting: Environment) -> Session:
        from .session import Session  # noqa: PLC0415  # a session has children, which are sessions

        return Session(self.name(call), attrs.evolve(setting, ended=None), self._store)

    async def load(self, machine: Machine | None) -> None:
        """Read what is new of the children that are not over in *machine*, and forget the others."""
        calls = [link.call for link in self.links(machine)]
        self.here = {call: session for call, session in self.here.items() if call in calls}
        for call in calls:
            child = self.session(call, machine)
            self.here[call] = child
            with suppress(SessionClosed):  # it has come to its end meanwhile
                await child.load()

    # What they wait for

    def waiting(self, machine: Machine | None) -> tuple[AskApproval, ...]:
        """The questions that children ask, as far as is known here, and that nobody has answered."""
        known = [self.here[link.call] for link in self.links(machine) if link.call in self.here]
        return tuple([question for child in known for question in child.waiting])

    def asking(self, request: str, machine: Machine | None) -> Session | None:
        """The child whose question *request* is, as far as is known here."""
        for link in self.links(machine):
            child = self.here.get(link.call)
            if child is not None and request in [question.id for question in child.waiting]:
                return child
        return None

    def rest(self, call: str) -> bool:
        """Whether the child at *call*, which is run here, waits for people and for nothing else."""
        child = self.here.get(call)
        return child is not None and child.resting

    # What is said to them

    async def follow(self, change: Change, machine: Machine | None) -> None:
        """Change the mode of the children that are known here, where *change* did so of their parent's."""
        if not isinstance(change, SetMode):
            return
        for link in self.links(machine):
            child = self.here.get(link.call)
            if child is not None:
                # It has come to its end meanwhile, or has not begun and will with the mode of its parent.
                with suppress(ConfigError, SessionClosed, UnknownSession):
                    await child.control(change)


def _child(log: SessionLog, setting: Environment) -> str:
    """Which child it is whose session is known by *log* and *setting*, empty for none: a copy is nobody's."""
    if log.folded.copied:
        return ""
    return setting.config.agent if log.machine is None else log.machine.config.agent


def check_runner(log: SessionLog, setting: Environment) -> None:
    """Refuse to run a child with what *setting* says: its parent does, with what that grants it."""
    agent = _child(log, setting)
    if agent and (agent != setting.config.agent or setting.task is None):
        msg = f"session {log.session!r} is a child's: it goes on when its parent does"
        raise ConfigError(msg)


def check_heard(log: SessionLog, setting: Environment, event: Post) -> None:
    """Refuse what nobody would ever read: a child that is over is not run again."""
    if not _child(log, setting) or not isinstance(event, INPUTS):
        return
    if log.machine is None and setting.task is None:
        raise UnknownSession(log.session)
    if log.machine is not None and log.machine.done:
        msg = f"session {log.session!r} is a child that is over: what you say is for its parent"
        raise ConfigError(msg)


def in_mode(request: Request | Cancel, posted: Iterable[Post]) -> Request | Cancel:
    """*request*; where it is for a child, in the mode that was chosen since, by what was *posted*."""
    if isinstance(request, RunAgent):
        for event in posted:
            if isinstance(event, ControlReceived) and isinstance(event.change, SetMode):
                request = attrs.evolve(request, mode=event.change.mode)
    return request


def _nobody() -> None:
    """Nobody drives the parent."""


def _told(_: WorldError) -> None:
    """As `_nobody`."""


async def _surely() -> None:
    """Nobody else has it."""


def _agent(wish: ToolCall) -> str:
    name, _ = child_prompt(arguments_of(wish.arguments) or {})
    return name


def _agent_before(call: str, machine: Machine | None) -> str:
    """The agent that *call* of *machine*'s history was for; empty where it was for none."""
    if machine is None:
        return ""
    history = machine.memory.history
    for index in range(len(history) - 1, -1, -1):
        for wish in history[index].calls:
            spec = machine.config.tool(wish.name)
            if wish.id == call and spec is not None and spec.kind is ToolKind.AGENT:
                return _agent(wish)
    return ""
