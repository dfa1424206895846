"""Read staged messages in the order of their commits, each new one at the cost of itself.

A `Position` says what has been moved: everything that its snapshot saw, as far as the number drawn
at the commit is not above its floor. A transaction with a number below the floor that the snapshot
did not see is found later by its id, so a late commit is never skipped. The position is only a
short cut: who forgets it finds the same messages from the start.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from skep.db.access.slots import Caller
from skep.model.envelopes import Header

READ_CALL: Final = "select * from skep.read_staged($1, $2::text::pg_snapshot, $3, $4)"

PORTION_BYTES: Final = 8 << 20
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


class Portion(NamedTuple):
    """What is to be moved next."""

    messages: Sequence[StagedMessage]
    read_at: datetime
    snapshot: str
    is_cut: bool
    """There may be more, also of the transaction of the last message."""


class StagedReader:
    """Reads portions, one after the other."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller
        self._position = Position()

    async def read(self, limit: int) -> Portion:
        """Read the next messages; the same again until `pass_over` is called."""
        rows = await self._caller.call(READ_CALL, *self._position, limit, PORTION_BYTES)
        snapshot, read_at = rows[0][:2]
        messages = [_message(row) for row in rows if row[3] is not None]
        size = sum(len(message.payload) for message in messages)
        is_cut = len(messages) >= limit or size >= PORTION_BYTES
        return Portion(messages, read_at, snapshot, is_cut)

    def pass_over(self, portion: Portion) -> None:
        """Go on behind a portion, all of which has been moved."""
        self._position = position_after(self._position, portion)

    def start_over(self) -> None:
        """Forget what was moved, and read from the start."""
        self._position = Position()


def position_after(position: Position, portion: Portion) -> Position:
    """Return the position when all of a portion has been moved."""
    numbers = [message.commit_number for message in portion.messages]
    if portion.is_cut:
        # Of the last transaction more may be left; of all before it nothing is.
        if numbers[-1] <= position.floor:
            return position
        numbers = [number for number in numbers if number < numbers[-1]]
    return Position(max([position.floor, *numbers]), portion.snapshot)


def _message(row: Sequence[Any]) -> StagedMessage:
    _, _, number, id_, queue, partition, name, payload, headers, trace_id, deliver_at, ttl_s = row
    return StagedMessage(
        number,
        id_,
        (queue, partition),
        name,
        payload.encode(),
        None if headers is None else _read_headers(headers),
        trace_id,
        deliver_at,
        ttl_s,
    )
