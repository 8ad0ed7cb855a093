"""The host's hooks: writing them, asking them, and that nothing they do harms the run they have a say in."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, assert_type, cast

import attrs
import pytest
from structlog.testing import capture_logs
from support.odd_values import Mute, Secretive, fail
from support.patience import PATIENCE

from turnwheel.effects.errors import ArgumentError, ConfigError
from turnwheel.effects.hooks import Hook, HookAnswer, HookSaid, HookSpec
from turnwheel.effects.permissions import Verdict
from turnwheel.effects.requests import FireHook
from turnwheel.effects.validators import MAX_CALL_ARGUMENTS
from turnwheel.performers import hooks, worker_pool
from turnwheel.performers.base import LEAVING, PerformContext
from turnwheel.performers.hooks import (
    HookCall,
    HookRunner,
    HostHook,
    checked_answer,
    command_answer,
    command_hook,
    hook,
)
from turnwheel.performers.logs import FaultLog
from turnwheel.performers.tools.process import ProcessEnd

CALL = json.dumps({"tool_name": "write", "tool_input": {"path": "a.md", "lines": ["x"]}})

ABOUT = HookCall(hook=Hook.PRE_TOOL_USE)

NO = HookAnswer(verdict=Verdict.DENY, reason="no")


class Noon:
    """A clock that stands still."""

    def now(self) -> float:
        return 12.0

    async def sleep_until(self, due: float) -> None:
        raise AssertionError(due)


@pytest.fixture
def scene(scene: PerformContext) -> PerformContext:
    return attrs.evolve(scene, clock=Noon())


def request(*hooks: HostHook[Any], payload: str = CALL) -> FireHook:
    names = tuple(each.spec.name for each in hooks)
    return FireHook(id="r-1-7", hook=hooks[0].spec.hook, names=names, payload=payload, call="call-3")


async def asked(scene: PerformContext, *hooks: HostHook[Any], payload: str = CALL) -> tuple[HookSaid, ...]:
    return (await HookRunner(hooks)(request(*hooks, payload=payload), scene)).said


def both(answer: Callable[[HookCall], object], at: Hook = Hook.PRE_TOOL_USE) -> list[HostHook[Any]]:
    def sync(about: HookCall) -> Any:
        return answer(about)

    async def coroutine(about: HookCall) -> Any:
        await asyncio.sleep(0)
        return answer(about)

    return [hook(at)(sync), hook(at)(coroutine)]


# Writing one


@hook(Hook.PRE_TOOL_USE, tool="write", where={"path": "*.md", "mode": "w"}, timeout=10, name="no-docs")
async def guard(about: HookCall) -> HookAnswer | None:
    """Keep the documents."""
    await asyncio.sleep(0)
    return NO if about.tool == "write" else None


@hook("stop")
def listen(_: HookCall) -> None:
    """Say nothing."""


async def test_a_hook_is_the_function_it_was_and_its_specification() -> None:
    assert assert_type(await guard(HookCall(hook=Hook.PRE_TOOL_USE, tool="write")), HookAnswer | None) == NO
    assert await guard(ABOUT) is None
    listen(ABOUT)
    assert guard.spec == HookSpec(
        name="no-docs",
        hook=Hook.PRE_TOOL_USE,
        tool="write",
        where=(("path", "*.md"), ("mode", "w")),
        timeout=10,
        on_error="deny",
    )
    assert listen.spec == HookSpec(name="listen", hook=Hook.STOP)
    assert HookRunner([guard, listen]).specs == (guard.spec, listen.spec)


def _two(about: HookCall, more: int) -> None: ...
def _none() -> None: ...
def _keyword(*, about: HookCall) -> None: ...
def _yielding(_: HookCall) -> Iterator[int]:
    yield 1


async def _streaming(_: HookCall) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (_two, ["'_two'", "one argument"]),
        (_none, ["'_none'", "one argument"]),
        (_keyword, ["'_keyword'", "one argument"]),
        (_yielding, ["'_yielding'", "return one HookAnswer"]),
        (_streaming, ["'_streaming'", "return one HookAnswer"]),
        (functools.partial(_none), ["_none", "one argument"]),
        (Noon, ["'Noon'", "it is a class; write a function that calls it"]),
        (Noon(), ["Noon", "it is not callable; write a function that calls it"]),
        (guard, ["HostHook", "it is a hook already"]),
    ],
)
def test_what_cannot_be_asked_is_refused(function: Any, parts: list[str]) -> None:
    with pytest.raises(ArgumentError, match="cannot be a hook") as caught:
        hook(Hook.STOP)(function)
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("settings", "error", "parts"),
    [
        ({"at": "pre_tool"}, ConfigError, ["'pre_tool'", "pre_tool_use, post_tool_use"]),
        ({"at": listen.function}, ArgumentError, ["listen", "@hook(Hook.PRE_TOOL_USE)"]),
        ({"timeout": 0}, ConfigError, ["hook '_silent'", "got 0"]),
        ({"on_error": "ask"}, ConfigError, ["OnError must be one of deny, allow", "'ask'"]),
        ({"at": Hook.STOP, "on_error": "deny"}, ConfigError, ["hook '_silent'", "nothing to deny at 'stop'"]),
        ({"name": ""}, ConfigError, ["hook ''", "must not be empty"]),
        ({"name": 5}, ArgumentError, ["hook 5", "are texts"]),
        ({"tool": None}, ArgumentError, ["hook '_silent'", "tool=None"]),
        ({"where": ["path"]}, ArgumentError, ["hook '_silent'", "where=['path']"]),
        ({"where": {"path": 5}}, ArgumentError, ["hook '_silent'", "where={'path': 5}"]),
        ({"at": Hook.STOP, "tool": "write"}, ConfigError, ["hook '_silent'", "'stop' is about no call"]),
        ({"at": Hook.STOP, "where": {"path": "*"}}, ConfigError, ["'_silent'", "leave out tool and where"]),
    ],
)
def test_a_bad_setting_is_refused(settings: dict[str, Any], error: type[Exception], parts: list[str]) -> None:
    def _silent(_: HookCall) -> None: ...

    place = settings.get("at", Hook.PRE_TOOL_USE)
    others = {name: value for name, value in settings.items() if name != "at"}
    for make in (
        lambda: hook(place, **others)(_silent),
        lambda: command_hook(place, command=["./_silent"], **others),
    ):
        with pytest.raises(error) as caught:
            make()
        assert [part for part in parts if part not in str(caught.value)] == []


def test_a_command_that_is_none_is_refused() -> None:
    """A command is a list of words, since no shell takes it apart."""
    with pytest.raises(ArgumentError, match=r"'\./check\.sh --quick'"):
        command_hook(Hook.STOP, command="./check.sh --quick")
    with pytest.raises(ArgumentError, match=r"\['\./check\.sh', 5\]"):
        command_hook(Hook.STOP, command=cast("list[str]", ["./check.sh", 5]))
    with pytest.raises(ConfigError, match="give a program"):
        command_hook(Hook.STOP, command=[])


def test_a_runner_takes_hooks_of_different_names_only() -> None:
    with pytest.raises(ConfigError, match="two hooks of one name: 'no-docs'"):
        HookRunner([guard, guard])
    with pytest.raises(ArgumentError, match="is no hook: make one of it with @hook"):
        HookRunner([cast("HostHook[None]", listen.function)])


# Asking them


async def test_a_hook_sees_what_it_is_asked_about(scene: PerformContext) -> None:
    seen: list[HookCall] = []
    for each in both(seen.append):
        assert await asked(scene, each) == (HookSaid(name=each.spec.name),)
    expected = HookCall(
        hook=Hook.PRE_TOOL_USE,
        session="s-1",
        run="r-1",
        call="call-3",
        tool="write",
        arguments={"path": "a.md", "lines": ["x"]},
        payload={"tool_name": "write", "tool_input": {"path": "a.md", "lines": ["x"]}},
        now=12.0,
    )
    assert seen == [expected, expected]
    await asked(scene, both(seen.append, Hook.PRE_COMPACT)[0], payload='{"reason":"threshold","size":9}')
    about = seen[-1]  # it is about no call, and so has no arguments
    assert (about.tool, about.arguments) == ("", {})
    assert about.payload == {"reason": "threshold", "size": 9}


async def test_a_sync_hook_runs_in_a_thread_so_it_may_block(scene: PerformContext) -> None:
    threads: list[int] = []
    sync, coroutine = both(lambda _: threads.append(threading.get_ident()))
    await asked(scene, sync, coroutine)
    assert threads[0] != threading.get_ident() == threads[1]
    answer = await HookRunner([guard])(request(guard), scene)
    assert (answer.request, answer.at, answer.said) == ("r-1-7", 12.0, (HookSaid(name="no-docs", answer=NO),))


async def test_a_hook_changes_a_call_that_has_not_run_and_only_by_saying_so(scene: PerformContext) -> None:
    seen: list[object] = []

    def meddle(about: HookCall) -> None:
        about.arguments["lines"].append("y")
        cast("dict[str, Any]", about.payload).clear()

    for at, first in (
        (Hook.POST_TOOL_USE, lambda _: HookAnswer(arguments='{"path":"b.md"}')),
        (Hook.PRE_TOOL_USE, meddle),
    ):
        await asked(
            scene, hook(at, name="one")(first), both(lambda about: seen.append(about.arguments), at)[0]
        )
    assert seen == [{"path": "a.md", "lines": ["x"]}] * 2


async def test_a_denial_ends_the_asking_where_there_is_something_to_deny(scene: PerformContext) -> None:
    deniable = {Hook.SESSION_START, Hook.USER_PROMPT_SUBMIT, Hook.PRE_TOOL_USE, Hook.PRE_COMPACT}
    for at in (*deniable, Hook.POST_TOOL_USE, Hook.STOP):
        first = hook(at, name="first")(lambda _: NO)
        second = hook(at, name="second")(lambda _: None)
        said = [one.name for one in await asked(scene, first, second)]
        assert said == (["first"] if at in deniable else ["first", "second"])


@pytest.mark.parametrize("given", [{"a": "\ud83d"}, '{"a": "\ud83d"}'])
async def test_an_answer_can_be_written_down(given: Any, scene: PerformContext) -> None:
    # Its size is held on the page of sizes; no journal takes half a pair.
    answer = HookAnswer(context="half: \ud83d", arguments=given)
    for each in both(lambda _: answer):
        (said,) = await asked(scene, each)
        assert (said.answer.context, said.answer.arguments) == ("half: ?", '{"a": "?"}')


# What a hook does wrong


async def later() -> HookAnswer:
    return NO


def answer(**fields: object) -> HookAnswer:
    return HookAnswer(**cast("dict[str, Any]", fields))


NO_OBJECT = "its arguments must be a dict, or the JSON text of one; got"

NO_JSON = "it raised ArgumentError: HookAnswer.arguments must be a dict"


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda _: fail(ValueError("no such city")), "it raised ValueError: no such city"),
        (lambda _: fail(ValueError()), "it raised ValueError"),
        (lambda _: fail(KeyError("a")), "it raised KeyError: 'a'"),
        (lambda _: fail(Mute()), "it raised Mute, whose message cannot be shown (ValueError)"),
        (lambda _: fail(TimeoutError("the gate")), "it raised TimeoutError: the gate"),
        (lambda _: sys.exit(3), "it raised SystemExit: 3"),
        (lambda _: fail(KeyboardInterrupt()), "it raised KeyboardInterrupt"),
        (lambda _: fail(asyncio.CancelledError()), "it cancelled itself"),
        (lambda _: "deny", "it returned 'deny': return a HookAnswer, or None"),
        (lambda _: True, "it returned True: return a HookAnswer, or None"),
        (lambda _: Secretive(), "it raised ValueError: no comment"),
        (lambda _: later(), "it returned something to be awaited: declare it with 'async def'"),
        (
            lambda _: answer(verdict="maybe"),
            "it raised ConfigError: HookAnswer.verdict must be one of allow, ask, deny;",
        ),
        (lambda _: answer(reason=5), "its reason must be a str; got 5"),
        (lambda _: answer(context=None), "its context must be a str; got None"),
        (
            lambda _: answer(go_on="yes"),
            "it raised ArgumentError: HookAnswer.go_on must be a bool; got 'yes'",
        ),
        (
            lambda _: answer(interrupt=1),
            "it raised ArgumentError: HookAnswer.interrupt must be a bool; got 1",
        ),
        (lambda _: answer(arguments=[1]), f"{NO_JSON}, or the JSON text of one; got list"),
        (lambda _: answer(arguments={"a": {1}}), f"{NO_JSON} that JSON can hold: Object of type set"),
        (lambda _: answer(arguments={"a": float("nan")}), f"{NO_JSON} that JSON can hold: Out of range"),
        (lambda _: answer(arguments="[1]"), f"{NO_OBJECT} '[1]'"),
        (lambda _: answer(arguments="{"), f"{NO_OBJECT} '{{' ("),
        (lambda _: answer(arguments='{"a":NaN}'), f'{NO_OBJECT} \'{{"a":N'),
        (lambda _: answer(arguments='{"a":' * 100_000), f"{NO_OBJECT} '{{"),
        (lambda _: fail(ValueError("x" * 1_000_000)), "it raised ValueError: xxx"),
        (lambda _: fail(ValueError("\ud83d")), "it raised ValueError: ?"),
    ],
)
async def test_a_faulty_hook_has_no_say(
    function: Callable[[HookCall], object], fault: str, scene: PerformContext
) -> None:
    quiet = hook(Hook.PRE_TOOL_USE, name="quiet")(lambda _: None)
    for each in both(function):
        said, other = await asked(scene, each, quiet)
        assert (said.name, said.answer, said.fault.startswith(fault)) == (each.spec.name, HookAnswer(), True)
        assert len(said.fault) < 10_100
        said.fault.encode()
        assert other == HookSaid(name="quiet")


async def test_an_async_hook_that_blocks_the_event_loop_is_named_in_the_log(
    scene: PerformContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(worker_pool, "monotonic", lambda: now[0])

    def hold_up(_: HookCall) -> None:
        now[0] += 1.5

    with capture_logs() as lines:
        await asked(scene, *both(hold_up))
    told = [(line["event"], line["hook"], line["seconds"]) for line in lines]
    assert told == [("a hook blocked the event loop", "coroutine", 1.5)]


async def test_a_hook_that_is_not_there_or_has_no_payload_is_at_fault(scene: PerformContext) -> None:
    for payload in ("", "[]", "{", "[" * 100_000):
        (said,) = await asked(scene, guard, payload=payload)
        assert said.fault.startswith("it could not be asked: ")
    answered = await HookRunner([guard])(request(listen, guard), scene)
    assert answered.said == (
        HookSaid(name="listen", fault="there is no such hook here"),
        HookSaid(name="no-docs", answer=NO),
    )


async def test_a_hook_that_takes_too_long_has_no_say(scene: PerformContext, gate: threading.Event) -> None:
    cleaned: list[bool] = []

    @hook(Hook.PRE_TOOL_USE, timeout=0.05)
    async def slow(_: HookCall) -> HookAnswer:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)
        return NO

    @hook(Hook.PRE_TOOL_USE, timeout=0.05)
    def hang(_: HookCall) -> HookAnswer:
        gate.wait()
        return NO

    @hook(Hook.PRE_TOOL_USE, timeout=None)
    async def patient(_: HookCall) -> None:  # such as one that asks a person
        await asyncio.sleep(0.05)

    assert await asked(scene, slow, hang, patient, guard) == (
        HookSaid(name="slow", fault="it took longer than 0.05 s"),
        HookSaid(name="hang", fault="it took longer than 0.05 s"),
        HookSaid(name="patient"),
        HookSaid(name="no-docs", answer=NO),
    )
    assert cleaned == [True]


async def test_an_async_hook_that_takes_too_long_may_clean_up(scene: PerformContext) -> None:
    cleaned: list[bool] = []

    @hook(Hook.PRE_TOOL_USE, timeout=0.01)
    async def slow(_: HookCall) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    await asked(scene, slow)
    assert cleaned == [True]


async def test_a_hook_that_raises_is_named_in_the_log_without_what_it_said(scene: PerformContext) -> None:
    said = f"the secret is {12_345}"
    with capture_logs() as lines:
        await asked(scene, *both(lambda _: fail(ValueError(said))))
    assert [(line["event"], line["hook"], line["error"]) for line in lines] == [
        ("a hook raised", name, "ValueError") for name in ("sync", "coroutine")
    ]
    assert all("fail(" in line["exception"] for line in lines)
    assert said not in repr(lines)


# What is kept of an answer


def test_texts_of_an_answer_are_kept_up_to_ten_thousand_characters() -> None:
    for field in ("reason", "context"):
        for length, whole in ((10_000, True), (10_001, False)):
            text = "x" * length
            kept = getattr(checked_answer("h", answer(**{field: text})).answer, field)
            assert (kept == text) is whole
            assert whole or "[... 1 characters cut ...]" in kept
    fault = checked_answer("h", "x" * 20_000).fault
    assert "characters cut" in fault
    assert len(fault) < 10_100


def test_arguments_of_an_answer_may_be_as_large_as_those_of_a_call() -> None:
    text = f'{{"a":"{"x" * (MAX_CALL_ARGUMENTS - 8)}"}}'
    assert checked_answer("h", answer(arguments=text)) == HookSaid(
        name="h", answer=HookAnswer(arguments=text)
    )
    said = checked_answer("h", answer(arguments=f"{text} "))
    assert said.fault == "its arguments have 2,000,001 characters, and may have 2,000,000"


@pytest.mark.parametrize(
    ("place", "ended", "expected"),
    [
        (Hook.PRE_TOOL_USE, ProcessEnd("", 2, " no\n"), HookAnswer(verdict=Verdict.DENY, reason="no")),
        (Hook.PRE_COMPACT, ProcessEnd("out", 2), HookAnswer(verdict=Verdict.DENY)),
        (Hook.STOP, ProcessEnd("", 2, "go on"), HookAnswer(go_on=True, reason="go on")),
        (Hook.SUBAGENT_STOP, ProcessEnd("", 2, "go on"), HookAnswer(go_on=True, reason="go on")),
        (Hook.STOP, ProcessEnd(" \n", 0, "noise"), None),
        (Hook.STOP, ProcessEnd('{"go_on":true,"reason":"r"}', 0), HookAnswer(go_on=True, reason="r")),
        (Hook.STOP, ProcessEnd('{"interrupt":true}', 0), HookAnswer(interrupt=True)),
    ],
)
def test_how_a_command_ends_is_its_answer(
    place: Hook, ended: ProcessEnd, expected: HookAnswer | None
) -> None:
    assert command_answer(place, ended) == expected


def test_a_command_that_failed_is_quoted_in_part() -> None:
    for ended in (ProcessEnd("", 1, "x" * 600), ProcessEnd("x" * 600, 1, " ")):
        with pytest.raises(ChildProcessError) as raised:
            command_answer(Hook.STOP, ended)
        assert str(raised.value) == f"exit code 1: {'x' * 500}"
    for output in ("y" * 600, '{"a":' * 100_000):
        with pytest.raises(ValueError, match="its output is no answer") as caught:
            command_answer(Hook.STOP, ProcessEnd(output, 0))
        assert str(caught.value).endswith(repr(output[:500]))


async def test_a_hook_sees_what_the_ones_before_it_made_of_a_call(scene: PerformContext) -> None:
    seen: list[HookCall] = []

    def look(about: HookCall) -> None:
        seen.append(about)

    several = [
        hook(Hook.PRE_TOOL_USE, name=name)(function)
        for name, function in (
            ("first", lambda _: HookAnswer(arguments={"path": "b.md"})),
            ("quiet", lambda _: None),
            ("third", look),
            ("fourth", lambda _: HookAnswer(arguments={"path": "c.md"})),
            ("last", look),
        )
    ]
    await asked(scene, *several)
    assert [about.arguments for about in seen] == [{"path": "b.md"}, {"path": "c.md"}]
    assert seen[0].payload == {"tool_name": "write", "tool_input": {"path": "b.md"}}
    # What is asked about a call has a tool and arguments of the right kind, whatever the payload has.
    await asked(scene, both(seen.append)[0], payload='{"tool_name":5,"tool_input":[1]}')
    assert (seen[-1].tool, seen[-1].arguments) == ("5", {})


async def test_a_hook_has_a_minute_and_a_guard_denies_where_it_fails_unless_that_is_said(
    tmp_path: Path,
) -> None:
    usual, words = both(lambda _: None)[0], ["/bin/sh", "-c", "pwd >&2; exit 2"]
    assert (usual.spec.timeout, usual.spec.on_error, usual.spec.tool) == (60.0, "deny", "*")
    lenient = hook(Hook.PRE_TOOL_USE, on_error="allow")(listen.function)
    assert lenient.spec.on_error == "allow"
    command = command_hook(Hook.PRE_TOOL_USE, command=words, cwd=tmp_path)
    assert (command.spec.name, command.spec.timeout, command.spec.on_error) == ("sh", 60.0, "deny")
    assert command.is_async
    # It is the command that was given, whatever becomes of the list.
    words[0] = "/no/such/program"
    assert await command(ABOUT) == HookAnswer(verdict=Verdict.DENY, reason=str(tmp_path))


# Stopping


async def cancelled(task: asyncio.Task[Any], started: asyncio.Event, why: str | None = None) -> None:
    """Cancel *task* when it has *started*: the cancellation is passed on."""
    await asyncio.wait_for(started.wait(), PATIENCE)
    task.cancel(why)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)


@pytest.mark.parametrize("why", [None, LEAVING])
async def test_a_cancelled_request_stops_its_hook(why: str | None, scene: PerformContext) -> None:
    # It cleans up, and the ones after it are not asked.
    started, cleaned, after = asyncio.Event(), list[bool](), list[HookCall]()

    @hook(Hook.PRE_TOOL_USE)
    async def slow(_: HookCall) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    await cancelled(asyncio.create_task(asked(scene, slow, both(after.append)[0])), started, why)
    assert (cleaned, after) == ([True], [])
    # So it is where a session's end is told.
    telling = HookRunner([hook(Hook.SESSION_END, name="slow")(slow.function)])
    started.clear()
    await cancelled(
        asyncio.create_task(telling.tell(Hook.SESSION_END, "{}", FaultLog(session="s-1"))), started, why
    )


async def test_a_thread_is_not_waited_for(
    scene: PerformContext, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing stops it; so the cancellation goes on at once."""
    monkeypatch.setattr(hooks, "GRACE", 10 * PATIENCE)
    loop, started = asyncio.get_running_loop(), asyncio.Event()

    @hook(Hook.PRE_TOOL_USE)
    def hang(_: HookCall) -> None:
        loop.call_soon_threadsafe(started.set)
        gate.wait()

    await cancelled(asyncio.create_task(asked(scene, hang)), started)
    assert not gate.is_set()


