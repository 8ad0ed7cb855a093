"""
The function calls of a round and of a delta: ``python -m benchmarks.calls``.

Seconds depend on the machine and on what else it does; calls do not. Counted are the functions of turnwheel,
those that attrs writes for it, and the built-in ones that both call. The model is played in this process. It
prints one JSON object: for each measure its bound, and the calls by module.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import httpx

from turnwheel.effects import Secrets
from turnwheel.performers.models.http import BURST

from .ours import Ours
from .server import answer
from .work import words
from .worker import Tally

BOUNDS = {"round": 1_339, "round, kept in SQLite": 1_484, "delta": 107, "round, nothing redacted": 1_321}
"""The most calls of each measure. A change that needs more calls takes others away."""

ROUNDS = 50
DELTAS = 20
ALIKE = 10
"""The last rounds of a run, and the last deltas of a reply: by then, nearly all do the same work."""

INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>"}
"""Frames of their own in Python 3.11 only."""

ATTRS = "<attrs generated"


class Calls:
    """Counts calls by module, once it is the profile function; `stamp` notes how many there are by now."""

    def __init__(self) -> None:
        self._so_far: Counter[str] = Counter()
        self._stamps: list[Counter[str]] = []
        self._modules: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Count what *frame* does, if it is a call and *frame* is of turnwheel."""
        code = frame.f_code
        if code not in self._modules:
            self._modules[code] = module_of(frame)
        called = event == "c_call" or (event == "call" and code.co_name not in INLINED)
        if called and (module := self._modules[code]):
            self._so_far[module] += 1

    def stamp(self) -> None:
        """Note that another round or delta begins."""
        self._stamps.append(self._so_far.copy())

    def typical(self) -> dict[str, int]:
        """The calls of one round or delta, by module: of the last ones, what most of them took."""
        # Not the mean: a poller looks at a round by chance, and on a busy machine some wait once more.
        spans = [later - earlier for earlier, later in pairwise(self._stamps)][-ALIKE:]
        often = Counter(map(Counter.total, spans))
        return dict(min(spans, key=lambda span: (-often[span.total()], span.total())).most_common())


def module_of(frame: FrameType) -> str:
    """The module of turnwheel that *frame* is of, empty for none."""
    written = frame.f_code.co_filename
    # What attrs writes has no module; its file is named after the class.
    if written.startswith(ATTRS):
        name = written.split()[-1].rpartition(".")[0]
    else:
        name = frame.f_globals.get("__name__", "")
    return name.removeprefix("turnwheel.") if name.startswith("turnwheel.") else ""


class Reply(httpx.AsyncByteStream):
    """An answer of *events*, as one chunk or each *alone*; *begins* is called before each chunk."""

    def __init__(self, events: list[bytes], begins: Callable[[], None] | None) -> None:
        self._events = events
        self._begins = begins

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._begins is None:
            yield b"".join(self._events)
            return
        for event in self._events:
            # The driver takes in the delta before the next one comes, which then is behind no burst.
            await asyncio.sleep(2 * BURST)
            self._begins()
            yield event


async def count(
    rounds: int, deltas: int, store: Path | None = None, secrets: Secrets | None = None
) -> dict[str, int]:
    """
    The calls of one of many *rounds*, kept in *store* if any; of one of *deltas* without rounds.

    *secrets* says what is redacted, if not what is by default.
    """
    calls = Calls()
    asked = 0

    def play(_: httpx.Request) -> httpx.Response:
        nonlocal asked
        events = answer(rounds, deltas, asked)
        asked += 1
        if rounds:
            calls.stamp()
        return httpx.Response(200, stream=Reply(events, None if rounds else calls.stamp))

    tally = Tally()
    async with httpx.AsyncClient(transport=httpx.MockTransport(play)) as client:
        contender = Ours("http://played", tally, client, secrets)
        sys.setprofile(calls)
        try:
            seen = await contender.run(store)
        finally:
            sys.setprofile(None)
        await contender.aclose()
    if (tally.calls, asked, seen.text) != (rounds, rounds + 1, "".join(words(deltas))):
        msg = f"a wrong run: {tally.calls} calls and {asked} requests in {rounds} rounds, and {seen.text!r}"
        raise RuntimeError(msg)
    return calls.typical()


async def main() -> None:
    """Count and print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        found = [
            await count(ROUNDS, 1),
            await count(ROUNDS, 1, Path(folder) / "kept.db"),
            await count(0, DELTAS),
            await count(ROUNDS, 1, secrets=Secrets(redact=False)),
        ]
    measures = zip(BOUNDS.items(), found, strict=True)
    print(json.dumps({name: {"bound": bound, "calls": calls} for (name, bound), calls in measures}))


if __name__ == "__main__":
    asyncio.run(main())
