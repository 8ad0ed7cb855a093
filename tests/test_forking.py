"""Forks at a step by hand: what may happen in its place, what is the fork's, and what is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from provers.tasks import PATIENCE, turns

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    Binary,
    ChildSpec,
    Deny,
    DoneReason,
    MemoryStore,
    ModelSpec,
    PermissionMode,
    Price,
    Session,
    SetMode,
    SetModel,
    Steering,
    tool,
)
from turnwheel.effects.config import Limits
from turnwheel.effects.errors import (
    ArgumentError,
    ConfigError,
    SessionBusy,
    TooLarge,
    UnknownSession,
)
from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    Interrupted,
    ModelFinished,
    ToolFinished,
    UserSent,
    UserSteered,
)
from turnwheel.effects.messages import Outcome, Role
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Spent
from turnwheel.engine.inspect.fork import Replacement
from turnwheel.engine.inspect.replay import ReplayedStep, replayed
from turnwheel.engine.journal.entries import Forked, Stepped
from turnwheel.engine.journal.summary import SessionKind, SessionStatus
from turnwheel.engine.session.archive import costs, explain, export
from turnwheel.engine.session.listing import listed
from turnwheel.performers.tools import ToolContext
from turnwheel.performers.tools.builtin import read_result
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
    stalls,
)


class Shop:
    """What was done in it, with the keys it was done under."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.keys: list[str] = []


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "one, two and so on " * 3_000


@tool
def pay(amount: int, context: ToolContext[Shop]) -> str:
    """Pay."""
    context.deps.paid.append(amount)
    context.deps.keys.append(context.key)
    return f"paid {amount}"


@tool(side_effect="idempotent", approval="never")
def put(what: str, context: ToolContext[Shop]) -> str:
    """Put something somewhere; twice is once."""
    context.deps.keys.append(context.key)
    return f"put {what}"


@tool(approval="never", resources=())
def ring() -> str:
    """Ring."""
    return "rung"


TOOLS = (look, pay, put, read_result)

PAYS = (calls(("pay", {"amount": 5})), says("It is paid."))


def made(*replies: Reply, store: MemoryStore | None = None, **settings: Any) -> tuple[Agent, ScriptedModel]:
    """An agent over a script, in a shop of its own."""
    model = ScriptedModel(*replies)
    given: dict[str, Any] = {"model": "scripted", "tools": TOOLS, "clock": AutoClock(100.0)} | settings
    given |= {"performers": {CallModel: model}, "store": store or MemoryStore(), "deps": Shop()}
    return Agent(**given), model


async def paid(*replies: Reply, **settings: Any) -> tuple[MemoryStore, list[ReplayedStep]]:
    """A store with the session ``s``, whose model gave *replies* and to whose questions somebody said yes."""
    agent, _ = made(*(replies or PAYS), **settings)
    async with agent.session("s") as session:
        result = await session.run("pay", id="mine")
        while result.waiting:
            for question in result.waiting:
                await session.approve(question.id)
            result = await session.resume()
    assert isinstance(agent.store, MemoryStore)
    return agent.store, await steps_of(agent.store)


async def steps_of(store: MemoryStore, name: str = "s") -> list[ReplayedStep]:
    """The steps of the session *name*."""
    return list(replayed(await store.load(name), name))


def at(steps: list[ReplayedStep], kind: type, which: int = 0) -> int:
    """The number of the step with the event of this *kind* that was applied."""
    found = [
        step.number for step in steps if isinstance(step.entry, Stepped) and isinstance(step.event, kind)
    ]
    return found[which]


def texts(session: Session) -> list[str]:
    """What is said and what came back in the conversation of *session*, cut."""
    return [
        (message.text or " ".join([result.content for result in message.results]))[:20]
        for message in session.history
        if message.role is not Role.ASSISTANT or message.text
    ]


