"""The stand-in model server: its script by itself, its script over the built-in tools, and its HTTP."""

from __future__ import annotations

import asyncio
import inspect
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from turnwheel.apps.stand_in.script import (
    BASH_MODEL,
    MODELS,
    SLOW_MODEL,
    decide,
)
from turnwheel.apps.stand_in.server import (
    MAX_BODY,
    MAX_HEAD,
    StandIn,
    main,
)
from turnwheel.apps.stand_in.wire import (
    Function,
    MadeCall,
    Message,
    Offer,
    Step,
    pieces,
)
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.events import ModelFinished, ModelStreamed
from turnwheel.effects.history import History
from turnwheel.effects.messages import Message as Said
from turnwheel.effects.messages import (
    Outcome,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from turnwheel.effects.pieces import (
    CallPiece,
    Piece,
    TextPiece,
    merged,
)
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.performers import OpenAIChat, ToolContext, builtin_tools
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.encoding import transcript
from turnwheel.states.rules import compaction, model_messages

TOOLS = {tool.spec.name: tool for tool in builtin_tools()}

LS = "README.md\ndocs/\nsetup.py"
GLOB = "docs/conf.py\nsetup.py"
README = "     1\t# Pump\n     2\t\n     3\tMoves water\n     4\tuphill.\n     5\t\n     6\t## Use\n"
GREP = "docs/conf.py:3: def build():\nsetup.py:1: class Setup:\nsetup.py:9: def main():"
WROTE = "wrote 500 bytes to REPORT.md"

Turn = tuple[Sequence[tuple[str, str]], Sequence[str]]
"""The calls of an answer, name and arguments, with what each returned."""

LOOK: Turn = ([("ls", '{"path":"."}'), ("glob", '{"pattern":"**/*.py"}')], [LS, GLOB])
READ: Turn = (
    [("read", '{"path":"README.md"}'), ("grep", '{"pattern":"^(def|class|async def) ","glob":"*.py"}')],
    [README, GREP],
)
WRITE: Turn = ([("write", '{"path":"REPORT.md","content":"..."}')], [WROTE])


def offers(*names: str) -> list[Offer]:
    """The built-in tools called *names* as they are offered, all of them unless told."""
    schemas = {name: json.loads(TOOLS[name].spec.schema) for name in names or TOOLS}
    return [offer(name, schema) for name, schema in schemas.items()]


def offer(name: str, schema: object) -> Offer:
    """A tool as it is offered on the wire."""
    about = {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}
    return msgspec.convert(about, Offer)


def talk(prompt: str, *turns: Turn) -> list[Message]:
    """A conversation of *prompt* and the *turns* since; each counts its ids anew, as some providers do."""
    messages = [Message(role="user", content=prompt)]
    for calls, results in turns:
        made = [
            MadeCall(id=f"call_{index}", function=Function(name=name, arguments=arguments))
            for index, (name, arguments) in enumerate(calls)
        ]
        messages.append(Message(role="assistant", tool_calls=made))
        messages += [
            Message(role="tool", tool_call_id=call.id, content=result)
            for call, result in zip(made, results, strict=True)
        ]
    return messages


def wishes(step: Step) -> list[tuple[str, dict[str, Any]]]:
    """The calls of *step* with their arguments decoded."""
    return [(call.name, json.loads(call.arguments)) for call in step.calls]


def written(step: Step) -> str:
    """What the one call of *step* writes."""
    ((name, arguments),) = wishes(step)
    assert name == "write"
    return str(arguments["content"])


# The script


def test_a_survey_begins_by_looking_around() -> None:
    """The first step says what it will do, and makes two calls in one message."""
    step = decide(talk("Look over this repository and write a report"), offers())
    assert step.text
    assert wishes(step) == [("ls", {"path": "."}), ("glob", {"pattern": "**/*.py"})]
    assert [call.id for call in step.calls] == ["call_0", "call_1"]


def test_then_it_reads_the_introduction_and_searches_for_definitions() -> None:
    """The file it reads is one that `ls` showed; ids go on where the conversation is."""
    step = decide(talk("Write a report", LOOK), offers())
    assert wishes(step) == [
        ("read", {"path": "README.md"}),
        ("grep", {"pattern": "^(def|class|async def) ", "glob": "*.py"}),
    ]
    assert [call.id for call in step.calls] == ["call_2", "call_3"]


@pytest.mark.parametrize(
    ("listing", "python", "read"),
    [
        ("docs/\nreadme.rst\nsetup.py", "setup.py", ["readme.rst"]),
        ("README.md/\nsetup.cfg\nsetup.py", "setup.py", ["setup.cfg"]),
        ("data.bin\nsrc/", "src/a.py", ["src/a.py"]),
        ("[the directory is empty]", "[no file matches]", []),
        ("Denied by the user. Do not try this again without asking.", "Skipped: a person denied it.", []),
    ],
)
def test_it_reads_only_a_file_that_it_was_shown(listing: str, python: str, read: list[str]) -> None:
    """A README, else the first text file, else none."""
    step = decide(talk("Write a report", (LOOK[0], [listing, python])), offers())
    assert [arguments["path"] for name, arguments in wishes(step) if name == "read"] == read


def test_a_term_in_quotes_is_what_it_searches_for() -> None:
    """It is searched for literally, and the path of the report is no term."""
    step = decide(talk('Write where "a.b(c)" is to `notes/x.md`', LOOK), offers())
    assert wishes(step)[1] == ("grep", {"pattern": r"a\.b\(c\)"})


@pytest.mark.parametrize(
    ("prompt", "path"),
    [
        ("Look over this repository and write a report", "REPORT.md"),
        ("Write a report to notes/x.md", "notes/x.md"),
        ("Write a report to `notes/x.md`, then stop.", "notes/x.md"),
        ("Save what you find as out.txt", "out.txt"),
        ("Compare e.g. setup.py with the rest", "REPORT.md"),
        ("Write a report into README.md", "REPORT.md"),
        ("Write a report into ./README.md", "REPORT.md"),
    ],
)
def test_the_report_goes_where_the_prompt_says(prompt: str, path: str) -> None:
    """Unless told it goes to REPORT.md, and never over the file it quotes."""
    ((name, arguments),) = wishes(decide(talk(prompt, LOOK, READ), offers()))
    assert (name, arguments["path"]) == ("write", path)


def test_the_report_holds_what_the_tools_returned() -> None:
    """Counts by folder, what was searched for, and what the README says of itself."""
    report = written(decide(talk("Write a report", LOOK, READ), offers()))
    for fact in (
        "> Write a report",
        "Entries at the top: 3. Folders among them: 1.",
        "Python files: 2.",
        "| `docs` | 1 |",
        "| `.` | 1 |",
        "Top-level definitions in Python: 3. Files they are in: 2.",
        "| `setup.py` | 2 |",
        "- `docs/conf.py:3`: `def build():`",
        "`README.md` has 6 lines. Its first heading is: Pump",
        "> Moves water uphill.",
    ):
        assert fact in report
    assert "at least" not in report
    assert "did not work" not in report


@pytest.mark.parametrize(
    ("tool", "result", "fact"),
    [
        ("ls", "a.py\nb/\n[1,200 more]", "Entries at the top: at least 2. Folders among them: at least 1."),
        ("glob", "a.py\n[stopped after 1; narrow the search]", "Python files: at least 1."),
        ("glob", "a.py\nto/\n[... 9,000 characters cut ...]\nrn.py\nz.py", "Python files: at least 2."),
        (
            "grep",
            "a.py:1: def a():\n[left out: 1 binary]",
            "Python: at least 1. Files they are in: at least 1.",
        ),
        ("read", "     1\t# A\n[lines 1 to 1 of 3,000; offset=2 goes on]", "`README.md` has 3,000 lines."),
        ("read", "[the file is empty]", "`README.md` has 0 lines. It has no heading."),
        ("grep", "[no line matches]", "Top-level definitions in Python: 0."),
        ("glob", "[no file matches]", "Python files: 0."),
        ("ls", "\n".join(f"f{n}" for n in range(30)), "- `f19`\n\nand 10 more"),
    ],
)
def test_a_count_of_what_was_cut_is_at_least(tool: str, result: str, fact: str) -> None:
    """The notes of the tools decide how certain a number is."""
    assert fact in written(decide(replaced(tool, result), offers()))


@pytest.mark.parametrize("tool", ["ls", "glob", "read", "grep"])
@pytest.mark.parametrize(
    "error",
    [
        "Tool raised an exception: [Errno 13] Permission denied",
        "Tool timed out after 30 s",
        model_messages.DENIED,
        model_messages.SKIPPED_AFTER_DENIAL,
        model_messages.CANCELLED,
        model_messages.OVER_BUDGET,
        model_messages.MAY_HAVE_RUN,
        model_messages.LOST,
        model_messages.not_found("ls", ()),
        model_messages.invalid_arguments("ls", "no"),
    ],
)
def test_a_failed_call_is_reported_and_not_invented(tool: str, error: str) -> None:
    """Its section is left out, and what it said is among what did not work."""
    report = written(decide(replaced(tool, error), offers()))
    assert f"## What did not work\n\n- `{tool}`: {error}\n" in report
    absent = {"ls": "Entries at", "glob": "Python files:", "read": "## README.md", "grep": "## Search"}[tool]
    assert absent not in report


def replaced(tool: str, result: str) -> list[Message]:
    """The conversation before the report is written, where *tool* returned *result*."""
    messages = talk("Write a report", LOOK, READ)
    for message, name in (
        (messages[2], "ls"),
        (messages[3], "glob"),
        (messages[5], "read"),
        (messages[6], "grep"),
    ):
        if name == tool:
            message.content = result
    return messages


def test_the_answer_gives_the_numbers_and_the_path() -> None:
    """After the write there is nothing left to call."""
    step = decide(talk("Write a report", LOOK, READ, WRITE), offers())
    assert step.calls == ()
    assert step.text == (
        "I looked over the folder. Entries at its top: 3. Python files: 2. "
        "Top-level definitions in Python: 3. The report is in REPORT.md. "
        "As a scripted stand-in I count and quote, nothing more."
    )


@pytest.mark.parametrize(
    "said", [model_messages.DENIED, "not now, please", "Tool raised an exception: no space left"]
)
def test_a_report_that_was_not_written_is_given_in_the_chat(said: str) -> None:
    """Whatever a person says when denying, it is no success."""
    step = decide(talk("Write a report", LOOK, READ, (WRITE[0], [said])), offers())
    assert step.calls == ()
    assert f"The report is not in a file but here: `write` said {said!r}.\n\n# Report\n" in step.text


@pytest.mark.parametrize(
    ("names", "calls"),
    [
        (("ls",), [["ls"]]),
        (("grep", "bash"), [["grep"]]),
        (("glob", "read", "write"), [["glob"], ["read"], ["write"]]),
        (("write", "edit"), [["write"]]),
    ],
)
def test_only_offered_tools_are_called(names: tuple[str, ...], calls: list[list[str]]) -> None:
    """A stage without its tools is passed over, and the survey ends all the same."""
    results = {"ls": LS, "glob": GLOB, "read": README, "grep": GREP, "write": WROTE}
    turns: list[Turn] = []
    while (step := decide(talk("Write a report", *turns), offers(*names))).calls:
        made = [(call.name, call.arguments) for call in step.calls]
        turns.append((made, [results[name] for name, _ in made]))
    assert [[name for name, _ in made] for made, _ in turns] == calls
    assert ("# Report" in step.text) == ("write" not in names)


@pytest.mark.parametrize("tools", [[], offers("edit"), [offer("weather", {"type": "object"})]])
def test_without_tools_it_says_what_it_is(tools: list[Offer]) -> None:
    """It is a scripted stand-in and claims nothing else."""
    step = decide(talk("Look over this repository"), tools)
    assert step.calls == ()
    assert "scripted stand-in" in step.text
    assert "No tool that I know is offered" in step.text


def test_small_talk_is_no_order() -> None:
    """Nothing is written because somebody said thanks."""
    step = decide(
        [*talk("Write a report", LOOK, READ, WRITE), Message(role="user", content="Thanks!")], offers()
    )
    assert step.calls == ()
    assert "scripted stand-in" in step.text


@pytest.mark.parametrize("prompt", ["What does README.md say?", "How long is README.md, please?"])
def test_a_question_about_a_file_is_answered_from_it(prompt: str) -> None:
    """It reads the file and gives facts about it."""
    step = decide(talk(prompt), offers())
    assert wishes(step) == [("read", {"path": "README.md"})]
    answer = decide(talk(prompt, ([("read", step.calls[0].arguments)], [README])), offers())
    assert answer == Step(
        text="README.md has 6 lines and 7 words. Its first heading is 'Pump'. It begins:\n\n"
        "> Moves water uphill."
    )


def test_a_file_that_was_read_in_part_has_at_least_these_words() -> None:
    """The number of lines is known all the same."""
    part = "     1\tone two\n[lines 1 to 1 of 90; offset=2 goes on]"
    answer = decide(talk("How long is a.txt?", ([("read", '{"path":"a.txt"}')], [part])), offers())
    assert answer.text.startswith("a.txt has 90 lines and at least 2 words.")


def test_a_file_that_cannot_be_read_is_not_described() -> None:
    """The answer is the error."""
    error = "Tool raised an exception: [Errno 2] No such file or directory: 'a.txt'"
    answer = decide(talk("How long is a.txt?", ([("read", '{"path":"a.txt"}')], [error])), offers())
    assert answer == Step(text=f"I could not read a.txt: {error}")


def test_a_question_is_answered_with_any_tool_that_takes_a_path() -> None:
    """So that a tool of one's own is called without a model that understands it."""
    tools = [offer("word_count", {"type": "object", "properties": {"path": {}}, "required": ["path"]})]
    step = decide(talk("How long is README.md?"), tools)
    assert wishes(step) == [("word_count", {"path": "README.md"})]
    answer = decide(talk("How long is README.md?", ([("word_count", "{}")], ["42"])), tools)
    assert answer == Step(text="`word_count` returned:\n\n```\n42\n```")


def test_a_question_without_a_tool_for_it_is_not_answered() -> None:
    """It says that it cannot look."""
    assert decide(talk("How long is README.md?"), []).text.startswith("I cannot look at README.md.")


def test_an_order_to_write_is_no_question() -> None:
    """Neither a question mark nor the name of the report makes it one."""
    assert wishes(decide(talk("Could you write a report to x.md?"), offers()))[0][0] == "ls"
    assert wishes(decide(talk("How long is REPORT.md?"), offers())) == [("read", {"path": "REPORT.md"})]


def test_the_last_request_is_the_one_that_counts() -> None:
    """What was done before it was done for another."""
    messages = [*talk("Write a report", LOOK, READ), Message(role="user", content="How long is setup.py?")]
    assert wishes(decide(messages, offers())) == [("read", {"path": "setup.py"})]


def test_content_may_come_in_parts() -> None:
    """As some clients send it."""
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "How long is "}, {"type": "text", "text": "a.md?"}],
    }
    assert wishes(decide([msgspec.convert(message, Message)], offers())) == [("read", {"path": "a.md"})]


