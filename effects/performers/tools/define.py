"""`tool`: a plain function becomes something a model can call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Generic, Literal, ParamSpec, TypeVar, final, overload

import attrs
import msgspec

from ...config import Approval, SideEffect, ToolSpec
from .context import ToolContext
from .docstring import parse
from .schema import Parameters, parameters, refusal, resource_keys, schema_of

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

SideEffectName = SideEffect | Literal["read_only", "idempotent", "unsafe"]
"""A side-effect class, or its value."""

ApprovalName = Approval | Literal["by_side_effect", "always", "never"]
"""When to ask, or its value."""


@final
@attrs.frozen
class Tool(Generic[P, R_co]):
    """
    A function a model can call, made by `tool`. Calling it is calling the function.

    *spec* is what the loop and the model know of it, *parameters* how its arguments are decoded.
    """

    spec: ToolSpec
    function: Callable[P, R_co]
    parameters: Parameters = attrs.field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the function is to be awaited; others run in a thread."""
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments: str, context: ToolContext[object]) -> dict[str, object]:
        """
        What to call the function with, from the JSON text *arguments* and the *context*.

        Types are taken strictly: ``"5"`` is no number. No text at all counts as no arguments, since several
        providers send that. Raises `ValueError` with a text for the model.
        """
        struct = self.parameters.struct
        try:
            decoded = msgspec.json.decode(arguments.strip() or "{}", type=struct)
        except Exception as error:  # also what the argument types themselves raise, and too deep a nesting
            raise ValueError(self._complaint(error)) from error
        passed: dict[str, object] = {name: getattr(decoded, name) for name in struct.__struct_fields__}
        return passed | dict.fromkeys(self.parameters.injected, context)

    def _complaint(self, error: Exception) -> str:
        """What to tell a model that passed the wrong arguments: what is wrong, and what there is."""
        kind = "" if isinstance(error, msgspec.ValidationError) else "not a JSON object: "
        fields = msgspec.structs.fields(self.parameters.struct)
        takes = ", ".join(field.name if field.required else f"{field.name} (optional)" for field in fields)
        return f"Invalid arguments for tool {self.spec.name!r}: {kind}{error}; it takes: {takes or 'nothing'}"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    side_effect: SideEffectName = ...,
    approval: ApprovalName = ...,
    timeout: float | None = ...,
    name: str | None = ...,
    description: str | None = ...,
    edits: bool = ...,
    resources: Iterable[str] | None = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(  # noqa: PLR0913  # the function, and settings that each have a name and a default
    function: Callable[P, R] | None = None,
    /,
    *,
    side_effect: SideEffectName = SideEffect.UNSAFE,
    approval: ApprovalName = Approval.BY_SIDE_EFFECT,
    timeout: float | None = 30.0,
    name: str | None = None,
    description: str | None = None,
    edits: bool = False,
    resources: Iterable[str] | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """
    Make a function, sync or async, a tool: ``@tool`` or ``@tool(side_effect="read_only", timeout=5)``.

    The schema comes from the annotations, which may be anything `msgspec` decodes, constraints in
    `msgspec.Meta` included. The docstring's first paragraph is the description; its ``Args:`` section or its
    ``:param x:`` fields describe the parameters. A parameter annotated `ToolContext` is filled in by us.

    It may return text, a `Binary` (a picture, a PDF), or a list or tuple with several of both: the model sees
    the files, of `MAX_FILE` bytes each at most, beside the text. Any other value is shown as JSON.

    *side_effect* says what happens to parallel runs, approval and a crash in the middle; unless told, the
    worst is assumed. *timeout* is in seconds. *name* and *description* take the place of the function's own.
    *edits*: it changes files and does nothing else, so it runs where edits are accepted. *resources* are keys
    of what it works on, such as ``account:{id}``, where ``{id}`` stands for an argument of its: calls with no
    key in common may run side by side. Raises `ToolDefinitionError` where the function cannot be a tool.
    """

    def make(function: Callable[P, R]) -> Tool[P, R]:
        _check(function)
        accepted = parameters(function)
        summary, described = parse(inspect.getdoc(function))
        try:
            spec = ToolSpec(
                name=function.__name__ if name is None else name,
                description=summary if description is None else description,
                schema=schema_of(accepted.struct, described),
                side_effect=SideEffect(side_effect),
                approval=Approval(approval),
                timeout=timeout,
                edits=edits,
                resources=None if resources is None else resource_keys(function, resources, accepted),
            )
        except (TypeError, ValueError) as error:
            raise refusal(function, str(error.args[0])) from error
        return Tool(spec, function, accepted)

    return make if function is None else make(function)


def _check(function: Callable[..., object]) -> None:
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise refusal(function, "it is no function; write one that calls it")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise refusal(function, "it yields; return one value, and report with ToolContext.progress meanwhile")
