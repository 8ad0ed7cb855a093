"""The source of the project as the tests of this folder read it: files, syntax trees, imports, lines."""

from __future__ import annotations

import ast
import importlib
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = (
    "effects",
    "states",
    "diagrams",
    "performers",
    "display",
    "engine",
    "projections",
    "settings",
    "testing",
    "apps",
)
"""The rooms, in the order in which they may import: each from itself and from those before it."""

OUTSIDE = ("tests", "examples", "benchmarks")


def sources(*folders: str) -> list[Path]:
    """The Python files below *folders*, in a fixed order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


SETUP = ROOT / "setup.py"
"""What builds the package; it stands in the folder that is the package, and is no part of it."""

PACKAGE = [*sorted(set(ROOT.glob("*.py")) - {SETUP}), *sources(*ROOMS)]
STUBS = [
    *sorted(ROOT.glob("*.pyi")),
    *sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.pyi")),
]
"""The lists of public names, of the root and of each room."""
EVERYTHING = [*PACKAGE, SETUP, *sources(*OUTSIDE)]


def name(path: Path) -> str:
    """How a test says which file it is about."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of *path*."""
    return ast.parse(path.read_text("utf-8"), name(path))


def dotted(path: Path) -> str:
    """The module of *path*, a source or a stub, by its name below ``turnwheel``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix("__init__").removesuffix(".")


MODULES = {dotted(path): path for path in PACKAGE}


def module_of(path: Path) -> ModuleType:
    """The imported module of *path*."""
    return importlib.import_module(f"turnwheel.{dotted(path)}".removesuffix("."))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Each module of the package that *path* imports, wherever the statement stands, with its line."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("turnwheel")):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            names = (node.module or "").split(".") if node.module else []
            base += names if node.level else names[1:]
            for alias in node.names:
                module = ".".join([*base, alias.name])
                yield node.lineno, module if module in MODULES else ".".join(base)


def lines_of(source: str) -> tuple[set[int], set[int], set[int]]:
    """The numbers of the lines of *source* that hold code, docstrings and comments."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documented |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    code: set[int] = set()
    commented: set[int] = set()
    blank = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            commented.add(token.start[0])
        elif token.type not in blank:
            code |= set(range(token.start[0], token.end[0] + 1))
    return code - documented, documented, commented


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Each comment of *path* and its line."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
