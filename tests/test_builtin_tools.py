"""The built-in tools: what they do, and what they never do outside their directories."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel.effects.config import Config, ModelSpec, SideEffect
from turnwheel.effects.history import History
from turnwheel.effects.messages import Binary, Outcome
from turnwheel.effects.requests import RunTool
from turnwheel.performers import ToolContext, ToolRunner, builtin_tools
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.tools import builtin, paths
from turnwheel.performers.tools.builtin import bash, edit, glob, grep, ls, read, write
from turnwheel.performers.tools.process import run
from turnwheel.performers.tools.result import MAX_RESULT
from turnwheel.performers.tools.search import choices, matches

PATIENCE = 10.0
"""Seconds within which whatever a test waits for must have come."""

Context = ToolContext[object]

SCENE = PerformContext(
    session="s-1",
    run="r-1",
    config=Config(model=ModelSpec(name="openai:none")),
    history=History.of(),
    clock=SystemClock(),
    emit=lambda _: None,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The working directory of the tools."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def context(home: Path) -> Context:
    """A context whose only root is the working directory."""
    return ToolContext(cwd=home, deps=None)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside, in a directory of its own."""
    (tmp_path / "outside").mkdir()
    path = tmp_path / "outside" / "secret.txt"
    path.write_text("do not tell")
    return path


def test_the_builtin_tools_are_these_in_this_order() -> None:
    """Each with its honest side-effect class and a text for each of its parameters."""
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
    for tool in builtin_tools():
        names = tool.parameters.struct.__struct_fields__
        assert tool.spec.schema.count('"description"') == len(names)


def names(folder: Path) -> list[str]:
    """What is in *folder*, in order."""
    return sorted(path.name for path in folder.iterdir())


# Staying inside


def attempts(context: Context, path: str) -> list[Callable[[], Awaitable[object]]]:
    """Every way to touch *path*."""
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
async def test_no_way_leads_outside(path: str, context: Context, home: Path, secret: Path) -> None:
    """Neither absolute paths nor parents nor symlinks, and nothing out there is made or changed."""
    (home / "there").symlink_to(secret.parent)
    (home / "file").symlink_to(secret)
    (home / "dangling").symlink_to(secret.parent / "new.txt")
    (home.parent / "home2").mkdir()
    for attempt in attempts(context, path.format(outside=secret.parent, home=home.name)):
        with pytest.raises(ValueError, match="is outside of the directories open to tools"):
            await attempt()
    assert secret.read_text() == "do not tell"
    assert names(secret.parent) == ["secret.txt"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [("loop", "cannot be resolved"), ("a\0b", "cannot be resolved"), ("x" * 300, "too long")],
)
def test_a_path_that_is_none_is_an_error(path: str, problem: str, context: Context, home: Path) -> None:
    """It is explained, whatever the system makes of it."""
    (home / "loop").symlink_to("loop")
    with pytest.raises((ValueError, OSError), match=problem):
        read(context, path)


def test_symlinks_inside_are_followed(context: Context, home: Path) -> None:
    """A link to another place inside is that place; writing through it keeps it a link."""
    (home / "real").mkdir()
    (home / "link").symlink_to("real")
    (home / "name").symlink_to("real/file.txt")
    write(context, "link/file.txt", "a")
    write(context, "name", "b")
    assert (home / "real/file.txt").read_text() == "b"
    assert (home / "name").is_symlink()


def test_other_directories_can_be_opened(context: Context, secret: Path) -> None:
    """A path in one of them is shown in full, as the model has to write it."""
    wider = attrs.evolve(context, directories=(context.cwd, secret.parent))
    assert read(wider, str(secret)) == "     1\tdo not tell"
    assert write(wider, "../outside/new.txt", "x") == f"wrote 1 bytes to {secret.parent}/new.txt"


def test_a_symlink_put_in_the_way_after_the_check_is_not_followed(
    context: Context, home: Path, secret: Path
) -> None:
    """Between the check and the use anybody may exchange a directory; what is opened is what was checked."""
    (home / "sub").mkdir()
    (home / "sub" / "secret.txt").write_text("harmless")
    place = paths.locate(context, "sub/secret.txt")
    (home / "sub").rename(home / "moved")
    (home / "sub").symlink_to(secret.parent)
    with pytest.raises(OSError, match=r"sub/secret\.txt"), place.parent():
        pass


