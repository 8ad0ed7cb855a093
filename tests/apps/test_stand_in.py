"""The stand-in model server: its script by itself, its script over the built-in tools, and its HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import attrs
import httpx
import msgspec
import pytest
from support.patience import PATIENCE

from turnwheel.apps.stand_in.faults import FAULTS, SMALL_MODEL
from turnwheel.apps.stand_in.script import BASH_MODEL, MODELS, SLOW_MODEL, decide
from turnwheel.apps.stand_in.server import MAX_BODY, MAX_HEAD, StandIn, main
from turnwheel.apps.stand_in.wire import Function, MadeCall, Offer, ScriptedAnswer, WireMessage, pieces
from turnwheel.effects.messages import Message as Said, Outcome, Role, Text, ToolCall, ToolResult, user
from turnwheel.performers.models.encoding import transcript
from turnwheel.performers.tools.builtin import builtin_tools
from turnwheel.states.rules import compaction, model_messages

TOOLS = {tool.spec.name: tool for tool in builtin_tools()}

LS = "README.md\ndocs/\nsetup.py"
GLOB = "docs/conf.py\nsetup.py"
README = "     1\t# Pump\n     2\t\n     3\tMoves water\n     4\tuphill.\n     5\t\n     6\t## Use\n"
GREP = "docs/conf.py:3: def build():\nsetup.py:1: class Setup:\nsetup.py:9: def main():"
WROTE = "wrote 500 bytes to REPORT.md"

Turn = tuple[Sequence[tuple[str, str]], Sequence[str]]
"""The calls of an answer, name and arguments, with what each returned."""

LOOK: Turn = ([("ls", '{"path":"."}'), ("glob", '{"pattern":"**/*.py"}')], [LS, GLOB])
READ: Turn = (
    [("read", '{"path":"README.md"}'), ("grep", '{"pattern":"^(def|class|async def) ","glob":"*.py"}')],
    [README, GREP],
)
WRITE: Turn = ([("write", '{"path":"REPORT.md","content":"..."}')], [WROTE])


def talk(prompt: str, *turns: Turn) -> list[WireMessage]:
    """A conversation of *prompt* and the *turns* since; each counts its ids anew, as some providers do."""
    messages = [WireMessage(role="user", content=prompt)]
    for calls, results in turns:
        made = [
            MadeCall(id=f"call_{index}", function=Function(name=name, arguments=arguments))
            for index, (name, arguments) in enumerate(calls)
        ]
        messages.append(WireMessage(role="assistant", tool_calls=made))
        messages += [
            WireMessage(role="tool", tool_call_id=call.id, content=result)
            for call, result in zip(made, results, strict=True)
        ]
    return messages


def offers(*names: str) -> list[Offer]:
    """The built-in tools called *names* as they are offered, all of them unless told."""
    schemas = {name: json.loads(TOOLS[name].spec.schema) for name in names or TOOLS}
    return [offer(name, schema) for name, schema in schemas.items()]


def offer(name: str, schema: object) -> Offer:
    about = {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}
    return msgspec.convert(about, Offer)


def wishes(step: ScriptedAnswer) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, json.loads(call.arguments)) for call in step.calls]


def written(step: ScriptedAnswer) -> str:
    ((name, arguments),) = wishes(step)
    assert name == "write"
    return str(arguments["content"])


# The script


@attrs.define
class Chat:
    """A conversation with the stand-in, as its story tells it: each verb is a method and tells its answer."""

    messages: list[WireMessage] = attrs.field(factory=list)
    tools: list[Offer] = attrs.field(factory=offers)
    model: str = MODELS[0]
    step: ScriptedAnswer = attrs.field(factory=lambda: ScriptedAnswer(text=""))

    def do_offered(self, rest: str, _: list[str]) -> None:
        names = [] if rest == "none" else [*TOOLS] if rest == "all" else rest.split()
        path = {"type": "object", "properties": {"path": {}}, "required": ["path"]}
        own = {"weather": {"type": "object"}, "word_count": path}
        self.tools = [offer(name, own[name]) if name in own else offers(name)[0] for name in names]

    def do_model(self, rest: str, _: list[str]) -> None:
        self.model = rest

    def do_ask(self, rest: str, _: list[str]) -> list[str]:
        self.messages = []
        return self.do_instead(rest, [])

    def do_survey(self, rest: str, _: list[str]) -> list[str]:
        """Begin anew with a prompt, and give results until it writes; only that is told."""
        self.do_ask(rest, [])
        self.do_got("", [])
        return self.do_got("", [])

    def do_say(self, rest: str, _: list[str]) -> list[str]:
        self.messages.append(WireMessage(role="assistant", content=self.step.text))
        return self.do_instead(rest, [])

    def do_instead(self, rest: str, _: list[str]) -> list[str]:
        self.messages.append(WireMessage(role="user", content=rest.replace("\\n", "\n")))
        return self.decided()

    def do_got(self, _: str, given: list[str]) -> list[str]:
        """Give the calls their results: what tools usually return, unless a line says another one."""
        calls = [(call.name, call.arguments) for call in self.step.calls]
        return self.called(calls, [*given, *[CANNED[name] for name, _ in calls[len(given) :]]])

    def do_made(self, _: str, given: list[str]) -> list[str]:
        """Have calls of another model in the conversation, with their results."""
        rows = [line.split(" => ") for line in given]
        calls = [(words.partition(" ")[0], words.partition(" ")[2]) for words, _ in rows]
        return self.called(calls, [result for _, result in rows])

    def do_report(self, _: str, __: list[str]) -> list[str]:
        return [
            line for call in self.step.calls for line in json.loads(call.arguments)["content"].split("\n")
        ]

    def do_fact(self, rest: str, _: list[str]) -> None:
        assert rest in written(self.step)

    def called(self, calls: Sequence[tuple[str, str]], results: Sequence[str]) -> list[str]:
        """Have *calls* with *results*, whose ids begin anew in each answer, as with some providers."""
        whole = {"README": README}
        turn = calls, [whole.get(text, text.replace("\\n", "\n").replace("\\t", "\t")) for text in results]
        self.messages += [each for each in talk("", turn)[1:] if each.content != "LOST"]
        return self.decided()

    def decided(self) -> list[str]:
        self.step = decide(self.messages, self.tools, model=self.model)
        told = [{k: v for k, v in arguments.items() if k != "content"} for _, arguments in wishes(self.step)]
        calls = [f"{c.id} {c.name} {json.dumps(t)}" for c, t in zip(self.step.calls, told, strict=True)]
        text, report, _ = self.step.text.partition("# Report")
        return [*f"{text}{report and '# Report ...'}".split("\n"), *calls]


CANNED = {"ls": LS, "glob": GLOB, "read": README, "grep": GREP, "write": WROTE}
FILE = Path(__file__).parent / "stand_in.txt"
STORIES = FILE.read_text("utf-8").split("=== ")[1:]


def played(story: str) -> str:
    title, *lines = [line for line in story.rstrip("\n").split("\n") if not line.startswith("  ")]
    chat, told = Chat(), [title]
    for number, line in enumerate(lines):
        told.append(line)
        if line and not line.startswith(("#", "<")) and line != "":
            given = [each[2:] for each in takewhile(lambda each: each.startswith("<"), lines[number + 1 :])]
            lines[number + 1 : number + 1 + len(given)] = [""] * len(given)
            told += [f"< {each}".rstrip() for each in given]
            verb, _, rest = line.partition(" ")
            told += [f"  {each}".rstrip() or "  |" for each in getattr(chat, f"do_{verb}")(rest, given) or []]
    return "\n".join(each for each in told if each) + "\n\n"


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[story.split("\n")[0] for story in STORIES])
def test_it_goes_by_its_script(number: int) -> None:
    told = played(STORIES[number])
    if os.environ.get("RECORD"):
        STORIES[number] = told
        (Path(__file__).parent / "stand_in.txt").write_text(
            "".join(f"=== {each}" for each in STORIES), "utf-8"
        )
    assert told == STORIES[number]


@pytest.mark.parametrize(
    ("tool", "result", "fact"),
    [
        ("ls", "a.py\nb/\n[1,200 more]", "Entries at the top: at least 2. Folders among them: at least 1."),
        ("glob", "a.py\n[stopped after 1; narrow the search]", "Python files: at least 1."),
        ("glob", "a.py\nto/\n[... 9,000 characters cut ...]\nrn.py\nz.py", "Python files: at least 2."),
        (
            "grep",
            "a.py:1: def a():\n[left out: 1 binary]",
            "Python: at least 1. Files they are in: at least 1.",
        ),
        ("read", "     1\t# A\n[lines 1 to 1 of 3,000; offset=2 goes on]", "`README.md` has 3,000 lines."),
        ("read", "[the file is empty]", "`README.md` has 0 lines. It has no heading."),
        ("grep", "[no line matches]", "Top-level definitions in Python: 0."),
        ("glob", "[no file matches]", "Python files: 0."),
        ("ls", "\n".join(f"f{n}" for n in range(30)), "- `f19`\n\nand 10 more"),
        # As the engine cuts what is too long for the conversation: the first 10 and the last 10 characters.
        *[
            (
                "glob",
                model_messages.shortened("a.py\n" * 100, 100, "c-1", reader),
                "Python files: at least 3.",
            )
            for reader in ("", "read_result")
        ],
        ("read", "     1\t# A", "`README.md` has 1 line."),
    ],
)
def test_a_count_of_what_was_cut_is_at_least(tool: str, result: str, fact: str) -> None:
    assert fact in written(decide(replaced(tool, result), offers()))


@pytest.mark.parametrize("tool", ["ls", "glob", "read", "grep"])
@pytest.mark.parametrize(
    "error",
    [
        "Tool raised an exception: [Errno 13] Permission denied",
        "Tool timed out after 30 s",
        model_messages.DENIED,
        model_messages.SKIPPED_AFTER_DENIAL,
        model_messages.CANCELLED,
        model_messages.OVER_BUDGET,
        model_messages.MAY_HAVE_RUN,
        model_messages.LOST,
        model_messages.not_found("ls", ()),
        model_messages.invalid_arguments("ls", "no"),
    ],
)
def test_a_failed_call_is_reported_and_not_invented(tool: str, error: str) -> None:
    report = written(decide(replaced(tool, error), offers()))
    assert f"## What did not work\n\n- `{tool}`: {error}\n" in report
    absent = {"ls": "Entries at", "glob": "Python files:", "read": "## README.md", "grep": "## Search"}[tool]
    assert absent not in report


def replaced(tool: str, result: str) -> list[WireMessage]:
    """The conversation before the report is written, where *tool* returned *result*."""
    messages = talk("Write a report", LOOK, READ)
    for message, name in (
        (messages[2], "ls"),
        (messages[3], "glob"),
        (messages[5], "read"),
        (messages[6], "grep"),
    ):
        if name == tool:
            message.content = result
    return messages


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "How long is "}, {"type": "text", "text": "a.md?"}]
    message = msgspec.convert({"role": "user", "content": parts}, WireMessage)
    assert wishes(decide([message], offers())) == [("read", {"path": "a.md"})]
    deep = decide(talk("Write a report", LOOK, ([("read", "[" * 100_000)], [README])), offers())
    assert "has 6 lines" in written(deep)


# Summaries


def history(prompt: str) -> list[Said]:
    """A conversation in which a file was read and a write denied."""
    calls = (
        ToolCall(id="1", wire_id="a", name="read", arguments='{"path":"a.md"}'),
        ToolCall(id="2", wire_id="a", name="write", arguments="{}"),
    )
    results = (
        ToolResult(call="1", wire_id="a", name="read", content="     1\tHello"),
        ToolResult(
            call="2", wire_id="a", name="write", content=model_messages.DENIED, outcome=Outcome.DENIED
        ),
    )
    return [
        user(prompt),
        Said(role=Role.ASSISTANT, parts=(Text(text="I do."), *calls)),
        Said(role=Role.TOOL, parts=results),
    ]


def summarised(messages: Sequence[Said]) -> str:
    """What the stand-in makes of *messages* when it is asked as the loop asks."""
    asked = [
        WireMessage(role="system", content=compaction.SUMMARY_INSTRUCTIONS),
        WireMessage(role="user", content=transcript(messages)),
    ]
    step = decide(asked)
    assert step.calls == ()
    return step.text


def test_a_summary_is_made_of_facts() -> None:
    assert summarised([*history("Look at\nthis"), user("And now that")]).splitlines() == [
        "Original task: Look at this",
        "Latest request: And now that",
        "Actions taken: 2 tool calls (read x1, write x1)",
        "Errors: write, denied x1",
        f"Last result: write: {model_messages.DENIED}",
    ]
    assert summarised([]).splitlines() == [
        "Original task: none was given",
        "Latest request: none was given",
        "Actions taken: 0 tool calls (none)",
        "Errors: none",
    ]


def test_work_goes_on_after_a_summary() -> None:
    once = compaction.summary_message(summarised(history("Write a report to x.md")), (), 0.0)
    twice = compaction.summary_message(summarised([once]), (), 0.0)
    for summary in (once, twice):
        step = decide(talk(summary.text, LOOK, READ), offers())
        assert wishes(step)[0][1]["path"] == "x.md"
        newer = [WireMessage(role="user", content=summary.text), *talk("How long is a.md?")]
        assert wishes(decide(newer, offers())) == [("read", {"path": "a.md"})]


# The server


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with StandIn() as server, httpx.AsyncClient(base_url=server.base_url) as client:
        yield client


def ask(
    prompt: str = "Write a report", *, stream: bool = True, model: str = "stand-in", **more: object
) -> dict[str, Any]:
    tools = [
        {"type": "function", "function": {"name": tool.spec.name, "parameters": json.loads(tool.spec.schema)}}
        for tool in TOOLS.values()
    ]
    messages = [{"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "tools": tools, "stream": stream, **more}


def events(body: str) -> list[Any]:
    """The data of the events in *body*, decoded, with the closing [DONE] as text."""
    datas = [event.removeprefix("data: ") for event in body.split("\n\n")[:-1]]
    return [json.loads(data) if data != "[DONE]" else data for data in datas]


async def test_an_answer_is_streamed_in_small_pieces(client: httpx.AsyncClient) -> None:
    body = ask(stream_options={"include_usage": True})
    async with client.stream("POST", "chat/completions", json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["transfer-encoding"] == "chunked"
        *chunks, usage, done = events((await response.aread()).decode())
    assert done == "[DONE]"
    assert usage["choices"] == []
    used = usage["usage"]
    assert (
        used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"] > used["completion_tokens"]
    )
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1
    *reasons, last = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert (set(reasons), last) == ({None}, "tool_calls")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    step = decide(talk("Write a report"), offers())
    assert used["completion_tokens"] == step.size // 4
    assert "".join(delta.get("content", "") for delta in deltas) == step.text
    assert folded(deltas) == [(call.id, call.name, call.arguments) for call in step.calls]
    assert sum("tool_calls" in delta for delta in deltas) > 2 * len(step.calls)
    # Usage comes only where it is asked for, and the connection is kept after a stream too.
    plain = await client.post("chat/completions", json=ask(stream_options=None))
    assert all("usage" not in chunk for chunk in events(plain.text)[:-1])
    assert peer(plain) == peer(response)


def folded(deltas: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The calls in *deltas* put together: id, name and arguments."""
    calls: list[tuple[str, str, str]] = []
    for delta in deltas:
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                assert part["index"] == len(calls)
                calls.append((part["id"], part["function"]["name"], ""))
            id_, name, arguments = calls[part["index"]]
            calls[part["index"]] = (id_, name, arguments + part["function"]["arguments"])
    return calls


