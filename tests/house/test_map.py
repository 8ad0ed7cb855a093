"""The map is true: what CONTRIBUTING.md, the glossary and the README name in code quotes is there."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import click
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

COMMAND_LINE = click.Context(command_line)
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
    "@final @attrs.frozen(kw_only=True)": "decorators of Python and of attrs",
    "id": "a field of every request",
    "y": "a key to press",
    "!r": "a conversion of Python's format strings",
    ".sse": "the end of a file's name",
}
"""Code that names nothing of this project, each with what it is."""

GENERATED = {
    ".cache": "tests that need programs of others",
    ".venv": "make",
    "build/__editable__.*/turnwheel": "pip",
    "dist": "make wheel",
}
"""Paths that git ignores, each with the program that makes it."""

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    .*$", re.MULTILINE)
BLOCK = re.compile(r"\n\s*\n|\n(?=\||- |\d+\. )")
ASSIGNMENT = re.compile(r"([A-Z]+)=\S+ ")
"""A variable of the environment before a command."""

TOKEN = re.compile(r"`([^`]+)`")
FILE = r"`([\w/]+\.py)`"
CLAIM = re.compile(rf"`([A-Za-z_][\w.]*)[^`\s]*`(?: \((?:both )?in | \(| in | of ){FILE}")
BOTH = re.compile(rf"`([A-Za-z_][\w.]*)`[^`]*`[\w.]+`[^`]* \(both in {FILE}")
PATH = re.compile(r"[\w.*/-]+/[\w.*/-]*|[\w*-]*\.(?:pyi?|md|toml|txt|json|lock)|\.[a-z]+")
"""A path has a slash, the end of a file's name, or a dot before it."""


def blocks(page: Path) -> list[str]:
    """The paragraphs, list items and rows of *page*, without its blocks of code."""
    text = INDENTED.sub("", FENCED.sub("", page.read_text("utf-8")))
    return [" ".join(block.split()) for block in BLOCK.split(text)]


# What there is


def members(node: ast.ClassDef) -> Iterator[str]:
    """The methods, fields, constants and values of a class, and the attributes that its methods set."""
    is_enumeration = bool({last_name(base) for base in node.bases} & {"Choice", "Enum", "StrEnum"})
    for part in ast.walk(node):
        match part:
            case ast.FunctionDef(name=identifier) | ast.AsyncFunctionDef(name=identifier):
                yield identifier
            case ast.AnnAssign(target=ast.Name(id=field)) | ast.Assign(targets=[ast.Name(id=field)]):
                yield field
            case ast.Attribute(value=ast.Name(id="self"), attr=identifier, ctx=ast.Store()):
                yield identifier
            case _:
                pass
        if is_enumeration and isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant):
            yield str(part.value.value)


@cache
def defined(path: Path) -> dict[str, frozenset[str]]:
    """The names that *path* defines at its top, each with its members or, of a function, its parameters."""
    names: dict[str, frozenset[str]] = {}
    for node in tree(path).body:
        match node:
            case ast.ClassDef(name=identifier):
                names[identifier] = frozenset(members(node))
            case ast.FunctionDef(name=identifier) | ast.AsyncFunctionDef(name=identifier):
                names[identifier] = frozenset(
                    argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)
                )
            case ast.Assign(targets=[ast.Name(id=constant)]) | ast.AnnAssign(target=ast.Name(id=constant)):
                names[constant] = frozenset()
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
        for identifier, parts in defined(path).items():
            names[identifier] = names.get(identifier, frozenset()) | parts
    return names


@cache
def bases() -> dict[str, frozenset[str]]:
    """The bases of each class of the package, and of each function the class of its keyword arguments."""
    parents: dict[str, frozenset[str]] = {}
    for path in PACKAGE:
        for node in tree(path).body:
            match node:
                case ast.ClassDef(name=identifier, bases=above):
                    parents[identifier] = frozenset(map(last_name, above))
                case ast.FunctionDef(
                    name=identifier, args=ast.arguments(kwarg=ast.arg(annotation=ast.Subscript(slice=kind)))
                ):
                    parents[identifier] = frozenset([last_name(kind)])
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
    """Words besides the names of Python: labels of the table, their stages, commands, vocabularies."""
    labels = {label for row in TABLE for label in (row.state, row.target)} | set(IGNORED)
    stages = {label.partition(".")[2] for label in labels}
    return frozenset({*labels, *stages, *command_line.list_commands(COMMAND_LINE), *VOCABULARIES})


