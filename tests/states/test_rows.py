"""
Each row of the table is taken, in the middle of a run of which Hypothesis chooses all that is left to choose.

`WAYS` names for each row one way to it: a world, and what happens there. The last deed takes the row. Around
that Hypothesis draws the settings, texts, arguments, usage, seconds, decisions, hooks' answers, mail, and
what else happens before and after. A row that no example takes fails its test, so a way cannot rot.

Every step is checked by the auditor of the provers: history, open requests, usage, calls, questions, mail,
hooks, settings, summaries. At the row the machine is also snapshotted, and must do the same from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, final

import attrs
import pytest
from hypothesis import Phase, given, seed, settings, strategies as st
from provers.choices import Choices, chance, pick, weighted
from provers.simulation.absorbing import absorbed, absorbed_faults
from provers.simulation.findings import COMMAND
from provers.simulation.outputs import BY_TOOL, OUTPUT, RIGHT
from provers.simulation.player import opened
from provers.simulation.replies import UNDER_WAY
from provers.simulation.settings import CHILDREN, HOOKS, OTHER, RULES, SPARE, TOOLS, WEIGHED
from provers.simulation.watched import Watched, as_kept, replay
from provers.steps import restore_from_snapshot

from turnwheel.effects.config import (
    ChildSpec,
    Compaction,
    Concurrency,
    Config,
    Gates,
    Limits,
    Loops,
    ModelSpec,
    OnDenial,
    OnLost,
    OnMaxTokens,
    Policy,
    Price,
    Retries,
    Steering,
    with_output,
)
from turnwheel.effects.events import (
    AgentFinished,
    AgentProgressed,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    CallCancelled,
    CallInspected,
    ControlReceived,
    Deny,
    Entered,
    Event,
    Failure,
    HookAnswered,
    InputWithdrawn,
    InstructionsRead,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    OutputDecoded,
    TimerFired,
    ToolFinished,
    ToolLost,
    ToolProgressed,
    UserSent,
    UserSteered,
)
from turnwheel.effects.findings import CommandFound, Finding, PathFound, SimpleCommand
from turnwheel.effects.history import CallPiece, Piece, ReasoningPiece, Rope, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer, HookSaid, HookSpec
from turnwheel.effects.messages import Binary, Outcome, StopReason
from turnwheel.effects.permissions import PermissionMode, Verdict
from turnwheel.effects.records import Change, SetMode, SetThinking
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    DecodeOutput,
    FireHook,
    InspectCall,
    Purpose,
    ReadInstructions,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.machine import calls_at
from turnwheel.states.rules.schema import arguments_of
from turnwheel.states.table import IGNORED, TABLE, Row

Way = tuple[str, type[Event], str]

EXAMPLES, LENGTH = 15, 200
"""So many examples for each row, each drawn from so many bytes."""

FILE = Binary(media_type="text/plain", data=b"see here", name="note.txt")
PRICE = Price(input="3", output="15")
LONG = "do this and that " * 30
SECOND = HookSpec(name="second", hook=Hook.PRE_TOOL_USE, tool="write")
GUARD = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="w*")
NOTED = HookSpec(name="noted", hook=Hook.POST_TOOL_USE, tool="note")
SENTRY = HookSpec(name="sentry", hook=Hook.PRE_TOOL_USE, tool="send")


def _config(*hooks: HookSpec, **policy: Any) -> Config:
    """Settings with a tool of each kind, in which one failure of each kind is forgiven."""
    rules = Policy(on_max_tokens=OnMaxTokens.COMPACT, concurrency=Concurrency.PARALLEL_READS)
    return Config(
        model=ModelSpec(name="wire:model", price=PRICE),
        models=(OTHER, SPARE),
        tools=TOOLS,
        children=CHILDREN,
        hooks=hooks,
        policy=attrs.evolve(rules, **policy),
        retries=Retries(overloaded=1, failed=1),
    )


PLAIN = _config()
KIDS = (ChildSpec(name="kid", limits=Limits(seconds=2.0)), CHILDREN[1])
NARROW = attrs.evolve(PLAIN, model=ModelSpec(name="wire:model", window=150, price=PRICE))
PARALLEL, SERIAL = Concurrency.PARALLEL, Concurrency.SERIAL

WORLDS: Mapping[str, Config] = {
    "plain": PLAIN,
    "serial": _config(concurrency=SERIAL),
    "no goes on": _config(on_denial=OnDenial.GO_ON, answer_within=50.0),
    "no ends it": _config(on_denial=OnDenial.INTERRUPT, answer_within=50.0),
    "hasty": _config(answer_within=50.0),
    "short": attrs.evolve(PLAIN, limits=Limits(seconds=90.0), children=KIDS),
    "guarded": _config(GUARD, SECOND, SENTRY),
    "vetted": _config(GUARD, SENTRY, gates=Gates.RULES_FIRST),
    "doors": attrs.evolve(_config(HOOKS[4], HOOKS[5]), instructions=("AGENTS.md",)),
    "files": attrs.evolve(PLAIN, instructions=("AGENTS.md",)),
    "greeted": _config(HOOKS[5]),
    "coached": _config(HOOKS[7]),
    "lost is asked": _config(concurrency=PARALLEL, on_lost=OnLost.ASK),
    "bold": _config(concurrency=PARALLEL, mode=PermissionMode.BYPASS),
    "allowed": attrs.evolve(_config(concurrency=PARALLEL), rules=RULES[:2]),
    "inspected": attrs.evolve(_config(concurrency=SERIAL), rules=RULES),
    "weighed": attrs.evolve(PLAIN, rules=WEIGHED),
    "weighed apart": attrs.evolve(_config(concurrency=PARALLEL), rules=WEIGHED),
    "free": _config(mode=PermissionMode.BYPASS, max_parallel=2),
    "narrow": NARROW,
    "consulted": attrs.evolve(NARROW, hooks=HOOKS[6:7]),
    "spare": attrs.evolve(NARROW, fallback=SPARE.name),
    "outcome": with_output(PLAIN, OUTPUT),
    "outcome, doors": with_output(
        attrs.evolve(_config(HOOKS[4], HOOKS[5]), instructions=("AGENTS.md",)),
        attrs.evolve(OUTPUT, decoded=False),
    ),
    "by tool": with_output(PLAIN, BY_TOOL),
    "by tool, reviewed": with_output(_config(HOOKS[2]), BY_TOOL),
    "by tool, short": with_output(
        attrs.evolve(_config(NOTED), limits=Limits(seconds=90.0), children=KIDS), BY_TOOL
    ),
    "circles": attrs.evolve(PLAIN, loops=Loops(warn=2, withdraw=3, stop=4)),
}
"""The settings of each world that a way begins in."""

OUTCOMES = {Outcome.OK: 75, Outcome.ERROR: 15, Outcome.CRASHED: 5, Outcome.TIMED_OUT: 5}
STEERS = {"steer": Steering.AFTER_TOOL, "now": Steering.NOW, "later": Steering.WHEN_DONE}
STOPS = {
    "call": StopReason.TOOL_USE,
    "fill": StopReason.TOOL_USE,
    "cut": StopReason.MAX_TOKENS,
    "rest": StopReason.PAUSED,
    "say": StopReason.END_TURN,
    "sum": StopReason.END_TURN,
    "half": StopReason.END_TURN,
    "give": StopReason.END_TURN,
}


@final
class Drawn:
    """Decisions from *data*, two bytes each; when it is used up, the simplest."""

    def __init__(self, data: bytes) -> None:
        self._left = iter(data)

    def below(self, bound: int) -> int:
        return (next(self._left, 0) * 256 + next(self._left, 0)) * bound >> 16


class NotThere(LookupError):
    """A deed has nothing that it can be done to."""


@final
class GuidedRun:
    """A run in which deeds are done; *choices* say what a deed leaves open."""

    def __init__(self, config: Config, choices: Choices) -> None:
        self.choices = choices
        self.now = 0.0
        self.sent = 0
        first, second = self.prompt(), self.prompt()
        posts = (first, second) if chance(choices, 10) else (first,)
        self.run = Watched.of(opened(config, posts))

    def begin(self) -> None:
        self.run.feed(None)

    def does(self, deed: str) -> Event | Config:
        """The event that *deed* stands for: a word, and what it is about. Raises `NotThere`."""
        self.now += self.choices.below(3) / 2
        word, *about = deed.split()
        if word == "under":
            # What a run comes to stays as it began, whoever goes on with it.
            return with_output(WORLDS[" ".join(about)], self.run.machine.config.output)
        for words in (self._people, self._model, self._work, self._judges, self._makes):
            if (event := words(word, *about)) is not None:
                return event
        raise NotThere(deed)

    def do(self, deed: str) -> bool:
        what = self.does(deed)
        if isinstance(what, Config):
            self.run.reconfigure(what)
            return True
        return self.run.feed(what)

    # Who says what

    def _name(self) -> str:
        self.sent += 1
        return f"sender-{self.sent}"

    def prompt(self) -> UserSent:
        text = LONG if self.sent == 0 else pick(self.choices, ("and this", "", LONG))
        sender = pick(self.choices, ("", "they"))
        files = (FILE,) if chance(self.choices, 10) else ()
        return UserSent(at=self.now, id=self._name(), text=text, files=files, sender=sender)

    def _people(self, word: str, *about: str) -> Event | None:
        at = self.now
        if word == "stop":
            return Interrupted(at=at)
        if word in STEERS:
            text = pick(self.choices, ("left", LONG))
            return UserSteered(at=at, id=self._name(), text=text, how=STEERS[word])
        if word == "send":
            return self.prompt()
        if word == "set":
            change: Change = SetThinking(tokens=pick(self.choices, (0, 2_000, None)))
            return ControlReceived(at=at, id=self._name(), change=change)
        if word == "mode":
            return ControlReceived(at=at, id=self._name(), change=SetMode(mode=PermissionMode(about[0])))
        return self._given_up(word, *about)

    def _given_up(self, word: str, *about: str) -> Event | None:
        mail = self.run.machine.memory.session.mail
        if word in {"back", "unsend"}:
            if not mail:
                raise NotThere(word)
            # The first or the last that waits.
            return InputWithdrawn(at=self.now, input=mail[0 if word == "back" else -1].id)
        return CallCancelled(at=self.now, call=self._call(*about)) if word == "drop" else None

    def _call(self, tool: str) -> str:
        for call in calls_at(self.run.machine.state):
            if call.call.name == tool and type(call.phase).__name__ not in {"Settled", "Reviewed"}:
                return call.call.id
        raise NotThere(tool)

    def _open(self, *kinds: type[Request], tool: str = "") -> Request:
        """The first open request of one of these *kinds*, about a call of *tool* where one is named."""
        machine = self.run.machine
        batch = getattr(machine.state, "batch", None)
        named = {call.call.id: call.call.name for call in batch.calls} if batch is not None else {}
        for name in machine.state.open:
            request = self.run.requests[name]
            if isinstance(request, kinds) and tool in {"", named.get(getattr(request, "call", ""), "")}:
                return request
        raise NotThere(tool)

    def _model(self, word: str, *about: str) -> Event | None:
        choices = self.choices
        if word not in {*STOPS, "stream", "fail"}:
            return None
        request = self._open(CallModel)
        assert isinstance(request, CallModel)
        seconds = choices.below(8) / 2
        if word == "fail":
            return ModelFailed(
                at=self.now,
                request=request.id,
                failure=Failure(about[0]),
                message="as it happens",
                retry_after=weighted(choices, {None: 80, 0.0: 10, 7.5: 10}),
                jitter=choices.below(10) / 10,
                usage=pick(choices, (None, Usage(), Usage(input=7, output=3))),
                seconds=seconds,
            )
        pieces = (
            (TextPiece(RIGHT),)
            if word == "give"
            else (
                *self._words(word, summary=request.purpose is Purpose.SUMMARY),
                *[self._wish(index, tool) for index, tool in enumerate(about)],
            )
        )
        if word == "stream":
            state = self.run.machine.state
            before = getattr(state, "pieces", getattr(getattr(state, "stage", None), "pieces", Rope.of()))
            return ModelStreamed(
                at=self.now, request=request.id, before=before.count, count=len(pieces), pieces=pieces
            )
        used = pick(choices, (Usage(input=10, output=5), Usage(), Usage(input=20, output=9, cached=4)))
        return ModelFinished(
            at=self.now,
            request=request.id,
            stop=STOPS[word],
            usage=Usage(input=120, output=10) if word == "fill" else used,
            pieces=pieces,
            seconds=seconds,
        )

    def _words(self, word: str, *, summary: bool) -> Iterable[Piece]:
        if not summary and chance(self.choices, 20):
            yield ReasoningPiece("let me think", pick(self.choices, ("", "proof")))
        text = "words " * 300 if word == "half" else pick(self.choices, ("brief", "well, ", "a word"))
        if word == "rest":
            yield from UNDER_WAY
        if summary or word != "call" or chance(self.choices, 70):
            yield TextPiece(text)

    def _wish(self, index: int, tool: str) -> CallPiece:
        path = weighted(self.choices, {"a.txt": 85, "b.txt": 15})
        child = tool in {"send", "scout", "ranger"}
        good = '{"agent": "kid", "prompt": "go"}' if child else f'{{"path": "{path}"}}'
        good = RIGHT if tool == "output" else good
        arguments = weighted(self.choices, {good: 90, "": 4, good[:-2]: 3, '{"x": 1}': 3})
        name = pick(self.choices, (f"call_{index}", "call_0", ""))
        return CallPiece(index, name, tool, arguments)

    def _work(self, word: str, tool: str = "") -> Event | None:
        choices, at = self.choices, self.now
        if word not in {"end", "spend", "lose", "hear"}:
            return None
        if word == "lose":
            return ToolLost(at=at, request=self._open(RunTool, tool=tool).id)
        request = self._open(RunTool, RunAgent, tool=tool)
        took = 100.0 if word == "spend" else choices.below(4) / 2
        spent = Spent(
            turns=choices.below(3),
            usage=Usage(input=choices.below(9)),
            cost=Decimal(choices.below(9)) / 1000,
            seconds=min(took, 1.0) if word == "hear" else took,
        )
        if word == "hear":
            heard = ToolProgressed(at=at, request=request.id, text="half of it")
            child = AgentProgressed(at=at, request=request.id, spent=spent)
            return child if isinstance(request, RunAgent) else heard
        outcome = weighted(choices, OUTCOMES)
        if isinstance(request, RunAgent):
            return AgentFinished(at=at, request=request.id, content="found", outcome=outcome, spent=spent)
        content = pick(choices, ("fine", "", "a long file " * 60))
        return ToolFinished(at=at, request=request.id, content=content, outcome=outcome, seconds=took)

    def _judges(self, word: str, tool: str = "") -> Event | None:
        choices, at = self.choices, self.now
        if word in {"yes", "no", "never"}:
            asked = self._open(AskApproval, tool=tool)
            edited = '{"path": "b.txt"}' if chance(choices, 15) else ""
            always = ApproveAlways(where=pick(choices, ((), (("path", "a*"),))))
            yes = always if chance(choices, 20) else Approve(arguments=edited)
            no = Deny(message=pick(choices, ("", "not that")), interrupt=word == "never")
            by = pick(choices, ("", "ann"))
            return ApprovalGiven(at=at, request=asked.id, decision=yes if word == "yes" else no, by=by)
        if word in {"late", "wake"}:
            timer = self._timer(tool)
            self.now = max(at, timer.due)
            return TimerFired(at=self.now, request=timer.id)
        if word == "read":
            files, text = self._open(ReadInstructions), pick(choices, ("be brief", ""))
            faults = pick(choices, ((), ("not there",)))
            return InstructionsRead(at=at, request=files.id, text=text, faults=faults)
        if word in {"find", "catch"}:
            look = self._open(InspectCall, tool=tool)
            assert isinstance(look, InspectCall)
            return CallInspected(at=at, request=look.id, finding=_finding(look, word))
        if word in {"pass", "deny", "halt", "ask", "again"}:
            hooks = self._open(FireHook, tool=tool)
            assert isinstance(hooks, FireHook)
            return HookAnswered(at=at, request=hooks.id, said=self._said(hooks, word))
        return None

    def _makes(self, word: str, *_: str) -> Event | None:
        if word not in {"make", "refuse"}:
            return None
        fault = "it is too small" if word == "refuse" else ""
        return OutputDecoded(at=self.now, request=self._open(DecodeOutput).id, fault=fault)

    def _timer(self, tool: str) -> SetTimer:
        """The timer of the question about a call of *tool*, or of the pause."""
        names = self.run.machine.state.open
        if tool:
            names = names[names.index(self._open(AskApproval, tool=tool).id) + 1 :]
        for name in names:
            request = self.run.requests[name]
            if isinstance(request, SetTimer):
                return request
        raise NotThere(tool)

    def _said(self, hooks: FireHook, word: str) -> tuple[HookSaid, ...]:
        context = pick(self.choices, ("", "mind the gap"))
        verdict = weighted(self.choices, {None: 85, Verdict.ALLOW: 15})
        arguments = '{"path": "b.txt"}' if chance(self.choices, 15) else ""
        answers = {
            "pass": HookAnswer(verdict=verdict, arguments=arguments, context=context),
            "deny": HookAnswer(verdict="deny", reason="so", context=context),
            "halt": HookAnswer(verdict="deny", reason="so", interrupt=True),
            "ask": HookAnswer(verdict="ask", context=context),
            "again": HookAnswer(go_on=True, reason=pick(self.choices, ("", "once more")), context=context),
        }
        first, *others = hooks.names
        said = [HookSaid(name=first, answer=answers[word])]
        for name in others:
            answer = answers[weighted(self.choices, {"pass": 80, "ask": 10, "deny": 10})]
            said.append(HookSaid(name=name, answer=answer, fault=weighted(self.choices, {"": 90, "no": 10})))
        return tuple(said)


# The rows, and a way to each


def _finding(look: InspectCall, word: str) -> Finding:
    """What is found of the call that *look* is about: what is written, or something secret."""
    value = str((arguments_of(look.arguments) or {}).get("path"))
    real = value if word == "find" else "secret"
    if look.tool == COMMAND:
        line = CommandFound(argument="path", commands=(SimpleCommand(words=(real,)),))
        return Finding(commands=(line,))
    return Finding(paths=(PathFound(argument="path", value=value, written=(value,), real=(real,)),))


def _read(text: str) -> dict[tuple[str, str, str], tuple[str, tuple[str, ...]]]:
    """The ways in *text*, by state, event and target: the name of a world, and what is done in it."""
    ways: dict[tuple[str, str, str], tuple[str, tuple[str, ...]]] = {}
    state = event = ""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            state, event = line.split()
            continue
        target, world, deeds = [part.strip() for part in line.split(":")]
        ways[state, event, target] = world, tuple([deed.strip() for deed in deeds.split(",") if deed.strip()])
    return ways


WAYS = _read(Path(__file__).with_name("rows.txt").read_text("utf-8"))
WELCOME = {
    "UserSent": ("send",),
    "UserSteered": ("later",),
    "ControlReceived": ("set",),
    "InputWithdrawn": ("send", "unsend"),
}
"""What is done where a row welcomes it."""

PASSING = {state for state, event, _ in WAYS if event == "Entered"} - {"executing"}
"""States that wait for nothing, through which a machine passes unless it is stepped by hand."""


def _way(row: Row) -> tuple[str, tuple[str, ...]]:
    if not row.welcome:
        return WAYS[row.state, row.event.__name__, row.target]
    passing = row.state in PASSING
    ways = [way for (state, _, _), way in WAYS.items() if state == row.state]
    resting = [way for (state, event, _), way in WAYS.items() if state == row.state and event != "Entered"]
    world, deeds = (ways if passing else resting)[0]
    return world, (*(deeds if passing else deeds[:-1]), *WELCOME[row.event.__name__])


# One example

BESIDES = ("send", "set", "later", "hear", "steer", "stream", "yes", "end", "pass", "find")
"""What may happen on the way, besides what leads there."""

BEHIND = (
    """
