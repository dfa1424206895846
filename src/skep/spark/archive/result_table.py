"""Iceberg tables that pipelines write, in the catalog of the archive.

A table belongs to one query, and its properties say how far that has come: the number of the last
micro-batch whose rows are in it. Files and number change in one commit. Spark repeats a micro-batch
whose end it has not noted; the number shows that its rows are there. So nothing is there twice, and
nothing is missing. Files are never removed here: a process that lost the answer of its commit
cannot tell which ones the table has. Compaction removes the others when they are old.

The commit holds the lock of `Lake.transaction`, and the catalog takes it only if the table is the
one that was looked at. A process that was replaced finds another generation in the table than its
own: beginning anew makes the table anew.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final
from uuid import uuid4

import msgspec
from pyiceberg.exceptions import NoSuchTableError, ResolveError
from pyiceberg.io import pyarrow as _pyarrow
from pyiceberg.schema import promote
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from skep.model.errors import NotFound, Refused
from skep.spark.archive.copy_task import writing
from skep.spark.archive.erasures import LakeFile, planned_files
from skep.spark.archive.lake import Lake, without_erasures
from skep.spark.archive.storage import Storage
from skep.spark.archive.typed_table import RESULTS, TypedLayout, directory_of, layout_of
from skep.spark.runtime.arrow import pa

_conversions: Final[Any] = _pyarrow  # it names types of PyArrow, which has none
OWNER: Final = "skep.pipeline"
EPOCH: Final = "skep.epoch"
"""The last micro-batch that was committed."""
_GENERATION: Final = "skep.generation"

FILES_OPEN_MAX: Final = 64
"""Of a task; each takes memory and a place among the open files of the process."""
SNAPSHOTS_MAX: Final = 200
SNAPSHOTS_KEPT: Final = 100
"""Every commit goes through all of them, and there may be one a second."""

_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.metrics.default": "truncate(16)",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.manifest-merge.enabled": "true",
}


class TableTaken(Refused):
    """The table is not this query's, or holds what the query would write again."""


class UnfitForTable(Refused):
    """Results cannot be rows of the table."""


