"""What the options of a command line leave open, and settings say."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from ...effects.errors import ConfigError
from ...effects.permissions import PermissionMode, Verdict
from ...settings import Settings
from ...settings.settings import FILE

NAMES_A_SESSION = ("session", "resume", "newest")
"""The options of which one at most says which session is meant."""


WIDENING_MODES = frozenset({PermissionMode.ACCEPT_EDITS, PermissionMode.BYPASS})
"""Modes in which less is asked about."""

TRUSTED_KEYS = ("base_url", "cwd", "debug.file", "directories", "hooks", "secrets.plain", "store")
"""
What a file says only to whoever has named it. They run programs, widen what is read and written, show what is
secret, or say where a key is sent, and a folder that one has merely entered may be anybody's.
"""


def apply_settings(options: dict[str, Any]) -> None:
    """
    Add the settings to *options*, and from them where to work and on what: folders, address, session.

    Raises `ConfigError` for settings that are wrong.
    """
    told = Settings.load(options["settings_file"])
    if options["settings_file"] is None:
        _check_harmless(told)
    options["settings"] = told
    if not _given("store") and told.store is not None:
        options["store"] = told.store
    if not _given("cwd"):
        options["cwd"] = told.cwd
    if not options["stand_in"]:
        options["base_url"] = options["base_url"] or told.base_url
    options["directories"] = options["directories"] or told.directories
    if not any(options.get(name) for name in NAMES_A_SESSION):
        session = told.session
        options |= {"session": session.id, "resume": session.resume, "newest": session.latest}


def _check_harmless(told: Settings) -> None:
    """Raise `ConfigError` where a file that nobody named says what is for one that somebody did."""
    widens = {
        "policy.mode": told.policy.mode in WIDENING_MODES,
        "secrets.redact": not told.secrets.redact,
        "rules": any(rule.verdict is Verdict.ALLOW for rule in told.rules),
        **dict.fromkeys(TRUSTED_KEYS, True),
    }
    found = [key for key, risky in widens.items() if risky and told.sources.get(key) == FILE]
    if found:
        msg = (
            f"{FILE} lies here and says what a file may only say that was named: {', '.join(found)}; "
            f"look at it (turnwheel settings --told), and then name it: --settings {FILE}"
        )
        raise ConfigError(msg)


def _given(option: str) -> bool:
    """Whether *option* was given, and does not merely have its default."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(option) is not ParameterSource.DEFAULT
