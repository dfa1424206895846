from datetime import timedelta

import asyncpg
import pytest

from tests.sql.support.log import NOON, Poll, keys_of
from tests.sql.support.operating import defer

HOUR = timedelta(hours=1)
MANY = [f"name {number}" for number in range(100)]


async def test_it_stores_behind_others_and_returns_what_they_stored(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "theirs", "too")
    await log.push(a, "later")

    stored, gaps = await log.push_contested({a: "xy", b: "z"}, {a: 0, b: 0})

    assert stored == {a: (4, NOON), b: (1, NOON)}
    assert gaps == [(a, 1, NOON, keys_of(["theirs", "too"])), (a, 3, NOON, keys_of(["later"]))]


async def test_a_gap_begins_behind_what_the_broker_knows(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "known")
    await log.push(partition, "theirs")

    _, gaps = await log.push_contested({partition: ["known"]}, {partition: 1})

    assert [(first, keys) for _, first, _, keys in gaps] == [(2, keys_of(["theirs"]))]


@pytest.mark.parametrize("theirs", [["theirs"], [*MANY, "theirs"]], ids=["few", "many"])
async def test_a_key_that_others_stored_undoes_the_whole_call(log, theirs):
    a, b = await log.provision("hive", "a", "b")
    await log.push(b, *theirs)
    ours = [f"our {each}" for each in theirs]

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await log.push_contested({a: "x", b: [*ours, "theirs"]}, {a: 0, b: 0})

    assert refusal.value.sqlstate == "SK410"
    assert await log.value("select sum(head)::int from skep.partition") == len(theirs)
    stored, _ = await log.push_contested({a: "x", b: ours}, {a: 0, b: 0})
    assert sorted(stored) == [a, b]


async def test_a_key_stored_before_the_window_is_new(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "again")
    await log.advance(HOUR.total_seconds())

    stored, gaps = await log.push_contested({partition: ["again"]}, {partition: 0})

    assert list(stored) == [partition]
    assert len(gaps) == 1


async def test_without_duplicate_detection_nothing_is_compared(log):
    await log.configure("hive", dedup_window_s=0)
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")

    assert await log.push_contested({partition: "x"}, {partition: None}) == (
        {partition: (2, NOON)},
        [],
    )


async def test_what_the_guarantee_does_not_cover_is_left_to_the_other_way(log):
    a, b, c, d = await log.provision("hive", "a", "b", "c", "d")
    await defer(log, a)
    await log.execute("update skep.partition set head = 70000 where id = $1", b)
    writes = {a: "x", b: "x", c: "x", d: "x", 1_000_000: "x"}

    stored, _ = await log.push_contested(writes, {a: 0, b: 0, c: 1, d: 0, 1_000_000: 0})

    assert list(stored) == [d]
    too_late = log.now - HOUR + timedelta(seconds=1)
    assert await log.push_contested({d: "y"}, {d: 1}, since=too_late) == ({}, [])


async def test_a_queue_that_was_configured_anew_refuses_the_whole_call(log):
    [partition] = await log.provision("hive", "a")
    versions = await log.versions([partition])
    await log.execute("update skep.queue set version = version + 1")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await log.push_contested({partition: "x"}, {partition: 0}, versions=versions)

    assert refusal.value.sqlstate == "SK409"


async def test_idle_partitions_are_woken(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.pop(group, Poll(auto_ack=True))

    await log.push_contested({partition: "b"}, {partition: 0})

    assert await log.next_available(group) == 0
