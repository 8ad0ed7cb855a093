"""The parts of a chat, each on its own: blocks of Markdown, attachments, completions, history, the prompt."""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, final

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.text import Text
from support.patience import PATIENCE

from turnwheel import Approve
from turnwheel.apps.chat.actions import LineActions, Then
from turnwheel.apps.chat.attachments import attach, pasted_text
from turnwheel.apps.chat.call_names import CallNames
from turnwheel.apps.chat.commands import PromptLine, QueueLine, parse_line
from turnwheel.apps.chat.completion import ChatCompleter
from turnwheel.apps.chat.history import MOST_LINES, ChatHistory
from turnwheel.apps.chat.lookups import Lookups
from turnwheel.apps.chat.markdown_blocks import MOST_BLOCK_LINES, MarkdownBlocks
from turnwheel.apps.chat.piped_lines import Typed
from turnwheel.apps.chat.prompt import ChatPrompt
from turnwheel.apps.chat.transcript import ChatTranscript
from turnwheel.apps.chat.view import ChatFace
from turnwheel.apps.cli.run_options import RunOptions
from turnwheel.apps.cli.workspace import Workspace
from turnwheel.apps.terminal.approval_card import argument_problem, error_position
from turnwheel.apps.terminal.diff_view import file_change
from turnwheel.apps.terminal.log_lines import log_lines
from turnwheel.apps.terminal.screen import Screen
from turnwheel.apps.terminal.terminal import Terminal
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import AnswerRefused, ConfigError, TooLarge
from turnwheel.effects.events import Decision
from turnwheel.effects.messages import (
    Message,
    Outcome,
    Role,
    StopReason,
    Text as MessageText,
    ToolCall,
    ToolResult,
    user,
)
from turnwheel.effects.notices import (
    ApprovalRequested,
    CallSettled,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from turnwheel.effects.records import MailKind
from turnwheel.effects.usage import Usage
from turnwheel.effects.validators import MAX_ATTACHED
from turnwheel.performers.logs import LOGGER
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.states.context import Mail

if TYPE_CHECKING:
    from apps.conftest import Paper

PNG = b"\x89PNG\r\n\x1a\n\0\0"


# Markdown in blocks


def blocks(text: str, *, size: int = 1) -> list[str]:
    splitter, found = MarkdownBlocks(), list[str]()
    for start in range(0, len(text), size):
        found += splitter.feed(text[start : start + size])
    return [*found, *splitter.end()]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("one\ntwo\n\nthree", ["one\ntwo", "three"]),
        ("# Head\ntext", ["# Head", "text"]),
        ("text\n## Head", ["text", "## Head"]),
        ("- a\n\n- b\n\ntext", ["- a\n\n- b", "text"]),
        ("1. a\n\n   more\n2. b", ["1. a\n\n   more\n2. b"]),
        ("```py\na\n\n# b\n```\ntext", ["```py\na\n\n# b\n```", "text"]),
        ("text\n~~~~\n```\n~~~\n~~~~~\n", ["text", "~~~~\n```\n~~~\n~~~~~"]),
        ("```\nnot closed", ["```\nnot closed"]),
        ("| a |\n|---|\n| 1 |\n\nend", ["| a |\n|---|\n| 1 |", "end"]),
        ("`a` and ```b```", ["`a` and ```b```"]),
        ("\n\n\n", []),
    ],
)
def test_markdown_is_split_into_blocks_however_it_arrives(text: str, parts: list[str]) -> None:
    assert [blocks(text, size=size) for size in (1, 2, 3, 1_000)] == [parts] * 4


def test_a_block_that_never_ends_is_handed_out_in_parts() -> None:
    lines = [f"line {number}" for number in range(1_000)]
    parts = blocks("\n".join(["```py", *lines]), size=50)
    assert all(part.startswith("```py\n") for part in parts)
    assert all(part.endswith("\n```") for part in parts[:-1])
    assert [line for part in parts for line in part.split("\n") if line.startswith("line")] == lines
    assert max(part.count("\n") for part in parts) <= MOST_BLOCK_LINES + 2
    assert len(blocks("\n".join(lines))) == 1_000 // MOST_BLOCK_LINES


def test_no_text_is_lost_by_splitting() -> None:
    chance = random.Random(7)
    pieces = ["```", "~~~", "- a", "1. b", "text", "", "  in", "# h", "| a |", "\t"]
    for _ in range(200):
        lines = [chance.choice(pieces) for _ in range(chance.randrange(30))]
        found = "\n".join(blocks("\n".join(lines))).split("\n")
        assert [line for line in found if line.strip()] == [line for line in lines if line.strip()]


