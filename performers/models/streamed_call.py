"""A call of a tool while a model streams it: what came of it, and whether its arguments are whole."""

from __future__ import annotations

import re
from typing import final

import attrs

from .lenient_json import decoded

# A string, and a quote where it is closed; else nothing, or the backslash that hides what comes next.
_LITERAL = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?)', re.DOTALL)


@final
@attrs.define(eq=False)
class StreamedCall:
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
        new = "".join(self.arguments[self._seen :])
        if not new or self._whole is None:
            return bool(self._whole)
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
