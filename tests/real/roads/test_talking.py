"""What goes well: text, thinking, calls and their results, pictures, an account, on every road."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from real.roads.conftest import every_wire

from turnwheel import ChildSpec, DoneReason, ModelSpec, Policy, Price, builtin_tools, tool
from turnwheel.effects.config import Concurrency
from turnwheel.effects.messages import Binary, Message, Outcome, Reasoning, Role
from turnwheel.effects.notices import CallSettled, ReasoningDelta, TextDelta, ToolStarted, TurnEnded
from turnwheel.effects.usage import Usage

if TYPE_CHECKING:
    from real.roads.conftest import Json, Road

# Installing and starting is not the test's time.
pytestmark = [pytest.mark.real, pytest.mark.timeout(60, func_only=True)]

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A dot."""


@every_wire
async def test_calls_of_one_answer_run_together_and_their_results_go_back(road: Road) -> None:
    """Thinking, two calls at once, a third in the next answer under an id that was used, a text in pieces."""
    both = asyncio.Barrier(2)
    degrees = {"Rome": "21", "Oslo": "-3", "Cairo": "35"}

    @tool(side_effect="read_only", timeout=10)
    async def weather(city: str) -> str:
        """Degrees in a city."""
        if city != "Cairo":
            await both.wait()
        return degrees[city]

    road.play(
        {
            "reasoning": "Two cities, two lookups.",
            "content": "I look both up.",
            "toolCalls": [
                road.call("call_a", "weather", city="Rome"),
                road.call("call_b", "weather", city="Oslo"),
            ],
            "chunkSize": 4,
        },
        {"toolCalls": [road.call("call_a", "weather", city="Cairo")]},
        {"content": "Cairo is the warmest, Oslo the coldest.", "chunkSize": 5},
    )
    async with road.agent(tools=[weather], policy=Policy(concurrency=Concurrency.PARALLEL_READS)) as agent:
        await road.watch(agent, "Where is it warm?")

    texts = [delta.text for delta in road.seen(TextDelta)]
    assert "".join(texts) == "I look both up.Cairo is the warmest, Oslo the coldest."
    assert len(texts) >= 10
    assert "".join(delta.text for delta in road.seen(ReasoningDelta)) == "Two cities, two lookups."
    began_and_ended = [type(one) for one in road.notices if isinstance(one, ToolStarted | CallSettled)]
    assert began_and_ended[:2] == [ToolStarted, ToolStarted]
    assert {ended.content for ended in road.seen(CallSettled)} == set(degrees.values())
    assert [(turn.usage.input, turn.usage.output) for turn in road.seen(TurnEnded)] == [(40, 20)] * 3

    # On Responses each item is a message by itself, so that one with calls alone may be there or not.
    told = [[turn for turn in road.said(request) if turn != ("assistant", "")] for request in road.heard()]
    assert [len(turns) for turns in told] == [1, 4, 5]
    last = road.heard()[-1]
    assert told[-1] == [
        ("user", "Where is it warm?"),
        ("assistant", "I look both up."),
        ("tool", "21"),
        ("tool", "-3"),
        ("tool", "35"),
    ]
    asked = [called["id"] for message in last["messages"] for called in message.get("tool_calls", ())]
    assert asked == [message["tool_call_id"] for message in last["messages"] if message["role"] == "tool"]
    assert len(set(asked)) == 3


async def test_a_session_remembers(road: Road) -> None:
    """Three runs of one session are one conversation to the server; the thinking of each is kept here."""
    road.play(*[{"reasoning": "Hm.", "content": f"Answer {turn}."} for turn in range(3)])
    async with road.agent(system="Be brief.") as agent, agent.session() as session:
        results = [await session.run(f"Question {turn}?") for turn in range(3)]
    assert [result.text for result in results] == ["Answer 0.", "Answer 1.", "Answer 2."]
    assert road.said(road.heard()[-1]) == [
        ("system", "Be brief."),
        ("user", "Question 0?"),
        ("assistant", "Answer 0."),
        ("user", "Question 1?"),
        ("assistant", "Answer 1."),
        ("user", "Question 2?"),
    ]
    assert [part.text for part in thoughts(session.history)] == ["Hm."] * 3


