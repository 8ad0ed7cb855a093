"""Record what the scenarios lead to anew: `make scenarios`. The difference is to be reviewed."""

from __future__ import annotations

import sys
from pathlib import Path

from turnwheel.testing.scenarios import ScenarioError, read_scenario, rewritten
from turnwheel.testing.scenarios_world import play_scenario

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Write each file again; those whose commands are wrong are named, and stay as they are."""
    wrong = 0
    for path in sorted(HERE.rglob("*.txt")):
        text = path.read_text("utf-8")
        try:
            recorded = play_scenario(read_scenario(text, str(path.relative_to(HERE))))
        except ScenarioError as error:
            print(error, file=sys.stderr)
            wrong += 1
        else:
            path.write_text(rewritten(text, recorded), "utf-8", newline="\n")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
