"""What is known of each hour, as tables of the lake.

One Iceberg table for each table of results in PostgreSQL, with a partition for each day, which is
one file. A day is written anew, as a whole, from what PostgreSQL has of it, in the transaction that
changed it there: both always say the same. PostgreSQL forgets after a while, the lake does not.

`tidy` removes what is obsolete: snapshots that are a day old with their files, and after three days
files that no snapshot ever knew, which a run that died has left behind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyiceberg.expressions import And
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)
from sqlalchemy import Connection, text

from skep.spark.analytics.hours import DAY, begin_of_day
from skep.spark.archive.erasures import planned_files
from skep.spark.archive.lake import NAMESPACE, ORPHAN_AGE, Lake, below, not_below
from skep.spark.archive.schema import parquet
from skep.spark.runtime.arrow import pa
from skep.telemetry.histograms import LAG_BOUNDS_MS, quantile

KEEP: Final = DAY
"""How long queries that were planned find what a later run has replaced."""
_NESTED_ID: Final = 100
"""Of what is in a list: any number that is no column's; the catalog gives out its own."""

Row = dict[str, Any]
_TYPES: Final[Mapping[str, tuple[IcebergType, Any]]] = {
    "time": (TimestamptzType(), pa.timestamp("us", tz="UTC")),
    "text": (StringType(), pa.string()),
    "count": (LongType(), pa.int64()),
    "number": (DoubleType(), pa.float64()),
    "counts": (
        ListType(_NESTED_ID, LongType(), element_required=False),
        pa.list_(pa.field("element", pa.int64())),  # as the catalog calls it
    ),
}
"""The types of columns by kind, for the catalog and for files."""


class HourlyTable(NamedTuple):
    """A table of the lake: what it is made from, and its columns by kind."""

    source: str
    """The table of `skep` that has the rows."""
    columns: Mapping[str, str]
    finish: Callable[[Row], Row] = lambda row: row
    """Turns a row of the source into one of this table."""

    @property
    def schema(self) -> Schema:
        """The columns, for the catalog."""
        return Schema(
            *(
                NestedField(number, name, _TYPES[kind][0], required=False)
                for number, (name, kind) in enumerate(self.columns.items(), start=1)
            )
        )

    def as_arrow(self, rows: Iterable[Row]) -> Any:
        """Return rows of the source as a table of Arrow."""
        schema = pa.schema([(name, _TYPES[kind][1]) for name, kind in self.columns.items()])
        return pa.Table.from_pylist([self.finish(row) for row in rows], schema=schema)


def with_latencies(row: Row) -> Row:
    """Add to a row of deliveries what its histogram says: estimates, within its bounds."""
    counts = row["lag_counts"]
    p50, p95, p99 = (
        quantile(LAG_BOUNDS_MS, counts, share, most=row["lag_ms_max"])
        for share in (0.5, 0.95, 0.99)
    )
    mean = row["lag_ms_sum"] / row["delivered"] if row["delivered"] else None
    return {**row, "lag_ms_mean": mean, "lag_ms_p50": p50, "lag_ms_p95": p95, "lag_ms_p99": p99}


_ADDRESS: Final = {"hour": "time", "queue": "text"}
_GROUP: Final = {**_ADDRESS, "group_name": "text"}