async def test_a_hook_that_ignores_its_cancel_is_left_behind(scene: PerformContext) -> None:
    started, cancelling, ended = (asyncio.Event() for _ in range(3))
    gates: list[weakref.ref[asyncio.Event]] = []

    @hook(Hook.PRE_TOOL_USE)
    async def stubborn(_: HookCall) -> None:
        gate = asyncio.Event()  # known to this hook alone
        gates.append(weakref.ref(gate))
        started.set()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            cancelling.set()
            await gate.wait()
        ended.set()

    runner = HookRunner([stubborn])
    task = asyncio.create_task(runner(request(stubborn), scene))
    for event in (started, cancelling):
        await asyncio.wait_for(event.wait(), PATIENCE)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    gc.collect()
    gate = gates[0]()
    assert gate is not None
    assert not ended.is_set()
    gate.set()
    await asyncio.wait_for(ended.wait(), PATIENCE)


# Telling them


async def test_the_end_of_a_session_is_told_to_all_and_faults_are_returned() -> None:
    seen: list[HookCall] = []
    first, last = both(seen.append, Hook.SESSION_END)
    broken = hook(Hook.SESSION_END, name="broken")(lambda _: sys.exit(1))
    runner = HookRunner([first, listen, broken, last], clock=Noon())
    faults = await runner.tell(Hook.SESSION_END, '{"reason":"closed"}', FaultLog(session="s-1"))
    assert faults == (HookSaid(name="broken", fault="it raised SystemExit: 1"),)
    told = HookCall(hook=Hook.SESSION_END, session="s-1", payload={"reason": "closed"}, now=12.0)
    assert seen == [told, told]


