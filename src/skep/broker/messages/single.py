"""Single messages: show, history, delete, retry, give up; peek at what comes next.

A route names a message by its partition and its transaction id or message id. Nothing here claims
a message or reads its payload.

The log keeps a position per group, not an event per delivery, which makes acknowledging cheap. So
the history of a message has no times of deliveries or acknowledgments.
"""

from collections import ChainMap
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import xxhash
from msgspec.structs import asdict

from skep.broker.cluster.wakeups import Announcer
from skep.broker.dead_letters.letters import DeadLetters, Target
from skep.broker.messages.listing import Mode, mode_of
from skep.broker.messages.stored_message import (
    MessageAddress,
    Status,
    address_members,
    is_encrypted,
    leave_as_it_is,
    named_partition,
    offset_in,
    read_envelope,
)
from skep.broker.paging import from_row
from skep.db.access.functions import Functions
from skep.model.encryption import OpenEnvelope
from skep.model.errors import NotFound, Refused
from skep.model.ids import message_id, partition_uuid
from skep.model.limits import ERROR_TEXT_CHARS_MAX
from skep.model.wire import QUEUE_MODE
from skep.telemetry.meters import NoteLetters

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


class DescribedMessage(MessageAddress, frozen=True, kw_only=True):
    """A message and all that is known of it."""

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
    """How often it was delivered; null when the group is done with it."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Shows single messages and changes them; one that does not exist raises `NotFound`."""

    sql: Functions
    letters: DeadLetters
    announcer: Announcer
    hash_seed: int
    note_letters: NoteLetters
    open_envelope: OpenEnvelope = leave_as_it_is

    async def describe(self, partition: str, name: str) -> DescribedMessage:
        """Return one message with its payload."""
        found = await self.find(partition, name)
        row = await self._describe(found)
        envelope = row["envelope"].encode()
        content = read_envelope(self.open_envelope(envelope))
        return from_row(
            DescribedMessage,
            ChainMap(asdict(content), row),
            **address_members(*found, row["queue_name"], row["partition_name"]),
            payload=content.data,
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
            mode=DescribedMode(**asdict(mode_of([row])), consumed_by_groups=row["consumed_by"]),
            consumer_groups=_groups_decoder.decode(row["groups"] or "[]"),
        )

    async def history(self, partition: str, name: str) -> MessageHistory:
        """Return how far each group has come with a message, and its dead letters."""
        address = await self.find(partition, name)
        deliveries = await self.sql.rows("message_deliveries", *address)
        letters = await self.sql.rows("message_letters", *address, REDRIVES_SEARCHED)
        if not deliveries and not letters:
            raise NotFound("Message not found")
        return MessageHistory(
            deliveries=[
                from_row(GroupDelivery, row, group=row["group_name"]) for row in deliveries
            ],
            letters=[
                from_row(MessageLetter, row, group=row["group_name"], **_other(row))
                for row in letters
            ],
        )

    async def delete(self, partition: str, name: str) -> Intervention:
        """Take a message out of the log, for all groups, with the dead letters that copy it."""
        outcome = await self.sql.value("delete_message", *await self.find(partition, name))
        if outcome == "unknown":
            raise NotFound("Message not found")
        return Intervention(
            partition_id=partition,
            transaction_id=name,
            message="Message deleted" if outcome == "deleted" else "Message was deleted already",
        )

    async def retry(self, partition: str, name: str, group: str | None) -> Intervention:
        """Let a message that failed be delivered again: redrive its dead letter, or end its wait.

        If it did not fail, `Refused` says how it is.
        """
        address = await self.find(partition, name)
        rows = await self.sql.rows("end_backoff", *address, group)
        if rows:
            self.announcer.announce(rows[0]["queue_id"], 1)
            return Intervention(
                partition_id=partition,
                transaction_id=name,
                message="Message is available again",
                consumer_groups=[row["group_name"] for row in rows],
            )
        return await self._redrive(partition, name, address, group)

    async def give_up(
        self, partition: str, name: str, group: str | None, error: str | None
    ) -> Intervention:
        """Make a dead letter of a message, for one group or for all that wait for it."""
        address = await self.find(partition, name)
        described = await self._describe(address)
        text = (error or "Moved to the dead letters by hand")[:ERROR_TEXT_CHARS_MAX]
        rows = await self.sql.rows("give_up_message", *address, group, text.replace("\0", ""))
        if not rows:
            known = {each["name"] for each in msgspec.json.decode(described["groups"] or "[]")}
            if group is not None and group not in {*known, QUEUE_MODE}:
                raise NotFound(f"consumer group {group} does not exist")
            raise Refused("every consumer group in question is done with the message")
        self.note_letters(described["queue_name"], len(rows))
        return Intervention(
            partition_id=partition,
            transaction_id=name,
            message="Message moved to the dead letters",
            consumer_groups=[row["group_name"] for row in rows],
        )

    async def peek(
        self, queue: str, partition: str | None, group: str | None, limit: int
    ) -> PeekPage:
        """Return what a group would get next, without claiming it."""
        group = group or QUEUE_MODE
        rows = await self.sql.rows("peek_messages", queue, partition, group, limit)
        return PeekPage([self._peeked(row, queue, group) for row in rows])

    async def find(self, partition: str, name: str) -> tuple[int, int]:
        """Return the address of a message that a route names; an address is taken at its word."""
        partition_id = named_partition(partition)
        if offset := offset_in(partition_id, name):
            return partition_id, offset
        key = xxhash.xxh3_128_digest(name.encode(), self.hash_seed)
        missing = NotFound("Message not found")
        return partition_id, await self.sql.value(
            "find_message", partition_id, key, name, SEGMENTS_SEARCHED, missing=missing
        )

    async def _redrive(
        self, partition: str, name: str, address: tuple[int, int], group: str | None
    ) -> Intervention:
        """Redrive the newest dead letter of a message, or say why there is nothing to retry."""
        letters = await self.sql.rows("letters_of_message", *address, group)
        if not letters:
            raise Refused(_why_not_retried((await self._describe(address))["status"]))
        replayed = await self.letters.replay(letters[0]["id"], Target())
        return Intervention(
            partition_id=partition,
            transaction_id=name,
            message="Dead letter redriven",
            consumer_groups=[replayed.consumer_group] if replayed.consumer_group else [],
            replayed_as=replayed.replayed_as,
        )

    async def _describe(self, address: tuple[int, int]) -> Any:
        missing = NotFound("Message not found")
        return await self.sql.row("describe_message", *address, missing=missing)

    def _peeked(self, row: Any, queue: str, group: str) -> PeekedMessage:
        content = read_envelope(self.open_envelope(row["envelope"].encode()))
        return from_row(
            PeekedMessage,
            ChainMap(asdict(content), row),
            id=message_id(row["partition_id"], row["message_offset"]),
            partition_id=partition_uuid(row["partition_id"]),
            queue=queue,
            partition=row["partition_name"],
            consumer_group=group,
        )


_groups_decoder: Final = msgspec.json.Decoder(list[GroupState])


def _other(row: Any) -> dict[str, str | None]:
    partition_id, offset = row["other_partition_id"], row["other_offset"]
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
