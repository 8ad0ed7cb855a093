"""What a session knows: the fold of its entries, one by one."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from turnwheel.effects import events
from turnwheel.effects.config import READER, Config, ModelSpec, Policy, Steering, ToolSpec
from turnwheel.effects.errors import JournalError
from turnwheel.effects.history import Rope, TextPiece
from turnwheel.effects.messages import Message, Outcome, Role, ToolCall, ToolResult, user
from turnwheel.effects.notices import CallSettled, RunStarted
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import AppendMessage, ReplaceHistory, SetModel, SetThinking
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.machine import Machine, Step
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import (
    VERSION,
    Branched,
    Entry,
    Forked,
    HandedOver,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
    Titled,
)
from turnwheel.engine.journal.fold import (
    FullResults,
    SessionState,
    apply_entry,
    branch_targets,
    entries_of,
    fold,
    forked_run,
    initial_state,
    is_foreign,
    read,
    try_name,
)
from turnwheel.states import (
    Admitting,
    Batch,
    Call,
    Compacting,
    CompactReason,
    Dispatching,
    Executing,
    Mail,
    Plan,
    Running,
    RunningChild,
    State,
    Steer,
    Stopping,
    Summary,
    Thinking,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / f"v{VERSION}"
CONFIG = Config(model=ModelSpec(name="m"))
PROMPT = events.UserSent(at=1.0, id="p", text="go")
STEER = events.UserSteered(at=1.0, id="s", text="left", how=Steering.NOW)
USED = Usage(input=10, output=5)


def opened(run: str = "r", at: float = 1.0, settings: Config = CONFIG) -> RunOpened:
    return RunOpened(at=at, run=run, config=settings)


def answered(run: str = "r", text: str = "ok", at: float = 2.0) -> Stepped:
    ended = events.ModelFinished(
        at=at, request=f"{run}-1", stop="end_turn", usage=USED, pieces=(TextPiece(text),)
    )
    return Stepped(event=ended, label="done")


def folded(*entries: Entry) -> SessionState:
    return fold([encode_entry(entry) for entry in entries], "s")


ONE: tuple[Entry, ...] = (Posted(event=PROMPT), opened(), answered())


# Entries that do not follow


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([answered()], "entry 0 of session 's' comes before any run was opened"),
        ([Posted(event=PROMPT), answered()], "entry 1 of session 's' comes before any run"),
        ([*ONE, Branched(at=3.0, run="gone")], "entry 3 of session 's': branch to unknown run 'gone'"),
        (
            [Posted(event=PROMPT), opened(), Branched(at=3.0, run="")],
            "entry 2 of session 's': branch during unfinished run 'r'",
        ),
        (
            [*ONE[:2], attrs.evolve(answered(), label="streaming")],
            "entry 2 .* leads to done, but .* streaming",
        ),
    ],
)
def test_an_entry_that_does_not_follow_is_named(entries: list[Entry], why: str) -> None:
    with pytest.raises(JournalError, match=why):
        folded(*entries)


def test_an_entry_that_cannot_be_read_is_named_by_its_place_in_the_journal() -> None:
    data = [encode_entry(entry) for entry in ONE]
    with pytest.raises(JournalError, match="entry 1 of session 's'"):
        fold([data[0], b"x"], "s")
    known = fold(data[:2], "s")
    with pytest.raises(JournalError, match="entry 2 of session 's'"):
        fold([b"x"], "s", known, 2)


def test_a_fold_goes_on_from_the_state_that_earlier_entries_led_to() -> None:
    data = [encode_entry(entry) for entry in ONE]
    for known in range(len(data) + 1):
        state = fold(data[:known], "s")
        assert fold(data[known:], "s", state, known) is state
        assert state == fold(data, "s")


def test_a_text_that_is_called_like_an_entry_is_none() -> None:
    back = Branched(at=3.0, run="r")
    told = [Posted(event=attrs.evolve(PROMPT, text=name)) for name in ("Branched", "Forked")]
    data = [*map(encode_entry, told), encode_entry(back), b'"Branched"']
    assert branch_targets(data) == {"r"}
    assert [*entries_of(Branched, data)] == [(2, back)]
    assert [*entries_of(Forked, data)] == []


# What is counted


def test_runs_messages_and_prompts_are_counted() -> None:
    state = folded(*ONE)
    assert (state.runs, state.messages, state.summary, state.opening, state.prompt) == (1, 2, 0, "go", "go")
    assert (state.unfinished, state.waiting, state.posted) == (False, set(), [])
    assert state.spent == Spent(turns=1, usage=USED, unpriced=15)
    more = attrs.evolve(PROMPT, id="q", text="x" * 600)
    state = folded(*ONE, Posted(event=more), opened("r2", 3.0), answered("r2", at=4.0))
    assert (state.runs, state.messages, state.opening, state.prompt) == (2, 4, "go", "x" * 500)
    assert state.spent.turns == 2


def test_a_run_that_a_late_steer_opened_is_known_by_it() -> None:
    state = folded(*ONE, Posted(event=STEER))
    assert (state.waiting, state.late, state.prompts) == ({STEER.id}, (STEER,), ())
    state = folded(*ONE, Posted(event=STEER), opened("r2", 3.0))
    assert (state.prompt, state.opening, state.waiting) == ("left", "go", set())


def test_a_run_that_a_prompt_and_a_late_steer_opened_is_known_by_the_prompt() -> None:
    more = attrs.evolve(PROMPT, id="q", text="more")
    state = folded(*ONE, Posted(event=STEER), Posted(event=more), opened("r2", 3.0))
    assert (state.prompt, state.opening) == ("more", "go")


def test_a_run_begins_at_the_time_of_its_entry() -> None:
    state = folded(Posted(event=PROMPT))
    effects = apply_entry(state, opened(at=7.0), 1, "s")
    machine = Machine.open(opened(at=7.0), None, [PROMPT], session="s")
    assert effects == machine.advance(at=7.0)
    assert state.machine == machine
    assert [effect.at for effect in effects if isinstance(effect, RunStarted)] == [7.0]


def test_the_cost_of_a_title_is_paid_once() -> None:
    paid = Spent(usage=USED, unpriced=15)
    title = Titled(at=3.0, title="t", spent=paid)
    assert folded(title).spent == paid
    before = folded(*ONE, title)
    assert (before.title, before.title_spent, before.unbilled) == ("t", paid, paid)
    assert before.spent == Spent(turns=1, usage=USED + USED, unpriced=30)
    later = folded(*ONE, title, Posted(event=attrs.evolve(PROMPT, id="q")), opened("r2", 4.0))
    assert (later.unbilled, later.spent) == (Spent(), before.spent)


def test_the_entries_with_the_latest_summary_and_with_a_full_result_are_known() -> None:
    summaries = list[int]()
    entries = (GOLDEN / "compaction.s.jsonl").read_bytes().splitlines()
    state = initial_state(entries)
    for number, (_, effects) in enumerate(read(entries, "s", state)):
        summaries += [number for effect in effects if isinstance(effect, ReplaceHistory)]
        assert state.summary == (summaries[-1] if summaries else 0)
    assert len(summaries) == 3
    entries = (GOLDEN / "long-result.s.jsonl").read_bytes().splitlines()
    state = fold(entries, "s")
    [(call, place)] = state.full_results.places.items()
    assert isinstance(place, int)
    entry = decode_entry(entries[place])
    assert isinstance(entry, Stepped)
    assert isinstance(entry.event, events.ToolFinished)
    assert state.machine is not None
    [cut] = [one for message in state.machine.memory.history for one in message.results if one.call == call]
    assert len(entry.event.content) > len(cut.content)


def test_what_a_step_appends_is_counted_and_a_summary_is_told() -> None:
    machine = Machine.start(CONFIG, "go")
    state = SessionState(machine=machine)
    appends = AppendMessage(message=user("a"))
    settled = CallSettled(call="c", tool="t", outcome=Outcome.OK, content="", at=0.0)
    for number, effects in (
        (3, (appends, settled)),
        (4, (ReplaceHistory(head=(user("a"),), keep=1), appends)),
    ):
        state.commit(Step(STEER, machine.state, machine.memory, effects), number)
        assert state.summary == (0 if number == 3 else 4)
    assert state.messages == 2


def test_an_interrupt_waits_until_it_is_applied() -> None:
    first, second = [events.Interrupted(at=at) for at in (2.0, 3.0)]
    machine = Machine.start(CONFIG, "go")
    state = SessionState(machine=machine, interrupts=[first, second])
    state.commit(machine.step(attrs.evolve(PROMPT, id="q")), None)
    assert state.interrupts == [first, second]
    step = machine.step(first)
    assert state.ahead(step, 3).interrupts == [second]
    assert state.interrupts == [first, second]
    state.commit(step, None)
    assert state.interrupts == [second]


def test_runs_with_equal_settings_share_one_copy_of_them() -> None:
    same, other = [attrs.evolve(CONFIG, system=text) for text in ("", "other")]
    state = SessionState()
    seen = list[Config]()
    for number, settings in enumerate((CONFIG, same, other)):
        entries = (
            Posted(event=attrs.evolve(PROMPT, id=f"p{number}")),
            opened(f"r{number}", settings=settings),
        )
        for entry in (*entries, answered(f"r{number}")):
            apply_entry(state, entry, number, "s")
        assert state.machine is not None
        seen.append(state.machine.config)
    assert seen[0] is seen[1]
    assert seen[2] == other


@pytest.mark.parametrize("run", ["r", ""])
def test_a_branch_goes_back_to_the_end_of_a_run(run: str) -> None:
    second: list[Entry] = [
        Posted(event=attrs.evolve(PROMPT, id="q", text="more")),
        opened("r2", 3.0),
        answered("r2", at=4.0),
    ]
    state = folded(*ONE, *second, Branched(at=5.0, run=run))
    assert state.machine is not None
    assert [one.text for one in state.machine.memory.history] == (["go", "ok"] if run else [])
    assert (state.messages, state.summary) == (2 if run else 0, 0)
    assert (state.runs, state.unfinished) == (2, False)
    assert state.spent.turns == 2


def test_only_the_ends_of_those_runs_are_kept_that_a_branch_goes_back_to() -> None:
    second: list[Entry] = [
        Posted(event=attrs.evolve(PROMPT, id="q")),
        opened("r2", 3.0),
        answered("r2", at=4.0),
    ]
    third: list[Entry] = [
        Posted(event=attrs.evolve(PROMPT, id="z")),
        opened("r3", 6.0),
        answered("r3", at=7.0),
    ]
    for keeps, ends in ((None, ["r", "r2"]), (frozenset({"r2"}), ["r2"]), (frozenset[str](), [])):
        state = SessionState(keeps=keeps)
        # At its beginning, where the third run begins, there is no end to go back to.
        for number, entry in enumerate([*ONE, *second, Branched(at=5.0, run=""), *third]):
            apply_entry(state, entry, number, "s")
        assert [*state.ends] == ends


def test_it_is_counted_how_often_a_request_that_may_have_begun_was_taken_over() -> None:
    begun: tuple[Entry, ...] = (Posted(event=PROMPT), opened())
    taken, left = TakenOver(at=3.0), HandedOver(at=2.0, unbegun=("r-1",))
    assert folded(taken).begun == folded(*begun).begun == frozenset()
    for entries, unbegun, tries in (
        ([taken], False, 1),
        ([taken, taken], False, 2),
        ([left], True, 0),
        ([left, taken], False, 0),
        ([left, taken, taken], False, 1),
        # What may have begun before stays in doubt.
        ([taken, left], False, 1),
    ):
        state = folded(*begun, *entries)
        assert state.unbegun == ({"r-1"} if unbegun else set())
        assert state.tries == ({"r: 1": tries} if tries else {})
        assert state.begun == ({"r-1"} if tries else set())


# What waits


def test_an_input_waits_once_until_it_is_applied() -> None:
    state = folded(opened(), Posted(event=STEER), Posted(event=PROMPT), Posted(event=PROMPT))
    assert [one.id for one in state.prompts] == ["p"]
    assert [one.id for one in state.late] == ["s"]
    assert (state.knows("p"), state.knows("s"), state.knows("q")) == (True, True, False)
    assert folded(Posted(event=STEER)).overtaken == {}
    assert state.machine is not None
    state.commit(state.machine.step(PROMPT), None)
    assert (state.posted, [one.id for one in state.prompts]) == ([STEER], ["p"])
    assert state.knows("p")
    state.machine.advance(STEER)
    assert state.late == ()


def test_an_input_that_comes_again_later_than_it_was_applied_does_not_wait() -> None:
    """A sender that did not hear back says the same once more, at another time."""
    again = [Posted(event=attrs.evolve(one, at=9.0)) for one in (PROMPT, STEER)]
    state = folded(*ONE, Posted(event=STEER), opened("r2", 3.0), answered("r2", at=4.0), *again)
    assert (state.prompts, state.late, state.waiting) == ((), (), set())


def test_nothing_is_overtaken_before_the_first_run_nor_where_nothing_waits() -> None:
    assert folded(Posted(event=PROMPT), Posted(event=events.Interrupted(at=2.0))).overtaken == {}
    assert folded(Posted(event=PROMPT), opened()).overtaken == {}


@pytest.mark.parametrize(
    ("settings", "copied", "agent"),
    [
        (CONFIG, "", ""),
        (attrs.evolve(CONFIG, agent="kid"), "", "kid"),
        (attrs.evolve(CONFIG, agent="kid"), "s0", ""),
    ],
)
def test_a_copy_of_a_childs_session_is_no_childs(settings: Config, copied: str, agent: str) -> None:
    assert SessionState(machine=Machine.start(settings, "go"), copied=copied).agent == agent
    assert SessionState(copied=copied).agent == ""


def test_a_copy_pays_for_nothing_and_answers_no_prompt_that_waits() -> None:
    chosen = events.ControlReceived(at=3.0, id="c", change=SetModel(model="other"))
    waits = [Posted(event=attrs.evolve(PROMPT, id="q")), Posted(event=chosen)]
    state = folded(*ONE, *waits, Forked(at=4.0, session="s0"))
    assert state.machine is not None
    assert (state.copied, state.origins, state.posted, state.prompts) == ("s0", ("s0",), [], ())
    assert (state.spent, state.machine.memory.session.model) == (Spent(), "other")
    assert [one.text for one in state.machine.memory.history] == ["go", "ok"]


def test_a_run_that_is_copied_in_its_middle_goes_on_under_its_own_name() -> None:
    streams = events.ModelStreamed(at=2.0, request="r-1", before=0, count=1, pieces=(TextPiece("o"),))
    waits = events.UserSent(at=3.0, id="q", text="more")
    state = folded(
        Posted(event=PROMPT),
        opened(),
        Stepped(event=streams, label="streaming"),
        Stepped(event=waits, label="streaming"),
        Stepped(event=STEER, label="streaming.stopping"),
        Forked(at=4.0, session="s0", run="r2"),
    )
    assert state.machine is not None
    assert (state.machine.memory.run, state.spent) == ("r2", Spent())
    assert [one.id for one in state.machine.memory.session.mail] == ["s"]
    assert is_foreign("r-1", state.machine)
    assert not is_foreign("r2-1", state.machine)
    assert try_name("r-1", state.machine) == "r2: 1"


def machine_in(state: State, *mail: events.UserSent) -> Machine:
    """A machine in *state* that has *mail*."""
    memory = Machine.start(CONFIG, "go", run="r").memory
    session = attrs.evolve(memory.session, mail=tuple([Mail.of(one) for one in mail]))
    return Machine(CONFIG, state, attrs.evolve(memory, session=session))


def test_a_copy_of_a_later_run_has_nothing_of_what_was_spent_before_it() -> None:
    more = attrs.evolve(PROMPT, id="q", text="more")
    state = folded(*ONE, Posted(event=more), opened("r2", 3.0))
    assert (state.spent.turns, state.unfinished) == (1, True)
    apply_entry(state, Forked(at=4.0, session="s0", run="r3"), 6, "s")
    assert (state.spent, state.unfinished) == (Spent(), True)


def test_a_copy_has_the_prompt_that_hooks_are_asked_about_and_no_other() -> None:
    first, second, third = [attrs.evolve(PROMPT, id=name) for name in "abc"]
    asks = Thinking(stage=Admitting(request="r-1", ids=("b",), source=Steer()))
    mail = forked_run(machine_in(asks, first, second, third), "r2").memory.session.mail
    assert [one.id for one in mail] == ["b"]


@pytest.mark.parametrize("stops", [True, False])
def test_a_copy_asks_for_a_summary_anew_unless_it_is_being_stopped(*, stops: bool) -> None:
    half = Summary(request="r-1", model="m", plan=Plan(cut=1, limit=9), pieces=Rope.of([TextPiece("ha")], 1))
    stopping = Stopping.INTERRUPTED if stops else Stopping.NONE
    state = Compacting(reason=CompactReason.THRESHOLD, stage=half, stopping=stopping)
    found = forked_run(machine_in(state), "r2").state
    assert found == (state if stops else attrs.evolve(state, stage=attrs.evolve(half, pieces=Rope.of())))


def test_a_copy_pays_for_what_a_child_does_from_then_on() -> None:
    """Until then it is on the original's bill."""
    child = RunningChild(request="r-2", spent=Spent(usage=USED))
    both = [
        Call(call=ToolCall(id="r-1", wire_id="w", name="hire", arguments="{}"), phase=phase)
        for phase in (child, Running(request="r-3"))
    ]
    found = forked_run(machine_in(Dispatching(batch=Batch(calls=tuple(both)))), "r2").state
    assert isinstance(found, Dispatching)
    assert found.batch.calls == (both[0].at(attrs.evolve(child, spent=Spent())), both[1])


