from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.housekeeping import SERVICE, Keeper

PURGE = "select skep.purge_dead_letters($1, $2, $3, $4, $5)"


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def bury_one_a_minute(log, count):
    partition, group = await log.partition()
    for number in range(count):
        await log.push(partition, f"{number}")
        await log.value(
            "select skep.bury_messages($1, $2, array[$3::bigint], '{broken}', '{1}', $4)",
            partition,
            group,
            number + 1,
            log.now,
        )
        await log.advance(60)


async def purge(log, keeper, keep_s, limit=100):
    return await log.value(PURGE, SERVICE, keeper.holder, keeper.run_id, keep_s, limit)


async def test_dead_letters_that_are_old_enough_go_and_the_younger_stay(log, keeper):
    await bury_one_a_minute(log, 4)

    assert await purge(log, keeper, keep_s=150) == 2
    assert [row["transaction_id"] for row in await log.dead_letters()] == ["2", "3"]


async def test_a_step_deletes_no_more_than_its_limit_beginning_with_the_oldest(log, keeper):
    await bury_one_a_minute(log, 3)

    assert await purge(log, keeper, keep_s=0, limit=2) == 2
    assert [row["transaction_id"] for row in await log.dead_letters()] == ["2"]


async def test_it_is_in_the_history_of_the_queue(log, keeper):
    await bury_one_a_minute(log, 3)

    await purge(log, keeper, keep_s=0, limit=2)
    await purge(log, keeper, keep_s=0, limit=2)

    [row] = await keeper.history()
    queue_id = await log.value("select id from skep.queue where name = 'hive'")
    assert (row["queue_id"], row["kind"], row["messages"]) == (queue_id, "dead_letter", 3)


async def test_whoever_does_not_lead_purges_nothing(log, keeper):
    await bury_one_a_minute(log, 1)

    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await log.value(PURGE, SERVICE, uuid4(), uuid4(), 0, 10)

    assert len(await log.dead_letters()) == 1
