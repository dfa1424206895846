from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.rollups import used

SAMPLE = "select skep.sample_groups($1, $2, $3, $4)"


async def lagging(log, queue):
    [partition_id] = await log.provision(queue, "a")
    group_id = await log.subscribe(queue, "bees")
    await log.push(partition_id, f"{queue}-1", f"{queue}-2")
    return group_id


async def test_groups_of_queues_in_use_are_measured(rollups, log):
    group_id = await lagging(log, "hive")
    await lagging(log, "idle")
    await log.advance(30)
    await rollups.report(await rollups.worker(), used("hive", push_messages=2))

    assert await log.value(SAMPLE, *rollups.term, 10, 100) == 1

    [row] = await log.rows("select * from skep.group_minute")
    assert [row["group_id"], row["backlog"], row["lag_s"]] == [group_id, 2, 30]


async def test_the_last_look_of_a_minute_counts(rollups, log):
    await lagging(log, "hive")
    await rollups.report(await rollups.worker(), used("hive", push_messages=2))

    for _ in range(2):
        await log.advance(20)
        await log.value(SAMPLE, *rollups.term, 10, 100)

    [row] = await log.rows("select lag_s from skep.group_minute")
    assert row["lag_s"] == 40


async def test_no_more_groups_are_measured_than_asked_for(rollups, log):
    for queue in ("hive", "nest"):
        await lagging(log, queue)
    busy = used("nest", push_messages=9)
    await rollups.report(await rollups.worker(), used("hive", push_messages=2), busy)

    assert await log.value(SAMPLE, *rollups.term, 1, 100) == 1
    group_id = await log.value("select group_id from skep.group_minute")
    assert group_id == await log.subscribe("nest", "bees")


async def test_whoever_does_not_lead_samples_nothing(rollups, log):
    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await log.value(SAMPLE, "housekeeping", uuid4(), 1, 1)
