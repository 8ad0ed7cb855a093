"""Schemathesis, from PyPI, asks a server all that its OpenAPI document says, and finds that it is so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from real.conftest import Server
from support.ports import free_ports

pytestmark = [pytest.mark.real, pytest.mark.timeout(600, func_only=True)]

CONFIG = Path(__file__).with_name("schemathesis.toml")

EXAMPLES = 5
"""Random ones for each operation, besides one for each constraint of its schema, and sequences."""

# As the package is imported here: its scripts need not be on the path of the environment.
SERVE = (sys.executable, "-m", "turnwheel.apps.cli", "serve", "--stand-in", "--store", "s.db")


def test_the_server_is_as_its_document_says(schemathesis: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Here\n")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = (*SERVE, "--port", str(port), "--token", "ann:secret")
    asks = (
        *(*schemathesis, "--config-file", str(CONFIG), "run", f"{url}/openapi.json"),
        *("--header", "Authorization: Bearer secret", "--checks", "all", "--continue-on-failure"),
        *("--max-examples", str(EXAMPLES), "--seed", "1", "--generation-database", "none", "--no-shrink"),
        *("--request-timeout", "5", "--no-color"),
    )
    with Server(command, f"{url}/readyz", tmp_path, {}).serving():
        ended = subprocess.run(asks, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout[-10_000:] + ended.stderr[-2_000:]
        # Each part was done, and no operation left out.
        for part in ("Examples", "Coverage", "Fuzzing", "Stateful"):
            assert f"✅ {part}" in ended.stdout
    assert "Traceback" not in (tmp_path / "log").read_text("utf-8")
