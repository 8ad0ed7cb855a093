"""
The providers that a model's name may begin with: one table of addresses, keys, wires and differences.

A row is looked up by the prefix of a model's name. A prefix keeps its row's differences at any address. The
prefix ``openai`` at another address is any server that speaks chat completions: a known host has the
differences of its row, and any other host is an `UNKNOWN_SERVER`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import final
from urllib.parse import urlsplit

import attrs

from ...effects.config import ModelSpec
from ...effects.errors import ConfigError
from . import encoding
from .encoding import ThinkingForm
from .lenient_json import Object

# Models, by how their names begin, that take a word on how much to think, but no ``max_tokens``, no
# ``temperature`` and no ``top_p``.
REASONING_MODELS = ("gpt-5", "o1", "o3", "o4")

# Models that are named like those and do not reason.
NON_REASONING = ("gpt-5-chat",)

# The wires, as the documentation calls them.
CHAT, MESSAGES, RESPONSES = "chat completions", "Messages", "Responses"

# The least budget of thinking that Anthropic's API takes, and servers with a field of that form.
MIN_BUDGET = 1_024


def bare_name(model: str) -> str:
    """The name of *model* without its maker in front, as proxies have it, and the mark of a tuned model."""
    return model.rpartition("/")[2].removeprefix("ft:")


def reasons(model: str) -> bool:
    """Whether *model* is one of OpenAI's reasoning models."""
    name = bare_name(model)
    return name.startswith(REASONING_MODELS) and not name.startswith(NON_REASONING)


def sampling_problem(spec: ModelSpec, model: str) -> str:
    """Why *model* takes no setting for drawing words that *spec* has; empty where it takes all."""
    wrong = [name for name in ("temperature", "top_p") if getattr(spec, name) is not None]
    return f"OpenAI's reasoning models take no {wrong[0]}; leave it out" if wrong and reasons(model) else ""


def no_thinking(_: str, __: int) -> Object:
    """No field: no form is known for the model."""
    return {}


def effort_of(*names: str, otherwise: ThinkingForm = no_thinking) -> ThinkingForm:
    """``reasoning_effort`` for models whose names begin with one of *names*, *otherwise* for the others."""

    def fields(model: str, tokens: int) -> Mapping[str, object]:
        if not bare_name(model).startswith(names):
            return otherwise(model, tokens)
        return {"reasoning_effort": encoding.effort(tokens)}

    return fields


def openai_effort(model: str, tokens: int) -> Object:
    """``reasoning_effort`` for OpenAI's reasoning models, by their names."""
    return {"reasoning_effort": encoding.effort(tokens)} if reasons(model) else {}


def _responses(model: str, tokens: int) -> Object:
    # A summary is shown while the model thinks; the thinking itself is never told.
    return {"reasoning": {"effort": encoding.effort(tokens), "summary": "auto"}} if reasons(model) else {}


def _budget(_: str, tokens: int) -> Object:
    return {"thinking": {"type": "enabled", "budget_tokens": max(tokens, MIN_BUDGET)}}


def _litellm(model: str, tokens: int) -> Mapping[str, object]:
    return openai_effort(model, tokens) or _budget(model, tokens)


def _openrouter(_: str, tokens: int) -> Object:
    return {"reasoning": {"max_tokens": tokens}}


def _gemini(_: str, tokens: int) -> Object:
    return {"extra_body": {"google": {"thinking_config": {"thinking_budget": tokens}}}}


def _deepseek(_: str, tokens: int) -> Object:
    return {"thinking": {"type": "enabled"}, "reasoning_effort": encoding.effort(tokens)}


def _mistral(model: str, _: int) -> Object:
    # The models that take the field take two words: this one and "none".
    return {"reasoning_effort": "high"} if bare_name(model).startswith(_MISTRAL_REASONING) else {}


_MISTRAL_REASONING = ("mistral-small", "mistral-medium")


