"""The tree of a session: going back, branches, heads, forks, and who notices."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, final

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from turnwheel import Agent, ApproveAlways, DoneReason, Limits, MemoryStore, Session
from turnwheel.effects import errors, events, messages, requests, usage
from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.history import CallPiece
from turnwheel.effects.notices import RunEnded, RunStarted
from turnwheel.engine.inspect.run_tree import RunInfo, runs_of
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Branched, Entry, Forked, Posted, RunOpened, Stepped
from turnwheel.engine.journal.fold import fold, initial_state, read
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.testing.scripted import ScriptedModel, calls, says, stalls
from turnwheel.testing.stores import FaultyStore, StoreOver

if TYPE_CHECKING:
    from engine.inspect.conftest import Made


def said(session: Session) -> list[str]:
    return [message.text for message in session.history]


async def talk(session: Session, *prompts: str) -> list[str]:
    """Ask each of *prompts*; the runs' ids."""
    return [(await session.run(prompt)).run for prompt in prompts]


async def test_runs_are_a_chain_until_one_goes_back(made: Made) -> None:
    agent = made(says("one"), says("two"))
    async with agent.session("s") as session:
        first, second = await talk(session, "a\nand more", "b")
        runs = await session.runs()

    told = [(run.run, run.parent, run.prompt, run.head, run.current, run.copied) for run in runs]
    last = (second, first, "b", True, True, False)
    assert told == [(first, "", "a\nand more", False, False, False), last]
    assert [(run.reason, run.spent.turns, run.at) for run in runs] == [(DoneReason.END_TURN, 1, 100.0)] * 2


async def test_one_may_go_back_to_the_beginning(made: Made) -> None:
    agent = made(says("one"), says("two"))
    async with agent.session("s") as session:
        (first,) = await talk(session, "a")
        await session.branch()
        assert (said(session), session.result().text, session.spent.turns) == ([], "", 1)
        assert not any(run.current for run in await session.runs())
        await talk(session, "b")
        runs = await session.runs()

    assert [message.text for message in made.model.seen[1]] == ["b"]
    assert [(run.parent, run.head) for run in runs] == [("", True), ("", True)]
    assert runs[0].run == first


async def test_going_back_costs_nothing_and_gives_nothing_back(made: Made) -> None:
    agent = made(
        *(calls(("pay", {"amount": 1})), says("one"), says("two")),
        *(calls(("pay", {"amount": 2})), says("three")),
    )
    async with agent.session("s") as session:
        (question,) = (await session.run("a")).waiting
        await session.approve(question.id, ApproveAlways())
        first = (await session.resume()).run
        await session.run("b")
        before = session.spent
        await session.branch(first)
        assert session.spent == before
        assert session.result().spent.turns == 2  # that of the run it stands at
        result = await session.run("c")

    assert (result.text, result.waiting) == ("three", ())
    assert session.spent == before + result.spent
    assert session.spent.turns == 5


async def test_going_to_where_it_stands_writes_nothing(made: Made) -> None:
    agent = made(says("one"), says("two"))
    store = made.store
    async with agent.session("s") as session:
        await session.branch()
        assert list(await store.load("s")) == []
        first, _ = await talk(session, "a", "b")
        await session.branch(first)
        length = len(await store.load("s"))
        await session.branch(first)
        assert len(await store.load("s")) == length


async def test_an_open_session_notices_that_another_process_went_back(made: Made) -> None:
    agent = made(says("one"), says("two"), says("three"))
    async with agent.session("s") as here, agent.session("s") as there:
        first, _ = await talk(here, "a", "b")
        await there.load()
        await here.branch(first)
        await there.load()
        assert said(there) == ["a", "one"]
        await talk(there, "c")
        await here.load()
        assert said(here) == ["a", "one", "c", "three"]


async def test_a_run_that_is_not_over_is_not_left(made: Made) -> None:
    agent = made(says("one"), calls(("pay", {})), stalls("half"))
    async with agent.session("s") as session:
        (first,) = await talk(session, "a")
        await session.run("b")  # rests on a question
        for refused in (session.branch(first), session.fork()):
            with pytest.raises(errors.SessionBusy):
                await refused
        async with aclosing(session.stream()) as notices:
            await session.approve(session.waiting[0].id)
            await anext(notices)
            with pytest.raises(errors.SessionBusy):
                await session.branch(first)
        with pytest.raises(errors.SessionBusy):
            await session.branch(first)


async def test_without_a_store_there_are_no_branches(made: Made) -> None:
    agent = made(says("one"), store=None)
    async with agent.session("s") as session:
        await session.run("a")
        for refused in (session.branch(), session.fork(), session.runs(), session.heads()):
            with pytest.raises(errors.ConfigError, match="session 's' has no store; pass store="):
                await refused


async def test_a_closed_session_goes_nowhere(made: Made) -> None:
    agent = made(says("one"))
    async with agent.session("s") as session:
        await session.run("a")
    for refused in (session.branch(), session.fork()):
        with pytest.raises(errors.SessionClosed):
            await refused


