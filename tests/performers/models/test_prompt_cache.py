"""The notice of a prompt that was not in the provider's cache: when it comes, why, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import httpx
import pytest

from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.history import History
from turnwheel.effects.messages import Message, Role, Text, user
from turnwheel.effects.notices import CacheMissed
from turnwheel.effects.output import OutputMode
from turnwheel.effects.requests import CallModel, Conversation, Purpose, Transcript
from turnwheel.effects.usage import CacheMissReason, Usage
from turnwheel.performers.base import PerformContext
from turnwheel.performers.models.openai import OpenAIChat
from turnwheel.performers.models.prompt_cache import LIFETIME, MAX_REMEMBERED_PROMPTS, MIN_PROMPT, PromptCache

SPEC = ModelSpec(name="openai:m")
READ, WRITE = (ToolSpec(name=name, schema='{"properties":{}}') for name in ("read", "write"))
ASKED = CallModel(
    id="r-1", model="openai:m", view=Conversation(revision=0, length=1), system="Be kind.", tools=("read",)
)
Change = Callable[[CallModel, PerformContext], tuple[CallModel, PerformContext]]
KEPT = Usage(input=10_000, cached=8_000, cache_write=1_000)
LOST = Usage(input=11_000, cached=1_024)
AGAIN = History.of(user("hi"))


class Still:
    def now(self) -> float:
        return 0.0

    async def sleep_until(self, due: float) -> None:
        raise NotImplementedError


def scene_of(told: list[Any], history: History = AGAIN, session: str = "s") -> PerformContext:
    made = Config(model=SPEC, tools=(READ, WRITE))
    return PerformContext(
        session=session, run="r", config=made, history=history, clock=Still(), emit=told.append
    )


def misses(
    *second: Change,
    first: Usage = KEPT,
    then: Usage = LOST,
    later: float = 1.0,
) -> list[CacheMissed]:
    """The notices of a request, and of a second one that is changed by *second* and comes *later*."""
    cache, told = PromptCache(), list[Any]()
    scene, asked = scene_of(told, History.of(user("hi"))), ASKED
    cache.look(asked, scene, 100.0, first)
    asked = attrs.evolve(asked, id="r-2")
    for change in second:
        asked, scene = change(asked, scene)
    cache.look(asked, scene, 100.0 + later, then)
    return told


def asking(**fields: Any) -> Change:
    return lambda asked, scene: (attrs.evolve(asked, **fields), scene)


def within(**fields: Any) -> Change:
    return lambda asked, scene: (asked, attrs.evolve(scene, **fields))


def configured(**fields: Any) -> Change:
    return lambda asked, scene: (asked, attrs.evolve(scene, config=attrs.evolve(scene.config, **fields)))


def longer(role: Role) -> Change:
    message = Message(role=role, parts=(Text(text="so"),))
    grown = History.of(user("hi")).append(message)

    def change(asked: CallModel, scene: PerformContext) -> tuple[CallModel, PerformContext]:
        history = History(scene.history.log, 1).append(message)
        view = Conversation(revision=0, length=len(grown))
        return attrs.evolve(asked, view=view), attrs.evolve(scene, history=history)

    return change


def test_a_prompt_that_begins_as_before_should_come_from_the_cache() -> None:
    [missed] = misses()
    assert missed == CacheMissed(
        at=0.0,
        request="r-2",
        model="openai:m",
        reason=CacheMissReason.UNCHANGED,
        expected=9_000,
        cached=1_024,
    )
    assert misses(then=Usage(input=11_000, cached=9_000)) == []
    # Providers count in blocks.
    assert misses(then=Usage(input=11_000, cached=8_200)) == []


CHANGES: dict[str, tuple[CacheMissReason, Change]] = {
    "system prompt": (CacheMissReason.SYSTEM, asking(system="Be brief.")),
    "instructions": (CacheMissReason.SYSTEM, asking(instructions="Mind the step.")),
    "offered tools": (CacheMissReason.TOOLS, asking(tools=("read", "write"))),
    "a description": (
        CacheMissReason.TOOLS,
        configured(tools=(attrs.evolve(READ, description="Reads"), WRITE)),
    ),
    "provider tools": (
        CacheMissReason.TOOLS,
        configured(model=attrs.evolve(SPEC, provider_tools=({"type": "web_search"},))),
    ),
    "thinking": (CacheMissReason.SETTINGS, asking(thinking=2_000)),
    "tool choice": (CacheMissReason.SETTINGS, asking(tool_choice="required")),
    "output": (CacheMissReason.SETTINGS, asking(output=OutputMode.NATIVE)),
    "temperature": (CacheMissReason.SETTINGS, configured(model=attrs.evolve(SPEC, temperature=0.5))),
    "cleared results": (
        CacheMissReason.CLEARED,
        asking(view=Conversation(revision=0, length=1, cleared=1)),
    ),
    "a compaction": (CacheMissReason.COMPACTED, asking(view=Conversation(revision=1, length=1))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_prompt_that_begins_otherwise_says_what_changed(name: str) -> None:
    reason, change = CHANGES[name]
    assert [missed.reason for missed in misses(change)] == [reason]
    # As long as it comes from the cache, nothing is worth a notice.
    assert misses(change, then=Usage(input=11_000, cached=9_000)) == []


def test_a_summary_makes_the_prompt_shorter_and_less_is_expected() -> None:
    history = AGAIN.replace((user("summary"),), 1)
    compacted = asking(view=Conversation(revision=1, length=1)), within(history=history)
    [missed] = misses(*compacted, then=Usage(input=3_000, cached=1_024))
    assert (missed.reason, missed.expected) == (CacheMissReason.COMPACTED, 3_000)
    assert misses(*compacted, then=Usage(input=MIN_PROMPT - 1)) == []


QUIET: dict[str, dict[str, Any]] = {
    "no cached tokens are told": {"first": Usage(input=10_000)},
    "a small prompt": {"first": Usage(input=900, cached=800)},
    "a pause": {"later": LIFETIME},
    "a long pause": {"later": LIFETIME * 10},
}


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_missed_that_was_not_in_the_cache(name: str) -> None:
    assert misses(**QUIET[name]) == []


OTHERS: dict[str, Change] = {
    "another model": asking(model="openai:n"),
    "a title": asking(purpose=Purpose.TITLE),
    "a summary": asking(view=Transcript(revision=0, length=1, limit=100), purpose=Purpose.SUMMARY),
    "a fork": within(session="fork"),
    "no session": within(session=""),
    "a branch, or the session opened anew": within(history=History.of(user("hi"))),
    "less of the history": asking(view=Conversation(revision=0, length=0)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_model_session_or_branch_begins_anew(name: str) -> None:
    assert misses(OTHERS[name]) == []


def test_the_first_request_of_a_process_misses_nothing() -> None:
    told = list[Any]()
    PromptCache().look(ASKED, scene_of(told), 100.0, LOST)
    assert told == []


def test_one_fall_is_told_once() -> None:
    cache, told = PromptCache(), list[Any]()
    for usage in (KEPT, LOST, LOST, Usage(input=12_000, cached=1_024, cache_write=10_000), LOST):
        cache.look(ASKED, scene_of(told), 100.0, usage)
    assert [missed.expected for missed in told] == [9_000, 11_000]


def test_thoughts_that_the_provider_leaves_out_once_the_user_speaks_are_no_miss() -> None:
    thought = attrs.evolve(KEPT, output=50, reasoning=40)
    assert len(misses(longer(Role.USER), first=KEPT)) == 1
    assert len(misses(longer(Role.TOOL), first=thought)) == 1
    assert misses(longer(Role.USER), first=thought) == []


def test_the_least_recently_used_prompt_is_forgotten() -> None:
    for others, expected in ((MAX_REMEMBERED_PROMPTS - 1, 1), (MAX_REMEMBERED_PROMPTS, 0)):
        cache, told = PromptCache(), list[Any]()
        cache.look(ASKED, scene_of(told), 100.0, KEPT)
        for number in range(others):
            cache.look(ASKED, scene_of(told, session=f"s{number}"), 100.0, KEPT)
        cache.look(ASKED, scene_of(told), 100.0, LOST)
        assert len(told) == expected


async def test_a_provider_that_reads_less_from_its_cache_makes_a_notice() -> None:
    cached = [4_096, 4_096, 0, 0]

    def reply(_: httpx.Request) -> httpx.Response:
        details = f'{{"cached_tokens": {cached.pop(0)}}}'
        usage = f'{{"prompt_tokens": 5000, "completion_tokens": 1, "prompt_tokens_details": {details}}}'
        chunk = f'{{"choices": [{{"delta": {{"content": "a"}}, "finish_reason": "stop"}}], "usage": {usage}}}'
        return httpx.Response(200, text=f"data: {chunk}\n\ndata: [DONE]\n\n")

    told = list[Any]()
    async with httpx.AsyncClient(transport=httpx.MockTransport(reply)) as client:
        model = OpenAIChat("http://x.example", "key", client)
        for number in range(4):
            await model(attrs.evolve(ASKED, id=f"r-{number}"), scene_of(told))
    missed = [each for each in told if isinstance(each, CacheMissed)]
    assert [(each.request, each.expected, each.cached) for each in missed] == [("r-2", 4_096, 0)]
