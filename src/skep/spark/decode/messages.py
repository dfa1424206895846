"""Messages decoded from segments: an object for each.

For the archive, and for segments that `skep.spark.decode.envelopes` cannot scan. One decoder call
takes a whole body apart; payloads stay the bytes they are.

Deleted messages are left out, and so are those that had expired when the position of the reader
was taken. Where payloads are wanted, sealed ones are opened with the keys of the reader, or fail
the task: a row without its payload would be worse.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np

from skep.model.ids import OFFSET_LOW_BITS, message_id, message_id_head
from skep.spark.decode.payloads import payload_bytes
from skep.spark.runtime.arrow import pa
from skep.spark.source.positions import moment_of

_RAW_NULL: Final = msgspec.Raw(b"null")

Open = Callable[[bytes], bytes]
Pairs = list[tuple[str, str | None]] | None
"""The headers of a message by name, as texts."""


class Envelope(msgspec.Struct, rename="camel", gc=False):
    """A stored message."""

    transaction_id: str
    data: msgspec.Raw
    trace_id: str | None = None
    producer_sub: str | None = None
    headers: msgspec.Raw = _RAW_NULL
    enc: str | None = None
    expires_at: str | None = None


@dataclass(slots=True)
class DecodedMessages:
    """Messages by column: a value for each message, None where it has none."""

    segments: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    counts: list[int] = field(default_factory=list[int])
    """The number of messages from each segment."""
    offsets: list[int] = field(default_factory=list[int])
    envelopes: list[Envelope] = field(default_factory=list[Envelope])

    def __len__(self) -> int:
        return len(self.offsets)

    def column(self, name: str) -> Any:
        """Return a column of the data source, or one that all messages of a segment share."""
        envelopes = self.envelopes
        columns: dict[str, Any] = {
            "offset": lambda: self.offsets,
            "message_id": self._message_ids,
            "transaction_id": lambda: [each.transaction_id for each in envelopes],
            "trace_id": lambda: [each.trace_id for each in envelopes],
            "producer": lambda: [each.producer_sub for each in envelopes],
            "headers": lambda: [_header_pairs(each) for each in envelopes],
            # Those that were not opened are sealed.
            "payload": lambda: pa.array([bytes(each.data) for each in envelopes], pa.binary()),
            "payload_bytes": lambda: [
                payload_bytes(bytes(each.data), is_sealed=each.enc is not None)
                for each in envelopes
            ],
        }
        return columns[name]() if name in columns else self._shared(name)

    def envelope(self, number: int) -> None:
        """Return nothing: the message is in the log."""

    def _shared(self, name: str) -> Any:
        values = pa.array([segment[name] for segment in self.segments])
        return values.take(pa.array(np.repeat(np.arange(len(self.counts)), self.counts)))

    def _message_ids(self) -> list[str]:
        ids: list[str] = []
        for segment, count in zip(self.segments, self.counts, strict=True):
            offsets = self.offsets[len(ids) : len(ids) + count]
            ids += _message_ids(segment["partition_id"], offsets)
        return ids


class EnvelopeDecoder:
    """Decodes segments message by message."""

    def __init__(self, *, open_envelope: Open | None, taken_us: int | None) -> None:
        """Prepare; None for `open_envelope` leaves messages sealed.

        What had expired at the moment `taken_us` is left out; None leaves nothing out.
        """
        self._open: Final = open_envelope
        self._taken: Final = None if taken_us is None else moment_of(taken_us)
        self._decode: Final = msgspec.json.Decoder(list[Envelope | None]).decode
        self._decode_raw: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
        self._decode_one: Final = msgspec.json.Decoder(Envelope).decode

    def decode(self, batch: Any) -> DecodedMessages:
        """Return the messages of a batch of segments."""
        messages = DecodedMessages()
        for segment, body in segments_and_bodies(batch):
            self.add(messages, segment, body)
        return messages

    def add(self, messages: DecodedMessages, segment: dict[str, Any], body: Any) -> None:
        """Add the messages of a segment that are neither deleted nor expired; open sealed ones."""
        before, first = len(messages), segment["first"]
        stored: list[msgspec.Raw] = []
        for index, envelope in enumerate(self._decode(body)):
            if envelope is None or self._has_expired(envelope):
                continue
            readable = envelope
            if envelope.enc is not None and self._open is not None:
                stored = stored or self._decode_raw(body)
                readable = self._decode_one(self._open(bytes(stored[index])))
            messages.envelopes.append(readable)
            messages.offsets.append(first + index)
        messages.segments.append(segment)
        messages.counts.append(len(messages) - before)

    def _has_expired(self, envelope: Envelope) -> bool:
        return (
            self._taken is not None
            and envelope.expires_at is not None
            and datetime.fromisoformat(envelope.expires_at) <= self._taken
        )


def segments_and_bodies(batch: Any) -> Iterable[tuple[dict[str, Any], Any]]:
    """Yield each segment of a record batch as a mapping, and its body as a buffer."""
    names = [name for name in batch.schema.names if name != "body"]
    segments, bodies = batch.select(names).to_pylist(), batch.column("body")
    return ((segment, body.as_buffer()) for segment, body in zip(segments, bodies, strict=True))


def _message_ids(partition_id: int, offsets: list[int]) -> list[str]:
    if not offsets or offsets[0] | OFFSET_LOW_BITS != offsets[-1] | OFFSET_LOW_BITS:
        return [message_id(partition_id, offset) for offset in offsets]
    # Neighbours share the head of their ids, which is most of the work.
    head = message_id_head(partition_id, offsets[0]).decode()
    return [f"{head}{offset & OFFSET_LOW_BITS:012x}" for offset in offsets]


def _header_pairs(envelope: Envelope) -> Pairs:
    return None if envelope.headers is _RAW_NULL else header_pairs(envelope.headers)


def header_pairs(headers: Any) -> Pairs:
    """Return a JSON object of headers as texts: numbers and booleans as JSON spells them."""
    members = msgspec.json.decode(headers, type=dict[str, str | int | float | bool | None] | None)
    return members and [(name, _text(value)) for name, value in members.items()]


def _text(value: str | float | bool | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
