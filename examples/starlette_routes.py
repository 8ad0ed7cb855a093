"""
A chat in Starlette: one route streams the text as it comes, one stops it. A scripted model: no key.

Each user has one session. A request opens it in the store and keeps nothing, so a run may be stopped from
another process, too. Plain text cannot take back an answer that failed in its middle and is tried again:
where that matters, send the events of `SseEvents` instead.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypedDict

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from turnwheel import Agent, MemoryStore
from turnwheel.effects import CallModel, SessionBusy, TextDelta
from turnwheel.testing import ScriptedModel, says, stalls


class State(TypedDict):
    """What the lifespan gives to each request."""

    agent: Agent


def user(request: Request[State]) -> str:
    """The name of the caller's session. Your authentication says who calls; here the path does."""
    return f"chat-{request.path_params['user']}"


async def chat(request: Request[State]) -> Response:
    """Answer the text of the body. A reader that leaves stops nothing: the answer is in the session."""
    prompt = (await request.body()).decode(errors="replace").strip()
    if not prompt:
        raise HTTPException(400, "the prompt is empty")
    notices = request.state["agent"].session(user(request)).stream(prompt, on_leave="continue")
    try:
        # The run begins with the first notice. Where it is refused, the response has no status yet.
        await anext(notices)
    except SessionBusy as busy:
        raise HTTPException(409, str(busy)) from busy

    async def text() -> AsyncGenerator[str, None]:
        async with notices:
            async for notice in notices:
                if isinstance(notice, TextDelta):
                    yield notice.text

    return StreamingResponse(text(), media_type="text/plain")


async def interrupt(request: Request[State]) -> Response:
    """Stop the run of this user, if there is one."""
    await request.state["agent"].session(user(request)).interrupt()
    return Response(status_code=204)


def create_app(agent: Agent) -> Starlette:
    """The app around *agent*, which it closes at its end."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[State, None]:
        async with agent:
            yield {"agent": agent}
            await agent.drain(within=20)

    routes = [
        Route("/chat/{user}", chat, methods=["POST"]),
        Route("/chat/{user}/interrupt", interrupt, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


# What follows plays the service and its client.


@asynccontextmanager
async def served(app: Starlette) -> AsyncGenerator[httpx.AsyncClient, None]:
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


async def main() -> None:
    """Ask, ask for too long a story and stop it, and go on."""
    model = ScriptedModel(says("It has states and moves."), stalls("Once upon a time"), says("The end."))
    agent = Agent(model="scripted", store=MemoryStore(), performers={CallModel: model})
    async with served(create_app(agent)) as client:
        print((await client.post("/chat/ann", content="What is a state machine?")).text)
        async with client.stream("POST", "/chat/ann", content="Tell me a story") as story:
            texts = story.aiter_text()
            print(await anext(texts))
            print("a second prompt:", (await client.post("/chat/ann", content="Hello?")).status_code)
            print("an interrupt:", (await client.post("/chat/ann/interrupt")).status_code)
            print("the rest:", [text async for text in texts])
        print((await client.post("/chat/ann", content="And?")).text)


if __name__ == "__main__":
    asyncio.run(main())