async def gone_on(
    store: MemoryStore, step: int, *replies: Reply, instead: Replacement | None = None, **settings: Any
) -> tuple[Session, ScriptedModel, Shop]:
    """The fork ``f`` of ``s`` at *step*, gone on with by another process; with its model, and its shop."""
    agent, model = made(*replies, store=store, **settings)
    async with agent.session("s") as session, await session.fork("f", at=step, instead=instead) as fork:
        await fork.resume()
    shop: Any = agent.deps
    return fork, model, shop


# What happens in its place


@pytest.mark.parametrize("kind", [ModelFinished, "ModelStreamed"])
async def test_a_model_answers_something_else(kind: Any) -> None:
    """Whether one forks where its answer began or where it was whole: nothing of that one is left."""
    store, steps = await paid(says("I will not."))
    step = at(steps, ModelFinished) - (kind != ModelFinished)
    fork, model, _ = await gone_on(store, step, instead="Very well.")
    assert (texts(fork), fork.result().reason) == (["pay", "Very well."], DoneReason.END_TURN)
    assert model.requests == []
    assert (await steps_of(store))[-1].machine == steps[-1].machine  # the other one is what it was


async def test_an_answer_is_billed_as_the_one_that_it_stands_for() -> None:
    """The same was read for it."""
    store, steps = await paid(says("I will not."))
    fork, _, _ = await gone_on(store, at(steps, ModelFinished), instead="Very well.")
    assert fork.spent == steps[-1].spent


async def test_another_model_is_asked() -> None:
    """It is asked what the first one was asked, with a new id; nothing was lost, and nothing is estimated."""
    store, steps = await paid()
    step = at(steps, ModelFinished)
    fork, model, _ = await gone_on(store, step, says("I am another."), instead=SetModel(model="other"))
    assert (texts(fork), fork.result().reason) == (["pay", "I am another."], DoneReason.END_TURN)
    (request,) = model.requests
    assert (request.model, request.attempt) == ("other", 1)
    assert request.id not in (await store.load("s"))[1].decode()
    assert (fork.spent.turns, fork.spent.usage.input, fork.spent.usage.estimated) == (1, 10, 0)


async def test_without_anything_else_the_same_is_asked_again() -> None:
    """What comes of it may be something else all the same."""
    store, steps = await paid()
    fork, model, shop = await gone_on(store, at(steps, ModelFinished), says("No."))
    assert (texts(fork), len(model.requests), shop.paid) == (["pay", "No."], 1, [])


@pytest.mark.parametrize(
    ("instead", "outcome"),
    [
        (lambda _: "nothing came", Outcome.OK),
        (lambda event: attrs.evolve(event, content="nothing came", outcome=Outcome.ERROR), Outcome.ERROR),
    ],
)
async def test_a_tool_brings_something_else(instead: Callable[[Any], Replacement], outcome: Outcome) -> None:
    """As a text, or as the event that stands there with something changed; the tool itself is not run."""
    store, steps = await paid()
    step = steps[at(steps, ToolFinished)]
    fork, _, shop = await gone_on(store, step.number, says("I see."), instead=instead(step.event))
    (result,) = [result for message in fork.history for result in message.results]
    assert (result.content, result.outcome, shop.paid) == ("nothing came", outcome, [])


@pytest.mark.parametrize("posted", [True, False])
@pytest.mark.parametrize(
    ("decision", "ran", "told"),
    [
        (Deny(message="not now"), [], "not now"),
        (Approve(), [5], "paid 5"),
        (Approve(arguments='{"amount": 2}'), [2], "paid 2"),
        (ApproveAlways(), [5], "paid 5"),
    ],
)
async def test_a_question_gets_another_answer(
    decision: Any, ran: list[int], told: str, *, posted: bool
) -> None:
    """Where it was posted, or where it was taken up; what is allowed is run, since it was not yet."""
    store, steps = await paid()
    step = next(step.number for step in steps if isinstance(step.event, ApprovalGiven))
    step = step if posted else at(steps, ApprovalGiven)
    fork, _, shop = await gone_on(store, step, says("So be it."), instead=decision)
    assert (shop.paid, texts(fork)) == (ran, ["pay", told, "So be it."])
    (answered,) = [
        step for step in await steps_of(store, "f") if isinstance(step.event, ApprovalGiven) and step.effects
    ]
    assert getattr(answered.event, "by", "") == f"a fork at step {step}"


