"""The command line: where `turnwheel` begins."""

from __future__ import annotations

import sys
from collections.abc import Sequence

EXTRAS = ("click", "rich")
"""What the extra ``cli`` brings along."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what *arguments* say, or the command line; returns the exit code."""
    try:
        from .commands import call  # noqa: PLC0415  # the library can be installed without the extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        print(f"the command line needs {missing!r}: pip install 'turnwheel[cli]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before anything began
        return 130
    return call(arguments)
