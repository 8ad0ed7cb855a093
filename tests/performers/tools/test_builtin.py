"""The built-in tools: what they do, and what they never do outside their directories."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.patience import PATIENCE

from turnwheel.effects.config import Config, ModelSpec, SideEffect
from turnwheel.effects.messages import Binary, Outcome
from turnwheel.effects.permissions import Rule, Verdict
from turnwheel.effects.requests import RunTool
from turnwheel.performers.base import PerformContext
from turnwheel.performers.tools import builtin, paths, process
from turnwheel.performers.tools.builtin import (
    bash,
    builtin_tools,
    edit,
    glob,
    grep,
    load,
    ls,
    read,
    store,
    write,
)
from turnwheel.performers.tools.decorator import ToolContext
from turnwheel.performers.tools.process import ProcessEnd, run
from turnwheel.performers.tools.runner import ToolRunner
from turnwheel.performers.tools.search import MAX_PATTERN, choices, matches

Context = ToolContext[object]
OUTSIDE = "is outside of the directories"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def context(home: Path) -> Context:
    return ToolContext(cwd=home, deps=None)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    path = tmp_path / "outside" / "secret.txt"
    path.write_text("do not tell")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_builtin_tools_are_these_in_this_order() -> None:
    assert [(tool.spec.name, tool.spec.side_effect) for tool in builtin_tools()] == [
        ("read", SideEffect.READ_ONLY),
        ("write", SideEffect.IDEMPOTENT),
        ("edit", SideEffect.UNSAFE),
        ("ls", SideEffect.READ_ONLY),
        ("glob", SideEffect.READ_ONLY),
        ("grep", SideEffect.READ_ONLY),
        ("bash", SideEffect.UNSAFE),
        ("read_result", SideEffect.READ_ONLY),
    ]
    assert [tool.spec.name for tool in builtin_tools() if tool.spec.edits] == ["write", "edit"]
    for tool in builtin_tools():  # each parameter has a text
        assert tool.spec.schema.count('"description"') == len(tool.parameters.__struct_fields__)


# Staying inside


def attempts(context: Context, path: str) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: asyncio.to_thread(read, context, path),
        lambda: asyncio.to_thread(write, context, path, "x"),
        lambda: asyncio.to_thread(edit, context, path, "do", "x"),
        lambda: asyncio.to_thread(ls, context, path),
        lambda: glob(context, "*", path),
        lambda: grep(context, ".", path),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "{outside}/secret.txt",
        "there/secret.txt",
        "there/new/file.txt",
        "there/../outside/secret.txt",
        "file",
        "dangling",
        "missing/../../outside/secret.txt",
        "./../{home}/../outside/secret.txt",
        "..",
        "/",
        "/etc/passwd",
        "../home2",
    ],
)
async def test_no_way_leads_outside(path: str, context: Context, secret: Path) -> None:
    # Neither absolute paths nor parents nor symlinks, and nothing out there is made or changed.
    (context.cwd / "there").symlink_to(secret.parent)
    (context.cwd / "file").symlink_to(secret)
    (context.cwd / "dangling").symlink_to(secret.parent / "new.txt")
    (context.cwd.parent / "home2").mkdir()
    for attempt in attempts(context, path.format(outside=secret.parent, home=context.cwd.name)):
        with pytest.raises(ValueError, match="is outside of the directories open to tools"):
            await attempt()
    assert secret.read_text() == "do not tell"
    assert names(secret.parent) == ["secret.txt"]


def test_a_path_that_is_none_is_an_error(context: Context) -> None:
    (context.cwd / "loop").symlink_to("loop")
    for path, problem in (
        ("loop", "cannot be resolved"),
        ("a\0b", "cannot be resolved"),
        ("x" * 300, "too long"),
    ):
        with pytest.raises((ValueError, OSError), match=problem):
            read(context, path)


def test_symlinks_inside_are_followed(context: Context) -> None:
    (context.cwd / "real").mkdir()
    (context.cwd / "link").symlink_to("real")
    (context.cwd / "name").symlink_to("real/file.txt")
    write(context, "link/file.txt", "a")
    write(context, "name", "b")
    assert (context.cwd / "real/file.txt").read_text() == "b"
    assert (context.cwd / "name").is_symlink()


def exchanged(old: Path, new: Path) -> None:
    """Put a link to *new* in the place of *old*, as another process may between the check and the use."""
    old.rename(old.with_name("moved"))
    old.symlink_to(new)


def test_a_symlink_put_in_after_the_check_is_not_followed(context: Context, secret: Path) -> None:
    (context.cwd / "sub").mkdir()
    (context.cwd / "sub" / "secret.txt").write_text("harmless")
    (context.cwd / "a.txt").write_text("harmless")
    inside, plain = paths.locate(context, "sub/secret.txt"), paths.locate(context, "a.txt")
    exchanged(context.cwd / "sub", secret.parent)
    (context.cwd / "a.txt").unlink()
    (context.cwd / "a.txt").symlink_to(secret)
    with pytest.raises(OSError, match=r"sub/secret\.txt"), inside.parent():
        pass
    with pytest.raises(OSError, match=r"a\.txt"):
        plain.read(100)
    with pytest.raises(ValueError, match=r"'a\.txt' is not a regular file"):
        store(plain, b"x")
    assert secret.read_text() == "do not tell"


@pytest.fixture
def elsewhere(tmp_path: Path) -> tuple[Path, Path]:
    found = (tmp_path / "first", tmp_path / "second")
    for folder in found:
        folder.mkdir()
    return found


@pytest.mark.parametrize(
    "written", ["{root}/dir/a.txt", "../{name}/dir/a.txt", "{root}/../{name}/./dir/a.txt"]
)
async def test_every_directory_is_open_to_every_file_tool(
    written: str, home: Path, elsewhere: tuple[Path, Path], secret: Path, scene: PerformContext
) -> None:
    # A runner's working directory and each of the others, however the path is written; nothing else.
    told: list[str] = []
    runner = ToolRunner(builtin_tools(), cwd=home, directories=elsewhere)

    async def call(tool: str, **arguments: object) -> Outcome:
        request = RunTool(id="1", call="1", tool=tool, arguments=json.dumps(arguments), timeout=10.0)
        answer = await runner(request, scene)
        told.append(answer.content)
        return answer.outcome

    async def outcomes(path: str) -> set[Outcome]:
        folder = str(Path(path).parent)
        return {
            await call("write", path=path, content="old"),
            await call("edit", path=path, old="old", new="new"),
            await call("read", path=path),
            await call("ls", path=folder),
            await call("glob", pattern="*.txt", path=folder),
            await call("grep", pattern="new", path=folder),
        }

    for root in (home, *elsewhere):
        assert await outcomes(written.format(root=root, name=root.name)) == {Outcome.OK}
        assert (root / "dir" / "a.txt").read_text() == "new"
    assert len([text for text in told if text.endswith("a.txt:1: new")]) == 3
    outside = written.format(root=secret.parent, name=secret.parent.name)
    assert await outcomes(outside) == {Outcome.ERROR}
    assert names(secret.parent) == ["secret.txt"]


def test_a_path_in_another_directory_is_shown_as_what_it_is(
    home: Path, elsewhere: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "link").symlink_to(elsewhere[0])
    wider: Context = ToolContext(cwd=home, deps=None, directories=(home, *elsewhere))
    assert write(wider, "link/a.txt", "x") == f"wrote 1 byte to {elsewhere[0]}/a.txt"
    assert write(wider, "../second/b.txt", "x") == f"wrote 1 byte to {elsewhere[1]}/b.txt"
    assert read(wider, str(elsewhere[1] / "b.txt")) == "     1\tx"
    # In a test of a tool, which makes its context by hand, a relative directory will do.
    monkeypatch.chdir(home)
    here: Context = ToolContext(cwd=Path(), deps=None)
    assert write(here, "a.txt", "x") == "wrote 1 byte to a.txt"
    with pytest.raises(ValueError, match=OUTSIDE):
        read(here, "../first/a.txt")


def test_a_directory_that_is_exchanged_is_no_way_out(home: Path, tmp_path: Path, secret: Path) -> None:
    # A tool that can rename and link in the outer one must not move the inner one to where it likes.
    inner = home / "data" / "inner"
    inner.mkdir(parents=True)
    (inner / "secret.txt").write_text("harmless")
    (tmp_path / "open").mkdir()
    wider = ToolContext(cwd=home, deps=None, directories=(home, inner, tmp_path / "open"))
    place = paths.locate(wider, "data/inner/secret.txt")
    exchanged(home / "data", tmp_path / "outside")
    exchanged(tmp_path / "open", tmp_path / "outside")
    with pytest.raises(ValueError, match=OUTSIDE):  # directories are resolved when the context is made
        read(wider, "../open/secret.txt")
    (tmp_path / "outside" / "inner").mkdir()
    secret.rename(tmp_path / "outside" / "inner" / "secret.txt")
    with pytest.raises(OSError, match=r"data/inner/secret\.txt"):
        place.read(100)
    for path in ("data/inner/secret.txt", str(inner / "secret.txt")):
        with pytest.raises(ValueError, match=OUTSIDE):
            read(wider, path)


# One file


FIVE, LATIN = b"l1\nl2\nl3\nl4\nl5\n", "caf\xe9".encode("latin-1")


@pytest.mark.parametrize(
    ("data", "part", "expected"),
    [
        (b"one\r\ntwo\x0bstill two\n\nfour", (), ["1\tone", "2\ttwo\x0bstill two", "3\t", "4\tfour"]),
        (FIVE, (None, 2), ["1\tl1", "2\tl2", "[lines 1 to 2 of 5; offset=3 goes on]"]),
        (FIVE, (4, None), ["4\tl4", "5\tl5"]),
        (FIVE, (2, 1), ["2\tl2", "[lines 2 to 2 of 5; offset=3 goes on]"]),
        (FIVE, (5, 10), ["5\tl5"]),
        (LATIN, (), ["1\tcaf\N{REPLACEMENT CHARACTER}"]),
        (b"", (), ["[the file is empty]"]),
        (b"GIF89a is a format", (), ["1\tGIF89a is a format"]),  # no provider would take it for a picture
        (b"RIFF", (), ["1\tRIFF"]),
        (b"PNG", (), ["1\tPNG"]),
    ],
)
def test_read_numbers_the_lines_of_any_text(
    data: bytes, part: tuple[int | None, ...], expected: list[str], context: Context
) -> None:
    # Lines end at newlines only, with or without carriage return; the last may have none.
    (context.cwd / "a.gif").write_bytes(data)
    assert [line.strip(" ") for line in str(read(context, "a.gif", *part)).split("\n")] == expected
    if expected[0][0] == "1":
        assert str(read(context, "a.gif")).startswith("     1\t")


@pytest.mark.parametrize(
    ("room", "shown", "end"),
    [
        (None, 300, "   300\tx300"),
        (3_492, 300, "   300\tx300"),  # all of it, a newline too many counted in
        (3_491, 291, "\n[lines 1 to 291 of 300; offset=292 goes on]"),
        (1_000, 82, "\n[lines 1 to 82 of 300; offset=83 goes on]"),
        (50, 1, "\n[lines 1 to 1 of 300; offset=2 goes on]"),
    ],
)
def test_read_returns_no_more_than_the_conversation_holds(
    room: int | None, shown: int, end: str, context: Context
) -> None:
    # A file is read on by lines; what is cut because it is too long can only be read on by characters.
    (context.cwd / "a.txt").write_text("".join(f"x{number}\n" for number in range(1, 301)))
    text = str(read(attrs.evolve(context, result_limit=room), "a.txt"))
    assert text.endswith(end)
    assert room is None or len(text) <= max(room, 60)
    assert len([line for line in text.splitlines() if "\t" in line]) == shown
    # One line at least is shown; one that is longer than the conversation holds is cut there.
    (context.cwd / "b.txt").write_text("x" * 5_000 + "\nshort\n")
    long = str(read(attrs.evolve(context, result_limit=1_000), "b.txt"))
    assert long == "     1\t" + "x" * 5_000 + "\n[lines 1 to 1 of 2; offset=2 goes on]"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a\1\0\1\0", "image/gif"),
        (b"GIF87a\1\0\1\0", "image/gif"),
        (b"RIFF\x1a\0\0\0WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7\nall text", "application/pdf"),
    ],
)
def test_read_knows_pictures_by_content(data: bytes, media_type: str, context: Context) -> None:
    (context.cwd / "some.txt").write_bytes(data)
    assert read(context, "some.txt") == Binary(media_type=media_type, data=data, name="some.txt")


def test_read_says_what_it_cannot_read(context: Context) -> None:
    (context.cwd / "binary").write_bytes(b"RIFF\0\0\0\0WAVE")
    (context.cwd / "short").write_text("x\n")
    os.mkfifo(context.cwd / "pipe")
    problems = {
        ".": "Is a directory: '.'",
        "nowhere/at/all": "No such file or directory: 'nowhere/at/all'",
        "short/x": "Not a directory: 'short/x'",
        "binary": r"'binary' is a binary file \(12 bytes\)",
        "pipe": "'pipe' is not a regular file",
    }
    for path, problem in problems.items():
        with pytest.raises((ValueError, OSError), match=problem):
            read(context, path)
    with pytest.raises(ValueError, match="there is no line 3: the file has 1"):
        read(context, "short", 3)


def test_write_makes_and_replaces_and_keeps_the_mode(context: Context) -> None:
    for _ in range(2):  # twice is as good as once; nothing else is left behind
        assert write(context, "new/dir/a.txt", "hällo\n") == "wrote 7 bytes to new/dir/a.txt"
    assert (context.cwd / "new/dir/a.txt").read_bytes() == b"h\xc3\xa4llo\n"
    assert names(context.cwd / "new/dir") == ["a.txt"]
    (context.cwd / "run.sh").write_text("")
    (context.cwd / "run.sh").chmod(0o750)
    write(context, "run.sh", "true")
    write(context, "new.txt", "")
    (context.cwd / "like.txt").touch()
    assert stat.S_IMODE((context.cwd / "run.sh").stat().st_mode) == 0o750
    assert (context.cwd / "new.txt").stat().st_mode == (context.cwd / "like.txt").stat().st_mode


def test_write_is_all_or_nothing(context: Context) -> None:
    (context.cwd / "a.txt").write_text("before")
    (context.cwd / "dir").mkdir()
    with pytest.raises(UnicodeEncodeError):
        write(context, "a.txt", "\ud83d")
    for path in ("dir", "."):
        with pytest.raises(ValueError, match=rf"'{path}' is not a regular file"):
            write(context, path, "x")
    if os.geteuid() != 0:  # root may write everything; to replace a file would get around its mode
        (context.cwd / "a.txt").chmod(0o444)
        with pytest.raises(ValueError, match=r"'a\.txt' is read-only"):
            write(context, "a.txt", "x")
    assert (context.cwd / "a.txt").read_text() == "before"
    assert names(context.cwd) == ["a.txt", "dir"]


def test_what_is_written_is_on_the_disk_before_it_has_its_name(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between the two would leave an empty file in the place of the old one."""
    synced: list[tuple[bytes, str]] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}")
        synced.append((path.read_bytes(), (context.cwd / "a.txt").read_text()))

    (context.cwd / "a.txt").write_text("before")
    monkeypatch.setattr(os, "fsync", fsync)
    write(context, "a.txt", "after")
    assert synced == [(b"after", "before")]


