"""The agent: what it is made of, its ways in, and what it refuses to be made of."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import attrs
import httpx
import pytest
from provers.tasks import turns
from structlog.testing import capture_logs

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    ChildSpec,
    Deny,
    DoneReason,
    Hook,
    HookCall,
    Limits,
    MemoryStore,
    ModelSpec,
    Policy,
    Price,
    Result,
    Rule,
    SetModel,
    SQLiteStore,
    ToolContext,
    hook,
    tool,
)
from turnwheel.effects.config import Compaction, Config, Loops, OnLost, Retries, SideEffect, Steering
from turnwheel.effects.errors import (
    ArgumentError,
    CallerError,
    ConfigError,
    RunFailed,
    SessionNotRead,
    UnknownRequest,
)
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished, ToolFinished, ToolProgressed
from turnwheel.effects.history import History
from turnwheel.effects.messages import Binary, Outcome, StopReason
from turnwheel.effects.notices import TextDelta, ToolOutput
from turnwheel.effects.permissions import PermissionMode, Verdict
from turnwheel.effects.requests import AskApproval, CallModel, Conversation, Purpose, RunTool, SetTimer
from turnwheel.effects.usage import Usage
from turnwheel.engine.inspect.listing import listed
from turnwheel.engine.session.environment import Titles
from turnwheel.performers import command_hook
from turnwheel.performers.base import PerformContext, noop, sleep
from turnwheel.performers.models.rate_limits import RateLimit
from turnwheel.performers.models.router import Models
from turnwheel.performers.secrets import MemoryVault
from turnwheel.performers.stores.base import Entries
from turnwheel.performers.tools.choice import offer
from turnwheel.states.rules.limits import child_tools
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, fails, says, stalls
from turnwheel.testing.stores import FaultyStore, StoreOver


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


def scripted(*replies: Reply, **settings: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(*replies)
    given: dict[str, Any] = {"model": "scripted", "tools": [pay], **settings}
    return Agent(performers={CallModel: model}, **given), model


async def test_an_empty_last_answer_is_the_text_of_a_result() -> None:
    agent, _ = scripted(calls(("fly", {}), text="Let me pay", wrong=True), says(""))
    result = await agent.run("Pay")
    assert (result.reason, result.text) == ("end_turn", "")


async def test_run_sync_works_where_a_loop_runs_already() -> None:
    agent, _ = scripted(says("hi"), says("again"))
    assert [agent.run_sync("go").text, agent.run_sync("go").text] == ["hi", "again"]


async def test_files_come_with_the_prompt_in_every_way_to_run() -> None:
    picture = Binary(media_type="image/png", data=b"png", name="cat.png")
    agent, model = scripted(*[says("a cat")] * 8)
    await agent.run("look", files=[picture])
    agent.run_sync("look", files=(picture,))
    async for _ in agent.stream("look", files=[picture]):
        pass
    async with agent.session() as session:
        await session.run("look", files=[picture])
        async for _ in session.stream("look", files=[picture]):
            pass
        await session.send("look", files=[picture])
        await session.resume()
        await session.steer("look", files=[picture])
        await session.resume()
        async with session.start("look", files=[picture]) as handle:
            await handle.wait()
    assert [shown[-1].parts[1:] for shown in model.seen] == [(picture,)] * 8
    for ask in (agent.session().stream, agent.session().start):
        with pytest.raises(ArgumentError, match="files come with a prompt"):
            ask(files=[picture])
    with pytest.raises(ArgumentError, match="got 'cat'"):
        await agent.run("look", files=cast("Any", ["cat"]))


ELSEWHERE = "or pass api_key, or the base_url (--base-url) of another server"


@pytest.mark.parametrize(
    ("settings", "way"),
    [
        ({}, f"'openai:gpt-5' at https://api.openai.com/v1; set OPENAI_API_KEY {ELSEWHERE}"),
        (
            {"base_url": "https://openrouter.ai/api/v1"},
            f"'openai:gpt-5' at https://openrouter.ai/api/v1; set OPENAI_API_KEY {ELSEWHERE}",
        ),
        (
            {"model": "anthropic:claude-x"},
            f"'anthropic:claude-x' at https://api.anthropic.com/v1; set ANTHROPIC_API_KEY {ELSEWHERE}",
        ),
        (
            {"api_key": "k", "fallback": "anthropic:claude-x"},
            "'anthropic:claude-x' at https://api.anthropic.com/v1; set ANTHROPIC_API_KEY or pass api_key, or",
        ),
    ],
)
async def test_a_missing_key_is_an_error_before_any_request(
    settings: dict[str, Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    store = MemoryStore()
    agent = Agent(store=store, policy=Policy(coalesce=1), **settings)
    for call in (agent.run("go"), agent.session("s").run("go")):
        with pytest.raises(
            ConfigError,
            match=re.escape(f"no API key for {way}"),
        ):
            await call
    assert await store.list() == []


async def test_a_server_without_a_key_is_asked_and_a_run_that_failed_says_so() -> None:
    """A server of one's own needs no key, and a client of one's own may log in by itself."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(400, json={"error": {"message": "no such model"}})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        for url in ("http://127.0.0.1:9/v1", None):
            result = await Agent(base_url=url, client=client, api_key="").run("go")
            with pytest.raises(RunFailed, match="ended with error: not_found: http 400: no such model"):
                result.raise_for_error()
    assert asked == ["127.0.0.1", "api.openai.com"]
    agent, _ = scripted(says("hi"), says("I cannot.", stop=StopReason.REFUSAL))
    assert (await agent.run("go")).raise_for_error().text == "hi"
    refused = await agent.run("go")
    assert (refused.reason, refused.text) == (DoneReason.REFUSAL, "I cannot.")
    with pytest.raises(RunFailed, match="ended with refusal"):
        refused.raise_for_error()


