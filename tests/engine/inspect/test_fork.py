"""Forks at a step: what may happen in its place, what is the fork's own, and what is refused."""

from __future__ import annotations

import asyncio
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
    ChildSpec,
    Deny,
    DoneReason,
    Hook,
    HookCall,
    MemoryStore,
    ModelSpec,
    PermissionMode,
    Policy,
    Price,
    Session,
    SetMode,
    SetModel,
    ToolContext,
    hook,
    tool,
)
from turnwheel.effects import config, errors, events, messages, notices, requests, usage
from turnwheel.engine.inspect.archive import costs, explain, export
from turnwheel.engine.inspect.fork import Replacement
from turnwheel.engine.inspect.listing import listed
from turnwheel.engine.inspect.replay import ReplayedStep, replayed
from turnwheel.engine.journal.entries import Forked, Stepped
from turnwheel.engine.journal.summary import SessionKind, SessionStatus
from turnwheel.performers.tools.builtin import read_result
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says, stalls


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "one, two and so on " * 3_000


@tool
def pay(amount: int, context: ToolContext[Any]) -> str:
    """Pay."""
    context.deps.paid.append(amount)
    context.deps.keys.append(context.key)
    return f"paid {amount}"


@tool(side_effect="idempotent", approval="never")
def put(what: str, context: ToolContext[Any]) -> str:
    """Put something somewhere; twice is once."""
    context.deps.keys.append(context.key)
    return f"put {what}"


@tool(approval="never", resources=())
def ring() -> str:
    """Ring."""
    return "rung"


PAYS = (calls(("pay", {"amount": 5})), says("It is paid."))
SCOUT = ChildSpec(name="scout", tools=("look",))
SENDS = calls(("run_agent", {"agent": "scout", "prompt": "look"}))
PICTURE = messages.Binary(media_type="image/png", data=b"abc")
RAN = events.ToolFinished(at=1.0, request="r-1", content="")


class Shop:
    """One process over *store*, whose model says *replies*: the amounts it paid, and under which keys."""

    def __init__(self, *replies: Reply, store: MemoryStore | None = None, **settings: Any) -> None:
        self.store = store or MemoryStore()
        self.paid: list[int] = []
        self.keys: list[str] = []
        self.model = ScriptedModel(*replies)
        given: dict[str, Any] = {"model": "scripted", "tools": (look, pay, put, read_result), **settings}
        given = {"clock": AutoClock(100.0), "performers": {requests.CallModel: self.model}, **given}
        self.agent = Agent(store=self.store, deps=self, **given)

    def session(self, name: str = "s") -> Session:
        return self.agent.session(name)

    async def steps(self, name: str = "s") -> list[ReplayedStep]:
        return list(replayed(await self.store.load(name), name))

    async def at(self, kind: type, which: int = 0) -> int:
        return at(await self.steps(), kind, which)

    async def fork(self, step: int, instead: Replacement | None = None, name: str = "f") -> Session:
        async with await self.session().fork(name, at=step, instead=instead) as fork:
            await fork.resume()
        return fork


def at(steps: list[ReplayedStep], kind: type, which: int = 0) -> int:
    found = [one.number for one in steps if isinstance(one.entry, Stepped) and isinstance(one.event, kind)]
    return found[which]


async def paid(*replies: Reply, **settings: Any) -> Shop:
    """A shop whose session ``s`` had a run in which the model gave *replies* and a person said yes."""
    shop = Shop(*(replies or PAYS), **settings)
    async with shop.session() as session:
        result = await session.run("pay", id="mine")
        while result.waiting:
            for question in result.waiting:
                await session.approve(question.id)
            result = await session.resume()
    return shop


def texts(session: Session) -> list[str]:
    return [
        (message.text or " ".join([result.content for result in message.results]))[:20]
        for message in session.history
        if message.role is not messages.Role.ASSISTANT or message.text
    ]


def results(session: Session) -> list[messages.ToolResult]:
    return [result for message in session.history for result in message.results]


