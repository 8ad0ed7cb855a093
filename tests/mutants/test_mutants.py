"""All small mistakes are made, and the hunt tells those that tests find from those that they do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import coverage
import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest

from mutants import __main__ as command, noted
from mutants.hunting import FOUND, SURVIVED
from mutants.mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[2]
REPRESENTED = """'f"<Rope of {self.count} pieces>"' -> 'None'"""


def made(tmp_path: Path, body: str) -> list[str]:
    """The body of each mutant of a function with this *body*."""
    path = tmp_path / "states.py"
    begin = "def f(a, b):\n    "
    path.write_text(begin + body, "utf-8")
    mutants = mutants_of(tmp_path, path)
    assert all(one.function == "f" for one in mutants)
    return [one.applied(begin + body).removeprefix(begin) for one in mutants]


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("a(b < 1)", ["a(b <= 1)", "a(b < 2)", "(b < 1)", "pass"]),
        ("a((b) is (not b))", ["a((b) is not (not b))", "a((b) is ((b)))", "((b) is (not b))", "pass"]),
        ("b = a and a.b", ["b = ((a.b))", "b = ((a))", "b = ((a) or (a.b))"]),
        ("b = a or f", ["b = ((f))", "b = ((a))", "b = ((a) and (f))"]),
        ("b = a + (b)", ["b = a - (b)"]),
        ("b = 'a' + b", []),
        ("if a: b = True", ["if True: b = True", "if False: b = True", "if a: b = False"]),
        ("b = a if b else None", ["b = a if True else None", "b = a if False else None"]),
        ("while a: break", ["while False: break", "while a: continue"]),
        ("b = [a for a in b if a]", ["b = [a for a in b if True]"]),
        ("a.b = 0", ["pass", "a.b = 1"]),
        ("a += b", ["pass"]),
        ("return a", ["return None"]),
        ("raise a", ["pass"]),
        ("b = a.b(b, c=a, d=b)", ["b = a.b(b,  d=b)", "b = a.b(b, c=a, )"]),
        ("b = Message(a=a)", []),
        ("b = tuple(a)", []),
        ("b = quote(a)", ["b = (a)"]),
        ("for b in a: continue", ["for b in a: break"]),
    ],
)  # fmt: skip
def test_every_small_mistake_is_made(tmp_path: Path, body: str, changed: list[str]) -> None:
    assert sorted(made(tmp_path, body)) == sorted(changed)


def test_what_does_nothing_when_a_function_is_called_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        "@d(1)\ndef f(a: T[1] = 1) -> U[2]:\n    'text'\n    msg = g(1)\n    return f'{1}'\n"
        "b = field(init=False)\n",
        "utf-8",
    )
    names = [one.name for one in mutants_of(tmp_path, path)]
    assert names == ["a.py f: '1' -> '2'", """a.py f: "f'{1}'" -> 'None'"""]


def test_a_name_outlives_a_change_elsewhere_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("def f(a):\n    return a < 1 or a < 1\n", "utf-8")
    before = [one.name for one in mutants_of(tmp_path, path)]
    path.write_text("B = 1\n\n\ndef g(a): ...\n\n\ndef f(a):\n    return a < 1 or a < 1\n", "utf-8")
    after = [one.name for one in mutants_of(tmp_path, path) if " f:" in one.name]
    assert before == after
    assert len({*before}) == len(before)


@pytest.fixture(scope="module")
def all_mutants() -> list[Mutant]:
    return [one for path in command.files_of(command.BARS) for one in mutants_of(ROOT, path)]


def test_every_mutant_is_python(all_mutants: list[Mutant]) -> None:
    # Some compare a literal by its identity, of which Python warns.
    warnings.simplefilter("ignore", SyntaxWarning)
    for one in all_mutants[::97]:
        compile(one.applied((ROOT / one.file).read_text("utf-8")), one.file, "exec")


def test_mutants_are_told_apart(all_mutants: list[Mutant]) -> None:
    assert len({one.name for one in all_mutants}) == len(all_mutants)


def test_each_that_is_listed_as_equivalent_can_be_made(all_mutants: list[Mutant]) -> None:
    listed = command.survivors()
    assert listed.keys() - {one.name for one in all_mutants} == set()
    assert [name for name, why in listed.items() if not why] == []


def note(folder: Path, file: str, text: str, ran: dict[str, list[int]]) -> None:
    """Note in *folder* that *file* had this *text*, and that each test *ran* these lines of it."""
    data = coverage.CoverageData(str(folder / "lines-1"))
    for test, lines in ran.items():
        data.set_context(test)
        data.add_lines({f"/there/{file}": lines})
    data.write()
    told = {
        "root": "/there",
        "seconds": dict.fromkeys(ran, 1.0),
        "functions": {file: noted.functions_of(text)},
    }
    (folder / "seconds-1.json").write_text(json.dumps(told), "utf-8")


TEXT = """class A:
    def f(self):
        if self:
            return 1
        return 2

