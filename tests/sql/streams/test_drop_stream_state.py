"""State of partitions that are gone."""

from tests.sql.support.streaming import StateOp, clear_streams, cycle, register, state


async def test_only_the_state_of_these_partitions_goes(log):
    await clear_streams(log)
    a, b = await log.provision("hive", "a", "b")
    queries = [(await register(log, name))["query_id"] for name in ("one", "two")]
    for query_id in queries:
        for partition in (a, b):
            await cycle(log, query_id, partition, StateOp("k", "1"))

    assert await log.value("select skep.drop_stream_state($1)", [a, 1 << 50]) == 2

    for query_id in queries:
        assert await state(log, query_id, a) == {}
        assert await state(log, query_id, b) == {"k": "1"}
