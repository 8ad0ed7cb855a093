"""
What a journal leads to: the fold of its entries, one after another.

A session that runs goes the same way: what it has written down, it lets happen to what it knows. So what is
known of a session is the same, whoever looks.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, final

import attrs

from ...effects.config import READER
from ...effects.errors import JournalError
from ...effects.events import (
    AgentFinished,
    ApprovalGiven,
    ControlReceived,
    Interrupted,
    Post,
    ToolFinished,
    UserSent,
    UserSteered,
)
from ...effects.messages import Role
from ...effects.notices import CallSettled
from ...effects.records import AppendMessage, MailKind, ReplaceHistory
from ...effects.usage import Spent
from ...states.context import Mail, Memory, SessionMemory
from ..inspect.forked_run import forked_run
from ..machine import Machine, apply_inputs
from ..open_work import questions
from .entries import (
    Branched,
    Entry,
    Forked,
    HandedOver,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
    Titled,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...effects import Effect
    from ...effects.events import Event
    from ...effects.messages import Message
    from ...effects.requests import AskApproval


MOST_HELD = 50_000_000
"""Characters of results that are kept here, where no journal has them; the oldest go first."""

ResultPlace = int | str
"""The number of an entry, or the result itself."""


@final
@attrs.define
class FullResults:
    """
    Where the whole of each result of a session is that was cut, by the id of its call.

    At *most* so many characters of what no journal has are kept.
    """

    most: int = MOST_HELD
    _cut: dict[str, ResultPlace] = attrs.field(factory=dict)
    _ended: dict[str, tuple[ResultPlace, str]] = attrs.field(factory=dict)
    _held: int = 0

    def note(self, event: Event, effects: Iterable[Effect], number: int | None) -> None:
        """Note what the machine said to *event*, which is entry *number*, None where it is not journaled."""
        for effect in effects:
            if isinstance(effect, CallSettled):
                where: ResultPlace = effect.content
                if number is not None and said_in(event) == effect.content:
                    where = number
                self._ended[effect.call] = (where, effect.content)
            elif isinstance(effect, AppendMessage) and effect.message.role is Role.TOOL:
                self._enter(effect.message)

    def _enter(self, message: Message) -> None:
        """*message* is what the history holds of the calls that ended."""
        for result in message.results:
            ended = self._ended.get(result.call)
            if ended is not None and ended[1] != result.content:
                self._cut[result.call] = ended[0]
                self._held += _length(ended[0])
        self._ended.clear()
        if self._held > self.most:
            self._let_go()

    def _let_go(self) -> None:
        for call, where in list(self._cut.items()):
            if self._held <= self.most:
                break
            if isinstance(where, str):
                del self._cut[call]
                self._held -= len(where)

    def where(self, call: str) -> ResultPlace | None:
        """Where the whole result of *call* is; None where it was not cut, or is not kept."""
        return self._cut.get(call)


def _length(where: ResultPlace) -> int:
    return len(where) if isinstance(where, str) else 0


def said_in(event: Event) -> str | None:
    """What came of a call, as *event* says it; None where it does not."""
    return event.content if isinstance(event, ToolFinished | AgentFinished) else None


SHOWN = 500
"""Characters of a prompt by which a run or a session is known again."""


E = TypeVar("E", Branched, Forked)


@final
@attrs.frozen
class RunEnd:
    """Where one can go back to: *machine* at the end of its run, and what was counted until then."""

    machine: Machine
    said: int
    summary: int


@final
@attrs.define
class SessionState:
    """
    What a journal leads to.

    It is the *machine* of the last run, over all that was said before, and what was *posted* and not applied
    yet. No machine: no run was ever opened. *runs* are counted, and so are the messages that were *said* on
    the way to where it stands, which a summary does not undo. *summary* is the number of the entry by which
    the latest one came, 0 for none. *opening* is the beginning of the first prompt, *prompt* that of the
    latest run's. *title* is what the session is called, *titling* what it cost to find that, of which
    *unbilled* is in no run's account yet. *copied* is the session it is a fork of, *origins* are that one and
    those it is a fork of itself, *lent* is what a run that was copied in its middle had used until then,
    there. *unbegun* are open requests that nobody has begun yet, *begun* those that somebody may have, before
    the run was taken over. *full_results* are where the results are that the conversation holds a part of.

    *keeps* are the runs whose *ends* are kept, to go back to; None for all. Each holds on to what was said
    until then, so whoever goes on for long keeps none.
    """

    machine: Machine | None = None
    posted: list[Post] = attrs.Factory(list)
    keeps: frozenset[str] | None = frozenset()
    ends: dict[str, RunEnd] = attrs.Factory(dict)
    runs: int = 0
    said: int = 0
    summary: int = 0
    opening: str = ""
    prompt: str = ""
    title: str = ""
    titling: Spent = Spent()
    unbilled: Spent = Spent()
    copied: str = ""
    origins: tuple[str, ...] = ()
    lent: Spent = Spent()
    unbegun: frozenset[str] = frozenset()
    begun: frozenset[str] = frozenset()
    full_results: FullResults = attrs.Factory(FullResults)

    @property
    def unfinished(self) -> bool:
        """Whether the latest run is not over: it rests, or its process was lost."""
        return self.machine is not None and not self.machine.done

    @property
    def stopped(self) -> bool:
        """Whether somebody interrupted it, and that is not applied yet."""
        return any(isinstance(event, Interrupted) for event in self.posted)

    @property
    def questions(self) -> tuple[AskApproval, ...]:
        """The questions that are open and that nobody has answered yet."""
        answered = {event.request for event in self.posted if isinstance(event, ApprovalGiven)}
        asked = () if self.machine is None or self.machine.done or self.stopped else questions(self.machine)
        return tuple([question for question in asked if question.id not in answered])

    @property
    def prompts(self) -> tuple[Mail, ...]:
        """The prompts that wait for a run of their own, in the order they came."""
        left = () if self.machine is None else self.machine.memory.waiting(MailKind.PROMPT)
        posted: dict[str, Mail] = {}
        for event in self.posted:
            if isinstance(event, UserSent) and not self._received(event):
                posted.setdefault(event.id, Mail.of(event))
        return (*left, *posted.values())

    @property
    def late(self) -> tuple[UserSteered, ...]:
        """What was said into a run and has not reached it; once that is over, it waits as a prompt does."""
        steers = [event for event in self.posted if isinstance(event, UserSteered)]
        return tuple([event for event in steers if not self._received(event)])

    def _received(self, event: Post) -> bool:
        return self.machine is not None and self.machine.memory.has(event)

    @property
    def spent(self) -> Spent:
        """The account of all runs, and of the title."""
        if self.machine is None:
            return self.unbilled
        return self.machine.memory.earlier + self.machine.memory.spent + self.unbilled - self.lent

    @property
    def prompted(self) -> bool:
        """Whether something waits that a run is opened for: a prompt, or a steer too late for its run."""
        return bool(self.prompts or self.late)

    def knows(self, sender: str) -> bool:
        """Whether an input with the id *sender* came before."""
        received = () if self.machine is None else self.machine.memory.session.received
        return sender in received or any(getattr(event, "id", None) == sender for event in self.posted)

    @property
    def agent(self) -> str:
        """Which child agent's session this is, empty for none: a copy of a child's is a session of its own."""
        return "" if self.machine is None or self.copied else self.machine.config.agent

    def drop_ends(self) -> None:
        """Hold on to no end of a run any more, and keep none."""
        self.keeps, self.ends = frozenset(), {}

    def stepped(self, event: Event, effects: tuple[Effect, ...]) -> bool:
        """
        Take in that *event* was applied and had *effects*; whether a summary replaced older messages.

        The fold of a journal and a run under way both come through here, so neither can count otherwise.
        """
        self.posted = [posted for posted in self.posted if posted != event]
        return self.count(effects)

    def count(self, effects: Iterable[Effect]) -> bool:
        """Count the messages that *effects* append; whether a summary is among them."""
        summarised = False
        for effect in effects:
            if isinstance(effect, AppendMessage):
                self.said += 1
            elif isinstance(effect, ReplaceHistory):
                summarised = True
        return summarised

    def note_results(self, event: Event, effects: tuple[Effect, ...], number: int | None) -> None:
        """
        Remember where the full text of a truncated result is: in entry *number*, or here where it is None.

        A text that would be held in memory is held only where a tool can read it.
        """
        reads = self.machine is None or self.machine.config.tool(READER) is not None
        if number is not None or reads:
            self.full_results.note(event, effects, number)


def apply_entry(folded: SessionState, entry: Entry, number: int, session: str) -> tuple[Effect, ...]:
    """
    Let *entry*, which has this *number* in *session*, happen to *folded*; what the machine said to that.

    Raises `JournalError` for one that does not follow from those before it.
    """
    where = f"entry {number} of session {session!r}"
    match entry:
        case RunOpened():
            effects = _open(folded, entry)
        case Stepped():
            effects = _step(_machine(folded, where), entry, where)
            if folded.stepped(entry.event, effects):
                folded.summary = number
            folded.note_results(entry.event, effects, number)
            return effects
        case _:
            _note(folded, entry, where)
            return ()
    if folded.count(effects):
        folded.summary = number
    return effects


def _note(
    folded: SessionState, entry: Posted | TakenOver | HandedOver | Branched | Forked | Titled, where: str
) -> None:
    """Let *entry* happen."""
    match entry:
        case Posted():
            folded.posted.append(entry.event)
        case TakenOver():
            if entry.config is not None:
                _machine(folded, where).reconfigure(entry.config)
            if folded.machine is not None:
                folded.begun = frozenset(folded.machine.state.open) - folded.unbegun
            folded.unbegun = frozenset()  # from now on they may be begun
        case HandedOver():
            folded.unbegun = frozenset(entry.unbegun) - folded.begun  # the process before may have
        case Branched():
            _branch(folded, entry, where)
        case Forked():
            _fork(folded, entry, where)
        case Titled():
            folded.title, folded.titling = entry.title, folded.titling + entry.spent
            folded.unbilled += entry.spent


def _machine(folded: SessionState, where: str) -> Machine:
    if folded.machine is None:
        msg = f"{where} comes before any run was opened: the beginning of the journal is missing"
        raise JournalError(msg)
    return folded.machine


def _open(folded: SessionState, opened: RunOpened) -> tuple[Effect, ...]:
    before = folded.machine
    if before is not None:
        _keep_end(folded, before)
        if before.config == opened.config:
            opened = attrs.evolve(opened, config=before.config)  # one of them is enough
    folded.machine = Machine.open(opened, before, folded.posted, folded.unbilled)
    folded.posted, folded.unbilled = [], Spent()
    folded.runs += 1
    folded.prompt = _prompt(folded.machine.memory)
    folded.opening = folded.opening or folded.prompt
    return folded.machine.advance(at=opened.at)


def _prompt(memory: Memory) -> str:
    """The beginning of what a run with *memory*, which has not begun, will be asked."""
    mail = memory.waiting(MailKind.PROMPT) or memory.session.mail
    return mail[0].text[:SHOWN] if mail else ""


def _keep_end(folded: SessionState, machine: Machine) -> None:
    """Keep where *machine* ended, where somebody goes back to it: what was said, and no more."""
    memory = machine.memory
    if not memory.run or (folded.keeps is not None and memory.run not in folded.keeps):
        return
    then = Memory(
        run=memory.run,
        session=SessionMemory(model=memory.session.model),
        conversation=memory.conversation,
    )
    kept = Machine(machine.config, machine.state, then)
    folded.ends[memory.run] = RunEnd(kept, folded.said, folded.summary)


def _branch(folded: SessionState, entry: Branched, where: str) -> None:
    machine = _at_rest(folded, where)
    _keep_end(folded, machine)
    end = folded.ends.get(entry.run)
    if end is None and entry.run:
        msg = f"{where} goes back to the end of run {entry.run!r}, of which nothing is written before it"
        raise JournalError(msg)
    folded.machine = machine.branched(end and end.machine)
    folded.said, folded.summary = (0, 0) if end is None else (end.said, end.summary)


def _fork(folded: SessionState, entry: Forked, where: str) -> None:
    """What was spent before is the other session's account, and what waits there is answered there."""
    if folded.unfinished and entry.run:
        folded.machine = forked_run(_machine(folded, where), entry.run)
        folded.lent = folded.machine.memory.spent
    else:
        machine = _at_rest(folded, where)
        mine = machine.branched(machine)
        changes = [event for event in folded.posted if isinstance(event, ControlReceived)]
        session = attrs.evolve(mine.memory.session, mail=())
        memory = attrs.evolve(mine.memory, earlier=Spent(), session=session)
        mine.memory = apply_inputs(memory, mine.config, changes)
        folded.machine, folded.lent = mine, Spent()
    folded.posted, folded.unbegun = [], frozenset()
    folded.copied, folded.titling, folded.unbilled = entry.session, Spent(), Spent()
    folded.origins += (entry.session,)


