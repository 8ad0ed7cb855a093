"""What a user relies on while tools run, questions are open and children work."""

from __future__ import annotations

import pytest

from turnwheel.effects.config import (
    Approval,
    ChildSpec,
    Concurrency,
    Config,
    Grant,
    Limits,
    OnDenial,
    PermissionMode,
    Policy,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from turnwheel.effects.events import ApprovalGiven, Approve, ApproveAlways, Deny, ToolFinished, ToolProgressed
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import ApprovalWithdrawn, Ignored, ToolEnded, ToolProgress
from turnwheel.effects.pieces import CallPiece
from turnwheel.effects.requests import AskApproval, Cancel, Request, RunAgent, RunTool
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.codec import decode, encode
from turnwheel.states.rules import texts
from turnwheel.testing.by_hand import MODEL, ByHand, call

PATH = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
TOOLS = (
    ToolSpec(name="look", schema=PATH, side_effect=SideEffect.READ_ONLY),
    ToolSpec(name="peek", schema=PATH, side_effect=SideEffect.READ_ONLY, approval=Approval.ALWAYS),
    ToolSpec(name="write", schema=PATH),
    ToolSpec(name="note", schema=PATH, side_effect=SideEffect.IDEMPOTENT, approval=Approval.NEVER),
    ToolSpec(name="send", kind=ToolKind.AGENT, approval=Approval.NEVER),
    ToolSpec(name="hire", kind=ToolKind.AGENT),
)
PARALLEL = Policy(concurrency=Concurrency.PARALLEL_READS)
CHILDREN = (ChildSpec(name="kid"), ChildSpec(name="heir", tools=("write", "send", "nowhere")))


def by_hand(
    policy: Policy = Policy(),  # noqa: B008  # a frozen value
    *,
    allow: tuple[Grant, ...] = (),
    limits: Limits = Limits(),  # noqa: B008  # a frozen value
) -> ByHand:
    """A run that has begun, with one tool of each kind."""
    return ByHand(
        Config(model=MODEL, tools=TOOLS, children=CHILDREN, policy=policy, allow=allow, limits=limits)
    )


def outcomes(run: ByHand) -> list[tuple[str, str]]:
    """Tool and outcome of every result in the history."""
    return [(tool, outcome) for tool, outcome, _ in run.results]


def at_work(run: ByHand) -> list[str]:
    """The tools that were started by the last event."""
    return [request.tool for request in run.got(RunTool)]


# One after the other, or reads together


def test_calls_run_one_at_a_time_in_their_order() -> None:
    """Serial is the default: the next call starts when the one before it has ended."""
    run = by_hand()
    run.say(call(0, "note", path="a"), call(1, "look", path="b"), call(2, "note", path="c"))
    assert at_work(run) == ["note"]
    run.end("note")
    assert at_work(run) == ["look"]
    run.end("look")
    assert at_work(run) == ["note"]
    run.end("note")
    assert [tool for tool, _ in outcomes(run)] == ["note", "look", "note"]


def test_a_serial_batch_asks_when_a_calls_turn_has_come() -> None:
    """A question about the second call is not asked while the first one runs."""
    run = by_hand()
    run.say(call(0, "look", path="a"), call(1, "write", path="b"))
    assert run.label == "executing"
    run.end("look")
    assert run.label == "confirming"


def test_neighbouring_reads_run_together_and_a_write_waits() -> None:
    """Reads before a write run at once, the write after them, reads behind it after it."""
    run = by_hand(PARALLEL)
    run.say(*[call(number, tool, path="a") for number, tool in enumerate(["look", "look", "note", "look"])])
    assert at_work(run) == ["look", "look"]
    run.end("look")
    assert at_work(run) == []
    run.end("look")
    assert at_work(run) == ["note"]
    run.end("note")
    assert at_work(run) == ["look"]


def test_results_are_in_call_order_whatever_ends_first() -> None:
    """The model reads the results in the order of its calls."""
    run = by_hand(PARALLEL)
    run.say(call(0, "look", path="a"), call(1, "look", path="b"))
    first, second = run.machine.state.open
    run.feed(ToolFinished(at=2.0, request=second, content="b"))
    run.feed(ToolFinished(at=3.0, request=first, content="a"))
    assert [content for _, _, content in run.results] == ["a", "b"]


def test_a_question_does_not_hold_up_other_reads() -> None:
    """All are asked about ahead; what needs nobody runs meanwhile, and the agent is said to be confirming."""
    run = by_hand(PARALLEL)
    run.say(call(0, "peek", path="a"), call(1, "look", path="b"), call(2, "write", path="c"))
    assert at_work(run) == ["look"]
    assert [question.tool for question in run.got(AskApproval)] == ["peek", "write"]
    run.end("look")
    assert run.label == "confirming"


def test_an_approved_write_waits_for_its_turn() -> None:
    """Yes means that it may, not that it does at once; nobody is asked again."""
    run = by_hand(PARALLEL)
    run.say(call(0, "look", path="a"), call(1, "write", path="b"))
    run.decide("write", Approve())
    assert at_work(run) == []
    assert run.label == "executing"
    run.end("look")
    assert at_work(run) == ["write"]
    assert len(run.all(AskApproval)) == 1


@pytest.mark.parametrize("tools", [("look", "look", "look"), ("peek", "look", "look")])
def test_no_more_calls_are_at_work_than_allowed(tools: tuple[str, ...]) -> None:
    """The limit holds for a call that was approved late, too."""
    run = by_hand(Policy(concurrency=Concurrency.PARALLEL_READS, max_parallel=1))
    run.say(*[call(number, tool, path="a") for number, tool in enumerate(tools)])
    assert at_work(run) == ["look"]
    if "peek" in tools:
        run.decide("peek", Approve())
        assert at_work(run) == []
    run.end("look")
    assert len(at_work(run)) == 1


def test_a_call_that_is_settled_at_once_leaves_its_place_to_the_next() -> None:
    """A child that does not exist takes no room from a read behind it."""
    scout = ToolSpec(name="scout", kind=ToolKind.AGENT, side_effect=SideEffect.READ_ONLY)
    policy = Policy(concurrency=Concurrency.PARALLEL_READS, max_parallel=1)
    run = ByHand(Config(model=MODEL, tools=(scout, *TOOLS), policy=policy))
    run.say(call(0, "scout", agent="nobody", prompt="go"), call(1, "look", path="a"))
    assert at_work(run) == ["look"]


def test_a_running_tool_may_say_how_far_it_is() -> None:
    """It is passed on and changes nothing; nobody listens to a tool that has ended."""
    run = by_hand()
    run.say(call(0, "look", path="a"))
    (request,) = run.machine.state.open
    before = run.machine.state
    run.feed(ToolProgressed(at=2.0, request=request, text="half way"))
    assert [notice.text for notice in run.got(ToolProgress)] == ["half way"]
    assert run.machine.state == before
    run.end("look")
    run.feed(ToolProgressed(at=4.0, request=request, text="late"))
    assert run.got(Ignored)


# What cannot run


def test_a_tool_that_is_not_there_is_an_error_for_the_model() -> None:
    """It is told what there is, and the other calls run."""
    run = by_hand()
    run.say(call(0, "fly", to="moon"), call(1, "look", path="a"))
    assert at_work(run) == ["look"]
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
    run = by_hand()
    run.say(CallPiece(0, "w", "write", arguments))
    assert run.all(RunTool) + run.all(AskApproval) == []
    ((_, outcome, content),) = run.results
    assert outcome == "error"
    assert content.startswith("Invalid arguments for write: ")
    assert run.machine.memory.history[1].calls[0].arguments == arguments


def test_a_tool_that_is_gone_when_its_turn_comes_does_not_run() -> None:
    """The settings may change while a question is open: the answer is yes, the tool is not there any more."""
    run = by_hand()
    run.say(call(0, "write", path="a"))
    run.machine.config = Config(model=MODEL, tools=TOOLS[:1])
    run.decide("write", Approve())
    assert run.all(RunTool) == []
    assert outcomes(run) == [("write", "error")]


def test_a_tool_that_came_later_was_not_offered_and_does_not_run() -> None:
    """Only what stood in the request that was answered may run."""
    run = by_hand()
    run.say(call(0, "look", path="a"), call(1, "late", path="b"))
    run.machine.config = Config(model=MODEL, tools=(*TOOLS, ToolSpec(name="late", approval=Approval.NEVER)))
    run.end("look")
    assert at_work(run) == []
    assert outcomes(run) == [("look", "ok"), ("late", "error")]


# Questions


@pytest.mark.parametrize(
    ("tool", "asked"), [("look", False), ("peek", True), ("write", True), ("note", False), ("hire", True)]
)
def test_who_is_asked(tool: str, asked: bool) -> None:  # noqa: FBT001  # a column of the table
    """By side effect, always or never, as each tool says."""
    run = by_hand()
    run.say(call(0, tool, path="a", agent="kid", prompt="go"))
    assert bool(run.got(AskApproval)) == asked


def test_nobody_is_asked_where_that_was_bypassed() -> None:
    """The mode of the run counts for every tool."""
    run = by_hand(Policy(mode=PermissionMode.BYPASS))
    run.say(call(0, "write", path="a"))
    assert at_work(run) == ["write"]


def test_a_rule_answers_for_what_it_covers() -> None:
    """A glob is matched against the call's own arguments."""
    run = by_hand(allow=(Grant(tool="write", where=(("path", "tmp/*"),)),))
    run.say(call(0, "write", path="tmp/a"), call(1, "write", path="etc/passwd"))
    assert at_work(run) == ["write"]
    run.end("write")
    assert [question.arguments for question in run.got(AskApproval)] == ['{"path": "etc/passwd"}']


def test_always_answers_for_the_rest_of_the_batch_and_the_run() -> None:
    """The next call of the same batch is not asked about, nor one of a later turn."""
    run = by_hand()
    run.say(call(0, "write", path="a"), call(1, "write", path="b"))
    run.decide("write", ApproveAlways())
    run.end("write")
    assert at_work(run) == ["write"]
    run.end("write")
    run.say(call(0, "write", path="c"))
    assert at_work(run) == ["write"]
    assert len(run.all(AskApproval)) == 1


def test_always_answers_the_questions_that_are_open_for_the_same_tool() -> None:
    """They are withdrawn; those for other tools stay."""
    run = by_hand(PARALLEL)
    run.say(*[call(number, tool, path="a") for number, tool in enumerate(["write", "peek", "write"])])
    first, second, third = (question.id for question in run.got(AskApproval))
    run.decide("write", ApproveAlways())
    assert run.got(Cancel) == [Cancel(request=third)]
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=third)]
    assert second in run.machine.state.open
    assert first not in run.machine.state.open