async def test_each_event_is_one_http_chunk() -> None:
    body = json.dumps(ask()).encode()
    async with StandIn() as server, connected(server, post(body, "Connection: close\r\n")) as reader:
        _, _, chunked = (await reader.read()).partition(b"\r\n\r\n")
    count = 0
    while chunked != b"0\r\n\r\n":
        size, _, rest = chunked.partition(b"\r\n")
        chunk, end, chunked = rest[: int(size, 16)], rest[int(size, 16) :][:2], rest[int(size, 16) + 2 :]
        assert (chunk[:6], chunk[-2:], chunk.count(b"\n\n"), end) == (b"data: ", b"\n\n", 1, b"\r\n")
        count += 1
    assert count > 20


async def test_an_answer_may_come_as_one_object(client: httpx.AsyncClient) -> None:
    response = await client.post("chat/completions", json=ask(stream=False))
    step = decide(talk("Write a report"), offers())
    answer = response.json()
    assert (answer["object"], answer["model"]) == ("chat.completion", "stand-in")
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == step.text
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["ls", "glob"]
    assert set(answer["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    plain = (await client.post("chat/completions", json=ask("Hello", stream=False))).json()["choices"][0]
    assert plain["finish_reason"] == "stop"
    assert "tool_calls" not in plain["message"]


async def test_health_and_models_can_be_asked_for(client: httpx.AsyncClient) -> None:
    health = await client.get(str(client.base_url.copy_with(path="/health")))
    assert (health.status_code, health.json()) == (200, {"status": "ok", "server": "scripted stand-in"})
    listed = (await client.get("models?limit=5")).json()
    assert [model["id"] for model in listed["data"]] == list(MODELS)
    assert {model["owned_by"] for model in listed["data"]} == {"scripted stand-in"}
    assert {*FAULTS, SMALL_MODEL} < {*MODELS}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", "chat/completions", b"{", 400, "not a chat-completions request"),
        ("POST", "chat/completions", b"", 400, "not a chat-completions request"),
        ("POST", "chat/completions", b"[" * 100_000, 400, "not a chat-completions request"),
        ("POST", "chat/completions", b'{"model":"stand-in"}', 400, "`messages`"),
        ("POST", "chat/completions", b'{"model":"stand-in","messages":[]}', 400, "$.messages"),
        (
            "POST",
            "chat/completions",
            b'{"model":"stand-in","messages":[{"role":5}]}',
            400,
            "$.messages[0].role",
        ),
        (
            "POST",
            "chat/completions",
            b'{"model":"gpt-5","messages":[{"role":"user"}]}',
            404,
            "unknown model 'gpt-5'",
        ),
        ("POST", "chat/completions", b"x" * (MAX_BODY + 1), 413, "too large"),
        ("GET", "chat/completions", b"", 405, "takes POST"),
        ("POST", "models", b"{}", 405, "takes GET"),
        ("POST", "embeddings", b"{}", 404, "unknown path '/v1/embeddings'"),
    ],
)
async def test_a_bad_request_is_told_what_is_wrong(
    client: httpx.AsyncClient, method: str, path: str, body: bytes, status: int, says: str
) -> None:
    response = await client.request(method, path, content=body)
    assert response.status_code == status
    error = response.json()["error"]
    assert says in error["message"]
    assert (error["type"], error["param"]) == ("invalid_request_error", None)
    assert ("allow" in response.headers) == (status == 405)
    local = peer(response)
    assert peer(await client.get("models")) == local


def peer(response: httpx.Response) -> object:
    """Our end of the connection *response* came over, which tells connections apart."""
    return response.extensions["network_stream"].get_extra_info("client_addr")


@asynccontextmanager
async def connected(server: StandIn, sent: bytes) -> AsyncGenerator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.base_url).port or 0)
    writer.write(sent)
    yield reader
    writer.transport.abort()


