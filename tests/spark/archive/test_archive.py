"""The archive: what is copied, what leaves the live log, and what a failure leaves behind."""

from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from sqlalchemy import event, text

from skep.model.encryption import KeyRing
from skep.model.encryption_key import EncryptionKey
from skep.model.errors import NotFound
from skep.model.ids import message_id
from skep.spark.archive.archiver import (
    ArchiveBusy,
    ArchivePlan,
    Archiver,
    ForeignArchive,
    archive_lock,
)
from skep.spark.archive.copy_task import AttemptIsOver, copy_split
from skep.spark.archive.lake import LOCK, WrongWarehouse, all_data_files
from skep.spark.runtime.postgres import forget_connections
from skep.spark.runtime.tasks import run_here
from tests.spark.support.archives import Shop, files_below
from tests.spark.support.logs import envelope

KEY = "2b" * 32
STEPS = ["planned", "copied", "finished", "added", "deleted", "committed", "swept"]
UNCOMMITTED = STEPS[:5]


@pytest.fixture
def shop(database_url, tmp_path, writer):
    yield Shop(database_url, tmp_path / "lake", writer)
    forget_connections()


def test_what_is_old_enough_is_copied_and_what_was_read_leaves_the_log(shop):
    shop.push_old(1, 2)
    shop.push_old(3, partition="b")
    shop.read_all()
    shop.writer.push(4)

    done = shop.archive()

    assert (done.runs, done.messages, done.deleted, done.queues) == (1, 3, 3, ["orders"])
    assert shop.archived() == [1, 2, 3]
    assert shop.live() == [4]
    assert shop.archive().runs == 0


def test_messages_that_a_group_has_not_read_are_copied_and_stay_until_it_has(shop):
    shop.push_old(1, 2)

    assert shop.archive().deleted == 0
    assert (shop.archived(), shop.live()) == ([1, 2], [1, 2])
    shop.read_all()
    again = shop.archive()

    assert (again.messages, again.deleted) == (0, 2)
    assert (shop.archived(), shop.live()) == ([1, 2], [])


def test_a_row_of_the_lake_is_the_message_with_all_that_is_known_of_it(shop):
    trace = "01890000-0000-7000-8000-000000000001"
    sent = '{ "nul":"\\u0000", "e": 1e400,"é":"\\ud83d\\ude00" }'
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    shop.writer.push_envelopes(
        envelope(
            sent, "tx-a", trace_id=trace, producer="me", headers={"x": "1", "n": 2.5},
            expires_at=expires_at,
        ),
        envelope("[1,  2]", "tx-b"),
    )  # fmt: skip
    shop.configure(archive_after_s=1)
    shop.writer.execute("update skep.segment set created_at = '2026-01-01T23:59:59.123456Z'")
    partition, xid, queue_id = shop.writer.rows(
        "select partition_id, xid::text::bigint, queue_id from skep.segment"
    )[0]

    shop.archive()

    with shop.lake() as lake:
        first, second = lake.table().scan().to_arrow().to_pylist()
    shared = {
        "queue": "orders",
        "partition": "Default",
        "created_at": datetime(2026, 1, 1, 23, 59, 59, 123456, tzinfo=UTC),
        "key_id": None,
        "xid": xid,
        "queue_id": queue_id,
        "partition_id": partition,
        "segment_first": 1,
    }
    assert first == {
        **shared,
        "offset": 1,
        "message_id": message_id(partition, 1),
        "transaction_id": "tx-a",
        "payload": sent,
        "headers": [("x", "1"), ("n", "2.5")],
        "producer": "me",
        "trace_id": trace,
        "expires_at": expires_at,
    }
    assert second == {
        **shared,
        "offset": 2,
        "message_id": message_id(partition, 2),
        "transaction_id": "tx-b",
        "payload": "[1,  2]",
        "headers": None,
        "producer": None,
        "trace_id": None,
        "expires_at": None,
    }


def test_files_hold_one_queue_and_one_day_so_that_readers_can_skip_them(shop):
    names = ["orders", "shop/€ %20 'quoted'", "n" * 255]
    for name in names:
        shop.push_old(1, hours=26, queue=name)
        shop.push_old(2, hours=2, queue=name)
        shop.configure(queue=name.replace("'", "''"), archive_after_s=3600)

    shop.archive()

    with shop.lake() as lake:
        planned = [task.file for task in lake.table().scan().plan_files()]
        queue_and_day = {file.file_path: (file.partition[0], file.partition[1]) for file in planned}
        assert len(queue_and_day) == 6
        for name in names:
            (queue, day), (_, next_day) = (queue_and_day[each.address] for each in lake.files(name))
            assert (queue, next_day - day) == (name, 1)
        now = datetime.now(UTC)
        (recent,) = lake.files("orders", since=now - timedelta(hours=3))
        assert recent == lake.files("orders")[1]
        assert lake.files("orders", until=now - timedelta(days=3)) == []
        assert lake.files("orders", xid_min=recent.xid_max + 1) == []


