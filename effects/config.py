"""
What an agent is told once: settings, as data. No callables, no clients, no clock.

Tools, prices and children are described here; who runs them lives in the performers and is known by name.
A number of None means "no limit"; 0 is refused, since half the world reads it as none and half as nothing.
"""

from __future__ import annotations

from decimal import Decimal
from fnmatch import fnmatchcase
from typing import cast, final

import attrs

from .errors import ArgumentError, Choice, ConfigError
from .hooks import HookSpec
from .output import OutputMode, OutputSpec
from .permissions import PermissionMode, Rule
from .request_extras import (
    HeaderPairs,
    JSONObjectText,
    ProviderTools,
    as_header_pairs,
    as_object_text,
    as_provider_tools,
    session_field,
    shown_headers,
)
from .validators import (
    as_file_names,
    as_money,
    as_money_or_none,
    as_text,
    as_texts,
    json_object,
    not_empty,
    not_negative,
    of_kind,
    once,
    positive,
    share,
    share_or_none,
    spelled,
    tool_name,
    tuple_of,
)

# Models: how they are asked, how much they can read, and what they cost.


# Context window in tokens where nothing else is known (the size most current models start at).
DEFAULT_WINDOW = 200_000

# Output tokens asked for per model call.
DEFAULT_OUTPUT_TOKENS = 16_384

# Input tokens that models take whose names begin so, as their providers' pages say (2026-11); the first
# that fits counts. A window that is larger for a surcharge or by a header is not counted on.
WINDOWS: tuple[tuple[str, int], ...] = (
    ("gpt-4o", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-5", 272_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("claude", 200_000),
    ("gemini", 1_048_576),
    ("deepseek", 128_000),
    ("gpt-oss", 131_072),
)


def window_of(name: str) -> int:
    """The context window, in tokens, of the model called *name*: from `WINDOWS`, else `DEFAULT_WINDOW`."""
    # Before a colon stands the provider, behind one a variant: ollama:deepseek-r1:8b. Before a slash stands
    # the maker, as at resellers: openrouter:anthropic/claude-...
    parts = [part.rpartition("/")[2].lower() for part in name.split(":")]
    if len(parts) > 1 and parts[0] in dict(WINDOWS):  # a provider of other models, too: gemini:gemma-3
        del parts[0]
    return next(
        (window for prefix, window in WINDOWS for part in parts if part.startswith(prefix)), DEFAULT_WINDOW
    )


_if_known = attrs.validators.optional(not_negative)


@final
@spelled
@attrs.frozen
class Price:
    """
    What a model costs, in USD per million tokens; those that are None cost what *input* or *output* do.

    *source* and *date* (YYYY-MM-DD) say where the numbers come from, for a person who checks a bill.
    """

    input: Decimal = attrs.field(converter=as_money, validator=not_negative)
    output: Decimal = attrs.field(converter=as_money, validator=not_negative)
    cached: Decimal | None = attrs.field(
        default=None, converter=as_money_or_none, validator=_if_known, kw_only=True
    )
    cache_write: Decimal | None = attrs.field(
        default=None, converter=as_money_or_none, validator=_if_known, kw_only=True
    )
    reasoning: Decimal | None = attrs.field(
        default=None, converter=as_money_or_none, validator=_if_known, kw_only=True
    )
    source: str = attrs.field(default="", kw_only=True)
    date: str = attrs.field(default="", kw_only=True)


def _window(spec: ModelSpec) -> int:
    return window_of(spec.name)


@final
@spelled
@attrs.frozen
class ModelSpec:
    """
    A model and how it is asked. *name* may begin with its provider, as ``openai:gpt-5`` does.

    *window* is how many tokens it can read, by default what is known of its name. *temperature*, *top_p*,
    *seed* and *max_output* are sent when they are not None. *thinking* is how many tokens it may think, None
    for what the provider does by itself.

    *tool_choice*: ``"auto"``, which most providers do anyway; ``"none"``, no tools are offered;
    ``"required"`` or the name of a tool, the first answer of each run must call one, or that one. Later
    answers are free, or no run would end. Empty: nothing is sent.

    *extra_headers* and *extra_body* (an object, or its JSON text) go along with each request; journals hold
    both. A header that logs in names an environment variable: ``{"x-key": "${GATEWAY_KEY}"}``.
    *session_field* takes the name of the session, too, for a proxy that groups requests by it: a field of the
    body such as ``metadata.session_id``, or ``header:NAME``.

    *provider_tools* are tools that the provider runs, each as its API has it: ``{"type": "web_search"}``.
    """

    name: str = attrs.field(validator=not_empty)
    window: int = attrs.field(
        default=attrs.Factory(_window, takes_self=True), validator=positive, kw_only=True
    )
    max_output: int | None = attrs.field(default=DEFAULT_OUTPUT_TOKENS, validator=positive, kw_only=True)
    temperature: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(not_negative), kw_only=True
    )
    top_p: float | None = attrs.field(default=None, validator=share_or_none, kw_only=True)
    seed: int | None = attrs.field(default=None, kw_only=True)
    thinking: int | None = attrs.field(default=None, validator=positive, kw_only=True)
    tool_choice: str = attrs.field(default="", kw_only=True)
    extra_headers: HeaderPairs = attrs.field(
        default=HeaderPairs(()), converter=as_header_pairs, repr=shown_headers, kw_only=True
    )
    extra_body: JSONObjectText = attrs.field(
        default=JSONObjectText(""), converter=as_object_text, kw_only=True
    )
    session_field: str = attrs.field(default="", validator=session_field, kw_only=True)
    provider_tools: ProviderTools = attrs.field(
        default=ProviderTools(()), converter=as_provider_tools, kw_only=True
    )
    price: Price | None = attrs.field(
        default=None, validator=attrs.validators.optional(of_kind(Price)), kw_only=True
    )

    @property
    def provider(self) -> str:
        """The prefix of its name, which ends at the first colon; empty where there is none."""
        provider, colon, _ = self.name.partition(":")
        return provider if colon else ""

    def named(self, name: str) -> ModelSpec:
        """The model *name*, asked as this one is: without a price, and without extras at another provider."""
        other = attrs.evolve(self, name=name, price=None)
        if other.provider in {"", self.provider}:
            return other
        # A header may hold the key of this one's server.
        return attrs.evolve(other, extra_headers=(), extra_body="", session_field="", provider_tools=())