def test_an_answer_names_a_request_and_nothing_else() -> None:
    """A call's id, an old question and an unknown one answer nothing."""
    run = by_hand()
    run.say(call(0, "write", path="a"))
    (question,) = run.got(AskApproval)
    for request in (question.call, "wire-0", "r-1", "r-99", ""):
        run.feed(ApprovalGiven(at=2.0, request=request, decision=Approve()))
        assert run.effects == (Ignored(event="ApprovalGiven", state="confirming"),)
    assert run.all(RunTool) == []


def test_an_answer_that_is_repeated_runs_nothing_twice() -> None:
    """The second yes comes late and is ignored, and so is a no behind it."""
    run = by_hand()
    run.say(call(0, "write", path="a"))
    request = run.machine.state.open[0]
    run.feed(ApprovalGiven(at=2.0, request=request, decision=Approve()))
    run.feed(ApprovalGiven(at=3.0, request=request, decision=Approve()))
    run.feed(ApprovalGiven(at=4.0, request=request, decision=Deny()))
    assert len(run.all(RunTool)) == 1
    assert run.label == "executing"


def test_edited_arguments_run_in_place_of_the_models() -> None:
    """The history keeps what the model wrote; what runs is what the person wrote."""
    run = by_hand()
    run.say(call(0, "write", path="a"))
    run.decide("write", Approve(arguments='{"path": "b"}'))
    assert run.got(RunTool)[0].arguments == '{"path": "b"}'
    assert len(run.all(AskApproval)) == 1
    assert run.machine.memory.history[1].calls[0].arguments == '{"path": "a"}'


