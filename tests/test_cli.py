"""The command line: what it prints where nobody looks, what it tells the shell, and how it takes mistakes."""

from __future__ import annotations

import asyncio
import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, final

import pytest

from turnwheel import DoneReason, Grant, SQLiteStore
from turnwheel.apps.cli import main
from turnwheel.apps.commands import turnwheel
from turnwheel.apps.exits import BY_REASON, MEANS, Exit, table
from turnwheel.apps.gist import essence, gist, preview, took
from turnwheel.apps.listing import age
from turnwheel.apps.plain import clean, first_lines, one_line
from turnwheel.apps.screen import Screen
from turnwheel.apps.terminal import Terminal
from turnwheel.apps.values import rule
from turnwheel.apps.wrap import Wrap
from turnwheel.effects.events import Failure
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import (
    AnswerDropped,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    InterruptRequested,
    Notice,
    ReasoningDelta,
    RetryScheduled,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Warned,
)
from turnwheel.engine.codec import decode
from turnwheel.engine.entries import Entry, RunOpened

ROOT = Path(__file__).resolve().parent.parent
ESCAPE = re.compile(r"\x1b")

Outputs = tuple[int, str, str]
Runs = Callable[..., Outputs]


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own, a store beside it, and no key."""
    for name in ("OPENAI_API_KEY", "TURNWHEEL_MODEL", "TURNWHEEL_DEBUG"):
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
    """Gives the *replies* one by one, the last of them for ever; an int is a status."""

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
    "a question": ([WRITES], [], Exit.RESTS),
    "a question, allowed": ([WRITES, says("ok")], ["--allow", "write:path=*.txt"], Exit.ENDED),
    "a question, allowed elsewhere": ([WRITES], ["--allow", "write:path=*.md"], Exit.RESTS),
    "everything allowed": ([WRITES, says("ok")], ["--yes"], Exit.ENDED),
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


def test_docs_show_every_option(runs: Runs) -> None:
    """An option that is not on the page was forgotten."""
    del runs
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    options = {option for parameter in turnwheel.commands["run"].params for option in parameter.opts}
    assert {option for option in options if option.startswith("--") and f"`{option}" not in page} == set()


# What programs read


def test_json_is_one_notice_per_line_and_nothing_else(runs: Runs) -> None:
    """Every line is read back as the notice it was, from the first to the last of the run."""
    code, out, err = runs("run", "--json", "--stand-in", "--allow", "write", "Write a report to R.md")
    notices = [decode(line.encode(), Notice) for line in out.splitlines()]
    assert code == 0
    assert {type(notice) for notice in notices} <= set(typing.get_args(Notice))
    assert [type(notices[0]).__name__, type(notices[-1]).__name__] == ["RunStarted", "RunEnded"]
    assert err == ""


def test_json_never_asks_and_says_how_to_go_on_elsewhere(runs: Runs, model: Callable[..., str]) -> None:
    """A question is a notice; what a person has to do about it goes to stderr."""
    code, out, err = runs("run", "--json", "--session", "s", "--base-url", model(WRITES), "go")
    asked = json.loads(out.splitlines()[-1])
    assert (code, asked["type"], asked["tool"]) == (3, "ApprovalRequested", "write")
    assert asked["request"] in err
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


def rest(runs: Runs, url: str) -> str:
    """Let session ``s`` rest on a question to write; returns the question's id."""
    code, out, _ = runs("run", "--json", "--session", "s", "--base-url", url, "go")
    assert code == 3
    request: str = json.loads(out.splitlines()[-1])["request"]
    return request


@pytest.mark.parametrize("answer", ["--approve=REQUEST", "--approve=all"])
def test_a_question_is_answered_yes_later(answer: str, runs: Runs, model: Callable[..., str]) -> None:
    """By its id or with all there are, in another process if need be."""
    url = model(WRITES, says("it is written"))
    request = rest(runs, url)
    assert not Path("out.txt").exists()
    code, out, _ = runs("run", "--resume", "s", "--base-url", url, answer.replace("REQUEST", request))
    assert (code, Path("out.txt").read_text("utf-8")) == (0, "one\ntwo\n")
    assert "● write out.txt" in out
    assert "it is written" in out


def test_a_question_is_answered_no_later(runs: Runs, model: Callable[..., str]) -> None:
    """The model reads why."""
    url = model(WRITES, says("as you wish"))
    request = rest(runs, url)
    code, out, _ = runs("run", "--resume", "s", "--base-url", url, "--deny", f"{request}: not today")
    assert (code, Path("out.txt").exists()) == (0, False)
    assert "⎿ not today" in out


