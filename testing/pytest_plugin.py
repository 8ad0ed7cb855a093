"""
The pytest plugin of turnwheel. pytest loads it itself.

- A test whose `ScriptedModel` ran out of replies, or has some left over, fails. Models made in fixtures
  count, too. A fixture that outlives its test makes them with ``partial=True``.
- A test that is marked with ``@pytest.mark.scenarios("folder")`` runs once for each ``*.scenario.txt`` file
  in the folder. Its fixture ``scenario`` is the file; `ScenarioFile` says what that does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

import pytest

from .scripted import ScriptedModel

if TYPE_CHECKING:
    from .scenario_files import ScenarioFile  # most test runs have no scenario, and do not import this

MARKER: Final = "scenarios"
EXPLAINED: Final = (
    f"{MARKER}(folder): run the test once for each *.scenario.txt file in the folder and below. The folder "
    "is relative to the test file, and by default that of the test file. The fixture `scenario` is the file: "
    "`scenario.check(agent)` plays it."
)
USE: Final = f'write @pytest.mark.{MARKER}("folder") above def test_...(scenario)'

# The property of a test's report that names a scenario file which the test wrote.
RECORDED_PROPERTY: Final = "recorded_scenario"

_SCENARIO_FILE: Final = pytest.StashKey["ScenarioFile"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--record-scenarios``."""
    parser.getgroup("turnwheel").addoption(
        "--record-scenarios",
        action="store_true",
        help="write the outcome of scenarios into their files, instead of comparing it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Explain the marker to ``pytest --markers`` and ``--strict-markers``."""
    config.addinivalue_line("markers", EXPLAINED)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once for each of its files."""
    test = metafunc.definition
    marker = test.get_closest_marker(MARKER)
    if marker is None:
        return
    if "scenario" not in metafunc.fixturenames:
        # A marker of a class or a module is for those of its tests that use the fixture.
        if any(each.name == MARKER for each in test.own_markers):
            pytest.fail(f"{test.nodeid}: the marker needs the fixture `scenario`; {USE}", pytrace=False)
        return
    folder = marker.args[0] if marker.args else "."
    if len(marker.args) > 1 or marker.kwargs or not isinstance(folder, str):
        pytest.fail(f"{test.nodeid}: the marker {MARKER!r} takes one folder, as a text; {USE}", pytrace=False)
    from ..effects.errors import ArgumentError  # noqa: PLC0415  # as the import above
    from .scenario_files import files_for  # noqa: PLC0415  # as above

    try:
        files = files_for(test.path, folder, metafunc.config.getini("norecursedirs"))
    except ArgumentError as error:
        problem = str(error)
    else:
        ids = [name for name, _ in files]
        metafunc.parametrize("scenario", [path for _, path in files], ids=ids, indirect=True)
        return
    pytest.fail(f"{test.nodeid}: {problem}", pytrace=False)


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> ScenarioFile:
    """A scenario file of a test marked with ``@pytest.mark.scenarios``; `check` plays it with an agent."""
    if not hasattr(request, "param"):
        pytest.fail(f"{request.node.nodeid}: the fixture `scenario` needs the marker; {USE}", pytrace=False)
    from .scenario_files import ScenarioFile  # noqa: PLC0415  # as above

    # Properties are a part of a test's report, so pytest-xdist brings them from its workers.
    written = request.node.user_properties
    file = request.node.stash[_SCENARIO_FILE] = ScenarioFile(
        request.param,
        record=bool(request.config.getoption("record_scenarios")),
        on_record=lambda path: written.append((RECORDED_PROPERTY, path)),
    )
    return file


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Watch the models of this test, from its fixtures on."""
    ScriptedModel.watched = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Check them after a test that passed, and its scenario; one that failed says why in its own words."""
    result = yield
    for model in ScriptedModel.watched or ():
        model.finish()
    file = item.stash.get(_SCENARIO_FILE, None)
    if file is not None and not file.checked:
        pytest.fail(f"{file!r} was not played; call scenario.check(agent)", pytrace=False)
    return result


def pytest_runtest_teardown() -> None:
    """Let go of them."""
    ScriptedModel.watched = None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the scenario files that tests wrote."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    written = {
        (path, report.nodeid): None
        for report in reports
        for name, path in getattr(report, "user_properties", ())
        if name == RECORDED_PROPERTY
    }
    if written:
        terminalreporter.section("recorded scenarios")
        for path, test in sorted(written):
            terminalreporter.write_line(f"{path} by {test}")
        terminalreporter.write_line("Review the difference in these files: they hold from now on.")
