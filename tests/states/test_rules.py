"""The rules by themselves: values in, values out."""

from __future__ import annotations

import json
from decimal import Decimal

import attrs
import pytest
from hypothesis import given, strategies as st

from turnwheel.effects import config
from turnwheel.effects.config import (
    Approval,
    ChildSpec,
    Compaction,
    Config,
    Limits,
    ModelSpec,
    Policy,
    Price,
    Retries,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from turnwheel.effects.events import Failure, ModelFailed
from turnwheel.effects.history import CallPiece, History, TextPiece
from turnwheel.effects.hooks import HookAnswer, HookSaid
from turnwheel.effects.messages import (
    Binary,
    Message,
    Outcome,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from turnwheel.effects.usage import Spent, Usage, cost
from turnwheel.engine.core.machine import Machine
from turnwheel.states.rules import compaction, model_messages
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.hooks import opinion
from turnwheel.states.rules.limits import Left, affordable, child_tools, exceeded, granted, left
from turnwheel.states.rules.retry import asked_wait, retry_delay
from turnwheel.states.rules.schema import arguments_of, problem
from turnwheel.states.rules.token_estimates import estimated_usage, history_size, message_size
from turnwheel.states.streaming import wishes

# Arguments


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ("[]", None),
        ('"a"', None),
        ("null", None),
        ('{"a": ', None),
        ("{'a': 1}", None),
        ('{"a": NaN}', None),
        ('{"a": -Infinity}', None),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", None),
        ('{"a": ' + "9" * 10_000 + "}", None),
    ],
)
def test_arguments_are_a_json_object(text: str, arguments: dict[str, object] | None) -> None:
    assert arguments_of(text) == arguments


@given(st.text())
def test_no_arguments_break_the_reader(text: str) -> None:
    assert arguments_of(text) is None or isinstance(arguments_of(text), dict)


def schema(**properties: object) -> str:
    """The schema of an object with these *properties*, of which none is required."""
    return json.dumps({"type": "object", "properties": properties})


LIST_OF_NAMES = {"type": "array", "items": {"type": "string"}}
TREE = json.dumps(
    {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "left": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
    }
)


@pytest.mark.parametrize(
    ("rules", "fits"),
    [
        ({"type": "string"}, "a"),
        ({"type": "integer"}, 1),
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, 1),
        ({"type": "number"}, 0.5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["string", "null"]}, None),
        ({"type": "array"}, [1, "a"]),
        (LIST_OF_NAMES, ["a"]),
        (LIST_OF_NAMES, []),
        ({"type": ["string", "array"], "items": {"type": "integer"}}, "a"),
        ({"type": "object"}, {"anything": 1}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}),
        ({"enum": ["a", 1, None]}, None),
        ({"const": 1}, 1.0),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1),
        ({"oneOf": [{"type": "string"}, LIST_OF_NAMES]}, ["a"]),
        ({"format": "date"}, 1),
        ({"type": "date"}, "any"),
        (True, "any"),
        ({}, "any"),
    ],
)
def test_what_fits_a_schema(rules: object, fits: object) -> None:
    assert problem(schema(x=rules), {"x": fits}) == ""


@pytest.mark.parametrize(
    ("rules", "value", "says"),
    [
        ({"type": "string"}, 1, "x must be of type string"),
        ({"type": "string"}, None, "x must be of type string"),
        ({"type": "integer"}, 1.5, "x must be of type integer"),
        ({"type": "integer"}, True, "x must be of type integer"),
        ({"type": "number"}, False, "x must be of type number"),
        ({"type": "boolean"}, 1, "x must be of type boolean"),
        ({"type": ["string", "null"]}, 1, "x must be of type string or null"),
        (LIST_OF_NAMES, ["a", 1], "x[1] must be of type string"),
        ({"type": "object", "required": ["a", "b"]}, {}, "x.a, x.b are missing"),
        ({"type": "object", "additionalProperties": False}, {"a": 1}, "x.a is not a parameter"),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"a": "b"},
            "x.a must be of type integer",
        ),
        ({"enum": ["a", "b"]}, "c", 'x must be one of ["a", "b"]'),
        ({"enum": [1]}, True, "x must be one of [1]"),
        ({"const": 0}, False, "x must be 0"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, None, "x must be of type string or integer"),
        (False, "any", "x is not allowed"),
    ],
)
def test_what_does_not_fit_is_said(rules: object, value: object, says: str) -> None:
    assert problem(schema(x=rules), {"x": value}).startswith(says)