@pytest.mark.parametrize(
    ("before", "edits", "after"),
    [
        ("a b c", ("b", "x"), "a x c"),
        ("a a", ("a", "x", True), "x x"),
        ("a\r\nb\r\nc\r\n", ("a\nb\n", "x\ny\n"), "x\r\ny\r\nc\r\n"),
        ("a\r\nb\n", ("b\n", "x\n"), "a\r\nx\n"),
        ("\ufeffa", ("a", "x"), "\ufeffx"),
        ("a", ("a", ""), ""),
    ],
)
def test_edit_replaces_exactly(before: str, edits: tuple[Any, ...], after: str, context: Context) -> None:
    (context.cwd / "a.txt").write_bytes(before.encode())
    edit(context, "a.txt", *edits)
    assert (context.cwd / "a.txt").read_bytes() == after.encode()


@pytest.mark.parametrize(
    ("before", "old", "problem"),
    [
        (b"a a", "a", "old occurs 2 times in 'a.txt'"),
        (b"aaa", "aa", "old occurs 2 times in 'a.txt'"),
        (b"a", "b", "old does not occur in 'a.txt'"),
        (b"a", "", "old is empty"),
        (b"caf\xe9", "caf", r"not UTF-8 text \(byte 3\)"),
    ],
)
def test_edit_refuses_doubt(before: bytes, old: str, problem: str, context: Context) -> None:
    (context.cwd / "a.txt").write_bytes(before)
    with pytest.raises(ValueError, match=problem):
        edit(context, "a.txt", old, "x")
    assert (context.cwd / "a.txt").read_bytes() == before
    with pytest.raises(FileNotFoundError, match=r"'new/a\.txt'"):
        edit(context, "new/a.txt", "a", "b")
    assert names(context.cwd) == ["a.txt"]


