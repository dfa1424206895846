"""Decode segments into rows: Arrow in, Arrow out.

Nearly all segments are regular: their messages are found in the bytes of a whole batch at once
(`skep.spark.decode.envelopes`). The others are decoded message by message
(`skep.spark.decode.messages`). Rows come in the order of the segments, and are the same both ways.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from skep.model.errors import Refused
from skep.spark.decode.envelopes import FoundMessages, find_envelopes
from skep.spark.decode.messages import EnvelopeDecoder, Open, Pairs
from skep.spark.decode.payloads import is_carried, payload_decoder
from skep.spark.decode.typed_rows import TypedRows
from skep.spark.runtime.arrow import arrow_schema, pa
from skep.spark.source.columns import HEADERS, PAYLOAD, own_columns, source_of
from skep.spark.source.options import Shape

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_PER_BATCH: Final = 8_192
"""Rows of a record batch at most."""
_IDS: Final = ("message_id", "transaction_id")
"""The columns by which a message is named to a person, should its payload be malformed."""


class MalformedPayload(Refused):
    """A payload does not fit the schema it is to be read by."""


class Messages(Protocol):
    """Messages of one tier, by column."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Any:
        """Return a column of the data source: an array, or a list of values."""
        ...


class RowMaker:
    """Turns messages into record batches of a schema."""

    def __init__(self, schema: "StructType", shape: Shape, *, null_on_error: bool = False) -> None:
        """Prepare; `schema` is one that `check_schema` allows for this shape.

        `null_on_error` turns payloads that do not fit their schema into null. Raises
        `InvalidColumns` if the payload cannot be read as its type.
        """
        self._schema: Final = arrow_schema(schema)
        self._sources: Final = [source_of(name, shape) for name in schema.names]
        self.typed: Final = set(own_columns(shape)).intersection(schema.names)
        """The wanted columns of a typed table, which are made from payloads."""
        self._rows: Final = TypedRows(shape.columns) if self.typed else None
        self._decoders: Final = {
            each.name: payload_decoder(each.dataType)
            for each in schema.fields
            if each.name == PAYLOAD and not is_carried(each.dataType)
        }
        self._is_kafka: Final = shape.kind == "kafka"
        self._null_on_error: Final = null_on_error
        self.opens: Final = PAYLOAD in self.sources
        """Whether the schema asks for what is in the messages; all the rest needs no key."""

    @property
    def sources(self) -> set[str]:
        """The columns of messages that it takes, those included that name them to a person."""
        return self.direct | ({PAYLOAD} if self.typed else set[str]())

    @property
    def direct(self) -> set[str]:
        """The columns it takes of messages that have those of a typed table."""
        return {*self._sources, *(_IDS if self._decoders else ())} - self.typed

    def rows(self, messages: Messages, *, is_typed: bool = False) -> Any:
        """Return messages as a record batch; `is_typed` if they have the columns of `typed`."""
        made = {} if is_typed else self._made(messages)
        arrays = [
            as_type(
                made[each.name] if each.name in made else self._column(messages, each.name, source),
                each.type,
            )
            for each, source in zip(self._schema, self._sources, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _made(self, messages: Messages) -> dict[str, list[Any]]:
        """Return the columns of a typed table for messages that do not have them."""
        if self._rows is None:
            return {}
        payloads = as_type(messages.column(PAYLOAD), pa.binary()).to_pylist()
        return self._rows.columns(payloads)

    def _column(self, messages: Messages, name: str, source: str) -> Any:
        if name in self._decoders:
            return self._parsed(messages, self._decoders[name])
        if name == "timestampType":
            return pa.array(np.zeros(len(messages), np.int32))
        values = messages.column(source)
        if name == HEADERS and self._is_kafka:
            listed = values.to_pylist() if hasattr(values, "to_pylist") else values
            return [_header_structs(pairs) for pairs in listed]
        return values

    def _parsed(self, messages: Messages, decode: Callable[[bytes], Any]) -> list[Any]:
        def parse(number: int, payload: bytes) -> Any:
            try:
                return decode(payload)
            except ValueError as error:
                if self._null_on_error:
                    return None
                # str gives the text, of a string as well as of a value of Arrow's.
                message_id, name = (str(messages.column(each)[number]) for each in _IDS)
                raise MalformedPayload(
                    f"message {message_id} (transaction id {name!r}) does not fit the schema of "
                    f"the payload: {error}. Fix the schema, or set payloadErrors to null"
                ) from None

        payloads = as_type(messages.column(PAYLOAD), pa.binary()).to_pylist()
        return [parse(number, payload) for number, payload in enumerate(payloads)]


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
        """Prepare; the arguments are those of `RowMaker` and `EnvelopeDecoder`."""
        self._maker: Final = RowMaker(schema, shape, null_on_error=null_on_error)
        self._decoder: Final = EnvelopeDecoder(
            open_envelope=open_envelope if self._maker.opens else None, taken_us=taken_us
        )

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
        found = self._maker.rows(FoundMessages(batch, spans))
        if is_regular.all():
            return found
        irregular = np.flatnonzero(~is_regular)
        decoded = self._decoder.decode(batch.take(pa.array(irregular)))
        segments = np.concatenate([spans.segments, np.repeat(irregular, decoded.counts)])
        return _in_order([found, self._maker.rows(decoded)], segments)


def _in_order(batches: list[Any], segments: Any) -> Any:
    """Join the rows of regular and irregular segments in the order of their segments."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < len(batches):
        return filled[0] if filled else batches[0]
    order = np.argsort(segments, kind="stable")
    table = pa.Table.from_batches(batches).take(pa.array(order))
    return table.combine_chunks().to_batches()[0]


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


def _header_structs(pairs: Pairs) -> list[dict[str, Any]] | None:
    """Return headers as programs for Kafka expect them."""
    if pairs is None:
        return None
    return [{"key": key, "value": text and text.encode()} for key, text in pairs]
