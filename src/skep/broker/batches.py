"""Cut the messages of a batch out of their segments, ready to stand in an answer.

A segment's body is split into its envelopes without parsing them. Each is put behind the message's
id and what all messages of the segment share; the payload at its end stays as it was pushed.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from skep.broker.directory import Group
from skep.broker.envelope_reader import PLAIN_INITIAL, EnvelopeReader
from skep.broker.leases import KEY_BYTES
from skep.model.ids import OFFSET_LOW_BITS, message_id_head, partition_uuid

_encode = msgspec.json.encode
split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Split the body of a segment into envelopes. How deep a payload may nest depends on how deep the
stack is, so this belongs near the bottom of it, where a push was checked too."""


class TakenSegment(NamedTuple):
    """A row of a pop: a segment, and which of its messages were taken."""

    poll: int
    partition_id: int
    partition_name: str
    taken_from: int
    taken_to: int
    delivery: int
    first: int
    created_at: datetime
    keys: bytes
    body: bytes
    passed_over: list[int] | None
    """Offsets that are done already, ahead of the cursor."""
    is_individual: bool
    """Messages are acknowledged each for itself."""
    envelopes: Sequence[msgspec.Raw]
    """The body, split; not part of the row."""

    @property
    def low(self) -> int:
        """The first offset taken from this segment."""
        return max(self.taken_from + 1, self.first)

    def keys_taken(self) -> bytes:
        """Return the keys of the messages taken."""
        low, high = self._places()
        return self.keys[low * KEY_BYTES : high * KEY_BYTES]

    def envelopes_taken(self) -> Sequence[msgspec.Raw]:
        """Return the envelopes of the messages taken."""
        low, high = self._places()
        return self.envelopes[low:high]

    def _places(self) -> tuple[int, int]:
        return self.low - self.first, min(
            self.taken_to + 1 - self.first, len(self.keys) // KEY_BYTES
        )


BODY_COLUMN: Final = TakenSegment._fields.index("body")


class Batch:
    """What one poll got."""

    __slots__ = ("_group", "_lane", "_lane_id", "lanes", "lease_json", "left_out", "messages")

    def __init__(self, group: Group, lease_json: bytes) -> None:
        self._group: Final = group
        self._lane: tuple[bytes, bytes] = (b"", b"")
        self._lane_id: int = 0
        self.lease_json: Final = lease_json
        self.messages: Final[list[bytes]] = []
        self.left_out: Final[list[tuple[int, int]]] = []
        """Partition and offset of messages that are not delivered, though no cursor says why."""
        self.lanes: Final[list[tuple[bytes, bytes]]] = []
        """Name and id, as they stand in answers, of the lanes that gave messages."""

    def add(self, segment: TakenSegment, reader: EnvelopeReader) -> None:
        """Take in the messages of a segment; those of a lane come together."""
        if segment.partition_id != self._lane_id:
            self._lane_id = segment.partition_id
            uuid = partition_uuid(segment.partition_id).encode()
            self._lane = (_encode(segment.partition_name), uuid)
        count = len(self.messages)
        self._splice(segment, reader)
        if len(self.messages) > count and (not self.lanes or self.lanes[-1] is not self._lane):
            self.lanes.append(self._lane)

    def _splice(self, segment: TakenSegment, reader: EnvelopeReader) -> None:
        """Put each envelope behind its id and the common members. This is the inner loop of pop."""
        partition_id, low = segment.partition_id, segment.low
        passed_over = segment.passed_over and frozenset(segment.passed_over)
        head = message_id_head(partition_id, low)
        common = self._common_members(segment)
        deliver = self.messages.append
        for offset, envelope in enumerate(segment.envelopes_taken(), low):
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
        name_json, uuid = self._lane
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
    """Spell a moment as the wire does: UTC, microseconds, Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
