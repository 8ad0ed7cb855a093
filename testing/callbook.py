"""
What must hold of tool calls over a whole run: asked about before they run, run at most once, answered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.config import Config, Grant, PermissionMode, SideEffect, ToolKind
from ..effects.events import ApprovalGiven, ApproveAlways, Deny, Interrupted
from ..effects.messages import Outcome, ToolCall, ToolResult
from ..states.rules.schema import arguments_of, problem
from ..states.state import Stopping
from .invariants import beyond, needs_asking, over_limit
from .steps import stopping

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..effects.notices import ToolEnded
    from ..effects.requests import AskApproval, Request, RunAgent, RunTool
    from ..effects.usage import Spent
    from .steps import Step

RAN = frozenset({Outcome.OK, Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.UNKNOWN})
"""Outcomes that only a call that was started can have."""

DID_NOT_RUN = frozenset({Outcome.DENIED, Outcome.SKIPPED})
"""Outcomes that a call that was started cannot have."""


@final
@attrs.define(kw_only=True)
class CallBook:
    """
    The calls of one run under *config*. Each method notes one thing that happened and gives its faults.

    *offered* are the tools of the model's last request, *arguments* what each call is to run with.
    """

    config: Config
    offered: tuple[str, ...] = ()
    arguments: dict[str, str] = attrs.field(factory=dict)
    rules: list[Grant] = attrs.field(factory=list)
    asked: set[str] = attrs.field(factory=set)
    approved: set[str] = attrs.field(factory=set)
    started: set[str] = attrs.field(factory=set)
    ended: dict[str, ToolEnded] = attrs.field(factory=dict)

    def copy(self) -> CallBook:
        """A book that goes on from here on its own."""
        return attrs.evolve(
            self,
            arguments=dict(self.arguments),
            rules=list(self.rules),
            asked=set(self.asked),
            approved=set(self.approved),
            started=set(self.started),
            ended=dict(self.ended),
        )

    def wished(self, calls: Iterable[ToolCall]) -> None:
        """A model wishes *calls*."""
        self.arguments |= {call.id: call.arguments for call in calls}

    def answered(
        self, event: ApprovalGiven, question: AskApproval, still_open: Iterable[AskApproval]
    ) -> None:
        """A person answered *question*; *always* answers the others about the same tool, too."""
        if isinstance(event.decision, Deny):
            return
        self.approved.add(question.call)
        if isinstance(event.decision, ApproveAlways):
            self.rules.append(Grant(tool=question.tool))
            self.approved |= {other.call for other in still_open if other.tool == question.tool}
        elif event.decision.arguments:
            self.arguments[question.call] = event.decision.arguments

    def asks(self, question: AskApproval) -> list[str]:
        """A person is asked."""
        call = question.call
        again = call in self.asked or call in self.started or call in self.ended
        self.asked.add(call)
        return ([f"{call} is asked about again"] if again else []) + self._runnable(question)

    def runs(self, request: RunTool, now: Step, spent: Spent) -> list[str]:
        """A tool is started."""
        return self._started(request, now, spent) + self._runnable(request)

    def delegates(self, request: RunAgent, now: Step, spent: Spent) -> list[str]:
        """A child is started."""
        faults = self._started(request, now, spent)
        plain = {tool.name for tool in self.config.tools if tool.kind is ToolKind.FUNCTION}
        if not set(request.tools) <= plain:
            faults.append(f"{request} has tools that its parent has not, or may start a child")
        faults += [
            f"{request} may use more {what}" for what in beyond(request.limits, self.config.limits, spent)
        ]
        return faults

    def _started(self, request: RunTool | RunAgent, now: Step, spent: Spent) -> list[str]:
        call = request.call
        faults: list[str] = []
        if call in self.started or call in self.ended:
            faults.append(
                f"{call} is started after it was {'started' if call in self.started else 'given up'}"
            )
        if call not in self.approved and (call in self.asked or not self._goes_without(request)):
            faults.append(f"{call} is started although nobody said yes")
        if stopping(now.following) >= Stopping.STEERED or over_limit(self.config.limits, spent):
            faults.append(f"{call} is started in a batch that is being given up")
        self.started.add(call)
        return faults

    def _goes_without(self, request: RunTool | RunAgent) -> bool:
        """Whether nobody need be asked. The name of an agent tool does not stand in its request: trust it."""
        name = getattr(request, "tool", "")
        spec = self.config.tool(name)
        if spec is None or self.config.policy.mode is PermissionMode.BYPASS or not needs_asking(spec):
            return True
        given = arguments_of(self.arguments.get(request.call, "")) or {}
        return any(rule.covers(name, given) for rule in (*self.config.allow, *self.rules))

    def _runnable(self, request: RunTool | AskApproval) -> list[str]:
        call, tool, arguments = request.call, request.tool, request.arguments
        faults: list[str] = []
        if tool not in self.offered:
            faults.append(f"{call} is about {tool!r}, which was not offered: {self.offered}")
        spec, given = self.config.tool(tool), arguments_of(arguments)
        if spec is None or given is None or problem(spec.schema, given):
            faults.append(f"{call} is about {tool!r} with {arguments!r}, which do not fit")
        if arguments != self.arguments.get(call):
            faults.append(f"{call} comes with {arguments!r}, wanted were {self.arguments.get(call)!r}")
        return faults

    def ends(self, told: ToolEnded, now: Step, open_requests: Iterable[Request]) -> list[str]:
        """A call has its result."""
        call, ran = told.call, told.call in self.started
        faults = [f"{call} ended twice"] if call in self.ended else []
        self.ended[call] = told
        if told.outcome in (DID_NOT_RUN if ran else RAN):
            faults.append(f"{call} ended with {told.outcome} and {'ran' if ran else 'never ran'}")
        spec = self.config.tool(told.tool)
        reads = spec is not None and spec.side_effect is SideEffect.READ_ONLY
        if isinstance(now.event, Interrupted) and ran and not reads and told.outcome is not Outcome.UNKNOWN:
            faults.append(f"{call} was at work when it was left, and ended with {told.outcome}")
        if any(getattr(request, "call", "") == call for request in open_requests):
            faults.append(f"{call} ended while a request of it is open")
        return faults

    def kept(self, result: ToolResult) -> list[str]:
        """A result enters the history."""
        told = self.ended.get(result.call)
        if told is None:
            # Calls of an answer that did not end well never became a batch.
            known = self.started | self.asked
            unrun = result.outcome in {Outcome.SKIPPED, Outcome.CANCELLED} and result.call not in known
            return [] if unrun else [f"{result} was never told"]
        same = (told.outcome, told.content) == (result.outcome, result.content)
        return [] if same else [f"told was {told}, kept is {result}"]
