"""The parts of the command line, each on its own: values, keys, lines, questions, trees."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import select
import shlex
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, final

import attrs
import pytest
from rich.cells import cell_len

from turnwheel import Approve, ApproveAlways, Config, Deny, ModelSpec, Policy, Settings
from turnwheel.apps.chat.call_names import CallNames
from turnwheel.apps.chat.commands import ParsedLine, PromptLine, parse_line
from turnwheel.apps.chat.questions import Questions, effective_decision
from turnwheel.apps.cli.build_settings import settings_for
from turnwheel.apps.cli.call_report import report_lines
from turnwheel.apps.cli.option_types import hook, priced_model, resolve_question, rule, short, span, thinking
from turnwheel.apps.cli.run_options import RunOptions
from turnwheel.apps.cli.stores import open_store
from turnwheel.apps.cli.tables.run_table import branches, resolve_run as meant_run
from turnwheel.apps.cli.tables.session_table import age, family_order
from turnwheel.apps.terminal.approval_card import Question, argument_rows, card
from turnwheel.apps.terminal.call_summary import duration, essence, outcome_summary
from turnwheel.apps.terminal.keyboard import Keyboard
from turnwheel.apps.terminal.notice_lines import decision_text
from turnwheel.apps.terminal.outcome import show_resting
from turnwheel.apps.terminal.sanitize import clean, first_lines, one_line
from turnwheel.apps.terminal.screen import Screen
from turnwheel.apps.terminal.spend_format import money
from turnwheel.effects.config import AutoAllow, Sandbox
from turnwheel.effects.errors import ConfigError, UnknownRequest, UnknownRun
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import ApprovalRequested
from turnwheel.effects.permissions import Verdict
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.codec import encode
from turnwheel.engine.inspect.explain import Explanation, Moment
from turnwheel.engine.inspect.listing import Listed
from turnwheel.engine.inspect.run_tree import RunInfo
from turnwheel.engine.journal.summary import SessionSummary
from turnwheel.states.rules.permission import RUN_AGAIN


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bill(cost: str, tokens: int, unpriced: int) -> str:
    return money(Spent(usage=Usage(input=tokens), cost=Decimal(cost), unpriced=unpriced))


def before(tool: str, *, columns: int = 0, whole: bool = False, **arguments: object) -> list[str]:
    """The card of a question: in this folder, called HERE; or with so many *columns* in the root."""
    Path("a.txt").write_text("one\ntwo\n-- three\nfour\n", "utf-8")
    if not Path("link").is_symlink():
        Path("link").symlink_to("/etc")
    told = Question(request="r-2", call="r-1", tool=tool, arguments=json.dumps(arguments), why="tool: it")
    cwd = Path("/" if columns else ".")
    rows = [row.plain for row in card(told, cwd, columns or 200, whole=whole, more="v shows all")]
    texts = [row for row in rows if not row.startswith("    ... ")]
    assert [row for row in texts if cell_len(row) > (columns or 200) or not row.isprintable()] == []
    return [row.replace(str(Path.cwd()), "HERE") for row in rows]


def means(text: str) -> ParsedLine:
    assert parse_line(text, asked=True) == parse_line(text, asked=False)
    return parse_line(text, asked=True)


def answers(text: str) -> ParsedLine:
    """What *text* means where a question is open; else it is said."""
    if text not in {"y", "n"}:
        assert parse_line(text, asked=False) == PromptLine(text)
    return parse_line(text, asked=True)


NAMES = (
    "rule hook priced_model thinking span meant_question short bill clean one_line first_lines essence gist "
    "before age took decided means answers Verdict Outcome Approve ApproveAlways Deny"
)
PARTS: list[Callable[..., object]] = [
    *(rule, hook, priced_model, thinking, span, resolve_question, short, bill, clean, one_line, first_lines),
    *(essence, outcome_summary, before, age, duration, decision_text, means, answers),
    *(Verdict, Outcome, Approve, ApproveAlways, Deny),
]
FILE = Path(__file__).parent / "parts.txt"


def test_a_part_gives_what_is_written() -> None:
    lines, told = FILE.read_text("utf-8").split("\n"), list[str]()
    for above, text in pairwise(["", *lines]):
        told += [] if above.startswith(">>> ") else [text]  # an outcome is put in place of the one before
        if text.startswith(">>> "):
            given = dict(zip(NAMES.split(), PARTS, strict=True))
            told.append(repr(eval(text[4:], {**given})))  # noqa: S307  # the file is ours
    if os.environ.get("RECORD"):
        FILE.write_text("\n".join(told), "utf-8")
    assert told == FILE.read_text("utf-8").split("\n")


@pytest.mark.parametrize("text", ["0", "-1", "much", "1.5", "", "9999999999"])
def test_what_is_no_budget_to_think_is_told_what_is_one(text: str) -> None:
    with pytest.raises(ValueError, match="write one above 0, or off"):
        thinking(text)


# Questions that are open


def asked(*calls: str) -> Questions:
    """Questions about *calls*, of which each came a second after the one before."""
    questions = Questions(iter(range(100)).__next__, CallNames())
    for call in calls:
        notice = ApprovalRequested(
            request=f"r-{call}0", call=f"r-{call}", tool="bash", arguments="{}", at=0.0
        )
        questions.add(notice, None)
    return questions


def test_the_command_that_goes_on_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    """Whatever stands in the names of folders and files, each is one word of it."""
    odd = "a b;touch 'c' $(d)"
    kept: dict[str, Any] = {
        "store": tmp_path / odd,
        "cwd": Path(odd),
        "directories": (Path("e f"), Path(odd)),
    }
    Path(odd).touch(mode=0o700)
    hooks = (hook(f"session_start={shlex.quote('./' + odd)}"),)
    settings = RunOptions(**kept, hooks=hooks, settings_file=Path(odd), base_url="http://me:pw@host/a b")
    assert shlex.split(settings.again("run --resume", "s 1")) == [
        *("turnwheel", "run", "--resume", "s 1", "--store", str(tmp_path / odd)),
        *("--cwd", odd, "--dir", "e f", "--dir", odd, "--base-url", "http://me:(hidden)@host/a b"),
        *("--hook", f"session_start={shlex.quote('./' + odd)}", "--settings", odd),
    ]


async def test_the_default_directory_of_sessions_is_open_to_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWHEEL_STORE", str(tmp_path / "state" / "sessions.db"))
    umask = os.umask(0)
    try:
        await open_store(tmp_path / "state" / "sessions.db").close()
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
        await open_store(tmp_path / "state" / "sessions.db").close()
    finally:
        os.umask(umask)


def test_the_only_question_needs_no_name() -> None:
    assert [one.name for one in asked("1").named("", 9.0)] == ["1"]
    assert [one.name for one in asked("1", "2").named("2", 9.0)] == ["2"]
    assert [one.name for one in asked("1", "2").named("all", 9.0)] == ["1", "2"]
    with pytest.raises(ConfigError, match="2 questions are open; name one: 1 or 2, or all"):
        asked("1", "2").named("", 9.0)
    with pytest.raises(UnknownRequest, match="no open question '3'; open: '1', '2'"):
        asked("1", "2").named("3", 9.0)


def test_a_yes_is_only_for_a_question_that_was_seen() -> None:
    with pytest.raises(ConfigError, match="came while you typed"):
        asked("1").named("", -1.0)
    questions = asked("1")
    assert questions.close("r-10") is not None
    assert questions.close("r-10") is None
    with pytest.raises(ConfigError, match="no question is open; a leading space"):
        questions.named("", 9.0)


@pytest.mark.parametrize("other", ["\r", " ", "\t", "ne", "yan", "yes", "a n", "\x1b", "\xe4"])
async def test_only_a_key_of_the_question_answers_it(other: str) -> None:
    outer, inner = pty.openpty()

    def ask() -> None:
        os.write(outer, other.encode())
        select.select([inner], [], [], 5)  # so that it is read alone, without the key behind it

    try:
        asking = asyncio.ensure_future(Keyboard(inner).key("yanes", ask))
        while not asking.done():
            await asyncio.sleep(0.005)
            os.write(outer, b"n")
        assert await asking == "n"
    finally:
        os.close(outer)
        os.close(inner)


def test_a_yes_to_edited_arguments_says_which() -> None:
    questions = asked("1")
    (question,) = questions.named("", 9.0)
    edited = questions.edit(question, '{"a": 1}', Config(model=ModelSpec(name="m")))
    assert questions.open == (edited,)
    assert effective_decision(edited, Approve()) == Approve(arguments='{"a": 1}')
    assert effective_decision(edited, Deny()) == Deny()
    assert effective_decision(question, Approve()) == Approve()
    with pytest.raises(ConfigError, match="does not cover edited arguments"):
        effective_decision(edited, ApproveAlways())
    with pytest.raises(ConfigError, match="not a JSON object"):
        questions.edit(question, "[]", Config(model=ModelSpec(name="m")))


def test_a_card_shows_what_would_be_done_and_why_it_is_asked() -> None:
    question = Question(
        request="r-2",
        call="r-1",
        tool="write",
        arguments='{"path": "a.txt", "content": "x"}',
        why="rule: ask write",
        within=30.0,
    )
    lines = [text.plain for text in card(question, None, 80)]
    assert lines == ["? write a.txt  #1", "  + x", "  rule: ask write; a no after 30 s"]
    plain = Question(request="r-2", call="r-1", tool="write", arguments="{}", why="tool: it changes things")
    assert [text.plain for text in card(plain, Path(), 80)] == ["? write  #1"]
    *_, reason = card(plain, Path(), 80, always_why=True)
    assert reason.plain == "  tool: it changes things"


def test_arguments_to_edit_begin_no_row_of_a_terminal() -> None:
    rows = [row.plain for row in argument_rows(json.dumps({"path": "x" * 30 + "? write a\n\u200b"}), 40)]
    assert rows == ['    now: {"path": "xxxxxxxxxxxxxxxxxxxxx', '  > xxxxxxxxx? write a\\n\\u200b"}']


def test_a_card_says_that_a_call_may_have_run() -> None:
    question = Question(
        request="r-2", call="r-1", tool="pay", arguments="{}", why=f"lost: {RUN_AGAIN.detail}"
    )
    assert [text.plain for text in card(question, Path(), 80, always_why=True)] == [
        "? pay  #1",
        "  it may have run when its process was lost; run it again?",
    ]
    assert effective_decision(question, Approve()) == Approve()
    with pytest.raises(ConfigError, match="answer y to run this one again"):
        effective_decision(question, ApproveAlways())


def test_the_account_of_a_call_is_told_with_its_times() -> None:
    moments = (
        Moment(at=0.0, what="wished", text="bash {}"),
        Moment(at=0.0, what="judged", text="ask"),
        Moment(at=90.0, what="ended", text="ok: one\ntwo"),
    )
    found = Explanation(session="s", call="r-1", tool="bash", arguments="{}", moments=moments)
    lines = [re.sub(r"[-\d]{10} [:\d]{8}", "AT", row) for row in report_lines(found)]
    assert lines == [
        "bash  r-1, session s",
        "  AT  wished  bash {}",
        "  AT  judged  ask",
        "  AT  ended   ok: one  +1 min 30 s",
        "                               two",
    ]


# What there is, as trees


def listed(session: str, parent: str = "") -> Listed:
    row = encode(SessionSummary(parent=parent), SessionSummary)
    return Listed(session=session, created=0.0, updated=0.0, row=row)


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ([listed("b"), listed("a")], [(0, "b"), (0, "a")]),
        ([listed("a.1", "a"), listed("b"), listed("a")], [(0, "a"), (1, "a.1"), (0, "b")]),
        (
            [listed("c", "b"), listed("d", "a"), listed("b", "a"), listed("a")],
            [(0, "a"), (1, "d"), (1, "b"), (2, "c")],
        ),
        ([listed("b", "gone")], [(0, "b")]),
        ([listed("a", "b"), listed("b", "a")], [(0, "b"), (1, "a")]),
        ([listed("a", "a")], [(0, "a")]),
    ],
    ids=["alone", "a child", "forks of forks", "an orphan", "each from the other", "from itself"],
)
def test_sessions_stand_below_those_they_come_from(found: list[Listed], shown: list[tuple[int, str]]) -> None:
    assert [(depth, one.session) for depth, one in family_order(found)] == shown


def ran(run: str, parent: str = "", *, here: bool = False) -> RunInfo:
    return RunInfo(run=run, parent=parent, prompt="", at=0.0, current=here)


@pytest.mark.parametrize(
    ("runs", "shown"),
    [
        ([ran("a"), ran("b", "a", here=True)], [(0, "a"), (0, "b")]),
        ([ran("a"), ran("b", "a"), ran("c", "a", here=True)], [(0, "a"), (1, "b"), (0, "c")]),
        ([ran("a"), ran("b", "a", here=True), ran("c", "a")], [(0, "a"), (1, "c"), (0, "b")]),
        (
            [ran("a"), ran("b", "a"), ran("c", "b"), ran("d", "b"), ran("e", "a", here=True)],
            [(0, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "e")],
        ),
        ([ran("a"), ran("b", here=True)], [(0, ""), (1, "a"), (0, "b")]),
        ([ran("a")], [(0, ""), (0, "a")]),
        ([], [(0, "")]),
    ],
    ids=["a line", "left", "gone back to", "left in what was left", "two beginnings", "at its start", "none"],
)
def test_runs_that_were_left_are_set_in(runs: list[RunInfo], shown: list[tuple[int, str]]) -> None:
    assert [(depth, "" if run is None else run.run) for depth, run in branches(runs)] == shown


def test_a_long_line_of_runs_is_no_deep_one() -> None:
    runs = [ran(str(number), str(number - 1) if number else "") for number in range(3_000)]
    assert {depth for depth, _ in branches([*runs[:-1], attrs.evolve(runs[-1], current=True)])} == {0}


@pytest.mark.parametrize(
    ("name", "run"), [("abc", "abc"), ("abd", "abd"), ("ab", None), ("b", "b-1"), ("start", ""), ("", None)]
)
def test_a_run_goes_by_how_its_id_begins_where_that_is_sure(name: str, run: str | None) -> None:
    runs = [ran("abc"), ran("abd"), ran("b-1")]
    if run is not None:
        assert meant_run(name, runs) == run
        return
    with pytest.raises(UnknownRun):
        meant_run(name, runs)


# Rows below all text


@final
class Tty(io.StringIO):
    """A terminal that keeps what it is told."""

    def isatty(self) -> bool:
        return True


@final
class OneRow:
    """A row below all text, which says when it is erased and drawn."""

    def __init__(self, file: Tty) -> None:
        self.file = file

    def erase(self) -> None:
        self.file.write("<erased>")

    def draw(self) -> None:
        self.file.write("<drawn>")


def test_rows_below_the_text_are_erased_before_each_write_and_drawn_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("TERM", "xterm")
    file = Tty()
    screen = Screen(file)
    with screen.above(OneRow(file)):
        screen.line("one")
        screen.run_on("two")
    screen.line("three")
    assert file.getvalue() == "<erased>one\n<drawn><erased>two\n<drawn>three\n"


# The sandbox


@pytest.mark.parametrize(
    ("flag", "told", "before", "expected"),
    [
        (None, None, None, None),
        (True, None, None, Sandbox()),
        (None, {"network": True}, None, Sandbox(network=True)),
        (False, {"network": True}, None, None),
        (None, None, Sandbox(tmp=5), Sandbox(tmp=5)),
        (True, None, Sandbox(tmp=5), Sandbox(tmp=5)),
        (False, None, Sandbox(tmp=5), None),
        (None, {"network": True}, Sandbox(tmp=5), Sandbox(network=True, tmp=5)),
    ],
)
def test_a_session_keeps_its_sandbox_until_it_is_told_to_leave_it(
    *, flag: bool | None, told: dict[str, Any] | None, before: Sandbox | None, expected: Sandbox | None
) -> None:
    model, policy = ModelSpec(name="openai:gpt-5"), Policy(auto_allow=AutoAllow.SANDBOXED)
    settings = Settings() if told is None else Settings.load(env={}, sandbox=told)
    options = RunOptions(store=Path("x.db"), settings=settings, model="openai:gpt-5", sandbox=flag)
    config = before and Config(model=model, sandbox=before, policy=policy)
    found = settings_for(options, config, base_url=None)
    assert found.sandbox == expected
    allows = AutoAllow.SANDBOXED if config and flag is not False else AutoAllow.NOTHING
    assert found.policy.auto_allow is allows


def test_the_line_about_an_open_question_shows_what_cannot_be_seen() -> None:
    asked = SimpleNamespace(
        call="c1", tool="bash", arguments='{"command": "echo hi\\u202e\\u200b"}', again=False
    )
    session: Any = SimpleNamespace(id="s", waiting=[asked])
    options: Any = SimpleNamespace(reach=lambda *words: " ".join(words))
    shown = io.StringIO()
    show_resting(session, options, Screen(shown))
    assert "bash echo hi\\u202e\\u200b\n" in shown.getvalue()
