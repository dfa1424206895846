"""The server itself: facts that tell whether a broker can run on it, and vacuum on demand."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, Final, Literal, TypeAlias, cast

import asyncpg

from skep.db.access.connection import connect
from skep.db.access.errors import translate
from skep.db.schema.catalog import statement
from skep.model.errors import Unavailable
from skep.model.schema_name import DEFAULT_SCHEMA, split_schema

_SIZE: Final = "select pg_total_relation_size(('skep.' || quote_ident($1))::regclass)"
_QUOTED: Final = "select quote_ident($1)"
_ORIGIN: Final = "select skep.log_origin()"
_ADOPT: Final = "select skep.adopt_log()"

Origin: TypeAlias = Literal["here", "moved", "restored"]
"""Whether a log was made on its server, came by a copy of the files, or out of a dump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server reports about itself."""

    version: str
    version_num: int
    is_standby: bool
    clock: datetime
    round_trip_s: float
    """How long the query took; the clock was read meanwhile."""
    role: str
    schema: str = DEFAULT_SCHEMA
    """Of the installation, existing or not."""
    can_create_schema: bool
    owns_schema: bool | None
    """None while there is no such schema."""
    connections_max: int
    """For ordinary roles."""
    connections_used: int
    connections_ours: int
    """Of brokers, among those."""
    connections_by: Mapping[str, int]
    """How many of them each program has, by the name it gave PostgreSQL."""
    size_bytes: int
    extensions: tuple[str, ...]
    settings: Mapping[str, str]


async def inspect_server(dsn: str, *, timeout_s: float) -> ServerFacts:
    """Ask a server about itself; nothing is changed, and no schema has to exist.

    Raises:
        Unavailable: It cannot be reached, or refuses the login.
    """
    try:
        connection = await connect(dsn, timeout_s=timeout_s)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise Unavailable(f"cannot connect to PostgreSQL: {error}") from error
    try:
        asked_at_s = monotonic()
        (row,) = await connection.fetch(statement("inspect_server"))
        facts: dict[str, Any] = dict(row)
        facts |= {
            "extensions": tuple(facts["extensions"]),
            "settings": json.loads(facts["settings"]),
            "connections_by": json.loads(facts["connections_by"]),
            "round_trip_s": monotonic() - asked_at_s,
            "schema": split_schema(dsn)[1].name,
        }
        return ServerFacts(**facts)
    finally:
        await connection.close(timeout=timeout_s)


async def vacuum_tables(dsn: str, tables: Sequence[str]) -> dict[str, int]:
    """Vacuum and analyze tables of Skep; return the size of each in bytes afterwards.

    Autovacuum does it too; this is for the moment after much was deleted. It cannot run in a
    transaction and may take long, so it opens a connection without a statement timeout.

    Raises:
        SkepError: The database cannot be reached, or the role may not do it.
    """
    sizes: dict[str, int] = {}
    plain, schema = split_schema(dsn)
    try:
        connection: Any = await cast("Any", asyncpg).connect(plain)
        try:
            for table in tables:
                name = await connection.fetchval(_QUOTED, table)
                await connection.execute(f"vacuum (analyze) {schema.name}.{name}")
                sizes[table] = await connection.fetchval(schema.spelled(_SIZE), table)
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise translate(error) from error
    return sizes


async def log_origin(dsn: str) -> Origin:
    """Return how the log got to its server; raise `SkepError` if that cannot be asked."""
    return await _answer(dsn, _ORIGIN)


async def adopt_log(dsn: str) -> Origin:
    """Let this server go on with a log from another one; return how it got here."""
    return await _answer(dsn, _ADOPT)


async def _answer(dsn: str, question: str) -> Any:
    try:
        connection = await connect(dsn)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise translate(error) from error
