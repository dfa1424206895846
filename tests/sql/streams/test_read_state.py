"""Which state rows are found."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.sql.support.streaming import StateOp, clear_streams, cycle, register

QUERY = "select key from skep.read_state($1, $2, $3, $4, $5)"
texts = st.text(st.sampled_from("ab_%\\\x1fé\U0010ffff"), max_size=4)


async def filled(log, *ops):
    await clear_streams(log)
    await log.clear()
    partition, _ = await log.partition()
    shard = (await register(log))["query_id"], partition
    await cycle(log, *shard, *ops)
    return shard


async def test_conditions_are_joined(log):
    shard = await filled(
        log, StateOp("a1", "1", 10), StateOp("a2", "1", 20), StateOp("b", "1", 5), StateOp("c", "1")
    )

    async def keys(wanted=(), prefix=None, ripe_at=None):
        return [row[0] for row in await log.rows(QUERY, *shard, wanted, prefix, ripe_at)]

    assert await keys() == ["a1", "a2", "b", "c"]
    assert await keys(["c", "a2", "nothing"]) == ["a2", "c"]
    assert await keys(ripe_at=10) == ["a1", "b"]
    assert await keys(prefix="a", ripe_at=10) == ["a1"]
    assert await keys(["a2"], "a", 10) == []


async def test_ripe_rows_remember_in_which_version_they_were_offered(log):
    shard = await filled(log, StateOp("a", "1", 10), StateOp("b", "1", 20))

    async def offered(ripe_at=None):
        rows = await log.rows(QUERY.replace("key", "*", 1), *shard, ["a", "b"], None, ripe_at)
        return {row["key"]: row["offered_version"] == row["version"] for row in rows}

    assert await offered() == {"a": False, "b": False}
    assert await offered(10) == {"a": True}
    await cycle(log, *shard, StateOp("a", "2", 10))
    assert await offered() == {"a": False, "b": False}


# Each example fills a query of its own.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(keys=st.sets(texts, max_size=8), prefix=texts)
@example(keys={"a_b", "axb"}, prefix="a_")
def test_a_prefix_is_taken_literally(arun, log, keys, prefix):
    async def check():
        shard = await filled(log, *(StateOp(key, "1") for key in keys))
        found = [row[0] for row in await log.rows(QUERY, *shard, [], prefix, None)]
        assert found == sorted((key for key in keys if key.startswith(prefix)), key=str.encode)

    arun(check())
