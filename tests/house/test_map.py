"""The map is true: what CONTRIBUTING.md, the glossary and the README name in code quotes is there."""

from __future__ import annotations

import ast
import enum
import importlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from house.source import EVERYTHING, MODULES, PACKAGE, ROOT, module_of, name, tree
from packaging.requirements import Requirement

from turnwheel.apps.cli.commands import turnwheel as command_line
from turnwheel.apps.server.event_stream import VOCABULARIES
from turnwheel.effects.events import Event
from turnwheel.effects.notices import Notice
from turnwheel.effects.requests import Request
from turnwheel.performers.tools.builtin import builtin_tools
from turnwheel.states.batch.batch import Phase
from turnwheel.states.state import State
from turnwheel.states.table import IGNORED, TABLE

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = (CONTRIBUTING, GLOSSARY, ROOT / "README.md")

EXCEPTIONS = {
    "Names in this type": "shows the type of names",
    "build/__editable__.../turnwheel/effects/config.py:95": "what mypy prints",
    "type: ignore[...]": "a comment for mypy",
    "pyright: ignore[...]": "a comment for basedpyright",
    "noqa": "a comment for ruff",
    "assert_never": "a name of Python's",
    "object: problem; fix": "the form of an error",
    "area: verb object": "the form of a commit's subject",
    "max_turns must be at least 1; got 0 (leave it out for no limit)": "an example of an error",
    "# shows: key": "a line of a scenario",
    "!r": "a conversion of Python's format strings",
    ".sse": "the end of a file's name",
}
"""Code that names nothing of this project, each with what it is."""

EXPORTS = "Each room's `__init__"
"""The beginning of the sentences about the exports of rooms, which test_rooms.py holds."""

PROGRAMS = {"make", "turnwheel", "pip", "mypy", "cd"}
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    .*$", re.MULTILINE)
BLOCK = re.compile(r"\n\s*\n|\n(?=\||- |\d+\. )")
TOKEN = re.compile(r"`([^`]+)`")
FILE = r"`([\w/]+\.py)`"
CLAIM = re.compile(rf"`([A-Za-z_][\w.]*)[^`\s]*`(?: \((?:both )?in | \(| in | of ){FILE}")
BOTH = re.compile(rf"`([A-Za-z_][\w.]*)`[^`]*`[\w.]+`[^`]* \(both in {FILE}")
PATH = re.compile(r"[\w.*/-]+/[\w.*/-]*|[\w*-]*\.(?:pyi?|md|toml|txt|json|lock)|\.[a-z]+")
"""A path has a slash, the end of a file's name, or a dot before it."""


def blocks(page: Path) -> list[str]:
    """The paragraphs, list items and rows of *page*, without its blocks of code."""
    text = INDENTED.sub("", FENCED.sub("", page.read_text("utf-8")))
    return [" ".join(block.split()) for block in BLOCK.split(text) if EXPORTS not in block]


# What there is


def members(node: ast.ClassDef) -> Iterator[str]:
    """The methods, fields and constants of a class, and the attributes that its methods set."""
    for part in ast.walk(node):
        match part:
            case ast.FunctionDef(name=called) | ast.AsyncFunctionDef(name=called):
                yield called
            case ast.AnnAssign(target=ast.Name(id=called)) | ast.Assign(targets=[ast.Name(id=called)]):
                yield called
            case ast.Attribute(value=ast.Name(id="self"), attr=called, ctx=ast.Store()):
                yield called
            case _:
                pass


@cache
def defined(path: Path) -> dict[str, frozenset[str]]:
    """The names that *path* defines at its top, each with its members or, of a function, its parameters."""
    names: dict[str, frozenset[str]] = {}
    for node in tree(path).body:
        match node:
            case ast.ClassDef(name=called):
                names[called] = frozenset(members(node))
            case ast.FunctionDef(name=called) | ast.AsyncFunctionDef(name=called):
                names[called] = frozenset(
                    argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)
                )
            case ast.Assign(targets=[ast.Name(id=called)]) | ast.AnnAssign(target=ast.Name(id=called)):
                names[called] = frozenset()
            case ast.Assign(targets=[ast.Tuple(elts=parts)]):
                names |= {ast.unparse(part): frozenset() for part in parts}
            case _:
                pass
    return names


