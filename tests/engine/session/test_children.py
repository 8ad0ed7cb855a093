"""Children at work: asked about, spoken to, stopped, paid for, and gone on with after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import attrs
import pytest
from provers.tasks import turns
from support.patience import PATIENCE
from support.session_stage import CHILDREN, House, Tape, Watch, asked, outcomes, results, told, until

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    ChildSpec,
    Compaction,
    Deny,
    DoneReason,
    Limits,
    MemoryStore,
    ModelSpec,
    PermissionMode,
    Policy,
    Price,
    Result,
    Rule,
    Session,
    SetMode,
    SetModel,
)
from turnwheel.effects import errors, events, history, messages, requests, usage
from turnwheel.effects.config import Concurrency
from turnwheel.effects.notices import (
    AgentNoticed,
    AgentStarted,
    ApprovalRequested,
    ApprovalResolved,
    Notice,
    RunEnded,
    SettingChanged,
    SettingRefused,
    TextDelta,
)
from turnwheel.engine.core.machine import ChildLink, stopped_children
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session import children
from turnwheel.engine.session.children import Children, ChildRunner, child_config
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.performers.approvals import ask
from turnwheel.performers.base import PerformContext, noop
from turnwheel.performers.stores.base import Entries
from turnwheel.performers.worker_pool import WorkerPool
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says, stalls
from turnwheel.testing.stores import StoreOver

pytestmark = pytest.mark.usefixtures("quiet")

SIDE_BY_SIDE = Policy(concurrency=Concurrency.PARALLEL_READS)
PAYER, SCOUT, DIGGER = CHILDREN

DIGS: dict[str, Any] = {"digger": (calls(("dig", {})), says("dug"))}
PAYS: dict[str, Any] = {"payer": (calls(("look", {"at": "it"}), ("pay", {"amount": 5})), says("it is paid"))}
PAID: dict[str, Any] = {"payer": PAYS["payer"][1:]}
"""The rest of it, for a process that goes on."""

READERS = (ChildSpec(name="asker", tools=("peek",)), ChildSpec(name="digger", tools=("dig", "peek")))
"""Children that only read, so that they may be at work at once; one of the reads is asked about."""

PLAN, BYPASS = SetMode(mode=PermissionMode.PLAN), SetMode(mode=PermissionMode.BYPASS)


def hires(*names: str) -> Reply:
    return calls(*[("run_agent", {"agent": name, "prompt": f"{name}, go"}) for name in names])


async def rests(house: House, **settings: Any) -> Session:
    session = house.process(hires("payer"), says("done"), **{**PAYS, **settings})
    await session.run("go")
    return session


async def begun(house: House, *replies: Reply, **settings: Any) -> tuple[Session, Watch]:
    """A session whose child digs, and in which nothing else goes on."""
    session = house.process(hires("digger"), *replies, says("done"), **{**DIGS, **settings})
    watch = Watch(session)
    await until(lambda: "dig" in house.ran)
    async with asyncio.timeout(PATIENCE):
        while not any(isinstance(one, events.AgentProgressed) for one in await house.steps()):  # noqa: ASYNC110  # turns
            await asyncio.sleep(0)
    return session, watch


async def left_with_its_child_over(house: House) -> None:
    session = house.process(hires("scout"), scout=(says("found"),))
    async with aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, RunEnded):
                break
    assert session.unfinished


# Questions


async def test_a_subscriber_sees_a_childs_question_and_answers_it_through_its_parent(house: House) -> None:
    session = house.process(hires("payer"), says("done"), **PAYS)
    watch = Watch(session)
    await until(lambda: session.resting)
    (question,) = session.waiting
    (shown,) = watch.got(ApprovalRequested)
    assert (question.id, question.tool) == (shown.request, "pay")
    assert session.machine is not None
    assert session.machine.state.label == "dispatching"
    await session.approve(question.id, by="ann")
    await watch.task
    assert house.ran == ["look it", "pay 5"]
    assert [answered.by for answered in watch.got(ApprovalResolved)] == ["ann"]
    assert session.waiting == ()


async def test_a_childs_question_is_answered_from_another_process(house: House) -> None:
    here, there = house.process(hires("payer"), says("done"), **PAYS), house.process()
    watch = Watch(here)
    await until(lambda: here.resting)
    await there.load()
    assert there.waiting == here.waiting
    await there.approve(there.waiting[0].id, Deny(message="too much"))
    await watch.task
    assert house.ran == ["look it"]
    child = await here.child(results(here)[0].call).load()
    assert told(child) == ["seen", "too much"]


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(
    ("decision", "ran"),
    [(Approve(), ["pay 5"]), (Approve(arguments='{"amount": 2}'), ["pay 2"]), (Deny(message="no"), [])],
)
async def test_a_run_rests_on_its_childs_question(
    house: House, decision: events.Decision, ran: list[str], *, elsewhere: bool
) -> None:
    session = await rests(house)
    assert (session.unfinished, asked(session)) == (True, ['pay {"amount": 5}'])
    assert asyncio.all_tasks() == {asyncio.current_task()}
    who = await house.process().load() if elsewhere else session
    await who.approve(who.waiting[0].id, decision)
    assert who.waiting == ()

    later = house.process(says("done"), **PAID)
    assert (await later.resume()).text == "done"
    assert house.ran == ["look it", *ran]
    assert told(later) == ["it is paid"]
    assert later.result().spent.usage == usage.Usage(input=40, output=20)


async def test_arguments_that_do_not_fit_a_childs_tool_leave_its_question_open(house: House) -> None:
    session = await rests(house)
    for who in (session, await house.process().load()):
        with pytest.raises(errors.AnswerRefused, match="'pay': amount must be of type integer"):
            await who.approve(who.waiting[0].id, Approve(arguments={"amount": "much"}))
        assert asked(who) == ['pay {"amount": 5}']


@pytest.mark.parametrize("where", ["house", "home"])
async def test_the_same_object_goes_on_with_a_run_that_rested(
    where: str, request: pytest.FixtureRequest
) -> None:
    house: House = request.getfixturevalue("one" if where == "house" else where)
    pays = (calls(("pay", {"amount": 5})), calls(("pay", {"amount": 6})), says("it is paid"))
    session = await rests(house, payer=pays)
    assert asked(await session.resume()) == ['pay {"amount": 5}']
    await session.approve(session.waiting[0].id)
    assert asked(await session.resume()) == ['pay {"amount": 6}']
    await session.approve(session.waiting[0].id)
    assert (await session.resume()).text == "done"
    assert house.ran == ["pay 5", "pay 6"]


async def test_always_holds_for_the_child_that_was_granted_it_only(one: House) -> None:
    session = one.process(
        hires("payer"), calls(("pay", {})), payer=(calls(("pay", {}), ("pay", {})), says("it is paid"))
    )
    await session.run("go")
    await session.approve(session.waiting[0].id, ApproveAlways())
    resting = await session.resume()
    assert one.ran == ["pay 1", "pay 1"]
    assert asked(resting) == ['pay {"amount": 1}']


async def test_a_run_rests_on_a_question_that_the_approver_leaves_to_others(house: House) -> None:
    async def pass_on(_: requests.AskApproval) -> None:
        await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE):
        approver = partial(ask, pass_on, WorkerPool())
        session = await rests(house, performers={requests.AskApproval: approver})
    assert asked(session) == ['pay {"amount": 5}']


async def test_the_deadline_of_a_childs_question_runs_while_a_caller_waits(one: House) -> None:
    policy = Policy(answer_within=5.0)
    assert asked(await rests(one, policy=policy)) == ['pay {"amount": 5}']
    later = one.process(says("done"), policy=policy, **PAID)
    assert (await later.resume(wait=True)).text == "done"
    assert one.ran == ["look it"]


async def test_own_questions_come_before_those_of_children(one: House) -> None:
    both = calls(("run_agent", {"agent": "payer", "prompt": "go"}), ("pay", {"amount": 1}))
    pays = (calls(("pay", {"amount": 5})), says("it is paid"))
    session = one.process(both, says("done"), policy=SIDE_BY_SIDE, payer=pays)
    resting = await session.run("go")
    assert asked(resting) == ['pay {"amount": 1}', 'pay {"amount": 5}']
    for question in reversed(resting.waiting):
        await session.approve(question.id)
    assert session.waiting == ()
    assert (await session.resume()).text == "done"
    assert one.ran == ["pay 5", "pay 1"]


async def test_a_run_rests_when_the_last_of_its_children_does(one: House) -> None:
    """While one asks and the other works it goes on, and an answer is heard; questions are in call order."""
    lines: dict[str, Any] = {
        "asker": (calls(("peek", {})), calls(("peek", {"at": "a"})), says("I peeked")),
        "digger": (calls(("dig", {})), calls(("peek", {"at": "b"})), says("dug")),
    }
    settings: dict[str, Any] = {"policy": SIDE_BY_SIDE, "children": READERS, **lines}
    session, there = one.process(hires("digger", "asker"), says("done"), **settings), one.process(**settings)
    watch = Watch(session, wait=False)
    await until(lambda: "dig" in one.ran and session.waiting)
    assert not session.resting
    await there.load()
    await there.approve(there.waiting[0].id)
    await until(lambda: "peek" in one.ran)
    assert not watch.task.done()
    one.release()
    await watch.task
    assert asked(session) == ['peek {"at": "b"}', 'peek {"at": "a"}']
    for question in session.waiting:
        await session.approve(question.id)
    assert (await session.resume()).text == "done"
    assert told(session) == ["dug", "I peeked"]


@pytest.mark.parametrize("wrong", ["x", ""])
async def test_an_answer_to_no_open_question_names_those_of_children(one: House, wrong: str) -> None:
    session = await rests(one)
    request = session.waiting[0].id
    with pytest.raises(errors.UnknownRequest) as failed:
        await session.approve(wrong)
    assert failed.value.open == (request,)
    await session.approve(request)
    with pytest.raises(errors.UnknownRequest):
        await session.approve(request)


# Speaking to one of them


async def test_the_children_of_a_session_are_listed_while_they_are_at_work(house: House) -> None:
    session, watch = await begun(house)
    there = await house.process().load()
    (call,) = [notice.call for notice in watch.got(AgentStarted)]
    assert list(session.children) == [ChildLink(call=call, session=f"s.{call}", agent="digger")]
    assert there.children == session.children
    assert there.child(call).id == f"s.{call}"
    assert watch.got(RunEnded) == []
    house.release()
    await watch.task
    assert list(session.children) == []
    assert [notice.run for notice in watch.got(RunEnded)][:1] == [call]


@pytest.mark.parametrize("way", ["here", "through its parent", "by its id"])
async def test_a_child_is_steered(house: House, way: str) -> None:
    session, watch = await begun(house)
    cast, call = house.cast, session.children[0].call
    other = await house.process().load()
    ways = {
        "here": lambda: session.child(call),
        "through its parent": lambda: other.child(call),
        "by its id": lambda: house.process(session=f"s.{call}"),
    }
    await ways[way]().steer("deeper")
    machine = session.child(call).machine
    assert machine is not None
    await until(lambda: way == "here" or any("deeper" in str(mail) for mail in machine.memory.session.mail))
    house.release()
    await watch.task
    assert read_by(cast["digger"]) == ["digger, go", "deeper"]
    assert read_by(cast[""]) == ["go"]
    assert told(session) == ["dug"]


def read_by(model: ScriptedModel) -> list[str]:
    return [message.text for message in model.seen[-1] if message.role is messages.Role.USER]


async def test_a_child_may_be_spoken_to_as_soon_as_it_is_announced(one: House) -> None:
    """A steer before it has begun is read behind its task; its run is called after its call."""
    session = one.process(hires("scout"), says("done"), scout=(says("found"),))
    async for notice in session.stream("go"):
        if isinstance(notice, AgentStarted):
            await session.child(notice.call).steer("quickly")
    assert read_by(one.cast["scout"]) == ["scout, go", "quickly"]
    call = results(session)[0].call
    child = await session.child(call).load()
    assert child.machine is not None
    assert child.machine.memory.run == call


async def test_a_child_is_stopped_and_its_parent_goes_on(house: House) -> None:
    session = house.process(hires("scout"), says("done"), scout=(stalls("I see"),))
    watch = Watch(session)
    await watch.until(TextDelta)
    await session.child(session.children[0].call).interrupt()
    await watch.task
    assert [(each.outcome, each.content) for each in results(session)] == [
        (messages.Outcome.CANCELLED, "I see\n[ended: interrupted]")
    ]
    assert session.result().reason is DoneReason.END_TURN


@pytest.mark.parametrize(
    ("limits", "answers", "reads"),
    [
        (Limits(), (says("found"), says("found more")), "found more"),
        (
            Limits(turns=1),
            (says("found"),),
            "found\n[ended: max_turns: ended by session_limits=Limits(turns=1)]",
        ),  # it has nothing left to answer with
    ],
)
async def test_a_steer_that_comes_too_late_for_a_childs_run_is_answered_by_the_child(
    limits: Limits, answers: tuple[Reply, ...], reads: str
) -> None:
    """A person speaks to it in another process while its last answer is being written down."""
    tape = Tape()
    house = House(tape)
    children = (ChildSpec(name="scout", limits=limits),)
    session = house.process(hires("scout"), says("done"), children=children, scout=answers)

    async def speak(name: str, entries: Sequence[bytes]) -> None:
        if name != "s" and any(b'"ModelFinished"' in entry for entry in entries):
            tape.meddlers.clear()
            await House(tape.kept).process(children=children, session=name).steer("look again")

    tape.meddlers.append(speak)
    await session.run("go")
    assert tape.meddlers == []
    assert told(session) == [reads]
    assert session.result().spent.usage == usage.Usage(
        input=20 + 10 * len(answers), output=10 + 5 * len(answers)
    )


SAYS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "steer": lambda child: child.steer("more"),
    "send": lambda child: child.send("more"),
    "control": lambda child: child.control(PLAN),
}


async def test_a_child_that_is_over_can_be_read_and_takes_nothing_any_more(house: House) -> None:
    session = house.process(hires("scout"), says("done"), scout=(says("found"),))
    await session.run("go")
    call = results(session)[0].call
    for child in (session.child(call), house.process(session=f"s.{call}")):
        for say in SAYS.values():
            with pytest.raises(errors.ConfigError, match="has ended; speak to its parent"):
                await say(child)
        await child.interrupt()
        with pytest.raises(errors.ConfigError, match="is a child; resume its parent"):
            await session.child(call).branch()
        assert child.result().text == "found"
        assert [message.text for message in child.history] == ["scout, go", "found"]


@pytest.mark.parametrize("over", [False, True])
async def test_a_child_is_run_by_its_parent_only(house: House, *, over: bool) -> None:
    session = await rests(house)
    call = session.children[0].call
    if over:
        await session.approve(session.waiting[0].id)
        await session.resume()
    for child in (session.child(call), house.process(says("ha"), session=f"s.{call}")):
        for run in (child.resume, lambda child=child: child.run("pay all of it")):
            with pytest.raises(errors.ConfigError, match="is a child; resume its parent"):
                await run()
    assert house.ran == ["look it", *["pay 5"] * over]


async def test_a_call_that_is_no_childs_has_no_session(one: House) -> None:
    both = calls(("look", {}), ("run_agent", {"agent": "nobody", "prompt": "go"}))
    session = one.process(both, says("no"))
    await session.run("go")
    look, spawn = [result.call for result in results(session)]
    for wrong in (look, "x", ""):
        with pytest.raises(errors.UnknownCall):
            session.child(wrong)
    child = session.child(spawn)
    with pytest.raises(errors.UnknownSession):
        await child.steer("hello?")
    assert await one.entries(f"s.{spawn}") == []


async def test_a_copy_of_a_childs_session_is_a_session_like_any_other(one: House) -> None:
    session = one.process(hires("scout"), says("done"), scout=(says("found"),))
    await session.run("go")
    child = await session.child(results(session)[0].call).load()
    await child.fork("mine")
    mine = one.process(says("of course"), session="mine")
    assert (await mine.run("tell me more")).text == "of course"
    assert [message.text for message in mine.history][:2] == ["scout, go", "found"]


# Modes


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_mode_that_is_changed_holds_for_a_child_at_work(house: House, *, elsewhere: bool) -> None:
    child = ChildSpec(name="digger", tools=("dig", "pay"))
    digs = (calls(("dig", {})), calls(("pay", {"amount": 5})), says("dug"))
    session = house.process(hires("digger"), says("done"), children=(child,), digger=digs)
    there = house.process(children=(child,))
    watch = Watch(session)
    await until(lambda: "dig" in house.ran)
    await (there if elsewhere else session).control(BYPASS)
    await watch.until(SettingChanged, 2)
    house.release()
    await watch.task
    assert house.ran == ["dig", "pay 5"]
    assert {notice.change for notice in watch.got(SettingChanged)} == {BYPASS}


async def test_a_mode_that_is_changed_before_a_child_has_begun_holds_for_it(one: House) -> None:
    session = one.process(hires("payer"), says("done"), **PAYS)
    async for notice in session.stream("go"):
        if isinstance(notice, AgentStarted):
            await session.control(BYPASS)
    assert one.ran == ["look it", "pay 5"]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_mode_that_is_changed_while_a_child_rests_holds_when_it_goes_on(
    house: House, *, elsewhere: bool
) -> None:
    """The stricter one also for the question that was open: a yes does not outvote it."""
    session = await rests(house)
    who = await house.process().load() if elsewhere else session
    await who.control(BYPASS)
    await who.control(PLAN)
    await who.approve(who.waiting[0].id)
    later = house.process(says("done"), **PAID)
    await later.resume()
    child = await later.child(results(later)[0].call).load()
    assert house.ran == ["look it"]
    assert outcomes(child) == [messages.Outcome.OK, messages.Outcome.DENIED]


async def test_a_child_that_is_gone_on_with_has_the_mode_its_parent_has_now(one: House) -> None:
    session, watch = await begun(one)
    call = session.children[0].call
    await session.child(call).control(PLAN)  # which its parent has not
    await watch.until(SettingChanged)
    await session.close()
    await watch.task
    later = one.process(says("done"), digger=(says("dug"),))
    one.release()
    await later.resume()
    child = await later.child(call).load()
    assert child.machine is not None
    assert child.machine.memory.session.mode is PermissionMode.DEFAULT


@pytest.mark.parametrize("where", ["its parent's object", "another process", "by its own name"])
async def test_a_child_is_put_in_no_wider_mode_than_its_parent(one: House, where: str) -> None:
    session, watch = await begun(one)
    link = session.children[0]
    there = await one.process().load()
    names = {"another process": there.child(link.call), "by its own name": one.agent().session(link.session)}
    child = await names.get(where, session.child(link.call)).load()
    with pytest.raises(errors.ConfigError, match=r"'bypass' is wider than the ceiling, 'default'"):
        await child.control(BYPASS)
    await child.control(PLAN)
    await session.control(BYPASS)
    await watch.until(SettingChanged, 3)
    await child.control(BYPASS)
    await watch.until(SettingChanged, 4)
    await session.control(PLAN)
    await watch.until(SettingChanged, 6)
    with pytest.raises(errors.ConfigError, match=r"dont_ask.* 'plan'"):
        await child.control(SetMode(mode=PermissionMode.DONT_ASK))
    with pytest.raises(errors.ConfigError, match="resume its parent"):
        await session.child(link.call).take_mode(BYPASS)
    one.release()
    await watch.task


@pytest.mark.parametrize("policy", [None, PermissionMode.PLAN])
async def test_a_wider_mode_that_waited_is_refused_once_the_parent_has_a_narrower_one(
    one: House, policy: PermissionMode | None
) -> None:
    """By its settings of that day, or by what a person said to the parent meanwhile."""
    wide: dict[str, Any] = {
        "policy": Policy(mode=PermissionMode.BYPASS),
        "children": (attrs.evolve(DIGGER, tools=("dig", "pay")),),
    }
    session, watch = await begun(one, **wide)
    call = session.children[0].call
    await session.close()
    await watch.task
    later = one.process()
    await later.load()
    await later.child(call).control(BYPASS)
    if policy is None:
        await later.control(PLAN)
    else:
        wide["policy"] = Policy(mode=policy)
    digs = (calls(("pay", {"amount": 5})), says("dug"))
    last = one.process(says("done"), **wide, digger=digs)
    noticed = Watch(last, None)
    one.release()
    await noticed.task
    assert [notice.reason for notice in noticed.got(SettingRefused)] == [
        "'bypass' is wider than the ceiling, 'plan', the mode of its parent"
    ]
    assert "pay 5" not in one.ran


async def test_an_always_of_a_child_is_its_own(one: House) -> None:
    session = await rests(one)
    await session.approve(session.waiting[0].id, ApproveAlways())
    await session.close()
    later = one.process(calls(("pay", {"amount": 7})), **PAID)
    resting = await later.resume()
    assert one.ran == ["look it", "pay 5"]
    assert asked(resting) == ['pay {"amount": 7}']


async def test_the_model_of_a_child_is_its_own(one: House) -> None:
    session, watch = await begun(one)
    await session.control(SetModel(model="other"))
    await watch.until(SettingChanged)
    one.release()
    await watch.task
    assert len(watch.got(SettingChanged)) == 1
    child = await session.child(results(session)[0].call).load()
    assert child.machine is not None
    assert child.machine.memory.session.model == "one"


# Stopping


async def test_a_second_interrupt_waits_for_no_child(house: House) -> None:
    lead, heard = ScriptedModel(hires("scout")), list[str]()

    async def deaf(
        request: requests.CallModel, scene: PerformContext
    ) -> events.ModelFinished | events.ModelFailed:
        if not scene.config.agent:
            return await lead(request, scene)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            heard.append(str(cancelled))
            if not cancelled.args:
                await asyncio.Event().wait()
            raise
        raise AssertionError

    session = house.process(performers={requests.CallModel: deaf})
    watch = Watch(session)
    await until(lambda: session.children and session.child(session.children[0].call).running)
    await session.interrupt()
    await until(lambda: heard)
    assert not watch.task.done()
    await session.interrupt()
    async with asyncio.timeout(PATIENCE):
        await watch.task
    assert session.result().reason is DoneReason.INTERRUPTED
    assert outcomes(session) == [messages.Outcome.UNKNOWN]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_child_that_rests_is_stopped_with_its_parent(house: House, *, elsewhere: bool) -> None:
    session = await rests(house)
    (question,) = session.waiting
    who = await house.process().load() if elsewhere else session
    await who.interrupt()
    assert who.waiting == ()
    with pytest.raises(errors.UnknownRequest):
        await who.approve(question.id)
    later = house.process()
    assert (await later.resume()).reason is DoneReason.INTERRUPTED
    assert house.ran == ["look it"]
    assert outcomes(later) == [messages.Outcome.CANCELLED]
    assert later.result().spent.usage.total == 30


@pytest.mark.parametrize("how", ["now", "after_tool"])
async def test_a_childs_question_is_overtaken_by_a_steer_that_stops_the_child(house: House, how: Any) -> None:
    session = await rests(house)
    (question,) = session.waiting
    await session.steer("never mind", how)
    if how == "after_tool":
        assert session.waiting == (question,)
        return
    assert session.waiting == ()
    for who in session, await house.process().load():
        with pytest.raises(errors.UnknownRequest, match="a steer came before and closes it; open: none"):
            await who.approve(question.id)


async def test_a_childs_question_is_overtaken_by_an_interrupt_of_its_driven_parent(house: House) -> None:
    session = house.process(hires("payer"), **PAYS)
    watch = Watch(session)
    await until(lambda: session.waiting)
    (question,) = session.waiting
    await session.interrupt()
    assert session.waiting == ()
    # While the session is read again, the driver may come to the interrupt: then the question is past.
    said = rf"(an interrupt came before and closes it|^no open question '{question.id}'); open: none"
    with pytest.raises(errors.UnknownRequest, match=said):
        await session.approve(question.id)
    await watch.task
    assert session.result().reason is DoneReason.INTERRUPTED


class Deaf(StoreOver):
    """Keeps no more entries of children while its *ears* are shut."""

    def __init__(self) -> None:
        super().__init__()
        self.ears = asyncio.Event()
        self.ears.set()

    async def append(self, session: str, *rest: Any, **named: Any) -> str:
        if "." in session:
            await self.ears.wait()
        return await super().append(session, *rest, **named)


@pytest.mark.parametrize(
    ("way", "by"),
    [
        (Session.interrupt, "an interrupt"),
        (lambda session: session.steer("never mind", "now"), "a steer"),
        (lambda session: session.cancel(session.children[0].call), "a stop"),
    ],
)
async def test_a_child_that_has_been_told_to_stop_asks_nothing_more(way: Any, by: str) -> None:
    house = House(store := Deaf())
    session = house.process(hires("payer"), says("done"), **PAYS)
    watch = Watch(session)
    await until(lambda: session.waiting)
    (question,) = session.waiting
    store.ears.clear()
    await way(session)
    # The parent has applied it, and the child has not heard of it yet.
    await until(lambda: session.machine and stopped_children(session.machine.state))
    for who in session, await house.process().load():
        assert who.waiting == ()
        with pytest.raises(errors.UnknownRequest, match=f"{by} came before and closes it; open: none"):
            await who.approve(question.id)
    store.ears.set()
    await watch.task
    assert house.ran == ["look it"]


async def test_an_approval_that_starts_a_child_is_given_once(one: House) -> None:
    session = one.process(hires("digger"), **DIGS, rules=[Rule(verdict="ask", tool="run_agent")])
    (question,) = (await session.run("go")).waiting
    await session.approve(question.id)
    assert session.waiting == ()
    with pytest.raises(errors.UnknownRequest, match="an answer came before"):
        await session.approve(question.id)


# What a child has


@pytest.mark.parametrize(
    ("settings", "model", "expected"),
    [
        # The models of the parent, its fallback and its summariser; what a child has of it.
        ({"models": ("two",)}, "one", ((), "", "")),
        ({"fallback": "two"}, "one", (("two",), "two", "")),
        ({"models": ("two",), "compaction": Compaction(model="two")}, "one", (("two",), "", "two")),
        ({"fallback": "two"}, "two", ((), "two", "")),
        ({"fallback": "two"}, "three", (("two",), "two", "")),
        ({"models": ("two",), "compaction": Compaction(model="one")}, "three", (("one",), "", "one")),
    ],
)
def test_a_child_has_the_fallback_and_the_summariser_of_its_parent(
    settings: dict[str, Any], model: str, expected: tuple[tuple[str, ...], str, str]
) -> None:
    child = ChildSpec(name="scout", model=ModelSpec(name=model))
    parent = Agent(model="one", children=(child,), **settings).config
    request = requests.RunAgent(id="r-1", call="r-0", agent="scout", prompt="go")
    config = child_config(parent, child, request)
    helpers = tuple([each.name for each in config.models])
    assert (config.model.name, (helpers, config.fallback, config.compaction.model)) == (model, expected)
    # Money is only set aside where it can be counted.
    dear = attrs.evolve(child, model=ModelSpec(name=model, price=Price(input=1, output=1)))
    assert child_config(parent, dear, attrs.evolve(request, limits=Limits(usd=1))).models == ()


@pytest.mark.parametrize(
    ("agent", "prompt", "why"),
    [("nobody", "go", "No agent named 'nobody'."), ("scout", "", "the prompt is empty; give text or a file")],
)
async def test_a_child_that_cannot_be_set_up_is_an_error(agent: str, prompt: str, why: str) -> None:
    config, clock, noticed = Agent(model="one", children=(SCOUT,)).config, AutoClock(1.0), list[object]()
    setting = Environment(config=config, performers={}, clock=clock, new_id=lambda: "id")
    scene = PerformContext(
        session="s", run="r", config=config, history=history.History.of(), clock=clock, emit=noticed.append
    )
    request = requests.RunAgent(id="r-1", call="r-0", agent=agent, prompt=prompt)
    log = SessionLog(Journal("s", None))
    answer = await ChildRunner(Children(log, setting, Session), noop, noop)(request, scene)
    assert answer is not None
    assert (answer.outcome, answer.spent) == (messages.Outcome.ERROR, usage.Spent())
    assert why in answer.content
    assert noticed == []


@pytest.mark.parametrize("reply", [says("mine"), calls(("pay", {}))], ids=["over", "at rest"])
async def test_a_session_that_is_no_childs_is_not_taken_for_one(reply: Reply) -> None:
    """A person may have given a session the name that a child's would have. Nothing of it is touched."""

    async def meet(name: str) -> tuple[Session, bool]:
        """A session that hires, after a person had one called *name*; whether that is as it was."""
        house = House(MemoryStore())
        await house.process(reply, session=name).run("my own")
        before = await house.entries(name)
        session = house.process(hires("scout"), says("done"), scout=(says("found"),))
        await session.run("go")
        return session, await house.entries(name) == before

    free, _ = await meet("mine")
    assert told(free) == ["found"]
    taken = f"s.{results(free)[0].call}"
    session, untouched = await meet(taken)
    assert (outcomes(session), told(session)) == (
        [messages.Outcome.ERROR],
        [f"The session {taken!r} is not one of the agent 'scout'."],
    )
    assert untouched
    assert session.result().spent.usage == usage.Usage(input=20, output=10)


