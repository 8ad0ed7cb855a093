"""Whether a model goes in circles: what counts as a repetition, how often, and what is done about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.config import Loops, SideEffect, ToolSpec
from turnwheel.effects.events import Failure
from turnwheel.effects.history import History
from turnwheel.effects.messages import (
    Finish,
    Message,
    Outcome,
    Part,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from turnwheel.effects.notices import DoneReason, LoopDetected, LoopStage, RunEnded
from turnwheel.effects.records import WithdrawTool
from turnwheel.effects.requests import CallModel, SetTimer
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.loops import (
    LONG_ARGUMENTS,
    PAGES,
    Loop,
    alike,
    away,
    canonical,
    found,
    latest,
    window,
)
from turnwheel.testing.harness import MachineHarness, call, config

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WARNED, WITHDRAWN, STOPPED = LoopStage.WARNED, LoopStage.WITHDRAWN, LoopStage.STOPPED


@final
@attrs.frozen
class Made:
    """A call of *tool* that was *given* arguments, as a value or as text, and what came of it."""

    tool: str
    given: object
    came: str = "fine"
    outcome: Outcome = Outcome.OK


Answer = Made | tuple[Made, ...]
"""One call, or several at once."""


def said(*answers: Answer | str) -> History:
    """What was said: prompts, which are text, and answers with their results."""
    history = History.of(user("go"))
    for number, answer in enumerate(answers):
        if isinstance(answer, str):
            history = history.append(user(answer))
            continue
        made = answer if isinstance(answer, tuple) else (answer,)
        ids = [f"r-{number}-{index}" for index in range(len(made))]
        wishes = [
            ToolCall(
                id=id_,
                wire_id="call_0",
                name=one.tool,
                arguments=one.given if isinstance(one.given, str) else json.dumps(one.given),
            )
            for id_, one in zip(ids, made, strict=True)
        ]
        came = [
            ToolResult(call=id_, wire_id="call_0", name=one.tool, content=one.came, outcome=one.outcome)
            for id_, one in zip(ids, made, strict=True)
        ]
        parts: tuple[Part, ...] = (Text(text="well"), *wishes, Finish(reason=StopReason.TOOL_USE))
        history = history.append(Message(role=Role.ASSISTANT, parts=parts))
        history = history.append(Message(role=Role.TOOL, parts=tuple(came)))
    return history


def look(came: str = "fine", **given: object) -> Made:
    """A read."""
    return Made("look", given, came)


def write(came: str = "fine", **given: object) -> Made:
    """A call that changes something."""
    return Made("write", given, came)


def failed(made: Made, why: str = "no", outcome: Outcome = Outcome.ERROR) -> Made:
    """*made*, which came to nothing."""
    return attrs.evolve(made, came=why, outcome=outcome)


def seen(*answers: Answer | str, withdrawn: Sequence[WithdrawTool] = (), **loops: Any) -> Loop | None:
    """What is found at the end of what was said."""
    return found(said(*answers), config(loops=Loops(**loops)), withdrawn, len(answers))


def judged(*answers: Answer | str, **loops: Any) -> tuple[LoopStage, tuple[str, ...], int] | None:
    """As `seen`, in short."""
    loop = seen(*answers, **loops)
    return None if loop is None else (loop.stage, loop.tools, loop.count)


# When arguments are alike


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # the same
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ('{"a": {"b": [1, 2], "c": 3}}', '{"a": {"c": 3, "b": [1, 2]}}', True),
        ('{"a": 1}', '{"a": 1.0}', True),
        ('{"a": [1e2]}', '{"a": [100]}', True),
        ("", "{}", True),
        ("{oops", "{oops", True),
        # another value
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 0}', '{"a": false}', False),
        ('{"a": [1]}', '{"a": [true]}', False),
        ('{"a": {"b": 1}}', '{"a": {"b": true}}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": null}', "{}", False),
        ('{"a": "x"}', '{"a": "y"}', False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        # similar: at least half is equal
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 3}', True),
        ('{"a": 1, "b": 2}', '{"a": 1}', True),
        ('{"a": 1, "b": 2, "c": 3}', '{"a": 1, "b": 0, "c": 0}', False),
        ('{"a": 1, "b": {"c": 1}}', '{"a": 1, "b": {"c": true}}', True),
        ('{"a": 1}', '{"b": 1}', False),
        # turning pages, and what is told besides
        ('{"a": 1, "offset": 0}', '{"a": 1, "offset": 9}', False),
        ('{"a": 1}', '{"a": 1, "offset": 9}', False),
        ('{"cursor": "x"}', '{"cursor": "y"}', False),
        ('{"a": 1, "start_line": 1, "end_line": 9}', '{"a": 1, "start_line": 9, "end_line": 19}', False),
        ('{"a": 1, "limit": 5}', '{"a": 2, "limit": 5}', False),
        ('{"a": 1, "b": 2, "page": 1}', '{"a": 1, "b": 3, "page": 2}', True),
        # no object
        ("{oops", "{ouch", True),
        ("[1]", "[2]", True),
        ("{oops", "{}", False),
        ('{"a": NaN}', '{"a": 1}', False),
    ],
)
def test_arguments_are_alike_when_half_of_them_are_equal(one: str, other: str, *, expected: bool) -> None:
    """As JSON and not as text or as Python has it, and whichever comes first."""
    assert alike(one, other) is expected
    assert alike(other, one) is expected


def test_long_arguments_are_compared_as_they_stand() -> None:
    """They are contents, and to read them at every turn would cost more than they tell."""
    long = "x" * LONG_ARGUMENTS
    assert alike(f'{{"a":"{long}"}}', f'{{"a":"{long}"}}')
    assert not alike(f'{{"a":"{long}"}}', f'{{"a": "{long}"}}')
    assert not alike(f'{{"a": 1, "b": "{long}"}}', '{"a": 1, "b": ""}')
    assert judged(*[write(path="a", text=long)] * 3) == (WARNED, ("write",), 3)
    assert judged(*[failed(write(path="a", text=f"{n}{long}")) for n in range(9)]) is None


NESTED = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), NESTED, max_size=4))
def test_how_arguments_are_written_changes_nothing(given: dict[str, object]) -> None:
    """The order of names and white space are the model's mood."""
    turned = json.dumps(dict(reversed(list(given.items()))), indent=1)
    assert canonical(json.dumps(given)) == canonical(turned)
    assert alike(json.dumps(given), turned)


