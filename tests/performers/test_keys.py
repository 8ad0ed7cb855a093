"""What is signed with a key of the host's."""

from __future__ import annotations

import hmac

import pytest

from turnwheel.performers.keys import signature, signs

KEY = b"k" * 32


def test_a_signature_is_that_of_its_parts_and_of_no_others() -> None:
    told = signature(KEY, b"what", b"ab", b"c")
    assert signature(KEY, b"what", b"ab", b"c") == told
    others = [(b"what", b"a", b"bc"), (b"what", b"abc"), (b"what", b"ab", b"c", b""), (b"else", b"ab", b"c")]
    assert told not in [signature(KEY, *parts) for parts in others]
    assert signature(b"o" * 32, b"what", b"ab", b"c") != told
    # What is stored is read for years: this never changes.
    assert told == hmac.digest(KEY, b"\0\0\0\0\0\0\0\4what\0\0\0\0\0\0\0\2ab\0\0\0\0\0\0\0\1c", "sha256")


@pytest.mark.parametrize("found", [b"", b"other", None, "text", 5])
def test_what_is_found_is_the_signature_or_not(found: object) -> None:
    told = signature(KEY, b"what")
    assert not signs(found, told)
    assert signs(bytes(told), told)
