"""Outputs of runs: the one that a prompt asks for, the agent's, and the class that a run is read as here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never, cast

import attrs
from typing_extensions import TypeVar

from ...effects.errors import ConfigError
from ...effects.output import AgentOutput, OutputSpec, TextOutput
from ...effects.requests import DecodeOutput
from ...states.context import RECALL, Mail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import UnionType

    from ...effects.events import UserSent
    from ...effects.messages import Binary
    from ...performers.base import Performers
    from ...performers.output import Output
    from ..core.inputs import Input
    from ..core.machine import Machine
    from .environment import Environment
    from .session_log import SessionLog
    from .wanted_outputs import WantedOutputs


P = TypeVar("P", "Input", "Input | None")

# The type of an output.
T = TypeVar("T", default=Any)


if TYPE_CHECKING:
    # The outputs that a caller may ask for: a type that checkers know, or a union or a JSON Schema.
    OutputKind: TypeAlias = type[T] | Output[T]
    UntypedKind: TypeAlias = UnionType | Mapping[str, Any] | None
    AnyKind: TypeAlias = OutputKind[Any] | UntypedKind

    # Attachments of a prompt.
    Files: TypeAlias = Sequence[Binary]


def want(output: AnyKind, prompt: P, log: SessionLog, environment: Environment) -> P:
    """*prompt* with the wish for *output*, if any; raises `ArgumentError` for a type that has no JSON."""
    if output is None or prompt is None:
        return prompt
    kind, spec = _specified(output, environment)
    if kind is not None and spec is not None:
        environment.outputs.want(prompt.id, spec, kind, partial(_over, log))
    # In the journal with the prompt: another process may be the one that begins its run.
    return attrs.evolve(prompt, output=TextOutput() if spec is None else spec)


def _over(log: SessionLog, prompts: Sequence[str]) -> list[str]:
    """The *prompts* whose run has begun, or that were taken back."""
    waiting = {mail.id for mail in log.state.prompts}
    others = [prompt for prompt in prompts if prompt not in waiting]
    # An unknown prompt may be about to be posted. Older ones were refused, or are not remembered any more.
    unknown = {*[prompt for prompt in others if not log.state.knows(prompt)][-RECALL:]}
    return [prompt for prompt in others if prompt not in unknown]


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
        name, asked_for = f"prompt {first.id!r}", _wanted(first, environment)
    else:
        machine = cast("Machine", state.machine)
        name, asked_for = f"run {machine.memory.run!r}", machine.config.output
    kind, spec = _specified(output, environment)
    if (spec and spec.identity) != (asked_for and asked_for.identity):
        wrong, right = _named(spec), _named(asked_for)
        if wrong == right:
            wrong += " of another schema"
        way = "resume it with that, or without an output for plain JSON"
        msg = f"{name} was asked for {right}, and not for {wrong}; {way}"
        raise ConfigError(msg)
    if kind is None or asked_for is None:
        return
    if first is not None:
        environment.outputs.want(first.id, asked_for, kind, partial(_over, log))
    else:
        environment.outputs.read_as(cast("Machine", state.machine).memory.run, asked_for, kind)


def _named(spec: OutputSpec | None) -> str:
    return "text" if spec is None else f"the output {spec.name!r}"


def _specified(output: AnyKind, environment: Environment) -> tuple[Output[Any] | None, OutputSpec | None]:
    """*output* as an `Output`, and its spec; None for text."""
    from ...performers.output import as_output  # noqa: PLC0415  # most runs come to text

    kind = as_output(output)
    return kind, None if kind is None or environment.output_spec is None else environment.output_spec(kind)


def first_prompt(log: SessionLog, prompt: UserSent | None) -> Mail | None:
    """The prompt that begins the next run of *log*: the one that has waited longest, or *prompt*."""
    waiting = log.state.prompts
    return waiting[0] if waiting else None if prompt is None else Mail.of(prompt)


def output_of(log: SessionLog, environment: Environment, prompt: UserSent | None) -> OutputSpec | None:
    """The output of the run of *log* that is taken over, or of the next, which *prompt* may begin."""
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


def with_decoder(performers: Performers, machine: Machine, outputs: WantedOutputs) -> Performers:
    """*performers*, with a decoder of the output of the run of *machine* where its class is known here."""
    spec = machine.config.output
    wanted = None if spec is None else outputs.of_run(machine.memory.run, spec)
    if wanted is None or wanted.output is None:
        return performers
    from ...performers.output import OutputDecoder  # noqa: PLC0415  # as in `_specified`

    return {**performers, DecodeOutput: OutputDecoder(wanted.output, wanted.keep)}