def call_of(session: Session) -> str:
    (call,) = [wish.id for message in session.history for wish in message.calls]
    return call


# A replacement


@pytest.mark.parametrize("whole", [True, False])
async def test_a_model_answers_something_else(*, whole: bool) -> None:
    shop = await paid(says("I will not."))
    before = await shop.steps()
    other = Shop(store=shop.store)
    fork = await other.fork(at(before, events.ModelFinished) - (not whole), "Very well.")
    assert (texts(fork), fork.result().reason) == (["pay", "Very well."], DoneReason.END_TURN)
    assert other.model.requests == []
    assert not whole or fork.spent == before[-1].spent  # the same was read for it
    assert (await shop.steps())[-1].machine == before[-1].machine


async def test_another_model_is_asked() -> None:
    """As the first one was, with a new id; nothing was lost, and nothing is estimated."""
    shop = await paid()
    other = Shop(says("I am another."), store=shop.store)
    fork = await other.fork(await shop.at(events.ModelFinished), SetModel(model="other"))
    assert (texts(fork), fork.result().reason) == (["pay", "I am another."], DoneReason.END_TURN)
    (request,) = other.model.requests
    assert (request.model, request.attempt) == ("other", 1)
    assert request.id not in (await shop.store.load("s"))[1].decode()
    assert (fork.spent.turns, fork.spent.usage.input, fork.spent.usage.estimated) == (1, 10, 0)


@pytest.mark.parametrize(
    ("instead", "outcome"),
    [
        (lambda _: "nothing came", messages.Outcome.OK),
        (
            lambda event: attrs.evolve(event, content="nothing came", outcome=messages.Outcome.ERROR),
            messages.Outcome.ERROR,
        ),
    ],
)
async def test_a_tool_brings_something_else(
    instead: Callable[[Any], Replacement], outcome: messages.Outcome
) -> None:
    shop = await paid()
    steps = await shop.steps()
    step = steps[at(steps, events.ToolFinished)]
    other = Shop(says("I see."), store=shop.store)
    (result,) = results(await other.fork(step.number, instead(step.event)))
    assert (result.content, result.outcome, other.paid) == ("nothing came", outcome, [])


async def test_of_tools_side_by_side_a_text_is_the_result_of_the_one_that_the_step_is_about() -> None:
    ended = asyncio.Event()

    @tool(side_effect="read_only")
    async def last() -> str:
        """End last."""
        await ended.wait()
        return "last"

    @tool(side_effect="read_only")
    async def first() -> str:
        """End first."""
        ended.set()
        return "first"

    settings: dict[str, Any] = {"policy": Policy(concurrency="parallel"), "tools": [last, first]}
    shop = await paid(calls(("last", {}), ("first", {})), says("Done."), **settings)
    step = await shop.at(events.ToolFinished)
    fork = await Shop(says("I see."), store=shop.store, **settings).fork(step, "another")
    assert [result.content for result in results(fork)] == ["last", "another"]
    # Both are open behind the last entry, and none of them is named.
    await shop.store.append("cut", 0, (await shop.store.load("s"))[:step])
    begun = [one.id for one in (await shop.steps())[step - 1].effects if isinstance(one, requests.RunTool)]
    with pytest.raises(errors.ConfigError, match=rf"has none \(open: {begun[0]}, {begun[1]}\)$"):
        await Shop(store=shop.store, **settings).session("cut").fork("g", at=step, instead="another")


@pytest.mark.parametrize("posted", [True, False])
@pytest.mark.parametrize(
    ("decision", "ran", "read"),
    [
        (Deny(message="not now"), [], "not now"),
        (Approve(), [5], "paid 5"),
        (Approve(arguments='{"amount": 2}'), [2], "paid 2"),
        (ApproveAlways(), [5], "paid 5"),
    ],
)
async def test_a_question_gets_another_answer(
    decision: Any, ran: list[int], read: str, *, posted: bool
) -> None:
    """At the step where it was posted, or taken up; an allowed tool is run, since it was not yet."""
    shop = await paid()
    steps = await shop.steps()
    first = next(step.number for step in steps if isinstance(step.event, events.ApprovalGiven))
    number = first if posted else at(steps, events.ApprovalGiven)
    other = Shop(says("So be it."), store=shop.store)
    fork = await other.fork(number, decision)
    assert (other.paid, texts(fork)) == (ran, ["pay", read, "So be it."])
    steps = await other.steps("f")
    (answered,) = [step for step in steps if isinstance(step.event, events.ApprovalGiven) and step.effects]
    assert getattr(answered.event, "by", "") == f"a fork at step {number}"


