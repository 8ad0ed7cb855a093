"""
Scenario files put to a user's own agent: `check_scenario` plays one and compares the outcome with its text.

The pytest plugin does so for each file of a test that is marked with ``scenarios``, through `ScenarioFile`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path
from typing import Any, final

from ..effects.config import Config
from ..effects.errors import ArgumentError
from ..engine.agent import Agent
from .scenarios import Scenario, ScenarioError, read_scenario, rewritten
from .scenarios_world import ScenarioWorld

# What the name of a scenario file ends with.
SUFFIX = ".scenario.txt"

_HOW_TO_RECORD = "record it with `pytest --record-scenarios`, and review the difference."


def check_scenario(path: str | Path, agent: Agent[Any, Any] | Config, *, record: bool = False) -> bool:
    """
    Play the scenario file *path* with the configuration of *agent*, and compare the outcome with its text.

    No model, tool, hook, approver or other performer of *agent* runs: the file says what they answer. With
    *record* the outcome is written into the file; returns whether the file was changed.

    Raises `AssertionError` with a unified diff where the outcome is another one or none is recorded,
    `ScenarioError` for a command that is wrong or cannot happen, and `ArgumentError` for an *agent* that is
    neither of the two.
    """
    place, config = Path(path), _config_of(agent)
    name = _shown(place)
    text = _text_of(place, name)
    scenario = read_scenario(text, name, config)
    if not scenario.blocks:
        msg = 'the file has no command; begin with: prompt "What the user says"'
        raise ScenarioError(msg, 1, where=name)
    outcome, mistake = _outcome_of(scenario)
    if mistake is not None and (outcome == scenario.recorded or not any(scenario.recorded)):
        raise mistake from None
    if outcome == scenario.recorded:
        return False
    played = rewritten(text, outcome)
    if record and mistake is None:
        place.write_text(played, "utf-8", newline="\n")
        return True
    raise AssertionError(_difference(scenario, text, played, mistake))


def _outcome_of(scenario: Scenario) -> tuple[tuple[tuple[str, ...], ...], ScenarioError | None]:
    """
    What the blocks of *scenario* lead to, and the first command that cannot happen.

    From that command on the outcome is the recorded one. An agent that behaves in another way than before
    makes later commands impossible: what tells most is the difference before them.
    """
    world = ScenarioWorld(scenario.config, scenario.subject)
    outcome: list[tuple[str, ...]] = []
    try:
        for block in scenario.blocks:
            lines = [line for command in block for line in world.perform(command, scenario.name)]
            outcome.append(tuple(lines))
    except ScenarioError as error:
        return (*outcome, *scenario.recorded[len(outcome) :]), error
    return tuple(outcome), None


def _config_of(agent: object) -> Config:
    match agent:
        case Config():
            return agent
        case Agent(config=config):
            return config
        case _:
            fix = "call it" if callable(agent) and not isinstance(agent, type) else "give it one"
            msg = f"check: {agent!r:.80} is neither an Agent nor a Config; {fix}"
            raise ArgumentError(msg)


def _shown(path: Path) -> str:
    """*path* as an error names it: relative to the working directory where it is below that."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _text_of(path: Path, name: str) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        msg = "the file is not UTF-8 text; save it in that encoding"
        raise ScenarioError(msg, line, where=name) from None


def _difference(scenario: Scenario, text: str, played: str, mistake: ScenarioError | None) -> str:
    name = scenario.name
    if not any(scenario.recorded):
        return f"{name}:1: no outcome is recorded yet; {_HOW_TO_RECORD}"
    # Spaces at the end of a recorded line are not compared, so the diff does not show them either.
    before, after = ([line.rstrip() for line in each.splitlines()] for each in (text, played))
    pairs = enumerate(zip_longest(before, after), 1)
    line = next((number for number, (old, new) in pairs if old != new), 1)
    diff = unified_diff(before, after, f"{name} (recorded)", f"{name} (played)", lineterm="")
    way_on = f"If the new outcome is right, {_HOW_TO_RECORD}"
    if mistake is not None:
        way_on = f"After that a command cannot happen; change the story or the agent: {mistake}"
    return "\n".join([f"{name}:{line}: the outcome is not the recorded one", *diff, way_on])


@final
class ScenarioFile:
    """The scenario file at *path*, as the fixture ``scenario`` of pytest gives it to a test: call `check`."""

    def __init__(self, path: Path, *, record: bool, on_record: Callable[[str], None]) -> None:
        self.path = path
        # Whether a test called `check`. One that forgot has tested nothing.
        self.checked = False
        self._record, self._on_record = record, on_record

    def __repr__(self) -> str:
        return f"ScenarioFile({_shown(self.path)!r})"

    def check(self, agent: Agent[Any, Any] | Config) -> None:
        """Fail the test as `check_scenario` says; with ``pytest --record-scenarios``, write the outcome."""
        import pytest  # noqa: PLC0415  # the rest of this module needs no pytest

        self.checked = True
        try:
            changed = check_scenario(self.path, agent, record=self._record)
        except (AssertionError, ScenarioError) as error:
            problem = str(error)
        else:
            if changed:
                self._on_record(_shown(self.path))
            return
        # Behind the handler, and without a traceback: pytest shows the text alone.
        pytest.fail(problem, pytrace=False)


def files_for(test_file: Path, folder: str, skipped: Iterable[str]) -> list[tuple[str, Path]]:
    """
    The scenario files in *folder*, relative to that of *test_file*, and below it, by relative path.

    Subfolders whose names fit a glob of *skipped* are left out. Raises `ArgumentError` where no file is.
    """
    place = test_file.parent / folder
    if not place.is_dir():
        problem = "is a file, not a folder" if place.exists() else "is not there"
        msg = f"scenarios: the folder {_shown(place)} {problem}; name one relative to {test_file.name}"
        raise ArgumentError(msg)
    paths = sorted(_below(place, tuple(skipped)))
    if not paths:
        fix = (
            f"write one, or export a session: turnwheel export --scenario ID > {_shown(place / f'x{SUFFIX}')}"
        )
        msg = f"scenarios: {_shown(place)} has no file *{SUFFIX}; {fix}"
        raise ArgumentError(msg)
    return [(path.relative_to(place).as_posix(), path) for path in paths]


def _below(place: Path, skipped: tuple[str, ...]) -> Iterator[Path]:
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if not any(fnmatch(name, glob) for glob in skipped)]
        yield from (Path(folder, name) for name in files if name.endswith(SUFFIX))
