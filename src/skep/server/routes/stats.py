"""Status, charts over time, how PostgreSQL is doing, and the metrics of this instance.

Metrics are those of all workers of the instance together: for Prometheus, and as brief JSON.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

import msgspec
from litestar import Response

from skep.broker.stats import shapes
from skep.broker.stats.charts import Charts
from skep.broker.stats.database import DatabaseStats, PostgresStats
from skep.broker.stats.ranges import Interval
from skep.broker.stats.scrape import ScrapeFacts, queen_families
from skep.broker.stats.status import StatusReport, WorkerCharts
from skep.server.auth import access
from skep.server.routes import parameters as given
from skep.server.routes.section import Parts, Section, in_query, routes_of
from skep.telemetry.exposition import expose
from skep.telemetry.snapshots import Counts, Publisher, Snapshot, sum_counts

_UNCACHED: Final = {"cache-control": "no-cache"}
TEXT_FORMAT: Final = "text/plain; version=0.0.4"
_PATH: Final = "/api/v1/analytics"
_DAY: Final = timedelta(days=1)
_BUSIEST: Final = "Without `queue`, shows the twenty busiest."

DaySpan: TypeAlias = Annotated[
    given.TimeSpan,
    Parts(
        since=Annotated[
            given.Since, in_query("Start of the range; by default a day before `to`.", "from")
        ],
        until=given.Until,
    ),
]
OnlyHost: TypeAlias = Annotated[str | None, in_query("Only workers of this host.", "hostname")]
OnlyWorker: TypeAlias = Annotated[
    int | None, in_query("Only workers with this number.", "workerId", ge=0, le=2**31 - 1)
]


@routes_of("Analytics")
def chart_routes(
    section: Section,
    report: StatusReport,
    charts: Charts,
    workers: WorkerCharts,
    database: DatabaseStats,
) -> None:
    """Declare the routes of charts."""

    @section.get("/api/v1/status", access.READ_LIST, tag="Status")
    async def show_status(span: given.Span, choice: given.SomeQueues) -> shapes.Status:
        """Summarize the state of the installation.

        Messages, leases and dead letters are current; throughput, requests, workers and errors
        cover the requested range.
        """
        return await report.describe(await span.on(charts), choice)

    @section.get("/api/v1/status/analytics", access.READ_LIST, tag="Status")
    async def chart_pushes(
        *,
        span: DaySpan,
        interval: Annotated[Interval, in_query("Length of a point.")] = "hour",
        choice: given.SomeQueues,
    ) -> shapes.MessageChart:
        """Chart the messages pushed over time.

        Figures older than two days are kept by the hour only.
        """
        return await charts.pushed(await span.on(charts, span=_DAY), choice, interval=interval)

    @section.get(f"{_PATH}/system-metrics", access.READ)
    async def chart_usage(
        span: given.Span, hostname: OnlyHost = None, worker_id: OnlyWorker = None
    ) -> shapes.SystemChart:
        """Chart the resources that each worker used."""
        return await workers.usage(await span.on(charts), hostname=hostname, number=worker_id)

    @section.get(f"{_PATH}/worker-metrics", access.READ)
    async def chart_workers(
        span: given.Span, hostname: OnlyHost = None, worker_id: OnlyWorker = None
    ) -> shapes.WorkerChart:
        """Chart what the workers did."""
        return await workers.activity(await span.on(charts), hostname=hostname, number=worker_id)

    @section.get(f"{_PATH}/queue-lag", access.READ_LIST, description=_BUSIEST)
    async def chart_queue_lag(
        span: given.Span, choice: given.OneQueue
    ) -> list[shapes.QueueLagPoint]:
        """Chart the time from push to delivery."""
        return await charts.queue_lag(await span.on(charts), choice)

    @section.get(f"{_PATH}/queue-ops", access.READ_LIST, description=_BUSIEST)
    async def chart_queues(span: given.Span, choice: given.OneQueue) -> shapes.QueueOpsChart:
        """Chart the operations on queues."""
        return await charts.queue_operations(await span.on(charts), choice)

    @section.get(f"{_PATH}/queue-parked-replicas", access.READ_LIST)
    async def chart_parked(span: given.Span, choice: given.OneQueue) -> shapes.ParkedChart:
        """Chart the waiting polls by worker.

        Kept for two days.
        """
        return await charts.parked(await span.on(charts), choice)

    @section.get(f"{_PATH}/group-lag", access.READ_LIST)
    async def chart_group_lag(
        span: given.Span, choice: given.OneQueue, group: given.OnlyGroup = None
    ) -> shapes.GroupLagChart:
        """Chart the lag of consumer groups.

        Sampled once a minute for queues in use; kept for two days.
        """
        return await charts.group_lag(await span.on(charts), choice, group)

    @section.get(f"{_PATH}/markers", access.READ)
    async def list_markers(span: given.Span) -> shapes.MarkerList:
        """List deploys, starts, stops and losses of instances, for charts to point at."""
        return await charts.markers(await span.on(charts))

    @section.get(f"{_PATH}/postgres-stats", access.READ)
    async def describe_postgres() -> PostgresStats:
        """Show PostgreSQL's own statistics about the broker's tables."""
        return await database.describe()

    @section.get("/api/v1/readers", access.READ)
    async def list_readers(
        name: Annotated[str | None, in_query("Only this reader.")] = None,
        limit: given.LimitOrNone = 100,
    ) -> shapes.ReaderPage:
        """List the lag of readers on Spark.

        A running micro-batch counts as unread.
        """
        return await database.readers(name, limit)


class Volume(msgspec.Struct, frozen=True):
    """How many there were, and per second in the last minute."""

    total: int
    rate: float


class PoolFigures(msgspec.Struct, rename="camel", frozen=True):
    """Connections to PostgreSQL."""

    pool_size: int
    idle_connections: int
    waiting_requests: int


class MemoryFigures(msgspec.Struct, rename="camel", frozen=True):
    """Memory in bytes. Only `rss` means something here; the others are Node's."""

    rss: int
    heap_total: int = 0
    heap_used: int = 0
    external: int = 0
    array_buffers: int = 0


