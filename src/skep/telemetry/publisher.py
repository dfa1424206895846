"""Publish the meters of this process every second, and gather those of its instance when asked."""

import asyncio
import os
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from skep.telemetry.meters import Meters
from skep.telemetry.process_stats import read_process_stats
from skep.telemetry.snapshots import (
    Snapshot,
    SnapshotBoard,
    counters_of,
    gauges_of,
    histograms_of,
    sum_counts,
    sum_distributions,
)

INTERVAL_S: Final = 1.0
RATE_WINDOW: Final = 60
"""Readings that a rate looks back over."""


class Publisher:
    """Keeps the place of this worker on the board up to date."""

    def __init__(self, meters: Meters, board: SnapshotBoard, *, worker: int, version: str) -> None:
        self._meters: Final = meters
        self._board: Final = board
        self._worker: Final = worker
        self._loop: Final = asyncio.get_running_loop()
        self._started_at: Final = datetime.now(UTC).timestamp()
        self._predecessor = board.read_own()
        self._readings: Final[deque[tuple[float, int, int]]] = deque(maxlen=RATE_WINDOW)
        self._publishing: asyncio.Task[None] | None = None
        meters.gauges["skep_build_info"] = lambda: {(version,): 1.0}
        meters.gauges["skep_process_start_time_seconds"] = lambda: {(): self._started_at}
        meters.gauges["skep_process_resident_memory_bytes"] = lambda: {
            (): read_process_stats().rss_bytes
        }
        meters.gauges["skep_process_virtual_memory_bytes"] = lambda: {
            (): read_process_stats().virtual_bytes
        }
        meters.counts["skep_process_cpu_seconds"] = _cpu_seconds

    def start(self) -> None:
        """Begin to publish."""
        self._readings.append(self._read())
        self._publishing = self._loop.create_task(self._publish_again_and_again())

    async def stop(self) -> None:
        """Publish once more, for the process that takes this one's place, and then no longer."""
        if self._publishing is None:
            return
        self._publishing.cancel()
        with suppress(asyncio.CancelledError):
            await self._publishing
        self._board.publish(self.take())

    def take(self) -> Snapshot:
        """Return the meters of this process, its predecessors' included."""
        now, requests, messages = self._read()
        then, requests_then, messages_then = self._readings[0] if self._readings else (now, 0, 0)
        seconds = max(now - then, INTERVAL_S)
        own = Snapshot(
            worker=self._worker,
            pid=os.getpid(),
            started_at=self._started_at,
            counters=counters_of(self._meters),
            histograms=histograms_of(self._meters),
            gauges=gauges_of(self._meters),
            requests_per_s=(requests - requests_then) / seconds,
            messages_per_s=(messages - messages_then) / seconds,
        )
        before = self._predecessor
        if before is None:
            return own
        return msgspec.structs.replace(
            own,
            counters=sum_counts([before.counters, own.counters]),
            histograms=sum_distributions([before.histograms, own.histograms]),
        )

    def gather(self) -> list[Snapshot]:
        """Return the meters of every worker of the instance: of this one now, of others lately."""
        found = [self.take(), *self._board.read_others()]
        return sorted(found, key=lambda each: each.worker)

    def _read(self) -> tuple[float, int, int]:
        return self._loop.time(), self._meters.requests_total, self._meters.messages_total

    async def _publish_again_and_again(self) -> None:
        while True:
            self._readings.append(self._read())
            self._board.publish(self.take())
            await asyncio.sleep(INTERVAL_S)


def _cpu_seconds() -> dict[tuple[str, ...], float]:
    stats = read_process_stats()
    return {("user",): stats.cpu_user_s, ("system",): stats.cpu_system_s}
