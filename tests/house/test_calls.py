"""What a round and a delta cost, in function calls: a busy machine makes no more of them."""

from __future__ import annotations

import json
import subprocess
import sys

from house.source import ROOT


def test_a_round_and_a_delta_take_no_more_calls_than_their_bounds() -> None:
    """A change that needs more calls takes others away; one that needs fewer lowers the bound."""
    command = [sys.executable, "-m", "benchmarks.calls"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    for name, measure in json.loads(printed).items():
        calls, bound = sum(measure["calls"].values()), measure["bound"]
        assert calls <= bound, (
            f"a {name} takes {calls:,} calls, which is over its bound of {bound:,} in benchmarks/calls.py: "
            f"{measure['calls']}"
        )
