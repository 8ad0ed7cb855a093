"""
The world of a scenario: its commands as events for a bare machine, and the text of what that does.

Every command is documented at its `case`. Each happens a second after the one before; ``at=12.5`` says
otherwise. A call is named by its tool, ``look#2`` is the second of that name; without a number the first is
meant that waits. ``late`` before a command answers the latest request of its kind, open or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, TypeVar, final

import attrs

from ..effects import Effect, is_request
from ..effects.config import Config, Steering
from ..effects.events import (
    AgentFinished,
    AgentProgressed,
    Answer,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    CallCancelled,
    ControlReceived,
    Deny,
    Entered,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    ToolLost,
    ToolProgressed,
    UserSent,
    UserSteered,
)
from ..effects.hooks import HookAnswer, HookSaid
from ..effects.messages import Outcome, StopReason
from ..effects.notices import ApprovalRequested
from ..effects.permissions import PermissionMode
from ..effects.pieces import (
    CallPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
)
from ..effects.records import (
    Change,
    MailKind,
    SetMode,
    SetModel,
    SetThinking,
)
from ..effects.requests import (
    AskApproval,
    CallModel,
    Cancel,
    FireHook,
    ReadInstructions,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from ..effects.usage import Spent, Usage
from ..engine.codec import decode
from ..engine.driver import check_answer
from ..engine.journal.entries import RunOpened
from ..engine.machine import Machine, advance
from ..engine.recovery import recover
from ..engine.rendering import (
    history_lines,
    line_of,
    memory_lines,
    state_line,
    told_in_story,
)
from ..states.rules.inputs import prompt_group
from ..states.state import Done
from .scenarios import (
    Command,
    JsonText,
    Quoted,
    Scenario,
    ScenarioError,
    Word,
    priced,
    text_of,
    with_settings,
)

R = TypeVar("R", bound=Request)


@final
@attrs.frozen(kw_only=True)
class InputWaits:
    """No run is under way, and *event* waits; with *opens* a run begins on it."""

    event: UserSent | ControlReceived
    opens: bool


@final
@attrs.frozen(kw_only=True)
class ProcessLost:
    """The process is lost, and another one goes on *at* that time, under *config* where that is another."""

    at: float
    config: Config | None


Act = Event | InputWaits | ProcessLost | tuple[str, ...]
"""What a command comes to: an event for the run, or text to be shown, or as above."""


def play_scenario(scenario: Scenario) -> list[list[str]]:
    """What each block of *scenario* leads to, as it is recorded. Raises `ScenarioError`."""
    world = ScenarioWorld(scenario.config)
    return [
        [line for command in commands for line in world.perform(command, scenario.name)]
        for commands in scenario.blocks
    ]


@final
class ScenarioWorld:
    """
    A bare machine under *config*, moved by commands. `perform` gives the text of one.

    *acts* are what the latest command came to, runs that were opened among them, and *effects* all that the
    machine said: others can be put to the same, and compared.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.machine: Machine | None = None
        self.now = 0.0
        self.effects: list[Effect] = []
        self.acts: list[Act | RunOpened] = []
        self._posted: list[UserSent | ControlReceived] = []
        self._requests: dict[str, Request] = {}
        self._runs = self._inputs = 0
        self._last: Event | None = None
        self._late = False

    def perform(self, command: Command, name: str = "scenario") -> Iterator[str]:
        """Let *command*, of the scenario *name*, happen; the lines that are recorded of it."""
        said = _Answered(command)
        self.effects, self.acts, self._late = [], [], said.late
        try:
            self.now = self.now + 1.0 if (at := said.number("at")) is None else at
            yield from self._open_next()
            act = self._act(said)
            self.acts.append(act)
            yield from self._do(act)
            yield from self._open_next()
        except (LookupError, ValueError, TypeError) as error:
            problem = error.problem if isinstance(error, ScenarioError) else str(error.args[0])
            raise ScenarioError(problem, command.line, 1, name) from error

    def _do(self, act: Act) -> Iterator[str]:
        match act:
            case tuple():
                yield from act
            case InputWaits(event=event, opens=opens):
                self._posted.append(event)
                if opens:
                    yield from self._open()
            case ProcessLost():
                yield from self._restart(act)
            case _:
                self._last = act
                yield from self._step(as_driven(act, self._requests))

    @property
    def _running(self) -> Machine:
        if self.machine is None:
            msg = "no run is under way; begin with a prompt"
            raise LookupError(msg)
        return self.machine

    @property
    def _idle(self) -> bool:
        return self.machine is None or self.machine.done

    def _open_next(self) -> Iterator[str]:
        """Open runs for prompts that wait, once their sender has had the time to say more."""
        window = self.config.policy.coalesce
        while self.machine is not None and self.machine.done:
            group = prompt_group(self.machine.memory.waiting(MailKind.PROMPT), window)
            if not group or (group[0].sender and self.now < group[-1].at + window):
                return
            yield from self._open()

    def _open(self) -> Iterator[str]:
        self._runs += 1
        name = "run" if self._runs == 1 else f"run{self._runs}"
        opened = RunOpened(at=self.now, run=name, config=self.config)
        self.acts.append(opened)
        self.machine = Machine.open(opened, self.machine, self._posted)
        self._posted = []
        yield from self._step(None)

    def _step(self, event: Event | None) -> Iterator[str]:
        """Let *event* happen; the way the machine went, and what it said."""
        machine = self._running
        yield " > ".join(label for label, _ in groupby(_way(machine, event, self.now)))
        yield from self._told(machine.advance(event, at=self.now))

    def _told(self, effects: tuple[Effect, ...]) -> Iterator[str]:
        self.effects += effects
        self._requests |= {effect.id: effect for effect in effects if is_request(effect)}
        yield from (f"  {line_of(effect)}" for effect in effects if told_in_story(effect))

    def _restart(self, act: ProcessLost) -> Iterator[str]:
        """As a session takes over a run: what is done again, and what has become of the rest."""
        machine = self._running
        if act.config is not None:
            self.config = act.config
            machine.reconfigure(act.config)
        recovery = recover(machine, act.at)
        yield machine.state.label
        yield from self._told((*recovery.again, *asked_again(recovery.again)))
        for event in recovery.events:
            yield from self._step(event)

    def _act(self, said: _Answered) -> Act:
        act = COMMANDS[said.head](self, said) if said.head in COMMANDS else None
        if act is None:
            way = f"commands are {', '.join(COMMANDS)}; each case in scenarios_world shows how it is written"
            msg = f"{said.text!r} is not understood; {way}"
            raise LookupError(msg)
        if said.options:
            msg = f"{said.head} takes no {', '.join(said.options)}"
            raise LookupError(msg)
        return act

    # People

    def people(self, said: _Answered) -> Act | None:
        """What people say and decide about the run as a whole."""
        at, idle = self.now, self._idle
        match said.words:
            case ["prompt" | "send" as how, Quoted(text=text)]:
                # prompt "text" [from=ann] [id=x]: opens a run, or waits for the one under way to end;
                # send "text": the same, but opens none, and waits for the next prompt.
                sent = UserSent(at=at, id=self._input(said), text=text, sender=said.option("from"))
                return InputWaits(event=sent, opens=how == "prompt") if idle else sent
            case ["steer", *how, Quoted(text=text)] if not idle:
                # steer [now|after_tool|when_done] "text" [id=x]: into the run that is under way.
                when = Steering(text_of(how[0])) if how else self.config.policy.steering
                return UserSteered(at=at, id=self._input(said), text=text, how=when)
            case ["steer", *_, Quoted(text=text)]:
                # Where none is, it is a prompt.
                return InputWaits(event=UserSent(at=at, id=self._input(said), text=text), opens=True)
            case ["interrupt"]:
                # interrupt: the run is to stop; a second one waits for nothing.
                return Interrupted(at=at)
            case ["control", "model" | "mode" | "thinking" as what, str(value)]:
                # control model NAME, control mode MODE, control thinking TOKENS|none
                control = ControlReceived(at=at, id=self._input(said), change=_change(what, value))
                return InputWaits(event=control, opens=False) if idle else control
            case _:
                return None

    def decide(self, said: _Answered) -> Act | None:
        """What a person answers to a question, or gives up."""
        by = said.option("by")
        match said.words:
            case ["cancel", str(name)]:
                # cancel pay: gives up the one call; the run goes on.
                return CallCancelled(at=self.now, call=self._call(name))
            case ["approve", str(name)]:
                # approve pay [by=ann]
                return self._answer(name, Approve(), by)
            case ["approve", str(name), "with", JsonText(text=text) | Quoted(text=text)]:
                # approve pay with {"amount": 1}: yes, with other arguments.
                return self._answer(name, Approve(arguments=text), by)
            case ["approve", str(name), "always"]:
                # approve pay always [path=src/*]: yes, and do not ask again where the arguments match.
                where = tuple([(argument, said.option(argument)) for argument in tuple(said.options)])
                return self._answer(name, ApproveAlways(where=where), by)
            case ["deny", str(name), *words]:
                # deny pay ["message"] [stop]: no; with stop the run ends, too.
                stop = words[-1:] == ["stop"]
                message = _text(words[:-1] if stop else words)
                return self._answer(name, Deny(message=message, interrupt=stop), by)
            case _:
                return None

    def _answer(self, name: str, decision: Approve | ApproveAlways | Deny, by: str) -> ApprovalGiven:
        request = self._request(AskApproval, name).id
        return ApprovalGiven(at=self.now, request=request, decision=decision, by=by)

    # Performers

    def model(self, said: _Answered) -> Act | None:
        """What the model that is asked says."""
        at, request = self.now, self._request(CallModel).id
        match said.words[1:]:
            case ["streams", *words]:
                # model streams "text", thinks "hm" "proof", calls pay "{\"a", more "mount\": 5}"
                pieces = self._pieces(words, said)
                before = self._streamed[0]
                return ModelStreamed(at=at, request=request, before=before, count=len(pieces), pieces=pieces)
            case ["fails", str(failure), *message]:
                # model fails server ["message"] [retry_after=30] [jitter=0.5] [used=10/5] [seconds=2]
                return ModelFailed(
                    at=at,
                    request=request,
                    failure=Failure(failure),
                    message=_text(message, "as the story goes"),
                    retry_after=said.number("retry_after"),
                    jitter=said.number("jitter") or 0.0,
                    usage=said.usage() if "used" in said.options else None,
                    seconds=said.number("seconds") or 0.0,
                )
            case ["is", "cut", "off", *words]:
                # model is cut off "te", calls pay "{\"am": the answer ran into its token limit.
                return self._finished(request, self._pieces(words, said), said, "max_tokens")
            case ["ends"]:
                # model ends [stop=...] [used=10/5]: the answer is over, with nothing more.
                return self._finished(request, (), said)
            case ["says" | "thinks" | "hides" | "calls", *_] as words:
                # model says "text", calls pay {"amount": 5}, look {} [stop=refusal] [used=10/5] [seconds=2]
                return self._finished(request, self._pieces(words, said), said)
            case _:
                return None

    def _finished(
        self, request: str, pieces: tuple[Piece, ...], said: _Answered, stop: str = ""
    ) -> ModelFinished:
        called = self._streamed[1] or any(isinstance(piece, CallPiece) for piece in pieces)
        return ModelFinished(
            at=self.now,
            request=request,
            stop=StopReason(said.option("stop") or stop or ("tool_use" if called else "end_turn")),
            usage=said.usage(),
            pieces=pieces,
            seconds=said.number("seconds") or 0.0,
            sequence=said.option("sequence"),
        )

    @property
    def _streamed(self) -> tuple[int, int]:
        """How many pieces of the answer have arrived, and how many calls are among them."""
        state = self._running.state
        rope = getattr(getattr(state, "stage", state), "pieces", None)
        calls = [] if rope is None else [piece for piece in rope.pieces if isinstance(piece, CallPiece)]
        return 0 if rope is None else rope.count, len(calls)

    def _pieces(self, words: list[Word], said: _Answered) -> tuple[Piece, ...]:
        """The pieces that phrases say; one that begins with no verb goes on with the verb before."""
        index, verb = self._streamed[1], "says"
        pieces: list[Piece] = []
        for phrase in filter(None, (words, *said.others)):
            verb, rest = (str(phrase[0]), phrase[1:]) if phrase[0] in _VERBS else (verb, phrase)
            match verb, rest:
                case "says", [Quoted(text=text)]:
                    pieces.append(TextPiece(text))
                case "thinks", [Quoted(text=text), *proof]:
                    pieces.append(ReasoningPiece(text, _text(proof)))
                case "hides", [Quoted(text=text)]:
                    pieces.append(ReasoningPiece(redacted=text))
                case "calls", [str(name) | Quoted(text=name), *arguments]:
                    pieces.append(CallPiece(index, f"wire-{index}", name, _text(arguments, "{}")))
                    index += 1
                case "more", [Quoted(text=text)]:
                    pieces.append(CallPiece(index - 1, arguments=text))
                case _:
                    msg = f"an answer says, thinks, hides, calls, or has more; got {phrase}"
                    raise LookupError(msg)
        return tuple(pieces)

    def tool(self, said: _Answered) -> Act | None:
        """What a tool does that is at work."""
        at, name, seconds = self.now, text_of((*said.words, "", "")[1]), said.number("seconds") or 0.0
        request = self._request(RunTool, name).id
        match said.words[2:]:
            case ["returns", Quoted(text=text)]:
                # tool look returns "text" [seconds=3]
                return ToolFinished(at=at, request=request, content=text, seconds=seconds)
            case ["fails", *outcome, Quoted(text=text)]:
                # tool look fails [error|timed_out|crashed|cancelled] "text" [seconds=3]
                how = Outcome(text_of(outcome[0]) if outcome else "error")
                return ToolFinished(at=at, request=request, content=text, outcome=how, seconds=seconds)
            case ["reports", Quoted(text=text)]:
                # tool look reports "text": how far it is, for those who watch.
                return ToolProgressed(at=at, request=request, text=text)
            case ["is", "lost"]:
                # tool pay is lost: its process is gone, and it may have run; restart says so by itself.
                return ToolLost(at=at, request=request)
            case _:
                return None

    def others(self, said: _Answered) -> Act | None:
        """What hooks, children, timers and the reader of instructions do."""
        match said.words:
            case ["hook", *words]:
                # hook guard denies "no" [about=pay], audit adds "text": those not named have nothing to say.
                fired = self._request(FireHook, said.option("about"))
                answers = {name: HookSaid(name=name) for name in fired.names}
                answers |= dict(map(_hook_said, (words, *said.others)))
                return HookAnswered(at=self.now, request=fired.id, said=tuple(answers.values()))
            case ["child", str(name), "spends"]:
                # child kid spends [turns=1] [used=10/5] [seconds=2]: so far, and it goes on.
                return AgentProgressed(
                    at=self.now, request=self._request(RunAgent, name).id, spent=said.spent()
                )
            case ["child", str(name), "returns" | "fails" as how, *outcome, Quoted(text=text)]:
                # child kid returns "text", child kid fails [cancelled] "text" [turns=1] [used=10/5]
                return AgentFinished(
                    at=self.now,
                    request=self._request(RunAgent, name).id,
                    content=text,
                    outcome=Outcome(
                        text_of(outcome[0]) if outcome else "ok" if how == "returns" else "error"
                    ),
                    spent=said.spent(),
                )
            case ["timer", "fires"]:
                # timer fires: the time of the earliest open timer has come; the clock moves there.
                timer = self._request(SetTimer)
                self.now = max(self.now, timer.due)
                return TimerFired(at=self.now, request=timer.id)
            case ["instructions", Quoted(text=text)]:
                # instructions "text" [fault="why not all of it"]
                faults = tuple(filter(None, [said.option("fault")]))
                request = self._request(ReadInstructions).id
                return InstructionsRead(at=self.now, request=request, text=text, faults=faults)
            case _:
                return None

    # The process, and readers

    def process(  # noqa: PLR0911  # one return for each command, and two for an event
        self, said: _Answered
    ) -> Act | None:
        """What happens to the process, to time and to settings."""
        match said.words:
            case ["restart" | "agent" as how, *_]:
                # restart [SETTINGS]: the process is lost, and another one goes on with the run;
                # agent SETTINGS: the runs that begin from now on have other settings.
                config = with_settings(self.config, attrs.evolve(said.first, options=dict(said.options)))
                said.options.clear()
                if how == "restart":
                    return ProcessLost(at=self.now, config=None if config == self.config else config)
                self.config = config
                return ()
            case ["event", JsonText(text=text)]:
                # event {"type": ...}: any other event, as a journal has it; its time is that of the command.
                event: Event = decode(text.encode(), Event, "this event")
                event = attrs.evolve(event, at=self.now)
                if isinstance(event, UserSent | ControlReceived) and self._idle:
                    return InputWaits(event=event, opens=isinstance(event, UserSent))
                return event
            case ["again"] if self._last is not None:
                # again: the latest event arrives once more, as a repeated delivery does.
                return attrs.evolve(self._last, at=self.now)
            case ["tick", *seconds]:
                # tick [SECONDS]: time passes, and nothing else.
                self.now += float(text_of(seconds[0])) - 1.0 if seconds else 0.0
                return ()
            case _:
                return None

    def looks(self, said: _Answered) -> Act | None:
        """What a reader wants to see."""
        match said.words:
            case ["state"]:
                # state: where the run is and what it waits for.
                return (state_line(self._running.state),)
            case ["memory"]:
                # memory: what the run knows, its account and its messages.
                return tuple(memory_lines(self._running.memory))
            case ["history"]:
                # history: the messages alone.
                return tuple(history_lines(self._running.memory.history))
            case _:
                return None

    # What is meant

    def _input(self, said: _Answered) -> str:
        self._inputs += 1
        return said.option("id") or f"input-{self._inputs}"

    def _request(self, kind: type[R], name: str = "") -> R:
        """The open request of *kind* that *name* means, of timers the earliest; the latest of all if late."""
        name, _, number = name.partition("#")
        there = (
            self._requests.values()
            if self._late
            else map(self._requests.__getitem__, self._running.state.open)
        )
        found = [one for one in there if isinstance(one, kind) and (not name or name in self._names(one))]
        if len(found) < int(number or 1):
            known = [line_of(self._requests[one]) for one in self._running.state.open]
            msg = f"no {kind.__name__} {name} is open; open are: {', '.join(known) or 'none'}"
            raise LookupError(msg)
        if number or self._late:
            return found[-1] if self._late else found[int(number) - 1]
        return min(found, key=lambda one: one.due if isinstance(one, SetTimer) else 0.0)

    def _names(self, request: Request) -> list[str]:
        """What *request* goes by: its tool, its agent, or the tool it is about."""
        match request:
            case RunTool(tool=name) | AskApproval(tool=name) | RunAgent(agent=name):
                return [name]
            case FireHook(call=call):
                return [name for name, known in self._calls if known == call]
            case _:
                return []

    @property
    def _calls(self) -> list[tuple[str, str]]:
        """Tool and id of every call of the batch."""
        batch = getattr(self._running.state, "batch", None)
        return [] if batch is None else [(one.call.name, one.call.id) for one in batch.calls]

    def _call(self, name: str) -> str:
        name, _, number = name.partition("#")
        found = [call for tool, call in self._calls if tool == name]
        if len(found) < int(number or 1):
            msg = f"no call of {name!r} is there; there are: {', '.join(tool for tool, _ in self._calls)}"
            raise LookupError(msg)
        return found[int(number or 1) - 1]


