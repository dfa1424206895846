from tests.sql.support.rollups import HOUR, MINUTE, used

ACTIVITY = "select at, push_messages from skep.queue_activity($1, $2, $3) order by at"


async def reported(rollups, log):
    """Two hours of reports: 1 at noon, 2 a minute later, 4 an hour later."""
    await log.partition("hive")
    worker, noon = await rollups.worker(), log.now
    for at, count in ((noon, 1), (noon + MINUTE, 2), (noon + HOUR, 4)):
        await rollups.report(worker, used("hive", push_messages=count), at=at)
    return noon


async def test_minutes_are_those_from_the_first_moment_up_to_before_the_second(rollups, log):
    noon = await reported(rollups, log)

    rows = await log.rows(ACTIVITY, noon + MINUTE, noon + HOUR, False)

    assert list(map(tuple, rows)) == [(noon + MINUTE, 2)]


async def test_hours_come_in_the_place_of_their_minutes_once_they_are_rolled_up(rollups, log):
    noon = await reported(rollups, log)
    before = await log.rows(ACTIVITY, noon, noon + 2 * HOUR, True)
    await log.advance(3_600 + 60)
    await rollups.roll_up()

    after = await log.rows(ACTIVITY, noon, noon + 2 * HOUR, True)

    assert list(map(tuple, before)) == [(noon, 1), (noon + MINUTE, 2), (noon + HOUR, 4)]
    assert list(map(tuple, after)) == [(noon, 3), (noon + HOUR, 4)]
