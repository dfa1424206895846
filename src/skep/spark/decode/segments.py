"""Decode segments into rows: Arrow in, Arrow out.

Nearly all segments are regular: their messages are found in the bytes of a whole batch at once
(`skep.spark.decode.envelopes`). The others are decoded message by message
(`skep.spark.decode.messages`). Rows come in the order of the segments, and are the same both ways.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from skep.model.errors import Refused
from skep.spark.decode.envelopes import FoundMessages, find_envelopes
from skep.spark.decode.messages import EnvelopeDecoder, Open, Pairs
from skep.spark.decode.payloads import is_carried, payload_decoder
from skep.spark.decode.typed_rows import TypedRows
from skep.spark.runtime.arrow import arrow_schema, pa
from skep.spark.source.columns import CORRUPT_RECORD, HEADERS, PAYLOAD, own_columns, source_of
from skep.spark.source.options import PayloadErrors, Shape

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_PER_BATCH: Final = 8_192
"""Rows of a record batch at most."""
_IDS: Final = ("message_id", "transaction_id")
"""The columns by which a message is named to a person, should its payload be malformed."""
_LETTER: Final = (
    *("queue", "partition_id", "offset", "transaction_id", "created_at"),
    *("trace_id", "producer", "headers"),
)
"""The columns that a dead letter is made of."""
_IS_KEPT: Final = "is kept"

Letter: TypeAlias = dict[str, Any]
Bury: TypeAlias = Callable[[list[Letter]], None]
"""Keeps messages as dead letters."""


class MalformedPayload(Refused):
    """A payload does not fit the schema it is to be read by."""


class Messages(Protocol):
    """Messages of one tier, by column."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> Any:
        """Return a column of the data source: an array, or a list of values."""
        ...

    def envelope(self, number: int) -> bytes | None:
        """Return a message as it was stored; None where it still is."""
        ...


