from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.rollups import used

PURGE = "select skep.purge_metrics($1, $2, $3, $4, $5)"


@pytest.fixture
def reported(arun, log, rollups):
    """Three minutes of reports, the last of them now."""

    async def report():
        await log.partition("hive")
        worker = await rollups.worker()
        for _ in range(3):
            await log.advance(60)
            await rollups.report(worker, used("hive", push_messages=1), parked={"hive": 1})

    arun(report())


async def test_defect_45_rollups_do_not_grow_for_ever(rollups, log, reported):
    assert await log.value(PURGE, *rollups.term, 90, 3_600, 100) == 1

    for table in ("queue_minute", "parked_minute", "worker_minute"):
        assert await rollups.count(table) == 2
    assert await rollups.count("metric_worker") == 1


async def test_a_step_deletes_no_more_than_its_limit_beginning_with_the_oldest(
    rollups, log, reported
):
    await log.advance(3_600)

    assert await log.value(PURGE, *rollups.term, 0, 86_400, 2) == 2

    [row] = await log.rows("select at from skep.queue_minute")
    assert row["at"] == (await log.value("select max(at) from skep.worker_minute"))


async def test_workers_that_were_silent_for_long_are_forgotten(rollups, log, reported):
    await log.advance(86_400)

    await log.value(PURGE, *rollups.term, 0, 3_600, 100)

    assert await rollups.count("metric_worker") == 0


async def test_whoever_does_not_lead_purges_no_metrics(rollups, log, reported):
    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await log.value(PURGE, "housekeeping", uuid4(), 0, 0, 10)

    assert await rollups.count("queue_minute") == 3
