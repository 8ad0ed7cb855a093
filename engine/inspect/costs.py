"""What a session cost: its own work, its title and its children, down to each model."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import UnknownSession
from ...effects.events import (
    AgentFinished,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ToolFinished,
)
from ...effects.notices import CallSettled
from ...effects.records import AddUsage
from ...effects.requests import CallModel, RunAgent
from ...effects.usage import Spent
from ..journal.entries import Forked, Stepped
from ..journal.fold import beginning, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...effects import Effect
    from ...effects.events import Event
    from ...performers.stores.base import Store
    from ..journal.entries import Entry


@final
@attrs.frozen(kw_only=True)
class ModelCosts:
    """What *model* used of a session's own account."""

    model: str
    spent: Spent


@final
@attrs.frozen(kw_only=True)
class Costs:
    """
    The bill of *session*.

    *own* is what its runs spent on every branch, without their children: *models* is that by model, and what
    is left of it is the time of tools. *titling* is what its title cost. *children* have bills of their own.
    """

    session: str
    title: str
    agent: str
    own: Spent
    titling: Spent
    models: tuple[ModelCosts, ...] = ()
    children: tuple[Costs, ...] = ()

    @property
    def total(self) -> Spent:
        """All of it. The turns are its own: those of its children are in theirs."""
        total = self.own + self.titling
        for child in self.children:
            total += attrs.evolve(child.total, turns=0)
        return total

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The models, here and below, that used tokens no price was known for: `total` lacks their cost."""
        mine = [share.model for share in self.models if share.spent.unpriced]
        below = [model for child in self.children for model in child.unpriced]
        return tuple(dict.fromkeys([*mine, *below]))


async def costs(store: Store, session: str) -> Costs:
    """
    What *session* of *store* cost, read from its journal and those of its children.

    Its total is `Session.spent`, but for a child that is at work or that nobody waited for any more: its bill
    has all that it spent, its parent's account what it had told by the time that the call was over. Of a
    child whose journal is gone, only that is known.

    Raises `UnknownSession`, and `JournalError` for what cannot be read.
    """
    entries = await store.load(session)
    if not entries:
        raise UnknownSession(session)
    return await _report(store, session, entries)


async def _report(store: Store, session: str, entries: Sequence[bytes]) -> Costs:
    account, folded = _Account(), beginning(entries)
    for entry, effects in read(entries, session, folded):
        account.follow(entry, effects)
    children: list[Costs] = []
    for call, child in account.children.items():
        name = f"{session}.{call}"
        kept = await store.load(name)
        children.append(
            await _report(store, name, kept)
            if kept
            else Costs(session=name, title="", agent=child.agent, own=child.spent, titling=Spent())
        )
    return Costs(
        session=session,
        title=folded.title,
        agent="" if folded.machine is None else folded.machine.config.agent,
        own=account.own,
        titling=folded.titling,
        models=tuple([ModelCosts(model=model, spent=spent) for model, spent in account.models.items()]),
        children=tuple(children),
    )


@attrs.define
class _Child:
    """A child as its parent's journal knows it."""

    agent: str
    spent: Spent = Spent()


@final
@attrs.define
class _Account:
    """What a journal says was spent, as its entries are read."""

    own: Spent = Spent()
    models: dict[str, Spent] = attrs.Factory(dict)
    children: dict[str, _Child] = attrs.Factory(dict)
    _asked: str = ""  # the model that is being asked: a run asks one at a time
    _asked_of: dict[str, RunAgent] = attrs.Factory(dict)  # children, by what they are the answer to

    def follow(self, entry: Entry, effects: Sequence[Effect]) -> None:
        """Take in *entry*, to which the machine said *effects*."""
        if isinstance(entry, Forked):
            # What was spent before is on another session's bill, and its children are.
            self.own, self.models, self.children = Spent(), {}, {}
        event = entry.event if isinstance(entry, Stepped) else None
        for number, effect in enumerate(effects):
            if isinstance(effect, AddUsage):
                self._add(effect.spent, event, effects[number:])
        if isinstance(event, ModelFinished | ModelFailed):
            self._asked = ""
        for effect in effects:
            if isinstance(effect, CallModel):
                self._asked = effect.model
            elif isinstance(effect, RunAgent):
                self._asked_of[effect.id] = effect
                self.children[effect.call] = _Child(effect.agent)

    def _add(self, spent: Spent, event: Event | None, rest: Sequence[Effect]) -> None:
        """Add what was *spent* to the account of who did; *rest* is what the machine said from there on."""
        match event:
            case AgentFinished(request=request):
                asked = self._asked_of[request]  # in a fork perhaps by the session that it is a copy of
                self.children.setdefault(asked.call, _Child(asked.agent)).spent += spent
            case Interrupted() if not self._asked:
                # Nobody waits for a child any more: that its call is over is said next.
                call = next(effect.call for effect in rest if isinstance(effect, CallSettled))
                self.children[call].spent += spent
            case ToolFinished():
                self.own += spent
            case _:
                self.own += spent
                self.models[self._asked] = self.models.get(self._asked, Spent()) + spent
