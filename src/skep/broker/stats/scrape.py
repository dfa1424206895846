"""The metric families with Queen's names, for its dashboards.

Figures of this instance come from the snapshots of its workers, those of the installation from one
database call, whose answer serves all scrapes for some seconds. While the database is unavailable
that part is left out.

Queen's rates per minute are gauges of the last minute that is over, not meant for `rate()`.
Families of parts that this broker does not have (the registry of responses, back-off by queue, the
thread pools) are left out, rather than shown with invented values.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec
from prometheus_client.core import Metric

from skep.db.access.slots import Caller
from skep.model.errors import SkepError
from skep.telemetry.exposition import counter, gauge
from skep.telemetry.snapshots import Labels, Snapshot, sum_counts, sum_distributions

SCRAPE_CALL: Final = "select skep.scrape_metrics($1, $2)"
LETTERS_COUNTED: Final = 100_000
KEEP_S: Final = 5.0
"""How long an answer of the database serves further scrapes."""

_CLUSTER: Final = {"scope": "cluster"}
_CLUSTER_COUNTERS: Final = {
    "push_requests": "push_requests",
    "pop_requests": "pop_requests",
    "ack_requests": "ack_requests",
    "transactions": "transactions",
    "push_messages": "push_messages",
    "pop_messages": "pop_messages",
    "dead_letters": "dlq",
}
"""What counters are called in `queen_cluster_*_total`."""

_QUEUE_GAUGES: Final = {
    "pop_messages": "pop_messages_per_minute",
    "push_requests": "push_requests_per_minute",
    "push_messages": "push_messages_per_minute",
    "pop_empty": "pop_empty_per_minute",
    "transactions": "transactions_per_minute",
    "parked": "parked_consumers",
}
"""What columns are called in `queen_queue_*`."""

_Facts: TypeAlias = dict[str, Any]
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ScrapeFacts:
    """The figures of the installation, cached for some seconds."""

    def __init__(self, caller: Caller, *, queues_max: int) -> None:
        self._caller: Final = caller
        self._queues_max: Final = queues_max
        self._facts: _Facts | None = None
        self._read_at: datetime | None = None

    async def read(self) -> _Facts | None:
        """Return the figures of the installation; None while the database is unavailable."""
        now = datetime.now(UTC)
        if self._read_at is None or (now - self._read_at).total_seconds() >= KEEP_S:
            try:
                ((text,),) = await self._caller.call(SCRAPE_CALL, self._queues_max, LETTERS_COUNTED)
            except SkepError:
                self._facts = None
            else:
                self._facts = _decode(text)
            self._read_at = now
        return self._facts


def queen_families(snapshots: Sequence[Snapshot], facts: _Facts | None) -> list[Metric]:
    """Make the families with Queen's names."""
    families = [*_process_families(snapshots), *_operation_families(snapshots)]
    if facts is not None:
        families += _cluster_families(facts["totals"])
        families += _minute_families(facts["minute"])
        families += _letter_families(facts["dead_letters"])
    return families


def _process_families(snapshots: Sequence[Snapshot]) -> list[Metric]:
    cpu = sum_counts(each.counters for each in snapshots).get("skep_process_cpu_seconds", {})
    gauges = sum_counts(each.gauges for each in snapshots)
    connections = gauges.get("skep_db_connections", {})
    idle = sum(value for labels, value in connections.items() if labels[1] == "idle")
    busy = sum(value for labels, value in connections.items() if labels[1] == "busy")
    started_at = min((each.started_at for each in snapshots), default=0.0)
    uptime = datetime.now(UTC).timestamp() - started_at
    return [
        _one_gauge("queen_uptime_seconds", "Since the oldest worker began.", uptime),
        counter("queen_cpu_user_microseconds", "Processor time.", (), {(): cpu[("user",)] * 1e6}),
        counter(
            "queen_cpu_system_microseconds", "Processor time.", (), {(): cpu[("system",)] * 1e6}
        ),
        _one_gauge(
            "queen_process_resident_memory_bytes",
            "Memory in use, all workers.",
            gauges["skep_process_resident_memory_bytes"][()],
        ),
        _one_gauge(
            "queen_process_virtual_memory_bytes",
            "Memory reserved, all workers.",
            gauges["skep_process_virtual_memory_bytes"][()],
        ),
        _one_gauge("queen_db_pool_size", "Connections to PostgreSQL.", idle + busy),
        _one_gauge("queen_db_pool_idle", "Connections without a call.", idle),
        _one_gauge("queen_db_pool_active", "Connections with a call.", busy),
    ]


