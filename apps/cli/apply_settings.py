"""
Fill the options that the command line leaves open from settings.

A file that the person did not name may come from a stranger, who put it into the directory. So it may only
narrow what a run may do: any key that could do more is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from ...effects.errors import ConfigError
from ...effects.permissions import PermissionMode, Verdict
from ...engine.session.environment import Titles
from ...settings import Settings
from ...settings.reading import FILE

NAMES_A_SESSION = ("session", "resume", "newest")
"""The options that name the session of a run; at most one of them counts."""


WIDENING_MODES = frozenset({PermissionMode.ACCEPT_EDITS, PermissionMode.BYPASS})
"""Modes that ask fewer questions than the default."""

NARROWING_AREAS = frozenset({"ceiling", "disallowed_tools", "limits", "session_limits", "tools"})
"""
Keys, or tables of some, that narrow whatever their value; over those of a session, too.

Words of secrets are not among them: they would hide from a person what a call is about.
"""

NARROWING_VALUES: Mapping[str, Callable[[Settings], bool]] = {
    "policy.mode": lambda settings: settings.policy.mode not in WIDENING_MODES,
    "rules": lambda settings: all(rule.verdict is not Verdict.ALLOW for rule in settings.rules),
    "session.titles": lambda settings: settings.session.titles is not Titles.MODEL,
    "watch.include_partial": lambda _: True,
}
"""Other keys that count in a file that was not named, each with the test of its value."""


def apply_settings(options: dict[str, Any]) -> None:
    """
    Load the settings into *options*, with the directories, the address and the session that they name.

    Raises `ConfigError` for invalid settings.
    """
    settings = Settings.load(options["settings_file"])
    # Passing the file by name is how a person vouches for it.
    if options["settings_file"] is None:
        _check_narrow(settings)
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


def _check_narrow(settings: Settings) -> None:
    """Raise `ConfigError` if a file that the person did not name holds keys that do more than narrow."""
    if found := refused_keys(settings):
        msg = (
            f"{FILE}: refused keys {', '.join(found)}, since the file was not named and they do more than "
            f"narrow; check them (turnwheel settings --told) and pass --settings {FILE}"
        )
        raise ConfigError(msg)


def refused_keys(settings: Settings) -> list[str]:
    """Keys of a file that the person did not name that do more than narrow."""
    here = [key for key, source in settings.sources.items() if source == FILE]
    return [key for key in here if not _narrows(key, settings)]


def _narrows(key: str, settings: Settings) -> bool:
    if key in NARROWING_VALUES:
        return NARROWING_VALUES[key](settings)
    return key.partition(".")[0] in NARROWING_AREAS


def _given(option: str) -> bool:
    """Whether the command line has *option*, so that it is not just the default."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(option) is not ParameterSource.DEFAULT
