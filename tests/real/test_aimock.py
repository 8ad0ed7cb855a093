"""The same jobs on servers nobody here wrote: aimock, and LiteLLM in front of it in both its dialects."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from turnwheel import Agent, Approve, ChildSpec, Deny, DoneReason, ModelSpec, Policy, builtin_tools, tool
from turnwheel.effects.events import Failure
from turnwheel.effects.messages import Outcome, Reasoning, Role
from turnwheel.effects.notices import (
    AnswerDropped,
    Compacted,
    Notice,
    ReasoningDelta,
    RetryScheduled,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)

# Installing and starting is not the test's time.
pytestmark = [pytest.mark.real, pytest.mark.timeout(60, func_only=True)]

Json = dict[str, Any]
Play = Callable[..., None]
Heard = Callable[[], list[Json]]
Make = Callable[..., Agent]
N = TypeVar("N")

USAGE = {"prompt_tokens": 40, "completion_tokens": 20, "input_tokens": 40, "output_tokens": 20}
"""What an answer says it used, in the words of both dialects."""


def answer(turn: int, response: Json, **how: Any) -> Json:  # whatever a fixture takes
    """*response* for a request that has *turn* answers behind it; what it used is known."""
    return {"match": {"turnIndex": turn}, "response": {"usage": USAGE, **response}, **how}


def then(count: int, response: Json, **how: Any) -> Json:  # as above
    """*response* for the request number *count*, from 0, whatever is in it."""
    return {"match": {"sequenceIndex": count}, "response": response, **how}


def call(id: str, name: str, **arguments: str) -> Json:  # noqa: A002  # the wire's word
    """A tool call in an answer."""
    return {"id": id, "name": name, "arguments": arguments}


def said(messages: list[Json]) -> list[tuple[str, str]]:
    """Who said what on the wire."""
    return [(message["role"], message.get("content") or "") for message in messages]


def all_of(kind: type[N], notices: Iterable[object]) -> list[N]:
    """The *notices* of one *kind*."""
    return [notice for notice in notices if isinstance(notice, kind)]


async def watch(agent: Agent, prompt: str = "Go.") -> list[Notice]:
    """Every notice of one run."""
    return [notice async for notice in agent.stream(prompt)]


@tool
def book(city: str) -> str:
    """Book a flight."""
    return f"booked a flight to {city}"


# What goes well


async def test_calls_of_one_answer_run_together_and_their_results_go_back(
    play: Play, heard: Heard, make: Make
) -> None:
    """Thinking, two calls at once, a third in the next answer under an id that was used, a text in pieces."""
    both = asyncio.Barrier(2)
    degrees = {"Rome": "21", "Oslo": "-3", "Cairo": "35"}

    @tool(side_effect="read_only", timeout=10)
    async def weather(city: str) -> str:
        """Degrees in a city."""
        if city != "Cairo":
            await both.wait()
        return degrees[city]

    first = {
        "reasoning": "Two cities, two lookups.",
        "content": "I look both up.",
        "toolCalls": [call("call_a", "weather", city="Rome"), call("call_b", "weather", city="Oslo")],
    }
    third = {"toolCalls": [call("call_a", "weather", city="Cairo")]}
    last = {"content": "Cairo is the warmest, Oslo the coldest."}
    play(answer(0, first, chunkSize=4), answer(1, third), answer(2, last, chunkSize=5))

    async with make(tools=[weather], policy=Policy(concurrency="parallel_reads")) as agent:
        notices = await watch(agent, "Where is it warm?")

    texts = [delta.text for delta in all_of(TextDelta, notices)]
    assert "".join(texts) == "I look both up.Cairo is the warmest, Oslo the coldest."
    assert len(texts) >= 10
    assert "".join(delta.text for delta in all_of(ReasoningDelta, notices)) == "Two cities, two lookups."
    began_and_ended = [type(notice) for notice in notices if isinstance(notice, ToolStarted | ToolEnded)]
    assert began_and_ended[:2] == [ToolStarted, ToolStarted]
    assert {ended.content for ended in all_of(ToolEnded, notices)} == set(degrees.values())
    assert [turn.usage.total for turn in all_of(TurnEnded, notices)] == [60, 60, 60]
    assert not any(turn.usage.estimated for turn in all_of(TurnEnded, notices))

    requests = [request["messages"] for request in heard()]
    assert [len(messages) for messages in requests] == [1, 4, 6]
    assert said(requests[-1]) == [
        ("user", "Where is it warm?"),
        ("assistant", "I look both up."),
        ("tool", "21"),
        ("tool", "-3"),
        ("assistant", ""),
        ("tool", "35"),
    ]
    asked = [called["id"] for message in requests[-1] for called in message.get("tool_calls", ())]
    assert asked == [message["tool_call_id"] for message in requests[-1] if message["role"] == "tool"]
    assert len(set(asked)) == 3


async def test_a_session_remembers(play: Play, heard: Heard, make: Make) -> None:
    """Three runs of one session are one conversation to the server; the thinking of each is kept here."""
    play(*[answer(turn, {"reasoning": "Hm.", "content": f"Answer {turn}."}) for turn in range(3)])
    async with make(system="Be brief.") as agent, agent.session() as session:
        results = [await session.run(f"Question {turn}?") for turn in range(3)]
        history = session.history.slice(0, 6)
    assert [result.text for result in results] == ["Answer 0.", "Answer 1.", "Answer 2."]
    assert said(heard()[-1]["messages"]) == [
        ("system", "Be brief."),
        ("user", "Question 0?"),
        ("assistant", "Answer 0."),
        ("user", "Question 1?"),
        ("assistant", "Answer 1."),
        ("user", "Question 2?"),
    ]
    answers = [message for message in history if message.role is Role.ASSISTANT]
    assert [part.text for message in answers for part in message.parts if isinstance(part, Reasoning)] == [
        "Hm."
    ] * 3


async def test_a_long_answer_arrives_whole(play: Play, make: Make) -> None:
    """Sixty thousand characters in hundreds of pieces, not all of them ASCII."""
    text = "".join(f"{number}. Größe, 大きさ, μέγεθος; " for number in range(2_000))
    play(answer(0, {"content": text}, chunkSize=101))
    async with make() as agent:
        notices = await watch(agent)
    deltas = all_of(TextDelta, notices)
    assert "".join(delta.text for delta in deltas) == text
    assert len(deltas) >= 500


async def test_characters_that_are_torn_between_deltas_arrive_whole(aimock: str, play: Play) -> None:
    """A server that counts in UTF-16 units sends half an emoji; LiteLLM breaks on it, so this is direct."""
    text = "Grüße 😀😀 日本 🇩🇪"
    play(answer(0, {"content": text}, chunkSize=3))
    async with Agent(model="aimock", base_url=f"{aimock}/v1", api_key="x") as agent:
        assert (await agent.run("go")).text == text


async def test_an_answer_that_was_cut_off_for_its_length_says_so(play: Play, make: Make) -> None:
    """The server's finish reason is the run's end."""
    play(answer(0, {"content": "It all began when", "finishReason": "length"}))
    async with make() as agent:
        result = await agent.run("Tell me a story.")
    assert (result.reason, result.text) == (DoneReason.MAX_TOKENS, "It all began when")


async def test_what_was_not_told_is_estimated(play: Play, make: Make) -> None:
    """Without a word on usage a run still has an account, the server's or ours."""
    play({"match": {}, "response": {"content": "Four words, no account."}})
    async with make() as agent:
        result = await agent.run("How much was that?")
    assert result.spent.usage.input > 0
    assert result.spent.usage.output > 0


