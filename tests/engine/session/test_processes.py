"""One session and several processes: one begins, others answer and steer, another ends it; and some race."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, final

import pytest
from provers.audit.journals import Kept, journal_faults
from provers.crash.points import Notebook
from provers.invariants import state_faults

from turnwheel.effects.events import ApprovalGiven
from turnwheel.effects.messages import Outcome
from turnwheel.performers.stores import sqlite as layout
from turnwheel.states.state import Done

PROGRAM = Path(__file__).with_name("relay.py")
ROUNDS = 15

Said = dict[str, Any]


@final
class Worker:
    """A process that does what it is told, over *store*."""

    def __init__(self, store: Path, notes: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(store), str(notes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def begin(self, do: str, session: str, **how: object) -> None:
        assert self.process.stdin is not None
        print(json.dumps({"do": do, "session": session, **how}), file=self.process.stdin, flush=True)

    def says(self) -> Said:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline() or pytest.fail(f"it ended: {self.process.stderr.read()}")
        said: Said = json.loads(line)
        return said

    def do(self, do: str, session: str, **how: object) -> Said:
        self.begin(do, session, **how)
        return self.says()


@final
class Crew:
    """Processes over one store, and where their tools note what they do."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "sessions.db"
        self.notes = folder / "notes"
        self._workers: list[Worker] = []

    def __call__(self, count: int) -> list[Worker]:
        self._workers = [worker for worker in self._workers if worker.process.poll() is None]
        while len(self._workers) < count:
            self._workers.append(Worker(self.store, self.notes))
        return self._workers[:count]

    def close(self) -> None:
        for worker in self._workers:
            with worker.process:  # closes its pipes and waits for it
                worker.process.kill()

    def kept(self, session: str) -> Kept:
        """The journal of *session*, in which everything is in order, and which is at its end."""
        with closing(sqlite3.connect(self.store)) as db:
            found = Kept.of(layout.load(session, 0, None, "", db), session)
        machine = found.folded.machine
        assert machine is not None
        assert isinstance(machine.state, Done)
        assert journal_faults(found, (), over=True) == []
        assert state_faults(machine.state, machine.memory) == []
        assert found.folded.posted == []
        self._check_tools(found)
        return found

    def noted(self, kind: str, session: str) -> Counter[tuple[str, str]]:
        """How often each tool began in *session* (``tool``), or ran (``ran``), with each key."""
        notes = [note for note in Notebook.read(self.notes) if note["session"] == session]
        return Counter((note["tool"], note["key"]) for note in notes if note["kind"] == kind)

    def _check_tools(self, found: Kept) -> None:
        began, ran = self.noted("tool", found.session), self.noted("ran", found.session)
        assert [count for (tool, _), count in began.items() if tool == "pay" and count > 1] == []
        for tool, ended in outcomes(found).items():
            # Again under the same key, if at all.
            (key,) = {key for name, key in began if name == tool} or {""}
            assert ended == [Outcome.OK] or (tool, ended) == ("pay", [Outcome.UNKNOWN])
            assert ran[tool, key] or ended == [Outcome.UNKNOWN]


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """Processes, of which none has seen the others, for all tests here: each has sessions of its own."""
    working = Crew(tmp_path_factory.mktemp("crew"))
    yield working
    working.close()


def outcomes(found: Kept) -> dict[str, list[Outcome]]:
    by_tool: dict[str, list[Outcome]] = {}
    for told in found.ended:
        by_tool.setdefault(told.tool, []).append(told.outcome)
    return by_tool


# One after another


def test_one_begins_another_says_yes_a_third_steers_and_a_fourth_ends_it(crew: Crew) -> None:
    first, second, third, fourth = crew(4)
    rests = first.do("run", "relay", text="job one", id="first")
    assert (rests["reason"], rests["waiting"]) == (None, 1)
    assert second.do("approve", "relay") == {"done": True}
    assert third.do("steer", "relay", text="steer: be kind", id="the steer") == {"done": True}
    ended = fourth.do("resume", "relay")
    assert (ended["reason"], ended["text"]) == ("end_turn", "Done: job one, steer: be kind")
    found = crew.kept("relay")
    assert outcomes(found) == {"peek": [Outcome.OK], "pay": [Outcome.OK], "put": [Outcome.OK]}
    assert found.taken == ["first", "the steer"]
    (answer,) = [event for event in found.posted if isinstance(event, ApprovalGiven)]
    assert answer.by == f"process {second.process.pid}"
    whose = {
        note["tool"]: note["process"] for note in Notebook.read(crew.notes) if note["session"] == "relay"
    }
    assert whose == {"peek": first.process.pid, "pay": fourth.process.pid, "put": fourth.process.pid}


