"""What people said that holds on: carried word for word where the rest of a conversation is summarised."""

# Theory of operation. A summary is written by a model, which may forget or soften what a person forbade. So
# sentences with such words as "do not" are taken from people's messages here, whatever the model writes. What
# has no such words, as a decision, the model may quote in a section of its own. A quote counts only where a
# person wrote it as whole sentences, or the most of one: a page that a tool has read must not get a sentence
# in, and "push to main" is no quote of "do not push to main".

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import final

import attrs

from ...effects.messages import Message, Outcome, Role
from . import model_messages

SECTION = "Standing instructions"
"""The section of a summary in which its model quotes people."""

NOTED = "Noted, and in no person's words:"
"""What stands there in front of other lines."""

HEADING = "In people's own words, which hold until they say otherwise; a later line outweighs an earlier one:"
"""What stands in front of the lines that are carried."""

# A longer one is no instruction, but a text that a person pasted.
MOST_OF_SENTENCE = 1_000

# Characters of one message that count without a quote: a document in it must not take all the room.
MOST_OF_MESSAGE = 2_000

# Characters of a message, at its beginning and at its end, in which sentences are looked for.
MOST_READ = 20_000

# Lines of the section that are looked for in what people said.
MOST_QUOTES = 50

# What gives leave counts, too: it may take back what was forbidden.
_BINDS = re.compile(
    r"\b(?:(?:do|must|should)(?: not|n['\u2019]t)|never|always|from now on|no longer|you (?:may|can))\b",
    re.IGNORECASE,
)
# Behind "e.g. " a sentence goes on.
_END_OF_SENTENCE = re.compile(r"(?<=[.!?]) (?![a-z])")
_BEGINS_SECTION = re.compile(rf"[\W_]*{SECTION}[\W_]*", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d+[.)])\s+")
_AROUND = "\"'`\u201c\u201d\u2018\u2019\u00ab\u00bb*_ .!"

# How results begin that are denials, and no person's words.
_DENIALS = (
    *("Denied by a rule: ", "Denied by a hook: ", "Denied: the permission mode is "),
    *(model_messages.DENIED, model_messages.NOT_ANSWERED),
)


@final
@attrs.frozen
class Standing:
    """The *lines* to carry, the *summary* without its quotes of these, and how many lines had no room."""

    lines: tuple[str, ...]
    summary: str
    left_out: int = 0


def standing(summary: str, messages: Iterable[Message], before: tuple[str, ...], most: int) -> Standing:
    """
    What is carried on where *summary* takes the place of *messages*: the lines from *before*, and new ones.

    All lines together have *most* characters. What the model quoted and has no room stays in the summary.
    """
    head, section, tail = _parted(summary)
    quotes = [[part.strip(_AROUND) for part in _sentences(line)] for line in section[:MOST_QUOTES]]
    lines = dict.fromkeys(before if most else ())
    room, left_out = most - sum(map(len, lines)), 0
    quoted: set[int] = set()
    for message in messages:
        unquoted = MOST_OF_MESSAGE
        for sentence in _said(message):
            found = {number for number, quote in enumerate(quotes) if _is_quoted(sentence, quote)}
            binds = unquoted > 0 and _BINDS.search(sentence) is not None
            if not (found or binds):
                continue
            # Said once more, it stands last: it outweighs what came between.
            if sentence in lines:
                del lines[sentence]
                room += len(sentence)
            unquoted -= len(sentence)
            if len(sentence) > room:
                left_out += 1
                continue
            room -= len(sentence)
            lines[sentence] = None
            quoted |= found
    stays = [line for number, line in enumerate(section) if number not in quoted and _sentences(line)]
    if stays:
        head = [*head, NOTED, *stays]
    rest = "\n".join([*head, *tail]).replace(HEADING, "").strip()
    return Standing(tuple(lines), rest, left_out)


def with_lines(summary: str, lines: Iterable[str]) -> str:
    """*summary* with the *lines* that are carried behind it."""
    carried = [f"- {line}" for line in lines]
    return "\n".join([summary, "", HEADING, *carried]).strip() if carried else summary


def _parted(summary: str) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """The lines of *summary* before its section of quotes, those of the section, and those behind it."""
    lines = summary.split("\n")
    begin = next((number for number, line in enumerate(lines) if _BEGINS_SECTION.fullmatch(line)), len(lines))
    section = list(takewhile(lambda line: not line.strip() or _BULLET.match(line), lines[begin + 1 :]))
    return lines[:begin], section, lines[begin + 1 + len(section) :]


def _is_quoted(sentence: str, quote: Sequence[str]) -> bool:
    """Whether *quote*, bare sentences, has *sentence*, or is the most of it."""
    bare = sentence.strip(_AROUND)
    if not bare or bare in quote:
        return bool(bare)
    return len(quote) == 1 and quote[0] in bare and 2 * len(quote[0]) > len(bare)


def _sentences(text: str) -> list[str]:
    """The sentences of *text*, each on one line; a list or an empty line ends one, too."""
    blocks: list[list[str]] = [[]]
    for line in text.split("\n"):
        bullet = _BULLET.match(line)
        if bullet or not line.strip():
            blocks.append([])
        blocks[-1] += line[bullet.end() if bullet else 0 :].split()
    found = [each for block in blocks for each in _END_OF_SENTENCE.split(" ".join(block))]
    return [sentence for sentence in found if sentence]


def _said(message: Message) -> Iterator[str]:
    """The sentences of a person in *message*."""
    texts = [message.text] if message.role is Role.USER else []
    # A no may say why, and that reaches the model as the result. Of a denial by a rule or a hook each process
    # is told anew.
    denials = [result.content for result in message.results if result.outcome is Outcome.DENIED]
    texts += [content for content in denials if not content.startswith(_DENIALS)]
    for text in texts:
        if len(text) <= 2 * MOST_READ:
            sentences = _sentences(text)
        else:
            # Half of a sentence may say the opposite of it.
            sentences = [*_sentences(text[:MOST_READ])[:-1], *_sentences(text[-MOST_READ:])[1:]]
        yield from (sentence for sentence in sentences if len(sentence) <= MOST_OF_SENTENCE)
