"""
Notices where a provider's prompt cache is missed, and says what changed in the beginning of the prompt.

Theory of operation. For each session and model, the latest request is remembered: what its prompt began with,
and how many of its tokens are in the provider's cache, as the provider said. The next request begins with the
same prompt, so the provider should read these tokens from its cache. Where it reads clearly fewer, the two
requests are compared. The memory is this process's: the first request of a session here is never a miss.

The machine keeps none of this, since it cannot know how long it takes from one request to the next, nor that
another process asked in between.
"""

from __future__ import annotations

from typing import final
from weakref import ref

import attrs

from ...effects.config import Config, ModelSpec, ToolSpec
from ...effects.history import Log
from ...effects.messages import Message, Role
from ...effects.notices import CacheMissed
from ...effects.output import OutputMode, OutputSpec
from ...effects.requests import CallModel, Conversation, Purpose
from ...effects.usage import CacheMissReason, Usage
from ..base import PerformContext

# Tokens of a prompt below which providers keep nothing; some models need more, and say so by their counts.
MIN_PROMPT = 1_024

# Seconds that a provider keeps a prompt at least: Anthropic five minutes from its last use, OpenAI as long.
LIFETIME = 300.0

# The share of the expected tokens below which a cache is missed: providers count in blocks.
ENOUGH_CACHED = 0.9

# Sessions and models that are remembered, the least recently used going first.
MAX_REMEMBERED_PROMPTS = 1_000


@final
@attrs.frozen(kw_only=True)
class RequestPrefix:
    """
    What the prompt of a request began with, *at* the time when it was sent.

    *held* are the tokens that the provider has in its cache from then on. *thought*: the model was to think,
    and providers leave thoughts out of the prompt once the user speaks again.
    """

    system: tuple[str, str]
    tools: tuple[tuple[ToolSpec, ...], tuple[str, ...]]
    settings: tuple[ModelSpec, int | None, str, OutputMode | None, OutputSpec | None]
    view: Conversation
    log: ref[Log[Message]]
    at: float
    held: int
    thought: bool

    @classmethod
    def of(
        cls, request: CallModel, view: Conversation, scene: PerformContext, at: float, usage: Usage
    ) -> RequestPrefix:
        """The beginning of *request* about *view*, sent *at* that time and answered with *usage*."""
        config, spec = scene.config, scene.config.spec(request.model)
        return cls(
            system=(request.system, request.instructions),
            tools=(_offered(request, config), spec.provider_tools),
            settings=(spec, request.thinking, request.tool_choice, request.output, config.output),
            view=view,
            log=ref(scene.history.log),
            at=at,
            held=usage.cached + usage.cache_write,
            thought=request.thinking is not None or usage.reasoning > 0,
        )

    def differs_in(self, before: RequestPrefix) -> CacheMissReason | None:
        """What changed since *before*; None where that cannot be told, as in a branch of the session."""
        if self.view.revision > before.view.revision:
            return CacheMissReason.COMPACTED
        if self.log() is not before.log() or self.view.length < before.view.length:
            return None
        changes = {
            CacheMissReason.SYSTEM: self.system != before.system,
            CacheMissReason.TOOLS: self.tools != before.tools,
            CacheMissReason.SETTINGS: self.settings != before.settings,
            CacheMissReason.CLEARED: self.view.cleared != before.view.cleared,
        }
        return next((reason for reason, changed in changes.items() if changed), CacheMissReason.UNCHANGED)


def _offered(request: CallModel, config: Config) -> tuple[ToolSpec, ...]:
    names = frozenset(request.tools)
    return tuple([tool for tool in config.tools if tool.name in names])


@final
class PromptCache:
    """What is in a provider's cache, of the latest request of each session to each model."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], RequestPrefix] = {}

    def look(self, request: CallModel, scene: PerformContext, sent: float, usage: Usage) -> None:
        """Tell *scene* where *request*, sent at that time and answered with *usage*, missed the cache."""
        view, key = request.view, (scene.session, request.model)
        if not scene.session or request.purpose is not Purpose.TURN or not isinstance(view, Conversation):
            return
        now = RequestPrefix.of(request, view, scene, sent, usage)
        before = self._latest.pop(key, None)
        self._latest[key] = now  # at the end again, so that the order is that of use
        while len(self._latest) > MAX_REMEMBERED_PROMPTS:
            del self._latest[next(iter(self._latest))]
        if before is None or sent - before.at >= LIFETIME:
            return
        expected = min(before.held, usage.input)
        if expected < MIN_PROMPT or usage.cached >= expected * ENOUGH_CACHED:
            return
        reason = now.differs_in(before)
        if reason is None or (reason is CacheMissReason.UNCHANGED and _left_thoughts_out(before, now, scene)):
            return
        missed = CacheMissed(
            at=scene.clock.now(),
            request=request.id,
            model=request.model,
            reason=reason,
            expected=expected,
            cached=usage.cached,
        )
        scene.emit(missed)


def _left_thoughts_out(before: RequestPrefix, now: RequestPrefix, scene: PerformContext) -> bool:
    """Whether the user spoke since *before*, so that providers leave thoughts out of the prompt."""
    added = scene.history.slice(before.view.length, now.view.length)
    return before.thought and any(message.role is Role.USER for message in added)
