"""A store says by its attributes what it keeps: no caller looks for them by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from house.source import name, sources, tree

from turnwheel.performers import Store
from turnwheel.testing import StoreOver

STORE = re.compile(r"\b(store|kept|opened)\b")
"""How stores are called in code."""


def guesses(path: Path) -> Iterator[str]:
    """The places in *path* that look an attribute of a store up by its name."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"getattr", "hasattr"}
            and STORE.search(ast.unparse(node.args[0]))
        ):
            yield f"{name(path)}:{node.lineno} {ast.unparse(node)}"


def test_a_store_is_asked_by_its_attributes_what_it_keeps() -> None:
    found = [guess for path in sources("engine", "performers", "apps", "testing") for guess in guesses(path)]
    # The check of a closed store calls each method by its name.
    assert [guess for guess in found if "name)" not in guess] == []


def test_the_store_over_another_overrides_every_method() -> None:
    methods = {name for name, value in vars(Store).items() if not name.startswith("_") and callable(value)}
    assert methods - vars(StoreOver).keys() == set()
    attributes = {name for name, value in vars(Store).items() if value is False}
    assert attributes == vars(StoreOver()).keys() - {"kept"}
