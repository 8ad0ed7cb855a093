"""
Makes mistakes by the hundred, as a machine makes them, and says which of them nothing finds.

    made_mutants.py [--sample N] [--seed S] [--processes P] [--only TEXT] FOLDER...

Each mistake is one small change: a comparison the other way, ``and`` for ``or``, a number that is one more, a
condition that always holds or never does, a statement that is left out. What is not found is either
no mistake, or a hole in the promises. That takes a person to tell; so this is a tool, and no test.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

SWAPPED: dict[type[ast.AST], str] = {
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

PURE = {"plays": (300, 0, ""), "tests": "-m provers.model_check --processes 1 --only question"}
AROUND = {
    "plays": (60, 25, ""),
    "tests": "tests/engine/driver tests/engine/session/test_session.py tests/engine/session/test_runner.py",
}
"""What is to find mistakes in states, and in the engine around them."""


class Source:
    """A file of the package, and every mistake that can be made in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text("utf-8")
        self._lines = self.text.splitlines(keepends=True)

    def mistakes(self) -> Iterator[dict[str, Any]]:
        for node in ast.walk(ast.parse(self.text)):
            for begin, end, new in self._changes(node):
                changed = self.text[:begin] + new + self.text[end:]
                where = f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                yield {
                    "name": f"{where}: {' '.join(self.text[begin:end].split())[:80]!r} -> {new!r}",
                    "file": self.path.relative_to(ROOT).as_posix(),
                    "old": self.text,
                    "new": changed,
                }

    def _changes(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        """What can be wrong about *node*: from where to where there is what."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPPED:
                begin, end = self._at(left)[1], self._at(right)[0]
                yield begin, end, f" {SWAPPED[type(op)]} "
            case ast.BoolOp(op=op, values=[first, second, *_]):
                begin, end = self._at(first)[1], self._at(second)[0]
                between = self.text[begin:end]
                swapped = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield begin, end, between.replace(*swapped)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._at(node)[0], self._at(operand)[0], ""
            case ast.Constant(value=bool() as value):
                yield *self._at(node), str(not value)
            case ast.Constant(value=int() as value):
                yield *self._at(node), str(value + 1)
            case ast.If(test=test) | ast.IfExp(test=test) | ast.match_case(guard=ast.expr() as test):
                yield *self._at(test), "True"
                yield *self._at(test), "False"
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
                yield *self._at(node), "pass"
            case _:
                pass

    def _at(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self._place(node.lineno, node.col_offset), self._place(last, column)

    def _place(self, line: int, column: int) -> int:
        before = sum(len(one) for one in self._lines[: line - 1])
        return before + len(self._lines[line - 1].encode()[:column].decode())


def finder(file: str) -> dict[str, Any]:
    bare = file.startswith("states/") or file in {"engine/machine.py", "engine/recovery.py"}
    return PURE if bare else AROUND


def main() -> None:
    """Make a sample of all mistakes, hunt them, and print those that are left."""
    parser = argparse.ArgumentParser(description="Make mistakes, and see whether they are found.")
    parser.add_argument("folders", nargs="+", help="where they are made: files or folders of the package")
    parser.add_argument("--sample", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="which")
    parser.add_argument("--only", default="", help="those with this in their description")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many hunt")
    asked = parser.parse_args()
    there = [ROOT / folder for folder in asked.folders]
    paths = sorted({path for one in there for path in ([one] if one.is_file() else one.rglob("*.py"))})
    made = [one for path in paths for one in Source(path).mistakes() if asked.only in one["name"]]
    chosen = random.Random(asked.seed).sample(made, min(asked.sample, len(made)))
    jobs = [{**finder(one["file"]), **one} for one in chosen]
    print(f"{len(chosen)} of {len(made)} mistakes in {len(paths)} files", flush=True)
    hunt = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/mutants/hunt.py"), str(asked.processes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert hunt.stdin is not None
    assert hunt.stdout is not None
    hunt.stdin.write(json.dumps(jobs))
    hunt.stdin.close()
    found = 0
    for line in hunt.stdout:
        over = json.loads(line)
        found += over["code"] > 0
        if over["code"] <= 0:
            print(f"{'took too long' if over['code'] else 'not found'}: {over['name']}", flush=True)
    hunt.wait()
    print(f"{found} of {len(chosen)} were found")


if __name__ == "__main__":
    main()
