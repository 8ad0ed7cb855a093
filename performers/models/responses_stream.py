"""
One streamed answer of OpenAI's Responses, read as pieces.

Theory of operation. An answer is a list of items: messages, reasoning, calls, and what the provider did with
tools of its own. Each item is begun, gets deltas and is done; then the whole answer comes once more, in the
event that ends the stream. Servers leave out any of these but the last, so each text is told as far as it has
come, and what only a later event brings is told then. An event belongs to the item that its id names, else to
the one at its place: proxies interleave items, and some give an item another id with each event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import attrs

from ...effects.history import CallPiece, Piece, ReasoningPiece, TextPiece
from ...effects.messages import StopReason
from ...effects.usage import Usage
from .body import BodyParser
from .encoding import to_json
from .errors import stream_error
from .lenient_json import Object, as_object, first_label, first_text, number, objects, shorten_id
from .openai import usage_of
from .provider_tools import annotation, item_call
from .wire import Broken, cut_short

# The place of an item in its answer, as events and the items that are kept have it.
AT = "output_index"

# Deltas: the type of their item, what of it they add to, and what counts the parts of that.
DELTAS: Mapping[str, tuple[str, str, str]] = {
    "response.output_text.delta": ("message", "text", "content_index"),
    "response.refusal.delta": ("message", "refusal", "content_index"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content", "content_index"),
    "response.function_call_arguments.delta": ("function_call", "arguments", ""),
}

# The ends of a stream, and the status of the answer that each means.
END_STATUSES: Mapping[str, str] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}

# The reason of an incomplete answer that is no limit.
CONTENT_FILTER = "content_filter"

# The fields of a message that go back with it, besides its text.
_MESSAGE_FIELDS = ("id", "status", "phase")

# The fields of a call that go back with it, besides its name and arguments.
_CALL_FIELDS = ("id", "namespace")


@final
@attrs.define(eq=False)
class _SaidText:
    """A text of an item as far as it was told; *begin* is where it stands in the text of the answer."""

    begin: int = 0
    bits: list[str] = attrs.Factory(list)
    size: int = 0

    def add(self, bit: str) -> None:
        self.bits.append(bit)
        self.size += len(bit)

    def rest_of(self, whole: str) -> str:
        """What *whole* has behind what was told; nothing where it says something else."""
        if len(whole) <= self.size:
            return ""
        return whole[self.size :] if whole.startswith("".join(self.bits)) else ""


@final
@attrs.define(eq=False)
class _OpenItem:
    """
    An item under way: *at* its place, and of a call its *number*. *kept*: its own fields were told.

    *cited* are the sources of its text that were told.
    """

    at: int
    id: str
    kind: str = ""
    number: int | None = None
    named: bool = False
    kept: bool = False
    texts: dict[tuple[str, object], _SaidText] = attrs.Factory(dict)
    # Which of summary and content its thinking is read from: some servers say it in both.
    thought: str = ""
    cited: set[tuple[object, ...]] = attrs.Factory(set)


@final
class ResponsesParser(BodyParser):
    """Reads one answer. No bytes make it raise."""

    last = "response.completed"

    def __init__(self) -> None:
        super().__init__()
        self._items: list[_OpenItem] = []
        self._by_id: dict[str, _OpenItem] = {}
        self._by_index: dict[int, _OpenItem] = {}
        self._calls = 0
        self._told = 0  # characters of text
        self._after_text = False  # nothing that the provider did stands behind the last text
        self._refused = False
        self._reason: StopReason | None = None
        self._usage: Object | None = None

    @property
    def usage(self) -> Usage | None:
        """The usage that the answer reported so far, or None."""
        return None if self._usage is None else usage_of(self._usage)

    def _stop(self) -> StopReason | Broken | None:
        return self._reason

    def _chunk(self, chunk: Object, pieces: list[Piece]) -> None:
        kind = first_text(chunk, "type")
        if kind in DELTAS:
            self._delta(chunk, *DELTAS[kind], pieces)
        elif kind == "response.output_item.added":
            self._answered = True
            sent = as_object(chunk.get("item"))
            self._name(self._item_of(chunk, sent), sent, pieces)
        elif kind == "response.output_item.done":
            self._answered = True
            sent = as_object(chunk.get("item"))
            self._read_item(self._item_of(chunk, sent), sent, pieces)
        elif kind == "response.output_text.annotation.added":
            self._answered = True
            item, part = self._item_of(chunk, {"type": "message"}), number(chunk, "content_index")
            self._cite(item, part, as_object(chunk.get("annotation")), pieces)
        elif kind in END_STATUSES:
            self._finish(as_object(chunk.get("response")), END_STATUSES[kind], pieces)
        elif kind == "error" or (chunk.get("error") and not kind):
            self._fail(stream_error(chunk))
        elif chunk.get("object") == "response":  # the answer in one piece
            self._finish(chunk, "completed", pieces)
        elif kind.startswith("response."):
            self._answered = True
            response = as_object(chunk.get("response"))
            self._introduce(response)
            self._count(response)

    # Items

    def _item_of(self, chunk: Object, sent: Object) -> _OpenItem:
        """The item that *chunk* is about, or a new one; *sent* is what it holds of the item."""
        wire_id, kind = first_text(chunk, "item_id") or first_text(sent, "id"), first_text(sent, "type")
        index: Any = chunk.get(AT)
        item = self._by_id.get(wire_id)
        if item is None and index.__class__ is int:
            item = self._by_index.get(index)
            # Some proxies give all items one place: one of another kind, or begun anew, is another item.
            if item is not None and kind and (kind != item.kind or _begins_anew(chunk, item, wire_id)):
                item = None
        if item is None:
            item = _OpenItem(len(self._items), wire_id)
            self._items.append(item)
        item.kind = item.kind or kind
        if wire_id:
            self._by_id[wire_id] = item
        if index.__class__ is int:
            self._by_index[index] = item
        return item

    def _delta(self, chunk: Object, kind: str, field: str, count: str, pieces: list[Piece]) -> None:
        self._answered = True
        bit, item = chunk.get("delta"), self._by_id.get(first_text(chunk, "item_id"))
        if item is None:
            item = self._item_of(chunk, {"type": kind})
        if bit and isinstance(bit, str):
            self._add(item, field, chunk.get(count) or 0, bit, pieces)

    def _add(self, item: _OpenItem, field: str, part: object, bit: str, pieces: list[Piece]) -> None:
        """Tell *bit*, which comes next in *part* of *field* of *item*."""
        place = (field, part if isinstance(part, int) else 0)
        text = item.texts.get(place)
        if text is None:
            text = item.texts[place] = _SaidText(self._told)
        text.add(bit)
        if field in {"summary", "content"}:
            item.thought = item.thought or field
            if item.thought == field:
                # The parts of a summary are paragraphs, each with a heading.
                begins = field == "summary" and len(item.texts) > 1 and len(text.bits) == 1
                pieces.append(ReasoningPiece(f"\n\n{bit}" if begins else bit))
        elif field == "arguments":
            if item.number is not None and item.named:
                pieces.append(CallPiece(item.number, arguments=bit))
        else:
            begins = self._after_text and len(text.bits) == 1
            self._after_text = True
            self._told += len(bit)
            self._refused = self._refused or field == "refusal"
            pieces.append(TextPiece(bit, begins))

    def _complete(self, item: _OpenItem, field: str, part: int, whole: str, pieces: list[Piece]) -> None:
        """Tell of *whole*, a text of *item*, what was not told yet."""
        text = item.texts.get((field, part))
        if rest := text.rest_of(whole) if text is not None else whole:
            self._add(item, field, part, rest, pieces)

    def _cite(self, item: _OpenItem, part: int, sent: Object, pieces: list[Piece]) -> None:
        """Tell the source in *sent*, an annotation of a *part* of *item*, once."""
        place = number(sent, "start_index", "index"), number(sent, "end_index")
        name = part, *place, first_text(sent, "type"), first_text(sent, "url", "file_id")
        if sent and name not in item.cited:
            item.cited.add(name)
            text = item.texts.get(("text", part))
            begin = self._told if text is None else text.begin
            pieces.append(annotation(sent, begin, to_json(sent).decode()))

    def _name(self, item: _OpenItem, sent: Object, pieces: list[Piece], *, final: bool = False) -> None:
        """Tell the name of a call, as soon as *sent* has it, or at last without."""
        if item.kind != "function_call" or item.named:
            return
        name, wire_id = first_label(sent, "name"), first_text(sent, "call_id")
        if not final and not (name and wire_id):
            return
        if item.number is None:
            item.number, self._calls = self._calls, self._calls + 1
        item.named = True
        opaque = _kept(item, "function_call", sent, _CALL_FIELDS)
        # The arguments that came before.
        arguments = "".join(item.texts.get(("arguments", 0), _SaidText()).bits)
        pieces.append(CallPiece(item.number, shorten_id(wire_id), name, arguments, opaque))

    def _read_item(self, item: _OpenItem, sent: Object, pieces: list[Piece], *, final: bool = False) -> None:
        """Read *sent*, which is all of *item*; *final*: no event will say more of it."""
        match item.kind:
            case "message":
                for part, content in enumerate(objects(sent.get("content"))):
                    for field in ("text", "refusal"):
                        self._complete(item, field, part, first_text(content, field), pieces)
                    for note in objects(content.get("annotations")):
                        self._cite(item, part, note, pieces)
                if item.texts and not item.kept and any(sent.get(field) for field in ("id", "phase")):
                    pieces.append(ReasoningPiece(opaque=_kept(item, "message", sent, _MESSAGE_FIELDS)))
                    self._after_text = False
                item.kept = True
            case "reasoning":
                self._thought(item, sent, pieces, final=final)
            case "function_call":
                self._name(item, sent, pieces, final=True)
                self._complete(item, "arguments", 0, first_text(sent, "arguments"), pieces)
            case "":
                pass
            case _:
                if not item.kept:
                    item.kept = True
                    opaque = to_json({**sent, AT: item.at}).decode()
                    pieces.append(item_call(sent, opaque) or ReasoningPiece(opaque=opaque))
                    self._after_text = False

    def _thought(self, item: _OpenItem, sent: Object, pieces: list[Piece], *, final: bool) -> None:
        """Read *sent*, all of the reasoning *item*: its summary, its text, and what goes back."""
        for field in ("summary", "content"):
            if item.thought in {"", field}:
                for part, content in enumerate(objects(sent.get(field))):
                    self._complete(item, field, part, first_text(content, "text"), pieces)
        # Without either there is nothing that the server could read again: it stored nothing. Plain thinking
        # waits for the end, since some proxies bring the encrypted one only there.
        plain = any(part.get("type") == "reasoning_text" for part in objects(sent.get("content")))
        if not item.kept and (first_text(sent, "encrypted_content") or (final and plain)):
            item.kept = True
            pieces.append(ReasoningPiece(opaque=to_json({**sent, AT: item.at}).decode()))

    # The end

    def _finish(self, response: Object, status: str, pieces: list[Piece]) -> None:
        self._answered = True
        self._introduce(response)
        self._count(response, final=True)
        own_status = first_text(response, "status")
        status = own_status if own_status in END_STATUSES.values() else status
        if status == "failed" or response.get("error"):
            self._fail(stream_error(response.get("error") or {}))
            return
        if status == "cancelled":
            self._fail(cut_short("the provider cancelled the answer"))
            return
        for index, sent in enumerate(objects(response.get("output"))):
            self._read_item(self._item_of({AT: index}, sent), sent, pieces, final=True)
        for item in self._items:  # calls whose end is missing
            self._name(item, {}, pieces, final=True)
        self._reason = self._reason_of(response, status)
        self._ended = self.done = True

    def _reason_of(self, response: Object, status: str) -> StopReason:
        why = first_text(as_object(response.get("incomplete_details")), "reason")
        if self._refused or (status == "incomplete" and why == CONTENT_FILTER):
            return StopReason.REFUSAL
        if status == "incomplete":
            # Without a reason, too: LiteLLM tells none where a model met its limit. A cut answer must not
            # count as a whole one, nor may its calls run.
            return StopReason.MAX_TOKENS
        return StopReason.TOOL_USE if self._calls else StopReason.END_TURN

    def _count(self, response: Object, *, final: bool = False) -> None:
        usage: Any = as_object(response.get("usage"))
        # Some servers begin with zeros: "no tokens" and "not known yet" have to differ.
        if usage and (final or number(usage, "input_tokens", "output_tokens")):
            self._usage = usage


def _begins_anew(chunk: Object, item: _OpenItem, wire_id: str) -> bool:
    return chunk.get("type") == "response.output_item.added" and bool(item.id) and item.id != wire_id


def _kept(item: _OpenItem, kind: str, sent: Object, fields: tuple[str, ...]) -> str:
    """What goes back of *item*, besides what its pieces say: *fields* of *sent*, and its place."""
    own_fields = {field: sent[field] for field in fields if sent.get(field)}
    return to_json({"type": kind, **own_fields, AT: item.at}).decode()
