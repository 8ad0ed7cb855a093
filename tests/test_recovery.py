"""What becomes of everything that can be open when a process is lost, or hands its run over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import attrs
import pytest

from turnwheel import (
    Agent,
    MemoryStore,
    PermissionMode,
    Policy,
    Rule,
    Session,
    tool,
)
from turnwheel.effects import is_request
from turnwheel.effects.config import Config
from turnwheel.effects.events import (
    Approve,
    Event,
    Failure,
    ToolFinished,
    ToolLost,
)
from turnwheel.effects.hooks import Hook, HookSpec
from turnwheel.effects.messages import Outcome
from turnwheel.effects.records import SetMode
from turnwheel.effects.requests import (
    CallModel,
    Cancel,
    Request,
    RunTool,
)
from turnwheel.engine.driver import check_answer, failed_answer
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import (
    Entry,
    HandedOver,
    Stepped,
    TakenOver,
)
from turnwheel.engine.journal.fold import SessionState, apply_entry
from turnwheel.engine.machine import Machine
from turnwheel.engine.recovery import recover
from turnwheel.states.batch.batch import AtWork, Phase
from turnwheel.states.rules import model_messages
from turnwheel.states.state import CompactStage, State, Waiting
from turnwheel.testing.harness import (
    TOOLS,
    MachineHarness,
    calls,
    config,
)
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    fails,
    says,
)
from turnwheel.testing.scripted import calls as wishes
from turnwheel.testing.state_fixtures import PLACES, run_at

NOW = 500.0


@tool
async def ask() -> str:
    """Do what somebody has to be asked about."""
    return "asked"


def words(machine: Machine, *, unbegun: bool = False) -> list[str]:
    """What becomes of what is open in *machine*, in a word or two each; *unbegun*: nobody had begun any."""
    found = recover(machine, NOW, frozenset(machine.state.open if unbegun else ()))
    return [word(one) for one in (*found.again, *found.events)]


def word(one: Request | Cancel | Event) -> str:
    """What *one* is, and how it ended where it is an end."""
    end = getattr(one, "failure", None) or getattr(one, "outcome", None)
    return f"{type(one).__name__} {end}".removesuffix(" None")


# Every place where a machine can rest

HOOKS, FILES, TIMER = ["FireHook"], ["ReadInstructions"], ["SetTimer"]
LOST, UNASKED = ["ModelFailed lost"], ["ModelFailed unbegun"]
TOOL, MAYBE, STOPPED = ["RunTool"], ["ToolLost"], ["ToolFinished cancelled"]
QUESTION, TIMED = ["AskApproval"], ["AskApproval", "SetTimer"]

BECOMES: dict[str, tuple[list[str], list[str]]] = {
    "thinking.reading": (FILES, FILES),
    "thinking.opening": (HOOKS, HOOKS),
    "thinking.admitting": (HOOKS, HOOKS),
    "thinking.admitting, a steer": (HOOKS, HOOKS),
    "thinking.retry": (TIMER, TIMER),
    "thinking.ending": (HOOKS, HOOKS),
    "streaming": (LOST, UNASKED),
    "streaming, mail waits": (LOST, UNASKED),
    "streaming.stopping": (LOST, LOST),
    "streaming.stopping, hurried": (LOST, LOST),
    "executing": (TOOL, TOOL),
    "executing, unsafe": (MAYBE, TOOL),
    "executing, again": (MAYBE, TOOL),
    "executing, hooked": (HOOKS, HOOKS),
    "executing, vetted": (HOOKS, HOOKS),
    "executing, allowed": (TOOL, TOOL),
    "executing, reviewed": (HOOKS, HOOKS),
    "executing, told to stop": (MAYBE, STOPPED),
    "executing.stopping": (MAYBE, STOPPED),
    "executing.stopping, steered": (TOOL, TOOL),
    "confirming": (TOOL + QUESTION * 2, TOOL + QUESTION * 2),
    "confirming, for a while": (TOOL + TIMED * 2, TOOL + TIMED * 2),
    "confirming, heard": (TIMED, TIMED),
    "confirming, lost": (QUESTION, QUESTION),
    "confirming.stopping": (TIMED, TIMED),
    "dispatching": (["RunAgent"], ["RunAgent"]),
    "dispatching.stopping": (["RunAgent", "Cancel"], ["RunAgent", "Cancel"]),
    "compacting.consulting": (HOOKS, HOOKS),
    "compacting.summary": (LOST, UNASKED),
    "compacting.pausing": (TIMER, TIMER),
    "compacting.stopping": (LOST, LOST),
    "done": ([], []),
}
"""For each place: what becomes of its requests after a crash, and where nobody had begun any of them."""

each_place = pytest.mark.parametrize("place", PLACES)


@each_place
def test_every_open_request_is_classified(place: str) -> None:
    """A place that is new has to say what becomes of it."""
    machine = run_at(place).machine
    assert (words(machine), words(machine, unbegun=True)) == BECOMES[place]


def test_every_kind_of_state_that_waits_is_in_the_table() -> None:
    """A phase or a stage that is added to its union fails here until it is classified."""
    states = [run_at(place).machine.state for place in BECOMES]
    phases = {
        type(call.phase) for state in states for call in getattr(getattr(state, "batch", 0), "calls", ())
    }
    stages = {type(getattr(state, "stage", None)) for state in states}
    assert phases >= set(get_args(AtWork))
    assert phases == set(get_args(Phase))
    assert stages >= set(get_args(Waiting))
    assert {kind.__name__ for kind in set(get_args(CompactStage)) - stages} == {"Weigh"}
    assert {type(state) for state in states} == set(get_args(State))


@each_place
def test_what_is_done_again_is_what_had_been_asked(place: str) -> None:
    """Under the same id, which is its key, with the same arguments, and for the same time."""
    run = run_at(place)
    asked = {one.id: one for one in run.told if is_request(one)}
    for again in recover(run.machine, NOW).again:
        if isinstance(again, Cancel):
            assert again.request in run.machine.state.open
        else:
            first = attrs.evolve(again, again=False) if isinstance(again, RunTool) else again
            assert first == asked[again.id]


@each_place
def test_each_is_classified_once_and_nothing_else_is(place: str) -> None:
    """What is open is performed again or answered, and what is not is left alone."""
    run = run_at(place)
    found = recover(run.machine, NOW)
    names = [one.id for one in found.again if not isinstance(one, Cancel)]
    names += [getattr(event, "request", "") for event in found.events]
    assert sorted(names) == sorted(run.machine.state.open)
    assert all(event.at == NOW for event in found.events)


@each_place
def test_whoever_goes_on_comes_to_an_end(place: str) -> None:
    """What has happened is applied; then the run waits for what is done again, or is over."""
    machine = run_at(place).machine
    found = recover(machine, NOW)
    for event in found.events:
        machine.advance(event)
    again = {one.id for one in found.again if not isinstance(one, Cancel)}
    assert again <= set(machine.state.open)
    assert machine.done or machine.state.open


# A tool, by what it does, what was said of it, and whether it is there


def gone(run: MachineHarness) -> None:
    """The tool is not configured any more."""
    run.machine.reconfigure(config(tools=()))


def denied(run: MachineHarness) -> None:
    """A rule denies it by now."""
    run.machine.reconfigure(config(rules=(Rule(verdict="deny", tool="*"),)))


def takes_more(run: MachineHarness) -> None:
    """Its new version wants an argument that nobody gave then."""
    more = '{"type":"object","required":["why"]}'
    run.machine.reconfigure(config(tools=tuple([attrs.evolve(each, schema=more) for each in TOOLS])))


def nothing(_: MachineHarness) -> None:
    """Nothing changed."""


WORK: dict[str, Callable[[MachineHarness], object]] = {
    "denied": denied,
    "in a mode that only plans": lambda run: run.change(SetMode(mode=PermissionMode.PLAN)),
    "gone": gone,
    "takes more": takes_more,
}
"""What may have happened to a tool at work until somebody goes on."""

OF_A_TOOL: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("look", "as it was"): (TOOL, TOOL),
    ("look", "told to stop"): (STOPPED, STOPPED),
    ("look", "denied"): (STOPPED, STOPPED),
    ("look", "in a mode that only plans"): (TOOL, TOOL),
    ("look", "gone"): (MAYBE, ["ToolFinished error"]),
    ("look", "takes more"): (TOOL, TOOL),
    ("note", "as it was"): (TOOL, TOOL),
    ("note", "told to stop"): (MAYBE, STOPPED),
    ("note", "denied"): (MAYBE, STOPPED),
    ("note", "in a mode that only plans"): (MAYBE, STOPPED),
    ("note", "gone"): (MAYBE, ["ToolFinished error"]),
    ("note", "takes more"): (MAYBE, TOOL),
    ("write", "as it was"): (MAYBE, TOOL),
    ("write", "told to stop"): (MAYBE, STOPPED),
    ("write", "denied"): (MAYBE, STOPPED),
    ("write", "in a mode that only plans"): (MAYBE, STOPPED),
    ("write", "gone"): (MAYBE, ["ToolFinished error"]),
    ("write", "takes more"): (MAYBE, TOOL),
}
"""For a read, an idempotent and an unsafe tool: after a crash, and where nobody had begun it."""


@pytest.mark.parametrize(("name", "what"), OF_A_TOOL)
def test_a_tool_by_its_side_effect_and_what_became_of_it(name: str, what: str) -> None:
    """What may have run is never said to have been cancelled, and what never began never to have run."""
    run = MachineHarness()
    run.say(*calls(name))
    if name == "write":
        run.decide("write", Approve())
    if what == "told to stop":
        run.cancel(name)
    WORK.get(what, nothing)(run)
    assert (words(run.machine), words(run.machine, unbegun=True)) == OF_A_TOOL[name, what]
    for event in recover(run.machine, NOW).events:
        assert isinstance(event, ToolFinished | ToolLost)


@pytest.mark.parametrize("name", ["look", "note"])
@pytest.mark.parametrize("unbegun", [False, True])
def test_who_runs_it_again_knows_that_it_may_have_run(name: str, *, unbegun: bool) -> None:
    """A read changed nothing, and what nobody has begun neither."""
    run = MachineHarness()
    run.say(*calls(name))
    (again,) = recover(run.machine, NOW, frozenset(run.machine.state.open if unbegun else ())).again
    assert isinstance(again, RunTool)
    assert again.again is (name == "note" and not unbegun)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_second_try_that_fails_does_not_say_that_nothing_happened(outcome: Outcome) -> None:
    """Whoever performs tools, and whether they heed that it is a second try; what went well is as ever."""
    first = RunTool(id="r-1", call="r-0", tool="note", arguments="{}")
    answer = ToolFinished(at=NOW, request="r-1", content="so it ended", outcome=outcome)
    assert check_answer(first, answer, NOW) == answer
    said = check_answer(attrs.evolve(first, again=True), answer, NOW)
    assert isinstance(said, ToolFinished)
    assert said.outcome is (Outcome.UNKNOWN if outcome is Outcome.CANCELLED else outcome)
    clear = outcome in {Outcome.OK, Outcome.UNKNOWN}
    assert said.content == ("so it ended" if clear else model_messages.run_again("so it ended"))


@pytest.mark.parametrize("error", [asyncio.CancelledError(), RuntimeError("a bug")], ids=["cancelled", "bug"])
def test_a_second_try_that_never_began_may_have_run_all_the_same(error: BaseException) -> None:
    """It was held back, and is given up; or whoever performs tools has a bug."""
    again = RunTool(id="r-1", call="r-0", tool="note", arguments="{}", again=True)
    said = failed_answer(again, error, NOW)
    assert isinstance(said, ToolFinished)
    assert said.outcome is not Outcome.CANCELLED
    assert "an earlier try of this call, which may have run" in said.content


def test_what_was_begun_once_is_never_unbegun_again() -> None:
    """A process is lost while a tool is at work, the next one hands it over before it runs it again."""
    run = MachineHarness()
    run.say(*calls("note"))
    folded = SessionState(machine=run.machine)
    (request,) = run.machine.state.open
    for entry in (TakenOver(at=NOW, config=None), HandedOver(at=NOW, unbegun=(request,))):
        apply_entry(folded, entry, 0, "s")
    assert folded.unbegun == frozenset()
    folded.begun = frozenset()
    apply_entry(folded, HandedOver(at=NOW, unbegun=(request,)), 0, "s")
    assert folded.unbegun == {request}


# A child


def child(what: str) -> Machine:
    """A run with a child at work, to which *what* happened."""
    run = MachineHarness()
    run.say(*calls("send"))
    match what:
        case "told to stop":
            run.interrupt()
        case "gone":
            run.machine.reconfigure(config(children=()))
        case "denied":
            denied(run)
        case _:
            pass
    return run.machine


@pytest.mark.parametrize(
    ("what", "becomes"),
    [
        ("as it was", ["RunAgent"]),
        ("told to stop", ["RunAgent", "Cancel"]),
        ("denied", ["RunAgent", "Cancel"]),
        ("gone", ["AgentFinished unknown"]),
    ],
)
def test_a_child_goes_on_where_it_was(what: str, becomes: list[str]) -> None:
    """It has a journal of its own; one that may not work any more is stopped, and says what it has done."""
    machine = child(what)
    assert words(machine) == becomes
    unbegun = ["AgentFinished error"] if what == "gone" else becomes
    assert words(machine, unbegun=True) == unbegun


# Hooks


@each_place
def test_hooks_that_are_gone_have_no_say(place: str) -> None:
    """Nobody is left who could answer, so nobody is waited for."""
    run = run_at(place)
    bare = Config(
        model=run.machine.config.model,
        tools=run.machine.config.tools,
        children=run.machine.config.children,
        instructions=run.machine.config.instructions,
    )
    before = words(run.machine)
    run.machine.reconfigure(bare)
    assert words(run.machine).count("HookAnswered") == before.count("FireHook")


def test_hooks_that_have_spoken_are_not_asked_again() -> None:
    """Of several, those that had not answered are."""
    hooks = tuple([HookSpec(name=name, hook=Hook.PRE_TOOL_USE) for name in ("one", "two")])
    run = MachineHarness(config(hooks=hooks))
    run.say(*calls("look"))
    run.machine.reconfigure(config(hooks=hooks[:1]))
    (again,) = recover(run.machine, NOW).again
    assert getattr(again, "names", ()) == ("one",)


# Time


class Wall:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self._now = 100.0

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self._now

    def move(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self._now += seconds

    async def sleep_until(self, due: float) -> None:
        """Return when `now` is at or past *due*."""
        while self._now < due:  # noqa: ASYNC110  # turns are waited for
            await asyncio.sleep(0)


WAITS: dict[str, tuple[tuple[Reply, ...], dict[str, Any]]] = {
    "for the next try": ((fails(Failure.RATE_LIMIT, retry_after=60.0),), {}),
    "for an answer": ((wishes(("ask", {})),), {"policy": Policy(answer_within=60.0)}),
}
"""What a run may wait for that has a time, 60 seconds after it began to wait."""


@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("lost", [1, 3], ids=["once", "thrice"])
@pytest.mark.parametrize("away", [0.0, 40.0, 60.0, 5_000.0])
async def test_a_time_is_a_point_and_not_a_span(what: str, lost: int, away: float) -> None:
    """What is past fires at once, what is to come is waited for; nobody gets more time by a restart."""
    wall, store = Wall(), MemoryStore()
    replies, settings = WAITS[what]

    def process(*script: Reply) -> Session:
        model = ScriptedModel(*script)
        agent = Agent(
            model="one", tools=[ask], store=store, clock=wall, performers={CallModel: model}, **settings
        )
        return agent.session("s")

    for number in range(lost):
        session = process(*(replies if not number else ()))
        going = asyncio.ensure_future(session.run("go") if not number else session.resume(wait=True))
        for _ in range(60):
            await asyncio.sleep(0)
        going.cancel()
        await asyncio.wait([going])
        await session.close()
        wall.move(away if number == lost - 1 else 0.0)
    session = process(says("done"))
    going = asyncio.ensure_future(session.resume(wait=True))
    for _ in range(200):
        await asyncio.sleep(0)
    assert going.done() is (away >= 60.0)
    wall.move(60.0 - away)
    assert (await going).text == "done"
    steps: list[Entry] = [decode_entry(data) for data in await store.load("s")]
    fired = [
        one.event.at for one in steps if isinstance(one, Stepped) and "Timer" in type(one.event).__name__
    ]
    assert fired == [max(160.0, 100.0 + away)]
