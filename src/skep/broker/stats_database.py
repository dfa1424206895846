"""How PostgreSQL is doing, and how far readers outside are behind."""

from typing import Any, Final

import msgspec

from skep.broker.moments import spell_moment
from skep.broker.stats_shapes import ReaderLag, ReaderPage
from skep.db.slots import Caller
from skep.model.names import check_name

DESCRIBE_CALL: Final = "select skep.describe_database($1), skep.now()"
READERS_CALL: Final = "select * from skep.measure_readers($1, $2)"

ENTRIES_MAX: Final = 50
"""Entries of each list about PostgreSQL."""


class PostgresStats(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the statistics of PostgreSQL say. Ratios are percentages."""

    timestamp: str
    database: str
    version: str
    database_size_bytes: int
    database_cache: dict[str, Any]
    table_cache: list[dict[str, Any]]
    index_cache: list[dict[str, Any]]
    cache_summary: dict[str, Any]
    dead_tuples: list[dict[str, Any]]
    hot_updates: list[dict[str, Any]]
    active_queries: list[dict[str, Any]]
    autovacuum_status: list[dict[str, Any]]
    buffer_config: dict[str, Any]
    buffer_usage: list[dict[str, Any]] = []
    """What is in the buffers: only an extension could tell, which is not required. Empty."""
    table_sizes: list[dict[str, Any]]
    locks: list[dict[str, Any]]
    long_transactions: list[dict[str, Any]]
    """Sessions with a transaction of five seconds and more: they keep dead rows from going."""


_decode = msgspec.json.Decoder(dict[str, Any]).decode


class DatabaseStats:
    """Asks PostgreSQL about itself."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def describe(self) -> PostgresStats:
        """Read the statistics."""
        ((text, now),) = await self._caller.call(DESCRIBE_CALL, ENTRIES_MAX)
        return msgspec.convert({"timestamp": spell_moment(now), **_decode(text)}, PostgresStats)

    async def readers(self, name: str | None, limit: int) -> ReaderPage:
        """Measure how far readers on Spark are behind."""
        check_name("name", name or "")
        rows = await self._caller.call(READERS_CALL, name, limit)
        return ReaderPage(
            [
                ReaderLag(
                    queue=row["queue"],
                    name=row["name"],
                    messages=row["messages"],
                    time_lag_seconds=row["seconds"],
                    updated_at=spell_moment(row["updated_at"]),
                    active=row["is_active"],
                )
                for row in rows
            ]
        )
