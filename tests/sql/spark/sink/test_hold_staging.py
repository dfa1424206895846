from datetime import timedelta

HOLD = "select skep.hold_staging($1, 0, $2)"


async def test_everything_that_the_attempts_staged_is_counted(log, staging):
    await staging.segment("x")
    await staging.message("y", log.now)
    await staging.reject("z", attempt=2)
    await staging.segment("other", attempt=3)
    await staging.segment("later", epoch=1)

    assert await log.value(HOLD, staging.write_id, [1, 2]) == 3


async def test_a_segment_without_its_bytes_does_not_count(log, staging):
    await staging.segment("x")
    await staging.segment("y")
    await log.execute("delete from skep.segment where partition_id = -1 and first = 1")

    assert await log.value(HOLD, staging.write_id, [1]) == 1


async def test_what_is_held_is_not_swept(log, staging, open_log):
    await staging.segment("x")
    await staging.message("y", log.now)
    await staging.reject("z")
    other = await open_log()
    sweep = "select skep.sweep_staging($1, 10)"
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value(HOLD, staging.write_id, [1])

    assert await other.value(sweep, log.now + timedelta(seconds=1)) == 0

    await transaction.rollback()
    assert await other.value(sweep, log.now + timedelta(seconds=1)) == 4