# What a model does about tools at every answer; another `ModelSpec.tool_choice` is for the first of a run.
AUTO_CHOICE, NO_CHOICE = "auto", "none"

# An answer must call some tool.
REQUIRED_CHOICE = "required"


# The policy: how the loop decides where there is more than one good way. Presets are in `presets`.


class OnDenial(Choice):
    """After a person said no: back to the model at once, go on with the next call, or end the run."""

    SKIP_REST = "skip_rest"
    GO_ON = "go_on"
    INTERRUPT = "interrupt"


class OnLost(Choice):
    """
    When the process is gone in which an unsafe tool was at work, so that it may have run.

    `REPORT`: its model is told so. `ASK`: a person is asked whether it runs again.
    """

    REPORT = "report"
    ASK = "ask"


class AutoAllow(Choice):
    """
    What runs without a question where no rule, no hook and no mode decides.

    `NOTHING` but what a tool says of itself. `SANDBOXED`: what runs in the sandbox, and of shell commands
    those of which it is known what they run.
    """

    NOTHING = "nothing"
    SANDBOXED = "sandboxed"


class OnMaxTokens(Choice):
    """After a cut-off answer: compact when the context is over its threshold, compact always, or stop."""

    COMPACT_OVER_THRESHOLD = "compact_over_threshold"
    COMPACT = "compact"
    STOP = "stop"