def test_edit_says_how_much_it_replaced(context: Context) -> None:
    (context.cwd / "a.txt").write_text("a b b")
    assert edit(context, "a.txt", "a", "x") == "replaced 1 occurrence in a.txt"
    assert edit(context, "a.txt", "b", "y", True) == "replaced 2 occurrences in a.txt"  # noqa: FBT003  # all


def test_a_file_stays_as_small_as_it_may_be(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "MAX_EDITED", 8)
    path = context.cwd / "a.txt"
    path.write_text("a" * 9)
    with pytest.raises(ValueError, match=r"'a\.txt' has more than 8 bytes; take parts of it with bash"):
        read(context, "a.txt")
    path.write_text("aaaa")
    with pytest.raises(ValueError, match="would have 12 characters, and may have 8; left as it is"):
        edit(context, "a.txt", "a", "bbb", True)  # noqa: FBT003  # all
    edit(context, "a.txt", "a", "bb", True)  # noqa: FBT003  # all
    assert path.read_text() == "b" * 8
    edit(context, "a.txt", "b", "", True)  # noqa: FBT003  # all
    assert path.read_text() == ""


def test_a_file_changed_meanwhile_is_not_overwritten(context: Context) -> None:
    (context.cwd / "a.txt").write_text("ours")
    place = paths.locate(context, "a.txt")
    _, seen = load(place)
    (context.cwd / "a.txt").write_text("theirs!")
    with pytest.raises(ValueError, match="changed by another process"):
        store(place, b"edited", seen)
    assert (context.cwd / "a.txt").read_text() == "theirs!"
    assert names(context.cwd) == ["a.txt"]