class ResultTable(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks and the driver need to know of a table that was opened for a run."""

    name: str
    pipeline: str
    generation: str
    location: str
    schema: bytes
    """Of Arrow: all columns, with the ids of fields."""
    partition_by: tuple[str, ...]

    @property
    def spelled(self) -> str:
        """As the text of an option."""
        return msgspec.json.encode(self).decode()

    @property
    def layout(self) -> TypedLayout:
        """What the writer of a file needs to know."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        return TypedLayout((), schema, holds_messages=False)


def open_result_table(
    lake: Lake,
    name: str,
    schema: Any,
    partition_by: Sequence[str],
    *,
    pipeline: str,
    warehouse: str | None,
    last_batch: int,
    is_reset: bool,
) -> ResultTable:
    """Return the table of a query; make it if the query begins, anew if it was reset.

    To be called under the lock of the pipeline. `schema` is Arrow's, `last_batch` the last
    micro-batch that the checkpoint knows of; it is below 0 if the query begins. Raises
    `TableTaken`, `UnfitForTable`, or `WrongWarehouse` if there is no place for it.
    """
    _require_columns(name, schema, partition_by)
    is_to_be_made = is_reset or last_batch < 0
    with lake.transaction():
        table = find_result_table(lake, name)
        if table is not None:
            _require_owner(lake, table, pipeline)
            if not is_reset:
                _require_checkpoint(table, pipeline, last_batch)
        elif not is_to_be_made:
            raise TableTaken(
                f"there is no table {name} in the catalog, but pipeline {pipeline} has run before: "
                "--reset makes the table from what the queues still have, and writes results to "
                f"queues a second time. If {name} was a directory of Parquet files, these are "
                "still there"
            )
        if table is not None and is_to_be_made:
            lake.catalog.drop_table((RESULTS, name))  # its files stay until they are old
            table = None
        if table is None:
            table = _made(lake, name, schema, partition_by, pipeline, warehouse)
    layout = _required_layout(table, schema, partition_by)
    return ResultTable(
        name=name,
        pipeline=pipeline,
        generation=table.properties[_GENERATION],
        location=table.location(),
        schema=layout.schema.serialize().to_pybytes(),
        partition_by=tuple(partition_by),
    )


def _require_columns(name: str, schema: Any, partition_by: Sequence[str]) -> None:
    """Raise `UnfitForTable` if a table cannot be partitioned by columns of the results."""
    if missing := [each for each in partition_by if each not in schema.names]:
        raise UnfitForTable(
            f"table {name} is to be partitioned by {', '.join(missing)}, which the results do not "
            f"have; they have {', '.join(schema.names)}"
        )
    # A value that is no number differs from itself, and Parquet has no statistics of it.
    if inexact := [each for each in partition_by if pa.types.is_floating(schema.field(each).type)]:
        raise UnfitForTable(
            f"table {name} cannot be partitioned by {', '.join(inexact)}, which is a float: cast "
            "it to a decimal or a string"
        )


def _required_layout(table: Table, schema: Any, partition_by: Sequence[str]) -> TypedLayout:
    """Return the layout of a table; raise `UnfitForTable` if the results have another one."""
    name, layout = ".".join(table.name()), layout_of(table)
    if layout is None or layout.schema.names != schema.names:
        raise UnfitForTable(
            f"table {name} has the columns {', '.join(table.schema().column_names)}, and the "
            f"results {', '.join(schema.names)}: --reset makes the table anew"
        )
    others = [
        f"{found.name} has the type {result.type} in the results and {found.type} in the table"
        for found, result in zip(layout.schema, schema, strict=True)
        if not _takes(table, result)
    ]
    if others:
        raise UnfitForTable(
            f"table {name} does not fit the results: {'; '.join(others)}. Cast the results, or "
            "--reset makes the table anew"
        )
    present = [str(table.schema().find_column_name(each.source_id)) for each in table.spec().fields]
    if set(present) != set(partition_by):
        raise UnfitForTable(
            f"table {name} is partitioned by {', '.join(present) or 'nothing'}, not by "
            f"{', '.join(partition_by) or 'nothing'}: write that as partitionBy, or --reset makes "
            "the table anew"
        )
    return layout


def _takes(table: Table, result: Any) -> bool:
    """Tell whether a column of a table takes the values of a result as they are."""
    stored = table.schema()
    try:
        (found,) = _conversions.pyarrow_to_schema(pa.schema([result]), stored.name_mapping).fields
        wanted = stored.find_type(result.name)
        return found.field_type == wanted or bool(promote(found.field_type, wanted))
    except (ValueError, ResolveError):
        return False


def require_place(lake: Lake, name: str, pipeline: str, warehouse: str | None) -> None:
    """Raise `TableTaken` or `WrongWarehouse` if a pipeline cannot make a table, or make it anew."""
    lake.root(warehouse)
    if table := find_result_table(lake, name):
        _require_owner(lake, table, pipeline)


def _require_owner(lake: Lake, table: Table, pipeline: str) -> None:
    """Raise `TableTaken` if a table is not of a pipeline of this database."""
    name, owner = ".".join(table.name()), table.properties.get(OWNER)
    if owner != pipeline:
        whose = "another program" if owner is None else f"pipeline {owner}"
        raise TableTaken(f"table {name} belongs to {whose}: choose another name")
    if lake.is_foreign(table):
        raise TableTaken(
            f"table {name} belongs to the server this database was restored from: choose another "
            "name, or run `select skep.forget_archive()` once to begin with no tables. After "
            "pg_upgrade run `skep adopt`"
        )


def _require_checkpoint(table: Table, pipeline: str, last_batch: int) -> None:
    """Raise `TableTaken` if a table is ahead of the checkpoint.

    What comes next would have numbers that the table has, and be skipped.
    """
    name, epoch = ".".join(table.name()), int(table.properties.get(EPOCH, -1))
    if epoch <= last_batch:
        return
    if last_batch < 0:
        raise TableTaken(
            f"table {name} has what pipeline {pipeline} wrote from another checkpoint: --reset "
            "makes it anew and writes it again"
        )
    raise TableTaken(
        f"table {name} has micro-batch {epoch} of pipeline {pipeline}, and the checkpoint knows "
        f"none after {last_batch}: it is an older copy. Restore the newer one, or --reset makes "
        "the table anew and writes it again"
    )


def _made(
    lake: Lake,
    name: str,
    schema: Any,
    partition_by: Sequence[str],
    pipeline: str,
    warehouse: str | None,
) -> Table:
    """Make a table without rows, in the transaction that is under way."""
    lake.catalog.create_namespace_if_not_exists(RESULTS)
    own = {OWNER: pipeline, _GENERATION: str(uuid4())}
    location = f"{lake.root(warehouse)}/{RESULTS}/{directory_of(name)}"
    catalog: Any = lake.catalog  # its signature names types of PyArrow
    try:
        table: Table = catalog.create_table(
            (RESULTS, name), schema, location, properties={**_PROPERTIES, **own}
        )
        if partition_by:
            with table.update_spec() as spec:
                for each in partition_by:
                    spec.add_identity(each)
    except (_pyarrow.UnsupportedPyArrowTypeException, ValueError, NotImplementedError) as error:
        raise UnfitForTable(
            f"the results cannot be a table of Iceberg: {error}. Cast the column to another type"
        ) from error
    lake.force(table)
    return table


def find_result_table(lake: Lake, name: str) -> Table | None:
    """Return a table that a pipeline writes, if there is one of that name."""
    try:
        return lake.catalog.load_table((RESULTS, name))
    except NoSuchTableError:
        return None


def result_files(lake: Lake, name: str) -> list[LakeFile]:
    """Return the files of a table, for programs that read them as they are.

    Raises `NotFound`, or `RowsDeleted` if they hold rows that another program deleted.
    """
    table = find_result_table(lake, name)
    if table is None:
        raise NotFound(f"there is no table {name} that a pipeline writes")
    return without_erasures([each.described() for each in planned_files(table)])


def spelled_table(text: str) -> ResultTable:
    """Read a table as `ResultTable.spelled` writes it."""
    return msgspec.json.decode(text, type=ResultTable)


def write_results(
    table: ResultTable, storage: Mapping[str, str], batches: Iterable[Any]
) -> tuple[str, ...]:
    """Write the rows of a task to files; return their addresses.

    Their names are new for every attempt of a task, so that one which was given up, but lives on,
    writes over nothing.
    """
    attempt, layout = f"{table.location}/data/{uuid4()}", table.layout
    numbers = count()
    under_way: dict[tuple[Any, ...], str] = {}
    with writing(Storage(storage), layout) as files:
        for batch in batches:
            rows = pa.Table.from_batches([batch]).cast(layout.schema)
            for key, part in _parts(rows, table.partition_by):
                address = under_way.pop(key, None) or f"{attempt}-{next(numbers):05d}.parquet"
                under_way[key] = address  # at the end: the first one has waited longest
                files.add(address, part)
                if len(under_way) > FILES_OPEN_MAX:
                    files.close(under_way.pop(next(iter(under_way))))
        return files.finish().files


def _parts(rows: Any, columns: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield rows by the values of some columns: a file is of one partition of the table."""
    if not columns:
        yield from [((), rows)] if rows.num_rows else []
        return
    places: dict[tuple[Any, ...], list[int]] = {}
    values = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
    for place, key in enumerate(values):
        places.setdefault(key, []).append(place)
    for key, found in places.items():
        yield key, rows.take(found)


def commit_epoch(lake: Lake, opened: ResultTable, epoch: int, files: Iterable[str]) -> bool:
    """Commit the files of a micro-batch; return False if that was done before.

    Raises `TableTaken` if the table was made anew since it was opened.
    """
    with lake.transaction():
        table = find_result_table(lake, opened.name)
        if table is None or table.properties.get(_GENERATION) != opened.generation:
            raise TableTaken(
                f"table {opened.name} was made anew by another run of pipeline {opened.pipeline}, "
                "which goes on instead of this one"
            )
        if epoch <= int(table.properties.get(EPOCH, -1)):
            return False
        notes = {OWNER: opened.pipeline, EPOCH: str(epoch)}
        lake.add(table, files, notes, {EPOCH: str(epoch)})
        _forget_snapshots(lake, table)
    return True


def _forget_snapshots(lake: Lake, table: Table) -> None:
    """Forget the oldest snapshots once there are many; compaction removes their files.

    Not those that compaction replaced: it keeps them, as long as it is told to, for their readers.
    """
    snapshots = table.metadata.snapshots
    rewrites = [
        each for each in snapshots if each.summary and each.summary.operation != Operation.APPEND
    ]
    kept = {number for each in rewrites for number in (each.snapshot_id, each.parent_snapshot_id)}
    # By their numbers, since clocks of other machines may differ.
    in_order = sorted(snapshots, key=lambda each: each.sequence_number or 0)
    appended = [each.snapshot_id for each in in_order if each.snapshot_id not in kept]
    if len(appended) > SNAPSHOTS_MAX:
        old = appended[:-SNAPSHOTS_KEPT]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        lake.force(table)
