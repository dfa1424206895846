"""Tails: read the log of a queue as it grows, without claiming anything.

A position is a span between two snapshots of the database, and how far into it the reader is; that
is enough for any number of partitions. Within a span partitions are read one after the other, so
messages of one partition come in order, those of different partitions in any order. A reader that
reconnects with its last position, to any instance, goes on behind that message.

Readers read when a wake-up says that their queue has something, and every few seconds.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from skep.broker.timestamps import wire_time
from skep.db.access.slots import Caller
from skep.model.encryption import OpenEnvelope
from skep.model.errors import BadRequest, NotFound, SkepError
from skep.model.ids import message_id, partition_uuid

PLAN_CALL: Final = "select * from skep.plan_tail($1, $2, $3, $4)"
READ_CALL: Final = "select * from skep.read_ranges($1, $2, $3, $4)"
QUEUE_ID: Final = "select id from skep.queue where name = $1"
PRESENT: Final = "select pg_current_snapshot()::text"

NOTHING_SEEN: Final = "1:1:"
"""The snapshot before the first transaction."""

CHECK_S: Final = 2.0
"""How often a reader reads without a wake-up."""

PAUSE_S: Final = 0.05
"""Between two reads, so that a busy queue is not read for every push."""

SEGMENTS_PER_READ: Final = 16
RANGES_PER_READ: Final = 256

_EVER: Final = datetime.min.replace(tzinfo=UTC)
_XID_MAX: Final = 2**63 - 1
_POSITION: Final = re.compile(r"(\d+:\d+:[\d,]*)~(\d+:\d+:[\d,]*)~(\d{1,19})~(\d{1,19})", re.ASCII)

_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.encode


class Position(NamedTuple):
    """A place in the log of a queue: in the span between two snapshots, behind a message."""

    after: str
    until: str
    partition_id: int = 0
    offset: int = 0

    def __str__(self) -> str:
        """Spell it for a client, to which it is opaque."""
        return f"{self.after}~{self.until}~{self.partition_id}~{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Read what a client brought back."""
        spelled = _POSITION.fullmatch(text)
        if spelled is None or not all(_is_snapshot(spelled[number]) for number in (1, 2)):
            raise BadRequest("the last event id is not one of this stream")
        partition_id, offset = int(spelled[3]), int(spelled[4])
        if max(partition_id, offset) > _XID_MAX:
            raise BadRequest("the last event id is not one of this stream")
        return cls(spelled[1], spelled[2], partition_id, offset)


class TailMessage(NamedTuple):
    """A message and the position behind it. Without a message: so far there is nothing more."""

    position: Position
    message: bytes | None


class _Range(NamedTuple):
    partition_id: int
    partition_name: str
    first: int
    last: int