async def test_arguments_that_cannot_run_are_refused_for_a_fork() -> None:
    shop = Shop(PAYS[0])
    async with shop.session() as session:
        await session.run("pay")
        end = len(await shop.store.load("s"))
        with pytest.raises(errors.AnswerRefused, match="'pay': amount must be of type integer"):
            await session.fork("f", at=end, instead=Approve(arguments={"amount": "much"}))
    assert [row.session for row in await listed(shop.store)] == ["s"]


async def test_a_session_that_rests_is_forked_both_ways() -> None:
    shop = Shop(PAYS[0])
    async with shop.session() as session:
        (question,) = (await session.run("pay")).waiting
        end = len(await shop.store.load("s"))
        with pytest.raises(errors.SessionBusy):
            await session.fork("f")
        for name, decision in (("yes", Approve()), ("no", Deny())):
            other = Shop(says("So be it."), store=shop.store)
            fork = await other.fork(end, decision, name)
            assert (fork.result().text, other.paid) == ("So be it.", [5] * (name == "yes"))
        assert (await session.load()).waiting == (question,)
        async with await session.fork("as it is", at=end) as fork:
            assert [one.call for one in fork.waiting] == [question.call]
            assert (await listed(shop.store))[0].about.state is SessionStatus.RESTING


async def test_a_yes_is_not_late_in_a_fork_that_would_not_have_been() -> None:
    """The replacement has the time of the event that stood there."""
    policy = Policy(answer_within=60.0)
    shop = await paid(policy=policy)
    other = Shop(says("So be it."), store=shop.store, policy=policy, clock=AutoClock(1e6))
    fork = await other.fork(await shop.at(events.ApprovalGiven), Approve())
    assert (other.paid, texts(fork)[-1]) == ([5], "So be it.")


async def test_another_prompt_is_asked() -> None:
    shop = Shop(says("One."), says("Two."))
    async with shop.session() as session:
        await session.run("a", id="first")
        await session.send("b", id="second", files=(PICTURE,), sender="ann")
        await session.resume()
    steps = await shop.steps()
    posted = next(step.number for step in steps if getattr(step.event, "id", "") == "second")
    for step in (posted, posted + 1):
        other = Shop(says("Three."), store=shop.store)
        fork = await other.fork(step, "c", f"f{step}")
        assert (texts(fork), len(other.model.requests)) == (["a", "One.", "c", "Three."], 1)
    # Only the text is another one: what came with it, and from whom, stays.
    sent = (await shop.steps(f"f{posted}"))[posted + 1].event
    assert isinstance(sent, events.UserSent)
    assert (sent.text, sent.files, sent.sender) == ("c", (PICTURE,), "ann")


async def test_another_text_of_a_prompt_keeps_its_output() -> None:
    shop = Shop(says("One."))
    async with shop.session() as session:
        await session.run("a")
        await session.send("b", id="second", output=int)
    step = next(one.number for one in await shop.steps() if getattr(one.event, "id", "") == "second")
    fork = await Shop(says('{"value": 3}'), store=shop.store).fork(step, "c")
    assert (fork.result().output, texts(fork)[-2]) == (3, "c")


async def test_a_prompt_that_came_during_a_run_gives_way_to_a_prompt() -> None:
    shop = Shop(calls(("look", {})), says("Done."), says("Done too."))
    async for notice in shop.session().stream("go"):
        if isinstance(notice, notices.ToolStarted):
            await shop.session().send("b")
    step = await shop.at(events.UserSent)
    await Shop(says("So be it."), says("So be that."), store=shop.store).fork(step, "c")
    sent = [one.event.text for one in await shop.steps("f") if isinstance(one.event, events.UserSent)]
    assert sent[-1] == "c"