class Concurrency(Choice):
    """
    Which calls of one answer may run side by side.

    `SERIAL`: one at a time, in order. `PARALLEL_READS`: neighbouring read-only calls. `PARALLEL`: also those
    whose tools declare resources and have none in common with an earlier call that is not over.
    """

    SERIAL = "serial"
    PARALLEL_READS = "parallel_reads"
    PARALLEL = "parallel"


class Gates(Choice):
    """Who judges a call first: the hooks, so that rules judge what a hook made of it, or the rules."""

    HOOKS_FIRST = "hooks_first"
    RULES_FIRST = "rules_first"


class Steering(Choice):
    """
    When a model reads what a person said into a run.

    `NOW`: what runs is cancelled and the rest skipped, and an answer that is being streamed is cut.
    `AFTER_TOOL`: what runs is let finish and the rest skipped. `WHEN_DONE`: all calls of the answer run.
    """

    NOW = "now"
    AFTER_TOOL = "after_tool"
    WHEN_DONE = "when_done"


@final
@spelled
@attrs.frozen(kw_only=True)
class Policy:
    """
    How the loop decides where there is more than one good way.

    *auto_allow* is what runs without a question where neither a rule nor the mode decides. *max_parallel* is
    how many calls may be at work at once, *compact_at* the share of the window at which a conversation is
    shortened. *answer_within* is how many seconds a question waits before it is denied; None: for ever.
    *continues* is how often in a row a hook may make a run go on that would stop, *pauses* how often a
    provider may pause an answer. *coalesce*: prompts of one sender within so many seconds become one.
    *coalesce_longest*: but none that came more seconds after the first, or behind another sender's; 0: no
    such limit. *takeovers* is how often lost or left work is begun again.
    """

    on_denial: OnDenial = attrs.field(default=OnDenial.SKIP_REST, converter=OnDenial)
    on_lost: OnLost = attrs.field(default=OnLost.REPORT, converter=OnLost)
    on_max_tokens: OnMaxTokens = attrs.field(
        default=OnMaxTokens.COMPACT_OVER_THRESHOLD, converter=OnMaxTokens
    )
    concurrency: Concurrency = attrs.field(default=Concurrency.SERIAL, converter=Concurrency)
    max_parallel: int = attrs.field(default=5, validator=positive)
    gates: Gates = attrs.field(default=Gates.HOOKS_FIRST, converter=Gates)
    steering: Steering = attrs.field(default=Steering.AFTER_TOOL, converter=Steering)
    mode: PermissionMode = attrs.field(default=PermissionMode.DEFAULT, converter=PermissionMode)
    auto_allow: AutoAllow = attrs.field(default=AutoAllow.NOTHING, converter=AutoAllow)
    answer_within: float | None = attrs.field(default=None, validator=positive)
    continues: int = attrs.field(default=3, validator=not_negative)
    pauses: int = attrs.field(default=10, validator=not_negative)
    coalesce: float = attrs.field(default=0.0, validator=not_negative)
    coalesce_longest: float = attrs.field(default=0.0, validator=not_negative)
    # Restarts and deployments may cut a long call three times. A fourth cut is most likely its own doing.
    takeovers: int = attrs.field(default=3, validator=not_negative)
    compact_at: float = attrs.field(default=0.8, validator=share)


# How a long run is kept going: failures of models, a context that fills up, a model that goes in circles.


@final
@spelled
@attrs.frozen(kw_only=True)
class Retries:
    """
    How often a failed model call is tried again, and how long it waits, in seconds.

    The wait before try *n* is ``base * 2**(n-1)``, plus up to *jitter* of itself, and *longest* at most; a
    provider's Retry-After takes its place, and is *base* at least; where it is longer than *longest*, the run
    ends and says so. Where there is a fallback model, it is asked instead of a wait longer than
    *fallback_after*; a summary that nothing forces is given up instead of one. *output* is how often a wrong
    output is asked for again, at once.
    """

    overloaded: int = attrs.field(default=8, validator=not_negative)
    failed: int = attrs.field(default=3, validator=not_negative)
    base: float = attrs.field(default=2.0, validator=not_negative)
    jitter: float = attrs.field(default=0.2, validator=not_negative)
    longest: float | None = attrs.field(default=3600.0, validator=positive)
    fallback_after: float = attrs.field(default=10.0, validator=not_negative)
    output: int = attrs.field(default=2, validator=not_negative)


