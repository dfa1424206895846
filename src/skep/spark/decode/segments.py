"""Decode segments into rows: Arrow in, Arrow out.

Nearly all segments are regular: their messages are found in the bytes of a whole batch at once
(`skep.spark.decode.envelopes`). The others are decoded message by message
(`skep.spark.decode.messages`). Rows come in the order of the segments, and are the same both ways.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from skep.model.errors import Refused
from skep.spark.decode.envelopes import FoundMessages, find_envelopes
from skep.spark.decode.messages import DecodedMessages, EnvelopeDecoder, Open, header_structs
from skep.spark.decode.payloads import is_carried, payload_decoder
from skep.spark.runtime.arrow import arrow_schema, pa
from skep.spark.source.columns import HEADERS, PAYLOAD, PAYLOAD_BYTES
from skep.spark.source.options import Shape

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_PER_BATCH: Final = 8_192
"""Rows of a record batch at most."""


class MalformedPayload(Refused):
    """A payload does not fit the schema it is to be read by."""

    code: ClassVar[str] = "malformed_payload"


Messages = FoundMessages | DecodedMessages
Column = Callable[[Messages], Any]


class SegmentDecoder:
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
        """Prepare; `schema` is one that `check_schema` allows for this shape.

        `null_on_error` turns payloads that do not fit their schema into null. The others are those
        of `EnvelopeDecoder`. Raises `InvalidColumns` if the payload cannot be read as its type.
        """
        self._schema: Final = arrow_schema(schema)
        self._decoder: Final = EnvelopeDecoder(
            open_envelope=open_envelope if wants_payloads(schema) else None, taken_us=taken_us
        )
        columns = _KAFKA_COLUMNS if shape.kind == "kafka" else _SKEP_COLUMNS
        self._columns: Final[list[Column]] = [
            _parsed_payload(payload_decoder(each.dataType), null_on_error=null_on_error)
            if each.name == PAYLOAD and not is_carried(each.dataType)
            else columns[each.name]
            for each in schema.fields
        ]

    def decode(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield record batches of messages for batches of segments."""
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = self._rows(batch)
            for start in range(0, rows.num_rows, ROWS_PER_BATCH):
                yield rows.slice(start, ROWS_PER_BATCH)

    def _rows(self, batch: Any) -> Any:
        firsts, lasts = (np.asarray(batch.column(name)) for name in ("first", "last"))
        spans, is_regular = find_envelopes(batch.column("body"), lasts - firsts + 1)
        found = self._as_record_batch(FoundMessages(batch, spans))
        if is_regular.all():
            return found
        irregular = np.flatnonzero(~is_regular)
        decoded = self._decoder.decode(batch.take(pa.array(irregular)))
        segments = np.concatenate([spans.segments, np.repeat(irregular, decoded.counts)])
        return _in_order([found, self._as_record_batch(decoded)], segments)

    def _as_record_batch(self, messages: Messages) -> Any:
        arrays = [
            as_type(column(messages), each.type)
            for column, each in zip(self._columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _in_order(batches: list[Any], segments: Any) -> Any:
    """Join the rows of regular and irregular segments in the order of their segments."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < len(batches):
        return filled[0] if filled else batches[0]
    order = np.argsort(segments, kind="stable")
    table = pa.Table.from_batches(batches).take(pa.array(order))
    return table.combine_chunks().to_batches()[0]


def wants_payloads(schema: "StructType") -> bool:
    """Tell whether a schema asks for what is in the messages; all the rest needs no key."""
    return not {PAYLOAD, "value"}.isdisjoint(schema.names)


def as_type(values: Any, wanted: Any) -> Any:
    """Return a column in the type that Spark wants."""
    if isinstance(values, list):
        return pa.array(values, wanted)
    if values.type == wanted:
        return values
    texts = {pa.string(), pa.binary()}
    if values.type in texts and wanted in texts:
        return values.view(wanted)  # JSON was checked to be UTF-8 when it was pushed
    return values.cast(wanted)


def _parsed_payload(decode: Callable[[bytes], Any], *, null_on_error: bool) -> Column:
    def parse(messages: Messages, number: int, payload: bytes) -> Any:
        try:
            return decode(payload)
        except ValueError as error:
            if null_on_error:
                return None
            # str gives the text, of a string as well as of a value of Arrow's.
            message_id = str(messages.message_ids()[number])
            name = str(messages.transaction_ids()[number])
            raise malformed_payload(message_id, name, error) from None

    def column(messages: Messages) -> list[Any]:
        payloads = as_type(messages.payloads(), pa.binary()).to_pylist()
        return [parse(messages, number, payload) for number, payload in enumerate(payloads)]

    return column


def malformed_payload(message_id: str, transaction_id: str, error: ValueError) -> MalformedPayload:
    """Say which message does not fit its schema, and why."""
    return MalformedPayload(
        f"message {message_id} (transaction id {transaction_id!r}) does not fit the schema of the "
        f"payload: {error}. Fix the schema, or set payloadErrors to null"
    )


_SKEP_COLUMNS: Final[dict[str, Column]] = {
    "queue": lambda messages: messages.shared("queue"),
    "partition": lambda messages: messages.shared("partition"),
    "offset": lambda messages: messages.offsets,
    "message_id": lambda messages: messages.message_ids(),
    "transaction_id": lambda messages: messages.transaction_ids(),
    PAYLOAD: lambda messages: messages.payloads(),
    PAYLOAD_BYTES: lambda messages: messages.payload_bytes(),
    HEADERS: lambda messages: messages.headers(),
    "producer": lambda messages: messages.producers(),
    "trace_id": lambda messages: messages.trace_ids(),
    "created_at": lambda messages: messages.shared("created_at"),
    "xid": lambda messages: messages.shared("xid"),
}
_KAFKA_COLUMNS: Final[dict[str, Column]] = {
    "key": lambda messages: messages.shared("partition"),
    "value": lambda messages: messages.payloads(),
    "topic": lambda messages: messages.shared("queue"),
    "partition": lambda messages: messages.shared("partition_id"),
    "offset": lambda messages: messages.offsets,
    "timestamp": lambda messages: messages.shared("created_at"),
    "timestampType": lambda messages: pa.array(np.zeros(len(messages), np.int32)),
    HEADERS: lambda messages: header_structs(messages.headers()),
}