@pytest.mark.parametrize("arguments", ["", "[]", "{", "[" * 100_000, '{"path": 5}'])
def test_calls_of_another_model_may_have_any_arguments(arguments: str) -> None:
    """What was called with them is in the conversation and has to be read."""
    step = decide(talk("Write a report", LOOK, ([("read", arguments)], [README])), offers())
    assert "has 6 lines" in written(step)


def test_a_call_without_a_result_did_not_run() -> None:
    """Instead of a result from another turn with the same id."""
    messages = talk("Write a report", LOOK, READ)
    del messages[5]
    assert "- `read`: Not run: there is no result" in written(decide(messages, offers()))


def test_the_bash_model_runs_the_command_of_the_prompt() -> None:
    """And reports what it printed; the other models do not."""
    prompt = "Please run: sleep 30; echo done"
    step = decide(talk(prompt), offers(), model=BASH_MODEL)
    assert wishes(step) == [("bash", {"command": "sleep 30; echo done"})]
    done: Turn = ([("bash", step.calls[0].arguments)], ["done\n[exit code 0]"])
    answer = decide(talk(prompt, done), offers(), model=BASH_MODEL)
    assert answer == Step(text="`bash` returned:\n\n```\ndone\n[exit code 0]\n```")
    assert "bash" not in [name for name, _ in wishes(decide(talk(prompt), offers()))]


