"""The host's hooks: writing them, asking them, and that nothing they do harms the run they have a say in."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, assert_type, cast

import pytest

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import ArgumentError, ConfigError
from turnwheel.effects.history import History
from turnwheel.effects.hooks import (
    Hook,
    HookAnswer,
    HookSaid,
    HookSpec,
)
from turnwheel.effects.permissions import Verdict
from turnwheel.effects.requests import FireHook
from turnwheel.performers.base import LEAVING, PerformContext
from turnwheel.performers.hooks import (
    HookCall,
    HookRunner,
    HostHook,
    command_hook,
    hook,
)
from turnwheel.performers.worker_pool import MAX_THREADS

PATIENCE = 10.0
"""Seconds within which whatever a test waits for must have come."""

CALL = json.dumps({"tool_name": "write", "tool_input": {"path": "a.md", "lines": ["x"]}})

ABOUT = HookCall(hook=Hook.PRE_TOOL_USE)

NO = HookAnswer(verdict=Verdict.DENY, reason="no")


class Noon:
    """A clock that stands still."""

    def now(self) -> float:
        """Twelve."""
        return 12.0

    async def sleep_until(self, due: float) -> None:
        """Nobody waits for it."""
        raise AssertionError(due)


@pytest.fixture
def scene() -> PerformContext:
    """A scene around a request."""
    config = Config(model=ModelSpec(name="openai:none"))
    return PerformContext(
        session="s-1", run="r-1", config=config, history=History.of(), clock=Noon(), emit=lambda _: None
    )


def request(*hooks: HostHook[Any], payload: str = CALL) -> FireHook:
    """A request to ask *hooks*, all of one place, in this order."""
    names = tuple(each.spec.name for each in hooks)
    return FireHook(id="r-1-7", hook=hooks[0].spec.hook, names=names, payload=payload, call="call-3")


async def asked(scene: PerformContext, *hooks: HostHook[Any], payload: str = CALL) -> tuple[HookSaid, ...]:
    """What *hooks* say, asked by a runner that has just them."""
    return (await HookRunner(hooks)(request(*hooks, payload=payload), scene)).said


def both(answer: Callable[[HookCall], object], at: Hook = Hook.PRE_TOOL_USE) -> list[HostHook[Any]]:
    """A sync and an async hook that return what *answer* does."""

    def sync(about: HookCall) -> Any:
        return answer(about)

    async def coroutine(about: HookCall) -> Any:
        await asyncio.sleep(0)
        return answer(about)

    return [hook(at)(sync), hook(at)(coroutine)]


def fail(error: BaseException) -> NoReturn:
    """Raise *error*."""
    raise error


# Writing one


@hook(Hook.PRE_TOOL_USE, tool="write", where={"path": "*.md", "mode": "w"}, timeout=10, name="no-docs")
async def guard(about: HookCall) -> HookAnswer | None:
    """Keep the documents."""
    await asyncio.sleep(0)
    return NO if about.tool == "write" else None


@hook("stop")
def listen(_: HookCall) -> None:
    """Say nothing."""


async def test_a_hook_is_still_the_function_it_was() -> None:
    """It can be called as before, and type checkers know its result."""
    assert assert_type(await guard(HookCall(hook=Hook.PRE_TOOL_USE, tool="write")), HookAnswer | None) == NO
    assert await guard(ABOUT) is None
    listen(ABOUT)


def test_what_is_said_is_in_the_specification() -> None:
    """Every setting arrives, and what is not said is taken from the function or left open."""
    assert guard.spec == HookSpec(
        name="no-docs",
        hook=Hook.PRE_TOOL_USE,
        tool="write",
        where=(("path", "*.md"), ("mode", "w")),
        timeout=10,
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
        (functools.partial(_two, more=1), ["_two", "write one that calls it"]),
        (Noon, ["'Noon'", "write one that calls it"]),
        (guard, ["HostHook", "write one that calls it"]),
    ],
)
def test_what_cannot_be_asked_is_refused(function: Any, parts: list[str]) -> None:
    """When the program starts, by its name."""
    with pytest.raises(ArgumentError, match="cannot be a hook") as caught:
        hook(Hook.STOP)(function)
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("settings", "error", "parts"),
    [
        ({"at": "pre_tool"}, ConfigError, ["'pre_tool'", "pre_tool_use, post_tool_use"]),
        ({"at": listen.function}, ArgumentError, ["listen", "@hook(Hook.PRE_TOOL_USE)"]),
        ({"timeout": 0}, ConfigError, ["hook '_silent'", "got 0"]),
        ({"name": ""}, ConfigError, ["hook ''", "must not be empty"]),
        ({"name": 5}, ArgumentError, ["hook 5", "are texts"]),
        ({"tool": None}, ArgumentError, ["hook '_silent'", "tool=None"]),
        ({"where": ["path"]}, ArgumentError, ["hook '_silent'", "where=['path']"]),
        ({"where": {"path": 5}}, ArgumentError, ["hook '_silent'", "where={'path': 5}"]),
        ({"at": Hook.STOP, "tool": "write"}, ConfigError, ["hook '_silent'", "'stop' is about no call"]),
        ({"at": Hook.STOP, "where": {"path": "*"}}, ConfigError, ["'_silent'", "leave out tool and where"]),
    ],
)
def test_a_wrong_setting_is_refused(
    settings: dict[str, Any], error: type[Exception], parts: list[str]
) -> None:
    """The error names the hook and shows the value, for functions and for commands."""

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


@pytest.mark.parametrize(
    ("command", "error", "part"),
    [
        ("./check.sh --quick", ArgumentError, "'./check.sh --quick'"),
        (["./check.sh", 5], ArgumentError, "['./check.sh', 5]"),
        ([], ConfigError, "give a program"),
    ],
)
def test_a_command_that_is_none_is_refused(command: Any, error: type[Exception], part: str) -> None:
    """A command is a list of words, since no shell takes it apart."""
    with pytest.raises(error) as caught:
        command_hook(Hook.STOP, command=command)
    assert part in str(caught.value)


def test_two_hooks_of_one_name_are_a_wrong_setting() -> None:
    """Neither could be told from the other."""
    with pytest.raises(ConfigError, match="two hooks of one name: 'no-docs'"):
        HookRunner([guard, guard])


def test_a_runner_takes_hooks_only() -> None:
    """A function that was not made a hook has no place and no time."""
    with pytest.raises(ArgumentError, match="is no hook: make one of it with @hook"):
        HookRunner([cast("HostHook[None]", listen.function)])


# Asking them


async def test_a_hook_sees_what_it_is_asked_about(scene: PerformContext) -> None:
    """Whose call it is, the tool and the arguments, the whole payload, and the time."""
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


async def test_what_is_about_no_call_has_no_arguments(scene: PerformContext) -> None:
    """The payload is all there is."""
    seen: list[HookCall] = []
    await asked(scene, both(seen.append, Hook.PRE_COMPACT)[0], payload='{"reason":"threshold","size":9}')
    (about,) = seen
    assert (about.tool, about.arguments) == ("", {})
    assert about.payload == {"reason": "threshold", "size": 9}


async def test_a_sync_hook_runs_in_a_thread(scene: PerformContext) -> None:
    """So it may block, and nothing else waits."""
    threads: list[int] = []
    sync, coroutine = both(lambda _: threads.append(threading.get_ident()))
    await asked(scene, sync, coroutine)
    assert threads[0] != threading.get_ident()
    assert threads[1] == threading.get_ident()


async def test_an_answer_names_its_request_and_the_time(scene: PerformContext) -> None:
    """As any answer does."""
    answer = await HookRunner([guard])(request(guard), scene)
    assert (answer.request, answer.at, answer.said) == ("r-1-7", 12.0, (HookSaid(name="no-docs", answer=NO),))


async def test_hooks_are_asked_in_order_and_see_what_was_rewritten(scene: PerformContext) -> None:
    """Each sees the arguments as those before it left them; one that rewrites nothing leaves them."""
    seen: list[object] = []

    @hook(Hook.PRE_TOOL_USE)
    def first(about: HookCall) -> HookAnswer:
        seen.append(about.arguments)
        return HookAnswer(arguments='{"path":"b.md"}')

    @hook(Hook.PRE_TOOL_USE)
    async def second(about: HookCall) -> HookAnswer:
        seen.append(about.payload["tool_input"])
        return HookAnswer(context="well")

    @hook(Hook.PRE_TOOL_USE)
    def third(about: HookCall) -> HookAnswer:
        return HookAnswer(arguments=json.dumps({**about.arguments, "third": True}))

    said = await asked(scene, first, second, third)
    assert seen == [{"path": "a.md", "lines": ["x"]}, {"path": "b.md"}]
    assert [one.name for one in said] == ["first", "second", "third"]
    assert [one.answer.arguments for one in said] == [
        '{"path":"b.md"}',
        "",
        '{"path": "b.md", "third": true}',
    ]
    assert said[1].answer.context == "well"


async def test_what_has_run_cannot_be_rewritten(scene: PerformContext) -> None:
    """The next hook sees the arguments that it ran with."""
    seen: list[object] = []
    late = hook(Hook.POST_TOOL_USE, name="late")(lambda _: HookAnswer(arguments='{"path":"b.md"}'))
    await asked(scene, late, both(lambda about: seen.append(about.arguments), Hook.POST_TOOL_USE)[0])
    assert seen == [{"path": "a.md", "lines": ["x"]}]


async def test_what_a_hook_does_to_its_own_copy_nobody_sees(scene: PerformContext) -> None:
    """To change the arguments it has to say so."""
    seen: list[object] = []

    @hook(Hook.PRE_TOOL_USE)
    def meddle(about: HookCall) -> None:
        about.arguments["lines"].append("y")
        cast("dict[str, Any]", about.payload).clear()

    @hook(Hook.PRE_TOOL_USE)
    def look(about: HookCall) -> None:
        seen.append(about.arguments)

    await asked(scene, meddle, look)
    assert seen == [{"path": "a.md", "lines": ["x"]}]


@pytest.mark.parametrize(
    ("at", "names"),
    [
        (Hook.SESSION_START, ["first"]),
        (Hook.USER_PROMPT_SUBMIT, ["first"]),
        (Hook.PRE_TOOL_USE, ["first"]),
        (Hook.PRE_COMPACT, ["first"]),
        (Hook.POST_TOOL_USE, ["first", "second"]),
        (Hook.STOP, ["first", "second"]),
    ],
)
async def test_a_denial_ends_the_asking(at: Hook, names: list[str], scene: PerformContext) -> None:
    """Nothing could outvote it; where there is nothing to deny, it is as good as silence."""
    first = hook(at, name="first")(lambda _: NO)
    second = hook(at, name="second")(lambda _: None)
    assert [one.name for one in await asked(scene, first, second)] == names


async def test_texts_are_bounded_and_can_be_written_down(scene: PerformContext) -> None:
    """A model reads them at every call, and no journal takes half a pair."""
    answer = HookAnswer(reason="r" * 1_000_000, context="half: \ud83d", arguments='{"a":"\ud83d"}')
    for each in both(lambda _: answer):
        (said,) = await asked(scene, each)
        assert len(said.answer.reason) < 10_100
        assert "990,000 characters cut" in said.answer.reason
        assert (said.answer.context, said.answer.arguments) == ("half: ?", '{"a":"?"}')


# What a hook does wrong


class Mute(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        msg = "and neither can this"
        raise ValueError(msg)


class Secretive:
    """Something that has no repr."""

    def __repr__(self) -> str:
        msg = "no comment"
        raise ValueError(msg)


async def later() -> HookAnswer:
    """An answer, when awaited."""
    return NO


def answer(**fields: object) -> HookAnswer:
    """An answer with *fields* that need not be what they should."""
    return HookAnswer(**cast("dict[str, Any]", fields))


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda _: fail(ValueError("no such city")), "it raised ValueError: no such city"),
        (lambda _: fail(ValueError()), "it raised ValueError"),
        (lambda _: fail(Mute()), "it raised Mute: Mute, whose message cannot be shown (ValueError)"),
        (lambda _: fail(TimeoutError("the gate")), "it raised TimeoutError: the gate"),
        (lambda _: sys.exit(3), "it raised SystemExit: 3"),
        (lambda _: fail(KeyboardInterrupt()), "it raised KeyboardInterrupt"),
        (lambda _: fail(asyncio.CancelledError()), "it cancelled itself"),
        (lambda _: "deny", "it returned 'deny': return a HookAnswer, or None"),
        (lambda _: True, "it returned True: return a HookAnswer, or None"),
        (lambda _: Secretive(), "it raised ValueError: no comment"),
        (lambda _: later(), "it returned something to be awaited: declare it with 'async def'"),
        (lambda _: answer(verdict="maybe"), "it raised ValueError: 'maybe' is not a valid Verdict"),
        (lambda _: answer(reason=5), "its reason must be a str; got 5"),
        (lambda _: answer(context=None), "its context must be a str; got None"),
        (lambda _: answer(go_on="yes"), "its go_on must be a bool; got 'yes'"),
        (
            lambda _: answer(arguments={"a": 1}),
            "its arguments must be the text of a JSON object; got {'a': 1}",
        ),
        (lambda _: answer(arguments="[1]"), "its arguments must be the text of a JSON object; got '[1]'"),
        (lambda _: answer(arguments="{"), "its arguments must be the text of a JSON object; got '{' ("),
        (
            lambda _: answer(arguments='{"a":NaN}'),
            """its arguments must be the text of a JSON object; got '{"a":N""",
        ),
        (
            lambda _: answer(arguments='{"a":' * 100_000),
            "its arguments must be the text of a JSON object; got '{",
        ),
        (lambda _: fail(ValueError("x" * 1_000_000)), "it raised ValueError: xxx"),
        (lambda _: fail(ValueError("\ud83d")), "it raised ValueError: ?"),
    ],
)
async def test_a_hook_at_fault_has_no_say(
    function: Callable[[HookCall], object], fault: str, scene: PerformContext
) -> None:
    """Its fault is told, in few words; the others are asked as if it had said nothing."""
    quiet = hook(Hook.PRE_TOOL_USE, name="quiet")(lambda _: None)
    for each in both(function):
        said, other = await asked(scene, each, quiet)
        assert (said.name, said.answer, said.fault.startswith(fault)) == (each.spec.name, HookAnswer(), True)
        assert len(said.fault) < 10_100
        said.fault.encode()
        assert other == HookSaid(name="quiet")


