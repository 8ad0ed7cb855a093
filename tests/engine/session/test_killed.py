"""Processes that are killed or told to end: what the next one makes of the run they leave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.forked import Piped

from turnwheel import DoneReason, SQLiteStore
from turnwheel.effects.messages import Outcome, Role
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.fold import fold
from turnwheel.states.state import Done

Lines = list[dict[str, Any]]


class Desk:
    """A folder with a store, in which processes are started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._store = folder / "sessions.db"
        self._started: list[Piped] = []

    def start(self, *arguments: str) -> Piped:
        unset = {"OPENAI_API_KEY", "TURNWHEEL_MODEL"}
        env = {name: value for name, value in os.environ.items() if name not in unset}
        env["TURNWHEEL_STORE"] = str(self._store)
        process = Piped(*arguments, env=env, folder=self.folder)
        process.stdin.close()
        self._started.append(process)
        return process

    def run(self, *arguments: str) -> Piped:
        return self.start("run", "--json", *arguments)

    def begin(self, prompt: str, *options: str, model: str = "bash") -> Piped:
        """Start a run of the session ``s``; the model that answers without a key does what *prompt* says."""
        return self.run("--session", "s", "--model", f"openai:stand-in-{model}", *options, prompt)

    def resume(self, *options: str) -> tuple[int, Lines, str]:
        """Go on with the session ``s``; see `finish`."""
        return finish(self.run("--resume", "s", *options))

    def answer(self, how: str, request: object) -> str:
        """Have *request* answered by a command; its words."""
        process = self.start(how, "s", str(request))
        words, _ = process.communicate(timeout=60)
        assert process.process.wait() == 0
        return words

    def fifo(self, name: str = "fifo") -> Path:
        """A pipe that a command can be waited for at: reading returns when it writes."""
        os.mkfifo(self.folder / name)
        return self.folder / name

    def ran(self) -> str:
        return (self.folder / "ran").read_text("utf-8")

    def stored(self) -> Machine:
        async def load() -> Machine:
            store = SQLiteStore(self._store)
            machine = fold(await store.load("s"), "s").machine
            await store.close()
            assert machine is not None
            return machine

        return asyncio.run(load())

    def ended_well(self) -> list[tuple[Outcome, str]]:
        """How each call ended in the session ``s``, which is done, each with its result behind it."""
        machine = self.stored()
        assert isinstance(machine.state, Done)
        assert machine.state.reason is DoneReason.END_TURN
        messages = list(machine.memory.history)
        for message, following in zip(messages, [*messages[1:], None], strict=True):
            assert following is None or following.role is not Role.TOOL or message.calls
            if message.calls:
                assert following is not None
                assert [result.call for result in following.results] == [call.id for call in message.calls]
        return [(result.outcome, result.content) for message in messages for result in message.results]

    def close(self) -> None:
        for process in self._started:
            process.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def wait_for(process: Piped, kind: str) -> dict[str, Any]:
    for line in process.stdout:
        notice: dict[str, Any] = json.loads(line)
        if notice["type"] == kind:
            return notice
    pytest.fail(f"no {kind}: {process.stderr.read()}")


def of_kind(notices: Lines, kind: str) -> Lines:
    return [notice for notice in notices if notice["type"] == kind]


def finish(process: Piped) -> tuple[int, Lines, str]:
    """Wait for *process*; its exit code, the lines of JSON that were left, and its words to people."""
    out, err = process.communicate(timeout=60)
    return process.process.wait(), [json.loads(line) for line in out.splitlines()], err


def kill(process: Piped, command: int | None = None) -> None:
    process.process.kill()
    process.process.wait()
    if command is not None:
        os.killpg(command, signal.SIGKILL)


# Killed


def test_killed_while_a_tool_runs(desk: Desk) -> None:
    """An unsafe tool is not run again: it may have run, and the model and the person read so."""
    fifo = desk.fifo()
    first = desk.begin("run: echo again >> ran; echo $$ > fifo; exec sleep 600", "--allow", "bash")
    kill(first, int(fifo.read_text("utf-8")))  # there is a number only when the command is at work
    assert not desk.stored().done
    code, notices, err = desk.resume()
    assert (code, "may have run and is not run again" in err) == (0, True)
    assert [ended["outcome"] for ended in of_kind(notices, "CallSettled")] == ["unknown"]
    ((outcome, content),) = desk.ended_well()
    assert (outcome, "it may have run" in content) == (Outcome.UNKNOWN, True)
    assert desk.ran() == "again\n"


