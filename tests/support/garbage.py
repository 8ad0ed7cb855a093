"""The fixture of every test that fails the test which left a resource open, and no later test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collect_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """
    Collect garbage at the end of the test.

    pytest fails the test in whose time a resource warns that it was never closed. A resource in a reference
    cycle warns when it is collected, and an automatic collection may come in any later test.

    A fixture of a module or of the run is alive at the end of a test, so its garbage is never collected.
    """
    yield
    # The fixtures are torn down by now, and the test still refers to their values.
    request.node.funcargs.clear()
    gc.collect()
    # Later collections skip what is alive now, so that each takes about a millisecond.
    gc.freeze()
