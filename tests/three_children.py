"""
A run with three children under a budget that suffices for two, for a test that kills it and goes on with it.

``python three_children.py STORE MOMENT``: at the *moment* ``tool`` or ``model`` each child says that it is
there and waits to be killed; without one it comes to its end. At the end the result is written, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from turnwheel import Agent, ChildSpec, Limits, Policy, SQLiteStore, tool
from turnwheel.effects.config import Concurrency
from turnwheel.effects.events import ModelFailed, ModelFinished
from turnwheel.effects.messages import Role
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext
from turnwheel.testing.scripted import ScriptedModel, calls, says

CHILDREN = tuple([ChildSpec(name=name, limits=Limits(tokens=700)) for name in "abc"])
EACH = Usage(input=200)


async def main(path: str, moment: str) -> None:
    """Begin, or go on where a process was killed."""

    async def killed(at: str, who: str) -> None:
        if at == moment:
            print(who, flush=True)
            await asyncio.Event().wait()

    @tool(side_effect="read_only")
    async def dig() -> str:
        """Dig."""
        await killed("tool", "somebody")
        return "found"

    async def model(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        name = scene.config.agent
        read = scene.history.slice(0, request.view.length)
        again = any(message.role is Role.TOOL for message in read)
        if not name:
            wishes = [("run_agent", {"agent": child.name, "prompt": "dig"}) for child in CHILDREN]
            return await ScriptedModel(says("done") if again else calls(*wishes))(request, scene)
        if again:
            await killed("model", name)
        line = says(f"{name} dug", usage=EACH) if again else calls(("dig", {}), usage=EACH)
        return await ScriptedModel(line)(request, scene)

    store = SQLiteStore(path)
    agent = Agent(
        model="scripted",
        tools=[dig],
        children=CHILDREN,
        limits=Limits(tokens=1_500),
        policy=Policy(concurrency=Concurrency.PARALLEL_READS),
        performers={CallModel: model},
        store=store,
    )
    async with agent.session("s") as session:
        result = await (session.resume() if session.unfinished else session.run("go"))
        results = [each for message in session.history for each in message.results]
        told = {
            "text": result.text,
            "total": result.spent.usage.total,
            "guessed": result.spent.usage.estimated,
            "results": [(each.outcome, each.content) for each in results],
        }
    await store.close()
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if sys.argv[2:] else ""))
