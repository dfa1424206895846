"""The time ranges of charts, and how many minutes a point stands for. Pure.

The length of a bucket follows Queen's rule, but is one minute up to six hours, except in charts of
many series. Buckets are real ones: those of six hours begin every
six hours, and a rate is per second of the part of a bucket that lies in the range and has passed.
"""

from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec

from skep.broker.stats.rollups import MINUTES_KEPT
from skep.broker.timestamps import spell_moment
from skep.model.errors import BadRequest

SPAN_DEFAULT: Final = timedelta(hours=1)
SPAN_MAX: Final = timedelta(days=366)

Interval: TypeAlias = Literal["minute", "hour", "day"]

_MINUTES_BY_INTERVAL: Final = {"minute": 1, "hour": 60, "day": 1440}
_MINUTES_BY_SPAN: Final = (
    (timedelta(hours=6, minutes=5), 1),
    (timedelta(hours=24), 15),
    (timedelta(days=7), 60),
)
_SHORT: Final = timedelta(hours=1, minutes=5)
"""Up to which charts of many series have a point for each minute. Clients may round their ranges:
five minutes more make no difference."""
_MANY_MINUTES: Final = 5
_MINUTES_OF_LONGER: Final = 360
_MARGIN: Final = timedelta(hours=1)
"""Minutes are purged in batches: those about to expire are not used any more."""


class ChartRange(msgspec.Struct, frozen=True):
    """What a chart covers."""

    since: datetime
    until: datetime
    bucket_minutes: int
    is_hourly: bool
    """Whether it reads what is rolled up by hour."""
    now: datetime

    @property
    def bucket_s(self) -> int:
        """The length of a bucket in seconds."""
        return self.bucket_minutes * 60

    @property
    def buckets(self) -> tuple[datetime, datetime, int]:
        """Start and end, and the length of a bucket in seconds."""
        return self.since, self.until, self.bucket_s

    @property
    def spelled(self) -> dict[str, Any]:
        """What it covers, as the members of an answer."""
        span = ChartSpan(spell_moment(self.since), spell_moment(self.until))
        return {"time_range": span, "bucket_minutes": self.bucket_minutes}

    def by_hour(self) -> "ChartRange":
        """Return the same time by the hour, or as coarse as it is."""
        minutes = max(self.bucket_minutes, 60)
        return msgspec.structs.replace(self, bucket_minutes=minutes, is_hourly=True)

    def for_many(self) -> "ChartRange":
        """Return the same time as a chart of many series has it: not too many points."""
        is_long = self.until - self.since > _SHORT
        minutes = max(self.bucket_minutes, _MANY_MINUTES if is_long else 1)
        return msgspec.structs.replace(self, bucket_minutes=minutes)

    def by(self, interval: Interval) -> "ChartRange":
        """Return the same time in points of a given length."""
        minutes = _MINUTES_BY_INTERVAL[interval]
        return msgspec.structs.replace(self, bucket_minutes=minutes)

    def seconds_in(self, bucket: datetime) -> float:
        """Return how much of a bucket lies in the range and has passed; at least a second."""
        begin = max(bucket, self.since)
        end = min(bucket + timedelta(minutes=self.bucket_minutes), self.until, self.now)
        return max((end - begin).total_seconds(), 1.0)

    def bucket_of(self, moment: datetime) -> datetime:
        """Return the start of the bucket that a time lies in."""
        seconds = int(moment.timestamp())
        return datetime.fromtimestamp(seconds - seconds % self.bucket_s, moment.tzinfo)


class ChartSpan(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """What a chart covers, as answers say it."""

    since: str
    until: str


def chart_range(
    since: datetime | None,
    until: datetime | None,
    *,
    now: datetime,
    span: timedelta = SPAN_DEFAULT,
) -> ChartRange:
    """Decide what a chart covers: by default it ends now, and begins `span` before its end."""
    until = until or now
    try:
        since = since or until - span
        length = until - since
    except OverflowError:
        raise BadRequest("from and to must lie between the years 1 and 9999") from None
    if length <= timedelta():
        raise BadRequest("to must be after from")
    if length > SPAN_MAX:
        raise BadRequest(f"from and to must not be more than {SPAN_MAX.days} days apart")
    minutes = next((m for longest, m in _MINUTES_BY_SPAN if length <= longest), _MINUTES_OF_LONGER)
    is_hourly = minutes >= 60 or since < now - MINUTES_KEPT + _MARGIN
    return ChartRange(since, until, max(minutes, 60) if is_hourly else minutes, is_hourly, now)
