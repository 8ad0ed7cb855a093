"""The rules of the house: what may import what, what a value is, how long things get, how errors speak."""

from __future__ import annotations

import ast
import builtins
import enum
import importlib
import inspect
import io
import itertools
import re
import tokenize
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import attrs
import pytest
from packaging.requirements import Requirement

from turnwheel.effects import errors, events, records, requests
from turnwheel.states import state as states

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("apps", "diagrams", "effects", "engine", "states", "testing")
OUTSIDE = ("tests", "examples", "benchmarks")


def sources(*folders: str) -> list[Path]:
    """The Python files below *folders*, in a fixed order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name(path: Path) -> str:
    """How a test says which file it is about."""
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    """What *path* says."""
    return ast.parse(path.read_text("utf-8"), name(path))


WORDS = sorted((ROOT / "effects").glob("*.py"))
PURE = [*WORDS, *sources("states")]
PACKAGE = [ROOT / "__init__.py", *sources(*ROOMS)]
EVERYTHING = [*PACKAGE, *sources(*OUTSIDE)]

each_pure = pytest.mark.parametrize("path", PURE, ids=name)
each_of_the_package = pytest.mark.parametrize("path", PACKAGE, ids=name)
each_file = pytest.mark.parametrize("path", EVERYTHING, ids=name)


# Purity: what a transition says and decides depends on its arguments and on nothing else

PURE_IMPORTS = {
    "__future__",
    "attrs",
    "collections",
    "decimal",
    "enum",
    "fnmatch",
    "functools",
    "itertools",
    "json",
    "math",
    "re",
    "typing",
    "typing_extensions",
}
IMPURE_NODES = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Global, ast.Nonlocal)
IMPURE_CALLS = {
    "open",
    "print",
    "input",
    "exec",
    "eval",
    "__import__",
    "id",
    "hash",
}  # id and hash differ by process
FACTORIES = {"History.of", "Rope.of"}  # an empty log, which must not be shared; no clock, no random number


def impurities(path: Path) -> Iterator[str]:
    """What in *path* could make two equal calls differ."""
    for node in ast.walk(tree(path)):
        where = f"line {getattr(node, 'lineno', 0)}"
        match node:
            case ast.Import(names=names):
                foreign = [alias.name for alias in names if alias.name.split(".")[0] not in PURE_IMPORTS]
                yield from (f"{where} imports {module}" for module in foreign)
            case ast.ImportFrom(level=0, module=str(module)) if module.split(".")[0] not in PURE_IMPORTS:
                yield f"{where} imports {module}"
            case ast.Call(func=ast.Name(id=called)) if called in IMPURE_CALLS:
                yield f"{where} calls {called}"
            case ast.keyword(arg="factory", value=value) if ast.unparse(value) not in FACTORIES:
                yield f"{where} has the default factory {ast.unparse(value)}"
            case ast.Call(func=ast.Attribute(attr="Factory"), keywords=options) if not any(
                option.arg == "takes_self" for option in options
            ):
                yield f"{where} has a default factory that knows nothing"
            case _ if isinstance(node, IMPURE_NODES):
                yield f"{where} is {type(node).__name__}"
            case _:
                pass


@each_pure
def test_words_and_decisions_are_pure(path: Path) -> None:
    """No clock, no random number, no file, no waiting, no variable of the module is written."""
    assert list(impurities(path)) == []


# Rooms: imports point one way

MAY_IMPORT = {
    "words": {"words"},
    "performers": {"words", "performers"},
    "states": {"words", "states"},
    "diagrams": {"words", "states", "diagrams"},
    "engine": {"words", "performers", "states", "diagrams", "engine"},
    "testing": {"words", "performers", "states", "diagrams", "engine", "testing"},
    "apps": {"words", "performers", "states", "diagrams", "engine", "testing", "apps"},
}


def room(parts: tuple[str, ...]) -> str:
    """Which room a module of the package is in; *parts* are its names below ``turnwheel``."""
    if parts[0] == "effects":
        return "performers" if parts[1:2] == ("performers",) else "words"
    return parts[0]


def imported(path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The relative imports of *path*: the line, and the names of the module below ``turnwheel``."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            module = (*base, *(node.module or "").split(".")) if node.module else base
            yield from ((node.lineno, (*module, alias.name)) for alias in node.names)


@pytest.mark.parametrize("path", sources(*ROOMS), ids=name)
def test_imports_point_one_way(path: Path) -> None:
    """Faces know the engine, the engine knows the states, the states know the words; never back."""
    here = room(path.relative_to(ROOT).with_suffix("").parts)
    wrong = [
        f"line {line} imports {'.'.join(module)}"
        for line, module in imported(path)
        if room(module) not in MAY_IMPORT[here]
    ]
    assert wrong == []


@pytest.mark.parametrize("path", sources(*ROOMS), ids=name)
def test_inside_the_package_imports_are_relative(path: Path) -> None:
    """The package works under the name of its checkout, too; only the outside says turnwheel."""
    absolute = [
        node.lineno
        for node in ast.walk(tree(path))
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] == "turnwheel"
        )
        or (
            isinstance(node, ast.Import)
            and any(alias.name.split(".")[0] == "turnwheel" for alias in node.names)
        )
    ]
    assert absolute == []


def test_pyproject_lists_every_package() -> None:
    """A folder that is missing from the list would be missing from the wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = {
        ".".join(("turnwheel", *path.parent.relative_to(ROOT).parts))
        for path in PACKAGE
        if path.name == "__init__.py"
    }
    assert set(settings["tool"]["setuptools"]["packages"]) == packages


