import asyncio
from datetime import timedelta

import pytest

from tests.sql.support.log import NOON, Ack, Poll
from tests.support.broker import until_blocked_by

MOVE = "select * from skep.seek_cursors($1, $2, $3)"


async def five_messages(log):
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees")
    await log.push(partition, *"vwxyz")
    return partition, group


async def move_one(log, group, partition, acked):
    [row] = await log.rows(MOVE, group, [partition], [acked])
    return row["acked"]


async def popped(log, group):
    return (await log.pop(group, Poll(auto_ack=True))).offsets


async def delete_messages(log, partition, *offsets):
    for offset in offsets:
        await log.execute(
            "insert into skep.deleted_message (partition_id, message_offset) values ($1, $2)",
            partition,
            offset,
        )


async def test_a_cursor_can_go_forwards_and_backwards(log):
    partition, group = await five_messages(log)

    assert await move_one(log, group, partition, 3) == 3
    assert await popped(log, group) == [4, 5]
    assert await move_one(log, group, partition, 1) == 1
    assert await popped(log, group) == [2, 3, 4, 5]


@pytest.mark.parametrize(("acked", "expected"), [(99, 5), (0, 2)])
async def test_a_position_outside_the_partition_becomes_its_nearest_end(log, acked, expected):
    partition, group = await five_messages(log)
    await log.execute("update skep.partition set tail = 3")

    assert await move_one(log, group, partition, acked) == expected


async def test_a_partition_at_rest_is_woken(log):
    partition, group = await five_messages(log)
    await popped(log, group)
    await popped(log, group)
    assert (await log.cursor(partition, group))["available_at"] is None

    await move_one(log, group, partition, 0)

    assert await popped(log, group) == [1, 2, 3, 4, 5]


async def test_a_lease_ends_and_its_late_ack_moves_nothing(log):
    partition, group = await five_messages(log)
    taken = Poll(batch=4)
    await log.pop(group, taken)

    await move_one(log, group, partition, 1)

    ack = Ack(partition, 4, taken.lease_id, group="bees")
    assert await log.outcomes(ack) == ["lease_lost"]
    assert await popped(log, group) == [2, 3, 4, 5]


async def test_a_claim_of_before_cannot_be_given_back_afterwards(log):
    partition, group = await five_messages(log)
    taken = Poll(auto_ack=True)
    await log.pop(group, taken)

    await move_one(log, group, partition, 3)

    assert await log.release(partition, group, taken.lease_id) == 0
    assert (await log.cursor(partition, group))["acked"] == 3


async def test_defect_15_failures_of_before_do_not_count_after_a_seek(log):
    partition, group = await five_messages(log)
    await log.configure("hive", retry_limit=1, retry_delay_ms=0)
    for outcome in ("retried", "retried"):
        taken = Poll(batch=1)
        await log.pop(group, taken)
        nack = Ack(partition, 1, taken.lease_id, "failed", group="bees")
        assert await log.outcomes(nack) == [outcome]
        await move_one(log, group, partition, 0)

    cursor = await log.cursor(partition, group)

    assert (cursor["failed_offset"], cursor["failed_count"], cursor["deliveries"]) == (
        None,
        None,
        0,
    )


async def test_deleted_messages_stay_done_and_others_do_not(log):
    partition, group = await five_messages(log)
    await delete_messages(log, partition, 3, 5)
    await log.execute("update skep.cursor set done = '{[2,6)}' where group_id = $1", group)

    await move_one(log, group, partition, 1)

    done = await log.value("select done::text from skep.cursor where group_id = $1", group)
    assert done == "{[3,4),[5,6)}"


@pytest.mark.parametrize(
    ("acked", "expected", "done"),
    [(1, 3, "{[5,6)}"), (2, 3, "{[5,6)}"), (4, 5, None), (3, 3, "{[5,6)}"), (5, 5, None)],
)
async def test_a_cursor_passes_over_deleted_messages(log, acked, expected, done):
    partition, group = await five_messages(log)
    await delete_messages(log, partition, 2, 3, 5)

    assert await move_one(log, group, partition, acked) == expected
    found = await log.value("select done::text from skep.cursor where group_id = $1", group)
    assert found == done


async def test_other_groups_stay_where_they_are(log):
    partition, group = await five_messages(log)
    other = await log.subscribe("hive", "ants")

    await move_one(log, group, partition, 5)

    assert await popped(log, other) == [1, 2, 3, 4, 5]


async def test_partitions_without_a_cursor_of_the_group_have_no_row(log):
    _, group = await five_messages(log)
    [elsewhere] = await log.provision("wax", "b")

    assert await log.rows(MOVE, group, [elsewhere], [0]) == []


async def test_cursors_are_locked_in_the_order_of_partitions_whatever_the_order_given(
    log, open_log
):
    a, b = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive", "bees")
    other = await open_log()
    lock = "select 1 from skep.cursor where partition_id = $1 and group_id = $2 for update"

    async with log.connection.transaction():
        await log.execute(lock, a, group)
        moving = asyncio.create_task(other.rows(MOVE, group, [b, a], [0, 0]))
        await until_blocked_by(log.connection)
        # It waits for the first partition and does not hold the second yet.
        await log.execute(lock + " nowait", b, group)

    assert len(await moving) == 2


async def test_a_cursor_that_was_moved_does_not_wait_for_a_later_start_and_others_do(log):
    moved, other = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive", "bees", "timestamp", NOON + timedelta(seconds=60))
    await log.push(moved, "x", "y")
    await log.push(other, "z")

    assert await move_one(log, group, moved, 1) == 1

    taken = await log.pop(group, Poll(partitions=2))
    assert [(each.partition_id, each.offset) for each in taken.messages] == [(moved, 2)]
