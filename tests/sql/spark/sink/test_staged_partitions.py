import asyncio

from tests.sql.support.waiting import eventually

PARTITIONS = "select * from skep.staged_partitions($1, 0, '{1}')"


async def test_partitions_are_made_and_told_with_their_window(log, staging):
    await log.partition("hive", "old")
    await log.set_options("hive", dedup_window_s=7)
    await staging.segment("x", partition="old")
    await staging.message("y", log.now, partition="new")
    await staging.reject("z", queue="other", partition="bad")
    await staging.segment("theirs", queue="hidden", attempt=2)

    rows = await log.rows(PARTITIONS, staging.write_id)

    found = [(row["queue"], row["partition"], row["window_s"]) for row in rows]
    assert sorted(found) == [("hive", "new", 7), ("hive", "old", 7), ("other", "bad", 3600)]
    assert await log.value("select count(*) from skep.queue") == 2


async def test_nothing_staged_has_no_partitions(log, staging):
    assert await log.rows(PARTITIONS, staging.write_id) == []


async def test_partitions_are_locked_until_the_transaction_ends(log, staging, open_log):
    partition, _ = await log.partition()
    await staging.segment("x")
    transaction = log.connection.transaction()
    await transaction.start()
    await log.rows(PARTITIONS, staging.write_id)
    other, watcher = await open_log(), await open_log()

    push = asyncio.create_task(other.push(partition, "pushed"))
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    assert await eventually(lambda: watcher.value(waiting))
    await transaction.rollback()

    assert (await push).first == 1
