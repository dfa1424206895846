import asyncpg
import pytest

from tests.pg.log import Poll

SEEK = "select * from skep.seek_lanes($1, $2, $3, $4, $5)"


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
