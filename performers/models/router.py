"""`Models` chooses the wire that a model is asked on, by the prefix before the colon of its name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import final

from ...effects.config import ModelSpec
from ...effects.errors import ConfigError
from ...effects.events import Answer, Failure, ModelFailed
from ...effects.requests import CallModel
from ...effects.spelling import meant
from ..base import PerformContext, Performer
from .anthropic import AnthropicMessages
from .http import HTTPModel
from .openai import OpenAIChat
from .providers import MESSAGES, PROVIDERS, RESPONSES
from .rate_limits import RateLimit, RateLimiter
from .responses import OpenAIResponses
from .throttle import MAX_CONCURRENT
from .transport import Client

# Makes the performer of a wire from base_url, api_key, client and *limit*.
WireFactory = Callable[..., HTTPModel]

# What performs the calls of each prefix that comes along.
WIRES: Mapping[str, WireFactory] = {
    prefix: {MESSAGES: AnthropicMessages, RESPONSES: OpenAIResponses}.get(
        row.wire, partial(OpenAIChat, prefix=prefix)
    )
    for prefix, row in PROVIDERS.items()
}

# Prefixes of other libraries and the names of products, by the provider that each means here.
_ALIASES: Mapping[str, str] = {
    "google-gla": "gemini",
    "google": "gemini",
    "google_genai": "gemini",
    "claude": "anthropic",
    "gpt": "openai",
    "openai_responses": "openai-responses",
    "grok": "xai",
    "x-ai": "xai",
    "mistralai": "mistral",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
    "azure_openai": "azure",
}

# The wire of a name without a prefix, where nothing else is said: most servers speak it.
DEFAULT_WIRE = "openai"


def wire_of(model: str, wires: Collection[str] = WIRES) -> str | None:
    """Which of *wires* the name of *model* begins with: ``openai:gpt-5`` with one, ``qwen3:8b`` with none."""
    wire, colon, _ = model.partition(":")
    return wire if colon and wire in wires else None


@final
class Models:
    """
    Performs `CallModel` on the wire that the model's name begins with.

    *default* is the wire of the first model. It is the only one that *base_url*, *api_key* and *client* are
    for, and it takes the names that begin with no wire. All others ask their own providers, with the keys of
    the environment, and are made when they are first needed.

    Each provider has at most *limit* requests under way at a time, over all sessions; None for any number.
    *betas* are features that Anthropic's Messages are asked for by name, also behind a proxy at *base_url*.

    *rates* bounds the requests to a model in a minute, over all processes on the store of their sessions.

    *wires* adds performers by their prefix, or puts them in the place of those that come along. The caller
    closes them.
    """

    def __init__(  # noqa: PLR0913  # each is a setting of its own
        self,
        default: str = DEFAULT_WIRE,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Client = None,
        wires: Mapping[str, Performer[CallModel]] | None = None,
        limit: int | None = MAX_CONCURRENT,
        betas: Sequence[str] = (),
        rates: Sequence[RateLimit] = (),
    ) -> None:
        self._takes_betas = {row.prefix for row in PROVIDERS.values() if row.takes_betas}
        if default == DEFAULT_WIRE and base_url is not None:  # a proxy may pass them on, OpenAI has none
            self._takes_betas.add(default)
        self._makers = {
            wire: partial(make, limit=limit, **({"betas": betas} if wire in self._takes_betas else {}))
            for wire, make in WIRES.items()
        }
        self._given = dict(wires or {})
        self._known = sorted({*WIRES, *self._given})
        self._default = default
        self._made: dict[str, HTTPModel] = {}
        self._limiter = RateLimiter(rates) if rates else None
        # The provider of a wire has no model with the prefix of another one; elsewhere names are any.
        self._takes_any = base_url is not None or default in self._given
        if default not in self._known:
            msg = f"no provider {default!r}: known are {self._list()}"
            raise ConfigError(msg)
        if default not in self._given:
            self._made[default] = self._makers[default](base_url, api_key, client)
        elif (base_url, api_key, client) != (None, None, None):
            msg = f"provider {default!r} is given ready-made: give it base_url, api_key and client yourself"
            raise ConfigError(msg)

    def wire_of(self, model: str) -> str | None:
        """The wire that *model* is asked on, or None where its name begins with one that is not there."""
        other = self._default if self._takes_any or ":" not in model else None
        return wire_of(model, self._known) or other

    def takes_betas(self, model: str) -> bool:
        """Whether *model* is asked for beta features."""
        return self.wire_of(model) in self._takes_betas

    def check(self, model: str) -> None:
        """Raise `ConfigError` where *model* cannot be asked: it has no wire, or one with a wrong setting."""
        self._performer(model)

    def check_spec(self, spec: ModelSpec) -> None:
        """As `check`; also where a request to the model of *spec* cannot have one of its settings."""
        performer = self._performer(spec.name)
        if isinstance(performer, HTTPModel):
            performer.check(spec)

    def ready(self, *models: str) -> None:
        """Raise `ConfigError` where a key of one of *models* is missing, before it is asked in vain."""
        for model in models:
            performer = self._performer(model)
            if isinstance(performer, HTTPModel):
                performer.ready(model, other=self.wire_of(model) != self._default)

    async def __call__(self, request: CallModel, scene: PerformContext) -> Answer | None:
        """Ask the model on its wire; one that cannot be asked is a bad request."""
        try:
            performer = self._performer(request.model)
        except ConfigError as error:
            at, failure = scene.clock.now(), Failure.BAD_REQUEST
            return ModelFailed(at=at, request=request.id, failure=failure, message=str(error))
        if self._limiter is None:
            return await performer(request, scene)
        # A performer that was given is known by its prefix, which is in the name of the model.
        account = performer.account if isinstance(performer, HTTPModel) else ""
        return await self._limiter.ask(performer, account, request, scene)

    async def aclose(self) -> None:
        """Close the connections of the wires that were made here; a later request opens new ones."""
        async with AsyncExitStack() as stack:
            for model in list(self._made.values()):  # another task may make one meanwhile
                stack.push_async_callback(model.aclose)

    def _performer(self, model: str) -> Performer[CallModel]:
        wire = self.wire_of(model)
        if wire is None:
            provider = model.partition(":")[0]
            near = _ALIASES.get(provider.lower(), "")
            likely = f"did you mean {near!r}?" if near else meant(provider, self._known)
            known = f"known are {self._list()}; put one in front, or give the base_url of another server"
            msg = f"no provider {provider!r} for model {model!r}: {likely}{' ' if likely else ''}{known}"
            raise ConfigError(msg)
        if "/" in model and not self._takes_any and wire_of(model, self._known) is None:
            maker, _, rest = model.partition("/")
            if maker in PROVIDERS:
                msg = f"model {model!r} names its provider as a proxy does; write {f'{maker}:{rest}'!r}"
                raise ConfigError(msg)
        if wire in self._given:
            return self._given[wire]
        if wire not in self._made:
            self._made[wire] = self._makers[wire]()
        return self._made[wire]

    def _list(self) -> str:
        return ", ".join(map(repr, self._known))
