"""Bisect: where two sessions part, and where two versions do over one session."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from turnwheel import (
    Agent,
    MemoryStore,
    Session,
    SetModel,
    tool,
)
from turnwheel.effects.errors import JournalError, UnknownSession
from turnwheel.effects.events import ToolFinished
from turnwheel.effects.pieces import TextPiece
from turnwheel.effects.requests import CallModel
from turnwheel.engine.inspect.bisect import NAMED, Divergence
from turnwheel.engine.inspect.replay import line, replayed
from turnwheel.engine.session.archive import bisect, bisect_versions
from turnwheel.performers.stores.base import Store
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
)


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(side_effect="read_only")
def look(at: str = "it") -> str:
    """Look."""
    return f"saw {at}"


PAYS = (calls(("look", {})), calls(("pay", {})), says("Paid."))


async def run(store: Store, name: str, *replies: Reply, **settings: Any) -> Session:
    """The session *name* in *store*, after a run in which the model gave *replies* and people said yes."""
    model = ScriptedModel(*replies)
    made: dict[str, Any] = {"model": "scripted", "system": "Be brief.", **settings}
    agent = Agent(**made, performers={CallModel: model}, tools=[look, pay], store=store)
    async with agent.session(name) as session:
        result = await (session.resume() if session.unfinished else session.run("pay"))
        for question in result.waiting:
            await session.approve(question.id, by=name)
        if result.waiting:
            await session.resume()
    return session


def sides(found: Divergence | None) -> tuple[Any, ...]:
    """The numbers of the steps at which two parted, and what differs."""
    assert found is not None
    last, one, other = (step and step["number"] for step in (found.last, found.one, found.other))
    return last, one, other, found.where


# Two sessions


async def test_two_sessions_that_did_the_same_do_not_part() -> None:
    """Run ids, ids of requests and calls, times, and who said yes are each session's own."""
    store = MemoryStore()
    for name in ("s", "t"):
        await run(store, name, *PAYS)
    assert await bisect(store, "s", "t") is None
    assert await bisect(store, "s", "s") is None


async def test_how_an_answer_came_in_pieces_does_not_matter() -> None:
    """One that was streamed word by word is the same as one that came in halves."""
    store = MemoryStore()
    whole = says("It is paid, as you wished.")
    halves = attrs.evolve(whole, pieces=(TextPiece("It is paid, "), TextPiece("as you wished.")))
    await run(store, "s", whole)
    await run(store, "t", halves)
    assert await bisect(store, "s", "t") is None


@pytest.mark.parametrize(
    ("replies", "settings", "told"),
    [
        (
            (PAYS[0], calls(("pay", {"amount": 2})), says("Paid.")),
            {},
            (5, 6, 6, ("event.pieces[0].arguments",)),
        ),
        ((calls(("look", {"at": "all"})), *PAYS[1:]), {}, (1, 3, 3, ("event.pieces[0].arguments",))),
        ((*PAYS[:2], says("Done.")), {}, (11, 12, 12, ("event.pieces[0].text",))),
        ((PAYS[0], PAYS[2]), {}, (5, 6, 6, ("event.pieces[0].type",))),
        (PAYS, {"system": "Take your time."}, (None, 1, 1, ("event.config.system",))),
    ],
)
async def test_what_differs_first_is_told(
    replies: tuple[Reply, ...], settings: dict[str, Any], told: tuple[Any, ...]
) -> None:
    """The last step in common, the first that is not on either side, and what differs in it."""
    store = MemoryStore()
    await run(store, "s", *PAYS)
    await run(store, "t", *replies, **settings)
    assert sides(await bisect(store, "s", "t")) == told
    assert sides(await bisect(store, "t", "s")) == told


async def test_one_that_ended_earlier_parts_there() -> None:
    """What it did is the beginning of what the other one did."""
    store = MemoryStore()
    session = await run(store, "s", *PAYS)
    async with await session.fork("t", at=10):
        pass
    found = await bisect(store, "s", "t")
    assert found is not None
    assert (sides(found), found.other) == ((7, 10, None, ()), None)


async def test_a_session_parts_from_a_fork_where_something_else_happened() -> None:
    """At the very step, and both sides are told."""
    store = MemoryStore()
    session = await run(store, "s", *PAYS)
    steps = {type(step.event): step for step in replayed(await store.load("s"), "s")}
    at = steps[ToolFinished].number
    await session.fork("t", at=at, instead="saw nothing")
    found = await bisect(store, "s", "t")
    assert sides(found)[1:] == (at, at + 1, ("event.content",))
    assert found is not None
    assert found.other is not None
    assert found.other["entry"]["event"]["content"] == "saw nothing"
    assert found.other["label"] == "streaming"
    assert [effect["type"] for effect in found.other["effects"]][:1] == ["ToolEnded"]


@pytest.mark.parametrize("same", [True, False])
async def test_a_session_does_not_part_from_a_fork_in_which_the_same_happens(*, same: bool) -> None:
    """Ids that are made in the fork stand where the others do, also where a model is asked anew."""
    store = MemoryStore()
    session = await run(store, "s", *PAYS)
    steps = list(replayed(await store.load("s"), "s"))
    number, event = next((step.number, step.event) for step in steps if isinstance(step.event, ToolFinished))
    assert isinstance(event, ToolFinished)
    await session.fork("t", at=number + (not same), instead=event if same else None)
    await run(store, "t", *PAYS[1:])
    assert await bisect(store, "s", "t") is None


