"""Small files become large ones, and old ones go, while readers find every message once."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from skep.model.errors import NotFound
from skep.spark.archive.archiver import ArchiveBusy, archive_lock
from skep.spark.archive.compaction import CompactionPlan, MergeTask, compact_lake, merge_files
from skep.spark.archive.copy_task import BYTES_PER_GROUP, FileWriter, rows_by_day
from skep.spark.archive.erasures import LakeFile
from skep.spark.archive.lake import LOCK_TABLES
from skep.spark.archive.schema import ARROW_SCHEMA, parquet
from skep.spark.archive.storage import Storage
from skep.spark.runtime.postgres import forget_connections
from skep.spark.runtime.tasks import run_here
from tests.spark.support.archives import Shop, files_below, payloads_of, run_tasks
from tests.spark.support.logs import envelope, segments

LATER = timedelta(days=4)


@pytest.fixture
def shop(database_url, tmp_path, writer):
    yield Shop(database_url, tmp_path / "lake", writer)
    forget_connections()


@pytest.fixture
def scattered(shop):
    """A shop whose archive has six files of one message each, of two queues."""
    for number in range(4):
        shop.push_old(number, partition=f"p{number % 2}")
    for number in (10, 11):
        shop.push_old(number, queue="other")
    shop.configure(queue="other", archive_after_s=3600)
    shop.read_all()
    shop.archive(messages_per_task=1)
    return shop


def compact(shop, later=None, **choices):
    hooks = {name: choices.pop(name) for name in ("on_step",) if name in choices}
    if later:
        hooks["now"] = lambda: datetime.now(UTC) + later
    with shop.lake() as lake:
        return compact_lake(lake, CompactionPlan(**choices), run_here, **hooks)


def file_sizes(shop):
    with shop.lake() as lake:
        files = [task.file for task in lake.table().scan().plan_files()]
        return sorted((file.partition[0], file.record_count) for file in files)


def test_small_files_of_a_queue_and_day_become_one(scattered):
    done = compact(scattered)

    assert (done.files_before, done.files_after, done.messages) == (6, 2, 6)
    assert file_sizes(scattered) == [("orders", 4), ("other", 2)]
    assert scattered.archived() == [0, 1, 2, 3, 10, 11]
    assert scattered.read(tier="all") == [0, 1, 2, 3]
    assert compact(scattered).files_before == 0


def test_files_are_not_made_larger_than_wanted(scattered):
    compact(scattered, target_messages=3)

    assert file_sizes(scattered) == [("orders", 1), ("orders", 3), ("other", 2)]
    assert scattered.read(tier="all") == [0, 1, 2, 3]


def test_rows_lie_in_the_order_of_their_addresses(scattered):
    compact(scattered)

    with scattered.lake() as lake:
        rows = lake.table().scan("queue = 'orders'").to_arrow().to_pylist()
    addresses = [(row["xid"], row["partition_id"], row["offset"]) for row in rows]
    assert addresses == sorted(addresses)


MEGABYTE = 1 << 20


def write_file(address, first, rows):
    """Write messages of a megabyte each, which a file holds in next to no room."""
    with Storage({}).create(address) as stream:
        writer = FileWriter(address, stream)
        for number in range(first, first + rows):
            known = {"offset": number, "payload": "x" * MEGABYTE, "xid": number}
            writer.add(pa.RecordBatch.from_pylist([known], schema=ARROW_SCHEMA))
        writer.finish()


@pytest.fixture
def arrow_memory():
    """Count what Arrow allocates from here on."""
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(usual)


def test_merging_holds_a_few_row_groups_in_memory_however_much_they_are(tmp_path, arrow_memory):
    addresses = [f"file://{tmp_path}/{number}.parquet" for number in range(4)]
    for number, address in enumerate(addresses):
        write_file(address, number * 130, 130)
    written = arrow_memory.max_memory()

    files = tuple(LakeFile(address, 130, 0, 0, 0) for address in addresses)
    done = merge_files(MergeTask({}, files, f"file://{tmp_path}/merged.parquet"))

    assert done.messages == 520
    assert arrow_memory.max_memory() < written + 3 * BYTES_PER_GROUP
    offsets = parquet.read_table(tmp_path / "merged.parquet", columns=["offset"])["offset"]
    assert offsets.to_pylist() == list(range(520))


def test_what_is_copied_is_cut_by_bytes_as_well_as_by_messages():
    segment = envelope(f'"{"x" * (BYTES_PER_GROUP // 2)}"')

    cut = list(rows_by_day((segments([segment], first=n) for n in range(5)), queue_id=1))

    assert [rows.num_rows for _, rows in cut] == [2, 2, 1]


def test_limited_streams_read_a_compacted_archive_in_the_same_portions(scattered):
    from tests.spark.support.queries import Query

    def batches():
        stream = Query(scattered.url, tier="all", maxMessagesPerTrigger="2")
        return list(iter(stream.step, None))

    before = batches()
    compact(scattered)

    assert batches() == before
    assert len(before) == 2


def test_readers_that_planned_before_find_the_old_files_until_they_are_too_old(scattered, tmp_path):
    reader = scattered.reader(tier="all")
    tasks = reader.partitions()
    assert compact(scattered).removed == 0
    assert payloads_of(run_tasks(reader, tasks)) == [0, 1, 2, 3]

    done = compact(scattered, later=LATER)

    assert done.snapshots > 0
    assert done.removed >= 6
    assert sum(path.endswith(".parquet") for path in files_below(tmp_path)) == 2
    with pytest.raises(Exception, match="run the query again"):
        run_tasks(reader, tasks)
    assert scattered.read(tier="all") == [0, 1, 2, 3]
    with scattered.lake() as lake:
        assert len(lake.table().metadata.snapshots) == 1
        assert lake.unreferenced() == []


def test_a_snapshot_counts_as_old_from_when_another_took_its_place(shop):
    shop.push_old(1)
    shop.archive()
    half_an_hour = timedelta(minutes=30)

    shop.push_old(2)
    shop.archive()

    assert compact(shop, keep_s=3600, later=half_an_hour).snapshots == 0
    assert compact(shop, keep_s=3600, later=LATER).snapshots > 0
    assert shop.archived() == [1, 2]


class Stop(Exception):
    """A failure in the middle."""


@pytest.mark.parametrize("step", ["written", "replaced", "merged", "expired"])
def test_a_failure_at_any_step_changes_no_message_and_leaves_nothing_for_long(
    scattered, step, tmp_path
):
    def stop(done):
        if done == step:
            raise Stop

    with pytest.raises(Stop):
        compact(scattered, on_step=stop)

    assert scattered.archived() == [0, 1, 2, 3, 10, 11]
    compact(scattered, later=LATER)
    assert scattered.archived() == [0, 1, 2, 3, 10, 11]
    assert file_sizes(scattered) == [("orders", 4), ("other", 2)]
    assert sum(path.endswith(".parquet") for path in files_below(tmp_path)) == 2


def test_it_does_not_run_beside_an_archive_run_or_without_an_archive(shop):
    with pytest.raises(NotFound, match="there is no archive"):
        compact(shop)
    shop.push_old(1)
    shop.archive()
    with shop.lake() as lake, archive_lock(lake), pytest.raises(ArchiveBusy):
        compact(shop)


def test_runs_and_compaction_take_turns(shop):
    for number in range(3):
        shop.push_old(number)
        shop.archive()
        compact(shop, later=LATER)

    assert file_sizes(shop) == [("orders", 3)]
    assert shop.read(tier="archive") == [0, 1, 2]


def test_files_of_a_run_that_is_under_way_are_left_alone(scattered):
    scattered.push_old(4)

    def compact_meanwhile(tasks, work, on_progress):
        results = run_here(tasks, work, on_progress)
        with scattered.lake() as lake:
            assert lake.remove_unreferenced(datetime.now(UTC) + LATER) == 0
        return results

    scattered.archive(compact_meanwhile)

    assert scattered.read(tier="all") == [0, 1, 2, 3, 4]


def test_cleaning_waits_for_whoever_is_about_to_commit(scattered):
    scattered.push_old(4)
    tried = []

    def clean(step):
        if step != "added":
            return
        with scattered.lake() as lake, lake.connect() as connection, connection.begin():
            connection.execute(text("set local lock_timeout = '50ms'"))
            with pytest.raises(OperationalError, match="lock timeout"):
                connection.execute(text(LOCK_TABLES))
            tried.append(step)

    scattered.archive(on_step=clean)

    assert tried == ["added"]
    assert scattered.read(tier="all") == [0, 1, 2, 3, 4]
