"""Traces as a test sees them: the SQL functions with Python arguments, and what they answer."""

from datetime import datetime
from typing import Any, NamedTuple

from tests.sql.support.log import Log, key_of


class Trace(NamedTuple):
    id: int
    event_type: str
    data: str
    consumer_group: str | None
    worker_id: str | None
    created_at: datetime
    names: list[str]


class FiledTrace(NamedTuple):
    total: int
    id: int | None
    event_type: str | None
    data: str | None
    consumer_group: str | None
    worker_id: str | None
    created_at: datetime | None
    names: list[str] | None
    transaction_id: str | None
    partition_id: int | None
    queue_name: str | None
    partition_name: str | None
    envelope: str | None


class TraceLog:
    """The traces of one session."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def clear(self) -> None:
        tables = ("trace_name_total", "trace_name", "trace")
        await self.log.execute("".join(f"delete from skep.{table};" for table in tables))

    async def record(
        self,
        partition_id: int,
        transaction_id: str,
        *names: str,
        offset: int | None = None,
        event_type: str = "info",
        data: str = "{}",
        group: str | None = None,
        worker: str | None = None,
    ) -> int | None:
        return await self.log.value(
            "select skep.record_trace($1, $2, $3, $4, $5, $6, $7, $8)",
            partition_id,
            offset,
            key_of(transaction_id),
            event_type,
            data,
            group,
            worker,
            sorted(names),
        )

    async def of_message(
        self,
        partition_id: int,
        transaction_id: str | None = None,
        *,
        offset: int | None = None,
        limit: int = 100,
        skip: int = 0,
    ) -> list[Trace]:
        query = "select * from skep.list_message_traces($1, $2, $3, $4, $5)"
        rows = await self.log.rows(query, partition_id, transaction_id, offset, limit, skip)
        return [Trace(*row) for row in rows]

    async def by_name(self, name: str, *, limit: int = 100, skip: int = 0) -> list[FiledTrace]:
        query = "select * from skep.list_traces_by_name($1, $2, $3)"
        return [FiledTrace(*row) for row in await self.log.rows(query, name, limit, skip)]

    async def names(self, *, limit: int = 100, skip: int = 0) -> list[tuple[Any, ...]]:
        """Return (total, is_estimate, name, traces, messages, last seen) of each name."""
        query = "select * from skep.list_trace_names($1, $2)"
        return [tuple(row) for row in await self.log.rows(query, limit, skip)]

    async def totals(self) -> dict[str, tuple[int, int]]:
        """Return by name how many traces and messages are counted."""
        query = "select name, trace_count, message_count from skep.trace_name_total"
        return {row[0]: (row[1], row[2]) for row in await self.log.rows(query)}

    async def counted(self) -> dict[str, tuple[int, int]]:
        """Return what `totals` must say, counted anew."""
        query = """
            select name, count(*), count(distinct (partition_id, message_offset))
            from skep.trace_name group by name"""
        return {row[0]: (row[1], row[2]) for row in await self.log.rows(query)}
