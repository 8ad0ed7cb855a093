"""Keeping the keys that a request was sent with out of whatever is said of its answer: servers quote them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHORTEST = 8
"""Characters of a key that is hidden. A shorter one opens nothing, and may be any word of a message."""

MARK = "[hidden]"
"""What stands in the place of a key."""

_TELLS = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)  # names of headers that hold one
_USERINFO = re.compile(r"(?<=//)[^/?#@]*(?:@[^/?#@]*)*@")


def keys_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that *headers* hold, by their names; of ``Bearer abc`` that is ``abc``."""
    values = [value.split()[-1] for name, value in headers.items() if _TELLS.search(name) and value.split()]
    return tuple([value for value in values if len(value) >= SHORTEST])


def hidden(text: str, keys: Iterable[str]) -> str:
    """*text* without *keys*, also where one is quoted for a URL, or cut at the end of what was shortened."""
    for key in keys:
        for form in dict.fromkeys((key, quote(key, safe=""))):
            text = text.replace(form, MARK)
            for length in range(len(form) - 1, SHORTEST - 1, -1):
                text = text.replace(f"{form[:length]}...", f"{MARK}...")
    return text


def without_login(url: str) -> str:
    """*url* without the name and the password that may stand before its host."""
    return _USERINFO.sub("", url)