# Commands


def shell(script: str, at: Hook = Hook.PRE_TOOL_USE, **settings: Any) -> HostHook[Any]:
    return command_hook(at, command=["/bin/sh", "-c", script], name="script", **settings)


def echo(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("true", HookAnswer()),
        ("echo; echo noise >&2", HookAnswer()),
        (echo("{}"), HookAnswer()),
        (echo('{"verdict":"ask","reason":"ö"}'), HookAnswer(verdict=Verdict.ASK, reason="ö")),
        (echo('{"arguments":{"a":[1]}}'), HookAnswer(arguments={"a": [1]})),
        (echo('{"arguments":"{}","context":"c"}'), HookAnswer(arguments="{}", context="c")),
        (
            echo('{"verdict":"deny","interrupt":true,"go_on":false}'),
            HookAnswer(verdict=Verdict.DENY, interrupt=True),
        ),
        (
            "echo said; echo ' not on fridays' >&2; exit 2",
            HookAnswer(verdict=Verdict.DENY, reason="not on fridays"),
        ),
    ],
)
async def test_a_command_answers_by_exit_code_and_output(
    script: str, said: HookAnswer, scene: PerformContext
) -> None:
    assert await asked(scene, shell(script)) == (HookSaid(name="script", answer=said),)


NO_ANSWER = "it raised ValueError: its output is no answer"


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("echo out; echo err >&2; exit 1", "it raised ChildProcessError: exit code 1: err"),
        ("echo out; exit 3", "it raised ChildProcessError: exit code 3: out"),
        ("exit 4", "it raised ChildProcessError: exit code 4: it said nothing"),
        ("kill -9 $$", "it raised ChildProcessError: exit code -9"),
        ("echo no", f"{NO_ANSWER} ("),
        ("echo '[]'", f"{NO_ANSWER} (Expected `object`"),
        (echo('{"verdict":"maybe"}'), f"{NO_ANSWER} (Invalid enum value 'maybe'"),
        (echo('{"decision":"deny"}'), f"{NO_ANSWER} (Object contains unknown"),
        (echo('{"arguments":"[]"}'), "its arguments must be a dict, or the JSON text of one"),
    ],
)
async def test_a_command_that_fails_is_at_fault(script: str, fault: str, scene: PerformContext) -> None:
    (said,) = await asked(scene, shell(script))
    assert (said.answer, said.fault[: len(fault)]) == (HookAnswer(), fault)


