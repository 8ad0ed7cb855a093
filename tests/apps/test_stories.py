"""
Stories at the command line, in the text files of stories/: what is typed there, and all that comes of it.

A story begins with ``=== what it shows`` and goes on with commands and their outcome: lines of stdout are set
in by two blanks, those of stderr begin with ``!``, an exit code other than 0 with ``?``; ``<`` is read.
``$`` runs turnwheel in this process (``-`` does so where its words do not matter), ``%`` in a terminal
and ``&`` at the two ends of a pipe; all other commands are the methods of Desk.
``RECORD=1 pytest tests/apps/test_stories.py`` writes the outcomes anew; the diff is to be read.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import shlex
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import attrs
import pytest

from turnwheel import Agent, ChildSpec, Price, SQLiteStore, ToolContext, tool
from turnwheel.effects.config import ModelSpec
from turnwheel.effects.requests import CallModel
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import RunOpened, Stepped
from turnwheel.engine.journal.fold import fold
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import ScriptedModel

if TYPE_CHECKING:
    from apps.conftest import Answer, Talk, Terminal

STORIES = Path(__file__).parent / "stories"
NOON = 43_200.0
ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|([enrt\\]))")
PLAIN = {"e": "\x1b", "n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
ID = re.compile(r"\b[0-9a-f]{12}(?:[0-9a-f]{20})?\b")


@attrs.define
class Block:
    """A command of a story: what stands above it, what it reads, and what came of it."""

    above: list[str]
    command: str
    given: list[str]
    outcome: list[str]

    def text(self) -> str:
        return "\n".join([*self.above, self.command, *[f"< {line}" for line in self.given], *self.outcome])


@attrs.define
class Story:
    """What a *file* tells below a *title*."""

    file: Path
    title: str
    blocks: list[Block]

    def __str__(self) -> str:
        return f"{self.file.stem}: {self.title}"

    def text(self) -> str:
        return f"=== {self.title}\n" + "\n".join(block.text() for block in self.blocks) + "\n"


def stories(file: Path) -> Iterator[Story]:
    for told in file.read_text("utf-8").split("=== ")[1:]:
        title, _, body = told.partition("\n")
        blocks, above = list[Block](), list[str]()
        for line in body.rstrip("\n").split("\n"):
            if line.startswith(("  ", "! ", "? ")) or line == "!" or (not line and blocks and not above):
                blocks[-1].outcome.append(line)
            elif line.startswith("< ") or line == "<":
                blocks[-1].given.append(line[2:])
            elif line.startswith("# ") or not line:
                above.append(line)
            else:
                blocks.append(Block(above, line, [], []))
                above = []
        for block in blocks:
            while block.outcome and not block.outcome[-1]:
                block.outcome.pop()
        yield Story(file, title, blocks)


def plain(text: str) -> str:
    """*text* with what is escaped by a backslash in it as it is: e, n, r, t, x1b, u202e."""
    return ESCAPED.sub(lambda m: PLAIN[m[3]] if m[3] else chr(int(m[1] or m[2], 16)), text)


@tool(side_effect="read_only")
def look(at: str = "it") -> str:
    """Look."""
    return f"saw {at}"


@tool
def pay(amount: int, context: ToolContext[list[str]]) -> str:
    """Pay."""
    context.deps.append(f"paid {amount}")
    return f"paid {amount}"


@tool
def login(password: str) -> str:
    """Log in."""
    return f"in with {password}"


CHILDREN = [ChildSpec(name="scout", tools=("look",)), ChildSpec(name="payer", tools=("look", "pay"))]


@final
@attrs.define
class Desk:
    """Where a story is played: each command of it is a method."""

    runs: Callable[..., tuple[int, str, str]]
    model_url: Callable[..., str]
    opens: Callable[..., Terminal | Talk]
    answer: type[Answer]
    above: Path
    url: str = "http://127.0.0.1:9/v1"
    ids: dict[str, str] = attrs.field(factory=dict)
    open: Any = None

    def play(self, block: Block) -> list[str]:
        """Do the command of *block*; what came of it, as a story tells it."""
        verb, _, rest = block.command.partition(" ")
        rest = rest.replace("URL", self.url).replace("TMP", str(self.above))
        rest = re.sub(r"([a-z])\1{11}", lambda m: {v: k for k, v in self.ids.items()}.get(m[0], m[0]), rest)
        named = {"$": "run", "-": "quietly", "%": "opens", "&": "begins"}.get(verb, verb)
        outcome: list[str] = getattr(self, f"do_{named}")(rest, block.given) or []
        told = "\n".join(line.rstrip() for line in outcome).rstrip("\n")
        return told.split("\n") if told else []

    def masked(self, text: str) -> str:
        text = text.replace(self.url, "URL").replace(str(self.above), "TMP")
        text = re.sub(rf"\b{re.escape(getpass.getuser())}(?= \()", "PERSON", text)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN", text)
        text = re.sub(r" {2,}\+[\d.]+ (?:ms|s|min \d+ s)$", "", text, flags=re.MULTILINE)
        span = r"(?<=  )[\d.]+ m?s(?=  |$)|(?<=· )[\d.]+ m?s(?= active|$)"
        text = re.sub(span, "TIME", text, flags=re.MULTILINE)
        text = re.sub(r"\b\d\d:\d\d:\d\d\b", "CLOCK", re.sub(r"cwd=\S+", "cwd=HERE", text))
        # What the stand-in reads depends on how long the name of the folder is.
        text = re.sub(r"(?<!up to )\b(?:[6-9]\d|\d[\d,]{2,})(?= tokens| out|  \$0  just now)", "MANY", text)
        for found in ID.findall(text):
            self.ids.setdefault(found, chr(ord("a") + len(self.ids)) * 12)
        return ID.sub(lambda m: self.ids[m[0]], text).replace("\x1b", "\\e")

    def told(self, out: str = "", err: str = "", code: int = 0) -> list[str]:
        lines = [f"  {line}" for line in self.masked(out).splitlines()]
        lines += [f"! {line}" for line in self.masked(err).splitlines()]
        return [re.sub(r"(?<=\S) {2,}", "  ", line) for line in lines] + [f"? {code}"] * bool(code)

    # turnwheel

    def do_run(self, rest: str, given: Sequence[str]) -> list[str]:
        """Run turnwheel; behind a bar, the fields that are told of each line of JSON."""
        words, bar, fields = rest.partition(" | ")
        data = "".join(f"{plain(line)}\n" for line in given).encode("utf-8", "surrogateescape")
        code, out, err = self.runs(*map(plain, shlex.split(words)), given=data if given else None)
        if bar:
            rows = [json.loads(line) for line in ([out] if out.startswith("{\n") else out.splitlines())]
            out = "\n".join(" ".join(shown(of(row, name)) for name in fields.split()) for row in rows)
        return self.told(out, err, code)

    def do_quietly(self, rest: str, given: Sequence[str]) -> list[str]:
        """Run turnwheel; nothing but the exit code is told."""
        return [line for line in self.do_run(rest, given) if line.startswith("?")]

    def do_opens(self, rest: str, _: Sequence[str]) -> None:
        """Open turnwheel in a terminal; variables may stand in front of it."""
        words = shlex.split(rest)
        env = dict(word.split("=", 1) for word in words if re.match("[A-Z0-9_]+=", word))
        self.open = self.opens("terminal", *map(plain, words[len(env) :]), **env)

    def do_see(self, rest: str, _: Sequence[str]) -> None:
        self.open.see(plain(rest))

    def do_type(self, rest: str, _: Sequence[str]) -> None:
        self.open.type(plain(rest))

    def do_enter(self, rest: str, _: Sequence[str]) -> None:
        self.open.type(f"{plain(rest)}\r")

    def do_insist(self, rest: str, _: Sequence[str]) -> None:
        self.open.insist(*rest.split(" ", 1))

    def do_never(self, rest: str, _: Sequence[str]) -> None:
        assert plain(rest) not in self.open.text

    def do_resize(self, rest: str, _: Sequence[str]) -> None:
        """Change the size of the terminal: its columns, and its rows unless they are 50."""
        columns, *rows = map(int, rest.split())
        self.open.resize(*rows or [50], columns)

    def do_kill(self, rest: str, _: Sequence[str]) -> None:
        for name in rest.split():
            self.open.process.send_signal(signal.Signals[f"SIG{name}"])

    def do_hangup(self, rest: str, _: Sequence[str]) -> None:
        """Close the terminal; the exit code is told."""
        self.open.hang_up()
        assert self.open.process.wait(20) == int(rest)

    def do_ends(self, rest: str, _: Sequence[str]) -> list[str]:
        """Wait for the end of what is open: its exit code, and of a pipe what is on stderr."""
        if hasattr(self.open, "paper"):
            assert self.open.ends() == int(rest or 0), self.open.text
            return []
        code, err = self.open.ends()
        return self.told("", err, code)

    def do_screen(self, rest: str, _: Sequence[str]) -> list[str]:
        """Tell what is on the screen, or, of all that was written, what fits a pattern."""
        return self.told("\n".join(re.findall(plain(rest), self.open.raw)) if rest else self.open.text)

    def do_rows(self, rest: str, _: Sequence[str]) -> list[str]:
        """Tell what is on the screen, column by column; no row is wider than *rest*."""
        assert max(map(len, self.open.text.splitlines())) <= int(rest)
        return [f"  {line}" for line in self.masked(self.open.text).splitlines()]

    def do_begins(self, rest: str, _: Sequence[str]) -> None:
        self.open = self.opens("pipe", *map(plain, shlex.split(rest)))

    def do_say(self, rest: str, _: Sequence[str]) -> None:
        self.open.say(plain(rest))

    def do_until(self, rest: str, _: Sequence[str]) -> list[str]:
        """Wait for a notice; the fields that are named are told."""
        kind, *fields = rest.split()
        notice = self.open.until(kind)
        return self.told(" ".join(shown(of(notice, name)) for name in fields))

    def do_warned(self, _: str, __: Sequence[str]) -> list[str]:
        return self.told("", self.open.warned())

    # The world around it

    def do_model(self, rest: str, _: Sequence[str]) -> None:
        self.url = self.model_url(*rest.split(" | "))

    def do_file(self, rest: str, given: Sequence[str]) -> None:
        """Write a file; one that begins as a program does may be run."""
        path = Path(rest)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{line}\n" for line in given)
        path.write_text(text.replace("TMP", str(self.above)).replace("PYTHON", sys.executable), "utf-8")
        if given and given[0].startswith("#!"):
            path.chmod(0o700)

    def do_save(self, rest: str, _: Sequence[str]) -> None:
        """Write what turnwheel prints into a file; behind semicolons, what reads otherwise in it."""
        words, *otherwise = rest.split(" ; ")
        name, _blank, words = words.partition(" ")
        _code, out, _err = self.runs(*shlex.split(words))
        Path(name).write_text(out.replace(otherwise[0], otherwise[1]) if otherwise else out, "utf-8")

    def do_cat(self, rest: str, _: Sequence[str]) -> list[str]:
        paths = map(Path, rest.split())
        return self.told("\n".join(p.read_text("utf-8") if p.exists() else f"no {p.name}" for p in paths))

    def do_rm(self, rest: str, _: Sequence[str]) -> None:
        Path(rest).unlink()

    def do_env(self, rest: str, _: Sequence[str]) -> None:
        name, _, value = rest.partition("=")
        os.environ[name] = plain(value)

    def do_mkdir(self, rest: str, _: Sequence[str]) -> None:
        Path(rest).mkdir()

    def do_fifo(self, rest: str, _: Sequence[str]) -> None:
        os.mkfifo(rest)

    def do_feed(self, rest: str, _: Sequence[str]) -> None:
        name, _, line = rest.partition(" ")
        Path(name).write_text(f"{line}\n", "utf-8")

    # The store

    def store(self, use: Callable[[SQLiteStore], Any]) -> Any:
        async def opened() -> Any:
            store = SQLiteStore(os.environ["TURNWHEEL_STORE"])
            found = await use(store)
            await store.close()
            return found

        return asyncio.run(opened())

    def entries(self, session: str) -> list[Any]:
        return [decode_entry(data) for data in self.store(lambda store: store.load(session))]

    def do_opened(self, rest: str, _: Sequence[str]) -> list[str]:
        """Tell of each run of a session some fields of how it was set up."""
        session, *fields = rest.split()
        opened = [each for each in self.entries(session) if isinstance(each, RunOpened)]
        rows = [", ".join(shown(of(each.config, name)) for name in fields) for each in opened]
        return self.told("\n".join(rows))

    def do_outcomes(self, rest: str, _: Sequence[str]) -> list[str]:
        machine = fold(self.store(lambda store: store.load(rest)), rest).machine
        assert machine is not None
        ends = [str(result.outcome) for message in machine.memory.history for result in message.results]
        return self.told(" ".join([*ends, *["unfinished"] * (not machine.done)]))

    def do_journal(self, rest: str, _: Sequence[str]) -> None:
        """Wait until the journal of a session has so many steps by a kind of event."""
        session, kind, number = rest.split()
        for _try in range(1_000):
            steps = [each for each in self.entries(session) if isinstance(each, Stepped)]
            if sum(type(step.event).__name__ == kind for step in steps) >= int(number):
                return
            time.sleep(0.02)
        pytest.fail(f"no {number} {kind} in {session}")

    def do_age(self, rest: str, _: Sequence[str]) -> None:
        with sqlite3.connect(os.environ["TURNWHEEL_STORE"]) as db:
            db.execute("update entries set at = at - ?", [float(rest)])

    def do_entry(self, rest: str, _: Sequence[str]) -> None:
        session, _, entry = rest.partition(" ")
        data = plain(entry).encode("latin-1")
        self.store(lambda store: store.append(plain(session), 0, [data]))

    def do_copy(self, rest: str, _: Sequence[str]) -> None:
        """Store a session again, of which some text reads otherwise, or some entries only are there."""
        session, other, *more = shlex.split(rest)
        entries = self.store(lambda store: store.load(session))
        if len(more) == 1:
            entries = [entries[int(number)] for number in more[0].split(",")]
        else:
            entries = [data.replace(more[0].encode(), more[1].encode()) for data in entries]
        self.store(lambda store: store.append(other, 0, entries))

    def do_work(self, rest: str, _: Sequence[str]) -> list[str]:
        """Go on with a session in Python, at noon, with a scripted model; what was paid is told."""
        words, *script = rest.split(" | ")
        name, *asks = words.split()
        paid: list[str] = []

        async def act(store: SQLiteStore) -> None:
            agent = Agent(
                model=ModelSpec(name="scripted", price=Price(input=1, output=1)),
                performers={CallModel: ScriptedModel(*[self.answer.read(each).reply() for each in script])},
                tools=[look, pay, login] if "with-login" in asks else [look, pay],
                children=CHILDREN if "with-children" in asks else (),
                store=store,
                clock=AutoClock(NOON),
                deps=paid,
            )
            async with agent.session(name) as session:
                result = await (session.resume() if session.unfinished else session.run("pay it"))
                while result.waiting and "asks" not in asks:
                    for question in result.waiting:
                        await session.approve(question.id, by="Ann")
                    result = await session.resume()

        self.store(act)
        return self.told("\n".join(paid))


def of(value: Any, name: str) -> Any:
    """What stands in *value* at the end of the dotted *name*; of a list or tuple, in each of its values."""
    for part in name.split("."):
        if isinstance(value, list | tuple) and not part.isdecimal():
            value = [of(each, part) for each in value]
        elif isinstance(value, list | tuple):
            value = value[int(part)]
        else:
            value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def shown(value: Any) -> str:
    return f"[{', '.join(map(shown, value))}]" if isinstance(value, list | tuple) else str(value) or "-"


@pytest.fixture
def desk(
    folder: Path,
    runs: Callable[..., Any],
    model: Callable[..., str],
    opens: Callable[..., Terminal | Talk],
    answer: type[Answer],
) -> Iterator[Desk]:
    """A desk in a folder of its own; the environment is as it was afterwards."""
    before = dict(os.environ)
    yield Desk(runs, model, opens, answer, folder.parent)
    os.environ.clear()
    os.environ.update(before)


TOLD = [story for file in sorted(STORIES.glob("*.txt")) for story in stories(file)]


@pytest.mark.parametrize("story", TOLD, ids=str)
def test_a_story_goes_as_it_is_told(story: Story, desk: Desk) -> None:
    expected = story.text()
    for block in story.blocks:
        block.outcome = desk.play(block)
    if os.environ.get("RECORD"):
        text = story.file.read_text("utf-8")
        start = text.index(f"=== {story.title}\n")
        end = text.find("\n=== ", start) + 1 or len(text)
        after = "\n" * (end < len(text)) + text[end:]
        story.file.write_text(f"{text[:start]}{story.text()}{after}", "utf-8")
    else:
        assert story.text() == expected
