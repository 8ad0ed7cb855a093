"""Entries of a journal as bytes: each has its version, and a newer one is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import JournalError, NewerVersion, TooLarge
from turnwheel.engine.journal import encoding
from turnwheel.engine.journal.encoding import MARK, decode_entry, encode_entry
from turnwheel.engine.journal.entries import VERSION, Entry, RunOpened, TakenOver

ROOT = Path(__file__).resolve().parents[3]
CONFIG = Config(model=ModelSpec(name="m"))
OPENED = RunOpened(at=1.0, run="r", config=CONFIG)


@pytest.mark.parametrize("version", [VERSION + 1, 99, 999_999])
def test_an_entry_of_a_newer_version_is_refused(version: int) -> None:
    """It may say anything, so nothing else of it is looked at."""
    assert encode_entry(OPENED).startswith(b'{"v":%d,' % VERSION)
    why = (
        f"entry 3 of session 's' has version {version}, known here is {VERSION}: upgrade turnwheel, or go on"
    )
    with pytest.raises(NewerVersion, match=why) as caught:
        decode_entry(b'{"v":%d,"kind":"unheard of"}' % version, "entry 3 of session 's'")
    assert (caught.value.version, caught.value.known) == (version, VERSION)


@pytest.mark.parametrize("version", [0, -1, "1", None, True, 1.5, 10**6, 10**24, {"a": 1}])
def test_an_entry_with_an_impossible_version_is_damaged(version: object) -> None:
    plain = json.loads(encode_entry(OPENED))
    with pytest.raises(JournalError, match=r"^here has version .*; it is damaged, restore it"):
        decode_entry(json.dumps({**plain, MARK: version}).encode(), "here")


def test_an_entry_without_a_version_is_damaged() -> None:
    plain = json.loads(encode_entry(OPENED))
    del plain[MARK]
    with pytest.raises(JournalError, match=r"^here has version None; it is damaged, restore it"):
        decode_entry(json.dumps(plain).encode(), "here")


UNREADABLE = (b"", b"{", b"\xff", b"[" * 100_000, b"7", b'"text"', b'["Stepped"]')


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *[(line, "journal line 3 cannot be read") for line in UNREADABLE],
        (b'{"v":1,"type":"Nonsense"}', "Nonsense"),
        (b'{"v":1,"label":"x"}', "type"),
        (b'{"v":1,"type":"Stepped","label":"x"}', "Stepped"),
        (b'{"v":1,"type":"Stepped","label":"x","event":{"type":"Entered","at":1,"color":"red"}}', "Stepped"),
    ],
    ids=range(11),
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


def test_equal_settings_of_several_runs_are_one_object() -> None:
    first, second = (decode_entry(encode_entry(attrs.evolve(OPENED, run=run))) for run in ("a", "b"))
    assert isinstance(first, RunOpened)
    assert isinstance(second, RunOpened)
    assert first.config is second.config


# No entry

LINES = [
    line for path in (ROOT / "tests" / "golden").glob("v*/*.jsonl") for line in path.read_bytes().splitlines()
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
    line = {MARK: VERSION, "type": "Titled", "at": 1.0, "title": "", "spent": {"cost": amount}}
    assert refused(json.dumps(line).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b'{"v":' + b"9" * 1_000_000 + b"}",
        b'{"v":1,"type":"' + b"x" * 10_000_000,
        b"\x00" * 10_000_000,
    ],
    ids=["lists", "objects", "version", "text", "nothing"],
)
def test_a_large_line_that_is_no_entry_is_refused(data: bytes) -> None:
    assert refused(data)


ROOMS = ("engine", "apps", "testing", "benchmarks", "tests")
ITSELF = {"encoding.py", "test_codec.py"}


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
