"""What the runs of a session come to: the output that was asked for with a prompt, or that of its agent."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never, cast

import attrs
from typing_extensions import TypeVar

from ...effects.errors import ConfigError
from ...effects.output import AgentOutput, OutputSpec, TextOutput
from ...effects.requests import DecodeOutput
from ...states.context import Mail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import UnionType

    from ...effects.events import UserSent
    from ...effects.messages import Binary
    from ...performers.base import Performers
    from ...performers.output import Output
    from ..core.inputs import Input
    from ..core.machine import Machine
    from .environment import Environment, Wants
    from .session_log import SessionLog


P = TypeVar("P", "Input", "Input | None")

# What a run comes to; that of its agent where nothing else is said.
T = TypeVar("T", default=Any)


if TYPE_CHECKING:
    # What may be asked of a run: a type that checkers know the values of, or a union or a JSON Schema.
    OutputKind: TypeAlias = type[T] | Output[T]
    UntypedKind: TypeAlias = UnionType | Mapping[str, Any] | None
    AnyKind: TypeAlias = OutputKind[Any] | UntypedKind

    # Attachments of a prompt.
    Files: TypeAlias = Sequence[Binary]


def want(output: AnyKind, prompt: P, log: SessionLog, environment: Environment) -> P:
    """*prompt*, whose run comes to *output* if to any; raises `ArgumentError` where no run can."""
    if output is None or prompt is None:
        return prompt
    spec, made = _made(output, environment)
    if spec is not None and made is not None:
        state, waiting = log.state, {mail.id for mail in log.state.prompts}
        environment.wants.forget(lambda asked: state.knows(asked) and asked not in waiting)
        environment.wants.ask(prompt.id, spec, made)
    # In the journal with the prompt: another process may be the one that begins its run.
    return attrs.evolve(prompt, output=TextOutput() if spec is None else spec)


def read_as(output: AnyKind, log: SessionLog, environment: Environment) -> None:
    """
    Read the output of the prompt of *log* that waits, or else of its run, as *output*.

    Another process asked for it. Raises `ConfigError` where it was asked for another one.
    """
    state = log.state
    first = None if state.unfinished else first_prompt(log, None)
    if output is None or (first is None and state.machine is None):
        return
    if first is not None:
        name, own = f"prompt {first.id!r}", _wanted(first, environment)
    else:
        machine = cast("Machine", state.machine)
        name, own = f"run {machine.memory.run!r}", machine.config.output
    spec, made = _made(output, environment)
    if not _same(spec, own):
        asked, given = _named(own), _named(spec)
        if asked == given:
            given += " of another schema"
        way = "resume it with that, or without an output for plain JSON"
        msg = f"{name} was asked for {asked}, and not for {given}; {way}"
        raise ConfigError(msg)
    if own is None or made is None:
        return
    if first is not None:
        environment.wants.ask(first.id, own, made)
    else:
        environment.wants.know(own, made, cast("Machine", state.machine).memory.run)


def _same(spec: OutputSpec | None, other: OutputSpec | None) -> bool:
    if spec is None or other is None:
        return spec is other
    return (json.loads(spec.schema), spec.wrapped) == (json.loads(other.schema), other.wrapped)


def _named(spec: OutputSpec | None) -> str:
    return "text" if spec is None else f"the output {spec.name!r}"


def _made(output: AnyKind, environment: Environment) -> tuple[OutputSpec | None, Output[Any] | None]:
    from ...performers.output import as_output  # noqa: PLC0415  # most runs come to text

    made = as_output(output)
    return None if made is None or environment.output_spec is None else environment.output_spec(made), made


def first_prompt(log: SessionLog, prompt: UserSent | None) -> Mail | None:
    """What the next run of *log* begins with: the prompt that has waited longest, or *prompt*."""
    waiting = log.state.prompts
    return waiting[0] if waiting else None if prompt is None else Mail.of(prompt)


def output_of(log: SessionLog, environment: Environment, prompt: UserSent | None) -> OutputSpec | None:
    """What the run comes to that is opened, perhaps for *prompt*, or that is taken over."""
    if log.state.unfinished and log.state.machine is not None:
        # As it began, whatever this process asks for: its model was asked for that.
        return log.state.machine.config.output
    return _wanted(first_prompt(log, prompt), environment)


def _wanted(prompt: Mail | None, environment: Environment) -> OutputSpec | None:
    """The output of the run of *prompt*: that of the agent where the prompt asks for none; None for text."""
    wish = AgentOutput() if prompt is None else prompt.output
    match wish:
        case AgentOutput():
            return environment.config.output
        case TextOutput():
            return None
        case OutputSpec():
            return wish
        case _:
            assert_never(wish)


def with_decoder(performers: Performers, machine: Machine, wants: Wants) -> Performers:
    """*performers*, and one for the output of the run of *machine*, where its class is known here."""
    run, spec = machine.memory.run, machine.config.output
    if spec is None or (output := wants.output_of(run, spec)) is None:
        return performers
    from ...performers.output import OutputDecoder  # noqa: PLC0415  # as in `want`

    return {**performers, DecodeOutput: OutputDecoder(output, partial(wants.keep, run))}
