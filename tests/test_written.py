"""Entries of a journal as bytes: each says its version, older ones are read, newer ones are refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import attrs
import cattrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import JournalError, NewerVersion
from turnwheel.effects.events import Interrupted
from turnwheel.engine.codec import make_converter
from turnwheel.engine.journal.encoding import MARK, decode_entry, encode_entry
from turnwheel.engine.journal.entries import (
    VERSION,
    Entry,
    Posted,
    RunOpened,
    TakenOver,
)
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.journal.migrations import (
    CHANGES,
    OLDEST,
    Changed,
    teach,
)

ROOT = Path(__file__).resolve().parent.parent
CONFIG = Config(model=ModelSpec(name="m"))
OPENED = RunOpened(at=1.0, run="r", config=CONFIG)


def as_in_2(**fields: object) -> bytes:
    """`OPENED` as version 2 wrote it, with *fields* that are different."""
    plain = json.loads(encode_entry(OPENED))
    plain.pop(MARK, None)
    return json.dumps({**plain, "version": 2, **fields}).encode()


def test_an_entry_says_its_version_first() -> None:
    """So it can be seen without reading the rest."""
    assert encode_entry(Posted(event=Interrupted(at=1.0))).startswith(b'{"v":%d,' % VERSION)


def test_an_entry_of_version_2_is_read_as_one_of_today() -> None:
    """It said no version, but for the beginning of a run, which said it for all."""
    assert decode_entry(as_in_2()) == OPENED
    assert decode_entry(b'{"event":{"at":1.0,"type":"Interrupted"},"type":"Posted"}') == Posted(
        event=Interrupted(at=1.0)
    )


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_an_entry_of_a_newer_version_is_refused(version: int) -> None:
    """It may say anything, so nothing else of it is looked at; what to do is said."""
    says = (
        f"entry 3 of session 's' has version {version}, known here is {VERSION}: upgrade turnwheel, or go on"
    )
    with pytest.raises(NewerVersion, match=says) as caught:
        decode_entry(b'{"v":%d,"kind":"unheard of"}' % version, "entry 3 of session 's'")
    assert (caught.value.version, caught.value.known) == (version, VERSION)


@pytest.mark.parametrize("data", [as_in_2(version=1), as_in_2(v=1)])
def test_the_first_version_is_refused(data: bytes) -> None:
    """It was never released."""
    with pytest.raises(
        JournalError, match=r"^here: version 1 of the journal was never released; read it with"
    ):
        decode_entry(data, "here")


@pytest.mark.parametrize("version", [0, -1, "3", None, True, 2.5, 3.5, 10**24, {"a": 1}])
def test_a_version_that_never_was_is_damage(version: Any) -> None:
    """Nobody ever wrote such a thing, and no turnwheel will read it."""
    with pytest.raises(JournalError, match=r"^here has version .*; it is damaged, restore it"):
        decode_entry(as_in_2(v=version), "here")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "journal line 3 cannot be read"),
        (b"{", "journal line 3 cannot be read"),
        (b"\xff", "journal line 3 cannot be read"),
        (b"[" * 100_000, "journal line 3 cannot be read"),
        (b"7", "journal line 3 cannot be read"),
        (b'"text"', "journal line 3 cannot be read"),
        (b'["Stepped"]', "journal line 3 cannot be read"),
        (b'{"type":"Nonsense"}', "Nonsense"),
        (b'{"v":3,"type":"Nonsense"}', "Nonsense"),
        (b'{"label":"x"}', "type"),
        (b'{"type":"Stepped","label":"x"}', "Stepped"),
        (b'{"v":3,"type":"Stepped","label":"x","event":{"type":"Entered","at":1,"color":"red"}}', "Stepped"),
    ],
)
def test_what_cannot_be_read_says_where_and_what_to_do(line: bytes, said: str) -> None:
    """Torn and foreign lines are one kind of error, which shows the line, or its beginning."""
    with pytest.raises(JournalError, match=said) as caught:
        decode_entry(line, "journal line 3")
    assert "restore it from a backup" in str(caught.value)
    assert len(str(caught.value)) < 1_000


# Any entry at all


def kinds(union: Any) -> Any:
    """Any entry of the closed *union*."""
    return st.sampled_from(get_args(union)).flatmap(st.from_type)


entries: st.SearchStrategy[Entry] = kinds(Entry)


@given(entry=entries)
@settings(max_examples=200)
def test_any_entry_that_is_written_is_read_as_it_was(entry: Entry) -> None:
    """Nothing is lost, and nothing added."""
    assert decode_entry(encode_entry(entry)) == entry


@given(entry=entries)
@settings(max_examples=200)
def test_any_entry_of_version_2_is_read_as_it_was(entry: Entry) -> None:
    """No field of it is lost on its way to the present."""
    assert decode_entry(in_version_2(entry)) == entry


def in_version_2(entry: Entry) -> bytes:
    """*entry* as version 2 wrote it, where it was possible then."""
    plain = json.loads(encode_entry(entry))
    del plain[MARK]
    if isinstance(entry, RunOpened):
        plain["version"] = 2
    return json.dumps(plain).encode()


# What is no entry

JOURNALS = sorted((ROOT / "tests" / "golden").glob("v*/[!r]*.jsonl"))
LINES = [line for path in JOURNALS for line in path.read_bytes().splitlines()]
lines = st.sampled_from(LINES)
shares = st.floats(0, 1, exclude_max=True)
TAGS = sorted({word for line in LINES for word in re.findall(rb'"type":"(\w+)"', line)})

odd: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([1e308, -1e308, 2**64, 10**4_000, "1e999999", "nan", "inf", "=", "AAA", "\x00", ""]),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.sampled_from(TAGS).map(lambda tag: {"type": tag.decode()}),
)


def read_or_refused(data: bytes) -> Entry | None:
    """The entry that *data* is; None where it is refused, as it should be."""
    said = ""
    try:
        return decode_entry(data, "entry 7")
    except JournalError as error:
        said = str(error)
    assert said.startswith("entry 7")
    assert len(said) < 1_000
    return None


@given(line=lines, share=shares)
@settings(max_examples=300)
def test_what_was_torn_is_refused(line: bytes, share: float) -> None:
    """Wherever it was cut; no part of an entry is an entry."""
    assert read_or_refused(line[: int(len(line) * share)]) is None


@given(
    line=lines,
    at=st.floats(0, 1, exclude_max=True),
    put=st.binary(min_size=1, max_size=4),
    cut=st.integers(0, 9),
)
@settings(max_examples=500)
def test_what_was_damaged_is_an_entry_or_refused(line: bytes, at: float, put: bytes, cut: int) -> None:
    """Some bytes in the place of others: whatever that makes of it, there is no other error."""
    place = int(len(line) * at)
    read_or_refused(line[:place] + put + line[place + cut :])


@given(line=lines, data=st.data())
@settings(max_examples=500)
def test_what_says_something_else_is_an_entry_or_refused(line: bytes, data: st.DataObject) -> None:
    """JSON of the right shape with something odd in one place of it, or without it, or with more."""
    plain = json.loads(line)
    place: Any = plain
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner) or data.draw(st.booleans()):
            break
        place = inner
    match data.draw(st.sampled_from(["put", "drop", "add"])):
        case "put":
            place[key] = data.draw(odd)
        case "drop":
            del place[key]
        case _ if isinstance(place, dict):
            place[data.draw(st.sampled_from(["v", "type", "more", "at"]))] = data.draw(odd)
        case _:
            place.append(data.draw(odd))
    read_or_refused(json.dumps(plain).encode())


@given(path=st.sampled_from(JOURNALS), data=st.data())
@settings(max_examples=150)
def test_a_journal_with_an_entry_that_is_not_its_own_is_one_or_refused(
    path: Path, data: st.DataObject
) -> None:
    """One that is missing, doubled, of another session, or says something else."""
    journal = path.read_bytes().splitlines()
    place = data.draw(st.integers(0, len(journal) - 1))
    match data.draw(st.sampled_from(["drop", "double", "foreign", "else"])):
        case "drop":
            del journal[place]
        case "double":
            journal.insert(data.draw(st.integers(0, len(journal))), journal[place])
        case "foreign":
            journal[place] = data.draw(lines)
        case _:
            plain = json.loads(journal[place])
            inner = plain.get("event", plain)
            inner[data.draw(st.sampled_from(list(inner)))] = data.draw(odd)
            journal[place] = json.dumps(plain).encode()
    with suppress(JournalError):
        fold(journal, "s")


@pytest.mark.parametrize(
    "amount", ["sNaN", "nan", "Infinity", "1e999999", "-1e31", "1e-31", "dear", True, [], ""]
)
def test_money_that_is_none_is_refused(amount: object) -> None:
    """It would break whoever adds it up."""
    line = {"type": "Titled", "at": 1.0, "title": "", "spent": {"cost": amount}}
    assert read_or_refused(json.dumps(line).encode()) is None


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
def test_what_is_large_and_no_entry_is_refused(data: bytes) -> None:
    """At once, and what is said of it stays small."""
    assert read_or_refused(data) is None


def test_every_older_version_has_its_migration() -> None:
    """From the oldest that is read to the one before today's, and no other."""
    assert list(CHANGES) == list(range(OLDEST, VERSION))


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


