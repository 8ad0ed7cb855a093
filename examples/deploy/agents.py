"""The agents, by name: the server and the workers have the same ones. Put yours in their place."""

import os

import httpx

from turnwheel import Agent, tool


# In the network of the containers an address may be the database's, so a person looks at each of them.
@tool(approval="always", side_effect="read_only")
async def fetch(url: str) -> str:
    """Fetch a page of the web as text."""
    async with httpx.AsyncClient(timeout=30) as web:
        return (await web.get(url)).text[:20_000]


model = os.environ["MODEL"]
agents = {"reader": Agent(model=model, base_url=os.environ.get("MODEL_URL") or None, tools=[fetch])}
