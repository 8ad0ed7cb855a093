"""
What may happen to a machine now, and what would follow: events to post or to try, with nothing performed.

A machine is pure, so each event is tried on a copy. What the copy ignores is no move; nothing else says what
is legal, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import final

import attrs

from ... import effects
from ...effects import Effect
from ...effects.config import Config
from ...effects.errors import ConfigError
from ...effects.events import Event
from ...states.rules.inputs import refusal
from ...states.state import State
from ..core.machine import Machine, calls_at, calls_in, ignored, questions
from ..journal.entries import RunOpened

# The text of an example: what a model, a tool or a person says there is for the caller to write.
EXAMPLE = "..."


@final
@attrs.frozen(kw_only=True)
class LegalMove:
    """An *event* that is legal now, and its *title* for a person."""

    title: str
    event: Event


@final
@attrs.frozen(kw_only=True)
class Preview:
    """The *state* that an event would lead to, and the *effects* of that step."""

    state: State
    effects: tuple[Effect, ...]


def preview(machine: Machine | None, config: Config, event: Event) -> Preview:
    """
    What *event* would lead to; *machine* stays as it is.

    A prompt where no run is under way opens one under *config*. Raises `ConfigError` for an event that does
    not apply.
    """
    if machine is not None and not machine.done:
        tried = Machine(machine.config, machine.state, machine.memory)
        made = tried.advance(event)
    elif isinstance(event, effects.UserSent):
        # As the session does it: the prompt waits, and the run that opens takes it.
        next_id = 1 if machine is None else machine.memory.next_id
        opened = RunOpened(at=event.at, run=event.id, config=config, next_id=next_id)
        tried = Machine.open(opened, machine, (event,))
        made = tried.advance(at=event.at)
    else:
        msg = f"{type(event).__name__} does not apply: no run is under way; send a prompt"
        raise ConfigError(msg)
    if ignored(made):
        msg = f"{type(event).__name__} does not apply in state {tried.state.label!r}"
        raise ConfigError(msg)
    return Preview(state=tried.state, effects=made)


def moves(machine: Machine | None, config: Config, at: float, name: str) -> tuple[LegalMove, ...]:
    """
    Every kind of event that is legal now, each whole: decisions, inputs, and answers to open requests.

    The events happen *at* a time and have the id *name* where they need one. Texts are examples.
    """
    legal: list[LegalMove] = []
    for move in _candidates(machine, at, name):
        with suppress(ConfigError):
            preview(machine, config, move.event)
            legal.append(move)
    return tuple(legal)


def _candidates(machine: Machine | None, at: float, name: str) -> Iterator[LegalMove]:
    prompt = effects.UserSent(at=at, id=name, text=EXAMPLE)
    if machine is None or machine.done:
        yield LegalMove(title="send a prompt", event=prompt)
        return
    yield from _decisions(machine, at)
    yield LegalMove(title="steer", event=effects.UserSteered(at=at, id=name, text=EXAMPLE))
    now = effects.UserSteered(at=at, id=name, text=EXAMPLE, how=effects.Steering.NOW)
    yield LegalMove(title="steer now", event=now)
    yield LegalMove(title="queue a prompt", event=prompt)
    for mail in machine.memory.session.mail:
        withdrawn = effects.InputWithdrawn(at=at, input=mail.id)
        yield LegalMove(title=f"take back {mail.id}", event=withdrawn)
    yield LegalMove(title="interrupt", event=effects.Interrupted(at=at))
    tools = {one.call.id: one.call.name for one in calls_at(machine.state)}
    for call in calls_in(machine.state):
        yield LegalMove(title=f"cancel {tools[call]}", event=effects.CallCancelled(at=at, call=call))
    yield from _answers(machine, at)
    yield from _controls(machine, at, name)


def _decisions(machine: Machine, at: float) -> Iterator[LegalMove]:
    decisions: dict[str, effects.Decision] = {
        "approve": effects.Approve(),
        "always": effects.ApproveAlways(),
        "deny": effects.Deny(),
    }
    for asked in questions(machine):
        for word, decision in decisions.items():
            # A call that may have run is approved for itself only.
            if not (asked.again and word == "always"):
                event = effects.ApprovalGiven(at=at, request=asked.id, decision=decision)
                yield LegalMove(title=f"{word} {asked.tool}", event=event)


def _answers(machine: Machine, at: float) -> Iterator[LegalMove]:
    """Every answer to each open request; those that do not fit its kind do not apply."""
    tools = {request: one.call.name for one in calls_at(machine.state) for request in one.open}
    for request in machine.state.open:
        work = tools.get(request, request)
        ending, text = effects.StopReason.END_TURN, (effects.TextPiece(EXAMPLE),)
        answers: dict[str, effects.Answer] = {
            "the model answers": effects.ModelFinished(
                at=at, request=request, stop=ending, usage=effects.Usage(), pieces=text
            ),
            "the model fails": effects.ModelFailed(
                at=at, request=request, failure=effects.Failure.SERVER, message=EXAMPLE
            ),
            f"{work} ends": effects.ToolFinished(at=at, request=request, content=EXAMPLE),
            f"{work} fails": effects.ToolFinished(
                at=at, request=request, content=EXAMPLE, outcome=effects.Outcome.ERROR
            ),
            f"the process of {work} is lost": effects.ToolLost(at=at, request=request),
            "the child ends": effects.AgentFinished(at=at, request=request, content=EXAMPLE),
            "hooks answer": effects.HookAnswered(at=at, request=request),
            "the call is inspected": effects.CallInspected(at=at, request=request),
            "the instructions are read": effects.InstructionsRead(at=at, request=request, text=EXAMPLE),
            "the output is made": effects.OutputDecoded(at=at, request=request),
            "the output is wrong": effects.OutputDecoded(at=at, request=request, fault=EXAMPLE),
            "the timer fires": effects.TimerFired(at=at, request=request),
        }
        for title, event in answers.items():
            yield LegalMove(title=title, event=event)


def _controls(machine: Machine, at: float, name: str) -> Iterator[LegalMove]:
    """The settings that a person may choose and that are not chosen now."""
    config, session = machine.config, machine.memory.session
    changes: dict[str, effects.Change] = {
        **{mode: effects.SetMode(mode=mode) for mode in effects.PermissionMode if mode is not session.mode},
        **{model: effects.SetModel(model=model) for model in config.model_names if model != session.model},
    }
    for value, change in changes.items():
        if not refusal(config, change, session.ceiling):
            event = effects.ControlReceived(at=at, id=name, change=change)
            yield LegalMove(title=f"change to {value}", event=event)