@cache
def index() -> dict[str, frozenset[str]]:
    """All that the package defines, as in `defined`; equal names share their members."""
    names: dict[str, frozenset[str]] = {}
    for path in PACKAGE:
        for called, parts in defined(path).items():
            names[called] = names.get(called, frozenset()) | parts
    return names


@cache
def bases() -> dict[str, frozenset[str]]:
    """The bases of each class of the package, and of each function the class of its keyword arguments."""
    parents: dict[str, frozenset[str]] = {}
    for path in PACKAGE:
        for node in tree(path).body:
            match node:
                case ast.ClassDef(name=called, bases=above):
                    parents[called] = frozenset(map(last_name, above))
                case ast.FunctionDef(
                    name=called, args=ast.arguments(kwarg=ast.arg(annotation=ast.Subscript(slice=kind)))
                ):
                    parents[called] = frozenset([last_name(kind)])
                case _:
                    pass
    return parents


def last_name(node: ast.expr) -> str:
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


def has(owner: str, member: str) -> bool:
    """Whether the class or function *owner*, or a base of it, has *member*."""
    return member in index().get(owner, ()) or any(has(base, member) for base in bases().get(owner, ()))


@cache
def words() -> frozenset[str]:
    """Words that are no names: labels of the table, values of enumerations, commands, vocabularies."""
    labels = {label for row in TABLE for label in (row.state, row.target)} | set(IGNORED)
    values = {
        member.value
        for path in PACKAGE
        if path.name not in {"__init__.py", "__main__.py"}
        for kind in vars(module_of(path)).values()
        if isinstance(kind, type) and issubclass(kind, enum.Enum)
        for member in kind
        if isinstance(member.value, str)
    }
    stages = {label.partition(".")[2] for label in labels}
    return frozenset({*labels, *stages, *values, *command_line.commands, *VOCABULARIES})


# What is named


def is_path(token: str, folders: set[str]) -> bool:
    """Whether the file or folder *token* exists below the root or one of *folders*, or is made by a tool."""
    # Brackets stand for any name, as in `states/<state>.py`.
    pattern = re.sub(r"<\w+>", "*", token).removesuffix("/")
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()}
    if pattern.split("/")[0] in ignored:
        return True
    return any(list((ROOT / folder).glob(pattern)) for folder in {"", *folders})


def folders_of(block: str) -> set[str]:
    """The folders that *block* names, those of the files that it names, and the folders around them."""
    places = [token.partition("<")[0] for token in TOKEN.findall(block) if "/" in token]
    folders = {place.rpartition("/")[0] for place in places}
    return folders | {folder.rpartition("/")[0] for folder in folders}


def is_command(token: str) -> bool:
    """Whether the programs of the shell command *token* are there, and what they are asked for."""
    for command in token.split("&&"):
        program, *arguments = command.split()
        if program == "make":
            if arguments[0] not in targets():
                return False
        elif program == "turnwheel":
            known = command_line.commands.get(arguments[0])
            options = {option for parameter in known.params for option in parameter.opts} if known else set()
            if known is None or not {word for word in arguments if word.startswith("--")} <= options:
                return False
        elif program not in {"cd", "pip", *dev_tools()}:
            return False
    return True


