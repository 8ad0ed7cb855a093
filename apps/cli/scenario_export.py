"""Turn a session's journal into a scenario: its events as commands, with the recorded outcome."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, assert_never, final

import attrs

from ...display.rendering import history_lines
from ...effects import is_request
from ...effects.config import Config
from ...effects.errors import ConfigError
from ...effects.events import (
    ApprovalGiven,
    Approve,
    ControlReceived,
    Event,
    InputWithdrawn,
    Interrupted,
    ModelFinished,
    TimerFired,
    ToolFinished,
    UserSent,
    UserSteered,
)
from ...effects.history import CallPiece, Piece, TextPiece
from ...effects.messages import Outcome
from ...effects.requests import Request
from ...effects.usage import Usage
from ...engine.core.codec import converter
from ...engine.core.machine import Machine
from ...engine.core.recovery import recover
from ...engine.journal.entries import (
    Branched,
    Entry,
    Forked,
    HandedOver,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
    Titled,
    time_of,
)
from ...engine.journal.fold import initial_state, read
from ...testing.scenarios import ScenarioError, read_scenario, rewritten
from ...testing.scenarios_world import ScenarioWorld
from ..terminal.sanitize import whole_name


def scenario_of(entries: Sequence[bytes], session: str) -> str:
    """
    The journal *entries* of *session* as a scenario, with the outcome on the bare machine.

    Times count from a second before the session began. Raises `ConfigError` for a session whose events are
    not one line: it went back, is a fork, or two processes sent inputs at once.
    """
    writer, folded = _ScenarioWriter(), initial_state(entries)
    blocks = [f"# What happened in session {whole_name(session)}."]
    for entry, effects in read(entries, session, folded):
        blocks += writer.commands(entry)
        writer.requests |= {effect.id: effect for effect in effects if is_request(effect)}
        writer.open = () if folded.machine is None else folded.machine.state.open
        writer.machine = folded.machine
    text = "\n\n".join(blocks) + "\n"
    try:
        scenario = read_scenario(text, session)
        world = ScenarioWorld(scenario.config)
        recorded = [[line for one in block for line in world.perform(one)] for block in scenario.blocks]
    except ScenarioError as error:
        raise ConfigError(_not_linear(session)) from error
    if _outcome(world.machine) != _outcome(folded.machine):
        raise ConfigError(_not_linear(session))
    return rewritten(text, recorded)


def _not_linear(session: str) -> str:
    problem = "not one line of events, since another process sent inputs"
    return f"session {session!r}: {problem}; export it without --scenario"


def _outcome(machine: Machine | None) -> tuple[str, ...]:
    return () if machine is None else (machine.state.label, *history_lines(machine.memory.history))


@final
class _ScenarioWriter:
    """Writes entries as commands. *requests* are those so far, *open* those that wait in *machine*."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.open: tuple[str, ...] = ()
        self.machine: Machine | None = None
        self._config: Config | None = None
        self._runs: dict[str, str] = {}
        self._begun: float | None = None
        self._waiting: list[UserSent | ControlReceived | InputWithdrawn] = []
        # The ids that the scenario gives to inputs, by those of the session.
        self._inputs: dict[str, str] = {}
        self._recovered: tuple[Event, ...] = ()

    def commands(self, entry: Entry) -> Iterator[str]:
        """The commands for *entry*."""
        self._begun = time_of(entry) - 1.0 if self._begun is None else self._begun
        match entry:
            case Branched() | Forked() | HandedOver(unbegun=(_, *_)):
                msg = "the session went back, was handed over or is a fork; export it without --scenario"
                raise ConfigError(msg)
            case Posted(event=UserSent() | ControlReceived() | InputWithdrawn() as event):
                self._waiting.append(event)
            case RunOpened(run=run, config=config):
                self._runs[run] = f"run{len(self._runs) + 1}" if self._runs else "run"
                if config != self._config:
                    yield f"agent {json.dumps(_pruned(config))}"
                self._config = config
                # A setting comes before the prompt that opens the run, or it would hold a moment later.
                self._forget_withdrawn()
                for event in sorted(self._waiting, key=lambda one: isinstance(one, UserSent)):
                    yield self._timed(self._worded(event), event)
                self._waiting = []
            case TakenOver(at=at, config=config) if self.machine is not None:
                self._recovered = recover(self.machine, at).events
                self._config = config or self._config
                settings = f" {json.dumps(_pruned(config))}" if config else ""
                yield f"restart{settings} at={at - self._begun:.3f}"
            case Stepped(event=event) if event not in self._recovered:
                self._waiting = [one for one in self._waiting if one != event]
                yield self._timed(self._worded(event), event)
            case Posted():
                pass  # an input of a run becomes a command when the run takes it up
            case Stepped() | TakenOver() | HandedOver() | Titled():
                pass
            case _:
                assert_never(entry)

    def _forget_withdrawn(self) -> None:
        """Leave out prompts that were taken back before any run: the last one of a scenario opens it."""
        sent = {event.id for event in self._waiting if isinstance(event, UserSent)}
        gone = sent & {event.input for event in self._waiting if isinstance(event, InputWithdrawn)}
        self._waiting = [
            event
            for event in self._waiting
            if not (isinstance(event, UserSent) and event.id in gone)
            and not (isinstance(event, InputWithdrawn) and event.input in gone)
        ]

    def _input(self, event: UserSent | UserSteered) -> None:
        """Note the id that the scenario gives to *event*."""
        self._inputs[event.id] = f"input-{len(self._inputs) + 1}"

    def _timed(self, command: str, event: Event) -> str:
        return f"{command} at={event.at - (self._begun or 0.0):.3f}"

    def _worded(  # noqa: PLR0911  # one return for each kind of event
        self, event: Event
    ) -> str:
        """*event* as a person would write it, or as JSON if there is no command for it."""
        match event:
            case UserSent(files=()):
                self._input(event)
                how = "send" if event in self._waiting[:-1] else "prompt"
                sender = f" from={json.dumps(event.sender)}" if event.sender else ""
                return f"{how} {json.dumps(event.text)}{sender}"
            case Interrupted(aborted=aborted):
                return "abort" if aborted else "interrupt"
            case TimerFired():
                return "timer fires"
            case InputWithdrawn(input=name):
                return f"withdraw {json.dumps(self._inputs.get(name, name))}"
            case UserSteered(files=()):
                self._input(event)
                return f"steer {event.how} {json.dumps(event.text)}"
            case ToolFinished(files=()):
                how = "returns" if event.outcome is Outcome.OK else f"fails {event.outcome}"
                result = f"{json.dumps(event.content)} seconds={event.seconds}"
                return f"tool {self._name(event.request)} {how} {result}"
            case ApprovalGiven(decision=Approve(arguments=""), by=""):
                return f"approve {self._name(event.request)}"
            case ModelFinished(usage=Usage(cache_write=0, reasoning=0, estimated=0)):
                return _answer(event) or self._raw(event)
            case _:
                return self._raw(event)

    def _raw(self, event: Event) -> str:
        plain = json.dumps(converter.unstructure(event, Event))
        for run, name in self._runs.items():
            plain = plain.replace(f'"{run}-', f'"{name}-')
        return f"event {plain}"

    def _name(self, request: str) -> str:
        """The name of the open *request*: its tool, and its number among those of the same tool."""
        kind, tool = type(self.requests[request]), getattr(self.requests[request], "tool", "")
        named = [name for name in self.open if type(self.requests[name]) is kind]
        alike = [name for name in named if getattr(self.requests[name], "tool", "") == tool]
        return tool if alike[:1] == [request] else f"{tool}#{alike.index(request) + 1}"


