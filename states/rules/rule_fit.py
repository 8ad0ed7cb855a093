"""Whether a permission rule speaks about a call: by its text, by what its paths reach, by what it runs."""

# Most arguments are text, and a glob matches that or not. A path and a shell command can be spelled in many
# ways, so of those a finding is judged. Where there is none, or it leaves doubts, a rule may speak about the
# call: one that allows does not allow then, and one that asks or denies makes it a question.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from ...effects.config import ToolSpec
from ...effects.findings import MOST_PATHS, UNKNOWN, CommandFound, Finding, PathFound, SimpleCommand, paths_in
from ...effects.permissions import Rule, Verdict, resolved
from .commands import Effort, Fit, allows, may_match, met, running_others
from .schema import nulls_of

NO_FINDING = Finding()


def inspected(rules: Iterable[Rule], spec: ToolSpec) -> list[tuple[str, str]]:
    """What *rules* say of paths and commands among the arguments of *spec*: their names and globs."""
    rules = tuple(rules)
    own = [
        (name, glob)
        for rule in rules
        for name, glob in rule.where
        if (name in spec.paths or name == spec.command) and fnmatchcase(spec.name, rule.tool)
    ]
    found = below(rules, Verdict.ASK, spec.name) if spec.searches else []
    return own + [(name, glob) for _, glob in found for name in spec.paths]


def below(rules: Iterable[Rule], verdict: Verdict, tool: str) -> list[tuple[Rule, str]]:
    """Those of *rules* with *verdict* on files that *tool*, a search, finds; with their globs."""
    # What a search shows of a file, `read` would show.
    return [
        (rule, rule.where[0][1])
        for rule in rules
        if rule.verdict is verdict and [name for name, _ in rule.where] == ["path"]
        if fnmatchcase(tool, rule.tool) or fnmatchcase("read", rule.tool)
    ]


def fit(rule: Rule, spec: ToolSpec, arguments: Mapping[str, object], finding: Finding, effort: Effort) -> Fit:
    """Whether *rule*, alone, speaks about a call of *spec* with *arguments*, of which *finding* is known."""
    # What is left out is null: a rule on an argument is not passed by leaving it out.
    given = {**nulls_of(spec.schema), **arguments} if spec.fills and rule.where else arguments
    worst = Fit.YES if fnmatchcase(spec.name, rule.tool) else Fit.NO
    for pattern in rule.where:
        if worst is Fit.NO:
            break
        worst = min(worst, _fit_of(rule, pattern, spec, given, finding, effort))
    # What is denied, the search itself leaves out.
    if worst is Fit.NO and spec.searches and rule.verdict is Verdict.ASK:
        return _of_search(rule, spec, given, finding)
    return worst


def _of_search(rule: Rule, spec: ToolSpec, arguments: Mapping[str, object], finding: Finding) -> Fit:
    """Whether *rule*, which asks, may speak about a file that the search *spec* finds."""
    for _, glob in below((rule,), Verdict.ASK, spec.name):
        for name in spec.paths:
            for value in paths_in(arguments.get(name))[: MOST_PATHS + 1]:
                found = _found_of(name, value, finding)
                if found is None or any(_has_below(path, glob) for path in (*found.written, *found.real)):
                    return Fit.MAYBE
    return Fit.NO


def _has_below(folder: str, glob: str) -> bool:
    # What is below a folder above the working directory may be in that.
    above = {*folder.split("/")} <= {".", ".."}
    inside = UNKNOWN if above else f"{folder.rstrip('/')}/{UNKNOWN}"
    return may_match(inside, glob) or may_match(inside, resolved(glob))


def _fit_of(
    rule: Rule,
    pattern: tuple[str, str],
    spec: ToolSpec,
    arguments: Mapping[str, object],
    finding: Finding,
    effort: Effort,
) -> Fit:
    name, glob = pattern
    declared = name in spec.paths or name == spec.command
    plain = rule.meets(name, glob, arguments)
    if name not in arguments or not declared:
        return Fit.YES if plain else Fit.NO
    allowing = rule.verdict is Verdict.ALLOW
    # As written it is meant already; what it reaches can only add to that.
    if plain and not allowing:
        return Fit.YES
    if name in spec.paths:
        return _of_paths(name, glob, arguments[name], finding, allowing=allowing)
    found = finding.command(name)
    if found is None:
        # Nothing runs where there is no command.
        return Fit.NO if arguments[name] is None else Fit.MAYBE
    if allowing:
        return Fit.YES if _all_allowed((rule,), name, found) else Fit.NO
    return met(glob, found, effort)


