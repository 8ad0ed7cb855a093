"""
Copying a session up to one of its steps, to go on from there in another way.

Theory of operation. The copy begins with the entries before that step, byte for byte. Then comes a `Forked`
entry, which gives the run that was under way another name: its new requests have ids of their own. Then comes
the replacement of the step, if any. It is applied here, so an impossible one fails at once. Requests that
follow from it are begun by the worker that resumes the copy, and it treats open ones as after a lost process.
Nothing is performed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

import attrs

from ... import effects, states
from ...effects.errors import StoreConflict
from ...effects.events import AgentFinished, Event, ModelFinished, ToolFinished
from ...effects.validators import MAX_PROMPT, of_kind, within
from ...performers.approvals import approval_event, check_edit
from ...performers.slices import Slices
from ...states.batch.batch import Asked
from ..core.codec import encode
from ..core.inputs import Input, control_event
from ..core.machine import Machine, calls_at, ignored, links_of, questions
from ..journal.encoding import decode_entry, encode_entry
from ..journal.entries import Entry, Forked, HandedOver, Posted, Stepped, time_of
from ..journal.fold import SessionState, apply_entry, asks_model, entries_of, is_foreign
from ..journal.journal import Journal
from ..journal.stored_checkpoints import copy_checkpoints, fold_in_slices
from ..journal.summary import SessionSummary, summarize
from .replay import replayed

# What may happen in a copy in place of a step: an event, such as the step's own with something changed; a
# setting; another answer to the question; or another text for an answer, a result or a prompt.
Replacement = str | effects.Change | effects.Decision | effects.Answer | effects.Post

# Characters of a value that an error shows.
MAX_QUOTED = 200

# The events that a text can stand for.
TextAnswer = ModelFinished | ToolFinished | AgentFinished

# The events that end a call in a phase.
RESULTS: dict[type, type[TextAnswer]] = {states.Running: ToolFinished, states.RunningChild: AgentFinished}

# The events that wait for the next run where none is under way.
POSTED = effects.UserSent | effects.UserSteered | effects.ControlReceived


@final
@attrs.frozen(kw_only=True)
class ForkPoint:
    """
    How a session is copied: up to step *at*, at the time *now*, and what happens *instead* of it.

    *new_id* makes ids for the copy's run and for inputs.
    """

    at: int = attrs.field(validator=of_kind(int))
    now: float
    new_id: Callable[[], str]
    instead: Replacement | None = None


# Steps that an error names at most.
MOST_NAMED = 10


def check_replacement(instead: object) -> None:
    """Raise `ArgumentError` or `ConfigError` for an *instead* that fits no step of any session."""
    # It comes from the caller and goes into a journal. So it is checked before the redactor reads its fields,
    # and before anything is written.
    match instead:
        case None | effects.SetModel() | effects.SetMode() | effects.SetThinking():
            return  # `control_event` knows what can be changed here
        case str():
            within("the text in instead", len(instead), MAX_PROMPT)
        case effects.Approve() | effects.ApproveAlways() | effects.Deny():
            # Made for its checks and thrown away: which question it answers is known only from the journal.
            approval_event("", instead, 0.0, "")
        case effects.UserSent() | effects.UserSteered():
            sender = instead.sender if isinstance(instead, effects.UserSent) else ""
            # Made for its checks, too: the copy takes no input that `send` would refuse.
            Input(text=instead.text, id=instead.id, files=instead.files, sender=sender)
            _check_storable(instead)
        case _ if isinstance(instead, effects.Answer | effects.Post):
            _check_storable(instead)
        case _:
            msg = f"instead must be an event, a setting, a decision or text; got {instead!r:.{MAX_QUOTED}}"
            raise effects.ArgumentError(msg)


def _check_storable(event: effects.Answer | effects.Post) -> None:
    """Refuse an *event* that a journal could not be read with, or that would be another one when read."""
    entry = Stepped(event=event, label="")
    try:
        # Written and read back: a field of a wrong type is found here, and not by the next reader.
        same = decode_entry(encode_entry(entry)) == entry
    # Raised as it is: it names the limit, and the message below would hide that.
    except effects.TooLarge:
        raise
    except Exception:  # noqa: BLE001  # fields of any type, which fail in any way
        same = False
    if not same:
        msg = f"{repr(event)[:MAX_QUOTED]} cannot be kept: a field is not of its type, or no finite number"
        raise effects.ArgumentError(msg)


async def fork_session(journal: Journal, name: str, point: ForkPoint) -> None:
    """Store the session *name*, which begins as that of *journal*; raises as `fork_entries`."""
    # From the store and not from the session's own state: only what is written can be copied.
    store, entries = journal.store, await journal.load()
    found = await journal.find(point.at)
    before = found.state if found is not None and found.length == point.at else None
    copied, summary = await fork_entries(entries, journal.session, name, point, before)
    # One append to an empty journal: the copy exists altogether or not at all, and never overwrites.
    try:
        incarnation = await store.append(name, 0, copied, summary)
    except StoreConflict as conflict:
        raise name_taken(name) from conflict
    if found is not None:
        await copy_checkpoints(store, found, name, incarnation)


def name_taken(name: str) -> effects.ConfigError:
    """The error for a copy whose *name* is that of another session."""
    return effects.ConfigError(f"session {name!r} already exists; choose another id")


async def fork_entries(
    entries: Sequence[bytes], session: str, name: str, point: ForkPoint, state: SessionState | None = None
) -> tuple[list[bytes], bytes]:
    """
    The journal and the encoded summary of *name*, a copy of *session*, whose *entries* these are.

    *state* is that before the step, where it is known; it is changed.
    Raises `ConfigError` and `ArgumentError` for a *point* at which no copy can be made.
    """
    at = point.at
    # The length itself is allowed: it means behind the last step.
    if not 0 <= at <= len(entries):
        has = f"it has {len(entries)} steps, the first is 0" if entries else "it has none"
        msg = f"session {session!r} cannot be forked at step {at!r}: {has}"
        raise effects.ConfigError(msg)
    # The entries that are copied, and no more: a damaged entry later on does not matter to the copy.
    state = await fold_in_slices(entries[:at], session) if state is None else state
    if state.machine is None:
        raise await _no_prompt(entries, session, at)
    # The old entries go as bytes: encoded anew, those of an older version would change.
    made = [*entries[:at]]

    def add(entry: Entry) -> None:
        # The same fold as any reader's: an entry that it refuses is never written.
        apply_entry(state, entry, len(made), name)
        made.append(encode_entry(entry))

    # A run that is over keeps its name: the copy asks for nothing more in it.
    add(Forked(at=point.now, session=session, run=point.new_id() if state.unfinished else ""))
    machine = state.machine
    if point.instead is not None:
        # At the end no entry stands there: what happens instead is added, and replaces nothing.
        replaced = decode_entry(entries[at]) if at < len(entries) else None
        if isinstance(point.instead, effects.Decision) and _question(replaced, machine) is None:
            raise await _no_question(entries, session, machine, at)
        event = _event(point.instead, replaced, machine, point)
        for entry in _replaced(event, machine, point):
            add(entry)
    # After the replacement, which may be the answer of the child that is at work.
    await _check_children(state.machine, entries, session, at)
    return made, encode(summarize(state, name), SessionSummary)


async def is_repeat(
    copy: Sequence[bytes],
    entries: Sequence[bytes],
    session: str,
    at: int | None,
    instead: Callable[[float], Replacement | None],
) -> bool:
    """
    Whether a fork of *session*, whose *entries* these are, with these arguments began the journal *copy*.

    *at* is None for a fork at the end of that time. *instead* is called with the time of the replacement.
    """
    # The last one: a copy of a copy has the entry of the first one, too.
    marks: list[tuple[int, Forked | None]] = [(-1, None), *entries_of(Forked, copy)]
    cut, forked = marks[-1]
    if forked is None or forked.session != session or at not in {None, cut}:
        return False
    # What the original has now and had not then; an unfinished run is copied at a step that is named.
    at_end = cut == len(entries) or (cut < len(entries) and time_of(decode_entry(entries[cut])) >= forked.at)
    if at is None and (forked.run or not at_end):
        return False
    entries = entries[:cut] if at_end else entries
    following = decode_entry(copy[cut + 1]) if cut + 1 < len(copy) else None
    event = _happened(following)
    # An input that came to the copy later is no part of the fork.
    replaced = event is not None and not (isinstance(following, Posted) and event.at > forked.at)
    happened = instead(forked.at if event is None else event.at)
    if (happened is not None) != replaced:
        return False
    # The fork once more, with the time and the ids of the first one.
    ids = iter([name for name in (forked.run, getattr(event, "id", "")) if name])
    point = ForkPoint(at=cut, now=forked.at, new_id=lambda: next(ids, ""), instead=happened)
    try:
        again, _ = await fork_entries(entries, session, "", point)
    except effects.TurnwheelError:
        return False
    return again == [*copy[: len(again)]]


async def _no_prompt(entries: Sequence[bytes], session: str, at: int) -> Exception:
    """The error for a fork before the first run."""
    async for step in Slices(replayed(entries, session)):
        if step.state is not None:
            # The step is named: a caller should not have to try one after the other.
            problem = f"no prompt yet; fork at {step.number + 1} or later"
            msg = f"session {session!r} cannot be forked at step {at}: {problem}"
            return effects.ConfigError(msg)
    # A journal with a title or an input alone is no session yet.
    return effects.UnknownSession(session)


async def _no_question(entries: Sequence[bytes], session: str, machine: Machine, at: int) -> Exception:
    """The error for a decision at step *at*, before which *machine* has no question for it."""
    # Replayed for the error alone, as in `_check_children`.
    ways: list[int] = []
    async for step in Slices(replayed(entries, session)):
        calls = () if step.state is None else calls_at(step.state)
        asked = sum(isinstance(call.phase, Asked) for call in calls)
        following = decode_entry(entries[step.number + 1]) if step.number + 1 < len(entries) else None
        if asked == 1 or (asked and isinstance(_happened(following), effects.ApprovalGiven)):
            ways.append(step.number + 1)
    if asked_here := [question.id for question in questions(machine)]:
        # An event names the question that it answers; a decision is for the only one.
        fix = f"fork at {_some_of(ways)}, or pass an ApprovalGiven" if ways else "pass an ApprovalGiven"
        problem = f"several questions are open at step {at}: {', '.join(asked_here)}"
    else:
        fix = f"fork at step {_some_of(ways)}" if ways else "the session has no question at any step"
        problem = f"no question is open at step {at}"
    return effects.ConfigError(f"session {session!r} takes no decision: {problem}; {fix}")


def _some_of(steps: Sequence[int]) -> str:
    """The first *steps* as text, with an "or" before the last one."""
    *before, last = [str(step) for step in steps[:MOST_NAMED]]
    return f"{', '.join(before)} or {last}" if before else last


async def _check_children(machine: Machine, entries: Sequence[bytes], session: str, at: int) -> None:
    """Refuse a copy in which a child is at work: its own session is not copied, and goes on elsewhere."""
    # A child that the replacement has just asked for is the copy's own, and begins there.
    theirs = [
        one.call.id
        for one in calls_at(machine.state)
        if isinstance(one.phase, states.RunningChild) and is_foreign(one.phase.request, machine)
    ]
    for child in [link for link in links_of(machine.state, session) if link.call in theirs]:
        # The whole journal is replayed for the error alone: a copy that succeeds never pays for it.
        steps = Slices(replayed(entries, session))
        free = [step.number + 1 async for step in steps if not step.children]
        # A step before always qualifies: the run opened before it asked for the child.
        ways = [str(max(one for one in free if one < at)), *[str(one) for one in free if one > at][:1]]
        msg = (
            f"session {session!r} cannot be forked at step {at}: child {child.agent!r} is at work for call "
            f"{child.call!r}; fork at {' or '.join(ways)}, or pass its answer as instead="
        )
        raise effects.ConfigError(msg)


# What happens instead


def _replaced(event: Event, machine: Machine, point: ForkPoint) -> Iterator[Entry]:
    """The entries by which *event* happens to *machine*."""
    # Without a run there is nothing to step: the event waits, as it would if its sender had posted it.
    if machine.done and isinstance(event, POSTED):
        yield Posted(event=event)
        return
    # A second machine: the fold applies the step to the first one.
    tried = Machine(machine.config, machine.state, machine.memory)
    made = tried.advance(event)
    # Refused and not skipped: the copy would go on as the original did, and look as if it had been changed.
    if ignored(made):
        kind, label = type(event).__name__, machine.state.label
        msg = f"{kind} has no effect at step {point.at} (state {label})"
        raise effects.ConfigError(msg)
    yield Stepped(event=event, label=tried.state.label)
    # Without this, a tool that follows from the replacement would count as lost: it may have run, it did not.
    asked = {effect.id for effect in made if effects.is_request(effect)}
    if unbegun := tuple([name for name in tried.state.open if name in asked]):
        yield HandedOver(at=point.now, unbegun=unbegun)


def _event(instead: Replacement, replaced: Entry | None, machine: Machine, point: ForkPoint) -> Event:
    """The event of *instead*, in place of the entry *replaced*."""
    event = _happened(replaced)
    # The time of the replaced step. With the time of the fork, a decision could come after the deadline of
    # its question.
    at = point.now if replaced is None else time_of(replaced)
    # Cleaned as any input is: the copy's journal must be able to hold it.
    if isinstance(instead, str):
        return _text_event(effects.clean(instead), event, machine, at, point)
    if isinstance(instead, effects.Decision):
        question = _question(replaced, machine)
        if question is None:  # `fork_entries` has refused it
            raise effects.InternalError(point.at)
        # The journal names the fork as the approver: no person gave this answer.
        answer = approval_event(question.id, instead, at, by=f"a fork at step {point.at}")
        check_edit(question, answer.decision, machine.config)
        return answer
    if isinstance(instead, effects.Change):
        # By the run's own configuration: this process may offer other models than that run had.
        return control_event(instead, machine.config, at, point.new_id(), machine)
    # An event goes in as it is, with its own time and ids: the caller made all of it.
    return instead


def _text_event(text: str, event: Event | None, machine: Machine, at: float, point: ForkPoint) -> Event:
    """*text* as a model, a tool, an agent or a person would say it in place of *event*."""
    # A steer first: it comes while a request is open, and the text could be taken for that one's answer.
    if isinstance(event, effects.UserSteered):
        return Input(text=text, id=point.new_id(), files=event.files).steered(event.at, event.how)
    # A new id: the old one may be journaled before this step, and the text would count as a repeated post.
    if isinstance(event, effects.UserSent):
        return attrs.evolve(event, at=at, id=point.new_id(), text=text)
    if machine.done:
        return Input(text=text, id=point.new_id()).sent(at)
    awaited = _awaited(machine)
    answered = getattr(event, "request", None)
    # With one request open, the text can only be its answer. With more, the step has to be one's answer:
    # a guess would give the text to the wrong tool.
    request = answered if answered in awaited else next(iter(awaited), None)
    if request is None or (request != answered and len(awaited) > 1):
        open_ = ", ".join(awaited) or "none"
        msg = (
            f"instead=text needs a step with an answer, result or prompt; step {point.at} has none "
            f"(open: {open_})"
        )
        raise effects.ConfigError(msg)
    kind = awaited[request]
    if kind is not ModelFinished:
        # No account: the text cost nothing, and the original paid for the answer that it replaces.
        return kind(at=at, request=request, content=text)
    # The model answers the same conversation, so the size that the provider counted still holds.
    usage = event.usage if isinstance(event, ModelFinished) else effects.Usage()
    pieces = (effects.TextPiece(text),)
    return ModelFinished(at=at, request=request, stop=effects.StopReason.END_TURN, usage=usage, pieces=pieces)


def _awaited(machine: Machine) -> dict[str, type[TextAnswer]]:
    """The requests of *machine* that a text answers, with the kind of event that answers them."""
    # Questions, hooks and timers are not answered by a text: each has an answer of its own kind.
    if asks_model(machine.state):
        return dict.fromkeys(machine.state.open, ModelFinished)
    running = [call for call in calls_at(machine.state) if type(call.phase) in RESULTS]
    return {request: RESULTS[type(call.phase)] for call in running for request in call.open}


def _happened(entry: Entry | None) -> Event | None:
    return entry.event if isinstance(entry, Posted | Stepped) else None


def _question(replaced: Entry | None, machine: Machine) -> effects.AskApproval | None:
    """The question that a decision in place of *replaced* answers: the same one, or the only one."""
    asked = {question.id: question for question in questions(machine)}
    event = _happened(replaced)
    if isinstance(event, effects.ApprovalGiven) and event.request in asked:
        return asked[event.request]
    # The only open question is meant, also where another step stood. Between two, a guess could let the wrong
    # call run.
    return next(iter(asked.values())) if len(asked) == 1 else None
