"""What a session refuses, before anything is written: runs that others own, and inputs that no run reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...effects import errors
from ...effects.config import ToolKind
from ...effects.events import ControlReceived, UserSent, UserSteered
from ...effects.output import AgentOutput, OutputSpec
from ...states.context import INPUTS
from ...states.rules.hooks import guards
from ..journal.entries import Posted
from ..journal.fold import entries_of

if TYPE_CHECKING:
    from ...effects.events import Post
    from ..core.inputs import Input
    from ..core.machine import Machine
    from .environment import Environment
    from .session_log import SessionLog


def child_refusal(session: str) -> errors.ConfigError:
    """What refuses to run the child *session* by itself."""
    return errors.ConfigError(f"session {session!r} is a child; resume its parent")


def check_not_child(log: SessionLog, environment: Environment) -> None:
    """Refuse to run a child by itself."""
    # Its tools and limits are what the parent grants, and only the parent's process knows them.
    agent = environment.config.agent if log.state.machine is None else log.state.agent
    if agent and (agent != environment.config.agent or environment.task is None):
        raise child_refusal(log.journal.session)


def check_tools(log: SessionLog, machine: Machine, environment: Environment) -> None:
    """Refuse to take over the run of *machine* without its tools, or without a hook that may deny."""
    # Its model would read that there are no such tools, even of a call that a person has allowed. The tools
    # of a child are its parent's to grant.
    if log.state.agent:
        return
    config = environment.config
    # The tool by which the output is given comes with the run.
    needed = {tool.name for tool in machine.config.tools if tool.kind is not ToolKind.OUTPUT}
    lacking = {
        "tools": [*needed - {tool.name for tool in config.tools}],
        # A guard that is not here cannot deny what it is there to look at.
        "hooks": [*guards(machine.config) - {hook.name for hook in config.hooks}],
    }
    for kind, absent in lacking.items():
        if gone := sorted({*absent} - {*environment.retired}):
            way = "resume it where they are, or name them in Agent(retired=...)"
            session, names = log.journal.session, ", ".join(map(repr, gone))
            msg = f"session {session!r} has {kind} that are not here: {names}; {way}"
            raise errors.ConfigError(msg)


def check_run(log: SessionLog, environment: Environment, prompt: Input | None) -> None:
    """Refuse a run that cannot begin with *prompt*, or go on without one, here."""
    state = log.state
    check_not_child(log, environment)
    if prompt or state.unfinished or state.waiting:
        check_models(log, environment)
    if prompt is None and state.machine is None and not state.waiting:
        raise errors.UnknownSession(log.journal.session)
    machine = state.machine if state.unfinished else None
    if machine is None:
        return
    # An unfinished run may hold a question or a paid result: only `resume` goes on with it. Not so a child's
    # own task: a process that lost the session may have begun on it a moment ago.
    if prompt is not None and (environment.task is None or prompt.id != environment.task.id):
        raise left_unfinished(log)
    check_tools(log, machine, environment)


async def check_repeat(log: SessionLog, repeat: Input) -> None:
    """Raise `InputConflict` where the input of *log* with the id of *repeat* is another one."""
    for _, entry in entries_of(Posted, await log.journal.load()):
        event = entry.event
        # Of several with one id the first counts.
        if isinstance(event, INPUTS) and event.id == repeat.id:
            if isinstance(event, ControlReceived) or _said(event) != _said(repeat):
                raise errors.InputConflict(log.journal.session, repeat.id)
            return


def _said(sent: UserSent | UserSteered | Input) -> tuple[object, ...]:
    """What has to be equal in two inputs with one id; how models are asked may differ between processes."""
    wish = AgentOutput() if isinstance(sent, UserSteered) else sent.output
    return sent.text, sent.files, wish.identity if isinstance(wish, OutputSpec) else wish


def left_unfinished(log: SessionLog) -> errors.SessionBusy:
    """The error for a new run in the session of *log*, whose run is at work nowhere."""
    questions = tuple([question.id for question in log.state.questions])
    return errors.SessionBusy(log.journal.session, errors.Workplace.NOWHERE, questions=questions)


def check_models(log: SessionLog, environment: Environment, model: str = "") -> None:
    """Raise `ConfigError` where a model that the next run asks, such as *model*, is known not to answer."""
    # The session's, if it is still there, and the fallback.
    config = environment.config
    chosen = model or (
        config.model.name if log.state.machine is None else log.state.machine.memory.session.model
    )
    names = {chosen if chosen in config.model_names else config.model.name, config.fallback}
    environment.ready(*names - {""})


def check_reader(log: SessionLog, environment: Environment, event: Post) -> None:
    """Refuse an input to a child that has ended: no run would ever read it."""
    # Approvals and cancels pass: they fail by themselves where nothing is open.
    if not isinstance(event, INPUTS):
        return
    if log.state.machine is None:
        # A child that was named but never begun has no journal yet: its task has to be the first entry.
        if environment.config.agent and environment.task is None:
            raise errors.UnknownSession(log.journal.session)
    elif log.state.agent and log.state.machine.done:
        msg = f"child session {log.journal.session!r} has ended; speak to its parent"
        raise errors.ConfigError(msg)