class RowMaker:
    """Turns messages into record batches of a schema."""

    def __init__(
        self,
        schema: "StructType",
        shape: Shape,
        *,
        payload_errors: PayloadErrors = "fail",
        bury: Bury | None = None,
    ) -> None:
        """Prepare; `schema` is one that `check_schema` allows for this shape.

        `payload_errors` says what becomes of messages whose payload does not fit its schema; `bury`
        takes those that are to be dead letters. Raises `InvalidColumns` if the payload cannot be
        read as its type.
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
        self._raises: Final = payload_errors == "fail" and CORRUPT_RECORD not in schema.names
        self._bury: Final = bury if payload_errors == "dead-letter" and self._decoders else None
        self.opens: Final = PAYLOAD in self.sources
        """Whether the schema asks for what is in the messages; all the rest needs no key."""

    @property
    def sources(self) -> set[str]:
        """The columns of messages that it takes, those included that name them to a person."""
        return self.direct | ({PAYLOAD} if self.typed else set[str]())

    @property
    def direct(self) -> set[str]:
        """The columns it takes of messages that have those of a typed table."""
        named = {*_IDS, PAYLOAD} if self._decoders else set[str]()
        buried = _LETTER if self._bury is not None else ()
        return {*self._sources, *named, *buried} - self.typed - {CORRUPT_RECORD}

    def rows(self, messages: Messages, *, is_typed: bool = False) -> Any:
        """Return messages as a record batch; `is_typed` if they have the columns of `typed`."""
        made = {} if is_typed else self._made(messages)
        parsed, problems = self._parsed(messages)
        made |= parsed
        arrays = [
            as_type(
                made[each.name] if each.name in made else self._column(messages, each.name, source),
                each.type,
            )
            for each, source in zip(self._schema, self._sources, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._bury is None:
            return batch
        self._bury(_letters(messages, problems))
        # They are left out when messages of several kinds are in order, see `kept`.
        is_kept = [number not in problems for number in range(len(messages))]
        return batch.append_column(_IS_KEPT, pa.array(is_kept, pa.bool_()))

    def kept(self, batch: Any) -> Any:
        """Return rows without those that became dead letters."""
        if self._bury is None:
            return batch
        return batch.filter(batch.column(_IS_KEPT)).drop_columns([_IS_KEPT])

    def _made(self, messages: Messages) -> dict[str, list[Any]]:
        """Return the columns of a typed table for messages that do not have them."""
        if self._rows is None:
            return {}
        payloads = as_type(messages.column(PAYLOAD), pa.binary()).to_pylist()
        return self._rows.columns(payloads)

    def _column(self, messages: Messages, name: str, source: str) -> Any:
        if name == "timestampType":
            return pa.array(np.zeros(len(messages), np.int32))
        values = messages.column(source)
        if name == HEADERS and self._is_kafka:
            listed = values.to_pylist() if hasattr(values, "to_pylist") else values
            return [_header_structs(pairs) for pairs in listed]
        return values

    def _parsed(self, messages: Messages) -> tuple[dict[str, list[Any]], dict[int, str]]:
        """Return what payloads are by their schema, and what is wrong with those that do not fit.

        Raises `MalformedPayload` if none may be.
        """
        if not self._decoders:
            return {CORRUPT_RECORD: [None] * len(messages)}, {}
        problems: dict[int, str] = {}

        def parse(number: int, payload: bytes) -> Any:
            try:
                return decode(payload)
            except ValueError as error:
                if self._raises:
                    raise self._malformed(messages, number, error) from None
                problems[number] = str(error)
                return None

        ((name, decode),) = self._decoders.items()
        payloads = as_type(messages.column(PAYLOAD), pa.binary()).to_pylist()
        found = [parse(number, payload) for number, payload in enumerate(payloads)]
        corrupt = [
            payload.decode() if number in problems else None
            for number, payload in enumerate(payloads)
        ]
        return {name: found, CORRUPT_RECORD: corrupt}, problems

    def _malformed(self, messages: Messages, number: int, error: ValueError) -> MalformedPayload:
        # str gives the text, of a string as well as of a value of Arrow's.
        message_id, name = (str(messages.column(each)[number]) for each in _IDS)
        return MalformedPayload(
            f"message {message_id} (transaction id {name!r}) does not fit the schema of the "
            f"payload: {error}. Fix the schema, or set payloadErrors to null or dead-letter"
        )


def _letters(messages: Messages, problems: Mapping[int, str]) -> list[Letter]:
    """Return what `skep.bury_unreadable` takes."""
    names = ("queue", "partition_id", "offset", "transaction_id", "created_at")
    columns = [messages.column(name) for name in names] if problems else []
    letters: list[Letter] = []
    for number, why in problems.items():
        queue, partition_id, offset, transaction_id, created_at = (
            str(column[number]) for column in columns
        )
        envelope = messages.envelope(number)
        letters.append(
            {
                "queue": queue,
                "partition_id": int(partition_id),
                "at": int(offset),
                "transaction_id": transaction_id,
                "created_at": created_at,
                "error": f"the payload does not fit the schema of a reader on Spark: {why}",
                "envelope": None if envelope is None else envelope.decode(),
            }
        )
    return letters


class SegmentDecoder:
    """Turns segments into record batches of a schema."""

    def __init__(
        self,
        schema: "StructType",
        shape: Shape,
        *,
        open_envelope: Open,
        taken_us: int | None,
        payload_errors: PayloadErrors = "fail",
        bury: Bury | None = None,
    ) -> None:
        """Prepare; the arguments are those of `RowMaker` and `EnvelopeDecoder`."""
        self._maker: Final = RowMaker(schema, shape, payload_errors=payload_errors, bury=bury)
        self._decoder: Final = EnvelopeDecoder(
            open_envelope=open_envelope if self._maker.opens else None, taken_us=taken_us
        )

    def decode(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield record batches of messages for batches of segments."""
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = self._maker.kept(self._rows(batch))
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