def raising() -> None:
    words = "hidden"
    raise KeyError(words)


async def test_code_of_the_host_that_raises_is_logged_with_its_traceback() -> None:
    """But not with its words, which may hold a secret: those are redacted where they are kept."""

    @tool(side_effect="read_only")
    def look() -> None:
        """Look."""
        raising()

    @tool(side_effect="read_only")
    async def peek() -> None:
        """Look."""
        raising()

    @hook(Hook.POST_TOOL_USE_FAILURE, tool="peek")
    async def review(_: HookCall) -> None:
        raising()

    async def approver(_: AskApproval) -> None:
        raising()

    agent, _ = scripted(
        calls(("look", {}), ("peek", {}), ("pay", {})),
        says("well"),
        tools=[look, peek, pay],
        hooks=[review],
        approver=approver,
    )
    with capture_logs() as lines:
        assert (await agent.run("go")).text == "well"
    warned = [line for line in lines if line["log_level"] == "warning"]
    about = [line.get("tool") or line.get("hook") or line.get("request") for line in warned]
    assert list(zip([line["event"] for line in warned], about, strict=True)) == [
        ("a tool raised", "look"),
        ("a tool raised", "peek"),
        ("a hook raised", "review"),
        ("an approver raised", "pay"),
    ]
    assert {line["error"] for line in warned} == {"KeyError"}
    assert all("in raising\n" in line["exception"] and line["session"] for line in warned)


def test_run_sync_raises_an_error_of_its_thread() -> None:
    agent, _ = scripted(says("hi"), store=FaultyStore(works=False))
    with pytest.raises(OSError, match="no space left"):
        agent.run_sync("go")


def test_a_sync_caller_answers_a_question_and_resumes() -> None:
    """As two requests of a synchronous web app, with a thread and a loop for each."""
    agent, _ = scripted(calls(("pay", {})), says("paid"), store=MemoryStore())
    resting = agent.run_sync("Pay")

    async def answered(question: str) -> Result:
        async with agent.session(resting.session) as session:
            await session.approve(question)
            return await session.resume()

    (question,) = resting.waiting
    assert agent.await_sync(answered(question.id)).text == "paid"
    with pytest.raises(UnknownRequest):
        agent.await_sync(answered(question.id))


def test_a_sync_caller_has_to_call_its_async_function() -> None:
    agent, _ = scripted(says("hi"))
    with pytest.raises(ArgumentError, match=r"work must be a coroutine; got .*call an async function"):
        agent.await_sync(cast("Any", agent.run))


# A caller that is cancelled


async def once(agent: Agent, how: str) -> None:
    if how == "run":
        await agent.run("go")
    async for _ in agent.stream("go"):
        pass


