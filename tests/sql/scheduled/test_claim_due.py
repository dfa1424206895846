import asyncio

from tests.sql.support.scheduling import schedule, waiting
from tests.support.broker import until_blocked_by

CLAIM = "select skep.claim_due($1, $2, skep.now())"


async def test_nothing_due_is_null(log):
    await schedule(log, "x", delay_s=1)

    assert await log.value(CLAIM, 10, 1000) is None


async def test_the_first_due_are_claimed_up_to_the_bounds(log):
    ids = [answer.scheduled_id for answer in await schedule(log, "x", "y", "z", delay_s=0)]

    assert await log.value(CLAIM, 2, 1 << 20) == ids[:2]
    assert await log.value(CLAIM, 10, 1) == ids[:1]


async def test_partitions_that_do_not_exist_are_created_and_nothing_is_taken_away(log):
    await schedule(log, "x", delay_s=0)

    await log.value(CLAIM, 10, 1000)

    assert await log.value("select array_agg(name) from skep.partition") == ["a"]
    assert await waiting(log) == ["x"]


async def test_what_waits_for_a_queue_that_is_deleted_meanwhile_is_dropped(log, open_log):
    await schedule(log, "x", delay_s=0)
    other = await open_log()

    async with other.connection.transaction():
        await other.execute("select from skep.queue where name = 'hive' for update")
        claim = asyncio.create_task(log.value(CLAIM, 10, 1000))
        await until_blocked_by(other.connection)
        await other.execute("select skep.remove_queue('hive')")
    await claim

    assert await log.value("select count(*) from skep.queue") == 0
    assert await log.value("select count(*) from skep.scheduled") == 0
