"""List messages: pages of the log, from its newest end back.

Nothing is indexed by time or by state, so a page does a bounded amount of work and says where it
stopped: `nextCursor` continues there, even after a page that is not full. Statuses are computed
from the cursors of all groups. Payloads are not read: of an envelope only the head is decoded.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
import xxhash

from skep.broker.messages.stored_message import read_envelope, read_head
from skep.broker.paging import Page, decode_cursor, encode_cursor, from_row
from skep.broker.queues.resources import MessageSummary
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
    """Pass it as `cursor` to get the next page; null on the last one."""


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to list; None matches everything."""

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
            BadRequest: The cursor is invalid, or a partition is named without its queue.
        """
        if chosen.partition is not None and chosen.queue is None:
            raise BadRequest("partition requires queue: many queues have partitions of one name")
        place = decode_cursor(_place_decoder, cursor) if cursor else None
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
            next_cursor=encode_cursor(following) if following else None,
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


def _listed(row: Any, segments: Sequence[_Segment]) -> ListedMessage:
    number: int = row["item"]
    partition_id = segments[number - 1].partition_id
    head = read_envelope(row["head"])
    return from_row(
        ListedMessage,
        row,
        id=message_id(partition_id, row["message_offset"]),
        transaction_id=head.transaction_id,
        partition_id=partition_uuid(partition_id),
        queue_path=f"{row['queue_name']}/{row['partition_name']}",
        queue=row["queue_name"],
        partition=row["partition_name"],
        bus_status=BusStatus(row["consumed_by"], row["total_groups"]),
        trace_id=head.trace_id,
        producer_sub=head.producer_sub,
        queue_priority=row["priority"],
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


_DELETED: Final = b"null"
_envelopes = msgspec.json.Decoder(list[msgspec.Raw])


class OffsetRange(Protocol):
    """A range of offsets as the driver returns it."""

    lower: int
    upper: int


def summarize_messages(queue: str, rows: Sequence[Any], page: Page) -> list[MessageSummary]:
    """List the messages of a page out of the rows of `newest_segments`.

    Deleted messages have a place but are not shown, so a page may be shorter than its limit.
    """
    return [
        _summary(queue, row, offset, envelope)
        for row in rows
        for rank, offset, envelope in _newest_first(row)
        if page.offset <= rank < page.offset + page.limit
        and envelope != _DELETED
        and offset >= row["tail"]
    ]


def _newest_first(row: Any) -> Iterator[tuple[int, int, bytes]]:
    """Yield rank in the queue, offset and envelope of a segment's messages."""
    envelopes = [bytes(raw) for raw in _envelopes.decode(row["body"])]
    last = row["first"] + len(envelopes) - 1
    for distance, envelope in enumerate(reversed(envelopes)):
        yield row["rank"] + distance, last - distance, envelope


def _summary(queue: str, row: Any, offset: int, envelope: bytes) -> MessageSummary:
    partition = row["partition_name"]
    return MessageSummary(
        id=message_id(row["partition_id"], offset),
        transaction_id=read_head(envelope).transaction_id,
        partition_id=partition_uuid(row["partition_id"]),
        queue_path=f"{queue}/{partition}",
        queue=queue,
        partition=partition,
        status=_status(row, offset),
        created_at=row["created_at"],
    )


def _status(row: Any, offset: int) -> str:
    if offset in row["buried"]:
        return "dead_letter"
    if offset <= row["acked"] or _is_done(row["done"], offset):
        return "completed"
    leased = row["leased"]
    return "processing" if leased is not None and offset <= leased else "pending"


def _is_done(ranges: Sequence[OffsetRange] | None, offset: int) -> bool:
    return any(each.lower <= offset < each.upper for each in ranges or ())
