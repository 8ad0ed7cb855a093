"""What becomes of settings: the agent that follows from them, its session, the log, and the command line."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import structlog

from turnwheel import (
    Agent,
    ChildSpec,
    Compaction,
    Config,
    Hook,
    Limits,
    Loops,
    MemoryStore,
    ModelSpec,
    PermissionMode,
    Policy,
    Price,
    Retries,
    Rule,
    Settings,
    SQLiteStore,
    builtin_tools,
    tool,
)
from turnwheel.apps.cli import main
from turnwheel.effects.errors import ConfigError, UnknownSession
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import (
    AnswerDropped,
    InputReceived,
    Notice,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    TurnEnded,
)
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.codec import decode
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.engine.session.delivery import Delivery
from turnwheel.engine.session.environment import Titles
from turnwheel.settings import (
    CommandHook,
    Debug,
    Preset,
    Prices,
    SessionSettings,
)
from turnwheel.testing.scripted import ScriptedModel, calls, says

Outputs = tuple[int, str, str]
Runs = Callable[..., Outputs]


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of one's own, a store beside it, no key, and no log afterwards."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TURNWHEEL_MODEL", "TURNWHEEL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNWHEEL_STORE", str(tmp_path / "state" / "sessions.db"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield
    structlog.reset_defaults()


def put(text: str, name: str = "turnwheel.toml") -> Path:
    """A file of settings that says *text*."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


@tool
def act() -> str:
    """Act."""
    return "done"


# The agent


def test_every_setting_reaches_the_agent() -> None:
    """As it was told."""
    settings = Settings(
        model="openai:a",
        models=["openai:b"],
        fallback="openai:c",
        base_url="http://here/v1",
        api_key="k",
        betas=["beta-1"],
        requests_at_once=7,
        system="be brief",
        instructions=["NOTES.md"],
        stop=["STOP"],
        rules=[Rule(verdict="deny", tool="bash")],
        agents=[ChildSpec(name="helper")],
        cwd=".",
        directories=[".."],
        limits=Limits(turns=1),
        session_limits=Limits(turns=2),
        policy=Policy(max_parallel=3),
        retries=Retries(failed=4),
        compaction=Compaction(tokens=5),
        loops=Loops.never(),
        session=SessionSettings(titles=Titles.OFF),
        watch=Delivery(buffer=6),
    )
    agent = settings.agent()
    own = {each.name for each in attrs.fields(Settings)} - {each.name for each in attrs.fields(Agent)}
    assert own == {"agents", "agent_name", "disallowed_tools", "preset", "session", "debug", "sources"}
    same = {each.name for each in attrs.fields(Settings)} - own - {"tools", "hooks", "prices", "store"}
    assert {name: getattr(agent, name) for name in same} == {name: getattr(settings, name) for name in same}
    assert (agent.children, agent.titles, agent.store) == (settings.agents, Titles.OFF, None)


def test_what_is_code_is_handed_over_and_wins() -> None:
    """Tools and hooks come besides, a store and a client take the place of what settings say."""
    store, deps = MemoryStore(), object()
    agent = Settings(tools=["ls"], store="s.db").agent(tools=[look], store=store, deps=deps, performers={})
    assert [each.spec.name for each in agent.tools] == ["ls", "look"]
    assert (agent.store, agent.deps) == (store, deps)
    assert not Path("s.db").exists()


@pytest.mark.parametrize(
    ("tools", "disallowed", "offered"),
    [
        ([], [], ["look"]),
        (["read", "l*"], [], ["read", "ls", "look"]),
        (["read", "l*"], ["l*"], ["read"]),
        ([], ["look"], []),
        (["*"], ["*"], []),
    ],
)
def test_tools_are_named_by_globs(tools: list[str], disallowed: list[str], offered: list[str]) -> None:
    """What is disallowed is so for the host's tools as well."""
    agent = Settings(tools=tools, disallowed_tools=disallowed).agent(tools=[look])
    assert [each.spec.name for each in agent.tools] == offered


