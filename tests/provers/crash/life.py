"""
One process of a life: a session with everything in it, and the world around it, which notes what happens.

Whatever comes from outside has moments before and after it at which the process may be killed: writes and
reads of the store, tools, hooks, timers, answers of the model piece by piece, questions, and what people say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import httpx

from provers.crash.points import Notebook, PointedStore, Points
from provers.crash.script import (
    CONTENDS,
    CONTROLS,
    DENIED,
    FULL,
    GIVES,
    GIVES_UP,
    LITTLE,
    MOST_DONE,
    NEARLY_FULL,
    NOTES,
    PRICE,
    PROMPTS,
    SENDS,
    SESSION,
    STEERS,
    STOPPED,
    STORE,
    THOUGHT,
    WINDOW,
    WRONG_AT_FIRST,
    Asks,
    Script,
    Verdict,
    speech,
)
from provers.crash.spoken import Spoken, spoken
from turnwheel.effects.config import ChildSpec, ModelSpec, Policy, Steering
from turnwheel.effects.errors import SessionBusy, SessionClosed, UnknownCall
from turnwheel.effects.events import (
    Answer,
    Approve,
    Decision,
    Deny,
    Failure,
    InstructionsRead,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
)
from turnwheel.effects.history import CallPiece, Piece
from turnwheel.effects.hooks import Hook, HookAnswer
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import (
    AgentNoticed,
    CallSettled,
    Notice,
    RunEnded,
    RunStarted,
)
from turnwheel.effects.output import OutputMode
from turnwheel.effects.records import SetThinking
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    Purpose,
    ReadInstructions,
    SetTimer,
)
from turnwheel.effects.usage import Usage
from turnwheel.engine.agent import Agent
from turnwheel.performers import Tool, ToolContext, tool
from turnwheel.performers.base import PerformContext
from turnwheel.performers.hooks import HookCall, HostHook, hook
from turnwheel.performers.models.responses import OpenAIResponses
from turnwheel.performers.output import AskAgain, Output
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.clocks import AutoClock

if TYPE_CHECKING:
    from turnwheel.engine.session.session import Session

HEARD = 5.0
"""Seconds after which an interrupt is not heard any more; it takes a thousandth of that."""


@final
class Life:
    """One process of a life in *folder*, as *script* says: the process with this *number*, from 1."""

    def __init__(self, script: Script, folder: Path, number: int, points: Points) -> None:
        self.points = points
        self.script = script
        self._folder = folder
        self.number = number
        self.notes = Notebook(folder / NOTES, number)
        self.before = Notebook.read(folder / NOTES)
        self.ordered = {note["id"] for note in self.before if note["kind"] == "ordered"}
        self.store = PointedStore(folder / STORE, script.durability, points)
        self.clock = AutoClock(1_000.0 + number * (100.0 if script.late else 0.5))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._elsewhere = PointedStore(folder / STORE, script.durability, points, "elsewhere ")
        self._agent = self._made(folder)
        self._session: Session = self._agent.session(SESSION)
        self._other = self._agent.session(SESSION, self._elsewhere) if script.elsewhere else self._session

    def _made(self, folder: Path) -> Agent[Any, Any]:
        script = self.script
        asks = script.asks is Asks.ALL or (script.asks is Asks.SECOND and self.number % 2 == 0)
        return Agent[Any, Any](
            model=ModelSpec(name="wire:model", window=WINDOW, price=PRICE),
            system=f"You are number {self.number}." if script.renamed else "",
            tools=TOOLS,
            hooks=self._hooks(),
            children=(ChildSpec(name="kid", tools=("peek", "put", "pay")),),
            instructions=("AGENTS.md",),
            performers={CallModel: self.speak, SetTimer: self.wait, ReadInstructions: self.read},
            store=self.store,
            approver=self.approve if asks else None,
            policy=Policy(concurrency=script.concurrency, on_lost=script.on_lost),
            titles=script.titles,
            output=None if script.output is None else self._verdict(script.output),
            clock=self.clock,
            cwd=folder,
            deps=self,
        )

    def _verdict(self, mode: OutputMode) -> Output[Verdict]:
        return Output(Verdict, mode=mode, name=GIVES, validator=self.judge)

    def drain(self) -> None:
        """Have it leave soon, and begin nothing any more; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_to_leave)

    def _begin_to_leave(self) -> None:
        self._leaving = asyncio.ensure_future(self._session.drain())

    async def live(self) -> bool:
        """
        Say what is to be said, and go on until nothing waits any more; whether that is so.

        It is not where the process is drained, after which there may be something left.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._live()
        except SessionClosed:
            if self._leaving is None:
                raise
        if self._leaving is not None:
            await self._leaving
        if self._other is not self._session:
            await self._other.close()
        await self.store.close()
        await self._elsewhere.close()
        return self._leaving is None

    async def _live(self) -> None:
        known = await self.store.settled() if self.number > 1 else []
        self.notes.note("process", settled=list(known))
        async with self._session as session:
            for name, text in PROMPTS.items():
                await self.say(name, session.send(text, id=name))
            while self._leaving is None and (session.unfinished or session.queue):
                await self._go_on(session)
            if self._leaving is None and self.script.output is not None:
                self._look_at(session.result().output)

    async def _go_on(self, session: Session) -> None:
        """Run until it rests or is over, and answer what it rests on."""
        try:
            await self._run(session)
        except SessionBusy:
            # One that is frozen still has it, for all that anybody knows.
            self.notes.note("refused")
            await self._run(session, takeover=True)
        for question in () if self._leaving else session.waiting:
            self.asked(question)
            if STOPPED in question.arguments:
                await self._stop_at_rest(session)
                return
            await session.approve(question.id, self.decided(question), by="a person")
            self.points(f"answered about {question.tool}")

    async def _run(self, session: Session, *, takeover: bool = False) -> None:
        async with aclosing(session.stream(takeover=takeover)) as notices:
            async for notice in notices:
                self._told(notice)

    async def _stop_at_rest(self, session: Session) -> None:
        """Interrupt *session* while it rests, where nobody did."""
        if "interrupt" in self.ordered:
            self.notes.note("fault", says="it rests again, although it was interrupted")
        await self.order("interrupt", self._other.interrupt)
        await session.load()
        if session.waiting:
            self.notes.note("fault", says="who interrupted it is asked")

    def _told(self, notice: Notice) -> None:
        session = SESSION
        while isinstance(notice, AgentNoticed):
            session, notice = f"{session}.{notice.call}", notice.notice
        match notice:
            case CallSettled(call=call, outcome=outcome):
                self.notes.note("told", session=session, call=call, outcome=outcome)
            case RunStarted(run=run):
                self.notes.note("start", session=session, run=run)
            case RunEnded(run=run, output=output):
                self.notes.note("end", session=session, run=run, output=output)
            case _:
                return
        self.points(f"told {type(notice).__name__}")

    def _look_at(self, output: object) -> None:
        """Note an *output* of the last run that is not right, whoever made it."""
        if output != Verdict(WRONG_AT_FIRST, MOST_DONE):
            self.notes.note("fault", says=f"the last run came to {output}")

    # People

    async def say(self, name: str, said: Awaitable[object]) -> None:
        """Have somebody say something under the id *name*, and note that it was taken."""
        self.points(f"say {name}: before")
        await said
        self.notes.note("accepted", id=name)
        self.points(f"say {name}: after")

    async def order(self, name: str, given: Callable[[], Awaitable[None]]) -> None:
        """Have somebody order *name*, and note that it was taken: what is noted nobody orders again."""
        if name in self.ordered:
            return
        self.points(f"order {name}: before")
        with suppress(UnknownCall):  # it was given up before, by one who was not told so any more
            await given()
        self.notes.note("ordered", id=name)
        self.ordered.add(name)
        self.points(f"order {name}: after")

    async def give_up(self) -> None:
        """Give up the call to burn something, which has not begun."""
        history = self._session.history
        (call,) = [call.id for call in history[len(history) - 1].calls if call.name == "burn"]
        await self._other.cancel(call)

    async def _stop(self) -> None:
        """Interrupt the run that asks, and wait until that is heard."""
        if self._other is not self._session:
            await self.order("interrupt", self._other.interrupt)  # is kept, and may be seen later
        await self._session.interrupt()
        self.points("interrupted")
        await asyncio.sleep(HEARD)
        self.notes.note("fault", says="nobody hears an interrupt")

    async def approve(self, question: AskApproval) -> Decision:
        """Decide, in a while."""
        self.asked(question)
        await asyncio.sleep(0)
        if STOPPED in question.arguments:
            await self._stop()
        decision = self.decided(question)
        self.points(f"answered about {question.tool}")
        return decision

    def asked(self, question: AskApproval) -> None:
        """Somebody is asked *question*."""
        self.points(f"ask about {question.tool}")
        self.notes.note("asked", request=question.id, call=question.call)

    def decided(self, question: AskApproval) -> Decision:
        """
        What somebody says to *question*: yes, but for one.

        And no to running again what has run, as they can see.
        """
        if DENIED in question.arguments:
            return Deny(message="Not that.")
        ran = [note["call"] for note in Notebook.read(self._folder / NOTES) if note["kind"] == "ran"]
        return Deny(message="It ran.") if question.call in ran else Approve()

    # Tools, hooks and time

    async def work(self, name: str, what: str, context: ToolContext[Life]) -> str:
        """Do *what* with the tool *name*."""
        self.points(f"{name}: before")
        about = {"tool": name, "key": context.key, "call": context.call, "session": context.session}
        known = self.store.lengths.get(context.session, 0)
        self.notes.note("tool", **about, known=known)
        self.points(f"{name}: begun")
        context.progress("on it")
        await asyncio.sleep(0)
        await self._meanwhile(what)
        self.notes.note("ran", **about)
        self.points(f"{name}: done")
        return f"{name} was run for {what}"

    async def _meanwhile(self, what: str) -> None:
        """Others say what they have to say while the tool does *what*."""
        if what == CONTROLS:
            await self.order("control", lambda: self._other.control(SetThinking(tokens=THOUGHT)))
        elif what == STEERS:
            await self.say("steer", self._other.steer("steer: take care", Steering.WHEN_DONE, id="steer"))
        elif what == SENDS:
            await self.say("third", self._other.send("third: talk", id="third"))
        elif what == GIVES_UP:
            await self.order("give up", self.give_up)
        elif what == CONTENDS:
            await self._contend()

    async def _contend(self) -> None:
        """Have another worker try to go on with the session, which is at work."""
        others = [
            note["process"] for note in Notebook.read(self._folder / NOTES) if note["kind"] == "process"
        ]
        if max(others) > self.number:
            return  # this one slept, and its session is at work elsewhere, or over
        try:
            await self._agent.session(SESSION, self._elsewhere).resume()
        except SessionBusy:
            return
        self.notes.note("fault", says="a session at work is taken over")

    def _hooks(self) -> tuple[HostHook[Awaitable[HookAnswer | None]], ...]:
        async def looked(about: HookCall) -> None:
            self.points(f"hook {about.hook}: asked")
            await asyncio.sleep(0)
            self.notes.note("hook", hook=about.hook, call=about.call, session=about.session)
            self.points(f"hook {about.hook}: answers")

        async def witness(about: HookCall) -> HookAnswer | None:
            """Look on."""
            await looked(about)
            return HookAnswer(context=f"{about.hook} {about.tool} was seen")

        async def stop(about: HookCall) -> HookAnswer | None:
            """Have it look again, once."""
            await looked(about)
            again = not about.payload["continued"]
            return HookAnswer(go_on=True, reason="again: are you sure?") if again else None

        places = (Hook.USER_PROMPT_SUBMIT, Hook.PRE_TOOL_USE, Hook.POST_TOOL_USE, Hook.PRE_COMPACT)
        seen = [hook(place, name=f"see {place}")(witness) for place in places]
        return (*seen, hook(Hook.STOP, name="stop")(stop))

    async def wait(self, request: SetTimer, scene: PerformContext) -> TimerFired:
        """Perform a timer."""
        self.notes.note("timer", session=scene.session, request=request.id, due=request.due)
        self.points("timer: set")
        await self.clock.sleep_until(request.due)
        self.points("timer: fired")
        return TimerFired(at=self.clock.now(), request=request.id)

    async def read(self, request: ReadInstructions, _: PerformContext) -> InstructionsRead:
        """Perform the reading of instructions, of which there are some."""
        self.points("instructions: asked for")
        await asyncio.sleep(0)
        self.points("instructions: read")
        return InstructionsRead(at=self.clock.now(), request=request.id, text="Be kind.")

    # The model

    async def speak(self, request: CallModel, scene: PerformContext) -> Answer:
        """Perform `CallModel`: what is said follows from what was said before."""
        shown = scene.history.slice(0, request.view.length)
        faults = list(history_faults(shown))
        read = scene.config.agent or request.purpose is not Purpose.TURN or "Be kind." in request.system
        if not read:
            faults.append("nobody read the instructions")
        if request.purpose is Purpose.TURN and not scene.config.agent and "control" in self.ordered:
            faults += [] if request.thinking == THOUGHT else [f"one may think {request.thinking} tokens"]
        for fault in faults:
            self.notes.note("fault", says=f"{request.id} is shown a conversation in which {fault}")
        self.points(f"model {request.purpose}: asked")
        pieces = speech(request, shown)
        stumbles = self._stumbles(scene, pieces)
        if self.script.streamed:
            return await self._stream(request, scene, pieces, stumbles=stumbles)
        if stumbles:
            self.points("model stumbles")
            return ModelFailed(
                at=self.clock.now(), request=request.id, failure=Failure.OVERLOADED, message="as it happens"
            )
        for before, piece in enumerate(pieces):
            at = self.clock.now()
            scene.emit(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
            await asyncio.sleep(0)
            self.points(f"model {request.purpose}: streams")
        return self._finished(request, scene, pieces)

    async def _stream(
        self, request: CallModel, scene: PerformContext, pieces: Sequence[Piece], *, stumbles: bool
    ) -> Answer:
        """Say *pieces* on the wire of Responses, by the performer that reads it."""

        def told() -> None:
            self.points(f"model {request.purpose}: streams")

        events = spoken(pieces, _used(pieces), fails=stumbles)
        async with httpx.AsyncClient(transport=Spoken(events, told)) as client:
            wire = OpenAIResponses("http://wire.test/v1", client=client, thinking=_thinking)
            answer = await wire(request, scene)
        if isinstance(answer, ModelFinished):
            self._answered(request, scene, answer.usage)
        return answer

    def _finished(self, request: CallModel, scene: PerformContext, pieces: Sequence[Piece]) -> ModelFinished:
        calls = any(isinstance(piece, CallPiece) for piece in pieces)
        usage = _used(pieces)
        self._answered(request, scene, usage)
        return ModelFinished(
            at=self.clock.now(),
            request=request.id,
            stop=StopReason.TOOL_USE if calls else StopReason.END_TURN,
            usage=usage,
        )

    def _answered(self, request: CallModel, scene: PerformContext, usage: Usage) -> None:
        kind = "title" if request.purpose is Purpose.TITLE else "answer"
        self.notes.note(kind, session=scene.session, request=request.id, used=usage.total)
        self.points(f"model {request.purpose}: answered")

    async def judge(self, verdict: Verdict) -> None:
        """Ask again for a *verdict* that says too much."""
        self.points("output: asked")
        await asyncio.sleep(0)
        self.points("output: judged")
        if verdict.done > MOST_DONE:
            msg = f"at most {MOST_DONE} can be done"
            raise AskAgain(msg)

    def _stumbles(self, scene: PerformContext, pieces: Sequence[Piece]) -> bool:
        """Whether this answer, the second of the first job, is the one that fails, which one does."""
        second = any(isinstance(piece, CallPiece) and piece.name == "run_agent" for piece in pieces)
        if not second or any(line["kind"] == "stumble" for line in self.before):
            return False
        self.before.append({"kind": "stumble"})
        self.notes.note("stumble", session=scene.session)
        return True


def _used(pieces: Sequence[Piece]) -> Usage:
    """What an answer of *pieces* uses."""
    full = any(isinstance(piece, CallPiece) and FULL in piece.arguments for piece in pieces)
    return NEARLY_FULL if full else LITTLE


def _thinking(_: int) -> dict[str, object]:
    return {"reasoning": {"effort": "low"}}


@tool(side_effect="read_only")
async def peek(what: str, context: ToolContext[Life]) -> str:
    """Look at something."""
    return await context.deps.work("peek", what, context)


@tool(side_effect="idempotent", approval="never")
async def put(what: str, context: ToolContext[Life]) -> str:
    """Put something somewhere; twice is once."""
    return await context.deps.work("put", what, context)


@tool
async def pay(what: str, context: ToolContext[Life]) -> str:
    """Pay for something, when somebody said yes."""
    return await context.deps.work("pay", what, context)


@tool(approval="never")
async def burn(what: str, context: ToolContext[Life]) -> str:
    """Burn something, without asking."""
    return await context.deps.work("burn", what, context)


TOOLS: tuple[Tool[..., Any], ...] = (peek, put, pay, burn)
