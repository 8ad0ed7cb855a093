"""
The kill test on every host, and its figures.

    python -m hosts                                  20 kills with 200 sessions each, on each host
    python -m hosts sqlite --kills 2 --sessions 40
    python -m hosts --freezes                        stops the worker, and lets it go on when all is over
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from provers.options import whole

from hosts.kills import kill_often
from hosts.known import HOSTS

# Seconds within which 99 of 100 takeovers have to be done.
BAR = 3.0


def main() -> int:
    """Kill, print, and say by the exit code whether all was well."""
    parser = argparse.ArgumentParser(prog="python -m hosts", description="The kill test on every host.")
    parser.add_argument("hosts", nargs="*", metavar="HOST", help=f"of {', '.join(HOSTS)}; all by default")
    parser.add_argument("--kills", type=whole(1), default=20)
    parser.add_argument("--sessions", type=whole(1), default=200)
    parser.add_argument("--seed", type=whole(0), default=1)
    parser.add_argument("--freezes", action="store_true")
    given = parser.parse_args()
    well = True
    for name in given.hosts or HOSTS:
        began = time.monotonic()
        with HOSTS[name]() as host, tempfile.TemporaryDirectory() as folder:
            playing = kill_often(
                host,
                Path(folder),
                kills=given.kills,
                sessions=given.sessions,
                seed=given.seed,
                freezes=given.freezes,
            )
            figures = asyncio.run(playing)
        print(f"{host.name}: {figures}, in {time.monotonic() - began:.0f} s", flush=True)
        for fault in figures.wrong[:20]:
            print(f"  {fault}", flush=True)
        well = well and not figures.wrong and figures.share(0.99) < BAR
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