def test_a_file_exchanged_for_a_symlink_after_the_check_is_not_followed(
    context: Context, home: Path, secret: Path
) -> None:
    """Nor is one written through it."""
    (home / "a.txt").write_text("harmless")
    place = paths.locate(context, "a.txt")
    (home / "a.txt").unlink()
    (home / "a.txt").symlink_to(secret)
    with pytest.raises(OSError, match=r"a\.txt"):
        place.read(100)
    with pytest.raises(ValueError, match=r"'a\.txt' is not a regular file"):
        builtin.store(place, b"x")
    assert secret.read_text() == "do not tell"


@pytest.fixture
def elsewhere(tmp_path: Path) -> tuple[Path, Path]:
    """Two more directories, side by side."""
    found = (tmp_path / "first", tmp_path / "second")
    for folder in found:
        folder.mkdir()
    return found


@pytest.mark.parametrize(
    "written", ["{root}/dir/a.txt", "../{name}/dir/a.txt", "{root}/../{name}/./dir/a.txt"]
)
async def test_every_directory_is_open_to_every_file_tool(
    written: str, home: Path, elsewhere: tuple[Path, Path], secret: Path
) -> None:
    """A runner's working directory and each of the others, however the path is written; nothing else."""
    told: list[str] = []
    runner = ToolRunner(builtin_tools(), cwd=home, directories=elsewhere)

    async def call(tool: str, **arguments: object) -> Outcome:
        request = RunTool(id="1", call="1", tool=tool, arguments=json.dumps(arguments), timeout=PATIENCE)
        answer = await runner(request, SCENE)
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
    found = [text for text in told if text.endswith("a.txt:1: new")]
    assert len(found) == 3
    outside = written.format(root=secret.parent, name=secret.parent.name)
    assert await outcomes(outside) == {Outcome.ERROR}
    assert names(secret.parent) == ["secret.txt"]


async def test_a_link_from_one_directory_to_another_is_followed(
    home: Path, elsewhere: tuple[Path, Path]
) -> None:
    """Both are open; the path is shown as what it is."""
    (home / "link").symlink_to(elsewhere[0])
    wider = ToolContext(cwd=home, deps=None, directories=(home, *elsewhere))
    assert write(wider, "link/a.txt", "x") == f"wrote 1 bytes to {elsewhere[0]}/a.txt"


def test_a_directory_in_another_may_not_be_exchanged(home: Path, secret: Path) -> None:
    """A tool that can rename and link in the outer one must not move the inner one to where it likes."""
    inner = home / "data" / "inner"
    inner.mkdir(parents=True)
    (inner / "secret.txt").write_text("harmless")
    wider = ToolContext(cwd=home, deps=None, directories=(home, inner))
    place = paths.locate(wider, "data/inner/secret.txt")
    (home / "data").rename(home / "moved")
    (home / "data").symlink_to(secret.parent.parent)
    (secret.parent).rename(secret.parent.with_name("inner"))
    with pytest.raises(OSError, match=r"data/inner/secret\.txt"):
        place.read(100)
    for path in ("data/inner/secret.txt", str(inner / "secret.txt")):
        with pytest.raises(ValueError, match="is outside of the directories"):
            read(wider, path)


def test_a_directory_exchanged_for_a_link_is_no_way_out(home: Path, tmp_path: Path, secret: Path) -> None:
    """Directories are resolved when the runner is made, and not again."""
    (tmp_path / "open").mkdir()
    wider = ToolContext(cwd=home, deps=None, directories=(home, tmp_path / "open"))
    (tmp_path / "open").rmdir()
    (tmp_path / "open").symlink_to(secret.parent)
    with pytest.raises(ValueError, match="is outside of the directories"):
        read(wider, "../open/secret.txt")


