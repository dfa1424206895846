"""What `skep analytics` computed for each hour, in pages.

Reads only the tables that such a run writes, never the log. Rows come in the order of their
address; a full page has a cursor to the next one.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from skep.broker.paging import decode_cursor, encode_cursor, from_row
from skep.broker.stats.ranges import ChartRange
from skep.broker.timestamps import parse_moment, spell_moment
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest
from skep.telemetry.histograms import LAG_BOUNDS_MS, quantile

PROGRESS_CALL: Final = "select * from skep.analytics_progress()"
QUEUES_CALL: Final = "select * from skep.list_queue_hours($1, $2, $3, $4, $5)"
KEYS_CALL: Final = "select * from skep.list_hot_keys($1, $2, $3, $4, $5)"
CAUSES_CALL: Final = "select * from skep.list_causes($1, $2, $3, $4, $5)"
LAGS_CALL: Final = "select * from skep.list_lags($1, $2, $3, $4, $5)"

RowType = TypeVar("RowType")
_place_decoder: Final = msgspec.json.Decoder(list[str])


class QueueHour(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A queue in an hour.

    Null is what is unknown: counts of a log that was deleted before it was counted, deliveries
    that no broker reported.
    """

    hour: str
    queue: str
    messages: int | None
    """Stored, by the log and its archive."""
    bytes: int | None
    """Of their payloads, as they were pushed."""
    partitions: int | None
    """That got at least one."""
    busiest_partition_messages: int | None
    skew: float | None
    """The busiest partition over the average one; 1 when all got the same."""
    pushed: int | None
    """Through brokers: not by Spark or in SQL."""
    delivered: int | None
    redelivered: int | None
    """Of those delivered, not for the first time."""
    completed: int | None
    failed: int | None
    avg_lag_ms: float | None
    """From push to delivery; so are the following, which are estimates within the histogram."""
    p50_lag_ms: float | None
    p95_lag_ms: float | None
    p99_lag_ms: float | None
    max_lag_ms: int | None


