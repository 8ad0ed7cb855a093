"""What an object keeps is its own: no other one asks it by name what it can, or writes its fields."""

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


CORE = sources("engine", "performers/stores")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """What *node* and all inside it assign to, or delete."""
    for each in ast.walk(node):
        found: list[ast.expr] = []
        if isinstance(each, ast.Assign | ast.Delete):
            found = each.targets
        elif isinstance(each, ast.AnnAssign | ast.AugAssign):
            found = [each.target]
        for target in found:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def fields(node: ast.AST) -> set[str]:
    """The fields of the classes in *node*: what their methods assign to `self`, and their bodies."""
    classes = [each for each in ast.walk(node) if isinstance(each, ast.ClassDef)]
    there = [target for each in classes for target in targets(each)]
    return {
        target.attr for target in there if isinstance(target, ast.Attribute) and is_self(target.value)
    } | {target.id for target in there if isinstance(target, ast.Name)}


def is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def made_in(function: Function) -> set[str]:
    """The names in *function* of what a call made there."""
    made = [
        each
        for each in ast.walk(function)
        if isinstance(each, ast.Assign | ast.AnnAssign) and isinstance(each.value, ast.Call | ast.Await)
    ]
    return {target.id for each in made for target in targets(each) if isinstance(target, ast.Name)}


def test_an_object_assigns_no_field_of_one_that_another_module_defines() -> None:
    foreign = [
        f"{name(path)}:{target.lineno} {ast.unparse(target)}"
        for path in CORE
        for function in ast.walk(tree(path))
        if isinstance(function, Function)
        for target in targets(function)
        if isinstance(target, ast.Attribute) and not is_self(target.value)
        if not (isinstance(target.value, ast.Name) and target.value.id in made_in(function))
        if target.attr not in fields(tree(path))
    ]
    assert foreign == []


MOST_METHODS, MOST_FIELDS = 25, 14

FACADES = {"Session"}
"""Classes that only pass calls on."""


def classes() -> Iterator[tuple[Path, ast.ClassDef, list[Function]]]:
    for path in CORE:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                yield path, node, [each for each in node.body if isinstance(each, Function)]


def changed(methods: list[Function]) -> set[str]:
    """The fields that *methods* assign after the object was made."""
    return {
        target.attr
        for method in methods
        if method.name != "__init__"
        for target in targets(method)
        if isinstance(target, ast.Attribute) and is_self(target.value)
    }


def test_a_class_has_one_job() -> None:
    sizes = {
        f"{name(path)} {node.name}": (len(methods), len(changed(methods)))
        for path, node, methods in classes()
        if node.name not in FACADES
    }
    assert {one: size for one, size in sizes.items() if size[0] > MOST_METHODS or size[1] > MOST_FIELDS} == {}


def assigns_only(method: Function) -> bool:
    """Whether *method* does nothing but keep what it is given."""
    body = [
        each
        for each in method.body
        if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]
    given = {one.arg for one in (*method.args.args, *method.args.kwonlyargs)}
    return bool(body) and all(
        isinstance(each, ast.Assign) and isinstance(each.value, ast.Name) and each.value.id in given
        for each in body
    )


def test_no_method_only_assigns_what_it_is_given() -> None:
    setters = [
        f"{name(path)} {node.name}.{method.name}"
        for path, node, methods in classes()
        for method in methods
        if method.name != "__init__" and assigns_only(method)
    ]
    assert setters == []