TABLES: Final = {
    "hourly_volume": HourlyTable(
        "analytics_volume",
        {
            **_ADDRESS,
            **dict.fromkeys(("messages", "bytes", "partitions", "busiest_messages"), "count"),
        },
    ),
    "hourly_keys": HourlyTable(
        "analytics_key",
        {**_ADDRESS, "kind": "text", "key": "text", "messages": "count", "bytes": "count"},
    ),
    "hourly_deliveries": HourlyTable(
        "analytics_delivery",
        {
            **_ADDRESS,
            **dict.fromkeys(("pushed", "delivered", "redelivered", "completed", "failed"), "count"),
            **dict.fromkeys(("lag_ms_mean", "lag_ms_p50", "lag_ms_p95", "lag_ms_p99"), "number"),
            "lag_ms_max": "count",
            "lag_counts": "counts",
        },
        with_latencies,
    ),
    "hourly_letters": HourlyTable(
        "analytics_letter",
        {
            **_GROUP,
            "cause": "text",
            **dict.fromkeys(("letters", "age_ms_p50", "age_ms_p95", "age_ms_max"), "count"),
        },
    ),
    "hourly_lags": HourlyTable(
        "analytics_lag",
        {
            **_GROUP,
            "samples": "count",
            "backlog_mean": "number",
            "backlog_max": "count",
            "lag_s_mean": "number",
            "lag_s_max": "count",
        },
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class AnalyticsLake:
    """The tables by hour, beside the archive."""

    lake: Lake
    warehouse: str | None
    """The place for files where there is no archive yet; None for none."""

    def ensure_tables(self) -> bool:
        """Make the tables that are missing; return whether there is a place for them."""
        catalog: Any = self.lake.catalog
        missing = [name for name in TABLES if not catalog.table_exists(f"{NAMESPACE}.{name}")]
        root = self._root(missing)
        if root is None:
            return False
        catalog.create_namespace_if_not_exists(NAMESPACE)
        for name in missing:
            schema = TABLES[name].schema
            catalog.create_table(
                f"{NAMESPACE}.{name}",
                schema,
                f"{root}/{name}",
                _BY_DAY,
                properties=_properties(schema),
            )
        return True

    def _root(self, missing: Sequence[str]) -> str | None:
        """Return where the tables lie: where others do, beside the archive, or where it would."""
        if others := [name for name in TABLES if name not in missing]:
            return self._table(others[0]).location().rpartition("/")[0]
        if self.warehouse is None and not self.lake.has_table():
            return None
        return f"{self.lake.root(self.warehouse)}/analytics"

    def write_day(self, connection: Connection, moment: datetime) -> None:
        """Write the day that a moment lies in anew, in the transaction that is under way."""
        day = begin_of_day(moment)
        for name, table in TABLES.items():
            # The name of a table of ours.
            rows = connection.execute(
                text(
                    f"select * from skep.{table.source} t "  # noqa: S608
                    "where t.hour >= :since and t.hour < :upto order by t"
                ),
                {"since": day, "upto": day + DAY},
            )
            self._replace_day(name, day, table.as_arrow(map(dict, rows.mappings())))

    def _replace_day(self, name: str, day: datetime, rows: Any) -> None:
        table = self._table(name)
        in_day = And(not_below("hour", day.isoformat()), below("hour", (day + DAY).isoformat()))
        old = [each.file for each in planned_files(table, in_day)]
        new: list[str] = []
        if rows.num_rows:
            new = [f"{table.location()}/data/{day:%Y-%m-%d}-{uuid4()}.parquet"]
            with self.lake.storage.create(new[0]) as stream:
                parquet.write_table(rows, stream, compression="zstd")
        if old or new:
            self.lake.replace(table, old, new)

    def _table(self, name: str) -> Table:
        return self.lake.catalog.load_table(f"{NAMESPACE}.{name}")

    def tidy(self, now: datetime | None = None) -> int:
        """Forget old snapshots and remove what no snapshot knows; return how many files went."""
        now = now or datetime.now(UTC)
        removed = 0
        for name in TABLES:
            if self.lake.is_foreign(self._table(name)):
                continue  # the server this database was restored from reads these files
            with self.lake.transaction():
                expired = self.lake.expire(self._table(name), now - KEEP)
            gone = expired.files.union(self.lake.orphans(self._table(name), now - ORPHAN_AGE))
            self.lake.storage.remove(gone)
            removed += len(gone)
        return removed


_BY_DAY: Final = PartitionSpec(PartitionField(1, 1000, DayTransform(), "hour_day"))


def _properties(schema: Schema) -> dict[str, str]:
    fresh = assign_fresh_schema_ids(schema)  # as the catalog does when it makes the table
    return {
        "write.parquet.compression-codec": "zstd",
        "write.metadata.previous-versions-max": "20",
        "commit.manifest-merge.enabled": "true",
        # Files carry no ids of fields: columns are found by their names.
        "schema.name-mapping.default": fresh.name_mapping.model_dump_json(),
    }
