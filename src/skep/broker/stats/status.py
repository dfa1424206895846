"""The status of an installation, and charts of what its workers did and used.

Message counts are those of the listings; everything over time comes from the rollups. Without a
choice of queues it comes from the samples of the workers, which are few however many queues there
are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict

from skep.broker.paging import Page, from_row
from skep.broker.queues.catalog import QueueCatalog, QueueFilter, sum_counts
from skep.broker.queues.resources import MessageCounts, QueueDetail, QueueSummary
from skep.broker.stats import shapes
from skep.broker.stats.charts import (
    Charts,
    QueueChoice,
    WorkerSample,
    average,
    by_bucket,
    lag_percentiles,
    rate,
)
from skep.broker.stats.ranges import ChartRange
from skep.broker.stats.samples import EMPTY, LAG_COUNTERS, Gauge, Sample, merge_samples
from skep.broker.stats.shapes import GaugeFigures, StatusQueue, ThroughputPoint
from skep.broker.timestamps import spell_moment
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import NotFound
from skep.telemetry.meters import COUNTERS

LEASES_MAX: Final = 10_000
LETTERS_MAX: Final = 1_000
ERRORS_SHOWN: Final = 10
QUEUES_SHOWN: Final = 100
PARTITIONS_EXACT: Final = 2_000
"""Partitions counted one by one; fewer than in a listing, because there is more to do here."""
_MIB: Final = 1024 * 1024
_NOTHING: Final = Gauge.of(0)


class StatusReport:
    """Describes the state of the installation."""

    def __init__(self, caller: Caller, charts: Charts, catalog: QueueCatalog) -> None:
        self._sql: Final = Functions(caller)
        self._charts: Final = charts
        self._catalog: Final = catalog

    async def describe(self, covered: ChartRange, choice: QueueChoice) -> shapes.Status:
        """Sum up everything."""
        rows: Sequence[Any] | None = None
        if not choice.is_everything:
            covered, rows = await self._charts.sum_queues(covered, choice)
        samples = await self._charts.worker_samples(covered)
        by_time = by_bucket(covered, samples)
        if rows is not None:
            by_time = _chosen(by_time, rows)
        total = merge_samples(by_time.values())
        points = [_throughput_point(covered, *each) for each in reversed(by_time.items())]
        counted = await self._count(choice)
        return shapes.Status(
            **covered.spelled,
            point_count=len(points),
            throughput=points,
            queues=counted.shown,
            messages=_messages(counted, total),
            leases=await self._leases(acked=total.count("ack_success")),
            dead_letter_queue=await self._letters(counted.messages.dead_letter),
            workers=[_brief_of(each) for each in _by_worker(samples)],
            errors=from_row(
                shapes.StatusErrors, total.counts, dlq_messages=total.count("dead_letters")
            ),
            stats_age=_age(samples, covered.now),
        )

    async def _count(self, choice: QueueChoice) -> "_Counted":
        """Count the messages of the queues chosen, and list some of them."""
        if choice.queue is not None:
            return await self._count_queue(choice.queue, choice)
        wanted = QueueFilter(namespace=choice.namespace, task=choice.task)
        page = await self._catalog.queues(
            wanted, Page(QUEUES_SHOWN, 0), partitions_exact=PARTITIONS_EXACT
        )
        shown = [_status_queue(each, each.partitions, each.messages) for each in page.queues]
        if page.total <= len(shown):
            is_guess = any(each.estimated for each in page.queues)
            return _Counted(shown, sum_counts(each.messages for each in page.queues), is_guess)
        counts, is_guess = await self._catalog.sum_messages(
            namespace=choice.namespace, task=choice.task
        )
        return _Counted(shown, counts, is_guess)

    async def _count_queue(self, name: str, choice: QueueChoice) -> "_Counted":
        try:
            found = await self._catalog.queue(name, Page(0, 0))
        except NotFound:
            return _Counted([], MessageCounts(), is_guess=False)
        labels = (choice.namespace or found.namespace, choice.task or found.task)
        if labels != (found.namespace, found.task):
            return _Counted([], MessageCounts(), is_guess=False)
        queue = _status_queue(found, found.partitions_total, found.totals)
        return _Counted([queue], found.totals, is_guess=found.estimated)

    async def _leases(self, *, acked: int) -> shapes.StatusLeases:
        row = await self._sql.row("measure_leases", LEASES_MAX)
        return shapes.StatusLeases(
            active=row["leases"],
            partitions_with_leases=row["partitions"],
            total_batch_size=row["messages"],
            total_acked=acked,
        )

    async def _letters(self, total: int) -> shapes.StatusLetters:
        rows = await self._sql.rows("summarize_letters", LETTERS_MAX, ERRORS_SHOWN)
        return shapes.StatusLetters(
            total_messages=total,
            affected_partitions=rows[0]["partitions"] if rows else 0,
            top_errors=[from_row(shapes.TopError, row) for row in rows],
        )


class _Counted(NamedTuple):
    """The messages of some queues, and the queues that are shown."""

    shown: list[StatusQueue]
    messages: MessageCounts
    is_guess: bool


def _messages(counted: _Counted, total: Sample) -> shapes.StatusMessages:
    pushes, pops, acks = (total.count(f"{name}_requests") for name in ("push", "pop", "ack"))
    return shapes.StatusMessages(
        **asdict(counted.messages),
        requests=shapes.RequestCounts(pushes, pops, acks),
        batch_efficiency=shapes.BatchSizes(
            average(total.count("push_messages"), pushes),
            average(total.count("pop_messages"), pops),
            average(total.count("ack_success") + total.count("ack_failed"), acks),
        ),
        estimated=counted.is_guess,
    )


def _by_worker(samples: Iterable[WorkerSample]) -> list[list[WorkerSample]]:
    """Group samples by worker; those before and after a restart belong together."""
    found: dict[tuple[str, int, int], list[WorkerSample]] = {}
    for each in samples:
        found.setdefault((each.hostname, each.port, each.number), []).append(each)
    return list(found.values())


def _brief_of(samples: Sequence[WorkerSample]) -> shapes.WorkerBrief:
    merged = merge_samples(each.sample for each in samples)
    last = samples[-1].sample
    return shapes.WorkerBrief(
        hostname=samples[-1].hostname,
        worker_id=samples[-1].number,
        avg_event_loop_lag_ms=_rounded(merged.average("loop_lag_ms")) or 0.0,
        max_event_loop_lag_ms=_greatest(merged, "loop_lag_ms"),
        free_slots=int(_seen(last, "pool_idle").last),
        db_connections=int(_seen(last, "pool_size").last),
        job_queue_size=int(_seen(last, "waiting_calls").last),
        messages_processed=merged.count("pop_messages"),
    )


def _seen(sample: Sample, gauge: str) -> Gauge:
    return sample.gauges.get(gauge, _NOTHING)


def _greatest(sample: Sample, gauge: str) -> float:
    return round(_seen(sample, gauge).greatest, 2)


def _chosen(by_time: dict[datetime, Sample], rows: Sequence[Any]) -> dict[datetime, Sample]:
    """Replace the counters of all queues by those of some queues."""
    row_by_bucket = {row["bucket"]: row for row in rows}
    chosen: dict[datetime, Sample] = {}
    for bucket in sorted({*by_time, *row_by_bucket}):
        sample, row = by_time.get(bucket, EMPTY), row_by_bucket.get(bucket)
        counters = {name: row[name] if row else 0 for name in COUNTERS}
        counters.update(zip(LAG_COUNTERS, row["lag_counts"] if row else (), strict=False))
        gauges = {name: each for name, each in sample.gauges.items() if name != "lag_ms_max"}
        if row is not None:
            gauges["lag_ms_max"] = Gauge.of(row["lag_ms_max"])
        chosen[bucket] = Sample({**counters, "db_errors": sample.count("db_errors")}, gauges)
    return chosen


def _throughput_point(covered: ChartRange, bucket: datetime, sample: Sample) -> ThroughputPoint:
    seconds = covered.seconds_in(bucket)
    pushed, popped = sample.count("push_messages"), sample.count("pop_messages")
    acked = sample.count("ack_success")
    rss = sample.average("rss_bytes")
    most_ms = _greatest(sample, "lag_ms_max")
    p50, p95, p99 = lag_percentiles(sample.lag_counts, most_ms)
    free, loop_lag = sample.gauges.get("pool_idle"), sample.gauges.get("loop_lag_ms")
    return from_row(
        ThroughputPoint,
        sample.counts,
        timestamp=spell_moment(bucket),
        ingested=pushed,
        processed=acked,
        ingested_per_second=rate(pushed, seconds),
        processed_per_second=rate(acked, seconds),
        pop_per_second=rate(popped, seconds),
        avg_lag_ms=average(sample.count("lag_ms_sum"), popped),
        p50_lag_ms=p50,
        p95_lag_ms=p95,
        p99_lag_ms=p99,
        max_lag_ms=int(most_ms),
        avg_event_loop_lag_ms=_rounded(sample.average("loop_lag_ms")),
        max_event_loop_lag_ms=None if loop_lag is None else round(loop_lag.greatest, 2),
        min_free_slots=None if free is None else int(free.least),
        dlq_count=sample.count("dead_letters"),
        queen_cpu_user_pct=_rounded(sample.average("cpu_user_pct")),
        queen_cpu_sys_pct=_rounded(sample.average("cpu_system_pct")),
        queen_rss_mb=None if rss is None else round(rss / _MIB, 2),
        db_pool_active=_rounded(sample.average("pool_active")),
        db_pool_idle=_rounded(sample.average("pool_idle")),
        db_pool_size=_rounded(sample.average("pool_size")),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _status_queue(
    queue: QueueSummary | QueueDetail, partitions: int, messages: MessageCounts
) -> StatusQueue:
    return from_row(
        StatusQueue, asdict(queue), partitions=partitions, total_consumed=messages.completed
    )


def _age(samples: Sequence[WorkerSample], now: datetime) -> float | None:
    if not samples:
        return None
    return max(0.0, round((now - max(each.seen_at for each in samples)).total_seconds(), 3))


class WorkerCharts:
    """Charts what workers did and used."""

    def __init__(self, charts: Charts, catalog: QueueCatalog) -> None:
        self._charts: Final = charts
        self._catalog: Final = catalog

    async def activity(
        self, covered: ChartRange, *, hostname: str | None, number: int | None
    ) -> shapes.WorkerChart:
        """Chart what workers did."""
        samples = await self._charts.worker_samples(covered, hostname=hostname, number=number)
        by_time = by_bucket(covered, samples)
        counts, _ = await self._catalog.sum_messages()
        points = [_worker_point(covered, *each) for each in by_time.items()]
        return shapes.WorkerChart(
            **covered.spelled,
            point_count=len(points),
            time_series=points,
            workers=[
                shapes.WorkerReport(
                    **asdict(_brief_of(each)), last_seen=spell_moment(each[-1].seen_at)
                )
                for each in _by_worker(samples)
            ],
            queues=await self._charts.queue_lags(covered),
            summary=_totals(merge_samples(by_time.values()), counts.pending),
        )

    async def usage(
        self, covered: ChartRange, *, hostname: str | None, number: int | None
    ) -> shapes.SystemChart:
        """Chart what each worker used."""
        samples = await self._charts.worker_samples(covered, hostname=hostname, number=number)
        replicas = [_replica(covered, each) for each in _by_worker(samples)]
        return shapes.SystemChart(
            **covered.spelled,
            replicas=replicas,
            replica_count=len(replicas),
            point_count=max((len(each.time_series) for each in replicas), default=0),
        )


def _worker_point(covered: ChartRange, bucket: datetime, sample: Sample) -> shapes.WorkerPoint:
    seconds = covered.seconds_in(bucket)
    pushed, popped = sample.count("push_messages"), sample.count("pop_messages")
    acked = sample.count("ack_success") + sample.count("ack_failed")
    return from_row(
        shapes.WorkerPoint,
        sample.counts,
        timestamp=spell_moment(bucket),
        ack_messages=acked,
        jobs_done=sample.count("calls"),
        push_per_second=rate(pushed, seconds),
        pop_per_second=rate(popped, seconds),
        ack_per_second=rate(acked, seconds),
        avg_event_loop_lag_ms=_average(sample, "loop_lag_ms"),
        max_event_loop_lag_ms=_greatest(sample, "loop_lag_ms"),
        avg_free_slots=_average(sample, "pool_idle"),
        min_free_slots=int(_seen(sample, "pool_idle").least),
        db_connections=int(_seen(sample, "pool_size").last),
        avg_job_queue_size=_average(sample, "waiting_calls"),
        max_job_queue_size=int(_greatest(sample, "waiting_calls")),
        avg_lag_ms=average(sample.count("lag_ms_sum"), popped),
        max_lag_ms=int(_greatest(sample, "lag_ms_max")),
        lag_count=popped,
        backoff_size=0,
        dlq_count=sample.count("dead_letters"),
    )


def _totals(total: Sample, pending: int) -> shapes.WorkerTotals:
    totals = {f"total_{name}": count for name, count in total.counts.items()}
    return from_row(
        shapes.WorkerTotals,
        Counter(totals),
        total_ack_messages=total.count("ack_success") + total.count("ack_failed"),
        total_dlq=total.count("dead_letters"),
        pending_messages=pending,
    )


def _replica(covered: ChartRange, samples: Sequence[WorkerSample]) -> shapes.Replica:
    return shapes.Replica(
        hostname=samples[-1].hostname,
        port=samples[-1].port,
        worker_id=samples[-1].number,
        time_series=[
            shapes.SystemPoint(
                timestamp=spell_moment(bucket),
                sample_count=_seen(sample, "rss_bytes").times,
                metrics=_metrics(sample),
            )
            for bucket, sample in by_bucket(covered, samples).items()
        ],
    )


def _metrics(sample: Sample) -> dict[str, Any]:
    """Return the gauges in the wire's order; what this broker does not have is 0."""

    def figures(name: str, factor: float = 1) -> GaugeFigures:
        gauge = _seen(sample, name)
        seen = (gauge.average, gauge.least, gauge.greatest, gauge.last)
        return GaugeFigures(*(round(value * factor, 2) for value in seen))

    none = figures("")
    return {
        # The wire has hundredths of a percent here, despite the names.
        "cpu": {
            "user_us": figures("cpu_user_pct", 100),
            "system_us": figures("cpu_system_pct", 100),
        },
        "memory": {"rss_bytes": figures("rss_bytes"), "virtual_bytes": figures("virtual_bytes")},
        "database": {
            "pool_size": figures("pool_size"),
            "pool_idle": figures("pool_idle"),
            "pool_active": figures("pool_active"),
        },
        "threadpool": {
            "db": {"pool_size": figures("pool_size"), "queue_size": figures("waiting_calls")},
            "system": {"pool_size": none, "queue_size": none},
        },
        "registries": {"response": figures("parked")},
        "event_loop": {"lag_ms": figures("loop_lag_ms")},
        "shared_state": {"enabled": False},
    }


def _average(sample: Sample, gauge: str) -> float:
    return round(sample.average(gauge) or 0.0, 2)
