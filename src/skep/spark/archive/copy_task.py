"""Copy segments into files of the lake: what one task of an archive run does.

A task reads its split of the log and writes one Parquet file for each day in it. Names follow
from the run, the attempt and the number of the task, so that a task that is repeated writes over
what it had begun. Before a file gets its name the task asks whether its attempt still counts: one
that was given up, but lives on, must not touch what is in the catalog by then.

Deleted messages are left out. Expired ones are copied, and so are sealed ones, still sealed.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

from skep.model.errors import Refused
from skep.spark.archive.schema import ARROW_SCHEMA, MEASURED, REPEATED, parquet
from skep.spark.archive.storage import Storage
from skep.spark.archive.typed_table import TypedLayout
from skep.spark.decode.messages import DecodedMessages, EnvelopeDecoder, segments_and_bodies
from skep.spark.decode.segments import as_type
from skep.spark.decode.typed_rows import TypedRows
from skep.spark.runtime.arrow import pa
from skep.spark.runtime.postgres import Database, database
from skep.spark.source.message_log import Partitions, span_statement
from skep.spark.source.positions import Span

ROWS_PER_GROUP: Final = 65_536
"""Messages after which a file begins a new row group, about; readers skip whole ones."""
BYTES_PER_GROUP: Final = 64 << 20
COMPRESSION_LEVEL: Final = 3
STATEMENT_TIMEOUT_S: Final = 300.0

IS_ARCHIVING: Final = "select skep.is_archiving($1::text::uuid, $2::text::integer) as answer"


class AttemptIsOver(Refused):
    """Another process has taken the archive run over, or finished it."""


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A split of the log, and where to put it."""

    url: str
    storage: Mapping[str, str]
    run_id: str
    attempt: int
    address: str
    """How the addresses of its files begin."""
    queue_id: int
    span: Span
    layout: TypedLayout | None = None
    """Of the typed table they are for; None for the table of all queues."""


class Copied(NamedTuple):
    """What a task wrote."""

    files: tuple[str, ...] = ()
    messages: int = 0
    bytes: int = 0


def copy_split(task: CopyTask) -> Copied:
    """Copy a split of the log; raise `AttemptIsOver` if this attempt does not count any more."""
    source = database(task.url, STATEMENT_TIMEOUT_S)
    _require_attempt(source, task)
    partitions = Partitions((task.queue_id,), (), None)
    found = source.stream(
        span_statement(task.span, partitions, ("queue", "partition", "created_at"))
    )
    with writing(Storage(task.storage), task.layout) as files:
        for day, rows in rows_by_day(found, task.queue_id, task.layout):
            files.add(f"{task.address}-{day}.parquet", rows)
        copied = files.finish()
        _require_attempt(source, task)
    return copied


def _require_attempt(source: Database, task: CopyTask) -> None:
    (row,) = source.rows(IS_ARCHIVING, task.run_id, task.attempt)
    if not row["answer"]:
        raise AttemptIsOver(
            f"attempt {task.attempt} of archive run {task.run_id} is over: another process has "
            "taken the run over, or finished it"
        )


class FileSet:
    """Files in the making, by their addresses; they get their names when `writing` ends.

    Or when they are closed before, to have fewer of them open.
    """

    def __init__(self, storage: Storage, layout: TypedLayout | None, opened: ExitStack) -> None:
        self._storage, self._layout, self._opened = storage, layout, opened
        self._writers: Final[dict[str, FileWriter]] = {}
        self._ends: Final[dict[str, ExitStack]] = {}
        self._closed: Final[list[FileWriter]] = []

    def add(self, address: str, rows: Any) -> None:
        """Add a record batch or a table to a file."""
        if address not in self._writers:
            end = self._opened.enter_context(ExitStack())
            stream = end.enter_context(self._storage.create(address))
            writer = FileWriter(address, stream, self._layout)
            end.callback(writer.close)  # before its stream, also after a failure
            self._writers[address], self._ends[address] = writer, end
        self._writers[address].add(rows)
        writers = self._writers.values()
        if sum(writer.waiting_bytes for writer in writers) >= BYTES_PER_GROUP:
            max(writers, key=lambda writer: writer.waiting_bytes).write_group()

    def close(self, address: str) -> None:
        """Write the rest and the end of a file; nothing may be added to it any more."""
        writer = self._writers.pop(address)
        writer.finish()
        self._ends.pop(address).close()
        self._closed.append(writer)

    def finish(self) -> Copied:
        """Write the rest and the ends of the files; return what is in them."""
        for writer in self._writers.values():
            writer.finish()
        done = sorted([*self._closed, *self._writers.values()], key=lambda each: each.address)
        return Copied(
            tuple(writer.address for writer in done),
            sum(writer.messages for writer in done),
            sum(writer.bytes for writer in done),
        )


