"""Whether a tool call may run, must be asked about, or is denied, and on what ground."""

# Theory of operation. Denials come first and nothing outvotes them: not a mode, not a person's earlier yes.
# Then what asks for a person by name, then what allows, then what the tool says of itself. So adding a rule
# that denies is always safe, and adding one that allows never undoes a denial.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

import attrs

from ...effects.config import Approval, SideEffect, ToolSpec
from ...effects.permissions import Basis, PermissionMode, Rule, Verdict
from .hooks import Opinion


@final
@attrs.frozen
class Judgement:
    """A *verdict* on a call, its *ground*, and in *detail* the rule, hook or mode that it rests on."""

    verdict: Verdict
    ground: Basis
    detail: str = ""


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
    """What judges a call besides its tool: the *mode*, the *rules*, and what a person *granted*."""

    mode: PermissionMode
    rules: tuple[Rule, ...] = ()
    granted: tuple[Rule, ...] = ()

    def judge(
        self, spec: ToolSpec, arguments: Mapping[str, object], opinion: Opinion | None = None
    ) -> Judgement:
        """The judgement on a call of *spec* with *arguments*, of which hooks had an *opinion*."""
        found = self.denial(spec, arguments, opinion)
        # Behind the denials and before all questions. That is the whole meaning of the mode.
        if found is None and self.mode is PermissionMode.BYPASS:
            found = Judgement(Verdict.ALLOW, Basis.MODE, self.mode)
        # Most agents have no rules, and most calls no hook.
        if found is None and (self.rules or self.granted or opinion):
            found = self._named(spec, arguments, opinion)
        if found is None:
            found = self._by_tool(spec)
        # At the very end: also what a hook or a rule wants asked has no one to be asked in this mode.
        if found.verdict is Verdict.ASK and self.mode is PermissionMode.DONT_ASK:
            return Judgement(Verdict.DENY, Basis.MODE, self.mode)
        return found

    def denial(
        self, spec: ToolSpec, arguments: Mapping[str, object], opinion: Opinion | None = None
    ) -> Judgement | None:
        """What denies a call of *spec* with *arguments*, although it was allowed; None where nothing does."""
        # Rules before hooks before the mode: the reason that is shown is the one that was written down for
        # just this.
        if self.rules and (rule := _first(self.rules, Verdict.DENY, spec, arguments)):
            return Judgement(Verdict.DENY, Basis.RULE, str(rule))
        if opinion is not None and opinion.verdict is Verdict.DENY:
            return Judgement(Verdict.DENY, Basis.HOOK, opinion.because)
        # By what the tool says of itself. A tool that lies about its side effect is wrong in every mode.
        if self.mode is PermissionMode.PLAN and spec.side_effect is not SideEffect.READ_ONLY:
            return Judgement(Verdict.DENY, Basis.MODE, self.mode)
        return None

    def _named(
        self, spec: ToolSpec, arguments: Mapping[str, object], opinion: Opinion | None
    ) -> Judgement | None:
        """What a hook, a person or a rule says about just such calls; a person's word beats a rule's."""
        said = None if opinion is None else opinion.verdict
        because = "" if opinion is None else opinion.because
        # A hook that asks for a person outweighs an earlier "always": it has seen this call, and the person
        # has not.
        if said is Verdict.ASK:
            return Judgement(Verdict.ASK, Basis.HOOK, because)
        # Before the rules that ask, or "always" would be asked about again each time.
        if rule := _first(self.granted, Verdict.ALLOW, spec, arguments):
            return Judgement(Verdict.ALLOW, Basis.GRANT, str(rule))
        if rule := _first(self.rules, Verdict.ASK, spec, arguments):
            return Judgement(Verdict.ASK, Basis.RULE, str(rule))
        if said is Verdict.ALLOW:
            return Judgement(Verdict.ALLOW, Basis.HOOK, because)
        if rule := _first(self.rules, Verdict.ALLOW, spec, arguments):
            return Judgement(Verdict.ALLOW, Basis.RULE, str(rule))
        return None

    def _by_tool(self, spec: ToolSpec) -> Judgement:
        # What a tool says of itself comes last: its author knows neither this host nor this run.
        if spec.approval is Approval.NEVER:
            return Judgement(Verdict.ALLOW, Basis.TOOL, "it is never asked about")
        if spec.approval is Approval.BY_SIDE_EFFECT and spec.side_effect is SideEffect.READ_ONLY:
            return Judgement(Verdict.ALLOW, Basis.TOOL, "it only reads")
        if self.mode is PermissionMode.ACCEPT_EDITS and spec.edits:
            return Judgement(Verdict.ALLOW, Basis.MODE, self.mode)
        return Judgement(Verdict.ASK, Basis.TOOL, _why_asked(spec))


def _why_asked(spec: ToolSpec) -> str:
    if spec.approval is Approval.ALWAYS:
        return "it is always asked about"
    return "it changes things" if spec.side_effect is SideEffect.IDEMPOTENT else "it may change anything"


def _first(
    rules: Iterable[Rule], verdict: Verdict, spec: ToolSpec, arguments: Mapping[str, object]
) -> Rule | None:
    for rule in rules:
        if rule.verdict is verdict and rule.covers(spec.name, arguments):
            return rule
    return None
