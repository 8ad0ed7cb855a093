"""Which calls of one answer run side by side: by what they read, and by what they say they work on."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from turnwheel.effects.config import Approval, Policy, SideEffect, ToolKind, ToolSpec
from turnwheel.effects.history import CallPiece
from turnwheel.effects.requests import RunAgent, RunTool
from turnwheel.states.batch.start import ResourceUse, resource_use
from turnwheel.testing.harness import MachineHarness, call, config

FREE = Approval.NEVER
TOOLS = (
    ToolSpec(name="read", side_effect=SideEffect.READ_ONLY),
    ToolSpec(name="balance", side_effect=SideEffect.READ_ONLY, resources=("account:{id}",)),
    ToolSpec(name="deposit", approval=FREE, resources=("account:{id}",)),
    ToolSpec(name="transfer", approval=FREE, resources=("account:{id}", "account:{to}")),
    ToolSpec(name="audit", approval=FREE, resources=("ledger",)),
    ToolSpec(name="ping", approval=FREE, resources=()),
    ToolSpec(name="shell", approval=FREE),
    ToolSpec(name="pay", resources=("account:{id}",)),
    ToolSpec(name="send", kind=ToolKind.AGENT, approval=FREE, resources=("desk:{agent}",)),
    ToolSpec(name="hand", kind=ToolKind.AGENT, approval=FREE),
)


def wish(index: int, text: str) -> CallPiece:
    """A call, as these tests write it: the tool, and then its arguments as in ``id=1``."""
    tool, *pairs = text.split()
    arguments = dict(pair.split("=", 1) for pair in pairs)
    return call(index, tool, **{"agent": "kid", "prompt": "go", **arguments})


# Two calls

SIDE_BY_SIDE = [
    ("read", "read"),
    ("read", "balance id=1"),
    ("balance id=1", "balance id=1"),
    ("balance id=1", "deposit id=2"),
    ("deposit id=1", "balance id=2"),
    ("deposit id=1", "deposit id=2"),
    ("deposit id=1", "audit"),
    ("transfer id=1 to=2", "deposit id=3"),
    ("ping", "deposit id=1"),
    ("ping", "ping"),
    ("send agent=kid", "send agent=heir"),
    ("send agent=kid", "deposit id=1"),
    ("deposit id=a/b", "deposit id=a/c"),
]
ONE_AFTER_THE_OTHER = [
    ("deposit id=1", "deposit id=1"),
    ("deposit id=1", "balance id=1"),
    ("balance id=1", "deposit id=1"),
    ("transfer id=1 to=2", "deposit id=2"),
    ("deposit id=2", "transfer id=1 to=2"),
    ("transfer id=1 to=2", "transfer id=2 to=1"),
    ("deposit", "deposit id=1"),
    ("deposit id=1", "deposit"),
    ("shell", "ping"),
    ("ping", "shell"),
    ("read", "deposit id=1"),
    ("deposit id=1", "read"),
    ("send agent=kid", "send agent=kid"),
    ("send agent=kid", "hand agent=heir"),
    ("hand agent=kid", "read"),
    ("deposit id=a/b", "deposit id=a//b"),
    ("deposit id=a/b", "deposit id=a/c/../b"),
]


@pytest.mark.parametrize(
    ("pair", "concurrency", "together"),
    [
        *[(pair, "parallel", 2) for pair in SIDE_BY_SIDE],
        *[(pair, "parallel", 1) for pair in ONE_AFTER_THE_OTHER],
        *[(pair, "serial", 1) for pair in SIDE_BY_SIDE[:4]],
        (("deposit id=1", "deposit id=2"), "parallel_reads", 1),
        (("balance id=1", "balance id=1"), "parallel_reads", 2),
    ],
)
def test_calls_run_side_by_side_where_they_cannot_disturb_each_other(
    pair: tuple[str, str], concurrency: str, together: int
) -> None:
    run = MachineHarness(config(tools=TOOLS, policy=Policy(concurrency=concurrency)))
    run.say(*[wish(number, text) for number, text in enumerate(pair)])
    assert len(run.got(RunTool)) + len(run.got(RunAgent)) == together


# The rule by itself


@pytest.mark.parametrize(
    ("resources", "arguments", "keys"),
    [
        (None, {"id": "1"}, None),
        ((), {}, frozenset[str]()),
        (("all",), {}, frozenset({"all"})),
        (("a:{id}",), {"id": "1"}, frozenset({"a:1"})),
        (("a:{id}",), {"id": 1}, frozenset({"a:1"})),
        (("a:{id}",), {"id": True}, frozenset({"a:true"})),
        (("a:{id}",), {"id": {"b": 1, "a": 2}}, frozenset({'a:{"a": 2, "b": 1}'})),
        (("a:{id}",), {"id": "src/../x"}, frozenset({"a:x"})),
        (("{x}:{y}", "b"), {"x": "1", "y": "2"}, frozenset({"1:2", "b"})),
        (("a:{id}", "b"), {}, None),
        (("a:{id}",), None, None),
        (("{{id}}",), {"id": "1"}, frozenset({"{1}"})),
    ],
)
def test_the_keys_of_a_call(
    resources: tuple[str, ...] | None, arguments: dict[str, object] | None, keys: frozenset[str] | None
) -> None:
    spec = ToolSpec(name="tool", resources=resources)
    assert resource_use(spec, arguments) == ResourceUse(reads=False, keys=keys)


def test_a_tool_that_is_gone_may_have_touched_anything() -> None:
    assert resource_use(None, {"id": "1"}) == ResourceUse()
    assert not ResourceUse().apart_from(ResourceUse(reads=True, keys=frozenset()))


reaches = st.builds(
    ResourceUse, st.booleans(), st.none() | st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=3)
)


@given(reaches, reaches)
def test_to_disturb_is_mutual(one: ResourceUse, other: ResourceUse) -> None:
    assert one.apart_from(other) == other.apart_from(one)
