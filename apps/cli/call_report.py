"""Print the story of a call for `turnwheel why`: each moment with its time and its reason."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...effects.errors import ConfigError, UnknownCall
from ...engine.inspect.archive import explain
from ...engine.inspect.explain import Explanation
from ...performers.stores.base import Store
from ..terminal.call_summary import duration
from ..terminal.sanitize import clean, whole_name
from ..terminal.screen import INDENT
from .option_types import short

MAX_LISTED_CALLS = 10
"""Calls that the error for an unknown call lists."""

MIN_SHOWN_SECONDS = 0.001
"""Seconds between two moments, below which the difference is not shown."""


async def find_call(store: Store, session: str, name: str) -> Explanation:
    """
    The story of call *name* in *session*: an id, or a number as shown, of several the latest.

    Raises `ConfigError` with the known calls.
    """
    try:
        return await explain(store, session, name.removeprefix("#"))
    except UnknownCall as error:
        there = error.open
    # Not an id: perhaps a number as shown. The latest call with that number counts.
    found = [call for call in there if short(call) == name.removeprefix("#")]
    if not found:
        listed = ", ".join([*["..."][: len(there) > MAX_LISTED_CALLS], *there[-MAX_LISTED_CALLS:]]) or "none"
        msg = f"no call {name!r} in session {session!r}; there are: {listed}"
        raise ConfigError(msg)
    return await explain(store, session, found[-1])


def report_lines(found: Explanation) -> Iterator[str]:
    """*found* as lines: the call, then each moment with its time and the time since the one before."""
    yield f"{clean(found.tool)}  {clean(found.call)}, session {whole_name(found.session)}"
    widest = max((len(moment.what) for moment in found.moments), default=0)
    before: float | None = None
    for moment in found.moments:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment.at))
        passed = (
            ""
            if before is None or moment.at - before < MIN_SHOWN_SECONDS
            else f"  +{duration(moment.at - before)}"
        )
        first, *rest = clean(moment.text).splitlines() or [""]
        yield f"{INDENT}{at}  {moment.what:<{widest}}  {first}{passed}"
        yield from (f"{INDENT}{'':<19}  {'':<{widest}}  {line}" for line in rest)
        before = moment.at
