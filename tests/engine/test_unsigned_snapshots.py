"""Where a run goes on that comes from outside, by an unsigned snapshot, and what it brings along."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from turnwheel.effects import errors
from turnwheel.effects.history import History
from turnwheel.effects.messages import Finish, Message, Role, StopReason, Text, ToolCall, user
from turnwheel.effects.notices import DoneReason
from turnwheel.engine.machine import Machine
from turnwheel.states.context import RECALL
from turnwheel.states.rules import model_messages
from turnwheel.states.state import Done
from turnwheel.testing.harness import MachineHarness, config
from turnwheel.testing.state_fixtures import PLACES, run_at


def restored(machine: Machine, data: dict[str, Any] | None = None) -> Machine:
    """*machine* from its snapshot, or from *data*, over its own history."""
    written = machine.snapshot() if data is None else json.dumps(data).encode()
    return Machine.restore(written, machine.config, machine.memory.history)


GOES_ON = {
    **dict.fromkeys(
        [place for place in PLACES if place.startswith(("executing", "confirming"))], "executing"
    ),
    "dispatching": "executing",
    "streaming.stopping": "done",
    "executing.stopping": "done",
    "dispatching.stopping": "done",
    "compacting.stopping": "done",
    "thinking.ending": "done",
    "done": "done",
    # No person refused these calls, but the batch was given up.
    "executing.stopping, steered": "thinking.start",
    "confirming.stopping": "thinking.start",
}
"""Where a run goes on that comes from outside; else it begins anew."""


@pytest.mark.parametrize("place", PLACES)
def test_a_run_from_outside_begins_again_or_judges_its_calls_and_stays_over_where_it_was(place: str) -> None:
    run = run_at(place)
    back = restored(run.machine)
    assert back.state.label == GOES_ON.get(place, "thinking.start")
    if isinstance(back.state, Done):
        over = DoneReason.INTERRUPTED if place.endswith("stopping") else DoneReason.END_TURN
        assert (back.state.reason, back.state.spent) == (over, run.machine.memory.spent)
    memory, kept = back.memory, run.machine.memory
    assert [mail.id for mail in memory.session.mail] == [mail.id for mail in kept.session.mail]
    assert memory.session.received == kept.session.received
    assert (memory.spent, memory.earlier, memory.history.length >= kept.history.length) == (
        kept.spent,
        kept.earlier,
        True,
    )


@pytest.mark.parametrize("there", [True, False])
def test_a_call_that_was_at_work_outside_may_have_run_also_where_its_tool_is_gone(*, there: bool) -> None:
    machine = run_at("executing, unsafe").machine
    settings = machine.config if there else attrs.evolve(machine.config, tools=())
    back = Machine.restore(machine.snapshot(), settings, machine.memory.history)
    back.advance()
    (result,) = back.memory.history[-1].results
    assert (result.outcome, result.content) == ("unknown", model_messages.LOST)


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (StopReason.END_TURN, DoneReason.END_TURN),
        (StopReason.STOP_SEQUENCE, DoneReason.STOP_SEQUENCE),
        (StopReason.REFUSAL, DoneReason.REFUSAL),
        (StopReason.MAX_TOKENS, DoneReason.MAX_TOKENS),
        (StopReason.INTERRUPTED, DoneReason.INTERRUPTED),
        (None, DoneReason.END_TURN),
    ],
)
def test_a_run_from_outside_is_over_as_its_last_answer_says(
    stop: StopReason | None, reason: DoneReason
) -> None:
    """And goes on where something waits that it has not read."""
    parts: tuple[Any, ...] = (Text(text="well"), *((Finish(reason=stop),) if stop else ()))
    history = History.of(user("go"), Message(role=Role.ASSISTANT, parts=parts))
    machine = Machine.start(config(), "more", run="r", history=history)
    data = json.loads(machine.snapshot())
    over = Machine.restore(json.dumps({**data, "mail": []}).encode(), config(), history)
    assert isinstance(over.state, Done)
    assert over.state.reason is reason
    assert Machine.restore(machine.snapshot(), config(), history).state.label == "thinking.start"


def test_a_run_from_outside_that_was_being_ended_by_a_limit_is_over() -> None:
    for stage in ("End", "Ending"):
        for reason, label in (("max_turns", "done"), ("error", "done"), ("end_turn", "thinking.start")):
            machine = Machine.start(config(), "go", run="r")
            data = json.loads(machine.snapshot())
            fields = {"request": "r-1"} if stage == "Ending" else {}
            data["state"]["stage"] = {"type": stage, "reason": reason, **fields}
            back = restored(machine, data)
            assert (back.state.label, getattr(back.state, "reason", label)) == (
                label,
                reason if label == "done" else label,
            )


def test_of_forged_mail_and_ids_no_more_is_taken_than_a_machine_has() -> None:
    run = MachineHarness()
    run.send("more")
    data = json.loads(run.machine.snapshot())
    (mail,) = data["mail"]
    data["mail"] = [mail, {**mail, "text": "other"}, {**mail, "id": "b"}]
    data["received"] = [str(number) for number in range(RECALL + 5)]
    session = restored(run.machine, data).memory.session
    assert [(each.id, each.text) for each in session.mail] == [(mail["id"], "other"), ("b", "more")]
    assert session.received == tuple([str(number) for number in range(5, RECALL + 5)])


def test_an_account_may_be_as_large_as_a_whole_number_is_exact() -> None:
    machine = MachineHarness().machine
    data = json.loads(machine.snapshot())
    for name in ("spent", "earlier"):
        most = restored(machine, {**data, name: {"seconds": 2**53, "unpriced": 2**53}}).memory
        assert getattr(most, name).unpriced == 2**53
        for wrong in ({"unpriced": 2**53 + 1}, {"unpriced": -1}, {"usage": {"input": 2**53 + 1}}):
            with pytest.raises(errors.JournalError, match="an account that cannot be"):
                restored(machine, {**data, name: wrong})


def test_a_history_with_a_call_that_has_no_result_is_refused_unless_it_is_the_last() -> None:
    wish = ToolCall(id="r-9", wire_id="w", name="look", arguments="{}")
    history = History.of(user("go"), Message(role=Role.ASSISTANT, parts=(wish,)), user("well"))
    data = json.loads(Machine.start(config(), "more", run="r").snapshot()) | {"length": 3}
    with pytest.raises(errors.JournalError, match=r"invalid history: .*r-9"):
        Machine.restore(json.dumps(data).encode(), config(), history)
