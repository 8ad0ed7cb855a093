"""
Making of bytes that are well what nobody sends: by bytes, by lines, by JSON, and out of two at a time.

Everything is drawn from a `random.Random`, so a seed makes the same bytes each time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

MOST = 200_000
"""Bytes that a mutation may have: more takes time and finds nothing new."""

BYTES = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\r\n",
    b"\n\n",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b":",
    b",",
)
"""Bits that matter to those who read."""

TEXTS = (
    *("data: ", "data:", "data: [DONE]\n\n", "event: error\n", "event:\n", ": \n", "id: 1\n", "retry: x\n"),
    *("\\ud83d", "\\ude00", "\\u0000", "NaN", "-Infinity", "1e999", "null", "true", "{}", "[]", '"":'),
)
"""Words that mean something, where they stand or elsewhere."""

DEEP = "(deep)"
"""Stands for what is nested deeper than `json.dumps` can write."""

VALUES: tuple[object, ...] = (
    *(DEEP,),
    *(None, True, False, 0, -1, 1, 2, 7, 0.5, -0.0, 1e308, 10**9, 10**18, 2**63, 2**64, 10**30),
    *("", " ", "0", "a", "error", "stop", "tool_use", "\0", "\ud83d", "\ude00", "\u2028", "é", "x" * 1_500),
    *(
        [],
        {},
        [None],
        [[]],
        [{}],
        {"": ""},
        {"type": "text"},
        {"index": 0},
        {"message": "no"},
        [1, "a", None],
    ),
)
"""Values that may stand where another one is meant."""

Json = Any
Change = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
"""A way to make other bytes of some, with others at hand."""


def one_in(rng: random.Random, number: int) -> bool:
    """True once in so many times."""
    return rng.randrange(number) == 0


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """*data* after one or several changes, in which bits of *others* may take part."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        data = rng.choice(CHANGES)(rng, data, others)[:MOST]
    return data


def cuts(rng: random.Random, data: bytes) -> list[bytes]:
    """*data* in parts, as a network may cut it: few or many, near to each other or far."""
    if not data:
        return [data]
    most = rng.choice((1, 2, 5, 20, 100))
    places = sorted({rng.randrange(len(data)) for _ in range(rng.randrange(1, most + 1))})
    return [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]


# By bytes


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((0, 1, 1, 2, 5, 20, 100, 1_000)))


def flipped(rng: random.Random, data: bytes, __: Sequence[bytes]) -> bytes:
    """Some bits are others."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def without(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A part is missing."""
    start, stop = _span(rng, data)
    return data[:start] + data[stop:]


def doubled(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A part is there again, or many times."""
    start, stop = _span(rng, data)
    return data[:stop] + data[start:stop] * rng.choice((1, 1, 2, 50)) + data[stop:]


def inserted(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Something stands in between that means something."""
    start, stop = _span(rng, data)
    said = rng.choice(BYTES) if one_in(rng, 2) else rng.choice(TEXTS).encode()
    return data[:start] + said * rng.choice((1, 1, 1, 2, 2, 300, 5_000)) + data[rng.choice((start, stop)) :]


def shortened(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """It ends earlier, or begins later."""
    at = rng.randrange(len(data) + 1)
    return data[at:] if one_in(rng, 5) else data[:at]


def spliced(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Its beginning, and the end of another one."""
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


# By lines


def _by_lines(change: Callable[[random.Random, list[bytes], list[bytes]], None]) -> Change:
    def changed(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        separator = rng.choice((b"\n\n", b"\n\n", b"\n"))
        lines = data.split(separator)
        change(rng, lines, rng.choice(others).split(separator))
        return separator.join(lines)

    return changed


def _line_dropped(rng: random.Random, lines: list[bytes], _: list[bytes]) -> None:
    del lines[rng.randrange(len(lines))]


def _line_repeated(rng: random.Random, lines: list[bytes], _: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    lines[at:at] = [lines[at]] * rng.choice((1, 1, 2, 30))


def _line_moved(rng: random.Random, lines: list[bytes], _: list[bytes]) -> None:
    lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))


def _line_of_another(rng: random.Random, lines: list[bytes], others: list[bytes]) -> None:
    start = rng.randrange(len(others))
    at = rng.randrange(len(lines))
    lines[at:at] = others[start : start + rng.choice((1, 2, 5))]


def _lines_shuffled(rng: random.Random, lines: list[bytes], _: list[bytes]) -> None:
    rng.shuffle(lines)


def other_ends(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Its lines end otherwise."""
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\n\r")))


# By JSON


def json_changed(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A value of some JSON in it is another one, or is missing, or stands elsewhere."""
    lines = data.split(b"\n")
    places = [number for number, line in enumerate(lines) if b"{" in line]
    if not places:
        return data
    number = rng.choice(places)
    head, mark, rest = lines[number].partition(b"{")
    try:
        value = json.loads((mark + rest).decode())
    except (ValueError, RecursionError):
        return data
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = _value_changed(rng, value, others)
    lines[number] = head + _written(rng, value)
    return b"\n".join(lines)


def _value_changed(rng: random.Random, value: Json, others: Sequence[bytes]) -> Json:
    """*value* with one change, somewhere within."""
    holders = list(_holders(value))
    if not holders:
        return _copied(rng.choice(VALUES))
    holder = rng.choice(holders)
    key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [holder[key]] if one_in(rng, 2) else {"a": holder[key]}
        case 2:
            other = rng.choice(holders)
            holder[key] = _copied(other)
        case 3 if isinstance(holder, dict):
            another = rng.choice(list(holder))
            holder[another] = holder.pop(key)
        case 4:
            holder[key] = _nested(rng.choice((1, 3, 3, 9, 60, 300)))
        case 5 if isinstance(holder, list):
            holder.extend([_copied(holder[key]) for _ in range(rng.choice((1, 2, 40)))])
        case 6:
            holder[key] = _part_of(rng, rng.choice(others))
        case _:
            holder[key] = _copied(rng.choice(VALUES))
    return value


def _holders(value: Json) -> list[Json]:
    """All objects and lists in *value* that hold something."""
    found: list[Json] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list) and each:
            found.append(each)
            waiting += each.values() if isinstance(each, dict) else each
    return found


def _copied(value: Json) -> Json:
    if not isinstance(value, dict | list):
        return value
    try:
        return json.loads(json.dumps(value))
    except RecursionError:
        return None


def _nested(levels: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


def _part_of(rng: random.Random, data: bytes) -> str:
    start, stop = _span(rng, data)
    return data[start:stop].decode("utf-8", "replace")


def _written(rng: random.Random, value: Json) -> bytes:
    """*value* as JSON, in one of the ways there are, and sometimes with a key twice."""
    separators = rng.choice(((",", ":"), (", ", ": ")))
    try:
        text = json.dumps(value, ensure_ascii=one_in(rng, 2), separators=separators)
    except RecursionError:
        return b"{}"
    text = text.replace(f'"{DEEP}"', "[" * 5_000 + "]" * 5_000)
    if text.startswith("{") and text != "{}" and one_in(rng, 10):
        text = text[:-1] + "," + text[1:]
    return text.encode("utf-8", "surrogatepass")


CHANGES: tuple[Change, ...] = (
    *(flipped, without, doubled, inserted, shortened, spliced, other_ends),
    *map(_by_lines, (_line_dropped, _line_repeated, _line_moved, _line_of_another, _lines_shuffled)),
    *(json_changed,) * 8,
)
"""Every way there is; JSON is changed more often, since most of the rest is no JSON any more."""
