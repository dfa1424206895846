"""PyArrow as everybody here imports it.

It has no types of its own; named `Any` once, it need not be excused at every use.
"""

from typing import TYPE_CHECKING, Any, Final

import pyarrow
from pyspark.sql.pandas import types

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

pa: Final[Any] = pyarrow
_conversions: Final[Any] = types


def arrow_schema(schema: "StructType") -> Any:
    """Return the schema that Spark expects of record batches, to the letter."""
    return _conversions.to_arrow_schema(schema, timezone="UTC")