async def test_a_session_that_rests_is_forked_both_ways() -> None:
    """At its end, where nothing is yet; and it rests as it did."""
    agent, _ = made(PAYS[0])
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        (question,) = (await session.run("pay")).waiting
        end = len(await agent.store.load("s"))
        with pytest.raises(SessionBusy):
            await session.fork("f")
        for name, decision in (("yes", Approve()), ("no", Deny())):
            other, _ = made(says("So be it."), store=agent.store)
            async with await other.session("s").fork(name, at=end, instead=decision) as fork:
                assert (await fork.resume()).text == "So be it."
            shop: Any = other.deps
            assert shop.paid == [5] * (name == "yes")
        assert (await session.load()).waiting == (question,)
        async with await session.fork("as it is", at=end) as fork:
            assert [one.call for one in fork.waiting] == [question.call]
            assert (await listed(agent.store))[0].about.state is SessionStatus.RESTING


async def test_a_yes_is_not_late_in_a_fork_that_would_not_have_been() -> None:
    """What happens instead has the time of what stood there, however long ago that was."""
    policy = {"policy": attrs.evolve(Agent(model="scripted").config.policy, answer_within=60.0)}
    store, steps = await paid(**policy)
    step = at(steps, ApprovalGiven)
    later = AutoClock(1e6)
    fork, _, shop = await gone_on(store, step, says("So be it."), instead=Approve(), clock=later, **policy)
    assert (shop.paid, texts(fork)[-1]) == ([5], "So be it.")


async def test_another_prompt_is_asked() -> None:
    """Between two runs: in place of what was asked there, and not after it."""
    agent, _ = made(says("One."), says("Two."))
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        await session.run("a", id="first")
        await session.run("b", id="second")
    steps = await steps_of(agent.store)
    posted = next(step.number for step in steps if getattr(step.event, "id", "") == "second")
    for step in (posted, posted + 1):  # where it was posted, and where its run was opened
        agent, model = made(says("Three."), store=agent.store)
        assert isinstance(agent.store, MemoryStore)
        async with await agent.session("s").fork(f"f{step}", at=step, instead="c") as fork:
            await fork.resume()
        assert texts(fork) == ["a", "One.", "c", "Three."]
        assert len(model.requests) == 1


async def test_something_else_is_said_into_a_run() -> None:
    """A steer that was read when a tool was done is another one."""
    agent, _ = made(calls(("look", {})), calls(("put", {"what": "x"})), says("Done."))
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        async for notice in session.stream("go"):
            if type(notice).__name__ == "ToolStarted":
                await session.steer("hurry", Steering.WHEN_DONE)
    steps = await steps_of(agent.store)
    said = steps[at(steps, UserSteered)]
    agent, model = made(says("I am slow."), store=agent.store)
    async with await agent.session("s").fork("f", at=said.number, instead="slow down") as fork:
        await fork.resume()
    assert texts(fork)[-2:] == ["slow down", "I am slow."]
    assert "hurry" not in [message.text for message in model.seen[0]]


async def test_another_mode_holds_from_there_on() -> None:
    """What would have been asked about is not, and no settings change but this one."""
    store, steps = await paid()
    fork, _, shop = await gone_on(
        store, at(steps, ModelFinished), *PAYS, instead=SetMode(mode=PermissionMode.BYPASS)
    )
    assert (shop.paid, texts(fork)[-1]) == ([5], "It is paid.")


# What was open


async def test_an_unsafe_tool_that_was_at_work_may_have_run_and_is_not_run_again() -> None:
    """In the other session it ran: here nobody knows, and the model is told."""
    store, steps = await paid()
    fork, _, shop = await gone_on(store, at(steps, ToolFinished), says("Hm."))
    (result,) = [result for message in fork.history for result in message.results]
    assert (shop.paid, result.outcome) == ([], Outcome.UNKNOWN)


