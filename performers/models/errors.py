"""
What a provider's refusal means: status, headers and body, or an error in a stream, read as a `Broken`.

Providers agree on little here: codes are numbers, numbers in strings or names, bodies are JSON of five
shapes, plain text or a web page, and a conversation that is too long has a wording of its own everywhere.
What is recognised stands in the tables below.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import cast
from urllib.parse import quote, unquote, urlsplit

import attrs
import msgspec

from ...effects.events import Failure
from ...effects.secrets import is_secret
from ...effects.validators import clean
from .encoding import to_json
from .lenient_json import Object, as_object, decoded, first_text, objects
from .wire import Broken

# Keys are kept out of every message, since servers quote the key that they refuse.

# Characters of a key that is hidden. A shorter one opens nothing, and may be any word of a message.
SHORTEST = 8

# What stands in the place of a key.
HIDDEN_KEY = "[hidden]"

# Behind these words the value of a header opens something, though an argument called so may be any value:
# ``X-Auth``, ``Ocp-Apim-Subscription-Key``.
_HEADER_WORDS = ("auth", "key")
_USERINFO = re.compile(r"(?<=//)[^/?#@]*(?:@[^/?#@]*)*@")


def keys_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that *headers* hold, by their names; of ``Bearer abc`` that is ``abc``."""
    named = [value.split() for name, value in headers.items() if is_secret(name, _HEADER_WORDS)]
    values = [words[-1] for words in named if words]
    return tuple([value for value in values if len(value) >= SHORTEST])


def redact_keys(text: str, keys: Iterable[str]) -> str:
    """*text* without *keys*, also where one is quoted for a URL, or cut at the end of what was shortened."""
    for key in keys:
        # Servers that cut a quoted key short leave enough of it to be worth hiding, down to the shortest key.
        for form in (key, quote(key, safe="")):
            text = text.replace(form, HIDDEN_KEY)
            for length in range(len(form), SHORTEST - 1, -1):
                text = text.replace(f"{form[:length]}...", f"{HIDDEN_KEY}...")
    return text


def without_login(url: str) -> str:
    """*url* without the name and the password that may stand before its host."""
    return _USERINFO.sub("", url)


def login_in(url: str) -> str:
    """The name and the password before the host of *url* as the value of a header; empty without one."""
    found = _USERINFO.search(url)
    if found is None:
        return ""
    name, _, password = found[0].removesuffix("@").partition(":")
    return f"Basic {b64encode(f'{unquote(name)}:{unquote(password)}'.encode()).decode()}"


# Characters of a provider's message that are kept: it ends up in logs, notices and journals.
MAX_FAILURE_TEXT = 500

# Characters of it that are looked at: as much as is read of a refusal.
MAX_READ = 64 * 1024

# What a status means; other 5xx are `SERVER`, everything else is `BAD_REQUEST`.
FAILURE_STATUSES: dict[int, Failure] = {
    401: Failure.AUTH,
    402: Failure.AUTH,  # the account has no money left, which waiting does not mend
    403: Failure.AUTH,
    404: Failure.NOT_FOUND,
    408: Failure.TIMEOUT,
    409: Failure.SERVER,  # two requests met inside the provider; trying again is what its own client does
    413: Failure.OVERFLOW,
    429: Failure.RATE_LIMIT,
    529: Failure.OVERLOADED,
}

