"""An app that mounts ours, under uvicorn as docs/server.md starts it."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
COMMAND = re.compile(r"uvicorn (fastapi_mount:app.*)")


def test_the_drain_begins_while_a_reader_of_events_is_connected() -> None:
    shown = COMMAND.search((ROOT / "docs" / "server.md").read_text("utf-8"))
    assert shown is not None
    command = [sys.executable, "-m", "uvicorn", *shlex.split(shown[1]), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT / "examples", stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            running = (re.search(r"running on (http://\S+)", line) for line in process.stderr)
            url = next(found[1] for found in running if found)
            with httpx.Client(base_url=f"{url}/agents/api", timeout=PATIENCE) as client:
                assert client.post("/sessions", json={"id": "s"}).status_code == 201
                with client.stream("GET", "/sessions/s/events") as answer:
                    next(answer.iter_raw())
                    process.send_signal(signal.SIGTERM)
                    # The lifespan drains the agents. It ends although the stream was never left.
                    log = process.communicate(timeout=PATIENCE)[1]
            assert "Application shutdown complete" in log
        finally:
            process.kill()