@given(st.text(max_size=40) | st.text(alphabet='{}[]":,1e.\\', max_size=40), st.text(max_size=9))
def test_any_text_may_stand_for_arguments(one: str, other: str) -> None:
    """A model may write anything."""
    assert alike(one, one)
    assert alike(one, other) is alike(other, one)
    assert judged(*[Made("look", one)] * 3) == (WARNED, ("look",), 3)


def test_arguments_that_are_nested_deeper_than_any_tool_takes_are_compared_as_text() -> None:
    """The stack is no place to find that out."""
    deep = '{"a":' + "[" * 400 + "]" * 400 + "}"
    assert canonical(deep) == deep
    assert judged(*[Made("look", deep)] * 3) == (WARNED, ("look",), 3)


# The same call


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        *((1, None), (2, None), (3, WARNED), (4, WARNED), (5, WITHDRAWN)),
        *((6, STOPPED), (7, STOPPED), (8, STOPPED), (60, STOPPED)),
    ],
)
def test_the_same_call_with_the_same_result_is_dealt_with_in_stages(
    count: int, expected: LoopStage | None
) -> None:
    """At the sixth the run ends, since it even brought the same."""
    loop = seen(*[look(path="a")] * count)
    assert (loop and loop.stage) == expected
    assert loop is None or loop.count == min(count, window(Loops()))


