"""
The kill test on every host, and its figures.

    python -m hosts                                  20 kills with 200 sessions each, on each host
    python -m hosts sqlite --times 2 --sessions 40
    python -m hosts restate --pace 0.5               models and tools take half a second, and not one
    python -m hosts --harm freeze                    stops the worker, and lets it go on when all is over
    python -m hosts postgres absurd restate --harm crash    ends the server behind them
    python -m hosts three-nodes --harm crash                ends one node of Restate after the other
    python -m hosts postgres absurd restate --harm cut      cuts the network of one worker for five seconds
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from provers.options import whole

from hosts.host import Harm
from hosts.kills import PARTS, Trial, harm_often
from hosts.known import HOSTS, LARGE

# Seconds within which 99 of 100 takeovers have to be done; without a network a call is patient for longer.
BAR = 3.0


def main() -> int:
    """Kill, print, and say by the exit code whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m hosts", description="The kill test on every host.")
    parser.add_argument("hosts", nargs="*", metavar="HOST", help=f"of {', '.join([*HOSTS, *LARGE])}")
    parser.add_argument("--times", type=whole(1), default=20)
    parser.add_argument("--sessions", type=whole(1), default=200)
    parser.add_argument("--pace", type=float, default=1.0, help="seconds that a model or a tool takes")
    parser.add_argument("--seed", type=whole(0), default=1)
    parser.add_argument("--early", action="store_true", help="while prompts are put in")
    parser.add_argument("--harm", type=Harm, choices=[*Harm], default=Harm.KILL)
    given = parser.parse_args()
    trial = Trial(
        harm=given.harm,
        times=given.times,
        sessions=given.sessions,
        seed=given.seed,
        pace=given.pace,
        early=given.early,
    )
    well = True
    titles = ["host", "takeovers", *PARTS, "faults", "took"]
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}", flush=True)
    for name in given.hosts or HOSTS:
        began = time.monotonic()
        with {**HOSTS, **LARGE}[name]() as host, tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(harm_often(host, Path(folder), trial))
        shown = [f"{figures.share(part):.2f} s" for part in PARTS.values()]
        cells = [host.name, str(len(figures.seconds)), *shown, str(len(figures.wrong))]
        print(f"| {' | '.join([*cells, f'{time.monotonic() - began:.0f} s'])} |", flush=True)
        for fault in figures.wrong[:20]:
            print(f"  {fault}", flush=True)
        soon = given.harm is Harm.CUT or figures.share(0.99) < BAR
        well = well and not figures.wrong and soon
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
