"""
Agents inside a FastAPI app: its own routes, and ours below /agents. A scripted model: no key.

As a service: ``uvicorn fastapi_mount:app --timeout-graceful-shutdown 2``. Without that time, uvicorn waits at
SIGTERM for the readers of event streams, and the lifespan, which drains the agents, does not end.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from turnwheel import Agent, MemoryStore, tool
from turnwheel.apps import AgentServer, create_app
from turnwheel.effects import CallModel
from turnwheel.testing import ScriptedModel, calls, says


@tool(side_effect="unsafe")
def refund(cents: int) -> str:
    """Refund an amount."""
    return f"refunded {cents} cents"


model = ScriptedModel(calls(("refund", {"cents": 99_900})), says("Done."))
agents = {"support": Agent(model="scripted", tools=[refund], performers={CallModel: model})}
served = create_app(agents, MemoryStore())


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
    """A mounted app gets no lifespan of its own, so this one begins and drains the server."""
    server: AgentServer = served.state.server
    async with server:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/agents", served)


@app.get("/")
async def home() -> dict[str, str]:
    """A route of the app itself."""
    return {"hello": "world"}


async def until(client: httpx.AsyncClient, state: str) -> dict[str, Any]:
    """The session once it is in that *state*; a page would read its events instead."""
    found: dict[str, Any] = {}
    while found.get("state") != state:
        await asyncio.sleep(0.01)
        found = (await client.get("/agents/api/sessions/one")).json()
    return found


async def main() -> None:
    """Ask it as a client would: begin, lower the amount, read the end."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        print((await client.get("/")).json())
        at = "/agents/api/sessions"
        await client.post(at, json={"agent": "support", "id": "one", "prompt": "Refund it"})
        (asked,) = (await until(client, "confirming"))["questions"]
        print(f"may {asked['tool']} run with {asked['arguments']}?")
        answer = {"decision": "approve", "arguments": {"cents": 999}}
        await client.post(f"{at}/one/questions/{asked['id']}", json=answer)
        session = await until(client, "done")
        steps = (await client.get(f"{at}/one/steps")).json()["items"]
        print(next(step["event"]["content"] for step in steps if step["event"]["type"] == "ToolFinished"))
        print(f"ended: {session['reason']}, after {session['spend']['turns']} turns")


if __name__ == "__main__":
    asyncio.run(main())
