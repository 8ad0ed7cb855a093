"""
The world of a scenario: its commands as events for a bare machine, and the text of what that does.

Every command is documented at its `case`. Each happens a second after the one before; ``at=12.5`` says
otherwise. A call is named by its tool, ``look#2`` is the second of that name; without a number the first is
meant that waits. ``late`` before a command answers the latest request of its kind, open or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar, final

import attrs

from ..display.rendering import history_lines, line_of, memory_lines, state_line
from ..effects import Effect, events, is_request, notices, records, requests
from ..effects.config import Config, Steering
from ..effects.events import ControlReceived, Event, InputWithdrawn, UserSent
from ..effects.findings import Finding
from ..effects.history import CallPiece, Piece, ReasoningPiece, TextPiece
from ..effects.hooks import HookAnswer, HookSaid
from ..effects.notices import ApprovalRequested
from ..effects.permissions import Basis, PermissionMode, Verdict
from ..effects.records import MailKind
from ..effects.requests import Request
from ..effects.usage import Spent, Usage
from ..engine.core.codec import decode
from ..engine.core.machine import Machine, in_sandbox_of, with_restrictions
from ..engine.core.recovery import recover
from ..engine.inspect.transitions import steps
from ..engine.journal.entries import RunOpened
from ..performers.answers import check_answer
from ..performers.tools.inspection import look_without_disk
from ..states.rules.inputs import joins_until
from ..states.rules.schema import arguments_of
from ..states.thinking import resumed
from . import scenarios
from .harness import streamed
from .scenarios import Command, JsonText, Quoted, Scenario, ScenarioError, Word, text_of

R = TypeVar("R", bound=Request)

# The session that a scenario plays in.
STORY_SESSION = "story"


@final
@attrs.frozen(kw_only=True)
class InputWaits:
    """No run is under way, and *event* waits; with *opens* a run begins on it."""

    event: UserSent | ControlReceived | InputWithdrawn
    opens: bool


@final
@attrs.frozen(kw_only=True)
class ProcessLost:
    """The process is lost, and another one goes on *at* that time, under *config* where that is another."""

    at: float
    config: Config | None


# What a command comes to: an event for the run, or text to be shown, or as above.
Act = Event | InputWaits | ProcessLost | tuple[str, ...]


def play_scenario(scenario: Scenario) -> list[list[str]]:
    """What each block of *scenario* leads to, as it is recorded. Raises `ScenarioError`."""
    world = ScenarioWorld(scenario.config, scenario.subject)
    return [
        [line for command in commands for line in world.perform(command, scenario.name)]
        for commands in scenario.blocks
    ]


@final
class ScenarioWorld:
    """
    A bare machine under *config*, moved by commands. `perform` gives the text of one.

    *acts* are what the latest command came to, runs that were opened among them, and *effects* all that the
    machine said: others can be put to the same, and compared. *subject* is that of the scenario.
    """

    def __init__(self, config: Config, subject: Config | None = None) -> None:
        self.config = config
        self._subject = subject
        self.machine: Machine | None = None
        self.now = 0.0
        self.effects: list[Effect] = []
        self.acts: list[Act | RunOpened] = []
        self._posted: list[UserSent | ControlReceived | InputWithdrawn] = []
        self._requests: dict[str, Request] = {}
        self._runs = self._inputs = 0
        self._last: Event | None = None
        # Of the command that happens: the options that nothing has used yet, and the words behind commas.
        self._options: dict[str, scenarios.Value] = {}
        self._others: list[list[Word]] = []
        self._late = False

    def perform(self, command: Command, name: str = "scenario") -> Iterator[str]:
        """Let *command*, of the scenario *name*, happen; the lines that are recorded of it."""
        first, *others = command.phrases
        self.effects, self.acts, self._late = [], [], first.words[:1] == ("late",)
        self._options = {name: value for one in command.phrases for name, value in one.options.items()}
        self._others = [list(phrase.words) for phrase in others]
        try:
            at = self._option("at")
            self.now = float(at) if at else self.now + 1.0
            yield from self._open_next()
            act = self._act(list(first.words[self._late :]), command.text)
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
        while self.machine is not None and self.machine.done:
            withdrawn = [one.input for one in self._posted if isinstance(one, InputWithdrawn)]
            prompts = self.machine.memory.waiting(MailKind.PROMPT)
            mail = tuple([prompt for prompt in prompts if prompt.id not in withdrawn])
            until = joins_until(mail, self.config.policy)
            if not mail or (until is not None and self.now < until):
                return
            yield from self._open()

    def _open(self) -> Iterator[str]:
        self._runs += 1
        name = "run" if self._runs == 1 else f"run{self._runs}"
        next_id = 1 if self.machine is None else self.machine.memory.next_id
        opened = RunOpened(at=self.now, run=name, config=self.config, next_id=next_id)
        self.acts.append(opened)
        self.machine = Machine.open(opened, self.machine, self._posted, session=STORY_SESSION)
        self._posted = []
        yield from self._step(None)

    def _step(self, event: Event | None) -> Iterator[str]:
        """Let *event* happen; the way the machine went, and what it said."""
        machine = self._running
        way = [step.following.label for step in steps(machine, event, at=self.now)]
        yield " > ".join(label for label, _ in groupby([machine.state.label, *way]))
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
        again = (*recovery.again, *asked_again(recovery.again, act.at))
        yield from self._told((resumed(machine.config, machine.memory, act.at), *again))
        for event in recovery.events:
            yield from self._step(event)

    def _act(self, words: list[Word], text: str) -> Act:
        head = text_of(words[0]) if words else ""
        act = next(COMMANDS[head](self, words), None) if head in COMMANDS else None
        if act is None:
            way = f"commands are {', '.join(COMMANDS)}; each case in scenarios_world shows how it is written"
            msg = f"{text!r} is not understood; {way}"
            raise LookupError(msg)
        if self._options:
            msg = f"{head} takes no {', '.join(self._options)}"
            raise LookupError(msg)
        # What arrives once more is meant for the run that it came to first.
        if self._idle and head != "again" and isinstance(act, UserSent | ControlReceived | InputWithdrawn):
            return InputWaits(event=act, opens=isinstance(act, UserSent) and head != "send")
        return act

    # People

    def people(self, words: list[Word]) -> Iterator[Act]:
        """What people say and decide about the run as a whole."""
        at = self.now
        match words:
            case ["prompt" | "send", Quoted(text=text)]:
                # prompt "text" [from=ann] [id=x]: opens a run, or waits for the one under way to end;
                # send "text": the same, but opens none, and waits for the next prompt.
                yield UserSent(at=at, id=self._input(), text=text, sender=self._option("from"))
            case ["steer", *how, Quoted(text=text)] if not self._idle:
                # steer [now|after_tool|when_done] "text" [id=x]: into the run that is under way.
                when = Steering(text_of(how[0])) if how else self.config.policy.steering
                yield events.UserSteered(at=at, id=self._input(), text=text, how=when)
            case ["steer", *_, Quoted(text=text)]:
                # Where none is, it is a prompt.
                yield UserSent(at=at, id=self._input(), text=text)
            case ["withdraw", str(name) | Quoted(text=name)]:
                # withdraw x: takes back the prompt or steer with that id, which was not read.
                yield InputWithdrawn(at=at, input=name)
            case ["interrupt" | "abort" as how]:
                # interrupt, abort: the run is to stop, for a person or because its caller was cancelled;
                # a second one waits for nothing.
                yield events.Interrupted(at=at, aborted=how == "abort")
            case ["control", "model" | "mode" | "thinking" as what, str(value)]:
                # control model NAME, control mode MODE, control thinking TOKENS|none
                yield ControlReceived(at=at, id=self._input(), change=_CHANGES[what](value))
            case _:
                pass

    def decide(self, words: list[Word]) -> Iterator[Act]:
        """What a person answers to a question, or gives up."""
        match words:
            case ["cancel", str(name)]:
                # cancel pay: gives up the one call; the run goes on.
                yield events.CallCancelled(at=self.now, call=self._call(name))
            case ["approve", str(name)]:
                # approve pay [by=ann]
                yield self._decided(name, events.Approve())
            case ["approve", str(name), "with", JsonText(text=text) | Quoted(text=text)]:
                # approve pay with {"amount": 1}: yes, with other arguments.
                yield self._decided(name, events.Approve(arguments=text))
            case ["approve", str(name), "always"]:
                # approve pay always [path=src/*]: yes, and do not ask again where the arguments match.
                where = tuple([(key, self._option(key)) for key in tuple(self._options) if key != "by"])
                yield self._decided(name, events.ApproveAlways(where=where))
            case ["deny", str(name), *words]:
                # deny pay ["message"] [stop]: no; with stop the run ends, too.
                stop = words[-1:] == ["stop"]
                message = _text(words[:-1] if stop else words)
                yield self._decided(name, events.Deny(message=message, interrupt=stop))
            case _:
                pass

    def _decided(self, name: str, decision: events.Decision) -> Event:
        request = self._request(requests.AskApproval, name)
        return self._answer(events.ApprovalGiven, request, decision=decision)

    # Performers

    def _answer(self, kind: type, request: Request, **fields: Any) -> Event:  # noqa: ANN401  # any that *kind* has
        """The event of *kind* that answers *request* with these *fields*, and those that options name."""
        named = self._options.keys() & _FIELDS.keys() & attrs.fields_dict(kind).keys()
        fields |= {name: _FIELDS[name](self._option(name)) for name in named}
        event: Event = kind(at=self.now, request=request.id, **fields)
        return event

    def model(self, words: list[Word]) -> Iterator[Act]:
        """What the model that is asked says."""
        request = self._request(requests.CallModel)
        match words[1:]:
            case ["streams", *words]:
                # model streams "text", thinks "hm" "proof", calls pay "{\"a", more "mount\": 5}"
                pieces = self._pieces(words)
                numbers = {"before": streamed(self._running.state).count, "count": len(pieces)}
                yield self._answer(events.ModelStreamed, request, pieces=pieces, **numbers)
            case ["fails", str(failure), *message]:
                # model fails server ["message"] [retry_after=30] [jitter=0.5] [used=10/5] [seconds=2]
                # [should_retry=no] [max_output=4000]
                fields = {"failure": events.Failure(failure), "message": _text(message, "as the story goes")}
                usage = self._usage() if "used" in self._options else None
                yield self._answer(events.ModelFailed, request, usage=usage, **fields)
            case ["is", "cut", "off", *words]:
                # model is cut off "te", calls pay "{\"am": the answer ran into its token limit.
                yield self._finished(self._pieces(words), "max_tokens")
            case ["ends"]:
                # model ends [stop=...] [used=10/5]: the answer is over, with nothing more.
                yield self._finished(())
            case ["says" | "thinks" | "hides" | "calls", *_] as words:
                # model says "text", calls pay {"amount": 5}, look {} [stop=refusal] [used=10/5] [seconds=2]
                # model says "text", says anew "text": a text of its own.
                yield self._finished(self._pieces(words))
            case _:
                pass

    def _finished(self, pieces: tuple[Piece, ...], stop: str = "") -> Event:
        called = any(isinstance(one, CallPiece) for one in streamed(self._running.state).pieces + pieces)
        fields = {"stop": stop or ("tool_use" if called else "end_turn"), "usage": self._usage()}
        return self._answer(events.ModelFinished, self._request(requests.CallModel), pieces=pieces, **fields)

    def _pieces(self, words: list[Word]) -> tuple[Piece, ...]:
        """The pieces that phrases say; one that begins with no verb goes on with the verb before."""
        before, verb = streamed(self._running.state).pieces, "says"
        index = sum(isinstance(piece, CallPiece) for piece in before)
        pieces: list[Piece] = []
        for phrase in filter(None, (words, *self._others)):
            verb, rest = (str(phrase[0]), phrase[1:]) if phrase[0] in _VERBS else (verb, phrase)
            match verb, rest:
                case "says", [*anew, Quoted(text=text)] if anew in ([], ["anew"]):
                    pieces.append(TextPiece(text, begins=bool(anew)))
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

    def tool(self, words: list[Word]) -> Iterator[Act]:
        """What a tool does that is at work."""
        request = self._request(requests.RunTool, text_of((*words, "")[1]))
        match words[2:]:
            case ["returns" | "fails" as how, *outcome, Quoted(text=text)]:
                # tool look returns "text" [seconds=3]
                # tool look fails [error|timed_out|crashed|cancelled] "text" [seconds=3]
                ended = _outcome(how, outcome)
                yield self._answer(events.ToolFinished, request, content=text, outcome=ended)
            case ["reports", Quoted(text=text)]:
                # tool look reports "text": how far it is, for those who watch.
                yield self._answer(events.ToolProgressed, request, text=text)
            case ["is", "lost"]:
                # tool pay is lost: its process is gone, and it may have run; restart says so by itself.
                yield self._answer(events.ToolLost, request)
            case _:
                pass

    def others(self, words: list[Word]) -> Iterator[Act]:
        """What hooks, children, timers and the reader of instructions do."""
        match words:
            case ["hook", _, *_]:
                # hook guard denies "no" [about=pay], audit adds "text": those not named have nothing to say.
                fired = self._request(requests.FireHook, self._option("about"))
                said = {name: HookSaid(name=name) for name in fired.names}
                answers = {one.name: one for one in map(_hook_said, (words[1:], *self._others))}
                if unasked := answers.keys() - said.keys():
                    msg = (
                        f"no hook {', '.join(sorted(unasked))} is asked; there are: {', '.join(fired.names)}"
                    )
                    raise LookupError(msg)
                said |= answers
                yield self._answer(events.HookAnswered, fired, said=tuple(said.values()))
            case ["child", str(name), "spends"]:
                # child kid spends [turns=1] [used=10/5] [seconds=2]: so far, and it goes on.
                child = self._request(requests.RunAgent, name)
                yield self._answer(events.AgentProgressed, child, spent=self._spent())
            case ["child", str(name), "returns" | "fails" as how, *outcome, Quoted(text=text)]:
                # child kid returns "text", child kid fails [cancelled] "text" [turns=1] [used=10/5]
                child = self._request(requests.RunAgent, name)
                fields = {"content": text, "outcome": _outcome(how, outcome), "spent": self._spent()}
                yield self._answer(events.AgentFinished, child, **fields)
            case ["timer", "fires"]:
                # timer fires: the time of the earliest open timer has come; the clock moves there.
                timer = self._request(requests.SetTimer)
                self.now = max(self.now, timer.due)
                yield self._answer(events.TimerFired, timer)
            case ["output", "right"]:
                # output right: its class takes it.
                yield self._answer(events.OutputDecoded, self._request(requests.DecodeOutput))
            case ["output", "wrong", Quoted(text=text)]:
                # output wrong "why"
                yield self._answer(events.OutputDecoded, self._request(requests.DecodeOutput), fault=text)
            case ["instructions", Quoted(text=text)]:
                # instructions "text" [fault="why not all of it"]
                reading, fault = self._request(requests.ReadInstructions), self._option("fault")
                faults = (fault,) if fault else ()
                yield self._answer(events.InstructionsRead, reading, text=text, faults=faults)
            case _:
                pass

    def inspection(self, words: list[Word]) -> Iterator[Act]:
        """What a look at a call finds that rules for paths or commands judge; no disk is read."""
        request = self._request(requests.InspectCall, text_of((*words, "")[1]))
        match words[2:]:
            case []:
                # inspection write: its paths lead through no link; its command runs what it says.
                real = ""
            case ["reaches", Quoted(text=real)]:
                # inspection write reaches "/etc/passwd": its paths are links to this one.
                pass
            case _:
                return
        config = self._running.config
        spec, arguments = config.tool(request.tool), arguments_of(request.arguments)
        finding = Finding()
        if spec is not None:
            finding = look_without_disk(spec, arguments or {}, str(Path("/", config.cwd)), real)
        yield self._answer(events.CallInspected, request, finding=finding)

    # The process, and readers

    def process(self, words: list[Word]) -> Iterator[Act]:
        """What happens to the process, to time and to settings; and what a reader wants to see."""
        match words:
            case ["restart" | "agent" as how, *_]:
                # restart [SETTINGS]: the process is lost, and another one goes on with the run;
                # agent SETTINGS: the runs that begin from now on have other settings.
                settings = scenarios.Phrase(words=tuple(words), options=self._options)
                config, self._options = scenarios.with_settings(self.config, settings, self._subject), {}
                # As a session does it: what rules of a run denied or asked about holds from then on.
                config = with_restrictions(config, None if self.machine is None else self.machine.config)
                if how == "restart":
                    config = config if self.machine is None else in_sandbox_of(self.machine.config, config)
                    yield ProcessLost(at=self.now, config=None if config == self.config else config)
                else:
                    self.config = config
                    yield ()
            case ["event", JsonText(text=text)]:
                # event {"type": ...}: any other event, as a journal has it; its time is that of the command.
                event: Event = decode(text.encode(), Event, "this event")
                yield attrs.evolve(event, at=self.now)
            case ["again"] if self._last is not None:
                # again: the latest event arrives once more, as a repeated delivery does.
                yield attrs.evolve(self._last, at=self.now)
            case ["tick", *seconds]:
                # tick [SECONDS]: time passes, and nothing else.
                self.now += float(text_of(seconds[0])) - 1.0 if seconds else 0.0
                yield ()
            case ["state"]:
                # state: where the run is and what it waits for.
                yield (state_line(self._running.state),)
            case ["memory"]:
                # memory: what the run knows, its account and its messages.
                yield tuple(memory_lines(self._running.memory))
            case ["history"]:
                # history: the messages alone.
                yield tuple(history_lines(self._running.memory.history))
            case _:
                pass

    # What is meant

    def _option(self, name: str) -> str:
        """The option *name* as text, which is used with that; empty where it is not given."""
        return text_of(self._options.pop(name, ""))

    def _usage(self, default: str = "10/5") -> Usage:
        """``used=10/5``: tokens, in the order of `TOKENS`."""
        used = scenarios.priced(self._option("used") or default)
        return Usage(**{kind: int(number) for kind, number in used.items()})

    def _spent(self) -> Spent:
        """``turns=1 used=10/5 seconds=2``."""
        turns, seconds = int(self._option("turns") or 0), float(self._option("seconds") or 0.0)
        return Spent(turns=turns, usage=self._usage("0/0"), seconds=seconds)

    def _input(self) -> str:
        self._inputs += 1
        return self._option("id") or f"input-{self._inputs}"

    def _request(self, kind: type[R], name: str = "") -> R:
        """The open request of *kind* that *name* means, of timers the earliest; the latest of all if late."""
        name, _, number = name.partition("#")
        there = map(self._requests.__getitem__, self._requests if self._late else self._running.state.open)
        found = [one for one in there if isinstance(one, kind) and (not name or name in self._names(one))]
        if len(found) < int(number or 1):
            known = map(self._requests.__getitem__, self._running.state.open)
            lines = [f"{line_of(one)} (answer: {ANSWERED_BY[type(one)]})" for one in known]
            msg = f"no {f'{kind.__name__} {name}'.strip()} is open; open are: {', '.join(lines) or 'none'}"
            raise LookupError(msg)
        if self._late:
            return found[-1]
        found.sort(key=lambda one: one.due if isinstance(one, requests.SetTimer) else 0.0)
        return found[int(number or 1) - 1]

    def _names(self, request: Request) -> list[str]:
        """What *request* goes by: its tool, its agent, or the tool it is about."""
        if isinstance(request, requests.FireHook):
            return [name for name, known in self._calls if known == request.call]
        return [getattr(request, "tool", getattr(request, "agent", ""))]

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


# Which method has the `case` of a command.
COMMANDS: Final[Mapping[str, Callable[[ScenarioWorld, list[Word]], Iterator[Act]]]] = {
    **dict.fromkeys(
        ("prompt", "send", "steer", "withdraw", "interrupt", "abort", "control"), ScenarioWorld.people
    ),
    **dict.fromkeys(("approve", "deny", "cancel"), ScenarioWorld.decide),
    "model": ScenarioWorld.model,
    "tool": ScenarioWorld.tool,
    "inspection": ScenarioWorld.inspection,
    **dict.fromkeys(("hook", "child", "timer", "instructions"), ScenarioWorld.others),
    **dict.fromkeys(
        ("restart", "agent", "event", "again", "tick", "state", "memory", "history"), ScenarioWorld.process
    ),
}


# The command that answers a request, as errors say it.
ANSWERED_BY: Final[Mapping[type[Request], str]] = {
    requests.CallModel: "model ...",
    requests.RunTool: "tool ...",
    requests.AskApproval: "approve, deny",
    requests.FireHook: "hook ...",
    requests.InspectCall: "inspection ...",
    requests.ReadInstructions: "instructions ...",
    requests.DecodeOutput: "output ...",
    requests.RunAgent: "child ...",
    requests.SetTimer: "timer fires",
}

_CHANGES: Final[Mapping[str, Callable[[str], records.Change]]] = {
    "model": lambda value: records.SetModel(model=value),
    "mode": lambda value: records.SetMode(mode=PermissionMode(value)),
    "thinking": lambda value: records.SetThinking(tokens=None if value == "none" else int(value)),
}

# The options that are a field of an event of the same name, and how they are read.
_FIELDS: Final[Mapping[str, Callable[[str], object]]] = {
    **dict.fromkeys(("by", "sequence", "stop"), str),
    **dict.fromkeys(("jitter", "retry_after", "seconds"), float),
    "max_output": int,
    "should_retry": {"yes": True, "no": False}.__getitem__,
}

_VERBS: Final = frozenset({"says", "thinks", "hides", "calls", "more"})
_VERDICTS: Final = {"allows": "allow", "asks": "ask", "denies": "deny"}


def _text(words: list[Word], default: str = "") -> str:
    if len(words) > 1:
        msg = f"expected one text; got {' '.join(map(text_of, words))}"
        raise ValueError(msg)
    return text_of(words[0]) if words else default


def _outcome(how: str, words: list[Word]) -> str:
    """How a tool or a child ended: ``returns``, or ``fails`` and the words before its text."""
    return _text(words, "ok" if how == "returns" else "error")


def _hook_said(words: list[Word]) -> HookSaid:
    """What one hook says: ``guard denies "no" stop``, ``guard rewrites {}``, ``guard continues "why"``."""
    name, stop = text_of(words[0]), words[-1:] == ["stop"]
    match words[1 : -1 if stop else None]:
        case ["allows" | "asks" | "denies" as verb, *reason]:
            answer = HookAnswer(verdict=_VERDICTS[verb], reason=_text(reason), interrupt=stop)
        case ["rewrites", arguments]:
            answer = HookAnswer(arguments=text_of(arguments))
        case ["adds", Quoted(text=text)]:
            answer = HookAnswer(context=text)
        case ["continues", *reason]:
            answer = HookAnswer(go_on=True, reason=_text(reason))
        case ["fails", Quoted(text=text)]:
            return HookSaid(name=name, fault=text)
        case ["passes"]:
            answer = HookAnswer()
        case _:
            msg = f"hook {name} can allow, ask, deny, rewrite, add, continue, fail or pass"
            raise LookupError(msg)
    return HookSaid(name=name, answer=answer)


def as_driven(event: Event, open_requests: Mapping[str, Request]) -> Event:
    """*event* as a driver hands it on: a failed answer to what was tried before says that it may have run."""
    request = open_requests.get(getattr(event, "request", ""))
    if request is None or not isinstance(event, events.Answer) or isinstance(event, events.ToolLost):
        return event
    return check_answer(request, event, event.at) or event


def asked_again(again: Iterable[Request | requests.Cancel], at: float) -> Iterator[ApprovalRequested]:
    """What those who watch see of the questions among *again* when a run is taken over *at* this time."""
    for question in again:
        if isinstance(question, requests.AskApproval):
            yield ApprovalRequested.of(question, at)


# A story tells each thing once: these say again what a request, a message or the command above them says.
SAID_ELSEWHERE: Final = frozenset(
    {records.UseIds, records.AddUsage, records.TakeMail, records.ClearContext, records.CountCompaction}
    | {records.CountPauses}
    | {notices.RunStarted, notices.ModelCalled, notices.ToolStarted, notices.AgentStarted, notices.TurnEnded}
    | {notices.AnswerFailed, notices.AnswerKept, notices.SummaryEnded, notices.RunResumed}
    | {notices.InputTaken, notices.InputReceived}
    | {notices.InterruptRequested, notices.SettingChanged}
    | {notices.HookAsked, notices.HookEnded, notices.ApprovalRequested, notices.ApprovalResolved}
    | {notices.CompactionStarted, notices.CallDelta}
)


def told_in_story(effect: Effect) -> bool:
    """Whether a story tells *effect*: what is asked, what changes, and what nothing else says."""
    match effect:
        case notices.CallJudged():
            # A question and its answer, and a tool that runs as it says of itself, explain themselves.
            plainly = effect.ground in {Basis.TOOL, Basis.PERSON, Basis.LOST}
            return not plainly and effect.verdict is not Verdict.ASK
        # Each session sets them once, most of them to nothing.
        case records.SetInstructions():
            return bool(effect.text)
        # Only time that ran out has no other line. Any other withdrawal follows from an event, which has one.
        case notices.ApprovalWithdrawn():
            return effect.late
        # What is not listed is told: a word that is new must not be missing from stories.
        case _:
            return type(effect) not in SAID_ELSEWHERE