# Looking around


@pytest.mark.parametrize(
    "denied", ["sub/secret.txt", "./sub/secret.txt", "{home}/sub/secret.txt", "link/secret.txt"]
)
@pytest.mark.parametrize("within", ["sub", "link", "../home/sub"])
async def test_what_a_rule_denies_to_read_is_shown_by_no_search(
    denied: str, within: str, context: Context
) -> None:
    (context.cwd / "sub").mkdir()
    (context.cwd / "link").symlink_to("sub")
    for name in ("plain.txt", "secret.txt"):
        (context.cwd / "sub" / name).write_text("a hit")
    rule = Rule(verdict=Verdict.DENY, tool="read", where=(("path", denied.format(home=context.cwd)),))
    ruled = attrs.evolve(context, config=Config(model=ModelSpec(name="own:m"), rules=(rule,)))
    left_out = "\n[left out: 1 denied by a rule]"
    assert ls(ruled, within) == f"plain.txt{left_out}"
    assert await glob(ruled, "*.txt", within) == f"sub/plain.txt{left_out}"
    assert await grep(ruled, "hit", within) == f"sub/plain.txt:1: a hit{left_out}"
    assert await grep(ruled, "hit", f"{within}/plain.txt") == "sub/plain.txt:1: a hit"
    assert await grep(ruled, "hit", f"{within}/secret.txt") == "[left out: 1 denied by a rule]"


