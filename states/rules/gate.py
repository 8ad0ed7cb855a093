"""Whether a tool call may run, must be asked about, or cannot run at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...effects.config import Approval, PermissionMode, SideEffect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...effects.config import Grant, ToolSpec


def must_ask(
    spec: ToolSpec, mode: PermissionMode, grants: Iterable[Grant], arguments: Mapping[str, object]
) -> bool:
    """Whether a person is asked before *spec* runs with *arguments*."""
    if mode is PermissionMode.BYPASS or spec.approval is Approval.NEVER:
        return False
    if spec.approval is Approval.BY_SIDE_EFFECT and spec.side_effect is SideEffect.READ_ONLY:
        return False
    return not any(grant.covers(spec.name, arguments) for grant in grants)
