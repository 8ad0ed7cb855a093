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

from ...effects.findings import UNKNOWN, CommandFound, SimpleCommand

# Programs that run the program which their arguments name. Which of the arguments that is depends on their
# options, so it may be each of them.
STARTERS = frozenset(
    {"builtin", "busybox", "capsh", "choom", "chroot", "chrt", "command", "coproc", "doas", "env", "exec"}
    | {"fakeroot", "find", "i386", "linux32", "linux64", "ltrace", "prlimit", "sg", "x86_64"}
    | {"flock", "ionice", "nice", "nohup", "nsenter", "parallel", "pkexec", "runuser", "script"}
    | {"setarch", "setpriv", "setsid", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run"}
    | {"taskset", "time", "timeout", "toybox", "unbuffer", "unshare", "watch", "xargs"}
)

# Those that add arguments which nothing here knows.
ADDING = frozenset({"parallel", "xargs"})

# Arguments that are looked at for such a program, and for where options end; of more anything may be said.
MOST_ARGUMENTS = 64

# Characters of a text that is only partly known and is held against a glob.
LONGEST_PARTLY_KNOWN = 2_000


# A word of which nothing is known, with the blanks around it.
_VANISHING = re.compile(f"(?:^| ){UNKNOWN}(?= |$) ?")


class Fit(IntEnum):
    """Whether a rule speaks about a call; `MAYBE` where that cannot be decided."""

    NO = 0
    MAYBE = 1
    YES = 2


def program_of(words: Sequence[str]) -> str:
    """The name of the program that *words* start, without the path to it."""
    return words[0].rpartition("/")[2]


def allows(glob: str, command: SimpleCommand) -> bool:
    """Whether *glob* allows *command*, whose words are all known."""
    # Words are told apart by blanks in the text, so the name of a program must not have any.
    known = re.fullmatch(r"\S+", command.words[0]) is not None
    return known and fnmatchcase(" ".join(command.words), glob)


def met(glob: str, found: CommandFound) -> Fit:
    """Whether a command of *found* is one that *glob* means."""
    best = Fit.MAYBE if found.unread else Fit.NO
    for command in found.commands:
        for text in _readings(command.words):
            if fnmatchcase(text, glob):
                return Fit.YES
            if UNKNOWN in text and _may_match(text, glob):
                best = Fit.MAYBE
    return best


def _readings(words: tuple[str, ...]) -> Iterator[str]:
    """The texts of what *words* may start."""
    yield from _spellings(words)
    name = program_of(words)
    if name not in STARTERS:
        return
    if len(words) > MOST_ARGUMENTS:
        yield UNKNOWN
    for start in range(1, min(len(words), MOST_ARGUMENTS)):
        inner = (*words[start:], UNKNOWN) if name in ADDING else words[start:]
        yield from _spellings(inner)


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


def _may_match(text: str, glob: str) -> bool:
    """Whether *glob* matches *text* with some texts in the place of each `UNKNOWN`."""
    if len(text) > LONGEST_PARTLY_KNOWN:
        return True
    places = _places(glob)
    end = len(places)

    def past_stars(at: int) -> Iterator[int]:
        yield at
        while at < end and places[at] == "*":
            at += 1
            yield at

    # How much of the glob the text up to here can have used up.
    here = set(past_stars(0))
    for character in text:
        if not here:
            return False
        if character == UNKNOWN:
            # Any text can stand here, so every later place can be reached.
            here = set(range(min(here), end + 1))
            continue
        inside = [at for at in here if at < end]
        next_places = [
            at if places[at] == "*" else at + 1 for at in inside if fnmatchcase(character, places[at])
        ]
        here = {after for at in next_places for after in past_stars(at)}
    return end in here