def thoughts(history: Any) -> list[Reasoning]:
    """All thinking in *history*."""
    messages: list[Message] = [message for message in history if message.role is Role.ASSISTANT]
    return [part for message in messages for part in message.parts if isinstance(part, Reasoning)]


@every_wire
async def test_a_long_answer_arrives_whole(road: Road) -> None:
    """Sixty thousand characters in hundreds of pieces, not all of them ASCII."""
    text = "".join(f"{number}. Größe, 大きさ, μέγεθος; " for number in range(2_000))
    road.play({"content": text, "chunkSize": 101})
    async with road.agent() as agent:
        await road.watch(agent)
    deltas = road.seen(TextDelta)
    assert "".join(delta.text for delta in deltas) == text
    assert len(deltas) >= 500


@pytest.mark.parametrize("road", ["chat", "messages"], indirect=True)
async def test_characters_that_are_torn_between_deltas_arrive_whole(road: Road) -> None:
    """A server that counts in UTF-16 units sends half an emoji; LiteLLM breaks on it, so this is direct."""
    text = "Grüße 😀😀 日本 🇩🇪"
    arguments = {"city": "🇩🇪😀🇩🇪"}

    @tool(side_effect="read_only")
    def weather(city: str) -> str:
        """Degrees in a city."""
        return city

    calls = [road.call("call_1", "weather", **arguments)]
    road.play(
        {"reasoning": text, "content": text, "toolCalls": calls, "chunkSize": 3},
        {"content": text, "chunkSize": 1},
    )
    async with road.agent(tools=[weather]) as agent, agent.session() as session:
        assert (await session.run("go")).text == text
    assert [part.text for part in thoughts(session.history)] == [text]
    assert road.said(road.heard()[-1])[1:] == [("assistant", text), ("tool", arguments["city"])]


# Thinking


@pytest.mark.parametrize(
    "road", ["messages", "messages-to-messages", "thinking-chat-to-messages"], indirect=True
)
async def test_thinking_with_its_proof_goes_back_as_it_came(road: Road) -> None:
    """In a loop of calls, redacted thinking too; aimock refuses an answer with calls that lacks it."""

    @tool(side_effect="read_only")
    def weather(city: str) -> str:
        """Degrees in a city."""
        return f"21 in {city}"

    road.play(
        {
            "redactedThinking": ["AAAA", "BBBB"],
            "reasoning": "Rome first.",
            "reasoningSignature": "proof-1==",
            "toolCalls": [road.call("call_1", "weather", city="Rome")],
        },
        {
            "reasoning": "Oslo next.",
            "reasoningSignature": "proof-2==",
            "content": "And now:",
            "toolCalls": [road.call("call_2", "weather", city="Oslo")],
        },
        {"reasoning": "Done.", "content": "Both have 21."},
        {"content": "Gladly."},
    )
    model = ModelSpec(name=road.model, thinking=2_048)
    async with road.agent(model=model, tools=[weather]) as agent, agent.session() as session:
        results = [await session.run("Where is it warm?"), await session.run("Thank you.")]
    assert [(result.reason, result.text) for result in results] == [
        (DoneReason.END_TURN, "Both have 21."),
        (DoneReason.END_TURN, "Gladly."),
    ]
    assert [request["thinking"]["type"] for request in road.asked()] == ["enabled"] * 4
    answers = [one["content"] for one in road.asked()[2]["messages"] if one["role"] == "assistant"]
    assert answers[0][:3] == [
        {"type": "redacted_thinking", "data": "AAAA"},
        {"type": "redacted_thinking", "data": "BBBB"},
        {"type": "thinking", "thinking": "Rome first.", "signature": "proof-1=="},
    ]
    assert answers[1][0] == {"type": "thinking", "thinking": "Oslo next.", "signature": "proof-2=="}


