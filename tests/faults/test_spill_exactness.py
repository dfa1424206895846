"""What was kept on disk is stored once, wherever a call or a process was lost on the way."""

import asyncio
import os
import threading

import pytest
from msgspec.structs import replace

from skep.app.parts.core import PATIENCE_S
from skep.settings import Settings
from skep.spill.directory import spill_directory
from skep.spill.log import SpillLog
from tests.faults.support.in_process import item, running
from tests.sql.support.waiting import eventually

PUSH = "skep.push_"
DRAIN = "skep.drain_records("
WINDOWS = pytest.mark.parametrize("window_s", [3600, 0])
POINTS = pytest.mark.parametrize("point", ["before", "after"])


@pytest.fixture
def spilling(tmp_path):
    """Settings of a broker that soon keeps pushes on disk."""
    return {
        "spill_dir": tmp_path,
        "spill_bytes_max": 1 << 24,
        "spill_after_s": 0.05,
        "connections": 1,
    }


async def stored(sql, queue):
    """Return the transaction ids of a queue in the order of their offsets."""
    query = 'select transaction_id from skep.message where queue = $1 order by partition, "offset"'
    return [row[0] for row in await sql.fetch(query, queue)]


async def until_drained(broker):
    board = broker.broker.failover._spill.board
    await eventually(lambda: not board.has_backlog)


def statuses(results):
    return [result["status"] for result in results]


@WINDOWS
@POINTS
async def test_a_push_whose_call_was_lost_before_the_outage_is_stored_once(
    proxy, sql, spilling, point, window_s, queue
):
    async with running(proxy.url, **spilling) as broker:
        await broker.configure(queue, dedupWindowSeconds=window_s)
        await broker.push(item(queue, "a"))
        fault = proxy.at_next(PUSH, point)
        proxy.shut_door()

        results = await broker.push(item(queue, "b"), item(queue, "c"))
        results += await broker.push(item(queue, "d"))
        proxy.open_door()
        await until_drained(broker)

    assert fault.struck.is_set()
    assert statuses(results) == ["buffered"] * 3
    assert await stored(sql, queue) == ["a", "b", "c", "d"]


@WINDOWS
@POINTS
async def test_a_drain_whose_answer_was_lost_is_not_repeated(
    proxy, sql, spilling, point, window_s, queue
):
    async with running(proxy.url, **spilling) as broker:
        await broker.configure(queue, dedupWindowSeconds=window_s)
        await broker.broker.failover.maintenance.set_mode("push", enabled=True)
        await broker.push(item(queue, "a"), item(queue, "b"))
        fault = proxy.at_next(DRAIN, point)

        await broker.broker.failover.maintenance.set_mode("push", enabled=False)
        await fault.struck.wait()
        await until_drained(broker)

    assert await stored(sql, queue) == ["a", "b"]


async def test_without_a_window_nothing_on_disk_is_a_duplicate(database_url, sql, spilling, queue):
    async with running(database_url, **spilling) as broker:
        await broker.configure(queue, dedupWindowSeconds=0)
        await broker.broker.failover.maintenance.set_mode("push", enabled=True)
        await broker.push(item(queue, "a"), item(queue, "a"))
        await broker.push(item(queue, "a"))
        await broker.push(*(replace(item(queue, "a"), delay_seconds=3600.0) for _ in range(2)))

        await broker.broker.failover.maintenance.set_mode("push", enabled=False)
        await until_drained(broker)

    assert await stored(sql, queue) == ["a", "a", "a"]
    waiting = "select count(*) from skep.scheduled s join skep.queue q on q.id = s.queue_id"
    assert await sql.fetchval(f"{waiting} where q.name = $1", queue) == 2


@POINTS
async def test_without_a_window_twins_of_a_lost_call_are_stored_once_each(
    proxy, sql, spilling, point, queue
):
    async with running(proxy.url, **spilling) as broker:
        await broker.configure(queue, dedupWindowSeconds=0)
        await broker.push(item(queue, "a"))
        fault = proxy.at_next(PUSH, point)
        proxy.shut_door()

        await broker.push(item(queue, "a"), item(queue, "b"), item(queue, "a"))
        proxy.open_door()
        await until_drained(broker)

    assert fault.struck.is_set()
    assert await stored(sql, queue) == ["a", "a", "b", "a"]


