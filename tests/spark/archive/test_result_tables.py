"""Tables that pipelines write: each micro-batch is in them once, whatever is repeated or reset."""

import threading
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from sqlalchemy import text

from skep.spark.archive import result_table
from skep.spark.archive.compaction import CompactionPlan, compact_lake
from skep.spark.archive.lake import LOCK_TABLES, ForeignArchive, Lake, WrongWarehouse
from skep.spark.archive.result_table import (
    TableTaken,
    UnfitForTable,
    commit_epoch,
    find_result_table,
    open_result_table,
    result_files,
)
from skep.spark.archive.storage import PARTIAL, Storage
from skep.spark.runtime.tasks import run_here
from skep.spark.sink.options import RESULT_TABLE
from skep.spark.sink.result_writer import ResultWriter, Written
from tests.spark.support.archives import Shop, files_below

LATER = timedelta(days=4)
SCHEMA = pa.schema([("shop", pa.string()), ("revenue", pa.int64())])


@pytest.fixture
def lake(database_url):
    with Lake(database_url, {}) as lake:
        yield lake


@pytest.fixture
def open_table(lake, tmp_path):
    """Open the table as a run of a pipeline does."""

    def open_table(schema=SCHEMA, partition_by=(), **choices):
        chosen = {"pipeline": "shops", "warehouse": str(tmp_path / "lake")}
        chosen |= {"last_batch": 99, "is_reset": False} | choices
        return open_result_table(lake, "revenue", schema, partition_by, **chosen)

    return open_table


def files_of(table, *rows, schema=SCHEMA):
    """Write rows as a task does; return the addresses of its files."""
    columns = [list(each) for each in zip(*rows, strict=True)]
    batch = pa.record_batch(columns, schema=schema)
    return writer_of(table).write(iter([batch])).files


def writer_of(table, url=""):
    """Return what writes in tasks and commits, as Spark makes it."""
    return ResultWriter({"url": url, RESULT_TABLE: table.spelled})


def rows_of(lake):
    found = find_result_table(lake, "revenue").scan().to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_a_repeated_micro_batch_adds_nothing(lake, open_table, database_url, tmp_path):
    table = open_table(last_batch=-1)

    assert commit_epoch(lake, table, 0, files_of(table, ("paris", 1)))
    assert commit_epoch(lake, table, 2, files_of(table, ("rome", 2)))
    reopened = open_table()
    for epoch in (0, 1, 2):
        writer = writer_of(reopened, database_url)
        batch = pa.record_batch([["rome"], [3]], schema=SCHEMA)
        writer.commit([writer.write(iter([batch])), Written(), None], epoch)

    assert rows_of(lake) == [("paris", 1), ("rome", 2)]
    assert len(parquet_below(tmp_path)) == 5
    assert len([each for each in lake.unreferenced() if "/data/" in each]) == 3
    snapshot = find_result_table(lake, "revenue").current_snapshot()
    assert snapshot.summary["skep.epoch"] == "2"
    assert snapshot.summary["skep.pipeline"] == "shops"


def test_a_commit_whose_outcome_was_lost_is_repeated_and_given_up_without_harm(
    lake, open_table, database_url
):
    writer = writer_of(open_table(last_batch=-1), database_url)
    written = writer.write(iter([pa.record_batch([["rome"], [3]], schema=SCHEMA)]))

    writer.commit([written], 0)
    writer.commit([written], 0)
    assert rows_of(lake) == [("rome", 3)]
    writer.abort([written], 0)

    assert rows_of(lake) == [("rome", 3)]


def test_a_commit_whose_session_ends_is_repeated_and_adds_its_rows_once(
    lake, open_table, database_url, writer
):
    sink = writer_of(open_table(last_batch=-1), database_url)
    written = sink.write(iter([pa.record_batch([["rome"], [3]], schema=SCHEMA)]))
    commit = threading.Thread(target=sink.commit, args=([written], 0))
    end_it = (
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'"
        " and query like 'UPDATE iceberg_tables%' and datname = current_database()"
    )

    with lake.connect() as holder, holder.begin():
        holder.execute(text("lock table skep_lake.iceberg_tables in share mode"))
        commit.start()
        while not writer.rows(end_it):
            assert commit.is_alive()
    commit.join()

    assert rows_of(lake) == [("rome", 3)]
    assert len(find_result_table(lake, "revenue").metadata.snapshots) == 1


