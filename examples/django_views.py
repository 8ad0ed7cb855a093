"""
Async views of Django that begin a run, tell what it comes to, and answer it. A scripted model: no key.

Serve `application` by an ASGI server. There all async views share the event loop of the process, and a run
goes on behind the request that began it. Under WSGI, as in `manage.py runserver`, an async view gets an event
loop that ends with the view: a run that it began is left unfinished in the store, as after a crash. There,
and in synchronous views anywhere, `agent.run_sync` runs to the end in a thread, as in `ask` below.
flask_sync.py has approvals between two synchronous requests.

The agent is a global of a module, one for each process. Requests share it; each opens its own session object.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import httpx
import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_GET, require_POST

from turnwheel import Agent, Approve, Deny, MemoryStore, Session, tool
from turnwheel.effects import ApprovalRequested, CallModel, ConfigError, RunEnded, UnknownRequest
from turnwheel.testing import ScriptedModel, calls, says


@tool(side_effect="unsafe")
def refund(cents: int) -> str:
    """Refund an amount."""
    return f"refunded {cents} cents"


# In a project: Agent(model="openai:gpt-5", tools=[refund], store=SQLiteStore("support.db")), in agents.py.
model = ScriptedModel(
    calls(("refund", {"cents": 999})), says("You get 999 cents back."), says("On weekdays.")
)
agent = Agent(model="scripted", tools=[refund], store=MemoryStore(), performers={CallModel: model})


async def stored(name: str) -> Session:
    """The session *name*. Check here that it belongs to the caller."""
    session = await agent.session(name).load()
    if session.machine is None and not session.queue:
        msg = f"no session {name!r}"
        raise Http404(msg)
    return session


@require_POST
async def begin(request: HttpRequest) -> HttpResponse:
    """Begin a run. Its prompt is in the store before this returns."""
    prompt = request.POST.get("prompt", "").strip()
    if not prompt:
        return HttpResponseBadRequest("the prompt is empty")
    session = agent.session()
    await session.send(prompt, start=True)
    return JsonResponse({"session": session.id}, status=202)


@require_GET
async def status(request: HttpRequest, name: str) -> HttpResponse:
    """The next question, or the end, behind the id *since*; 204 where neither comes within 20 seconds."""
    session = await stored(name)
    try:
        notices = session.watch(since=request.GET.get("since", "0"))
    except ConfigError as error:
        return HttpResponseBadRequest(str(error))
    with suppress(TimeoutError):
        async with aclosing(notices) as watching, asyncio.timeout(20):
            async for watched in watching:
                match watched.notice:
                    case ApprovalRequested() as asked:
                        arguments = json.loads(asked.arguments)
                        question = {"question": asked.request, "tool": asked.tool, "arguments": arguments}
                        return JsonResponse({"since": watched.id, **question})
                    case RunEnded(reason=reason):
                        text = (await session.load()).result().text
                        return JsonResponse({"since": watched.id, "reason": reason, "text": text})
                    case _:
                        pass
    return HttpResponse(status=204)


@require_POST
async def answer(request: HttpRequest, name: str, question: str) -> HttpResponse:
    """Answer a question. The run, which waits for that in its task, goes on."""
    yes = request.POST.get("approve") == "yes"
    session = await stored(name)
    try:
        await session.approve(question, Approve() if yes else Deny(request.POST.get("reason", "")))
    except UnknownRequest as closed:
        return HttpResponse(str(closed), status=409)
    return HttpResponse(status=204)


@require_POST
def ask(request: HttpRequest) -> HttpResponse:
    """Answer at once, in a synchronous view: it waits in its thread, and holds up no other request."""
    return HttpResponse(agent.run_sync(request.POST["prompt"]).text)


urlpatterns = [
    path("ask", ask),
    path("runs", begin),
    path("runs/<slug:name>", status),
    path("runs/<slug:name>/questions/<slug:question>", answer),
]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"])
django = get_asgi_application()

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Django, with the lifespan that it does not have: at its end the agent is drained and closed."""
    if scope["type"] != "lifespan":
        await django(scope, receive, send)
        return
    async with agent:
        await receive()
        # The place to go on with runs that were left, as `go_on` of fastapi_background.py does.
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await agent.drain(within=20)
    await send({"type": "lifespan.shutdown.complete"})


# What follows plays the service and its client.


@asynccontextmanager
async def served() -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client of `application`, which uvicorn serves on a free port meanwhile."""
    config = uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
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
    """Begin a run, wait for its question, approve, wait for its end; and ask a synchronous view."""
    async with served() as client:
        begun = await client.post("/runs", data={"prompt": "Refund order 7"})
        run = f"/runs/{begun.json()['session']}"
        asked = (await client.get(run)).json()
        print(f"{begun.status_code}; may {asked['tool']} run with {asked['arguments']}?")
        await client.post(f"{run}/questions/{asked['question']}", data={"approve": "yes"})
        ended = (await client.get(run, params={"since": asked["since"]})).json()
        print(f"{ended['reason']}: {ended['text']}")
        print((await client.post("/ask", data={"prompt": "When are you open?"})).text)


if __name__ == "__main__":
    asyncio.run(main())
