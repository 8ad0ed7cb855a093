"""The program behind `glob` and `grep`: what it finds below a directory, and what it says it left out."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from turnwheel.performers.tools.search import REFUSED, choices, main, matches, report, visible


def searched(  # noqa: PLR0913  # what an order has
    folder: Path,
    *,
    only: str = "",
    shown: str = "",
    names: str = "",
    text: str | None = None,
    limit: int = 1_000,
    denied: Sequence[str] = (),
) -> Iterator[str]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield from report(
            folder=descriptor,
            only=only,
            shown=shown,
            names=names,
            text=text,
            limit=limit,
            denied=denied,
            places=[str(folder)],
        )
    finally:
        os.close(descriptor)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in ("b.py", "a.txt", "src/x.py", "src/deep/y.py", ".git/c.py", "src/build/z.py", ".github/w.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"here: {path}\nnot this\r\n")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("", ["a.txt", "b.py", ".github/w.py", "src/x.py", "src/deep/y.py"]),
        ("*.py", ["b.py", ".github/w.py", "src/x.py", "src/deep/y.py"]),
        ("./*.py", ["b.py"]),
        ("src/*", ["src/x.py"]),
        ("src/**", ["src/x.py", "src/deep/y.py"]),
        ("{a,x}.*", ["a.txt", "src/x.py"]),
        ("*.rs", []),
    ],
)
def test_paths_are_found_in_order_and_not_in_what_programs_made(
    tree: Path, names: str, found: list[str]
) -> None:
    assert list(searched(tree, names=names)) == found


def test_lines_are_found_with_their_path_and_number(tree: Path) -> None:
    assert list(searched(tree / "src", shown="src/", text="here|this", names="x.*")) == [
        "src/x.py:1: here: src/x.py",
        "src/x.py:2: not this",
    ]
    assert list(searched(tree, only="b.py", text="^not this")) == ["b.py:2: not this"]
    assert list(searched(tree, only="b.py", shown="at/")) == ["at/b.py"]


def test_a_search_stops_at_its_limit_and_says_so_where_there_is_more(tree: Path) -> None:
    assert list(searched(tree, names="*.txt", limit=1)) == ["a.txt"]
    assert list(searched(tree, limit=2)) == ["a.txt", "b.py", "[stopped after 2; narrow the search]"]


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 500 + "\n" + "x" * 501)
    assert list(searched(tmp_path, text="x")) == [f"a:1: {'x' * 500}", f"a:2: {'x' * 500}..."]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"-" * 8_191 + b"\0\nhit", ["[left out: 1 binary]"]),
        (b"-" * 8_192 + b"\0\nhit", ["a:2: hit"]),
        (b"-" * 4_999_996 + b"\nhit", ["a:2: hit"]),
        (b"-" * 4_999_997 + b"\nhit", ["[left out: 1 over 5 MB]"]),
        (b"\xff hit", ["a:1: \ufffd hit"]),
    ],
    ids=["null", "late null", "large", "too large", "no UTF-8"],
)
def test_a_file_is_searched_that_is_text_and_not_too_large(
    tmp_path: Path, data: bytes, found: list[str]
) -> None:
    (tmp_path / "a").write_bytes(data)
    assert list(searched(tmp_path, text="hit")) == found


def test_what_is_no_file_of_its_own_is_not_read(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A symlink's target is searched where it lies; a pipe has no writer to wait for."""
    outside = tmp_path_factory.mktemp("outside") / "secret"
    outside.write_text("hit")
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "z").write_text("hit")
    assert list(searched(tmp_path, text="hit")) == ["z:1: hit"]


def test_what_cannot_be_read_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as other:
        listening.bind("a socket")
        other.bind("b socket")
        (tmp_path / "z").write_text("hit")
        assert list(searched(tmp_path, text="hit")) == ["z:1: hit", "[left out: 2 unreadable]"]


def test_a_folder_that_goes_away_meanwhile_is_counted(tree: Path) -> None:
    search = searched(tree, names="*.{txt,py}")
    assert next(search) == "a.txt"
    shutil.rmtree(tree / "src")
    assert list(search) == ["b.py", ".github/w.py", "[left out: 1 unreadable]"]