# After a crash


@pytest.mark.parametrize(
    "rules", [(), (Rule(verdict="deny", tool="run_agent"),)], ids=["as before", "denied"]
)
async def test_a_child_that_came_to_its_end_while_its_parent_was_left_is_read(
    house: House, rules: tuple[Rule, ...]
) -> None:
    """Also where it may not work any more: there is nothing to stop."""
    await left_with_its_child_over(house)
    later = house.process(says("done"), rules=rules)
    assert (await later.resume()).text == "done"
    assert [(result.outcome, result.content) for result in results(later)] == [(messages.Outcome.OK, "found")]
    assert later.result().spent.usage == usage.Usage(input=30, output=15)


@pytest.mark.parametrize("tools", [None, ("pay",)])
async def test_a_child_that_was_left_without_a_store_goes_on_in_memory(
    home: House, tools: tuple[str, ...] | None
) -> None:
    children = (ChildSpec(name="scout", tools=tools),)
    scout = (stalls("I"), says("it is fine"))
    session = home.process(hires("scout"), says("good"), children=children, scout=scout)
    async with aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, TextDelta):
                break
    await session.resume()
    assert told(session) == ["it is fine"]


async def test_a_child_whose_session_cannot_be_kept_stops_its_parent_and_both_go_on_later() -> None:
    tape = Tape()
    house = House(tape)
    session = house.process(hires("digger"), says("done"), **DIGS)
    watch = Watch(session)
    await until(lambda: "dig" in house.ran)
    (link,) = session.children

    async def full(name: str, _: Sequence[bytes]) -> None:
        if name == link.session:
            msg = "no space left"
            raise errors.StoreError(msg)

    tape.meddlers.append(full)
    house.release()
    with pytest.raises(errors.StoreError, match="no space left"):
        await watch.task
    assert session.unfinished
    tape.meddlers.clear()
    later = house.process(says("done"), digger=[says("dug")])
    assert (await later.resume()).text == "done"
    assert told(later) == ["dug"]
    assert house.ran == ["dig", "dig"]
    assert later.result().spent.usage == usage.Usage(input=40, output=20)


