"""What retention removed: the history run by run, and as a chart over time."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from skep.broker.paging import from_row
from skep.broker.timestamps import spell_moment
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest

NEWEST: Final = 2**63 - 1
"""Above every id of the history."""
Kind: TypeAlias = Literal["retention", "completed", "eviction", "dead_letter", "partition"]
"""What kind of work removed something."""

BUCKETS_MAX: Final = 200
BUCKET_MINUTES: Final = (1, 5, 15, 30, 60, 180, 360, 720, 1440)


class HistoryEntry(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What one run deleted from one queue."""

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


class Bucket(NamedTuple):
    """Messages removed in some minutes."""

    begin: datetime
    retention: int
    completed: int
    eviction: int
    events: int


class Removals:
    """Show what was removed."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def list(
        self, *, queue: str | None, kind: Kind | None, before: int | None, limit: int
    ) -> Sequence[HistoryEntry]:
        """Return a page of the history, newest first, from below an id."""
        rows = await self._sql.rows(
            "list_removals", queue, kind, NEWEST if before is None else before, limit
        )
        return [
            from_row(
                HistoryEntry,
                row,
                id=str(row["id"]),
                run_id=str(row["run_id"]),
                started_at=spell_moment(row["started_at"]),
            )
            for row in rows
        ]

    async def chart(
        self, *, queue: str | None, since: datetime, until: datetime
    ) -> tuple[int, Sequence[Bucket]]:
        """Return the length of a bucket in minutes, and the buckets in which something went."""
        if until <= since:
            raise BadRequest("to must be after from")
        minutes = bucket_minutes(until - since)
        rows = await self._sql.rows("count_removals", queue, since, until, minutes * 60)
        return minutes, [Bucket(*row) for row in rows]


def bucket_minutes(span: timedelta) -> int:
    """Choose a length that divides a span into a number of buckets that a chart can show."""
    for minutes in BUCKET_MINUTES:
        if span <= timedelta(minutes=minutes * BUCKETS_MAX):
            return minutes
    days = -(-span // timedelta(days=BUCKETS_MAX))
    return BUCKET_MINUTES[-1] * days
