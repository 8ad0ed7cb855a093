"""`tool`: a plain function becomes something a model can call."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import GenericAlias
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    final,
    overload,
)

import attrs
import msgspec

from ...effects import ArgumentError, Config, History, Secrets, ToolDefinitionError, ToolSpec
from ...effects.secrets import ANY, arguments_in, flags_in, secrets_in
from ...states.rules.schema import MAX_PROBLEMS
from ..base import FullResult, no_full_result, noop
from ..callables import doc_of, is_async, name_of, unusable
from .docstring import parse_docstring
from .forms import placed, read_form
from .options import ToolOptions, option_problem
from .process import MAX_OUTPUT, ProcessEnd, run
from .schema import json_schema, with_integers
from .signature import definition_error, is_method, misnamed, read_parameters

if TYPE_CHECKING:
    from ...effects.permissions import Rule
    from ...states.context import Memory
    from ...states.state import State

# What a tool is told besides its arguments.

# From the words of a program to those that run it in a sandbox, and a descriptor which they inherit.
InSandbox = Callable[[Sequence[str]], Awaitable[tuple[Sequence[str], int]]]


D_co = TypeVar("D_co", covariant=True)


@final
@attrs.frozen(kw_only=True)
class ToolContext(Generic[D_co]):
    """
    Where a tool runs and for whom. A parameter annotated with it is filled in and never shown to the model.

    *directories* are all roots the file tools may touch, *cwd* among them; an absolute one is taken as it is
    and must be free of symlinks. *tool* is the name that the model calls it by. *key* is the idempotency key:
    a call that is run again after a crash has the key it had before. *deps* is whatever the host handed to
    its `ToolRunner`. *history* is the conversation as it was when the call started, and does not change.

    *result_limit* is how many characters of a result the conversation holds whole, None for all of them: a
    tool that can be asked for the next part returns no more. *full_result* finds the whole result of a call,
    by its id, that was longer; None where there is none. *config*, *state* and *memory* are all that the run
    is told and knows, frozen as the call started. *in_sandbox* gives the words that run a program in the
    agent's sandbox, None where it has none. A test of a tool may build one with *cwd* and *deps* alone.
    """

    cwd: Path
    deps: D_co
    directories: tuple[Path, ...] = attrs.Factory(lambda context: (context.cwd,), takes_self=True)
    session: str = ""
    call: str = ""
    tool: str = ""
    key: str = ""
    history: History = attrs.field(factory=History.of, repr=False)
    result_limit: int | None = None
    full_result: FullResult = attrs.field(default=no_full_result, repr=False, eq=False)
    config: Config | None = attrs.field(default=None, repr=False)
    state: State | None = attrs.field(default=None, repr=False)
    memory: Memory | None = attrs.field(default=None, repr=False)
    emit: Callable[[str], None] = attrs.field(default=noop, repr=False, eq=False)
    in_sandbox: InSandbox | None = attrs.field(default=None, repr=False, eq=False)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The permission rules of the run."""
        return () if self.config is None else self.config.rules

    async def run(
        self,
        command: Sequence[str],
        *,
        seconds: float | None = None,
        given: bytes | None = None,
        keep: int = MAX_OUTPUT,
        live: bool = False,
    ) -> ProcessEnd:
        """
        Run the program *command* in *cwd* to its end, for *seconds* at most; in the agent's sandbox, if any.

        It reads what it is *given*. Without that it reads nothing, and both output streams are one. Of each
        *keep* bytes are kept, half from its beginning and half from its end. What it started ends with it.
        *live* output is reported by `progress` after two seconds, in whole lines. Raises `OSError` where it
        cannot be started, and `ValueError` where it cannot be run in the sandbox.
        """
        inherited: tuple[int, ...] = ()
        if self.in_sandbox is not None:
            command, calls = await self.in_sandbox(command)
            inherited = (calls,)
        elif self.config is not None and self.config.sandbox is not None:
            msg = "the agent has a sandbox, and this context was made without one; make it with a ToolRunner"
            raise ValueError(msg)
        try:
            return await run(
                command,
                cwd=self.cwd,
                seconds=seconds,
                given=given,
                keep=keep,
                descriptors=inherited,
                report=self.progress if live else None,
            )
        finally:
            for descriptor in inherited:
                os.close(descriptor)

    def progress(self, text: str) -> None:
        """
        Tell subscribers how far the tool is; the model does not read it. Fine to call from any thread.

        Progress after the call was answered, of a tool that did not stop in time, is dropped.
        """
        # From another thread the mistake would come up in the event loop, far from its cause.
        if not isinstance(cast("object", text), str):
            msg = f"progress is text; got {type(text).__name__}: {text!r}"
            raise TypeError(msg)
        self.emit(text)


