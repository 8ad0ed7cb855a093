"""The examples do what they say they do."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LOOP = (
    'pay {"account": "rent", "cents": 100}\npay {"account": "food", "cents": 5}\n',
    "The rent is paid, the food is not.",
    'answered: yes, with {"account": "rent", "cents": 90}, by Bob',
    "ended: ok: paid 90 cents from rent\n",
)
TEAM = (
    "the pier is quiet\nthe mill is quiet\nNot started: there is only 1 of 2 USD left for 'scout'. ",
    "The rest is set aside for agents at work; ask again when they are done.\nend_turn, $6\n",
)
BACK = (
    " 0            UserSent\n 1 streaming  RunOpened\n",
    " 5 streaming  ToolFinished\n",
    "refunded: 99900, and in the fork: [999]\nthey differ at step 5, in event.content\n",
)


MOUNT = (
    "{'hello': 'world'}\nmay refund run with {'cents': 99900}?\n",
    "refunded 999 cents\nended: end_turn, after 2 turns\n",
)
WIRE = ("TextPiece(text='Hi')\n", "sequence='', pieces=())\n")


@pytest.mark.parametrize(
    ("script", "parts"),
    [
        ("people_in_the_loop", LOOP),
        ("team_on_a_budget", TEAM),
        ("back_in_time", BACK),
        ("own_wire", WIRE),
        ("fastapi_mount", MOUNT),
    ],
)
def test_an_example_prints_what_it_shows(
    script: str, parts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert [part for part in parts if part not in out] == []
    assert (out.startswith(parts[0]), out.endswith(parts[-1])) == (True, True)


def test_an_example_that_needs_a_key_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="set OPENAI_API_KEY or pass api_key"):
        runpy.run_path(str(EXAMPLES / "own_tool.py"), run_name="__main__")
