from tests.sql.support.rollups import MINUTE, used

BUSIEST = "select name from skep.busiest_queues($1, $2, false, $3)"


async def names(log, limit=10):
    rows = await log.rows(BUSIEST, log.now - MINUTE, log.now + MINUTE, limit)
    return [row["name"] for row in rows]


async def reported(rollups, log):
    for queue in ("a", "b", "c", "idle"):
        await log.partition(queue)
    worker = await rollups.worker()
    await rollups.report(
        worker,
        used("a", push_messages=1),
        used("b", push_messages=1, pop_messages=1),
        used("c", ack_success=9),
    )


async def test_the_queues_with_most_messages_come_first(rollups, log):
    await reported(rollups, log)

    assert await names(log) == ["c", "b", "a"]
    assert await names(log, limit=1) == ["c"]


async def test_queues_that_are_gone_are_not_told(rollups, log):
    await reported(rollups, log)
    await log.execute("delete from skep.cursor; delete from skep.partition")
    await log.execute("delete from skep.consumer_group")
    await log.execute("delete from skep.queue where name = 'c'")

    assert await names(log) == ["b", "a"]