def test_a_request_for_a_model_is_the_same_however_often_it_is_made_and_another_has_its_id() -> None:
    summary = Summary(request="r-1", model="m", plan=Plan(cut=1, limit=9))
    compacting = Compacting(reason=CompactReason.THRESHOLD, stage=summary)
    weighing = Compacting(reason=CompactReason.THRESHOLD)
    for state, name in (
        (compacting, "r: 0"),
        (weighing, "r-1"),
        (Thinking(), "r-1"),
        (Executing(batch=Batch(calls=())), "r-1"),
    ):
        assert try_name("r-1", machine_in(state)) == name


@pytest.mark.parametrize("ended", [True, False])
def test_a_copy_of_a_childs_session_may_be_put_in_a_wider_mode_than_the_childs_parent(*, ended: bool) -> None:
    """It has no parent that it could do more than."""
    planning = Policy(mode=PermissionMode.PLAN)
    child = attrs.evolve(CONFIG, agent="kid", policy=planning, ceiling=PermissionMode.PLAN)
    begun: list[Entry] = [Posted(event=PROMPT), opened(settings=child), *([answered()] if ended else [])]
    copy = Forked(at=4.0, session="s0", run="" if ended else "r2")
    ceilings = [
        state.machine and state.machine.memory.session.ceiling
        for state in (folded(*begun), folded(*begun, copy))
    ]
    assert ceilings == [PermissionMode.PLAN, PermissionMode.BYPASS]


