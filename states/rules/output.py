"""The output in an answer: where it stands, and what is wrong with it by its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import final

import attrs

from ...effects.messages import Citation, Message, Outcome, Role, Text
from ...effects.output import OutputSpec
from . import model_messages
from .schema import arguments_of, problem, without_nulls

# What models put around JSON that is to be shown as code.
FENCE = "```"

# A fence that ends what is shown, on a line of its own.
_LAST_FENCE = re.compile(rf"\n[ \t]*{FENCE}")


@final
@attrs.frozen
class Candidate:
    """What a model gave for an output: its *text*, and what is wrong with that, empty where nothing is."""

    text: str
    fault: str = ""


def answer_in(history: Sequence[Message], spec: OutputSpec) -> str:
    """The output of *spec* at the end of *history*: the arguments of a call of its tool, else the text."""
    last = history[-1] if history else None
    # Behind calls stand their results: only a call that was taken has the output.
    outcomes = {one.call: one.outcome for one in last.results} if last is not None else {}
    if last is not None and last.role is Role.TOOL and len(history) > 1:
        last = history[-2]
    # An answer that is empty is not kept, so the history then ends with what it answers.
    if last is None or last.role is not Role.ASSISTANT:
        return ""
    # Another tool may have the name where the model is not asked by one.
    tool = spec.tool_for(last.model)
    for call in last.calls:
        if call.name == tool and outcomes.get(call.id) is Outcome.OK:
            # Several providers send no text at all for a call without arguments.
            return call.arguments.strip() or "{}"
    # The answer to results that is not kept was empty, and what was said before them is not it.
    return "" if {*outcomes.values()} - {Outcome.SKIPPED} else _final_text(last)


def _final_text(answer: Message) -> str:
    """The last text of *answer* where that is an object by itself, else all of its text."""
    # Models comment on their work before they answer, and between the calls of provider tools. Where a server
    # sends thinking in the middle of an answer, the last text is only the end of it.
    texts = [text for text in _texts(answer) if text.strip()]
    return texts[-1] if len(texts) > 1 and arguments_of(_bare(texts[-1])) is not None else answer.text


def _texts(answer: Message) -> list[str]:
    """The texts of *answer*. A citation stands in the middle of one, and does not end it."""
    texts: list[str] = []
    after_text = cited = False
    for part in answer.parts:
        if isinstance(part, Text):
            if cited:
                texts[-1] += part.text
            else:
                texts.append(part.text)
            after_text, cited = True, False
        elif isinstance(part, Citation):
            cited = after_text
        else:
            after_text = cited = False
    return texts


def candidate(text: str, spec: OutputSpec) -> Candidate:
    """The output in *text*, without a fence around it and without nulls that stand for nothing."""
    bare = _bare(text)
    if not bare:
        return Candidate(text, model_messages.NO_OUTPUT)
    given = arguments_of(bare)
    if given is None:
        return Candidate(text, "it is no JSON object")
    # A schema in a provider's own subset has no optional properties, so null stands for those left out.
    kept = without_nulls(spec.schema, given)
    if fault := problem(spec.schema, kept):
        return Candidate(text, fault)
    return Candidate(bare if kept == given else json.dumps(kept, ensure_ascii=False))


def _bare(text: str) -> str:
    """*text* without the only fence in it, and what stands around that."""
    bare = text.strip()
    _, fence, rest = bare.partition(FENCE)
    if bare.startswith("{") or not fence:
        return bare
    # A string in JSON has no line ends, so a fence inside of it begins no line.
    closing = _LAST_FENCE.search(rest)
    end = closing.start() if closing else rest.rfind(FENCE)
    if end < 0 or (closing and FENCE in rest[closing.end() :]):
        return bare
    inside = rest[:end]
    language, _, shown = inside.partition("\n")
    return (inside if language.strip().startswith("{") else shown).strip()