# What a person has a say in


async def test_a_denied_call_does_not_run_and_the_model_is_told(play: Play, heard: Heard, make: Make) -> None:
    """The run rests on the question, takes the no, and the words of it are on the wire."""
    play(
        answer(0, {"toolCalls": [call("call_1", "book", city="Rome")]}),
        answer(1, {"content": "Then you stay at home."}),
    )
    async with make(tools=[book]) as agent, agent.session() as session:
        resting = await session.run("Book me a flight to Rome.")
        assert resting.reason is None
        await session.approve(resting.waiting[0].id, Deny(message="too expensive"))
        result = await session.resume()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Then you stay at home.")
    role, words = said(heard()[-1]["messages"])[-1]
    assert role == "tool"
    assert "too expensive" in words
    assert "booked" not in words


async def test_the_main_job_with_the_built_in_tools(
    play: Play, heard: Heard, make: Make, tmp_path: Path
) -> None:
    """Look, read, and write once a person has approved: the file is there and the model was told."""
    (tmp_path / "notes.txt").write_text("one two three\n", "utf-8")
    play(
        answer(0, {"toolCalls": [call("call_1", "ls"), call("call_2", "read", path="notes.txt")]}),
        answer(1, {"toolCalls": [call("call_3", "write", path="REPORT.md", content="3 words\n")]}),
        answer(2, {"content": "Three words; see REPORT.md."}),
    )
    async with make(tools=builtin_tools(), cwd=tmp_path) as agent, agent.session() as session:
        resting = await session.run("Count the words of notes.txt.")
        assert [question.tool for question in resting.waiting] == ["write"]
        assert not (tmp_path / "REPORT.md").exists()
        await session.approve(resting.waiting[0].id, Approve())
        result = await session.resume()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Three words; see REPORT.md.")
    assert (tmp_path / "REPORT.md").read_text("utf-8") == "3 words\n"
    results = [words for role, words in said(heard()[-1]["messages"]) if role == "tool"]
    assert results == ["notes.txt", "     1\tone two three", "wrote 8 bytes to REPORT.md"]


