from uuid import uuid4

from tests.sql.support.letters import bury

QUERY = "select skep.start_redrive($1, $2, '{}', $3, 7, false, $4)"


async def test_a_job_ends_at_the_newest_letter_of_its_start(log):
    _, last = await bury(log, "x", "y")
    job, owner = uuid4(), uuid4()

    assert await log.value(QUERY, job, '{"queue":"hive"}', 5, owner)

    row = await log.row("select * from skep.redrive where id = $1", job)
    assert (row["last_letter_id"], row["position"], row["letters_max"]) == (last, 0, 5)
    assert (row["state"], row["owner"], row["total"], row["moved"]) == ("running", owner, 7, 0)
    assert (row["created_at"], row["progressed_at"], row["finished_at"]) == (log.now, log.now, None)


async def test_a_job_that_exists_stays_as_it_is(log):
    job, owner = uuid4(), uuid4()
    await log.value(QUERY, job, "{}", None, owner)

    assert not await log.value(QUERY, job, '{"queue":"other"}', 3, uuid4())
    row = await log.row("select * from skep.redrive where id = $1", job)
    assert (row["owner"], row["letters_max"], row["filter"]) == (owner, None, "{}")


async def test_with_no_letter_at_all_the_job_is_empty(log):
    job = uuid4()
    await log.value(QUERY, job, "{}", None, uuid4())

    assert await log.value("select last_letter_id from skep.redrive where id = $1", job) == 0
