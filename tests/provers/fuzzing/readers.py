"""
Those who read what comes from outside besides answers, as checks that any bytes may be given to.

Each says what is wrong with how some bytes were read, and what they were taken for. What cannot be read is a
named error, which is told so and nothing else: `JournalError`, `ConfigError`, or what stands at each.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, final

import attrs

from provers.fuzzing.mutations import one_in
from provers.fuzzing.reading import body_faults, refusal_faults
from provers.streams import DIALECTS, seeds
from turnwheel.effects.config import Steering
from turnwheel.effects.errors import ConfigError, JournalError
from turnwheel.effects.events import Approve, Deny
from turnwheel.effects.hooks import Hook
from turnwheel.effects.requests import AskApproval, CallModel
from turnwheel.engine.agent import Agent
from turnwheel.engine.core.codec import decode, encode
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.journal.summary import SessionSummary
from turnwheel.performers import Tool, tool
from turnwheel.performers.hooks import checked_answer, command_answer
from turnwheel.performers.models.http import MAX_PART, decompressor
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.performers.tools.decorator import ToolContext
from turnwheel.performers.tools.process import ProcessEnd
from turnwheel.performers.tools.shell import read_command
from turnwheel.settings import Settings
from turnwheel.states.rules.schema import arguments_of, problem
from turnwheel.states.state import Confirming
from turnwheel.testing.scripted import ScriptedModel, calls, says

Found = tuple[list[str], str]
"""What is wrong, and what the bytes were taken for."""


@final
@attrs.frozen(kw_only=True)
class Reader:
    """
    Somebody who *reads* bytes; *seeds* are such as they should be. The number of a read draws the splits.

    *share* is how many of a hundred bytes it is given, where all are.
    """

    name: str
    reads: Callable[[bytes, int], Found]
    seeds: Callable[[], Sequence[bytes]]
    share: int


LONG = 2_000
"""Characters that no error has."""

# What is asked of a model's calls


@tool(side_effect="read_only")
def found(path: str, lines: list[int], where: dict[str, float | bool] | None = None, most: int = 5) -> str:
    """Find something."""
    return f"{path}{lines}{where}{most}"


ARGUMENTS = tuple(
    [
        json.dumps(value).encode()
        for value in (
            {"path": "a.txt", "lines": [1, 2, 3]},
            {"path": "é😀", "lines": [], "where": {"a": 0.5, "b": True}, "most": 7},
            {"path": '\\"{[', "lines": [0] * 40, "where": {}},
        )
    ]
)


def reads_arguments(data: bytes, _: int) -> Found:
    """The arguments of a call: an object or None, in words of what is wrong with it, or a `ValueError`."""
    asked: Tool[..., Any] = found
    text = _text(data)
    arguments = arguments_of(text)
    said = "no object" if arguments is None else problem(asked.spec.schema, arguments)
    try:
        asked.bind(text, ToolContext(cwd=Path(), deps=None))
    except ValueError as error:
        return [] if str(error) else ["refused without a word"], "refused"
    # The tool's own decoder may be stricter than the schema, but never milder.
    return ([f"taken, although {said}"] if said and text.strip() else []), "taken"


def _text(data: bytes) -> str:
    """*data* as text, halves of characters and all."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


# What hooks say

ANSWERS = tuple(
    [
        json.dumps(value).encode()
        for value in (
            {"verdict": "deny", "reason": "not here"},
            {"verdict": "allow", "arguments": {"path": "b"}, "context": "mind the gap"},
            {"go_on": True, "reason": "tests fail", "interrupt": False},
        )
    ]
)


def reads_hooks(data: bytes, number: int) -> Found:
    """What a hook's command wrote: a say, or a fault with a reason."""
    rng = random.Random(number)  # it keeps no secret
    ended = ProcessEnd(
        data.decode(errors="replace"), rng.choice((0, 0, 0, 0, 1, 2, -9)), data[:99].decode(errors="replace")
    )
    try:
        answer = command_answer(rng.choice(list(Hook)), ended)
    except (ChildProcessError, ValueError) as error:
        return ([] if str(error) else ["a fault without a word"]), "fault"
    said = checked_answer("guard", answer)
    return (
        [] if len(said.fault) < len(data) + 1_000 else [f"a fault of {len(said.fault)} characters"]
    ), "say"