@final
class Meddled(StoreOver):
    """A store in memory in which another process writes *entry* to the session as it is read, or *before*."""

    def __init__(self, entry: Entry, *, before: bool = False) -> None:
        super().__init__()
        self.armed = False
        self._entry = encode_entry(entry)
        self._before = before

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        entries = await self.kept.load(session, start, end, incarnation)
        if not self.armed or start:
            return entries
        self.armed = False
        await self.kept.append(session, len(entries), [self._entry])
        return await self.kept.load(session) if self._before else entries


async def test_of_two_that_go_another_way_at_once_one_does(made: Made) -> None:
    store = Meddled(Branched(at=1.0, run=""))
    agent = made(says("one"), says("two"), store=store)
    async with agent.session("s") as session:
        first, _ = await talk(session, "a", "b")
        store.armed = True
        with pytest.raises(errors.StoreConflict):
            await session.branch(first)
        await session.load()
        assert said(session) == []
    branched = [entry for entry in await entries_of(store) if isinstance(entry, Branched)]
    assert branched == [Branched(at=1.0, run="")]


async def test_what_is_posted_meanwhile_does_not_keep_one_from_going_back(made: Made) -> None:
    posted = events.UserSent(at=1.0, id="x", text="psst")
    store = Meddled(Posted(event=posted))
    agent = made(says("one"), says("two"), says("three"), store=store)
    async with agent.session("s") as session:
        first, _ = await talk(session, "a", "b")
        store.armed = True
        await session.branch(first)
        assert [mail.text for mail in session.queue] == ["psst"]
        await session.resume()
    assert [message.text for message in made.model.seen[2]] == ["a", "one", "psst"]


async def entries_of(store: Store, session: str = "s") -> list[Entry]:
    return [decode_entry(data) for data in await store.load(session)]


# Forks


async def test_a_fork_has_an_account_of_its_own(made: Made) -> None:
    agent = made(says("one"), says("two"), session_limits=Limits(turns=1))
    async with agent.session("s") as session:
        await talk(session, "a")
        async with await session.fork("t") as fork:
            assert fork.spent == usage.Spent()
            assert fork.machine is not None
            assert fork.machine.memory.earlier == usage.Spent()
            result = await fork.run("b")
            assert (result.text, fork.spent) == ("two", result.spent)
        assert session.spent.turns == 1
    async with agent.session("t") as fork:
        assert fork.spent == result.spent


async def test_a_fork_knows_which_of_its_runs_were_another_sessions(made: Made) -> None:
    agent = made(says("one"), says("two"), says("three"))
    async with agent.session("s") as session:
        first, second = await talk(session, "a", "b")
        fork = await session.fork()
        await fork.branch(first)
        (third,) = await talk(fork, "c")
        runs = {run.run: (run.parent, run.copied) for run in await fork.runs()}
    assert runs == {first: ("", True), second: (first, True), third: (first, False)}
    store = made.store
    kept = await entries_of(store, fork.id)
    assert [entry for entry in kept if isinstance(entry, Forked)] == [Forked(at=100.0, session="s")]


async def test_a_run_that_goes_on_in_a_fork_has_spent_nothing_there_yet() -> None:
    config = Config(model=ModelSpec(name="m"), tools=(ToolSpec(name="pay"),))
    wishes = events.ModelFinished(
        at=3.0,
        request="r-1",
        stop=messages.StopReason.TOOL_USE,
        usage=usage.Usage(input=5),
        pieces=(CallPiece(0, "w", "pay", "{}"),),
    )
    entries = [
        encode_entry(Posted(event=events.UserSent(at=1.0, id="p", text="Pay"))),
        encode_entry(RunOpened(at=2.0, run="r", config=config)),
        encode_entry(Stepped(event=wishes, label="confirming")),
    ]
    (run,) = await runs_of(entries, "s")
    assert (run.run, run.spent.usage.input, run.copied) == ("r", 5, False)
    (run,) = await runs_of([*entries, encode_entry(Forked(at=4.0, session="s", run="f"))], "t")
    assert (run.run, run.spent, run.copied) == ("f", usage.Spent(), False)


def test_a_run_of_which_nothing_more_is_known_is_a_head() -> None:
    run = RunInfo(run="r", parent="", prompt="Pay", at=1.0)
    assert (run.head, run.current, run.copied) == (True, False, False)


async def test_prompts_that_wait_are_not_answered_twice(made: Made) -> None:
    agent = made(says("one"))
    async with agent.session("s") as session:
        async with aclosing(session.stream("a")) as notices:
            async for notice in notices:
                if isinstance(notice, RunStarted):
                    await session.send("b")
                elif isinstance(notice, RunEnded):
                    break  # before the next run begins
        await session.send("c")
        fork = await session.fork()
        assert ([mail.text for mail in session.queue], fork.queue) == (["b", "c"], ())
        with pytest.raises(errors.UnknownSession):
            await agent.session("new").fork()


async def test_a_fork_is_of_the_session_as_it_was_at_rest(made: Made) -> None:
    agent = made(says("one"))
    opened = RunOpened(at=1.0, run="other", config=agent.config)
    store = Meddled(opened, before=True)
    agent = attrs.evolve(agent, store=store)
    async with agent.session("s") as session:
        await talk(session, "a")
        store.armed = True
        fork = await session.fork("t")
        assert (said(fork), fork.unfinished) == (["a", "one"], False)
        assert opened not in await entries_of(store, "t")
        assert opened in await entries_of(store, "s")