async def test_only_what_follows_from_the_new_answer_is_begun_for_the_first_time() -> None:
    """A yes lets one tool run that nobody ran; another one that was at work beside it may have run."""
    policy = attrs.evolve(Agent(model="scripted").config.policy, concurrency="parallel")
    store, steps = await paid(
        calls(("ring", {}), ("pay", {"amount": 5})), says("Done."), tools=[ring, pay], policy=policy
    )
    asked = next(step for step in steps if step.label == "confirming")
    assert [type(effect).__name__ for effect in asked.effects].count("RunTool") == 1
    fork, _, shop = await gone_on(
        store, asked.number + 1, says("Hm."), instead=Approve(), tools=[ring, pay], policy=policy
    )
    results = [result for message in fork.history for result in message.results]
    assert [(result.name, result.outcome) for result in results] == [
        ("ring", Outcome.UNKNOWN),
        ("pay", Outcome.OK),
    ]
    assert shop.paid == [5]


async def test_what_is_handed_over_in_one_session_is_not_begun_in_a_copy_of_it() -> None:
    """Whoever goes on with that one begins it: here, nobody knows."""
    store, steps = await paid()
    agent, _ = made(store=store)
    await agent.session("s").fork("f", at=at(steps, ApprovalGiven), instead=Approve())
    agent, _ = made(says("Hm."), store=store)
    async with await agent.session("f").fork("g", at=len(await store.load("f"))) as copy:
        await copy.resume()
    shop: Any = agent.deps
    (result,) = [result for message in copy.history for result in message.results]
    assert (shop.paid, result.outcome) == ([], Outcome.UNKNOWN)
    agent, _ = made(says("Paid."), store=store)
    async with agent.session("f") as fork:
        await fork.resume()
    shop = agent.deps
    assert shop.paid == [5]


async def test_a_tool_that_was_at_work_and_may_be_run_again_has_the_key_it_had() -> None:
    """The same call is known by the same key; what is called later has keys that nobody has."""
    wishes = calls(("put", {"what": "a"})), calls(("put", {"what": "b"})), says("Done.")
    agent, _ = made(*wishes)
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        await session.run("put")
    then: Any = agent.deps
    step = at(await steps_of(agent.store), ToolFinished)
    _, _, now = await gone_on(agent.store, step, *wishes[1:])
    assert len(now.keys) == len(then.keys) == 2
    assert now.keys[0] == then.keys[0]
    assert now.keys[1] != then.keys[1]
    fresh = (await steps_of(agent.store, "f"))[-1].run
    assert now.keys[1].startswith(f"{fresh}-")


async def test_a_session_at_work_is_forked_meanwhile() -> None:
    """Nothing of it is disturbed, and nobody is waited for."""
    agent, model = made(calls(("look", {})), stalls("Well"))
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        handle = session.start("look")
        assert await turns(PATIENCE, lambda: len(model.requests) == 2)
        end = len(await agent.store.load("s"))
        other, _ = made(says("Here it is."), store=agent.store)
        async with await session.fork("mine", at=end, instead="No.") as fork:
            assert fork.result().reason is DoneReason.END_TURN
        async with await other.session("s").fork("theirs", at=end) as fork:
            assert (await fork.resume()).text == "Here it is."
        await session.interrupt()
        assert (await handle.wait()).text == "Well"


# Children


SCOUT = ChildSpec(name="scout", tools=("look",))
SENDS = calls(("run_agent", {"agent": "scout", "prompt": "look"}))


async def sent() -> tuple[MemoryStore, int]:
    """A store with a session whose child was at work, and the step at which it was over."""
    agent, _ = made(SENDS, says("Seen."), says("Done."), children=[SCOUT])
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        await session.run("go")
    return agent.store, at(await steps_of(agent.store), AgentFinished)


