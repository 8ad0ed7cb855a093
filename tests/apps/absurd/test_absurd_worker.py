"""Workers that share sessions through a queue in PostgreSQL: who drives one, and what is held meanwhile."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
from absurd_sdk import AsyncTaskContext
from support.postgres import ON_ONE_WORKER, PostgresServer, make_absurd_tables, new_schema, postgres_server
from support.session_stage import until

from turnwheel import Agent, Policy, ToolContext, tool
from turnwheel.apps import AbsurdWorker, TurnQueue
from turnwheel.effects import CallModel, ModelFinished, StopReason, Usage
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.messages import Role
from turnwheel.performers import PostgresStore
from turnwheel.performers.base import PerformContext, Performer

__all__ = ["postgres_server"]

pytestmark = ON_ONE_WORKER


async def plays(request: CallModel, scene: PerformContext) -> ModelFinished:
    """Call the tool that the latest prompt names, then say that it is done: the same in every process."""
    asked = [number for number, message in enumerate(scene.history) if message.role is Role.USER]
    prompt = scene.history[asked[-1]].text
    usage = Usage(input=10, output=5)
    if len(scene.history) > asked[-1] + 1 or prompt.startswith("say"):
        words, stop = (TextPiece(f"done: {prompt}"),), StopReason.END_TURN
        return ModelFinished(at=scene.clock.now(), request=request.id, usage=usage, stop=stop, pieces=words)
    call = CallPiece(0, f"call_{len(asked)}", prompt, "{}")
    stop = StopReason.TOOL_USE
    return ModelFinished(at=scene.clock.now(), request=request.id, usage=usage, stop=stop, pieces=(call,))


@attrs.define(eq=False)
class Stage:
    """Workers with agents of their own, the way in, and what the tools did."""

    server: PostgresServer
    queue: str
    schema: str
    # Held back until it is set.
    go: asyncio.Event = attrs.Factory(asyncio.Event)
    began: list[str] = attrs.Factory(list)

    def store(self) -> PostgresStore:
        return PostgresStore(self.server.dsn, schema=self.schema)

    def agents(self) -> Mapping[str, Agent]:
        @tool(approval="never", side_effect="idempotent")
        async def look(scene: ToolContext[None]) -> str:
            """Look, until the test lets it end."""
            self.began.append(scene.session)
            await self.go.wait()
            return "seen"

        @tool(approval="always", side_effect="unsafe")
        def pay(scene: ToolContext[None]) -> str:
            """Pay."""
            self.began.append(scene.session)
            return "paid"

        performers: dict[type, Performer[Any]] = {CallModel: plays}
        soon, late = Policy(answer_within=0.3), Policy(answer_within=60.0)
        return {
            "payer": Agent(performers=performers, tools=[pay, look]),
            "hurried": Agent(performers=performers, tools=[pay], policy=soon),
            "patient": Agent(performers=performers, tools=[pay], policy=late),
        }

    @asynccontextmanager
    async def worker(self, *names: str, turns: int = 100) -> AsyncGenerator[AbsurdWorker]:
        agents = {name: agent for name, agent in self.agents().items() if not names or name in names}
        store = self.store()
        worker = AbsurdWorker(
            self.server.dsn, agents, store, queue=self.queue, poll=0.02, claim=1, turns=turns
        )
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await running
            await store.close()

    @asynccontextmanager
    async def way_in(self) -> AsyncGenerator[TurnQueue]:
        store = self.store()
        async with TurnQueue(self.server.dsn, self.agents(), store, queue=self.queue) as turns:
            yield turns
        await store.close()

    async def text(self, name: str, agent: str = "payer") -> str:
        """The last words of the session *name*, once it has ended with them."""
        async with self.agents()[agent].session(name, self.store()) as session:

            async def ended() -> bool:
                await session.load()
                return session.machine is not None and not session.unfinished and not session.queue

            while not await ended():  # noqa: ASYNC110  # another process would do it
                await asyncio.sleep(0.02)
            return session.result().text

    async def held(self) -> int:
        """How many turns a worker has."""
        runs = f'absurd."r_{self.queue}"'
        found = await self.server.run(f"select count(*) from {runs} where state = 'running'")  # noqa: S608  # a name of ours
        return int(found[0][0])

    async def free(self) -> None:
        """Wait until no worker has a turn."""
        await self.until_held(lambda turns: not turns)

    async def until_held(self, enough: Callable[[int], bool]) -> None:
        while not enough(await self.held()):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def absurd_server(postgres_server: PostgresServer) -> PostgresServer:
    """The server with the tables of Absurd."""
    make_absurd_tables(postgres_server)
    return postgres_server


@pytest.fixture
async def stage(absurd_server: PostgresServer) -> Stage:
    queue = f"q{uuid.uuid4().hex[:8]}"
    await absurd_server.run(f"select absurd.create_queue('{queue}')")
    return Stage(absurd_server, queue, new_schema())


async def test_a_prompt_is_answered_by_a_worker(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker():
        async with turns.session("payer", "s") as session:
            await session.send("say hello")
        assert await stage.text("s") == "done: say hello"
        await stage.free()


async def test_a_question_holds_no_turn_and_any_worker_goes_on_with_its_answer(stage: Stage) -> None:
    async with stage.way_in() as turns:
        async with stage.worker():
            async with turns.session("payer", "s") as session:
                await session.send("pay")
            async with turns.session("payer", "s") as session:
                while not session.waiting:  # as above
                    await asyncio.sleep(0.02)
                    await session.load()
            await stage.free()
        async with turns.session("payer", "s") as session:
            await session.approve(session.waiting[0].id)
        assert stage.began == []
        async with stage.worker():
            assert await stage.text("s") == "done: pay"
    assert stage.began == ["s"]


async def test_a_deadline_wakes_a_worker(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker():
        async with turns.session("hurried", "s") as session:
            await session.send("pay")
        assert await stage.text("s", "hurried") == "done: pay"
    assert stage.began == []


async def test_an_answer_that_comes_while_its_turn_ends_is_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a turn of its own: the one that ends has looked for the last time."""
    sleeping, sleep = asyncio.Event(), AsyncTaskContext.sleep_until

    async def sleep_until(context: AsyncTaskContext, name: str, due: float) -> None:
        sleeping.set()
        await stage.go.wait()
        await sleep(context, name, due)

    monkeypatch.setattr(AsyncTaskContext, "sleep_until", sleep_until)
    async with stage.way_in() as turns, stage.worker():
        async with turns.session("patient", "s") as session:
            await session.send("pay")
        await sleeping.wait()
        async with turns.session("patient", "s") as session:
            await session.approve(session.waiting[0].id)
        assert await stage.text("s", "patient") == "done: pay"
        stage.go.set()
        await stage.free()


