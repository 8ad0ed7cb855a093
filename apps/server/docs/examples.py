"""Examples of requests and answers, by the name of their operation."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

# In a path, so that one who tries the operations in their order reaches the session of the first one.
IN_PATH = {
    "id": "weekly",
    "agent": "default",
    "question": "0f6945ad5ad9-14",
    "call": "0f6945ad5ad9-13",
    "input": "later",
    "number": "0",
    "file": "app.js",
    "asset": "docs.css",
}


@cache
def examples() -> dict[str, dict[str, Any]]:
    """For each operation, by its name, its `request` where it takes a body, and its `answer`."""
    text = files(__name__.rpartition(".")[0]).joinpath("examples.json").read_text("utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found
