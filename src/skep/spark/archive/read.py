"""Read messages from files of the lake, in the columns of the data source.

A span means here what it means in the log: rows carry the address of the segment they lay in, so a
reader finds the same messages between two positions whichever tier they are in. Files are chosen by
the catalog, row groups by their statistics, rows by the span.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skep.model.envelopes import build_envelope, cut_envelope
from skep.model.errors import Refused
from skep.spark.archive.erasures import Erased, LakeFile
from skep.spark.archive.schema import ADDRESS, parquet
from skep.spark.archive.storage import Storage
from skep.spark.archive.typed_table import TypedLayout, stored_names
from skep.spark.decode.messages import Open
from skep.spark.decode.payloads import payload_bytes
from skep.spark.decode.segments import ROWS_PER_BATCH, Bury, RowMaker, as_type
from skep.spark.runtime.arrow import pa
from skep.spark.source.columns import PAYLOAD, PAYLOAD_BYTES
from skep.spark.source.message_log import Size
from skep.spark.source.options import PayloadErrors, Shape
from skep.spark.source.positions import Address, Snapshot, Span

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ArchiveChanged(Refused):
    """A file of the archive is gone."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages of the lake a reader wants."""

    queue_ids: tuple[int, ...]
    partition_ids: tuple[int, ...] | None
    span: Span
    since_us: int | None = None
    until_us: int | None = None
    alive_at_us: int | None = None
    """What had expired at this moment is left out; None leaves nothing out."""
    without: frozenset[Address] = frozenset()
    """Segments that the reader has already."""

    @property
    def columns(self) -> set[str]:
        """The columns it takes to decide."""
        columns = {*ADDRESS, "queue_id"}
        if self.since_us is not None or self.until_us is not None:
            columns.add("created_at")
        if self.alive_at_us is not None:
            columns.add("expires_at")
        return columns

    def mask(self, rows: Any) -> Any:
        """Tell for each row whether it is wanted."""
        xid, partition, first = (_numbers(rows, name) for name in ADDRESS)
        wanted = _seen(self.span.upto, xid) & ~_seen(self.span.seen, xid)
        wanted &= np.isin(_numbers(rows, "queue_id"), self.queue_ids)
        if self.partition_ids is not None:
            wanted &= np.isin(partition, self.partition_ids)
        if self.span.after is not None:
            wanted &= _is_behind((xid, partition, first), self.span.after)
        if self.span.through is not None:
            wanted &= ~_is_behind((xid, partition, first), self.span.through)
        return wanted & self._in_time(rows, len(xid)) & self._missing(xid, partition, first)

    def _in_time(self, rows: Any, count: int) -> Any:
        wanted = np.ones(count, bool)
        if self.since_us is not None:
            wanted &= _numbers(rows, "created_at") >= self.since_us
        if self.until_us is not None:
            wanted &= _numbers(rows, "created_at") < self.until_us
        if self.alive_at_us is not None:
            end = rows.column("expires_at").cast(pa.int64()).fill_null(np.iinfo(np.int64).max)
            wanted &= end.to_numpy(zero_copy_only=False) > self.alive_at_us
        return wanted

    def _missing(self, xid: Any, partition: Any, first: Any) -> Any:
        if not self.without:
            return np.ones(len(xid), bool)
        addresses = zip(xid.tolist(), partition.tolist(), first.tolist(), strict=True)
        return np.fromiter((each not in self.without for each in addresses), bool, len(xid))

    def may_be_in(self, xid_min: int, xid_max: int) -> bool:
        """Tell whether a row group with these transactions may hold wanted messages."""
        return xid_max >= self.span.seen.xmin and xid_min < self.span.upto.xmax


def _numbers(rows: Any, name: str) -> Any:
    return rows.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)


def _seen(snapshot: Snapshot, xid: Any) -> Any:
    return (xid < snapshot.xmax) & ~np.isin(xid, list(snapshot.in_progress))


def _is_behind(columns: tuple[Any, Any, Any], address: Address) -> Any:
    xid, partition, first = columns
    return (xid > address.xid) | (
        (xid == address.xid)
        & (
            (partition > address.partition_id)
            | ((partition == address.partition_id) & (first > address.first))
        )
    )


