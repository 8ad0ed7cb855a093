"""
What must hold of tool calls over a whole run: judged before they run, run at most once, answered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from provers.audit.endings import (
    Entry,
    ending_faults,
    faulty,
    kept_faults,
    output_faults,
)
from provers.audit.hooks import answers_in, asked_at
from provers.audit.lost import (
    asks_again,
    due,
    judged_faults,
    lost_call,
)
from provers.audit.permission_oracle import Case, filled
from provers.invariants import start_faults
from provers.steps import stopping
from turnwheel.effects.config import Gates, OnDenial, ToolKind
from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    CallInspected,
    Deny,
    HookAnswered,
    ModelFinished,
    ToolFinished,
    ToolLost,
)
from turnwheel.effects.findings import Finding
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import Role
from turnwheel.effects.notices import CallJudged, CallSettled, InterruptRequested
from turnwheel.effects.permissions import Basis, Verdict
from turnwheel.effects.records import AppendMessage, GrantRule
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    InspectCall,
    Purpose,
    RunAgent,
    RunTool,
)
from turnwheel.states.batch.batch import Stopping
from turnwheel.states.rules.limits import child_prompt
from turnwheel.states.state import batch_of

if TYPE_CHECKING:
    from provers.audit.around import Around
    from turnwheel.effects import Effect
    from turnwheel.effects.config import Config
    from turnwheel.effects.messages import Message
    from turnwheel.engine.inspect.transitions import Transition
    from turnwheel.states.context import Memory


@final
@attrs.define(kw_only=True)
class CallBook:
    """
    The calls of one run. *batch* are those of the last answer, *offered* the tools of its request.

    *granted* is what a person allowed for good. *skips*: a person's denial gives up the rest of this
    batch. *loose*: settings changed in its middle, so a hook that is new has not been asked.
    """

    granted: tuple[GrantRule, ...]
    calls: dict[str, Entry] = attrs.field(factory=dict)
    batch: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    skips: bool = False
    loose: bool = False

    @classmethod
    def of(cls, memory: Memory) -> CallBook:
        """A new book for a run that begins with *memory*."""
        return cls(granted=memory.session.granted)

    def copy(self) -> CallBook:
        """A book that goes on from here on its own."""
        return CallBook(
            granted=self.granted,
            calls=dict(self.calls),
            batch=self.batch,
            offered=self.offered,
            skips=self.skips,
            loose=self.loose,
        )

    def about(self, call: str) -> tuple[str, dict[str, object]]:
        """The tool of *call* and what it is given."""
        entry = self.calls[call]
        return entry.name, entry.arguments

    def _note(self, call: str, **news: Any) -> None:  # fields of an entry
        self.calls[call] = attrs.evolve(self.calls[call], **news)

    def take(self, now: Transition, around: Around) -> list[str]:
        """The faults of the step *now*; *around* is what the other books say of it."""
        self._looked(now, around)
        faults = self._lost(now, around)
        self._event(now, around)
        for effect in now.effects:
            faults += self._effect(effect, now, around)
        if isinstance(now.event, ToolFinished | ToolLost | AgentFinished):
            faults += self._reviewed(now, around)
        if now.remembered.session.granted != self.granted:
            faults.append(f"granted were {self.granted}, the memory has {now.remembered.session.granted}")
        return faults + self._left(now, around)

    def _looked(self, now: Transition, around: Around) -> None:
        """What was found holds for the step in which it comes, and for no later one."""
        for call in self.batch:
            if self.calls[call].fresh is not None:
                self._note(call, fresh=None)
        if isinstance(now.event, CallInspected) and isinstance(around.answered, InspectCall):
            self._note(around.answered.call, fresh=now.event.finding)

    def _inspects(self, request: InspectCall, now: Transition, around: Around) -> list[str]:
        """A call is looked at where that can decide something, before it starts."""
        entry = self.calls[request.call]
        case = self._case(entry, now, around)
        if case is None or not case.looked_at or not entry.unstarted or entry.fresh is not None:
            return [f"{request} is of no use, or comes late"]
        return self._runnable(request, now)

    def _lost(self, now: Transition, around: Around) -> list[str]:
        """A call may have run: where that is due, a person is asked whether it runs again."""
        call = lost_call(now, around.answered)
        if not call:
            return []
        entry, asked = self.calls[call], asks_again(now, call)
        case = self._case(entry, now, around)
        if asked:
            self._note(call, lost=True, started=False, asked=False, approved=False)
        right = asked is due(now, entry, case, self.offered, stopped=around.stopped)
        return [] if right else [f"{call} may have run, and that somebody is asked is {asked}"]

    def _event(self, now: Transition, around: Around) -> None:
        """Hooks and persons say what is to become of a call, and with which arguments."""
        event, answered = now.event, around.answered
        if isinstance(event, ModelFinished) and event.offered is not None:
            self.offered = tuple([name for name in self.offered if name in event.offered])
        hooked = isinstance(answered, FireHook) and answered.hook is Hook.PRE_TOOL_USE
        if isinstance(event, HookAnswered) and isinstance(answered, FireHook) and hooked:
            self._heard(event, answered.call, now.config)
        for call in around.asks.yes:
            self._note(call, approved=True)
        if isinstance(event, ApprovalGiven) and isinstance(answered, AskApproval):
            decision = event.decision
            yes = answered.call in around.asks.yes
            if isinstance(decision, Approve) and decision.arguments and yes:
                name = self.calls[answered.call].name
                self._note(answered.call, given=filled(decision.arguments, now.config.tool(name)))
        if self._denied(around) and now.config.policy.on_denial is OnDenial.SKIP_REST:
            self.skips = True

    def _denied(self, around: Around) -> list[str]:
        """The calls that a person did not let run; one that may have run is none of them."""
        return [call for call in around.asks.no if not self.calls[call].lost]

    def _heard(self, event: HookAnswered, call: str, config: Config) -> None:
        answers = answers_in(event, config)
        verdicts = {answer.verdict for answer in answers if answer.verdict is not None}
        # What is denied stays as the model wrote it.
        denied = Verdict.DENY in verdicts
        entry = self.calls[call]
        spec = config.tool(entry.name)
        given = [filled(one.arguments, spec) for one in answers if one.arguments and not denied]
        self._note(call, said=entry.said | verdicts, given=(entry.given, *given)[-1], news=True)
        # A person has said yes to the arguments that they saw.
        if entry.approved and self.calls[call].arguments != entry.arguments:
            self._note(call, asked=False, approved=False)

    def _effect(  # noqa: PLR0911  # one return for each kind of effect
        self, effect: Effect, now: Transition, around: Around
    ) -> list[str]:
        match effect:
            case AppendMessage(message=message):
                return self._message(message, now.config)
            case CallModel(purpose=Purpose.TURN, tools=tools):
                self.offered = tools
                return []
            case CallJudged():
                return self._judged(effect, now, around)
            case FireHook(hook=Hook.PRE_TOOL_USE):
                return self._hooked(effect, now)
            case InspectCall():
                return self._inspects(effect, now, around)
            case AskApproval():
                return self._asked(effect, now)
            case RunTool() | RunAgent():
                return self._started(effect, now, around)
            case CallSettled():
                return self._ended(effect, now, around)
            case GrantRule():
                return self._granted(effect, around)
            case _:
                return []

    def _granted(self, grant: GrantRule, around: Around) -> list[str]:
        """A person allows for good what they were asked about, by the rules that asked."""
        faults = [] if grant.rule == around.asks.rule else [f"{grant.rule} is granted, and nobody did"]
        (call,) = around.asks.yes[:1]
        # Settings may have changed since: a person answers what they were asked.
        asked_by = self.calls[call].asked_by
        if frozenset(grant.outvotes) != asked_by:
            faults.append(f"{grant} outvotes others than {set(asked_by)}, which asked about {call}")
        self.granted += (grant,)
        return faults

    # In the conversation

    def _message(self, message: Message, config: Config) -> list[str]:
        if message.role is Role.ASSISTANT:
            again = [call.id for call in message.calls if call.id in self.calls]
            self.batch, self.skips, self.loose = tuple([call.id for call in message.calls]), False, False
            for call in message.calls:
                given = filled(call.arguments, config.tool(call.name))
                spec = config.tool(call.name) if call.name in self.offered else None
                is_output = spec is not None and spec.kind is ToolKind.OUTPUT
                entry = Entry(name=call.name, wire_id=call.wire_id, given=given, output=is_output)
                self.calls[call.id] = entry
            return [f"{again} are the ids of two calls each"] if again else []
        return [
            fault
            for result in message.results
            for fault in kept_faults(result, self.calls[result.call], config)
        ]

    # Judged

    def _case(self, entry: Entry, now: Transition, around: Around) -> Case | None:
        """What counts for a call; None where there is no such tool."""
        spec = now.config.tool(entry.name)
        if spec is None:
            return None
        return Case(
            config=now.config,
            spec=spec,
            given=entry.arguments,
            mode=around.mode,
            said=entry.said,
            granted=self.granted,
            finding=entry.known if entry.fresh is None else entry.fresh,
        )

    def _judged(self, judged: CallJudged, now: Transition, around: Around) -> list[str]:
        call, entry = judged.call, self.calls[judged.call]
        self._note(call, judged=judged, news=False)
        if not entry.unstarted:
            return [f"{judged} comes late"]
        if judged.ground is Basis.LOST:
            return judged_faults(judged, now)
        if judged.ground is Basis.PERSON:
            said = around.asks.yes if judged.verdict is Verdict.ALLOW else around.asks.no
            return [] if call in said else [f"{judged} is no person's word"]
        case = self._case(entry, now, around)
        if case is None or faulty(entry, self.offered, now.config):
            return [f"{judged} is about what cannot run"]
        faults: list[str] = []
        # About an open question a grant decides by what was known when it was asked.
        if case.looked_at and entry.fresh is None and not entry.asked and judged.verdict is not Verdict.DENY:
            faults.append(f"{judged} and it was not looked at")
        if not isinstance(around.answered, InspectCall) and not entry.asked:
            case = attrs.evolve(case, finding=Finding())
        if entry.judged is not None and not entry.news:
            # Judged again when its turn to start came: what hooks said then is over, unless they denied it.
            case = attrs.evolve(case, said=entry.said & {Verdict.DENY})
        self._note(call, asked_by=case.asked_by)
        if (judged.verdict, True) != (case.verdict, case.rests_on(judged)):
            faults.append(f"{judged} of {entry} is wrong, it is {case.verdict}, in {case}")
        hooks = asked_at(now.config, Hook.PRE_TOOL_USE, entry.name, entry.arguments)
        first = now.config.policy.gates is Gates.HOOKS_FIRST and entry.judged is None
        if first and hooks and not entry.heard:
            faults.append(f"{judged} before its hooks have been heard")
        return faults

    def _hooked(self, request: FireHook, now: Transition) -> list[str]:
        """Hooks are asked about a call: before it is judged, or when it was allowed."""
        entry = self.calls[request.call]
        self._note(request.call, heard=True)
        if not entry.unstarted or faulty(entry, self.offered, now.config):
            return [f"{request} comes late, or is about what cannot run"]
        if entry.judged is None:
            early = now.config.policy.gates is Gates.RULES_FIRST and not entry.heard
            return [f"{request} before the rules have spoken"] if early else []
        return [] if entry.judged.verdict is Verdict.ALLOW else [f"{request} after {entry.judged}"]

    def _asked(self, question: AskApproval, now: Transition) -> list[str]:
        """A person is asked, because of what has just been judged."""
        call, entry = question.call, self.calls[question.call]
        self._note(call, asked=True, known=entry.known if question.again else entry.fresh or Finding())
        faults = [] if entry.unstarted and not entry.asked else [f"{call} is asked about again"]
        judged = entry.judged
        if judged is None or (judged.verdict, question.why) != (
            Verdict.ASK,
            f"{judged.ground}: {judged.detail}",
        ):
            faults.append(f"{question} after {judged}")
        return faults + self._runnable(question, now)

    # Started and ended

    def _started(self, request: RunTool | RunAgent, now: Transition, around: Around) -> list[str]:
        call, entry = request.call, self.calls[request.call]
        self._note(call, started=True, known=entry.fresh or Finding())
        faults: list[str] = []
        if not entry.unstarted:
            faults.append(f"{call} is started after it was {'started' if entry.started else 'given up'}")
        faults += self._unlawful(call, entry, now, around)
        level = stopping(now.following)
        if level >= Stopping.STEERED or around.urgent or around.purse.over(now.config):
            faults.append(f"{call} is started in a batch that is being given up")
        if isinstance(request, RunTool):
            return faults + start_faults(call, now) + self._runnable(request, now)
        return faults + start_faults(call, now) + self._delegated(request, entry, now, around)

    def _unlawful(self, call: str, entry: Entry, now: Transition, around: Around) -> list[str]:
        """Why *call* must not start: something denies it, or nobody whose word it needs has allowed it."""
        case = self._case(entry, now, around)
        if case is None or case.denied:
            return [f"{call} is started although a rule, a hook or the mode denies it, or it is no tool"]
        faults: list[str] = []
        if case.looked_at and entry.fresh is None:
            faults.append(f"{call} is started and was not looked at")
        if case.doubted and not entry.approved:
            faults.append(f"{call} is started although it may be denied")
        if entry.judged is None or entry.judged.verdict is not Verdict.ALLOW:
            faults.append(f"{call} is started after {entry.judged}")
        if entry.asked and not entry.approved:
            faults.append(f"{call} is started although nobody answered")
        hooks = asked_at(now.config, Hook.PRE_TOOL_USE, entry.name, entry.arguments)
        if hooks and not (entry.heard or self.loose):
            faults.append(f"{call} is started and {hooks} were not asked")
        return faults

    def _runnable(self, request: RunTool | AskApproval | InspectCall, now: Transition) -> list[str]:
        entry = self.calls[request.call]
        faults: list[str] = []
        if faulty(entry, self.offered, now.config):
            faults.append(f"{request} is about {entry}, which cannot run")
        if (request.tool, request.arguments) != (entry.name, entry.given):
            faults.append(f"{request} comes where {entry} was wanted")
        return faults

    def _delegated(self, request: RunAgent, entry: Entry, now: Transition, around: Around) -> list[str]:
        """A child gets what it was to be asked, no tools but its parent's, and no more than is left."""
        plain = {tool.name for tool in now.config.tools if tool.kind is ToolKind.FUNCTION}
        faults: list[str] = []
        if not set(request.tools) <= plain:
            faults.append(f"{request} has tools that its parent has not, or may start a child")
        if (request.agent, request.prompt) != child_prompt(entry.arguments):
            faults.append(f"{request} comes where {entry} was wanted")
        return faults + around.purse.grant(request, now.config)

    def _ended(self, told: CallSettled, now: Transition, around: Around) -> list[str]:
        """A call has its result."""
        call, entry = told.call, self.calls[told.call]
        faults = [f"{call} ended twice"] if entry.ended is not None else []
        files = now.event.files if isinstance(now.event, ToolFinished) and entry.started else ()
        self._note(call, ended=told, files=files)
        # What a person has allowed, or is still being asked about, outlives another one's no.
        skipped = around.urgent or (self.skips and not entry.asked)
        if entry.output:
            beside = [self.calls[other] for other in self.batch if other != call]
            return faults + output_faults(told, beside, now, skipped=skipped)
        return faults + ending_faults(told, entry, now, self.offered, around.purse, skipped=skipped)

    def _reviewed(self, now: Transition, around: Around) -> list[str]:
        """Hooks look at what came of a call that ran, unless the run is being interrupted."""
        work = around.answered
        if not isinstance(work, RunTool | RunAgent) or asks_again(now, work.call):
            return []
        entry = self.calls[work.call]
        failed = entry.ended is None or entry.ended.outcome != "ok"
        hook = Hook.POST_TOOL_USE_FAILURE if failed else Hook.POST_TOOL_USE
        due = asked_at(now.config, hook, entry.name, entry.arguments)
        if stopping(now.state) is Stopping.INTERRUPTED:
            due = ()
        about = {Hook.POST_TOOL_USE, Hook.POST_TOOL_USE_FAILURE}
        asked = [one for one in now.effects if isinstance(one, FireHook) and one.hook in about]
        right = [(one.hook, one.names, one.call) for one in asked] == (
            [(hook, due, work.call)] if due else []
        )
        return [] if right else [f"{due} were to look at {work}, asked are {asked}"]

    # What is left

    def _left(self, now: Transition, around: Around) -> list[str]:
        """Who was denied has ended; what is given up has no call left that may start; the rest waits."""
        faults: list[str] = []
        said = {one.call: one.verdict for one in now.effects if isinstance(one, CallJudged)}
        denied = [call for call, verdict in said.items() if verdict is Verdict.DENY]
        refused = [call for call in self.batch if Verdict.DENY in self.calls[call].said]
        faults += [
            f"{call} was denied and has not ended" for call in (*denied, *refused) if self._may_start(call)
        ]
        faults += [
            f"{call} was answered for and is judged {said.get(call)}"
            for call in (*around.asks.yes, *around.asks.no)
            if call not in said
        ]
        if _ends(now, around, self._denied(around)) and not _stopped(now):
            faults.append(f"{now.event} ends the run, and it goes on")
        return faults + self._asked_in_vain(now, around) + self._given_up(now, around)

    def _asked_in_vain(self, now: Transition, around: Around) -> list[str]:
        """Whoever said "always" is not asked any more about what that covers."""
        faults: list[str] = []
        for question in around.asks.open.values() if around.asks.rule else ():
            entry = self.calls[question.asked.call]
            case = self._case(entry, now, around)
            if question.asked.again:
                continue
            if case is None or around.asks.rule is None:
                continue
            alone = attrs.evolve(
                case, config=attrs.evolve(case.config, rules=()), granted=(GrantRule(rule=around.asks.rule),)
            )
            if alone.trusted and case.verdict is Verdict.ALLOW:
                faults.append(f"{question} is open, and {around.asks.rule} was granted")
        return faults

    def _given_up(self, now: Transition, around: Around) -> list[str]:
        waiting = [call for call in self.batch if self._may_start(call)]
        if batch_of(now.following) is None:
            running = [call for call in self.batch if self.calls[call].ended is None]
            return [f"{running} have not ended, and the batch has"] if running else []
        if not now.following.open:
            return []  # the batch is looked at when it is entered
        over = around.purse.over(now.config)
        # A budget that is used up takes no output away, and who speaks then is not answered in this run.
        due = waiting if _stopped(now) or not over else [one for one in waiting if not self.calls[one].output]
        if due and (_stopped(now) or over or around.urgent):
            return [f"{due} are not given up"]
        # What a person has allowed, or is still being asked about, outlives another one's no.
        unasked = [call for call in waiting if not self.calls[call].asked]
        if around.asks.no and self.skips and unasked:
            return [f"{unasked} are not skipped"]
        return []

    def _may_start(self, call: str) -> bool:
        return self.calls[call].unstarted


def _stopped(now: Transition) -> bool:
    return any(isinstance(effect, InterruptRequested) for effect in now.effects)


def _ends(now: Transition, around: Around, denied: list[str]) -> bool:
    """Whether a no that was said in *now*, by which calls are *denied*, ends the run."""
    match now.event, around.answered:
        case HookAnswered(said=said), FireHook(hook=Hook.PRE_TOOL_USE):
            denials = [one.answer for one in said if one.answer.verdict is Verdict.DENY and not one.fault]
            return any(answer.interrupt for answer in denials)
        case ApprovalGiven(decision=Deny(interrupt=True)), _:
            return True
        case _:
            return bool(denied) and now.config.policy.on_denial is OnDenial.INTERRUPT
