"""The status of the installation, charts over time, and how PostgreSQL is doing."""

from datetime import timedelta
from typing import Annotated, Final, TypeAlias

from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from skep.broker.stats.charts import Charts, QueueChoice
from skep.broker.stats.database import DatabaseStats, PostgresStats
from skep.broker.stats.ranges import SPAN_DEFAULT, ChartRange, Interval, chart_range
from skep.broker.stats.shapes import (
    GroupLagChart,
    MessageChart,
    ParkedChart,
    QueueLagPoint,
    QueueOpsChart,
    ReaderPage,
    Status,
    SystemChart,
    WorkerChart,
)
from skep.broker.stats.status import StatusReport, WorkerCharts
from skep.broker.timestamps import in_utc
from skep.server.auth.access import Level, listed_by, needs
from skep.server.routes.parameters import (
    LimitOrNone,
    OnlyGroup,
    OnlyNamespace,
    OnlyQueue,
    OnlyTask,
    Since,
    Until,
)
from skep.server.routes.section import Section

_PATH: Final = "/api/v1/analytics"
_DAY: Final = timedelta(days=1)
_BUSIEST: Final = "Without `queue`, shows the twenty busiest."

OnlyHost: TypeAlias = Annotated[
    str | None, QueryParameter(name="hostname", description="Only workers of this host.")
]
OnlyWorker: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        name="workerId", ge=0, le=2**31 - 1, description="Only workers with this number."
    ),
]


def chart_routes(
    report: StatusReport, charts: Charts, workers: WorkerCharts, database: DatabaseStats
) -> list[HTTPRouteHandler]:
    """Declare the routes."""
    status, analytics = Section("Status"), Section("Analytics")
    read = needs(Level.READ_ONLY)
    by_queue = needs(Level.READ_ONLY, listed_by(queue="queue"))

    async def covering(since: Since, until: Until, *, span: timedelta = SPAN_DEFAULT) -> ChartRange:
        return chart_range(in_utc(since), in_utc(until), now=await charts.now(), span=span)

    @status.get("/api/v1/status", by_queue)
    async def show_status(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        namespace: OnlyNamespace = None,
        task: OnlyTask = None,
    ) -> Status:
        """Summarize the state of the installation.

        Messages, leases and dead letters are current; throughput, requests, workers and errors
        cover the requested range.
        """
        choice = QueueChoice(queue=queue, namespace=namespace, task=task)
        return await report.describe(await covering(since, until), choice)

    @status.get("/api/v1/status/analytics", by_queue)
    async def chart_pushes(
        since: Annotated[
            Since,
            QueryParameter(
                name="from", description="Start of the range; by default a day before `to`."
            ),
        ] = None,
        until: Until = None,
        interval: Annotated[Interval, QueryParameter(description="Length of a point.")] = "hour",
        queue: OnlyQueue = None,
        namespace: OnlyNamespace = None,
        task: OnlyTask = None,
    ) -> MessageChart:
        """Chart the messages pushed over time.

        Figures older than two days are kept by the hour only.
        """
        choice = QueueChoice(queue=queue, namespace=namespace, task=task)
        covered = await covering(since, until, span=_DAY)
        return await charts.pushed(covered, choice, interval=interval)

    @analytics.get(f"{_PATH}/system-metrics", read)
    async def chart_usage(
        since: Since = None,
        until: Until = None,
        hostname: OnlyHost = None,
        worker_id: OnlyWorker = None,
    ) -> SystemChart:
        """Chart the resources that each worker used."""
        covered = await covering(since, until)
        return await workers.usage(covered, hostname=hostname, number=worker_id)

    @analytics.get(f"{_PATH}/worker-metrics", read)
    async def chart_workers(
        since: Since = None,
        until: Until = None,
        hostname: OnlyHost = None,
        worker_id: OnlyWorker = None,
    ) -> WorkerChart:
        """Chart what the workers did."""
        covered = await covering(since, until)
        return await workers.activity(covered, hostname=hostname, number=worker_id)

    @analytics.get(f"{_PATH}/queue-lag", by_queue, description=_BUSIEST)
    async def chart_queue_lag(
        since: Since = None, until: Until = None, queue: OnlyQueue = None
    ) -> list[QueueLagPoint]:
        """Chart the time from push to delivery."""
        return await charts.queue_lag(await covering(since, until), QueueChoice(queue=queue))

    @analytics.get(f"{_PATH}/queue-ops", by_queue, description=_BUSIEST)
    async def chart_queues(
        since: Since = None, until: Until = None, queue: OnlyQueue = None
    ) -> QueueOpsChart:
        """Chart the operations on queues."""
        return await charts.queue_operations(await covering(since, until), QueueChoice(queue=queue))

    @analytics.get(f"{_PATH}/queue-parked-replicas", by_queue)
    async def chart_parked(
        since: Since = None, until: Until = None, queue: OnlyQueue = None
    ) -> ParkedChart:
        """Chart the waiting polls by worker.

        Kept for two days.
        """
        return await charts.parked(await covering(since, until), QueueChoice(queue=queue))

    @analytics.get(f"{_PATH}/group-lag", by_queue)
    async def chart_group_lag(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        group: OnlyGroup = None,
    ) -> GroupLagChart:
        """Chart the lag of consumer groups.

        Sampled once a minute for queues in use; kept for two days.
        """
        covered = await covering(since, until)
        return await charts.group_lag(covered, QueueChoice(queue=queue), group)

    @analytics.get(f"{_PATH}/postgres-stats", read)
    async def describe_postgres() -> PostgresStats:
        """Show PostgreSQL's own statistics about the broker's tables."""
        return await database.describe()

    @analytics.get("/api/v1/readers", read)
    async def list_readers(
        name: Annotated[str | None, QueryParameter(description="Only this reader.")] = None,
        limit: LimitOrNone = 100,
    ) -> ReaderPage:
        """List the lag of readers on Spark.

        A running micro-batch counts as unread.
        """
        return await database.readers(name, limit)

    return [*status.routes, *analytics.routes]
