"""Where a time begins in a partition, and which partitions have changed, up to a time that is safe.

A clock does not tell what can be read: a push that has taken its time may still commit. So a moment
is noted together with a mark, the id of a transaction drawn after it, and is safe as soon as every
transaction below the mark has ended. Snapshots of readers on Spark rest on the same fact. Notes are
kept in the process: usually the transactions of a moment end within milliseconds, and the next call
finds them ended at the latest.
"""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from skep.broker.fetch.execute import UNKNOWN
from skep.broker.fetch.request import (
    PAGE,
    ChangedBody,
    ChangedEntry,
    OffsetsBody,
    check_address,
    check_count,
    clamped,
    read_timestamp,
)
from skep.broker.timestamps import parse_moment, wire_time
from skep.db.access.functions import Functions
from skep.model.ids import partition_uuid
from skep.model.names import check_name

LOOKS_MAX: Final = 10_000
"""Partitions that one call looks at."""

NOTES_MAX: Final = 256
TRIES: Final = 4
"""How often to ask, while transactions are running, for a moment that is safe."""
PAUSE_S: Final = 0.005
FRESH_S: Final = 1.0
"""A safe moment no older than this is good enough to answer at once."""

NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Before any message: nothing is known to be complete yet."""

BAD_CURSOR: Final = "BAD_CURSOR"
_CURSOR: Final = re.compile(r"(\d{1,9})-(\d{1,18})", re.ASCII)


class OffsetFound(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where a time begins in a partition."""

    queue: str
    partition: str
    offset: int | None
    """Of the first message stored at that time or later; null if all are older."""
    ts: str | None
    """When that message was stored."""
    high_watermark: int
    """The next offset that will be given out."""
    log_start_offset: int
    """The first offset that is kept."""
    error: str | None = None
    """`UNKNOWN_TOPIC_OR_PARTITION` if there is no such queue."""


class OffsetsFound(msgspec.Struct):
    """Where times begin, in the order asked for."""

    entries: list[OffsetFound]


class ChangedPartition(msgspec.Struct, rename="camel", kw_only=True):
    """A partition that was written."""

    name: str
    id: str
    last_offset: int
    """Of its last message; -1 if there is none."""
    log_start: int
    """The first offset that is kept."""
    last_write_at: str