def test_yes_answers_what_waits_and_what_comes(runs: Runs, model: Callable[..., str]) -> None:
    """Also in a run that began without it."""
    url = model(WRITES, wants("write", path="more.txt", content=""), says("ok"))
    rest(runs, url)
    assert runs("run", "--resume", "s", "--base-url", url, "--yes")[0] == 0
    assert Path("more.txt").exists()


def test_without_an_answer_it_rests_again(runs: Runs, model: Callable[..., str]) -> None:
    """And the question is the same one."""
    url = model(WRITES)
    request = rest(runs, url)
    code, _, err = runs("run", "--resume", "s", "--base-url", url)
    assert code == 3
    assert f"{request}  write out.txt" in err


def test_an_answer_to_no_question_is_refused(runs: Runs, model: Callable[..., str]) -> None:
    """It names those that are open."""
    url = model(WRITES)
    request = rest(runs, url)
    code, _, err = runs("run", "--resume", "s", "--base-url", url, "--approve", "x-1")
    assert (code, err) == (2, f"turnwheel: no open question 'x-1'; open: '{request}'\n")


# Sessions


def opened(session: str = "s") -> list[RunOpened]:
    """How the runs of *session* in the store were begun."""

    async def load() -> list[RunOpened]:
        store = SQLiteStore(os.environ["TURNWHEEL_STORE"])
        entries = [decode(data, Entry) for data in await store.load(session)]
        await store.close()
        return [entry for entry in entries if isinstance(entry, RunOpened)]

    return asyncio.run(load())


def test_a_session_goes_on_as_it_was_set_up(runs: Runs, model: Callable[..., str]) -> None:
    """Model, system, tools, limits, price and rules need not be told again; a yes to everything has to be."""
    url = model(says("one"), says("two"))
    told = ["--model", "openai:x", "--system", "be", "--tools", "read,write", "--max-turns", "7"]
    told += ["--price", "1,2", "--allow", "write:path=a", "--parallel", "--yes"]
    assert runs("run", "--session", "s", "--base-url", url, *told, "first")[0] == 0
    assert runs("run", "--resume", "s", "--base-url", url, "second")[0] == 0
    first, second = (entry.config for entry in opened())
    assert (first.model, first.system, first.tools) == (second.model, second.system, second.tools)
    assert (first.limits.turns, second.limits.turns) == (7, 7)
    assert second.allow == (Grant(tool="write", where=(("path", "a"),)),)
    assert (str(first.policy.mode), str(second.policy.mode)) == ("bypass", "default")


def test_our_system_prompt_names_the_folder_of_this_very_run(runs: Runs, tmp_path: Path) -> None:
    """Not that of the run before."""
    assert runs("run", "--session", "s", "hello")[0] == 0
    other = tmp_path / "other"
    other.mkdir()
    assert runs("run", "--resume", "s", "--cwd", str(other), "hello")[0] == 0
    systems = [entry.config.system for entry in opened()]
    assert [str(Path.cwd()) in systems[0], str(other) in systems[1]] == [True, True]


