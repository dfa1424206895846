from tests.pg.rollups import MINUTE, used

BUSIEST = "select name from skep.busiest_queues($1, $2, false, $3, $4, $5, $6)"


async def names(log, *choice, limit=10):
    queue, namespace, task = [*choice, None, None, None][:3]
    arguments = (log.now - MINUTE, log.now + MINUTE, queue, namespace, task, limit)
    return [row["name"] for row in await log.rows(BUSIEST, *arguments)]


async def reported(rollups, log):
    for queue in ("a", "b", "c", "idle"):
        await log.lane(queue)
    await log.set_options("b", namespace="n", task="t")
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


async def test_only_queues_that_were_chosen_are_told(rollups, log):
    await reported(rollups, log)

    assert await names(log, "a") == ["a"]
    assert await names(log, None, "n") == ["b"]
    assert await names(log, None, None, "t") == ["b"]
    assert await names(log, "idle") == []
