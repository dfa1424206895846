from tests.sql.support.rollups import HOUR, MINUTE

CHART = "select * from skep.chart_groups($1, $2, 300, $3, $4, $5)"


async def sampled(log):
    for queue, group in (("hive", "bees"), ("hive", "wasps"), ("nest", "bees")):
        await log.partition(queue)
        group_id = await log.subscribe(queue, group)
        for minutes, backlog in ((0, 5), (1, 9), (5, 2)):
            await log.execute(
                "insert into skep.group_minute values ($1, $2, $3, $4)",
                group_id,
                log.now + minutes * MINUTE,
                backlog,
                backlog * 10,
            )


async def chart(log, queue=None, group=None, limit=100):
    rows = await log.rows(CHART, log.now, log.now + HOUR, queue, group, limit)
    return [(row["queue"], row["group_name"], row["backlog"], row["lag_s"]) for row in rows]


async def test_the_worst_of_each_bucket_is_shown_newest_first(rollups, log):
    await sampled(log)

    assert await chart(log, "hive", "bees") == [
        ("hive", "bees", 2, 20),
        ("hive", "bees", 9, 90),
    ]


async def test_queues_and_groups_can_be_chosen(rollups, log):
    await sampled(log)

    assert {row[:2] for row in await chart(log, group="bees")} == {
        ("hive", "bees"),
        ("nest", "bees"),
    }
    assert len(await chart(log)) == 6
    assert len(await chart(log, limit=4)) == 4