# What an error's `code` or `type` means where it is a name. The code is asked first.
_ERROR_NAMES: dict[Failure, tuple[str, ...]] = {
    Failure.OVERFLOW: (
        *("context_length_exceeded", "model_context_window_exceeded", "model_max_prompt_tokens_exceeded"),
        *("exceed_context_size_error", "request_too_large", "too_many_prompt_tokens"),
    ),
    Failure.AUTH: (
        *("authentication_error", "invalid_api_key", "permission_error", "billing_error"),
        "insufficient_quota",  # sent as a 429, but no waiting mends it
    ),
    Failure.RATE_LIMIT: ("rate_limit_error", "rate_limit_exceeded"),
    Failure.OVERLOADED: (
        *("engine_overloaded", "overloaded", "overloaded_error", "server_is_overloaded"),
        "slow_down",
    ),
    Failure.TIMEOUT: ("timeout_error", "vector_store_timeout"),
    Failure.BAD_REQUEST: (
        *("invalid_prompt", "invalid_image", "invalid_image_format", "invalid_base64_image"),
        *("invalid_image_url", "invalid_image_mode", "image_too_large", "image_too_small"),
        *("image_parse_error", "image_content_policy_violation", "image_file_too_large"),
        *("unsupported_image_media_type", "empty_image_file", "failed_to_download_image"),
        "image_file_not_found",
    ),
    Failure.CUT: ("tool_use_failed",),  # a model's malformed call, which the provider refuses: ask again
    Failure.NOT_FOUND: ("model_not_found", "not_found_error", "invalid_model", "model_decommissioned"),
}
FAILURE_NAMES = {name: failure for failure, names in _ERROR_NAMES.items() for name in names}

# A name in what a proxy quotes, however often it was quoted.
# LiteLLM makes a plain 500 of an Anthropic's 529 and a 400 of its 413: what it was stands in the message
# only.
QUOTED = re.compile(r'"(?:code|type)\\*": ?\\*"(\w+)')

# The wordings of "the answer may not be that long". They say how long it may be, or what the window is and
# what was asked for: how much of it is read, or read and answered.
ANSWER_LIMITS = [
    re.compile(wording.replace("N", r"\d{1,9}"), re.IGNORECASE | re.DOTALL)
    for wording in (
        r"length is (?P<window>N) tokens and your request has (?P<read>N) input tokens",
        r"passed (?P<read>N) input tokens.{,80}context length is only (?P<window>N)",
        r"length is (?P<window>N) .{,40}?(?P<total>N) tokens \(.{,120}?(?P<answer>N) in the (?:comp|out)",
        r"exceed context limit: (?P<read>N) \+ N > (?P<window>N)",
        r"max[ _](?:\w{,12}_)?tokens\b.{,80}?(?:N > (?=N, )|equal to `?|\[N, ?|supports at most )(?P<most>N)",
    )
]

# What a wording means: that the conversation is larger than the window, or, where it comes with a 400 or in a
# stream, that the model is unknown or the key is wrong.
_WORDINGS: dict[Failure, str] = {
    Failure.OVERFLOW: (
        r"max(imum)? (context|prompt) length|context ?(limit|window)|context size (is|has been exceeded)|"
        r"exceeds the available context|maximum number of tokens allowed|(prompt|input) (is )?too long|"
        r"longer than the (maximum model|model's context) length|total length of all messages is too long|"
        r"greater than the context length|context length (of|is) only|context[ _]length[ _]exceeded|"
        r"too large for model with \d+ max|exceeded model token limit|prompt token count of \d+ exceeds|"
        r"prompt exceeds max|range of input length should be|reduce the length of the messages|"
        r"max_new_tokens` must be <=|inputs` must have less than|\(total length \d+\) is too long|"
        # A limit on the speed is worded like Cohere's of the size.
        r"prompt_tokens \(\d+\) must be less than|too many tokens(?!, please wait)"
    ),
    Failure.NOT_FOUND: (
        r"(invalid|unknown|no such) model\b|not a valid model|model identifier is invalid|"
        r"\bmodel:?( \S{1,100})? ((does )?not exist|(was |is )?not found|has been decommissioned)"
    ),
    Failure.AUTH: (
        r"\b(incorrect|invalid|missing|no) api[ _-]?key|\bauthentication fail|"
        r"\bapi[ _-]?key (is |was |has )?(not valid|invalid|incorrect|missing|expired|required)"
    ),
}
WORDINGS = {failure: re.compile(wording, re.IGNORECASE) for failure, wording in _WORDINGS.items()}

# A rate limit that no waiting mends: this one request is more than may be sent in a whole minute.
TOO_LARGE = re.compile(r"request too large for .{,500}\btokens per min", re.IGNORECASE | re.DOTALL)

# Headers that ask to wait, the most exact first, and their unit in seconds.
DELAYS = (("retry-after-ms", 0.001), ("retry-after", 1.0), ("llm_provider-retry-after", 1.0))

