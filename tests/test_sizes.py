"""The page of sizes: each limit is what it says, and one more than that comes to what it says."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from click.testing import CliRunner

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    Compaction,
    Deny,
    Session,
    Settings,
    tool,
)
from turnwheel.apps.chat.line_source import _lines_of  # pyright: ignore[reportPrivateUsage]  # what a pipe is read by
from turnwheel.apps.cli.commands import turnwheel as cli
from turnwheel.apps.cli.options import MAX_STDIN
from turnwheel.apps.stand_in.server import MAX_BODY, MAX_HEAD, StandIn
from turnwheel.effects.config import Config, ModelSpec, Steering, ToolSpec
from turnwheel.effects.errors import (
    ConfigError,
    JournalError,
    QueueFull,
    TooLarge,
)
from turnwheel.effects.events import (
    Failure,
    ModelFailed,
    ModelFinished,
    ToolFinished,
    UserSent,
)
from turnwheel.effects.history import History
from turnwheel.effects.hooks import Hook, HookAnswer
from turnwheel.effects.messages import Binary, StopReason, user
from turnwheel.effects.notices import TextDelta, Warned
from turnwheel.effects.pieces import CallPiece, Piece, TextPiece
from turnwheel.effects.requests import (
    CallModel,
    Conversation,
    ReadInstructions,
    RunTool,
)
from turnwheel.effects.usage import Usage
from turnwheel.effects.validators import (
    MAX_ARGUMENTS,
    MAX_ATTACHED,
    MAX_ENTRY,
    MAX_GLOBS,
    MAX_MESSAGE,
    MAX_TEXT,
    MAX_WAITING,
    MAX_WORD,
)
from turnwheel.effects.validators import MAX_FILES as MAX_SENT
from turnwheel.engine.codec import decode
from turnwheel.engine.inputs import approval_event
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Posted
from turnwheel.engine.journal.fold import MOST_HELD, FullResults
from turnwheel.engine.journal.summary import MAX_TITLE as LONGEST_TITLE
from turnwheel.engine.journal.summary import first_line
from turnwheel.engine.machine import Machine
from turnwheel.engine.session.delivery import SUBSCRIBER_BUFFER, Broker
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.hooks import MAX_OUTPUT as MAX_WRITING
from turnwheel.performers.hooks import MAX_TEXT as MAX_SAYING
from turnwheel.performers.hooks import HookCall, accepted, command_hook
from turnwheel.performers.instructions import MAX_BYTES as MAX_INSTRUCTIONS
from turnwheel.performers.instructions import InstructionReader
from turnwheel.performers.models import OpenAIChat
from turnwheel.performers.models.body import (
    MAX_LINE,
    MAX_NESTING,
    MAX_PARTS,
    MAX_WHOLE,
    EventSplitter,
    is_bearable,
)
from turnwheel.performers.models.errors import MAX_MESSAGE as MAX_TOLD
from turnwheel.performers.models.errors import shorten
from turnwheel.performers.models.http import (
    MAX_ANSWER,
    MAX_PIECES,
    MAX_REFUSAL,
    MAX_SAID,
    PART,
    WHOLE,
    CallAttempt,
    decompressor,
)
from turnwheel.performers.models.lenient_json import LONGEST, MOST
from turnwheel.performers.models.openai_stream import ChatParser
from turnwheel.performers.models.wire import Broken, Complete, Ending
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.performers.tools import ToolContext, ToolRunner
from turnwheel.performers.tools.builtin import (
    MAX_ENTRIES,
    MAX_HITS,
    bash,
    grep,
    ls,
)
from turnwheel.performers.tools.files import (
    MAX_BYTES,
    MAX_LINES,
    edit,
    read,
)
from turnwheel.performers.tools.result import (
    MAX_COUNT,
    MAX_FILE,
    MAX_FILES,
    MAX_OUTPUT,
    MAX_RESULT,
    returned,
)
from turnwheel.performers.tools.runner import MAX_PROGRESS
from turnwheel.performers.tools.search import MAX_BYTES as MAX_SEARCHED
from turnwheel.performers.tools.search import MAX_LINE as MAX_SHOWN
from turnwheel.settings.sources import MAX_FILE as MAX_SETTINGS
from turnwheel.states.rules.answer_parts import MAX_CALLS
from turnwheel.states.rules.schema import MAX_NESTING as MAX_LEVELS
from turnwheel.states.rules.schema import arguments_of
from turnwheel.states.state import Executing
from turnwheel.states.streaming import NAMED
from turnwheel.testing.scripted import ScriptedModel, says

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "sizes.md").read_text("utf-8")
ROW = re.compile(r"^\| (.+?) \| ([\d,]+)(?: (\w+))? \| (.+?) \| (.+) \|$", re.MULTILINE)
SET = re.compile(r"`([\w/]+)\.py: (\w+)`")

ROWS = [
    (what.removesuffix(" *"), int(most.replace(",", "")), set_in)
    for what, most, _, set_in, _ in ROW.findall(PAGE)
]

BEYOND: dict[str, Callable[[Path], Awaitable[None]]] = {}
"""What is tried for each row of the page, by what it says there."""


def beyond(what: str) -> Callable[[Callable[[Path], Awaitable[None]]], Callable[[Path], Awaitable[None]]]:
    """Marks what tries one more of *what*."""

    def mark(function: Callable[[Path], Awaitable[None]]) -> Callable[[Path], Awaitable[None]]:
        assert what not in BEYOND
        BEYOND[what] = function
        return function

    return mark


def refused(what: str, function: Callable[[], object]) -> None:
    """*function* is refused for the size of *what*."""
    with pytest.raises(TooLarge) as caught:
        function()
    assert caught.value.what == what
    assert caught.value.size == caught.value.limit + 1


# What a provider sends


def event(value: object) -> bytes:
    """*value* as an event of a stream."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(**fields: object) -> bytes:
    """An event with one delta."""
    return event({"choices": [{"index": 0, "delta": fields}]})


