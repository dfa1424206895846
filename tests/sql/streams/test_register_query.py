"""Registering the queries of streams."""

import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.streaming import StateOp, clear_streams, cycle, register, state


@pytest.fixture
def shard(arun, log):
    async def make():
        await clear_streams(log)
        partition, _ = await log.partition()
        query = await register(log)
        await cycle(log, query["query_id"], partition, StateOp("k", "1"))
        return query["query_id"], partition

    return arun(make())


async def test_a_new_query_is_fresh_and_the_next_time_it_is_not(log, shard):
    query_id, partition = shard

    again = await register(log)
    other = await register(log, "other")

    assert [again["query_id"], again["is_fresh"], again["is_reset"]] == [query_id, False, False]
    assert [other["query_id"] == query_id, other["is_fresh"]] == [False, True]
    assert await state(log, query_id, partition) == {"k": "1"}


async def test_another_pipeline_changes_nothing_by_itself(log, shard):
    query_id, partition = shard

    refused = await register(log, config_hash="h2")

    assert [refused["query_id"], refused["config_hash"]] == [query_id, "h1"]
    assert await state(log, query_id, partition) == {"k": "1"}


async def test_a_reset_forgets_the_state_and_takes_the_new_pipeline(log, shard):
    query_id, partition = shard

    reset = await register(log, config_hash="h2", reset=True)

    assert [reset["query_id"], reset["config_hash"], reset["is_reset"]] == [query_id, "h2", True]
    assert await state(log, query_id, partition) == {}
    assert (await register(log, config_hash="h2", reset=True))["is_reset"] is False


async def test_a_reset_waits_for_the_cycle_under_way(log, shard, open_log):
    query_id, partition = shard
    other, observer = await open_log(), await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await cycle(log, query_id, partition, StateOp("late", "1"))

    async with waiting(observer, other, register(other, config_hash="h2", reset=True)):
        await transaction.commit()

    assert await state(log, query_id, partition) == {}
