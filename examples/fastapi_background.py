"""
Runs in the background of a FastAPI app, by routes of its own. A scripted model: no key.

A session is rows in the store: each request opens the one that it is about, and keeps nothing. The run goes
on in a task of this process, with or without readers. They get the notices that the journal has, each with an
id; deltas have none, and starlette_routes.py streams them. Several processes on one store also have to share
out the runs that a dead one left: `create_app` of `turnwheel.apps` does that.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Annotated

import httpx
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Path, Request, status
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, StringConstraints

from turnwheel import Agent, Approve, Deny, Session, tool
from turnwheel.effects import CallModel, RunEnded, UnknownRequest
from turnwheel.engine import SessionKind, SessionStatus, encode, listed
from turnwheel.testing import ScriptedModel, calls, says


class NewRun(BaseModel):
    prompt: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100_000)]


class Begun(BaseModel):
    session: str


class Answer(BaseModel):
    approve: bool
    reason: str = ""


def the_agent(request: Request) -> Agent:
    """The agent of this process."""
    agent: Agent = request.app.state.agent
    return agent


OurAgent = Annotated[Agent, Depends(the_agent)]
SessionId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
LastEventId = Annotated[str, Header(pattern=r"^[0-9]{1,18}(\.[0-9]{1,18})?$")]


async def the_session(session: SessionId, agent: OurAgent) -> Session:
    """The session of the path. Check here that it belongs to the caller."""
    stored = await agent.session(session).load()
    if stored.machine is None and not stored.queue:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"no session {session!r}")
    return stored


StoredSession = Annotated[Session, Depends(the_session)]

router = APIRouter(prefix="/runs")


@router.post("", status_code=status.HTTP_202_ACCEPTED)
async def begin(new: NewRun, agent: OurAgent) -> Begun:
    """Begin a run. Its prompt is in the store before this returns."""
    session = agent.session()
    await session.send(new.prompt, start=True)
    return Begun(session=session.id)


@router.get("/{session}/events")
async def events(session: StoredSession, last_event_id: LastEventId = "0") -> StreamingResponse:
    """The notices behind *last_event_id*, until the run ends: a page then closes its EventSource."""

    async def frames() -> AsyncGenerator[str, None]:
        async with aclosing(session.watch(since=last_event_id)) as watching:
            async for watched in watching:
                head = f"id: {watched.id}\n" if watched.id else ""
                name, data = type(watched.notice).__name__, encode(watched.notice).decode()
                yield f"{head}event: {name}\ndata: {data}\n\n"
                if isinstance(watched.notice, RunEnded):
                    return

    return StreamingResponse(frames(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@router.post("/{session}/questions/{question}", status_code=status.HTTP_204_NO_CONTENT)
async def answer(session: StoredSession, question: str, given: Answer) -> None:
    """Answer a question. The run, which waits for that in its task, goes on."""
    try:
        await session.approve(question, Approve() if given.approve else Deny(given.reason))
    except UnknownRequest as closed:
        raise HTTPException(status.HTTP_409_CONFLICT, str(closed)) from closed


async def go_on(agent: Agent) -> None:
    """Go on with the runs that an earlier process left, and wait again for the answers to their questions."""
    for row in await listed(agent.store):
        about = row.about
        is_left = about.state in {SessionStatus.UNFINISHED, SessionStatus.RESTING} or about.prompts > 0
        if is_left and about.kind is not SessionKind.CHILD:
            agent.session(row.session).start()


def create_app(agent: Agent) -> FastAPI:
    """The app around *agent*, which it closes at its end."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        async with agent:
            await go_on(agent)
            yield
            # Less than the time that the supervisor gives a process between SIGTERM and SIGKILL.
            await agent.drain(within=20)

    app = FastAPI(lifespan=lifespan)
    app.state.agent = agent
    app.include_router(router)
    return app


# What follows plays the service and its client.


@tool(side_effect="read_only")
def order(number: int) -> str:
    """Look an order up."""
    return f"order {number}: 999 cents, paid, not delivered"


@tool(side_effect="unsafe")
def refund(cents: int) -> str:
    """Refund an amount."""
    return f"refunded {cents} cents"


@asynccontextmanager
async def served(app: FastAPI) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client of *app*, which uvicorn serves on a free port meanwhile."""
    # uvicorn waits for open streams before it ends the lifespan: without a timeout, for ever.
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with httpx.AsyncClient(base_url=address) as client:
                yield client
        finally:
            server.should_exit = True
            await serving


async def read(
    client: httpx.AsyncClient, session: str, until: str, last: str = "0"
) -> tuple[list[str], dict[str, str]]:
    """Read behind the id *last*, and drop the connection at the event *until*: the ids, and that event."""
    ids: list[str] = []
    frame: dict[str, str] = {}
    async with client.stream("GET", f"/runs/{session}/events", headers={"Last-Event-ID": last}) as response:
        async for line in response.aiter_lines():
            if line:
                field, _, value = line.partition(": ")
                frame[field] = value
            elif "event" in frame:
                if "id" in frame:
                    ids.append(frame["id"])
                    print(f"  {frame['id']:>5} {frame['event']}")
                if frame["event"] == until:
                    break
                frame = {}
    return ids, frame


async def main() -> None:
    """Begin a run, leave and come back, restart the service, approve, read to the end."""
    model = ScriptedModel(
        calls(("order", {"number": 7})), calls(("refund", {"cents": 999})), says("You get 999 cents back.")
    )
    with TemporaryDirectory() as folder:

        def app() -> FastAPI:
            return create_app(
                Agent(
                    model="scripted",
                    tools=[order, refund],
                    store=f"{folder}/support.db",
                    performers={CallModel: model},
                )
            )

        async with served(app()) as client:
            begun = await client.post("/runs", json={"prompt": "Refund order 7"})
            session = begun.json()["session"]
            print(f"{begun.status_code}; we read, and leave in the middle")
            first, _ = await read(client, session, "ToolStarted")
            print("we come back with the last id")
            second, asked = await read(client, session, "ApprovalRequested", first[-1])
        question = json.loads(asked["data"])
        print(f"the service restarts; may {question['tool']} run with {question['arguments']}?")
        async with served(app()) as client:
            path = f"/runs/{session}/questions/{question['request']}"
            print((await client.post(path, json={"approve": True})).status_code)
            third, _ = await read(client, session, "RunEnded", second[-1])
            print("once more, from the beginning")
            everything, _ = await read(client, session, "RunEnded")
            print(f"missed or twice: {everything != first + second + third}")
            print("a second answer:", (await client.post(path, json={"approve": False})).status_code)


if __name__ == "__main__":
    asyncio.run(main())
