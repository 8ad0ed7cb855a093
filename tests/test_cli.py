"""The commands, where nobody looks: what they print, what they tell the shell, how they take mistakes."""

from __future__ import annotations

import asyncio
import http.server
import io
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, final

import pytest

from turnwheel import (
    DoneReason,
    Price,
    Rule,
    SQLiteStore,
)
from turnwheel.apps.chat.chat import ELSEWHERE
from turnwheel.apps.cli import main
from turnwheel.apps.cli.commands import turnwheel
from turnwheel.apps.cli.exit_codes import (
    BY_REASON,
    MEANS,
    Exit,
    table,
)
from turnwheel.apps.cli.run_options import RunOptions, model_of
from turnwheel.effects.notices import (
    Notice,
    RetryScheduled,
    RunEnded,
    RunStarted,
)
from turnwheel.engine.codec import decode
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import RunOpened

ROOT = Path(__file__).resolve().parent.parent
ESCAPE = re.compile(r"\x1b")

Outputs = tuple[int, str, str]
Runs = Callable[..., Outputs]


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own, a store beside it, and no key."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TURNWHEEL_MODEL", "TURNWHEEL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNWHEEL_STORE", str(tmp_path / "state" / "sessions.db"))
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "README.md").write_text("# Demo\n", "utf-8")
    monkeypatch.chdir(folder)


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str]) -> Runs:
    """The command line in this process: the exit code, and what it wrote."""

    def run(*arguments: str) -> Outputs:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


# A model that says what a test wants


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Calling puts lines where stdin is."""
    with ExitStack() as files:

        def put(*lines: str) -> None:
            path = tmp_path / "stdin"
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            monkeypatch.setattr(sys, "stdin", files.enter_context(path.open(encoding="utf-8")))

        yield put


def says(text: str = "", finish: str = "stop", *calls: tuple[str, str]) -> bytes:
    """The stream of an answer of *text* and *calls*, name and arguments; it used 10 tokens in and 5 out."""
    made = [
        {
            "index": number,
            "id": f"c{number}",
            "type": "function",
            "function": {"name": name, "arguments": what},
        }
        for number, (name, what) in enumerate(calls)
    ]
    delta: dict[str, object] = {"role": "assistant", "content": text}
    if made:
        delta["tool_calls"] = made
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def wants(name: str, **arguments: object) -> bytes:
    """The stream of an answer that calls one tool."""
    return says("", "tool_calls", (name, json.dumps(arguments)))


READS = wants("read", path="README.md")
WRITES = wants("write", path="out.txt", content="one\ntwo\n")


@final
class _Model(http.server.BaseHTTPRequestHandler):
    """
    Gives the *replies* one by one, the last of them for ever.

    An int is a status; 429 asks for a second of patience.
    """

    replies: ClassVar[list[bytes | int]] = []

    def do_POST(self) -> None:
        """Give the next reply."""
        self.rfile.read(int(self.headers["content-length"]))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        body = b'{"error":{"message":"it is so"}}' if isinstance(reply, int) else reply
        self.send_response(reply if isinstance(reply, int) else 200)
        self.send_header(
            "content-type", "application/json" if isinstance(reply, int) else "text/event-stream"
        )
        self.send_header("content-length", str(len(body)))
        if reply == 429:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
        """Say nothing."""


@pytest.fixture
def model() -> Iterator[Callable[..., str]]:
    """A server on loopback that gives the replies one tells it; calling returns its base URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Model) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def replies(*given: bytes | int) -> str:
            _Model.replies = list(given)
            return f"http://127.0.0.1:{server.server_port}/v1"

        yield replies
        server.shutdown()
        thread.join()


# How it ends