@final
@spelled
@attrs.frozen(kw_only=True)
class Compaction:
    """
    How a conversation is made smaller; `Policy.compact_at` says when it is summarised.

    *keep* is the share of the window that stays as it is when the rest is summarised, or less where that
    would leave no room to go on. *model* names who summarises, empty for the model in use, in *tokens* at
    most. After *failures* in a row none is tried any more unless it must be. *standing* is how many
    characters of what people said are carried word for word, at most a twentieth of the window.

    Before that, without a model: once there are more than *clear_over* tool results, the model no longer
    sees those before the latest *clear_keep*; None shows it all. Of a result longer than *result_limit*
    characters the conversation holds the beginning and the end; None holds it whole.
    """

    keep: float = attrs.field(default=0.25, validator=share)
    model: str = ""
    tokens: int = attrs.field(default=4_000, validator=positive)
    failures: int = attrs.field(default=3, validator=positive)
    standing: int = attrs.field(default=8_000, validator=not_negative)
    clear_over: int | None = attrs.field(default=15, validator=positive)
    clear_keep: int = attrs.field(default=5, validator=not_negative)
    result_limit: int | None = attrs.field(default=20_000, validator=positive)

    def __attrs_post_init__(self) -> None:
        if self.clear_over is not None and self.clear_keep > self.clear_over:
            most = f"at most clear_over, which is {self.clear_over}"
            msg = f"Compaction.clear_keep must be {most}; got {self.clear_keep!r}"
            raise ConfigError(msg)


@final
@spelled
@attrs.frozen(kw_only=True)
class Loops:
    """
    What happens to a model that goes in circles: how often it may repeat itself until then. None: never.

    What counts are calls since a person last said something: the same call, whatever came of it; calls that
    are alike and bring nothing new; and cycles of several calls. At *warn* the model is told, in that request
    only. At *withdraw* repetitions without anything new, the tools are not offered for *turns* turns. At
    *stop* the run ends; *same* calls with the same result end it, too.
    """

    warn: int | None = attrs.field(default=3, validator=positive)
    withdraw: int | None = attrs.field(default=5, validator=positive)
    stop: int | None = attrs.field(default=8, validator=positive)
    same: int | None = attrs.field(default=6, validator=positive)
    turns: int = attrs.field(default=3, validator=positive)

    @property
    def off(self) -> bool:
        """Whether nothing is looked for."""
        return self.warn is self.withdraw is self.stop is self.same is None

    @classmethod
    def never(cls) -> Loops:
        """A model may repeat itself for ever."""
        return cls(warn=None, withdraw=None, stop=None, same=None)


# The tool that reads what was left out of a long result.
READER = "read_result"


class SideEffect(Choice):
    """
    What running a tool does to the world; decides parallel runs, approval and what happens after a crash.

    `READ_ONLY` runs again freely, `IDEMPOTENT` again with the same key, `UNSAFE` never without being told.
    """

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"


class Approval(Choice):
    """When a person is asked before a tool runs. `BY_SIDE_EFFECT`: unless it is read-only."""

    BY_SIDE_EFFECT = "by_side_effect"
    ALWAYS = "always"
    NEVER = "never"


class ToolKind(Choice):
    """
    `FUNCTION` is run by a performer; `AGENT` starts a child agent with its own run.

    `OUTPUT` is never run: a call of it is the output of the run.
    """

    FUNCTION = "function"
    AGENT = "agent"
    OUTPUT = "output"