def test_all_built_in_tools_are_a_star() -> None:
    """Whatever there is."""
    assert Settings(tools=["*"]).agent().tools == builtin_tools()


@pytest.mark.parametrize("key", ["tools", "disallowed_tools"])
def test_a_glob_that_fits_no_tool_is_a_mistake(key: str) -> None:
    """What it was to keep out would be let in."""
    names = ", ".join(each.spec.name for each in builtin_tools())
    told: dict[str, Any] = {key: ["bsah"]}
    with pytest.raises(ConfigError, match=rf"^{key} must be names or globs of tools, which are {names}"):
        Settings(**told).agent()


def test_a_model_that_is_named_twice_is_asked_as_it_stands_among_the_others() -> None:
    """So a variable chooses one of those that a file describes."""
    known = ModelSpec(name="b", thinking=5)
    agent = Settings(model="b", models=["a", known]).agent()
    assert (agent.config.model, [spec.name for spec in agent.config.models]) == (known, ["a"])
    said = ModelSpec(name="b", thinking=9)
    assert Settings(model=said, models=["a", known]).agent().config.model == said


def test_an_agent_may_be_one_of_its_own() -> None:
    """With that one's prompt, model and tools, and the stricter limits; it starts no other."""
    helper = ChildSpec(
        name="helper",
        system="help",
        tools=("act",),
        model=ModelSpec(name="small"),
        limits=Limits(turns=5, usd=1),
    )
    settings = Settings(
        agents=[helper, ChildSpec(name="reader")],
        agent_name="helper",
        system="lead",
        limits=Limits(turns=9, usd="0.5", tokens=7),
        prices=Prices.OWN,
        models=[ModelSpec(name="small", price=Price(input=1, output=1))],
    )
    agent = attrs.evolve(
        settings,
        limits=Limits(turns=9, tokens=7),
        agents=[attrs.evolve(helper, limits=Limits(turns=5)), ChildSpec(name="reader")],
    ).agent(tools=[look, act])
    assert (agent.system, agent.model.name, agent.children) == ("help", "small", ())
    assert [each.spec.name for each in agent.tools] == ["act"]
    assert agent.limits == Limits(turns=5, tokens=7)
    reader = Settings(agents=[ChildSpec(name="reader")], agent_name="reader", system="lead").agent(
        tools=[look, act]
    )
    assert ([each.spec.name for each in reader.tools], reader.system) == (["look"], "lead")
    assert reader.limits == ChildSpec(name="x").limits


def test_an_agent_that_is_not_there_is_a_mistake() -> None:
    """Told with those that are."""
    with pytest.raises(
        ConfigError, match=r"^agent_name must be one of the agents, which are: a, b; got 'c'$"
    ):
        Settings(agents=[ChildSpec(name="a"), ChildSpec(name="b")], agent_name="c").agent()


async def test_hooks_are_programs() -> None:
    """Each has a name of its own, runs where the tools do, and has its say."""
    no = put("#!/bin/sh\necho not today >&2\nexit 2", "no.sh")
    no.chmod(0o700)
    hooks = [CommandHook(at=Hook.PRE_TOOL_USE, command=["./no.sh"], tool=name) for name in ("look", "act")]
    agent = Settings(hooks=hooks).agent(
        tools=[look], performers={CallModel: ScriptedModel(calls(("look", {})), says("ok"))}
    )
    assert [spec.name for spec in agent.config.hooks] == ["no.sh", "no.sh-2"]
    async with agent, agent.session() as session:
        await session.run("go")
        assert "not today" in str([*session.history])


def test_a_hook_that_is_not_there_would_guard_nothing() -> None:
    """So it is a mistake."""
    settings = Settings(hooks=[CommandHook(at="stop", command=["./none.sh"])])
    with pytest.raises(ConfigError, match=r"^hooks: the program './none.sh' of stop is not there"):
        settings.agent()