async def test_another_steer_is_read() -> None:
    shop = Shop(calls(("look", {})), calls(("put", {"what": "x"})), says("Done."))
    session = shop.session()
    async for notice in session.stream("go"):
        if isinstance(notice, notices.ToolStarted):
            await session.steer("hurry", config.Steering.WHEN_DONE)
    other = Shop(says("I am slow."), store=shop.store)
    fork = await other.fork(await shop.at(events.UserSteered), "slow down")
    assert texts(fork)[-2:] == ["slow down", "I am slow."]
    assert "slow down" not in [result.content for result in results(fork)]
    assert "hurry" not in [message.text for message in other.model.seen[0]]


async def test_another_mode_holds_from_there_on() -> None:
    shop = await paid()
    other = Shop(*PAYS, store=shop.store)
    fork = await other.fork(await shop.at(events.ModelFinished), SetMode(mode=PermissionMode.BYPASS))
    assert (other.paid, texts(fork)[-1]) == ([5], "It is paid.")


# Open calls


async def test_only_a_call_that_follows_from_the_new_answer_is_begun_for_the_first_time() -> None:
    """A yes lets one tool run; another one that was at work beside it may have run."""
    settings: dict[str, Any] = {"policy": Policy(concurrency="parallel"), "tools": [ring, pay]}
    shop = await paid(calls(("ring", {}), ("pay", {"amount": 5})), says("Done."), **settings)
    asked = next(step for step in await shop.steps() if step.label == "confirming")
    assert [type(effect).__name__ for effect in asked.effects].count("RunTool") == 1
    other = Shop(says("Hm."), store=shop.store, **settings)
    fork = await other.fork(asked.number + 1, Approve())
    ended = [(result.name, result.outcome) for result in results(fork)]
    assert ended == [("ring", messages.Outcome.UNKNOWN), ("pay", messages.Outcome.OK)]
    assert other.paid == [5]


async def test_a_call_that_is_handed_over_in_one_session_is_not_begun_in_a_copy_of_it() -> None:
    """The process that goes on with that one begins it: in the copy it may have run."""
    shop = await paid()
    await (
        Shop(store=shop.store).session().fork("f", at=await shop.at(events.ApprovalGiven), instead=Approve())
    )
    other = Shop(says("Hm."), store=shop.store)
    async with await other.session("f").fork("g", at=len(await shop.store.load("f"))) as copy:
        await copy.resume()
    assert (other.paid, [one.outcome for one in results(copy)]) == ([], [messages.Outcome.UNKNOWN])
    third = Shop(says("Paid."), store=shop.store)
    await third.session("f").resume()
    assert third.paid == [5]


async def test_a_tool_that_was_at_work_and_may_be_run_again_has_the_key_it_had() -> None:
    wishes = calls(("put", {"what": "a"})), calls(("put", {"what": "b"})), says("Done.")
    shop = await paid(*wishes)
    other = Shop(*wishes[1:], store=shop.store)
    await other.fork(await shop.at(events.ToolFinished))
    (first, second), (again, fresh) = shop.keys, other.keys
    assert (first == again, second == fresh) == (True, False)
    assert fresh.startswith(f"{(await other.steps('f'))[-1].run}-")


async def test_a_session_at_work_is_forked_meanwhile() -> None:
    shop = Shop(calls(("look", {})), stalls("Well"))
    async with shop.session() as session:
        handle = session.start("look")
        assert await turns(PATIENCE, lambda: len(shop.model.requests) == 2)
        end = len(await shop.store.load("s"))
        async with await session.fork("mine", at=end, instead="No.") as fork:
            assert fork.result().reason is DoneReason.END_TURN
        fork = await Shop(says("Here it is."), store=shop.store).fork(end, name="theirs")
        assert fork.result().text == "Here it is."
        await session.interrupt()
        assert (await handle.wait()).text == "Well"


