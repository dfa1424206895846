from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.rollups import HOUR, MINUTE, used


@pytest.fixture
def worker(arun, log, rollups):
    arun(log.partition("hive"))
    return arun(rollups.worker())


async def test_the_minutes_of_an_hour_that_is_over_are_summed_up(rollups, log, worker):
    noon = log.now
    for minutes in (0, 1, 59):
        await rollups.report(
            worker,
            used("hive", {2: 1}, minutes, push_messages=2, pop_messages=1),
            at=noon + minutes * MINUTE,
        )
    await rollups.report(worker, used("hive", push_messages=50), at=noon + HOUR)
    await log.advance(3_600)

    assert await rollups.roll_up() == noon
    [row] = await log.rows("select * from skep.queue_hour")
    assert [row["at"], row["push_messages"], row["lag_ms_max"]] == [noon, 6, 59]
    assert row["lag_counts"][2] == 3


async def test_each_step_does_one_hour_in_their_order(rollups, log, worker):
    noon = log.now
    for hours in (0, 3):
        await rollups.report(worker, used("hive", push_messages=1), at=noon + hours * HOUR)
    await log.advance(5 * 3_600)

    assert [await rollups.roll_up() for _ in range(3)] == [noon, noon + 3 * HOUR, None]


async def test_an_hour_that_may_still_grow_is_left_alone(rollups, log, worker):
    await rollups.report(worker, used("hive", push_messages=1))
    await log.advance(3_600 + 60)

    assert await rollups.roll_up(settle_s=120) is None


async def test_whoever_does_not_lead_rolls_up_nothing(rollups, log, worker):
    await rollups.report(worker, used("hive", push_messages=1))
    await log.advance(7_200)
    rollups.term = ("housekeeping", uuid4())

    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await rollups.roll_up()