class ChangedQueue(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A page of the partitions of a queue that were written, in the order of their creation."""

    queue: str
    partitions: list[ChangedPartition] | msgspec.UnsetType = msgspec.UNSET
    next: str | msgspec.UnsetType | None = msgspec.UNSET
    """`after` of the next page; null on the last one. A page may be short."""
    error: str | None = None
    """`UNKNOWN_TOPIC_OR_PARTITION` if there is no such queue, or `BAD_CURSOR`."""


class Changed(msgspec.Struct, rename="camel", kw_only=True):
    """What has changed."""

    safe_time: str
    """Every message stored up to this time can be read, and none will appear there later."""
    safe_time_degraded: bool = False
    """Always false."""
    entries: list[ChangedQueue]


class SafeTime:
    """The latest moment up to which every message can be read, as far as this process knows."""

    def __init__(self, sql: Functions) -> None:
        self._sql: Final = sql
        self._notes: Final[deque[tuple[int, datetime]]] = deque()
        self._safe = NEVER

    async def read(self) -> datetime:
        """Return it. Reads that begin now see everything up to it."""
        for tries_left in reversed(range(TRIES)):
            row = await self._sql.row("mark_time")
            self._note(row["at"], row["mark"], row["running_from"])
            is_fresh = (row["at"] - self._safe).total_seconds() <= FRESH_S
            if is_fresh or not tries_left:
                break
            await asyncio.sleep(PAUSE_S)
        return self._safe

    def _note(self, at: datetime, mark: int, running_from: int) -> None:
        # A mark that is not the highest was drawn by a call that came back later than the next.
        if len(self._notes) < NOTES_MAX and not (self._notes and mark <= self._notes[-1][0]):
            self._notes.append((mark, at))
        while self._notes and self._notes[0][0] <= running_from:
            self._safe = max(self._safe, self._notes.popleft()[1])


class Positions:
    """Answers questions about positions. They are reads; nothing is remembered of the callers."""

    def __init__(self, sql: Functions) -> None:
        self._sql: Final = sql
        self._safe_time: Final = SafeTime(sql)

    async def find_offsets(self, body: OffsetsBody) -> OffsetsFound:
        """Return where times begin.

        Raises:
            BadRequest: There are too many entries, or one of them is malformed.
        """
        check_count(body.entries)
        addresses = [check_address(each) for each in body.entries]
        moments = [read_timestamp(each) for each in body.entries]
        rows = await self._sql.rows(
            "offsets_at",
            [queue for queue, _ in addresses],
            [partition for _, partition in addresses],
            moments,
        )
        return OffsetsFound(
            [
                _found(queue, partition, row)
                for (queue, partition), row in zip(addresses, rows, strict=True)
            ]
        )

    async def find_changed(self, body: ChangedBody) -> Changed:
        """Return a page of changed partitions for each queue asked about.

        Raises:
            BadRequest: There are too many entries, or one of them is malformed.
        """
        check_count(body.entries)
        queues = [check_name("queue", each.queue) for each in body.entries]
        since = [_since(each) for each in body.entries]
        places = [_place(each) for each in body.entries]
        # First, so that what the pages show reaches at least so far.
        safe_time = await self._safe_time.read()
        rows = await self._sql.rows(
            "changed_partitions",
            queues,
            since,
            [None if place is None else place[0] for place in places],
            [None if place is None else place[1] for place in places],
            [clamped(each.limit, PAGE) for each in body.entries],
            LOOKS_MAX,
        )
        return Changed(
            safe_time=wire_time(safe_time).decode(), entries=_changed(body.entries, rows)
        )


def _found(queue: str, partition: str, row: Sequence[object]) -> OffsetFound:
    _, queue_id, head, tail, at, created_at = row
    assert isinstance(head, int)
    assert isinstance(tail, int)
    is_known = queue_id is not None
    return OffsetFound(
        queue=queue,
        partition=partition,
        offset=at if isinstance(at, int) else None,
        ts=wire_time(created_at).decode() if isinstance(created_at, datetime) else None,
        high_watermark=head + 1 if is_known else 0,
        log_start_offset=tail if is_known else 0,
        error=None if is_known else UNKNOWN,
    )


def _since(entry: ChangedEntry) -> datetime | None:
    return None if entry.since is None else parse_moment("since", entry.since)


def _place(entry: ChangedEntry) -> tuple[int, int] | None:
    """Return the queue and partition behind which a page begins.

    What is no cursor becomes one of a queue that does not exist.
    """
    if not entry.after:
        return None
    spelled = _CURSOR.fullmatch(entry.after)
    return (-1, 0) if spelled is None else (int(spelled[1]), int(spelled[2]))


def _changed(
    entries: Sequence[ChangedEntry], rows: Sequence[Sequence[object]]
) -> list[ChangedQueue]:
    answers: list[ChangedQueue] = []
    partitions: list[ChangedPartition] = []
    for row in rows:
        _, queue_id, is_other, looked_to, partition_id, name, head, tail, written_at = row
        if partition_id is not None:
            assert isinstance(partition_id, int)
            assert isinstance(name, str)
            assert isinstance(head, int)
            assert isinstance(tail, int)
            assert isinstance(written_at, datetime)
            partitions.append(
                ChangedPartition(
                    name=name,
                    id=partition_uuid(partition_id),
                    last_offset=head if head >= tail else -1,
                    log_start=tail,
                    last_write_at=wire_time(written_at).decode(),
                )
            )
            continue
        queue = entries[len(answers)].queue
        if queue_id is None:
            answers.append(ChangedQueue(queue=queue, error=UNKNOWN))
        elif is_other:
            answers.append(ChangedQueue(queue=queue, error=BAD_CURSOR))
        else:
            next_ = None if looked_to is None else f"{queue_id}-{looked_to}"
            answers.append(ChangedQueue(queue=queue, partitions=partitions, next=next_))
        partitions = []
    return answers
