"""What a caller writes wrongly is refused at once, and the error says what to write instead."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypedDict, cast

import attrs
import pytest

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    ChildSpec,
    Compaction,
    Config,
    Deny,
    DoneReason,
    HookAnswer,
    Limits,
    Loops,
    MemoryStore,
    ModelSpec,
    Policy,
    Price,
    Retries,
    Rule,
    Secrets,
    SetMode,
    SetModel,
    SetThinking,
    Singleton,
    SQLiteStore,
    Tool,
    ToolContext,
    ToolSpec,
    hook,
    tool,
)
from turnwheel.effects import Binary, CallModel, Failure, RunEnded, RunTool, ToolFinished, Verdict
from turnwheel.effects.errors import ArgumentError, ConfigError, StoreError, ToolDefinitionError
from turnwheel.effects.permissions import as_rule
from turnwheel.engine import export, listed, replay
from turnwheel.performers import PerformContext, Summarise
from turnwheel.performers.models.rate_limits import RateLimit
from turnwheel.testing import MachineHarness, ScriptedModel, call, calls, fails, says


@tool(side_effect="read_only")
def look(path: str = ".") -> str:
    """Look at *path*."""
    return f"saw {path}"


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


class Customers:
    """What a tool works with."""

    def city(self, name: str) -> str:
        return f"{name} lives in Rome"


@tool(side_effect="read_only")
def find(context: ToolContext[Customers], name: str) -> str:
    """Find a customer."""
    return context.deps.city(name)


def bare(amount: int) -> str:
    """Not a tool."""
    return str(amount)


def no_coroutine(request: Any, context: PerformContext) -> ToolFinished:
    return ToolFinished(at=context.clock.now(), request=request.id, content="paid")


class InThread:
    """A performer that is not async."""

    def __call__(self, request: Any, context: PerformContext) -> ToolFinished:
        return no_coroutine(request, context)


async def one_argument(request: Any) -> None:
    raise AssertionError(request)


async def performs(request: Any, context: PerformContext) -> ToolFinished:
    return no_coroutine(request, context)


class Performs:
    """An async performer that is an object."""

    async def __call__(self, request: Any, context: PerformContext) -> ToolFinished:
        return no_coroutine(request, context)


def forwards(request: Any, context: PerformContext) -> Awaitable[ToolFinished]:
    return performs(request, context)


@functools.wraps(performs)
def wrapped(*arguments: Any) -> Any:
    return performs(*arguments)


def no_question() -> Approve:
    return Approve()


def scripted(*replies: Any, **settings: Any) -> Agent:
    """An agent with two tools that is asked by no provider."""
    model = ScriptedModel(*replies, partial=True)
    given: dict[str, Any] = {"tools": [look, pay], "performers": {CallModel: model}, **settings}
    return Agent(model="scripted", **given)


def asked() -> Agent:
    """An agent whose model wants to pay."""
    return scripted(calls(("pay", {"amount": 5})), says("done"), store=MemoryStore())


async def read_again(notices: Any) -> None:
    async for _ in notices:
        pass
    async for _ in notices:
        raise AssertionError


def asks_to_write() -> MachineHarness:
    """A run that asks whether it may write."""
    harness = MachineHarness()
    harness.say(call(0, "write", path="a"))
    return harness


async def waiting() -> tuple[Any, Any]:
    """A session that waits for an answer, and its question."""
    session = asked().session("s")
    await session.run("Pay")
    return session, session.waiting[0]


async def approve(request: Any, decision: Any) -> None:
    session, question = await waiting()
    await session.approve(request(question), decision)


# As `Any`: a type checker refuses nearly all of these, and not every caller has one.
AGENT: Any = Agent
POLICY: Any = Policy
LIMITS: Any = Limits
MODEL: Any = ModelSpec
CHILD: Any = ChildSpec
RULE: Any = Rule
MODE: Any = SetMode
TOOL: Any = tool
HOOK: Any = hook
CALLS: Any = calls
SCRIPT: Any = ScriptedModel
SCRIPTED: Any = scripted
YES: Any = True


REFUSED: list[tuple[Callable[[], Any], str]] = [
    # Names of arguments
    (lambda: AGENT(modle="x"), "Agent: no argument 'modle'; did you mean 'model'?"),
    (
        lambda: AGENT("openai:gpt-5"),
        "Agent: takes no arguments without a name; write model=... or models=...",
    ),
    (lambda: POLICY(answer_in=3), "Policy: no argument 'answer_in'; did you mean 'answer_within'?"),
    (
        lambda: LIMITS(money=3),
        "Limits: no argument 'money'; there are: turns, tokens, usd, seconds",
    ),
    (lambda: MODEL(nam="x"), "ModelSpec: no argument 'nam'; did you mean 'name'?"),
    (MODEL, "ModelSpec: name is missing; give name=..."),
    (lambda: RULE("allow"), "Rule: tool is missing; give tool=..."),
    (
        lambda: RULE("allow", "bash", {"command": "git *"}),
        "Rule: takes at most 2 arguments without a name; write where=...",
    ),
    # The model
    (
        lambda: AGENT(model=None),
        "Agent.model must be a name or a ModelSpec; got None (write it as 'openai:gpt-5')",
    ),
    (lambda: AGENT(model=""), "ModelSpec.name must not be empty; got ''"),
    (
        lambda: AGENT(models="openai:gpt-5"),
        "Agent.models must be a list of models; got 'openai:gpt-5' (write ['openai:gpt-5'])",
    ),
    (
        lambda: AGENT(fallback=3),
        "Agent.fallback must be a name or a ModelSpec; got 3 (write it as 'openai:gpt-5')",
    ),
    (lambda: AGENT(api_key=3), "Agent.api_key must be text; got int (write api_key='...')"),
    (lambda: AGENT(base_url=3), "Agent.base_url must be text; got 3 (write 'https://...')"),
    (
        lambda: AGENT(requests_at_once=0),
        "Agent.requests_at_once must be at least 1 request at a time, or None for no limit; got 0",
    ),
    (
        lambda: AGENT(prices={"m": 1}),
        "Agent.prices must be a function such as price_of; got {'m': 1} (or give each ModelSpec its price)",
    ),
    (
        lambda: AGENT(rates=[3]),
        "Agent.rates must be a list of rates; got 3 in it (write [RateLimit(model, requests=...)])",
    ),
    (
        lambda: MODEL("m", temperature="hot"),
        "ModelSpec.temperature must be a number, and not negative; got 'hot'",
    ),
    (lambda: MODEL("m", price=3), "ModelSpec.price must be a Price; got 3"),
    # The performers
    (
        lambda: AGENT(performers={"CallModel": ScriptedModel()}),
        "Agent.performers must be by types of requests; got 'CallModel' (write CallModel without quotes)",
    ),
    (
        lambda: AGENT(performers={"CalModel": ScriptedModel()}),
        (
            "Agent.performers must be by types of requests; got 'CalModel' (did you mean 'CallModel'? "
            "there are: CallModel, RunTool, AskApproval, FireHook, InspectCall, ReadInstructions, "
            "DecodeOutput, RunAgent, SetTimer, Summarise, MakeTitle)"
        ),
    ),
    (
        lambda: AGENT(performers=ScriptedModel()),
        (
            "Agent.performers must be a mapping from types of requests; got a ScriptedModel "
            "(write {CallModel: it})"
        ),
    ),
    (
        lambda: AGENT(performers={CallModel: ScriptedModel}),
        (
            "Agent.performers must be functions or objects to call; got the class ScriptedModel "
            "(make one, such as ScriptedModel(...))"
        ),
    ),
    (
        lambda: AGENT(performers={RunTool: no_coroutine}),
        (
            "Agent.performers: RunTool: no_coroutine is not async; "
            "write async def no_coroutine(request, context)"
        ),
    ),
    (
        lambda: AGENT(performers={Summarise: partial(no_coroutine)}),
        (
            "Agent.performers: Summarise: no_coroutine is not async; "
            "write async def no_coroutine(request, context)"
        ),
    ),
    (
        lambda: AGENT(performers={CallModel: InThread()}),
        "Agent.performers: CallModel: in_thread is not async; write async def in_thread(request, context)",
    ),
    (
        lambda: AGENT(performers={RunTool: one_argument}),
        (
            "Agent.performers: RunTool: one_argument must take a request and its context; "
            "write async def one_argument(request, context)"
        ),
    ),
    # Tools, hooks and children
    (lambda: AGENT(tools=look), "Agent.tools must be a list of tools; got tool 'look' (write [look])"),
    (
        lambda: AGENT(tools=bare),
        "Agent.tools must be a list of tools; got function 'bare' (decorate it with @tool, and write [bare])",
    ),
    (
        lambda: AGENT(tools=[look, bare]),
        "Agent.tools must be a list of tools; got function 'bare' in it (decorate it with @tool)",
    ),
    (
        lambda: AGENT(tools=["bash"]),
        (
            "Agent.tools must be a list of tools; got 'bash' in it "
            "(pass the tool itself; builtin_tools() has those that come with turnwheel)"
        ),
    ),
    (lambda: AGENT(tools=[find]), "Agent.deps must be a Customers; got None (tool 'find' needs it)"),
    (
        lambda: AGENT(tools=[find], deps="secret"),
        "Agent.deps must be a Customers; got str (tool 'find' needs it)",
    ),
    (
        lambda: AGENT(tools=[find], deps=Customers),
        (
            "Agent.deps must be a Customers; got the class Customers "
            "(tool 'find' needs it; write Customers(...))"
        ),
    ),
    (
        lambda: AGENT(hooks=[bare]),
        ("Agent.hooks must be a list of hooks; got function 'bare' in it (decorate it with @hook(...))"),
    ),
    (lambda: HOOK(bare), "'bare' is not a place for a hook; write @hook(Hook.PRE_TOOL_USE)"),
    (
        lambda: AGENT(children=["scout"]),
        "Agent.children must be a list of agents; got 'scout' in it (write [ChildSpec('scout')])",
    ),
    (
        lambda: AGENT(children=[Agent()]),
        "Agent.children must be a list of agents; got Agent() in it (write [ChildSpec(name, tools=...)])",
    ),
    (lambda: CHILD("scout", tools="read"), "ChildSpec.tools must be a list; got 'read' (write ['read'])"),
    (
        lambda: CHILD("scout", tools=[look]),
        (
            "ChildSpec.tools must be a list of texts; "
            "got <Tool 'look': read_only, takes path> in it (write 'look')"
        ),
    ),
    (
        lambda: HookAnswer(go_on=cast("Any", "check the tests")),
        "HookAnswer.go_on must be a bool; got 'check the tests'",
    ),
    (
        lambda: HookAnswer("deny", interrupt=cast("Any", "now")),
        "HookAnswer.interrupt must be a bool; got 'now'",
    ),
    (
        lambda: CHILD("scout", limits={"turns": 3}),
        "ChildSpec.limits must be a Limits; got {'turns': 3}",
    ),
    (
        lambda: TOOL(side_efect="unsafe")(bare),
        "'bare' cannot be a tool: no option 'side_efect'; did you mean 'side_effect'?",
    ),
    (
        lambda: TOOL(side_effect="readonly")(bare),
        (
            "'bare' cannot be a tool: side_effect must be one of read_only, idempotent, unsafe; "
            "got 'readonly' (did you mean 'read_only'?)"
        ),
    ),
    (
        lambda: TOOL(timeout=-1)(bare),
        "'bare' cannot be a tool: timeout must be a number above 0, or None for no limit; got -1",
    ),
    (
        lambda: AGENT(tools_for=["look"]),
        (
            "Agent.tools_for must be a function that names the tools of a turn; got ['look'] "
            "(or give tools alone)"
        ),
    ),
    # Texts and lists of them
    (lambda: AGENT(system=["a"]), "Agent.system must be text; got ['a']"),
    (lambda: AGENT(stop="END"), "Agent.stop must be a list; got 'END' (write ['END'])"),
    (
        lambda: AGENT(instructions="AGENTS.md"),
        (
            "Agent.instructions must be a list of names of files; got 'AGENTS.md' "
            "(write ['AGENTS.md']; the text of a prompt is system='...')"
        ),
    ),
    (lambda: AGENT(betas="b"), "Agent.betas must be a list; got 'b' (write ['b'])"),
    (
        lambda: AGENT(directories="src"),
        "Agent.directories must be a list of paths; got 'src' (write ['src'])",
    ),
    (
        lambda: AGENT(cwd="/nowhere/at/all"),
        "Agent.cwd must be a directory; got '/nowhere/at/all' (make it, or name another one)",
    ),
    (lambda: AGENT(cwd=None), "Agent.cwd must be a path; got None (leave it out for '.')"),
    # Words
    (
        lambda: AGENT(titles="modle"),
        "Agent.titles must be one of off, inline, model; got 'modle' (did you mean 'model'?)",
    ),
    (
        lambda: AGENT(ceiling="bypas"),
        (
            "Agent.ceiling must be one of default, accept_edits, plan, dont_ask, bypass; "
            "got 'bypas' (did you mean 'bypass'?)"
        ),
    ),
    (
        lambda: MODE("pln"),
        (
            "SetMode.mode must be one of default, accept_edits, plan, dont_ask, bypass; "
            "got 'pln' (did you mean 'plan'?)"
        ),
    ),
    # Settings with a class
    (
        lambda: AGENT(limits={"turns": 3}),
        "Agent.limits must be a Limits; got {'turns': 3} (write Limits(turns=3))",
    ),
    (lambda: AGENT(limits=None), "Agent.limits must be a Limits; got None (leave it out for the usual)"),
    (lambda: AGENT(policy="plan"), "Agent.policy must be a Policy; got 'plan' (write Policy(mode='plan'))"),
    (lambda: AGENT(sandbox=True), "Agent.sandbox must be a Sandbox; got True (write Sandbox(network=...))"),
    (
        lambda: AGENT(secrets=["pin"]),
        "Agent.secrets must be a Secrets; got list (write Secrets(words=[...]))",
    ),
    (lambda: LIMITS(turns=0), "Limits.turns must be a number above 0, or None for no limit; got 0"),
    (lambda: LIMITS(usd="five"), "'five' is no amount of money; write it as 0.25 or '0.25'"),
    (lambda: POLICY(compact_at=80), "Policy.compact_at must be a number above 0 and at most 1; got 80"),
    # Rules and answers
    (
        lambda: AGENT(rules="allow look"),
        "Agent.rules must be a list of rules; got 'allow look' (write ['allow look'])",
    ),
    (
        lambda: AGENT(tools=[look], rules=["alow look"]),
        "rule 'alow look': no verdict 'alow'; did you mean 'allow'? there are: allow, ask, deny",
    ),
    (
        lambda: AGENT(tools=[look], rules=["allow"]),
        "rule 'allow': no calls are named; write 'allow TOOL' or 'allow TOOL:ARGUMENT=GLOB'",
    ),
    (
        lambda: AGENT(tools=[look], rules=["allow lok"]),
        "rule 'allow lok': no tool 'lok'; did you mean 'look'? there are: look",
    ),
    (
        lambda: RULE("allow", "look", where="path=src/*"),
        "Rule.where must be globs by the names of arguments, such as {'path': 'src/*'}; got 'path=src/*'",
    ),
    (
        lambda: AGENT(approver=Approve()),
        (
            "Agent.approver must be a function of one question; got Approve(arguments='') "
            "(write lambda question: Approve())"
        ),
    ),
    (
        lambda: AGENT(approver=no_question),
        (
            "Agent.approver must be a function of one question; got function 'no_question' "
            "(write lambda question: Approve())"
        ),
    ),
    (
        lambda: scripted(calls(("pay", {})), approver=lambda _: True).run_sync("Pay"),
        (
            "decision must be Approve(), ApproveAlways() or Deny(); got bool "
            "(write Approve() for True, Deny() for False)"
        ),
    ),
    (
        lambda: asyncio.run(approve(lambda question: question, Approve())),
        "request must be the id of a question; got AskApproval (write question.id)",
    ),
    (
        lambda: asyncio.run(approve(lambda question: question.id, "yes")),
        "decision must be Approve(), ApproveAlways() or Deny(); got str",
    ),
    # Prompts, sessions and streams
    (lambda: SCRIPTED().run_sync(None), "the prompt must be text; got None"),
    (lambda: scripted().run_sync(""), "the prompt is empty; give text or a file"),
    (lambda: SCRIPTED().run_sync(b"go"), "the prompt must be text; got b'go' (decode it)"),
    (lambda: SCRIPTED().stream(None), "the prompt must be text; got None"),
    (
        lambda: list(AGENT().stream("go")),
        "a stream has no plain loop; write 'async for', in an async function",
    ),
    (
        lambda: list(AGENT().session("s").stream("go")),
        "a stream has no plain loop; write 'async for', in an async function",
    ),
    (
        lambda: AGENT().stream("go").__await__(),
        "a stream is not awaited; write 'async for notice in ...', or await run()",
    ),
    (lambda: AGENT().session(7), "the id of a session is text; got 7"),
    (
        lambda: asyncio.run(
            read_again(AGENT(performers={CallModel: ScriptedModel(says("hi"))}).stream("go"))
        ),
        "this stream has ended, and has no more notices; call stream() again",
    ),
    (
        lambda: asyncio.run(read_again(scripted(says("hi")).session("s").stream("go"))),
        "this stream has ended, and has no more notices; call stream() again",
    ),
    (
        lambda: Binary(media_type="text/plain", data=cast("Any", "hunter2")),
        "Binary.data must be bytes; got str (encode it)",
    ),
    (
        lambda: Binary(media_type="image/png", data=cast("Any", Path("cat.png"))),
        "Binary.data must be bytes; got PosixPath (read it first)",
    ),
    (
        lambda: Singleton(AGENT()),
        "Singleton.session must be a Session; got Agent() (write Singleton(agent.session(id)))",
    ),
    # The store
    (
        lambda: asyncio.run(listed(cast("Any", "agent.db"))),
        "store: 'agent.db' is no store; write SQLiteStore('agent.db')",
    ),
    (
        lambda: asyncio.run(replay(cast("Any", Path("agent.db")), "s").__anext__()),
        "store: 'agent.db' is no store; write SQLiteStore('agent.db')",
    ),
    (
        lambda: asyncio.run(export(cast("Any", "agent.db"), "s")),
        "store: 'agent.db' is no store; write SQLiteStore('agent.db')",
    ),
    (
        lambda: AGENT(store=7),
        (
            "store: int does not derive from turnwheel.performers.Store; derive it, and set the attributes "
            "that say what it keeps"
        ),
    ),
    (lambda: AGENT(store=":memory:"), "':memory:' is no file; name one, or use MemoryStore"),
    # Scripts of tests
    (
        lambda: CALLS("pay", {"amount": 5}),
        "calls: 'pay' is not a pair of a name and arguments; write calls(('pay', {'amount': 5}))",
    ),
    (lambda: says(cast("Any", None)), "says: a reply must be text; got None"),
    (
        lambda: fails(cast("Any", "boom")),
        f"fails: no failure 'boom'; there are: {', '.join([each.value for each in Failure])}",
    ),
    (
        lambda: asks_to_write().decide("write", YES),
        (
            "decision must be Approve(), ApproveAlways() or Deny(); got bool "
            "(write Approve() for True, Deny() for False)"
        ),
    ),
    (lambda: SCRIPT("hello"), "ScriptedModel: 'hello' is not a reply; write says('hello')"),
    (
        lambda: SCRIPT(["hello"]),
        "ScriptedModel: ['hello'] is not a reply; write says(...), calls(...), one by one",
    ),
]


@pytest.mark.parametrize(("use", "message"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_a_wrong_use_is_refused_with_what_to_write_instead(use: Callable[[], Any], message: str) -> None:
    with pytest.raises((ArgumentError, ConfigError, ToolDefinitionError)) as refused:
        use()
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "performer",
    [
        performs,
        partial(performs),
        Performs(),
        Performs().__call__,
        forwards,
        wrapped,
        lambda *arguments: performs(*arguments),  # noqa: PLW0108  # its code does not say that it is async
        # Its work is done, and so its answer counts.
        lambda *arguments: no_coroutine(*arguments),  # noqa: PLW0108  # as above
    ],
    ids=["function", "partial", "object", "method", "annotated", "wrapper", "lambda", "plain lambda"],
)
def test_a_performer_may_be_whatever_returns_an_answer_to_await(performer: Any) -> None:
    model = ScriptedModel(calls(("look", {})), says("done"), partial=True)
    agent = Agent(model="scripted", tools=[look], performers={CallModel: model, RunTool: performer})
    assert agent.run_sync("go").text == "done"
    (result,) = [each for message in model.seen[-1] for each in message.results]
    assert result.content == "paid"


def test_bytes_of_any_kind_are_the_content_of_a_file() -> None:
    data = bytearray(b"abc")
    file = Binary(media_type="text/plain", data=cast("Any", data))
    data.clear()
    assert file == Binary(media_type="text/plain", data=b"abc")
    assert Binary(media_type="text/plain", data=cast("Any", memoryview(b"abc"))) == file


def test_a_failure_of_a_script_may_be_a_word() -> None:
    assert fails(cast("Any", "rate_limit")) == fails(Failure.RATE_LIMIT)


async def test_a_stream_that_was_left_in_its_middle_can_be_read_on() -> None:
    stream = scripted(says("one two")).session("s").stream("go")
    async for _ in stream:
        break
    assert isinstance([notice async for notice in stream][-1], RunEnded)


def test_what_is_obvious_needs_no_name() -> None:
    """One or two fields of a value are positional, and all others are keywords."""
    assert Rule("allow", "look") == Rule(verdict=Verdict.ALLOW, tool="look")
    assert Approve({"amount": 1}) == Approve(arguments='{"amount": 1}')
    assert ApproveAlways({"path": "src/*"}) == ApproveAlways(where=(("path", "src/*"),))
    assert Deny("too much") == Deny(message="too much")
    assert HookAnswer("deny", "too much") == HookAnswer(verdict=Verdict.DENY, reason="too much")
    assert ModelSpec("openai:gpt-5").name == "openai:gpt-5"
    assert ChildSpec("scout", model="openai:gpt-5").model == ModelSpec("openai:gpt-5")
    assert ToolSpec("look").name == "look"
    assert Price("1.25", 10) == Price(input=Decimal("1.25"), output=Decimal(10))
    assert RateLimit("openai:gpt-5", requests=3).model == "openai:gpt-5"
    assert (SetMode("plan").mode, SetModel("m").model, SetThinking(None).tokens) == ("plan", "m", None)


def test_no_value_has_more_than_two_fields_without_a_name() -> None:
    named: list[Any] = [Agent, Policy, Limits, Config, Retries, Compaction, Loops, Secrets]
    for kind in named:
        assert [field.name for field in attrs.fields(kind) if field.init and not field.kw_only] == []
    short: list[Any] = [
        Rule,
        ModelSpec,
        ChildSpec,
        ToolSpec,
        Price,
        Approve,
        ApproveAlways,
        HookAnswer,
        RateLimit,
    ]
    for kind in short:
        assert len([field for field in attrs.fields(kind) if not field.kw_only]) <= 2, kind


def test_rules_are_written_as_on_the_command_line() -> None:
    rules = ["allow look:path=src/*", " deny  pay:amount=9", Rule("ask", "*", where={"path": "*.env"})]
    assert scripted(rules=rules).rules == (
        Rule("allow", "look", where={"path": "src/*"}),
        Rule("deny", "pay", where=(("amount", "9"),)),
        Rule("ask", "*", where=(("path", "*.env"),)),
    )
    assert [as_rule(str(rule)) for rule in scripted(rules=rules).rules] == [*scripted(rules=rules).rules]


def test_money_may_be_text() -> None:
    assert Limits(usd="5").usd == Decimal(5)


def test_the_path_of_a_store_is_a_file_that_the_agent_closes(tmp_path: Path) -> None:
    place, other = tmp_path / "agent.db", str(tmp_path / "other.db")

    async def later() -> None:
        async with agent:
            session = agent.session(result.session)
            await session.load()
            assert session.result().text == "one"
            # One store for each path, which a session does not close.
            await agent.session("s", other).run("go")
            again = agent.session("s", other)
            await again.load()
            assert again.result().text == "two"
        with pytest.raises(StoreError, match="is closed"):
            await agent.session("s").load()

    agent = scripted(says("one"), says("two"), store=place)
    assert isinstance(agent.store, SQLiteStore)
    result = agent.run_sync("go")
    asyncio.run(later())
    assert place.exists()


def test_a_session_is_a_name_and_no_path(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    agent = scripted(says("one"), store=here / "agent.db")

    async def run() -> None:
        async with agent, agent.session("../x") as session:
            assert (await session.run("go")).session == "../x"

    asyncio.run(run())
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


async def test_a_stream_is_left_where_its_block_ends() -> None:
    async with scripted(says("one two")).stream("go") as notices:
        assert isinstance([notice async for notice in notices][-1], RunEnded)
    store = MemoryStore()
    async with scripted(says("one two"), store=store).stream("go") as notices:
        async for _ in notices:
            break
    (only,) = await store.list()
    ended = scripted(store=store).session(only.session)
    await ended.load()
    assert ended.result().reason is DoneReason.ABORTED


def test_an_agent_shows_what_differs_from_the_defaults() -> None:
    assert repr(Agent()) == "Agent()"
    agent = scripted(
        api_key="hidden",
        base_url="http://me:hidden@localhost",
        deps="hidden",
        limits=Limits(turns=3),
        policy=Policy(mode="plan"),
        rules=["deny pay:amount=9"],
        children=[ChildSpec("scout", tools=["look"])],
        store=MemoryStore(),
    )
    assert repr(agent) == (
        "Agent(model='scripted', tools=[look, pay], limits=Limits(turns=3), policy=Policy(mode='plan'), "
        "rules=['deny pay:amount=9'], children=[ChildSpec('scout', tools=['look'])], "
        "base_url='http://localhost', store=MemoryStore, deps=str, "
        "performers={CallModel: ScriptedModel})"
    )
    assert len(repr(scripted(system="long " * 1_000, stop=[str(number) for number in range(1_000)]))) <= 300


# Deps that fit, as far as a program can tell


class Named(Protocol):
    name: str


class Row(TypedDict):
    id: int


def of_kind(kind: object) -> Tool[..., str]:
    def look(context: ToolContext[object], text: str) -> str:
        raise AssertionError(context, text)

    look.__annotations__["context"] = ToolContext[kind]  # type: ignore[valid-type]  # known when it runs
    return tool(look)


@pytest.mark.parametrize(
    ("kind", "fits", "refused"),
    [
        (Customers, Customers(), 1),
        (dict[str, int], {"a": 1}, [1]),
        (Mapping[str, int], {"a": 1}, None),
        (Customers | None, None, "a"),
        (Customers | str, "a", None),
        (Named, object(), None),
        (Row, {"id": 1}, None),
        (float, 1, "1"),
        (type[Customers], Customers, None),
        (object, None, ...),
        (Any, 1, ...),
    ],
)
def test_deps_are_compared_as_far_as_a_program_can_tell(kind: object, fits: object, refused: object) -> None:
    AGENT(tools=[of_kind(kind)], deps=fits)
    if refused is not ...:
        with pytest.raises(
            ArgumentError, match=r"^Agent\.deps must be a .*; got \w+ \(tool 'look' needs it\)$"
        ):
            AGENT(tools=[of_kind(kind)], deps=refused)
