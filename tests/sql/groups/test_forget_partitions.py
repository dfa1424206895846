from datetime import timedelta

import asyncpg
import pytest

from tests.sql.support.log import NOON, Ack, Poll

FORGET = "select * from skep.forget_partitions($1, $2, $3, $4, $5)"


async def dead_and_done(log):
    """Let a group bury a message in one partition and finish another; return queue, group."""
    partitions = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive", "bees")
    await log.push_writes(dict.fromkeys(partitions, ("x", "y")))
    taken = Poll(partitions=2)
    await log.pop(group, taken)
    await log.ack(
        Ack(partitions[0], 1, taken.lease_id, "dlq", group="bees"),
        Ack(partitions[1], 2, taken.lease_id, group="bees"),
    )
    return await log.value("select id from skep.queue where name = 'hive'"), group


async def cursors(log, group):
    query = "select acked from skep.cursor where group_id = $1 order by partition_id"
    return [row["acked"] for row in await log.rows(query, group)]


async def test_cursors_and_dead_letters_go_step_by_step(log):
    queue, group = await dead_and_done(log)

    first = await log.row(FORGET, queue, group, False, "", 1)
    assert len(await cursors(log, group)) == 1
    last = await log.row(FORGET, queue, group, False, first["next_name"], 1)

    assert [tuple(first), tuple(last)] == [(1, "b"), (1, None)]
    assert await cursors(log, group) == []
    assert await log.dead_letters() == []


async def test_other_groups_keep_theirs(log):
    queue, group = await dead_and_done(log)
    await log.execute("update skep.dead_letter set group_id = -1")

    await log.row(FORGET, queue, group, False, "", 10)

    assert len(await cursors(log, await log.subscribe("hive"))) == 2
    assert len(await log.dead_letters()) == 1


async def test_a_kept_subscription_starts_again_by_its_rule(log):
    queue, group = await dead_and_done(log)
    assert await cursors(log, group) == [1, 2]

    assert tuple(await log.row(FORGET, queue, group, True, "", 10)) == (2, None)

    assert await cursors(log, group) == [0, 0]
    assert await log.dead_letters() == []


async def test_a_subscription_that_is_gone_cannot_be_kept(log):
    queue, _ = await dead_and_done(log)

    with pytest.raises(asyncpg.PostgresError) as refused:
        await log.row(FORGET, queue, 0, True, "", 10)

    assert refused.value.sqlstate == "SK404"


async def test_a_kept_subscription_that_starts_later_delivers_nothing_from_before(log):
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees")
    queue = await log.value("select id from skep.queue where name = 'hive'")
    await log.value("select skep.change_subscription($1, $2)", "bees", NOON + timedelta(seconds=10))

    await log.row(FORGET, queue, group, True, "", 10)
    await log.push(partition, "x")
    await log.advance(10)
    await log.push(partition, "y")

    assert (await log.pop(group)).offsets == [2]