@final
@spelled
@attrs.frozen
class ToolSpec:
    """
    A tool as the loop knows it. *schema* is a JSON Schema (an object) as text, *timeout* in seconds.

    The function behind it is found by *name*. *edits*: it changes files and does nothing else, so the mode
    that accepts edits lets it run. *resources* are the keys of what it works on, in which ``{name}`` stands
    for an argument, such as ``account:{id}``: calls with no key in common may run side by side. None: it may
    touch anything. *secrets* are the names of those of its arguments, at any depth, that no other code
    sees: in their place the machine has placeholders.

    *paths* are the names of its arguments that are paths of files, *command* is that of one which a shell
    runs; rules judge those by what they reach and run. *fills*: an argument that is left out gets the default
    of the schema before anything is decided by it. *searches*: it shows something of any file below its
    paths, so rules that ask about paths of `read` speak about it, too. *sandboxed*: all that it does, it does
    in programs that run in the sandbox, where there is one.
    """

    name: str = attrs.field(validator=tool_name)
    description: str = attrs.field(default="", kw_only=True)
    schema: str = attrs.field(
        default='{"type":"object","properties":{}}', validator=json_object, kw_only=True
    )
    side_effect: SideEffect = attrs.field(default=SideEffect.UNSAFE, converter=SideEffect, kw_only=True)
    approval: Approval = attrs.field(default=Approval.BY_SIDE_EFFECT, converter=Approval, kw_only=True)
    timeout: float | None = attrs.field(default=30.0, validator=positive, kw_only=True)
    kind: ToolKind = attrs.field(default=ToolKind.FUNCTION, converter=ToolKind, kw_only=True)
    edits: bool = attrs.field(default=False, kw_only=True)
    resources: tuple[str, ...] | None = attrs.field(
        default=None, validator=attrs.validators.optional(tuple_of(str)), kw_only=True
    )
    secrets: tuple[str, ...] = attrs.field(default=(), validator=tuple_of(str), kw_only=True)
    paths: tuple[str, ...] = attrs.field(default=(), validator=tuple_of(str), kw_only=True)
    command: str = attrs.field(default="", kw_only=True)
    fills: bool = attrs.field(default=True, kw_only=True)
    searches: bool = attrs.field(default=False, kw_only=True)
    sandboxed: bool = attrs.field(default=False, kw_only=True)


@final
@spelled
@attrs.frozen(kw_only=True)
class Sandbox:
    """
    What a program that a tool runs may use: the *network* or none, *memory* in each process, and *tmp*.

    *memory* are bytes of data, *tmp* the bytes of its own ``/tmp``, which is empty for each program.
    """

    network: bool = False
    memory: int = attrs.field(default=4_000_000_000, validator=positive)
    tmp: int = attrs.field(default=500_000_000, validator=positive)


@final
@spelled
@attrs.frozen(kw_only=True)
class Limits:
    """
    What a run may use. Checked before each model call and, but for the turns, before each batch of tools.

    *turns* are completed model responses. *tokens* are input and output of all of them; what is left of them
    and of *usd* bounds the next answer. *seconds* are active time: what model calls, tools and children took;
    waiting for a person costs nothing. They stop nothing that is under way, which the timeouts of tools and
    models bound.
    """

    turns: int | None = attrs.field(default=None, validator=positive)
    tokens: int | None = attrs.field(default=None, validator=positive)
    usd: Decimal | None = attrs.field(default=None, converter=as_money_or_none, validator=positive)
    seconds: float | None = attrs.field(default=None, validator=positive)


def as_spec(model: str | ModelSpec) -> ModelSpec:
    """*model*, or the one of that name; `ArgumentError` for any other value."""
    given = cast("object", model)
    if isinstance(given, ModelSpec):
        return given
    if isinstance(given, str):
        return ModelSpec(given)
    msg = f"a model must be a name or a ModelSpec; got {given!r} (write it as 'openai:gpt-5')"
    raise ArgumentError(msg)


