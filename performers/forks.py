"""
What objects do after `os.fork`.

A forked child has one thread, the one that forked. Work of the parent's other threads never ends there, and a
lock that one of them held is never released.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_renewals: WeakKeyDictionary[object, Callable[..., object]] = WeakKeyDictionary()


def renew_in_child(subject: T, renew: Callable[[T], object]) -> None:
    """Call *renew* with *subject*, as long as that is in use, in each child that this process forks."""
    _renewals[subject] = renew


def _renew_all() -> None:
    for subject, renew in [*_renewals.items()]:
        renew(subject)


os.register_at_fork(after_in_child=_renew_all)
