"""The performer for OpenAI's chat completions and everybody who speaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final
from urllib.parse import urlsplit

from .exchange import MAX_ANSWER
from .http import WHOLE, Endpoint, HTTPModel, Timeouts, key_of
from .openai_chat import PREFIX, ChatWire, Habits
from .throttle import LIMIT

if TYPE_CHECKING:
    import httpx

OPENAI = "https://api.openai.com/v1"
"""Where models are asked when no other address is given."""

KEY = "OPENAI_API_KEY"
"""The environment variable that holds the key when none is given."""

FIRST_BYTE = 300.0
"""Seconds until an answer begins: a reasoning model may think for minutes before its first byte."""

IDLE = 120.0
"""Seconds between two bytes of an answer: some servers are silent while a model thinks between calls."""

HABITS = {
    "api.openai.com": Habits(thoughts=""),
    "api.groq.com": Habits(thoughts="reasoning"),
    "api.mistral.ai": Habits(thoughts="", bridged=True),
    "openrouter.ai": Habits(thoughts="reasoning_details"),
}
"""What servers do differently, by host."""


@final
class OpenAIChat(HTTPModel):
    """
    Performs `CallModel` with OpenAI's chat completions, or any server that speaks them at *base_url*.

    *api_key* defaults to the environment's ``OPENAI_API_KEY``; where that is empty too, none is sent. A
    *client* of the caller's is used with its own settings, but for the timeouts, and never closed. Without
    one, one is made when it is first needed, and `aclose` closes it. Timeouts are in seconds, None for ever.
    *prefix* is what the names of models begin with that are asked here, and is not sent. At most *limit*
    requests are under way at a time, None for any number. Of an answer, at most *max_answer* bytes are read.
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
    ) -> None:
        url = (base_url or OPENAI).rstrip("/")
        key = key_of(api_key, KEY)
        endpoint = Endpoint(
            base_url=url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            login=f"set {KEY} or pass api_key",
        )
        timeouts = Timeouts(
            connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout, answer=answer_timeout
        )
        wire = ChatWire(HABITS.get(_host(url), Habits()), prefix)
        super().__init__(wire, endpoint, timeouts, client, limit, max_answer)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # a broken address: asking it says so
        return ""