# ``{name}`` in the key of a resource.
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def _resource_keys(
    function: Callable[..., object], keys: Iterable[object], arguments: Iterable[str]
) -> Iterator[str]:
    """
    *keys* of what *function* works on; raises `ToolDefinitionError` where one could never be filled in.

    Such as ``account:{id}``, in which ``{id}`` stands for one of the *arguments*.
    """
    if isinstance(keys, str):
        raise definition_error(function, f"its resources are several keys; write [{keys!r}]")
    for key in keys:
        if not isinstance(key, str):
            problem = "is no text"
        elif re.search(r"[{}]", _PLACEHOLDER.sub("", key)):
            problem = "has a brace that belongs to no {name}"
        elif missing := [name for name in _PLACEHOLDER.findall(key) if name not in arguments]:
            problem = f"names no argument {missing[0]!r}; there are: {', '.join(arguments) or 'none'}"
        else:
            yield key
            continue
        raise definition_error(function, f"the resource {key!r} {problem}")


def _names(function: Callable[..., object], names: Iterable[object]) -> Iterator[str]:
    """*names* of arguments of *function*; raises `ToolDefinitionError` where they are none."""
    if isinstance(names, str):
        raise definition_error(function, f"several names are wanted, not one: write [{names!r}]")
    for name in names:
        if not isinstance(name, str):
            raise definition_error(function, f"a name is text, not {name!r}")
        yield name


# Characters of the names of arguments in the `repr` of a tool.
_MAX_NAMES_SHOWN = 200

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
D = TypeVar("D")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    # The deps that a tool needs of its agent; object where it asks for none.
    Needs_contra = DefaultedTypeVar("Needs_contra", contravariant=True, default=Any)
else:
    Needs_contra = TypeVar("Needs_contra", contravariant=True)