def test_a_relative_working_directory_will_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a test of a tool, which makes its context by hand."""
    monkeypatch.chdir(home)
    here: Context = ToolContext(cwd=Path(), deps=None)
    assert write(here, "a.txt", "x") == "wrote 1 bytes to a.txt"
    with pytest.raises(ValueError, match="is outside of the directories"):
        read(here, "../outside/secret.txt")


# One file


def test_read_numbers_the_lines(context: Context, home: Path) -> None:
    """Lines end at newlines only, with or without carriage return; the last may have none."""
    (home / "a.txt").write_bytes(b"one\r\ntwo\x0bstill two\n\nfour")
    expected = "     1\tone\n     2\ttwo\x0bstill two\n     3\t\n     4\tfour"
    assert read(context, "a.txt") == expected


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (None, 2, "     1\tl1\n     2\tl2\n[lines 1 to 2 of 5; offset=3 goes on]"),
        (4, None, "     4\tl4\n     5\tl5"),
        (2, 1, "     2\tl2\n[lines 2 to 2 of 5; offset=3 goes on]"),
        (5, 10, "     5\tl5"),
    ],
)
def test_read_takes_a_part(
    offset: int | None, limit: int | None, expected: str, context: Context, home: Path
) -> None:
    """What is not shown is said, and how to go on."""
    (home / "a.txt").write_text("l1\nl2\nl3\nl4\nl5\n")
    assert read(context, "a.txt", offset, limit) == expected


def test_read_stops_after_two_thousand_lines(context: Context, home: Path) -> None:
    """A long file comes in parts."""
    (home / "a.txt").write_text("x\n" * 2_001)
    assert str(read(context, "a.txt")).endswith("[lines 1 to 2000 of 2,001; offset=2001 goes on]")


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
    room: int | None, shown: int, end: str, context: Context, home: Path
) -> None:
    """A file is read on by lines; what is cut because it is too long can only be read on by characters."""
    (home / "a.txt").write_text("".join(f"x{number}\n" for number in range(1, 301)))
    text = str(read(attrs.evolve(context, result_limit=room), "a.txt"))
    assert text.endswith(end)
    assert room is None or len(text) <= max(room, 60)
    assert len([line for line in text.splitlines() if "\t" in line]) == shown


def test_read_shows_one_line_at_least(context: Context, home: Path) -> None:
    """One that is longer than the conversation holds is cut there, where it can be read on."""
    (home / "a.txt").write_text("x" * 5_000 + "\nshort\n")
    text = str(read(attrs.evolve(context, result_limit=1_000), "a.txt"))
    assert text == "     1\t" + "x" * 5_000 + "\n[lines 1 to 1 of 2; offset=2 goes on]"


def test_read_takes_any_text(context: Context, home: Path) -> None:
    """What is not UTF-8 is replaced, and an empty file is said to be empty."""
    (home / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (home / "empty.txt").touch()
    assert read(context, "latin.txt") == "     1\tcaf\N{REPLACEMENT CHARACTER}"
    assert read(context, "empty.txt") == "[the file is empty]"


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
def test_read_shows_what_is_seen_and_not_read(
    data: bytes, media_type: str, context: Context, home: Path
) -> None:
    """By its content and not by its name."""
    (home / "some.txt").write_bytes(data)
    assert read(context, "some.txt") == Binary(media_type=media_type, data=data, name="some.txt")


@pytest.mark.parametrize("text", ["GIF89a is a format", "RIFF", "PNG"])
def test_a_text_about_pictures_is_a_text(text: str, context: Context, home: Path) -> None:
    """No provider would take it for one."""
    (home / "a.gif").write_text(text)
    assert read(context, "a.gif") == f"     1\t{text}"


def test_read_says_what_it_cannot_read(context: Context, home: Path) -> None:
    """Directories, missing, binary, huge and special files, and lines that are not there."""
    (home / "binary").write_bytes(b"RIFF\0\0\0\0WAVE")
    (home / "short").write_text("x\n")
    with (home / "huge").open("wb") as file:
        file.truncate(builtin.MAX_EDITED + 1)
    os.mkfifo(home / "pipe")
    problems = {
        ".": "Is a directory: '.'",
        "nowhere/at/all": "No such file or directory: 'nowhere/at/all'",
        "short/x": "Not a directory: 'short/x'",
        "binary": r"'binary' is a binary file \(12 bytes\)",
        "huge": "'huge' has more than 10,000,000 bytes",
        "pipe": "'pipe' is not a regular file",
    }
    for path, problem in problems.items():
        with pytest.raises((ValueError, OSError), match=problem):
            read(context, path)
    with pytest.raises(ValueError, match="there is no line 3: the file has 1"):
        read(context, "short", 3)


def test_write_makes_and_replaces(context: Context, home: Path) -> None:
    """Missing directories are made; twice is as good as once; nothing else is left behind."""
    for _ in range(2):
        assert write(context, "new/dir/a.txt", "hällo\n") == "wrote 7 bytes to new/dir/a.txt"
    assert (home / "new/dir/a.txt").read_bytes() == b"h\xc3\xa4llo\n"
    assert names(home / "new/dir") == ["a.txt"]


def test_write_keeps_the_mode(context: Context, home: Path) -> None:
    """A script stays executable; a new file has the mode any new file has."""
    (home / "run.sh").write_text("")
    (home / "run.sh").chmod(0o750)
    write(context, "run.sh", "true")
    write(context, "new.txt", "")
    (home / "like.txt").touch()
    assert stat.S_IMODE((home / "run.sh").stat().st_mode) == 0o750
    assert (home / "new.txt").stat().st_mode == (home / "like.txt").stat().st_mode


def test_write_is_all_or_nothing(context: Context, home: Path) -> None:
    """A text that cannot be encoded, or a directory in the way, changes and leaves nothing."""
    (home / "a.txt").write_text("before")
    (home / "dir").mkdir()
    with pytest.raises(UnicodeEncodeError):
        write(context, "a.txt", "\ud83d")
    with pytest.raises(ValueError, match="'dir' is not a regular file"):
        write(context, "dir", "x")
    with pytest.raises(ValueError, match=r"'\.' is not a regular file"):
        write(context, ".", "x")
    assert (home / "a.txt").read_text() == "before"
    assert names(home) == ["a.txt", "dir"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_write_leaves_read_only_files(context: Context, home: Path) -> None:
    """Replacing a file would get around its mode."""
    (home / "a.txt").write_text("before")
    (home / "a.txt").chmod(0o444)
    with pytest.raises(ValueError, match=r"'a\.txt' is read-only"):
        write(context, "a.txt", "x")


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
def test_edit_replaces_exactly(
    before: str, edits: tuple[Any, ...], after: str, context: Context, home: Path
) -> None:
    """Nothing but the text itself changes; lines keep their ends."""
    (home / "a.txt").write_bytes(before.encode())
    edit(context, "a.txt", *edits)
    assert (home / "a.txt").read_bytes() == after.encode()


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
def test_edit_refuses_what_is_not_clear(
    before: bytes, old: str, problem: str, context: Context, home: Path
) -> None:
    """The file stays as it is."""
    (home / "a.txt").write_bytes(before)
    with pytest.raises(ValueError, match=problem):
        edit(context, "a.txt", old, "x")
    assert (home / "a.txt").read_bytes() == before


def test_edit_does_not_make_files(context: Context, home: Path) -> None:
    """There is nothing to replace, nor a directory to make."""
    with pytest.raises(FileNotFoundError, match=r"'new/a\.txt'"):
        edit(context, "new/a.txt", "a", "b")
    assert names(home) == []


def test_a_file_changed_meanwhile_is_not_overwritten(context: Context, home: Path) -> None:
    """What somebody else wrote between our reading and our writing is kept."""
    (home / "a.txt").write_text("ours")
    place = paths.locate(context, "a.txt")
    _, seen = builtin.load(place)
    (home / "a.txt").write_text("theirs!")
    with pytest.raises(ValueError, match="changed by another process"):
        builtin.store(place, b"edited", seen)
    assert (home / "a.txt").read_text() == "theirs!"
    assert names(home) == ["a.txt"]


# Looking around


@pytest.fixture
def tree(home: Path, secret: Path) -> Path:
    """A small project, with what is skipped and with links out of it."""
    for path in (
        "b.py",
        "a.txt",
        "src/x.py",
        "src/deep/y.py",
        ".git/c.py",
        "node_modules/m/z.py",
        ".hidden/h.py",
    ):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(f"here: {path}\nnot this\n")
    (home / "out").symlink_to(secret.parent)
    (home / "out.txt").symlink_to(secret)
    return home


@pytest.mark.usefixtures("tree")
def test_ls_lists_one_directory_in_order(context: Context) -> None:
    """Directories and links are marked, and nothing is left out."""
    assert ls(context) == ".git/\n.hidden/\na.txt\nb.py\nnode_modules/\nout.txt@\nout@\nsrc/"
    assert ls(context, "src") == "deep/\nx.py"


def test_ls_is_bounded(context: Context, home: Path) -> None:
    """How many more there are is said; an empty directory is said to be empty."""
    assert ls(context) == "[the directory is empty]"
    for number in range(builtin.MAX_ENTRIES + 5):
        (home / f"{number}").touch()
    lines = ls(context).split("\n")
    assert (len(lines), lines[-1]) == (builtin.MAX_ENTRIES + 1, "[5 more]")


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
async def test_glob_finds_files_by_name(
    pattern: str, path: str, expected: list[str], context: Context
) -> None:
    """Skipped directories are skipped unless asked for, links are listed and not followed."""
    assert sorted((await glob(context, pattern, path)).split("\n")) == expected


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("search", [glob, grep])
async def test_a_search_that_leads_out_is_refused(
    search: Callable[..., Awaitable[str]], context: Context, secret: Path
) -> None:
    """A pattern is relative to the searched directory and stays below it."""
    for pattern in (f"{secret.parent}/*", "../outside/*"):
        with pytest.raises(ValueError, match="leads out of the searched directory"):
            await (search(context, pattern) if search is glob else search(context, "tell", ".", pattern))


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("pattern", "path", "names", "expected"),
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
    pattern: str, path: str, names: str | None, expected: str, context: Context
) -> None:
    """With path and number; a directory's own files come before those below, and links are not followed."""
    assert await grep(context, pattern, path, names) == expected


