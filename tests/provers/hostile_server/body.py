"""Attacks by what an answer says: its size, its order, its JSON, and what stands in its fields."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from provers.hostile_server.attacks import (
    ANSWER,
    HELLO,
    PART,
    SECRET,
    Attacker,
    attack,
    begun,
    body,
    called,
    for_ever,
    hello,
    large,
    last,
    silent,
)
from provers.streams import (
    Dialect,
    Said,
    Wish,
    event,
)
from turnwheel.effects.events import Failure

CUT, OVERLOADED = Failure.CUT, Failure.OVERLOADED

MEGABYTE = 1024 * 1024

CALLS = Said(text=("I look.",), calls=tuple([Wish(id=f"c{n}", arguments=("{", "}")) for n in range(3)]))
"""What a server says that calls a tool three times."""

ANY = (ANSWER, CUT)
"""What an answer comes to of which something may be missing."""


def json_head(size: int | None = None) -> bytes:
    """The head of an answer in one piece."""
    length = "transfer-encoding: chunked" if size is None else f"content-length: {size}"
    return f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{length}\r\n\r\n".encode()


def in_one(say: Callable[[Dialect], Iterable[bytes]]) -> Attacker:
    """An answer in one piece that says this."""
    return body(say, head=json_head())


def between(value: bytes) -> Attacker:
    """A whole answer with *value* as an event in its middle."""
    return body(lambda dialect: [*begun(dialect), b"data: " + value + b"\n\n", *last(dialect)])


def changed(change: Callable[[Any], object], said: Said = CALLS) -> Attacker:
    """The answer that says *said*, each JSON of it made by *change* of what it was."""

    def say(dialect: Dialect) -> Iterator[bytes]:
        for each in dialect.events(said):
            first, data, rest = each.partition(b"data: {")
            if data:
                yield first + b"data: " + json.dumps(change(json.loads(b"{" + rest))).encode() + b"\n\n"
            else:
                yield each

    return body(say)


def with_each(key: str, value: object) -> Callable[[Any], object]:
    """What puts *value* under every *key*, however deep."""

    def change(old: Any) -> object:  # JSON
        if isinstance(old, dict):
            return {name: value if name == key else change(each) for name, each in old.items()}
        return [change(each) for each in old] if isinstance(old, list) else old

    return change


def instead(value: object) -> Callable[[Any], object]:
    """What puts *value* in the place of anything."""
    return lambda _: value


def order(arrange: Callable[[Sequence[bytes]], Iterable[bytes]]) -> Attacker:
    """The events of an answer with calls in another order."""
    return body(lambda dialect: arrange(dialect.events(CALLS)))


def shuffled(events: Sequence[bytes]) -> list[bytes]:
    """*events* in an order that is the same each time."""
    return random.Random(1).sample(events, len(events))  # it keeps no secret


def argued(size: int) -> Attacker:
    """A call whose arguments have *size* characters, in many bits."""

    def say(dialect: Dialect) -> Iterator[bytes]:
        events = dialect.events(Said(calls=(Wish(arguments=('{"path": "', "x" * PART, '"}')),)))
        yield from events[:-5]
        yield from itertools.repeat(events[-5], size // PART)
        yield from events[-4:]

    return body(say)


def said(what: Said) -> Attacker:
    """The answer that says *what*."""
    return body(lambda dialect: dialect.events(what))


def nested(levels: int) -> bytes:
    """JSON of so many *levels*."""
    return b'{"a":[' * (levels // 2) + b"]}" * (levels // 2)


def numbered(used: str) -> Attacker:
    """An answer whose counts of tokens are each *used*, as JSON has it."""

    def say(dialect: Dialect) -> Iterator[bytes]:
        for each in hello(dialect):
            text = each.decode()
            for count in ("12", "7", "19"):
                text = text.replace(f'tokens": {count}', f'tokens": {used}')
            yield text.encode()

    return body(say)


def error_event(message: str, kind: str = "overloaded_error") -> Attacker:
    """An error before the first word."""
    return body(lambda dialect: [*silent(dialect), event(dialect.error(kind, message), "error")])


def behind(part: bytes) -> Attacker:
    """A whole answer, and *part* for ever behind it."""
    return body(for_ever(part, hello))


def pieces(text: str) -> Callable[[Dialect], Iterator[bytes]]:
    """*text* again and again, each in an event of its own."""

    def say(dialect: Dialect) -> Iterator[bytes]:
        events = dialect.events(Said(text=(text,)))
        yield from events[:-4]
        yield from itertools.repeat(events[-4] * max(1, PART // len(events[-4])))

    return say


SIZES = (
    attack(
        "a line of 100 MB",
        body(lambda d: itertools.chain(silent(d), [b"data: "], large(b"x", 100 * MEGABYTE))),
        CUT,
        says="an event of the stream is larger",
        heavy=True,
    ),
    attack(
        "100 MB without a line",
        body(lambda _: large(b"x", 100 * MEGABYTE)),
        CUT,
        says="an event of the stream is larger",
        heavy=True,
    ),
    attack(
        "100 MB in one piece",
        in_one(lambda _: itertools.chain([b'{"a":"'], large(b"x", 100 * MEGABYTE))),
        CUT,
        says="answer is larger",
        heavy=True,
    ),
    attack("words for ever", body(pieces("word " * 2_000)), CUT, says="the answer says more", heavy=True),
    attack("letters for ever", body(pieces("x")), CUT, says="the answer is larger", heavy=True),
    attack("comments for ever", body(for_ever(b": ping\n\n")), CUT, says="the answer is larger", heavy=True),
    attack("blank lines for ever", body(for_ever(b"\n")), CUT, says="the answer is larger", heavy=True),
    attack(
        "blanks for ever", body(for_ever(b" \n", lambda _: [])), CUT, says="the answer is larger", heavy=True
    ),
    attack("empty data for ever", body(for_ever(b"data:\n")), CUT, heavy=True),
    attack(
        "names for ever", body(for_ever(b"event: ping\n\n")), CUT, says="the answer is larger", heavy=True
    ),
    attack(
        "pings for ever",
        body(for_ever(event({"type": "ping"}, "ping"))),
        CUT,
        says="the answer is larger",
        heavy=True,
    ),
    attack("talk behind the end", behind(event({"choices": [{"delta": {"content": "more"}}]})), ANSWER),
    attack("comments behind the end", behind(b": more\n\n"), ANSWER),
    attack("arguments of 50 MB", argued(50 * MEGABYTE), CUT, says="the arguments of a call", heavy=True),
    attack("arguments of a megabyte", argued(MEGABYTE), ANSWER),
    attack(
        "thousands of calls",
        said(Said(calls=tuple([Wish(id=f"c{n}") for n in range(3_000)]))),
        ANSWER,
        heavy=True,
    ),
    attack("an id of a megabyte", said(Said(calls=(Wish(id="x" * MEGABYTE),))), ANSWER),
    attack("a name of a megabyte", said(Said(calls=(Wish(name="x" * MEGABYTE),))), ANSWER),
    attack(
        "a hundred names of a megabyte",
        said(Said(calls=tuple([Wish(id=f"{n}", name="x" * 70_000) for n in range(99)]))),
        ANSWER,
        heavy=True,
    ),
    attack(
        "a signature of a megabyte",
        said(Said(thinking=("hm",), signature="x" * MEGABYTE, text=("a",))),
        ANSWER,
    ),
    attack(
        "small things in one piece",
        in_one(lambda _: itertools.chain([b'{"choices":['], large(b"{},", 15 * MEGABYTE), [b"{}]}"])),
        CUT,
        heavy=True,
    ),
    attack(
        "small things in an event",
        body(
            lambda d: itertools.chain(
                begun(d), [b'data: {"choices":['], large(b"[],", 7 * MEGABYTE), [b"[]]}\n\n"], last(d)
            )
        ),
        ANSWER,
        heavy=True,
    ),
    attack("a whole megabyte", in_one(lambda d: [d.whole(Said(text=("word " * 200_000,)))]), ANSWER),
    attack(
        "nine whole megabytes",
        in_one(lambda d: [d.whole(Said(text=("x" * 9 * MEGABYTE,)))]),
        CUT,
        says="the answer says more",
        heavy=True,
    ),
)
"""Those who say too much."""

INDEXES: tuple[object, ...] = (0, 1, -1, 7, 10**30, 0.5, "0", "x" * 5_000, None, [], {"a": 1}, True)

ORDERS = (
    attack("all as it should be", order(list), ANSWER),
    attack("each event twice", order(lambda all_: [each for each in all_ for _ in range(2)]), *ANY),
    attack("the last event first", order(lambda all_: [*reversed(all_)]), *ANY),
    attack("every other event", order(lambda all_: all_[::2]), *ANY),
    attack("the other ones", order(lambda all_: all_[1::2]), *ANY),
    attack("no beginning", order(lambda all_: all_[3:]), *ANY),
    attack("no end", order(lambda all_: all_[:-3]), CUT),
    attack("any order", order(shuffled), *ANY),
    attack("two answers in one", order(lambda all_: [*all_[:-1], *all_]), *ANY),
    *[
        attack(f"every index is {called(index)}", changed(with_each("index", index)), *ANY)
        for index in INDEXES
    ],
    *[
        attack(f"every {key} is {called(value)}", changed(with_each(key, value)), *ANY)
        for key, value in itertools.product(
            ("id", "name", "type", "finish_reason", "delta"), (None, "", 0, ["a"], {"a": "b"})
        )
    ],
)
"""Those who say it in another order, or under another number."""

JSON = (
    attack("half an event", body(lambda d: [*begun(d), begun(d)[-1][:-9] + b"\n\n", *last(d)]), ANSWER),
    attack("10,000 levels", between(nested(10_000)), ANSWER),
    attack("10,000 levels, open", between(b'{"choices":' * 10_000), ANSWER),
    attack(
        "10,000 levels of arguments",
        said(Said(calls=(Wish(arguments=('{"path":' + "[" * 10_000 + "]" * 10_000 + "}",)),))),
        ANSWER,
    ),
    attack("900 levels", between(nested(900)), ANSWER),
    attack("levels in one piece", in_one(lambda _: [b'{"error":' * 10_000]), CUT),
    *[
        attack(f"{called(value)} in between", between(value), ANSWER)
        for value in (
            b"null",
            b"[]",
            b'"a"',
            b"1",
            b"{}",
            b"[[]]",
            b"nonsense",
            b"\0",
            b"\xff\xfe",
            b"{\0}",
            b'{"a":NaN}',
            b'{"a":-Infinity}',
            b'{"a":1e999}',
            b'{"a":' + b"9" * 9_999 + b"}",
            b'{"a":1,"a":2}',
            b'{"\\ud800":"\\udfff"}',
            b'{"choices":{"a":1}}',
            b'{"choices":[null,1,"a",[]]}',
            b'{"choices":[{"delta":"a"}]}',
            b'{"choices":[{"delta":{"tool_calls":{}}}]}',
            b'{"choices":[{"delta":{"tool_calls":[{"index":[],"function":7},null]}}]}',
            b'{"choices":[{"delta":{"content":[{"text":1}]}}]}',
            b'{"type":"content_block_delta","index":{},"delta":7}',
            b'{"type":"content_block_stop","index":null}',
            b'{"type":"message_delta","delta":[],"usage":"a"}',
            b'{"type":["a"]}',
            b'{"error":null}',
            b'{"error":0}',
            b'{"error":{}}',
        )
    ],
    attack("halves of characters", said(Said(text=("a\ud83d", "\ude00b", "\ud800", "c", "\udfff"))), ANSWER),
    attack("nuls", said(Said(text=("a\0b", "\0" * 999, "\x1b[2J\x07"))), ANSWER),
    attack(
        "no utf-8", body(lambda d: [each.replace(b"Hello", b"\xff\xfe\xc0\x80") for each in hello(d)]), ANSWER
    ),
)
"""Those whose JSON is none, or too much of it."""

FIELDS = (
    *[
        attack(f"{called(used)} tokens", numbered(used), ANSWER)
        for used in (
            "-5",
            "1e30",
            "9" * 40,
            "1.5",
            "1e400",
            '"12"',
            "null",
            "true",
            "[]",
            "{}",
            "NaN",
            "9" * 5_000,
        )
    ],
    *[
        attack(f"finished by {called(value)}", changed(with_each("finish_reason", value), HELLO), *ANY)
        for value in ("x" * MEGABYTE, {"a": [1]}, 7, True, "STOP", "error")
    ],
    *[
        attack(f"stopped by {called(value)}", changed(with_each("stop_reason", value), HELLO), *ANY)
        for value in ("x" * MEGABYTE, {"a": [1]}, 7, None, "pause_turn")
    ],
    attack(
        "a stop sequence of a megabyte",
        changed(with_each("stop_sequence", "x" * MEGABYTE), HELLO),
        ANSWER,
        "stop_sequence",
    ),
    attack("an error that quotes the key", error_event(f"no {SECRET}"), OVERLOADED),
    attack("an error that quotes the key at the cut", error_event("x" * 475 + SECRET), OVERLOADED),
    attack("an error of 5 MB", error_event("x" * 5 * MEGABYTE), OVERLOADED, heavy=True),
    attack("an error of many words", error_event("prompt token count of 1" * 99_999), OVERLOADED),
    *[
        attack(
            f"an error of {called(value)}",
            changed(instead({"error": value, "type": "error"})),
            CUT,
        )
        for value in (
            True,
            7,
            "no",
            ["no"],
            {"a": {"b": 1}},
            {"code": 1e9},
            {"message": {"message": "no"}},
            [[[["no"]]]],
        )
    ],
    attack(
        "an error of halves",
        body(lambda _: [b'data: {"type":"error","error":{"\\ud800":"\\udfff"}}\n\n']),
        CUT,
    ),
    attack("an error in words", body(lambda _: [b"event: error\ndata: it broke\n\n"]), CUT, says="it broke"),
)
"""Those whose fields hold what nobody expects."""

BODIES = (*SIZES, *ORDERS, *JSON, *FIELDS)
"""All of them."""
