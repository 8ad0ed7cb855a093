"""`turnwheel run`: a session put together, run under the eyes of a person or a program, and accounted for."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import termios
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import final

from ..effects.config import Config
from ..effects.errors import ConfigError, UnknownRequest, UnknownSession
from ..effects.events import Approve, Decision
from ..effects.notices import DoneReason, Notice
from ..effects.performers.stores.base import Store
from ..effects.performers.stores.sqlite import SQLiteStore
from ..effects.requests import AskApproval
from ..engine.agent import Agent
from ..engine.journal import fold
from ..engine.result import Result
from ..engine.session import Session
from .asking import Asker
from .exits import MEANS, Exit, exit_for
from .gist import essence, number
from .job import Job, Output, agent_for, is_stand_in, model_of
from .jsonl import JsonLines
from .keyboard import Keyboard
from .plain import clean
from .screen import INDENT, Screen
from .signals import Signals
from .standin import CLI_PACE, StandIn
from .taken_over import calls, told
from .terminal import Terminal
from .values import ALL

CALLED = "scripted stand-in (no model, no key)"
"""What the stand-in is called on screen: nobody shall take it for a model."""


def default_store() -> Path:
    """Where sessions are kept unless told."""
    told_ = os.environ.get("TURNWHEEL_STORE", "")
    if told_:
        return Path(told_)
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "turnwheel" / "sessions.db"


def open_store(path: Path) -> SQLiteStore:
    """The store at *path*; our own directory is made for its owner's eyes only."""
    if path == default_store():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SQLiteStore(path)


