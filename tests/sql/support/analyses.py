"""Analytics as a test sees them: tables that are empty when it begins, and what is in them."""

import json
from datetime import datetime, timedelta
from typing import Any

from tests.sql.support.log import NOON, Log

TABLES = (
    "analytics_run",
    "analytics_volume",
    "analytics_key",
    "analytics_delivery",
    "analytics_letter",
    "analytics_lag",
)
HOUR = timedelta(hours=1)


def at(hours: float) -> datetime:
    """Return a moment so many hours after noon."""
    return NOON + hours * HOUR


class Analyses:
    """A log of whose hours nothing is known yet."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @classmethod
    async def begin(cls, log: Log) -> "Analyses":
        await log.execute("".join(f"delete from skep.{table};" for table in TABLES))
        return cls(log)

    async def store(
        self,
        queue: str = "hive",
        hours: int = 0,
        messages: int = 10,
        keys: dict[str, int] | None = None,
    ) -> int:
        """Store the volume of a queue, and its partitions."""
        address = {"hour": at(hours).isoformat(), "queue": queue}
        counted = keys or {"a": messages}
        volume = {
            **address,
            "messages": messages,
            "bytes": messages * 2,
            "partitions": len(counted),
            "busiest_messages": max(counted.values()),
        }
        rows = [
            {**address, "kind": "partition", "key": key, "messages": count, "bytes": count * 2}
            for key, count in counted.items()
        ]
        query = "select skep.store_volume($1, $2)"
        return await self.log.value(query, json.dumps([volume]), json.dumps(rows))

    async def gather(self, what: str, limit: int = 100, since: int = 0, upto: int = 1) -> int:
        """Let one of the functions look at some hours after noon."""
        return await self.log.value(
            f"select skep.gather_{what}($1, $2, $3)", at(since), at(upto), limit
        )

    async def finish(self, since: int, upto: int, keep_days: int = 90) -> int:
        """Note a run whose position was taken at the end of its hours."""
        return await self.log.value(
            "select skep.finish_analytics($1, $2, 7, $2, $3, $4)",
            at(since),
            at(upto),
            json.dumps({"run": upto}),
            keep_days,
        )

    async def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return some columns of a table, in the order of its address."""
        chosen = ", ".join(columns)
        rows = await self.log.rows(f"select {chosen} from skep.analytics_{name} t order by t")
        return [tuple(row) for row in rows]

    async def page(self, function: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Return a page of the first day after noon, without the hours."""
        rows = await self.log.rows(f"select * from skep.{function}($1, $2, $3, $4, $5)", *arguments)
        return [tuple(row)[1:] for row in rows]
