"""What reads by offset may ask for, and what refuses it. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from skep.broker.timestamps import parse_moment
from skep.model.errors import BadRequest
from skep.model.names import check_name
from skep.model.wire import DEFAULT_PARTITION

ENTRIES_MAX: Final = 1024
WAIT_MS_MAX: Final = 30_000
ENTRY_BYTES: Final = 1024 * 1024
ENTRY_BYTES_MAX: Final = 8 * 1024 * 1024
CALL_BYTES: Final = 8 * 1024 * 1024
CALL_BYTES_MAX: Final = 16 * 1024 * 1024
WAIT_BYTES_MAX: Final = 1024 * 1024
"""Bytes that a read may wait for; it holds on to those that it has."""
PAGE: Final = 1000
OFFSET_MAX: Final = 2**63 - 2

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FetchEntry(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A position in a partition."""

    queue: str
    partition: str | int | None = None
    """Absent: Default."""
    offset: int
    """The first wanted; 0 is the beginning of a log from which nothing was removed yet."""
    max_bytes: int = ENTRY_BYTES
    """Of its messages: 1 to 8 MiB; others are brought into that range."""


class FetchBody(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What to read."""

    entries: list[FetchEntry]
    """At most 1024."""
    max_wait_ms: int = 0
    """How long to wait for `minBytes`; at most 30 seconds."""
    min_bytes: int = 1
    """At most 1 MiB; more is taken as that."""
    max_bytes: int = CALL_BYTES
    """Of all messages together: 1 to 16 MiB. A message that alone is larger is returned alone."""


class OffsetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A time in the log of a partition."""

    queue: str
    partition: str | int | None = None
    """Absent: Default."""
    timestamp: int | str
    """Milliseconds since 1970, or ISO 8601."""


class OffsetsBody(msgspec.Struct, frozen=True):
    """Which offsets are wanted."""

    entries: list[OffsetEntry]
    """At most 1024."""


class ChangedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A queue whose changed partitions are wanted."""

    queue: str
    since: str | None = None
    """ISO 8601, inclusive, UTC without an offset; absent: all partitions."""
    after: str | None = None
    """`next` of the page before."""
    limit: int = PAGE
    """1 to 1000; others are brought into that range."""


class ChangedBody(msgspec.Struct, frozen=True):
    """Which queues are asked about."""

    entries: list[ChangedEntry]
    """At most 1024; none asks for `safeTime` alone."""


def check_count(entries: list[FetchEntry] | list[OffsetEntry] | list[ChangedEntry]) -> None:
    """Raise `BadRequest` if there are too many entries."""
    if len(entries) > ENTRIES_MAX:
        raise BadRequest(f"too many entries: {len(entries)}. Send at most {ENTRIES_MAX}")


def check_address(entry: FetchEntry | OffsetEntry) -> tuple[str, str]:
    """Return the queue and the partition of an entry.

    Raises:
        BadRequest: No queue or partition can have such a name.
    """
    partition = DEFAULT_PARTITION if entry.partition is None else str(entry.partition)
    return check_name("queue", entry.queue), check_name("partition", partition)


def check_offset(entry: FetchEntry) -> int:
    """Return the offset of an entry; raise `BadRequest` if there can be none like it."""
    if not 0 <= entry.offset <= OFFSET_MAX:
        raise BadRequest(f"Invalid offset: {entry.offset}. Use 0 or an offset of a message")
    return entry.offset


def clamped(value: int, most: int) -> int:
    """Bring a number into the range from 1."""
    return min(max(value, 1), most)


def read_timestamp(entry: OffsetEntry) -> datetime:
    """Return the time of an entry, which is in milliseconds or ISO 8601."""
    if isinstance(entry.timestamp, str):
        return parse_moment("timestamp", entry.timestamp)
    try:
        return _EPOCH + timedelta(milliseconds=entry.timestamp)
    except OverflowError:
        text = f"Invalid timestamp: {entry.timestamp}. Use milliseconds since 1970, or ISO 8601"
        raise BadRequest(text) from None
