"""Splits of a span: what one task of Spark reads, and how it reads it.

A split is small to describe, however much it is: two snapshots, two addresses and ids. It is
planned in the driver and read by an executor, maybe much later and more than once; what it brings
is the same each time. If segments vanish in between, the task notices by their number; a reader of
both tiers then looks for them in the archive.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import InputPartition

from skep.model.errors import NotFound
from skep.settings.fields import process_environment, usable_cores
from skep.spark.decode.payloads import is_carried, payload_decoder
from skep.spark.decode.segments import SegmentDecoder
from skep.spark.runtime.encryption_keys import lazy_key_ring
from skep.spark.runtime.postgres import database
from skep.spark.runtime.session import READING_CORES
from skep.spark.source.columns import PAYLOAD, check_schema, source_of
from skep.spark.source.message_log import MessageLog, Partitions, span_statement
from skep.spark.source.options import ReadOptions, Shape
from skep.spark.source.positions import (
    Address,
    Position,
    Span,
    joining_between,
    spans_between,
)
from skep.spark.source.standby import Written, database_to_read, written_by_primary
from skep.spark.source.tiered_log import NO_ARCHIVE, Boundary, TieredLog, storage_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from skep.spark.archive.erasures import LakeFile
    from skep.spark.archive.read import Choice
    from skep.spark.decode.messages import Open
    from skep.spark.decode.segments import Letter

WORTH_A_TASK: Final = 20_000
"""Messages below which a further task costs more than it saves."""
FAIR_ON_CLUSTER: Final = 100_000
"""Messages of a task where the number of cores is not known when tasks are planned."""

_NAMED: Final = {"queue", "partition", "created_at"}
"""The columns of `skep.read_span` that are read only if they are needed."""
BURY: Final = "select skep.bury_unreadable($1::text::json) as letters"
_ADDRESS: Final = ("xid", "partition_id", "first")


@dataclass
class ArchiveSplit(InputPartition):
    """What one task reads of the archive."""

    choice: "Choice"
    files: "tuple[LakeFile, ...]"


@dataclass
class LiveSplit(InputPartition):
    """What one task reads of the live log."""

    partitions: Partitions
    span: Span
    since_us: int | None
    taken_us: int
    segments: int
    written: Written | None = None
    """How far a standby must have come to be read; None to read the primary."""

    @property
    def name(self) -> str:
        """What to call it in a message to a person."""
        queues = ", ".join(self.partitions.queue_names)
        return f"queue {queues}, transactions {self.span.seen.xmin} to {self.span.upto.xmax - 1}"


class SplitReader:
    """Plans splits in the driver, and reads them in executors. It can be pickled."""

    def __init__(self, options: ReadOptions, shape: Shape, schema: "StructType") -> None:
        """Check the columns, before anything is read; raise `InvalidColumns`."""
        check_schema(schema, shape)
        for column in schema.fields:
            if column.name == PAYLOAD and not is_carried(column.dataType):
                payload_decoder(column.dataType)
        self._options: Final = options
        self._shape: Final = shape
        self._schema: Final = schema

    def plan(
        self, log: TieredLog, partitions: Partitions, start: Position, end: Position
    ) -> list[InputPartition]:
        """Divide what lies between two positions; raise `InvalidPosition` if out of order."""
        splits = self._divided(
            log, partitions, spans_between(start, end), start.since_us, end.taken_us
        )
        for joining, span in joining_between(start, end):
            added = log.still_there(joining.queues, joining.partitions)
            since_us = joining.wanted_from(start.since_us)
            splits += self._divided(log, added, [span], since_us, end.taken_us)
        return splits

    def _divided(
        self,
        log: TieredLog,
        partitions: Partitions,
        spans: Iterable[Span],
        since_us: int | None,
        taken_us: int,
    ) -> list[InputPartition]:
        def plan(boundaries: list[Boundary]) -> list[InputPartition]:
            splits: list[InputPartition] = []
            for span in spans:
                for boundary in boundaries:
                    splits += self._archived(log, boundary, span, since_us, taken_us)
                    splits += self._live(log, boundary, span, since_us, taken_us)
            return splits

        splits = log.settled(partitions, plan)
        live = [split for split in splits if isinstance(split, LiveSplit)]
        if live and (written := written_by_primary(self._options)) is not None:
            for split in live:
                split.written = written
        return splits

    def _live(
        self, log: TieredLog, boundary: Boundary, whole: Span, since_us: int | None, taken_us: int
    ) -> Iterable[InputPartition]:
        if self._options.tier == "archive":
            return []
        span, partitions = boundary.live(whole), boundary.partitions
        sizes = log.divide(span, partitions, since_us)
        if not sizes:
            return []
        share = self._share(sizes[0].messages)
        sizes = log.divide(span, partitions, since_us, share=share)
        parts = span.parts(size.last for size in sizes)
        return [
            LiveSplit(partitions, part, since_us, taken_us, size.segments)
            for part, size in zip(parts, sizes, strict=True)
        ]

    def _archived(
        self, log: TieredLog, boundary: Boundary, whole: Span, since_us: int | None, taken_us: int
    ) -> Iterable[InputPartition]:
        span = boundary.archived(whole)
        if span is None:
            return []
        choice = replace(log.choice(boundary, span, since_us), alive_at_us=self._alive_at(taken_us))
        files = log.lake_files(boundary, choice)
        share = self._share(sum(file.messages for file in files))
        return [ArchiveSplit(choice, group) for group in _grouped(files, share)]

    def _bury(self, letters: "list[Letter]") -> None:
        """Keep messages as dead letters; those that are already stay as they are."""
        if letters:
            options = self._options
            text = msgspec.json.encode(letters).decode()
            database(options.url, options.statement_timeout_s).rows(BURY, text)

    def _opener(self) -> "Open":
        keys = lazy_key_ring(self._options.encryption_keys, self._options.encryption_key_file)
        return lambda envelope: keys().open_envelope(envelope)

    def _alive_at(self, taken_us: int) -> int | None:
        return None if self._options.include_expired else taken_us

    def _share(self, messages: int) -> int:
        """Return how many messages a task should read of so many."""
        options = self._options
        cores = process_environment().get(READING_CORES)
        if options.min_partitions is not None:
            fair = math.ceil(messages / options.min_partitions)
        elif cores == "0":
            fair = FAIR_ON_CLUSTER
        else:
            fair = max(
                math.ceil(messages / (int(cores) if cores else usable_cores())), WORTH_A_TASK
            )
        return min(fair, options.messages_per_partition)

    def read(self, task: InputPartition) -> Iterator[Any]:
        """Yield the messages of a task; raise `DataLost` if segments were removed meanwhile."""
        if isinstance(task, LiveSplit):
            yield from self._read_live(task)
        elif isinstance(task, ArchiveSplit):
            yield from self._read_lake(task.files, task.choice)
        # Without any task Spark makes up one of its own, in which there is nothing.

    def _read_live(self, split: LiveSplit) -> Iterator[Any]:
        options = self._options
        decoder = SegmentDecoder(
            self._schema,
            self._shape,
            open_envelope=self._opener(),
            taken_us=self._alive_at(split.taken_us),
            payload_errors=options.payload_errors,
            bury=self._bury,
        )
        source = database_to_read(options, split.written)
        found = _Counted(
            source.stream(self._statement(split)), keeps_addresses=options.tier == "all"
        )
        yield from decoder.decode(found)
        lost = split.segments - found.rows
        if lost > 0 and options.tier == "all":
            recovered: set[Address] = set()
            yield from self._read_moved(split, frozenset(found.addresses), recovered)
            lost -= len(recovered)
        if lost > 0:
            MessageLog(options).report_loss(f"{lost} of {split.segments} segments of {split.name}")

    def _read_moved(
        self, split: LiveSplit, known: frozenset[Address], recovered: set[Address]
    ) -> Iterator[Any]:
        """Yield what was archived and deleted after it had been planned to be read here."""
        log = TieredLog(self._options)
        boundary = Boundary(split.partitions, NO_ARCHIVE)
        choice = replace(
            log.choice(boundary, split.span, split.since_us),
            alive_at_us=self._alive_at(split.taken_us),
            without=known,
        )
        try:
            files = log.lake_files(boundary, choice)
        except NotFound:
            return
        yield from self._read_lake(files, choice, recovered)

    def _read_lake(
        self, files: Iterable["LakeFile"], choice: "Choice", found: set[Address] | None = None
    ) -> Iterator[Any]:
        from skep.spark.archive.read import LakeReader  # noqa: PLC0415 (heavy, and an extra)
        from skep.spark.archive.storage import Storage  # noqa: PLC0415 (as above)

        options = self._options
        reader = LakeReader(
            self._schema,
            self._shape,
            open_envelope=self._opener(),
            payload_errors=options.payload_errors,
            bury=self._bury,
        )
        return reader.read(Storage(storage_of(options)), files, choice, found)

    def _statement(self, split: LiveSplit) -> str:
        needed = _NAMED & {source_of(name, self._shape) for name in self._schema.names}
        if self._options.payload_errors == "dead-letter":
            needed |= _NAMED
        return span_statement(
            split.span, split.partitions, needed, split.since_us, self._options.until_us
        )


class _Counted:
    """Record batches of segments on their way, counted, and their addresses kept if need be."""

    def __init__(self, batches: Iterable[Any], *, keeps_addresses: bool) -> None:
        self._batches: Final = batches
        self._keeps_addresses: Final = keeps_addresses
        self.rows = 0
        self.addresses: set[Address] = set()

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            self.rows += batch.num_rows
            if self._keeps_addresses:
                columns = [batch.column(name).to_pylist() for name in _ADDRESS]
                self.addresses.update(map(Address._make, zip(*columns, strict=True)))
            yield batch


def _grouped(files: Iterable["LakeFile"], share: int) -> Iterator["tuple[LakeFile, ...]"]:
    """Put files together until they hold about as many messages as a task should read."""
    group: list[LakeFile] = []
    messages = 0
    for file in files:
        if group and messages + file.messages > share:
            yield tuple(group)
            group, messages = [], 0
        group.append(file)
        messages += file.messages
    if group:
        yield tuple(group)