@pytest.fixture
def tree(home: Path, secret: Path) -> Path:
    """A small project, with what is skipped and with links out of it."""
    skipped = (".git/c.py", "node_modules/m/z.py", ".hidden/h.py")
    for path in ("b.py", "a.txt", "src/x.py", "src/deep/y.py", *skipped):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(f"here: {path}\nnot this\n")
    (home / "out").symlink_to(secret.parent)
    (home / "out.txt").symlink_to(secret)
    return home


def test_ls_lists_one_directory_in_order(tree: Path, context: Context) -> None:
    assert ls(context) == ".git/\n.hidden/\na.txt\nb.py\nnode_modules/\nout.txt@\nout@\nsrc/"
    assert ls(context, "src") == "deep/\nx.py"
    (tree / "empty").mkdir()
    assert ls(context, "empty") == "[the directory is empty]"


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", ".", [".hidden/h.py", "b.py", "src/deep/y.py", "src/x.py"]),
        ("./*.py", ".", ["b.py"]),
        ("src/*.py", ".", ["src/x.py"]),
        ("src/**/*.py", ".", ["src/deep/y.py", "src/x.py"]),
        ("**/deep/*", ".", ["src/deep/y.py"]),
        ("*.{txt,md}", ".", ["a.txt", "out.txt"]),
        ("*.py", "src", ["src/deep/y.py", "src/x.py"]),
        ("*.py", ".git", [".git/c.py"]),
        ("*.rs", ".", ["[no file matches]"]),
        ("*", "a.txt", ["a.txt"]),
    ],
)
async def test_glob_finds_by_name(pattern: str, path: str, expected: list[str], context: Context) -> None:
    # Skipped directories are skipped unless asked for, links are listed and not followed.
    assert sorted((await glob(context, pattern, path)).split("\n")) == expected


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("pattern", "path", "named", "expected"),
    [
        ("here: .*[xy].py", ".", None, "src/x.py:1: here: src/x.py\nsrc/deep/y.py:1: here: src/deep/y.py"),
        ("^not", "src", "x.*", "src/x.py:2: not this"),
        ("here", "b.py", None, "b.py:1: here: b.py"),
        ("here", "src/deep/y.py", None, "src/deep/y.py:1: here: src/deep/y.py"),
        ("do not tell", ".", None, "[no line matches]"),
        ("here", ".", "*.rs", "[no line matches]"),
    ],
)
async def test_grep_finds_lines(
    pattern: str, path: str, named: str | None, expected: str, context: Context
) -> None:
    # With path and number; a directory's own files come before those below, and links are not followed.
    assert await grep(context, pattern, path, named) == expected