@final
@attrs.frozen
class ServerQuirks:
    """
    What servers differ in, most of them those of chat completions; the defaults are an unknown server's.

    *thoughts* is the field that thinking goes back in: as text, but for ``reasoning_details``, which hold
    signatures, too. Servers that take ``reasoning_content`` get signed or redacted thinking in
    ``thinking_blocks`` instead. Where *thoughts* is empty, no thinking goes back. *bridged*: no user may
    speak right behind a tool, so the model is made to say a word there. *call_id* is what the ids of calls
    look like.

    *betas* is the header that asks for beta features, *session* the field that takes the name of the session,
    *seed* the field of the seed; each is empty where there is none. *thinking* makes the fields that ask for
    tokens of thinking. *stream_options*: the server takes the field that asks for usage.
    """

    thoughts: str = "reasoning_content"
    bridged: bool = False
    call_id: re.Pattern[str] = encoding.CALL_ID
    betas: str = "anthropic-beta"
    session: str = ""
    seed: str = "seed"
    thinking: ThinkingForm = openai_effort
    stream_options: bool = True


# A server that nothing is known of.
UNKNOWN_SERVER = ServerQuirks()


@final
@attrs.frozen(kw_only=True)
class Provider:
    """
    A row of the table: names that begin with *prefix* are asked at *address* on *wire*.

    The variables *keys* may hold the key; the first that does wins. Where one is *needed*, a request without
    a key is never sent. *key_header* takes the key. *address_variable* may hold another address, which *path*
    is added to, and *port* where it names none. *prices* is the provider's name in the list of prices, empty
    where there is none.
    """

    prefix: str
    address: str = ""
    keys: tuple[str, ...] = ()
    wire: str = CHAT
    needed: bool = True
    key_header: str = "authorization"
    address_variable: str = ""
    path: str = ""
    port: int | None = None
    prices: str = ""
    quirks: ServerQuirks = UNKNOWN_SERVER

    def key(self, given: str | None) -> str:
        """The key that was *given*, else that of the environment; empty where there is none."""
        found = (os.environ.get(variable, "").strip() for variable in self.keys)
        key = (next(filter(None, found), "") if given is None else given).strip()
        if not key.isascii() or not key.isprintable():
            places = " or ".join(["api_key", *self.keys])
            msg = f"the api key has characters that no header can hold; check {places}"
            raise ConfigError(msg)
        return key

    @property
    def takes_betas(self) -> bool:
        """Whether models at the row's own address may have beta features of Anthropic's."""
        return self.wire == MESSAGES or bool(self.quirks.betas)

    @property
    def login(self) -> str:
        """What to do about a missing key."""
        return f"set {' or '.join(self.keys)} or pass api_key" if self.keys else "pass api_key"

    def headers(self, key: str) -> dict[str, str]:
        """The header that logs in with *key*; none without a key."""
        if not key:
            return {}
        return {self.key_header: f"Bearer {key}" if self.key_header == "authorization" else key}

    def at(self, base_url: str | None) -> str:
        """The address: *base_url*, the environment's or the row's; `ConfigError` where there is none."""
        url = base_url or self._from_environment() or self.address
        if not url:
            set_it = f"set {self.address_variable} or pass base_url"
            msg = f"no address for models of {self.prefix!r}; {set_it}"
            raise ConfigError(msg)
        _check_url(url)
        return url.rstrip("/")

    def _from_environment(self) -> str:
        told = os.environ.get(self.address_variable, "").strip() if self.address_variable else ""
        if not told:
            return ""
        url = told.rstrip("/")
        if "://" not in url:  # as OLLAMA_HOST may have it: a host, with a port or without
            url = f"http://{url}"
            if self.port is not None and not re.search(r":\d+$", url):
                url = f"{url}:{self.port}"
        return url.removesuffix(self.path) + self.path

    def lacks_key(self, headers: Mapping[str, str], url: str, base_url: str | None) -> bool:
        """Whether *headers* have no key and *url*, which *base_url* gave, answers none without."""
        if self.key_header in map(str.lower, headers):
            return False
        known = KNOWN_HOSTS.get(host_of(url))
        return known is not None or (self.needed and base_url is None)


# Differences of servers that are reached as they are, without a proxy: they know no beta features.
_DIRECT = ServerQuirks(betas="")

