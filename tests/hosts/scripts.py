"""The sessions that every host plays, each with what its client puts in and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, final

import attrs
from provers.crash.points import Notebook

from hosts.desk import NOTES, gate
from hosts.host import Answer, Cancel, Host, Input, Interrupt, Look, Prompt, Steer, Think
from turnwheel.effects.errors import StoreError
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import Stepped

# Seconds that a session may take: a long one that is taken over takes a few.
LONGEST = 100.0

# Seconds between two looks at all sessions. Restate looks through all that it keeps for each of them.
LOOK_AGAIN = 3.0


@final
@attrs.define
class AtRest:
    """
    Those of the *sessions* of *host* that do not go on by themselves, told apart by how their names begin.

    Hundreds of clients would share the cores with the workers, so one look serves them all.
    """

    host: Host
    prefix: str
    sessions: Collection[str] = ()

    async def look_on(self) -> NoReturn:
        """Look again and again."""
        while True:
            with suppress(StoreError):
                self.sessions = await self.host.at_rest(self.prefix)
            await asyncio.sleep(LOOK_AGAIN)


@final
@attrs.define
class Client:
    """
    A client of *session* at *host*, whose workers note in *folder*. It looks every *pause* seconds.

    It looks only where its session is one of those *at_rest*, if it is told which ones are. It remembers what
    was *accepted*.
    """

    host: Host
    session: str
    folder: Path
    pause: float = 0.05
    at_rest: AtRest | None = None
    accepted: list[str] = attrs.field(factory=list)

    async def put(self, given: Input) -> None:
        """Put *given* in."""
        await self.host.put(self.session, given)
        if isinstance(given, Prompt | Steer):
            self.accepted.append(given.id)

    async def prompt(self, text: str, id: str = "first") -> None:  # noqa: A002  # the word of inputs
        """Begin a job."""
        await self.put(Prompt(id, text))

    async def until(self, holds: Callable[[Look], object]) -> Look:
        """The session, once *holds* is true of it."""
        async with asyncio.timeout(LONGEST):
            while True:
                if self.at_rest is None or self.session in self.at_rest.sessions:
                    found = await self.host.look(self.session)
                    if holds(found):
                        return found
                await asyncio.sleep(self.pause)

    async def over(self) -> None:
        """Wait until it is at its end."""
        await self.until(lambda look: look.over)

    async def question(self) -> str:
        """The question that is open, once one is."""
        return (await self.until(lambda look: look.questions)).questions[0]

    async def begun(self, tool: str) -> str:
        """The call of *tool*, once it has begun."""
        async with asyncio.timeout(LONGEST):
            while True:
                for note in Notebook.read(self.folder / NOTES):
                    if (note["kind"], note.get("tool")) == ("begun", tool) and self._mine(note["session"]):
                        return str(note["call"])
                await asyncio.sleep(0.02)

    def _mine(self, session: str) -> bool:
        return session.rpartition("/")[2] == self.session

    async def applied(self, kind: str) -> None:
        """Wait until the worker took in an event of that *kind*: then it does not matter how quick it was."""
        async with asyncio.timeout(LONGEST):
            while True:
                entries = (await self.host.journals(self.session))[self.session]
                for entry in map(decode_entry, entries):
                    if isinstance(entry, Stepped) and type(entry.event).__name__ == kind:
                        return
                await asyncio.sleep(0.02)

    def open_gate(self) -> None:
        """Let `wait` end."""
        gate(self.folder, self.session).touch()


Script = Callable[[Client], Awaitable[None]]


def job(text: str) -> Script:
    """One prompt, and nothing else."""

    async def play(client: Client) -> None:
        await client.prompt(text)

    return play


def asks(answers: Callable[[str], Answer]) -> Script:
    """A prompt whose one call is asked about."""

    async def play(client: Client) -> None:
        await client.prompt("pays 1: go")
        await client.put(answers(await client.question()))

    return play


def while_waiting(given: Callable[[str], Input], kind: str, *, ends: bool = False) -> Script:
    """Something that is put in while a tool waits, and perhaps *ends* that."""

    async def play(client: Client) -> None:
        await client.prompt("waits 1: go")
        await client.put(given(await client.begun("wait")))
        if not ends:
            await client.applied(kind)
            client.open_gate()

    return play


async def queue_of_three(client: Client) -> None:
    """Prompts that come at once, each for a run of its own."""
    for number in range(3):
        await client.prompt(f"series {number}: go", f"prompt {number}")


SCRIPTS: Mapping[str, Script] = {
    "text": job("hello"),
    "series": job("series 1: go"),
    "parallel": job("parallel 1: go"),
    "approved": asks(Answer),
    "edited": asks(lambda request: Answer(request, arguments={"what": "a little"})),
    "denied": asks(lambda request: Answer(request, yes=False)),
    "steered": while_waiting(lambda _: Steer("steer", "steer: be kind"), "UserSteered"),
    "interrupted": while_waiting(lambda _: Interrupt(), "Interrupted", ends=True),
    "set": while_waiting(lambda _: Think(512), "ControlReceived"),
    "cancelled": while_waiting(Cancel, "CallCancelled", ends=True),
    "child": job("child 1: go"),
    "compacted": job("full 1: go"),
    "limited": job("limited 1: go"),
    "long": job("digs 1: go"),
    "failing": job("fails 1: go"),
    "queue": queue_of_three,
}


async def play(client: Client, script: Script) -> None:
    """Play *script* to the end of the session."""
    await script(client)
    await client.over()
