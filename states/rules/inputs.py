"""What becomes of the mail: which inputs a run takes, and the messages they become."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ...effects.config import Config, Policy, Steering
from ...effects.messages import Message, user
from ...effects.permissions import PermissionMode
from ...effects.records import Change, MailKind, SetMode, SetModel, SetThinking
from ..context import Mail


def prompt_group(mail: tuple[Mail, ...], policy: Policy) -> tuple[Mail, ...]:
    """The prompt that is next, with those of the same sender that *policy* makes one with it."""
    # Prompts without a sender are never joined, and with no window none are.
    prompts = [one for one in mail if one.lane is MailKind.PROMPT]
    if not prompts or not policy.coalesce:
        return tuple(prompts[:1])
    group, longest = [prompts[0]], policy.coalesce_longest or inf
    for other in prompts[1:]:
        last = group[-1]
        # From prompt to prompt and not from the first: a person who types on for a while is still saying
        # one thing. A clock that was set back joins nothing.
        follows = other.sender and other.sender == last.sender and 0 <= other.at - last.at <= policy.coalesce
        # A run comes to one output.
        follows = follows and other.output == last.output
        if follows and other.at - group[0].at <= longest:
            group.append(other)
        elif policy.coalesce_longest:
            # What is said behind another prompt is answered behind it.
            break
    return tuple(group)


def joins_until(mail: tuple[Mail, ...], policy: Policy) -> float | None:
    """Until when its sender may add to the prompt that is next; None where nothing can be added."""
    group = prompt_group(mail, policy)
    # Prompts without a sender never merge: they may come from different people.
    if not group or not group[0].sender:
        return None
    until = group[-1].at + policy.coalesce
    if not policy.coalesce_longest:
        return until
    closed = any(one.lane is MailKind.PROMPT and one not in group for one in mail)
    return None if closed else min(until, group[0].at + policy.coalesce_longest)


def next_prompt(mail: tuple[Mail, ...], policy: Policy) -> tuple[str, ...]:
    """The ids of what a run begins with: the next prompt, and all that was said into the run before."""
    group = {one.id for one in prompt_group(mail, policy)}
    # Steers that no run was there to read are not lost: they come in with the next prompt, in the order
    # they were said.
    return tuple([one.id for one in mail if one.id in group or one.lane is MailKind.STEER])


def messages(mail: Iterable[Mail], ids: tuple[str, ...]) -> tuple[Message, ...]:
    """The messages that the inputs *ids* become: the prompts one, a steer its own."""
    # Joined prompts have the time of the last.
    taken = [one for one in mail if one.id in ids]
    prompts = [one for one in taken if one.lane is MailKind.PROMPT]
    made: list[Message] = []
    for one in taken:
        if one.lane is MailKind.STEER:
            made.append(user(one.text, one.at, one.files))
        # One message, since providers want the roles to alternate, and several prompts are one thing to
        # answer.
        elif one is prompts[0]:
            text = "\n".join([prompt.text for prompt in prompts])
            files = tuple([file for prompt in prompts for file in prompt.files])
            made.append(user(text, prompts[-1].at, files))
    return tuple(made)


def skips_rest(mail: Iterable[Mail]) -> bool:
    """Whether a person said something that the model is to read before any further call runs."""
    return any(one.lane is MailKind.STEER and one.how is not Steering.WHEN_DONE for one in mail)


# Whether a setting can be changed while a run is under way.


def refusal(config: Config, change: Change, ceiling: PermissionMode) -> str:
    """Why *change* cannot be made under *config*, nor a mode above the *ceiling*; empty where it can."""
    if isinstance(change, SetModel):
        if not change.model.strip():
            return "a model has a name"
        # A limit in money cannot be kept where the price of a call is not known, so such a model is refused
        # beforehand.
        paid = config.limits.usd is not None or config.session_limits.usd is not None
        if paid and config.spec(change.model).price is None:
            return f"the limit in USD needs a price for {change.model!r}: configure it among the models"
    if isinstance(change, SetMode) and not change.mode.within(ceiling):
        whose = ", the mode of its parent" if config.agent else ""
        return f"{change.mode.value!r} is wider than the ceiling, {ceiling.value!r}{whose}"
    if isinstance(change, SetThinking) and change.tokens is not None and change.tokens <= 0:
        return f"a budget to think is a number of tokens above 0, or None; got {change.tokens!r}"
    return ""
