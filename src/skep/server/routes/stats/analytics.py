"""Charts of what happened, and how PostgreSQL is doing: the routes below `/api/v1/analytics`."""

from typing import Annotated, Final

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from skep.broker.stats.charts import Charts, QueueChoice
from skep.broker.stats.database import DatabaseStats, PostgresStats
from skep.broker.stats.ranges import ChartRange, chart_range
from skep.broker.stats.shapes import (
    GroupLagChart,
    ParkedChart,
    QueueLagPoint,
    QueueOpsChart,
    ReaderPage,
    SystemChart,
    WorkerChart,
)
from skep.broker.stats.workers import WorkerCharts
from skep.broker.timestamps import in_utc
from skep.server.auth.access import Level, listed_by, needs
from skep.server.routes.paging import Limit
from skep.server.routes.stats.charting import OnlyHost, OnlyQueue, OnlyWorker, Since, Until

_TAGS: Final = ["Analytics"]
_BUSIEST: Final = "Without a queue the twenty busiest are shown."


def analytics_routes(
    charts: Charts, workers: WorkerCharts, database: DatabaseStats
) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker knows."""

    async def covering(since: Since, until: Until) -> ChartRange:
        return chart_range(in_utc(since), in_utc(until), now=await charts.now())

    @get(
        "/api/v1/analytics/system-metrics",
        tags=_TAGS,
        operation_id="chartUsage",
        opt=needs(Level.READ_ONLY),
        summary="What each worker used",
    )
    async def chart_usage(
        since: Since = None,
        until: Until = None,
        hostname: OnlyHost = None,
        worker_id: OnlyWorker = None,
    ) -> SystemChart:
        covered = await covering(since, until)
        return await workers.usage(covered, hostname=hostname, number=worker_id)

    @get(
        "/api/v1/analytics/worker-metrics",
        tags=_TAGS,
        operation_id="chartWorkers",
        opt=needs(Level.READ_ONLY),
        summary="What the workers did",
    )
    async def chart_workers(
        since: Since = None,
        until: Until = None,
        hostname: OnlyHost = None,
        worker_id: OnlyWorker = None,
    ) -> WorkerChart:
        covered = await covering(since, until)
        return await workers.activity(covered, hostname=hostname, number=worker_id)

    @get(
        "/api/v1/analytics/queue-lag",
        tags=_TAGS,
        operation_id="chartQueueLag",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="How long messages took from push to delivery",
        description=_BUSIEST,
    )
    async def chart_queue_lag(
        since: Since = None, until: Until = None, queue: OnlyQueue = None
    ) -> list[QueueLagPoint]:
        return await charts.queue_lag(await covering(since, until), QueueChoice(queue=queue))

    @get(
        "/api/v1/analytics/queue-ops",
        tags=_TAGS,
        operation_id="chartQueues",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="What happened in queues",
        description=_BUSIEST,
    )
    async def chart_queues(
        since: Since = None, until: Until = None, queue: OnlyQueue = None
    ) -> QueueOpsChart:
        return await charts.queue_operations(await covering(since, until), QueueChoice(queue=queue))

    @get(
        "/api/v1/analytics/queue-parked-replicas",
        tags=_TAGS,
        operation_id="chartParked",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="Where polls waited",
        description="Kept for two days.",
    )
    async def chart_parked(
        since: Since = None, until: Until = None, queue: OnlyQueue = None
    ) -> ParkedChart:
        return await charts.parked(await covering(since, until), QueueChoice(queue=queue))

    @get(
        "/api/v1/analytics/group-lag",
        tags=_TAGS,
        operation_id="chartGroupLag",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="How far consumer groups were behind",
        description="Of queues in use, once a minute; kept for two days.",
    )
    async def chart_group_lag(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        group: Annotated[
            str | None, QueryParameter(name="consumerGroup", description="Only this group.")
        ] = None,
    ) -> GroupLagChart:
        covered = await covering(since, until)
        return await charts.group_lag(covered, QueueChoice(queue=queue), group)

    @get(
        "/api/v1/analytics/postgres-stats",
        tags=_TAGS,
        operation_id="describePostgres",
        opt=needs(Level.READ_ONLY),
        summary="How PostgreSQL is doing",
        description="From its own statistics, about the tables of the broker.",
    )
    async def describe_postgres() -> PostgresStats:
        return await database.describe()

    @get(
        "/api/v1/readers",
        tags=_TAGS,
        operation_id="listReaders",
        opt=needs(Level.READ_ONLY),
        summary="How far readers on Spark are behind",
        description="A micro-batch under way counts as unread.",
    )
    async def list_readers(
        name: Annotated[str | None, QueryParameter(description="Only this reader.")] = None,
        limit: Limit = 100,
    ) -> ReaderPage:
        return await database.readers(name, limit)

    return [
        chart_usage,
        chart_workers,
        chart_queue_lag,
        chart_queues,
        chart_parked,
        chart_group_lag,
        describe_postgres,
        list_readers,
    ]