def test_a_table_that_was_reset_is_empty_and_refuses_those_before(lake, open_table):
    before = open_table(last_batch=-1)
    commit_epoch(lake, before, 0, files_of(before, ("paris", 1)))
    other = pa.schema([("shop", pa.string()), ("revenue", pa.string())])

    after = open_table(other, last_batch=-1, is_reset=True)

    assert rows_of(lake) == []
    with pytest.raises(TableTaken, match="made anew by another run of pipeline shops"):
        commit_epoch(lake, before, 1, files_of(before, ("rome", 2)))
    assert commit_epoch(lake, after, 0, files_of(after, ("rome", "3"), schema=other))
    assert rows_of(lake) == [("rome", "3")]


def test_a_table_is_of_one_pipeline_and_one_checkpoint(lake, open_table, writer):
    with pytest.raises(TableTaken, match=r"no table revenue in the catalog.*are still there"):
        open_table()
    first = open_table(last_batch=-1)
    table = open_table(last_batch=-1)  # nothing was written: the run ended before its checkpoint
    assert table.generation != first.generation
    commit_epoch(lake, table, 0, files_of(table, ("paris", 1)))

    with pytest.raises(TableTaken, match="from another checkpoint: --reset"):
        open_table(last_batch=-1)
    with pytest.raises(TableTaken, match=r"pipelines\.revenue belongs to pipeline shops"):
        open_table(pipeline="others", last_batch=-1, is_reset=True)
    with pytest.raises(UnfitForTable, match="--reset makes the table anew"):
        open_table(pa.schema([("shop", pa.string())]))
    writer.execute("update skep.identity set server = skep.server_identity(), name = 'x'")
    with pytest.raises(TableTaken, match="the server this database was restored from"):
        open_table()
    assert rows_of(lake) == [("paris", 1)]


def test_a_checkpoint_that_is_behind_its_table_is_refused(lake, open_table):
    table = open_table(last_batch=-1)
    commit_epoch(lake, table, 7, files_of(table, ("paris", 1)))

    # What the older checkpoint would read again as micro-batch 7 might be more than the table has.
    with pytest.raises(TableTaken, match=r"micro-batch 7 of.*none after 6: it is an older copy"):
        open_table(last_batch=6)
    goes_on = open_table(last_batch=7)  # Spark has not noted its end, or there was nothing since
    assert not commit_epoch(lake, goes_on, 7, files_of(goes_on, ("rome", 2)))
    assert rows_of(lake) == [("paris", 1)]
    again = open_table(last_batch=6, is_reset=True)
    assert commit_epoch(lake, again, 0, files_of(again, ("rome", 2)))
    assert rows_of(lake) == [("rome", 2)]


def test_compaction_leaves_the_files_of_the_original_to_it(lake, open_table, tmp_path, writer):
    table = open_table(last_batch=-1)
    commit_epoch(lake, table, 0, files_of(table, ("paris", 1)))
    # The original goes on after the dump: what it writes is unknown to the catalog of the copy.
    files_of(table, ("rome", 2))
    before = files_below(tmp_path)
    writer.execute("update skep.identity set server = skep.server_identity(), name = 'x'")

    with pytest.raises(ForeignArchive, match="forget_archive"):
        compact_lake(lake, CompactionPlan(), run_here, now=lambda: datetime.now(UTC) + LATER)

    assert files_below(tmp_path) == before
    assert lake.unreferenced() != []


def test_a_table_needs_a_warehouse_columns_and_types_of_iceberg(lake, open_table):
    with pytest.raises(WrongWarehouse, match="There is no warehouse yet"):
        open_table(warehouse=None, last_batch=-1)
    with pytest.raises(UnfitForTable, match="partitioned by country, which the results do not"):
        open_table(partition_by=["country"], last_batch=-1)
    with pytest.raises(UnfitForTable, match="cannot be partitioned by share, which is a float"):
        open_table(pa.schema([("share", pa.float64())]), ["share"], last_batch=-1)
    with pytest.raises(UnfitForTable, match=r"cannot be a table of Iceberg.*Cast the column"):
        open_table(pa.schema([("took", pa.duration("us"))]), last_batch=-1)
    assert find_result_table(lake, "revenue") is None


