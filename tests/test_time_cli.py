"""The commands that go through what a session did, fork it at a step, and find where two part."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwheel import (
    Agent,
    ChildSpec,
    Price,
    SQLiteStore,
    ToolContext,
    tool,
)
from turnwheel.apps.cli import main
from turnwheel.apps.cli.event_text import WORDS, told
from turnwheel.apps.cli.exit_codes import Exit
from turnwheel.effects.config import ModelSpec
from turnwheel.effects.requests import CallModel
from turnwheel.engine.codec import STORED_NAMES
from turnwheel.engine.inspect.replay import line, replayed
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
)

Outputs = tuple[int, str, str]
Runs = Callable[..., Outputs]


@tool(side_effect="read_only")
def look(at: str = "it") -> str:
    """Look."""
    return f"saw {at}"


@tool
def pay(amount: int, context: ToolContext[list[int]]) -> str:
    """Pay."""
    context.deps.append(amount)
    return f"paid {amount}"


NOON = 43_200.0
WHEN = time.strftime("%H:%M:%S", time.localtime(NOON))
"""When everything happens, and how that is shown."""

LOOKS = calls(("look", {"at": "all"}), text="Let me see.")
PAYS_5 = calls(("pay", {"amount": 5}))
SAID = says("It is paid.")
PAYS = (LOOKS, PAYS_5, SAID)


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


def work(store: Path, *replies: Reply, name: str = "s", decide: bool = True, **settings: Any) -> list[int]:
    """
    Go on with the session *name* in a process that then ends, and say yes where it asks; what was paid.

    Its model gives *replies*; where the session is not there, it is asked to pay.
    """

    async def act() -> list[int]:
        paid: list[int] = []
        kept = SQLiteStore(store)
        given: dict[str, Any] = {
            "model": ModelSpec(name="scripted", price=Price(input=1, output=1)),
            **settings,
        }
        agent = Agent(
            **given,
            performers={CallModel: ScriptedModel(*replies)},
            tools=[look, pay],
            store=kept,
            clock=AutoClock(NOON),
            deps=paid,
        )
        async with agent.session(name) as session:
            result = await (session.resume() if session.unfinished else session.run("pay it"))
            while decide and result.waiting:
                for question in result.waiting:
                    await session.approve(question.id, by="Ann")
                result = await session.resume()
        await kept.close()
        return paid

    return asyncio.run(act())


def kept(store: Path, name: str = "s") -> list[bytes]:
    """The journal of the session *name*."""

    async def read() -> list[bytes]:
        opened = SQLiteStore(store)
        entries = list(await opened.load(name))
        await opened.close()
        return entries

    return asyncio.run(read())


# replay


def test_replay_shows_each_step_with_its_state_and_what_was_asked_of_the_world(
    runs: Runs, store: Path
) -> None:
    """A line for a step, and below it what it asked for; a pipe gets no headings."""
    work(store, *PAYS)
    code, out, err = runs("replay", "s")
    run = re.findall("RunOpened ([0-9a-f]{12})", out)[0]
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"   0  {WHEN}                      Posted UserSent pay it",
        f"   1  {WHEN}  streaming           RunOpened {run}, scripted",
        "                  ⎿ CallModel scripted",
        f"   2  {WHEN}  streaming           Titled pay it",
        f"   3  {WHEN}  streaming           ModelStreamed Let me see. look at=all",
        f"   4  {WHEN}  executing           ModelFinished tool_use, 15 tokens",
        "                  ⎿ RunTool look at=all #2",
        f"   5  {WHEN}  streaming           ToolFinished saw all",
        "                  ⎿ CallModel scripted",
        f"   6  {WHEN}  streaming           ModelStreamed pay amount=5",
        f"   7  {WHEN}  confirming          ModelFinished tool_use, 15 tokens",
        "                  ⎿ AskApproval pay amount=5 #5",
        f"   8  {WHEN}  confirming          Posted ApprovalGiven #6 yes (by Ann)",
        f"   9  {WHEN}  confirming          TakenOver",
        f"  10  {WHEN}  executing           ApprovalGiven #6 yes (by Ann)",
        "                  ⎿ RunTool pay amount=5 #5",
        f"  11  {WHEN}  streaming           ToolFinished paid 5",
        "                  ⎿ CallModel scripted",
        f"  12  {WHEN}  streaming           ModelStreamed It is paid.",
        f"  13  {WHEN}  done                ModelFinished end_turn, 15 tokens",
        "                  ⎿ RunEnded end_turn",
    ]


def test_replay_shows_all_effects_or_none_of_some_steps(runs: Runs, store: Path) -> None:
    """Records and notices too, where somebody wants them."""
    work(store, *PAYS)
    _, out, _ = runs("replay", "s", "--from", "4", "--to", "5", "--quiet")
    assert [text.split()[0] for text in out.splitlines()] == ["4", "5"]
    _, out, _ = runs("replay", "s", "--from", "4", "--to", "4", "--effects")
    names = [text.split()[1] for text in out.splitlines()[1:]]
    assert names[:3] == ["AppendMessage", "AddUsage", "TurnEnded"]
    assert {"CallJudged", "RunTool", "ToolStarted", "UseIds"} < set(names)
    assert "AppendMessage assistant: Let me see. look at=all #2" in out
    code, _, err = runs("replay", "s", "--effects", "--quiet")
    assert (code, "give one of them" in err) == (Exit.USAGE, True)


def test_replay_as_lines_of_json_is_what_python_has(runs: Runs, store: Path) -> None:
    """Each line is a step, whole."""
    work(store, *PAYS)
    code, out, _ = runs("replay", "s", "--json")
    assert code == 0
    assert [text.encode() for text in out.splitlines()] == [line(step) for step in replayed(kept(store), "s")]


def test_replay_of_what_is_not_there(runs: Runs) -> None:
    """It is said, and nothing is made."""
    assert runs("replay", "s") == (Exit.USAGE, "", "turnwheel: no session 's' in this store\n")


def test_replay_goes_as_far_as_a_journal_makes_sense(runs: Runs, store: Path) -> None:
    """Then it says which entry does not, and the shell is told."""
    work(store, *PAYS)
    entries = kept(store)

    async def damage() -> None:
        opened = SQLiteStore(store)
        await opened.append("t", 0, [*entries[:5], entries[7]])
        await opened.close()

    asyncio.run(damage())
    code, out, err = runs("replay", "t", "-q")
    assert code == Exit.FAILED
    assert [text.split()[0] for text in out.splitlines()] == ["0", "1", "2", "3", "4"]
    assert err.startswith(
        "turnwheel: entry 5 of session 't': ModelFinished leads to executing, but the journal says confirming"
    )


def test_a_child_is_named_with_its_session(runs: Runs, store: Path) -> None:
    """So that one can go on there."""
    sends = calls(("run_agent", {"agent": "scout", "prompt": "look around"}))
    scout = ChildSpec(name="scout", tools=("look",))
    work(store, sends, PAYS[0], says("Seen."), says("Done."), children=[scout])
    _, out, _ = runs("replay", "s")
    (child,) = re.findall(r"RunAgent in session (\S+): scout #2: look around", out)
    code, out, _ = runs("replay", child, "-q")
    assert (code, out.splitlines()[-1].split()[2:4]) == (0, ["done", "ModelFinished"])


DENIED, ALWAYS = {"verdict": "deny"}, {"type": "ApproveAlways"}


@pytest.mark.parametrize(
    ("value", "says_what"),
    [
        (
            {"type": "Unheard", "at": 1.0, "what": "it", "how": {"type": "Well"}, "all": [1, 2]},
            "what=it how=Well all=2",
        ),
        ({"type": "ToolFinished", "said": "another version"}, "said=another version"),
        ({"type": "ToolFinished", "content": "no", "outcome": "error"}, "error: no"),
        ({"type": "HookAnswered", "request": "r-1"}, ""),
        (
            {"type": "HookAnswered", "said": [{"name": "a"}, {"name": "b", "answer": {"verdict": "deny"}}]},
            "a, b: deny",
        ),
        ({"type": "HookAnswered", "said": [{"name": "a", "fault": "it broke"}]}, "a: it broke"),
        ({"type": "SetTimer", "id": "r-1", "due": NOON}, f"until {WHEN}"),
        ({"type": "CallModel", "model": "m", "purpose": "summary", "attempt": 2}, "m for a summary try 2"),
        ({"type": "Forked", "session": "s", "run": "r2"}, "from session s, goes on as run r2"),
        ({"type": "Branched", "run": ""}, "to the beginning"),
        ({"type": "HandedOver", "at": 1.0, "unbegun": ["r-7", "r-8"]}, "unbegun=2"),
        (
            {"type": "ApprovalGiven", "request": "r-7", "decision": {"type": "ApproveAlways"}},
            "#7 yes, always",
        ),
    ],
)
def test_what_a_step_says_is_short_also_where_it_is_not_known_here(
    value: dict[str, Any], says_what: str
) -> None:
    """Another version may have written it; what is known is told in words."""
    assert told(value) == (value["type"], says_what)


def test_what_is_told_in_words_of_its_own_is_there() -> None:
    """No word is kept for an entry, an event or an effect that is gone."""
    from turnwheel.effects import (
        events,
        notices,
        records,
        requests,
    )
    from turnwheel.engine.journal import entries  # noqa: PLC0415  # as above

    there = {name for module in (notices, records, requests, events, entries) for name in vars(module)}
    there |= set(STORED_NAMES.values())
    assert set(WORDS) - there == set()


# fork --at


def test_a_fork_at_a_step_goes_on_otherwise(runs: Runs, store: Path) -> None:
    """Denied where it was allowed: the command to go on with is told, and nothing is paid twice."""
    assert work(store, *PAYS) == [5]
    code, out, _ = runs("fork", "s", "t", "--at", "10", "--deny", "-m", "not now")
    assert (code, out) == (0, "forked s at step 10 into t\ngo on with: turnwheel run --resume t\n")
    assert work(store, says("Then not."), name="t") == []
    _, out, _ = runs("replay", "t", "--from", "10", "-q")
    assert [re.sub(r"run \w+", "run R", text[36:]) for text in out.splitlines()[:4]] == [
        "Forked from session s, goes on as run R",
        "ApprovalGiven #6 no, not now (by a fork at step 10)",
        "HandedOver unbegun=1",
        "TakenOver",
    ]
    assert "Then not." in out


@pytest.mark.parametrize(
    ("step", "options", "paid", "told_then"),
    [
        (10, ("--approve",), [5], "paid 5"),
        (8, ("--approve", "--edit", '{"amount": 1}'), [1], "paid 1"),
        (11, ("--answer", "nothing was paid"), [], "nothing was paid"),
        (7, ("--mode", "bypass"), [5], "paid 5"),
        (13, ("--model", "another"), [5], "another"),
        (13, ("--answer", "So be it."), None, "So be it."),
    ],
)
def test_what_happens_in_place_of_a_step(
    runs: Runs, store: Path, step: int, options: tuple[str, ...], paid: list[int] | None, told_then: str
) -> None:
    """Another decision, result, mode, model or answer."""
    work(store, *PAYS)
    code, out, err = runs("fork", "s", "t", "--at", str(step), *options)
    assert (code, err) == (0, "")
    assert ("go on with" in out) == (paid is not None)
    if paid is not None:
        asked = {7: PAYS[1:], 13: (PAYS_5, SAID)}.get(step, PAYS[2:])
        assert work(store, *asked, name="t") == paid
    assert told_then in runs("replay", "t", "--from", str(step), "--effects")[1]


def test_a_prompt_takes_the_place_of_another(
    runs: Runs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come from stdin; the run that follows answers it."""
    for reply in ("One.", "Two."):
        work(store, says(reply))
    events = [type(step.event).__name__ for step in replayed(kept(store), "s")]
    second = events.index("UserSent", events.index("UserSent") + 1)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"say three")))
    code, out, _ = runs("fork", "s", "t", "--at", str(second), "--answer", "-")
    assert (code, out) == (0, f"forked s at step {second} into t\n")
    work(store, says("Three."), name="t")
    assert "say three" in runs("replay", "t")[1]