def test_the_lock_pins_what_pyproject_asks_for() -> None:
    """Every dependency, those of the extras too, has one version in the lock, and one that will do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for line in itertools.chain(project["dependencies"], *project["optional-dependencies"].values()):
        asked = Requirement(line)
        assert asked.name in pins, f"no version of {asked.name}; run make lock"
        assert pins[asked.name] in asked.specifier, f"not {line}: {pins[asked.name]}; run make lock"


# Values: frozen, slotted, final

PLAIN = {
    "Log": "the shared storage below History and Rope; only ever appended to",
    "Draft": "the effects of one transition while it is being decided; never outlives it",
}


def module_of(path: Path) -> ModuleType:
    """The imported module of *path*."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return importlib.import_module(".".join(("turnwheel", *parts)).removesuffix(".__init__"))


def classes(path: Path) -> list[type]:
    """The classes that *path* defines, save enums and exceptions."""
    module = module_of(path)
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and not issubclass(kind, enum.Enum | Exception)
    ]


def parts_of(annotation: object) -> Iterator[object]:
    """*annotation* and everything in its brackets, tuples and unions of it included."""
    yield typing.get_origin(annotation) or annotation
    for part in typing.get_args(annotation):
        yield from parts_of(part)


def field_parts(kind: type) -> dict[str, set[object]]:
    """Per field of *kind*, everything its type is made of."""
    hints = typing.get_type_hints(kind)
    return {field.name: set(parts_of(hints[field.name])) for field in attrs.fields(kind)}


def is_frozen(kind: type) -> bool:
    """Whether an instance of *kind* refuses to be changed."""
    anything = "anything"
    try:
        setattr(object.__new__(kind), anything, None)
    except attrs.exceptions.FrozenInstanceError:
        return True
    except AttributeError:  # slots refuse what is not there, and no more than that
        return False
    return False


@each_pure
def test_a_value_is_frozen_slotted_and_final(path: Path) -> None:
    """Every class of the words and the states is a closed value, the few plain ones excepted by name."""
    for kind in classes(path):
        assert getattr(kind, "__final__", False), f"{kind.__name__} is not final"
        assert kind.__dictoffset__ == 0, f"{kind.__name__} has no slots"
        if kind.__name__ not in PLAIN:
            assert attrs.has(kind), f"{kind.__name__} is no attrs class"
            assert is_frozen(kind), f"{kind.__name__} is not frozen"


@each_pure
def test_a_value_holds_no_container_that_changes(path: Path) -> None:
    """Fields are tuples where others would have lists."""
    for kind in filter(attrs.has, classes(path)):
        for field, parts in field_parts(kind).items():
            assert not parts & {list, dict, set, bytearray}, f"{kind.__name__}.{field}"