def post(body: bytes, more: str = "") -> bytes:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /health HTTP/1.0\r\n\r\n", 400),
        (b"POST /health HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /health HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET /health HTTP/1.1\r\nX: " + b"x" * MAX_HEAD + b"\r\n\r\n", 431),
    ],
)
async def test_what_has_no_clear_end_closes_the_connection(request_: bytes, status: int) -> None:
    async with StandIn() as server, connected(server, request_) as reader:
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize(
    ("sent", "until"),
    [
        (b"", b""),
        (b"GET /hea", b""),
        (post(b"12345")[:-2], b""),
        (post(json.dumps(ask()).encode()), b"data: "),
    ],
)
async def test_a_client_that_leaves_is_forgotten(
    sent: bytes, until: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with StandIn(pace=0.001) as server:
        async with connected(server, sent) as reader:
            if until:
                await reader.readuntil(until)
        async with httpx.AsyncClient(base_url=server.base_url) as client:
            assert (await client.post("chat/completions", json=ask())).text.endswith("data: [DONE]\n\n")
    assert caplog.records == []
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.base_url


@pytest.mark.parametrize(
    ("pace", "body", "until"),
    [
        (60.0, ask(), b"data: "),  # the stream would have gone on for minutes
        # An answer that is larger than every buffer on the way, and that is not read.
        (0.0, ask("run: " + "x" * (MAX_BODY - 10_000), model=BASH_MODEL, stream=False), b"H"),
    ],
)
async def test_leaving_breaks_off_what_is_being_sent(
    pace: float, body: dict[str, Any], until: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before, rest = asyncio.all_tasks(), b""
    server = StandIn(pace=pace)
    await server.__aenter__()
    async with connected(server, post(json.dumps(body).encode())) as reader:
        await reader.readuntil(until)
        await server.__aexit__(None, None, None)
        assert asyncio.all_tasks() == before
        with suppress(ConnectionResetError):
            rest = await reader.read()
    assert b"[DONE]" not in rest
    assert len(rest) < MAX_BODY - 10_000
    assert caplog.records == []


async def test_the_slow_model_takes_its_time(client: httpx.AsyncClient) -> None:
    body = ask(model=SLOW_MODEL)
    async with client.stream("POST", "chat/completions", json=body) as response:
        received = await anext(response.aiter_text())
    assert "[DONE]" not in received


async def test_any_text_comes_back_whole(client: httpx.AsyncClient) -> None:
    odd = 'run: printf "ä\\n\U0001f6a2\t\x7f\u2028" # ' + "x" * 200
    response = await client.post("chat/completions", json=ask(odd, model=BASH_MODEL))
    deltas = [chunk["choices"][0]["delta"] for chunk in events(response.text)[:-1]]
    ((_, _, arguments),) = folded(deltas)
    assert json.loads(arguments) == {"command": odd.removeprefix("run: ")}


@pytest.mark.parametrize(
    "text", ["", "a", "one two three, and a longwordthatdoesnotend here", " " * 30, "x\ny" * 9]
)
def test_pieces_are_small_and_lose_nothing(text: str) -> None:
    cut = list(pieces(text))
    assert "".join(cut) == text
    assert all(3 <= len(piece) <= 8 for piece in cut[:-1])
    assert all(1 <= len(piece) <= 8 for piece in cut[-1:])
    assert list(pieces("Moves up on")) == ["Moves up", " on"]
    assert list(pieces("I am uphill")) == ["I am", " uphill"]


def test_the_command_line_serves_until_interrupted() -> None:
    command = [sys.executable, "-m", "turnwheel.apps.stand_in.server", "--pace", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert httpx.get(f"{url}/models").status_code == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    assert f"cannot listen on port {port}: " in capsys.readouterr().err
    assert main(["--port", "70000"]) == 1
