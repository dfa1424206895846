"""Single messages: show, history, delete, retry, give up; peek at what comes next.

A route names a message by its partition and its transaction id or message id. Nothing here claims
a message or reads its payload.

The log keeps a position per group, not an event per delivery, which makes acknowledging cheap. So
the history of a message has no times of deliveries or acknowledgments.
"""

from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import xxhash

from skep.broker.cluster.wakeups import Announcer
from skep.broker.dead_letters.letters import DeadLetters
from skep.broker.dead_letters.moves import Target
from skep.broker.messages.listing import Mode, Status, mode_type
from skep.broker.messages.stored_message import (
    is_encrypted,
    leave_as_it_is,
    read_envelope,
)
from skep.broker.paging import from_row
from skep.db.access.slots import Caller
from skep.model.encryption import OpenEnvelope
from skep.model.errors import NotFound, Refused
from skep.model.ids import message_id, parse_address, parse_partition_uuid, partition_uuid
from skep.model.limits import ERROR_TEXT_CHARS_MAX
from skep.model.wire import QUEUE_MODE
from skep.telemetry.meters import NoteLetters

FIND_CALL: Final = "select skep.find_message($1, $2, $3, $4)"
DESCRIBE_CALL: Final = "select * from skep.describe_message($1, $2)"
DELETE_CALL: Final = "select skep.delete_message($1, $2)"
GIVE_UP_CALL: Final = "select * from skep.give_up_message($1, $2, $3, $4)"
END_BACKOFF_CALL: Final = "select * from skep.end_backoff($1, $2, $3)"
PEEK_CALL: Final = "select * from skep.peek_messages($1, $2, $3, $4)"
DELIVERIES_CALL: Final = "select * from skep.message_deliveries($1, $2)"
LETTERS_CALL: Final = "select * from skep.message_letters($1, $2, $3)"
REDRIVES_SEARCHED: Final = 10_000

SEGMENTS_SEARCHED: Final = 10_000
"""How far back to search for a transaction id. A message id needs no search."""


class DescribedMode(Mode, frozen=True):
    """The same for one message."""

    consumed_by_groups: int


class QueueConfig(msgspec.Struct, rename="camel", frozen=True):
    """The options of a queue that decide about a message."""

    lease_time: int
    retry_limit: int
    retry_delay: int
    ttl: int
    priority: int


class GroupState(msgspec.Struct, rename="camel", frozen=True):
    """What a group made of a message."""

    name: str
    consumed: bool
    lease_expires_at: datetime | None


class DescribedMessage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A message and all that is known of it."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: Status
    trace_id: str | None
    producer_sub: str | None
    created_at: datetime
    payload: msgspec.Raw
    headers: msgspec.Raw
    is_encrypted: bool
    error_message: str | None
    retry_count: int | None
    lease_expires_at: datetime | None
    queue_config: QueueConfig
    mode: DescribedMode
    consumer_groups: list[GroupState]


