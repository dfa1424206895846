"""Delete files in the table of the lake, as other programs that write Iceberg leave them."""

from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

from skep.spark.archive.erasures import planned_files


class _DeleteManifest(ManifestWriterV2):
    """pyiceberg writes manifests of data only."""

    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    def _manifests(self):
        added = _DeleteManifest(
            self._transaction.table_metadata.spec(),
            self._transaction.table_metadata.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )
        with added as writer:
            for file in self._added_data_files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return [writer.to_manifest_file(), *self._existing_manifests()]

    def _summary(self, snapshot_properties=None):
        self._added_data_files, added = [], self._added_data_files
        try:
            return super()._summary(snapshot_properties or {})
        finally:
            self._added_data_files = added


def delete_by_position(lake, payload, table=None, **columns):
    """Delete the rows with a payload as Trino and Spark do: by their positions in their files."""
    table = table or lake.table()
    for file in (each.file for each in planned_files(table)):
        with lake.storage.read(file.file_path) as opened:
            payloads = parquet.read_table(opened)["payload"].to_pylist()
        places = [place for place, each in enumerate(payloads) if each == payload]
        if places:
            rows = pa.table({"file_path": [file.file_path] * len(places), "pos": places})
            _add(lake, table, file, rows, DataFileContent.POSITION_DELETES, **columns)
            table = lake.catalog.load_table(table.name())


def delete_by_value(lake, queue, **values):
    """Delete rows of a queue as Flink does: by values of columns, without looking for them."""
    table = lake.table()
    file = next(each.file for each in planned_files(table) if each.file.partition[0] == queue)
    ids = [table.schema().find_field(name).field_id for name in values]
    rows = pa.table({name: [value] for name, value in values.items()})
    _add(lake, table, file, rows, DataFileContent.EQUALITY_DELETES, equality_ids=ids)


def _add(lake, table, file, rows, content, **columns):
    address = f"{table.location()}/data/deletes-{uuid4()}.parquet"
    with lake.storage.create(address) as stream:
        parquet.write_table(rows, stream)
        size = stream.tell()
    deletes = DataFile.from_args(
        content=content,
        file_path=address,
        file_format=FileFormat(columns.pop("file_format", "PARQUET")),
        partition=file.partition,
        record_count=rows.num_rows,
        file_size_in_bytes=size,
        **columns,
    )
    deletes.spec_id = file.spec_id
    with table.transaction() as change:
        _AddDeletes(Operation.DELETE, change, table.io).append_data_file(deletes).commit()