def test_the_end_of_the_block_in_progress_is_known() -> None:
    splitter = MarkdownBlocks()
    splitter.feed("done\n\none\ntwo\nthr")
    splitter.feed("ee")
    assert splitter.tail(1_000) == "one\ntwo\nthree"
    assert splitter.tail(7) == "o\nthree"


# Attachments


def test_a_named_text_file_goes_into_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", "utf-8")
    (tmp_path / "b c.txt").write_text("three", "utf-8")
    found = attach('compare @a.txt, @a.txt and @"b c.txt".', tmp_path)
    assert found.text == (
        'compare @a.txt, @a.txt and @"b c.txt".\n\n<file path="a.txt">\none\ntwo\n</file>\n\n'
        '<file path="b c.txt">\nthree\n</file>'
    )
    assert (found.files, found.missing) == ((), ())


def test_a_named_picture_goes_beside_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    found = attach("what is in @a.png?", tmp_path)
    assert found.text == "what is in @a.png?"
    assert [(file.name, file.media_type, file.data) for file in found.files] == [("a.png", "image/png", PNG)]


def test_a_word_that_names_no_file_stays_in_the_prompt(tmp_path: Path) -> None:
    found = attach("ask @ann or me@b.c about @x/y.txt and @gone.md", tmp_path)
    assert (found.text, found.files) == ("ask @ann or me@b.c about @x/y.txt and @gone.md", ())
    assert found.missing == ("x/y.txt", "gone.md")


def test_a_named_folder_is_told_and_stays_in_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "src" / "sub").mkdir(parents=True)
    found = attach("what is in @src, and in @src/sub/?", tmp_path)
    assert (found.text, found.files, found.missing) == ("what is in @src, and in @src/sub/?", (), ())
    assert found.folders == ("src", "src/sub/")


def test_a_file_that_no_model_takes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0\1")
    with pytest.raises(ConfigError, match=r"cannot attach 'a.bin': it is a binary file; attach text"):
        attach("@a.bin", tmp_path)
    with (tmp_path / "big").open("wb") as file:
        file.truncate(MAX_ATTACHED + 1)
    with pytest.raises(TooLarge, match=r"the file 'big' has 20,000,001 bytes, and may have 20,000,000"):
        attach("@big", tmp_path)


@pytest.mark.parametrize(
    ("pasted", "inserted"),
    [
        ("a.png", "@a.png "),
        ("'a b.png'", '@"a b.png" '),
        ("a\\ b.png\n", '@"a b.png" '),
        ("file://TMP/a%20b.png", '@"TMP/a b.png" '),
        ("TMP/a.png", "@TMP/a.png "),
        ("gone.png", "gone.png"),
        ("a.txt", "a.txt"),
        ("it's a.png", "it's a.png"),
        ("one\ntwo", "one\ntwo"),
    ],
)
def test_the_pasted_path_of_a_picture_becomes_an_attachment(
    pasted: str, inserted: str, tmp_path: Path
) -> None:
    for name in ("a.png", "a b.png", "a.txt"):
        (tmp_path / name).touch()
    there = str(tmp_path)
    assert pasted_text(pasted.replace("TMP", there), tmp_path) == inserted.replace("TMP", there)


# Completions


@final
class Choices:
    """What a session offers."""

    def models(self) -> Iterable[tuple[str, str]]:
        return [("openai:gpt-5", ""), ("openai:gpt-5-mini", "")]

    def modes(self) -> Iterable[tuple[str, str]]:
        return [("plan", "only reads")]

    def calls(self) -> Iterable[tuple[str, str]]:
        return [("7", "bash"), ("3", "read")]

    def waiting(self) -> Iterable[tuple[str, str]]:
        return [("drop 1", "Then this"), ("edit 1", "Then this")]

    def open_calls(self) -> Iterable[tuple[str, str]]:
        return []

    async def sessions(self) -> Iterable[tuple[str, str]]:
        return [("s1", "'a title'"), ("s2", "")]


async def completed(text: str, cwd: Path) -> list[str]:
    """*text* with each of its completions in place."""
    document, found = Document(text), list[str]()
    async for one in ChatCompleter(Choices(), cwd).get_completions_async(document, CompleteEvent()):
        found.append(text[: len(text) + one.start_position] + one.text)
    return found


