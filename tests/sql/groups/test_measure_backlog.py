import pytest

from tests.sql.support.log import Ack, Poll
from tests.sql.support.partitions import many_partitions

MEASURE = "select * from skep.measure_backlog($1, $2)"


async def measure(log, group, exact_max=10_000):
    return await log.row(MEASURE, [group], exact_max)


async def test_a_group_that_read_everything_has_no_backlog(log):
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees")
    await log.push(partition, "x")
    await log.pop(group, Poll(auto_ack=True))
    await log.pop(group)

    found = await measure(log, group)

    assert (found["partitions"], found["partitions_behind"], found["backlog"], found["lag_s"]) == (
        1,
        0,
        0,
        0,
    )


async def test_the_backlog_is_the_sum_over_partitions_and_the_lag_that_of_the_oldest(log):
    partitions = await log.provision("hive", "a", "b", "c")
    group = await log.subscribe("hive", "bees")
    await log.push(partitions[0], "x", "y")
    await log.advance(30)
    await log.push(partitions[1], "z")
    await log.advance(10)

    found = await measure(log, group)

    assert (found["partitions"], found["partitions_behind"]) == (3, 2)
    assert (found["backlog"], found["lag_s"]) == (3, 40)
    assert found["is_estimated"] is False


async def test_what_is_under_lease_is_not_finished(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y")
    await log.pop(group, Poll(batch=1))

    found = await measure(log, group)

    assert (found["backlog"], found["is_held"]) == (2, True)


async def test_an_ended_lease_does_not_hold(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    await log.pop(group, Poll(lease_s=10))
    await log.advance(12)

    found = await measure(log, group)

    assert (found["is_held"], found["ready_s"]) == (False, 2)


async def test_a_partition_that_backs_off_counts_but_is_not_held(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    [message] = await log.pop(group, Poll(lease_id=(lease := Poll().lease_id)))
    await log.ack(Ack(partition, 1, lease, "failed"))
    await log.advance(0.1)

    found = await measure(log, group)

    assert message.first == 1
    assert (found["backlog"], found["is_held"], found["ready_s"]) == (1, False, 0)


async def test_messages_done_ahead_of_the_cursor_are_left_out(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y", "z")
    await log.execute("update skep.cursor set done = '{[2,4)}'")

    assert (await measure(log, group))["backlog"] == 1


async def test_every_group_is_measured_and_unknown_ones_are_left_out(log):
    partition, queue_mode = await log.partition()
    bees = await log.subscribe("hive", "bees")
    await log.push(partition, "x")
    await log.pop(queue_mode, Poll(auto_ack=True))

    rows = await log.rows(MEASURE, [bees, queue_mode, 0], 100)

    assert {row["group_id"]: row["backlog"] for row in rows} == {bees: 1, queue_mode: 0}


async def test_a_queue_with_very_many_partitions_is_estimated(log):
    group = await many_partitions(log, 3000)

    found = await measure(log, group, exact_max=1000)

    assert found["is_estimated"] is True
    assert found["partitions"] == pytest.approx(3000, rel=0.2)
    assert found["partitions_behind"] == found["partitions"]
    assert found["backlog"] == pytest.approx(2 * found["partitions"], abs=2)


async def test_few_partitions_with_a_backlog_among_very_many_are_counted_exactly(log):
    group = await many_partitions(log, 3000)
    await log.execute(
        """
        update skep.cursor c set acked = 2, available_at = null
        from skep.partition p where p.id = c.partition_id and p.name > '000007'
        """
    )

    found = await measure(log, group, exact_max=1000)

    assert (found["partitions_behind"], found["backlog"]) == (7, 14)
    assert found["is_estimated"] is True  # the number of partitions is


async def test_the_limit_itself_is_still_exact(log):
    group = await many_partitions(log, 50)

    assert (await measure(log, group, exact_max=50))["is_estimated"] is False
    assert (await measure(log, group, exact_max=49))["is_estimated"] is True


async def two_queues(log, *, busy, calm):
    """Return a group with so many partitions that are not at rest, and one of another queue."""
    busy_group = await many_partitions(log, busy)
    partitions = await log.provision("wax", *(f"partition-{number}" for number in range(calm)))
    calm_group = await log.subscribe("wax", "bees")
    await log.push_writes(dict.fromkeys(partitions, ("x",)))
    return busy_group, calm_group


async def test_the_partitions_of_all_groups_together_are_bounded_and_small_groups_counted_first(
    log,
):
    busy, calm = await two_queues(log, busy=90, calm=20)

    found = {row["group_id"]: row for row in await log.rows(MEASURE, [busy, calm], 100)}

    assert [found[group]["is_estimated"] for group in (busy, calm)] == [True, False]
    assert (found[calm]["partitions"], found[calm]["backlog"]) == (20, 20)
    assert (found[busy]["partitions"], found[busy]["backlog"]) == (90, 180)
    assert (await measure(log, busy, exact_max=100))["is_estimated"] is False


async def test_a_busy_group_is_represented_however_small_its_share_of_all_cursors_is(log):
    large, small = await two_queues(log, busy=20_000, calm=30)

    rows = await log.rows(MEASURE, [large, small], 40)

    [found] = [row for row in rows if row["group_id"] == small]
    assert (found["is_estimated"], found["partitions"], found["backlog"]) == (True, 30, 30)