async def test_grep_is_bounded(context: Context, home: Path) -> None:
    """Hits, lines and files are: what is left out is counted."""
    (home / "many.txt").write_text("hit\n" * (builtin.MAX_HITS + 1))
    lines = (await grep(context, "hit")).split("\n")
    assert (len(lines), lines[-1]) == (builtin.MAX_HITS + 1, "[stopped after 500; narrow the search]")
    (home / "many.txt").write_text("hit" + "x" * 10_000)
    (home / "binary").write_bytes(b"hit\0")
    (home / "huge").write_bytes(b"hit\n" * 1_300_000)
    os.mkfifo(home / "pipe")
    expected = f"many.txt:1: hit{'x' * 497}...\n[left out: 1 binary, 1 over 5 MB]"
    assert await grep(context, "hit") == expected


async def test_grep_refuses_a_pattern_that_is_none(context: Context, home: Path) -> None:
    """The model is told what is wrong with it."""
    (home / "a.txt").touch()
    with pytest.raises(ValueError, match=r"'\(' is not a regular expression of Python's: missing \)"):
        await grep(context, "(")
    with pytest.raises(FileNotFoundError, match="'nowhere'"):
        await grep(context, "a", "nowhere")


async def test_a_pattern_that_backtracks_for_ever_can_be_cancelled(context: Context, home: Path) -> None:
    """The event loop goes on meanwhile, since the search has a process of its own."""
    (home / "a.txt").write_text("a" * 60 + "!")
    before = time.monotonic()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(grep(context, "(a+)+$"), 0.3)
    assert time.monotonic() - before < PATIENCE


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
        ("/".join("a" * 200), "**/a/" * 50 + "b", False),
    ],
)
def test_globs_match_whole_paths(path: str, pattern: str, *, expected: bool) -> None:
    """A star stays within a part, two stars take any number of them, in bounded time."""
    assert matches(path.split("/"), pattern.split("/")) is expected


