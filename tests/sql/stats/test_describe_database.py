import asyncio
import json

from tests.sql.support.waiting import eventually

DESCRIBE = "select skep.describe_database($1)"


async def describe(log, limit=100):
    return json.loads(await log.value(DESCRIBE, limit))


async def test_tables_of_the_broker_are_listed_with_their_sizes(log):
    stats = await describe(log)

    sizes = {each["table"]: each for each in stats["tableSizes"]}
    assert sizes["segment"]["totalSizeBytes"] >= sizes["segment"]["tableSizeBytes"] > 0
    assert sizes["segment"]["totalSize"].endswith(("bytes", "kB", "MB"))
    assert {each["schema"] for each in stats["deadTuples"]} == {"skep"}
    assert stats["cacheSummary"]["tables"].keys() == {"diskReads", "cacheHits", "hitRatio"}
    assert stats["database"] == await log.value("select current_database()")


async def test_lists_are_no_longer_than_asked_for(log):
    stats = await describe(log, limit=2)

    for name in ("tableCache", "indexCache", "deadTuples", "autovacuumStatus", "tableSizes"):
        assert len(stats[name]) == 2, name


async def test_whoever_waits_for_a_lock_is_shown_with_a_query_that_is_cut(log, open_log):
    holder, waiter = await open_log(), await open_log()
    async with holder.connection.transaction():
        await holder.execute("lock table skep.trace in access exclusive mode")
        blocked = asyncio.ensure_future(
            waiter.value(f"select count(*) /* {'x' * 500} */ from skep.trace")
        )
        pid = waiter.connection.get_server_pid()
        await eventually(lambda: log.value("select pg_blocking_pids($1) <> '{}'", pid))
        stats = await describe(log)
    await blocked

    [query] = [each for each in stats["activeQueries"] if each["pid"] == pid]
    assert query["waitEventType"] == "Lock"
    assert len(query["query"]) == 200
    assert any(not each["granted"] for each in stats["locks"])
