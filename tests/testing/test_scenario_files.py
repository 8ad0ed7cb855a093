"""Scenario files put to an agent: what `check_scenario` compares, and what pytest shows of it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from turnwheel import Agent, Approve, tool
from turnwheel.apps.cli import main
from turnwheel.effects import ArgumentError, CallModel
from turnwheel.performers import builtin_tools
from turnwheel.testing import ScenarioError, ScriptedModel, calls, check_scenario, says

pytest_plugins = ["pytester"]


@tool(side_effect="read_only")
def order(number: int) -> str:
    """Look up an order."""
    return f"order {number}: 500 cents"


@tool
def refund(number: int, cents: int) -> str:
    """Refund an order."""
    return f"refunded {cents} cents of order {number}"


def support_agent(*rules: str, **settings: Any) -> Agent[None, str]:
    return Agent(tools=[order, refund], rules=["deny refund:number=7", *rules], **settings)


STORY = """\
# A rule of the agent refuses the refund of order 7.

prompt "Refund order 7"

model calls refund {"number": 7, "cents": 500}

model says "I may not."
"""

RECORDED = """\
# A rule of the agent refuses the refund of order 7.

prompt "Refund order 7"
----
thinking.start > thinking.prompt > thinking.go > streaming
  AppendMessage user "Refund order 7"
  CallModel run-1 openai:gpt-5 (1 message, tools order refund)

model calls refund {"number": 7, "cents": 500}
----
streaming > executing > thinking.go > streaming
  AppendMessage assistant call refund {"number": 7, "cents": 500}
  CallJudged refund deny by rule "deny refund:number=7"
  CallSettled refund denied "Denied by a rule: deny refund:number=7."
  AppendMessage tool: refund denied
  CallModel run-3 openai:gpt-5 (3 messages, tools order refund)

model says "I may not."
----
streaming > thinking.end > done
  TextDelta "I may not."
  AppendMessage assistant "I may not."
  RunEnded run end_turn (2 turns, 20 + 10 tokens)
"""

DIFF = """\
refund.scenario.txt:11: the outcome is not the recorded one
--- refund.scenario.txt (recorded)
+++ refund.scenario.txt (played)
@@ -8,9 +8,6 @@
|
 model calls refund {"number": 7, "cents": 500}
 ----
-streaming > executing > thinking.go > streaming
+streaming > executing > confirming
   AppendMessage assistant call refund {"number": 7, "cents": 500}
