"""The output that a caller wants: `Output` names a type, and `OutputDecoder` performs `DecodeOutput`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, cast, final

import attrs
import msgspec

from ..effects import ArgumentError, ConfigError, DecodeOutput, OutputDecoded, OutputMode, OutputSpec, clean
from ..effects.output import VALUE_KEY
from ..effects.validators import as_text
from .base import PerformContext
from .callables import is_async
from .logs import FaultLog
from .tools.forms import REF, Translation, is_about_value, origin_of, placed, read_form
from .tools.returned import error_text, truncate
from .tools.schema import json_schema, with_integers
from .worker_pool import WorkerPool

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Characters of a fault that a model reads.
MAX_FAULT = 4_000

# Keywords that hold the schemas which others refer to. They stay at the root.
_NAMED_SCHEMAS = ("$defs", "definitions")
_NAMED_REFS = tuple([f"#/{key}/" for key in _NAMED_SCHEMAS])

# Characters that providers refuse in the name of an output.
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")


@final
class AskAgain(Exception):
    """
    Raised by the validator of an `Output`: the output is wrong, and the model is asked again.

    The message says why, for the model.
    """


def _as_mode(mode: OutputMode | str | None) -> OutputMode | None:
    return None if mode is None else OutputMode(mode)


@final
@attrs.frozen
class Output(Generic[T_co]):
    """
    The output of a run: a value of *kind*, which is a type or a JSON Schema as a mapping.

    Types are attrs classes, dataclasses, structs of msgspec, typed dictionaries, models of pydantic, enums,
    literals, lists, mappings, plain types and unions of these. *mode* is how a model is asked for it; without
    one, each model is asked in the best way that it takes. *name* and *description* are for the model.
    *validator* gets the value, and raises `AskAgain` where it is wrong; it may be async.

    Raises `ArgumentError` for a type that has no JSON.
    """

    kind: type[T_co] | Any
    mode: OutputMode | None = attrs.field(default=None, converter=_as_mode, kw_only=True)
    name: str = attrs.field(default="", converter=as_text, kw_only=True)
    description: str = attrs.field(default="", converter=as_text, kw_only=True)
    validator: Callable[[Any], object] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        validator = cast("object", self.validator)
        if validator is not None and not callable(validator):
            msg = f"Output.validator must be a function; got {validator!r} (leave it out for none)"
            raise ArgumentError(msg)
        # Now and not in the first run: the traceback then shows the line that is wrong.
        self._form  # noqa: B018  # see above

    @cached_property
    def _form(self) -> OutputForm:
        return OutputForm.of(self.kind)


@final
@attrs.frozen
class OutputForm:
    """How the JSON of an output is read: its *schema*, and the *form* to decode, None for any JSON."""

    schema: str
    form: Any
    wrapped: bool

    @classmethod
    def of(cls, kind: Any) -> OutputForm:  # noqa: ANN401  # a type form, or a schema
        """The form of *kind*; raises `ArgumentError` where it has none."""
        if isinstance(kind, Mapping):
            return _of_schema(cast("Mapping[str, Any]", kind))
        try:
            form = Translation().of(kind)
            # As a field: types within are then written where they are used, as in the arguments of a tool.
            holder = msgspec.defstruct("Output", [(VALUE_KEY, form)], forbid_unknown_fields=True)
            wrapped = json.loads(json_schema(holder, {}))
        except Exception as error:  # metadata and models are any code
            *_, reason = error_text(error).splitlines() or [""]
            msg = f"{kind!r} cannot be an output: {reason}; use a type that has JSON, or a JSON Schema"
            raise ArgumentError(msg) from error
        defs = {key: wrapped[key] for key in ("$defs",) if key in wrapped}
        schema = wrapped["properties"][VALUE_KEY]
        if "$ref" in schema and defs:  # a class that contains itself
            schema = defs["$defs"].get(schema["$ref"].removeprefix(REF), schema)
        if schema.get("type") == "object" and "properties" in schema:
            return cls(json.dumps(schema | defs, ensure_ascii=False), form, wrapped=False)
        return cls(json.dumps(wrapped, ensure_ascii=False), holder, wrapped=True)

    @property
    def is_union(self) -> bool:
        """Whether it is one of several types, not counting None."""
        schema = json.loads(self.schema)["properties"].get(VALUE_KEY, {}) if self.wrapped else {}
        options = schema.get("anyOf", schema.get("oneOf", ()))
        return len([option for option in options if option != {"type": "null"}]) > 1

    def read(self, text: str) -> object:
        """The value of the JSON *text*; raises `ValueError` with a text for the model."""
        try:
            value = self._decoded(text)
        except Exception as error:  # constructors and validators are any code
            raise ValueError(placed(error_text(error))) from error
        if not self.wrapped:
            return value
        return value[VALUE_KEY] if isinstance(value, dict) else getattr(value, VALUE_KEY)

    def _decoded(self, text: str) -> Any:  # noqa: ANN401  # a value of any type
        if self.form is None:
            return msgspec.json.decode(text)
        with suppress(msgspec.ValidationError):
            return msgspec.json.decode(text, type=self.form, dec_hook=read_form)
        # 3.0 is an integer to JSON Schema, by which the output was judged, and none to the decoder.
        return msgspec.json.decode(with_integers(text, self.schema), type=self.form, dec_hook=read_form)


def _of_schema(schema: Mapping[str, Any]) -> OutputForm:
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        msg = f"the schema of an output must be JSON: {error}"
        raise ArgumentError(msg) from error
    if schema.get("type") == "object" and schema.get("properties"):
        return OutputForm(text, None, wrapped=False)
    # Through JSON, so that a mapping of any class is a dict.
    inner: dict[str, Any] = _moved(json.loads(text))
    named = {key: inner.pop(key) for key in _NAMED_SCHEMAS if key in inner}
    inner.pop("$schema", None)
    root = {
        "type": "object",
        "properties": {VALUE_KEY: inner},
        "required": [VALUE_KEY],
        "additionalProperties": False,
        **named,
    }
    return OutputForm(json.dumps(root, ensure_ascii=False), None, wrapped=True)


# Keywords of a schema that hold values: a ``$ref`` in a value is no reference.
_VALUES = frozenset({"const", "default", "enum", "examples"})


def _moved(node: Any) -> Any:  # noqa: ANN401  # a part of a schema
    """*node* with its references changed for a schema that moves into the property `VALUE_KEY`."""
    if isinstance(node, list):
        return [_moved(each) for each in node]
    if not isinstance(node, dict):
        return node
    keywords = cast("dict[str, Any]", node).items()
    moved = {key: each if key in _VALUES else _moved(each) for key, each in keywords}
    ref = moved.get("$ref")
    if isinstance(ref, str) and (ref == "#" or ref.startswith("#/")) and not ref.startswith(_NAMED_REFS):
        moved["$ref"] = f"#/properties/{VALUE_KEY}{ref[1:]}"
    return moved


def form_of(output: Output[Any]) -> OutputForm:
    """How the JSON of *output* is read."""
    return output._form  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # of the same module


def as_output(output: Any) -> Output[Any] | None:  # noqa: ANN401  # a type form, a schema, an output
    """*output* as an `Output`; None for text."""
    if output is None or output is str:
        return None
    return output if isinstance(output, Output) else Output(output)


def spec_of(output: Output[Any], modes: Mapping[str, OutputMode], strict: str | None) -> OutputSpec:
    """
    *output* as the loop knows it.

    *modes* are the ways of asking models that are not asked by a tool, *strict* is the schema that providers
    take by themselves, None where there is none. Raises `ConfigError` where that is wanted of all models.
    """
    form, kind = form_of(output), output.kind
    if output.mode is OutputMode.NATIVE and strict is None:
        fix = "maps, recursion and unions at the root are given by a tool; leave out mode"
        msg = f"output: {kind!r} has no schema that providers take by themselves ({fix})"
        raise ConfigError(msg)
    description = output.description or ("" if isinstance(kind, Mapping) else _description_of(kind))
    return OutputSpec(
        schema=form.schema,
        strict_schema=strict or "{}",
        name=_NOT_IN_NAMES.sub("_", output.name or getattr(kind, "__name__", "") or "output")[:64],
        description=clean(description),
        mode=output.mode or OutputMode.TOOL,
        modes=() if output.mode is not None else tuple(modes.items()),
        wrapped=form.wrapped,
        decoded=form.form is not None or output.validator is not None,
    )


def _description_of(kind: Any) -> str:  # noqa: ANN401  # a type form
    """The first line of the docstring of a class of the host's."""
    is_class = isinstance(kind, type) and kind.__module__ != "builtins"
    docstring = kind.__dict__.get("__doc__") if is_class else None
    lines = (docstring or "").strip().splitlines()
    # A dataclass without a docstring gets its signature as one.
    return "" if not lines or lines[0].startswith(f"{kind.__name__}(") else lines[0]


