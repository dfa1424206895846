from tests.sql.support.staging import Staging


async def test_what_a_write_staged_up_to_an_epoch_goes_and_nothing_else(log, staging):
    await staging.segment("x")
    await staging.message("y", log.now, epoch=1)
    await staging.reject("z", epoch=1)
    await staging.segment("newer", epoch=2, attempt=2)
    other = Staging(log, "another")
    await other.segment("theirs", attempt=3)
    elsewhere = Staging(log, target="queue:bees")
    await elsewhere.segment("elsewhere", attempt=4)

    assert await log.value("select skep.discard_staging($1, 1)", staging.write_id) == 3
    assert await log.value("select skep.discard_staging($1, 1)", staging.write_id) == 0

    assert await staging.count() == 1
    assert await other.count() == await elsewhere.count() == 1
    assert await staging.segments() == 3
