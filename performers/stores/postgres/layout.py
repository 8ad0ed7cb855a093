"""
The layout of a schema: whose it is, which version it has, and how it comes up to the one of today.

Each file beside this module is a step of it, applied once and in the order of their numbers. A file that was
released is never changed: what comes later is a new file.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from ....effects.errors import NewerVersion, StoreError

# Those that apply the steps wait for each other: the first one does it, the others find it done.
_LAYOUT_LOCK = 0x7477686C  # "twhl"

_WHAT_IS_THERE = """
select to_regclass($1) is not null as ours,
    exists (select from pg_catalog.pg_namespace where nspname = $2) as made,
    exists (
        select from pg_catalog.pg_class join pg_catalog.pg_namespace as n on n.oid = relnamespace
        where nspname = $2
    ) as used
"""


def steps() -> list[str]:
    """The steps of the layout, each as SQL."""
    package = __name__.rpartition(".")[0]
    found = [file for file in files(package).iterdir() if file.name.endswith(".sql")]
    return [file.read_text("utf-8") for file in sorted(found, key=lambda file: file.name)]


def quoted(name: str) -> str:
    """*name* as SQL has it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


async def prepare(db: Any, schema: str, place: str) -> None:  # noqa: ANN401  # asyncpg has no types
    """
    Make *schema* of the database *db*, or bring an older one up to date: all of it at once, or nothing.

    Raises `NewerVersion` for one that a later turnwheel made, and `StoreError` for one of another program.
    *place* names the database in errors.
    """
    wanted = steps()
    if await _version(db, schema, place) == len(wanted):
        return
    async with db.transaction():
        await db.execute(f"select pg_advisory_xact_lock({_LAYOUT_LOCK})")
        version = await _version(db, schema, place)  # again, since another process may have been quicker
        for step in wanted[version:]:
            await db.execute(step)
        if version < len(wanted):
            await db.execute("delete from turnwheel_layout")
            await db.execute("insert into turnwheel_layout values ($1)", len(wanted))


async def _version(db: Any, schema: str, place: str) -> int:  # noqa: ANN401  # as above
    """The version of the layout in *schema*; 0 where it is new, and then it is made inside a transaction."""
    table = f"{quoted(schema)}.turnwheel_layout"
    found = await db.fetchrow(_WHAT_IS_THERE, table, schema)
    if found["ours"]:
        version = int(await db.fetchval(f"select max(version) from {table}") or 0)  # noqa: S608  # quoted
        if version > (known := len(steps())):
            where = f"the layout of schema {schema!r} of {place}"
            raise NewerVersion(where, version, known)
        return version
    if found["used"]:
        msg = f"schema {schema!r} of {place} has tables of another program; name another schema"
        raise StoreError(msg)
    if db.is_in_transaction():
        if not found["made"]:
            await db.execute(f"create schema {quoted(schema)}")
        await db.execute(f"create table {table} (version integer not null)")
    return 0