# Children


async def sent() -> tuple[Shop, int]:
    """A shop whose session had a child at work, and the step at which that was over."""
    shop = Shop(SENDS, says("Seen."), says("Done."), children=[SCOUT])
    async with shop.session() as session:
        await session.run("go")
    return shop, await shop.at(events.AgentFinished)


async def test_a_fork_where_a_child_is_at_work_is_refused_and_better_steps_are_named() -> None:
    """The child has a session of its own, which would begin anew under the fork."""
    shop, step = await sent()
    child = next(info.session for info in await shop.store.list() if info.session != "s")
    other = Shop(store=shop.store, children=[SCOUT])
    reason = f"child 'scout' is at work for call '.*'; fork at {step - 2} or {step + 1}, or pass"
    for instead in (None, SetMode(mode=PermissionMode.PLAN)):
        with pytest.raises(errors.ConfigError, match=reason):
            await other.fork(step, instead)
    assert [info.session for info in await shop.store.list()] == ["s", child]


async def test_a_child_that_is_at_work_can_be_answered_for() -> None:
    """The fork knows its answer only: it has no session, and costs nothing, unless the event says so."""
    shop, step = await sent()
    fork = await Shop(says("Fine."), store=shop.store, children=[SCOUT]).fork(step, "nothing")
    assert (texts(fork), fork.spent.turns) == (["go", "nothing", "Fine."], 1)
    assert (await costs(shop.store, "f")).total == fork.spent
    event = (await shop.steps())[step].event
    assert isinstance(event, events.AgentFinished)
    assert event.spent != usage.Spent()
    instead = attrs.evolve(event, content="nothing")
    other = await Shop(says("Fine."), store=shop.store, children=[SCOUT]).fork(step, instead, "g")
    bill = await costs(shop.store, "g")
    assert (bill.total, [child.agent for child in bill.children]) == (other.spent, ["scout"])


async def test_a_new_child_has_a_session_of_the_forks_own() -> None:
    shop, step = await sent()
    other = Shop(SENDS, says("Seen again."), says("Done again."), store=shop.store, children=[SCOUT])
    fork = await other.fork(step - 2)
    names = {info.session for info in await shop.store.list()}
    assert (len(names), sum(name.startswith("f.") for name in names)) == (4, 1)
    assert texts(fork)[-1] == "Done again."


async def test_the_explanation_of_a_copied_call_names_the_childs_session() -> None:
    shop, step = await sent()
    fork = await Shop(store=shop.store, children=[SCOUT]).session().fork("f", at=step + 1)
    call = call_of(fork)
    started = [one.text for one in (await explain(shop.store, "f", call)).moments if one.what == "started"]
    assert started == [f"agent scout, in session s.{call}: look"]


# The fork's own


async def test_the_account_is_its_own_and_the_run_is_limited_by_all_of_it() -> None:
    """The usage before the fork counts for the limits, but is on the bill of the other session."""
    priced = ModelSpec(name="scripted", price=Price(input=1_000_000, output=0))
    looks = calls(("look", {}))
    shop = await paid(looks, looks, says("Done."), model=priced)
    other = Shop(looks, store=shop.store, model=priced, limits=config.Limits(turns=2))
    fork = await other.fork(await shop.at(events.ModelFinished, 1))
    assert (len(other.model.requests), fork.result().reason) == (1, DoneReason.MAX_TURNS)
    assert (str(fork.result().spent.cost), str(fork.spent.cost), fork.spent.turns) == ("20", "10", 1)
    (run,) = await fork.runs()
    assert (str(run.spent.cost), run.copied, run.current) == ("10", False, True)
    assert (await costs(shop.store, "f")).total.cost == 10
    about = {one.session: one.about for one in await listed(shop.store)}
    assert [str(about[name].spent.cost) for name in "fs"] == ["10", "30"]


