"""What a model reads when a call did not run, or not to its end."""

from __future__ import annotations

from ...effects.permissions import Basis
from .permission import Judgement

# A model acts on these words. Each says what happened, whether the call may have run, and what to do next;
# none says that a call did not run where that is not known.
CANCELLED = "Cancelled"
INTERRUPTED_BEFORE = "interrupted before it came in"
TAKEN_BACK = "taken back before it came in"
SKIPPED_AFTER_STEER = "Skipped: the user said something new, which comes next."
SKIPPED_AFTER_DENIAL = "Skipped: a person denied another call of this message."
DENIED = "Denied by the user. Do not try this again without asking."
NOT_ANSWERED = "Denied: nobody answered within"
OVER_BUDGET = "Cancelled: the budget of this run is used up."
CUT_OFF = "Not run: the answer ended before its calls could be trusted."
MAY_HAVE_RUN = "Interrupted while this tool was running: it may have run."
LOST = "The process stopped while this tool was running: it may have run. Check before running it again."
CONTINUE = "Continue where you left off."
CONTINUE_TO_OUTPUT = "The answer was cut. Go on, and give the output as a whole."
OUTPUT_TAKEN = "The output was received."
OUTPUT_NOT_TAKEN = (
    "Not taken: another call of this message failed. See its result, then give the output again."
)
ONE_OUTPUT = "Not taken: another call of this message has the output."
NO_OUTPUT = "there is none"


def count(number: int, what: str) -> str:
    """*number* of *what*, as in ``1 message`` and ``2 messages``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def wanted_output(schema: str, description: str) -> str:
    """The request for an output as text, to a model that has neither a field for it nor a tool."""
    described = f"{description}\n" if description else ""
    return (
        f"{described}Give the final answer as one JSON object that fits this JSON Schema, "
        f"without any text around it:\n{schema}"
    )


def wrong_output(fault: str, tool: str) -> str:
    """The message to a model about its wrong output, which the *tool* gives unless that is empty."""
    how = f"Call {tool} again with the whole of it." if tool else "Answer with the whole JSON object again."
    return f"The output is not right: {fault}. {how}"


def not_found(name: str, offered: tuple[str, ...]) -> str:
    """The result of a call to a tool that is not there."""
    there = f" Available: {', '.join(offered)}." if offered else ""
    return f"Tool not found: {name}.{there}"


def no_budget_for(agent: str, missing: str, *, at_work: bool) -> str:
    """The result of a call for a child that there is no budget for; *missing* says how much there is."""
    # Alone, waiting would change nothing: the model is told to ask again only beside others.
    others = " The rest is set aside for agents at work; ask again when they are done." if at_work else ""
    return f"Not started: there is only {missing} left for {agent!r}.{others}"


def shortened(content: str, limit: int, call: str, reader: str) -> str:
    """
    The beginning and the end of *content*, a result longer than *limit* characters.

    *reader* is the tool that reads the rest, where there is one; *call* is what it asks for.
    """
    side = limit // 10
    out = len(content) - 2 * side
    how = f": {reader} with id {call!r} reads them, from offset {side} on" if reader else ""
    # Both ends: a command's output begins with what was asked and ends with how it went.
    head, tail = content[:side], content[len(content) - side :]
    return f"{head}\n[... {out} of {len(content)} characters are left out{how} ...]\n{tail}"


def not_run_again(why: str) -> str:
    """The result of a call that may have run when its process was lost, and does not run again."""
    return f"The process stopped while this tool was running: it may have run. It was not run again: {why}"


def run_again(content: str) -> str:
    """The result *content* of a call that was run again, and may have run when its process was lost."""
    return f"{content}\n[The process stopped during an earlier try of this call, which may have run.]"


def invalid_arguments(name: str, problem: str, *, again: bool = False) -> str:
    """The result of a call whose arguments do not fit; *again*: it may have run before."""
    why = f"Invalid arguments for {name}: {problem}."
    # A second try that is refused says nothing of the first, which may have done the work.
    return not_run_again(why) if again else f"{why} The tool was not run."


def secrets_gone(name: str, placeholders: tuple[str, ...], *, again: bool = False) -> str:
    """
    The result of a call that was passed placeholders whose values are gone.

    *again*: it may have run before that.
    """
    # The placeholders are named: the model finds them in the history, and knows what to ask for.
    gone, is_gone = ", ".join(placeholders), "is" if len(placeholders) == 1 else "are"
    why = (
        f"{gone} {is_gone} not known here any more. What is secret is not written down, "
        "and the process that had it is gone."
    )
    if again:
        return f"{not_run_again(why)} Check whether it ran before you ask for it and pass it anew."
    return f"{name} was not run: {why} Ask for it or read it again, and pass it anew."


def denied(judgement: Judgement) -> str:
    """The result of a call that may not run, without a question."""
    match judgement.ground:
        case Basis.RULE:
            return f"Denied by a rule: {judgement.detail}."
        case Basis.HOOK:
            # A hook's reason is its host's own sentence, so no full stop is added.
            return f"Denied by a hook: {judgement.detail}"
        case _:
            return f"Denied: the permission mode is {judgement.detail!s}."


def not_carried(lines: int, room: int) -> str:
    """What says that not all lines of people that may bind are carried word for word."""
    said = count(lines, "line")
    return f"{said} of what people said had no room beside the summary, which has {room:,} characters for it"


def not_answered(seconds: float) -> str:
    """The result of a call whose question was not answered in time."""
    # Without its last sentence a model would ask again at once, and wait as long once more.
    return f"{NOT_ANSWERED} {seconds:g} s. Do not try this again without asking."