def _of_paths(name: str, glob: str, value: object, finding: Finding, *, allowing: bool) -> Fit:
    texts = paths_in(value)
    if len(texts) > MOST_PATHS:
        return Fit.NO if allowing else Fit.MAYBE
    fits = [_of_path(glob, _found_of(name, one, finding), allowing=allowing) for one in texts]
    return min(fits, default=Fit.NO) if allowing else max(fits, default=Fit.NO)


def _found_of(name: str, value: str, finding: Finding) -> PathFound | None:
    return next((one for one in finding.paths if (one.argument, one.value) == (name, value)), None)


def _of_path(glob: str, found: PathFound | None, *, allowing: bool) -> Fit:
    if found is None:
        return Fit.MAYBE
    written = _any(found.written, glob)
    real = _any(found.real, glob)
    # A link in an allowed place may lead out of it, and one elsewhere into a place that is denied.
    if allowing:
        return Fit.YES if written and real else Fit.NO
    if written or real:
        return Fit.YES
    return Fit.MAYBE if found.doubt else Fit.NO


def _any(paths: Iterable[str], glob: str) -> bool:
    plain = resolved(glob)
    return any(fnmatchcase(path, glob) or fnmatchcase(path, plain) for path in paths)


def allowing(
    rules: Iterable[Rule], spec: ToolSpec, arguments: Mapping[str, object], finding: Finding
) -> tuple[Rule, ...]:
    """Those of *rules* that allow the call, of a command perhaps only together; empty where none does."""
    parts: list[Rule] = []
    effort = Effort()
    for rule in rules:
        if rule.verdict is not Verdict.ALLOW:
            continue
        if fit(rule, spec, arguments, finding, effort) is Fit.YES:
            return (rule,)
        others = Rule(
            verdict=rule.verdict,
            tool=rule.tool,
            where=tuple([one for one in rule.where if one[0] != spec.command]),
        )
        if others != rule and fit(others, spec, arguments, finding, effort) is Fit.YES:
            parts.append(rule)
    found = finding.command(spec.command)
    if found is None:
        return ()
    return _all_allowed(parts, spec.command, found)


def _all_allowed(rules: Iterable[Rule], name: str, found: CommandFound) -> tuple[Rule, ...]:
    """Those of *rules* that allow the commands of *found*, each one by one of them; empty where none do."""
    if found.beyond or found.unread:
        return ()
    by: list[Rule] = []
    for command in found.commands:
        # What stands inside another command is that one's concern: who allows sudo allows what it runs.
        if command.inner:
            continue
        chosen = next((rule for rule in rules if _globs_allow(rule, name, command)), None)
        if chosen is None:
            return ()
        by.append(chosen)
    return tuple(dict.fromkeys(by))


def _globs_allow(rule: Rule, name: str, command: SimpleCommand) -> bool:
    return all(allows(glob, command) for argument, glob in rule.where if argument == name)


def protection(
    globs: Iterable[str], spec: ToolSpec, arguments: Mapping[str, object], finding: Finding
) -> str:
    """Why a person is asked before a call of *spec* edits what *globs* protect; empty where it does not."""
    for name in spec.paths:
        for value in paths_in(arguments.get(name))[: MOST_PATHS + 1]:
            found = _found_of(name, value, finding)
            if found is None:
                return f"{value!r} cannot be looked at"
            # On some systems names that differ in case mean one file.
            paths = [path.lower() for path in (*found.written, *found.real)]
            if any(fnmatchcase(path, glob.lower()) for path in paths for glob in globs):
                return f"{value!r} is protected from edits that no one was asked about"
            if found.doubt:
                return found.doubt
    return ""


def doubt_of(spec: ToolSpec, finding: Finding) -> str:
    """Why rules cannot decide about a call of *spec*, by its *finding*; empty where they can."""
    doubts = [found.doubt for found in finding.paths]
    found = finding.command(spec.command)
    if found is not None:
        others = [running_others(command.words) for command in found.commands]
        doubts += [found.unread or found.beyond, *dict.fromkeys(others)]
    return "; ".join(filter(None, doubts))
