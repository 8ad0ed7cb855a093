"""The agent: its three ways in, its limits, its approver, and a child of its own."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from contextlib import aclosing
from decimal import Decimal
from typing import Any

import pytest

from turnwheel import (
    Agent,
    Approve,
    ChildSpec,
    Concurrency,
    DoneReason,
    Limits,
    MemoryStore,
    ModelSpec,
    Policy,
    Price,
    Rule,
    ToolContext,
    tool,
)
from turnwheel.effects.config import OnMaxTokens
from turnwheel.effects.errors import ArgumentError, CallerError, ConfigError
from turnwheel.effects.events import Decision
from turnwheel.effects.messages import Outcome, Role, StopReason
from turnwheel.effects.notices import (
    AgentNoticed,
    CallSettled,
    Compacted,
    RunEnded,
    RunStarted,
    TextDelta,
)
from turnwheel.effects.requests import AskApproval, CallModel, Purpose
from turnwheel.effects.usage import Usage
from turnwheel.engine.agent import SPAWN
from turnwheel.engine.journal.fold import fold
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
    stalls,
)
from turnwheel.testing.stores import FaultyStore


@tool(side_effect="read_only")
def look(at: str = "") -> str:
    """Look at something."""
    return f"saw {at}"


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


def scripted(*replies: Reply, **settings: Any) -> tuple[Agent, ScriptedModel]:
    """An agent over a script."""
    model = ScriptedModel(*replies)
    given: dict[str, Any] = {"model": "scripted", "tools": [look, pay], "clock": AutoClock(100.0)}
    return Agent(performers={CallModel: model}, **{**given, **settings}), model


async def test_run_gives_the_last_answer_and_the_account() -> None:
    """Text, reason and the sum of all responses."""
    agent, _ = scripted(calls(("look", {})), says("done", usage=Usage(input=30, output=2)))

    result = await agent.run("go")

    assert (result.text, result.reason, result.spent.turns) == ("done", DoneReason.END_TURN, 2)
    assert Usage(input=40, output=7) == result.spent.usage


async def test_run_sync_works_where_a_loop_runs_already() -> None:
    """A notebook's own loop does not stand in the way."""
    agent, _ = scripted(says("hi"), says("again"))

    assert [agent.run_sync("go").text, agent.run_sync("go").text] == ["hi", "again"]


def test_run_sync_raises_what_went_wrong_in_its_thread() -> None:
    """An error of the caller's is not lost between threads."""
    agent, _ = scripted(says("hi"), store=FaultyStore(works=False))
    with pytest.raises(OSError, match="no space left"):
        agent.run_sync("go")


async def test_a_stream_begins_and_ends_once() -> None:
    """One init first, one done last."""
    agent, _ = scripted(calls(("look", {})), says("a b"))

    notices = [notice async for notice in agent.stream("go")]

    assert isinstance(notices[0], RunStarted)
    assert isinstance(notices[-1], RunEnded)
    assert sum(isinstance(notice, RunStarted) for notice in notices) == 1
    assert "".join(notice.text for notice in notices if isinstance(notice, TextDelta)) == "a b"


async def test_leaving_a_stream_early_leaves_no_task() -> None:
    """It closes and does not hang."""
    agent, _ = scripted(stalls("hm"))
    before = asyncio.all_tasks()

    async with aclosing(agent.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, TextDelta):
                break

    assert before == asyncio.all_tasks()


async def test_an_approver_is_asked_with_the_call() -> None:
    """It sees tool and arguments and may change them."""
    asked: list[AskApproval] = []

    async def approver(question: AskApproval) -> Decision:
        asked.append(question)
        return Approve(arguments='{"amount": 2}')

    agent, _ = scripted(calls(("pay", {"amount": 100})), says("ok"), approver=approver)
    notices = [notice async for notice in agent.stream("go")]

    assert [(question.tool, question.arguments) for question in asked] == [("pay", '{"amount": 100}')]
    assert [notice.content for notice in notices if isinstance(notice, CallSettled)] == ["paid 2"]


