"""Typed tables: what DuckDB, Polars and our readers find in them is what was sent."""

import json
from datetime import UTC, datetime

import duckdb
import polars
import pytest
from pyspark.errors import AnalysisException

from skep.spark.archive.compaction import CompactionPlan, compact_lake
from skep.spark.archive.read import ArchiveChanged
from skep.spark.archive.typed_table import duckdb_statement, find_typed_table
from skep.spark.runtime.tasks import run_here, run_on_spark
from skep.spark.source.arrow_reader import open_queue
from skep.spark.source.options import InvalidOption
from tests.spark.support.archives import Shop
from tests.spark.support.deletes import delete_by_position
from tests.spark.support.logs import envelope

FIRST = {
    "amount": {"type": "integer", "format": "int32"},
    "shop": {"type": "string"},
    "at": {"type": "string", "format": "date-time"},
    "lines": {
        "type": "array",
        "items": {"type": "object", "properties": {"sku": {"type": "string"}}},
    },
    "offset": {"type": "integer"},
}
SECOND = FIRST | {
    "amount": {"type": "integer"},
    "branch": {"type": "string", "x-renamed-from": "shop"},
    "lines": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}},
        },
    },
    "offset": {"type": "string"},
    "paid": {"type": "boolean"},
}
del SECOND["shop"]

EARLY = [
    {"amount": 1, "shop": "north", "at": "2026-01-01T12:00:00+02:00", "offset": 7},
    {"amount": 2, "shop": None, "lines": [{"sku": "a"}, None], "note": {"free": [1, 2.50]}},
    {"amount": "many"},
    ["no object"],
    None,
]
LATE = [
    {"amount": 3_000_000_000, "branch": "south", "lines": [{"sku": "b", "count": 2}], "paid": True},
    {"amount": 4, "shop": "west", "offset": "eight"},
]
SEEN = [
    (1, "north", 7, None, None, None, None),
    (2, None, None, None, None, '{"note":{"free": [1, 2.5]}}', None),
    (None, None, None, None, None, '{"amount":"many"}', "amount: Expected `int | null`, got `str`"),
    (None, None, None, None, None, '["no object"]', "the payload: Expected `object`, got `array`"),
    (None, None, None, None, None, "null", "the payload: Expected `object`, got `null`"),
    (3_000_000_000, "south", None, None, True, None, None),
    (4, "west", None, "eight", None, None, None),
]
"""By column, see `QUERY`: what is in the typed table, of every message."""
QUERY = (
    "select amount, branch, offset_long, offset_string, paid, rest, misfit, payload from found"
    ' order by "offset"'
)


def configure(shop, properties, queue="orders"):
    schema = json.dumps({"type": "object", "properties": properties})
    shop.configure(queue, lake_table="typed", json_schema=schema)


@pytest.fixture
def shop(database_url, tmp_path, writer):
    return Shop(database_url, tmp_path / "lake", writer)


@pytest.fixture
def duck():
    """DuckDB without threads that would outlive the test."""
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.fixture
def changed_shop(shop):
    """A queue that was archived in part under one schema and in part under the next."""
    configure(shop, FIRST)
    shop.push_old(*EARLY)
    shop.archive()
    configure(shop, SECOND)
    shop.push_old(*LATE)
    shop.archive()
    return shop


def check(rows):
    assert [tuple(row[:-1]) for row in rows] == SEEN
    assert [json.loads(row[-1]) for row in rows] == [*EARLY, *LATE]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_duckdb_and_polars_agree_with_the_log_across_a_schema_change(
    changed_shop, is_compacted, duck, monkeypatch
):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else it asks for a plugin
    if is_compacted:
        with changed_shop.lake() as lake:
            compact_lake(lake, CompactionPlan(), run_here)

    with changed_shop.lake() as lake:
        table = find_typed_table(lake, "orders")
        assert len(lake.files("orders")) == (1 if is_compacted else 2)
        found = duck.sql(duckdb_statement(lake.plain_files("orders")))
        check(found.query("found", QUERY).fetchall())
        polar = polars.scan_iceberg(table).collect()
        check(polar.sql(QUERY.replace("found", "self")).rows())
        times = polar.sort("offset")["at"]
        assert times[0] == datetime(2026, 1, 1, 10, tzinfo=UTC)
        lines = polar.sort("offset")["lines"].to_list()
        assert lines[1] == [{"sku": "a", "count": None}, None]
        assert lines[5] == [{"sku": "b", "count": 2}]