ENDS: dict[str, tuple[list[bytes | int], list[str], Exit]] = {
    "it is done": ([says("done")], [], Exit.ENDED),
    "refused": ([401], [], Exit.FAILED),
    "cut at its length": ([says("half", "length")], [], Exit.MAX_TOKENS),
    "turns": ([READS], ["--max-turns", "2"], Exit.MAX_TURNS),
    "tokens": ([READS], ["--max-tokens", "20"], Exit.BUDGET),
    "money": ([READS], ["--price", "1000,1000", "--max-usd", "0.02"], Exit.BUDGET),
    "time": ([READS], ["--max-seconds", "0.000001"], Exit.BUDGET),
    "circles": ([READS], [], Exit.LOOP),
    "a question": ([WRITES], [], Exit.RESTS),
    "a question, allowed": ([WRITES, says("ok")], ["--allow", "write:path=*.txt"], Exit.ENDED),
    "a question, allowed elsewhere": ([WRITES], ["--allow", "write:path=*.md"], Exit.RESTS),
    "everything allowed": ([WRITES, says("ok")], ["--yes"], Exit.ENDED),
    "a question, since a rule asks": ([READS], ["--ask", "r*d", "--allow", "read"], Exit.RESTS),
    "denied by a rule": ([WRITES, says("ok")], ["--deny", "*:path=out.txt", "--yes"], Exit.ENDED),
    "edits accepted": ([WRITES, says("ok")], ["--mode", "accept_edits"], Exit.ENDED),
    "nothing but reading": ([WRITES, says("ok")], ["--mode", "plan"], Exit.ENDED),
    "nobody asked": ([WRITES, says("ok")], ["--mode", "dont_ask"], Exit.ENDED),
    "all of it": ([WRITES, says("ok")], ["--mode", "bypass", "--ask", "*"], Exit.ENDED),
    "a prompt that a hook stops": (
        [says("ok")],
        ["--hook", "user_prompt_submit=sh -c 'exit 2'"],
        Exit.BLOCKED,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_exit_code_says_how_the_run_ended(name: str, runs: Runs, model: Callable[..., str]) -> None:
    """Each way to end has its code, whether a person or a program reads along."""
    replies, options, code = ENDS[name]
    for more in ([], ["--json"], ["--quiet"]):
        out = runs("run", "--base-url", model(*replies), *options, *more, "go")
        assert out[0] == code, out


def test_every_reason_has_a_code_and_every_code_a_meaning() -> None:
    """The table is whole."""
    assert set(BY_REASON) == set(DoneReason)
    assert set(MEANS) == set(Exit)


def test_help_and_docs_show_the_table(runs: Runs) -> None:
    """What the shell is told is written where one looks for it."""
    _, out, _ = runs("run", "--help")
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for line in table().splitlines():
        assert line in out
        assert line in page


def test_docs_show_every_command_and_option() -> None:
    """What is not on the page was forgotten."""
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    options = {
        option
        for command in turnwheel.commands.values()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert {option for option in options if f"`{option}" not in page} == set()
    assert {name for name in turnwheel.commands if f"`turnwheel {name}" not in page} == set()


# What programs read


def test_json_is_one_notice_per_line_and_nothing_else(runs: Runs) -> None:
    """Every line is read back as the notice it was, from the first to the last of the run."""
    code, out, err = runs("run", "--json", "--stand-in", "--allow", "write", "Write a report to R.md")
    notices = [decode(line.encode(), Notice) for line in out.splitlines()]
    assert code == 0
    assert {type(notice) for notice in notices} <= set(typing.get_args(Notice))
    assert [type(notices[0]).__name__, type(notices[-1]).__name__] == ["RunStarted", "RunEnded"]
    assert err == ""


def test_a_wait_is_told(runs: Runs, model: Callable[..., str]) -> None:
    """With its reason and how long it is, to a person; until when, to a program."""
    code, out, _ = runs("run", "--base-url", model(429, says("ok")), "go")
    assert (code, "\nrate_limit: http 429: it is so · try 2 in 1 s\nok\n" in out) == (0, True), out
    code, out, _ = runs("run", "--json", "--base-url", model(429, says("ok")), "go")
    notices = [decode(line.encode(), Notice) for line in out.splitlines()]
    (waits,) = [notice for notice in notices if isinstance(notice, RetryScheduled)]
    first, last = notices[0], notices[-1]
    assert isinstance(first, RunStarted)
    assert isinstance(last, RunEnded)
    assert code == 0
    assert first.at < waits.due < last.at


def test_a_model_that_goes_in_circles_is_seen_to(runs: Runs, model: Callable[..., str]) -> None:
    """It is warned, its tool is taken away, and in the end it is stopped; each is told once."""
    code, out, err = runs("run", "--base-url", model(READS), "go")
    told = re.findall(r"read was called alike (\d+) times(, so)?", out)
    assert code == Exit.LOOP
    assert told == [("3", ""), ("4", ""), ("5", ", so"), ("6", ", so"), ("7", ", so")]
    assert "the model repeated itself and was stopped: read was called alike 8 times" in err


def test_json_never_asks_and_says_how_to_go_on_elsewhere(runs: Runs, model: Callable[..., str]) -> None:
    """A question is a notice; what a person has to do about it goes to stderr."""
    code, out, err = runs("run", "--json", "--session", "s", "--base-url", model(WRITES), "go")
    asked = json.loads(out.splitlines()[-1])
    assert (code, asked["type"], asked["tool"]) == (3, "ApprovalRequested", "write")
    assert f"#{asked['call'].rpartition('-')[2]}  write out.txt" in err
    assert "turnwheel run --resume s --base-url" in err


def test_lines_come_at_once_and_a_reader_may_leave() -> None:
    """The first line is there while the run goes on; who stops to read ends it quietly."""
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


# What people read


def test_a_pipe_gets_the_whole_story_without_codes(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question, who answers, the calls, what came of them, the answer and the bill; no escape in it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, _ = runs("run", "--stand-in", "--allow", "write", "Write a report to R.md")
    assert code == 0
    assert not ESCAPE.search(out)
    told = [
        "scripted stand-in (no model, no key)",
        "> Write a report to R.md",
        "● read README.md",
        "⎿ 1 line",
    ]
    for part in [*told, "wrote ", "I looked over the folder.", "4 turns · ", " · $0 · "]:
        assert part in out


def test_quiet_is_the_last_answer(runs: Runs) -> None:
    """And nothing else, so that it can be put into a file."""
    code, out, err = runs("run", "-q", "--stand-in", "hello")
    assert (code, err) == (0, "")
    assert out.startswith("I am the scripted stand-in")
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "bill"),
    [([], "no price known"), (["--price", "100,1000"], "$0.0060"), (["--price", "0,0"], "$0 ")],
)
def test_the_bill_says_what_is_known(
    options: list[str], bill: str, runs: Runs, model: Callable[..., str]
) -> None:
    """Money only where there is a price."""
    _, out, _ = runs("run", "--base-url", model(says("hi")), *options, "go")
    assert "1 turn · 10 tokens in, 5 out · " in out
    assert bill in out


def test_a_model_cannot_speak_to_the_terminal(runs: Runs, model: Callable[..., str]) -> None:
    """Escapes in text, names, arguments, results and errors are shown as what they are."""
    evil = "\x1b]52;c;AAAA\x07\x9b2J\u202e"
    url = model(says(evil, "tool_calls", ("write", json.dumps({"path": f"a{evil}", "content": evil}))))
    _, out, err = runs("run", "--base-url", url, evil)
    _, done, _ = runs("run", "--base-url", url, "--yes", "--max-turns", "1", evil)
    for text in (out, err, done):
        assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text) is None
    assert r"\x1b]52;c;AAAA\x07\x9b2J\u202e" in out


def test_an_error_of_the_model_is_told_with_its_words(runs: Runs, model: Callable[..., str]) -> None:
    """On stderr, with the way to go on."""
    _, out, err = runs("run", "--base-url", model(401), "--session", "s", "go")
    assert "it is so" in err
    assert "it is so" not in out
    assert "--resume s --base-url " in err


# Questions that wait


def rest(runs: Runs, url: str, *options: str) -> str:
    """Let session ``s`` rest on a question to write; returns what the call is called on screen."""
    code, out, _ = runs("run", "--json", "--session", "s", "--base-url", url, *options, "go")
    assert code == 3
    call: str = json.loads(out.splitlines()[-1])["call"]
    return call.rpartition("-")[2]


@pytest.mark.parametrize("named", ["{}", "#{}", "all"])
def test_a_question_is_answered_yes_later(named: str, runs: Runs, model: Callable[..., str]) -> None:
    """By the number of its call or with all there are, in another process if need be."""
    url = model(WRITES, says("it is written"))
    call = rest(runs, url)
    assert not Path("out.txt").exists()
    said = runs("approve", "s", named.format(call))
    assert said == (0, f"approved: #{call} write out.txt\n", "")
    assert not Path("out.txt").exists()
    code, out, _ = runs("run", "--resume", "s", "--base-url", url)
    assert (code, Path("out.txt").read_text("utf-8")) == (0, "one\ntwo\n")
    assert "● write out.txt" in out
    assert "it is written" in out


def test_a_question_is_answered_no_later(runs: Runs, model: Callable[..., str]) -> None:
    """The model reads why."""
    url = model(WRITES, says("as you wish"))
    call = rest(runs, url)
    assert runs("deny", "s", call, "--message", "not today")[1] == f"denied: #{call} write out.txt\n"
    code, out, _ = runs("run", "--resume", "s", "--base-url", url)
    assert (code, Path("out.txt").exists()) == (0, False)
    assert "⎿ not today" in out


def test_a_no_may_stop_the_run(runs: Runs, model: Callable[..., str]) -> None:
    """Nothing is asked of the model any more."""
    url = model(WRITES, says("never said"))
    call = rest(runs, url)
    assert runs("deny", "s", call, "--stop")[1] == f"denied: #{call} write out.txt, and the run stops\n"
    code, out, err = runs("run", "--resume", "s", "--base-url", url)
    assert (code, "never said" in out) == (130, False)
    assert "interrupted; what was said is kept" in err


def test_a_yes_may_change_the_arguments(runs: Runs, model: Callable[..., str]) -> None:
    """The call runs with them; what does not fit the tool is refused."""
    url = model(WRITES, says("ok"))
    call = rest(runs, url)
    for wrong in ("{", '{"path": 1, "content": ""}', '{"path": "x"}'):
        code, _, err = runs("approve", "s", call, "--edit", wrong)
        assert (code, "'write' cannot have these arguments" in err) == (2, True)
    code, out, _ = runs("approve", "s", call, "--edit", '{"path": "other.txt", "content": "x"}')
    assert (code, out) == (0, f"approved: #{call} write out.txt, with other arguments\n")
    assert runs("run", "--resume", "s", "--base-url", url)[0] == 0
    assert (Path("out.txt").exists(), Path("other.txt").read_text("utf-8")) == (False, "x")


@pytest.mark.parametrize(
    ("options", "told", "ends"),
    [
        (["--always"], "every call of it", Exit.ENDED),
        (["--always", "--where", "path=o*"], "every such call", Exit.ENDED),
        (["--always", "--where", "path=x*"], "every such call", Exit.RESTS),
    ],
)
def test_always_holds_for_the_session(
    options: list[str], told: str, ends: Exit, runs: Runs, model: Callable[..., str]
) -> None:
    """For all calls of the tool, or for those it was said of."""
    url = model(WRITES, says("ok"), WRITES, says("ok"))
    call = rest(runs, url)
    assert f", and {told} from now on" in runs("approve", "s", call, *options)[1]
    assert runs("run", "--resume", "s", "--base-url", url)[0] == 0
    assert runs("run", "--resume", "s", "--base-url", url, "again")[0] == ends


def test_the_questions_are_shown_with_what_was_asked_and_why(runs: Runs, model: Callable[..., str]) -> None:
    """To people as when they are asked, to programs as they are."""
    url = model(WRITES)
    call = rest(runs, url, "--ask", "write:path=*.txt")
    _, out, _ = runs("questions", "s")
    assert out == f"? write out.txt  #{call}\n  + one\n  + two\n  rule: ask write:path=*.txt\n"
    _, lines, _ = runs("questions", "s", "--json")
    (question,) = map(json.loads, lines.splitlines())
    assert (question["tool"], question["why"]) == ("write", "rule: ask write:path=*.txt")
    runs("approve", "s", "all")
    assert runs("questions", "s") == (0, "no question is open\n", "")
    assert runs("questions", "s", "--json") == (0, "", "")


def test_a_question_may_be_too_late_to_answer(runs: Runs, model: Callable[..., str]) -> None:
    """A run with such a deadline waits for it, and does not rest."""
    url = model(WRITES, says("so be it"))
    code, out, err = runs("run", "--session", "s", "--base-url", url, "--answer-within", "0.001", "go")
    assert (code, "nobody answered within 0.001 s" in out) == (0, True)
    assert "so be it" in out
    assert re.fullmatch(
        r"\? write out.txt  #(\d+)\n  \+ one\n  \+ two\n  a no after 0.001 s\n"
        r"answer with: turnwheel approve s \1, or deny\n",
        err,
    )


def test_yes_answers_what_waits_and_what_comes(runs: Runs, model: Callable[..., str]) -> None:
    """Also in a run that began without it, and in no run after it."""
    url = model(WRITES, wants("write", path="more.txt", content=""), says("ok"), WRITES)
    call = rest(runs, url)
    assert runs("run", "--resume", "s", "--base-url", url, "--yes")[0] == 0
    assert Path("more.txt").exists()
    assert re.search("answered +yes, by --yes", runs("why", "s", call)[1])
    assert runs("run", "--resume", "s", "--base-url", url, "again")[0] == 3


def test_it_says_how_to_go_on_with_all_that_is_not_kept(
    runs: Runs, model: Callable[..., str], tmp_path: Path
) -> None:
    """So that the line can be used as it is."""
    (tmp_path / "a b").mkdir()
    url, store = model(WRITES), str(tmp_path / "other.db")
    more = ["--cwd", "..", "--dir", str(tmp_path / "a b"), "--base-url", url, "--hook", "stop=sh -c true"]
    _, _, err = runs("run", "--session", "s", "--store", store, *more, "go")
    _, answer, on = (line.partition(" with: turnwheel ")[2] for line in err.splitlines()[-3:])
    assert answer.startswith(f"approve s --store {store} CALL")
    words = shlex.split(on)
    assert words == ["run", "--resume", "s", "--store", store, *more]
    assert runs(*words)[0] == 3


def test_without_an_answer_it_rests_again(runs: Runs, model: Callable[..., str]) -> None:
    """And the question is the same one."""
    url = model(WRITES)
    call = rest(runs, url)
    code, _, err = runs("run", "--resume", "s", "--base-url", url)
    assert code == 3
    assert f"#{call}  write out.txt" in err


# Reaching into a session


def test_a_prompt_is_queued_and_worked_off(runs: Runs, model: Callable[..., str]) -> None:
    """By whoever goes on with the session, in the order in which they came."""
    url = model(says("one"), says("two"), says("three"))
    assert runs("run", "--session", "s", "--base-url", url, "go")[0] == 0
    assert runs("send", "s", "then this") == (0, "1 prompt waiting\n", "")
    assert runs("send", "s", "and that") == (0, "2 prompts waiting\n", "")
    code, out, _ = runs("run", "--resume", "s", "--base-url", url)
    assert code == 0
    assert re.findall(r"^> (.*)|^(two|three)", out, re.MULTILINE) == [
        ("then this", ""),
        ("", "two"),
        ("and that", ""),
        ("", "three"),
    ]


def test_text_may_come_from_a_pipe(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash stands for it."""
    runs("run", "--session", "s", "hello")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"thanks")))
    assert runs("send", "s", "-")[0] == 0
    assert "> thanks" in runs("run", "--resume", "s")[1]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (["--now"], "is read now"),
        (["--after-tool"], "is read after what runs"),
        ([], "is read after what runs"),
        (["--when-done"], "is read when all calls are done"),
    ],
)
def test_a_run_is_steered(how: list[str], told: str, runs: Runs, model: Callable[..., str]) -> None:
    """What was said comes in when the run goes on; only at the end of the calls are they all asked about."""
    url = model(WRITES, says("as you say"))
    rest(runs, url)
    assert runs("steer", "s", "leave it", *how) == (0, f"said; it {told}\n", "")
    code, out, _ = runs("run", "--resume", "s", "--base-url", url)
    if "--when-done" in how:
        assert code == 3
    else:
        assert (code, Path("out.txt").exists()) == (0, False)
        assert "> leave it" in out


def test_where_no_run_is_under_way_a_steer_is_a_prompt(runs: Runs) -> None:
    """It is not lost, and the answer says what became of it."""
    runs("run", "--session", "s", "hello")
    said = runs("steer", "s", "thanks")
    assert said == (0, "no run is under way, so it waits as a prompt\n", "")
    assert "> thanks" in runs("run", "--resume", "s")[1]


def test_settings_are_changed_from_elsewhere(runs: Runs, model: Callable[..., str]) -> None:
    """They hold from then on, also in the run that is under way, and are told."""
    url = model(WRITES, says("ok"), says("more"))
    rest(runs, url)
    code, out, _ = runs("control", "s", "--mode", "plan", "--model", "openai:x", "--think", "4000")
    assert (code, out.splitlines()) == (
        0,
        [
            "from now on: model openai:x",
            "from now on: mode plan",
            "from now on: thinking up to 4,000 tokens",
        ],
    )
    runs("approve", "s", "all")
    code, out, _ = runs("run", "--resume", "s", "--base-url", url)
    assert (code, Path("out.txt").exists()) == (0, False)
    assert "from now on: mode plan" in out
    code, out, _ = runs("run", "--resume", "s", "--base-url", url, "more")
    assert out.startswith("openai:x  session s")


def test_what_the_command_line_says_beats_what_was_chosen_before(
    runs: Runs, model: Callable[..., str]
) -> None:
    """Somebody let everything run; whoever goes on with --mode plan means it."""
    url = model(says("ok"), WRITES, says("denied"), says("by x"))
    runs("run", "--session", "s", "--base-url", url, "go")
    runs("control", "s", "--mode", "bypass", "--model", "openai:y")
    told = ["--mode", "plan", "--model", "openai:x"]
    code, out, _ = runs("run", "--resume", "s", "--base-url", url, *told, "write")
    assert (code, Path("out.txt").exists()) == (0, False)
    assert "the permission mode is plan" in out
    lines = [
        json.loads(line)
        for line in runs("run", "--resume", "s", "--base-url", url, "--json", "x")[1].splitlines()
    ]
    assert (lines[0]["model"], lines[0]["mode"]) == ("openai:x", "plan")


def test_a_call_is_given_up(runs: Runs, model: Callable[..., str]) -> None:
    """The run goes on without it."""
    url = model(WRITES, says("on we go"))
    call = rest(runs, url)
    assert runs("cancel", "s", call) == (0, f"gave up #{call}\n", "")
    code, out, _ = runs("run", "--resume", "s", "--base-url", url)
    assert (code, Path("out.txt").exists()) == (0, False)
    assert "⎿ Cancelled" in out
    assert "on we go" in out


def test_a_run_is_stopped(runs: Runs, model: Callable[..., str]) -> None:
    """One that rests when it is resumed."""
    url = model(WRITES)
    rest(runs, url)
    assert runs("interrupt", "s") == (0, "asked the run to stop\n", "")
    assert runs("run", "--resume", "s", "--base-url", url)[0] == 130


def test_the_story_of_a_call_is_told(runs: Runs, model: Callable[..., str]) -> None:
    """Who wished what, which rule judged it, who answered, what ran, how it ended."""
    url = model(WRITES, says("ok"))
    call = rest(runs, url, "--ask", "write:path=out*")
    runs("approve", "s", call)
    runs("run", "--resume", "s", "--base-url", url)
    code, out, _ = runs("why", "s", call)
    assert code == 0
    first, *story = out.splitlines()
    assert re.fullmatch(rf"write  \w+-{call}, session s", first)
    patterns = [
        r"wished      write \{",
        r"judged      ask, by rule: ask write:path=out\*",
        r"asked       a person, because of rule",
        r"answered    yes, by .* \(approve\)",
        r"taken over  another process went on",
        r"judged      allow, by person",
        r"started     write \{",
        r"ended       ok: wrote 8 bytes to out.txt",
    ]
    for line, pattern in zip(story, patterns, strict=True):
        assert re.match(rf"  [-\d]+ [:\d]+  {pattern}", line), (pattern, line)
    told = json.loads(runs("why", "s", f"#{call}", "--json")[1])
    assert [moment["what"] for moment in told["moments"]][-1] == "ended"


@pytest.mark.parametrize(
    "words",
    [("sessions",), ("send", "s", "hi"), ("export", "s"), ("replay", "s")],
    ids=" ".join,
)
def test_who_looks_for_a_session_makes_no_store(runs: Runs, tmp_path: Path, words: tuple[str, ...]) -> None:
    """A path that was mistyped leaves nothing behind, neither a file nor its folder."""
    _, out, err = runs(*words, "--store", str(tmp_path / "mistyped" / "agent.db"))
    assert (out or err) in {"no sessions yet\n", "turnwheel: no session 's' in this store\n"}
    assert not (tmp_path / "mistyped").exists()


def test_the_number_of_a_call_means_the_latest_run(runs: Runs, model: Callable[..., str]) -> None:
    """Numbers begin anew with each run; whole ids are always sure."""
    url = model(READS, says("ok"), wants("ls"), says("ok"))
    runs("run", "--session", "s", "--base-url", url, "one")
    runs("run", "--resume", "s", "--base-url", url, "two")
    _, out, _ = runs("why", "s", "3")
    assert out.startswith("ls  ") or runs("why", "s", "2")[1].startswith("ls  ")


# What is kept, and what is not


def test_of_the_rules_those_of_one_verdict_are_replaced(runs: Runs, model: Callable[..., str]) -> None:
    """So what was denied stays denied when something else is allowed."""
    url = model(says("ok"))
    rules = ["--deny", "bash", "--allow", "write", "--ask", "read"]
    runs("run", "--session", "s", "--base-url", url, *rules, "go")
    runs("run", "--resume", "s", "--base-url", url, "--allow", "edit", "on")
    _, second = (entry.config for entry in opened())
    assert set(map(str, second.rules)) == {"deny bash", "ask read", "allow edit"}


def test_to_let_everything_run_is_not_taken_over(runs: Runs, model: Callable[..., str]) -> None:
    """It has to be said each time; any other mode has not."""
    url = model(says("ok"))
    for mode, kept in (("bypass", "default"), ("plan", "plan")):
        session = f"s-{mode}"
        runs("run", "--session", session, "--base-url", url, "--mode", mode, "go")
        runs("run", "--resume", session, "--base-url", url, "on")
        assert [str(entry.config.policy.mode) for entry in opened(session)] == [mode, kept]


def test_instructions_are_read_where_they_are(runs: Runs) -> None:
    """AGENTS.md unless told, and nothing where that is told."""
    runs("run", "--session", "a", "hello")
    runs("run", "--session", "b", "--instructions", "README.md", "--instructions", "X.md", "hello")
    runs("run", "--session", "c", "--instructions", "", "hello")
    configs = [opened(session)[0].config for session in "abc"]
    assert [config.instructions for config in configs] == [("AGENTS.md",), ("README.md", "X.md"), ()]


def test_what_is_read_first_is_said(runs: Runs) -> None:
    """Where it is there, and as long as the session has not begun."""
    Path("AGENTS.md").write_text("Be brief.", "utf-8")
    first = runs("run", "--session", "s", "--mode", "plan", "hello")[1].splitlines()[0]
    second = runs("run", "--resume", "s", "hello")[1].splitlines()[0]
    assert first == "scripted stand-in (no model, no key)  session s  mode plan  reads AGENTS.md"
    assert second == "scripted stand-in (no model, no key)  session s  'hello'  mode plan"


def test_models_to_switch_to_are_told_with_their_price(runs: Runs, model: Callable[..., str]) -> None:
    """And kept."""
    url = model(says("ok"))
    told = ["--also-model", "anthropic:a=1,5", "--also-model", "openai:b"]
    runs("run", "--session", "s", "--base-url", url, *told, "go")
    runs("run", "--resume", "s", "--base-url", url, "on")
    for entry in opened():
        first, second = entry.config.models
        assert (first.name, first.price) == ("anthropic:a", Price(input=Decimal(1), output=Decimal(5)))
        assert (second.name, second.price) == ("openai:b", None)


def test_hooks_have_a_say(runs: Runs, model: Callable[..., str], tmp_path: Path) -> None:
    """A program sees the call and may deny it; one that fails is told and has no say."""
    guard = tmp_path / "guard.sh"
    guard.write_text('#!/bin/sh\ngrep -q out.txt && { echo "not that file" >&2; exit 2; }\n', "utf-8")
    guard.chmod(0o700)
    url = model(WRITES, says("ok"))
    hooks = ["--hook", f"pre_tool_use:wr*={guard}", "--hook", "stop=sh -c 'echo oh >&2; exit 1'"]
    code, out, _ = runs("run", "--session", "s", "--base-url", url, *hooks, "--yes", "go")
    assert (code, Path("out.txt").exists()) == (0, False)
    assert "Denied by a hook: guard.sh: not that file" in out
    assert "hook sh has no say: it raised ChildProcessError: exit code 1: oh" in out
    code, _, err = runs("run", "--resume", "s", "--base-url", url, "more")
    assert (code, "has hooks (guard.sh, sh)" in err) == (2, True)
    assert runs("run", "--resume", "s", "--base-url", url, "--no-hooks", "more")[0] == 0


def test_whoever_wants_to_know_is_told_what_judged_each_call(runs: Runs, model: Callable[..., str]) -> None:
    """Without -v only what was denied is of interest, and that its result tells."""
    url = model(READS, says("ok"), READS, says("ok"))
    hook = ["--hook", 'pre_tool_use=echo \'{"verdict": "allow", "reason": "I know it"}\'']
    _, plain, _ = runs("run", "--base-url", url, *hook, "go")
    _, full, _ = runs("run", "--base-url", url, *hook, "-v", "go")
    assert "allow" not in plain
    assert "hook echo: allow, because I know it" in full
    assert re.search(r"#\d+ read: allow, by hook: echo: I know it", full)


# Sessions


def opened(session: str = "s") -> list[RunOpened]:
    """How the runs of *session* in the store were begun."""

    async def load() -> list[RunOpened]:
        store = SQLiteStore(os.environ["TURNWHEEL_STORE"])
        entries = [decode_entry(data) for data in await store.load(session)]
        await store.close()
        return [entry for entry in entries if isinstance(entry, RunOpened)]

    return asyncio.run(load())


def test_a_session_goes_on_as_it_was_set_up(runs: Runs, model: Callable[..., str]) -> None:
    """Model, system, tools, limits, price and rules need not be told again."""
    url = model(says("one"), says("two"))
    told = ["--model", "openai:x", "--system", "be", "--tools", "read,write", "--max-turns", "7"]
    told += ["--price", "1,2", "--allow", "write:path=a", "--parallel", "--mode", "accept_edits"]
    assert runs("run", "--session", "s", "--base-url", url, *told, "first")[0] == 0
    assert runs("run", "--resume", "s", "--base-url", url, "second")[0] == 0
    first, second = (entry.config for entry in opened())
    assert (first.model, first.system, first.tools) == (second.model, second.system, second.tools)
    assert (first.limits.turns, second.limits.turns) == (7, 7)
    assert second.rules == (Rule(verdict="allow", tool="write", where=(("path", "a"),)),)
    assert second.policy == first.policy


def test_our_system_prompt_names_the_folder_of_this_very_run(runs: Runs, tmp_path: Path) -> None:
    """Not that of the run before."""
    assert runs("run", "--session", "s", "hello")[0] == 0
    other = tmp_path / "other"
    other.mkdir()
    assert runs("run", "--resume", "s", "--cwd", str(other), "hello")[0] == 0
    systems = [entry.config.system for entry in opened()]
    assert [str(Path.cwd()) in systems[0], str(other) in systems[1]] == [True, True]


# Sessions as a whole


def lines(out: str) -> list[dict[str, Any]]:
    """The lines of JSON in *out*."""
    return [json.loads(line) for line in out.splitlines()]


def columns(out: str) -> list[list[str]]:
    """The cells of a table, those of the first column with what they are set in."""
    return [re.split(r"(?<=\S) {2,}", line) for line in out.splitlines()]


def test_sessions_are_listed_last_active_first(runs: Runs, model: Callable[..., str]) -> None:
    """With how they stand, how many runs they had, and what those used."""
    runs("run", "--session", "a", "--stand-in", "hello")
    runs("run", "--resume", "a", "hi")
    rest(runs, model(WRITES))
    asks, done = lines(runs("sessions", "--json")[1])
    assert (asks["session"], asks["state"], asks["questions"], asks["reason"]) == ("s", "resting", 1, None)
    assert (asks["tokens"], asks["unpriced_tokens"], asks["cost_usd"]) == (15, 15, 0.0)
    assert (done["session"], done["state"], done["reason"], done["runs"]) == ("a", "idle", "end_turn", 2)
    assert (done["title"], done["kind"], done["cwd"]) == ("hello", "main", str(Path.cwd()))
    plain = runs("sessions")[1]
    assert columns(plain)[0] == ["s", "rests on 1 question", "1", "15", "?", "just now", "go"]
    assert columns(plain)[1][:3] == ["a", "done: end_turn", "2"]
    assert not ESCAPE.search(plain)


async def store_entries(session: str, *entries: bytes) -> None:
    """Put *entries* in the store as they are."""
    store = SQLiteStore(os.environ["TURNWHEEL_STORE"])
    await store.append(session, 0, entries)
    await store.close()


@pytest.mark.parametrize(
    "entry", [b"\xff", b"[]", b'{"type":"RunOpened"}', b'{"type":"Later"}', b'{"type":"Stepped","event":1}']
)
def test_a_session_that_cannot_be_read_does_not_hide_the_others(entry: bytes, runs: Runs) -> None:
    """It is listed as that, can be deleted, and resuming it is one line of error."""
    runs("run", "--session", "good", "hello")
    asyncio.run(store_entries("bad\x1b[2J", entry))
    code, out, _ = runs("sessions")
    assert code == 0
    assert "cannot be read" in out
    assert "good" in out
    assert not ESCAPE.search(out)
    for command in (["run", "--resume"], ["usage"], ["runs"], ["export"]):
        code, _, err = runs(*command, "bad\x1b[2J", *["hi"][: command[0] == "run"])
        assert (code, err.count("\n")) == (1, 1)
    assert runs("delete", "--yes", "bad\x1b[2J")[0] == 0
    assert "cannot be read" not in runs("sessions")[1]


def test_deleting_asks_first(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is a no."""
    runs("run", "--session", "a", "hello")
    runs("run", "--session", "b", "hello")
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    code, _, err = runs("delete", "a", "b")
    assert code == Exit.INTERRUPTED
    assert "Delete 'a', 'b' with all children for good?" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert runs("delete", "a", "b")[:2] == (0, "deleted a\ndeleted b\n")
    assert runs("sessions")[1] == "no sessions yet\n"


def test_old_sessions_are_forgotten(runs: Runs, model: Callable[..., str]) -> None:
    """Those whose run is not over only where that is said."""
    runs("run", "--session", "a", "hello")
    rest(runs, model(WRITES))
    assert runs("prune", "--older-than", "1h")[:2] == (0, "nothing is that old\n")
    with sqlite3.connect(os.environ["TURNWHEEL_STORE"]) as db:
        db.execute("update entries set at = at - 7200")
    assert runs("prune", "--older-than", "1h")[:2] == (0, "deleted a\n")
    assert runs("prune", "--older-than", "1h", "--unfinished")[:2] == (0, "deleted s\n")


def test_the_newest_session_of_a_folder_is_gone_on_with(
    runs: Runs, typed: Callable[..., None], tmp_path: Path
) -> None:
    """Not that of another folder, however new that is."""
    other = tmp_path / "other"
    other.mkdir()
    runs("run", "--session", "here", "--title", "The one", "hello")
    runs("run", "--session", "there", "--cwd", str(other), "hello")
    code, out, _ = runs("run", "--continue", "hi")
    assert code == 0
    assert out.splitlines()[0].endswith("session here  'The one'")
    assert runs("run", "--continue", "--cwd", str(other), "hi")[1].splitlines()[0].endswith("'hello'")
    typed("hello")
    assert runs("chat", "--continue")[1].splitlines()[0].endswith("session here  'The one'")
    assert [row["runs"] for row in lines(runs("sessions", "--json")[1])] == [3, 2]


def test_settings_may_say_to_go_on_with_the_newest_session(runs: Runs) -> None:
    """Where there is none yet, one begins."""
    Path("turnwheel.toml").write_text("session = { latest = true }\n", "utf-8")
    for prompt in ("hello", "hi"):
        assert runs("run", prompt)[0] == 0
    assert [row["runs"] for row in lines(runs("sessions", "--json")[1])] == [2]


def test_a_session_has_a_title(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning of its first prompt, until somebody calls it something else."""
    runs("run", "--session", "s", "hello there")
    assert runs("title", "s")[1] == "hello there\n"
    assert runs("title", "s", "All that")[1] == "All that\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x1b[2Jso\n"), "utf-8"))
    assert runs("title", "s", "-")[:2] == (0, "\\x1b[2Jso\n")
    assert lines(runs("sessions", "--json")[1])[0]["title"].endswith("[2Jso")
    assert runs("title", "s", "")[1] == "\n"


def test_a_session_goes_back_and_another_way(runs: Runs, model: Callable[..., str]) -> None:
    """To where a run ended, or to its beginning; what was left is shown set in, and is kept."""
    url = model(*map(says, ("one", "two", "three", "four")))
    runs("run", "--session", "s", "--base-url", url, "1")
    runs("run", "--resume", "s", "--base-url", url, "2")
    first, second = [row["run"] for row in lines(runs("runs", "s", "--json")[1])]
    told = runs("branch", "s", first[:8])
    assert told[:2] == (0, f"session s goes on from the end of run {first}\n")
    runs("run", "--resume", "s", "--base-url", url, "3")
    *_, third = lines(runs("runs", "s", "--json")[1])
    assert (third["parent"], third["here"], third["tokens"], third["prompt"]) == (first, True, 15, "3")
    assert runs("branch", "s", "start")[1] == "session s goes on from its start\n"
    assert columns(runs("runs", "s")[1])[0] == ["start", "here"]
    runs("run", "--resume", "s", "--base-url", url, "4")
    *_, fourth = [row["run"] for row in lines(runs("runs", "s", "--json")[1])]
    assert [(row[0], *row[1:2], row[-1]) for row in columns(runs("runs", "s")[1])] == [
        ("start", "start"),
        (f"  {first}", "done: end_turn", "1"),
        (f"    {second}", "head", "2"),
        (f"  {third['run']}", "head", "3"),
        (fourth, "here", "4"),
    ]


def test_a_session_is_copied(runs: Runs, model: Callable[..., str]) -> None:
    """The copy has all that was said and a bill of its own; it stands below the one it comes from."""
    url = model(says("one"), says("two"))
    runs("run", "--session", "s", "--base-url", url, "first")
    assert runs("fork", "s", "t")[:2] == (0, "forked s into t\n")
    assert runs("fork", "t")[1].startswith("forked t into ")
    assert [row[0].lstrip() for row in columns(runs("sessions")[1])[:2]] == ["s", "t"]
    set_in = [len(row[0]) - len(row[0].lstrip()) for row in columns(runs("sessions")[1])]
    assert set_in == [0, 2, 4]
    runs("run", "--resume", "t", "--base-url", url, "second")
    copied, own = columns(runs("runs", "t")[1])
    assert (copied[1:3], own[2:4]) == (["done: end_turn", "copied"], ["done: end_turn", "15"])
    bills = {row["session"]: row["tokens"] for row in lines(runs("sessions", "--json")[1])}
    assert (bills["s"], bills["t"]) == (15, 15)


def test_a_session_is_taken_out(runs: Runs, tmp_path: Path) -> None:
    """As one document, to a file or a pipe."""
    runs("run", "--session", "s", "hello")
    file = tmp_path / "s.json"
    assert runs("export", "s", "-o", str(file))[:2] == (0, f"wrote session s to {file}\n")
    document = json.loads(file.read_text("utf-8"))
    assert (document["session"], document["messages"][0]["parts"][0]["text"]) == ("s", "hello")
    assert json.loads(runs("export", "s")[1]) == document


SCOUT = """
[model]
name = "openai:dear"
price = { input = 1000, output = 1000 }

[agents.scout]
description = "looks around"
tools = ["read", "write"]
"""
SENDS = wants("run_agent", agent="scout", prompt="look")


@pytest.fixture
def _scout() -> None:
    """Settings with a child agent."""
    Path("turnwheel.toml").write_text(SCOUT, "utf-8")


@pytest.mark.usefixtures("_scout")
def test_a_child_is_seen_at_work_and_billed(runs: Runs, model: Callable[..., str]) -> None:
    """Its calls below its own line, then what it used; and in the bill of its parent."""
    url = model(SENDS, READS, says("found"), says("so it is"))
    code, out, _ = runs("run", "--session", "s", "--base-url", url, "go")
    assert code == 0
    shown = re.sub(r" [0-9.]+ m?s(?= |\n)", " TIME", out)
    assert "● scout look  #3\n  ● read README.md\n  ⎿ found  TIME\n" in shown
    assert "⎿ found  TIME\n    2 turns · 30 tokens · $0.0300 · TIME\n" in shown
    assert "2 turns · 40 tokens in, 20 out · $0.0600 · TIME active" in shown
    bill = lines(runs("usage", "s", "--json")[1])[0]
    (of_child,) = bill["children"]
    parts = (bill["total"], bill["own"], of_child["total"])
    assert [part["cost_usd"] for part in parts] == [0.06, 0.03, 0.03]
    assert (bill["total"]["turns"], of_child["agent"], of_child["models"][0]["tokens"]) == (2, "scout", 30)
    rows = [[row[0], row[-1]] for row in columns(runs("usage", "s")[1]) if "tools" not in row[0]]
    assert rows == [
        ["s", "$0.0600"],
        ["  openai:dear", "$0.0300"],
        [f"  {of_child['session']}", "$0.0300"],
        ["    openai:dear", "$0.0300"],
    ]
    assert [row[0] for row in columns(runs("sessions")[1])] == ["s", f"  {of_child['session']}"]
    assert runs("delete", "--yes", "s")[1] == "deleted s and 1 child session\n"


@pytest.mark.usefixtures("_scout")
def test_what_a_child_asks_is_asked_of_its_parent(
    runs: Runs, model: Callable[..., str], typed: Callable[..., None]
) -> None:
    """By its number behind its parent's; the run rests on it, and goes on when it is answered."""
    url = model(SENDS, WRITES, says("written"), says("so it is"))
    code, _, err = runs("run", "--session", "s", "--base-url", url, "go")
    assert (code, "  #3-2  write out.txt\n" in err) == (Exit.RESTS, True)
    assert runs("approve", "s", "3-2")[1] == "approved: #3-2 write out.txt\n"
    code, out, _ = runs("run", "--resume", "s", "--base-url", url)
    assert (code, Path("out.txt").read_text("utf-8")) == (0, "one\ntwo\n")
    assert re.search(r"^#3-2 was answered by \S+ \(approve\): yes$", out, re.MULTILINE)
    typed("go")
    code, out, _ = runs("chat", "t", "--base-url", model(SENDS, WRITES))
    assert code == Exit.RESTS
    assert "? write out.txt  #3-2\n    nothing changes\n  asked by scout\n" in out


def test_another_model_takes_over(runs: Runs, model: Callable[..., str]) -> None:
    """Where the first one cannot answer; it holds for the session until it is told anew."""
    url = model(401, says("one"), says("two"), says("three"))
    told = ["--model", "openai:x", "--base-url", url, "--fallback", "openai:y=1000,1000"]
    code, out, _ = runs("run", "--session", "s", *told, "go")
    assert code == 0
    assert re.search(r"^auth: .*\nfrom now on openai:y answers in place of openai:x,", out, re.MULTILINE)
    assert "1 turn · 10 tokens in, 5 out · $0.0150 · " in out
    for more, name in (([], "openai:y"), (["--fallback", ""], "")):
        runs("run", "--resume", "s", "--base-url", url, *more, "on")
        assert opened()[-1].config.fallback == name


MISTAKES: dict[str, tuple[list[str], str]] = {
    "nothing": (["run"], "nothing to do: give a prompt"),
    "an empty prompt": (["run", " "], "the prompt is empty"),
    "a prompt that is no text": (["run", "\udcff"], "no valid text"),
    "no such session": (["run", "--resume", "none", "hi"], "no session 'none'"),
    "two sessions": (["run", "--resume", "a", "--session", "b", "hi"], "give one of them"),
    "a session that is there": (["run", "--session", "old", "hi"], "'old' is there already"),
    "nothing to resume": (["run", "--resume", "old"], "is over (end_turn); give a prompt"),
    "no question": (["approve", "old", "all"], "no open question 'all'; open: none"),
    "no question of that name": (["deny", "asked", "99"], "no open question '99'; open: 'CALL'"),
    "a yes twice over": (["approve", "asked", "all", "--edit", "{}", "--always"], "leave out --edit"),
    "always where": (["approve", "asked", "all", "--where", "path=x"], "give both"),
    "where what": (["approve", "asked", "all", "--always", "--where", "x"], "says nothing of arguments"),
    "nobody to speak to": (["send", "none", "hi"], "no session 'none'"),
    "nothing to say": (["send", "old", " "], "the prompt is empty"),
    "nothing to steer with": (["steer", "old", ""], "the prompt is empty"),
    "nothing to change": (["control", "old"], "give --model, --mode or --think"),
    "no such mode": (["control", "old", "--mode", "yolo"], "'yolo' is not one of"),
    "no thought": (["control", "old", "--think", "0"], "'0' is no number of tokens"),
    "a model that the stand-in is not": (["control", "old", "--model", "openai:x"], "begin another one"),
    "a wire that is none": (["control", "asked", "--model", "gork:x"], "no wire 'gork'"),
    "a stand-in for a model": (["control", "asked", "--model", "openai:stand-in"], "by no others"),
    "nothing to stop": (["interrupt", "old"], "session 'old' has no run under way"),
    "no such call": (["cancel", "asked", "99"], "no call '99' under way; there are: 'CALL'"),
    "no such call to tell of": (["why", "asked", "99"], "no call '99' in session 'asked'; there are: "),
    "no session to tell of": (["why", "none", "1"], "no session 'none'"),
    "no questions of nobody": (["questions", "none"], "no session 'none'"),
    "a hook that is none": (["run", "--hook", "pre_tool_use", "hi"], "is no hook; write EVENT=COMMAND"),
    "a hook nowhere": (["run", "--hook", "often=true", "hi"], "there is no hook 'often'; there are: "),
    "a hook about no call": (["run", "--hook", "stop:bash=true", "hi"], "'stop' is about no call"),
    "a hook that is not there": (
        ["run", "--hook", "stop=./none.sh", "hi"],
        "is not there, or may not be run",
    ),
    "a hook and none": (["run", "--hook", "stop=true", "--no-hooks", "hi"], "give one of them"),
    "an open quote": (["run", "--hook", "stop='true", "hi"], "cannot be read: No closing quotation"),
    "yes to nothing": (["run", "--yes", "--mode", "dont_ask", "hi"], "asks none; give one of them"),
    "a model without a name": (["run", "--also-model", "=1,2", "hi"], "names no model"),
    "two models of one name": (
        ["run", "--also-model", "openai:y", "--also-model", "openai:y", "hi"],
        "two models of one name",
    ),
    "an empty name for a chat": (["chat", "--model", "gork:x"], "no wire 'gork'"),
    "no such tool": (["run", "--tools", "read,fly", "hi"], "no tool 'fly'; there are: read, "),
    "a rule for no tool": (["run", "--allow", "fly", "hi"], "'fly', which is no tool of this run"),
    "a rule for a tool left out": (
        ["run", "--tools", "read", "--allow", "bash", "hi"],
        "'bash', which is no tool",
    ),
    "a rule for no argument": (["run", "--allow", "write:file=a", "hi"], "'write' takes: path, content"),
    "a rule that is none": (["run", "--allow", "write:path", "hi"], "is no rule"),
    "a price that is none": (["run", "--price", "1", "hi"], "is no price"),
    "a price below nothing": (["run", "--price=-1,1", "hi"], "is no price"),
    "money that is none": (["run", "--max-usd", "much", "hi"], "'much' is no number more than 0"),
    "endless money": (["run", "--max-usd", "inf", "hi"], "'inf' is no number more than 0"),
    "no turns": (["run", "--max-turns", "0", "hi"], "--max-turns"),
    "money without a price": (
        ["run", "--model", "openai:x", "--max-usd", "1", "hi"],
        "what 'openai:x' costs; say it with --price",
    ),
    "no such folder": (["run", "--cwd", "nowhere", "hi"], "'nowhere' does not exist"),
    "another model for the stand-in": (
        ["run", "--stand-in", "--model", "openai:x", "hi"],
        "cannot play 'openai:x'",
    ),
    "another address for the stand-in": (
        ["run", "--stand-in", "--base-url", "http://x", "hi"],
        "leave out --base-url",
    ),
    "two ways to show": (["run", "--json", "--quiet", "hi"], "give one of them"),
    "no such session to delete": (["delete", "--yes", "old", "none"], "no session 'none'"),
    "two sessions, one of them the newest": (["run", "--continue", "--resume", "a", "hi"], "and not 'a'"),
    "a chat with two sessions": (["chat", "a", "--continue"], "and not 'a'; give one of them"),
    "nothing here to go on with": (["run", "--continue", "--cwd", "/", "hi"], "worked in '/'; begin one"),
    "an empty title": (["run", "--title", " ", "hi"], "the title is empty"),
    "nobody else to fall back on": (
        ["run", "--model", "openai:x", "--fallback", "openai:x", "hi"],
        "another one than 'openai:x'",
    ),
    "a fallback without a name": (["run", "--fallback", "=1,2", "hi"], "names no model"),
    "no runs of nobody": (["runs", "none"], "no session 'none'"),
    "no such run": (["branch", "old", "x"], "no run 'x' in this session; there are: '"),
    "any run": (["branch", "old", ""], "no run '' in this session"),
    "a branch of what is not over": (["branch", "asked", "start"], "'asked' has a run under way"),
    "a fork of what is not over": (["fork", "asked"], "'asked' has a run under way"),
    "a fork that is there": (["fork", "old", "asked"], "'asked' already exists"),
    "no bill of nobody": (["usage", "none"], "no session 'none'"),
    "no document of nobody": (["export", "none"], "no session 'none'"),
    "a file that cannot be": (["export", "old", "-o", "no/where"], "cannot write 'no/where'"),
    "no span": (["prune", "--older-than", "soon"], "'soon' is no span of time"),
    "no time at all": (["prune", "--older-than", "0d"], "'0d' is no span of time"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_and_code_2(name: str, runs: Runs, model: Callable[..., str]) -> None:
    """It says what is wrong and the way out, without a traceback."""
    runs("run", "--session", "old", "hello")
    asked = model(WRITES)
    runs("run", "--session", "asked", "--model", "openai:y", "--base-url", asked, "go")
    arguments, message = MISTAKES[name]
    call = re.findall(r"#(\d+)", runs("questions", "asked")[1])[0]
    code, out, err = runs(*arguments)
    assert (code, out) == (2, "")
    assert message.replace("CALL", call) in err
    assert "Traceback" not in err


def test_a_prompt_for_an_unfinished_run_is_refused(runs: Runs, model: Callable[..., str]) -> None:
    """The run comes first, and the command that ends it is there."""
    url = model(WRITES)
    rest(runs, url)
    code, _, err = runs("run", "--resume", "s", "--base-url", url, "next")
    assert code == 2
    assert "has an unfinished run; end it first: turnwheel run --resume s" in err


def test_an_unfinished_run_may_go_on_with_another_model(runs: Runs, model: Callable[..., str]) -> None:
    """From its next call on."""
    url = model(WRITES, says("ok"))
    rest(runs, url)
    runs("approve", "s", "all")
    code, out, _ = runs("run", "--resume", "s", "--base-url", url, "--model", "openai:x", "--json")
    called = [json.loads(line).get("model") for line in out.splitlines() if '"ModelCalled"' in line]
    assert (code, called) == (0, ["openai:x"])


def test_a_store_that_cannot_be_read_is_an_error_of_the_world(runs: Runs, tmp_path: Path) -> None:
    """One line, and code 1."""
    broken = tmp_path / "broken.db"
    broken.write_text("no database" * 100, "utf-8")
    code, _, err = runs("run", "--store", str(broken), "hi")
    assert (code, err.count("\n")) == (1, 1)
    assert "file is not a database" in err


def test_where_to_look_is_shown_to_whoever_asks(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TURNWHEEL_DEBUG an error is raised as it is."""
    monkeypatch.setenv("TURNWHEEL_DEBUG", "1")
    with pytest.raises(LookupError):
        runs("run", "--resume", "none", "hi")


def test_without_the_extra_it_says_how_to_install_it() -> None:
    """The library works without click and rich; the command names what is missing."""
    for missing in ("click", "rich"):
        code = f"""
import sys
sys.modules[{missing!r}] = None
from turnwheel.apps.cli import main
sys.exit(main([]))"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"the command line needs '{missing}': pip install 'turnwheel[cli]'\n"


def test_the_prompt_may_come_from_a_pipe(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash stands for it; bytes that are no text are refused."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("hallö".encode())))
    code, out, _ = runs("run", "--tools", "", "-")
    assert code == 0
    assert "> hallö" in out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert runs("run", "-")[0] == 2


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ({}, "openai:stand-in"),
        ({"TURNWHEEL_MODEL": "openai:stand-in-bash"}, "openai:stand-in-bash"),
    ],
)
def test_without_a_key_the_stand_in_is_asked(
    told: dict[str, str], asked: str, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the environment names a model."""
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert runs("run", "--session", "s", "hello")[0] == 0
    assert [entry.config.model.name for entry in opened()] == [asked]


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        (["OPENAI_API_KEY"], "openai:gpt-5"),
        (["ANTHROPIC_API_KEY"], "anthropic:claude-sonnet-4-5"),
        (["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], "openai:gpt-5"),
    ],
)
def test_with_a_key_its_model_is_asked(keys: list[str], asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI's where there are both."""
    for name in keys:
        monkeypatch.setenv(name, "k")
    assert model_of(RunOptions(prompt="hi", store=Path("s")), None) == asked


def test_a_model_is_asked_on_the_wire_of_its_name(runs: Runs, model: Callable[..., str]) -> None:
    """At the address one gives; what comes back from the wrong kind of server is an error, told as one."""
    code, out, err = runs("run", "--base-url", model(404), "--model", "anthropic:x", "hello")
    assert (code, "anthropic:x" in out) == (1, True)
    assert "it is so" in err


def test_with_an_address_the_usual_model_is_asked(runs: Runs, model: Callable[..., str]) -> None:
    """A server was named, so somebody is there."""
    assert runs("run", "--session", "s", "--base-url", model(says("hi")), "hello")[0] == 0
    assert [entry.config.model.name for entry in opened()] == ["openai:gpt-5"]


# Chatting through a pipe


@final
class Talk:
    """`turnwheel chat --json` with *arguments*, in a process of its own, spoken to line by line."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "turnwheel.apps.cli", "chat", "--json", *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.notices: list[dict[str, Any]] = []

    def say(self, line: str) -> None:
        """Type *line*."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def until(self, kind: str) -> dict[str, Any]:
        """The next notice that is a *kind*."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            notice: dict[str, Any] = json.loads(line)
            self.notices.append(notice)
            if notice["type"] == kind:
                return notice
        pytest.fail(f"no {kind}: {self.process.communicate()}")

    def ends(self) -> tuple[int, str]:
        """No more lines: the exit code, and what was told on stderr."""
        out, err = self.process.communicate(timeout=30)
        self.notices += map(json.loads, out.splitlines())
        return self.process.returncode, err


@pytest.fixture
def talks() -> Iterator[Callable[..., Talk]]:
    """Begins talks, and ends what is left of them."""
    begun: list[Talk] = []

    def begin(*arguments: str) -> Talk:
        begun.append(Talk(*arguments))
        return begun[-1]

    yield begin
    for talk in begun:
        if talk.process.poll() is None:
            talk.process.kill()
        talk.process.communicate()


BASH = ("--model", "openai:stand-in-bash")


def test_each_line_of_a_pipe_is_a_prompt(runs: Runs, typed: Callable[..., None]) -> None:
    """Answered one after the other, blank ones left out; then it is over."""
    typed("hello", "", "How long is README.md?", "what did you do?")
    code, out, err = runs("chat", "s")
    assert (code, err) == (0, "")
    assert re.findall("^> (.*)", out, re.MULTILINE) == ["hello", "How long is README.md?", "what did you do?"]
    assert "README.md has 1 lines" in out
    assert "I made 1 tool call: read x1." in out
    typed("thanks")
    code, out, _ = runs("chat", "s")
    assert (code, out.count("I made 1 tool call")) == (0, 1)  # how it ended last time
    assert [entry.config.model.name for entry in opened()] == ["openai:stand-in"] * 4


def test_a_pipe_that_ends_at_a_question_leaves_the_run_resting(
    runs: Runs, typed: Callable[..., None]
) -> None:
    """It says what is asked and how that is answered, and the next chat goes on."""
    typed("Write a report to R.md", "hello")
    code, out, err = runs("chat", "s", "--instructions", "")
    call = re.findall(r"\? write R.md  #(\d+)", out)[0]
    assert (code, Path("R.md").exists()) == (3, False)
    assert "y yes   n no   a always   e edit   s no, and stop" in out
    assert err == (
        f"the run rests on 1 question:\n  #{call}  write R.md\n"
        "answer with: turnwheel approve s CALL, or deny; CALL may be all\n"
        "1 prompt waiting\ngo on with: turnwheel chat s\n"
    )
    runs("approve", "s", call)
    typed()
    code, out, _ = runs("chat", "s")
    assert (code, Path("R.md").exists()) == (0, True)
    assert "I am the scripted stand-in" in out


def test_with_yes_nothing_rests(runs: Runs, typed: Callable[..., None]) -> None:
    """Not even where there is nobody left to ask."""
    typed("Write a report to R.md")
    assert runs("chat", "--yes")[0] == 0
    assert Path("R.md").exists()


def test_a_program_answers_steers_and_changes_settings(talks: Callable[..., Talk]) -> None:
    """Line by line, as it reads what goes on."""
    talk = talks(*BASH, "--parallel")
    talk.say("run: echo one and run: sleep 600")
    first, second = (talk.until("ApprovalRequested")["call"].rpartition("-")[2] for _ in range(2))
    talk.say("y")
    talk.say("e all")
    talk.say(f"e {first}")
    talk.say(f"y {second}")
    talk.say(f"y {first}")
    assert talk.until("ToolEnded")["content"] == "one\n[exit code 0]"
    talk.until("ToolStarted")
    talk.say("thanks anyway")
    talk.until("InputReceived")
    talk.say(f"/cancel {second}")
    assert talk.until("ToolEnded")["outcome"] == "cancelled"
    talk.say("/mode plan")
    talk.until("RunEnded")
    talk.until("RunStarted")
    talk.until("RunEnded")
    talk.say("run: touch made")
    assert talk.until("ToolEnded")["outcome"] == "denied"
    talk.until("RunEnded")
    talk.say("/queue")
    talk.say("/quit")
    code, err = talk.ends()
    assert code == 0
    assert f"2 questions are open: say which one, {first} or {second}, or all" in err
    assert "one at a time: say which one" in err
    assert f'write the arguments behind it: e {first} {{"command": "echo one"}}' in err
    assert "> /queue\nno prompt waits" in err
    assert not Path("made").exists()


@pytest.mark.parametrize(("sign", "ends"), [("!", "cancelled"), ("!>", "ok"), ("!>>", "ok")])
def test_a_run_is_steered_by_a_line(sign: str, ends: str, talks: Callable[..., Talk]) -> None:
    """Now, after what runs, or when all is done; what comes after it runs only in the last case."""
    os.mkfifo("fifo")
    talk = talks(*BASH, "--allow", "bash")
    talk.say("run: cat fifo and run: echo two")
    talk.until("ToolStarted")
    talk.say(f"{sign}stop")
    talk.until("InputReceived")
    if sign != "!":
        Path("fifo").write_text("one", "utf-8")
    taken = talk.until("InputTaken")
    assert taken["messages"][0]["parts"][0]["text"] == "stop"
    outcomes = [notice["outcome"] for notice in talk.notices if notice["type"] == "ToolEnded"]
    assert sorted(outcomes) == sorted([ends, "ok" if sign == "!>>" else "skipped"])
    talk.until("RunEnded")
    assert talk.ends() == (0, "")


def test_what_was_typed_is_worked_off_after_a_kill(runs: Runs, talks: Callable[..., Talk]) -> None:
    """It was in the journal before the process died; an unsafe call that ran is not run again."""
    os.mkfifo("fifo")
    talk = talks("s", *BASH, "--allow", "bash")
    talk.say("run: cat fifo")
    talk.until("ToolStarted")
    talk.say("run: touch made")
    talk.until("InputReceived")
    talk.process.send_signal(signal.SIGKILL)
    talk.ends()
    assert "s  unfinished  1" in runs("sessions")[1]
    again = talks("s")
    code, err = again.ends()
    assert code == 0
    assert "recovered: bash cat fifo - it may have run and is not run again" in err
    assert Path("made").exists()


def test_what_others_send_to_an_open_chat_is_worked_off(runs: Runs, talks: Callable[..., Talk]) -> None:
    """Also where nothing goes on in it."""
    talk = talks("s")
    talk.say("hello")
    talk.until("RunEnded")
    assert runs("send", "s", "thanks")[0] == 0
    taken = talk.until("InputTaken")
    assert taken["messages"][0]["parts"][0]["text"] == "thanks"
    talk.until("RunEnded")
    assert talk.ends()[0] == 0


def test_a_run_that_others_began_is_theirs(runs: Runs, talks: Callable[..., Talk]) -> None:
    """An open chat says so and leaves it alone, and what is typed waits for it."""
    talk = talks("s")
    talk.say("hello")
    talk.until("RunEnded")
    assert runs("run", "--resume", "s", "Write a report to R.md")[0] == 3
    assert talk.process.stderr is not None
    assert talk.process.stderr.readline() == f"{ELSEWHERE}\n"
    talk.say("thanks")
    code, err = talk.ends()
    assert (code, "rests on 1 question" in err) == (3, True)
    runs("approve", "s", "all")
    code, out, _ = runs("run", "--resume", "s")
    assert (code, "> thanks" in out) == (0, True)


def test_a_run_that_another_process_takes_over_is_left(runs: Runs, talks: Callable[..., Talk]) -> None:
    """Only one can go on, and the other one says so."""
    talk = talks("s")
    talk.say("Write a report to R.md")
    talk.until("ApprovalRequested")
    assert runs("run", "--resume", "s")[0] == 3
    talk.process.wait(30)
    code, err = talk.ends()
    assert (code, "another process went on with it" in err) == (1, True)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/fly", "no command '/fly'; there are: /cancel, /help"),
        ("/quit now", "/quit stands alone; got 'now'"),
        ("/mode yolo", "there is no mode 'yolo'; there are: default, "),
        ("/model openai:x", "no switch to 'openai:x': this session asks the scripted stand-in"),
        ("/think little", "'little' is no number of tokens to think"),
        ("/cancel 7", "no call '7' under way; there are: none"),
        ("/why 7", "no session 's' in this store"),
        ("/why", "/why says nothing; write what it shall say behind it"),
        ("! ", "! says nothing"),
    ],
)
def test_a_line_that_means_nothing_is_told_so(
    line: str, told: str, runs: Runs, typed: Callable[..., None]
) -> None:
    """On stderr, and the chat goes on."""
    typed(line, "hello")
    code, out, err = runs("chat", "s")
    assert (code, "I am the scripted stand-in" in out) == (0, True)
    assert told in err


def test_help_in_a_chat_is_the_help_of_the_command(runs: Runs, typed: Callable[..., None]) -> None:
    """Every line of it."""
    typed("/help")
    _, _, err = runs("chat")
    _, out, _ = runs("chat", "--help")
    for line in err.splitlines()[1:]:
        assert line.strip() in out


def test_the_chat_ends_with_the_code_of_its_last_run(
    runs: Runs, typed: Callable[..., None], model: Callable[..., str]
) -> None:
    """As a script wants it."""
    for reply, code in ((says("ok"), 0), (401, 1)):
        typed("go")
        assert runs("chat", "--base-url", model(reply))[0] == code
