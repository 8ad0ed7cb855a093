"""The performer for Anthropic's Messages and everybody who speaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from .anthropic_messages import PREFIX, MessagesWire
from .exchange import MAX_ANSWER
from .http import WHOLE, Endpoint, HTTPModel, Timeouts, key_of
from .throttle import LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

ANTHROPIC = "https://api.anthropic.com/v1"
"""Where models are asked when no other address is given."""

KEY = "ANTHROPIC_API_KEY"
"""The environment variable that holds the key when none is given."""

VERSION = "2023-06-01"
"""The version of the API, which names its shape and not the newest of its features."""

FIRST_BYTE = 300.0
"""Seconds until an answer begins: the API does not ping before it has read the whole conversation."""

IDLE = 120.0
"""Seconds between two bytes of an answer: the API itself pings more often, proxies do not."""


@final
class AnthropicMessages(HTTPModel):
    """
    Performs `CallModel` with Anthropic's Messages, or any server that speaks them at *base_url*.

    *api_key* defaults to the environment's ``ANTHROPIC_API_KEY``; where that is empty too, none is sent. A
    *client* of the caller's is used with its own settings, but for the timeouts, and never closed. Without
    one, one is made when it is first needed, and `aclose` closes it. Timeouts are in seconds, None for ever.
    *prefix* is what the names of models begin with that are asked here, and is not sent. At most *limit*
    requests are under way at a time, None for any number. Of an answer, at most *max_answer* bytes are read.
    *betas* are features that are asked for by name.
    """

    def __init__(  # noqa: PLR0913  # each is a setting of its own
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        client: httpx.AsyncClient | None = None,
        *,
        connect_timeout: float | None = 10.0,
        first_byte_timeout: float | None = FIRST_BYTE,
        idle_timeout: float | None = IDLE,
        answer_timeout: float | None = WHOLE,
        prefix: str = PREFIX,
        limit: int | None = LIMIT,
        max_answer: int = MAX_ANSWER,
        betas: Sequence[str] = (),
    ) -> None:
        key = key_of(api_key, KEY)
        endpoint = Endpoint(
            base_url=(base_url or ANTHROPIC).rstrip("/"),
            headers={"anthropic-version": VERSION}
            | ({"x-api-key": key} if key else {})
            | ({"anthropic-beta": ",".join(betas)} if betas else {}),
            login=f"set {KEY} or pass api_key",
        )
        timeouts = Timeouts(
            connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout, answer=answer_timeout
        )
        super().__init__(MessagesWire(prefix), endpoint, timeouts, client, limit, max_answer)
