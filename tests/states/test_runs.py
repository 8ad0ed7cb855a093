"""A run of the bare machine, where a table says more than a story: ids, hooks, beginnings, settings."""

from __future__ import annotations

import itertools
import json

import pytest

from turnwheel.effects import errors, events, messages, notices, permissions, records, requests, usage
from turnwheel.effects.config import (
    Compaction,
    Gates,
    Limits,
    ModelSpec,
    Policy,
    Price,
    Steering,
    window_of,
)
from turnwheel.effects.history import CallPiece, History
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.engine.core.codec import decode, encode
from turnwheel.engine.core.machine import Machine, questions
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.states.context import Context
from turnwheel.testing.harness import TOOLS, MachineHarness, call, calls, config
from turnwheel.testing.state_fixtures import PLACES, run_at

# Calls


@pytest.mark.parametrize("wire", [("call_0", "call_0"), ("", "")])
def test_ids_of_providers_may_repeat(wire: tuple[str, str]) -> None:
    """Equal and empty wire ids are told apart by our own; each result has the wire id of its call."""
    run = MachineHarness()
    run.say(*[CallPiece(number, one, "look", '{"path": "a"}') for number, one in enumerate(wire)])
    run.end("look", "first")
    run.end("look", "second")
    assert [content for _, _, content in run.results] == ["first", "second"]
    results = run.machine.memory.history[-1].results
    assert len({result.call for result in results}) == 2
    assert tuple(result.wire_id for result in results) == wire


def test_what_a_child_is_asked_can_be_written_down() -> None:
    """Half a surrogate pair, which JSON can spell and UTF-8 cannot, does not reach the journal of a child."""
    run = MachineHarness()
    run.say(CallPiece(0, "w", "send", '{"agent": "kid", "prompt": "a\\ud83d b"}'))
    (request,) = run.got(requests.RunAgent)
    assert decode(encode(request, requests.Request), requests.Request) == request
    assert request.prompt.startswith("a")


@pytest.mark.parametrize("place", PLACES)
def test_only_our_own_id_of_a_call_of_the_batch_gives_it_up(place: str) -> None:
    run = run_at(place)
    before = run.machine.state, run.machine.memory
    for name in ("r-999", "wire-0", "r-1", ""):
        run.feed(events.CallCancelled(at=50.0, call=name))
        assert run.effects == (notices.Ignored(event="CallCancelled", state=run.label, at=run.now),)
    assert (run.machine.state, run.machine.memory) == before


@pytest.mark.parametrize("how", Steering)
@pytest.mark.parametrize("limits", [Limits(turns=1), Limits(tokens=1_000)])
def test_over_a_limit_a_steer_is_left_for_the_next_run(how: Steering, limits: Limits) -> None:
    run = MachineHarness(config(limits=limits))
    run.steer("left", how)
    run.say("done", usage=usage.Usage(input=990, output=10))
    assert run.reason in {"max_turns", "token_budget"}
    # A limit of the run's own, which `reason` tells, and none of the session.
    assert [ended.detail for ended in run.all(notices.RunEnded)] == [""]
    assert [taken.ids for taken in run.all(notices.InputTaken)] == [("r-prompt",)]
    assert [mail.text for mail in run.machine.memory.session.mail] == ["left"]


@pytest.mark.parametrize("limits", [Limits(tokens=20_000), Limits(usd="0.05"), Limits(tokens=9_000, usd=9)])
def test_answers_as_long_as_they_may_be_never_exceed_a_budget(limits: Limits) -> None:
    """Where each token is as dear as it can be, and an estimate of what is asked is right."""
    price = Price(input=1, cache_write="1.25", output=4, reasoning=5)
    run = MachineHarness(config(model=ModelSpec(name="m", price=price, max_output=900), limits=limits))
    while not run.machine.done:
        asked = Context(run.machine.config, run.machine.memory, events.Entered(at=0.0)).asked
        most = run.all(requests.CallModel)[-1].max_output or 900
        used = usage.Usage(input=asked, cache_write=asked, output=most, reasoning=most)
        run.say(call(0, "look", path=str(asked)), usage=used)
        if not run.machine.done:
            run.end("look", "seen")
    spent = run.machine.memory.spent
    assert run.reason in {"token_budget", "max_budget"}
    assert spent.turns > 3
    assert spent.usage.total <= (limits.tokens or 10**9)
    assert spent.cost <= (limits.usd or 10**9)


# Hooks

PROSE = HookSpec(name="prose", hook=Hook.PRE_TOOL_USE, tool="wr*", where=(("path", "*.md"),))
ANY = HookSpec(name="any", hook=Hook.PRE_TOOL_USE, tool="[wn]*")
ETC = HookSpec(name="etc", hook=Hook.PRE_TOOL_USE, where=(("path", "/etc/*"),))
AFTER = HookSpec(name="after", hook=Hook.POST_TOOL_USE)


