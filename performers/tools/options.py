"""What `tool` takes besides the function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

from ...effects import Approval, SideEffect
from ...effects.spelling import hint, meant

# A side-effect class, or its value.
SideEffectName = SideEffect | Literal["read_only", "idempotent", "unsafe"]

# When to ask, or its value.
ApprovalName = Approval | Literal["by_side_effect", "always", "never"]


class ToolOptions(TypedDict, total=False):
    """What `tool` takes besides the function."""

    side_effect: SideEffectName
    approval: ApprovalName
    timeout: float | None
    name: str | None
    description: str | None
    edits: bool
    resources: Iterable[str] | None
    secrets: Iterable[str]
    plain: Iterable[str]
    paths: Iterable[str]
    command: str
    searches: bool
    sandboxed: bool
    expected: Iterable[type[Exception]]


def option_problem(options: Mapping[str, object]) -> str:
    """What is wrong with the names of *options*; empty where `tool` takes them all."""
    known = ToolOptions.__annotations__
    return next(
        (
            f"no option {name!r}; {meant(name, known) or hint(name, known)}"
            for name in options
            if name not in known
        ),
        "",
    )