@final
@attrs.frozen
class Tool(Generic[P, R_co, Needs_contra]):
    """
    A function a model can call, made by `tool`. Calling it is calling the function.

    *spec* is what the loop and the model know of it. *parameters* decodes its arguments; those that are
    *injected* get the context. *plain* are names that are no secrets of its, in its arguments and in what it
    returns. *whole*: its one parameter takes all arguments, as a tool's does that was made `from_schema`.
    *expected* are exceptions that are answers to the model, and no failures of the tool. *unbound*: it was
    made in the body of a class, and an object of the class has the tool that can be called. *is_async*: the
    function is to be awaited; others run in a thread.
    """

    spec: ToolSpec
    function: Callable[P, R_co]
    parameters: type[msgspec.Struct] = attrs.field(repr=False)
    plain: tuple[str, ...] = ()
    injected: tuple[str, ...] = attrs.field(default=(), repr=False)
    whole: bool = False
    expected: tuple[type[Exception], ...] = attrs.field(default=(), repr=False)
    unbound: bool = False
    is_async: bool = attrs.field(
        init=False,
        repr=False,
        eq=False,
        default=attrs.Factory(lambda tool: is_async(tool.function), takes_self=True),
    )
    if not TYPE_CHECKING:
        # The last parameter may be left out, which `typing.Generic` allows from Python 3.13 on.
        __class_getitem__ = classmethod(GenericAlias)

    @staticmethod
    def from_schema(
        schema: Mapping[str, object], function: Callable[P, R], **options: Unpack[ToolOptions]
    ) -> Tool[P, R]:
        """
        The tool that has the JSON *schema*, and the *options* of `tool`.

        *function* has one parameter for all arguments of a call, such as ``arguments: dict[str, Any]``, and a
        `ToolContext` if it wants one. Arguments that do not fit *schema* do not reach it.
        """
        return _made(function, schema, options)

    def __repr__(self) -> str:
        names = ", ".join(json.loads(self.spec.schema).get("properties", ())) or "nothing"
        # A schema from elsewhere may have any number of names.
        takes = names if len(names) <= _MAX_NAMES_SHOWN else f"{names[:_MAX_NAMES_SHOWN]}..."
        return f"<Tool {self.spec.name!r}: {self.spec.side_effect}, takes {takes}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R_co]:
        """The tool of *instance*, where this one stands in its class as a method."""
        function: Any = self.function
        if not self.unbound or (instance is None and not isinstance(function, classmethod)):
            return self
        return attrs.evolve(self, function=function.__get__(instance, owner), unbound=False)

    def spec_with(self, secrets: Secrets) -> ToolSpec:
        """What the loop knows of it where an agent takes for a secret what *secrets* says."""
        # Looking through a schema takes a while, so it is done again only for words that the definition did
        # not know.
        names = self.spec.secrets if secrets.redact else ()
        if names or secrets.words:
            more = secrets_in(self.spec.schema, secrets.words) if secrets.redact else ()
            names = tuple(sorted({*names, *more} - {*self.plain, *secrets.plain}))
        return self.spec if names == self.spec.secrets else attrs.evolve(self.spec, secrets=names)

    def bind(self, arguments: str, context: ToolContext[object]) -> dict[str, object]:
        """
        What to call the function with, from the JSON text *arguments* and the *context*.

        Types are taken strictly: ``"5"`` is no number, but 5.0 is an integer. No text counts as no arguments.
        Raises `ValueError` with a text for the model.
        """
        struct = self.parameters
        kind: Any = msgspec.structs.fields(struct)[0].type if self.whole else struct
        # Several providers send no text at all for a call without arguments.
        try:
            decoded = msgspec.json.decode(arguments.strip() or "{}", type=kind, dec_hook=read_form)
        except Exception as error:  # noqa: BLE001  # also what argument types raise, and too deep a nesting
            decoded = self._decoded_again(arguments, kind, error)
        given = struct.__struct_fields__
        passed: dict[str, object] = {one: decoded if self.whole else getattr(decoded, one) for one in given}
        return passed | dict.fromkeys(self.injected, context)

    def _decoded_again(self, arguments: str, kind: Any, error: Exception) -> object:  # noqa: ANN401  # a type form
        """*arguments*, which the decoder refused with *error*, with 3 for 3.0; or raise `ValueError`."""
        if isinstance(error, msgspec.ValidationError):
            with suppress(RecursionError):  # too deep a nesting
                # 3.0 is an integer to JSON Schema, by which the call was judged, and none to the decoder.
                arguments = with_integers(arguments.strip() or "{}", self.spec.schema)
            try:
                return msgspec.json.decode(arguments, type=kind, dec_hook=read_form)
            except Exception as still:  # noqa: BLE001  # as in `bind`
                error = still
        raise ValueError(self._complaint(error, arguments)) from error

    def _complaint(self, error: Exception, arguments: str) -> str:
        """What to tell a model that passed the wrong *arguments*: what is wrong, and what there is."""
        schema = {"properties": (), "required": (), **json.loads(self.spec.schema)}
        must = schema["required"]
        takes = ", ".join(name if name in must else f"{name} (optional)" for name in schema["properties"])
        problem = placed(str(error))
        if not isinstance(error, msgspec.ValidationError):
            problem = f"not a JSON object: {problem}"
        elif not self.whole:
            others = _argument_problems(self.parameters, arguments)
            problems = others if problem in others else [problem, *others]
            problem = "; ".join(problems[:MAX_PROBLEMS])
        return f"Invalid arguments for {self.spec.name}: {problem}; it takes: {takes or 'nothing'}"


