"""`tool`: a plain function becomes something a model can call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Generic, Literal, ParamSpec, TypeVar, final, overload

import attrs
import msgspec

from ...config import Approval, SideEffect, ToolSpec
from ...errors import ToolDefinitionError
from ...secrets import ANY, Secrets, arguments_in, secrets_in
from .context import ToolContext
from .docstring import parse
from .schema import Parameters, names_in, parameters, refusal, resource_keys, schema_of

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

    *spec* is what the loop and the model know of it, *parameters* how its arguments are decoded. *plain* are
    names that are no secrets of its, in its arguments and in what it returns.
    """

    spec: ToolSpec
    function: Callable[P, R_co]
    parameters: Parameters = attrs.field(repr=False)
    plain: tuple[str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the function is to be awaited; others run in a thread."""
        return inspect.iscoroutinefunction(self.function)

    def spec_with(self, secrets: Secrets) -> ToolSpec:
        """What the loop knows of it where an agent takes for a secret what *secrets* says."""
        names = self.spec.secrets if secrets.redact else ()
        if names or secrets.words:
            more = secrets_in(self.spec.schema, secrets.words) if secrets.redact else ()
            names = tuple(sorted({*names, *more} - {*self.plain, *secrets.plain}))
        return self.spec if names == self.spec.secrets else attrs.evolve(self.spec, secrets=names)

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
    secrets: Iterable[str] = ...,
    plain: Iterable[str] = ...,
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
    secrets: Iterable[str] = (),
    plain: Iterable[str] = (),
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
    key in common may run side by side.

    Arguments that are secret by their name, such as ``password``, are seen by the function alone; model,
    journal and approvers see placeholders. *secrets* are names of more of them, *plain* of some that are
    none. Raises `ToolDefinitionError` where the function cannot be a tool.
    """

    def make(function: Callable[P, R]) -> Tool[P, R]:
        _check(function)
        accepted = parameters(function)
        summary, described = parse(inspect.getdoc(function))
        none = names_in(function, plain)
        try:
            schema = schema_of(accepted.struct, described)
            spec = ToolSpec(
                name=function.__name__ if name is None else name,
                description=summary if description is None else description,
                schema=schema,
                side_effect=SideEffect(side_effect),
                approval=Approval(approval),
                timeout=timeout,
                edits=edits,
                resources=None if resources is None else resource_keys(function, resources, accepted),
                secrets=_secrets(function, secrets, none, schema),
            )
        except ToolDefinitionError:
            raise
        except (TypeError, ValueError) as error:
            raise refusal(function, str(error.args[0])) from error
        return Tool(spec, function, accepted, none)

    return make if function is None else make(function)


def _secrets(
    function: Callable[..., object], told: Iterable[str], plain: tuple[str, ...], schema: str
) -> tuple[str, ...]:
    """
    The names of the secrets among the arguments of *schema*: those that were *told* and those known anyway.

    Raises `ToolDefinitionError` for a name that no argument has, since it would hide nothing.
    """
    mine, found = names_in(function, told), secrets_in(schema)
    there = arguments_in(schema)
    if ANY not in found and (missing := [name for name in mine if name not in there]):
        listed = ", ".join(sorted(there)) or "none"
        raise refusal(function, f"the secret {missing[0]!r} names no argument; there are: {listed}")
    return tuple(sorted({*mine, *found} - {*plain}))


def _check(function: Callable[..., object]) -> None:
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise refusal(function, "it is no function; write one that calls it")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise refusal(function, "it yields; return one value, and report with ToolContext.progress meanwhile")