async def test_a_run_that_nobody_could_ever_answer_is_told_no() -> None:
    """Without a store and an approver its session is gone when it returns: it does not rest in vain."""
    agent, asked = scripted(calls(("pay", {})), says("a pity"))

    assert (await agent.run("go")).text == "a pity"
    assert [one.outcome for one in asked.seen[1][-1].results] == [Outcome.DENIED]


async def test_a_grant_answers_beforehand_and_only_what_it_covers() -> None:
    """A rule names a tool and what its arguments must look like."""
    rules = [Rule(verdict="allow", tool="pay", where=(("amount", "1"),))]
    script = calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    agent, _ = scripted(script, rules=rules, store=MemoryStore())

    result = await agent.run("go")

    assert [question.arguments for question in result.waiting] == ['{"amount": 2}']


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(turns=2), DoneReason.MAX_TURNS),
        (Limits(tokens=25), DoneReason.TOKEN_BUDGET),
        (Limits(usd="0.00002"), DoneReason.MAX_BUDGET),
    ],
)
async def test_a_run_ends_at_its_limit(limits: Limits, reason: DoneReason) -> None:
    """The limit is named, and the model is not asked again."""
    model = ModelSpec(name="scripted", price=Price(input=1, output=0))
    agent, asked = scripted(*[calls(("look", {}))] * 5, limits=limits, model=model)

    result = await agent.run("go")

    assert (reason, 2) == (result.reason, len(asked.requests))
    assert Decimal("0.00002") == result.spent.cost


async def test_active_time_is_a_limit_and_waiting_costs_nothing() -> None:
    """Seconds are what tools took; the time a person took to answer is not in it."""
    clock = AutoClock(100.0)

    @tool(side_effect="read_only")
    async def slow() -> str:
        """Take a minute."""
        clock.move(60.0)
        return "at last"

    async def approver(_: AskApproval) -> Decision:
        clock.move(3600.0)
        return Approve()

    script = (calls(("pay", {})), calls(("slow", {})), calls(("slow", {})), says("never"))
    agent, _ = scripted(
        *script, tools=[slow, pay], clock=clock, approver=approver, limits=Limits(seconds=100.0)
    )

    result = await agent.run("go")

    assert (result.reason, result.spent.seconds) == (DoneReason.TIME_BUDGET, 120.0)


async def test_reads_run_in_parallel_where_the_policy_says_so() -> None:
    """Two reads are at work together; their results are in call order."""
    both = asyncio.Barrier(2)

    @tool(side_effect="read_only")
    async def meet(name: str) -> str:
        """Wait for the other."""
        await both.wait()
        return name

    script = (calls(("meet", {"name": "a"}), ("meet", {"name": "b"})), says("met"))
    agent, asked = scripted(*script, tools=[meet], policy=Policy(concurrency=Concurrency.PARALLEL_READS))

    assert (await agent.run("go")).text == "met"
    assert [result.content for result in asked.seen[1][-1].results] == ["a", "b"]


async def test_a_tool_finds_what_the_host_gave_it() -> None:
    """Dependencies, session and idempotency key come in through the context."""
    seen: list[tuple[str, str, bool]] = []

    @tool(side_effect="read_only")
    def ask(context: ToolContext[dict[str, str]]) -> str:
        """Look into the context."""
        seen.append((context.deps["who"], context.session, bool(context.key)))
        return ""

    agent, _ = scripted(calls(("ask", {})), says("ok"), tools=[ask], deps={"who": "host"})
    async with agent.session("s") as session:
        await session.run("go")
    assert seen == [("host", "s", True)]


