"""What comes from outside: snapshots, secrets, journals of other versions, and sizes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from turnwheel import ApproveAlways, Machine, tool
from turnwheel.effects.errors import JournalError, NewerVersion, TooLarge
from turnwheel.testing.scripted import calls, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage

KEY = b"k" * 32
PASSWORD = "hunter2-of-old"  # noqa: S105  # nobody's


@pytest.mark.behaviour("an-unsigned-snapshot-grants-nothing")
async def test_a_snapshot_grants_what_it_says_only_where_it_is_signed(stage: Stage) -> None:
    """Without a signature the rule that it claims is not there, and one is asked again."""
    session = stage.session(calls(("pay", {})), says("paid"))
    await session.run("go")
    await session.approve(session.waiting[0].id, ApproveAlways())
    await session.resume()
    machine = session.machine
    assert machine is not None
    assert [rule.tool for rule in machine.memory.session.granted] == ["pay"]
    history = machine.memory.history

    signed = Machine.restore(machine.snapshot(KEY), machine.config, history, KEY)
    assert signed == machine
    for data in (machine.snapshot(), machine.snapshot(KEY)):
        assert Machine.restore(data, machine.config, history).memory.session.granted == ()
    with pytest.raises(JournalError, match="the signature of this snapshot is wrong"):
        Machine.restore(machine.snapshot(KEY), machine.config, history, KEY[::-1] + b"x")


@pytest.mark.behaviour("a-secret-reaches-its-tool-only")
async def test_a_password_reaches_its_tool_and_nobody_else(stage: Stage) -> None:
    """Also where the tool returns it, and the model reads its own call again."""
    given: list[str] = []

    @tool(approval="never")
    def log_in(user: str, password: str) -> str:
        """Log in."""
        given.append(password)
        return f"{user} came in with {password}"

    session = stage.session(
        calls(("log_in", {"user": "ann", "password": PASSWORD})), says("done"), tools=[log_in]
    )
    result = await stage.play(session)
    assert (result.text, given) == ("done", [PASSWORD])
    assert stage.outcomes(session) == ["log_in: ok"]
    seen = [*stage.notices, *session.history, *stage.model.seen, *await stage.store.load("s")]
    assert PASSWORD not in repr(seen)
    assert "[secret password " in stage.shown(2)[-1]


@pytest.mark.behaviour("a-newer-journal-is-refused")
async def test_a_session_of_a_newer_version_is_refused_and_left_alone(stage: Stage) -> None:
    """The error names it and says what to do."""
    await stage.session(says("so")).run("go")
    [*_, last] = kept = await stage.store.load("s")
    newer = json.dumps({**json.loads(last), "v": 99}).encode()
    await stage.store.append("s", len(kept), [newer])
    later = stage.session(says("more"))
    with pytest.raises(NewerVersion, match=r"'s'.*99.*upgrade turnwheel"):
        await later.run("more")
    assert await stage.store.load("s") == [*kept, newer]


@pytest.mark.behaviour("what-is-too-large-is-refused")
async def test_a_prompt_that_is_too_large_is_refused_by_its_size(stage: Stage) -> None:
    """Nothing of it is kept, and the session takes the next one."""
    session = stage.session(says("so"))
    said = "the text of a prompt has 5,000,000 characters, and may have 4,000,000"
    with pytest.raises(TooLarge, match=f"^{said}$"):
        await session.send("x" * 5_000_000)
    assert (await session.run("go")).text == "so"
    assert stage.said(session) == ["user: go", "assistant: so"]