async def test_a_child_whose_session_was_deleted_is_an_error_and_is_paid_for(one: House) -> None:
    session, watch = await begun(one)
    (link,) = session.children
    await one.store.delete(link.session)
    one.release()
    await watch.task
    (result,) = results(session)
    assert result.outcome is messages.Outcome.CRASHED
    assert result.content.startswith("The agent's session failed: ")
    assert session.result().text == "done"
    assert session.result().spent.usage == usage.Usage(input=30, output=15)


@pytest.mark.parametrize(
    "denied",
    [{"policy": Policy(mode=PermissionMode.PLAN)}, {"rules": [Rule(verdict="deny", tool="run_agent")]}],
    ids=["mode", "rule"],
)
async def test_a_child_that_may_not_work_any_more_is_stopped_and_paid_for(
    one: House, denied: dict[str, Any]
) -> None:
    await rests(one)
    later = one.process(says("done"), **denied)
    await later.resume()
    assert outcomes(later) == [messages.Outcome.CANCELLED]
    assert one.ran == ["look it"]
    assert later.result().spent.usage == usage.Usage(input=30, output=15)


async def test_one_of_two_processes_goes_on_with_a_child(house: House) -> None:
    here, watch = await begun(house)
    there = house.process(says("done"), digger=(says("dug"),))
    other = Watch(there, None, takeover=True)
    await until(lambda: house.ran == ["dig", "dig"])
    house.release()
    await other.task
    with pytest.raises(errors.StoreConflict):
        await watch.task
    assert told(there) == ["dug"]
    await here.load()
    assert told(here) == ["dug"]
    assert sum(isinstance(event, events.AgentFinished) for event in await house.steps()) == 1


