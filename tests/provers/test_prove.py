"""The search through all of small worlds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from itertools import product
from pathlib import Path

import attrs
import pytest
from mutants.hook.sitecustomize import announce

from provers.model_check import __main__, search
from provers.model_check.always import PROMISES
from provers.model_check.atlas import everything, worlds
from provers.model_check.search import Proof
from provers.model_check.worlds import World, settings
from provers.simulation.absorbing import absorbed, absorbed_faults
from provers.simulation.watched import PromiseBroken, Row, Watched
from turnwheel.effects.config import (
    Concurrency,
    Gates,
    OnDenial,
    Steering,
)
from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    CallCancelled,
    Entered,
    Event,
    Failure,
    HookAnswered,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    UserSteered,
)
from turnwheel.effects.history import CallPiece
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import StopReason
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.machine import Machine
from turnwheel.states.table import LEGAL

WORLDS = tuple(worlds())
ROOT = Path(__file__).resolve().parent.parent
# One process runs the module, since its fixture searches for minutes. Alone it takes a tenth of the timeout.
pytestmark = [pytest.mark.prover, pytest.mark.xdist_group("prove"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def proofs() -> dict[str, Proof]:
    """What was seen in each small world, by its name; where a promise is broken, this says how."""
    found: dict[str, Proof] = {}
    for proof in __main__.prove(WORLDS, os.cpu_count() or 1):
        assert isinstance(proof, Proof), proof
        found[proof.name] = proof
    return found


def test_every_small_world_keeps_every_promise(proofs: dict[str, Proof]) -> None:
    """Each was searched to its end: on every way, at every place, wherever a run was lost and taken over."""
    assert list(proofs) == [world.name for world in WORLDS]
    assert sum(proof.states for proof in proofs.values()) > 50_000
    for proof in proofs.values():
        assert proof.absorbed > 10 * proof.states
        assert proof.taken_over > 0
        assert proof.ways > proof.states


def test_every_row_of_the_table_is_taken(proofs: dict[str, Proof]) -> None:
    """None is there that no world takes, and no world takes another one."""
    taken = frozenset[Row]().union(*[proof.rows for proof in proofs.values()])
    assert {name(row) for row in LEGAL - taken} == set()
    assert taken == LEGAL


def name(row: Row) -> tuple[str, str, str]:
    """*row* in words."""
    state, event, target = row
    return state, event.__name__, target


WAYS: dict[str, set[Row]] = {
    "everything at once": {
        ("thinking.go", Entered, "compacting.weigh"),
        ("compacting.summary", ModelFinished, "thinking.go"),
        ("compacting.summary", ModelFailed, "compacting.pausing"),
        ("compacting.pausing", TimerFired, "compacting.summary"),
        ("dispatching", HookAnswered, "confirming"),
        ("dispatching", AgentFinished, "thinking.go"),
        ("executing", ToolFinished, "thinking.go"),
        ("streaming", ModelFailed, "thinking.retry"),
        ("dispatching", UserSteered, "dispatching.stopping"),
        ("confirming", Interrupted, "dispatching.stopping"),
    },
    "another model takes over": {
        ("streaming", ModelFailed, "thinking.go"),
        ("streaming", ModelFailed, "thinking.retry"),
    },
    "old results of 600 letters are left out": {("thinking.go", Entered, "thinking.go")},
    "circles, stopped after 4 or None": {
        ("thinking.go", Entered, "thinking.go"),
        ("thinking.go", Entered, "thinking.end"),
    },
    "a run of 2 turns": {("thinking.go", Entered, "thinking.end")},
    "a summary and one turn": {("compacting.weigh", Entered, "thinking.end")},
    "two children in 9 s": {
        ("dispatching", AgentFinished, "dispatching.stopping"),
        ("dispatching", AgentFinished, "thinking.go"),
    },
    "things are said during a summary": {
        ("compacting.summary", ModelStreamed, "compacting.summary"),
        ("compacting.pausing", UserSteered, "compacting.summary"),
    },
    "what was allowed is asked about after all": {("dispatching", ToolFinished, "confirming")},
    "a child waits for what a hook looks at": {
        ("executing.stopping", CallCancelled, "dispatching.stopping"),
    },
}
"""Ways that are special about a world."""


@pytest.mark.parametrize("world", WAYS)
def test_a_world_takes_the_ways_it_is_for(world: str, proofs: dict[str, Proof]) -> None:
    """What it was made for happens in it."""
    assert WAYS[world] <= proofs[world].rows


def test_all_that_can_come_together_does() -> None:
    """One world has two answers with calls, a hook, a question, a child, a steer, a full window, failures."""
    world = everything()
    assert len(world.calls) == 2
    assert world.more
    assert (world.fails, world.crashes, bool(world.steers)) == (True, True, True)
    assert {hook.hook for hook in world.config.hooks} == {Hook.PRE_TOOL_USE}
    assert world in WORLDS


def test_the_worlds_differ() -> None:
    """Every way to take a denial and to run calls is searched, with and without a budget, and none twice."""
    names = [world.name for world in WORLDS]
    assert sorted(set(names)) == sorted(names)
    bare = [attrs.evolve(world, name="") for world in WORLDS]
    assert [world for world in bare if bare.count(world) > 1] == []
    policies = [world.config.policy for world in WORLDS]
    assert {(one.on_denial, one.concurrency) for one in policies} >= {
        *product(OnDenial, [Concurrency.SERIAL]),
        *product([OnDenial.SKIP_REST], Concurrency),
    }
    assert {one.gates for one in policies} == set(Gates)
    assert {how for world in WORLDS for how in world.steers} == set(Steering)
    assert {world.config.limits.seconds for world in WORLDS} >= {None, 3.0}
    assert any(one.answer_within for one in policies)


def test_everything_there_is_only_so_much_of_runs_out() -> None:
    """Turns, tokens, money and time: in a run, and in a session that had spent some of it before the run."""
    for unit in ("turns", "tokens", "usd", "seconds"):
        assert any(getattr(world.config.limits, unit) is not None for world in WORLDS), unit
        shared = [world for world in WORLDS if getattr(world.config.session_limits, unit) is not None]
        assert any(world.earlier.turns for world in shared), unit
    assert all(world.config.model.price for world in WORLDS if world.config.limits.usd is not None)


def test_worlds_have_hooks_at_every_place_that_is_asked() -> None:
    """Each place is that of a hook in some small world; the end of a child is the end of a run."""
    asked = {hook.hook for world in WORLDS for hook in world.config.hooks}
    assert asked == set(Hook) - {Hook.SESSION_END, Hook.SUBAGENT_STOP}


SMALL = World(name="small", config=settings(Concurrency.PARALLEL_READS), calls=("peek", "ranger"))


def test_a_search_sees_the_same_each_time() -> None:
    """No order of a set or address of an object leads the search."""
    assert search.search(SMALL) == search.search(SMALL)


def test_what_takes_different_places_for_one_is_found() -> None:
    """A key that says too little is found out: what follows from its places is not the same."""
    with pytest.raises(PromiseBroken, match="what follows is not what follows from"):
        search.search(SMALL, lambda run, _: run.machine.state.label.encode())


def test_in_a_small_world_each_way_to_a_known_place_is_compared() -> None:
    """None is left out: every way leads to a new place, but for the first, or is compared."""
    proof = search.search(World(name="tiny", config=settings(Concurrency.SERIAL), calls=("note",)))
    assert proof.compared == proof.ways - (proof.states - 1)
    assert proof.compared > 50


def test_a_place_without_a_way_out_is_found() -> None:
    """Where nobody answers a question no way leads to the end, unless somebody interrupts."""
    mute = attrs.evolve(SMALL, decisions=(), crashes=False)
    with pytest.raises(PromiseBroken, match="no way leads to the end") as found:
        search.search(mute)
    assert "assert ended_faults(run) == []" in str(found.value)
    assert "AskApproval" not in str(found.value.journal)


def test_what_is_over_is_offered_everything() -> None:
    """Every kind of event there is; the search sees to it that none is taken."""
    run = Watched.of(Machine.start(SMALL.config, "the prompt", run="r"))
    run.feed(None)
    run.feed(ModelFailed(at=1.0, request="r-1", failure=Failure.AUTH, message="no"))
    offered = list(absorbed(run))
    assert run.machine.done
    assert {type(event) for event in offered} == set(typing.get_args(Event))
    assert [fault for event in offered for fault in absorbed_faults(run, event)] == []


def test_each_open_request_is_offered_all_that_is_no_answer_to_it() -> None:
    """And each that is closed what answers it: here a model's, and a question about a call."""
    run = Watched.of(Machine.start(SMALL.config, "the prompt", run="r"))
    run.feed(None)
    calls = (CallPiece(0, "w", "peek", '{"path": "a.txt"}'),)
    run.feed(ModelFinished(at=1.0, request="r-1", stop=StopReason.TOOL_USE, usage=Usage(), pieces=calls))
    offered = [(type(event), getattr(event, "request", "")) for event in absorbed(run)]
    assert run.machine.state.open == ("r-3",)
    assert (ApprovalGiven, "r-3") not in offered
    assert {(ToolFinished, "r-3"), (ModelFinished, "r-1"), (ApprovalGiven, "r-1")} <= set(offered)


