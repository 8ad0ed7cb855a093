"""
A batch: 500 prompts, twenty at a time, and a file of results. Each start does what is missing.

A scripted model: no key.
"""

import asyncio
import itertools
import json
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from turnwheel import Agent, ModelSpec, Price
from turnwheel.effects import (
    CallModel,
    DoneReason,
    Failure,
    ModelFailed,
    ModelFinished,
    StopReason,
    TextPiece,
    Usage,
)
from turnwheel.performers import PerformContext


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the input; *id* is the same at each start."""

    id: str
    prompt: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A line of the results. *usd* and *tokens* are those of all tries of the row."""

    id: str
    answer: str
    reason: str
    usd: str
    tokens: int


async def answer(agent: Agent, row: Row) -> Outcome:
    """Answer *row* in a session of its own, which takes up what an earlier start left."""
    async with agent.session(f"row-{row.id}") as session:
        await session.load()
        if session.unfinished:
            result = await session.resume()
        elif session.machine is None:
            result = await session.run(row.prompt)
        elif session.result().reason is DoneReason.END_TURN:
            # An earlier start was stopped between the answer and its line in the file.
            result = session.result()
        else:
            # A failed try is left out of the conversation, and stays in the account.
            await session.branch()
            result = await session.run(row.prompt)
        usage = session.spent.usage
        return Outcome(
            id=row.id,
            answer=result.text,
            reason=result.reason or "waits for a person",
            usd=str(session.spent.cost),
            tokens=usage.input + usage.output,
        )


async def run_batch(
    agent: Agent, rows: Sequence[Row], results: Path, report: Callable[[Outcome], None], at_once: int = 20
) -> None:
    """Append an `Outcome` to *results* for each answered row, and *report* failed ones, too."""
    waiting = iter(rows)

    async def work() -> None:
        for row in waiting:
            outcome = await answer(agent, row)
            if outcome.reason == DoneReason.END_TURN:
                lines.write(json.dumps(asdict(outcome)) + "\n")
                lines.flush()
            report(outcome)

    with results.open("a", encoding="utf-8") as lines:
        async with asyncio.TaskGroup() as workers:
            for _ in range(at_once):
                workers.create_task(work())


def answered(results: Path) -> list[Outcome]:
    """The lines of *results*. A last one that a crash cut is taken out of the file."""
    lines = results.read_text("utf-8").splitlines(keepends=True) if results.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    if whole != lines:
        results.write_text("".join(whole), "utf-8")
    return [Outcome(**json.loads(line)) for line in whole]


@contextmanager
def progress(total: int) -> Generator[Callable[[Outcome], None]]:
    """What counts outcomes: a bar in a terminal, and elsewhere a line for each hundred rows."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    console = Console(stderr=True)
    done, failed, usd = 0, 0, Decimal(0)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=total, note="")

        def report(outcome: Outcome) -> None:
            nonlocal done, failed, usd
            done += 1
            failed += outcome.reason != DoneReason.END_TURN
            usd += Decimal(outcome.usd)
            note = f"{failed} failed, ${usd:.2f}"
            bar.update(task, advance=1, note=note)
            if not console.is_terminal and (done % 100 == 0 or done == total):
                print(f"  {done} of {total}, {note}", file=console.file)

        yield report


@dataclass
class Provider:
    """A model that is *down* for the rows whose prompt ends in 7."""

    down: bool = True

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """Answer with the prompt, turned round."""
        prompt = scene.history[-1].text
        await asyncio.sleep(0)
        at = scene.clock.now()
        if self.down and prompt.endswith("7"):
            return ModelFailed(
                at=at, request=request.id, failure=Failure.BAD_REQUEST, message="no such account"
            )
        piece, usage = TextPiece(prompt[::-1]), Usage(input=400, output=100)
        return ModelFinished(
            at=at, request=request.id, stop=StopReason.END_TURN, usage=usage, pieces=(piece,)
        )


class Stopped(Exception):
    """Stops a batch, as Ctrl-C does."""


async def start(folder: Path, rows: Sequence[Row], provider: Provider, stop_after: int | None = None) -> None:
    """The program, once; it is stopped after so many rows."""
    results = folder / "results.jsonl"
    known = {outcome.id for outcome in answered(results)}
    missing = [row for row in rows if row.id not in known]
    model = ModelSpec("scripted", price=Price("1", "4"))
    agent = Agent(model=model, store=folder / "batch.db", performers={CallModel: provider})
    async with agent:
        with progress(len(missing)) as count:
            rows_done = itertools.count(1)

            def report(outcome: Outcome) -> None:
                count(outcome)
                if next(rows_done) == stop_after:
                    raise Stopped

            # What ends a batch cancels the rows under way, and the next start goes on with them.
            try:
                await run_batch(agent, missing, results, report)
            except* Stopped:
                pass


async def play(folder: Path) -> None:
    """Four starts: one is stopped, one finds the provider down, one does the rest, one has nothing to do."""
    rows = [Row(id=f"{number:03}", prompt=f"prompt {number}") for number in range(500)]
    provider = Provider()
    for what, stop_after in (("stopped", 300), ("provider down", None), ("the rest", None), ("again", None)):
        if what == "the rest":
            provider.down = False
        before = len(answered(folder / "results.jsonl"))
        await start(folder, rows, provider, stop_after)
        outcomes = answered(folder / "results.jsonl")
        usd = sum(Decimal(outcome.usd) for outcome in outcomes)
        tokens = sum(outcome.tokens for outcome in outcomes)
        # With an estimate for each answer that was cut off.
        print(f"{what}: {tokens:,} tokens, ${usd:.2f} for {len(outcomes)} rows, {len(outcomes) - before} new")


def main() -> None:
    """Play it in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


if __name__ == "__main__":
    main()
