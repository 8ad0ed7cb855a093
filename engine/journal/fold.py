"""
A journal as the state of its session: the fold of its entries, one after another.

Theory of operation. A session at work uses the same functions for what it writes to the journal, so a state
in memory and one folded from bytes cannot differ. The fold runs the machine again,
and each journaled step says which state it led to: a fold that ends up elsewhere is refused, never repaired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar, assert_never, cast, final

import attrs

from ... import states
from ...effects import Effect, events
from ...effects.config import READER
from ...effects.errors import JournalError
from ...effects.history import Rope
from ...effects.messages import Message, Role
from ...effects.notices import CallSettled, DoneReason
from ...effects.permissions import PermissionMode
from ...effects.records import AppendMessage, MailKind, ReplaceHistory
from ...effects.requests import AskApproval
from ...effects.usage import Spent
from ...states.context import ConversationMemory
from ...states.rules.inputs import next_prompt
from ...states.thinking import resumed
from ..core.machine import Machine, Step, apply_inputs, overtaken, questions
from .entries import Branched, Entry, Forked, HandedOver, Posted, RunOpened, Stepped, TakenOver, Titled

# Characters of full results that are held in memory, where no journal has them; the oldest go first.
MOST_HELD = 50_000_000

# Characters of a prompt by which a person recognises a run or a session.
MAX_OPENING = 500

# Where a full result is: the number of its entry, or the text itself where no journal has it.
ResultPlace = int | str

E = TypeVar("E", Branched, Forked, Posted, Titled)


# From bytes


def fold(
    entries: Sequence[bytes], session: str, state: SessionState | None = None, known: int = 0
) -> SessionState:
    """
    The state that the *entries* of *session* lead to; with *state*, which *known* entries led to, from there.

    Raises `JournalError` as `read` does.
    """
    # Only the whole journal says which run ends are needed again, so its scan comes before the fold.
    if state is None:
        state = initial_state(entries)
    for _ in read(entries, session, state, known):
        pass
    return state


def read(
    entries: Iterable[bytes], session: str, state: SessionState, known: int = 0
) -> Iterator[tuple[Entry, tuple[Effect, ...]]]:
    """
    Apply the *entries* of *session* to *state*; yield each with the effects of the machine.

    *known* entries came before these. Raises `JournalError` naming the entry that cannot be read or does not
    follow from those before it.
    """
    # The converter costs more to set up than the rest of the engine: a run without a store never needs it.
    from .encoding import decode_entry  # noqa: PLC0415  # see above

    for number, data in enumerate(entries, known):
        entry = decode_entry(data, f"entry {number} of session {session!r}")
        yield entry, apply_entry(state, entry, number, session)


def initial_state(entries: Iterable[bytes]) -> SessionState:
    """The state before the first of *entries*: it keeps the run ends that they will go back to."""
    return SessionState(keeps=branch_targets(entries))


def branch_targets(entries: Iterable[bytes]) -> frozenset[str]:
    """The runs whose ends *entries* go back to; an entry that cannot be read goes nowhere."""
    return frozenset([entry.run for _, entry in entries_of(Branched, entries)])


def entries_of(kind: type[E], entries: Iterable[bytes]) -> Iterator[tuple[int, E]]:
    """Those of *entries* that are of this *kind*, with their numbers; unreadable ones are passed over."""
    from .encoding import decode_entry  # noqa: PLC0415  # as in `read`

    # A scan of the bytes first: decoding all of a long journal twice would double the time to open it.
    name = f'"{kind.__name__}"'.encode()
    for number, data in enumerate(entries):
        if name in data:  # a text may contain the name, too
            # The fold itself reports a damaged entry, with its number and its place.
            with suppress(JournalError):
                entry = decode_entry(data)
                if isinstance(entry, kind):
                    yield number, entry


# The state of a session


@final
@attrs.define
class FullResults:
    """
    Where the full text of each truncated result of a session is, by the id of its call.

    At most *most* characters of texts that no journal has are held.
    """

    most: int = MOST_HELD
    places: dict[str, ResultPlace] = attrs.field(factory=dict)
    # The calls of a batch that has not entered the history yet, with their full texts.
    ended: dict[str, tuple[ResultPlace, str]] = attrs.field(factory=dict)
    held: int = 0

    def note(self, event: events.Event, effects: Iterable[Effect], number: int | None) -> None:
        """Note the *effects* of *event*, which is entry *number*, None where it is not journaled."""
        for effect in effects:
            # By exact type, here and below: the classes are final, and each step comes by with all it did.
            if type(effect) is CallSettled:
                place: ResultPlace = effect.content
                # A hook may have changed the text: then the event's entry has another one than the call.
                if number is not None and result_text(event) == effect.content:
                    place = number
                self.ended[effect.call] = (place, effect.content)
            elif type(effect) is AppendMessage and effect.message.role is Role.TOOL:
                self._enter(effect.message)

    def _enter(self, message: Message) -> None:
        """Keep the places of those results that the history holds shortened in *message*."""
        for result in message.results:
            place, content = self.ended.get(result.call, ("", result.content))
            if content != result.content:
                self.places[result.call] = place
                self.held += len(place) if isinstance(place, str) else 0
        # A batch enters the history as a whole, so no call that ended before is still to come.
        self.ended.clear()
        while self.held > self.most:
            # A number costs nothing to keep, so only texts go.
            call, text = next((call, place) for call, place in self.places.items() if isinstance(place, str))
            del self.places[call]
            self.held -= len(text)


def result_text(event: events.Event) -> str | None:
    """The result of a call, as *event* has it; None where it has none."""
    return event.content if isinstance(event, events.ToolFinished | events.AgentFinished) else None


@final
@attrs.frozen
class RunEnd:
    """The end of a run, to go back to: its *state* and *conversation*, and the counts of the session then."""

    # No more of the run: spend and ids go on across branches, and all that a long run has met costs memory.
    state: states.State
    conversation: ConversationMemory
    messages: int
    summary: int


@final
@attrs.define
class SessionState:
    """The state that a journal leads to; each field but `interrupts` changes with the entries only."""

    # That of the last run, over all messages before it; None before the first run.
    machine: Machine | None = None
    # Inputs that no run has applied yet. A crash leaves them here, for the next worker.
    posted: list[events.Post] = attrs.Factory(list)
    # Interrupts that the run, which is driven here, has not applied yet: they are not journaled before.
    interrupts: list[events.Interrupted] = attrs.Factory(list)
    # The runs whose ends are kept, to go back to; None for all. Each end holds on to its history, so a
    # session that goes on for long keeps none, and folds its journal again to branch.
    keeps: frozenset[str] | None = frozenset()
    ends: dict[str, RunEnd] = attrs.Factory(dict)
    # All runs of all branches; of messages only those on the way to where the session stands. A summary does
    # not undo messages: it changes what the model sees of them.
    runs: int = 0
    messages: int = 0
    # The number of the entry with the latest summary, 0 for none: a chat shows the messages from there on.
    summary: int = 0
    # The beginning of the first prompt, by which a session without a title is known, and of the latest run's.
    opening: str = ""
    prompt: str = ""
    title: str = ""
    # The cost of finding the title, and the part of it that is in no run's account yet: a title may be found
    # after its run has ended.
    title_spent: Spent = Spent()
    unbilled: Spent = Spent()
    # The session that this one is a fork of; that one and its own origins, whose secrets this one may read.
    copied: str = ""
    origins: tuple[str, ...] = ()
    # What a run that was copied in its middle had used by then. It counts for the run's limits here, and the
    # original pays for it.
    copied_spent: Spent = Spent()
    # Open requests that were handed over before any worker began them, and those that a worker may have begun
    # before the run was taken over. A request in neither is at work here.
    unbegun: frozenset[str] = frozenset()
    begun: frozenset[str] = frozenset()
    # How often each of the latter was taken over, by the name of `try_name`.
    tries: dict[str, int] = attrs.Factory(dict)
    full_results: FullResults = attrs.Factory(FullResults)
    # The `traceparent` of the span of the process that began the run, or took it over last.
    trace: str = ""

    def interrupted(self, event: events.Interrupted) -> None:
        """Count *event*, which the driver here has and no journal yet."""
        self.interrupts.append(event)

    @property
    def unfinished(self) -> bool:
        """Whether the latest run is not over: it rests, or its process was lost."""
        return self.machine is not None and not self.machine.done

    @property
    def overtaken(self) -> dict[str, events.Post]:
        """The calls about which no answer counts any more, each with the input that waits and is why."""
        return {} if self.machine is None else overtaken(self.machine, [*self.posted, *self.interrupts])

    @property
    def questions(self) -> tuple[AskApproval, ...]:
        """The open questions without an answer."""
        # An answer counts from when it is posted: a second approver must not be asked meanwhile. Nor is a
        # person asked in vain, where a steer or an interrupt is about to withdraw the question.
        asked = () if self.machine is None else questions(self.machine)
        # Most steps ask for them where there are none.
        closed = self.overtaken if asked else ()
        return tuple([question for question in asked if question.call not in closed])

    @property
    def prompts(self) -> tuple[states.Mail, ...]:
        """The prompts that wait for a run of their own, in the order they came."""
        left = () if self.machine is None else self.machine.memory.waiting(MailKind.PROMPT)
        if not self.posted:
            return left
        # One id is one input: a sender that did not hear back posts the same prompt again.
        prompts = {mail.id: mail for mail in left}
        for event in self.posted:
            if isinstance(event, events.UserSent) and not self._received(event):
                prompts.setdefault(event.id, states.Mail.of(event))
        withdrawn = self.withdrawn
        return tuple([mail for mail in prompts.values() if mail.id not in withdrawn])

    @property
    def late(self) -> tuple[events.UserSteered, ...]:
        """The steers that have not reached their run; once that is over, each waits as a prompt does."""
        steers = [event for event in self.posted if isinstance(event, events.UserSteered)]
        withdrawn = self.withdrawn if steers else ()
        return tuple([event for event in steers if not self._received(event) and event.id not in withdrawn])

    @property
    def withdrawals(self) -> list[events.InputWithdrawn]:
        """The withdrawals that no step has applied yet, in the order they came."""
        return [event for event in self.posted if isinstance(event, events.InputWithdrawn)]

    @property
    def withdrawn(self) -> frozenset[str]:
        """The inputs that were taken back, where no step has applied that yet."""
        return frozenset([event.input for event in self.withdrawals])

    @property
    def unread(self) -> tuple[str, ...]:
        """The ids of the prompts and steers that no model has been asked with, in the order they came."""
        mail = () if self.machine is None else self.machine.memory.session.mail
        unread = dict.fromkeys([waiting.id for waiting in mail])
        for event in self.posted:
            if isinstance(event, events.UserSent | events.UserSteered) and not self._received(event):
                unread.setdefault(event.id)
        withdrawn = self.withdrawn
        return tuple([name for name in unread if name not in withdrawn])

    def _received(self, event: events.Post) -> bool:
        return self.machine is not None and self.machine.memory.has(event)

    @property
    def waiting(self) -> set[str]:
        """The inputs that wait for a run to open: prompts, and steers that came too late for theirs."""
        waiting = {*[mail.id for mail in self.prompts], *[steer.id for steer in self.late]}
        return waiting.difference(self.beginning)

    @property
    def beginning(self) -> tuple[str, ...]:
        """The inputs that the latest run begins with, and has not read yet."""
        return () if self.machine is None else _first_prompt(self.machine)

    @property
    def spent(self) -> Spent:
        """The account of all runs, and of the title."""
        # A run opens with the spend of those before it, on any branch: going back does not refund anything.
        if self.machine is None:
            return self.unbilled
        return self.machine.memory.earlier + self.machine.memory.spent + self.unbilled - self.copied_spent

    def knows(self, sender: str) -> bool:
        """Whether an input with the id *sender* came before."""
        # Applied inputs and waiting ones: a sender may repeat itself before a run has seen the first.
        received = () if self.machine is None else self.machine.memory.session.received
        return sender in received or any(getattr(event, "id", None) == sender for event in self.posted)

    @property
    def agent(self) -> str:
        """The child agent whose session this is, empty for none; a copy of a child's is no child."""
        return "" if self.machine is None or self.copied else self.machine.config.agent

    def drop_ends(self) -> None:
        """Drop all run ends, and keep none from now on."""
        self.keeps, self.ends = frozenset(), {}

    def commit(self, step: Step, number: int | None) -> tuple[Effect, ...]:
        """
        Take *step* of the latest run, which is entry *number*, None where it is not journaled; its effects.

        A run under way and the fold of a journal both come through here, so neither can count otherwise.
        """
        machine = cast("Machine", self.machine)
        machine.commit(step)
        self._take(step, number)
        # A text costs memory for as long as the session is open: hold it only where a tool can read it.
        if step.event is not None and (number is not None or machine.config.tool(READER) is not None):
            self.full_results.note(step.event, step.effects, number)
        return step.effects

    def ahead(self, step: Step, number: int) -> SessionState:
        """The part of this state that a summary reads, once *step* is committed as entry *number*."""
        # Not `attrs.evolve`: it takes three times as long, and each step needs this.
        later = SessionState(
            machine=Machine(cast("Machine", self.machine).config, step.state, step.memory),
            posted=self.posted,
            interrupts=self.interrupts,
            runs=self.runs,
            messages=self.messages,
            summary=self.summary,
            title=self.title,
            unbilled=self.unbilled,
            copied=self.copied,
            copied_spent=self.copied_spent,
            full_results=self.full_results,
        )
        later._take(step, number)  # it is one of these
        return later

    def _take(self, step: Step, number: int | None) -> None:
        """Drop the inputs that *step* applied, and count its messages."""
        # All equal ones: an input that was posted twice is applied once, and must not wait for ever.
        if self.posted:
            self.posted = [posted for posted in self.posted if posted != step.event]
            if isinstance(step.event, events.InputWithdrawn):
                gone = step.event.input  # it may still be on its way, and no step takes it any more
                self.posted = [posted for posted in self.posted if getattr(posted, "id", None) != gone]
        if self.interrupts:
            self.interrupts = [interrupt for interrupt in self.interrupts if interrupt != step.event]
        kinds = [type(effect) for effect in step.effects]
        self.messages += kinds.count(AppendMessage)
        if number is not None and ReplaceHistory in kinds:
            self.summary = number