async def test_an_interrupt_stops_a_stream_and_keeps_what_was_read(play: Play, make: Make) -> None:
    """The answer would take a minute; the run ends at once, and the next one knows what was said."""
    play(
        answer(0, {"content": "word " * 600}, chunkSize=5, latency=100),
        answer(1, {"content": "fine now"}),
    )
    async with make() as agent, agent.session() as session:
        async for notice in session.stream("Say a lot."):
            if isinstance(notice, TextDelta):
                session.interrupt()
        stopped = session.result()
        result = await session.run("Enough.")
    assert stopped.reason is DoneReason.INTERRUPTED
    assert 5 <= len(stopped.text) < 500
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")


async def test_a_child_has_a_conversation_of_its_own(play: Play, heard: Heard, make: Make) -> None:
    """The model starts an agent; what that finds out is a tool's result, and its account is the run's."""
    task = call("call_1", "run_agent", agent="counter", prompt="Count the sheep.")
    play(
        {"match": {"userMessage": "Count the sheep."}, "response": {"content": "Seven.", "usage": USAGE}},
        answer(0, {"toolCalls": [task]}),
        answer(1, {"content": "There are seven."}),
    )
    async with make(children=(ChildSpec(name="counter", description="It counts."),)) as agent:
        result = await agent.run("How many sheep?")
    assert (result.reason, result.text) == (DoneReason.END_TURN, "There are seven.")
    assert result.spent.usage.total == 3 * 60
    _, child, after = heard()
    assert said(child["messages"])[-1] == ("user", "Count the sheep.")
    assert "How many sheep?" not in str(child)
    assert not child.get("tools")
    assert said(after["messages"])[-1] == ("tool", "Seven.")


# What goes wrong


@pytest.mark.parametrize(
    ("error", "failures"),
    [
        ({"error": {"message": "boom"}, "status": 500}, {Failure.SERVER}),
        ({"error": {"message": "down"}, "status": 503}, {Failure.SERVER}),
        # behind LiteLLM in Anthropic's dialect it is a plain 500
        (
            {"error": {"message": "busy", "type": "overloaded_error"}, "status": 529},
            {Failure.OVERLOADED, Failure.SERVER},
        ),
    ],
    ids=["500", "503", "529"],
)
async def test_a_server_that_fails_once_is_asked_again(
    error: Json, failures: set[Failure], play: Play, heard: Heard, make: Make
) -> None:
    """The failure is seen, with the server's words, and the second answer is the answer."""
    play(then(0, error), then(1, {"content": "fine now"}))
    async with make() as agent:
        notices = await watch(agent)
    [retry] = all_of(RetryScheduled, notices)
    assert retry.failure in failures
    assert error["error"]["message"] in retry.message
    assert [delta.text for delta in all_of(TextDelta, notices)] == ["fine now"]
    assert len(heard()) == 2


async def test_a_rate_limit_is_waited_for_as_long_as_it_asks(play: Play, make: Make) -> None:
    """Retry-After is honoured, also where LiteLLM passes it on under a name of its own."""
    limit = {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 1}
    play(then(0, limit), then(1, {"content": "fine now"}))
    async with make() as agent:
        notices = await watch(agent)
    [started], [retry] = all_of(RunStarted, notices), all_of(RetryScheduled, notices)
    assert retry.failure is Failure.RATE_LIMIT
    assert retry.due - started.at >= 1.0
    assert [delta.text for delta in all_of(TextDelta, notices)] == ["fine now"]


async def test_a_stream_that_is_cut_after_text_ends_the_run(play: Play, make: Make) -> None:
    """What was shown is void and said to be; the session goes on with the next prompt."""
    cut = then(0, {"content": "one two three four five"}, chunkSize=4, truncateAfterChunks=4, latency=20)
    play(cut, then(1, {"content": "fine now"}))
    async with make() as agent, agent.session() as session:
        notices = [notice async for notice in session.stream("Go.")]
        broken = session.result()
        result = await session.run("Once more.")
    assert all_of(TextDelta, notices)
    assert len(all_of(AnswerDropped, notices)) == 1
    assert not all_of(RetryScheduled, notices)
    assert (broken.reason, broken.text) == (DoneReason.ERROR, "")
    assert broken.detail.startswith("cut: ")
    assert broken.spent.usage.estimated > 0
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")


