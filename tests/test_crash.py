"""Processes that are killed: what the next one makes of the run they leave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnwheel import DoneReason, SQLiteStore
from turnwheel.effects.messages import Outcome, Role
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.machine import Machine
from turnwheel.states.state import Done

Starts = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the sessions of a test are."""
    return tmp_path / "sessions.db"


@pytest.fixture
def start(tmp_path: Path, store: Path) -> Iterator[Starts]:
    """Starts `turnwheel run --json` in *tmp_path*."""
    started: list[subprocess.Popen[str]] = []

    def process(*arguments: str, command: str = "run") -> subprocess.Popen[str]:
        unset = {"OPENAI_API_KEY", "TURNWHEEL_MODEL"}
        env = {name: value for name, value in os.environ.items() if name not in unset}
        json_lines = ["--json"] if command == "run" else []
        made = subprocess.Popen(
            [sys.executable, "-m", "turnwheel.apps.cli", command, *json_lines, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env={**env, "TURNWHEEL_STORE": str(store)},
        )
        started.append(made)
        return made

    yield process
    for made in started:
        with made:  # closes its pipes and waits for it
            made.kill()


def wait_for(process: subprocess.Popen[str], kind: str) -> dict[str, object]:
    """The first notice of this *kind* that *process* writes."""
    assert process.stdout is not None
    for line in process.stdout:
        notice: dict[str, object] = json.loads(line)
        if notice["type"] == kind:
            return notice
    assert process.stderr is not None
    pytest.fail(f"no {kind}: {process.stderr.read()}")


def finish(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, object]], str]:
    """Wait for *process*; its exit code, the notices that were left and what it said to people."""
    out, err = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


def stored(store: Path) -> Machine:
    """The machine of session ``s``."""

    async def load() -> Machine:
        kept = SQLiteStore(store)
        machine = fold(await kept.load("s"), "s").machine
        await kept.close()
        assert machine is not None
        return machine

    return asyncio.run(load())


def ended_well(store: Path) -> Machine:
    """The machine of session ``s``, which is done; each call of its history has one result, in order."""
    machine = stored(store)
    assert isinstance(machine.state, Done)
    assert machine.state.reason is DoneReason.END_TURN
    messages = list(machine.memory.history)
    for message, following in zip(messages, [*messages[1:], None], strict=True):
        assert following is None or following.role is not Role.TOOL or message.calls
        if message.calls:
            assert following is not None
            assert [result.call for result in following.results] == [call.id for call in message.calls]
    return machine


def outcomes(machine: Machine) -> list[tuple[Outcome, str]]:
    """How each call of the history ended and what the model read of it."""
    return [
        (result.outcome, result.content) for message in machine.memory.history for result in message.results
    ]


def test_killed_while_a_tool_runs(start: Starts, store: Path, tmp_path: Path) -> None:
    """An unsafe tool is not run again: it may have run, and the model and the person are told so."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    prompt = "run: echo again >> ran; echo $$ > fifo; exec sleep 600"
    first = start("--session", "s", "--model", "openai:stand-in-bash", "--allow", "bash", prompt)
    orphan = int(fifo.read_text("utf-8"))  # there is one only when the command is at work
    first.kill()
    first.wait()
    os.killpg(orphan, signal.SIGKILL)
    assert not stored(store).done
    code, notices, err = finish(start("--resume", "s"))
    assert code == 0
    assert "may have run and is not run again" in err
    ended = next(notice for notice in notices if notice["type"] == "ToolEnded")
    assert ended["outcome"] == "unknown"
    ((outcome, content),) = outcomes(ended_well(store))
    assert outcome is Outcome.UNKNOWN
    assert "it may have run" in content
    assert (tmp_path / "ran").read_text("utf-8") == "again\n"


@pytest.mark.parametrize(("answer", "ran"), [("approve", 2), ("deny", 1)])
def test_killed_while_a_tool_runs_that_is_asked_about(
    answer: str, ran: int, start: Starts, store: Path, tmp_path: Path
) -> None:
    """Where settings say so, a person says whether it runs again; no is told as what may have run."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "turnwheel.toml").write_text('policy.on_lost = "ask"\n', "utf-8")
    command = "echo again >> ran; test -e once || { touch once; echo $$ > fifo; exec sleep 600; }"
    first = start("--session", "s", "--model", "openai:stand-in-bash", "--allow", "bash", f"run: {command}")
    orphan = int(fifo.read_text("utf-8"))
    first.kill()
    first.wait()
    os.killpg(orphan, signal.SIGKILL)
    code, notices, err = finish(start("--resume", "s"))
    assert (code, "it may have run; you are asked about it" in err) == (3, True)
    assert "it may have run when its process was lost; run it again?" in err
    asked = next(notice for notice in notices if notice["type"] == "ApprovalRequested")
    assert str(asked["why"]).startswith("lost: ")
    answering = start("s", str(asked["request"]), command=answer)
    said, _ = answering.communicate(timeout=60)
    assert {"approve": ", so it runs again", "deny": ", so it does not run again"}[answer] in said
    assert finish(start("--resume", "s"))[0] == 0
    ((outcome, content),) = outcomes(ended_well(store))
    assert outcome is {"approve": Outcome.OK, "deny": Outcome.UNKNOWN}[answer]
    assert "may have run" in content
    assert (tmp_path / "ran").read_text("utf-8") == "again\n" * ran