STOP = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n"
REQUEST = CallModel(id="r-1", model="openai:m", view=Conversation(revision=0, length=1))


def scene_of(**fields: Any) -> PerformContext:
    """A scene with one user message."""
    given: dict[str, Any] = {
        "session": "s",
        "run": "r",
        "history": History.of(user("hi")),
        "clock": SystemClock(),
    }
    given["config"] = Config(model=ModelSpec(name="openai:m"))
    given["emit"] = lambda _: None
    return PerformContext(**{**given, **fields})


async def asked(response: httpx.Response, **settings: Any) -> ModelFinished | ModelFailed:
    """What a performer makes of *response*."""
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: response)) as client:
        answer = await OpenAIChat("http://there", "key", client, **settings)(REQUEST, scene_of())
    assert isinstance(answer, ModelFinished | ModelFailed)
    return answer


def streamed(body: bytes) -> httpx.Response:
    """An answer of *body*."""
    return httpx.Response(200, stream=httpx.ByteStream(body))


def read_as(body: bytes) -> Ending:
    """How a stream of *body* ends."""
    parser = ChatParser()
    parser.feed(body)
    return parser.end()


def cut_with(ending: Ending | ModelFinished | ModelFailed, message: str) -> None:
    """*ending* is a cut, and says *message*."""
    assert isinstance(ending, Broken | ModelFailed)
    assert (ending.failure, message in ending.message) == (Failure.CUT, True), ending.message


@attrs.frozen
class Gives:
    """A parser that gives *pieces*, whatever it is fed."""

    pieces: Sequence[Piece]
    done: bool = False
    usage: Usage | None = None

    def feed(self, data: bytes) -> list[Piece]:
        """All pieces."""
        return list(self.pieces) if data else []

    def end(self, cut: Broken | None = None) -> Ending:
        """A whole answer."""
        return cut or Complete(stop=StopReason.END_TURN)


async def taken(*pieces: Piece) -> Ending:
    """How an answer of *pieces* ends."""
    exchange = CallAttempt(REQUEST, scene_of(), Gives(pieces), MAX_ANSWER)
    exchange.take(b"x")
    return exchange.end()


