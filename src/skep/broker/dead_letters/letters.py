"""Dead letters: show, delete, or redrive one by one what groups gave up on.

A dead letter belongs to one group: deleting it touches neither the message nor the letters of other
groups. All groups of a queue see what is redriven into it; choose another target queue where that
is not wanted.
"""

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from skep.broker.dead_letters.moves import (
    Letter,
    Moved,
    Mover,
    Target,
    partition_of,
    transaction_id_of,
)
from skep.broker.messages.stored_message import Envelope, leave_as_it_is, read_envelope, read_head
from skep.broker.paging import Page
from skep.broker.timestamps import in_utc
from skep.db.access.errors import NotExecuted
from skep.db.access.slots import Caller
from skep.model.encryption import OpenEnvelope
from skep.model.errors import BadRequest, NotFound, SkepError
from skep.model.ids import message_id, partition_uuid

LIST_CALL: Final = "select * from skep.list_dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9)"
COUNT_CALL: Final = "select skep.count_dead_letters($1, $2, $3, $4, $5, $6, $7, $8)"
DELETE_CALL: Final = "select skep.delete_dead_letters($1, $2, $3, $4, $5, $6, $7, $8)"
DESCRIBE_CALL: Final = "select * from skep.describe_letter($1)"
OF_MESSAGE_CALL: Final = "select * from skep.letters_of_message($1, $2, $3)"

COUNT_MAX: Final = 10_000
"""Totals of lists are exact up to here. Counting on would cost more than the page itself."""

DELETE_BATCH: Final = 1_000
REPLAY_TRIES: Final = 3
"""A letter that vanishes while its message is pushed is looked for again; it is gone then."""


class LetterGone(NotFound):
    """The dead letter does not exist, or does not exist any more."""

    code = "gone"


class LetterFilter(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"consumer_group": "consumerGroup", "since": "from", "until": "to"},
):
    """Which dead letters; None matches everything."""

    queue: str | None = None
    consumer_group: str | None = None
    partition: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    ids: tuple[int, ...] | None = None

    def arguments(self) -> tuple[object, ...]:
        """Return the first arguments of every function that takes a filter.

        Raises:
            BadRequest: A partition is named, but not its queue.
        """
        if self.partition is not None and self.queue is None:
            raise BadRequest("partition requires queue: many queues have partitions of one name")
        return (
            self.queue,
            self.consumer_group,
            self.partition,
            in_utc(self.since),
            in_utc(self.until),
            self.error or None,
            None if self.ids is None else list(self.ids),
        )


