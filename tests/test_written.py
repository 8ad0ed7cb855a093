"""Entries of a journal as bytes: each says its version, older ones are read, newer ones are refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwheel.effects.config import Config
from turnwheel.effects.errors import JournalError, NewerVersion
from turnwheel.effects.events import Interrupted
from turnwheel.effects.model import ModelSpec
from turnwheel.engine.entries import VERSION, Posted, RunOpened, TakenOver
from turnwheel.engine.migrations import CHANGES, OLDEST
from turnwheel.engine.written import MARK, entry_of, written

ROOT = Path(__file__).resolve().parent.parent
CONFIG = Config(model=ModelSpec(name="m"))
OPENED = RunOpened(at=1.0, run="r", config=CONFIG)


def as_in_2(**fields: object) -> bytes:
    """`OPENED` as version 2 wrote it, with *fields* that are different."""
    plain = json.loads(written(OPENED))
    del plain[MARK]
    return json.dumps({**plain, "version": 2, **fields}).encode()


def test_an_entry_says_its_version_first() -> None:
    """So it can be seen without reading the rest."""
    assert written(Posted(event=Interrupted(at=1.0))).startswith(b'{"v":%d,' % VERSION)


def test_an_entry_of_version_2_is_read_as_one_of_today() -> None:
    """It said no version, but for the beginning of a run, which said it for all."""
    assert entry_of(as_in_2()) == OPENED
    assert entry_of(b'{"event":{"at":1.0,"type":"Interrupted"},"type":"Posted"}') == Posted(
        event=Interrupted(at=1.0)
    )


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_an_entry_of_a_newer_version_is_refused(version: int) -> None:
    """It may say anything, so nothing else of it is looked at; what to do is said."""
    says = (
        f"entry 3 of session 's' has version {version}, known here is {VERSION}: upgrade turnwheel, or go on"
    )
    with pytest.raises(NewerVersion, match=says) as caught:
        entry_of(b'{"v":%d,"kind":"unheard of"}' % version, "entry 3 of session 's'")
    assert (caught.value.version, caught.value.known) == (version, VERSION)


@pytest.mark.parametrize(
    "data", [as_in_2(version=1), as_in_2(v=1), as_in_2(v=0), as_in_2(v="3"), as_in_2(v=None), as_in_2(v=2.5)]
)
def test_a_version_that_never_was_is_refused(data: bytes) -> None:
    """The first one was never released, and the others are none."""
    with pytest.raises(JournalError, match="here"):
        entry_of(data, "here")


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
        entry_of(line, "journal line 3")
    assert "restore it from a backup" in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_every_older_version_has_its_migration() -> None:
    """From the oldest that is read to the one before today's, and no other."""
    assert list(CHANGES) == list(range(OLDEST, VERSION))


def test_what_older_versions_were_like_is_loaded_for_them_only() -> None:
    """A journal of today costs nothing for what was before."""
    code = (
        "import sys; from turnwheel.engine.written import entry_of\n"
        "entry_of({!r}); assert 'turnwheel.engine.migrations' not in sys.modules\n"
        "entry_of({!r}); assert 'turnwheel.engine.migrations' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code.format(written(OPENED), as_in_2())], check=True, timeout=60)


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
    assert entry_of(written(entry)) == entry
