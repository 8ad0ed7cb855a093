"""What `tool` takes besides the function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypedDict

from ...effects import Approval, SideEffect

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