def test_a_table_that_exists_is_partitioned_as_it_was_made(lake, open_table):
    open_table(partition_by=["shop"], last_batch=-1)

    with pytest.raises(UnfitForTable, match="is partitioned by shop, not by nothing: write that"):
        open_table()
    with pytest.raises(UnfitForTable, match="is partitioned by shop, not by shop, revenue"):
        open_table(partition_by=["shop", "revenue"])
    open_table(partition_by=["shop"])
    open_table(is_reset=True)
    assert not find_result_table(lake, "revenue").spec().fields


NESTED = pa.struct([("n", pa.int64())])


@pytest.mark.parametrize(
    ("stored", "given", "fits"),
    [
        (pa.int64(), pa.int32(), True),
        (pa.float64(), pa.float32(), True),
        (pa.decimal128(10, 2), pa.decimal128(8, 2), True),
        (NESTED, NESTED, True),
        (pa.list_(NESTED), pa.list_(NESTED), True),
        (pa.map_(pa.string(), NESTED), pa.map_(pa.string(), NESTED), True),
        (pa.int32(), pa.int64(), False),
        (pa.float32(), pa.float64(), False),
        (pa.string(), pa.int64(), False),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), False),
        (NESTED, pa.struct([("n", pa.string())]), False),
        (NESTED, pa.struct([("n", pa.int64()), ("more", pa.int64())]), False),
    ],
)
def test_results_of_another_type_are_refused_unless_the_table_takes_them_as_they_are(
    open_table, stored, given, fits
):
    open_table(pa.schema([("found", stored)]), last_batch=-1)

    if fits:
        open_table(pa.schema([("found", given)]))
    else:
        with pytest.raises(
            UnfitForTable, match=r"^table .*: found has the type \w+.* in the table"
        ):
            open_table(pa.schema([("found", given)]))


def test_files_are_of_one_partition_and_merged_in_it(lake, open_table):
    table = open_table(partition_by=["shop"], last_batch=-1)
    for epoch in (0, 1):
        rows = [("paris", epoch), (None, epoch), ("rome", epoch), ("paris", epoch)]
        commit_epoch(lake, table, epoch, files_of(table, *rows))
    before = rows_of_unsorted(lake)
    assert len(result_files(lake, "revenue")) == 6

    done = compact_lake(lake, CompactionPlan(), run_here)

    assert (done.files_before, done.files_after) == (6, 3)
    assert len(result_files(lake, "revenue")) == 3
    assert rows_of_unsorted(lake) == before
    # A run goes on in what was merged.
    assert not commit_epoch(lake, table, 1, files_of(table, ("rome", 9)))
    assert commit_epoch(lake, table, 2, files_of(table, ("rome", 9)))
    (found,) = find_result_table(lake, "revenue").scan("revenue = 9").to_arrow().to_pylist()
    assert found == {"shop": "rome", "revenue": 9}


def rows_of_unsorted(lake):
    found = find_result_table(lake, "revenue").scan().to_arrow().to_pylist()
    return sorted((row["shop"] or "", row["revenue"]) for row in found)


def test_a_task_keeps_few_files_open_however_many_partitions_there_are(
    lake, open_table, monkeypatch, tmp_path
):
    monkeypatch.setattr(result_table, "FILES_OPEN_MAX", 2)
    table = open_table(partition_by=["shop"], last_batch=-1)
    shops = ["paris", "rome", "oslo", "paris", "paris"]
    most = []

    def batches():
        for number, shop in enumerate(shops):
            yield pa.record_batch([[shop], [number]], schema=SCHEMA)
            most.append(len(list(tmp_path.rglob(f"*{PARTIAL}"))))

    files = writer_of(table).write(batches()).files

    assert max(most) == 2
    assert len(files) == 4  # one more of paris, whose first was closed for oslo
    commit_epoch(lake, table, 0, files)
    assert rows_of(lake) == [("oslo", 2), ("paris", 0), ("paris", 3), ("paris", 4), ("rome", 1)]


