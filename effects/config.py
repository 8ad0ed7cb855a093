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
    as_money_or_none,
    json_object,
    of_kind,
    once,
    positive,
    tool_name,
    tuple_of,
)
from .errors import ConfigError
from .hooks import HookSpec
from .model import ModelSpec
from .permissions import Rule
from .policy import Policy
from .text import clean
from .upkeep import Compaction, Loops, Retries

READER = "read_result"
"""The tool that reads what was left out of a long result."""


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
    touch anything. *secrets* are the names of those of its arguments, at any depth, that nobody but itself
    sees: in their place the machine has placeholders.
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
    secrets: tuple[str, ...] = attrs.field(default=(), validator=tuple_of(str))


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
class ChildSpec:
    """
    A child agent that a tool of kind `ToolKind.AGENT` may start. *tools* None: the parent's read-only ones.

    Whatever is asked for, a child's tools are a subset of its parent's and never start another child. What
    *limits* name is set aside from what its parent has left while it works; what it did not use is given
    back. *instructions* are files that are read for it, as `Config.instructions` are for its parent.
    """

    name: str
    description: str = ""
    system: str = ""
    tools: tuple[str, ...] | None = None
    model: ModelSpec | None = None
    limits: Limits = Limits(turns=10, tokens=100_000, seconds=60.0)
    instructions: tuple[str, ...] = ()


def _priced(limits: tuple[Limits, ...], model: ModelSpec) -> None:
    if model.price is None and any(each.usd is not None for each in limits):
        msg = f"a limit in USD needs a price for {model.name!r}: give the model a Price"
        raise ConfigError(msg)


def _known(where: str, model: str, models: list[str]) -> None:
    if model and model not in models:
        msg = f"{where} must be the name of one of the models, which are {models}; got {model!r}"
        raise ConfigError(msg)


@final
@attrs.frozen(kw_only=True)
class Config:
    """
    All that a run is told. Two runs with equal configurations and equal events are equal.

    *models* are others that a run may be switched to; *fallback* names the one of them that answers for the
    rest of a run when its model cannot. *limits* are each run's, *session_limits* those of all runs of a
    session together. *rules* answer for calls before a person is asked, *hooks* are the host's own say.
    *instructions* are the files, in the folders that the tools may touch, whose text is added to *system*
    when a session starts. *stop* are the stop sequences sent to the model. *cwd* is for whoever watches,
    *agent* the name of the child that this is the configuration of.
    """

    model: ModelSpec = attrs.field(validator=of_kind(ModelSpec))
    models: tuple[ModelSpec, ...] = attrs.field(default=(), validator=tuple_of(ModelSpec))
    fallback: str = ""
    system: str = attrs.field(default="", converter=clean)
    instructions: tuple[str, ...] = attrs.field(default=(), validator=tuple_of(str))
    tools: tuple[ToolSpec, ...] = attrs.field(default=(), validator=tuple_of(ToolSpec))
    children: tuple[ChildSpec, ...] = attrs.field(default=(), validator=tuple_of(ChildSpec))
    limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    session_limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    policy: Policy = attrs.field(default=Policy(), validator=of_kind(Policy))
    retries: Retries = attrs.field(default=Retries(), validator=of_kind(Retries))
    compaction: Compaction = attrs.field(default=Compaction(), validator=of_kind(Compaction))
    loops: Loops = attrs.field(default=Loops(), validator=of_kind(Loops))
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
        known = [model.name for model in (self.model, *self.models)]
        _known("fallback", self.fallback, known)
        _known("compaction.model", self.compaction.model, known)
        if self.compaction.keep >= self.policy.compact_at:
            less = f"less than policy.compact_at, {self.policy.compact_at}, or nothing could be summarised"
            msg = f"compaction.keep must be {less}; got {self.compaction.keep!r}"
            raise ConfigError(msg)
        for model in (self.model, *self.models):
            _priced((self.limits, self.session_limits), model)
        for child in self.children:
            _priced((self.limits, self.session_limits, child.limits), child.model or self.model)

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