@pytest.mark.behaviour("a-cancelled-caller-aborts-the-run")
@pytest.mark.parametrize("how", ["run", "stream"])
@pytest.mark.parametrize("reply", [stalls("half an answer"), calls(("wait", {})), fails(Failure.OVERLOADED)])
async def test_a_run_whose_caller_is_cancelled_ends_aborted(how: str, reply: Reply) -> None:
    begun, ended = asyncio.Event(), list[object]()

    @tool(side_effect="read_only")
    async def wait() -> None:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()

    @hook(Hook.SESSION_END)
    async def end(call: HookCall) -> None:
        ended.append(call.payload["reason"])

    before, store = asyncio.all_tasks(), MemoryStore()
    agent, model = scripted(reply, tools=[wait], store=store, hooks=[end])
    running = asyncio.ensure_future(once(agent, how))
    tools = reply.stop is StopReason.TOOL_USE
    assert await turns(1_000, lambda: begun.is_set() if tools else bool(model.requests))
    await turns(5)
    running.cancel()
    await asyncio.wait({running})
    assert (running.cancelled(), ended, asyncio.all_tasks()) == (True, ["aborted"], before)

    [found] = await listed(store)
    session = await scripted(says("done"), store=store)[0].session(found.session).load()
    result = session.result()
    assert (result.reason, result.spent.turns) == (DoneReason.ABORTED, begun.is_set())
    assert result.spent.usage.total or reply.failure
    assert (await session.run("again")).text == "done"


async def test_a_run_that_is_out_of_time_ends_aborted_without_a_store_too() -> None:
    ended = list[object]()

    @hook(Hook.SESSION_END)
    async def end(call: HookCall) -> None:
        ended.append(call.payload["reason"])

    agent, model = scripted(stalls("half"), hooks=[end])

    async def in_time() -> None:
        """Run until the model is asked, which is when the time is up."""
        async with asyncio.timeout(None) as limit:
            at_work = asyncio.ensure_future(turns(1_000, lambda: bool(model.requests)))
            at_work.add_done_callback(lambda _: limit.reschedule(0.0))
            await agent.run("go")

    with pytest.raises(TimeoutError):
        await in_time()
    assert ended == ["aborted"]


async def test_a_store_that_fails_keeps_no_caller_that_is_cancelled() -> None:
    store = FaultyStore()
    agent, model = scripted(stalls("half"), store=store)
    running = asyncio.ensure_future(agent.run("go"))
    assert await turns(1_000, lambda: bool(model.requests))
    store.works = False
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


# Leaving


async def test_leaving_a_stream_early_leaves_no_task() -> None:
    agent, _ = scripted(stalls("hm"))
    before = asyncio.all_tasks()
    async with aclosing(agent.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, TextDelta):
                break
    assert before == asyncio.all_tasks()


@pytest.mark.parametrize("child", [False, True])
async def test_a_question_that_could_never_be_answered_is_a_no(*, child: bool) -> None:
    """Without a store and an approver the session is gone when its run returns."""
    spawn = calls(("run_agent", {"agent": "payer", "prompt": "pay"}))
    script = [calls(("pay", {})), says("could not")]
    agent, asked = scripted(
        *[spawn] * child, *script, says("well"), children=(ChildSpec(name="payer", tools=("pay",)),)
    )
    assert (await agent.run("go")).text == ("well" if child else "could not")
    assert [one.outcome for one in asked.seen[1 + child][-1].results] == [Outcome.DENIED]


async def test_the_log_has_one_warning_of_a_tool_that_no_person_can_allow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, _ = scripted(calls(("pay", {})), calls(("pay", {})), says("could not"))
    await agent.run("go")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "no person can be asked; give Agent(approver=...), a rule" in record.getMessage()
    assert "tool=pay" in record.getMessage()
    caplog.clear()
    agent, _ = scripted(calls(("pay", {})), says("paid"), approver=lambda _: Approve())
    await agent.run("go")
    assert caplog.records == []


async def no_answer(_: AskApproval, context: object = None) -> None:
    """Leave a question open, as an approver or a performer."""


@pytest.mark.parametrize(
    "asks", [{"approver": no_answer}, {"performers": {AskApproval: no_answer}}], ids=["approver", "performer"]
)
@pytest.mark.parametrize("kept", [False, True])
async def test_a_question_that_an_approver_leaves_open_needs_a_store(
    asks: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    *,
    kept: bool,
) -> None:
    asked = ScriptedModel(calls(("pay", {})), says("could not"), partial=True)
    performers = {CallModel: asked, **asks.get("performers", {})}
    store = MemoryStore() if kept else None
    settings: dict[str, Any] = {**asks, "tools": [pay], "store": store, "performers": performers}
    agent = Agent(**settings)
    result = await agent.run("go")
    # In a store it waits, for `approve` from any process.
    assert (len(result.waiting), result.text) == ((1, "") if kept else (0, "could not"))
    assert ["the approver left it open" in each.getMessage() for each in caplog.records] == [True] * (
        not kept
    )


def deny(tool: str, **where: str) -> Rule:
    return Rule(verdict="deny", tool=tool, where=tuple(where.items()))


