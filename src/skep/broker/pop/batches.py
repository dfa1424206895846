"""Cut the messages of a batch out of their segments, ready to stand in an answer.

A segment's body is split into its envelopes without parsing them. Each is put behind the message's
id and what all messages of the segment share; the payload at its end stays as it was pushed.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from skep.broker.directory import Group
from skep.broker.pop.envelope_reader import PLAIN_INITIAL, EnvelopeReader
from skep.broker.pop.lease_memory import KEY_BYTES
from skep.model.ids import OFFSET_LOW_BITS, message_id_head, partition_uuid

_SECONDS_END: Final = len("2026-01-01T12:00:00.000000")

_encode = msgspec.json.encode
split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Split the body of a segment into envelopes. How deep a payload may nest depends on how deep the
stack is, so this belongs near the bottom of it, where a push was checked too."""


class TakenSegment:
    """A segment that a pop returned, cut down to the messages that were taken.

    It is made near the bottom of the stack: splitting needs room there.
    """

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
        """Offsets that are done already, ahead of the cursor."""
        self.is_individual: bool
        """Messages are acknowledged each for itself."""
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
    """What one poll got."""

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
        """Take in the messages of a segment; those of a partition come together."""
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


def wire_time(moment: datetime) -> bytes:
    """Spell a moment, which is in UTC, as the wire does; five times as quick as `strftime`."""
    return b"%bZ" % moment.isoformat(timespec="microseconds")[:_SECONDS_END].encode()