@pytest.mark.parametrize(("count", "expected"), [(2, None), (3, WARNED), (7, WARNED), (8, STOPPED)])
def test_the_same_call_that_brings_something_new_is_spoken_of_and_ends_the_run_at_last(
    count: int, expected: LoopStage | None
) -> None:
    """To run the tests after each change is work, so nothing is taken away for it."""
    loop = seen(*[Made("write", {"command": "make test"}, f"{n} failed") for n in range(count)])
    assert (loop and loop.stage) == expected
    if expected is WARNED:
        assert loop is not None
        assert "unless something new comes of it" in loop.text


OTHERS = [look(path=str(n), came=str(n)) for n in range(40)]


def test_what_stands_between_does_not_matter() -> None:
    """Here four other calls, each time; in forty calls there are eight rounds of five."""
    rounds = [
        each for n in range(8) for each in (*OTHERS[4 * n : 4 * n + 4], look(path="a", came=f"came {n}"))
    ]
    assert judged(*rounds) == (STOPPED, ("look",), 8)
    assert judged(*rounds, same=None, stop=9) == (WARNED, ("look",), 8)


def test_only_the_latest_forty_calls_count() -> None:
    """What was done long ago is over."""
    assert judged(look(path="a"), look(path="a"), *OTHERS[:37], look(path="a")) == (WARNED, ("look",), 3)
    assert judged(look(path="a"), look(path="a"), *OTHERS[:38], look(path="a")) is None


def test_each_call_of_an_answer_counts() -> None:
    """Eight equal ones at once are eight; of two, the one that is repeated is found."""
    assert judged((look(path="a"),) * 8) == (STOPPED, ("look",), 8)
    assert judged(*[(look(path="a"), OTHERS[n]) for n in range(3)]) == (WARNED, ("look",), 3)
    assert judged(*[(OTHERS[n], look(path="a")) for n in range(3)]) == (WARNED, ("look",), 3)


def test_a_model_that_has_gone_on_to_something_else_is_not_spoken_to() -> None:
    """It is in no circle any more; if it comes back to it, it is."""
    assert judged(*[look(path="a")] * 5, look(path="b")) is None
    assert judged(*[look(path="a")] * 4, look(path="b"), look(path="a")) == (WITHDRAWN, ("look",), 5)


def test_what_was_repeated_before_somebody_spoke_does_not_count() -> None:
    """They may have asked for just that."""
    assert judged(*[look(path="a")] * 7, "and again?", *[look(path="a")] * 2) is None
    assert judged(*[look(path="a")] * 7, "and again?") is None
    assert found(History.of(), config(), (), 0) is None


def test_tools_of_another_name_are_other_calls() -> None:
    """Whatever their arguments."""
    assert judged(look(path="a"), write(path="a"), Made("peek", {"path": "a"})) is None


# Similar calls


def test_similar_reads_that_find_the_same_are_repetitions() -> None:
    """Eight of them end the run; none is the very same call, so not six."""
    searches = [look("nothing", where="src", what=str(n)) for n in range(8)]
    stages = [judged(*searches[:count]) for count in range(1, 9)]
    assert [each and each[0] for each in stages] == [
        *(None, None, WARNED, WARNED, WITHDRAWN, WITHDRAWN, WITHDRAWN, STOPPED)
    ]


@pytest.mark.parametrize(
    "work",
    [
        [look(f"hit {n}", where="src", what=str(n)) for n in range(30)],
        [look("nothing", what=str(n)) for n in range(30)],
        [look("nothing" if n % 2 else f"hit {n}", where="src", what=str(n)) for n in range(30)],
        [look("nothing", path=str(n), limit=2_000, offset=1) for n in range(30)],
        [write("[exit code 0]", command=f"mkdir {n}", timeout=60) for n in range(30)],
        [write("replaced 1 occurrence", path="a", old=str(n), new="x", all=False) for n in range(30)],
        [write("ok", table="users", database="main", row=n) for n in range(30)],
        [(look(f"a {n}", path="a", of=n), look(f"b {n}", path="b", of=n)) for n in range(15)],
    ],
    ids=["searches", "guesses", "some hits", "files", "commands", "edits", "rows", "two at a time"],
)
def test_work_is_no_circle(work: list[Answer]) -> None:
    """Reads that find something else, and writes of something else."""
    assert [judged(*work[:count]) for count in range(1, len(work) + 1)] == [None] * len(work)


