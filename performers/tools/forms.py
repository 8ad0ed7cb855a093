"""
Types of parameters that msgspec cannot decode by itself, made such that it can.

Theory of operation. msgspec decodes the arguments of a call straight into the types of a signature. For a
class that it does not know, it calls a hook with the JSON value. So each part of a type that msgspec refuses,
or whose metadata it would skip, is replaced by such a class, a `Form`. A form reads JSON and has a schema.

1. What pydantic made, or what has metadata of pydantic, is read by a `TypeAdapter` of pydantic.
2. A class with a field that is replaced, any named tuple, and any attrs class with converters is read as a
   struct with the same fields, from which the class is made.
3. A union of types that msgspec cannot tell apart is read by its members in turn.
4. A constraint on a type that msgspec does not constrain is checked afterwards.

A type without any of these stays as it is, and costs nothing.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NewType, Union, final, get_args, get_origin

import attrs
import msgspec

from ...states.rules.schema import MAX_PROBLEMS
from .metadata import ValueCheck, check_of, from_annotated_types, text_of, understood
from .records import fields_of, is_named_tuple, is_record
from .returned import error_text

REF = "#/$defs/"

Defs = dict[str, Any]

# What constructors and validators raise because of a value. All else is a failure of their own.
_ABOUT_VALUES = (
    *(ValueError, TypeError, AssertionError, ArithmeticError, LookupError),
    msgspec.MsgspecError,
)

_UNIONS = (Union, types.UnionType)

# `Annotated` and `Union` of parts that are known only when the program runs.
_annotated: Any = Annotated
_union: Any = Union


@final
@attrs.frozen
class FormRules:
    """How a form *read*s a JSON value, and its JSON Schema, which puts the types it refers to into `Defs`."""

    read: Callable[[Any], object]
    schema: Callable[[Defs], dict[str, Any]]


@final
class Form(type):
    """A class that stands for a type."""

    rules: FormRules

    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec checks what its hook returned


def _form(name: str, read: Callable[[Any], object], schema: Callable[[Defs], dict[str, Any]]) -> Form:
    made = Form(name, (), {})
    made.rules = FormRules(read, schema)
    return made


class UnreadableForm(ValueError):
    """A form cannot read a value, because of what its cause says, if it has one."""


def read_form(kind: object, value: object) -> object:
    """The argument of the JSON *value*, for `dec_hook` of msgspec; raises `ValueError`."""
    if not isinstance(kind, Form):
        raise NotImplementedError
    try:
        return kind.rules.read(value)
    except Exception as error:  # constructors and validators are any code
        raise UnreadableForm(error_text(error)) from error


def origin_of(error: BaseException) -> BaseException:
    """What a constructor or a validator raised, of which msgspec and forms made *error*."""
    while isinstance(error, msgspec.ValidationError | UnreadableForm) and error.__cause__ is not None:
        error = error.__cause__
    return error


def is_about_value(error: BaseException) -> bool:
    """Whether *error* says that a value is wrong, as far as its type shows."""
    return isinstance(origin_of(error), _ABOUT_VALUES)


def schema_of(form: Any, defs: Defs) -> dict[str, Any]:  # noqa: ANN401  # any type form
    """The JSON Schema of *form*; the types that it refers to go to *defs*."""
    schema, more = components(form, defs)
    _merge(defs, more)
    return schema


def components(form: Any, defs: Defs) -> tuple[dict[str, Any], Defs]:  # noqa: ANN401  # any type form
    """The schema of *form*, and of the types in it that msgspec knows; those of forms go to *defs*."""
    (schema,), found = msgspec.json.schema_components(
        [form], schema_hook=partial(_hook, defs), ref_template=f"{REF}{{name}}"
    )
    return schema, found


def _merge(defs: Defs, more: Defs) -> None:
    for name, each in more.items():
        if defs.setdefault(name, each) != each:
            msg = f"there are two types of the name {name!r}; rename one"
            raise ValueError(msg)


def _hook(defs: Defs, kind: object) -> dict[str, Any]:
    if not isinstance(kind, Form):
        raise NotImplementedError
    return kind.rules.schema(defs)


_PLACED = re.compile(r"(.*- at `\$.*`) - at `\$([^`]*)`", re.DOTALL)


def placed(complaint: str) -> str:
    """*complaint* with whole paths: msgspec adds that of a form behind those that are in it."""
    found = _PLACED.fullmatch(complaint)
    return placed(found[1]).replace("- at `$", f"- at `${found[2]}") if found else complaint


def _decoded(form: Any, value: object) -> object:  # noqa: ANN401  # any type form
    return msgspec.json.decode(msgspec.json.encode(value), type=form, dec_hook=read_form)


# What there is in a type


def _parts(form: Any) -> tuple[Any, ...]:  # noqa: ANN401  # any type form
    """The types directly in *form*: arguments, members, fields."""
    origin = get_origin(form)
    if origin is Annotated:
        return (form.__origin__,)
    if origin is Literal or _made_by_pydantic(form):
        return ()
    if isinstance(form, NewType):
        return (form.__supertype__,)
    try:
        fields = [field.kind for kind in (form, origin) if is_record(kind) for field in fields_of(kind)]
    except (NameError, TypeError, AttributeError):
        fields = []  # an annotation that cannot be evaluated, which msgspec refuses with a text
    return (*get_args(form), *fields)


def _reachable(form: Any) -> Iterator[Any]:  # noqa: ANN401  # any type form
    """*form* and all types in it, each once."""
    waiting, seen = [form], dict[int, Any]()
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen[id(each)] = each  # held, so that no other type gets its id
            yield each
            waiting += _parts(each)


def _members(form: Any) -> tuple[Any, ...]:  # noqa: ANN401  # any type form
    return get_args(form) if get_origin(form) in _UNIONS else (form,)


def _made_by_pydantic(form: object) -> bool:
    names = ("__pydantic_validator__", "__get_pydantic_core_schema__")
    return isinstance(form, type) and any(hasattr(form, name) for name in names)


def is_of_pydantic(each: object) -> bool:
    """Whether the metadata *each* is for pydantic: a `Field`, a validator, a strictness."""
    if from_annotated_types(each) or isinstance(each, type):
        return False
    names = ("__get_pydantic_core_schema__", "__prepare_pydantic_annotations__")
    package = type(each).__module__.partition(".")[0]
    return package == "pydantic" or any(hasattr(each, name) for name in names)


def _is_pydantic(form: Any) -> bool:  # noqa: ANN401  # any type form
    if get_origin(form) is Annotated:
        return any(map(is_of_pydantic, form.__metadata__))
    return _made_by_pydantic(form)


def _is_decodable(form: object) -> bool:
    try:
        msgspec.json.Decoder(form)
    except TypeError:
        return False
    return True


def _is_foreign(form: Any) -> bool:  # noqa: ANN401  # any type form
    """Whether msgspec refuses *form* itself, or skips what it says."""
    origin = get_origin(form)
    if origin is Annotated:
        return not all(isinstance(each, msgspec.Meta) for each in form.__metadata__)
    if origin in _UNIONS:
        several = len([each for each in get_args(form) if each is not type(None)]) > 1
        return several and not _is_decodable(form)
    if form is Iterable or origin is Iterable or form is Path or form is PurePath:
        return True
    return _made_by_pydantic(form) or is_named_tuple(form) or _has_converters(form)


def _has_converters(form: Any) -> bool:  # noqa: ANN401  # any type form
    """Whether *form* is an attrs class with converters, which msgspec does not run."""
    fields: Any = getattr(form, "__attrs_attrs__", ()) if isinstance(form, type) else ()
    return any(field.converter is not None for field in fields)


@final
class Translation:
    """Types of one signature as msgspec decodes them; a class is translated once."""

    def __init__(self) -> None:
        self._made: dict[type, Form] = {}
        self._names: set[str] = set()

    def of(self, form: Any) -> Any:  # noqa: ANN401, PLR0911  # any type form; one way out for each kind
        """*form* for msgspec; raises `ValueError` for what neither msgspec nor we can honour."""
        if not any(map(_is_foreign, _reachable(form))):
            return form
        origin = get_origin(form)
        if _is_pydantic(form):
            return self._pydantic(form)
        if origin is Annotated:
            return self._narrowed(form)
        if origin in _UNIONS:
            return _joined([self.of(member) for member in get_args(form)])
        if isinstance(form, NewType):
            return self.of(form.__supertype__)
        if form is Path or form is PurePath:
            return _form(form.__name__, _path(form), lambda _: {"type": "string", "format": "path"})
        if is_record(form):
            return self._record(form)
        if is_record(origin) and any(_is_foreign(each) for each in _reachable(origin)):
            msg = f"has the generic class {form!r} with such a field as only plain classes may have"
            raise ValueError(msg)
        arguments = tuple([self.of(each) for each in get_args(form)])
        if form is Iterable or origin is Iterable:
            return list[arguments] if arguments else list  # type: ignore[valid-type]  # known when it runs
        return origin[arguments] if origin is not None else form

    def _named(self, name: str) -> str:
        """*name*, or with a number behind it the first that no other type of this signature has."""
        names = (f"{name}_{number}" if number > 1 else name for number in range(1, len(self._names) + 2))
        free = next(each for each in names if each not in self._names)
        self._names.add(free)
        return free

    def _record(self, kind: Any) -> Form:  # noqa: ANN401  # any class with fields
        if kind not in self._made:
            # Known before its fields are looked at, which may lead back to it.
            form = self._made[kind] = Form(kind.__name__, (), {})
            fields = fields_of(kind)
            config = getattr(kind, "__struct_config__", None)
            written = "" if (kind.__doc__ or "").startswith(f"{kind.__name__}(") else kind.__doc__
            shadow = msgspec.defstruct(
                kind.__name__,
                # A key of a TypedDict need be no name of Python's.
                [(f"f{at}", self.of(field.kind), field.default) for at, field in enumerate(fields)],
                rename={f"f{at}": field.key for at, field in enumerate(fields)},
                namespace={"__doc__": written},
                kw_only=True,
                **({} if config is None else _kept(config)),
            )
            names = [field.name for field in fields]
            form.rules = FormRules(
                partial(_read_record, kind, shadow, names),
                partial(_record_schema, self._named(kind.__name__), shadow),
            )
        return self._made[kind]

    def _narrowed(self, form: Any) -> Any:  # noqa: ANN401  # any type form
        """The type in *form*, an `Annotated`, with its constraints and descriptions."""
        told = understood(form.__metadata__)
        inner, checks = self.of(form.__origin__), list(told.checks)
        if told.bounds:
            narrow = _bounded(inner, told.bounds)
            if narrow is None:
                kinds = [each for each in _members(form.__origin__) if each is not type(None)]
                checks += [check_of(keyword, bound, kinds) for keyword, bound in told.bounds.items()]
            else:
                inner = narrow
        if checks:
            inner = _form(
                "Checked", partial(_checked, inner, checks), partial(_checked_schema, inner, checks)
            )
        more = [msgspec.Meta(description=". ".join(told.texts))] if told.texts else []
        metas = [*told.metas, *more]
        return _annotated[(inner, *metas)] if metas else inner

    def _pydantic(self, form: Any) -> Any:  # noqa: ANN401  # any type form
        if isinstance(form, type) and form in self._made:
            return self._made[form]
        texts: list[str] = []
        if get_origin(form) is Annotated:
            texts = [text for each in form.__metadata__ if (text := text_of(each)) is not None]
            rest = [each for each in form.__metadata__ if text_of(each) is None]
            _check_for_pydantic(form, rest)
            form = _annotated[(form.__origin__, *rest)]
        from pydantic import TypeAdapter  # noqa: PLC0415  # a host without it has no such type

        adapter = TypeAdapter[Any](form)
        name = self._named(getattr(form, "__name__", "pydantic"))
        made = _form(name, partial(_validated, adapter), partial(_adapter_schema, adapter, name))
        if isinstance(form, type):
            self._made[form] = made
        return Annotated[made, msgspec.Meta(description=". ".join(texts))] if texts else made


def _bounded(form: Any, bounds: dict[str, Any]) -> Any:  # noqa: ANN401  # any type form
    """*form* with *bounds* that msgspec checks, on each member but None; None where it cannot."""
    try:
        meta = msgspec.Meta(**bounds)
    except TypeError:  # a bound that is no number
        return None
    members = [each if each is type(None) else Annotated[each, meta] for each in _members(form)]
    union = _union[tuple(members)]
    return union if _is_decodable(union) else None


def _path(kind: type[PurePath]) -> Callable[[Any], PurePath]:
    def read(value: object) -> PurePath:
        if not isinstance(value, str):
            msg = f"Expected a path as `str`, got `{type(value).__name__}`"
            raise TypeError(msg)
        return kind(value)

    return read


def _kept(config: Any) -> dict[str, Any]:  # noqa: ANN401  # of any struct
    """How a struct decodes, as keywords of `defstruct`."""
    return {
        "tag": config.tag,
        "tag_field": config.tag_field,
        "array_like": config.array_like,
        "forbid_unknown_fields": config.forbid_unknown_fields,
    }


def _read_record(kind: Any, shadow: type[msgspec.Struct], names: Sequence[str], value: object) -> object:  # noqa: ANN401  # any class
    decoded = _decoded(shadow, value)
    values = {name: getattr(decoded, f"f{at}") for at, name in enumerate(names)}
    return kind(**{name: each for name, each in values.items() if each is not msgspec.UNSET})


def _record_schema(name: str, shadow: type[msgspec.Struct], defs: Defs) -> dict[str, Any]:
    if name not in defs:
        defs[name] = {}  # a field may lead back to it
        reference, found = components(shadow, defs)
        defs[name] = found.pop(reference["$ref"].removeprefix(REF))
        _merge(defs, found)
    return {"$ref": f"{REF}{name}"}


def _checked(form: Any, checks: Sequence[ValueCheck], value: object) -> object:  # noqa: ANN401  # any type form
    decoded = _decoded(form, value)
    for check in checks:
        if not check.passes(decoded):
            msg = f"Expected {check.says}, got {value!r}"
            raise ValueError(msg)
    return decoded


def _checked_schema(form: Any, checks: Sequence[ValueCheck], defs: Defs) -> dict[str, Any]:  # noqa: ANN401  # any type form
    schema = schema_of(form, defs)
    for check in checks:
        schema = {**schema, **check.schema}
    return schema


def _joined(members: Sequence[Any]) -> Any:  # noqa: ANN401  # any type forms
    """The union of *members*, by msgspec where it can tell them apart."""
    union = _union[tuple(members)]
    if _is_decodable(union):
        return union
    union = _AnyOf(members)
    return _form("Union", union.read, union.schema)


@final
class _AnyOf:
    """A union of types that msgspec cannot tell apart."""

    def __init__(self, members: Sequence[Any]) -> None:
        self._members = members

    @cached_property
    def _known(self) -> list[tuple[Any, set[str]]]:
        """The members, each with the keys that it has fields for."""
        return [(member, _keys_of(member)) for member in self._members]

    def schema(self, defs: Defs) -> dict[str, Any]:
        return {"anyOf": [schema_of(member, defs) for member in self._members]}

    def read(self, value: object) -> object:
        """*value* as the first member that takes it; those that know most of its keys are asked first."""
        # A class takes an object with more keys than it has fields, and would take those of another class.
        keys = {str(key) for key in value} if isinstance(value, dict) else set[str]()
        problems: list[str] = []
        fault: Exception | None = None
        for member, _ in sorted(self._known, key=lambda known: -len(keys & known[1])):
            try:
                return _decoded(member, value)
            except Exception as error:  # noqa: BLE001  # of a member that does not fit
                problems.append(error_text(error))
                fault = fault if is_about_value(error) else error
        msg = f"Expected one of {len(self._members)} types: {'; or '.join(problems)}"
        raise UnreadableForm(msg) from fault


def _keys_of(member: Any) -> set[str]:  # noqa: ANN401  # any type form
    defs: Defs = {}
    schema = schema_of(member, defs)
    while "$ref" in schema:
        schema = defs[schema["$ref"].removeprefix(REF)]
    return set(schema.get("properties", ()))


def _check_for_pydantic(form: Any, metadata: Iterable[object]) -> None:  # noqa: ANN401  # any type form
    """Refuse what pydantic would skip, in the *metadata* of *form* and in the types below."""
    inside = [each for part in _reachable(form.__origin__) for each in getattr(part, "__metadata__", ())]
    for each in (*metadata, *inside):
        if getattr(each, "alias", None) or getattr(each, "validation_alias", None):
            msg = "has a Field with an alias, which a parameter cannot have; give it that name"
            raise ValueError(msg)
        if each is not None and not is_of_pydantic(each) and not from_annotated_types(each):
            msg = f"has the metadata {each!r}, which pydantic does not read; write it as a Field"
            raise ValueError(msg)


def _validated(adapter: Any, value: object) -> object:  # noqa: ANN401  # a TypeAdapter
    try:
        return adapter.validate_json(msgspec.json.encode(value), strict=True)
    except ValueError as error:
        problems = getattr(error, "errors", None)
        if problems is None:
            raise
        told = problems(include_url=False, include_context=False, include_input=False)
    places = [f"{each['msg']} - at `${_place(each['loc'])}`" for each in told[:MAX_PROBLEMS]]
    raise ValueError("; ".join(places))


def _place(loc: Iterable[object]) -> str:
    return "".join([f"[{each}]" if isinstance(each, int) else f".{each}" for each in loc])


def _adapter_schema(adapter: Any, name: str, defs: Defs) -> dict[str, Any]:  # noqa: ANN401  # a TypeAdapter
    schema: dict[str, Any] = adapter.json_schema(ref_template=f"{REF}{name}.{{model}}")
    defs |= {f"{name}.{key}": each for key, each in schema.pop("$defs", {}).items()}
    return schema
