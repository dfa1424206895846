"""How fast jobs end, by type, told by the chains that ended lately.

Looking costs the same however many chains there are, and those who watch together share it.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from skep.db.access.slots import Caller

THROUGHPUT_CALL: Final = "select * from skep.job_throughput($1, $2)"
SPAN_S: Final = 3600.0
CHAINS_MAX: Final = 2_000
KEPT_S: Final = 10.0


class TypeThroughput(msgspec.Struct, frozen=True, rename="camel"):
    """How fast jobs of a type ended."""

    type: str
    ended: int
    failed: int
    per_minute: float
    mean_run_seconds: float | None
    """Of the attempts that ended them."""


class Throughput(msgspec.Struct, frozen=True, rename="camel"):
    """Jobs of chains that ended within the span; types without any are left out."""

    span_seconds: float
    types: list[TypeThroughput]


class ThroughputMeter:
    """Looks at most once in a while."""

    def __init__(self, caller: Caller, *, now: Callable[[], float]) -> None:
        self._caller: Final = caller
        self._now: Final = now
        self._looking: Final = asyncio.Lock()
        self._seen: tuple[float, Throughput] | None = None

    async def look(self) -> Throughput:
        """Return how fast jobs ended, as of some seconds ago at most."""
        async with self._looking:
            if self._seen is None or self._now() - self._seen[0] > KEPT_S:
                rows = await self._caller.call(THROUGHPUT_CALL, SPAN_S, CHAINS_MAX)
                self._seen = (self._now(), _throughput(rows))
            return self._seen[1]


def _throughput(rows: Any) -> Throughput:
    types = [
        TypeThroughput(
            row["type"],
            row["ended"],
            row["failed"],
            round(row["ended"] * 60 / row["span_s"], 2),
            row["run_s"],
        )
        for row in rows
    ]
    return Throughput(rows[0]["span_s"] if rows else SPAN_S, types)
