"""What a glob of a rule says of the commands that a shell would start, as a parser has read them."""

# A shell starts the same program by many spellings: by its path, behind assignments, with options before its
# subcommand, and by way of other programs such as sudo. A denial holds for each of these *readings*. What
# allows is stricter: it has to fit the words as they are, since any other program may stand at another path.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import final

from ...effects.findings import UNKNOWN, CommandFound, SimpleCommand

# Programs that run the program which their arguments name. Which of the arguments that is depends on their
# options, so it may be each of them. Together with `SHELLS` the list is closed: any other program is trusted
# by its name, whatever it then runs.
STARTERS = frozenset(
    {"builtin", "busybox", "capsh", "choom", "chroot", "chrt", "command", "coproc", "doas", "env", "exec"}
    | {"fakeroot", "find", "i386", "linux32", "linux64", "ltrace", "prlimit", "sg", "x86_64"}
    | {"flock", "ionice", "nice", "nohup", "nsenter", "parallel", "pkexec", "runuser", "script"}
    | {"setarch", "setpriv", "setsid", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run"}
    | {"taskset", "time", "timeout", "toybox", "unbuffer", "unshare", "watch", "xargs"}
)

# Programs that run a text, or a file, as commands.
SHELLS = frozenset(
    {"ash", "bash", "csh", "dash", "fish", "ksh", "lksh", "mksh", "posh", "rbash", "sh", "tcsh"}
    | {"yash", "zsh"}
)

# Actions of `find` that run programs.
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})

# Arguments that are looked at for such a program, and for where options end; of more anything may be said.
MOST_ARGUMENTS = 64

# Characters that one judgement holds against globs. A model may write a command that has millions of them in
# its readings, and while they are judged all other sessions of the process wait.
MOST_EFFORT = 300_000


# A word of which nothing is known, with the blanks around it.
_VANISHING = re.compile(f"(?:^| ){UNKNOWN}(?= |$) ?")


class Fit(IntEnum):
    """Whether a rule speaks about a call; `MAYBE` where that cannot be decided."""

    NO = 0
    MAYBE = 1
    YES = 2


@final
class Effort:
    """What one judgement may still do: how many characters it may hold against globs."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MOST_EFFORT

    def suffices(self, characters: int) -> bool:
        """Take *characters* from what is left, and return whether there were as many."""
        self._left -= characters
        return self._left >= 0


def program_of(words: Sequence[str]) -> str:
    """The name of the program that *words* start, without the path to it."""
    return words[0].rpartition("/")[2]


def running_others(words: Sequence[str]) -> str:
    """Why *words* may start another program than the one they name; empty where that one is trusted."""
    name, rest = program_of(words), words[1:]
    if name not in SHELLS and name not in STARTERS:
        return ""
    if UNKNOWN not in "".join(rest):
        if name == "find" and _FIND_RUNS.isdisjoint(rest):
            return ""
        if name == "command" and rest[:1] in {("-v",), ("-V",)}:
            return ""
    return f"{name!r} may run what its arguments or its input say"


def allows(glob: str, command: SimpleCommand) -> bool:
    """Whether *glob* allows *command*, whose words are all known."""
    # Words are told apart by blanks in the text, so the name of a program must not have any.
    known = re.fullmatch(r"\S+", command.words[0]) is not None
    return known and fnmatchcase(" ".join(command.words), glob)


def met(glob: str, found: CommandFound, effort: Effort) -> Fit:
    """Whether a command of *found* is one that *glob* means, as far as *effort* can tell."""
    others = any(running_others(command.words) for command in found.commands)
    best = Fit.MAYBE if found.unread or others else Fit.NO
    for command in found.commands:
        for text in _readings(command.words):
            if not effort.suffices(len(text)):
                return Fit.MAYBE
            if fnmatchcase(text, glob):
                return Fit.YES
            if best is Fit.NO and UNKNOWN in text and may_match(text, glob):
                best = Fit.MAYBE
    return best


def _readings(words: tuple[str, ...]) -> Iterator[str]:
    """The texts of what *words* may start."""
    yield from _spellings(words)
    if program_of(words) not in STARTERS:
        return
    for start in range(1, min(len(words), MOST_ARGUMENTS)):
        yield from _spellings(words[start:])


def _spellings(words: Sequence[str]) -> Iterator[str]:
    """The texts of one program with its arguments: by its path or name, and without leading options."""
    # What is not known may be nothing at all, and then the next word is the program.
    if UNKNOWN in words[0]:
        yield UNKNOWN
    programs = dict.fromkeys((words[0], program_of(words)))
    # Nothing here knows which options have a value, so each may have one.
    starts = [1]
    for start in starts:
        if start < len(words) and words[start].startswith(("-", UNKNOWN)):
            starts += [after for after in (start + 1, start + 2) if after not in starts]
        if start > MOST_ARGUMENTS:
            yield UNKNOWN
            break
    for program in programs:
        for start in starts[:MOST_ARGUMENTS]:
            text = " ".join((program, *words[start:]))
            # Of a word that is nothing, the blanks around it are none either.
            yield _VANISHING.sub(UNKNOWN, text)


@lru_cache(maxsize=1024)
def _places(glob: str) -> tuple[str, ...]:
    """The characters of *glob*, each in one piece with the brackets around it."""
    return tuple(re.findall(r"\[!?\]?[^\]]*\]|.", glob, re.DOTALL))


def may_match(text: str, glob: str) -> bool:
    """Whether *glob* matches *text* with some texts in the place of each `UNKNOWN`, of which it has one."""
    places = _places(glob)
    first, *between, last = text.split(UNKNOWN)
    stars = [at for at, place in enumerate(places) if place == "*"]
    if not stars:
        return _fill(places, first, between, last)
    # A star can take all that the text says between its ends, and what is unknown can be all that the glob
    # wants between its own. So only the ends may contradict each other.
    ending = places[stars[-1] + 1 :]
    return _agree(first, places[: stars[0]]) and _agree(last[::-1], ending[::-1])


def _agree(text: str, places: Sequence[str]) -> bool:
    """Whether *text* and *places* of a glob say the same, as far as both go."""
    return all(fnmatchcase(character, place) for character, place in zip(text, places, strict=False))


def _fill(places: Sequence[str], first: str, between: Sequence[str], last: str) -> bool:
    """Whether texts fit into *places*, no star among them: *first* and *last* at the ends, others between."""
    at, end = len(first), len(places) - len(last)
    if at > end or not (_agree(first, places) and _agree(last, places[end:])):
        return False
    for text in between:
        # The leftmost place is the best one: it leaves the most to those that follow.
        tries = range(at, end - len(text) + 1)
        found = next((start for start in tries if _agree(text, places[start:])), None)
        if found is None:
            return False
        at = found + len(text)
    return True