# What an entry says of its effects


# Full results


def settles(call: str, content: str) -> tuple[CallSettled, ToolResult]:
    result = ToolResult(call=call, wire_id="w", name="look", content=content[:3], outcome=Outcome.OK)
    return CallSettled(call=call, tool="look", outcome=Outcome.OK, content=content, at=0.0), result


def batch(results: list[ToolResult]) -> AppendMessage:
    return AppendMessage(message=Message(role=Role.TOOL, parts=tuple(results)))


def test_a_result_that_was_cut_is_found_by_its_entry_or_held_as_text() -> None:
    kept = FullResults(most=10)
    ended = [settles(call, text) for call, text in (("a", "long a"), ("b", "long b"), ("c", "all"))]
    finished = events.ToolFinished(at=1.0, request="r-1", content="long a")
    kept.note(finished, [ended[0][0]], 7)
    assert kept.places.get("a") is None  # the batch is not in the history yet
    kept.note(attrs.evolve(finished, content="before a hook"), [ended[1][0]], 8)
    kept.note(attrs.evolve(finished, content="all"), [ended[2][0], batch([result for _, result in ended])], 9)
    assert [kept.places.get(call) for call in "abcx"] == [7, "long b", None, None]
    assert kept.held == len("long b")
    assert kept.ended == {}


