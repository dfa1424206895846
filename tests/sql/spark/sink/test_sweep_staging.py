from datetime import timedelta

from skep.broker.retention.retention import STAGING_KEEP, staging_sweep
from skep.db.access.slots import ONE_OFF, Slots
from tests.sql.support.staging import names_in


async def stage_all(log, staging):
    await staging.segment("x")
    await staging.message("y", log.now)
    await staging.reject("z")


async def test_old_staging_and_passing_records_go_and_young_ones_stay(log, staging):
    await stage_all(log, staging)
    await staging.commit(epoch=5, staged=0)
    await stage_all(log, staging)
    passing = type(staging)(log, "passing")
    await passing.commit(staged=0, is_passing=True)
    border = log.now + timedelta(seconds=1)
    await log.advance(2)
    await staging.segment("young", epoch=9, attempt=2)

    assert await log.value("select skep.sweep_staging($1, 100)", border) == 5

    assert await staging.count() == await staging.segments() == 1
    rows = await log.rows("select write_id from skep.sink")
    assert [row["write_id"] for row in rows] == [staging.write_id]


async def test_a_step_removes_no_more_than_it_should(log, staging):
    for name in "abc":
        await staging.segment(name)
    border = log.now + timedelta(seconds=1)

    swept = [await log.value("select skep.sweep_staging($1, 2)", border) for _ in range(3)]

    assert swept == [4, 2, 0]


async def test_segments_that_a_crash_made_forgotten_go_too_and_the_log_stays(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "old")
    await staging.segment("x")
    await log.execute("truncate skep.staged_segment")

    swept = await log.value("select skep.sweep_staging($1, 10)", log.now + timedelta(seconds=1))

    assert swept == 1
    assert await names_in(log) == ["old"]


async def test_the_duty_sweeps_what_is_older_than_a_day(log, log_url, staging):
    slots = Slots(log_url, size=1, server_settings=ONE_OFF, statement_timeout_s=10)
    await slots.open()
    try:
        now = await log.value("select clock_timestamp()")
        await staging.segment("old", attempt=1, staged_at=now - STAGING_KEEP - timedelta(minutes=1))
        await staging.segment(
            "young", attempt=2, staged_at=now - STAGING_KEEP + timedelta(minutes=1)
        )

        assert await staging_sweep(slots).run() is False

        assert await staging.count() == 1
    finally:
        await slots.close()