@pytest.mark.parametrize(("prices", "priced"), [("own", False), ("genai", True)])
def test_prices_are_known_where_they_are_asked_for(prices: str, priced: bool) -> None:  # noqa: FBT001  # a row of a table
    """And a limit in USD can be had then."""
    settings = Settings.load(env={}, model="openai:gpt-4o", prices=prices)
    price = settings.agent().config.model.price
    assert (price is not None) is priced
    limited = attrs.evolve(settings, limits=Limits(usd=1))
    if priced:
        assert limited.agent().config.limits.usd == 1
    else:
        with pytest.raises(ConfigError, match="a limit in USD needs a price for 'openai:gpt-4o'"):
            limited.agent()


async def test_betas_are_asked_for_by_name() -> None:
    """In a header, of Anthropic alone; the key goes with it."""
    headers: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        headers.append(request.headers)
        return httpx.Response(400)

    for model in ("anthropic:x", "openai:x"):
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            settings = Settings(model=model, betas=["one", "two"], api_key="k", retries=Retries(failed=0))
            await settings.agent(client=client).run("go")
    assert [each.get("anthropic-beta") for each in headers] == ["one,two", None]
    assert [each.get("x-api-key") or each.get("authorization") for each in headers] == ["k", "Bearer k"]


# The session


async def kept(settings: Settings) -> list[str]:
    """The sessions that the store of *settings* has."""
    assert settings.store is not None
    store = SQLiteStore(settings.store)
    try:
        return [info.session for info in await store.list()]
    finally:
        await store.close()


async def talk(settings: Settings, prompt: str) -> tuple[str, int]:
    """Say *prompt* in the session that *settings* name; which it was, and how many messages it has now."""
    agent = settings.agent(performers={CallModel: ScriptedModel(says("ok"))})
    async with agent, await settings.open(agent) as session:
        await session.run(prompt)
        said = session.id, len(session.history)
    if agent.store is not None:
        await agent.store.close()
    return said


async def test_a_session_is_named_resumed_and_continued() -> None:
    """In the store that settings name; the newest is the one of this directory."""

    def told(**session: Any) -> Settings:
        return Settings(store="s.db", session=SessionSettings(**session))

    assert await talk(told(id="one"), "a") == ("one", 2)
    assert await talk(told(resume="one"), "b") == ("one", 4)
    Path("elsewhere").mkdir()
    assert await talk(attrs.evolve(told(id="two"), cwd="elsewhere"), "c") == ("two", 2)
    assert await talk(told(latest=True), "d") == ("one", 6)
    new, length = await talk(told(), "e")
    assert new not in {"one", "two"}
    assert length == 2
    with pytest.raises(UnknownSession):
        await talk(told(resume="three"), "f")


async def test_a_session_that_is_not_to_be_kept_is_not() -> None:
    """Nor is there one to go on with."""
    settings = Settings(store="s.db", session=SessionSettings(id="one", persist=False))
    assert await talk(settings, "a") == ("one", 2)
    assert await kept(settings) == []
    with pytest.raises(UnknownSession):
        await talk(attrs.evolve(settings, session=SessionSettings(resume="one", persist=False)), "b")


# Who watches


async def watched(watch: Delivery, *notices: Notice) -> list[Notice]:
    """What is told of *notices*."""

    async def come() -> AsyncGenerator[Notice, None]:
        for notice in notices:
            yield notice

    return [notice async for notice in watch.shown(come())]


TURN = TurnEnded(turn=1, stop=StopReason.END_TURN, usage=Usage())
"""The end of an answer."""


async def test_a_text_comes_whole_where_deltas_are_not_wanted() -> None:
    """Before the end of its answer; what else is said meanwhile is told at once."""
    heard = InputReceived(id="x")
    came: list[Notice] = [
        TextDelta("a"),
        heard,
        TextDelta("b"),
        ReasoningDelta("c"),
        ReasoningDelta("d"),
        TextDelta("e"),
        TURN,
    ]
    whole: list[Notice] = [heard, TextDelta("ab"), ReasoningDelta("cd"), TextDelta("e"), TURN]
    assert await watched(Delivery(include_partial=False), *came) == whole
    assert await watched(Delivery(), *came) == came


