"""What comes in from outside and leaves a state as it is: prompts and steers that wait, changed settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.events import ControlReceived, UserSent, UserSteered
from ..effects.notices import InputReceived, SettingChanged, SettingRefused
from .draft import ignore
from .rules import control

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context
    from .state import State


def received(state: State, ctx: Context) -> tuple[Effect, ...]:
    """
    The effects of *ctx*'s event, which does not move *state*.

    An input waits in the mail, a setting holds from the next time it is looked at, and anything else does not
    apply here.
    """
    event = ctx.event
    match event:
        case UserSent() | UserSteered():
            return (InputReceived(id=event.id),)
        case ControlReceived(change=change):
            if why := control.refusal(ctx.config, change):
                return (SettingRefused(change=change, reason=why),)
            return (change, SettingChanged(change=change))
        case _:
            return ignore(state, ctx)