@pytest.mark.parametrize(
    ("arguments", "says_what"),
    [
        (("--deny",), "--deny takes the place of a step; say of which with --at"),
        (("--at", "8", "--deny", "--approve"), "give one of --approve and --deny"),
        (("--at", "8", "--message", "no"), "--message says why something is denied; give --deny, too"),
        (("--at", "8", "--edit", "{}"), "--edit changes what is allowed; give --approve, too"),
        (("--at", "3", "--approve"), "needs an open question at step 3; open: none"),
        (("--at", "99"), "cannot be forked at step 99: it has 14 steps, the first is 0"),
        (("--at", "-1"), "-1 is not in the range x>=0"),
    ],
)
def test_a_fork_that_cannot_be(runs: Runs, store: Path, arguments: tuple[str, ...], says_what: str) -> None:
    """One line says why, and there is no half of a session."""
    work(store, *PAYS)
    code, out, err = runs("fork", "s", "t", *arguments)
    assert (code, out) == (Exit.USAGE, "")
    assert says_what in err
    assert kept(store, "t") == []


def test_a_fork_in_another_store_says_so(runs: Runs, tmp_path: Path) -> None:
    """The command that goes on with it finds it."""
    other = tmp_path / "other.db"
    work(other, *PAYS)
    _, out, _ = runs("fork", "s", "t", "--at", "8", "--store", str(other))
    assert out.splitlines()[1] == f"go on with: turnwheel run --resume t --store {other}"


