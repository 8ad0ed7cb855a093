"""How a run begins: the session's instructions and hooks, once, and the prompt, if it may come in."""

from __future__ import annotations

import json

import pytest

from turnwheel.effects.config import Config, Policy
from turnwheel.effects.events import (
    Failure,
    HookAnswered,
    InstructionsRead,
    Post,
    UserSent,
    UserSteered,
)
from turnwheel.effects.history import History
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Binary, user
from turnwheel.effects.notices import (
    Ignored,
    InputBlocked,
    InputTaken,
    RunStarted,
    Warned,
)
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.requests import (
    CallModel,
    Cancel,
    FireHook,
    ReadInstructions,
)
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.engine.machine import Machine
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import MachineHarness, calls, config

USHER = HookSpec(name="usher", hook=Hook.SESSION_START)
PORTER = HookSpec(name="porter", hook=Hook.USER_PROMPT_SUBMIT)
NO = HookAnswer(verdict="deny", reason="not today")
FILES = ("AGENTS.md", "NOTES.md")


def following(settings: Config, before: Machine | None, *posted: Post) -> MachineHarness:
    """The run that follows the one *before*, on what that left and what was *posted* since."""
    opened = RunOpened(at=100.0, run="r2", config=settings)
    return MachineHarness(Machine.open(opened, before, posted))


# What is said first


def test_a_run_says_what_it_works_with() -> None:
    """The first notice of each run, before anything is asked of anybody."""
    run = MachineHarness(
        config(policy=Policy(mode="plan"), cwd="/srv", hooks=(USHER, PORTER), instructions=FILES)
    )
    assert run.told[0] == RunStarted(
        run="r",
        model="wire:model",
        tools=("look", "peek", "write", "edit", "note", "send", "hire"),
        at=0.0,
        mode=PermissionMode.PLAN,
        cwd="/srv",
    )
    assert len(run.all(RunStarted)) == 1


# The session's instructions


def test_instructions_are_read_before_anything_else_and_stand_behind_the_system_prompt() -> None:
    """They are the same in every request of the session: what is sent first does not change."""
    run = MachineHarness(config(system="You help.", instructions=FILES))
    assert run.got(ReadInstructions) == [ReadInstructions(id=run.machine.state.open[0], files=FILES)]
    assert run.label == "thinking.reading"
    run.read("Be brief.")
    assert [request.system for request in run.got(CallModel)] == ["You help.\n\nBe brief."]
    run.say("done")
    again = following(config(system="You help.", instructions=FILES), run.machine, sent("again"))
    assert [request.system for request in again.got(CallModel)] == ["You help.\n\nBe brief."]


@pytest.mark.parametrize(
    ("system", "text", "expected"),
    [("", "", ""), ("You help.", "", "You help."), ("", "Be brief.", "Be brief.")],
)
def test_instructions_that_say_nothing_add_nothing(system: str, text: str, expected: str) -> None:
    """No blank lines are sent for what is not there."""
    run = MachineHarness(config(system=system, instructions=FILES))
    run.read(text)
    assert [request.system for request in run.got(CallModel)] == [expected]


def test_what_cannot_be_read_is_told_and_the_run_goes_on() -> None:
    """A file that is too long or unreadable is no reason not to work."""
    run = MachineHarness(config(instructions=FILES))
    run.read("Be brief.", "NOTES.md is a directory")
    assert run.got(Warned) == [Warned(text="NOTES.md is a directory")]
    assert run.label == "streaming"


def test_instructions_that_say_nothing_are_not_read_again() -> None:
    """That nothing stood in the files is known for the whole session."""
    run = MachineHarness(config(instructions=FILES))
    run.read("")
    run.say("done")
    assert following(config(instructions=FILES), run.machine, sent("again")).all(ReadInstructions) == []


# The session's hooks


@pytest.mark.parametrize(
    ("history", "source"), [(History.of(), "startup"), (History.of(user("before")), "resume")]
)
def test_hooks_are_asked_whether_a_session_may_begin(history: History, source: str) -> None:
    """They are told what it begins with; what they add is for the first request."""
    run = MachineHarness(Machine.start(config(hooks=(USHER, PORTER)), "hello", run="r", history=history))
    assert run.asked == [("session_start", ("usher",))]
    assert json.loads(run.got(FireHook)[0].payload) == {"source": source}
    run.answer(HookAnswer(context="the tests are red"))
    assert run.asked == [("user_prompt_submit", ("porter",))]
    run.answer(HookAnswer(context="it is late"))
    (request,) = run.got(CallModel)
    assert request.instructions == "the tests are red\nit is late"


