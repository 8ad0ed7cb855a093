"""The page of sizes: each limit is what it says, and one more than that comes to what it says."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from click.testing import CliRunner
from provers.hostile_server.server import Hostile, Line
from support.http_server import serving
from support.patience import PATIENCE

from turnwheel import Agent, Approve, ApproveAlways, Compaction, Deny, Session, Settings, tool
from turnwheel.apps.chat.piped_lines import _split_lines  # pyright: ignore[reportPrivateUsage]  # what a pipe is read by
from turnwheel.apps.cli.commands import turnwheel as cli
from turnwheel.apps.stand_in.server import StandIn
from turnwheel.effects import Effect
from turnwheel.effects.config import Config, ModelSpec, Steering, ToolSpec
from turnwheel.effects.errors import ConfigError, JournalError, QueueFull, TooLarge
from turnwheel.effects.events import Decision, Failure, ModelFailed, ModelFinished, ToolFinished, UserSent
from turnwheel.effects.history import CallPiece, History, Piece, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer
from turnwheel.effects.messages import Binary, StopReason, user
from turnwheel.effects.notices import TextDelta, Warned
from turnwheel.effects.requests import CallModel, Conversation, ReadInstructions, RunTool
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.codec import decode
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Posted
from turnwheel.engine.journal.fold import FullResults
from turnwheel.engine.journal.summary import first_line
from turnwheel.engine.session.feed import Feed
from turnwheel.performers.approvals import approval_event
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.hooks import HookCall, checked_answer, command_hook
from turnwheel.performers.instructions import InstructionReader
from turnwheel.performers.models.body import EventSplitter, is_decodable
from turnwheel.performers.models.errors import shorten
from turnwheel.performers.models.http import CallAttempt, decompressor
from turnwheel.performers.models.openai import ChatParser, OpenAIChat
from turnwheel.performers.models.wire import AnswerEnd, Broken, Complete
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.performers.tools.builtin import bash, edit, grep, ls, read
from turnwheel.performers.tools.decorator import ToolContext
from turnwheel.performers.tools.returned import end_of_value
from turnwheel.performers.tools.runner import ToolRunner
from turnwheel.states.rules.schema import arguments_of
from turnwheel.states.state import Executing
from turnwheel.testing.scripted import ScriptedModel, says

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sizes.md").read_text("utf-8")
ROW = re.compile(r"^\| (.+?) \| ([\d,]+)(?: (\w+))? \| (.+?) \| (.+) \|$", re.MULTILINE)
SET = re.compile(r"`([\w/]+)\.py: (\w+)`")

ROWS = [
    (what.removesuffix(" *"), int(most.replace(",", "")), set_in)
    for what, most, _, set_in, _ in ROW.findall(PAGE)
]

LIMITS = {what: limit for what, limit, _ in ROWS}


def refused(what: str, function: Callable[[], object]) -> None:
    with pytest.raises(TooLarge) as caught:
        function()
    assert caught.value.what == what
    assert caught.value.size == caught.value.limit + 1


# What a provider sends


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(**fields: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields}]})


STOP = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n"
REQUEST = CallModel(id="r-1", model="openai:m", view=Conversation(revision=0, length=1))


def scene_of(emit: Callable[[Any], None] = lambda _: None) -> PerformContext:
    config, history, clock = Config(model=ModelSpec(name="openai:m")), History.of(user("hi")), SystemClock()
    return PerformContext(session="s", run="r", config=config, history=history, clock=clock, emit=emit)


async def asked(response: httpx.Response, **settings: Any) -> ModelFinished | ModelFailed:
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: response)) as client:
        answer = await OpenAIChat("http://there", "key", client, **settings)(REQUEST, scene_of())
    assert isinstance(answer, ModelFinished | ModelFailed)
    return answer


def streamed(body: bytes) -> httpx.Response:
    return httpx.Response(200, stream=httpx.ByteStream(body))


def read_as(body: bytes) -> AnswerEnd:
    parser = ChatParser()
    parser.feed(body)
    return parser.end()


def cut_with(ending: AnswerEnd | ModelFinished | ModelFailed, message: str) -> None:
    assert isinstance(ending, Broken | ModelFailed)
    assert (ending.failure, message in ending.message) == (Failure.CUT, True), ending.message


@attrs.frozen
class Gives:
    """A parser that gives *pieces*, whatever it is fed."""

    pieces: Sequence[Piece]
    done: bool = False
    usage: Usage | None = None

    def feed(self, data: bytes) -> list[Piece]:
        return list(self.pieces) if data else []

    def end(self, cut: Broken | None = None) -> AnswerEnd:
        return cut or Complete(stop=StopReason.END_TURN)


async def taken(*pieces: Piece) -> AnswerEnd:
    exchange = CallAttempt(REQUEST, scene_of(), Gives(pieces), LIMITS["the bytes of an answer"])
    exchange.take(b"x")
    return exchange.end()


def answered(calls: int) -> tuple[Machine, tuple[Effect, ...]]:
    """A machine whose model called a tool so often, and what it asks for."""
    look = ToolSpec(name="look", side_effect="read_only")
    machine = Machine.start(Config(model=ModelSpec(name="m"), tools=(look,)), "hi")
    [request] = [effect for effect in machine.advance() if isinstance(effect, CallModel)]
    pieces = tuple([CallPiece(number, f"c{number}", "look", "{}") for number in range(calls)])
    end = ModelFinished(at=1.0, request=request.id, stop=StopReason.TOOL_USE, usage=Usage(), pieces=pieces)
    return machine, machine.advance(end)


def warnings_in(effects: tuple[Effect, ...]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, Warned)]


def said_by(function: Callable[..., Any], home: Path, **arguments: object) -> Any:
    return function(ToolContext(cwd=home, deps=None), **arguments)


MARK = "\n[... 1 characters cut ...]\n"


async def result_of(value: object, **settings: Any) -> tuple[str, list[str]]:
    @tool(side_effect="read_only")
    async def give(context: ToolContext[object]) -> object:
        """Give it."""
        context.emit(str(value))
        return value

    said: list[str] = []
    run = RunTool(id="r-1", call="r-0", tool="give", arguments="{}", timeout=9.0)
    ended = await ToolRunner([give], **settings)(run, scene_of(lambda noted: said.append(noted.text)))
    return ended.content, said


def files(*sizes: int) -> tuple[str, list[int]]:
    end = end_of_value("look", [Binary(media_type="image/png", data=bytes(size)) for size in sizes])
    return end.content, [len(file.data) for file in end.files]


FILE = LIMITS["a file of a result"]


async def session_of(store: MemoryStore | None = None) -> Session:
    model = ScriptedModel(*[says("well")] * 9)
    return Agent(model="wire:m", performers={CallModel: model}, store=store).session("s")


Made = Callable[[int], Decision]


DECISIONS: dict[str, tuple[Made, str]] = {
    "the arguments that come with a yes": (
        lambda size: Approve(arguments="{}".ljust(size)),
        "the arguments of a call",
    ),
    "the message that comes with a no": (lambda size: Deny(message="x" * size), "the message of a no"),
    "arguments that a yes for all such calls names": (
        lambda size: ApproveAlways(where=(("a", "b"),) * size),
        "a yes for all such calls",
    ),
}


async def standin_says(request: bytes) -> bytes:
    async with StandIn() as server:
        host, port = server.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        said = await reader.readline()
        writer.close()
        return said


async def what_a_provider_sends(what: str, limit: int, _: Path) -> bool:  # noqa: C901, PLR0912, PLR0915  # a case for each row
    match what:
        case "the head of an answer":

            async def head_only(line: Line) -> None:
                await line.send(b"HTTP/1.1 200 OK\r\na: " + b"b" * 167_936 + b"\r\n\r\n")

            async with Hostile(head_only) as server:
                model = OpenAIChat(server.url, "key")
                ended = await model(REQUEST, scene_of())
                await model.aclose()
            assert isinstance(ended, ModelFailed)
            assert ended.failure is Failure.CONNECTION
        case "the bytes of an answer":
            body = delta(content="x" * 500)
            assert isinstance(await asked(streamed(body + STOP), max_answer=len(body + STOP)), ModelFinished)
            cut_with(
                await asked(streamed(body + b"\n"), max_answer=len(body)), f"larger than {len(body)} bytes"
            )
            cut_with(await asked(streamed(b"\n" * (limit + 1))), f"larger than {limit} bytes")
        case "the time of an answer":

            class Slow(httpx.AsyncByteStream):
                async def __aiter__(self) -> AsyncIterator[bytes]:
                    while True:
                        yield b": ping\n\n"
                        await asyncio.sleep(0.001)

            async with asyncio.timeout(PATIENCE):
                answer = await asked(httpx.Response(200, stream=Slow()), answer_timeout=0.05)
            assert isinstance(answer, ModelFailed)
            assert (answer.failure, "answer_timeout=0.05" in answer.message) == (Failure.TIMEOUT, True)
            assert OpenAIChat(api_key="")._settings.answer_timeout == limit  # pyright: ignore[reportPrivateUsage]  # to wait for it would take an hour
        case "what an answer says, thinking and calls included":
            most = TextPiece("x" * limit)
            assert isinstance(await taken(most), Complete)
            cut_with(await taken(most, TextPiece("x")), f"says more than {limit} characters")
        case "the pieces of an answer":
            assert isinstance(await taken(*[TextPiece("x")] * limit), Complete)
            cut_with(await taken(*[TextPiece("x")] * (limit + 1)), f"in more than {limit} pieces")
        case "the arguments of one call":
            full, one = CallPiece(0, "a", "f", "x" * limit), CallPiece(0, arguments="x")
            assert isinstance(await taken(full, CallPiece(1, "b", "f", "x")), Complete)
            cut_with(await taken(full, one), f"more than {limit} characters")
        case "what is unpacked at once":
            unpack = decompressor("deflate")
            assert unpack is not None
            assert [len(part) for part in unpack(zlib.compress(bytes(limit + 1)))] == [limit, 1]
        case "a line or an event of a stream":
            for size, oversized in ((limit, False), (limit + 1, True)):
                splitter = EventSplitter()
                splitter.feed(b"x" * size)
                assert splitter.oversized is oversized
            part = b"data: " + b"x" * (limit // 8 - 1)
            for lines in ([b"data: " + b"x" * (limit - 6)], [part] * 8):
                splitter = EventSplitter()
                assert len(splitter.feed(b"\n".join(lines) + b"\n\n")) == 1
                assert not splitter.oversized
            for lines in ([b"data: " + b"x" * (limit - 5)], [*[part] * 8, b"data:"]):
                cut_with(
                    read_as(b"\n".join(lines) + b"\n\n"),
                    f"an event of the stream is larger than {limit} bytes",
                )
        case "an answer in one piece":
            whole = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'
            assert isinstance(read_as(whole + b" " * (limit - len(whole))), Complete)
            cut_with(read_as(whole + b" " * (limit - len(whole) + 1)), f"larger than {limit} bytes")
        case "values in one chunk":
            assert is_decodable(b"[" + b"0," * (limit - 1) + b"0]")
            assert not is_decodable(b"[" + b"0," * limit + b"0]")
            assert isinstance(
                read_as(delta(content="a") + b"data: {" + b"[0]," * limit + b"}\n\n" + STOP), Complete
            )
        case "levels in one chunk":
            for brackets in (b"[]", b"{}"):
                deep = brackets[:1] * limit + brackets[1:] * limit
                assert is_decodable(deep)
                assert not is_decodable(brackets[:1] + deep + brackets[1:])
        case "the id of a call, its tool's name, a stop sequence":
            for size, kept in ((limit, "x" * limit), (limit + 1, "x" * limit + "...")):
                call = {"index": 0, "id": "x" * size, "function": {"name": "x" * size, "arguments": "{}"}}
                assert ChatParser().feed(delta(tool_calls=[call])) == [CallPiece(0, kept, kept, "{}")]
                met = {"index": 0, "delta": {}, "finish_reason": "stop_sequence", "stop_reason": "x" * size}
                ending = read_as(event({"choices": [met]}))
                assert isinstance(ending, Complete)
                assert ending.sequence == kept
        case "a number of tokens":
            for told, believed in ((limit, limit), (limit + 1, 0)):
                ending = read_as(event({"choices": [], "usage": {"prompt_tokens": told}}) + STOP)
                assert (ending.usage or Usage()).input == believed
        case "the calls of an answer":
            for calls, warnings in ((limit, 0), (limit + 1, 1)):
                machine, effects = answered(calls)
                assert isinstance(machine.state, Executing)
                assert (len(machine.state.batch.calls), len(warnings_in(effects))) == (limit, warnings)
        case "calls left out that a `Warned` names":
            said = "calls left out of an answer that ended with tool_use: "
            for more, end in ((limit, ""), (limit + 1, " and 1 more")):
                effects = answered(LIMITS["the calls of an answer"] + more)[1]
                assert warnings_in(effects) == [said + ", ".join(["look"] * limit) + end]
        case "the body of a refusal":
            for size in (limit, limit + 1):
                answer = await asked(httpx.Response(400, stream=httpx.ByteStream(b"x" * size)))
                assert isinstance(answer, ModelFailed)
                assert answer.message.endswith(f"... ({limit} characters)")
        case "the message of a failure":
            assert shorten("x" * limit) == "x" * limit
            assert shorten("x" * (limit + 1)) == "x" * limit + f"... ({limit + 1} characters)"
        case _:
            return False
    return True


async def what_a_model_asks_for(what: str, limit: int, home: Path) -> bool:  # noqa: C901, PLR0912, PLR0915  # a case for each row
    match what:
        case "levels in arguments":
            for levels, taken_for in ((limit, dict), (limit + 1, type(None))):
                assert isinstance(arguments_of('{"a":' * levels + "1" + "}" * levels), taken_for)
        case "a file that is read or edited":
            path = home / "a"
            path.write_bytes(b"x" * limit)
            assert said_by(edit, home, path="a", old="x" * limit, new="y").startswith("replaced 1")
            path.write_bytes(b"x" * (limit + 1))
            with pytest.raises(ValueError, match="has more than 10,000,000 bytes"):
                said_by(read, home, path="a")
            path.write_bytes(b"x" * 1_000)
            with pytest.raises(ValueError, match="would have 10,001,000 characters, and may have 10,000,000"):
                said_by(edit, home, path="a", old="x", new="y" * 10_001, all=True)
            assert path.read_bytes() == b"x" * 1_000
        case "lines of a file at once":
            for lines, end in (
                (limit, "\tx"),
                (limit + 1, "[lines 1 to 2000 of 2,001; offset=2001 goes on]"),
            ):
                (home / "a").write_text("x\n" * lines)
                assert said_by(read, home, path="a").endswith(end)
        case "a file that is searched":
            (home / "a").write_bytes(b"x\n" + b"y" * (limit - 2))
            assert (await said_by(grep, home, pattern="x")).splitlines() == ["a:1: x"]
            (home / "a").write_bytes(b"x\n" + b"y" * (limit - 1))
            assert "1 over 5 MB" in await said_by(grep, home, pattern="x")
        case "a line that a search shows":
            (home / "a").write_text("x" * limit + "\n" + "x" * (limit + 1))
            found = (await said_by(grep, home, pattern="x")).splitlines()
            assert found == [f"a:1: {'x' * limit}", f"a:2: {'x' * limit}..."]
        case "entries that are listed":
            for number in range(limit):
                (home / str(number)).touch()
            assert len(said_by(ls, home).splitlines()) == limit
            (home / "more").touch()
            assert said_by(ls, home).splitlines()[-1] == "[1 more]"
        case "lines that a search finds":
            (home / "a").write_text("x\n" * limit)
            assert len((await said_by(grep, home, pattern="x")).splitlines()) == limit
            (home / "a").write_text("x\n" * (limit + 1))
            assert (
                (await said_by(grep, home, pattern="x"))
                .splitlines()[-1]
                .startswith(f"[stopped after {limit}")
            )
        case "a result":
            half = "x" * (limit // 2)
            assert (await result_of("x" * limit))[0] == "x" * limit
            assert (await result_of("x" * (limit + 1)))[0] == half + MARK + half
            assert (await result_of("x" * 11, max_result=10))[0] == "xxxxx" + MARK + "xxxxx"
        case "a result in the conversation":
            for size, whole in ((limit, True), (limit + 1, False)):
                machine, effects = answered(1)
                [run] = [effect for effect in effects if isinstance(effect, RunTool)]
                machine.advance(ToolFinished(at=2.0, request=run.id, content="x" * size))
                [result] = machine.memory.history[2].results
                assert (result.content == "x" * size) is whole
                assert len(result.content) <= limit
                assert whole or "left out" in result.content
        case "what a command says":
            said = await said_by(bash, home, command=f"head -c {limit} /dev/zero | tr '\\0' x")
            assert said == "x" * limit + "\n[exit code 0]"
            said = await said_by(bash, home, command=f"head -c {limit + 1} /dev/zero | tr '\\0' x")
            assert re.search(r"\[\.\.\. 1 bytes cut \.\.\.\]", said)
        case "a file of a result" | "all files of a result" | "files of a result":
            most, more, says = {
                FILE: ([limit], [limit + 1], "a file is 750,000 bytes"),
                20: ([1] * limit, [1] * (limit + 1), "a result is 20 files"),
            }.get(limit, ([FILE] * 5, [FILE] * 5 + [1], "all files of a result is 3,750,000 bytes"))
            assert files(*most)[1] == most
            said, kept = files(*more)
            assert (f"the limit for {says}]" in said, kept) == (True, [] if limit == FILE else most)
        case "what a tool says at once while it runs":
            half = "x" * (limit // 2)
            assert (await result_of("x" * limit))[1] == ["x" * limit]
            assert (await result_of("x" * (limit + 1)))[1] == [half + MARK + half]
        case "whole results that no journal has":
            assert FullResults().most == limit
        case _:
            return False
    return True


async def what_the_host_says(what: str, limit: int, home: Path) -> bool:
    match what:
        case "a file of instructions, such as `AGENTS.md`":
            for size, faults in ((limit, 0), (limit + 1, 1)):
                (home / "AGENTS.md").write_bytes(b"x" * size)
                found = await InstructionReader(home)(
                    ReadInstructions(id="r-1", files=("AGENTS.md",)), scene_of()
                )
                assert (len(found.text), len(found.faults)) == (len("# AGENTS.md\n\n") + limit, faults)
        case "a file of settings":
            path = home / "turnwheel.toml"
            path.write_bytes(b"#" * limit)
            Settings.load(path, env={})
            path.write_bytes(b"#" * (limit + 1))
            with pytest.raises(ConfigError, match=r"has 1,000,001 bytes, and may have 1,000,000$"):
                Settings.load(path, env={})
        case "what a hook's command writes":
            for size, fine in ((limit, True), (limit + 1, False)):
                answer = json.dumps({"verdict": "allow"}).ljust(size)
                (home / "answer").write_text(answer)
                hook = command_hook("pre_tool_use", command=["cat", "answer"], cwd=home)
                about = HookCall(hook=Hook.PRE_TOOL_USE)
                if fine:
                    assert await hook(about) == HookAnswer(verdict="allow")
                    continue
                with pytest.raises(ValueError, match="its output is no answer"):
                    await hook(about)
        case "the reason, context or fault of a hook":
            half = "x" * (limit // 2)
            assert checked_answer("h", HookAnswer(reason="x" * limit)).answer.reason == "x" * limit
            assert (
                checked_answer("h", HookAnswer(context="x" * (limit + 1))).answer.context
                == half + MARK + half
            )
        case "the arguments a hook gives a call":
            for size, faulty in ((limit, False), (limit + 1, True)):
                said = checked_answer("h", HookAnswer(arguments="{}".ljust(size)))
                assert (said.fault != "", said.answer.arguments == "") == (faulty, faulty)
        case _:
            return False
    return True


async def what_people_say(what: str, limit: int, home: Path) -> bool:  # noqa: C901, PLR0912, PLR0915  # a case for each row
    match what:
        case "a prompt, or what is said into a run":
            session = await session_of()
            await session.send("x" * limit)
            for say in (session.send, partial(session.steer, how=Steering.NOW), session.run):
                with pytest.raises(TooLarge, match=r"the text of a prompt has 4,000,001 characters"):
                    await say("x" * (limit + 1))
        case "files that come with it" | "those files together":
            session, file = await session_of(), Binary(media_type="image/png", data=b"x")
            many, large = (file,) * limit, (Binary(media_type="image/png", data=bytes(limit)),)
            most, says = (
                (many, "101 files, and may have 100$") if limit == 100 else (large, "20,000,001 bytes")
            )
            await session.send("look", files=most)
            with pytest.raises(TooLarge, match=f"a prompt has {says}"):
                await session.send("look", files=(*most, file))
        case "an id, a sender, who answers, a session's or a file's name":
            store = MemoryStore()
            session, name, long = await session_of(store), "x" * limit, "x" * (limit + 1)
            file = Binary(media_type="image/png", data=b"x", name=name)
            await session.send("hi", id=name, sender=name, files=(file,))
            await session.resume()
            await session.fork(name)
            agent = Agent(model="wire:m", performers={CallModel: ScriptedModel()})
            agent.session(name)
            approval_event("r-1", Approve(), 0.0, name)
            refused("the name of who answers", lambda: approval_event("r-1", Approve(), 0.0, long))
            always = ApproveAlways(where=(("a", long),))
            refused(
                "an argument of a yes for all such calls, or its glob,",
                lambda: approval_event("r-1", always, 0.0, ""),
            )
            refused("the id of a session", lambda: agent.session(long))
            for act in (
                lambda: session.send("hi", id=long),
                lambda: session.send("hi", sender=long),
                lambda: session.send("hi", files=(attrs.evolve(file, name=long),)),
                lambda: session.send("hi", files=(attrs.evolve(file, media_type=long),)),
                lambda: session.fork(long),
            ):
                with pytest.raises(TooLarge, match=r"1,001 characters, and may have 1,000$"):
                    await act()
        case row if row in DECISIONS:
            made, says = DECISIONS[row]
            approval_event("r-1", made(limit), 0.0, "")
            refused(says, lambda: approval_event("r-1", made(limit + 1), 0.0, ""))
        case "posts that wait for one session":
            store = MemoryStore()
            posts = [
                encode_entry(Posted(event=UserSent(at=0.0, id=str(number), text="x")))
                for number in range(limit - 1)
            ]
            await store.append("s", 0, posts)
            session = await session_of(store)
            await session.send("the last one")
            for more in (session.send, session.steer):
                with pytest.raises(QueueFull, match="10000 prompts waiting"):
                    await more("one more")
            await session.interrupt()
        case "a title":
            assert first_line("x" * limit) == "x" * limit
            assert first_line("x" * (limit + 1)) == "x" * (limit - 1) + "…"
        case "what stdin says in the place of a text":
            runner = CliRunner()
            arguments = ["run", "-", "--stand-in", "--store", str(home / "a.db")]
            ended = await asyncio.to_thread(partial(runner.invoke, cli, arguments, input=b"x" * (limit + 1)))
            assert isinstance(ended.exception, TooLarge)
            assert str(ended.exception) == "the text on stdin has 16,000,001 bytes, and may have 16,000,000"
        case "a line piped to `chat`":
            for size in (limit, limit + 1, 2 * limit):
                data = b"x" * size + b"\nnext\nlast"
                lines = list(_split_lines(data[at : at + 65_536] for at in range(0, len(data), 65_536)))
                assert [len(line) for line in lines] == [min(size, limit + 1), 4, 4]
        case "an entry of a journal, a snapshot, a row of the list":
            machine = Machine.start(Config(model=ModelSpec(name="m")), "hi")
            too_much = b'{"a":' + b" " * (limit - 5)
            for read_it in (
                lambda: decode_entry(too_much),
                lambda: decode(too_much, UserSent),
                lambda: Machine.restore(too_much, machine.config, machine.memory.history),
            ):
                with pytest.raises(JournalError, match=r"bytes, and may have 134,217,728|cannot be read"):
                    read_it()
            event = UserSent(at=0.0, id="a", text="x" * limit)
            with pytest.raises(TooLarge, match="an entry of a journal has"):
                encode_entry(Posted(event=event))
        case "notices that a watcher lags behind":
            broker = Feed(limit)
            watcher = broker.subscribe()
            for number in range(limit + 1):
                broker.publish(TextDelta(str(number), at=0.0))
            assert watcher.dropped == 1
        case "the head of a request to the stand-in":
            head = b"GET /health HTTP/1.1\r\nx: "
            assert b" 200 " in await standin_says(head + b"x" * (limit - len(head) - 4) + b"\r\n\r\n")
            assert b" 431 " in await standin_says(head + b"x" * limit + b"\r\n\r\n")
        case "the body of a request to the stand-in":
            head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
            for size, status in ((limit, b" 400 "), (limit + 1, b" 413 ")):
                assert status in await standin_says(head % size + b"x" * size)
        case "the body of a request to the server, where files or a conversation may come in it":
            async with serving(Agent(model="openai:m")) as server:
                for size, code in ((limit, 422), (limit + 1, 413)):
                    await server.post("/api/sessions", "x" * (size - 2), code)
        case "any other body, and what surrounds the strings of any":
            async with serving(Agent(model="openai:m")) as server:
                await server.post("/api/sessions", {"id": "s"}, 201)
                for size, code in ((limit, 422), (limit + 1, 413)):
                    await server.post("/api/sessions/s/control", "x" * (size - 2), code)
        case "the values of a body":
            async with serving(Agent(model="openai:m")) as server:
                for values, code in ((limit, 422), (limit + 1, 413)):
                    await server.post("/api/sessions", [0] * (values - 1), code)
        case "lists and objects of a body in one another":
            async with serving(Agent(model="openai:m")) as server:
                for depth, code in ((limit, 422), (limit + 1, 400)):
                    answer = await server.client.post("/api/sessions", content=b"[" * depth + b"]" * depth)
                    assert answer.status_code == code
        case _:
            return False
    return True


def test_the_page_says_what_is_set() -> None:
    assert len(LIMITS) == len(ROWS)
    for what, most, set_in in ROWS:
        if (found := SET.search(set_in)) is not None:
            module = importlib.import_module("turnwheel." + found[1].replace("/", "."))
            assert getattr(module, found[2]) == most, what
        elif "Compaction" in set_in:
            assert Compaction().result_limit == most
        else:
            assert set_in == "httpx"


SECTIONS = (what_a_provider_sends, what_a_model_asks_for, what_the_host_says, what_people_say)


@pytest.mark.parametrize("what", sorted(LIMITS))
async def test_one_more_than_that_comes_to_what_the_page_says(what: str, tmp_path: Path) -> None:
    # A named error, or a cut with a mark; and the limit itself is taken. Each row is tried.
    assert sum([await section(what, LIMITS[what], tmp_path) for section in SECTIONS]) == 1
