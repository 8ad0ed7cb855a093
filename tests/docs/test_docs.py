"""The docs are right: their code runs, their links lead somewhere, their imports go to rooms."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

import turnwheel
from turnwheel import Agent, Config, Machine, MemoryStore, ModelSpec, tool, transition
from turnwheel.effects import CallModel, Entered
from turnwheel.engine.inspect.export import FORMAT_VERSION
from turnwheel.engine.journal.entries import VERSION
from turnwheel.performers.stores.postgres.layout import SCHEMA_VERSION
from turnwheel.performers.stores.sqlite_file import LAYOUT_VERSION
from turnwheel.states import Context
from turnwheel.testing import ScriptedModel, calls, says

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
ROOMS = (
    "effects",
    "states",
    "engine",
    "performers",
    "projections",
    "settings",
    "diagrams",
    "testing",
    "apps",
)
PUBLIC = {"turnwheel", *[f"turnwheel.{room}" for room in ROOMS]}
KITS = {"turnwheel.testing.scenarios", "turnwheel.testing.store_contract", "turnwheel.testing.wire_rules"}
"""Modules of the kit that are public as a whole."""

BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
DOTTED = re.compile(r"`turnwheel\.(\w+)\.(\w+)")
NAME = re.compile(r"`([A-Z]\w*[a-z]\w*)(?:\(|`)")
PLACE = re.compile(rf"`((?:apps|benchmarks|tests|examples|{'|'.join(ROOMS)})/[\w/]*(?:\.\w+|/|\w))`")
"""A file or folder of the checkout, such as ``states/rules/retry.py``."""

OF_A_MACHINE = re.compile(
    r"/(?:home|root|tmp|Users|work|var)/|0x[0-9a-f]{6,}|\b[0-9a-f]{12,}\b|\b1[6-9]\d{8}\b"
    '|"output_type": "error"'
)
"""What only one execution shows: folders, addresses, random ids, seconds since the epoch; and an error."""

UNNAMED = re.compile(r"\b((who|whom)ever|(some|no|any|every)body)\b", re.IGNORECASE)
"""Pronouns that hide the actor."""

SHOWN = re.compile(r"^([\w.()]+)  # (<.+>)$", re.MULTILINE)
"""An expression at the end of a block, with the `repr` of its value."""

QUOTED = {"providers.md"}
"""A page that quotes an example; the tests of the wires run it."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str]]:
    """The Python of *page*, each block with the output that the page shows for it."""
    return BLOCK.findall(page.read_text("utf-8"))


def parsed(code: str) -> ast.Module:
    """*code* as a tree, in which a sketch may await outside of a function."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.Module = compile(code, "docs", "exec", flags)
    return tree


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each name that *tree* imports from turnwheel, behind its module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "turnwheel":
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("turnwheel"))


def has(module: str, wanted: str) -> bool:
    """Whether the public *module* exports *wanted*; a submodule is free to move, so it does not count."""
    if f"{module}.{wanted}" in KITS:
        return bool(importlib.import_module(f"{module}.{wanted}"))
    found = importlib.import_module(module)
    return not wanted or not isinstance(getattr(found, wanted, found), ModuleType)


def wrong(tree: ast.Module) -> list[str]:
    """The imports of *tree* that go deeper than a room, or find nothing there."""
    return [
        f"from {module} import {wanted}"
        for module, wanted in imports(tree)
        if module not in PUBLIC or not has(module, wanted)
    ]


# Code


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_a_page_imports_from_rooms_only(page: Path) -> None:
    assert [fault for code, _ in blocks(page) for fault in wrong(parsed(code))] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_an_example_imports_from_rooms_only(example: Path) -> None:
    assert wrong(parsed(example.read_text("utf-8"))) == []


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_a_notebook_imports_from_rooms_only(notebook: Path) -> None:
    assert wrong(parsed(code_of(notebook))) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_the_outputs_of_a_notebook_name_no_machine_and_no_moment(notebook: Path) -> None:
    """No folder, no address of an object, no random id, no time of day; and no cell failed."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    shown = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert all(shown)
    assert OF_A_MACHINE.findall(json.dumps(shown)) == []


@pytest.mark.real
def test_notebooks_show_what_happens() -> None:
    """`make notebooks` writes them again."""
    check = [sys.executable, str(ROOT / "tests" / "docs" / "notebooks.py"), "--check"]
    ran = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("", 0), ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_dotted_name_on_a_page_is_there(page: Path) -> None:
    found = DOTTED.findall(page.read_text("utf-8"))
    assert [f"{room}.{wanted}" for room, wanted in found if not has(f"turnwheel.{room}", wanted)] == []


RUN = [page for page in PAGES if blocks(page) and page.name not in QUOTED]


def a_first_transition() -> dict[str, object]:
    """The names of the first line of code of the README: `transition`, and a `state` with its `ctx`."""
    config = Config(model=ModelSpec(name="me"))
    machine = Machine.start(config, "Hi")
    ctx = Context(config=config, memory=machine.memory, event=Entered(at=0.0))
    return {"transition": transition, "state": machine.state, "ctx": ctx}


