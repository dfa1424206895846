"""What a row of the lake is: the columns of the archive, for writers, readers and the catalog.

A row is a message with all that is needed to read it as if it were still in the log. `xid`,
`partition_id` and `segment_first` are the address of the segment it lay in, by which positions of
readers go. The payload of an encrypted message stays sealed: `key_id` names its key.
"""

from typing import Any, Final

from pyarrow import parquet as _parquet
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from skep.spark.runtime.arrow import pa

parquet: Final[Any] = _parquet
_HEADERS: Final = pa.map_(pa.string(), pa.string())
_MOMENT: Final = pa.timestamp("us", tz="UTC")

ARROW_SCHEMA: Final[Any] = pa.schema(
    [
        ("queue", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("message_id", pa.string()),
        ("transaction_id", pa.string()),
        ("payload", pa.string()),
        ("headers", _HEADERS),
        ("producer", pa.string()),
        ("trace_id", pa.string()),
        ("created_at", _MOMENT),
        ("expires_at", _MOMENT),
        ("key_id", pa.string()),
        ("xid", pa.int64()),
        ("queue_id", pa.int32()),
        ("partition_id", pa.int64()),
        ("segment_first", pa.int64()),
    ]
)
ADDRESS: Final = ("xid", "partition_id", "segment_first")
"""The columns that tell where the segment of a message lay, in the order of spans."""

MEASURED: Final = (
    *("queue", "partition", "offset", "transaction_id", "created_at", "expires_at"),
    *("key_id", "xid", "queue_id", "partition_id", "segment_first"),
)
"""Columns with least and greatest values in the files. Never the payload: it may be secret."""

REPEATED: Final = ("queue", "partition", "producer", "key_id")
"""Columns with few values, worth a dictionary."""

_TYPES: Final[dict[Any, Any]] = {
    # The ids of nested fields come after those of the columns.
    _HEADERS: MapType(101, StringType(), 102, StringType(), value_required=False),
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    _MOMENT: TimestamptzType(),
}

TABLE_SCHEMA: Final = Schema(
    *(
        NestedField(number, field.name, _TYPES[field.type], required=False)
        for number, field in enumerate(ARROW_SCHEMA, start=1)
    )
)

_IDS: Final = {field.name: field.field_id for field in TABLE_SCHEMA.fields}
XID_FIELD: Final = _IDS["xid"]

PARTITIONING: Final = PartitionSpec(
    PartitionField(_IDS["queue"], 1000, IdentityTransform(), "queue"),
    PartitionField(_IDS["created_at"], 1001, DayTransform(), "created_at_day"),
)

_UNMEASURED: Final = sorted({field.name for field in ARROW_SCHEMA} - {*MEASURED, "headers"})

TABLE_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.metrics.default": "full",
    **{
        f"write.metadata.metrics.column.{name}": "none"
        for name in (*_UNMEASURED, "headers.key", "headers.value")
    },
    "write.metadata.previous-versions-max": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.manifest-merge.enabled": "true",
}
