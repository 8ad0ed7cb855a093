"""
The page of behaviours: what holds, in words, and the scenarios and tests that show it.

    python tests/behaviour/page.py            writes docs/behaviours.md again
    python tests/behaviour/page.py --check    writes nothing; names what is wrong, a line each, and fails
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs

from turnwheel.testing import read_scenario

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIST = HERE / "behaviours.toml"
PAGE = ROOT / "docs" / "behaviours.md"
SCENARIOS = HERE.parent / "scenarios"
MARK = "pytest.mark.behaviour"
ABOUT_THE_PAGE = "test_page.py"

OPENING = """\
<!-- Written by `make behaviours`; change tests/behaviour/ and write it again. -->

# Behaviours

What holds for people who use an agent, and what shows it. A scenario is a story in text that is played on
the bare machine, on snapshots and journals, and in sessions; a test goes through what the package exports and
sees what a user sees.
"""


@attrs.frozen(kw_only=True)
class Behaviour:
    """What *holds*, and a *note* that says more; tests name it by its *key*."""

    key: str
    holds: str
    note: str


@attrs.frozen(kw_only=True)
class Area:
    """Behaviours that belong together, with a *text* above them where they need one."""

    name: str
    behaviour: tuple[Behaviour, ...]
    text: str = ""


@attrs.frozen(kw_only=True)
class Test:
    """A scenario or test, the *keys* that it shows, and of a scenario its *story* in a sentence."""

    path: str
    keys: tuple[str, ...]
    story: str = ""


def areas() -> tuple[Area, ...]:
    read = tomllib.loads(LIST.read_text("utf-8"))["area"]
    return tuple(
        Area(
            name=area["name"],
            behaviour=tuple(Behaviour(**one) for one in area["behaviour"]),
            text=area.get("text", ""),
        )
        for area in read
    )


def shown() -> tuple[Test, ...]:
    """The scenarios, and then the tests of this folder, in the order in which they stand there."""
    told = [_scenario(path) for path in sorted(SCENARIOS.rglob("*.txt"))]
    paths = [path for path in sorted(HERE.glob("test_*.py")) if path.name != ABOUT_THE_PAGE]
    return (*told, *(test for path in paths for test in _tests(path)))


def _scenario(path: Path) -> Test:
    scenario = read_scenario(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
    return Test(path=scenario.name, keys=scenario.shows, story=scenario.sentence)


def _tests(path: Path) -> Iterator[Test]:
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            where = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
            yield Test(path=where, keys=tuple(key for mark in node.decorator_list for key in _keys(mark)))


def _keys(mark: ast.expr) -> Iterator[str]:
    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
        yield from (str(ast.literal_eval(argument)) for argument in mark.args)


def page() -> str:
    tests = shown()
    return "\n".join([OPENING, *[line for area in areas() for line in _section(area, tests)]])


def _section(area: Area, tests: tuple[Test, ...]) -> Iterator[str]:
    yield f"## {area.name}\n"
    if area.text:
        yield f"{area.text}\n"
    for one in area.behaviour:
        yield f"**{one.holds}** {one.note}\n"
        yield from (_shows(test) for test in tests if one.key in test.keys)
        yield ""


def _shows(test: Test) -> str:
    if not test.story:
        return f"- `{test.path}`"
    return f"- [{test.story}](../{test.path})"


def faults() -> Iterator[str]:
    """What is wrong with the list, the tests and the page, a line each."""
    keys = Counter(one.key for area in areas() for one in area.behaviour)
    tests = shown()
    named = {key for test in tests for key in test.keys}
    yield from (f"{key!r} stands in the list {count} times" for key, count in keys.items() if count > 1)
    yield from (f"no test shows {key!r}" for key in keys if key not in named)
    for test in tests:
        if not (test.keys or test.story):
            yield f"{test.path} shows no behaviour: mark it"
        yield from (
            f"{test.path} shows {key!r}, which is not in the list" for key in test.keys if key not in keys
        )
    if not PAGE.is_file() or PAGE.read_text("utf-8") != page():
        yield f"{PAGE.relative_to(ROOT).as_posix()} is stale: run make behaviours"


def main() -> int:
    """Write or check; return 0, or 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="Write the page of behaviours again.")
    parser.add_argument("--check", action="store_true", help="write nothing; say what is wrong, and fail")
    check: bool = parser.parse_args().check
    if not check:
        PAGE.write_text(page(), "utf-8", newline="\n")
    found = list(faults())
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
