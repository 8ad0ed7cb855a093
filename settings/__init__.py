"""
Settings: what an agent is told without writing code.

From Python, the environment and a TOML file, in this order of precedence. A mistake in any of them is told
with where it stands, what stands there and what is accepted, and all mistakes are told at once.
"""

from __future__ import annotations

from .areas import (
    CommandHook,
    Debug,
    Level,
    Preset,
    Prices,
    SessionSettings,
)
from .settings import Settings

__all__ = ["CommandHook", "Debug", "Level", "Preset", "Prices", "SessionSettings", "Settings"]
