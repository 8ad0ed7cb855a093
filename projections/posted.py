"""
The way back: what a client of AG-UI or of the AI SDK posts, as what a session is to do about it.

Clients post the whole conversation each time. The journal has it already, and nothing of a client's copy is
believed: only the last message is read, where it is the user's, and the answers to questions. Those name
questions; whether one is open, the session knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast, final
from urllib.parse import unquote_to_bytes

import attrs
import msgspec

from ..effects.errors import ArgumentError
from ..effects.events import Approve, ApproveAlways, Decision, Deny
from ..effects.messages import Binary

JsonObject = Mapping[str, Any]


@final
@attrs.frozen(kw_only=True)
class ClientInput:
    """A prompt or steer of a client, by its own *id*."""

    id: str
    text: str
    files: tuple[Binary, ...] = ()


@final
@attrs.frozen(kw_only=True)
class ClientPost:
    """
    What a client posted to *session*: an *input* or *answers*, each the request of a question and a decision.

    *run* is the name that it has for what follows, empty if it has none. With neither input nor answers it
    only wants to see how the session goes on.
    """

    session: str
    run: str = ""
    input: ClientInput | None = None
    answers: tuple[tuple[str, Decision], ...] = ()


def posted_to_ag_ui(body: object) -> ClientPost:
    """
    What the `RunAgentInput` *body* is about. Raises `ArgumentError` where it is none.

    The payload of an answer is true or false, or an object with `approved`, and perhaps `always`, `arguments`
    or `reason`. An interrupt that was cancelled is a no.
    """
    given = _object(body, "body")
    answers = tuple([_resumed(_object(entry, "resume[]")) for entry in _list(given.get("resume"), "resume")])
    messages = _list(given.get("messages"), "messages")
    return ClientPost(
        session=_text(given.get("threadId"), "threadId"),
        run=_text(given.get("runId"), "runId"),
        # A client that answers sends what it said before once more.
        input=None if answers else _last_said(messages, _ag_ui_parts),
        answers=answers,
    )


def _resumed(entry: JsonObject) -> tuple[str, Decision]:
    request, payload = _text(entry.get("interruptId"), "resume[].interruptId"), entry.get("payload")
    if entry.get("status") == "cancelled":
        return request, Deny("cancelled")
    if isinstance(payload, bool):
        payload = {"approved": payload}
    said = _object(payload, "resume[].payload")
    approved = _flag(said.get("approved"), "resume[].payload.approved")
    # Python clients write null for each optional field that has no value.
    always = said.get("always") is not None and _flag(said["always"], "resume[].payload.always")
    reason = _optional_text(said.get("reason"), "resume[].payload.reason")
    arguments = said.get("arguments")
    if arguments is not None:
        arguments = json.dumps(_object(arguments, "resume[].payload.arguments"))
    if not approved:
        return request, Deny(reason)
    if always:
        return request, ApproveAlways()
    return request, Approve() if arguments is None else Approve(arguments=arguments)


def _ag_ui_parts(message: JsonObject) -> Iterator[str | Binary]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
        return
    for part in map(_part, _list(content, "content")):
        if part.get("type") == "text":
            yield _text(part.get("text"), "content[].text")
            continue
        source = _object(part.get("source"), "content[].source")
        if source.get("type") != "data":
            msg = f"a file must come with its data, not as a {_shown(source.get('type'))}; send its bytes"
            raise ArgumentError(msg)
        media_type = _text(source.get("mimeType"), "content[].source.mimeType")
        yield Binary(media_type=media_type, data=_bytes(_text(source.get("value"), "content[].source.value")))


def posted_to_ui_messages(body: object) -> ClientPost:
    """
    What the chat request *body* of the AI SDK is about. Raises `ArgumentError` where it is none.

    The journal is not rewritten, so an answer cannot be regenerated; fork the session for that.
    """
    given = _object(body, "body")
    if given.get("trigger", "submit-message") != "submit-message":
        msg = f"trigger must be 'submit-message'; got {_shown(given['trigger'])}: fork the session instead"
        raise ArgumentError(msg)
    messages = _list(given.get("messages"), "messages")
    answers: list[tuple[str, Decision]] = []
    if messages:
        last = _object(messages[-1], "messages[]")
        if last.get("role") == "assistant":
            answers = [*_approvals(_list(last.get("parts"), "parts"))]
    return ClientPost(
        session=_text(given.get("id"), "id"), input=_last_said(messages, _ui_parts), answers=tuple(answers)
    )


def _approvals(parts: Iterable[object]) -> Iterator[tuple[str, Decision]]:
    """The answers of the parts that have one, but no result yet."""
    for part in map(_part, parts):
        if part.get("state") == "approval-responded":
            approval = _object(part.get("approval"), "parts[].approval")
            request = _text(approval.get("id"), "parts[].approval.id")
            reason = _optional_text(approval.get("reason"), "parts[].approval.reason")
            approved = _flag(approval.get("approved"), "parts[].approval.approved")
            yield request, Approve() if approved else Deny(reason)


def _ui_parts(message: JsonObject) -> Iterator[str | Binary]:
    for part in map(_part, _list(message.get("parts"), "parts")):
        match part.get("type"):
            case "text":
                yield _text(part.get("text"), "parts[].text")
            case "file":
                yield _file(part)
            case _:
                pass


def _file(part: JsonObject) -> Binary:
    head, comma, data = _text(part.get("url"), "parts[].url").partition(",")
    if not comma or not head.startswith("data:"):
        msg = f"a file must come as a data: URL; got {_shown(head)}"
        raise ArgumentError(msg)
    content = _bytes(data) if head.endswith(";base64") else unquote_to_bytes(data)
    media_type = _text(part.get("mediaType"), "parts[].mediaType")
    return Binary(media_type=media_type, data=content, name=_optional_text(part.get("filename"), "filename"))


# What both have


def _last_said(
    messages: list[Any], parts_of: Callable[[JsonObject], Iterator[str | Binary]]
) -> ClientInput | None:
    """The last of *messages*, if it is the user's."""
    last = _object(messages[-1], "messages[]") if messages else {}
    if last.get("role") != "user":
        return None
    parts = [*parts_of(last)]
    text = "\n".join([part for part in parts if isinstance(part, str)])
    files = tuple([part for part in parts if isinstance(part, Binary)])
    return ClientInput(id=_text(last.get("id"), "messages[].id"), text=text, files=files)


def _part(value: object) -> JsonObject:
    return _object(value, "a part")


def _object(value: object, what: str) -> JsonObject:
    if not isinstance(value, dict):
        msg = f"{what} must be an object; got {_shown(value)}"
        raise ArgumentError(msg)
    return cast("JsonObject", value)


def _list(value: object, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        msg = f"{what} must be a list; got {_shown(value)}"
        raise ArgumentError(msg)
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        msg = f"{what} must be text; got {_shown(value)}"
        raise ArgumentError(msg)
    return value


def _optional_text(value: object, what: str) -> str:
    return "" if value is None else _text(value, what)


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        msg = f"{what} must be true or false; got {_shown(value)}"
        raise ArgumentError(msg)
    return value


def _bytes(text: str) -> bytes:
    try:
        # b64decode takes more padding than there may be.
        return msgspec.convert(text, bytes)
    except msgspec.ValidationError as error:
        msg = f"the data of a file must be Base64; got {_shown(text)}"
        raise ArgumentError(msg) from error


def _shown(value: object) -> str:
    return repr(value)[:50]