def test_a_session_begins_once() -> None:
    """The runs after the first one read no instructions and ask no hooks about the session."""
    settings = config(hooks=(USHER, PORTER), instructions=FILES)
    run = MachineHarness(settings)
    run.read("Be brief.")
    run.answer()
    run.answer()
    run.say("done")
    again = following(settings, run.machine, sent("again"))
    assert again.asked == [("user_prompt_submit", ("porter",))]
    assert again.all(ReadInstructions) == []


def test_a_session_that_may_not_begin_is_asked_about_again() -> None:
    """Its prompt does not come in; the next one reads the instructions and asks the hooks anew."""
    settings = config(hooks=(USHER,), instructions=FILES)
    run = MachineHarness(settings)
    run.read("Be brief.")
    run.answer(NO)
    assert (run.reason, run.talk) == ("blocked", [])
    assert run.got(InputBlocked) == [InputBlocked(ids=("r-prompt",), reason="usher: not today")]
    assert run.machine.memory.session.mail == ()
    again = following(settings, run.machine, sent("again"))
    assert len(again.all(ReadInstructions)) == 1
    again.read("Be very brief.")
    assert again.asked == [("session_start", ("usher",))]
    again.answer()
    assert [request.system for request in again.got(CallModel)] == ["Be very brief."]
    assert again.talk == [("user", "again")]


# The prompt


def test_hooks_are_asked_about_a_prompt() -> None:
    """They read it before it is part of the conversation."""
    run = MachineHarness(config(hooks=(PORTER,)), "what is new?")
    (request,) = run.got(FireHook)
    assert json.loads(request.payload) == {"prompts": ["what is new?"]}
    assert (run.label, run.talk) == ("thinking.admitting", [])
    run.answer()
    assert run.talk == [("user", "what is new?")]
    (taken,) = run.got(InputTaken)
    assert (taken.ids, [message.text for message in taken.messages]) == (("r-prompt",), ["what is new?"])


def test_a_prompt_that_a_hook_denies_does_not_come_in() -> None:
    """The run ends and says why; nothing is sent to a model, and nothing of it stays."""
    run = MachineHarness(config(hooks=(PORTER,)))
    run.answer(NO)
    assert run.reason == "blocked"
    assert run.got(InputBlocked) == [InputBlocked(ids=("r-prompt",), reason="porter: not today")]
    assert (run.talk, run.all(CallModel), run.all(InputTaken)) == ([], [], [])
    assert run.machine.memory.session.mail == ()


@pytest.mark.parametrize("answer", ["it hangs", HookAnswer(verdict="ask"), HookAnswer(verdict="allow")])
def test_a_prompt_comes_in_unless_a_hook_denies_it(answer: HookAnswer | str) -> None:
    """A fault is no denial, and about a prompt nobody else can be asked."""
    run = MachineHarness(config(hooks=(PORTER,)))
    run.answer(answer)
    assert run.talk == [("user", "hello")]
    assert run.label == "streaming"


@pytest.mark.parametrize("stage", ["reading", "opening", "admitting"])
def test_an_interrupt_before_the_prompt_came_in_leaves_no_trace_of_it(stage: str) -> None:
    """What was asked is withdrawn, the prompt is said to be blocked, and a late answer changes nothing."""
    run = MachineHarness(config(hooks=(USHER, PORTER), instructions=FILES))
    if stage != "reading":
        run.read("Be brief.")
    if stage == "admitting":
        run.answer()
    assert run.label == f"thinking.{stage}"
    (request,) = run.machine.state.open
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=request)]
    assert run.got(InputBlocked) == [
        InputBlocked(ids=("r-prompt",), reason=model_messages.INTERRUPTED_BEFORE)
    ]
    assert (run.reason, run.talk, run.machine.memory.session.mail) == ("interrupted", [], ())
    for late in (
        HookAnswered(at=9.0, request=request),
        InstructionsRead(at=9.0, request=request, text="Be brief."),
    ):
        run.feed(late)
        assert run.effects == (Ignored(event=type(late).__name__, state="done"),)


# Prompts that wait


def sent(text: str, at: float = 1.0, sender: str = "", files: tuple[Binary, ...] = ()) -> UserSent:
    """A prompt that somebody sent."""
    return UserSent(at=at, id=f"{sender}-{text}", text=text, sender=sender, files=files)


def steered(text: str, at: float = 1.0) -> UserSteered:
    """Something that somebody said into a run."""
    return UserSteered(at=at, id=f"steer-{text}", text=text)