@WINDOWS
async def test_a_process_that_dies_between_the_commit_and_the_end_of_the_file_repeats_nothing(
    database_url, sql, spilling, window_s, queue, monkeypatch
):
    async with running(database_url, **spilling) as broker:
        await broker.configure(queue, dedupWindowSeconds=window_s)
        await broker.broker.failover.maintenance.set_mode("push", enabled=True)
        await broker.push(item(queue, "a"), item(queue, "b"))
        monkeypatch.setattr(SpillLog, "remove_drained", lambda _: [])
        await broker.broker.failover.maintenance.set_mode("push", enabled=False)
        await until_drained(broker)
    monkeypatch.undo()

    async with running(database_url, **spilling) as broker:
        assert broker.broker.failover._spill.board.has_backlog
        await until_drained(broker)
        await broker.push(item(queue, "c"))

    assert await stored(sql, queue) == ["a", "b", "c"]


async def test_a_damaged_record_is_set_aside_and_its_neighbours_are_stored(
    database_url, sql, spilling, queue
):
    async with running(database_url, **spilling) as broker:
        await broker.broker.failover.maintenance.set_mode("push", enabled=True)
        for name in ("first", "second", "third"):
            await broker.push(item(queue, name))
    directory = spill_directory(Settings(**spilling))
    (path,) = directory.glob("*.spill")
    data = bytearray(path.read_bytes())
    data[data.find(b"second")] ^= 1
    path.write_bytes(data)

    async with running(database_url, **spilling) as broker:
        await broker.broker.failover.maintenance.set_mode("push", enabled=False)
        await until_drained(broker)
        stats = broker.broker.failover.diversion.stats()

    assert await stored(sql, queue) == ["first", "third"]
    assert stats.rejected_files == 1
    (rejected,) = (directory / "rejected").glob("*.rejected")
    assert b"econd" in rejected.read_bytes()


async def test_defect_30_what_was_buffered_survives_an_orderly_stop(
    database_url, sql, spilling, queue
):
    async with running(database_url, **spilling) as broker:
        await broker.broker.failover.maintenance.set_mode("push", enabled=True)
        (result,) = await broker.push(item(queue, "a"))
    async with running(database_url, **spilling) as broker:
        kept = broker.broker.failover.diversion.stats().pending_messages
        await broker.broker.failover.maintenance.set_mode("push", enabled=False)
        await until_drained(broker)

    assert (result["status"], kept) == ("buffered", 1)
    assert await stored(sql, queue) == ["a"]


async def test_a_queue_deleted_while_its_messages_were_on_disk_is_made_again(
    database_url, sql, spilling, queue
):
    async with running(database_url, **spilling) as broker:
        await broker.push(item(queue, "old"))
        await broker.broker.failover.maintenance.set_mode("push", enabled=True)
        await broker.push(item(queue, "a"))
        await sql.fetch("select skep.remove_queue($1)", queue)
        await broker.broker.failover.maintenance.set_mode("push", enabled=False)
        await until_drained(broker)

    assert await stored(sql, queue) == ["a"]


async def begin_outage(broker):
    broker.broker.failover.outage.begin()


@pytest.mark.parametrize("is_known", [True, False])
async def test_pushes_under_way_when_the_outage_begins_are_stored_before_those_that_come_later(
    proxy, sql, spilling, is_known, queue
):
    async with running(proxy.url, **spilling) as broker:
        if is_known:
            await broker.push(item(queue, "a"))

        # All in one turn of the loop, as a producer that waits for no answer sends them.
        b, c, _, d, e = await asyncio.gather(
            broker.push(item(queue, "b")),
            broker.push(item(queue, "c")),
            begin_outage(broker),
            broker.push(item(queue, "d"), item(queue, "other", partition="b")),
            broker.push(item(queue, "e")),
        )
        broker.broker.failover.outage.hear(True)
        await until_drained(broker)

    assert statuses(b + c + d + e) == ["buffered"] * 5
    assert await stored(sql, queue) == [*(["a"] if is_known else []), *"bcde", "other"]


