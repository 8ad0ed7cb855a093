"""What may import what, what is pure, and what the outside may import."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from house.source import (
    MODULES,
    PACKAGE,
    ROOMS,
    ROOT,
    STUBS,
    dotted,
    imported,
    module_of,
    name,
    sources,
    tree,
)
from packaging.requirements import Requirement

import turnwheel
import turnwheel.states

WORDS_AND_DECISIONS = sources("effects", "states")
# The journal itself and its checkpoints read and write the store.
AWAITING = {"journal.py", "stored_checkpoints.py"}
PURE_ENGINE = [path for path in sources("engine/core", "engine/journal") if path.name not in AWAITING]
PURE_IMPORTS = frozenset(
    [
        "__future__",
        "attrs",
        "collections",
        "contextlib",  # for suppress
        "decimal",
        "difflib",  # for a word that is nearly another one
        "enum",
        "fnmatch",
        "functools",
        "hashlib",  # equal texts have equal digests, in each process
        "itertools",
        "json",
        "math",
        "re",
        "typing",
        "typing_extensions",
    ]
)
CONVERTERS = {
    "bisect.py": {"msgspec"},
    "encoding.py": {"msgspec"},
    "export.py": {"msgspec"},
    "codec.py": {"base64", "cattrs", "msgspec"},
    "checkpoints.py": {"cattrs", "hashlib", "msgspec"},
    "snapshots.py": {"msgspec"},
}
IMPURE_NODES = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Global, ast.Nonlocal)
# id and hash differ from process to process.
IMPURE_CALLS = frozenset(["open", "print", "input", "exec", "eval", "__import__", "id", "hash"])
# An empty log, which values must not share; it reads no clock and draws nothing.
FACTORIES = {"History.of", "Rope.of", "ConversationMemory"}


def impurities(path: Path, more: frozenset[str] = frozenset()) -> Iterator[str]:
    """What in *path* could make two equal calls differ; it may import *more* than the pure modules."""
    allowed = PURE_IMPORTS | more
    for node in ast.walk(tree(path)):
        where = f"{name(path)}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Import(names=names):
                foreign = [alias.name for alias in names if alias.name.split(".")[0] not in allowed]
                yield from (f"{where} imports {module}" for module in foreign)
            case ast.ImportFrom(level=0, module=str(module)) if module.split(".")[0] not in allowed:
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


def test_words_and_decisions_are_pure() -> None:
    assert [fault for path in WORDS_AND_DECISIONS for fault in impurities(path)] == []


def test_the_pure_part_of_the_engine_awaits_and_opens_nothing() -> None:
    faults = [
        fault
        for path in PURE_ENGINE
        for fault in impurities(path, frozenset(CONVERTERS.get(path.name, ())))
        if "default factory" not in fault
    ]
    assert faults == []


# `lazy` belongs to no room: it serves all of them.
ORDER = ("lazy", *ROOMS)


def room(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def test_imports_point_one_way() -> None:
    wrong = [
        f"{name(path)}:{line} imports {module}"
        for path in [*sources(*ROOMS), *STUBS]
        if path.parent != ROOT
        for line, module in imported(path)
        if ORDER.index(room(module)) > ORDER.index(path.relative_to(ROOT).parts[0])
    ]
    assert wrong == []


def test_inside_the_package_imports_are_relative() -> None:
    """The package works under the name of its checkout too; only the outside says turnwheel."""
    absolute = [
        f"{name(path)}:{node.lineno}"
        for path in sources(*ROOMS)
        for node in ast.walk(tree(path))
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").startswith("turnwheel")
        )
        or (isinstance(node, ast.Import) and any(alias.name.startswith("turnwheel") for alias in node.names))
    ]
    assert absolute == []


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, by way of any of them."""

    def reached(module: str) -> set[str]:
        seen: set[str] = set()
        waiting = [module]
        while waiting:
            for other in graph[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reach = {module: reached(module) for module in graph}
    found = {tuple(sorted(other for other in reach[module] if module in reach[other])) for module in graph}
    return sorted([list(group) for group in found if group])


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports for types and imports inside functions count: each makes two modules one."""
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for path in [*PACKAGE, *STUBS]:
        module = dotted(path)
        graph[module] |= {other for _, other in imported(path) if other in MODULES and other != module}
    assert circles(graph) == []


def test_no_folder_is_a_cupboard() -> None:
    full = {
        name(path.parent): len([each for each in path.parent.glob("*.py") if each != path])
        for path in PACKAGE
        if path.name == "__init__.py"
    }
    assert {folder: count for folder, count in full.items() if count > 25} == {}


def test_the_root_exports_forty_names_at_most() -> None:
    assert len(dir(turnwheel)) <= 40


def test_the_root_and_each_room_have_a_list_of_public_names() -> None:
    """A stub without `exports` would show type checkers names that do not exist."""
    packages = [ROOT, *[ROOT / room for room in ROOMS]]
    assert [path.parent for path in STUBS] == sorted(packages)
    lazy = [path.parent for path in PACKAGE if re.search(r"= exports\(", path.read_text("utf-8"))]
    assert sorted(lazy) == sorted(packages)


def listed(stub: Path) -> list[tuple[str, str]]:
    """Each public name in *stub* and the module that has it."""
    package = module_of(stub).__name__
    return [
        (alias.name, f"{package}.{statement.module}" if statement.module else package)
        for statement in tree(stub).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    ]


@pytest.mark.parametrize("stub", STUBS, ids=name)
def test_a_list_of_public_names_has_imports_alone(stub: Path) -> None:
    other = [
        ast.unparse(statement)
        for statement in tree(stub).body
        if not isinstance(statement, ast.ImportFrom)
        or statement.level != 1
        or any(alias.asname != alias.name or alias.name.startswith("_") for alias in statement.names)
    ]
    assert other == []


@pytest.mark.parametrize("stub", STUBS, ids=name)
def test_a_star_import_gives_the_public_names_alone(stub: Path) -> None:
    module, namespace = module_of(stub), dict[str, object]()
    exec(f"from {module.__name__} import *", namespace)  # noqa: S102  # no function may have a star import
    del namespace["__builtins__"]
    homes = {name: getattr(importlib.import_module(home), name) for name, home in listed(stub)}
    assert namespace == homes
    assert module.__all__ == dir(module) == sorted(name for name, _ in listed(stub))


@pytest.mark.parametrize("stub", STUBS, ids=name)
def test_a_public_name_hides_no_module(stub: Path) -> None:
    """The import of a module sets an attribute of its package, which would replace a public name."""
    prefix = f"{dotted(stub)}.".removeprefix(".")
    modules = {module.removeprefix(prefix) for module in MODULES if module.startswith(prefix)}
    hidden = [name for name, home in listed(stub) if home != module_of(stub).__name__ and name in modules]
    assert hidden == []


@pytest.mark.parametrize("stub", STUBS, ids=name)
def test_a_package_refuses_other_names(stub: Path) -> None:
    package = module_of(stub)
    with pytest.raises(AttributeError, match=rf"^module {package.__name__!r} has no attribute 'exprots'$"):
        package.exprots  # noqa: B018  # the look is what fails


def test_type_checkers_refuse_other_names() -> None:
    # Each checker reports an ignore comment that it does not need.
    with pytest.raises(AttributeError):
        turnwheel.exprots  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018  # see above
    with pytest.raises(AttributeError):
        turnwheel.states.exprots  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018  # see above


def documented_imports(path: Path) -> Iterator[tuple[int, str]]:
    """The modules of turnwheel that a page or an example imports, with their lines."""
    for line, text in enumerate(path.read_text("utf-8").splitlines(), 1):
        for module in re.findall(r"\b(?:from|import)\s+(turnwheel(?:\.\w+)*)", text):
            yield line, module


def test_documents_and_examples_import_from_rooms_only() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    deep = [
        f"{name(page)}:{line} {module}"
        for page in pages
        for line, module in documented_imports(page)
        if module.count(".") > 1
    ]
    assert deep == []


def test_every_package_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = {
        f"turnwheel.{module}".removesuffix(".")
        for module, path in MODULES.items()
        if path.name == "__init__.py"
    }
    assert set(settings["tool"]["setuptools"]["packages"]) == packages


def test_the_lock_pins_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for line in itertools.chain(project["dependencies"], *project["optional-dependencies"].values()):
        asked = Requirement(line)
        if asked.name == project["name"]:
            continue
        assert asked.name in pins, f"no version of {asked.name}; run make lock"
        assert pins[asked.name] in asked.specifier, f"not {line}: {pins[asked.name]}; run make lock"


def test_tests_use_no_mocks() -> None:
    """A test that needs a mock shows a seam in the wrong place."""
    mocks = re.compile(r"^(from|import) (unittest|mock)", re.MULTILINE)
    assert [name(path) for path in sources("tests") if mocks.search(path.read_text("utf-8"))] == []
