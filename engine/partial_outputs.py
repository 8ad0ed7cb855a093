"""
The output of a run while the model still writes it: `OutputDelta` notices, made of the deltas of an answer.

Theory of operation. The text of the answer, or the arguments of the output tool, are collected from the
notices of each step. When enough new text has come, all of it is parsed once more by jiter, which takes JSON
that breaks off. At the end of the answer the output is read as the machine reads it, so the last partial is
the value that the run comes to, unless that is wrong.
"""

from __future__ import annotations

import json
from functools import cached_property, partial
from typing import TYPE_CHECKING, final

from ..effects.notices import (
    AnswerDropped,
    CallDelta,
    ModelCalled,
    Notice,
    OutputDelta,
    ProviderCalled,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from ..effects.output import VALUE_KEY, OutputSpec
from ..states.rules.output import FENCE, answer_in, candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..effects.messages import Message

# Characters that must have come before the text is parsed again: at least `MIN_GROWTH`, and the length that
# was parsed last divided by `GROWTH_SHARE`. Each parse begins at the beginning, but these lengths grow
# geometrically: an answer of n characters costs the parsing of about (1 + GROWTH_SHARE) * n.
MIN_GROWTH = 32
GROWTH_SHARE = 8

# Characters that a number or a literal may end in. A number at the end of the text may go on.
_UNENDED = "0123456789+-.eE"

# Text that is no output, or none yet.
_NO_OUTPUT = object()


@final
class PartialOutputs:
    """
    Adds the partial outputs of a run, by its *spec*, to the notices of each step.

    *heard* says whether the notices have a reader: without one nothing is parsed.
    """

    def __init__(self, spec: OutputSpec, heard: Callable[[], bool]) -> None:
        self._spec = spec
        self._heard = heard
        # Whether the model is asked for the output now: a summary is none.
        self._asked = False
        # The tool by which it gives the output; empty where none does.
        self._tool = ""
        self._answer = OutputText()
        self._last: object = _NO_OUTPUT

    def filtered(self, notices: Sequence[Notice]) -> Sequence[Notice]:
        """*notices*, and the partial output that they lead to."""
        shown: list[Notice] = []
        for notice in notices:
            if isinstance(notice, TurnEnded):
                shown += self._partial(notice.at, notice.message)
                self._begin(asked=False)
            elif isinstance(notice, ModelCalled):
                self._begin(asked=notice.output is not None)
                self._tool = self._spec.tool_for(notice.model)
            elif isinstance(notice, AnswerDropped):
                # The model is asked again, and its next answer begins anew.
                self._begin(asked=self._asked)
            elif isinstance(notice, ProviderCalled):
                self._answer.end_text()
            elif isinstance(notice, TextDelta | ReasoningDelta | CallDelta):
                self._take(notice)
            shown.append(notice)
        if notices and self._answer.due:
            shown += self._partial(notices[-1].at)
        return shown

    def held_back(self) -> Sequence[Notice]:
        """Nothing is held back."""
        return ()

    @cached_property
    def _parse(self) -> Callable[[bytes], object] | None:
        """Reads JSON that may break off; None without jiter, and then there are no partials."""
        try:
            from jiter import from_json  # noqa: PLC0415  # an extra, for runs whose output is watched
        except ImportError:
            return None
        return partial(from_json, partial_mode="trailing-strings", allow_inf_nan=False)

    def _begin(self, *, asked: bool) -> None:
        self._asked, self._answer, self._last = asked, OutputText(), _NO_OUTPUT

    def _take(self, delta: TextDelta | ReasoningDelta | CallDelta) -> None:
        if isinstance(delta, TextDelta):
            if delta.begins:
                self._answer.end_text()
            self._answer.take_text(delta.text)
            return
        self._answer.end_text()
        if isinstance(delta, CallDelta) and self._tool:
            self._answer.take_call(delta, self._tool)

    def _partial(self, at: float, answer: Message | None = None) -> Iterator[OutputDelta]:
        """The notice of the output so far, if it is another one than the last; *answer* is complete."""
        if not self._asked or not self._heard() or self._parse is None:
            return
        if answer is not None:
            value = _complete_output(answer, self._spec)
        else:
            value = _partial_output(self._answer.parsed(), self._spec, self._parse)
        if value is not _NO_OUTPUT and (self._last is _NO_OUTPUT or value != self._last):
            self._last = value
            yield OutputDelta(value, at=at)


@final
class OutputText:
    """The output in an answer so far, as text: the arguments of the output tool's call, else the text."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        # How many of the pieces are of earlier texts: thinking or calls may stand between two texts.
        self._earlier = 0
        # The length when it was parsed last.
        self._parsed = 0
        # Arguments of calls whose name has not come yet: a few providers send it last.
        self._unnamed: dict[int, list[str]] = {}
        # The first call of the output tool, and those of other tools.
        self._call: int | None = None
        self._others: set[int] = set()

    @property
    def due(self) -> bool:
        """Whether enough came to parse it again."""
        return self._length - self._parsed >= max(MIN_GROWTH, self._parsed // GROWTH_SHARE)

    def take_text(self, text: str) -> None:
        """Add *text* of the answer."""
        if self._call is None:
            self._take(text)

    def end_text(self) -> None:
        """Count the text that follows as another one."""
        if self._call is None:
            self._earlier = len(self._pieces)

    def take_call(self, delta: CallDelta, name: str) -> None:
        """Add *delta* if it is of the first call of the tool *name*."""
        index = delta.index
        if delta.tool == name and self._call is None:
            self._call = index
            # Text before the call is no output.
            self._pieces, self._earlier, self._length, self._parsed = [], 0, 0, 0
            self._take("".join(self._unnamed.pop(index, [])))
        elif delta.tool:
            self._others.add(index)
            self._unnamed.pop(index, None)
        if index == self._call:
            self._take(delta.arguments)
        elif index not in self._others and self._call is None:
            self._unnamed.setdefault(index, []).append(delta.arguments)

    def _take(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def parsed(self) -> str:
        """The JSON in it so far, which is parsed now."""
        self._parsed = self._length
        earlier, last = "".join(self._pieces[: self._earlier]), "".join(self._pieces[self._earlier :])
        self._pieces, self._earlier = [earlier, last], 1
        # A model may comment on its work before it answers.
        return _json_in(earlier + last) or _json_in(last)


def _complete_output(answer: Message, spec: OutputSpec) -> object:
    """The output that *answer* gives by *spec*, as the machine reads it."""
    tool = spec.tool_for(answer.model)
    calls = [call for call in answer.calls if call.name == tool]
    text = (calls[0].arguments.strip() or "{}") if calls else answer_in([answer], spec)
    output = candidate(text, spec)
    return _NO_OUTPUT if output.fault else _unwrapped(json.loads(output.text), spec)


def _partial_output(text: str, spec: OutputSpec, parse: Callable[[bytes], object]) -> object:
    """The output, as far as it is there, in *text*, which is JSON that goes on."""
    begun = text.rstrip(_UNENDED)
    if not begun:
        return _NO_OUTPUT
    try:
        value = parse(begun.encode(errors="surrogatepass"))
    except ValueError:
        # Wrong JSON: the model is asked again.
        return _NO_OUTPUT
    return _unwrapped(_without_nulls(value), spec)


def _json_in(text: str) -> str:
    """*text* from its JSON object on, which begins it or stands in its first fence; empty before that."""
    stripped = text.lstrip()
    if stripped.startswith("{"):
        return stripped
    _, _, fenced = stripped.partition(FENCE)
    _, brace, rest = fenced.partition("{")
    return brace + rest


def _without_nulls(value: object) -> object:
    """*value* without properties that are null."""
    # By a strict schema null may stand for a property that is left out. Which of them the output has is known
    # when it is complete.
    match value:
        case dict():
            return {key: _without_nulls(each) for key, each in value.items() if each is not None}
        case list():
            return [_without_nulls(each) for each in value]
        case _:
            return value


def _unwrapped(value: object, spec: OutputSpec) -> object:
    """The output in *value*, which may be the only property of an object."""
    if not spec.wrapped:
        return value
    return value.get(VALUE_KEY, _NO_OUTPUT) if isinstance(value, dict) else _NO_OUTPUT
