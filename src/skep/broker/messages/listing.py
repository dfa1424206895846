"""List messages: pages of the log, from its newest end back.

Nothing is indexed by time or by state, so a page does a bounded amount of work and says where it
stopped: `nextCursor` continues there, also behind a page that is not full. Statuses are computed
from the cursors of all groups. Payloads are not read.
"""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec
import xxhash

from skep.broker.messages.stored_message import read_envelope
from skep.broker.timestamps import in_utc
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest
from skep.model.ids import message_id, partition_uuid

WALK_CALL: Final = (
    "select * from skep.walk_segments($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
)
LIST_CALL: Final = "select * from skep.list_messages($1, $2, $3, $4, $5, $6, $7)"

SEGMENTS_PER_PAGE: Final = 1_000
MESSAGES_PER_PAGE: Final = 20_000
"""What one page looks at. A page takes well under 200 ms then, whatever the filter."""

_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)

Status: TypeAlias = Literal["pending", "processing", "completed", "dead_letter"]
ModeType: TypeAlias = Literal["none", "queue", "bus", "hybrid"]


class BusStatus(msgspec.Struct, rename="camel", frozen=True):
    """How many of the named groups are done with a message."""

    consumed_by: int
    total_groups: int


class Mode(msgspec.Struct, rename="camel", frozen=True):
    """Who consumes: competing consumers (queue), named groups (bus), or both (hybrid)."""

    has_queue_mode: bool
    bus_groups_count: int
    type: ModeType


class ListedMessage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A message without its payload."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: Status
    queue_status: Status | None
    bus_status: BusStatus
    trace_id: str | None
    producer_sub: str | None
    queue_priority: int
    created_at: datetime
    lease_expires_at: datetime | None


