"""What is named in a rule, a hook or a child has to fit a tool; a mistake is told with what may be meant."""

from __future__ import annotations

import pytest

from turnwheel.effects.config import ToolSpec
from turnwheel.performers.tools.names import misfit

CLOSED = '{"type":"object","properties":{"path":{},"mode":{}},"additionalProperties":false}'
OPEN = '{"type":"object","properties":{"path":{}}}'
SPECS = (ToolSpec(name="read", schema=CLOSED), ToolSpec(name="write", schema=CLOSED))
ANY = ToolSpec(name="any", schema=OPEN)


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("read", [], ""),
        ("r*", ["path", "mode"], ""),
        ("*", [], ""),
        ("any", ["whatever"], ""),
        ("*", ["whatever"], ""),
        ("reed", [], "no tool 'reed'; did you mean 'read'? there are: read, write, any"),
        ("x", [], "no tool 'x'; there are: read, write, any"),
        ("read", ["pth"], "no argument 'pth' of 'read'; did you mean 'path'? there are: path, mode"),
        ("[rw]*", ["path", "x"], "no argument 'x' of '[rw]*'; there are: path, mode"),
    ],
)
def test_a_glob_fits_a_tool_and_its_arguments_or_says_what_there_is(
    tool: str, arguments: list[str], problem: str
) -> None:
    assert misfit(tool, (*SPECS, ANY), [(name, "*") for name in arguments]) == problem


def test_of_several_that_may_be_meant_the_nearest_is_named() -> None:
    specs = [ToolSpec(name=name, schema=OPEN) for name in ("reads", "read", "ready")]
    assert misfit("raed", specs) == "no tool 'raed'; did you mean 'read'? there are: reads, read, ready"


def test_all_tools_may_be_none() -> None:
    assert misfit("*", (), [("path", "*")]) == ""
    assert misfit("read", ()) == "no tool 'read'; there are: none"