async def test_a_push_does_not_overtake_one_that_is_being_written_to_disk(
    database_url, sql, spilling, queue, monkeypatch
):
    may_write, append = threading.Event(), SpillLog.append

    def append_late(spill, records):
        may_write.wait(30)
        append(spill, records)

    monkeypatch.setattr(SpillLog, "append", append_late)
    async with running(database_url, **spilling) as broker:
        await broker.push(item(queue, "a"))
        broker.broker.failover.outage.begin()
        first = asyncio.ensure_future(broker.push(item(queue, "b")))
        await asyncio.sleep(0)  # it is on its way to the disk
        broker.broker.failover.outage.hear(True)

        second = asyncio.ensure_future(broker.push(item(queue, "c")))
        third = await broker.push(item(queue, "other", partition="b"))
        may_write.set()
        results = [*await first, *await second]
        await until_drained(broker)

    assert statuses(results + third) == ["buffered", "buffered", "queued"]
    assert await stored(sql, queue) == ["a", "b", "c", "other"]


async def test_a_queue_that_the_drain_creates_has_the_namespace_and_task_of_its_first_push(
    proxy, sql, spilling, queue
):
    labelled = [
        replace(item(queue, "a"), namespace="bees", task="build"),
        replace(item(queue, "b"), namespace="wasps", task="sting"),
    ]
    async with running(proxy.url, **spilling) as broker:
        broker.broker.failover.outage.begin()
        for each in labelled:
            await broker.push(each)
        broker.broker.failover.outage.hear(True)
        await until_drained(broker)

    row = await sql.fetchrow("select namespace, task from skep.queue where name = $1", queue)
    assert tuple(row) == ("bees", "build")


async def test_labels_that_cannot_be_stored_are_refused_before_they_are_on_disk(
    database_url, spilling, queue
):
    async with running(database_url, **spilling) as broker:
        broker.broker.failover.outage.begin()

        results = await broker.push(
            item(queue, "a"), replace(item(queue, "b"), namespace="n" * 300)
        )

    assert statuses(results) == ["buffered", "failed"]


async def test_defect_29_pushes_hang_no_longer_than_it_takes_to_notice_that_connections_are_dead(
    proxy, sql, spilling, queue
):
    async with running(proxy.url, **spilling) as broker:
        await broker.push(item(queue, "a"))
        proxy.shut_door()
        proxy.at_next(PUSH, "before")

        async with asyncio.timeout(PATIENCE_S - 2):  # sooner than a request loses its patience
            results = await asyncio.gather(
                *(broker.push(item(queue, f"{number}")) for number in range(20)),
                broker.push(item(f"{queue}-new", "never seen")),
            )
        proxy.open_door()
        await until_drained(broker)

    assert {status for result in results for status in statuses(result)} == {"buffered"}
    assert sorted(await stored(sql, queue)) == sorted(["a", *(str(n) for n in range(20))])
    assert await stored(sql, f"{queue}-new") == ["never seen"]


async def test_a_directory_that_cannot_be_used_is_told_and_the_broker_serves_all_the_same(
    database_url, queue, tmp_path, caplog
):
    (tmp_path / "file").write_text("in the way")
    async with running(
        database_url, spill_dir=tmp_path / "file", spill_bytes_max=1 << 20
    ) as broker:
        (result,) = await broker.push(item(queue, "a"))

    assert result["status"] == "queued"
    assert "cannot use" in caplog.text


def test_each_database_has_a_folder_of_its_own_and_the_password_no_part_in_it(tmp_path):
    urls = [
        "postgresql://u:secret@h:1/one",
        "postgresql://u:other@h:1/one",
        "postgresql://u:secret@h:1/two",
        "postgresql://u:secret@g:1/one",
    ]

    folders = [spill_directory(Settings(spill_dir=tmp_path, database_url=url)) for url in urls]

    assert folders[0] == folders[1]
    assert len(set(folders)) == 3
    assert not any("secret" in os.fspath(folder) for folder in folders)
    assert spill_directory(Settings(data_dir=tmp_path)) == tmp_path / "spill" / "embedded"


def test_installations_in_two_schemas_of_a_database_have_folders_of_their_own(tmp_path):
    for server in ({}, {"database_url": "postgresql://h/one"}):
        schemas = [
            Settings(data_dir=tmp_path, **server, database_schema=name) for name in ("skep", "a")
        ]

        assert len(set(map(spill_directory, schemas))) == 2
