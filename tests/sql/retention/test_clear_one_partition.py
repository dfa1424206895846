from datetime import timedelta

import pytest

from tests.sql.support.log import Ack, Poll


async def clear(log, partition, upto=None, segments=100):
    """Clear one partition; return how many messages went, and where to go on."""
    row = await log.row(
        "select c.messages, c.next_upto from skep.partition p "
        "cross join lateral skep.clear_partitions(p.queue_id, p.name, $2, true, 1, $3) c "
        "where p.id = $1",
        partition,
        upto,
        segments,
    )
    return tuple(row)


@pytest.fixture(autouse=True)
def nothing_deleted(arun, log):
    arun(log.execute("delete from skep.deleted_message"))


async def bounds(log, partition):
    return tuple(await log.row("select tail, head from skep.partition where id = $1", partition))


async def test_a_partition_is_emptied_and_its_groups_stand_at_the_end(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y")
    await log.push(partition, "z")
    await log.pop(group, poll := Poll(batch=1, lease_s=60))

    assert await clear(log, partition) == (3, None)
    assert await bounds(log, partition) == (4, 3)
    cursor = await log.cursor(partition, group)
    assert [cursor["acked"], cursor["leased"], cursor["available_at"]] == [3, None, None]
    assert await log.renew(poll.lease_id, 60) is None


async def test_an_ack_after_that_changes_nothing(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y")
    await log.pop(group, poll := Poll())
    await clear(log, partition)

    assert await log.outcomes(Ack(partition, 1, poll.lease_id)) == ["noop"]
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_a_claim_that_is_taken_back_does_not_move_the_cursor_back(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y")
    await log.pop(group, poll := Poll())
    await clear(log, partition)

    await log.release(partition, group, poll.lease_id)

    assert (await log.cursor(partition, group))["acked"] == 2


async def test_what_is_pushed_afterwards_wakes_the_groups(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    await clear(log, partition)

    await log.push(partition, "x")

    assert (await log.pop(group)).offsets == [2]


async def test_a_start_that_lies_ahead_still_does(log):
    partition, _ = await log.partition()
    start = log.now + timedelta(seconds=20)
    group = await log.subscribe("hive", "bees", "timestamp", start)
    await log.push(partition, "x")
    await clear(log, partition)

    await log.push(partition, "before the start")
    await log.advance(20)
    await log.push(partition, "after it")

    assert (await log.pop(group)).offsets == [3]


async def test_a_portion_leaves_the_partition_whole(log):
    partition, group = await log.partition()
    for name in "abc":
        await log.push(partition, name)

    assert await clear(log, partition, segments=2) == (2, 3)
    assert await bounds(log, partition) == (3, 3)
    assert (await log.pop(group)).offsets == [3]


async def test_the_rest_ends_where_it_was_meant_to(log):
    partition, group = await log.partition()
    for name in "abc":
        await log.push(partition, name)
    _, rest = await clear(log, partition, segments=2)
    await log.push(partition, "d")

    assert await clear(log, partition, rest, 2) == (1, None)
    assert (await log.pop(group)).offsets == [4]


async def test_what_was_done_ahead_stays_done(log):
    partition, group = await log.partition()
    for name in "abcde":
        await log.push(partition, name)
    await log.execute("update skep.cursor set done = '{[3,5),[6,7)}', acked = 0")
    await log.push(partition, "f", "g")

    await clear(log, partition, 2)

    cursor = await log.cursor(partition, group)
    assert cursor["acked"] == 4
    assert [(each.lower, each.upper) for each in cursor["done"]] == [(6, 7)]


async def test_failures_of_what_was_dropped_are_forgotten(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.push(partition, "b")
    await log.execute("update skep.cursor set failed_offset = '{1,2}', failed_count = '{3,4}'")

    await clear(log, partition, 1)

    cursor = await log.cursor(partition, group)
    assert [cursor["failed_offset"], cursor["failed_count"]] == [[2], [4]]


async def test_deleted_messages_are_not_counted_twice(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b", "c")
    await log.execute("insert into skep.deleted_message values ($1, 2)", partition)

    assert await clear(log, partition) == (2, None)
    assert await log.value("select count(*) from skep.deleted_message") == 0


async def test_an_empty_partition_stays_as_it_is(log):
    partition, _ = await log.partition()

    assert await clear(log, partition) == (0, None)
    assert await bounds(log, partition) == (1, 0)
