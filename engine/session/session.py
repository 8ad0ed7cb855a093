"""
The session: many runs over one history.

Theory of operation. `Session` is the public face of a `Worker`: it checks arguments, makes events of
them and reads the state. Prompts, steers, approvals, changed settings and interrupts come in here from any
process. A run that rests (only questions are open) holds nothing: it is rows in a store until an approver
answers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, cast, final, overload

from ...display.notebook import Card, Displayed
from ...effects.config import Steering
from ...effects.errors import ArgumentError, SessionClosed, SessionNotRead, UnknownInput
from ...effects.events import (
    ApprovalGiven,
    Approve,
    ControlReceived,
    Decision,
    Interrupted,
    UserSent,
    UserSteered,
)
from ...effects.history import History
from ...effects.records import SetModel
from ...effects.requests import AskApproval
from ...effects.usage import Spent
from ...effects.validators import clean, session_named
from ...performers.approvals import approval_event
from ...performers.base import look_at
from ...performers.slices import Slices
from ..core.inputs import Input, cancel_event, check_question, control_event, steer_input, withdraw_event
from ..journal.entries import Titled
from ..journal.journal import Journal
from ..journal.summary import Activity, activity_of, first_line
from .background import Background, begin
from .environment import AgentOutput_co, Environment, Result
from .followed import Followed
from .handle import Handle
from .outputs import read_as, want
from .refusals import check_models, child_refusal
from .run_stream import OnLeave, RunBuffer, RunStream
from .session_log import SessionLog
from .subscription import Subscription
from .watching import Watched, kept, position, watch
from .worker import Use, Worker

if TYPE_CHECKING:
    from ...diagrams import SVG
    from ...effects.records import Change, SetMode
    from ...performers.stores.base import Store
    from ...states.context import Mail
    from ..core.machine import ChildLink, Machine
    from ..inspect.fork import Replacement
    from ..inspect.pictures import PictureKind
    from ..inspect.run_tree import RunInfo
    from ..journal.fold import SessionState
    from .children import Children
    from .feed import Reader
    from .outputs import AnyKind, Files, OutputKind, T, UntypedKind


@final
class Session(Displayed, Generic[AgentOutput_co]):
    """
    One conversation. Made by `Agent.session`; use it as an async context manager or call `close`.

    One run at a time: a second one raises `SessionBusy`. `send`, `steer`, `withdraw`, `approve`, `control`,
    `cancel` and `interrupt` work at any time and from any process; with a store, the input is stored when
    they return, but for an `interrupt` of the run that goes on here, which is stored with the step that it
    causes. Where the session is deleted, each raises `SessionGone` from then on, and so does a run that goes
    on, also where another session has its name by now. All methods belong to one event loop.
    """

    __slots__ = ("__weakref__", "_background", "_environment", "_lent", "_log", "_named", "_worker", "id")

    def __init__(
        self,
        id: str,
        environment: Environment,
        store: Store | None = None,
        *,
        fresh: bool = False,
        named: bool = False,
    ) -> None:
        self.id = id
        # A caller chose the id, so the store may know the session, and has to be read before a look at it.
        self._named = named
        # A child that the parent's caller looks at: it shares the worker, and may not run or close it.
        self._lent = False
        # The class itself makes the sessions of children: the worker cannot import it without a circle.
        self._log = SessionLog(Journal(id, store), environment.redactor, fresh=fresh)
        self._worker = Worker(self._log, environment, Session)
        self._background = Background(self._worker)
        self._environment = environment

    # State

    def _check_read(self) -> None:
        # Empty would look like a session that waits for nothing. Where work has begun here, it is about to be
        # read, and a caller may look how far that is.
        begun = self._worker.use is not Use.FREE or self._worker.drain in self._environment.at_work
        if self._named and self._log.never_read and not begun:
            raise SessionNotRead(self.id)

    @property
    def _state(self) -> SessionState:
        self._check_read()
        return self._log.state

    @property
    def _children(self) -> Children:
        self._check_read()
        return self._worker.children

    @property
    def machine(self) -> Machine | None:
        """The machine of the latest run, or None before the first; look, do not advance."""
        # The machine itself and not a copy: it is large, and looked at often.
        return self._state.machine

    @property
    def history(self) -> History:
        """The messages, after any summary took the place of older ones."""
        return History.of() if self.machine is None else self.machine.memory.history

    @property
    def unfinished(self) -> bool:
        """Whether the latest run has not ended: it goes on, rests, or lost its process."""
        return self._state.unfinished

    @property
    def unbegun(self) -> frozenset[str]:
        """The open requests that no process has begun, of a run that was handed over; see `drain`."""
        return self._state.unbegun

    @property
    def tries(self) -> Mapping[str, int]:
        """How often what was open when the run was last taken over had been taken over; see `recover`."""
        return self._state.tries

    @property
    def running(self) -> bool:
        """Whether a run goes on in this process."""
        return self._worker.driver is not None

    @property
    def resting(self) -> bool:
        """Whether the run in this process waits only for people."""
        driver = self._worker.driver
        return driver is not None and driver.resting

    @property
    def activity(self) -> Activity:
        """What the latest run does, in few words; the `label` of the machine's state says it exactly."""
        return activity_of(None if self.machine is None else self.machine.state)

    @property
    def waiting(self) -> tuple[AskApproval, ...]:
        """The open questions: its own, then those of its children."""
        return self._children.waiting

    def redact(self, text: str) -> str:
        """*text* without the secrets that the session knows and those with a secret name, to show it."""
        hide = self._environment.redact
        return text if hide is None else hide(text)

    @property
    def children(self) -> tuple[ChildLink, ...]:
        """The running children, in the order of the calls they work for."""
        # From the machine and not from the worker: a child of another process is listed, too.
        return self._children.links

    def child(self, call: str) -> Session:
        """
        The session of the child of *call*, running or ended: to look at it, steer it, interrupt it.

        Only its parent runs it, and closing it here has no effect. An input to a child that has ended is a
        `ConfigError`. Raises `UnknownCall` where *call* started no child.
        """
        # A shallow copy: the same worker, but marked, so that the parent's own object stays as it is.
        lent: Session = cast("Any", copy(self._children.session(call)))
        lent._lent = True
        return lent

    @property
    def queue(self) -> tuple[Mail, ...]:
        """The prompts that wait for a run of their own, oldest first."""
        return self._state.prompts

    @property
    def title(self) -> str:
        """The title, empty where there is none yet."""
        return self._state.title

    @property
    def spent(self) -> Spent:
        """The account of all runs on every branch, and of the title."""
        return self._state.spent

    def result(self) -> Result[AgentOutput_co]:
        """The result of the latest run, as far as it has come; `UnknownSession` before the first."""
        # Where there is none, nothing was ever run here, or it was never loaded.
        self._check_read()
        return cast("Result[AgentOutput_co]", self._worker.report.result())

    def subscribe(self) -> Subscription:
        """
        Watch the runs of this object from now on; a slow subscriber loses notices and delays no run.

        Runs of other objects of the session, also in this process, are not among them: `watch` has those too.
        While nothing runs here it waits for the next run, and it ends when this object is closed.
        """
        return self._worker.feed.subscribe()

    def watch(self, since: int | str = 0, *, follow: bool = True) -> AsyncGenerator[Watched, None]:
        """
        Watch the session from entry *since* of its journal on, or from behind the notice with that id.

        What the journal has comes first, then what happens; without *follow* it ends there. A slow watcher
        misses notices without ids only. Runs of other processes are read from the store every half second,
        without deltas. It ends when this object is closed. Raises `ConfigError` without a store.
        """
        _, behind = self._log.journal.store, position(since)
        return watch(self._worker, behind) if follow else kept(self._log, behind)

    async def load(self) -> Session[AgentOutput_co]:
        """Read the new entries of the journal, and of running children; other methods do so by themselves."""
        await self._worker.load()
        return self

    # Runs and branches

    async def runs(self) -> tuple[RunInfo, ...]:
        """
        Its runs, in the order they began; they form a tree, and the session stands at one of them.

        Reads the whole journal. Raises `ConfigError` without a store, as the following methods do.
        """
        # Most processes never ask, and the converter costs more to set up than the rest of the engine.
        from ..inspect.run_tree import runs_of  # noqa: PLC0415  # see above

        return await runs_of(await self._log.journal.load(), self.id)

    async def heads(self) -> tuple[RunInfo, ...]:
        """The ends of its branches: the runs that no other run follows."""
        return tuple([run for run in await self.runs() if run.head])

    async def picture(self, kind: PictureKind = "path") -> SVG:
        """
        A picture of its runs as SVG: a text to write to a file, which a notebook shows.

        "path" is the way through the machine, "sequence" who asked whom, "calls" how long each call took.

        Reads the whole journal. Raises `ConfigError` without a store.
        """
        from ..inspect.pictures import picture_of  # noqa: PLC0415  # as in `runs`
        from ..inspect.replay import replayed  # noqa: PLC0415  # as in `runs`

        steps = Slices(replayed(await self._log.journal.load(), self.id))
        return picture_of([step async for step in steps], kind)

    def _card(self) -> Card:
        if self._named and self._log.never_read:
            return Card(title="Session", beside=f"{self.id!r}: not read yet")
        from ...display.word_cards import session_card  # noqa: PLC0415  # notebooks alone need it

        state = self._log.state
        now = None if state.machine is None else state.machine.state
        return session_card(self.id, now, state.questions, state.spent)

    async def branch(self, run: str = "") -> None:
        """
        Go back to the end of *run*, or to the beginning: the next run follows from there.

        The later runs stay as a branch to return to. Raises `SessionBusy` where a run is unfinished, and
        `UnknownRun` with the known ones.
        """
        # A child's history is part of its parent's, and cannot go back alone.
        self._check_own()
        async with self._worker.at_rest() as log:
            await log.branch(run, self._now())

    async def fork(
        self, id: str | None = None, *, at: int | None = None, instead: Replacement | None = None
    ) -> Session[AgentOutput_co]:
        """
        A new session *id* that begins with the entries of this one before step *at*.

        A step is an entry of the journal, as `replay` numbers them. Without *at* it is the end, and an
        unfinished run is a `SessionBusy`. *instead* replaces that step: with an event, a setting, a decision,
        or the text of another answer, result or prompt. `resume` goes on with a run that was cut in its
        middle, as after a lost process.

        The copy has the branches, granted rules and title. Its account begins at zero, and waiting inputs
        stay here. Raises `ConfigError` where it cannot be cut there.
        """
        from ..inspect.fork import ForkPoint, check_replacement, fork_session, name_taken  # noqa: PLC0415  # as in `runs`

        name = self._environment.new_id() if id is None else id
        session_named(name)
        if name == self.id:
            # Before a look at its run, which another name would not change.
            raise name_taken(name)
        # With a step there is no need for rest: a run under way only adds behind the copied entries.
        if at is None:
            async with self._worker.at_rest() as log:
                # Taken under the lock: the session may go on before its entries are loaded below.
                at = log.journal.length
        check_replacement(instead)
        # A person wrote it, and it may have a secret like any other input.
        if self._environment.redactor is not None:
            instead = await self._environment.redactor.redacted(instead)
        point = ForkPoint(at=at, now=self._now(), new_id=self._environment.new_id, instead=instead)
        await fork_session(self._log.journal, name, point)
        # Loaded, so that a caller can look at the copy before it runs.
        return await Session(name, self._environment.of_fork(), self._log.journal.store).load()

    async def retitle(self, text: str) -> None:
        """Set the title to *text*, at any time and from any process; empty for none."""
        # One line of bounded length: lists show it, and a summary row holds it.
        title = first_line(clean(text))
        await self._worker.add(lambda: Titled(at=self._now(), title=title))

    # Running it

    @overload
    async def run(
        self, prompt: str, *, files: Files = ..., id: str | None = ..., wait: bool = ...
    ) -> Result[AgentOutput_co]: ...
    @overload
    async def run(
        self, prompt: str, *, output: UntypedKind, files: Files = ..., id: str | None = ..., wait: bool = ...
    ) -> Result[Any]: ...
    @overload
    async def run(
        self,
        prompt: str,
        *,
        output: OutputKind[T],
        files: Files = ...,
        id: str | None = ...,
        wait: bool = ...,
    ) -> Result[T]: ...
    async def run(
        self,
        prompt: str,
        *,
        output: AnyKind = None,
        files: Files = (),
        id: str | None = None,
        wait: bool = False,
    ) -> Result[Any]:
        """
        Run the agent on *prompt* and *files* to *output*, its own if None, or until it rests on a question.

        Prompts in the queue get runs of their own, earlier ones before this; the result is this prompt's.
        *id* is the sender's own: a prompt with a known id is not sent again. A resting run's result has no
        reason and has the questions in `waiting`: answer them with `approve` and call `resume`. With *wait*,
        it waits for the answers. Raises `SessionBusy` where a run goes on or is unfinished, `InputConflict`
        where *id* is that of another prompt, and `UnknownInput` where the prompt was taken back while it
        waited; one that began ends ``interrupted``.
        """
        self._check_own()
        prompted = want(output, self._input(prompt, files, id), self._log, self._environment)
        return await self._to_the_end(prompted, wait=wait)

    @overload
    async def resume(self, *, wait: bool = ..., takeover: bool = ...) -> Result[AgentOutput_co]: ...
    @overload
    async def resume(self, *, output: UntypedKind, wait: bool = ..., takeover: bool = ...) -> Result[Any]: ...
    @overload
    async def resume(self, *, output: OutputKind[T], wait: bool = ..., takeover: bool = ...) -> Result[T]: ...
    async def resume(
        self, *, output: AnyKind = None, wait: bool = False, takeover: bool = False
    ) -> Result[Any]:
        """
        Go on with the run that rests or lost its process, and then with the prompts in the queue.

        *output* is what another process asked for; without it the value is plain JSON. Raises `ConfigError`
        where the run was asked for another one.
        The result is that of the unfinished run, also where prompts follow; without one, of the latest run.
        Raises `SessionBusy` where another process is at work on the session, unless *takeover* takes the
        session from it: its open work is then treated as that of a lost process.
        """
        self._check_own()
        if output is not None:
            await self.load()
            read_as(output, self._log, self._environment)
        return await self._to_the_end(None, wait=wait, takeover=takeover)

    async def check_free(self) -> None:
        """Raise `SessionBusy` with the owner of the lease; it watches one of another machine for its time."""
        await self._worker.lease.check()

    def check_models(self, model: str = "") -> None:
        """
        Raise `ConfigError` where the next run could not ask its models, such as without an API key.

        *model* is the name of one that is about to take the place of the session's.
        """
        check_models(self._log, self._environment, model)

    async def keep_lease(self) -> None:
        """Take the lease of a run here that an input woke from its rest: now, and not at the next look."""
        await self._worker.lease.keep()

    async def _to_the_end(self, prompt: Input | None, *, wait: bool, takeover: bool = False) -> Result[Any]:
        """Work until the queue is empty; the result of the run of *prompt*, or of the unfinished run."""
        sender = None if prompt is None else prompt.id
        runs = Followed(set() if sender is None else {sender}, unfinished=prompt is None)
        self._worker.report.follow(runs)
        try:
            # In the caller's own task, which a cancel stops.
            await self._worker.work(prompt, wait=wait, takeover=takeover)
        finally:
            runs.forget()
        # Closed, or drained before this prompt's turn came. It is in the queue, so nothing is lost.
        closed = self._worker.use is Use.CLOSED and not self._worker.drains
        if closed or sender in [mail.id for mail in self._log.state.prompts]:
            raise SessionClosed(self.id)
        if isinstance(runs.error, UnknownInput):
            raise runs.error
        # A `resume` of a session at rest has none to go on with: it is the latest run.
        return runs.result or self.result()

    def start(self, prompt: str | None = None, *, files: Files = ()) -> Handle:
        """
        As `stream`, in the background: the handle has the notices, the account and the result.

        Where a run goes on here, *prompt* waits for its turn in the queue. Raises `ConfigError` where the
        model cannot be asked, and `SessionBusy` where a run goes on and there is no *prompt*.
        """
        self._check_own()
        sent = self._prompt(prompt, files, None)
        self._background.check(prompted=sent is not None)
        return Handle(self, self._background, sent, self._environment.watch.buffer)

    def stream(  # noqa: PLR0913  # what comes with a prompt, and what becomes of its run
        self,
        prompt: str | None = None,
        *,
        output: AnyKind = None,
        files: Files = (),
        id: str | None = None,
        wait: bool = False,
        takeover: bool = False,
        on_leave: OnLeave | str = OnLeave.LEAVE,
    ) -> RunStream:
        """
        As `run`, or as `resume` without a *prompt*, yielding notices as they come.

        It ends when the queue is empty. Where it is left early, *on_leave* says what becomes of the run:
        "leave" stops the work and leaves it unfinished for `resume`, "continue" lets it go on in the
        background.
        """
        # Arguments are checked when it is called, and not when it is first iterated.
        self._check_own()
        sent = want(output, self._prompt(prompt, files, id), self._log, self._environment)
        buffer = RunBuffer(self._environment.watch.buffer, self._worker.room)
        left = OnLeave(on_leave)
        leave = self._worker.leave if left is OnLeave.LEAVE else self._background.go_on
        work = partial(self._worker.work, sent, buffer, wait=wait, takeover=takeover)
        return RunStream(lambda: begin(work()), leave, buffer, left)

    async def work(self, task: str | None, reader: Reader) -> None:
        """
        Work on this child for its parent, on *task* where it has not begun; *reader* gets the notices.

        Returns when it has ended, or was drained. A cancel leaves its run unfinished.
        """
        self._check_own()
        name = None if self._environment.task is None else self._environment.task.id
        self._worker.feed.attach(reader)
        await self._worker.work(None if task is None else self._input(task, (), name), wait=True)

    def _check_own(self) -> None:
        """Leave a child's conversation to its parent."""
        if self._lent:
            raise child_refusal(self.id)

    # Inputs. Each event is checked inside the call of `post`: under its lock, by the state of that moment,
    # and again where another process wrote first.

    async def send(
        self,
        text: str,
        *,
        files: Files = (),
        id: str | None = None,
        sender: str = "",
        start: bool = False,
        output: AnyKind = None,
    ) -> str:
        """
        Queue a prompt for a run of its own to *output*, and return its id (*id*, where given).

        The process that runs the session answers it; without one, `resume` or `stream` will. With *start* an
        idle session begins the run here, in the background. A prompt with a known id is not sent again;
        raises `InputConflict` where that was another one. *sender* names the person and the channel, in free
        words.
        """
        # Outside the callback: where it is tried again, the prompt has to keep its id.
        prompt = want(output, self._input(text, files, id, sender), self._log, self._environment)

        def event() -> UserSent:
            if start:
                self._check_wanted()
            return prompt.sent(self._now())

        await self._worker.send(prompt, event)
        if start:
            self._background.attend()
        return prompt.id

    async def steer(
        self,
        text: str,
        how: Steering | None = None,
        *,
        files: Files = (),
        id: str | None = None,
        start: bool = False,
    ) -> str:
        """
        Steer the unfinished run with *text*; *how* says when the model reads it. Returns its id.

        Without *how* the policy's holds. Where no run is unfinished it is a prompt. A known *id*, and
        *start*, are as in `send`.
        """
        steer = self._input(text, files, id)
        # The mode is fixed when it is sent: the policy may change before it is read.
        when = self._environment.config.policy.steering if how is None else Steering(how)
        # A steer that comes before a child has begun must not become a prompt: the parent gave the task.
        always = bool(self._environment.config.agent)

        def said() -> UserSent | UserSteered:
            event = steer_input(steer, when, self._log.state, self._now(), always=always)
            if start and isinstance(event, UserSent):
                self._check_wanted()
            return event

        await self._worker.send(steer, said)
        if start:
            self._background.attend()
        return steer.id

    async def withdraw(self, input: str) -> None:
        """
        Take back the prompt or steer with the id *input*, which no model has read: it is dropped.

        What a steer has stopped stays stopped. The id stays known, so `send` with it sends nothing. Raises
        `UnknownInput` with the inputs that wait where it was read, taken back or never sent.
        """
        task = self._environment.task
        name = "" if task is None else task.id
        await self._worker.post(lambda: withdraw_event(input, self._log.state, name, self._now()))

    def _check_wanted(self) -> None:
        """Raise what is known of why a run cannot begin here, where one would."""
        if not self.unfinished:
            self._background.check(prompted=True)

    async def approve(
        self,
        request: str,
        decision: Decision = Approve(),  # noqa: B008  # a frozen value
        *,
        by: str = "",
    ) -> None:
        """
        Answer the open question *request* with *decision*: `Approve`, `ApproveAlways` or `Deny`.

        It may be a child's question. A resting run reads the answer when it is resumed, in any process. *by*
        names the approver, in free words. Raises `UnknownRequest` where the question is not open,
        `ArgumentError` for an invalid decision, and `AnswerRefused` for arguments with which the call cannot
        run; the question stays open then.
        """
        await look_at(self._environment.clock)
        # Checked before the session is read: a mistake of the caller does not depend on its state.
        answer = approval_event(request, decision, self._now(), by)
        # The question may have been asked by another process since this object last read.
        await self.load()
        if (child := self._worker.children.asking(request, self.waiting)) is not None:
            # Through the child's own session: the answer belongs in the journal that its run reads.
            await child.approve(request, decision, by=by)
            return

        if self._environment.redactor is not None:
            # Refused before a vault is asked, which would keep the secrets of the answer. And a placeholder
            # would fit the schema where the secret does not.
            await self._worker.post(lambda: self._check(answer))
            # A person may edit arguments, and so type a secret, which must not reach the store. Outside the
            # lock: a vault may take long.
            answer = await self._environment.redactor.answer(answer, self._log.state.questions)
        await self._worker.post(lambda: check_question(answer, self._log.state, self.waiting))

    async def check_answer(self, request: str, decision: Decision) -> None:
        """Raise what `approve` would raise, and answer nothing: before several answers, all or none."""
        answer = approval_event(request, decision, self._now(), "")
        await self.load()
        if (child := self._worker.children.asking(request, self.waiting)) is not None:
            await child.check_answer(request, decision)
        else:
            self._check(answer)

    def _check(self, answer: ApprovalGiven) -> None:
        check_question(answer, self._log.state, self.waiting)

    async def control(self, change: Change) -> None:
        """
        Change a setting for this run and later ones: `SetModel`, `SetMode` or `SetThinking`.

        A mode holds for the children, too, once the run has applied it. Raises `ConfigError` with the reason
        where the setting cannot be changed, such as the mode of a child to one wider than its parent's.
        """
        # The id makes a repeated entry one change, after an append whose answer was lost.
        config, name = self._environment.config, self._environment.new_id()
        if isinstance(change, SetModel) and isinstance(cast("object", change.model), str):
            # The run would end with a bad request, when this caller is gone.
            self._environment.ready(change.model)
        await self._worker.post(lambda: control_event(change, config, self._now(), name, self.machine))

    async def take_mode(self, change: SetMode) -> None:
        """Make the *change* of mode that the parent of this child made; only the parent may call it."""
        self._check_own()
        name = self._environment.new_id()
        led = partial(ControlReceived, id=name, change=change, from_parent=True)
        await self._worker.post(lambda: led(at=self._now()))

    async def cancel(self, call: str) -> None:
        """
        Cancel the call with the id *call*: it does not start, or is stopped. The run goes on.

        Raises `UnknownCall` where the call has a result already.
        """
        await self._worker.post(lambda: cancel_event(call, self.machine, self._now()))

    async def interrupt(self, *, abort: bool = False) -> None:
        """
        Stop the run: work is cancelled, finished results stay. A second interrupt waits for no work.

        A resting run stops when it is resumed. Without an unfinished run this does nothing. With *abort* the
        run ends `aborted`: for a caller whose own task was cancelled.
        """
        stop = partial(Interrupted, aborted=abort)
        if self._worker.interrupted(stop(at=self._now())):
            return
        # Journaled for a run in another process, or for the next `resume`.
        await self._worker.post(lambda: stop(at=self._now()) if self.unfinished else None)

    def _prompt(self, prompt: str | None, files: Files, name: str | None) -> Input | None:
        if prompt is None and files:
            msg = "files come with a prompt; got files alone (an empty prompt sends only files)"
            raise ArgumentError(msg)
        return None if prompt is None else self._input(prompt, files, name)

    def _input(self, text: str, files: Files, name: str | None, sender: str = "") -> Input:
        # Without an id of the sender's own, each call is a new prompt.
        known = self._environment.new_id() if name is None else name
        return Input(text=text, files=files, id=known, sender=sender, trace=self._environment.sender_trace)

    def _now(self) -> float:
        return self._environment.clock.now()

    # The end

    async def drain(self, within: float | None = None) -> None:
        """
        Let the running work end, begin nothing more, and close.

        The next owner begins what follows. Work that has not ended after *within* seconds is cut off. A `run`
        returns how far it came; one whose prompt had no turn yet raises `SessionClosed`.
        """
        # Draining a child alone would leave its parent waiting for ever.
        self._check_own()
        await self._worker.drain(within)

    async def close(self) -> None:
        """
        Close. A running run is left unfinished: its work stops, and `resume` goes on with it from the store.

        A model that was asked for a title may answer within five seconds. Closing twice is fine.
        """
        # A lent child is its parent's to close.
        if not self._lent:
            await self._worker.close()

    async def __aenter__(self) -> Session[AgentOutput_co]:
        # Loaded at once, so that its properties say something inside the block.
        return await self.load()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