async def test_of_an_answer_that_broke_off_nothing_is_told() -> None:
    """What is left when nothing comes any more is."""
    whole = Delivery(include_partial=False)
    assert await watched(whole, TextDelta("a"), AnswerDropped(request="r"), TextDelta("b"), TURN) == [
        TextDelta("b"),
        TURN,
    ]
    assert await watched(whole, TextDelta("a"), TextDelta("b")) == [TextDelta("ab")]


async def test_whoever_watches_a_session_sees_what_settings_say() -> None:
    """Whoever runs it, and whoever looks on from aside with as much room as they have."""
    settings = Settings(watch=Delivery(include_partial=False, buffer=2))
    agent = settings.agent(performers={CallModel: ScriptedModel(says("one two three"))})
    async with agent, agent.session() as session:
        aside = session.subscribe()
        told = [notice async for notice in session.stream("go")]
    assert [notice for notice in told if isinstance(notice, TextDelta)] == [TextDelta("one two three")]
    assert [type(notice) async for notice in aside][-1] is RunEnded
    assert aside.dropped == len(told) - 2


# The log


def lines(path: Path) -> list[dict[str, Any]]:
    """What is in the log."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(("level", "streamed"), [("debug", True), ("info", False)])
async def test_each_step_is_logged_into_a_file(level: str, streamed: bool) -> None:  # noqa: FBT001  # a row of a table
    """As JSON; the pieces of a stream where all is wanted."""
    settings = Settings.load(env={}, debug={"file": "logs/x.log", "level": level})
    await settings.agent(performers={CallModel: ScriptedModel(says("ok"))}).run("go")
    told = lines(Path("logs/x.log"))
    assert {"event", "level", "timestamp", "session", "run", "state"} <= told[0].keys()
    assert told[-1]["state"] == "done"
    assert ("ModelStreamed" in {line["event_type"] for line in told if "event_type" in line}) is streamed


async def test_a_log_goes_to_stderr_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    """And there is none unless told."""
    await Settings().agent(performers={CallModel: ScriptedModel(says("ok"))}).run("go")
    assert capsys.readouterr().err == ""
    await (
        Settings(debug=Debug(level="info")).agent(performers={CallModel: ScriptedModel(says("ok"))}).run("go")
    )
    assert '"event": "step"' in capsys.readouterr().err


async def test_a_host_that_logs_goes_on_as_it_did() -> None:
    """What it has configured holds."""
    heard: list[Any] = []

    def hear(_: object, __: str, line: Any) -> str:
        heard.append(line)
        return "{}"

    structlog.configure(processors=[hear])
    settings = Settings(debug=Debug(file="x.log"))
    await settings.agent(performers={CallModel: ScriptedModel(says("ok"))}).run("go")
    assert heard
    assert not Path("x.log").exists()


async def test_a_log_may_be_moved_away_and_is_not_worth_a_run() -> None:
    """It is there again then; where nothing can be written any more, the run goes on."""
    file = Path("logs/x.log")
    agent = Settings(debug=Debug(file=file)).agent(
        performers={CallModel: ScriptedModel(says("ok"), says("ok"), says("ok"))}
    )
    await agent.run("go")
    file.rename("logs/old.log")
    await agent.run("go")
    assert len(lines(file)) == len(lines(Path("logs/old.log")))
    file.unlink()
    Path("logs").rename("moved")
    assert (await agent.run("go")).text == "ok"


def test_a_log_that_cannot_be_written_is_a_mistake() -> None:
    """Told at once."""
    put("", "file")
    with pytest.raises(
        ConfigError, match=r"^debug.file must be a file that can be written; got 'file/x.log'"
    ):
        Settings(debug=Debug(file="file/x.log")).agent()


# The command line


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str]) -> Runs:
    """The command line in this process: the exit code, and what it wrote."""

    def run(*arguments: str) -> Outputs:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def opened(path: Path | str | None = None) -> dict[str, Config]:
    """How the latest run of each session in the store at *path*, or in ours, was set up."""
    return asyncio.run(_opened(os.environ["TURNWHEEL_STORE"] if path is None else path))


async def _opened(path: Path | str) -> dict[str, Config]:
    store = SQLiteStore(path)
    found: dict[str, Config] = {}
    for info in await store.list():
        entries = [decode_entry(data) for data in await store.load(info.session)]
        found[info.session] = [entry.config for entry in entries if isinstance(entry, RunOpened)][-1]
    await store.close()
    return found


FILE = """
tools = ["read", "ls", "write"]
disallowed_tools = ["write"]
system = "from the file"
instructions = ["NOTES.md"]
rules = ["deny ls", "ask read"]
stop = ["STOP"]
preset = "confirmed"
loops = false
models = ["openai:other"]
fallback = "openai:stand-in-bash"
[limits]
turns = 11
tokens = 22_222
seconds = 33
[session_limits]
turns = 44
[retries]
failed = 5
[compaction]
tokens = 66
[agents.helper]
description = "helps"
"""


def test_a_run_is_set_up_by_the_file_that_is_here(runs: Runs) -> None:
    """All of it."""
    put(FILE)
    assert runs("run", "--stand-in", "--session", "s", "hello")[0] == 0
    config = opened()["s"]
    assert [each.name for each in config.tools] == ["read", "ls", "run_agent"]
    assert (config.system, config.instructions, config.stop) == ("from the file", ("NOTES.md",), ("STOP",))
    assert config.rules == (Rule(verdict="deny", tool="ls"), Rule(verdict="ask", tool="read"))
    assert config.policy == Preset.CONFIRMED.policy
    assert config.limits == Limits(turns=11, tokens=22_222, seconds=33.0)
    assert config.session_limits == Limits(turns=44)
    assert (config.retries.failed, config.compaction.tokens, config.loops) == (5, 66, Loops.never())
    assert [each.name for each in config.models] == ["openai:other", "openai:stand-in-bash"]
    assert (config.fallback, config.children) == (
        "openai:stand-in-bash",
        (ChildSpec(name="helper", description="helps"),),
    )


def test_options_win_over_the_environment_and_that_over_the_file(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limit by limit; but rules of options are besides those of settings."""
    put(FILE)
    monkeypatch.setenv("TURNWHEEL_LIMITS__TURNS", "111")
    monkeypatch.setenv("TURNWHEEL_LIMITS__TOKENS", "222")
    monkeypatch.setenv("TURNWHEEL_SYSTEM", "from the environment")
    monkeypatch.setenv("TURNWHEEL_POLICY__ANSWER_WITHIN", "7")
    more = (
        "--max-turns",
        "1111",
        "--tools",
        "read",
        "--deny",
        "read:path=x",
        "--mode",
        "plan",
        "--fallback",
        "",
    )
    assert runs("run", "--stand-in", "--session", "s", *more, "hello")[0] == 0
    config = opened()["s"]
    assert config.limits == Limits(turns=1111, tokens=222, seconds=33.0)
    assert (config.system, config.fallback) == ("from the environment", "")
    assert [each.name for each in config.tools] == ["read", "run_agent"]
    assert [str(rule) for rule in config.rules] == ["deny read:path=x", "deny ls", "ask read"]
    assert (config.policy.mode, config.policy.answer_within) == (PermissionMode.PLAN, 7.0)