@pytest.mark.parametrize("kind", [SideEffect, OnLost, Steering, PermissionMode, Verdict, Hook, Titles])
def test_a_word_that_a_setting_does_not_take_is_told_with_those_it_takes(kind: type[StrEnum]) -> None:
    with pytest.raises(ConfigError, match=f"^{kind.__name__} must be one of {', '.join(kind)}; got 'x'$"):
        kind("x")


def test_rules_may_speak_of_all_tools_and_of_retired_ones() -> None:
    rules = [deny("*", amount="9"), deny("ord*", id="9"), deny("order")]
    agent, _ = scripted(rules=rules, retired=["order"], children=[ChildSpec(name="a", tools=("*",))])
    assert child_tools(agent.config, agent.children[0]) == ("pay",)
    assert scripted(tools=[], rules=rules[:1])[0].rules


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"limits": Limits(usd=1)}, "a limit in USD needs a price for 'scripted'"),
        ({"tools": [pay, pay]}, "pay"),
        ({"tools": [len]}, "got function 'len' in it"),
        ({"cwd": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"model": ""}, "ModelSpec.name must not be empty; got ''"),
        ({"stop": "abc"}, r"Agent.stop must be a list; got 'abc' \(write \['abc'\]\)"),
        ({"rules": ("pay",)}, "rule 'pay': no verdict 'pay'; there are: allow, ask, deny"),
        ({"limits": None}, "Agent.limits must be a Limits; got None"),
        ({"rules": [deny("pya")]}, "^rule 'deny pya': no tool 'pya'; did you mean 'pay'[?] there are: pay$"),
        ({"rules": [deny("p*", amout="9")]}, r"no argument 'amout' of 'p[*]'; did you mean 'amount'"),
        (
            {"hooks": [command_hook("pre_tool_use", command=["x"], tool="pya", name="h")]},
            "^hook 'h': no tool",
        ),
        (
            {"children": [ChildSpec(name="a", tools=("pay", "fly"))]},
            "^tools of agent 'a': no tool 'fly'; there",
        ),
        ({"children": [ChildSpec(name="a", tools=("run_agent",))]}, "no tool 'run_agent'; there are: pay"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], why: str) -> None:
    with pytest.raises(CallerError, match=why):
        scripted(**settings)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"turns": True}, "Limits.turns must be a number above 0"),
        ({"tokens": "5"}, "Limits.tokens must be a number above 0"),
        ({"usd": "abc"}, "'abc' is no amount of money"),
        ({"usd": float("nan")}, "nan is no amount of money"),
    ],
)
def test_a_wrong_limit_is_named(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Limits(**wrong)


def test_a_wire_that_is_not_there_is_named() -> None:
    one_of: tuple[dict[str, Any], ...] = ({"model": "cohere:command"}, {"models": ["cohere:command"]})
    for settings in one_of:
        with pytest.raises(ConfigError, match="no provider 'cohere' for model 'cohere:command'"):
            Agent(**settings)
    assert Agent(model="qwen3:8b", base_url="http://127.0.0.1:1/v1").config.model.name == "qwen3:8b"


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        (5, ArgumentError, "the id of a session is text; got 5"),
        (b"s", ArgumentError, "the id of a session is text; got b's'"),
        ("", ConfigError, "the id of a session must not be empty; leave it out for a new session"),
        *[
            (f"a{control}b", ConfigError, f"must not have control characters; got {f'a{control}b'!r}")
            for control in ("\n", "\0", "\x1b[2J", "\x7f", "\x9b", "\u2028", "\ud800")
        ],
    ],
)
async def test_a_session_is_called_by_a_text(name: Any, kind: type[CallerError], why: str) -> None:
    agent, _ = scripted(says("so"), store=MemoryStore())
    with pytest.raises(kind, match=re.escape(why)):
        agent.session(name)
    session = agent.session("s")
    await session.run("go")
    with pytest.raises(kind, match=re.escape(why)):
        await session.fork(name)


def test_a_generated_name_of_a_session_has_128_bits() -> None:
    assert len(bytes.fromhex(Agent().session().id)) == 16


# What is made of what it is given


@tool(side_effect="read_only")
def peek(at: str = "it") -> str:
    """Look."""
    return f"saw {at}"


