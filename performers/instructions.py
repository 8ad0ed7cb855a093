"""The instructions of a project to its agents: `InstructionReader` performs `ReadInstructions`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import final

from ..effects import InstructionsRead, ReadInstructions, clean
from .base import PerformContext
from .tools.decorator import ToolContext
from .tools.paths import locate, roots
from .worker_pool import WorkerPool

# Bytes read of one file: some 16,000 tokens, which a model reads at every call.
MAX_INSTRUCTIONS = 64 * 1024

# The names by convention, which the command line reads unless it is told others. Projects may lack them.
INSTRUCTION_FILES = ("AGENTS.md",)


@final
class InstructionReader:
    """
    Reads instruction files in *cwd* and in each of *directories*; where there are none, the text is empty.

    A file that is in none of them is a warning in the log, but for `INSTRUCTION_FILES`.

    Every file is a section of its own, headed by its path in its directory, and the directory where that is
    not *cwd*. Raises `ConfigError` for a directory that is none.
    """

    def __init__(self, cwd: Path | str = ".", directories: Iterable[Path | str] = ()) -> None:
        self._roots = roots(cwd, directories)
        self._pool = WorkerPool(threads=1)

    async def __call__(self, request: ReadInstructions, scene: PerformContext) -> InstructionsRead:
        """Read the files, in a thread, since a disk may be far away."""
        work = partial(_sections, request.files, self._roots)
        text, faults, missing = await self._pool.thread(work).result()
        for file in missing:
            scene.faults.failed(
                "an instruction file is not there; name one in cwd, or give the text of a prompt as system=",
                file=f"{file!r:.80}",
                cwd=str(self._roots[0]),
            )
        return InstructionsRead(at=scene.clock.now(), request=request.id, text=text, faults=faults)


def _sections(
    files: tuple[str, ...], directories: tuple[Path, ...]
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """
    What there is of *files*, each looked for in all *directories*, which begin with the working one.

    The text, what could not be read, and the names that are in no directory.
    """
    sections: list[str] = []
    faults: list[str] = []
    missing = [file for file in files if file not in INSTRUCTION_FILES]
    for file in files:
        for directory in directories:
            heading = clean(file if directory == directories[0] else f"{file} in {directory}")
            try:
                # The text ends up in front of a model. So `locate` refuses a name or a symlink that leads
                # out of the directory: a repository could name the keys in its owner's home.
                place = locate(ToolContext(cwd=directory, deps=None), file)
                data, _ = place.read(MAX_INSTRUCTIONS + 1)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, ValueError) as error:
                missing = [name for name in missing if name != file]
                faults.append(clean(f"the instructions {heading} cannot be read: {error}"))
                continue
            missing = [name for name in missing if name != file]
            if len(data) > MAX_INSTRUCTIONS:
                faults.append(
                    f"of the instructions {heading} only the first {MAX_INSTRUCTIONS:,} bytes were read"
                )
            if text := data[:MAX_INSTRUCTIONS].decode(errors="replace").strip():
                sections.append(f"# {heading}\n\n{text}")
    return "\n\n".join(sections), tuple(faults), tuple(missing)