class DeadLetter(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A message that a group gave up on."""

    dlq_id: int
    id: str
    """Of the message."""
    transaction_id: str
    partition_id: str
    queue: str | None
    """Null: it was deleted, and its dead letters will be."""
    partition: str | None
    """Null: it was removed since."""
    consumer_group: str | None
    error_message: str
    retry_count: int
    attempts: int
    """How often it failed; the same as `retryCount`."""
    data: msgspec.Raw
    payload_error: str | None = None
    """Why the payload cannot be shown: this broker lacks its key."""
    headers: msgspec.Raw
    trace_id: str | None
    producer_sub: str | None
    created_at: datetime
    failed_at: datetime


class DescribedLetter(DeadLetter, frozen=True, kw_only=True):
    """A dead letter, or the record of one that was redriven: then there is no payload."""

    state: Literal["dead", "redriven"]
    redriven_at: datetime | None
    redriven_to: str | None
    """The id of the message that it became."""


class DeadLetterPage(msgspec.Struct, rename="camel", frozen=True):
    """Dead letters, the newest failure first."""

    messages: list[DeadLetter]
    total: int
    total_is_estimate: bool
    """There are more than `total`."""
    pagination: Page


class Replayed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What became of one dead letter."""

    success: Literal[True] = True
    result: Literal["moved", "duplicate"]
    """duplicate: the target holds the message already; the dead letter is kept."""
    dlq_id: int
    replayed_as: str
    """The id of the message that it became."""
    transaction_id: str
    original_transaction_id: str
    consumer_group: str | None
    queue: str
    partition: str


class DeadLetters:
    """Lists, deletes and redrives dead letters."""

    def __init__(
        self, caller: Caller, mover: Mover, *, open_envelope: OpenEnvelope = leave_as_it_is
    ) -> None:
        self._caller: Final = caller
        self._mover: Final = mover
        self._open: Final = open_envelope

    async def list_letters(self, chosen: LetterFilter, limit: int, offset: int) -> DeadLetterPage:
        """Return a page of the letters chosen, and how many there are."""
        arguments = chosen.arguments()
        rows = await self._caller.call(LIST_CALL, *arguments, limit, offset)
        total, is_estimate = await self.count(chosen, COUNT_MAX)
        return DeadLetterPage(
            messages=[DeadLetter(**self._members(row)) for row in rows],
            total=total,
            total_is_estimate=is_estimate,
            pagination=Page(limit, offset),
        )

    async def count(self, chosen: LetterFilter, bound: int) -> tuple[int, bool]:
        """Return how many letters are chosen, up to a bound, and whether there are more."""
        ((counted,),) = await self._caller.call(COUNT_CALL, *chosen.arguments(), bound)
        return min(counted, bound), counted > bound

    async def describe(self, letter_id: int) -> DescribedLetter:
        """Return one letter, or the record of its redrive.

        Raises:
            LetterGone: There is none.
        """
        row = await self._find(letter_id)
        is_redriven = row["redriven_at"] is not None
        return DescribedLetter(
            **self._members(row),
            state="redriven" if is_redriven else "dead",
            redriven_at=row["redriven_at"],
            redriven_to=message_id(row["to_partition_id"], row["to_offset"])
            if is_redriven
            else None,
        )

    async def delete(self, chosen: LetterFilter) -> int:
        """Delete the letters chosen, and return how many there were."""
        arguments = chosen.arguments()
        total = 0
        while True:
            ((count,),) = await self._caller.call(DELETE_CALL, *arguments, DELETE_BATCH)
            total += count
            if count < DELETE_BATCH:
                return total

    async def delete_one(self, letter_id: int) -> None:
        """Delete one letter.

        Raises:
            LetterGone: There is none.
        """
        if not await self.delete(LetterFilter(ids=(letter_id,))):
            raise LetterGone(f"dead letter {letter_id} is gone")

    async def replay(self, letter_id: int, target: Target) -> Replayed:
        """Redrive one letter.

        Raises:
            LetterGone: There is none; the message says what became of it if it was redriven.
            BadRequest: The target cannot be used.
        """
        target.check()
        for attempt in range(REPLAY_TRIES):
            row = await self._find(letter_id)
            if row["redriven_at"] is not None:
                became = message_id(row["to_partition_id"], row["to_offset"])
                raise LetterGone(f"dead letter {letter_id} is gone: redriven as {became}")
            if row["queue_name"] is None:
                raise LetterGone(f"dead letter {letter_id} is gone: its queue was deleted")
            letter = Letter(
                row["id"], row["queue_name"], row["partition_name"], row["envelope"].encode()
            )
            try:
                (moved,) = await self._mover.move([letter], target)
            except NotExecuted:
                if attempt == REPLAY_TRIES - 1:
                    raise
                continue
            if moved.partition_id is not None and moved.offset is not None:
                return _replayed(row, moved, partition_of(letter, target))
        raise LetterGone(f"dead letter {letter_id} is gone")

    async def find_of_message(
        self, partition_id: int, offset: int, group: str | None
    ) -> int | None:
        """Return the newest letter of a message, or None."""
        rows = await self._caller.call(OF_MESSAGE_CALL, partition_id, offset, group)
        return rows[0]["id"] if rows else None

    async def _find(self, letter_id: int) -> Any:
        rows = await self._caller.call(DESCRIBE_CALL, letter_id)
        if not rows:
            raise LetterGone(f"dead letter {letter_id} is gone")
        return rows[0]

    def _members(self, row: Any) -> dict[str, Any]:
        content, payload_error = self._content(row["envelope"])
        return {
            "dlq_id": row["id"],
            "id": message_id(row["partition_id"], row["message_offset"]),
            "transaction_id": row["transaction_id"],
            "partition_id": partition_uuid(row["partition_id"]),
            "queue": row["queue_name"],
            "partition": row["partition_name"],
            "consumer_group": row["group_name"],
            "error_message": row["error"],
            "retry_count": row["failures"],
            "attempts": row["failures"],
            "data": content.data,
            "payload_error": payload_error,
            "headers": content.headers,
            "trace_id": content.trace_id,
            "producer_sub": content.producer_sub,
            "created_at": row["created_at"],
            "failed_at": row["failed_at"],
        }

    def _content(self, envelope: str | None) -> tuple[Envelope, str | None]:
        """Decode an envelope; one that cannot be decrypted shows its head and the reason."""
        if envelope is None:
            return Envelope(transaction_id=""), None
        sealed = envelope.encode()
        try:
            return read_envelope(self._open(sealed)), None
        except SkepError as error:
            return read_head(sealed), error.message


def _replayed(row: Any, moved: Moved, partition: tuple[str, str]) -> Replayed:
    assert moved.partition_id is not None
    assert moved.offset is not None
    return Replayed(
        result="moved" if moved.result == "moved" else "duplicate",
        dlq_id=moved.letter_id,
        replayed_as=message_id(moved.partition_id, moved.offset),
        transaction_id=transaction_id_of(moved.letter_id),
        original_transaction_id=row["transaction_id"],
        consumer_group=row["group_name"],
        queue=partition[0],
        partition=partition[1],
    )