@pytest.mark.parametrize(
    ("root", "says"),
    [
        ({"value": 1}, ""),
        ({"value": 1, "left": {"value": 2, "left": None}}, ""),
        ({"value": 1, "left": {"value": "two"}}, "root.left"),
        ({"left": None}, "root.value is missing"),
        ({"value": 1, "right": None}, "root.right is not a parameter (there are: value, left)"),
    ],
)
def test_references_are_followed(root: object, says: str) -> None:
    found = problem(TREE, {"root": root})
    assert found.startswith(says)
    assert bool(found) == bool(says)


@pytest.mark.parametrize(
    "definition",
    [
        {"$ref": "#/$defs/node"},
        {"anyOf": [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/node"}]},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}}},
    ],
)
def test_a_schema_that_refers_to_itself_ends(definition: object) -> None:
    rules = json.dumps(
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}}, "$defs": {"node": definition}}
    )
    value: object = 1
    for _ in range(200):
        value = {"x": value}
    assert isinstance(problem(rules, {"x": value}), str)


def test_a_reference_to_nowhere_checks_nothing() -> None:
    assert problem(schema(x={"$ref": "#/$defs/gone"}), {"x": 1}) == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '"a"', "null"])
def test_a_schema_is_a_json_object(text: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        ToolSpec(name="tool", schema=text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "value", "left"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["x", "root", "left"]), json_values, max_size=3))
def test_no_value_breaks_the_check(arguments: dict[str, object]) -> None:
    assert isinstance(problem(TREE, arguments), str)


# Limits


@pytest.mark.parametrize(
    ("limits", "spent", "reason"),
    [
        (Limits(), Spent(turns=10**6, usage=Usage(input=10**9), cost=Decimal(10**6), seconds=1e9), None),
        (Limits(turns=2), Spent(turns=1), None),
        (Limits(turns=2), Spent(turns=2), "max_turns"),
        (Limits(tokens=10), Spent(usage=Usage(input=9)), None),
        (Limits(tokens=10), Spent(usage=Usage(input=4, output=6)), "token_budget"),
        (Limits(usd="0.10"), Spent(cost=Decimal("0.10")), "max_budget"),
        (Limits(seconds=1.5), Spent(seconds=1.5), "time_budget"),
        (
            Limits(turns=1, tokens=1, usd=1, seconds=1),
            Spent(turns=1, usage=Usage(input=1), cost=Decimal(1), seconds=1.0),
            "max_turns",
        ),
    ],
)
def test_when_a_run_has_used_enough(limits: Limits, spent: Spent, reason: str | None) -> None:
    assert exceeded(limits, spent) == reason


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("field", ["turns", "tokens", "usd", "seconds"])
def test_a_limit_of_nothing_is_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match="None for no limit"):
        Limits(**{field: value})


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (Left(), 900),
        (Left(tokens=1_001), 900),
        (Left(tokens=999), 899),
        (Left(tokens=116), 16),
        (Left(tokens=115), "token_budget"),
        # Each token that is asked is a millionth of a dollar, each of the answer four.
        (Left(usd=Decimal("0.003700")), 900),
        (Left(usd=Decimal("0.003699")), 899),
        (Left(usd=Decimal("0.000164")), 16),
        (Left(usd=Decimal("0.000163")), "max_budget"),
        (Left(usd=Decimal("0.000164"), tokens=115), "token_budget"),
        (Left(usd=Decimal("0.000200"), tokens=117), 17),
    ],
)
def test_an_answer_may_be_as_long_as_what_is_left_pays_for(left: Left, expected: int | str) -> None:
    assert affordable(left, asked=100, most=900, price=Price(input=1, output=4), least=16) == expected