def test_deleted_messages_are_left_out_and_a_run_may_turn_out_to_be_empty(shop):
    shop.push_old(1, 2)
    partition = shop.writer.partition()
    shop.writer.value("select skep.delete_message($1, 1)", partition)
    assert shop.archive().messages == 1
    shop.push_old(3)
    shop.writer.value("select skep.delete_message($1, 3)", partition)

    done = shop.archive()

    assert (done.runs, done.messages) == (1, 0)
    assert shop.archived() == [2]


def test_sealed_payloads_stay_sealed_and_open_with_the_key(shop):
    ring = KeyRing([EncryptionKey("k1", bytes.fromhex(KEY))])
    shop.writer.push_envelopes(
        ring.seal_envelope(envelope('{"secret":"honey"}', headers={"h": "clear"})), envelope("2")
    )
    shop.configure(archive_after_s=1)
    shop.writer.execute("update skep.segment set created_at = now() - interval '1 hour'")

    shop.archive()

    with shop.lake() as lake:
        rows = lake.table().scan().to_arrow().to_pylist()
    assert [row["key_id"] for row in rows] == ["k1", None]
    assert "honey" not in rows[0]["payload"]
    opened = shop.rows(tier="archive", encryptionKeys=f"k1:{KEY}")
    assert [row["payload"] for row in opened] == ['{"secret":"honey"}', "2"]
    with pytest.raises(Exception, match="encrypted with key 'k1'"):
        shop.rows(tier="archive")


def test_large_runs_are_divided_into_tasks_and_into_runs(shop):
    for number in range(10):
        shop.push_old(number, partition=f"p{number % 3}")

    done = shop.archive(messages_per_run=4, messages_per_task=2)

    assert (done.runs, done.files, done.messages) == (3, 5, 10)
    assert shop.archived() == list(range(10))


def test_progress_is_told_as_it_is_made(shop):
    shop.push_old(1, 2)
    shop.push_old(3)
    told = []

    shop.archive(messages_per_task=2, on_progress=lambda messages, size: told.append(messages))

    assert told == [2, 1]


def test_an_open_writer_holds_the_archive_back_until_it_has_ended(shop, open_writer):
    slow = open_writer()
    partition = slow.partition(partition="late")
    slow.execute("begin")
    slow.execute(f"update skep.partition set head = head where id = {partition}")
    shop.push_old(1)
    assert shop.archive().messages == 0

    slow.execute("commit")

    assert shop.archive().messages == 1


class Stop(Exception):
    """A failure in the middle of a run."""


def stop_at(step, times=1):
    left = [times]

    def on_step(done):
        if done == step and left[0]:
            left[0] -= 1
            raise Stop

    return on_step


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_at_any_step_loses_nothing_doubles_nothing_and_leaves_no_file(
    shop, tmp_path, step
):
    shop.push_old(1, 2)
    shop.push_old(3)
    shop.read_all()
    shop.push_old(4)

    with pytest.raises(Stop):
        shop.archive(on_step=stop_at(step), messages_per_run=2)

    found = shop.archived() + shop.live()
    assert sorted(set(found)) == [1, 2, 3, 4]
    if step in UNCOMMITTED:
        assert sorted(found) == [1, 2, 3, 4]
    shop.writer.push(5)
    assert shop.read(tier="all") == [1, 2, 3, 4, 5]
    shop.archive()
    assert shop.archived() == [1, 2, 3, 4]
    assert shop.live() == [4, 5]
    with shop.lake() as lake:
        known = {urlsplit(address).path for address in all_data_files(lake.table())}
    assert {path for path in files_below(tmp_path) if path.endswith(".parquet")} == known


@pytest.mark.parametrize("number", [0, 1])
def test_a_task_that_fails_and_is_repeated_writes_over_what_it_had_begun(shop, tmp_path, number):
    shop.push_old(1)
    shop.push_old(2)

    def run_twice(tasks, work, on_progress):
        results = [work(task) for task in tasks]
        results[number] = work(tasks[number])
        return results

    shop.archive(run_twice, messages_per_task=1)

    assert shop.archived() == [1, 2]
    assert sum(path.endswith(".parquet") for path in files_below(tmp_path)) == 2


def test_a_task_that_was_given_up_cannot_touch_what_is_committed(shop, tmp_path):
    shop.push_old(1)
    given_up = []

    def remember(tasks, work, on_progress):
        given_up.extend(tasks)
        raise Stop

    with pytest.raises(Stop):
        shop.archive(remember)
    shop.archive()
    before = files_below(tmp_path)

    with pytest.raises(AttemptIsOver, match="attempt 1 of archive run"):
        copy_split(given_up[0])

    assert files_below(tmp_path) == before


