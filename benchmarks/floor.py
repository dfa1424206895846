"""The floor: what this PostgreSQL can do at best, with nothing of ours in the way.

Two figures that no broker on it can beat by much: how fast the same bytes go into one plain table
by COPY BINARY, ten thousand rows to a commit, and how many single-row commits it makes over as
many connections as the load has. Machines differ and one machine differs from minute to minute, so
the floor is measured again whenever it is a minute old.
"""

import asyncio
import random
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg

from benchmarks.meter import Meter, Usage
from benchmarks.stats import per

_ROWS_PER_COPY = 10_000
_TRANSACTION_ID_BYTES = 36
_MAX_AGE_S = 60.0

_SCHEMA = """
drop schema if exists skep_floor cascade;
create schema skep_floor;
create table skep_floor.message (transaction_id bytea not null, payload bytea not null);
"""
_INSERT = "insert into skep_floor.message (transaction_id, payload) values ($1, $2)"


@dataclass(frozen=True, slots=True)
class FloorFigures:
    """The floor at one moment. CPU is PostgreSQL's."""

    at_s: float
    copy_messages_per_s: float
    copy_us_per_message: float | None
    commits_per_s: float
    commit_us: float | None


def copy_rows(payload_bytes: int, *, seed: int) -> bytes:
    """Return a COPY BINARY stream of as many messages as one copy carries."""
    rng = random.Random(seed)
    rows = (
        struct.pack(">hi", 2, _TRANSACTION_ID_BYTES)
        + rng.randbytes(_TRANSACTION_ID_BYTES)
        + struct.pack(">i", payload_bytes)
        + rng.randbytes(payload_bytes)
        for _ in range(_ROWS_PER_COPY)
    )
    return b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0) + b"".join(rows) + b"\xff\xff"


class Floor:
    """Measures the floor and remembers it for a minute."""

    def __init__(
        self,
        meter: Meter,
        database_url: str,
        *,
        connections: int,
        payload_bytes: int,
        seconds: float,
    ) -> None:
        self._meter = meter
        self._database_url = database_url
        self._connections = connections
        self._payload_bytes = payload_bytes
        self._seconds = seconds
        self.history: list[FloorFigures] = []

    async def current(self) -> FloorFigures:
        """Return figures that are less than a minute old."""
        if not self.history or time.monotonic() - self.history[-1].at_s > _MAX_AGE_S:
            self.history.append(await self._measure())
        return self.history[-1]

    async def _measure(self) -> FloorFigures:
        await self._meter.connection.execute(_SCHEMA)
        try:
            rows, copying = await self._measure_copy()
            commits, committing = await self._measure_commits()
        finally:
            await self._meter.connection.execute("drop schema skep_floor cascade")
        return FloorFigures(
            at_s=time.monotonic(),
            copy_messages_per_s=rows / copying.seconds,
            copy_us_per_message=_microseconds_each(copying, rows),
            commits_per_s=commits / committing.seconds,
            commit_us=_microseconds_each(committing, commits),
        )

    async def _measure_copy(self) -> tuple[int, Usage]:
        data = copy_rows(self._payload_bytes, seed=1)
        before, rows = await self._meter.read(), 0
        until_s = time.monotonic() + self._seconds
        while time.monotonic() < until_s:
            await self._meter.connection.copy_to_table(
                "message", schema_name="skep_floor", source=_chunks(data), format="binary"
            )
            rows += _ROWS_PER_COPY
        return rows, Usage.between(before, await self._meter.read())

    async def _measure_commits(self) -> tuple[int, Usage]:
        sessions = [await asyncpg.connect(self._database_url) for _ in range(self._connections)]
        try:
            payload = random.Random(1).randbytes(self._payload_bytes)
            before = await self._meter.read()
            until_s = time.monotonic() + self._seconds
            counts = await asyncio.gather(*(_commit(s, payload, until_s) for s in sessions))
            return sum(counts), Usage.between(before, await self._meter.read())
        finally:
            for session in sessions:
                await session.close()


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), 65_536):
        yield data[begin : begin + 65_536]


async def _commit(session: asyncpg.Connection, payload: bytes, until_s: float) -> int:
    insert = await session.prepare(_INSERT)
    count = 0
    while time.monotonic() < until_s:
        await insert.fetch(count.to_bytes(_TRANSACTION_ID_BYTES), payload)
        count += 1
    return count


def _microseconds_each(usage: Usage, count: int) -> float | None:
    cpu_s = usage.postgres_cpu_s
    return per(None if cpu_s is None else cpu_s * 1e6, count)
