"""Callables that are no plain functions: methods, partials, objects with `__call__`, decorated functions."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import pytest

from turnwheel import Agent
from turnwheel.effects import Approve, ArgumentError, AskApproval, Hook, Outcome, RunTool
from turnwheel.performers import (
    HookCall,
    HookRunner,
    PerformContext,
    Tool,
    ToolContext,
    ToolRunner,
    hook,
    tool,
)
from turnwheel.performers.approvals import ask
from turnwheel.performers.worker_pool import WorkerPool

P = ParamSpec("P")
R = TypeVar("R")


class Desk:
    """A desk in a shop."""

    def __init__(self, sign: str) -> None:
        self.sign = sign

    @tool(side_effect="read_only")
    def find(self, item: str, context: ToolContext[None]) -> str:
        """Find an item."""
        return f"{self.sign} {item} {context.session}"

    @tool
    async def order(self, item: str, count: int = 1) -> str:
        await asyncio.sleep(0)
        return f"{self.sign} {count} {item}"

    @tool
    @classmethod
    def kind(cls, item: str) -> str:
        return f"{cls.__name__} {item}"

    @tool
    @staticmethod
    def outside(item: str) -> str:
        return item

    @staticmethod
    @tool
    def inside(item: str) -> str:
        return item

    def plain(self, item: str) -> str:
        """Look at an item."""
        return f"{self.sign} {item}"

    async def later(self, item: str) -> str:
        await asyncio.sleep(0)
        return f"{self.sign} {item}"

    @classmethod
    def made(cls, item: str) -> str:
        return f"{cls.__name__} {item}"


class SmallDesk(Desk):
    pass


@dataclasses.dataclass
class SearchHTTPLogs:
    """Search the logs."""

    sign: str

    async def __call__(self, item: str) -> str:
        await asyncio.sleep(0)
        return f"{self.sign} {item}"


class Shout:
    def __call__(self, item: str) -> str:
        """Say it loud."""
        return item.upper()


def join(sign: str, item: str, *, end: str = "") -> str:
    """Join both."""
    return f"{sign} {item}{end}"


async def join_later(sign: str, item: str) -> str:
    await asyncio.sleep(0)
    return f"{sign} {item}"


def logged(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return call


def logged_async(function: Any) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return call


DESK = Desk("d")
SYNC, ASYNC = "sync", "async"


@pytest.mark.parametrize(
    ("made", "name", "description", "kind", "content"),
    [
        (DESK.find, "find", "Find an item.", SYNC, "d pen s-1"),
        (DESK.order, "order", "", ASYNC, "d 1 pen"),
        (Desk.kind, "kind", "", SYNC, "Desk pen"),
        (SmallDesk("e").kind, "kind", "", SYNC, "SmallDesk pen"),
        (DESK.outside, "outside", "", SYNC, "pen"),
        (Desk.outside, "outside", "", SYNC, "pen"),
        (DESK.inside, "inside", "", SYNC, "pen"),
        (tool(DESK.plain), "plain", "Look at an item.", SYNC, "d pen"),
        (tool(DESK.later), "later", "", ASYNC, "d pen"),
        (tool(Desk.made), "made", "", SYNC, "Desk pen"),
        (tool(SearchHTTPLogs("s")), "search_http_logs", "Search the logs.", ASYNC, "s pen"),
        (tool(Shout()), "shout", "Say it loud.", SYNC, "PEN"),
        (tool(name="loud")(Shout()), "loud", "Say it loud.", SYNC, "PEN"),
        (tool(functools.partial(join, "p", end="!")), "join", "Join both.", SYNC, "p pen!"),
        (tool(functools.partial(join_later, "p")), "join_later", "", ASYNC, "p pen"),
        (
            tool(functools.partial(SearchHTTPLogs("s"))),
            "search_http_logs",
            "Search the logs.",
            ASYNC,
            "s pen",
        ),
        (tool(functools.partial(DESK.later)), "later", "", ASYNC, "d pen"),
        (tool(logged(DESK.plain)), "plain", "Look at an item.", SYNC, "d pen"),
        (tool(logged_async(join_later.__get__("w"))), "join_later", "", ASYNC, "w pen"),
    ],
)
async def test_a_callable_is_a_tool_with_the_arguments_that_are_left(
    made: Tool[..., object], name: str, description: str, kind: str, content: str, scene: PerformContext
) -> None:
    assert (made.spec.name, made.spec.description, made.is_async) == (name, description, kind == ASYNC)
    assert json.loads(made.spec.schema)["required"] == ["item"]
    assert "self" not in made.spec.schema
    assert "end" not in json.loads(made.spec.schema)["properties"]
    request = RunTool(id="r-1-7", call="c", tool=name, arguments='{"item": "pen"}', timeout=60.0)
    answer = await ToolRunner([made])(request, scene)
    assert (answer.outcome, answer.content) == (Outcome.OK, content)


async def test_a_tool_of_an_object_is_still_its_method() -> None:
    assert await DESK.order("pen", count=2) == "d 2 pen"
    assert DESK.find("pen", context=ToolContext(cwd=Path("/"), deps=None)) == "d pen "
    assert DESK.order == DESK.order
    assert DESK.order != Desk("other").order


def test_a_method_is_taken_from_an_object() -> None:
    problem = r"tool 'find': Desk.find is a method; take it from an object, as in Desk\(\).search"
    for make in (lambda: ToolRunner([Desk.find]), lambda: Agent(model="openai:m", tools=[Desk.find])):
        with pytest.raises(ArgumentError, match=problem):
            make()


class Guard:
    async def __call__(self, _: HookCall) -> None:
        await asyncio.sleep(0)

    def sync(self, about: HookCall) -> None: ...


def check(sign: str, about: HookCall) -> None: ...


def test_a_hook_may_be_any_callable() -> None:
    guard, at = Guard(), hook(Hook.PRE_TOOL_USE)
    made = [at(guard), at(guard.sync), at(functools.partial(check, "a"))]
    assert [each.spec.name for each in made] == ["guard", "sync", "check"]
    assert [each.is_async for each in made] == [True, False, False]
    assert HookRunner(made).specs == tuple(each.spec for each in made)
    with pytest.raises(ArgumentError, match="it is a hook already"):
        at(cast("Callable[[HookCall], None]", made[0]))


class Clerk:
    async def __call__(self, _: AskApproval) -> Approve:
        await asyncio.sleep(0)
        return Approve()


async def test_an_approver_may_be_a_partial_of_an_object(scene: PerformContext) -> None:
    question = AskApproval(id="r-1", call="r-0", tool="look", arguments="{}")
    for approver in (Clerk(), functools.partial(Clerk())):
        answer = await ask(approver, WorkerPool(), question, scene)
        assert answer is not None
        assert answer.decision == Approve()
