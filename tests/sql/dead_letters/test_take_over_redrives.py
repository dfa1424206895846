from uuid import uuid4

from tests.sql.dead_letters.test_redrive_letters import start

QUERY = "select id from skep.take_over_redrives($1, 60)"


async def taken(log, owner):
    return {row[0] for row in await log.rows(QUERY, owner)}


async def test_a_job_is_taken_over_once_it_stood_still_for_long_enough(log):
    await log.execute("delete from skep.redrive")
    job, heir = await start(log, uuid4()), uuid4()
    await log.advance(60)
    assert await taken(log, heir) == set()

    await log.advance(1)

    assert await taken(log, heir) == {job}
    assert await log.value("select owner from skep.redrive where id = $1", job) == heir
    assert await taken(log, uuid4()) == set(), "it was just taken over"


async def test_a_job_that_ended_is_left_alone(log):
    await log.execute("delete from skep.redrive")
    job = await start(log, uuid4())
    await log.value("select skep.finish_redrive($1, null, 'done', null)", job)
    await log.advance(3600)

    assert await taken(log, uuid4()) == set()


async def test_a_job_whose_batch_is_in_flight_is_left_alone(log, open_log):
    await log.execute("delete from skep.redrive")
    job = await start(log, uuid4())
    other = await open_log()
    await other.advance(3600)

    async with log.connection.transaction():
        await log.value("select id from skep.redrive where id = $1 for no key update", job)
        assert await taken(other, uuid4()) == set()