@final
@spelled
@attrs.frozen
class ChildSpec:
    """
    A child agent that a tool of kind `ToolKind.AGENT` may start.

    *tools* are names or globs of its parent's tools; None: the read-only ones. Whatever is asked for, they
    are a subset of its parent's and never start another child. What *limits* name is set aside from what its
    parent has left while it works; what it did not use is given back. *instructions* are files that are read
    for it, as `Config.instructions` are for its parent.
    """

    name: str = attrs.field(validator=not_empty)
    description: str = attrs.field(default="", validator=of_kind(str), kw_only=True)
    system: str = attrs.field(default="", validator=of_kind(str), kw_only=True)
    tools: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(as_texts), kw_only=True
    )
    model: ModelSpec | None = attrs.field(
        default=None, converter=attrs.converters.optional(as_spec), kw_only=True
    )
    limits: Limits = attrs.field(
        default=Limits(turns=10, tokens=100_000, seconds=60.0), validator=of_kind(Limits), kw_only=True
    )
    instructions: tuple[str, ...] = attrs.field(default=(), converter=as_file_names, kw_only=True)

    def names(self, tool: str) -> bool:
        """Whether *tool* is among its tools by name."""
        return any(fnmatchcase(tool, glob) for glob in self.tools or ())


def _priced(limits: tuple[Limits, ...], model: ModelSpec) -> None:
    if model.price is None and any(each.usd is not None for each in limits):
        msg = f"a limit in USD needs a price for {model.name!r}: give the model a Price"
        raise ConfigError(msg)


def _known(where: str, model: str, models: tuple[str, ...]) -> None:
    if model and model not in models:
        msg = f"{where} must be the name of one of the models, which are {[*models]}; got {model!r}"
        raise ConfigError(msg)


def _asks_by_tool(output: OutputSpec | None) -> bool:
    return output is not None and OutputMode.TOOL in {output.mode, *dict(output.modes).values()}