def test_similar_calls_that_fail_are_repetitions_whatever_they_do() -> None:
    """However each says it."""
    edits = [failed(write(path="a", old=str(n)), f"no {n} in it") for n in range(8)]
    assert judged(*edits[:3]) == (WARNED, ("write",), 3)
    assert judged(*edits) == (STOPPED, ("write",), 8)
    denied = [failed(write(path="a", old=str(n)), outcome=Outcome.DENIED) for n in range(8)]
    assert judged(*denied) == (STOPPED, ("write",), 8)


def test_arguments_that_cannot_be_read_are_alike() -> None:
    """A model that cannot write JSON any more will not find out by itself."""
    assert judged(*[failed(Made("look", "{" + "[" * n)) for n in range(8)]) == (STOPPED, ("look",), 8)


def test_similar_calls_are_counted_in_a_row_and_in_answers() -> None:
    """One that found something ends the row, calls of others do not; ten at once were all made unseen."""
    searches = [look("nothing", where="src", what=str(n)) for n in range(9)]
    hit = look("here", where="src", what="it")
    assert judged(*searches[:7], hit, *searches[7:]) is None
    assert judged(searches[0], write(path="a"), searches[1], Made("peek", {}), searches[2]) == (
        WARNED,
        ("look",),
        3,
    )
    assert judged(tuple(searches)) is None
    assert judged(*[tuple(searches[n : n + 3]) for n in (0, 3, 6)]) == (WARNED, ("look",), 3)


def test_a_tool_that_is_not_known_any_more_is_one_that_may_do_anything() -> None:
    """Only its failures count, and the very same call."""
    assert judged(*[Made("gone", {"a": 1, "b": n}) for n in range(9)]) is None
    assert judged(*[failed(Made("gone", {"a": 1, "b": n})) for n in range(3)]) == (WARNED, ("gone",), 3)


def test_the_same_result_counts_also_where_similar_calls_are_more() -> None:
    """Who has set one threshold gets what it is for."""
    calls = [look("nothing", where="src", what=str(n % 3 if n < 12 else 0)) for n in range(16)]
    loop = seen(*calls, warn=None, withdraw=None, stop=None)
    assert loop is not None
    assert (loop.stage, loop.count) == (STOPPED, 8)


# Reading on


PAGE = st.dictionaries(st.sampled_from(sorted(PAGES)), st.integers(0, 99) | st.text(max_size=2), min_size=1)
"""Where a page is, said in one way or another."""


@given(
    st.lists(PAGE, min_size=2, max_size=60, unique_by=lambda page: canonical(json.dumps(page))),
    st.dictionaries(st.sampled_from(["path", "query", "of"]), st.integers(0, 3)),
    st.sampled_from([Outcome.OK, Outcome.ERROR]),
)
def test_reading_on_is_never_a_circle(
    pages: list[dict[str, object]], other: dict[str, object], outcome: Outcome
) -> None:
    """However long, whatever pages are turned with, and also where there are no more of them."""
    assert judged(*[failed(Made("look", {**other, **page}), "end", outcome) for page in pages]) is None


# Cycles


A, B, C = look(path="a"), look(path="b", came="b"), write(path="c")


def changing(*calls: Made) -> list[Answer]:
    """Nine rounds of *calls*, each of which brings something else each time."""
    return [attrs.evolve(each, came=f"{each.came} {n}") for n in range(9) for each in calls]


@pytest.mark.parametrize(
    ("cycle", "tools", "ends"),
    [
        ((A, C), ("look", "write"), 15),
        ((A, B), ("look",), 15),
        ((A, A, C), ("look", "write"), 11),
        ((A, B, C, Made("peek", {})), ("look", "write", "peek"), 29),
        (tuple(OTHERS[:5]), ("look",), 36),
    ],
)
def test_the_same_few_calls_over_and_over_are_a_circle(
    cycle: tuple[Made, ...], tools: tuple[str, ...], ends: int
) -> None:
    """All of its tools are named; it ends with the first call that was made eight times."""
    rounds = changing(*cycle)
    assert judged(*rounds[: 3 * len(cycle)]) == (WARNED, tools, 3)
    stages = [(judged(*rounds[:n]) or (None,))[0] for n in range(1, len(rounds))]
    assert stages.index(STOPPED) + 1 == ends


