"""
Whether a call may run: the same law as in `states.rules.permission`, told a second time and in another way.

There the first thing that speaks decides; here everything that speaks is gathered, and then it is weighed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from turnwheel.effects.config import (
    Approval,
    Config,
    SideEffect,
    ToolSpec,
)
from turnwheel.effects.permissions import (
    Basis,
    PermissionMode,
    Rule,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from turnwheel.effects.notices import CallJudged


@final
@attrs.frozen(kw_only=True)
class Case:
    """A call of *spec* with what it is *given*, and all that counts for it: what hooks *said* and so on."""

    config: Config
    spec: ToolSpec
    given: Mapping[str, object]
    mode: PermissionMode
    said: frozenset[Verdict] = frozenset()
    granted: tuple[Rule, ...] = ()

    @property
    def denied(self) -> bool:
        """Whether something denies it, whoever allows it."""
        plans = self.mode is PermissionMode.PLAN and not self._reads
        return plans or Verdict.DENY in self.said | self._ruled

    @property
    def verdict(self) -> Verdict:
        """What has to become of it, where no person has been asked."""
        if self.denied:
            return Verdict.DENY
        if self.mode is PermissionMode.BYPASS:
            return Verdict.ALLOW
        trusted = any(rule.covers(self.spec.name, self.given) for rule in self.granted)
        asked = Verdict.ASK in self.said or (Verdict.ASK in self._ruled and not trusted)
        allowed = trusted or Verdict.ALLOW in self.said | self._ruled or self._free
        if allowed and not asked:
            return Verdict.ALLOW
        return Verdict.DENY if self.mode is PermissionMode.DONT_ASK else Verdict.ASK

    def rests_on(self, judged: CallJudged) -> bool:
        """
        Whether the ground that *judged* names is there.

        A person's word is not looked for here, nor is a process that was lost.
        """
        verdict, detail = judged.verdict, judged.detail
        match judged.ground:
            case Basis.PERSON | Basis.LOST:
                return True
            case Basis.RULE:
                return self._stands(self.config.rules, verdict, detail)
            case Basis.GRANT:
                return verdict is Verdict.ALLOW and self._stands(self.granted, verdict, detail)
            case Basis.HOOK:
                return verdict in self.said
            case Basis.TOOL:
                return verdict is (Verdict.ASK if needs_asking(self.spec) else Verdict.ALLOW)
            case Basis.MODE:
                return detail == self.mode and verdict is self._verdict_of_the_mode

    @property
    def _verdict_of_the_mode(self) -> Verdict:
        lenient = {PermissionMode.BYPASS, PermissionMode.ACCEPT_EDITS}
        return Verdict.ALLOW if self.mode in lenient else Verdict.DENY

    def _stands(self, rules: Iterable[Rule], verdict: Verdict, detail: str) -> bool:
        return any(
            rule.verdict is verdict and str(rule) == detail and rule.covers(self.spec.name, self.given)
            for rule in rules
        )

    @property
    def _reads(self) -> bool:
        return self.spec.side_effect is SideEffect.READ_ONLY

    @property
    def _ruled(self) -> frozenset[Verdict]:
        return frozenset(
            [rule.verdict for rule in self.config.rules if rule.covers(self.spec.name, self.given)]
        )

    @property
    def _free(self) -> bool:
        """Whether nobody need be asked about the tool by itself."""
        edits = self.mode is PermissionMode.ACCEPT_EDITS and self.spec.edits
        return edits or not needs_asking(self.spec)


def needs_asking(spec: ToolSpec) -> bool:
    """Whether a person is asked about *spec* where no rule answers."""
    by_effect = spec.approval is Approval.BY_SIDE_EFFECT and spec.side_effect is not SideEffect.READ_ONLY
    return spec.approval is Approval.ALWAYS or by_effect
