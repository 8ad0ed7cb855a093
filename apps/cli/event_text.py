"""
What an event or an effect says, in few words.

They are looked at as plain data, since another version may have written them: of what is not known here the
fields are told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from ...engine.inspect.bisect import Plain
from ..terminal.call_summary import essence, number
from .option_types import short

UNSAID = frozenset({"type", "at", "id", "request", "run"})
"""Fields that are not told of what is not known here."""

ENOUGH = 1_000
"""Characters of arguments that are looked at; a line shows fewer."""


def told(value: Plain) -> tuple[str, str]:
    """What *value*, an entry, an event or an effect, is called, and what it says."""
    kind = str(value["type"])
    match kind:
        case "Stepped":
            return told(value["event"])
        case "Posted":
            return kind, " ".join(filter(None, told(value["event"])))
        case _ if kind in WORDS:
            try:
                return kind, WORDS[kind](value)
            except (KeyError, TypeError, AttributeError):  # another version has it otherwise
                return kind, _fields(value)
        case _:
            return kind, _fields(value)


def _fields(value: Plain) -> str:
    known = {name: each for name, each in value.items() if name not in UNSAID and each is not None}
    return " ".join(f"{name}={_field(each)}" for name, each in known.items())


def _field(value: object) -> str:
    match value:
        case {"type": str(kind)}:
            return kind
        case list():
            return str(len(value))
        case dict():
            return "..."
        case _:
            return str(value)


def _call(value: Plain) -> str:
    """A call of a tool: what it is about, and its number."""
    call = value.get("call", "")
    words = (value["tool"], essence(value["tool"], value["arguments"], ENOUGH), call and f"#{short(call)}")
    return " ".join(filter(None, words))


def _said(pieces: list[Plain]) -> str:
    """What *pieces* of an answer say: its text, or what was thought where there is none, and its calls."""
    of = {kind: [one for one in pieces if one["type"] == kind] for kind in ("TextPiece", "ReasoningPiece")}
    text, thought = ("".join(one["text"] for one in each) for each in of.values())
    calls = [
        _call({"tool": one.get("name", ""), "arguments": one.get("arguments", "")})
        for one in pieces
        if one["type"] == "CallPiece"
    ]
    return " ".join(filter(None, [text or thought, *calls]))


def _finished(value: Plain) -> str:
    usage = value["usage"]
    used = number(usage.get("input", 0) + usage.get("output", 0), "token")
    return " ".join(filter(None, [f"{value['stop']}, {used}", _said(value.get("pieces", []))]))


def _ended(value: Plain) -> str:
    """What came of a tool or a child; its outcome where that is none to be expected."""
    outcome = value.get("outcome", "ok")
    return value["content"] if outcome == "ok" else f"{outcome}: {value['content']}"


def _decided(value: Plain) -> str:
    decision = value["decision"]
    match decision["type"]:
        case "Deny":
            words = ["no", decision.get("message", ""), "and stop" * decision.get("interrupt", False)]
        case "ApproveAlways":
            words = ["yes, always"]
        case "Approve":
            words = ["yes", decision.get("arguments", "")]
        # A newer turnwheel may know other decisions, and those are not a yes.
        case kind:
            words = [kind]
    by = f" (by {value['by']})" if value.get("by") else ""
    return f"#{short(value['request'])} {', '.join(filter(None, words))}{by}"


def _changed(value: Plain) -> str:
    change = value["change"]
    return " ".join(str(each) for name, each in change.items() if name != "type") or "as configured"


def _hooks(value: Plain) -> str:
    """What hooks answered, each by its name; most have nothing to say."""
    said = {
        one["name"]: one.get("fault") or one.get("answer", {}).get("verdict") for one in value.get("said", [])
    }
    return ", ".join(f"{name}: {answer}" if answer else name for name, answer in said.items())


def _message(value: Plain) -> str:
    message = value["message"]
    parts = [_part(part) for part in message["parts"]]
    return f"{message['role']}: {' '.join(filter(None, parts))}"


def _part(part: Plain) -> str:
    match part["type"]:
        case "Text" | "Reasoning":
            return str(part["text"])
        case "ToolCall":
            return _call({"tool": part["name"], "arguments": part["arguments"], "call": part["id"]})
        case "ToolResult":
            return f"#{short(part['call'])} {_ended(part)}"
        case _:
            return ""


def _spent(value: Plain) -> str:
    usage = value["spent"].get("usage", {})
    return number(usage.get("input", 0) + usage.get("output", 0), "token")


def _model(value: Plain) -> str:
    purpose, attempt, output = value.get("purpose", "turn"), value.get("attempt", 1), value.get("output")
    words = {
        f"for a {purpose}": purpose != "turn",
        f"output: {output}": output,
        f"try {attempt}": attempt > 1,
    }
    return " ".join([value["model"], *[word for word, told in words.items() if told]])


def _forked(value: Plain) -> str:
    run = value.get("run", "")
    return f"from session {value['session']}" + (f", goes on as run {run}" if run else "")


WORDS: Final[Mapping[str, Callable[[Plain], str]]] = {
    # Entries
    "RunOpened": lambda value: f"{value['run']}, {value['config']['model']['name']}",
    "TakenOver": lambda value: "set up differently" if value.get("config") else "",
    "Branched": lambda value: f"to the end of run {value['run']}" if value["run"] else "to the beginning",
    "Forked": _forked,
    "Titled": lambda value: str(value["title"]),
    # Events
    "ModelStreamed": lambda value: _said(value["pieces"]),
    "ModelFinished": _finished,
    "ModelFailed": lambda value: f"{value['failure']}: {value['message']}",
    "ToolFinished": _ended,
    "AgentFinished": _ended,
    "AgentProgressed": _spent,
    "ApprovalGiven": _decided,
    "HookAnswered": lambda value: _hooks(value) if "said" in value else "",
    "InstructionsRead": lambda value: number(len(value["text"]), "character"),
    "OutputDecoded": lambda value: str(value["fault"]) if value["fault"] else "it is right",
    "UserSent": lambda value: str(value["text"]),
    "UserSteered": lambda value: str(value["text"]),
    "InputWithdrawn": lambda value: str(value["input"]),
    "ControlReceived": _changed,
    "CallCancelled": lambda value: f"#{short(value['call'])}",
    # Effects
    "CallModel": _model,
    "RunTool": _call,
    "AskApproval": _call,
    "ApprovalRequested": _call,
    "ApprovalResolved": _decided,
    "CallJudged": lambda value: f"#{short(value['call'])} {value['verdict']}, by {value['ground']}",
    "HookAsked": lambda value: f"{value['hook']}: {', '.join(value['names'])}",
    "HookEnded": _hooks,
    "ModelCalled": _model,
    "RetryScheduled": lambda value: f"{value['failure']}: {value['message']}",
    "TurnEnded": lambda value: f"{value['turn']}: {value['stop']}",
    "ToolStarted": _call,
    "CallSettled": _ended,
    "FireHook": lambda value: f"{value['hook']}: {', '.join(value['names'])}",
    "RunAgent": lambda value: f"{value['agent']} #{short(value['call'])}: {value['prompt']}",
    "SetTimer": lambda value: f"until {time.strftime('%H:%M:%S', time.localtime(value['due']))}",
    "Cancel": lambda value: f"#{short(value['request'])}",
    "AppendMessage": _message,
    "AddUsage": _spent,
    "TextDelta": lambda value: str(value["text"]),
    "ReasoningDelta": lambda value: str(value["text"]),
    "RunEnded": lambda value: " ".join(filter(None, [value["reason"], value.get("detail", "")])),
}
"""What each says that is worth more than its fields."""
