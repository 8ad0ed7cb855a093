"""A child's questions and calls at the command line: through its parent, by ids or numbers on screen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel import (
    Agent,
    ChildSpec,
    Session,
    SQLiteStore,
    tool,
)
from turnwheel.apps.cli import main
from turnwheel.effects.requests import AskApproval, CallModel
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
)

Outputs = tuple[int, str, str]
Runs = Callable[..., Outputs]

SCRIPT = (
    calls(("look", {}), ("run_agent", {"agent": "payer", "prompt": "pay"})),
    calls(("look", {}), ("pay", {"amount": 5})),
)


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the sessions of a test are, also for the command line."""
    monkeypatch.setenv("TURNWHEEL_STORE", str(tmp_path / "s.db"))
    return tmp_path / "s.db"


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str], store: Path) -> Runs:  # noqa: ARG001  # the store is to be named
    """The command line in this process: the exit code, and what it wrote."""

    def run(*arguments: str) -> Outputs:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def session(store: Path, *replies: Reply, act: Callable[[Session], Any]) -> Any:
    """What *act* makes of the session ``s``, whose model says *replies*, in a process that then ends."""

    async def whole() -> Any:
        kept = SQLiteStore(store)
        agent = Agent(
            model="scripted",
            tools=[look, pay],
            children=[ChildSpec(name="payer", tools=("look", "pay"))],
            store=kept,
            performers={CallModel: ScriptedModel(*replies)},
        )
        async with agent.session("s") as made:
            found = await act(made)
        await kept.close()
        return found

    return asyncio.run(whole())


@pytest.fixture
def question(store: Path) -> AskApproval:
    """The question of a child on which a run rests."""
    (asked,) = session(store, *SCRIPT, act=lambda made: made.run("go")).waiting
    assert isinstance(asked, AskApproval)
    return asked


def ends(store: Path) -> list[str]:
    """How the run goes on: what came of each call, the child's last."""

    async def go_on(made: Session) -> list[str]:
        await made.resume()
        results = [result for message in made.history for result in message.results]
        child = await made.child(results[1].call).load()
        theirs = [result.content for message in child.history for result in message.results]
        return [*theirs, results[1].content]

    found: list[str] = session(store, says("it is done"), says("done"), act=go_on)
    return found


def test_a_childs_question_is_shown_with_its_name(runs: Runs, question: AskApproval) -> None:
    """Among those of its parent, which itself asks nothing here; to programs with all there is."""
    name = "-".join(question.call.split("-")[1:])
    _, shown, _ = runs("questions", "s")
    assert shown.startswith(f"? pay  #{name}\n    amount: 5\n  asked by payer; ")
    _, lines, _ = runs("questions", "s", "--json")
    assert json.loads(lines) == {**attrs.asdict(question), "agent": "payer"}
    assert runs("questions", f"s.{question.call.rpartition('-')[0]}", "--json")[1] == lines


@pytest.mark.parametrize("through", ["parent", "child"])
@pytest.mark.parametrize("by", ["id", "call", "number", "all"])
def test_a_childs_question_is_answered(
    runs: Runs, store: Path, question: AskApproval, through: str, by: str
) -> None:
    """Through its parent or by its own session; then nothing is asked any more, and the run goes on."""
    parent, _, last = question.call.rpartition("-")
    first = parent.rpartition("-")[2]
    name = {"id": question.id, "call": question.call, "number": f"#{first}-{last}", "all": "all"}[by]
    where = "s" if through == "parent" else f"s.{parent}"
    assert runs("approve", where, name) == (0, f"approved: #{first}-{last} pay amount=5\n", "")
    assert runs("questions", "s") == (0, "no question is open\n", "")
    assert ends(store) == ["seen", "paid 5", "it is done"]


def test_a_childs_question_is_denied(runs: Runs, store: Path, question: AskApproval) -> None:
    """With the words that its model reads."""
    assert runs("deny", "s", question.call, "-m", "too much")[0] == 0
    assert ends(store) == ["seen", "too much", "it is done"]


def test_an_answer_that_does_not_fit_a_childs_tool_is_refused(runs: Runs, question: AskApproval) -> None:
    """As for its parent's own."""
    code, _, err = runs("approve", "s", question.call, "--edit", '{"amount": "a lot"}')
    assert code == 2
    assert "'pay' cannot have these arguments" in err
    code, _, err = runs("approve", "s", "9-9")
    assert code == 2
    assert "no open question '9-9'; open: " in err


def test_why_a_childs_call_ran_is_told_through_its_parent(
    runs: Runs, store: Path, question: AskApproval
) -> None:
    """By its id or its number on screen; a number that its parent has, too, is the parent's."""
    runs("approve", "s", "all")
    ends(store)
    parent, _, last = question.call.rpartition("-")
    first = parent.rpartition("-")[2]
    told = {runs("why", "s", name) for name in (question.call, f"{first}-{last}", f"#{first}-{last}")}
    told.add(runs("why", f"s.{parent}", last))
    ((code, out, _),) = told
    assert (code, out.splitlines()[0]) == (0, f"pay  {question.call}, session s.{parent}")
    assert "answered" in out
    assert runs("why", "s", first)[1].startswith(f"run_agent  {parent}, session s\n")
    assert runs("why", "s", "2")[1].startswith("look  ")
    code, _, err = runs("why", "s", "8-8")
    assert code == 2
    assert "no call '8-8' in session 's'" in err


def test_a_child_is_steered_by_its_session(runs: Runs, store: Path, question: AskApproval) -> None:
    """While it rests, too; over, it takes nothing any more."""
    child = f"s.{question.call.rpartition('-')[0]}"
    assert runs("steer", child, "leave it")[0] == 0
    assert ends(store)[-1] == "it is done"
    code, _, err = runs("steer", child, "and now?")
    assert code == 2
    assert "has ended; speak to its parent" in err