def test_the_bash_model_runs_several_commands_at_once() -> None:
    """On lines of their own, or one behind the other; and reports on each."""
    for prompt in (
        "run: echo one\nrun: echo two",
        "run: echo one and run: echo two",
        "run: echo one run: echo two",
    ):
        step = decide(talk(prompt), offers(), model=BASH_MODEL)
        assert wishes(step) == [("bash", {"command": "echo one"}), ("bash", {"command": "echo two"})]
    done: Turn = ([("bash", "{}"), ("bash", "{}")], ["one\n[exit code 0]", "no"])
    answer = decide(talk("run: a and run: b", done), offers(), model=BASH_MODEL).text
    assert "`bash` returned:\n\n```\none\n" in answer
    assert "`bash` did not succeed:\n\n```\nno\n" in answer


@pytest.mark.parametrize(
    ("result", "says"), [(model_messages.LOST, "did not succeed:"), ("", "did not succeed and said nothing.")]
)
def test_a_command_that_did_not_run_to_its_end_is_said_not_to(result: str, says: str) -> None:
    """Only an exit code tells that it ended."""
    answer = decide(talk("run: x", ([("bash", "{}")], [result])), offers(), model=BASH_MODEL)
    assert says in answer.text


@pytest.mark.parametrize(("prompt", "names"), [("hello", ("bash",)), ("run: ls", ("read",))])
def test_the_bash_model_needs_a_command_and_a_tool(prompt: str, names: tuple[str, ...]) -> None:
    """Otherwise it says what is missing."""
    step = decide(talk(prompt), offers(*names), model=BASH_MODEL)
    assert step.calls == ()
    assert "scripted stand-in" in step.text


