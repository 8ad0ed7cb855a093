"""Which calls of one answer run side by side: by what they read, and by what they say they work on."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.config import (
    Approval,
    Concurrency,
    Policy,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from turnwheel.effects.events import Approve, Deny
from turnwheel.effects.pieces import CallPiece
from turnwheel.effects.requests import AskApproval, RunAgent, RunTool
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


def bank(concurrency: Concurrency = Concurrency.PARALLEL, max_parallel: int = 5) -> MachineHarness:
    """A run with tools that say what they work on."""
    return MachineHarness(
        config(tools=TOOLS, policy=Policy(concurrency=concurrency, max_parallel=max_parallel))
    )


def wish(index: int, text: str) -> CallPiece:
    """A call, as these tests write it: the tool, and then its arguments as in ``id=1``."""
    tool, *pairs = text.split()
    arguments = dict(pair.split("=", 1) for pair in pairs)
    return call(index, tool, **{"agent": "kid", "prompt": "go", **arguments})


def started(run: MachineHarness) -> list[str]:
    """What the last event started, in order: tools by their id argument or their name, children by theirs."""
    return [
        json.loads(request.arguments).get("id", request.tool)
        if isinstance(request, RunTool)
        else request.agent
        for request in run.effects
        if isinstance(request, RunTool | RunAgent)
    ]


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


@pytest.mark.parametrize("pair", SIDE_BY_SIDE)
def test_calls_that_have_nothing_in_common_run_side_by_side(pair: tuple[str, str]) -> None:
    """Both only read, or they work on different things and say so."""
    run = bank()
    run.say(*[wish(number, text) for number, text in enumerate(pair)])
    assert len(started(run)) == 2


@pytest.mark.parametrize("pair", ONE_AFTER_THE_OTHER)
def test_calls_that_may_disturb_each_other_run_one_after_the_other(pair: tuple[str, str]) -> None:
    """One key in common is enough, and a call that does not say what it works on may work on anything."""
    run = bank()
    run.say(*[wish(number, text) for number, text in enumerate(pair)])
    assert len(started(run)) == 1


@pytest.mark.parametrize(("concurrency", "together"), [("serial", 1), ("parallel_reads", 1), ("parallel", 2)])
def test_resources_count_where_the_policy_says_so(concurrency: str, together: int) -> None:
    """Otherwise what they declare lets no two writes run at once."""
    run = bank(Concurrency(concurrency))
    run.say(wish(0, "deposit id=1"), wish(1, "deposit id=2"))
    assert len(started(run)) == together


@pytest.mark.parametrize(("concurrency", "together"), [("serial", 1), ("parallel_reads", 2), ("parallel", 2)])
def test_reads_run_together_but_in_a_serial_batch(concurrency: str, together: int) -> None:
    """Whatever they declare."""
    run = bank(Concurrency(concurrency))
    run.say(wish(0, "balance id=1"), wish(1, "balance id=1"))
    assert len(started(run)) == together


# More of them


def test_a_call_waits_for_all_before_it_that_it_may_disturb() -> None:
    """Those that wait themselves, too: two calls on one account are in the order of the model."""
    run = bank()
    run.say(
        *[
            wish(number, text)
            for number, text in enumerate(["deposit id=1", "deposit id=1", "transfer id=1 to=2"])
        ]
    )
    assert started(run) == ["1"]
    run.end("deposit")
    assert started(run) == ["1"]
    run.end("deposit")
    assert [request.tool for request in run.got(RunTool)] == ["transfer"]


def test_a_call_does_not_wait_behind_one_that_waits_for_something_else() -> None:
    """The second waits for the first; the third has to do with neither."""
    run = bank()
    run.say(wish(0, "deposit id=1"), wish(1, "deposit id=1"), wish(2, "deposit id=2"))
    assert started(run) == ["1", "2"]


def test_what_may_touch_anything_waits_for_all_and_all_wait_for_it() -> None:
    """It is a wall: before it the calls before it, behind it the calls behind it."""
    run = bank()
    run.say(wish(0, "deposit id=1"), wish(1, "deposit id=2"), wish(2, "shell"), wish(3, "deposit id=3"))
    assert started(run) == ["1", "2"]
    run.end("deposit")
    assert started(run) == []
    run.end("deposit")
    assert started(run) == ["shell"]
    run.end("shell")
    assert started(run) == ["3"]


def test_a_call_that_cannot_run_holds_nobody_up() -> None:
    """It is settled on the spot."""
    run = bank()
    run.say(CallPiece(0, "w", "shell", "{"), wish(1, "deposit id=1"))
    assert started(run) == ["1"]


@pytest.mark.parametrize("room", [1, 2, 3])
def test_no_more_are_at_work_than_there_is_room_for(room: int) -> None:
    """The next one starts when one of them is over."""
    run = bank(max_parallel=room)
    run.say(*[wish(number, f"deposit id={number}") for number in range(4)])
    assert started(run) == [str(number) for number in range(room)]
    run.end("deposit")
    assert started(run) == [str(room)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_results_are_in_call_order_whatever_ends_first(order: tuple[int, ...]) -> None:
    """The model reads them in the order of its calls."""
    run = bank()
    names = ["deposit", "audit", "ping"]
    run.say(*[wish(number, f"{name} id={number}") for number, name in enumerate(names)])
    for number in order:
        run.end(names[number], f"result {number}")
    assert [content for _, _, content in run.results] == ["result 0", "result 1", "result 2"]


# With people and children


def test_questions_about_all_are_asked_ahead() -> None:
    """A person may answer them in one go; each call starts when it may and nothing is in its way."""
    run = bank()
    run.say(wish(0, "pay id=1"), wish(1, "pay id=1"), wish(2, "pay id=2"))
    assert len(run.got(AskApproval)) == 3
    run.decide("pay", Approve())
    assert started(run) == ["1"]
    run.decide("pay", Approve())
    assert started(run) == []
    run.decide("pay", Approve())
    assert started(run) == ["2"]
    run.end("pay")
    assert started(run) == ["1"]


def test_a_call_that_was_denied_is_out_of_the_way() -> None:
    """What waited for it goes on, as far as the policy lets it."""
    run = MachineHarness(config(tools=TOOLS, policy=Policy(concurrency="parallel", on_denial="go_on")))
    run.say(wish(0, "pay id=1"), wish(1, "deposit id=1"))
    assert started(run) == []
    run.decide("pay", Deny())
    assert started(run) == ["1"]


def test_what_a_person_edited_is_what_counts() -> None:
    """The call works on another account now, on which one is at work already."""
    run = bank()
    run.say(wish(0, "deposit id=1"), wish(1, "pay id=2"))
    run.decide("pay", Approve(arguments='{"id": "1"}'))
    assert started(run) == []
    run.end("deposit")
    assert started(run) == ["1"]


@pytest.mark.parametrize(("account", "at_once"), [("2", True), ("3", False)])
def test_what_is_at_work_behind_it_counts_too(account: str, *, at_once: bool) -> None:
    """A call that was led to where a later one is at work waits for that one."""
    run = bank()
    run.say(wish(0, "deposit id=1"), wish(1, "pay id=2"), wish(2, "deposit id=3"))
    assert started(run) == ["1", "3"]
    run.decide("pay", Approve(arguments=f'{{"id": "{account}"}}'))
    assert started(run) == (["2"] if at_once else [])
    run.end("deposit")
    assert started(run) == []
    run.end("deposit")
    assert started(run) == ([] if at_once else ["3"])


def test_children_that_say_what_they_work_on_work_at_once() -> None:
    """Each has its own result, and the run waits for both."""
    run = bank()
    run.say(wish(0, "send agent=kid"), wish(1, "send agent=heir"))
    assert started(run) == ["kid", "heir"]
    run.report("send", "one")
    assert run.label == "dispatching"
    run.report("send", "two")
    assert [content for _, _, content in run.results] == ["one", "two"]


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
    """The declared ones with the arguments filled in; one that is missing could have been anything."""
    spec = ToolSpec(name="tool", resources=resources)
    assert resource_use(spec, arguments) == ResourceUse(reads=False, keys=keys)


def test_a_tool_that_is_gone_may_have_touched_anything() -> None:
    """Nobody knows any more what it is."""
    assert resource_use(None, {"id": "1"}) == ResourceUse()
    assert not ResourceUse().apart_from(ResourceUse(reads=True, keys=frozenset()))


reaches = st.builds(
    ResourceUse, st.booleans(), st.none() | st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=3)
)


@given(reaches, reaches)
def test_to_disturb_is_mutual(one: ResourceUse, other: ResourceUse) -> None:
    """If the one may run beside the other, the other may beside the one."""
    assert one.apart_from(other) == other.apart_from(one)