def test_a_cycle_in_one_answer_each_time_is_one_too() -> None:
    """Several calls at once, the same each time."""
    assert judged(*[(A, C)] * 3) == (WARNED, ("look", "write"), 3)
    assert judged(*[(A, C)] * 5) == (WITHDRAWN, ("look", "write"), 5)


def test_a_cycle_of_more_calls_than_are_looked_for_is_still_one_call_again_and_again() -> None:
    """So nothing gets through."""
    assert judged(*changing(*OTHERS[:6])[: 6 * 6 + 1], stop=7) == (STOPPED, ("look",), 7)


def test_two_rounds_are_no_cycle() -> None:
    """As two of anything."""
    assert judged(A, C, A, C) is None
    assert judged(A, C, A, C, A) == (WARNED, ("look", "write"), 3)


# Whatever it is, eight of the same call


CALL = st.builds(
    Made,
    st.sampled_from(["look", "write", "peek"]),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)),
    st.sampled_from(["fine", "well"]),
    st.sampled_from([Outcome.OK, Outcome.ERROR]),
)


@given(
    st.lists(st.lists(CALL, max_size=4), min_size=7, max_size=7),
    st.dictionaries(st.sampled_from("cd"), st.integers(0, 2)),
    st.randoms(use_true_random=False),
)
def test_eight_of_the_same_call_always_end_the_run(
    between: list[list[Made]], given: dict[str, object], random: Any
) -> None:
    """Before the model is asked again, whatever stands between, whatever came of it, however they came."""
    same = [look(came=f"came {n}", z=1, **given) for n in range(8)]
    flat = [each for one, others in zip(same, between, strict=False) for each in (one, *others)] + [same[-1]]
    answers: list[Answer] = []
    while flat:
        count = random.randint(1, 3)
        answers.append(tuple(flat[:count]))
        flat = flat[count:]
    loop = seen(*answers)
    assert loop is not None
    assert loop.stage is STOPPED


@given(st.lists(st.lists(CALL, min_size=1, max_size=3), min_size=1, max_size=20), st.sampled_from([2, 3]))
def test_what_is_found_is_true(answers: list[list[Made]], warn: int) -> None:
    """Its tools were called in the latest answer, and so often at least among the latest calls."""
    history = said(*map(tuple, answers))
    loop = found(history, config(loops=Loops(warn=warn)), (), 0)
    if loop is None:
        return
    names = [made.name for made, _ in latest(history, 40)]
    assert loop.count >= warn
    assert any(one.tool in loop.tools for one in answers[-1])
    assert all(loop.count <= names.count(tool) + (len(loop.tools) > 1) for tool in loop.tools)
    assert all(tool in loop.text for tool in loop.tools)
    assert str(loop.count) in loop.text


# What is set


@pytest.mark.parametrize(
    ("loops", "expected"),
    [
        (Loops.never(), None),
        (Loops(warn=None), STOPPED),
        (Loops(stop=None), STOPPED),
        (Loops(same=None, stop=None), WITHDRAWN),
        (Loops(same=None, stop=None, withdraw=None), WARNED),
        (Loops(same=None, stop=None, withdraw=None, warn=41), None),
        (Loops(warn=None, withdraw=None, stop=None, same=7), STOPPED),
        (Loops(warn=None, withdraw=None, stop=None, same=8), None),
    ],
)
def test_each_threshold_may_be_another_or_none(loops: Loops, expected: LoopStage | None) -> None:
    """Seven times the same call with the same result."""
    loop = found(said(*[look(path="a")] * 7), config(loops=loops), (), 7)
    assert (loop and loop.stage) == expected


def test_a_threshold_of_two_is_the_lowest_that_means_something() -> None:
    """Once is no repetition."""
    assert judged(look(path="a"), warn=1) is None
    assert judged(*[look(path="a")] * 2, warn=2) == (WARNED, ("look",), 2)