class Tails:
    """The readers of one process."""

    def __init__(self, caller: Caller, *, open_envelope: OpenEnvelope) -> None:
        self._caller: Final = caller
        self._open_envelope: Final = open_envelope
        self._events: Final[dict[int, set[asyncio.Event]]] = {}
        self._is_stopped = False

    def wake(self, queue_id: int) -> None:
        """Let the readers of a queue read."""
        for event in self._events.get(queue_id, ()):
            event.set()

    def stop(self) -> None:
        """End every reader."""
        self._is_stopped = True
        for queue_id in self._events:
            self.wake(queue_id)

    async def open(
        self, queue: str, *, start: datetime | None, last: Position | None, is_from_now: bool
    ) -> "Tail":
        """Find where a reader begins: at `last`, where it was before, if that is given.

        Else everything older than `start` is left out, or all there is if `is_from_now`.
        """
        rows = await self._caller.call(QUEUE_ID, queue)
        if not rows:
            raise NotFound("Queue not found")
        if last is None:
            seen = NOTHING_SEEN
            if is_from_now:
                seen = (await self._caller.call(PRESENT))[0][0]
            last = Position(seen, seen)
        return Tail(self, rows[0][0], queue, last, start or _EVER)

    async def plan(
        self, queue_id: int, after: str, until: str | None, since: datetime
    ) -> tuple[str, list[_Range]]:
        """Find what appeared between two snapshots: the later one, and the ranges."""
        rows = await self._caller.call(PLAN_CALL, queue_id, after, until, since)
        if not rows:
            raise NotFound("Queue not found")
        ranges = [_Range(*row[1:]) for row in rows if row[1] is not None]
        return rows[0][0], ranges

    async def read(self, ranges: Sequence[_Range]) -> Sequence[Any]:
        """Read some segments of these ranges."""
        return await self._caller.call(
            READ_CALL,
            [each.partition_id for each in ranges],
            [each.first for each in ranges],
            [each.last for each in ranges],
            SEGMENTS_PER_READ,
        )

    @contextmanager
    def listening(self, queue_id: int) -> Generator[asyncio.Event, None, None]:
        """Return an event that is set when a queue has something."""
        event = asyncio.Event()
        events = self._events.setdefault(queue_id, set())
        events.add(event)
        try:
            yield event
        finally:
            events.discard(event)
            if not events:
                self._events.pop(queue_id, None)

    async def wait(self, event: asyncio.Event) -> bool:
        """Wait until it is time to read again; False when there will be nothing more."""
        if not self._is_stopped:
            await asyncio.sleep(PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await event.wait()
        event.clear()  # before the read: what is set during it counts for the next
        return not self._is_stopped

    def render(
        self, queue_json: bytes, partition: _Range, offset: int, row: Any, raw: bytes
    ) -> bytes:
        """Render a message as a poll would, without a lease."""
        head = b'{"id":"%b","queue":%b,"partition":%b,"partitionId":"%b","createdAt":"%b"' % (
            message_id(partition.partition_id, offset).encode(),
            queue_json,
            _encode(partition.partition_name),
            partition_uuid(partition.partition_id).encode(),
            wire_time(row["created_at"]),
        )
        try:
            return b"%b,%b" % (head, self._open_envelope(raw)[1:])
        except SkepError as error:
            return b'%b,"data":null,"error":%b}' % (head, _encode(error.message))


class Tail:
    """One reader."""

    def __init__(
        self, tails: Tails, queue_id: int, queue: str, start: Position, since: datetime
    ) -> None:
        self._tails: Final = tails
        self._queue_id: Final = queue_id
        self._queue_json: Final = _encode(queue)
        self._since: Final = since
        self._position = start

    async def follow(self) -> AsyncGenerator[TailMessage, None]:
        """Return the messages from here on, until the process stops.

        Yields a `TailMessage` without a message when a read found nothing more.

        Raises:
            NotFound: The queue was deleted. One of that name that comes later is another.
        """
        until = None if self._position.until == self._position.after else self._position.until
        with self._tails.listening(self._queue_id) as event:
            while True:
                async with aclosing(self._read_span(until)) as messages:
                    async for each in messages:
                        yield each
                if until is None:
                    yield TailMessage(self._position, None)
                    if not await self._tails.wait(event):
                        return
                until = None  # the span the reader left unfinished is done: on to the present

    async def _read_span(self, until: str | None) -> AsyncGenerator[TailMessage, None]:
        """Return what is left of the span that ends at a snapshot, or at the present."""
        at = self._position
        end, ranges = await self._tails.plan(self._queue_id, at.after, until, self._since)
        left = _behind(ranges, at)
        while left:
            some = left[:RANGES_PER_READ]
            rows = await self._tails.read(some)
            for row in rows:
                partition = some[int(row["item"]) - 1]
                for offset, message in self._cut(partition, row):
                    yield TailMessage(
                        Position(at.after, end, partition.partition_id, offset), message
                    )
            is_cut = len(rows) == SEGMENTS_PER_READ
            left = _unread(some, rows) + left[len(some) :] if is_cut else left[len(some) :]
        self._position = Position(end, end)

    def _cut(self, partition: _Range, row: Any) -> list[tuple[int, bytes]]:
        """Cut the messages of a range out of a segment; deleted ones are null."""
        low, high = max(partition.first, row["first"]), min(partition.last, row["last"])
        envelopes = _split_array(row["body"])[low - row["first"] : high - row["first"] + 1]
        return [
            (offset, self._tails.render(self._queue_json, partition, offset, row, bytes(raw)))
            for offset, raw in enumerate(envelopes, start=low)
            if bytes(raw) != b"null"
        ]


def _behind(ranges: Sequence[_Range], at: Position) -> list[_Range]:
    """Return what lies behind a position in its span."""
    return [
        each._replace(first=max(each.first, at.offset + 1))
        if each.partition_id == at.partition_id
        else each
        for each in ranges
        if (each.partition_id, each.last) > (at.partition_id, at.offset)
    ]


def _unread(ranges: Sequence[_Range], rows: Sequence[Any]) -> list[_Range]:
    """Return what of these ranges lies behind the last row that was read."""
    last, item = int(rows[-1]["last"]), int(rows[-1]["item"])
    begun = ranges[item - 1]
    rest = [begun._replace(first=last + 1)] if last < begun.last else []
    return [*rest, *ranges[item:]]


def _is_snapshot(text: str) -> bool:
    """Tell whether PostgreSQL would take the text for a snapshot."""
    oldest, next_, running = text.split(":")
    if max(len(oldest), len(next_)) > 19:
        return False
    xids = [int(oldest), *([] if not running else _whole_numbers(running)), int(next_)]
    # Those that were running lie between the two, ascending; the first may be the oldest.
    is_ascending = all(a < b for a, b in pairwise(xids[1:])) and xids[0] <= xids[1]
    return is_ascending and xids[0] > 0 and xids[-1] <= _XID_MAX


def _whole_numbers(text: str) -> list[int]:
    return [int(each) if each and len(each) <= 19 else 0 for each in text.split(",")]
