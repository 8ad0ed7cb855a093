"""`python -m turnwheel.diagrams`: write the committed pictures and pages, in the root of a checkout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .drawing import svg_of
from .pages import controls_page, states_page
from .picture import pictures
from .text import mermaid_of

# The file that tells a checkout from another folder.
CHECKOUT_MARK = "states/table.py"


def contents() -> dict[str, str]:
    """The text of each generated file, by its path in the checkout. The same table gives the same bytes."""
    files = {f"diagrams/{picture.name}.mmd": mermaid_of(picture) for picture in pictures()}
    files |= {f"diagrams/{picture.name}.svg": svg_of(picture) for picture in pictures()}
    return files | {"docs/states.md": states_page(), "docs/controls.md": controls_page()}


def stale(root: Path) -> list[str]:
    """The generated files below the checkout *root* that are missing or differ from the table."""
    # Bytes, not text: a checkout that changed the line ends is stale too.
    return [
        path
        for path, text in contents().items()
        if not (root / path).is_file() or (root / path).read_bytes() != text.encode()
    ]


def write(root: Path) -> list[str]:
    """Write all generated files below the checkout *root*; return their paths."""
    files = contents()
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(text.encode())
    return list(files)


def main(arguments: list[str] | None = None) -> int:
    """Write or check; return 1 where a file is stale. Outside a checkout exit with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m turnwheel.diagrams", description="Draw the machine again, from its table."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; name stale files, and fail")
    check: bool = parser.parse_args(arguments).check
    root = Path.cwd()
    if not (root / CHECKOUT_MARK).is_file():
        parser.error(f"{str(root)!r} has no {CHECKOUT_MARK}; run this in a checkout of turnwheel")
    paths = stale(root) if check else write(root)
    for path in paths:
        print(f"stale: {path}" if check else path)  # noqa: T201  # this is a command
    return 1 if check and paths else 0


if __name__ == "__main__":
    sys.exit(main())
