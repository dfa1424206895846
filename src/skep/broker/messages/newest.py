"""Turn segments into a listing of messages: who they are and what has become of them.

Payloads are not looked at: of an envelope only the head is decoded.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from skep.broker.messages.stored_message import read_head
from skep.broker.paging import Page
from skep.broker.queues.resources import MessageSummary
from skep.model.ids import message_id, partition_uuid

_DELETED: Final = b"null"


class OffsetRange(Protocol):
    """A range of offsets as the driver returns it."""

    lower: int
    upper: int


_envelopes = msgspec.json.Decoder(list[msgspec.Raw])


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