def test_the_oldest_texts_go_where_there_are_too_many() -> None:
    kept = FullResults(most=10)
    for call, text in (("a", "12345"), ("b", "12345")):
        told, result = settles(call, text)
        kept.note(STEER, [told, batch([result])], None)
    assert [kept.places.get(call) for call in "ab"] == ["12345", "12345"]  # as much as may be
    told, result = settles("c", "123456")
    finished = events.ToolFinished(at=1.0, request="r-1", content="123456")
    kept.note(finished, [told, batch([result])], 4)
    assert [kept.places.get(call) for call in "abc"] == ["12345", "12345", 4]
    told, result = settles("d", "1234")
    kept.note(STEER, [told, batch([result])], None)
    assert [kept.places.get(call) for call in "abcd"] == [None, "12345", 4, "1234"]
    assert kept.held == 9


def test_only_texts_go_and_results_wait_for_their_own_batch() -> None:
    kept = FullResults(most=5)
    finished = events.ToolFinished(at=1.0, request="r-1", content="long a")
    told, result = settles("a", "long a")
    kept.note(finished, [told], 4)
    # Another message than that of the results, such as a person's, ends no batch.
    kept.note(STEER, [AppendMessage(message=user("more"))], 5)
    kept.note(finished, [batch([result])], 6)
    for call in "bc":
        told, result = settles(call, "12345")
        kept.note(STEER, [told, batch([result])], None)
    assert [kept.places.get(call) for call in "abc"] == [4, None, "12345"]


@pytest.mark.parametrize(("reads", "number"), [(True, None), (True, 3), (False, None), (False, 3)])
def test_a_text_is_held_only_where_a_tool_can_read_it(*, reads: bool, number: int | None) -> None:
    tools = (ToolSpec(name=READER, side_effect="read_only"),) if reads else ()
    machine = Machine.start(attrs.evolve(CONFIG, tools=tools), "go")
    state = SessionState(machine=machine)
    told, result = settles("a", "long a")
    finished = events.ToolFinished(at=1.0, request="r-1", content="long a")
    state.commit(Step(finished, machine.state, machine.memory, (told, batch([result]))), number)
    place = state.full_results.places.get("a")
    assert place == (number if number is not None else "long a" if reads else None)


def test_a_setting_that_is_posted_between_runs_holds_for_the_next() -> None:
    change = events.ControlReceived(at=3.0, id="c", change=SetThinking(tokens=5))
    state = folded(*ONE, Posted(event=change))
    assert not state.waiting
    apply_entry(state, opened("r2", 4.0), 4, "s")
    assert state.machine is not None
    assert state.machine.memory.session.thinking == SetThinking(tokens=5)
