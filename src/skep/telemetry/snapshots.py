"""What the processes of an instance show each other of their meters.

Workers share one port, so a scrape reaches any of them and must show them all. Each worker writes a
snapshot of its meters to a file of its own, about once a second and whole or not at all; whoever is
asked reads those of the others. A worker that was restarted goes on where the file of the one
before it ends, so that the sums of an instance never fall while it runs.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from skep.telemetry.families import FAMILY_BY_COUNTER
from skep.telemetry.histograms import Histogram
from skep.telemetry.meters import COUNTERS, Meters

_log = logging.getLogger(__name__)

Labels: TypeAlias = tuple[str, ...]
"""The values of a family's labels, in their order."""

Counts: TypeAlias = dict[str, dict[Labels, float]]
"""By family and labels."""

Distributions: TypeAlias = dict[str, dict[Labels, list[float]]]
"""By family and labels: the counts of the histogram, and the sum of its values at the end."""


class Snapshot(msgspec.Struct, array_like=True, kw_only=True):
    """The meters of one worker at one moment."""

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
    """Return everything that only grows."""
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
    """Return the values of the moment."""
    gauges = {family: read() for family, read in meters.gauges.items()}
    gauges["skep_engine_calls_in_flight"] = {
        (name,): operation.in_flight for name, operation in meters.operations.items()
    }
    return gauges


def _spread(histogram: Histogram) -> list[float]:
    return [*histogram.counts, histogram.sum]


def sum_counts(all_counts: Iterable[Counts]) -> Counts:
    """Add up counts of the same family and labels."""
    sums: Counts = {}
    for counts in all_counts:
        for family, by_labels in counts.items():
            into = sums.setdefault(family, {})
            for labels, value in by_labels.items():
                into[labels] = into.get(labels, 0) + value
    return sums


def sum_distributions(all_distributions: Iterable[Distributions]) -> Distributions:
    """Add up histograms of the same family and labels."""
    sums: Distributions = {}
    for distributions in all_distributions:
        for family, by_labels in distributions.items():
            into = sums.setdefault(family, {})
            for labels, values in by_labels.items():
                so_far = into.get(labels)
                into[labels] = (
                    values
                    if so_far is None
                    else [a + b for a, b in zip(so_far, values, strict=True)]
                )
    return sums


class SnapshotBoard:
    """Where the workers of an instance leave their snapshots; without a directory, nowhere."""

    def __init__(self, directory: Path | None, worker: int) -> None:
        self._directory: Final = directory
        self._own: Final = None if directory is None else directory / _file_name(worker)

    def read_own(self) -> Snapshot | None:
        """Return what the worker before this one left in its place."""
        return None if self._own is None else _read(self._own)

    def publish(self, snapshot: Snapshot) -> None:
        """Put a snapshot in the place of the one before. What cannot be written is only logged."""
        if self._own is None:
            return
        unfinished = self._own.with_suffix(".new")
        try:
            unfinished.write_bytes(_encode(snapshot))
            unfinished.replace(self._own)
        except OSError as error:
            _log.debug("cannot publish metrics: %s", error)

    def read_others(self) -> list[Snapshot]:
        """Return what the other workers published last, in their order."""
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
        # Not there yet; or left by another version, which is no reason to fail a scrape.
        _log.debug("cannot read metrics from %s: %s", path.name, error)
        return None