def g():
    return 3
"""
RAN = {"t.py::true": [3, 4], "t.py::false": [3, 5], "t.py::other": [8]}
F, G = TEXT[: TEXT.index("\ndef g")], TEXT[TEXT.index("def g") :]
AS_BEFORE = ["", "false true", "true", "false"]
ALL_OF_F = ["false true"] * 4
ALL = ["false other true"]


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("states/a.py", TEXT, {2: AS_BEFORE, 7: ["", "other"]}),
        # Unchanged, wherever it has moved to.
        ("states/a.py", f"{G}\n# Other words.\n{F}", {1: ["", "other"], 6: AS_BEFORE}),
        ("engine/b.py", F, {2: AS_BEFORE}),
        # Changed.
        ("states/a.py", TEXT.replace("1", "0"), {2: ALL_OF_F, 7: ["", "other"]}),
        # New in its file; in its folder; altogether.
        ("states/a.py", TEXT.replace("g", "h"), {2: AS_BEFORE, 7: ALL * 2}),
        ("states/b.py", "def f(): ...\n", {1: ALL}),
        ("engine/b.py", "def f(): ...\n", {1: [""]}),
    ],
)  # fmt: skip
def test_a_line_keeps_its_tests_while_files_change(
    tmp_path: Path, file: str, text: str, expected: dict[int, list[str]]
) -> None:
    note(tmp_path, "states/a.py", TEXT, RAN)
    lines, seconds = noted.read(tmp_path, {file: noted.functions_of(text)})
    for first, tests in expected.items():
        told = [
            " ".join(sorted(test[6:] for test in lines[file].get(first + n, []))) for n in range(len(tests))
        ]
        assert told == tests
    assert seconds.keys() == RAN.keys()


def test_what_tests_of_a_file_ran_is_forgotten(tmp_path: Path) -> None:
    note(tmp_path, "states/a.py", TEXT, {**RAN, "u.py::test": [3]})
    noted.forget(tmp_path, ["t.py"])
    lines, seconds = noted.read(tmp_path, {"states/a.py": noted.functions_of(TEXT)})
    assert {line: tests for line, tests in lines["states/a.py"].items() if tests} == {3: ["u.py::test"]}
    assert seconds == {"u.py::test": 1.0}


def test_a_changed_file_has_its_tests_run_again_and_a_text_those_beside_it() -> None:
    there = ["tests/a/test_a.py", "tests/a/test_b.py", "tests/test_c.py", "tests/support/kit.py"]
    assert noted.run_again(["tests/test_c.py", "tests/support/kit.py"], there) == ["tests/test_c.py"]
    assert noted.run_again(["tests/a/stories/one.txt"], there) == ["tests/a/test_a.py", "tests/a/test_b.py"]
    assert noted.run_again(["tests/b/gone.toml", "tests/test_gone.py"], there) == [
        "tests/test_c.py",
        "tests/test_gone.py",
    ]


def test_the_tests_that_bear_the_name_of_a_file_come_first_then_near_ones_and_of_each_one_case() -> None:
    one = mutants_of(ROOT, ROOT / "engine/session/lease.py")[0]
    own, near = "tests/engine/test_lease.py::test", "tests/engine/session/test_a.py::test"
    far, farther = "tests/apps/test_c.py::test", "tests/apps/test_d.py::test"
    seconds = {farther: 0.6, far: 0.1, f"{near}[1]": 2.0, f"{near}[2]": 7.0, own: 3.0}
    few = {one.file: {line: [*seconds] for line in one.lines}}
    expected = (own, f"{near}[1]", far, f"{near}[2]", farther)
    assert command.chosen_tests(one, few, seconds, 13.0) == expected
    assert command.chosen_tests(one, few, seconds, 6.0) == (own, f"{near}[1]", far, farther)
    assert command.chosen_tests(one, few, seconds, 2.5) == (f"{near}[1]", far)


def test_a_file_without_a_function_has_the_tests_of_its_folder() -> None:
    one = mutants_of(ROOT, ROOT / "apps/console/bodies.py")[0]
    seconds = {"tests/apps/console/test_a.py::test": 1.0, "tests/engine/test_b.py::test": 1.0}
    expected = ("tests/apps/console/test_a.py::test",)
    assert command.chosen_tests(one, {one.file: {}}, seconds, 10.0) == expected


@pytest.mark.prover
def test_only_the_tests_of_changed_files_are_noted_again(tmp_path: Path) -> None:
    changed = "tests/effects/test_pieces.py"
    (tmp_path / "tests.json").write_text(json.dumps(noted.digests() | {changed: ""}), "utf-8")
    lines, seconds = noted.lines_of_tests(tmp_path)
    assert {test.partition("::")[0] for test in seconds} == {changed}
    assert lines["effects/history.py"]
    before = {path.name for path in tmp_path.iterdir()}
    assert noted.lines_of_tests(tmp_path) == (lines, seconds)
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.prover
def test_the_tests_of_one_folder_can_be_noted_alone(tmp_path: Path) -> None:
    lines, seconds = noted.lines_of_tests(tmp_path, "tests/effects")
    assert seconds
    assert all(test.startswith("tests/effects/") for test in seconds)
    assert lines["effects/history.py"]
    assert noted.lines_of_tests(tmp_path, "tests/effects") == (lines, seconds)


@pytest.mark.prover
def test_the_tests_that_run_a_line_are_noted(tmp_path: Path) -> None:
    asked = ["-p", "mutants.covering", f"--lines={tmp_path}", "tests/effects/test_pieces.py"]
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", *asked], check=True, cwd=ROOT)
    lines, seconds = noted.read(tmp_path, noted.functions_now())
    [merged] = [one for one in mutants_of(ROOT, ROOT / "effects/history.py") if one.function == "merged"][:1]
    tests = command.chosen_tests(merged, lines, seconds, 10.0)
    assert tests
    assert all(test.startswith("tests/effects/test_pieces.py::") for test in tests)


BROKEN = """
import subprocess

