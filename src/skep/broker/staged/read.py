"""Read staged messages in commit order, at a cost that depends only on what is new.

A `Position` says what has been moved: everything that its snapshot saw, as far as the number drawn
at the commit is not above its floor. A transaction with a number below the floor that the snapshot
did not see is found later by its id, so a late commit is never skipped. Starting over without a
position finds the same messages.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from skep.db.access.slots import Caller
from skep.model.envelopes import Header

READ_CALL: Final = "select * from skep.read_staged($1, $2::text::pg_snapshot, $3, $4)"

BATCH_BYTES_MAX: Final = 8 << 20
"""Payload bytes of one batch. With the number of messages, they bound how long locks are held."""

_read_headers = msgspec.json.Decoder(dict[str, Header]).decode


class Position(NamedTuple):
    """How far staged messages have been moved."""

    floor: int = 0
    snapshot: str | None = None


class StagedMessage(NamedTuple):
    """A message as an application staged it."""

    commit_number: int
    id: int
    partition_key: tuple[str, str]
    transaction_id: str
    payload: bytes
    headers: dict[str, Header] | None
    trace_id: UUID | None
    deliver_at: datetime | None
    ttl_s: float | None


class StagedBatch(NamedTuple):
    """The messages to move next."""

    messages: Sequence[StagedMessage]
    read_at: datetime
    snapshot: str
    is_cut: bool
    """There may be more, also of the transaction of the last message."""


class StagedReader:
    """Reads batches, one after the other."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller
        self._position = Position()

    async def read(self, limit: int) -> StagedBatch:
        """Read the next messages; the same again until `advance` is called."""
        rows = await self._caller.call(READ_CALL, *self._position, limit, BATCH_BYTES_MAX)
        messages = [_message(row) for row in rows if row["id"] is not None]
        size = sum(len(message.payload) for message in messages)
        is_cut = len(messages) >= limit or size >= BATCH_BYTES_MAX
        return StagedBatch(messages, rows[0]["read_at"], rows[0]["snapshot"], is_cut)

    def advance(self, batch: StagedBatch) -> None:
        """Go on behind a batch, all of which has been moved."""
        self._position = position_after(self._position, batch)

    def start_over(self) -> None:
        """Forget what was moved, and read from the start."""
        self._position = Position()


def position_after(position: Position, batch: StagedBatch) -> Position:
    """Return the position when all of a batch has been moved."""
    numbers = [message.commit_number for message in batch.messages]
    if batch.is_cut:
        # Of the last transaction more may be left; of all before it nothing is.
        if numbers[-1] <= position.floor:
            return position
        numbers = [number for number in numbers if number < numbers[-1]]
    return Position(max([position.floor, *numbers]), batch.snapshot)


def _message(row: Any) -> StagedMessage:
    return StagedMessage(
        commit_number=row["commit_number"],
        id=row["id"],
        partition_key=(row["queue"], row["partition"]),
        transaction_id=row["transaction_id"],
        payload=row["payload"].encode(),
        headers=None if row["headers"] is None else _read_headers(row["headers"]),
        trace_id=row["trace_id"],
        deliver_at=row["deliver_at"],
        ttl_s=row["ttl_s"],
    )
