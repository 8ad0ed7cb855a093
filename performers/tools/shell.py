"""
Shell commands, read and not run: which programs a command starts, as far as its text says.

Theory of operation. A plain command line says it by itself, and is read twice, by `plain_line` and by
tree-sitter, which must agree. Any other one is taken for something that may run any program. The commands
that tree-sitter finds in it count all the same: a rule that surely denies needs no question.
What is known only when a command runs is marked in its word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, final

from ...effects.findings import UNKNOWN, CommandFound, SimpleCommand
from ...states.rules.commands import MOST_ARGUMENTS, SHELLS, STARTERS, may_match, program_of
from .plain_commands import MOST_COMMANDS, TOO_LONG, NotPlain, plain_line

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Longer commands are not read: a rule says nothing about them.
MOST_CHARACTERS = 10_000

# How many commands may stand in each other's arguments.
DEEPEST = 4

# Reasons that a question gives.
_REASONS = 3

# An option with a whole command line behind it, as of `env`.
_LINE_OPTION = re.compile(r"-\w*S|--[\w-]+=")

# Parts of a command that are no words of it.
_BESIDE = frozenset(
    {"file_redirect", "heredoc_redirect", "herestring_redirect", "variable_assignment", "comment"}
)

# Where the two readers do not agree.
MISREAD = "shells may read the command differently"

# What a shell puts a text of its own in the place of, and what says so about all of a word.
_GLOB = re.compile(r"[*?$`]")


def read_command(argument: str, text: str) -> CommandFound:
    """The commands in *text*, the value of *argument*."""
    try:
        from tree_sitter import Language, Parser  # noqa: PLC0415  # an extra, and 5 ms for who has it
        from tree_sitter_bash import language  # noqa: PLC0415  # as above
    except ImportError:
        missing = "no shell parser is installed; pip install 'turnwheel[shell]'"
        return CommandFound(argument=argument, unread=missing)
    reader = _CommandReader(Parser(Language(language())))
    reader.read(text, 0)
    return CommandFound(
        argument=argument,
        commands=tuple(reader.commands),
        beyond=_listed(reader.beyond),
        unread=_listed(reader.unread),
    )


def _listed(reasons: Sequence[str]) -> str:
    """The first few of *reasons*, each once: they are read by a person."""
    return "; ".join(list(dict.fromkeys(reasons))[:_REASONS])


@final
class _CommandReader:
    """Gathers the *commands* of a text and of those in their arguments; see `CommandFound` for the rest."""

    def __init__(self, parser: Parser) -> None:
        self.commands: list[SimpleCommand] = []
        self.beyond: list[str] = []
        self.unread: list[str] = []
        self._parser = parser
        # Characters that are still read. Commands in the arguments of others are read once for each of these.
        self._left = 4 * MOST_CHARACTERS

    def read(self, text: str, depth: int) -> None:
        """Read *text*, which stands in the arguments of *depth* other commands."""
        self._left -= len(text)
        if (
            len(text) > MOST_CHARACTERS
            or depth > DEEPEST
            or len(self.commands) > MOST_COMMANDS
            or self._left < 0
        ):
            self.unread.append(TOO_LONG)
            return
        if UNKNOWN in text:
            self.unread.append("it runs a command that is known only then")
            return
        commands = self._found_in(text)
        try:
            line = plain_line(text)
        except NotPlain as reason:
            self.unread.append(str(reason))
        else:
            self.beyond += line.beyond
            if not _agrees(commands, line.commands):
                self.unread.append(MISREAD)
            commands = line.commands
        for words in commands:
            self._add(words, depth)

    def _found_in(self, text: str) -> Sequence[tuple[str, ...]]:
        """The words of each command in the tree of *text*, wherever it stands."""
        source = text.encode(errors="replace")
        # A stack and no recursion: brackets may be nested as deep as the text is long.
        nodes = [self._parser.parse(source).root_node]
        found: list[tuple[str, ...]] = []
        while nodes and len(found) <= MOST_COMMANDS:
            node = nodes.pop()
            nodes += reversed(node.children)
            if node.type in {"command", "declaration_command", "unset_command"}:
                parts = [each for each in node.children if each.type not in _BESIDE]
                if words := tuple(_joined(parts, source)):
                    found.append(words)
        return found

    def _add(self, words: tuple[str, ...], depth: int) -> None:
        self.commands.append(SimpleCommand(words=words, inner=depth > 0))
        # Each argument of such a program may be where another command begins.
        name = program_of(words)
        starts = min(len(words), MOST_ARGUMENTS) if name in STARTERS else 1
        for start in range(starts):
            for text in self._texts(words[start:]):
                self.read(text, depth + 1)
        # And one may be a whole command line, as for `watch` or `env -S`.
        for word in words[1:starts]:
            if re.search(r"[\s;&|]", word):
                self.read(_LINE_OPTION.sub("", word, count=1), depth + 1)

    def _texts(self, words: Sequence[str]) -> Iterator[str]:
        """The command lines that *words* have a shell run."""
        name = program_of(words)
        if name == "eval":
            yield " ".join(words[2:] if words[1:2] == ("--",) else words[1:])
        elif name in SHELLS:
            rest = iter(words[1:])
            if any(map(_runs_text, rest)):  # what is left is behind that option
                yield next((word for word in rest if not word.startswith(("-", "+"))), "")
            # A script in a file is a program like any other. But it must be plain that it is one.
            elif len(words) == 1 or words[1].startswith(("-", "+", UNKNOWN)) or UNKNOWN in words[1]:
                self.unread.append(f"{name!r} runs what it reads")


def _agrees(tree: Sequence[tuple[str, ...]], line: Sequence[tuple[str, ...]]) -> bool:
    """Whether the commands of the *tree* are those of the *line*, as far as they are known."""
    # To a tree, `[` is no command.
    known = [words for words in line if words[0] != "["]
    return len(known) == len(tree) and all(map(_may_be_same, known, tree))


def _may_be_same(words: tuple[str, ...], others: tuple[str, ...]) -> bool:
    if UNKNOWN not in "".join((*words, *others)):
        return words == others
    # What is unknown may be several words to the one, and is one to the other.
    text = re.sub(f"{UNKNOWN}(?: ?{UNKNOWN})*", UNKNOWN, " ".join(words))
    other = re.sub(r"[*?\[]", r"[\g<0>]", " ".join(others)).replace(UNKNOWN, "*")
    return may_match(text, other) if UNKNOWN in text else fnmatchcase(text, other)


def _runs_text(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and "c" in word


def _joined(nodes: Sequence[Node], source: bytes) -> list[str]:
    """The words of *nodes*, of which those that only a line break divides are one."""
    words: list[str] = []
    end = -1
    for node in nodes:
        gap = source[end : node.start_byte].decode(errors="replace") if end >= 0 else " "
        if not re.search(r"[ \t]", gap) and words:
            words[-1] += _word(node, source)
        else:
            words.append(_word(node, source))
        end = node.end_byte
    return words


def _word(node: Node, source: bytes) -> str:
    """The word that *node* is to the program: without quotes, and marked where it is not known."""
    text = source[node.start_byte : node.end_byte].decode(errors="replace")
    match node.type:
        case "word" | "number" | "variable_name" | "test_operator":
            return _bare(text)
        case "raw_string":
            return text[1:-1]
        case "string":
            return _quoted(node, source)
        case "command_name" | "concatenation":
            whole = "".join([_word(each, source) for each in node.children])
            return UNKNOWN if _is_many(text) else whole
        case _ if not node.is_named:
            return _bare(text)
        case _:
            return UNKNOWN


def _is_many(text: str) -> bool:
    """Whether *text*, without quotes, may stand for several words."""
    return "[" in text or ("{" in text and ("," in text or ".." in text))


def _bare(text: str) -> str:
    if _is_many(text):
        return UNKNOWN
    # The folder of a person, who is known only when it runs.
    plain, text = ([UNKNOWN], text[1:]) if text.startswith("~") else (list[str](), text)
    for escaped, other in re.findall(r"\\(\n|.)|([^\\]|\\\Z)", text, re.DOTALL):
        # A glob is replaced by names of files; what they are is known only when it runs.
        plain.append(_GLOB.sub(UNKNOWN, other) if other else escaped.strip("\n"))
    return "".join(plain)


def _quoted(node: Node, source: bytes) -> str:
    """The text between double quotes, where only some characters are escaped."""
    parts: list[str] = []
    at = node.start_byte + 1
    for each in node.children:
        if each.is_named and each.type != "string_content":
            parts += [source[at : each.start_byte].decode(errors="replace"), UNKNOWN]
            at = each.end_byte
    parts.append(source[at : node.end_byte - 1].decode(errors="replace"))
    return re.sub(r'\\([$`"\\\n])', lambda found: found[1].strip("\n"), "".join(parts))
