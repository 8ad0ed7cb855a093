"""Long sessions: whatever is asked of one, the event loop goes on for all others."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, final

import attrs
import pytest
from support.http_server import Asking, scripted, serving
from support.patience import PATIENCE

from turnwheel import MemoryStore
from turnwheel.apps.server.operations import ONE_SESSION
from turnwheel.engine.journal import fold
from turnwheel.performers.slices import AT_ONCE
from turnwheel.testing.scripted import calls, says

SCRIPT = (calls(("look", {}), ("pay", {"amount": 5})), says("Paid."))


@final
@attrs.define
class Folds:
    """How many entries were folded: in all, and at most between two turns of the event loop."""

    all: int = 0
    most: int = 0
    _now: int = 0

    def count(self) -> None:
        self.all += 1
        self._now += 1
        self.most = max(self.most, self._now)

    def turn(self) -> None:
        self._now = 0
        asyncio.get_running_loop().call_soon(self.turn)


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> Folds:
    counted, apply = Folds(), fold.apply_entry
    here = threading.get_ident()

    def count(*given: Any) -> Any:
        # What a thread folds holds nobody up.
        if threading.get_ident() == here:
            counted.count()
        return apply(*given)

    monkeypatch.setattr(fold, "apply_entry", count)
    return counted


@final
@attrs.frozen
class Long:
    """A long session on *server*, its latest *call* and *question*, which is answered."""

    server: Asking
    call: str
    question: str


@asynccontextmanager
async def long_session(steps: int) -> AsyncGenerator[Long, None]:
    """A session with the same run again and again under other names and numbers, and a second one."""
    store = MemoryStore()
    async with serving(scripted(*SCRIPT * 2, says("More.")), store) as server:
        await server.post("/api/sessions", {"id": "short", "prompt": "Pay"}, 201)
        asked = await server.question("short")
        await server.post(f"/api/sessions/short/questions/{asked['id']}", {"decision": "approve"})
        await server.done("short")
        stored = partial(server.server.names("").stored, "default")
        run = await store.load(stored("short"))
        name, times = asked["call"].rpartition("-")[0], steps // len(run)
        copies = [Copy(name, f"{time:0{len(name)}x}", time * highest(name, run)) for time in range(times)]
        entries = [copy.entry(each) for copy in copies for each in run]
        for session in ("long", "like"):
            await store.append(stored(session), 0, entries)
        yield Long(server, copies[-1].named(asked["call"]), copies[-1].named(asked["id"]))


@final
@attrs.frozen
class Copy:
    """The run *name* once more, as *new*, behind runs whose ids have numbers up to *behind*."""

    name: str
    new: str
    behind: int

    def named(self, text: str) -> str:
        """*text* with the ids of this run."""
        numbered = re.sub(
            rf"{self.name}-(\d+)", lambda found: f"{self.new}-{int(found[1]) + self.behind}", text
        )
        return numbered.replace(self.name, self.new).replace("first-prompt", self.new)

    def entry(self, entry: bytes) -> bytes:
        """*entry* as it is in this run, which opens where the numbers of those before end."""
        opened = f'"run":"{self.new}"'
        copied = self.named(entry.decode())
        return copied.replace(opened, f'{opened},"next_id":{self.behind + 1}', 1).encode()


def highest(name: str, run: Sequence[bytes]) -> int:
    """The highest number of an id in *run*, whose name is *name*."""
    return max(int(number) for entry in run for number in re.findall(rf"{name}-(\d+)", entry.decode()))


# What is asked of it, by the operation: its body and the status of its answer.
ASKED: Mapping[tuple[str, str], tuple[Any, int]] = {
    ("GET", ""): (None, 200),
    ("GET", "/events"): (None, 200),
    ("GET", "/export"): (None, 200),
    ("GET", "/steps"): (None, 200),
    ("GET", "/steps/{number}"): (None, 200),
    ("GET", "/steps/{number}/diagram.svg"): (None, 200),
    ("GET", "/moves"): (None, 200),
    ("GET", "/outline"): (None, 200),
    ("GET", "/notices"): (None, 200),
    ("GET", "/calls/{call}/why"): (None, 200),
    ("GET", "/family"): (None, 200),
    ("GET", "/compare"): (None, 200),
    ("GET", "/test.py"): (None, 200),
    ("POST", "/preview"): ({"event": {"type": "UserSent", "id": "x", "text": "More"}}, 200),
    ("POST", "/questions/{question}"): ({"decision": "approve"}, 409),
    ("POST", "/calls/{call}/cancel"): (None, 409),
    ("DELETE", "/queue/{input}"): (None, 404),
    ("POST", "/interrupt"): (None, 202),
    ("POST", "/resume"): (None, 202),
    ("POST", "/control"): ({"mode": "plan"}, 200),
    ("POST", "/branch"): ({"run": ""}, 200),
    ("GET", "/questions/{question}/file"): (None, 404),
    ("POST", "/fork"): ({"id": "fork"}, 201),
    ("POST", "/messages"): ({"text": "More"}, 202),
    ("DELETE", ""): (None, 204),
}


async def test_every_operation_on_a_session_is_asked_of_a_long_one() -> None:
    async with serving(scripted()) as server:
        there = {(each.method, each.path) for each in server.server.operations}
    assert {(method, path.removeprefix(ONE_SESSION)) for method, path in there if ONE_SESSION in path} == {
        *ASKED
    }


@pytest.mark.parametrize("steps", [1_000, pytest.param(20_000, marks=pytest.mark.prover)])
@pytest.mark.parametrize(("method", "path"), ASKED, ids=[" ".join(each) for each in ASKED])
async def test_a_long_session_holds_nobody_up(folds: Folds, method: str, path: str, steps: int) -> None:
    body, status = ASKED[method, path]
    async with long_session(steps) as long:
        where = path.format(number=steps - 100, call=long.call, question=long.question, input="none")
        more = {"/steps": f"?from={steps // 2}", "/compare": "?other=like"}.get(path, "")
        folds.turn()
        folds.all = folds.most = 0
        async with asyncio.timeout(PATIENCE):
            if path == "/events":
                # It has no end.
                reading = asyncio.ensure_future(long.server.client.get("/api/sessions/long/events"))
                while folds.all < steps - 100:  # noqa: ASYNC110  # no event tells it
                    await asyncio.sleep(0.01)
                reading.cancel()
            else:
                await long.server.ask(method, f"/api/sessions/long{where}{more}", body, status)
        # The end of one fold and the beginning of the next may share a turn.
        assert folds.most <= 2 * AT_ONCE
        # What is deleted, or folded in a thread, is not folded here.
        assert folds.all or (method, path) in {("DELETE", ""), ("GET", "/test.py")}
