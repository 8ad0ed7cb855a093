"""The fixtures of the session stage, for the tests of this folder."""

from __future__ import annotations

from support.session_stage import home, house, one, quiet, tape

__all__ = ["home", "house", "one", "quiet", "tape"]
