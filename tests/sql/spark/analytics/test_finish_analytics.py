from tests.sql.support.analyses import at
from tests.sql.support.rollups import HOUR

DAY = 24 * HOUR


async def test_a_run_is_put_on_record(analyses, log):
    await analyses.finish(0, 1)

    (row,) = await log.rows("select * from skep.analytics_run")
    assert (row["since"], row["upto"], row["messages"]) == (at(0), at(1), 7)
    assert (row["taken_at"], row["finished_at"]) == (at(1), log.now)


async def test_whole_days_that_were_kept_long_enough_go(analyses, log):
    await analyses.store(hours=0)
    await analyses.store(hours=11)
    await analyses.store(hours=12)
    await log.set_clock(at(0) + 3 * DAY)

    dropped = await analyses.finish(70, 71, keep_days=2)

    assert dropped == 4  # the hours of noon and 23:00, with a key each
    assert await analyses.table("volume", "hour") == [(at(12),)]


async def test_old_runs_are_forgotten_but_not_how_far_they_had_come(analyses, log):
    await analyses.finish(0, 1)
    await analyses.finish(1, 2)
    await log.set_clock(at(0) + 9 * DAY)
    await analyses.finish(100, 101, keep_days=2)

    assert await log.rows("select upto from skep.analytics_run order by id") == [
        (at(2),),
        (at(101),),
    ]
    assert await log.value("select watermark from skep.analytics_progress()") == at(2)