# Gemini says it in the body, also where a proxy quotes that.
BODY_DELAY = re.compile(r'"retryDelay\\*": ?\\*"(\d{1,9}(?:\.\d{1,9})?)s')

# What Anthropic and OpenAI say of trying the same again.
SHOULD_RETRY = {"true": True, "false": False}

_WRAPPINGS = 2  # a list, and an error in an error
_VAGUE = {Failure.BAD_REQUEST, Failure.SERVER, Failure.RATE_LIMIT}  # where a name or wording knows better


def refusal(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Broken:
    """What an answer of *status* other than 2xx means; *now* in seconds since the epoch is for dates."""
    body = body.removeprefix(BOM_UTF8)
    error = _error_of(decoded(body, msgspec.json.decode))  # DeepSeek sends JSON as application/octet-stream
    text = _message(error) if error else " ".join(body.decode("utf-8", "replace").split())
    if 300 <= status < 400:  # noqa: PLR2004  # 3xx
        text = f"redirected to {headers.get('location', '')!r}; give that as the base URL"
    # The status first, since it is the only thing that all servers agree on. A name or a wording overrules
    # it only where it is vague: proxies wrap a provider's 529 in a 500 and its 413 in a 400.
    failure = _by_number(status) or Failure.BAD_REQUEST
    if failure in _VAGUE:
        failure = _by_name(error) or failure
    failure, max_output = _by_wording(failure, text)
    message = f"http {status}: {shorten(text)}" if text else f"http {status} without a message"
    return Broken(
        failure=failure,
        message=message,
        retry_after=retry_after(headers, now) or _body_delay(body.decode("utf-8", "replace")),
        max_output=max_output,
        should_retry=SHOULD_RETRY.get(headers.get("x-should-retry", "").lower()),
    )


# Statuses of a path that is not there, or takes no POST.
ABSENT_STATUSES = frozenset({404, 405})

# The part of a path that names the version of an API, as in ``/v1`` and ``/v1beta``.
_VERSION_PART = re.compile(r"/v\d")


def not_there(told: Broken, base_url: str, path: str) -> Broken:
    """*told* of a path that is not there, with its URL: *base_url* may lack a part before *path*."""
    message = f"{told.message} (asked {base_url}{path}{url_hint(base_url)})"
    # A server that knows no such model was reached at the right path.
    return told if "model" in told.message.lower() else attrs.evolve(told, message=message)


def is_page(headers: Mapping[str, str]) -> bool:
    """Whether *headers* are of a web page."""
    return headers.get("content-type", "").lower().startswith(("text/html", "application/xhtml"))


def page_in_place(headers: Mapping[str, str], base_url: str, path: str) -> Broken:
    """What a web page means that *path* at *base_url* sent in the place of an answer; no retry mends it."""
    kind = shorten(headers.get("content-type", ""), 80)
    message = f"{base_url}{path} answered with a web page ({kind}) and not as a model does"
    hint = url_hint(base_url) or "; check the base_url, and any proxy before it"
    return Broken(failure=Failure.BAD_REQUEST, message=f"{message}{hint}")


def url_hint(base_url: str) -> str:
    """A question about *base_url*, for what did not answer as a model does; empty where it has a version."""
    return "" if _VERSION_PART.search(urlsplit(base_url).path) else "; does the base_url lack /v1?"


# Statuses of a request that is refused for its key.
_KEY_STATUSES = frozenset({401, 403})


def is_about_key(status: int, message: str) -> bool:
    """Whether a refusal of *status* with *message* is about the key, and not about the account's money."""
    return status in _KEY_STATUSES or WORDINGS[Failure.AUTH].search(message) is not None


def stream_error(error: object) -> Broken:
    """
    What an *error* sent in the middle of a stream means.

    One that says nothing better than "something broke here" is a stream cut short.
    """
    found = _error_of(error)
    text = _message(found)
    failure = _by_name(found) or _by_number(_number(found))
    if failure is None and found.get("type") == "invalid_request_error":
        failure = Failure.BAD_REQUEST
    if failure is None or failure is Failure.SERVER:
        failure = Failure.CUT
    failure, limit = _by_wording(failure, text)
    message = f"error in the stream: {shorten(text) or 'without a message'}"
    delay = _body_delay(to_json(error).decode())
    return Broken(failure=failure, message=message, retry_after=delay, max_output=limit)


def is_refusal(chunk: Object) -> bool:
    """Whether *chunk*, which came in the place of an answer, says why there is none."""
    return chunk.get("success") is False or bool(chunk.get("detail") or first_text(chunk, "message", "msg"))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that *headers* ask to wait, more than 0, or None; a date is counted from *now*."""
    for name, unit in DELAYS:
        value = headers.get(name, "")
        seconds = math.nan
        with suppress(ValueError, OverflowError):
            seconds = parsedate_to_datetime(value).timestamp() - now
        with suppress(ValueError):
            seconds = float(value) * unit
        # No time is no wish: proxies send a zero beside the real one, and a date may be past when it is read.
        if math.isfinite(seconds) and seconds > 0:
            return seconds
    return None


def _body_delay(body: str) -> float | None:
    found = BODY_DELAY.search(body)
    return (float(found[1]) or None) if found else None


def shorten(text: str, limit: int = MAX_FAILURE_TEXT) -> str:
    """*text*, fit to be written down and shortened to *limit* characters with a sign that it was."""
    return clean(text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)")


def _error_of(value: object) -> Object:
    """The object that holds message, code and type, whichever way it was wrapped."""
    for _ in range(_WRAPPINGS):
        if isinstance(value, list):
            value = next(iter(objects(cast("object", value))), None)
        value = as_object(value).get("error") or value
    return {"message": value} if isinstance(value, str) else as_object(value)


def _message(error: Object) -> str:
    text = next((error[key] for key in ("message", "detail", "msg") if error.get(key)), error or "")
    text = text if isinstance(text, str) else to_json(text).decode()
    # OpenRouter's own message is "Provider returned error"; the provider's stands beside it.
    raw = first_text(as_object(error.get("metadata")), "raw")
    return (f"{text}: {raw}" if raw else text)[:MAX_READ]


def _by_name(error: Object) -> Failure | None:
    names = [error.get("code"), error.get("type"), *QUOTED.findall(_message(error))]
    found = (FAILURE_NAMES.get(name.lower()) for name in names if isinstance(name, str))
    return next(filter(None, found), None)


def _by_wording(failure: Failure, text: str) -> tuple[Failure, int | None]:
    """What *failure* is by the words of *text*, and how long an answer may be, where it was to be longer."""
    # A rate limit talks of tokens, too. Only the one that no waiting mends is a conversation that is too
    # long.
    if failure is Failure.RATE_LIMIT:
        return Failure.OVERFLOW if TOO_LARGE.search(text) else failure, None
    if failure not in {*_VAGUE, Failure.CUT, Failure.OVERFLOW}:
        return failure, None
    if most := _answer_limit(text):
        return Failure.BAD_REQUEST, most
    meant = next((each for each, wording in WORDINGS.items() if wording.search(text)), failure)
    known = meant is Failure.OVERFLOW or failure in {Failure.BAD_REQUEST, Failure.CUT}
    return meant if known else failure, None


def _answer_limit(text: str) -> int:
    """The most tokens that an answer may have, where *text* refuses it for having more; else 0."""
    found = next(filter(None, (wording.search(text) for wording in ANSWER_LIMITS)), None)
    told = {name: int(number) for name, number in found.groupdict().items()} if found else {}
    window, read = told.get("window", 0), told.get("read", told.get("total", 0) - told.get("answer", 0))
    # Where what is read takes most of the window, a shorter answer would soon be cut off: that is no answer
    # that is too long, but a conversation.
    return told.get("most", window - read if 2 * read < window else 0)


def _by_number(status: int) -> Failure | None:
    other = Failure.SERVER if status >= 500 else Failure.BAD_REQUEST  # noqa: PLR2004  # 5xx
    return FAILURE_STATUSES.get(status, other) if status >= 400 else None  # noqa: PLR2004  # 4xx


def _number(error: Object) -> int:
    for key in ("code", "status_code", "status"):
        value = error.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:4])
        if isinstance(value, int):
            return value
    return 0