def test_braces_are_choices() -> None:
    """Each choice is a pattern of its own, nested ones too, up to a bound."""
    assert choices("x/{a,b{1,2}}.py") == ["x/a.py", "x/b1.py", "x/a.py", "x/b2.py"]
    with pytest.raises(ValueError, match="more than 6 braces"):
        choices("{a,b}" * 7)


# Commands


def is_alive(pid: int) -> bool:
    """Whether the process *pid* runs; one that is dead and not yet buried does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    return False


async def until(condition: Callable[[], bool]) -> bool:
    """Whether *condition* came true in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def died(pid: int) -> bool:
    """Whether the process *pid* is dead in time."""
    return await until(lambda: not is_alive(pid))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo out; echo err >&2", "out\nerr\n[exit code 0]"),
        ("printf no-newline; exit 3", "no-newline\n[exit code 3]"),
        ("true", "[exit code 0]"),
        ("cat", "[exit code 0]"),
        ("kill -9 $$", "[exit code -9, SIGKILL]"),
        (r"printf '\xff'", "\N{REPLACEMENT CHARACTER}\n[exit code 0]"),
    ],
)
async def test_bash_reports_output_and_exit_code(command: str, expected: str, context: Context) -> None:
    """Both streams are one, and there is no input to wait for."""
    assert await bash(context, command) == expected


