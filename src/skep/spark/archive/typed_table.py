"""The Iceberg table of a queue with `lakeTable: typed`, beside the table of all queues.

It has the columns that every message has, under the same ids of fields, and those that the JSON
Schema asks for. What they are made from is a property of the table, so that the next schema goes
on from there. Files carry the ids of fields: a column that was renamed or widened since is found in
old files by its id, by readers of Iceberg and by ours.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import pyarrow as _pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from skep.model.errors import NotFound
from skep.spark.archive.schema import (
    ARROW_SCHEMA,
    MEASURED,
    PARTITIONING,
    TABLE_PROPERTIES,
    TABLE_SCHEMA,
)
from skep.spark.decode.typed_columns import MISFIT, REST, Column, Columns, Kind, ListKind, evolved
from skep.spark.runtime.arrow import pa

if TYPE_CHECKING:
    from skep.spark.archive.erasures import LakeFile
    from skep.spark.archive.lake import Lake

_conversions: Final[Any] = _pyarrow  # it names types of PyArrow, which has none
QUEUES: Final = "queues"
"""The namespace of these tables; each has the name of its queue."""
RESULTS: Final = "pipelines"
"""The namespace of tables that pipelines write; see `skep.spark.archive.result_table`."""
RESERVED: Final = (*ARROW_SCHEMA.names, REST, MISFIT)
_COLUMNS: Final = "skep.columns"
_FIELD_ID: Final = b"PARQUET:field_id"
_FIRST_ID: Final = 1_000
"""Of fields that are new; the catalog gives out its own."""

_ICEBERG: Final[Mapping[str, IcebergType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "json": StringType(),
}
_ARROW: Final[Mapping[type[IcebergType], Any]] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    DateType: pa.date32(),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class TypedLayout:
    """What writers and readers of its files need to know of a table."""

    columns: Columns
    schema: Any
    """Of Arrow: all columns, with the ids of fields."""
    holds_messages: bool = True
    """Not results of a pipeline, which have columns of their own only."""

    @property
    def simple(self) -> list[str]:
        """The columns of its own that have least and greatest values in the files."""
        if not self.holds_messages:
            return [each.name for each in self.schema if not pa.types.is_nested(each.type)]
        kinds = {each.name: each.kind for each in self.columns}
        return [name for name, kind in kinds.items() if isinstance(kind, str) and kind != "json"]


def layout_of(table: Table) -> TypedLayout | None:
    """Return the layout of a table; None for the table of all queues, and for others."""
    stored = table.properties.get(_COLUMNS)
    is_result = table.name()[0] == RESULTS
    if stored is None and not is_result:
        return None
    columns: Columns = () if stored is None else msgspec.json.decode(stored, type=Columns)
    schema = pa.schema([_arrow_field(each) for each in table.schema().fields])
    return TypedLayout(columns, schema, holds_messages=not is_result)


def find_typed_table(lake: "Lake", queue: str) -> Table | None:
    """Return the table of a queue, if it has one."""
    try:
        return lake.catalog.load_table((QUEUES, queue))
    except NoSuchTableError:
        return None


def typed_tables(lake: "Lake") -> list[Table]:
    """Return the tables of all queues that have one."""
    return tables_of(lake, QUEUES)


def tables_of(lake: "Lake", namespace: str) -> list[Table]:
    """Return the tables of a namespace, by name."""
    try:
        names = lake.catalog.list_tables(namespace)
    except NoSuchNamespaceError:
        return []
    return [lake.catalog.load_table(name) for name in sorted(names)]


def ensure_typed_table(lake: "Lake", queue: str, json_schema: Any) -> Table:
    """Return the table of a queue as its schema wants it: made if it is new, evolved if it is not.

    To be called under the lock of the archive.
    """
    table = find_typed_table(lake, queue)
    if table is None:
        lake.catalog.create_namespace_if_not_exists(QUEUES)
        root = lake.root(None)
        catalog: Any = lake.catalog  # its signature names types of PyArrow
        made: Table = catalog.create_table(
            (QUEUES, queue),
            TABLE_SCHEMA,
            f"{root}/{QUEUES}/{directory_of(queue)}",
            PARTITIONING,
            properties={**_properties(), _COLUMNS: "[]"},
        )
        table = made
    stored = msgspec.json.decode(table.properties[_COLUMNS], type=Columns)
    wanted = evolved(stored, json_schema, RESERVED)
    if wanted != stored or REST not in table.schema().column_names:
        with table.transaction() as change:
            _evolve(change, stored, wanted)
            change.set_properties({_COLUMNS: msgspec.json.encode(wanted).decode()})
        lake.force(table)
    return table


def _evolve(change: Any, stored: Columns, wanted: Columns) -> None:
    """Rename columns, then add and widen others, in a transaction of a table."""
    renamed = [
        (old.name, new.name)
        for old, new in zip(stored, wanted, strict=False)  # columns are only ever added at the end
        if old.name != new.name
    ]
    if renamed:
        with change.update_schema() as update:
            for old, new in renamed:
                update.rename_column(old, new)
    with change.update_schema() as update:
        update.union_by_name(_schema_of(wanted))


def _schema_of(columns: Iterable[Column]) -> Schema:
    ids = count(_FIRST_ID)
    own = [(name, StringType()) for name in (REST, MISFIT)]
    typed = [(each.name, _iceberg_type(each.kind, ids)) for each in columns]
    return Schema(*(NestedField(next(ids), *each, required=False) for each in (*own, *typed)))


def _iceberg_type(kind: Kind, ids: Any) -> IcebergType:
    if isinstance(kind, str):
        return _ICEBERG[kind]
    if isinstance(kind, ListKind):
        return ListType(next(ids), _iceberg_type(kind.element, ids), element_required=False)
    return StructType(
        *(
            NestedField(next(ids), name, _iceberg_type(each, ids), required=False)
            for name, each in kind.members
        )
    )


def _properties() -> dict[str, str]:
    """Return the properties of a table: those of the other, with shorter statistics."""
    measured = {f"write.metadata.metrics.column.{name}": "full" for name in MEASURED}
    unmeasured = {f"write.metadata.metrics.column.{REST}": "none"}
    default = {"write.metadata.metrics.default": "truncate(16)"}
    return {**TABLE_PROPERTIES, **default, **measured, **unmeasured}


def directory_of(name: str) -> str:
    """Return the name of a directory: any file system takes it, and no other name has it."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _arrow_field(field: NestedField) -> Any:
    return _with_id(field.name, _arrow_type(field.field_type), field.field_id)


