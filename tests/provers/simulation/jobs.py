"""
An agent with jobs to do, and the world that watches it: what sessions are played with.

What its model says follows from the conversation alone, so it can be asked again after any loss, by any
process. A job takes tools of each kind, a question, a child and a compaction; hooks look at what was done.
The world notes what is done in it and what must not be: an unsafe tool that runs twice for one thing, without
a yes, or before the journal knows of it, a conversation that no provider takes, a prompt that is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, final

from provers.audit.journals import Kept, journal_faults
from provers.choices import Choices, chance
from provers.invariants import state_faults
from provers.planned import planned
from turnwheel.effects.config import ChildSpec, Concurrency, ModelSpec, Policy, Retries
from turnwheel.effects.errors import JournalError, StoreError
from turnwheel.effects.events import (
    Approve,
    Decision,
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    UserSent,
)
from turnwheel.effects.history import CallPiece, Piece, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer
from turnwheel.effects.messages import (
    Message,
    Outcome,
    Role,
    StopReason,
)
from turnwheel.effects.requests import AskApproval, CallModel, Purpose
from turnwheel.effects.usage import Usage
from turnwheel.engine.agent import Agent
from turnwheel.engine.journal.fold import fold
from turnwheel.performers import ToolContext, tool
from turnwheel.performers.base import PerformContext
from turnwheel.performers.hooks import HookCall, HostHook, hook
from turnwheel.performers.stores.base import Entries
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.stores import StoreOver

if TYPE_CHECKING:
    from turnwheel.engine.core.machine import Machine
    from turnwheel.engine.session.session import Session

JOB = (("peek", "put", "pay"), ("run_agent", "peek"), ("pay", "peek"))
"""The tools that are called in each answer of a job, before the last one, which only talks."""

ERRAND = (("peek", "pay"),)
"""The same for the job of a child."""

WINDOW = 1_000
NEARLY_FULL = Usage(input=900, output=5)
"""What the last calls of a job are said to use, so that the conversation is summarised."""


def job(number: int) -> str:
    """The prompt of a job, long enough to be worth a summary."""
    return f"job {number}: " + "and so on " * 60


def steer(number: int) -> str:
    """Something said into a job, which goes on all the same."""
    return f"steer {number}: take care"


@final
class RestlessStore(StoreOver):
    """
    Keeps all in memory and takes its time, in turns of the event loop.

    *fault* is told the number of each append, from 1, and says when that one fails: ``"before"`` it took
    effect, ``"after"``, or ``""`` for never. `failed` is whether any did.
    """

    def __init__(self, choices: Choices, fault: Callable[[int], str]) -> None:
        super().__init__()
        self.fault = fault
        self.failed = False
        self.appends = 0
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
        self.appends += 1
        fault = self.fault(self.appends)
        await self._nap()
        self._fail("before", fault)
        there = await super().append(session, expected, entries, about, incarnation)
        self._fail("after", fault)
        await self._nap()
        return there

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from *start* to before *end*."""
        await self._nap()
        return await super().load(session, start, end, incarnation)

    async def _nap(self) -> None:
        for _ in range(self._choices.below(3)):
            await asyncio.sleep(0)

    def _fail(self, when: str, fault: str) -> None:
        if when == fault:
            self.failed = True
            msg = f"the store of this test fails {when} an append"
            raise StoreError(msg)


def _never(_: int) -> str:
    return ""


