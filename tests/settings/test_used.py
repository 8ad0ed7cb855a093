"""What becomes of settings: the agent that follows from them, its session, and the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog

from turnwheel import (
    Agent,
    ChildSpec,
    Compaction,
    Hook,
    Limits,
    Loops,
    MemoryStore,
    ModelSpec,
    Policy,
    Price,
    Retries,
    Rule,
    Settings,
    SQLiteStore,
    builtin_tools,
    tool,
)
from turnwheel.effects import errors, messages, notices, requests, usage
from turnwheel.engine.session.completed_texts import Delivery
from turnwheel.engine.session.environment import Titles
from turnwheel.performers import OpenTelemetry, RateLimit
from turnwheel.settings import CommandHook, Debug, SessionSettings, Telemetry
from turnwheel.testing.scripted import ScriptedModel, calls, says


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TURNWHEEL_MODEL", "TURNWHEEL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def put(text: str, name: str = "turnwheel.toml") -> Path:
    path = Path(name)
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
    settings = Settings(
        model="openai:a",
        models=["openai:b"],
        fallback="openai:c",
        base_url="http://here/v1",
        api_key="k",
        betas=["beta-1"],
        requests_at_once=7,
        rates=[RateLimit(model="openai:a", requests=8)],
        system="be brief",
        instructions=["NOTES.md"],
        stop=["STOP"],
        rules=[Rule(verdict="deny", tool="run_agent")],
        # An iterator is read once, and what it gave is there each time.
        agents=iter([ChildSpec(name="helper")]),
        cwd=".",
        directories=iter([".."]),
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
        (["*"], [], [*[each.spec.name for each in builtin_tools()], "look"]),
    ],
)
def test_tools_are_named_by_globs(tools: list[str], disallowed: list[str], offered: list[str]) -> None:
    agent = Settings(tools=tools, disallowed_tools=disallowed).agent(tools=[look])
    assert [each.spec.name for each in agent.tools] == offered


def test_a_model_that_is_named_twice_is_asked_as_it_stands_among_the_others() -> None:
    known = ModelSpec(name="b", thinking=5)
    agent = Settings(model="b", models=["a", known]).agent()
    assert (agent.config.model, [spec.name for spec in agent.config.models]) == (known, ["a"])
    said = ModelSpec(name="b", thinking=9)
    assert Settings(model=said, models=["a", known]).agent().config.model == said


def test_an_agent_may_be_one_of_its_own_under_the_stricter_limits() -> None:
    small = ModelSpec(name="small", price=Price(input=1, output=1))
    helper = ChildSpec(
        name="helper", system="help", tools=("act",), model=small, limits=Limits(turns=5, usd=1)
    )
    settings = Settings(
        agents=[helper, ChildSpec(name="reader")],
        agent_name="helper",
        system="lead",
        limits=Limits(turns=9, usd="0.5", tokens=7),
    )
    agent = settings.agent(tools=[look, act])
    assert (agent.system, agent.model.name, agent.children) == ("help", "small", ())
    assert [each.spec.name for each in agent.tools] == ["act"]
    assert agent.limits == Limits(turns=5, tokens=7, usd="0.5")
    reader = attrs.evolve(settings, agent_name="reader", limits=Limits()).agent(tools=[look, act])
    assert ([each.spec.name for each in reader.tools], reader.system) == (["look"], "lead")
    assert reader.limits == ChildSpec(name="x").limits


NO_BSAH = f"no tool 'bsah'; did you mean 'bash'? there are: {', '.join(t.spec.name for t in builtin_tools())}"


@pytest.mark.parametrize(
    ("given", "says_what"),
    [
        ({"tools": ["bsah"]}, f"tools: {NO_BSAH}"),
        ({"disallowed_tools": ["bsah"]}, f"disallowed_tools: {NO_BSAH}"),
        (
            {"tools": ["bash"], "rules": [Rule(verdict="deny", tool="bsah")]},
            f"rule 'deny bsah': {NO_BSAH}"[:44],
        ),
        (
            {"agents": [ChildSpec(name="a"), ChildSpec(name="b")], "agent_name": "c"},
            "agent_name must be one of the agents, which are: a, b; got 'c'",
        ),
        (
            {"hooks": [CommandHook(at="stop", command=["./none.sh"])]},
            "hooks: the program './none.sh' of stop is not there",
        ),
        (
            {"debug": Debug(file=Path("x.log/x.log"))},
            "debug.file must be a file that can be written; got 'x.log/x.log'",
        ),
    ],
)
def test_what_fits_nothing_is_a_mistake_when_the_agent_is_made(given: dict[str, Any], says_what: str) -> None:
    put("", "x.log")
    with pytest.raises(errors.ConfigError) as raised:
        Settings(**given).agent()
    assert str(raised.value).startswith(says_what)


async def test_hooks_are_programs() -> None:
    no = put("#!/bin/sh\necho not today >&2\nexit 2", "no.sh")
    no.chmod(0o700)
    hooks = [CommandHook(at=Hook.PRE_TOOL_USE, command=["./no.sh"], tool=name) for name in ("look", "act")]
    agent = Settings(hooks=hooks).agent(
        tools=[look, act], performers={requests.CallModel: ScriptedModel(calls(("look", {})), says("ok"))}
    )
    assert [spec.name for spec in agent.config.hooks] == ["no.sh", "no.sh-2"]
    async with agent, agent.session() as session:
        await session.run("go")
        assert "not today" in str([*session.history])


@pytest.mark.parametrize(("prices", "priced"), [("own", False), ("genai", True)])
def test_prices_are_known_where_they_are_asked_for(prices: str, priced: bool) -> None:  # noqa: FBT001  # a row of a table
    settings = Settings.load(env={}, model="openai:gpt-4o", prices=prices)
    price = settings.agent().config.model.price
    assert (price is not None) is priced
    limited = attrs.evolve(settings, limits=Limits(usd=1))
    if priced:
        assert limited.agent().config.limits.usd == 1
    else:
        with pytest.raises(errors.ConfigError, match="a limit in USD needs a price for 'openai:gpt-4o'"):
            limited.agent()


# The session


async def talk(settings: Settings, prompt: str) -> tuple[str, int, int]:
    """Say *prompt* in the session of *settings*: its id, its messages, and how many sessions are kept."""
    agent = settings.agent(performers={requests.CallModel: ScriptedModel(says("ok"))})
    async with agent, await settings.open(agent) as session:
        await session.run(prompt)
        said = session.id, len(session.history)
    if agent.store is not None:
        await agent.store.close()
    assert isinstance(settings.store, Path)
    store = SQLiteStore(settings.store)
    kept = len(await store.list())
    await store.close()
    return *said, kept


async def test_the_newest_session_is_that_of_this_directory_and_one_that_is_not_kept_is_none() -> None:
    def given(**session: Any) -> Settings:
        return Settings(store="s.db", session=SessionSettings(**session))

    assert await talk(given(id="none", persist=False), "a") == ("none", 2, 0)
    assert await talk(given(id="one"), "a") == ("one", 2, 1)
    Path("elsewhere").mkdir()
    assert await talk(attrs.evolve(given(id="two"), cwd="elsewhere"), "c") == ("two", 2, 2)
    assert await talk(given(latest=True), "d") == ("one", 4, 2)
    new, *rest = await talk(given(), "e")
    assert (new in {"one", "two"}, rest) == (False, [2, 3])
    with pytest.raises(errors.UnknownSession):
        await talk(given(resume="none", persist=False), "b")


# Who watches


HEARD = notices.InputReceived(id="x", at=0.0)
SAID = messages.Message(role=messages.Role.ASSISTANT, parts=())
TURN = notices.TurnEnded(
    request="r", turn=1, message=SAID, stop=messages.StopReason.END_TURN, usage=usage.Usage(), at=0.0
)
A, B, DROPPED = (
    notices.TextDelta("a", at=0.0),
    notices.TextDelta("b", at=0.0),
    notices.AnswerDropped(request="r", at=0.0),
)
C, D = notices.ReasoningDelta("c", at=0.0), notices.ReasoningDelta("d", at=0.0)


@pytest.mark.parametrize(
    ("came", "whole"),
    [
        (
            [A, HEARD, B, C, D, A, TURN],
            [HEARD, notices.TextDelta("ab", at=0.0), notices.ReasoningDelta("cd", at=0.0), A, TURN],
        ),
        ([A, DROPPED, B, TURN], [B, TURN]),
        ([notices.CallDelta(index=0, arguments="{", at=0.0), HEARD], [HEARD]),
        ([A, B], [notices.TextDelta("ab", at=0.0)]),
    ],
)
def test_a_text_comes_whole_where_deltas_are_not_wanted(
    came: list[notices.Notice], whole: list[notices.Notice]
) -> None:
    for steps in ([[notice] for notice in came], [came]):
        made = Delivery(include_partial=False).filter(None, lambda: True)
        assert made is not None
        assert [each for step in steps for each in made.filtered(step)] + [*made.held_back()] == whole


async def test_a_subscriber_sees_what_settings_say_with_as_much_room_as_there_is() -> None:
    agent = Settings(watch=Delivery(include_partial=False, buffer=2)).agent(
        performers={requests.CallModel: ScriptedModel(says("one two three"))}
    )
    async with agent, agent.session() as session:
        aside = session.subscribe()
        streamed = [notice async for notice in session.stream("go")]
    texts = [notice.text for notice in streamed if isinstance(notice, notices.TextDelta)]
    assert texts == ["one two three"]
    assert [type(notice) async for notice in aside][-1] is notices.RunEnded
    # The input, the answer and the end come in any case.
    assert aside.dropped == len(streamed) - 3


# Telemetry


@pytest.mark.parametrize(
    ("file", "env", "telemetry"),
    [
        ("", {}, "None"),
        ("[telemetry]", {}, "OpenTelemetry(content=False)"),
        ("[telemetry]\ncontent = true", {}, "OpenTelemetry(content=True)"),
        ("telemetry = true", {}, "OpenTelemetry(content=False)"),
        ("[telemetry]", {"TURNWHEEL_TELEMETRY": "false"}, "None"),
        ("", {"TURNWHEEL_TELEMETRY": "true"}, "OpenTelemetry(content=False)"),
        ("", {"TURNWHEEL_TELEMETRY__CONTENT": "yes"}, "OpenTelemetry(content=True)"),
    ],
)
def test_telemetry_is_on_where_it_is_told(file: str, env: dict[str, str], telemetry: str) -> None:
    assert repr(Settings.load(put(file), env).agent().telemetry) == telemetry


def test_telemetry_of_the_host_replaces_that_of_the_settings() -> None:
    own = OpenTelemetry()
    assert Settings(telemetry=Telemetry()).agent(telemetry=own).telemetry is own


def test_a_package_that_telemetry_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwheel.performers.telemetry.otel.find_spec", lambda _: None)
    with pytest.raises(errors.ConfigError, match=r"pip install 'turnwheel\[otel\]'"):
        Settings(telemetry=Telemetry()).agent()


# The log


async def logged(debug: Debug) -> None:
    await Settings(debug=debug).agent(performers={requests.CallModel: ScriptedModel(says("ok"))}).run("go")


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


@pytest.mark.parametrize("level", ["debug", "info"])
async def test_pieces_of_a_stream_are_logged_where_all_is_wanted(level: str) -> None:
    await logged(Debug(file=Path("logs/x.log"), level=level))
    log = lines("logs/x.log")
    assert {"event", "level", "timestamp", "session", "run", "state"} <= log[0].keys()
    assert log[-1]["state"] == "done"
    assert ("ModelStreamed" in {line.get("event_type") for line in log}) is (level == "debug")


async def test_a_log_goes_to_stderr_where_it_has_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    await logged(Debug())
    assert capsys.readouterr().err == ""
    await logged(Debug(level="info"))
    assert '"event": "step"' in capsys.readouterr().err


async def test_a_host_that_logs_goes_on_as_it_did() -> None:
    heard: list[Any] = []

    def hear(_: object, __: str, line: Any) -> str:
        heard.append(line)
        return "{}"

    structlog.configure(processors=[hear])
    await logged(Debug(file=Path("x.log")))
    assert heard
    assert not Path("x.log").exists()


async def test_a_log_may_be_moved_away_and_is_not_worth_a_run() -> None:
    agent = Settings(debug=Debug(file=Path("logs/x.log"))).agent(
        performers={requests.CallModel: ScriptedModel(says("ok"), says("ok"), says("ok"))}
    )
    await agent.run("go")
    Path("logs/x.log").rename("logs/old.log")
    await agent.run("go")
    assert len(lines("logs/x.log")) == len(lines("logs/old.log"))
    Path("logs/x.log").unlink()
    Path("logs").rename("moved")
    assert (await agent.run("go")).text == "ok"
