"""
The sessions of a store, afterwards: replayed, compared, explained, billed, exported, deleted and pruned.

Each function here loads journals and hands them to `engine.inspect`, which is pure. A session may be at work
meanwhile, in any process: it is read as far as it is written when it is loaded. Each raises `UnknownSession`
for a session that is not there, and `JournalError` for a journal that cannot be read.
"""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from ...effects.errors import ConfigError, JournalError, SessionGone, UnknownCall, UnknownSession
from ...effects.usage import Spent
from ...performers.slices import Slices
from ...performers.stores.base import checked_store
from ...states.batch.start import child_session
from ..core.codec import decode
from ..journal.fold import branch_targets, initial_state, read
from ..journal.stored_checkpoints import find_state
from ..journal.summary import SessionKind, SessionStatus, SessionSummary
from .bisect import Divergence, compare_labels, compare_sessions, compare_steps
from .costs import Account, Costs
from .explain import Explanation, Wishes, account, find_wish
from .export import export_entries
from .listing import described, listed, parent_of
from .replay import ReplayedStep, replayed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence

    from ...performers.stores.base import Store
    from .listing import Listed


async def replay(
    store: Store, session: str, since: int = 0, limit: int | None = None
) -> AsyncGenerator[ReplayedStep, None]:
    """
    The steps of *session* of *store*, in their order; those before the first fault are yielded.

    From step *since* on, and at most *limit* of them: a page costs about the same anywhere in a long session,
    where the store keeps checkpoints.
    """
    if since < 0 or (limit is not None and limit < 0):
        msg = f"replay(since=..., limit=...) must be at least 0; got {since!r} and {limit!r}"
        raise ConfigError(msg)
    async for step in Slices(await _steps(store, session, since, limit)):
        if step.number >= since and limit != 0:
            yield step
        # No further: a fault behind the page is none of it.
        if limit is not None and step.number + 1 >= since + limit:
            return


async def bisect(store: Store, one: str, other: str) -> Divergence | None:
    """
    The first step at which the sessions *one* and *other* of *store* diverge; None where they do not.

    A session diverges from its fork at the step of the fork.
    """
    # Each is taken as it stands when it is loaded: one at work may go on before the other is read.
    return await compare_sessions(await _load(store, one), one, await _load(store, other), other)


async def bisect_versions(
    store: Store, session: str, against: Iterable[bytes] | None = None
) -> Divergence | None:
    """
    The first step of *session* of *store* that this version and another one make differently.

    The other version speaks through the journal, where each event has the state that it led to. Where
    *against* is given, it speaks through these lines, which its `replay --json` wrote of the same session.
    In the divergence, *one* is the other version.
    """
    entries = await _load(store, session)
    # Without the other version's lines, the labels in the journal are all that its steps left.
    found = compare_labels(entries, session) if against is None else compare_steps(against, entries, session)
    return await found


async def explain(store: Store, session: str, call: str) -> Explanation:
    """
    Why *call* of *session* ran, or did not. The end of its id is enough where no other call has it.

    It may be a call of one of the session's children. Raises `UnknownCall` with the calls it may be.
    """
    # A full id says where it was wished, and only the steps from there on are looked at.
    entries = await _load(store, session)
    wish = find_wish(entries, call)
    if wish is not None and (explained := await _account(store, session, call, wish)) is not None:
        return explained
    wishes = await _wishes(entries, session)
    found = [(session, name, number) for name, number in wishes.named(call)]
    # Children are read only where need be: a call of the session itself never costs reading their journals.
    for child in () if found else wishes.children:
        # Not by `_load`: a child may be pruned, and its calls are then just not among those found.
        below = (await _wishes(await store.load(child), child)).named(call)
        found += [(child, name, number) for name, number in below]
    # The end of an id may fit several calls: the error lists those, or all calls where none fits.
    explained = await _account(store, *found[0]) if len(found) == 1 else None
    if explained is None:
        raise UnknownCall(call, tuple([name for _, name, _ in found] or wishes.calls))
    return explained


async def _account(store: Store, session: str, call: str, wish: int) -> Explanation | None:
    async with aclosing(replay(store, session, wish)) as steps:
        return await account(steps, call, session)


async def _wishes(entries: Sequence[bytes], session: str) -> Wishes:
    wishes = Wishes()
    async for step in Slices(replayed(entries, session)):
        wishes.follow(step)
    return wishes


async def costs(store: Store, session: str) -> Costs:
    """
    What *session* of *store* cost, read from its journal and those of its children.

    The total is `Session.spent`, except for a child that is at work or was abandoned: its own bill has all
    that it spent, its parent's account only the part reported before the call was over. Of a child whose
    journal is gone, only that part is known.
    """
    entries = await _load(store, session)
    account = Account(session, state := initial_state(entries))
    async for entry, effects in Slices(read(entries, session, state)):
        account.follow(entry, effects)
    children: list[Costs] = []
    for call, child in account.children.items():
        # By the naming rule: a list of all sessions would be long, and most of them are of others.
        name = child_session(session, call)
        try:
            children.append(await costs(store, name))
        except UnknownSession:
            # Pruned, or it never began: its parent's journal still has what it reported.
            gone = Costs(session=name, title="", agent=child.agent, own=child.spent, title_spent=Spent())
            children.append(gone)
    return account.bill(children)


