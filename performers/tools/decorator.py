"""`tool`: a plain function becomes something a model can call."""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    final,
    get_origin,
    get_type_hints,
    overload,
)

import attrs
import msgspec

from ...effects import Config, History, Secrets, ToolDefinitionError, ToolSpec
from ...effects.secrets import ANY, arguments_in, flags_in, secrets_in
from ..base import FullResult, no_full_result, noop
from .options import ToolOptions
from .process import MAX_OUTPUT, ProcessEnd, run

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
    ) -> ProcessEnd:
        """
        Run the program *command* in *cwd* to its end, for *seconds* at most; in the agent's sandbox, if any.

        It reads what it is *given*. Without that it reads nothing, and both output streams are one. Of each
        *keep* bytes are kept, half from its beginning and half from its end. What it started ends with it.
        Raises `OSError` where it cannot be started, and `ValueError` where it cannot be run in the sandbox.
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
                command, cwd=self.cwd, seconds=seconds, given=given, keep=keep, descriptors=inherited
            )
        finally:
            for descriptor in inherited:
                os.close(descriptor)

    def progress(self, text: str) -> None:
        """
        Tell subscribers how far the tool is; the model does not read it. Fine to call from any thread.

        Progress after the call was answered, of a tool that did not stop in time, is dropped.
        """
        self.emit(text)


# What a docstring says to a model: its first paragraph, and a text for each parameter.


# The first paragraph ends at an empty line, a Google-style heading such as ``Returns:``, or a reST field.
_END_OF_SUMMARY = re.compile(r"^(?:\s*$|[A-Z][a-z]+(?: [A-Za-z][a-z]+)?:\s*$|:\w+[^:\n]*:)", re.MULTILINE)

# The lines below ``Args:``, which are indented or empty.
_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*((?:\n(?:[ \t].*)?)*)$", re.MULTILINE)

# ``path (str): where it is``, the type being optional; what follows belongs to it up to the next one.
_ENTRY = re.compile(r"^(\w+)[ \t]*(?:\(.*?\))?[ \t]*:", re.MULTILINE)

# ``:param str path: where it is``, the type being optional, and the indented lines below it.
_FIELD = re.compile(
    r"^:(?:param|parameter|arg|argument)[ \t]+(?:[^:\n]*[ \t])?(\w+)[ \t]*:(.*(?:\n[ \t].*)*)", re.MULTILINE
)


def parse_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The first paragraph of *doc* on one line, and the descriptions of its parameters by name."""
    text = inspect.cleandoc(doc or "")
    described: list[tuple[str, str]] = _FIELD.findall(text)
    for section in _SECTION.findall(text):
        _, *parts = _ENTRY.split(dedent(section))
        described += zip(parts[::2], parts[1::2], strict=True)
    summary = _END_OF_SUMMARY.split(text, maxsplit=1)[0]
    return _on_one_line(summary), {name: _on_one_line(told) for name, told in described}


def _on_one_line(text: str) -> str:
    return " ".join(filter(None, map(str.strip, text.splitlines())))


# From a function's signature to what a model may pass: a struct that decodes it and a JSON Schema of it.


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

# The way out of every refused type.
_USE = (
    "use str, int, float, bool, None, list, dict, Literal, an Enum, or a dataclass, attrs class or "
    "msgspec.Struct of these"
)

_REF = "#/$defs/"