def begun(coalesce: float, *posted: Post) -> MachineHarness:
    """The first run of a session, on what was *posted*."""
    return following(config(policy=Policy(coalesce=coalesce)), None, *posted)


def test_a_run_takes_the_prompt_that_came_first_and_leaves_the_others() -> None:
    """Each gets a run of its own, in the order they came."""
    run = begun(0.0, sent("one"), sent("two", 2.0), sent("three", 3.0))
    assert run.talk == [("user", "one")]
    run.say("done")
    again = following(run.machine.config, run.machine)
    assert again.talk == [("user", "one"), ("assistant", "done"), ("user", "two")]
    assert [mail.text for mail in again.machine.memory.session.mail] == ["three"]


@pytest.mark.parametrize(
    ("window", "posted", "taken"),
    [
        (0.0, [sent("a", 1.0, "ann"), sent("b", 2.0, "ann")], ["a"]),
        (0.0, [sent("a", 1.0, "ann"), sent("b", 1.0, "ann")], ["a"]),
        (2.0, [sent("a", 1.0, "ann"), sent("b", 3.0, "ann")], ["a\nb"]),
        (2.0, [sent("a", 1.0, "ann"), sent("b", 3.1, "ann")], ["a"]),
        (2.0, [sent("a", 1.0, "ann"), sent("b", 3.0, "ann"), sent("c", 5.0, "ann")], ["a\nb\nc"]),
        (2.0, [sent("a", 1.0, "ann"), sent("b", 2.0, "ben")], ["a"]),
        (2.0, [sent("a", 1.0, "ann"), sent("b", 1.5, "ben"), sent("c", 2.0, "ann")], ["a\nc"]),
        (2.0, [sent("a"), sent("b")], ["a"]),
        (2.0, [sent("a", 5.0, "ann"), sent("b", 4.0, "ann")], ["a"]),
    ],
)
def test_prompts_of_one_sender_that_follow_each_other_closely_are_one(
    window: float, posted: list[Post], taken: list[str]
) -> None:
    """Within the window of the one before; never with those of others, nor of nobody in particular."""
    run = begun(window, *posted)
    assert [text for _, text in run.talk] == taken


def test_joined_prompts_have_the_time_of_the_last_and_all_files() -> None:
    """One message, as if it had been sent at once."""
    one, two = (Binary(media_type="image/png", data=data) for data in (b"1", b"2"))
    run = begun(9.0, sent("a", 1.0, "ann", (one,)), sent("b", 4.0, "ann", (two,)))
    assert list(run.machine.memory.history) == [user("a\nb", 4.0, (one, two))]
    (taken,) = run.all(InputTaken)
    assert taken.ids == ("ann-a", "ann-b")


def test_hooks_read_all_prompts_that_are_joined() -> None:
    """And where they deny, none of them comes in."""
    settings = config(hooks=(PORTER,), policy=Policy(coalesce=9.0))
    posted = [sent("a", 1.0, "ann"), sent("b", 2.0, "ann"), sent("c", 3.0, "ben")]
    run = following(settings, None, *posted)
    assert json.loads(run.got(FireHook)[0].payload) == {"prompts": ["a", "b"]}
    run.answer(NO)
    assert run.got(InputBlocked) == [InputBlocked(ids=("ann-a", "ann-b"), reason="porter: not today")]
    assert [mail.text for mail in run.machine.memory.session.mail] == ["c"]


def test_a_run_on_nothing_goes_on_with_the_conversation() -> None:
    """Nothing is said to have come in, and no hook is asked about it."""
    settings = config(hooks=(PORTER,))
    before = MachineHarness(config())
    before.say(*calls("fly"))
    before.interrupt()
    before.fail(Failure.CANCELLED)
    run = following(settings, before.machine)
    assert (run.label, run.all(InputTaken), run.all(FireHook)) == ("streaming", [], [])


def test_what_was_said_into_a_run_that_is_over_opens_the_next_one() -> None:
    """Before or behind the prompt, as it was said, each a message of its own; nothing said is lost."""
    run = begun(0.0, steered("not that"), sent("one", 2.0), steered("this", 3.0), sent("two", 4.0))
    assert run.talk == [("user", "not that"), ("user", "one"), ("user", "this")]
    assert [mail.text for mail in run.machine.memory.session.mail] == ["two"]


def test_a_run_on_nothing_but_what_was_said_into_one_that_is_over_can_be_refused() -> None:
    """There is nothing to answer then, and nothing to go on with."""
    run = following(config(hooks=(PORTER,)), None, steered("left"))
    run.answer(NO)
    assert (run.reason, run.talk) == ("blocked", [])
