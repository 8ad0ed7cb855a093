"""Code that tells the members of a closed union apart names all of them, so that a new one is not lost."""

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
from house.source import PACKAGE, ROOT, name, tree

import turnwheel
from turnwheel import states
from turnwheel.engine.journal.entries import Entry
from turnwheel.states.batch import batch as phases

UNIONS: list[Any] = [states.State, states.Stage, states.Waiting, states.CompactStage, states.Phase, Entry]

# The functions that tell the members of a union apart and end in `assert_never`, by the module that defines
# the union. `Memory.record` hands records to `_fold`, whose parameter is the union of the known ones.
MATCHES = {
    "states/state.py": {
        "State": {
            "states/state.py: batch_of",
            "states/done.py: failed",
            "engine/core/machine.py: _dispatch",
            "engine/core/recovery.py: _next_steps",
            "engine/journal/fold.py: asks_model",
            "engine/journal/fold.py: _first_prompt",
            "engine/journal/fold.py: _own_state",
            "engine/journal/summary.py: activity_of",
        },
        "Waiting": {
            "states/thinking.py: _entered",
            "states/thinking.py: _answered",
            "engine/core/recovery.py: _stage",
            "engine/journal/fold.py: _first_prompt",
        },
        "CompactStage": {"engine/core/recovery.py: _compaction"},
    },
    "states/batch/batch.py": {
        "Phase": {"states/batch/settle.py: _given_up", "engine/core/recovery.py: _call"}
    },
    "engine/journal/entries.py": {
        "Entry": {
            "engine/journal/fold.py: apply_entry",
            "engine/inspect/explain.py: _interference",
            "apps/cli/scenario_export.py: commands",
        }
    },
    "effects/requests.py": {
        "Request": {"performers/answers.py: failed_answer", "engine/core/recovery.py: _given_up"}
    },
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


# Functions that ask `isinstance` about a single state, and why a new state may count among the others.
# `Done` alone is not listed: a run is over in this state and in no other.
SINGLE_STATES = {
    "apps/server/feed.py: look": "of all notices, deltas alone are lost here, and Streaming alone sends them",
    "engine/journal/fold.py: _first_prompt": "a match of all states follows, which ends in assert_never",
    "states/done.py: _drop_answer": "type checkers compare: its argument is Streaming or Compacting",
}


@pytest.mark.timeout(600)  # without a cache, and on a busy machine, mypy takes minutes
def test_type_checkers_name_each_place_that_does_not_know_a_new_member(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra `dev`, which make check installs")
    package, command = Path(turnwheel.__file__).parent, [sys.executable, "-m", "mypy", "-p", "turnwheel"]
    for module, unions in MATCHES.items():
        source = (ROOT / module).read_text("utf-8")
        for union in unions:
            source, count = re.subn(rf"^{union} = ", MEMBER.format(union=union), source, flags=re.MULTILINE)
            assert count == 1
        extended = tmp_path / module.replace("/", "_")
        extended.write_text(source, "utf-8")
        command += ["--shadow-file", str(package / module), str(extended)]
    cache = _copied_cache(tmp_path)
    command += ["--cache-dir", str(cache), "--no-error-summary", "--hide-error-context", "--no-pretty"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
    named = {
        (union, f"{module}: {_function_at(line, tmp_path, module)}")
        for module, line, union in _unmatched(printed, package.relative_to(ROOT).as_posix())
    }
    wanted = {
        (union, place) for unions in MATCHES.values() for union, places in unions.items() for place in places
    }
    assert named == wanted, printed


def _copied_cache(folder: Path) -> Path:
    """A cache for mypy in *folder*: a copy of the project's own, or an empty one."""
    # With a copy mypy needs seconds. The project's own cache must not learn of the new members.
    try:
        return shutil.copytree(ROOT / ".mypy_cache", folder / "copied_cache")
    except OSError:  # there is none, or another mypy replaces its files; `shutil.Error` is an OSError
        return folder / "empty_cache"


def _unmatched(printed: str, package: str) -> Iterator[tuple[str, int, str]]:
    """The arguments that mypy refuses since they may be new members: module, line, and union."""
    refused = re.compile(
        rf"{re.escape(package)}/(.+?):(\d+): error: "
        r'Argument \d to "(?:assert_never|_fold)" has incompatible type "(.+)"; expected '
    )
    for line in printed.splitlines():
        if error := refused.match(line):
            for union in re.findall(r"\bNew(\w+)", error[3]):
                yield error[1], int(error[2]), union


def _function_at(line: int, extended: Path, module: str) -> str:
    """The innermost function at *line* of *module*, in its extended form where it has one."""
    shadow = extended / module.replace("/", "_")
    parsed = ast.parse((shadow if shadow.exists() else ROOT / module).read_text("utf-8"))
    around = [
        node
        for node in ast.walk(parsed)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or line)
    ]
    return around[-1].name if around else ""


def _names(pattern: ast.pattern) -> set[str]:
    """The classes that *pattern* tells apart; an empty name where it is not a pattern of classes alone."""
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


def test_a_match_over_states_stages_phases_or_entries_ends_in_assert_never() -> None:
    """Any other wildcard would take a new member in silence."""
    members = [{kind.__name__ for kind in get_args(kinds)} for kinds in UNIONS]
    checked, missing = 0, []
    for path in PACKAGE:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Match):
                continue
            told = {known for case in node.cases if not _is_wildcard(case) for known in _names(case.pattern)}
            last = node.cases[-1].body[-1]
            raises = isinstance(last, ast.Raise)  # loses nothing
            if not told or raises or not any(told <= kinds for kinds in members):
                continue
            checked += 1
            if not ast.unparse(last).startswith("assert_never("):
                missing.append(f"{name(path)}:{node.lineno}")
    assert checked >= 12
    assert missing == []


def test_no_isinstance_names_a_state_where_a_new_one_would_be_lost() -> None:
    """Use `batch_of` or `questions` instead, or a match that ends in `assert_never`."""
    members = {kind.__name__ for kind in get_args(states.State)}
    places = set()
    for path in PACKAGE:
        functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)]
        for node in ast.walk(tree(path)):
            match node:
                case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                    words = {ast.unparse(word).rpartition(".")[2] for word in ast.walk(kinds)}
                    if words & members not in (set(), {"Done"}):
                        around = [at for at in functions if at.lineno <= node.lineno <= (at.end_lineno or 0)]
                        places.add(f"{name(path)}: {around[-1].name if around else ''}")
                case _:
                    pass
    assert places == set(SINGLE_STATES)


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