async def test_a_hook_that_is_not_there_is_a_fault(scene: PerformContext) -> None:
    """A run may be taken over by a program that has lost one."""
    answered = await HookRunner([guard])(request(listen, guard), scene)
    assert answered.said == (
        HookSaid(name="listen", fault="there is no such hook here"),
        HookSaid(name="no-docs", answer=NO),
    )


@pytest.mark.parametrize("payload", ["", "[]", "{", "[" * 100_000])
async def test_a_payload_that_is_none_is_a_fault(payload: str, scene: PerformContext) -> None:
    """Nobody is asked about nothing."""
    (said,) = await asked(scene, guard, payload=payload)
    assert said.fault.startswith("it could not be asked: ")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a hanging sync hook waits for; opened at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_hook_that_takes_too_long_has_no_say(scene: PerformContext, gate: threading.Event) -> None:
    """An async one is stopped and cleans up, a sync one is left behind; the next is asked."""
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

    assert await asked(scene, slow, hang, guard) == (
        HookSaid(name="slow", fault="it took longer than 0.05 s"),
        HookSaid(name="hang", fault="it took longer than 0.05 s"),
        HookSaid(name="no-docs", answer=NO),
    )
    assert cleaned == [True]


async def test_hooks_that_hang_do_not_use_up_the_threads(
    scene: PerformContext, gate: threading.Event
) -> None:
    """Each one left behind makes room for another."""

    @hook(Hook.PRE_TOOL_USE, timeout=0.05)
    def hang(_: HookCall) -> None:
        gate.wait()

    quick, _ = both(lambda _: NO)
    runner = HookRunner([hang, quick])
    await asyncio.gather(*[runner(request(hang), scene) for _ in range(2 * MAX_THREADS)])
    assert (await runner(request(quick), scene)).said == (HookSaid(name="sync", answer=NO),)