def test_an_answer_that_costs_nothing_is_as_long_as_it_may_be() -> None:
    left = Left(usd=Decimal(0))
    assert affordable(left, asked=100, most=900, price=Price(input=0, output=0), least=16) == 900
    assert affordable(left, asked=100, most=900, price=None, least=16) == 900


def test_an_answer_is_weighed_at_the_dearest_price_of_its_tokens() -> None:
    left, price = Left(usd=Decimal("0.001")), Price(input=1, output=4, cache_write=2, reasoning=8)
    assert affordable(left, asked=100, most=900, price=price, least=16) == 100
    assert affordable(left, asked=100, most=900, price=attrs.evolve(price, reasoning=2), least=16) == 200


# Waiting


def test_a_provider_that_asks_for_no_wait_says_nothing_of_it() -> None:
    failed = ModelFailed(at=0.0, request="r", failure=Failure.OVERLOADED, message="")
    waits = [attrs.evolve(failed, retry_after=seconds) for seconds in (None, -1.0, 0.0, 0.001, 5.0)]
    assert [asked_wait(Retries(base=2.0), one) for one in waits] == [None, None, None, 2.0, 5.0]


def test_a_wait_is_as_long_as_the_longest_at_most() -> None:
    failed = ModelFailed(at=0.0, request="r", failure=Failure.OVERLOADED, message="", jitter=1.0)
    retries = Retries(overloaded=5_000, longest=60.0)
    assert [retry_delay(retries, failed, attempt) for attempt in (1, 5, 6, 2_000)] == [2.4, 38.4, 60.0, 60.0]
    assert retry_delay(Retries(overloaded=5_000, longest=None, base=0.0), failed, 4_000) == 0.0


def test_a_wait_that_a_provider_asks_for_may_be_as_long_as_the_longest() -> None:
    failed = ModelFailed(at=0.0, request="r", failure=Failure.OVERLOADED, message="")
    waits = [attrs.evolve(failed, retry_after=seconds) for seconds in (59.9, 60.0, 60.1)]
    assert [retry_delay(Retries(longest=60.0), one, 1) for one in waits] == [59.9, 60.0, None]
    assert [retry_delay(Retries(longest=None), one, 1) for one in waits] == [59.9, 60.0, 60.1]


# Children


def test_a_childs_tools_are_some_of_its_parents() -> None:
    tools = (
        ToolSpec(name="look", side_effect=SideEffect.READ_ONLY),
        ToolSpec(name="peek", side_effect=SideEffect.READ_ONLY, approval=Approval.ALWAYS),
        ToolSpec(name="write"),
        ToolSpec(name="send", kind=ToolKind.AGENT, side_effect=SideEffect.READ_ONLY),
    )
    config = Config(model=ModelSpec(name="m"), tools=tools)
    assert child_tools(config, ChildSpec(name="kid")) == ("look",)
    named = ChildSpec(name="kid", tools=("send", "write", "rm", "peek"))
    assert child_tools(config, named) == ("peek", "write")
    assert child_tools(config, ChildSpec(name="kid", tools=())) == ()


def test_a_childs_limits_are_the_lesser_of_what_it_wants_and_what_is_left() -> None:
    limits = Limits(turns=3, tokens=1_000, usd="1")
    spent = Spent(turns=2, usage=Usage(input=900), cost=Decimal("0.25"), seconds=50.0)
    wanted = Limits(turns=10, tokens=500, seconds=60.0)
    config = Config(model=ModelSpec(name="m", price=Price(input=1, output=1)), limits=limits)
    rest = left(config, spent, Spent())
    assert rest == Left(tokens=100, usd=Decimal("0.75"), seconds=None)
    assert granted(wanted, rest, []) == Limits(turns=10, tokens=100, usd="0.75", seconds=60.0)


