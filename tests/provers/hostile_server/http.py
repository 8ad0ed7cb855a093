"""Attacks by the connection, the head of an answer and what it says of its body."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Callable, Iterator

from provers.hostile_server.attacks import (
    ANSWER,
    HELLO,
    PART,
    SECRET,
    Attack,
    Attacker,
    Say,
    Then,
    attack,
    begun,
    body,
    called,
    hello,
    keep,
    raw,
    silent,
)
from provers.hostile_server.server import (
    END,
    STREAM,
    Answer,
    Line,
    chunked,
)
from provers.streams import Dialect
from turnwheel.effects.events import Failure

CUT, CONNECTION, TIMEOUT, BAD = Failure.CUT, Failure.CONNECTION, Failure.TIMEOUT, Failure.BAD_REQUEST
AUTH, LIMITED, SERVER, GONE = Failure.AUTH, Failure.RATE_LIMIT, Failure.SERVER, Failure.NOT_FOUND

OK = "200 OK"

EVERY = 0.01
"""Seconds between two drops of those who drip."""


def head(*lines: str, status: str = OK) -> bytes:
    """The head of an answer with *lines*."""
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode("latin-1")


def streamed(*lines: str) -> bytes:
    """The head of an answer in chunks, with more *lines*."""
    return head("content-type: text/event-stream", "transfer-encoding: chunked", *lines)


def plain(*lines: str, say: Say = hello, then: Then = Line.close, status: str = OK) -> Attacker:
    """A body of no told length, behind a head with *lines*, to the end of the connection."""
    return raw(lambda dialect: [head(*lines, status=status), *say(dialect)], then)


def long(add: int, say: Say = hello, *, stalls: bool = False) -> Attacker:
    """A body that is said to be longer than it is, by *add* bytes, or shorter; all of it is sent."""

    def parts(dialect: Dialect) -> Iterator[bytes]:
        said = b"".join(say(dialect))
        yield head(f"content-length: {len(said) + add}") + said

    return raw(parts, stalls=stalls)


def refused(status: str, text: str | bytes, *lines: str) -> Attacker:
    """A refusal with *status* and a body that says *text*."""
    said = text if isinstance(text, bytes) else text.encode()
    return raw(head(f"content-length: {len(said)}", *lines, status=status) + said, keep)


def quoted(status: str, message: str) -> Attacker:
    """A refusal in the words of the dialect, with a *message*."""

    def parts(dialect: Dialect) -> Iterator[bytes]:
        said = json.dumps(dialect.error("invalid_request_error", message)).encode()
        yield head(f"content-length: {len(said)}", status=status) + said

    return raw(parts, keep)


def dripping(before: bytes, drop: bytes) -> Attacker:
    """*before*, and then a *drop* now and then."""

    def answers(_: Dialect) -> Answer:
        async def answer(line: Line) -> None:
            await line.send(before)
            await line.drip(drop, EVERY)

        return answer

    return answers


def echoing(dialect: Dialect) -> Answer:
    """Quotes all that it was sent, which no JSON is."""
    del dialect

    async def answer(line: Line) -> None:
        said = line.asked.head.encode()
        await line.send(head(f"content-length: {len(said)}", status="401 Unauthorized") + said)

    return answer


def packed(coding: str, pack: Callable[[bytes], bytes], say: Say = hello) -> Attacker:
    """A body that *pack* packs, and that is said to have this *coding*."""
    return body(lambda dialect: [pack(b"".join(say(dialect)))], head=streamed(f"content-encoding: {coding}"))


def bomb(part: bytes, before: bytes) -> Attacker:
    """*part* without an end, packed to a thousandth, behind the head *before*."""

    def parts(_: Dialect) -> Iterator[bytes]:
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        many = packer.compress(part * (64 * PART // len(part))) + packer.flush(zlib.Z_SYNC_FLUSH)
        yield before + chunked(
            gzip.compress(b"")[:10]
        )  # what gzip begins with; the rest refers to itself only
        yield from itertools.repeat(chunked(many))

    return raw(parts)


def deflated(data: bytes) -> bytes:
    """*data* as those deflate it who leave out how it begins."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def opened(with_: bytes) -> Attacker:
    """An answer without an end of its own, behind these bytes."""
    return raw(lambda dialect: [with_, *hello(dialect)])


