from tests.sql.support.rollups import HOUR, MINUTE

CHART = "select * from skep.chart_parked($1, $2, 300, $3, $4)"


async def test_the_most_of_each_bucket_is_shown_by_worker(rollups, log):
    for queue in ("hive", "nest"):
        await log.partition(queue)
    first, second = await rollups.worker("x", 0), await rollups.worker("x", 1)
    for minutes, parked in ((0, 3), (1, 8), (5, 2)):
        at = log.now + minutes * MINUTE
        await rollups.report(first, at=at, parked={"hive": parked})
        await rollups.report(second, at=at, parked={"nest": 1})

    span = (log.now, log.now + HOUR)
    rows = await log.rows(CHART, *span, "hive", 10)
    assert [(row["hostname"], row["number"], row["parked"]) for row in rows] == [
        ("x", 0, 2),
        ("x", 0, 8),
    ]
    assert [row["queue"] for row in await log.rows(CHART, *span, None, 3)] == [
        "hive",
        "nest",
        "hive",
    ]
