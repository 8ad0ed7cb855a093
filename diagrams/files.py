"""The committed files: what is in them, and whether those there are still true."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..effects.errors import ConfigError
from .controls import controls
from .drawing import svg_of
from .page import page
from .picture import pictures
from .text import text_of

if TYPE_CHECKING:
    from pathlib import Path

MARK = "states/table.py"
"""The file that says that a folder is a checkout of the source."""


def texts() -> dict[str, str]:
    """What is in the text files, by their paths in the checkout. The same table gives the same bytes."""
    drawn = {f"diagrams/{picture.name}.mmd": text_of(picture) for picture in pictures()}
    return {**drawn, "docs/states.md": page(), "docs/controls.md": controls()}


def drawings() -> dict[str, str]:
    """
    The SVG files, likewise. How wide their words are is up to the fonts of the machine that drew them.

    Raises `ConfigError` where pygraphviz is not installed.
    """
    if find_spec("pygraphviz") is None:
        # `transitions` would go on with what else it finds, and say so in its log only.
        msg = "svg is drawn by pygraphviz, which is missing: pip install 'turnwheel[diagrams]'"
        raise ConfigError(msg)
    return {f"diagrams/{picture.name}.svg": svg_of(picture) for picture in pictures()}


def stale(root: Path) -> list[str]:
    """The text files below the checkout *root* that are missing or not what the table says now."""
    _demand_checkout(root)
    return [
        path
        for path, text in texts().items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def write(root: Path) -> list[str]:
    """Write all files below the checkout *root*, once all are drawn; return their paths."""
    _demand_checkout(root)
    files = {**texts(), **drawings()}
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, encoding="utf-8", newline="\n")
    return list(files)


def _demand_checkout(root: Path) -> None:
    if not (root / MARK).is_file():
        msg = f"{str(root)!r} has no {MARK}: run this in a checkout of turnwheel's source"
        raise ConfigError(msg)
