from datetime import timedelta
from uuid import uuid4

from tests.sql.support.log import NOON, Ack, Lease, Poll

SECOND = timedelta(seconds=1)


async def leased_partition(log, lease_s=30):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    poll = Poll(lease_s=lease_s)
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def test_a_lease_ends_that_many_seconds_from_now(log):
    partition, group, lease_id = await leased_partition(log)
    await log.advance(10)

    renewed = await log.renew(lease_id, 60)

    assert renewed == Lease(lease_id, NOON + 70 * SECOND)
    assert (await log.cursor(partition, group))["available_at"] == NOON + 70 * SECOND


async def test_a_renewal_never_shortens_a_lease(log):
    _, _, lease_id = await leased_partition(log, lease_s=30)

    assert await log.renew(lease_id, 5) == Lease(lease_id, NOON + 30 * SECOND)


async def test_an_expired_lease_is_not_revived(log):
    partition, group, lease_id = await leased_partition(log, lease_s=30)
    await log.advance(30)

    assert await log.renew(lease_id, 60) is None
    assert (await log.cursor(partition, group))["available_at"] == NOON + 30 * SECOND


async def test_a_lease_that_was_completed_cannot_be_renewed(log):
    partition, group, lease_id = await leased_partition(log)
    await log.ack(Ack(partition, 2, lease_id))

    assert await log.renew(lease_id, 60) is None
    assert (await log.cursor(partition, group))["available_at"] is None


async def test_a_lease_that_was_never_given_cannot_be_renewed(log):
    assert await log.renew(uuid4(), 60) is None


async def test_a_lease_that_was_taken_over_cannot_be_renewed(log):
    _, group, lease_id = await leased_partition(log)
    await log.advance(30)
    await log.pop(group, Poll(lease_s=30))

    assert await log.renew(lease_id, 600) is None
    assert await log.next_available(group) == 30


async def test_all_partitions_of_a_lease_are_renewed(log):
    a, b = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive")
    await log.push_writes({a: "x", b: "y"})
    poll = Poll(partitions=2, lease_s=30)
    await log.pop(group, poll)
    await log.advance(10)

    assert await log.renew(poll.lease_id, 60) == Lease(poll.lease_id, NOON + 70 * SECOND)

    ends = [(await log.cursor(partition, group))["available_at"] for partition in (a, b)]
    assert ends == [NOON + 70 * SECOND] * 2


async def test_the_earliest_end_is_told_when_partitions_of_a_lease_differ(log):
    a, b = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive")
    await log.push_writes({a: "x", b: "y"})
    poll = Poll(partitions=2, lease_s=30)
    await log.pop(group, poll)
    later = NOON + 90 * SECOND
    await log.execute("update skep.cursor set available_at = $1 where partition_id = $2", later, a)

    assert await log.renew(poll.lease_id, 60) == Lease(poll.lease_id, NOON + 60 * SECOND)
    assert (await log.cursor(a, group))["available_at"] == later


async def test_many_leases_are_renewed_in_one_call_each_for_its_own_time(log):
    a, b = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive")
    await log.push_writes({a: "x", b: "y"})
    first, second, lost = Poll(lease_s=30), Poll(lease_s=30), uuid4()
    await log.pop(group, first, second)

    rows = await log.rows(
        "select * from skep.renew_leases($1, $2)",
        [second.lease_id, lost, first.lease_id, second.lease_id],
        [60, 70, 80, 50],
    )

    assert {Lease(*row) for row in rows} == {
        Lease(first.lease_id, NOON + 80 * SECOND),
        Lease(second.lease_id, NOON + 60 * SECOND),
    }