@final
class Work:
    """Does *job*. What it shows goes to stdout, what is asked and what has to be done next to stderr."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.signals = Signals()
        self.out = Screen(sys.stdout)
        both = sys.stdout.isatty() and sys.stderr.isatty()
        self.aside = self.out if both else Screen(sys.stderr)
        self.face = Terminal(self.out) if job.output is Output.HUMAN else None
        self.lines = JsonLines(sys.stdout.buffer) if job.output is Output.JSON else None
        self.given: dict[str, Decision] = {}
        self.session: Session | None = None

    async def do(self) -> Exit:
        """Do it to its end, or until it rests; returns what to tell the shell."""
        with self.signals.heard():
            try:
                async with AsyncExitStack() as stack:
                    return await self._do(stack)
            except asyncio.CancelledError:
                ended_by = self.signals.ended_by
                if ended_by is None:
                    raise
                return ended_by

    async def _do(self, stack: AsyncExitStack) -> Exit:
        store = open_store(self.job.store)
        stack.push_async_callback(store.close)
        before = await self._before(store)
        url = self.job.base_url
        if url is None and is_stand_in(model_of(self.job, before)):
            stand_in = StandIn(pace=CLI_PACE if self.out.is_terminal else 0.0)
            url = (await stack.enter_async_context(stand_in)).base_url
        asker = self._asker()
        agent = agent_for(self.job, before, base_url=url, store=store, approver=self._approver(asker))
        if asker is not None:
            asker.tools = {tool.name: tool for tool in agent.config.tools}
        await stack.enter_async_context(agent)
        self.session = session = agent.session(self.job.resume or self.job.session)
        await stack.enter_async_context(session)
        self._check(session)
        await self._answer(session)
        self._begin(session, agent)
        try:
            await self._watch(session)
        except asyncio.CancelledError:
            self._left(session)
            raise
        return self._end(session.result(), agent)

    async def _before(self, store: Store) -> Config | None:
        """How the session was set up that is to be resumed."""
        if self.job.resume is None:
            return None
        machine = fold(await store.load(self.job.resume), self.job.resume).machine
        if machine is None:
            raise UnknownSession(self.job.resume)
        return machine.config

    # Questions

    def _asker(self) -> Asker | None:
        """Who asks, where somebody can be asked."""
        if self.job.output is Output.JSON or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        keyboard = Keyboard(sys.stdin.fileno())
        return Asker(keyboard, self.aside, self.face, self.job.cwd, self.signals.deaf)

    def _approver(self, asker: Asker | None) -> Callable[[AskApproval], Awaitable[Decision]] | None:
        """What answers questions; None where they have to wait."""
        if asker is None and not self.job.yes:
            return None

        async def approver(question: AskApproval) -> Decision:
            if self.job.yes or asker is None:
                return Approve()
            try:
                return await asker(question)
            except (EOFError, OSError, termios.error):  # the terminal is gone, and nobody said no
                self.signals.hang_up()
                raise asyncio.CancelledError from None

        return approver

    async def _answer(self, session: Session) -> None:
        """Give the answers that came with the command line; what is left is asked, or rests."""
        given: dict[str, Decision] = {}
        open_ = tuple([question.id for question in session.waiting])
        for answer in self.job.answers:
            if answer.request == ALL:
                if not open_:
                    msg = f"no question of session {session.id!r} is open"
                    raise ConfigError(msg)
                continue
            if answer.request not in open_:
                raise UnknownRequest(answer.request, open_)
            given[answer.request] = answer.decision
        for answer in self.job.answers:
            if answer.request == ALL:
                given = dict.fromkeys(open_, answer.decision) | given
        for request, decision in given.items():
            await session.approve(request, decision)

    # The run

    def _check(self, session: Session) -> None:
        job, machine = self.job, session.machine
        problem = ""
        if job.resume is None:
            if machine is not None:
                problem = f"session {session.id!r} is there already; go on with it: {self._again()}"
        elif machine is not None and session.unfinished:
            if job.prompt is not None:
                problem = f"session {session.id!r} has an unfinished run; end it first: {self._again()}"
            elif model_of(job, machine.config) != machine.memory.model:
                problem = (
                    f"the unfinished run of session {session.id!r} goes on with {machine.memory.model!r}"
                )
        elif job.prompt is None:
            reason = session.result().reason
            problem = f"the last run of session {session.id!r} is over ({reason}); give a prompt for the next"
        if problem:
            raise ConfigError(problem)

    def _begin(self, session: Session, agent: Agent) -> None:
        name = agent.config.model.name
        shown = CALLED if is_stand_in(name) and self.job.base_url is None else name
        machine = session.machine
        if self.face is not None:
            self.face.begin(shown, session.id, self.job.prompt)
        if machine is None or not session.unfinished:
            return
        for line in told(machine, agent.clock.now()):
            self.aside.line(line, "yellow")
        if self.face is not None:
            for call in calls(machine):
                self.face.know(call.id, call.name, call.arguments)

    async def _watch(self, session: Session) -> None:
        self.signals.interrupts(session)
        async with aclosing(session.stream(self.job.prompt)) as notices:
            async for notice in notices:
                self._show(notice)

    def _show(self, notice: Notice) -> None:
        if self.face is not None:
            self.face.notice(notice)
        elif self.lines is not None:
            self.lines.notice(notice)

    # The end

    def _end(self, result: Result, agent: Agent) -> Exit:
        if self.face is not None:
            self.face.bill(result.spent, agent.config.model.price)
        elif self.job.output is Output.QUIET and result.text:
            self.out.line(result.text)
        if result.reason is None:
            self._rests(result)
        elif result.reason is DoneReason.ERROR:
            self.aside.line(f"error: {result.detail}", "red")
            self._go_on('"PROMPT"')
        elif exit_for(result.reason) is not Exit.ENDED:
            detail = f": {result.detail}" if result.detail else ""
            self.aside.line(f"{MEANS[exit_for(result.reason)]}{detail}", "yellow")
            self._go_on('"PROMPT"')
        return exit_for(result.reason)

    def _rests(self, result: Result) -> None:
        count = number(len(result.waiting), "question")
        self.aside.line(f"the run rests on {count}:", "yellow")
        for question in result.waiting:
            about = essence(question.tool, question.arguments, self.aside.width - len(question.id) - 20)
            self.aside.line(f"{INDENT}{question.id}  {question.tool} {about}")
        self._go_on("--approve REQUEST, or --deny REQUEST:WHY; REQUEST may be all")

    def _left(self, session: Session) -> None:
        """The work was left because of a signal, where the run was."""
        if self.signals.ended_by is None:
            return
        with suppress(OSError):  # a terminal that is gone can be told nothing
            self.out.still()
            self.aside.line(MEANS[self.signals.ended_by], "yellow")
            self._go_on("" if session.unfinished else '"PROMPT"')

    def _go_on(self, how: str) -> None:
        self.aside.line(f"go on with: {self._again()} {how}".rstrip())

    def _again(self) -> str:
        """The command that goes on with the session; what is not kept in it is told again."""
        job = self.job
        words = ["turnwheel", "run", "--resume", self.session.id if self.session else ""]
        if job.store != default_store():
            words += ["--store", str(job.store)]
        if job.cwd != Path():
            words += ["--cwd", str(job.cwd)]
        for directory in job.directories:
            words += ["--dir", str(directory)]
        if job.base_url is not None:
            words += ["--base-url", job.base_url]
        return clean(shlex.join(words))