# bisect


def test_bisect_shows_where_two_part_and_tells_the_shell(runs: Runs, store: Path) -> None:
    """What they have in common, then the step on either side, with its state and all effects."""
    work(store, *PAYS)
    runs("fork", "s", "t", "--at", "10", "--deny")
    code, out, err = runs("bisect", "s", "t")
    assert (code, err) == (Exit.PARTS, "")
    lines = out.splitlines()
    assert lines[:2] == [
        "the same up to step 7",
        f"   7  {WHEN}  confirming          ModelFinished tool_use, 15 tokens",
    ]
    assert lines[2] == "they part in event.decision.type"
    assert lines[3:5] == [
        "s, at step 10",
        f"  10  {WHEN}  executing           ApprovalGiven #6 yes (by Ann)",
    ]
    assert "                  ⎿ RunTool pay amount=5 #5" in lines
    there = lines.index("t, at step 11")
    assert lines[there + 1].startswith(f"  11  {WHEN}  streaming           ApprovalGiven #6 no (by a fork at")
    assert "                  ⎿ CallModel scripted" in lines[there:]


def test_bisect_of_two_that_do_not_part(runs: Runs, store: Path) -> None:
    """Whatever their ids are."""
    for name in ("s", "t"):
        work(store, *PAYS, name=name)
    assert runs("bisect", "s", "t") == (Exit.ENDED, "they do not part\n", "")
    assert runs("bisect", "s") == (Exit.ENDED, "they do not part\n", "")
    assert runs("bisect", "s", "t", "--json") == (Exit.ENDED, "null\n", "")


