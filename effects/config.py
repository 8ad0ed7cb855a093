"""
What an agent is told once: settings, as data. No callables, no clients, no clock.

Tools, prices and children are described here; who runs them lives in the performers and is known by name.
A number of None means "no limit"; 0 is refused, since half the world reads it as none and half as nothing.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeGuard, TypeVar, final

import attrs

from .errors import ArgumentError, ConfigError
from .text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

DEFAULT_WINDOW = 200_000
"""Context window in tokens where nothing else is known (the size most current models start at)."""

DEFAULT_OUTPUT_TOKENS = 16_384
"""Output tokens asked for per model call."""


def _positive(instance: object, attribute: attrs.Attribute[T], value: T) -> None:
    if value is not None and not (_is_number(value) and value > 0):
        where = f"{type(instance).__name__}.{attribute.name}"
        msg = f"{where} must be a number above 0, or None for no limit; got {value!r}"
        raise ConfigError(msg)


def _not_negative(instance: object, attribute: attrs.Attribute[T], value: T) -> None:
    if not (_is_number(value) and value >= 0):
        msg = f"{type(instance).__name__}.{attribute.name} must be a number, and not negative; got {value!r}"
        raise ConfigError(msg)


def _not_empty(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not value.strip():
        msg = f"{type(instance).__name__}.{attribute.name} must not be empty; got {value!r}"
        raise ConfigError(msg)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _a(kind: type) -> Callable[[object, attrs.Attribute[T], T], None]:
    """A validator for one value of *kind*."""

    def check(instance: object, attribute: attrs.Attribute[T], value: T) -> None:
        if not isinstance(value, kind):
            where = f"{type(instance).__name__}.{attribute.name}"
            msg = f"{where} must be a {kind.__name__}; got {value!r}"
            raise ArgumentError(msg)

    return check


def _all(kind: type) -> Callable[[object, attrs.Attribute[T], T], None]:
    """A validator for a tuple of values of *kind*."""

    def check(instance: object, attribute: attrs.Attribute[T], value: T) -> None:
        if not isinstance(value, tuple) or not all(isinstance(each, kind) for each in value):
            where = f"{type(instance).__name__}.{attribute.name}"
            msg = f"{where} must be a tuple of {kind.__name__}; got {value!r}"
            raise ArgumentError(msg)

    return check


def _json_object(instance: ToolSpec, attribute: attrs.Attribute[str], value: str) -> None:
    try:
        parsed: object = json.loads(value)
    except ValueError as error:
        msg = f"the {attribute.name} of tool {instance.name!r} is no JSON: {value!r} ({error})"
        raise ConfigError(msg) from error
    if not isinstance(parsed, dict):
        msg = f"the {attribute.name} of tool {instance.name!r} must be a JSON object; got {value!r}"
        raise ConfigError(msg)


def _money(value: Decimal | float | str) -> Decimal:
    try:
        money = Decimal(str(value))
    except InvalidOperation as error:
        msg = f"{value!r} is no amount of money; write it as 0.25 or '0.25'"
        raise ConfigError(msg) from error
    if not money.is_finite():
        msg = f"{value!r} is no amount of money"
        raise ConfigError(msg)
    return money


def _money_or_none(value: Decimal | float | str | None) -> Decimal | None:
    return None if value is None else _money(value)


class SideEffect(StrEnum):
    """
    What running a tool does to the world; decides parallel runs, approval and what happens after a crash.

    `READ_ONLY` runs again freely, `IDEMPOTENT` again with the same key, `UNSAFE` never without being told.
    """

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"


class Approval(StrEnum):
    """When a person is asked before a tool runs. `BY_SIDE_EFFECT`: unless it is read-only."""

    BY_SIDE_EFFECT = "by_side_effect"
    ALWAYS = "always"
    NEVER = "never"


class ToolKind(StrEnum):
    """`FUNCTION` is run by a performer; `AGENT` starts a child agent with its own run."""

    FUNCTION = "function"
    AGENT = "agent"


class PermissionMode(StrEnum):
    """`DEFAULT` asks as each tool says; `BYPASS` never asks."""

    DEFAULT = "default"
    BYPASS = "bypass"


@final
@attrs.frozen(kw_only=True)
class ToolSpec:
    """
    A tool as the loop knows it. *schema* is a JSON Schema (an object) as text, *timeout* in seconds.

    The function behind it is found by *name*.
    """

    name: str = attrs.field(validator=attrs.validators.matches_re(r"[a-zA-Z0-9_-]{1,64}"))
    description: str = ""
    schema: str = attrs.field(default='{"type":"object","properties":{}}', validator=_json_object)
    side_effect: SideEffect = attrs.field(default=SideEffect.UNSAFE, converter=SideEffect)
    approval: Approval = attrs.field(default=Approval.BY_SIDE_EFFECT, converter=Approval)
    timeout: float | None = attrs.field(default=30.0, validator=_positive)
    kind: ToolKind = attrs.field(default=ToolKind.FUNCTION, converter=ToolKind)


@final
@attrs.frozen(kw_only=True)
class Limits:
    """
    What a run may use. Checked before each model call and, but for the turns, before each batch of tools.

    *turns* are completed model responses. *tokens* are input and output of all of them. *seconds* are
    active time: what model calls, tools and children took; waiting for a person costs nothing.
    """

    turns: int | None = attrs.field(default=None, validator=_positive)
    tokens: int | None = attrs.field(default=None, validator=_positive)
    usd: Decimal | None = attrs.field(default=None, converter=_money_or_none, validator=_positive)
    seconds: float | None = attrs.field(default=None, validator=_positive)


@final
@attrs.frozen(kw_only=True)
class Price:
    """What a model costs, in USD per million tokens."""

    input: Decimal = attrs.field(converter=_money, validator=_not_negative)
    output: Decimal = attrs.field(converter=_money, validator=_not_negative)
    cached: Decimal | None = attrs.field(default=None, converter=_money_or_none)
    cache_write: Decimal | None = attrs.field(default=None, converter=_money_or_none)


@final
@attrs.frozen(kw_only=True)
class ModelSpec:
    """
    A model and how it is asked. *name* may begin with its wire, as ``openai:gpt-5`` does.

    *window* is its context in tokens. *temperature* and *max_output* are sent when they are not None.
    """

    name: str = attrs.field(validator=_not_empty)
    window: int = attrs.field(default=DEFAULT_WINDOW, validator=_positive)
    max_output: int | None = attrs.field(default=DEFAULT_OUTPUT_TOKENS, validator=_positive)
    temperature: float | None = None
    price: Price | None = None


class OnDenial(StrEnum):
    """After a person said no: back to the model at once, go on with the next call, or end the run."""

    SKIP_REST = "skip_rest"
    GO_ON = "go_on"
    INTERRUPT = "interrupt"


class OnMaxTokens(StrEnum):
    """After a cut-off answer: compact when the context is over its threshold, compact always, or stop."""

    COMPACT_OVER_THRESHOLD = "compact_over_threshold"
    COMPACT = "compact"
    STOP = "stop"


class Concurrency(StrEnum):
    """`SERIAL`: one call at a time, in order. `PARALLEL_READS`: neighbouring read-only calls together."""

    SERIAL = "serial"
    PARALLEL_READS = "parallel_reads"


@final
@attrs.frozen(kw_only=True)
class Policy:
    """How the loop decides where the sources of this design differ."""

    on_denial: OnDenial = attrs.field(default=OnDenial.SKIP_REST, converter=OnDenial)
    on_max_tokens: OnMaxTokens = attrs.field(
        default=OnMaxTokens.COMPACT_OVER_THRESHOLD, converter=OnMaxTokens
    )
    concurrency: Concurrency = attrs.field(default=Concurrency.SERIAL, converter=Concurrency)
    max_parallel: int = attrs.field(default=5, validator=_positive)
    compact_at: float = attrs.field(
        default=0.8, validator=attrs.validators.and_(attrs.validators.gt(0), attrs.validators.le(1))
    )
    mode: PermissionMode = attrs.field(default=PermissionMode.DEFAULT, converter=PermissionMode)


@final
@attrs.frozen(kw_only=True)
class Retries:
    """
    How often a failed model call is tried again, and how long it waits, in seconds.

    The wait before try *n* is ``base * 2**(n-1)``, plus up to *jitter* of itself; a provider's Retry-After
    takes its place, unless that is longer than *longest*: then the run ends and says so.
    """

    overloaded: int = attrs.field(default=8, validator=_not_negative)
    failed: int = attrs.field(default=3, validator=_not_negative)
    base: float = attrs.field(default=2.0, validator=_not_negative)
    jitter: float = attrs.field(default=0.2, validator=_not_negative)
    longest: float | None = attrs.field(default=3600.0, validator=_positive)


@final
@attrs.frozen(kw_only=True)
class Grant:
    """
    A rule that answers an approval beforehand: *tool*, and for each named argument a glob it must match.

    A glob's ``*`` matches any characters, slashes too; a value that is no string matches by its JSON text.
    """

    tool: str
    where: tuple[tuple[str, str], ...] = ()

    def covers(self, tool: str, arguments: Mapping[str, object]) -> bool:
        """Whether this rule answers for a call of *tool* with *arguments*."""
        return tool == self.tool and all(
            name in arguments and fnmatchcase(_plain(arguments[name]), glob) for name, glob in self.where
        )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@final
@attrs.frozen(kw_only=True)
class ChildSpec:
    """
    A child agent that a tool of kind `ToolKind.AGENT` may start. *tools* None: the parent's read-only ones.

    Whatever is asked for, a child's tools are a subset of its parent's and never start another child.
    """

    name: str
    description: str = ""
    system: str = ""
    tools: tuple[str, ...] | None = None
    model: ModelSpec | None = None
    limits: Limits = Limits(turns=10, tokens=100_000, seconds=60.0)


def _once(what: str, names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        msg = f"two {what} of one name: {', '.join(map(repr, twice))}; rename one of each"
        raise ConfigError(msg)


def _priced(limits: Limits, model: ModelSpec) -> None:
    if limits.usd is not None and model.price is None:
        msg = f"a limit in USD needs a price for {model.name!r}: give the model a Price"
        raise ConfigError(msg)


@final
@attrs.frozen(kw_only=True)
class Config:
    """
    All that a run is told. Two runs with equal configurations and equal events are equal.

    *allow* answers approvals beforehand; *stop* are the stop sequences sent to the model.
    """

    model: ModelSpec = attrs.field(validator=_a(ModelSpec))
    system: str = attrs.field(default="", converter=clean)
    tools: tuple[ToolSpec, ...] = attrs.field(default=(), validator=_all(ToolSpec))
    children: tuple[ChildSpec, ...] = attrs.field(default=(), validator=_all(ChildSpec))
    limits: Limits = attrs.field(default=Limits(), validator=_a(Limits))
    policy: Policy = attrs.field(default=Policy(), validator=_a(Policy))
    retries: Retries = attrs.field(default=Retries(), validator=_a(Retries))
    allow: tuple[Grant, ...] = attrs.field(default=(), validator=_all(Grant))
    stop: tuple[str, ...] = attrs.field(default=(), validator=_all(str))

    def __attrs_post_init__(self) -> None:
        _once("tools", [tool.name for tool in self.tools])
        _once("children", [child.name for child in self.children])
        _priced(self.limits, self.model)
        for child in self.children:
            _priced(child.limits if self.limits.usd is None else self.limits, child.model or self.model)

    def tool(self, name: str) -> ToolSpec | None:
        """The tool called *name*, or None."""
        for tool in self.tools:
            if tool.name == name:
                return tool
        return None

    def child(self, name: str) -> ChildSpec | None:
        """The child called *name*, or None."""
        for child in self.children:
            if child.name == name:
                return child
        return None
