"""Whether a model goes in circles: what counts as a repetition, how often, and what is done about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, final

import attrs
import pytest
from hypothesis import given, strategies as st

from turnwheel.effects import messages, notices, records, requests
from turnwheel.effects.config import Loops
from turnwheel.effects.history import History
from turnwheel.states.rules.loops import (
    LONG_ARGUMENTS,
    LONGEST_CYCLE,
    PAGES,
    WINDOW,
    Loop,
    alike,
    away,
    canonical,
    found,
    latest,
    remembered,
    repeated,
    window,
)
from turnwheel.testing.harness import MachineHarness, call, config

WARNED, WITHDRAWN, STOPPED = notices.LoopStage.WARNED, notices.LoopStage.WITHDRAWN, notices.LoopStage.STOPPED


@final
@attrs.frozen
class Made:
    """A call of *tool* that was *given* arguments, as a value or as text, and what came of it."""

    tool: str
    given: object
    came: str = "fine"
    outcome: messages.Outcome = messages.Outcome.OK


Answer = Made | tuple[Made, ...]
"""One call, or several at once."""


def said(*answers: Answer | str) -> History:
    """What was said: prompts, which are text, and answers with their results."""
    history = History.of(messages.user("go"))
    for number, answer in enumerate(answers):
        if isinstance(answer, str):
            history = history.append(messages.user(answer))
            continue
        made = answer if isinstance(answer, tuple) else (answer,)
        ids = [f"r-{number}-{index}" for index in range(len(made))]
        wishes = [
            messages.ToolCall(
                id=id_,
                wire_id="call_0",
                name=one.tool,
                arguments=one.given if isinstance(one.given, str) else json.dumps(one.given),
            )
            for id_, one in zip(ids, made, strict=True)
        ]
        came = [
            messages.ToolResult(
                call=id_, wire_id="call_0", name=one.tool, content=one.came, outcome=one.outcome
            )
            for id_, one in zip(ids, made, strict=True)
        ]
        parts: tuple[messages.Part, ...] = (
            messages.Text(text="well"),
            *wishes,
            messages.Finish(reason=messages.StopReason.TOOL_USE),
        )
        history = history.append(messages.Message(role=messages.Role.ASSISTANT, parts=parts))
        history = history.append(messages.Message(role=messages.Role.TOOL, parts=tuple(came)))
    return history


def look(came: str = "fine", **given: object) -> Made:
    return Made("look", given, came)


def write(came: str = "fine", **given: object) -> Made:
    return Made("write", given, came)


def failed(made: Made, why: str = "no", outcome: messages.Outcome = messages.Outcome.ERROR) -> Made:
    return attrs.evolve(made, came=why, outcome=outcome)


def seen(*answers: Answer | str, withdrawn: Sequence[records.WithdrawTool] = (), **loops: Any) -> Loop | None:
    return found(said(*answers), config(loops=Loops(**loops)), withdrawn, len(answers), 0.0)


def judged(*answers: Answer | str, **loops: Any) -> tuple[notices.LoopStage, tuple[str, ...], int] | None:
    loop = seen(*answers, **loops)
    return None if loop is None else (loop.notice.stage, loop.notice.tools, loop.notice.count)


# When arguments are alike


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # the same
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ('{"a": {"b": [1, 2], "c": 3}}', '{"a": {"c": 3, "b": [1, 2]}}', True),
        ('{"a": 1}', '{"a": 1.0}', True),
        ('{"a": [1e2]}', '{"a": [100]}', True),
        ('{"a": 1.5}', '{"a": 1.50}', True),
        ("", "{}", True),
        ("{oops", "{oops", True),
        # another value
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1.5}', '{"a": 1.7}', False),
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
    assert alike(one, other) is expected
    assert alike(other, one) is expected


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
    turned = json.dumps(dict(reversed(list(given.items()))), indent=1)
    assert canonical(json.dumps(given)) == canonical(turned)
    assert alike(json.dumps(given), turned)


@given(st.text(max_size=40) | st.text(alphabet='{}[]":,1e.\\', max_size=40), st.text(max_size=9))
def test_any_text_may_stand_for_arguments(one: str, other: str) -> None:
    assert alike(one, one)
    assert alike(one, other) is alike(other, one)
    assert judged(*[Made("look", one)] * 3) == (WARNED, ("look",), 3)


def test_long_and_deep_arguments_are_compared_as_text() -> None:
    long = "x" * LONG_ARGUMENTS
    assert alike(f'{{"a":"{long}"}}', f'{{"a":"{long}"}}')
    assert not alike(f'{{"a":"{long}"}}', f'{{"a": "{long}"}}')
    assert not alike(f'{{"a": 1, "b": "{long}"}}', '{"a": 1, "b": ""}')
    assert canonical(DEEP) == DEEP


# What is found

OTHERS = [look(path=str(n), came=str(n)) for n in range(40)]
SAME = look(path="a")
MAKE = [Made("write", {"command": "make test"}, f"{n} failed") for n in range(8)]
SEARCHES = [look("nothing", where="src", what=str(n)) for n in range(16)]
EDITS = [failed(write(path="a", old=str(n)), f"no {n} in it") for n in range(8)]
HIT = look("here", where="src", what="it")
DEEP = '{"a":' + "[" * 400 + "]" * 400 + "}"
ROUNDS = [each for n in range(8) for each in (*OTHERS[4 * n : 4 * n + 4], look(path="a", came=f"came {n}"))]
A, B, C, D = look(path="a"), look(path="b", came="b"), write(path="c"), Made("peek", {})
NEVER = {"warn": None, "withdraw": None, "stop": None}


def changing(*calls: Made) -> list[Answer]:
    """Nine rounds of *calls*, each of which brings something else each time."""
    return [attrs.evolve(each, came=f"{each.came} {n}") for n in range(9) for each in calls]


Case = tuple[list[Any], tuple[notices.LoopStage, str, int] | None]
FOUND: dict[str, Case | tuple[list[Any], tuple[notices.LoopStage, str, int] | None, dict[str, Any]]] = {
    # the same call with the same result ends the run at the sixth
    **{f"the same {n} times": ([SAME] * n, None) for n in (1, 2)},
    **{f"the same {n} times": ([SAME] * n, (WARNED, "look", n)) for n in (3, 4)},
    "the same 5 times": ([SAME] * 5, (WITHDRAWN, "look", 5)),
    **{f"the same {n} times": ([SAME] * n, (STOPPED, "look", min(n, window(Loops())))) for n in (6, 8, 60)},
    # to run the tests after each change is work, so nothing is taken away for it
    "something new 2 times": (MAKE[:2], None),
    "something new 3 times": (MAKE[:3], (WARNED, "write", 3)),
    "something new 7 times": (MAKE[:7], (WARNED, "write", 7)),
    "something new 8 times": (MAKE, (STOPPED, "write", 8)),
    # what stands between, and how far back it is looked
    "four others between": (ROUNDS, (STOPPED, "look", 8)),
    "four others between, stopped later": (ROUNDS, (WARNED, "look", 8), {"same": None, "stop": 9}),
    "among the latest forty": ([SAME, SAME, *OTHERS[:37], SAME], (WARNED, "look", 3)),
    "before the latest forty": ([SAME, SAME, *OTHERS[:38], SAME], None),
    "eight in one answer": ([(SAME,) * 8], (STOPPED, "look", 8)),
    "first of two in an answer": ([(SAME, OTHERS[n]) for n in range(3)], (WARNED, "look", 3)),
    "second of two in an answer": ([(OTHERS[n], SAME) for n in range(3)], (WARNED, "look", 3)),
    "gone on to something else": ([SAME] * 5 + [look(path="b")], None),
    "come back to it": ([SAME] * 4 + [look(path="b"), SAME], (WITHDRAWN, "look", 5)),
    "a person spoke": ([SAME] * 7 + ["and again?"] + [SAME] * 2, None),
    "a person spoke last": ([SAME] * 7 + ["and again?"], None),
    "tools of other names": ([SAME, write(path="a"), Made("peek", {"path": "a"})], None),
    # similar calls: reads that find the same, and whatever fails
    "similar reads, 2": (SEARCHES[:2], None),
    "similar reads, 3": (SEARCHES[:3], (WARNED, "look", 3)),
    "similar reads, 5": (SEARCHES[:5], (WITHDRAWN, "look", 5)),
    "similar reads, 7": (SEARCHES[:7], (WITHDRAWN, "look", 7)),
    "similar reads, 8": (SEARCHES[:8], (STOPPED, "look", 8)),
    "one found something": ([*SEARCHES[:7], HIT, *SEARCHES[7:9]], None),
    "others between similar reads": (
        [SEARCHES[0], write(path="a"), SEARCHES[1], D, SEARCHES[2]],
        (WARNED, "look", 3),
    ),
    "similar reads at once, made unseen": ([tuple(SEARCHES[:9])], None),
    "similar reads in three answers": ([tuple(SEARCHES[n : n + 3]) for n in (0, 3, 6)], (WARNED, "look", 3)),
    "similar writes that fail": (EDITS[:3], (WARNED, "write", 3)),
    "similar writes that fail 8 times": (EDITS, (STOPPED, "write", 8)),
    "similar writes that are denied": (
        [failed(write(path="a", old=str(n)), outcome=messages.Outcome.DENIED) for n in range(8)],
        (STOPPED, "write", 8),
    ),
    "arguments that cannot be read": (
        [failed(Made("look", "{" + "[" * n)) for n in range(8)],
        (STOPPED, "look", 8),
    ),
    "a tool that is gone may do anything": ([Made("gone", {"a": 1, "b": n}) for n in range(9)], None),
    "failures of a tool that is gone": (
        [failed(Made("gone", {"a": 1, "b": n})) for n in range(3)],
        (WARNED, "gone", 3),
    ),
    "the same result among similar calls": (
        [look("nothing", where="src", what=str(n % 3 if n < 12 else 0)) for n in range(16)],
        (STOPPED, "look", 8),
        NEVER,
    ),
    "long contents, the same": ([write(path="a", text="x" * LONG_ARGUMENTS)] * 3, (WARNED, "write", 3)),
    "long contents, others": (
        [failed(write(path="a", text=f"{n}" + "x" * LONG_ARGUMENTS)) for n in range(9)],
        None,
    ),
    "nested deeper than any tool takes": ([Made("look", DEEP)] * 3, (WARNED, "look", 3)),
    # cycles: all tools are named
    "two by turns": (changing(A, C)[:6], (WARNED, "look write", 3)),
    "two of one tool by turns": (changing(A, B)[:6], (WARNED, "look", 3)),
    "twice and once": (changing(A, A, C)[:9], (WARNED, "look write", 3)),
    "four by turns": (changing(A, B, C, D)[:12], (WARNED, "look write peek", 3)),
    "five by turns": (changing(*OTHERS[:5])[:15], (WARNED, "look", 3)),
    "two by turns, two rounds": ([A, C, A, C], None),
    "two by turns, two rounds and a half": ([A, C, A, C, A], (WARNED, "look write", 3)),
    "a cycle in one answer": ([(A, C)] * 3, (WARNED, "look write", 3)),
    "a cycle in one answer, five times": ([(A, C)] * 5, (WITHDRAWN, "look write", 5)),
    "six by turns, as far back as is looked": (changing(*OTHERS[:6])[:37], (STOPPED, "look", 7), {"stop": 7}),
    "six by turns, farther back": (changing(*OTHERS[:6])[:43], (WARNED, "look", 7), {"stop": 8}),
    # thresholds
    "once is no repetition": ([SAME], None, {"warn": 1}),
    "a threshold of two": ([SAME] * 2, (WARNED, "look", 2), {"warn": 2}),
    "no warning": ([SAME] * 7, (STOPPED, "look", 7), {"warn": None}),
    "no stop": ([SAME] * 7, (STOPPED, "look", 7), {"stop": None}),
    "no stop for the same": ([SAME] * 7, (WITHDRAWN, "look", 7), {"same": None, "stop": None}),
    "only warnings": ([SAME] * 7, (WARNED, "look", 7), {**NEVER, "same": None, "warn": 3}),
    "warnings that come later": ([SAME] * 7, None, {**NEVER, "same": None, "warn": 41}),
    "only the same, 7": ([SAME] * 7, (STOPPED, "look", 7), {**NEVER, "same": 7}),
    "only the same, 8": ([SAME] * 7, None, {**NEVER, "same": 8}),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found(name: str) -> None:
    answers, expected, *loops = FOUND[name]
    found_ = judged(*answers, **(loops[0] if loops else {}))
    assert found_ == (None if expected is None else (expected[0], tuple(expected[1].split()), expected[2]))


def test_nothing_is_found_in_nothing_or_where_it_is_off() -> None:
    assert found(History.of(), config(), (), 0, 0.0) is None
    assert found(said(*[SAME] * 60), config(loops=Loops.never()), (), 7, 0.0) is None


@pytest.mark.parametrize(
    ("cycle", "ends"), [((A, C), 15), ((A, B), 15), ((A, A, C), 11), ((A, B, C, D), 29), (OTHERS[:5], 36)]
)
def test_a_cycle_ends_with_the_first_call_made_eight_times(cycle: tuple[Made, ...], ends: int) -> None:
    rounds = changing(*cycle)
    stages = [(judged(*rounds[:n]) or (None,))[0] for n in range(1, len(rounds))]
    assert stages.index(STOPPED) + 1 == ends


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
    assert [judged(*work[:count]) for count in range(1, len(work) + 1)] == [None] * len(work)


# Reading on


PAGE = st.dictionaries(st.sampled_from(sorted(PAGES)), st.integers(0, 99) | st.text(max_size=2), min_size=1)
"""Where a page is, said in one way or another."""


@given(
    st.lists(PAGE, min_size=2, max_size=60, unique_by=lambda page: canonical(json.dumps(page))),
    st.dictionaries(st.sampled_from(["path", "query", "of"]), st.integers(0, 3)),
    st.sampled_from([messages.Outcome.OK, messages.Outcome.ERROR]),
)
def test_reading_on_is_never_a_circle(
    pages: list[dict[str, object]], other: dict[str, object], outcome: messages.Outcome
) -> None:
    assert judged(*[failed(Made("look", {**other, **page}), "end", outcome) for page in pages]) is None


# Whatever it is, eight of the same call


CALL = st.builds(
    Made,
    st.sampled_from(["look", "write", "peek"]),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)),
    st.sampled_from(["fine", "well"]),
    st.sampled_from([messages.Outcome.OK, messages.Outcome.ERROR]),
)


@given(
    st.lists(st.lists(CALL, max_size=4), min_size=7, max_size=7),
    st.dictionaries(st.sampled_from("cd"), st.integers(0, 2)),
    st.randoms(use_true_random=False),
)
def test_eight_of_the_same_call_always_end_the_run(
    between: list[list[Made]], given: dict[str, object], random: Any
) -> None:
    same = [look(came=f"came {n}", z=1, **given) for n in range(8)]
    flat = [each for one, others in zip(same, between, strict=False) for each in (one, *others)] + [same[-1]]
    answers: list[Answer] = []
    while flat:
        count = random.randint(1, 3)
        answers.append(tuple(flat[:count]))
        flat = flat[count:]
    loop = seen(*answers)
    assert loop is not None
    assert loop.notice.stage is STOPPED


@given(st.lists(st.lists(CALL, min_size=1, max_size=3), min_size=1, max_size=20), st.sampled_from([2, 3]))
def test_what_is_found_is_true(answers: list[list[Made]], warn: int) -> None:
    history = said(*map(tuple, answers))
    found_loop = found(history, config(loops=Loops(warn=warn)), (), 0, 0.0)
    if found_loop is None:
        return
    names, loop = [made.name for made, _ in latest(history, 40)], found_loop.notice
    assert loop.count >= warn
    assert any(one.tool in loop.tools for one in answers[-1])
    assert all(loop.count <= names.count(tool) + (len(loop.tools) > 1) for tool in loop.tools)
    assert all(tool in loop.text for tool in loop.tools)
    assert str(loop.count) in loop.text


# What was summarised


@given(
    st.lists(st.lists(CALL, min_size=1, max_size=3), min_size=3, max_size=60),
    st.lists(st.integers(1, 10), max_size=3),
    st.sampled_from(["", "long " * LONG_ARGUMENTS]),
)
def test_a_summary_changes_nothing_that_is_found(
    answers: list[list[Made]], cuts: list[int], more: str
) -> None:
    """However many there are, whatever the length of arguments and results."""
    given = [
        [attrs.evolve(one, given=f"{more}{one.given}", came=more + one.came) for one in answer]
        for answer in answers
    ]
    whole, loops = said(*map(tuple, given)), Loops()
    history, kept = whole, tuple[messages.Message, ...]()
    for cut in cuts:
        index = min(1 + 2 * cut, len(history) - 2)
        kept = remembered(history.slice(0, index), loops, kept)
        history = history.replace((messages.user("They looked."),), index)
        assert sum(len(message.calls) for message in kept) < window(loops) + 3
    assert found(history, config(), (), 0, 0.0, kept) == found(whole, config(), (), 0, 0.0)


def test_of_many_calls_only_as_many_are_remembered_as_are_looked_at() -> None:
    loops = Loops()
    history = said(*[look(str(number)) for number in range(3 * window(loops))])
    kept = remembered(list(history), loops, ())
    assert [len(message.calls) for message in kept] == [1, 0] * window(loops)
    assert kept[-1].results == history[-1].results


def test_of_long_texts_only_the_beginning_is_remembered() -> None:
    long = "x" * 10 * LONG_ARGUMENTS
    made = [look(long, path=long, n=n) for n in range(3)]
    kept = remembered(list(said(*made)), Loops(), ())
    texts = [
        part.arguments if isinstance(part, messages.ToolCall) else part.content
        for message in kept
        for part in message.parts
        if isinstance(part, messages.ToolCall | messages.ToolResult)
    ]
    assert len(texts) == 6
    assert all(LONG_ARGUMENTS < len(text) < 2 * LONG_ARGUMENTS for text in texts)
    # The calls differ and the results do not.
    assert len(set(texts)) == 4
    short = list(said(*[Made("look", "x" * LONG_ARGUMENTS, "x" * LONG_ARGUMENTS)] * 3))
    assert remembered(short, Loops(), ()) == tuple(
        [attrs.evolve(one, parts=(*one.calls, *one.results)) for one in short[1:]]
    )


@pytest.mark.parametrize("threshold", ["warn", "withdraw", "stop", "same"])
def test_a_cycle_fits_into_what_is_looked_at_as_often_as_each_threshold_says(
    threshold: str,
) -> None:
    assert window(attrs.evolve(Loops.never(), **{threshold: 50})) == 50 * LONGEST_CYCLE
    assert window(Loops.never()) == WINDOW


def test_a_longer_cycle_than_is_looked_for_is_none() -> None:
    def cycle(length: int) -> list[Made]:
        return [look(path=str(n), came=str(n)) for n in range(length)] * 2

    assert judged(*cycle(LONGEST_CYCLE), warn=2, same=None) == (WARNED, ("look",), 2)
    again = repeated(latest(said(*cycle(LONGEST_CYCLE + 1)), window(Loops())), config())
    assert [one.count for one in again] == [2], "the call itself"


def test_what_was_made_alike_twice_in_vain_is_told() -> None:
    twice = [failed(write(path="a", old=str(n)), f"no {n} in it") for n in range(2)]
    assert judged(*twice, warn=2) == (WARNED, ("write",), 2)


def test_calls_without_results_are_repeated_too() -> None:
    whole = said(*[SAME] * 3)
    history = History.of(*[attrs.evolve(one, parts=()) if one.role == "tool" else one for one in whole])
    loop = found(history, config(), (), 3, 5.0)
    assert loop is not None
    assert (loop.notice.stage, loop.notice.count) == (WARNED, 3)


# What was withdrawn


def test_what_was_done_is_not_done_again_before_it_is_over() -> None:
    calls = [look(path="a")] * 5
    first, again = seen(*calls), [records.WithdrawTool(tool="look", until=8, count=5)]
    assert first is not None
    assert (first.acts, first.done) == (True, False)
    then = seen(*calls, withdrawn=again)
    assert then == attrs.evolve(first, done=True)
    assert then is not None
    assert not then.acts
    more = seen(*calls, look("Tool not found", path="a"), withdrawn=again)
    assert more is not None
    assert (more.notice.stage, more.notice.count, more.acts) == (WITHDRAWN, 6, True)
    back = found(said(*calls), config(), again, 8, 0.0)
    assert back is not None
    assert back.acts


def test_of_two_that_are_to_be_withdrawn_the_one_that_is_still_there_comes_first() -> None:
    both = [(look(path="a"), Made("peek", {"path": "b"}), OTHERS[n]) for n in range(4)]
    calls: list[Answer] = [look(path="a"), *both, (look("gone", path="a"), Made("peek", {"path": "b"}))]
    away = [records.WithdrawTool(tool="look", until=9, count=6)]
    now = found(said(*calls), config(loops=Loops(same=None)), away, 6, 0.0)
    assert now is not None
    assert (now.notice.stage, now.notice.tools, now.notice.count, now.acts) == (WITHDRAWN, ("peek",), 5, True)


def test_a_tool_is_away_until_its_turn_has_come() -> None:
    withdrawn = [
        records.WithdrawTool(tool="look", until=8, count=5),
        records.WithdrawTool(tool="peek", until=6, count=5),
    ]
    assert [sorted(away(withdrawn, turns)) for turns in (5, 6, 7, 8)] == [
        ["look", "peek"],
        ["look"],
        ["look"],
        [],
    ]


def test_a_tool_that_was_taken_away_is_not_offered_for_some_turns() -> None:
    run = MachineHarness(config(loops=Loops(withdraw=3, turns=2)))
    offered: list[bool] = []
    for path in "aaabc":
        run.work(call(0, "look" if path == "a" else "note", path=path))
        (request,) = run.got(requests.CallModel)
        offered.append("look" in request.tools)
        assert "note" in request.tools
    assert offered == [True, True, False, False, True]
    assert [one.until for one in run.all(records.WithdrawTool)] == [5]


def test_what_is_remembered_to_be_quick_changes_nothing() -> None:
    runs = [MachineHarness(), MachineHarness()]
    for run in runs:
        for path in "aaaaabbb":
            run.work(call(0, "look" if path == "a" else "note", path=path))
        canonical.cache_clear()
    assert runs[0].machine == runs[1].machine
    assert runs[0].told == runs[1].told
