import asyncpg
import pytest

from tests.sql.support.enqueued import sequence, stage, staged, staged_ids, stored
from tests.sql.support.log import Poll


async def test_messages_leave_the_staged_ones_and_arrive_in_their_partitions(log):
    a, b = await log.provision("hive", "a", "b")
    await stage(log, "x", "y", "z")

    rows = await sequence(log, await staged_ids(log), {a: ["x", "y"], b: ["z"]})

    assert [(row.partition, row.partition_id, row.first) for row in rows] == [(1, a, 1), (2, b, 1)]
    assert await stored(log) == [("a", 1, "x"), ("a", 2, "y"), ("b", 1, "z")]
    assert await staged(log) == []


async def test_a_partition_with_a_duplicate_gets_nothing_and_its_messages_stay_staged(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "x")
    await stage(log, "x", "y", "z")

    first, second = await sequence(log, await staged_ids(log), {a: ["x", "y"], b: ["z"]})

    assert (first.first, first.duplicate_index, first.duplicate_offset) == (None, [0], [1])
    assert second.first == 1
    assert await staged(log) == ["x", "y"]
    assert await stored(log) == [("a", 1, "x"), ("b", 1, "z")]


async def test_what_repeats_another_is_dropped_with_the_rest(log):
    [a] = await log.provision("hive", "a")
    await stage(log, "x", "again", "y")
    x, again, y = await staged_ids(log)

    await sequence(log, [x, y], {a: ["x", "y"]}, dropped=[again])

    assert await stored(log) == [("a", 1, "x"), ("a", 2, "y")]
    assert await staged(log) == []


async def test_there_may_be_nothing_to_store(log):
    await stage(log, "again")

    assert await sequence(log, [], {}, dropped=await staged_ids(log)) == []
    assert await staged(log) == []


async def test_what_another_session_has_taken_is_not_stored(log):
    [a] = await log.provision("hive", "a")
    await stage(log, "x", "y")
    ids = await staged_ids(log)
    await sequence(log, ids[:1], {a: ["x"]})

    assert await sequence(log, ids, {a: ["x", "y"]}) is None
    assert await stored(log) == [("a", 1, "x")]
    assert await staged(log) == ["y"]


async def test_two_sessions_at_once_store_everything_once(log, open_log):
    [a] = await log.provision("hive", "a")
    await stage(log, "x")
    ids = await staged_ids(log)
    other = await open_log()
    async with other.connection.transaction():
        assert await sequence(other, ids, {a: ["x"]})

        assert await sequence(log, ids, {a: ["x"]}) is None
    assert await sequence(log, ids, {a: ["x"]}) is None

    assert await stored(log) == [("a", 1, "x")]


async def test_rules_that_were_changed_meanwhile_stop_it(log):
    [a] = await log.provision("hive", "a")
    await stage(log, "x")
    versions = await log.versions([a])
    await log.execute("update skep.queue set version = version + 1")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await sequence(log, await staged_ids(log), {a: ["x"]}, versions=versions)

    assert refusal.value.sqlstate == "SK409"
    assert (await staged(log), await stored(log)) == (["x"], [])


async def test_a_partition_that_is_gone_stops_it_and_nothing_is_lost(log):
    [a] = await log.provision("hive", "a")
    await stage(log, "x", "y")

    with pytest.raises(asyncpg.PostgresError, match="deleted meanwhile") as refusal:
        await sequence(log, await staged_ids(log), {a: ["x"], 999_999: ["y"]})

    assert refusal.value.sqlstate == "SK409"
    assert (await staged(log), await stored(log)) == (["x", "y"], [])


async def test_a_group_that_had_read_all_is_woken(log):
    partition, group = await log.partition()
    await log.pop(group)
    await stage(log, "x")

    await sequence(log, await staged_ids(log), {partition: ["x"]})

    assert [each.transaction_id for each in (await log.pop(group, Poll())).messages] == ["x"]
