"""
Shell commands, read and not run: which programs a command starts, as far as its text says.

Theory of operation. tree-sitter parses the command, and each simple command of it becomes words without their
quotes. What is known only when a command runs is marked in its word. What this module does not understand is
said as such: it is taken for something that may run any program, and never for nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, final

from ...effects.findings import UNKNOWN, CommandFound, SimpleCommand
from ...states.rules.commands import MOST_ARGUMENTS, OF_BUILTINS, SHELLS, STARTERS, TURNING, program_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Longer commands are not read: a rule says nothing about them.
MOST_CHARACTERS = 10_000

# How many commands may stand in each other's arguments.
DEEPEST = 4

# Commands of one command.
MOST_COMMANDS = 200

# Variables whose text a shell runs, or by which it finds text to run.
_RUN_VARIABLES = frozenset({"BASH_ENV", "BASHOPTS", "ENV", "PROMPT_COMMAND", "PS4", "SHELLOPTS"})

# The index of an array. Builtins that take names or numbers (`test`, `printf -v`, `read`, `let`) run what is
# substituted in it, in single quotes, too.
_INDEX = re.compile(r"\[[^\]\n]*(\$[({]|[<>]\()")

# An option with a whole command line behind it, as of `env`.
_LINE_OPTION = re.compile(r"-\w*S|--[\w-]+=")

# What a plain list of commands is made of. Anything else in it is told, and no rule allows it.
_LIST_PARTS = frozenset(
    {"program", "list", "pipeline", "command", "command_name", "word", "number", "string"}
    | {"string_content", "raw_string", "concatenation", "comment", "redirected_statement"}
    | {"file_redirect", "file_descriptor", "subshell", "compound_statement", "negated_command"}
)

_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})

# Parts of a command that are no words of it.
_BESIDE = _REDIRECTS | {"variable_assignment", "comment"}

# Where the parser and a shell may not agree.
MISREAD = "shells may read the command differently"

# Characters of a command that a question quotes.
_SHOWN = 80

# Reasons that a question gives.
_REASONS = 3

# Parts of words that are known only at run time, by what they are called in an error.
_DYNAMIC = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution"}
    | {"arithmetic_expansion", "brace_expression", "ansi_c_string", "translated_string"}
    | {"extglob_pattern", "regex"}
)

# All that this module understands. A later grammar may have more, in which any commands may stand.
UNDERSTOOD = (
    _LIST_PARTS
    | _REDIRECTS
    | _DYNAMIC
    | {"array", "binary_expression", "c_style_for_statement", "case_item", "case_statement"}
    | {"declaration_command", "do_group", "elif_clause", "else_clause", "for_statement"}
    | {"function_definition", "heredoc_body", "heredoc_content", "heredoc_end", "heredoc_start"}
    | {"if_statement", "parenthesized_expression", "postfix_expression", "special_variable_name"}
    | {"subscript", "ternary_expression", "test_command", "test_operator", "unary_expression"}
    | {"unset_command", "variable_assignment", "variable_assignments", "variable_name", "while_statement"}
)

# What may be a word.
_WORDS = _DYNAMIC | {"word", "number", "string", "raw_string", "concatenation"}

# What a shell puts a text of its own in the place of, and what says so about all of a word.
_GLOB = re.compile(r"[*?$`]")
_MANY = re.compile(r"\[|\{.*(?:,|\.\.).*\}", re.DOTALL)


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
    """Gathers the *commands* of a text; see `CommandFound` for the rest."""

    def __init__(self, parser: Parser) -> None:
        self.commands: list[SimpleCommand] = []
        self.beyond: list[str] = []
        self.unread: list[str] = []
        self._parser = parser

    def read(self, text: str, depth: int) -> None:
        """Read *text*, which stands in the arguments of *depth* other commands."""
        if len(text) > MOST_CHARACTERS or depth > DEEPEST or len(self.commands) > MOST_COMMANDS:
            self.unread.append("the command is too long, or too deep, to be read")
            return
        if UNKNOWN in text:
            self.unread.append("it runs a command that is known only then")
            return
        if _INDEX.search(text):
            self.unread.append("it may run what stands in an index")
        source = text.encode()
        root = self._parser.parse(source).root_node
        if root.has_error:
            self.unread.append("the command cannot be read")
        # A stack and no recursion: brackets may be nested as deep as the text is long.
        nodes = [root]
        covered: list[tuple[int, int]] = []
        left = source.count(b"`")
        while nodes:
            node = nodes.pop()
            nodes += reversed(node.children)
            if not node.child_count:
                covered.append((node.start_byte, node.end_byte))
                if node.type == "raw_string":
                    left -= source.count(b"`", node.start_byte, node.end_byte)
            self._look(node, source, depth)
        if left:
            # Within them a backslash means something else at each depth, which the parser does not follow.
            self.unread.append("it has a substitution in backticks")
        self._check_gaps(covered, source)

    def _check_gaps(self, covered: list[tuple[int, int]], source: bytes) -> None:
        # A shell has no other blanks than these. What a parser passes over may be a part of a word to it.
        at = 0
        for start, end in [*sorted(covered), (len(source), len(source))]:
            gap = source[at:start]
            if gap.replace(b"\\\n", b"").strip(b" \t\n"):
                self.unread.append(MISREAD)
            at = max(at, end)

    def _look(self, node: Node, source: bytes, depth: int) -> None:
        """Take note of what *node* says."""
        kind = node.type
        if kind in {"command", "declaration_command", "unset_command"}:
            self._command(node, source, depth)
        if kind in _REDIRECTS:
            self._redirect(node, source)
        if node.is_named and kind not in UNDERSTOOD:
            self.unread.append(f"it cannot be read: {_shown(node)}")
        elif kind == "function_definition":
            self.unread.append("it defines a function")
        elif kind in _DYNAMIC:
            # The word that it is in was told before it.
            if not any(_shown(node) in told for told in self.beyond):
                self.beyond.append(f"it is dynamic: {_shown(node)}")
        elif kind == "variable_assignment":
            name = (node.text or b"").partition(b"=")[0].decode(errors="replace").rstrip("+")
            if name in _RUN_VARIABLES:
                self.unread.append(f"it sets {name}, which shells run")
            self.beyond.append(f"it sets a variable: {_shown(node)}")
        elif kind not in _LIST_PARTS and node.is_named and not _inside(node):
            self.beyond.append(f"it is more than a list of commands: {_shown(node)}")

    def _redirect(self, node: Node, source: bytes) -> None:
        words = [each for each in node.children if each.type in _WORDS]
        # Words behind it are arguments of a command before it, and which one is hard to say.
        if len(words) > (node.type != "heredoc_redirect"):
            self.unread.append(MISREAD)
        if node.type == "heredoc_redirect" and not _ends_as_it_should(node, source):
            self.unread.append(MISREAD)
        operator = next((each.type for each in node.children if not each.is_named), "")
        if node.type != "file_redirect" or ">" not in operator or not words:
            return
        target = _word(words[0], source)
        # 2>&1 and 2>&- only name what is open already.
        if target != "/dev/null" and not (operator == ">&" and re.fullmatch(r"\d+-?|-", target)):
            self.beyond.append(f"it writes to {target.replace(UNKNOWN, '*')!r}")

    def _command(self, node: Node, source: bytes, depth: int) -> None:
        parts = [each for each in node.children if each.type not in _BESIDE]
        words = tuple(_joined(parts, source))
        if not words:
            return
        for one, other in pairwise(node.children):
            # A line ends a command, unless a backslash stands before its end.
            if b"\n" in source[one.end_byte : other.start_byte].replace(b"\\\n", b""):
                self.unread.append(MISREAD)
        if not depth:
            self._check_plain(node, source, words)
        self._add(words, depth)

    def _check_plain(self, node: Node, source: bytes, words: tuple[str, ...]) -> None:
        """Have what is to be allowed read a second time, by another reader: the two must agree."""
        if any(UNKNOWN in word for word in words):
            self.beyond.append(f"it is dynamic: {_shown(node)}")
            return
        text = source[node.start_byte : node.end_byte].decode(errors="replace").replace("\\\n", "")
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            again = tuple(lexer)
        except ValueError:
            again = ()
        if again != words:
            self.beyond.append(f"it is no plain command: {_shown(node)}")

    def _add(self, words: tuple[str, ...], depth: int) -> None:
        self.commands.append(SimpleCommand(words=words, inner=depth > 0))
        # Each argument of such a program may be where another command begins.
        name = program_of(words)
        starts = min(len(words), MOST_ARGUMENTS) if name in STARTERS else 1
        for start in range(starts):
            builtin = not start or name in OF_BUILTINS
            for text in self._texts(words[start:], builtin=builtin):
                self.read(text, depth + 1)
        # And one may be a whole command line, as for `watch` or `env -S`.
        for word in words[1:starts]:
            if re.search(r"[\s;&|]", word):
                self.read(_LINE_OPTION.sub("", word, count=1), depth + 1)

    def _texts(self, words: Sequence[str], *, builtin: bool) -> Iterator[str]:
        """The command lines that *words* have a shell run; *builtin*: they may be one of the shell's own."""
        name = program_of(words)
        if name == "eval":
            yield " ".join(words[2:] if words[1:2] == ("--",) else words[1:])
        elif builtin and name in TURNING:
            self.unread.append(f"{name!r} changes what commands mean")
        elif name in SHELLS:
            rest = iter(words[1:])
            if any(map(_runs_text, rest)):  # what is left is behind that option
                yield next((word for word in rest if not word.startswith(("-", "+"))), "")
            # A script in a file is a program like any other. But it must be plain that it is one.
            elif len(words) == 1 or words[1].startswith(("-", "+", UNKNOWN)) or UNKNOWN in words[1]:
                self.unread.append(f"{name!r} runs what it reads")