async def test_one_long_turn_does_not_keep_a_worker_from_the_others(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker():
        async with turns.session("payer", "long") as session:
            await session.send("look")
        await until(lambda: stage.began == ["long"])
        for number in range(5):
            async with turns.session("payer", f"s{number}") as session:
                await session.send("say hello")
        for number in range(5):
            assert await stage.text(f"s{number}") == "done: say hello"
        stage.go.set()
        assert await stage.text("long") == "done: look"


async def test_prompts_of_one_session_are_answered_in_their_order_by_two_workers(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker(), stage.worker():
        stage.go.set()
        prompts = [f"say {number}" for number in range(12)]
        for prompt in prompts:
            async with turns.session("payer", "s") as session:
                await session.send(prompt)
        await stage.text("s")
        async with turns.session("payer", "s") as session:
            texts = [message.text for message in session.history if message.role is Role.USER]
        assert texts == prompts
        await stage.free()


async def test_a_turn_waits_where_its_session_is_at_work_elsewhere(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker(turns=1), stage.worker(turns=1):
        async with turns.session("payer", "s") as session:
            await session.send("look")
        await until(lambda: stage.began == ["s"])
        async with turns.session("payer", "s") as session:
            await session.send("say two")
        await stage.until_held(lambda turns: turns == 2)
        stage.go.set()
        assert await stage.text("s") == "done: say two"
        assert stage.began == ["s"]
        await stage.free()


async def test_a_worker_that_stops_hands_its_turn_over(stage: Stage) -> None:
    async with stage.way_in() as turns:
        async with stage.worker() as worker:
            async with turns.session("payer", "s") as session:
                await session.send("look")
            await until(lambda: stage.began == ["s"])
            worker.stop()
            # As many prompts as there are: a drained worker begins none of them.
            async with turns.session("payer", "s") as session:
                await session.send("say two")
            stage.go.set()
        async with stage.worker():
            assert await stage.text("s") == "done: say two"
    assert stage.began == ["s"]


async def test_a_turn_waits_for_a_worker_that_has_its_agent(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker("hurried"):
        async with turns.session("payer", "s") as session:
            await session.send("say hello")
        async with stage.worker("payer"):
            assert await stage.text("s") == "done: say hello"


async def test_senders_of_one_process_share_a_connection(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker():
        # One that was made beside it would be left open, which Python warns of.
        await asyncio.gather(*[turns.wake("payer", f"s{number}") for number in range(5)])
    gc.collect()


async def test_an_unknown_agent_is_refused_at_the_way_in(stage: Stage) -> None:
    async with stage.way_in() as turns:
        with pytest.raises(
            ConfigError, match="there is no agent 'teller'; the agents are 'payer', 'hurried', 'patient'"
        ):
            async with turns.session("teller", "s"):
                pass
