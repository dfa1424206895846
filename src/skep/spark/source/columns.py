"""The columns of the data source: their names and types, by shape.

Two shapes: Skep's own, and that of Spark's Kafka source, so that programs can be pointed from one
to the other. A schema given by the user picks columns and may say the type of the payload; what it
asks for in vain is refused here, before anything is read.
"""

from typing import TYPE_CHECKING, Final

from skep.model.errors import BadRequest
from skep.spark.decode.typed_columns import MISFIT, REST, Kind, ListKind
from skep.spark.source.options import Shape

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADERS: Final = "headers"
PAYLOAD: Final = "payload"
PAYLOAD_BYTES: Final = "payload_bytes"
CORRUPT_RECORD: Final = "_corrupt_record"
"""The payload as it was sent, where it does not fit the schema."""

SKEP_COLUMNS: Final = {
    "queue": "string",
    "partition": "string",
    "offset": "bigint",
    "message_id": "string",
    "transaction_id": "string",
    PAYLOAD: "string",
    HEADERS: "map<string,string>",
    "producer": "string",
    "trace_id": "string",
    "created_at": "timestamp",
    "xid": "bigint",
}
REQUESTED_COLUMNS: Final = {PAYLOAD_BYTES: "int", CORRUPT_RECORD: "string"}
"""Columns of Skep's shape that are served only if a schema names them."""
KAFKA_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "bigint",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
_KAFKA_SOURCES: Final = {
    "key": "partition",
    "value": PAYLOAD,
    "topic": "queue",
    "partition": "partition_id",
    "timestamp": "created_at",
    "timestampType": "offset",
}


class InvalidColumns(BadRequest):
    """The schema asks for what the data source does not have."""


def source_of(name: str, shape: Shape) -> str:
    """Return the column of messages that a column of a shape is made from."""
    return _KAFKA_SOURCES.get(name, name) if shape.kind == "kafka" else name


def schema_of(shape: Shape) -> str:
    """Return all columns of a shape, as Spark's DDL spells them."""
    columns = dict(_columns_of(shape))
    if shape.kind != "kafka":
        columns[PAYLOAD] = shape.payload
    if not shape.headers:
        del columns[HEADERS]
    return ", ".join(f"`{name}` {type_}" for name, type_ in columns.items())


def _columns_of(shape: Shape) -> dict[str, str]:
    if shape.kind == "kafka":
        return KAFKA_COLUMNS
    if shape.kind == "skep":
        return SKEP_COLUMNS
    return SKEP_COLUMNS | {name: _ddl_of(kind) for name, kind in own_columns(shape).items()}


def own_columns(shape: Shape) -> dict[str, Kind]:
    """Return the columns that a typed table has besides those of every message."""
    if shape.kind != "typed":
        return {}
    own: dict[str, Kind] = {REST: "string", MISFIT: "string"}
    own.update((each.name, each.kind) for each in shape.columns)
    return own


_SIMPLE: Final = {"long": "bigint", "json": "string"}


def _ddl_of(kind: Kind) -> str:
    if isinstance(kind, str):
        return _SIMPLE.get(kind, kind)
    if isinstance(kind, ListKind):
        return f"array<{_ddl_of(kind.element)}>"
    return f"struct<{','.join(f'{name}:{_ddl_of(each)}' for name, each in kind.members)}>"


def check_schema(schema: "StructType", shape: Shape) -> None:
    """Raise `InvalidColumns` if a column does not exist or has another type."""
    columns = _columns_of(shape) | ({} if shape.kind == "kafka" else REQUESTED_COLUMNS)
    for field in schema.fields:
        if field.name not in columns:
            raise InvalidColumns(
                f"there is no column {field.name!r}; the columns are {', '.join(columns)}"
            )
        wanted = field.dataType.simpleString()
        if field.name != PAYLOAD and wanted != columns[field.name]:
            raise InvalidColumns(
                f"the column {field.name!r} is of type {columns[field.name]}, not {wanted}"
            )
    if not schema.fields:
        raise InvalidColumns(f"the schema is empty; the columns are {', '.join(columns)}")
