"""Work that is lost with its process each time it is begun: it is begun again a few times, and no more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from provers.tasks import turns
from support.session_stage import House, Watch, outcomes, until

from turnwheel import Agent, Approve, Deny, DoneReason, Hook, MemoryStore, Policy, Result, hook, tool
from turnwheel.effects.errors import StoreError
from turnwheel.effects.messages import Outcome
from turnwheel.effects.requests import CallModel
from turnwheel.engine.core.machine import calls_in
from turnwheel.engine.journal.fold import fold
from turnwheel.states.rules import model_messages
from turnwheel.testing.clocks import ManualClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says, stalls
from turnwheel.testing.stores import StoreOver

pytestmark = pytest.mark.usefixtures("quiet")

ROOT = Path(__file__).parents[3]


async def lost(house: House, session: Any, begun: Callable[[], bool]) -> None:
    """Run *session* until it has *begun* its work, and leave it there, as a process that is killed does."""
    watch = Watch(session, None if session.unfinished else "go")
    await until(lambda: begun() or watch.task.done())
    await session.close()
    await watch.task
    state, folded = session._worker.log.state, fold(await house.store.load("s"), "s")
    assert folded.machine == state.machine
    assert folded.tries == state.tries


def reached(house: House, begun: int) -> bool:
    return len(house.ran) == begun


@pytest.mark.parametrize("takeovers", [0, 1, 3])
async def test_a_read_that_is_lost_each_time_is_told_as_lost(one: House, takeovers: int) -> None:
    policy, replies = Policy(takeovers=takeovers), [calls(("dig", {}))]
    for begun in range(1, takeovers + 2):
        session = await one.session(*replies, policy=policy).load()
        await lost(one, session, partial(reached, one, begun))
        replies = []
    last = one.session(says("so be it"), policy=policy)
    assert (await last.resume()).text == "so be it"
    assert one.ran == ["dig"] * (takeovers + 1)
    assert last.history[-2].results[0].content == model_messages.LOST


async def test_a_read_that_is_lost_each_time_is_asked_about(one: House) -> None:
    """A yes begins it anew, under an id of its own."""
    policy = Policy(on_lost="ask", takeovers=1)
    await lost(one, await one.session(calls(("dig", {})), policy=policy).load(), partial(reached, one, 1))
    await lost(one, await one.session(policy=policy).load(), partial(reached, one, 2))
    (question,) = (await one.session(policy=policy).resume()).waiting
    assert question.again
    for _ in range(3):
        # To look at a question again and again uses up no try.
        assert (await one.session(policy=policy).resume()).waiting == (question,)
    session = await one.session(policy=policy).load()
    await session.approve(question.id, Approve())
    await lost(one, session, partial(reached, one, 3))
    one.release()
    last = one.session(says("found it"), policy=policy)
    assert (await last.resume()).text == "found it"
    assert one.ran == ["dig"] * 4


async def test_what_was_handed_over_unbegun_uses_up_no_try(one: House) -> None:
    """Nor does a call that ended: each has its own tries."""
    policy, wishes = Policy(takeovers=1), calls(("dig", {}), ("dig", {}))
    await lost(one, await one.session(wishes, policy=policy).load(), partial(reached, one, 1))
    one.release()
    session = await one.session(policy=policy).load()
    watch = Watch(session, None)
    await until(partial(reached, one, 2))
    await session.drain()
    await watch.task
    one.gate.clear()
    await lost(one, await one.session(policy=policy).load(), partial(reached, one, 3))
    one.release()
    last = one.session(says("all of it"), policy=policy)
    assert (await last.resume()).text == "all of it"
    assert {*outcomes(last)} == {"ok"}


async def test_an_answer_that_is_lost_each_time_ends_the_run(one: House) -> None:
    """Each try has another id, and the next prompt is answered."""
    policy = Policy(takeovers=2)
    for _ in range(3):
        session = await one.session(stalls("half"), policy=policy).load()
        await lost(one, session, lambda: bool(one.models[-1].requests))
    last = one.session(says("yes"), policy=policy)
    result = await last.resume()
    assert (result.reason, result.detail) == (
        DoneReason.ERROR,
        "lost: its process was lost again and again while it was at work",
    )
    assert (await last.run("are you there?")).text == "yes"


async def test_a_hook_that_is_lost_each_time_has_failed(one: House) -> None:
    heard = list[str]()

    @hook(Hook.PRE_TOOL_USE)
    async def guard(_: object) -> None:
        heard.append("guard")
        await asyncio.Event().wait()

    settings: dict[str, Any] = {"policy": Policy(takeovers=1), "hooks": [guard]}
    await lost(one, await one.session(calls(("dig", {})), **settings).load(), lambda: len(heard) == 1)
    await lost(one, await one.session(**settings).load(), lambda: len(heard) == 2)
    last = one.session(says("I see"), **settings)
    assert (await last.resume()).text == "I see"
    assert (one.ran, outcomes(last)) == ([], ["denied"])


async def test_a_call_of_a_child_is_counted_in_the_childs_own_journal(house: House) -> None:
    policy = Policy(takeovers=1)
    hires = calls(("run_agent", {"agent": "digger", "prompt": "go"}))
    digs = (calls(("dig", {})),)
    await lost(
        house, await house.process(hires, digger=digs, policy=policy).load(), lambda: len(house.ran) == 1
    )
    await lost(house, await house.process(policy=policy).load(), partial(reached, house, 2))
    last = house.process(says("done"), digger=(says("I could not dig"),), policy=policy)
    assert (await last.resume()).text == "done"
    assert house.ran == ["dig", "dig"]
    assert last.history[-2].results[0].content == "I could not dig"


# The service of the page on recovery


def served() -> Callable[[Agent], Awaitable[None]]:
    """`serve` of docs/recovery.md."""
    page = (ROOT / "docs/recovery.md").read_text("utf-8")
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def serve(" in each]
    names: dict[str, Callable[[Agent], Awaitable[None]]] = {}
    exec(code, names)  # noqa: S102  # the page is ours
    return names["serve"]


async def test_a_service_that_its_tool_kills_is_up_after_a_few_starts() -> None:
    store, serve, killed, starts = MemoryStore(), served(), asyncio.Event(), 0
    said = ScriptedModel(calls(("kill", {})), says("I gave up"))

    @tool(side_effect="read_only")
    async def kill() -> None:
        """Kill the process."""
        killed.set()
        await asyncio.Event().wait()

    def agent() -> Agent:
        return Agent(model="m", tools=[kill], store=store, performers={CallModel: said})

    first = asyncio.ensure_future(agent().session("s").run("go"))
    await killed.wait()
    await die({first})
    while not said.requests[1:]:
        killed.clear()
        starts += 1
        before = asyncio.all_tasks()
        serving = asyncio.ensure_future(serve(agent()))
        await until(lambda: killed.is_set() or bool(said.requests[1:]))
        await turns(20)
        await die(asyncio.all_tasks() - before)
        assert serving.cancelled()
    assert starts == 1 + Policy().takeovers
    assert (await agent().session("s").load()).result().text == "I gave up"


async def die(tasks: set[asyncio.Task[Any]]) -> None:
    """End *tasks* as a killed process does: what they had begun has no answer."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_worker_that_resumes_after_the_deadline_of_a_question_sees_to_it() -> None:
    """Without it the one that is woken for the deadline would leave again, as one that comes before it."""
    store, clock, policy = MemoryStore(), ManualClock(), Policy(answer_within=5.0)

    @tool(approval="always")
    def pay() -> str:
        raise AssertionError

    async def resumed(*replies: Reply, prompt: str | None = None) -> Result:
        model = ScriptedModel(*replies)
        agent = Agent(performers={CallModel: model}, tools=[pay], store=store, policy=policy, clock=clock)
        async with agent, agent.session("s") as session:
            return await (session.resume() if prompt is None else session.run(prompt))

    assert (await resumed(calls(("pay", {})), prompt="go")).waiting
    clock.move(4.9)
    assert (await resumed()).waiting
    clock.move(0.2)
    assert (await resumed(says("so be it"))).text == "so be it"


