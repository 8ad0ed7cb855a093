"""
Whether a call may run: the same law as in `states.rules.permission`, told a second time and in another way.

There the first thing that speaks decides; here everything that speaks is gathered, and then it is weighed.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, final

import attrs

from turnwheel.effects.config import (
    Approval,
    Config,
    SideEffect,
    ToolSpec,
)
from turnwheel.effects.findings import UNKNOWN, CommandFound, Finding, SimpleCommand
from turnwheel.effects.permissions import (
    Basis,
    PermissionMode,
    Rule,
    Verdict,
)
from turnwheel.effects.records import GrantRule
from turnwheel.states.rules.schema import arguments_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from turnwheel.effects.notices import CallJudged


@final
@attrs.frozen(kw_only=True)
class Case:
    """
    A call of *spec* with what it is *given*, and all that counts for it: what hooks *said* and so on.

    *finding* is what was found of it.
    """

    config: Config
    spec: ToolSpec
    given: Mapping[str, object]
    mode: PermissionMode
    said: frozenset[Verdict] = frozenset()
    granted: tuple[GrantRule, ...] = ()
    finding: Finding = Finding()

    @property
    def denied(self) -> bool:
        """Whether something denies it, whoever allows it."""
        plans = self.mode is PermissionMode.PLAN and not self._reads
        return plans or Verdict.DENY in self.said | self._ruled

    @property
    def doubted(self) -> bool:
        """Whether a rule may deny it, as far as anybody can tell."""
        return Verdict.DENY in self._perhaps

    @property
    def looked_at(self) -> bool:
        """Whether it has to be looked at before anything is decided."""
        own = {*self.spec.paths, self.spec.command} - {""}
        rules = self._rules
        named = {name for rule in rules if fnmatchcase(self.spec.name, rule.tool) for name, _ in rule.where}
        if self.spec.paths and any(self._may_show(rule) for rule in rules):
            return True
        return bool(own & named) or bool(self._edits and self.config.protected and self.spec.paths)

    @property
    def verdict(self) -> Verdict:
        """What has to become of it, where no person has been asked."""
        if self.denied:
            return Verdict.DENY
        asked = self.doubted or any(not self._answered(rule) for rule in self.asking)
        if self.mode is PermissionMode.BYPASS and not asked:
            return Verdict.ALLOW
        asked = asked or Verdict.ASK in self.said
        ruled = self._together(self._rules)
        allowed = self.trusted or ruled or Verdict.ALLOW in self.said or self._free
        if allowed and not asked:
            return Verdict.ALLOW
        return Verdict.DENY if self.mode is PermissionMode.DONT_ASK else Verdict.ASK

    @property
    def trusted(self) -> bool:
        """Whether a person has said that all such calls may run."""
        return self._together([grant.rule for grant in self.granted])

    @property
    def asking(self) -> list[Rule]:
        """The rules that ask about it, or may."""
        return [rule for rule in (*self._speaking(2), *self._speaking(1)) if rule.verdict is Verdict.ASK]

    @property
    def asked_by(self) -> frozenset[Rule]:
        """The rules that a person answers for good, who is asked about it: not one that only may apply."""
        asking = [rule for rule in self._speaking(2) if rule.verdict is Verdict.ASK]
        return frozenset([] if self.doubted else [rule for rule in asking if not self._answered(rule)])

    def _answered(self, rule: Rule) -> bool:
        """Whether a person has allowed for good all that *rule* asks about in it, when it asked."""
        shells = [
            attrs.evolve(
                shell, commands=tuple([one for one in shell.commands if self._of(shell, one).speaks(rule)])
            )
            for shell in self.finding.commands
        ]
        meant = attrs.evolve(self, finding=attrs.evolve(self.finding, commands=tuple(shells)))
        return meant._together([grant.rule for grant in self.granted if rule in grant.outvotes])

    def _of(self, shell: CommandFound, command: SimpleCommand) -> Case:
        alone = attrs.evolve(shell, commands=(command,))
        return attrs.evolve(self, finding=attrs.evolve(self.finding, commands=(alone,)))

    @property
    def _rules(self) -> tuple[Rule, ...]:
        return (*self.config.rules, *[grant.rule for grant in self.granted])

    def rests_on(  # noqa: PLR0911  # one return for each ground
        self, judged: CallJudged
    ) -> bool:
        """
        Whether the ground that *judged* names is there.

        A person's word is not looked for here, nor is a process that was lost.
        """
        verdict, detail = judged.verdict, judged.detail
        match judged.ground:
            case Basis.PERSON | Basis.LOST:
                return True
            case Basis.RULE if verdict is Verdict.ALLOW:
                return self._stands(self._rules, detail)
            case Basis.RULE:
                certain = [rule for rule in self._speaking(2) if rule.verdict is verdict]
                perhaps = [f"{rule} may apply: " for rule in self._speaking(1)]
                told = detail in map(str, certain) or detail.startswith(tuple(perhaps))
                return told and (verdict is Verdict.ASK or detail in map(str, certain))
            case Basis.GRANT:
                return verdict is Verdict.ALLOW and self._stands(
                    [grant.rule for grant in self.granted], detail
                )
            case Basis.HOOK:
                return verdict in self.said
            case Basis.TOOL:
                asks = needs_asking(self.spec)
                return verdict is (Verdict.ASK if asks else Verdict.ALLOW)
            case Basis.MODE:
                return detail == self.mode and verdict is self._verdict_of_the_mode

    @property
    def _verdict_of_the_mode(self) -> Verdict:
        lenient = {PermissionMode.BYPASS, PermissionMode.ACCEPT_EDITS}
        return Verdict.ALLOW if self.mode in lenient else Verdict.DENY

    def _stands(self, rules: Iterable[Rule], detail: str) -> bool:
        """Whether those of *rules* that *detail* names allow it."""
        return self._together([rule for rule in rules if str(rule) in detail.split("; ")])

    @property
    def _reads(self) -> bool:
        return self.spec.side_effect is SideEffect.READ_ONLY

    def _speaking(self, certainty: int) -> list[Rule]:
        rules = [rule for rule in self.config.rules if rule.verdict is not Verdict.ALLOW]
        return [rule for rule in rules if self.speaks(rule) == certainty]

    @property
    def _ruled(self) -> frozenset[Verdict]:
        return frozenset([rule.verdict for rule in self._speaking(2)])

    @property
    def _perhaps(self) -> frozenset[Verdict]:
        return frozenset([rule.verdict for rule in self._speaking(1)])

    def speaks(self, rule: Rule) -> int:
        """Whether *rule*, which asks or denies, speaks about it: 2, or 1 where nobody can tell, or 0."""
        mine = fnmatchcase(self.spec.name, rule.tool)
        speaks = min([self._meets(name, glob) for name, glob in rule.where], default=2) if mine else 0
        return speaks or int(self._may_show(rule) and self._may_find(rule.where[0][1]))

    def _may_show(self, rule: Rule) -> bool:
        """Whether *rule* asks about paths of files, something of which a search shows as a reader would."""
        asks = rule.verdict is Verdict.ASK and [name for name, _ in rule.where] == ["path"]
        return (
            self.spec.searches
            and asks
            and any(fnmatchcase(tool, rule.tool) for tool in (self.spec.name, "read"))
        )

    def _may_find(self, glob: str) -> bool:
        """Whether what *glob* matches may lie below where a search begins, as far as anybody can tell."""
        for name in self.spec.paths:
            if not isinstance(self.given.get(name), str):
                continue
            there = [
                each
                for one in self.finding.paths
                if one.argument == name
                for each in (*one.written, *one.real)
            ]
            # What is below a folder above this one may be anywhere.
            below = [UNKNOWN if set(each) <= {".", "/"} else f"{each}/{UNKNOWN}" for each in there]
            if not there or any(fits_partly(each, glob) for each in below):
                return True
        return False

    @property
    def _seen(self) -> Mapping[str, object]:
        """What is given, as rules see it: what is null where it is left out, is null."""
        return {**defaults(self.spec), **self.given}

    def _meets(self, name: str, glob: str) -> int:
        if Rule(verdict=Verdict.ASK, tool="*", where=((name, glob),)).covers("", self._seen):
            return 2
        # Nothing is reached, and nothing runs, where there is none.
        if self.given.get(name) is None or name not in {*self.spec.paths, self.spec.command}:
            return 0
        paths = [one for one in self.finding.paths if one.argument == name]
        shells = [one for one in self.finding.commands if one.argument == name]
        if not paths and not shells:
            return 1
        there = [each for one in paths for each in (*one.written, *one.real)]
        runs = [" ".join(each.words) for one in shells for each in one.commands]
        if any(fnmatchcase(text, glob) for text in (*there, *runs)):
            return 2
        unsure = any(one.doubt for one in paths) or any(one.unread for one in shells)
        return int(unsure or any(UNKNOWN in text and fits_partly(text, glob) for text in runs))

    def _together(self, rules: Iterable[Rule]) -> bool:
        """Whether *rules* allow it: one of them, or each of its commands by one."""
        mine = [
            one for one in rules if one.verdict is Verdict.ALLOW and fnmatchcase(self.spec.name, one.tool)
        ]
        shells = [one for one in self.finding.commands if one.argument == self.spec.command]
        left = {each.words for one in shells for each in one.commands if not each.inner}
        for rule in mine:
            own = {name: glob for name, glob in rule.where if name in {*self.spec.paths, self.spec.command}}
            others = tuple([one for one in rule.where if one[0] not in own])
            if not Rule(verdict=Verdict.ALLOW, tool="*", where=others).covers("", self._seen):
                continue
            if not all(self._reaches(name, own[name]) for name in self.spec.paths if name in own):
                continue
            if self.spec.command not in own:
                return True
            left -= {words for words in left if fnmatchcase(" ".join(words), own[self.spec.command])}
        clear = [one for one in shells if not one.beyond and not one.unread]
        tops = [each for one in clear for each in one.commands if not each.inner]
        return bool(tops) and not left

    def _reaches(self, name: str, glob: str) -> bool:
        paths = [one for one in self.finding.paths if one.argument == name]
        sides = [side for one in paths for side in (one.written, one.real)]
        return bool(sides) and all(any(fnmatchcase(each, glob) for each in side) for side in sides)

    @property
    def _edits(self) -> bool:
        return self.mode is PermissionMode.ACCEPT_EDITS and self.spec.edits

    @property
    def _free(self) -> bool:
        """Whether nobody need be asked about the tool by itself."""
        return (self._edits and not self._kept_safe) or not needs_asking(self.spec)

    @property
    def _kept_safe(self) -> bool:
        """Whether an edit of it would be of something protected, as far as anybody can tell."""
        if not self.config.protected:
            return False
        given = [name for name in self.spec.paths if isinstance(self.given.get(name), str)]
        known = {one.argument: one for one in self.finding.paths}
        reached = [each for one in known.values() for each in (*one.written, *one.real)]
        hit = any(fnmatchcase(each, glob) for each in reached for glob in self.config.protected)
        return hit or any(one.doubt for one in known.values()) or any(name not in known for name in given)


def defaults(spec: ToolSpec) -> dict[str, object]:
    """What an argument of *spec* is where it is left out, null as well."""
    declared = json.loads(spec.schema).get("properties", {}) if spec.fills else {}
    return {name: each["default"] for name, each in declared.items() if "default" in each}


def filled(given: str, spec: ToolSpec | None) -> str:
    """What is *given*, as text, with the defaults of *spec* for what was left out, but for those of null."""
    arguments = arguments_of(given)
    if spec is None or arguments is None:
        return given
    known = {*arguments, *spec.secrets}
    left_out = {name: one for name, one in defaults(spec).items() if one is not None and name not in known}
    return json.dumps({**arguments, **left_out}, ensure_ascii=False) if left_out else given


def fits_partly(text: str, glob: str) -> bool:
    """Whether *glob*, whose only special character is the star, may match *text* with more in it."""
    literal, fixed = glob.split("*", maxsplit=1)[0], text.split(UNKNOWN, maxsplit=1)[0]
    return literal.startswith(fixed) or ("*" in glob and fixed.startswith(literal))


def needs_asking(spec: ToolSpec) -> bool:
    """Whether a person is asked about *spec* where no rule answers."""
    by_effect = spec.approval is Approval.BY_SIDE_EFFECT and spec.side_effect is not SideEffect.READ_ONLY
    return spec.approval is Approval.ALWAYS or by_effect
