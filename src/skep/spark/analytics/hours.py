"""Which hours analytics computes. Pure.

Hours are those of UTC. An hour is computed when it is over, and a little later than that, when
brokers have reported it. By default a run continues at the watermark, where the last one ended, and
computes its last hour once more, for what was committed late.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from skep.model.errors import BadRequest

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
SETTLE: Final = timedelta(minutes=2)
"""How long after its end an hour is left alone."""
FIRST_SPAN: Final = timedelta(days=7)
"""How far the first run goes back by default."""


class Hours(NamedTuple):
    """Whole hours, from the first up to before the second."""

    since: datetime
    upto: datetime

    def by_day(self) -> Iterator["Hours"]:
        """Yield the parts that lie in one day each."""
        since = self.since
        while since < self.upto:
            upto = min(begin_of_day(since) + DAY, self.upto)
            yield Hours(since, upto)
            since = upto


def choose_hours(
    now: datetime,
    watermark: datetime | None,
    since: datetime | None,
    until: datetime | None,
    *,
    keep_days: int,
) -> Hours | None:
    """Return the hours to compute; None if there is nothing new.

    Everything before `watermark` is computed already. Raises `BadRequest` for hours that are not
    over or older than `keep_days`.
    """
    over = begin_of_hour(now - SETTLE)
    oldest = begin_of_day(now) - keep_days * DAY
    by_default = over - FIRST_SPAN if watermark is None else watermark - HOUR
    first = max(by_default, oldest) if since is None else begin_of_hour(since)
    end = over if until is None else begin_of_hour(until)
    if end > over:
        raise BadRequest(
            f"--to must not be after {over.isoformat()}: an hour is computed when it is over"
        )
    if first < oldest:
        raise BadRequest(
            f"--from must not be before {oldest.isoformat()}: results are kept for {keep_days} "
            "days (setting history_retention_days)"
        )
    is_chosen = since is not None or until is not None
    if is_chosen and first >= end:
        raise BadRequest("there is no whole hour between --from and --to")
    is_new = is_chosen or watermark is None or watermark < over
    return Hours(first, end) if is_new else None


def begin_of_hour(moment: datetime) -> datetime:
    """Return the begin of the hour that a moment lies in."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def begin_of_day(moment: datetime) -> datetime:
    """Return the begin of the day that a moment lies in."""
    return begin_of_hour(moment).replace(hour=0)
