"""What an agent is told as data, where it is told, and what is said to a mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from behaviour.conftest import Stage

from turnwheel import Agent, Compaction, DoneReason, Limits, Loops, Policy, Retries, Settings
from turnwheel.effects.errors import ConfigError, UnknownSession
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import TextDelta
from turnwheel.effects.requests import CallModel
from turnwheel.engine.session.completed_texts import Delivery
from turnwheel.settings.keys import ITEM, NOT_DATA, OTHER_NAMES, keys, variable
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, fails, says

FILE = """\
system = "From the file."
tools = ["read", "ls"]

[model]
name = "openai:gpt-4o"
window = 9_000

[limits]
turns = 5
tokens = 1_000
"""
NOTHING: dict[str, str] = {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "turnwheel.toml"
    path.write_text(FILE, "utf-8")
    return path


def agent_of(settings: Settings, stage: Stage, *replies: Reply, **host: Any) -> Agent:
    stage.model = ScriptedModel(*replies)
    return settings.agent(performers={CallModel: stage.model}, clock=stage.clock, **host)


# Where they come from


@pytest.mark.behaviour("settings-come-from-three-places")
def test_what_is_told_nearer_wins(file: Path) -> None:
    env = {"TURNWHEEL_LIMITS__TURNS": "4", "TURNWHEEL_LIMITS__SECONDS": "60", "TURNWHEEL_SYSTEM": "From env."}
    settings = Settings.load(file, env, system="From Python.", limits={"seconds": 30})

    assert settings.system == "From Python."
    assert settings.limits == Limits(turns=4, tokens=1_000, seconds=30.0)
    assert (settings.model.name, settings.model.window) == ("openai:gpt-4o", 9_000)
    assert (settings.tools, settings.retries) == (("read", "ls"), Retries())
    assert Settings.load(file, env).system == "From env."


@pytest.mark.behaviour("settings-come-from-three-places")
def test_a_file_is_read_where_it_is_expected(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert Settings.load(env=NOTHING).system == "From the file."
    monkeypatch.chdir(Path(file.parent.root))
    assert Settings.load(env=NOTHING).system == ""
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        Settings.load("nowhere.toml", NOTHING)


@pytest.mark.behaviour("settings-come-from-three-places")
async def test_what_was_told_holds_for_a_run(stage: Stage, file: Path) -> None:
    settings = Settings.load(file, {"TURNWHEEL_LIMITS__TURNS": "1"}, stop=["END"], cwd=file.parent)
    agent = agent_of(settings, stage, calls(("read", {"path": "turnwheel.toml"})))
    result = await agent.run("go")

    assert result.reason is DoneReason.MAX_TURNS
    [request] = stage.model.requests
    assert (request.model, request.system, request.tools) == (
        *("openai:gpt-4o", "From the file."),
        ("read", "ls"),
    )
    assert (agent.config.stop, agent.model.window) == (("END",), 9_000)


# Mistakes


@pytest.mark.behaviour("a-wrong-setting-is-told")
@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"limits": {"turns": 0}}, ["limits.turns", "0", "a whole number above 0", "none"]),
        ({"limits": {"usd": "a lot"}}, ["limits.usd", "'a lot'", "an amount in USD above 0"]),
        ({"policy": {"mode": "yolo"}}, ["policy.mode", "'yolo'", "plan", "bypass"]),
        ({"policy": {"mode": "accept-edits"}}, ["got 'accept-edits' (did you mean 'accept_edits'?)"]),
        ({"loops": {"stop": "8"}}, ["loops.stop", "'8'", "a whole number"]),
        ({"limits": {"turn": 3}}, ["limits.turn", "did you mean limits.turns"]),
        ({"max_turns": 3}, ["max_turns", "it is limits.turns here"]),
        ({"temperature": 1}, ["did you mean model.temperature?"]),
        ({"command": "x"}, ["command is not known: there are model, "]),
        ({"tool": {"turnwheel": {"system": "x"}}}, ["tool is not known", "without [tool.turnwheel]"]),
        ({"session": {"titles": "on"}}, ["session.titles", "'on'", "off", "inline", "model"]),
        ({"model": {"name": ""}}, ["model.name", "not empty"]),
        ({"can_use_tool": "x"}, ["can_use_tool", "approver"]),
    ],
)
def test_a_mistake_is_told_with_its_key_its_value_and_what_is_accepted(
    told: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.load(env=NOTHING, **told)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.behaviour("a-wrong-setting-is-told")
@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("TURNWHEEL_MODLE", "did you mean TURNWHEEL_MODEL?"),
        ("TURNWHEEL_LIMITS_TURNS", "did you mean TURNWHEEL_LIMITS__TURNS?"),
        ("TURNWHEEL_MAX_TURNS", "it is TURNWHEEL_LIMITS__TURNS here"),
    ],
)
def test_a_misspelt_variable_is_told_as_the_variable_that_was_meant(variable: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.load(env={variable: "3"})
    assert str(raised.value) == f"{variable} is not known: {hint}"


@pytest.mark.behaviour("a-wrong-setting-is-told")
def test_all_mistakes_are_told_at_once_each_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('tools = "read"\n[limits]\ntokens = -1\n', "utf-8")
    env = {"TURNWHEEL_LIMITS__USD": "much", "TURNWHEEL_LIMITS__TURN": "3"}
    with pytest.raises(ConfigError) as raised:
        Settings.load(path, env, loops={"stop": 0})
    said = str(raised.value)
    for place in (
        "agent.toml: limits.tokens",
        "agent.toml: tools",
        "TURNWHEEL_LIMITS__USD",
        "argument loops.stop",
    ):
        assert place in said
    assert "did you mean TURNWHEEL_LIMITS__TURNS?" in said


@pytest.mark.behaviour("a-wrong-setting-is-told")
@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"tools": ["reed"]}, ["tools", "'reed'", "read"]),
        ({"tools": ["read"], "disallowed_tools": ["write_*"]}, ["disallowed_tools", "'write_*'"]),
        ({"agent_name": "ghost"}, ["agent_name", "'ghost'"]),
        ({"limits": {"usd": 1}}, ["USD", "price"]),
        ({"session": {"resume": "a", "latest": True}}, ["resume", "latest"]),
        ({"hooks": [{"at": "stop", "command": ["no-such-program"]}]}, ["hooks", "no-such-program"]),
    ],
)
def test_settings_that_do_not_fit_together_or_fit_nothing_are_refused(
    told: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.load(env=NOTHING, **told).agent()
    for word in words:
        assert word in str(raised.value)


@pytest.mark.behaviour("a-wrong-setting-is-told")
def test_a_secret_is_never_shown() -> None:
    settings = Settings.load(env={"TURNWHEEL_API_KEY": "sk-secret"}, base_url="http://me:sk-secret@there/v1")
    assert settings.api_key == "sk-secret"
    assert "base_url='http://there/v1'" in repr(settings)
    assert "sk-secret" not in repr(settings)
    with pytest.raises(ConfigError) as raised:
        Settings.load(env=NOTHING, api_key=["sk-secret"], limits={"turns": 0})
    assert "sk-secret" not in str(raised.value)


# What there is


OTHERS = (
    *("model", "fallback_model", "system_prompt", "max_turns", "max_budget_usd", "max_thinking_tokens"),
    *("tools", "disallowed_tools", "allowed_tools", "agent_name", "agents", "cwd", "session_id", "resume"),
    *("continue", "persist_session", "permission_mode", "can_use_tool", "hooks", "mcp_servers"),
    *("include_partial", "additional_dirs", "setting_sources", "betas", "debug", "debug_file", "context"),
    *("max_session_tokens", "auto_save", "session_dir", "max_retries", "coalescing_window"),
)
"""What settings of other agents are called."""


@pytest.mark.behaviour("every-setting-has-a-place")
@pytest.mark.parametrize("name", OTHERS)
def test_what_can_be_set_elsewhere_can_be_set_here_or_is_said_why_not(name: str) -> None:
    known = [str(key) for key in keys(Settings)]
    place = OTHER_NAMES.get(name, name)
    here = [key for key in known if key == place or key.startswith(f"{place}.") or key.endswith(f".{name}")]
    assert here or name in NOT_DATA


@pytest.mark.behaviour("every-setting-has-a-place")
def test_each_setting_has_a_variable_of_its_own() -> None:
    variables = [variable(key.path) for key in keys(Settings) if ITEM not in key.path]
    assert len(set(variables)) == len(variables)
    assert {"TURNWHEEL_LIMITS__USD", "TURNWHEEL_COMPACTION__KEEP", "TURNWHEEL_LOOPS__STOP"} <= {*variables}


@pytest.mark.behaviour("every-setting-has-a-place")
@pytest.mark.parametrize("preset", ["sdk", "steered", "confirmed", "singleton"])
def test_a_preset_is_a_whole_policy_over_which_single_settings_are_laid(preset: str) -> None:
    whole = Settings.load(env=NOTHING, preset=preset).policy
    assert whole != Policy() or preset == "sdk"
    one = Settings.load(env=NOTHING, preset=preset, policy={"compact_at": 0.5}).policy
    assert (one.compact_at, one.on_denial, one.steering) == (0.5, whole.on_denial, whole.steering)
    retries = Settings.load(env=NOTHING, preset=preset).retries
    assert retries == (Retries(failed=0, longest=None) if preset == "singleton" else Retries())


@pytest.mark.behaviour("every-setting-has-a-place")
def test_what_keeps_a_long_run_going_can_be_set() -> None:
    told = {
        "TURNWHEEL_COMPACTION__CLEAR_OVER": "none",
        "TURNWHEEL_LOOPS__STOP": "12",
        "TURNWHEEL_RETRIES__OVERLOADED": "2",
    }
    settings = Settings.load(env=told)
    assert settings.compaction == Compaction(clear_over=None)
    assert (settings.loops, settings.retries) == (Loops(stop=12), Retries(overloaded=2))


@pytest.mark.behaviour("every-setting-has-a-place")
async def test_an_agent_can_be_one_of_those_that_are_described(stage: Stage) -> None:
    scout = {"description": "Looks.", "system": "You look.", "tools": ["read"], "limits": {"turns": 2}}
    told: dict[str, Any] = {"tools": ["read", "ls", "write"], "agents": {"scout": scout}}
    whole = agent_of(Settings.load(env=NOTHING, **told), stage, says("hello"))
    await whole.run("go")
    assert {*stage.model.requests[0].tools} == {"read", "ls", "write", "run_agent"}

    one = agent_of(Settings.load(env=NOTHING, agent_name="scout", **told), stage, says("hello"))
    await one.run("go")
    [request] = stage.model.requests
    assert (request.tools, request.system, one.limits.turns) == (("read",), "You look.", 2)


@pytest.mark.behaviour("every-setting-has-a-place")
async def test_what_a_provider_calls_beta_is_asked_for_by_name() -> None:
    seen: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(400, stream=httpx.ByteStream(b"{}"))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        told: dict[str, Any] = {"env": NOTHING, "betas": ["one", "two"], "retries": {"failed": 0}}
        for model, url in (("anthropic:claude", None), ("openai:claude", "http://proxy")):
            settings = Settings.load(model=model, base_url=url, api_key="k", **told)
            await settings.agent(client=client).run("go")
        with pytest.raises(ConfigError, match="betas: 'openai:gpt' has none"):
            Settings.load(model="openai:gpt", **told).agent(client=client)
    assert [each.get("anthropic-beta", "").replace(" ", "") for each in seen] == ["one,two", "one,two"]
    assert [each.get("x-api-key") or each.get("authorization") for each in seen] == ["k", "Bearer k"]


@pytest.mark.behaviour("every-setting-has-a-place")
async def test_other_directories_can_be_opened_to_the_tools(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.txt").write_text("found", "utf-8")
    told: dict[str, Any] = {"cwd": tmp_path / "here", "tools": ["read"]}
    wish = calls(("read", {"path": str(tmp_path / "there" / "a.txt")}))
    for directories, found in (([], False), ([tmp_path / "there"], True)):
        settings = Settings.load(env=NOTHING, directories=directories, **told)
        await agent_of(settings, stage, wish, says("done")).run("go")
        assert ("found" in stage.shown(2)[-1]) is found


# Which conversation


@pytest.mark.behaviour("settings-name-a-session")
async def test_a_session_is_named_found_again_or_the_newest_one_of_the_place(
    stage: Stage, tmp_path: Path
) -> None:
    told: dict[str, Any] = {"store": tmp_path / "agent.db", "cwd": tmp_path}

    async def said(*replies: Reply, **session: Any) -> tuple[str, list[str]]:
        settings = Settings.load(env=NOTHING, session=session, **told)
        agent = agent_of(settings, stage, *replies)
        async with await settings.open(agent) as opened:
            await opened.run("go")
            name, shown = opened.id, stage.said(opened)
        if agent.store is not None:
            await agent.store.close()
        return name, shown

    assert await said(says("A"), id="mine") == ("mine", ["user: go", "assistant: A"])
    name, shown = await said(says("B"), resume="mine")
    assert (name, shown[1], shown[3]) == ("mine", "assistant: A", "assistant: B")
    await said(says("C"), id="newer")
    assert (await said(says("D"), latest=True))[0] == "newer"
    with pytest.raises(UnknownSession):
        await said(says("never"), resume="ghost")
    name, _ = await said(says("E"), persist=False)
    with pytest.raises(UnknownSession):
        await said(says("never"), resume=name)


# What those see who look on


@pytest.mark.behaviour("texts-may-come-whole")
@pytest.mark.parametrize(
    ("reply", "texts"),
    [(says("one two three"), ["one two three"]), (fails(Failure.CUT, after="half"), [])],
)
async def test_who_wants_no_bits_gets_each_text_whole(stage: Stage, reply: Reply, texts: list[str]) -> None:
    await stage.play(stage.session(reply, watch=Delivery(include_partial=False)))
    assert [notice.text for notice in stage.seen(TextDelta)] == texts


@pytest.mark.behaviour("a-log-may-be-kept")
async def test_each_step_can_be_logged_to_a_file(stage: Stage, tmp_path: Path) -> None:
    settings = Settings.load(env=NOTHING, api_key="sk-secret", debug={"file": tmp_path / "logs" / "a.log"})
    await agent_of(settings, stage, says("hello")).run("go")
    text = (tmp_path / "logs" / "a.log").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event_type"] for line in lines] == [
        "RunOpened",
        "ModelStreamed",
        "ModelFinished",
    ]
    assert all({"session", "run", "state", "timestamp"} <= line.keys() for line in lines)
    assert not re.search("sk-secret", text)