async def test_a_child_is_taken_over_from_a_process_that_does_not_know_yet_that_it_lost() -> None:
    """It writes once more, between the look into the child's journal and the entry that takes it over."""
    tape = Tape()
    mine, theirs = House(tape.kept), House(tape)
    mine.poll = 3_600.0
    here, watch = await begun(mine)
    (link,) = here.children

    async def write(name: str, _: Sequence[bytes]) -> None:
        if name == link.session:
            tape.meddlers.clear()
            length = len(await tape.load(name))
            mine.release()
            while len(await tape.load(name)) == length:
                pass

    tape.meddlers.append(write)
    theirs.release()
    there = theirs.process(says("done"), digger=(says("dug"),))
    async with asyncio.timeout(PATIENCE):
        await there.resume(takeover=True)
        with pytest.raises(errors.StoreConflict):
            await watch.task
    assert tape.meddlers == []
    assert told(there) == ["dug"]


async def test_a_child_that_is_begun_at_the_last_moment_by_a_process_that_lost_is_gone_on_with() -> None:
    """Its first entry reaches the store behind the next owner's first look into its journal."""
    slow, begins, looked = Tape(), asyncio.Event(), asyncio.Event()

    async def wait(name: str, _: Sequence[bytes]) -> None:
        if name != "s":
            begins.set()
            await looked.wait()

    class Early(StoreOver):
        async def load(
            self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
        ) -> Entries:
            entries = await super().load(session, start, end, incarnation)
            if session != "s" and not entries:
                looked.set()
                while not await super().load(session):  # noqa: ASYNC110  # another process would do it
                    await asyncio.sleep(0)
            return entries

    slow.meddlers.append(wait)
    mine, theirs = House(slow), House(Early(slow.kept))
    mine.poll = 3_600.0
    here = mine.process(hires("digger"), says("done"), **DIGS)
    watch = Watch(here)
    await begins.wait()
    theirs.release()
    there = theirs.process(says("done"), **DIGS)
    async with asyncio.timeout(PATIENCE):
        await there.resume(takeover=True)
        mine.release()
        with pytest.raises(errors.StoreConflict):
            await watch.task
    assert told(there) == ["dug"]


