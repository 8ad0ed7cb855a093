"""The groups of operations, in the order in which the document and its page have them."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.frozen(kw_only=True)
class Group:
    """A tag of the document: its *name*, what it is *about*, and the names of its *operations*."""

    name: str
    about: str
    operations: tuple[str, ...]


GROUPS = (
    Group(
        name="sessions",
        about="Begin a session, find it, delete it.",
        operations=("create", "sessions", "session", "delete", "export", "agents"),
    ),
    Group(
        name="inputs",
        about="Send prompts to a run, take them back, steer it, stop it and change its settings.",
        operations=("message", "withdraw", "interrupt", "resume", "control", "cancel"),
    ),
    Group(
        name="questions",
        about="Answer a question. The open ones are the `questions` of a session.",
        operations=("answer",),
    ),
    Group(
        name="streams",
        about="Follow sessions as server-sent events. They do not end by themselves: this page shows the "
        "first seconds of a stream.",
        operations=("get_events", "get_list_events"),
    ),
    Group(
        name="steps",
        about="Read what a session did, step by step, and which events are legal now.",
        operations=("steps", "step", "diagram", "moves", "preview"),
    ),
    Group(
        name="forks",
        about="Go back to an earlier run, or copy a session to continue it in another way.",
        operations=("branch", "fork"),
    ),
    Group(
        name="front ends",
        about="Run an agent by AG-UI or by the AI SDK.",
        operations=("ag_ui", "ui_messages", "ui_message_stream"),
    ),
    Group(
        name="console",
        about="The page of the console, and what it reads of a session.",
        operations=(
            "page",
            "icon",
            "file",
            "outline",
            "notices",
            "why",
            "written_file",
            "family",
            "compare",
            "test",
        ),
    ),
    Group(
        name="operators",
        about="Health, metrics and this document.",
        operations=("get_health", "get_ready", "get_metrics", "get_openapi", "get_docs", "get_docs_asset"),
    ),
)

GROUP_OF = {name: group.name for group in GROUPS for name in group.operations}