async def test_a_fork_where_a_child_is_at_work_is_refused_and_better_steps_are_named() -> None:
    """It has a session of its own, which would begin anew under the fork without anybody noticing."""
    store, step = await sent()
    agent, _ = made(store=store, children=[SCOUT])
    child = next(info.session for info in await store.list() if info.session != "s")
    says_what = f"child 'scout' is at work for call '.*'; fork at {step - 2} or {step + 1}, or pass"
    with pytest.raises(ConfigError, match=says_what):
        await agent.session("s").fork("f", at=step)
    with pytest.raises(ConfigError, match=says_what):
        await agent.session("s").fork("f", at=step, instead=SetMode(mode=PermissionMode.PLAN))
    assert [info.session for info in await store.list()] == ["s", child]


async def test_a_child_that_is_at_work_can_be_answered_for() -> None:
    """What it says instead is all that the fork knows of it: it has no session, and cost nothing."""
    store, step = await sent()
    fork, _, _ = await gone_on(store, step, says("Fine."), instead="nothing", children=[SCOUT])
    assert texts(fork) == ["go", "nothing", "Fine."]
    assert fork.spent.turns == 1
    assert (await costs(store, "f")).total == fork.spent


async def test_what_a_child_is_said_to_have_used_is_on_the_bill() -> None:
    """Where the event says so that takes the place of its answer."""
    store, step = await sent()
    event = (await steps_of(store))[step].event
    assert isinstance(event, AgentFinished)
    assert event.spent != Spent()
    fork, _, _ = await gone_on(
        store, step, says("Fine."), instead=attrs.evolve(event, content="nothing"), children=[SCOUT]
    )
    bill = await costs(store, "f")
    assert (bill.total, [child.agent for child in bill.children]) == (fork.spent, ["scout"])


async def test_a_new_child_has_a_session_of_the_forks_own() -> None:
    """Forked before it began, the fork sends one of its own, whose name nobody has."""
    store, step = await sent()
    fork, _, _ = await gone_on(
        store, step - 2, SENDS, says("Seen again."), says("Done again."), children=[SCOUT]
    )
    names = {info.session for info in await store.list()}
    assert len(names) == 4
    assert len([name for name in names if name.startswith("f.")]) == 1
    assert texts(fork)[-1] == "Done again."


async def test_who_asks_why_is_led_to_the_child_where_it_is() -> None:
    """The child of a call that was copied has the session it had."""
    store, step = await sent()
    agent, _ = made(store=store, children=[SCOUT])
    async with await agent.session("s").fork("f", at=step + 1) as fork:
        pass
    (call,) = [wish.id for message in fork.history for wish in message.calls]
    started = [
        moment.text for moment in (await explain(store, "f", call)).moments if moment.what == "started"
    ]
    assert started == [f"agent scout, in session s.{call}: look"]


# What is the fork's


async def test_the_account_is_its_own_and_the_run_is_limited_by_all_of_it() -> None:
    """What the run had used counts for its limits, but is on the bill of the other session."""
    priced = ModelSpec(name="scripted", price=Price(input=1_000_000, output=0))
    limits: dict[str, Any] = {"limits": Limits(turns=2), "model": priced}
    three = calls(("look", {})), calls(("look", {})), says("Done.")
    agent, _ = made(*three, model=priced)
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        await session.run("look")
        assert session.spent.cost == 30
    steps = await steps_of(agent.store)
    fork, model, _ = await gone_on(agent.store, at(steps, ModelFinished, 1), three[0], **limits)
    assert (len(model.requests), fork.result().reason) == (1, DoneReason.MAX_TURNS)
    assert (str(fork.result().spent.cost), str(fork.spent.cost), fork.spent.turns) == ("20", "10", 1)
    (run,) = await fork.runs()
    assert (str(run.spent.cost), run.copied, run.current) == ("10", False, True)
    assert (await costs(agent.store, "f")).total.cost == 10
    about = {one.session: one.about for one in await listed(agent.store)}
    assert [str(about[name].spent.cost) for name in "fs"] == ["10", "30"]