# A conversation


def said(*texts_: str) -> list[Message]:
    """What the user says."""
    return [Message(role="user", content=text) for text in texts_]


ANSWER = [Message(role="assistant", content="Done.")]
SKIPPED: Turn = (WRITE[0], [model_messages.SKIPPED_AFTER_STEER])


def test_two_places_are_two_writes_at_once() -> None:
    """The report into the first, its numbers into the other."""
    step = decide(talk("Write a report to R.md and its numbers to N.md", LOOK, READ), offers())
    (first, report), (second, numbers) = wishes(step)
    assert [first, report["path"], second, numbers["path"]] == ["write", "R.md", "write", "N.md"]
    assert numbers["content"] == (
        "# In numbers\n\n- Entries at its top: 3\n- Python files: 2\n- Top-level definitions in Python: 3\n"
    )
    both: Turn = (
        [("write", json.dumps(report)), ("write", json.dumps(numbers))],
        ["wrote 1 byte to R.md", "Denied by the user."],
    )
    answer = decide(talk("Write a report to R.md and its numbers to N.md", LOOK, READ, both), offers())
    assert "The report is in R.md. Of N.md `write` said 'Denied by the user.'." in answer.text


def test_what_is_said_on_the_way_belongs_to_the_task() -> None:
    """What was done stays done, what was given up is done as is said now, and that is acknowledged."""
    messages = [*talk("Write a report to R.md", LOOK, READ, SKIPPED), *said("put it into S.md")]
    step = decide(messages, offers())
    assert step.text.startswith("You said 'put it into S.md', so I go on with that.")
    ((_, arguments),) = wishes(step)
    assert arguments["path"] == "S.md"
    assert "> Write a report to R.md\n> put it into S.md" in arguments["content"]
    done = [*messages, *talk("", (WRITE[0], ["wrote 1 byte to S.md"]))[1:]]
    assert decide(done, offers()).calls == ()


@pytest.mark.parametrize("words", ["stop", "That is enough!", "never mind"])
@pytest.mark.parametrize("model", MODELS)
def test_on_the_way_it_can_be_told_to_stop(words: str, model: str) -> None:
    """It says what was done; at the beginning the same words are an order like any other."""
    step = decide([*talk("run: x", LOOK, SKIPPED), *said(words)], offers(), model=model)
    assert step == Step(text=f"You said {words!r}, so I stop here. I made 2 tool calls: ls x1, glob x1.")
    nothing = decide([*talk("run: x", SKIPPED), *said(words)], offers(), model=model)
    assert nothing == Step(text=f"You said {words!r}, so I stop here.")