@pytest.mark.parametrize("road", ["messages-to-chat"], indirect=True)
async def test_thinking_without_a_proof_does_not_go_back(road: Road) -> None:
    """A model of another provider's signs nothing: until the next prompt it is not asked to think again."""

    @tool(side_effect="read_only")
    def weather() -> str:
        """Degrees."""
        return "21"

    road.play(
        {"reasoning": "Hm.", "toolCalls": [road.call("call_1", "weather")]},
        {"content": "It has 21."},
        {"content": "Gladly."},
    )
    model = ModelSpec(name=road.model, thinking=2_048)
    async with road.agent(model=model, tools=[weather]) as agent, agent.session() as session:
        await session.run("Is it warm?")
        assert (await session.run("Thank you.")).text == "Gladly."
    assert ["reasoning" in request for request in road.asked()] == [True, False, True]


# Pictures


async def test_pictures_arrive_in_prompts_and_in_results(road: Road) -> None:
    """Whatever a wire and a proxy make of them, the model at the end gets them where they were."""
    shot = Binary(media_type="image/png", data=PICTURE, name="shot.png")

    @tool(side_effect="read_only")
    def screenshot() -> list[str | Binary]:
        """What is on the screen."""
        return ["The screen:", shot]

    road.play({"toolCalls": [road.call("call_1", "screenshot")]}, {"content": "A dot, and again."})
    async with road.agent(tools=[screenshot]) as agent, agent.session() as session:
        result = await session.run("What is this?", files=(shot,))
    assert (result.reason, result.text) == (DoneReason.END_TURN, "A dot, and again.")
    data = base64.b64encode(PICTURE).decode()
    assert [str(request).count(data) for request in road.asked()] == [1, 2]
    first, *_ = road.asked()[1]["messages"]
    assert str(first).count(data) == 1


# The account


async def test_what_was_told_is_the_account(road: Road) -> None:
    """Tokens as the server said, and what they cost."""
    road.play({"content": "Not much."})
    price = Price(input=3, output=15)
    async with road.agent(model=ModelSpec(name=road.model, price=price)) as agent:
        result = await agent.run("How much was that?")
    assert result.spent.usage == Usage(input=40, output=20)
    assert result.spent.cost == (40 * 3 + 20 * 15) / Decimal(1_000_000)


@pytest.mark.parametrize(
    "road", ["openrouter", "chat-to-openrouter", "messages-to-openrouter"], indirect=True
)
async def test_what_a_provider_had_cached_is_told_and_cheaper(road: Road) -> None:
    """The only server here that tells: in the words of either wire it is a part of the input."""
    used = {"prompt_tokens": 40, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 30}}
    road.play({"content": "Not much.", "usage": used})
    price = Price(input=3, output=15, cached="0.3")
    async with road.agent(model=ModelSpec(name=road.model, price=price)) as agent:
        result = await agent.run("How much was that?")
    assert result.spent.usage == Usage(input=40, output=20, cached=30)
    assert result.spent.cost == (10 * 3 + 30 * Decimal("0.3") + 20 * 15) / Decimal(1_000_000)


async def test_what_was_not_told_is_estimated(road: Road) -> None:
    """Without a word on usage a run still has an account, the server's or ours."""
    road.play({"content": "Four words, no account.", "usage": None})
    async with road.agent() as agent:
        result = await agent.run("How much was that?")
    assert result.spent.usage.input > 0
    assert result.spent.usage.output > 0


# Whole jobs


