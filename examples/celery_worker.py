"""
Celery tasks that run agents: a job is a session, and a message in the queue says no more than its name.

A scripted model: no key. Files take the place of a broker. `celery -A celery_worker worker` starts a worker.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypedDict

from celery import Celery

from turnwheel import Agent, Approve, ToolContext, tool
from turnwheel.effects import (
    CallModel,
    CallPiece,
    ModelFinished,
    Piece,
    Role,
    SessionBusy,
    StopReason,
    StoreError,
    TextPiece,
    Usage,
)
from turnwheel.performers import PerformContext

JOBS = Path(os.environ.get("JOBS") or tempfile.mkdtemp(prefix="jobs-"))
"""The folder of the queue, the results and the sessions; workers get its name from the environment."""

app = Celery("celery_worker", broker="filesystem://localhost//", backend=f"file://{JOBS}/results")
app.conf.update(
    # A message is acknowledged when the run rests or is over. Where its worker is killed, it is delivered
    # again. A job that kills each of its workers does not come back for ever: see `Policy.takeovers`.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_lost_wait=0.2,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "data_folder_in": f"{JOBS}/queue",
        "data_folder_out": f"{JOBS}/queue",
        "control_folder": f"{JOBS}/control",
        "polling_interval": 0.05,
    },
)


class Outcome(TypedDict):
    """How far a job came: its *answer* and why it ended, or the ids of the questions on which it rests."""

    answer: str
    reason: str | None
    turns: int
    questions: list[str]


# A busy session is at work for another delivery. This one looks again later instead of being dropped, since
# the worker of the other may die.
@app.task(autoretry_for=(SessionBusy, StoreError), max_retries=None, retry_backoff=True, retry_backoff_max=60)
def advance(job: str) -> Outcome:
    """Go on with *job* until it rests or is over; nothing happens where that is so already."""
    return asyncio.run(_advance(job))


async def _advance(job: str) -> Outcome:
    async with new_agent() as agent, agent.session(job) as session:
        result = await session.resume()
    questions = [question.id for question in result.waiting]
    return Outcome(answer=result.text, reason=result.reason, turns=result.spent.turns, questions=questions)


async def submit(job: str, prompt: str) -> None:
    """Write *prompt* to the session of *job*: once, however often a client repeats this."""
    async with new_agent() as agent, agent.session(job) as session:
        await session.send(prompt, id=job)


async def approve(job: str, question: str, by: str) -> None:
    """Answer a *question* of *job*; `advance` goes on with it, in any worker."""
    async with new_agent() as agent, agent.session(job) as session:
        await session.approve(question, Approve(), by=by)


def new_agent() -> Agent:
    """An agent for one event loop: each task has its own."""
    return Agent(
        model="scripted",
        tools=[ship, refund],
        rules=["allow ship"],
        store=JOBS / "sessions.db",
        performers={CallModel: model},
    )


@tool(side_effect="idempotent")
def ship(order: int, context: ToolContext[None]) -> str:
    """Ship an order: one parcel for each key, however often it is asked for."""
    parcel = JOBS / "parcels" / context.key
    if not parcel.exists():
        parcel.write_text(f"order {order}\n")
        if order == 2:
            # The work is done and its answer is not kept yet: the worst moment to lose a worker.
            os.kill(os.getpid(), signal.SIGKILL)
    return f"Order {order} is shipped."


@tool(side_effect="unsafe")
def refund(order: int) -> str:
    """Refund an order."""
    return f"Order {order} is refunded."


async def model(request: CallModel, scene: PerformContext) -> ModelFinished:
    """Call the tool that the prompt names, such as "ship 1", and then repeat its result."""
    last = scene.history[-1]
    piece: Piece
    if last.role is Role.TOOL:
        stop, piece = StopReason.END_TURN, TextPiece(last.results[0].content)
    else:
        name, order = last.text.split()
        stop, piece = StopReason.TOOL_USE, CallPiece(0, "c", name, json.dumps({"order": int(order)}))
    usage = Usage(input=20, output=10)
    return ModelFinished(at=scene.clock.now(), request=request.id, stop=stop, usage=usage, pieces=(piece,))


def deliver(job: str, times: int = 1) -> list[Outcome]:
    """Queue *job* so many *times* at once, and wait for what each delivery finds."""
    deliveries = [advance.delay(job) for _ in range(times)]
    return [delivery.get(timeout=60, interval=0.05) for delivery in deliveries]


def main() -> None:
    """Start a worker, and give it a job twice, a job that kills it, and a job that asks a question."""
    for folder in ("queue", "control", "results", "parcels"):
        (JOBS / folder).mkdir(parents=True)
    command = [sys.executable, "-m", "celery", "-A", "celery_worker", "-q", "worker"]
    options = ["--concurrency=2", "--loglevel=critical", "--without-gossip", "--without-mingle"]
    environment = os.environ | {"JOBS": str(JOBS)}
    worker = subprocess.Popen([*command, *options], cwd=Path(__file__).parent, env=environment)
    try:
        asyncio.run(submit("job-1", "ship 1"))
        asyncio.run(submit("job-1", "ship 1"))
        for outcome in deliver("job-1", times=2):
            print(f"job-1: {outcome['answer']} It took {outcome['turns']} turns.")

        asyncio.run(submit("job-2", "ship 2"))
        (outcome,) = deliver("job-2")
        print(f"job-2: {outcome['answer']} Its first worker was killed.")

        asyncio.run(submit("job-3", "refund 3"))
        (outcome,) = deliver("job-3")
        (question,) = outcome["questions"]
        print("job-3: rests at a question, and holds no worker.")
        asyncio.run(approve("job-3", question, by="Ann"))
        (outcome,) = deliver("job-3")
        print(f"job-3: {outcome['answer']}")

        print(f"{len(list((JOBS / 'parcels').iterdir()))} parcels for 2 orders")
    finally:
        app.control.shutdown()
        worker.wait()
        shutil.rmtree(JOBS)


if __name__ == "__main__":
    main()
