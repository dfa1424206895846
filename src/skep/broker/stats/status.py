"""The status of an installation: what is there now, and what happened lately.

Counts of messages are those of the listings (`queue_catalog`), everything over time comes from the
rollups (`stats_charts`). Without a choice of queues the samples of the workers say what happened:
they are few, however many queues there are.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from skep.broker.paging import Page
from skep.broker.queues.catalog import QueueCatalog, QueueFilter, sum_counts
from skep.broker.queues.resources import MessageCounts, QueueSummary
from skep.broker.stats.charts import Charts, QueueChoice, WorkerSample, average, by_bucket, rate
from skep.broker.stats.ranges import ChartRange, ChartSpan
from skep.broker.stats.samples import EMPTY, Gauge, Sample, merge_samples
from skep.broker.stats.shapes import (
    BatchSizes,
    RequestCounts,
    Status,
    StatusErrors,
    StatusLeases,
    StatusLetters,
    StatusMessages,
    StatusQueue,
    ThroughputPoint,
    TopError,
    WorkerBrief,
)
from skep.broker.timestamps import spell_moment
from skep.db.access.slots import Caller
from skep.model.errors import NotFound
from skep.telemetry.meters import COUNTERS

LEASES_CALL: Final = "select * from skep.measure_leases($1)"
LETTERS_CALL: Final = "select * from skep.summarize_letters($1, $2)"

LEASES_MAX: Final = 10_000
LETTERS_MAX: Final = 1_000
ERRORS_SHOWN: Final = 10
QUEUES_SHOWN: Final = 100
PARTITIONS_EXACT: Final = 2_000
"""Partitions that the status counts one by one: it has more to do than a listing."""
_MIB: Final = 1024 * 1024


class StatusReport:
    """Answers how the installation is doing."""

    def __init__(self, caller: Caller, charts: Charts, catalog: QueueCatalog) -> None:
        self._caller: Final = caller
        self._charts: Final = charts
        self._catalog: Final = catalog

    async def describe(self, covered: ChartRange, choice: QueueChoice) -> Status:
        """Sum up everything."""
        rows: Sequence[Any] | None = None
        if not choice.is_everything:
            chosen = await self._charts.choose(covered, choice)
            covered, rows = chosen.covered, await self._charts.sum_queues(chosen)
        samples = await self._charts.worker_samples(covered)
        by_time = by_bucket(covered, samples)
        if rows is not None:
            by_time = _chosen(by_time, rows)
        total = merge_samples(by_time.values())
        points = [_throughput_point(covered, *each) for each in reversed(by_time.items())]
        counted = await self._count(choice)
        return Status(
            time_range=ChartSpan.of(covered),
            bucket_minutes=covered.bucket_minutes,
            point_count=len(points),
            throughput=points,
            queues=counted.shown,
            messages=_messages(counted, total),
            leases=await self._leases(acked=total.count("ack_success")),
            dead_letter_queue=await self._letters(counted.messages.dead_letter),
            workers=[brief_of(each) for each in by_worker(samples)],
            errors=StatusErrors(
                db_errors=total.count("db_errors"),
                ack_failed=total.count("ack_failed"),
                dlq_messages=total.count("dead_letters"),
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
        shown = [_status_queue(each) for each in page.queues]
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
        queue = StatusQueue(
            id=found.id,
            name=found.name,
            namespace=found.namespace,
            task=found.task,
            partitions=found.partitions_total,
            total_consumed=found.totals.completed,
        )
        return _Counted([queue], found.totals, is_guess=found.estimated)

    async def _leases(self, *, acked: int) -> StatusLeases:
        ((leases, partitions, messages),) = await self._caller.call(LEASES_CALL, LEASES_MAX)
        return StatusLeases(
            active=leases,
            partitions_with_leases=partitions,
            total_batch_size=messages,
            total_acked=acked,
        )

    async def _letters(self, total: int) -> StatusLetters:
        rows = await self._caller.call(LETTERS_CALL, LETTERS_MAX, ERRORS_SHOWN)
        return StatusLetters(
            total_messages=total,
            affected_partitions=rows[0]["partitions"] if rows else 0,
            top_errors=[TopError(row["error"], row["count"]) for row in rows],
        )


class _Counted(NamedTuple):
    """The messages of some queues, and the queues that are shown."""

    shown: list[StatusQueue]
    messages: MessageCounts
    is_guess: bool


def _messages(counted: _Counted, total: Sample) -> StatusMessages:
    pushes, pops, acks = (total.count(f"{name}_requests") for name in ("push", "pop", "ack"))
    return StatusMessages(
        **msgspec.structs.asdict(counted.messages),
        requests=RequestCounts(pushes, pops, acks),
        batch_efficiency=BatchSizes(
            average(total.count("push_messages"), pushes),
            average(total.count("pop_messages"), pops),
            average(total.count("ack_success") + total.count("ack_failed"), acks),
        ),
        estimated=counted.is_guess,
    )


def by_worker(samples: Iterable[WorkerSample]) -> list[list[WorkerSample]]:
    """Sort samples by worker; of one that was restarted all belong together."""
    found: dict[tuple[str, int, int], list[WorkerSample]] = {}
    for each in samples:
        found.setdefault((each.hostname, each.port, each.number), []).append(each)
    return list(found.values())


def brief_of(samples: Sequence[WorkerSample]) -> WorkerBrief:
    """Sum up one worker."""
    merged = merge_samples(each.sample for each in samples)
    last = samples[-1].sample
    return WorkerBrief(
        hostname=samples[-1].hostname,
        worker_id=samples[-1].number,
        avg_event_loop_lag_ms=_rounded(merged.average("loop_lag_ms")) or 0.0,
        max_event_loop_lag_ms=greatest(merged, "loop_lag_ms"),
        free_slots=int(latest(last, "pool_idle")),
        db_connections=int(latest(last, "pool_size")),
        job_queue_size=int(latest(last, "waiting_calls")),
        messages_processed=merged.count("pop_messages"),
    )


def greatest(sample: Sample, gauge: str) -> float:
    """Return the greatest value seen, 0 when none was."""
    found = sample.gauges.get(gauge)
    return round(found.greatest, 2) if found else 0.0


def least(sample: Sample, gauge: str) -> float | None:
    """Return the least value seen."""
    found = sample.gauges.get(gauge)
    return found.least if found else None


def latest(sample: Sample, gauge: str) -> float:
    """Return the latest value seen, 0 when none was."""
    found = sample.gauges.get(gauge)
    return found.last if found else 0.0


def _chosen(by_time: dict[datetime, Sample], rows: Sequence[Any]) -> dict[datetime, Sample]:
    """Put what happened in some queues in the place of what happened in all."""
    row_by_bucket = {row["bucket"]: row for row in rows}
    chosen: dict[datetime, Sample] = {}
    for bucket in sorted({*by_time, *row_by_bucket}):
        sample, row = by_time.get(bucket, EMPTY), row_by_bucket.get(bucket)
        counters = {name: row[name] if row else 0 for name in COUNTERS}
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
    free = least(sample, "pool_idle")
    return ThroughputPoint(
        timestamp=spell_moment(bucket),
        ingested=pushed,
        processed=acked,
        pop_messages=popped,
        ingested_per_second=rate(pushed, seconds),
        processed_per_second=rate(acked, seconds),
        pop_per_second=rate(popped, seconds),
        avg_lag_ms=average(sample.count("lag_ms_sum"), popped),
        max_lag_ms=int(greatest(sample, "lag_ms_max")),
        avg_event_loop_lag_ms=_rounded(sample.average("loop_lag_ms")),
        max_event_loop_lag_ms=_rounded(_greatest_or_none(sample, "loop_lag_ms")),
        min_free_slots=None if free is None else int(free),
        db_errors=sample.count("db_errors"),
        ack_failed=sample.count("ack_failed"),
        dlq_count=sample.count("dead_letters"),
        queen_cpu_user_pct=_rounded(sample.average("cpu_user_pct")),
        queen_cpu_sys_pct=_rounded(sample.average("cpu_system_pct")),
        queen_rss_mb=None if rss is None else round(rss / _MIB, 2),
        db_pool_active=_rounded(sample.average("pool_active")),
        db_pool_idle=_rounded(sample.average("pool_idle")),
        db_pool_size=_rounded(sample.average("pool_size")),
    )


def _greatest_or_none(sample: Sample, gauge: str) -> float | None:
    return sample.gauges[gauge].greatest if gauge in sample.gauges else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _status_queue(queue: QueueSummary) -> StatusQueue:
    return StatusQueue(
        id=queue.id,
        name=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        partitions=queue.partitions,
        total_consumed=queue.messages.completed,
    )


def _age(samples: Sequence[WorkerSample], now: datetime) -> float | None:
    if not samples:
        return None
    return max(0.0, round((now - max(each.seen_at for each in samples)).total_seconds(), 3))