async def test_a_hook_without_a_timeout_is_waited_for(scene: PerformContext) -> None:
    """Such as one that asks a person."""

    @hook(Hook.PRE_TOOL_USE, timeout=None)
    async def patient(_: HookCall) -> HookAnswer:
        await asyncio.sleep(0.05)
        return NO

    assert await asked(scene, patient) == (HookSaid(name="patient", answer=NO),)


# Stopping


@pytest.mark.parametrize("why", [None, LEAVING])
async def test_a_cancelled_request_stops_its_hook(why: str | None, scene: PerformContext) -> None:
    """It cleans up, the ones after it are not asked, and the cancellation is passed on."""
    started, cleaned, after = asyncio.Event(), list[bool](), list[HookCall]()

    @hook(Hook.PRE_TOOL_USE)
    async def slow(_: HookCall) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    task = asyncio.create_task(asked(scene, slow, both(after.append)[0]))
    await asyncio.wait_for(started.wait(), PATIENCE)
    task.cancel(why)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert (cleaned, after) == ([True], [])


async def test_a_thread_is_not_waited_for(scene: PerformContext, gate: threading.Event) -> None:
    """Nothing stops it; so the cancellation goes on at once."""
    loop, started = asyncio.get_running_loop(), asyncio.Event()

    @hook(Hook.PRE_TOOL_USE)
    def hang(_: HookCall) -> None:
        loop.call_soon_threadsafe(started.set)
        gate.wait()

    task = asyncio.create_task(asked(scene, hang))
    await asyncio.wait_for(started.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert not gate.is_set()


async def test_a_hook_that_ignores_its_cancel_is_left_behind(scene: PerformContext) -> None:
    """Whoever asks twice waits no longer; the hook is kept until it ends by itself."""
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


async def test_the_end_of_a_session_is_told_to_all() -> None:
    """Whatever they say is not asked for; those at fault are returned."""
    seen: list[HookCall] = []

    @hook(Hook.SESSION_END)
    def first(about: HookCall) -> HookAnswer:
        seen.append(about)
        return NO

    @hook(Hook.SESSION_END)
    def broken(_: HookCall) -> None:
        sys.exit(1)

    @hook(Hook.SESSION_END)
    async def last(about: HookCall) -> None:
        seen.append(about)

    runner = HookRunner([first, listen, broken, last], clock=Noon())
    faults = await runner.tell(Hook.SESSION_END, '{"reason":"closed"}', "s-1")
    assert faults == (HookSaid(name="broken", fault="it raised SystemExit: 1"),)
    told = HookCall(hook=Hook.SESSION_END, session="s-1", payload={"reason": "closed"}, now=12.0)
    assert seen == [told, told]


async def test_telling_can_be_cancelled() -> None:
    """Who closes a session may give up on it."""
    started = asyncio.Event()

    @hook(Hook.SESSION_END)
    async def slow(_: HookCall) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(HookRunner([slow]).tell(Hook.SESSION_END, "{}", "s-1"))
    await asyncio.wait_for(started.wait(), PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)


# Commands


def shell(script: str, at: Hook = Hook.PRE_TOOL_USE, **settings: Any) -> HostHook[Any]:
    """A hook that is a shell script."""
    return command_hook(at, command=["/bin/sh", "-c", script], name="script", **settings)


def echo(text: str) -> str:
    """A script that says *text*."""
    return f"cat <<'END'\n{text}\nEND"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("true", HookAnswer()),
        ("echo; echo noise >&2", HookAnswer()),
        (echo("{}"), HookAnswer()),
        (echo('{"verdict":"ask","reason":"ö"}'), HookAnswer(verdict=Verdict.ASK, reason="ö")),
        (echo('{"arguments":{"a":[1]}}'), HookAnswer(arguments='{"a":[1]}')),
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
    """Nothing, an answer in JSON, or no."""
    assert await asked(scene, shell(script)) == (HookSaid(name="script", answer=said),)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("echo out; echo err >&2; exit 1", "it raised ChildProcessError: exit code 1: err"),
        ("echo out; exit 3", "it raised ChildProcessError: exit code 3: out"),
        ("exit 4", "it raised ChildProcessError: exit code 4: it said nothing"),
        ("kill -9 $$", "it raised ChildProcessError: exit code -9"),
        ("echo no", "it raised ValueError: its output is no answer ("),
        ("echo '[]'", "it raised ValueError: its output is no answer (Expected `object`"),
        (
            echo('{"verdict":"maybe"}'),
            "it raised ValueError: its output is no answer (Invalid enum value 'maybe'",
        ),
        (
            echo('{"decision":"deny"}'),
            "it raised ValueError: its output is no answer (Object contains unknown",
        ),
        (echo('{"arguments":"[]"}'), "its arguments must be the text of a JSON object"),
        ("head -c 3000000 /dev/zero", "it raised ValueError: its output is no answer"),
    ],
)
async def test_a_command_that_fails_is_at_fault(script: str, fault: str, scene: PerformContext) -> None:
    """The fault says how it ended, and what it said."""
    (said,) = await asked(scene, shell(script))
    assert (said.answer, said.fault[: len(fault)]) == (HookAnswer(), fault)


