"""
Fails a pytest test whose `ScriptedModel` ran out of replies or has some left over. pytest loads it itself.

Models made in fixtures count, too. A fixture that outlives its test makes them with ``partial=True``.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from .scripted import ScriptedModel


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Watch the models of this test, from its fixtures on."""
    ScriptedModel.watched = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Check them after a test that passed; one that failed says why in its own words."""
    result = yield
    for model in ScriptedModel.watched or ():
        model.finish()
    return result


def pytest_runtest_teardown() -> None:
    """Let go of them."""
    ScriptedModel.watched = None
