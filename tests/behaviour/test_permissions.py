"""Which calls run, which are asked about and which are denied, and on what ground."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turnwheel import DoneReason, PermissionMode, Policy, Rule, SetMode, tool
from turnwheel.effects.config import Approval, SideEffect
from turnwheel.effects.notices import (
    ApprovalRequested,
    CallJudged,
    CallSettled,
    SettingChanged,
    ToolOutput,
    ToolStarted,
)
from turnwheel.effects.permissions import Verdict
from turnwheel.testing.scripted import calls, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage

RUNS, ASKED, DENIED = "runs", "asked", "denied"


async def becomes(stage: Stage, name: str, arguments: dict[str, object], **settings: object) -> str:
    """What becomes of one call of *name* in an agent with *settings*."""
    session = stage.session(calls((name, arguments)), says("done"), **settings)
    result = await stage.play(session)
    if result.waiting:
        assert stage.ran == []
        return ASKED
    assert result.reason is DoneReason.END_TURN
    return {"ok": RUNS, "denied": DENIED}[stage.outcomes(session)[0].partition(": ")[2]]


@pytest.mark.behaviour("who-is-asked")
@pytest.mark.parametrize(
    ("mode", "read", "edit", "unsafe"),
    [
        ("default", RUNS, ASKED, ASKED),
        ("accept_edits", RUNS, RUNS, ASKED),
        ("plan", RUNS, DENIED, DENIED),
        ("dont_ask", RUNS, DENIED, DENIED),
        ("bypass", RUNS, RUNS, RUNS),
    ],
)
@pytest.mark.parametrize("number", [0, 1, 2], ids=["read", "edit", "unsafe"])
async def test_a_call_is_judged_by_what_its_tool_does_and_the_mode(
    stage: Stage, mode: str, read: str, edit: str, unsafe: str, number: int
) -> None:
    """A tool that only reads needs nobody's leave."""
    name = ("look", "put", "pay")[number]
    expected = (read, edit, unsafe)[number]
    assert await becomes(stage, name, {}, policy=Policy(mode=PermissionMode(mode))) == expected
    if expected == DENIED:
        assert stage.shown(2)[-1] == f"tool: Denied: the permission mode is {mode}."


@pytest.mark.behaviour("who-is-asked")
@pytest.mark.parametrize(("approval", "expected"), [(Approval.ALWAYS, ASKED), (Approval.NEVER, RUNS)])
@pytest.mark.parametrize("side_effect", [SideEffect.READ_ONLY, SideEffect.UNSAFE])
async def test_a_tool_may_say_itself_whether_it_is_asked_about(
    stage: Stage, approval: Approval, side_effect: SideEffect, expected: str
) -> None:
    """Whatever it does to the world."""

    @tool(side_effect=side_effect, approval=approval)
    async def act() -> str:
        """Act."""
        return "acted"

    assert await becomes(stage, "act", {}, tools=[act]) == expected


def rule(verdict: str, tool_: str = "pay", **where: str) -> Rule:
    """A rule in one line."""
    return Rule(verdict=Verdict(verdict), tool=tool_, where=tuple(where.items()))


@pytest.mark.behaviour("denials-come-first")
@pytest.mark.parametrize(
    ("rules", "mode", "expected"),
    [
        ([rule("allow")], "default", RUNS),
        ([rule("allow", "p*")], "default", RUNS),
        ([rule("allow", "put")], "default", ASKED),
        ([rule("allow", amount="1")], "default", RUNS),
        ([rule("allow", amount="2")], "default", ASKED),
        ([rule("allow"), rule("ask")], "default", ASKED),
        ([rule("allow"), rule("ask"), rule("deny")], "default", DENIED),
        ([rule("deny"), rule("allow")], "default", DENIED),
        ([rule("deny")], "bypass", DENIED),
        ([rule("ask")], "bypass", RUNS),
        ([rule("allow")], "plan", DENIED),
        ([rule("allow")], "dont_ask", RUNS),
        ([rule("deny", amount="1*")], "bypass", DENIED),
    ],
)
async def test_of_all_rules_that_match_the_strictest_holds(
    stage: Stage, rules: list[Rule], mode: str, expected: str
) -> None:
    """Adding a denial is always safe, and allowing never undoes one."""
    policy = Policy(mode=PermissionMode(mode))
    assert await becomes(stage, "pay", {"amount": 1}, rules=rules, policy=policy) == expected


