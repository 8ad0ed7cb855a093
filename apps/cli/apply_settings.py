"""
Fill the options that the command line leaves open from settings, and refuse risky ones from an unnamed file.
"""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from ...effects.errors import ConfigError
from ...effects.permissions import PermissionMode, Verdict
from ...settings import Settings
from ...settings.reading import FILE

NAMES_A_SESSION = ("session", "resume", "newest")
"""The options that name the session of a run; at most one of them counts."""


WIDENING_MODES = frozenset({PermissionMode.ACCEPT_EDITS, PermissionMode.BYPASS})
"""Modes that ask fewer questions than the default."""

TRUSTED_KEYS = ("base_url", "cwd", "debug.file", "directories", "hooks", "secrets.plain", "store")
"""
Keys that count only in a file that the person named.

They run programs, widen what tools may read and write, reveal secrets, or choose where a key is sent. A file
in a directory that a person merely entered may come from a stranger.
"""


def apply_settings(options: dict[str, Any]) -> None:
    """
    Load the settings into *options*, with the directories, the address and the session that they name.

    Raises `ConfigError` for invalid settings.
    """
    settings = Settings.load(options["settings_file"])
    # Passing the file by name is how a person vouches for it.
    if options["settings_file"] is None:
        _check_harmless(settings)
    options["settings"] = settings
    if not _given("store") and settings.store is not None:
        options["store"] = settings.store
    if not _given("cwd"):
        options["cwd"] = settings.cwd
    # An address from the settings would send the stand-in's model to a real server.
    if not options["stand_in"]:
        options["base_url"] = options["base_url"] or settings.base_url
    options["directories"] = options["directories"] or settings.directories
    if not any(options.get(name) for name in NAMES_A_SESSION):
        session = settings.session
        options |= {"session": session.id, "resume": session.resume, "newest": session.latest}


def _check_harmless(settings: Settings) -> None:
    """Raise `ConfigError` if a file that the person did not name holds risky keys."""
    widens = {
        "policy.mode": settings.policy.mode in WIDENING_MODES,
        "secrets.redact": not settings.secrets.redact,
        "rules": any(rule.verdict is Verdict.ALLOW for rule in settings.rules),
        **dict.fromkeys(TRUSTED_KEYS, True),
    }
    found = [key for key, risky in widens.items() if risky and settings.sources.get(key) == FILE]
    if found:
        msg = (
            f"{FILE}: refused keys {', '.join(found)}, since the file was not named; "
            f"check them (turnwheel settings --told) and pass --settings {FILE}"
        )
        raise ConfigError(msg)


def _given(option: str) -> bool:
    """Whether the command line has *option*, so that it is not just the default."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(option) is not ParameterSource.DEFAULT
