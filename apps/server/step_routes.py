"""What a session did, step by step, and what may happen next: nothing here performs or writes anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import TYPE_CHECKING
from uuid import uuid4

import attrs
from starlette.responses import Response

from ...diagrams import chart
from ...effects.errors import ConfigError
from ...effects.events import Event
from ...engine.core.codec import converter
from ...engine.inspect.archive import replay
from ...engine.inspect.moves import moves, preview
from ...engine.inspect.replay import ReplayedStep, plain_effects
from .bodies import Listing, MoveBody, PreviewBody, StepBody, StepInFull, TriedEvent
from .given import event_of
from .operations import ONE_SESSION, HttpCall, Parameter, operation, whole
from .problems import Refused
from .views import plain_state, step_body, step_in_full

if TYPE_CHECKING:
    from .open_sessions import OpenSessions

MOST_STEPS, STEPS, MOST_DIGITS = 1_000, 100, 15

STEP_PARAMETERS = (
    Parameter(name="from", about="the number of the first one", schema=whole(0)),
    Parameter(name="limit", about="at most so many", schema=whole(1, MOST_STEPS)),
    Parameter(name="cursor", about="next of the part before, in the place of from", schema=whole(0)),
)


@attrs.frozen
class StepRoutes:
    """The operations on steps and moves."""

    opens: OpenSessions

    @operation("GET", f"{ONE_SESSION}/steps", gives=Listing[StepBody], parameters=STEP_PARAMETERS)
    async def steps(self, call: HttpCall) -> Listing[StepBody]:
        """The steps from one on."""
        start = call.number("from", call.number("cursor", 0))
        limit = call.number("limit", STEPS, 1, MOST_STEPS)
        found: list[StepBody] = []
        # One more tells whether there is a next page.
        async for step in self._steps(call, start, limit + 1):
            if len(found) == limit:
                return Listing(items=found, next=step.number)
            found.append(step_body(step, call.names))
        return Listing(items=found)

    @operation("GET", ONE_SESSION + "/steps/{number}", gives=StepInFull)
    async def step(self, call: HttpCall) -> StepInFull:
        """One step, with the memory after it."""
        return step_in_full(await self._step(call), call.names)

    @operation("GET", ONE_SESSION + "/steps/{number}/diagram.svg", gives="image/svg+xml")
    async def diagram(self, call: HttpCall) -> Response:
        """The machine, with the state after a step lit."""
        return Response(chart((await self._step(call)).label), media_type="image/svg+xml")

    async def _step(self, call: HttpCall) -> ReplayedStep:
        given = call.request.path_params["number"]
        # Longer numbers are of no session.
        if given.isascii() and given.isdecimal() and len(given) < MOST_DIGITS:
            async for step in self._steps(call, int(given), 1):
                return step
        raise Refused(HTTPStatus.NOT_FOUND, f"session {call.session!r} has no step {given[:50]!r}")

    async def _steps(self, call: HttpCall, since: int, limit: int) -> AsyncGenerator[ReplayedStep, None]:
        _, name = await self.opens.find(call.names, call.session)
        async for step in replay(self.opens.store, name, since, limit):
            yield step

    @operation("GET", f"{ONE_SESSION}/moves", gives=Listing[MoveBody])
    async def moves(self, call: HttpCall) -> Listing[MoveBody]:
        """Every kind of event that is legal now."""
        async with self.opens.use(call.names, call.session) as one:
            agent = self.opens.agents[one.agent]
            found = moves(one.session.machine, agent.config, agent.clock.now(), uuid4().hex[:12])
            return Listing(
                items=[
                    MoveBody(title=move.title, event=converter.unstructure(move.event, Event))
                    for move in found
                ]
            )

    @operation("POST", f"{ONE_SESSION}/preview", takes=TriedEvent, large=True, gives=PreviewBody)
    async def preview(self, call: HttpCall) -> PreviewBody:
        """What an event would lead to; nothing is performed, and nothing is written."""
        given: TriedEvent = call.body
        async with self.opens.use(call.names, call.session) as one:
            agent = self.opens.agents[one.agent]
            event = event_of(given.event, agent.clock.now())
            try:
                seen = preview(one.session.machine, agent.config, event)
            except ConfigError as error:
                raise Refused(HTTPStatus.CONFLICT, str(error)) from error
            return PreviewBody(
                state=seen.state.label, effects=plain_effects(seen.effects), values=plain_state(seen.state)
            )
