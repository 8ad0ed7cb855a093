"""Speak to a session from another process: inputs go to its journal, and its worker takes them up."""

from __future__ import annotations

import asyncio
import shlex
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar, final

import attrs

from ...effects.config import Config, ModelSpec, Steering
from ...effects.errors import CallerError, ConfigError, UnknownCall, UnknownRequest
from ...effects.events import (
    Approve,
    ApproveAlways,
    Decision,
    Deny,
)
from ...effects.messages import Binary
from ...effects.records import Change, SetModel
from ...effects.requests import AskApproval
from ...effects.secrets import Secrets
from ...engine.agent import DEFAULT_MODEL
from ...engine.core.machine import calls_in
from ...engine.inspect.explain import Explanation
from ...engine.session.environment import Environment
from ...engine.session.session import Session
from ...performers.base import SystemClock
from ...performers.redactor import Redactor, SecretNames
from ...performers.secrets import MemoryVault
from ...performers.stores.base import Store
from ...performers.stores.place import StorePlace
from ..terminal.approval_card import outside_grant
from ..terminal.call_summary import essence, number
from ..terminal.notice_lines import change_text
from ..terminal.sanitize import one_line
from ..terminal.terminal import READ_WHEN
from .build_settings import switch_problem
from .call_report import find_call
from .option_types import (
    ALL,
    resolve_name,
    resolve_question,
    short,
)
from .stores import default_store, open_for_reading
from .workspace import answerer, stored_config

T = TypeVar("T")

ESSENCE_WIDTH = 100
"""Columns for the arguments of a call."""


@final
@attrs.frozen(kw_only=True)
class RemoteSession:
    """A *session* that another process may run, and its *config*."""

    place: StorePlace
    store: Store
    session: Session
    config: Config

    # Questions

    async def decide(self, name: str, decision: Decision) -> list[str]:
        """Give *decision* to the question *name*, or to all; returns a line about each."""
        try:
            chosen = self._questions(name)
        except UnknownRequest as error:
            if answer := await self._earlier_answer(name):
                msg = f"the question of call {name!r} is answered: {answer}"
                raise ConfigError(msg) from error
            raise
        # Check all questions first, so that an error leaves none of them answered.
        for question in chosen:
            await self.session.check_answer(question.id, decision)
            if isinstance(decision, ApproveAlways) and question.again:
                msg = f"{_question_line(question)} may have run; approve it alone, without --always"
                raise ConfigError(msg)
        by = answerer("deny" if isinstance(decision, Deny) else "approve")
        for question in chosen:
            await self.session.approve(question.id, decision, by=by)
        lines = [
            f"{_past_tense(decision)}: {_question_line(question)}{_consequence(decision, question)}"
            for question in chosen
        ]
        return lines if self.session.waiting else [*lines, self._who_goes_on()]

    async def _earlier_answer(self, name: str) -> str:
        """The latest answer to a question of the call *name*, and who gave it; empty where there is none."""
        with suppress(CallerError):
            story = await self.why(name)
            return next((one.text for one in reversed(story.moments) if one.what == "answered"), "")
        return ""

    def _who_goes_on(self) -> str:
        """What becomes of an input: this command only writes it down."""
        name = self.session.id
        # The run of a child goes on with its parent's.
        resume = resume_command(self.place, name.rpartition(".")[0] if self.config.agent else name)
        return f"a process that has the session open goes on with it; without one: {resume}"

    def _questions(self, name: str) -> tuple[AskApproval, ...]:
        waiting = self.session.waiting
        if name == ALL and waiting:
            return waiting
        found = resolve_question(name, {question.id: question.call for question in waiting})
        if found is None:
            raise UnknownRequest(name, tuple([short(question.call) for question in waiting]))
        return tuple([question for question in waiting if question.id == found])

    # Inputs

    async def send(self, text: str, files: Sequence[Binary] = ()) -> list[str]:
        """Queue *text* with its *files* as a prompt; returns lines about it."""
        await self.session.send(text, files=files)
        waiting = len(self.session.queue)
        return [f"{number(waiting, 'prompt')} waiting" if waiting else "sent", self._who_goes_on()]

    async def steer(self, text: str, how: Steering, files: Sequence[Binary] = ()) -> list[str]:
        """Steer the unfinished run with *text* and its *files*; returns lines about it."""
        unfinished = self.session.unfinished
        await self.session.steer(text, how, files=files)
        line = f"sent; it {READ_WHEN[how]}" if unfinished else "no run is unfinished, so it waits as a prompt"
        return [line, self._who_goes_on()]

    async def queue(self) -> list[str]:
        """A line about each prompt that waits, with its number and its id."""
        waiting = enumerate(self.session.queue, 1)
        return [f"{count} {mail.id} {one_line(mail.text, ESSENCE_WIDTH)}" for count, mail in waiting] or [
            "no prompt waits"
        ]

    async def withdraw(self, name: str) -> str:
        """Take back the input with the id *name*, or the prompt with that number; returns a line about it."""
        texts = {mail.id: mail.text for mail in self.session.queue}
        names = [*texts]
        if name not in texts and name.isdecimal() and 1 <= int(name) <= len(names):
            name = names[int(name) - 1]
        await self.session.withdraw(name)
        return f"taken back: {one_line(texts.get(name, name), ESSENCE_WIDTH)}"

    async def control(self, change: Change) -> str:
        """Change a setting; returns a line about it."""
        if isinstance(change, SetModel) and (problem := switch_problem(self.config, change.model)):
            msg = f"cannot switch to {change.model!r}: {problem}"
            raise ConfigError(msg)
        await self.session.control(change)
        return f"from now on: {change_text(change)}"

    async def cancel(self, name: str) -> str:
        """Cancel the call *name*; returns a line about it."""
        machine = self.session.machine
        there = () if machine is None else calls_in(machine.state)
        found = resolve_name(name, there)
        if found is None:
            raise UnknownCall(name, tuple([short(call) for call in there]))
        await self.session.cancel(found)
        return f"cancelled #{short(found)}"

    async def interrupt(self) -> str:
        """Ask the run to stop. Raises `ConfigError` if no run is unfinished."""
        if not self.session.unfinished:
            msg = f"session {self.session.id!r} has no unfinished run"
            raise ConfigError(msg)
        await self.session.interrupt()
        return "asked the run to stop"

    async def why(self, name: str) -> Explanation:
        """The story of the call *name*."""
        return await find_call(self.store, self.session.id, name)