async def test_a_cut_off_answer_is_compacted_and_continued() -> None:
    """The old part is summarised, the history ends with a person's word, and the account has it all."""
    policy = Policy(on_max_tokens=OnMaxTokens.COMPACT)
    model = ModelSpec(name="scripted", window=400)
    long = "word " * 120
    agent, asked = scripted(
        says(long), says("half", stop=StopReason.MAX_TOKENS), says("the rest"), model=model, policy=policy
    )
    async with agent.session("s") as session:
        await session.run("tell " + "more " * 80)
        notices = [notice async for notice in session.stream("go on")]
        result = session.result()

    assert result.text == "the rest"
    assert any(isinstance(notice, Compacted) for notice in notices)
    assert [one.purpose for one in asked.requests] == [
        Purpose.TURN,
        Purpose.TURN,
        Purpose.SUMMARY,
        Purpose.TURN,
    ]
    assert Role.USER is asked.seen[-1][-1].role
    assert "[Summary" in asked.seen[-1][0].text
    assert Usage(input=30, output=15) == result.spent.usage


async def test_a_child_works_with_reads_only_and_its_account_is_the_parents() -> None:
    """Its answer is the result of the call, its notices come wrapped, its journal is its own."""
    store = MemoryStore()
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "look around"}))
    script = (spawn, calls(("look", {"at": "it"})), says("nothing there"), says("fine"))
    agent, asked = scripted(*script, children=(ChildSpec(name="scout"),), store=store)

    async with agent.session("s") as session:
        notices = [notice async for notice in session.stream("go")]
        result = session.result()
        spawned = session.history[2].results[0]

    assert (result.text, result.spent.turns) == ("fine", 2)
    assert Usage(input=40, output=20) == result.spent.usage
    assert (spawned.content, spawned.outcome) == ("nothing there", Outcome.OK)
    assert asked.requests[1].tools == ("look",)
    assert SPAWN.name not in asked.requests[1].tools
    wrapped = [notice.notice for notice in notices if isinstance(notice, AgentNoticed)]
    assert isinstance(wrapped[0], RunStarted)
    assert isinstance(wrapped[-1], RunEnded)
    child = fold(await store.load(f"s.{spawned.call}"), "child").machine
    assert child is not None
    assert child.done


async def test_a_child_whose_question_nobody_can_answer_is_told_no() -> None:
    """Without an approver a child that wants an unsafe tool does not keep its parent waiting."""
    spawn = calls(("run_agent", {"agent": "payer", "prompt": "pay"}))
    child = ChildSpec(name="payer", tools=("pay",))
    agent, asked = scripted(spawn, calls(("pay", {})), says("could not"), says("well"), children=(child,))

    assert (await agent.run("go")).text == "well"
    assert [one.outcome for one in asked.seen[2][-1].results] == [Outcome.DENIED]


async def test_a_child_that_is_interrupted_answers_and_its_parent_ends() -> None:
    """An interrupt of the parent reaches the child, and the call has its result."""
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "look around"}))
    agent, _ = scripted(spawn, stalls("I see"), children=(ChildSpec(name="scout"),))

    async with agent.session("s") as session:
        async for notice in session.stream("go"):
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, TextDelta):
                await session.interrupt()
        result = session.result()
        spawned = session.history[-1].results[0]

    assert DoneReason.INTERRUPTED is result.reason
    assert Outcome.CANCELLED is spawned.outcome
    assert "I see" in spawned.content


@pytest.mark.parametrize("tools", [None, ("pay",)])
async def test_a_child_that_was_left_without_a_store(tools: tuple[str, ...] | None) -> None:
    """It is in memory, as its parent is, and goes on where it was."""
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "go"}))
    child = ChildSpec(name="scout", tools=tools)
    agent, _ = scripted(spawn, stalls("I"), says("it is fine"), says("good"), children=(child,))
    async with agent.session("s") as session:
        async with aclosing(session.stream("go")) as notices:
            async for notice in notices:
                if isinstance(notice, AgentNoticed) and isinstance(notice.notice, TextDelta):
                    break
        await session.resume()
        assert session.history[2].results[0].content == "it is fine"


