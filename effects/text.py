"""Text that can be written down."""

from __future__ import annotations


def clean(text: str) -> str:
    """
    *text* with lone surrogates replaced by question marks.

    They come from halves of escaped pairs in JSON and from file names that are no UTF-8; no encoder takes
    them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