def _past_tense(decision: Decision) -> str:
    return "denied" if isinstance(decision, Deny) else "approved"


def _question_line(question: AskApproval) -> str:
    about = essence(question.tool, question.arguments, ESSENCE_WIDTH)
    return f"#{short(question.call)} {question.tool} {about}".rstrip()


def _consequence(decision: Decision, question: AskApproval) -> str:
    match decision:
        case Approve(arguments=edited):
            return ", with other arguments" * bool(edited) + ", so it runs again" * question.again
        case ApproveAlways(where=()):
            return ", and every call of it from now on"
        case ApproveAlways() if outside_grant(decision, question.tool, question.arguments):
            return ", though it does not fit, and every call that fits from now on"
        case ApproveAlways():
            return ", and every such call from now on"
        case Deny(interrupt=ends):
            return ", so it does not run again" * question.again + ", and the run stops" * ends


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


@asynccontextmanager
async def open_remote(place: StorePlace, session: str) -> AsyncGenerator[RemoteSession, None]:
    """Open *session* in the store at *place* for input; raises `UnknownSession`."""
    store = open_for_reading(place)
    try:
        config = await stored_config(store, session) or Config(model=ModelSpec(name=DEFAULT_MODEL))
        # This vault ends with the command. So a new secret is refused: no worker would find its value.
        redactor = Redactor(session, MemoryVault(), SecretNames(Secrets(), config.tools, {}))
        setting = Environment(
            config=config, performers={}, clock=SystemClock(), new_id=_new_id, redactor=redactor
        )
        async with Session(session, setting, store) as there:
            yield RemoteSession(place=place, store=store, session=there, config=config)
    finally:
        await store.close()


def resume_command(place: StorePlace, session: str) -> str:
    """The shell command that goes on with *session* in the store at *place*; it works as it stands."""
    more = [] if place == default_store() else ["--store", str(place)]
    return shlex.join(["turnwheel", "run", "--resume", session, *more])


def with_session(place: StorePlace, session: str, act: Callable[[Session], Awaitable[T]]) -> T:
    """The result of *act* on *session* in the store at *place*."""

    async def work() -> T:
        async with open_remote(place, session) as there:
            return await act(there.session)

    return asyncio.run(work())
