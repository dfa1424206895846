"""Read a queue without Spark: as record batches of Arrow, for DuckDB, Polars and others.

The same reader and the same columns as in Spark, in this process and one task after the other. No
JVM is started.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import types as spark

from skep.spark.decode.typed_columns import Kind, ListKind
from skep.spark.runtime.arrow import arrow_schema, pa
from skep.spark.source.columns import SKEP_COLUMNS, own_columns
from skep.spark.source.options import read_options
from skep.spark.source.readers import SkepReader
from skep.spark.source.typed_shape import shape_of

_TYPES: Final[Mapping[str, spark.DataType]] = {
    "string": spark.StringType(),
    "bigint": spark.LongType(),
    "map<string,string>": spark.MapType(spark.StringType(), spark.StringType()),
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "double": spark.DoubleType(),
    "date": spark.DateType(),
    "timestamp": spark.TimestampType(),
    "json": spark.StringType(),
}


def open_queue(queue: str, url: str | None = None, **options: str) -> Any:
    """Return a `pyarrow.RecordBatchReader` of the messages of a queue, with typed columns.

    They come from the lake and from the live log, as one. `options` are those of the data source;
    what is not given is `shape=typed` and `tier=all`. The reader can be read once.
    """
    given = {"queue": queue, "shape": "typed", "tier": "all", **options}
    if url is not None:
        given["url"] = url
    shape = shape_of(given, read_options(given))
    columns = {name: _TYPES[kind] for name, kind in SKEP_COLUMNS.items()}
    columns |= {name: _type(kind) for name, kind in own_columns(shape).items()}
    schema = spark.StructType([spark.StructField(*each) for each in columns.items()])
    reader = SkepReader(given, schema)

    def batches() -> Iterator[Any]:
        for task in reader.partitions():
            yield from reader.read(task)

    return pa.RecordBatchReader.from_batches(arrow_schema(schema), batches())


def _type(kind: Kind) -> spark.DataType:
    if isinstance(kind, str):
        return _TYPES[kind]
    if isinstance(kind, ListKind):
        return spark.ArrayType(_type(kind.element))
    return spark.StructType([spark.StructField(name, _type(each)) for name, each in kind.members])