def test_bisect_where_one_ended(runs: Runs, store: Path) -> None:
    """The other goes on."""
    work(store, *PAYS)
    runs("fork", "s", "t", "--at", "5")
    code, out, _ = runs("bisect", "t", "s")
    assert code == Exit.PARTS
    assert out.splitlines()[2:5] == [
        "they part",
        "t ends here",
        "s, at step 5",
    ]


def test_bisect_as_json(runs: Runs, store: Path) -> None:
    """Both steps as replay writes them."""
    work(store, *PAYS)
    runs("fork", "s", "t", "--at", "10", "--deny")
    code, out, _ = runs("bisect", "s", "t", "--json")
    found = json.loads(out)
    steps = [json.loads(text) for text in runs("replay", "s", "--json")[1].splitlines()]
    assert (code, found["one"], found["last"]) == (Exit.PARTS, steps[10], steps[7])
    assert (found["other"]["number"], found["where"]) == (11, ["event.decision.type"])


def test_who_asks_for_steps_that_are_not_there_is_told(runs: Runs, store: Path) -> None:
    """Silence would be taken for a session in which nothing happened."""
    work(store, *PAYS)
    code, _, err = runs("replay", "s", "--from", "99")
    assert code == Exit.USAGE
    assert re.fullmatch(r"turnwheel: session 's' has no step 99: its last one is \d+\n", err)
    code, _, err = runs("replay", "s", "--from", "5", "--to", "3")
    assert (code, "no step is from 5 on and up to 3" in err) == (Exit.USAGE, True)


def test_bisect_against_what_another_version_wrote(runs: Runs, store: Path, tmp_path: Path) -> None:
    """The same is no parting; where it made something else, both are shown."""
    work(store, *PAYS)
    told_there = runs("replay", "s", "--json")[1]
    file = tmp_path / "other.jsonl"
    file.write_text(told_there, "utf-8")
    steps = told_there.count("\n")
    said = f"they do not part in any of the {steps} steps of {file}\n"
    assert runs("bisect", "s", "--against", str(file))[:2] == (Exit.ENDED, said)
    file.write_text(told_there.replace('"verdict":"ask"', '"verdict":"deny"'), "utf-8")
    code, out, _ = runs("bisect", "s", "--against", str(file))
    assert code == Exit.PARTS
    assert f"{file}, at step 7" in out
    assert "this turnwheel, at step 7" in out
    assert "they part in effects[4].verdict" in out
    file.write_text("", "utf-8")
    code, _, err = runs("bisect", "s", "--against", str(file))
    assert (code, "there is no step to compare with" in err) == (Exit.FAILED, True)
    file.write_text("{}", "utf-8")
    code, _, err = runs("bisect", "s", "--against", str(file))
    assert (code, err) == (Exit.FAILED, "turnwheel: line 1 is no step as replay --json writes it: b'{}'\n")
    code, _, err = runs("bisect", "s", "t", "--against", str(file))
    assert (code, "give one of them" in err) == (Exit.USAGE, True)


def test_bisect_where_this_version_leads_elsewhere(runs: Runs, store: Path) -> None:
    """Than is written: that is told, and what it makes of it here."""
    work(store, *PAYS)
    changed = [data.replace(b'"label":"confirming"', b'"label":"executing"') for data in kept(store)]

    async def write() -> None:
        opened = SQLiteStore(store)
        await opened.append("t", 0, changed)
        await opened.close()

    asyncio.run(write())
    code, out, _ = runs("bisect", "t")
    assert code == Exit.PARTS
    lines = out.splitlines()
    assert lines[2:5] == [
        "they part in label",
        "who ran it, at step 7",
        f"   7  {WHEN}  executing           ModelFinished tool_use, 15 tokens",
    ]
    assert lines[5:7] == [
        "this turnwheel, at step 7",
        f"   7  {WHEN}  confirming          ModelFinished tool_use, 15 tokens",
    ]