def _at_rest(folded: SessionState, where: str) -> Machine:
    machine = _machine(folded, where)
    if not machine.done:
        msg = f"{where} goes another way while run {machine.memory.run!r} is not over"
        raise JournalError(msg)
    return machine


def _step(machine: Machine, entry: Stepped, where: str) -> tuple[Effect, ...]:
    effects = machine.advance(entry.event)
    if machine.state.label != entry.label:
        kind, here = type(entry.event).__name__, machine.state.label
        msg = f"{where}: {kind} leads to {here} here and led to {entry.label} when it was written"
        raise JournalError(msg)
    return effects


# From bytes


def read(
    entries: Iterable[bytes], session: str, folded: SessionState, known: int = 0
) -> Iterator[tuple[Entry, tuple[Effect, ...]]]:
    """
    Each of the *entries* of *session* once it has happened to *folded*, and what the machine said to it.

    *known* are the entries before these. Raises `JournalError` naming the entry that cannot be read or does
    not follow from those before it.
    """
    # The converter costs more to set up than the rest of the engine: a run without a store never needs it.
    from .encoding import decode_entry  # noqa: PLC0415  # see above

    for number, data in enumerate(entries, known):
        entry = decode_entry(data, f"entry {number} of session {session!r}")
        yield entry, apply_entry(folded, entry, number, session)


