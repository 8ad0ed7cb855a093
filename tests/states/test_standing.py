"""What people said that binds, and is carried word for word when a conversation is summarised."""

from __future__ import annotations

import pytest

from turnwheel.effects.messages import Message, Outcome, Role, ToolResult, user
from turnwheel.states.rules.compaction import summary_message
from turnwheel.states.rules.model_messages import not_answered
from turnwheel.states.rules.standing import HEADING, MOST_OF_MESSAGE, NOTED, SECTION, standing


def told(content: str, outcome: Outcome = Outcome.OK) -> Message:
    result = ToolResult(call="c", wire_id="w", name="pay", content=content, outcome=outcome)
    return Message(role=Role.TOOL, parts=(result,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do not push.", ["Do not push."]),
        ("Mend it. Don\u2019t touch\n  the tests!  Then stop.", ["Don\u2019t touch the tests!"]),
        ("NEVER use rm\nbut in tmp. Thanks", ["NEVER use rm but in tmp."]),
        ("From now on reply in German. Fine?", ["From now on reply in German."]),
        ("You must not, e.g. at night, Mustn't. Do it", ["You must not, e.g. at night, Mustn't."]),
        (
            "Rules:\n- do not push\n- eat\n2. never pay\n\nNo longer ask",
            ["do not push", "never pay", "No longer ask"],
        ),
        ("You may push now.", ["You may push now."]),
        ("y", []),
        ("A nevertheless undo nothing", []),
        ("do not " * 200, []),
        ("Do not push. Do not push.", ["Do not push."]),
        ("", []),
    ],
)
def test_a_sentence_that_forbids_is_carried_whatever_the_summary_says(text: str, expected: list[str]) -> None:
    found = standing("All is well.", [user(text)], (), 1_000)
    assert (list(found.lines), found.summary, found.left_out) == (expected, "All is well.", 0)


@pytest.mark.parametrize(
    ("quote", "lines"),
    [
        ("- Use PostgreSQL for it", ["Use PostgreSQL for it."]),
        ('* "Use PostgreSQL   for it."', ["Use PostgreSQL for it."]),
        ("1. Use PostgreSQL for it. Keep the API.", ["Use PostgreSQL for it.", "Keep the API."]),
        # Half of a sentence may say the opposite of it.
        ("- Use", []),
        ("- Use MySQL for it.", []),
        ("- Do not use PostgreSQL for it.", []),
        ("- Do not Keep the API.", []),
        ("- ```", []),
        ("- the page says so", []),
        ("- ", []),
    ],
)
@pytest.mark.parametrize("heading", [SECTION, f"## **{SECTION}:**", SECTION.upper()])
def test_a_quote_of_a_person_is_carried_and_any_other_stays_in_the_summary(
    quote: str, lines: list[str], heading: str
) -> None:
    said = [
        user("Use PostgreSQL for it. Keep the API."),
        told("the page says so"),
    ]
    found = standing(f"State\nso far\n{heading}\n{quote}\nErrors\nnone", said, (), 1_000)
    assert list(found.lines) == lines
    rest = "" if lines or quote == "- " else f"\n{NOTED}\n{quote}"
    assert found.summary == f"State\nso far{rest}\nErrors\nnone"


def test_a_line_stands_where_it_was_said_last() -> None:
    said = [user("From now on push."), told("Never pay.", Outcome.DENIED), user("Do not push.")]
    found = standing("s", said, ("Do not push.", "Keep it."), 1_000)
    assert found.lines == ("Keep it.", "From now on push.", "Never pay.", "Do not push.")
    assert standing("s", said, ("Keep it.",), 0).lines == ()


def test_a_summary_does_not_speak_as_people() -> None:
    found = standing(f"State\n{HEADING}\n- Always pay.", [user("Pay once.")], (), 1_000)
    assert (found.lines, found.summary) == ((), "State\n\n- Always pay.")


def test_a_text_of_blanks_is_read_as_one_of_words() -> None:
    said = [user(f"Do not{' ' * 30_000}push.{chr(10) * 5_000}Never do.") for _ in range(20)]
    assert standing("s", said, (), 1_000).lines == ("Do not push.", "Never do.")


@pytest.mark.parametrize(
    "message",
    [
        told("Never pay."),
        told("Denied by a rule: do not.", Outcome.DENIED),
        told(not_answered(5.0), Outcome.DENIED),
        Message(role=Role.ASSISTANT, parts=user("I must not.").parts),
    ],
)
def test_only_people_say_what_holds(message: Message) -> None:
    assert standing("s", [message], (), 1_000).lines == ()


def test_what_has_no_room_is_counted_and_stays_in_the_summary() -> None:
    said = [user("Do not push. Do not delete anything at all. Do not pay.")]
    found = standing(f"s\n{SECTION}\n- Do not delete anything at all.\n- Do not pay.", said, (), 25)
    assert found.lines == ("Do not push.", "Do not pay.")
    assert (found.summary, found.left_out) == (f"s\n{NOTED}\n- Do not delete anything at all.", 1)


def test_a_document_in_a_message_does_not_take_all_the_room() -> None:
    clauses = [f"Clause {number} must not be read as an instruction." for number in range(200)]
    said = [user("\n".join(clauses)), user("Do not push."), user(f"{'x' * 60_000}. Never do it.")]
    lines = standing("s", said, (), 8_000).lines
    assert standing("s", [user(f"{'x' * 30_000}. Never. Do not {'x ' * 30_000}")], (), 8_000).lines == ()
    assert MOST_OF_MESSAGE <= sum(map(len, lines[:-2])) < MOST_OF_MESSAGE + 60
    assert lines[-2:] == ("Do not push.", "Never do it.")


def test_a_summary_has_the_lines_behind_it() -> None:
    message = summary_message("State: good.", ["Do not push.", "Use it."], 5.0)
    assert message.text.split("\n", 1)[1] == f"State: good.\n\n{HEADING}\n- Do not push.\n- Use it."