def test_others_speak_to_a_process_that_is_at_work_and_dies(crew: Crew) -> None:
    first, second, third, fourth = crew(4)
    how = {"wait": True, "signals": {"pay": signal.SIGKILL}, "lease": 3_600.0}
    first.begin("run", "killed", text="job one", id="first", **how)
    second.do("approve", "killed")
    first.process.communicate()  # what is left of it, which is nothing
    third.do("steer", "killed", text="steer: be kind", id="the steer")
    third.do("send", "killed", text="more", id="more")
    assert fourth.do("resume", "killed")["text"] == "Done: job one, steer: be kind"
    found = crew.kept("killed")
    assert outcomes(found) == {"peek": [Outcome.OK], "pay": [Outcome.UNKNOWN], "put": [Outcome.OK]}
    assert found.taken == ["first", "the steer", "more"]


# At once


@pytest.mark.parametrize("count", [2, 3])
def test_of_some_that_go_on_at_once_one_does_and_nothing_is_lost(count: int, crew: Crew) -> None:
    workers = crew(count)
    told: Counter[str] = Counter()
    for number in range(ROUNDS):
        session = f"race {count}.{number}"
        workers[0].do("run", session, text="job one", id="first")
        workers[-1].do("approve", session)
        at = time.monotonic() + 0.02
        for mine, worker in enumerate(workers):
            worker.begin("race", session, text=f"more {mine}", id=f"more {mine}", at=at)
        said = [worker.says() for worker in workers]
        losers = [each["told"] for each in said if "told" in each]
        told.update(losers)
        assert len(losers) < count
        assert {each["reason"] for each in said if "told" not in each} == {"end_turn"}
        assert sorted(crew.kept(session).taken) == ["first", *[f"more {mine}" for mine in range(count)]]
    assert set(told) == {"SessionBusy"}


@pytest.mark.parametrize("do", ["resume", "run"])
def test_a_session_at_work_is_refused_and_none_of_its_work_is_cut(
    do: str, crew: Crew, tmp_path: Path
) -> None:
    first, second = crew(2)
    session, pipe = f"alive {do}", tmp_path / "pipe"
    os.mkfifo(pipe)
    first.begin("run", session, text="job one", id="first", wait=True, pipes={"pay": str(pipe)})
    second.do("approve", session)
    # It opens when the tool reads, which is at work from then on.
    with pipe.open("w"):
        told = second.do(do, session, text="another", id="another")
        assert told["told"] == "SessionBusy"
        assert f"is at work in process {first.process.pid} of" in told["says"]
    assert first.says()["text"] == "Done: job one"
    assert set(map(tuple, outcomes(crew.kept(session)).values())) == {(Outcome.OK,)}


def resumed(worker: Worker, session: str) -> Said:
    """What comes of it when *worker* goes on with *session*, as soon as it may."""
    while "told" in (said := worker.do("resume", session)):
        assert said["told"] == "SessionBusy"
    return said


@pytest.mark.parametrize("tool", ["peek", "pay", "put"])
def test_one_that_was_overtaken_in_its_sleep_stops_when_it_wakes(tool: str, crew: Crew) -> None:
    sleeper, other = crew(2)
    session = f"asleep at {tool}"
    how = {"wait": True, "signals": {tool: signal.SIGSTOP}, "lease": 0.2}
    sleeper.begin("run", session, text="job one", id="first", **how)
    if tool != "peek":
        other.do("approve", session)
    os.waitid(os.P_PID, sleeper.process.pid, os.WSTOPPED)
    if tool == "peek":
        resumed(other, session)
        other.do("approve", session)
    assert resumed(other, session)["text"] == "Done: job one"
    before = crew.noted("tool", session)
    sleeper.process.send_signal(signal.SIGCONT)
    said = sleeper.says()
    assert said["told"] == "StoreConflict"
    assert said["says"].endswith("another process went on with it; load it again")
    assert crew.noted("tool", session) == before
    unknown = [name for name, ended in outcomes(crew.kept(session)).items() if ended == [Outcome.UNKNOWN]]
    assert unknown == ([tool] if tool == "pay" else [])