def test_a_question_on_the_way_is_answered() -> None:
    """From the file, as any."""
    messages = [*talk("Write a report", LOOK), *said("How long is setup.py?")]
    step = decide(messages, offers())
    assert wishes(step) == [("read", {"path": "setup.py"})]
    answer = decide([*messages, *talk("", ([("read", "{}")], [README]))[1:]], offers())
    assert answer.text.startswith("setup.py has 6 lines")


@pytest.mark.parametrize(
    ("no", "path"),
    [("put it into S.md", "S.md"), ("R.md is taken, use docs/x.txt", "docs/x.txt"), ("not now", None)],
)
def test_a_no_that_names_a_place_is_heeded(no: str, path: str | None) -> None:
    """Once: what is refused there, too, is given in the chat."""
    write: Turn = ([("write", '{"path":"R.md","content":"the report"}')], [no])
    step = decide(talk("Write a report to R.md", LOOK, READ, write), offers())
    if path is None:
        assert step.calls == ()
        return
    assert step.text == f"You said no to R.md, so I write it to {path}."
    assert wishes(step) == [("write", {"path": path, "content": "the report"})]
    again: Turn = ([("write", step.calls[0].arguments)], [f"no, not {path}"])
    assert decide(talk("Write a report to R.md", LOOK, READ, write, again), offers()).calls == ()


def test_it_can_say_what_it_did() -> None:
    """In the whole conversation, and nothing where it did nothing."""
    assert decide(said("What have you done?"), offers()).text == "I have called no tool yet."
    messages = [
        *talk("Write a report", LOOK, (READ[0], [model_messages.DENIED, GREP]), WRITE),
        *ANSWER,
        *said("what did you do"),
    ]
    assert decide(messages, offers()).text == (
        "I made 5 tool calls: ls x1, glob x1, read x1, grep x1, write x1. "
        "1 of them did not succeed. I wrote REPORT.md."
    )


@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("And now?", []),
        ("That is a nice colour.", []),
        ("Look again", ["ls", "glob"]),
        ("What is in a.md?", ["read"]),
    ],
)
def test_later_in_a_conversation_only_work_is_work(prompt: str, calls: list[str]) -> None:
    """At its beginning whatever is said is an order; later it may just be talk."""
    step = decide([*talk("Write a report", LOOK, READ, WRITE), *ANSWER, *said(prompt)], offers())
    assert [name for name, _ in wishes(step)] == calls
    assert ("scripted stand-in" in step.text) == (not calls)


# Summaries


def history(prompt: str) -> list[Said]:
    """A conversation in which a file was read and a write denied."""
    calls = (
        ToolCall(id="1", wire_id="a", name="read", arguments='{"path":"a.md"}'),
        ToolCall(id="2", wire_id="a", name="write", arguments="{}"),
    )
    results = (
        ToolResult(call="1", wire_id="a", name="read", content="     1\tHello"),
        ToolResult(
            call="2", wire_id="a", name="write", content=model_messages.DENIED, outcome=Outcome.DENIED
        ),
    )
    return [
        user(prompt),
        Said(role=Role.ASSISTANT, parts=(Text(text="I do."), *calls)),
        Said(role=Role.TOOL, parts=results),
    ]


def summarised(messages: Sequence[Said]) -> str:
    """What the stand-in makes of *messages* when it is asked as the loop asks."""
    asked = [
        Message(role="system", content=compaction.INSTRUCTIONS),
        Message(role="user", content=transcript(messages)),
    ]
    step = decide(asked)
    assert step.calls == ()
    return step.text


def test_a_summary_is_made_of_facts() -> None:
    """What was asked first and last, which tools were used, what failed, what came last."""
    assert summarised([*history("Look at\nthis"), user("And now that")]).splitlines() == [
        "Original task: Look at this",
        "Latest request: And now that",
        "Actions taken: 2 tool calls (read x1, write x1)",
        "Errors: write, denied x1",
        f"Last result: write: {model_messages.DENIED}",
    ]


def test_a_summary_of_nothing_says_so() -> None:
    """There may be nothing to tell."""
    assert summarised([]).splitlines() == [
        "Original task: none was given",
        "Latest request: none was given",
        "Actions taken: 0 tool calls (none)",
        "Errors: none",
    ]


def test_work_goes_on_after_a_summary() -> None:
    """The request is found in it, also when summarised twice, and what was kept counts as done."""
    once = compaction.summary_message(summarised(history("Write a report to x.md")), 0.0)
    twice = compaction.summary_message(summarised([once]), 0.0)
    for summary in (once, twice):
        step = decide(talk(summary.text, LOOK, READ), offers())
        assert wishes(step)[0][1]["path"] == "x.md"
        newer = [Message(role="user", content=summary.text), *talk("How long is a.md?")]
        assert wishes(decide(newer, offers())) == [("read", {"path": "a.md"})]


# The script over the built-in tools


async def performed(prompt: str, folder: Path) -> tuple[list[str], str]:
    """Play *prompt* with the built-in tools in *folder*: the tools called, and the answer."""
    context = ToolContext[object](cwd=folder.resolve(), deps=None)
    turns: list[Turn] = []
    while (step := decide(talk(prompt, *turns), offers())).calls:
        made = [(call.name, call.arguments) for call in step.calls]
        turns.append((made, [await result_of(name, arguments, context) for name, arguments in made]))
    return [name for made, _ in turns for name, _ in made], step.text


