"""The prover of rules over shell commands: no line gets through, and it sees one that would."""

from __future__ import annotations

import shutil

import pytest

from provers.command_lines import line_of, main, tried

pytestmark = [
    pytest.mark.prover,
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
]


def test_no_command_line_gets_past_a_denial() -> None:
    pytest.importorskip("tree_sitter_bash")
    counts, found = tried(range(2_000))
    assert [*map(str, found)] == []
    # Those that pass are run, so there must be many.
    assert counts["passed"] > 200


def test_a_line_that_gets_past_is_seen() -> None:
    _, found = tried(range(100), judge=lambda _: True)
    assert len(found) > 10
    assert all(through.line == line_of(through.number) for through in found)


def test_a_line_can_be_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tree_sitter_bash")
    with pytest.raises(SystemExit) as ended:
        main(["--again", "17"])
    assert ended.value.code == 0
    assert repr(line_of(17)) in capsys.readouterr().out
