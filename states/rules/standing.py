"""What people said that holds on: carried word for word where the rest of a conversation is summarised."""

# Theory of operation. A summary is written by a model, which may forget or soften what a person forbade. So
# sentences with such words as "do not" are taken from people's messages here, whatever the model writes. What
# has no such words, as a decision, the model may quote in a section of its own. A quote counts only where it
# is in a person's message: a page that a tool has read must not get a sentence in. And it stands for whole
# sentences: "push to main" is no quote of "do not push to main".

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import final

import attrs

from ...effects.messages import Message, Outcome, Role

SUMMARY_PREFIX = "[Summary of the conversation so far]\n"

SECTION = "Standing instructions"
"""The section of a summary in which its model quotes people."""

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

_BINDS = re.compile(r"\b(?:(?:do|must|should)(?: not|n['\u2019]t)|never|always|from now on)\b", re.IGNORECASE)
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
_BEGINS_SECTION = re.compile(rf"[\W_]*{SECTION}[\W_]*", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d+[.)])\s+")
_QUOTATION_MARKS = "\"'`\u201c\u201d\u2018\u2019\u00ab\u00bb*_ "


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
    quotes = [_quote(line) for line in section[:MOST_QUOTES]]
    lines, room, left_out = list(before), most - sum(map(len, before)), 0
    for message in messages:
        unquoted = MOST_OF_MESSAGE
        for sentence in _sentences(message):
            is_quoted = any(_quotes(quote, sentence) for quote in quotes)
            if sentence in lines or not (is_quoted or (unquoted > 0 and _BINDS.search(sentence))):
                continue
            unquoted -= len(sentence)
            if len(sentence) > room:
                left_out += 1
                continue
            room -= len(sentence)
            lines.append(sentence)
    stays = [
        line
        for line, quote in zip(section, quotes, strict=False)
        if quote and not any(_quotes(quote, sentence) for sentence in lines)
    ]
    stays += section[MOST_QUOTES:]
    if any(map(str.strip, stays)):
        head = [*head, SECTION, *stays]
    return Standing(tuple(lines), "\n".join([*head, *tail]).strip(), left_out)


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


def _quote(line: str) -> str:
    return " ".join(_BULLET.sub("", line, count=1).split()).strip(_QUOTATION_MARKS)


def _quotes(quote: str, sentence: str) -> bool:
    """Whether *quote* is of *sentence*: most of it, or it and others."""
    bare = sentence.strip(_QUOTATION_MARKS)
    return bool(quote) and (bare in quote or (quote in bare and 2 * len(quote) > len(bare)))


def _sentences(message: Message) -> Iterator[str]:
    """The sentences of a person in *message*."""
    for said in _said(message):
        sentences = _END_OF_SENTENCE.split(said[: 2 * MOST_READ])
        if len(said) > 2 * MOST_READ:
            # Half of a sentence may say the opposite of it.
            begin, end = said[:MOST_READ], said[-MOST_READ:]
            sentences = [*_END_OF_SENTENCE.split(begin)[:-1], *_END_OF_SENTENCE.split(end)[1:]]
        for sentence in sentences:
            words = " ".join(sentence.split())
            if 0 < len(words) <= MOST_OF_SENTENCE:
                yield words


def _said(message: Message) -> Iterator[str]:
    if message.role is Role.USER and not message.text.startswith(SUMMARY_PREFIX):
        yield message.text
    # A no may say why, and that reaches the model as the result. Of a denial by a rule or a hook each process
    # is told anew.
    for result in message.results:
        if result.outcome is Outcome.DENIED and not result.content.startswith("Denied"):
            yield result.content
