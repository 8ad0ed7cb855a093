"""What a round and a delta cost, in function calls: a busy machine makes no more of them."""

from __future__ import annotations

import json
import subprocess
import sys

from house.source import ROOT

# What most agents do not use: leases are for stores, and here is neither a rule nor a secret.
UNUSED = ("engine.session.lease", "effects.permissions", "effects.secrets", "performers.secrets")


def test_a_round_and_a_delta_take_no_more_calls_than_their_bounds() -> None:
    """A change that needs more calls takes others away; one that needs fewer lowers the bound."""
    command = [sys.executable, "-m", "benchmarks.calls"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    measures = json.loads(printed)
    for name, measure in measures.items():
        calls, bound = sum(measure["calls"].values()), measure["bound"]
        assert calls <= bound, (
            f"a {name} takes {calls:,} calls, which is over its bound of {bound:,} in benchmarks/calls.py: "
            f"{measure['calls']}"
        )
    # What is not configured costs nothing, but for a search of the arguments for what an earlier
    # configuration redacted.
    plain = measures["round, nothing redacted"]["calls"]
    assert [module for module in UNUSED if module in plain] == []
    assert plain["performers.redactor"] == 1


def test_the_benchmark_of_the_store_runs() -> None:
    command = [sys.executable, "-m", "benchmarks.store", "2", "3", "20"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    figures = json.loads(printed)
    assert figures.keys() == {"append", "alone", "together", "commits", "page", "all", "held", "waited"}
    assert 0 < figures["commits"] <= 1


def test_an_agent_is_built_without_what_its_sessions_need() -> None:
    """Importing the library costs as much as its classes; half of them are those of states and sessions."""
    code = (
        "import sys\n"
        "from turnwheel import Agent, SQLiteStore\n"
        "Agent(model='openai:m', store=SQLiteStore('agent.db'))\n"
        "heavy = ('cattrs', 'sqlite3', 'structlog', 'turnwheel.states.', 'turnwheel.engine.driver')\n"
        "light = 'turnwheel.states.rules'\n"
        "print([name for name in sys.modules if name.startswith(heavy) and not name.startswith(light)])"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout == "[]\n"