async def result_of(name: str, arguments: str, context: ToolContext[object]) -> str:
    """What the tool *name* returns, or the error as a runner would tell it."""
    tool = TOOLS[name]
    try:
        result = tool.function(**tool.bind(arguments, context))
        return str(await result if inspect.isawaitable(result) else result)
    except (OSError, ValueError) as error:
        return f"Tool raised an exception: {error}"


async def test_the_report_about_real_files_is_true(tmp_path: Path) -> None:
    """What the built-in tools return is read as they mean it."""
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Pump\n\nMoves water.\n\n## Use\n")
    (tmp_path / "src" / "a.py").write_text("class A:\n    def inner(self): ...\n\nasync def b(): ...\n")
    (tmp_path / "src" / "deep" / "c.py").write_text("def c(): ...\n")
    names, answer = await performed("Look over this and write a report to notes/x.md", tmp_path)
    assert names == ["ls", "glob", "read", "grep", "write"]
    assert "Entries at its top: 2. Python files: 2. Top-level definitions in Python: 3." in answer
    assert "The report is in notes/x.md." in answer
    report = (tmp_path / "notes" / "x.md").read_text()
    assert "Folders among them: 1." in report
    assert "| `src` | 1 |\n| `src/deep` | 1 |" in report
    assert (
        "`README.md` has 5 lines. Its first heading is: Pump\n\nIts first paragraph:\n\n> Moves water."
        in report
    )


async def test_an_empty_folder_is_said_to_be_empty(tmp_path: Path) -> None:
    """Numbers are zero and nothing is claimed to have failed."""
    names, answer = await performed("Write a report", tmp_path)
    assert names == ["ls", "glob", "grep", "write"]
    assert "Entries at its top: 0. Python files: 0. Top-level definitions in Python: 0." in answer
    assert "did not work" not in (tmp_path / "REPORT.md").read_text()


async def test_a_refused_path_leaves_the_report_in_the_chat(tmp_path: Path) -> None:
    """The tool's own words say why."""
    _, answer = await performed("Write a report to ../x.md", tmp_path)
    assert "outside of the directories open to tools" in answer
    assert "# Report" in answer


# The server


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a running stand-in, with its address as base."""
    async with StandIn() as server, httpx.AsyncClient(base_url=server.base_url) as client:
        yield client


def ask(
    prompt: str = "Write a report", *, stream: bool = True, model: str = "stand-in", **more: object
) -> dict[str, Any]:
    """The body of a request with the built-in tools."""
    tools = [
        {"type": "function", "function": {"name": tool.spec.name, "parameters": json.loads(tool.spec.schema)}}
        for tool in TOOLS.values()
    ]
    messages = [{"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "tools": tools, "stream": stream, **more}


def events(body: str) -> list[Any]:
    """The data of the events in *body*, decoded, with the closing [DONE] as text."""
    datas = [event.removeprefix("data: ") for event in body.split("\n\n")[:-1]]
    return [json.loads(data) if data != "[DONE]" else data for data in datas]


async def test_an_answer_is_streamed_in_small_pieces(client: httpx.AsyncClient) -> None:
    """A role, text, two calls with their arguments split, a finish reason, the usage, and the end."""
    body = ask(stream_options={"include_usage": True})
    async with client.stream("POST", "chat/completions", json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["transfer-encoding"] == "chunked"
        *chunks, usage, done = events((await response.aread()).decode())
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert (
        usage["usage"]["total_tokens"]
        == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    )
    assert usage["usage"]["completion_tokens"] > 0
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + [
        "tool_calls"
    ]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    step = decide(talk("Write a report"), offers())
    assert "".join(delta.get("content", "") for delta in deltas) == step.text
    assert folded(deltas) == [(call.id, call.name, call.arguments) for call in step.calls]
    assert sum("tool_calls" in delta for delta in deltas) > 2 * len(step.calls)


def folded(deltas: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The calls in *deltas* put together: id, name and arguments."""
    calls: list[tuple[str, str, str]] = []
    for delta in deltas:
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                assert part["index"] == len(calls)
                calls.append((part["id"], part["function"]["name"], ""))
            id_, name, arguments = calls[part["index"]]
            calls[part["index"]] = (id_, name, arguments + part["function"]["arguments"])
    return calls


async def asked(prompt: str, *turns: Turn) -> tuple[ModelFinished, tuple[Piece, ...]]:
    """What our own performer makes of the answer in that conversation: its end, and all its pieces."""
    history = [user(prompt)]
    for calls, results in turns:
        made = [
            ToolCall(id=f"run-{n}", wire_id="a", name=name, arguments=a) for n, (name, a) in enumerate(calls)
        ]
        parts = [
            ToolResult(call=call.id, wire_id="a", name=call.name, content=result)
            for call, result in zip(made, results, strict=True)
        ]
        history.append(Said(role=Role.ASSISTANT, parts=tuple(made)))
        history.append(Said(role=Role.TOOL, parts=tuple(parts)))
    emitted: list[object] = []
    config = Config(
        model=ModelSpec(name="openai:stand-in"), tools=tuple(tool.spec for tool in TOOLS.values())
    )
    scene = PerformContext(
        session="s",
        run="r",
        config=config,
        history=History.of(*history),
        clock=SystemClock(),
        emit=emitted.append,
    )
    view = Conversation(revision=0, length=len(history))
    async with StandIn() as server:
        model = OpenAIChat(server.base_url, "no key is needed")
        answer = await model(
            CallModel(id="r-1", model="openai:stand-in", view=view, tools=tuple(TOOLS)), scene
        )
        await model.aclose()
    assert isinstance(answer, ModelFinished)
    streamed = [piece for event in emitted if isinstance(event, ModelStreamed) for piece in event.pieces]
    return answer, merged([*streamed, *answer.pieces])


