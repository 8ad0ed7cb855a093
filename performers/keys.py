"""Keys of the host's, and what is signed with one: a key tells who wrote what comes from outside."""

from __future__ import annotations

import hmac

from ..effects.errors import ArgumentError, ConfigError

# Bytes of a key, at least: as many as a signature has.
LEAST_KEY = 32


def check_key(key: object) -> None:
    """Refuse what is no key."""
    way = f"secrets.token_bytes({LEAST_KEY}) makes one"
    # No text: two processes may encode it differently, and people would put a password there.
    if not isinstance(key, bytes):
        msg = f"a key is bytes, not {type(key).__name__}: {way}"
        raise ArgumentError(msg)
    if len(key) < LEAST_KEY:
        msg = f"a key must have at least {LEAST_KEY} bytes; got {len(key)}: {way}"
        raise ConfigError(msg)


def signature(key: bytes, *parts: bytes) -> bytes:
    """
    The signature of *parts* with *key*.

    The first part says what is signed, so that it is good for nothing else that is signed with this key.
    """
    # Each part behind its length: no byte can move from one to the next.
    return hmac.digest(key, b"".join([len(part).to_bytes(8, "big") + part for part in parts]), "sha256")


def signs(found: object, wanted: bytes) -> bool:
    """Whether what was *found* is the signature that is *wanted*."""
    # In constant time: a comparison that stops early lets a forger find the bytes one after another.
    return isinstance(found, bytes) and hmac.compare_digest(found, wanted)