# What was withdrawn


def test_what_was_done_is_not_done_again_before_it_is_over() -> None:
    """The tool is away; it is taken away again where it is called once more, or is back and called again."""
    calls = [look(path="a")] * 5
    first, again = seen(*calls), [WithdrawTool(tool="look", until=8, count=5)]
    assert first is not None
    assert (first.acts, first.done) == (True, False)
    then = seen(*calls, withdrawn=again)
    assert then == attrs.evolve(first, done=True)
    assert then is not None
    assert not then.acts
    more = seen(*calls, look("Tool not found", path="a"), withdrawn=again)
    assert more is not None
    assert (more.stage, more.count, more.acts) == (WITHDRAWN, 6, True)
    back = found(said(*calls), config(), again, 8)
    assert back is not None
    assert back.acts


def test_of_two_that_are_to_be_withdrawn_the_one_that_is_still_there_comes_first() -> None:
    """A model may call both at once, one of them although it is away."""
    both = [(look(path="a"), Made("peek", {"path": "b"}), OTHERS[n]) for n in range(4)]
    calls: list[Answer] = [look(path="a"), *both, (look("gone", path="a"), Made("peek", {"path": "b"}))]
    away = [WithdrawTool(tool="look", until=9, count=6)]
    loop = found(said(*calls), config(loops=Loops(same=None)), away, 6)
    assert loop is not None
    assert (loop.stage, loop.tools, loop.count, loop.acts) == (WITHDRAWN, ("peek",), 5, True)


def test_a_tool_is_away_until_its_turn_has_come() -> None:
    """The turn is counted from the beginning of the run."""
    withdrawn = [WithdrawTool(tool="look", until=8, count=5), WithdrawTool(tool="peek", until=6, count=5)]
    assert [sorted(away(withdrawn, turns)) for turns in (5, 6, 7, 8)] == [
        ["look", "peek"],
        ["look"],
        ["look"],
        [],
    ]


# In a run


def repeats(run: MachineHarness, count: int, tool: str = "look", **given: object) -> None:
    """The model calls the same *count* times, and each is answered."""
    for _ in range(count):
        run.say(call(0, tool, **{"path": "a", **given}))
        run.end(tool)


def asked(run: MachineHarness) -> CallModel:
    """The request that was made last."""
    (request,) = run.got(CallModel)
    return request


def test_a_warning_is_for_the_next_request_only() -> None:
    """It is no part of the conversation."""
    run = MachineHarness()
    repeats(run, 2)
    assert asked(run).instructions == ""
    repeats(run, 1)
    text = (
        "look was called alike 3 times. Do not repeat it: use what you have, try another way, "
        "or say what is missing."
    )
    assert asked(run).instructions == text
    assert run.got(LoopDetected) == [LoopDetected(stage=WARNED, tools=("look",), count=3, text=text)]
    repeats(run, 1, path="b")
    assert asked(run).instructions == ""
    assert run.got(LoopDetected) == []
    assert all("alike" not in text for _, text in run.talk)


def test_whoever_watches_is_told_once_and_the_model_each_time_it_is_asked() -> None:
    """A request that is tried again says it again."""
    run = MachineHarness()
    repeats(run, 3)
    warning = asked(run).instructions
    run.fail(Failure.OVERLOADED)
    (timer,) = run.got(SetTimer)
    run.wake(timer.due)
    assert (asked(run).attempt, asked(run).instructions) == (2, warning)
    assert len(run.all(LoopDetected)) == 1


def test_a_tool_that_was_withdrawn_is_not_offered_for_three_turns() -> None:
    """The model is told in the first of them; then it is there again."""
    run = MachineHarness()
    repeats(run, 5)
    ((told,), first) = run.got(LoopDetected), asked(run)
    assert (told.stage, told.tools, told.count) == (WITHDRAWN, ("look",), 5)
    assert told.text == (
        "look was called alike 5 times, so look is not offered for 3 turns. "
        "Try another way, or say what is missing."
    )
    assert (first.instructions, "look" in first.tools, "note" in first.tools) == (told.text, False, True)
    for number in range(2):
        repeats(run, 1, "note", path=str(number))
        assert (asked(run).instructions, "look" in asked(run).tools) == ("", False)
    repeats(run, 1, "note", path="2")
    assert "look" in asked(run).tools
    assert run.got(LoopDetected) == []


