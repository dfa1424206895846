"""Charts: what happened over time, from the rollups that the workers write.

Reads only. What a chart costs is bounded: rollups by minute serve up to a day, those by hour
longer times, and a chart over all queues shows the busiest.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from skep.broker.paging import from_row
from skep.broker.stats import shapes
from skep.broker.stats.ranges import ChartRange, Interval
from skep.broker.stats.samples import Sample, decode_sample, merge_samples
from skep.broker.timestamps import spell_moment
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.names import check_optional_name
from skep.telemetry.histograms import LAG_BOUNDS_MS, quantile

CHOSEN_CALL: Final = (
    "select q.id, q.name from skep.queue q where ($1::text is null or q.name = $1)"
    " and ($2::text is null or q.namespace = $2) and ($3::text is null or q.task = $3)"
    " order by q.id limit $4"
)
COUNT_PARTITIONS_CALL: Final = (
    "select p.queue_id, count(*) as partitions from skep.partition p"
    " where p.queue_id = any($1) group by 1"
)

LAG_SHARES: Final = (0.5, 0.95, 0.99)

QUEUES_CHARTED: Final = 20
"""Queues in a chart over all of them."""
QUEUES_SUMMED: Final = 10_000
"""Queues that a sum by namespace or task goes through."""
MINUTES_SUMMED: Final = 100_000
"""Rollups by minute that a sum goes through; beyond that it goes by the hour."""
MARKERS_MAX: Final = 500
ROWS_MAX: Final = 20_000
"""Rows that a chart reads, or points it has."""


_MARKER_TEXTS: Final = {
    "deploy": "Version {version} deployed",
    "start": "{instance} started",
    "restart": "{instance} restarted",
    "stop": "{instance} stopped",
    "loss": "{instance} lost",
}


class QueueChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues a chart is about."""

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None

    def __post_init__(self) -> None:
        for kind in ("queue", "namespace", "task"):
            check_optional_name(kind, getattr(self, kind))

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self.queue is None and self.namespace is None and self.task is None


class WorkerSample(msgspec.Struct, frozen=True):
    """What a worker did from a time on."""

    hostname: str
    port: int
    number: int
    seen_at: datetime
    at: datetime
    sample: Sample