async def test_a_command_that_says_no_at_a_stop_goes_on(scene: PerformContext) -> None:
    """There is nothing to deny; the model reads what is left to do."""
    script = shell("echo 'the tests fail' >&2; exit 2", Hook.STOP)
    (said,) = await asked(scene, script, payload='{"reason":"end_turn","continued":0}')
    assert said == HookSaid(name="script", answer=HookAnswer(go_on=True, reason="the tests fail"))


async def test_a_command_reads_what_it_is_asked_about(scene: PerformContext, tmp_path: Path) -> None:
    """The payload, and whose it is; it runs where it is told to."""
    await asked(scene, shell("cat > seen.json", cwd=tmp_path))
    assert json.loads((tmp_path / "seen.json").read_text()) == {
        "hook": "pre_tool_use",
        "session": "s-1",
        "run": "r-1",
        "call": "call-3",
        "now": 12.0,
        "tool_name": "write",
        "tool_input": {"path": "a.md", "lines": ["x"]},
    }


async def test_a_command_need_not_read(scene: PerformContext) -> None:
    """However much it is told."""
    payload = json.dumps({"tool_name": "write", "tool_input": {"content": "x" * 5_000_000}})
    assert await asked(scene, shell("exit 0"), payload=payload) == (HookSaid(name="script"),)


