"""The command line with its sessions in a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from support.postgres import ON_ONE_WORKER, PostgresServer, new_schema

pytestmark = ON_ONE_WORKER

Outputs = tuple[int, str, str]


def test_its_commands_take_the_address_of_a_database(
    folder: Path,
    runs: Callable[..., Outputs],
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = new_schema()
    asyncio.run(postgres_server.run(f"create database {database}"))
    address = postgres_server.dsn_of(database, password="s3cr3t")  # noqa: S106  # it asks for none
    code, out, err = runs("run", "--stand-in", "--store", address, "--session", "mine", "Look at README.md")
    assert (code, "s3cr3t" in out + err) == (3, False)
    # Its question is answered by another command, which a variable tells where.
    monkeypatch.setenv("TURNWHEEL_STORE", address)
    code, out, _ = runs("questions", "mine")
    assert code == 0
    assert "write" in out
    code, out, _ = runs("sessions")
    assert "mine" in out
    (folder / "turnwheel.toml").write_text(f'store = "{address}"\n', "utf-8")
    code, out, _ = runs("settings", "--settings", "turnwheel.toml", "--told")
    assert (code, "s3cr3t" in out) == (0, False)
    assert f'store = "postgresql://postgres:(hidden)@/{database}?host=' in out
    assert not (folder.parent / "state").exists()
