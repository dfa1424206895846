"""List messages: pages of the log, from its newest end back.

Nothing is indexed by time, by state or by contents, so a page does a bounded amount of work and
says where it stopped: `nextCursor` continues there, even after a page that is not full, and
`searchedTo` is how far back it looked. Statuses are computed from the cursors of all groups.
Payloads are read only to search them; of all others only the head is decoded.
"""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec
import xxhash
from msgspec.structs import asdict, replace

from skep.broker.messages import stored_message as stored
from skep.broker.messages.contents import Contents
from skep.broker.paging import Page, decode_cursor, encode_cursor, from_row
from skep.broker.queues.resources import MessageSummary
from skep.broker.timestamps import in_utc
from skep.db.access.functions import Functions
from skep.model.encryption import OpenEnvelope
from skep.model.errors import BadRequest

SEGMENTS_PER_PAGE: Final = 1_000
MESSAGES_PER_PAGE: Final = 20_000
BYTES_PER_PAGE: Final = 8 << 20
MATCHES_PER_PAGE: Final = 1_000
"""What one page looks at. A page takes well under 200 ms then, whatever the filter."""
READ_AT_ONCE: Final = 64
"""Segments to search before the process attends to others."""
PREVIEW_CHARS_MAX: Final = 1_000

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
    """A message, and the beginning of its payload if that was asked for."""

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
    preview: str | None
    """Null: it was not asked for, or the payload is encrypted."""


class MessagePage(msgspec.Struct, rename="camel", frozen=True):
    """Messages, the newest first."""

    messages: list[ListedMessage]
    mode: Mode
    next_cursor: str | None
    """Pass it as `cursor` to get the next page; null on the last one."""
    searched_to: datetime | None
    """With `nextCursor`: everything newer was looked at, whether it matched or not."""


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
    contents: Contents | None = None


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A place in a segment: what is below the offset comes next, with so many still to skip."""

    xid: str
    partition_id: int
    first: int
    offset: int
    skip: int
    created_at: datetime
    low: int | None = None
    """Where its messages begin, if not all of them are meant."""


_place_decoder: Final = msgspec.json.Decoder(Place)
_split_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


@dataclass(frozen=True, slots=True, eq=False)
class MessageList:
    """Pages of messages."""

    sql: Functions
    hash_seed: int
    open_envelope: OpenEnvelope = stored.leave_as_it_is
    segments_per_page: int = SEGMENTS_PER_PAGE
    bytes_per_page: int = BYTES_PER_PAGE

    async def read_page(
        self,
        chosen: MessageFilter,
        *,
        limit: int,
        offset: int,
        cursor: str | None,
        preview: int = 0,
    ) -> MessagePage:
        """Return a page of the messages chosen, the newest first."""
        if chosen.partition is not None and chosen.queue is None:
            raise BadRequest("partition requires queue: many queues have partitions of one name")
        place = decode_cursor(_place_decoder, cursor) if cursor else None
        skip = place.skip if place else offset
        messages_max = _messages_needed(chosen, skip + limit)
        walked = await self._walk(chosen, place, messages_max)
        segments = _with_rest(walked, place)
        stop = self._early_stop(chosen, walked, messages_max)
        if chosen.contents is not None:
            matches_max = MATCHES_PER_PAGE if chosen.status else skip + limit + 1
            segments, stop = await self._search(chosen.contents, segments, stop, matches_max)
        rows = await self.sql.rows(
            "list_messages",
            [segment.partition_id for segment in segments],
            [segment.first for segment in segments],
            [segment.low for segment in segments],
            [segment.offset for segment in segments],
            chosen.status,
            self._key(chosen.transaction_id),
            preview,
            skip,
            limit,
        )
        listed = [row for row in rows if row["item"] is not None]
        matched: int = rows[0]["matched"]
        if matched > skip + limit:
            last, number = listed[-1], int(listed[-1]["item"])
            stop = replace(segments[number - 1], offset=last["message_offset"], skip=0, low=None)
        elif stop is not None:
            stop = replace(stop, skip=max(skip - matched, 0))
        return MessagePage(
            messages=[_listed(row, segments) for row in listed],
            mode=mode_of(listed),
            next_cursor=encode_cursor(stop) if stop else None,
            searched_to=stop.created_at if stop else None,
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
            *((place.xid, place.partition_id, place.first) if place else (None, None, None)),
            self.segments_per_page,
            messages_max,
            None if chosen.contents is None else self.bytes_per_page,
        )

    def _early_stop(
        self, chosen: MessageFilter, walked: Sequence[Any], messages_max: int
    ) -> Place | None:
        """Return where the walk stopped before it came to the end, if it did."""
        wanted = [row for row in walked if row["is_wanted"]]
        if (
            len(walked) < self.segments_per_page
            and sum(row["last"] - row["first"] + 1 for row in wanted) < messages_max
            and (
                chosen.contents is None or sum(row["size"] for row in wanted) < self.bytes_per_page
            )
        ):
            return None
        return _place(walked[-1], offset=walked[-1]["first"])

    async def _search(
        self, contents: Contents, segments: Sequence[Place], stop: Place | None, matches_max: int
    ) -> tuple[list[Place], Place | None]:
        """Return the messages that match, as places of one message each, and where this stopped."""
        found: list[Place] = []
        for begin in range(0, len(segments), READ_AT_ONCE):
            some = segments[begin : begin + READ_AT_ONCE]
            rows = await self.sql.rows(
                "read_segments",
                [each.partition_id for each in some],
                [each.first for each in some],
            )
            bodies = {(row["partition_id"], row["first"]): row["body"] for row in rows}
            for segment in some:
                body = bodies.get((segment.partition_id, segment.first), b"[]")
                offsets = range(segment.first, segment.offset)
                for offset, raw in reversed([*zip(offsets, _split_array(body), strict=False)]):
                    envelope = bytes(raw)
                    if envelope == b"null" or not contents.are_in(envelope, self.open_envelope):
                        continue
                    found.append(replace(segment, offset=offset + 1, low=offset))
                    if len(found) == matches_max:
                        return found, replace(segment, offset=offset, low=None)
        return found, stop

    def _key(self, transaction_id: str | None) -> bytes | None:
        if transaction_id is None:
            return None
        return xxhash.xxh3_128_digest(transaction_id.encode(), self.hash_seed)


def _messages_needed(chosen: MessageFilter, count: int) -> int:
    """Return how many messages to look at: no more than the page shows, if all of them match."""
    is_selective = (chosen.status, chosen.transaction_id, chosen.contents) != (None, None, None)
    return MESSAGES_PER_PAGE if is_selective else min(count, MESSAGES_PER_PAGE)


def _with_rest(walked: Sequence[Any], place: Place | None) -> list[Place]:
    """Return the segments to list: the rest of the one a page ended in, and those wanted."""
    wanted = [_place(row, offset=row["last"] + 1) for row in walked if row["is_wanted"]]
    return [place, *wanted] if place is not None and place.offset > place.first else wanted


def _place(row: Any, *, offset: int) -> Place:
    return from_row(Place, row, offset=offset, skip=0, low=None)


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