def _runs_text(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and "c" in word


def _ends_as_it_should(node: Node, source: bytes) -> bool:
    """Whether every shell finds the end of the here-document *node* where the parser has found it."""
    parts = {each.type: (each.text or b"").decode(errors="replace") for each in node.children}
    name = re.fullmatch(r"(['\"]?)(\w+)\1", parts.get("heredoc_start", ""))
    if name is None or "heredoc_end" not in parts:
        return False
    end = next(each for each in node.children if each.type == "heredoc_end")
    first = next((each.start_byte for each in node.children if each.type == "heredoc_body"), end.start_byte)
    blanks = "\t" if "<<-" in parts else ""
    *body, last = source[first : end.end_byte].decode(errors="replace").split("\n")
    behind = source[end.end_byte : end.end_byte + 1]
    plain = name[2] not in [line.lstrip(blanks) if blanks else line for line in body]
    joined = not name[1] and any(line.endswith("\\") for line in body)
    ended = (last.lstrip(blanks) if blanks else last) == name[2] and behind in {b"", b"\n"}
    return plain and ended and not joined


def _inside(node: Node) -> bool:
    """Whether *node* is a part of what was told already, by what it is in."""
    above = node.parent
    return above is not None and above.type not in _LIST_PARTS


def _shown(node: Node) -> str:
    text = " ".join((node.text or b"").decode(errors="replace").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


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
            return UNKNOWN if _MANY.search(text) else whole
        case _ if not node.is_named:
            return _bare(text)
        case _:
            return UNKNOWN


def _bare(text: str) -> str:
    if _MANY.search(text):
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