async def test_a_stream_that_is_cut_before_any_text_is_asked_for_again(play: Play, make: Make) -> None:
    """Nothing was shown, so nothing is lost."""
    play(then(0, {"content": "never seen"}, truncateAfterChunks=1), then(1, {"content": "fine now"}))
    async with make() as agent:
        notices = await watch(agent)
    assert len(all_of(RetryScheduled, notices)) == 1
    assert not all_of(AnswerDropped, notices)
    assert [delta.text for delta in all_of(TextDelta, notices)] == ["fine now"]


async def test_a_wrong_key_is_not_tried_twice(play: Play, heard: Heard, make: Make) -> None:
    """The run ends with the server's words and the way out."""
    play(
        {
            "match": {},
            "response": {"error": {"message": "no such key", "type": "authentication_error"}, "status": 401},
        }
    )
    async with make() as agent:
        result = await agent.run("Go.")
    assert result.reason is DoneReason.ERROR
    assert result.detail.startswith("auth: http 401: ")
    assert "no such key" in result.detail
    assert "set OPENAI_API_KEY" in result.detail
    assert len(heard()) == 1


async def test_a_conversation_that_is_too_long_is_summarised(
    play: Play, heard: Heard, make: Make, server: tuple[str, str]
) -> None:
    """The server refuses, the old part is summarised by the same server, and the run goes on."""
    message = "This model's maximum context length is 2000 tokens, but you sent 2100."
    overflow = {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}
    summary = {"match": {"systemMessage": "You summarise"}, "response": {"content": "They like long words."}}
    play(
        summary,
        then(0, {"content": "Noted."}),
        then(1, {"error": overflow, "status": 400}),
        then(2, {"content": "fine now"}),
    )
    async with make(model=ModelSpec(name=server[1], window=2_000)) as agent, agent.session() as session:
        await session.run("incomprehensibilities " * 250)
        notices = [notice async for notice in session.stream("What do I like?")]
        result = session.result()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")
    [compacted] = all_of(Compacted, notices)
    assert compacted.after < compacted.before / 10
    first, *_, last = [words for _, words in said(heard()[-1]["messages"])]
    assert first.endswith("They like long words.")
    assert last == "What do I like?"


async def test_a_tool_that_raises_is_a_result_the_model_reads(play: Play, heard: Heard, make: Make) -> None:
    """Neither an error nor a tool that is not there stops the run."""

    @tool(side_effect="read_only")
    def divide(number: str) -> float:
        """Divide by a number."""
        return 1 / int(number)

    calls = [call("call_1", "divide", number="0"), call("call_2", "missing")]
    play(answer(0, {"toolCalls": calls}), answer(1, {"content": "fine now"}))
    async with make(tools=[divide]) as agent:
        notices = await watch(agent)
    assert [ended.outcome for ended in all_of(ToolEnded, notices)] == [Outcome.ERROR, Outcome.ERROR]
    results = [words for role, words in said(heard()[-1]["messages"]) if role == "tool"]
    assert "division by zero" in results[0]
    assert "missing" in results[1]
    assert [delta.text for delta in all_of(TextDelta, notices)] == ["fine now"]


# From the command line


def test_the_command_line_needs_an_address_and_a_model(
    play: Play, heard: Heard, server: tuple[str, str], tmp_path: Path
) -> None:
    """The whole program, told nothing else but that all is approved: the file is there, the text is shown."""
    play(
        answer(0, {"toolCalls": [call("call_1", "write", path="hello.txt", content="Hello.\n")]}),
        answer(1, {"content": "It is written."}),
    )
    base_url, model = server
    command = (sys.executable, "-m", "turnwheel.apps.cli", "run", "Greet me in hello.txt.", "--yes")
    ended = subprocess.run(
        (*command, "--base-url", base_url, "--model", model),
        cwd=tmp_path,
        env={**os.environ, "OPENAI_API_KEY": "sk-real", "TURNWHEEL_STORE": str(tmp_path / "sessions.db")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "It is written." in ended.stdout
    assert (tmp_path / "hello.txt").read_text("utf-8") == "Hello.\n"
    assert [len(request["messages"]) for request in heard()] == [2, 4]