def test_a_reader_of_both_tiers_finds_the_same_in_the_log_and_in_the_lake(changed_shop, duck):
    live = duck.from_arrow(open_queue("orders", changed_shop.url, tier="live"))
    check(live.query("found", QUERY).fetchall())

    changed_shop.read_all()
    changed_shop.archive()
    assert changed_shop.live() == []
    changed_shop.writer.push({"amount": 9, "branch": "east"})

    *archived, last = (
        duck.from_arrow(open_queue("orders", changed_shop.url)).query("found", QUERY).fetchall()
    )
    check(archived)
    assert last[:2] == (9, "east")
    assert len(changed_shop.rows(tier="all")) == len(SEEN) + 1


@pytest.mark.slow
def test_spark_reads_the_table_and_the_tail_as_one(changed_shop, spark):
    changed_shop.archive(run_on_spark(lambda: spark))
    changed_shop.writer.push({"amount": 9, "branch": "east"})
    with changed_shop.lake() as lake:
        compact_lake(lake, CompactionPlan(), run_here)  # so that one file has the present columns
        (file,) = lake.plain_files("orders")
    parts = QUERY.removesuffix(' from found order by "offset"').removeprefix("select ").split(", ")

    source = spark.read.format("skep").options(url=changed_shop.url, queue="orders")
    frame = source.options(shape="typed", tier="all").load().orderBy("offset")
    *archived, last = frame.selectExpr(*parts).collect()
    plain = spark.read.parquet(file.address).orderBy("offset").selectExpr(*parts).collect()

    check(archived)
    check(plain)
    assert last[:2] == (9, "east")
    assert frame.where("paid").count() == 1
    with pytest.raises(AnalysisException, match="queue nowhere does not exist"):
        spark.read.format("skep").options(
            url=changed_shop.url, queue="nowhere", shape="typed"
        ).load()


def test_what_was_archived_before_the_table_was_typed_has_columns_for_readers(shop):
    shop.push_old({"amount": 1})
    shop.archive()
    configure(shop, FIRST)
    shop.push_old({"amount": 2})
    shop.archive()
    shop.configure(lake_table="raw")
    shop.push_old({"amount": 3})
    shop.archive()

    rows = open_queue("orders", shop.url, tier="archive").read_all().sort_by("offset")

    assert rows["amount"].to_pylist() == [1, 2, 3]
    with shop.lake() as lake:
        assert find_typed_table(lake, "orders").scan().to_arrow()["amount"].to_pylist() == [2]
        assert len(lake.files("orders")) == 3


def test_a_reader_that_knows_a_column_by_its_former_name_is_told_to_start_again(shop):
    configure(shop, FIRST)
    shop.push_old(EARLY[0])
    shop.archive()
    begun = open_queue("orders", shop.url, tier="archive")
    configure(shop, SECOND)
    shop.archive()

    with pytest.raises(ArchiveChanged, match=r"no column shop any more.*Run the query again"):
        begun.read_all()


def test_rows_deleted_from_a_typed_table_stay_deleted(changed_shop):
    shop = changed_shop
    shop.read_all()
    with shop.lake() as lake:
        delete_by_position(lake, json.dumps(EARLY[0]), table=find_typed_table(lake, "orders"))

    def amounts():
        return open_queue("orders", shop.url, tier="archive").read_all()["amount"].to_pylist()

    assert 1 not in amounts()
    with shop.lake() as lake:
        compact_lake(lake, CompactionPlan(keep_s=0), run_here)
        assert len(lake.files("orders")) == 1
    assert 1 not in amounts()
    assert sorted(each for each in amounts() if each) == [2, 4, 3_000_000_000]


def test_nothing_of_a_run_counts_that_died_before_its_commit(shop):
    configure(shop, FIRST)
    shop.push_old({"amount": 1})

    def die(step):
        if step == "added":
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        shop.archive(on_step=die)
    with shop.lake() as lake:
        assert lake.files("orders") == []
    shop.archive()

    assert shop.left_over() == []
    assert open_queue("orders", shop.url, tier="archive").read_all()["amount"].to_pylist() == [1]


def test_sealed_payloads_stay_sealed_in_a_typed_table(shop):
    configure(shop, FIRST)
    past = "(clock_timestamp() - interval '2 hours')::text"
    shop.writer.value(f"select set_config('skep.fake_now', {past}, false)")
    shop.writer.push_envelopes(envelope("c2VhbGVk", encryption_key_id="k1"))
    shop.writer.value("select set_config('skep.fake_now', '', false)")
    shop.archive()

    with shop.lake() as lake:
        (row,) = find_typed_table(lake, "orders").scan().to_arrow().to_pylist()
    assert (row["payload"], row["key_id"], row["amount"]) == ('"c2VhbGVk"', "k1", None)
    assert (row["rest"], row["misfit"]) == (None, "the payload is encrypted")


def test_a_typed_reader_needs_one_queue_by_name(shop):
    with pytest.raises(InvalidOption, match="reads one queue"):
        shop.reader(queue=None, subscribe="orders,other", shape="typed")
