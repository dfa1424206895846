"""What `skep analytics` found out about each hour, in pages.

Read only, and only tables that such a run writes: nothing here looks at the log. Rows come in the
order of their address, and a page that is full names the row at which the next one goes on.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

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
    """What is known of a queue in an hour.

    Null is what nobody knows: of the log when it had been deleted before it was counted, of the
    deliveries when no broker reported.
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
    """Give it back as `cursor` for what follows. None: that was all."""


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


class Hourly:
    """The results of analytics."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def status(self) -> AnalyticsStatus:
        """Return how far analytics have come."""
        ((_, watermark, finished_at, messages),) = await self._caller.call(PROGRESS_CALL)
        return AnalyticsStatus(
            watermark=watermark and spell_moment(watermark),
            finished_at=finished_at and spell_moment(finished_at),
            messages=messages,
        )

    async def queues(
        self, covered: ChartRange, queue: str | None, cursor: str | None, limit: int
    ) -> HourlyPage[QueueHour]:
        """Return volume, skew, deliveries and latencies.

        Raises:
            BadRequest: The cursor is none of ours.
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
            since, after = read_cursor(cursor, len(listing.address))
        found = await self._caller.call(listing.call, since, covered.until, queue, after, limit)
        is_full = len(found) == limit > 0
        return HourlyPage(
            rows=[listing.shape(row) for row in found],
            next_cursor=_spell_cursor(found[-1], listing.address) if is_full else None,
        )


def read_cursor(cursor: str, places: int) -> tuple[datetime, list[str]]:
    """Return the hour and the rest of the address at which a page ended.

    Raises:
        BadRequest: It is none of ours.
    """
    try:
        hour, *rest = _place_decoder.decode(urlsafe_b64decode(cursor))
    except (NotBase64, ValueError):
        raise BadRequest("cursor must be a nextCursor of this list") from None
    if len(rest) != places:
        raise BadRequest("cursor must be a nextCursor of this list")
    return parse_moment("cursor", hour), rest


def _spell_cursor(row: Any, address: tuple[str, ...]) -> str:
    place = [row["hour"].isoformat(), *(row[name] for name in address)]
    return urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _queue_hour(row: Any) -> QueueHour:
    counts = row["lag_counts"] or ()
    p50, p95, p99 = (quantile(LAG_BOUNDS_MS, counts, share) for share in (0.5, 0.95, 0.99))
    return QueueHour(
        hour=spell_moment(row["hour"]),
        queue=row["queue"],
        messages=row["messages"],
        bytes=row["bytes"],
        partitions=row["partitions"],
        busiest_partition_messages=row["busiest_messages"],
        skew=_skew(row),
        pushed=row["pushed"],
        delivered=row["delivered"],
        redelivered=row["redelivered"],
        completed=row["completed"],
        failed=row["failed"],
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
    return HotKey(
        hour=spell_moment(row["hour"]),
        queue=row["queue"],
        kind=row["kind"],
        key=row["key"],
        messages=row["messages"],
        bytes=row["bytes"],
    )


def _death_cause(row: Any) -> DeathCause:
    return DeathCause(
        hour=spell_moment(row["hour"]),
        queue=row["queue"],
        consumer_group=row["group_name"],
        cause=row["cause"],
        letters=row["letters"],
        p50_age_ms=row["age_ms_p50"],
        p95_age_ms=row["age_ms_p95"],
        max_age_ms=row["age_ms_max"],
    )


def _group_hour(row: Any) -> GroupHour:
    return GroupHour(
        hour=spell_moment(row["hour"]),
        queue=row["queue"],
        consumer_group=row["group_name"],
        samples=row["samples"],
        avg_backlog=row["backlog_mean"],
        max_backlog=row["backlog_max"],
        avg_lag_seconds=row["lag_s_mean"],
        max_lag_seconds=row["lag_s_max"],
    )


_QUEUES: Final = _Listing(QUEUES_CALL, ("queue",), _queue_hour)
_KEYS: Final = _Listing(KEYS_CALL, ("queue", "kind", "key"), _hot_key)
_CAUSES: Final = _Listing(CAUSES_CALL, ("queue", "group_name", "cause"), _death_cause)
_LAGS: Final = _Listing(LAGS_CALL, ("queue", "group_name"), _group_hour)
