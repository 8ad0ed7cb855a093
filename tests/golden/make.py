"""
The golden journals: sessions that are played the same each time, and what is kept of them.

    make.py [FOLDER]    play them all, written into FOLDER or beside this

Each session has a file with its journal, one entry a line, as the store has it: ``steering.s.jsonl`` is the
session ``s`` of the scenario ``steering``. ``expected.json`` says what each leads to, in words that do not
change with those of the journal; ``words.json`` and ``snapshot.json`` list the fields of entries and of
snapshots. Journals of a released version are never written again: they are what people have in their stores.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, final, get_args, get_type_hints

import attrs

from turnwheel import MemoryStore, Session
from turnwheel.effects.config import (
    ChildSpec,
    Compaction,
    Concurrency,
    Config,
    Limits,
    Loops,
    ModelSpec,
    OnDenial,
    OnLost,
    OnMaxTokens,
    Policy,
    Price,
    Retries,
    SideEffect,
    Steering,
    ToolKind,
    ToolSpec,
)
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    ApproveAlways,
    CallInspected,
    Deny,
    Failure,
    HookAnswered,
    InstructionsRead,
    ModelFailed,
    ModelFinished,
    OutputDecoded,
    TimerFired,
    ToolFinished,
)
from turnwheel.effects.findings import CommandFound, Finding, PathFound, SimpleCommand
from turnwheel.effects.history import CallPiece, ReasoningPiece, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer, HookSaid, HookSpec
from turnwheel.effects.messages import Binary, Message, Outcome, ProviderCall, StopReason
from turnwheel.effects.notices import (
    AgentNoticed,
    ApprovalRequested,
    CompactionStarted,
    RetryScheduled,
    TextDelta,
    ToolStarted,
    TurnEnded,
)
from turnwheel.effects.output import OutputSpec
from turnwheel.effects.permissions import PermissionMode, Rule, Verdict
from turnwheel.effects.records import SetMode, SetModel, SetThinking
from turnwheel.effects.requests import (
    CallModel,
    DecodeOutput,
    FireHook,
    InspectCall,
    ReadInstructions,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.snapshots import Snapshot
from turnwheel.engine.inspect.archive import replay
from turnwheel.engine.journal.entries import VERSION, Entry
from turnwheel.engine.session.environment import Environment, Titles
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.states.state import Done
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, fails, says, stalls

MODEL = ModelSpec(
    name="wire:model", window=100_000, max_output=4_000, price=Price(input="2", output="8", source="a list")
)
OTHER = ModelSpec(
    name="wire:other", window=50_000, max_output=2_000, thinking=500, price=Price(input=1, output=4)
)
SMALL = ModelSpec(name="wire:small", window=1_000, max_output=200)

READS, IDEMPOTENT, UNSAFE = SideEffect.READ_ONLY, SideEffect.IDEMPOTENT, SideEffect.UNSAFE
ANY = '{"type":"object","properties":{"at":{"type":"string"}}}'
TOOLS = (
    ToolSpec(name="look", description="Look.", side_effect=READS, schema=ANY),
    ToolSpec(name="dig", side_effect=READS, timeout=None),
    ToolSpec(name="peek", side_effect=READS, approval="always"),
    ToolSpec(name="fail", side_effect=READS),
    ToolSpec(name="put", side_effect=IDEMPOTENT, edits=True, approval="never", resources=("file:{at}",)),
    ToolSpec(name="build", side_effect=IDEMPOTENT, approval="never", resources=("house",)),
    ToolSpec(name="pay"),
    ToolSpec(name="send", approval="never", resources=()),
)
"""What there is to do. `dig`, `build` and `send` take as long as it takes; `send` is unsafe, and unasked."""

SPAWN = ToolSpec(name="run_agent", approval="never", timeout=None, kind=ToolKind.AGENT)
SCOUT = ChildSpec(name="scout", description="Looks around.", tools=("look", "dig"))
PAYER = ChildSpec(name="payer", tools=("look", "pay"), limits=Limits(turns=5, tokens=5_000, seconds=60.0))
CHILDREN: Mapping[str, Any] = {"tools": (*TOOLS, SPAWN), "children": (SCOUT, PAYER)}

OUTCOMES = {"fail": Outcome.ERROR}
FULL = Usage(input=900, output=20)
"""Of an answer after which the small model's window is full."""

UNTOLD = Usage()
LONG = "tell me " * 150


