"""What the host's code raises: one record in its log, or with `on_error="raise"` the end of the work."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from support.patience import PATIENCE

from turnwheel import Agent, Approve, ChildSpec, MemoryStore, Policy, Tool, hook, tool
from turnwheel.effects import CallModel, Concurrency, RunTool, SideEffect
from turnwheel.effects.errors import ConfigError, ToolDefinitionError
from turnwheel.effects.hooks import Hook
from turnwheel.effects.requests import AskApproval, Purpose
from turnwheel.engine import OnHostError, Titles
from turnwheel.performers import HookCall, PerformContext, builtin_tools
from turnwheel.testing import ScriptedModel, calls, says

SECRET = "hunter2-of-the-host"  # noqa: S105  # a secret, for a test


class Broken(Exception):
    """What the host's code raises here."""


def fail(text: str = "broken") -> Any:
    raise Broken(text)


@tool(side_effect="read_only")
def look() -> str:
    """Fail in a thread."""
    return str(fail())


@tool(side_effect="read_only")
async def peek() -> str:
    """Fail in the event loop."""
    return str(fail())


@tool
def pay() -> str:
    """Need an approval."""
    return "paid"


@hook(Hook.PRE_TOOL_USE)
def review(_: HookCall) -> None:
    fail()


@hook(Hook.PRE_TOOL_USE)
def odd(_: HookCall) -> Any:
    return "yes"


@hook(Hook.SESSION_END)
def leave(_: HookCall) -> None:
    fail()


def approver(_: AskApproval) -> Approve:
    fail()
    return Approve()


async def yes(_: AskApproval) -> Approve:
    return Approve()


async def performer(*_: object) -> Any:
    fail()


async def misfit(*_: object) -> Any:
    return "no answer"


def tools_for(_: PerformContext) -> list[str]:
    fail()
    return []


def agent_of(name: str, **settings: Any) -> Agent:
    """An agent whose model calls the tool *name*, and then ends."""
    model = ScriptedModel(calls((name, {})), says("well"), partial=True)
    settings = {"tools": [look, peek, pay], "approver": yes, **settings}
    performers = {CallModel: model, **settings.pop("performers", {})}
    return Agent(performers=performers, **settings)


CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, str]]] = {
    "sync tool": ("look", {}, "a tool raised: Broken: broken", {"tool": "look"}),
    "async tool": ("peek", {}, "a tool raised: Broken: broken", {"tool": "peek"}),
    "hook": ("pay", {"hooks": [review]}, "a hook raised: Broken: broken", {"hook": "review"}),
    "approver": ("pay", {"approver": approver}, "an approver raised: Broken: broken", {"tool": "pay"}),
    "performer": (
        "pay",
        {"performers": {RunTool: performer}},
        "a performer raised: Broken: broken",
        {"request": "RunTool", "tool": "pay"},
    ),
    "tools_for": (
        "pay",
        {"tools_for": tools_for},
        "a performer raised: Broken: broken",
        {"request": "CallModel"},
    ),
    "wrong answer": (
        "pay",
        {"performers": {RunTool: misfit}},
        "a performer raised: TypeError: the performer of RunTool answered",
        {"request": "RunTool", "tool": "pay"},
    ),
    "wrong answer of a hook": (
        "pay",
        {"hooks": [odd]},
        "a hook gave a wrong answer: TypeError: it returned 'yes': return a HookAnswer, or None",
        {"hook": "odd"},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_each_failure_leaves_one_record(case: str, caplog: pytest.LogCaptureFixture) -> None:
    name, settings, says_what, fields = CASES[case]
    result = await agent_of(name, **settings).run("go")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("turnwheel", logging.WARNING)
    assert record.getMessage().startswith(says_what)
    assert {key: getattr(record, key) for key in fields} == fields
    assert [getattr(record, key) for key in ("session", "run")] == [result.session, result.run]
    assert "Broken" not in says_what or "in fail\n" in (record.exc_text or "")


@pytest.mark.parametrize("case", CASES)
async def test_each_failure_leaves_one_line_of_structlog(case: str, caplog: pytest.LogCaptureFixture) -> None:
    name, settings, says_what, fields = CASES[case]
    structlog.configure()
    with capture_logs() as lines:
        await agent_of(name, **settings).run("go")
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert line["event"] == says_what.partition(":")[0]
    assert line.items() >= fields.items()
    assert caplog.records == []


@pytest.mark.parametrize("case", CASES)
async def test_each_failure_is_raised_where_the_host_asks_for_that(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, settings, _, _ = CASES[case]
    with pytest.raises((Broken, TypeError)) as raised:
        await agent_of(name, on_error="raise", **settings).run("go")
    if raised.type is Broken:
        *_, frame = traceback.extract_tb(raised.value.__traceback__)
        assert (frame.filename, frame.name) == (__file__, "fail")
    # The caller has it.
    assert caplog.records == []


async def run(agent: Agent) -> object:
    return await agent.run("go")


async def stream(agent: Agent) -> object:
    return [notice async for notice in agent.stream("go")]


async def in_a_thread(agent: Agent) -> object:
    return await asyncio.to_thread(agent.run_sync, "go")


async def run_a_session(agent: Agent) -> object:
    async with agent.session("s") as session:
        return await session.run("go")


async def stream_a_session(agent: Agent) -> object:
    async with agent.session("s") as session:
        return [notice async for notice in session.stream("go")]


async def wait_for_a_handle(agent: Agent) -> object:
    async with agent.session("s") as session:
        return await session.start("go").wait()


@pytest.mark.parametrize(
    "way", [run, stream, in_a_thread, run_a_session, stream_a_session, wait_for_a_handle]
)
@pytest.mark.parametrize("name", ["look", "peek"])
async def test_every_way_to_run_raises_it(way: Callable[[Agent], Any], name: str) -> None:
    with pytest.raises(Broken):
        await way(agent_of(name, on_error=OnHostError.RAISE))


async def test_a_run_in_the_background_that_fails_is_one_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with agent_of("look", on_error="raise").session("s") as session:
        await session.send("go", start=True)
        async with asyncio.timeout(PATIENCE):
            while not caplog.records:  # noqa: ASYNC110  # no event tells it
                await asyncio.sleep(0.01)
        machine = session.machine
    (record,) = caplog.records
    assert machine is not None
    assert record.levelno == logging.ERROR
    told = f"a run in the background failed: Broken: broken (session=s, run={machine.memory.run})"
    assert record.getMessage() == told


async def test_a_run_that_was_raised_out_of_goes_on_as_after_a_crash() -> None:
    store, works = MemoryStore(), list[str]()

    @tool(side_effect="read_only")
    def check() -> str:
        if not works:
            fail()
        return "fine"

    @tool
    def send() -> str:
        return check.function() if works else fail()

    replies = calls(("check", {}), ("send", {})), says("done")
    model = ScriptedModel(*replies)
    settings: dict[str, Any] = {"tools": [check, send], "store": store, "approver": yes}
    agent = Agent(performers={CallModel: model}, on_error="raise", **settings)
    async with agent.session("s") as session:
        with pytest.raises(Broken):
            await session.run("go")
        assert session.unfinished
        # A prompt would lose what is open; only `resume` goes on.
        works.append("works")
        result = await session.resume()
    assert (result.text, result.reason) == ("done", "end_turn")
    # What only reads ran again, so the model was never told of the failure.
    assert [each.content for each in model.seen[-1][-1].results] == ["fine", "fine"]


async def test_what_fails_in_a_child_is_raised_to_the_parents_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel(
        calls(("run_agent", {"agent": "helper", "prompt": "help"})),
        calls(("look", {})),
        says("sorry"),
        says("well"),
        partial=True,
    )
    settings: dict[str, Any] = {"tools": [look], "children": [ChildSpec(name="helper", tools=("look",))]}
    with pytest.raises(Broken):
        await Agent(performers={CallModel: model}, on_error="raise", **settings).run("go")
    assert caplog.records == []


async def test_two_that_fail_at_once_are_raised_and_logged_one_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both = asyncio.Event()

    @tool(side_effect="read_only")
    async def first() -> None:
        await both.wait()
        fail("first")

    @tool(side_effect="read_only")
    async def second() -> None:
        both.set()
        await asyncio.sleep(0)
        fail("second")

    model = ScriptedModel(calls(("first", {}), ("second", {})), partial=True)
    agent = Agent(
        performers={CallModel: model},
        tools=[first, second],
        on_error="raise",
        policy=Policy(concurrency=Concurrency.PARALLEL),
    )
    with pytest.raises(Broken) as raised:
        await agent.run("go")
    (record,) = caplog.records
    logged = record.getMessage().partition(" (")[0]
    assert (str(raised.value), logged) == ("first", "a tool raised: Broken: second")


@pytest.mark.parametrize("on_error", OnHostError)
async def test_what_a_tool_expects_is_an_answer_and_no_failure(
    on_error: OnHostError, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(side_effect="read_only", expected=[Broken])
    def ask() -> None:
        fail("there is none")

    result = await agent_of("ask", tools=[ask], on_error=on_error).run("go")
    assert (result.text, caplog.records) == ("well", [])


async def test_built_in_tools_that_refuse_are_no_failures(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(calls(("read", {"path": "not/there"}), ("grep", {"pattern": "("})), says("well"))
    agent = Agent(performers={CallModel: model}, tools=builtin_tools(), on_error="raise")
    assert (await agent.run("go")).text == "well"
    assert caplog.records == []


@pytest.mark.parametrize("expected", [Broken, [Broken()], ["Broken"], [SystemExit], 5])
def test_what_is_expected_is_a_list_of_classes_of_exceptions(expected: Any) -> None:
    def ask() -> None: ...

    with pytest.raises(ToolDefinitionError, match="expected lists classes of exceptions; "):
        tool(expected=expected)(ask)


def test_another_word_than_report_or_raise_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Agent\.on_error must be one of report, raise; got 'log'"):
        Agent(on_error="log")


async def test_a_title_that_fails_and_a_hook_of_the_end_leave_a_record_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def model(request: CallModel, scene: PerformContext) -> Any:
        if request.purpose is Purpose.TITLE:
            fail()
        return await ScriptedModel(says("well"))(request, scene)

    agent = Agent(performers={CallModel: model}, titles=Titles.MODEL, hooks=[leave], on_error="raise")
    async with agent.session("s") as session:
        assert (await session.run("go")).text == "well"
        await asyncio.sleep(0)
    assert sorted(record.getMessage() for record in caplog.records) == [
        "a hook raised: Broken: broken (session=s, hook=leave)",
        "no title: Broken: broken (session=s)",
    ]


def quoted(password: str) -> Any:
    fail(f"wrong: {password}")


@pytest.mark.parametrize("secret", [SECRET, "yes"])
async def test_the_secrets_of_a_session_are_not_in_its_log(
    secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also a value that is too short to be masked anywhere else."""
    made = [
        Tool.from_schema(
            {"type": "object", "properties": {"password": {"type": "string"}}},
            function,
            name=name,
            side_effect=SideEffect.READ_ONLY,
        )
        for name, function in {"sync": in_thread, "coroutine": in_loop}.items()
    ]
    two = [(each.spec.name, {"password": secret}) for each in made]
    model = ScriptedModel(calls(*two), says("well"))
    await Agent(performers={CallModel: model}, tools=made).run("go")
    assert len(caplog.records) == 2
    assert f"wrong: {secret}" not in caplog.text
    assert caplog.text.count("Broken: wrong: [secret password ") == 4


def in_thread(arguments: dict[str, Any]) -> None:
    quoted(arguments["password"])


async def in_loop(arguments: dict[str, Any]) -> None:
    quoted(arguments["password"])


async def test_what_is_logged_is_no_secret_from_then_on() -> None:
    """A line of source such as ``token = ...`` has the name of a secret, and its value is none."""

    @tool(side_effect="read_only")
    def lose() -> str:
        token = fail("no such token")
        return str(token)

    @tool(side_effect="read_only")
    def quote() -> str:
        return 'fail("no such token")'

    model = ScriptedModel(calls(("lose", {})), calls(("quote", {})), says("well"))
    await Agent(performers={CallModel: model}, tools=[lose, quote]).run("go")
    assert model.seen[-1][-1].results[0].content == 'fail("no such token")'


async def test_steps_are_logged_from_the_first_one_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "turnwheel")
    result = await agent_of("pay").run("go")
    steps = [record for record in caplog.records if record.message.startswith("step (")]
    first, *_, last = [vars(record) for record in steps]
    assert (first["step"], first["event_type"], first["run"]) == (1, "RunOpened", result.run)
    assert (last["step"], last["state"], last["levelname"]) == (len(steps), "done", "INFO")
    assert {record.levelname for record in steps} == {"INFO", "DEBUG"}
