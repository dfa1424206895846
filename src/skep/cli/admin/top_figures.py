"""What `skep top` shows, computed from two readings of a broker and those before. Pure.

Rates and percentiles are of the time between the readings, in the instance that answered;
messages, lag, groups and instances are of the whole installation.
"""

import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from skep.model.wire import QUEUE_MODE
from skep.telemetry.histograms import quantile

if TYPE_CHECKING:
    from skep.client.values import GroupEntry, QueueSummary

PUSHED: Final = "skep_pushed_messages_total"
POPPED: Final = "skep_popped_messages_total"
ACKED: Final = "skep_acked_messages_total"
PARKED: Final = "skep_parked_polls"
CPU: Final = "skep_process_cpu_seconds_total"
MEMORY: Final = "skep_process_resident_memory_bytes"
CONNECTIONS: Final = "skep_db_connections"
AWAY: Final = "skep_database_away"
MAINTENANCE: Final = "skep_maintenance_mode"
DELIVERY: Final = "skep_delivery_lag_seconds_bucket"
REQUEST: Final = "skep_http_request_duration_seconds_bucket"
SQL: Final = "skep_sql_call_duration_seconds_bucket"

NAMES: Final = frozenset(
    (
        *(PUSHED, POPPED, ACKED, PARKED, CPU, MEMORY, CONNECTIONS, AWAY, MAINTENANCE),
        *(DELIVERY, REQUEST, SQL),
    )
)
_LATENCIES: Final[tuple[tuple[str, str, Mapping[str, str]], ...]] = (
    ("push to delivery", DELIVERY, {}),
    ("push request", REQUEST, {"route": "push"}),
    ("ack request", REQUEST, {"route": "ack_batch"}),
    ("SQL call", SQL, {}),
)
SHARES: Final = (0.5, 0.95, 0.99)
TRAIL_READINGS: Final = 24
"""As many as a sparkline has characters."""

Labels: TypeAlias = frozenset[tuple[str, str]]
Metrics: TypeAlias = Mapping[str, Mapping[Labels, float]]
"""Values by sample name (`x_bucket`, `x_total`) and labels."""

_SAMPLE: Final = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class Reading(NamedTuple):
    """What a broker reported at one moment."""

    at: float
    """Seconds of a monotonic clock."""
    moment: datetime
    metrics: Metrics
    overview: Mapping[str, Any]
    queues: "Sequence[QueueSummary]"
    groups: "Sequence[GroupEntry]"
    instances: Sequence[Mapping[str, Any]] | None
    """None when the caller may not see them."""


class Rates(NamedTuple):
    """Messages per second."""

    pushed: float
    delivered: float
    acked: float


class Latency(NamedTuple):
    """Percentiles in seconds; None when nothing happened."""

    name: str
    values: tuple[float | None, ...]


class QueueRow(NamedTuple):
    """A queue and how busy it is."""

    name: str
    rates: Rates
    pending: int
    dead_letters: int
    is_paused: bool
    trail: Sequence[float] = ()
    """Messages per second in and out, the latest last."""


class GroupRow(NamedTuple):
    """A group on a queue, and where its lag goes."""

    name: str
    queue: str
    condition: str
    lag: int
    growth: float
    """Messages per second, over the trail."""
    is_growing: bool
    """All of the later half of the trail is above the earlier half."""
    oldest_s: float
    behind: int
    partitions: int
    trail: Sequence[float] = ()
    """Lag, the latest last."""


class Trail:
    """What earlier readings said of each queue and group."""

    def __init__(self) -> None:
        self._seen: Final[dict[object, deque[tuple[float, float]]]] = {}

    def add(self, key: object, at: float, value: float) -> Sequence[float]:
        """Add what a reading says, and return it with those before."""
        points = self._seen.setdefault(key, deque(maxlen=TRAIL_READINGS))
        points.append((at, value))
        return [value for _, value in points]

    def growth_of(self, key: object) -> float:
        """Return how fast a value grows, per second."""
        (begin, first), (end, last) = self._seen[key][0], self._seen[key][-1]
        return (last - first) / (end - begin) if end > begin else 0.0


class Frame(NamedTuple):
    """One page of `skep top`."""

    moment: datetime
    rates: Rates
    latencies: Sequence[Latency]
    queues: Sequence[QueueRow]
    groups: Sequence[GroupRow]
    instances: Sequence[Mapping[str, Any]] | None
    overview: Mapping[str, Any]
    parked: int
    cpu_share: float
    """Of one core."""
    memory_bytes: float
    connections: int
    busy_connections: int
    warnings: Sequence[str]


