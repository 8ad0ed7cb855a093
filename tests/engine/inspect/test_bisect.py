"""Bisect: the first step at which two sessions differ, and two versions over one session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from turnwheel import Agent, MemoryStore, Policy, Session, SetModel, tool
from turnwheel.effects import events
from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.errors import JournalError, UnknownSession
from turnwheel.effects.events import ToolFinished
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.messages import StopReason
from turnwheel.effects.requests import CallModel, RunTool, SetTimer
from turnwheel.effects.usage import Usage
from turnwheel.engine.inspect.archive import bisect, bisect_versions
from turnwheel.engine.inspect.bisect import NAMED, Divergence, compare_labels, compare_sessions, compare_steps
from turnwheel.engine.inspect.replay import line, replayed
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import Branched, Entry, Posted, RunOpened, Stepped, TakenOver
from turnwheel.performers.stores.base import Store
from turnwheel.states import streaming
from turnwheel.states.state import Start, Thinking
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(side_effect="read_only")
def look(at: str = "it") -> str:
    """Look."""
    return f"saw {at}"


PAYS = (calls(("look", {})), calls(("pay", {})), says("Paid."))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def run(store: Store, name: str, *replies: Reply, **settings: Any) -> Session:
    """The session *name* in *store*, after a run in which the model gave *replies* and a person said yes."""
    made: dict[str, Any] = {"model": "scripted", "system": "Be brief.", **settings}
    performers: Any = {CallModel: ScriptedModel(*replies)}
    agent = Agent(**made, performers=performers, tools=[look, pay], store=store)
    async with agent.session(name) as session:
        result = await (session.resume() if session.unfinished else session.run("pay"))
        for question in result.waiting:
            await session.approve(question.id, by=name)
        if result.waiting:
            await session.resume()
    return session


def sides(found: Divergence | None) -> tuple[Any, ...]:
    """The numbers of the last common step and of the first on either side that differ, and where."""
    assert found is not None
    for step in (found.last, found.one, found.other):  # they can be written down whole
        assert json.loads(json.dumps(step)) == step
    last, one, other = (step and step["number"] for step in (found.last, found.one, found.other))
    return last, one, other, found.where


# Two sessions


async def test_two_sessions_in_which_the_same_happened_do_not_differ(store: MemoryStore) -> None:
    """Ids, times, approvers, and the pieces in which an answer came are each session's own."""
    halves = attrs.evolve(PAYS[2], pieces=(TextPiece("Pai"), TextPiece("d.")))
    await run(store, "s", *PAYS)
    await run(store, "t", *PAYS[:2], halves)
    assert await bisect(store, "s", "t") is None
    assert await bisect(store, "s", "s") is None
    for one, other in (("s", "u"), ("u", "s")):
        with pytest.raises(UnknownSession, match="'u'"):
            await bisect(store, one, other)
    with pytest.raises(UnknownSession, match="'u'"):
        await bisect_versions(store, "u")


ARGUMENTS, TEXT, TYPE = (f"event.pieces[0].{name}" for name in ("arguments", "text", "type"))