@pytest.mark.parametrize(
    ("children", "says_", "reads"),
    [
        (
            (ChildSpec(name="scout", description="Looks around", tools=("peek",)), ChildSpec(name="idle")),
            "There are: scout: Looks around; idle.",
            True,
        ),
        ((ChildSpec(name="payer", tools=("p*",)),), "There are: payer.", False),
        (
            (ChildSpec(name="scout", tools=("peek",)), ChildSpec(name="payer", tools=("pay",))),
            "payer.",
            False,
        ),
    ],
)
def test_the_tool_that_starts_children_says_which_there_are_and_only_reads_where_they_do(
    children: tuple[ChildSpec, ...], says_: str, *, reads: bool
) -> None:
    agent, _ = scripted(tools=[pay, peek], children=children)
    *others, spawn = agent.config.tools
    assert [one.name for one in others] == ["pay", "peek"]
    assert (spawn.name, spawn.description.endswith(says_)) == ("run_agent", True)
    assert spawn.side_effect is (SideEffect.READ_ONLY if reads else SideEffect.UNSAFE)
    assert [one.name for one in Agent(model="m", tools=[pay]).config.tools] == ["pay"]


def test_what_decides_about_later_calls_is_protected_and_so_is_the_store(tmp_path: Path) -> None:
    plain = ("*/.git", "*/.git/*", "*/turnwheel.toml")
    assert Agent(model="m").config.protected == plain
    assert Agent(model="m", store=MemoryStore()).config.protected == plain
    path = tmp_path / "a[b].db"
    assert Agent(model="m", store=SQLiteStore(path)).config.protected == (
        *plain,
        f"{tmp_path}/a[[]b].db*",
    )


ANTHROPIC = ChildSpec(name="x", model=ModelSpec(name="anthropic:b"))


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"model": "openai:a"}, True),
        ({"model": "openai:a", "models": ["openai:b"], "fallback": "openai:c"}, True),
        ({"model": "openai:a", "models": ["anthropic:b"]}, False),
        ({"model": "openai:a", "fallback": "anthropic:b"}, False),
        (
            {"model": "openai:a", "children": [ChildSpec(name="x", model=ModelSpec(name="anthropic:b"))]},
            False,
        ),
        ({"model": "anthropic:a"}, False),
        ({"model": "openai:a", "base_url": "http://proxy.example"}, False),
    ],
)
def test_betas_need_a_model_that_has_some(settings: dict[str, Any], *, refused: bool) -> None:
    if not refused:
        assert Agent(**settings, betas=["x"]).betas == ("x",)
        return
    with pytest.raises(ConfigError, match="betas: 'openai:a' has none"):
        Agent(**settings, betas=["x"])
    assert Agent(**settings).betas == ()


def test_what_a_machine_decides_by_is_in_its_configuration() -> None:
    given: dict[str, Any] = {
        "system": "be brief",
        "instructions": ("AGENTS.md",),
        "limits": Limits(turns=3),
        "session_limits": Limits(turns=9),
        "policy": Policy(continues=1),
        "retries": Retries(failed=7),
        "compaction": Compaction(tokens=99),
        "loops": Loops(warn=9),
        "rules": (deny("pay"),),
        "stop": ("END",),
    }
    config = Agent(model="m", tools=[pay], **given).config
    assert {name: getattr(config, name) for name in given} == given


def test_a_fallback_is_one_of_the_models_once() -> None:
    for models in ([], ["spare"], [ModelSpec(name="spare", window=7)]):
        config = Agent(model="m", models=models, fallback="spare").config
        assert (config.fallback, [one.name for one in config.models]) == ("spare", ["spare"])
        assert config.models[0].window == (7 if models and isinstance(models[0], ModelSpec) else 200_000)
    assert (Agent(model="m", fallback="m").config.models, Agent(model="m").config.fallback) == ((), "")


class AsyncApprover:
    """An approver that is an object."""

    async def __call__(self, question: AskApproval) -> Approve:
        assert (question.tool, question.run != "", question.session != "") == ("pay", True, True)
        return Approve()


async def _later(_: AskApproval) -> Approve | None:
    return Approve()


def _promises(question: AskApproval) -> Any:
    return _later(question)


@pytest.mark.parametrize(
    ("approver", "paid"),
    [
        (AsyncApprover(), True),
        (_later, True),
        (_promises, True),
        (lambda _: ApproveAlways(), True),
        (lambda _: Deny("no"), False),
        (lambda _: None, None),
    ],
)
async def test_an_approver_is_a_function_or_an_object_and_may_leave_a_question_open(
    approver: Any, *, paid: bool | None
) -> None:
    agent, asked = scripted(calls(("pay", {})), says("well"), approver=approver, store=MemoryStore())
    async with agent.session("s") as session:
        result = await session.run("go")
    if paid is None:
        assert [question.tool for question in result.waiting] == ["pay"]
        return
    assert [one.outcome for one in asked.seen[1][-1].results] == [Outcome.OK if paid else Outcome.DENIED]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("broken"), "The approver failed: ValueError: broken"),
        (SystemExit(3), "The approver failed: RuntimeError: SystemExit(3)"),
    ],
)
async def test_an_approver_that_fails_has_said_no_and_never_ends_the_process(
    error: BaseException, words: str
) -> None:
    def approver(_: AskApproval) -> Approve:
        raise error

    agent, asked = scripted(calls(("pay", {})), says("well"), approver=approver, store=MemoryStore())
    async with agent.session("s") as session:
        await session.run("go")
    (result,) = asked.seen[1][-1].results
    assert (result.outcome, result.content) == (Outcome.DENIED, words)


