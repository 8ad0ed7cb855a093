"""Calls put together: whatever a server leaves out, repeats or sends whole, each bit goes to its own call."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from turnwheel.effects.history import CallPiece, Piece, merged
from turnwheel.performers.models.call_assembler import CallAssembler
from turnwheel.performers.models.lenient_json import MAX_LABEL, Object

SIGNED = {"google": {"thought_signature": "sig"}}
SIGNATURE = '{"extra_content":{"google":{"thought_signature":"sig"}}}'


def bit(
    index: object = None, wire_id: str = "", name: str = "", arguments: object = "", extra: object = None
) -> Object:
    """A bit of a call, with those fields only that a server has filled."""
    function = {key: given for key, given in (("name", name), ("arguments", arguments)) if given}
    fields = {"index": index, "id": wire_id, "function": function, "extra_content": extra}
    return {key: given for key, given in fields.items() if given not in (None, "", {})}


def calls_of(*deltas: Sequence[object]) -> list[Piece]:
    """The calls that the bits in *deltas* come to; those of calls that come in turns are no neighbours."""
    assembler, pieces = CallAssembler(), list[Piece]()
    for bits in deltas:
        pieces += assembler.read({"tool_calls": [*bits]})
    return [*merged(sorted([*pieces, *assembler.rest()], key=number_of))]


def number_of(piece: Piece) -> int:
    assert isinstance(piece, CallPiece)
    return piece.index


BOTH = [CallPiece(0, "a", "f", '{"x":1}'), CallPiece(1, "b", "f", "{}")]
NAMELESS = [CallPiece(0, "", "f", '{"x":1}'), CallPiece(1, "", "f", "{}")]

# What a server sends of its calls, bit by bit, and the calls that this is.
SERVERS: dict[str, tuple[list[object], list[CallPiece]]] = {
    "an index, and the rest once": (
        [bit(0, "a", "f"), bit(0, arguments='{"x"'), bit(0, arguments=":1}"), bit(1, "b", "f", "{}")],
        BOTH,
    ),
    "an index, and bits in turns": (
        [
            bit(0, "a", "f", '{"x"'),
            bit(1, "b", "f", "{"),
            bit(0, arguments=":1"),
            bit(1, arguments="}"),
            bit(0, arguments="}"),
        ],
        BOTH,
    ),
    "an index that is a text": (
        [bit("one", "a", "f", '{"x"'), bit("two", "b", "f", "{}"), bit("one", arguments=":1}")],
        BOTH,
    ),
    "an index that is neither": ([bit([0], "a", "f", '{"x"'), bit([0], arguments=":1}")], BOTH[:1]),
    "ids only": ([bit(None, "a", "f", '{"x":1}'), bit(None, "b", "f", "{}")], BOTH),
    "ids with every bit, in turns": (
        [
            bit(None, "a", "f", '{"x"'),
            bit(None, "b", "f", "{"),
            bit(None, "a", arguments=":1}"),
            bit(None, "b", arguments="}"),
        ],
        BOTH,
    ),
    "one index for all, and ids": ([bit(0, "a", "f", '{"x":1}'), bit(0, "b", "f", "{}")], BOTH),
    "one index for all, and ids with every bit, in turns": (
        [
            bit(0, "a", "f", '{"x"'),
            bit(0, "b", "f", "{"),
            bit(0, "a", arguments=":1}"),
            bit(0, "b", arguments="}"),
        ],
        BOTH,
    ),
    "one index for all, and no ids": ([bit(0, "", "f", '{"x":1}'), bit(0, "", "f", "{}")], NAMELESS),
    "neither index nor id": ([bit(None, "", "f", '{"x":1}'), bit(None, "", "f", "{}")], NAMELESS),
    "neither, and the name with every bit": (
        [bit(None, "", "f", '{"x"'), bit(None, "", "f", ":1}"), bit(None, "", "f", "{}")],
        NAMELESS,
    ),
    "neither, and another name behind arguments that are not whole": (
        [bit(None, "", "f", '{"x":'), bit(None, "", "g", "{}")],
        [CallPiece(0, "", "f", '{"x":'), CallPiece(1, "", "g", "{}")],
    ),
    "an id alone, and then its call": ([bit(0, "a"), bit(0, "", "f", '{"x":1}')], BOTH[:1]),
    "an id alone, without an index": ([bit(None, "a"), bit(None, "", "f", '{"x":1}')], BOTH[:1]),
    "an index, no ids, and the name once for each call": (
        [bit(0, "", "f", '{"x"'), bit(0, arguments=":1}"), bit(0, "", "f", "{}")],
        NAMELESS,
    ),
    "an index in the first bit of a call only": (
        [bit(0, "a", "f", "{"), bit(1, "b", "f", "{}"), bit(0, arguments='"x"'), bit(None, arguments=":1}")],
        BOTH,
    ),
    "an index and one id for all": (
        [
            bit(0, "a", "f", "{"),
            bit(1, "a", "f", "{"),
            bit(0, "a", arguments="}"),
            bit(1, "a", arguments="}"),
        ],
        [CallPiece(0, "a", "f", "{}"), CallPiece(1, "a", "f", "{}")],
    ),
    "an index for some only": (
        [bit(None, "a", "f", '{"x":1}'), bit(0, "b", "f", "{"), bit(None, "z", arguments="}")],
        BOTH,
    ),
    "ids for some only, in turns": (
        [bit(None, "a", "f", "{"), bit(None, "", "g", "{}"), bit(None, "a", arguments="}")],
        [CallPiece(0, "a", "f", "{}"), CallPiece(1, "", "g", "{}")],
    ),
    "one index for all, an id once, and the name with every bit": (
        [bit(0, "a", "f", '{"x":'), bit(0, "", "f", "1}"), bit(0, "b", "f"), bit(0, "b", arguments="{}")],
        BOTH,
    ),
    "an id alone behind another call": (
        [bit(None, "a", "f", '{"x":1}'), bit(None, "b"), bit(None, "", "f", "{}")],
        BOTH,
    ),
    "the name once more behind whole arguments": ([bit(0, "a", "f", '{"x":1}'), bit(0, "", "f")], BOTH[:1]),
    "the name once more before the arguments": (
        [bit(0, "a", "f"), bit(0, "a", "f"), bit(0, arguments='{"x":1}')],
        BOTH[:1],
    ),
    "an id that comes late, with the name": ([bit(0, "", "f", '{"x"'), bit(0, "a", "f", ":1}")], BOTH[:1]),
    "an id that comes late": ([bit(0, "", "f", '{"x"'), bit(0, "a", arguments=":1}")], BOTH[:1]),
    "another id in the middle, without a name": (
        [bit(0, "a", "f", '{"x"'), bit(0, "z", arguments=":1}"), bit(1, "b", "f", "{}")],
        BOTH,
    ),
    "another id in the middle, without a name or an index": (
        [bit(None, "a", "f", '{"x"'), bit(None, "z", arguments=":1}")],
        BOTH[:1],
    ),
    "the id and the name with every bit": (
        [bit(0, "a", "f", '{"x"'), bit(0, "a", "f", ":1"), bit(0, "a", "f", "}"), bit(0, "b", "f", "{}")],
        BOTH,
    ),
    "a name in bits": (
        [bit(0, "a", "ge"), bit(0, "", "t_"), bit(0, "", "it"), bit(0, arguments="{}")],
        [CallPiece(0, "a", "get_it", "{}")],
    ),
    "a name behind the first arguments": (
        [bit(0, "a", arguments="{"), bit(0, "", "f"), bit(0, arguments="}")],
        [CallPiece(0, "a", "f", "{}")],
    ),
    "names that wait for arguments which never come": (
        [bit(0, "a", "f"), bit(1, "b", "g")],
        [CallPiece(0, "a", "f"), CallPiece(1, "b", "g")],
    ),
    "arguments without a name": ([bit(0, "a", arguments="{}")], [CallPiece(0, "a", "", "{}")]),
    "arguments as an object": ([bit(0, "", "f", {"x": "ü"})], [CallPiece(0, "", "f", '{"x": "ü"}')]),
    "arguments as an object, behind the name": (
        [bit(0, "a", "f", " "), bit(0, arguments={"x": 1})],
        [CallPiece(0, "a", "f", ' {"x": 1}')],
    ),
    "arguments as an object, of two calls": (
        [bit(0, "", "f", {"x": 1}), bit(0, "", "f", {"x": 2})],
        [CallPiece(0, "", "f", '{"x": 1}'), CallPiece(1, "", "f", '{"x": 2}')],
    ),
    "a signature in the first bit": (
        [bit(0, "a", "f", "{", extra=SIGNED), bit(0, arguments="}")],
        [CallPiece(0, "a", "f", "{}", SIGNATURE)],
    ),
    "a signature of a call without arguments": (
        [bit(0, "", "f", "{}"), bit(0, "", "f", extra=SIGNED)],
        [CallPiece(0, "", "f", "{}"), CallPiece(1, "", "f", "", SIGNATURE)],
    ),
    "a signature without an index": (
        [bit(0, "a", "f", "{}"), bit(extra=SIGNED)],
        [CallPiece(0, "a", "f", "{}", SIGNATURE)],
    ),
    "a signature behind it all": (
        [bit(0, "a", "f", "{}"), bit(0, extra=SIGNED)],
        [CallPiece(0, "a", "f", "{}", SIGNATURE)],
    ),
    "a signature with more arguments": (
        [bit(0, "a", "f", "{"), bit(0, arguments="}", extra=SIGNED)],
        [CallPiece(0, "a", "f", "{}", SIGNATURE)],
    ),
    "more of the kind that is no signature": (
        [bit(0, "a", "f", "{}", extra={"google": "sig"}), bit(0, extra="sig")],
        [CallPiece(0, "a", "f", "{}")],
    ),
    "nothing in a bit": (
        [bit(0, "a", "f", '{"x":1'), bit(7), {}, bit(0, arguments="}"), bit(1, "b", "f", "{}")],
        BOTH,
    ),
    "no bits at all": (["a", None, 7, bit(0, "a", "f", "{}")], [CallPiece(0, "a", "f", "{}")]),
    "a function that is none": (
        [bit(0, "a", "f", "{}"), {"index": 0, "function": "f"}],
        [CallPiece(0, "a", "f", "{}")],
    ),
}


@pytest.mark.parametrize("server", SERVERS)
def test_each_bit_goes_to_its_call(server: str) -> None:
    bits, calls = SERVERS[server]
    assert calls_of(*[[one] for one in bits]) == calls
    assert calls_of(bits) == calls


# Arguments in bits, each with the name of the tool: where they are whole, the next ones are another call's.
WHOLE = {
    "plain": ['{"x"', ":1", "}"],
    "objects within": ['{"x":{', '"y":{}', "}}"],
    "braces in a string": ['{"x":"}', "{", '}"', "}"],
    "a quote that is hidden": ['{"x":"\\"}', '"}'],
    "a quote that is hidden, cut": ['{"x":"\\', '"}', '"}'],
    "a backslash that is hidden": ['{"x":"\\\\', '"', "}"],
    "a key with braces": ['{"}{', '":1', "}"],
    "a string that is cut": ['{"x":"a', "b", '"', ',"y":"}', '"}'],
    "a line feed behind a backslash": ['{"x":"', "\\n", '}"}'],
    "a space before": [" ", "{", "}"],
}


@pytest.mark.parametrize("cut", WHOLE)
def test_arguments_end_where_their_object_closes(cut: str) -> None:
    arguments = WHOLE[cut]
    bits = [bit(0, "", "f", one) for one in arguments]
    call = "".join(arguments)
    assert calls_of(bits, bits) == [CallPiece(0, "", "f", call), CallPiece(1, "", "f", call)]


@pytest.mark.parametrize("arguments", ["{x}", "}", "{}}", '"}"', "1}", "{]}"])
def test_arguments_that_are_closed_and_no_object_go_on(arguments: str) -> None:
    bits = [bit(0, "", "f", one) for one in (arguments, "{}", "{}")]
    assert calls_of(bits) == [CallPiece(0, "", "f", arguments + "{}{}")]


def test_a_name_is_told_once_its_arguments_begin_and_a_repetition_says_nothing() -> None:
    assembler = CallAssembler()

    def told(one: Object) -> list[Piece]:
        return assembler.read({"tool_calls": [one]})

    assert told(bit(0, "a", "f")) == [CallPiece(0, "a")]
    assert told(bit(0, "a")) == []
    assert told(bit(0, arguments="{")) == [CallPiece(0, "", "f", "{")]
    assert told(bit(0, "a", "f", " ")) == [CallPiece(0, arguments=" ")]
    assert told(bit(0, arguments="}")) == [CallPiece(0, arguments="}")]
    assert told(bit(0)) == told(bit(0, "a")) == told({"index": 0, "function": {"arguments": ""}}) == []
    assert assembler.rest() == []


def test_a_name_that_comes_behind_arguments_is_told_at_once() -> None:
    assembler = CallAssembler()
    assert assembler.read({"tool_calls": [bit(0, arguments="{"), bit(0, extra=SIGNED)]}) == [
        CallPiece(0, arguments="{"),
        CallPiece(0, opaque=SIGNATURE),
    ]
    assert assembler.rest() == []
    assert assembler.read({"tool_calls": [bit(0, name="f")]}) == [CallPiece(0, name="f")]


def test_a_name_that_no_arguments_follow_is_told_once_at_the_end() -> None:
    assembler = CallAssembler()
    assembler.read({"tool_calls": [bit(0, "a", "f")]})
    assert assembler.rest() == [CallPiece(0, name="f")]
    assert assembler.rest() == []


def test_the_one_call_of_2023_has_neither_an_id_nor_an_index() -> None:
    assembler, pieces = CallAssembler(), list[Piece]()
    for legacy in ({"name": "f"}, {"arguments": '{"x"'}, {"arguments": ":1}"}, "f", None):
        pieces += assembler.read({"function_call": legacy})
    assert merged(pieces) == (CallPiece(0, "", "f", '{"x":1}'),)


@pytest.mark.parametrize("sent", [None, "f", {"index": 0}, 7])
def test_calls_that_are_no_list_are_none(sent: object) -> None:
    assert CallAssembler().read({"tool_calls": sent}) == []


# Whether arguments came without a name, and a name without arguments.
TORN = {
    "arguments, and then a name": ([bit(0, "a", arguments="{}"), bit(1, "b", "f")], True),
    "a name, and then arguments": ([bit(0, "a", "f"), bit(1, "b", arguments="{}")], False),
    "arguments, and a call that is whole": ([bit(0, "a", arguments="{}"), bit(1, "b", "g", "{}")], False),
    "a name only": ([bit(0, "a", "f"), bit(1, "b", "g", "{}")], False),
    "arguments only": ([bit(0, "a", arguments="{}")], False),
    "neither": ([bit(0, "a", "f", "{}")], False),
    "nothing": ([], False),
}


@pytest.mark.parametrize("what", TORN)
def test_a_call_is_torn_where_its_name_and_its_arguments_stand_in_two(what: str) -> None:
    bits, torn = TORN[what]
    assembler = CallAssembler()
    assembler.read({"tool_calls": bits})
    assert assembler.torn is torn


@pytest.mark.parametrize("arguments", ["{}", ""])
def test_an_id_and_a_name_that_are_longer_than_any_are_cut(arguments: str) -> None:
    most = "x" * MAX_LABEL
    named = [
        bit(None, most, most),
        bit(None, f"{most}a", most),
        bit(None, f"{most}a", "y"),
        bit(None, f"{most}b", f"{most}z"),
        bit(None, f"{most}b", "z"),
    ]
    filled = [bit(None, wire_id, arguments=arguments) for wire_id in (most, f"{most}a", f"{most}b")]
    assert calls_of(named, filled) == [
        CallPiece(0, most, most, arguments),
        CallPiece(1, f"{most}...", f"{most}...", arguments),
        CallPiece(2, f"{most}...", f"{most}...", arguments),
    ]