@pytest.mark.parametrize(
    ("answer", "words", "outcome", "times"),
    [
        ("approve", ", so it runs again", Outcome.OK, 2),
        ("deny", ", so it does not run again", Outcome.UNKNOWN, 1),
    ],
)
def test_killed_while_a_tool_runs_that_a_person_is_asked_about(
    desk: Desk, answer: str, words: str, outcome: Outcome, times: int
) -> None:
    """Where settings say so, a person decides whether it runs again."""
    fifo = desk.fifo()
    (desk.folder / "our.toml").write_text('policy.on_lost = "ask"\n', "utf-8")
    ours = ("--settings", "our.toml")
    command = "echo again >> ran; test -e once || { touch once; echo $$ > fifo; exec sleep 600; }"
    first = desk.begin(f"run: {command}", "--allow", "bash", *ours)
    kill(first, int(fifo.read_text("utf-8")))
    code, notices, err = desk.resume(*ours)
    assert (code, "it may have run; you are asked about it" in err) == (3, True)
    assert "it may have run when its process was lost; run it again?" in err
    (asked,) = of_kind(notices, "ApprovalRequested")
    assert asked["why"].startswith("lost: ")
    assert words in desk.answer(answer, asked["request"])
    assert desk.resume(*ours)[0] == 0
    ((ended, content),) = desk.ended_well()
    assert (ended, "may have run" in content) == (outcome, True)
    assert desk.ran() == "again\n" * times


def test_killed_while_a_model_answers(desk: Desk) -> None:
    (desk.folder / "README.md").write_text("# Demo\n", "utf-8")
    first = desk.begin("What is in README.md?", model="slow")
    wait_for(first, "TextDelta")
    kill(first)
    code, notices, err = desk.resume()
    assert (code, "the model is asked again" in err) == (0, True)
    assert [notice["attempt"] for notice in of_kind(notices, "ModelCalled")] == [1, 1]
    desk.ended_well()
    history = desk.stored().memory.history
    texts = [message.text for message in history if message.role is Role.ASSISTANT]
    assert (texts[0], len(texts)) == ("I look at README.md.", 2)


def test_killed_while_a_question_waits(desk: Desk) -> None:
    first = desk.begin("run: echo hello")
    asked = wait_for(first, "ApprovalRequested")
    kill(first)
    code, notices, _ = desk.resume()
    assert code == 3
    assert [each["request"] for each in of_kind(notices, "ApprovalRequested")] == [asked["request"]]
    desk.answer("deny", asked["request"])
    assert desk.resume()[0] == 0
    assert [outcome for outcome, _ in desk.ended_well()] == [Outcome.DENIED]


def test_of_two_that_go_on_only_one_does(desk: Desk) -> None:
    fifo = desk.fifo()
    first = desk.begin("run: echo $$ > fifo; cat fifo", "--allow", "bash")
    int(fifo.read_text("utf-8"))
    code, notices, err = desk.resume()
    assert (code, notices, f"is at work in process {first.process.pid} of" in err) == (2, [], True)
    assert desk.resume("--takeover")[0] == 0
    code, _, err = finish(first)  # it need not wait for its tool to see that
    assert (code, "another process went on with it" in err) == (1, True)
    desk.ended_well()


# Told to end


def test_terminated_twice_while_a_tool_runs(desk: Desk) -> None:
    fifo = desk.fifo()
    first = desk.begin("run: echo $$ > fifo; exec sleep 600", "--allow", "bash")
    command = int(fifo.read_text("utf-8"))
    first.process.terminate()
    assert "terminated: open work may end within 10 s" in first.stderr.readline()
    first.process.terminate()
    code, _, err = finish(first)
    assert (code, "turnwheel run --resume s" in err) == (143, True)
    with pytest.raises(ProcessLookupError):
        os.killpg(command, 0)
    assert desk.resume()[0] == 0
    assert [outcome for outcome, _ in desk.ended_well()] == [Outcome.UNKNOWN]


def test_drained_while_a_tool_runs(desk: Desk) -> None:
    fifo, gate = desk.fifo(), desk.fifo("gate")
    prompt = "run: echo one >> ran; echo $$ > fifo; cat gate and run: echo two >> ran"
    first = desk.begin(prompt, "--allow", "bash")
    fifo.read_text("utf-8")
    first.process.terminate()
    assert "terminated: open work may end" in first.stderr.readline()
    gate.write_text("now", "utf-8")
    code, _, err = finish(first)
    assert (code, "the run can be resumed" in err, desk.ran()) == (143, True, "one\n")
    code, _, err = desk.resume()
    assert (code, "handed over: bash echo two >> ran - begins now" in err) == (0, True)
    assert desk.ran() == "one\ntwo\n"
    assert [outcome for outcome, _ in desk.ended_well()] == [Outcome.OK, Outcome.OK]


def test_terminated_when_it_is_about_to_end(desk: Desk) -> None:
    first = desk.begin("hello", model="slow")
    wait_for(first, "TextDelta")
    first.process.terminate()
    code, notices, _ = finish(first)
    assert (code, notices[-1]["type"]) == (0, "RunEnded")
    desk.ended_well()