async def test_many_differences_are_told_up_to_a_few() -> None:
    """Whoever reads them wants to know where to look."""
    store = MemoryStore()
    wishes = [("look", {"at": str(number)}) for number in range(20)]
    await run(store, "s", calls(*wishes), says("Seen."))
    await run(store, "t", calls(*[("look", {"at": "it"})] * 20), says("Seen."))
    assert len(sides(await bisect(store, "s", "t"))[3]) == NAMED


async def test_only_sessions_that_are_there_can_part() -> None:
    """Either of them is named."""
    store = MemoryStore()
    await run(store, "s", says("Done."))
    for one, other in (("s", "t"), ("t", "s")):
        with pytest.raises(UnknownSession, match="'t'"):
            await bisect(store, one, other)
    with pytest.raises(UnknownSession, match="'t'"):
        await bisect_versions(store, "t")


# Two versions


async def changed(old: bytes, new: bytes) -> MemoryStore:
    """A store with the session ``s``, in whose journal another version would have written *new* for *old*."""
    store, made = MemoryStore(), MemoryStore()
    await run(made, "s", *PAYS)
    await store.append("s", 0, [data.replace(old, new) for data in await made.load("s")])
    return store


async def test_a_version_that_makes_the_same_of_it_does_not_part() -> None:
    """Each event leads where it is written to lead."""
    store = await changed(b"", b"")
    assert await bisect_versions(store, "s") is None


async def test_where_an_event_leads_elsewhere_both_are_told() -> None:
    """What is written is a label; what this version makes of it is all there."""
    store = await changed(b'"label":"confirming"', b'"label":"executing"')
    found = await bisect_versions(store, "s")
    last, one, other, where = sides(found)
    assert (one, other, where) == (last + 1, last + 1, ("label",))
    assert found is not None
    assert found.one is not None
    assert found.other is not None
    assert (found.one["label"], found.other["label"]) == ("executing", "confirming")
    assert found.other["state"]["type"] == "Confirming"
    assert "AskApproval" in [effect["type"] for effect in found.other["effects"]]


async def test_an_event_that_this_version_has_no_way_from_is_told_with_why() -> None:
    """One that it would ignore leads to where it was."""
    store = await changed(b'"type":"ToolFinished"},"label"', b'"type":"ToolFinished"},"label" ')
    entries = list(await store.load("s"))
    number = next(index for index, data in enumerate(entries) if b"ToolFinished" in data)
    entries[number] = entries[number].replace(b'"request":"', b'"request":"another-')
    other = MemoryStore()
    await other.append("s", 0, entries)
    found = await bisect_versions(other, "s")
    assert sides(found)[1:] == (number, number, ("label",))
    assert found is not None
    assert found.other is not None
    assert (found.other["label"], found.other["effects"][0]["type"]) == ("executing", "Ignored")


async def test_what_is_no_journal_parts_from_nothing() -> None:
    """It is an error with its number, as everywhere."""
    store = await changed(b'"type":"Titled"', b'"type":"Tilted"')
    with pytest.raises(JournalError, match="entry 2 of session 's'"):
        await bisect_versions(store, "s")


async def test_against_what_another_version_wrote_everything_counts() -> None:
    """Times, ids, effects and accounts: this version makes of it what that one did, or they part."""
    store = await changed(b"", b"")
    lines = [line(step) for step in replayed(await store.load("s"), "s")]
    assert await bisect_versions(store, "s", lines) is None
    assert await bisect_versions(store, "s", lines[3:7]) is None  # a part of it
    for old, new, where in (
        (b'"turns":1', b'"turns":2', "effects"),
        (b'"verdict":"ask"', b'"verdict":"deny"', "effects"),
        (b'"stopping":1', b'"stopping":2', ""),
        (b'"tool":"pay","arguments"', b'"tool":"buy","arguments"', "effects"),
    ):
        found = await bisect_versions(store, "s", [each.replace(old, new) for each in lines])
        assert (found is None) == (not where)
        assert found is None or found.where[0].startswith(where)


async def test_a_session_that_went_on_since_does_not_part() -> None:
    """What another version wrote of it ended earlier; and what it has and the journal lacks is told."""
    store = await changed(b"", b"")
    lines = [line(step) for step in replayed(await store.load("s"), "s")]
    assert await bisect_versions(store, "s", lines[:6]) is None
    shorter = MemoryStore()
    await shorter.append("s", 0, (await store.load("s"))[:6])
    assert sides(await bisect_versions(shorter, "s", lines)) == (5, 6, None, ())


@pytest.mark.parametrize("text", [b"{", b"[1]", b'{"number": 1}'])
async def test_lines_that_tell_no_step_are_refused(text: bytes) -> None:
    """The line is named, so that one sees that it was another file."""
    store = await changed(b"", b"")
    lines = [line(step) for step in replayed(await store.load("s"), "s")]
    with pytest.raises(JournalError, match="line 3 is no step as replay --json writes it"):
        await bisect_versions(store, "s", [*lines[:2], text])


async def test_a_parting_is_plain() -> None:
    """Both steps are what JSON is made of, so that they can be written down whole."""
    store = MemoryStore()
    session = await run(store, "s", *PAYS)
    await session.fork("t", at=3, instead=SetModel(model="another"))
    found = await bisect(store, "s", "t")
    assert found is not None
    assert found.where == ("event.type",)
    for step in (found.last, found.one, found.other):
        assert json.loads(json.dumps(step)) == step
