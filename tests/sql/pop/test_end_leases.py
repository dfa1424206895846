from uuid import uuid4

from tests.sql.model.test_races import waiting
from tests.sql.support.log import Ack, Poll


def end(log, partition, group, lease_id):
    query = "select skep.end_leases($1, $2, $3)"
    return log.value(query, [partition], [group], [lease_id])


async def leased_partition(log, *names):
    """Push messages and lease them all; return partition, group and lease."""
    partition, group = await log.partition()
    await log.push(partition, *names)
    poll = Poll()
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def test_what_was_leased_can_be_taken_at_once_and_counts_as_delivered(log):
    partition, group, lease_id = await leased_partition(log, "a", "b")

    assert await end(log, partition, group, lease_id) == 1

    taken = await log.pop(group, Poll())
    assert [(each.offset, each.delivery) for each in taken.messages] == [(1, 2), (2, 2)]


async def test_what_was_acknowledged_stays_done(log):
    partition, group, lease_id = await leased_partition(log, "a", "b")
    await log.ack(Ack(partition, 1, lease_id))

    assert await end(log, partition, group, lease_id) == 1

    assert (await log.pop(group, Poll())).offsets == [2]


async def test_an_ack_under_a_lease_that_ended_is_too_late(log):
    partition, group, lease_id = await leased_partition(log, "a")
    await end(log, partition, group, lease_id)

    assert await log.outcomes(Ack(partition, 1, lease_id)) == ["lease_lost"]


async def test_the_lease_of_somebody_else_is_left_alone(log):
    partition, group, _ = await leased_partition(log, "a")

    assert await end(log, partition, group, uuid4()) == 0
    assert (await log.pop(group, Poll())).messages == []


async def test_a_partition_that_is_done_stays_as_it_is(log):
    partition, group, lease_id = await leased_partition(log, "a")
    await log.ack(Ack(partition, 1, lease_id))

    assert await end(log, partition, group, lease_id) == 0
    assert (await log.cursor(partition, group))["available_at"] is None


async def test_a_delay_after_a_failure_is_not_cut_short(log):
    await log.configure("hive", retry_delay_ms=1000)
    partition, group, lease_id = await leased_partition(log, "a")
    await log.ack(Ack(partition, 1, lease_id, "failed"))

    assert await end(log, partition, group, lease_id) == 0
    assert (await log.pop(group, Poll())).messages == []


async def test_it_waits_for_an_ack_that_is_under_way(log, open_log):
    other, observer = await open_log(), await open_log()
    partition, group, lease_id = await leased_partition(log, "a")
    await log.execute("begin")
    await log.ack(Ack(partition, 1, lease_id))

    async with waiting(observer, other, end(other, partition, group, lease_id)) as ending:
        await log.execute("commit")

    assert ending.result() == 0


async def test_a_message_that_failed_under_the_lease_keeps_its_pause(log):
    await log.configure("hive", ack_mode="individual", retry_delay_ms=20_000)
    partition, group, lease_id = await leased_partition(log, "a", "b")
    await log.ack(Ack(partition, 1, lease_id, "failed"))

    assert await end(log, partition, group, lease_id) == 1

    assert await log.next_available(group) == 20
