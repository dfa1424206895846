"""Rollups as a test sees them: workers that report, and what the functions make of it."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from skep.telemetry.histograms import LAG_BOUNDS_MS
from skep.telemetry.meters import COUNTERS
from tests.sql.support.housekeeping import SERVICE, Keeper
from tests.sql.support.log import Log

TABLES = (
    "metric_worker",
    "queue_minute",
    "queue_hour",
    "parked_minute",
    "worker_minute",
    "worker_hour",
    "group_minute",
    "group_activity",
    "metric_total",
)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def used(queue: str, lags: dict[int, int] | None = None, lag_ms_max: int = 0, **counts: int):
    """Return what a worker says of a queue; `lags` are messages by place in the histogram."""
    lag_counts = [0] * (len(LAG_BOUNDS_MS) + 1)
    for place, messages in (lags or {}).items():
        lag_counts[place] = messages
    assert counts.keys() <= set(COUNTERS)
    zeros = dict.fromkeys(COUNTERS, 0)
    return {**zeros, **counts, "queue": queue, "lag_ms_max": lag_ms_max, "lag_counts": lag_counts}


class Rollups:
    """A log whose rollups are empty when a test begins."""

    def __init__(self, log: Log, term: tuple[str, UUID]) -> None:
        self.log = log
        self.term = term

    @classmethod
    async def begin(cls, log: Log) -> "Rollups":
        await log.execute("".join(f"delete from skep.{table};" for table in TABLES))
        return cls(log, (SERVICE, (await Keeper.appoint(log)).holder))

    async def worker(self, hostname: str = "host", number: int = 0, port: int = 6632) -> int:
        query = "select worker_id from skep.register_worker($1, $2, $3, 77)"
        return await self.log.value(query, hostname, port, number)

    async def report(
        self,
        worker_id: int,
        *queues: dict[str, Any],
        at: datetime | None = None,
        sample: dict[str, Any] | None = None,
        parked: dict[str, int] | None = None,
    ) -> datetime | None:
        """Record what a worker says, by default of the present minute."""
        at = at or self.log.now
        return await self.log.value(
            "select skep.record_metrics($1, $2, $3, $4, $5)",
            worker_id,
            at.replace(second=0, microsecond=0),
            json.dumps(sample or {"counters": {}, "gauges": {}}),
            json.dumps(queues),
            json.dumps(parked or {}),
        )

    async def queue_id(self, queue: str) -> int:
        return await self.log.value("select id from skep.queue where name = $1", queue)

    async def count(self, table: str) -> int:
        return await self.log.value(f"select count(*) from skep.{table}")

    async def roll_up(self, settle_s: int = 0) -> datetime | None:
        query = "select skep.roll_up_queues($1, $2, $3)"
        return await self.log.value(query, *self.term, settle_s)