@contextmanager
def writing(storage: Storage, layout: TypedLayout | None) -> Generator[FileSet]:
    """Write files that exist only if the block ends well."""
    with ExitStack() as opened:
        yield FileSet(storage, layout, opened)


class FileWriter:
    """A Parquet file of the lake in the making, written to a stream of `Storage.create`."""

    def __init__(self, address: str, stream: Any, layout: TypedLayout | None = None) -> None:
        self.address: Final = address
        self.messages = 0
        self.bytes = 0
        self.waiting_bytes = 0
        """Of messages that are not written yet."""
        self._stream: Final = stream
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._file: Final[Any] = parquet.ParquetWriter(
            stream,
            ARROW_SCHEMA if layout is None else layout.schema,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=[*REPEATED, *(layout.simple if layout else ())],
            write_statistics=[*MEASURED, *(layout.simple if layout else ())],
        )

    def add(self, rows: Any) -> None:
        """Add a record batch or a table of messages."""
        self.messages += rows.num_rows
        self._waiting.append(rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows]))
        self._waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        if self._waiting_rows >= ROWS_PER_GROUP or self.waiting_bytes >= BYTES_PER_GROUP:
            self.write_group()

    def finish(self) -> None:
        """Write the rest and the end of the file; it gets its name when its stream is closed."""
        self.write_group()
        self.close()
        self.bytes = self._stream.tell()

    def close(self) -> None:
        """Write the end of the file as it is."""
        self._file.close()

    def write_group(self) -> None:
        """Write what waits, as a row group."""
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._file.write_table(table, row_group_size=table.num_rows)
            self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0


def rows_by_day(
    batches: Iterable[Any], queue_id: int, layout: TypedLayout | None = None
) -> Iterator[tuple[date, Any]]:
    """Yield the messages of segments as record batches of a table of the lake, each of one day."""
    typed = None if layout is None else TypedRows(layout.columns)
    schema = ARROW_SCHEMA if layout is None else layout.schema
    decoder = EnvelopeDecoder(open_envelope=None, taken_us=None)
    messages, size, day = DecodedMessages(), 0, date.min
    for batch in batches:
        for segment, body in segments_and_bodies(batch):
            segment_day = segment["created_at"].astimezone(UTC).date()
            is_full = len(messages) >= ROWS_PER_GROUP or size >= BYTES_PER_GROUP
            if len(messages) and (day != segment_day or is_full):
                yield day, lake_batch(messages, queue_id, schema, typed)
                messages, size = DecodedMessages(), 0
            day = segment_day
            decoder.add(messages, segment, body)
            size += len(body)
    if len(messages):
        yield day, lake_batch(messages, queue_id, schema, typed)


def lake_batch(
    messages: DecodedMessages, queue_id: int, schema: Any, typed: TypedRows | None
) -> Any:
    """Return messages as rows of a table of the lake."""
    own: dict[str, Any] = {
        "expires_at": [
            each.expires_at and datetime.fromisoformat(each.expires_at)
            for each in messages.envelopes
        ],
        "key_id": [each.enc for each in messages.envelopes],
        "queue_id": [queue_id] * len(messages),
        "segment_first": messages.column("first"),
    }
    if typed is not None:
        own |= typed.columns(
            None if each.enc is not None else bytes(each.data) for each in messages.envelopes
        )
    columns = (own[name] if name in own else messages.column(name) for name in schema.names)
    arrays = [as_type(*each) for each in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