def fold(
    entries: Sequence[bytes], session: str, folded: SessionState | None = None, known: int = 0
) -> SessionState:
    """
    What the *entries* of *session* lead to; where *known* entries were *folded* before, these come after.

    Raises `JournalError` as `read` does.
    """
    if folded is None:
        folded = beginning(entries)
    for _ in read(entries, session, folded, known):
        pass
    return folded


def beginning(entries: Iterable[bytes]) -> SessionState:
    """What a journal with these *entries* is before the first of them: it keeps what they will go back to."""
    return SessionState(keeps=gone_back_to(entries))


def gone_back_to(entries: Iterable[bytes]) -> frozenset[str]:
    """The runs whose ends *entries* go back to; one that cannot be read goes nowhere."""
    return frozenset([entry.run for _, entry in kind_of(entries, Branched)])


def kind_of(entries: Iterable[bytes], kind: type[E]) -> Iterator[tuple[int, E]]:
    """Those of *entries* that are of this *kind*, with their numbers; without those that cannot be read."""
    from .encoding import decode_entry  # noqa: PLC0415  # as in `read`

    name = f'"{kind.__name__}"'.encode()
    for number, data in enumerate(entries):
        if name in data:  # which text may be, too
            with suppress(JournalError):
                entry = decode_entry(data)
                if isinstance(entry, kind):
                    yield number, entry
