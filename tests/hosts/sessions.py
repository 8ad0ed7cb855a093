"""What a client does with a session as an object, where its host has no other way in."""

from __future__ import annotations

from contextlib import suppress

from hosts.host import Answer, Cancel, Input, Interrupt, Look, Prompt, Steer, Think
from turnwheel import Approve, Deny, Session
from turnwheel.effects.config import Steering
from turnwheel.effects.errors import UnknownCall, UnknownRequest
from turnwheel.effects.records import SetThinking


async def give(one: Session, given: Input) -> None:
    """Put *given* in. An answer that comes too late is one, too: an earlier try may have been taken."""
    match given:
        case Prompt(id, text):
            await one.send(text, id=id)
        case Steer(id, text):
            await one.steer(text, Steering.AFTER_TOOL, id=id)
        case Answer(request, yes, arguments):
            approved = Approve() if arguments is None else Approve(arguments=dict(arguments))
            with suppress(UnknownRequest):
                await one.approve(request, approved if yes else Deny())
        case Interrupt():
            await one.interrupt()
        case Think(tokens):
            await one.control(SetThinking(tokens=tokens))
        case Cancel(call):
            with suppress(UnknownCall):
                await one.cancel(call)


def look_at(one: Session) -> Look:
    """Whether *one* is over, and its questions, as far as it has been read."""
    over = one.machine is not None and not one.unfinished and not one.queue
    return Look(over, tuple([asked.id for asked in one.waiting]))
