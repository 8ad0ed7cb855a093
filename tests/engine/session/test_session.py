"""A session's object: one run at a time, one writer, and a journal that is held to what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.session_stage import House, outcomes, until

from turnwheel import Approve, Deny, MemoryStore, Policy, Rule, Session, SQLiteStore
from turnwheel.effects.config import Steering
from turnwheel.effects.errors import (
    ConfigError,
    InputConflict,
    JournalError,
    SessionBusy,
    SessionClosed,
    StoreConflict,
    UnknownRequest,
    UnknownSession,
)
from turnwheel.effects.events import (
    ApprovalGiven,
    Entered,
    ModelFinished,
    ModelStreamed,
    ToolFinished,
    ToolProgressed,
)
from turnwheel.effects.messages import Binary, Outcome
from turnwheel.effects.notices import ApprovalRequested, DoneReason, RunEnded, ToolStarted
from turnwheel.effects.requests import RunTool
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import Stepped
from turnwheel.engine.journal.fold import SessionState, fold
from turnwheel.engine.session import session_log
from turnwheel.performers.base import PerformContext
from turnwheel.performers.hooks import HookCall, hook
from turnwheel.states import confirming, executing, streaming, thinking
from turnwheel.states.context import Context
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.clocks import ManualClock
from turnwheel.testing.scripted import calls, says, stalls


@pytest.mark.parametrize(
    ("decision", "ran"),
    [
        (Approve(), ["pay 1"]),
        (Approve(arguments='{"amount": 9}'), ["pay 9"]),
        (Deny(message="too dear"), []),
    ],
)
async def test_an_answer_is_taken_up_while_the_stream_is_read(
    one: House, decision: Approve | Deny, ran: list[str]
) -> None:
    session = one.session(calls(("pay", {})), says("so be it"))
    async for notice in session.stream("go"):
        if isinstance(notice, ApprovalRequested):
            await session.approve(notice.request, decision)
    assert (session.result().text, one.ran) == ("so be it", ran)


async def test_the_result_of_resume_is_that_of_the_unfinished_run(one: House) -> None:
    session = one.session(calls(("pay", {})), says("paid"), says("B done"), says("C done"))
    (question,) = (await session.run("A")).waiting
    await session.send("B")
    await session.approve(question.id)
    assert (await session.resume()).text == "paid"
    # The prompt behind it had its run, too.
    assert (session.queue, session.result().text) == ((), "B done")
    # Without an unfinished run it is the latest.
    await session.send("C")
    assert (await session.resume()).text == "C done"
    assert (await session.resume()).text == "C done"


async def test_the_result_of_resume_is_of_a_run_that_rests_again(one: House) -> None:
    session = one.session(calls(("pay", {})), calls(("pay", {})), says("paid"))
    (question,) = (await session.run("A")).waiting
    await session.send("B")
    await session.approve(question.id)
    result = await session.resume()
    assert (result.reason, len(result.waiting), len(session.queue)) == (None, 1, 1)


async def test_a_run_beside_one_that_rests_is_refused_with_what_it_asks(one: House) -> None:
    session = one.session(calls(("pay", {})))
    (question,) = (await session.run("a")).waiting
    with pytest.raises(SessionBusy, match=f"session 's' waits for answers to '{question.id}'; approve"):
        await session.run("b")


async def test_a_second_run_is_refused_and_changes_nothing(one: House) -> None:
    session = one.session(calls(("pay", {}), text="well"))
    first = asyncio.ensure_future(session.run("a", wait=True))
    await until(lambda: session.running)
    with pytest.raises(SessionBusy, match="session 's' has a run under way"):
        await session.run("b")
    first.cancel()
    await asyncio.wait({first})
    with pytest.raises(SessionBusy, match="session 's' has a run that was left unfinished; call resume"):
        await session.run("another")
    assert session.history[0].text == "a"


async def test_two_processes_cannot_both_go_on(one: House) -> None:
    async with one.session(calls(("look", {}))) as session, aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, ToolStarted):
                break
    first, second = one.session(stalls("mine")), one.session(says("no, mine"), says("well!"))
    under_way = asyncio.ensure_future(first.resume())
    await until(lambda: first.running)
    with pytest.raises(SessionBusy, match="session 's' has a run under way"):
        await second.resume()
    assert (await second.resume(takeover=True)).text == "no, mine"
    with pytest.raises(StoreConflict, match="another process went on with it"):
        await under_way
    assert (await second.run("well?")).text == "well!"
    assert (await first.resume()).text == "well!"


async def test_a_run_is_taken_over_only_where_its_tools_are(one: House) -> None:
    question = (await one.session(calls(("pay", {}))).run("go")).waiting[0]
    named = {each.spec.name: each for each in one.agent().tools}
    without = one.session(says("no"), tools=[named["look"]])
    await without.approve(question.id)
    length = len(await one.store.load("s"))
    with pytest.raises(ConfigError, match=r"session 's' has tools that are not here: .*'pay'"):
        await without.resume()
    assert (len(await one.store.load("s")), one.ran) == (length, [])
    retired = one.session(says("so be it"), tools=[named["look"]], retired=named)
    assert (await retired.resume()).text == "so be it"
    assert retired.history[-2].results[0].content == "Tool not found: pay. Available: look."
    # A run of its own is set up with the tools of this process.
    assert (await without.run("more")).text == "no"


async def test_a_run_is_taken_over_with_its_denials(one: House) -> None:
    never = Rule(verdict="deny", tool="look")
    question = (await one.session(calls(("pay", {})), rules=[never]).run("go")).waiting[0]
    session = one.session(calls(("look", {})), says("denied"))
    await session.approve(question.id)
    await session.resume()
    assert (session.history[-2].results[0].outcome, one.ran) == (Outcome.DENIED, ["pay 1"])


@pytest.mark.parametrize(("on_error", "name"), [("deny", "'judge'"), ("allow", ""), ("deny", "")])
async def test_a_run_is_taken_over_only_where_its_guards_are(one: House, on_error: Any, name: str) -> None:
    """A guard that is not here cannot deny; one that is retired, or has no say if it fails, may be gone."""

    @hook("pre_tool_use", name="judge", on_error=on_error)
    def judge(_: HookCall) -> None: ...

    question = (await one.session(calls(("pay", {})), hooks=[judge]).run("go")).waiting[0]
    gone = ["judge"] if (on_error, name) == ("deny", "") else []
    without = one.session(says("paid"), retired=gone)
    await without.approve(question.id)
    if name:
        with pytest.raises(ConfigError, match=f"session 's' has hooks that are not here: {name}"):
            await without.resume()
    assert name or (await without.resume()).text == "paid"


async def test_a_question_is_answered_once_by_the_first_who_does(one: House) -> None:
    """The answer is kept when `approve` returns, for any process that goes on."""
    question = (await one.session(calls(("pay", {}))).run("go")).waiting[0]
    first, second = one.session(), one.session()
    await second.load()
    await first.approve(question.id, Approve(arguments='{"amount": 5}'))
    await first.close()
    with pytest.raises(UnknownRequest, match="open: none"):
        await second.approve(question.id, Deny())
    assert (await one.session(says("paid")).resume()).text == "paid"
    assert one.ran == ["pay 5"]


# What takes a question back, from any process, and how an error names it.
CLOSERS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "a steer": lambda session: session.steer("wait"),
    "an interrupt": lambda session: session.interrupt(),
    "a cancel": lambda session: session.cancel(session.waiting[0].call),
    "an answer": lambda session: session.approve(session.waiting[0].id, Deny(interrupt=True)),
}


@pytest.mark.parametrize("by", CLOSERS)
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_answer_that_comes_too_late_is_refused_with_what_overtook_it(
    one: House, by: str, *, elsewhere: bool
) -> None:
    """Nothing has applied that input yet: an answer that was taken would be stored and never used."""
    session = one.session(calls(("pay", {}), ("pay", {"amount": 2})), policy=Policy(concurrency="parallel"))
    first, second = (await session.run("go")).waiting
    other = await one.session().load() if elsewhere else session
    await CLOSERS[by](session)
    length = len(await one.store.load("s"))
    left = by == "a cancel"
    with pytest.raises(UnknownRequest, match=f"'{first.id}': {by} came before and closes it; open: "):
        await other.approve(first.id)
    assert [question.id for question in other.waiting] == [second.id] * left
    assert len(await one.store.load("s")) == length


async def test_a_steer_that_waits_for_the_calls_leaves_their_questions_open(one: House) -> None:
    session = one.session(calls(("pay", {})), says("paid"))
    question = (await session.run("go")).waiting[0]
    await session.steer("and then?", Steering.WHEN_DONE)
    await session.approve(question.id)
    assert (await session.resume()).text == "paid"
    assert one.ran == ["pay 1"]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_answer_that_came_before_a_steer_counts(one: House, *, elsewhere: bool) -> None:
    session = one.session(calls(("pay", {})), says("paid"))
    question = (await session.run("go")).waiting[0]
    other = await one.session().load() if elsewhere else session
    await session.approve(question.id)
    await other.steer("wait")
    assert (await session.resume()).text == "paid"
    assert one.ran == ["pay 1"]


@pytest.mark.parametrize("how", [Steering.NOW, Steering.AFTER_TOOL])
async def test_an_answer_to_a_driven_run_is_used_or_refused(one: House, how: Steering) -> None:
    """While the run waits here: the steer is applied at once, and its answer finds no question."""
    session, other = one.session(calls(("pay", {})), says("so be it")), one.session()
    async for notice in session.stream("go", wait=True):
        if isinstance(notice, ApprovalRequested):
            await session.steer("wait", how)
            with pytest.raises(UnknownRequest):
                await other.approve(notice.request)
            with pytest.raises(UnknownRequest):
                await session.approve(notice.request)
    assert (session.result().text, one.ran) == ("so be it", [])


async def test_an_answer_behind_an_interrupt_of_a_driven_run_is_refused(one: House) -> None:
    """The interrupt is in no journal: only the process that drives the run knows of it."""
    session = one.session(calls(("pay", {})), calls(("pay", {})), says("paid"))
    async for notice in session.stream("go", wait=True):
        if isinstance(notice, ApprovalRequested):
            await session.interrupt()
            assert session.waiting == ()
            with pytest.raises(UnknownRequest, match="an interrupt came before and closes it; open: none"):
                await session.approve(notice.request)
    assert (session.result().reason, one.ran) == (DoneReason.INTERRUPTED, [])
    # It is forgotten with its run.
    (question,) = (await session.run("go on")).waiting
    await session.approve(question.id)
    assert (await session.resume()).text == "paid"


async def test_an_interrupt_of_a_run_that_was_over_closes_no_question_of_the_next(one: House) -> None:
    session = one.session(says("hi"), calls(("pay", {})), says("paid"))
    await session.send("first")
    async for notice in session.stream("second", wait=True):
        if isinstance(notice, RunEnded) and notice.reason is DoneReason.END_TURN and not one.ran:
            await session.interrupt()
        if isinstance(notice, ApprovalRequested):
            await session.approve(notice.request)
    assert (session.result().text, one.ran) == ("paid", ["pay 1"])


async def test_an_answer_in_a_new_process_folds_the_journal_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened, approved and resumed there: what is folded already is gone on from."""
    house, folded = House(SQLiteStore(tmp_path / "s.db")), list[int]()
    question = (await house.session(calls(("pay", {}))).run("go")).waiting[0]

    async def counted(entries: Sequence[bytes], *rest: Any) -> SessionState:
        folded.append(len(entries))
        return fold(entries, *rest)

    monkeypatch.setattr(session_log, "fold_in_slices", counted)
    async with house.session(says("paid")) as session:
        known = session.waiting
        await session.approve(question.id)
        assert (known, (await session.resume()).text, folded) == ((question,), "paid", [5])
    await house.store.close()