# Each difference is from the page beside it, as of 2026-11.
_PROVIDER_ROWS: Sequence[Provider] = (
    # platform.openai.com/docs/api-reference/chat
    Provider(
        prefix="openai",
        address="https://api.openai.com/v1",
        keys=("OPENAI_API_KEY",),
        prices="openai",
        quirks=ServerQuirks(thoughts="", betas="", session="prompt_cache_key"),
    ),
    # platform.openai.com/docs/api-reference/responses
    Provider(
        prefix="openai-responses",
        address="https://api.openai.com/v1",
        keys=("OPENAI_API_KEY",),
        wire=RESPONSES,
        prices="openai",
        quirks=ServerQuirks(thoughts="", betas="", session="prompt_cache_key", thinking=_responses),
    ),
    # docs.claude.com/en/api/messages
    Provider(
        prefix="anthropic",
        address="https://api.anthropic.com/v1",
        keys=("ANTHROPIC_API_KEY",),
        wire=MESSAGES,
        key_header="x-api-key",
        prices="anthropic",
    ),
    # ai.google.dev/gemini-api/docs/openai: the field "extra_body" is a part of the body there. A field that
    # the API does not know is refused.
    Provider(
        prefix="gemini",
        address="https://generativelanguage.googleapis.com/v1beta/openai",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        prices="google",
        quirks=ServerQuirks(thoughts="", betas="", thinking=_gemini),
    ),
    # openrouter.ai/docs/use-cases/reasoning-tokens
    Provider(
        prefix="openrouter",
        address="https://openrouter.ai/api/v1",
        keys=("OPENROUTER_API_KEY",),
        prices="openrouter",
        quirks=ServerQuirks(
            "reasoning_details", betas="x-anthropic-beta", session="session_id", thinking=_openrouter
        ),
    ),
    # console.groq.com/docs/reasoning: three levels for gpt-oss, while Qwen's models take on or off.
    Provider(
        prefix="groq",
        address="https://api.groq.com/openai/v1",
        keys=("GROQ_API_KEY",),
        prices="groq",
        quirks=ServerQuirks("reasoning", betas="", thinking=effort_of("gpt-oss", otherwise=openai_effort)),
    ),
    # docs.mistral.ai/api and docs.mistral.ai/capabilities/reasoning. Unknown fields are refused, the one that
    # asks for usage too (github.com/dnakov/anon-kode/issues/53): usage comes unasked.
    Provider(
        prefix="mistral",
        address="https://api.mistral.ai/v1",
        keys=("MISTRAL_API_KEY",),
        prices="mistral",
        quirks=ServerQuirks(
            "",
            bridged=True,
            call_id=re.compile("[a-zA-Z0-9]{9}"),
            betas="",
            seed="random_seed",
            thinking=_mistral,
            stream_options=False,
        ),
    ),
    # api-docs.deepseek.com/guides/thinking_mode: a word of three, and the thinking of turns with calls must
    # go back.
    Provider(
        prefix="deepseek",
        address="https://api.deepseek.com",
        keys=("DEEPSEEK_API_KEY",),
        prices="deepseek",
        quirks=attrs.evolve(_DIRECT, thinking=_deepseek),
    ),
    # docs.x.ai/docs/guides/reasoning: other models refuse the word.
    Provider(
        prefix="xai",
        address="https://api.x.ai/v1",
        keys=("XAI_API_KEY",),
        prices="x-ai",
        quirks=attrs.evolve(_DIRECT, thinking=effort_of("grok-4.3", "grok-4.5")),
    ),
    # docs.together.ai/docs/openai-api-compatibility and docs.together.ai/docs/gpt-oss
    Provider(
        prefix="together",
        address="https://api.together.xyz/v1",
        keys=("TOGETHER_API_KEY",),
        prices="together",
        quirks=attrs.evolve(_DIRECT, thinking=effort_of("gpt-oss")),
    ),
    # docs.fireworks.ai/guides/reasoning: a budget for all but gpt-oss, which takes three words.
    Provider(
        prefix="fireworks",
        address="https://api.fireworks.ai/inference/v1",
        keys=("FIREWORKS_API_KEY",),
        prices="fireworks",
        quirks=attrs.evolve(_DIRECT, thinking=effort_of("gpt-oss", otherwise=_budget)),
    ),
    # learn.microsoft.com/azure/foundry/openai/api-version-lifecycle: the v1 API, where the model is the name
    # of the deployment.
    Provider(
        prefix="azure",
        keys=("AZURE_OPENAI_API_KEY",),
        key_header="api-key",
        address_variable="AZURE_OPENAI_ENDPOINT",
        path="/openai/v1",
        prices="azure",
        quirks=ServerQuirks(thoughts="", betas=""),
    ),
    # docs.ollama.com/api/openai-compatibility; the key is for models in its cloud.
    Provider(
        prefix="ollama",
        address="http://localhost:11434/v1",
        keys=("OLLAMA_API_KEY",),
        needed=False,
        address_variable="OLLAMA_HOST",
        path="/v1",
        port=11434,
        quirks=ServerQuirks("reasoning", betas="", thinking=effort_of("")),
    ),
    # docs.vllm.ai/en/latest/serving/openai_compatible_server.html and .../features/reasoning_outputs: the
    # word goes to the model's template.
    Provider(
        prefix="vllm",
        address="http://localhost:8000/v1",
        keys=("VLLM_API_KEY",),
        needed=False,
        quirks=attrs.evolve(_DIRECT, thinking=effort_of("")),
    ),
    # lmstudio.ai/docs/developer/openai-compat: chat completions are told nothing about thinking there.
    Provider(
        prefix="lmstudio",
        address="http://localhost:1234/v1",
        needed=False,
        quirks=attrs.evolve(_DIRECT, thinking=no_thinking),
    ),
    # docs.litellm.ai/docs/reasoning_content and docs.litellm.ai/docs/proxy/ui_logs_sessions
    Provider(
        prefix="litellm",
        address="http://localhost:4000",
        keys=("LITELLM_API_KEY",),
        needed=False,
        address_variable="LITELLM_BASE_URL",
        quirks=ServerQuirks(session="litellm_session_id", thinking=_litellm),
    ),
)