async def test_later_runs_are_on_the_bill_too() -> None:
    """The usage of elsewhere stays off it, however long the fork goes on."""
    shop = await paid()
    fork = await Shop(says("Hm."), store=shop.store).fork(await shop.at(events.ToolFinished))
    async with Shop(says("Yes."), says("No."), store=shop.store).session("f") as again:
        await again.run("more")
        await again.branch()
        await again.run("anew")
        assert (again.spent.turns, fork.spent.turns) == (3, 1)
        assert [run.spent.turns for run in await again.runs()] == [1, 1, 1]
        async with await again.fork("g") as other:
            assert other.spent == usage.Spent()


async def test_a_fork_has_a_kind_a_parent_and_a_run_of_its_own() -> None:
    shop = await paid()
    other = Shop(says("Hm."), store=shop.store)
    fork = await other.fork(await shop.at(events.ToolFinished), "nothing")
    run = fork.result().run
    (about,) = [one.about for one in await listed(shop.store) if one.session == "f"]
    assert (about.kind, about.parent, about.runs, about.title) == (SessionKind.FORK, "s", 1, "pay")
    document = json.loads(await export(shop.store, "f"))
    assert [one["run"] for one in document["runs"]] == [run]
    assert {one["run"] for one in document["messages"]} == {run}
    assert run not in [one.run for one in await shop.session().runs()]
    (forked,) = [one.entry for one in await other.steps("f") if isinstance(one.entry, Forked)]
    assert (forked.session, forked.run) == ("s", run)
    moments = [moment.what for moment in (await explain(shop.store, "f", call_of(fork))).moments]
    before = ["wished", "judged", "asked", "taken over", "answered", "judged", "started"]
    assert moments == [*before, "copied", "ended"]


async def test_only_the_run_in_which_a_fork_begins_has_another_name_in_it() -> None:
    shop = Shop(says("Hello."), calls(("put", {"what": "a"})), says("Put."))
    async with shop.session() as session:
        first, second = await session.run("hello"), await session.run("put it")
    other = Shop(says("Hm."), store=shop.store)
    fork = await other.fork(await shop.at(events.ToolFinished), "nothing")
    third = fork.result().run
    document = json.loads(await export(shop.store, "f"))
    assert len({first.run, second.run, third}) == 3
    assert [one["run"] for one in document["runs"]] == [first.run, third]
    assert [one["run"] for one in document["messages"]] == [first.run] * 2 + [third] * 4


async def test_a_prompt_that_waits_is_answered_in_the_other_session_only() -> None:
    shop = Shop(calls(("look", {}), ("pay", {"amount": 5})), says("Done."), says("Done too."))
    async with shop.session() as session:
        (question,) = (await session.run("go")).waiting
        await session.send("waits", id="later")
        await session.steer("and be quick", config.Steering.WHEN_DONE)
        await session.interrupt()
    end = len(await shop.store.load("s"))
    for step in (end, end - 1):
        other = Shop(says("So be it."), store=shop.store)
        async with await other.session().fork(f"f{step}", at=step) as fork:
            assert (fork.queue, [one.id for one in fork.waiting]) == ((), [question.id])
            await fork.approve(question.id, Deny())
            assert (await fork.resume()).text == "So be it."
        assert "waits" not in texts(fork)
    assert [mail.id for mail in (await shop.session().load()).queue] == ["later"]


async def test_mail_that_was_taken_up_by_the_run_is_read_in_the_fork() -> None:
    shop = Shop(calls(("look", {}), ("pay", {"amount": 5})), says("Done."), says("Done too."))
    session = shop.session()
    async for notice in session.stream("go"):
        if isinstance(notice, notices.ToolStarted):
            await session.steer("and be quick", config.Steering.WHEN_DONE)
            await session.send("waits", id="later")
    taken = max(await shop.at(events.UserSteered), await shop.at(events.UserSent))
    other = Shop(says("So be it."), store=shop.store)
    async with await other.session().fork("f", at=taken + 1) as fork:
        assert fork.queue == ()
        for question in fork.waiting:
            await fork.approve(question.id, Deny())
        while (await fork.resume()).waiting:
            await fork.approve(fork.waiting[0].id, Deny())
    assert "and be quick" in texts(fork)
    assert "waits" not in [message.text for message in other.model.seen[-1]]


