"""The columns that a writer takes, and the types they may have."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import types as spark

from skep.spark.sink.json_rows import check_spellable
from skep.spark.source.columns import InvalidColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from skep.spark.sink.options import WriteOptions

QUEUE: Final = "queue"
PARTITION: Final = "partition"
PAYLOAD: Final = "payload"
TRANSACTION_ID: Final = "transaction_id"
HEADERS: Final = "headers"
DELIVER_AT: Final = "deliver_at"

WRITE_COLUMNS: Final = (QUEUE, PARTITION, PAYLOAD, TRANSACTION_ID, HEADERS, DELIVER_AT)

_HEADER_VALUES: Final = (spark.StringType, spark.BooleanType, spark.NumericType)


def check_write_schema(schema: "StructType", options: "WriteOptions") -> None:
    """Raise `InvalidColumns` if the rows of a DataFrame cannot become messages."""
    for field in schema.fields:
        if field.name not in WRITE_COLUMNS:
            raise InvalidColumns(
                f"there is no column {field.name!r} to write; the columns are "
                f"{', '.join(WRITE_COLUMNS)}. What belongs to the message goes into payload, for "
                "example select(struct('*').alias('payload'))"
            )
        _check_type(field.name, field.dataType)
    if PAYLOAD not in schema.names:
        raise InvalidColumns("there is no column payload to write")
    if QUEUE not in schema.names and options.queue is None:
        raise InvalidColumns("say where to write to, by the option queue or a column queue")


def _check_type(name: str, data_type: "DataType") -> None:
    if name == PAYLOAD:
        check_spellable(data_type)
        return
    wanted = "a string"
    fits = isinstance(data_type, (spark.StringType, spark.NullType))
    if name == DELIVER_AT:
        wanted, fits = "a timestamp", isinstance(data_type, (spark.TimestampType, spark.NullType))
    elif name == HEADERS:
        wanted = "a map of strings to strings, numbers or booleans"
        fits = isinstance(data_type, spark.NullType) or (
            isinstance(data_type, spark.MapType)
            and isinstance(data_type.keyType, spark.StringType)
            and isinstance(data_type.valueType, _HEADER_VALUES)
        )
    if not fits:
        raise InvalidColumns(
            f"the column {name!r} must be {wanted}, not {data_type.simpleString()}"
        )


def without_null_headers(frame: "DataFrame") -> "DataFrame":
    """Return a frame whose rows without headers have an empty map instead of a null.

    Spark asks before every row how large its batch has become. Arrow, to answer, goes through the
    rows of a column of maps since the last one that was not null: a batch of nulls takes the square
    of its rows, which was four fifths of a replay.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 (heavy, and an extra)

    types = {field.name: field.dataType for field in frame.schema.fields}
    headers = types.get(HEADERS)
    if not isinstance(headers, spark.MapType):
        return frame
    return frame.withColumn(HEADERS, f.coalesce(HEADERS, f.create_map().cast(headers)))
