"""From the signature of a function to a struct that decodes what a model wrote for it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import msgspec

from ...effects import ToolDefinitionError
from ..callables import code_of, name_of
from .forms import Translation, is_of_pydantic, schema_of
from .returned import error_text

# Types whose values no call can change.
_SIMPLE = (str, int, float, type(None), Enum)

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

# The way out of every refused type.
_USE = (
    "use str, int, float, bool, None, list, dict, Literal, an Enum, a date, a Path, or a dataclass, "
    "attrs class, TypedDict, NamedTuple, msgspec.Struct or pydantic model of these"
)


def definition_error(function: Callable[..., object], problem: str) -> ToolDefinitionError:
    """The error that says why *function* cannot be a tool."""
    name = getattr(function, "__qualname__", None) or name_of(function)
    return ToolDefinitionError(f"{name!r} cannot be a tool: {problem}")


def read_parameters(
    function: Callable[..., object], context: type, *, of_method: bool = False
) -> tuple[type[msgspec.Struct], tuple[str, ...]]:
    """
    A struct that decodes what a model wrote for *function*, and the names of the parameters we fill in.

    The first parameter *of_method* is the object, and no model passes it. Parameters of the type *context*
    are filled in. Raises `ToolDefinitionError` for a parameter that no model could pass.
    """
    fields: list[tuple[str, Any, Any]] = []
    injected: list[str] = []
    translation = Translation()
    for parameter in _parameters(function)[of_method:]:
        if parameter.kind not in _NAMED:
            shown = str(parameter.replace(annotation=inspect.Parameter.empty))  # with its stars
            problem = f"parameter {shown!r} has no name a model could pass it by; spell each one out"
            raise definition_error(function, problem)
        hint = _hint(function, parameter)
        bare = hint.__origin__ if get_origin(hint) is Annotated else hint
        if context in (bare, get_origin(bare)):
            injected.append(parameter.name)
        elif any(context in (part, get_origin(part)) for part in get_args(bare)):
            problem = (
                f"parameter {parameter.name!r} is always filled in; annotate it as ToolContext, without None"
            )
            raise definition_error(function, problem)
        else:
            hint, default = _of_field(hint, parameter.default)
            fields.append((parameter.name, _translated(function, parameter.name, hint, translation), default))
    try:
        struct = msgspec.defstruct(name_of(function), fields, forbid_unknown_fields=True, kw_only=True)
    except (TypeError, ValueError) as error:
        raise definition_error(function, f"its parameters cannot be decoded: {error}") from error
    return struct, tuple(injected)


def misnamed(function: object, described: Iterable[str], schema: Mapping[str, object] | None) -> str | None:
    """The first of the *described* names that is no parameter of *function*, and no property of *schema*."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, classmethod):
        function = function.__func__
    # The docstring of an object's class may describe what the class takes.
    if not inspect.isroutine(function):
        return None
    properties = cast("Mapping[str, object]", (schema or {}).get("properties", {}))
    known = {*inspect.signature(function).parameters, *properties}
    return next((name for name in described if name not in known), None)


def is_method(function: object) -> bool:
    """Whether *function*, as it stands in a class, takes an object or the class before its arguments."""
    if isinstance(function, classmethod):
        return True
    first = next(iter(_parameters(function)), None) if inspect.isfunction(function) else None
    # In the body of a class a method is a plain function, which only the name of this parameter tells.
    return first is not None and first.name == "self" and first.annotation is inspect.Parameter.empty


def _parameters(function: object) -> list[inspect.Parameter]:
    """The parameters of *function* that a caller passes: without those that a partial has bound."""
    called: Any = code_of(function) if isinstance(function, classmethod) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError, NameError) as error:
        raise definition_error(called, f"its signature cannot be read: {error}") from error
    bound = function.keywords if isinstance(function, partial) else {}
    return [parameter for name, parameter in signature.parameters.items() if name not in bound]


def _hint(function: Callable[..., object], parameter: inspect.Parameter) -> Any:  # noqa: ANN401  # a type form
    """The type of *parameter*."""
    name = parameter.name
    if parameter.annotation is inspect.Parameter.empty:
        raise definition_error(function, f"parameter {name!r} has no type; annotate it")
    # Evaluated by itself: a name of another parameter that only type checkers know would fail them all.
    holder = SimpleNamespace(__annotations__={name: parameter.annotation})
    scope = getattr(inspect.unwrap(code_of(function)), "__globals__", {})
    try:
        return get_type_hints(holder, scope, include_extras=True)[name]
    except Exception as error:  # an annotation is any code
        problem = f"the type {parameter.annotation!r} of parameter {name!r} cannot be evaluated ({error})"
        raise definition_error(
            function, f"{problem}; import or define it at the top of the module"
        ) from error


def _translated(function: Callable[..., object], name: str, hint: object, translation: Translation) -> Any:  # noqa: ANN401  # a type form
    """The type *hint* of the parameter *name* as msgspec decodes it; refuses one that has no JSON."""
    try:
        form = translation.of(hint)
    except Exception as error:  # metadata and models are any code
        raise definition_error(function, f"parameter {name!r} {error_text(error)}") from error
    try:
        # By itself, since an error of the whole signature names no parameter.
        schema_of(form, {})
    except Exception as error:  # msgspec looks into classes of any making
        *_, reason = str(error).splitlines() or [type(error).__name__]
        raise definition_error(
            function, f"parameter {name!r} has a type no JSON fits: {reason}; {_USE}"
        ) from error
    return form


def _of_field(hint: Any, default: Any) -> tuple[Any, Any]:  # noqa: ANN401  # a type form, any value
    """The type and the default of a parameter, also where pydantic's `Field` says either."""
    annotated: Any = Annotated
    if is_of_pydantic(default) and hasattr(default, "default_factory"):
        hint, default = annotated[hint, default], inspect.Parameter.empty
    if default is inspect.Parameter.empty:
        for field in filter(is_of_pydantic, getattr(hint, "__metadata__", ())):
            if getattr(field, "default_factory", None) is not None:
                return hint, msgspec.field(default_factory=field.default_factory)
            value = getattr(field, "default", ...)
            if value is not ... and type(value).__name__ != "PydanticUndefinedType":
                default = value
    return hint, _default(default)


def _default(value: object) -> Any:  # noqa: ANN401  # what defstruct takes
    """*value* as a struct takes it: a list, a dict or any object is copied for every call."""
    if value is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    if isinstance(value, _SIMPLE):
        return value
    return msgspec.field(default_factory=partial(copy.deepcopy, value))
