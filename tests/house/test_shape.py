"""How long things get, and that an exception from a rule has its reason beside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from house.source import EVERYTHING, PACKAGE, ROOT, comments, lines_of, name, tree

LONGEST_FUNCTION = 50
LONGEST_MODULE = 700


def lengths(path: Path) -> dict[str, int]:
    """The code lines of each function in *path*, without docstrings and comments."""
    code, _, _ = lines_of(path.read_text("utf-8"))
    return {
        f"{name(path)}:{node.lineno} {node.name}": len(
            code & set(range(node.lineno, (node.end_lineno or 0) + 1))
        )
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_functions_fit_on_a_screen() -> None:
    every = {function: length for path in PACKAGE for function, length in lengths(path).items()}
    assert {function: length for function, length in every.items() if length > LONGEST_FUNCTION} == {}
    assert sum(length <= 20 for length in every.values()) >= 0.9 * len(every)


def test_a_module_holds_one_idea() -> None:
    lines = {name(path): len(path.read_text("utf-8").splitlines()) for path in PACKAGE}
    assert {path: count for path, count in lines.items() if count > LONGEST_MODULE} == {}


UNNAMED = re.compile(r"(?<![A-Za-z])(whoever|whomever|somebody|nobody|anybody)(?![A-Za-z])", re.IGNORECASE)
"""Pronouns that hide the actor: caller, approver, model, worker, subscriber, person."""

KEPT = {"Denied: nobody answered within"}
"""The text of a denial that the model reads; the golden journals hold it word for word."""


def test_every_sentence_names_its_actor() -> None:
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *[ROOT / page for page in ("README.md", "CONTRIBUTING.md", "Makefile")],
    ]
    hidden = [
        f"{name(path)}:{number} {line.strip()}"
        for path in [*PACKAGE, *pages]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if UNNAMED.search(line) and not any(kept in line for kept in KEPT)
    ]
    assert hidden == []


def named(path: Path) -> Iterator[str]:
    """The classes and constants that *path* defines."""
    for node in tree(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found = (
            [node.name]
            if isinstance(node, ast.ClassDef)
            else [t.id for t in targets if isinstance(t, ast.Name)]
        )
        yield from (each for each in found if len(each.strip("_")) > 1 and each.strip("_")[0].isupper())


def test_a_class_or_constant_has_one_meaning() -> None:
    homes: dict[str, list[str]] = {}
    for path in PACKAGE:
        for each in named(path):
            homes.setdefault(each, []).append(name(path))
    assert {each: places for each, places in homes.items() if len(places) > 1} == {}


SILENCER = re.compile(r"#\s*(noqa|(type|pyright):\s*ignore|(mypy|ruff|pyright):)")
WITH_RULE = re.compile(r"#\s*((?:ruff: )?noqa: [A-Z]+\d+(, [A-Z]+\d+)*|(type|pyright): ignore\[[\w, -]+\])")


def test_a_silenced_check_has_a_reason_beside_it() -> None:
    """A `noqa` or an `ignore` names its rule, and the text behind it says why it is right here."""
    bare: list[str] = []
    for path in EVERYTHING:
        for line, comment in comments(path):
            reason = WITH_RULE.sub("", comment)
            if SILENCER.search(comment) and (SILENCER.search(reason) or not re.search(r"\w{2,}", reason)):
                bare.append(f"{name(path)}:{line}: {comment}")
    assert bare == []
