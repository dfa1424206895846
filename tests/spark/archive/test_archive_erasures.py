"""What another program deleted from the lake stays deleted: in every reader, and after compaction.

Delete files are written here as those programs write them, because pyiceberg writes none.
"""

import os
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from skep.model.errors import Refused
from skep.spark.archive.compaction import CompactionPlan, compact_lake
from skep.spark.archive.erasures import UnreadableErasure, planned_files
from skep.spark.runtime.postgres import forget_connections
from skep.spark.runtime.tasks import run_here
from tests.spark.support.archives import Shop, files_below
from tests.spark.support.deletes import delete_by_position, delete_by_value
from tests.spark.support.queries import Query


@pytest.fixture
def shop(database_url, tmp_path, writer):
    """An archive of two files: the messages 0 to 2 of three segments, and 10 of another queue."""
    shop = Shop(database_url, tmp_path / "lake", writer)
    for number in range(3):
        shop.push_old(number)
    shop.push_old(10, queue="other")
    shop.configure(queue="other", archive_after_s=3600)
    shop.read_all()
    shop.archive()
    yield shop
    forget_connections()


def by_position(shop):
    with shop.lake() as lake:
        delete_by_position(lake, "1")


def by_value(shop):
    with shop.lake() as lake:
        delete_by_value(lake, "orders", payload="1")


@pytest.fixture(params=[by_position, by_value], ids=["by position", "by value"])
def erase(request, shop):
    """Delete the message 1 from the lake."""
    return lambda: request.param(shop)


def compact(shop, **hooks):
    with shop.lake() as lake:
        return compact_lake(lake, CompactionPlan(), run_here, **hooks)


def test_deleted_rows_are_not_read_in_any_tier_batch_or_stream(shop, erase):
    shop.push_old(3)
    erase()
    shop.archive()  # what comes later is not touched

    assert shop.read(tier="archive") == shop.read(tier="all") == [0, 2, 3]
    assert shop.read(tier="all", queue="other") == [10]
    assert Query(shop.url, tier="all", maxMessagesPerTrigger="1").drain() == [0, 2, 3]


def test_deleted_rows_do_not_come_back_with_compaction(shop, erase):
    erase()

    done = compact(shop)

    assert (done.files_before, done.files_after, done.messages) == (1, 1, 2)
    assert shop.read(tier="all") == [0, 2]
    with shop.lake() as lake:
        assert not any(each.erasures for each in planned_files(lake.table()))
    assert compact(shop).files_before == 0


def test_what_is_deleted_while_files_are_merged_stays_deleted(shop, erase, tmp_path):
    erase()

    def erase_another(step):
        if step == "written":
            with shop.lake() as lake:
                delete_by_position(lake, "2")

    done = compact(shop, on_step=erase_another)

    assert done.files_before == 0
    assert shop.read(tier="all") == [0]
    assert not any("merged-" in path for path in files_below(tmp_path))
    assert compact(shop).messages == 1
    assert shop.read(tier="all") == [0]


def test_a_file_of_which_nothing_is_left_goes(shop):
    with shop.lake() as lake:
        for number in range(3):
            delete_by_position(lake, str(number))

    done = compact(shop)

    assert (done.files_before, done.files_after) == (1, 0)
    assert shop.read(tier="all") == []
    assert shop.read(tier="all", queue="other") == [10]


def test_a_segment_that_was_archived_and_erased_under_a_reader_is_no_loss(shop):
    shop.push_old(4)
    reader = shop.reader(tier="all")
    tasks = reader.partitions()
    shop.read_all()
    shop.archive()
    with shop.lake() as lake:
        delete_by_position(lake, "4")

    found = [row["payload"] for task in tasks for batch in reader.read(task)
             for row in batch.to_pylist()]  # fmt: skip

    assert sorted(found) == ["0", "1", "2"]


def test_addresses_of_files_with_deleted_rows_are_not_given_to_programs_that_read_files(
    shop, erase
):
    erase()

    with shop.lake() as lake:
        with pytest.raises(Refused, match="skep archive compact"):
            lake.plain_files("orders")
        assert len(lake.plain_files("other")) == 1
    compact(shop)
    with shop.lake() as lake:
        assert len(lake.plain_files("orders")) == 1


def test_a_delete_file_that_cannot_be_read_is_refused_and_not_ignored(shop):
    with shop.lake() as lake:
        delete_by_position(lake, "1", file_format="ORC")

    with pytest.raises(UnreadableErasure, match="rewrite_data_files"):
        shop.read(tier="all")


def test_files_of_another_program_are_left_alone_until_they_are_three_days_old(shop):
    with shop.lake() as lake:
        location = lake.table().location()
        for directory in ("data", "metadata"):
            with lake.storage.create(f"{location}/{directory}/of-another.parquet") as stream:
                stream.write(b"about to be committed")
    compact(shop)
    with shop.lake() as lake:
        found = [each for each in lake.unreferenced() if "of-another" in each]
    assert len(found) == 2

    past = (datetime.now(UTC) - timedelta(days=4)).timestamp()
    for each in found:
        os.utime(urlsplit(each).path, (past, past))
    assert compact(shop).removed == 2