@beyond("the head of an answer")
async def _(_: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\na: " + b"b" * 167_936 + b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        model = OpenAIChat(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "key")
        answer = await model(REQUEST, scene_of())
        await model.aclose()
    assert isinstance(answer, ModelFailed)
    assert answer.failure is Failure.CONNECTION


@beyond("the bytes of an answer")
async def _(_: Path) -> None:
    body = delta(content="x" * 500)
    assert isinstance(await asked(streamed(body + STOP), max_answer=len(body + STOP)), ModelFinished)
    cut_with(await asked(streamed(body + b"\n"), max_answer=len(body)), f"larger than {len(body)} bytes")
    cut_with(await asked(streamed(b"\n" * (MAX_ANSWER + 1))), f"larger than {MAX_ANSWER} bytes")


@beyond("the time of an answer")
async def _(_: Path) -> None:
    class Slow(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                yield b": ping\n\n"
                await asyncio.sleep(0.001)

    async with asyncio.timeout(9):
        answer = await asked(httpx.Response(200, stream=Slow()), answer_timeout=0.05)
    assert isinstance(answer, ModelFailed)
    assert (answer.failure, "answer_timeout=0.05" in answer.message) == (Failure.TIMEOUT, True)
    assert OpenAIChat(api_key="")._timeouts.answer == WHOLE  # pyright: ignore[reportPrivateUsage]  # nobody waits for it


@beyond("what an answer says, thinking and calls included")
async def _(_: Path) -> None:
    most = TextPiece("x" * MAX_SAID)
    assert isinstance(await taken(most), Complete)
    cut_with(await taken(most, TextPiece("x")), f"says more than {MAX_SAID} characters")


@beyond("the pieces of an answer")
async def _(_: Path) -> None:
    assert isinstance(await taken(*[TextPiece("x")] * MAX_PIECES), Complete)
    cut_with(await taken(*[TextPiece("x")] * (MAX_PIECES + 1)), f"in more than {MAX_PIECES} pieces")


@beyond("the arguments of one call")
async def _(_: Path) -> None:
    most, one = CallPiece(0, "a", "f", "x" * MAX_ARGUMENTS), CallPiece(0, arguments="x")
    assert isinstance(await taken(most, CallPiece(1, "b", "f", "x")), Complete)
    cut_with(await taken(most, one), f"more than {MAX_ARGUMENTS} characters")


@beyond("what is unpacked at once")
async def _(_: Path) -> None:
    unpack = decompressor("deflate")
    assert unpack is not None
    assert [len(part) for part in unpack(zlib.compress(bytes(PART + 1)))] == [PART, 1]


@beyond("a line or an event of a stream")
async def _(_: Path) -> None:
    for size, oversized in ((MAX_LINE, False), (MAX_LINE + 1, True)):
        splitter = EventSplitter()
        splitter.feed(b"x" * size)
        assert splitter.oversized is oversized
    part = b"data: " + b"x" * (MAX_LINE // 8 - 1)
    for lines in ([b"data: " + b"x" * (MAX_LINE - 6)], [part] * 8):
        splitter = EventSplitter()
        assert len(splitter.feed(b"\n".join(lines) + b"\n\n")) == 1
        assert not splitter.oversized
    for lines in ([b"data: " + b"x" * (MAX_LINE - 5)], [*[part] * 8, b"data:"]):
        cut_with(
            read_as(b"\n".join(lines) + b"\n\n"), f"an event of the stream is larger than {MAX_LINE} bytes"
        )


@beyond("an answer in one piece")
async def _(_: Path) -> None:
    whole = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'
    assert isinstance(read_as(whole + b" " * (MAX_WHOLE - len(whole))), Complete)
    cut_with(read_as(whole + b" " * (MAX_WHOLE - len(whole) + 1)), f"larger than {MAX_WHOLE} bytes")


@beyond("values in one chunk")
async def _(_: Path) -> None:
    assert is_bearable(b"[" + b"0," * (MAX_PARTS - 1) + b"0]")
    assert not is_bearable(b"[" + b"0," * MAX_PARTS + b"0]")
    assert isinstance(
        read_as(delta(content="a") + b"data: {" + b"[0]," * MAX_PARTS + b"}\n\n" + STOP), Complete
    )


@beyond("levels in one chunk")
async def _(_: Path) -> None:
    for brackets in (b"[]", b"{}"):
        deep = brackets[:1] * MAX_NESTING + brackets[1:] * MAX_NESTING
        assert is_bearable(deep)
        assert not is_bearable(brackets[:1] + deep + brackets[1:])


@beyond("the id of a call, its tool's name, a stop sequence")
async def _(_: Path) -> None:
    for size, kept in ((LONGEST, "x" * LONGEST), (LONGEST + 1, "x" * LONGEST + "...")):
        call = {"index": 0, "id": "x" * size, "function": {"name": "x" * size}}
        assert ChatParser().feed(delta(tool_calls=[call])) == [CallPiece(0, kept, kept)]
        met = {"index": 0, "delta": {}, "finish_reason": "stop_sequence", "stop_reason": "x" * size}
        ending = read_as(event({"choices": [met]}))
        assert isinstance(ending, Complete)
        assert ending.sequence == kept


@beyond("a number of tokens")
async def _(_: Path) -> None:
    for told, believed in ((MOST, MOST), (MOST + 1, 0)):
        ending = read_as(event({"choices": [], "usage": {"prompt_tokens": told}}) + STOP)
        assert (ending.usage or Usage()).input == believed


def answered(calls: int) -> tuple[Machine, list[str]]:
    """A machine whose model called a tool so often, and what it was warned of."""
    look = ToolSpec(name="look", side_effect="read_only")
    machine = Machine.start(Config(model=ModelSpec(name="m"), tools=(look,)), "hi")
    [request] = [effect for effect in machine.advance() if isinstance(effect, CallModel)]
    pieces = tuple([CallPiece(number, f"c{number}", "look", "{}") for number in range(calls)])
    end = ModelFinished(at=1.0, request=request.id, stop=StopReason.TOOL_USE, usage=Usage(), pieces=pieces)
    return machine, [effect.text for effect in machine.advance(end) if isinstance(effect, Warned)]


@beyond("the calls of an answer")
async def _(_: Path) -> None:
    for calls, warnings in ((MAX_CALLS, 0), (MAX_CALLS + 1, 1)):
        machine, warned = answered(calls)
        assert isinstance(machine.state, Executing)
        assert (len(machine.state.batch.calls), len(warned)) == (MAX_CALLS, warnings)


@beyond("calls left out that a `Warned` names")
async def _(_: Path) -> None:
    said = "calls left out of an answer that ended with tool_use: "
    for more, end in ((NAMED, ""), (NAMED + 1, " and 1 more")):
        assert answered(MAX_CALLS + more)[1] == [said + ", ".join(["look"] * NAMED) + end]


@beyond("the body of a refusal")
async def _(_: Path) -> None:
    for size in (MAX_REFUSAL, MAX_REFUSAL + 1):
        answer = await asked(httpx.Response(400, stream=httpx.ByteStream(b"x" * size)))
        assert isinstance(answer, ModelFailed)
        assert answer.message.endswith(f"... ({MAX_REFUSAL} characters)")


@beyond("the message of a failure")
async def _(_: Path) -> None:
    assert shorten("x" * MAX_TOLD) == "x" * MAX_TOLD
    assert shorten("x" * (MAX_TOLD + 1)) == "x" * MAX_TOLD + f"... ({MAX_TOLD + 1} characters)"


# What a model asks for, and what tools say


@beyond("levels in arguments")
async def _(_: Path) -> None:
    for levels, taken_for in ((MAX_LEVELS, dict), (MAX_LEVELS + 1, type(None))):
        assert isinstance(arguments_of('{"a":' * levels + "1" + "}" * levels), taken_for)


def said_by(function: Callable[..., Any], home: Path, **arguments: object) -> Any:
    """What a built-in tool says in *home*."""
    return function(ToolContext(cwd=home, deps=None), **arguments)


@beyond("a file that is read or edited")
async def _(home: Path) -> None:
    path = home / "a"
    path.write_bytes(b"x" * MAX_BYTES)
    assert said_by(edit, home, path="a", old="x" * MAX_BYTES, new="y").startswith("replaced 1")
    path.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(ValueError, match="has more than 10,000,000 bytes"):
        said_by(read, home, path="a")
    path.write_bytes(b"x" * 1_000)
    with pytest.raises(ValueError, match="would have 10,001,000 characters, and may have 10,000,000"):
        said_by(edit, home, path="a", old="x", new="y" * 10_001, all=True)
    assert path.read_bytes() == b"x" * 1_000


@beyond("lines of a file at once")
async def _(home: Path) -> None:
    (home / "a").write_text("x\n" * MAX_LINES)
    assert said_by(read, home, path="a").endswith(f"{MAX_LINES}\tx")
    (home / "a").write_text("x\n" * (MAX_LINES + 1))
    assert said_by(read, home, path="a").endswith("[lines 1 to 2000 of 2,001; offset=2001 goes on]")


@beyond("a file that is searched")
async def _(home: Path) -> None:
    (home / "a").write_bytes(b"x\n" + b"y" * (MAX_SEARCHED - 2))
    assert (await said_by(grep, home, pattern="x")).splitlines() == ["a:1: x"]
    (home / "a").write_bytes(b"x\n" + b"y" * (MAX_SEARCHED - 1))
    assert "1 over 5 MB" in await said_by(grep, home, pattern="x")


@beyond("a line that a search shows")
async def _(home: Path) -> None:
    (home / "a").write_text("x" * MAX_SHOWN + "\n" + "x" * (MAX_SHOWN + 1))
    found = (await said_by(grep, home, pattern="x")).splitlines()
    assert found == [f"a:1: {'x' * MAX_SHOWN}", f"a:2: {'x' * MAX_SHOWN}..."]


@beyond("entries that are listed")
async def _(home: Path) -> None:
    for number in range(MAX_ENTRIES):
        (home / str(number)).touch()
    assert len(said_by(ls, home).splitlines()) == MAX_ENTRIES
    (home / "more").touch()
    assert said_by(ls, home).splitlines()[-1] == "[1 more]"


@beyond("lines that a search finds")
async def _(home: Path) -> None:
    (home / "a").write_text("x\n" * MAX_HITS)
    assert len((await said_by(grep, home, pattern="x")).splitlines()) == MAX_HITS
    (home / "a").write_text("x\n" * (MAX_HITS + 1))
    assert (await said_by(grep, home, pattern="x")).splitlines()[-1].startswith(f"[stopped after {MAX_HITS}")


MARK = "\n[... 1 characters cut ...]\n"


async def result_of(value: object, **settings: Any) -> tuple[str, tuple[Binary, ...], list[str]]:
    """The text and the files of a tool that says and returns *value*, and what it said while it ran."""

    @tool(side_effect="read_only")
    async def give(context: ToolContext[object]) -> object:
        """Give it."""
        context.emit(str(value))
        return value

    said: list[str] = []
    scene = scene_of(emit=lambda noted: said.append(noted.text))
    ended = await ToolRunner([give], **settings)(
        RunTool(id="r-1", call="r-0", tool="give", arguments="{}", timeout=9.0), scene
    )
    return ended.content, ended.files, said


@beyond("a result")
async def _(_: Path) -> None:
    half = "x" * (MAX_RESULT // 2)
    assert (await result_of("x" * MAX_RESULT))[0] == "x" * MAX_RESULT
    assert (await result_of("x" * (MAX_RESULT + 1)))[0] == half + MARK + half
    assert (await result_of("x" * 11, max_result=10))[0] == "xxxxx" + MARK + "xxxxx"


@beyond("a result in the conversation")
async def _(_: Path) -> None:
    most = Compaction().result_limit or 0
    for size, whole in ((most, True), (most + 1, False)):
        look = ToolSpec(name="look", side_effect="read_only")
        machine = Machine.start(Config(model=ModelSpec(name="m"), tools=(look,)), "hi")
        [request] = [effect for effect in machine.advance() if isinstance(effect, CallModel)]
        call = CallPiece(0, "c", "look", "{}")
        end = ModelFinished(
            at=1.0, request=request.id, stop=StopReason.TOOL_USE, usage=Usage(), pieces=(call,)
        )
        [run] = [effect for effect in machine.advance(end) if isinstance(effect, RunTool)]
        machine.advance(ToolFinished(at=2.0, request=run.id, content="x" * size))
        [result] = machine.memory.history[2].results
        assert (result.content == "x" * size) is whole
        assert len(result.content) <= most
        assert whole or "left out" in result.content


@beyond("what a command says")
async def _(home: Path) -> None:
    said = await said_by(bash, home, command=f"head -c {MAX_OUTPUT} /dev/zero | tr '\\0' x")
    assert said == "x" * MAX_OUTPUT + "\n[exit code 0]"
    said = await said_by(bash, home, command=f"head -c {MAX_OUTPUT + 1} /dev/zero | tr '\\0' x")
    assert re.search(r"\[\.\.\. 1 bytes cut \.\.\.\]", said)


def files(*sizes: int) -> tuple[str, list[int]]:
    """What is said of files of *sizes* that a tool returned, and those that are kept."""
    end = returned([Binary(media_type="image/png", data=bytes(size)) for size in sizes])
    return end.content, [len(file.data) for file in end.files]


@beyond("a file of a result")
async def _(_: Path) -> None:
    assert files(MAX_FILE)[1] == [MAX_FILE]
    said, kept = files(MAX_FILE + 1)
    assert ("the limit for a file is 750,000 bytes]" in said, kept) == (True, [])


@beyond("all files of a result")
async def _(_: Path) -> None:
    many = [MAX_FILE] * (MAX_FILES // MAX_FILE)
    assert files(*many)[1] == many
    said, kept = files(*many, 1)
    assert ("the limit for all files of a result is 3,750,000 bytes]" in said, kept) == (True, many)


@beyond("files of a result")
async def _(_: Path) -> None:
    assert len(files(*[1] * MAX_COUNT)[1]) == MAX_COUNT
    said, kept = files(*[1] * (MAX_COUNT + 1))
    assert ("the limit for a result is 20 files]" in said, len(kept)) == (True, MAX_COUNT)


@beyond("what a tool says at once while it runs")
async def _(_: Path) -> None:
    half = "x" * (MAX_PROGRESS // 2)
    assert (await result_of("x" * MAX_PROGRESS))[2] == ["x" * MAX_PROGRESS]
    assert (await result_of("x" * (MAX_PROGRESS + 1)))[2] == [half + MARK + half]


@beyond("whole results that no journal has")
async def _(_: Path) -> None:
    assert FullResults().most == MOST_HELD


# What the host's own files and hooks say


@beyond("a file of instructions, such as `AGENTS.md`")
async def _(home: Path) -> None:
    for size, faults in ((MAX_INSTRUCTIONS, 0), (MAX_INSTRUCTIONS + 1, 1)):
        (home / "AGENTS.md").write_bytes(b"x" * size)
        found = await InstructionReader(home)(ReadInstructions(id="r-1", files=("AGENTS.md",)), scene_of())
        assert (len(found.text), len(found.faults)) == (len("# AGENTS.md\n\n") + MAX_INSTRUCTIONS, faults)


@beyond("a file of settings")
async def _(home: Path) -> None:
    path = home / "turnwheel.toml"
    path.write_bytes(b"#" * MAX_SETTINGS)
    Settings.load(path, env={})
    path.write_bytes(b"#" * (MAX_SETTINGS + 1))
    with pytest.raises(ConfigError, match=r"has 1,000,001 bytes, and may have 1,000,000$"):
        Settings.load(path, env={})


@beyond("what a hook's command writes")
async def _(home: Path) -> None:
    for size, fine in ((MAX_WRITING, True), (MAX_WRITING + 1, False)):
        answer = json.dumps({"verdict": "allow"}).ljust(size)
        (home / "answer").write_text(answer)
        hook = command_hook("pre_tool_use", command=["cat", "answer"], cwd=home)
        about = HookCall(
            hook=Hook.PRE_TOOL_USE,
            session="s",
            run="r",
            call="c",
            tool="t",
            arguments={},
            payload={},
            now=0.0,
        )
        if fine:
            assert await hook(about) == HookAnswer(verdict="allow")
            continue
        with pytest.raises(ValueError, match="its output is no answer"):
            await hook(about)


@beyond("the reason, context or fault of a hook")
async def _(_: Path) -> None:
    half = "x" * (MAX_SAYING // 2)
    assert accepted("h", HookAnswer(reason="x" * MAX_SAYING)).answer.reason == "x" * MAX_SAYING
    assert accepted("h", HookAnswer(context="x" * (MAX_SAYING + 1))).answer.context == half + MARK + half


@beyond("the arguments a hook gives a call")
async def _(_: Path) -> None:
    for size, faulty in ((MAX_ARGUMENTS, False), (MAX_ARGUMENTS + 1, True)):
        said = accepted("h", HookAnswer(arguments="{}".ljust(size)))
        assert (said.fault != "", said.answer.arguments == "") == (faulty, faulty)


# What people say


async def session_of(store: MemoryStore | None = None) -> Session:
    """A session whose model says well."""
    model = ScriptedModel(*[says("well")] * 9)
    return Agent(model="wire:m", performers={CallModel: model}, store=store).session("s")


@beyond("a prompt, or what is said into a run")
async def _(_: Path) -> None:
    session = await session_of()
    await session.send("x" * MAX_TEXT)
    for say in (session.send, partial(session.steer, how=Steering.NOW), session.run):
        with pytest.raises(TooLarge, match=r"the text of a prompt has 4,000,001 characters"):
            await say("x" * (MAX_TEXT + 1))


@beyond("files that come with it")
async def _(_: Path) -> None:
    session, file = await session_of(), Binary(media_type="image/png", data=b"x")
    await session.send("look", files=(file,) * MAX_SENT)
    with pytest.raises(TooLarge, match=r"a prompt has 101 files, and may have 100$"):
        await session.send("look", files=(file,) * (MAX_SENT + 1))


@beyond("those files together")
async def _(_: Path) -> None:
    session = await session_of()
    half = Binary(media_type="image/png", data=bytes(MAX_ATTACHED // 2))
    await session.send("look", files=(half, half))
    with pytest.raises(TooLarge, match=r"the files of a prompt has 20,000,001 bytes"):
        await session.send("look", files=(half, half, Binary(media_type="image/png", data=b"x")))


@beyond("an id, a sender, who answers, a session's or a file's name")
async def _(_: Path) -> None:
    store = MemoryStore()
    session, name, long = await session_of(store), "x" * MAX_WORD, "x" * (MAX_WORD + 1)
    await session.send(
        "hi", id=name, sender=name, files=(Binary(media_type="image/png", data=b"x", name=name),)
    )
    await session.resume()
    await session.fork(name)
    agent = Agent(model="wire:m", performers={CallModel: ScriptedModel()})
    agent.session(name)
    approval_event("r-1", Approve(), 0.0, name)
    refused("the name of who answers", lambda: approval_event("r-1", Approve(), 0.0, long))
    refused("the id of a session", lambda: agent.session(long))
    for act in (
        lambda: session.send("hi", id=long),
        lambda: session.send("hi", sender=long),
        lambda: session.send("hi", files=(Binary(media_type="image/png", data=b"x", name=long),)),
        lambda: session.send("hi", files=(Binary(media_type=long, data=b"x"),)),
        lambda: session.fork(long),
    ):
        with pytest.raises(TooLarge, match=r"1,001 characters, and may have 1,000$"):
            await act()


@beyond("the arguments that come with a yes")
async def _(_: Path) -> None:
    approval_event("r-1", Approve(arguments="{}".ljust(MAX_ARGUMENTS)), 0.0, "")
    more = Approve(arguments="{}".ljust(MAX_ARGUMENTS + 1))
    refused("the arguments of a call", lambda: approval_event("r-1", more, 0.0, ""))


@beyond("the message that comes with a no")
async def _(_: Path) -> None:
    approval_event("r-1", Deny(message="x" * MAX_MESSAGE), 0.0, "")
    more = Deny(message="x" * (MAX_MESSAGE + 1))
    refused("the message of a no", lambda: approval_event("r-1", more, 0.0, ""))


@beyond("arguments that a yes for all such calls names")
async def _(_: Path) -> None:
    approval_event("r-1", ApproveAlways(where=(("a", "b"),) * MAX_GLOBS), 0.0, "")
    more = ApproveAlways(where=(("a", "b"),) * (MAX_GLOBS + 1))
    refused("a yes for all such calls", lambda: approval_event("r-1", more, 0.0, ""))
    long = ApproveAlways(where=(("a", "x" * (MAX_WORD + 1)),))
    refused(
        "an argument of a yes for all such calls, or its glob,", lambda: approval_event("r-1", long, 0.0, "")
    )


@beyond("posts that wait for one session")
async def _(_: Path) -> None:
    store = MemoryStore()
    posts = [
        encode_entry(Posted(event=UserSent(at=0.0, id=str(number), text="x")))
        for number in range(MAX_WAITING - 1)
    ]
    await store.append("s", 0, posts)
    session = await session_of(store)
    await session.send("the last one")
    for say in (session.send, session.steer):
        with pytest.raises(QueueFull, match="10000 prompts waiting"):
            await say("one more")
    await session.interrupt()


@beyond("a title")
async def _(_: Path) -> None:
    assert first_line("x" * LONGEST_TITLE) == "x" * LONGEST_TITLE
    assert first_line("x" * (LONGEST_TITLE + 1)) == "x" * (LONGEST_TITLE - 1) + "…"


@beyond("what stdin says in the place of a text")
async def _(home: Path) -> None:
    runner = CliRunner()
    arguments = ["run", "-", "--stand-in", "--store", str(home / "a.db")]
    ended = await asyncio.to_thread(partial(runner.invoke, cli, arguments, input=b"x" * (MAX_STDIN + 1)))
    assert isinstance(ended.exception, TooLarge)
    assert str(ended.exception) == "what stdin says has 16,000,001 bytes, and may have 16,000,000"


@beyond("a line piped to `chat`")
async def _(_: Path) -> None:
    for size in (MAX_TEXT, MAX_TEXT + 1, 2 * MAX_TEXT):
        data = b"x" * size + b"\nnext\nlast"
        lines = list(_lines_of(data[at : at + 65_536] for at in range(0, len(data), 65_536)))
        assert [len(line) for line in lines] == [min(size, MAX_TEXT + 1), 4, 4]


# What is kept, and who watches


@beyond("an entry of a journal, a snapshot, a row of the list")
async def _(_: Path) -> None:
    machine = Machine.start(Config(model=ModelSpec(name="m")), "hi")
    too_much = b'{"a":' + b" " * (MAX_ENTRY - 5)
    for read_it in (
        lambda: decode_entry(too_much),
        lambda: decode(too_much, UserSent),
        lambda: Machine.restore(too_much, machine.config, machine.memory.history),
    ):
        with pytest.raises(JournalError, match=r"bytes, and may have 134,217,728|cannot be read"):
            read_it()
    event = UserSent(at=0.0, id="a", text="x" * MAX_ENTRY)
    with pytest.raises(TooLarge, match="an entry of a journal has"):
        encode_entry(Posted(event=event))


@beyond("notices that a watcher lags behind")
async def _(_: Path) -> None:
    broker = Broker(SUBSCRIBER_BUFFER)
    watcher = broker.subscribe()
    for number in range(SUBSCRIBER_BUFFER + 1):
        broker.publish(TextDelta(str(number)))
    assert watcher.dropped == 1


async def standin_says(request: bytes) -> bytes:
    """The first line of what the stand-in says to *request*."""
    async with StandIn() as server:
        host, port = server.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        said = await reader.readline()
        writer.close()
        return said


@beyond("the head of a request to the stand-in")
async def _(_: Path) -> None:
    head = b"GET /health HTTP/1.1\r\nx: "
    assert b" 200 " in await standin_says(head + b"x" * (MAX_HEAD - len(head) - 4) + b"\r\n\r\n")
    assert b" 431 " in await standin_says(head + b"x" * MAX_HEAD + b"\r\n\r\n")


@beyond("the body of a request to the stand-in")
async def _(_: Path) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
    assert b" 400 " in await standin_says(head % MAX_BODY + b"x" * MAX_BODY)
    assert b" 413 " in await standin_says(head % (MAX_BODY + 1) + b"x" * (MAX_BODY + 1))


# The page


@pytest.mark.parametrize(
    ("what", "most", "set_in"), ROWS, ids=[f"{number} {row[0]}" for number, row in enumerate(ROWS)]
)
def test_the_page_says_what_is_set(what: str, most: int, set_in: str) -> None:
    """Each number is the one that stands in the code."""
    if (found := SET.search(set_in)) is not None:
        module = importlib.import_module("turnwheel." + found[1].replace("/", "."))
        assert getattr(module, found[2]) == most, what
    elif "Compaction" in set_in:
        assert Compaction().result_limit == most
    else:
        assert set_in == "httpx"


def test_every_row_is_tried() -> None:
    """Where a limit comes to the page, one more than that comes to the list of what is tried here."""
    named = [
        f"{what} of {most}" if [row[0] for row in ROWS].count(what) > 1 else what for what, most, _ in ROWS
    ]
    assert sorted(named) == sorted(BEYOND)


@pytest.mark.parametrize("what", sorted(BEYOND))
async def test_one_more_than_that_comes_to_what_the_page_says(what: str, tmp_path: Path) -> None:
    """A named error, or a cut with a mark; and the limit itself is taken."""
    await BEYOND[what](tmp_path)
