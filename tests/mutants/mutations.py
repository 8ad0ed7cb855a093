"""
Makes every small mistake that a machine can make in a file of Python.

Each is one change of one place: a comparison the other way, ``and`` for ``or`` or without one of its sides, a
condition that always or never holds, a number that is one more, a call, an assignment or a keyword that is
left out. Texts are left alone: a changed word of a message is no mistake of behaviour.
"""

from __future__ import annotations

import ast
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias, final

import attrs

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}

ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}

# Calls of these are not unwrapped: their argument stands for them nearly everywhere.
CONVERSIONS = frozenset({"tuple", "list", "set", "frozenset", "dict", "str", "int", "float", "bool", "iter"})

# Without these, a program does the same on any machine that we have.
UNSEEN = frozenset({"encoding", "strict"})

# From where to where a file is changed, in characters, and what comes there.
Change: TypeAlias = tuple[int, int, str]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@final
@attrs.frozen(kw_only=True)
class Mutant:
    """
    A mistake in *file*, a path in the package: at *begin* to *end*, in characters, stands *new*.

    *name* stays the same while the function around it does, wherever in the file that is. *function* is the
    outermost function that it is in, as a qualified name, empty outside of any. *lines* are those of the
    changed place, and the first one of its statement.
    """

    name: str
    file: str
    lines: frozenset[int]
    begin: int
    end: int
    new: str
    function: str

    def applied(self, text: str) -> str:
        """*text*, which the file has, with the mistake."""
        return text[: self.begin] + self.new + text[self.end :]


def mutants_of(root: Path, path: Path) -> list[Mutant]:
    """Every mutant of the file *path* of the package at *root*."""
    return list(_Source(path.read_text("utf-8"), path.relative_to(root).as_posix()).mutants())


class _Source:
    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = text.splitlines(keepends=True)
        self._named: Counter[str] = Counter()

    def mutants(self) -> Iterator[Mutant]:
        for statement in ast.parse(self._text).body:
            yield from self._in(statement, "", "", statement.lineno)

    def _in(self, node: ast.AST, scope: str, function: str, first: int) -> Iterator[Mutant]:
        """
        The mutants of *node*, which stands in the *scope* and the outermost *function* of these names.

        Its statement begins in the line *first*.
        """
        if _is_left_alone(node):
            return
        first = node.lineno if isinstance(node, ast.stmt) else first
        for change in self._changes(node, function):
            yield self._mutant(scope, function, first, change)
        name = getattr(node, "name", "") if isinstance(node, Function | ast.ClassDef) else ""
        inner = f"{scope}.{name}".lstrip(".") if name else scope
        for field, value in ast.iter_fields(node):
            # Annotations and decorators do nothing when a function is called; its defaults are made before.
            if field in {"annotation", "returns", "decorator_list", "type_comment", "type_params", "bases"}:
                continue
            within = function or (inner if isinstance(node, Function) and field == "body" else "")
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    yield from self._in(one, inner, within, first)

    def _mutant(self, scope: str, function: str, first: int, change: Change) -> Mutant:
        begin, end, new = change
        old = " ".join(self._text[begin:end].split())
        said = f"{self._file} {scope or '-'}: {_short(old)!r} -> {_short(new)!r}"
        self._named[said] += 1
        number = self._named[said]
        return Mutant(
            name=said if number == 1 else f"{said} #{number}",
            file=self._file,
            lines=frozenset([first, *range(bisect(self._starts, begin), bisect(self._starts, end) + 1)]),
            begin=begin,
            end=end,
            new=new,
            function=function,
        )

    def _changes(self, node: ast.AST, function: str) -> Iterator[Change]:  # noqa: C901, PLR0912  # one case each
        match node:
            case ast.Compare(left=left, ops=ops, comparators=right):
                for before, op, after in zip([left, *right], ops, right, strict=False):
                    yield self._between(before, after, COMPARISONS[type(op)])
            case ast.BoolOp(op=op, values=values):
                word = " or " if isinstance(op, ast.And) else " and "
                parts = [f"({self._text[slice(*self._at(value))]})" for value in values]
                same = " and " if isinstance(op, ast.And) else " or "
                for number in range(len(parts)):
                    yield *self._at(node), f"({same.join([*parts[:number], *parts[number + 1 :]])})"
                yield *self._at(node), f"({word.join(parts)})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield *self._at(node), f"({self._text[slice(*self._at(operand))]})"
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC and not _is_text(node):
                yield self._between(left, right, ARITHMETIC[type(op)])
            case ast.Constant(value=bool() as value):
                yield *self._at(node), str(not value)
            case ast.Constant(value=int() as value):
                yield *self._at(node), str(value + 1)
            case ast.If(test=test) | ast.IfExp(test=test) | ast.match_case(guard=ast.expr() as test):
                yield *self._at(test), "True"
                yield *self._at(test), "False"
            case ast.While(test=test) if not isinstance(test, ast.Constant):
                yield *self._at(test), "False"
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield *self._at(test), "True"
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
                yield *self._at(node), "pass"
            case ast.Raise() if function:
                yield *self._at(node), "pass"
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if function:
                yield *self._at(node), "pass"
            case ast.Continue():
                yield *self._at(node), "break"
            case ast.Break():
                yield *self._at(node), "continue"
            case ast.Return(value=ast.expr() as value) if function and not _is_none(value):
                yield *self._at(value), "None"
            case ast.Call() if function:
                yield from self._of_call(node)
            case _:
                pass

    def _of_call(self, call: ast.Call) -> Iterator[Change]:
        if len(call.args) == 1 and not call.keywords and _is_unwrapped(call):
            yield *self._at(call), f"({self._text[slice(*self._at(call.args[0]))]})"
        if isinstance(call.func, ast.Name) and call.func.id[:1].isupper():
            return  # a value object misses a field without a default, and a message its text
        for word in call.keywords:
            if word.arg is not None and word.arg not in UNSEEN:
                begin = self._place(word.lineno, word.col_offset)
                end = self._at(word.value)[1]
                rest = self._text[end:].lstrip()
                end += len(self._text[end:]) - len(rest) + 1 if rest.startswith(",") else 0
                yield begin, end, ""

    def _between(self, left: ast.expr, right: ast.expr, new: str) -> Change:
        """The operator between *left* and *right*, with the parentheses around them left as they are."""
        begin, end = self._at(left)[1], self._at(right)[0]
        between = self._text[begin:end]
        begin += len(between) - len(between.lstrip(") \n\t"))
        end -= len(between) - len(between.rstrip("( \n\t"))
        return begin, end, new

    def _at(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        begin, end = self._place(node.lineno, node.col_offset), self._place(last, column)
        return begin, end

    def _place(self, line: int, column: int) -> int:
        text = self._lines[line - 1]
        return self._starts[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode()))


def _short(text: str) -> str:
    return text if len(text) <= 70 else f"{text[:50]}…{text[-19:]}"


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in {"__all__", "__slots__", "msg"}
        case ast.JoinedStr() | ast.Assert():
            return True
        case ast.keyword(arg="init"):
            return True  # an argument that no caller passes may as well be one
        case _:
            return False


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(part, ast.JoinedStr) or _is_string(part) for part in (node.left, node.right))


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_unwrapped(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "A")
    return name[:1].islower() and name not in CONVERSIONS and not isinstance(call.args[0], ast.Starred)
