"""Asking hooks, and taking note of what they said: the same at every place where a host has a say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.notices import HookAsked, HookReplied
from ..effects.records import AddContext
from ..effects.requests import FireHook
from .rules.hooks import Opinion, opinion

if TYPE_CHECKING:
    from ..effects.events import HookAnswered
    from ..effects.hooks import Hook
    from .draft import Draft


def ask_hooks(hook: Hook, names: tuple[str, ...], payload: str, draft: Draft, call: str = "") -> str:
    """Ask the hooks *names*; the id of the request."""
    request = draft.new_id()
    draft.add(
        FireHook(id=request, hook=hook, names=names, payload=payload, call=call),
        HookAsked(request=request, hook=hook, names=names, call=call),
    )
    return request


def heard(hook: Hook, event: HookAnswered, draft: Draft, call: str = "") -> Opinion:
    """What the hooks said, which is told to whoever watches; the context they add is kept."""
    said = opinion(event.said)
    draft.add(HookReplied(request=event.request, hook=hook, said=event.said, call=call))
    draft.add(*[AddContext(text=text) for text in said.context])
    return said