# One entry


def apply_entry(state: SessionState, entry: Entry, number: int, session: str) -> tuple[Effect, ...]:
    """
    Apply *entry*, which has this *number* in *session*, to *state*; the effects of the machine.

    Raises `JournalError` for one that does not follow from those before it.
    """
    where = f"entry {number} of session {session!r}"
    effects: tuple[Effect, ...] = ()
    match entry:
        case RunOpened():
            effects = state.commit(_open(state, entry, session), number)
        case Stepped():
            effects = state.commit(_step(_machine(state, where), entry, where), number)
        case Posted():
            # Applied later, by a step of its own: until then a crash loses nothing of it.
            state.posted.append(entry.event)
        case TakenOver():
            effects = _take_over(state, entry, where)
        case HandedOver():
            # A request that an earlier, lost process may have begun stays in doubt for ever: the worker that
            # hands over knows only of its own.
            state.unbegun = frozenset(entry.unbegun) - state.begun
        case Branched():
            _branch(state, entry, where)
        case Forked():
            _fork(state, entry, where)
        case Titled():
            state.title, state.title_spent = entry.title, state.title_spent + entry.spent
            # The next run takes this into its account, so that its limits count it.
            state.unbilled += entry.spent
        case _:
            assert_never(entry)
    return effects


def _machine(state: SessionState, where: str, *, over: bool = False) -> Machine:
    if state.machine is None:
        # Stores append by compare-and-set, so no process leaves a journal like this: it was cut by hand.
        msg = f"{where} comes before any run was opened: the beginning of the journal is missing"
        raise JournalError(msg)
    # The writing end branches only between runs.
    if over and not state.machine.done:
        run = state.machine.memory.run
        msg = f"{where}: branch during unfinished run {run!r}; the journal is damaged"
        raise JournalError(msg)
    return state.machine


