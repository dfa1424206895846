import asyncio

import pytest

from tests.sql.support.housekeeping import Keeper
from tests.sql.support.waiting import eventually


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def test_a_hold_stands_where_it_was_placed(log, keeper):
    await log.partition()
    query = "select * from skep.place_hold('hive', 'spark', '100:100:', 60)"

    placed = await log.row(query)
    stored = await log.row("select position::text, keep_s, updated_at from skep.hold")

    assert tuple(stored) == ("100:100:", 60, log.now)
    assert placed["updated_at"] == log.now


async def test_placing_it_again_moves_it_and_renews_it(log, keeper):
    await log.partition()
    await log.row("select * from skep.place_hold('hive', 'spark', '100:100:', 60)")
    await log.advance(30)
    await log.row("select * from skep.place_hold('hive', 'spark', '200:210:205', 90)")

    stored = await log.rows("select position::text, keep_s, updated_at from skep.hold")

    assert [tuple(row) for row in stored] == [("200:210:205", 90, log.now)]


async def test_without_a_position_it_stands_at_the_present(log, keeper):
    partition, _ = await log.partition()
    await log.push(partition, "before")
    await keeper.hold()
    await log.push(partition, "after")

    seen = await log.rows(
        "select s.first from skep.segment s, skep.hold h "
        "where pg_visible_in_snapshot(s.xid, h.position)"
    )

    assert [row["first"] for row in seen] == [1]


async def test_a_queue_that_does_not_exist_is_not_held(log, keeper):
    assert await keeper.hold(queue="nowhere") is None


async def test_it_waits_for_a_step_of_retention_that_did_not_see_it(log, open_log, keeper):
    partition, _ = await log.partition()
    await log.configure("hive", retention_enabled=True, retention_s=1)
    await log.push(partition, "old")
    await log.advance(10)
    reader = await open_log()
    place = "select * from skep.place_hold('hive', 'spark', null, 60)"

    async with log.connection.transaction():
        await keeper.retain()
        task = asyncio.get_running_loop().create_task(reader.row(place))
        pid = reader.connection.get_server_pid()
        waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1"
        await eventually(lambda: log.value(waits, pid))
        assert not task.done()

    assert await task is not None
