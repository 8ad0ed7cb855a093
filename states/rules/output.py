"""The output in an answer: where it stands, and what is wrong with it by its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import final

import attrs

from ...effects.messages import Citation, Message, Outcome, Role, StopReason, Text
from ...effects.output import OutputSpec
from . import model_messages
from .schema import arguments_of, problem, without_nulls

# The mark that models put around JSON to have it shown as code.
FENCE = "```"

# A closing fence, on a line of its own.
_LAST_FENCE = re.compile(rf"\n[ \t]*{FENCE}")


@final
@attrs.frozen
class Candidate:
    """The *text* that a model gave for an output, and its *fault*, which is empty where it fits."""

    text: str
    fault: str = ""


def answer_in(history: Sequence[Message], spec: OutputSpec) -> str:
    """The output of *spec* at the end of *history*: the arguments of a call of its tool, else the text."""
    last = history[-1] if history else None
    # Behind calls stand their results: only a call that was taken has the output.
    outcomes = {result.call: result.outcome for result in last.results} if last is not None else {}
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
    # Behind results of calls that ran, an empty answer is not kept. Text before the calls is no output, nor
    # is that of an answer that goes on.
    is_over = last.stop is not StopReason.PAUSED
    return _final_text(last) if is_over and {*outcomes.values()} <= {Outcome.SKIPPED} else ""


def _final_text(answer: Message) -> str:
    """The last text of *answer* where that is an object by itself, else all of its text."""
    # Models comment on their work before they answer, and between the calls of provider tools. Where a server
    # sends thinking in the middle of an answer, the last text is only the end of it.
    texts = [text for text in _texts(answer) if text.strip()]
    return texts[-1] if len(texts) > 1 and arguments_of(_unfenced(texts[-1])) is not None else answer.text


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
    """The output in *text*, without a fence around it and without nulls of optional properties."""
    unfenced = _unfenced(text)
    if not unfenced:
        return Candidate(text, model_messages.NO_OUTPUT)
    value = arguments_of(unfenced)
    if value is None:
        return Candidate(text, "it is no JSON object")
    # A schema in a provider's own subset has no optional properties, so null stands for those left out.
    cleaned = without_nulls(spec.schema, value)
    if fault := problem(spec.schema, cleaned):
        return Candidate(text, fault)
    return Candidate(unfenced if cleaned == value else json.dumps(cleaned, ensure_ascii=False))


def _unfenced(text: str) -> str:
    """The text inside of the only fence in *text*; all of *text* where there is none or several."""
    stripped = text.strip()
    _, fence, rest = stripped.partition(FENCE)
    if stripped.startswith("{") or not fence:
        return stripped
    # A string in JSON has no line ends, so a fence inside of it begins no line.
    closing = _LAST_FENCE.search(rest)
    end = closing.start() if closing else rest.rfind(FENCE)
    if end < 0 or (closing and FENCE in rest[closing.end() :]):
        return stripped
    fenced = rest[:end]
    # Behind the opening fence may stand a language, such as "json".
    language, _, code = fenced.partition("\n")
    return (fenced if language.strip().startswith("{") else code).strip()