# What is named


def is_path(token: str, folders: set[str]) -> bool:
    """Whether the file or folder *token* exists below the root or one of *folders*, or is in `GENERATED`."""
    # Brackets stand for any name, as in `states/<state>.py`.
    pattern = re.sub(r"<\w+>", "*", token).removesuffix("/")
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()}
    if not pattern or pattern.split("/")[0] in ignored:
        return pattern in GENERATED
    return any(list((ROOT / folder).glob(pattern)) for folder in {"", *folders})


def folders_of(block: str) -> set[str]:
    """The folders that *block* names, those of the files that it names, and the folders around them."""
    paths = [token.partition("<")[0] for token in TOKEN.findall(block) if "/" in token]
    folders = {path.rpartition("/")[0] for path in paths}
    return folders | {folder.rpartition("/")[0] for folder in folders}


def is_command(token: str) -> bool:
    """Whether the programs of the shell command *token* are there, and what they are asked for."""
    for command in token.split("&&"):
        assignment = ASSIGNMENT.match(command)
        if assignment and not is_text(assignment[1]):
            return False
        program, *arguments = shlex.split(ASSIGNMENT.sub("", command))
        if program == "make":
            if not arguments or not all(map(is_argument_of_make, arguments)):
                return False
        elif program == "turnwheel":
            if not arguments or not is_subcommand(*arguments):
                return False
        elif program not in {"cd", "pip", *dev_tools()}:
            return False
    return True


def is_argument_of_make(argument: str) -> bool:
    """Whether *argument* is a target, or sets a variable that the Makefile lets its caller set."""
    variable, equals, _ = argument.partition("=")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    return f"\n{variable} ?=" in makefile if equals else argument in targets()


def is_subcommand(subcommand: str, *arguments: str) -> bool:
    """Whether turnwheel has *subcommand*, and that has the options among *arguments*."""
    command = command_line.get_command(COMMAND_LINE, subcommand)
    if command is None:
        return False
    options = {option for parameter in command.params for option in parameter.opts}
    return {argument for argument in arguments if argument.startswith("--")} <= options