@pytest.mark.parametrize("arguments", ["{", "{}", '{"path": 7}'])
def test_edited_arguments_are_checked_as_a_models_are(arguments: str) -> None:
    """A person's slip does not reach the tool."""
    run = by_hand()
    run.say(call(0, "write", path="a"))
    run.decide("write", Approve(arguments=arguments))
    assert run.all(RunTool) == []
    assert outcomes(run) == [("write", "error")]


# No


def test_a_no_skips_the_rest_and_goes_back_to_the_model() -> None:
    """Every call has its result, in order: the denied, and those that were never looked at."""
    run = by_hand()
    run.say(call(0, "look", path="a"), call(1, "write", path="b"), call(2, "note", path="c"))
    run.end("look", "kept")
    run.decide("write", Deny(message="not there"))
    assert run.results == [
        ("look", "ok", "kept"),
        ("write", "denied", "not there"),
        ("note", "skipped", texts.SKIPPED_AFTER_DENIAL),
    ]
    assert run.label == "streaming"


def test_a_no_without_words_still_tells_the_model() -> None:
    """An empty result would be read as success."""
    run = by_hand()
    run.say(call(0, "write", path="a"))
    run.decide("write", Deny())
    assert run.results == [("write", "denied", texts.DENIED)]


def test_after_a_no_the_others_may_go_on() -> None:
    """Where the policy says so a denial concerns one call."""
    run = by_hand(Policy(on_denial=OnDenial.GO_ON))
    run.say(call(0, "write", path="a"), call(1, "note", path="b"))
    run.decide("write", Deny())
    assert at_work(run) == ["note"]


