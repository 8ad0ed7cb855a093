"""What the books of a run tell each other of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

if TYPE_CHECKING:
    from provers.audit.questions import AskBook
    from provers.audit.spend_book import SpendBook
    from turnwheel.effects.permissions import PermissionMode
    from turnwheel.effects.requests import Request


@final
@attrs.frozen(kw_only=True)
class Around:
    """
    What the other books say of a step: what its event *answered*, what persons said in *asks*.

    And the *mode*, the *purse* after it, whether something *urgent* waits to be read, and whether what was
    answered had been *stopped*.
    """

    answered: Request | None
    asks: AskBook
    mode: PermissionMode
    purse: SpendBook
    urgent: bool
    stopped: bool