async def test_what_comes_after_the_run_is_on_the_bill_too() -> None:
    """What was used elsewhere stays off it, however long the fork goes on."""
    store, steps = await paid()
    fork, _, _ = await gone_on(store, at(steps, ToolFinished), says("Hm."))
    agent, _ = made(says("Yes."), says("No."), store=store)
    async with agent.session("f") as again:
        await again.run("more")
        await again.branch()
        await again.run("anew")
        assert (again.spent.turns, fork.spent.turns) == (3, 1)
        assert [run.spent.turns for run in await again.runs()] == [1, 1, 1]
        async with await again.fork("g") as other:
            assert other.spent == Spent()


async def test_everybody_knows_what_it_is() -> None:
    """Its kind, its parent, its runs and messages under the name that the run has here."""
    store, steps = await paid()
    step = at(steps, ToolFinished)
    fork, _, _ = await gone_on(store, step, says("Hm."), instead="nothing")
    run = fork.result().run
    (about,) = [one.about for one in await listed(store) if one.session == "f"]
    assert (about.kind, about.parent, about.runs, about.title) == (SessionKind.FORK, "s", 1, "pay")
    document = json.loads(await export(store, "f"))
    assert [one["run"] for one in document["runs"]] == [run]
    assert {one["run"] for one in document["messages"]} == {run}
    assert run not in [one.run for one in await made(store=store)[0].session("s").runs()]
    (forked,) = [one.entry for one in await steps_of(store, "f") if isinstance(one.entry, Forked)]
    assert (forked.session, forked.run) == ("s", run)
    (call,) = [wish.id for message in fork.history for wish in message.calls]
    told = [moment.what for moment in (await explain(store, "f", call)).moments]
    assert told == [
        "wished",
        "judged",
        "asked",
        "taken over",
        "answered",
        "judged",
        "started",
        "copied",
        "ended",
    ]


async def test_what_waits_is_answered_in_the_other_session_only() -> None:
    """A prompt that waits, one that was posted and not taken up; what was said into the run is read."""
    agent, _ = made(calls(("look", {}), ("pay", {"amount": 5})), says("Done."), says("Done too."))
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        (question,) = (await session.run("go")).waiting
        await session.send("waits", id="later")
        await session.steer("and be quick", Steering.WHEN_DONE)
        await session.interrupt()
    end = len(await agent.store.load("s"))
    for step in (end, end - 1):
        other, _ = made(says("So be it."), store=agent.store)
        async with await other.session("s").fork(f"f{step}", at=step) as fork:
            assert (fork.queue, [one.id for one in fork.waiting]) == ((), [question.id])
            await fork.approve(question.id, Deny())
            assert (await fork.resume()).text == "So be it."
        assert "waits" not in texts(fork)
    async with agent.session("s") as session:
        assert [mail.id for mail in session.queue] == ["later"]


async def test_what_was_taken_up_by_the_run_is_read_in_the_fork() -> None:
    """Mail of the run is the run's, and a prompt for another one is not."""
    agent, _ = made(calls(("look", {}), ("pay", {"amount": 5})), says("Done."), says("Done too."))
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        async for notice in session.stream("go"):
            if type(notice).__name__ == "ToolStarted":
                await session.steer("and be quick", Steering.WHEN_DONE)
                await session.send("waits", id="later")
    steps = await steps_of(agent.store)
    taken = max(at(steps, UserSteered), at(steps, UserSent))
    other, model = made(says("So be it."), store=agent.store)
    async with await other.session("s").fork("f", at=taken + 1) as fork:
        assert fork.queue == ()
        for question in fork.waiting:
            await fork.approve(question.id, Deny())
        while (await fork.resume()).waiting:
            await fork.approve(fork.waiting[0].id, Deny())
    assert "and be quick" in texts(fork)
    assert "waits" not in [message.text for message in model.seen[-1]]


