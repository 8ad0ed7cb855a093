"""What a session refuses before anything is written: children by themselves, and inputs that no run reads."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.errors import ConfigError, UnknownSession
from turnwheel.effects.events import (
    ControlReceived,
    Interrupted,
    ModelFinished,
    Post,
    UserSent,
    UserSteered,
)
from turnwheel.effects.hooks import Hook, HookSpec, OnError
from turnwheel.effects.messages import StopReason
from turnwheel.effects.records import SetModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.inputs import Input
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.session.refusals import check_models, check_not_child, check_reader, check_tools
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.testing.clocks import AutoClock

TASK = Input(id="i", text="do it")
CONFIG = Config(model=ModelSpec(name="one"), models=(ModelSpec(name="two"),))

SENT = UserSent(id="i", text="hi", at=0.0)
INPUTS: list[Post] = [
    SENT,
    UserSteered(id="i", text="hi", at=0.0),
    ControlReceived(id="i", change=SetModel(model="two"), at=0.0),
]


def environment_of(config: Config = CONFIG, **settings: Any) -> Environment:
    return Environment(config=config, performers={}, clock=AutoClock(), new_id=lambda: "id", **settings)


def child(agent: str = "child", **settings: Any) -> Environment:
    return environment_of(attrs.evolve(CONFIG, agent=agent), **settings)


def log_of(config: Config | None = None, *, over: bool = False) -> SessionLog:
    """The log of a session with a run under *config*, which may be *over*; without one nothing ever ran."""
    log = SessionLog(Journal("s", None))
    if config is not None:
        log.state.machine = machine = Machine.start(config, "go")
        machine.advance()
        if over:
            (asked,) = machine.state.open
            machine.advance(
                ModelFinished(at=1.0, request=asked, stop=StopReason.END_TURN, usage=Usage(output=1))
            )
            assert machine.done
    return log


@pytest.mark.parametrize(
    ("ran", "environment", "refused"),
    [
        (None, environment_of(), False),
        (None, environment_of(task=TASK), False),
        (None, child(task=TASK), False),
        # It was only named, to be looked at.
        (None, child(), True),
        ("", environment_of(), False),
        ("child", child(task=TASK), False),
        ("child", child(), True),
        ("child", environment_of(), True),
        ("child", child("another", task=TASK), True),
        # The name was taken: the runner of the child answers for that.
        ("", child(), False),
    ],
)
def test_a_child_is_run_by_its_parent_only(
    ran: str | None, environment: Environment, *, refused: bool
) -> None:
    log = log_of(None if ran is None else attrs.evolve(CONFIG, agent=ran))
    if not refused:
        check_not_child(log, environment)
        return
    with pytest.raises(ConfigError, match="session 's' is a child; resume its parent"):
        check_not_child(log, environment)


def test_a_copy_of_a_childs_session_is_no_child() -> None:
    log = log_of(attrs.evolve(CONFIG, agent="child"), over=True)
    log.state.copied = "original"
    check_not_child(log, environment_of())
    check_reader(log, environment_of(), SENT)


TOOLS = tuple([ToolSpec(name=name) for name in ("b", "a", "c")])
HOOKS = (
    HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, on_error=OnError.DENY),
    HookSpec(name="note", hook=Hook.PRE_TOOL_USE),
)
EQUIPPED = attrs.evolve(CONFIG, tools=TOOLS, hooks=HOOKS)


@pytest.mark.parametrize(
    ("here", "lacking"),
    [
        ({"tools": TOOLS, "hooks": HOOKS}, None),
        # A hook that has no say may be gone.
        ({"tools": (*TOOLS, ToolSpec(name="d")), "hooks": HOOKS[:1]}, None),
        ({"tools": TOOLS, "hooks": HOOKS[1:]}, "hooks that are not here: 'guard'"),
        ({"tools": TOOLS[2:], "hooks": HOOKS}, "tools that are not here: 'a', 'b'"),
        ({"tools": TOOLS[2:], "hooks": HOOKS, "retired": ("a",)}, "tools that are not here: 'b'"),
        ({"tools": TOOLS[2:], "retired": ("b", "a", "guard")}, None),
    ],
)
def test_a_run_goes_on_where_its_tools_and_guards_are_or_are_given_up(
    here: dict[str, Any], lacking: str | None
) -> None:
    retired = here.pop("retired", ())
    log, environment = log_of(EQUIPPED), environment_of(attrs.evolve(CONFIG, **here), retired=retired)
    assert log.state.machine is not None
    if lacking is None:
        check_tools(log, log.state.machine, environment)
        return
    way = r"; resume it where they are, or name them in Agent\(retired=...\)"
    with pytest.raises(ConfigError, match=f"^session 's' has {lacking}{way}"):
        check_tools(log, log.state.machine, environment)


def test_a_child_goes_on_with_the_tools_that_its_parent_grants_now() -> None:
    log = log_of(attrs.evolve(EQUIPPED, agent="child"))
    assert log.state.machine is not None
    check_tools(log, log.state.machine, child(task=TASK))


@pytest.mark.parametrize(
    ("chosen", "fallback", "asked"),
    [
        (None, "", {"one"}),
        (None, "two", {"one", "two"}),
        (None, "one", {"one"}),
        ("two", "", {"two"}),
        ("two", "one", {"one", "two"}),
        # It is not there any more.
        ("gone", "", {"one"}),
    ],
)
def test_a_run_asks_the_model_of_its_session_and_the_fallback(
    chosen: str | None, fallback: str, asked: set[str]
) -> None:
    log = log_of()
    if chosen is not None:
        other = attrs.evolve(CONFIG, model=ModelSpec(name=chosen), models=())
        log.state.machine = Machine.start(other, "go")
    ready = list[set[str]]()
    config = attrs.evolve(CONFIG, fallback=fallback)
    check_models(log, environment_of(config, ready=lambda *names: ready.append({*names})))
    assert ready == [asked]


@pytest.mark.parametrize("event", INPUTS)
def test_an_input_to_a_child_that_never_began_has_no_session(event: Post) -> None:
    log = log_of()
    check_reader(log, environment_of(), event)
    check_reader(log, child(task=TASK), event)
    with pytest.raises(UnknownSession):
        check_reader(log, child(), event)


@pytest.mark.parametrize("event", INPUTS)
def test_an_input_to_a_child_that_has_ended_is_for_its_parent(event: Post) -> None:
    config = attrs.evolve(CONFIG, agent="child")
    check_reader(log_of(config), child(), event)
    check_reader(log_of(CONFIG, over=True), environment_of(), event)
    with pytest.raises(ConfigError, match="child session 's' has ended; speak to its parent"):
        check_reader(log_of(config, over=True), child(), event)


def test_what_only_stops_a_run_is_never_refused_here() -> None:
    stop = Interrupted(at=0.0)
    check_reader(log_of(), child(), stop)
    check_reader(log_of(attrs.evolve(CONFIG, agent="child"), over=True), child(), stop)
