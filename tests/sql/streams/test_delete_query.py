"""Deleting queries."""

from tests.sql.model.test_races import waiting
from tests.sql.support.streaming import StateOp, clear_streams, cycle, register

DELETE = "select skep.delete_query($1)"


async def test_a_query_goes_with_its_state(log):
    await clear_streams(log)
    partition, _ = await log.partition()
    query_id = (await register(log))["query_id"]
    await cycle(log, query_id, partition, StateOp("k", "1"))

    assert await log.value(DELETE, "query") is True
    assert await log.value(DELETE, "query") is False

    assert await log.value("select count(*) from skep.stream_state") == 0


async def test_a_deletion_waits_for_the_cycle_under_way(log, open_log):
    await clear_streams(log)
    other, observer = await open_log(), await open_log()
    partition, _ = await log.partition()
    query_id = (await register(log))["query_id"]
    transaction = log.connection.transaction()
    await transaction.start()
    await cycle(log, query_id, partition, StateOp("k", "1"))

    async with waiting(observer, other, other.value(DELETE, "query")) as deleted:
        await transaction.commit()

    assert deleted.result() is True
    assert await log.value("select count(*) from skep.stream_state") == 0