class Intervention(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What was done to a message."""

    success: Literal[True] = True
    partition_id: str
    transaction_id: str
    message: str
    """In words."""
    consumer_groups: list[str] = []
    """The groups it was done for."""
    replayed_as: str | None = None
    """The id of the message that a dead letter became."""


class PeekedMessage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A message that would be delivered."""

    id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    consumer_group: str
    trace_id: str | None
    producer_sub: str | None
    headers: msgspec.Raw
    data: msgspec.Raw
    created_at: datetime


class PeekPage(msgspec.Struct, frozen=True):
    """What a group would get next, in order within each partition."""

    messages: list[PeekedMessage]


class GroupDelivery(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How far a group has come with a message."""

    group: str
    state: Literal["done", "leased", "retrying", "waiting"]
    deliveries: int | None
    """How often it was handed out; counted for the first message a group is not done with."""
    failures: int
    ahead: int
    """Messages that the group has to finish first."""
    until: datetime | None
    """When the lease, or the pause before the next attempt, ends."""


class MessageLetter(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A dead letter that the message became, or came from."""

    group: str | None
    error: str
    failures: int
    failed_at: datetime
    redriven_at: datetime | None
    is_origin: bool
    """The message is the one that was pushed again."""
    other_partition_id: str | None
    other_id: str | None
    """The message it was pushed again as, or the one that this one copies."""


class MessageHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All that is on record of what became of a message."""

    deliveries: list[GroupDelivery]
    letters: list[MessageLetter]
    """The oldest failure first; redriven ones among the newest redrives."""


class Messages:
    """Shows single messages and changes them."""

    def __init__(
        self,
        caller: Caller,
        letters: DeadLetters,
        announcer: Announcer,
        *,
        hash_seed: int,
        note_letters: NoteLetters,
        open_envelope: OpenEnvelope = leave_as_it_is,
    ) -> None:
        self._caller: Final = caller
        self._note_letters: Final = note_letters
        self._letters: Final = letters
        self._announcer: Final = announcer
        self._hash_seed: Final = hash_seed
        self._open: Final = open_envelope

    async def describe(self, partition: str, name: str) -> DescribedMessage:
        """Return one message with its payload.

        Raises:
            NotFound: There is none, or not any more.
        """
        partition_id, offset = await self.find(partition, name)
        rows = await self._caller.call(DESCRIBE_CALL, partition_id, offset)
        if not rows:
            raise NotFound("Message not found")
        return self._described(rows[0], partition_id, offset)

    async def history(self, partition: str, name: str) -> MessageHistory:
        """Return how far each group has come with a message, and its dead letters.

        Raises:
            NotFound: There is no such message, and never was.
        """
        address = await self.find(partition, name)
        deliveries = await self._caller.call(DELIVERIES_CALL, *address)
        letters = await self._caller.call(LETTERS_CALL, *address, REDRIVES_SEARCHED)
        if not deliveries and not letters:
            raise NotFound("Message not found")
        return MessageHistory(
            deliveries=[
                from_row(GroupDelivery, row, group=row["group_name"]) for row in deliveries
            ],
            letters=[
                from_row(
                    MessageLetter,
                    row,
                    group=row["group_name"],
                    **_other(row["other_partition_id"], row["other_offset"]),
                )
                for row in letters
            ],
        )

    async def delete(self, partition: str, name: str) -> Intervention:
        """Take a message out of the log, for all groups, with the dead letters that copy it.

        Raises:
            NotFound: There never was one, or retention took it.
        """
        partition_id, offset = await self.find(partition, name)
        ((outcome,),) = await self._caller.call(DELETE_CALL, partition_id, offset)
        if outcome == "unknown":
            raise NotFound("Message not found")
        return Intervention(
            partition_id=partition,
            transaction_id=name,
            message="Message deleted" if outcome == "deleted" else "Message was deleted already",
        )

    async def retry(self, partition: str, name: str, group: str | None) -> Intervention:
        """Let a message that failed be delivered again: redrive its dead letter, or end its wait.

        Raises:
            NotFound: There is no such message.
            Refused: It did not fail, so that there is nothing to retry; the error says how it is.
        """
        partition_id, offset = await self.find(partition, name)
        rows = await self._caller.call(END_BACKOFF_CALL, partition_id, offset, group)
        if rows:
            self._announcer.announce(rows[0]["queue_id"], 1)
            return Intervention(
                partition_id=partition,
                transaction_id=name,
                message="Message is available again",
                consumer_groups=[row["group_name"] for row in rows],
            )
        return await self._redrive(partition, name, (partition_id, offset), group)

    async def give_up(
        self, partition: str, name: str, group: str | None, error: str | None
    ) -> Intervention:
        """Make a dead letter of a message, for one group or for all that wait for it.

        Raises:
            NotFound: There is no such message or group.
            Refused: Every group in question is done with it.
        """
        partition_id, offset = await self.find(partition, name)
        described = await self._caller.call(DESCRIBE_CALL, partition_id, offset)
        if not described:
            raise NotFound("Message not found")
        text = (error or "Moved to the dead letters by hand")[:ERROR_TEXT_CHARS_MAX]
        rows = await self._caller.call(
            GIVE_UP_CALL, partition_id, offset, group, text.replace("\0", "")
        )
        if not rows:
            known = {each["name"] for each in msgspec.json.decode(described[0]["groups"] or "[]")}
            if group is not None and group not in {*known, QUEUE_MODE}:
                raise NotFound(f"consumer group {group} does not exist")
            raise Refused("every consumer group in question is done with the message")
        self._note_letters(described[0]["queue_name"], len(rows))
        return Intervention(
            partition_id=partition,
            transaction_id=name,
            message="Message moved to the dead letters",
            consumer_groups=[row["group_name"] for row in rows],
        )

    async def peek(
        self, queue: str, partition: str | None, group: str | None, limit: int
    ) -> PeekPage:
        """Return what a group would get next, without claiming it.

        Raises:
            NotFound: The group does not exist.
        """
        group = group or QUEUE_MODE
        rows = await self._caller.call(PEEK_CALL, queue, partition, group, limit)
        return PeekPage([self._peeked(row, queue, group) for row in rows])

    async def find(self, partition: str, name: str) -> tuple[int, int]:
        """Return the address of a message that a route names.

        Raises:
            NotFound: There is no message of that name; an address is taken at its word.
        """
        partition_id = parse_partition_uuid(partition)
        if partition_id is None:
            raise NotFound("Message not found")
        address = parse_address(name)
        if address is not None and address[0] == partition_id and address[1] > 0:
            return address
        key = xxhash.xxh3_128_digest(name.encode(), self._hash_seed)
        ((offset,),) = await self._caller.call(
            FIND_CALL, partition_id, key, name, SEGMENTS_SEARCHED
        )
        if offset is None:
            raise NotFound("Message not found")
        return partition_id, offset

    async def _redrive(
        self, partition: str, name: str, address: tuple[int, int], group: str | None
    ) -> Intervention:
        """Redrive the newest dead letter of a message, or say why there is nothing to retry."""
        letter = await self._letters.find_of_message(*address, group)
        if letter is None:
            described = await self._caller.call(DESCRIBE_CALL, *address)
            if not described:
                raise NotFound("Message not found")
            raise Refused(_why_not_retried(described[0]["status"]))
        replayed = await self._letters.replay(letter, Target())
        return Intervention(
            partition_id=partition,
            transaction_id=name,
            message="Dead letter redriven",
            consumer_groups=[replayed.consumer_group] if replayed.consumer_group else [],
            replayed_as=replayed.replayed_as,
        )

    def _described(self, row: Any, partition_id: int, offset: int) -> DescribedMessage:
        envelope = row["envelope"].encode()
        content = read_envelope(self._open(envelope))
        return from_row(
            DescribedMessage,
            row,
            id=message_id(partition_id, offset),
            transaction_id=content.transaction_id,
            partition_id=partition_uuid(partition_id),
            queue_path=f"{row['queue_name']}/{row['partition_name']}",
            queue=row["queue_name"],
            partition=row["partition_name"],
            trace_id=content.trace_id,
            producer_sub=content.producer_sub,
            payload=content.data,
            headers=content.headers,
            is_encrypted=is_encrypted(envelope),
            error_message=row["error"],
            retry_count=row["failures"],
            lease_expires_at=row["lease_until"],
            queue_config=QueueConfig(
                lease_time=row["lease_time_s"],
                retry_limit=row["retry_limit"],
                retry_delay=row["retry_delay_ms"],
                ttl=row["ttl_s"],
                priority=row["priority"],
            ),
            mode=_described_mode(row),
            consumer_groups=_groups_decoder.decode(row["groups"] or "[]"),
        )

    def _peeked(self, row: Any, queue: str, group: str) -> PeekedMessage:
        content = read_envelope(self._open(row["envelope"].encode()))
        return PeekedMessage(
            id=message_id(row["partition_id"], row["message_offset"]),
            transaction_id=content.transaction_id,
            partition_id=partition_uuid(row["partition_id"]),
            queue=queue,
            partition=row["partition_name"],
            consumer_group=group,
            trace_id=content.trace_id,
            producer_sub=content.producer_sub,
            headers=content.headers,
            data=content.data,
            created_at=row["created_at"],
        )


_groups_decoder: Final = msgspec.json.Decoder(list[GroupState])


def _described_mode(row: Any) -> DescribedMode:
    has_queue_mode = row["queue_status"] is not None
    named_groups = row["total_groups"]
    kind = mode_type(has_queue_mode=has_queue_mode, named_groups=named_groups)
    return DescribedMode(has_queue_mode, named_groups, kind, row["consumed_by"])


def _other(partition_id: int | None, offset: int | None) -> dict[str, str | None]:
    if partition_id is None or offset is None:
        return {"other_partition_id": None, "other_id": None}
    return {
        "other_partition_id": partition_uuid(partition_id),
        "other_id": message_id(partition_id, offset),
    }


def _why_not_retried(status: str) -> str:
    reasons = {
        "pending": "the message has not failed: it waits to be delivered",
        "processing": "the message is being delivered: a consumer holds a lease on it",
        "completed": "the message is completed: seek a group back to deliver it again",
    }
    return reasons.get(status, "the message failed for another consumer group")
