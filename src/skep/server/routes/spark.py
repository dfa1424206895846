"""Pipelines on Spark, what is archived, the hours that `skep analytics` computed, and replays."""

from datetime import timedelta
from typing import Annotated, Final, TypeAlias
from uuid import UUID

from msgspec import Meta

from skep.broker.spark import analytics
from skep.broker.spark.pipelines import (
    ArchivePage,
    PipelineDetail,
    PipelinePage,
    Pipelines,
    StopAsked,
)
from skep.broker.stats.charts import Charts
from skep.broker.stats.ranges import ChartRange
from skep.jobs.service.replays import ReplayOrder, ReplayRow, Replays, StartedReplay
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.routes import parameters as given
from skep.server.routes.section import (
    AnyRequest,
    Body,
    Parts,
    Section,
    in_path,
    in_query,
    routes_of,
    trace_context,
)

_PIPELINES: Final = "/api/v1/pipelines"
_PIPELINE: Final = f"{_PIPELINES}/{{name:str}}"
_NO_PIPELINE: Final = {404: "There is no such pipeline."}
_LAKE: Final = "/api/v1/analytics/lake"
_SPAN: Final = timedelta(days=1)
_HOURS: Final = (
    "Hours of UTC, by their start, as far as `skep analytics run` has computed them; oldest first. "
    "Without `from` the range starts a day before `to`."
)
_REPLAYS: Final = "/api/v1/replays"

PipelineName = Annotated[str, in_path("Name in the pipeline's definition, percent-encoded.")]
Cursor = Annotated[
    str | None, in_query("`nextCursor` of the previous page; `from` is ignored then.")
]
ReplayId: TypeAlias = Annotated[UUID, in_path("Replay id.")]


@routes_of("Pipelines")
def pipeline_routes(section: Section, pipelines: Pipelines) -> None:
    """Declare the routes of pipelines and the archive."""

    @section.get(_PIPELINES, access.READ)
    async def list_pipelines(
        limit: given.LimitOrNone = 100, offset: given.Offset = 0
    ) -> PipelinePage:
        """List the pipelines on Spark by name, with their last report."""
        return await pipelines.listed(limit=limit, offset=offset)

    @section.get(_PIPELINE, access.READ, responses=_NO_PIPELINE)
    async def show_pipeline(name: PipelineName) -> PipelineDetail:
        """Show a pipeline."""
        return await pipelines.show(name)

    @section.post(f"{_PIPELINE}/stop", access.ADMIN, responses=_NO_PIPELINE)
    async def stop_pipeline(name: PipelineName) -> StopAsked:
        """Ask the runner of a pipeline to stop it.

        The runner notices within about a second; `state` becomes `stopped` then. A pipeline that
        is started again continues where it was.
        """
        return await pipelines.stop(name)

    @section.get("/api/v1/archive", access.READ)
    async def list_archive(limit: given.LimitOrNone = 100, offset: given.Offset = 0) -> ArchivePage:
        """List which time of which queues is in the archive.

        Only queues that have an archive, or whose configuration asks for one.
        """
        return await pipelines.archived(limit=limit, offset=offset)


class HoursAsked(given.TimeSpan, frozen=True):
    """Which hours to list."""

    queue: str | None
    cursor: str | None
    limit: int

    async def on_page(self, charts: Charts) -> tuple[ChartRange, str | None, str | None, int]:
        """Return what the listings take: the range, the queue, the cursor and the limit."""
        return await self.on(charts, span=_SPAN), self.queue, self.cursor, self.limit


Hours: TypeAlias = Annotated[
    HoursAsked,
    Parts(
        since=given.Since,
        until=given.Until,
        queue=given.OnlyQueue,
        cursor=Cursor,
        limit=given.LimitOrNone,
    ),
]
_FIRST_HOURS: Final = HoursAsked(None, None, None, None, 100)