def test_a_task_whose_run_is_taken_over_while_it_writes_leaves_no_file(shop, tmp_path):
    shop.push_old(1)

    def overtaken(tasks, work, on_progress):
        shop.writer.execute("update skep.archive_run set attempt = attempt + 1")
        return run_here(tasks, work, on_progress)

    with pytest.raises(AttemptIsOver):
        shop.archive(overtaken)

    assert not [path for path in files_below(tmp_path) if path.endswith(".parquet")]


def test_a_run_that_was_taken_over_is_not_committed_twice(shop):
    shop.push_old(1)

    def overtaken(tasks, work, on_progress):
        results = run_here(tasks, work, on_progress)
        shop.writer.execute("update skep.archive_run set attempt = attempt + 1")
        return results

    with pytest.raises(ArchiveBusy, match="not ours any more"):
        shop.archive(overtaken)
    shop.archive()

    assert shop.archived() == [1]


def test_a_queue_that_is_deleted_during_its_run_ends_the_run(shop):
    shop.push_old(1)

    def deleting(tasks, work, on_progress):
        results = run_here(tasks, work, on_progress)
        shop.writer.execute("delete from skep.archive_run")
        return results

    with pytest.raises(ArchiveBusy, match="its queue was deleted"):
        shop.archive(deleting)

    assert shop.archived() == []


def test_only_one_process_archives_at_a_time(shop):
    shop.push_old(1)
    with (
        shop.lake() as lake,
        archive_lock(lake),
        pytest.raises(ArchiveBusy, match="another process is archiving"),
    ):
        shop.archive()

    assert shop.archive().messages == 1


def test_who_has_done_its_work_is_in_nobodys_way_any_more(shop):
    shop.archive()

    with shop.lake() as lake, lake.connect() as next_one:
        found = []
        # Asked while the connection is closed: the server notices that some time later.
        event.listen(
            next_one.engine,
            "invalidate",
            lambda *_: found.append(next_one.scalar(text(LOCK.format(name="archive")))),
        )
        with archive_lock(lake):
            pass

    assert found == [True]


def test_the_archive_has_one_warehouse(shop, tmp_path):
    shop.push_old(1)
    first, shop.warehouse = shop.warehouse, None
    plan_without = {"queues": ("orders",)}
    with pytest.raises(WrongWarehouse, match="There is no warehouse yet"):
        archive_without_warehouse(shop, **plan_without)
    shop.warehouse = first
    shop.archive()
    shop.push_old(2)
    shop.warehouse = str(tmp_path / "elsewhere")

    with pytest.raises(WrongWarehouse, match="the archive lies at"):
        shop.archive()
    assert archive_without_warehouse(shop).messages == 1


def archive_without_warehouse(shop, **choices):
    with shop.lake() as lake:
        return Archiver(lake, ArchivePlan(url=shop.url, **choices), run_here).archive()


def test_queues_are_chosen_by_name_and_what_has_no_archive_is_refused(shop):
    shop.push_old(1)
    shop.push_old(2, queue="other")
    shop.configure(queue="other", archive_after_s=3600)
    shop.writer.partition("plain")

    assert shop.archive(queues=("other",)).messages == 1
    assert shop.archived() == [2]
    for name in ("plain", "nowhere"):
        with pytest.raises(NotFound, match=f"queue {name} does not exist or has no archive"):
            shop.archive(queues=(name,))


def test_the_archive_of_the_server_a_dump_came_from_is_left_alone(shop, tmp_path):
    shop.push_old(1)
    shop.archive()
    shop.writer.execute("update skep.archive set system = '1:1'")
    before = files_below(tmp_path)

    with pytest.raises(ForeignArchive, match="forget_archive"):
        shop.archive()

    assert files_below(tmp_path) == before
    shop.writer.execute("select skep.forget_archive()")
    assert shop.archive().messages == 1
    assert shop.archived() == [1]
    assert before <= files_below(tmp_path)


def test_retention_waits_for_the_archive_when_the_queue_asks_for_it(shop):
    shop.push_old(1)
    shop.writer.execute("update skep.queue set archive_before_delete = true")
    held = "select skep.held_from(id)::text::numeric from skep.queue where name = 'orders'"
    assert shop.writer.value(held) == 1

    shop.archive()

    newest = shop.writer.value("select max(xid::text::numeric) from skep.segment")
    assert shop.writer.value(held) > newest


def test_payloads_are_not_in_the_description_of_the_table(shop, tmp_path):
    shop.push_old("very-secret-payload")
    shop.archive()

    for path in (tmp_path / "lake").rglob("metadata/*"):
        assert b"very-secret" not in path.read_bytes()