@pytest.mark.parametrize(
    ("replies", "settings", "expected"),
    [
        ((PAYS[0], calls(("pay", {"amount": 2})), PAYS[2]), {}, (5, 6, 6, (ARGUMENTS,))),
        ((calls(("look", {"at": "all"})), *PAYS[1:]), {}, (1, 3, 3, (ARGUMENTS,))),
        ((*PAYS[:2], says("Done.")), {}, (11, 12, 12, (TEXT,))),
        ((PAYS[0], PAYS[2]), {}, (5, 6, 6, (TYPE,))),
        (PAYS, {"system": "Take your time."}, (None, 1, 1, ("event.config.system",))),
    ],
)
async def test_the_first_difference_is_given(
    store: MemoryStore, replies: tuple[Reply, ...], settings: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    await run(store, "s", *PAYS)
    await run(store, "t", *replies, **settings)
    assert sides(await bisect(store, "s", "t")) == expected
    assert sides(await bisect(store, "t", "s")) == expected


async def test_only_a_few_of_many_differences_are_named(store: MemoryStore) -> None:
    await run(store, "s", calls(*[("look", {"at": str(number)}) for number in range(20)]), says("Seen."))
    await run(store, "t", calls(*[("look", {"at": "it"})] * 20), says("Seen."))
    assert len(sides(await bisect(store, "s", "t"))[3]) == NAMED == 8


async def test_a_fork_differs_where_it_ends_or_something_else_happened(store: MemoryStore) -> None:
    session = await run(store, "s", *PAYS)
    await (await session.fork("shorter", at=10)).close()
    assert sides(await bisect(store, "s", "shorter")) == (7, 10, None, ())
    steps = {type(step.event): step for step in replayed(await store.load("s"), "s")}
    at = steps[ToolFinished].number
    await session.fork("t", at=at, instead="saw nothing")
    found = await bisect(store, "s", "t")
    assert sides(found)[1:] == (at, at + 1, ("event.content",))
    assert found is not None
    assert found.other is not None
    assert (found.other["entry"]["event"]["content"], found.other["label"]) == ("saw nothing", "streaming")
    assert found.other["effects"][0]["type"] == "CallSettled"
    await session.fork("u", at=3, instead=SetModel(model="another"))
    assert sides(await bisect(store, "s", "u"))[3] == ("event.type",)


@pytest.mark.parametrize("same", [True, False])
async def test_a_fork_in_which_the_same_happens_does_not_differ(store: MemoryStore, *, same: bool) -> None:
    """Ids that are made in the fork stand where the others do, also where a model is asked anew."""
    session = await run(store, "s", *PAYS)
    steps = list(replayed(await store.load("s"), "s"))
    number, event = next((step.number, step.event) for step in steps if isinstance(step.event, ToolFinished))
    assert isinstance(event, ToolFinished)
    await session.fork("t", at=number + (not same), instead=event if same else None)
    await run(store, "t", *PAYS[1:])
    assert await bisect(store, "s", "t") is None


async def test_a_takeover_with_other_settings_is_no_difference(store: MemoryStore) -> None:
    session = await run(store, "s", *PAYS)
    steps = list(replayed(await store.load("s"), "s"))
    event = next(step.event for step in steps if isinstance(step.event, ToolFinished))
    number = next(step.number for step in steps if step.event is event)
    await session.fork("t", at=number, instead=event)
    await run(store, "t", calls(("pay", {})), says("Not paid."), models=["spare"])
    entries = [step.entry for step in replayed(await store.load("t"), "t")]
    assert any(isinstance(entry, TakenOver) and entry.config is not None for entry in entries)
    found = await bisect(store, "s", "t")
    assert found is not None
    assert found.where == ("event.pieces[0].text",)


# Two versions


async def changed(old: bytes = b"", new: bytes = b"") -> MemoryStore:
    """A store with the session ``s``, in whose journal another version would have written *new* for *old*."""
    store, made = MemoryStore(), MemoryStore()
    await run(made, "s", *PAYS)
    await store.append("s", 0, [data.replace(old, new) for data in await made.load("s")])
    return store


async def cut(entries: Sequence[bytes]) -> MemoryStore:
    store = MemoryStore()
    await store.append("s", 0, list(entries))
    return store


async def test_an_event_that_leads_elsewhere_is_given_on_both_sides() -> None:
    found = await bisect_versions(await changed(b'"label":"confirming"', b'"label":"executing"'), "s")
    last, one, other, where = sides(found)
    assert (one, other, where) == (last + 1, last + 1, ("label",))
    assert found is not None
    assert found.one is not None
    assert found.other is not None
    assert (found.one["label"], found.other["label"]) == ("executing", "confirming")
    assert found.one["at"] == found.other["at"]
    assert found.other["state"]["type"] == "Confirming"
    assert "AskApproval" in [effect["type"] for effect in found.other["effects"]]


async def test_a_step_before_any_run_is_damage_and_no_difference() -> None:
    entries = list(await (await changed()).load("s"))
    step = next(data for data in entries if b'"type":"Stepped"' in data)
    with pytest.raises(JournalError, match="entry 1 of session 's'"):
        await bisect_versions(await cut([entries[0], step]), "s")


async def test_an_event_that_this_version_ignores_leads_nowhere() -> None:
    entries = list(await (await changed()).load("s"))
    number = next(index for index, data in enumerate(entries) if b"ToolFinished" in data)
    entries[number] = entries[number].replace(b'"request":"', b'"request":"another-')
    found = await bisect_versions(await cut(entries), "s")
    assert sides(found)[1:] == (number, number, ("label",))
    assert found is not None
    assert found.other is not None
    assert (found.other["label"], found.other["effects"][0]["type"]) == ("executing", "Ignored")


async def test_against_the_steps_of_another_version_everything_counts() -> None:
    """Times, ids, effects and accounts; a part of them will do, and so will a session that went on since."""
    store = await changed()
    assert await bisect_versions(store, "s") is None
    lines = [line(step) for step in replayed(await store.load("s"), "s")]
    for part in (lines, lines[3:7], lines[:6]):
        assert await bisect_versions(store, "s", part) is None
    for old, new, where in (
        (b'"turns":1', b'"turns":2', "effects"),
        (b'"verdict":"ask"', b'"verdict":"deny"', "effects"),
        (b'"stopping":1', b'"stopping":2', ""),
        (b'"tool":"pay","arguments"', b'"tool":"buy","arguments"', "effects"),
    ):
        found = await bisect_versions(store, "s", [each.replace(old, new) for each in lines])
        assert (found is None) == (not where)
        assert found is None or found.where[0].startswith(where)
    shorter = await cut((await store.load("s"))[:6])
    assert sides(await bisect_versions(shorter, "s", lines)) == (5, 6, None, ())


async def test_lines_and_entries_that_are_none_are_refused() -> None:
    store = await changed()
    lines = [line(step) for step in replayed(await store.load("s"), "s")]
    for text in (b"{", b"[1]", b'{"number": 1}'):
        with pytest.raises(JournalError, match="line 3 is no step as replay --json writes it"):
            await bisect_versions(store, "s", [*lines[:2], text])
    with pytest.raises(JournalError, match="entry 2 of session 's'"):
        await bisect_versions(await changed(b'"type":"Titled"', b'"type":"Tilted"'), "s")


# Journals that were written by hand

OPENED = RunOpened(
    at=2.0,
    run="r",
    config=Config(
        model=ModelSpec(name="m"),
        tools=(ToolSpec(name="look", approval="never", side_effect="read_only"),),
        policy=Policy(concurrency="parallel"),
    ),
)
BEGINNING = (Posted(event=events.UserSent(at=1.0, id="p", text="Look")), OPENED)
DONE = events.ModelFinished(
    at=3.0, request="r-1", stop=StopReason.END_TURN, usage=Usage(), pieces=(TextPiece("Seen."),)
)
STOPPED = events.Interrupted(at=3.0)


def journal(*entries: Entry) -> list[bytes]:
    return [encode_entry(entry) for entry in (*BEGINNING, *entries)]


def asked(entries: Sequence[bytes], kind: type[RunTool | SetTimer]) -> list[str]:
    """The ids of the requests of this *kind* that the last of *entries* led to."""
    *_, last = replayed(entries, "s")
    return [effect.id for effect in last.effects if isinstance(effect, kind)]


async def test_answers_that_change_places_are_a_difference() -> None:
    """Although ids are each session's own."""
    wishes = tuple([CallPiece(number, "w", "look", "{}") for number in (0, 1)])
    stop = StopReason.TOOL_USE
    answer = events.ModelFinished(at=3.0, request="r-1", stop=stop, usage=Usage(), pieces=wishes)
    before = Stepped(event=answer, label="executing")
    first, second = asked(journal(before), RunTool)
    one, other = (
        journal(before, Stepped(event=ToolFinished(at=4.0, request=name, content="seen"), label="executing"))
        for name in (first, second)
    )
    assert sides(await compare_sessions(one, "s", other, "t")) == (2, 3, 3, ("event.request",))


async def test_a_model_that_is_asked_again_after_a_failure_is_a_step_of_its_own() -> None:
    failed = events.ModelFailed(at=3.0, request="r-1", failure=events.Failure.SERVER, message="busy")
    waits = journal(before := Stepped(event=failed, label="thinking.retry"))
    (timer,) = asked(waits, SetTimer)
    again = Stepped(event=events.TimerFired(at=9.0, request=timer), label="streaming")
    assert sides(await compare_sessions(journal(before, again), "s", waits, "t")) == (2, 3, None, ())
    assert sides(await compare_sessions(waits, "s", journal(before, again), "t")) == (2, None, 3, ())


async def test_going_back_to_another_run_is_a_difference() -> None:
    again = (Posted(event=events.UserSent(at=4.0, id="q", text="Look")), attrs.evolve(OPENED, run="q"))
    ends = [Stepped(event=attrs.evolve(DONE, request=f"{name}-1"), label="done") for name in ("r", "q")]
    one, other = (journal(ends[0], *again, ends[1], Branched(at=5.0, run=name)) for name in ("r", "q"))
    assert sides(await compare_sessions(one, "s", other, "t")) == (5, 6, 6, ("event.run",))


async def test_a_step_at_which_a_machine_failed_is_made_again_by_failing_there() -> None:
    found = await compare_labels(journal(Stepped(event=STOPPED, label="executing", failed="a bug")), "s")
    assert sides(found) == (None, 2, 2, ("label",))
    assert found is not None
    assert found.other is not None
    assert (found.other["label"], found.other["state"]["detail"]) == ("done", "a bug")


async def test_a_step_at_which_this_version_fails_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error stands in the place of a label, and it has no state and no effects."""
    entries = journal(Stepped(event=STOPPED, label="streaming.stopping"))
    monkeypatch.setattr(streaming, "handle", lambda *_: (Thinking(stage=Start()), ()))
    found = await compare_labels(entries, "s")
    assert sides(found) == (None, 2, 2, ("label",))
    assert found is not None
    assert found.other is not None
    assert "no row for Interrupted in streaming" in found.other["label"]
    assert (found.other["state"], found.other["effects"]) == (None, [])


async def test_a_step_that_led_elsewhere_in_another_version_began_where_it_did_there() -> None:
    """Only where it led differs, of all that both say of it."""
    here, there = (
        journal(Stepped(event=STOPPED, label=name)) for name in ("streaming.stopping", "executing")
    )
    lines = [
        line(step).replace(b'"label":"streaming.stopping"', b'"label":"executing"')
        for step in replayed(here, "s")
    ]
    found = await compare_steps(lines, there, "s")
    assert sides(found) == (1, 2, 2, ("label",))
    assert found is not None
    assert found.other is not None
    assert (found.other["before"], found.other["run"], found.other["at"]) == ("streaming", "r", 3.0)


async def test_a_file_without_a_step_is_nothing_to_compare_with() -> None:
    with pytest.raises(
        JournalError, match=r"^there is no step to compare with: replay --json writes one to a line$"
    ):
        await compare_steps([], journal(), "s")


async def test_of_a_line_that_is_no_step_the_beginning_is_shown() -> None:
    with pytest.raises(JournalError, match=f"^line 1 is no step as replay --json writes it: b'{'x' * 100}'$"):
        await compare_steps([b"x" * 200], journal(), "s")