@final
class World:
    """
    Where one scenario is played: a store, a clock that stands still, and processes that share them.

    *ran* are the tools that were begun, each with its call, in order. Ids are numbered from *first* on.
    """

    def __init__(self, store: Store | None = None, now: float = 1_000.0, first: int = 1) -> None:
        self.store: Store = store or MemoryStore()
        self.clock = AutoClock(now)
        self.ran: list[str] = []
        self.slow = False
        self._ids = count(first)
        self._gate = asyncio.Event()

    def process(
        self,
        *replies: Reply,
        session: str = "s",
        lines: Mapping[str, Sequence[Reply]] | None = None,
        said: Mapping[str, HookAnswer | str] | None = None,
        titles: Titles = Titles.OFF,
        summary: str = "They talked.",
        **config: Any,
    ) -> Session:
        """
        *session* in one more process, whose model says *replies*.

        Its children say their *lines*, its hooks what is *said*; the rest is its *config*.
        """
        models = {name: ScriptedModel(*theirs) for name, theirs in (lines or {}).items()}
        models[""] = ScriptedModel(*replies, summary=summary)

        async def answer(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
            return await models[scene.config.agent](request, scene)

        async def ask(request: FireHook, scene: PerformContext) -> HookAnswered:
            answers = {name: (said or {}).get(name, HookAnswer()) for name in request.names}
            heard = tuple([heard_of(name, answer) for name, answer in answers.items()])
            return HookAnswered(at=scene.clock.now(), request=request.id, said=heard)

        performers: dict[type, Any] = {
            CallModel: answer,
            RunTool: self._work,
            FireHook: ask,
            InspectCall: look,
            DecodeOutput: decode,
            ReadInstructions: read,
            SetTimer: self._wait,
        }
        given: dict[str, Any] = {"model": MODEL, "tools": TOOLS, "cwd": "/home/ann"}
        setting = Environment(
            config=Config(**{**given, **config}),
            performers=performers,
            clock=self.clock,
            new_id=lambda: f"id{next(self._ids)}",
            poll=3_600.0,
            titles=titles,
        )
        return Session(session, setting, self.store)

    async def _work(self, request: RunTool, scene: PerformContext) -> ToolFinished:
        self.ran.append(f"{request.tool} {request.call}")
        if request.tool in {"dig", "build", "send"}:
            await self._gate.wait()
        self.clock.move(1)
        files = (Binary(media_type="image/png", data=bytes(range(256)), name="a.png"),)
        arguments = json.loads(request.arguments or "{}")
        return ToolFinished(
            at=scene.clock.now(),
            request=request.id,
            content=str(arguments.get("says", f"{request.tool} did")).encode("utf-8", "replace").decode(),
            outcome=Outcome(arguments.get("outcome", OUTCOMES.get(request.tool, Outcome.OK))),
            seconds=1.5,
            files=files if arguments.get("file") else (),
        )

    async def _wait(self, request: SetTimer, scene: PerformContext) -> TimerFired:
        if self.slow:
            await self._gate.wait()
        await scene.clock.sleep_until(request.due)
        return TimerFired(at=scene.clock.now(), request=request.id)

    def release(self) -> None:
        self._gate.set()

    async def kept(self) -> dict[str, tuple[bytes, ...]]:
        names = sorted([info.session for info in await self.store.list()])
        return {name: tuple(await self.store.load(name)) for name in names}


def heard_of(name: str, answer: HookAnswer | str) -> HookSaid:
    if isinstance(answer, str):
        return HookSaid(name=name, fault=answer)
    return HookSaid(name=name, answer=answer)


async def decode(request: DecodeOutput, scene: PerformContext) -> OutputDecoded:
    odd = json.loads(request.text)["value"] % 2
    return OutputDecoded(at=scene.clock.now(), request=request.id, fault="it is odd" if odd else "")


async def look(request: InspectCall, scene: PerformContext) -> CallInspected:
    at = str(json.loads(request.arguments)["at"])
    if request.tool == "look":
        path = PathFound(argument="at", value=at, written=(at,), real=("/home/ann/vault/1", "vault/1"))
        return CallInspected(at=scene.clock.now(), request=request.id, finding=Finding(paths=(path,)))
    words, _, to = at.partition(" > ")
    command = CommandFound(
        argument="at",
        commands=(SimpleCommand(words=tuple(words.split())),),
        beyond=f"it writes to {to!r}" if to else "",
    )
    return CallInspected(at=scene.clock.now(), request=request.id, finding=Finding(commands=(command,)))


async def read(request: ReadInstructions, scene: PerformContext) -> InstructionsRead:
    at, faults = scene.clock.now(), ("b.md is not there",)
    return InstructionsRead(at=at, request=request.id, text="Be kind.", faults=faults)


Reaction = Callable[[], Awaitable[object]]


async def play(
    session: Session,
    prompt: str | None = "go",
    *,
    wait: bool = False,
    on: Mapping[type, Reaction] | None = None,
) -> None:
    """Run *session* and do what *on* says, once, at the first notice of a kind, a child's too."""
    reactions = dict(on or {})
    async with aclosing(session.stream(prompt, wait=wait)) as notices:
        async for notice in notices:
            inner = notice.notice if isinstance(notice, AgentNoticed) else notice
            if (react := reactions.pop(type(inner), None)) is not None:
                await react()
    await session.close()


async def leave(session: Session, at: type, prompt: str | None = "go", number: int = 1) -> None:
    """Run *session* until notice *number* of the kind *at*, and be gone, as a process that is lost."""
    async with aclosing(session.stream(prompt)) as notices:
        async for notice in notices:
            inner = notice.notice if isinstance(notice, AgentNoticed) else notice
            number -= isinstance(inner, at)
            if not number:
                break
    await session.close()


async def answer(session: Session, *decisions: Any) -> None:
    for decision in (None, *decisions):
        if decision is not None:
            await session.approve(session.waiting[0].id, decision, by="ann")
        await (session.run("go") if decision is None else session.resume())
    await session.close()


# Talking


async def plain(world: World) -> None:
    session = world.process(says("Hello, Ann."), says("Well."), system="Be brief.", stop=("STOP",))
    await session.run("Hi", id="mine")
    await session.run("How are you?")


async def output(world: World) -> None:
    """A wrong output, one that its class refuses, a right one; then one that is wrong too often."""
    number = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
    spec = OutputSpec(schema=json.dumps(number), mode="prompted", wrapped=True, decoded=True)
    answers = [says(text) for text in ("seven", '{"value": 7}', '{"value": 8}', "a", "b", "c")]
    session = world.process(*answers, output=spec)
    await session.run("An even number?")
    await session.run("Another one?")


# A search of the provider that has no result yet.
SEARCH = (
    ReasoningPiece(opaque='{"type":"server_tool_use","id":"st","name":"web_search","input":{}}'),
    ProviderCall(id="st", name="web_search", status="incomplete"),
)


async def streaming(world: World) -> None:
    """Thinking, text and a call in pieces, one that is not streamed, each way an answer can end."""
    thought = (ReasoningPiece("Let me "), ReasoningPiece("see"), ReasoningPiece(signature="sig"))
    hidden = (ReasoningPiece(redacted="x" * 20),)
    call = (CallPiece(0, "call_0", "look"), CallPiece(0, arguments='{"at":'), CallPiece(0, arguments='"it"}'))
    session = world.process(
        Reply(
            pieces=(*thought, *hidden, TextPiece("I "), TextPiece("look"), *call), stop=StopReason.TOOL_USE
        ),
        says("one two three"),
        Reply(stop=StopReason.END_TURN),
        says("no", stop=StopReason.REFUSAL),
        says("stop here", stop=StopReason.STOP_SEQUENCE),
        Reply(pieces=(TextPiece("I search"), *SEARCH), stop=StopReason.PAUSED),
        says("it is so"),
    )
    for prompt in ("look at it", "say nothing", "refuse", "stop", "search"):
        await session.run(prompt)


async def unicode(world: World) -> None:
    """Text of all kinds, in every place; what no encoder takes is cleaned."""
    text = 'grüß 你好 👩‍👩‍👧 \u202e\x00\x1f\u2028 \\ " </s>'
    session = world.process(
        calls(("look", {"at": text, "says": f"{text}\ud800!"}), text=text), says(text), system=text, cwd=text
    )
    await session.run(f"{text}\udfff?", id="é")
    await session.retitle(text)


async def files(world: World) -> None:
    picture = Binary(media_type="image/png", data=b"\x89PNG\r\n\x1a\n" + bytes(64), name="one.png")
    session = world.process(calls(("look", {"file": True})), says("a picture"))
    async for notice in session.stream("what is this?", files=(picture,)):
        if isinstance(notice, ToolStarted):
            await session.steer("and this", files=(picture, picture))
    await session.close()


# Tools


async def tools(world: World) -> None:
    """A tool of each kind, those that fail, that are not there, not allowed, and called wrongly."""
    world.release()
    wrong = Reply(pieces=(CallPiece(0, "", "look", '{"at":'),), stop=StopReason.TOOL_USE, wrong=True)
    typed = calls(("look", {"at": 7}), wrong=True)
    await world.process(
        calls(("look", {"at": "a"}), ("put", {"at": "b"}), ("send", {})),
        calls(("fail", {}), ("nowhere", {}), ("pay", {}), wrong=True),
        calls(*[("look", {"outcome": str(outcome)}) for outcome in (Outcome.CRASHED, Outcome.TIMED_OUT)]),
        wrong,
        typed,
        says("done"),
        rules=(
            Rule(verdict=Verdict.DENY, tool="pa*"),
            Rule(verdict=Verdict.ALLOW, tool="send", where=(("a", "*"),)),
        ),
        policy=Policy(on_denial=OnDenial.GO_ON),
    ).run("go")


async def side_by_side(world: World) -> None:
    """Calls that are at work together, and one that waits for them."""
    world.release()
    await world.process(
        calls(
            ("look", {}), ("dig", {}), ("put", {"at": "a"}), ("put", {"at": "b"}), ("build", {}), ("look", {})
        ),
        says("done"),
        policy=Policy(concurrency=Concurrency.PARALLEL, max_parallel=3),
    ).run("go")


async def long_result(world: World) -> None:
    await world.process(
        calls(("look", {"says": "line\n" * 400})), says("done"), compaction=Compaction(result_limit=200)
    ).run("go")


# Questions


async def approvals(world: World) -> None:
    replies = [calls(("pay", {"at": str(number)}), ("look", {})) for number in range(4)]
    session = world.process(*replies, calls(("pay", {"at": "9"})), says("done"))
    always = ApproveAlways(where=(("at", "9"),))
    await answer(session, Approve(), Approve(arguments='{"at":"more"}'), Deny(message="too much"), always)


async def inspections(world: World) -> None:
    """What calls reach and run decides: one is allowed, one asked about, one denied."""
    there: Mapping[str, Any] = {"look": {"paths": ("at",)}, "pay": {"command": "at"}}
    tools = tuple([attrs.evolve(tool, **there.get(tool.name, {})) for tool in TOOLS])
    rules = (
        Rule(verdict="allow", tool="pay", where=(("at", "cash *"),)),
        Rule(verdict="deny", tool="*", where=(("at", "vault/*"),)),
    )
    wishes = calls(("pay", {"at": "cash 3"}), ("pay", {"at": "cash 3 > x"}), ("look", {"at": "link"}))
    session = world.process(wishes, says("Done."), tools=tools, rules=rules)
    await answer(session, Approve())


async def denied_for_good(world: World) -> None:
    session = world.process(calls(("pay", {}), ("look", {})))
    await answer(session, Deny(message="stop it", interrupt=True))
    policy = Policy(on_denial=OnDenial.GO_ON)
    await answer(world.process(calls(("pay", {}), ("look", {})), says("well"), policy=policy), Deny())
    policy = Policy(on_denial=OnDenial.INTERRUPT)
    await answer(world.process(calls(("pay", {}), ("look", {})), policy=policy), Deny())


async def too_late(world: World) -> None:
    session = world.process(
        calls(("pay", {}), ("look", {})), says("a pity"), policy=Policy(answer_within=300.0)
    )
    await session.run("go", wait=True)


async def open_question(world: World) -> None:
    """A run that rests; one of its questions is answered, and the answer is not taken up."""
    replies = calls(("peek", {"at": "a"}), ("peek", {"at": "b"}), ("look", {}))
    session = world.process(replies, policy=Policy(concurrency=Concurrency.PARALLEL_READS))
    result = await session.run("go")
    await session.approve(result.waiting[1].id, Approve(), by="bob")
    await session.send("and then?", id="next", sender="chat")


# Inputs meanwhile


async def steering(world: World) -> None:
    """Something said into a run in each way; one comes while a question is open."""
    for number, how in enumerate(Steering):
        session = world.process(calls(("look", {}), ("put", {}), ("look", {})), says("I see"), says("more"))
        steer = partial(session.steer, f"take care {number}", how, id=f"steer-{number}")
        await play(session, f"go {number}", on={ToolStarted: steer})
    session = world.process(calls(("pay", {}), ("look", {})), says("not paid"))
    await session.run("pay")
    await session.steer("do not pay", Steering.NOW)
    await session.resume()


async def steered_answer(world: World) -> None:
    session = world.process(stalls("I was about to"), says("as you wish"))
    await play(session, on={TextDelta: partial(session.steer, "no, that", Steering.NOW)})


async def interrupts(world: World) -> None:
    async def stop(session: Session, times: int, prompt: str, at: type) -> None:
        async def interrupt() -> None:
            for _ in range(times):
                await session.interrupt()

        await play(session, prompt, on={at: interrupt})

    await stop(world.process(stalls("Well, I")), 1, "talk", TextDelta)
    await stop(world.process(calls(("dig", {}), ("look", {}))), 1, "dig", ToolStarted)
    await stop(world.process(calls(("send", {}), ("look", {}))), 2, "send", ToolStarted)
    session = world.process(calls(("pay", {})))
    await session.run("pay")
    await session.interrupt()
    await session.resume()


async def given_up(world: World) -> None:
    session = world.process(calls(("dig", {}), ("look", {})), says("done"))
    async for notice in session.stream("go"):
        if isinstance(notice, ToolStarted) and notice.tool == "dig":
            await session.cancel(notice.call)
    await session.close()


async def controls(world: World) -> None:
    """Another model, mode and budget of thinking: between runs, in one, and one that cannot be."""
    settings: dict[str, Any] = {"models": (OTHER,)}
    session = world.process(calls(("look", {})), calls(("pay", {})), says("paid"), **settings)
    await session.control(SetModel(model="wire:other"))
    await session.control(SetThinking(tokens=1_000))
    await play(session, on={TurnEnded: partial(session.control, SetMode(mode=PermissionMode.BYPASS))})
    session = world.process(calls(("pay", {})), says("planned"), **settings)
    await session.control(SetMode(mode=PermissionMode.PLAN))
    await session.control(SetThinking(tokens=None))
    await session.run("plan it")
    await world.process(says("with one model")).run("again")


async def inbox(world: World) -> None:
    """Prompts that wait: of one sender, of two, sent twice, and two that became one."""
    policy = Policy(coalesce=5.0)
    session = world.process(says("one"), says("two"), says("three"), policy=policy)
    for name, text, sender in (
        ("a", "first", "chat"),
        ("b", "second", "chat"),
        ("b", "second", "chat"),
        ("c", "third", "mail"),
    ):
        await session.send(text, id=name, sender=sender)
    world.clock.move(10)
    await play(session, None)


async def taken_back(world: World) -> None:
    """Prompts and a steer that are taken back: before any run, and while one waits for an answer."""
    session = world.process(calls(("pay", {})), says("one"))
    for name in ("a", "b"):
        await session.send(f"prompt {name}", id=name)
    await session.withdraw("a")
    await session.resume()
    await session.steer("later", Steering.WHEN_DONE, id="s")
    await session.withdraw("s")
    await session.approve(session.waiting[0].id)
    await session.resume()


# Hooks


AT = {
    "begin": Hook.SESSION_START,
    "prompt": Hook.USER_PROMPT_SUBMIT,
    "before": Hook.PRE_TOOL_USE,
    "after": Hook.POST_TOOL_USE,
    "failed": Hook.POST_TOOL_USE_FAILURE,
    "compact": Hook.PRE_COMPACT,
    "stop": Hook.STOP,
    "child": Hook.SUBAGENT_STOP,
    "bye": Hook.SESSION_END,
}
HOOKS = tuple([HookSpec(name=name, hook=hook) for name, hook in AT.items()])
ABOUT_PAY = tuple([attrs.evolve(hook, tool="pay") if hook.name == "before" else hook for hook in HOOKS])


async def hooks(world: World) -> None:
    """At every place: what they add, change, and that they have a fault."""
    said: dict[str, HookAnswer | str] = {
        "begin": HookAnswer(context="It is Monday."),
        "prompt": HookAnswer(context="She is in a hurry."),
        "before": HookAnswer(verdict=Verdict.ALLOW, arguments='{"at":"elsewhere"}', reason="it is there"),
        "after": HookAnswer(context="It was quick."),
        "failed": "TypeError: no",
        "compact": HookAnswer(),
        "child": HookAnswer(go_on=True, reason="Look again."),
    }
    await world.process(
        calls(("pay", {"at": "a"}), ("fail", {})),
        calls(("run_agent", {"agent": "scout", "prompt": "look"})),
        says("done"),
        lines={"scout": [says("nothing"), says("really"), says("no"), says("never")]},
        said=said,
        hooks=ABOUT_PAY,
        instructions=("a.md", "b.md"),
        **CHILDREN,
    ).run("go")


async def hooks_against(world: World) -> None:
    """A hook keeps a call from running, the run from stopping, and at last the prompt from coming in."""
    no = HookAnswer(verdict=Verdict.DENY, reason="not today")
    for name in ("before", "stop", "after", "prompt", "begin"):
        answers: dict[str, HookAnswer | str] = {name: no}
        if name == "stop":
            answers = {name: HookAnswer(go_on=True, reason="You forgot something.")}
        if name == "after":
            answers = {"before": HookAnswer(verdict=Verdict.DENY, reason="enough", interrupt=True)}
        session = world.process(
            calls(("look", {})),
            *[says(f"well {number}") for number in range(9)],
            session=f"s-{name}",
            said=answers,
            hooks=HOOKS,
            policy=Policy(continues=2),
        )
        await session.run(f"go {name}")
        await session.run("again")


# Children


def hires(*names: str) -> Reply:
    return calls(*[("run_agent", {"agent": name, "prompt": f"{name}, go"}) for name in names])


async def child(world: World) -> None:
    lines = {"payer": [calls(("look", {}), ("pay", {"at": "a"})), says("it is paid")]}
    session = world.process(hires("payer"), says("done"), lines=lines, **CHILDREN)
    await session.run("go")
    await session.approve(session.waiting[0].id, Approve(), by="ann")
    await world.process(says("done"), lines={"payer": [says("it is paid")]}, **CHILDREN).resume()


async def two_children(world: World) -> None:
    """Side by side, each with what is set aside for it; for a third one nothing is left."""
    children = (
        ChildSpec(name="scout", tools=("look",), limits=Limits(tokens=4_000, turns=3)),
        PAYER,
        ChildSpec(name="digger", tools=("dig",), limits=Limits(tokens=10_000)),
    )
    await world.process(
        hires("scout", "payer", "digger"),
        says("done"),
        lines={"scout": [calls(("look", {})), says("found")], "payer": [says("no need")]},
        limits=Limits(tokens=12_000, turns=9),
        policy=Policy(concurrency=Concurrency.PARALLEL_READS),
        children=children,
        tools=(*TOOLS, attrs.evolve(SPAWN, side_effect=READS)),
    ).run("go")


async def child_left(world: World) -> None:
    lines = {"scout": [calls(("look", {}), ("dig", {}))]}
    session = world.process(hires("scout"), lines=lines, **CHILDREN)
    await leave(session, ToolStarted, number=2)


async def child_asks(world: World) -> None:
    lines = {"payer": [calls(("pay", {"at": "a"}))]}
    await world.process(hires("payer"), lines=lines, **CHILDREN).run("go")


async def child_interrupted(world: World) -> None:
    session = world.process(hires("scout"), lines={"scout": [calls(("dig", {}))]}, **CHILDREN)
    await play(session, on={ToolStarted: session.interrupt})


# Long runs


async def compaction(world: World) -> None:
    session = world.process(
        says("one", usage=FULL), says("two", usage=FULL), says("three", usage=FULL), says("four"),
        model=SMALL, said={"compact": HookAnswer()}, hooks=(HookSpec(name="compact", hook=Hook.PRE_COMPACT),),
    )  # fmt: skip
    for number in range(4):
        await session.run(f"{number} {LONG}")


async def no_summary(world: World) -> None:
    """A summary that says nothing, one that a hook is against, and what is too large for good."""
    session = world.process(
        *[says(f"{number}", usage=FULL) for number in range(4)], model=SMALL, summary=" ",
        compaction=Compaction(failures=2),
    )  # fmt: skip
    for number in range(4):
        await session.run(f"{number} {LONG}")
    hooks = (HookSpec(name="compact", hook=Hook.PRE_COMPACT),)
    no = {"compact": HookAnswer(verdict=Verdict.DENY, reason="keep it")}
    session = world.process(
        says("five", usage=FULL), fails(Failure.OVERFLOW), model=SMALL, hooks=hooks, said=no
    )
    await session.run("and?")
    await session.run("and now?")


async def clearing(world: World) -> None:
    looks = [
        calls(("look", {"at": str(number), "says": f"{number} " * 100}), usage=UNTOLD) for number in range(6)
    ]
    await world.process(*looks, says("done"), compaction=Compaction(clear_over=3, clear_keep=1)).run("go")


async def cut_off(world: World) -> None:
    """Answers that end at their token limit: gone on with, and given up."""
    cut = StopReason.MAX_TOKENS
    session = world.process(says("once upon", stop=cut, usage=FULL), says("a time"), model=SMALL)
    await session.run(LONG)
    policy = Policy(on_max_tokens=OnMaxTokens.STOP)
    await world.process(says("once", stop=cut), model=SMALL, policy=policy).run("tell")


async def retries(world: World) -> None:
    """Each failure that is tried again, one that asks for a time, and one that is not tried again."""
    tried = (Failure.RATE_LIMIT, Failure.OVERLOADED, Failure.SERVER, Failure.TIMEOUT, Failure.CONNECTION)
    cut = (Failure.CUT, Failure.LOST)
    session = world.process(
        *[fails(failure) for failure in tried],
        *[fails(failure, "I beg") for failure in cut],
        fails(Failure.RATE_LIMIT, retry_after=7.5),
        says("at last"),
        fails(Failure.AUTH),
        retries=Retries(failed=9),
    )
    await session.run("go")
    await session.run("again")


async def fallback(world: World) -> None:
    settings: dict[str, Any] = {
        "models": (OTHER,),
        "fallback": "wire:other",
        "retries": Retries(failed=1, overloaded=1),
    }
    session = world.process(
        fails(Failure.SERVER), fails(Failure.SERVER), calls(("look", {})), says("done"),
        fails(Failure.NOT_FOUND), fails(Failure.NOT_FOUND), **settings,
    )  # fmt: skip
    await session.run("go")
    await session.run("again")


async def circles(world: World) -> None:
    await world.process(
        *[calls(("look", {"at": "a"}), wrong=True) for _ in range(7)],
        loops=Loops(warn=2, withdraw=3, stop=5, same=None, turns=1),
    ).run("go")


async def limits(world: World) -> None:
    looks = [
        calls(("look", {"at": str(number)}), usage=Usage(input=1_000, output=500)) for number in range(6)
    ]
    for name, limit in (
        ("turns", Limits(turns=2)), ("tokens", Limits(tokens=4_000)),
        ("usd", Limits(usd="0.0100")), ("seconds", Limits(seconds=3.0)),
    ):  # fmt: skip
        await world.process(*looks, session=f"s-{name}", limits=limit).run(name)
    session = world.process(
        *looks, says("done"), session="s-all", session_limits=Limits(turns=3, tokens=20_000)
    )
    await session.run("one")
    await session.run("two")


# Sessions


async def branches(world: World) -> None:
    """Gone back to the end of a run, to the beginning, and on from there."""
    session = world.process(says("one"), calls(("look", {})), says("two"), says("three"), says("four"))
    first = (await session.run("a")).run
    await session.run("b")
    await session.branch(first)
    await session.run("c")
    await session.branch()
    await session.run("d")
    await session.branch(first)


async def fork(world: World) -> None:
    session = world.process(calls(("pay", {})), says("paid"), says("more"), titles=Titles.INLINE)
    await answer(session, ApproveAlways())
    session = world.process(says("more"), says("here"))
    await session.load()
    await session.send("for you", id="post")
    copy = await session.fork("t")
    await copy.run("in the copy")
    await session.resume()


async def fork_at_step(world: World) -> None:
    """Copies of a session in the middle of its run: asked anew, allowed, and gone on with another answer."""
    session = world.process(calls(("pay", {})), says("paid"))
    await answer(session, Deny(message="no"))
    steps = {type(step.event): step.number async for step in replay(world.store, "s")}
    session = world.process(says("not again"))
    await (await session.fork("asked", at=3)).resume()
    session = world.process(says("at last"))
    copy = await session.fork("allowed", at=steps[ApprovalGiven], instead=Approve())
    await copy.resume()
    await session.fork("answered", at=steps[ModelFinished], instead="so be it")


async def titles(world: World) -> None:
    session = world.process(says("Hello."), says('"A greeting."'), says("Bye."), titles=Titles.MODEL)
    await session.run("Hi\nthere")
    while not session.title:  # noqa: ASYNC110  # it is turns of the event loop that are waited for
        await asyncio.sleep(0)
    await session.run("bye")
    await session.retitle("Farewell")
    await session.close()


# Left behind


async def left_streaming(world: World) -> None:
    await leave(world.process(stalls("I was about to say")), TextDelta)


async def left_at_work(world: World) -> None:
    policy = Policy(concurrency=Concurrency.PARALLEL)
    tools = (*[tool for tool in TOOLS if tool.name != "pay"], ToolSpec(name="pay", approval="never"))
    wishes = calls(("send", {}), ("build", {}), ("pay", {}))
    await leave(world.process(wishes, policy=policy, tools=tools), ToolStarted, number=2)


async def left_reading(world: World) -> None:
    policy, wishes = (
        Policy(concurrency=Concurrency.PARALLEL_READS),
        calls(("look", {}), ("dig", {}), ("dig", {})),
    )
    await leave(world.process(wishes, policy=policy), ToolStarted, number=3)


async def left_waiting(world: World) -> None:
    world.slow = True
    await leave(world.process(fails(Failure.OVERLOADED)), RetryScheduled)


async def left_summarising(world: World) -> None:
    session = world.process(says("one", usage=FULL), model=SMALL)
    await session.run(LONG)
    await leave(session, CompactionStarted, "and?")


async def left_asking(world: World) -> None:
    world.slow = True
    session = world.process(calls(("pay", {}), ("look", {})), policy=Policy(answer_within=300.0))
    await leave(session, ApprovalRequested)


async def taken_over(world: World) -> None:
    """Lost and gone on with, twice, at last by a process that is set up otherwise."""
    await leave(world.process(calls(("send", {}), ("look", {}))), ToolStarted)
    await leave(world.process(stalls("I am")), TextDelta, None)
    session = world.process(calls(("pay", {})), says("done"), system="Be quick.", limits=Limits(turns=9))
    await session.resume()
    await answer_open(session)


async def run_again(world: World) -> None:
    """A tool may have run, and a person says that it runs again, three times, and then that it does not."""
    policy = Policy(on_lost=OnLost.ASK)
    await leave(world.process(calls(("send", {}), ("look", {})), policy=policy), ToolStarted)
    for number in range(4):
        session = world.process(says("done"), policy=policy)
        await session.resume()
        for question in session.waiting:
            decision = Deny(message="it was sent") if number == 3 else Approve()
            await session.approve(question.id, decision, by="ann")
        await leave(session, ToolStarted, None) if number < 3 else await session.resume()


async def handed_over(world: World) -> None:
    """Told to leave while a tool was at work: the calls behind it had not begun."""
    session, leaving = world.process(calls(("dig", {}), ("send", {}))), list[asyncio.Future[None]]()

    async def drain() -> None:
        leaving.append(asyncio.ensure_future(session.drain()))
        await asyncio.sleep(0)
        world.release()

    await play(session, on={ToolStarted: drain})
    await asyncio.gather(*leaving)
    await world.process(says("done")).resume()


async def answer_open(session: Session) -> None:
    for question in session.waiting:
        await session.approve(question.id)
    await session.resume()


SCENARIOS: dict[str, Callable[[World], Awaitable[None]]] = {
    name.replace("_", "-"): play_it
    for name, play_it in list(globals().items())
    if getattr(play_it, "__annotations__", {}) == {"world": "World", "return": "None"}
}
"""Every function above that plays in a world and gives nothing, by its name."""

# The end of a session


def told(session: Session) -> dict[str, Any]:
    machine = session.machine
    assert machine is not None
    state, memory = machine.state, machine.memory
    return {
        "label": state.label,
        "reason": str(state.reason) if isinstance(state, Done) else "",
        "open": list(state.open),
        "model": memory.session.model,
        "mode": str(memory.session.mode),
        "title": session.title,
        "waiting": [f"{one.id} {one.tool} {one.arguments}" for one in session.waiting],
        "queue": [mail.text for mail in session.queue],
        "spent": _spent(session.spent),
        "history": [_said(message) for message in session.history],
    }


def _spent(spent: Spent) -> dict[str, Any]:
    used = spent.usage
    return {
        "turns": spent.turns,
        "tokens": [used.input, used.output, used.cached, used.cache_write, used.reasoning, used.estimated],
        "usd": str(spent.cost),
        "seconds": spent.seconds,
        "unpriced": spent.unpriced,
    }


def _said(message: Message) -> list[Any]:
    """A message: who speaks, then a list for each part, which its kind begins."""
    return [str(message.role), message.at, *[_part(part) for part in message.parts]]


def _part(part: Any) -> list[Any]:
    values = [getattr(part, field.name) for field in attrs.fields(type(part))]
    return [type(part).__name__, *[_plain(value) for value in values if value]]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return [_part(each) for each in value] if isinstance(value, tuple) else str(value)


async def expected(session: Session) -> dict[str, Any]:
    runs = [
        [run.run, run.parent, run.prompt, str(run.reason or ""), run.current] for run in await session.runs()
    ]
    return {**told(session), "runs": runs}


def reader(store: Store, name: str) -> Session:
    config = Config(model=MODEL)
    setting = Environment(
        config=config, performers={}, clock=AutoClock(5_000.0), new_id=lambda: "never", poll=3_600.0
    )
    return Session(name, setting, store)


async def played(name: str) -> tuple[dict[str, tuple[bytes, ...]], dict[str, Any]]:
    world = World()
    await SCENARIOS[name](world)
    kept = await world.kept()
    return kept, {session: await expected(await reader(world.store, session).load()) for session in kept}


# Writing it all


async def write(folder: Path) -> None:
    """Write all journals into *folder*, and what they lead to."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    leads: dict[str, dict[str, Any]] = {}
    for name in SCENARIOS:
        kept, told_of = await played(name)
        for session, entries in kept.items():
            leads[f"{name}.{session}"] = told_of[session]
            (folder / f"{name}.{session}.jsonl").write_bytes(in_lines(entries))
    (folder / "expected.json").write_text(in_json(leads), "utf-8")
    (folder / "words.json").write_text(in_json(words(Entry)), "utf-8")
    (folder / "snapshot.json").write_text(in_json(words(Snapshot)), "utf-8")


def classes(*roots: Any) -> dict[str, Any]:
    """The classes and enums that *roots* are made of, by their names."""
    found: dict[str, Any] = {}
    todo = list(roots)
    while todo:
        word = todo.pop()
        todo += get_args(word)
        if attrs.has(word) and word.__name__ not in found:
            found[word.__name__] = word
            todo += get_type_hints(word).values()
        elif isinstance(word, type) and issubclass(word, Enum):
            found[word.__name__] = word
    return dict(sorted(found.items()))


def words(*roots: Any) -> dict[str, list[str]]:
    return {
        name: [field.name for field in attrs.fields(word)]
        if attrs.has(word)
        else [str(each.value) for each in word]
        for name, word in classes(*roots).items()
    }


def in_lines(entries: Sequence[bytes]) -> bytes:
    return b"".join([entry + b"\n" for entry in entries])


def in_json(leads: Mapping[str, Any]) -> str:
    lines = [
        f"{json.dumps(name)}: {json.dumps(told_of, ensure_ascii=False)}" for name, told_of in leads.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    to = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name(f"v{VERSION}")
    asyncio.run(write(to))
