"""List messages: pages of the log, from its newest end back.

Nothing is indexed by time or by state, so a page does a bounded amount of work and says where it
stopped: `nextCursor` continues there, even after a page that is not full. Statuses are computed
from the cursors of all groups. Payloads are not read: of an envelope only the head is decoded.
"""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec
import xxhash
from msgspec.structs import asdict, astuple, replace

from skep.broker.messages import stored_message as stored
from skep.broker.paging import Page, decode_cursor, encode_cursor, from_row
from skep.broker.queues.resources import MessageSummary
from skep.broker.timestamps import in_utc
from skep.db.access.functions import Functions
from skep.model.errors import BadRequest

SEGMENTS_PER_PAGE: Final = 1_000
MESSAGES_PER_PAGE: Final = 20_000
"""What one page looks at. A page takes well under 200 ms then, whatever the filter."""

_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)

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


class ListedMessage(stored.MessageAddress, frozen=True, kw_only=True):
    """A message without its payload."""

    namespace: str
    task: str
    status: stored.Status
    queue_status: stored.Status | None
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
    status: stored.Status | None = None
    since: datetime | None = None
    until: datetime | None = None
    transaction_id: str | None = None


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A place in a segment: what is below the offset comes next, with so many still to skip."""

    queue_id: int
    xid: str
    partition_id: int
    first: int
    offset: int
    skip: int


_place_decoder: Final = msgspec.json.Decoder(Place)


@dataclass(frozen=True, slots=True, eq=False)
class MessageList:
    """Pages of messages."""

    sql: Functions
    hash_seed: int
    segments_per_page: int = SEGMENTS_PER_PAGE

    async def read_page(
        self, chosen: MessageFilter, *, limit: int, offset: int, cursor: str | None
    ) -> MessagePage:
        """Return a page of the messages chosen, the newest first."""
        if chosen.partition is not None and chosen.queue is None:
            raise BadRequest("partition requires queue: many queues have partitions of one name")
        place = decode_cursor(_place_decoder, cursor) if cursor else None
        skip = place.skip if place else offset
        messages_max = _messages_needed(chosen, skip + limit)
        walked = await self._walk(chosen, place, messages_max)
        segments = _with_rest(walked, place)
        rows = await self.sql.rows(
            "list_messages",
            [segment.partition_id for segment in segments],
            [segment.first for segment in segments],
            [segment.offset for segment in segments],
            chosen.status,
            self._key(chosen.transaction_id),
            skip,
            limit,
        )
        listed = [row for row in rows if row["item"] is not None]
        matched: int = rows[0]["matched"]
        following = None
        if matched > skip + limit:
            last, number = listed[-1], int(listed[-1]["item"])
            following = replace(segments[number - 1], offset=last["message_offset"], skip=0)
        elif self._has_stopped_early(walked, messages_max):
            last = walked[-1]
            following = from_row(Place, last, offset=last["first"], skip=max(skip - matched, 0))
        return MessagePage(
            messages=[_listed(row, segments) for row in listed],
            mode=mode_of(listed),
            next_cursor=encode_cursor(following) if following else None,
        )

    async def _walk(
        self, chosen: MessageFilter, place: Place | None, messages_max: int
    ) -> Sequence[Any]:
        by_default = None if chosen.transaction_id is None else _ALWAYS
        return await self.sql.rows(
            "walk_segments",
            chosen.queue,
            chosen.partition,
            chosen.namespace,
            chosen.task,
            self._key(chosen.transaction_id),
            in_utc(chosen.since) or by_default,
            in_utc(chosen.until) or _FOR_EVER,
            *(astuple(place)[:4] if place else (None, None, None, None)),
            self.segments_per_page,
            messages_max,
        )

    def _has_stopped_early(self, walked: Sequence[Any], messages_max: int) -> bool:
        size = sum(row["last"] - row["first"] + 1 for row in walked if row["is_wanted"])
        return len(walked) >= self.segments_per_page or size >= messages_max

    def _key(self, transaction_id: str | None) -> bytes | None:
        if transaction_id is None:
            return None
        return xxhash.xxh3_128_digest(transaction_id.encode(), self.hash_seed)


def _messages_needed(chosen: MessageFilter, count: int) -> int:
    """Return how many messages to look at: no more than the page shows, if all of them match."""
    is_selective = chosen.status is not None or chosen.transaction_id is not None
    return MESSAGES_PER_PAGE if is_selective else min(count, MESSAGES_PER_PAGE)


def _with_rest(walked: Sequence[Any], place: Place | None) -> list[Place]:
    """Return the segments to list: the rest of the one a page ended in, and those wanted."""
    wanted = [
        from_row(Place, row, offset=row["last"] + 1, skip=0) for row in walked if row["is_wanted"]
    ]
    return [place, *wanted] if place is not None and place.offset > place.first else wanted


def _listed(row: Any, segments: Sequence[Place]) -> ListedMessage:
    number: int = row["item"]
    partition_id = segments[number - 1].partition_id
    return from_row(
        ListedMessage,
        ChainMap(asdict(stored.read_envelope(row["head"])), row),
        **stored.address_members(
            partition_id, row["message_offset"], row["queue_name"], row["partition_name"]
        ),
        bus_status=BusStatus(row["consumed_by"], row["total_groups"]),
        queue_priority=row["priority"],
        lease_expires_at=row["lease_until"],
    )


def mode_of(rows: Sequence[Any]) -> Mode:
    """Say how messages are consumed."""
    has_queue_mode = any(row["queue_status"] is not None for row in rows)
    named_groups = max((row["total_groups"] for row in rows), default=0)
    if has_queue_mode:
        return Mode(has_queue_mode, named_groups, "hybrid" if named_groups else "queue")
    return Mode(has_queue_mode, named_groups, "bus" if named_groups else "none")


def summarize_messages(
    segments: Sequence[Any], rows: Sequence[Any], page: Page
) -> list[MessageSummary]:
    """Return the messages of a page out of rows of `list_messages`, for `newest_segments`.

    Deleted messages have a place but are not shown, so a page may be shorter than its limit.
    """
    listed = ((segments[row["item"] - 1], row) for row in rows if row["item"] is not None)
    return [
        MessageSummary(
            **stored.address_members(
                segment["partition_id"],
                row["message_offset"],
                row["queue_name"],
                row["partition_name"],
            ),
            transaction_id=stored.read_envelope(row["head"]).transaction_id,
            status=row["status"],
            created_at=row["created_at"],
        )
        for segment, row in listed
        if segment["rank"] + segment["last"] - row["message_offset"] < page.offset + page.limit
    ]
