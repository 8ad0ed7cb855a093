"""The `turnwheel` command: its entry point, which says what to install if an extra is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

EXTRAS = ("click", "rich")
"""The packages that the extra ``cli`` installs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line *arguments*, by default those of the process, and return the exit code."""
    try:
        from .commands import call  # noqa: PLC0415  # the library can be installed without the extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        print(f"the command line needs {missing!r}: pip install 'turnwheel[cli]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before the signal handlers were set
        return 130
    return call(arguments)
