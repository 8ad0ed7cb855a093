"""The examples do what they say they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_people_in_the_loop_end_with_the_account_of_a_call() -> None:
    """Two questions answered out of order, one of them with other arguments."""
    script = EXAMPLES / "people_in_the_loop.py"
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout

    assert shown.startswith('pay {"account": "rent", "cents": 100}\npay {"account": "food", "cents": 5}\n')
    assert "The rent is paid, the food is not." in shown
    assert 'answered: yes, with {"account": "rent", "cents": 90}, by Bob' in shown
    assert shown.endswith("ended: ok: paid 90 cents from rent\n")


def test_a_team_on_a_budget_spends_no_more_than_there_is() -> None:
    """Two scouts go, the third is told why not, and the leader's bill is to the cent."""
    script = EXAMPLES / "team_on_a_budget.py"
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout

    assert shown == (
        "the pier is quiet\n"
        "the mill is quiet\n"
        "Not started: there is only 1 of 2 USD left for 'scout'. "
        "The rest is set aside for agents at work; ask again when they are done.\n"
        "end_turn, $6\n"
    )


def test_back_in_time_finds_the_step_and_tries_another() -> None:
    """What was refunded before the fork is not refunded again in it, and both part where it was cut."""
    script = EXAMPLES / "back_in_time.py"
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout

    assert shown.startswith(" 0            UserSent\n 1 streaming  RunOpened\n")
    assert " 5 streaming  ToolFinished\n" in shown
    assert shown.endswith("refunded: 99900, and in the fork: [999]\nthey part at step 5, in event.content\n")