async def test_the_main_job_with_the_built_in_tools(road: Road, tmp_path: Path) -> None:
    """Look, read, count and write: the file is there and the model was told."""
    (tmp_path / "notes.txt").write_text("one two three\n", "utf-8")
    looks = [road.call("call_1", "ls"), road.call("call_2", "read", path="notes.txt")]
    write = road.call("call_3", "write", path="REPORT.md", content="3 words\n")
    road.play({"toolCalls": looks}, {"toolCalls": [write]}, {"content": "Three words; see REPORT.md."})
    policy = Policy(mode="accept_edits")
    async with road.agent(tools=builtin_tools(), cwd=tmp_path, policy=policy) as agent:
        result = await agent.run("Count the words of notes.txt.")
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Three words; see REPORT.md.")
    assert (tmp_path / "REPORT.md").read_text("utf-8") == "3 words\n"
    results = [words for role, words in road.said(road.heard()[-1]) if role == "tool"]
    assert results == ["notes.txt", "     1\tone two three", "wrote 8 bytes to REPORT.md"]


async def test_a_child_has_a_conversation_of_its_own(road: Road) -> None:
    """The model starts an agent; what that finds out is a tool's result, and its account is the run's."""
    task = road.call("call_1", "run_agent", agent="counter", prompt="Count the sheep.")
    counted: Json = {"content": "Seven.", "usage": {"prompt_tokens": 5, "input_tokens": 5}}
    road.play(
        {"toolCalls": [task]},
        {"content": "There are seven."},
        first={"match": {"userMessage": "Count the sheep."}, "response": counted},
    )
    async with road.agent(children=(ChildSpec(name="counter", description="It counts."),)) as agent:
        result = await agent.run("How many sheep?")
    assert (result.reason, result.text) == (DoneReason.END_TURN, "There are seven.")
    assert result.spent.usage.total == 60 + 5 + 60
    _, child, after = road.heard()
    assert road.said(child)[-1] == ("user", "Count the sheep.")
    assert "How many sheep?" not in str(child)
    assert not child.get("tools")
    assert road.said(after)[-1] == ("tool", "Seven.")


async def test_a_tool_that_raises_is_a_result_the_model_reads(road: Road) -> None:
    """Neither an error nor a tool that is not there stops the run."""

    @tool(side_effect="read_only")
    def divide(number: str) -> float:
        """Divide by a number."""
        return 1 / int(number)

    road.play(
        {"toolCalls": [road.call("call_1", "divide", number="0"), road.call("call_2", "missing")]},
        {"content": "fine now"},
    )
    async with road.agent(tools=[divide]) as agent:
        await road.watch(agent)
    assert [ended.outcome for ended in road.seen(CallSettled)] == [Outcome.ERROR, Outcome.ERROR]
    results = [words for role, words in road.said(road.heard()[-1]) if role == "tool"]
    assert "division by zero" in results[0]
    assert "missing" in results[1]
    assert [delta.text for delta in road.seen(TextDelta)] == ["fine now"]


@pytest.mark.parametrize("road", ["chat", "messages", "chat-to-messages"], indirect=True)
def test_the_command_line_needs_an_address_and_a_model(road: Road, tmp_path: Path) -> None:
    """The whole program, told nothing else but that all is approved: the file is there, the text is shown."""
    road.play(
        {"toolCalls": [road.call("call_1", "write", path="hello.txt", content="Hello.\n")]},
        {"content": "It is written."},
    )
    command = (sys.executable, "-m", "turnwheel.apps.cli", "run", "Greet me in hello.txt.", "--yes")
    keys = {f"{name}_API_KEY": "sk-real" for name in ("OPENAI", "ANTHROPIC")}
    ended = subprocess.run(
        (*command, "--base-url", road.base_url, "--model", road.model),
        cwd=tmp_path,
        env={**os.environ, **keys, "TURNWHEEL_STORE": str(tmp_path / "sessions.db")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "It is written." in ended.stdout
    assert (tmp_path / "hello.txt").read_text("utf-8") == "Hello.\n"
    assert len(road.heard()) == 2