@pytest.mark.parametrize("path", sorted((ROOT / "states").glob("*.py")), ids=name)
def test_a_state_has_no_flags(path: Path) -> None:
    """What a state waits for has a name: no bool, and no None that means something."""
    for kind in filter(attrs.has, classes(path)):
        for field, parts in field_parts(kind).items():
            assert not parts & {bool, type(None)}, f"{kind.__name__}.{field}"


# Names say what kind of thing it is

VERBS = r"(Add|Append|Ask|Call|Cancel|Clear|Count|Fire|Grant|Read|Replace|Run|Set|Take|Use|Withdraw)([A-Z]|$)"


@pytest.mark.parametrize("effect", [*typing.get_args(requests.Request | records.Record), requests.Cancel])
def test_an_effect_is_an_order(effect: type) -> None:
    """What a transition asks for opens with a verb: CallModel, AppendMessage."""
    assert re.match(VERBS, effect.__name__)


@pytest.mark.parametrize("event", typing.get_args(events.Event))
def test_an_event_is_in_the_past(event: type) -> None:
    """What happened ends in a past tense, and says when: ModelStreamed, UserSent."""
    assert re.search(r"(ed|Given|Lost|Read|Sent)$", event.__name__)
    assert typing.get_type_hints(event)["at"] is float


@pytest.mark.parametrize("state", typing.get_args(states.State))
def test_a_state_is_a_situation(state: type) -> None:
    """Where an agent is ends in -ing, until it is done."""
    assert re.search(r"(ing|^Done)$", state.__name__)


# Shape: how long things get


def lines_of(source: str) -> tuple[set[int], set[int]]:
    """
    The numbers of the lines that hold code, and of those that hold comments and docstrings.

    The string below a constant or a field is its docstring. A comment behind code counts for both.
    """
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documented |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    code: set[int] = set()
    commented: set[int] = set()
    blank = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            commented.add(token.start[0])
        elif token.type not in blank:
            code |= set(range(token.start[0], token.end[0] + 1))
    return code - documented, documented | commented