@pytest.mark.parametrize("chosen", [["peek"], [], ["pay", "peek"], ["fly"]])
async def test_a_turn_offers_the_tools_that_are_chosen_for_it(chosen: list[str]) -> None:
    agent, asked = scripted(says("well"), tools=[pay, peek], tools_for=lambda _: chosen)
    if chosen == ["fly"]:
        result = await agent.run("go")
        assert (result.reason, "tools_for: no tool 'fly'; there are: pay, peek" in result.detail) == (
            "error",
            True,
        )
        return
    await agent.run("go")
    assert [one.tools for one in asked.requests] == [tuple(chosen)]


async def test_the_tools_of_a_turn_may_be_chosen_with_waiting() -> None:
    async def choose(_: Any) -> list[str]:
        return ["peek"]

    agent, asked = scripted(says("well"), tools=[pay, peek], tools_for=choose)
    await agent.run("go")
    assert [one.tools for one in asked.requests] == [("peek",)]


ASKED = CallModel(id="r-1", model="m", view=Conversation(revision=0, length=1), tools=("pay", "peek"))


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("purpose", [*Purpose])
async def test_tools_are_chosen_for_turns_only_and_the_answer_says_which(
    purpose: Purpose, *, later: bool
) -> None:
    """In the order of the request, and of those that it has: a child may have some of them only."""
    seen, chose = list[CallModel](), list[PerformContext]()
    answers: list[Any] = [
        ModelFinished(request="r-1", stop=StopReason.END_TURN, usage=Usage(), at=1.0),
        ModelFailed(request="r-1", failure=Failure.OVERLOADED, message="later", at=1.0),
    ]
    scene = PerformContext(
        session="s",
        run="r",
        config=Config(model=ModelSpec(name="m")),
        history=History.of(),
        clock=AutoClock(),
        emit=noop,
    )

    async def model(request: CallModel, _: PerformContext) -> Any:
        seen.append(request)
        return answers[len(seen) - 1]

    async def promised() -> list[str]:
        return ["peek", "more"]

    def choose(given: PerformContext) -> Any:
        chose.append(given)
        return promised() if later else ["peek", "more"]

    request = attrs.evolve(ASKED, purpose=purpose)
    found = [await offer(choose, ("pay", "peek", "more"), model, request, scene) for _ in answers]
    turn = purpose is Purpose.TURN
    assert seen == [attrs.evolve(request, tools=("peek",)) if turn else request] * 2
    assert chose == ([scene] * 2 if turn else [])
    assert found == [attrs.evolve(answers[0], offered=("peek",)) if turn else answers[0], answers[1]]


@pytest.mark.parametrize(("known", "there"), [((), "none"), (("pay", "peek"), "pay, peek")])
async def test_a_tool_that_is_chosen_and_is_not_there_is_named(known: tuple[str, ...], there: str) -> None:
    async def model(*_: object) -> Any:
        raise AssertionError

    scene: Any = None
    with pytest.raises(ConfigError, match=f"no tool 'fly'; there are: {there}$"):
        await offer(lambda _: [*known, "fly", "swim"], known, model, ASKED, scene)


async def test_a_timer_fires_when_it_is_due() -> None:
    clock = AutoClock(5.0)
    settings = Config(model=ModelSpec(name="m"))
    scene = PerformContext(
        session="s", run="r", config=settings, history=History.of(), clock=clock, emit=noop
    )
    fired = await sleep(SetTimer(id="r-1", due=9.0), scene)
    assert (fired.request, fired.at) == ("r-1", clock.now())
    assert fired.at >= 9.0


def test_a_vault_is_one_that_keeps_and_finds() -> None:
    own = MemoryVault()
    assert Agent(model="m", vault=own).vault is own
    wrong: Any = object()
    with pytest.raises(ArgumentError, match="a vault has the methods keep and find"):
        Agent(model="m", vault=wrong)