async def export(store: Store, session: str) -> bytes:
    """*session* of *store* as one JSON document; `export_entries` documents its fields."""
    # The row first: it has the times, which no journal has, and says whether the session is there.
    found = await described(store, session)
    if found is None:
        raise UnknownSession(session)
    entries = await store.load(session)
    return await export_entries(entries, session, found.about, created=found.created, updated=found.updated)


async def delete(store: Store, session: str) -> int:
    """
    Delete *session* of *store*, with its children and theirs; how many sessions that were.

    Forks of it stay. A store does not know whether a session is being driven: its driver is told at its next
    look or write, with `SessionGone`, and ends there.
    """
    # By the naming rule: of all other sessions there may be a hundred thousand.
    below = await listed(store, prefix=f"{session}.")
    known = {one.session: one.incarnation for one in below}
    # Children first, as `_family` orders them: what a crash leaves can be deleted by the same call again.
    members = _family(session, await _by_parent(below))
    return sum([await _forget(store, member, known.get(member, "")) for member in members])


async def _forget(store: Store, session: str, incarnation: str) -> bool:
    """Delete that *incarnation* of *session*, and none that was begun under its name since it was listed."""
    try:
        return await store.delete(session, incarnation)
    except SessionGone:
        return False


async def prune(
    store: Store, older_than: float, now: float, *, keep_unfinished: bool = True
) -> tuple[str, ...]:
    """
    Delete the sessions of *store* without a write for *older_than* seconds; which ones.

    A child goes with its parent, when both are old enough, and never alone, unless its parent is gone. With
    *keep_unfinished*, families stay that rest, are not over, have prompts waiting or cannot be read. *now* is
    in seconds since the epoch.
    """
    # Listed once: a session that is written to meanwhile may still go, and its driver ends at its next write.
    # One that is begun anew stays.
    sessions = await listed(store)
    known = {one.session: one async for one in Slices(sessions)}
    children = await _by_parent(sessions)
    gone: list[str] = []
    async for first in Slices(sessions):
        # Each family once, from its head; an orphan is a head of its own.
        if parent_of(first) in known:
            continue
        family = [known[member] for member in _family(first.session, children)]
        # A child goes on with its parent or never, so what it was in the middle of does not count.
        done = first.about.state is SessionStatus.IDLE and not first.about.prompts
        # What cannot be read here may be a newer version's, and open: a person has to look first.
        done = done and all(one.about.state is not SessionStatus.UNREADABLE for one in family)
        # Each member has to be old: a child may write for hours after its parent's last step.
        if all(one.updated < now - older_than for one in family) and (done or not keep_unfinished):
            # Another process may have deleted some of them meanwhile: only what was still there is reported.
            gone += [one.session for one in family if await _forget(store, one.session, one.incarnation)]
    return tuple(gone)


async def _steps(store: Store, session: str, since: int, limit: int | None) -> Iterator[ReplayedStep]:
    """The steps of *session* of *store*, from no later than *since* on and to no earlier than their limit."""
    checked_store(store)
    # A fork says behind the entries that it copied whose they are.
    more = None if limit is None or await _is_copy(store, session) else limit
    found = await find_state(store, session, most=since, more=more) if since else None
    # A branch among them goes back to the end of a run, which no checkpoint has.
    if found is None or branch_targets(found.behind[:limit]):
        return replayed(await _load(store, session, None if more is None else since + more), session)
    return replayed(found.behind, session, found.state, found.length)


async def _is_copy(store: Store, session: str) -> bool:
    """Whether *session* began as a fork, or may have: where it has no summary that says so."""
    info = await store.info(session)
    with suppress(JournalError):
        if info is not None and info.about:
            about: SessionSummary = decode(info.about, SessionSummary)
            # Before the first run, a summary does not say what kind of session it is.
            return about.kind is SessionKind.FORK or not about.runs
    return True


async def _load(store: Store, session: str, end: int | None = None) -> Sequence[bytes]:
    checked_store(store)
    entries = await store.load(session, 0, end)
    # A store keeps no empty journal, so a session without an incarnation is not there.
    if not entries.incarnation:
        raise UnknownSession(session)
    return entries


async def _by_parent(sessions: Iterable[Listed]) -> dict[str, list[str]]:
    """The children among *sessions*, by their parents."""
    found: dict[str, list[str]] = {}
    async for one in Slices(sessions):
        if parent := parent_of(one):
            found.setdefault(parent, []).append(one.session)
    return found


def _family(session: str, children: Mapping[str, list[str]]) -> list[str]:
    """*session* after its children and theirs: where deleting is cut short, no child has lost its parent."""
    below = [member for child in children.get(session, ()) for member in _family(child, children)]
    return [*below, session]