async def test_our_own_performer_understands_it() -> None:
    """Text, calls, the reason to stop and the usage arrive; results are found again, whatever their ids."""
    for turns in ((), (LOOK,), (LOOK, READ), (LOOK, READ, WRITE)):
        step = decide(talk("Write a report", *turns), offers())
        answer, got = await asked("Write a report", *turns)
        calls = [CallPiece(n, call.id, call.name, call.arguments) for n, call in enumerate(step.calls)]
        assert got == (TextPiece(step.text), *calls)
        assert answer.stop is (StopReason.TOOL_USE if step.calls else StopReason.END_TURN)
        assert answer.usage.input > 0
        assert answer.usage.output == step.size // 4


async def test_each_event_is_one_http_chunk() -> None:
    """So that what a client reads at once is what a slow provider would send at once."""
    body = json.dumps(ask()).encode()
    async with StandIn() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(post(body, "Connection: close\r\n"))
        _, _, chunked = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    count = 0
    while chunked != b"0\r\n\r\n":
        size, _, rest = chunked.partition(b"\r\n")
        chunk, end, chunked = rest[: int(size, 16)], rest[int(size, 16) :][:2], rest[int(size, 16) + 2 :]
        assert (chunk[:6], chunk[-2:], chunk.count(b"\n\n"), end) == (b"data: ", b"\n\n", 1, b"\r\n")
        count += 1
    assert count > 20


async def test_usage_is_streamed_only_when_asked_for(client: httpx.AsyncClient) -> None:
    """As the API has it."""
    response = await client.post("chat/completions", json=ask(stream_options=None))
    assert all("usage" not in chunk for chunk in events(response.text)[:-1])


