"""The other side of the comparison: Spark's JDBC source, with a message per row.

It gets what helps it: as many tasks as cores, large fetches, and inserts that the driver rewrites
into one statement of many rows. It is also measured as it comes: read by one task, because for more
the caller must name a column of numbers and its bounds, and written by a statement for each row,
because rewriting is a setting of the driver that Spark knows nothing of. The table has the columns
of a message and a key to split it by, as a queue needs to be read by; writing is also measured
without the key. Ids that are not given are made by PostgreSQL, which takes it longer than all the
rest: that is not what JDBC is to blame for, so writing is also measured with ids that Spark gives.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import asyncpg
import uvloop

from skep.spark.runtime.session import cores_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEBIAN_DRIVER: Final = Path("/usr/share/java/postgresql.jar")
"""Where the package libpostgresql-jdbc-java puts it."""
TABLE: Final = "public.plain_message"
FETCH_ROWS: Final = 10_000
INSERT_ROWS: Final = 10_000
_CREATE: Final = f"""
  drop table if exists {TABLE};
  create table {TABLE} (
    "offset" bigint generated always as identity,
    partition text not null,
    transaction_id text not null default gen_random_uuid()::text,
    payload text not null,
    created_at timestamptz not null default now()
  )
"""
_ADD_KEY: Final = f'alter table {TABLE} add primary key ("offset")'


def find_driver(chosen: Path | None) -> Path | None:
    """Return the jar of the driver; None if there is none."""
    driver = chosen or DEBIAN_DRIVER
    return driver if driver.is_file() else None


class JdbcTable:
    """A table of messages, written and read by Spark's JDBC source."""

    def __init__(self, spark: "SparkSession", url: str, insert_rows: int = INSERT_ROWS) -> None:
        self._spark: Final = spark
        self._insert_rows: Final = insert_rows
        self._url: Final = url
        parts = urlsplit(url)
        self._options: Final = {
            "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}",
            "user": parts.username or "",
            "password": parts.password or "",
            "driver": "org.postgresql.Driver",
            "dbtable": TABLE,
        }
        self._tasks: Final = cores_of(str(spark.sparkContext.master))

    def create(self, *, has_key: bool = True) -> None:
        """Begin with an empty table."""
        uvloop.run(self._execute(_CREATE))
        if has_key:
            uvloop.run(self._execute(_ADD_KEY))

    def write(self, rows: "DataFrame") -> None:
        """Append rows, many by each statement."""
        self._write(rows, batchsize=self._insert_rows, reWriteBatchedInserts="true")

    def write_as_it_comes(self, rows: "DataFrame") -> None:
        """Append rows without any help."""
        self._write(rows)

    def _write(self, rows: "DataFrame", **help_given: str | int) -> None:
        rows.write.format("jdbc").mode("append").options(**self._options, **help_given).save()

    def read(self, messages: int) -> None:
        """Read all rows by as many tasks as there are cores, and drop them."""
        self._read(
            partitionColumn="offset",
            lowerBound=0,
            upperBound=messages,
            numPartitions=self._tasks,
        )

    def read_by_one_task(self) -> None:
        """Read all rows without saying how to divide them, and drop them."""
        self._read()

    def _read(self, **division: str | int) -> None:
        # Without a size of fetches the driver would hold the whole table in memory.
        reader = self._spark.read.format("jdbc").options(
            **self._options, **division, fetchsize=FETCH_ROWS
        )
        reader.load().write.format("noop").mode("overwrite").save()

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