def _open(state: SessionState, opened: RunOpened, session: str) -> Step:
    before = state.machine
    if before is not None:
        _keep_end(state, before)
        if before.config == opened.config:
            # Runs of one session mostly share their settings; equal copies would add up in a long journal.
            opened = attrs.evolve(opened, config=before.config)
    machine = Machine.open(opened, before, state.posted, state.unbilled, session=session)
    state.machine, state.posted, state.unbilled = machine, [], Spent()
    state.runs, state.trace = state.runs + 1, opened.trace
    # Read before the machine begins: its first step takes the prompt out of the mail.
    mail = machine.memory.waiting(MailKind.PROMPT) or machine.memory.session.mail
    state.prompt = mail[0].text[:MAX_OPENING] if mail else ""
    state.opening = state.opening or state.prompt
    try:
        return machine.step(at=opened.at)
    except Exception:  # noqa: BLE001  # a bug of ours, of any kind
        # The journal has the run by now, and could not be read any more. The driver meets the same error, and
        # ends the run with it.
        return Step(None, machine.state, machine.memory, ())


def _step(machine: Machine, entry: Stepped, where: str) -> Step:
    event = entry.event
    step = machine.failure(event, entry.failed) if entry.failed else machine.step(event)
    # A machine that decides otherwise than the one that wrote would perform requests with no trace in the
    # journal, or skip some that were performed.
    if step.state.label != entry.label:
        kind, here = type(event).__name__, step.state.label
        msg = (
            f"{where}: {kind} leads to {here}, but the journal says {entry.label}; was another version used?"
        )
        raise JournalError(msg)
    return step