class Charts:
    """Charts what happened over time."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def now(self) -> datetime:
        """Return the time by the database's clock."""
        return await self._sql.value("now")

    async def worker_samples(
        self, covered: ChartRange, *, hostname: str | None = None, number: int | None = None
    ) -> list[WorkerSample]:
        """Return what workers were doing, oldest first."""
        check_optional_name("hostname", hostname)
        rows = await self._sql.rows("worker_samples", *_span(covered), hostname, number, ROWS_MAX)
        return [from_row(WorkerSample, row, sample=decode_sample(row["sample"])) for row in rows]

    async def sum_queues(
        self, covered: ChartRange, choice: QueueChoice
    ) -> tuple[ChartRange, Sequence[Any]]:
        """Sum up the rollups of the queues chosen by bucket; return the time as it is summed up.

        Over many queues, long times are summed up by the hour.
        """
        queues = await self._find(covered, choice, QUEUES_SUMMED)
        minutes = (covered.until - covered.since).total_seconds() / 60
        if len(queues) * minutes > MINUTES_SUMMED:
            covered = covered.by_hour()
        has_lags = len(queues) <= QUEUES_CHARTED  # they cost more than all the rest
        return covered, await self._rows(covered, list(queues), is_sum=True, has_lags=has_lags)

    async def queue_operations(
        self, covered: ChartRange, choice: QueueChoice
    ) -> shapes.QueueOpsChart:
        """Chart everything that happened in queues."""
        covered = covered if choice.queue else covered.for_many()
        names = await self._find(covered, choice, QUEUES_CHARTED)
        rows = await self._rows(covered, list(names), has_lags=choice.queue is not None)
        parked: Counter[tuple[datetime, str]] = Counter()
        for row in await self._parked_rows(covered, choice):
            parked[row["bucket"], row["queue"]] += row["parked"]
        removed = {
            (row["bucket"], row["queue_id"]): row["partitions"]
            for row in await self._sql.rows("removed_partitions", *covered.buckets, list(names))
        }
        partitions = dict(await self._sql.call(COUNT_PARTITIONS_CALL, list(names)))
        return shapes.QueueOpsChart(
            **covered.spelled,
            series=[
                _operations_point(
                    covered,
                    row,
                    queue_name=names[row["queue_id"]],
                    partitions_deleted=removed.get((row["bucket"], row["queue_id"]), 0),
                    partition_count=partitions.get(row["queue_id"], 0),
                    parked_count=parked[row["bucket"], names[row["queue_id"]]],
                )
                for row in rows
            ],
            queues=sorted(names.values()),
        )

    async def queue_lag(
        self, covered: ChartRange, choice: QueueChoice
    ) -> list[shapes.QueueLagPoint]:
        """Chart how long messages took from push to delivery."""
        covered = covered if choice.queue else covered.for_many()
        names = await self._find(covered, choice, QUEUES_CHARTED)
        rows = await self._rows(covered, list(names))
        return [
            shapes.QueueLagPoint(
                **_lag_members(names, [row]), bucket_time=spell_moment(row["bucket"])
            )
            for row in rows
            if row["pop_messages"]
        ]

    async def queue_lags(self, covered: ChartRange) -> list[shapes.QueueLagSummary]:
        """Sum up the lag of the busiest queues."""
        names = await self._find(covered, QueueChoice(), QUEUES_CHARTED)
        rows = await self._rows(covered, list(names))
        by_queue = groupby(sorted(rows, key=itemgetter("queue_id")), key=itemgetter("queue_id"))
        return [shapes.QueueLagSummary(**_lag_members(names, list(its))) for _, its in by_queue]

    async def parked(self, covered: ChartRange, choice: QueueChoice) -> shapes.ParkedChart:
        """Chart where polls waited."""
        covered = covered if choice.queue else covered.for_many()
        rows = await self._parked_rows(covered, choice)
        return shapes.ParkedChart(
            **covered.spelled,
            series=[
                from_row(
                    shapes.ParkedPoint,
                    row,
                    bucket=spell_moment(row["bucket"]),
                    queue_name=row["queue"],
                    worker_id=row["number"],
                    parked_count=row["parked"],
                )
                for row in rows
            ],
            replicas=[
                shapes.ReplicaName(hostname=hostname, worker_id=number)
                for hostname, number in sorted({(row["hostname"], row["number"]) for row in rows})
            ],
        )

    async def group_lag(
        self, covered: ChartRange, choice: QueueChoice, group: str | None
    ) -> shapes.GroupLagChart:
        """Chart how far groups were behind."""
        check_optional_name("consumerGroup", group)
        covered = covered if choice.queue else covered.for_many()
        rows = await self._sql.rows("chart_groups", *covered.buckets, choice.queue, group, ROWS_MAX)
        return shapes.GroupLagChart(
            **covered.spelled,
            series=[
                shapes.GroupLagPoint(
                    bucket=spell_moment(row["bucket"]),
                    queue_name=row["queue"],
                    consumer_group=row["group_name"],
                    offset_lag=row["backlog"],
                    time_lag_seconds=row["lag_s"],
                )
                for row in rows
            ],
        )

    async def markers(self, covered: ChartRange) -> shapes.MarkerList:
        """Return what happened to instances, newest first."""
        rows = await self._sql.rows("list_markers", covered.since, covered.until, MARKERS_MAX)
        return shapes.MarkerList(
            time_range=covered.spelled["time_range"],
            markers=[
                shapes.Marker(
                    at=spell_moment(row["at"]),
                    kind=row["kind"],
                    instance=row["instance"],
                    text=_MARKER_TEXTS[row["kind"]].format(**row),
                )
                for row in rows
            ],
        )

    async def pushed(
        self, covered: ChartRange, choice: QueueChoice, *, interval: Interval
    ) -> shapes.MessageChart:
        """Chart the messages pushed, by an interval, or by the hour where that is all there is."""
        return shapes.MessageChart(
            data_points=[
                shapes.MessagePoint(spell_moment(bucket), messages)
                for bucket, messages in await self._pushed(covered.by(interval), choice)
                if messages
            ],
            interval=interval,
            since=spell_moment(covered.since),
            until=spell_moment(covered.until),
        )

    async def _pushed(self, covered: ChartRange, choice: QueueChoice) -> list[tuple[datetime, int]]:
        if choice.is_everything:  # the samples of the workers are few, however many queues
            samples = by_bucket(covered, await self.worker_samples(covered))
            return [(bucket, each.count("push_messages")) for bucket, each in samples.items()]
        _, rows = await self.sum_queues(covered, choice)
        return [(row["bucket"], row["push_messages"]) for row in rows]

    async def _find(self, covered: ChartRange, choice: QueueChoice, limit: int) -> dict[int, str]:
        """Return the names of the queues to show, by id: those chosen, or else the busiest."""
        if not choice.is_everything:
            rows = await self._sql.call(CHOSEN_CALL, *astuple(choice), limit)
        else:
            # By hour unless it is short, from the start of the first hour: it only chooses queues.
            by_hour = covered.bucket_minutes > 1
            since = covered.since.replace(minute=0, second=0, microsecond=0)
            span = (since if by_hour else covered.since, covered.until, by_hour)
            rows = await self._sql.rows("busiest_queues", *span, limit)
        return {row["id"]: row["name"] for row in rows}

    async def _rows(
        self,
        covered: ChartRange,
        queue_ids: Sequence[int],
        *,
        is_sum: bool = False,
        has_lags: bool = False,
    ) -> Sequence[Any]:
        if not queue_ids:
            return []
        return await self._sql.rows(
            "chart_queues", *_span(covered), covered.bucket_s, queue_ids, is_sum, has_lags
        )

    async def _parked_rows(self, covered: ChartRange, choice: QueueChoice) -> Sequence[Any]:
        return await self._sql.rows("chart_parked", *covered.buckets, choice.queue, ROWS_MAX)


