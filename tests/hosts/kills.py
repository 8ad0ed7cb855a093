"""
Ends or stops workers at random moments while sessions are at work, and measures how soon others go on.

Theory of operation. Two workers have sessions of several kinds, with tools, children, questions and queues.
One is killed with -9 in the middle, and a new one takes its place at once, as a supervisor would have it; or
it is stopped where it is, and wakes when all is over. Or the server that keeps the sessions crashes. Or the
network between it and one worker is cut: at first what is sent waits, and the next time connections break.
What was in work is asked for right before. A takeover takes from then to the first entry that another process
wrote to the journal. At the end every session has to be over, and `hosts.judge` finds nothing wrong.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import final

import attrs
from provers.audit.journals import Kept
from provers.crash.points import Notebook

from hosts.desk import NOTES
from hosts.host import Answer, Harm, Host
from hosts.judge import by_session, faults
from hosts.scripts import LONGEST, AtRest, Client
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import Entry, Posted, RunOpened, Stepped, TakenOver
from turnwheel.engine.journal.summary import SessionStatus, summary_key

WORKERS = 2

# A worker dies within so many steps of a session, each a model or a tool.
WITHIN = 8.0

# Seconds for which a network is cut.
AWAY = 5.0

# Seconds between two looks of a client.
PAUSE = 0.5

# What a session does: the jobs of its prompts, which come one right behind the other.
JOBS = (
    ("busy 1: go",),
    ("series 1: go", "parallel 2: go"),
    ("pays 1: go", "series 2: go"),
    ("child 1: go", "limited 2: go"),
    ("digs 1: go", "full 2: go", "hello"),
)

PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@final
@attrs.define
class Figures:
    """What several kills came to: seconds until each session went on, and what was wrong."""

    seconds: list[float] = attrs.field(factory=list)
    wrong: list[str] = attrs.field(factory=list)

    def share(self, part: float) -> float:
        """The seconds within which that *part* of all takeovers was done."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0

    def __str__(self) -> str:
        shown = ", ".join([f"{name} {self.share(part):.2f} s" for name, part in PARTS.items()])
        return f"{len(self.seconds)} takeovers: {shown}; {len(self.wrong)} faults"


@final
@attrs.frozen(kw_only=True)
class Trial:
    """
    What is done: *harm*, so many *times*, with so many new *sessions* at work each time.

    Their models and tools take *pace* seconds. It is done once all prompts are in, or *early*, while they are
    put in.
    """

    harm: Harm = Harm.KILL
    times: int
    sessions: int
    seed: int = 1
    pace: float
    early: bool = False


async def harm_often(host: Host, folder: Path, trial: Trial) -> Figures:
    """Do what *trial* says to *host*, which keeps all in *folder*."""
    figures, chance, harm = Figures(), random.Random(trial.seed), trial.harm
    await host.start(folder, WORKERS, trial.pace, harm)
    try:
        for number in range(trial.times):
            names = [f"k{number}s{session}" for session in range(trial.sessions)]
            async with looking_on(AtRest(host, f"k{number}s")) as at_rest:
                clients = [Client(host, name, folder, PAUSE, at_rest) for name in names]
                jobs = [JOBS[place % len(JOBS)] for place in range(trial.sessions)]
                working = [asyncio.create_task(work(*each)) for each in zip(clients, jobs, strict=True)]
                await accepted(clients, 1 if trial.early else sum(map(len, jobs)))
                await asyncio.sleep(chance.uniform(0.0, WITHIN * trial.pace))
                worker = chance.randrange(WORKERS)
                harmed = range(WORKERS) if harm is Harm.CRASH else [worker]
                held = await held_by(host, harmed, working)
                died = time.time()
                await do_harm(host, harm, worker, resets=number % 2 == 1)
                ends = await asyncio.gather(*working, return_exceptions=True)
            figures.wrong += [f"its client got {end!r}" for end in ends if end is not None]
            if harm is Harm.FREEZE:
                host.thaw(worker)
                await asyncio.sleep(1.0)
            notes = by_session(Notebook.read(folder / NOTES))
            for client in clients:
                journals = await host.journals(client.session)
                figures.wrong += faults(client.session, journals, notes, client.accepted)
                if client.session in held:
                    figures.seconds += first_after(journals[client.session], client.session, died)
    finally:
        await host.stop()
    return figures


@asynccontextmanager
async def looking_on(at_rest: AtRest) -> AsyncGenerator[AtRest]:
    """Have *at_rest* look all the time."""
    looking = asyncio.create_task(at_rest.look_on())
    try:
        yield at_rest
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


async def accepted(clients: Sequence[Client], prompts: int) -> None:
    """Wait until *clients* know of so many *prompts* that they were taken."""
    async with asyncio.timeout(LONGEST):
        while sum(len(client.accepted) for client in clients) < prompts:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.02)


async def held_by(host: Host, workers: Sequence[int], working: Sequence[asyncio.Task[None]]) -> Sequence[str]:
    """The sessions that *workers* are at work on, once there are any, or once all of *working* have ended."""
    while True:
        ended = all(task.done() for task in working)
        held = [session for each in workers for session in await host.held(each)]
        # A worker may be slower to begin than the moment that was drawn.
        if held or ended:
            return held
        await asyncio.sleep(0.02)


async def do_harm(host: Host, harm: Harm, worker: int, *, resets: bool) -> None:
    """Do *harm* to *worker* or to what is behind all of them; with *resets* a network that is cut breaks."""
    match harm:
        case Harm.KILL:
            host.kill(worker)
            await host.begin(worker)
        case Harm.FREEZE:
            host.freeze(worker)
        case Harm.CRASH:
            await host.crash()
        case Harm.CUT:
            await host.cut(worker, AWAY, resets=resets)


async def work(client: Client, jobs: Sequence[str]) -> None:
    """Have *client* put all *jobs* in, answer the question of the one that asks, and wait for the end."""
    for job in jobs:
        await client.prompt(job, job)
    if any(job.startswith("pays") for job in jobs):
        await client.put(Answer(await client.question()))
    await client.over()


def first_after(entries: Sequence[bytes], session: str, moment: float) -> list[float]:
    """
    The seconds from *moment* to the first entry by which a worker went on with *session*.

    None where there was nothing to do: before a person's answer, or once all prompts were answered.
    """
    read = [decode_entry(data) for data in entries]
    before = next((number for number, entry in enumerate(read) if _at(entry) > moment), len(read))
    status, waits = SessionStatus.IDLE, False
    if before:
        state = Kept.of(entries[:before], session).folded
        status, waits = summary_key(state)[0], bool(state.prompts)
    if status is SessionStatus.RESTING or (status is SessionStatus.IDLE and not waits):
        return []
    went_on = [_at(entry) for entry in read[before:] if isinstance(entry, TakenOver | RunOpened | Stepped)]
    return [went_on[0] - moment] if went_on else []


def _at(entry: Entry) -> float:
    """When *entry* was made, or what it is about happened."""
    return entry.event.at if isinstance(entry, Stepped | Posted) else entry.at
