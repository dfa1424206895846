"""Storing is as in push_guaranteed; what the poll gets is in pop/test_hand_over."""

from datetime import timedelta

import pytest

from tests.sql.support.log import NOON, Poll
from tests.sql.support.operating import defer

HOUR = timedelta(hours=1)


async def waiting(log):
    """Return a partition that is read, and the poll that waits for more."""
    partition, group = await log.partition()
    await log.push_writes({partition: "z"})
    await log.pop(group, Poll(auto_ack=True))
    return partition, (group, Poll())


async def stored(log, partition):
    """Return everything that a push changes in a partition, but for its id."""
    [row] = await log.rows(
        "select head, tail, pushed_at, wide_to from skep.partition where id = $1", partition
    )
    segments = await log.rows(
        "select first, last, queue_id, created_at, keys, body from skep.segment "
        "where partition_id = $1 order by first",
        partition,
    )
    return tuple(row), list(map(tuple, segments))


@pytest.mark.parametrize("names", [["x"], ["x", "y"], ["x" * 9_000]], ids=["one", "two", "wide"])
async def test_what_is_stored_is_what_push_guaranteed_stores(log, names):
    partition, poll = await waiting(log)
    [other] = await log.provision("hive", "b")
    await log.push_writes({other: "z"})
    await log.push_guaranteed({other: names}, {other: 1})

    claims = await log.hand_over({partition: names}, {partition: 1}, {partition: poll})

    assert claims == {partition: (1, 1 + len(names), False, True)}
    assert await stored(log, partition) == await stored(log, other)


@pytest.mark.parametrize("window", [3600, 0])
async def test_a_guarantee_has_to_reach_the_start_of_the_window(log, window):
    partition, poll = await waiting(log)
    await log.configure("hive", dedup_window_s=window)
    late, early = NOON - HOUR + timedelta(seconds=1), NOON - HOUR

    heads = {partition: 1 if window else None}
    claims = await log.hand_over({partition: "x"}, heads, {partition: poll}, since=late)
    assert bool(claims) is (window == 0)
    if window:
        assert await log.hand_over({partition: "x"}, heads, {partition: poll}, since=early)


@pytest.mark.parametrize(
    "change",
    [
        "update skep.partition set head = head + 1",
        "update skep.queue set version = version + 1",
    ],
)
async def test_what_the_broker_does_not_know_of_lets_nothing_be_stored(log, change):
    partition, poll = await waiting(log)
    versions = await log.versions([partition])
    await log.execute(change)
    before = await stored(log, partition)

    writes, heads = {partition: "x"}, {partition: 1}
    claims = await log.hand_over(writes, heads, {partition: poll}, versions=versions)

    assert (claims, await stored(log, partition)) == ({}, before)


async def test_deferred_operations_come_first(log):
    partition, poll = await waiting(log)
    await defer(log, partition, "push")
    before = await stored(log, partition)

    assert not await log.hand_over({partition: "x"}, {partition: 1}, {partition: poll})

    assert await stored(log, partition) == before


async def test_a_partition_that_is_gone_gets_no_row(log):
    partition, poll = await waiting(log)
    versions = await log.versions([partition])
    gone = partition + 1_000_000

    claims = await log.hand_over({gone: "x"}, {gone: 1}, {gone: poll}, versions=versions)

    assert claims == {}
