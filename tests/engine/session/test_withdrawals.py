"""A session whose waiting inputs are taken back: by any process, between runs, in a run, after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from support.session_stage import House, Tape, Watch, said, until

from turnwheel import Agent, DoneReason, MemoryStore, hook
from turnwheel.effects import CallModel
from turnwheel.effects.config import Steering
from turnwheel.effects.errors import QueueFull, UnknownInput
from turnwheel.effects.events import UserSteered
from turnwheel.effects.notices import InputDropped, InputReceived
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import Entry, RunOpened, Stepped
from turnwheel.testing.scripted import ScriptedModel, calls, says

pytestmark = pytest.mark.usefixtures("quiet")

ANSWERS = [says("one"), says("two"), says("three")]


def once(tape: Tape, due: Callable[[Entry], bool], work: Callable[[], Awaitable[None]]) -> None:
    """Have *work* done before the next append with an entry that is *due*."""

    async def meddle(_: str, entries: Sequence[bytes]) -> None:
        if any(due(decode_entry(entry)) for entry in entries):
            tape.meddlers.clear()
            await work()

    tape.meddlers.append(meddle)


def opens(entry: Entry) -> bool:
    return isinstance(entry, RunOpened)


def steers(entry: Entry) -> bool:
    return isinstance(entry, Stepped) and isinstance(entry.event, UserSteered)


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
async def test_a_prompt_of_an_idle_session_is_taken_back_from_another_process(house: House) -> None:
    here, there = house.process(*ANSWERS), house.process()
    for name in ("a", "b"):
        await here.send(f"prompt {name}", id=name)
    await there.withdraw("a")
    await here.load()
    assert [mail.id for mail in here.queue] == ["b"]
    await here.resume()
    assert said(here) == ["prompt b"]


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
async def test_an_input_that_does_not_wait_is_refused_with_those_that_do(house: House) -> None:
    here = house.process(*ANSWERS)
    await here.run("go", id="read")
    await here.send("later", id="waits")
    for name, known in (("read", True), ("never", False)):
        with pytest.raises(UnknownInput, match="waiting: 'waits'") as refused:
            await here.withdraw(name)
        assert (refused.value.input, refused.value.waiting, refused.value.known) == (name, ("waits",), known)
    await here.withdraw("waits")
    with pytest.raises(UnknownInput, match="waiting: none"):
        await here.withdraw("waits")


@pytest.mark.behaviour("an-input-that-was-taken-back-stays-known")
async def test_an_id_that_was_taken_back_is_not_sent_again(house: House) -> None:
    here = house.process(*ANSWERS)
    await here.run("go")
    await here.send("later", id="x")
    await here.withdraw("x")
    await here.send("later", id="x")
    assert here.queue == ()
    await here.send("next", id="y")
    await here.resume()
    await here.send("later", id="x")
    assert (said(here), here.queue) == (["go", "next"], ())


@pytest.mark.behaviour("a-run-without-its-prompt-ends")
async def test_nothing_runs_once_the_only_prompt_is_taken_back(house: House) -> None:
    here = house.process(*ANSWERS)
    before = await here.run("go")
    await here.send("later", id="x")
    await here.withdraw("x")
    assert (await here.resume()).run == before.run
    entries = await house.entries()
    assert sum(isinstance(entry, RunOpened) for entry in entries) == 1


@pytest.mark.behaviour("a-run-without-its-prompt-ends")
async def test_no_run_begins_where_the_prompt_is_taken_back_while_it_is_opened(tape: Tape) -> None:
    house = House(tape)
    here, there = house.process(*ANSWERS), house.process()
    before = await here.run("go")
    await here.send("later", id="x")
    await there.load()

    once(tape, opens, lambda: there.withdraw("x"))
    assert (await here.resume()).run == before.run
    assert (said(here), here.unfinished, here.queue) == (["go"], False, ())


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
async def test_a_steer_that_was_not_read_is_taken_back(house: House) -> None:
    here, there = house.process(calls(("dig", {})), *ANSWERS), house.process()
    watch = Watch(here)
    await until(lambda: house.ran)
    await here.steer("rather left", Steering.WHEN_DONE, id="s")
    await here.send("later", id="p")
    await watch.until(InputReceived)
    await there.withdraw("s")
    await there.withdraw("p")
    house.release()
    await watch.task
    assert said(here) == ["go"]
    assert {notice.id for notice in watch.notices if isinstance(notice, InputDropped)} == {"s", "p"}


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
async def test_a_withdrawal_outlives_the_process_of_the_run(house: House) -> None:
    here = house.process(calls(("pay", {})), *ANSWERS)
    await here.run("go")
    assert here.waiting
    # No process is at work: the run waits for an answer.
    await here.send("later", id="p")
    await here.close()
    there = house.process(*ANSWERS)
    await there.withdraw("p")
    assert there.queue == ()
    last = house.process(*ANSWERS)
    await last.load()
    assert last.queue == ()
    await last.approve(last.waiting[0].id)
    await last.resume()
    assert said(last) == ["go"]


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
async def test_who_waits_for_a_prompt_learns_that_it_was_taken_back(house: House) -> None:
    here = house.process(calls(("dig", {})), *ANSWERS)
    first = here.start("go")
    await until(lambda: house.ran)
    second = here.start("later")
    await until(lambda: here.queue)
    await here.withdraw(here.queue[0].id)
    # While the first run goes on.
    with pytest.raises(UnknownInput, match="taken back"):
        await asyncio.wait_for(second.wait(), 60)
    house.release()
    assert (await first.wait()).text == "one"
    assert said(here) == ["go"]


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
@pytest.mark.parametrize("how", Steering)
async def test_a_steer_is_taken_back_of_a_run_that_rests(house: House, how: Steering) -> None:
    here, there = house.process(calls(("pay", {})), *ANSWERS), house.process()
    await here.run("go")
    await there.steer("rather left", how, id="s")
    await there.withdraw("s")
    await here.resume()
    # The steer withdraws no question that it never came to.
    (question,) = here.waiting
    await here.approve(question.id)
    assert (await here.resume()).text == "one"
    assert said(here) == ["go"]


@pytest.mark.parametrize("how", [Steering.NOW, Steering.AFTER_TOOL])
async def test_a_steer_is_taken_back_while_the_step_that_takes_it_is_written(
    tape: Tape, how: Steering
) -> None:
    house = House(tape)
    here, there = house.process(calls(("pay", {})), *ANSWERS), house.process()
    working = asyncio.ensure_future(here.run("go", wait=True))
    await until(lambda: here.waiting)
    taken_back = asyncio.Event()

    async def withdraw() -> None:
        await there.withdraw("s")
        taken_back.set()

    once(tape, steers, withdraw)
    await there.steer("rather left", how, id="s")
    await taken_back.wait()
    await there.approve(there.waiting[0].id)
    assert (await working).text == "one"
    assert said(here) == ["go"]


async def test_a_prompt_that_hooks_are_asked_about_leaves_its_run_to_nobody_else() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    @hook("user_prompt_submit")
    async def guard(_: object) -> None:
        asked.set()
        await answered.wait()

    model = ScriptedModel(*ANSWERS)
    async with Agent(performers={CallModel: model}, hooks=[guard], store=MemoryStore()).session("s") as here:
        first = here.start("the first")
        await asked.wait()
        second = here.start("the second")
        await until(lambda: len(here.queue) == 2)
        await here.withdraw(here.queue[0].id)
        answered.set()
        assert (await first.wait()).reason is DoneReason.INTERRUPTED
        assert (await second.wait()).text == "one"
        assert said(here) == ["the second"]


async def test_who_waits_learns_of_a_withdrawal_while_the_run_is_opened(tape: Tape) -> None:
    house = House(tape)
    here, there = house.process(calls(("dig", {})), *ANSWERS), house.process()
    first = here.start("go")
    await until(lambda: house.ran)
    second = here.start("taken back")
    await until(lambda: here.queue)
    third = here.start("later")
    await until(lambda: len(here.queue) == 2)
    name = here.queue[0].id
    await there.load()
    once(tape, opens, lambda: there.withdraw(name))
    house.release()
    assert (await first.wait()).text == "one"
    with pytest.raises(UnknownInput, match="taken back"):
        await second.wait()
    assert (await third.wait()).text == "two"
    assert said(here) == ["go", "later"]


async def test_a_title_has_nothing_of_what_is_taken_back_while_the_run_is_opened(tape: Tape) -> None:
    house = House(tape)
    here, there = house.agent(*ANSWERS, titles="inline").session("s"), house.process()
    await here.send("a secret", id="x")
    await here.send("later", id="y")
    await there.load()
    once(tape, opens, lambda: there.withdraw("x"))
    await here.resume()
    assert (said(here), here.title) == (["later"], "later")


async def test_a_prompt_sent_and_taken_back_elsewhere_opens_no_run_here(tape: Tape) -> None:
    house = House(tape)
    here, there = house.process(*ANSWERS), house.process()

    async def both() -> None:
        await there.send("go", id="x")
        await there.withdraw("x")

    once(tape, opens, both)
    with pytest.raises(UnknownInput, match="taken back"):
        await here.run("go", id="x")
    assert said(here) == []


async def test_a_full_queue_has_room_again_where_prompts_are_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnwheel.effects.validators.MAX_WAITING", 2)
    here = House(MemoryStore()).process(*ANSWERS)
    for name in ("a", "b"):
        await here.send(name, id=name)
    with pytest.raises(QueueFull):
        await here.send("c")
    await here.withdraw("a")
    await here.send("c", id="c")
    assert [mail.id for mail in here.queue] == ["b", "c"]
    with pytest.raises(QueueFull):
        await here.send("d")


async def test_a_fork_drops_what_was_taken_back_of_the_run_that_it_copies(house: House) -> None:
    here = house.process(calls(("pay", {})), *ANSWERS)
    await here.run("go")
    await here.steer("later", Steering.WHEN_DONE, id="s")
    await here.withdraw("s")
    fork = await here.fork("copy", at=len(await house.entries()))
    await fork.approve(fork.waiting[0].id)
    await fork.resume()
    assert said(fork) == ["go"]
