"""What processes tell each other of sessions: few by their hashes, many as any."""

from __future__ import annotations

from typing import cast

import pytest

from turnwheel.performers.stores.postgres.listener import MOST_TOLD, Listener, tag
from turnwheel.performers.stores.postgres.server import Server


class Notified:
    """A server that keeps what it is to pass on."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def call(self, _: str, channel: str, text: str) -> None:
        assert channel == "here"
        self.told.append(text)


@pytest.mark.parametrize("number", [1, MOST_TOLD])
async def test_sessions_that_were_written_to_are_told_by_their_hashes(number: int) -> None:
    server = Notified()
    listener, names = Listener(cast("Server", server), "here"), [f"s-{at}" for at in range(number)]
    listener.tell([name.encode() for name in names])
    await listener.finish()
    (told,) = server.told
    assert sorted(told.split()) == sorted(map(tag, names))
    assert len(told) < 8_000


async def test_of_more_sessions_than_a_text_has_room_for_it_is_told_that_it_may_be_any() -> None:
    server = Notified()
    listener = Listener(cast("Server", server), "here")
    listener.tell([f"s-{at}".encode() for at in range(MOST_TOLD + 1)])
    await listener.finish()
    assert server.told == [""]


async def test_what_is_told_once_more_meanwhile_is_one_word_and_nothing_is_none() -> None:
    server = Notified()
    listener = Listener(cast("Server", server), "here")
    listener.tell([])
    await listener.finish()
    listener.tell([b"s"])
    listener.tell([b"s"])
    await listener.finish()
    listener.tell([b"s"])
    await listener.finish()
    assert server.told == [tag("s")] * 2