def frame_between(before: Reading, now: Reading, trail: Trail | None = None) -> Frame:
    """Return the page of two readings; the trail has those before, and gets this one."""
    trail = trail or Trail()
    seconds = max(now.at - before.at, 1e-9)

    def grown(name: str) -> dict[Labels, float]:
        earlier = before.metrics[name]
        # A counter that shrank belongs to a worker that was restarted.
        return {
            labels: value - earlier.get(labels, 0.0) if value >= earlier.get(labels, 0.0) else value
            for labels, value in now.metrics[name].items()
        }

    flows = [by_label(grown(name), "queue") for name in (PUSHED, POPPED, ACKED)]
    connections = now.metrics[CONNECTIONS]
    return Frame(
        moment=now.moment,
        rates=Rates(*(sum(flow.values()) / seconds for flow in flows)),
        latencies=[
            Latency(title, percentiles(grown(name), labels)) for title, name, labels in _LATENCIES
        ],
        queues=_queue_rows(now, flows, seconds, trail),
        groups=[_group_row(group, now.at, trail) for group in now.groups],
        instances=now.instances,
        overview=now.overview,
        parked=int(total(now.metrics[PARKED])),
        cpu_share=sum(grown(CPU).values()) / seconds,
        memory_bytes=total(now.metrics[MEMORY]),
        connections=int(total(connections)),
        busy_connections=int(total(connections) - total(connections, state="idle")),
        warnings=_warnings(now),
    )


def percentiles(
    grown: Mapping[Labels, float], labels: Mapping[str, str]
) -> tuple[float | None, ...]:
    """Return the percentiles of a histogram with cumulative buckets."""
    wanted = set(labels.items())
    below: dict[float, float] = {}
    for of, count in grown.items():
        if wanted <= of:
            bound = float(dict(of)["le"])
            below[bound] = below.get(bound, 0.0) + count
    bounds = sorted(below)
    counts = [
        round(below[bound] - (below[bounds[index - 1]] if index else 0.0))
        for index, bound in enumerate(bounds)
    ]
    finite = [bound for bound in bounds if bound != inf]
    return tuple(quantile(finite, counts, share) if finite else None for share in SHARES)


def _queue_rows(
    now: Reading, flows: Sequence[Mapping[str, float]], seconds: float, trail: Trail
) -> list[QueueRow]:
    rows: list[QueueRow] = []
    for queue in now.queues:
        rates = Rates(*(flow.get(queue.name, 0.0) / seconds for flow in flows))
        rows.append(
            QueueRow(
                queue.name,
                rates,
                queue.messages.pending,
                queue.messages.dead_letter,
                queue.is_paused,
                trail.add(queue.name, now.at, rates.pushed + rates.delivered),
            )
        )
    return rows


def _group_row(group: "GroupEntry", at: float, trail: Trail) -> GroupRow:
    key = (group.name, group.queue_name)
    lag = group.total_lag or 0
    lags = trail.add(key, at, lag)
    half = len(lags) // 2
    return GroupRow(
        name="default group" if group.name == QUEUE_MODE else group.name,
        queue=group.queue_name,
        condition=group.condition,
        lag=lag,
        growth=trail.growth_of(key),
        is_growing=half > 0 and min(lags[half:]) > max(lags[:half]),
        oldest_s=group.max_time_lag if lag else 0,
        behind=group.partitions_with_lag,
        partitions=group.partition_count,
        trail=lags,
    )


def _warnings(now: Reading) -> list[str]:
    warnings: list[str] = []
    if total(now.metrics[AWAY]):
        warnings.append("the database is unreachable: pushes wait on disk")
    modes = by_label(now.metrics[MAINTENANCE], "mode")
    warnings += [f"{mode} maintenance is on" for mode, value in sorted(modes.items()) if value]
    missing = [each for each in now.instances or () if each["state"] != "alive"]
    warnings += [
        f"instance {each['host']}:{each['port']} has been silent for {each['silentSeconds']:.0f} s"
        for each in missing
    ]
    return warnings


def read_exposition(text: str, names: Collection[str]) -> Metrics:
    """Return the samples of these names in Prometheus text format."""
    found: dict[str, dict[Labels, float]] = {name: {} for name in names}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is not None and sample["name"] in found:
            found[sample["name"]][_labels(sample["labels"] or "")] = float(sample["value"])
    return found


def _labels(text: str) -> Labels:
    return frozenset(
        (name, _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value))
        for name, value in _LABEL.findall(text)
    )


def total(samples: Mapping[Labels, float], **labels: str) -> float:
    """Sum the samples that have these labels."""
    wanted = set(labels.items())
    return sum(value for of, value in samples.items() if wanted <= of)


def by_label(samples: Mapping[Labels, float], label: str) -> dict[str, float]:
    """Sum samples by the value of one label."""
    sums: dict[str, float] = {}
    for labels, value in samples.items():
        key = dict(labels).get(label, "")
        sums[key] = sums.get(key, 0.0) + value
    return sums