def test_tables_of_messages_and_of_results_do_not_mix(
    lake, open_table, database_url, tmp_path, writer
):
    shop = Shop(database_url, tmp_path / "lake", writer)
    shop.push_old(1, 2)
    shop.archive()
    table = open_table(last_batch=-1, warehouse=None)
    commit_epoch(lake, table, 0, files_of(table, ("paris", 1)))

    compact_lake(lake, CompactionPlan(), run_here)

    assert table.location.startswith(lake.table().location().removesuffix("/messages"))
    assert len(lake.files()) == 1
    assert shop.archived() == [1, 2]
    assert rows_of(lake) == [("paris", 1)]


def test_a_task_that_failed_or_has_no_rows_leaves_no_file(lake, open_table, tmp_path):
    table = open_table(last_batch=-1)
    batch = pa.record_batch([["paris"], [1]], schema=SCHEMA)

    def broken():
        yield batch
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        writer_of(table).write(broken())
    assert writer_of(table).write(iter([])).files == ()
    assert parquet_below(tmp_path) == []


def parquet_below(directory):
    return [each for each in files_below(directory) if each.endswith(".parquet")]


def test_old_snapshots_are_forgotten_and_their_rows_stay(lake, open_table, monkeypatch):
    monkeypatch.setattr(result_table, "SNAPSHOTS_MAX", 4)
    monkeypatch.setattr(result_table, "SNAPSHOTS_KEPT", 2)
    table = open_table(last_batch=-1)

    counts = []
    for epoch in range(6):
        commit_epoch(lake, table, epoch, files_of(table, ("paris", epoch)))
        counts.append(len(find_result_table(lake, "revenue").metadata.snapshots))

    assert counts == [1, 2, 3, 4, 2, 3]
    assert [revenue for _, revenue in rows_of(lake)] == [0, 1, 2, 3, 4, 5]

    replaced = find_result_table(lake, "revenue").current_snapshot().snapshot_id
    assert compact_lake(lake, CompactionPlan(), run_here).files_before > 1
    for epoch in range(6, 12):
        commit_epoch(lake, table, epoch, files_of(table, ("paris", epoch)))
    kept = find_result_table(lake, "revenue")
    assert kept.scan(snapshot_id=replaced).to_arrow().num_rows == 6  # as those who read it find it
    assert len(kept.metadata.snapshots) <= 4 + 2
    compact_lake(lake, CompactionPlan(), run_here, now=lambda: datetime.now(UTC) + LATER)
    assert len(find_result_table(lake, "revenue").metadata.snapshots) == 1
    assert [revenue for _, revenue in rows_of(lake)] == list(range(12))


def test_orphans_are_listed_and_removed_while_others_commit(lake, open_table):
    files_of(open_table(last_batch=-1), ("paris", 1))
    asked = []

    class Watched(Storage):
        def list(self, address, *, older_than=None):
            self._commit("list")
            return super().list(address, older_than=older_than)

        def remove(self, addresses):
            self._commit("remove")
            super().remove(addresses)

        def _commit(self, during):
            with lake.connect() as connection, connection.begin():
                connection.execute(text("set local lock_timeout = '50ms'"))
                connection.execute(text(LOCK_TABLES))
            asked.append(during)

    lake.storage = Watched({})

    assert lake.remove_unreferenced(datetime.now(UTC) + LATER) > 0
    assert asked == ["list", "remove"]
    assert lake.unreferenced() == []


def test_times_and_numbers_keep_their_types(lake, open_table):
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("small", pa.int8()),
            ("price", pa.decimal128(10, 2)),
            ("share", pa.float32()),
            ("raw", pa.binary()),
            ("parts", pa.list_(pa.struct([("n", pa.int32())]))),
            ("named", pa.map_(pa.string(), pa.int64())),
        ]
    )
    moment = datetime(2026, 1, 31, 10, tzinfo=UTC)
    row = (moment, moment.replace(tzinfo=None), 3, 2, 0.5, b"x", [{"n": 1}], [("a", 1)])
    table = open_table(schema, last_batch=-1)

    commit_epoch(lake, table, 0, files_of(table, row, schema=schema))

    (found,) = rows_of(lake)
    assert found == row