@final
class World:
    """
    What jobs are done in. Its *choices* say how long things take and whether the model stumbles.

    `ran` counts what each tool was run for, `witnessed` are the calls whose hooks were asked about their
    result, `faults` is what was found. *yes* are the calls that somebody allowed, *settled* the questions
    whose answer was kept, *accepted* the inputs that were taken in. *meddled*: somebody interrupted, steered,
    gave up a call or forbade it; *trusting*: somebody said "always", or that nothing is to be asked.
    """

    def __init__(self, choices: Choices, fault: Callable[[int], str] = _never, *, stumbles: int = 0) -> None:
        self.store = RestlessStore(choices, fault)
        self.clock = AutoClock()
        self.ran: Counter[tuple[str, str]] = Counter()
        self.faults: list[str] = []
        self.yes: set[str] = set()
        self.settled: set[str] = set()
        self.accepted: dict[str, str] = {}
        self.witnessed: set[str] = set()
        self.trusting = False
        self.meddled = False
        self._choices = choices
        self._stumbles = stumbles

    def agent(
        self,
        concurrency: Concurrency = Concurrency.SERIAL,
        *,
        asks: bool = True,
        system: str = "",
        hooked: bool = False,
        coalesce: float = 0.0,
    ) -> Agent:
        """
        An agent as another process would make it. Where it *asks*, each question is answered at once.

        *hooked*: hooks look at what its tools did. *coalesce* is that of its policy, which has a limit, too.
        """
        return Agent(
            model=ModelSpec(name="wire:model", window=WINDOW),
            system=system,
            tools=(peek, put, pay),
            hooks=(self._witness(),) if hooked else (),
            children=(ChildSpec(name="kid", tools=("peek", "pay")),),
            performers={CallModel: self.speak},
            store=self.store,
            approver=self.approve if asks else None,
            policy=Policy(concurrency=concurrency, coalesce=coalesce, coalesce_longest=1.5 * coalesce),
            retries=Retries(overloaded=50, failed=50),
            clock=self.clock,
            deps=self,
        )

    # Who acts in it

    def _witness(self) -> HostHook[Awaitable[HookAnswer | None]]:
        @hook(Hook.POST_TOOL_USE)
        async def witness(about: HookCall) -> HookAnswer | None:
            """Look at what a tool did."""
            await self._pause()
            self.witnessed.add(about.call)
            return HookAnswer(context=f"{about.tool} was seen")

        return witness

    async def approve(self, question: AskApproval) -> Decision:
        """Say yes."""
        self.asked(question.id)
        self.yes.add(question.call)
        await self._pause()
        return Approve()

    def asked(self, request: str) -> None:
        """Somebody is asked *request*."""
        if request in self.settled:
            self.faults.append(f"{request} is asked again although its answer was kept")

    async def speak(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """Perform `CallModel`: what is said follows from what was said before."""
        shown = scene.history.slice(0, request.view.length)
        self.faults += history_faults(shown)
        try:
            return await self._spoken(request, scene, shown)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return _failed(request, scene, Failure.CANCELLED)

    async def _spoken(
        self, request: CallModel, scene: PerformContext, shown: Sequence[Message]
    ) -> ModelFinished | ModelFailed:
        for before, piece in enumerate(pieces := _speech(request, shown)):
            at = scene.clock.now()
            scene.emit(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
            await self._pause()
            if chance(self._choices, self._stumbles):
                return _failed(request, scene, Failure.OVERLOADED)
        calls = [piece for piece in pieces if isinstance(piece, CallPiece)]
        full = calls and request.purpose is Purpose.TURN and calls[0].name == JOB[-1][0]
        return ModelFinished(
            at=scene.clock.now(),
            request=request.id,
            stop=StopReason.TOOL_USE if calls else StopReason.END_TURN,
            usage=NEARLY_FULL if full else Usage(input=10, output=5),
        )

    async def work(self, name: str, what: str, context: ToolContext[World]) -> str:
        """Do *what* with the tool *name*."""
        self.ran[name, what] += 1
        if name == "pay":
            self._watch(what, context)
        if not await self._known(context):
            self.faults.append(f"{name} runs for {what}, and {context.session!r} has nothing of it")
        context.progress("on it")
        await self._pause()
        return f"{name} was run for {what}"

    def _watch(self, what: str, context: ToolContext[World]) -> None:
        if self.ran["pay", what] > 1:
            self.faults.append(f"paid {self.ran['pay', what]} times for {what}")
        if context.call not in self.yes and not self.trusting:
            self.faults.append(f"paid for {what} although nobody said yes")

    async def _known(self, context: ToolContext[World]) -> bool:
        """Whether the journal knew of the call that *context* is of, before it was run."""
        entries = await self.store.kept.load(context.session)
        # Mostly the whole journal says so. A person may have stopped the run since, or another process have
        # taken it over: then an earlier part does.
        return any(
            (machine := fold(entries[:length], context.session).machine) is not None
            and context.key in machine.state.open
            for length in range(len(entries), 0, -1)
        )

    async def _pause(self) -> None:
        for _ in range(self._choices.below(3)):
            await asyncio.sleep(0)

    # What must hold of it

    async def kept_faults(self, session: Session) -> list[str]:
        """What is wrong in this world when *session*, at rest and kept in its store, is done."""
        faults = list(self.faults)
        for info in await self.store.list():
            mine = info.session == session.id
            try:
                kept = Kept.of(await self.store.kept.load(info.session), info.session)
            except JournalError as error:
                faults.append(f"{info.session!r} cannot be read: {error}")
                continue
            # A child whose process was lost before it began may never begin: its parent was told.
            faults += journal_faults(kept, self.accepted if mine else (), over=mine)
            machine = kept.folded.machine
            if machine is None:
                prompted = mine and any(isinstance(event, UserSent) for event in kept.posted)
                faults += [f"{info.session!r} has a prompt and no run"] if prompted else []
                continue
            faults += machine_faults(machine)
            if mine and (machine != session.machine or session.queue):
                faults.append(f"the journal leads to {machine}, the session has {session.machine} to do")
            if not self.meddled:
                faults += _stopped(machine) + self._overlooked(kept, machine)
        return faults

    def _overlooked(self, kept: Kept, machine: Machine) -> list[str]:
        """Hooks look at every call that went well, whoever goes on with its run."""
        unseen = kept.ran - self.witnessed if machine.config.hooks else set[str]()
        return [f"no hook was asked about {sorted(unseen)}"] if unseen else []


def machine_faults(machine: Machine) -> list[str]:
    """Whether *machine* is in a state that it may be in."""
    return state_faults(machine.state, machine.memory)


def _stopped(machine: Machine) -> list[str]:
    results = [result for message in machine.memory.history for result in message.results]
    return [
        f"{result.name} was cancelled in {machine} although nobody interrupted"
        for result in results
        if result.outcome is Outcome.CANCELLED
    ]


def _failed(request: CallModel, scene: PerformContext, failure: Failure) -> ModelFailed:
    return ModelFailed(at=scene.clock.now(), request=request.id, failure=failure, message="as it happens")


def _speech(request: CallModel, shown: Sequence[Message]) -> tuple[Piece, ...]:
    """What the model says to what it is *shown*."""
    if request.purpose is Purpose.SUMMARY:
        return TextPiece("They "), TextPiece("worked.")
    answered = 0
    prompt = ""
    for message in reversed(shown):
        if message.role is Role.USER and not message.text.startswith("steer"):
            prompt = message.text.partition(":")[0]
            break
        answered += message.role is Role.TOOL
    plan = ERRAND if prompt.startswith("errand") else JOB if prompt.startswith("job") else ()
    return planned(plan, prompt, answered)


@tool(side_effect="read_only")
async def peek(what: str, context: ToolContext[World]) -> str:
    """Look at something."""
    return await context.deps.work("peek", what, context)


@tool(side_effect="idempotent", approval="never")
async def put(what: str, context: ToolContext[World]) -> str:
    """Put something somewhere; twice is once."""
    return await context.deps.work("put", what, context)


@tool
async def pay(what: str, context: ToolContext[World]) -> str:
    """Pay for something."""
    return await context.deps.work("pay", what, context)
