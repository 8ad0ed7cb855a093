"""Entries of a journal as bytes: each says its version, older ones are read, newer ones are refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, get_args

import attrs
import cattrs
import pytest
from hypothesis import given, settings, strategies as st

from turnwheel.effects.config import Config, ModelSpec, OnLost, Policy, ToolSpec
from turnwheel.effects.errors import JournalError, NewerVersion, TooLarge
from turnwheel.effects.hooks import Hook, HookSpec, OnError
from turnwheel.effects.permissions import PermissionMode
from turnwheel.engine.codec import make_converter
from turnwheel.engine.journal import encoding
from turnwheel.engine.journal.encoding import MARK, decode_entry, encode_entry
from turnwheel.engine.journal.entries import VERSION, Entry, RunOpened, TakenOver
from turnwheel.engine.journal.migrations import CHANGES, OLDEST, Changed, teach

ROOT = Path(__file__).resolve().parents[3]
CONFIG = Config(model=ModelSpec(name="m"))
OPENED = RunOpened(at=1.0, run="r", config=CONFIG)


def as_in_2(entry: Entry = OPENED, **fields: object) -> bytes:
    """*entry* as version 2 wrote it, with *fields* that are different."""
    plain = json.loads(encode_entry(entry))
    del plain[MARK]
    # The beginning of a run said its version for all entries.
    version = {"version": 2} if isinstance(entry, RunOpened) else {}
    return json.dumps({**plain, **version, **fields}).encode()


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_an_entry_of_a_newer_version_is_refused(version: int) -> None:
    """It may say anything, so nothing else of it is looked at."""
    assert encode_entry(OPENED).startswith(b'{"v":%d,' % VERSION)
    why = (
        f"entry 3 of session 's' has version {version}, known here is {VERSION}: upgrade turnwheel, or go on"
    )
    with pytest.raises(NewerVersion, match=why) as caught:
        decode_entry(b'{"v":%d,"kind":"unheard of"}' % version, "entry 3 of session 's'")
    assert (caught.value.version, caught.value.known) == (version, VERSION)


NEVER = "^here: version 1 of the journal was never released; read it with"
DAMAGED = "^here has version .*; it is damaged, restore it"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"version": 1}, NEVER),
        ({"v": 1}, NEVER),
        *[({"v": odd}, DAMAGED) for odd in (0, -1, "3", None, True, 2.5, 3.5, 10**24, {"a": 1})],
    ],
)
def test_a_version_that_was_never_released_is_refused(fields: dict[str, object], why: str) -> None:
    with pytest.raises(JournalError, match=why):
        decode_entry(as_in_2(OPENED, **fields), "here")


UNREADABLE = (b"", b"{", b"\xff", b"[" * 100_000, b"7", b'"text"', b'["Stepped"]')


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *[(line, "journal line 3 cannot be read") for line in UNREADABLE],
        (b'{"type":"Nonsense"}', "Nonsense"),
        (b'{"v":3,"type":"Nonsense"}', "Nonsense"),
        (b'{"label":"x"}', "type"),
        (b'{"type":"Stepped","label":"x"}', "Stepped"),
        (b'{"v":3,"type":"Stepped","label":"x","event":{"type":"Entered","at":1,"color":"red"}}', "Stepped"),
    ],
    ids=range(12),
)
def test_a_line_that_cannot_be_read_says_where_and_how_to_go_on(line: bytes, why: str) -> None:
    """Torn and foreign lines are one kind of error, which shows the line, or its beginning."""
    with pytest.raises(JournalError, match=why) as caught:
        decode_entry(line, "journal line 3")
    assert "restore it from a backup" in str(caught.value)
    assert len(str(caught.value)) < 1_000


# Any entry at all


entries: Any = st.sampled_from(get_args(Entry)).flatmap(st.from_type)


@given(entry=entries)
@settings(max_examples=200)
def test_any_entry_that_is_written_is_read_as_it_was(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry
    assert decode_entry(as_in_2(entry)) == as_judged_then(entry)


def as_judged_then(entry: Entry) -> Entry:
    """*entry* as version 2 can say it: no hook denied where it failed, nothing was looked at or given up."""
    if not isinstance(entry, RunOpened | TakenOver) or entry.config is None:
        return entry
    hooks = [attrs.evolve(hook, on_error=OnError.ALLOW) for hook in entry.config.hooks]
    tools = [attrs.evolve(tool, paths=(), command="", fills=False) for tool in entry.config.tools]
    policy = attrs.evolve(entry.config.policy, takeovers=Policy().takeovers)
    config = attrs.evolve(
        entry.config,
        hooks=tuple(hooks),
        tools=tuple(tools),
        policy=policy,
        protected=(),
        ceiling=PermissionMode.BYPASS,
    )
    return attrs.evolve(entry, config=config)


def as_of(version: int, entry: Entry) -> bytes:
    return (
        as_in_2(entry) if version == 2 else json.dumps({**json.loads(encode_entry(entry)), MARK: 3}).encode()
    )


FULL = Config(
    model=ModelSpec(name="m"),
    tools=(ToolSpec(name="look", paths=("path",), command="run", fills=True, secrets=("pin",)),),
    policy=Policy(on_lost=OnLost.ASK, takeovers=7),
    hooks=(HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, on_error=OnError.DENY),),
    protected=(".git",),
    ceiling=PermissionMode.PLAN,
)
"""Settings of which each that changed since version 2 is unlike what was done before."""


@pytest.mark.parametrize("version", [2, 3])
def test_settings_that_came_later_are_what_was_done_before(version: int) -> None:
    """Whatever stands there; and equal settings of several runs are one object all the same."""
    tool, policy, hook = FULL.tools[0], FULL.policy, FULL.hooks[0]
    if version == 2:
        tool = attrs.evolve(tool, secrets=())
        policy = attrs.evolve(policy, on_lost=OnLost.REPORT)
        hook = attrs.evolve(hook, on_error=OnError.ALLOW)
    then = attrs.evolve(
        FULL,
        tools=(attrs.evolve(tool, paths=(), command="", fills=False),),
        policy=attrs.evolve(policy, takeovers=Policy().takeovers),
        hooks=(hook,),
        protected=(),
        ceiling=PermissionMode.BYPASS,
    )
    for entry in (RunOpened(at=1.0, run="r", config=FULL), TakenOver(at=1.0, config=FULL)):
        first, second = decode_entry(as_of(version, entry)), decode_entry(as_of(version, entry))
        assert first == attrs.evolve(entry, config=then)
        assert isinstance(first, RunOpened | TakenOver)
        assert isinstance(second, RunOpened | TakenOver)
        assert first.config is second.config


# No entry

LINES = [
    line
    for path in (ROOT / "tests" / "golden").glob("v*/[!r]*.jsonl")
    for line in path.read_bytes().splitlines()
]


def refused(data: bytes) -> bool:
    """Whether *data* is refused in few words that say where it stands."""
    with pytest.raises(JournalError, match=r"^entry 7") as caught:
        decode_entry(data, "entry 7")
    return len(str(caught.value)) < 1_000


@given(line=st.sampled_from(sorted(LINES)), share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=300)
def test_a_torn_entry_is_refused(line: bytes, share: float) -> None:
    """Wherever it was cut. The fuzzer damages entries in other ways, and puts them into journals."""
    assert refused(line[: int(len(line) * share)])


@pytest.mark.parametrize(
    "amount", ["sNaN", "nan", "Infinity", "1e999999", "-1e31", "1e-31", "dear", True, [], ""]
)
def test_money_that_is_none_is_refused(amount: object) -> None:
    line = {"type": "Titled", "at": 1.0, "title": "", "spent": {"cost": amount}}
    assert refused(json.dumps(line).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b'{"v":' + b"9" * 1_000_000 + b"}",
        b'{"v":3,"type":"' + b"x" * 10_000_000,
        b"\x00" * 10_000_000,
    ],
    ids=["lists", "objects", "version", "text", "nothing"],
)
def test_a_large_line_that_is_no_entry_is_refused(data: bytes) -> None:
    assert refused(data)


@attrs.frozen(kw_only=True)
class Wheel1:
    """The first wheel had its size as text, and called it otherwise."""

    width: str


@attrs.frozen(kw_only=True)
class Wheel:
    """What became of it; the third version has spokes."""

    size: int
    spokes: int = 8


@attrs.frozen(kw_only=True)
class Cart2:
    """A cart with one wheel."""

    wheel: Wheel


@attrs.frozen(kw_only=True)
class Cart:
    """A cart with any number of them."""

    wheels: tuple[Wheel, ...] = ()
    name: str = ""


FIRST = Changed(Wheel1, Wheel, lambda old: Wheel(size=int(old.width)))
SECOND = (
    Changed(Wheel, Wheel, lambda old: attrs.evolve(old, spokes=0)),
    Changed(Cart2, Cart, lambda old: Cart(wheels=(old.wheel,))),
)


def test_a_record_that_changed_twice_goes_the_whole_way() -> None:
    assert list(CHANGES) == list(range(OLDEST, VERSION))
    first = make_converter(partial(teach, (FIRST, *SECOND)))
    assert first.structure({"wheel": {"width": "3"}}, Cart) == Cart(wheels=(Wheel(size=3, spokes=0),))
    second = make_converter(partial(teach, SECOND))
    assert second.structure({"wheel": {"size": 3}}, Cart) == Cart(wheels=(Wheel(size=3, spokes=0),))
    with pytest.raises(cattrs.BaseValidationError):
        second.structure({"wheel": {"size": 3, "more": 1}}, Cart)
    third = make_converter(partial(teach, ()))
    assert third.structure({"wheels": [{"size": 3}]}, Cart) == Cart(wheels=(Wheel(size=3),))
    with pytest.raises(cattrs.BaseValidationError):
        third.structure({"wheel": {"size": 3}}, Cart)


def test_older_versions_are_loaded_for_their_entries_only() -> None:
    code = (
        "import sys; from turnwheel.engine.journal.encoding import decode_entry\n"
        "decode_entry({!r}); assert 'turnwheel.engine.journal.migrations' not in sys.modules\n"
        "decode_entry({!r}); assert 'turnwheel.engine.journal.migrations' in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code.format(encode_entry(OPENED), as_in_2())], check=True, timeout=60
    )


ROOMS = ("engine", "apps", "testing", "benchmarks", "tests")
ITSELF = {"encoding.py", "migrations.py", "test_codec.py"}


def test_entries_are_written_and_read_in_one_place() -> None:
    calls = re.compile(r"\b(?:encode|decode|structure)\([^\n]*\bEntry\b")
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path.name not in ITSELF]
    assert [path.name for path in sources if calls.search(path.read_text("utf-8"))] == []


def test_an_entry_may_have_so_many_bytes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = TakenOver(at=1.0)
    data = encode_entry(entry)
    monkeypatch.setattr(encoding, "MAX_ENTRY", len(data))
    assert decode_entry(encode_entry(entry)) == entry
    monkeypatch.setattr(encoding, "MAX_ENTRY", len(data) - 1)
    with pytest.raises(TooLarge):
        encode_entry(entry)
    with pytest.raises(JournalError, match=f"this entry has {len(data)} bytes, and may have {len(data) - 1}"):
        decode_entry(data)