# The rows by their prefixes.
PROVIDERS: Mapping[str, Provider] = {row.prefix: row for row in _PROVIDER_ROWS}


# What a URL of a model's server begins with.
_HTTP = re.compile(r"https?://[^/]", re.IGNORECASE)


def _check_url(url: str) -> None:
    """Raise `ConfigError` where *url* is not one that HTTP can ask."""
    if _HTTP.match(url):
        return
    scheme, _, rest = url.rpartition("://")
    rest = re.sub(r"^(https?:)?/+", "", rest, flags=re.IGNORECASE)
    # A login before the host must not be shown.
    shown = rest.rpartition("@")[2]
    is_near = re.match(r"(localhost|127\.|\[|[^/]*:\d)", shown) is not None
    fix = f"{'http' if is_near else 'https'}://{shown}" if shown and not scheme else "http://host:8000/v1"
    given = f"{scheme}://{shown}" if scheme else shown
    msg = f"base_url must begin with http:// or https://; got {given!r} (write {fix!r})"
    raise ConfigError(msg)


def host_of(url: str) -> str:
    """The host of *url*, empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # a broken address: the first request says so, with the address in it
        return ""


# The rows of providers that refuse a request without a key, by their hosts; the first row of a host counts.
KNOWN_HOSTS: Mapping[str, Provider] = {
    host_of(row.address): row for row in reversed(_PROVIDER_ROWS) if row.needed and row.address
}


def quirks_of(prefix: str, url: str) -> ServerQuirks:
    """What the server at *url* differs in, for models whose names begin with *prefix*."""
    row, known = PROVIDERS.get(prefix), KNOWN_HOSTS.get(host_of(url))
    if row is not None and row.wire == RESPONSES and known is None:
        # A LiteLLM proxy refuses the field where the model behind it is none of OpenAI's.
        return attrs.evolve(row.quirks, session="")
    if row is not None and prefix != "openai":
        return row.quirks
    return UNKNOWN_SERVER if known is None else known.quirks


def chat_provider(prefix: str) -> Provider:
    """The row of *prefix*; that of OpenAI where there is none, as for a prefix of the host's own."""
    return PROVIDERS.get(prefix, PROVIDERS["openai"])