def test_a_no_may_end_the_run() -> None:
    """Where the policy says so; every call has its result all the same."""
    run = by_hand(Policy(on_denial=OnDenial.INTERRUPT))
    run.say(call(0, "write", path="a"), call(1, "note", path="b"))
    run.decide("write", Deny())
    assert outcomes(run) == [("write", "denied"), ("note", "cancelled")]
    assert run.reason == "interrupted"


def test_a_no_leaves_other_questions_open_and_what_was_approved_runs() -> None:
    """Each question is a person's to answer; a yes that was given stands."""
    run = by_hand(PARALLEL)
    run.say(
        *[
            call(number, tool, path="a", agent="kid", prompt="go")
            for number, tool in enumerate(["look", "write", "hire"])
        ]
    )
    run.decide("hire", Approve())
    run.decide("write", Deny())
    assert run.label == "executing.stopping"
    run.end("look")
    assert run.label == "dispatching.stopping"
    assert len(run.got(RunAgent)) == 1


# Stop


def test_an_interrupt_cancels_what_runs_and_keeps_its_result() -> None:
    """What had not started never does; the tool at work says itself how it ended."""
    run = by_hand()
    run.say(call(0, "write", path="a"), call(1, "note", path="b"))
    run.decide("write", Approve())
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=run.machine.state.open[0])]
    run.end("write", "written before it noticed")
    assert run.results == [
        ("write", "ok", "written before it noticed"),
        ("note", "cancelled", texts.CANCELLED),
    ]
    assert run.reason == "interrupted"