async def test_long_results_files_and_branches_of_before_are_there() -> None:
    """A whole result can be read, a file is seen, and one can go back to where an earlier run ended."""
    picture = Binary(media_type="image/png", data=b"abc")
    agent, _ = made(says("One."), calls(("look", {})), says("Two."))
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        first = (await session.run("a", files=(picture,))).run
        await session.run("b")
    (call,) = [wish.id for message in session.history for wish in message.calls]
    steps = await steps_of(agent.store)
    reads = calls(("read_result", {"id": call, "offset": 0}))
    fork, model, _ = await gone_on(agent.store, at(steps, ModelFinished, 2), reads, says("Read."))
    assert picture in model.seen[0][0].parts
    read = [result.content for message in fork.history for result in message.results][-1]
    assert read.startswith("one, two and so on ")
    other, model = made(says("Three."), store=agent.store)
    async with other.session("f") as again:
        await again.branch(first)
        await again.run("c")
    assert texts(again) == ["a", "One.", "c", "Three."]


async def test_a_long_result_that_came_instead_is_found_whole() -> None:
    """It is in the fork's own journal."""
    store, steps = await paid()
    instead = "x" * 100_000
    fork, _, _ = await gone_on(store, at(steps, ToolFinished), says("Long."), instead=instead)
    (call,) = [wish.id for message in fork.history for wish in message.calls]
    agent, model = made(calls(("read_result", {"id": call, "offset": 90_000})), says("Read."), store=store)
    async with agent.session("f") as again:
        await again.run("read it")
    assert "x" * 1_000 in [result.content for message in model.seen[-1] for result in message.results][-1]


async def test_what_was_granted_for_good_is_granted_there() -> None:
    """Nobody is asked again about what somebody always allows."""
    agent, _ = made(PAYS[0], PAYS[0], says("Paid twice."))
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        (question,) = (await session.run("pay")).waiting
        await session.approve(question.id, ApproveAlways())
        await session.resume()
    steps = await steps_of(agent.store)
    fork, _, shop = await gone_on(agent.store, at(steps, ModelFinished, 1), PAYS[0], says("Again."))
    assert (shop.paid, texts(fork)[-1]) == ([5], "Again.")


async def test_a_fork_can_be_forked() -> None:
    """In its own steps and in those that were copied; a run has one name in each."""
    store, steps = await paid()
    await gone_on(store, at(steps, ToolFinished), says("Hm."), instead="nothing")
    names: set[str] = set()
    for number, step in enumerate(await steps_of(store, "f")):
        if step.state is not None:
            agent, _ = made(*PAYS, store=store)
            async with await agent.session("f").fork(f"g{number}", at=number + 1) as fork:
                if fork.unfinished:
                    names.add((await fork.resume()).run)
                assert fork.machine is not None
    assert len(names) == len(await steps_of(store, "f")) - 2


# What is refused


async def refusal(step: int, instead: Replacement | None = None, name: str = "f", **settings: Any) -> str:
    """What is said to who wants to fork a session in which something was paid for."""
    store, _ = await paid(**settings)
    agent, _ = made(store=store)
    with pytest.raises((ConfigError, ArgumentError, TooLarge)) as found:
        await agent.session("s").fork(name, at=step, instead=instead)
    assert [info.session for info in await store.list()] == ["s"]
    return str(found.value)


RAN = ToolFinished(at=1.0, request="r-1", content="")


