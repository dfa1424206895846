from tests.sql.support.rollups import HOUR, MINUTE

UNROLLED = "select * from skep.unrolled_samples($1)"


async def test_the_oldest_hour_that_is_over_comes_first_worker_by_worker(rollups, log):
    first, second = await rollups.worker(), await rollups.worker(number=1)
    noon = log.now
    for worker, at in ((second, noon), (first, noon + MINUTE), (first, noon + HOUR)):
        await rollups.report(worker, at=at)
    await log.advance(3 * 3_600)

    rows = await log.rows(UNROLLED, 0)

    assert [(row["hour"], row["worker_id"]) for row in rows] == [(noon, first), (noon, second)]


async def test_an_hour_is_not_shown_before_it_has_settled(rollups, log):
    await rollups.report(await rollups.worker())
    await log.advance(3_660)

    assert await log.rows(UNROLLED, 120) == []
    assert len(await log.rows(UNROLLED, 0)) == 1