def test_a_file_may_be_named(runs: Runs) -> None:
    """In the place of the one that is here; it is named again to whoever goes on."""
    put("limits.turns = 5")
    put('system = "there"\ncwd = ".."\nlimits.tokens = 70_000', "etc/our.toml")
    ours = ("--settings", "etc/our.toml")
    code, _, err = runs("run", "--stand-in", *ours, "--session", "s", "Write a report to R.md")
    assert code == 3
    assert "--cwd etc/.. --settings etc/our.toml" in err
    config = opened()["s"]
    assert (config.system, config.limits) == ("there", Limits(tokens=70_000))
    assert Path(config.cwd).resolve() == Path.cwd()


def test_a_session_that_is_gone_on_with_keeps_its_model_and_mode(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All else that settings say holds from now on; what nobody speaks of is as it was."""
    first = ("--stand-in", "--max-turns", "9", "--mode", "plan", "--deny", "bash", "--system", "mine")
    assert runs("run", *first, "--session", "s", "hello")[0] == 0
    monkeypatch.setenv("TURNWHEEL_MODEL", "openai:stand-in-bash")
    put(
        'rules = ["deny write", "allow ls"]\nlimits.tokens = 99999\n'
        'policy = { mode = "bypass", max_parallel = 2 }',
        "our.toml",
    )
    assert runs("run", "--resume", "s", "--settings", "our.toml", "more")[0] == 0
    config = opened()["s"]
    assert (config.model.name, config.policy.mode) == ("openai:stand-in", PermissionMode.PLAN)
    assert (config.policy.max_parallel, config.system) == (2, "mine")
    assert config.limits == Limits(turns=9, tokens=99_999)
    assert [str(rule) for rule in config.rules] == ["deny write", "allow ls"]
    assert runs("run", "--session", "t", "hello")[0] == 0
    assert opened()["t"].model.name == "openai:stand-in-bash"


def test_what_settings_say_of_a_model_holds_for_that_one(runs: Runs) -> None:
    """Its price as well; options say it of the model that they name."""
    put('[model]\nname = "openai:stand-in"\nthinking = 5\nprice = { input = 1, output = 2, source = "us" }')
    assert runs("run", "--session", "a", "hello")[0] == 0
    assert runs("run", "--session", "b", "--model", "openai:stand-in-bash", "hello")[0] == 0
    assert runs("run", "--session", "c", "--price", "3,4", "hello")[0] == 0
    a, b, c = (opened()[name].model for name in "abc")
    assert (a.thinking, b.thinking, c.thinking) == (5, None, 5)
    assert (b.price, c.price) == (Price(input=0, output=0), Price(input=3, output=4))
    # The stand-in costs nothing, whatever anybody says; one's own price is for its own name elsewhere.
    assert a.price == Price(input=0, output=0)


def test_a_file_names_the_store(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a variable or an option does; whoever is to answer from elsewhere is told which it is."""
    put('store = "mine.db"')
    ours, ask = ("run", "--stand-in", "--settings", "turnwheel.toml", "--session"), "Write a report to R.md"
    assert runs(*ours, "r", ask)[0] == 3
    assert list(opened()) == ["r"]
    monkeypatch.delenv("TURNWHEEL_STORE")
    code, _, err = runs("run", "--stand-in", "hello")
    assert (code, "a file may only say that was named: store; " in err) == (2, True)
    code, _, err = runs(*ours, "s", ask)
    assert (code, "answer with: turnwheel approve s --store mine.db CALL" in err) == (3, True), err
    assert runs(*ours, "t", "--store", "other.db", ask)[0] == 3
    assert (list(opened("mine.db")), list(opened("other.db"))) == (["s"], ["t"])


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('base_url = "http://there"', "base_url"),
        ('cwd = "/"\ndirectories = ["/"]', "cwd, directories"),
        ('hooks = [{ at = "stop", command = ["touch", "out"] }]', "hooks"),
        ('debug.file = "x.log"', "debug.file"),
        ('rules = ["deny ls", "allow bash"]\npolicy.mode = "bypass"', "policy.mode, rules"),
        ('policy.mode = "accept_edits"', "policy.mode"),
        ('secrets.redact = false\nsecrets.plain = ["token"]', "secrets.redact, secrets.plain"),
        ('secrets.redact = true\nsecrets.words = ["pin"]', ""),
        ('rules = ["deny ls", "ask read"]\npolicy.mode = "plan"', ""),
    ],
)
def test_a_file_that_merely_lies_here_is_not_trusted_with_all(text: str, keys: str, runs: Runs) -> None:
    """It may be anybody's; one that was named says what it likes, and so does whoever set a variable."""
    put(text)
    code, _, err = runs("run", "--stand-in", "--session", "s", "hello")
    told = f"turnwheel.toml lies here and says what a file may only say that was named: {keys}; look at it"
    assert (code, told in err) == ((2, True) if keys else (0, False)), err
    assert not (keys and Path("out").exists())
    if "base_url" not in text:
        assert runs("run", "--stand-in", "--settings", "turnwheel.toml", "--session", "t", "hello")[0] == 0


