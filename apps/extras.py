"""What a command says where an extra, or a package of it, is not installed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ..effects.errors import ConfigError


@contextmanager
def needing(extra: str, what: str) -> Generator[None]:
    """
    Raise `ConfigError` where an import inside fails since a package is missing: *what* needs *extra* for it.

    Only imports belong inside: a module that a person's own code lacks has nothing to do with the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        # A missing module of ours is a fault, which no extra mends.
        if missing == __name__.partition(".")[0]:
            raise
        msg = f"{what} needs {missing!r}: pip install 'turnwheel[{extra}]'"
        raise ConfigError(msg) from error
