"""
Stories of the bare machine: commands of scenarios, and behind each, indented, every effect that it had.

Each file in `stories/` begins with the settings that its stories share, and with the commands they begin with
where that is not a "hello". A story begins with ``==`` and its sentence, and with another prompt where it
says so. ``python tests/states/test_stories.py``
records all stories anew; the difference is to be reviewed. The auditor checks each step of each story, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import final

import attrs
import pytest
from provers.audit.decisions import TOLD
from provers.simulation.watched import Watched

from turnwheel.display.rendering import fields_of, line_of
from turnwheel.effects.events import Post
from turnwheel.effects.notices import (
    AnswerFailed,
    CallDelta,
    InputTaken,
    RunResumed,
    RunStarted,
    SummaryEnded,
    TurnEnded,
)
from turnwheel.effects.records import TakeMail, UseIds
from turnwheel.effects.requests import CallModel, FireHook
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.core.recovery import recover
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.states.rules.compaction import SUMMARY_INSTRUCTIONS
from turnwheel.testing.scenarios import ScenarioError, read_scenario
from turnwheel.testing.scenarios_world import (
    STORY_SESSION,
    InputWaits,
    ProcessLost,
    ScenarioWorld,
    as_driven,
)

STORIES = Path(__file__).with_name("stories")
DEFAULT = """
agent children=(kid, heir tools=(write, send, nowhere))
agent tools=(look read_only, peek read_only always, write, edit idempotent edits, note idempotent never, \
send agent never, hire agent)
""".strip()
TITLE, BEGINNING = "== ", 'prompt "hello"'

QUIET = (*TOLD, UseIds, TakeMail, RunStarted, RunResumed, InputTaken, CallDelta, AnswerFailed, SummaryEnded)
"""Effects that say again what the event or another effect says; the auditor holds them to that."""


@final
@attrs.frozen
class Story:
    """A story of a *file*: its *title*, and its *lines* of commands under the settings *shared*."""

    file: Path
    title: str
    shared: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file.stem}: {self.title}"


def read(file: Path) -> Iterator[Story]:
    shared, *stories = file.read_text("utf-8").split(f"\n{TITLE}")
    for story in stories:
        title, *lines = story.rstrip().split("\n")
        yield Story(file, title, shared.strip(), tuple(lines))


def told(story: Story) -> list[str]:
    commands = [line for line in story.lines if line and not line.startswith((" ", "agent "))]
    settings = [line for line in story.lines if line.startswith("agent ")]
    shared, _, beginning = story.shared.partition("\n\n")
    begins = commands[0].startswith("prompt ")
    hidden = [] if begins else (beginning or BEGINNING).splitlines()
    scenario = read_scenario("\n\n".join([DEFAULT, shared, *settings, *hidden, *commands]), str(story))
    world, audit = ScenarioWorld(scenario.config), Audit()
    lines = list(settings)
    for number, block in enumerate(scenario.blocks):
        [command] = block
        shown = list(world.perform(command, str(story)))
        audit.follow(world)
        if number >= len(hidden):
            lines.append(command.text)
            steps = [line for line in shown if not line.startswith(" ")]
            lines += [f"  {line}" for line in (*steps, *effect_lines(world))]
    return lines


def effect_lines(world: ScenarioWorld) -> Iterator[str]:
    """What is told of the effects of the latest command: all of each, but the tools where none is missing."""
    every = f", tools {' '.join(tool.name for tool in world.config.tools)}"
    for effect in world.effects:
        if isinstance(effect, CallModel):
            own = effect.instructions.removeprefix(SUMMARY_INSTRUCTIONS).strip("\n")
            yield line_of(attrs.evolve(effect, instructions=own)).replace(every, "")
        elif isinstance(effect, FireHook):
            yield f"FireHook {fields_of(effect)}"
        elif isinstance(effect, TurnEnded):
            calls = f" ({' '.join(call.name for call in effect.calls)})" if effect.calls else ""
            yield f"TurnEnded {effect.turn} {effect.stop} {effect.sequence}".rstrip() + calls
        elif not isinstance(effect, QUIET):
            yield line_of(effect)


@final
class Audit:
    """The auditor of the run that a world is in."""

    def __init__(self) -> None:
        self._run: Watched | None = None
        self._posts: list[Post] = []

    def follow(self, world: ScenarioWorld) -> None:
        """Do what the latest command of *world* did. Raises `PromiseBroken`."""
        for act in world.acts:
            match act:
                case tuple():
                    pass
                case InputWaits(event=event):
                    self._posts.append(event)
                case RunOpened():
                    before = None if self._run is None else self._run.machine
                    machine = Machine.open(act, before, self._posts, session=STORY_SESSION)
                    self._run = Watched.of(machine)
                    self._run.feed(None)
                    self._posts = []
                case ProcessLost():
                    self._lost(act)
                case _ if self._run is not None:
                    self._run.feed(as_driven(act, self._run.requests))
                case _:
                    pass
        if self._run is not None:
            assert self._run.machine == world.machine

    def _lost(self, act: ProcessLost) -> None:
        assert self._run is not None
        if act.config is not None:
            self._run.reconfigure(act.config)
        for event in recover(self._run.machine, act.at).events:
            self._run.feed(event)


FILES = sorted(STORIES.glob("*.txt"))


@pytest.mark.parametrize("story", [story for file in FILES for story in read(file)], ids=str)
def test_a_story_is_told_as_it_was_recorded(story: Story) -> None:
    assert told(story) == list(story.lines), f"python {Path(__file__).name} records it anew"


def record() -> int:
    """Write all stories anew, as they are told now; those whose commands are wrong stay as they are."""
    wrong = 0
    for file in FILES:
        shared, _, _ = file.read_text("utf-8").partition(f"\n{TITLE}")
        stories: list[str] = []
        for story in read(file):
            try:
                lines = told(story)
            except (ScenarioError, AssertionError) as error:
                print(f"{story}\n  {error}", file=sys.stderr)
                wrong, lines = 1, list(story.lines)
            stories.append("\n".join([f"{TITLE}{story.title}", *lines]))
        file.write_text("\n\n".join([shared.rstrip(), *stories]) + "\n", "utf-8", newline="\n")
    return wrong


if __name__ == "__main__":
    sys.exit(record())
