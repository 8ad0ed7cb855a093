"""Notebooks: each word of the engine shows itself, and no text of a model becomes HTML."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from turnwheel import Agent, MemoryStore, tool
from turnwheel.display.notebook import Card, html_of
from turnwheel.effects import Effect, events, records
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.events import Event
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.requests import CallModel
from turnwheel.engine import PictureKind, replay
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.inspect.replay import replayed
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import Posted, RunOpened
from turnwheel.states.context import Memory
from turnwheel.states.state import State
from turnwheel.testing.scripted import ScriptedModel, calls, says

EVIL = "<script>alert(1)</script> ``` <img src=x onerror=alert(1)>"


# Notebooks ask by this name.
HTML = "_repr_html_"


def as_html(value: object) -> str:
    return str(getattr(value, HTML)())


@tool(side_effect="read_only")
def look(path: str) -> str:
    """Look."""
    return f"{path}: {EVIL}"


@tool(side_effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.mark.parametrize(
    "kind", [*get_args(State), Memory, History, Machine, *get_args(Effect), *get_args(Event)]
)
def test_each_word_shows_itself(kind: type[Any]) -> None:
    assert hasattr(kind, HTML)


async def a_session() -> tuple[Any, MemoryStore]:
    store = MemoryStore()
    answers = ScriptedModel(calls(("look", {"path": EVIL})), calls(("pay", {"amount": 5})), says(EVIL))
    performers: Any = {CallModel: answers}
    agent = Agent(model="m", performers=performers, tools=[look, pay], store=store)
    session = agent.session("s<b>")
    await session.run(EVIL)
    return session, store


async def test_what_models_and_people_say_is_text_and_not_html() -> None:
    session, store = await a_session()
    async with session:
        machine = session.machine
        steps = [step async for step in replay(store, "s<b>")]
        values = [session, session.result(), machine, machine.state, machine.memory, session.history, *steps]
        values += [step.effects for step in steps]
        values += [effect for step in steps for effect in step.effects]
        values += [step.event for step in steps if step.event is not None]
        for value in values:
            shown = as_html(value)
            assert "<script" not in shown
            assert "<img" not in shown
            assert "s<b>" not in shown
        for kind in get_args(PictureKind):
            picture = await session.picture(kind)
            assert picture.startswith("<svg")
            for shown in (picture, as_html(picture)):
                assert "<script" not in shown
                assert "<img" not in shown


async def test_the_chart_stands_where_a_value_is_at_a_state() -> None:
    session, _ = await a_session()
    async with session:
        machine = session.machine
        for value in (session, machine, machine.state):
            assert 'class="state box lit" data-state="confirming"' in as_html(value)
        assert "waits for AskApproval" in as_html(session)
        assert "rests" in as_html(session.result())
        for value in (machine.memory, session.history, session.result()):
            assert "<svg" not in as_html(value)


def test_a_session_without_a_run_says_so() -> None:
    performers: Any = {CallModel: ScriptedModel()}
    assert "no run yet" in as_html(Agent(model="m", performers=performers).session("s"))


def test_a_long_history_shows_its_end() -> None:
    told = [user(f"message {n}") for n in range(203)]
    shown: str = as_html(History.of(*told))
    assert "(3 earlier ones)" in shown
    assert "message 202" in shown
    assert "message 2&quot;" not in shown
    assert "message 3&quot;" in shown
    assert "(1 earlier ones)" in as_html(History.of(*told[:201]))
    assert "earlier" not in as_html(History.of(*told[:200]))


def test_a_memory_shows_its_run_and_a_history_its_length() -> None:
    memory = Machine.start(Config(model=ModelSpec(name="m")), "go", run="mine").memory
    assert as_html(memory).startswith('<div class="tw-card"')
    assert "<b>Memory</b> <span>of run mine</span>" in as_html(memory)
    assert "<b>History of 1 message</b>" in as_html(History.of(user("go")))


def test_an_effect_is_its_line() -> None:
    said: Any = records.SetModel(model="<b>")
    assert "<b>SetModel</b>" in as_html(said)
    assert "&lt;b&gt;" in as_html(said)
    happened: Any = events.UserSent(at=1.0, id="a", text="go")
    assert "<b>UserSent</b> <span>&quot;go&quot;</span>" in as_html(happened)


def test_a_card_has_its_lines_folded_or_not_and_no_place_for_none() -> None:
    assert "<details><summary>more</summary>" in html_of(Card(title="a", lines=("b",), folded="more"))
    plain = html_of(Card(title="a", lines=("b",)))
    assert ("<details>" in plain, "<pre" in plain) == (False, True)
    assert "<pre" not in html_of(Card(title="a"))


def test_a_machine_by_hand_shows_its_memory_folded() -> None:
    machine = Machine.start(Config(model=ModelSpec(name="m")), "go", run="r")
    assert "<details><summary>memory</summary>" in as_html(machine)


def test_a_step_shows_what_happened_or_else_its_entry() -> None:
    opened = RunOpened(at=2.0, run="r", config=Config(model=ModelSpec(name="m")))
    entries = Posted(event=events.UserSent(at=1.0, id="a", text="go")), opened
    sent, begun = replayed([encode_entry(entry) for entry in entries], "s")
    assert "<b>Step 0</b> <span>UserSent &quot;go&quot;</span>" in as_html(sent)
    assert "<b>Step 1</b> <span>RunOpened</span>" in as_html(begun)
    assert "<details><summary>effects</summary>" in as_html(begun)