# What is found is told as a test


def broken(mistake: tuple[str, ...], *command: str) -> subprocess.CompletedProcess[str]:
    """What *command* says with a *mistake*, which is a file, a text in it and another one; or without."""
    planted = {}
    if mistake:
        file, old, new = mistake
        text = (ROOT.parent / file).read_text("utf-8")
        assert text.count(old) == 1, f"{file} has changed, or says it more than once: write {old!r} anew"
        planted = announce(file, text.index(old), text.index(old) + len(old), new)
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **planted},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


MISTAKES: dict[str, tuple[str, tuple[str, str, str], str]] = {
    "on the way": (
        "look and write, serial, skip_rest",
        ("states/batch/step.py", "ends=decision.interrupt)", "ends=False)"),
        "ends the run, and it goes on",
    ),
    "out of place": (
        "look and write, serial, skip_rest",
        (
            "states/thinking.py",
            'if getattr(event, "request", None) == stage.request:',
            'if hasattr(event, "request"):',
        ),
        "is out of place in thinking.retry",
    ),
    "taken over": (
        "look and write, serial, skip_rest",
        (
            "engine/core/recovery.py",
            "if spec is None or (begun and spec.side_effect is effects.SideEffect.UNSAFE):",
            "if spec is None:",
        ),
        "may have run, was stopped or is denied, and runs again",
    ),
    "read again": (
        "a hook at the end",
        ("engine/core/snapshots.py", "part(RunProgress)", "attrs.evolve(part(RunProgress), continues=0)"),
        "restored it is",
    ),
    "stepped by hand": (
        "stepped by hand, 1 inputs",
        (
            "states/builder.py",
            "(InputReceived(id=event.id, at=event.at),)",
            "(InputReceived(id=event.id, at=event.at),) * (1 + (state.open == ()))",
        ),
        "told is",
    ),
}
"""Where something is found: in which world, with which mistake, and what is said of it."""


