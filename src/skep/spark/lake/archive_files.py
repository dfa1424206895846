"""Copy segments into files of the lake: what one task of an archive run does.

A task reads its portion of the log and writes one Parquet file for each day in it. Names follow
from the run, the attempt and the number of the task, so that a task that is repeated writes over
what it had begun. Before a file gets its name the task asks whether its attempt still counts: one
that was given up, but lives on, must not touch what is in the catalog by then.

Deleted messages are left out. Expired ones are copied, and so are sealed ones, still sealed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
from pyarrow import parquet as _parquet

from skep.model.errors import Refused
from skep.spark.decode.decoded_messages import Envelope, Rows
from skep.spark.lake.schema import ARROW_SCHEMA, MEASURED, REPEATED
from skep.spark.lake.storage import Storage
from skep.spark.runtime.arrow import pa
from skep.spark.runtime.postgres import Database, database
from skep.spark.source.log import Partitions, span_arguments
from skep.spark.source.positions import Span
from skep.spark.source.slices import span_statement

ROWS_PER_GROUP: Final = 65_536
"""Messages after which a file begins a new row group, about; readers skip whole ones."""
BYTES_PER_GROUP: Final = 64 << 20
COMPRESSION_LEVEL: Final = 3

IS_ARCHIVING: Final = "select skep.is_archiving($1::text::uuid, $2::text::integer) as answer"

parquet: Final[Any] = _parquet


class AttemptIsOver(Refused):
    """Somebody else has taken the archive run over, or finished it."""

    code: ClassVar[str] = "attempt_is_over"


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A portion of the log, and where to put it."""

    url: str
    statement_timeout_s: float
    storage: Mapping[str, str]
    run_id: str
    attempt: int
    directory: str
    number: int
    queue_id: int
    queue: str
    span: Span


class Copied(NamedTuple):
    """What a task wrote."""

    files: tuple[str, ...] = ()
    messages: int = 0
    bytes: int = 0


def copy_portion(task: CopyTask) -> Copied:
    """Copy a portion of the log.

    Raises:
        AttemptIsOver: This attempt does not count any more.
        SkepError: The database or the storage does not allow it.
    """
    source = database(task.url, task.statement_timeout_s)
    _require_attempt(source, task)
    partitions = Partitions((task.queue_id,), (task.queue,), None)
    bounds = span_arguments(task.span, partitions, None, None)
    found = source.stream(span_statement(bounds, ("queue", "partition", "created_at")))
    with ExitStack() as files:
        writers: dict[date, FileWriter] = {}
        for day, rows in rows_by_day(found, task.queue_id):
            if day not in writers:
                address = f"{task.directory}/{task.number:05d}-{day}.parquet"
                writers[day] = files.enter_context(FileWriter(address, Storage(task.storage)))
            writers[day].add(rows)
        for writer in writers.values():
            writer.finish()
        _require_attempt(source, task)
    done = sorted(writers.values(), key=lambda writer: writer.address)
    return Copied(
        tuple(writer.address for writer in done),
        sum(writer.messages for writer in done),
        sum(writer.bytes for writer in done),
    )


def _require_attempt(source: Database, task: CopyTask) -> None:
    (row,) = source.rows(IS_ARCHIVING, task.run_id, str(task.attempt))
    if not row["answer"]:
        raise AttemptIsOver(
            f"attempt {task.attempt} of archive run {task.run_id} is over: another process has "
            "taken the run over, or finished it"
        )


class FileWriter:
    """A Parquet file of the lake in the making."""

    def __init__(self, address: str, storage: Storage) -> None:
        self.address: Final = address
        self.messages = 0
        self.bytes = 0
        self._storage: Final = storage
        self._resources: Final = ExitStack()
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    def __enter__(self) -> "FileWriter":
        self._stream: Any = self._resources.enter_context(self._storage.create(self.address))
        self._file: Any = parquet.ParquetWriter(
            self._stream,
            ARROW_SCHEMA,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=list(REPEATED),
            write_statistics=list(MEASURED),
        )
        return self

    def __exit__(self, *failure: Any) -> bool | None:
        return self._resources.__exit__(*failure)

    def add(self, rows: Any) -> None:
        """Add a record batch or a table of messages."""
        self.messages += rows.num_rows
        self._waiting.append(rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows]))
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= ROWS_PER_GROUP or self._waiting_bytes >= BYTES_PER_GROUP:
            self._write_group()

    def finish(self) -> None:
        """Write the rest and the end of the file; it gets its name when the context ends."""
        self._write_group()
        self._file.close()
        self.bytes = self._stream.tell()

    def _write_group(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._file.write_table(table, row_group_size=table.num_rows)
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


@dataclass(slots=True)
class _DayRows(Rows):
    """Messages of one day that are not handed on yet."""

    day: date = field(default=date.min)


def rows_by_day(batches: Iterable[Any], queue_id: int) -> Iterator[tuple[date, Any]]:
    """Yield the messages of segments as record batches of the lake, each of one day."""
    decode = msgspec.json.Decoder(list[Envelope | None]).decode
    rows = _DayRows()
    for batch in batches:
        bodies = batch.column(batch.schema.get_field_index("body"))
        names = [name for name in batch.schema.names if name != "body"]
        for segment, body in zip(batch.select(names).to_pylist(), bodies, strict=True):
            day = segment["created_at"].astimezone(UTC).date()
            if rows.offsets and (rows.day != day or len(rows.offsets) >= ROWS_PER_GROUP):
                yield rows.day, lake_batch(rows, queue_id)
                rows = _DayRows()
            rows.day = day
            _add(rows, segment, decode(body.as_buffer()))
    if rows.offsets:
        yield rows.day, lake_batch(rows, queue_id)


def _add(rows: Rows, segment: dict[str, Any], envelopes: list[Envelope | None]) -> None:
    kept = [(number, each) for number, each in enumerate(envelopes) if each is not None]
    rows.segments.append(segment)
    rows.counts.append(len(kept))
    rows.offsets.extend(segment["first"] + number for number, _ in kept)
    rows.envelopes.extend(envelope for _, envelope in kept)


def lake_batch(rows: Rows, queue_id: int) -> Any:
    """Return messages as rows of the lake."""
    envelopes = rows.envelopes
    payloads = pa.array([bytes(each.data) for each in envelopes], pa.binary())
    columns: dict[str, Any] = {
        "queue": rows.shared("queue"),
        "partition": rows.shared("partition"),
        "offset": rows.offsets,
        "message_id": rows.message_ids(),
        "transaction_id": [each.transaction_id for each in envelopes],
        "payload": payloads.view(pa.string()),  # checked to be UTF-8 when it was pushed
        "headers": rows.headers(),
        "producer": [each.producer_sub for each in envelopes],
        "trace_id": [each.trace_id for each in envelopes],
        "created_at": rows.shared("created_at"),
        "expires_at": [_moment(each.expires_at) for each in envelopes],
        "key_id": [each.enc for each in envelopes],
        "xid": rows.shared("xid"),
        "queue_id": [queue_id] * len(envelopes),
        "partition_id": rows.shared("partition_id"),
        "segment_first": rows.shared("first"),
    }
    arrays = [
        pa.array(columns[each.name], each.type)
        if isinstance(columns[each.name], list)
        else columns[each.name].cast(each.type)
        for each in ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