async def test_a_command_that_says_no_at_a_stop_goes_on(scene: PerformContext) -> None:
    # There is nothing to deny; the model reads what is left to do.
    script = shell("echo 'the tests fail' >&2; exit 2", Hook.STOP)
    (said,) = await asked(scene, script, payload='{"reason":"end_turn","continued":0}')
    assert said == HookSaid(name="script", answer=HookAnswer(go_on=True, reason="the tests fail"))
    missing = command_hook(Hook.STOP, command=["/no/such/check.sh"])
    (said,) = await asked(scene, missing, payload="{}")
    assert (said.name, said.fault.startswith("it raised FileNotFoundError: ")) == ("check.sh", True)


async def test_a_command_reads_what_it_is_asked_about(scene: PerformContext, tmp_path: Path) -> None:
    await asked(scene, shell("cat > seen.json", cwd=tmp_path))
    assert json.loads((tmp_path / "seen.json").read_text()) == {
        "hook": "pre_tool_use",
        "session": "s-1",
        "run": "r-1",
        "call": "call-3",
        "now": 12.0,
        **json.loads(CALL),
    }
    # It need not read, however much it is told; and it can rewrite large arguments.
    payload = json.dumps({"tool_name": "write", "tool_input": {"content": "x" * 5_000_000}})
    assert await asked(scene, shell("exit 0"), payload=payload) == (HookSaid(name="script"),)
    payload = json.dumps({"tool_input": {"content": "x" * 1_000_000}})
    program = 'import json,sys; print(json.dumps({"arguments": json.load(sys.stdin)["tool_input"]}))'
    copy = command_hook(Hook.PRE_TOOL_USE, command=[sys.executable, "-c", program])
    (said,) = await asked(scene, copy, payload=payload)
    assert (said.fault, len(said.answer.arguments)) == ("", 1_000_015)


@pytest.mark.parametrize("stopped", ["cancelled", "late"])
async def test_a_command_dies_with_its_children(
    stopped: str,
    scene: PerformContext,
    tmp_path: Path,
    alive: Callable[[int], bool],
    until: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = "sleep 1000 & echo $! > child.tmp; mv child.tmp child; wait"
    waiting = shell(script, cwd=tmp_path, timeout=None if stopped == "cancelled" else 500)
    task = asyncio.create_task(asked(scene, waiting))
    await until((tmp_path / "child").exists)
    pid = int((tmp_path / "child").read_text())
    if stopped == "cancelled":
        assert alive(pid)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)
    else:
        # Its time is up now, and not while a busy machine still starts it.
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: time.monotonic() + 500)
        assert await task == (HookSaid(name="script", fault="it took longer than 500 s"),)
    await until(lambda: not alive(pid))