def test_what_changed_twice_goes_the_whole_way() -> None:
    """A record in a record, one that was another one, and one that got more; each version from its own on."""
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


def test_what_older_versions_were_like_is_loaded_for_them_only() -> None:
    """A journal of today costs nothing for what was before."""
    code = (
        "import sys; from turnwheel.engine.journal.encoding import decode_entry\n"
        "decode_entry({!r}); assert 'turnwheel.engine.journal.migrations' not in sys.modules\n"
        "decode_entry({!r}); assert 'turnwheel.engine.journal.migrations' in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code.format(encode_entry(OPENED), as_in_2())], check=True, timeout=60
    )


ROOMS = ("engine", "apps", "testing", "benchmarks", "tests")
ITSELF = {"written.py", "migrations.py", "test_codec.py"}


def test_entries_are_written_and_read_in_one_place() -> None:
    """Whoever takes the converter to one leaves out its version."""
    calls = re.compile(r"\b(?:encode|decode|structure)\([^\n]*\bEntry\b")
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path.name not in ITSELF]
    assert [path.name for path in sources if calls.search(path.read_text("utf-8"))] == []


def test_a_configuration_comes_along() -> None:
    """Whoever takes a run over says under what, in full."""
    entry = TakenOver(at=1.0, config=CONFIG)
    assert decode_entry(encode_entry(entry)) == entry
