"""What `skep analytics` found out about each hour: the routes below `/api/v1/analytics/lake`."""

from datetime import timedelta
from typing import Annotated, Final

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from skep.broker.spark.analytics import (
    AnalyticsStatus,
    DeathCause,
    GroupHour,
    HotKey,
    Hourly,
    HourlyPage,
    QueueHour,
)
from skep.broker.stats.charts import Charts
from skep.broker.stats.ranges import ChartRange, chart_range
from skep.broker.timestamps import in_utc
from skep.server.auth.access import Level, listed_by, needs
from skep.server.routes.paging import Limit
from skep.server.routes.stats.charting import OnlyQueue, Since, Until

_TAGS: Final = ["Analytics"]
_PATH: Final = "/api/v1/analytics/lake"
_SPAN: Final = timedelta(days=1)
_BY_QUEUE: Final = needs(Level.READ_ONLY, listed_by(queue="queue"))
_HOURS: Final = (
    "Hours of UTC, by their begin, as far as `skep analytics run` has computed them; oldest first. "
    "Without `from` it begins a day before `to`."
)

Cursor = Annotated[
    str | None, QueryParameter(description="A `nextCursor`; `from` does not count then.")
]


def hourly_routes(hourly: Hourly, charts: Charts) -> list[HTTPRouteHandler]:
    """Make the routes around the results of analytics."""

    async def covering(since: Since, until: Until) -> ChartRange:
        return chart_range(in_utc(since), in_utc(until), now=await charts.now(), span=_SPAN)

    @get(
        f"{_PATH}/status",
        tags=_TAGS,
        operation_id="showAnalytics",
        opt=needs(Level.READ_ONLY),
        summary="How far analytics have come",
    )
    async def show_analytics() -> AnalyticsStatus:
        return await hourly.status()

    @get(
        f"{_PATH}/queues",
        tags=_TAGS,
        operation_id="listQueueHours",
        opt=_BY_QUEUE,
        summary="Volume, skew, deliveries and latencies of queues by hour",
        description=_HOURS,
    )
    async def list_queue_hours(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> HourlyPage[QueueHour]:
        return await hourly.queues(await covering(since, until), queue, cursor, limit)

    @get(
        f"{_PATH}/keys",
        tags=_TAGS,
        operation_id="listHotKeys",
        opt=_BY_QUEUE,
        summary="The partitions and keys that got most messages by hour",
        description=_HOURS,
    )
    async def list_hot_keys(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> HourlyPage[HotKey]:
        return await hourly.keys(await covering(since, until), queue, cursor, limit)

    @get(
        f"{_PATH}/causes",
        tags=_TAGS,
        operation_id="listDeathCauses",
        opt=_BY_QUEUE,
        summary="What messages died of by hour",
        description=_HOURS,
    )
    async def list_causes(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> HourlyPage[DeathCause]:
        return await hourly.causes(await covering(since, until), queue, cursor, limit)

    @get(
        f"{_PATH}/groups",
        tags=_TAGS,
        operation_id="listGroupHours",
        opt=_BY_QUEUE,
        summary="How far consumer groups were behind by hour",
        description=_HOURS,
    )
    async def list_group_hours(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> HourlyPage[GroupHour]:
        return await hourly.groups(await covering(since, until), queue, cursor, limit)

    return [show_analytics, list_queue_hours, list_hot_keys, list_causes, list_group_hours]
