"""What a user relies on while tools run and children work."""

from __future__ import annotations

import pytest

from turnwheel.effects.config import (
    Approval,
    Concurrency,
    Config,
    Limits,
    Policy,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    ToolFinished,
    ToolProgressed,
)
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import (
    ApprovalWithdrawn,
    CallSettled,
    Ignored,
    ToolOutput,
)
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.pieces import CallPiece
from turnwheel.effects.records import SetMode
from turnwheel.effects.requests import (
    AskApproval,
    Cancel,
    Request,
    RunAgent,
    RunTool,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.codec import decode, encode
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import (
    TEST_MODEL,
    TOOLS,
    MachineHarness,
    call,
    calls,
    config,
)

PARALLEL = Policy(concurrency=Concurrency.PARALLEL_READS)


# One after the other, or reads together


def test_calls_run_one_at_a_time_in_their_order() -> None:
    """Serial is the default: the next call starts when the one before it has ended."""
    run = MachineHarness()
    run.say(call(0, "note", path="a"), call(1, "look", path="b"), call(2, "note", path="c"))
    assert run.started == ["note"]
    run.end("note")
    assert run.started == ["look"]
    run.end("look")
    assert run.started == ["note"]
    run.end("note")
    assert [tool for tool, _ in run.outcomes] == ["note", "look", "note"]


def test_a_serial_batch_asks_when_a_calls_turn_has_come() -> None:
    """A question about the second call is not asked while the first one runs."""
    run = MachineHarness()
    run.say(call(0, "look", path="a"), call(1, "write", path="b"))
    assert run.label == "executing"
    run.end("look")
    assert run.label == "confirming"


def test_neighbouring_reads_run_together_and_a_write_waits() -> None:
    """Reads before a write run at once, the write after them, reads behind it after it."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(*calls("look", "look", "note", "look"))
    assert run.started == ["look", "look"]
    run.end("look")
    assert run.started == []
    run.end("look")
    assert run.started == ["note"]
    run.end("note")
    assert run.started == ["look"]


def test_results_are_in_call_order_whatever_ends_first() -> None:
    """The model reads the results in the order of its calls."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(call(0, "look", path="a"), call(1, "look", path="b"))
    first, second = run.machine.state.open
    run.feed(ToolFinished(at=2.0, request=second, content="b"))
    run.feed(ToolFinished(at=3.0, request=first, content="a"))
    assert [content for _, _, content in run.results] == ["a", "b"]


def test_a_question_does_not_hold_up_other_reads() -> None:
    """All are asked about ahead; what needs nobody runs meanwhile, and the agent is said to be confirming."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(call(0, "peek", path="a"), call(1, "look", path="b"), call(2, "write", path="c"))
    assert run.started == ["look"]
    assert [question.tool for question in run.got(AskApproval)] == ["peek", "write"]
    run.end("look")
    assert run.label == "confirming"


def test_an_approved_write_waits_for_its_turn() -> None:
    """Yes means that it may, not that it does at once; nobody is asked again."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(call(0, "look", path="a"), call(1, "write", path="b"))
    run.decide("write", Approve())
    assert run.started == []
    assert run.label == "executing"
    run.end("look")
    assert run.started == ["write"]
    assert len(run.all(AskApproval)) == 1


@pytest.mark.parametrize("tools", [("look", "look", "look"), ("peek", "look", "look")])
def test_no_more_calls_are_at_work_than_allowed(tools: tuple[str, ...]) -> None:
    """The limit holds for a call that was approved late, too."""
    run = MachineHarness(config(policy=Policy(concurrency=Concurrency.PARALLEL_READS, max_parallel=1)))
    run.say(*calls(*tools))
    assert run.started == ["look"]
    if "peek" in tools:
        run.decide("peek", Approve())
        assert run.started == []
    run.end("look")
    assert len(run.started) == 1


def test_a_call_that_is_settled_at_once_leaves_its_place_to_the_next() -> None:
    """A child that does not exist takes no room from a read behind it."""
    scout = ToolSpec(name="scout", kind=ToolKind.AGENT, side_effect=SideEffect.READ_ONLY)
    policy = Policy(concurrency=Concurrency.PARALLEL_READS, max_parallel=1)
    run = MachineHarness(Config(model=TEST_MODEL, tools=(scout, *TOOLS), policy=policy))
    run.say(call(0, "scout", agent="nobody", prompt="go"), call(1, "look", path="a"))
    assert run.started == ["look"]


def test_a_running_tool_may_say_how_far_it_is() -> None:
    """It is passed on and changes nothing; nobody listens to a tool that has ended."""
    run = MachineHarness()
    run.say(call(0, "look", path="a"))
    (request,) = run.machine.state.open
    before = run.machine.state
    run.feed(ToolProgressed(at=2.0, request=request, text="half way"))
    assert [notice.text for notice in run.got(ToolOutput)] == ["half way"]
    assert run.machine.state == before
    run.end("look")
    run.feed(ToolProgressed(at=4.0, request=request, text="late"))
    assert run.got(Ignored)


# What cannot run


def test_a_tool_that_is_not_there_is_an_error_for_the_model() -> None:
    """It is told what there is, and the other calls run."""
    run = MachineHarness()
    run.say(call(0, "fly", to="moon"), call(1, "look", path="a"))
    assert run.started == ["look"]
    run.end("look")
    (_, outcome, content), _ = run.results
    assert outcome == "error"
    assert content.startswith("Tool not found: fly")
    assert "look" in content


@pytest.mark.parametrize(
    "arguments",
    ['{"path": "a"', "[1]", '"a"', "{}", '{"path": 1}', '{"path": NaN}', "", "null", "{'path': 'a'}"],
)
def test_arguments_that_do_not_fit_are_an_error_for_the_model(arguments: str) -> None:
    """The tool does not run, nobody is asked, and the model reads why."""
    run = MachineHarness()
    run.say(CallPiece(0, "w", "write", arguments))
    assert run.all(RunTool) + run.all(AskApproval) == []
    ((_, outcome, content),) = run.results
    assert outcome == "error"
    assert content.startswith("Invalid arguments for write: ")
    assert run.machine.memory.history[1].calls[0].arguments == arguments


def test_a_tool_that_is_gone_when_its_turn_comes_does_not_run() -> None:
    """The settings may change while a question is open: the answer is yes, the tool is not there any more."""
    run = MachineHarness()
    run.say(call(0, "write", path="a"))
    run.machine.config = Config(model=TEST_MODEL, tools=TOOLS[:1])
    run.decide("write", Approve())
    assert run.all(RunTool) == []
    assert run.outcomes == [("write", "error")]


def test_a_tool_that_came_later_was_not_offered_and_does_not_run() -> None:
    """Only what stood in the request that was answered may run."""
    run = MachineHarness()
    run.say(call(0, "look", path="a"), call(1, "late", path="b"))
    run.machine.config = Config(
        model=TEST_MODEL, tools=(*TOOLS, ToolSpec(name="late", approval=Approval.NEVER))
    )
    run.end("look")
    assert run.started == []
    assert run.outcomes == [("look", "ok"), ("late", "error")]


# Stop


def test_an_interrupt_cancels_what_runs_and_keeps_its_result() -> None:
    """What had not started never does; the tool at work says itself how it ended."""
    run = MachineHarness()
    run.say(call(0, "write", path="a"), call(1, "note", path="b"))
    run.decide("write", Approve())
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=run.machine.state.open[0])]
    run.end("write", "written before it noticed")
    assert run.results == [
        ("write", "ok", "written before it noticed"),
        ("note", "cancelled", model_messages.CANCELLED),
    ]
    assert run.reason == "interrupted"


