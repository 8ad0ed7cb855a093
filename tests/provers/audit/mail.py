"""
What must hold of what people say: each input becomes part of one message, or is refused, or still waits.

The book holds the events as they came in and makes of them what it is due; nothing may get lost, come twice
or overtake.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

import attrs

from turnwheel.effects.config import Steering
from turnwheel.effects.events import InputWithdrawn, UserSent, UserSteered
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import Message, Role, user
from turnwheel.effects.notices import InputBlocked, InputDropped, InputTaken, RunEnded
from turnwheel.effects.records import AppendMessage, MailKind, TakeMail
from turnwheel.effects.requests import CallModel, FireHook, Purpose
from turnwheel.states.thinking import NATURAL_ENDS

if TYPE_CHECKING:
    from turnwheel.effects import Effect
    from turnwheel.effects.config import Config
    from turnwheel.engine.inspect.transitions import Transition
    from turnwheel.states.context import Mail, Memory

Input = UserSent | UserSteered
"""What waits in the mail."""

Told = InputTaken | InputBlocked | InputDropped
TOLD = (InputTaken, InputBlocked, InputDropped)
"""What may be told of inputs that leave it."""


@final
@attrs.define(kw_only=True)
class MailBook:
    """
    The inputs of one run that are *waiting*, in the order they came.

    *asked* are those that hooks are asked about. *begun*: the prompt is in; *refused*: it never will be.
    """

    waiting: tuple[Input, ...]
    asked: tuple[Input, ...] = ()
    begun: bool = False
    refused: bool = False

    @classmethod
    def of(cls, memory: Memory) -> MailBook:
        """A new book for a run that begins with *memory*."""
        return cls(waiting=tuple([_posted(mail) for mail in memory.session.mail]))

    def copy(self) -> MailBook:
        """A book that goes on from here on its own."""
        return MailBook(waiting=self.waiting, asked=self.asked, begun=self.begun, refused=self.refused)

    @property
    def urgent(self) -> bool:
        """Whether something waits that is to be read before any further call runs."""
        return any(isinstance(one, UserSteered) and one.how is not Steering.WHEN_DONE for one in self.waiting)

    def take(self, now: Transition) -> list[str]:
        """The faults of the step *now*."""
        if isinstance(now.event, Input):
            self.waiting = (*self.waiting, now.event)
        faults: list[str] = []
        for effect in now.effects:
            faults += self._effect(effect, now)
        if len(now.remembered.session.mail) != len(self.waiting) or (
            now.memory.session.mail is not now.remembered.session.mail
            and [_posted(mail) for mail in now.remembered.session.mail] != list(self.waiting)
        ):
            faults.append(f"the mail has {now.remembered.session.mail}, waiting are {self.waiting}")
        return faults

    def _effect(self, effect: Effect, now: Transition) -> list[str]:
        match effect:
            case FireHook(hook=Hook.USER_PROMPT_SUBMIT, payload=payload):
                self.asked = self._due(now.config)
                asked = [one.text for one in self.asked]
                return [] if json.loads(payload) == {"prompts": asked} else [f"{effect} is about {asked}"]
            case TakeMail():
                return self._taken(effect, now)
            case CallModel(purpose=Purpose.TURN):
                unread = [one.id for one in self.waiting if isinstance(one, UserSteered)]
                faults = [f"{effect.id} leaves while {unread} wait to be read"] if unread else []
                return faults if self.begun else [*faults, f"{effect.id} leaves without a prompt"]
            case RunEnded(reason=reason) if reason in NATURAL_ENDS:
                unread = [one.id for one in self.waiting if isinstance(one, UserSteered)]
                return [f"the run ended while {unread} wait to be read"] if unread else []
            case effect if isinstance(effect, TOLD) and not any(
                isinstance(one, TakeMail) for one in now.effects
            ):
                return [f"{effect} takes nothing out of the mail"]
            case _:
                return []

    def _dropped(self, event: InputWithdrawn, told: list[Told], now: Transition) -> list[str]:
        """What was taken back waited, or had not come, and is told once."""
        waited = event.input in _ids(self.waiting) or event.input not in now.memory.session.received
        self.waiting = tuple([one for one in self.waiting if one.id != event.input])
        # Hooks that were asked about it are asked anew.
        if event.input in _ids(self.asked):
            self.asked = ()
        if not waited or told != [InputDropped(id=event.input, at=event.at)]:
            return [f"{event} is told as {told}, and waited: {waited}"]
        return []

    def _taken(self, taken: TakeMail, now: Transition) -> list[str]:
        """What is taken is due, is told once, and is in the conversation, refused or dropped."""
        told = [effect for effect in now.effects if isinstance(effect, TOLD)]
        if isinstance(now.event, InputWithdrawn) and taken.ids == (now.event.input,):
            return self._dropped(now.event, told, now)
        due = self.asked or self._due(now.config)
        faults = [] if _ids(due) == taken.ids else [f"{taken} takes not what is due, {_ids(due)}"]
        self.asked = ()
        self.waiting = tuple([one for one in self.waiting if one.id not in taken.ids])
        read = [one for one in now.effects if isinstance(one, InputTaken | InputBlocked)]
        if [one.ids for one in read] != [taken.ids]:
            return [*faults, f"{taken} is told as {read}"]
        if isinstance(read[0], InputBlocked):
            self.refused = self.refused or not self.begun
            return faults
        # Where the prompt was taken back, the run begins with what was said besides.
        self.begun = True
        said = _said(now)
        if self.refused or not (messages(due) == read[0].messages == said):
            faults.append(f"{due} are told as {read[0].messages} and kept as {said}")
        return faults

    def _due(self, config: Config) -> tuple[Input, ...]:
        """What is to be read next: at first a prompt, with what its sender added; and all that steers."""
        group: list[UserSent] = []
        prompts = [one for one in self.waiting if isinstance(one, UserSent)]
        longest = config.policy.coalesce_longest
        for one in prompts if not (self.begun or self.refused) else ():
            late = bool(longest and group) and (
                one.at > group[0].at + longest or prompts.index(one) > len(group)
            )
            if not group or (not late and _adds(one, group[-1], config.policy.coalesce)):
                group.append(one)
        return tuple([one for one in self.waiting if one in group or isinstance(one, UserSteered)])


def _adds(one: UserSent, last: Input, within: float) -> bool:
    """Whether *one* is said by whoever said *last*, and soon enough to be one with it."""
    same = isinstance(last, UserSent) and bool(one.sender) and one.sender == last.sender
    return same and within > 0 and 0 <= one.at - last.at <= within


def messages(due: tuple[Input, ...]) -> tuple[Message, ...]:
    """What *due* are to become: one message of all prompts, in the place of the first, and one per steer."""
    prompts = [one for one in due if isinstance(one, UserSent)]
    text = "\n".join([one.text for one in prompts])
    files = tuple([file for one in prompts for file in one.files])
    return tuple(
        [
            user(text, prompts[-1].at, files) if one in prompts else user(one.text, one.at, one.files)
            for one in due
            if one not in prompts[1:]
        ]
    )


def _said(now: Transition) -> tuple[Message, ...]:
    added = [effect.message for effect in now.effects if isinstance(effect, AppendMessage)]
    return tuple([message for message in added if message.role is Role.USER])


def _ids(inputs: tuple[Input, ...]) -> tuple[str, ...]:
    return tuple([one.id for one in inputs])


def _posted(mail: Mail) -> Input:
    """The event that *mail* was."""
    if mail.lane is MailKind.PROMPT:
        return UserSent(at=mail.at, id=mail.id, text=mail.text, files=mail.files, sender=mail.sender)
    return UserSteered(at=mail.at, id=mail.id, text=mail.text, how=mail.how, files=mail.files)