HALF = Limits(tokens=50, usd="0.5")


@pytest.mark.parametrize(
    ("wanted", "left_", "held", "expected"),
    [
        (HALF, Left(tokens=100, usd=Decimal(1)), [HALF], HALF),
        (HALF, Left(tokens=100, usd=Decimal(1)), [HALF, HALF], "0.0 of 0.5 USD, 0 of 50 tokens"),
        (HALF, Left(tokens=99), [HALF], "49 of 50 tokens"),
        (HALF, Left(tokens=49), [], Limits(tokens=49, usd="0.5")),
        (Limits(), Left(tokens=80), [HALF], Limits(tokens=30)),
        (Limits(), Left(tokens=50), [HALF], "0 tokens"),
        (Limits(seconds=5.0), Left(seconds=0.0), [], "0.0 of 5.0 seconds"),
        (Limits(turns=3), Left(), [HALF], Limits(turns=3)),
    ],
    ids=[
        "both fit",
        "a third does not",
        "not quite",
        "alone",
        "what is free",
        "nothing free",
        "gone",
        "no limit",
    ],
)
def test_what_is_set_aside_for_a_child(
    wanted: Limits, left_: Left, held: list[Limits], expected: Limits | str
) -> None:
    assert granted(wanted, left_, held) == expected


# Sizes and money


def test_sizes_count_all_that_is_sent() -> None:
    call = ToolCall(id="r-1", wire_id="w", name="look", arguments="a" * 396)
    result = ToolResult(call="r-1", wire_id="w", name="look", content="b" * 400)
    assert message_size(user("c" * 400)) == 104
    assert message_size(Message(role=Role.ASSISTANT, parts=(call,))) == 104
    assert message_size(Message(role=Role.TOOL, parts=(result,))) == 104
    assert message_size(Message(role=Role.USER, parts=(Binary(media_type="image/png", data=b"x"),))) == 1_004
    assert history_size([user("c" * 400)] * 3) == 312
    assert estimated_usage(50, [TextPiece("a" * 5), CallPiece(0, arguments="b" * 4)]) == Usage(
        input=50, output=3, estimated=53
    )


def test_money_is_exact() -> None:
    usage = Usage(input=1_000_000, output=100_000, cached=400_000, cache_write=100_000)
    assert cost(usage, Price(input="3", output="15", cached="0.3", cache_write="3.75")) == Decimal("3.495")
    assert cost(usage, Price(input="3", output="15")) == Decimal("4.5")
    assert cost(usage, None) == 0
    assert sum([cost(Usage(input=1), Price(input="0.1", output="0"))] * 10) == Decimal("0.000001")


# Where to cut


@st.composite
def conversations(draw: st.DrawFn) -> History:
    """A valid conversation of any shape: prompts, answers, calls with their results."""
    history = History.of(user("a" * draw(st.integers(0, 400))))
    for number in range(draw(st.integers(0, 12))):
        text = "b" * draw(st.sampled_from([0, 40, 400, 2_000]))
        count = draw(st.integers(0, 3))
        ids = [f"r-{number}-{index}" for index in range(count)]
        calls = tuple([ToolCall(id=one, wire_id="", name="look", arguments="{}") for one in ids])
        history = history.append(Message(role=Role.ASSISTANT, parts=(Text(text="well"), *calls)))
        results = tuple([ToolResult(call=one, wire_id="", name="look", content=text) for one in ids])
        history = history.append(Message(role=Role.TOOL, parts=results) if results else user(text))
    return history