def test_settings_name_the_session(runs: Runs) -> None:
    """Unless an option does; the newest is a new one where there is none."""
    put("session.latest = true")
    assert runs("run", "--stand-in", "--yes", "hello")[0] == 0
    (name,) = opened()
    assert runs("run", "--stand-in", "--yes", "again")[0] == 0
    assert list(opened()) == [name]
    put('session.id = "s"')
    assert runs("run", "--stand-in", "hello")[0] == 0
    code, _, err = runs("run", "--stand-in", "again")
    assert (code, "session 's' is there already" in err) == (2, True)
    put(f'session.resume = "{name}"')
    assert runs("run", "--stand-in", "--yes", "again")[0] == 0
    assert runs("run", "--stand-in", "--session", "t", "hello")[0] == 0
    assert set(opened()) == {name, "s", "t"}


def test_nothing_is_kept_of_a_session_that_is_not_to_be(runs: Runs) -> None:
    """What would be asked about is denied then: nobody could answer from elsewhere."""
    put("session.persist = false")
    code, _, err = runs("run", "--stand-in", "Write a report to R.md")
    assert (code, err) == (0, "")
    assert not Path(os.environ["TURNWHEEL_STORE"]).exists()
    assert runs("run", "--resume", "s", "more") == (
        2,
        "",
        "turnwheel: session.persist is off, so there is no session to go on with; turn it on\n",
    )


