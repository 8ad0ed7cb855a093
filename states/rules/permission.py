"""Whether a tool call may run, must be asked about, or is denied, and on what ground."""

# Theory of operation. Denials come first and nothing outvotes them: not a mode, not a person's earlier yes.
# Then rules that ask, each outvoted by an "always" in answer to its own question, and by nothing else. Then
# what allows, then what the tool says of itself. So adding a rule that denies or asks is always safe,
# and adding one that allows never undoes a denial.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import final

import attrs

from ...effects.config import Approval, SideEffect, ToolSpec
from ...effects.findings import CommandFound, Finding, SimpleCommand
from ...effects.messages import ToolCall
from ...effects.permissions import Basis, PermissionMode, Rule, Verdict
from ...effects.records import GrantRule
from ...effects.requests import InspectCall
from .commands import Effort, Fit
from .hooks import Opinion
from .rule_fit import NO_FINDING, allowing, doubt_of, fit, inspected, protection


@final
@attrs.frozen
class Judgement:
    """
    A *verdict* on a call, its *ground*, and in *detail* the rule, hook or mode that it rests on.

    *asked_by* are the rules that ask, where some do.
    """

    verdict: Verdict
    ground: Basis
    detail: str = ""
    asked_by: tuple[Rule, ...] = ()


# How the reasons of a decision read is written here and nowhere else: a journal, a terminal and a log show
# the same words. (What the model reads of a denial is in `model_messages`.)

NO_ANSWER = Judgement(Verdict.DENY, Basis.PERSON, "no answer came in time")
RUN_AGAIN = Judgement(Verdict.ASK, Basis.LOST, "it may have run when its process was lost; run it again?")


def said_no(why: str) -> Judgement:
    """A person's no, and *why*."""
    return Judgement(Verdict.DENY, Basis.PERSON, why)


def said_yes(edited: str) -> Judgement:
    """A person's yes, with other arguments where they *edited* them."""
    return Judgement(Verdict.ALLOW, Basis.PERSON, "with other arguments" if edited else "")