class HotKey(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One of the keys of a queue that got most in an hour."""

    hour: str
    queue: str
    kind: Literal["partition", "key"]
    key: str
    messages: int
    bytes: int


class DeathCause(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What messages of a queue died of in an hour."""

    hour: str
    queue: str
    consumer_group: str
    cause: str
    """The first line of the error, with # for numbers and ids; rare ones are `(other)`."""
    letters: int
    p50_age_ms: int
    """From push to death; exact."""
    p95_age_ms: int
    max_age_ms: int


class GroupHour(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How far a consumer group was behind in an hour, by samples of its minutes."""

    hour: str
    queue: str
    consumer_group: str
    samples: int
    avg_backlog: float
    max_backlog: int
    avg_lag_seconds: float
    """The age of the oldest message that was not done."""
    max_lag_seconds: int


class HourlyPage(msgspec.Struct, Generic[RowType], rename="camel", frozen=True, kw_only=True):
    """Rows in the order of hours."""

    rows: Sequence[RowType]
    next_cursor: str | None
    """Pass it as `cursor` to get the next page; null on the last one."""


class AnalyticsStatus(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How far `skep analytics` has come."""

    watermark: str | None
    """Every hour before was computed, since the first that was; null before the first run."""
    finished_at: str | None
    messages: int | None
    """In the hours of the last run."""


class _Listing(NamedTuple):
    """A list: its call, the columns of its address behind the hour, and its rows."""

    call: str
    address: tuple[str, ...]
    shape: Callable[[Any], Any]

    def cursor_of(self, row: Any) -> str:
        """Return the cursor of the rows behind this one."""
        return encode_cursor([row["hour"].isoformat(), *(row[name] for name in self.address)])


class Hourly:
    """The results of analytics."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def status(self) -> AnalyticsStatus:
        """Return how far analytics have come."""
        (row,) = await self._caller.call(PROGRESS_CALL)
        watermark, finished_at = row["watermark"], row["finished_at"]
        return AnalyticsStatus(
            watermark=watermark and spell_moment(watermark),
            finished_at=finished_at and spell_moment(finished_at),
            messages=row["messages"],
        )

    async def queues(
        self, covered: ChartRange, queue: str | None, cursor: str | None, limit: int
    ) -> HourlyPage[QueueHour]:
        """Return volume, skew, deliveries and latencies.

        Raises:
            BadRequest: The cursor is invalid.
        """
        return await self._page(_QUEUES, covered, queue, cursor, limit)

    async def keys(
        self, covered: ChartRange, queue: str | None, cursor: str | None, limit: int
    ) -> HourlyPage[HotKey]:
        """Return the keys that got most; raises as `queues`."""
        return await self._page(_KEYS, covered, queue, cursor, limit)

    async def causes(
        self, covered: ChartRange, queue: str | None, cursor: str | None, limit: int
    ) -> HourlyPage[DeathCause]:
        """Return what messages died of; raises as `queues`."""
        return await self._page(_CAUSES, covered, queue, cursor, limit)

    async def groups(
        self, covered: ChartRange, queue: str | None, cursor: str | None, limit: int
    ) -> HourlyPage[GroupHour]:
        """Return how far groups were behind; raises as `queues`."""
        return await self._page(_LAGS, covered, queue, cursor, limit)

    async def _page(
        self,
        listing: _Listing,
        covered: ChartRange,
        queue: str | None,
        cursor: str | None,
        limit: int,
    ) -> HourlyPage[Any]:
        since, after = covered.since, None
        if cursor is not None:
            hour, *after = decode_cursor(_place_decoder, cursor) or [""]
            if len(after) != len(listing.address):
                raise BadRequest("cursor must be the nextCursor of an earlier page")
            since = parse_moment("cursor", hour)
        found = await self._caller.call(listing.call, since, covered.until, queue, after, limit)
        is_full = len(found) == limit > 0
        return HourlyPage(
            rows=[listing.shape(row) for row in found],
            next_cursor=listing.cursor_of(found[-1]) if is_full else None,
        )


def _queue_hour(row: Any) -> QueueHour:
    counts = row["lag_counts"] or ()
    p50, p95, p99 = (quantile(LAG_BOUNDS_MS, counts, share) for share in (0.5, 0.95, 0.99))
    return from_row(
        QueueHour,
        row,
        hour=spell_moment(row["hour"]),
        busiest_partition_messages=row["busiest_messages"],
        skew=_skew(row),
        avg_lag_ms=row["lag_ms_sum"] / row["delivered"] if row["delivered"] else None,
        p50_lag_ms=p50,
        p95_lag_ms=p95,
        p99_lag_ms=p99,
        max_lag_ms=row["lag_ms_max"] if row["delivered"] else None,
    )


def _skew(row: Any) -> float | None:
    if not row["messages"]:
        return None
    return row["busiest_messages"] * row["partitions"] / row["messages"]


def _hot_key(row: Any) -> HotKey:
    return from_row(HotKey, row, hour=spell_moment(row["hour"]))


def _death_cause(row: Any) -> DeathCause:
    return from_row(
        DeathCause,
        row,
        hour=spell_moment(row["hour"]),
        consumer_group=row["group_name"],
        p50_age_ms=row["age_ms_p50"],
        p95_age_ms=row["age_ms_p95"],
        max_age_ms=row["age_ms_max"],
    )


def _group_hour(row: Any) -> GroupHour:
    return from_row(
        GroupHour,
        row,
        hour=spell_moment(row["hour"]),
        consumer_group=row["group_name"],
        avg_backlog=row["backlog_mean"],
        max_backlog=row["backlog_max"],
        avg_lag_seconds=row["lag_s_mean"],
        max_lag_seconds=row["lag_s_max"],
    )


_QUEUES: Final = _Listing(QUEUES_CALL, ("queue",), _queue_hour)
_KEYS: Final = _Listing(KEYS_CALL, ("queue", "kind", "key"), _hot_key)
_CAUSES: Final = _Listing(CAUSES_CALL, ("queue", "group_name", "cause"), _death_cause)
_LAGS: Final = _Listing(LAGS_CALL, ("queue", "group_name"), _group_hour)