def test_a_call_to_a_withdrawn_tool_is_an_error_and_takes_it_away_for_longer() -> None:
    """Nothing runs; what was called so often in vain counts on."""
    run = MachineHarness()
    repeats(run, 5)
    for count in (6, 7):
        run.say(call(0, "look", path="a"))
        assert run.started == []
        assert run.results[-1][:2] == ("look", "error")
        assert [(one.stage, one.count) for one in run.got(LoopDetected)] == [(WITHDRAWN, count)]
        assert "look" not in asked(run).tools
    assert run.machine.memory.progress.withdrawn == (WithdrawTool(tool="look", until=10, count=7),)
    run.say(call(0, "look", path="a"))
    assert run.reason == "loop_detected"


@pytest.mark.parametrize(
    ("loops", "count"), [(Loops(), 6), (Loops(same=None), 8), (Loops(stop=7, same=None), 7)]
)
def test_a_run_in_circles_ends_before_the_model_is_asked_again(loops: Loops, count: int) -> None:
    """With what was repeated as its detail, and a history that every provider takes."""
    run = MachineHarness(config(loops=attrs.evolve(loops, withdraw=None)))
    repeats(run, count)
    (told,), (ended,) = run.got(LoopDetected), run.got(RunEnded)
    assert run.got(CallModel) == []
    assert (ended.reason, ended.detail) == (DoneReason.LOOP_DETECTED, told.text)
    assert (
        told.text
        == f"look was called alike {count} times, {count} times with the same result; the run was stopped"
    )
    assert (told.stage, told.count) == (STOPPED, count)
    assert history_faults(run.machine.memory.history) == []


def test_the_tools_of_a_cycle_are_withdrawn_together() -> None:
    """One alone would leave half of it."""
    run = MachineHarness()
    for _ in range(4):
        repeats(run, 1)
        repeats(run, 1, "note")
    repeats(run, 1)
    assert run.machine.memory.progress.withdrawn == (
        WithdrawTool(tool="look", until=12, count=5),
        WithdrawTool(tool="note", until=12, count=5),
    )
    assert not {"look", "note"} & set(asked(run).tools)


def test_what_a_person_says_begins_anew() -> None:
    """They may want just that."""
    run = MachineHarness()
    repeats(run, 2)
    run.say(call(0, "look", path="a"))
    run.steer("once more")
    run.end("look")
    repeats(run, 2)
    assert run.all(LoopDetected) == []


def test_nothing_is_looked_for_where_that_is_off() -> None:
    """However often."""
    run = MachineHarness(config(loops=Loops.never()))
    repeats(run, 50)
    assert run.all(LoopDetected) == []
    assert run.label == "streaming"


def test_a_run_that_reads_a_long_file_is_left_alone() -> None:
    """A hundred pages of it."""
    run = MachineHarness(config(tools=(ToolSpec(name="look", side_effect=SideEffect.READ_ONLY),)))
    for number in range(100):
        run.say(call(0, "look", path="a", offset=number * 100, limit=100))
        run.end("look", "nothing")
    assert run.all(LoopDetected) == []


def offered(run: MachineHarness) -> Iterable[tuple[str, ...]]:
    """The tools that were offered in each request."""
    return [request.tools for request in run.all(CallModel)]


def test_the_same_events_lead_to_the_same_end() -> None:
    """What is remembered to be quick changes nothing."""
    runs = [MachineHarness(), MachineHarness()]
    for run in runs:
        repeats(run, 5)
        repeats(run, 3, "note", path="x")
        canonical.cache_clear()
    assert runs[0].machine == runs[1].machine
    assert offered(runs[0]) == offered(runs[1])