@pytest.mark.parametrize(
    ("step", "instead", "says_what"),
    [
        (-1, None, "session 's' cannot be forked at step -1: it has 11 steps, the first is 0"),
        (12, None, "session 's' cannot be forked at step 12: it has 11 steps, the first is 0"),
        (0, None, "session 's' cannot be forked at step 0: no prompt yet; fork at 2 or later"),
        (1, "another prompt", "session 's' cannot be forked at step 1: no prompt yet; fork at 2 or later"),
        (5, "yes", "instead=text needs .*; step 5 has none .open: none"),
        (3, Approve(), "instead=decision needs an open question at step 3; open: none"),
        (11, Deny(), "instead=decision needs an open question .*; open: none"),
        (3, RAN, "ToolFinished has no effect at step 3 .state streaming"),
        (11, RAN, "ToolFinished has no effect at step 11 .state done"),
        ("3", None, "ForkPoint.at must be .*int.*'3'"),
        (3, 7, "instead must be an event, a setting, a decision or text; got 7"),
        (3, SetModel(model=" "), "SetModel.* cannot be made: a model has a name"),
    ],
)
async def test_a_fork_that_cannot_be_is_refused(step: Any, instead: Any, says_what: str) -> None:
    """With what is wrong and where it could be; there is no half of a session."""
    assert re.search(says_what, await refusal(step, instead))


SENT: Any = UserSent
YES: Any = Approve
"""As they are, for fields of the wrong types."""

KEPT = "cannot be kept: a field is not of its type, or no finite number$"


@pytest.mark.parametrize(
    ("instead", "says_what"),
    [
        ("x" * 4_000_001, "^the text in instead has 4,000,001 characters, and may have 4,000,000$"),
        (" ", "^a prompt has to say something; got ' '$"),
        (YES(arguments={"a": 1}), "^arguments .JSON. and message are text"),
        (UserSent(at=1.0, id="q" * 1_001, text="x"), "^the id of a prompt has 1,001 characters"),
        (UserSent(at=1.0, id="q", text=""), "^a prompt has to say something"),
        (SENT(at=1.0, id="q", text="x", files=(1,)), "^Input.files must be a tuple of Binary"),
        (UserSent(at=math.nan, id="q", text="x"), KEPT),
        (SENT(at="now", id="q", text="x"), KEPT),
        (UserSteered(at=math.inf, id="q", text="x", how=Steering.NOW), KEPT),
        (Interrupted(at=math.nan), KEPT),
        (attrs.evolve(RAN, content=5), KEPT),  # type: ignore[arg-type]  # on purpose
    ],
    ids=range(11),
)
async def test_what_nobody_could_read_again_is_not_kept_instead(instead: Any, says_what: str) -> None:
    """As where it is said to the session itself; nothing of it is in any store."""
    assert re.search(says_what, await refusal(11, instead))


async def test_a_name_that_is_taken_is_refused() -> None:
    """Nothing is written to the session that has it."""
    assert "session 's' is there already" in await refusal(5, name="s")


async def test_a_question_among_several_is_named() -> None:
    """By the step that answers it, or by an event that does."""
    agent, _ = made(
        calls(("pay", {"amount": 1}), ("pay", {"amount": 2})),
        policy=attrs.evolve(Agent(model="scripted").config.policy, concurrency="parallel_reads"),
    )
    assert isinstance(agent.store, MemoryStore)
    async with agent.session("s") as session:
        first, second = (await session.run("pay")).waiting
    end = len(await agent.store.load("s"))
    with pytest.raises(ConfigError, match=f"open: {first.id}, {second.id}"):
        await agent.session("s").fork("f", at=end, instead=Approve())
    given = ApprovalGiven(at=1.0, request=second.id, decision=Deny())
    async with await agent.session("s").fork("f", at=end, instead=given) as fork:
        assert [question.id for question in fork.waiting] == [first.id]


async def test_what_nobody_ran_cannot_be_forked() -> None:
    """A session that is not there, one to which something was sent only, and one that is not kept."""
    agent, _ = made(says("Done."))
    for _ in range(2):
        with pytest.raises(UnknownSession):
            await agent.session("s").fork("f", at=0)
        async with agent.session("s") as session:
            await session.send("later")
    unkept = Agent(model="scripted", performers={CallModel: ScriptedModel(says("Done."))})
    async with unkept.session("s") as session:
        await session.run("go")
        with pytest.raises(ConfigError, match="no store"):
            await session.fork("f", at=2)