def _take_over(state: SessionState, entry: TakenOver, where: str) -> tuple[Effect, ...]:
    if entry.config is not None:
        _machine(state, where).reconfigure(entry.config)
    # A process without telemetry does not break the chain of links.
    state.trace = entry.trace or state.trace
    if state.machine is not None:
        state.begun = frozenset(state.machine.state.open) - state.unbegun
        names = [try_name(request, state.machine) for request in state.begun]
        state.tries = {name: state.tries.get(name, 0) + 1 for name in names}
    # The new worker begins them now. If it crashes, they count as begun.
    state.unbegun = frozenset()
    # A journal is taken over in the middle of a run, unless it was cut by hand.
    return () if state.machine is None else (resumed(state.machine.config, state.machine.memory, entry.at),)


def _branch(state: SessionState, entry: Branched, where: str) -> None:
    machine = _machine(state, where, over=True)
    _keep_end(state, machine)
    end = state.ends.get(entry.run)
    if end is None and entry.run:
        msg = f"{where}: branch to unknown run {entry.run!r}; the journal is damaged"
        raise JournalError(msg)
    # The beginning of a session has no end to show, so the plainest one stands for it.
    end = end or RunEnd(states.Done(reason=DoneReason.END_TURN), ConversationMemory(), 0, 0)
    state.machine = machine.branched(entry.run, end.state, end.conversation)
    # The counts go back with the history: a later summary may stand for messages of the other branch.
    state.messages, state.summary = end.messages, end.summary


