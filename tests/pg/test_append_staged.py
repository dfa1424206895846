from datetime import timedelta

from tests.pg.log import Poll
from tests.pg.staging import names_in

APPEND = "select skep.append_staged($1, 0, $2, $3, $4, $5, skep.now())"


async def append(staging, *attempts):
    names = list(attempts or ("one",))
    ids, queues, partitions, _ = await staging.lanes(*names)
    return await staging.log.value(APPEND, staging.write_id, names, ids, queues, partitions)


async def test_segments_follow_each_other_by_task_and_number_behind_what_is_there(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "old")
    await staging.segment("c", "d", task=1)
    await staging.segment("a", task=0)
    await staging.segment("b", task=0)
    await staging.segment("other", partition="b")

    assert await append(staging) == 5

    assert await names_in(log) == ["old", "a", "b", "c", "d"]
    query = "select first, last from skep.segment where partition_id = $1 order by first"
    assert [tuple(row) for row in await log.rows(query, lane)] == [(1, 1), (2, 2), (3, 3), (4, 5)]
    row = await log.row("select head, pushed_at from skep.partition where id = $1", lane)
    assert tuple(row) == (5, log.now)


async def test_time_never_goes_back_along_a_lane(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "old")
    before = log.now
    await log.set_clock(before - timedelta(hours=1))
    await staging.segment("new")

    await append(staging)

    query = "select created_at from skep.segment where partition_id = $1"
    assert {row["created_at"] for row in await log.rows(query, lane)} == {before}


async def test_idle_consumers_find_what_was_written(log, staging):
    lane, group = await log.lane()
    await log.push(lane, "old")
    first = await log.pop(group, Poll(auto_ack=True))
    assert first.offsets == [1]
    assert (await log.pop(group, Poll())).messages == []
    await staging.segment("new")

    await append(staging)

    assert (await log.pop(group, Poll())).offsets == [2]


async def test_nothing_staged_is_nothing_stored(log, staging):
    assert await append(staging) == 0