def average(total: float, count: int) -> float:
    """Return the mean of so many values, 0 when there are none."""
    return round(total / count, 2) if count else 0.0


def rate(count: int, seconds: float) -> float:
    """Return how many there were in a second."""
    return round(count / seconds, 3)


def lag_percentiles(
    counts: Sequence[int], most: float
) -> tuple[float | None, float | None, float | None]:
    """Estimate median, 95th and 99th percentile of a lag, of which the greatest is known."""
    p50, p95, p99 = (
        value and round(value, 2)
        for value in (quantile(LAG_BOUNDS_MS, counts, share, most=most) for share in LAG_SHARES)
    )
    return p50, p95, p99


def by_bucket(covered: ChartRange, samples: Iterable[WorkerSample]) -> dict[datetime, Sample]:
    """Merge the samples of all workers by bucket, oldest first."""
    sorted_in: dict[datetime, list[Sample]] = {}
    for each in samples:
        sorted_in.setdefault(covered.bucket_of(each.at), []).append(each.sample)
    return {bucket: merge_samples(found) for bucket, found in sorted(sorted_in.items())}


def _lag_members(names: dict[int, str], rows: Sequence[Any]) -> dict[str, Any]:
    count = sum(row["pop_messages"] for row in rows)
    return {
        "queue_name": names[rows[0]["queue_id"]],
        "pop_count": count,
        "avg_lag_ms": average(sum(row["lag_ms_sum"] for row in rows), count),
        "max_lag_ms": max(row["lag_ms_max"] for row in rows),
    }


def _span(covered: ChartRange) -> tuple[datetime, datetime, bool]:
    # From the start of the bucket, or the first point would cover only a part of it.
    since = covered.bucket_of(covered.since) if covered.is_hourly else covered.since
    return since, covered.until, covered.is_hourly


def _operations_point(covered: ChartRange, row: Any, **members: Any) -> shapes.QueueOpsPoint:
    """Make a point of a row, and of what comes from elsewhere."""
    seconds = covered.seconds_in(row["bucket"])
    p50, p95, p99 = lag_percentiles(row["lag_counts"], row["lag_ms_max"])
    return from_row(
        shapes.QueueOpsPoint,
        row,
        bucket=spell_moment(row["bucket"]),
        avg_lag_ms=average(row["lag_ms_sum"], row["pop_messages"]),
        p50_lag_ms=p50,
        p95_lag_ms=p95,
        p99_lag_ms=p99,
        max_lag_ms=row["lag_ms_max"],
        push_per_second=rate(row["push_messages"], seconds),
        pop_per_second=rate(row["pop_messages"], seconds),
        ack_per_second=rate(row["ack_success"] + row["ack_failed"], seconds),
        empty_per_second=rate(row["pop_empty"], seconds),
        **members,
    )
