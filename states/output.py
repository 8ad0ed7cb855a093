"""The output of a run: whether the answer that would end it is the one that was asked for."""

# Theory of operation.
#
# All modes of asking lead here. An answer that would end the run stands at the end of the history: as text,
# or as the call of a tool that nothing runs. It is judged in two halves. The first is pure: the schema. The
# second is the class of the caller, whose constructors and validators are any code; so a performer makes the
# object, and what came of that is an event like any other.
#
# A wrong output is told to the model by a message of its own, which goes through the stage `Go` as everything
# does that a model is asked. How often is counted in the memory, so a crash does not begin to count anew.

from __future__ import annotations

from ..effects import Effect
from ..effects.events import OutputDecoded
from ..effects.messages import Finish, user
from ..effects.notices import DoneReason, Warned
from ..effects.records import AppendMessage, CountOutput
from ..effects.requests import DecodeOutput
from .builder import Draft, end_reason
from .context import Context
from .rules import model_messages
from .rules.output import answer_in, candidate
from .state import Checking, Decoding, End, Go, Thinking

OutputStep = tuple[Thinking, tuple[Effect, ...]]


def said_all(finish: Finish, ctx: Context) -> Checking | End:
    """The stage behind an answer without calls that ended with *finish*: a refusal is no output."""
    reason = end_reason(finish.reason)
    is_output = ctx.config.output is not None and reason is not DoneReason.REFUSAL
    return Checking(reason=reason) if is_output else End(reason=reason, detail=finish.detail)


def checked(stage: Checking, ctx: Context) -> OutputStep:
    """Judge the answer at the end of the history by the schema of the output."""
    draft, spec, history = Draft(ctx), ctx.config.output, ctx.memory.history
    if spec is None:
        # Another process went on with the run, and asks for no output.
        return draft.to(Thinking(stage=End(reason=stage.reason)))
    answer = candidate(answer_in(history.slice(max(0, len(history) - 2), len(history)), spec), spec)
    if answer.fault:
        return _wrong(answer.text, answer.fault, draft, ctx)
    if not spec.decoded:
        return draft.to(Thinking(stage=End(reason=stage.reason, output=answer.text)))
    request = draft.new_id()
    draft.add(DecodeOutput(id=request, text=answer.text))
    return draft.to(Thinking(stage=Decoding(request=request, reason=stage.reason, text=answer.text)))


def decoded(stage: Decoding, event: OutputDecoded, ctx: Context) -> OutputStep:
    """Go on with what the class of the output answered: end the run, or ask again."""
    draft = Draft(ctx)
    if event.fault:
        return _wrong(stage.text, event.fault, draft, ctx)
    return draft.to(Thinking(stage=End(reason=stage.reason, output=stage.text)))


def _wrong(text: str, fault: str, draft: Draft, ctx: Context) -> OutputStep:
    """Ask again for the output, which is not *text* because of *fault*; or end the run."""
    spec, tries = ctx.config.output, ctx.config.retries.output
    if ctx.memory.progress.outputs >= tries:
        return draft.to(Thinking(stage=End(reason=DoneReason.OUTPUT_INVALID, detail=fault, output=text)))
    again = model_messages.wrong_output(fault, "" if spec is None else spec.tool_for(ctx.model.name))
    draft.add(
        AppendMessage(message=user(again, ctx.now)),
        CountOutput(),
        Warned(text=f"the output is not right, and is asked for again: {fault}", at=draft.at),
    )
    return draft.to(Thinking(stage=Go()))
