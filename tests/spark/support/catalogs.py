"""A catalog of Iceberg without PostgreSQL, for tests that only look at tables."""

from contextlib import contextmanager

from pyiceberg.catalog.sql import SqlCatalog

from skep.spark.archive.lake import NAMESPACE, TABLE
from skep.spark.archive.schema import PARTITIONING, TABLE_SCHEMA


class LocalLake:
    """What the lake is to code that makes tables."""

    def __init__(self, directory):
        self.catalog = SqlCatalog("test", uri="sqlite://", warehouse=f"file://{directory}")
        self.catalog.create_namespace(NAMESPACE)
        self.catalog.create_table(TABLE, TABLE_SCHEMA, partition_spec=PARTITIONING)

    def table(self):
        return self.catalog.load_table(TABLE)

    def root(self, warehouse):
        del warehouse
        return self.table().location().rpartition("/")[0]

    def force(self, table):
        """Nothing needs to survive a crash."""


@contextmanager
def catalog_in(directory):
    lake = LocalLake(directory)
    try:
        yield lake
    finally:
        lake.catalog.engine.dispose()
