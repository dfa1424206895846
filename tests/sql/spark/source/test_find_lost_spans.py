"""What the trigger on segments notes, and what readers are told of it."""

import asyncio

import pytest

from tests.sql.support.spans import EVERYTHING, SpanReader

LOST = (
    "select * from skep.find_lost_spans($1, $2::text::pg_snapshot, $3::text::pg_snapshot,"
    " $4::text::pg_snapshot, $5)"
)


@pytest.fixture
def reader(log):
    return SpanReader(log)


@pytest.fixture
def lost(log, reader):
    async def lost(checked, seen=EVERYTHING, part=None, through=None):
        rows = await log.rows(LOST, await reader.queue_ids(), checked, seen, part, through)
        return [row["upto"] for row in rows]

    return lost


async def xid_of(log, partition, first):
    query = "select xid::text::bigint from skep.segment where partition_id = $1 and first = $2"
    return await log.value(query, partition, first)


async def remove(log, partition, upto):
    await log.execute(
        f"delete from skep.segment where partition_id = {partition} and first <= {upto}"
    )


async def test_a_removal_is_told_to_readers_that_have_not_seen_what_is_gone(log, reader, lost):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    xid = await xid_of(log, partition, 1)
    start = await reader.present()
    await remove(log, partition, 1)

    assert await lost(start) == [xid]
    assert await lost(start, seen=start) == []


async def test_removals_before_the_reader_began_are_old_news(log, reader, lost):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await remove(log, partition, 1)

    assert await lost(await reader.present()) == []


async def test_a_removal_still_under_way_when_the_reader_looked_is_told_later(
    log, reader, lost, open_log
):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    xid = await xid_of(log, partition, 1)
    other = await open_log()
    async with other.connection.transaction():
        await remove(other, partition, 1)
        checked = await reader.present()
        assert await lost(checked) == []

    assert await lost(checked) == [xid]


async def test_a_part_that_was_read_counts_up_to_its_last_transaction(log, reader, lost):
    partition, _ = await log.partition()
    start = await reader.present()
    await log.push(partition, "a")
    await log.push(partition, "b")
    first, second = await xid_of(log, partition, 1), await xid_of(log, partition, 2)
    present = await reader.present()
    await remove(log, partition, 1)

    assert await lost(start, start, present, second) == []
    assert await lost(start, start, present, first) == [first]


async def test_of_several_removals_the_newest_stays_on_record(log, reader, lost):
    partition, _ = await log.partition()
    start = await reader.present()
    for name in "abc":
        await log.push(partition, name)
    newest = await xid_of(log, partition, 3)
    for first in (1, 2, 3):
        await remove(log, partition, first)

    assert await lost(start) == [newest]
    assert await log.value("select count(*) from skep.removed_span") == 1


async def test_it_tells_the_queue_and_the_times(log, reader):
    partition, _ = await log.partition()
    start = await reader.present()
    await log.push(partition, "a")
    await remove(log, partition, 1)

    (row,) = await log.rows(LOST, await reader.queue_ids(), start, EVERYTHING, None, None)

    assert (row["queue"], row["created_to"]) == ("hive", log.now)
    assert row["removed_at"] is not None


async def test_removals_do_not_wait_for_one_another(log, open_log):
    partition, _ = await log.partition()
    [second] = await log.provision("hive", "b")
    other = await open_log()
    await log.push(partition, "z")
    await remove(log, partition, 1)
    await log.push(partition, "a")
    await log.push(second, "b")

    async with log.connection.transaction():
        await remove(log, partition, 2)
        async with asyncio.timeout(30):
            await remove(other, second, 1)


async def test_a_deleted_queue_is_a_loss_to_readers_that_had_not_read_it(log, reader):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    start = await reader.present()
    [queue_id] = await reader.queue_ids()
    await log.value("select skep.remove_queue('hive')")
    await remove(log, partition, 1)
    query = LOST.replace("$5)", "$5, false, $6)")

    async def lost(checked, seen, asked, left):
        rows = await log.rows(query, asked, checked, seen, None, None, left)
        return [(row["queue"], row["is_deleted"]) for row in rows]

    # The sweep adds nothing to what the removal has put on record.
    assert await log.value("select count(*) from skep.removed_span") == 1
    assert await lost(start, EVERYTHING, [queue_id], []) == [("hive", True)]
    assert await lost(start, EVERYTHING, [], [queue_id]) == [("hive", True)]
    assert await lost(start, start, [], [queue_id]) == []
    assert await lost(await reader.present(), EVERYTHING, [], [queue_id]) == []
    await log.execute("delete from skep.removed_span")
    assert await lost(start, start, [], [queue_id]) == [(f"with the id {queue_id}", True)]


async def test_a_queue_that_exists_is_no_loss_if_it_is_not_asked_for(log, reader):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    start = await reader.present()
    await remove(log, partition, 1)
    query = LOST.replace("$5)", "$5, false, $6)")

    assert await log.rows(query, [], start, EVERYTHING, None, None, await reader.queue_ids()) == []


async def test_nothing_removed_is_nothing_noted(log):
    await log.partition()
    await log.execute("delete from skep.segment")

    assert await log.value("select count(*) from skep.removed_span") == 0
