"""The status of the installation, for dashboards: everything at a glance, and what was pushed."""

from datetime import timedelta
from typing import Annotated, Final

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from skep.broker.stats.charts import Charts, QueueChoice
from skep.broker.stats.ranges import Interval, chart_range
from skep.broker.stats.shapes import MessageChart, Status
from skep.broker.stats.status import StatusReport
from skep.broker.timestamps import in_utc
from skep.server.auth.access import Level, listed_by, needs
from skep.server.routes.names import OnlyNamespace, OnlyTask
from skep.server.routes.stats.charting import OnlyQueue, Since, Until

_TAGS: Final = ["Status"]
_DAY: Final = timedelta(days=1)


def status_routes(report: StatusReport, charts: Charts) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker knows."""

    @get(
        "/api/v1/status",
        tags=_TAGS,
        operation_id="showStatus",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="Everything at a glance",
        description="Messages, leases and dead letters are those of now; throughput, requests, "
        "workers and errors those of the time asked for.",
    )
    async def show_status(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        namespace: OnlyNamespace = None,
        task: OnlyTask = None,
    ) -> Status:
        covered = chart_range(in_utc(since), in_utc(until), now=await charts.now())
        choice = QueueChoice(queue=queue, namespace=namespace, task=task)
        return await report.describe(covered, choice)

    @get(
        "/api/v1/status/analytics",
        tags=_TAGS,
        operation_id="chartPushes",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="Messages pushed over time",
        description="What lies more than two days back is known by the hour only.",
    )
    async def chart_pushes(
        since: Annotated[
            Since, QueryParameter(name="from", description="By default a day before `to`.")
        ] = None,
        until: Until = None,
        interval: Annotated[Interval, QueryParameter(description="Length of a point.")] = "hour",
        queue: OnlyQueue = None,
        namespace: OnlyNamespace = None,
        task: OnlyTask = None,
    ) -> MessageChart:
        now = await charts.now()
        covered = chart_range(in_utc(since), in_utc(until), now=now, span=_DAY)
        choice = QueueChoice(queue=queue, namespace=namespace, task=task)
        return await charts.pushed(covered, choice, interval=interval)

    return [show_status, chart_pushes]