def _operation_families(snapshots: Sequence[Snapshot]) -> list[Metric]:
    """Make what Queen says of its engine: calls, their time and what they carried."""
    histograms = sum_distributions(each.histograms for each in snapshots)
    writes = histograms.get("skep_engine_call_lots", {})
    messages = histograms.get("skep_engine_call_messages", {})
    calls: dict[Labels, float] = {labels: sum(each[:-1]) for labels, each in writes.items()}
    items: dict[Labels, float] = {labels: each[-1] for labels, each in messages.items()}
    return [
        gauge("queen_sidecar_op_count", "Calls of the engine.", ("op",), calls),
        gauge("queen_sidecar_op_items", "Messages they carried.", ("op",), items),
    ]


def _cluster_families(totals: dict[str, int]) -> list[Metric]:
    families = [
        counter(
            f"queen_cluster_{name}",
            "Of all instances, since the installation began.",
            tuple(_CLUSTER),
            {tuple(_CLUSTER.values()): totals.get(column, 0)},
        )
        for column, name in _CLUSTER_COUNTERS.items()
    ]
    done, failed = totals.get("ack_success", 0), totals.get("ack_failed", 0)
    families.append(
        counter(
            "queen_cluster_ack_messages",
            "Of all instances, since the installation began.",
            tuple(_CLUSTER),
            {tuple(_CLUSTER.values()): done + failed},
        )
    )
    families.append(
        counter(
            "queen_cluster_ack",
            "Acknowledgments of all instances, by result.",
            ("scope", "result"),
            {("cluster", "success"): done, ("cluster", "failed"): failed},
        )
    )
    return families


def _minute_families(minute: dict[str, Any]) -> list[Metric]:
    queues: list[dict[str, Any]] = minute["queues"]
    families = [
        gauge(
            f"queen_queue_{name}",
            "Of the last minute that is over.",
            ("queue",),
            {(each["queue"],): each[column] for each in queues},
        )
        for column, name in _QUEUE_GAUGES.items()
    ]
    acks: dict[Labels, float] = {}
    lags: dict[Labels, float] = {}
    for each in queues:
        name, popped = each["queue"], each["pop_messages"]
        acks[name, "success"], acks[name, "failed"] = each["ack_success"], each["ack_failed"]
        lags[name, "avg"] = each["lag_ms_sum"] / popped if popped else 0
        lags[name, "max"] = each["lag_ms_max"]
    labels = ("queue", "result")
    families.append(
        gauge("queen_queue_ack_per_minute", "Of the last minute that is over.", labels, acks)
    )
    families.append(
        gauge("queen_queue_pop_lag_milliseconds", "From push to pop.", ("queue", "stat"), lags)
    )
    families.append(
        _one_gauge("queen_queue_metrics_age_seconds", "Age of that minute.", minute["age_s"])
    )
    return families


def _letter_families(letters: dict[str, int]) -> list[Metric]:
    by_queue: dict[Labels, float] = {(queue,): count for queue, count in letters.items()}
    total = {tuple(_CLUSTER.values()): float(sum(letters.values()))}
    return [
        gauge("queen_dlq_depth", "Dead letters.", tuple(_CLUSTER), total),
        gauge("queen_dlq_depth_by_queue", "Dead letters.", ("queue",), by_queue),
    ]


def _one_gauge(name: str, text: str, value: float) -> Metric:
    return gauge(name, text, (), {(): value})
