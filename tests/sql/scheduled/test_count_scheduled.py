from tests.sql.support.scheduling import schedule

COUNT = "select skep.count_scheduled($1, $2, $3)"


async def test_waiting_messages_are_counted_up_to_the_bound(log):
    await schedule(log, "x", "y")
    await schedule(log, "z", partition="b")
    await schedule(log, "x", queue="nest")

    assert await log.value(COUNT, None, None, 100) == 4
    assert await log.value(COUNT, "hive", None, 100) == 3
    assert await log.value(COUNT, "hive", "b", 100) == 1
    assert await log.value(COUNT, None, None, 3) == 3
    assert await log.value(COUNT, "no such queue", None, 3) == 0
