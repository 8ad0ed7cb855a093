"""Each place that tells the members of a closed union apart names all of them, so that none is lost."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest
from house.source import PACKAGE, ROOT, name

import turnwheel
from turnwheel import states
from turnwheel.engine.journal.entries import Entry
from turnwheel.states.batch import batch as phases

UNIONS: list[Any] = [states.State, states.Stage, states.Waiting, states.CompactStage, states.Phase, Entry]

# Where a new member must be named: the unions by the module that defines them, and the functions that tell
# their members apart.
PLACES = {
    "states/state.py": {
        "State": {
            "states/state.py: batch_of",
            "states/done.py: failed",
            "engine/machine.py: _dispatch",
            "engine/recovery.py: _next_steps",
            "engine/journal/fold.py: _asks_model",
            "engine/journal/fold.py: _first_prompt",
            "engine/journal/fold.py: _own_state",
            "engine/journal/summary.py: activity_of",
            "engine/inspect/fork.py: _awaited",
        },
        "Waiting": {
            "states/thinking.py: _entered",
            "engine/recovery.py: _stage",
            "engine/journal/fold.py: _first_prompt",
        },
        "CompactStage": {"engine/recovery.py: _compaction"},
    },
    "states/batch/batch.py": {"Phase": {"states/batch/settle.py: _given_up", "engine/recovery.py: _call"}},
    "engine/journal/entries.py": {
        "Entry": {
            "engine/journal/fold.py: apply_entry",
            "engine/inspect/explain.py: _interference",
            "apps/cli/scenario_export.py: commands",
        }
    },
    "effects/requests.py": {"Request": {"engine/recovery.py: _given_up"}},
    "effects/records.py": {"Record": {"states/context.py: record"}},
}

MEMBER = """
@final
@attrs.frozen(kw_only=True)
class New{union}:
    id: str
    request: str
    at: float

    @property
    def label(self) -> str:
        return "new"

    @property
    def open(self) -> tuple[str, ...]:
        return (self.request,)


{union} = New{union} | """


def test_type_checkers_name_each_place_that_does_not_know_a_new_member(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra `dev`, which make check installs")
    package, command = Path(turnwheel.__file__).parent, [sys.executable, "-m", "mypy", "-p", "turnwheel"]
    for module, unions in PLACES.items():
        source = (ROOT / module).read_text("utf-8")
        for union in unions:
            source, count = re.subn(rf"^{union} = ", MEMBER.format(union=union), source, flags=re.MULTILINE)
            assert count == 1
        extended = tmp_path / module.replace("/", "_")
        extended.write_text(source, "utf-8")
        command += ["--shadow-file", str(package / module), str(extended)]
    # A copy of the cache: with it mypy needs seconds, and the cache itself must not learn of the new members.
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / "cache")
    command += ["--cache-dir", str(tmp_path / "cache"), "--no-error-summary", "--hide-error-context"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
    named = {
        f"{module}: {_function_at(line, tmp_path, module)}"
        for module, line in _errors(printed, package.relative_to(ROOT).as_posix())
    }
    wanted = {place for unions in PLACES.values() for places in unions.values() for place in places}
    assert wanted - named == set(), printed


def _errors(printed: str, package: str) -> Iterator[tuple[str, int]]:
    for line in printed.splitlines():
        if found := re.match(rf"{re.escape(package)}/(.+?):(\d+): error: ", line):
            yield found[1], int(found[2])


def _function_at(line: int, extended: Path, module: str) -> str:
    """The innermost function at *line* of *module*, in its extended form where it has one."""
    shadow = extended / module.replace("/", "_")
    tree = ast.parse((shadow if shadow.exists() else ROOT / module).read_text("utf-8"))
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or line)
    ]
    return around[-1].name if around else ""


def _names(pattern: ast.pattern) -> set[str]:
    """The classes that *pattern* tells apart; an empty name where it is no pattern of classes alone."""
    match pattern:
        case ast.MatchOr(patterns=patterns):
            return {known for each in patterns for known in _names(each)}
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return _names(inner)
        case ast.MatchClass(cls=ast.Name(id=known) | ast.Attribute(attr=known)):
            return {known}
        case ast.MatchSingleton():
            return set()
        case _:
            return {""}


def _is_wildcard(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def test_a_match_over_states_stages_phases_or_entries_names_all_of_them() -> None:
    """A wildcard would take a new member in silence: each match ends in `assert_never` or in no wildcard."""
    members = [{kind.__name__ for kind in get_args(kinds)} for kinds in UNIONS]
    checked, missing = 0, []
    for path in PACKAGE:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Match):
                continue
            told = {known for case in node.cases if not _is_wildcard(case) for known in _names(case.pattern)}
            last = node.cases[-1]
            raises = isinstance(last.body[-1], ast.Raise)  # loses nothing
            if not told or raises or not any(told <= kinds for kinds in members):
                continue
            checked += 1
            ends = not _is_wildcard(last) or ast.unparse(last.body[-1]).startswith("assert_never(")
            if told not in members or not ends:
                missing.append(f"{name(path)}:{node.lineno}")
    assert checked >= 12
    assert missing == []


def test_what_waits_for_a_request_is_known_to_wait() -> None:
    """`open` reads the request of what is in these unions only."""
    requesting = [
        {kind for kind in get_args(kinds) if "request" in attrs.fields_dict(kind)}
        for kinds in (states.Stage, states.Phase)
    ]
    assert requesting == [{*get_args(states.Waiting)}, {*get_args(phases.AtWork)}]


def test_a_phase_is_before_during_or_after_the_work() -> None:
    groups = [*get_args(phases.Unstarted), *get_args(phases.Working), phases.Reviewed, phases.Settled]
    assert sorted(groups, key=str) == sorted(get_args(states.Phase), key=str)