def test_what_an_agent_has_several_of_may_be_any_iterable(tmp_path: Path) -> None:
    """An iterator is read once, and what it gave is there each time."""
    rate, rule = RateLimit(model="m", requests=3), Rule(verdict=Verdict.ALLOW, tool="peek")
    child, other = ChildSpec(name="kid"), ModelSpec(name="other")

    @hook(Hook.SESSION_END)
    def late(call: HookCall) -> None: ...

    agent = Agent(
        model="m",
        models=iter([other]),
        tools=iter([peek]),
        hooks=iter([late]),
        rules=iter([rule]),
        children=iter([child]),
        directories=iter([str(tmp_path), "."]),
        rates=iter([rate]),
    )
    for _ in range(2):
        assert (agent.models, agent.tools, agent.hooks, agent.rules) == ((other,), (peek,), (late,), (rule,))
        assert (agent.children, agent.directories, agent.rates) == ((child,), (str(tmp_path), "."), (rate,))


async def test_instructions_are_read_in_the_directory_of_the_agent(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    agent, asked = scripted(says("well"), cwd=tmp_path, instructions=["AGENTS.md"])
    await agent.run("go")
    assert "Be brief." in asked.requests[0].system + asked.seen[0][0].text


def test_every_model_of_an_agent_and_of_its_children_is_priced_unless_it_has_a_price() -> None:
    asked, price = dict[str, str | None](), Price(input=Decimal(1), output=Decimal(2))
    own = Price(input=Decimal(3), output=Decimal(4))

    def prices(spec: ModelSpec, url: str | None) -> Price:
        asked[spec.name] = url
        return price

    kids = [ChildSpec(name=name, model=ModelSpec(name=f"openai:{name}")) for name in ("kid", "other")]
    config = Agent(
        model="openai:a",
        models=["openai:b", ModelSpec(name="openai:c", price=own)],
        fallback="anthropic:d",
        base_url="http://proxy",
        children=[*kids, ChildSpec(name="plain")],
        prices=prices,
    ).config
    assert [model.price for model in (config.model, *config.models)] == [price, price, own, price]
    assert [child.model and child.model.price for child in config.children] == [price, price, None]
    # The address is that of the first model's provider.
    here = dict.fromkeys(["openai:a", "openai:b", "openai:kid", "openai:other"], "http://proxy")
    assert asked == {**here, "anthropic:d": None}


def test_an_agent_does_not_show_its_keys() -> None:
    agent = Agent(
        model="m", base_url="http://me:hidden@localhost", api_key="hidden", deps={"password": "hidden"}
    )
    assert "localhost" in repr(agent)
    assert "deps=dict" in repr(agent)
    # Nor what it has no setting for: its threads, and the sessions that work.
    assert not any(word in repr(agent) for word in ("hidden", "approvals", "at_work"))


def test_a_store_that_does_not_derive_from_store_is_refused_when_the_agent_is_made() -> None:
    class Other:
        """It has no method of a store."""

    other: Any = Other()
    why = r"^store: Other does not derive from turnwheel\.performers\.Store; derive it"
    with pytest.raises(ConfigError, match=why):
        Agent(model="m", store=other)
    with pytest.raises(ConfigError, match=why):
        Agent(model="m").session("s", other)


async def test_a_session_may_have_a_store_of_its_own() -> None:
    usual, other = MemoryStore(), MemoryStore()
    agent, _ = scripted(says("one"), says("two"), store=usual)
    for store in (None, other):
        async with agent.session("s", store) as session:
            await session.run("go")
        assert (bool(await usual.load("s")), bool(await other.load("s"))) == (True, store is other)


async def test_a_run_with_a_store_rests_on_a_question_and_reads_nothing_before() -> None:
    class Read(StoreOver):
        reads = 0

        async def load(
            self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
        ) -> Entries:
            self.reads += 1
            return await super().load(session, start, end, incarnation)

    store = Read()
    agent, _ = scripted(calls(("pay", {})), store=store)
    result = await agent.run("go")
    assert ([one.tool for one in result.waiting], result.reason) == (["pay"], None)
    assert store.reads == 0


@pytest.mark.parametrize("way", ["aclose", "async with", "run_sync", "await_sync"])
def test_an_agent_closes_its_connections(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []

    async def aclose(self: object) -> None:
        closed.append(self)

    monkeypatch.setattr(Models, "aclose", aclose)
    agent, _ = scripted(says("hi"))

    async def use() -> None:
        async with agent:
            await agent.run("go")
            assert closed == []

    if way == "run_sync":
        agent.run_sync("go")
    elif way == "await_sync":
        agent.await_sync(agent.run("go"))
    else:
        asyncio.run(agent.aclose() if way == "aclose" else use())
    assert len(closed) == 1


@pytest.mark.parametrize("hosts", [True, False])
async def test_what_a_tool_tells_while_it_works_has_no_secret_whoever_runs_it(*, hosts: bool) -> None:
    secret = "correct-horse-7"  # noqa: S105  # made up

    @tool(approval="never")
    async def log_in(password: str, context: ToolContext[None]) -> str:
        """Log in."""
        context.emit(f"with {password}")
        return "done"

    @tool(approval="never")
    async def sign_up(password: str) -> str:
        """Sign up."""
        return password

    async def run(request: RunTool, scene: PerformContext) -> ToolFinished:
        scene.emit(ToolProgressed(request=request.id, text=f"with {secret}", at=1.0))
        return ToolFinished(request=request.id, content="done", at=1.0)

    model = ScriptedModel(calls(("sign_up" if hosts else "log_in", {"password": secret})), says("well"))
    performers: dict[type, Any] = {CallModel: model}
    if hosts:
        performers[RunTool] = run
    agent = Agent(model="scripted", tools=[log_in, sign_up], performers=performers)
    told = [notice async for notice in agent.stream("go")]
    [output] = [notice.text for notice in told if isinstance(notice, ToolOutput)]
    assert output.startswith("with [")
    assert secret not in str(told)


LOOKS = ("machine", "history", "unfinished", "waiting", "queue", "title", "spent", "activity", "children")


@pytest.mark.parametrize("look", LOOKS)
async def test_a_session_with_a_given_id_is_read_before_it_is_looked_at(look: str) -> None:
    """Empty would look like a session that waits for nothing."""
    store = MemoryStore()
    agent, _ = scripted(calls(("pay", {})), says("paid"), store=store)
    await agent.session("s").run("go")
    session = agent.session("s")
    with pytest.raises(SessionNotRead, match=r"await session\.load\(\) first"):
        getattr(session, look)
    with pytest.raises(SessionNotRead):
        session.result()
    assert "not read yet" in session._repr_html_()  # pyright: ignore[reportPrivateUsage]  # as a notebook does
    (question,) = (await session.load()).waiting
    await agent.session("s").approve(question.id)
    assert (await agent.session("s").resume()).text == "paid"


async def test_a_session_without_a_journal_to_read_may_be_looked_at_at_once() -> None:
    agent, _ = scripted(says("hi"), store=MemoryStore())
    assert (agent.session().waiting, agent.session().queue) == ((), ())
    without_store, _ = scripted(says("hi"))
    assert without_store.session("s").waiting == ()
    sent = agent.session("s")
    await sent.send("go")
    assert len(sent.queue) == 1


async def test_a_model_that_cannot_be_asked_is_refused_where_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    store = MemoryStore()
    session = Agent(api_key="a key", store=store).session("s")
    with pytest.raises(ConfigError, match="'opnai:x'"):
        await session.control(SetModel("opnai:x"))
    with pytest.raises(ConfigError, match="no API key for 'anthropic:x'"):
        await session.control(SetModel("anthropic:x"))
    assert await store.list() == []
    await session.control(SetModel("openai:gpt-5-mini"))
    # The host asks the models itself, by names and with keys of its own.
    agent, _ = scripted(store=store)
    await agent.session("s").control(SetModel("opnai:x"))


async def test_a_handle_that_is_awaited_says_what_to_write() -> None:
    agent, _ = scripted(says("hi"))
    handle: Any = agent.session("s").start("go")
    with pytest.raises(ArgumentError, match=r"then 'await handle\.wait\(\)'"):
        await handle
    assert (await handle.wait()).text == "hi"


async def test_closing_the_agent_leaves_the_runs_at_work_for_another_one(tmp_path: Path) -> None:
    store, began = tmp_path / "agent.db", asyncio.Event()

    @tool(side_effect="read_only")
    async def look() -> str:
        """Look."""
        began.set()
        return await asyncio.Future[str]()

    model = ScriptedModel(calls(("look", {})))
    agent = Agent(performers={CallModel: model}, tools=[look], store=store)
    handle = agent.session("s").start("go")
    await began.wait()
    await agent.aclose()
    result = await handle.wait()
    assert (result.reason, result.session) == (None, "s")

    @tool(side_effect="read_only", name="look")
    def look_again() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel(says("done"))
    async with Agent(performers={CallModel: model}, tools=[look_again], store=store) as later:
        assert (await later.session("s").resume()).text == "done"