async def test_a_command_can_rewrite_large_arguments(scene: PerformContext) -> None:
    """Such as those of a call that writes a whole file."""
    payload = json.dumps({"tool_input": {"content": "x" * 1_000_000}})
    program = 'import json,sys; print(json.dumps({"arguments": json.load(sys.stdin)["tool_input"]}))'
    copy = command_hook(Hook.PRE_TOOL_USE, command=[sys.executable, "-c", program])
    (said,) = await asked(scene, copy, payload=payload)
    assert (said.fault, len(said.answer.arguments)) == ("", 1_000_014)


async def test_a_command_that_is_not_there_is_at_fault(scene: PerformContext) -> None:
    """It is named after its program."""
    missing = command_hook(Hook.STOP, command=["/no/such/check.sh"])
    (said,) = await asked(scene, missing, payload="{}")
    assert (said.name, said.fault.startswith("it raised FileNotFoundError: ")) == ("check.sh", True)


def is_alive(pid: int) -> bool:
    """Whether the process *pid* runs; one that is dead and not yet buried does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    return False


async def until(condition: Callable[[], bool]) -> bool:
    """Whether *condition* came true in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_command_dies_with_its_children(
    cancelled: bool, scene: PerformContext, tmp_path: Path
) -> None:  # noqa: FBT001  # a parameter
    """When its time is up, and when the request is cancelled."""
    script = "sleep 1000 & echo $! > child.tmp; mv child.tmp child; wait"
    waiting = shell(script, cwd=tmp_path, timeout=None if cancelled else 1)
    task = asyncio.create_task(asked(scene, waiting))
    assert await until((tmp_path / "child").exists)
    pid = int((tmp_path / "child").read_text())
    if cancelled:
        assert is_alive(pid)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)
    else:
        assert await task == (HookSaid(name="script", fault="it took longer than 1 s"),)
    assert await until(lambda: not is_alive(pid))