async def test_bash_runs_in_the_working_directory(context: Context, home: Path) -> None:
    """Where the file tools are, too."""
    assert await bash(context, "pwd") == f"{home}\n[exit code 0]"


async def test_bash_keeps_the_beginning_and_the_end_of_its_output(context: Context) -> None:
    """However much it says: of fifty megabytes, one."""
    output = await bash(context, "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert output.startswith("first\n")
    assert output.endswith("x\nlast\n[exit code 0]")
    assert "bytes cut ...]" in output
    assert 900_000 < len(output) < MAX_RESULT


async def test_what_bash_keeps_is_more_than_a_conversation_holds(context: Context) -> None:
    """How much of it a model reads at first is not for bash to say; the rest can be read."""
    output = await bash(context, "seq 100000")
    assert output == "".join(f"{number}\n" for number in range(1, 100_001)) + "[exit code 0]"


TWO_GENERATIONS = """
(trap '' TERM; while :; do sleep 0.1; done) & echo $! > stubborn
(sleep 1000 & echo $! > grandchild; wait) &
echo started
"""


async def started(home: Path) -> list[int]:
    """The ids of the background processes, once they are there."""
    told = [home / "stubborn", home / "grandchild"]
    assert await until(lambda: all(path.is_file() and path.read_text().strip() for path in told))
    return [int(path.read_text()) for path in told]


async def test_a_command_that_takes_too_long_dies_with_its_children(context: Context, home: Path) -> None:
    """Background processes too, even those deaf to SIGTERM; what it said until then is told."""
    with pytest.raises(TimeoutError, match=r"ended after 1 s; until then it said:\nstarted\n$"):
        await bash(context, f"{TWO_GENERATIONS} wait", 1.0)
    for pid in await started(home):
        assert await died(pid)


async def test_a_cancelled_command_dies_with_its_children(context: Context, home: Path) -> None:
    """The cancellation goes on when they are gone."""
    task = asyncio.create_task(bash(context, f"{TWO_GENERATIONS} wait"))
    pids = await started(home)
    assert [is_alive(pid) for pid in pids] == [True, True]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in pids:
        assert await died(pid)


async def test_what_a_command_leaves_behind_is_ended(context: Context, home: Path) -> None:
    """It would hold the output open and outlive the agent."""
    written = "until [ -s stubborn ] && [ -s grandchild ]; do sleep 0.01; done"
    assert await bash(context, TWO_GENERATIONS + written) == "started\n[exit code 0]"
    for pid in await started(home):
        assert await died(pid)


async def test_a_process_that_left_its_group_is_not_waited_for(context: Context) -> None:
    """Though it holds the output open: who detaches on purpose lives on."""
    output = await bash(context, "setsid sleep 1000 & echo $!", 5.0)
    pid = int(output.split()[0])
    try:
        assert output == f"{pid}\n[exit code 0]"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


async def test_a_command_that_cannot_be_started_is_an_error(home: Path) -> None:
    """Such as one that is not there."""
    with pytest.raises(FileNotFoundError):
        await run(("/no/such/program",), cwd=home, seconds=1.0, keep=10)
