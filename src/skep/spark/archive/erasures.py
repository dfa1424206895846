"""Rows that other programs deleted from the table of the lake, which must stay deleted.

Programs that write Iceberg delete rows in one of two ways. They write the files without the rows
(copy-on-write), or they add a delete file that says which rows of other files count no more
(merge-on-read): by their positions in a file, or by values of columns. `planned_files` finds the
delete files of each file, `Erased` leaves their rows out; compaction makes it final.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.types import LongType

from skep.model.errors import Refused
from skep.spark.archive.schema import XID_FIELD, parquet
from skep.spark.archive.storage import Storage
from skep.spark.archive.typed_table import TypedLayout, layout_of
from skep.spark.runtime.arrow import pa

_PATH: Final = "file_path"
_POSITION: Final = "pos"


class UnreadableErasure(Refused):
    """A delete file is of a kind that cannot be applied."""


class Erasure(NamedTuple):
    """A delete file."""

    address: str
    columns: tuple[str, ...] = ()
    """It deletes rows with equal values in these; without any, rows by their positions."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file of the table, as the catalog describes it."""

    address: str
    messages: int
    bytes: int
    xid_min: int
    xid_max: int
    erasures: tuple[Erasure, ...] = ()
    layout: TypedLayout | None = None
    """None for the table of all queues."""

    @property
    def order(self) -> tuple[int, int, str]:
        """Sorts files of a queue by the transactions of their messages."""
        return self.xid_min, self.xid_max, self.address


class PlannedFile(NamedTuple):
    """A file of the table as pyiceberg has it, and what was deleted from it since."""

    file: DataFile
    erasures: tuple[Erasure, ...]
    layout: TypedLayout | None

    def described(self) -> LakeFile:
        """Return what readers of messages need to know of it."""
        file, xids = self.file, (0, 0)
        if self.layout is None or self.layout.holds_messages:
            bounds = (file.lower_bounds or {})[XID_FIELD], (file.upper_bounds or {})[XID_FIELD]
            low, high = (int(from_bytes(LongType(), bound)) for bound in bounds)
            xids = low, high
        return LakeFile(
            file.file_path,
            file.record_count,
            file.file_size_in_bytes,
            *xids,
            self.erasures,
            self.layout,
        )


def planned_files(table: Table, *filters: Any) -> list[PlannedFile]:
    """Return the files of the present snapshot in which wanted rows may be.

    pyiceberg plans no table that has deletes by value; its parts do all there is to do. Raises
    `UnreadableErasure` if a delete file is of a format that is not read here.
    """
    scan = table.scan()
    for each in filters:
        scan = scan.filter(each)
    snapshot = scan.snapshot()
    if snapshot is None:
        return []
    layout = layout_of(table)
    planner = ManifestGroupPlanner(table.metadata, table.io, scan.row_filter)
    data: list[ManifestEntry] = []
    by_position, by_value = DeleteFileIndex(), list[ManifestEntry]()
    for entry in chain.from_iterable(planner.plan_manifest_entries(snapshot.manifests(table.io))):
        content = entry.data_file.content
        if content == DataFileContent.DATA:
            data.append(entry)
        elif content == DataFileContent.POSITION_DELETES:
            by_position.add_delete_file(entry, entry.data_file.partition)
        else:
            by_value.append(entry)
    return [
        PlannedFile(
            entry.data_file,
            tuple(
                sorted(
                    _erasure(table, delete)
                    for delete in (
                        *by_position.for_data_file(
                            entry.sequence_number or 0, entry.data_file, entry.data_file.partition
                        ),
                        *(each.data_file for each in by_value if _is_older(table, entry, each)),
                    )
                )
            ),
            layout,
        )
        for entry in data
    ]


def _is_older(table: Table, entry: ManifestEntry, delete: ManifestEntry) -> bool:
    """Tell whether a delete by value is of the rows of a file: of older ones in its partition."""
    file, spec_id = entry.data_file, delete.data_file.spec_id
    is_global = table.specs()[spec_id].is_unpartitioned()
    is_of_partition = (spec_id, delete.data_file.partition) == (file.spec_id, file.partition)
    return (entry.sequence_number or 0) < (delete.sequence_number or 0) and (
        is_global or is_of_partition
    )


def _erasure(table: Table, delete: DataFile) -> Erasure:
    if delete.file_format != FileFormat.PARQUET:
        raise UnreadableErasure(
            f"rows of the archive were deleted by the file {delete.file_path}, which is not "
            "Parquet: let the program that wrote it rewrite the data files (rewrite_data_files), "
            "or delete by copy-on-write"
        )
    schema = table.schema()
    names = (schema.find_column_name(number) for number in delete.equality_ids or ())
    return Erasure(delete.file_path, tuple(name for name in names if name is not None))


class Erased:
    """The deleted rows of one file."""

    def __init__(self, storage: Storage, file: LakeFile) -> None:
        """Read its delete files."""
        self._positions: Final = [np.empty(0, np.int64)]
        self._values: Final[list[tuple[tuple[str, ...], set[tuple[Any, ...]]]]] = []
        for erasure in file.erasures:
            columns = list(erasure.columns or (_PATH, _POSITION))
            with storage.read(erasure.address) as opened:
                rows = parquet.read_table(opened, columns=columns)
            if erasure.columns:
                self._values.append((erasure.columns, set(_tuples(rows, columns))))
            else:
                paths = rows.column(_PATH).combine_chunks().cast(pa.string())
                here = rows.filter(pa.compute.equal(paths, file.address))
                self._positions.append(here.column(_POSITION).to_numpy())

    @property
    def columns(self) -> set[str]:
        """The columns it takes to decide."""
        return {name for columns, _ in self._values for name in columns}

    def kept(self, rows: Any, start: int) -> Any:
        """Tell for rows of the file, the first of which is at position `start`, which are left."""
        kept = np.ones(rows.num_rows, bool)
        for positions in self._positions:
            here = positions[(positions >= start) & (positions < start + rows.num_rows)]
            kept[here - start] = False
        for columns, values in self._values:
            found = _tuples(rows, columns)
            kept &= np.fromiter((each not in values for each in found), bool, rows.num_rows)
        return kept


def _tuples(rows: Any, columns: Iterable[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