def test_programs_read_texts_whole_where_they_want_to(runs: Runs) -> None:
    """One line for each."""

    def texts() -> list[str]:
        code, out, _ = runs("run", "--stand-in", "--json", "hello")
        told = [decode(line.encode(), Notice) for line in out.splitlines()]
        assert (code, type(told[0]), type(told[-1])) == (0, RunStarted, RunEnded)
        return [notice.text for notice in told if isinstance(notice, TextDelta)]

    bits = texts()
    put("watch.include_partial = false")
    assert len(bits) > 1
    assert texts() == ["".join(bits)]


def test_an_agent_of_the_file_is_run_by_its_name(runs: Runs) -> None:
    """With its prompt and its tools."""
    put('agent_name = "reader"\n[agents.reader]\nsystem = "read on"\ntools = ["read"]')
    assert runs("run", "--stand-in", "--session", "s", "hello")[0] == 0
    config = opened()["s"]
    assert (config.system, [each.name for each in config.tools], config.children) == ("read on", ["read"], ())


def test_hooks_of_the_file_come_with_those_of_options(runs: Runs) -> None:
    """Until one goes on without any; and they do for those that a session had."""
    put("#!/bin/sh\nexit 0", "etc/ok.sh").chmod(0o700)
    put('hooks = [{ at = "stop", command = ["./ok.sh"] }]', "etc/our.toml")
    ours = ("--settings", "etc/our.toml")
    assert runs("run", "--stand-in", *ours, "--hook", "stop=true", "--session", "s", "hello")[0] == 0
    assert [hook.name for hook in opened()["s"].hooks] == ["ok.sh", "true"]
    assert runs("run", "--resume", "s", "more")[0] == 2
    assert runs("run", "--resume", "s", *ours, "more")[0] == 0
    assert runs("run", "--resume", "s", *ours, "--no-hooks", "more")[0] == 0
    assert opened()["s"].hooks == ()


