"""
Puts the calls of a streamed answer together, bit by bit, from every server that speaks OpenAI's wire.

They differ in how a bit says which call it belongs to, in what they repeat, and in what comes whole.
"""

from __future__ import annotations

import json
import re
from typing import final

import attrs

from ...effects.history import CallPiece, Piece
from .encoding import to_json
from .lenient_json import MAX_LABEL, Object, as_object, decoded, first_text, shorten_id, shorten_label

# A string, and a quote where it is closed; else nothing, or the backslash that hides what comes next.
_LITERAL = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?)', re.DOTALL)


def signature_of(bit: Object) -> str:
    """What Gemini adds to a call, or to a whole answer, and refuses the next request without; or nothing."""
    if "extra_content" not in bit:
        return ""
    extra = as_object(bit["extra_content"])
    signed = first_text(as_object(extra.get("google")), "thought_signature")
    return to_json({"extra_content": extra}).decode() if signed else ""


@final
@attrs.define(eq=False)
class _OpenCall:
    """
    A call under way.

    Some servers repeat the name with every bit, so whether the arguments are whole is asked as often as there
    are bits. So each bit is looked at once, and all together only where no object is open any more.
    """

    number: int
    id: str = ""
    name: str = ""
    # Its arguments have begun; its name, which is whole by then, was passed on.
    begun: bool = False
    named: bool = False
    arguments: list[str] = attrs.Factory(list)
    # Of the arguments that were looked at: their number, how many objects are open at their end, and how the
    # string begins that is. And whether they are whole; None where they never will be.
    _seen: int = 0
    _depth: int = 0
    _quoted: str = ""
    _whole: bool | None = False

    def is_whole(self) -> bool:
        """Whether the arguments so far are a JSON object, so that more of them cannot belong here."""
        if self._whole is None:
            return False
        new = "".join(self.arguments[self._seen :])
        self._seen = len(self.arguments)
        rest = _LITERAL.sub(lambda found: "" if found[1] == '"' else f'"{found[1]}', self._quoted + new)
        outside, quote, hiding = rest.partition('"')
        self._quoted = quote + hiding
        self._depth += outside.count("{") - outside.count("}")
        may_be = self._whole or "}" in outside
        self._whole = False
        if may_be and not self._depth:
            # Text that is closed and is no object will not become one, so it is never parsed again.
            self._whole = isinstance(decoded("".join(self.arguments)), dict) or None
        return bool(self._whole)


@final
class CallAssembler:
    """
    Tells which call of an answer a bit of a call belongs to, and numbers the calls from 0.

    The wire's ``index`` does that job in OpenAI's own streams only. Elsewhere it is missing (Mistral) or 0
    for every call (Ollama, Gemini), so a new id, or a name behind whole arguments, begins a new call too. A
    bit without a name goes on with a call that has one: some servers (Poolside) change the id in the middle.

    A name may come in bits, too, or whole with every bit. So it waits for the first arguments, or for `rest`.
    """

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []
        self._last: _OpenCall | None = None
        self._by_index: dict[object, _OpenCall] = {}
        self._by_id: dict[str, _OpenCall] = {}

    def read(self, delta: Object) -> list[Piece]:
        """The pieces of the calls in *delta*."""
        pieces: list[Piece] = []
        bits = delta.get("tool_calls") or ()
        for bit in bits if bits.__class__ is list else ():
            if bit.__class__ is not dict:
                continue
            piece = self._more(bit)
            if piece is None:
                self._take(bit, as_object(bit.get("function")), pieces)
            else:
                pieces.append(piece)
        # The field of 2023, of one call without an id; some local servers still send it.
        if legacy := delta.get("function_call"):
            self._take({"index": "function_call"}, as_object(legacy), pieces)
        return pieces

    def rest(self) -> list[Piece]:
        """The names that waited for arguments, once the answer is over and none came."""
        waiting = [call for call in self._calls if call.name and not call.named]
        for call in waiting:
            call.named = True
        return [CallPiece(call.number, name=shorten_label(call.name)) for call in waiting]

    @property
    def torn(self) -> bool:
        """Whether arguments came without a name, and a name without arguments: they may belong together."""
        met = {(bool(call.name), any(call.arguments)) for call in self._calls}
        return {(False, True), (True, False)} <= met

    def _more(self, bit: Object) -> CallPiece | None:
        """The piece of *bit* where it has more arguments of a named call and nothing else, as most do."""
        index, function = bit.get("index"), bit.get("function") or {}
        if index.__class__ is not int or function.__class__ is not dict or "extra_content" in bit:
            return None
        arguments, call = function.get("arguments"), self._by_index.get(index)
        if call is None or not call.named or not arguments or arguments.__class__ is not str:
            return None
        if bit.get("id") or function.get("name"):  # it may begin another call
            return None
        self._last = call
        call.arguments.append(arguments)
        return CallPiece(call.number, arguments=arguments)

    def _take(self, bit: Object, function: Object, pieces: list[Piece]) -> None:
        index, wire_id, name = bit.get("index"), first_text(bit, "id"), first_text(function, "name")
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)  # Ollama sends an object
        opaque = signature_of(bit)
        if not (wire_id or name or arguments or opaque):
            return
        call = self._of(index if isinstance(index, int | str) else None, wire_id, name, arguments or opaque)
        new_id, new_name = "" if call.id else wire_id, ""
        if new_id:
            call.id = wire_id
            self._by_id[wire_id] = call
        if not call.named:
            # The same again is a repetition. And a name of a million bits would be copied a million times.
            call.name += name if name != call.name and len(call.name) <= MAX_LABEL else ""
            call.named = bool(call.name and (arguments or call.begun))
            new_name = call.name if call.named else ""
        call.begun = call.begun or bool(arguments)
        # Else it is an id that came before, and no piece.
        if new_id or name or arguments or opaque:
            call.arguments.append(arguments)
            # An id that is too long is cut where it is kept, and tells calls apart by its whole length above.
            named = shorten_id(new_id), shorten_label(new_name)
            pieces.append(CallPiece(call.number, *named, arguments, opaque))

    def _of(self, index: int | str | None, wire_id: str, name: str, arguments: str) -> _OpenCall:
        """The call that a bit belongs to; one without index or id belongs to the call before it."""
        call = self._last
        if index is not None:
            call = self._by_index.get(index)
        elif wire_id:
            call = self._by_id.get(wire_id)
        # Gemini and Ollama give every call the index 0, and Mistral gives none: so an id that differs
        # decides, too.
        if call is not None and wire_id and call.id and wire_id != call.id:
            call = self._by_id.get(wire_id)
        if call is None and not name:
            call = self._by_index.get(index, self._last if arguments else None)
        # Two calls of one tool in a row have the same name, and from some servers the same index and no id.
        # What tells them apart is that the arguments of the first are complete.
        another = call is not None and call.named and call.name != name
        if call is None or (name and (another or (arguments and call.is_whole()))):
            call = _OpenCall(len(self._calls))
            self._calls.append(call)
        self._last = call
        if index is not None:
            self._by_index[index] = call
        return call