def _with_id(name: str, kind: Any, field_id: int, *, nullable: bool = True) -> Any:
    return pa.field(name, kind, nullable=nullable, metadata={_FIELD_ID: str(field_id).encode()})


def _arrow_type(kind: IcebergType) -> Any:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(each) for each in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(_with_id("element", _arrow_type(kind.element_type), kind.element_id))
    if isinstance(kind, MapType):
        return pa.map_(
            _with_id("key", _arrow_type(kind.key_type), kind.key_id, nullable=False),
            _with_id("value", _arrow_type(kind.value_type), kind.value_id),
        )
    return _ARROW[type(kind)] if type(kind) in _ARROW else _conversions.schema_to_pyarrow(kind)


def stored_names(file_schema: Any, wanted: Any) -> dict[str, str | None]:
    """Return how a file calls the columns of a schema: by their ids; None if it has one not."""
    by_id: dict[bytes, str] = {each.metadata[_FIELD_ID]: each.name for each in file_schema}
    return {each.name: by_id.get(each.metadata[_FIELD_ID]) for each in wanted}


def duckdb_statement(files: Iterable["LakeFile"]) -> str:
    """Return a query for DuckDB that finds the columns in all files, whatever they were called.

    Of files of a typed table; others are left out. Raises `NotFound` if there is none.
    """
    typed = [(each.address, each.layout) for each in files if each.layout is not None]
    if not typed:
        raise NotFound(
            "the queue has no files of a typed table: set its option lakeTable to typed, and run "
            "`skep archive run`"
        )
    _, layout = typed[0]
    columns = ", ".join(
        f"{int(each.metadata[_FIELD_ID])}: {{name: {_quoted(each.name)}, "
        f"type: {_quoted(_duckdb_type(each.type))}, default_value: null}}"
        for each in layout.schema
    )
    # DuckDB takes the addresses of local files without `file://`.
    places = ", ".join(_quoted(address.removeprefix("file://")) for address, _ in typed)
    return f"select * from read_parquet([{places}], schema = map {{{columns}}})"  # noqa: S608


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_DUCKDB: Final = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "varchar",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}


def _duckdb_type(kind: Any) -> str:
    if pa.types.is_struct(kind):
        members = (f"{json.dumps(each.name)} {_duckdb_type(each.type)}" for each in kind)
        return f"struct({', '.join(members)})"
    if pa.types.is_map(kind):
        return f"map({_duckdb_type(kind.key_type)}, {_duckdb_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{_duckdb_type(kind.value_type)}[]"
    return _DUCKDB[kind]
