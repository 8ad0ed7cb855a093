"""The summary of a session that is about to open a run, and of one that is a copy, a child or neither."""

from __future__ import annotations

import attrs
import pytest

from turnwheel.effects import events
from turnwheel.effects.config import Config, ModelSpec, Steering
from turnwheel.effects.notices import DoneReason
from turnwheel.effects.usage import Spent
from turnwheel.engine.core.codec import decode
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.engine.journal.fold import SessionState
from turnwheel.engine.journal.summary import (
    SessionKind,
    SessionStatus,
    SessionSummary,
    first_line,
    summarize,
    summarize_opened,
    summary_key,
)
from turnwheel.testing.state_fixtures import run_at

CONFIG = Config(model=ModelSpec(name="m"), cwd="/work")
CHILD = attrs.evolve(CONFIG, agent="kid", cwd="/elsewhere")
OVER = run_at("done").machine
PAID = Spent(seconds=3.0)
PROMPT = events.UserSent(at=1.0, id="p", text="go")
STEER = events.UserSteered(at=1.0, id="s", text="left", how=Steering.NOW)


def opened(settings: Config = CONFIG) -> RunOpened:
    return RunOpened(at=1.0, run="r", config=settings)


def test_a_row_that_says_nothing_is_of_a_session_in_which_nothing_happened() -> None:
    assert decode(b"{}", SessionSummary) == SessionSummary(
        kind=SessionKind.MAIN,
        parent="",
        title="",
        runs=0,
        messages=0,
        spent=Spent(),
        summary=0,
        cwd="",
        agent="",
        state=SessionStatus.IDLE,
        questions=0,
        prompts=0,
        reason=None,
    )


def test_a_session_that_opens_its_first_run_is_at_work_in_it() -> None:
    found = summarize_opened(opened(), "t", SessionState(title_spent=PAID), "s", 2)
    assert found == SessionSummary(
        title="t", runs=1, spent=PAID, cwd="/work", state=SessionStatus.UNFINISHED, prompts=2
    )


def test_a_session_that_opens_another_run_goes_on_from_what_it_was() -> None:
    state = SessionState(machine=OVER, runs=3, messages=7, summary=5, title="before")
    before = summarize(state, "s")
    assert (before.reason, before.state) == (DoneReason.END_TURN, SessionStatus.IDLE)
    found = summarize_opened(opened(), "t", state, "s", 0)
    expected = attrs.evolve(
        before, title="t", runs=4, cwd="/work", state=SessionStatus.UNFINISHED, reason=None
    )
    assert found == expected


@pytest.mark.parametrize(
    ("settings", "copied", "kind", "parent"),
    [
        (CONFIG, "", SessionKind.MAIN, ""),
        (CHILD, "", SessionKind.CHILD, "top.r-1"),
        (CONFIG, "old", SessionKind.FORK, "old"),
        (CHILD, "old", SessionKind.FORK, "old"),
    ],
)
def test_a_session_says_how_it_came_to_be_from_its_first_run_on(
    settings: Config, copied: str, kind: SessionKind, parent: str
) -> None:
    found = summarize_opened(opened(settings), "", SessionState(copied=copied), "top.r-1.r-2", 0)
    assert (found.kind, found.parent) == (kind, parent)
    assert (found.agent, found.cwd) == (settings.agent, settings.cwd)
    then = SessionState(machine=Machine.start(settings, "go"), copied=copied, runs=1)
    later = summarize(then, "top.r-1.r-2")
    assert (later.kind, later.parent, later.agent, later.cwd) == (kind, parent, settings.agent, settings.cwd)


def test_a_steer_waits_as_a_prompt_does_once_its_run_is_over() -> None:
    for machine, prompts in ((None, 2), (OVER, 2), (run_at("streaming").machine, 1)):
        state = SessionState(machine=machine, posted=[PROMPT, STEER])
        assert summarize(state, "s").prompts == prompts
        assert summary_key(state) == summarize(state, "s").key
        assert summarize(state, "s", 7).prompts == 7


def test_a_session_before_its_first_run_has_a_title_and_what_that_cost() -> None:
    state = SessionState(title="t", title_spent=PAID)
    assert summarize(state, "s") == SessionSummary(title="t", spent=PAID)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "\u2026"),
        ("a " * 40, ("a " * 29) + "a\u2026"),
        ("\n \n a\tb  c \n d", "a b c"),
        ("", ""),
    ],
)
def test_a_long_line_is_cut_at_a_word(text: str, line: str) -> None:
    assert first_line(text) == line
