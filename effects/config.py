"""
What an agent is told once: settings, as data. No callables, no clients, no clock.

Tools, prices and children are described here; who runs them lives in the performers and is known by name.
A number of None means "no limit"; 0 is refused, since half the world reads it as none and half as nothing.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import final

import attrs

from .checks import (
    as_money,
    as_money_or_none,
    json_object,
    not_empty,
    not_negative,
    of_kind,
    once,
    positive,
    share,
    tool_name,
    tuple_of,
)
from .errors import ConfigError
from .hooks import HookSpec
from .permissions import PermissionMode, Rule
from .text import clean

DEFAULT_WINDOW = 200_000
"""Context window in tokens where nothing else is known (the size most current models start at)."""

DEFAULT_OUTPUT_TOKENS = 16_384
"""Output tokens asked for per model call."""


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


@final
@attrs.frozen(kw_only=True)
class ToolSpec:
    """
    A tool as the loop knows it. *schema* is a JSON Schema (an object) as text, *timeout* in seconds.

    The function behind it is found by *name*. *edits*: it changes files and does nothing else, so the mode
    that accepts edits lets it run. *resources* are the keys of what it works on, in which ``{name}`` stands
    for an argument, such as ``account:{id}``: calls with no key in common may run side by side. None: it may
    touch anything.
    """

    name: str = attrs.field(validator=tool_name)
    description: str = ""
    schema: str = attrs.field(default='{"type":"object","properties":{}}', validator=json_object)
    side_effect: SideEffect = attrs.field(default=SideEffect.UNSAFE, converter=SideEffect)
    approval: Approval = attrs.field(default=Approval.BY_SIDE_EFFECT, converter=Approval)
    timeout: float | None = attrs.field(default=30.0, validator=positive)
    kind: ToolKind = attrs.field(default=ToolKind.FUNCTION, converter=ToolKind)
    edits: bool = False
    resources: tuple[str, ...] | None = attrs.field(
        default=None, validator=attrs.validators.optional(tuple_of(str))
    )


@final
@attrs.frozen(kw_only=True)
class Limits:
    """
    What a run may use. Checked before each model call and, but for the turns, before each batch of tools.

    *turns* are completed model responses. *tokens* are input and output of all of them. *seconds* are
    active time: what model calls, tools and children took; waiting for a person costs nothing.
    """

    turns: int | None = attrs.field(default=None, validator=positive)
    tokens: int | None = attrs.field(default=None, validator=positive)
    usd: Decimal | None = attrs.field(default=None, converter=as_money_or_none, validator=positive)
    seconds: float | None = attrs.field(default=None, validator=positive)


@final
@attrs.frozen(kw_only=True)
class Price:
    """What a model costs, in USD per million tokens."""

    input: Decimal = attrs.field(converter=as_money, validator=not_negative)
    output: Decimal = attrs.field(converter=as_money, validator=not_negative)
    cached: Decimal | None = attrs.field(default=None, converter=as_money_or_none)
    cache_write: Decimal | None = attrs.field(default=None, converter=as_money_or_none)


@final
@attrs.frozen(kw_only=True)
class ModelSpec:
    """
    A model and how it is asked. *name* may begin with its wire, as ``openai:gpt-5`` does.

    *window* is its context in tokens. *temperature* and *max_output* are sent when they are not None.
    *thinking* is how many tokens it may think, None for what the provider does by itself.
    """

    name: str = attrs.field(validator=not_empty)
    window: int = attrs.field(default=DEFAULT_WINDOW, validator=positive)
    max_output: int | None = attrs.field(default=DEFAULT_OUTPUT_TOKENS, validator=positive)
    temperature: float | None = None
    thinking: int | None = attrs.field(default=None, validator=positive)
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
    """
    Which calls of one answer may run side by side.

    `SERIAL`: one at a time, in order. `PARALLEL_READS`: neighbouring read-only calls. `PARALLEL`: also those
    whose tools declare resources and have none in common with an earlier call that is not over.
    """

    SERIAL = "serial"
    PARALLEL_READS = "parallel_reads"
    PARALLEL = "parallel"


class Gates(StrEnum):
    """Who judges a call first: the hooks, so that rules judge what a hook made of it, or the rules."""

    HOOKS_FIRST = "hooks_first"
    RULES_FIRST = "rules_first"


class Steering(StrEnum):
    """
    When a model reads what a person said into a run.

    `NOW`: what runs is cancelled and the rest skipped, and an answer that is being streamed is cut.
    `AFTER_TOOL`: what runs is let finish and the rest skipped. `WHEN_DONE`: all calls of the answer run.
    """

    NOW = "now"
    AFTER_TOOL = "after_tool"
    WHEN_DONE = "when_done"


@final
@attrs.frozen(kw_only=True)
class Policy:
    """
    How the loop decides where there is more than one good way.

    *max_parallel* is how many calls may be at work at once, *compact_at* the share of the window at which a
    conversation is shortened. *answer_within* is how long a question waits, in seconds, before it counts as
    denied; None for ever. *continues* is how often in a row a hook may make a run go on that was about to
    stop. *coalesce*: prompts of one sender that follow each other within so many seconds become one.
    """

    on_denial: OnDenial = attrs.field(default=OnDenial.SKIP_REST, converter=OnDenial)
    on_max_tokens: OnMaxTokens = attrs.field(
        default=OnMaxTokens.COMPACT_OVER_THRESHOLD, converter=OnMaxTokens
    )
    concurrency: Concurrency = attrs.field(default=Concurrency.SERIAL, converter=Concurrency)
    max_parallel: int = attrs.field(default=5, validator=positive)
    gates: Gates = attrs.field(default=Gates.HOOKS_FIRST, converter=Gates)
    steering: Steering = attrs.field(default=Steering.AFTER_TOOL, converter=Steering)
    mode: PermissionMode = attrs.field(default=PermissionMode.DEFAULT, converter=PermissionMode)
    answer_within: float | None = attrs.field(default=None, validator=positive)
    continues: int = attrs.field(default=3, validator=not_negative)
    coalesce: float = attrs.field(default=0.0, validator=not_negative)
    compact_at: float = attrs.field(default=0.8, validator=share)


@final
@attrs.frozen(kw_only=True)
class Retries:
    """
    How often a failed model call is tried again, and how long it waits, in seconds.

    The wait before try *n* is ``base * 2**(n-1)``, plus up to *jitter* of itself; a provider's Retry-After
    takes its place, unless that is longer than *longest*: then the run ends and says so.
    """

    overloaded: int = attrs.field(default=8, validator=not_negative)
    failed: int = attrs.field(default=3, validator=not_negative)
    base: float = attrs.field(default=2.0, validator=not_negative)
    jitter: float = attrs.field(default=0.2, validator=not_negative)
    longest: float | None = attrs.field(default=3600.0, validator=positive)


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


def _priced(limits: Limits, model: ModelSpec) -> None:
    if limits.usd is not None and model.price is None:
        msg = f"a limit in USD needs a price for {model.name!r}: give the model a Price"
        raise ConfigError(msg)


@final
@attrs.frozen(kw_only=True)
class Config:
    """
    All that a run is told. Two runs with equal configurations and equal events are equal.

    *models* are others that a run may be switched to, *rules* answer for calls before a person is asked,
    *hooks* are the host's own say. *instructions* are the files, in the folders that the tools may touch,
    whose text is added to *system* when a session starts. *stop* are the stop sequences sent to the model.
    *cwd* is for whoever watches, *agent* the name of the child that this is the configuration of.
    """

    model: ModelSpec = attrs.field(validator=of_kind(ModelSpec))
    models: tuple[ModelSpec, ...] = attrs.field(default=(), validator=tuple_of(ModelSpec))
    system: str = attrs.field(default="", converter=clean)
    instructions: tuple[str, ...] = attrs.field(default=(), validator=tuple_of(str))
    tools: tuple[ToolSpec, ...] = attrs.field(default=(), validator=tuple_of(ToolSpec))
    children: tuple[ChildSpec, ...] = attrs.field(default=(), validator=tuple_of(ChildSpec))
    limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    policy: Policy = attrs.field(default=Policy(), validator=of_kind(Policy))
    retries: Retries = attrs.field(default=Retries(), validator=of_kind(Retries))
    rules: tuple[Rule, ...] = attrs.field(default=(), validator=tuple_of(Rule))
    hooks: tuple[HookSpec, ...] = attrs.field(default=(), validator=tuple_of(HookSpec))
    stop: tuple[str, ...] = attrs.field(default=(), validator=tuple_of(str))
    cwd: str = ""
    agent: str = ""

    def __attrs_post_init__(self) -> None:
        once("models", [model.name for model in (self.model, *self.models)])
        once("tools", [tool.name for tool in self.tools])
        once("children", [child.name for child in self.children])
        once("hooks", [hook.name for hook in self.hooks])
        for model in (self.model, *self.models):
            _priced(self.limits, model)
        for child in self.children:
            _priced(child.limits if self.limits.usd is None else self.limits, child.model or self.model)

    def spec(self, model: str) -> ModelSpec:
        """
        How *model* is asked: as configured, or as the first one is, with no price, where it is not.
        """
        for spec in (self.model, *self.models):
            if spec.name == model:
                return spec
        return attrs.evolve(self.model, name=model, price=None)

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