def test_folders_are_looked_into_to_a_depth_of_100(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d"] * 100)
    for name in ("e", "f"):
        (folder / name).mkdir(parents=True)
        (folder / name / "below.txt").touch()
    (folder / "last.txt").touch()
    assert list(searched(tmp_path, names="*.txt")) == ["d/" * 100 + "last.txt", "[left out: 2 too deep]"]


@pytest.mark.parametrize(
    ("denied", "left"),
    [
        (["*/keys/*"], ["a.txt:1: hit", "[left out: 2 denied by a rule]"]),
        (["{here}/a.txt"], ["keys/a:1: hit", "keys/b:1: hit", "[left out: 1 denied by a rule]"]),
        (["{here}/*"], ["[left out: 3 denied by a rule]"]),
        (["/elsewhere/*"], ["a.txt:1: hit", "keys/a:1: hit", "keys/b:1: hit"]),
    ],
)
def test_files_that_a_rule_denies_are_left_out_and_counted(
    tmp_path: Path, denied: list[str], left: list[str]
) -> None:
    (tmp_path / "keys").mkdir()
    for name in ("a.txt", "keys/a", "keys/b"):
        (tmp_path / name).write_text("hit")
    globs = [each.format(here=tmp_path) for each in denied]
    assert list(searched(tmp_path, text="hit", denied=globs)) == left


def test_a_file_with_another_name_is_left_out_where_a_rule_may_deny_that_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hit")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "c").write_text("hit")
    assert list(searched(tmp_path, text="hit")) == ["a:1: hit", "b:1: hit", "c:1: hit"]
    assert list(searched(tmp_path, text="hit", denied=["/elsewhere/*"])) == [
        "c:1: hit",
        "[left out: 2 with several names (hard links)]",
    ]


def test_reasons_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "a.key").write_text("hit")
    (tmp_path / "b").write_bytes(b"\0")
    assert list(searched(tmp_path, text="hit", denied=["*.key"])) == [
        "[left out: 1 binary, 1 denied by a rule]"
    ]


def test_names_that_do_not_print_are_shown_with_escapes(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("hit")
    assert list(searched(tmp_path, shown="in\n/")) == ["in\\n/a\\nb"]
    assert list(searched(tmp_path, text="hit")) == ["a\\nb:1: hit"]
    assert visible("caf\u00e9 \udce9\u202e") == "caf\u00e9 \\udce9\\u202e"


@pytest.mark.parametrize(
    ("pattern", "patterns"),
    [
        ("a", ["**/a"]),
        ("a/b", ["a/b"]),
        ("./a", ["a"]),
        ("a..b", ["**/a..b"]),
        ("{a,b}/c{d,}", ["a/cd", "a/c", "b/cd", "b/c"]),
        ("{a", ["**/{a"]),
        ("{a}" * 6, ["**/aaaaaa"]),
        (f"{{{','.join('a' * 1_000)}}}", ["**/a"] * 1_000),
    ],
)
def test_a_pattern_stands_for_one_of_each_choice(pattern: str, patterns: list[str]) -> None:
    assert choices(pattern) == patterns


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("/etc/*", "leads out of"),
        ("../a", "leads out of"),
        ("a/../../b", "leads out of"),
        ("{a}" * 7, "more than 6 braces"),
        (f"{{{','.join('a' * 1_001)}}}", "more than 1,000 patterns"),
    ],
)
def test_a_pattern_is_refused_that_leads_out_or_stands_for_too_many(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        choices(pattern)


def test_a_pattern_may_have_so_many_characters(tmp_path: Path) -> None:
    assert list(searched(tmp_path, names="a" * 1_000, text="a" * 1_000)) == []
    for names, text in (("a" * 1_001, None), ("", "a" * 1_001)):
        with pytest.raises(ValueError, match="the pattern has 1,001 characters, and may have 1,000"):
            list(searched(tmp_path, names=names, text=text))


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a/**", True),
        ("a", "a/b/**", False),
        ("b/a", "**/a", True),
        ("a/b/a/c", "**/a/*", True),
        ("a/b/c/a/b/d", "**/a/b/d", True),
        ("a/b/c/a/b/d", "**/a/b/c", False),
        ("x/a/a/b", "x/**/a/b", True),
        ("x/a/y/b/z", "**/a/**/b", False),
    ],
)
def test_a_glob_matches_a_whole_path(path: str, pattern: str, *, expected: bool) -> None:
    assert matches(path.split("/"), pattern.split("/")) is expected


def test_an_order_is_carried_out_line_by_line(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = os.open(tree, os.O_RDONLY)
    order = {"folder": folder, "only": "", "shown": "at/", "names": "*.py", "text": "here", "limit": 2}
    assert main(json.dumps(order)) == 0
    assert capsys.readouterr().out.split("\n") == [
        "at/b.py:1: here: b.py",
        "at/.github/w.py:1: here: .github/w.py",
        "[stopped after 2; narrow the search]",
        "",
    ]
    os.close(folder)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (
            {"folder": 0, "only": "", "shown": "", "names": "", "text": "(", "limit": 1},
            "'(' is not a regular expression of Python's: missing )",
        ),
        ({}, "the search failed: TypeError"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused_in_words(
    order: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(json.dumps(order)) == REFUSED == 2
    assert capsys.readouterr().out.startswith(said)