def _keep_end(state: SessionState, machine: Machine) -> None:
    """Keep the end of *machine*'s run, if a branch goes back to it."""
    memory = machine.memory
    if memory.run and (state.keeps is None or memory.run in state.keeps):
        end = RunEnd(machine.state, memory.conversation, state.messages, state.summary)
        state.ends[memory.run] = end


def _fork(state: SessionState, entry: Forked, where: str) -> None:
    """Make *state* that of a copy: earlier spend and waiting prompts stay with the original."""
    if entry.run:
        state.machine = forked_run(_machine(state, where), entry.run)
        state.copied_spent = state.machine.memory.spent
        # The run has its own mail here, so what was taken back of it is to be dropped here, too.
        state.posted = [*state.withdrawals]
    else:
        over = _machine(state, where, over=True)
        # Posted prompts are the original's to answer, but a setting was chosen for all that follows.
        changes = [event for event in state.posted if isinstance(event, events.ControlReceived)]
        session = attrs.evolve(over.memory.session, mail=(), ceiling=_own_ceiling(over))
        mine = states.Memory(
            run=over.memory.run,
            next_id=over.memory.next_id,
            session=session,
            conversation=over.memory.conversation,
        )
        state.machine = Machine(over.config, over.state, apply_inputs(mine, over.config, changes))
        state.copied_spent, state.posted = Spent(), []
    state.unbegun, state.tries = frozenset(), {}
    state.copied, state.title_spent, state.unbilled = entry.session, Spent(), Spent()
    state.origins += (entry.session,)


# A run that is copied in its middle