# What is kept


@cache
def journals() -> tuple[tuple[bytes, ...], ...]:
    """Journals of sessions in which much happened."""
    return asyncio.run(_journals())


async def _journals() -> tuple[tuple[bytes, ...], ...]:
    @tool(side_effect="unsafe")
    async def change(path: str) -> str:
        """Change a file."""
        return path

    store = MemoryStore()
    wish = calls(("change", {"path": "a"}), ("change", {"path": "b"}), text="I change it.")
    model = ScriptedModel(wish, says("Done."), wish, says("No, then."), says("Again."))
    agent = Agent(model="wire:m", tools=[change], performers={CallModel: model}, store=store)
    async with agent.session("s") as session:
        await session.run("change it")
        await _answer(session.waiting, session.approve, Approve(arguments='{"path": "c"}'))
        await session.resume()
        await _answer(session.waiting, session.approve, Approve())
        await session.resume()
        await session.send("once more", sender="me")
        await session.resume()
        await session.steer("no", Steering.NOW)
        await _answer(session.waiting, session.approve, Deny(message="no"))
        await session.resume()
        await session.retitle("changes")
    return (tuple(await store.load("s")),)


async def _answer(waiting: Sequence[AskApproval], approve: Any, decision: Approve | Deny) -> None:  # a method
    for question in waiting:
        await approve(question.id, decision)


def entries() -> list[bytes]:
    """All entries of all journals."""
    return [entry for journal in journals() for entry in journal]


def reads_entry(data: bytes, number: int) -> Found:
    """One entry: an entry that is the same when it is written and read again, or a `JournalError`."""
    try:
        entry = decode_entry(data)
    except JournalError as error:
        return (
            [] if len(str(error)) < LONG else [f"an error of {len(str(error))} characters"]
        ), "JournalError"
    faults = (
        []
        if decode_entry(encode_entry(entry)) == entry
        else [f"written again it is another one: {entry!r:.300}"]
    )
    return faults + _folded(data, number), type(entry).__name__


def _folded(data: bytes, number: int) -> list[str]:
    """A journal in which *data* stands somewhere leads somewhere, or to a `JournalError`."""
    rng = random.Random(number)  # it keeps no secret
    if not one_in(rng, 4):
        return []
    journal = [*rng.choice(journals())]
    journal[rng.randrange(len(journal))] = data
    with suppress(JournalError):
        fold(journal, "s")
    return []


@cache
def _asking() -> Machine:
    """A machine that waits for people, with calls that have no results yet."""
    [journal] = journals()
    for end in range(1, len(journal)):
        machine = fold(journal[:end], "s").machine
        if machine is not None and isinstance(machine.state, Confirming):
            return machine
    msg = "nobody was asked in this journal"
    raise AssertionError(msg)


def snapshots() -> list[bytes]:
    """The snapshot of a machine that waits for people."""
    return [_asking().snapshot()]


def reads_snapshot(data: bytes, _: int) -> Found:
    """A snapshot: a machine that can be written down again, or `JournalError`."""
    machine = _asking()
    try:
        restored = Machine.restore(data, machine.config, machine.memory.history)
    except JournalError:
        return [], "JournalError"
    again = Machine.restore(restored.snapshot(), machine.config, machine.memory.history)
    return ([] if again == restored else [f"restored again it is {again!r:.300}"]), "machine"


def reads_about(data: bytes, _: int) -> Found:
    """A row of the list of sessions: one, or a `JournalError`."""
    try:
        about = decode(data, SessionSummary)
    except JournalError:
        return [], "JournalError"
    return (
        []
        if decode(encode(about, SessionSummary), SessionSummary) == about
        else ["written again it is another one"]
    ), "About"