@cache
def dev_tools() -> frozenset[str]:
    """The packages of the extras `dev` and `test`: `make test` does not install those of `dev`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    return frozenset(Requirement(line).name for line in [*extras["dev"], *extras["test"]])


@cache
def targets() -> frozenset[str]:
    """The targets of the Makefile that people call."""
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony is not None
    return frozenset(phony[1].split())


def is_expression(node: ast.expr, block: str) -> bool:
    """Whether the names in *node* are defined, and what it calls has the arguments that it gives."""
    match node:
        case ast.Name(id=identifier):
            return is_name(identifier) or identifier in members_of(block)
        case ast.Attribute(value=ast.Name(id=owner), attr=member):
            return has(owner, member) or f"{owner}.{member}" in words() or is_of_a_module(owner, member)
        case ast.Call(func=function, args=arguments, keywords=keywords):
            owner = ast.unparse(function).rpartition(".")[2]
            has_keywords = all(keyword.arg is None or has(owner, keyword.arg) for keyword in keywords)
            # The arguments of another library are not looked up.
            accepted = owner not in index() or has_keywords
            operands = [function, *arguments, *[keyword.value for keyword in keywords]]
            return accepted and all(is_expression(operand, block) for operand in operands)
        case ast.Dict(keys=keys):
            return all(key is not None and is_expression(key, block) for key in keys)
        case _:
            return isinstance(node, ast.Constant)


def is_name(identifier: str) -> bool:
    """Whether *identifier* is a module, a word, or defined at the top of a module."""
    modules = {"turnwheel", *[module.rpartition(".")[2] for module in MODULES]}
    return identifier in index() or identifier in modules or identifier in words()


@cache
def members_of(block: str) -> frozenset[str]:
    """The members of the classes and functions that *block* names, and of those in the files it names."""
    tokens = TOKEN.findall(block)
    owners = {identifier for token in tokens for identifier in re.findall(r"[A-Za-z_]\w*", token)}
    paths = {path for token in tokens if token.endswith(".py") for path in files(token, block)}
    return frozenset(
        member
        for owner in {*owners, *[identifier for path in paths for identifier in defined(path)]}
        for member in all_members(owner)
    )


def all_members(owner: str) -> frozenset[str]:
    """The members of the class or function *owner* and of its bases."""
    inherited = [all_members(base) for base in bases().get(owner, ())]
    return index().get(owner, frozenset()).union(*inherited)


def is_of_a_module(owner: str, member: str) -> bool:
    if owner == "turnwheel":
        return member in MODULES
    try:
        return hasattr(importlib.import_module(owner), member)
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
    if PATH.fullmatch(token) or "/<" in token:
        exists = is_path(token, folders_of(block))
    elif token.startswith("ARGS="):
        exists = is_argument_of_make(token)
    elif token.startswith("@"):
        exists = all(is_there(part.removeprefix("@"), block) for part in token.split())
    elif token.startswith(("make ", "turnwheel ")):
        exists = is_command(token)
    else:
        # A test compares the files in `claims`, also those of tests, with the names.
        claimed = any(token == identifier for identifier, _ in claims(block))
        known = token in words() or is_text(token) or is_python(token, block)
        exists = claimed or known or (" " in token and is_command(token))
    return exists


def is_python(code: str, block: str) -> bool:
    """Whether *code* in *block* is an expression or an import whose names are defined."""
    try:
        (statement,) = ast.parse(code).body
    except (SyntaxError, ValueError):
        return False
    if isinstance(statement, ast.Expr):
        return is_expression(statement.value, block)
    return is_import(statement)


def is_text(token: str) -> bool:
    """Whether *token* is not a name of Python but a text in the package, in tests or in pyproject.toml."""
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
    named = [(token, block) for page in PAGES for block in blocks(page) for token in TOKEN.findall(block)]
    assert EXCEPTIONS.keys() - {token for token, block in named if not is_there(token, block)} == set()


def test_every_generated_path_is_on_a_page() -> None:
    named = {token.removesuffix("/") for page in PAGES for token in TOKEN.findall(page.read_text("utf-8"))}
    assert GENERATED.keys() - named == set()


@pytest.mark.parametrize(
    ("token", "block"),
    [
        ("Session.aprove", ""),
        ("Agent.tenant_working", ""),
        ("Agent(too1s=())", ""),
        ("Reservation", ""),
        ("snapshots.VERSION", ""),
        ("thinking.retries", ""),
        ("tenant_working", "`Agent`"),
        ("value", ""),
        ("read_only", "`Outcome`"),
        ("make tests", ""),
        ("RECORDS=1 pytest", ""),
        ("make clean tests", ""),
        ("make test ARG=-x", ""),
        ("turnwheel runn", ""),
        ("turnwheel run --resumed", ""),
        ("effects/configuration.py", ""),
        ("runner.py", "`engine/journal/`"),
        ("dist/nothing.whl", ""),
        ("build/x/y.py", ""),
        ("from ..effects.events import ToolFinnished", ""),
        ("--too1s", ""),
    ],
)
def test_a_name_that_is_not_there_is_found(token: str, block: str) -> None:
    assert not is_there(token, block)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_places_in_a_file_is_defined_in_it(page: Path) -> None:
    faults = [
        f"{identifier} in {file}"
        for block in blocks(page)
        for identifier, file in claims(block)
        if not any(defines(path, identifier) for path in files(file, block))
    ]
    assert faults == []


def claims(block: str) -> list[tuple[str, str]]:
    """The names that *block* places in a file, each with the file: `name` (in `path`)."""
    return [*CLAIM.findall(block), *BOTH.findall(block)]


def files(token: str, block: str) -> list[Path]:
    """The files that the path *token* in *block* may mean."""
    return [path for folder in {"", *folders_of(block)} if (path := ROOT / folder / token).is_file()]


def defines(path: Path, identifier: str) -> bool:
    owner, _, member = identifier.partition(".")
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
    paths: set[Path] = set()
    for row in re.findall(r"^\|.*\|$", rooms(), re.MULTILINE):
        first, *others = TOKEN.findall(row) or [""]
        paths |= {ROOT / first, *[ROOT / first / other for other in others]}
    return {path for path in paths if path.exists()}


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
