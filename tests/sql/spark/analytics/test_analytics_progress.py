from tests.sql.support.analyses import at

PROGRESS = "select watermark, finished_at, messages from skep.analytics_progress()"


async def test_before_the_first_run_nothing_is_known(analyses, log):
    assert tuple(await log.row(PROGRESS)) == (None, None, None)
    assert await log.value("select now from skep.analytics_progress()") == log.now


async def test_the_watermark_is_the_end_of_what_follows_without_a_gap(analyses, log):
    await analyses.finish(0, 2)
    await analyses.finish(2, 5)
    await log.set_clock(at(9))
    await analyses.finish(1, 3)

    assert tuple(await log.row(PROGRESS)) == (at(5), at(9), 7)


async def test_hours_behind_a_gap_are_no_progress_until_it_is_closed(analyses, log):
    await analyses.finish(0, 2)
    await analyses.finish(3, 4)
    assert (await log.row(PROGRESS))[0] == at(2)

    await analyses.finish(2, 4)
    assert (await log.row(PROGRESS))[0] == at(4)
