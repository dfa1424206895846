"""Cut the messages of a batch out of their segments and render them for an answer.

A segment's body is split into its envelopes without parsing them. Each is put behind the message's
id and the members that all messages of the segment share; the payload at its end stays as pushed.

An envelope is a JSON object whose payload comes last. Most have no marks and are served as stored.
A sealed one begins with `{"enc":"<key id>",`, one that expires with `{"expiresAt":"<time>",`, or
has that member second. A deleted message is a null. `EnvelopeReader` reads these marks, only at the
head of an envelope. Expiry goes by this process's clock, to the second.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from skep.broker.directory import Group
from skep.broker.pop.lease_memory import KEY_BYTES
from skep.broker.timestamps import wire_time
from skep.model.encryption import OpenEnvelope
from skep.model.ids import OFFSET_LOW_BITS, message_id_head, partition_uuid

_encode = msgspec.json.encode
split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Split the body of a segment into envelopes. How deep a payload may nest depends on how deep the
stack is, so call this near the bottom of it, as the check of a push did."""

SEALED: Final = b'{"enc":"'
EXPIRING: Final = b'{"expiresAt":"'
_EXPIRY_MEMBER: Final = EXPIRING[1:]
_DELETED: Final = b"null"

PLAIN_INITIAL: Final = b'{"transactionId"'[2]
"""The third byte of an envelope without marks. With a mark, or deleted, it has another there."""


def leave_sealed(envelope: bytes) -> bytes:
    """Serve a sealed envelope as it is; for brokers without keys."""
    return envelope


def expiry_of(envelope: bytes) -> datetime | None:
    """Return when a message expires, or None if it never does."""
    start = 1
    if envelope.startswith(SEALED):
        start = envelope.index(b'"', len(SEALED)) + 2  # behind the quote and the comma
    if not envelope.startswith(_EXPIRY_MEMBER, start):
        return None
    start += len(_EXPIRY_MEMBER)
    return datetime.fromisoformat(envelope[start : envelope.index(b'"', start)].decode())


class EnvelopeReader:
    """Leaves out deleted and expired messages, and opens sealed ones."""

    def __init__(
        self,
        open_envelope: OpenEnvelope = leave_sealed,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._open: Final = open_envelope
        self._clock: Final = clock
        self.expired_count = 0
        """Messages left out because they had expired."""

    def read(self, envelope: bytes) -> bytes | None:
        """Return an envelope to deliver, or None for a message that is deleted or expired."""
        if envelope == _DELETED:
            return None
        expires_at = expiry_of(envelope)
        if expires_at is not None and expires_at <= self._clock():
            self.expired_count += 1
            return None
        return self._open(envelope) if envelope.startswith(SEALED) else envelope


class TakenSegment(msgspec.Struct, eq=False):
    """A segment that a pop returned, cut down to the messages that were taken."""

    poll: int
    partition_id: int
    partition_name: str
    delivery: int
    """How often its messages were delivered, this time included, unless `counts` says otherwise."""
    created_at: datetime
    low: int
    """The first offset taken from this segment."""
    keys: bytes
    envelopes: Sequence[msgspec.Raw | bytes]
    passed_over: list[int] | None
    """Offsets completed ahead of the cursor."""
    is_individual: bool
    """Messages are acknowledged one by one."""
    counts: list[int] | None
    """Triples, if they differ: an offset, and deliveries and failures of the messages up to it."""


def cut_segment(row: Sequence[Any]) -> TakenSegment:
    """Cut the messages that were taken out of a segment, as a pop returned it."""
    # What was taken lies behind `low`, up to `high`.
    (poll, partition_id, name, low, high, delivery, first, created_at, keys, body, done, alone,
     counts) = row  # fmt: skip
    start, end = max(low + 1 - first, 0), high + 1 - first
    envelopes = split_array(body)
    return TakenSegment(
        poll,
        partition_id,
        name,
        delivery,
        created_at,
        first + start,
        keys[start * KEY_BYTES : end * KEY_BYTES],
        envelopes if start == 0 and end >= len(envelopes) else envelopes[start:end],
        done,
        alone,
        counts,
    )


class Batch(msgspec.Struct, eq=False):
    """The messages that one poll got."""

    group: Group
    lease_json: bytes
    messages: list[bytes] = []
    left_out: list[tuple[int, int]] = []
    """Partition and offset of messages that are not delivered, though no cursor says why."""
    partitions: list[tuple[bytes, bytes]] = []
    """Name and id, as they stand in answers, of the partitions that gave messages."""
    partition: tuple[bytes, bytes] = (b"", b"")
    partition_id: int = 0

    def add(self, segment: TakenSegment, reader: EnvelopeReader) -> None:
        """Add the messages of a segment; segments of a partition follow one another."""
        if segment.partition_id != self.partition_id:
            self.partition_id = segment.partition_id
            uuid = partition_uuid(segment.partition_id).encode()
            self.partition = (_encode(segment.partition_name), uuid)
        count = len(self.messages)
        self._splice(segment, reader)
        if len(self.messages) > count and (
            not self.partitions or self.partitions[-1] is not self.partition
        ):
            self.partitions.append(self.partition)

    def _splice(self, segment: TakenSegment, reader: EnvelopeReader) -> None:
        """Put each envelope behind its id and the common members. This is the inner loop of pop."""
        partition_id, low = segment.partition_id, segment.low
        passed_over = segment.passed_over and frozenset(segment.passed_over)
        head = message_id_head(partition_id, low)
        counts = iter(segment.counts or (math.inf, segment.delivery, 0))
        counted_to: float = 0
        common = b""
        deliver = self.messages.append
        for offset, envelope in enumerate(segment.envelopes, low):
            while offset > counted_to:
                counted_to = next(counts)
                common = self._common_members(segment, int(next(counts)), int(next(counts)))
            if passed_over and offset in passed_over:
                continue
            text: bytes | None = bytes(envelope)
            if text[2] != PLAIN_INITIAL:
                text = reader.read(text)
                if text is None:
                    self.left_out.append((partition_id, offset))
                    continue
            deliver(b'{"id":"%b%012x"%b%b' % (head, offset & OFFSET_LOW_BITS, common, text[1:]))

    def _common_members(self, segment: TakenSegment, deliveries: int, failures: int) -> bytes:
        """Render what messages of a segment share that were delivered and failed equally often."""
        name_json, uuid = self.partition
        return (
            b',"queue":%b,"partition":%b,"partitionId":"%b","leaseId":%b,"consumerGroup":%b,'
            b'"createdAt":"%b","deliveryAttempt":%d,"retryCount":%d,'
        ) % (
            self.group.queue_json,
            name_json,
            uuid,
            self.lease_json,
            self.group.group_json,
            wire_time(segment.created_at),
            deliveries,
            failures,
        )
