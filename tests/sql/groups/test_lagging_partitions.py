from datetime import timedelta

import pytest

from tests.sql.support.log import NOON, Poll
from tests.sql.support.partitions import many_partitions

LAGGING = "select * from skep.lagging_partitions($1, $2, $3, $4, $5, $6)"


async def lagging(log, lag_s=0, *, group=None, queue=None, look_max=1000, limit=100, offset=0):
    return await log.rows(LAGGING, group, queue, lag_s, look_max, limit, offset)


async def names(log, lag_s=0, **narrowed):
    rows = await lagging(log, lag_s, **narrowed)
    return [(row["group_name"], row["partition_name"]) for row in rows if row["partition_id"]]


async def two_partitions(log):
    """Push into b at noon and into a ten seconds later; it is a minute past noon then."""
    a, b = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive", "bees")
    await log.push(b, "x", "y")
    await log.advance(10)
    await log.push(a, "z")
    await log.advance(50)
    return group, a, b


async def test_the_oldest_unread_message_comes_first(log):
    await two_partitions(log)

    assert await names(log, group="bees") == [("bees", "b"), ("bees", "a")]


async def test_partitions_that_are_less_behind_are_left_out(log):
    await two_partitions(log)

    assert await names(log, 50, group="bees") == [("bees", "b"), ("bees", "a")]
    assert await names(log, 51, group="bees") == [("bees", "b")]
    assert await names(log, 61, group="bees") == []


async def test_a_partition_is_told_with_its_backlog_and_age(log):
    _, _, b = await two_partitions(log)

    row = (await lagging(log, group="bees"))[0]

    assert (row["queue_name"], row["partition_id"], row["backlog"]) == ("hive", b, 2)
    assert (row["oldest_at"], row["lag_s"], row["lease_id"]) == (NOON, 60, None)
    assert (row["total"], row["is_partial"]) == (2, False)


async def test_a_partition_that_a_consumer_holds_is_found_with_its_lease(log):
    group, _, b = await two_partitions(log)
    taken = Poll(partition_id=b)
    await log.pop_partitions(group, taken)

    found = await lagging(log, group="bees")

    assert [row["lease_id"] for row in found] == [taken.lease_id, None]


async def test_groups_and_queues_are_told_apart(log):
    await two_partitions(log)
    [c] = await log.provision("wax", "c")
    await log.push(c, "w")

    assert await names(log, queue="wax") == [("__QUEUE_MODE__", "c")]
    assert len(await names(log, queue="hive")) == 2
    assert len(await names(log)) == 3


async def test_queue_mode_is_looked_at_where_it_counts_or_is_asked_for(log):
    await two_partitions(log)
    unused = [("__QUEUE_MODE__", "b"), ("__QUEUE_MODE__", "a")]

    assert ("__QUEUE_MODE__", "b") not in await names(log)
    assert await names(log, group="__QUEUE_MODE__") == unused
    await log.subscribe("hive")
    assert ("__QUEUE_MODE__", "b") in await names(log)


async def test_an_empty_page_still_tells_the_total(log):
    await two_partitions(log)

    [row] = await lagging(log, group="bees", offset=10)

    assert (row["total"], row["partition_id"]) == (2, None)


async def test_partitions_at_rest_are_not_lagging(log):
    group, _, _ = await two_partitions(log)
    await log.pop(group, Poll(auto_ack=True, partitions=2))

    assert await names(log, group="bees") == []


@pytest.mark.parametrize(("look_max", "is_partial"), [(100, True), (600, False)])
async def test_a_search_that_had_to_stop_says_so(log, look_max, is_partial):
    await many_partitions(log, 200)

    found = await lagging(log, group="bees", look_max=look_max, limit=1000)

    assert {row["is_partial"] for row in found} == {is_partial}
    assert len(found) == (50 if is_partial else 200)


async def test_a_blocked_partition_is_found_behind_any_number_of_ready_ones(log):
    await many_partitions(log, 200)
    blocked = "select id from skep.partition where name = '000150'"
    await log.execute(
        f"""
        update skep.cursor set available_at = $1, leased = 2
        where partition_id = ({blocked})
        """,
        NOON + timedelta(hours=1),
    )
    await log.execute(
        f"update skep.segment set created_at = $1 where partition_id = ({blocked})",
        NOON - timedelta(days=1),
    )

    found = await names(log, group="bees", look_max=100)

    assert found[0] == ("bees", "000150")