# What is told

SETTINGS = (
    b"""
model = "anthropic:claude-sonnet-4-5"
system = "Be brief."
instructions = ["AGENTS.md"]
tools = ["read", "write"]
rules = ["allow read", "deny bash:command=rm *"]
stop = []
[limits]
turns = 10
usd = 0.25
seconds = 1e3
[policy]
mode = "default"
max_parallel = 3
[[models]]
name = "openai:gpt-5"
[models.price]
input = 1.25
output = 10.0
[[hooks]]
at = "pre_tool_use"
command = ["true"]
[agents.helper]
description = "helps"
limits = { turns = 3 }
[session]
titles = "inline"
""",
)


def reads_settings(data: bytes, _: int) -> Found:
    """A file of settings: settings, or one `ConfigError`."""
    with tempfile.TemporaryDirectory(prefix="turnwheel-fuzz-") as folder:
        path = Path(folder) / "turnwheel.toml"
        path.write_bytes(data)
        try:
            Settings.load(path, env={})
        except ConfigError as error:
            return ([] if str(error) else ["refused without a word"]), "ConfigError"
        return [], "Settings"


# Commands


COMMANDS = [
    b"git log && cat <<EOF | sh > x\n$(git push)\nEOF\n",
    b"f() { case $1 in a) eval \"$2\";; esac; }; for i in {1..9}; do f a 'b c'; done",
    b"A=1 sudo -u ann env sh -c 'git \"p\"ush' 2>&1 < <(xargs git) \\\n  # done",
]


def reads_command(data: bytes, _: int) -> Found:
    """A shell command: the programs it runs, or why that is not known."""
    found = read_command("command", _text(data))
    faults = [f"{each} is no command" for each in found.commands if not each.words]
    return faults, "unread" if found.unread else "beyond" if found.beyond else "plain"


# What is packed


def _packed() -> list[bytes]:
    return [zlib.compress(body * 9, wbits=16 + zlib.MAX_WBITS) for _, body in seeds()[::5]]


def reads_packed(data: bytes, _: int) -> Found:
    """A packed body: small parts, or a `zlib.error`."""
    unpack = decompressor("gzip" if data[:1] == b"\x1f" else "deflate")
    if unpack is None:
        return ["gzip is not known"], ""
    try:
        sizes = [len(part) for part in unpack(data)]
    except zlib.error:
        return [], "zlib.error"
    return ([] if max(sizes, default=0) <= MAX_PART else [f"a part of {max(sizes)} bytes"]), "parts"


def _bodies(dialect: str) -> Reader:
    own = [body for name, body in seeds() if name == dialect]
    return Reader(
        name=dialect,
        reads=lambda data, number: body_faults(dialect, data, number),
        seeds=lambda: own,
        share=30,
    )


def _refusals() -> list[bytes]:
    return [
        json.dumps(each.error("invalid_api_key", "Incorrect API key, code 7")).encode()
        for each in DIALECTS.values()
    ]


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        *map(_bodies, DIALECTS),
        Reader(name="refusal", reads=refusal_faults, seeds=_refusals, share=10),
        Reader(name="entry", reads=reads_entry, seeds=entries, share=8),
        Reader(name="snapshot", reads=reads_snapshot, seeds=snapshots, share=4),
        Reader(
            name="about",
            reads=reads_about,
            seeds=lambda: [encode(SessionSummary(title="a", cwd="/"), SessionSummary)],
            share=2,
        ),
        Reader(name="arguments", reads=reads_arguments, seeds=lambda: ARGUMENTS, share=6),
        Reader(name="hook", reads=reads_hooks, seeds=lambda: ANSWERS, share=5),
        Reader(name="settings", reads=reads_settings, seeds=lambda: SETTINGS, share=3),
        Reader(name="command", reads=reads_command, seeds=lambda: COMMANDS, share=4),
        Reader(name="packed", reads=reads_packed, seeds=_packed, share=2),
    )
}
"""All of them, by name."""
