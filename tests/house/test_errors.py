"""Each error says its object, the problem and the fix, and the page that lists them is right."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterator

import pytest

from turnwheel.effects import errors


def family(kind: type[Exception], depth: int = 0) -> Iterator[tuple[int, str, str]]:
    """*kind* and those below it: how deep, its name, and the built-in error it also is."""
    builtin = [base.__name__ for base in kind.__bases__ if base.__module__ == builtins.__name__ and depth]
    yield depth, kind.__name__, "".join(builtin)
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from family(child, depth + 1)


def test_the_page_of_errors_is_right() -> None:
    """The tree in the docstring of errors.py is the tree of its classes."""
    rows = re.findall(r"^((?: {4})+)(\w+)(?: +\((\w+)\))?", errors.__doc__ or "", re.MULTILINE)
    told = [(len(indent) // 4 - 1, kind, builtin) for indent, kind, builtin in rows]
    assert told == list(family(errors.TurnwheelError))


SAID = [
    (errors.ConfigError("turns must be more than 0; got -1"), "turns must be more than 0; got -1"),
    (errors.ToolDefinitionError("'f' has no docstring"), "'f' has no docstring"),
    (errors.ArgumentError("no decision: 1"), "no decision: 1"),
    (errors.UnknownSession("s"), "no session 's' in this store"),
    (errors.UnknownRequest("r-1", ("r-2", "r-3")), "no open question 'r-1'; open: 'r-2', 'r-3'"),
    (errors.UnknownRequest("r-1", ()), "no open question 'r-1'; open: none"),
    (
        errors.UnknownRequest("r-1", (), "a steer"),
        "no open question 'r-1': a steer came before and closes it; open: none",
    ),
    (errors.UnknownCall("r-1", ("r-2",)), "no call 'r-1' under way; there are: 'r-2'"),
    (
        errors.InputConflict("s", "p-1"),
        "session 's': another input was sent with the id 'p-1', and not this one; choose another id",
    ),
    (errors.UnknownInput("p-1", ("p-2",)), "input 'p-1' does not wait; waiting: 'p-2'"),
    (
        errors.UnknownInput("p-1", (), known=True),
        "input 'p-1' does not wait any more: it was read or taken back; waiting: none",
    ),
    (errors.UnknownRun("r3", ("r1", "r2")), "no run 'r3' in this session; there are: 'r1', 'r2'"),
    (
        errors.AnswerRefused("r-1", "pay", "amount is missing"),
        "invalid arguments for 'pay': amount is missing; the question stays open",
    ),
    (
        errors.TooLarge("the text of a prompt", 5_000_000, 4_000_000, "characters"),
        "the text of a prompt has 5,000,000 characters, and may have 4,000,000",
    ),
    (errors.QueueFull("s", 3), "session 's' has 3 prompts waiting; send this one again later"),
    (
        errors.SessionBusy("s", errors.Workplace.HERE),
        "session 's' has a run under way in this process; wait for it, send() to it, or interrupt() it",
    ),
    (
        errors.SessionBusy("s", errors.Workplace.ELSEWHERE, errors.SessionOwner("h", 9, "", 3_661.5)),
        (
            "session 's' is at work in process 9 of 'h' since 01:01:01 UTC; send() to it, or call "
            "resume(takeover=True)"
        ),
    ),
    (
        errors.SessionBusy("s", errors.Workplace.NOWHERE),
        "session 's' has a run that was left unfinished; call resume()",
    ),
    (
        errors.SessionBusy("s", errors.Workplace.NOWHERE, questions=("r-3", "r-5")),
        "session 's' waits for answers to 'r-3', 'r-5'; approve() each, then call resume()",
    ),
    (errors.SessionNotRead("s"), "session 's' was not read yet; await session.load() first"),
    (errors.SessionClosed("s"), "session 's' is closed; open it again from its store"),
    (errors.StoreError("store 'a.db' is closed"), "store 'a.db' is closed"),
    (
        errors.StoreConflict("s", 2, 3),
        "session 's' has 3 entries, not 2: another process went on with it; load it again",
    ),
    (
        errors.SessionGone("s", begun_anew=True),
        "session 's' was deleted and begun anew: open it again for the new one",
    ),
    (errors.SessionGone("s", begun_anew=False), "session 's' was deleted; open it again to begin a new one"),
    (
        errors.RunFailed("s", "r1", "error", "auth: no such key"),
        "run 'r1' ended with error: auth: no such key",
    ),
    (errors.JournalError("entry 3 is no JSON"), "entry 3 is no JSON"),
    (
        errors.NewerVersion("entry 3", 4, 3),
        "entry 3 has version 4, known here is 3: upgrade turnwheel, or go on with the one that wrote it",
    ),
    (
        errors.IllegalTransition("thinking.go", "Entered", "done"),
        "no row for Entered in thinking.go leading to done",
    ),
    (
        errors.NoPerformer("CallModel"),
        "no performer for CallModel: was one left out when the driver was built?",
    ),
]


@pytest.mark.parametrize(
    ("error", "says"), SAID, ids=[f"{type(error).__name__}{number}" for number, (error, _) in enumerate(SAID)]
)
def test_an_error_says_what_to_do(error: Exception, says: str) -> None:
    """What is told is a lower-case fragment with the value and the way out, also after a pickle."""
    assert str(error) == says
    assert str(type(error)(*error.args)) == says


def test_every_error_is_in_the_table_above() -> None:
    """A new error comes with what it says."""
    leaves = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.TurnwheelError) and not kind.__subclasses__()
    }
    itself = {errors.JournalError}  # has one below it, and is raised all the same
    assert {type(error) for error, _ in SAID} == leaves | itself
