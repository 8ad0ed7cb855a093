"""A model that goes in circles: what counts as one, and what is done about it."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import (
    DoneReason,
    Loops,
    Policy,
    Tool,
    tool,
)
from turnwheel.effects.notices import LoopDetected, RunEnded, ToolOutput
from turnwheel.testing.scripted import Reply, calls, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage

ALL = {"policy": Policy(mode="bypass")}
"""Nobody is asked about anything."""

ONLY_STOP: dict[str, Any] = {**ALL, "loops": Loops(warn=None, withdraw=None, same=None)}
AGAIN = calls(("look", {"at": "a"}))


def reads_on(name: str, *, blank: bool) -> Tool[..., Any]:
    """A tool that reads page after page, of what is *blank* or not."""

    @tool(name=name, side_effect="read_only")
    async def read_on(  # noqa: PLR0913  # what pages are turned with, at one place or another
        path: str,
        query: str = "",
        scope: str = "",
        *,
        offset: int = 0,
        page: int = 0,
        cursor: str = "",
        start_line: int = 0,
        end_line: int = 0,
    ) -> str:
        """Read on."""
        return "" if blank else f"{path} {query} {scope} {offset} {page} {cursor} {start_line} {end_line}"

    return read_on


leaf, blank = reads_on("leaf", blank=False), reads_on("blank", blank=True)


def stages(stage: Stage) -> list[tuple[str, int]]:
    """What was done about repetitions, and at how many of them."""
    return [(notice.stage, notice.count) for notice in stage.seen(LoopDetected)]


# What is done about it


@pytest.mark.behaviour("who-repeats-itself-is-told")
async def test_at_the_third_time_the_model_is_told_in_its_next_request(stage: Stage) -> None:
    """It is told what it does and what it might do instead; that is no part of the conversation."""
    session = stage.session(*[AGAIN] * 3, calls(("put", {})), says("done"), says("hello"), **ALL)
    result = await stage.play(session)
    await session.run("hi")

    told = [request.instructions for request in stage.model.requests]
    assert [bool(text) for text in told[:4]] == [False, False, False, True]
    assert told[3].startswith("look was called alike 3 times. Do not repeat it:")
    assert (result.text, told[5]) == ("done", "")
    assert not any("alike" in line for line in stage.said(session))
    assert stages(stage)[0] == ("warned", 3)


@pytest.mark.behaviour("a-tool-is-taken-away-for-a-while")
async def test_at_the_fifth_time_the_tool_is_not_offered_for_three_turns(stage: Stage) -> None:
    """Then it is there again; all others are there all the time."""
    puts = [calls(("put", {"value": value})) for value in "abc"]
    session = stage.session(*[AGAIN] * 5, *puts, says("done"), **ALL)
    await stage.play(session)

    offered = ["look" in request.tools for request in stage.model.requests]
    assert offered == [True] * 5 + [False] * 3 + [True]
    assert all("put" in request.tools for request in stage.model.requests)
    assert ("withdrawn", 5) in stages(stage)
    [told] = [one for one in stage.seen(LoopDetected) if one.stage == "withdrawn"]
    assert (told.tools, "not offered for 3 turns" in told.text) == (("look",), True)


@pytest.mark.behaviour("a-tool-is-taken-away-for-a-while")
async def test_a_tool_that_was_taken_away_does_not_run(stage: Stage) -> None:
    """The model is told that it is not there, as of any tool that was not offered."""
    session = stage.session(*[AGAIN] * 6, says("done"), **ALL)
    await stage.play(session)
    assert stage.ran == ["look a"] * 5
    assert stage.outcomes(session)[5] == "look: error"
    assert "Tool not found: look" in stage.shown(7)[-1]


@pytest.mark.behaviour("a-run-in-circles-ends")
async def test_at_the_eighth_time_the_run_ends_before_the_model_is_asked_again(stage: Stage) -> None:
    """With a reason of its own and what was repeated; each call has its result."""
    session = stage.session(*[AGAIN] * 9, **ONLY_STOP)
    result = await stage.play(session)

    assert (result.reason, stage.asked) == (DoneReason.LOOP_DETECTED, 8)
    assert result.detail == "look was called alike 8 times, 8 times with the same result; the run was stopped"
    assert [notice.detail for notice in stage.seen(RunEnded)] == [result.detail]
    assert stages(stage) == [("stopped", 8)]
    assert stage.outcomes(session) == ["look: ok"] * 8


@pytest.mark.behaviour("a-run-in-circles-ends")
async def test_calls_of_one_answer_count_each(stage: Stage) -> None:
    """Eight at once are eight."""
    session = stage.session(calls(*[("look", {"at": "a"})] * 8), says("never"), **ONLY_STOP)
    assert (await session.run("go")).reason is DoneReason.LOOP_DETECTED
    assert stage.asked == 1


@pytest.mark.behaviour("a-run-in-circles-ends")
async def test_the_session_goes_on_with_the_next_prompt(stage: Stage) -> None:
    """What was repeated before counts no more."""
    session = stage.session(*[AGAIN] * 9, says("well"), **ONLY_STOP)
    await session.run("go")
    result = await stage.play(session, "try something else")
    assert (result.text, stages(stage)) == ("well", [])


@pytest.mark.behaviour("a-run-in-circles-ends")
async def test_all_three_follow_each_other_and_each_is_explained(stage: Stage) -> None:
    """A model that does not listen is told, kept from it and stopped."""
    session = stage.session(*[AGAIN] * 12, **ALL)
    result = await stage.play(session)

    assert result.reason is DoneReason.LOOP_DETECTED
    assert list(dict.fromkeys(name for name, _ in stages(stage))) == ["warned", "withdrawn", "stopped"]
    for notice in stage.seen(LoopDetected):
        assert notice.text.startswith(f"look was called alike {notice.count} times")


# What counts


OTHERS: dict[str, list[dict[str, object]]] = {
    "another file each": [{"path": str(number)} for number in range(30)],
    "a third equal": [{"path": "a", "query": str(n), "scope": str(-n)} for n in range(30)],
    "by offset": [{"path": "a", "offset": number * 100} for number in range(30)],
    "by page": [{"path": "a", "query": "b", "page": number} for number in range(30)],
    "by cursor": [{"path": "a", "cursor": f"c{number}"} for number in range(30)],
    "by lines": [{"path": "a", "start_line": n, "end_line": n + 9} for n in range(0, 300, 10)],
}


@pytest.mark.behaviour("reading-on-is-no-circle")
@pytest.mark.parametrize("arguments", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("reader", ["leaf", "blank"])
async def test_what_differs_or_turns_pages_is_no_repetition(
    stage: Stage, arguments: list[dict[str, object]], reader: str
) -> None:
    """However often, and whatever is there."""
    rounds = [calls((reader, each)) for each in arguments]
    result = await stage.play(stage.session(*rounds, says("done"), tools=[leaf, blank]))
    assert (result.text, stages(stage)) == ("done", [])


@tool(side_effect="read_only")
async def dull(
    path: str,
    query: str = "",  # noqa: ARG001  # whatever is asked
    offset: int = 0,  # noqa: ARG001  # as above
) -> str:
    """Find nothing."""
    return f"nothing in {path}"


@tool(side_effect="read_only")
async def broken(path: str, query: str = "") -> str:
    """Go wrong."""
    raise ValueError(path, query)


ALIKE: dict[str, list[tuple[str, dict[str, object]]]] = {
    "equal": [("leaf", {"path": "a"})] * 8,
    "in another order": [("leaf", dict([("path", "a"), ("query", "b")][:: (-1) ** n])) for n in range(8)],
    "the same page": [("leaf", {"path": "a", "query": "b", "offset": 0})] * 8,
    "half equal, which all find the same": [("dull", {"path": "a", "query": str(n)}) for n in range(8)],
    "half equal, which all fail": [("broken", {"path": "a", "query": str(n)}) for n in range(8)],
}
UNLIKE: dict[str, list[tuple[str, dict[str, object]]]] = {
    "half equal, which find something new": [("leaf", {"path": "a", "query": str(n)}) for n in range(30)],
    "half equal, which change something": [("note", {"path": "a", "text": str(n)}) for n in range(30)],
    "none equal": [("dull", {"path": str(n), "query": str(-n)}) for n in range(30)],
}


@tool(approval="never")
async def note(path: str, text: str) -> str:
    """Write something."""
    return f"{len(text) // 1_000} pages in {path}"


@pytest.mark.behaviour("a-circle-need-not-be-exact")
@pytest.mark.parametrize("wishes", ALIKE.values(), ids=ALIKE)
async def test_calls_of_a_tool_with_half_of_their_arguments_equal_are_alike(
    stage: Stage, wishes: list[tuple[str, dict[str, object]]]
) -> None:
    """Where nothing new comes of them. Eight of them end a run."""
    tools = [leaf, dull, broken]
    session = stage.session(*[calls(wish) for wish in wishes], says("never"), tools=tools, **ONLY_STOP)
    result = await session.run("go")
    assert (result.reason, stage.asked) == (DoneReason.LOOP_DETECTED, 8)


@pytest.mark.behaviour("a-circle-need-not-be-exact")
@pytest.mark.parametrize("wishes", UNLIKE.values(), ids=UNLIKE)
async def test_they_are_not_where_something_new_comes_of_them(
    stage: Stage, wishes: list[tuple[str, dict[str, object]]]
) -> None:
    """That is work."""
    session = stage.session(*[calls(wish) for wish in wishes], says("done"), tools=[leaf, dull, note])
    result = await stage.play(session)
    assert (result.text, stages(stage)) == ("done", [])


@pytest.mark.behaviour("a-circle-need-not-be-exact")
async def test_a_model_that_has_gone_on_to_something_else_is_in_no_circle(stage: Stage) -> None:
    """What it did before is not held against it."""
    others = [calls(("look", {"at": str(number)})) for number in range(9)]
    session = stage.session(*[AGAIN] * 3, *others, says("done"))
    await stage.play(session)
    assert stages(stage) == [("warned", 3)]


@pytest.mark.behaviour("a-circle-need-not-be-exact")
@pytest.mark.parametrize("edits", [1, 3, 5])
async def test_to_run_the_tests_after_each_change_is_no_circle(stage: Stage, edits: int) -> None:
    """Each time they say something else. At most it is said that this is often."""
    count = iter(range(100))

    @tool(side_effect="read_only")
    async def run_tests() -> str:
        """Run the tests."""
        return f"{next(count)} failed"

    rounds: list[Reply] = []
    for number in range(7):
        rounds += [calls(("note", {"path": "a.py", "text": f"{number} {edit}"})) for edit in range(edits)]
        rounds += [calls(("run_tests", {}))]
    session = stage.session(*rounds, says("done"), tools=[note, run_tests])
    result = await stage.play(session)
    assert result.text == "done"
    assert {name for name, _ in stages(stage)} <= {"warned"}


ROUND: dict[str, list[tuple[str, dict[str, object]]]] = {
    "of two": [("look", {"at": "a"}), ("put", {"value": "a"})],
    "of three": [("look", {"at": "a"}), ("look", {"at": "b"}), ("put", {"value": "c"})],
    "of five": [("look", {"at": str(number)}) for number in range(5)],
}


@pytest.mark.behaviour("a-circle-may-be-of-several-calls")
@pytest.mark.parametrize("wishes", ROUND.values(), ids=ROUND)
async def test_the_same_few_calls_over_and_over_are_a_circle(
    stage: Stage, wishes: list[tuple[str, dict[str, object]]]
) -> None:
    """Each round of them counts once."""
    rounds: list[Reply] = [calls(wish) for wish in islice(cycle(wishes), 9 * len(wishes))]
    session = stage.session(*rounds, **ONLY_STOP)
    result = await session.run("go")
    assert result.reason is DoneReason.LOOP_DETECTED
    assert 7 * len(wishes) < stage.asked <= 8 * len(wishes)


@pytest.mark.behaviour("the-same-result-is-worse")
@pytest.mark.parametrize(("changes", "asked"), [(False, 6), (True, 8)])
async def test_calls_that_even_give_the_same_result_end_the_run_earlier(
    stage: Stage, *, changes: bool, asked: int
) -> None:
    """Who asks whether something has happened may get another answer the next time."""
    count = iter(range(100))

    @tool(side_effect="read_only")
    async def poll() -> str:
        """Say how far it is."""
        return f"{next(count)} %" if changes else "not yet"

    settings: dict[str, Any] = {"tools": [poll], "loops": Loops(warn=None, withdraw=None)}
    session = stage.session(*[calls(("poll", {}))] * 9, **settings)
    assert (await session.run("go")).reason is DoneReason.LOOP_DETECTED
    assert stage.asked == asked


@pytest.mark.behaviour("a-person-breaks-a-circle")
async def test_what_was_repeated_before_a_person_spoke_does_not_count(stage: Stage) -> None:
    """They may have asked for just that."""
    session = stage.session(*[AGAIN] * 2, calls(("dig", {})), *[AGAIN] * 2, says("done"), **ALL)

    async def speak(_: ToolOutput) -> None:
        await session.steer("look again")
        stage.release()

    await stage.play(session, on={ToolOutput: speak})
    assert (stage.asked, stages(stage)) == (6, [])


# What is set


@pytest.mark.behaviour("going-in-circles-may-be-allowed")
@pytest.mark.parametrize(
    ("loops", "expected"),
    [
        (Loops.never(), set()),
        (Loops(warn=None, withdraw=None, stop=None), {"stopped"}),
        (Loops(withdraw=None, stop=None, same=None), {"warned"}),
        (Loops(warn=None, stop=None, same=None), {"withdrawn"}),
        (Loops(warn=4, withdraw=None, stop=5), {"warned", "stopped"}),
    ],
    ids=["all off", "the same result", "told", "withdrawn", "other numbers"],
)
async def test_each_threshold_is_a_setting_and_may_be_off(
    stage: Stage, loops: Loops, expected: set[str]
) -> None:
    """A host may know better."""
    session = stage.session(*[AGAIN] * 12, says("done"), loops=loops, **ALL)
    result = await stage.play(session)
    assert {name for name, _ in stages(stage)} == expected
    assert (result.reason is DoneReason.END_TURN) is ("stopped" not in expected)


@pytest.mark.behaviour("going-in-circles-may-be-allowed")
async def test_for_how_many_turns_a_tool_is_gone_is_a_setting(stage: Stage) -> None:
    """Here for one."""
    settings: dict[str, Any] = {**ALL, "loops": Loops(warn=None, withdraw=3, stop=None, same=None, turns=1)}
    session = stage.session(*[AGAIN] * 3, calls(("put", {})), says("done"), **settings)
    await stage.play(session)
    assert ["look" in request.tools for request in stage.model.requests] == [True] * 3 + [False, True]