def dev_tools() -> set[str]:
    """The packages of the extra `dev`, which `make test` does not install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {Requirement(line).name for line in project["optional-dependencies"]["dev"]}


def targets() -> set[str]:
    """The targets of the Makefile that people call."""
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony is not None
    return set(phony[1].split())


def is_name(node: ast.expr) -> bool:
    """Whether the names in *node* are defined, and what it calls has the arguments that it gives."""
    match node:
        case ast.Name(id=called):
            modules = {"turnwheel", *[module.rpartition(".")[2] for module in MODULES]}
            return called in index() or is_member(called) or called in modules or called in words()
        case ast.Attribute(value=ast.Name(id=owner), attr=called):
            return has(owner, called) or f"{owner}.{called}" in words() or is_of_a_module(owner, called)
        case ast.Call(func=function, args=arguments, keywords=keywords):
            owner = ast.unparse(function).rpartition(".")[2]
            known = [keyword.arg is None or has(owner, keyword.arg) for keyword in keywords]
            # What another library takes is not looked up.
            accepted = owner not in index() or all(known)
            return accepted and all(
                map(is_name, [function, *arguments, *[keyword.value for keyword in keywords]])
            )
        case ast.Dict(keys=keys):
            return all(key is not None and is_name(key) for key in keys)
        case _:
            return isinstance(node, ast.Constant)


def is_member(called: str) -> bool:
    return any(called in parts for parts in index().values())


def is_of_a_module(owner: str, called: str) -> bool:
    if owner == "turnwheel":
        return called in MODULES
    try:
        return hasattr(importlib.import_module(owner), called)
    except ModuleNotFoundError:
        return False


def is_import(statement: ast.stmt) -> bool:
    """Whether the relative or absolute import *statement* finds its names."""
    if not isinstance(statement, ast.ImportFrom) or statement.module is None:
        return False
    path = MODULES.get(statement.module.removeprefix("turnwheel."))
    if path is None:
        return False
    return all(
        alias.name in defined(path) or hasattr(module_of(path), alias.name) for alias in statement.names
    )


def is_there(token: str, block: str) -> bool:
    """Whether *token*, which stands in *block*, names what there is."""
    first, blank, _ = token.partition(" ")
    if PATH.fullmatch(token) or "/<" in token:
        exists = is_path(token, folders_of(block))
    elif token.startswith('ARGS="'):
        exists = "ARGS ?=" in (ROOT / "Makefile").read_text("utf-8")
    elif blank and first in PROGRAMS:
        exists = is_command(token)
    elif token.startswith("@"):
        exists = all(is_there(part.removeprefix("@"), block) for part in token.split())
    else:
        # A test compares the files in `claims`, also those of tests, with the names.
        claimed = any(token == wanted for wanted, _ in claims(block))
        exists = claimed or token in words() or is_text(token) or is_python(token)
    return exists


def is_python(code: str) -> bool:
    """Whether *code* is an expression or an import whose names are defined."""
    try:
        (statement,) = ast.parse(code).body
    except (SyntaxError, ValueError):
        return False
    return is_name(statement.value) if isinstance(statement, ast.Expr) else is_import(statement)


def is_text(token: str) -> bool:
    """Whether *token* is no name of Python, and a text in the package, in tests or in pyproject.toml."""
    if token.isidentifier() and not token.isupper():
        return False
    return token in (ROOT / "pyproject.toml").read_text("utf-8") or any(
        token in texts(path) for path in EVERYTHING if path != Path(__file__).resolve()
    )


@cache
def texts(path: Path) -> frozenset[str]:
    return frozenset(
        node.value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


# The tests


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_names_is_there(page: Path) -> None:
    named = [(token, block) for block in blocks(page) for token in TOKEN.findall(block)]
    assert (
        sorted({token for token, block in named if token not in EXCEPTIONS and not is_there(token, block)})
        == []
    )


def test_every_exception_is_on_a_page_and_needed() -> None:
    named = {token: block for page in PAGES for block in blocks(page) for token in TOKEN.findall(block)}
    assert [token for token in EXCEPTIONS if token not in named or is_there(token, named[token])] == []


@pytest.mark.parametrize(
    ("token", "block"),
    [
        ("Session.aprove", ""),
        ("Agent.tenant_working", ""),
        ("Agent(too1s=())", ""),
        ("Reservation", ""),
        ("snapshots.VERSION", ""),
        ("thinking.retries", ""),
        ("make tests", ""),
        ("turnwheel runn", ""),
        ("turnwheel run --resumed", ""),
        ("effects/configuration.py", ""),
        ("runner.py", "`engine/journal/`"),
        ("from ..effects.events import ToolFinnished", ""),
        ("--too1s", ""),
    ],
)
def test_a_name_that_is_not_there_is_found(token: str, block: str) -> None:
    assert not is_there(token, block)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_places_in_a_file_is_defined_in_it(page: Path) -> None:
    faults = [
        f"{wanted} in {place}"
        for block in blocks(page)
        for wanted, place in claims(block)
        if not any(defines(path, wanted) for path in files(place, block))
    ]
    assert faults == []


def claims(block: str) -> list[tuple[str, str]]:
    """The names that *block* places in a file, each with the file: `name` (in `path`)."""
    return [*CLAIM.findall(block), *BOTH.findall(block)]


def files(place: str, block: str) -> list[Path]:
    """The files that *place* in *block* may mean."""
    return [path for folder in {"", *folders_of(block)} if (path := ROOT / folder / place).is_file()]


def defines(path: Path, wanted: str) -> bool:
    owner, _, member = wanted.partition(".")
    names = defined(path)
    if member:
        return member in names.get(owner, ())
    return owner in names or (owner.islower() and any(owner in parts for parts in names.values()))


def test_a_claim_about_a_file_that_lacks_the_name_is_found() -> None:
    assert not defines(ROOT / "engine" / "agent.py", "retry_delay")
    assert not defines(ROOT / "engine" / "session" / "session_log.py", "SessionLog.approve")


def rooms() -> str:
    """The section of CONTRIBUTING.md with the table of rooms."""
    text = CONTRIBUTING.read_text("utf-8")
    return text[text.index("\n## The rooms") : text.index("\n## Where is ...")]


def on_the_map() -> set[Path]:
    """The files and folders of the table of rooms; a name in a row is below the row's first folder."""
    places: set[Path] = set()
    for row in re.findall(r"^\|.*\|$", rooms(), re.MULTILINE):
        first, *others = TOKEN.findall(row) or [""]
        places |= {ROOT / first, *[ROOT / first / other for other in others]}
    return {place for place in places if place.exists()}


