"""One process runs the tests of this folder, and parses each source file once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.xdist_group("house"))