async def test_a_child_whose_process_was_lost_goes_on_where_it_was() -> None:
    """Parent and child are resumed together; what the child had done is not done again."""
    store = MemoryStore()
    children = (ChildSpec(name="scout"),)
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "look around"}))
    agent, _ = scripted(spawn, calls(("look", {"at": "it"})), stalls("I"), children=children, store=store)
    async with agent.session("s") as session, aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, TextDelta):
                break

    other, asked = scripted(says("I saw it"), says("good"), children=children, store=store)
    async with other.session("s") as session:
        result = await session.resume()
        assert session.history[2].results[0].content == "I saw it"
    assert result.text == "good"
    assert [one.content for message in asked.seen[0] for one in message.results] == ["saw it"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"limits": Limits(usd=1)}, "a limit in USD needs a price for 'scripted'"),
        ({"tools": [look, look]}, "look"),
        ({"tools": [len]}, "<built-in function len> is no tool"),
        ({"cwd": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"model": ""}, "ModelSpec.name must not be empty; got ''"),
        ({"stop": "abc"}, r"texts must be a tuple; got str \(write \('abc',\)"),
        ({"rules": ("pay",)}, r"Config.rules must be a tuple of Rule; got \('pay',\)"),
        ({"limits": None}, "Config.limits must be a Limits; got None"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], said: str) -> None:
    """The error has the value and the way out."""
    with pytest.raises(CallerError, match=said):
        scripted(**settings)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"turns": 0}, "Limits.turns must be a number above 0, or None for no limit; got 0"),
        ({"turns": True}, "Limits.turns must be a number above 0"),
        ({"tokens": "5"}, "Limits.tokens must be a number above 0"),
        ({"usd": "abc"}, "'abc' is no amount of money"),
        ({"usd": float("nan")}, "nan is no amount of money"),
    ],
)
def test_a_wrong_limit_is_named(wrong: dict[str, Any], said: str) -> None:
    """Zero is neither none nor nothing, and text is no number."""
    with pytest.raises(ConfigError, match=said):
        Limits(**wrong)


def test_a_wire_that_is_not_there_is_named() -> None:
    """A model of another provider is not sent to this one; behind a base_url any name will do."""
    with pytest.raises(ConfigError, match="no wire 'cohere' for model 'cohere:command'"):
        Agent(model="cohere:command")
    with pytest.raises(ConfigError, match="no wire 'cohere' for model 'cohere:command'"):
        Agent(models=["cohere:command"])
    assert Agent(model="qwen3:8b", base_url="http://127.0.0.1:1/v1").config.model.name == "qwen3:8b"


async def test_a_prompt_has_to_say_something() -> None:
    """Providers refuse an empty message."""
    agent, _ = scripted()
    with pytest.raises(ConfigError, match="the prompt is empty; give text or a file"):
        await agent.run(" ")


def test_a_sync_run_that_is_interrupted_has_stopped_when_it_says_so() -> None:
    """Ctrl-C does not leave a tool at work behind the caller's back."""
    program = """
import asyncio, os, signal, threading, time
from turnwheel import Agent, tool
from turnwheel.effects.requests import CallModel
from turnwheel.testing.scripted import ScriptedModel, calls, says

@tool(side_effect="read_only")
async def slow() -> str:
    "Take long."
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(2)
    print("finished after all", flush=True)
    return ""

agent = Agent(model="m", tools=[slow], performers={CallModel: ScriptedModel(calls(("slow", {})), says("no"))})
try:
    agent.run_sync("go")
except KeyboardInterrupt:
    print("stopped", threading.active_count(), flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout == "stopped 1\n"


@pytest.mark.parametrize("name", [5, b"s"])
async def test_a_session_is_called_by_a_text(name: Any) -> None:
    """Nothing else is found again in a store."""
    agent = Agent(model="scripted", store=MemoryStore(), performers={CallModel: ScriptedModel(says("so"))})
    said = re.escape(f"the id of a session is text; got {name!r}")
    with pytest.raises(ArgumentError, match=said):
        agent.session(name)
    session = agent.session("s")
    await session.run("go")
    with pytest.raises(ArgumentError, match=said):
        await session.fork(name)