def test_broken():
    server = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open({server!r}, "a") as file:
        print(server.pid, file=file)
    assert False
"""


@pytest.mark.prover
def test_a_mutant_is_found_by_a_test_that_fails_and_lives_on_where_none_does(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    asked, found = tmp_path / "asked.json", tmp_path / "found.jsonl"
    path = ROOT / "effects/history.py"
    mutants = {one.name.partition(" ")[2]: one for one in mutants_of(ROOT, path)}
    wrong, unseen = mutants["Rope.__repr__: " + REPRESENTED], mutants["Rope.extend: '+' -> '-' #2"]
    # Outside of a function, so in a process of its own each.
    longer = mutants["-: '500' -> '501'"]
    [least] = [one for one in mutants_of(ROOT, ROOT / "performers/keys.py") if not one.function]
    tests = [
        "tests/effects/test_pieces.py::test_a_rope_is_a_value_that_counts_its_pieces",
        "tests/performers/test_keys.py::test_a_key_has_32_bytes_at_least",
    ]
    # A test that fails without any mistake finds none. What it leaves behind is ended, in any session.
    # It lies below the root, where pytest names a test by its path.
    (ROOT / ".cache").mkdir(exist_ok=True)
    broken, server = ROOT / ".cache" / f"test_{tmp_path.name}.py", tmp_path / "server"
    broken.write_text(BROKEN.format(server=str(server)), "utf-8")
    request.addfinalizer(broken.unlink)
    tests.insert(0, f"{os.path.relpath(broken, ROOT)}::test_broken")
    order = [command.ordered(one, tests, 1.0) for one in (wrong, unseen)]
    order += [command.ordered(one, tests[1:], 1.0) for one in (longer, least)]
    asked.write_text(json.dumps(order), "utf-8")
    hunting = ["-s", "-p", "mutants.hunting", f"--hunt={asked}", f"--found={found}", *tests]
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", *hunting], check=True, cwd=ROOT)
    over = [json.loads(line) for line in found.read_text("utf-8").splitlines()]
    codes = {one["name"]: one["code"] for one in over}
    assert codes == {wrong.name: FOUND, unseen.name: SURVIVED, longer.name: SURVIVED, least.name: FOUND}
    assert {one["name"]: one["by"] for one in over}[wrong.name] == tests[1]
    left = [int(number) for number in server.read_text("utf-8").split()]
    assert left
    # Nobody may have asked yet what one that is dead came to.
    alive = [each for each in psutil.process_iter(["status"]) if each.pid in left]
    assert {each.info["status"] for each in alive} <= {psutil.STATUS_ZOMBIE}
