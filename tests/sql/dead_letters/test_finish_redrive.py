from uuid import uuid4

import pytest

from tests.sql.dead_letters.test_redrive_letters import start

QUERY = "select skep.finish_redrive($1, $2, $3, $4)"


async def test_a_job_ends_once_and_stays_ended(log):
    owner = uuid4()
    job = await start(log, owner)
    await log.advance()

    assert await log.value(QUERY, job, owner, "failed", "no key")
    assert not await log.value(QUERY, job, None, "cancelled", None)

    row = await log.row("select * from skep.redrive where id = $1", job)
    assert (row["state"], row["error"], row["finished_at"]) == ("failed", "no key", log.now)


async def test_only_its_owner_can_say_that_it_is_done(log):
    job = await start(log, uuid4())

    assert not await log.value(QUERY, job, uuid4(), "done", None)
    assert await log.value("select state from skep.redrive where id = $1", job) == "running"


@pytest.mark.parametrize("owner", [None, uuid4()])
async def test_a_job_that_does_not_exist_cannot_end(log, owner):
    assert not await log.value(QUERY, uuid4(), owner, "done", None)