def test_mistakes_in_settings_are_told_before_anything_is_done(runs: Runs) -> None:
    """By every command that reads them."""
    put("limits.turn = 1\nstop = 3")
    told = (
        "turnwheel: 2 settings are wrong:\n"
        "  turnwheel.toml: stop must be a list of texts; got 3\n"
        "  turnwheel.toml: limits.turn is not known: did you mean limits.turns?\n"
    )
    assert runs("run", "--stand-in", "hello") == (2, "", told)
    assert runs("settings") == (2, "", told)
    assert not Path(os.environ["TURNWHEEL_STORE"]).exists()


# What is shown


def test_settings_are_shown_with_where_they_come_from(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the defaults; what is secret is hidden."""
    put('api_key = "sk-1"\nbase_url = "http://me:sk-2@here/v1"\npreset = "steered"\nlimits.turns = 5')
    monkeypatch.setenv("TURNWHEEL_LIMITS__USD", "1.50")
    monkeypatch.setenv("TURNWHEEL_MODEL__PRICE", "{ input = 1, output = 2 }")
    code, out, err = runs("settings", "--told")
    store = json.dumps(os.environ["TURNWHEEL_STORE"])
    rows = [
        ("model.price.input = 1", "TURNWHEEL_MODEL__PRICE"),
        ("model.price.output = 2", "TURNWHEEL_MODEL__PRICE"),
        ('base_url = "http://me:(hidden)@here/v1"', "turnwheel.toml"),
        ("# api_key", "turnwheel.toml, (hidden)"),
        ("limits.turns = 5", "turnwheel.toml"),
        ("limits.usd = 1.50", "TURNWHEEL_LIMITS__USD"),
        ('preset = "steered"', "turnwheel.toml"),
        ('policy.on_denial = "go_on"', "preset steered"),
        (f"store = {store}", "TURNWHEEL_STORE"),
    ]
    assert (code, err) == (0, "")
    assert [tuple(part.strip() for part in line.split("  # ")) for line in out.splitlines()] == rows


def test_what_is_shown_is_a_file_of_settings(runs: Runs) -> None:
    """From which the same settings follow, whatever they are."""
    put(
        f"""
model = {{ name = "openai:x", window = 5000, price = {{ input = 0.10, output = 2 }} }}
{FILE}
tools = ["read"]
model = "openai:y"
limits = {{ turns = 3, usd = "none" }}
[[hooks]]
at = "pre_tool_use"
command = ["true", "a b"]
where = {{ "odd key" = "src/*" }}
timeout = "none"
""",
        "etc/our.toml",
    )
    code, out, err = runs("settings", "--settings", "etc/our.toml")
    assert (code, err) == (0, "")
    shown = Settings.load(put(out, "shown.toml"), {})
    code, again, _ = runs("settings", "--settings", "shown.toml")
    assert code == 0
    assert [line.partition("  # ")[0].rstrip() for line in again.splitlines()] == [
        line.partition("  # ")[0].rstrip() for line in out.splitlines()
    ]
    told = Settings.load("etc/our.toml", {})
    same = {each.name for each in attrs.fields(Settings)} - {"store", "sources", "debug"}
    assert {name: getattr(shown, name) for name in same} == {name: getattr(told, name) for name in same}


def test_settings_are_shown_to_programs(runs: Runs) -> None:
    """A line of JSON for each; what a run here would have by default is among them."""
    code, out, _ = runs("settings", "--json")
    rows = {row["key"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    assert rows["model.name"] == {"key": "model.name", "value": '"openai:stand-in"', "source": "default"}
    assert rows["tools"]["value"] == json.dumps([each.spec.name for each in builtin_tools()])
    assert rows["base_url"]["value"] is None