@final
@attrs.frozen(kw_only=True)
class PermissionPolicy:
    """
    What judges a call besides its tool: the *mode*, the *rules*, and what a person *granted*.

    *protected* are globs of paths that are asked about where edits are accepted. *allows_sandboxed*: what
    runs in the sandbox is allowed where nothing else decides.
    """

    mode: PermissionMode
    rules: tuple[Rule, ...] = ()
    granted: tuple[GrantRule, ...] = ()
    protected: tuple[str, ...] = ()
    allows_sandboxed: bool = False

    @property
    def _grants(self) -> list[Rule]:
        return [grant.rule for grant in self.granted]

    @property
    def _rules_and_grants(self) -> tuple[Rule, ...]:
        return (*self.rules, *self._grants) if self.granted else self.rules

    def looks_at(self, spec: ToolSpec) -> bool:
        """Whether a call of *spec* is judged by what its paths reach, or by what its command runs."""
        if self.allows_sandboxed and spec.sandboxed and spec.command:
            return True
        return self._protects(spec) or bool(inspected(self._rules_and_grants, spec))

    def inspection(self, wish: ToolCall, spec: ToolSpec, request: str) -> InspectCall:
        """The order to look at the arguments of *wish*, a call of *spec*."""
        named = inspected(self._rules_and_grants, spec)
        return InspectCall(
            id=request,
            call=wish.id,
            tool=wish.name,
            arguments=wish.arguments,
            globs=tuple(dict.fromkeys([glob for name, glob in named if name in spec.paths])),
        )

    def _protects(self, spec: ToolSpec) -> bool:
        accepts = self.mode is PermissionMode.ACCEPT_EDITS and spec.edits
        return accepts and bool(self.protected and spec.paths)

    def judge(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, object],
        opinion: Opinion | None = None,
        finding: Finding = NO_FINDING,
    ) -> Judgement:
        """
        The judgement on a call of *spec* with *arguments*, of which hooks had an *opinion*.

        *finding* is what was found of the arguments that are looked at.
        """
        found = self.denial(spec, arguments, opinion, finding)
        if found is None and self.rules:
            found = self.rule_question(spec, arguments, finding)
        # Behind what rules deny or ask, and before all other questions: the whole meaning of the mode.
        if found is None and self.mode is PermissionMode.BYPASS:
            found = Judgement(Verdict.ALLOW, Basis.MODE, self.mode)
        # Most agents have no rules, and most calls no hook.
        if found is None and (self.rules or self.granted or opinion):
            found = self._named(spec, arguments, opinion, finding)
        if found is None:
            found = self._by_tool(spec, arguments, finding)
        # At the very end: also what a hook or a rule wants asked has no one to be asked in this mode.
        if found.verdict is Verdict.ASK and self.mode is PermissionMode.DONT_ASK:
            return Judgement(Verdict.DENY, Basis.MODE, self.mode)
        return found

    def denial(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, object],
        opinion: Opinion | None = None,
        finding: Finding = NO_FINDING,
    ) -> Judgement | None:
        """
        What denies a call of *spec* with *arguments*, although it was allowed; None where nothing does.

        Where it cannot be decided whether a rule denies it, it is to be asked about.
        """
        # Rules before hooks before the mode: the reason that is shown is the one that was written down for
        # just this.
        perhaps: Rule | None = None
        if self.rules:
            for rule, fits in _fitting(self.rules, Verdict.DENY, spec, arguments, finding, Effort()):
                if fits is Fit.YES:
                    return Judgement(Verdict.DENY, Basis.RULE, str(rule))
                perhaps = perhaps or rule
        if opinion is not None and opinion.verdict is Verdict.DENY:
            return Judgement(Verdict.DENY, Basis.HOOK, opinion.because)
        # By what the tool says of itself. A tool that lies about its side effect is wrong in every mode.
        if self.mode is PermissionMode.PLAN and spec.side_effect is not SideEffect.READ_ONLY:
            return Judgement(Verdict.DENY, Basis.MODE, self.mode)
        # In every mode, also in the one that lets everything run: a denial is not passed by what it cannot
        # read.
        if perhaps is None:
            return None
        return Judgement(Verdict.ASK, Basis.RULE, _may_apply(perhaps, spec, finding))

    def rule_question(
        self, spec: ToolSpec, arguments: Mapping[str, object], finding: Finding
    ) -> Judgement | None:
        """The question that rules ask about a call of *spec*; None where none asks that is not outvoted."""
        # One for all rules, and for what is granted over them.
        effort = Effort()
        asking = [
            (rule, fits)
            for rule, fits in _fitting(self.rules, Verdict.ASK, spec, arguments, finding, effort)
            if not self._outvoted(rule, spec, arguments, finding, effort)
        ]
        if not asking:
            return None
        # A rule that only may apply is not outvoted by the answer: nothing in the call was what it is about.
        asked_by = tuple([rule for rule, fits in asking if fits is Fit.YES])
        detail = str(asked_by[0]) if asked_by else _may_apply(asking[0][0], spec, finding)
        return Judgement(Verdict.ASK, Basis.RULE, detail, asked_by)

    def _outvoted(
        self,
        rule: Rule,
        spec: ToolSpec,
        arguments: Mapping[str, object],
        finding: Finding,
        effort: Effort,
    ) -> bool:
        """Whether a person allowed for good, in answer to *rule*, what it asks about."""
        grants = [grant.rule for grant in self.granted if rule in grant.outvotes]
        if not grants:
            return False
        if allowing(grants, spec, arguments, finding):
            return True
        found = finding.command(spec.command)
        if found is None:
            return False

        # Of a command line with several commands, those count that the rule asks about.
        def asked_about(command: SimpleCommand) -> bool:
            alone = {**arguments, spec.command: " ".join(command.words)}
            return fit(rule, spec, alone, _with_commands(finding, found, [command]), effort) is not Fit.NO

        meant = [command for command in found.commands if asked_about(command)]
        return bool(meant and allowing(grants, spec, arguments, _with_commands(finding, found, meant)))

    def _named(
        self, spec: ToolSpec, arguments: Mapping[str, object], opinion: Opinion | None, finding: Finding
    ) -> Judgement | None:
        """What a hook says about the call, and what a person or a rule allows."""
        said = None if opinion is None else opinion.verdict
        because = "" if opinion is None else opinion.because
        # A hook that asks for a person outweighs an earlier "always": it has seen this call, and the person
        # has not.
        if said is Verdict.ASK:
            return Judgement(Verdict.ASK, Basis.HOOK, because)
        if by := allowing(self._grants, spec, arguments, finding):
            return Judgement(Verdict.ALLOW, Basis.GRANT, _all_of(by))
        if said is Verdict.ALLOW:
            return Judgement(Verdict.ALLOW, Basis.HOOK, because)
        # One part of a command may be granted, and a rule allow the other.
        if by := allowing(self._rules_and_grants, spec, arguments, finding):
            return Judgement(Verdict.ALLOW, Basis.RULE, _all_of(by))
        return None

    def _by_tool(self, spec: ToolSpec, arguments: Mapping[str, object], finding: Finding) -> Judgement:
        # What a tool says of itself comes last: its author knows neither this host nor this run.
        if spec.approval is Approval.NEVER:
            return Judgement(Verdict.ALLOW, Basis.TOOL, "it is never asked about")
        if spec.approval is Approval.BY_SIDE_EFFECT and spec.side_effect is SideEffect.READ_ONLY:
            return Judgement(Verdict.ALLOW, Basis.TOOL, "it only reads")
        if self.mode is PermissionMode.ACCEPT_EDITS and spec.edits:
            if self._protects(spec) and (why := protection(self.protected, spec, arguments, finding)):
                return Judgement(Verdict.ASK, Basis.TOOL, why)
            return Judgement(Verdict.ALLOW, Basis.MODE, self.mode)
        is_sandboxed = self.allows_sandboxed and spec.sandboxed
        named = [rule for rule in self._rules_and_grants if rule.verdict is Verdict.ALLOW]
        # A person who expects no question, by the sandbox or by a rule, wonders why there is one.
        doubt = doubt_of(spec, finding) if is_sandboxed or inspected(named, spec) else ""
        is_known = not spec.command or finding.command(spec.command) is not None
        if is_sandboxed and is_known and not doubt and spec.approval is not Approval.ALWAYS:
            return Judgement(Verdict.ALLOW, Basis.TOOL, "it runs in the sandbox")
        return Judgement(Verdict.ASK, Basis.TOOL, "; ".join(filter(None, [_why_asked(spec), doubt])))


