"""`python -m turnwheel.diagrams`: draw the pictures in the checkout one stands in."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..effects.errors import ConfigError
from .files import stale, write


def main(arguments: list[str] | None = None) -> int:
    """Write or check; return 0, or 1 where a file is stale, or 2 where neither is possible here."""
    parser = argparse.ArgumentParser(
        prog="python -m turnwheel.diagrams", description="Draw the machine again, from its table."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; name the text files that are stale, and fail"
    )
    check: bool = parser.parse_args(arguments).check
    root = Path.cwd()
    try:
        paths = stale(root) if check else write(root)
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201  # this is a command
        return 2
    for path in paths:
        print(f"stale: {path}" if check else path)  # noqa: T201  # as above
    return 1 if check and paths else 0


if __name__ == "__main__":
    sys.exit(main())
