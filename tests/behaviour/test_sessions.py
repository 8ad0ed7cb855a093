"""Sessions: their branches, titles, lists, copies and ends, and what comes from outside."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest
from behaviour.conftest import Stage

from turnwheel import (
    Agent,
    ApproveAlways,
    ChildSpec,
    Deny,
    DoneReason,
    Machine,
    MemoryStore,
    ModelSpec,
    PermissionMode,
    Policy,
    Price,
    Rule,
    Session,
    SetMode,
    SetModel,
    SQLiteStore,
    tool,
)
from turnwheel.effects.errors import (
    ConfigError,
    JournalError,
    NewerVersion,
    SessionBusy,
    SessionGone,
    StoreConflict,
    TooLarge,
    UnknownRun,
    UnknownSession,
)
from turnwheel.effects.events import ApprovalGiven, Failure, ModelFinished, ToolFinished
from turnwheel.effects.messages import Binary, Outcome, StopReason
from turnwheel.effects.notices import (
    AgentNoticed,
    ApprovalRequested,
    CallSettled,
    ModelCalled,
    RunEnded,
    TextDelta,
    ToolStarted,
    TurnEnded,
    Warned,
)
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.inspect.archive import bisect, delete, export, prune, replay
from turnwheel.engine.inspect.listing import Listed, latest, listed
from turnwheel.engine.journal.summary import Activity, activity_of
from turnwheel.states.state import Compacting, CompactReason, Thinking
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, fails, says, stalls

# Sessions as things one keeps: a tree of runs, a title, a place in a list, and an end

PRICED = ModelSpec(name="scripted", price=Price(input=1, output=2))
SPAWN = calls(("run_agent", {"agent": "scout", "prompt": "find it"}))
CHILD: dict[str, Any] = {"children": [ChildSpec(name="scout")]}


@pytest.mark.behaviour("a-session-says-what-it-does")
async def test_a_session_goes_from_idle_by_way_of_each_activity_and_back(stage: Stage) -> None:
    session = stage.session(
        calls(("look", {}), ("pay", {}), text="so"), SPAWN, says("there"), says("done"), **CHILD
    )
    seen = [(await session.load()).activity]

    async def look(_: object = None) -> None:
        if session.activity is not seen[-1]:
            seen.append(session.activity)

    async def allow(asked: ApprovalRequested) -> None:
        await look()
        await session.approve(asked.request)

    kinds = (ModelCalled, TextDelta, ToolStarted, AgentNoticed, CallSettled, TurnEnded, RunEnded)
    await stage.play(session, on={**dict.fromkeys(kinds, look), ApprovalRequested: allow})
    rounds = [Activity.STREAMING, Activity.EXECUTING_TOOLS]
    assert seen == [Activity.IDLE, *rounds, *rounds, Activity.STREAMING, Activity.IDLE]
    assert {activity_of(state) for state in (Thinking(), Compacting(reason=CompactReason.THRESHOLD))} == {
        Activity.RUNNING
    }


async def told(stage: Stage, session: str = "s") -> Listed:
    [found] = [one for one in await listed(stage.store) if one.session == session]
    return found


async def runs(session: Session, *prompts: str) -> list[str]:
    """Run *session* on each of *prompts*; the ids of the runs."""
    return [(await session.run(prompt)).run for prompt in prompts]


# Back, and another way


@pytest.mark.behaviour("a-session-can-go-back")
async def test_a_session_goes_on_from_an_earlier_run_and_keeps_what_came_since(stage: Stage) -> None:
    session = stage.session(*[says(text) for text in ("A", "B", "C", "D", "E")])
    a, b, c = await runs(session, "a", "b", "c")

    await session.branch(a)
    assert stage.said(session) == ["user: a", "assistant: A"]
    [d] = await runs(session, "d")
    assert stage.shown(4) == ["user: a", "assistant: A", "user: d"]

    await session.branch(c)
    [e] = await runs(session, "e")
    assert stage.shown(5)[-3:] == ["user: c", "assistant: C", "user: e"]
    parents = {info.run: info.parent for info in await session.runs()}
    assert parents == {a: "", b: a, c: b, d: a, e: c}
    assert [(info.run, info.current) for info in await session.heads()] == [(d, False), (e, True)]


@pytest.mark.behaviour("a-session-can-go-back")
async def test_it_stands_there_in_another_process_too(stage: Stage) -> None:
    async with stage.session(says("A"), says("B")) as session:
        a, _ = await runs(session, "a", "b")
        await session.branch(a)
    async with stage.session(says("C")) as session:
        assert stage.said(session) == ["user: a", "assistant: A"]
        await session.run("c")
    assert stage.shown(1) == ["user: a", "assistant: A", "user: c"]


@pytest.mark.behaviour("a-session-can-go-back")
async def test_it_can_go_back_to_its_beginning(stage: Stage) -> None:
    session = stage.session(says("A"), says("B"))
    await session.run("a")
    await session.branch()
    await session.run("b")
    assert stage.shown(2) == ["user: b"]
    assert [info.parent for info in await session.runs()] == ["", ""]


@pytest.mark.behaviour("a-session-can-go-back")
async def test_what_was_spent_on_the_way_back_is_spent(stage: Stage) -> None:
    session = stage.session(says("A"), says("B"), says("C"), model=PRICED)
    a, _ = await runs(session, "a", "b")
    await session.branch(a)
    await session.run("c")
    assert (session.spent.usage.total, str(session.spent.cost)) == (45, "0.00006")
    assert [info.spent.usage.total for info in await session.runs()] == [15] * 3


@pytest.mark.behaviour("a-session-can-go-back")
async def test_it_goes_back_to_before_a_summary(stage: Stage) -> None:
    small = ModelSpec(name="scripted", window=1_000)
    full = Usage(input=800, output=5)
    session = stage.session(says("A"), says("B", usage=full), says("C"), says("D"), model=small)
    long = "tell me " * 150
    a, _, _ = await runs(session, long, "b", "c")
    assert stage.said(session)[0].startswith("user: [Summary")
    await session.branch(a)
    await session.run("d")
    assert stage.shown(stage.asked) == [f"user: {long}", "assistant: A", "user: d"]


@pytest.mark.behaviour("a-session-can-go-back")
async def test_it_cannot_while_a_run_is_not_over_or_to_where_it_never_was(stage: Stage) -> None:
    session = stage.session(says("A"), calls(("pay", {})))
    [a] = await runs(session, "a")
    with pytest.raises(UnknownRun, match=rf"no run 'x' in this session; there are: '{a}'"):
        await session.branch("x")
    await session.run("b")
    with pytest.raises(SessionBusy):
        await session.branch(a)

    loose = stage.agent(says("A"), store=None).session()
    [a] = await runs(loose, "a")
    with pytest.raises(ConfigError, match="store"):
        await loose.branch(a)


@pytest.mark.behaviour("a-fork-goes-its-own-way")
async def test_a_copy_of_a_session_begins_with_all_of_it_and_neither_hears_of_the_other(
    stage: Stage,
) -> None:
    session = stage.session(says("A"), calls(("pay", {})), says("F"), says("G"), model=PRICED)
    await session.run("a")
    await session.control(SetMode(mode=PermissionMode.BYPASS))
    fork = await session.fork("t")
    first, second = await fork.run("to the fork"), await session.run("to the first")

    assert stage.said(fork)[:3] == ["user: a", "assistant: A", "user: to the fork"]
    assert stage.said(session) == ["user: a", "assistant: A", "user: to the first", "assistant: G"]
    assert (first.text, second.text, stage.ran) == ("F", "G", ["pay 1"])
    assert (fork.spent.usage.total, session.spent.usage.total) == (30, 30)
    about = (await told(stage, "t")).about
    assert (about.kind, about.parent, about.title) == ("fork", "s", "a")


@pytest.mark.behaviour("a-fork-goes-its-own-way")
async def test_a_fork_takes_no_name_that_is_taken(stage: Stage) -> None:
    session = stage.session(says("A"))
    await session.run("a")
    other = stage.agent(says("B")).session("t")
    await other.run("b")
    with pytest.raises((StoreConflict, ConfigError)):
        await session.fork("t")
    assert stage.said(await stage.agent().session("t").load()) == ["user: b", "assistant: B"]


# What it is called


@pytest.mark.behaviour("a-session-has-a-title")
@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Mend the roof", "Mend the roof"),
        ("\n  Mend \t the roof  \nbefore it rains", "Mend the roof"),
        ("word " * 40, "word " * 11 + "word…"),
        ("x" * 200, "x" * 59 + "…"),
    ],
    ids=["short", "lines", "long", "one long word"],
)
async def test_by_default_it_is_the_first_line_of_the_first_prompt(
    stage: Stage, prompt: str, title: str
) -> None:
    session = stage.session(says("so"), says("so"))
    await session.run(prompt)
    await session.run("something else")
    assert session.title == title
    assert (await stage.session().load()).title == title
    assert stage.purposes == ""
    assert (await told(stage)).about.title == title


@pytest.mark.behaviour("a-session-has-a-title")
async def test_a_person_may_call_it_otherwise_or_nothing(stage: Stage) -> None:
    session = stage.session(says("so"), says("so"))
    await session.run("first")
    await session.retitle("The roof\nand more")
    await session.run("second")
    assert session.title == (await stage.session().load()).title == "The roof"

    off = stage.agent(says("so"), titles="off").session("other")
    await off.run("first")
    assert off.title == ""


@pytest.mark.behaviour("a-session-has-a-title")
def test_how_it_gets_its_title_is_one_of_three_ways(stage: Stage) -> None:
    with pytest.raises(ConfigError, match=r"Agent\.titles must be one of off, inline, model; got 'on'"):
        stage.agent(titles="on")


async def settle(session: Session) -> None:
    """Wait until the model has said how *session* is called, or nothing of the kind."""
    for _ in range(50):
        await asyncio.sleep(0)
        if session.title:
            return


@pytest.mark.behaviour("a-model-may-find-the-title")
@pytest.mark.parametrize(
    ("said", "title"),
    [("Mending a roof", "Mending a roof"), ('"Mending a roof."\n\nI chose it since', "Mending a roof")],
)
async def test_a_model_is_asked_once_beside_the_first_run(stage: Stage, said: str, title: str) -> None:
    session = stage.session(says("I will"), says(said), says("so"), titles="model")
    await session.run("the roof leaks")
    await settle(session)
    await session.run("and?")

    assert (session.title, stage.purposes) == (title, "tNt")
    request = stage.model.requests[1]
    assert (stage.shown(2), request.tools) == (["user: the roof leaks"], ())
    assert (await stage.session().load()).title == title


@pytest.mark.behaviour("a-model-may-find-the-title")
async def test_what_a_title_costs_is_the_sessions_and_no_runs(stage: Stage) -> None:
    script = (says("I will"), says("A roof"))
    session = stage.session(*script, titles="model", model=PRICED)
    result = await stage.play(session, "the roof leaks")
    await settle(session)
    assert (result.spent.turns, result.spent.usage.total, session.spent.usage.total) == (1, 15, 30)
    assert str(session.spent.cost) == "0.00004"
    assert [one.session for one in await listed(stage.store)] == ["s"]


@pytest.mark.behaviour("a-model-may-find-the-title")
@pytest.mark.parametrize(
    "reply",
    [
        fails(Failure.AUTH),
        says(""),
        says("I will tell you about the", stop=StopReason.MAX_TOKENS),
        fails(Failure.CUT, after="A ro"),
        stalls("A ro"),
    ],
)
async def test_one_that_finds_none_harms_no_run(stage: Stage, reply: Reply) -> None:
    session = stage.session(says("I will"), reply, says("so"), titles="model")
    await session.run("the roof leaks")
    await settle(session)
    assert (await session.run("and?")).text == "so"
    assert session.title == ""
    await session.close()
    assert (await stage.session().load()).title == "the roof leaks"


# The list


@pytest.mark.behaviour("sessions-are-listed")
async def test_a_list_says_of_each_session_what_it_is_about(stage: Stage) -> None:
    session = stage.session(calls(("look", {})), says("A"), says("B"), model=PRICED, cwd="tests")
    await session.run("go")
    await session.run("and?")
    other = stage.agent(calls(("pay", {}))).session("other")
    await other.run("buy")

    assert [one.session for one in await listed(stage.store)] == ["other", "s"]
    about = (await told(stage)).about
    assert (about.kind, about.parent, about.title) == ("main", "", "go")
    assert (about.runs, about.messages, about.state, about.reason) == (2, 6, "idle", DoneReason.END_TURN)
    assert (about.spent, about.cwd) == (session.spent, str(Path("tests").absolute()))
    listing = await told(stage)
    assert listing.created <= listing.updated
    resting = (await told(stage, "other")).about
    assert (resting.state, resting.questions, resting.reason) == ("resting", 1, None)


@pytest.mark.behaviour("sessions-are-listed")
@pytest.mark.parametrize("place", ["memory", "sqlite"])
async def test_a_session_that_was_left_or_shortened_is_listed_as_that(
    stage: Stage, tmp_path: Path, place: str
) -> None:
    store = MemoryStore() if place == "memory" else SQLiteStore(tmp_path / "agent.db")
    small = ModelSpec(name="scripted", window=1_000)
    script = (says("A", usage=Usage(input=800, output=5)), says("B"), calls(("look", {})))
    session = stage.session(*script, model=small, store=store)
    await runs(session, "tell me " * 150, "b")
    await stage.leave(session, "c", ToolStarted)
    [found] = await listed(store)
    assert found.about.state == "unfinished"
    assert 0 < found.about.summary < len(await store.load("s"))
    await store.close()


@pytest.mark.behaviour("sessions-are-listed")
async def test_the_last_one_that_worked_in_a_directory_is_found(stage: Stage, tmp_path: Path) -> None:
    await stage.agent(says("A"), cwd=tmp_path).session("here").run("a")
    await stage.agent(SPAWN, says("x"), says("B"), cwd=tmp_path, **CHILD).session("later").run("b")
    await stage.agent(says("C"), cwd=".").session("elsewhere").run("c")
    assert await latest(stage.store, tmp_path) == "later"
    assert await latest(stage.store, tmp_path / "nowhere") is None

    working = stage.agent(SPAWN, calls(("dig", {})), cwd=tmp_path, **CHILD).session("working")
    async with aclosing(working.stream("d")) as notices:
        async for notice in notices:
            if isinstance(notice, AgentNoticed) and stage.ran == ["dig"]:
                break
    await working.close()
    assert {one.about.kind for one in (await listed(stage.store))[:2]} == {"main", "child"}
    assert await latest(stage.store, tmp_path) == "working"


@pytest.mark.behaviour("a-childs-session-is-linked")
async def test_a_child_has_a_session_that_names_its_parent(stage: Stage) -> None:
    session = stage.session(SPAWN, calls(("look", {})), says("here"), says("done"), **CHILD)
    await session.run("go")
    [child] = [one for one in await listed(stage.store) if one.session != "s"]
    assert (child.about.kind, child.about.parent, child.about.agent) == ("child", "s", "scout")
    assert child.session == f"s.{session.history[1].calls[0].id}"

    read = await session.child(session.history[1].calls[0].id).load()
    assert stage.said(read) == ["user: find it", "assistant: [look]", "tool: saw", "assistant: here"]


# The end of it


@pytest.mark.behaviour("a-session-can-be-taken-out")
async def test_all_that_was_ever_said_is_in_one_document(stage: Stage) -> None:
    small = ModelSpec(name="scripted", window=1_000, price=Price(input=1, output=2))
    script = (says("A", usage=Usage(input=800, output=5)), calls(("look", {"at": "b"})), says("B"), says("C"))
    session = stage.session(*script, model=small)
    first = await session.run("tell me " * 150, files=(Binary(media_type="image/png", data=b"\x89"),))
    await session.run("and?")
    await session.branch(first.run)
    await session.run("or?")

    document = json.loads(await export(stage.store, "s"))
    assert (document["format"], document["session"]) == ("turnwheel session", "s")
    texts = [
        part.get("text") or part.get("content") or part.get("name")
        for message in document["messages"]
        for part in message["parts"]
        if part["type"] in {"Text", "ToolCall", "ToolResult", "text", "tool_call", "tool_result"}
    ]
    for said in ("tell me " * 150, "A", "and?", "look", "saw b", "B", "or?", "C"):
        assert said in texts
    assert [message["summary"] for message in document["messages"]].count(True) >= 1
    parents = [run["parent"] for run in document["runs"]]
    assert parents == ["", first.run, first.run]
    assert float(document["about"]["spent"]["cost"]) == pytest.approx(float(session.spent.cost))
    with pytest.raises(UnknownSession):
        await export(stage.store, "nowhere")


@pytest.mark.behaviour("a-session-can-be-taken-out")
async def test_each_exported_result_says_how_its_call_ended(stage: Stage) -> None:
    script = (calls(("look", {}), ("fail", {"how": "too hot"}), ("pay", {})), says("well"))
    session = stage.session(*script, approver=lambda _: Deny("no"))
    await session.run("go")
    document = json.loads(await export(stage.store, "s"))
    parts = [part for message in document["messages"] for part in message["parts"]]
    results = [part for part in parts if part["type"] == "ToolResult"]
    ended = [(part["name"], part["outcome"], part["is_error"]) for part in results]
    assert ended == [("look", "ok", False), ("fail", "error", True), ("pay", "denied", True)]


@pytest.mark.behaviour("a-deleted-session-is-gone")
async def test_a_session_goes_with_its_children_and_its_forks_stay(stage: Stage) -> None:
    session = stage.session(SPAWN, says("x"), says("A"), says("B"), **CHILD)
    await session.run("a")
    fork = await session.fork("t")
    assert await delete(stage.store, "s") == 2
    assert [one.session for one in await listed(stage.store)] == ["t"]
    assert (await fork.run("b")).text == "B"
    assert await delete(stage.store, "s") == 0
    with pytest.raises(UnknownSession):
        await stage.session().resume()


@pytest.mark.behaviour("a-deleted-session-is-gone")
async def test_a_process_that_runs_a_deleted_session_is_told(stage: Stage) -> None:
    session = stage.session(calls(("look", {})), says("never"))

    async def remove(_: ToolStarted) -> None:
        await delete(stage.store, "s")

    with pytest.raises(SessionGone):
        await stage.play(session, on={ToolStarted: remove})
    assert await listed(stage.store) == ()


@pytest.mark.behaviour("a-deleted-session-is-gone")
async def test_an_object_of_a_deleted_session_cannot_reach_the_one_of_its_name(
    stage: Stage,
) -> None:
    old = stage.session(says("old"), says("never"))
    await old.run("a secret")
    await delete(stage.store, "s")
    new = stage.agent(says("new"), says("newer")).session("s")
    await new.run("hello")
    for told in (old.run("go on"), old.send("go on"), old.retitle("old"), old.load()):
        with pytest.raises(SessionGone, match="'s' was deleted and begun anew"):
            await told
    assert (await new.run("and?")).text == "newer"
    assert stage.said(new) == ["user: hello", "assistant: new", "user: and?", "assistant: newer"]


@pytest.mark.behaviour("a-signed-file-tells-tampering")
async def test_a_conversation_that_another_program_changed_does_not_go_on(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "signed.db", key=b"k" * 32)
    agent = Agent(performers={CallModel: ScriptedModel(says("No."), says("never"))}, store=store)
    await agent.session("s").run("May I?")
    with closing(sqlite3.connect(tmp_path / "signed.db")) as db, db:
        db.execute("update entries set body = replace(body, 'No.', 'Yes')")
    with pytest.raises(JournalError, match="session 's' was tampered with: entry"):
        await agent.session("s").run("Really?")
    await store.close()


@pytest.mark.behaviour("old-sessions-go")
async def test_sessions_not_written_to_for_long_go_with_their_children(stage: Stage) -> None:
    await stage.session(SPAWN, says("x"), says("A"), **CHILD).run("a")
    await stage.agent(calls(("pay", {}))).session("resting").run("b")
    now = max(one.updated for one in await listed(stage.store))

    assert await prune(stage.store, 60.0, now) == ()
    gone = await prune(stage.store, 60.0, now + 61.0)
    assert sorted(name.partition(".")[0] for name in gone) == ["s", "s"]
    assert [one.session for one in await listed(stage.store)] == ["resting"]
    assert await prune(stage.store, 60.0, now + 61.0, keep_unfinished=False) == ("resting",)


# Going through a session again, trying otherwise from a step of it, and finding where two part

ALLOWED = [Rule(verdict="allow", tool="pay")]


async def step_of(stage: Stage, kind: type, session: str = "s") -> int:
    """The number of the first step at which an event of *kind* happened."""
    found = [step.number async for step in replay(stage.store, session) if isinstance(step.event, kind)]
    return found[0]


async def paid(stage: Stage) -> Session:
    session = stage.session(
        calls(("look", {})),
        calls(("pay", {"amount": 5})),
        says("paid"),
        says("so be it"),
        says("and again"),
        rules=ALLOWED,
    )
    await session.run("go")
    return session


@pytest.mark.behaviour("each-step-can-be-seen-again")
async def test_each_step_has_what_happened_and_where_it_led(stage: Stage) -> None:
    session = await paid(stage)
    assert session.machine is not None
    ran, asked, kept = list(stage.ran), stage.asked, await stage.store.load("s")
    steps = [step async for step in replay(stage.store, "s") if step.event is not None]
    answers = [step.label for step in steps if isinstance(step.event, ModelFinished)]
    assert answers == ["executing", "executing", "done"]
    assert [step.spent.usage.total for step in steps if isinstance(step.event, ModelFinished)] == [15, 30, 45]
    assert steps[-1].state == session.machine.state
    assert (stage.ran, stage.asked, await stage.store.load("s")) == (ran, asked, kept)


@pytest.mark.behaviour("a-fork-tries-otherwise")
async def test_a_fork_has_another_result_in_place_of_one(stage: Stage) -> None:
    session = await paid(stage)
    fork = await session.fork("f", at=await step_of(stage, ToolFinished), instead="saw nothing")
    result = await fork.resume()
    assert stage.shown(4) == ["user: go", "assistant: [look]", "tool: saw nothing"]
    assert (result.text, stage.ran) == ("so be it", ["look", "pay 5"])
    assert stage.said(session)[2] == "tool: saw"


@pytest.mark.behaviour("a-fork-tries-otherwise")
async def test_a_fork_has_another_decision_or_model(stage: Stage) -> None:
    session = stage.session(calls(("pay", {})), says("paid"), says("not paid"), says("by another"))
    await session.run("go")
    await session.approve(session.waiting[0].id)
    await session.resume()
    at = await step_of(stage, ApprovalGiven)
    denied = await session.fork("denied", at=at, instead=Deny(message="no"))
    assert (await denied.resume()).text == "not paid"
    assert (stage.ran, stage.outcomes(denied)) == (["pay 1"], ["pay: denied"])

    answered = await step_of(stage, ModelFinished)
    other = await session.fork("other", at=answered, instead=SetModel(model="else"))
    assert (await other.resume()).text == "by another"
    assert [request.model for request in stage.model.requests] == ["scripted"] * 3 + ["else"]


@pytest.mark.behaviour("where-two-part-is-found")
async def test_two_sessions_part_where_something_else_happened(stage: Stage) -> None:
    session = await paid(stage)
    at = await step_of(stage, ToolFinished)
    fork = await session.fork("f", at=at, instead="saw nothing")
    await fork.resume()
    parting = await bisect(stage.store, "s", "f")
    assert parting is not None
    assert parting.one is not None
    assert (parting.one["number"], parting.where) == (at, ("event.content",))

    twin = stage.agent(calls(("look", {})), calls(("pay", {"amount": 5})), says("paid"), rules=ALLOWED)
    await twin.session("twin").run("go")
    assert await bisect(stage.store, "s", "twin") is None


# What comes from outside: snapshots, secrets, journals of other versions, and sizes

PASSWORD = "hunter2-of-old"  # noqa: S105  # no real one


@pytest.mark.behaviour("a-snapshot-restores-the-machine")
async def test_a_snapshot_restores_the_machine_with_its_grants(stage: Stage) -> None:
    session = stage.session(calls(("pay", {})), says("paid"))
    await session.run("go")
    await session.approve(session.waiting[0].id, ApproveAlways())
    await session.resume()
    machine = session.machine
    assert machine is not None
    assert [grant.rule.tool for grant in machine.memory.session.granted] == ["pay"]
    assert Machine.restore(machine.snapshot(), machine.config, machine.memory.history) == machine


@pytest.mark.behaviour("a-secret-reaches-its-tool-only")
async def test_a_password_reaches_its_tool_alone(stage: Stage) -> None:
    given: list[str] = []

    @tool(approval="never")
    def log_in(user: str, password: str) -> str:
        """Log in."""
        given.append(password)
        return f"{user} came in with {password}"

    session = stage.session(
        calls(("log_in", {"user": "ann", "password": PASSWORD})), says("done"), tools=[log_in]
    )
    result = await stage.play(session)
    assert (result.text, given) == ("done", [PASSWORD])
    assert stage.outcomes(session) == ["log_in: ok"]
    seen = [*stage.notices, *session.history, *stage.model.seen, *await stage.store.load("s")]
    assert PASSWORD not in repr(seen)
    assert "[secret password " in stage.shown(2)[-1]


@pytest.mark.behaviour("a-newer-journal-is-refused")
async def test_a_session_of_a_newer_version_is_refused_and_left_alone(stage: Stage) -> None:
    await stage.session(says("so")).run("go")
    [*_, last] = kept = await stage.store.load("s")
    newer = json.dumps({**json.loads(last), "v": 99}).encode()
    await stage.store.append("s", len(kept), [newer])
    later = stage.session(says("more"))
    with pytest.raises(NewerVersion, match=r"'s'.*99.*upgrade turnwheel"):
        await later.run("more")
    assert list(await stage.store.load("s")) == [*kept, newer]


@pytest.mark.behaviour("what-is-too-large-is-refused")
async def test_a_prompt_that_is_too_large_is_refused_by_its_size(stage: Stage) -> None:
    session = stage.session(says("so"))
    said = "the text of a prompt has 5,000,000 characters, and may have 4,000,000"
    with pytest.raises(TooLarge, match=f"^{said}$"):
        await session.send("x" * 5_000_000)
    assert (await session.run("go")).text == "so"
    assert stage.said(session) == ["user: go", "assistant: so"]


@pytest.mark.behaviour("a-session-keeps-its-rules")
async def test_a_denial_of_a_session_holds_until_it_is_lifted(stage: Stage) -> None:
    never, other, allow = Rule(verdict="deny", tool="pay"), Rule(verdict="deny", tool="look"), ALLOWED[0]
    await stage.session(says("first"), rules=[never]).run("go")
    pays = calls(("pay", {})), says("so be it")
    for rules in ([], [other]):
        await stage.session(*pays, rules=rules).run("again")
    session = stage.session(*pays, rules=[allow])
    await session.run("and again")
    assert (session.history[-2].results[0].outcome, stage.ran) == (Outcome.DENIED, [])
    assert session.machine is not None
    assert session.machine.config.rules == (allow, other, never)
    # That is told once, and it does not come back.
    told = list[str]()
    for lifted in ([never], [never], []):
        session = stage.session(*pays, rules=[allow], lifted=lifted)
        told += [notice.text async for notice in session.stream("go on") if isinstance(notice, Warned)]
    assert (told, stage.ran) == (["lifted: deny pay"], ["pay 1"] * 3)


@pytest.mark.behaviour("a-session-keeps-its-rules")
async def test_a_rule_that_asks_holds_in_the_next_run_and_after_a_takeover(stage: Stage) -> None:
    bypass = Policy(mode=PermissionMode.BYPASS)
    first = stage.session(calls(("pay", {})), rules=[Rule(verdict="ask", tool="pay")], policy=bypass)
    question = await first.run("go")
    assert question.reason is None
    await first.close()
    later = stage.session(says("paid"), calls(("pay", {})), policy=bypass)
    await later.approve((await later.load()).waiting[0].id)
    await later.resume()
    assert stage.ran == ["pay 1"]
    await later.run("and again")
    assert ([asked.tool for asked in later.waiting], stage.ran) == (["pay"], ["pay 1"])
