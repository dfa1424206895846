"""What `skep analytics` computed for each hour: the routes below `/api/v1/analytics/lake`."""

from datetime import timedelta
from typing import Annotated, Final

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
from skep.server.routes.parameters import LimitOrNone, OnlyQueue, Since, Until
from skep.server.routes.section import Section

_PATH: Final = "/api/v1/analytics/lake"
_SPAN: Final = timedelta(days=1)
_HOURS: Final = (
    "Hours of UTC, by their start, as far as `skep analytics run` has computed them; oldest first. "
    "Without `from` the range starts a day before `to`."
)

Cursor = Annotated[
    str | None,
    QueryParameter(description="`nextCursor` of the previous page; `from` is ignored then."),
]


def hourly_routes(hourly: Hourly, charts: Charts) -> list[HTTPRouteHandler]:
    """Declare the routes for the results of analytics."""
    section = Section("Analytics")
    by_queue = needs(Level.READ_ONLY, listed_by(queue="queue"))

    async def covering(since: Since, until: Until) -> ChartRange:
        return chart_range(in_utc(since), in_utc(until), now=await charts.now(), span=_SPAN)

    @section.get(f"{_PATH}/status", needs(Level.READ_ONLY))
    async def show_analytics() -> AnalyticsStatus:
        """Show how far analytics have come."""
        return await hourly.status()

    @section.get(f"{_PATH}/queues", by_queue, description=_HOURS)
    async def list_queue_hours(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        cursor: Cursor = None,
        limit: LimitOrNone = 100,
    ) -> HourlyPage[QueueHour]:
        """List volume, skew, deliveries and latencies of queues by hour."""
        return await hourly.queues(await covering(since, until), queue, cursor, limit)

    @section.get(f"{_PATH}/keys", by_queue, description=_HOURS)
    async def list_hot_keys(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        cursor: Cursor = None,
        limit: LimitOrNone = 100,
    ) -> HourlyPage[HotKey]:
        """List the partitions and keys with the most messages by hour."""
        return await hourly.keys(await covering(since, until), queue, cursor, limit)

    @section.get(f"{_PATH}/causes", by_queue, description=_HOURS)
    async def list_death_causes(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        cursor: Cursor = None,
        limit: LimitOrNone = 100,
    ) -> HourlyPage[DeathCause]:
        """List the errors behind dead letters by hour."""
        return await hourly.causes(await covering(since, until), queue, cursor, limit)

    @section.get(f"{_PATH}/groups", by_queue, description=_HOURS)
    async def list_group_hours(
        since: Since = None,
        until: Until = None,
        queue: OnlyQueue = None,
        cursor: Cursor = None,
        limit: LimitOrNone = 100,
    ) -> HourlyPage[GroupHour]:
        """List the lag of consumer groups by hour."""
        return await hourly.groups(await covering(since, until), queue, cursor, limit)

    return section.routes