COMMANDS: Final[Mapping[str, Callable[[ScenarioWorld, _Answered], Act | None]]] = {
    **dict.fromkeys(("prompt", "send", "steer", "interrupt", "control"), ScenarioWorld.people),
    **dict.fromkeys(("approve", "deny", "cancel"), ScenarioWorld.decide),
    "model": ScenarioWorld.model,
    "tool": ScenarioWorld.tool,
    **dict.fromkeys(("hook", "child", "timer", "instructions"), ScenarioWorld.others),
    **dict.fromkeys(("restart", "agent", "event", "again", "tick"), ScenarioWorld.process),
    **dict.fromkeys(("state", "memory", "history"), ScenarioWorld.looks),
}
"""Which method has the `case` of a command."""


@final
class _Answered:
    """A *command* being read: the words of its phrases, and the options that nothing has used yet."""

    def __init__(self, command: Command) -> None:
        self.first, self.text = command.phrases[0], command.text
        self.late = self.first.words[:1] == ("late",)
        self.words = list(self.first.words[self.late :])
        self.head = text_of(self.words[0]) if self.words else ""
        self.others = [list(phrase.words) for phrase in command.phrases[1:]]
        self.options = {name: value for one in command.phrases for name, value in one.options.items()}

    def option(self, name: str) -> str:
        """The option *name* as text, which is used with that; empty where it is not given."""
        return text_of(self.options.pop(name, ""))

    def number(self, name: str) -> float | None:
        """The option *name* as a number."""
        text = self.option(name)
        return float(text) if text else None

    def usage(self, default: str = "10/5") -> Usage:
        """``used=10/5``: tokens, in the order of `TOKENS`."""
        used = priced(self.option("used") or default)
        return Usage(**{kind: int(number) for kind, number in used.items()})

    def spent(self) -> Spent:
        """``turns=1 used=10/5 seconds=2``."""
        seconds, used = self.number("seconds") or 0.0, self.usage("0/0")
        return Spent(turns=int(self.number("turns") or 0), usage=used, seconds=seconds)


