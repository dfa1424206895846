"""Queries and the size of their state."""

from tests.sql.support.streaming import StateOp, clear_streams, cycle, register

QUERY = "select * from skep.list_queries($1, $2, $3)"


async def test_queries_come_by_name_with_their_size(log):
    await clear_streams(log)
    a, b = await log.provision("hive", "a", "b")
    for name in ("two", "one", "three"):
        query_id = (await register(log, name))["query_id"]
    await cycle(log, query_id, a, StateOp("k", "1"), StateOp("key", "12"))
    await cycle(log, query_id, b, StateOp("k", "1"))

    rows = await log.rows(QUERY, None, 10, 0)
    second = await log.rows(QUERY, None, 1, 1)
    named = await log.rows(QUERY, "two", 10, 0)

    assert [row["name"] for row in rows] == ["one", "three", "two"]
    sizes = [(row["shard_count"], row["row_count"], row["byte_count"]) for row in rows]
    assert sizes == [(0, 0, 0), (2, 3, 9), (0, 0, 0)]
    assert [(row["name"], row["total"]) for row in second] == [("three", 3)]
    assert [(row["name"], row["total"]) for row in named] == [("two", 1)]
