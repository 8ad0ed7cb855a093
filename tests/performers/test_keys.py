"""What is signed with a key of the host's."""

from __future__ import annotations

import hmac

import pytest

from turnwheel.effects.errors import ArgumentError, ConfigError
from turnwheel.performers.keys import check_key, signature, signs

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


def test_a_key_has_32_bytes_at_least() -> None:
    check_key(KEY)
    with pytest.raises(ConfigError, match=r"at least 32 bytes; got 31: secrets\.token_bytes\(32\) makes one"):
        check_key(KEY[1:])


def test_a_text_is_no_key() -> None:
    with pytest.raises(ArgumentError, match="a key is bytes, not str"):
        check_key("k" * 32)