async def test_grep_counts_what_it_leaves_out(context: Context) -> None:
    (context.cwd / "many.txt").write_text("hit")
    (context.cwd / "binary").write_bytes(b"hit\0")
    (context.cwd / "huge").write_bytes(b"hit\n" * 1_300_000)
    os.mkfifo(context.cwd / "pipe")
    assert await grep(context, "hit") == "many.txt:1: hit\n[left out: 1 binary, 1 over 5 MB]"


@pytest.mark.usefixtures("tree")
async def test_a_search_that_cannot_be_is_refused(context: Context, secret: Path) -> None:
    for pattern in (f"{secret.parent}/*", "../outside/*"):
        for search in (glob(context, pattern), grep(context, "tell", ".", pattern)):
            with pytest.raises(ValueError, match="leads out of the searched directory"):
                await search
    with pytest.raises(ValueError, match=r"'\(' is not a regular expression of Python's: missing \)"):
        await grep(context, "(")
    with pytest.raises(FileNotFoundError, match="'nowhere'"):
        await grep(context, "a", "nowhere")


ODD = ("line\nend", "\x1b[31m", "\u202etxt", "tag\U000e0041", "caf\udce9", "back\\slash", "\u2028\\")


@pytest.mark.parametrize("name", ODD)
async def test_a_name_that_does_not_print_is_shown_with_escapes_and_found_by_them(
    name: str, context: Context
) -> None:
    """On one line each, wherever it is listed; what is listed can be read, edited and written."""
    folder = context.cwd / f"in {name}"
    folder.mkdir()
    (folder / f"{name}.txt").write_text("a hit")
    listed = await glob(context, "*.txt")
    (shown,) = ls(context).split("\n")
    (inside,) = ls(context, shown).split("\n")
    assert listed == f"{shown}{inside}"
    assert listed.isprintable()
    assert await grep(context, "hit") == f"{listed}:1: a hit"
    assert await grep(context, "hit", listed) == f"{listed}:1: a hit"
    assert read(context, listed) == "     1\ta hit"
    edit(context, listed, "a hit", "another")
    assert "\n" not in write(context, listed, "the end")
    assert [path.read_text() for path in folder.iterdir()] == ["the end"]


def test_an_escape_of_what_prints_is_no_other_spelling(context: Context) -> None:
    """A rule that denies a path by its text would be passed by it."""
    (context.cwd / ".env").write_text("do not tell")
    with pytest.raises(FileNotFoundError):
        read(context, "\\u002eenv")
    (context.cwd / "a\nb").write_text("of two lines")
    (context.cwd / "a\\nb").write_text("as it is written")
    assert read(context, "a\\nb") == "     1\tas it is written"