end, yes, no, never, late, find, catch, pass, ask, deny, halt, again, say, call look write, call note
note, cut, rest, sum, half, give, make, refuse, call output, call output note, steer, now, stop, spend, hear,
wake, fail server, fail overflow, drop look, drop write, drop ranger, lose write, mode plan, under serial
""".strip()
    .replace("\n", " ")
    .split(", ")
)
"""What may happen behind the row."""


def _varied(config: Config, choices: Choices) -> Config:
    changes: Mapping[str, Any] = {
        "system": "be kind",
        "model": attrs.evolve(config.model, thinking=1_000),
        "loops": pick(choices, (Loops.never(), Loops(warn=2, withdraw=3, stop=5, same=4, turns=2))),
        "rules": RULES,
        "hooks": (*config.hooks, *[hook for hook in HOOKS[2:4] if hook not in config.hooks]),
        "limits": pick(choices, (Limits(turns=2), Limits(tokens=3_000), Limits(usd=Decimal("0.1")))),
        "session_limits": Limits(turns=3),
        "compaction": Compaction(clear_over=1, clear_keep=0, result_limit=400, tokens=50, failures=1),
        "retries": Retries(overloaded=0, failed=2, longest=5.0, fallback_after=1.0),
        "fallback": SPARE.name,
    }
    policies: Mapping[str, Any] = {
        "on_denial": pick(choices, tuple(OnDenial)),
        "on_lost": pick(choices, tuple(OnLost)),
        "on_max_tokens": pick(choices, tuple(OnMaxTokens)),
        "concurrency": pick(choices, tuple(Concurrency)),
        "gates": pick(choices, tuple(Gates)),
        "mode": pick(choices, tuple(PermissionMode)),
        "max_parallel": 1,
        "compact_at": 0.3,
        "continues": 0,
        "pauses": 0,
        "coalesce": 2.0,
        "coalesce_longest": 3.0,
        "answer_within": 3.0,
    }
    policy = {name: value for name, value in policies.items() if chance(choices, 6)}
    changed = {name: value for name, value in changes.items() if chance(choices, 6)}
    return attrs.evolve(config, policy=attrs.evolve(config.policy, **policy), **changed)


def _misplaced(guided: GuidedRun) -> None:
    """What is late, repeated or for something else changes nothing here."""
    events = list(absorbed(guided.run))
    for event in [pick(guided.choices, events) for _ in range(2)]:
        assert absorbed_faults(guided.run, event) == []
        assert not guided.run.feed(event)


def _try(guided: GuidedRun, deed: str) -> None:
    if not guided.run.machine.done:
        with suppress(NotThere):
            guided.do(deed)


def _taken(guided: GuidedRun, deed: str) -> set[Way]:
    """The rows that *deed* takes; a machine that was thrown away and restored before it takes the same."""
    run = guided.run
    event = guided.does(deed)
    assert isinstance(event, Event)
    restored = restore_from_snapshot(run.machine)
    assert restored == run.machine
    run.rows.clear()
    before = len(run.effects)
    if run.feed(event):
        assert restored.advance(event) == tuple(run.effects[before:])
        assert restored == run.machine
    return set(run.rows)


def _go(guided: GuidedRun, state: str, way: tuple[str, ...]) -> bool:
    """Go *way* to *state*, by hand where a machine only passes through it; whether it is there."""
    run, passing = guided.run, state in PASSING
    if way != ("begin",):
        guided.begin()
        for deed in way[:-1] if passing else way:
            _try(guided, deed)
        if passing:
            event = guided.does(way[-1])
            assert isinstance(event, Event)
            run.step(event)
    while passing and run.machine.state.label != state:
        if run.machine.state.open or run.machine.done:
            return False
        run.step(Entered(at=guided.now))
    return run.machine.state.label == state


def _stepped(guided: GuidedRun, state: str, way: tuple[str, ...], deeds: tuple[str, ...]) -> set[Way]:
    """The rows that the last of *deeds* takes in *state*, where *way* leads if it is stepped by hand."""
    run = guided.run
    if not _go(guided, state, way):
        return set()
    *before, deed = deeds
    for earlier in before:
        event = guided.does(earlier)
        assert isinstance(event, Event)
        run.step(event)
    run.rows.clear()
    event = guided.does(deed)
    assert isinstance(event, Event)
    assert run.step(event)
    assert not run.step(event)
    rows = set(run.rows)
    while not (run.machine.state.open or run.machine.done):
        assert run.step(Entered(at=guided.now))
    return rows


def _example(row: Row, data: bytes) -> set[Way]:
    """Go the way to *row*, and a little further; the rows that the last deed of it took."""
    choices = Drawn(data)
    world, (*way, last) = _way(row)
    guided = GuidedRun(_varied(WORLDS[world], choices), choices)
    if row.state in PASSING and row.event is not Entered:
        deeds = WELCOME[row.event.__name__] if row.welcome else (last,)
        return _stepped(guided, row.state, tuple([*way, last][: -len(deeds)]), deeds)
    guided.begin()
    if last == "begin":
        return set(guided.run.rows)
    for deed in way:
        if chance(choices, 12):
            _try(guided, pick(choices, BESIDES))
        _try(guided, deed)
    if guided.run.machine.done:
        return set()
    with suppress(NotThere):
        rows = _taken(guided, last)
        _misplaced(guided)
        for _ in range(choices.below(4)):
            _try(guided, pick(choices, BEHIND))
        assert replay(guided.run.began, as_kept(guided.run.journal)) == guided.run.machine
        return rows
    return set()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.state} {row.event.__name__} {row.target}")
def test_a_row_is_taken_and_every_promise_is_kept(row: Row) -> None:
    taken = 0

    @seed(TABLE.index(row))
    @settings(max_examples=EXAMPLES, database=None, phases=(Phase.generate, Phase.shrink))
    @given(st.binary(min_size=LENGTH, max_size=LENGTH))
    def example(data: bytes) -> None:
        nonlocal taken
        taken += (row.state, row.event, row.target) in _example(row, data)

    example()
    assert taken, "no example took it"


@pytest.mark.parametrize("label", sorted({row.state for row in TABLE} | {"done"}))
def test_nothing_out_of_place_changes_anything(label: str) -> None:
    """Every event that is late, repeated or for something else, in every state there is."""
    row = next((row for row in TABLE if row.welcome and row.state == label), None)
    world, deeds = ("plain", ("say", "say")) if row is None else _way(row)
    guided = GuidedRun(WORLDS[world], Drawn(b""))
    _go(guided, label, deeds[:-1])
    assert guided.run.machine.state.label == label
    events = list(absorbed(guided.run))
    assert [fault for event in events for fault in absorbed_faults(guided.run, event)] == []
    ignored = {type(event) for event in events} | {CallCancelled}
    assert ignored >= IGNORED[label] - {Interrupted, ModelStreamed, Entered}
