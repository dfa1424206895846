from tests.sql.support.analyses import at
from tests.sql.support.rollups import MINUTE

COLUMNS = ("queue", "group_name", "samples", "backlog_mean", "backlog_max", "lag_s_mean")


async def sample(log, group, *backlogs, queue="hive", hours=0):
    await log.partition(queue)
    group_id = await log.subscribe(queue, group)
    for minutes, backlog in enumerate(backlogs):
        await log.execute(
            "insert into skep.group_minute values ($1, $2, $3, $4)",
            group_id,
            at(hours) + minutes * MINUTE,
            backlog,
            backlog * 10,
        )


async def test_samples_are_summed_up_by_hour_and_group(rollups, analyses, log):
    await sample(log, "bees", 5, 9, 1)
    await sample(log, "bees", 2, hours=1)
    await sample(log, "wasps", 4, queue="nest")

    assert await analyses.gather("lags", upto=2) == 3
    assert await analyses.table("lag", *COLUMNS, "lag_s_max") == [
        ("hive", "bees", 3, 5.0, 9, 50.0, 90),
        ("nest", "wasps", 1, 4.0, 4, 40.0, 40),
        ("hive", "bees", 1, 2.0, 2, 20.0, 20),
    ]


async def test_an_hour_that_is_being_purged_does_not_take_the_place_of_a_whole_one(
    rollups, analyses, log
):
    await sample(log, "bees", 5, 9, 1)
    await analyses.gather("lags")
    await log.execute("delete from skep.group_minute where at < $1", at(0) + 2 * MINUTE)

    assert await analyses.gather("lags") == 0
    assert await analyses.table("lag", "samples", "backlog_max") == [(3, 9)]


async def test_the_groups_furthest_behind_are_kept_if_there_are_too_many(rollups, analyses, log):
    await sample(log, "bees", 5)
    await sample(log, "wasps", 6)

    assert await analyses.gather("lags", limit=1) == 1
    assert await analyses.table("lag", "group_name") == [("wasps",)]
