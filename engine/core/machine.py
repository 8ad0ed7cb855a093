"""
The machine: state and memory, advanced by events, with no I/O in h11's sense.

`transition(state, ctx) -> (next, effects)` is one function per state and nothing else: no clock, no random
ids, no I/O. `Machine` is the object a driver or a notebook holds; `drive` is the same as a generator that
yields effects and is sent events. The last part reads what is open: questions, calls, children.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import assert_never, final

import attrs

from ... import states
from ...display.effects_table import Effects
from ...display.notebook import Card, Displayed
from ...display.rendering import state_line
from ...display.word_cards import machine_card
from ...effects import Effect
from ...effects.config import Config, Sandbox, ToolKind
from ...effects.errors import ConfigError, IllegalTransition, InternalError
from ...effects.events import ControlReceived, Entered, Event, InputWithdrawn, Post, UserSent
from ...effects.history import History
from ...effects.messages import Binary, ToolCall
from ...effects.notices import Ignored
from ...effects.permissions import Rule, Verdict
from ...effects.records import SetModel, TakeMail
from ...effects.requests import AskApproval, SetTimer
from ...effects.usage import Spent
from ...states import compacting, confirming, dispatching, done, executing, streaming, thinking
from ...states.batch.batch import Asked, Call, Order, Reviewed, RunningChild, Settled, Stopping, Timer
from ...states.batch.permission import question
from ...states.batch.start import child_session
from ...states.context import INPUTS, RECEIVED, Context, ConversationMemory, Memory, SessionMemory
from ...states.rules.history_check import history_faults
from ...states.rules.inputs import refusal
from ...states.rules.limits import child_prompt
from ...states.rules.schema import arguments_of
from ...states.state import Done, Start, State, Thinking, batch_of
from ...states.table import LEGAL
from ..journal.entries import RunOpened

# States passed through without waiting; a batch passes at most four, so this many are a loop of ours. Without
# a limit, it would hang its process, and again at each restart, when the journal is folded.
MAX_ENTERED = 50

# Characters of an error of ours that the end of a run keeps.
MAX_ERROR = 500


def transition(state: State, ctx: Context) -> tuple[State, tuple[Effect, ...]]:
    """
    The state that follows *state* on *ctx*'s event, and the effects.

    An event that does not apply gives *state* itself and one `Ignored`. Raises `IllegalTransition` where a
    handler leaves the table, which is a bug of turnwheel; nothing has changed then.
    """
    following, effects = _dispatch(state, ctx)
    # Checked in production too: diagrams, docs and provers rely on the table, and a step outside it is better
    # refused before it is journaled than found when the journal is read.
    # By label, which has the stage: by class alone, a step from a wrong stage would pass.
    # The table has no rows for events that do not apply: they may come in any state.
    if (state.label, type(ctx.event), following.label) not in LEGAL and not ignored(effects):
        raise IllegalTransition(state.label, type(ctx.event).__name__, following.label)
    return following, effects


def _dispatch(  # noqa: PLR0911  # one return for each state
    state: State, ctx: Context
) -> tuple[State, tuple[Effect, ...]]:
    # By class and by hand, not through a dict: the type checker sees that no state is missing, and each
    # handler gets its own class. Streaming comes first, since each piece of an answer passes here.
    match state:
        case states.Streaming():
            return streaming.handle(state, ctx)
        case states.Thinking():
            return thinking.handle(state, ctx)
        case states.Executing():
            return executing.handle(state, ctx)
        case states.Confirming():
            return confirming.handle(state, ctx)
        case states.Dispatching():
            return dispatching.handle(state, ctx)
        case states.Compacting():
            return compacting.handle(state, ctx)
        case states.Done():
            return done.handle(state, ctx)
        case _:
            # A new state without a line above fails the type check, before any run can meet it.
            assert_never(state)


def ignored(effects: tuple[Effect, ...]) -> bool:
    """Whether these are the effects of an event that did not apply."""
    # By the effects, not by an unchanged state: an event may apply and leave the state as it is.
    return len(effects) == 1 and isinstance(effects[0], Ignored)


def advance(
    config: Config, state: State, memory: Memory, event: Event
) -> tuple[State, Memory, tuple[Effect, ...]]:
    """
    The whole engine: *event* is received, the state moves, and the records change the memory.

    An event that does not apply touches neither. A repeated post is one that does not apply.
    """
    received = memory
    if isinstance(event, RECEIVED):
        # A sender that lost the connection posts again under the same id; a crash may apply a post twice.
        if memory.has(event):
            # Answered for all states at once: each handler could forget it.
            return state, memory, (Ignored(event=type(event).__name__, state=state.label, at=event.at),)
        # Before the handler: it decides with the input already in the mail.
        received = memory.receive(event)
    following, effects = transition(state, Context(config, received, event))
    # `memory` and not `received`: an ignored input must not count as received.
    if following is state and ignored(effects):
        return state, memory, effects
    # All records at once, behind the step: a handler that read its own would decide on half of it.
    return following, received.record(effects), effects


@final
@attrs.frozen
class Step:
    """
    What *event* leads to, before it is committed: the next *state* and *memory*, and the *effects*.

    *failed* is the error of a bug in a handler, with which the run ends.
    """

    event: Event | None
    state: State
    memory: Memory
    effects: tuple[Effect, ...]
    failed: str = ""


@final
class Machine(Displayed):  # noqa: PLW1641  # equal by content, which no hash should walk
    """
    One run of an agent. Feed `advance` what happened; do what it returns; feed it what came of that.

    `state` is where the run is, `memory` what it knows. Two machines with equal configurations that are fed
    equal events are equal at every step.
    """

    # Open requests are no field of their own. The state names each, so the two can never disagree.
    __slots__ = ("config", "memory", "state")

    def __init__(self, config: Config, state: State, memory: Memory) -> None:
        self.config = config
        self.state = state
        self.memory = memory

    @classmethod
    def start(  # noqa: PLR0913  # what a run begins with, most of it with a default
        cls,
        config: Config,
        prompt: str,
        *,
        run: str = "run",
        sender: str = "",
        at: float = 0.0,
        files: tuple[Binary, ...] = (),
        history: History | None = None,
    ) -> Machine:
        """
        A machine about to begin with *prompt*; call `advance` with no event to set it going.

        *run* prefixes every id, *sender* is the id the prompt came with, *files* what came with it and *at*
        when. *history* is what was said before; a call in it without a result is a `ConfigError`.
        """
        before = History.of() if history is None else history
        if faults := history_faults(before):
            # Providers refuse such a conversation for good, and nothing that comes later mends it.
            msg = f"invalid history: {'; '.join(faults)}"
            raise ConfigError(msg)
        # Copied from the configuration: people may change both later, for this session alone.
        session = _begun(config)
        memory = Memory(run=run, session=session, conversation=ConversationMemory.of(before))
        # The prompt comes in as any later input does, so a sender that repeats it adds nothing. The id
        # without a sender comes from the run and not from chance: equal starts must make equal machines.
        prompted = memory.receive(UserSent(at=at, id=sender or f"{run}-prompt", text=prompt, files=files))
        return cls(config, Thinking(stage=Start()), prompted)

    def rename(self, session: str) -> None:
        """Make this the machine of *session*."""
        if self.memory.session.session_id != session:
            self.memory = attrs.evolve(
                self.memory, session=attrs.evolve(self.memory.session, session_id=session)
            )

    @classmethod
    def open(
        cls,
        opened: RunOpened,
        before: Machine | None = None,
        posted: Iterable[Post] = (),
        unbilled: Spent = Spent(),  # noqa: B008  # a frozen value
        *,
        session: str = "",
    ) -> Machine:
        """
        The machine of a run of *session* that begins as *opened* says, over what the run *before* it left.

        That is its history, what a person changed or granted for the session, and the mail it did not take;
        then come the inputs among what was *posted* since. What else was posted was meant for a run that is
        over. *unbilled* is what the session spent besides its runs.
        """
        config = opened.config
        if before is None:
            memory = Memory(run=opened.run, session=_begun(config, session))
        else:
            # The progress of the run before stays behind: a fallback and a withdrawn tool answer the troubles
            # of one run.
            left = before.memory
            memory = Memory(
                run=opened.run,
                next_id=opened.next_id,
                session=_under(left.session, config),
                conversation=left.conversation,
                # A title costs, too. No run paid for it, so a budget would otherwise never see that spend.
                earlier=left.earlier + left.spent + unbilled,
            )
        # Inputs come last: a setting that was posted meanwhile wins over what the run before left.
        return cls(config, Thinking(stage=Start()), apply_inputs(memory, config, posted))

    def branched(self, run: str, over: State, conversation: ConversationMemory) -> Machine:
        """
        A machine that is done, from which the session goes on with *conversation*, that of *run*, now *over*.

        What people said and allowed since stays, and so does the bill: neither is undone by going back.
        """
        mine = self.memory
        spent = mine.earlier + mine.spent
        memory = Memory(
            run=run, next_id=mine.next_id, session=mine.session, conversation=conversation, earlier=spent
        )
        # Nothing is fed to this machine: the next run opens over it.
        return Machine(self.config, over, memory)

    def snapshot(self) -> bytes:
        """
        This machine as JSON, without its history and its configuration; `restore` takes all three.

        A snapshot has a few kilobytes however long the conversation. It holds what was allowed, so store it
        where only your processes can write.
        """
        from .snapshots import dump  # noqa: PLC0415  # the converter costs more than the rest of the engine

        return dump(self.state, self.memory)

    @classmethod
    def restore(cls, data: bytes, config: Config, history: History) -> Machine:
        """
        The machine of which *data* is the snapshot, over *history* and under *config*.

        Raises `NewerVersion` for a snapshot of a newer turnwheel, and `JournalError` for other bytes or
        another history.
        """
        from .snapshots import load  # noqa: PLC0415  # as above

        return cls(config, *load(data, history))

    def reconfigure(self, config: Config) -> None:
        """
        Go on under *config*. What a person changed, such as the model, stays as it was changed.

        A child is in the mode that its parent is in when it goes on. A model that took over and is not
        configured any more has no price here: it is asked no more.
        """
        # A journal has the new settings only. Each fold comes through here, so it must find the same memory
        # as the process that took over. The state stays as it is: a tool is looked up again when it starts.
        session, progress = _under(self.memory.session, config), self.memory.progress
        if progress.fallback not in config.model_names:
            progress = attrs.evolve(progress, fallback="")
        # A child has no say here: where a parent may only plan, its child must not write.
        if config.agent:
            session = attrs.evolve(session, mode=config.policy.mode, ceiling=config.ceiling)
        self.memory = attrs.evolve(self.memory, session=session, progress=progress)
        self.config = config

    def under(self, config: Config) -> bool:
        """Whether this goes on under *config* already, so that `reconfigure` would change nothing."""
        # Equal settings are not enough for a child: its own mode may have been changed since.
        session = self.memory.session
        in_mode = (session.mode, session.ceiling) == (config.policy.mode, config.ceiling)
        return self.config == config and (in_mode or not config.agent)

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return isinstance(self.state, Done)

    def step(self, event: Event | None = None, *, at: float = 0.0) -> Step:
        """
        What *event* leads to, with every state that is passed through without waiting; nothing changes here.

        With no event, only the latter, at the time *at*. Raises `IllegalTransition` for a bug of ours.
        """
        state, memory = self.state, self.memory
        effects: tuple[Effect, ...] = ()
        if event is not None:
            # The time of the cause holds for what follows: a second look at a clock could not be replayed.
            at = event.at
            state, memory, effects = advance(self.config, state, memory, event)
        passed = 0
        # Made here and not by callers, so that no driver can forget it. No journal has it: a fold makes it
        # again.
        while not state.open and not isinstance(state, Done):
            state, memory, more = advance(self.config, state, memory, Entered(at=at))
            effects += more
            passed += 1
            if passed > MAX_ENTERED:
                msg = f"{passed} states in a row waited for nothing, last {state.label}"
                raise InternalError(msg)
        return Step(event, state, memory, effects)

    def failure(self, event: Event, error: str) -> Step:
        """
        The step that ends the run with *error*, which `step` raised on *event*.

        What came in with *event* is kept for the next run. Nothing is waited for any more.
        """
        # From where the machine was before the event: of the steps that it led to, all are undone.
        memory = self.memory.receive(event)
        state, effects = done.failed(self.state, Context(self.config, memory, event), error)
        return Step(event, state, memory.record(effects), effects, error)

    def commit(self, step: Step) -> tuple[Effect, ...]:
        """Take *step*, which was made from the present state; return its effects."""
        self.state, self.memory = step.state, step.memory
        return step.effects

    def advance(self, event: Event | None = None, *, at: float = 0.0) -> tuple[Effect, ...]:
        """
        Take the step of *event*, as `step` says, and return its effects.

        Afterwards the run is done, or `state.open` names what it waits for. Where this raises, the machine is
        as it was. A notebook shows the effects as a table.
        """
        # Here and not in `commit`: a driver shows no tables, so its steps do not pay for them.
        return Effects(self.commit(self.step(event, at=at)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Machine):
            return NotImplemented
        # By content: a machine folded from a journal is another object than the one that wrote it.
        mine, theirs = (self.config, self.state, self.memory), (other.config, other.state, other.memory)
        return mine == theirs

    def _card(self) -> Card:
        return machine_card(self.state, self.memory)

    def __repr__(self) -> str:
        return f"<Machine {self.memory.run!r}: {state_line(self.state)}>"


def apply_inputs(memory: Memory, config: Config, posted: Iterable[Post]) -> Memory:
    """*memory* with the inputs of *posted*, each once, without those taken back, and with the settings."""
    for event in posted:
        if isinstance(event, InputWithdrawn):
            memory = memory.record((TakeMail(ids=(event.input,)),))
        # What else was posted, such as an answer or an interrupt, names a run that is over.
        if isinstance(event, INPUTS) and not memory.has(event):
            memory = memory.receive(event)
            # Recorded at once, without a step: between two runs no state is there to decide it. A refused
            # change counts as received all the same: its repeat must not take hold later.
            ceiling = memory.session.ceiling
            if isinstance(event, ControlReceived) and not refusal(config, event.change, ceiling):
                memory = memory.record((event.change,))
    return memory


def _begun(config: Config, session: str = "") -> SessionMemory:
    """What *session* begins with under *config*."""
    return SessionMemory(
        model=config.model.name, session_id=session, mode=config.policy.mode, ceiling=config.ceiling
    )


def _under(session: SessionMemory, config: Config) -> SessionMemory:
    """*session* under *config*: what a person chose where it can be, else what is configured."""
    chosen = session.chosen
    # A model that a person chose may be gone from the settings. To keep it would fail every turn from now on.
    if refusal(config, SetModel(model=session.model), session.ceiling):
        chosen = tuple([name for name in chosen if name != "model"])
    # What no person chose follows the settings: a new default is meant for old sessions, too.
    model = session.model if "model" in chosen else config.model.name
    mode = session.mode if "mode" in chosen else config.policy.mode
    # A child's, which its parent may have changed since, stays; a copy of a child has no parent.
    ceiling = session.ceiling if config.agent else config.ceiling
    if not mode.within(ceiling):
        mode, chosen = config.policy.mode, tuple([name for name in chosen if name != "mode"])
    return attrs.evolve(session, model=model, mode=mode, ceiling=ceiling, chosen=chosen)


def in_sandbox_of(begun: Config, config: Config) -> Config:
    """*config* with a sandbox no wider than that of *begun*, with which a run has begun."""
    # People have said yes to calls of it, and were told what these can do.
    kept, now = begun.sandbox, config.sandbox
    if kept is None or now == kept:
        return config
    if now is not None:
        kept = Sandbox(
            network=now.network and kept.network,
            memory=min(now.memory, kept.memory),
            tmp=min(now.tmp, kept.tmp),
        )
    return attrs.evolve(config, sandbox=kept)


def with_restrictions(config: Config, before: Config | None, lifted: Collection[Rule] = ()) -> Config:
    """*config* with the rules of an earlier run, settings *before*, that deny or ask and are not *lifted*."""
    # Other settings may come from another worker, or from a file that only lies in its directory. Such a rule
    # must not be gone because they do not mention it.
    there = () if before is None else before.rules
    kept = [
        rule for rule in there if rule.verdict is not Verdict.ALLOW and rule not in (*config.rules, *lifted)
    ]
    return attrs.evolve(config, rules=(*config.rules, *kept)) if kept else config


def error_line(error: Exception) -> str:
    """*error* as the end of a run tells it."""
    return f"internal error: {type(error).__name__}: {error}".removesuffix(": ")[:MAX_ERROR]


def drive(machine: Machine, at: float = 0.0) -> Generator[tuple[Effect, ...], Event, Done]:
    """
    *machine* as a generator: yields the effects of each step, is sent the next event, returns the end.

    *at* is when it begins, in seconds since the epoch. A synchronous loop over it is twenty lines and needs
    no policy of its own: perform the requests, send what came of one of them. Wait for no event once
    `machine.state` is `Done`: the effects just yielded are the last ones, and the next `send` ends it.
    """
    effects = machine.advance(at=at)
    while not isinstance(machine.state, Done):
        effects = machine.advance((yield effects))
    # Also the effects of the last step are for the caller: it has to store them and show the end.
    yield effects
    return machine.state


# What is open


def calls_at(state: State | None) -> tuple[Call, ...]:
    """The calls of the batch of *state*; none without a batch."""
    batch = None if state is None else batch_of(state)
    return () if batch is None else batch.calls


def questions(machine: Machine) -> tuple[AskApproval, ...]:
    """The open questions of *machine*."""
    # Made anew from the phases: a state that was restored from a journal has no list of questions.
    calls = calls_at(machine.state)
    return tuple([question(call.call, call.phase) for call in calls if isinstance(call.phase, Asked)])


def is_deadline(timer: SetTimer, state: State) -> bool:
    """Whether *timer* is the deadline of an open question in *state*."""
    return any(deadline.request == timer.id for deadline in deadlines_in(state))


def deadlines_in(state: State) -> list[Timer]:
    """The deadlines of the open questions in *state*."""
    asked = [call.phase.deadline for call in calls_at(state) if isinstance(call.phase, Asked)]
    return [deadline for deadline in asked if isinstance(deadline, Timer)]


def overtaken(machine: Machine, posted: Iterable[Post]) -> dict[str, Post]:
    """
    The calls of *machine* that no person can decide about once what was *posted* is applied.

    Each is asked about now, or its child may ask; with it stands the first input that changes this.
    """
    found: dict[str, Post] = {}
    left = _decidable(machine.state)
    # On a copy, and by the machine itself: a second account of what withdraws a question could differ.
    ahead = Machine(machine.config, machine.state, machine.memory)
    # Withdrawals go before all else, as in a run: no step takes their inputs.
    for event in sorted(posted, key=lambda one: not isinstance(one, InputWithdrawn)):
        if not left:
            break
        try:
            ahead.advance(event)
        except Exception:  # noqa: BLE001  # a bug of ours, of any kind, with which the run will end
            return found | {call: event for call, _ in left}
        closed = left - _decidable(ahead.state)
        found |= {call: event for call, _ in closed}
        left -= closed
    return found


def _decidable(state: State) -> frozenset[tuple[str, str]]:
    """The calls in *state* that are asked about, or whose child may ask; each with its request."""
    # With the request: a call that was allowed may be a child's by now, and its own question is closed.
    return frozenset(
        [
            (one.call.id, one.phase.request)
            for one in calls_at(state)
            if isinstance(one.phase, Asked)
            or (isinstance(one.phase, RunningChild) and one.phase.told is not Order.STOP)
        ]
    )


def stopped_children(state: State) -> list[tuple[str, Stopping]]:
    """The calls in *state* whose child runs and has been told to stop, each with how far the batch stops."""
    if (batch := batch_of(state)) is None:
        return []
    return [
        (call.call.id, batch.stopping)
        for call in batch.calls
        if isinstance(call.phase, RunningChild) and call.phase.told is Order.STOP
    ]


def calls_in(state: State | None) -> tuple[str, ...]:
    """The ids of the calls in *state* that have no result yet; none without a batch."""
    # A reviewed call has its result: only a hook's remark on it is still to come, so cancelling is too late.
    return tuple([one.call.id for one in calls_at(state) if not isinstance(one.phase, Settled | Reviewed)])


@final
@attrs.frozen(kw_only=True)
class ChildLink:
    """A running child: the *call* it works for, the id of its *session*, and its *agent*."""

    call: str
    session: str
    agent: str


def links_of(state: State, session: str) -> tuple[ChildLink, ...]:
    """The running children of *session* in *state*, in call order."""
    return tuple(
        [
            ChildLink(call=one.call.id, session=child_session(session, one.call.id), agent=_agent(one.call))
            for one in calls_at(state)
            # A call whose permission is still open has no child yet, and a settled one has none any more.
            if isinstance(one.phase, RunningChild)
        ]
    )


def _agent(call: ToolCall) -> str:
    # Arguments that cannot be read never started a child, so an empty name stands for no agent.
    name, _ = child_prompt(arguments_of(call.arguments) or {})
    return name


def agent_before(call: str, machine: Machine | None) -> str:
    """The agent that *call* of *machine*'s history started; empty where it started none."""
    # Nothing has run yet, so no call can have started a child.
    if machine is None:
        return ""
    # From the end: a person asks for a child that ended just now, and histories may be long.
    for message in reversed(machine.memory.history):
        for made in message.calls:
            # By kind and not by name: a host may have a tool of its own that is called run_agent.
            spec = machine.config.tool(made.name)
            if made.id == call and spec is not None and spec.kind is ToolKind.AGENT:
                return _agent(made)
    return ""