def play_the_model(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """Put a script in the place of the model of every `turnwheel.Agent`, with answers for the README."""
    model = ScriptedModel(
        calls(("word_count", {"path": "README.md"})),
        says("It has some words."),
        calls(("word_count", {"path": "LICENSE"})),
        says("It has fewer words."),
        calls(("refund", {"order": 7})),
        says("Order 7 is refunded."),
    )
    monkeypatch.setattr(turnwheel, "Agent", partial(cast("Any", Agent), performers={CallModel: model}))
    return model


def execute(code: str, page: Path, script: ModuleType, loop: asyncio.Runner) -> None:
    """Run *code* in *script*; code that awaits outside of functions runs in *loop*."""
    compiled = compile(code, name(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if compiled.co_flags & inspect.CO_COROUTINE:

        async def run() -> None:
            await eval(compiled, script.__dict__)  # noqa: S307  # the page's own code

        loop.run(run())
    else:
        exec(compiled, script.__dict__)  # noqa: S102  # the page's own code


@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In order, as one script, in an empty folder; the output is the one that the page shows."""
    monkeypatch.chdir(tmp_path)
    # A module of its own: dataclasses and annotations look their names up in it.
    script = ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, script.__name__, script)
    model = None
    if page.name == "README.md" and page.parent == ROOT:
        for file in ("README.md", "LICENSE"):
            shutil.copy(ROOT / file, tmp_path)
        script.__dict__.update(a_first_transition())
        model = play_the_model(monkeypatch)
    with asyncio.Runner() as loop:
        for code, shown in blocks(page):
            execute(code, page, script, loop)
            printed = capsys.readouterr().out
            assert not shown or printed == shown
            for expression, text in SHOWN.findall(code):
                assert repr(eval(expression, script.__dict__)) == text  # noqa: S307  # the page's own code
    if model is not None:
        model.finish()
    for test in shown_tests(script):
        done = test()
        if inspect.iscoroutine(done):
            asyncio.run(done)


def shown_tests(script: ModuleType) -> list[Callable[[], object]]:
    return [
        value
        for key, value in vars(script).items()
        if key.startswith("test_") and callable(value) and not inspect.signature(value).parameters
    ]


@tool(side_effect="read_only")
def look() -> str:
    """Look around."""
    return "seen"


def test_a_reader_that_comes_back_is_told_the_rest_by_the_code_of_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, script = ROOT / "docs" / "events.md", ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, script.__name__, script)

    async def told(agent: Agent, last: str) -> list[str]:
        frames: list[str] = []
        done = asyncio.Event()

        async def write(data: bytes) -> None:
            frames.append(data.decode())
            if "event: done" in frames[-1]:
                done.set()

        async with agent.session("s") as session:
            events = script.__dict__["events"](session, last, SimpleNamespace(write=write))
            reading = asyncio.ensure_future(events)
            await asyncio.wait({reading, asyncio.ensure_future(done.wait())}, return_when="FIRST_COMPLETED")
        await reading
        return frames

    async def come_back() -> None:
        model = ScriptedModel(calls(("look", {}), text="Let me see."), says("Done."))
        agent = Agent(tools=[look], performers={CallModel: model}, store=MemoryStore())
        await agent.session("s").run("Look")
        whole = await told(agent, "")
        ids = [frame.split("\n", 1)[0] for frame in whole]
        for place, line in enumerate(ids[:-1]):
            if line.startswith("id: "):
                assert await told(agent, line.removeprefix("id: ")) == whole[place + 1 :]

    with asyncio.Runner() as loop:
        for code, _ in blocks(page):
            execute(code, page, script, loop)
        loop.run(come_back())


# Links and lists


def anchors(page: Path) -> set[str]:
    """What a link to *page* may name behind a #, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_link_leads_somewhere(page: Path) -> None:
    lost: list[str] = []
    for link in LINK.findall(page.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_file_that_a_page_names_is_there(page: Path) -> None:
    found = PLACE.findall(page.read_text("utf-8"))
    assert sorted({place for place in found if not (ROOT / place).exists()}) == []


def test_the_index_has_every_page_and_every_example() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(index)}
    wanted = {page for page in DOCS.glob("*.md") if page.name != "README.md"} | {*EXAMPLES, *NOTEBOOKS}
    assert {name(path) for path in wanted - linked} == set()


def test_the_glossary_names_what_is_there() -> None:
    public = [importlib.import_module(module) for module in sorted(PUBLIC)]
    named = set(NAME.findall((DOCS / "glossary.md").read_text("utf-8")))
    assert {wanted for wanted in named if not any(hasattr(module, wanted) for module in public)} == set()


def test_the_page_of_upgrades_tells_the_versions_of_today() -> None:
    told = re.findall(r"now (\d+) \|", (DOCS / "upgrades.md").read_text("utf-8"))
    kept = [VERSION, LAYOUT_VERSION, SCHEMA_VERSION, VERSION, VERSION, FORMAT_VERSION]
    assert [int(each) for each in told] == kept


# Voice


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_names_its_actors(page: Path) -> None:
    lines = enumerate(page.read_text("utf-8").splitlines(), 1)
    assert [f"{number}: {line}" for number, line in lines if UNNAMED.search(line)] == []
