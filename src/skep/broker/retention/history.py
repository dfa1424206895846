"""What retention removed: the history run by run, and as a chart over time."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

from skep.db.access.slots import Caller
from skep.model.errors import BadRequest

LIST_CALL: Final = "select * from skep.list_removals($1, $2, $3, $4)"
COUNT_CALL: Final = "select * from skep.count_removals($1, $2, $3, $4)"

NEWEST: Final = 2**63 - 1
"""Above every id of the history."""
Kind: TypeAlias = Literal["retention", "completed", "eviction", "dead_letter", "partition"]
"""What kind of work removed something."""

BUCKETS_MAX: Final = 200
BUCKET_MINUTES: Final = (1, 5, 15, 30, 60, 180, 360, 720, 1440)


class Removal(NamedTuple):
    """What one run removed from one queue."""

    id: int
    run_id: UUID
    queue: str | None
    """None when the queue is gone."""
    kind: Kind
    messages: int
    segments: int
    partitions: int
    started_at: datetime
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
        self._caller: Final = caller

    async def list(
        self, *, queue: str | None, kind: Kind | None, before: int | None, limit: int
    ) -> Sequence[Removal]:
        """Return a page of the history, newest first, from below an id."""
        rows = await self._caller.call(
            LIST_CALL, queue, kind, NEWEST if before is None else before, limit
        )
        return [Removal(*row) for row in rows]

    async def chart(
        self, *, queue: str | None, since: datetime, until: datetime
    ) -> tuple[int, Sequence[Bucket]]:
        """Return the length of a bucket in minutes, and the buckets in which something went.

        Raises:
            BadRequest: The time ends before it begins.
        """
        if until <= since:
            raise BadRequest("to must be after from")
        minutes = bucket_minutes(until - since)
        rows = await self._caller.call(COUNT_CALL, queue, since, until, minutes * 60)
        return minutes, [Bucket(*row) for row in rows]


def bucket_minutes(span: timedelta) -> int:
    """Choose a length that divides a span into a number of buckets that a chart can show."""
    for minutes in BUCKET_MINUTES:
        if span <= timedelta(minutes=minutes * BUCKETS_MAX):
            return minutes
    days = -(-span // timedelta(days=BUCKETS_MAX))
    return BUCKET_MINUTES[-1] * days
