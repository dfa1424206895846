"""What the worker processes did and used, by time, from the samples they write."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from skep.broker.queues.catalog import QueueCatalog
from skep.broker.stats.charts import Charts, WorkerSample, average, by_bucket, rate
from skep.broker.stats.ranges import ChartRange, ChartSpan
from skep.broker.stats.samples import Gauge, Sample, merge_samples
from skep.broker.stats.shapes import (
    GaugeFigures,
    Replica,
    SystemChart,
    SystemPoint,
    WorkerChart,
    WorkerPoint,
    WorkerReport,
    WorkerTotals,
)
from skep.broker.stats.status import brief_of, by_worker, greatest, latest, least
from skep.broker.timestamps import spell_moment

_NOTHING: Final = Gauge.of(0)


class WorkerCharts:
    """Answers what workers did and used."""

    def __init__(self, charts: Charts, catalog: QueueCatalog) -> None:
        self._charts: Final = charts
        self._catalog: Final = catalog

    async def activity(
        self, covered: ChartRange, *, hostname: str | None, number: int | None
    ) -> WorkerChart:
        """Chart what workers did."""
        samples = await self._charts.worker_samples(covered, hostname=hostname, number=number)
        by_time = by_bucket(covered, samples)
        counts, _ = await self._catalog.sum_messages()
        points = [_point(covered, *each) for each in by_time.items()]
        return WorkerChart(
            time_range=ChartSpan.of(covered),
            bucket_minutes=covered.bucket_minutes,
            point_count=len(points),
            time_series=points,
            workers=[_report(each) for each in by_worker(samples)],
            queues=await self._charts.queue_lags(covered),
            summary=_totals(merge_samples(by_time.values()), counts.pending),
        )

    async def usage(
        self, covered: ChartRange, *, hostname: str | None, number: int | None
    ) -> SystemChart:
        """Chart what each worker used."""
        samples = await self._charts.worker_samples(covered, hostname=hostname, number=number)
        replicas = [_replica(covered, each) for each in by_worker(samples)]
        return SystemChart(
            time_range=ChartSpan.of(covered),
            replicas=replicas,
            replica_count=len(replicas),
            bucket_minutes=covered.bucket_minutes,
            point_count=max((len(each.time_series) for each in replicas), default=0),
        )


def _report(samples: Sequence[WorkerSample]) -> WorkerReport:
    return WorkerReport(
        **msgspec.structs.asdict(brief_of(samples)),
        last_seen=spell_moment(samples[-1].seen_at),
    )


def _point(covered: ChartRange, bucket: datetime, sample: Sample) -> WorkerPoint:
    seconds = covered.seconds_in(bucket)
    pushed, popped = sample.count("push_messages"), sample.count("pop_messages")
    acked = sample.count("ack_success") + sample.count("ack_failed")
    return WorkerPoint(
        timestamp=spell_moment(bucket),
        push_messages=pushed,
        pop_messages=popped,
        ack_messages=acked,
        push_requests=sample.count("push_requests"),
        pop_requests=sample.count("pop_requests"),
        ack_requests=sample.count("ack_requests"),
        jobs_done=sample.count("calls"),
        push_per_second=rate(pushed, seconds),
        pop_per_second=rate(popped, seconds),
        ack_per_second=rate(acked, seconds),
        avg_event_loop_lag_ms=_average(sample, "loop_lag_ms"),
        max_event_loop_lag_ms=greatest(sample, "loop_lag_ms"),
        avg_free_slots=_average(sample, "pool_idle"),
        min_free_slots=int(least(sample, "pool_idle") or 0),
        db_connections=int(latest(sample, "pool_size")),
        avg_job_queue_size=_average(sample, "waiting_calls"),
        max_job_queue_size=int(greatest(sample, "waiting_calls")),
        avg_lag_ms=average(sample.count("lag_ms_sum"), popped),
        max_lag_ms=int(greatest(sample, "lag_ms_max")),
        lag_count=popped,
        db_errors=sample.count("db_errors"),
        ack_success=sample.count("ack_success"),
        ack_failed=sample.count("ack_failed"),
        dlq_count=sample.count("dead_letters"),
    )


def _totals(total: Sample, pending: int) -> WorkerTotals:
    return WorkerTotals(
        total_push_messages=total.count("push_messages"),
        total_pop_messages=total.count("pop_messages"),
        total_ack_messages=total.count("ack_success") + total.count("ack_failed"),
        total_push_requests=total.count("push_requests"),
        total_pop_requests=total.count("pop_requests"),
        total_ack_requests=total.count("ack_requests"),
        total_db_errors=total.count("db_errors"),
        total_ack_failed=total.count("ack_failed"),
        total_dlq=total.count("dead_letters"),
        pending_messages=pending,
    )


def _replica(covered: ChartRange, samples: Sequence[WorkerSample]) -> Replica:
    return Replica(
        hostname=samples[-1].hostname,
        port=samples[-1].port,
        worker_id=samples[-1].number,
        time_series=[
            SystemPoint(
                timestamp=spell_moment(bucket),
                sample_count=sample.gauges.get("rss_bytes", _NOTHING).times,
                metrics=_metrics(sample),
            )
            for bucket, sample in by_bucket(covered, samples).items()
        ],
    )


def _metrics(sample: Sample) -> dict[str, Any]:
    """Sort the gauges as the wire does; what this broker does not have is 0 there."""

    def figures(name: str, factor: float = 1) -> GaugeFigures:
        gauge = sample.gauges.get(name, _NOTHING)
        seen = (gauge.average, gauge.least, gauge.greatest, gauge.last)
        return GaugeFigures(*(round(value * factor, 2) for value in seen))

    none = figures("")
    return {
        # The wire has hundredths of a percent here, whatever the names say.
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