@given(conversations(), st.sampled_from([10, 400, 4_000, 200_000]))
def test_a_cut_never_parts_a_call_from_its_result(history: History, window: int) -> None:
    cut = compaction.cut_index(history, window // 4)
    assert 0 <= cut < len(history)
    assert history_faults(history.slice(0, cut)) == []
    assert history_faults(history.slice(cut, len(history))) == []


@given(conversations(), st.sampled_from([400, 4_000]))
def test_what_stays_is_a_quarter_of_the_window(history: History, window: int) -> None:
    cut = compaction.cut_index(history, window // 4)
    kept = history.slice(cut, len(history))
    if kept[0].calls:
        kept = kept[2:]
    assert history_size(kept[:-1]) <= window // 4


@pytest.mark.parametrize(
    ("keep", "around", "most"),
    [
        (0.25, 0, 1_000),
        # Of a window of 4,000 of which 3,200 may be filled, half of what is left beside the tools.
        (0.7, 0, 1_600),
        (0.25, 2_000, 600),
        (0.25, 3_200, 0),
        (0.25, 9_000, 0),
    ],
)
def test_what_stays_leaves_room_to_go_on_in(keep: float, around: int, most: int) -> None:
    history = History.of(*[user("a" * 40) for _ in range(1_000)])
    each = history_size(history.slice(0, 1))
    settings = Config(
        model=ModelSpec(name="m"), policy=Policy(compact_at=0.8), compaction=Compaction(keep=keep)
    )
    size = history_size(history)
    cut = compaction.cut_of(history, size, size + around, 4_000, settings)
    assert len(history) - cut == max(1, most // each)


def test_nothing_can_be_cut_from_one_exchange() -> None:
    assert compaction.cut_index(History.of(user("a" * 10_000)), 25) == 0


@pytest.mark.parametrize(
    ("size", "attempts", "failures", "expected"),
    [(79, 0, 0, False), (80, 0, 0, True), (80, 1, 0, False), (80, 0, 2, True), (80, 0, 3, False)],
)
def test_when_a_conversation_is_compacted(size: int, attempts: int, failures: int, *, expected: bool) -> None:
    config = Config(model=ModelSpec(name="m"), policy=Policy(compact_at=0.8))
    assert compaction.wanted(size, 100, config, attempts, failures) == expected


# What is kept of an answer


@pytest.mark.parametrize(
    ("stop", "kept"),
    [
        (StopReason.TOOL_USE, ["look", "nowhere", "look", "look"]),
        (StopReason.END_TURN, ["look", "look", "look"]),
        (StopReason.UNKNOWN, ["look", "look", "look"]),
        (StopReason.MAX_TOKENS, ["look"]),
        (StopReason.STOP_SEQUENCE, ["look"]),
        (StopReason.REFUSAL, ["look"]),
        (StopReason.INTERRUPTED, ["look"]),
    ],
)
def test_which_calls_of_an_answer_are_kept(stop: StopReason, kept: list[str]) -> None:
    answer = [
        CallPiece(0, "", "look", "{}"),
        CallPiece(1, "", "nowhere", "{}"),
        CallPiece(2, "", "look", '{"a'),
        CallPiece(3, "", "look", ""),
        CallPiece(4, "", "", "{}"),
        CallPiece(5, "srvtoolu_1", "look", "{}"),  # the provider ran it
    ]
    names, others = wishes(answer, stop, ("look",))
    assert [piece.name for piece in names] == kept
    assert len(names) + len(others) == len(answer)


def test_everything_but_success_is_an_error_on_the_wire() -> None:
    told = {
        outcome: ToolResult(call="", wire_id="", name="", content="", outcome=outcome).is_error
        for outcome in Outcome
    }
    assert [outcome for outcome, is_error in told.items() if not is_error] == [Outcome.OK]


@pytest.mark.parametrize("field", ["input", "output", "cached", "cache_write", "reasoning", "estimated"])
def test_usage_is_never_negative(field: str) -> None:
    with pytest.raises(ValueError, match=f"Usage.{field} must not be negative; got -1"):
        Usage(**{field: -1})


def test_a_discount_is_no_income() -> None:
    assert cost(Usage(input=10, cached=50), Price(input="3", output="15", cached="0.3")) >= 0


def test_two_children_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two children of one name: 'kid'"):
        Config(model=ModelSpec(name="m"), children=(ChildSpec(name="kid"), ChildSpec(name="kid")))


# What every provider takes

CALL = ToolCall(id="c-1", wire_id="", name="look", arguments="{}")
ASKED = Message(role=Role.ASSISTANT, parts=(CALL,))
RESULT = Message(role=Role.TOOL, parts=(ToolResult(call="c-1", wire_id="", name="look", content="seen"),))


@pytest.mark.parametrize(
    ("messages", "open_calls", "fault"),
    [
        ([user("a"), ASKED, RESULT], (), ""),
        ([user("a"), ASKED], ("c-1",), ""),
        ([user("a"), ASKED], (), "the history ends with the open calls ['c-1'], the state lists []"),
        ([user("a"), ASKED, RESULT], ("c-1",), "the history ends with the open calls []"),
        ([user("a"), ASKED, user("b"), RESULT], (), "message 2 has the results [], due are ['c-1']"),
        ([user("a"), RESULT], (), "message 1 has the results ['c-1'], due are []"),
        ([ASKED, Message(role=Role.USER, parts=RESULT.parts)], (), "message 1 of role user has 1 results"),
        ([user("a"), Message(role=Role.TOOL, parts=())], (), "message 1 of role tool has 0 results"),
        ([Message(role=Role.USER, parts=(CALL,))], ("c-1",), "message 0 of role user has calls"),
        ([Message(role=Role.ASSISTANT, parts=())], (), "message 0 is empty"),
    ],
)
def test_what_no_provider_takes_is_named(
    messages: list[Message], open_calls: tuple[str, ...], fault: str
) -> None:
    faults = history_faults(messages, open_calls)
    assert any(one.startswith(fault) for one in faults) if fault else faults == []


# Presets

PRESETS = {name: value for name, value in vars(config).items() if isinstance(value, Policy)}


def test_a_preset_is_a_policy_that_a_run_takes_and_no_two_are_the_same() -> None:
    for policy in PRESETS.values():
        machine = Machine.start(Config(model=ModelSpec(name="m"), policy=policy), "go")
        machine.advance()
        assert machine.state.label == "streaming"
    assert len({Policy(), *PRESETS.values()}) == len(PRESETS) + 1 == 5


@pytest.mark.parametrize(
    ("answers", "verdict", "because"),
    [
        ([HookAnswer()], None, ""),
        ([HookAnswer(reason="well")], None, ""),
        ([HookAnswer(verdict="ask")], "ask", "h0"),
        ([HookAnswer(), HookAnswer(verdict="deny", reason="no")], "deny", "h1: no"),
        ([], None, ""),
    ],
)
def test_hooks_are_named_for_what_they_decide_and_not_for_saying_nothing(
    answers: list[HookAnswer], verdict: str | None, because: str
) -> None:
    said = opinion(tuple([HookSaid(name=f"h{n}", answer=one) for n, one in enumerate(answers)]))
    assert (said.verdict, said.because) == (verdict, because)


def test_a_model_is_told_to_ask_again_only_where_others_hold_what_is_missing() -> None:
    alone = model_messages.no_budget_for("kid", "2 tokens", at_work=False)
    assert alone == "Not started: there is only 2 tokens left for 'kid'."
    beside = model_messages.no_budget_for("kid", "2 tokens", at_work=True)
    assert beside == f"{alone} The rest is set aside for agents at work; ask again when they are done."


def test_a_call_without_its_secret_was_not_run_unless_it_was_tried_before() -> None:
    gone = model_messages.secrets_gone("pay", ("[[a]]", "[[b]]"))
    assert gone.startswith("pay was not run: [[a]], [[b]] are not known here any more.")
    again = model_messages.secrets_gone("pay", ("[[a]]", "[[b]]"), again=True)
    assert "pay was not run" not in again
