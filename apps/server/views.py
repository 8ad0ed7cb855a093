"""Sessions, agents and steps as the bodies that answers are made of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...effects.messages import Message
from ...engine.core.codec import TAG, converter
from ...engine.core.snapshots import Snapshot, flat
from ...engine.inspect.replay import ReplayedStep, plain_effects, plain_entry
from ...engine.journal.summary import SessionKind, SessionStatus, SessionSummary
from ...states.rules.schema import arguments_of
from ...states.state import Done, State
from .bodies import (
    AgentBody,
    LimitsBody,
    QuestionBody,
    QueuedBody,
    SessionBody,
    SpendBody,
    StepBody,
    StepInFull,
    ToolBody,
)

if TYPE_CHECKING:
    from ...effects.config import Limits
    from ...effects.requests import AskApproval
    from ...effects.usage import Spent
    from ...engine.agent import Agent
    from ...engine.inspect.listing import Listed
    from ...engine.session.session import Session
    from .access import Namespace

NEW = "new"
"""The state of a session before its first run, which has no machine and so no label."""

# What a machine's label would be, of sessions that are not read for a list.
LABEL_OF = {SessionStatus.IDLE: "done", SessionStatus.RESTING: "confirming"}


def agent_body(name: str, agent: Agent, attached: int) -> AgentBody:
    """The *agent* called *name*, whose prompts may bring files of *attached* bytes."""
    config = agent.config
    specs = [
        ToolBody(
            name=tool.name,
            description=tool.description,
            side_effect=str(tool.side_effect),
            parameters=json.loads(tool.schema),
        )
        for tool in config.tools
    ]
    models = [*config.model_names]
    tools = [tool.name for tool in config.tools]
    return AgentBody(
        name=name, model=config.model.name, tools=tools, models=models, specs=specs, attached=attached
    )


def spend_body(spent: Spent) -> SpendBody:
    """The account *spent*."""
    used = spent.usage
    return SpendBody(
        turns=spent.turns,
        input=used.input,
        output=used.output,
        cached=used.cached,
        reasoning=used.reasoning,
        usd=f"{spent.cost:f}",
        seconds=spent.seconds,
        unpriced=spent.unpriced,
    )


def limits_body(limits: Limits) -> LimitsBody:
    """The *limits* of a run."""
    usd = None if limits.usd is None else f"{limits.usd:f}"
    return LimitsBody(turns=limits.turns, tokens=limits.tokens, usd=usd, seconds=limits.seconds)


def public_id(names: Namespace, name: str) -> str:
    """The id, outside, of the session with that *name* in the store."""
    known = names.public(name)
    return "" if known is None else known[1]


def question_body(asked: AskApproval, names: Namespace) -> QuestionBody:
    """The open question *asked*."""
    return QuestionBody(
        id=asked.id,
        call=asked.call,
        tool=asked.tool,
        arguments=arguments_of(asked.arguments) or {},
        why=asked.why,
        due=asked.due,
        session=public_id(names, asked.session),
        agent=asked.agent,
    )


def session_body(session: Session, row: Listed, names: Namespace, agent: Agent) -> SessionBody:
    """The loaded *session* of *agent*, of which the store lists *row*."""
    machine, state = session.machine, NEW
    reason: str | None = None
    if machine is not None:
        state = machine.state.label
        reason = machine.state.reason if isinstance(machine.state, Done) else None
    config = agent.config if machine is None else machine.config
    known = None if machine is None else machine.memory.session
    return SessionBody(
        id=public_id(names, session.id),
        agent=(names.public(session.id) or ("",))[0],
        title=session.title,
        state=state,
        reason=reason,
        questions=[question_body(asked, names) for asked in session.waiting],
        queue=[
            QueuedBody(id=mail.id, text=mail.text, at=mail.at, sender=mail.sender) for mail in session.queue
        ],
        spend=spend_body(session.spent),
        limits=limits_body(config.limits),
        updated=row.updated,
        created=row.created,
        kind=str(row.about.kind),
        parent=public_id(names, row.about.parent),
        run="" if machine is None else machine.memory.run,
        model=config.model.name if known is None else known.model,
        mode=str(config.policy.mode if known is None else known.mode),
        running=session.running,
        steps=row.length,
    )


def row_label(about: SessionSummary) -> str:
    """What a machine's label would be, of a session *about* which only the summary is read."""
    # A session that went back to its beginning has no run to be done with.
    return LABEL_OF.get(about.state, str(about.state)) if about.runs else NEW


def row_body(row: Listed, names: Namespace, agent: Agent) -> SessionBody:
    """The session that the store lists as *row*, where nothing is open in it: its journal is not read."""
    about, (name, known) = row.about, names.public(row.session) or ("", "")
    return SessionBody(
        id=known,
        agent=name,
        title=about.title,
        state=row_label(about),
        reason=about.reason,
        questions=[],
        queue=[],
        spend=spend_body(about.spent),
        limits=limits_body(agent.config.limits),
        updated=row.updated,
        created=row.created,
        kind=str(about.kind),
        parent=public_id(names, about.parent),
        run="",
        model=agent.config.model.name,
        mode=str(agent.config.policy.mode),
        running=False,
        steps=row.length,
    )


def is_at_rest(row: Listed) -> bool:
    """Whether *row* says all that a list tells of its session."""
    unread = {SessionStatus.IDLE: not row.about.prompts, SessionStatus.UNREADABLE: True}
    return unread.get(row.about.state, False) or row.about.kind is SessionKind.CHILD


# Steps


def plain_state(state: State) -> dict[str, Any]:
    """The fields of *state*, with its tag."""
    plain: dict[str, Any] = converter.unstructure(state, State)
    return plain


def step_body(step: ReplayedStep, names: Namespace) -> StepBody:
    """One *step*."""
    return StepBody(**_step_fields(step, names))


def step_in_full(step: ReplayedStep, names: Namespace) -> StepInFull:
    """One *step*, with the memory after it."""
    memory, history = None, []
    if step.memory is not None and step.state is not None:
        memory = converter.unstructure(flat(step.state, step.memory), Snapshot)
        # It is told beside the memory, as in every step.
        del memory["state"], memory["version"]
        history = [converter.unstructure(message, Message) for message in step.memory.history]
    return StepInFull(**_step_fields(step, names), memory=memory, history=history)


def _step_fields(step: ReplayedStep, names: Namespace) -> dict[str, Any]:
    entry = plain_entry(step.entry)
    if "session" in entry:
        entry["session"] = public_id(names, entry["session"])
    return {
        "number": step.number,
        "at": step.at,
        # An entry without an event is what happened, too: a run was opened, or taken over.
        "event": entry.get("event", entry),
        "before": NEW if step.before is None else step.before.label,
        "state": step.label or NEW,
        "effects": plain_effects(step.effects),
        "run": step.run,
        "entry": entry[TAG],
        "values": None if step.state is None else plain_state(step.state),
        "spend": spend_body(step.spent),
    }