def _why_asked(spec: ToolSpec) -> str:
    if spec.approval is Approval.ALWAYS:
        return "it is always asked about"
    return "it changes things" if spec.side_effect is SideEffect.IDEMPOTENT else "it may change anything"


def _may_apply(rule: Rule, spec: ToolSpec, finding: Finding) -> str:
    unsure = "it cannot be looked at"
    if spec.searches:
        unsure = "what it finds is known only then"
    elif finding.command(spec.command) is not None:
        unsure = "its text does not say all that it may run"
    return f"{rule} may apply: {doubt_of(spec, finding) or unsure}"


def _with_commands(finding: Finding, found: CommandFound, commands: Iterable[SimpleCommand]) -> Finding:
    """*finding* with *found* as the only command line, and in that only these *commands*."""
    return attrs.evolve(finding, commands=(attrs.evolve(found, commands=tuple(commands)),))


def _all_of(rules: Iterable[Rule]) -> str:
    return "; ".join(map(str, rules))


def _fitting(
    rules: Iterable[Rule],
    verdict: Verdict,
    spec: ToolSpec,
    arguments: Mapping[str, object],
    finding: Finding,
    effort: Effort,
) -> Iterator[tuple[Rule, Fit]]:
    """Those of *rules* with *verdict* that speak about the call, or may; *effort* is for all of them."""
    for rule in rules:
        if rule.verdict is verdict:
            fits = fit(rule, spec, arguments, finding, effort)
            if fits is not Fit.NO:
                yield rule, fits
