"""Which of an agent's tools the next turn offers, where its host says."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from ... import effects
from ...effects.validators import as_texts
from ..base import PerformContext, Performer

# Names the tools of the next turn, by what the conversation has come to; called in the event loop.
ToolChoice = Callable[[PerformContext], Iterable[str] | Awaitable[Iterable[str]]]


async def offer(
    choose: ToolChoice,
    known: Sequence[str],
    inner: Performer[effects.CallModel],
    request: effects.CallModel,
    scene: PerformContext,
) -> effects.Answer | None:
    """Perform `CallModel` by *inner*, with those of its tools only that *choose* names, of those *known*."""
    if request.purpose is not effects.Purpose.TURN:
        return await inner(request, scene)
    chosen = choose(scene)
    names = as_texts(await chosen if inspect.isawaitable(chosen) else chosen)
    # The agent's, also in a child that has some of them: one function is for both.
    if unknown := [name for name in names if name not in known]:
        msg = f"tools_for: no tool {unknown[0]!r}; there are: {', '.join(known) or 'none'}"
        raise effects.ConfigError(msg)
    # The tool of an output is not the host's to choose: without it the run could not end.
    output = scene.config.output
    kept = {*names} if output is None else {*names, output.tool_for(request.model)}
    offered = tuple([name for name in request.tools if name in kept])
    answer = await inner(attrs.evolve(request, tools=offered), scene)
    # In the answer, which the journal keeps: the machine lets no other tool run.
    return attrs.evolve(answer, offered=offered) if isinstance(answer, effects.ModelFinished) else answer
