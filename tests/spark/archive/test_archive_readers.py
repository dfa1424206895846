"""The lake without Skep: any program that reads Parquet or Iceberg finds the messages."""

from urllib.parse import urlsplit

import duckdb
import polars
import pytest

from skep.spark.archive.compaction import CompactionPlan, compact_lake
from skep.spark.runtime.tasks import run_here
from tests.spark.support.archives import Shop


@pytest.fixture
def shop(database_url, tmp_path, writer):
    shop = Shop(database_url, tmp_path / "lake", writer)
    for number in range(3):
        shop.push_old({"amount": number}, partition=f"p{number}")
    shop.push_old({"amount": 100}, queue="other")
    shop.configure(queue="other", archive_after_s=3600)
    shop.archive(messages_per_task=1)
    return shop


@pytest.fixture(params=["as archived", "compacted"])
def paths(request, shop):
    """The files of the queue `orders`."""
    with shop.lake() as lake:
        if request.param == "compacted":
            compact_lake(lake, CompactionPlan(), run_here)
        return [urlsplit(file.address).path for file in lake.files("orders")]


def test_duckdb_reads_the_planned_files(paths):
    query = """
        select count(*), sum((payload->>'amount')::int), min(partition), max(created_at) < now()
        from read_parquet(?)
    """

    assert duckdb.execute(query, [paths]).fetchone() == (3, 3, "p0", True)


def test_polars_reads_the_planned_files_and_the_table(paths, shop, monkeypatch):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else it asks for a plugin
    frame = polars.read_parquet(paths)
    assert sorted(frame["partition"].to_list()) == ["p0", "p1", "p2"]

    with shop.lake() as lake:
        table = polars.scan_iceberg(lake.table())
        found = table.filter(polars.col("queue") == "other").select("payload").collect()
    assert found["payload"].to_list() == ['{"amount": 100}']


def test_a_catalog_of_iceberg_finds_the_table_by_its_name(shop, database_url):
    from pyiceberg.catalog import load_catalog

    uri = database_url.replace("postgresql://", "postgresql+psycopg://", 1)
    catalog = load_catalog("skep", type="sql", uri=f"{uri}?options=-csearch_path%3Dskep_lake")
    try:
        table = catalog.load_table("skep.messages")
        assert table.scan("queue = 'orders' and offset = 1").to_arrow().num_rows == 3
        assert [field.name for field in table.spec().fields] == ["queue", "created_at_day"]
    finally:
        catalog.engine.dispose()