-  CallJudged refund deny by rule "deny refund:number=7"
-  CallSettled refund denied "Denied by a rule: deny refund:number=7."
-  AppendMessage tool: refund denied
-  CallModel run-3 openai:gpt-5 (3 messages, tools order refund)
+  AskApproval run-3 refund {"number": 7, "cents": 500}: tool: it may change anything
If the new outcome is right, record it with `pytest --record-scenarios`, and review the difference.
""".replace("\n|\n", "\n \n").rstrip("\n")

MODEL = "openai:gpt-5"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def story(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


# The check


def test_a_story_is_recorded_with_the_configuration_of_the_agent(folder: Path) -> None:
    path = story(folder / "refund.scenario.txt", STORY)
    assert check_scenario(path, support_agent(model=MODEL), record=True)
    assert path.read_text("utf-8") == RECORDED
    assert not check_scenario(path, support_agent(model=MODEL))
    assert not check_scenario(str(path), support_agent(model=MODEL).config, record=True)


def test_a_story_without_a_recorded_outcome_says_how_to_record_it(folder: Path) -> None:
    path = story(folder / "refund.scenario.txt", STORY)
    with pytest.raises(AssertionError) as caught:
        check_scenario(path, support_agent())
    assert str(caught.value) == (
        "refund.scenario.txt:1: no outcome is recorded yet; record it with `pytest --record-scenarios`, and "
        "review the difference."
    )


def test_another_outcome_is_shown_as_a_diff(folder: Path) -> None:
    text = RECORDED.partition("\nmodel says")[0]
    path = story(folder / "refund.scenario.txt", text)
    with pytest.raises(AssertionError) as caught:
        check_scenario(path, Agent(tools=[order, refund], model=MODEL))
    assert str(caught.value) == DIFF
    assert path.read_text("utf-8") == text


def test_the_difference_is_shown_before_a_command_that_it_makes_impossible(folder: Path) -> None:
    path = story(folder / "refund.scenario.txt", RECORDED)
    agent = Agent(tools=[order, refund], model=MODEL)
    for record in (False, True):
        with pytest.raises(AssertionError) as caught:
            check_scenario(path, agent, record=record)
        *difference, last = str(caught.value).splitlines()
        assert [difference[0], *difference[7:10]] == [
            "refund.scenario.txt:11: the outcome is not the recorded one",
            "-streaming > executing > thinking.go > streaming",
            "+streaming > executing > confirming",
            '   AppendMessage assistant call refund {"number": 7, "cents": 500}',
        ]
        assert last.startswith(
            "After that a command cannot happen; change the story or the agent: refund.scenario.txt:18:1: "
            "no CallModel is open; open are: AskApproval run-3 refund"
        )
        assert not any(line.startswith(("-", "+")) and "I may not" in line for line in difference)
    assert path.read_text("utf-8") == RECORDED


def test_settings_of_a_story_change_those_of_the_agent(folder: Path) -> None:
    changed = "agent mode=dont_ask\n\n" + STORY.replace("7", "8")
    path = story(folder / "refund.scenario.txt", changed)
    check_scenario(path, support_agent(), record=True)
    recorded = path.read_text("utf-8")
    assert "tools order refund" in recorded
    assert "CallJudged refund deny by mode" in recorded


def test_the_configuration_of_an_export_stands_for_that_of_the_agent(folder: Path) -> None:
    other = '{"model": {"name": "other"}}'
    text = f'agent {other}\n\n{STORY}\nagent {other} mode=dont_ask\n\nprompt "Go on"\n\nrestart {other}'
    path = story(folder / "refund.scenario.txt", f"{text}\n\ntimer fires\n")
    check_scenario(path, support_agent(model=MODEL), record=True)
    requests = [line for line in path.read_text("utf-8").splitlines() if line.startswith("  CallModel")]
    assert len(requests) == 4
    assert all(f"{MODEL} " in line and "tools order refund" in line for line in requests)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# Nothing happens.\n", '1:1: the file has no command; begin with: prompt "What the user says"'),
        (
            'prompt "Go"\n\n\napprove refund\n',
            "4:1: no AskApproval refund is open; open are: CallModel ",
        ),
        ("agent tols=(look)\n", "1:1: settings: "),
        ('prompt "Go\n', "1:8: this is no JSON"),
    ],
)
def test_a_wrong_command_is_told_with_its_place(folder: Path, text: str, problem: str) -> None:
    path = story(folder / "refund.scenario.txt", text)
    for record in (False, True):
        with pytest.raises(ScenarioError) as caught:
            check_scenario(path, support_agent(), record=record)
        assert str(caught.value).startswith(f"refund.scenario.txt:{problem}")
    assert path.read_text("utf-8") == text


def test_a_file_in_another_encoding_is_told_with_its_line(folder: Path) -> None:
    path = folder / "refund.scenario.txt"
    path.write_bytes(STORY.encode() + "\nmodel says 'é'\n".encode("latin-1"))
    with pytest.raises(ScenarioError, match=r"^refund\.scenario\.txt:9:1: the file is not UTF-8 text"):
        check_scenario(path, support_agent())


def test_a_model_calls_a_tool_that_the_agent_does_not_have(folder: Path) -> None:
    path = story(folder / "a.scenario.txt", 'prompt "Go"\n\nmodel calls cancel {}\n')
    check_scenario(path, support_agent(), record=True)
    assert "CallSettled cancel" in path.read_text("utf-8")


def test_a_story_answers_what_rules_for_commands_and_paths_look_at(folder: Path) -> None:
    text = """\
prompt "Go"

model calls bash {"command": "git log && rm x"}

inspection bash

deny bash

model calls bash {"command": "git log"}, read {"path": "../secret"}

inspection bash

tool bash returns "no commit"

inspection read
"""
    path = story(folder / "a.scenario.txt", text)
    rules = ["allow bash:command=git *", f"deny read:path={folder.parent}/secret"]
    agent = Agent(tools=builtin_tools(), rules=rules)
    check_scenario(path, agent, record=True)
    recorded = path.read_text("utf-8")
    assert '  AskApproval run-4 bash {"command": "git log && rm x"}' in recorded
    assert '  CallJudged bash allow by rule "allow bash:command=git *"' in recorded
    assert "  CallJudged read deny by rule " in recorded


@pytest.mark.parametrize(("agent", "fix"), [(support_agent, "call it"), ("support", "give it one")])
def test_what_is_checked_is_an_agent_or_its_config(folder: Path, agent: object, fix: str) -> None:
    path = story(folder / "refund.scenario.txt", STORY)
    with pytest.raises(ArgumentError, match=f"is neither an Agent nor a Config; {fix}"):
        check_scenario(path, agent)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # wrong on purpose


# A session that happened


def session_of(agent: Agent[None, str]) -> None:
    async def run() -> None:
        session = agent.session("household")
        waits = await session.run("Refund orders 7 and 8")
        await session.approve(waits.waiting[0].id, Approve())
        await session.resume()
        await session.close()
        await agent.aclose()

    asyncio.run(run())


def test_an_exported_session_is_a_story_of_the_agent_that_ran_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ScriptedModel(
        calls(("order", {"number": 8}), ("refund", {"number": 7, "cents": 5})),
        calls(("refund", {"number": 8, "cents": 500})),
        says("Order 8 is refunded, order 7 is not."),
    )
    agent = support_agent("allow order", performers={CallModel: model}, store="agent.db")
    session_of(agent)
    assert main(["export", "--store", "agent.db", "--scenario", "household"]) == 0
    text = capsys.readouterr().out
    path = story(folder / "stories" / "x.scenario.txt", text)

    assert not check_scenario(path, support_agent("allow order"))
    assert 'tool refund returns "refunded 500 cents of order 8"' in text
    assert "approve refund at=" in text
    with pytest.raises(AssertionError, match='\n\\+  CallJudged order deny by rule "deny order"'):
        check_scenario(path, support_agent("deny order"))


# In pytest

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"

AGENT = """
import pytest
from turnwheel import Agent, tool
from turnwheel.testing import ScenarioFile

