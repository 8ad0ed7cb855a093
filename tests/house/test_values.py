"""What a word or a state is: frozen, slotted, final; and what its name says."""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from house.source import ROOT, module_of, name, sources

from turnwheel.effects import events, records, requests
from turnwheel.states import state as states

each_pure = pytest.mark.parametrize("path", sources("effects", "states"), ids=name)

PLAIN = {
    "Log": "the shared storage below History and Rope; only ever appended to",
    "Items": "what a log needs of its list",
    "DeferredItems": "the list of a log whose beginning is read when it is looked at",
    "Draft": "the effects of one transition while it is being decided; never outlives it",
    "Effort": "what one judgement may still do; never outlives it",
}


def classes(path: Path) -> list[type]:
    """The classes that *path* defines, save enums and exceptions."""
    module = module_of(path)
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and not issubclass(kind, enum.Enum | Exception)
    ]


def parts_of(annotation: object) -> Iterator[object]:
    """*annotation* and everything in its brackets, tuples and unions of it included."""
    yield typing.get_origin(annotation) or annotation
    for part in typing.get_args(annotation):
        yield from parts_of(part)


def field_parts(kind: type) -> dict[str, set[object]]:
    """Per field of *kind*, everything its type is made of."""
    hints = typing.get_type_hints(kind)
    return {field.name: set(parts_of(hints[field.name])) for field in attrs.fields(kind)}


def is_frozen(kind: type) -> bool:
    """Whether an instance of *kind* refuses to be changed."""
    anything = "anything"
    try:
        setattr(object.__new__(kind), anything, None)
    except attrs.exceptions.FrozenInstanceError:
        return True
    except AttributeError:  # slots refuse what is not there, and no more than that
        return False
    return False


@each_pure
def test_a_value_is_frozen_slotted_and_final(path: Path) -> None:
    """Every class of the words and the states is a closed value, the few plain ones excepted by name."""
    for kind in classes(path):
        # What several states have in common is in a class of its own, which is none of them.
        is_final = getattr(kind, "__final__", False)
        assert is_final or kind.__subclasses__(), f"{kind.__name__} is not final"
        assert kind.__dictoffset__ == 0, f"{kind.__name__} has no slots"
        if kind.__name__ not in PLAIN:
            assert attrs.has(kind), f"{kind.__name__} is no attrs class"
            assert is_frozen(kind), f"{kind.__name__} is not frozen"


@each_pure
def test_a_value_holds_no_container_that_changes(path: Path) -> None:
    """Fields are tuples where others would have lists."""
    for kind in filter(attrs.has, classes(path)):
        for field, parts in field_parts(kind).items():
            assert not parts & {list, dict, set, bytearray}, f"{kind.__name__}.{field}"


@pytest.mark.parametrize("path", sorted((ROOT / "states").glob("*.py")), ids=name)
def test_a_state_has_no_flags(path: Path) -> None:
    """What a state waits for has a name: no bool, and no None that means something."""
    for kind in filter(attrs.has, classes(path)):
        for field, parts in field_parts(kind).items():
            assert not parts & {bool, type(None)}, f"{kind.__name__}.{field}"


# Names say what kind of thing it is

VERBS = (
    r"(Add|Append|Ask|Call|Cancel|Clear|Count|Decode|Fire|Grant|Inspect|Read|Replace|Run|Set|Take|Use|Withdraw)"
    r"([A-Z]|$)"
)


@pytest.mark.parametrize("effect", [*typing.get_args(requests.Request | records.Record), requests.Cancel])
def test_an_effect_is_an_order(effect: type) -> None:
    """What a transition asks for opens with a verb: CallModel, AppendMessage."""
    assert re.match(VERBS, effect.__name__)


@pytest.mark.parametrize("event", typing.get_args(events.Event))
def test_an_event_is_in_the_past(event: type) -> None:
    """What happened ends in a past tense, and says when: ModelStreamed, UserSent."""
    assert re.search(r"(ed|Given|Lost|Read|Sent|Withdrawn)$", event.__name__)
    assert typing.get_type_hints(event)["at"] is float


@pytest.mark.parametrize("state", typing.get_args(states.State))
def test_a_state_is_a_situation(state: type) -> None:
    """Where an agent is ends in -ing, until it is done."""
    assert re.search(r"(ing|^Done)$", state.__name__)