async def left_digging(tape: Tape, times: int) -> tuple[House, list[int]]:
    """
    What goes on with a child that was left at work: it is refused so many *times*, as by one that writes.

    With the length that the child's journal had each time.
    """
    one, later = House(tape), House(tape)
    session, watch = await begun(one)
    (link,) = session.children
    await session.close()
    await asyncio.wait({watch.task})
    refused: list[int] = []

    async def refuse(name: str, _: Sequence[bytes]) -> None:
        if name == link.session and len(refused) < times:
            refused.append(len(await tape.load(name)))
            raise errors.StoreConflict(name, refused[-1], refused[-1] + 1)

    tape.meddlers.append(refuse)
    later.release()
    return later, refused


async def test_a_process_that_still_writes_to_a_child_is_given_time_to_notice_that_it_lost() -> None:
    later, refused = await left_digging(Tape(), 8)
    there = later.process(says("done"), digger=(says("dug"),))
    assert (await there.resume(takeover=True)).text == "done"
    assert len(refused) == 8
    slept = later.clock.slept
    assert slept == sorted(slept)
    # One write costs little. A process that goes on looks about twice a second whether it is the owner.
    assert (slept[0] < 0.05, 0.5 < sum(slept) < 5.0) == (True, True)


async def paused(tape: Tape) -> tuple[Session, asyncio.Task[Result]]:
    """A session that waits until it tries again to take its child over, by a clock that stands still."""
    later, refused = await left_digging(tape, 1)
    session = later.process(says("done"), clock=ManualClock(), digger=(says("dug"),))
    going = asyncio.create_task(session.resume(takeover=True))
    await until(lambda: refused)
    await turns(200)
    assert not going.done()
    return session, going


