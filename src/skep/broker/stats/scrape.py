"""The metric families with Queen's names, for its dashboards.

Figures of this instance come from the snapshots of its workers, those of the installation from one
database call, whose answer serves all scrapes for some seconds. No scrape waits for a database that
is away; the figures of the installation are left out then, and a gauge says so.

Queen's rates per minute are gauges of the last minute that is over, not meant for `rate()`.
Families of parts that this broker does not have (the registry of responses, back-off by queue, the
thread pools) are left out, rather than shown with invented values.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec
from prometheus_client.core import Metric

from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import SkepError
from skep.telemetry.exposition import counter, gauge
from skep.telemetry.snapshots import Labels, Snapshot, sum_counts, sum_distributions

_log = logging.getLogger(__name__)

LETTERS_COUNTED: Final = 100_000
KEEP_S: Final = 5.0
"""How long an answer of the database serves further scrapes."""

STALE_S: Final = 30.0
"""How long it serves while the database does not give another."""

AWAY_S: Final = 0.1
"""How long a scrape waits before it looks whether the database is away."""

PATIENCE_S: Final = 2.0
"""How long those wait for a slow database that have no figures to show."""

_CLUSTER: Final = {"scope": "cluster"}
_CLUSTER_COUNTERS: Final = {
    "push_requests": "push_requests",
    "pop_requests": "pop_requests",
    "ack_requests": "ack_requests",
    "transactions": "transactions",
    "push_messages": "push_messages",
    "pop_messages": "pop_messages",
    "dead_letters": "dlq",
    "ack_messages": "ack_messages",
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

    def __init__(
        self,
        caller: Caller,
        *,
        queues_max: int,
        now: Callable[[], float],
        is_away: Callable[[], bool],
    ) -> None:
        self._sql: Final = Functions(caller)
        self._queues_max: Final = queues_max
        self._now: Final = now
        self._is_away: Final = is_away
        self._facts: _Facts | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")

    async def read(self) -> _Facts | None:
        """Return the figures of the installation; None if there are none that are recent."""
        if self._age_s() >= KEEP_S:
            if self._reading is None:
                self._asked_at = self._now()
                self._reading = asyncio.get_running_loop().create_task(self._read())
            reading = {self._reading}
            _, late = await asyncio.wait(reading, timeout=AWAY_S)
            left_s = self._asked_at + PATIENCE_S - self._now()
            if late and left_s > 0 and self._age_s() >= STALE_S and not self._is_away():
                await asyncio.wait(reading, timeout=left_s)
        return self._facts if self._age_s() < STALE_S and not self._is_away() else None

    def _age_s(self) -> float:
        return self._now() - self._read_at

    async def _read(self) -> None:
        """Read them, for this scrape or for the next ones."""
        try:
            text = await self._sql.value("scrape_metrics", self._queues_max, LETTERS_COUNTED)
        except SkepError as error:
            _log.debug("cannot read the figures of the installation: %s", error)
        else:
            self._facts, self._read_at = _decode(text), self._asked_at
        finally:
            self._reading = None


def queen_families(snapshots: Sequence[Snapshot], facts: _Facts | None) -> list[Metric]:
    """Make the families with Queen's names."""
    families = [*_process_families(snapshots), *_operation_families(snapshots)]
    text = "1 if the figures of the installation are included, 0 while PostgreSQL is away."
    families.append(_one_gauge("skep_installation_figures", text, int(facts is not None)))
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
    resident = gauges["skep_process_resident_memory_bytes"][()]
    virtual = gauges["skep_process_virtual_memory_bytes"][()]
    user_us, system_us = cpu[("user",)] * 1e6, cpu[("system",)] * 1e6
    started_at = min((each.started_at for each in snapshots), default=0.0)
    uptime = datetime.now(UTC).timestamp() - started_at
    return [
        _one_gauge("queen_uptime_seconds", "Since the oldest worker began.", uptime),
        counter("queen_cpu_user_microseconds", "Processor time.", (), {(): user_us}),
        counter("queen_cpu_system_microseconds", "Processor time.", (), {(): system_us}),
        _one_gauge("queen_process_resident_memory_bytes", "Memory in use, all workers.", resident),
        _one_gauge("queen_process_virtual_memory_bytes", "Memory reserved, all workers.", virtual),
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
    done, failed = totals.get("ack_success", 0), totals.get("ack_failed", 0)
    totals = {**totals, "ack_messages": done + failed}
    families = [
        counter(
            f"queen_cluster_{name}",
            "Of all instances, since the installation began.",
            tuple(_CLUSTER),
            {tuple(_CLUSTER.values()): totals.get(column, 0)},
        )
        for column, name in _CLUSTER_COUNTERS.items()
    ]
    by_result: dict[Labels, float] = {("cluster", "success"): done, ("cluster", "failed"): failed}
    text = "Acknowledgments of all instances, by result."
    return [*families, counter("queen_cluster_ack", text, ("scope", "result"), by_result)]


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
    by_result, text = ("queue", "result"), "Of the last minute that is over."
    return [
        *families,
        gauge("queen_queue_ack_per_minute", text, by_result, acks),
        gauge("queen_queue_pop_lag_milliseconds", "From push to pop.", ("queue", "stat"), lags),
        _one_gauge("queen_queue_metrics_age_seconds", "Age of that minute.", minute["age_s"]),
    ]


def _letter_families(letters: dict[str, int]) -> list[Metric]:
    by_queue: dict[Labels, float] = {(queue,): count for queue, count in letters.items()}
    total = {tuple(_CLUSTER.values()): float(sum(letters.values()))}
    return [
        gauge("queen_dlq_depth", "Dead letters.", tuple(_CLUSTER), total),
        gauge("queen_dlq_depth_by_queue", "Dead letters.", ("queue",), by_queue),
    ]


def _one_gauge(name: str, text: str, value: float) -> Metric:
    return gauge(name, text, (), {(): value})
