"""Pictures of a session, drawn of its steps: the path it took, who asked whom, and how long calls took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

import attrs

from ...diagrams import SVG, Party, Said, Took, calls, chart, sequence
from ...display.rendering import decision_of, line_of, message_line, printable, quoted, short
from ...effects import events, requests
from ...effects.errors import ArgumentError
from ...effects.messages import Role
from ...effects.notices import RunEnded
from ...effects.records import AppendMessage
from ..journal.entries import Posted
from .replay import ReplayedStep, path_of

# The pictures that there are.
PictureKind = Literal["path", "sequence", "calls"]

# The requests that are drawn.
Asking = requests.CallModel | requests.RunTool | requests.AskApproval | requests.RunAgent | requests.FireHook

# Who does the work of a request.
PARTIES: Final[dict[type[Asking], Party]] = {
    requests.CallModel: Party.MODEL,
    requests.RunTool: Party.TOOLS,
    requests.AskApproval: Party.PERSON,
    requests.RunAgent: Party.CHILDREN,
    requests.FireHook: Party.HOOKS,
}


def picture_of(steps: Iterable[ReplayedStep], kind: PictureKind = "path") -> SVG:
    """The picture of *steps* as SVG; `ArgumentError` for a *kind* that there is not."""
    if kind not in get_args(PictureKind):
        msg = f"kind must be one of {', '.join(get_args(PictureKind))}; got {kind!r}"
        raise ArgumentError(msg)
    found = [*steps]
    match kind:
        case "path":
            return chart(found[-1].label if found else "", path_of(found))
        case "sequence":
            return sequence(said_in(found))
        case "calls":
            return calls(took_in(found))


def said_in(steps: Iterable[ReplayedStep]) -> tuple[Said, ...]:
    """Who asked whom in *steps*, and what came back."""
    told: list[Said] = []
    parties: dict[str, Party] = {}
    posted: set[events.Event] = set()
    for step in steps:
        if step.event is not None:
            told += _happened(step, step.event, parties, posted)
        for effect in step.effects:
            if isinstance(effect, Asking):
                party = parties[effect.id] = PARTIES[type(effect)]
                told.append(Said(step.at, Party.MACHINE, party, _wish(effect), asks=True))
            elif isinstance(effect, requests.Cancel) and (asked := parties.get(effect.request)):
                words = "withdrawn" if asked is Party.PERSON else "cancel"
                told.append(Said(step.at, Party.MACHINE, asked, words))
            elif isinstance(effect, RunEnded):
                told.append(Said(step.at, Party.MACHINE, Party.PERSON, f"ends: {effect.reason}"))
    return tuple(told)


def _happened(
    step: ReplayedStep, event: events.Event, parties: dict[str, Party], posted: set[events.Event]
) -> Iterable[Said]:
    """What *event* says: of a person when it comes in, and of others when they answer."""
    if isinstance(event, events.Post):
        # A posted event has a step of its own later, which is no second word of the person.
        if event in posted:
            posted.discard(event)
            return
        if isinstance(step.entry, Posted):
            posted.add(event)
        yield Said(step.at, Party.PERSON, Party.MACHINE, _spoken(event))
    elif isinstance(event, events.ModelStreamed | events.ToolProgressed | events.AgentProgressed):
        # Pieces of an answer: the whole of it follows.
        return
    elif party := parties.get(getattr(event, "request", "")):
        yield Said(step.at, party, Party.MACHINE, _answer(step, event))


# What a person says whose event has nothing but an id.
WORDS_ALONE: Mapping[type, str] = {
    events.InputWithdrawn: "take back",
    events.CallCancelled: "cancel",
    events.Interrupted: "interrupt",
}


def _spoken(event: events.Post) -> str:
    """What a person says by *event*: an arrow has no room for ids."""
    match event:
        case events.UserSent():
            return quoted(event.text)
        case events.UserSteered():
            return f"steer {quoted(event.text)}"
        case events.ApprovalGiven():
            by = f" ({event.by})" if event.by else ""
            return printable(f"{decision_of(event.decision)}{by}")
        case _:
            return WORDS_ALONE.get(type(event)) or line_of(event)


def _wish(effect: Asking) -> str:
    match effect:
        case requests.CallModel():
            return printable(effect.model)
        case requests.RunTool() | requests.AskApproval():
            return printable(f"{effect.tool} {short(effect.arguments)}")
        case requests.RunAgent():
            return printable(f"{effect.agent} {quoted(effect.prompt)}")
        case requests.FireHook():
            return printable(f"{effect.hook}: {', '.join(effect.names)}")


def _answer(step: ReplayedStep, event: events.Event) -> str:
    if isinstance(event, events.ModelFinished):
        # The pieces came before the end, so only the message has the whole answer.
        messages = [one.message for one in step.effects if isinstance(one, AppendMessage)]
        answers = [message_line(one) for one in messages if one.role is Role.ASSISTANT]
        return answers[0].partition(" ")[2] if answers else str(event.stop)
    if isinstance(event, events.ToolFinished | events.AgentFinished):
        return quoted(event.content)
    # Without its name and its request: the arrow says who answers what.
    kind, *words = line_of(event).split(" ", 2)
    return words[-1] if len(words) > 1 else kind


def took_in(steps: Sequence[ReplayedStep]) -> tuple[Took, ...]:
    """How long each request in *steps* was open."""
    begun: dict[str, Took] = {}
    ended: dict[str, float] = {}
    for step in steps:
        # Cancelled questions and hooks get no answer: the state says that they are closed.
        still = () if step.state is None else step.state.open
        for request in begun.keys() - ended.keys() - {*still}:
            ended[request] = step.at
        for effect in step.effects:
            if isinstance(effect, Asking) and effect.id in still:
                begun[effect.id] = Took(PARTIES[type(effect)], _wish(effect), step.at)
    return tuple([attrs.evolve(one, end=ended.get(request)) for request, one in begun.items()])
