from datetime import timedelta

import asyncpg
import pytest

from tests.sql.support.log import NOON, Poll

SEEK = "select * from skep.seek_lanes($1, $2, $3, $4, $5)"
LATER = NOON + timedelta(seconds=60)


async def four_lanes(log):
    lanes = await log.provision("hive", *"dcba")
    group = await log.subscribe("hive", "bees", "new")
    await log.push_lots(dict.fromkeys(lanes, ("x", "y")))
    return group, lanes


async def acked(log, group):
    rows = await log.rows("select acked from skep.cursor where group_id = $1", group)
    return sorted(row["acked"] for row in rows)


async def test_all_lanes_move_step_by_step_also_those_never_consumed_from(log):
    group, _ = await four_lanes(log)

    first = await log.row(SEEK, group, "", 3, "end", None)
    assert await acked(log, group) == [0, 2, 2, 2]
    last = await log.row(SEEK, group, first["next_name"], 3, "end", None)

    assert (first["lanes"], first["next_name"]) == (3, "d")
    assert (last["lanes"], last["next_name"]) == (1, None)
    assert await acked(log, group) == [2, 2, 2, 2]


async def test_a_group_that_sought_the_start_gets_everything_again(log):
    group, lanes = await four_lanes(log)
    await log.pop(group, Poll(lanes=4, auto_ack=True))

    await log.row(SEEK, group, "", 10, "start", None)

    assert len((await log.pop(group, Poll(lanes=4))).messages) == 8
    assert lanes


async def test_a_queue_without_lanes_is_done_at_once(log):
    group = await log.subscribe("hive", "bees")

    assert tuple(await log.row(SEEK, group, "", 10, "end", None)) == (0, None)


async def test_a_group_that_is_gone_is_refused(log):
    with pytest.raises(asyncpg.PostgresError) as refused:
        await log.row(SEEK, 0, "", 10, "end", None)

    assert refused.value.sqlstate == "SK404"


async def test_a_seek_goes_to_before_a_subscription_that_would_start_later(log):
    [lane] = await log.provision("hive", "a")
    await log.push(lane, "x")
    group = await log.subscribe("hive", "bees", "timestamp", LATER)
    await log.advance(1)

    await log.row(SEEK, group, "", 10, "start", None)
    await log.push(lane, "y")
    [born_after] = await log.provision("hive", "b")
    await log.push(born_after, "z")

    taken = await log.pop(group, Poll(lanes=2))
    assert {(message.partition_id, message.offset) for message in taken.messages} == {
        (lane, 1), (lane, 2), (born_after, 1),
    }  # fmt: skip


@pytest.mark.parametrize(("mode", "start"), [("all", None), ("timestamp", LATER)])
async def test_after_a_seek_to_a_time_to_come_nothing_before_it_is_delivered(log, mode, start):
    [lane] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees", mode, start)
    await log.push(lane, "x")

    await log.row(SEEK, group, "", 10, "timestamp", LATER + timedelta(seconds=10))
    [born_after] = await log.provision("hive", "b")
    await log.push(lane, "y")
    await log.push(born_after, "z")
    await log.set_clock(LATER + timedelta(seconds=10))
    await log.push(lane, "x2")
    await log.push(born_after, "z2")

    taken = await log.pop(group, Poll(lanes=2))
    assert {(message.partition_id, message.offset) for message in taken.messages} == {
        (lane, 3), (born_after, 2),
    }  # fmt: skip