def test_an_interrupt_withdraws_questions() -> None:
    """Nothing ran, so the run ends at once; a late yes runs nothing."""
    run = by_hand()
    run.say(call(0, "write", path="a"))
    request = run.machine.state.open[0]
    run.interrupt()
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=request)]
    assert (run.reason, outcomes(run)) == ("interrupted", [("write", "cancelled")])
    run.feed(ApprovalGiven(at=9.0, request=request, decision=Approve()))
    assert run.all(RunTool) == []


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("look", ("look", "cancelled", texts.CANCELLED)),
        ("note", ("note", "unknown", texts.MAY_HAVE_RUN)),
        ("send", ("send", "unknown", texts.MAY_HAVE_RUN)),
    ],
)
def test_a_second_interrupt_says_what_may_have_run(tool: str, result: tuple[str, str, str]) -> None:
    """Nothing is waited for. Of a read nothing is left; anything else may have done its work."""
    run = by_hand()
    run.say(call(0, tool, path="a", agent="kid", prompt="go"))
    run.interrupt()
    assert run.reason == ""
    run.interrupt()
    assert run.results == [result]
    assert run.reason == "interrupted"


def test_every_call_of_an_interrupted_batch_has_its_result() -> None:
    """The whole batch, in order, whatever each call was at."""
    run = by_hand(PARALLEL)
    names = ["fly", "look", "peek", "write", "note"]
    run.say(*[call(number, tool, path="a") for number, tool in enumerate(names)])
    run.interrupt()
    run.end("look", outcome=Outcome.CANCELLED)
    assert outcomes(run) == [("fly", "error"), *[(tool, "cancelled") for tool in names[1:]]]
    assert [notice.tool for notice in run.all(ToolEnded)].count("look") == 1


# Children


def test_a_child_is_a_call_like_any_other() -> None:
    """Its answer is a result; what it used is its parent's use, but for the turns."""
    run = by_hand()
    run.say(call(0, "send", agent="kid", prompt="look for it"))
    assert run.label == "dispatching"
    (request,) = run.got(RunAgent)
    assert (request.agent, request.prompt) == ("kid", "look for it")
    run.report("send", "here", Spent(turns=7, usage=Usage(input=100), seconds=2.0))
    assert run.results == [("send", "ok", "here")]
    assert run.machine.memory.spent == Spent(turns=1, usage=Usage(input=110, output=5), seconds=2.0)


def test_a_child_has_its_parents_reads_or_what_it_names_of_its_tools() -> None:
    """By default none that asks, since nobody may be there; never one its parent lacks, never a child."""
    run = by_hand()
    run.say(call(0, "send", agent="kid", prompt="go"), call(1, "send", agent="heir", prompt="go"))
    assert run.got(RunAgent)[0].tools == ("look",)
    run.report("send")
    assert run.got(RunAgent)[0].tools == ("write",)


def test_a_child_that_is_not_there_is_an_error_for_the_model() -> None:
    """It is told which there are."""
    run = by_hand()
    run.say(call(0, "send", agent="nobody", prompt="go"))
    assert run.results == [("send", "error", "No agent named 'nobody'. There are: kid, heir.")]


def test_what_a_child_is_asked_can_be_written_down() -> None:
    """Half a surrogate pair, which JSON can spell and UTF-8 cannot, does not reach the journal of a child."""
    run = by_hand()
    run.say(CallPiece(0, "w", "send", '{"agent": "kid", "prompt": "a\\ud83d b"}'))
    (request,) = run.got(RunAgent)
    assert decode(encode(request, Request), Request) == request
    assert request.prompt.startswith("a")


def test_a_child_gets_no_more_than_its_parent_has_left() -> None:
    """What the child before it used is gone, although both were called in one answer."""
    run = by_hand(limits=Limits(tokens=1_000))
    run.say(call(0, "send", agent="kid", prompt="go"), call(1, "send", agent="kid", prompt="go"))
    assert run.got(RunAgent)[0].limits.tokens == 985
    run.report("send", spent=Spent(usage=Usage(input=900)))
    assert run.got(RunAgent)[0].limits.tokens == 85


def test_a_child_that_used_up_the_budget_is_the_last() -> None:
    """Its result is kept, the next child does not start."""
    run = by_hand(limits=Limits(tokens=1_000))
    run.say(call(0, "send", agent="kid", prompt="go"), call(1, "send", agent="kid", prompt="go"))
    run.report("send", spent=Spent(usage=Usage(input=985)))
    assert run.results == [("send", "ok", "found it"), ("send", "cancelled", texts.OVER_BUDGET)]
    assert run.reason == "token_budget"