async def test_an_interrupt_ends_the_pause_before_a_child_is_taken_over() -> None:
    session, going = await paused(Tape())
    await session.interrupt()
    async with asyncio.timeout(PATIENCE):
        assert (await going).reason is DoneReason.INTERRUPTED
    assert outcomes(session) == [messages.Outcome.CANCELLED]


async def test_an_interrupt_right_before_the_pause_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    later, refused = await left_digging(Tape(), 1)
    session = later.process(says("done"), clock=ManualClock(), digger=(says("dug"),))
    look, interrupted = SessionLog.look, list[int]()

    async def look_and_interrupt(log: SessionLog) -> None:
        await look(log)
        if refused and not interrupted:
            interrupted.append(1)
            await session.interrupt()
            await turns(300)

    monkeypatch.setattr(SessionLog, "look", look_and_interrupt)
    async with asyncio.timeout(PATIENCE):
        assert (await session.resume(takeover=True)).reason is DoneReason.INTERRUPTED


async def test_a_session_that_is_let_go_of_does_not_wait_for_its_next_try_to_take_a_child_over() -> None:
    session, going = await paused(Tape())
    async with asyncio.timeout(PATIENCE):
        await session.close()
        with pytest.raises(errors.SessionClosed):
            await going
    assert session.unfinished


