"""Retention: run it now, see what it deleted, and what external readers keep from it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec

from skep.broker.retention.history import Bucket, HistoryEntry, Kind, Removals
from skep.broker.retention.holds import KEEP_S_DEFAULT, HoldReport, Holds
from skep.broker.retention.retention import RetentionOnRequest
from skep.broker.timestamps import spell_moment
from skep.model.errors import BadRequest
from skep.server.auth import access
from skep.server.routes.parameters import Limit, Offset, OnlyQueue, QueueName, Since, Until
from skep.server.routes.section import Body, Section, in_path, in_query, reshaped, routes_of

_PATH: Final = "/api/v1/retention"
_HOLD: Final = f"{_PATH}/holds/{{queue:str}}/{{name:str}}"
CHART_SPAN: Final = timedelta(hours=1)

HoldName = Annotated[str, in_path("Name the reader gave its hold.")]


class RunReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a run did, in messages."""

    run_id: str
    retention_msgs: int
    completed_retention_msgs: int
    eviction_msgs: int
    total_msgs: int
    complete: bool
    """False when there is more than one request deletes; run it again."""


class HistoryPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of the history, newest first."""

    history: list[HistoryEntry]
    next_cursor: str | None
    """Pass it as `cursor` to get the next page; null on the last one."""


class TimeRange(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """What a chart covers."""

    since: str
    until: str


class RemovalCounts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Messages deleted."""

    retention_msgs: int
    completed_retention_msgs: int
    eviction_msgs: int
    total_msgs: int
    event_count: int
    """Runs, by queue and kind."""


class RemovalPoint(RemovalCounts, rename="camel", frozen=True, kw_only=True):
    """Messages deleted in the minutes from `bucket` on."""

    bucket: str


class RemovalChart(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What retention deleted over time."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[RemovalPoint]
    totals: RemovalCounts


class HoldPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of the holds, by queue and name."""

    holds: list[HoldReport]
    total: int


class HoldRequest(msgspec.Struct, rename="camel", frozen=True):
    """The position of a reader."""

    position: str | None = None
    """A snapshot of PostgreSQL (`xmin:xmax:xip`); by default the present one."""
    keep_seconds: int = KEEP_S_DEFAULT


class Released(msgspec.Struct, frozen=True):
    """The hold was released."""

    released: Literal[True] = True


@routes_of("Retention")
def retention_routes(
    section: Section, on_request: RetentionOnRequest, removals: Removals, holds: Holds
) -> None:
    """Declare the routes of retention and holds."""

    @section.post(
        f"{_PATH}/run", access.ADMIN, responses={409: "Another requested run is in progress."}
    )
    async def run_retention() -> RunReport:
        """Run retention now."""
        run = await on_request.run()
        return RunReport(
            run_id=str(run.run_id),
            retention_msgs=run.removed["retention"],
            completed_retention_msgs=run.removed["completed"],
            eviction_msgs=run.removed["eviction"],
            total_msgs=run.removed.total(),
            complete=run.is_complete,
        )

    @section.get(f"{_PATH}/history", access.READ_LIST)
    async def list_retention_history(
        queue: OnlyQueue = None,
        kind: Annotated[Kind | None, in_query("Only deletions for this reason.")] = None,
        cursor: Annotated[
            int | None, in_query("`nextCursor` of the previous page.", ge=1, le=2**63 - 1)
        ] = None,
        limit: Limit = 100,
    ) -> HistoryPage:
        """List what each run deleted, newest first."""
        found = await removals.list(queue=queue, kind=kind, before=cursor, limit=limit)
        return HistoryPage(
            history=list(found),
            next_cursor=found[-1].id if len(found) == limit else None,
        )

    @section.get("/api/v1/analytics/retention", access.READ_LIST, tag="Analytics")
    async def chart_retention(
        queue: OnlyQueue = None, since: Since = None, until: Until = None
    ) -> RemovalChart:
        """Chart what retention deleted."""
        begin, end = _time_range(since, until)
        minutes, buckets = await removals.chart(queue=queue, since=begin, until=end)
        return RemovalChart(
            time_range=TimeRange(spell_moment(begin), spell_moment(end)),
            bucket_minutes=minutes,
            series=[
                reshaped(RemovalPoint, _counts([each]), bucket=f"{each.begin:%Y-%m-%dT%H:%M:%SZ}")
                for each in buckets
            ],
            totals=_counts(buckets),
        )

    @section.get(f"{_PATH}/holds", access.READ)
    async def list_holds(limit: Limit = 100, offset: Offset = 0) -> HoldPage:
        """List what external readers keep from being deleted."""
        found, total = await holds.list(limit=limit, offset=offset)
        return HoldPage(holds=found, total=total)

    @section.put(
        _HOLD,
        access.WRITE_QUEUE,
        body=Body(HoldRequest, is_required=False),
        responses={404: "There is no such queue."},
    )
    async def place_hold(queue: QueueName, name: HoldName, asked: HoldRequest) -> HoldReport:
        """Place a hold on what a reader has not seen yet, or move it forward."""
        return await holds.place(queue, name, asked.position, asked.keep_seconds)

    @section.delete(_HOLD, access.WRITE_QUEUE, responses={404: "There is no such hold."})
    async def release_hold(queue: QueueName, name: HoldName) -> Released:
        """Release a hold."""
        await holds.release(queue, name)
        return Released()


def _counts(buckets: Sequence[Bucket]) -> RemovalCounts:
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
        raise BadRequest(
            "from or to is out of range: use times between the years 1 and 9999"
        ) from error


def _in_utc(moment: datetime) -> datetime:
    """Take a time without a zone as UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
