"""
The console: its page and files, and what they ask of sessions beyond the operations of the server.

Theory of operation. The page is plain HTML, CSS and ES modules, which a browser runs as they are. It knows
sessions by the same operations as any other program, and by those here, which only read. Nothing in its files
is about a session, so they are for those without a token, too; the data is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import attrs
from starlette.responses import Response

from ...diagrams import chart
from ...display.rendering import line_of, printable
from ...effects.errors import ConfigError, UnknownRequest
from ...effects.events import AgentFinished, AgentProgressed, ControlReceived, Event, Failure, ModelFailed
from ...effects.notices import Notice, lasting_notices
from ...effects.records import SetMode, SetModel
from ...engine.core.codec import TAG, converter
from ...engine.inspect.archive import bisect, costs, explain, replay
from ...engine.inspect.listing import described, listed
from ...engine.inspect.replay import ReplayedStep
from ...engine.journal.entries import Entry, HandedOver, Posted, RunOpened, TakenOver, Titled
from ...engine.journal.summary import SessionSummary
from ...performers.slices import Slices
from ...performers.tools.preview import file_preview
from ...performers.worker_pool import finish
from ...states.batch.batch import Call
from ...states.rules.schema import arguments_of
from ...states.state import batch_of
from ..cli.scenario_export import scenario_of
from ..server.bodies import Listing
from ..server.operations import ONE_SESSION, HttpCall, Parameter, operation, whole
from ..server.problems import Refused
from ..server.views import NEW, public_id, row_label, spend_body
from .bodies import (
    DifferenceBody,
    FamilyBody,
    MomentBody,
    NoticeBody,
    OutlineStep,
    PartingStep,
    WhyBody,
    WrittenFileBody,
)

if TYPE_CHECKING:
    from ...engine.inspect.costs import Costs
    from ..server.access import Namespace
    from ..server.open_sessions import OpenSessions

# By the ends of their names; a file with another end is none of the page's.
MEDIA_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}

# All that the page may load is from this server, and nothing in it is run that came as text.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A server of another version has other files under the same names.
    "Cache-Control": "no-cache",
}

# Made of the table, and so no files.
CHART, CHART_STYLE = "chart.svg", "chart.css"

OUTLINED, MOST_OUTLINED = 1_000, 5_000
TITLE_LENGTH = 200

# The title of a failure that is none, as in a fork, which begins before its model is asked.
UNBEGUN = "the model was not asked yet; it is asked now"

PART_PARAMETERS = (
    Parameter(name="from", about="the number of the first step", schema=whole(0)),
    Parameter(name="cursor", about="next of the part before, in the place of from", schema=whole(0)),
    Parameter(name="limit", about="at most so many steps", schema=whole(1, MOST_OUTLINED)),
)
COMPARE_PARAMETERS = (Parameter(name="other", about="the id of the other session"),)

# A test by itself: it needs turnwheel and pytest, and neither a model nor this journal.
TEST = '''\
"""What happened in session {name}, played again on the bare machine."""

from turnwheel.testing import play_scenario, read_scenario, rewritten

STORY = """\\
{story}"""


def test_the_session_goes_as_it_went() -> None:
    assert rewritten(STORY, play_scenario(read_scenario(STORY))) == STORY
'''


@cache
def page_files() -> dict[str, bytes]:
    """The files of the page, by their names."""
    # In two: the page allows no style inside of a picture.
    before, _, rest = chart().partition("<style>")
    style, _, after = rest.partition("</style>")
    folder = files(__name__.rpartition(".")[0]).joinpath("page")
    there = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}
    return {**there, CHART: (before + after).encode(), CHART_STYLE: style.encode()}


def _file_answer(name: str) -> Response:
    # Looked up: a name with a slash or dots in it leads nowhere, and one that strangers make up is not kept.
    data, kind = page_files().get(name), MEDIA_TYPES.get(name.rpartition(".")[2])
    if data is None or kind is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"the console has no file {name[:100]!r}")
    return Response(data, media_type=kind, headers=PAGE_HEADERS)


def outline_step(step: ReplayedStep) -> OutlineStep:
    """*step* in a few words."""
    event, known = step.event, None if step.memory is None else step.memory.session
    call, about = call_of(step)
    return OutlineStep(
        number=step.number,
        at=step.at,
        event=type(step.entry if event is None else event).__name__,
        title=entry_title(step.entry) if event is None else title_of(event),
        posted=isinstance(step.entry, Posted),
        state=step.label or NEW,
        way=step.way,
        run=step.run,
        model="" if known is None else known.model,
        mode="" if known is None else str(known.mode),
        seconds=getattr(event, "seconds", None),
        request=getattr(event, "request", ""),
        call=call,
        about=about,
        spend=spend_body(step.spent),
        setting=setting_of(event),
    )


def notice_bodies(step: ReplayedStep) -> list[NoticeBody]:
    """The notices of *step* that have an id."""
    return [
        NoticeBody(
            id=f"{step.number}.{place}",
            name=type(notice).__name__,
            data=converter.unstructure(notice, Notice),
        )
        for place, notice in enumerate(lasting_notices(step.effects))
    ]


def title_of(event: Event) -> str:
    """What *event* is about, in a line."""
    if isinstance(event, ModelFailed) and event.failure is Failure.UNBEGUN:
        return UNBEGUN
    return line_of(event)[:TITLE_LENGTH].partition(" ")[2]


def entry_title(entry: Entry) -> str:
    """What *entry* is about, which is no event, in a line."""
    if isinstance(entry, Titled):
        return printable(entry.title)[:TITLE_LENGTH]
    if isinstance(entry, RunOpened):
        return entry.config.model.name
    if isinstance(entry, HandedOver):
        left = f"; open requests that had not begun: {len(entry.unbegun)}" if entry.unbegun else ""
        return f"by its worker, as for a deploy or a fork{left}"
    if isinstance(entry, TakenOver):
        return "by another process, or later" + ("" if entry.config is None else "; with other settings")
    return ""


def call_of(step: ReplayedStep) -> tuple[str, str]:
    """The id of the call that *step* is about, and its tool or its child; empty for none."""
    event = step.event
    # An answer names its request: the call that waited for it is in the state before.
    batch = None if step.before is None else batch_of(step.before)
    known, request = getattr(event, "call", ""), getattr(event, "request", "")
    for call in () if batch is None else batch.calls:
        if call.call.id == known or (request and request in call.open):
            return call.call.id, _about(call, event)
    return known, ""


def _about(call: Call, event: Event | None) -> str:
    if not isinstance(event, AgentProgressed | AgentFinished):
        return call.call.name
    asked = arguments_of(call.call.arguments) or {}
    return f"{asked.get('agent', '')}: {printable(str(asked.get('prompt', '')))}"[:TITLE_LENGTH]


def setting_of(event: Event | None) -> dict[str, str]:
    """The model or the mode that a person chose with *event*; between two runs it is for the next one."""
    match event:
        case ControlReceived(change=SetModel(model=model)):
            return {"model": model}
        case ControlReceived(change=SetMode(mode=mode)):
            return {"mode": str(mode)}
        case _:
            return {}


@attrs.frozen
class ConsoleRoutes:
    """The page, and the operations that are for it."""

    opens: OpenSessions
    _scenarios: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)

    @operation("GET", "/", gives="text/html", open=True)
    async def page(self, call: HttpCall) -> Response:
        """The console."""
        del call
        return _file_answer("index.html")

    @operation("GET", "/console/{file}", gives="*/*", open=True)
    async def file(self, call: HttpCall) -> Response:
        """A file of the console."""
        return _file_answer(call.request.path_params["file"])

    @operation("GET", "/favicon.ico", gives="image/svg+xml", open=True)
    async def icon(self, call: HttpCall) -> Response:
        """The icon, for browsers that ask for it by that name: on pages that name none."""
        del call
        return _file_answer("icon.svg")

    @operation("GET", f"{ONE_SESSION}/outline", gives=Listing[OutlineStep], parameters=PART_PARAMETERS)
    async def outline(self, call: HttpCall) -> Listing[OutlineStep]:
        """The steps from one on, in a few words each."""
        steps, following = await self._part(call)
        return Listing(items=[outline_step(step) async for step in Slices(steps)], next=following)

    @operation("GET", f"{ONE_SESSION}/notices", gives=Listing[NoticeBody], parameters=PART_PARAMETERS)
    async def notices(self, call: HttpCall) -> Listing[NoticeBody]:
        """The notices of the steps from one on, as the events of the session have them."""
        steps, following = await self._part(call)
        items = [body async for step in Slices(steps) for body in notice_bodies(step)]
        return Listing(items=items, next=following)

    async def _part(self, call: HttpCall) -> tuple[list[ReplayedStep], int | None]:
        """The steps that are asked for, and the number of the first one behind them; None at the end."""
        since = call.number("from", call.number("cursor", 0))
        limit = call.number("limit", OUTLINED, 1, MOST_OUTLINED)
        _, name = await self.opens.find(call.names, call.session)
        steps = [step async for step in replay(self.opens.store, name, since, limit)]
        return steps, steps[-1].number + 1 if len(steps) == limit else None

    @operation("GET", ONE_SESSION + "/calls/{call}/why", gives=WhyBody)
    async def why(self, call: HttpCall) -> WhyBody:
        """The story of one call."""
        _, name = await self.opens.find(call.names, call.session)
        told = await explain(self.opens.store, name, call.request.path_params["call"])
        return WhyBody(
            session=public_id(call.names, told.session),
            call=told.call,
            tool=told.tool,
            arguments=told.arguments,
            moments=[MomentBody(at=each.at, what=each.what, text=each.text) for each in told.moments],
        )

    @operation("GET", ONE_SESSION + "/questions/{question}/file", gives=WrittenFileBody)
    async def written_file(self, call: HttpCall) -> WrittenFileBody:
        """The file that a call writes if its question is approved, as it is now."""
        request = call.request.path_params["question"]
        async with self.opens.use(call.names, call.session) as one:
            asked = next((each for each in one.session.waiting if each.id == request), None)
            if asked is None:
                raise UnknownRequest(request, tuple([each.id for each in one.session.waiting]))
            agent, values = self.opens.agents[one.agent], arguments_of(asked.arguments) or {}
            reading = asyncio.to_thread(
                file_preview, agent.tools, asked.tool, values, agent.cwd, agent.directories
            )
            file = await finish(reading)
            if file is None:
                return WrittenFileBody()
            before = None if file.before is None else one.session.redact(file.before)
            return WrittenFileBody(path=file.path, size=file.size, before=before, problem=file.problem)

    @operation("GET", f"{ONE_SESSION}/family", gives=FamilyBody)
    async def family(self, call: HttpCall) -> FamilyBody:
        """A session with its children at all depths: where each is, and what it spent."""
        _, name = await self.opens.find(call.names, call.session)
        bill = await costs(self.opens.store, name)
        below = await listed(self.opens.store, prefix=f"{name}.")
        rows = [row for row in (await described(self.opens.store, name), *below) if row is not None]
        return family_body(bill, call.names, {row.session: row.about for row in rows})

    @operation("GET", f"{ONE_SESSION}/compare", gives=DifferenceBody, parameters=COMPARE_PARAMETERS)
    async def compare(self, call: HttpCall) -> DifferenceBody:
        """The first step at which a session and another one differ."""
        _, one = await self.opens.find(call.names, call.session)
        _, other = await self.opens.find(call.names, call.request.query_params.get("other", ""))
        found = await bisect(self.opens.store, one, other)
        if found is None:
            return DifferenceBody(one=None, other=None, where=())
        one_step, other_step = parting_step(found.one), parting_step(found.other)
        return DifferenceBody(one=one_step, other=other_step, where=found.where)

    @operation("GET", f"{ONE_SESSION}/test.py", gives="text/x-python", refuses=(HTTPStatus.CONFLICT,))
    async def test(self, call: HttpCall) -> Response:
        """A test for pytest that plays the session again."""
        _, name = await self.opens.find(call.names, call.session)
        try:
            entries = await self.opens.store.load(name)
            # In a thread: a scenario is played as a whole. One at a time: each thread that computes has the
            # event loop wait for its turn.
            async with self._scenarios:
                story = await finish(asyncio.to_thread(scenario_of, entries, call.session))
        except ConfigError as error:
            # It is well said, and this session cannot be told so.
            raise Refused(HTTPStatus.CONFLICT, str(error)) from error
        escaped = story.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        text = TEST.format(name=call.session, story=escaped)
        return Response(text, media_type="text/x-python")


def parting_step(step: dict[str, Any] | None) -> PartingStep | None:
    """*step*, plain as a replay has it, in a few words."""
    if step is None:
        return None
    entry = step["entry"]
    return PartingStep(
        number=step["number"],
        event=entry.get("event", entry)[TAG],
        before=step["before"] or NEW,
        state=step["label"] or NEW,
    )


def family_body(bill: Costs, names: Namespace, rows: Mapping[str, SessionSummary]) -> FamilyBody:
    """The session of *bill* with its children, whose summaries are in *rows*."""
    known = public_id(names, bill.session)
    about = rows.get(bill.session, SessionSummary())
    return FamilyBody(
        id=known,
        call=known.rpartition(".")[2],
        agent=bill.agent,
        title=bill.title,
        state=row_label(about),
        reason=about.reason,
        spend=spend_body(bill.total),
        children=[family_body(child, names, rows) for child in bill.children],
    )