async def test_commands_and_their_arguments_are_completed(tmp_path: Path) -> None:
    assert await completed("/mo", tmp_path) == ["/model", "/mode"]
    assert await completed("/model openai:gpt-5-", tmp_path) == ["/model openai:gpt-5-mini"]
    assert await completed("/mode ", tmp_path) == ["/mode plan"]
    assert await completed("/why ", tmp_path) == ["/why 7", "/why 3"]
    assert await completed("/sessions s", tmp_path) == ["/sessions s1", "/sessions s2"]
    assert await completed("/fly ", tmp_path) == []
    assert await completed("text", tmp_path) == []


async def test_paths_are_completed_after_an_at_sign(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("docs/a.md", "docs/b c.md", "d.txt", ".hidden", "odd\x1b"):
        (tmp_path / name).touch()
    assert await completed("read @d", tmp_path) == ["read @d.txt", "read @docs/"]
    assert await completed("read @docs/", tmp_path) == ["read @docs/a.md", 'read @"docs/b c.md"']
    assert await completed('read @"docs/b', tmp_path) == ['read @"docs/b c.md"']
    assert await completed("@.h", tmp_path) == ["@.hidden"]
    assert await completed("@o", tmp_path) == []
    assert await completed("@gone/x", tmp_path) == []
    assert await completed("me@d", tmp_path) == []


# History


async def loaded(history: ChatHistory) -> list[str]:
    return [line async for line in history.load()]


async def test_lines_of_earlier_chats_come_back_newest_first(tmp_path: Path) -> None:
    file = tmp_path / "state" / "chat_history"
    history = ChatHistory(file)
    for line in ("one", "two\nrows"):
        history.append_string(line)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert await loaded(ChatHistory(file, ["before", "one"])) == ["before", "two\nrows", "one"]


async def test_a_history_that_cannot_be_kept_ends_no_chat(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = ChatHistory(tmp_path / "file" / "below")
    history.append_string("one")
    assert await loaded(ChatHistory(tmp_path / "file" / "below", ["mine"])) == ["mine"]
    (tmp_path / "odd").write_bytes(b'"one"\n\xff\n[1]\n"two"\n')
    assert await loaded(ChatHistory(tmp_path / "odd")) == ["two", "one"]
    assert await loaded(ChatHistory(None)) == []


async def test_a_history_does_not_grow_without_end(tmp_path: Path) -> None:
    file = tmp_path / "chat_history"
    file.write_text("".join(f'"{number}"\n' for number in range(2 * MOST_LINES + 1)), "utf-8")
    assert len(await loaded(ChatHistory(file))) == MOST_LINES
    assert len(file.read_text("utf-8").splitlines()) == MOST_LINES


# The prompt


@final
class Around:
    """What stands around a prompt, and what its keys did."""

    def __init__(self) -> None:
        self.pressed: list[str] = []

    def live(self, width: int, rows: int) -> list[Text]:
        return [Text(f"live {width} {rows}", style="bold red")]

    def status(self) -> Text | None:
        return Text("status")

    def bottom(self, width: int) -> Text:
        return Text("bottom"[:width])

    def escaped(self) -> None:
        self.pressed.append("escape")

    def ctrl_c(self) -> None:
        self.pressed.append("ctrl-c")

    def remembers(self, text: str) -> bool:
        return text != "secret"

    def pasted(self, text: str) -> str:
        return f"<{text}>"


@final
class At:
    """A prompt, and the keys that reach it."""

    def __init__(self, prompt: ChatPrompt, keys: PipeInput, around: Around, file: io.StringIO) -> None:
        self.prompt, self.keys, self.around, self.file = prompt, keys, around, file
        self._lines: AsyncGenerator[Typed, None] = prompt.read()

    async def line(self, keys: str) -> str:
        """The line that comes of *keys*."""
        self.keys.send_text(keys)
        async with asyncio.timeout(PATIENCE):
            return (await anext(self._lines)).text

    async def ends(self, keys: str) -> bool:
        self.keys.send_text(keys)
        return await anext(self._lines, None) is None


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # the prompt tells nobody what its keys did
            await asyncio.sleep(0.005)


@asynccontextmanager
async def at_prompt(tmp_path: Path, *before: str) -> AsyncGenerator[At, None]:
    """A prompt with lines from *before*, in a terminal of 80 columns and 24 rows."""
    with create_pipe_input() as keys:
        around, file = Around(), io.StringIO()
        output = Vt100_Output(file, lambda: Size(24, 80), "xterm", enable_cpr=False)
        prompt = ChatPrompt(
            around,
            completer=ChatCompleter(Choices(), tmp_path),
            history=ChatHistory(tmp_path / "history", before),
            keys=keys,
            output=output,
        )
        here = At(prompt, keys, around, file)
        yield here
        assert await here.ends("\x04")


async def test_lines_are_edited_as_in_a_shell(tmp_path: Path) -> None:
    async with at_prompt(tmp_path) as here:
        assert await here.line("abc\x1b[Dx\r") == "abxc"
        assert await here.line("one two\x17three\r") == "one three"
        assert await here.line("one\x1b\rtwo\nthree\r") == "one\ntwo\nthree"
        assert await here.line("gone\x15\x1b[200~a\r\nb\x1b[201~!\r") == "<a\nb>!"
        assert await here.line("gone\nand this\x15kept\r") == "kept"
        assert await here.line("new \nlines\x15\x19\r") == "new \nlines"
        assert await here.line("gone\x01\x0b\r  \rkept\r") == "kept"


async def test_earlier_lines_come_back_by_arrow_and_by_search(tmp_path: Path) -> None:
    async with at_prompt(tmp_path, "first thing", "second") as here:
        assert await here.line("new\r") == "new"
        assert await here.line("secret\r") == "secret"
        await until(lambda: here.prompt.earlier == 3)
        here.keys.send_text("\x1b[A")
        await until(lambda: here.prompt.text == "new")
        assert await here.line("\r") == "new"
        await until(lambda: here.prompt.earlier == 3)
        here.keys.send_text("\x12fir")
        await until(lambda: "st thing" in here.file.getvalue())
        assert "st thingask for" not in here.file.getvalue()
        assert await here.line("\r\r") == "first thing"


async def test_tab_completes(tmp_path: Path) -> None:
    async with at_prompt(tmp_path) as here:
        assert await here.line("one\r") == "one"
        here.keys.send_text("/thi\t")
        await until(lambda: here.prompt.text == "/think")
        assert await here.line(" off\r") == "/think off"


async def test_escape_and_ctrl_c_are_told_and_ctrl_o_shows_a_result(tmp_path: Path) -> None:
    async with at_prompt(tmp_path) as here:
        assert await here.line("kept\x0f") == "/show"
        assert await here.line("\x15 7\x0f") == "/show 7"
        assert await here.line("\x03a\r") == "a"
        here.keys.send_text("\x1b")
        await until(lambda: here.around.pressed == ["ctrl-c", "escape"])


async def test_rows_stand_around_the_line(tmp_path: Path, paper: type[Paper]) -> None:
    async with at_prompt(tmp_path) as here:
        assert await here.line("one\r") == "one"
        here.keys.send_text("half \x1b[200~\x9b2J\x1b[201~")
        sheet = paper(80, 24)
        await until(lambda: "<" in here.prompt.text)
        here.prompt.draw()
        await until(lambda: "2J>" in here.file.getvalue())
        sheet.write(here.file.getvalue())
        assert sheet.text.splitlines() == ["live 79 12", "status", "> half <<9b>2J>", "bottom"]
        assert await here.line("\r") == "half <\x9b2J>"


# What looks like an answer


@pytest.mark.parametrize(
    ("text", "key"), [("yes please", "y"), ("Yes, do it", "y"), ("y!", "y"), ("No, not that", "n")]
)
def test_a_sentence_that_begins_as_an_answer_is_not_sent_at_a_question(text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"did you mean {key}\? a leading space sends the line"):
        parse_line(text, asked=True)
    assert parse_line(f" {text}", asked=True) == PromptLine(text)
    assert parse_line(text, asked=False) == PromptLine(text)


@pytest.mark.parametrize("key", ["y", "n"])
def test_a_key_without_a_question_is_not_sent(key: str) -> None:
    with pytest.raises(ConfigError, match="no question is open; a leading space sends the line as a prompt"):
        parse_line(key, asked=False)
    assert parse_line(f" {key}", asked=False) == PromptLine(key)


@pytest.mark.parametrize("text", ["yesterday's changes", "note this", "ya"])
def test_other_words_are_sent_at_a_question(text: str) -> None:
    assert parse_line(text, asked=True) == PromptLine(text)


# Edited arguments


def test_broken_arguments_say_where_they_break() -> None:
    broken = '{"path": "a.txt",\n "content" "x"}'
    config = Config(model=ModelSpec(name="m"))
    assert argument_problem("write", broken, config) == (
        "not a JSON object: expecting ':' delimiter at line 2, column 12, before '\"x\"}'"
    )
    assert error_position(broken) == broken.index('"x"')
    assert argument_problem("write", "[1]", config) == "not a JSON object: got [1]"
    assert error_position("[1]") is None
    unclosed = argument_problem("write", '{"path": "a', config)
    assert unclosed.startswith("not a JSON object: unterminated string starting at line 1, column 10")
    assert argument_problem("write", "{}", config) == ""


@final
class Refusing:
    """A session that refuses every answer."""

    id = "s"
    running = False

    async def approve(self, request: str, decision: Decision, *, by: str) -> None:
        assert (request, by.endswith("(chat)")) == ("r-10", True)
        assert decision == Approve(arguments='{"command": "rm x"}')
        raise AnswerRefused(request, "bash", "denied by the rule 'deny bash'")


async def test_edited_arguments_that_are_refused_are_asked_about_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    face = ChatFace(RunOptions(store=Path("x.db")))
    face.questions.add(
        ApprovalRequested(request="r-10", call="r-1", tool="bash", arguments="{}", at=0.0), None
    )
    agent: Any = SimpleNamespace(config=Config(model=ModelSpec(name="m")))
    session: Any = Refusing()
    workspace = Workspace(store=MemoryStore(), agent=agent, session=session)
    acts = LineActions(workspace, face, None, Lookups(workspace, face, None), base_url=None, away=nullcontext)
    late = float("inf")
    assert await acts.do(Typed('e {"command": "rm x"}', late)) is Then.NEXT_LINE
    capsys.readouterr()
    assert await acts.do(Typed("y", late)) is Then.NEXT_LINE
    out, err = capsys.readouterr()
    assert err == "invalid arguments for 'bash': denied by the rule 'deny bash'; the question stays open\n"
    assert out.startswith("? bash  #1\n  $ rm x\n")
    assert [question.arguments for question in face.questions.open] == ['{"command": "rm x"}']


# The numbers of prompts


async def test_a_prompt_keeps_its_number_while_others_before_it_are_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    face = ChatFace(RunOptions(store=Path("x.db")))
    agent: Any = SimpleNamespace(config=Config(model=ModelSpec(name="m")))
    session: Any = SimpleNamespace(id="s", queue=())
    lookups = Lookups(Workspace(store=MemoryStore(), agent=agent, session=session), face, None)
    one, two, three = [
        Mail(lane=MailKind.PROMPT, id=text, text=text, at=0.0) for text in ("one", "two", "three")
    ]
    with pytest.raises(ConfigError, match="no prompt waits"):
        lookups.prompt("1")
    session.queue = (one, two)
    await lookups.tell("/queue", QueueLine())
    session.queue = (two, three)
    assert (lookups.prompt("2"), lookups.prompt("3")) == (two, three)
    for number in ("1", "4", "two"):
        with pytest.raises(ConfigError, match=f"no prompt {number} waits; .* those that do: 2, 3"):
            lookups.prompt(number)
    await lookups.tell("/queue", QueueLine())
    assert capsys.readouterr().err == "> /queue\n1  one\n2  two\n\n> /queue\n2  two\n3  three\n\n"
    session.queue = ()
    await lookups.tell("/queue", QueueLine())
    session.queue = (three,)
    assert lookups.prompt("1") == three


# The names of calls


def test_calls_are_named_by_the_numbers_in_their_ids() -> None:
    names = CallNames()
    assert [names.name(call) for call in ("aa-2", "aa-5", "bb-7", "aa-5")] == ["2", "5", "7", "5"]
    assert [names.find(name) for name in ("2", "#7", "aa-5")] == ["aa-2", "bb-7", "aa-5"]
    assert names.last == "bb-7"
    with pytest.raises(ConfigError, match="no call '9'; there are: #2, #5, #7"):
        names.find("9")
    with pytest.raises(ConfigError, match="no call '2' under way; there are: #7"):
        names.find("2", ["bb-7"])


def test_a_number_that_two_calls_have_is_the_latest_but_where_it_is_acted_on() -> None:
    """A child counts for itself."""
    names = CallNames()
    assert [names.name(call) for call in ("aa-2", "bb-2")] == ["2", "2"]
    assert names.find("2") == "bb-2"
    with pytest.raises(ConfigError, match="no call '2' under way; there are: #2, #2"):
        names.find("2", ["aa-2", "bb-2"])


# What is shown


async def test_a_warning_waits_until_the_editor_has_closed(capsys: pytest.CaptureFixture[str]) -> None:
    face = ChatFace(RunOptions(store=Path("x.db")))
    with log_lines(face.note):
        with face.away():
            LOGGER.warning("no title")
            await asyncio.sleep(0)
            assert capsys.readouterr().err == ""
        assert capsys.readouterr().err == "no title\n"
        LOGGER.warning("slow")
        await asyncio.sleep(0)
        assert capsys.readouterr().err == "slow\n"


@final
class Tty(io.StringIO):
    """A terminal that keeps what it is told."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def tty(monkeypatch: pytest.MonkeyPatch) -> Tty:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return Tty()


def transcript(file: Tty, cwd: Path) -> ChatTranscript:
    screen = Screen(file)
    return ChatTranscript(screen, Terminal(screen), lambda: None, cwd)


def turn_ended(*calls: ToolCall) -> TurnEnded:
    message = Message(role=Role.ASSISTANT, parts=calls)
    return TurnEnded(
        request="r-1", turn=1, message=message, stop=StopReason.END_TURN, usage=Usage(), calls=calls, at=0.0
    )


def shown(file: Tty, paper: type[Paper]) -> list[str]:
    sheet = paper(60)
    sheet.write(file.getvalue().replace("\n", "\r\n"))
    return sheet.text.rstrip().splitlines()


def test_an_answer_is_shown_block_by_block(tty: Tty, tmp_path: Path, paper: type[Paper]) -> None:
    made = transcript(tty, tmp_path)
    for text in (
        "# He",
        "ad\n\n- **a**\n- `b`\n\n```py\nx = 1\n",
        "```\n| a | b |\n|---|---|\n| 1 | 2",
        " |",
    ):
        made.notice(TextDelta(text, at=0.0))
    rows = ["Head", "", " • a", " • b", "", "  x = 1"]
    assert shown(tty, paper) == rows
    assert [row.plain for row in made.live(60, 9)] == ["| a | b |", "|---|---|", "| 1 | 2 |"]
    made.notice(turn_ended())
    assert shown(tty, paper)[6:] == ["", " a  b", " ────", " 1  2"]
    assert made.live(60, 9) == []


def test_no_text_of_a_model_moves_the_cursor(tty: Tty, tmp_path: Path, paper: type[Paper]) -> None:
    made = transcript(tty, tmp_path)
    made.notice(
        TextDelta("a\x1b[2Jb &#x202e; &#27; <b>c</b> [d](http://e/\x9b)\n\n<div>\x07</div>\n\n", at=0.0)
    )
    text = "\n".join(shown(tty, paper))
    assert "a\\x1b[2Jb \\u202e" in text
    assert "<b>c</b> d (http://e/" in text
    assert "<div>\\x07</div>" in text
    assert not re.search("[\x1b\x9b\x07\u202e]", re.sub("\x1b\\[[0-9;]*m", "", tty.getvalue()))


def test_a_running_call_is_one_line_when_it_has_ended(tty: Tty, tmp_path: Path, paper: type[Paper]) -> None:
    made = transcript(tty, tmp_path)
    made.notice(ToolStarted(call="r-7", tool="bash", arguments='{"command": "make"}', at=0.0))
    for number in range(9):
        made.notice(ToolOutput(call="r-7", text=f"\x1b[01;32mline {number}\x1b[0m\x1b[2J", at=0.0))
    assert [row.plain for row in made.live(60, 9)] == [
        "● bash make  #7",
        *[f"    line {number}\\x1b[2J" for number in (6, 7, 8)],
    ]
    assert shown(tty, paper) == []
    made.notice(
        CallSettled(
            call="r-7", tool="bash", outcome=Outcome.OK, content="done\n[exit code 0]", seconds=2.0, at=0.0
        )
    )
    assert made.live(60, 9) == []
    assert shown(tty, paper) == ["● bash make  #7", "  ⎿ done  2.0 s"]
    assert [settled.content for call in ("", "r-7") if (settled := made.result(call))] == [
        "done\n[exit code 0]"
    ] * 2
    assert made.result("r-8") is None


def test_the_time_of_a_long_command_is_not_cut(
    tty: Tty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 75.0])
    monkeypatch.setattr("turnwheel.apps.chat.transcript.time", SimpleNamespace(monotonic=clock.__next__))
    made = transcript(tty, tmp_path)
    made.notice(ToolStarted(call="r-7", tool="bash", arguments=f'{{"command": "make {"x" * 90}"}}', at=0.0))
    (row,) = made.live(59, 9)
    assert row.plain.startswith("● bash make xxx")
    assert row.plain.endswith("...  #7  1 min 15 s")
    assert len(row.plain) <= 59


def test_the_echo_of_a_prompt_is_set_in(tty: Tty, paper: type[Paper]) -> None:
    Terminal(Screen(tty)).prompted("\n".join(f"line {number}" for number in range(500)))
    rows = [f"  line {number}" for number in range(1, 6)]
    assert shown(tty, paper) == ["> line 0", *rows, "  ... 494 more lines"]


def test_the_last_turns_are_shown_to_a_person_who_returns(
    tty: Tty, tmp_path: Path, paper: type[Paper]
) -> None:
    calls = [
        ToolCall(id=f"r-{n}", wire_id="w", name="read", arguments=f'{{"path": "{n}"}}') for n in range(7)
    ]
    denied = ToolResult(call="r-1", wire_id="w", name="read", outcome=Outcome.DENIED, content="no")
    history = [
        *[message for n in range(3) for message in (user(f"ask {n}"), said(f"answer {n}"))],
        user("last"),
        said("I look.", *calls),
        Message(role=Role.TOOL, parts=(denied,)),
        said("**Done.**"),
    ]
    transcript(tty, tmp_path).retell(history)
    assert shown(tty, paper) == [
        *["... 1 earlier prompt", "", "> ask 1", "", "answer 1", "", "> ask 2", "", "answer 2", ""],
        *["> last", "", "I look.", "", "● read 0  #0", "● read 1  #1  denied", "● read 2  #2"],
        *["● read 3  #3", "● read 4  #4", "  ... 2 more calls", "", "Done."],
    ]


def said(text: str, *calls: ToolCall) -> Message:
    return Message(role=Role.ASSISTANT, parts=(MessageText(text=text), *calls))


def edited(text: str, **arguments: object) -> list[tuple[int | None, str, str]]:
    Path("a.py").write_text(text, "utf-8")
    lines = file_change("edit", {"path": "a.py", **arguments}, Path()) or []
    return [(line.number, line.sign, line.text) for line in lines]


def test_an_edit_is_shown_with_its_lines_in_the_file(folder: Path) -> None:
    assert folder.is_dir()
    text = "".join(f"line {number}\n" for number in range(1, 21))
    expected = [
        *[(number, "|", f"line {number}") for number in (7, 8, 9)],
        (10, "-", "line 10"),
        (10, "+", "ten"),
        (11, "+", "more"),
        *[(number + 1, "|", f"line {number}") for number in (11, 12, 13)],
    ]
    assert edited(text, old="line 10\n", new="ten\nmore\n") == expected
    # Made already: the file has the new text.
    done = text.replace("line 10\n", "ten\nmore\n")
    assert edited(done, old="line 10\n", new="ten\nmore\n") == expected
    assert edited(text, old="line 1", new="x") == []  # it occurs more than once, so the call will fail
    assert len([sign for _, sign, _ in edited(text, old="line 1", new="x", all=True) if sign == "+"]) == 11
    assert file_change("edit", {"path": "../a.py", "old": "1", "new": "2"}, Path()) is None


def test_a_change_without_a_question_is_shown_below_its_result(
    tty: Tty, folder: Path, paper: type[Paper]
) -> None:
    made = transcript(tty, folder)
    call = ToolCall(
        id="r-7", wire_id="w", name="write", arguments='{"path": "README.md", "content": "# New\\n"}'
    )
    made.notice(turn_ended(call))
    made.notice(CallSettled(call="r-7", tool="write", outcome=Outcome.OK, content="wrote 6 bytes", at=0.0))
    assert shown(tty, paper) == ["● write README.md  #7", "  ⎿ wrote 6 bytes", "  1 - # Demo", "  1 + # New"]


# The environment of the tests


def test_no_chat_of_the_tests_writes_into_the_state_of_the_person(folder: Path) -> None:
    assert os.environ["XDG_STATE_HOME"] == str(folder.parent / "state")