@pytest.mark.parametrize("where", MISTAKES)
def test_what_is_found_is_a_test_that_fails_until_it_is_mended(where: str, tmp_path: Path) -> None:
    """What is printed can be put in a file as it is; it finds the same, and nothing once all is well."""
    world, mistake, fault = MISTAKES[where]
    found = broken(mistake, "-m", "provers.model_check", "--only", world, "--processes", "1")
    assert found.returncode == 1, found.stdout + found.stderr
    assert fault in found.stdout.partition("\n")[0]
    pasted = tmp_path / "test_found.py"
    pasted.write_text(found.stdout, "utf-8")
    # Plain asserts: pytest rewrites the package of an installed plugin, which turnwheel is, and so would load
    # the module as its file says.
    options = ("-q", "--assert=plain", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    test = ("-m", "pytest", *options, str(pasted))
    again = broken(mistake, *test)
    assert (again.returncode, "1 failed" in again.stdout) == (1, True), again.stdout + again.stderr
    assert broken((), *test).returncode == 0


# The promises, and the command


def test_each_promise_has_checks_and_each_check_a_promise() -> None:
    """Whatever looks for faults does so for the sake of something that is said."""
    assert list(PROMISES) == list(range(1, len(PROMISES) + 1))
    assert all(promise.checks and promise.text for promise in PROMISES.values())
    named = {check.__name__ for promise in PROMISES.values() for check in promise.checks}
    modules = {check.__module__ for promise in PROMISES.values() for check in promise.checks}
    there = {
        name
        for module in modules
        for name, value in vars(sys.modules[module]).items()
        if re.fullmatch(r"[a-z]\w+_faults|[A-Z]\w*Book|Ledger|Purse", name) and value.__module__ == module
    }
    assert there - named == set()


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (("--only", "zzz"), "no world has 'zzz' in its name"),
        (("--processes", "0"), "'0' is no whole number from 1"),
        (("--runs", "-1"), "'-1' is no whole number from 0"),
        (("--first", "x"), "'x' is no whole number from 0"),
    ],
)
def test_where_nothing_can_be_tried_the_command_says_why(
    asked: tuple[str, str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 2, so that nobody takes it for a proof, and shows no traceback."""
    with pytest.raises(SystemExit) as left:
        __main__.main(["=".join(asked)])
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert fault in err


@pytest.mark.parametrize("watched", [False, True])
def test_whoever_watches_is_told_how_far_it_is(
    *, watched: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal, and not where what is said there goes to a file."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: watched)
    __main__.main(["--only", "note and nowhere, serial", "--processes", "1"])
    err = capsys.readouterr().err
    assert ("\r1 of " in err, err.endswith(" worlds\n")) == (watched, watched)


def test_all_that_is_found_is_told_and_the_shortest_first() -> None:
    """One test to paste; of what was found elsewhere it is said where, and what is wrong there."""
    told = __main__.findings({"large": "# this\n\ndef test_found(): ...", "small": "# that\n"}).splitlines()
    assert told[0] == "# that"
    assert told[-2:] == ["# found in 'small', see it again with --only", "# in 'large' too: this"]


def test_the_command_reports(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m provers.model_check` says how much it saw."""
    __main__.main(["--only", "note and nowhere, serial, interrupt", "--runs", "3", "--processes", "1"])
    out = capsys.readouterr().out
    assert "1 worlds: 101 states" in out
    assert "3 runs: " in out