def heads(line: bytes, count: int | None) -> Attacker:
    """A head with *line* so many times, or without an end, and an answer."""

    def parts(dialect: Dialect) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
        many = line * max(1, PART // len(line))
        if count is None:
            yield from itertools.repeat(many)
        else:
            yield line * count
        yield b"\r\n"
        yield from map(chunked, hello(dialect))
        yield END

    return raw(parts)


def chunks(before: bytes) -> Attacker:
    """An answer whose chunks, after those before its first word, begin with *before*."""
    return raw(lambda dialect: [STREAM, *map(chunked, silent(dialect)), before, *hello(dialect)])


def whole(dialect: Dialect) -> list[bytes]:
    """An answer in chunks, with its head and its end."""
    return [STREAM, *map(chunked, hello(dialect)), END]


def redirect(status: int, location: str) -> Attack:
    """A redirect to *location*."""
    said = head(f"location: {location}", "content-length: 0", status=f"{status} Elsewhere")
    return attack(f"a {status} to {called(location)}", raw(said, keep), BAD, CONNECTION)


FIRST, IDLE, LONGEST = "first_byte_timeout", "idle_timeout", "answer_timeout"

WORDLESS = (
    attack("no word", raw(b"", stalls=True), TIMEOUT, says=FIRST, limit=FIRST),
    attack(
        "no end of the head", raw(b"HTTP/1.1 200 OK\r\nconte", stalls=True), TIMEOUT, says=FIRST, limit=FIRST
    ),
    attack("no body", raw(STREAM, stalls=True), TIMEOUT, says=FIRST, limit=FIRST),
    attack("no more", body(begun, end=b"", stalls=True), TIMEOUT, says=IDLE, limit=IDLE),
    attack("no end of the body", body(hello, end=b"", stalls=True), ANSWER),
    attack(
        "a head bit by bit", dripping(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"), TIMEOUT, says=FIRST, limit=FIRST
    ),
    attack(
        "a body bit by bit",
        dripping(STREAM, chunked(b":")),
        TIMEOUT,
        says=LONGEST,
        limit=LONGEST,
    ),
    attack("pings only", dripping(STREAM, chunked(b": ping\n\n")), TIMEOUT, says=LONGEST, limit=LONGEST),
    attack("hung up at once", raw(b""), CONNECTION, says="disconnected"),
    attack("hung up in the head", raw(b"HTTP/1.1 200 OK\r\nconte"), CONNECTION),
    attack("hung up before the body", raw(STREAM), CUT),
    attack("hung up in a chunk", raw(STREAM + b"40\r\ndata: "), CUT, says="was cut"),
    attack("hung up in the body", body(begun, Line.close, end=b""), CUT, says="was cut"),
    attack("hung up behind the end", body(hello, Line.close, end=b""), ANSWER),
    attack("reset at once", raw(b"", Line.reset), CONNECTION),
    attack("reset in the head", raw(b"HTTP/1.1 200 OK\r\nconte", Line.reset), CONNECTION),
    attack("reset in the body", body(begun, Line.reset, end=b""), CUT, CONNECTION),
    attack("reset behind the end", body(hello, Line.reset, end=b""), ANSWER, CUT, CONNECTION),
)
"""Those who say nothing, or stop."""

LENGTHS = (
    attack("a length too long", long(100), ANSWER),
    attack("a length too long for what was begun", long(100, begun), CUT, says="was cut"),
    attack("a length too long, kept open", long(100, stalls=True), ANSWER),
    attack("a length too short", long(-200), CUT),
    attack("a length of nothing", raw(lambda dialect: [head("content-length: 0"), *hello(dialect)]), CUT),
    *[
        attack(f"a length of {called(told)}", plain(f"content-length: {told}"), CONNECTION, CUT)
        for told in ("-1", "abc", "1e3", "0x10", "5, 6", "", "9" * 30)
    ],
    attack("two lengths", plain("content-length: 5", "content-length: 6"), CONNECTION),
    attack("a length and chunks", body(hello, head=streamed("content-length: 5")), ANSWER),
    attack("no length", plain(), ANSWER),
    *[
        attack(f"the transfer is {told}", plain(f"transfer-encoding: {told}"), CONNECTION)
        for told in ("gzip, chunked", "identity", "chunked, chunked", "x")
    ],
    *[
        attack(f"a chunk of {called(said)}", chunks(said), CUT, ANSWER)
        for said in (
            b"-5\r\n",
            b"zz\r\n",
            b"f" * 15 + b"\r\n",
            b"f" * 40 + b"\r\n",
            b"5;" + b"x" * 200_000,
            b"\0\r\n",
        )
    ],
    attack("many trailers", body(hello, end=b"0\r\n" + b"a: b\r\n" * 50_000 + b"\r\n"), ANSWER),
    attack(
        "a second answer in the same packet", raw(lambda d: [b"".join([*whole(d), *whole(d)])], keep), ANSWER
    ),
    attack("junk behind the end", raw(lambda d: [b"".join([*whole(d), b"SSH-2.0\r\n\r\n"])], keep), ANSWER),
    attack("chunks of one byte", body(lambda d: [bytes([one]) for one in d.stream(HELLO)]), ANSWER),
)
"""Those who lie about how much they say."""

CODINGS = (
    attack("packed", packed("gzip", gzip.compress), ANSWER),
    attack("packed, and more behind it", packed("gzip", lambda data: gzip.compress(data) + b"more"), ANSWER),
    attack("deflated", packed("deflate", zlib.compress), ANSWER),
    attack("deflated without its beginning", packed("Deflate", deflated), ANSWER),
    attack("said to be packed", packed("gzip", bytes), CUT, says="incorrect header"),
    attack("packed, and torn", packed("gzip", lambda data: gzip.compress(data)[:40]), CUT),
    attack("packed, and broken", packed("gzip", lambda data: gzip.compress(data)[:40] + b"\0" * 99), CUT),
    attack("packed twice", packed("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))), BAD),
    attack("packed as nobody asked", packed("br", bytes), BAD, says="encoded as 'br'"),
    attack("packed in a long word", packed("x" * 5_000, bytes), BAD),
    attack("a bomb of nothing", bomb(b"\0", streamed("content-encoding: gzip")), CUT, heavy=True),
    attack(
        "a bomb of comments",
        bomb(b": nothing is as large as this\n", streamed("content-encoding: gzip")),
        CUT,
        heavy=True,
    ),
    attack(
        "a bomb in a refusal",
        bomb(b"no ", b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n"),
        SERVER,
        says="http 500: no no",
    ),
)
"""Those who pack what they say."""

TYPES = (
    attack(
        "a web page",
        plain("content-type: text/html", say=lambda _: [b"<html>Hello</html>"]),
        BAD,
        says="answered with a web page",
    ),
    attack("a picture", plain("content-type: image/png", say=lambda _: [b"\x89PNG\r\n\x1a\n" * 99]), CUT),
    attack(
        "said to be json",
        body(hello, head=streamed("content-type: application/json; charset=utf-16")),
        ANSWER,
    ),
    attack("a byte order mark", body(lambda dialect: [b"\xef\xbb\xbf", *hello(dialect)]), ANSWER),
    attack("in another charset", body(lambda d: [b"".join(hello(d)).decode().encode("utf-16")]), CUT),
    attack("nothing", body(lambda _: []), CUT, says="the answer is empty"),
    attack("no content", raw(head(status="204 No Content"), keep), CUT),
    attack("reset content", raw(head("content-length: 0", status="205 Reset"), keep), CUT),
)
"""Those who say something else."""

HEADS = (
    attack("a header of a megabyte", heads(b"a: " + b"b" * 1024 * 1024 + b"\r\n", 1), CONNECTION),
    attack("many headers", heads(b"a: b\r\n", 8_000), ANSWER),
    attack("too many headers", heads(b"a: b\r\n", 200_000), CONNECTION),
    attack("headers without an end", heads(b"a: b\r\n", None), CONNECTION),
    attack("many cookies", heads(b"set-cookie: a=" + b"b" * 90 + b"; path=/\r\n", 800), ANSWER),
    attack("no colon", heads(b"what\r\n", 1), CONNECTION),
    attack("a nul in a header", heads(b"a: \0\r\n", 1), CONNECTION),
    attack("headers that are no text", heads(b"a: \xff\xfe\r\n", 1), ANSWER),
    *[
        attack(f"the status {called(line)}", opened(line + b"\r\n\r\n"), CONNECTION)
        for line in (
            b"HTTP/1.1 abc OK",
            b"HTTP/1.1 99999 OK",
            b"HTTP/1.1 099 OK",
            b"HTTP/2 200",
            b"ICY 200 OK",
            b"SSH-2.0-OpenSSH",
            b"\x15\x03\x01\x00\x02\x02\x46",
            b"HTTP/1.1 " + SECRET.encode() * 1_000,
        )
    ],
    attack("no head at all", raw(hello), CONNECTION),
    attack("an older version", opened(b"HTTP/1.0 200 OK\r\n\r\n"), ANSWER),
    attack("no reason", opened(b"HTTP/1.1 200\r\n\r\n"), ANSWER),
    attack("to be continued", raw(lambda d: [b"HTTP/1.1 103 Hint\r\n\r\n" * 500, *whole(d)], keep), ANSWER),
    attack(
        "to be continued for ever",
        raw(lambda _: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 500)),
        TIMEOUT,
        says=FIRST,
        limit=FIRST,
    ),
    attack("another protocol", raw(head("upgrade: h2c", "connection: upgrade", status="101 So")), CONNECTION),
    *[redirect(status, "http://127.0.0.2:9/v1/") for status in (301, 302, 303, 307, 308)],
    *[
        redirect(307, location)
        for location in (
            "/v1/chat/completions",
            "",
            "file:///etc/passwd",
            "//elsewhere.invalid/",
            "http://[x",
            "\xff",
            "x" * 60_000,
            f"http://127.0.0.2:9/?key={SECRET}",
        )
    ],
)
"""Those whose head is none, or leads elsewhere."""

REFUSALS = (
    attack("the key quoted", quoted("401 No", f"Incorrect API key provided: {SECRET}. Look it up."), AUTH),
    attack("the key quoted at the cut", quoted("401 No", "x" * 480 + SECRET), AUTH),
    attack("the key quoted in a long text", quoted("403 No", f"Bearer {SECRET} " * 2_000), AUTH),
    attack("the key quoted in plain text", refused("400 No", f"x-api-key: {SECRET}, no"), BAD),
    attack("the request quoted", echoing, AUTH),
    *[
        attack(f"come back {called(when)}", refused("429 Slow", "slow", f"retry-after: {when}"), LIMITED)
        for when in ("-1", "soon", "1e999", "nan", "9" * 400, "Thu, 32 Foo 99999999999 1:1:1", "1_0", "")
    ],
    attack("a refusal nested deep", refused("400 No", b'{"error":' * 10_000), BAD),
    attack("a refusal of lists", refused("400 No", b"[" * 60_000), BAD),
    attack("a refusal of halves", refused("400 No", b'{"error":{"\\ud800":"\\udfff"}}'), BAD),
    attack("a refusal of nuls", refused("400 No", b"\0" * 5_000), BAD),
    attack("a refusal of numbers", refused("400 No", b'{"error":{"code":' + b"9" * 5_000 + b"}}"), BAD),
    attack("a refusal of many words", refused("429 No", b"request too large for " * 2_900), LIMITED),
    attack(
        "a refusal that never ends",
        raw(lambda _: [head(status="500 No"), *itertools.repeat(b"no " * 9_999, 999)]),
        SERVER,
    ),
    attack(
        "a refusal that stops",
        raw(head("content-length: 9", status="503 No") + b"n", stalls=True),
        SERVER,
        limit=IDLE,
    ),
    attack("a refusal of no known kind", refused("999 No", "no"), SERVER),
    attack(
        "a refusal that is packed", refused("404 No", gzip.compress(b"no"), "content-encoding: gzip"), GONE
    ),
    attack("a refusal that is not packed", refused("404 No", "no", "content-encoding: gzip"), GONE),
)
"""Those who refuse."""

CONNECTIONS = (*WORDLESS, *LENGTHS, *CODINGS, *TYPES, *HEADS, *REFUSALS)
"""All of them."""
