"""The fuzzer: it finds nothing, it would find what is wrong, and it finds the same thing again."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from provers.fuzzing.__main__ import (
    HANGS,
    MEMORY,
    SECONDS,
    Found,
    bodies,
    data_of,
    late,
    main,
    shrunk,
    tried,
)
from provers.fuzzing.mutations import cuts, mutated
from provers.fuzzing.readers import READERS
from provers.fuzzing.reading import ending_faults, pieces_faults
from provers.streams import seeds
from turnwheel.effects.events import Failure
from turnwheel.effects.history import (
    CallPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
)
from turnwheel.effects.messages import StopReason
from turnwheel.effects.usage import Usage
from turnwheel.performers.models.lenient_json import MAX_NUMBER
from turnwheel.performers.models.wire import Broken, Complete

pytestmark = [pytest.mark.prover, pytest.mark.timeout(600)]

RUNS = 3_000


def fuzzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the fuzzer says, in a process of its own: it bounds its own memory and time."""
    command = [sys.executable, "-m", "provers.fuzzing", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_nothing_is_found() -> None:
    """Whoever reads is given a few thousand bodies that nobody sends."""
    ended = fuzzed("--runs", str(RUNS))
    assert (ended.returncode, ended.stderr) == (0, "")
    *readers, runs, most, found = ended.stdout.splitlines()
    assert [line.split()[0] for line in readers] == list(READERS)
    assert runs.startswith(f"{RUNS:,} runs in ")
    assert re.fullmatch(r"the slowest took \d\.\d{3} s, \w+:\d+; a process had \d+ MB", most)
    assert found == "nothing was found"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--runs", "0"), "argument --runs: needs a whole number, at least 1, not '0'"),
        (("--seeds", "/nonexistent"), "there are none below '/nonexistent'"),
        (("--again", "nobody:3"), "argument --again: needs a reader and the number of a run"),
    ],
)
def test_what_comes_to_no_run_is_refused(
    asked: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that was not tried is said to be well."""
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("wait", [lambda: None, partial(time.sleep, 0.01)], ids=["works", "waits"])
def test_a_run_that_takes_too_long_is_told(wait: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it works or waits; what is borne is a few times what is needed, and not a thousand times."""

    def reads(_: bytes, __: int) -> tuple[list[str], str]:
        while True:
            wait()

    reader = READERS["refusal"].__class__(name="refusal", reads=reads, seeds=list, share=1)
    monkeypatch.setitem(READERS, "refusal", reader)
    assert (SECONDS, HANGS, MEMORY) == (2.0, 20.0, 1024**3)
    monkeypatch.setattr("provers.fuzzing.__main__.SECONDS", 0.05)
    monkeypatch.setattr("provers.fuzzing.__main__.HANGS", 0.3)
    before = {kind: signal.signal(kind, late) for kind in (signal.SIGPROF, signal.SIGALRM)}
    try:
        assert tried("refusal", 1, b"")[1] == "TooSlow"
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def test_nothing_is_left_where_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file they are read from is gone afterwards, in whatever process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert tried("settings", 1, READERS["settings"].seeds()[0]) == ("", "Settings")
    assert list(tmp_path.iterdir()) == []


def test_recorded_bodies_take_part(tmp_path: Path) -> None:
    """Each goes to whoever reads such."""
    below = tmp_path / "below"
    below.mkdir()
    stream, other = b'data: {"choices":[]}\n\n', b"event: message_start\n\n"
    responses = b'data: {"type":"response.created"}\n\n'
    (below / "one.sse").write_bytes(stream)
    (tmp_path / "two.sse").write_bytes(other)
    (tmp_path / "three.sse").write_bytes(responses)
    (tmp_path / "three.error.json").write_text(json.dumps({"status": 400, "body_text": "no"}))
    (tmp_path / "three.meta.json").write_text("{}")
    own = {reader: len(bodies(reader, None)) for reader in READERS}
    more = {reader: bodies(reader, tmp_path)[count:] for reader, count in own.items()}
    assert {reader: found for reader, found in more.items() if found} == {
        "openai": (stream,),
        "anthropic": (other,),
        "openai-responses": (responses,),
        "refusal": (b"no",),
    }


@pytest.mark.parametrize("reader", READERS)
def test_a_body_that_is_well_is_read(reader: str) -> None:
    """Nothing is wrong with what the runs begin with."""
    for body in READERS[reader].seeds():
        assert tried(reader, 0, body)[0] == ""


@pytest.mark.parametrize("reader", READERS)
def test_a_run_is_the_same_each_time(reader: str) -> None:
    """By its number; another number is another run."""
    assert data_of(reader, 7, None) == data_of(reader, 7, None)
    assert len({data_of(reader, number, None) for number in range(20)}) > 10


def test_a_run_is_done_once_more() -> None:
    """It says what was read, and what it was taken for."""
    ended = fuzzed("--again", "refusal:3")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(repr(data_of("refusal", 3, None)))


def test_what_is_found_is_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of less than was found, which can be pasted, and which fails."""

    def reads(data: bytes, _: int) -> tuple[list[str], str]:
        if b"x" in data:
            raise KeyError(data)
        return (["it has a y"] if b"y" in data else []), "well"

    reader = READERS["refusal"].__class__(name="refusal", reads=reads, seeds=lambda: [b"a"], share=1)
    monkeypatch.setitem(READERS, "refusal", reader)
    assert tried("refusal", 1, b"abc") == ("", "well")
    assert tried("refusal", 1, b"y") == ("it has a y", "well")
    faults, taken = tried("refusal", 1, b"ax")
    assert (faults.splitlines()[-1], taken) == ("KeyError: b'ax'", "KeyError")
    less = shrunk("refusal", 1, b"a" * 100 + b"y" + b"b" * 50)
    assert less == b"y"
    told = str(Found(reader="refusal", number=1, faults="it has a y", data=less))
    assert "--again refusal:1``" in told
    other = Found(reader="refusal", number=1, faults="it has a y", data=less, recorded=Path("/a b"))
    assert "--again refusal:1 --seeds '/a b'``" in str(other)  # without them the number is another run
    test = told.partition("\n\n")[2]
    names: dict[str, object] = {"READERS": READERS}
    exec(test, names)  # noqa: S102  # that it can be run is the point
    found = names["test_what_was_found_at_refusal_1"]
    assert callable(found)
    with pytest.raises(AssertionError):
        found()


def test_changes_are_of_every_kind() -> None:
    """Shorter and longer, JSON and none, and hardly ever nothing at all."""
    all_ = [body for _, body in seeds()]
    made = [mutated(random.Random(number), all_[0], all_) for number in range(400)]
    assert sum(each == all_[0] for each in made) < 40
    assert any(len(each) < len(all_[0]) / 2 for each in made)
    assert any(len(each) > len(all_[0]) * 2 for each in made)
    lines = [line[6:] for each in made for line in each.split(b"\n") if line.startswith(b"data: {")]
    assert 0.5 < sum(is_json(line) for line in lines) / len(lines) < 0.99


def is_json(data: bytes) -> bool:
    """Whether *data* is JSON."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def test_parts_are_the_whole() -> None:
    """However they are cut."""
    for number in range(100):
        assert b"".join(cuts(random.Random(number), b"abcdefgh" * number)) == b"abcdefgh" * number


@pytest.mark.parametrize(
    ("pieces", "fault"),
    [
        ([TextPiece("\ud83d")], "half a character in "),
        ([ReasoningPiece("a", "\ude00")], "half a character in "),
        ([CallPiece(1, "a", "f")], "the calls are numbered [1]"),
        ([CallPiece(0, "a", "f"), CallPiece(0, "", "g")], "call 0 has two names"),
        ([CallPiece(0, "a", "f" * 1_100)], "a word of 1100 characters"),
        ([TextPiece("x" * 5_000)], "5000 characters of 10 bytes"),
    ],
)
def test_pieces_that_no_parser_may_give_are_told(pieces: list[Piece], fault: str) -> None:
    """By what is wrong with them."""
    [told] = pieces_faults(pieces, 10)
    assert told.startswith(fault)


@pytest.mark.parametrize(
    ("ending", "fault"),
    [
        (Complete(stop=StopReason.END_TURN, usage=Usage(input=4 * MAX_NUMBER)), "4000000000 tokens"),
        (Complete(stop=StopReason.STOP_SEQUENCE, sequence="\ud800"), "half a character in "),
        (Broken(failure=Failure.CUT, message=""), "a message of 0 characters"),
        (Broken(failure=Failure.CUT, message="x" * 2_000), "a message of 2000 characters"),
    ],
)
def test_endings_that_cannot_be_told_are_told(ending: Complete | Broken, fault: str) -> None:
    """By what is wrong with them."""
    [told] = ending_faults(ending)
    assert told.startswith(fault)


FOUND = [
    (
        "anthropic",
        b'data:{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"\\ud83d"}}\n\n',
    ),
    ("anthropic", b'{"type":"message","stop_reason":"stop_sequence","stop_sequence":"\\ud83d"}'),
    ("openai", b'{"choices":[{"delta":{},"finish_reason":"stop_sequence","stop_reason":"\\ud83d"}]}'),
    ("openai", b'data: {"error":{"\\ud83d":"\\ude00"}}\n\n'),
    ("openai", b'data: {"choices":[{"delta":{},"finish_reason":' + b"[" * 400 + b"]" * 400 + b"}]}\n\n"),
    ("openai", b"data: a\n\n" + b"data: " + b"x" * 9_000_000 + b"\n\n"),
    ("refusal", b'{"error":{"\\ud83d":"\\ude00"}}'),
    ("snapshot", b'{"snapsho\xf4":{}}'),
    ("hook", b'{"arguments":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}"),
]


@pytest.mark.parametrize(("reader", "data"), FOUND, ids=range(len(FOUND)))
def test_what_was_found_is_mended(reader: str, data: bytes) -> None:
    """In each of them something was raised, or could not be written down, or depended on how it was cut."""
    for number in range(8):
        assert tried(reader, number, data)[0] == ""