# ``{name}`` in the key of a resource.
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def _schema_of(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401  # any class
    """The JSON Schema of the pydantic model *kind*; what it refers to goes to *defs*."""
    # Known by what it can do: pydantic need not be there.
    if not hasattr(kind, "model_json_schema"):
        raise NotImplementedError
    schema: dict[str, Any] = kind.model_json_schema(ref_template=f"{_REF}{kind.__name__}.{{model}}")
    defs |= {f"{kind.__name__}.{name}": each for name, each in schema.pop("$defs", {}).items()}
    return schema


def _model_of(kind: Any, value: object) -> Any:  # noqa: ANN401  # any class
    """The pydantic model *kind* of the JSON *value*."""
    return kind.model_validate_json(msgspec.json.encode(value), strict=True)


def unusable(function: object, returned: str) -> str:
    """Why *function* cannot be a tool or a hook, which return one *returned*; empty where it can."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        return "it is no function; write one that calls it"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return f"it yields; return one {returned}"
    return ""


def definition_error(function: Callable[..., object], problem: str) -> ToolDefinitionError:
    """The error that says why *function* cannot be a tool."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return ToolDefinitionError(f"{name!r} cannot be a tool: {problem}")


def read_parameters(function: Callable[..., object]) -> tuple[type[msgspec.Struct], tuple[str, ...]]:
    """
    A struct that decodes what a model wrote for *function*, and the names of the parameters we fill in.

    Raises `ToolDefinitionError` where a model could not fill in a parameter.
    """
    fields: list[tuple[str, Any, Any]] = []
    injected: list[str] = []
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise definition_error(function, f"its signature cannot be read: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            shown = str(parameter.replace(annotation=inspect.Parameter.empty))  # with its stars
            problem = f"parameter {shown!r} has no name a model could pass it by; spell each one out"
            raise definition_error(function, problem)
        hint = _hint(function, parameter)
        if hint is ToolContext or get_origin(hint) is ToolContext:
            injected.append(parameter.name)
        else:
            _check(function, parameter.name, hint)
            fields.append((parameter.name, hint, _default(parameter.default)))
    try:
        struct = msgspec.defstruct(function.__name__, fields, forbid_unknown_fields=True, kw_only=True)
    except (TypeError, ValueError) as error:
        raise definition_error(function, f"its parameters cannot be decoded: {error}") from error
    return struct, tuple(injected)


def _hint(function: Callable[..., object], parameter: inspect.Parameter) -> Any:  # noqa: ANN401  # a type form
    """The type of *parameter*."""
    name = parameter.name
    if parameter.annotation is inspect.Parameter.empty:
        raise definition_error(function, f"parameter {name!r} has no type; annotate it")
    # Evaluated by itself: a name of another parameter that only type checkers know would fail them all.
    holder = SimpleNamespace(__annotations__={name: parameter.annotation})
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(holder, scope, include_extras=True)[name]
    except Exception as error:  # an annotation is any code
        problem = f"the type {parameter.annotation!r} of parameter {name!r} cannot be evaluated ({error})"
        raise definition_error(
            function, f"{problem}; import or define it at the top of the module"
        ) from error


def _check(function: Callable[..., object], name: str, hint: object) -> None:
    """Refuse a type *hint* that has no JSON."""
    try:
        # By itself, since an error of the whole signature names no parameter.
        msgspec.json.schema_components([hint], schema_hook=partial(_schema_of, defs={}))
    except Exception as error:  # msgspec looks into classes of any making
        *_, reason = str(error).splitlines() or [type(error).__name__]
        raise definition_error(
            function, f"parameter {name!r} has a type no JSON fits: {reason}; {_USE}"
        ) from error


def _default(value: object) -> Any:  # noqa: ANN401  # what defstruct takes
    """*value* as a struct takes it: a filled list or dict is copied for every call."""
    if value is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    # msgspec copies an empty list or dict by itself and refuses a filled one.
    if type(value).__hash__ is None and value:
        return msgspec.field(default_factory=partial(copy.deepcopy, value))
    return value


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


def json_schema(struct: type[msgspec.Struct], descriptions: Mapping[str, str]) -> str:
    """
    The JSON Schema of *struct* as text, an object with the parameters as its properties.

    Types within are written where they are used, since not every provider follows references; only one
    that contains itself stays a reference. A description given by `msgspec.Meta` goes before *descriptions*.
    """
    more: dict[str, Any] = {}
    hook, name = partial(_schema_of, defs=more), f"{_REF}{{name}}"
    (reference,), defs = msgspec.json.schema_components([struct], schema_hook=hook, ref_template=name)
    defs |= more
    own = defs[reference["$ref"].removeprefix(_REF)]
    del own["title"]  # the name of a struct that the model has no use for
    for name, property_ in own["properties"].items():
        if name in descriptions:
            property_.setdefault("description", descriptions[name])
    kept: set[str] = set()

    def inline(node: Any, inside: tuple[str, ...]) -> Any:  # noqa: ANN401  # a part of a schema
        """*node* with references replaced by what they name; those that lead back *inside* go to *kept*."""
        match node:
            case {"$ref": str(ref), **beside} if (name := ref.removeprefix(_REF)) in defs:
                if name not in inside:
                    return inline(defs[name], (*inside, name)) | beside
                kept.add(name)
                return node
            case dict():
                return {key: inline(value, inside) for key, value in node.items()}
            case list():
                return [inline(item, inside) for item in node]
            case _:
                return node

    schema, written = inline(own, ()), dict[str, Any]()
    while missing := sorted(kept - written.keys()):
        written |= {name: inline(defs[name], (name,)) for name in missing}
    if written:
        schema["$defs"] = written
    return msgspec.json.encode(schema).decode()


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@final
@attrs.frozen
class Tool(Generic[P, R_co]):
    """
    A function a model can call, made by `tool`. Calling it is calling the function.

    *spec* is what the loop and the model know of it. *parameters* decodes its arguments; those that are
    *injected* get the context. *plain* are names that are no secrets of its, in its arguments and in what it
    returns. *whole*: its one parameter takes all arguments, as a tool's does that was made `from_schema`.
    """

    spec: ToolSpec
    function: Callable[P, R_co]
    parameters: type[msgspec.Struct] = attrs.field(repr=False)
    plain: tuple[str, ...] = ()
    injected: tuple[str, ...] = attrs.field(default=(), repr=False)
    whole: bool = False

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

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the function is to be awaited; others run in a thread."""
        return inspect.iscoroutinefunction(self.function)

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

        Types are taken strictly: ``"5"`` is no number. No text counts as no arguments. Raises `ValueError`
        with a text for the model.
        """
        struct = self.parameters
        kind: Any = msgspec.structs.fields(struct)[0].type if self.whole else struct
        # Several providers send no text at all for a call without arguments.
        try:
            decoded = msgspec.json.decode(arguments.strip() or "{}", type=kind, dec_hook=_model_of)
        except Exception as error:  # also what the argument types themselves raise, and too deep a nesting
            raise ValueError(self._complaint(error)) from error
        given = struct.__struct_fields__
        passed: dict[str, object] = {one: decoded if self.whole else getattr(decoded, one) for one in given}
        return passed | dict.fromkeys(self.injected, context)

    def _complaint(self, error: Exception) -> str:
        """What to tell a model that passed the wrong arguments: what is wrong, and what there is."""
        kind = "" if isinstance(error, msgspec.ValidationError) else "not a JSON object: "
        schema = {"properties": (), "required": (), **json.loads(self.spec.schema)}
        must = schema["required"]
        takes = ", ".join(name if name in must else f"{name} (optional)" for name in schema["properties"])
        return f"Invalid arguments for tool {self.spec.name!r}: {kind}{error}; it takes: {takes or 'nothing'}"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """
    Make a function, sync or async, a tool: ``@tool`` or ``@tool(side_effect="read_only", timeout=5)``.

    The schema comes from the annotations, which may be anything `msgspec` decodes, constraints in
    `msgspec.Meta` included. The docstring's first paragraph is the description; its ``Args:`` section or its
    ``:param x:`` fields describe the parameters. A parameter annotated `ToolContext` is filled in by us.

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
    that it runs with `ToolContext.run`, so the sandbox of an agent holds it. Raises `ToolDefinitionError`
    where the function cannot be a tool.
    """

    def make(function: Callable[P, R]) -> Tool[P, R]:
        return _made(function, None, options)

    return make if function is None else make(function)


def _made(function: Callable[P, R], schema: Mapping[str, object] | None, options: ToolOptions) -> Tool[P, R]:
    """The tool that calls *function*; with a *schema*, its one parameter takes all arguments."""
    if problem := unusable(function, "value, and report with ToolContext.progress meanwhile"):
        raise definition_error(function, problem)
    struct, injected = read_parameters(function)
    if schema is not None and len(struct.__struct_fields__) != 1:
        raise definition_error(function, "it must have one parameter, for all arguments of the schema")
    summary, described = parse_docstring(inspect.getdoc(function))
    text = json_schema(struct, described) if schema is None else json.dumps(schema)
    # No name and no description are those of the function; only no timeout means none.
    told: dict[str, Any] = {
        key: value for key, value in options.items() if value is not None or key == "timeout"
    }
    none, secrets = tuple(_names(function, told.pop("plain", ()))), told.pop("secrets", ())
    arguments = json.loads(text).get("properties", ())
    if "resources" in told:
        told["resources"] = tuple(_resource_keys(function, told["resources"], arguments))
    _declare(function, told, arguments)
    settings: dict[str, Any] = {"name": function.__name__, "description": summary, "schema": text, **told}
    try:
        spec = ToolSpec(**settings)
    except (TypeError, ValueError) as error:
        raise definition_error(function, str(error.args[0])) from error
    hidden = _secrets(function, secrets, none, text)
    return Tool(attrs.evolve(spec, secrets=hidden), function, struct, none, injected, schema is not None)


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
