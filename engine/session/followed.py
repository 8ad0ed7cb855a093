"""Prompts that a caller waits for: the runs that take them, and how these end here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import UnknownInput
from ...effects.usage import Spent
from ...performers.base import noop

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..journal.fold import SessionState
    from .environment import Result


@final
@attrs.define(eq=False)
class Followed:
    """
    The runs that take the prompts in *waiting*, as the worker tells of them.

    With *first* the run that goes on next is one of them, and those of the prompts that are in the queue
    then. With *unfinished* an unfinished run that is gone on with next is one of them. *settled* is called
    where no such run goes on, or is to come.
    """

    waiting: set[str] = attrs.field(factory=set)
    first: bool = False
    _settled: Callable[[], None] = noop
    unfinished: bool = False
    # The one that goes on.
    run: str = attrs.field(default="", init=False)
    # How far the latest one came, and the error that ended it, or that none could begin for.
    result: Result | None = attrs.field(default=None, init=False)
    error: BaseException | None = attrs.field(default=None, init=False)
    # The account of all that are over here.
    spent: Spent = attrs.field(factory=Spent, init=False)
    over: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    def expect(self, prompt: str) -> None:
        """Follow the run that takes *prompt*, too."""
        self.waiting.add(prompt)
        self.over.clear()

    def begins(
        self, run: str, taken: Collection[str], queued: Collection[str], *, resumed: bool = False
    ) -> None:
        """*run*, new or *resumed*, has *taken* these prompts; those that are *queued* wait for others."""
        mine = self.first or (self.unfinished and resumed) or not self.waiting.isdisjoint(taken)
        self.unfinished = False
        if self.first:
            self.first = False
            self.waiting.update(queued)
        self.waiting.difference_update(taken)
        if mine:
            self.run, self.result, self.error = run, None, None
        # A run of others begins: this process goes on, but not for these.
        self.settle()

    def ends(self, result: Result | None, error: BaseException | None = None) -> None:
        """The run that went on is over here, or left, with this *result* and *error*."""
        if self.run:
            self.run, self.result, self.error = "", result, error
            self.spent += Spent() if result is None else result.spent

    def stops(self, error: BaseException | None, state: SessionState) -> None:
        """No work goes on here; prompts that are in the queue of *state* wait there because of *error*."""
        queued = state.waiting
        # One that is not journaled yet is on its way to a worker, and so is one in the queue without an
        # error. One that is neither is another process's.
        gone = {name for name in self.waiting if state.knows(name) and (error or name not in queued)}
        self.waiting -= gone
        if gone and error is not None:
            self._fail(error)
        self.settle()

    def withdrawn(self, inputs: Collection[str]) -> None:
        """The *inputs* were taken back: no run takes them."""
        gone = self.waiting.intersection(inputs)
        self.waiting -= gone
        # A run that went before has its result all the same.
        if gone and self.result is None and self.error is None:
            self._fail(UnknownInput(min(gone), (), known=True))
        self.settle()

    def refused(self, error: BaseException) -> None:
        """No worker takes what waits, because of *error*."""
        if self.waiting or self.first:
            self._fail(error)
        self.forget()

    def _fail(self, error: BaseException) -> None:
        if not self.run:
            self.result, self.error = None, error

    def forget(self) -> None:
        """Wait for no further run."""
        if self.waiting or self.first:
            self.result = None
        self.waiting.clear()
        self.first = self.unfinished = False
        self.settle()

    def settle(self) -> None:
        """Say so where no run goes on, or is to come."""
        expected = self.run or self.waiting or self.first or self.unfinished
        if not (expected or self.over.is_set()):
            self.over.set()
            self._settled()