class Unheard(StoreOver):
    """A store that keeps a step to *label* and is not heard of until `answers` is set; it *fails* then."""

    def __init__(self, label: bytes, *, fails: bool) -> None:
        super().__init__()
        self.label, self.fails = label, fails
        self.kept_one, self.answers = asyncio.Event(), asyncio.Event()

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        there = await super().append(session, expected, entries, about, incarnation)
        if b'"label":"%s"' % self.label in entries[-1] and not self.kept_one.is_set():
            self.kept_one.set()
            await self.answers.wait()
            if self.fails:
                msg = "the connection was cut"
                raise StoreError(msg)
        return there


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("tool", ["pay", "dig"])
async def test_what_others_see_open_can_be_closed_where_it_was_opened(tool: str, fails: bool) -> None:  # noqa: FBT001  # both
    """Its append has not returned there yet, and may fail although the store has it."""
    store = Unheard(b"confirming" if tool == "pay" else b"executing", fails=fails)
    house = House(store)
    mine, there = (house.session(*replies) for replies in ([calls((tool, {})), says("done")], [says("done")]))
    working = asyncio.ensure_future(mine.run("go", wait=True))
    await store.kept_one.wait()
    await there.load()
    if tool == "pay":
        closing = asyncio.ensure_future(mine.approve(there.waiting[0].id, Deny()))
    else:
        assert there.machine is not None
        closing = asyncio.ensure_future(mine.cancel(calls_in(there.machine.state)[0]))
    await turns(5)
    store.answers.set()
    await closing
    if fails:
        with pytest.raises(StoreError, match="was cut"):
            await working
        await mine.resume()
    else:
        await working
    assert mine.result().text == "done"
    assert outcomes(mine) == [Outcome.DENIED if tool == "pay" else Outcome.CANCELLED]
    await mine.close()
    await there.close()