@pytest.mark.parametrize(
    ("asked", "label"),
    [(Hook.SESSION_START, "thinking.opening"), (Hook.USER_PROMPT_SUBMIT, "thinking.admitting")],
)
async def test_a_prompt_that_hooks_are_asked_about_is_answered_in_the_fork(asked: Hook, label: str) -> None:
    @hook(asked)
    def agree(_: HookCall) -> None:
        """Say nothing against it."""

    shop = await paid(says("Done."), hooks=[agree])
    asking = [step.number for step in await shop.steps() if step.label == label]
    assert asking
    for step in asking:
        fork = await Shop(says("Done too."), store=shop.store, hooks=[agree]).fork(step + 1, name=f"f{step}")
        assert texts(fork) == ["pay", "Done too."]


async def test_full_results_files_and_branches_of_before_are_there() -> None:
    shop = Shop(says("One."), calls(("look", {})), says("Two."))
    async with shop.session() as session:
        first = (await session.run("a", files=(PICTURE,))).run
        await session.run("b")
    reads = calls(("read_result", {"id": call_of(session), "offset": 0}))
    other = Shop(reads, says("Read."), store=shop.store)
    fork = await other.fork(await shop.at(events.ModelFinished, 2))
    assert PICTURE in other.model.seen[0][0].parts
    assert results(fork)[-1].content.startswith("one, two and so on ")
    async with Shop(says("Three."), store=shop.store).session("f") as again:
        await again.branch(first)
        await again.run("c")
    assert texts(again) == ["a", "One.", "c", "Three."]


async def test_a_long_replacement_is_found_whole() -> None:
    shop = await paid()
    other = Shop(says("Long."), store=shop.store)
    fork = await other.fork(await shop.at(events.ToolFinished), "x" * 100_000)
    reads = calls(("read_result", {"id": call_of(fork), "offset": 90_000}))
    again = Shop(reads, says("Read."), store=shop.store).session("f")
    await again.run("read it")
    assert "x" * 1_000 in results(again)[-1].content


async def test_a_grant_of_before_holds() -> None:
    shop = Shop(PAYS[0], PAYS[0], says("Paid twice."))
    async with shop.session() as session:
        (question,) = (await session.run("pay")).waiting
        await session.approve(question.id, ApproveAlways())
        await session.resume()
    other = Shop(PAYS[0], says("Again."), store=shop.store)
    fork = await other.fork(await shop.at(events.ModelFinished, 1))
    assert (other.paid, texts(fork)[-1]) == ([5], "Again.")


async def test_a_fork_can_be_forked() -> None:
    """In its own steps and in those that were copied; a run has one name in each."""
    shop = await paid()
    other = Shop(says("Hm."), store=shop.store)
    await other.fork(await shop.at(events.ToolFinished), "nothing")
    names, steps = set[str](), await other.steps("f")
    for number, step in enumerate(steps):
        if step.state is not None:
            third = Shop(*PAYS, store=shop.store)
            async with await third.session("f").fork(f"g{number}", at=number + 1) as fork:
                if fork.unfinished:
                    names.add((await fork.resume()).run)
                assert fork.machine is not None
    assert len(names) == len(steps) - 2


# Refused


async def refusal(step: Any, instead: Any) -> str:
    """The error where a session in which an amount was paid cannot be forked."""
    shop = await paid()
    with pytest.raises((errors.ConfigError, errors.ArgumentError, errors.TooLarge)) as found:
        await Shop(store=shop.store).fork(step, instead)
    assert [info.session for info in await shop.store.list()] == ["s"]
    return str(found.value)


RANGE = "session 's' cannot be forked at step {}: it has 11 steps, the first is 0"
NOTHING = "session 's' cannot be forked at step {}: no prompt yet; fork at 2 or later"