def wanted_rows(
    storage: Storage,
    files: Iterable[LakeFile],
    choice: Choice,
    columns: Iterable[str],
    found: set[Address] | None = None,
) -> Iterator[Any]:
    """Yield the wanted messages of files; raise `ArchiveChanged` if a file is gone.

    The segments that were found are put into `found`, also those of which all was deleted since.
    """
    for file in files:
        try:
            erased, opened = Erased(storage, file), storage.read(file.address)
        except FileNotFoundError:
            raise ArchiveChanged(
                f"the file {file.address} of the archive was removed after this query had been "
                "planned: run the query again"
            ) from None
        read = sorted({*columns, *choice.columns, *erased.columns})
        with opened, parquet.ParquetFile(opened) as content:
            groups = _row_groups(content.metadata, choice)
            for position, batch in batches_of(content, groups, read, file.layout):
                mask = choice.mask(batch)
                if found is not None:
                    wanted = batch.filter(pa.array(mask))
                    found.update(address for address, _ in segments_of(wanted))
                mask &= erased.kept(batch, position)
                if mask.any():
                    yield batch if mask.all() else batch.filter(pa.array(mask))


def batches_of(
    file: Any,
    row_groups: Iterable[int],
    columns: Sequence[str],
    layout: TypedLayout | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield rows of a Parquet file with the position of the first, row group by row group.

    A batch across row groups could have any size: they are cut by bytes, and batches by rows.
    Columns of a typed table have their present names and types.
    """
    wanted = None if layout is None else pa.schema([layout.schema.field(each) for each in columns])
    stored = None if wanted is None else stored_names(file.schema_arrow, wanted)
    read = list(columns) if stored is None else [each for each in stored.values() if each]
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    for number in row_groups:
        position = sum(sizes[:number])
        for batch in file.iter_batches(ROWS_PER_BATCH, row_groups=[number], columns=read):
            yield position, batch if stored is None else _as_wanted(batch, stored, wanted)
            position += batch.num_rows


def _as_wanted(batch: Any, stored: Mapping[str, str | None], wanted: Any) -> Any:
    arrays = [
        pa.nulls(batch.num_rows, each.type)
        if (name := stored[each.name]) is None
        else as_type(batch.column(name), each.type)
        for each in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _row_groups(metadata: Any, choice: Choice) -> list[int]:
    # Nested columns come apart in a file; the name finds the right one.
    paths = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    number = paths.index("xid")
    chosen: list[int] = []
    for group in range(metadata.num_row_groups):
        bounds = metadata.row_group(group).column(number).statistics
        if bounds is None or choice.may_be_in(bounds.min, bounds.max):
            chosen.append(group)
    return chosen


class LakeReader:
    """Turns rows of the lake into record batches of a schema."""

    def __init__(
        self,
        schema: "StructType",
        shape: Shape,
        *,
        open_envelope: Open,
        payload_errors: PayloadErrors = "fail",
        bury: Bury | None = None,
    ) -> None:
        """Prepare; the arguments are those of `skep.spark.decode.segments.SegmentDecoder`."""
        self._maker: Final = RowMaker(schema, shape, payload_errors=payload_errors, bury=bury)
        self._open: Final = open_envelope if self._maker.opens else None

    def columns_of(self, file: LakeFile) -> set[str]:
        """Return the columns of a file that it needs; raise `ArchiveChanged` if one is gone."""
        sources = self._maker.sources
        if file.layout is not None:
            sources = self._maker.direct | self._maker.typed
            if renamed := self._maker.typed.difference(file.layout.schema.names):
                raise ArchiveChanged(
                    f"the typed table has no column {', '.join(sorted(renamed))} any more: the "
                    "schema of the queue renamed it after this query had begun. Run the query again"
                )
        has_payloads = not sources.isdisjoint((PAYLOAD, PAYLOAD_BYTES))
        return sources - {PAYLOAD_BYTES} | ({PAYLOAD, "key_id"} if has_payloads else set())

    def read(
        self,
        storage: Storage,
        files: Iterable[LakeFile],
        choice: Choice,
        found: set[Address] | None = None,
    ) -> Iterator[Any]:
        """Yield the wanted messages of files; for `found` see `wanted_rows`."""
        for file in files:
            is_typed = file.layout is not None
            for rows in wanted_rows(storage, [file], choice, self.columns_of(file), found):
                messages = _LakeMessages(rows, self._open)
                yield self._maker.kept(self._maker.rows(messages, is_typed=is_typed))


@dataclass(frozen=True, slots=True, eq=False)
class _LakeMessages:
    """Messages of the lake, by column."""

    rows: Any
    open: Open | None

    def __len__(self) -> int:
        return self.rows.num_rows

    def column(self, name: str) -> Any:
        """Return a column of the data source; payloads as they were sent, if they are opened."""
        if name == PAYLOAD and self.rows.column("key_id").null_count < len(self):
            return pa.array([payload for payload, _ in self._payloads()], pa.string())
        if name == PAYLOAD_BYTES:
            return [
                payload_bytes(payload.encode(), is_sealed=is_sealed)
                for payload, is_sealed in self._payloads()
            ]
        return self.rows.column(name)

    def envelope(self, number: int) -> bytes:
        """Return a message as it was stored: one that is sealed stays so."""
        (row,) = self.rows.slice(number, 1).to_pylist()
        key = row["key_id"]
        payload = row[PAYLOAD] if key is None else row[PAYLOAD][1:-1]
        return build_envelope(
            row["transaction_id"],
            payload.encode(),
            trace_id=row["trace_id"],
            producer=row["producer"],
            headers=None if row["headers"] is None else dict(row["headers"]),
            encryption_key_id=key,
        )

    def _payloads(self) -> Iterator[tuple[str, bool]]:
        """Yield payloads, and whether they are sealed still."""
        keys = self.rows.column("key_id").to_pylist()
        for key, payload in zip(keys, self.rows.column(PAYLOAD).to_pylist(), strict=True):
            if key is None or self.open is None:
                yield payload, key is not None
            else:
                envelope = build_envelope("", payload[1:-1].encode(), encryption_key_id=key)
                yield cut_envelope(self.open(envelope))[1].decode(), False


def segments_of(rows: Any) -> list[tuple[Address, int]]:
    """Return the segments that messages are of, and how many of each are there."""
    table = pa.Table.from_batches([rows.select(list(ADDRESS))])
    counted = table.group_by(list(ADDRESS)).aggregate([([], "count_all")]).to_pylist()
    return [(Address(*(row[name] for name in ADDRESS)), row["count_all"]) for row in counted]


LAST_OF_TRANSACTION: Final = 2**63 - 1


def segments_in_order(
    storage: Storage, files: Sequence[LakeFile], choice: Choice
) -> Iterator[Size]:
    """Yield the sizes of the wanted segments by address; files come by their first transaction.

    The log can be asked where a micro-batch of so many messages ends; files have to be read for it,
    but only their address columns, and only until enough was found. A segment lies in one file; it
    is yielded when no later file can hold an earlier one.
    """
    waiting: list[Size] = []
    for number, file in enumerate(files):
        for segment in _segments(storage, file, choice):
            heapq.heappush(waiting, segment)
        bound = files[number + 1].xid_min if number + 1 < len(files) else None
        while waiting and (bound is None or waiting[0].last.xid < bound):
            yield heapq.heappop(waiting)


def _segments(storage: Storage, file: LakeFile, choice: Choice) -> list[Size]:
    counts: Counter[Address] = Counter()
    for rows in wanted_rows(storage, [file], choice, ()):
        counts.update(dict(segments_of(rows)))
    message_bytes = file.bytes // max(file.messages, 1) + 1
    return [Size(address, 1, n, n * message_bytes) for address, n in counts.items()]


def whole_size(files: Sequence[LakeFile], choice: Choice) -> Size:
    """Return about how much files hold, without looking at them."""
    last_xid = min(max(file.xid_max for file in files), choice.span.upto.xmax - 1)
    return Size(
        Address(last_xid, LAST_OF_TRANSACTION, LAST_OF_TRANSACTION),
        len(files),
        sum(file.messages for file in files),
        sum(file.bytes for file in files),
    )
