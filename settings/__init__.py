"""
Settings: an agent without code, from Python, the environment and a TOML file, in this order of precedence.

`Settings.load` reads them. All mistakes come in one error, each with its place, its value and the accepted
values.
"""

from __future__ import annotations

from .areas import (
    CommandHook as CommandHook,
    Debug as Debug,
    Level as Level,
    Preset as Preset,
    Prices as Prices,
    SessionSettings as SessionSettings,
)
from .settings import Settings as Settings