def forked_run(machine: Machine, run: str) -> Machine:
    """
    *machine* as it goes on in a copy of its session, where its run is called *run*.

    The copy has every message and decision, and did none of it. Its open requests are the original's, which
    performs them: an answer under way is given there, and a tool counts as lost, as after a crash.
    """
    # What this run has used counts for its limits here too. What earlier ones spent, and what children
    # report, is on the original's bill.
    session = attrs.evolve(machine.memory.session, mail=_own_mail(machine), ceiling=_own_ceiling(machine))
    memory = attrs.evolve(machine.memory, run=run, earlier=Spent(), session=session)
    return Machine(machine.config, _own_state(machine.state), memory)


def _own_ceiling(machine: Machine) -> PermissionMode:
    """The ceiling of a copy of *machine*'s session."""
    # The copy of a child has no parent whose mode it could not exceed.
    return PermissionMode.BYPASS if machine.config.agent else machine.memory.session.ceiling


def try_name(request: str, machine: Machine) -> str:
    """What is the same for each try of *request*: its id, or of a model's how much it has to answer."""
    # A lost answer is asked for under another id.
    return f"{machine.memory.run}: {len(machine.memory.history)}" if asks_model(machine.state) else request


def asks_model(state: states.State) -> bool:
    """Whether the open request of *state* is one to a model."""
    match state:
        case states.Streaming():
            return True
        case states.Compacting(stage=stage):
            return isinstance(stage, states.Summary)
        case states.Thinking() | states.Executing() | states.Confirming() | states.Dispatching():
            return False
        case states.Done():
            return False
        case _:
            assert_never(state)


def is_foreign(request: str, machine: Machine) -> bool:
    """Whether *request* was made before *machine*'s run was copied: its id begins with its run."""
    return request.rpartition("-")[0] != machine.memory.run


def _own_mail(machine: Machine) -> tuple[states.Mail, ...]:
    """The mail of the run itself: its steers, and the prompts that it begins with."""
    mail = machine.memory.session.mail
    first = _first_prompt(machine)
    # Other prompts wait for runs of their own, which the original opens: two answers would be one too many.
    return tuple([one for one in mail if one.lane is MailKind.STEER or one.id in first])


def _first_prompt(machine: Machine) -> tuple[str, ...]:
    """The ids of the inputs that *machine*'s run begins with, while they are in the mail."""
    state = machine.state
    stage = state.stage if isinstance(state, states.Thinking) else state
    match stage:
        case states.Admitting(ids=ids):
            return ids
        case states.Start() | states.Reading() | states.Opening() | states.Prompt():
            # Not taken from the mail yet: without it, the copy would begin with no prompt.
            return next_prompt(machine.memory.session.mail, machine.config.policy)
        case states.Steer() | states.Go() | states.Retry() | states.Ending() | states.End():
            return ()
        case states.Checking() | states.Decoding():
            return ()
        case states.Streaming() | states.Compacting() | states.Done():
            return ()
        case states.Executing() | states.Confirming() | states.Dispatching():
            return ()
        case _:
            assert_never(stage)


def _own_state(state: states.State) -> states.State:
    """*state* without what the original still receives."""
    match state:
        # The model is asked again here, so its answer begins anew. One that is being stopped is not asked
        # again: its pieces are all that there will be.
        case states.Streaming(stopping=stopping):
            return state if stopping else attrs.evolve(state, pieces=Rope.of())
        case states.Compacting(stage=stage, stopping=stopping):
            if stopping or not isinstance(stage, states.Summary):
                return state
            return attrs.evolve(state, stage=attrs.evolve(stage, pieces=Rope.of()))
        case states.Executing(batch=batch) | states.Confirming(batch=batch) | states.Dispatching(batch=batch):
            calls = [_own_call(call) for call in batch.calls]
            return type(state)(batch=batch.with_calls(calls, batch.stopping))
        case states.Thinking() | states.Done():
            return state
        case _:
            assert_never(state)


def _own_call(call: states.Call) -> states.Call:
    # What a child reported is on the original's bill already; the same answer here adds only what is new.
    if isinstance(call.phase, states.RunningChild):
        return attrs.evolve(call, phase=attrs.evolve(call.phase, spent=Spent()))
    return call
