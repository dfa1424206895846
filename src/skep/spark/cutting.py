"""Cut segments into rows: Arrow in, Arrow out.

A segment's body is a JSON array of envelopes (see `skep.model.envelopes`). One decoder call takes
a whole body apart; it decodes only the members that some column needs and leaves payloads as the
bytes they are. What all messages of a segment share is repeated by Arrow, not by Python.

Deleted messages are left out, and so are those that had expired when the position of the reader
was taken. Where payloads are wanted, sealed ones are opened with the keys of the reader, or fail
the task: a row without its payload would be worse.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import numpy as np

from skep.model.errors import Refused
from skep.model.ids import OFFSET_LOW_BITS, message_id, message_id_head
from skep.spark.arrow import arrow_schema, pa
from skep.spark.columns import HEADERS, PAYLOAD, PAYLOAD_BYTES
from skep.spark.options import Shape
from skep.spark.payloads import is_carried, payload_bytes, payload_decoder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_PER_BATCH: Final = 8_192
"""Rows of a record batch at which it is handed on; a segment is never torn."""

_RAW_NULL: Final = msgspec.Raw(b"null")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Open = Callable[[bytes], bytes]
Column = Callable[["Rows"], Any]


class MalformedPayload(Refused):
    """A payload does not fit the schema it is to be read by."""

    code: ClassVar[str] = "malformed_payload"


class Envelope(msgspec.Struct, rename="camel", gc=False):
    """What a stored message says."""

    transaction_id: str
    data: msgspec.Raw
    trace_id: str | None = None
    producer_sub: str | None = None
    headers: msgspec.Raw = _RAW_NULL
    enc: str | None = None
    expires_at: str | None = None


class _PlainEnvelope(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """A message that is neither sealed nor expires: nothing else is decoded as one of these."""

    enc: ClassVar[str | None] = None
    expires_at: ClassVar[str | None] = None
    transaction_id: str
    data: msgspec.Raw
    trace_id: str | None = None
    producer_sub: str | None = None
    headers: msgspec.Raw = _RAW_NULL


@dataclass(slots=True)
class Rows:
    """Messages cut out of segments that are not handed on yet."""

    segments: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    counts: list[int] = field(default_factory=list[int])
    """How many messages each segment has here."""
    offsets: list[int] = field(default_factory=list[int])
    envelopes: list[Envelope | _PlainEnvelope] = field(
        default_factory=list["Envelope | _PlainEnvelope"]
    )

    def shared(self, name: str) -> Any:
        """Return a column that all messages of a segment share."""
        values = pa.array([segment[name] for segment in self.segments])
        return values.take(pa.array(np.repeat(np.arange(len(self.counts)), self.counts)))

    def message_ids(self) -> list[str]:
        """Return the wire ids of the messages."""
        ids: list[str] = []
        for segment, count in zip(self.segments, self.counts, strict=True):
            offsets = self.offsets[len(ids) : len(ids) + count]
            ids += _message_ids(segment["partition_id"], offsets)
        return ids


def _message_ids(partition_id: int, offsets: list[int]) -> list[str]:
    if not offsets or offsets[0] | OFFSET_LOW_BITS != offsets[-1] | OFFSET_LOW_BITS:
        return [message_id(partition_id, offset) for offset in offsets]
    # Neighbours share the head of their ids, which is most of the work.
    head = message_id_head(partition_id, offsets[0]).decode()
    return [f"{head}{offset & OFFSET_LOW_BITS:012x}" for offset in offsets]


class Cutter:
    """Turns segments into record batches of a schema."""

    def __init__(
        self,
        schema: "StructType",
        shape: Shape,
        *,
        open_envelope: Open,
        taken_us: int | None,
        null_on_error: bool = False,
    ) -> None:
        """Prepare.

        Args:
            schema: The columns, as `check_schema` allows them.
            shape: Whose columns they are.
            open_envelope: Opens a sealed envelope.
            taken_us: What had expired at this moment is left out; None leaves nothing out.
            null_on_error: Payloads that do not fit their schema become null.

        Raises:
            InvalidColumns: The payload cannot be read as its column wants.
        """
        self._schema: Final = arrow_schema(schema)
        self._open: Final = open_envelope
        self._taken: Final = None if taken_us is None else _EPOCH + timedelta(microseconds=taken_us)
        columns = _KAFKA_COLUMNS if shape.kind == "kafka" else _SKEP_COLUMNS
        self._opens: Final = wants_payloads(schema)
        self._columns: Final[list[Column]] = [
            _parsed_payload(payload_decoder(each.dataType), null_on_error=null_on_error)
            if each.name == PAYLOAD and not is_carried(each.dataType)
            else columns[each.name]
            for each in schema.fields
        ]
        self._decode_plain: Final = msgspec.json.Decoder(list[_PlainEnvelope]).decode
        self._decode: Final = msgspec.json.Decoder(list[Envelope | None]).decode
        self._decode_raw: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
        self._decode_one: Final = msgspec.json.Decoder(Envelope).decode

    def cut(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield record batches of messages for batches of segments."""
        rows = Rows()
        for batch in batches:
            bodies = batch.column(batch.schema.get_field_index("body"))
            names = [name for name in batch.schema.names if name != "body"]
            for segment, body in zip(batch.select(names).to_pylist(), bodies, strict=True):
                self._add(rows, segment, body.as_buffer())
                if len(rows.offsets) >= ROWS_PER_BATCH:
                    yield self._finished(rows)
                    rows = Rows()
        if rows.offsets:
            yield self._finished(rows)

    def _add(self, rows: Rows, segment: dict[str, Any], body: Any) -> None:
        first = segment["first"]
        offsets: Iterable[int]
        try:
            envelopes = self._decode_plain(body)
            offsets = range(first, first + len(envelopes))
        except msgspec.ValidationError:
            envelopes, offsets = self._readable(first, body)
        rows.segments.append(segment)
        rows.counts.append(len(envelopes))
        rows.offsets.extend(offsets)
        rows.envelopes.extend(envelopes)

    def _readable(self, first: int, body: Any) -> tuple[list[Envelope], list[int]]:
        """Leave out what is deleted or expired, and open what is sealed."""
        kept: list[Envelope] = []
        offsets: list[int] = []
        stored = self._decode_raw(body)
        for index, envelope in enumerate(self._decode(body)):
            if envelope is None or self._has_expired(envelope):
                continue
            if envelope.enc is not None and self._opens:
                envelope = self._decode_one(self._open(bytes(stored[index])))  # noqa: PLW2901
            kept.append(envelope)
            offsets.append(first + index)
        return kept, offsets

    def _has_expired(self, envelope: Envelope) -> bool:
        return (
            self._taken is not None
            and envelope.expires_at is not None
            and datetime.fromisoformat(envelope.expires_at) <= self._taken
        )

    def _finished(self, rows: Rows) -> Any:
        arrays = [
            as_type(column(rows), each.type)
            for column, each in zip(self._columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def wants_payloads(schema: "StructType") -> bool:
    """Tell whether a schema asks for what is in the messages; all the rest needs no key."""
    return not {PAYLOAD, "value"}.isdisjoint(schema.names)


def as_type(values: Any, wanted: Any) -> Any:
    """Return a column in the type that Spark wants."""
    if isinstance(values, list):
        return pa.array(values, wanted)
    if values.type == wanted:
        return values
    if pa.types.is_binary(values.type) and pa.types.is_string(wanted):
        return values.view(wanted)  # JSON was checked to be UTF-8 when it was pushed
    return values.cast(wanted)


def _payload_bytes(rows: Rows) -> list[int]:
    return [
        payload_bytes(bytes(each.data), is_sealed=each.enc is not None) for each in rows.envelopes
    ]


def _payload_text(rows: Rows) -> Any:
    return pa.array([bytes(envelope.data) for envelope in rows.envelopes], pa.binary())


def _parsed_payload(decode: Callable[[bytes], Any], *, null_on_error: bool) -> Column:
    def parse(rows: Rows, number: int) -> Any:
        try:
            return decode(bytes(rows.envelopes[number].data))
        except ValueError as error:
            if null_on_error:
                return None
            name = rows.envelopes[number].transaction_id
            raise malformed_payload(rows.message_ids()[number], name, error) from None

    return lambda rows: [parse(rows, number) for number in range(len(rows.envelopes))]


def malformed_payload(message_id: str, transaction_id: str, error: ValueError) -> MalformedPayload:
    """Say which message does not fit its schema, and why."""
    return MalformedPayload(
        f"message {message_id} (transaction id {transaction_id!r}) does not fit the schema of the "
        f"payload: {error}. Mend the schema, or set payloadErrors to null"
    )


Pairs = list[tuple[str, str | None]] | None
"""The headers of a message by name, as texts."""


def header_texts(rows: Rows) -> list[Pairs]:
    """Return the headers of the messages as texts."""
    return [_pairs(envelope.headers) for envelope in rows.envelopes]


def header_structs(headers: Iterable[Pairs]) -> list[list[dict[str, Any]] | None]:
    """Return headers as programs for Kafka expect them."""
    return [
        None
        if pairs is None
        else [{"key": key, "value": text and text.encode()} for key, text in pairs]
        for pairs in headers
    ]


def _pairs(headers: msgspec.Raw) -> Pairs:
    """Return headers as texts: strings as they are, numbers and booleans as JSON spells them."""
    if headers is _RAW_NULL:
        return None
    members = msgspec.json.decode(headers, type=dict[str, str | int | float | bool | None] | None)
    return members and [(name, _text(value)) for name, value in members.items()]


def _text(value: str | float | bool | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


_SKEP_COLUMNS: Final[dict[str, Column]] = {
    "queue": lambda rows: rows.shared("queue"),
    "partition": lambda rows: rows.shared("partition"),
    "offset": lambda rows: pa.array(rows.offsets, pa.int64()),
    "message_id": Rows.message_ids,
    "transaction_id": lambda rows: [each.transaction_id for each in rows.envelopes],
    PAYLOAD: _payload_text,
    PAYLOAD_BYTES: _payload_bytes,
    HEADERS: header_texts,
    "producer": lambda rows: [each.producer_sub for each in rows.envelopes],
    "trace_id": lambda rows: [each.trace_id for each in rows.envelopes],
    "created_at": lambda rows: rows.shared("created_at"),
    "xid": lambda rows: rows.shared("xid"),
}
_KAFKA_COLUMNS: Final[dict[str, Column]] = {
    "key": lambda rows: rows.shared("partition"),
    "value": _payload_text,
    "topic": lambda rows: rows.shared("queue"),
    "partition": lambda rows: rows.shared("partition_id"),
    "offset": _SKEP_COLUMNS["offset"],
    "timestamp": lambda rows: rows.shared("created_at"),
    "timestampType": lambda rows: pa.array(np.zeros(len(rows.offsets), np.int32)),
    HEADERS: lambda rows: header_structs(header_texts(rows)),
}