class CpuFigures(msgspec.Struct, frozen=True):
    """Processor time in microseconds."""

    user: int
    system: int


class InstanceMetrics(msgspec.Struct, frozen=True):
    """All workers of the instance together."""

    uptime: float
    """Seconds since the oldest worker began."""
    requests: Volume
    messages: Volume
    """Messages pushed and delivered."""
    database: PoolFigures
    memory: MemoryFigures
    cpu: CpuFigures


@routes_of("Metrics")
def metrics_routes(section: Section, publisher: Publisher, facts: ScrapeFacts) -> None:
    """Declare the routes of metrics."""

    @section.get("/metrics", access.READ, response_headers=_UNCACHED)
    async def show_metrics() -> InstanceMetrics:
        """Summarize the metrics of this instance as JSON."""
        return summarize(publisher.gather(), now=datetime.now(UTC).timestamp())

    @section.get("/metrics/prometheus", access.READ, media_type=TEXT_FORMAT)
    async def scrape_metrics() -> Response[bytes]:
        """Expose the metrics of this instance to Prometheus.

        Text exposition format 0.0.4. Names that begin with `skep_` are of this instance; of those
        with `queen_`, which Queen's dashboards know, `queen_cluster_`, `queen_queue_` and
        `queen_dlq_` are of the whole installation.
        """
        snapshots = publisher.gather()
        further = queen_families(snapshots, await facts.read())
        # Thousands of lines would block the event loop for too long.
        text = await asyncio.to_thread(expose, snapshots, further)
        return Response(text, headers=_UNCACHED)


def summarize(snapshots: Sequence[Snapshot], *, now: float) -> InstanceMetrics:
    """Put the workers of an instance together."""
    counters = sum_counts(each.counters for each in snapshots)
    gauges = sum_counts(each.gauges for each in snapshots)
    cpu = counters.get("skep_process_cpu_seconds", {})
    connections = gauges.get("skep_db_connections", {})
    idle = sum(count for labels, count in connections.items() if labels[1] == "idle")
    return InstanceMetrics(
        uptime=round(now - min(each.started_at for each in snapshots), 3),
        requests=Volume(
            _total(counters, "skep_http_requests"),
            round(sum(each.requests_per_s for each in snapshots), 3),
        ),
        messages=Volume(
            _total(counters, "skep_pushed_messages") + _total(counters, "skep_popped_messages"),
            round(sum(each.messages_per_s for each in snapshots), 3),
        ),
        database=PoolFigures(
            int(sum(connections.values())), int(idle), _total(gauges, "skep_db_waiting_calls")
        ),
        memory=MemoryFigures(_total(gauges, "skep_process_resident_memory_bytes")),
        cpu=CpuFigures(int(cpu[("user",)] * 1e6), int(cpu[("system",)] * 1e6)),
    )


def _total(counts: Counts, family: str) -> int:
    return int(sum(counts.get(family, {}).values()))
