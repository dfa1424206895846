from datetime import timedelta

import asyncpg
import pytest

from tests.sql.support.log import ALWAYS, NOON, Poll
from tests.sql.support.operating import defer

HOUR = timedelta(hours=1)


async def test_segments_are_appended_where_nobody_else_has_pushed(log):
    a, b = await log.provision("hive", "a", "b")
    [c] = await log.provision("wax", "a")
    await log.push(b, "theirs")

    stored = await log.push_guaranteed({a: "pq", b: "r", c: "stu"}, {a: 0, b: 1, c: 0})

    assert stored == {a: (1, NOON), b: (2, NOON), c: (1, NOON)}


async def test_what_is_stored_is_delivered_in_order(log):
    partition, group = await log.partition()
    await log.push_guaranteed({partition: "ab"}, {partition: 0})
    await log.push_guaranteed({partition: "c"}, {partition: 2})

    taken = await log.pop(group)

    assert [(m.offset, m.transaction_id) for m in taken.messages] == list(enumerate("abc", 1))


async def test_a_partition_with_pushes_the_broker_does_not_know_of_is_left_out(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "theirs")

    stored = await log.push_guaranteed({a: "x", b: "y"}, {a: 0, b: 0})

    assert list(stored) == [b]
    assert await log.value("select head from skep.partition where id = $1", a) == 1


async def test_without_duplicate_detection_it_does_not_matter_who_else_pushed(log):
    await log.configure("hive", dedup_window_s=0)
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "theirs")

    assert await log.push_guaranteed({partition: "x"}, {partition: None}) == {partition: (2, NOON)}


async def test_a_word_that_does_not_reach_the_start_of_the_window_is_not_enough(log):
    [partition] = await log.provision("hive", "a")
    writes, heads = {partition: "x"}, {partition: 0}

    assert (
        await log.push_guaranteed(writes, heads, since=log.now - HOUR + timedelta(seconds=1)) == {}
    )
    assert await log.push_guaranteed(writes, heads, since=log.now - HOUR) == {partition: (1, NOON)}


async def test_a_partition_that_does_not_exist_gets_no_row(log):
    [partition] = await log.provision("hive", "a")

    stored = await log.push_guaranteed(
        {partition: "x", 1_000_000: "y"}, {partition: 0, 1_000_000: 0}
    )

    assert list(stored) == [partition]


async def test_a_queue_that_was_configured_anew_refuses_the_whole_call(log):
    [partition] = await log.provision("hive", "a")
    versions = await log.versions([partition])
    await log.execute("update skep.queue set version = version + 1")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await log.push_guaranteed({partition: "x"}, {partition: 0}, versions=versions)

    assert refusal.value.sqlstate == "SK409"
    assert await log.value("select count(*) from skep.segment") == 0


async def test_idle_partitions_are_woken(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.pop(group, Poll(auto_ack=True))
    assert await log.next_available(group) is None

    await log.push_guaranteed({partition: "b"}, {partition: 1})

    assert await log.next_available(group) == 0


async def test_created_at_never_decreases_although_the_clock_does(log):
    [partition] = await log.provision("hive", "a")
    await log.push_guaranteed({partition: "a"}, {partition: 0})
    await log.set_clock(NOON - HOUR)

    stored = await log.push_guaranteed({partition: "b"}, {partition: 1}, since=ALWAYS)

    assert stored == {partition: (2, NOON)}


async def test_a_partition_with_operations_is_left_to_the_other_way(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a)

    stored = await log.push_guaranteed({a: "x", b: "y"}, {a: 0, b: 0})

    assert list(stored) == [b]