@pytest.mark.parametrize(
    ("tool", "path", "asked"),
    [
        ("write", "a.md", ("prose", "any")),
        ("write", "a.py", ("any",)),
        ("note", "a.md", ("any",)),
        ("write", "docs/../a.md", ("prose", "any")),
        ("write", "/etc/a", ("any", "etc")),
        ("write", "/srv/../etc/a.md", ("prose", "any", "etc")),
        ("peek", "a.md", ()),
    ],
)
def test_only_the_hooks_that_match_are_asked(tool: str, path: str, asked: tuple[str, ...]) -> None:
    """By the tool and its arguments, however a path is written, in the order they are configured."""
    run = MachineHarness(config(hooks=(PROSE, ANY, ETC, AFTER)))
    run.say(call(0, tool, path=path))
    assert run.asked == ([("pre_tool_use", asked)] if asked else [])


def test_a_hook_is_told_of_a_call_as_it_would_be_typed() -> None:
    run = MachineHarness(config(hooks=(PROSE,)))
    run.say(call(0, "write", path="grün.md"))
    (asked,) = run.got(requests.FireHook)
    assert asked.payload == '{"tool_name": "write", "tool_input": {"path": "grün.md"}}'


@pytest.mark.parametrize("gates", Gates)
def test_hooks_that_are_for_what_was_made_of_it_are_asked_once_too(gates: Gates) -> None:
    """What the first one said still counts, and the last rewriting holds."""
    run = MachineHarness(config(hooks=(ANY, ETC), policy=Policy(gates=gates)))
    run.say(call(0, "note", path="a"))
    run.answer(HookAnswer(verdict="ask", reason="look", arguments='{"path": "/etc/x"}'))
    assert run.asked == [("pre_tool_use", ("etc",))]
    assert json.loads(run.got(requests.FireHook)[0].payload)["tool_input"] == {"path": "/etc/x"}
    run.answer(HookAnswer(arguments='{"path": "/etc/y"}'))
    (question,) = run.got(requests.AskApproval)
    assert (question.why, question.arguments) == ("hook: any: look", '{"path": "/etc/y"}')


SAID = (permissions.Verdict.DENY, permissions.Verdict.ASK, permissions.Verdict.ALLOW, None)


@pytest.mark.parametrize("order", list(itertools.permutations(SAID, 3)))
def test_the_strictest_hook_holds_in_any_order(order: tuple[permissions.Verdict | None, ...]) -> None:
    """A denial beats a question, a question beats a yes, a yes beats silence."""
    names = ("one", "two", "three")
    run = MachineHarness(config(hooks=tuple([HookSpec(name=name, hook=Hook.PRE_TOOL_USE) for name in names])))
    run.say(*calls("write"))
    run.answer(*[HookAnswer(verdict=verdict) for verdict in order])
    strictest = next(one for one in SAID if one in order)
    why = f"hook: {names[order.index(strictest)]}"
    assert run.judged == [("write", strictest, "hook")]
    assert [question.why for question in run.got(requests.AskApproval)] == (
        [why] if strictest is permissions.Verdict.ASK else []
    )
    assert run.started == (["write"] if strictest is permissions.Verdict.ALLOW else [])


# Modes


@pytest.mark.parametrize(("from_parent", "widest"), [(True, "plan"), (False, "bypass")])
def test_only_a_parent_says_how_wide_the_mode_of_its_child_may_be(*, from_parent: bool, widest: str) -> None:
    run = MachineHarness(config(agent="kid"))
    changes: list[records.Change] = [records.SetMode(mode="plan"), records.SetThinking(tokens=2_000)]
    for number, change in enumerate(changes):
        run.feed(
            events.ControlReceived(
                at=run.now + 1.0, id=f"change-{number}", change=change, from_parent=from_parent
            )
        )
    assert (run.machine.memory.session.mode, run.machine.memory.session.ceiling) == ("plan", widest)


# How a run begins


def following(run: Machine | None, *posted: events.Post, **settings: object) -> MachineHarness:
    """The run that follows *run*, under these *settings*, on what was *posted*."""
    return MachineHarness(Machine.open(RunOpened(at=100.0, run="r2", config=config(**settings)), run, posted))


def test_a_run_says_what_it_works_with_before_anything_else() -> None:
    run = MachineHarness(config(policy=Policy(mode="plan"), cwd="/srv", instructions=("AGENTS.md",)))
    tools = ("look", "peek", "write", "edit", "note", "send", "hire")
    mode = permissions.PermissionMode.PLAN
    started = notices.RunStarted(
        run="r", provider="wire", model="wire:model", tools=tools, at=0.0, mode=mode, cwd="/srv"
    )
    assert (run.told[0], run.all(notices.RunStarted)) == (started, [started])


