"""Workers that share sessions through a queue in PostgreSQL: who drives one, and what is held meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import absurd_sdk
import attrs
import httpx
import psycopg
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs
from support.http_server import serving
from support.patience import PATIENCE
from support.postgres import ON_ONE_WORKER, PostgresServer, make_absurd_tables, new_schema, postgres_server
from support.session_stage import until

from turnwheel import Agent, Policy, ToolContext, tool
from turnwheel.apps import AbsurdWorker, TurnQueue
from turnwheel.apps.absurd.sleepers import LONGEST_BUSY
from turnwheel.apps.cli.commands import turnwheel
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

    @property
    def runs(self) -> str:
        """The runs of its queue in the database, each with its task."""
        return f'absurd."r_{self.queue}" r join absurd."t_{self.queue}" t using (task_id)'

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
        soon = Policy(answer_within=0.3)
        return {
            "payer": Agent(performers=performers, tools=[pay, look]),
            "hurried": Agent(performers=performers, tools=[pay], policy=soon),
        }

    @asynccontextmanager
    async def worker(
        self, *names: str, turns: int = 100, claim: int = 1, tenant_working: int | None = None
    ) -> AsyncGenerator[AbsurdWorker]:
        agents = {name: agent for name, agent in self.agents().items() if not names or name in names}
        store = self.store()
        worker = AbsurdWorker(
            self.server.dsn,
            agents,
            store,
            queue=self.queue,
            poll=0.02,
            claim=claim,
            turns=turns,
            tenant_working=tenant_working,
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

    async def look(self, turns: TurnQueue) -> None:
        """Have the session ``s`` look, which it does until the test lets it end."""
        async with turns.session("payer", "s") as session:
            await session.send("look")
        await until(lambda: self.began == ["s"])

    async def say_two(self, turns: TurnQueue) -> None:
        """Prompt ``s`` again while it looks, and wait for the end of that turn: the first one sees to it."""
        async with turns.session("payer", "s") as session:
            await session.send("say two")
        ended = f"select from {self.runs} {OF} 's' and r.state = 'completed'"  # names of ours
        while not await self.server.run(ended):  # noqa: ASYNC110  # another process would do it
            await asyncio.sleep(0.02)

    async def followed(self) -> str:
        """The last words of ``s``, which a worker leaves to the next one as it stops with two turns of it."""
        async with self.way_in() as turns:
            async with self.worker() as worker:
                await self.look(turns)
                await self.say_two(turns)
                worker.stop()
                self.go.set()
            async with self.worker(), asyncio.timeout(PATIENCE):
                return await self.text("s")

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


OF = "where params->>'session' ="


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


@pytest.mark.parametrize("error", [LookupError, asyncio.CancelledError])
async def test_what_was_sent_is_answered_whatever_came_after_it(
    stage: Stage, error: type[BaseException]
) -> None:
    async with stage.way_in() as turns, stage.worker():

        async def fails() -> None:
            async with turns.session("payer", "s") as session:
                await session.send("say hello")
                raise error

        with pytest.raises(error):
            await fails()
        async with asyncio.timeout(PATIENCE):
            assert await stage.text("s") == "done: say hello"
        await stage.free()


async def test_a_turn_that_cannot_be_queued_hides_no_error_of_the_block(stage: Stage) -> None:
    stage.queue = "absent"
    async with stage.way_in() as turns:
        with capture_logs() as logs, pytest.raises(LookupError):  # noqa: PT012  # what is sent comes first
            async with turns.session("payer", "s") as session:
                await session.send("say hello")
                raise LookupError
    assert [log["event"] for log in logs] == ["no turn was queued for what was written; queue one with wake"]


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


async def test_an_answer_that_comes_while_a_turn_goes_to_sleep_is_not_left_to_the_deadline(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping, asleep = asyncio.Event(), asyncio.Event()
    sleeps = absurd_sdk.AsyncTaskContext.sleep_until

    async def slowly(*given: Any) -> None:
        sleeping.set()
        await asleep.wait()
        await sleeps(*given)

    monkeypatch.setattr(absurd_sdk.AsyncTaskContext, "sleep_until", slowly)
    async with stage.way_in() as turns, stage.worker():
        async with turns.session("hurried", "s") as session:
            await session.send("pay")
        await sleeping.wait()
        async with turns.session("hurried", "s") as session:
            await session.approve(session.waiting[0].id)
        try:
            async with asyncio.timeout(PATIENCE):
                assert await stage.text("s", "hurried") == "done: pay"
        finally:
            asleep.set()


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


async def test_a_tenant_with_many_turns_keeps_no_other_one_waiting(stage: Stage) -> None:
    async def asked(turns: TurnQueue, name: str) -> None:
        """Return when a turn of the session *name* is over."""
        async with turns.session("payer", name) as session:
            await session.send("say hello")
        assert await stage.text(name) == "done: say hello"

    async with (
        stage.way_in() as turns,
        stage.worker(turns=3, tenant_working=2),
        stage.worker(turns=3, tenant_working=2),
    ):
        await asked(turns, "bob/payer/s1")
        many = [f"ann/payer/s{number}" for number in range(8)]
        for name in many:
            async with turns.session("payer", name) as session:
                await session.send("look")
        await until(lambda: len(stage.began) >= 2)
        # The turns of the first tenant do not end meanwhile, and are more than both workers take at a time.
        async with asyncio.timeout(PATIENCE):
            await asked(turns, "bob/payer/s2")
        assert len(stage.began) == 2
        # An input to a session at work begins nothing.
        async with turns.session("payer", stage.began[0]) as session:
            await session.send("say more")
        stage.go.set()
        for name in many:
            assert (await stage.text(name)).startswith("done:")
        assert sorted(stage.began) == sorted(many)
        await stage.free()


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


async def test_a_turn_waits_where_its_session_is_at_work_elsewhere_and_holds_no_place(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker(turns=1), stage.worker(turns=1):
        await stage.look(turns)
        async with turns.session("payer", "s") as session:
            await session.send("say two")
        await stage.until_held(lambda turns: turns == 2)
        async with turns.session("payer", "other") as session:
            await session.send("say hello")
        async with asyncio.timeout(PATIENCE):
            assert await stage.text("other") == "done: say hello"
        stage.go.set()
        assert await stage.text("s") == "done: say two"
        assert stage.began == ["s"]
        await stage.free()


async def lose_one(stage: Stage, _: object = None) -> None:
    """Have the claim of ``lost`` run out."""
    fail = f"select absurd.fail_run('{stage.queue}', run_id, '{{}}', null) from {stage.runs} {OF} 'lost'"  # noqa: S608  # names of ours
    await stage.server.run(fail)


@pytest.mark.parametrize("lost", [False, True], ids=["another turn", "the turn that was lost"])
async def test_a_turn_looks_ever_more_rarely_at_a_busy_session_unless_it_may_have_to_follow(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    pauses: list[float] = []
    sleeps = absurd_sdk.AsyncTaskContext.sleep_for

    async def noted(self: Any, step: str, seconds: float) -> None:
        pauses.append(seconds)
        await sleeps(self, step, seconds)

    schedules = absurd_sdk.AsyncTaskContext._schedule_run_after  # pyright: ignore[reportPrivateUsage]  # see below

    async def soon(self: Any, _: float) -> None:
        await schedules(self, 0.05)

    monkeypatch.setattr(absurd_sdk.AsyncTaskContext, "sleep_for", noted)
    # Only the queue shortens the pause. The worker takes one that was over too soon for a slow queue.
    monkeypatch.setattr(absurd_sdk.AsyncTaskContext, "_schedule_run_after", soon)
    monkeypatch.setattr("turnwheel.apps.absurd.worker.BUSY_AGAIN", 0.01)
    # The second pause is near the longest already.
    monkeypatch.setattr("turnwheel.apps.absurd.sleepers.OF_WAITED", 1000.0)
    # No claim runs out by itself, however busy the machine is.
    stays = partial(stage.worker, turns=1, claim=30)
    async with stage.way_in() as turns, stays(), stays():
        async with turns.session("payer", "lost") as session:
            await session.send("look")
        await until(lambda: stage.began == ["lost"])
        if lost:
            # The worker that goes on has no room for the next try of its turn.
            await lose_one(stage)
        else:
            await turns.wake("payer", "lost")
        async with asyncio.timeout(PATIENCE):
            while len(pauses) < 8:  # noqa: ASYNC110  # another process would do it
                await asyncio.sleep(0.02)
        # The first pause is as long as a claim.
        assert (pauses[0], pauses[:8] == sorted(pauses[:8])) == (30, True)
        assert pauses[7] == (30 if lost else LONGEST_BUSY)
        stage.go.set()
        assert await stage.text("lost") == "done: look"
        assert stage.began == ["lost"]
        await stage.free()


async def extended(stage: Stage, session: str, seconds: float) -> None:
    """Wait until the one claim of the turn of *session* ends so much later."""

    async def end() -> float:
        asked = f"select extract(epoch from claim_expires_at) from {stage.runs} {OF} '{session}'"  # noqa: S608  # names of ours
        ((found,),) = await stage.server.run(asked)
        return float(found)

    first = await end()
    async with asyncio.timeout(PATIENCE):
        while await end() < first + seconds:  # noqa: ASYNC110  # another process would do it
            await asyncio.sleep(0.05)


async def cut_off(stage: Stage, _: pytest.MonkeyPatch) -> None:
    """End the connections over which claims are extended."""

    async def ended() -> bool:
        end = (
            "select pg_terminate_backend(pid) from pg_stat_activity where query like '%set claim_expires_at%'"
        )
        return len(await stage.server.run(f"{end} and pid <> pg_backend_pid()")) > 0

    while not await ended():  # noqa: ASYNC110  # as below
        await asyncio.sleep(0.05)


async def deadlock(_: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse once to extend claims, as the database does where others lock them in another order."""
    execute = psycopg.AsyncConnection.execute
    refused = asyncio.Event()

    async def refuse(self: Any, query: Any, given: Any = None, **more: Any) -> Any:
        if not refused.is_set() and "set claim_expires_at" in query.as_string(self):
            refused.set()
            raise psycopg.errors.DeadlockDetected
        return await execute(self, query, given, **more)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", refuse)
    await refused.wait()


