"""What `skep analytics` computed for each hour, in pages.

Reads only the tables that such a run writes, never the log. Rows come in the order of their
address; a full page has a cursor to the next one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from skep.broker.paging import decode_cursor, encode_cursor, from_row
from skep.broker.stats.ranges import ChartRange
from skep.broker.timestamps import parse_moment, spell_moment
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest
from skep.telemetry.histograms import LAG_BOUNDS_MS, quantile

RowType = TypeVar("RowType", bound=msgspec.Struct)
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


class Listing(NamedTuple, Generic[RowType]):
    """A list: its SQL function, the columns of its address behind the hour, and its rows."""

    function: str
    address: tuple[str, ...]
    shape: type[RowType]
    columns: Mapping[str, str] = {}
    """By member of a row, its column, where the names differ."""
    computed: Callable[[Any], dict[str, Any]] = lambda _row: {}
    """Returns the members of a row that are no columns."""


class Hourly:
    """The results of analytics."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def status(self) -> AnalyticsStatus:
        """Return how far analytics have come."""
        row = await self._sql.row("analytics_progress")
        watermark, finished_at = row["watermark"], row["finished_at"]
        return AnalyticsStatus(
            watermark=watermark and spell_moment(watermark),
            finished_at=finished_at and spell_moment(finished_at),
            messages=row["messages"],
        )

    async def page(
        self,
        listing: Listing[RowType],
        covered: ChartRange,
        queue: str | None,
        cursor: str | None,
        limit: int,
    ) -> HourlyPage[RowType]:
        """Return a page of a listing; raise `BadRequest` if the cursor is invalid."""
        since, after = covered.since, None
        if cursor is not None:
            hour, *after = decode_cursor(_place_decoder, cursor) or [""]
            if len(after) != len(listing.address):
                raise BadRequest("cursor must be the nextCursor of an earlier page")
            since = parse_moment("cursor", hour)
        found = await self._sql.rows(listing.function, since, covered.until, queue, after, limit)
        next_cursor = None
        if len(found) == limit > 0:
            last = found[-1]
            place = [last["hour"].isoformat(), *(last[name] for name in listing.address)]
            next_cursor = encode_cursor(place)
        return HourlyPage(rows=[_shaped(listing, row) for row in found], next_cursor=next_cursor)


def _shaped(listing: Listing[RowType], row: Any) -> RowType:
    members = {member: row[column] for member, column in listing.columns.items()}
    members |= {"hour": spell_moment(row["hour"]), **listing.computed(row)}
    return from_row(listing.shape, row, **members)


def _queue_members(row: Any) -> dict[str, Any]:
    counts, delivered, messages = row["lag_counts"] or (), row["delivered"], row["messages"]
    p50, p95, p99 = (
        quantile(LAG_BOUNDS_MS, counts, share, most=row["lag_ms_max"] or 0)
        for share in (0.5, 0.95, 0.99)
    )
    return {
        "skew": row["busiest_messages"] * row["partitions"] / messages if messages else None,
        "avg_lag_ms": row["lag_ms_sum"] / delivered if delivered else None,
        "p50_lag_ms": p50,
        "p95_lag_ms": p95,
        "p99_lag_ms": p99,
        "max_lag_ms": row["lag_ms_max"] if delivered else None,
    }


QUEUE_HOURS: Final = Listing(
    "list_queue_hours",
    ("queue",),
    QueueHour,
    {"busiest_partition_messages": "busiest_messages"},
    _queue_members,
)
HOT_KEYS: Final = Listing("list_hot_keys", ("queue", "kind", "key"), HotKey)
DEATH_CAUSES: Final = Listing(
    "list_causes",
    ("queue", "group_name", "cause"),
    DeathCause,
    {
        "consumer_group": "group_name",
        "p50_age_ms": "age_ms_p50",
        "p95_age_ms": "age_ms_p95",
        "max_age_ms": "age_ms_max",
    },
)
GROUP_HOURS: Final = Listing(
    "list_lags",
    ("queue", "group_name"),
    GroupHour,
    {
        "consumer_group": "group_name",
        "avg_backlog": "backlog_mean",
        "max_backlog": "backlog_max",
        "avg_lag_seconds": "lag_s_mean",
        "max_lag_seconds": "lag_s_max",
    },
)
