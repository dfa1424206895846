"""Cut the messages of a batch out of their segments and render them for an answer.

A segment's body is split into its envelopes without parsing them. Each is put behind the message's
id and the members that all messages of the segment share; the payload at its end stays as pushed.

An envelope is a JSON object whose payload comes last. Most have no marks and are served as stored.
A sealed one begins with `{"enc":"<key id>",`, one that expires with `{"expiresAt":"<time>",`, or
has that member second. A deleted message is a null. `EnvelopeReader` reads these marks, only at the
head of an envelope. Expiry goes by this process's clock, to the second.
"""

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
        """Return an envelope to deliver, or None for a message that is deleted or expired.

        Raises:
            SkepError: It is sealed and cannot be opened.
        """
        if envelope == _DELETED:
            return None
        expires_at = expiry_of(envelope)
        if expires_at is not None and expires_at <= self._clock():
            self.expired_count += 1
            return None
        return self._open(envelope) if envelope.startswith(SEALED) else envelope


class TakenSegment:
    """A segment that a pop returned, cut down to the messages that were taken."""

    __slots__ = (
        "created_at",
        "delivery",
        "envelopes",
        "is_individual",
        "keys",
        "low",
        "partition_id",
        "partition_name",
        "passed_over",
        "poll",
    )

    def __init__(self, row: Sequence[Any]) -> None:
        self.poll: int
        self.partition_id: int
        self.partition_name: str
        self.delivery: int
        self.created_at: datetime
        self.passed_over: list[int] | None
        """Offsets completed ahead of the cursor."""
        self.is_individual: bool
        """Messages are acknowledged one by one."""
        first: int
        (
            self.poll,
            self.partition_id,
            self.partition_name,
            taken_from,
            taken_to,
            self.delivery,
            first,
            self.created_at,
            keys,
            body,
            self.passed_over,
            self.is_individual,
        ) = row
        start = max(taken_from + 1 - first, 0)
        end = taken_to + 1 - first
        self.low: int = first + start
        """The first offset taken from this segment."""
        self.keys: bytes = keys[start * KEY_BYTES : end * KEY_BYTES]
        envelopes = split_array(body)
        is_whole = start == 0 and end >= len(envelopes)
        self.envelopes = envelopes if is_whole else envelopes[start:end]


class Batch:
    """The messages that one poll got."""

    __slots__ = (
        "_group",
        "_partition",
        "_partition_id",
        "lease_json",
        "left_out",
        "messages",
        "partitions",
    )

    def __init__(self, group: Group, lease_json: bytes) -> None:
        self._group: Final = group
        self._partition: tuple[bytes, bytes] = (b"", b"")
        self._partition_id: int = 0
        self.lease_json: Final = lease_json
        self.messages: Final[list[bytes]] = []
        self.left_out: Final[list[tuple[int, int]]] = []
        """Partition and offset of messages that are not delivered, though no cursor says why."""
        self.partitions: Final[list[tuple[bytes, bytes]]] = []
        """Name and id, as they stand in answers, of the partitions that gave messages."""

    def add(self, segment: TakenSegment, reader: EnvelopeReader) -> None:
        """Add the messages of a segment; segments of a partition follow one another."""
        if segment.partition_id != self._partition_id:
            self._partition_id = segment.partition_id
            uuid = partition_uuid(segment.partition_id).encode()
            self._partition = (_encode(segment.partition_name), uuid)
        count = len(self.messages)
        self._splice(segment, reader)
        if len(self.messages) > count and (
            not self.partitions or self.partitions[-1] is not self._partition
        ):
            self.partitions.append(self._partition)

    def _splice(self, segment: TakenSegment, reader: EnvelopeReader) -> None:
        """Put each envelope behind its id and the common members. This is the inner loop of pop."""
        partition_id, low = segment.partition_id, segment.low
        passed_over = segment.passed_over and frozenset(segment.passed_over)
        head = message_id_head(partition_id, low)
        common = self._common_members(segment)
        deliver = self.messages.append
        for offset, envelope in enumerate(segment.envelopes, low):
            if passed_over and offset in passed_over:
                continue
            text: bytes | None = bytes(envelope)
            if text[2] != PLAIN_INITIAL:
                text = reader.read(text)
                if text is None:
                    self.left_out.append((partition_id, offset))
                    continue
            deliver(b'{"id":"%b%012x"%b%b' % (head, offset & OFFSET_LOW_BITS, common, text[1:]))

    def _common_members(self, segment: TakenSegment) -> bytes:
        """Render what all messages of a segment share."""
        name_json, uuid = self._partition
        return (
            b',"queue":%b,"partition":%b,"partitionId":"%b","leaseId":%b,"consumerGroup":%b,'
            b'"createdAt":"%b","deliveryAttempt":%d,"retryCount":%d,'
        ) % (
            self._group.queue_json,
            name_json,
            uuid,
            self.lease_json,
            self._group.group_json,
            wire_time(segment.created_at),
            segment.delivery,
            segment.delivery - 1,
        )
