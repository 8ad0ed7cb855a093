"""The tables and functions of a schema: whose they are, and which version they have."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from ....effects.errors import NewerVersion, StoreError

# The version of `layout.sql`. Raise it with every change once it is released, and have `prepare` upgrade
# older schemas.
SCHEMA_VERSION = 1

# Processes that make the tables at once wait for each other: the first one does it, the others find it done.
_LAYOUT_LOCK = 0x7477686C  # "twhl"

_WHAT_IS_THERE = """
select to_regclass($1) is not null as ours,
    exists (select from pg_catalog.pg_namespace where nspname = $2) as made,
    exists (
        select from pg_catalog.pg_class join pg_catalog.pg_namespace as n on n.oid = relnamespace
        where nspname = $2
    ) as used
"""


def quoted(name: str) -> str:
    """*name* as SQL has it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


async def prepare(db: Any, schema: str, place: str) -> None:  # noqa: ANN401  # asyncpg has no types
    """
    Make the tables of *schema* in the database *db*: all of them at once, or none.

    Raises `NewerVersion` for a schema of a newer turnwheel, and `StoreError` for one of another program.
    *place* names the database in errors.
    """
    if await _version(db, schema, place):
        return
    async with db.transaction():
        await db.execute(f"select pg_advisory_xact_lock({_LAYOUT_LOCK})")
        if await _version(db, schema, place):  # again, since another process may have been quicker
            return
        package = __name__.rpartition(".")[0]
        await db.execute(files(package).joinpath("layout.sql").read_text("utf-8"))
        await db.execute("insert into turnwheel_layout values ($1)", SCHEMA_VERSION)


async def _version(db: Any, schema: str, place: str) -> int:  # noqa: ANN401  # as above
    """The version of the tables in *schema*; 0 where it is new, and then it is made inside a transaction."""
    table = f"{quoted(schema)}.turnwheel_layout"
    found = await db.fetchrow(_WHAT_IS_THERE, table, schema)
    if found["ours"]:
        version = int(await db.fetchval(f"select max(version) from {table}") or 0)  # noqa: S608  # quoted
        if version > SCHEMA_VERSION:
            where = f"the layout of schema {schema!r} of {place}"
            raise NewerVersion(where, version, SCHEMA_VERSION)
        return version
    if found["used"]:
        msg = f"schema {schema!r} of {place} has tables of another program; name another schema"
        raise StoreError(msg)
    if db.is_in_transaction():
        if not found["made"]:
            await db.execute(f"create schema {quoted(schema)}")
        await db.execute(f"create table {table} (version integer not null)")
    return 0
