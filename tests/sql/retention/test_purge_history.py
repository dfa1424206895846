from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.housekeeping import SERVICE, Keeper

PURGE = "select skep.purge_history($1, $2, $3, $4)"


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def record_one_a_minute(log, count):
    for number in range(count):
        await log.value(
            "select skep.record_removal($1, 7, 'retention', $2, 1, 1, $3)",
            uuid4(),
            number,
            log.now,
        )
        await log.advance(60)


async def test_defect_45_the_history_itself_does_not_grow_for_ever(log, keeper):
    await record_one_a_minute(log, 4)

    assert await log.value(PURGE, SERVICE, keeper.holder, 150, 100) == 2
    assert [row["messages"] for row in await keeper.history()] == [2, 3]


async def test_a_step_deletes_no_more_than_its_limit_beginning_with_the_oldest(log, keeper):
    await record_one_a_minute(log, 3)

    assert await log.value(PURGE, SERVICE, keeper.holder, 0, 2) == 2
    assert [row["messages"] for row in await keeper.history()] == [2]


async def test_whoever_does_not_lead_purges_nothing(log, keeper):
    await record_one_a_minute(log, 1)

    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await log.value(PURGE, SERVICE, uuid4(), 0, 10)

    assert len(await keeper.history()) == 1


async def test_records_of_deleted_queues_are_purged_with_it(log, keeper):
    await log.execute("delete from skep.removed_span")
    for queue, age in ((None, "1 day"), ("'old'", "1 day"), ("'new'", "1 minute")):
        await log.execute(
            "insert into skep.removed_span (queue_id, queue, upto, created_to, removed_at) values"
            f" (7, {queue or 'null'}, '5', now(), skep.now() - interval '{age}')"
        )

    assert await log.value(PURGE, SERVICE, keeper.holder, 3600, 100) == 1
    left = await log.rows("select queue from skep.removed_span order by id")
    assert [row["queue"] for row in left] == [None, "new"]
