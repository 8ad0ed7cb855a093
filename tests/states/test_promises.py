"""
What must always hold, promise by promise: each is tried on whole runs, or on whatever Hypothesis makes up.

P01 every call has exactly one result, right behind it and in order
    test_every_call_has_its_one_result
P02 turns are completed answers to a turn's request, and never more than there may be
    test_turns_are_completed_answers
P03 an account only grows, and its end tells all that was used; so does a session's, whatever it goes back to
    test_an_account_only_grows
    test_session_play.py test_sessions_survive_whatever_is_done_with_them
P04 a run has one start, which is first, and one end, which is last
    test_a_run_has_one_start_and_one_end
P05 the end absorbs everything
    test_the_end_absorbs_everything
P06 only ways that are on the page are taken
    test_only_ways_on_the_page_are_taken
P07 a transition is a function of its arguments, and changes none of them
    test_a_transition_changes_nothing_it_is_given
P08 what was given up never runs, and a person is asked once whether a call may start
    test_what_was_given_up_never_runs
P09 inputs come in once, in the order of their lane, or are refused; also from other processes
    test_inputs_come_in_once_and_in_order
    test_session_play.py test_what_is_said_from_elsewhere_is_in_the_run_that_was_under_way
P10 a summary parts no call from its result, and makes smaller what a model is shown
    test_a_summary_makes_the_conversation_smaller
P11 waits are between their base and a fifth more, and at most eight; what would fail again is not tried
    test_waits_grow_and_come_to_an_end
    test_the_waits_of_a_run_are_such_waits
P12 who turns pages is in no circle; eight calls alike are stopped before the model is asked again
    test_loops.py test_reading_on_is_never_a_circle
    test_loops.py test_eight_of_the_same_call_always_end_the_run
P13 a child has some of its parent's tools, and none that starts another
    test_a_child_has_some_of_its_parents_tools
    test_children_of_runs_have_such_tools
P14 no subscriber holds up a publisher, and each sees what it sees in order
    test_subscription.py test_a_subscriber_sees_a_subsequence_with_every_end

A run is one prompt's, so its counters begin anew; turns exclude summaries and children; a call is asked about
once per start; P11 holds where no provider says how long to wait; the end of a run reaches each subscriber.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import attrs
import pytest
from hypothesis import given, strategies as st
from provers.audit.views import shown_size
from provers.choices import Seeded
from provers.simulation.player import Play, Player
from provers.simulation.strays import stray
from provers.simulation.watched import copied, happen

from turnwheel.effects import Effect, events, messages, notices, records, requests, usage
from turnwheel.effects.config import ChildSpec, Config, Limits, Retries, SideEffect, ToolKind, ToolSpec
from turnwheel.effects.history import History
from turnwheel.engine.core.machine import advance, ignored
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.limits import child_tools
from turnwheel.states.rules.retry import retry_delay
from turnwheel.states.table import LEGAL
from turnwheel.testing.harness import config

TESTS = Path(__file__).resolve().parents[1]

SESSIONS = 60
"""So many sessions of two runs each are looked at."""


@pytest.fixture(scope="module")
def plays() -> list[Play]:
    """The runs of many sessions, two each, under settings of all kinds."""
    played: list[Play] = []
    for seed in range(SESSIONS):
        first = Player(Seeded(seed)).play()
        second = Player(Seeded(seed + SESSIONS), before=first.end, run="r2").play()
        played += [first, second]
    return played


@final
@attrs.frozen
class Seen:
    """The conversation before an *effect*, of which results before index *cleared* are left out."""

    effect: Effect
    history: History
    cleared: int


def seen(play: Play) -> Iterator[Seen]:
    """Each effect of *play* with the conversation before it, folded from the effects alone."""
    history, cleared = play.began.memory.history, play.began.memory.conversation.cleared
    for effect in play.effects:
        yield Seen(effect, history, cleared)
        match effect:
            case records.AppendMessage(message=message):
                history = history.append(message)
            case records.ReplaceHistory(head=head, keep=keep):
                history = history.replace(head, keep)
                cleared = max(0, cleared - keep + len(head))
            case records.ClearResults(before=before):
                cleared = before
            case _:
                pass


def of(kind: type, play: Play) -> list[Effect]:
    return [effect for effect in play.effects if isinstance(effect, kind)]


# P01 to P04: a run as a whole


def test_every_call_has_its_one_result(plays: list[Play]) -> None:
    shown = 0
    for play in plays:
        for one in seen(play):
            if isinstance(one.effect, requests.CallModel):
                assert history_faults(one.history.slice(0, one.effect.view.length)) == []
                shown += 1
        assert history_faults(play.end.memory.history) == []
    assert shown > SESSIONS


def test_turns_are_completed_answers(plays: list[Play]) -> None:
    for play in plays:
        asked = {
            one.id
            for one in play.effects
            if isinstance(one, requests.CallModel) and one.purpose is requests.Purpose.TURN
        }
        answers = [
            one for one in play.journal if isinstance(one, events.ModelFinished) and one.request in asked
        ]
        turns = play.end.memory.spent.turns
        assert turns == len(answers) == len(of(notices.TurnEnded, play))
        limit = play.began.config.limits.turns
        assert limit is None or turns <= limit or any(isinstance(one, Config) for one in play.journal)


def told(play: Play) -> int:
    """All tokens that models and children of *play* said they used."""
    children: dict[str, int] = {}
    models = 0
    for one in play.journal:
        if isinstance(one, events.ModelFinished | events.ModelFailed):
            models += 0 if one.usage is None else one.usage.total
        elif isinstance(one, events.AgentProgressed | events.AgentFinished):
            more = one.spent.usage.total
            children[one.request] = (
                more if isinstance(one, events.AgentProgressed) else max(more, children.get(one.request, 0))
            )
    return models + sum(children.values())


def test_an_account_only_grows(plays: list[Play]) -> None:
    for play in plays:
        total = usage.Spent()
        for effect in play.effects:
            if isinstance(effect, records.AddUsage):
                more = total + effect.spent
                assert (more.usage.input, more.usage.output, more.cost, more.seconds) >= (
                    total.usage.input,
                    total.usage.output,
                    total.cost,
                    total.seconds,
                )
                assert min(attrs.astuple(effect.spent.usage)) >= 0
                total = more
        (end,) = [one for one in play.effects if isinstance(one, notices.RunEnded)]
        assert end.spent == total == play.end.memory.spent
        assert total.usage.total - total.usage.estimated == told(play)


def test_a_run_has_one_start_and_one_end(plays: list[Play]) -> None:
    for play in plays:
        assert isinstance(play.effects[0], notices.RunStarted)
        assert isinstance(play.effects[-1], notices.RunEnded)
        assert (len(of(notices.RunStarted, play)), len(of(notices.RunEnded, play))) == (1, 1)


# P05 to P07: a transition


def test_the_end_absorbs_everything(plays: list[Play]) -> None:
    for seed, play in enumerate(plays):
        machine, choices = copied(play.end), Seeded(seed)
        late = [stray(choices, [], [], play.journal, 1_000.0) for _ in range(5)]
        news = events.UserSent(at=1_000.0, id="late", text="more"), events.Interrupted(at=1_000.0)
        for event in (*late, *news, *[one for one in play.journal if not isinstance(one, Config)][-5:]):
            assert ignored(machine.advance(event))
            assert machine == play.end


def test_only_ways_on_the_page_are_taken(plays: list[Play]) -> None:
    for play in plays:
        assert play.rows <= LEGAL


def test_a_transition_changes_nothing_it_is_given(plays: list[Play]) -> None:
    for play in plays[:60]:
        machine = copied(play.began)
        machine.advance()
        for event in play.journal:
            if not isinstance(event, Config):
                before = machine.snapshot(), list(machine.memory.history)
                once, again = [
                    advance(machine.config, machine.state, machine.memory, event) for _ in range(2)
                ]
                assert once == again
                assert (machine.snapshot(), list(machine.memory.history)) == before
            happen(machine, event)


# P08, P09: calls and inputs

GIVEN_UP = {messages.Outcome.DENIED, messages.Outcome.SKIPPED}
"""How a call ends that was never started."""


def test_what_was_given_up_never_runs(plays: list[Play]) -> None:
    """
    Nothing is started twice, or after it has ended; and a person is asked once whether it may.

    What may have run when its process was lost starts again by a person's yes to that, and by nothing else.
    """
    for play in plays:
        started: list[str] = []
        asked: list[str] = []
        doubted: dict[str, str] = {}
        over: set[str] = set()
        for effect in play.effects:
            match effect:
                case requests.RunTool(call=name) | requests.RunAgent(call=name):
                    assert name not in over
                    assert name not in doubted
                    started.append(name)
                case requests.AskApproval(call=name) if effect.again:
                    assert name not in over
                    started.remove(name)
                    doubted[name] = effect.id
                case notices.ApprovalResolved(
                    request=request, decision=events.Approve() | events.ApproveAlways()
                ):
                    doubted = {name: asks for name, asks in doubted.items() if asks != request}
                case requests.AskApproval(call=name):
                    assert name not in over
                    asked.append(name)
                case notices.CallSettled(call=name, outcome=outcome):
                    assert outcome not in GIVEN_UP or name not in started
                    over.add(name)
                case _:
                    pass
        assert len(set(started)) == len(started)
        assert len(set(asked)) == len(asked)


def test_inputs_come_in_once_and_in_order(plays: list[Play]) -> None:
    for play in plays:
        mail = play.began.memory.session.mail
        lanes = {one.id: one.lane for one in mail}
        texts = {one.id: (one.text, one.at) for one in mail}
        for event in play.journal:
            if isinstance(event, events.UserSent | events.UserSteered):
                lanes[event.id] = (
                    records.MailKind.PROMPT if isinstance(event, events.UserSent) else records.MailKind.STEER
                )
                texts[event.id] = event.text, event.at
        taken = [one for one in play.effects if isinstance(one, notices.InputTaken | notices.InputBlocked)]
        told = [one.id for one in play.effects if isinstance(one, notices.InputDropped)]
        dropped = [name for name in told if name in lanes]  # others have not come, and never will
        came = [*[name for one in taken for name in one.ids], *dropped]
        left = [one.id for one in play.end.memory.session.mail]
        for lane in records.MailKind:
            queue = [name for name in lanes if lanes[name] is lane]
            # A prompt may wait while what its sender added later comes in with an earlier one of theirs.
            assert sorted(came + left) == sorted(lanes)
            assert [name for name in left if lanes[name] is lane] == [name for name in queue if name in left]
        for one in taken:
            if isinstance(one, notices.InputTaken):
                said = [(message.text, message.at) for message in one.messages]
                assert said == joined([(lanes[name], *texts[name]) for name in one.ids])


def joined(inputs: Sequence[tuple[records.MailKind, str, float]]) -> list[tuple[str, float]]:
    """Text and time of what *inputs* become: all prompts one message, in place of the first; a steer one."""
    prompts = [(text, at) for lane, text, at in inputs if lane is records.MailKind.PROMPT]
    said: list[tuple[str, float]] = []
    for lane, text, at in inputs:
        if lane is records.MailKind.STEER:
            said.append((text, at))
        elif prompts:
            said.append(("\n".join(text for text, _ in prompts), prompts[-1][1]))
            prompts = []
    return said


# P10 to P12: what keeps a long run going


def test_a_summary_makes_the_conversation_smaller(plays: list[Play]) -> None:
    rewritten = 0
    for play in plays:
        for one in seen(play):
            if isinstance(one.effect, records.ReplaceHistory):
                after = one.history.replace(one.effect.head, one.effect.keep)
                cleared = max(0, one.cleared - one.effect.keep + len(one.effect.head))
                assert shown_size(tuple(after), cleared) < shown_size(tuple(one.history), one.cleared)
                assert list(after)[len(one.effect.head) :] == list(one.history)[one.effect.keep :]
                assert (
                    one.effect.keep == len(one.history)
                    or one.history[one.effect.keep].role is not messages.Role.TOOL
                )
                rewritten += 1
        assert len(of(records.ReplaceHistory, play)) == len(of(notices.Compacted, play))
    assert rewritten > 3


OVERLOADED = (events.Failure.RATE_LIMIT, events.Failure.OVERLOADED)
TRANSIENT = (events.Failure.SERVER, events.Failure.TIMEOUT, events.Failure.CONNECTION, events.Failure.CUT)


@given(st.sampled_from(events.Failure), st.integers(1, 30), st.floats(0, 1, exclude_max=True))
def test_waits_grow_and_come_to_an_end(failure: events.Failure, attempt: int, jitter: float) -> None:
    failed = events.ModelFailed(at=0.0, request="r-1", failure=failure, message="no", jitter=jitter)
    delay = retry_delay(Retries(), failed, attempt)
    most = 8 if failure in OVERLOADED else 3 if failure in TRANSIENT else 0
    if failure is events.Failure.LOST:
        assert delay == 0.0  # no provider refused it
    elif attempt > most:
        assert delay is None
    else:
        base = 2.0 * 2 ** (attempt - 1)
        assert delay is not None
        assert base <= delay <= 1.2 * base


def test_the_waits_of_a_run_are_such_waits(plays: list[Play]) -> None:
    seen_any = False
    for play in plays:
        if any(isinstance(one, Config) for one in play.journal):
            continue
        failures = {one.at: one for one in play.journal if isinstance(one, events.ModelFailed)}
        for one in of(notices.RetryScheduled, play):
            assert isinstance(one, notices.RetryScheduled)
            due = [
                at
                for at, failed in failures.items()
                if failed.retry_after is None and failed.failure is one.failure
            ]
            bases = [(at, 2.0 * 2 ** (one.attempt - 2)) for at in due]
            lost = one.failure is events.Failure.LOST
            asked = any(failed.retry_after is not None for failed in failures.values())
            assert (
                lost or asked or any(base - 1e-9 <= one.due - at <= 1.2 * base + 1e-9 for at, base in bases)
            )
            seen_any = True
    assert seen_any


# P13: children


tools = st.lists(
    st.builds(
        ToolSpec,
        name=st.sampled_from("abcdefgh"),
        side_effect=st.sampled_from(SideEffect),
        kind=st.sampled_from(ToolKind),
    ),
    unique_by=lambda tool: tool.name,
)


@given(tools, st.none() | st.lists(st.sampled_from("abcdefghxyz")).map(tuple))
def test_a_child_has_some_of_its_parents_tools(given: list[ToolSpec], wanted: tuple[str, ...] | None) -> None:
    parent = config(tools=tuple(given), children=())
    names = child_tools(parent, ChildSpec(name="kid", tools=wanted, limits=Limits()))
    plain = {tool.name: tool for tool in given if tool.kind is ToolKind.FUNCTION}
    assert set(names) <= set(plain)
    assert len(set(names)) == len(names)
    if wanted is None:
        assert all(plain[name].side_effect is SideEffect.READ_ONLY for name in names)
    else:
        assert set(names) == set(plain) & set(wanted)


def test_children_of_runs_have_such_tools(plays: list[Play]) -> None:
    started = 0
    for play in plays:
        agents = {tool.name for tool in play.began.config.tools if tool.kind is ToolKind.AGENT}
        for one in of(requests.RunAgent, play):
            assert isinstance(one, requests.RunAgent)
            assert not agents & set(one.tools)
            started += 1
    assert started > 20


# The table above


ROW = re.compile(r"^    (?:(test_\w+\.py) )?(test_\w+)$", re.MULTILINE)


def defined(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_table_names_tests_that_are_there() -> None:
    text = __doc__ or ""
    promises = re.split(r"^(?=P\d\d )", text, flags=re.MULTILINE)[1:]
    assert [promise[:3] for promise in promises] == [f"P{number:02}" for number in range(1, 15)]
    assert all(ROW.search(promise) for promise in promises)
    rows: list[tuple[str, str]] = ROW.findall(text)
    for file, name in rows:
        [path] = TESTS.rglob(file or Path(__file__).name)
        assert name in defined(path), name
    here = {name for name in defined(Path(__file__)) if name.startswith("test_")}
    assert here - {name for file, name in rows if not file} == {"test_the_table_names_tests_that_are_there"}