async def test_a_journal_that_does_not_follow_is_refused(one: House) -> None:
    await one.session(says("hi")).run("go")
    entries = list(await one.store.load("s"))
    (*_, last) = await one.steps()
    store = MemoryStore()
    await store.append("s", 0, [*entries[:-1], encode_entry(Stepped(event=last, label="executing"))])
    with pytest.raises(
        JournalError,
        match=r"entry 4 of session 's': ModelFinished leads to done, but the journal says executing",
    ):
        await House(store).session().load()


@pytest.mark.parametrize(
    ("state", "event", "history"),
    [
        (thinking, Entered, []),
        (streaming, ModelStreamed, ["user"]),
        (streaming, ModelFinished, ["user"]),
        (executing, ToolFinished, ["user", "assistant", "tool"]),
        (executing, ToolProgressed, ["user", "assistant", "tool"]),
        (confirming, ApprovalGiven, ["user", "assistant", "tool"]),
    ],
)
async def test_a_bug_in_a_handler_ends_the_run_and_not_the_session(
    state: ModuleType, event: type, history: list[str], one: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is journaled as such: a process in which the bug is mended does not go on where the run ended."""
    sound, bug = state.handle, "bug"

    def broken(now: Any, ctx: Context) -> Any:
        if isinstance(ctx.event, event):
            raise KeyError(bug)
        return sound(now, ctx)

    async def look(request: RunTool, scene: PerformContext) -> ToolFinished:
        scene.emit(ToolProgressed(at=0, request=request.id, text="so far"))
        return ToolFinished(at=0, request=request.id, content="seen")

    wish = calls(("look", {}), ("pay", {}), text="hm")
    session = one.session(*[wish] * (state is not thinking), says("well"), performers={RunTool: look})
    with monkeypatch.context() as patched, capture_logs() as lines:
        patched.setattr(state, "handle", broken)
        result = await session.run("go")
        if result.waiting:
            await session.approve(result.waiting[0].id)
            result = await session.resume()
        same = session.machine == fold(await one.store.load("s"), "s").machine
    assert [line["event"] for line in lines].count("a handler failed") == 1
    assert (result.reason, result.detail) == (DoneReason.ERROR, "internal error: KeyError: 'bug'")
    assert [message.role.value for message in session.history] == history
    assert bool(result.spent.usage.total) == (state is not thinking)
    mended = fold(await one.store.load("s"), "s").machine
    assert same
    assert mended is not None
    assert mended.done
    assert state is thinking or mended == session.machine
    assert (await session.run("and now?")).text == "well"
    assert history_faults(session.history) == []
    assert (await one.session(says("yes")).run("still?")).text == "yes"


async def test_the_result_is_that_of_the_prompts_own_run_although_others_follow(one: House) -> None:
    one.held = {1}
    session = one.session(says("first"), says("second"), says("third"))
    running = asyncio.ensure_future(session.run("go"))
    await until(lambda: one.models[0].requests)
    for text in ("more", "and more"):
        await session.send(text)
    one.release()
    assert (await running).text == "first"
    assert session.result().text == "third"


async def test_a_session_that_is_unknown_or_closed_says_so(one: House) -> None:
    session = one.session()
    with pytest.raises(UnknownSession, match="no session 's' in this store"):
        await session.resume()
    with pytest.raises(UnknownSession):
        async with aclosing(session.stream()) as notices:
            await anext(notices)
    await session.close()
    await session.close()
    with pytest.raises(SessionClosed, match="session 's' is closed"):
        await session.run("hi")


async def test_there_is_one_log_line_per_step_and_none_unless_asked(
    one: House, capsys: pytest.CaptureFixture[str]
) -> None:
    session = one.session(*(calls(("look", {})), says("hi")) * 2)
    await session.run("go")
    assert capsys.readouterr() == ("", "")
    with capture_logs() as lines:
        run = (await session.run("go")).run
    assert [(line["step"], line["event_type"], line["state"]) for line in lines] == [
        (1, "RunOpened", "streaming"),
        (2, "ModelStreamed", "streaming"),
        (3, "ModelFinished", "executing"),
        (4, "ToolFinished", "streaming"),
        (5, "ModelStreamed", "streaming"),
        (6, "ModelFinished", "done"),
    ]
    assert {("s", run)} == {(line["session"], line["run"]) for line in lines}


@pytest.mark.parametrize("timed", [False, True])
async def test_a_resume_that_can_do_nothing_leaves_the_run_to_the_process_that_waits(
    one: House, *, timed: bool
) -> None:
    policy, clock = Policy(answer_within=3600.0 if timed else None), ManualClock(100.0)
    waits = one.process(calls(("pay", {})), says("paid"), policy=policy, clock=clock)
    under_way = asyncio.ensure_future(waits.run("go", wait=True))
    second = one.process(policy=policy, clock=clock)
    await until(lambda: waits.resting)
    # It gives the lease up when it looks next.
    while True:
        with suppress(SessionBusy):
            await second.check_free()
            break
        await asyncio.sleep(0)
    length = len(await one.store.load("s"))
    (question,) = (await second.resume()).waiting
    (asked,) = [notice async for notice in second.stream() if isinstance(notice, ApprovalRequested)]
    assert (asked.request, len(await one.store.load("s"))) == (question.id, length)
    # The answer of the one is read by the other, which still has the run.
    await second.approve(question.id)
    assert (await under_way).text == "paid"
    assert (await second.resume()).text == "paid"


async def test_a_resume_with_stricter_settings_takes_the_run_over(one: House) -> None:
    session = one.session(calls(("pay", {})), says("paid"))
    (question,) = (await session.run("go")).waiting
    stricter = one.session(says("so be it"), rules=[Rule("deny", "pay")])
    assert [asked.id for asked in (await stricter.resume()).waiting] == [question.id]
    await session.approve(question.id)
    assert (await stricter.resume()).text == "so be it"
    assert (one.ran, outcomes(stricter)) == ([], ["denied"])


@pytest.mark.parametrize("how", ["run", "stream", "send", "steer"])
async def test_an_id_is_of_one_input_alone(one: House, how: str) -> None:
    session = one.session(says("one"), says("two"))
    await session.run("first", id="mine")

    async def put(text: str, *files: Binary) -> object:
        if how == "run":
            return await session.run(text, files=files, id="mine")
        if how == "stream":
            return [notice async for notice in session.stream(text, files=files, id="mine")]
        return await (session.send if how == "send" else session.steer)(text, files=files, id="mine")

    await put("first")
    length = len(await one.store.load("s"))
    for text, files in (("other", ()), ("first", (Binary(media_type="text/plain", data=b"Hi"),))):
        with pytest.raises(
            InputConflict, match="another input was sent with the id 'mine', and not this one"
        ):
            await put(text, *files)
    assert len(await one.store.load("s")) == length
    # It can be used all the same.
    assert (await session.run("second")).text == "two"
