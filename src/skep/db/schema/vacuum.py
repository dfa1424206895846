"""Vacuum tables on demand, on a connection of its own.

Autovacuum does it by itself; this is for afterwards, when much was deleted at once and somebody
wants to see the effect. It cannot be part of a transaction and may take long, so it runs on no
connection that has a statement timeout.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import asyncpg

from skep.db.access.errors import translate
from skep.model.schema_name import split_schema

_SIZE: Final = "select pg_total_relation_size(('skep.' || quote_ident($1))::regclass)"
_QUOTED: Final = "select quote_ident($1)"


async def vacuum_tables(dsn: str, tables: Sequence[str]) -> dict[str, int]:
    """Vacuum and analyze tables of ours; return how many bytes each has afterwards.

    Raises:
        SkepError: the database cannot be reached, or the account may not do it.
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
