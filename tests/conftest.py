"""What holds for every test, and values of all words, for tests that draw theirs."""

from __future__ import annotations

import os
import signal
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings, strategies as st
from support.garbage import collect_garbage
from support.postgres import open_postgres, postgres_server

from turnwheel.effects.config import (
    ChildSpec,
    Compaction,
    Config,
    Limits,
    Loops,
    ModelSpec,
    Policy,
    Price,
    Retries,
    ToolSpec,
)
from turnwheel.effects.events import Approve
from turnwheel.effects.history import CallPiece, Rope, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec, OnError
from turnwheel.effects.messages import Binary
from turnwheel.effects.notices import AgentNoticed, OutputDelta, TextDelta
from turnwheel.effects.output import OutputMode, OutputSpec
from turnwheel.effects.permissions import PermissionMode, Rule, Verdict
from turnwheel.effects.records import GrantRule, SetMode
from turnwheel.effects.usage import Usage
from turnwheel.states.context import Memory, RunProgress, SessionMemory

__all__ = ["collect_garbage", "open_postgres", "postgres_server"]

TESTS = Path(__file__).parent

IN_ONE_PROCESS = ("house", "real")
"""Folders whose tests share what is costly: the parsed sources, and the servers of others."""

# Processes that a test starts find the provers where this one does.
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])

# A shell has what it starts in the background ignore Ctrl-C, and programs inherit that, also those of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test is judged by the clock, since the machine may be slow or busy. Each run draws the same
# examples, so that one passes where another did. `--hypothesis-profile=explore` draws others each time.
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("turnwheel", settings.get_profile("explore"), derandomize=True)
settings.load_profile("turnwheel")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one process run the tests of each folder in `IN_ONE_PROCESS`."""
    for item in items:
        for folder in IN_ONE_PROCESS:
            if item.path.is_relative_to(TESTS / folder):
                item.add_marker(pytest.mark.xdist_group(folder))


def pytest_runtest_teardown() -> None:
    # Even `capture_logs` leaves structlog configured, and the next test would print what we log.
    structlog.reset_defaults()


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
money = st.decimals(min_value=0, max_value=100, places=4)
globs = st.lists(st.tuples(text, text), max_size=2).map(tuple)
rules = st.builds(Rule, verdict=st.sampled_from(Verdict), tool=text.filter(str.strip), where=globs)
grants = st.builds(GrantRule, rule=rules, outvotes=st.lists(rules, max_size=2).map(tuple))
hooks = st.builds(
    HookSpec,
    name=text.filter(str.strip),
    hook=st.sampled_from(Hook),
    where=globs,
    timeout=st.none() | st.just(2.5),
    on_error=st.sampled_from(OnError),
)
arguments = text | st.dictionaries(text, text, max_size=2)
policies = st.builds(
    Policy,
    on_denial=...,
    on_max_tokens=...,
    concurrency=...,
    max_parallel=st.integers(1, 9),
    gates=...,
    steering=...,
    mode=...,
    answer_within=st.none() | st.just(0.5),
    continues=st.integers(0, 9),
    pauses=st.integers(0, 9),
    coalesce=st.sampled_from([0.0, 2.5]),
    coalesce_longest=st.sampled_from([0.0, 9.5]),
    takeovers=st.integers(0, 9),
    compact_at=st.sampled_from([0.5, 0.8, 1.0]),
)
children = st.builds(
    ChildSpec,
    name=text.filter(str.strip),
    system=text,
    tools=st.none() | st.just(("a",)),
    limits=st.builds(Limits, turns=st.none()),
)
configs = st.builds(
    Config,
    model=st.builds(
        ModelSpec, name=text.filter(str.strip), price=st.builds(Price, input=money, output=money)
    ),
    children=st.lists(children, max_size=2, unique_by=lambda child: child.name).map(tuple),
    retries=st.builds(Retries, failed=st.integers(0, 9), longest=st.none() | st.just(9.5)),
    compaction=st.builds(Compaction, clear_over=st.none() | st.just(9), result_limit=st.none() | st.just(99)),
    loops=st.just(Loops.never()) | st.builds(Loops, warn=st.integers(1, 9)),
    system=text,
    tools=st.lists(st.sampled_from([ToolSpec(name="a"), ToolSpec(name="b", timeout=None)]), unique=True).map(
        tuple
    ),
    limits=st.builds(Limits, turns=st.none() | st.integers(1, 9), usd=st.none() | money.filter(bool)),
    rules=st.lists(rules, max_size=2).map(tuple),
    hooks=st.lists(hooks, max_size=2, unique_by=lambda hook: hook.name).map(tuple),
    policy=policies,
    instructions=st.lists(text, max_size=2).map(tuple),
)
ropes = st.builds(
    Rope.of,
    st.lists(
        st.builds(TextPiece, text, st.booleans()) | st.builds(CallPiece, st.integers(0, 3), text, text, text)
    ),
    st.integers(0, 9),
)

# What the annotations alone cannot say: how to make values that their own rules accept.
MADE: dict[type, st.SearchStrategy[Any]] = {
    str: text,
    float: numbers,
    Decimal: money,
    Rope: ropes,
    Usage: st.builds(Usage, input=st.integers(0, 9), cached=st.integers(0, 9), estimated=st.integers(0, 9)),
    Config: configs,
    Rule: rules,
    HookSpec: hooks,
    Binary: st.builds(Binary, media_type=text, data=st.binary(), name=text),
    OutputSpec: st.builds(
        OutputSpec,
        schema=st.sampled_from(["{}", '{"type": "object"}']),
        name=st.sampled_from(["output", "person"]),
        description=text,
        modes=st.lists(st.tuples(text, st.sampled_from(OutputMode)), max_size=2),
        wrapped=st.booleans(),
    ),
    Approve: st.builds(Approve, arguments=arguments),
    HookAnswer: st.builds(
        HookAnswer,
        verdict=st.none() | st.sampled_from(Verdict),
        reason=text,
        arguments=arguments,
        context=text,
        go_on=...,
    ),
    Memory: st.builds(
        Memory,
        run=text,
        next_id=st.integers(1, 99),
        session=st.builds(
            SessionMemory,
            model=text,
            mode=st.sampled_from(PermissionMode),
            chosen=st.lists(text, max_size=2).map(tuple),
            granted=st.lists(grants, max_size=2).map(tuple),
            received=st.lists(text, max_size=2).map(tuple),
        ),
        progress=st.builds(RunProgress, compactions=st.integers(0, 9), fallback=text),
    ),
    SetMode: st.builds(SetMode, mode=st.sampled_from(PermissionMode)),
    Limits: st.builds(Limits, turns=st.none() | st.integers(1, 9)),
    OutputDelta: st.builds(
        OutputDelta, st.dictionaries(text, st.lists(st.none() | numbers | text), max_size=3), at=numbers
    ),
    AgentNoticed: st.builds(
        AgentNoticed, at=numbers, call=text, notice=st.builds(TextDelta, text, at=numbers)
    ),
}
for made, strategy in MADE.items():
    st.register_type_strategy(made, strategy)