def test_an_interrupt_withdraws_questions() -> None:
    """Nothing ran, so the run ends at once; a late yes runs nothing."""
    run = MachineHarness()
    run.say(call(0, "write", path="a"))
    request = run.machine.state.open[0]
    run.interrupt()
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=request)]
    assert (run.reason, run.outcomes) == ("interrupted", [("write", "cancelled")])
    run.feed(ApprovalGiven(at=9.0, request=request, decision=Approve()))
    assert run.all(RunTool) == []


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("look", ("look", "cancelled", model_messages.CANCELLED)),
        ("note", ("note", "unknown", model_messages.MAY_HAVE_RUN)),
        ("send", ("send", "unknown", model_messages.MAY_HAVE_RUN)),
    ],
)
def test_a_second_interrupt_says_what_may_have_run(tool: str, result: tuple[str, str, str]) -> None:
    """Nothing is waited for. Of a read nothing is left; anything else may have done its work."""
    run = MachineHarness()
    run.say(call(0, tool, path="a", agent="kid", prompt="go"))
    run.interrupt()
    assert run.reason == ""
    run.interrupt()
    assert run.results == [result]
    assert run.reason == "interrupted"


def test_every_call_of_an_interrupted_batch_has_its_result() -> None:
    """The whole batch, in order, whatever each call was at."""
    run = MachineHarness(config(policy=PARALLEL))
    names = ["fly", "look", "peek", "write", "note"]
    run.say(*calls(*names))
    run.interrupt()
    run.end("look", outcome=Outcome.CANCELLED)
    assert run.outcomes == [("fly", "error"), *[(tool, "cancelled") for tool in names[1:]]]
    assert [notice.tool for notice in run.all(CallSettled)].count("look") == 1


# Children


