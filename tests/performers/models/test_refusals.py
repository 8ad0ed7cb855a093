"""What a provider's refusal means, in either dialect, and that it shows no key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwheel import Agent
from turnwheel.effects.events import Failure
from turnwheel.performers.models.errors import (
    MAX_FAILURE_TEXT,
    is_refusal,
    keys_in,
    login_in,
    redact_keys,
    refusal,
    retry_after,
    shorten,
    stream_error,
    without_login,
)
from turnwheel.performers.models.http import Endpoint
from turnwheel.performers.models.wire import Broken

TABLES = (Path(__file__).parent / "answers" / "refusals.txt").read_text("utf-8")


def rows(title: str) -> list[tuple[str, ...]]:
    """The rows of the table that has this *title*, each in its parts."""
    _, _, table = TABLES.partition(f"\n== {title}")
    return [tuple(line.split(" => ", 1)) for line in table.partition("\n\n")[0].strip("\n").split("\n")[1:]]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        *rows("refusals"),
        ('400 \ufeff{"error":{"message":"bad"}}', "bad_request: http 400: bad"),
        ("500 <html>\n  <b>oops</b>\n</html>", "server: http 500: <html> <b>oops</b> </html>"),
        ("418 " + "[" * 100_000, f"bad_request: http 418: {'[' * MAX_FAILURE_TEXT}... (100000 characters)"),
    ],
    ids=lambda text: text[:80],
)
def test_a_refusal_is_classified(asked: str, meant: str) -> None:
    # By its status first, then by what the body names, then by its wording.
    status, _, body = asked.partition(" ")
    broken = refusal(int(status), {"location": "https://there"}, body.encode(), now=0.0)
    assert f"{broken.failure}: {broken.message}" == meant


@pytest.mark.parametrize(("asked", "meant"), rows("the messages API"))
def test_a_refusal_of_the_messages_api_is_classified(asked: str, meant: str) -> None:
    status, _, kind = asked.partition(" ")
    failure, _, message = meant.partition(": ")
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    broken = refusal(int(status), {"retry-after": "7"}, json.dumps(error).encode(), now=0.0)
    assert broken == Broken(failure=Failure(failure), message=f"http {status}: {message}", retry_after=7.0)
    # There is no status in a stream, and an error that says no more than that has cut it.
    expected = Failure.CUT if failure == "server" else Failure(failure)
    assert stream_error(error) == Broken(failure=expected, message=f"error in the stream: {message}")


@pytest.mark.parametrize(("error", "failure"), rows("in a stream"))
def test_an_error_in_a_stream_is_classified(error: str, failure: str) -> None:
    # By name, by number, and where neither says more than "broken" it is a cut stream.
    assert stream_error({"error": json.loads(error)}).failure == failure


@pytest.mark.parametrize("wording", [line for (line,) in rows("the conversation is too long")])
def test_a_conversation_that_is_too_long_is_recognised(wording: str) -> None:
    body = json.dumps({"error": {"message": wording, "code": 400}}).encode()
    assert refusal(400, {}, body, now=0.0).failure is Failure.OVERFLOW
    assert stream_error(json.loads(body)).failure is Failure.OVERFLOW


@pytest.mark.parametrize(("most", "wording"), rows("the answer would be too long"))
def test_an_answer_that_would_be_too_long_is_no_conversation_that_is(most: str, wording: str) -> None:
    body = {"error": {"message": wording, "code": "context_length_exceeded"}}
    for broken in (refusal(400, {}, json.dumps(body).encode(), now=0.0), stream_error(body)):
        assert (broken.failure, broken.max_output) == (Failure.BAD_REQUEST, int(most))
        assert wording in broken.message


@pytest.mark.parametrize("error", [None, {}, []])
def test_an_error_in_a_stream_that_says_nothing_is_told_as_that(error: object) -> None:
    assert stream_error(error).message == "error in the stream: without a message"


def test_a_message_is_looked_at_up_to_the_end_of_what_is_read_of_a_refusal() -> None:
    wording = "context length exceeded"
    for more, failure in ((0, Failure.OVERFLOW), (1, Failure.BAD_REQUEST)):
        message = "x" * (65_536 - len(wording) + more) + wording
        body = json.dumps({"error": {"message": message}}).encode()
        assert refusal(400, {}, body, now=0.0).failure is failure


def test_a_message_is_kept_up_to_500_characters_and_can_be_written_down() -> None:
    assert shorten("x" * 500) == "x" * 500
    assert shorten("x" * 501) == f"{'x' * 500}... (501 characters)"
    assert shorten("half: \ud83d") == "half: ?"


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ({"success": False}, True),
        ({"detail": "no"}, True),
        ({"message": "no"}, True),
        ({"msg": "no"}, True),
        ({"success": True, "object": "chunk"}, False),
        ({"message": 5}, False),
        ({}, False),
    ],
)
def test_what_comes_in_the_place_of_an_answer_may_say_why_there_is_none(
    chunk: dict[str, object],
    expected: bool,  # noqa: FBT001  # a row
) -> None:
    assert is_refusal(chunk) is expected


@pytest.mark.parametrize(("headers", "seconds"), rows("waits"))
def test_a_wish_to_wait_is_read(headers: str, seconds: str) -> None:
    # In seconds, milliseconds or as a date, counted from now; nonsense is no wish.
    assert str(retry_after(json.loads(headers), now=40.0)) == seconds


@pytest.mark.parametrize(("body", "seconds"), rows("waits in a body"))
def test_a_wish_to_wait_is_read_from_a_body_where_no_header_has_one(body: str, seconds: str) -> None:
    broken = [refusal(429, {"retry-after": "0"}, body.encode(), now=0.0), stream_error(json.loads(body))]
    assert [str(one.retry_after) for one in broken] == [seconds] * 2
    assert refusal(429, {"retry-after": "7"}, body.encode(), now=0.0).retry_after == 7.0


@pytest.mark.parametrize(("said", "heard"), [("true", True), ("False", False), ("", None), ("maybe", None)])
def test_whether_to_try_again_is_read(said: str, heard: bool | None) -> None:  # noqa: FBT001  # a row
    assert refusal(500, {"x-should-retry": said}, b"", now=0.0).should_retry is heard


KEY = "sk-ant/api03+0123456789=="


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"no {KEY}!", "no [hidden]!"),
        (f"Bearer {KEY}{KEY}", "Bearer [hidden][hidden]"),
        ("?key=sk-ant%2Fapi03%2B0123456789%3D%3D&x", "?key=[hidden]&x"),
        (f"{KEY[:12]}... (9999 characters)", "[hidden]... (9999 characters)"),
        (f"{KEY[:7]}... and {KEY[:12]} say little", f"{KEY[:7]}... and {KEY[:12]} say little"),
        ("no key here", "no key here"),
    ],
)
def test_a_key_is_hidden(said: str, shown: str) -> None:
    assert redact_keys(said, [KEY]) == shown


@pytest.mark.parametrize(
    ("headers", "keys"),
    [
        ({"authorization": f"Bearer {KEY}"}, (KEY,)),
        ({"x-api-key": KEY, "anthropic-version": "2023-06-01"}, (KEY,)),
        ({"Api-Key": KEY, "X-Auth-Token": "0123456789"}, (KEY, "0123456789")),
        ({"authorization": "Bearer key", "x-api-key": ""}, ()),  # too short to open anything
        ({"x-api-key": "01234567", "x-auth": "0123456"}, ("01234567",)),
    ],
)
def test_keys_are_known_by_the_names_of_headers(headers: dict[str, str], keys: tuple[str, ...]) -> None:
    assert keys_in(headers) == keys


def test_a_login_in_an_address_is_hidden_and_so_is_the_key_of_an_agent() -> None:
    url = "http://me:pa55@w0rd1@host:1/v1"
    assert without_login(url) == "http://host:1/v1"
    assert without_login("http://host/a@b") == "http://host/a@b"
    assert [login_in(url), login_in("http://host/a@b")] == ["Basic bWU6cGE1NUB3MHJkMQ==", ""]
    endpoint = Endpoint(base_url=url, headers={"x-api-key": KEY}, login="no")
    agent = Agent(base_url=url, api_key=KEY)
    assert not [part for part in (KEY, "w0rd1") if part in f"{endpoint!r} {agent!r}"]


def test_a_failure_that_is_plain_is_not_overruled_by_its_words() -> None:
    """A wrong key is one, and a model is unknown, whatever else the message talks of."""
    for status, failure in ((401, Failure.AUTH), (404, Failure.NOT_FOUND), (529, Failure.OVERLOADED)):
        assert refusal(status, {}, b"maximum context length; invalid model", now=0.0).failure is failure


def test_a_key_is_hidden_down_to_its_shortest_beginning() -> None:
    key = "0123456789"
    assert redact_keys("01234567... 012345678... 0123456...", [key]) == "[hidden]... [hidden]... 0123456..."


def test_a_login_takes_the_place_of_a_key_however_its_header_is_written() -> None:
    headers = {"Authorization": "Bearer key", "x-team": "t"}
    made = Endpoint(base_url="http://me:pw@host", headers=headers, login="no").with_plain_url()
    assert (made.base_url, made.headers) == (
        "http://host",
        {"x-team": "t", "authorization": "Basic bWU6cHc="},
    )