def test_a_conversation_from_elsewhere_is_gone_on_with() -> None:
    hooks = (HookSpec(name="usher", hook=Hook.SESSION_START),)
    history = History.of(messages.user("before"))
    run = MachineHarness(Machine.start(config(hooks=hooks), "hello", run="r2", history=history))
    assert json.loads(run.got(requests.FireHook)[0].payload) == {"source": "resume"}
    run.answer()
    (request,) = run.got(requests.CallModel)
    assert (request.id, request.view.length, len(history)) == ("r2-2", 2, 1)


def test_joined_prompts_have_the_time_of_the_last_and_all_files() -> None:
    one, two = (messages.Binary(media_type="image/png", data=data) for data in (b"1", b"2"))
    run = following(
        None,
        events.UserSent(at=1.0, id="a", text="a", sender="ann", files=(one,)),
        events.UserSent(at=4.0, id="b", text="b", sender="ann", files=(two,)),
        policy=Policy(coalesce=9.0),
    )
    assert list(run.machine.memory.history) == [messages.user("a\nb", 4.0, (one, two))]
    assert [taken.ids for taken in run.all(notices.InputTaken)] == [("a", "b")]


def test_a_run_on_nothing_but_a_steer_can_be_refused() -> None:
    """There is nothing to answer then, and nothing to go on with."""
    steer = events.UserSteered(at=1.0, id="s", text="left")
    run = following(None, steer, hooks=(HookSpec(name="porter", hook=Hook.USER_PROMPT_SUBMIT),))
    run.answer(HookAnswer(verdict="deny", reason="not today"))
    assert (run.reason, run.talk) == ("blocked", [])


def test_a_run_on_nothing_goes_on_with_the_conversation() -> None:
    """Nothing is said to have come in, and no hook is asked about it."""
    before = MachineHarness()
    before.say(*calls("fly"))
    before.interrupt()
    before.fail(events.Failure.CANCELLED)
    run = following(before.machine, hooks=(HookSpec(name="porter", hook=Hook.USER_PROMPT_SUBMIT),))
    assert (run.label, run.all(notices.InputTaken), run.all(requests.FireHook)) == ("streaming", [], [])


# Settings


def test_a_conversation_with_nothing_old_is_left_alone_until_there_is_something() -> None:
    """However large what stands around it: that is no failure."""
    run = MachineHarness(config(model=ModelSpec(name="wire:model", window=4_000)))
    for path, label in [*[(str(n), "streaming") for n in range(4)], ("b" * 6_000, ""), ("c", "")]:
        assert run.machine.memory.session.compaction_failures == 0
        run.say(call(0, "note", path=path), usage=usage.Usage(input=3_900))
        run.end("note")
        assert run.label == label or not label
    assert run.label == "compacting.summary"


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("openai:gpt-5-mini", 272_000),
        ("gpt-4o", 128_000),
        ("anthropic:claude-sonnet-4-5", 200_000),
        ("openai:anthropic/claude-sonnet-4", 200_000),
        ("gemini:gemini-3-pro", 1_048_576),
        ("gemini:gemma-3-27b", 200_000),
        ("openrouter:deepseek/deepseek-r1:free", 128_000),
        ("ollama:deepseek-r1:8b", 128_000),
        ("groq:openai/gpt-oss-20b", 131_072),
        ("azure:gpt-4o", 128_000),
        ("qwen3:8b", 200_000),
        ("a name of one's own", 200_000),
    ],
)
def test_a_window_is_what_is_known_of_a_name_unless_it_is_configured(name: str, window: int) -> None:
    assert ModelSpec(name=name).window == window_of(name) == window
    assert ModelSpec(name=name, window=7).window == 7


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"fallback": "other"}, r"fallback must be the name of one of .*\['wire:model'\].*'other'"),
        (
            {"compaction": Compaction(keep=0.8)},
            r"compaction\.keep must be less than policy\.compact_at, 0\.8",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, object], error: str) -> None:
    with pytest.raises(errors.ConfigError, match=error):
        config(**settings)


# Questions

PATIENT = Policy(answer_within=60.0)


def test_a_question_and_its_answer_are_shown() -> None:
    run = MachineHarness(config(policy=PATIENT))
    run.say(call(0, "write", path="a"))
    (question,), (shown,) = run.got(requests.AskApproval), run.got(notices.ApprovalRequested)
    assert (question.tool, question.arguments) == ("write", '{"path": "a"}')
    assert question.why == "tool: it may change anything"
    assert (shown.request, shown.call, shown.tool) == (question.id, question.call, question.tool)
    assert (shown.arguments, shown.why) == (question.arguments, question.why)
    assert shown.due == run.now + 60.0
    decision = events.Approve(arguments='{"path": "b"}')
    run.decide("write", decision, by="anna, by phone")
    assert run.got(notices.ApprovalResolved) == [
        notices.ApprovalResolved(request=question.id, decision=decision, by="anna, by phone", at=run.now)
    ]
    assert [judged.detail for judged in run.got(notices.CallJudged)] == ["with other arguments"]
    assert run.machine.memory.history[1].calls[0].arguments == '{"path": "a"}'


