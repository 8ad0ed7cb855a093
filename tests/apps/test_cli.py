"""What stories cannot tell of the command line: its tables, its notices, its weight."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click
import httpx
import pytest
from support.patience import PATIENCE

from turnwheel import DoneReason, Settings, SQLiteStore
from turnwheel.apps.cli import main
from turnwheel.apps.cli.commands import turnwheel
from turnwheel.apps.cli.ending_codes import BY_REASON
from turnwheel.apps.cli.event_text import WORDS, told
from turnwheel.apps.cli.exit_codes import MEANINGS, Exit, table
from turnwheel.apps.cli.run_options import RunOptions, model_of
from turnwheel.effects import (
    events,
    notices,
    records,
    requests,
)
from turnwheel.effects.notices import (
    Notice,
    RetryScheduled,
    RunEnded,
    RunStarted,
)
from turnwheel.engine.core.codec import decode
from turnwheel.engine.inspect.replay import line, replayed
from turnwheel.engine.journal import entries
from turnwheel.engine.session.lease import decoded, encoded
from turnwheel.performers.processes import born

pytestmark = pytest.mark.usefixtures("folder")
CLICK = click.Context(turnwheel)
COMMANDS = {name: turnwheel.get_command(CLICK, name) for name in turnwheel.list_commands(CLICK)}
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text("utf-8")
Runs = Callable[..., tuple[int, str, str]]

READS = 'read {"path": "README.md"}'
WRITES = 'write {"path": "out.txt", "content": "x"}'
OK = (WRITES, "says ok")
ENDS: list[tuple[tuple[str, ...], str, Exit]] = [
    (("says done",), "", Exit.ENDED),
    (("401",), "", Exit.FAILED),
    (("cut half",), "", Exit.MAX_TOKENS),
    ((READS,), "--max-turns 2", Exit.MAX_TURNS),
    ((READS,), "--max-tokens 20", Exit.BUDGET),
    ((READS,), "--price 1000,1000 --max-usd 0.02", Exit.BUDGET),
    ((READS,), "--max-seconds 0.000001", Exit.BUDGET),
    ((READS,), "", Exit.LOOP),
    ((WRITES,), "", Exit.RESTING),
    (OK, "--allow write:path=*.txt", Exit.ENDED),
    ((WRITES,), "--allow write:path=*.md", Exit.RESTING),
    (OK, "--yes", Exit.ENDED),
    ((READS,), "--ask r*d --allow read", Exit.RESTING),
    (OK, "--deny *:path=out.txt --yes", Exit.ENDED),
    (OK, "--mode accept_edits", Exit.ENDED),
    (OK, "--mode plan", Exit.ENDED),
    (OK, "--mode dont_ask", Exit.ENDED),
    (OK, "--mode bypass", Exit.ENDED),
    ((WRITES,), "--mode bypass --ask *", Exit.RESTING),
    (("says ok",), "--hook user_prompt_submit=./stop.sh", Exit.BLOCKED),
]


@pytest.mark.parametrize(("answers", "options", "code"), ENDS)
def test_the_exit_code_says_how_the_run_ended_to_people_and_programs(
    answers: tuple[str, ...], options: str, code: Exit, runs: Runs, model: Callable[..., str]
) -> None:
    Path("stop.sh").write_text("#!/bin/sh\nexit 2\n", "utf-8")
    Path("stop.sh").chmod(0o700)
    for more in ([], ["--json"], ["--quiet"]):
        out = runs("run", "--base-url", model(*answers), *options.split(), *more, "go")
        assert out[0] == code, out


def test_help_and_docs_show_every_exit_code_command_and_option(runs: Runs) -> None:
    assert set(BY_REASON) == set(DoneReason)
    assert set(MEANINGS) == set(Exit)
    _, out, _ = runs("run", "--help")
    assert [text for text in table().splitlines() if text not in out or text not in PAGE] == []
    options = {
        option
        for command in COMMANDS.values()
        if command is not None
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert {option for option in options if f"`{option}" not in PAGE} == set()
    assert {name for name in COMMANDS if f"`turnwheel {name}" not in PAGE} == set()


def test_help_in_a_chat_is_the_help_of_the_command(runs: Runs) -> None:
    _, _, err = runs("chat", "--stand-in", given=b"/help\n")
    _, out, _ = runs("chat", "--help")
    assert [text for text in err.splitlines()[1:] if text.strip() not in out] == []


def test_json_is_one_notice_per_line_and_nothing_else(runs: Runs) -> None:
    code, out, err = runs("run", "--json", "--stand-in", "--allow", "write", "Write a report to R.md")
    told = [decode(text.encode(), Notice) for text in out.splitlines()]
    assert (code, err) == (0, "")
    assert {type(notice) for notice in told} <= set(typing.get_args(Notice))
    assert [type(told[0]), type(told[-1])] == [RunStarted, RunEnded]


UNSEEN = "\x7f\x9b31m\u202e\u200b\u2060\ufe0f\ufeff\U000e0041\u2028\u3164"
PRINTS_JSON = """questions s --json | why s 3 --json | replay s --json | bisect s t --json | sessions --json
| runs s --json | usage s --json | settings --json | export s"""


def test_json_has_escapes_for_what_a_terminal_would_not_draw_and_says_the_same(
    runs: Runs, model: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWHEEL_SYSTEM", UNSEEN)
    call = json.dumps({"path": UNSEEN, "content": "\x1b]0;x\x07"}, ensure_ascii=False)
    url, printed = model(f"says {UNSEEN} & write {call}", "says \x7f"), list[str]()
    for session in ("s", "t"):
        ran = ("run", "--json", "--base-url", url, "--session", session, "--title", UNSEEN, UNSEEN)
        printed.append(runs(*ran)[1])
    printed += [runs(*command.split())[1] for command in PRINTS_JSON.split("|")]
    for text in printed:
        drawn = (
            text.replace("\n", "").replace("\ufe0f", "\0").replace("\u3164", "\0")
        )  # printable, says Python
        assert [each for each in drawn if not each.isprintable()] == []
        lines = [text] if text.startswith("{\n") else text.splitlines()
        assert UNSEEN[:11] in "".join([json.dumps(json.loads(line), ensure_ascii=False) for line in lines])


def test_a_program_is_told_until_when_a_wait_is(runs: Runs, model: Callable[..., str]) -> None:
    code, out, _ = runs("run", "--json", "--base-url", model("429 1", "says ok"), "go")
    first, *among, last = [decode(text.encode(), Notice) for text in out.splitlines()]
    (waits,) = [notice for notice in among if isinstance(notice, RetryScheduled)]
    assert isinstance(first, RunStarted)
    assert isinstance(last, RunEnded)
    assert code == 0
    assert first.at < waits.due < last.at


def test_lines_come_at_once_and_a_reader_may_leave() -> None:
    command = [sys.executable, "-m", "turnwheel.apps.cli", "run", "--json", "--session", "s"]
    command += ["--model", "openai:stand-in-slow", "hello"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["type"] == "RunStarted"
        assert process.poll() is None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == Exit.BROKEN_PIPE


def test_with_turnwheel_debug_an_error_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWHEEL_DEBUG", "1")
    with pytest.raises(LookupError):
        main(["run", "--resume", "none", "hi"])


def hide(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have imports of the package *missing* fail, also where it was imported before."""
    for name in [each for each in sys.modules if each.startswith(("turnwheel.apps.", f"{missing}."))]:
        if name != "turnwheel.apps.cli":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_how_to_install_it(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(missing, monkeypatch)
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"the command line needs '{missing}': pip install 'turnwheel[cli]'\n")


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("serve", "starlette"),
        ("serve", "uvicorn"),
        ("serve", "prometheus_client"),
        ("acp", "acp"),
    ],
)
def test_whichever_package_of_an_extra_is_missing_the_extra_is_named(
    command: str, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(missing, monkeypatch)
    extra = {"serve": "server"}.get(command, command)
    assert main([command, "--stand-in"]) == 2
    expected = f"turnwheel: turnwheel {command} needs '{missing}': pip install 'turnwheel[{extra}]'\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.usefixtures("folder")
def test_pages_of_a_named_origin_may_call_what_serves() -> None:
    page = "https://app.example"
    command = [sys.executable, "-m", "turnwheel.apps.cli", "serve", "--stand-in", "--origin", page]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"{process.stdout.readline().split()[-1]}/api/sessions"
            posts = [
                httpx.post(url, json={"id": "s"}, headers={"Origin": origin}, timeout=PATIENCE)
                for origin in (page, "https://other.example")
            ]
            assert [post.status_code for post in posts] == [201, 403]
            assert "--origin of turnwheel serve" in posts[1].json()["detail"]
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        (["OPENAI_API_KEY"], "openai:gpt-5"),
        (["ANTHROPIC_API_KEY"], "anthropic:claude-sonnet-4-5"),
        (["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], "openai:gpt-5"),
    ],
)
def test_with_a_key_its_model_is_asked(keys: list[str], asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in keys:
        monkeypatch.setenv(name, "k")
    assert model_of(RunOptions(prompt="hi", store=Path("s")), None) == asked


def test_what_is_shown_of_settings_is_a_file_from_which_the_same_follow(runs: Runs) -> None:
    Path("our.toml").write_text(
        """
model = { name = "openai:x", window = 5000, price = { input = 0.10, output = 2 } }
tools = ["read"]
system = "from the file"
instructions = ["NOTES.md"]
rules = ["deny ls", "ask read"]
preset = "confirmed"
loops = false
models = ["openai:other"]
fallback = "openai:stand-in-bash"
limits = { turns = 3, usd = "none" }
[agents.helper]
description = "helps"
[[hooks]]
at = "pre_tool_use"
command = ["true", "a b"]
where = { "odd key" = "src/*" }
timeout = "none"
""",
        "utf-8",
    )
    code, out, err = runs("settings", "--settings", "our.toml")
    assert (code, err) == (0, "")
    Path("shown.toml").write_text(out, "utf-8")
    again = runs("settings", "--settings", "shown.toml")[1]
    assert re.sub("  #.*", "", again) == re.sub("  #.*", "", out)
    shown, given = Settings.load("shown.toml", {}), Settings.load("our.toml", {})
    same = {each.name for each in attrs.fields(Settings)} - {"store", "sources", "debug"}
    assert {name: getattr(shown, name) for name in same} == {name: getattr(given, name) for name in same}


def test_replay_as_lines_of_json_is_what_python_has(runs: Runs) -> None:
    runs("run", "--stand-in", "--session", "s", "hello")

    async def journal() -> list[bytes]:
        store = SQLiteStore(os.environ["TURNWHEEL_STORE"])
        loaded = list(await store.load("s"))
        await store.close()
        return loaded

    code, out, _ = runs("replay", "s", "--json")
    assert code == 0
    assert [text.encode() for text in out.splitlines()] == [
        line(step) for step in replayed(asyncio.run(journal()), "s")
    ]


def test_a_store_at_a_url_of_another_kind_is_refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, told = runs("sessions", "--store", "sqlite:///a.db")
    assert (code, "write 'a.db'" in told) == (Exit.USAGE, True)
    monkeypatch.setenv("TURNWHEEL_STORE", "redis://me:secret@host")
    code, _, told = runs("sessions")
    assert (code, "'redis://me:(hidden)@host' is neither" in told) == (Exit.USAGE, True)


def test_an_id_with_controls_of_an_older_session_is_shown_as_one_word(runs: Runs) -> None:
    name, shown = "a\n\tdeleted b\x1b[2J", r"a\x0a\x09deleted b\x1b[2J"

    async def rename() -> None:
        store = SQLiteStore(os.environ["TURNWHEEL_STORE"])
        await store.append(name, 0, await store.load("s"))
        await store.close()

    runs("run", "--stand-in", "--session", "s", "hello")
    asyncio.run(rename())
    for command in (
        ("sessions",),
        ("usage", name),
        ("export", "--scenario", name),
        ("delete", "--yes", name),
    ):
        code, written, _ = runs(*command)
        assert code == 0
        assert [line for line in written.splitlines() if shown in line], command
        assert "\x1b" not in written
        assert "\tdeleted" not in written
    code, _, told = runs("run", "--stand-in", "--session", name, "hello")
    assert code == Exit.USAGE
    assert "must not have control characters" in told
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("picture", "mark"), [("path", "traced"), ("sequence", ">person<"), ("calls", "bar model")]
)
def test_replay_draws_a_session(runs: Runs, folder: Path, picture: str, mark: str) -> None:
    runs("run", "--stand-in", "--session", "s", "hello")
    code, out, _ = runs("replay", "s", "--svg", "s.svg", "--picture", picture)
    assert out == "wrote a picture of session s to s.svg\n"
    assert runs("replay", "s", "--svg", "-", "--picture", picture)[1].endswith("</svg>\n")
    drawn = (folder / "s.svg").read_text("utf-8")
    assert code == 0
    assert drawn.startswith("<svg")
    assert mark in drawn
    assert runs("replay", "s", "--svg", "s.svg", "--json")[0] == Exit.USAGE


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (
            "Unheard",
            {"at": 1.0, "what": "it", "how": {"type": "Well"}, "all": [1, 2]},
            "what=it how=Well all=2",
        ),
        ("ToolFinished", {"said": "another version"}, "said=another version"),
        ("ToolFinished", {"content": "no", "outcome": "error"}, "error: no"),
        ("HookAnswered", {"request": "r-1"}, ""),
        (
            "HookAnswered",
            {"said": [{"name": "a"}, {"name": "b", "answer": {"verdict": "deny"}}]},
            "a, b: deny",
        ),
        ("HookAnswered", {"said": [{"name": "a", "fault": "it broke"}]}, "a: it broke"),
        ("CallModel", {"model": "m", "purpose": "summary", "attempt": 2}, "m for a summary try 2"),
        ("Forked", {"session": "s", "run": "r2"}, "from session s, goes on as run r2"),
        ("Branched", {"run": ""}, "to the beginning"),
        ("HandedOver", {"at": 1.0, "unbegun": ["r-7", "r-8"]}, "unbegun=2"),
        ("ApprovalGiven", {"request": "r-7", "decision": {"type": "ApproveAlways"}}, "#7 yes, always"),
        ("ApprovalGiven", {"request": "r-7", "decision": {"type": "Postpone"}}, "#7 Postpone"),
    ],
)
def test_what_a_step_says_is_short_also_where_another_version_wrote_it(
    kind: str, value: dict[str, Any], words: str
) -> None:
    assert told({"type": kind, **value}) == (kind, words)
    assert re.fullmatch(r"until \d\d:\d\d:\d\d", told({"type": "SetTimer", "id": "r-1", "due": 43_200.0})[1])


