"""
What an answer shows of the provider's own tools: the calls that the provider ran, and the sources it names.

Theory of operation. A provider sends these among the text of its answer, in a form of its own. The form is
kept as it came, since the provider wants it back (`ProviderCall.opaque`, `Citation.opaque`). What people see
of it is made here: a name, arguments, a status, and a result without what is encrypted in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, cast, final

import attrs

from ...effects.messages import Binary, Citation, Message, ProviderCall, Reasoning, Text, ToolCall
from ...effects.request_extras import CLIENT_TOOLS
from .encoding import shorten_middle, to_json
from .lenient_json import Object, as_object, first_label, first_text, number, shorten_label

# Characters of a call's arguments and of its result that are shown; the whole is in `opaque`.
SHOWN = 4_000

# Words for the end of a call where the provider has none.
COMPLETED, FAILED, INCOMPLETE = "completed", "failed", "incomplete"

# The fields of an item of Responses that are no arguments of its call.
_RESULTS = ("error", "results", "outputs", "output")
_NO_ARGUMENTS = frozenset({*_RESULTS, "id", "type", "status", "name", "result", "encrypted_content"})

# Blocks of Anthropic's that begin a call of a provider's tool; the end of the type of those with a result.
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
RESULT_BLOCK = "_tool_result"


def shown(value: object) -> str:
    """*value* as JSON text without its encrypted fields, cut where it is long; empty for nothing."""
    return shorten_middle(to_json(_plain(value)).decode(), SHOWN) if value else ""


def _plain(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("Mapping[str, object]", value).items()
        return {name: _plain(field) for name, field in fields if not name.startswith("encrypted_")}
    return [*map(_plain, cast("Iterable[object]", value))] if isinstance(value, list) else value


def item_call(item: Object, opaque: str) -> ProviderCall | None:
    """The call that *item* of Responses is, which goes back as *opaque*; None where it is another item."""
    kind = first_text(item, "type")
    if not kind.endswith("_call") or kind.startswith(CLIENT_TOOLS):
        return None
    result = next((item[name] for name in _RESULTS if item.get(name)), None)
    arguments = item.get("arguments")
    if not isinstance(arguments, str):
        arguments = shown({name: field for name, field in item.items() if name not in _NO_ARGUMENTS})
    return ProviderCall(
        id=first_label(item, "id"),
        name=first_label(item, "name") or shorten_label(kind.removesuffix("_call")),
        arguments=shorten_middle(arguments, SHOWN),
        status=first_label(item, "status") or (FAILED if item.get("error") else COMPLETED),
        result=shown(result),
        opaque=opaque,
    )


def block_call(block: Object, name: str, arguments: str) -> ProviderCall:
    """The call with that *name* and those *arguments* whose result is *block*, of Anthropic's."""
    content: Any = block.get("content")
    failed = block.get("is_error") is True or first_text(as_object(content), "type").endswith("_error")
    return ProviderCall(
        id=first_label(block, "tool_use_id"),
        name=name or shorten_label(first_text(block, "type").removesuffix(RESULT_BLOCK)),
        arguments=shorten_middle(arguments, SHOWN),
        status=FAILED if failed else COMPLETED,
        result=shown(content),
        opaque=to_json(block).decode(),
    )


def annotation(sent: Object, begin: int = 0, opaque: str = "") -> Citation:
    """The source in the annotation *sent*, of OpenAI's wires; its text begins at *begin* in the answer."""
    source = as_object(sent.get(first_text(sent, "type"))) or sent
    start = begin + number(source, "start_index", "index")
    return Citation(
        url=first_text(source, "url"),
        title=first_text(source, "title", "filename", "file_id"),
        start=start,
        end=max(start, begin + number(source, "end_index")),
        quote=first_text(source, "content"),
        opaque=opaque,
    )


def cited(sent: Object, start: int, end: int) -> Citation:
    """The source that a text block of Anthropic's cites, from *start* to *end* of the answer."""
    return Citation(
        url=first_text(sent, "url", "source"),
        title=first_text(sent, "title", "document_title"),
        start=start,
        end=end,
        quote=first_text(sent, "cited_text"),
        opaque=to_json(sent).decode(),
    )


def input_of(bits: Iterable[str], start: Object) -> tuple[Object, str]:
    """The input of a call in *bits*, else that in its *start*: as an object, and as the provider wrote it."""
    text = "".join(bits)
    try:
        parsed: object = json.loads(text) if text else start.get("input")
    except (ValueError, RecursionError):
        parsed = {}
    found = as_object(parsed)
    return found, text or (to_json(found).decode() if found else "")


# An answer of Anthropic's on its way back: the blocks of the provider's tools, and texts with their sources.


@final
@attrs.frozen
class SentBlock:
    """A *block* that goes back as it came."""

    block: Object


@final
@attrs.frozen
class CitedText:
    """A text with the citations that came with it."""

    text: str
    citations: list[Object]


# What a model's message says.
SaidPart = Text | Reasoning | ToolCall | Binary | SentBlock | CitedText


def paired(parts: Iterable[SaidPart], *, goes_on: bool = False) -> list[SaidPart]:
    """
    *parts* without results of a provider's tools that lack their call, and calls that lack their result.

    Where the answer *goes_on*, its calls may still get their results.
    """
    said, kept = [*parts], set[int]()
    waiting: dict[str, int] = {}
    for at, part in enumerate(said):
        if not isinstance(part, SentBlock):
            kept.add(at)
        elif first_text(part.block, "type") in SERVER_CALLS:
            waiting[first_text(part.block, "id")] = at
        elif (call := waiting.pop(first_text(part.block, "tool_use_id"), None)) is not None:
            kept |= {call, at}
    kept.update(waiting.values() if goes_on else ())
    return [part for at, part in enumerate(said) if at in kept]


def said_parts(
    message: Message, opaque_of: Callable[[Reasoning | ProviderCall | Citation], Object]
) -> list[SaidPart]:
    """The parts of *message*, with the blocks that *opaque_of* knows as they came."""
    said, text, begin = list[SaidPart](), "", 0
    for before, part in pairwise((None, *message.parts)):
        if isinstance(part, Citation):
            if source := opaque_of(part):
                if text.strip():
                    said += _cut(text, part.start - begin, source)
                    text, begin = "", begin + len(text)
                elif said and isinstance(last := said[-1], CitedText):
                    last.citations.append(source)
            continue
        # Behind a citation the same text goes on.
        if text and not (isinstance(part, Text) and isinstance(before, Citation)):
            said.append(Text(text=text))
            text, begin = "", begin + len(text)
        if isinstance(part, Text):
            text += part.text
            continue
        block = opaque_of(part) if isinstance(part, Reasoning | ProviderCall) else {}
        kind = first_text(block, "type")
        if kind in SERVER_CALLS or kind.endswith(RESULT_BLOCK):
            said.append(SentBlock(block))
        elif isinstance(part, ToolCall | Binary) or (isinstance(part, Reasoning) and not part.opaque):
            said.append(part)
    return [*said, Text(text=text)] if text else said


def _cut(text: str, start: int, source: Object) -> list[SaidPart]:
    """*text*, whose end from *start* on is from *source*; blank texts are refused, so none is cut off."""
    before, cited_text = text[: max(start, 0)], text[max(start, 0) :]
    if not before.strip() or not cited_text.strip():
        return [CitedText(text, [source])]
    return [Text(text=before), CitedText(cited_text, [source])]