def value_of(text: str, spec: OutputSpec, output: Output[Any] | None) -> Any:  # noqa: ANN401  # of its type
    """The value of *text*, which fits *spec*: that of *output*, or plain JSON without one."""
    form = OutputForm(spec.schema, None, spec.wrapped) if output is None else form_of(output)
    return form.read(text)


@final
class OutputDecoder:
    """
    Performs `DecodeOutput` for a run that comes to *output*: makes the value, and asks its validator.

    *keep* is called with each text that is right, and its value.
    """

    def __init__(self, output: Output[Any], keep: Callable[[str, object], None]) -> None:
        self._output = output
        self._keep = keep
        self._pool = WorkerPool(threads=1)

    async def __call__(self, request: DecodeOutput, scene: PerformContext) -> OutputDecoded:
        """Make the value in a thread, since a constructor or a validator may block."""
        values: list[object] = []
        fault = await self._fault(values, request, scene.faults)
        if not fault:
            # The caller gets the very object that the validator saw, which may have changed it.
            self._keep(request.text, values[0])
        return OutputDecoded(at=scene.clock.now(), request=request.id, fault=fault)

    async def _fault(self, values: list[object], request: DecodeOutput, faults: FaultLog) -> str:
        """Put the value into *values*; why it is wrong, for the model, and empty where it is right."""
        output, about = self._output, {"request": request.id}
        validator, failed = output.validator, partial(_fault_of, faults, about)

        def work() -> None:
            values.append(_decode(output, request.text))
            if validator is not None and not is_async(validator):
                validator(values[0])

        fault = await self._pool.start(work, None, _no_fault, failed).result()
        if fault or validator is None or not is_async(validator):
            return fault
        validate = partial(cast("Any", validator), values[0])
        blocked = partial(faults.blocked, "a validator blocked the event loop", about)
        return await self._pool.start(validate, "output validator", _no_fault, failed, blocked).result()


def _decode(output: Output[Any], text: str) -> object:
    """The value of *text*; raises `AskAgain` where that is wrong, else what the code of its class raised."""
    try:
        return form_of(output).read(text)
    except ValueError as error:
        cause = error.__cause__ or error
        if is_about_value(cause):
            raise AskAgain(str(error)) from error
        raise origin_of(cause) from None


def _no_fault(_: object) -> str:
    return ""


def _fault_of(faults: FaultLog, about: Mapping[str, str], error: BaseException) -> str:
    """The text of *error* for the model; a constructor or a validator raised it."""
    if isinstance(error, AskAgain):
        return truncate(clean(error_text(error)), MAX_FAULT)
    faults.raised("the check of an output raised", error, **about)
    # No more than the type: the text of a failure, such as one of the network, is not for a provider.
    return clean(f"its check failed with {type(error).__name__}")
