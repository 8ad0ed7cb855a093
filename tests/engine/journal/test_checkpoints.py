"""A checkpoint is what the fold of its journal leads to, wherever it was made; any other is passed over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel.effects import Effect
from turnwheel.effects.errors import JournalError
from turnwheel.effects.history import DeferredItems, History, Log
from turnwheel.effects.messages import Message, user
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.checkpoints import (
    APART,
    DIGEST,
    CheckpointChain,
    Restored,
    checkpoint,
    digest,
    restored,
)
from turnwheel.engine.journal.entries import VERSION
from turnwheel.engine.journal.fold import FullResults, SessionState, branch_targets, initial_state, read
from turnwheel.testing.harness import config

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
JOURNALS = sorted(GOLDEN.glob("v*/*.jsonl"))

Step = tuple[SessionState, tuple[Effect, ...]]


def copied(state: SessionState) -> SessionState:
    """*state* as it is now, without the ends that branches go back to."""
    machine, results = state.machine, state.full_results
    then = attrs.evolve(
        state,
        machine=machine and Machine(machine.config, machine.state, machine.memory),
        posted=[*state.posted],
        full_results=attrs.evolve(results, places={**results.places}, ended={**results.ended}),
    )
    then.drop_ends()
    return then


def steps(entries: Sequence[bytes], state: SessionState, known: int = 0) -> list[Step]:
    return [(copied(state), effects) for _, effects in read(entries, "s", state, known)]


def got(bodies: Sequence[bytes], most: int | None = None) -> Restored:
    found = restored(bodies, most)
    assert found is not None
    return found


@pytest.mark.parametrize("path", JOURNALS, ids=[f"{path.parent.name}/{path.stem}" for path in JOURNALS])
def test_from_a_checkpoint_at_any_entry_a_journal_leads_where_it_leads(path: Path) -> None:
    """Each goes on from the one half-way to it; the rest has the same effects, too."""
    entries = path.read_bytes().splitlines()
    told = steps(entries, initial_state(entries))
    made: list[tuple[list[bytes], CheckpointChain | None]] = [([], None)]
    for number, (state, _) in enumerate(told, 1):
        bodies, before = made[number // 2]
        body, chain = checkpoint(state, number, entries[number - 1], before)
        bodies = [*(bodies if chain.first < number else []), body]
        made.append((bodies, chain))
        found = got(bodies)
        assert found.state == state
        assert found.position == number
        assert found.behind(entries[number - 1 :]) == entries[number:]
        rest = entries[number:]
        if number % 10 == 3 and rest and not branch_targets(rest):
            assert steps(rest, found.state, number) == told[number:]
            # The next one goes on from what was restored as from what was not.
            end, _ = told[-1]
            body, chain = checkpoint(found.state, len(entries), entries[-1], found.chain)
            assert got([*bodies, body] if chain.first < len(entries) else [body]).state == end


# All that a state has

FIELDS = (
    *("machine", "posted", "interrupts", "keeps", "ends", "runs", "messages", "summary", "opening", "prompt"),
    *("title", "title_spent", "unbilled", "copied", "origins", "copied_spent", "unbegun", "begun", "tries"),
    *("full_results", "trace"),
)
"""Those of a state in checkpoints of the present version."""


def test_a_checkpoint_has_all_of_a_state() -> None:
    """
    A field that is added is in it without a word, save in what is written by hand, and raises the version.

    An older checkpoint lacks it, and would be read as if the journal had led to its default.
    """
    assert {*APART} == {"machine", "interrupts", "keeps", "ends", "full_results"}
    assert tuple([field.name for field in attrs.fields(SessionState)]) == FIELDS
    assert [field.name for field in attrs.fields(FullResults)] == ["most", "places", "ended", "held"]
    # `test_snapshots` holds the memory to it; the settings and the state of a machine are written whole.
    assert Machine.__slots__ == ("config", "memory", "state")


def at_work(machine: Machine) -> SessionState:
    state = initial_state([])
    state.machine = machine
    return state


def test_a_checkpoint_goes_on_from_another_where_that_is_a_beginning_of_it() -> None:
    """Also where no message is new; not where there are fewer, or others, or where it is no later."""
    history = History.of(user("a"), user("b"))
    machine = Machine.start(config(), "go", run="r", history=history)
    _, first = checkpoint(at_work(machine), 1, b"1")
    assert (first.first, first.last, first.messages) == (1, 1, 2)
    _, same = checkpoint(at_work(machine), 2, b"2", first)
    assert (same.first, same.last, same.messages) == (1, 2, 2)
    longer = Machine.start(config(), "go", run="r", history=history.append(user("c")))
    _, more = checkpoint(at_work(longer), 3, b"3", same)
    assert (more.first, more.last, more.messages) == (1, 3, 3)
    for state, position in (
        (at_work(machine), 4),
        (at_work(Machine.start(config(), "go", run="r", history=History.of(*history))), 4),
        (at_work(Machine.start(config(), "go", run="r", history=History.of(*longer.memory.history))), 4),
        (at_work(longer), 3),
        (at_work(longer), 2),
    ):
        _, anew = checkpoint(state, position, b"4", more)
        assert (anew.first, anew.last) == (position, position)


def head_of(body: bytes) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(body[DIGEST:].splitlines()[0])
    return head


def test_a_checkpoint_has_settings_only_where_they_are_others_than_before() -> None:
    machine = Machine.start(config(), "go", run="r")
    first, chain = checkpoint(at_work(machine), 1, b"1")
    same, chain = checkpoint(at_work(machine), 2, b"2", chain)
    assert (head_of(first)["config"] is None, head_of(same)["config"] is None) == (False, True)
    # Also by a process that was not there when the one before was written.
    found = got([first])
    assert head_of(checkpoint(found.state, 2, b"2", found.chain)[0])["config"] is None
    machine.reconfigure(config(system="Be brief."))
    other, _ = checkpoint(at_work(machine), 3, b"3", chain)
    assert head_of(other)["config"]["system"] == "Be brief."
    for bodies, system in (([first, same], config().system), ([first, same, other], "Be brief.")):
        restored_machine = got(bodies).state.machine
        assert restored_machine is not None
        assert restored_machine.config.system == system


def headed(body: bytes, **more: object) -> bytes:
    """*body*, which has no messages, with a head that says *more*."""
    head = json.dumps({**head_of(body), **more}).encode()
    return digest(head) + head


@pytest.mark.parametrize("after", [1, 2])
def test_a_checkpoint_goes_on_from_an_earlier_one_only(after: int) -> None:
    """Else a journal that was tampered with would be read without end."""
    first, chain = checkpoint(at_work(STARTED), 1, b"1")
    second, _ = checkpoint(at_work(STARTED), 2, b"2", chain)
    assert got([first, second]).position == 2
    bodies = [headed(first, after=after), second]
    with pytest.raises(JournalError, match=f"a checkpoint at 1 goes on from one at {after}, which is not"):
        restored(bodies)


def test_messages_are_written_a_hundred_to_a_line() -> None:
    history = History.of(*[user(f"{number}") for number in range(250)])
    body, _ = checkpoint(at_work(Machine.start(config(), "go", run="r", history=history)), 1, b"1")
    assert head_of(body)["counts"] == [100, 100, 50]
    assert len(body[DIGEST:].splitlines()) == 4


def with_places(**places: int | str) -> SessionState:
    state = at_work(STARTED)
    state.full_results.places = dict(places)
    return state


STARTED = Machine.start(config(), "go", run="r")


@pytest.mark.parametrize(
    ("now", "goes_on"),
    [
        ({"a": "text", "b": 2}, True),
        ({"a": "text", "b": 2, "c": 3}, True),
        ({"a": "text"}, False),
        ({"b": 2}, False),
        ({"b": 2, "c": 3}, False),
        ({}, False),
    ],
)
def test_a_checkpoint_goes_on_from_another_where_no_full_result_was_dropped(
    now: dict[str, int | str], *, goes_on: bool
) -> None:
    first, chain = checkpoint(with_places(a="text", b=2), 1, b"1")
    second, after = checkpoint(with_places(**now), 2, b"2", chain)
    assert after.first == (1 if goes_on else 2)
    assert got([first, second]).state.full_results.places == now
    _, chain = checkpoint(with_places(), 1, b"1")
    assert checkpoint(with_places(**now), 2, b"2", chain)[1].first == 1


def test_entries_of_another_journal_do_not_follow_from_a_checkpoint() -> None:
    body, _ = checkpoint(initial_state([]), 1, b"1")
    found = got([body])
    assert found.behind([b"1", b"2", b"3"]) == [b"2", b"3"]
    for other in ([], [b"2"], [b"2", b"1"]):
        with pytest.raises(JournalError, match="a checkpoint at 1 does not go with the journal"):
            found.behind(other)


def test_the_latest_checkpoint_that_is_early_enough_is_taken_and_needs_those_before_it() -> None:
    state = at_work(Machine.start(config(), "go", run="r"))
    first, chain = checkpoint(state, 1, b"1")
    second, _ = checkpoint(state, 3, b"3", chain)
    for most, position in ((None, 3), (3, 3), (2, 1), (1, 1)):
        assert got([first, second], most).position == position
    assert restored([first, second], 0) is None
    assert restored([]) is None
    with pytest.raises(JournalError, match="a checkpoint at 3 goes on from one at 1, which is not there"):
        restored([second])
    with pytest.raises(JournalError, match="a checkpoint is damaged"):
        restored([first[:-1]])


def test_a_checkpoint_goes_with_the_messages_of_those_before_it() -> None:
    """With no others, which stand at the same place of another session."""
    history = History.of(user("a"))
    machine = Machine.start(config(), "go", run="r", history=history)
    first, chain = checkpoint(at_work(machine), 1, b"1")
    second, _ = checkpoint(at_work(machine), 2, b"2", chain)
    assert got([first, second]).state.machine == machine
    longer = Machine.start(config(), "go", run="r", history=history.append(user("b")))
    for other in (longer, Machine.start(config(), "go", run="r")):
        body, _ = checkpoint(at_work(other), 1, b"1")
        with pytest.raises(JournalError, match=r"a checkpoint has [02] messages of 1$"):
            restored([body, second])


@pytest.mark.parametrize(
    "more",
    [{"counts": [1]}, {"state": {"nothing": 1}}, {"machine": {"version": 1}}, {"config": 7}, {"head": 1}],
    ids=lambda more: next(iter(more)),
)
def test_a_checkpoint_that_is_none_is_refused_though_it_is_whole(more: dict[str, object]) -> None:
    body, _ = checkpoint(at_work(Machine.start(config(), "go", run="r")), 1, b"1")
    with pytest.raises(JournalError, match=r"^a checkpoint cannot be read"):
        restored([headed(body, **more)])
    assert head_of(body)["version"] == VERSION
    assert body[:16] == digest(body[16:])
    with pytest.raises(JournalError, match=r"^a checkpoint has version 2, known here is 1"):
        restored([headed(body, version=VERSION + 1)])


# What is read, and when


def test_only_the_part_of_a_history_is_read_that_is_looked_at() -> None:
    """Of three parts; appending to a history, and its length, look at none."""
    read: list[int] = []

    def part(begin: int) -> list[Message]:
        read.append(begin)
        return [user(f"{number}") for number in range(begin, begin + 10)]

    items = DeferredItems([(10, partial(part, begin)) for begin in (0, 10, 20)])
    history = History(Log(items), 30)
    longer = history.append(user("30"))
    assert (len(longer), longer[-1].text, longer.log is history.log, read) == (31, "30", True, [])
    assert (history[-1].text, history[20].text, read) == ("29", "20", [20])
    assert [message.text for message in longer.slice(8, 12)] == ["8", "9", "10", "11"]
    assert read == [20, 0, 10]
    assert [message.text for message in longer] == [f"{number}" for number in range(31)]
    assert read == [20, 0, 10]


def test_a_history_that_goes_another_way_reads_no_more_than_the_part_in_which_it_does() -> None:
    read: list[int] = []

    def part(begin: int) -> list[Message]:
        read.append(begin)
        return [user(f"{number}") for number in range(begin, begin + 10)]

    log = Log[Message](DeferredItems([(10, partial(part, begin)) for begin in (0, 10, 20)]))
    History(log, 30).append(user("30"))
    at_a_bound = History(log, 20).append(user("other"))
    assert (at_a_bound[-1].text, read) == ("other", [])
    within = History(log, 15).append(user("other"))
    assert (within[-1].text, within[14].text, read) == ("other", "14", [10])
    assert [message.text for message in within] == [*map(str, range(15)), "other"]
    assert [message.text for message in at_a_bound] == [*map(str, range(20)), "other"]
    assert [message.text for message in History(log, 31)] == [*map(str, range(31))]


def test_a_part_that_cannot_be_read_is_no_empty_one() -> None:
    """Also when it is looked at again."""

    def part() -> list[Message]:
        raise JournalError

    history = History(Log(DeferredItems([(2, part)])), 2)
    for _ in range(2):
        with pytest.raises(JournalError):
            history.slice(1, 2)


def test_a_history_that_goes_another_way_reads_what_it_shares() -> None:
    """Two successors of one history never see each other, also where its beginning is not read yet."""
    items = DeferredItems([(2, lambda: [user("a"), user("b")])])
    history = History(Log(items), 2)
    one, other = history.append(user("one")), history.append(user("other"))
    assert [message.text for message in one] == ["a", "b", "one"]
    assert [message.text for message in other] == ["a", "b", "other"]
    assert [message.text for message in history.replace((user("sum"),), 1)] == ["sum", "b"]
