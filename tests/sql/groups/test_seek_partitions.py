from datetime import timedelta

import asyncpg
import pytest

from tests.sql.support.log import NOON, Poll

SEEK = "select * from skep.seek_partitions($1, $2, $3, $4, $5)"
LATER = NOON + timedelta(seconds=60)


async def four_partitions(log):
    partitions = await log.provision("hive", *"dcba")
    group = await log.subscribe("hive", "bees", "new")
    await log.push_writes(dict.fromkeys(partitions, ("x", "y")))
    return group, partitions


async def acked(log, group):
    rows = await log.rows("select acked from skep.cursor where group_id = $1", group)
    return sorted(row["acked"] for row in rows)


async def test_all_partitions_move_step_by_step_also_those_never_consumed_from(log):
    group, _ = await four_partitions(log)

    first = await log.row(SEEK, group, "", 3, "end", None)
    assert await acked(log, group) == [0, 2, 2, 2]
    last = await log.row(SEEK, group, first["next_name"], 3, "end", None)

    assert (first["partitions"], first["next_name"]) == (3, "d")
    assert (last["partitions"], last["next_name"]) == (1, None)
    assert await acked(log, group) == [2, 2, 2, 2]


async def test_a_group_that_sought_the_start_gets_everything_again(log):
    group, partitions = await four_partitions(log)
    await log.pop(group, Poll(partitions=4, auto_ack=True))

    await log.row(SEEK, group, "", 10, "start", None)

    assert len((await log.pop(group, Poll(partitions=4))).messages) == 8
    assert partitions


async def test_a_queue_without_partitions_is_done_at_once(log):
    group = await log.subscribe("hive", "bees")

    assert tuple(await log.row(SEEK, group, "", 10, "end", None)) == (0, None)


async def test_a_group_that_is_gone_is_refused(log):
    with pytest.raises(asyncpg.PostgresError) as refused:
        await log.row(SEEK, 0, "", 10, "end", None)

    assert refused.value.sqlstate == "SK404"


async def test_a_seek_goes_to_before_a_subscription_that_would_start_later(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")
    group = await log.subscribe("hive", "bees", "timestamp", LATER)
    await log.advance(1)

    await log.row(SEEK, group, "", 10, "start", None)
    await log.push(partition, "y")
    [born_after] = await log.provision("hive", "b")
    await log.push(born_after, "z")

    taken = await log.pop(group, Poll(partitions=2))
    assert {(message.partition_id, message.offset) for message in taken.messages} == {
        (partition, 1), (partition, 2), (born_after, 1),
    }  # fmt: skip


@pytest.mark.parametrize(("mode", "start"), [("all", None), ("timestamp", LATER)])
async def test_after_a_seek_to_a_time_to_come_nothing_before_it_is_delivered(log, mode, start):
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees", mode, start)
    await log.push(partition, "x")

    await log.row(SEEK, group, "", 10, "timestamp", LATER + timedelta(seconds=10))
    [born_after] = await log.provision("hive", "b")
    await log.push(partition, "y")
    await log.push(born_after, "z")
    await log.set_clock(LATER + timedelta(seconds=10))
    await log.push(partition, "x2")
    await log.push(born_after, "z2")

    taken = await log.pop(group, Poll(partitions=2))
    assert {(message.partition_id, message.offset) for message in taken.messages} == {
        (partition, 3), (born_after, 2),
    }  # fmt: skip