async def test_a_fork_that_could_not_be_written_is_not_there(made: Made) -> None:
    store = FaultyStore()
    agent = made(says("one"), store=store)
    async with agent.session("s") as session:
        await talk(session, "a")
        store.works = False
        with pytest.raises(errors.StoreError):
            await session.fork("t")
        store.works = True
        assert [info.session for info in await store.list()] == ["s"]
        assert said(await session.fork("t")) == ["a", "one"]


# Journals that are not as they should be


@pytest.mark.parametrize(
    ("entries", "says_what"),
    [
        ([Branched(at=1.0, run="r")], "entry 0 of session 's' comes before any run was opened"),
        ([Forked(at=1.0, session="t")], "entry 0 of session 's' comes before any run was opened"),
        (["run", Branched(at=1.0, run="r")], "branch to unknown run 'r'"),
        (["rest", Branched(at=1.0, run="")], "branch during unfinished run"),
        (["rest", Forked(at=1.0, session="t")], "branch during unfinished run"),
    ],
)
async def test_a_journal_that_cannot_be_is_refused(
    made: Made, entries: list[Entry | str], says_what: str
) -> None:
    agent = made(calls(("pay", {})) if "rest" in entries else says("one"))
    store = made.store
    journal: list[bytes] = []
    for entry in entries:
        if isinstance(entry, str):
            await agent.session("s").run("a")
            journal += await store.load("s")
        else:
            journal.append(encode_entry(entry))
    with pytest.raises(errors.JournalError, match=says_what):
        fold(journal, "s")
    with pytest.raises(errors.JournalError, match=says_what):
        await runs_of(journal, "s")


# Memory


async def test_who_goes_on_for_long_holds_on_to_no_end(made: Made) -> None:
    agent = made(*[says("one")] * 6)
    store = made.store
    log = SessionLog(Journal("s", store))
    async with agent.session("s") as session:
        first, _ = await talk(session, "a", "b")
        await log.read()
        await session.branch(first)
        await talk(session, "c", "d")
        await log.read()
        assert log.state.ends == {}
        await log.branch(first, 1.0)
        assert (log.state.ends, log.state.keeps) == ({}, frozenset())
        assert log.state.machine is not None
        assert len(log.state.machine.memory.history) == 2
    whole = fold(await store.load("s"), "s")
    assert set(whole.ends) == {first}


async def test_runs_under_one_configuration_share_it(made: Made) -> None:
    agent = made(says("one"), says("two"))
    async with agent.session("s") as session:
        await talk(session, "a", "b")
    store = made.store
    state = initial_state([])
    reading = read(await store.load("s"), "s", state)
    configs = [state.machine.config for _ in reading if state.machine is not None]
    assert all(config is configs[0] for config in configs)
    opened = [entry for entry in await entries_of(store) if isinstance(entry, RunOpened)]
    assert len(opened) == 2


# Any tree


@given(steps=st.lists(st.one_of(st.none(), st.integers(0, 8)), max_size=12), reread=st.integers(1, 4))
@settings(max_examples=60)
def test_the_conversation_is_the_path_to_where_the_session_stands(
    steps: list[int | None], reread: int
) -> None:
    """
    Whatever was run and wherever one went back to: what the model sees is the path, and nothing else.

    None is a run, a number goes back to that run, or to the beginning where there is none. The same holds for
    whoever reads the journal after each few steps, and for who reads it at the end.
    """

    async def play() -> None:
        model = ScriptedModel(*[says(f"answer {number}") for number in range(len(steps))])
        agent = Agent(model="scripted", performers={requests.CallModel: model}, store=MemoryStore())
        paths: dict[str, list[str]] = {"": []}
        parents: dict[str, str] = {}
        here = ""
        async with agent.session("s") as session, agent.session("s") as other:
            for number, step in enumerate(steps):
                if step is None:
                    path = [*paths[here], f"prompt {number}"]
                    run = (await session.run(path[-1])).run
                    assert [message.text for message in model.seen[-1]] == path
                    parents[run], paths[run] = here, [*path, f"answer {len(paths) - 1}"]
                    here = run
                else:
                    here = [*parents, *[""] * 9][step]
                    await session.branch(here)
                assert said(session) == paths[here]
                if number % reread == 0:
                    await other.load()
                    assert said(other) == paths[here]
                    assert other.spent == session.spent
            runs = await session.runs()
        assert {run.run: run.parent for run in runs} == parents
        assert [run.run for run in runs if run.current] == ([here] if here else [])
        assert {run.run for run in runs if run.head} == set(parents) - set(parents.values())
        async with agent.session("s") as again:
            assert said(again) == paths[here]
            assert again.spent.turns == len(parents)
            assert [message.role for message in again.history] == [
                messages.Role.USER,
                messages.Role.ASSISTANT,
            ] * (len(paths[here]) // 2)

    asyncio.run(play())
