"""Clients of AG-UI and of the AI SDK, from npm, take our streams and come to the messages of the journal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from provers.simulation.player import Play, play

from turnwheel.effects import is_notice
from turnwheel.effects.messages import Message, Role
from turnwheel.effects.records import AppendMessage
from turnwheel.projections import AgUiEvents, JsonEvent, Projection, UiMessageChunks

pytestmark = [pytest.mark.real, pytest.mark.timeout(600, func_only=True)]

Json = dict[str, Any]

SESSIONS = 60


@pytest.fixture(scope="module")
def plays() -> list[Play]:
    return [play(seed) for seed in range(SESSIONS)]


def runs_of(projection: Projection, one: Play, start: str) -> list[list[JsonEvent]]:
    """The streams of *one*: each begins with a *start*."""
    runs = list[list[JsonEvent]]()
    for notice in filter(is_notice, one.effects):
        for event in projection.take(notice):
            if event["type"] == start:
                runs.append([])
            runs[-1].append(event)
    return runs


def judged(command: tuple[str, ...], cases: list[Json]) -> list[Json]:
    """What the judges make of *cases*."""
    lines = "\n".join(map(json.dumps, cases))
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    verdicts: list[Json] = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(verdicts) == len(cases)
    return verdicts


def kept(one: Play, role: Role) -> list[Message]:
    appended = [effect.message for effect in one.effects if isinstance(effect, AppendMessage)]
    return [message for message in appended if message.role is role]


def told_in_journal(one: Play) -> tuple[list[tuple[str, list[str]]], int]:
    """The answers, with the arguments of their calls, and how many results there are."""
    answers = [(each.text, [call.arguments for call in each.calls]) for each in kept(one, Role.ASSISTANT)]
    results = sum(len(message.results) for message in kept(one, Role.TOOL))
    return [answer for answer in answers if answer != ("", [])], results


def told_in_ag_ui(messages: list[Json]) -> tuple[list[tuple[str, list[str]]], int]:
    own = [message for message in messages if "subagentRunId" not in message]
    answers = [
        (
            message.get("content") or "",
            [call["function"]["arguments"] for call in message.get("toolCalls", ())],
        )
        for message in own
        if message["role"] == "assistant"
    ]
    return answers, sum(message["role"] == "tool" for message in own)


def told_in_ui_messages(messages: list[Json]) -> tuple[list[tuple[str, list[str]]], int]:
    answers = list[tuple[str, list[str]]]()
    results = 0
    for part in [part for message in messages for part in message["parts"]]:
        if part["type"] == "step-start":
            answers.append(("", []))
        elif part["type"] == "text":
            answers[-1] = (answers[-1][0] + part["text"], answers[-1][1])
        elif part["type"] == "dynamic-tool":
            answers[-1][1].append(part["toolName"])
            results += part["state"].startswith("output-")
    return [answer for answer in answers if answer != ("", [])], results


def test_ag_ui_clients_come_to_the_messages_of_the_journal(
    protocol_judges: tuple[str, ...], plays: list[Play]
) -> None:
    cases: list[Json] = [
        {"vocabulary": "ag-ui", "runs": runs_of(AgUiEvents.of("s"), one, "RUN_STARTED")} for one in plays
    ]
    verdicts = judged(protocol_judges, cases)
    assert [verdict["error"] for verdict in verdicts if "error" in verdict] == []
    for one, verdict in zip(plays, verdicts, strict=True):
        assert told_in_ag_ui(verdict["messages"]) == told_in_journal(one)


def test_clients_of_the_ai_sdk_come_to_the_messages_of_the_journal(
    protocol_judges: tuple[str, ...], plays: list[Play]
) -> None:
    cases: list[Json] = [
        {"vocabulary": "ui-messages", "runs": runs_of(UiMessageChunks.of("s"), one, "start")} for one in plays
    ]
    verdicts = judged(protocol_judges, cases)
    assert [verdict["error"] for verdict in verdicts if "error" in verdict] == []
    for one, verdict in zip(plays, verdicts, strict=True):
        answers, results = told_in_journal(one)
        named = iter([call.name for each in kept(one, Role.ASSISTANT) for call in each.calls])
        wanted = [(text, [next(named) for _ in calls]) for text, calls in answers]
        assert told_in_ui_messages(verdict["messages"]) == (wanted, results)


@pytest.mark.parametrize(
    ("vocabulary", "spoil"),
    [
        ("ag-ui", lambda events: [each for each in events if each["type"] != "TEXT_MESSAGE_START"]),
        ("ui-messages", lambda events: [each for each in events if each["type"] != "text-start"]),
        ("ui-messages", lambda events: [*events, {"type": "said"}]),
    ],
    ids=["no start of a message", "no start of a text", "an unknown chunk"],
)
def test_the_judges_refuse_what_is_not_legal(
    protocol_judges: tuple[str, ...],
    plays: list[Play],
    vocabulary: str,
    spoil: Callable[[list[JsonEvent]], list[JsonEvent]],
) -> None:
    maker = AgUiEvents.of if vocabulary == "ag-ui" else UiMessageChunks.of
    start = "RUN_STARTED" if vocabulary == "ag-ui" else "start"
    # Some of the plays have what is spoiled, in a message that is kept.
    spoilt = [[spoil(events) for events in runs_of(maker("s"), one, start)] for one in plays[:20]]
    verdicts = judged(protocol_judges, [{"vocabulary": vocabulary, "runs": runs} for runs in spoilt])
    assert any("error" in verdict for verdict in verdicts)