@tool(side_effect="read_only")
def order(number: int) -> str:
    "Look up an order."
    raise RuntimeError

@tool
def refund(number: int, cents: int) -> str:
    "Refund an order."
    raise RuntimeError

def support_agent() -> Agent:
    return Agent(model="openai:gpt-5", tools=[order, refund], rules=["deny refund:number=7"])
"""

TEST = """
@pytest.mark.scenarios("stories")
def test_stories(scenario: ScenarioFile) -> None:
    scenario.check(support_agent())
"""

RECORD = "--record-scenarios"


def ran(pytester: pytest.Pytester, test: str, *options: str) -> tuple[pytest.RunResult, str]:
    """The outcome of pytest, with the plugin, in a folder with *test*, and its output."""
    pytester.makepyfile(test_agent=AGENT + test)
    # Of the other plugins here, one shuffles the tests and one warns without a setting.
    plugins = ("-p", "no:randomly", "-p", "no:asyncio")
    result = pytester.runpytest_inprocess("--strict-markers", "-rA", *plugins, *options)
    return result, "\n".join(result.outlines)


def test_a_marked_test_runs_once_for_each_file_below_its_folder(pytester: pytest.Pytester) -> None:
    story(pytester.path / "stories" / "refund.scenario.txt", RECORDED)
    story(pytester.path / "stories" / "more" / "again.scenario.txt", RECORDED)
    story(pytester.path / "stories" / "more" / "notes.txt", "no scenario")
    story(pytester.path / "outside.scenario.txt", RECORDED)
    result, output = ran(pytester, TEST)
    result.assert_outcomes(passed=2)
    assert "PASSED test_agent.py::test_stories[more/again.scenario.txt]" in output
    assert "PASSED test_agent.py::test_stories[refund.scenario.txt]" in output


def test_a_marker_without_a_folder_means_that_of_the_test_file(pytester: pytest.Pytester) -> None:
    story(pytester.path / "outside.scenario.txt", RECORDED)
    story(pytester.path / "stories" / "refund.scenario.txt", RECORDED)
    story(pytester.path / "node_modules" / "refund.scenario.txt", "wrong")
    result, output = ran(pytester, TEST.replace('("stories")', ""))
    result.assert_outcomes(passed=2)
    assert "node_modules" not in output


def test_a_failed_story_shows_the_text_of_the_check_and_no_traceback(pytester: pytest.Pytester) -> None:
    path = story(
        pytester.path / "stories" / "refund.scenario.txt", RECORDED.replace("thinking.go", "dancing")
    )
    wrong = story(pytester.path / "stories" / "wrong.scenario.txt", 'prompt "Go"\n\ntool order sings\n')
    result, output = ran(pytester, TEST)
    result.assert_outcomes(failed=2)
    with pytest.raises(AssertionError) as difference:
        check_scenario(path, support_agent(model=MODEL))
    with pytest.raises(ScenarioError) as mistake:
        check_scenario(wrong, support_agent(model=MODEL))
    assert f"\n{difference.value}\n" in output
    assert f"\n{mistake.value}\n" in output
    assert "Traceback" not in output
    assert "test_agent.py:" not in output.replace("test_agent.py::", "")


def test_recorded_stories_pass_and_the_summary_lists_them(pytester: pytest.Pytester) -> None:
    written = story(pytester.path / "stories" / "refund.scenario.txt", STORY)
    story(pytester.path / "stories" / "same.scenario.txt", RECORDED)
    result, output = ran(pytester, TEST)
    result.assert_outcomes(passed=1, failed=1)
    assert "no outcome is recorded yet; record it with `pytest --record-scenarios`" in output

    result, output = ran(pytester, TEST, RECORD)
    result.assert_outcomes(passed=2)
    assert written.read_text("utf-8") == RECORDED
    assert summary(output) == [
        f"{Path('stories', 'refund.scenario.txt')} by test_agent.py::test_stories[refund.scenario.txt]",
        "Review the difference in these files: they hold from now on.",
    ]

    result, output = ran(pytester, TEST, RECORD)
    result.assert_outcomes(passed=2)
    assert summary(output) == []


def summary(output: str) -> list[str]:
    _, _, after = output.partition(" recorded scenarios ")
    return after.splitlines()[1:3]


def test_the_summary_lists_what_workers_of_xdist_recorded(pytester: pytest.Pytester) -> None:
    written = story(pytester.path / "stories" / "refund.scenario.txt", STORY)
    result, output = ran(pytester, TEST, RECORD, "-n", "1")
    result.assert_outcomes(passed=1)
    assert written.read_text("utf-8") == RECORDED
    assert summary(output)[0].endswith(" by test_agent.py::test_stories[refund.scenario.txt]")


@pytest.mark.parametrize("page", ["scenarios.md", "testing.md"])
def test_the_pages_show_a_test_that_passes(pytester: pytest.Pytester, page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (name, lines), *others = re.findall(r"^    # stories/(\S+)\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    assert others == []
    story(pytester.path / "stories" / name, dedent(lines).strip("\n") + "\n")
    result, _ = ran(pytester, "\n".join(code), "-k", "test_stories")
    assert result.parseoutcomes()["passed"] == 1
    assert result.ret == pytest.ExitCode.OK


USE = 'write @pytest.mark.scenarios("folder") above def test_...(scenario)'


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        (TEST, "scenarios: the folder stories is not there; name one relative to test_agent.py"),
        (
            TEST.replace("stories", "test_agent.py", 1),
            "scenarios: the folder test_agent.py is a file, not a folder; name one relative to test_agent.py",
        ),
        (
            TEST.replace("stories", ".", 1),
            "scenarios: . has no file *.scenario.txt; write one, or export a session: turnwheel export",
        ),
        (TEST.replace('"stories"', "4"), f"the marker 'scenarios' takes one folder, as a text; {USE}"),
        (TEST.replace('"stories"', "folder=4"), f"the marker 'scenarios' takes one folder, as a text; {USE}"),
        (TEST.replace("scenario: ", "other: "), f"the marker needs the fixture `scenario`; {USE}"),
    ],
    ids=["missing folder", "file", "empty folder", "number", "keyword", "no fixture"],
)
def test_a_wrong_marker_fails_the_collection(pytester: pytest.Pytester, test: str, problem: str) -> None:
    result, output = ran(pytester, test)
    result.assert_outcomes(errors=1)
    assert f"\ntest_agent.py::test_stories: {problem}" in output


def test_the_fixture_needs_the_marker(pytester: pytest.Pytester) -> None:
    result, output = ran(pytester, TEST.replace("@pytest.mark", "# @pytest.mark"))
    result.assert_outcomes(errors=1)
    assert f"\ntest_agent.py::test_stories: the fixture `scenario` needs the marker; {USE}" in output


def test_a_marked_module_may_have_tests_without_a_scenario(pytester: pytest.Pytester) -> None:
    story(pytester.path / "stories" / "refund.scenario.txt", RECORDED)
    marked = TEST.replace("@pytest.mark", "pytestmark = pytest.mark") + "\ndef test_other(): pass\n"
    result, _ = ran(pytester, marked)
    result.assert_outcomes(passed=2)


def test_a_test_that_does_not_check_its_scenario_fails(pytester: pytest.Pytester) -> None:
    path = story(pytester.path / "stories" / "refund.scenario.txt", RECORDED)
    result, output = ran(pytester, TEST.replace(".check(", ".check, ("))
    result.assert_outcomes(failed=1)
    shown = path.relative_to(pytester.path)
    assert f"ScenarioFile('{shown}') was not played; call scenario.check(agent)" in output


def test_pytest_explains_the_marker(pytester: pytest.Pytester) -> None:
    _, output = ran(pytester, "", "--markers")
    assert "@pytest.mark.scenarios(folder): run the test once for each *.scenario.txt file" in output


def test_tests_without_scenarios_do_not_import_what_plays_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_imports():
            assert "turnwheel.testing.pytest_plugin" in sys.modules
            for module in ("testing.scenario_files", "testing.scenarios", "engine"):
                assert f"turnwheel.{module}" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("-p", "no:asyncio").assert_outcomes(passed=1)
