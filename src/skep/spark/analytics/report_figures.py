"""The figures of a report: what is known of some hours, added up for people to look at.

Reads the tables that `skep analytics` writes, page by page, and keeps only sums: by bucket of time,
by queue, by cause, by key and by group. A bucket is as many hours as make a plot readable.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from skep.spark.analytics.hours import Hours
from skep.spark.runtime.postgres import database
from skep.spark.source.positions import EPOCH
from skep.telemetry.histograms import LAG_BOUNDS_MS, quantile

STATEMENT_TIMEOUT_S: Final = 60.0
PAGE_ROWS: Final = 10_000
BUCKETS_MAX: Final = 120
BUCKET_HOURS: Final = (1, 2, 3, 6, 12, 24, 48, 168)

PROGRESS: Final = "select * from skep.analytics_progress()"
_PAGE: Final = (
    "($1::text::timestamptz, $2::text::timestamptz, $3, $4::text::text[], $5::text::integer)"
)
QUEUE_HOURS: Final = "select * from skep.list_queue_hours"
HOT_KEYS: Final = "select * from skep.list_hot_keys"
CAUSES: Final = "select * from skep.list_causes"
LAGS: Final = "select * from skep.list_lags"

Row = dict[str, Any]
ReadRows = Callable[[str, tuple[str, ...]], Iterator[Row]]
"""Returns all rows of a listing; the names are the columns of its address behind the hour."""


@dataclass(slots=True)
class Deliveries:
    """What brokers counted."""

    delivered: int = 0
    redelivered: int = 0
    failed: int = 0
    lag_ms_max: int = 0
    lag_counts: Counter[int] = field(default_factory=Counter[int])
    """Messages by place in the histogram of the time from push to delivery."""

    def add(self, row: Row) -> None:
        """Add an hour of a queue."""
        self.delivered += row["delivered"] or 0
        self.redelivered += row["redelivered"] or 0
        self.failed += row["failed"] or 0
        self.lag_ms_max = max(self.lag_ms_max, row["lag_ms_max"] or 0)
        self.lag_counts.update(dict(enumerate(row["lag_counts"] or ())))

    def lag_ms(self, share: float) -> float | None:
        """Estimate within how many milliseconds a share of the messages was delivered."""
        counts = [self.lag_counts[place] for place in range(len(LAG_BOUNDS_MS) + 1)]
        return quantile(LAG_BOUNDS_MS, counts, share, most=self.lag_ms_max)


@dataclass(slots=True)
class QueueFigures:
    """What is known of a queue, over all hours."""

    messages: int = 0
    bytes: int = 0
    skew: float = 0.0
    """The busiest partition over the average one, in the worst hour."""
    letters: int = 0
    deliveries: Deliveries = field(default_factory=Deliveries)


@dataclass(slots=True)
class Figures:
    """All figures of a report."""

    hours: Hours
    bucket: timedelta
    queues: dict[str, QueueFigures] = field(
        default_factory=lambda: defaultdict[str, QueueFigures](QueueFigures)
    )
    messages: Counter[tuple[datetime, str]] = field(default_factory=Counter[tuple[datetime, str]])
    """By bucket and queue."""
    bytes: Counter[datetime] = field(default_factory=Counter[datetime])
    deliveries: dict[datetime, Deliveries] = field(
        default_factory=lambda: defaultdict[datetime, Deliveries](Deliveries)
    )
    """By bucket."""
    total: Deliveries = field(default_factory=Deliveries)
    keys: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    """By queue, kind and key."""
    causes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By queue and cause."""
    lags_s: dict[tuple[str, str], dict[datetime, int]] = field(
        default_factory=lambda: defaultdict[tuple[str, str], dict[datetime, int]](dict)
    )
    """By queue and group: how far it was behind at worst, by bucket."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is known."""
        return not (self.queues or self.lags_s)

    @property
    def buckets(self) -> list[datetime]:
        """The begins of all buckets, whether or not something happened in them."""
        first = self.bucket_of(self.hours.since)
        count = -(-(self.hours.upto - first) // self.bucket)
        return [first + number * self.bucket for number in range(count)]

    def bucket_of(self, hour: datetime) -> datetime:
        """Return the begin of the bucket of an hour."""
        return hour - (hour - EPOCH) % self.bucket


def gather_figures(hours: Hours, read: ReadRows) -> Figures:
    """Add up what is known of some hours."""
    figures = Figures(hours, bucket_length(hours))
    for row in read(QUEUE_HOURS, ("queue",)):
        _add_queue_hour(figures, row)
    for row in read(HOT_KEYS, ("queue", "kind", "key")):
        figures.keys[row["queue"], row["kind"], row["key"]] += row["messages"]
    for row in read(CAUSES, ("queue", "group_name", "cause")):
        figures.causes[row["queue"], row["cause"]] += row["letters"]
        figures.queues[row["queue"]].letters += row["letters"]
    for row in read(LAGS, ("queue", "group_name")):
        bucket, lags_s = (
            figures.bucket_of(row["hour"]),
            figures.lags_s[row["queue"], row["group_name"]],
        )
        lags_s[bucket] = max(lags_s.get(bucket, 0), row["lag_s_max"])
    return figures


def _add_queue_hour(figures: Figures, row: Row) -> None:
    bucket, queue = figures.bucket_of(row["hour"]), figures.queues[row["queue"]]
    if row["messages"]:
        queue.messages += row["messages"]
        queue.bytes += row["bytes"]
        skew = row["busiest_messages"] * row["partitions"] / row["messages"]
        queue.skew = max(queue.skew, skew)
        figures.messages[bucket, row["queue"]] += row["messages"]
        figures.bytes[bucket] += row["bytes"]
    if row["delivered"] is not None:
        for deliveries in (queue.deliveries, figures.deliveries[bucket], figures.total):
            deliveries.add(row)


def bucket_length(hours: Hours) -> timedelta:
    """Return how long a bucket is, so that there are not too many of them."""
    count = (hours.upto - hours.since) // timedelta(hours=1)
    fitting = (each for each in BUCKET_HOURS if count <= each * BUCKETS_MAX)
    return timedelta(hours=next(fitting, BUCKET_HOURS[-1]))


def rows_of(url: str, hours: Hours, queue: str | None) -> ReadRows:
    """Return what reads the rows of a database, page by page."""

    def read(listing: str, address: tuple[str, ...]) -> Iterator[Row]:
        since, after = hours.since, None
        while True:
            page = database(url, STATEMENT_TIMEOUT_S).rows(
                listing + _PAGE, since, hours.upto, queue, after, PAGE_ROWS
            )
            yield from page
            if len(page) < PAGE_ROWS:
                return
            since, after = page[-1]["hour"], [page[-1][name] for name in address]

    return read
