from tests.sql.support.rollups import used

RATES = "select * from skep.queue_rates($1, 60, $2)"


async def test_rates_are_of_the_last_minute_and_the_part_of_this_one(rollups, log):
    for queue in ("hive", "nest"):
        await log.partition(queue)
    worker = await rollups.worker()
    await rollups.report(worker, used("hive", push_messages=500, pop_messages=500))
    await log.advance(60)
    await rollups.report(worker, used("hive", push_messages=60, pop_messages=30))
    await log.advance(75)
    await rollups.report(worker, used("hive", push_messages=15))
    hive, nest = await rollups.queue_id("hive"), await rollups.queue_id("nest")

    rows = await log.rows(RATES, [hive, nest], 3)

    assert [tuple(row) for row in rows] == [
        (hive, 1.0, 0.4, [0, 500, 60], [0, 500, 30]),
        (nest, 0, 0, [0, 0, 0], [0, 0, 0]),
    ]
    assert [tuple(row) for row in await log.rows(RATES, [nest], 0)] == [(nest, 0, 0, [], [])]
