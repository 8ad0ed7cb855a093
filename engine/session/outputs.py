"""What the runs of a session come to: the output that was asked for with a prompt, or that of its agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import TypeVar

from ...effects.requests import DecodeOutput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import UnionType

    from ...effects.events import UserSent
    from ...effects.messages import Binary
    from ...effects.output import OutputSpec
    from ...performers.base import Performers
    from ...performers.output import Output
    from ..core.inputs import Input
    from .environment import Environment
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


def want(output: AnyKind, prompt: P, environment: Environment) -> P:
    """*prompt*, whose run comes to *output* if to any; raises `ArgumentError` where no run can."""
    if output is not None and prompt is not None:
        environment.wants.want(prompt.id, *_made(output, environment))
    return prompt


def read_as(output: AnyKind, environment: Environment) -> None:
    """Read the outputs of runs that were asked for *output*, perhaps by another process, as its type."""
    if output is not None:
        spec, made = _made(output, environment)
        environment.wants.know(spec, made)


def _made(output: AnyKind, environment: Environment) -> tuple[OutputSpec | None, Output[Any] | None]:
    from ...performers.output import as_output  # noqa: PLC0415  # most runs come to text

    made = as_output(output)
    return None if made is None or environment.output_spec is None else environment.output_spec(made), made


def output_of(log: SessionLog, environment: Environment, prompt: UserSent | None) -> OutputSpec | None:
    """What the run comes to that is opened for *prompt*, or for the first that waits, or is taken over."""
    if log.state.unfinished and log.state.machine is not None:
        # As it began, whatever this process asks for: its model was asked for that.
        return log.state.machine.config.output
    first = prompt.id if prompt is not None else next((mail.id for mail in log.state.prompts), "")
    return environment.wants.take(first, environment.config.output)


def with_decoder(performers: Performers, environment: Environment) -> Performers:
    """*performers*, and one for the outputs of *environment*, if it has any."""
    if not environment.wants.outputs:
        return performers
    from ...performers.output import OutputDecoder  # noqa: PLC0415  # as in `want`

    return {**performers, DecodeOutput: OutputDecoder(environment.wants.outputs)}