def _answer(event: ModelFinished) -> str:
    """The command for an answer of texts and whole calls; empty for any other answer."""
    words = [_piece(piece) for piece in event.pieces]
    if not all(words):
        return ""
    used = f"{event.usage.input}/{event.usage.output}/{event.usage.cached}"
    sequence = f" sequence={json.dumps(event.sequence)}" if event.sequence else ""
    ended = f"stop={event.stop} used={used} seconds={event.seconds}{sequence}"
    return f"model {', '.join(words) or 'ends'} {ended}"


def _piece(piece: Piece) -> str:
    match piece:
        case TextPiece(text=text, begins=begins):
            return f"says {'anew ' if begins else ''}{json.dumps(text)}"
        case CallPiece(name=name, arguments=arguments) if name:
            return f"calls {json.dumps(name)} {json.dumps(arguments)}"
        case _:
            return ""


def _pruned(value: Any) -> Any:  # noqa: ANN401  # any value of a setting
    """*value* as JSON data, without the fields that have their default."""
    if attrs.has(type(value)):
        fields = [
            (field.name, field.default, getattr(value, field.name)) for field in attrs.fields(type(value))
        ]
        return {name: _pruned(each) for name, default, each in fields if each != default}
    match value:
        case tuple():
            return [_pruned(each) for each in value]
        case Enum():
            return value.value
        case Decimal():
            return str(value)
        case _:
            return value