def _argument_problems(struct: type[msgspec.Struct], arguments: str) -> list[str]:
    """What is wrong with each argument alone: msgspec stops at the first that it cannot decode."""
    problems: list[str] = []
    kinds = {field.name: field.type for field in msgspec.structs.fields(struct)}
    with suppress(Exception):  # no object at all, which is the first problem
        for name, value in msgspec.json.decode(arguments, type=dict[str, msgspec.Raw]).items():
            if name in kinds:
                alone = msgspec.defstruct("Argument", [(name, kinds[name])])
                try:
                    msgspec.json.decode(msgspec.json.encode({name: value}), type=alone, dec_hook=read_form)
                except Exception as error:  # noqa: BLE001  # what the argument types raise
                    problems.append(placed(str(error)))
    return problems


class ToolMaker(Protocol):
    """Makes a function a tool. One whose first parameter is a `ToolContext` needs its deps."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[D], P], R], /
    ) -> Tool[Concatenate[ToolContext[D], P], R, D]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R, object]: ...


@overload
def tool(
    function: Callable[Concatenate[ToolContext[D], P], R], /, **options: Unpack[ToolOptions]
) -> Tool[Concatenate[ToolContext[D], P], R, D]: ...


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R, object]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> ToolMaker: ...


def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[..., Any] | ToolMaker:
    """
    Make a function, sync or async, a tool: ``@tool`` or ``@tool(side_effect="read_only", timeout=5)``.

    The schema comes from the annotations: what `msgspec` decodes, models of pydantic, paths, unions of
    classes. Constraints and descriptions in `Annotated` count, of `msgspec`, annotated_types or pydantic. The
    docstring's first paragraph is the description; its ``Args:`` section or its ``:param x:`` fields describe
    the parameters. A parameter annotated `ToolContext` is filled in by us; where it is the first one, type
    checkers compare its deps with those of the agent.

    It may return text, a `Binary` (a picture, a PDF), or a list or tuple with several of both: the model sees
    the files, of `MAX_FILE_BYTES` bytes each at most, beside the text. Any other value is shown as JSON.

    *side_effect* says what happens to parallel runs, approval and a crash in the middle; unless told, the
    worst is assumed. *timeout* is in seconds. *name* and *description* take the place of the function's own.
    *edits*: it changes files and does nothing else, so it runs where edits are accepted. *resources* are keys
    of what it works on, such as ``account:{id}``, where ``{id}`` stands for an argument of its: calls with no
    key in common may run side by side.

    Arguments that are secret by their name, such as ``password``, are seen by the function alone; model,
    journal and approvers see placeholders. *secrets* are names of more of them, *plain* of some that are
    none. *paths* are names of arguments that are paths, from the working directory, and *command* is that of
    one which a shell runs: permission rules judge them by what they reach and run. *searches*: it shows
    something of any file below its paths, as `grep` does. *sandboxed*: all that it does, it does in programs
    that it runs with `ToolContext.run`, so the sandbox of an agent holds it.

    *expected* are classes of exceptions that are answers to the model, such as ``[FileNotFoundError]``. All
    others are failures of the tool: they are logged, and ``Agent(on_error="raise")`` raises them. Raises
    `ToolDefinitionError` where the function cannot be a tool.
    """

    def make(function: Callable[..., Any], /) -> Tool[..., Any]:
        return _made(function, None, options)

    return cast("ToolMaker", make) if function is None else make(function)


def _made(function: Callable[P, R], schema: Mapping[str, object] | None, options: ToolOptions) -> Tool[P, R]:
    """The tool that calls *function*; with a *schema*, its one parameter takes all arguments."""
    if isinstance(function, Tool):
        msg = f"{function.spec.name!r} cannot be a tool: it is a tool already; use it as it is"
        raise ToolDefinitionError(msg)
    if isinstance(function, staticmethod):
        function = function.__func__
    problem = unusable(function, "value, and report with ToolContext.progress meanwhile")
    if problem := problem or option_problem(options):
        raise definition_error(function, problem)
    unbound = is_method(function)
    struct, injected = read_parameters(function, ToolContext, of_method=unbound)
    if schema is not None and len(struct.__struct_fields__) != 1:
        raise definition_error(function, "it must have one parameter, for all arguments of the schema")
    summary, described = parse_docstring(doc_of(function))
    if unknown := misnamed(function, described, schema):
        problem = f"its docstring describes {unknown!r}, which is no parameter"
        raise definition_error(function, problem)
    text = json_schema(struct, described) if schema is None else json.dumps(schema)
    # No name and no description are those of the function; only no timeout means none.
    told: dict[str, Any] = {
        key: value for key, value in options.items() if value is not None or key == "timeout"
    }
    none, secrets = tuple(_names(function, told.pop("plain", ()))), told.pop("secrets", ())
    expected = _exceptions(function, told.pop("expected", ()))
    arguments = json.loads(text).get("properties", ())
    if "resources" in told:
        told["resources"] = tuple(_resource_keys(function, told["resources"], arguments))
    _declare(function, told, arguments)
    settings: dict[str, Any] = {"name": name_of(function), "description": summary, "schema": text, **told}
    try:
        spec = ToolSpec(**settings)
    except (TypeError, ValueError) as error:
        # The caller wrote an option, and knows no spec.
        raise definition_error(function, str(error.args[0]).removeprefix("ToolSpec.")) from error
    hidden = _secrets(function, secrets, none, text)
    whole, spec = schema is not None, attrs.evolve(spec, secrets=hidden)
    return Tool(spec, function, struct, none, injected, whole, expected, unbound)


def bound(tools: Iterable[Tool[P, R]]) -> tuple[Tool[P, R], ...]:
    """*tools*; raises `ArgumentError` for one that was taken from a class, and not from an object."""
    found = tuple(tools)
    for each in found:
        if each.unbound:
            where = getattr(each.function, "__qualname__", each.spec.name)
            msg = f"tool {each.spec.name!r}: {where} is a method; take it from an object, as in Desk().search"
            raise ArgumentError(msg)
    return found


def _exceptions(function: Callable[..., object], kinds: object) -> tuple[type[Exception], ...]:
    """*kinds* of exceptions; raises `ToolDefinitionError` for what is no class of them."""
    if not isinstance(kinds, Iterable):
        raise definition_error(function, f"expected lists classes of exceptions; got {kinds!r}")
    listed = tuple(cast("Iterable[object]", kinds))
    for kind in listed:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise definition_error(function, f"expected lists classes of exceptions; it has {kind!r}")
    return cast("tuple[type[Exception], ...]", listed)


def _declare(function: Callable[..., object], told: dict[str, Any], arguments: Iterable[str]) -> None:
    """
    Make the paths and the command in *told* what a spec takes.

    Raises `ToolDefinitionError` for a name that is none of the *arguments*.
    """
    told["paths"] = tuple(_names(function, told.get("paths", ())))
    # A name that no argument has would be judged by nothing, and its author would think that it is.
    for name in (*told["paths"], *filter(None, [told.get("command")])):
        if name not in arguments:
            there = ", ".join(arguments) or "none"
            raise definition_error(function, f"{name!r} names no argument; there are: {there}")


def _secrets(
    function: Callable[..., object], told: Iterable[str], plain: tuple[str, ...], schema: str
) -> tuple[str, ...]:
    """
    The names of the secrets among the arguments of *schema*: those that were *told* and those known anyway.

    Raises `ToolDefinitionError` for a name that no argument has, and for a flag.
    """
    mine, found = tuple(_names(function, told)), secrets_in(schema)
    there = arguments_in(schema)
    # A name that no argument has would hide nothing, and its author would think that it does.
    if ANY not in found and (missing := [name for name in mine if name not in there]):
        listed = ", ".join(sorted(there)) or "none"
        raise definition_error(function, f"the secret {missing[0]!r} names no argument; there are: {listed}")
    if flags := [name for name in mine if name in flags_in(schema)]:
        raise definition_error(function, f"the secret {flags[0]!r} is true or false, which is never redacted")
    return tuple(sorted({*mine, *found} - {*plain}))
