"""Snapshots of meters, by which the workers of an instance share their metrics.

Workers share one port, so a scrape reaches any of them and must show them all. Each worker
atomically writes a snapshot of its meters to its own file once a second, and reads those of the
others when scraped. A restarted worker continues from its predecessor's file, so that the sums of
an instance never decrease.
"""

import asyncio
import logging
import operator
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec

from skep.telemetry.families import FAMILY_BY_COUNTER
from skep.telemetry.histograms import Histogram
from skep.telemetry.meters import COUNTERS, Meters
from skep.telemetry.process import read_process_stats

_log = logging.getLogger(__name__)

_Value = TypeVar("_Value")

Labels: TypeAlias = tuple[str, ...]
"""The values of a family's labels, in their order."""

Counts: TypeAlias = dict[str, dict[Labels, float]]
"""By family and labels."""

Distributions: TypeAlias = dict[str, dict[Labels, list[float]]]
"""By family and labels: the counts of the histogram, and the sum of its values at the end."""


class Snapshot(msgspec.Struct, array_like=True, kw_only=True):
    """The meters of one worker."""

    worker: int
    pid: int
    started_at: float
    """Unix time."""
    counters: Counts
    histograms: Distributions
    gauges: Counts
    requests_per_s: float = 0.0
    messages_per_s: float = 0.0


_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Snapshot).decode


def counters_of(meters: Meters) -> Counts:
    """Return the counters."""
    counters: Counts = {
        "skep_http_requests": {
            (route, str(status)): count
            for route, meter in meters.routes.items()
            for status, count in meter.statuses.items()
        },
        "skep_sql_call_failures": {
            (function,): call.failures for function, call in meters.calls.items()
        },
        "skep_engine_call_failures": {
            (name,): operation.failures for name, operation in meters.operations.items()
        },
        "skep_push_unknown_fields": {(): meters.unknown_fields},
        "skep_push_missing_payloads": {(): meters.missing_payloads},
    }
    totals = meters.queues.totals()
    for column, counter in enumerate(COUNTERS):
        family = FAMILY_BY_COUNTER.get(counter)
        if family is not None:
            counters[family] = {(queue,): values[column] for queue, values in totals.items()}
    for family, read in meters.counts.items():
        counters[family] = read()
    return counters


def histograms_of(meters: Meters) -> Distributions:
    """Return the distributions."""
    operations = meters.operations.items()
    return {
        "skep_http_request_duration_seconds": {
            (route,): _spread(meter.durations) for route, meter in meters.routes.items()
        },
        "skep_sql_call_duration_seconds": {
            (function,): _spread(call.durations) for function, call in meters.calls.items()
        },
        "skep_engine_call_lots": {(name,): _spread(each.units) for name, each in operations},
        "skep_engine_call_messages": {
            (name,): _spread(each.messages) for name, each in operations if each.messages.count
        },
        "skep_delivery_lag_seconds": {(): _spread(meters.queues.lag)},
        "skep_event_loop_lag_seconds": {(): _spread(meters.loop_lag)},
    }


def gauges_of(meters: Meters) -> Counts:
    """Return the gauges."""
    gauges = {family: read() for family, read in meters.gauges.items()}
    gauges["skep_engine_calls_in_flight"] = {
        (name,): operation.in_flight for name, operation in meters.operations.items()
    }
    return gauges


def _spread(histogram: Histogram) -> list[float]:
    return [*histogram.counts, histogram.sum]


def sum_counts(all_counts: Iterable[Counts]) -> Counts:
    """Add up counts of the same family and labels."""
    return _sum_up(all_counts, operator.add)


def sum_distributions(all_distributions: Iterable[Distributions]) -> Distributions:
    """Add up histograms of the same family and labels."""
    return _sum_up(
        all_distributions, lambda one, other: [a + b for a, b in zip(one, other, strict=True)]
    )


def _sum_up(
    all_families: Iterable[dict[str, dict[Labels, _Value]]],
    add: Callable[[_Value, _Value], _Value],
) -> dict[str, dict[Labels, _Value]]:
    sums: dict[str, dict[Labels, _Value]] = {}
    for families in all_families:
        for family, by_labels in families.items():
            into = sums.setdefault(family, {})
            for labels, value in by_labels.items():
                into[labels] = add(into[labels], value) if labels in into else value
    return sums


class SnapshotBoard:
    """The snapshot files of an instance; without a directory, none."""

    def __init__(self, directory: Path | None, worker: int) -> None:
        self._directory: Final = directory
        self._own: Final = None if directory is None else directory / _file_name(worker)

    def read_own(self) -> Snapshot | None:
        """Return the last snapshot of this worker's predecessor."""
        return None if self._own is None else _read(self._own)

    def publish(self, snapshot: Snapshot) -> None:
        """Replace this worker's snapshot. A failed write is only logged."""
        if self._own is None:
            return
        unfinished = self._own.with_suffix(".new")
        try:
            unfinished.write_bytes(_encode(snapshot))
            unfinished.replace(self._own)
        except OSError as error:
            _log.debug("cannot publish metrics: %s", error)

    def read_others(self) -> list[Snapshot]:
        """Return the last snapshots of the other workers, in their order."""
        if self._directory is None:
            return []
        paths = sorted(self._directory.glob(_file_name("*")))
        found = [_read(path) for path in paths if path != self._own]
        return sorted((each for each in found if each is not None), key=lambda each: each.worker)


def _file_name(worker: int | str) -> str:
    return f"metrics-of-worker-{worker}.msgpack"


def _read(path: Path) -> Snapshot | None:
    try:
        return _decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        # Not there yet, or of another version: no reason to fail a scrape.
        _log.debug("cannot read metrics from %s: %s", path.name, error)
        return None


INTERVAL_S: Final = 1.0
RATE_WINDOW: Final = 60
"""Readings that a rate covers."""


class Publisher:
    """Publishes the snapshot of this worker every second, and gathers all on request."""

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
        """Start publishing."""
        self._readings.append(self._read())
        self._publishing = self._loop.create_task(self._publish_regularly())

    async def stop(self) -> None:
        """Publish once more, for the successor, and stop."""
        if self._publishing is None:
            return
        self._publishing.cancel()
        with suppress(asyncio.CancelledError):
            await self._publishing
        self._board.publish(self.take())

    def take(self) -> Snapshot:
        """Return the meters of this process, including those of its predecessors."""
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
        """Return the meters of every worker: current for this one, published for the others."""
        found = [self.take(), *self._board.read_others()]
        return sorted(found, key=lambda each: each.worker)

    def _read(self) -> tuple[float, int, int]:
        return self._loop.time(), self._meters.requests_total, self._meters.messages_total

    async def _publish_regularly(self) -> None:
        while True:
            self._readings.append(self._read())
            self._board.publish(self.take())
            await asyncio.sleep(INTERVAL_S)


def _cpu_seconds() -> dict[tuple[str, ...], float]:
    stats = read_process_stats()
    return {("user",): stats.cpu_user_s, ("system",): stats.cpu_system_s}
