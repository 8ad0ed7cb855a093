"""
Settings: an agent without code, from Python, the environment and a TOML file, in this order of precedence.

`Settings.load` reads them. All mistakes come in one error, each with its place, its value and the accepted
values.
"""

from __future__ import annotations

from .areas import CommandHook, Debug, Level, Preset, Prices, SessionSettings
from .settings import Settings

__all__ = ["CommandHook", "Debug", "Level", "Preset", "Prices", "SessionSettings", "Settings"]
