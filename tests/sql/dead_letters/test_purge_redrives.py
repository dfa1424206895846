from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.housekeeping import SERVICE, Keeper
from tests.sql.support.letters import bury, redrive

PURGE = "select skep.purge_redrives($1, $2, $3, $4)"
START = "select skep.start_redrive($1, '{}', '{}', null, 0, false, $2)"
FINISH = "select skep.finish_redrive($1, null, 'done', null)"


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def purge(log, keeper, *, keep_s=60, limit=100):
    return await log.value(PURGE, SERVICE, keeper.holder, keep_s, limit)


async def start_jobs(log, count, *, finished=True):
    """Start jobs and finish them a second later; return their ids."""
    jobs = [uuid4() for _ in range(count)]
    for job in jobs:
        await log.value(START, job, uuid4())
        await log.advance(1)
        if finished:
            await log.value(FINISH, job)
    return jobs


async def jobs_left(log):
    return {row["id"] for row in await log.rows("select id from skep.redrive")}


async def redriven(log, *names):
    """Redrive letters; return their ids."""
    letters = await bury(log, *names)
    [partition] = await log.provision("hive", "a")
    await redrive(log, dict.fromkeys(letters, partition))
    return letters


async def test_jobs_that_ended_long_ago_go(log, keeper):
    await start_jobs(log, 2)
    await log.advance(60)
    young = await start_jobs(log, 1)

    assert await purge(log, keeper) == 2
    assert await jobs_left(log) == set(young)


async def test_a_job_that_runs_or_has_just_ended_is_kept_however_old_it_is(log, keeper):
    running, ended = await start_jobs(log, 2, finished=False)
    await log.advance(1000)
    await log.value(FINISH, ended)

    assert await purge(log, keeper) == 0
    assert await jobs_left(log) == {running, ended}


async def test_what_became_of_letters_is_forgotten_after_the_same_time(log, keeper):
    await redriven(log, "x", "y")
    await log.advance(61)
    [young] = await redriven(log, "z")

    assert await purge(log, keeper) == 2
    assert await log.value("select array_agg(id) from skep.redriven_letter") == [young]


async def test_a_step_deletes_no_more_of_each_than_its_limit(log, keeper):
    await start_jobs(log, 3)
    await redriven(log, "x", "y", "z")
    await log.advance(61)

    assert await purge(log, keeper, limit=2) == 2
    assert len(await jobs_left(log)) == 1
    assert await log.value("select count(*) from skep.redriven_letter") == 1


async def test_whoever_does_not_lead_purges_nothing(log, keeper):
    await start_jobs(log, 1)

    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await log.value(PURGE, SERVICE, uuid4(), -1, 10)

    assert len(await jobs_left(log)) == 1
