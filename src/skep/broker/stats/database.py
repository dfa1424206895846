"""How PostgreSQL is doing, and how far readers outside are behind.

Times in the answer are as PostgreSQL spells them.
"""

from typing import Any, Final

import msgspec

from skep.broker.paging import from_row
from skep.broker.stats.shapes import ReaderLag, ReaderPage, Wire
from skep.broker.timestamps import spell_moment
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.names import check_optional_name

DESCRIBE_CALL: Final = "select skep.describe_database($1), skep.now()"

ENTRIES_MAX: Final = 50
"""Entries of each list about PostgreSQL."""


class CacheUse(Wire, rename="camel", frozen=True, kw_only=True):
    """Blocks that were read, and from where; the ratio is null while there were none."""

    disk_reads: int
    cache_hits: int
    cache_hit_ratio: float | None


class DatabaseCache(CacheUse, rename="camel", frozen=True, kw_only=True):
    """The whole database."""

    database: str


class TableCache(CacheUse, rename="camel", frozen=True, kw_only=True):
    """One table."""

    schema: str
    table: str


class IndexCache(TableCache, rename="camel", frozen=True, kw_only=True):
    """One index."""

    index: str


class CacheSum(Wire, rename="camel", frozen=True, kw_only=True):
    """All tables, or all indexes."""

    disk_reads: int
    cache_hits: int
    hit_ratio: float | None


class CacheSummary(msgspec.Struct, frozen=True):
    """Tables and indexes of the broker."""

    tables: CacheSum
    indexes: CacheSum


class DeadTuples(Wire, rename="camel", frozen=True, kw_only=True):
    """Rows of a table that wait for a vacuum."""

    schema: str
    table: str
    dead_tuples: int
    live_tuples: int
    dead_percentage: float
    last_vacuum: str | None
    last_autovacuum: str | None


class HotUpdates(Wire, rename="camel", frozen=True, kw_only=True):
    """Updates of a table, and those that touched no index."""

    schema: str
    table: str
    total_updates: int
    hot_updates: int
    hot_update_percentage: float | None


class ActiveQuery(Wire, rename="camel", frozen=True, kw_only=True):
    """A session at work."""

    pid: int
    duration: float
    """Seconds."""
    state: str
    query: str
    """Its first 200 characters."""
    wait_event_type: str | None
    wait_event: str | None


class VacuumState(Wire, rename="camel", frozen=True, kw_only=True):
    """What autovacuum did to a table."""

    table: str
    last_autovacuum: str | None
    dead_tuples: int
    autovacuum_count: int
    autoanalyze_count: int


class BufferConfig(Wire, rename="camel", frozen=True, kw_only=True):
    """Shared buffers, in blocks and in words."""

    shared_buffers: int
    shared_buffers_size: str


class BufferUse(Wire, rename="camel", frozen=True, kw_only=True):
    """How much of a table or index is in the buffers."""

    object: str
    buffered_size: str
    buffered_bytes: int
    percent_of_cache: float


class TableSize(Wire, rename="camel", frozen=True, kw_only=True):
    """A table on disk, in words and in bytes."""

    table: str
    total_size: str
    total_size_bytes: int
    table_size: str
    table_size_bytes: int
    index_size: str
    index_size_bytes: int


class LockCount(msgspec.Struct, frozen=True):
    """Locks of one kind, held or waited for."""

    mode: str
    granted: bool
    count: int


class LongTransaction(Wire, rename="camel", frozen=True, kw_only=True):
    """A session whose transaction has been open for long."""

    pid: int
    application: str
    state: str | None
    seconds: float
    is_blocked: bool


class PostgresStats(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the statistics of PostgreSQL say. Ratios are percentages."""

    timestamp: str
    database: str
    version: str
    database_size_bytes: int
    database_cache: DatabaseCache
    table_cache: list[TableCache]
    index_cache: list[IndexCache]
    cache_summary: CacheSummary
    dead_tuples: list[DeadTuples]
    hot_updates: list[HotUpdates]
    active_queries: list[ActiveQuery]
    autovacuum_status: list[VacuumState]
    buffer_config: BufferConfig
    buffer_usage: list[BufferUse] = []
    """What is in the buffers: only an extension could tell, which is not required. Empty."""
    table_sizes: list[TableSize]
    locks: list[LockCount]
    long_transactions: list[LongTransaction]
    """Those of five seconds and more: they keep dead rows from going."""


_decode = msgspec.json.Decoder(dict[str, Any]).decode


class DatabaseStats:
    """Asks PostgreSQL about itself."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def describe(self) -> PostgresStats:
        """Read the statistics."""
        ((text, now),) = await self._sql.call(DESCRIBE_CALL, ENTRIES_MAX)
        return msgspec.convert({"timestamp": spell_moment(now), **_decode(text)}, PostgresStats)

    async def readers(self, name: str | None, limit: int) -> ReaderPage:
        """Measure how far readers on Spark are behind."""
        check_optional_name("name", name)
        rows = await self._sql.rows("measure_readers", name, limit)
        return ReaderPage(
            [
                from_row(
                    ReaderLag,
                    row,
                    time_lag_seconds=row["seconds"],
                    updated_at=spell_moment(row["updated_at"]),
                    active=row["is_active"],
                )
                for row in rows
            ]
        )
