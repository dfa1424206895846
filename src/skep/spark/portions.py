"""Portions of a span: what one task of Spark reads, and how it reads it.

A portion is small to describe, however much it is: two snapshots, two addresses and ids. It is
planned in the driver and read by an executor, maybe much later and more than once; what it brings
is the same each time. If segments vanish in between, the task notices by their number.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import InputPartition

from skep.settings import load_settings
from skep.settings.fields import usable_cores
from skep.settings.keys import encryption_keys
from skep.spark.columns import PAYLOAD, check_schema
from skep.spark.cutting import Cutter
from skep.spark.log import Lanes, Log, Size, span_arguments
from skep.spark.options import ReadOptions, Shape
from skep.spark.payloads import is_carried, payload_decoder
from skep.spark.positions import Position, Span, spans_between
from skep.spark.postgres import database

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

WORTH_A_TASK: Final = 20_000
"""Messages below which a further task costs more than it saves."""

_TYPES: Final = (
    "integer[]",
    "bigint[]",
    "pg_snapshot",
    "pg_snapshot",
    "bigint[]",
    "bigint[]",
    "timestamptz",
    "timestamptz",
)
"""Of the parameters of `skep.read_span`, in the order of `span_arguments`."""
_NEEDED: Final = {
    "queue": "queue",
    "topic": "queue",
    "partition": "partition",
    "key": "partition",
    "created_at": "created_at",
    "timestamp": "created_at",
}
"""The column of `skep.read_span` that a column of the data source needs, beyond the address."""


@dataclass
class Portion(InputPartition):
    """What one task reads."""

    lanes: Lanes
    span: Span
    since_us: int | None
    taken_us: int
    segments: int

    @property
    def name(self) -> str:
        """What to call it in a message to a person."""
        queues = ", ".join(self.lanes.queue_names)
        return f"queue {queues}, transactions {self.span.seen.xmin} to {self.span.upto.xmax - 1}"


class PortionReader:
    """Plans portions in the driver, and reads them in executors. It can be pickled."""

    def __init__(self, options: ReadOptions, shape: Shape, schema: "StructType") -> None:
        """Check the columns, before anything is read.

        Raises:
            InvalidColumns: There is no such column, or its type cannot be read.
        """
        check_schema(schema, shape)
        for column in schema.fields:
            if column.name == PAYLOAD and not is_carried(column.dataType):
                payload_decoder(column.dataType)
        self._options: Final = options
        self._shape: Final = shape
        self._schema: Final = schema

    def plan(self, log: Log, lanes: Lanes, start: Position, end: Position) -> list[InputPartition]:
        """Divide what lies between two positions.

        Raises:
            InvalidPosition: The one does not lead to the other.
        """
        portions: list[InputPartition] = []
        for span in spans_between(start, end):
            whole = log.divide(span, lanes, start.since_us)
            if whole:
                share = self._share(whole[0].messages)
                sizes = log.divide(span, lanes, start.since_us, share=share)
                portions += _portions(span, sizes, lanes, start.since_us, end.taken_us)
        return portions

    def _share(self, messages: int) -> int:
        """Return how many messages a task should read of so many."""
        options = self._options
        if options.min_partitions is not None:
            fair = math.ceil(messages / options.min_partitions)
        else:
            fair = max(math.ceil(messages / usable_cores()), WORTH_A_TASK)
        return min(fair, options.messages_per_partition)

    def read(self, portion: Portion) -> Iterator[Any]:
        """Yield the messages of a portion as record batches.

        Raises:
            DataLost: Segments were removed since it was planned.
        """
        options = self._options
        cutter = Cutter(
            self._schema,
            self._shape,
            open_envelope=_Keys(options).open_envelope,
            taken_us=None if options.include_expired else portion.taken_us,
            null_on_error=options.payload_errors == "null",
        )
        found = _Counted(
            database(options.url, options.statement_timeout_s).stream(self._statement(portion))
        )
        yield from cutter.cut(found)
        if found.rows < portion.segments:
            lost = portion.segments - found.rows
            Log(options).report_loss(f"{lost} of {portion.segments} segments of {portion.name}")

    def _statement(self, portion: Portion) -> str:
        arguments = span_arguments(
            portion.span, portion.lanes, portion.since_us, self._options.until_us
        )
        needed = {_NEEDED[name] for name in self._schema.names if name in _NEEDED}
        columns = ["s.xid::text::bigint as xid", "partition_id", "first", *sorted(needed), "body"]
        typed = [f"{_literal(text)}::{name}" for text, name in zip(arguments, _TYPES, strict=True)]
        return (
            f"select {', '.join(columns)} from skep.read_span({', '.join(typed)}) s"  # noqa: S608 (numbers and times that were spelled here)
            " order by s.xid, s.partition_id, s.first"
        )


class _Counted:
    """Record batches on their way, counted by rows."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches: Final = batches
        self.rows = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


class _Keys:
    """The encryption keys of a reader, looked for when the first sealed message comes."""

    def __init__(self, options: ReadOptions) -> None:
        self._options: Final = options
        self._ring: Any = None

    def open_envelope(self, envelope: bytes) -> bytes:
        if self._ring is None:
            self._ring = self._key_ring()
        return self._ring.open_envelope(envelope)

    def _key_ring(self) -> Any:
        from skep.model.encryption import KeyRing  # noqa: PLC0415 (needs a package of an extra)

        settings = load_settings().settings
        path = self._options.encryption_key_file
        if self._options.encryption_keys or path:
            settings = msgspec.structs.replace(
                settings,
                encryption_keys=self._options.encryption_keys,
                encryption_key_file=None if path is None else Path(path),
            )
        return KeyRing(encryption_keys(settings))


def _portions(
    span: Span, sizes: list[Size], lanes: Lanes, since_us: int | None, taken_us: int
) -> Iterator[Portion]:
    after = span.after
    for size in sizes:
        part = Span(span.seen, span.upto, after, size.last)
        yield Portion(lanes, part, since_us, taken_us, size.segments)
        after = size.last


def _literal(text: str | None) -> str:
    return "null" if text is None else "'" + text.replace("'", "''") + "'"
