"""Frames as Spark's writer should get them, where we are the ones who make them."""

from typing import TYPE_CHECKING

from skep.spark.sink.columns import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def without_null_headers(frame: "DataFrame") -> "DataFrame":
    """Return a frame whose rows without headers have an empty map instead of a null.

    Spark asks before every row how large its batch has become. Arrow, to answer, goes through the
    rows of a column of maps since the last one that was not null: a batch of nulls takes the square
    of its rows, which was four fifths of a replay.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 (heavy, and an extra)
    from pyspark.sql.types import MapType  # noqa: PLC0415

    types = {field.name: field.dataType for field in frame.schema.fields}
    headers = types.get(HEADERS)
    if not isinstance(headers, MapType):
        return frame
    return frame.withColumn(HEADERS, f.coalesce(HEADERS, f.create_map().cast(headers)))
