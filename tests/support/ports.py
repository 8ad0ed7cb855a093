"""Loopback ports for programs that take the number of one."""

from __future__ import annotations

import os
import random
import socket

# Below those that systems give to clients (from 16,000 or 32,768 on): no connection takes one meanwhile.
_FREE = random.Random(os.getpid()).sample(range(10_000, 16_000), 6_000)


def free_ports(number: int) -> list[int]:
    """So many ports that no program listens on; each is given once."""
    return [_free_port() for _ in range(number)]


def _free_port() -> int:
    while True:
        port = _FREE.pop()
        with socket.socket() as listening:
            try:
                listening.bind(("", port))
            except OSError:
                continue
        return port
