"""Whether a conversation is one that every provider takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...effects.messages import Message, Role


def history_faults(messages: Iterable[Message], open_calls: Sequence[str] = ()) -> list[str]:
    """
    Whether every tool call has exactly one result, right behind its message and in call order.

    *open_calls* are the ids of those without one, which may only be all calls of the last message.
    """
    faults: list[str] = []
    waiting: list[str] = []
    for number, message in enumerate(messages):
        results = [result.call for result in message.results]
        # In call order and right behind: some providers match results by position, and others refuse the
        # request for good.
        if results != waiting:
            faults.append(f"message {number} has the results {results}, due are {waiting}")
        if (message.role is Role.TOOL) != bool(results):
            faults.append(f"message {number} of role {message.role} has {len(results)} results")
        # One provider rejects a system message in the middle of a conversation, and others obey it like the
        # real one.
        if message.role is Role.SYSTEM:
            faults.append(f"message {number} speaks as the system, which only the configuration does")
        if message.calls and message.role is not Role.ASSISTANT:
            faults.append(f"message {number} of role {message.role} has calls")
        if not message.parts:
            faults.append(f"message {number} is empty")
        waiting = [call.id for call in message.calls]
    if waiting != list(open_calls):
        faults.append(f"the history ends with the open calls {waiting}, the state lists {list(open_calls)}")
    return faults