def test_killed_while_a_model_answers(start: Starts, store: Path, tmp_path: Path) -> None:
    """What it had said is void, the model is asked once more, and its answer is there once."""
    first = start("--session", "s", "--model", "openai:stand-in-slow", "What is in README.md?")
    (tmp_path / "README.md").write_text("# Demo\n", "utf-8")
    wait_for(first, "TextDelta")
    first.kill()
    first.wait()
    code, notices, err = finish(start("--resume", "s"))
    assert code == 0
    assert "the model is asked again" in err
    assert [notice["attempt"] for notice in notices if notice["type"] == "ModelCalled"] == [1, 1]
    said = [message.text for message in ended_well(store).memory.history if message.role is Role.ASSISTANT]
    assert said[0] == "I look at README.md."
    assert len(said) == 2


@pytest.mark.parametrize(("answer", "outcome"), [("approve", Outcome.OK), ("deny", Outcome.DENIED)])
def test_killed_while_a_question_waits(answer: str, outcome: Outcome, start: Starts, store: Path) -> None:
    """The question is the same one in the next process, and is answered there."""
    first = start("--session", "s", "--model", "openai:stand-in-bash", "run: echo hello")
    asked = wait_for(first, "ApprovalRequested")
    first.kill()
    first.wait()
    code, notices, _ = finish(start("--resume", "s"))
    assert code == 3
    assert [notice["request"] for notice in notices if notice["type"] == "ApprovalRequested"] == [
        asked["request"]
    ]
    answering = start("s", str(asked["request"]), command=answer)
    answering.communicate(timeout=60)
    assert answering.returncode == 0
    code, _, _ = finish(start("--resume", "s"))
    assert code == 0
    ((ended, _),) = outcomes(ended_well(store))
    assert ended is outcome


def test_terminated_while_a_tool_runs(start: Starts, store: Path, tmp_path: Path) -> None:
    """
    Told twice, we do not wait for it: it is ended with us, and the run is taken over as after a crash.
    """
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    prompt = "run: echo $$ > fifo; exec sleep 600"
    first = start("--session", "s", "--model", "openai:stand-in-bash", "--allow", "bash", prompt)
    command = int(fifo.read_text("utf-8"))
    first.terminate()
    assert first.stderr is not None
    said = first.stderr.readline()
    assert "terminated: what is at work may end, within 10 s" in said
    first.terminate()
    code, _, err = finish(first)
    assert code == 143
    assert "turnwheel run --resume s" in err
    with pytest.raises(ProcessLookupError):
        os.killpg(command, 0)
    assert finish(start("--resume", "s"))[0] == 0
    assert [outcome for outcome, _ in outcomes(ended_well(store))] == [Outcome.UNKNOWN]


def test_drained_while_a_tool_runs(start: Starts, store: Path, tmp_path: Path) -> None:
    """It comes to its end; the next one was not begun, and so runs once, and nobody is told anything else."""
    fifo, gate = tmp_path / "fifo", tmp_path / "gate"
    for path in (fifo, gate):
        os.mkfifo(path)
    prompt = "run: echo one >> ran; echo $$ > fifo; cat gate and run: echo two >> ran"
    first = start("--session", "s", "--model", "openai:stand-in-bash", "--allow", "bash", prompt)
    fifo.read_text("utf-8")
    first.terminate()
    assert first.stderr is not None
    assert "terminated: what is at work may end" in first.stderr.readline()
    gate.write_text("now", "utf-8")
    code, _, err = finish(first)
    assert (code, "the run can be resumed" in err) == (143, True)
    assert (tmp_path / "ran").read_text("utf-8") == "one\n"
    code, _, err = finish(start("--resume", "s"))
    assert (code, "handed over: bash echo two >> ran - begins now" in err) == (0, True)
    assert (tmp_path / "ran").read_text("utf-8") == "one\ntwo\n"
    assert [outcome for outcome, _ in outcomes(ended_well(store))] == [Outcome.OK, Outcome.OK]


def test_terminated_when_it_is_about_to_end(start: Starts, store: Path, tmp_path: Path) -> None:
    """A run that comes to its end meanwhile is over, and says so."""
    (tmp_path / "README.md").write_text("# Demo\n", "utf-8")
    first = start("--session", "s", "--model", "openai:stand-in-slow", "hello")
    wait_for(first, "TextDelta")
    first.terminate()
    code, notices, _ = finish(first)
    assert code == 0
    assert notices[-1]["type"] == "RunEnded"
    ended_well(store)


def test_of_two_that_go_on_only_one_does(start: Starts, store: Path, tmp_path: Path) -> None:
    """The other is told that somebody else wrote to the session, and changes nothing."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    prompt = "run: echo $$ > fifo; cat fifo"
    first = start("--session", "s", "--model", "openai:stand-in-bash", "--allow", "bash", prompt)
    int(fifo.read_text("utf-8"))
    second = start("--resume", "s")  # takes over what is not lost
    assert finish(second)[0] == 0
    code, _, err = finish(first)  # it need not wait for its tool to see that
    assert code == 1
    assert "another process went on with it" in err
    ended_well(store)