# Letting go


async def test_the_last_try_to_take_a_child_over_counts(one: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "TAKE_OVER_TRIES", 0)
    one.release()
    async with one.process(hires("digger"), says("done"), **DIGS) as session:
        assert (await session.run("go")).text == "done"
    assert told(session) == ["dug"]


async def test_a_child_that_is_let_go_of_works_on(one: House) -> None:
    session, watch = await begun(one)
    async with session.child(session.children[0].call) as child:
        assert child.running
    await child.steer("deeper")
    one.release()
    await watch.task
    assert told(session) == ["dug"]
    assert one.ran == ["dig"]


async def test_a_subscriber_of_a_child_sees_its_end(house: House) -> None:
    session = house.process(hires("payer"), says("done"), **PAYS)
    seen: list[Notice] = []

    async def look(child: Session) -> None:
        seen.extend([notice async for notice in child.subscribe()])

    tasks: list[asyncio.Task[None]] = []
    async with session:
        async for notice in session.stream("go", wait=True):
            if isinstance(notice, AgentStarted):
                tasks.append(asyncio.ensure_future(look(session.child(notice.call))))
                await asyncio.sleep(0)
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, ApprovalRequested):
                await session.approve(notice.notice.request)
        # The child is over, and its parent is not closed yet.
        await asyncio.gather(*tasks)
    assert isinstance(seen[-1], RunEnded)


async def test_a_session_that_is_let_go_of_lets_its_children_go(one: House) -> None:
    async with await rests(one) as session:
        watched = session.child(session.children[0].call).subscribe()
    async with asyncio.timeout(PATIENCE):
        assert [notice async for notice in watched] == []
