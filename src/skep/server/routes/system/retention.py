"""Retention: run it now, see what it removed, and what readers outside keep from it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, PathParameter, QueryParameter

from skep.broker.retention.history import Bucket, Kind, Removal, Removals
from skep.broker.retention.holds import KEEP_S_DEFAULT, Hold, Holds
from skep.broker.retention.retention import RetentionOnRequest
from skep.model.errors import BadRequest
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import QUEUE, Level, listed_by, needs
from skep.server.hot.decoding import decode_optional_body
from skep.server.routes.names import QueueName
from skep.server.routes.refusals import refusal

PAGE_MAX: Final = 1_000
CHART_SPAN: Final = timedelta(hours=1)

Limit = Annotated[int, Parameter(ge=1, le=PAGE_MAX, description="Rows of a page.")]
Offset = Annotated[int, Parameter(ge=0, le=2**31 - 1, description="Rows before the page.")]
QueueFilter = Annotated[str | None, QueryParameter(name="queue", description="Only this queue.")]


HoldName = Annotated[str, PathParameter(description="The name the reader gave its hold.")]


class RunReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a run did, in messages."""

    run_id: str
    retention_msgs: int
    completed_retention_msgs: int
    eviction_msgs: int
    total_msgs: int
    complete: bool
    """False when there is more than could be deleted while the caller waits."""