def lengths(path: Path) -> dict[str, int]:
    """The code lines of each function in *path*, docstring and comments not counted."""
    code, _ = lines_of(path.read_text("utf-8"))
    return {
        f"{name(path)}:{node.lineno} {node.name}": len(
            code & set(range(node.lineno, (node.end_lineno or 0) + 1))
        )
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@each_of_the_package
def test_no_function_is_longer_than_fifty_lines(path: Path) -> None:
    """A function that does not fit on a screen is two."""
    assert {function: length for function, length in lengths(path).items() if length > 50} == {}


def test_nine_functions_in_ten_have_at_most_twenty_lines() -> None:
    """Long functions stay the exception."""
    every = [length for path in PACKAGE for length in lengths(path).values()]
    assert sum(length <= 20 for length in every) >= 0.9 * len(every)


@each_of_the_package
def test_a_module_stays_under_four_hundred_lines(path: Path) -> None:
    """A module that does not fit in a head is two."""
    assert len(path.read_text("utf-8").splitlines()) < 400


def test_the_core_says_why() -> None:
    """Words, decisions and engine have at least one line of comment and docstring for four of code."""
    counted = [lines_of(path.read_text("utf-8")) for path in sources("effects", "engine", "states")]
    code, said = (sum(map(len, kind)) for kind in zip(*counted, strict=True))
    assert said >= 0.25 * code


# Exceptions from the rules have a reason beside them


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Each comment of *path* and its line."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


SILENCER = re.compile(r"#\s*(noqa|(type|pyright):\s*ignore|(mypy|ruff|pyright):)")
WITH_RULE = re.compile(r"#\s*(noqa: [A-Z]+\d+(, [A-Z]+\d+)*|(type|pyright): ignore\[[\w, -]+\])")


@each_file
def test_a_silenced_check_has_a_reason_beside_it(path: Path) -> None:
    """A `noqa` or an `ignore` names its rule, and what follows says why it is right here."""
    bare: list[str] = []
    for line, comment in comments(path):
        reason = WITH_RULE.sub("", comment)
        if SILENCER.search(comment) and (SILENCER.search(reason) or not re.search(r"\w{2,}", reason)):
            bare.append(f"line {line}: {comment}")
    assert bare == []


def test_tests_use_no_mocks() -> None:
    """What needs a mock has its seam in the wrong place."""
    mocks = re.compile(r"^(from|import) (unittest|mock)", re.MULTILINE)
    assert [name(path) for path in sources("tests") if mocks.search(path.read_text("utf-8"))] == []


# Errors: the page that lists them is right, and each says what to do


def family(kind: type[Exception], depth: int = 0) -> Iterator[tuple[int, str, str]]:
    """*kind* and those below it: how deep, its name, and the built-in error it also is."""
    builtin = [base.__name__ for base in kind.__bases__ if base.__module__ == builtins.__name__ and depth]
    yield depth, kind.__name__, "".join(builtin)
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from family(child, depth + 1)


def test_the_page_of_errors_is_right() -> None:
    """The tree in the docstring of errors.py is the tree of its classes."""
    rows = re.findall(r"^((?: {4})+)(\w+)(?: +\((\w+)\))?", errors.__doc__ or "", re.MULTILINE)
    told = [(len(indent) // 4 - 1, kind, builtin) for indent, kind, builtin in rows]
    assert told == list(family(errors.TurnwheelError))


SAID = [
    (errors.ConfigError("turns must be more than 0; got -1"), "turns must be more than 0; got -1"),
    (errors.ToolDefinitionError("'f' has no docstring"), "'f' has no docstring"),
    (errors.ArgumentError("no decision: 1"), "no decision: 1"),
    (errors.UnknownSession("s"), "no session 's' in this store"),
    (errors.UnknownRequest("r-1", ("r-2", "r-3")), "no open question 'r-1'; open: 'r-2', 'r-3'"),
    (errors.UnknownRequest("r-1", ()), "no open question 'r-1'; open: none"),
    (errors.UnknownCall("r-1", ("r-2",)), "no call 'r-1' under way; there are: 'r-2'"),
    (errors.UnknownRun("r3", ("r1", "r2")), "no run 'r3' in this session; there are: 'r1', 'r2'"),
    (
        errors.TooLarge("the text of a prompt", 5_000_000, 4_000_000, "characters"),
        "the text of a prompt has 5,000,000 characters, and may have 4,000,000",
    ),
    (errors.QueueFull("s", 3), "session 's' has 3 prompts waiting; send this one again later"),
    (errors.SessionBusy("s"), "session 's' has a run under way; wait for it or interrupt it"),
    (errors.SessionClosed("s"), "session 's' is closed; open it again from its store"),
    (errors.StoreError("store 'a.db' is closed"), "store 'a.db' is closed"),
    (
        errors.StoreConflict("s", 2, 3),
        "session 's' has 3 entries, not 2: another process went on with it; load it again",
    ),
    (errors.JournalError("entry 3 is no JSON"), "entry 3 is no JSON"),
    (
        errors.NewerVersion("entry 3", 4, 3),
        "entry 3 has version 4, known here is 3: upgrade turnwheel, or go on with the one that wrote it",
    ),
    (
        errors.IllegalTransition("thinking.go", "Entered", "done"),
        "no row for Entered in thinking.go leading to done",
    ),
    (
        errors.NoPerformer("CallModel"),
        "no performer for CallModel: was one left out when the driver was built?",
    ),
]


@pytest.mark.parametrize(
    ("error", "says"), SAID, ids=[f"{type(error).__name__}{number}" for number, (error, _) in enumerate(SAID)]
)
def test_an_error_says_what_to_do(error: Exception, says: str) -> None:
    """What is told is a lower-case fragment with the value and the way out, also after a pickle."""
    assert str(error) == says
    assert str(type(error)(*error.args)) == says


def test_every_error_is_in_the_table_above() -> None:
    """A new error comes with what it says."""
    leaves = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.TurnwheelError) and not kind.__subclasses__()
    }
    itself = {errors.JournalError}  # has one below it, and is raised all the same
    assert {type(error) for error, _ in SAID} == leaves | itself