def test_a_question_times_out_where_questions_have_no_deadline_any_more() -> None:
    """A process that goes on may be configured in another way than the one that asked."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    run = MachineHarness(Machine(config(), run.machine.state, run.machine.memory))
    run.expire("write")
    assert [outcome for _, outcome in run.outcomes] == ["denied"]


@pytest.mark.parametrize(("late", "started"), [(-0.5, ["write"]), (0.0, []), (0.5, [])])
def test_a_yes_counts_before_its_deadline_and_not_at_it(late: float, started: list[str]) -> None:
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    (question,), (timer,) = run.got(requests.AskApproval), run.got(requests.SetTimer)
    run.feed(events.ApprovalGiven(at=timer.due + late, request=question.id, decision=events.Approve()))
    assert run.started == started


def test_a_yes_for_good_answers_only_what_it_covers_whatever_else_would_be_allowed_by_now() -> None:
    run = MachineHarness(config(policy=Policy(concurrency="parallel_reads")))
    run.say(*calls("write", "edit"))
    run.change(records.SetMode(mode=permissions.PermissionMode.BYPASS))
    run.decide("write", events.ApproveAlways())
    assert run.started == ["write"]
    assert [one.tool for one in questions(run.machine)] == ["edit"]


def test_a_yes_for_good_answers_no_question_about_a_tool_that_is_gone() -> None:
    run = MachineHarness(config(policy=Policy(concurrency="parallel_reads")))
    run.say(*calls("write", "edit"))
    less = config(tools=tuple([tool for tool in TOOLS if tool.name != "edit"]))
    run = MachineHarness(Machine(less, run.machine.state, run.machine.memory))
    run.decide("write", events.ApproveAlways())
    assert run.started == ["write"]
    assert [one.tool for one in questions(run.machine)] == ["edit"]


@pytest.mark.parametrize("how", ["interrupt", "cancel", "steer"])
def test_a_question_that_is_withdrawn_takes_its_deadline_along(how: str) -> None:
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    (question,), (timer,) = run.got(requests.AskApproval), run.got(requests.SetTimer)
    if how == "interrupt":
        run.interrupt()
    elif how == "cancel":
        run.cancel("write")
    else:
        run.steer("left")
    assert run.got(requests.Cancel) == [
        requests.Cancel(request=question.id),
        requests.Cancel(request=timer.id),
    ]
    assert run.got(notices.ApprovalWithdrawn) == [notices.ApprovalWithdrawn(request=question.id, at=run.now)]


# Changed settings

OTHER = records.SetModel(model="wire:other")


@pytest.mark.parametrize(
    "change",
    [
        OTHER,
        records.SetMode(mode=permissions.PermissionMode.BYPASS),
        records.SetThinking(tokens=2_000),
        records.SetThinking(tokens=None),
    ],
)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "done"])
def test_a_setting_can_be_changed_wherever_a_run_is(place: str, change: records.Change) -> None:
    """It holds at once, moves nothing, answers nothing and asks nothing; the same post again is ignored."""
    run = run_at(place)
    state, history = run.machine.state, run.machine.memory.history
    event = events.ControlReceived(at=50.0, id="c", change=change)
    run.feed(event)
    assert run.effects == (change, notices.SettingChanged(change=change, at=run.now))
    assert run.machine.state == state
    assert run.machine.memory.history is history
    session = run.machine.memory.session
    held = {
        records.SetModel: session.model,
        records.SetMode: session.mode,
        records.SetThinking: session.thinking,
    }[type(change)]
    assert (
        held
        == {
            records.SetModel: "wire:other",
            records.SetMode: permissions.PermissionMode.BYPASS,
            records.SetThinking: change,
        }[type(change)]
    )
    run.feed(event)
    assert run.got(notices.Ignored) == [notices.Ignored(event="ControlReceived", state=run.label, at=run.now)]


def test_nothing_is_changed_in_a_run_that_is_over() -> None:
    run = run_at("done")
    memory = run.machine.memory
    run.change(OTHER)
    assert run.effects == (notices.Ignored(event="ControlReceived", state="done", at=run.now),)
    assert run.machine.memory is memory


def test_a_model_without_a_name_is_refused() -> None:
    run = MachineHarness()
    change = records.SetModel(model=" ")
    run.change(change)
    assert run.effects == (notices.SettingRefused(change=change, reason="a model has a name", at=run.now),)
    assert run.machine.memory.session.model == "wire:model"