@pytest.mark.parametrize(
    ("step", "instead", "reason"),
    [
        (-1, None, RANGE.format(-1)),
        (12, None, RANGE.format(12)),
        (0, None, NOTHING.format(0)),
        (1, "another prompt", NOTHING.format(1)),
        (5, "yes", "instead=text needs .*; step 5 has none .open: none"),
        (
            3,
            Approve(),
            "^session 's' takes no decision: no question is open at step 3; fork at step 5, 6 or 7$",
        ),
        (
            11,
            Deny(),
            "^session 's' takes no decision: no question is open at step 11; fork at step 5, 6 or 7$",
        ),
        (3, RAN, "ToolFinished has no effect at step 3 .state streaming"),
        (11, RAN, "ToolFinished has no effect at step 11 .state done"),
        ("3", None, "ForkPoint.at must be .*int.*'3'"),
        (3, 7, "instead must be an event, a setting, a decision or text; got 7"),
        (3, SetModel(model=" "), "cannot apply SetModel.*: a model has a name"),
    ],
)
async def test_a_fork_that_cannot_be_is_refused(step: Any, instead: Any, reason: str) -> None:
    assert re.search(reason, await refusal(step, instead))


async def test_a_session_that_has_no_step_has_none_to_fork_at() -> None:
    with pytest.raises(errors.ConfigError, match=r"^session 's' cannot be forked at step 1: it has none$"):
        await Shop().session().fork("f", at=1)


KEPT = "cannot be kept: a field is not of its type, or no finite number$"
SENT: Any = events.UserSent
NO: Any = Deny
"""As they are, for fields of the wrong types."""


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        ("x" * 4_000_001, "^the text in instead has 4,000,001 characters, and may have 4,000,000$"),
        (" ", "^the prompt is empty; give text or a file$"),
        (NO(5), "^the message of a no must be text, interrupt a bool; got message: int"),
        (events.UserSent(at=1.0, id="q" * 1_001, text="x"), "^the id of a prompt has 1,001 characters"),
        (events.UserSent(at=1.0, id="q", text=""), "^the prompt is empty"),
        (SENT(at=1.0, id="q", text="x", files=(1,)), "^files must hold Binary"),
        (events.UserSent(at=math.nan, id="q", text="x"), KEPT),
        (SENT(at="now", id="q", text="x"), KEPT),
        (events.UserSteered(at=math.inf, id="q", text="x", how=config.Steering.NOW), KEPT),
        (events.Interrupted(at=math.nan), KEPT),
        (attrs.evolve(RAN, content=5), KEPT),  # type: ignore[arg-type]  # on purpose
    ],
    ids=range(11),
)
async def test_a_replacement_that_could_not_be_read_again_is_refused(instead: Any, reason: str) -> None:
    """As an input to the session itself is; nothing of it is in any store."""
    assert re.search(reason, await refusal(11, instead))


async def test_one_question_of_several_is_answered_by_an_event_that_names_it() -> None:
    wishes = calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    shop = Shop(wishes, policy=Policy(concurrency="parallel_reads"))
    first, second = (await shop.session().run("pay")).waiting
    end = len(await shop.store.load("s"))
    with pytest.raises(errors.ConfigError, match=f"open at step .*: {first.id}, {second.id}; pass an"):
        await shop.session().fork("f", at=end, instead=Approve())
    given = events.ApprovalGiven(at=1.0, request=second.id, decision=Deny())
    async with await shop.session().fork("f", at=end, instead=given) as fork:
        assert [question.id for question in fork.waiting] == [first.id]


async def test_a_session_without_a_run_cannot_be_forked() -> None:
    shop = Shop(says("Done."))
    for _ in range(2):
        with pytest.raises(errors.UnknownSession):
            await shop.session().fork("f", at=0)
        await shop.session().send("later")
    unkept = Agent(model="scripted", performers={requests.CallModel: ScriptedModel(says("Done."))})
    async with unkept.session("s") as session:
        await session.run("go")
        with pytest.raises(errors.ConfigError, match="no store"):
            await session.fork("f", at=2)