def test_sessions_are_listed_last_active_first(runs: Runs, model: Callable[..., str]) -> None:
    """With how many runs they had, where they are and how they began."""
    runs("run", "--session", "a", "hello")
    runs("run", "--resume", "a", "hi")
    rest(runs, model(WRITES))
    _, out, _ = runs("sessions", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [(row["session"], row["runs"], row["state"], row["prompt"]) for row in found] == [
        ("s", 1, "confirming: 1 question", "go"),
        ("a", 2, "done: end_turn", "hello"),
    ]
    _, plain, _ = runs("sessions")
    assert [line.split()[0] for line in plain.splitlines()] == ["s", "a"]
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
    """It is listed with what is wrong, can be deleted, and resuming it is one line of error."""
    runs("run", "--session", "good", "hello")
    asyncio.run(store_entries("bad\x1b[2J", entry))
    code, out, _ = runs("sessions")
    assert code == 0
    assert "cannot be read" in out
    assert "good" in out
    assert not ESCAPE.search(out)
    code, _, err = runs("run", "--resume", "bad\x1b[2J", "hi")
    assert (code, err.count("\n")) == (1, 1)
    assert runs("sessions", "delete", "--yes", "bad\x1b[2J")[0] == 0
    assert "cannot be read" not in runs("sessions")[1]


def test_deleting_asks_first(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is a no."""
    runs("run", "--session", "a", "hello")
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    code, _, err = runs("sessions", "delete", "a")
    assert code == Exit.INTERRUPTED
    assert "for good?" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert runs("sessions", "delete", "a")[:2] == (0, "deleted a\n")
    assert runs("sessions")[1] == "no sessions yet\n"


# Mistakes

MISTAKES: dict[str, tuple[list[str], str]] = {
    "nothing": (["run"], "nothing to do: give a prompt"),
    "an empty prompt": (["run", " "], "the prompt is empty"),
    "a prompt that is no text": (["run", "\udcff"], "no valid text"),
    "no such session": (["run", "--resume", "none", "hi"], "no session 'none'"),
    "two sessions": (["run", "--resume", "a", "--session", "b", "hi"], "give one of them"),
    "a session that is there": (["run", "--session", "old", "hi"], "'old' is there already"),
    "nothing to resume": (["run", "--resume", "old"], "is over (end_turn); give a prompt"),
    "no question": (
        ["run", "--resume", "old", "--approve", "all", "hi"],
        "no question of session 'old' is open",
    ),
    "an answer without a session": (["run", "--approve", "all", "hi"], "say which one with --resume"),
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
    "no such session to delete": (["sessions", "delete", "--yes", "none"], "no session 'none'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_and_code_2(name: str, runs: Runs) -> None:
    """It says what is wrong and the way out, without a traceback."""
    runs("run", "--session", "old", "hello")
    arguments, message = MISTAKES[name]
    code, out, err = runs(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_prompt_for_an_unfinished_run_is_refused(runs: Runs, model: Callable[..., str]) -> None:
    """The run comes first, and the command that ends it is there."""
    url = model(WRITES)
    rest(runs, url)
    code, _, err = runs("run", "--resume", "s", "--base-url", url, "next")
    assert code == 2
    assert "has an unfinished run; end it first: turnwheel run --resume s" in err


def test_another_model_for_an_unfinished_run_is_refused(runs: Runs, model: Callable[..., str]) -> None:
    """It would not be asked."""
    url = model(WRITES)
    rest(runs, url)
    for told in (["--base-url", url, "--model", "openai:x"], ["--stand-in"]):
        code, _, err = runs("run", "--resume", "s", *told)
        assert (code, "goes on with 'openai:gpt-5'" in err) == (2, True)


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


def test_with_an_address_the_usual_model_is_asked(runs: Runs, model: Callable[..., str]) -> None:
    """A server was named, so somebody is there."""
    assert runs("run", "--session", "s", "--base-url", model(says("hi")), "hello")[0] == 0
    assert [entry.config.model.name for entry in opened()] == ["openai:gpt-5"]


# The face, on its own


def shown(*notices: Notice) -> str:
    """What a person is shown of *notices* in a pipe."""
    file = io.StringIO()
    face = Terminal(Screen(file))
    for notice in notices:
        face.notice(notice)
    return file.getvalue()


STARTED = ToolStarted(call="c", tool="read", arguments='{"path": "a"}')
ENDED = ToolEnded(call="c", tool="read", outcome=Outcome.OK, content="     1\tx", seconds=1.25)
SHOWN: dict[str, tuple[list[Notice], str]] = {
    "text as it came": ([TextDelta("one "), TextDelta("two\n"), TextDelta("three")], "one two\nthree"),
    "text, then a call": ([TextDelta("look"), STARTED, ENDED], "look\n\n● read a\n  ⎿ 1 line  1.2 s\n\n"),
    "thinking, then text": ([ReasoningDelta("hm"), TextDelta("\nso")], "hm\nso"),
    "two at once": (
        [STARTED, ToolStarted(call="d", tool="ls", arguments="{}"), ENDED],
        "● read a\n● ls \n● read a\n  ⎿ 1 line  1.2 s\n\n",
    ),
    "a call that did not run": (
        [ToolEnded(call="x", tool="bash", outcome=Outcome.SKIPPED, content="Skipped: why")],
        "● bash \n  ⎿ Skipped: why\n\n",
    ),
    "progress": ([STARTED, ToolProgress(call="c", text="half\nway")], "● read a\n  half way\n"),
    "a retry at once": ([RetryScheduled(attempt=2, due=0.0, failure=Failure.LOST, message="gone")], ""),
    "a broken answer": (
        [TextDelta("hal"), AnswerDropped(request="r")],
        "hal\n\nwhat the model said is void: its answer broke off\n",
    ),
    "an interrupt": ([InterruptRequested()], "stopping; Ctrl-C again leaves at once\n"),
    "a warning": ([Warned(text="odd")], "odd\n"),
    "a summary": (
        [CompactionStarted(size=9_000), Compacted(before=9_000, after=1_000)],
        "summarising the conversation (9,000 tokens)\nsummarised: 9,000 tokens are now 1,000\n",
    ),
    "no summary": ([CompactionFailed(reason="too small")], "the conversation stays as it is: too small\n"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_notice_is_shown_as_a_person_reads_it(name: str) -> None:
    """Whatever follows whatever, lines begin where lines begin."""
    notices, text = SHOWN[name]
    assert shown(*notices) == text


def test_a_retry_says_when() -> None:
    """And why."""
    due = time.time() + 3_600
    text = shown(RetryScheduled(attempt=2, due=due, failure=Failure.OVERLOADED, message="busy"))
    assert re.fullmatch(r"overloaded: busy\n  try 2 in 3(600|5\d\d) s\n", text)


def test_what_comes_during_a_question_is_shown_behind_it() -> None:
    """In the order in which it came."""
    file = io.StringIO()
    face = Terminal(Screen(file))
    face.notice(STARTED)
    face.hold()
    face.notice(ENDED)
    face.notice(Warned(text="odd"))
    assert file.getvalue() == "● read a\n"
    face.release()
    assert file.getvalue() == "● read a\n  ⎿ 1 line  1.2 s\n\nodd\n"


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three four", ["one two", "three four"]),
        ("one\n\n  two three", ["one", "", "  two three"]),
        ("one  two", ["one  two"]),
        ("123456789012 3", ["123456789012 3"]),
        ("日本語日本 本", ["日本語日本", "本"]),
        ("ends ", ["ends"]),
    ],
)
def test_text_is_broken_at_spaces(text: str, lines: list[str], size: int) -> None:
    """However small the bits are in which it comes; what is wider than a line is left to the terminal."""
    wrap = Wrap(lambda: 11)
    bits = [text[at : at + size] for at in range(0, len(text), size)]
    assert "".join([*map(wrap.feed, bits), wrap.end()]) == "\n".join(lines)


def test_a_long_prompt_is_cut() -> None:
    """Whoever wrote it knows it."""
    file = io.StringIO()
    Terminal(Screen(file)).begin("m", "s", "\n".join("abcdefghij"))
    assert file.getvalue() == "m  session s\n> a\nb\nc\nd\ne\nf\n... 4 more lines\n\n"


# The small parts


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("bash", Grant(tool="bash")),
        ("write:path=*.md", Grant(tool="write", where=(("path", "*.md"),))),
        ("x:a=1,2,b=c=d", Grant(tool="x", where=(("a", "1,2"), ("b", "c=d")))),
        ("x:a=", Grant(tool="x", where=(("a", ""),))),
    ],
)
def test_a_rule_is_read(text: str, grant: Grant) -> None:
    """Globs may hold commas and equals signs."""
    assert rule(text) == grant


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("dos\r\nlines", "dos\nlines"),
        ("over\rwritten", r"over\x0dwritten"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b\x00\x7f", r"\x9b\x00\x7f"),
        ("a\u202eb\u2066", r"a\u202eb\u2066"),
        ("\udcff", r"\udcff"),
        ("日本 👩\u200d🔬 é", "日本 👩\u200d🔬 é"),
    ],
)
def test_only_what_a_terminal_obeys_is_changed(raw: str, shown: str) -> None:
    """Controls, C1, what turns the order of reading, halves of characters; never a letter."""
    assert clean(raw) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "width", "line"),
    [
        ("short", 10, "short"),
        ("a\n  b\tc", 10, "a b c"),
        ("0123456789a", 10, "0123456..."),
        ("日本語日本語", 10, "日本語..."),
    ],
)
def test_a_line_fits(text: str, width: int, line: str) -> None:
    """Counted in columns."""
    assert one_line(text, width) == line


def test_lines_beyond_are_counted() -> None:
    """And not shown."""
    assert first_lines("a\nb\nc\n", 2) == (["a", "b"], 1)


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("read", '{"path": "a b", "offset": 3}', "a b"),
        ("grep", '{"pattern": "x", "glob": "*.py"}', "x *.py"),
        ("bash", '{"command": "ls\\nrm x"}', "ls rm x"),
        ("other", '{"n": 1, "s": "t", "l": [true]}', "n=1 s=t l=[true]"),
        ("other", "{", "{"),
        ("other", "{}", ""),
    ],
)
def test_what_a_call_is_about_fits_a_line(tool: str, arguments: str, line: str) -> None:
    """The essential arguments of a tool that is known, all of another."""
    assert essence(tool, arguments, 80) == line


@pytest.mark.parametrize(
    ("tool", "outcome", "content", "line"),
    [
        ("read", Outcome.OK, "     1\ta\n     2\tb", "2 lines"),
        ("read", Outcome.OK, "[the file is empty]", "[the file is empty]"),
        (
            "grep",
            Outcome.OK,
            "a:1: x\n[stopped after 1; narrow the search]",
            "1 match [stopped after 1; narrow the search]",
        ),
        ("ls", Outcome.OK, "a\nb", "2 entries"),
        ("bash", Outcome.OK, "one\ntwo\n[exit code 0]", "two (2 lines)"),
        ("bash", Outcome.OK, "no\n[exit code 1]", "no [exit code 1]"),
        ("bash", Outcome.OK, "[exit code 0]", "no output"),
        ("write", Outcome.OK, "wrote 3 bytes to a", "wrote 3 bytes to a"),
        ("other", Outcome.OK, "one\ntwo\nthree", "one (+2 lines)"),
        ("other", Outcome.OK, "", "no output"),
        ("read", Outcome.ERROR, "Tool raised an exception:\nno", "Tool raised an exception: no"),
    ],
)
def test_what_came_of_a_call_fits_a_line(tool: str, outcome: Outcome, content: str, line: str) -> None:
    """Its size, its end or its beginning, whichever says most."""
    assert gist(tool, outcome, content, 80) == line


def test_a_change_is_shown_as_a_change() -> None:
    """Of a file that is there, what goes and what comes; of a new one, all of it."""
    Path("a.txt").write_text("one\ntwo\n-- three\nfour\n", "utf-8")
    same = json.dumps({"path": "a.txt", "content": "one\ntwo\n-- three\nfour\n"})
    other = json.dumps({"path": "a.txt", "content": "one\nTWO\nfour\n"})
    new = json.dumps({"path": "b.txt", "content": "x\ny"})
    assert preview("write", same, Path()) == [(" ", "nothing changes")]
    assert preview("write", other, Path()) == [
        (" ", "one"),
        ("-", "two"),
        ("-", "-- three"),
        ("+", "TWO"),
        (" ", "four"),
    ]
    assert preview("write", new, Path()) == [("+", "x"), ("+", "y")]


@pytest.mark.parametrize(
    ("tool", "arguments", "lines"),
    [
        ("bash", {"command": "a\nb", "timeout": 3}, [("$", "a"), ("$", "b"), (" ", "timeout: 3")]),
        (
            "edit",
            {"path": "a", "old": "x", "new": "y", "all": True},
            [("-", "x"), ("+", "y"), (" ", "all: true")],
        ),
        ("other", {"a": "1\n2", "b": None}, [(" ", "a: 1"), (" ", "2"), (" ", "b: null")]),
        ("write", {"path": "../../etc", "content": "\x1b"}, [("+", r"\x1b")]),
    ],
)
def test_a_call_is_shown_before_it_is_approved(
    tool: str, arguments: dict[str, object], lines: list[tuple[str, str]]
) -> None:
    """All that it would do, cleaned."""
    assert preview(tool, json.dumps(arguments), Path()) == lines


def test_a_long_preview_is_cut_and_says_so() -> None:
    """A command less soon than a text."""
    text = "\n".join(map(str, range(100)))
    assert preview("bash", json.dumps({"command": text}), Path())[-1] == (" ", "... 40 more lines")
    assert preview("write", json.dumps({"path": "n", "content": text}), Path())[-1] == (
        " ",
        "... 76 more lines",
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "just now"), (60, "1 minute ago"), (7_300, "2 hours ago"), (90_000, "1 day ago")],
)
def test_an_age_is_told_roughly(seconds: float, said: str) -> None:
    """In the largest unit there is one of."""
    assert age(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0001, "1 ms"), (0.0349, "35 ms"), (1.24, "1.2 s"), (59.9, "59.9 s"), (125.2, "2 min 5 s")],
)
def test_a_time_is_told_in_a_unit_that_says_something(seconds: float, said: str) -> None:
    """A read takes milliseconds and a build takes minutes."""
    assert took(seconds) == said