def test_what_is_told_in_words_of_its_own_is_there() -> None:
    modules = (notices, records, requests, events, entries)
    there = {kind.__name__ for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    assert set(WORDS) - there == set()


def test_a_session_at_work_elsewhere_is_neither_continued_nor_deleted(
    runs: Runs, model: Callable[..., str]
) -> None:
    url = model(WRITES)
    assert runs("run", "--session", "s", "--base-url", url, "go")[0] == Exit.RESTING

    async def leased() -> None:
        other = os.getppid()  # a process that lives while the test does
        record = decoded(encoded("", "t", 0.0, 3600.0, ""))
        assert record is not None
        record = attrs.evolve(record, pid=other, born=born(other))
        store = SQLiteStore(os.environ["TURNWHEEL_STORE"])
        await store.lease("s", None, json.dumps(attrs.asdict(record)).encode())
        await store.close()

    asyncio.run(leased())
    at_work = f"session 's' is at work in process {os.getppid()} of "
    code, _, told = runs("run", "--resume", "s", "--base-url", url, "hi")
    assert (code, at_work in told) == (Exit.USAGE, True)
    assert told.rstrip().endswith("turnwheel send reaches it; --takeover takes it over")
    code, _, told = runs("delete", "--yes", "s")
    assert (code, at_work in told) == (Exit.USAGE, True)
    assert told.rstrip().endswith("interrupt it first, or pass --unfinished to delete it all the same")
    assert runs("delete", "--yes", "--unfinished", "s")[:2] == (0, "deleted s\n")