async def lock(stage: Stage, _: pytest.MonkeyPatch) -> None:
    """Lock the run of ``kept`` while others are extended, as a worker does that finds it just claimed."""
    async with await psycopg.AsyncConnection.connect(stage.server.dsn) as connection:
        locked = f"select from {stage.runs} {OF} 'kept' for update of r"
        await connection.execute(locked.encode())
        await extended(stage, "lost", 0.3)


@pytest.mark.parametrize("happens", [lose_one, cut_off, deadlock, lock])
async def test_claims_are_extended_whatever_happens_to_one(
    stage: Stage, happens: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A sign of life every quarter of a second, and ten seconds until a claim runs out without one.
    monkeypatch.setattr("turnwheel.apps.absurd.worker.BEATS", 40)
    async with stage.way_in() as turns, stage.worker(claim=10):
        for name in ("lost", "kept"):
            async with turns.session("payer", name) as session:
                await session.send("look")
        await until(lambda: sorted(stage.began) == ["kept", "lost"])
        await happens(stage, monkeypatch)
        await extended(stage, "kept", 1.5)
        stage.go.set()
        assert await stage.text("kept") == await stage.text("lost") == "done: look"
        assert sorted(stage.began) == ["kept", "lost"]
        await stage.free()


async def test_a_worker_that_stops_hands_its_turn_over(stage: Stage) -> None:
    async with stage.way_in() as turns:
        async with stage.worker() as worker:
            await stage.look(turns)
            worker.stop()
            # As many prompts as there are: a drained worker begins none of them.
            async with turns.session("payer", "s") as session:
                await session.send("say two")
            stage.go.set()
        async with stage.worker():
            assert await stage.text("s") == "done: say two"
    assert stage.began == ["s"]


async def test_a_worker_that_stops_hands_over_what_the_turns_came_for_that_it_ended(stage: Stage) -> None:
    assert await stage.followed() == "done: say two"
    assert stage.began == ["s"]


async def test_a_turn_that_is_handed_over_slowly_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps, pauses = absurd_sdk.AsyncTaskContext.sleep_for, list[float]()

    async def slowly(self: Any, step: str, seconds: float) -> None:
        pauses.append(seconds)
        # The first time it has gone by before the queue has it.
        await sleeps(self, step, seconds if len(pauses) > 1 else -1.0)

    monkeypatch.setattr(absurd_sdk.AsyncTaskContext, "sleep_for", slowly)
    assert await stage.followed() == "done: say two"
    assert pauses[1] > pauses[0]


async def test_a_worker_that_has_as_many_turns_as_it_may_hands_them_over_when_it_stops(stage: Stage) -> None:
    async with stage.way_in() as turns:
        async with stage.worker(turns=1) as worker:
            async with turns.session("payer", "s") as session:
                await session.send("look", id="first")
                await session.send("say two")
            await until(lambda: stage.began == ["s"])
            worker.stop()
            async with turns.session("payer", "s") as session:
                # Only a drained run lets go in the middle: the tool ends, and no model is asked about it.
                asyncio.get_running_loop().call_later(0.2, stage.go.set)
        async with turns.session("payer", "s") as session:
            assert session.unfinished
        async with stage.worker():
            assert await stage.text("s") == "done: say two"
    assert stage.began == ["s"]


async def test_a_worker_whose_database_is_away_when_it_stops_lets_its_turns_end(stage: Stage) -> None:
    async with stage.way_in() as turns:
        async with stage.worker() as worker:
            await stage.look(turns)
            worker.dsn = "postgresql://nowhere.invalid/none"
            claims = "from pg_stat_activity where pid <> pg_backend_pid() and query like '%claim_task%'"
            await stage.server.run(f"select pg_terminate_backend(pid) {claims}")
            # By then it waits for its database to be back.
            await asyncio.sleep(0.2)
            worker.stop()
            asyncio.get_running_loop().call_later(0.2, stage.go.set)
        async with stage.worker():
            assert await stage.text("s") == "done: look"
    # The tool had ended before the worker did.
    assert stage.began == ["s"]


async def test_a_worker_that_is_cancelled_leaves_its_turns_to_others(stage: Stage) -> None:
    async with stage.way_in() as turns:
        store = stage.store()
        running = asyncio.create_task(
            AbsurdWorker(stage.server.dsn, stage.agents(), store, queue=stage.queue, claim=1).run()
        )
        await stage.look(turns)
        before = asyncio.all_tasks()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        stage.go.set()
        async with turns.session("payer", "s") as session:
            assert session.unfinished
        # Nothing of it is at work any more.
        assert not {task for task in before if "AbsurdWorker" in repr(task)} & asyncio.all_tasks()
        await store.close()
        async with stage.worker():
            assert await stage.text("s") == "done: look"
    assert stage.began == ["s", "s"]


@pytest.mark.parametrize(
    ("ended", "known"),
    [(False, True), (True, True), (True, False)],
    ids=["its next try", "another turn", "another turn before its worker knows"],
)
async def test_a_session_whose_turn_lost_its_claim_is_not_lost_with_its_worker(
    stage: Stage, *, ended: bool, known: bool
) -> None:
    async with stage.way_in() as turns:
        store = stage.store()
        # Where it is not to know of the loss, the worker does not look at its claims in this test.
        claim = 1 if known else 60
        running = asyncio.create_task(
            AbsurdWorker(stage.server.dsn, stage.agents(), store, queue=stage.queue, claim=claim).run()
        )
        for name in ("lost", "kept"):
            async with turns.session("payer", name) as session:
                await session.send("look")
        await until(lambda: sorted(stage.began) == ["kept", "lost"])
        if ended:
            # As if the next try had come to another worker, which saw nothing to do.
            cancel = f"select absurd.cancel_task('{stage.queue}', task_id) from {stage.runs} {OF} 'lost'"  # noqa: S608  # names of ours
            await stage.server.run(cancel)
            if known:
                await extended(stage, "kept", 0.6)
            await turns.wake("payer", "lost")
        else:
            await lose_one(stage)
        # One try of a turn of it failed or was cancelled, and the next one is here.
        here = f"select from {stage.runs} {OF} 'lost' and r.state in ('running', 'completed')"  # as above
        while not await stage.server.run(here):  # noqa: ASYNC110  # another process would do it
            await asyncio.sleep(0.02)
        # What is to end at once has ended before what comes behind it.
        async with turns.session("payer", "behind") as session:
            await session.send("say it")
        assert await stage.text("behind") == "done: say it"
        running.cancel()
        await asyncio.wait({running})
        await store.close()
        # As time would do it, which is long for one that is not to look at its claims.
        running_ones = f"from {stage.runs} where r.state = 'running'"
        await stage.server.run(
            f"select absurd.fail_run('{stage.queue}', run_id, '{{}}', null) {running_ones}"  # names of ours
        )
        stage.go.set()
        async with stage.worker(), asyncio.timeout(PATIENCE):
            assert await stage.text("lost") == "done: look"
        await stage.free()


async def test_a_worker_goes_on_whose_connections_for_turns_are_lost(stage: Stage) -> None:
    async def say(some: range) -> None:
        for number in some:
            async with turns.session("payer", f"s{number}") as session:
                await session.send("say it")
        for number in some:
            assert await stage.text(f"s{number}") == "done: say it"

    async with stage.way_in() as turns, stage.worker():
        await say(range(6))
        await stage.free()
        ours = "from pg_stat_activity where pid <> pg_backend_pid() and query like '%absurd.complete_run%'"
        assert await stage.server.run(f"select pg_terminate_backend(pid) {ours}")
        async with asyncio.timeout(PATIENCE):
            await say(range(6, 12))


async def test_a_turn_waits_for_a_worker_that_has_its_agent(stage: Stage) -> None:
    async with stage.way_in() as turns, stage.worker("hurried"):
        async with turns.session("payer", "s") as session:
            await session.send("say hello")
        async with stage.worker("payer"):
            assert await stage.text("s") == "done: say hello"


async def test_the_way_in_holds_one_connection_also_after_it_was_lost(stage: Stage) -> None:
    ours = "from pg_stat_activity where pid <> pg_backend_pid() and query like '%spawn_task%'"

    async def held() -> int:
        return int((await stage.server.run(f"select count(*) {ours}"))[0][0])

    async with stage.way_in() as turns:
        others = await held()
        await asyncio.gather(*[turns.wake("payer", f"s{number}") for number in range(5)])
        assert await held() == others + 1
        await stage.server.run(f"select pg_terminate_backend(pid) {ours}")
        await asyncio.gather(*[turns.wake("payer", f"s{number}") for number in range(5)])
        assert await held() == 1
    assert not await held()


async def test_an_unknown_agent_is_refused_at_the_way_in(stage: Stage) -> None:
    async with stage.way_in() as turns:
        with pytest.raises(
            ConfigError, match="there is no agent 'teller'; the agents are 'payer', 'hurried'"
        ):
            async with turns.session("teller", "s"):
                pass


async def test_a_server_with_a_turn_queue_leaves_its_runs_to_workers(stage: Stage) -> None:
    async with stage.way_in() as turns, serving(stage.agents(), stage.store(), turns=turns) as server:
        made = await server.post("/api/sessions", {"id": "s", "prompt": "pay"}, 201)
        assert (made["state"], len(made["queue"])) == ("new", 1)
        async with stage.worker():
            asked = await server.question("s")
            await stage.free()
            await server.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"})
            await server.done("s")
            await server.post("/api/sessions/s/messages", {"text": "look"}, 202)
            await until(lambda: len(stage.began) == 2)
            # One that is at work already is gone on with: its turn waits.
            await server.post("/api/sessions/s/resume", None, 202)
            await server.post("/api/sessions/s/messages", {"text": "say more", "mode": "now"}, 202)
            await server.done("s")
            await server.post("/api/sessions/s/messages", {"text": "look"}, 202)
            await until(lambda: len(stage.began) == 3)
            await server.post("/api/sessions/s/interrupt", None, 202)
            assert (await server.done("s"))["reason"] == "interrupted"
            await stage.free()
        assert server.server.opens.working == 0


async def test_a_run_of_a_worker_is_the_answer_to_a_protocol_of_front_ends(stage: Stage) -> None:
    async with (
        stage.way_in() as turns,
        stage.worker(),
        serving(stage.agents(), stage.store(), turns=turns) as server,
    ):
        post = {"threadId": "s", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "pay"}]}
        asked = await server.post("/api/agents/payer/ag-ui", post)
        assert '"type":"interrupt"' in asked.splitlines()[-2]
        assert asked.endswith(await server.post("/api/agents/payer/ag-ui", post))
        question = await server.question("s")
        answer = {"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}
        over = await server.post("/api/agents/payer/ag-ui", {**post, "resume": [answer]})
        assert ("done: pay" in over, '"type":"success"' in over.splitlines()[-2]) == (True, True)


async def test_a_turn_is_queued_over_a_new_connection_where_the_old_one_was_lost(stage: Stage) -> None:
    async with stage.way_in() as turns:
        await turns.wake("payer", "s")
        ended = "select pg_terminate_backend(pid) from pg_stat_activity where query like '%spawn_task%'"
        await stage.server.run(f"{ended} and pid <> pg_backend_pid()")
        await turns.wake("payer", "s")
        queued = await stage.server.run(f'select count(*) from absurd."t_{stage.queue}"')  # noqa: S608  # a name of ours
        assert queued[0][0] == 2


async def test_the_command_serves_before_workers_over_the_database_of_its_store(
    absurd_server: PostgresServer,
) -> None:
    await absurd_server.run("select absurd.create_queue('turnwheel')")
    dsn, name = absurd_server.dsn, uuid.uuid4().hex
    command = [str(Path(sys.executable).with_name("turnwheel")), "serve", "--stand-in", "--turns"]
    process = await asyncio.create_subprocess_exec(*command, "--store", dsn, stdout=subprocess.PIPE)
    assert process.stdout is not None
    store = PostgresStore(dsn)
    worker = AbsurdWorker(dsn, {"default": Agent(performers={CallModel: plays})}, store, poll=0.02)
    try:
        address = (await process.stdout.readline()).decode().split()[-1]
        async with httpx.AsyncClient(base_url=address) as client:
            made = (await client.post("/api/sessions", json={"id": name, "prompt": "say hello"})).json()
            assert made["state"] == "new"
            running = asyncio.create_task(worker.run())
            while (await client.get(f"/api/sessions/{name}")).json()["state"] != "done":  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.02)
            worker.stop()
            await running
    finally:
        process.terminate()
        await process.wait()
        await store.close()


def test_turns_need_a_database_that_workers_share(tmp_path: Path) -> None:
    command = ["serve", "--stand-in", "--turns", "--store", str(tmp_path / "sessions.db")]
    refused = CliRunner().invoke(turnwheel, command)
    assert "workers share the sessions of a database" in str(refused.exception)
