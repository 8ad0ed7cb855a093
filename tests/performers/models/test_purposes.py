"""Summaries and titles by code of the host: what it is given, what it may answer, what the machine checks."""

from __future__ import annotations

from typing import Any

import pytest
from provers.tasks import turns
from structlog.testing import capture_logs

from turnwheel import Agent, DoneReason, MemoryStore, ModelSpec, Session, tool
from turnwheel.effects import (
    CallModel,
    Compacted,
    CompactionFailed,
    Failure,
    ModelFailed,
    ModelFinished,
    Notice,
    StopReason,
    TextPiece,
    Usage,
)
from turnwheel.effects.errors import ArgumentError
from turnwheel.engine.inspect.archive import replay
from turnwheel.performers import MakeTitle, PerformContext, Summarise, Summarised
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says

# A provider that reports no usage, so that sizes are estimates.
LONG = says("Well said. " * 100, usage=Usage())


def made(*replies: Reply, window: int = 1_500, **settings: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(*replies)
    given: dict[str, Any] = {"store": MemoryStore(), "clock": AutoClock(100.0), "titles": "off", **settings}
    performers = {CallModel: model, **given.pop("performers")}
    return Agent(model=ModelSpec(name="small", window=window), performers=performers, **given), model


async def notices_of(session: Session, *prompts: str) -> list[Notice]:
    return [notice for prompt in prompts async for notice in session.stream(prompt)]


PROMPTS = tuple([f"Prompt {number}: " + "go on " * 100 for number in range(4)])


@pytest.mark.parametrize("reads", [True, False])
async def test_a_summary_of_the_host_takes_the_place_of_a_models(*, reads: bool) -> None:
    requests: list[tuple[Summarise, int]] = []

    async def summarise(request: Summarise, scene: PerformContext) -> str | Summarised:
        requests.append((request, len(scene.history)))
        return Summarised("So far.", usage=Usage(input=7, output=2)) if reads else "So far."

    agent, model = made(*[LONG] * 4, performers={Summarise: summarise})
    async with agent.session("s") as session:
        seen = await notices_of(session, *PROMPTS)
        assert [type(notice) for notice in seen if isinstance(notice, Compacted)] == [Compacted]
        assert session.history[0].text == "[Summary of the conversation so far]\nSo far."
        [(request, shown)] = requests
        assert 0 < request.length < shown
        assert (request.model, request.attempt, request.tokens) == (
            "small",
            1,
            agent.config.compaction.tokens,
        )
        assert "Current state" in request.instructions
        assert session.spent.usage.total == (9 if reads else 0) + session.spent.usage.estimated
        assert session.spent.turns == len(PROMPTS)
    assert len(model.requests) == len(PROMPTS)


async def test_a_host_chooses_how_many_messages_a_summary_replaces() -> None:
    kept: list[str] = []

    async def summarise(_: Summarise, scene: PerformContext) -> Summarised:
        kept[:] = [message.text for message in scene.history.slice(1, len(scene.history))]
        return Summarised("The first.", length=1)

    agent, _ = made(*[LONG] * 4, performers={Summarise: summarise})
    async with agent.session("s") as session:
        await notices_of(session, *PROMPTS)
        assert [message.text for message in session.history][1 : 1 + len(kept)] == kept


@pytest.mark.parametrize(
    ("length", "refused"),
    [(-1, True), (0, True), (3, False), (4, True), (5, False), (8, False), (9, True), (1_000, True)],
)
async def test_a_summary_never_parts_a_call_from_its_result_and_leaves_a_message(
    length: int, *, refused: bool
) -> None:
    @tool(side_effect="read_only")
    def look() -> str:
        """Look."""
        return "seen " * 300

    roles: list[str] = []

    async def summarise(_: Summarise, scene: PerformContext) -> Summarised:
        roles.extend([message.role.value for message in scene.history])
        return Summarised("So far.", length=length)

    replies = (LONG, calls(("look", {}), usage=Usage()), LONG, LONG, LONG)
    agent, _ = made(*replies, tools=[look], performers={Summarise: summarise})
    async with agent.session("s") as session:
        seen = await notices_of(session, "one", "two", "three", "four")
        left = len(session.history)
    assert " ".join(roles) == "user assistant user assistant tool assistant user assistant user"
    failures = [notice.reason for notice in seen if isinstance(notice, CompactionFailed)]
    reason = f"the summary was for {length} messages, which cannot be cut off"
    # The last answer came behind the summary.
    assert (failures, left) == (([reason], 10) if refused else ([], 1 + 9 - length + 1))


async def test_a_failure_is_retried_as_a_models_and_an_exception_counts_as_one() -> None:
    attempts: list[int] = []

    async def summarise(request: Summarise, scene: PerformContext) -> ModelFailed | str:
        attempts.append(request.attempt)
        if len(attempts) == 1:
            now = scene.clock.now()
            return ModelFailed(at=now, request=request.id, failure=Failure.OVERLOADED, message="busy")
        msg = "no such table"
        raise RuntimeError(msg)

    agent, _ = made(*[LONG] * 4, performers={Summarise: summarise})
    async with agent.session("s") as session:
        seen = await notices_of(session, *PROMPTS)
        failed = [notice.reason for notice in seen if isinstance(notice, CompactionFailed)]
        assert attempts[:2] == [1, 2]
        assert failed[0] == "internal: RuntimeError: no such table"


async def test_a_title_of_the_host_is_kept_and_its_first_line_counts() -> None:
    requests: list[MakeTitle] = []

    async def make_title(request: MakeTitle, scene: PerformContext) -> str:
        requests.append(request)
        return f"About {scene.history[0].text}\nand more"

    agent, model = made(LONG, titles="model", performers={MakeTitle: make_title})
    async with agent.session("s") as session:
        assert (await session.run("roofs")).reason is DoneReason.END_TURN
        await turns(20)
        assert session.title == "About roofs"
        assert session.spent.usage.estimated == session.spent.usage.total
    assert (len(requests), len(model.requests)) == (1, 1)
    assert "3 to 6 words" in requests[0].instructions


async def test_an_answer_that_is_no_text_is_named() -> None:
    async def make_title(request: MakeTitle, _: PerformContext) -> Any:
        return len(request.id)

    agent, _ = made(LONG, titles="model", performers={MakeTitle: make_title})
    with capture_logs() as lines:
        async with agent.session("s") as session:
            await session.run("roofs")
            await turns(20)
    (exception,) = [line["exception"] for line in lines if line["event"] == "no title"]
    assert exception.endswith("TypeError: performer of a title: answered 7; return a text")
    with pytest.raises(ArgumentError, match=r"Summarised\.text must be a str"):
        Summarised(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # wrong on purpose


async def test_a_model_answer_goes_through_as_it_is() -> None:
    async def make_title(request: MakeTitle, scene: PerformContext) -> ModelFinished:
        return ModelFinished(
            at=scene.clock.now(),
            request=request.id,
            stop=StopReason.END_TURN,
            usage=Usage(input=3, output=1),
            pieces=(TextPiece("By a model of the host"),),
        )

    agent, _ = made(says("x", usage=Usage(input=1)), titles="model", performers={MakeTitle: make_title})
    async with agent.session("s") as session:
        await session.run("roofs")
        await turns(20)
        assert (session.title, session.spent.usage.total) == ("By a model of the host", 5)


async def test_a_journal_replays_without_the_hosts_code() -> None:
    async def summarise(request: Summarise, _: PerformContext) -> Summarised:
        return Summarised("So far.", length=request.length)

    agent, _ = made(*[LONG] * 4, performers={Summarise: summarise})
    async with agent.session("s") as session:
        await notices_of(session, *PROMPTS)
        history = [message.text for message in session.history]
    assert agent.store is not None
    steps = [step async for step in replay(agent.store, "s")]
    memory = steps[-1].memory
    assert memory is not None
    assert [message.text for message in memory.history] == history
