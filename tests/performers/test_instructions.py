"""Reading what a project says to its agents: from its directories, and from nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnwheel.effects.errors import ConfigError
from turnwheel.effects.requests import ReadInstructions
from turnwheel.performers.base import PerformContext
from turnwheel.performers.instructions import MAX_INSTRUCTIONS, InstructionReader


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


async def read(
    scene: PerformContext, files: tuple[str, ...], *directories: Path
) -> tuple[str, tuple[str, ...]]:
    cwd, *others = directories
    answer = await InstructionReader(cwd, others)(ReadInstructions(id="r-1-7", files=files), scene)
    assert answer.request == "r-1-7"
    return answer.text, answer.faults


async def test_each_file_is_a_section_in_the_order_asked_for(
    scene: PerformContext, home: Path, shared: Path
) -> None:
    (home / "AGENTS.md").write_text("\nBe kind.\n\n")
    (shared / "AGENTS.md").write_text("Be quick.")
    (home / "docs").mkdir()
    (home / "docs" / "style.md").write_text("# Style\nBe brief.\n")
    text, faults = await read(scene, ("docs/style.md", "AGENTS.md"), home, shared)
    assert text == (
        "# docs/style.md\n\n# Style\nBe brief.\n\n"
        "# AGENTS.md\n\nBe kind.\n\n"
        f"# AGENTS.md in {shared}\n\nBe quick."
    )
    assert faults == ()


async def test_what_is_not_there_is_no_fault(scene: PerformContext, home: Path, shared: Path) -> None:
    (home / "EMPTY.md").write_text(" \n")
    (home / "file").touch()
    (home / "gone.md").symlink_to(home / "nowhere.md")
    files = ("AGENTS.md", "EMPTY.md", "no/such/AGENTS.md", "file/AGENTS.md", "gone.md")
    assert await read(scene, files, home, shared) == ("", ())
    assert await read(scene, (), home) == ("", ())


async def test_a_file_that_the_caller_named_and_that_is_nowhere_is_a_warning_in_the_log(
    scene: PerformContext, home: Path, shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (shared / "there.md").write_text("Be kind.")
    (home / "EMPTY.md").touch()
    (home / "folder").mkdir()
    files = ("AGENTS.md", "there.md", "EMPTY.md", "folder", "You are a helpful bot")
    await read(scene, files, home, shared)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "an instruction file is not there" in record.getMessage()
    assert "file='You are a helpful bot'" in record.getMessage()
    assert f"cwd={home}" in record.getMessage()


async def test_any_bytes_become_text_that_can_be_written_down(scene: PerformContext, home: Path) -> None:
    odd = home / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    (odd / "AGENTS.md").write_bytes(b"caf\xe9")
    (odd / os.fsdecode(b"\xe9")).mkdir()
    text, faults = await read(scene, ("AGENTS.md", os.fsdecode(b"\xe9")), home, odd)
    assert text == f"# AGENTS.md in {home}/caf?\n\ncaf\N{REPLACEMENT CHARACTER}"
    assert [fault.encode() for fault in faults] != []


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("../shared/SECRET.md", "is outside of the directories"),
        ("{shared}/SECRET.md", "is outside of the directories"),
        ("link.md", "is outside of the directories"),
        ("folder/SECRET.md", "is outside of the directories"),
        ("dangling.md", "is outside of the directories"),
        ("loop.md", "cannot be resolved"),
        ("a\0b", "cannot be resolved"),
        (".", "Is a directory"),
        ("pipe", "is not a regular file"),
    ],
)
async def test_what_is_unread_is_a_fault(
    file: str, problem: str, scene: PerformContext, home: Path, shared: Path
) -> None:
    (shared / "SECRET.md").write_text("do not tell")
    (home / "link.md").symlink_to(shared / "SECRET.md")
    (home / "dangling.md").symlink_to(shared / "nothing.md")
    (home / "folder").symlink_to(shared)
    (home / "loop.md").symlink_to("loop.md")
    os.mkfifo(home / "pipe")
    (home / "AGENTS.md").write_text("Be kind.")
    name = file.format(shared=shared)
    text, (fault,) = await read(scene, (name, "AGENTS.md"), home)
    assert text == "# AGENTS.md\n\nBe kind."
    assert fault.startswith(f"the instructions {name} cannot be read: ")
    assert problem in fault


async def test_links_are_followed_inside_a_directory_only_and_long_files_are_cut(
    scene: PerformContext, home: Path, shared: Path
) -> None:
    # A link from one open directory to another would give the other's words a wrong heading.
    (home / "AGENTS.md").write_text("Be kind.")
    (home / "CLAUDE.md").symlink_to("AGENTS.md")
    assert await read(scene, ("CLAUDE.md",), home) == ("# CLAUDE.md\n\nBe kind.", ())
    (shared / "RULES.md").write_text("Be quick.")
    (home / "RULES.md").symlink_to(shared / "RULES.md")
    text, faults = await read(scene, ("RULES.md",), home)
    assert (text, len(faults)) == ("", 1)
    # What is too long is cut: see the page of sizes. The limit is in bytes.
    (home / "AGENTS.md").write_text("ä" * (MAX_INSTRUCTIONS // 2) + "a")
    text, (fault,) = await read(scene, ("AGENTS.md",), home)
    assert text == f"# AGENTS.md\n\n{'ä' * (MAX_INSTRUCTIONS // 2)}"
    assert fault == "of the instructions AGENTS.md only the first 65,536 bytes were read"
    (home / "AGENTS.md").write_text("a" * 65_536)
    assert await read(scene, ("AGENTS.md",), home) == (f"# AGENTS.md\n\n{'a' * 65_536}", ())
    with pytest.raises(ConfigError, match="missing"):
        InstructionReader(home, [home / "missing"])