class HistoryEntry(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What one run removed from one queue."""

    id: str
    run_id: str
    queue: str | None
    """Null when the queue was deleted since."""
    kind: Kind
    messages: int
    segments: int
    partitions: int
    started_at: str
    duration_ms: int


class HistoryPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of the history, newest first."""

    history: list[HistoryEntry]
    next_cursor: str | None
    """Give it as `cursor` to get the next page; null on the last one."""


class TimeRange(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """What a chart covers."""

    since: str
    until: str


class RemovalCounts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Messages removed."""

    retention_msgs: int
    completed_retention_msgs: int
    eviction_msgs: int
    total_msgs: int
    event_count: int
    """Runs, by queue and kind."""


class RemovalPoint(RemovalCounts, rename="camel", frozen=True, kw_only=True):
    """Messages removed in the minutes from `bucket` on."""

    bucket: str


class RemovalChart(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What retention removed over time."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[RemovalPoint]
    totals: RemovalCounts


class HoldReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A hold: what its position has not seen is not deleted."""

    queue: str
    name: str
    position: str
    keep_seconds: int
    updated_at: str
    active: bool
    """False when nobody renewed it for `keepSeconds`; it protects nothing then."""


class HoldPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of the holds, by queue and name."""

    holds: list[HoldReport]
    total: int


class HoldRequest(msgspec.Struct, rename="camel", frozen=True):
    """Where a reader is."""

    position: str | None = None
    """A snapshot of PostgreSQL (`xmin:xmax:xip`); by default the present one."""
    keep_seconds: int = KEEP_S_DEFAULT


class Released(msgspec.Struct, frozen=True):
    """The hold is gone."""

    released: Literal[True] = True


_hold_decoder = msgspec.json.Decoder(HoldRequest)


def retention_routes(
    on_request: RetentionOnRequest, removals: Removals, holds: Holds
) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""

    @post(
        "/api/v1/retention/run",
        status_code=200,
        tags=["Retention"],
        operation_id="runRetention",
        opt=needs(Level.ADMIN),
        summary="Delete now what retention would delete later.",
        responses={409: refusal("Another run that was asked for is under way.")},
    )
    async def run_retention() -> RunReport:
        run = await on_request.run()
        return RunReport(
            run_id=str(run.run_id),
            retention_msgs=run.removed["retention"],
            completed_retention_msgs=run.removed["completed"],
            eviction_msgs=run.removed["eviction"],
            total_msgs=run.removed.total(),
            complete=run.is_complete,
        )

    @get(
        "/api/v1/retention/history",
        tags=["Retention"],
        operation_id="listRetentionHistory",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="What each run removed, newest first.",
    )
    async def list_history(
        queue: QueueFilter = None,
        kind: Annotated[
            Kind | None, QueryParameter(description="Only what was removed for this reason.")
        ] = None,
        cursor: Annotated[
            int | None,
            Parameter(ge=1, le=2**63 - 1, description="A `nextCursor`."),
        ] = None,
        limit: Limit = 100,
    ) -> HistoryPage:
        found = await removals.list(queue=queue, kind=kind, before=cursor, limit=limit)
        return HistoryPage(
            history=[_entry(removal) for removal in found],
            next_cursor=str(found[-1].id) if len(found) == limit else None,
        )

    @get(
        "/api/v1/analytics/retention",
        tags=["Analytics"],
        operation_id="chartRetention",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="What retention removed over time.",
    )
    async def chart_retention(
        queue: QueueFilter = None,
        since: Annotated[
            datetime | None,
            QueryParameter(name="from", description="An hour before `to` by default."),
        ] = None,
        until: Annotated[
            datetime | None, QueryParameter(name="to", description="Now by default.")
        ] = None,
    ) -> RemovalChart:
        begin, end = _time_range(since, until)
        minutes, buckets = await removals.chart(queue=queue, since=begin, until=end)
        return RemovalChart(
            time_range=TimeRange(_milliseconds(begin), _milliseconds(end)),
            bucket_minutes=minutes,
            series=[_point(bucket) for bucket in buckets],
            totals=_totals(buckets),
        )

    return [run_retention, list_history, chart_retention, *_hold_routes(holds)]


def _hold_routes(holds: Holds) -> list[HTTPRouteHandler]:
    @get(
        "/api/v1/retention/holds",
        tags=["Retention"],
        operation_id="listHolds",
        opt=needs(Level.READ_ONLY),
        summary="What readers outside keep from being deleted.",
    )
    async def list_holds(limit: Limit = 100, offset: Offset = 0) -> HoldPage:
        found, total = await holds.list(limit=limit, offset=offset)
        return HoldPage(holds=[_hold_report(hold) for hold in found], total=total)

    @put(
        "/api/v1/retention/holds/{queue:str}/{name:str}",
        tags=["Retention"],
        operation_id="placeHold",
        opt=needs(Level.READ_WRITE, QUEUE),
        operation_class=body_of(HoldRequest, is_required=False),
        summary="Keep what a reader has not seen yet, or say that it has come further.",
        responses={404: refusal("There is no such queue.")},
    )
    async def place_hold(
        queue: QueueName, name: HoldName, request: Request[Any, Any, Any]
    ) -> HoldReport:
        wish = decode_optional_body(_hold_decoder, await request.body(), {}) or HoldRequest()
        return _hold_report(await holds.place(queue, name, wish.position, wish.keep_seconds))

    @delete(
        "/api/v1/retention/holds/{queue:str}/{name:str}",
        status_code=200,
        tags=["Retention"],
        operation_id="releaseHold",
        opt=needs(Level.READ_WRITE, QUEUE),
        summary="Let retention delete what a reader was keeping.",
        responses={404: refusal("There is no such hold.")},
    )
    async def release_hold(queue: QueueName, name: HoldName) -> Response[Released]:
        await holds.release(queue, name)
        return Response(Released())

    return [list_holds, place_hold, release_hold]


def _entry(removal: Removal) -> HistoryEntry:
    return HistoryEntry(
        id=str(removal.id),
        run_id=str(removal.run_id),
        queue=removal.queue,
        kind=removal.kind,
        messages=removal.messages,
        segments=removal.segments,
        partitions=removal.partitions,
        started_at=_milliseconds(removal.started_at),
        duration_ms=removal.duration_ms,
    )


def _hold_report(hold: Hold) -> HoldReport:
    return HoldReport(
        queue=hold.queue,
        name=hold.name,
        position=hold.position,
        keep_seconds=hold.keep_s,
        updated_at=_milliseconds(hold.updated_at),
        active=hold.is_active,
    )


def _point(bucket: Bucket) -> RemovalPoint:
    return RemovalPoint(
        bucket=f"{bucket.begin:%Y-%m-%dT%H:%M:%SZ}",
        retention_msgs=bucket.retention,
        completed_retention_msgs=bucket.completed,
        eviction_msgs=bucket.eviction,
        total_msgs=bucket.retention + bucket.completed + bucket.eviction,
        event_count=bucket.events,
    )


def _totals(buckets: Sequence[Bucket]) -> RemovalCounts:
    retention = sum(bucket.retention for bucket in buckets)
    completed = sum(bucket.completed for bucket in buckets)
    eviction = sum(bucket.eviction for bucket in buckets)
    return RemovalCounts(
        retention_msgs=retention,
        completed_retention_msgs=completed,
        eviction_msgs=eviction,
        total_msgs=retention + completed + eviction,
        event_count=sum(bucket.events for bucket in buckets),
    )


def _time_range(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    try:
        end = _in_utc(until or datetime.now(UTC))
        return _in_utc(since or end - CHART_SPAN), end
    except OverflowError as error:
        raise BadRequest("from or to is out of range") from error


def _in_utc(moment: datetime) -> datetime:
    """Take a moment without a zone as UTC, as everything on the wire is."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _milliseconds(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