@pytest.mark.behaviour("denials-come-first")
async def test_a_read_that_a_rule_asks_about_is_asked_about(stage: Stage) -> None:
    """What a rule says by name comes before what the tool says of itself."""
    assert await becomes(stage, "look", {"at": "safe"}, rules=[rule("ask", "look", at="safe")]) == ASKED


@pytest.mark.behaviour("a-denied-call-stops-no-other")
async def test_after_a_rule_denied_a_call_the_others_run(stage: Stage) -> None:
    """The model reads which rule it was; nobody has said that the rest is unwanted."""
    wishes = calls(("look", {"at": "a"}), ("pay", {}), ("look", {"at": "b"}))
    session = stage.session(wishes, says("I see"), rules=[rule("deny")])
    result = await stage.play(session)

    assert (result.text, stage.ran) == ("I see", ["look a", "look b"])
    assert stage.outcomes(session) == ["look: ok", "pay: denied", "look: ok"]
    assert stage.shown(2)[-1] == "tool: saw a | Denied by a rule: deny pay. | saw b"
    assert len(stage.seen(CallSettled)) == 3
    assert len(stage.seen(ToolStarted)) == 2


@pytest.mark.behaviour("a-judgement-names-its-ground")
@pytest.mark.parametrize(
    ("name", "settings", "judged"),
    [
        ("look", {}, "allow, by tool: it only reads"),
        ("pay", {}, "ask, by tool: it may change anything"),
        ("pay", {"policy": Policy(mode="plan")}, "deny, by mode: plan"),
        ("pay", {"policy": Policy(mode="bypass")}, "allow, by mode: bypass"),
        ("pay", {"rules": [rule("deny", amount="1")]}, "deny, by rule: deny pay:amount=1"),
        ("pay", {"rules": [rule("allow")]}, "allow, by rule: allow pay"),
        ("pay", {"rules": [rule("ask", "p?y")]}, "ask, by rule: ask p?y"),
    ],
)
async def test_each_judgement_is_told_with_what_it_rests_on(
    stage: Stage, name: str, settings: dict[str, object], judged: str
) -> None:
    """So whoever watches can say why a call ran, or did not."""
    await becomes(stage, name, {"amount": 1} if name == "pay" else {}, **settings)
    told = [f"{notice.verdict}, by {notice.ground}: {notice.detail}" for notice in stage.seen(CallJudged)]
    assert told == [judged]


@pytest.mark.behaviour("settings-change-under-way")
@pytest.mark.parametrize(
    ("begins", "changed", "expected"),
    [("default", "bypass", ["dig", "pay 1"]), ("bypass", "plan", ["dig"]), ("bypass", "dont_ask", ["dig"])],
)
async def test_a_changed_mode_holds_from_the_next_call_on(
    stage: Stage, begins: str, changed: str, expected: list[str]
) -> None:
    """Also for calls of an answer that is being worked on."""
    change = SetMode(mode=PermissionMode(changed))
    wishes = calls(("dig", {}), ("pay", {}))
    session = stage.session(wishes, says("done"), policy=Policy(mode=PermissionMode(begins)))

    async def control(_: ToolOutput) -> None:
        await session.control(change)
        stage.release()

    result = await stage.play(session, on={ToolOutput: control})

    assert (result.text, stage.ran) == ("done", expected)
    assert [notice.change for notice in stage.seen(SettingChanged)] == [change]
    assert stage.seen(ApprovalRequested) == []
