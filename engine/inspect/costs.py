"""What a session cost: its own work, its title and its children, down to each model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import final

import attrs

from ...effects import Effect, events
from ...effects.notices import CallSettled
from ...effects.records import AddUsage
from ...effects.requests import CallModel, RunAgent
from ...effects.usage import Spent
from ..journal.entries import Entry, Forked, Stepped
from ..journal.fold import SessionState


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

    *own* is the spend of its runs on every branch, without their children. *models* divide it by model; the
    rest of it is the time of tools. *title_spent* found its title. *children* have bills of their own.
    """

    session: str
    title: str
    agent: str
    own: Spent
    title_spent: Spent
    models: tuple[ModelCosts, ...] = ()
    children: tuple[Costs, ...] = ()

    @property
    def total(self) -> Spent:
        """All of it. The turns are its own: those of its children are in theirs."""
        # Tokens and money add up over a family. Turns limit one run each, so their sum would mean nothing.
        below = [attrs.evolve(child.total, turns=0) for child in self.children]
        return sum(below, self.own + self.title_spent)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The models, here and below, that used tokens no price was known for: `total` lacks their cost."""
        mine = [share.model for share in self.models if share.spent.unpriced]
        below = [model for child in self.children for model in child.unpriced]
        # Each once and in the order of use: a set would be printed in another order in each process.
        return tuple(dict.fromkeys([*mine, *below]))


# Not frozen, as an exception: a child reports often, and this lives for one pass only.
@attrs.define
class ChildAccount:
    """A child as its parent's journal knows it."""

    agent: str
    spent: Spent = Spent()


@final
class Account:
    """What was spent in *session*, whose entries are read into *state*, and by which *children*, by call."""

    def __init__(self, session: str, state: SessionState) -> None:
        self.children: dict[str, ChildAccount] = {}
        self._own = Spent()
        self._models = defaultdict[str, Spent](Spent)
        self._model = ""  # the model at work: a run asks one at a time
        self._agents: dict[str, RunAgent] = {}  # by request, which is all that a child's answer names
        self._session, self._state = session, state

    def bill(self, children: Iterable[Costs]) -> Costs:
        """The bill of the session, with those of its *children*."""
        machine = self._state.machine
        return Costs(
            session=self._session,
            title=self._state.title,
            agent="" if machine is None else machine.config.agent,
            own=self._own,
            title_spent=self._state.title_spent,
            models=tuple([ModelCosts(model=model, spent=spent) for model, spent in self._models.items()]),
            # Bills of children come from outside, since each child has a journal of its own.
            children=tuple(children),
        )

    def follow(self, entry: Entry, effects: Sequence[Effect]) -> None:
        """Take in *entry*, to which the machine answered with *effects*."""
        if isinstance(entry, Forked):
            # The original pays for what was spent before, and for its children. Their requests stay known:
            # a fork may be given the answer of a child that the original began.
            self._own, self.children = Spent(), {}
            self._models.clear()
        event = entry.event if isinstance(entry, Stepped) else None
        for number, effect in enumerate(effects):
            # Only what follows may be the spender: one step may book for several calls and settle each after
            # that.
            if isinstance(effect, AddUsage):
                self._add(effect.spent, event, effects[number:])
        # After the usage, and before the requests: one step may end an answer and ask for the next.
        if isinstance(event, events.ModelFinished | events.ModelFailed):
            self._model = ""
        for effect in effects:
            if isinstance(effect, CallModel):
                # From the request and not from the settings: a person or a fallback may have changed the
                # model since.
                self._model = effect.model
            elif isinstance(effect, RunAgent):
                self._agents[effect.id] = effect
                # Known from when it is asked for: a child at work has reported nothing yet, and still has a
                # bill.
                self.children[effect.call] = ChildAccount(effect.agent)

    def _add(self, spent: Spent, event: events.Event | None, rest: Sequence[Effect]) -> None:
        """Add *spent* to the account of the spender; *rest* are the effects from there on."""
        match event:
            # In a fork, the child may be the original's: then it is not among the children yet.
            case events.AgentFinished(request=request):
                asked = self._agents[request]
                self.children.setdefault(asked.call, ChildAccount(asked.agent)).spent += spent
            # With a model at work, an interrupt books what the model used until then.
            case events.Interrupted() if not self._model:
                # No answer comes any more: what the child had reported is booked, and then its call settles.
                call = next(effect.call for effect in rest if isinstance(effect, CallSettled))
                self.children[call].spent += spent
            case _:
                self._own += spent
                # A tool uses time and no model, so it is in no model's share.
                if not isinstance(event, events.ToolFinished):
                    self._models[self._model] += spent