async def test_an_answer_may_come_as_one_object(client: httpx.AsyncClient) -> None:
    """With calls, and without."""
    response = await client.post("chat/completions", json=ask(stream=False))
    step = decide(talk("Write a report"), offers())
    answer = response.json()
    assert (answer["object"], answer["model"]) == ("chat.completion", "stand-in")
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == step.text
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["ls", "glob"]
    assert set(answer["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    plain = (await client.post("chat/completions", json=ask("Hello", stream=False))).json()["choices"][0]
    assert plain["finish_reason"] == "stop"
    assert "tool_calls" not in plain["message"]


async def test_health_and_models_can_be_asked_for(client: httpx.AsyncClient) -> None:
    """All models it has are scripted stand-ins, and say so."""
    health = await client.get(str(client.base_url.copy_with(path="/health")))
    assert (health.status_code, health.json()) == (200, {"status": "ok", "server": "scripted stand-in"})
    listed = (await client.get("models?limit=5")).json()
    assert [model["id"] for model in listed["data"]] == list(MODELS)
    assert {model["owned_by"] for model in listed["data"]} == {"scripted stand-in"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", "chat/completions", b"{", 400, "not a chat-completions request"),
        ("POST", "chat/completions", b"", 400, "not a chat-completions request"),
        ("POST", "chat/completions", b"[" * 100_000, 400, "not a chat-completions request"),
        ("POST", "chat/completions", b'{"model":"stand-in"}', 400, "`messages`"),
        ("POST", "chat/completions", b'{"model":"stand-in","messages":[]}', 400, "$.messages"),
        (
            "POST",
            "chat/completions",
            b'{"model":"stand-in","messages":[{"role":5}]}',
            400,
            "$.messages[0].role",
        ),
        (
            "POST",
            "chat/completions",
            b'{"model":"gpt-5","messages":[{"role":"user"}]}',
            404,
            "no model 'gpt-5'",
        ),
        ("POST", "chat/completions", b"x" * (MAX_BODY + 1), 413, "too large"),
        ("GET", "chat/completions", b"", 405, "takes POST"),
        ("POST", "models", b"{}", 405, "takes GET"),
        ("POST", "embeddings", b"{}", 404, "no '/v1/embeddings' here"),
    ],
)
async def test_a_bad_request_is_told_what_is_wrong(
    client: httpx.AsyncClient, method: str, path: str, body: bytes, status: int, says: str
) -> None:
    """In the shape of the API's errors, and the connection is good for the next request."""
    response = await client.request(method, path, content=body)
    assert response.status_code == status
    error = response.json()["error"]
    assert says in error["message"]
    assert (error["type"], error["param"]) == ("invalid_request_error", None)
    assert ("allow" in response.headers) == (status == 405)
    local = peer(response)
    assert peer(await client.get("models")) == local


def peer(response: httpx.Response) -> object:
    """Our end of the connection *response* came over, which tells connections apart."""
    return response.extensions["network_stream"].get_extra_info("client_addr")


async def test_a_connection_is_kept_for_the_next_request(client: httpx.AsyncClient) -> None:
    """After a stream, too."""
    used = {
        peer(await client.post("chat/completions", json=ask(stream=stream))) for stream in (True, False, True)
    }
    assert len(used) == 1


def post(body: bytes, more: str = "") -> bytes:
    """A request for a chat completion as bytes."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def port_of(server: StandIn) -> int:
    """The port *server* listens on."""
    return httpx.URL(server.base_url).port or 0


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /health HTTP/1.0\r\n\r\n", 400),
        (b"POST /health HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /health HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET /health HTTP/1.1\r\nX: " + b"x" * MAX_HEAD + b"\r\n\r\n", 431),
    ],
)
async def test_what_has_no_clear_end_closes_the_connection(request_: bytes, status: int) -> None:
    """After an answer that says why."""
    async with StandIn() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(request_)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize("sent", [b"", b"GET /hea", post(b"12345")[:-2]])
async def test_a_client_that_leaves_early_is_forgotten(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever it stopped, nothing is logged and the next one is served."""
    async with StandIn() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        async with httpx.AsyncClient(base_url=server.base_url) as client:
            assert (await client.get("models")).status_code == 200
    assert caplog.records == []


async def test_a_client_may_leave_in_the_middle_of_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    """Even abruptly: nothing is logged, and the next one is served."""
    async with StandIn(pace=0.001) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(post(json.dumps(ask()).encode()))
        await reader.readuntil(b"data: ")
        writer.transport.abort()
        async with httpx.AsyncClient(base_url=server.base_url) as client:
            assert (await client.post("chat/completions", json=ask())).text.endswith("data: [DONE]\n\n")
    assert caplog.records == []


async def test_leaving_breaks_off_what_is_being_streamed(caplog: pytest.LogCaptureFixture) -> None:
    """No task is left behind, though the stream would have gone on for minutes."""
    before = asyncio.all_tasks()
    async with StandIn(pace=60.0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(post(json.dumps(ask()).encode()))
        await reader.readuntil(b"data: ")
    assert asyncio.all_tasks() == before
    assert b"[DONE]" not in await rest_of(reader)
    writer.close()
    assert caplog.records == []


async def test_a_client_that_does_not_read_does_not_keep_the_server() -> None:
    """Its answer is larger than every buffer on the way, and leaving ends all the same."""
    before = asyncio.all_tasks()
    body = ask("run: " + "x" * (MAX_BODY - 10_000), model=BASH_MODEL, stream=False)
    async with StandIn() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(post(json.dumps(body).encode()))
        assert await reader.readexactly(1) == b"H"
    assert asyncio.all_tasks() == before
    assert len(await rest_of(reader)) < MAX_BODY - 10_000
    writer.close()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What is still to be read, though the other side may have reset the connection."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_the_slow_model_takes_its_time(client: httpx.AsyncClient) -> None:
    """Its stream is not over when its first piece has come, so that it can be interrupted."""
    body = ask(model=SLOW_MODEL)
    async with client.stream("POST", "chat/completions", json=body) as response:
        received = await anext(response.aiter_text())
    assert "[DONE]" not in received


async def test_any_text_comes_back_whole(client: httpx.AsyncClient) -> None:
    """Quotes, line breaks, emoji and what else JSON has to escape."""
    odd = 'run: printf "ä\\n\U0001f6a2\t\x7f\u2028" # ' + "x" * 200
    response = await client.post("chat/completions", json=ask(odd, model=BASH_MODEL))
    deltas = [chunk["choices"][0]["delta"] for chunk in events(response.text)[:-1]]
    ((_, _, arguments),) = folded(deltas)
    assert json.loads(arguments) == {"command": odd.removeprefix("run: ")}


@pytest.mark.parametrize(
    "text", ["", "a", "one two three, and a longwordthatdoesnotend here", " " * 30, "x\ny" * 9]
)
def test_pieces_are_small_and_lose_nothing(text: str) -> None:
    """Three to eight characters, but for the last, which is what remains."""
    cut = list(pieces(text))
    assert "".join(cut) == text
    assert all(3 <= len(piece) <= 8 for piece in cut[:-1])
    assert all(1 <= len(piece) <= 8 for piece in cut[-1:])


def test_pieces_are_cut_before_a_space() -> None:
    """The last one that fits, so that words stay whole where they can."""
    assert list(pieces("Moves up on")) == ["Moves up", " on"]
    assert list(pieces("I am uphill")) == ["I am", " uphill"]


def test_the_address_is_known_only_while_it_runs() -> None:
    """Asking before is a mistake that is told."""
    with pytest.raises(RuntimeError, match="not running"):
        _ = StandIn().base_url


def test_the_command_line_serves_until_interrupted() -> None:
    """The first line it prints is its base URL, and an interrupt is a normal end."""
    command = [sys.executable, "-m", "turnwheel.apps.stand_in.server", "--pace", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert httpx.get(f"{url}/models").status_code == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, not with a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    assert f"cannot listen on port {port}: " in capsys.readouterr().err
    assert main(["--port", "70000"]) == 1
