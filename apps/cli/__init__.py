"""The `turnwheel` command: its entry point, which says what to install if an extra is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...effects.errors import ConfigError
from ..extras import needing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line *arguments*, by default those of the process, and return the exit code."""
    try:
        with needing("cli", "the command line"):
            from .commands import call  # noqa: PLC0415  # the library can be installed without the extra
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before the signal handlers were set
        return 130
    return call(arguments)