def test_a_child_is_a_call_like_any_other() -> None:
    """Its answer is a result; what it used is its parent's use, but for the turns."""
    run = MachineHarness()
    run.say(call(0, "send", agent="kid", prompt="look for it"))
    assert run.label == "dispatching"
    (request,) = run.got(RunAgent)
    assert (request.agent, request.prompt) == ("kid", "look for it")
    run.report("send", "here", Spent(turns=7, usage=Usage(input=100), seconds=2.0))
    assert run.results == [("send", "ok", "here")]
    spent = Spent(turns=1, usage=Usage(input=110, output=5), seconds=2.0, unpriced=15)
    assert run.machine.memory.spent == spent


@pytest.mark.parametrize("times", [1, 2])
def test_what_a_child_has_told_of_its_account_is_not_lost(times: int) -> None:
    """Not even where nobody waits for it any more; and it is counted once."""
    run = MachineHarness()
    run.say(call(0, "send", agent="kid", prompt="look for it"))
    spent = Spent(turns=2, usage=Usage(input=50, output=7), seconds=1.5)
    run.progress("send", Spent(turns=1, usage=Usage(input=20)))
    run.progress("send", spent)
    assert (run.effects, run.label) == ((), "dispatching")
    for _ in range(times):
        run.interrupt()
    if times == 1:
        run.report("send", "cut short", spent)
    account = run.machine.memory.spent
    assert (account.turns, account.usage, account.seconds) == (1, Usage(input=60, output=12), 1.5)
    assert run.reason == "interrupted"


def test_a_child_that_breaks_has_spent_what_it_told() -> None:
    """Its last word may know less than the ones before."""
    run = MachineHarness()
    run.say(call(0, "send", agent="kid", prompt="look for it"))
    run.progress("send", Spent(usage=Usage(input=50)))
    run.report("send", "broken", Spent())
    assert run.machine.memory.spent.usage == Usage(input=60, output=5)


def test_a_child_has_its_parents_reads_or_what_it_names_of_its_tools() -> None:
    """By default none that asks, since nobody may be there; never one its parent lacks, never a child."""
    run = MachineHarness()
    run.say(call(0, "send", agent="kid", prompt="go"), call(1, "send", agent="heir", prompt="go"))
    assert run.got(RunAgent)[0].tools == ("look",)
    run.report("send")
    assert run.got(RunAgent)[0].tools == ("write",)


def test_a_child_is_bound_by_the_mode_of_its_parent() -> None:
    """That of the moment it starts in, which a person may have changed."""
    run = MachineHarness()
    run.change(SetMode(mode=PermissionMode.DONT_ASK))
    run.say(call(0, "send", agent="kid", prompt="go"))
    assert run.got(RunAgent)[0].mode is PermissionMode.DONT_ASK


def test_a_child_that_is_not_there_is_an_error_for_the_model() -> None:
    """It is told which there are."""
    run = MachineHarness()
    run.say(call(0, "send", agent="nobody", prompt="go"))
    assert run.results == [("send", "error", "No agent named 'nobody'. There are: kid, heir.")]


@pytest.mark.parametrize("prompt", ["", "  ", 7, None])
def test_a_child_that_is_asked_nothing_is_an_error_for_the_model(prompt: object) -> None:
    """It is told what a prompt is."""
    run = MachineHarness()
    run.say(call(0, "send", agent="kid", prompt=prompt))
    assert run.all(RunAgent) == []
    assert run.results == [
        (
            "send",
            "error",
            "Invalid arguments for send: prompt must be a text that says what to do. The tool was not run.",
        )
    ]


def test_what_a_child_is_asked_can_be_written_down() -> None:
    """Half a surrogate pair, which JSON can spell and UTF-8 cannot, does not reach the journal of a child."""
    run = MachineHarness()
    run.say(CallPiece(0, "w", "send", '{"agent": "kid", "prompt": "a\\ud83d b"}'))
    (request,) = run.got(RunAgent)
    assert decode(encode(request, Request), Request) == request
    assert request.prompt.startswith("a")


def test_a_child_gets_no_more_than_its_parent_has_left() -> None:
    """What the child before it used is gone, although both were called in one answer."""
    run = MachineHarness(config(limits=Limits(tokens=1_000)))
    run.say(call(0, "send", agent="kid", prompt="go"), call(1, "send", agent="kid", prompt="go"))
    assert run.got(RunAgent)[0].limits.tokens == 985
    run.report("send", spent=Spent(usage=Usage(input=900)))
    assert run.got(RunAgent)[0].limits.tokens == 85


def test_a_child_that_used_up_the_budget_is_the_last() -> None:
    """Its result is kept, the next child does not start."""
    run = MachineHarness(config(limits=Limits(tokens=1_000)))
    run.say(call(0, "send", agent="kid", prompt="go"), call(1, "send", agent="kid", prompt="go"))
    run.report("send", spent=Spent(usage=Usage(input=985)))
    assert run.results == [("send", "ok", "found it"), ("send", "cancelled", model_messages.OVER_BUDGET)]
    assert run.reason == "token_budget"