async def test_the_order_of_a_search_is_no_argument_of_a_process(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user of the machine can list those, and a secret may have been put back into it."""
    told = list[str]()

    async def seen(command: tuple[str, ...], **given: Any) -> Any:
        told.extend(command)
        return await run(command, **given)

    monkeypatch.setattr(builtin, "run", seen)
    (context.cwd / "a.txt").write_text("hunter2")
    assert await grep(context, "hunter2", ".", "a.{txt,secret}") == "a.txt:1: hunter2"
    assert [word for word in told if "hunter2" in word or "secret" in word] == []


@pytest.fixture
def deep(context: Context) -> Iterator[Context]:
    """A folder with 1,500 folders, one in the other."""
    here = os.open(context.cwd, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        above, here = here, os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(here)
    yield context
    # pytest's own way of removing what a test leaves goes down folder by folder, and too deep.
    subprocess.run(["rm", "-rf", str(context.cwd / "d")], check=True)


async def test_a_deep_tree_is_searched_to_a_depth_and_the_rest_is_counted(deep: Context) -> None:
    (deep.cwd / "d/d/a.txt").write_text("hit")
    assert await glob(deep, "*.txt") == "d/d/a.txt\n[left out: 1 too deep]"
    assert await grep(deep, "hit") == "d/d/a.txt:1: hit\n[left out: 1 too deep]"
    assert await glob(deep, "*", "d/" * 1_450) == "[no file matches]"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("[!", None),
        ("x{1000000000}", "[no line matches]"),
        ("x{9999999999}", None),
        ("\0", "[no line matches]"),
        ("\ud800", "[no line matches]"),
        ("[[h]", "a.txt:1: hit"),  # of which Python warns
        ("(" * 900, None),
        ("h" * 300_000, None),
        ("*h" * 400, None),
    ],
    # pytest puts the name of the test into the environment of the programs that it starts.
    ids=lambda value: str(value)[:12].encode("unicode_escape").decode(),
)
async def test_any_pattern_is_searched_for_or_refused_in_words(
    pattern: str, found: str | None, context: Context
) -> None:
    (context.cwd / "a.txt").write_text("hit")
    if found is not None:
        assert await grep(context, pattern) == found
    else:
        with pytest.raises(ValueError, match=r"is not a regular expression|the pattern has") as refused:
            await grep(context, pattern)
        assert "Traceback" not in str(refused.value)
    if len(pattern) > MAX_PATTERN:
        with pytest.raises(ValueError, match="the pattern has 300,000 characters, and may have 1,000"):
            await glob(context, pattern)
    else:
        assert await glob(context, pattern) == "[no file matches]"


async def test_a_search_that_is_killed_says_that_it_failed(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: Any, **__: Any) -> ProcessEnd:
        return ProcessEnd("", -9, "Traceback")

    monkeypatch.setattr(builtin, "run", killed)
    with pytest.raises(ValueError, match=r"^the search failed \(exit code -9\)$"):
        await grep(context, "a")


async def test_a_pattern_that_backtracks_for_ever_can_be_cancelled(context: Context) -> None:
    # The event loop goes on meanwhile, since the search has a process of its own.
    (context.cwd / "a.txt").write_text("a" * 60 + "!")
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(grep(context, "(a+)+$"), 0.3)


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b/c", "a/**/c", True),
        ("a/c", "a/**/c", True),
        ("a/b/c", "a/*/c", True),
        ("a/b/b/c", "a/*/c", False),
        ("a/b/c", "**", True),
        ("a/b", "a", False),
        ("a", "a/b", False),
        ("a/x/b/y/c", "**/x/**/c", True),
        ("a/x/b/y/d", "**/x/**/c", False),
        ("/".join("a" * 200), "**/a/" * 50 + "b", False),  # in bounded time
    ],
)
def test_globs_match_whole_paths(path: str, pattern: str, *, expected: bool) -> None:
    assert matches(path.split("/"), pattern.split("/")) is expected


def test_braces_are_choices() -> None:
    assert choices("x/{a,b{1,2}}.py") == ["x/a.py", "x/b1.py", "x/a.py", "x/b2.py"]
    with pytest.raises(ValueError, match="more than 6 braces"):
        choices("{a,b}" * 7)
    with pytest.raises(ValueError, match="stand for more than 1,000 patterns"):
        choices(f"{{{'a,' * 999}}}" * 6)


async def test_a_search_that_takes_too_long_shows_what_it_found(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: Any, **__: Any) -> ProcessEnd:
        return ProcessEnd("a.txt:1: hit\n", None)

    monkeypatch.setattr(builtin, "run", slow)
    assert await grep(context, "hit") == "a.txt:1: hit\n[stopped after 20 s; narrow the search]"


def test_a_file_that_its_owner_made_read_only_is_left_as_it_is(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    (context.cwd / "a.txt").write_text("as it was")
    # The superuser may write any file.
    monkeypatch.setattr(os, "access", lambda _name, mode, **_: mode != os.W_OK)
    with pytest.raises(ValueError, match=r"'a\.txt' is read-only"):
        write(context, "a.txt", "other")
    assert (names(context.cwd), (context.cwd / "a.txt").read_text()) == (["a.txt"], "as it was")
    write(context, "new.txt", "made")
    assert (context.cwd / "new.txt").read_text() == "made"


# Commands


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo out; echo err >&2", "out\nerr\n[exit code 0]"),
        ("printf no-newline; exit 3", "no-newline\n[exit code 3]"),
        ("true", "[exit code 0]"),
        ("cat", "[exit code 0]"),  # there is no input to wait for
        ("kill -9 $$", "[exit code -9, SIGKILL]"),
        (r"printf '\xff'", "\N{REPLACEMENT CHARACTER}\n[exit code 0]"),
        ("pwd", "{home}\n[exit code 0]"),
        ("-x 2>/dev/null; echo $?", "127\n[exit code 0]"),
        ("trap 'echo bye >&2; cat' EXIT; exit 2", "bye\n[exit code 2]"),
    ],
)
async def test_bash_reports_how_it_ended(command: str, expected: str, context: Context) -> None:
    assert await bash(context, command) == expected.format(home=context.cwd)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
async def test_no_process_has_the_command_among_its_arguments(context: Context, until: Any) -> None:
    long = "x" * 300_000
    command = f"echo $$ > pid; : {long}; until [ -e over ]; do sleep 0.01; done; echo done"
    task = asyncio.create_task(bash(context, command))
    await until(lambda: (context.cwd / "pid").is_file() and (context.cwd / "pid").read_text().strip())
    shell = Path("/proc", (context.cwd / "pid").read_text().strip())
    shown = [(shell / part).read_bytes() for part in ("cmdline", "environ")]
    (context.cwd / "over").touch()
    assert await task == "done\n[exit code 0]"
    assert [b"until" in text for text in shown] == [False, False]
    assert b"bash" in shown[0]


async def test_a_command_has_no_nul(context: Context) -> None:
    with pytest.raises(ValueError, match="got one behind 'echo a'"):
        await bash(context, "echo a\0b")


async def test_bash_reports_the_lines_of_a_long_command(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "REPORTS_AFTER", 0.0)
    monkeypatch.setattr(process, "REPORTS_EVERY", 0.0)
    os.mkfifo(tmp_path / "go")
    reports: list[str] = []

    def emit(text: str) -> None:
        # The command waits for this, so that the first report came while it ran.
        if not reports:
            (tmp_path / "go").write_text("go")
        reports.append(text)

    live = attrs.evolve(context, emit=emit)
    result = await bash(live, f"echo built; read <{tmp_path / 'go'}; echo tested")
    assert reports[0] == "built"
    assert result == "built\ntested\n[exit code 0]"


async def test_a_system_without_bash_has_another_shell(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert await bash(context, "echo $0") == "/bin/sh\n[exit code 0]"


async def test_bash_keeps_the_beginning_and_the_end_of_its_output(context: Context) -> None:
    # However much it says: of fifty megabytes, one.
    output = await bash(context, "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert output.startswith("first\n")
    assert output.endswith("x\nlast\n[exit code 0]")
    assert "bytes cut ...]" in output
    assert 900_000 < len(output) < 1_100_000


TWO_GENERATIONS = """
(trap '' TERM; while :; do sleep 0.1; done) & echo $! > stubborn
(sleep 1000 & echo $! > grandchild; wait) &
echo started
"""
WRITTEN = "until [ -s stubborn ] && [ -s grandchild ]; do sleep 0.01; done"


@pytest.mark.parametrize("how", ["too late", "cancelled", "over"])
async def test_a_command_takes_its_children_along(
    how: str, context: Context, alive: Callable[[int], bool], until: Any
) -> None:
    # Background processes too, even those deaf to SIGTERM: they would hold the output open.
    command = TWO_GENERATIONS + (WRITTEN if how == "over" else " wait")
    task = asyncio.create_task(bash(context, command, 1.0 if how == "too late" else 100.0))
    told = [context.cwd / "stubborn", context.cwd / "grandchild"]
    await until(lambda: all(path.is_file() and path.read_text().strip() for path in told))
    pids = [int(path.read_text()) for path in told]
    if how == "cancelled":
        assert [alive(pid) for pid in pids] == [True, True]
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        assert cancelled.value.args == (ProcessEnd("started\n", None),)
    elif how == "over":
        assert await task == "started\n[exit code 0]"
    else:
        with pytest.raises(TimeoutError, match=r"ended after 1 s; until then it said:\nstarted\n$"):
            await task
    await until(lambda: not any(alive(pid) for pid in pids))


async def test_a_process_that_left_its_group_is_not_waited_for(context: Context) -> None:
    # Though it holds the output open: what detaches on purpose lives on.
    output = await bash(context, "setsid sleep 1000 & echo $!", 5.0)
    pid = int(output.split()[0])
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 9)
    assert output == f"{pid}\n[exit code 0]"


async def test_a_command_whose_time_is_up_may_tidy_up(home: Path) -> None:
    command = "trap 'sleep 0.1; echo bye > tidy; exit' TERM; echo on; while true; do sleep 0.01; done"
    await run(("sh", "-c", command), cwd=home, seconds=0.2, keep=10)
    assert (home / "tidy").read_text() == "bye\n"


async def test_a_command_that_cannot_be_started_is_an_error(home: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run(("/no/such/program",), cwd=home, seconds=1.0, keep=10)
