"""What a session object is being used for."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

if TYPE_CHECKING:
    from ..driver.driver import Driver


@final
@attrs.frozen
class Unowned:
    """Nobody runs it here."""


@final
@attrs.frozen
class Claiming:
    """Somebody is about to run it."""


@final
@attrs.frozen
class Driving:
    """A run is under way here."""

    driver: Driver


@final
@attrs.frozen
class Leaving:
    """Whoever ran it is on the way out."""


@final
@attrs.frozen
class Closed:
    """It was let go of."""


Ownership = Unowned | Claiming | Driving | Leaving | Closed
"""What a session object is being used for."""
