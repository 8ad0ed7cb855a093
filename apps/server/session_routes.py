"""What is asked of sessions: lists, inputs, answers, and the ends of them; each as the session has it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing, suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, final
from uuid import uuid4

import attrs
import msgspec
from starlette.responses import Response

from ...diagrams.picture import LABELS, STATE_CLASSES
from ...effects.config import Steering
from ...effects.errors import ConfigError, UnknownCall, UnknownInput, UnknownRequest, UnknownSession
from ...effects.events import UserSent
from ...effects.messages import Binary
from ...effects.permissions import PermissionMode
from ...effects.records import Change, SetMode, SetModel, SetThinking
from ...effects.validators import MAX_ATTACHED
from ...engine.inspect.archive import delete
from ...engine.inspect.export import export_entries
from ...engine.inspect.fork import is_repeat
from ...engine.inspect.listing import described, listed
from ...engine.journal.entries import Posted, Titled
from ...engine.journal.fold import entries_of
from ...engine.journal.summary import SessionKind, SessionStatus
from .bodies import (
    AcceptedBody,
    AgentBody,
    AnsweredBody,
    BranchPoint,
    FileBody,
    Listing,
    NewDecision,
    NewFork,
    NewMessage,
    NewSession,
    NewSettings,
    SessionBody,
)
from .given import replacement_of
from .list_feed import ListFeed, listed_body
from .operations import ONE_SESSION, HttpCall, Parameter, operation, whole
from .problems import Refused
from .questions import answers_to, decision_of, fate
from .views import NEW, agent_body, session_body

if TYPE_CHECKING:
    from ...engine.inspect.fork import Replacement
    from ...engine.inspect.listing import Listed
    from .open_sessions import LiveSession, OpenSessions

ACCEPTED, CREATED, OK = HTTPStatus.ACCEPTED, HTTPStatus.CREATED, HTTPStatus.OK
CONFLICT, INVALID = HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY

MOST_LISTED, LISTED = 200, 50

# The states of sessions, with those that only the summary in a list tells.
STATES = (NEW, *STATE_CLASSES, *LABELS, SessionStatus.UNFINISHED, SessionStatus.UNREADABLE)
STATE_FILTER = Parameter(
    name="state",
    about="a label, or the name of a state",
    schema={"enum": [*dict.fromkeys(map(str, STATES)), ""]},
)
CHILD_FILTER = Parameter(
    name="children", about="no: without the sessions of child agents", schema={"enum": ["yes", "no", ""]}
)
ALSO_UNFINISHED = Parameter(
    name="unfinished", about="yes: also while a process is at work on it", schema={"enum": ["yes", "no", ""]}
)
LIST_PARAMETERS = (
    STATE_FILTER,
    Parameter(name="q", about="a part of the title or the id"),
    CHILD_FILTER,
    Parameter(name="limit", about="at most so many", schema=whole(1, MOST_LISTED)),
    Parameter(name="cursor", about="next of the part before", schema=whole(0)),
)
LARGE_FILES = f"the files have more than {MAX_ATTACHED:,} bytes"
# The id of the prompt that a session is made with, so the same session has it once.
FIRST_PROMPT = "first-prompt"
# Entries of a journal among which that prompt stands: requests to other servers may have written at once.
FIRST_ENTRIES = 8


def _files(given: Sequence[FileBody]) -> tuple[Binary, ...]:
    return tuple([Binary(media_type=file.media_type, data=file.data, name=file.name) for file in given])


@final
@attrs.frozen(kw_only=True)
class _Beginning:
    """The prompt of a request that begins a session: *text* and *files*, both empty for no prompt."""

    text: str
    files: tuple[Binary, ...]

    @property
    def runs(self) -> bool:
        """Whether a run begins with it."""
        return bool(self.text or self.files)

    def made(self, entries: Sequence[bytes]) -> bool:
        """Whether such a request wrote one of *entries*, the first ones of a journal."""
        if not self.runs:
            return any(number == 0 and not entry.title for number, entry in entries_of(Titled, entries))
        prompts = [entry.event for _, entry in entries_of(Posted, entries)]
        return any(
            prompt
            == UserSent(at=prompt.at, id=FIRST_PROMPT, text=self.text, files=self.files, sender=prompt.sender)
            for prompt in prompts
            if isinstance(prompt, UserSent)
        )


@attrs.frozen
class SessionRoutes:
    """The operations on sessions and agents; *attached* are the bytes of files that a prompt may bring."""

    opens: OpenSessions
    lists: ListFeed
    attached: int

    @operation("GET", "/api/agents", gives=Listing[AgentBody])
    async def agents(self, call: HttpCall) -> Listing[AgentBody]:
        """The agents that were given."""
        del call
        return Listing(
            items=[agent_body(name, agent, self.attached) for name, agent in self.opens.agents.items()]
        )

    # Lists

    @operation("GET", "/api/sessions", gives=Listing[SessionBody], parameters=LIST_PARAMETERS)
    async def sessions(self, call: HttpCall) -> Listing[SessionBody]:
        """The sessions, last written first."""
        call.check_query(LIST_PARAMETERS)
        query = call.request.query_params
        limit, after = call.number("limit", LISTED, 1, MOST_LISTED), query.get("cursor", "")
        stamp = call.number("cursor", 0) if after else None
        state, text = call.word(STATE_FILTER), query.get("q", "").casefold()
        without_children = call.word(CHILD_FILTER) == "no"
        found: list[SessionBody] = []
        while True:
            rows = await listed(self.opens.store, limit, stamp, call.names.prefix)
            for row in rows:
                stamp = row.stamp
                if without_children and row.about.kind is SessionKind.CHILD:
                    continue
                shown = await self._listed(row, call, state, text)
                if shown is not None:
                    found.append(shown)
                if len(found) == limit:
                    return Listing(items=found, next=str(stamp))
            if len(rows) < limit:
                return Listing(items=found)

    async def _listed(self, row: Listed, call: HttpCall, state: str, text: str) -> SessionBody | None:
        """*row* where it is in that *state* and has the *text* in its id or title; else None."""
        known = call.names.public(row.session)
        if known is None or text not in f"{known[1]}\n{row.about.title}".casefold():
            return None
        shown = await listed_body(self.opens, row, call.names)
        return shown if shown is not None and _is_in(shown.state, state) else None

    async def _body(self, one: LiveSession, call: HttpCall) -> SessionBody:
        row = await described(self.opens.store, one.name)
        if row is None:
            raise UnknownSession(one.id)
        return session_body(one.session, row, call.names, self.opens.agents[one.agent])

    # Beginning, looking, ending

    @operation(
        "POST",
        "/api/sessions",
        takes=NewSession,
        large=True,
        gives=SessionBody,
        status=CREATED,
        keyed=True,
        refuses=(HTTPStatus.NOT_FOUND,),
        unsaid=LARGE_FILES,
    )
    async def create(self, call: HttpCall) -> SessionBody:
        """Begin a session; the same request again finds it, and another one with its id is refused."""
        given: NewSession = call.body
        keyed = call.keyed("session")
        name = given.id or keyed or uuid4().hex
        agent = call.names.agents[0] if given.agent is None else given.agent
        if agent not in self.opens.agents:
            known = ", ".join(call.names.agents)
            raise Refused(HTTPStatus.NOT_FOUND, f"no agent {agent[:100]!r} here; there are: {known}")
        begin = _Beginning(text=given.prompt or "", files=_files(given.files))
        with suppress(UnknownSession):
            there, stored = await self.opens.find(call.names, name)
            if there != agent:
                raise Refused(CONFLICT, f"session {name!r} is one of agent {there!r}; choose another id")
            await self._check_begun(name, stored, begin)
        self.opens.check_room()
        async with (
            self.opens.begin(call.names, agent, name) as one,
            self.opens.place(call.names, one, begins=begin.runs),
        ):
            if begin.runs:
                await one.session.send(begin.text, files=begin.files, id=FIRST_PROMPT, sender=call.caller)
            elif await self.opens.store.info(one.name) is None:
                # A journal begins with an entry, and this one says nothing.
                await one.session.retitle("")
            # Another request may have taken the id meanwhile; then the prompt of this one was not sent.
            await self._check_begun(name, one.name, begin)
            await self.opens.wake(call.names, one)
            return await self._body(one, call)

    async def _check_begun(self, name: str, stored: str, begin: _Beginning) -> None:
        """Refuse the id *name* unless the session *stored* under it was begun by this very request."""
        row = await described(self.opens.store, stored)
        entries = await self.opens.store.load(stored, 0, FIRST_ENTRIES)
        copied = row is not None and row.about.kind is SessionKind.FORK
        if copied or not begin.made(entries):
            detail = (
                f"session {name!r} is there already, and this request did not begin it; send a prompt to it "
                f"with POST /api/sessions/{name}/messages, or choose another id"
            )
            raise Refused(CONFLICT, detail)

    @operation("GET", ONE_SESSION, gives=SessionBody)
    async def session(self, call: HttpCall) -> SessionBody:
        """One session."""
        async with self.opens.use(call.names, call.session) as one:
            return await self._body(one, call)

    @operation(
        "DELETE",
        ONE_SESSION,
        status=HTTPStatus.NO_CONTENT,
        parameters=(ALSO_UNFINISHED,),
        refuses=(CONFLICT,),
    )
    async def delete(self, call: HttpCall) -> Response:
        """Forget a session and its children; one at work only where that is asked for."""
        call.check_query([ALSO_UNFINISHED])
        _, name = await self.opens.find(call.names, call.session)
        if call.word(ALSO_UNFINISHED) != "yes" and (owner := await self.opens.at_work(name)):
            fix = "interrupt it first, or delete it at work with ?unfinished=yes"
            raise Refused(CONFLICT, f"session {call.session!r} is at work in {owner}; {fix}")
        await self.opens.forget(name)
        if not await delete(self.opens.store, name):
            raise UnknownSession(call.session)
        self.lists.deleted(call.names, call.session)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    @operation("GET", f"{ONE_SESSION}/export", gives="application/json")
    async def export(self, call: HttpCall) -> Response:
        """The whole session as one document."""
        _, name = await self.opens.find(call.names, call.session)
        row = await described(self.opens.store, name)
        if row is None:
            raise UnknownSession(call.session)
        entries = await self.opens.store.load(name)
        parent = call.names.public(row.about.parent)
        about = attrs.evolve(row.about, parent="" if parent is None else parent[1])
        document = await export_entries(
            entries, call.session, about, created=row.created, updated=row.updated
        )
        return Response(document, media_type="application/json")

    # Inputs

    @operation(
        "POST",
        f"{ONE_SESSION}/messages",
        takes=NewMessage,
        large=True,
        gives=AcceptedBody,
        status=ACCEPTED,
        keyed=True,
        unsaid=LARGE_FILES,
    )
    async def message(self, call: HttpCall) -> AcceptedBody:
        """A prompt, or a steer of the run that goes on."""
        given: NewMessage = call.body
        name, files = given.id or call.keyed("message"), _files(given.files)
        async with self.opens.use(call.names, call.session) as one:
            if not one.session.unfinished:
                self.opens.check_room()
            # A prompt behind a question waits for its answer.
            begins = given.mode != "queue" or not one.session.waiting
            async with self.opens.place(call.names, one, begins=begins):
                if given.mode == "queue":
                    sent = await one.session.send(given.text, files=files, id=name, sender=call.caller)
                else:
                    how = Steering.NOW if given.mode == "now" else Steering.AFTER_TOOL
                    sent = await one.session.steer(given.text, how, files=files, id=name)
                await self.opens.wake(call.names, one)
            return AcceptedBody(id=sent)

    @operation(
        "POST",
        ONE_SESSION + "/questions/{question}",
        takes=NewDecision,
        large=True,
        gives=AnsweredBody,
        keyed=True,
        unsaid="the call cannot run with the arguments: the schema of the tool, or a rule that denies",
    )
    async def answer(self, call: HttpCall) -> AnsweredBody:
        """Answer a question; the run goes on by itself."""
        given: NewDecision = call.body
        request, decision = call.request.path_params["question"], decision_of(given)
        async with (
            self.opens.use(call.names, call.session) as one,
            self.opens.main(call.names, one) as parent,
        ):
            # A child's question at its parent, which knows whether the child is about to be stopped.
            main = parent if any(each.id == request for each in one.session.waiting) else one
            begins = any(each.id == request for each in main.session.waiting)
            async with self.opens.place(call.names, main, begins=begins):
                try:
                    await main.session.approve(request, decision, by=call.caller)
                except UnknownRequest as error:
                    # The same answer again may come because the server that took it is gone.
                    await self.opens.wake(call.names, one)
                    await self._closed(one, call, error)
                await self.opens.wake(call.names, one)
        word = str(given.__struct_config__.tag)
        return AnsweredBody(id=request, decision=word, by=call.caller)

    async def _closed(self, one: LiveSession, call: HttpCall, error: UnknownRequest) -> None:
        """Refuse an answer to a question that is not open, unless it is the same request again."""
        below = await listed(self.opens.store, prefix=f"{one.name}.")
        family = [one.name, *[row.session for row in below if call.names.public(row.session) is not None]]
        for name in family:
            entries = await self.opens.store.load(name)
            async with aclosing(answers_to(error.request, entries, name)) as answers:
                async for answer in answers:
                    if call.key and answer.by == call.caller:
                        return
            if closed := await fate(error.request, entries, name):
                raise Refused(CONFLICT, f"question {error.request!r} {closed}")
        if error.closed_by:
            raise Refused(CONFLICT, str(error))
        raise error

    @operation("POST", f"{ONE_SESSION}/interrupt", gives=SessionBody, status=ACCEPTED, keyed=True)
    async def interrupt(self, call: HttpCall) -> SessionBody:
        """Stop the run."""
        async with self.opens.use(call.names, call.session) as one:
            await one.session.interrupt()
            # A run that no process drives stops once one goes on with it.
            await self.opens.wake(call.names, one)
            return await self._body(one, call)

    @operation("POST", f"{ONE_SESSION}/resume", gives=SessionBody, status=ACCEPTED, keyed=True)
    async def resume(self, call: HttpCall) -> SessionBody:
        """Go on with a run that was left in the middle, and with the queue."""
        self.opens.check_room()
        async with self.opens.use(call.names, call.session) as one:
            # A turn waits where another worker is at the session.
            if not one.working and self.opens.turns is None:
                await one.session.check_free()
            async with self.opens.place(call.names, one, begins=one.unfinished):
                await self.opens.wake(call.names, one)
            return await self._body(one, call)

    @operation("POST", f"{ONE_SESSION}/control", takes=NewSettings, gives=SessionBody, keyed=True)
    async def control(self, call: HttpCall) -> SessionBody:
        """Change the model, the mode or the thinking of a session."""
        given: NewSettings = call.body
        changes: list[Change] = []
        if isinstance(given.model, str):
            changes.append(SetModel(model=given.model))
        if isinstance(given.mode, PermissionMode):
            changes.append(SetMode(mode=given.mode))
        if not isinstance(given.thinking, msgspec.UnsetType):
            changes.append(SetThinking(tokens=given.thinking))
        if not changes:
            raise Refused(INVALID, "no setting to change; give model, mode or thinking")
        async with self.opens.use(call.names, call.session) as one:
            there = self.opens.agents[one.agent].config.model_names
            if isinstance(given.model, str) and given.model not in there:
                detail = f"no model {given.model[:100]!r} here; there are: {', '.join(there)}"
                raise Refused(HTTPStatus.NOT_FOUND, detail)
            for change in changes:
                await one.session.control(change)
            return await self._body(one, call)

    @operation("POST", ONE_SESSION + "/calls/{call}/cancel", gives=SessionBody, status=ACCEPTED, keyed=True)
    async def cancel(self, call: HttpCall) -> SessionBody:
        """Give up one call."""
        name = call.request.path_params["call"]
        async with self.opens.use(call.names, call.session) as one:
            try:
                await one.session.cancel(name)
            except UnknownCall as error:
                known = any(made.id == name for message in one.session.history for made in message.calls)
                if known:
                    raise Refused(CONFLICT, f"call {name!r} is over: it has its result") from error
                raise
            await self.opens.wake(call.names, one)
            return await self._body(one, call)

    @operation("DELETE", ONE_SESSION + "/queue/{input}", gives=SessionBody, refuses=(CONFLICT,))
    async def withdraw(self, call: HttpCall) -> SessionBody:
        """Take back a prompt that waits, or a steer that was not read."""
        name = call.request.path_params["input"]
        async with self.opens.use(call.names, call.session) as one:
            try:
                await one.session.withdraw(name)
            except UnknownInput as error:
                if error.known:
                    raise Refused(CONFLICT, str(error)) from error
                raise
            return await self._body(one, call)

    # Branches and forks

    @operation("POST", f"{ONE_SESSION}/branch", takes=BranchPoint, gives=SessionBody, keyed=True)
    async def branch(self, call: HttpCall) -> SessionBody:
        """Go back to the end of an earlier run."""
        given: BranchPoint = call.body
        async with self.opens.use(call.names, call.session) as one:
            await one.session.branch(given.run)
            return await self._body(one, call)

    @operation(
        "POST",
        f"{ONE_SESSION}/fork",
        takes=NewFork,
        large=True,
        needed=False,
        gives=SessionBody,
        status=CREATED,
        keyed=True,
        unsaid="the step takes no such replacement",
    )
    async def fork(self, call: HttpCall) -> SessionBody:
        """Copy a session up to a step, to go on from there in another way."""
        given: NewFork = call.body or NewFork()
        name = given.id or call.keyed("fork") or uuid4().hex
        instead = _instead(given, self.opens.agents[call.names.agents[0]].clock.now())
        async with self.opens.use(call.names, call.session) as one:
            there = await self._is_there(call, name)
            if not there:
                stored = call.names.stored(one.agent, name)
                try:
                    copy = await one.session.fork(stored, at=given.at, instead=instead)
                    await copy.close()
                except ConfigError as error:
                    # Unless the same request made it meanwhile, at another server: it is well said, and
                    # cannot happen at that step.
                    there = await self._is_there(call, name)
                    if not there:
                        raise Refused(CONFLICT, str(error)) from error
            async with self.opens.use(call.names, name) as made:
                if there:
                    await self._check_forked(one, made, given)
                return await self._body(made, call)

    async def _is_there(self, call: HttpCall, name: str) -> bool:
        with suppress(UnknownSession):
            await self.opens.find(call.names, name)
            return True
        return False

    async def _check_forked(self, one: LiveSession, made: LiveSession, given: NewFork) -> None:
        """Refuse the id of *made* unless it is the fork of *one* that such a request made."""
        copy, entries = [await self.opens.store.load(each.name) for each in (made, one)]
        if not await is_repeat(copy, entries, one.name, given.at, partial(_instead, given)):
            detail = f"session {made.id!r} already exists, and another request made it; choose another id"
            raise Refused(CONFLICT, detail)


def _instead(given: NewFork, at: float) -> Replacement | None:
    """What happens instead in the fork that was *given*; an event without a time happens *at* that one."""
    return replacement_of(given.instead, at) if isinstance(given.instead, dict) else given.instead


def _is_in(label: str, state: str) -> bool:
    """Whether *label* is *state*, or a stage of it; any is, where that is empty."""
    return not state or label == state or label.startswith(f"{state}.")