def test_every_folder_of_the_package_is_on_the_map() -> None:
    folders = {path.parent for path in PACKAGE if path.parent != ROOT}
    assert sorted(name(folder) for folder in folders - on_the_map()) == []


def test_every_module_of_the_engine_and_of_the_performers_is_on_the_map() -> None:
    modules = {
        path
        for path in PACKAGE
        if name(path).startswith(("engine/", "performers/")) and path.name != "__init__.py"
    }
    assert sorted(name(path) for path in modules - on_the_map()) == []


def test_every_folder_of_tests_is_on_the_map_or_mirrors_a_room() -> None:
    folders = {path for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    others = {path for path in folders if not (ROOT / path.name).is_dir()}
    assert sorted(name(path) for path in others - on_the_map()) == []


def test_the_map_lists_every_target_of_make() -> None:
    listed = set(re.findall(r"^\| `make ([\w-]+)` \|", CONTRIBUTING.read_text("utf-8"), re.MULTILINE))
    assert listed == targets()


def test_the_map_names_each_module_that_knows_built_in_tools_by_name() -> None:
    """A new tool has to be added there. The stand-in plays a model, which may know any tools."""
    tools = {tool.spec.name for tool in builtin_tools()}
    modules = {
        name(path)
        for path in PACKAGE
        if len(tools & texts(path)) >= 3
        and not name(path).startswith(("apps/stand_in/", "performers/tools/"))
    }
    text = CONTRIBUTING.read_text("utf-8")
    section = text[text.index("\n### ... a tool") : text.index("\n### ... a setting")]
    assert {module for module in modules if f"`{module}`" not in section} == set()
    assert modules


def test_the_glossary_has_every_state_with_its_stages() -> None:
    labels = dict.fromkeys([*[label for row in TABLE for label in (row.state, row.target)], *IGNORED])
    text = GLOSSARY.read_text("utf-8")
    for state in get_args(State):
        row = re.search(rf"^\| `{state.__name__}` \|.*$", text, re.MULTILINE)
        assert row is not None, state
        prefix = f"{state.__name__.lower()}."
        stages = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
        assert set(TOKEN.findall(row[0])[1:]) == {stage for stage in stages if "stopping" not in stage}


@pytest.mark.parametrize(
    "union", [Event, Request, Notice, Phase], ids=["events", "requests", "notices", "phases"]
)
def test_the_glossary_has_every_member_of_a_union(union: object) -> None:
    named = set(TOKEN.findall(GLOSSARY.read_text("utf-8")))
    assert {kind.__name__ for kind in get_args(union)} - named == set()


def test_the_glossary_has_every_vocabulary() -> None:
    row = re.search(r"^\| vocabulary \|.*$", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    assert row is not None
    assert set(TOKEN.findall(row[0])) == set(VOCABULARIES)


NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
COUNTS = {
    "frozen classes|states": len(get_args(State)),
    "tools": len(builtin_tools()),
    "vocabularies": len(VOCABULARIES),
}


@pytest.mark.parametrize("things", COUNTS)
def test_pages_count_right(things: str) -> None:
    texts = [" ".join(page.read_text("utf-8").split()) for page in (*PAGES, ROOT / "docs" / "README.md")]
    before = rf"\b({'|'.join(NUMBERS)}) (?:{things})\b"
    counts = {count.lower() for text in texts for count in re.findall(before, text, re.IGNORECASE)}
    assert counts == {NUMBERS[COUNTS[things] - 1]}
