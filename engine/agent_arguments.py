"""What `Agent` makes of its arguments: each function takes one, and refuses what it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs

from .. import effects
from ..effects.config import as_spec
from ..effects.permissions import as_rule
from ..effects.spelling import hint
from ..performers.callables import may_be_awaited, name_of, takes
from ..performers.hooks import HostHook
from ..performers.models.rate_limits import RateLimit
from ..performers.stores.base import Store, checked_store
from ..performers.tools.decorator import Tool, bound
from .session.completed_texts import Delivery

if TYPE_CHECKING:
    from ..performers.models.purposes import HostPerformers
    from ..performers.output import Output
    from ..performers.secrets import Vault
    from ..performers.stores.place import StorePlace
    from ..performers.stores.postgres.address import DatabaseAddress
    from ..performers.telemetry.otel import OpenTelemetry

T = TypeVar("T")
D = TypeVar("D")
W = TypeVar("W")

# A store, or where one is: the path of a SQLite file, or the address of a database.
AnyStore: TypeAlias = "Store | str | Path | DatabaseAddress"


# Errors begin with "... must be": the class of the agent puts the name of the argument in front (`spelled`).


def _named(value: object) -> str:
    """The name of a function or a tool; empty for anything else."""
    name: object = getattr(value, "__name__", None) or getattr(getattr(value, "spec", None), "name", "")
    return str(name) if callable(value) else ""


def _shown(value: object) -> str:
    """*value* as an error quotes it."""
    if isinstance(value, Tool | HostHook):
        return f"{type(value).__name__.lower()} {_named(value)!r}".replace("hosthook", "hook")
    if isinstance(value, type) or (callable(value) and not _named(value)):
        return f"the class {_named(value)}" if isinstance(value, type) else f"a {type(value).__name__}"
    return f"function {_named(value)!r}" if _named(value) else f"{value!r:.80}"


def _several(what: str, given: object, kind: type[T], fix: Callable[[object], str]) -> tuple[T, ...]:
    """
    *given* as a tuple of *kind*, which are *what* for an error; *fix* says what to do about another value.

    Raises `ArgumentError` for a single one, which the caller forgot to put into a list.
    """
    # A text is a sequence of texts, too: "src" would be three directories.
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        written = f"write [{_named(given) or _shown(given)}]"
        fits, more = isinstance(given, kind), f", and {written}" if callable(given) else ""
        way = written if fits else f"{fix(given)}{more}"
        msg = f"they must be a list of {what}; got {_shown(given)} ({way})"
        raise effects.ArgumentError(msg)
    every = tuple(cast("Iterable[object]", given))
    for each in every:
        if not isinstance(each, kind):
            msg = f"they must be a list of {what}; got {_shown(each)} in it ({fix(each)})"
            raise effects.ArgumentError(msg)
    return cast("tuple[T, ...]", every)


def _tool_fix(value: object) -> str:
    if isinstance(value, str):
        return "pass the tool itself; builtin_tools() has those that come with turnwheel"
    return "decorate it with @tool"


def _hook_fix(_: object) -> str:
    return "decorate it with @hook(...)"


def _child_fix(value: object) -> str:
    return f"write [ChildSpec({value!r})]" if isinstance(value, str) else "write [ChildSpec(name, tools=...)]"


def _rate_fix(_: object) -> str:
    return "write [RateLimit(model, requests=...)]"


def _path_fix(value: object) -> str:
    return f"write [{str(value)!r}]"


def as_specs(models: Iterable[str | effects.ModelSpec]) -> tuple[effects.ModelSpec, ...]:
    """Models, each by its name or as a `ModelSpec`."""
    given = cast("object", models)
    if isinstance(given, str | effects.ModelSpec) or not isinstance(given, Iterable):
        msg = f"they must be a list of models; got {models!r} (write [{models!r}])"
        raise effects.ArgumentError(msg)
    return tuple([as_spec(model) for model in models])


def as_tools(tools: Iterable[Tool[..., Any, D]]) -> tuple[Tool[..., Any, D], ...]:
    """Tools that `tool` made, which need deps of the same type."""
    return bound(cast("tuple[Tool[..., Any, D], ...]", _several("tools", tools, Tool, _tool_fix)))


def as_hooks(hooks: Iterable[HostHook[Any]]) -> tuple[HostHook[Any], ...]:
    """Hooks that `hook` made."""
    return cast("tuple[HostHook[Any], ...]", _several("hooks", hooks, HostHook, _hook_fix))


def as_rules(rules: Iterable[effects.Rule | str]) -> tuple[effects.Rule, ...]:
    """Rules, each as a `Rule` or as text such as ``"allow bash"``."""
    given = cast("object", rules)
    if isinstance(given, str | effects.Rule) or not isinstance(given, Iterable):
        shown = repr(str(given))
        msg = f"they must be a list of rules; got {shown} (write [{shown}])"
        raise effects.ArgumentError(msg)
    return tuple([as_rule(rule) for rule in rules])


def as_rates(rates: Iterable[RateLimit]) -> tuple[RateLimit, ...]:
    """Rates of models."""
    return _several("rates", rates, RateLimit, _rate_fix)


def as_children(children: Iterable[effects.ChildSpec]) -> tuple[effects.ChildSpec, ...]:
    """Agents that the model may start."""
    return _several("agents", children, effects.ChildSpec, _child_fix)


def as_paths(paths: Iterable[str | Path]) -> tuple[str | Path, ...]:
    """Paths of directories."""
    if isinstance(paths, str | Path):
        msg = f"they must be a list of paths; got {str(paths)!r} (write [{str(paths)!r}])"
        raise effects.ArgumentError(msg)
    return _several("paths", paths, cast("type[str | Path]", (str, Path)), _path_fix)


def as_most(requests: int | None) -> int | None:
    """How many requests may be at work at once, or None for no limit."""
    given = cast("object", requests)
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        msg = f"it must be at least 1 request at a time, or None for no limit; got {given!r}"
        raise effects.ConfigError(msg)
    return requests


def as_vault(vault: Vault) -> Vault:
    """A vault: whatever keeps and finds."""
    from ..performers.secrets import checked_vault  # noqa: PLC0415  # not needed to import this library

    return checked_vault(vault)


def as_telemetry(telemetry: OpenTelemetry | None) -> OpenTelemetry | None:
    """What makes spans of runs, or None."""
    if telemetry is None:
        return None
    from ..performers.telemetry.otel import OpenTelemetry as Known  # noqa: PLC0415  # most agents have none

    if not isinstance(cast("object", telemetry), Known):
        msg = f"it must be an OpenTelemetry; got {telemetry!r:.200} (write telemetry=OpenTelemetry())"
        raise effects.ArgumentError(msg)
    return telemetry


def as_wanted(output: type[W] | Output[W] | None) -> Output[W] | None:
    """What a run comes to as an `Output`; None for text."""
    if output is None or cast("object", output) is str:
        return None
    from ..performers.output import as_output  # noqa: PLC0415  # most agents come to text

    return as_output(output)


def as_place(store: AnyStore | None) -> Store | StorePlace | None:
    """A store as it is, or the place that a path or an address names."""
    given = cast("object", store)
    if given is None or isinstance(given, Store):
        return given
    from ..performers.stores.place import store_place  # noqa: PLC0415  # most agents have no path
    from ..performers.stores.postgres.address import DatabaseAddress  # noqa: PLC0415  # as above

    if not isinstance(given, str | Path | DatabaseAddress):
        return checked_store(cast("Store", given))
    if not str(given):
        msg = "the store must be a file or a database; got '' (leave it out to keep sessions in memory)"
        raise effects.ConfigError(msg)
    place = store_place(given)
    return place.expanduser() if isinstance(place, Path) else place


def opened(place: Store | StorePlace, by_place: dict[StorePlace, Store]) -> Store:
    """The store at *place*, one for each place; those in *by_place* are open."""
    if isinstance(place, Store):
        return place
    from ..performers.stores.place import open_place  # noqa: PLC0415  # as above

    known = place.absolute() if isinstance(place, Path) else place
    if known not in by_place:
        by_place[known] = open_place(place)
    return by_place[known]


# What is checked where it needs no change: of each argument what it must be, and what to write instead.


def _takes_one(function: object) -> bool:
    """Whether *function* may be called with one argument."""
    if not callable(function) or function in get_args(effects.Decision):
        return False
    return takes(function, 1)


def _may_tell_time(clock: object) -> bool:
    return all(callable(getattr(clock, name, None)) for name in ("now", "sleep_until"))


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_callable(value: object) -> bool:
    return value is None or callable(value)


_RULES: dict[str, tuple[Callable[[object], bool], str, str]] = {
    "base_url": (_is_text, "text", "write 'https://...'"),
    "api_key": (_is_text, "text", "write api_key='...'"),
    "worker": (lambda value: isinstance(value, str), "text", "leave it out for none"),
    "approver": (
        lambda value: value is None or _takes_one(value),
        "a function of one question",
        "write lambda question: Approve()",
    ),
    "prices": (_is_callable, "a function such as price_of", "or give each ModelSpec its price"),
    "tools_for": (_is_callable, "a function that names the tools of a turn", "or give tools alone"),
    "clock": (_may_tell_time, "a clock with now and sleep_until", "leave it out for the system's"),
    "cwd": (lambda value: isinstance(value, str | Path), "a path", "leave it out for '.'"),
}

# The settings that have a class of their own. No setting of None but `sandbox` means something.
_CLASSES: dict[str, type] = {
    "limits": effects.Limits,
    "session_limits": effects.Limits,
    "policy": effects.Policy,
    "retries": effects.Retries,
    "compaction": effects.Compaction,
    "loops": effects.Loops,
    "watch": Delivery,
    "sandbox": effects.Sandbox,
}


def check_arguments(agent: Any) -> None:  # noqa: ANN401  # the class imports this module
    """Raise `ArgumentError` for the first argument of *agent* that has the wrong kind."""
    for name, (holds, what, fix) in _RULES.items():
        if not holds(value := getattr(agent, name)):
            shown = type(value).__name__ if name == "api_key" else _shown(value)
            raise _refusal(name, what, shown, fix)
    for name, kind in _CLASSES.items():
        value = getattr(agent, name)
        if not isinstance(value, kind) and not (value is None and name == "sandbox"):
            raise _refusal(name, f"a {kind.__name__}", _shown(value), _class_fix(kind, value))
    _check_performers(agent.performers)
    # A host that runs the tools itself has its own deps.
    if effects.RunTool not in agent.performers:
        _check_deps(agent.tools, agent.deps)
    if not Path(agent.cwd).is_dir():
        msg = f"Agent.cwd must be a directory; got {str(agent.cwd)!r} (make it, or name another one)"
        raise effects.ConfigError(msg)


# What stands in the brackets of a `ToolContext` that needs no deps.
_NO_DEPS = (object, Any)


def _check_deps(tools: Iterable[Tool[..., Any]], deps: object) -> None:
    """Raise `ArgumentError` for a tool that needs other deps than *deps*, those of its agent."""
    for tool in tools:
        for name in tool.injected:
            shown = str(tool.function.__annotations__.get(name, "")).rpartition("[")
            # Looked at as text first: most tools need none, and to evaluate an annotation takes its time.
            if not shown[1] or shown[2] in {"object]", "Any]", "None]"}:
                continue
            needed = _deps_of(tool.function, name)
            if needed and not any(_fits(deps, kind) for kind in needed):
                what = f"a {' or '.join([kind.__name__ for kind in needed])}"
                fix = f"; write {deps.__name__}(...)" if isinstance(deps, type) and deps in needed else ""
                raise _deps_refusal(what, _kind_shown(deps), f"tool {tool.spec.name!r} needs it{fix}")


def _fits(deps: object, needed: type) -> bool:
    """Whether *deps* are what a tool *needed*, as far as that can be told when a program runs."""
    if needed in _NO_DEPS:
        return True
    # The attributes of such a protocol are known to type checkers alone, as the keys of a `TypedDict` are.
    unknown = getattr(needed, "_is_protocol", False) and not getattr(needed, "_is_runtime_protocol", False)
    if unknown or is_typeddict(needed):
        return deps is not None
    # Type checkers take an int where a float is wanted, so the tool gets one.
    wider = {float: (float, int), complex: (complex, float, int)}
    return isinstance(deps, wider.get(needed, needed))


def _kind_shown(deps: object) -> str:
    """The class of *deps*, which may hold secrets."""
    if isinstance(deps, type):
        return f"the class {deps.__name__}"
    return "None" if deps is None else type(deps).__name__


def _deps_of(function: Callable[..., object], parameter: str) -> list[type]:
    """The class of the deps in the annotation of *parameter*, or those of a union; empty for other types."""
    try:
        kinds = get_args(get_type_hints(function)[parameter])
    except (NameError, TypeError, KeyError):
        # A name that type checkers alone know.
        return []
    if kinds and get_origin(kinds[0]) in {Union, UnionType}:
        kinds = get_args(kinds[0])
    classes = [get_origin(kind) or kind for kind in kinds]
    return classes if all(isinstance(kind, type) for kind in classes) else []


def _deps_refusal(what: str, shown: str, fix: str) -> effects.ArgumentError:
    return _refusal("deps", what, shown, fix)


def _refusal(name: str, what: str, shown: str, fix: str) -> effects.ArgumentError:
    return effects.ArgumentError(f"Agent.{name} must be {what}; got {shown} ({fix})")


def _performers_refusal(what: str, shown: str, fix: str) -> effects.ArgumentError:
    return _refusal("performers", what, shown, fix)


def _class_fix(kind: type, value: object) -> str:
    """How to write a *kind* instead of *value*."""
    given: Mapping[object, object] = cast("Any", value) if isinstance(value, Mapping) else {}
    if kind is effects.Policy and value in tuple(effects.PermissionMode):
        given = {"mode": str(value)}
    if value is None:
        return "leave it out for the usual"
    fields = [each.alias for each in attrs.fields(cast("Any", kind))]
    written = [f"{name}={each!r}" for name, each in given.items()] or [f"{fields[0]}=..."]
    return f"write {kind.__name__}({', '.join(written)})"


def _check_performers(given: HostPerformers) -> None:
    performers = cast("object", given)
    if not isinstance(performers, Mapping):
        what, fix = "a mapping from types of requests", "write {CallModel: it}"
        raise _performers_refusal(what, _shown(performers), fix)
    if not performers:
        return
    from ..performers.models.purposes import MakeTitle, Summarise  # noqa: PLC0415  # most agents give none

    kinds = (*get_args(effects.Request), Summarise, MakeTitle)
    known: dict[str, object] = {kind.__name__: kind for kind in kinds}
    for key, performer in cast("Mapping[object, object]", performers).items():
        if key not in known.values():
            what, shown = "by types of requests", repr(key if isinstance(key, str) else _named(key) or key)
            name = shown.strip("'")
            fix = f"write {name} without quotes" if name in known else hint(name, known)
            raise _performers_refusal(what, shown, fix)
        if isinstance(performer, type) or not callable(performer):
            what, fix = "functions or objects to call", "make one, such as ScriptedModel(...)"
            raise _performers_refusal(what, _shown(performer), fix)
        _check_performer(key, performer)


def _check_performer(kind: object, performer: Callable[..., object]) -> None:
    """Raise `ArgumentError` for a *performer* of a *kind* of request that would fail when it is asked."""
    name = name_of(performer)
    fault = "" if may_be_awaited(performer) else "is not async"
    if not takes(performer, 2):
        fault = "must take a request and its context"
    if fault:
        written = f"write async def {name}(request, context)"
        msg = f"Agent.performers: {_named(kind)}: {name} {fault}; {written}"
        raise effects.ArgumentError(msg)