class MessagePage(msgspec.Struct, rename="camel", frozen=True):
    """Messages, the newest first."""

    messages: list[ListedMessage]
    mode: Mode
    next_cursor: str | None
    """Give it back as `cursor` for what follows. None: that was all."""


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to list. What is None does not matter."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    status: Status | None = None
    since: datetime | None = None
    until: datetime | None = None
    transaction_id: str | None = None


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a listing stopped: behind this message, with so many still to skip."""

    queue_id: int
    xid: str
    partition_id: int
    first: int
    offset: int
    skip: int


_place_decoder: Final = msgspec.json.Decoder(Place)


class MessageList:
    """Pages of messages."""

    def __init__(
        self, caller: Caller, *, hash_seed: int, segments_per_page: int = SEGMENTS_PER_PAGE
    ) -> None:
        self._caller: Final = caller
        self._hash_seed: Final = hash_seed
        self._segments_per_page: Final = segments_per_page

    async def read_page(
        self, chosen: MessageFilter, *, limit: int, offset: int, cursor: str | None
    ) -> MessagePage:
        """Return a page of the messages chosen, the newest first.

        Raises:
            BadRequest: The cursor is none of ours, or a partition is named without its queue.
        """
        if chosen.partition is not None and chosen.queue is None:
            raise BadRequest("partition needs queue: partitions of many queues have the same name")
        place = _read_cursor(cursor) if cursor else None
        skip = place.skip if place else offset
        messages_max = _messages_needed(chosen, skip + limit)
        walked = await self._walk(chosen, place, messages_max)
        segments = _with_rest(walked, place)
        rows = await self._caller.call(
            LIST_CALL,
            [segment.partition_id for segment in segments],
            [segment.first for segment in segments],
            [segment.before for segment in segments],
            chosen.status,
            self._key(chosen.transaction_id),
            skip,
            limit,
        )
        listed = [row for row in rows if row["item"] is not None]
        matched: int = rows[0]["matched"]
        following = None
        if matched > skip + limit:
            following = _behind(listed[-1], segments)
        elif self._has_stopped_early(walked, messages_max):
            following = _behind_segment(walked[-1], skip=max(skip - matched, 0))
        return MessagePage(
            messages=[_listed(row, segments) for row in listed],
            mode=_page_mode(listed),
            next_cursor=_write_cursor(following) if following else None,
        )

    async def _walk(
        self, chosen: MessageFilter, place: Place | None, messages_max: int
    ) -> Sequence[Any]:
        by_default = None if chosen.transaction_id is None else _ALWAYS
        return await self._caller.call(
            WALK_CALL,
            chosen.queue,
            chosen.partition,
            chosen.namespace,
            chosen.task,
            self._key(chosen.transaction_id),
            in_utc(chosen.since) or by_default,
            in_utc(chosen.until) or _FOR_EVER,
            *_after(place),
            self._segments_per_page,
            messages_max,
        )

    def _has_stopped_early(self, walked: Sequence[Any], messages_max: int) -> bool:
        size = sum(row["last"] - row["first"] + 1 for row in walked if row["is_wanted"])
        return len(walked) >= self._segments_per_page or size >= messages_max

    def _key(self, transaction_id: str | None) -> bytes | None:
        if transaction_id is None:
            return None
        return xxhash.xxh3_128_digest(transaction_id.encode(), self._hash_seed)


def _messages_needed(chosen: MessageFilter, count: int) -> int:
    """Return how many messages to look at: no more than the page shows, if all of them match."""
    is_selective = chosen.status is not None or chosen.transaction_id is not None
    return MESSAGES_PER_PAGE if is_selective else min(count, MESSAGES_PER_PAGE)


class _Segment(msgspec.Struct, frozen=True):
    """A segment to list; only offsets below `before`, if that is set."""

    queue_id: int
    xid: str
    partition_id: int
    first: int
    before: int | None


def _with_rest(walked: Sequence[Any], place: Place | None) -> list[_Segment]:
    """Return the segments to list: the rest of the one a page ended in, and those wanted."""
    segments = [
        _Segment(row["queue_id"], row["xid"], row["partition_id"], row["first"], None)
        for row in walked
        if row["is_wanted"]
    ]
    if place is not None and place.offset > place.first:
        rest = _Segment(place.queue_id, place.xid, place.partition_id, place.first, place.offset)
        segments.insert(0, rest)
    return segments


def _behind(row: Any, segments: Sequence[_Segment]) -> Place:
    number: int = row["item"]
    segment = segments[number - 1]
    return Place(
        segment.queue_id,
        segment.xid,
        segment.partition_id,
        segment.first,
        row["message_offset"],
        0,
    )


def _behind_segment(row: Any, *, skip: int) -> Place:
    first = row["first"]
    return Place(row["queue_id"], row["xid"], row["partition_id"], first, first, skip)


def _after(place: Place | None) -> tuple[object, ...]:
    """Return the arguments that let a walk continue behind a place."""
    if place is None:
        return (None, None, None, None)
    return (place.queue_id, place.xid, place.partition_id, place.first)


def _write_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_cursor(cursor: str) -> Place:
    try:
        return _place_decoder.decode(base64.urlsafe_b64decode(cursor))
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise BadRequest("cursor must be the nextCursor of an earlier page") from error


def _listed(row: Any, segments: Sequence[_Segment]) -> ListedMessage:
    number: int = row["item"]
    partition_id = segments[number - 1].partition_id
    head = read_envelope(row["head"])
    return ListedMessage(
        id=message_id(partition_id, row["message_offset"]),
        transaction_id=head.transaction_id,
        partition_id=partition_uuid(partition_id),
        queue_path=f"{row['queue_name']}/{row['partition_name']}",
        queue=row["queue_name"],
        partition=row["partition_name"],
        namespace=row["namespace"],
        task=row["task"],
        status=row["status"],
        queue_status=row["queue_status"],
        bus_status=BusStatus(row["consumed_by"], row["total_groups"]),
        trace_id=head.trace_id,
        producer_sub=head.producer_sub,
        queue_priority=row["priority"],
        created_at=row["created_at"],
        lease_expires_at=row["lease_until"],
    )


def mode_type(*, has_queue_mode: bool, named_groups: int) -> ModeType:
    """Name the way in which messages are consumed."""
    if has_queue_mode:
        return "hybrid" if named_groups else "queue"
    return "bus" if named_groups else "none"


def _page_mode(rows: Sequence[Any]) -> Mode:
    has_queue_mode = any(row["queue_status"] is not None for row in rows)
    named_groups = max((row["total_groups"] for row in rows), default=0)
    kind = mode_type(has_queue_mode=has_queue_mode, named_groups=named_groups)
    return Mode(has_queue_mode, named_groups, kind)
