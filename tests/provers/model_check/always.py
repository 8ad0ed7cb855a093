"""
What must always hold, and which checks see to it: on every step of a run, or at every place of a search.

The numbers are those of docs/reliability.md. A check gives a list of faults, or is a book that does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from provers.audit.calls import CallBook
from provers.audit.decisions import telling_faults
from provers.audit.endings import ending_faults, kept_faults
from provers.audit.hooks import HookBook
from provers.audit.loops import LoopBook, explanation_faults
from provers.audit.mail import MailBook
from provers.audit.permission_oracle import Case
from provers.audit.questions import AskBook
from provers.audit.run_auditor import RunAuditor
from provers.audit.settings import SettingBook, branched_faults, inherited_faults
from provers.audit.spend_book import SpendBook
from provers.audit.summaries import ShrinkBook
from provers.audit.tries import TryBook, wait_faults
from provers.audit.views import ViewBook
from provers.invariants import (
    payment_faults,
    request_faults,
    start_faults,
    state_faults,
    step_faults,
    untouched_faults,
    waits_faults,
)
from provers.model_check.search import ended_faults
from provers.model_check.snapshots import snapshot_faults
from provers.model_check.takeover import takeover_faults
from provers.simulation.absorbing import absorbed_faults
from turnwheel.states.rules.history_check import history_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@final
@attrs.frozen
class Promise:
    """What is promised, and the *checks* that look whether it is kept."""

    text: str
    checks: tuple[Callable[..., Any], ...]


PROMISES: Mapping[int, Promise] = {
    1: Promise(
        "Outside a batch every call has exactly one result, right behind its message and in order; inside "
        "one only the last message's calls are open, and the state lists each. Every model sees a valid "
        "history.",
        (history_faults, request_faults, state_faults, step_faults, kept_faults, ViewBook),
    ),
    2: Promise(
        "Turns are completed answers, counted once, and never more than there may be.",
        (RunAuditor, SpendBook.may_call),
    ),
    3: Promise(
        "Usage and cost only grow, and the end reports all of it, children and summaries included.",
        (SpendBook, payment_faults, inherited_faults, branched_faults),
    ),
    4: Promise(
        "A run begins once and ends once; the end takes no more of anything, and can be reached from "
        "anywhere.",
        (RunAuditor, absorbed_faults, ended_faults, waits_faults),
    ),
    5: Promise(
        "What was denied, steered away or cancelled before it started never runs, and nobody is asked twice "
        "about one start.",
        (CallBook, AskBook, HookBook, Case, start_faults, ending_faults),
    ),
    6: Promise(
        "Open is what was asked for and neither answered nor cancelled; what comes late or again changes "
        "nothing. Of what is asked for and of what comes of it whoever watches is told once.",
        (RunAuditor, absorbed_faults, untouched_faults, telling_faults),
    ),
    7: Promise(
        "The same events lead to the same, also where the machine was written down and read at every place.",
        (snapshot_faults, untouched_faults),
    ),
    8: Promise(
        "A summary never splits a call from its result; it makes the conversation smaller, or says it "
        "cannot.",
        (ShrinkBook, ViewBook, history_faults),
    ),
    9: Promise(
        "A child has no tools but its parent's, starts no other child, and gets no more than is left.",
        (CallBook, SpendBook.grant),
    ),
    10: Promise(
        "Nothing from outside grants anything: an answer is for a request that is open, and only a tool that "
        "was offered in that very request runs.",
        (absorbed_faults, CallBook, SettingBook),
    ),
    11: Promise(
        "Whoever takes over asks again for all that was open, or answers it; unsafe work is not done twice, "
        "and nobody claims to know what it did.",
        (takeover_faults,),
    ),
    12: Promise(
        "Each input is read once, in its order, or refused, or waits.",
        (MailBook,),
    ),
    13: Promise(
        "What fails is tried again as settings say, and who goes in circles is told, then stopped.",
        (TryBook, wait_faults, LoopBook, explanation_faults),
    ),
}
"""The promises, by number."""