@routes_of("Analytics")
def hourly_routes(section: Section, hourly: analytics.Hourly, charts: Charts) -> None:
    """Declare the routes for the results of analytics."""

    @section.get(f"{_LAKE}/status", access.READ)
    async def show_analytics() -> analytics.AnalyticsStatus:
        """Show how far analytics have come."""
        return await hourly.status()

    @section.get(f"{_LAKE}/queues", access.READ_LIST, description=_HOURS)
    async def list_queue_hours(
        hours: Hours = _FIRST_HOURS,
    ) -> analytics.HourlyPage[analytics.QueueHour]:
        """List volume, skew, deliveries and latencies of queues by hour."""
        return await hourly.page(analytics.QUEUE_HOURS, *await hours.on_page(charts))

    @section.get(f"{_LAKE}/keys", access.READ_LIST, description=_HOURS)
    async def list_hot_keys(hours: Hours = _FIRST_HOURS) -> analytics.HourlyPage[analytics.HotKey]:
        """List the partitions and keys with the most messages by hour."""
        return await hourly.page(analytics.HOT_KEYS, *await hours.on_page(charts))

    @section.get(f"{_LAKE}/causes", access.READ_LIST, description=_HOURS)
    async def list_death_causes(
        hours: Hours = _FIRST_HOURS,
    ) -> analytics.HourlyPage[analytics.DeathCause]:
        """List the errors behind dead letters by hour."""
        return await hourly.page(analytics.DEATH_CAUSES, *await hours.on_page(charts))

    @section.get(f"{_LAKE}/groups", access.READ_LIST, description=_HOURS)
    async def list_group_hours(
        hours: Hours = _FIRST_HOURS,
    ) -> analytics.HourlyPage[analytics.GroupHour]:
        """List the lag of consumer groups by hour."""
        return await hourly.page(analytics.GROUP_HOURS, *await hours.on_page(charts))


class ReplayRequest(ReplayOrder, frozen=True, kw_only=True):
    """What to replay, and where to."""

    key: Annotated[str, Meta(min_length=1, max_length=900)] | None = None
    """Idempotency key: a repeated key starts nothing new."""


class ReplayPage(given.Listed[ReplayRow], frozen=True):
    """A page of replays, newest first. Pass `after` to get the next page; null on the last one."""

    items: list[ReplayRow]


@routes_of("Replays")
def replay_routes(section: Section, replays: Replays) -> None:
    """Declare the routes of replays. A replay is cancelled as a chain."""

    @section.post(
        _REPLAYS,
        access.WRITE_BY_BODY,
        body=Body(ReplayRequest),
        status_code=202,
        responses={
            404: "There is no such queue or partition.",
            409: "Encrypted messages would be stored unencrypted, or the key belongs to another "
            "replay.",
        },
    )
    async def start_replay(request: AnyRequest, asked: ReplayRequest) -> StartedReplay:
        """Push the messages that a queue stored in a time range into a queue again.

        The replay becomes a chain of the job `skep.replay`, which a worker with Spark runs. It is
        stored completely or not at all, and never twice. While it is open, the same request
        returns it as a duplicate.
        """
        await requester_of(request).require(queues={asked.queue, asked.into})
        members = {name: getattr(asked, name) for name in ReplayOrder.__struct_fields__}
        order = ReplayOrder(**members)
        return await replays.start(order, key=asked.key, trace=trace_context(request))

    @section.get(_REPLAYS, access.READ)
    async def list_replays(
        page_size: given.PageSize = 50, after_id: given.AfterId = None
    ) -> ReplayPage:
        """List replays, newest first."""
        return ReplayPage.of(await replays.page(limit=page_size, after=after_id))

    @section.get(
        f"{_REPLAYS}/{{replay_id:str}}",
        access.READ_BY_BODY,
        responses={404: "There is no such replay."},
    )
    async def show_replay(replay_id: ReplayId, request: AnyRequest) -> ReplayRow:
        """Show a replay and its state."""
        requester = requester_of(request)
        replay = await replays.show(replay_id)
        if replay.order is None:
            requester.require_everything()
        else:
            await requester.require(queues={replay.order.queue, replay.order.into})
        return replay