@final
@spelled
@attrs.frozen(kw_only=True)
class Config:
    """
    All that a run is told. Two runs with equal configurations and equal events are equal.

    *models* are others that a run may be switched to; *fallback* names the one of them that answers for the
    rest of a run when its model cannot. *limits* are each run's, *session_limits* those of all runs of a
    session together. *rules* answer for calls before a person is asked, *hooks* are the host's own say.
    *instructions* are the files, in the folders that the tools may touch, whose text is added to *system*
    when a session starts. *stop* are the stop sequences sent to the model. *protected* are globs of paths
    that the mode which accepts edits asks about. *cwd* is for watchers, *agent* the name of the child that
    this is the configuration of. *ceiling* is the widest mode that can be set: for a child, the one that
    its parent is in as it goes on. *sandbox* is what programs of tools run in. Raises `ConfigError` where the
    mode of *policy* is wider, or it allows what runs in a sandbox and there is none. *output* is what a run
    is to come to; see `with_output`.
    """

    model: ModelSpec = attrs.field(validator=of_kind(ModelSpec))
    models: tuple[ModelSpec, ...] = attrs.field(default=(), validator=tuple_of(ModelSpec))
    fallback: str = ""
    system: str = attrs.field(default="", converter=as_text)
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
    protected: tuple[str, ...] = attrs.field(default=(), validator=tuple_of(str))
    cwd: str = ""
    agent: str = ""
    ceiling: PermissionMode = attrs.field(default=PermissionMode.BYPASS, converter=PermissionMode)
    sandbox: Sandbox | None = attrs.field(default=None, validator=attrs.validators.optional(of_kind(Sandbox)))
    output: OutputSpec | None = attrs.field(
        default=None, validator=attrs.validators.optional(of_kind(OutputSpec))
    )

    def __attrs_post_init__(self) -> None:
        known = self.model_names
        if not self.policy.mode.within(self.ceiling):
            mode, ceiling = self.policy.mode.value, self.ceiling.value
            msg = f"policy.mode: {mode!r} is wider than the ceiling, {ceiling!r}; set a narrower mode"
            raise ConfigError(msg)
        if self.policy.auto_allow is AutoAllow.SANDBOXED and self.sandbox is None:
            msg = "policy.auto_allow is 'sandboxed', and nothing runs in a sandbox; set sandbox, too"
            raise ConfigError(msg)
        once("models", known)
        once("tools", [tool.name for tool in self.tools])
        once("children", [child.name for child in self.children])
        once("hooks", [hook.name for hook in self.hooks])
        _known("fallback", self.fallback, known)
        _known("compaction.model", self.compaction.model, known)
        outputs = {tool.name for tool in self.tools if tool.kind is ToolKind.OUTPUT}
        if self.output is not None and _asks_by_tool(self.output) and self.output.name not in outputs:
            msg = f"output: the tool {self.output.name!r} is missing, which gives it; use with_output"
            raise ConfigError(msg)
        if self.compaction.keep >= self.policy.compact_at:
            less = f"less than policy.compact_at, {self.policy.compact_at}, or nothing could be summarised"
            msg = f"compaction.keep must be {less}; got {self.compaction.keep!r}"
            raise ConfigError(msg)
        for model in (self.model, *self.models):
            _priced((self.limits, self.session_limits), model)
        for child in self.children:
            _priced((self.limits, self.session_limits, child.limits), child.model or self.model)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that are configured, the first one first."""
        return tuple([spec.name for spec in (self.model, *self.models)])

    @property
    def budgeted(self) -> bool:
        """Whether the money, tokens or time of a run or its session are limited; turns are no budget."""
        run, session = self.limits, self.session_limits
        money, tokens = run.usd is session.usd is None, run.tokens is session.tokens is None
        return not (money and tokens and run.seconds is session.seconds is None)

    def spec(self, model: str) -> ModelSpec:
        """How *model* is asked: as configured, or as the first one is, with no price, where it is not."""
        # A loop here and below, since each step asks several times: a generator would cost as much again.
        for spec in (self.model, *self.models):
            if spec.name == model:
                return spec
        return self.model.named(model)

    def tool(self, name: str) -> ToolSpec | None:
        """The tool called *name*, or None."""
        for tool in self.tools:
            if tool.name == name:
                return tool
        return None

    def child(self, name: str) -> ChildSpec | None:
        """The child called *name*, or None."""
        return next((child for child in self.children if child.name == name), None)


def with_output(config: Config, output: OutputSpec | None) -> Config:
    """*config* whose runs come to *output*, with its tool where a model is asked by one; None: to text."""
    tools = tuple([tool for tool in config.tools if tool.kind is not ToolKind.OUTPUT])
    if output is not None and _asks_by_tool(output):
        described = output.description or "Give the final output with this tool, which ends the work."
        spec = ToolSpec(
            name=output.name,
            description=described,
            schema=output.schema,
            side_effect=SideEffect.READ_ONLY,
            kind=ToolKind.OUTPUT,
        )
        tools = (*tools, spec)
    return attrs.evolve(config, output=output, tools=tools)


# Policies by name: the ways of deciding of well-known kinds of agents, each as a whole.


# Of a coding agent behind an SDK: one tool at a time, rules before hooks, a denied call is an error like
# any.
SDK = Policy(on_denial=OnDenial.GO_ON, gates=Gates.RULES_FIRST, steering=Steering.WHEN_DONE)

# Of an agent that people talk to while it works: what they say comes before its next tool.
STEERED = Policy(on_denial=OnDenial.GO_ON, steering=Steering.AFTER_TOOL)

# Of an agent in a chat window: reads side by side; a no, or no answer within five minutes, goes back to the
# model at once.
CONFIRMED = Policy(concurrency=Concurrency.PARALLEL_READS, answer_within=300.0, compact_at=0.7)

# Of one agent that many channels feed: messages in quick succession are one, and no sender keeps the others
# waiting for more than ten seconds. A no ends the turn.
SINGLETON = Policy(on_denial=OnDenial.INTERRUPT, coalesce=2.0, coalesce_longest=10.0)

# Its retries: eight where the provider is busy, none for another failure. Its channels wait as long as it
# takes: no other limit holds either.
SINGLETON_RETRIES = Retries(overloaded=8, failed=0, longest=None)