def _change(what: str, value: str) -> Change:
    match what:
        case "model":
            return SetModel(model=value)
        case "mode":
            return SetMode(mode=PermissionMode(value))
        case _:
            return SetThinking(tokens=None if value == "none" else int(value))


_VERBS: Final = frozenset({"says", "thinks", "hides", "calls", "more"})
_VERDICTS: Final = {"allows": "allow", "asks": "ask", "denies": "deny"}


def _text(words: list[Word], default: str = "") -> str:
    if len(words) > 1:
        msg = f"expected one text; got {' '.join(map(text_of, words))}"
        raise ValueError(msg)
    return text_of(words[0]) if words else default


def _hook_said(words: list[Word]) -> tuple[str, HookSaid]:
    """What one hook says: ``guard denies "no" stop``, ``guard rewrites {}``, ``guard continues "why"``."""
    name, fault, answer = text_of(words[0]), "", HookAnswer()
    stop = words[-1:] == ["stop"]
    match words[1 : -1 if stop else None]:
        case ["allows" | "asks" | "denies" as verb, *reason]:
            answer = HookAnswer(verdict=_VERDICTS[verb], reason=_text(reason), interrupt=stop)
        case ["rewrites", arguments]:
            answer = HookAnswer(arguments=text_of(arguments))
        case ["adds", Quoted(text=text)]:
            answer = HookAnswer(context=text)
        case ["continues", *reason]:
            answer = HookAnswer(go_on=True, reason=_text(reason))
        case ["fails", Quoted(text=fault)]:
            pass
        case ["passes"]:
            pass
        case _:
            msg = f"hook {name} can allow, ask, deny, rewrite, add, continue, fail or pass"
            raise LookupError(msg)
    return name, HookSaid(name=name, answer=answer, fault=fault)


def _way(machine: Machine, event: Event | None, at: float) -> Iterator[str]:
    """The states that *machine* will go through on *event*, from the one that it is in."""
    state, memory = machine.state, machine.memory
    yield state.label
    while event is not None or not (state.open or isinstance(state, Done)):
        state, memory, _ = advance(machine.config, state, memory, event or Entered(at=at))
        yield state.label
        event = None


def as_driven(event: Event, requests: Mapping[str, Request]) -> Event:
    """*event* as a driver hands it on: a failed answer to what was tried before says that it may have run."""
    request = requests.get(getattr(event, "request", ""))
    if request is None or not isinstance(event, Answer) or isinstance(event, ToolLost):
        return event
    return check_answer(request, event, event.at) or event


def asked_again(requests: Iterable[Request | Cancel]) -> Iterator[ApprovalRequested]:
    """What those who watch see of the questions among *requests* when a run is taken over."""
    for question in requests:
        if isinstance(question, AskApproval):
            fields = attrs.asdict(question)
            yield ApprovalRequested(request=fields.pop("id"), **fields)
