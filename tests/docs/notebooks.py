"""
Executes the notebooks of examples/, each in a kernel of its own, in an empty folder.

    python tests/docs/notebooks.py            writes their outputs again
    python tests/docs/notebooks.py --check    writes nothing; names cells that show something else, and fails
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

# Runs and inputs get random ids, which would be others in each execution.
GIVEN_IDS = """\
from itertools import count

from turnwheel.engine import agent

numbers = count(1)
agent._new_id = lambda: f"id{next(numbers)}"
"""

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"


def executed(path: Path, folder: str) -> Any:  # nbformat has no types
    """The notebook at *path*, with what it shows when it runs in *folder*."""
    book: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # as above
    client = NotebookClient(
        book,
        record_timing=False,
        # A kernel on a slow machine sends one text in two parts.
        coalesce_streams=True,
        # It warns of connections that are not encrypted; they are on this machine.
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": folder}},
    )
    client.execute()
    # Which Python it was says nothing to a reader.
    book.metadata.language_info = {"name": "python"}
    for output in (output for cell in book.cells for output in cell.get("outputs", ())):
        data = output.get("data", {})
        if "text/html" in data:
            # What a browser shows; the rest is long, and the repr of a step has the folder of the kernel.
            output["data"] = {"text/html": data["text/html"]}
    return book


def changed(before: Any, after: Any) -> Iterator[str]:  # as above
    """The cells of which *after* shows something else than *before*: their ids and first lines."""
    for old, new in zip(before.cells, after.cells, strict=True):
        if old != new:
            yield f"{new.id}: {new.source.partition(chr(10))[0]}"


def main() -> int:
    """Execute all notebooks; how many of them show something else now, where this is a check."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wrong = 0
    with TemporaryDirectory() as folder:
        # A profile of the person who runs this would show in the outputs.
        os.environ["IPYTHONDIR"] = folder
        startup = Path(folder, "profile_default", "startup")
        startup.mkdir(parents=True)
        startup.joinpath("ids.py").write_text(GIVEN_IDS)
        for path in sorted(NOTEBOOKS.glob("*.ipynb")):
            book = executed(path, folder)
            if check:
                found = [*changed(nbformat.read(path, as_version=4), book)]  # type: ignore[no-untyped-call]  # as above
                for line in found:
                    print(f"{path.name}, cell {line}: shows something else; run make notebooks")
                wrong += bool(found)
            else:
                nbformat.write(book, path)  # type: ignore[no-untyped-call]  # as above
    return wrong


if __name__ == "__main__":
    sys.exit(main())
