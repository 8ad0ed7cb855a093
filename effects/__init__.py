"""
The words spoken to the world and back: four closed unions of frozen values.

`Effect` is what a transition returns: a `Request` that gets one answer, a `Cancel`, a `Record` that changes
the memory, or a `Notice` for whoever watches. `Event` is what comes back or in. Who does the work is in
`performers`.
"""

from __future__ import annotations

from .notices import Notice
from .records import Record
from .requests import Cancel, Request

Effect = Request | Cancel | Record | Notice
"""Everything a transition can return."""
