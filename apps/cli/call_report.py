"""The account of a call as a person reads it: what happened to it, when, and on what grounds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...effects.errors import ConfigError, UnknownCall
from ...engine.inspect.explain import Explanation
from ...engine.session.archive import explain
from ...performers.stores.base import Store
from ..terminal.call_summary import took
from ..terminal.sanitize import clean
from ..terminal.screen import INDENT
from .option_types import short

LISTED = 10
"""Calls named to somebody who asked for one that is not there."""

LEAST = 0.001
"""Seconds between two moments that are told."""


async def told(store: Store, session: str, name: str) -> Explanation:
    """
    The account of the call called *name* in *session*: its id, or its number on screen, in the latest run.

    Raises `ConfigError` with the calls there are.
    """
    try:
        return await explain(store, session, name.removeprefix("#"))
    except UnknownCall as error:
        there = error.open
    found = [call for call in there if short(call) == name.removeprefix("#")]
    if not found:
        listed = ", ".join([*["..."][: len(there) > LISTED], *there[-LISTED:]]) or "none"
        msg = f"no call {name!r} in session {session!r}; there are: {listed}"
        raise ConfigError(msg)
    return await explain(store, session, found[-1])


def account(found: Explanation) -> Iterator[str]:
    """*found* in lines: the call, then each moment with its time and what it took since the one before."""
    yield f"{clean(found.tool)}  {clean(found.call)}, session {clean(found.session)}"
    widest = max((len(moment.what) for moment in found.moments), default=0)
    before: float | None = None
    for moment in found.moments:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment.at))
        passed = "" if before is None or moment.at - before < LEAST else f"  +{took(moment.at - before)}"
        first, *rest = clean(moment.text).splitlines() or [""]
        yield f"{INDENT}{at}  {moment.what:<{widest}}  {first}{passed}"
        yield from (f"{INDENT}{'':<19}  {'':<{widest}}  {line}" for line in rest)
        before = moment.at
