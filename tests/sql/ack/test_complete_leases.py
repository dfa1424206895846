"""The quick way for plain acks. It must do what ack_partition does, and leave the rest to it."""

from uuid import uuid4

import pytest

from tests.sql.support.log import Ack, Poll


async def leased_partition(log, names="abc", **options):
    partition, group = await log.partition()
    await log.push(partition, *names)
    poll = Poll(**{"lease_s": 30, **options})
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def complete(log, group, *acks):
    """Return (lease_released, has_more) of the acks that were plain, by number from 1."""
    rows = await log.rows(
        "select * from skep.complete_leases($1, $2, $3, $4, $5, $6)",
        [ack.partition_id for ack in acks],
        [group] * len(acks),
        [ack.lease_id for ack in acks],
        [ack.offset for ack in acks],
        [ack.status for ack in acks],
        log.now,
    )
    return {item: (lease_released, has_more) for item, lease_released, has_more in rows}


async def test_a_range_completed_with_nothing_behind_it_leaves_the_partition_idle(log):
    partition, group, lease = await leased_partition(log)

    assert await complete(log, group, Ack(partition, 3, lease)) == {1: (True, False)}
    assert (await log.cursor(partition, group))["acked"] == 3
    assert await log.next_available(group) is None


async def test_a_range_completed_with_more_behind_it_leaves_the_partition_ready(log):
    partition, group, lease = await leased_partition(log, batch=2)

    assert await complete(log, group, Ack(partition, 2, lease)) == {1: (True, True)}
    assert await log.next_available(group) == 0


async def test_a_range_completed_in_part_stays_leased(log):
    partition, group, lease = await leased_partition(log)

    assert await complete(log, group, Ack(partition, 2, lease)) == {1: (False, False)}
    assert await log.next_available(group) == 30
    assert await complete(log, group, Ack(partition, 3, lease)) == {1: (True, False)}


async def test_what_is_left_of_a_range_completed_in_part_was_delivered_before(log):
    partition, group, lease = await leased_partition(log)
    await complete(log, group, Ack(partition, 2, lease))
    await log.advance(30)

    assert [(m.offset, m.delivery) for m in (await log.pop(group)).messages] == [(3, 2)]


async def test_what_lies_behind_a_completed_range_was_not_delivered_before(log):
    partition, group, lease = await leased_partition(log, batch=2)
    await complete(log, group, Ack(partition, 2, lease))

    assert [(m.offset, m.delivery) for m in (await log.pop(group)).messages] == [(3, 1)]


async def test_many_partitions_are_completed_together(log):
    partitions = await log.provision("hive", "a", "b", "c")
    group = await log.subscribe("hive")
    await log.push_writes(dict.fromkeys(partitions, "xy"))
    poll = Poll(partitions=3)
    await log.pop(group, poll)

    done = await complete(
        log, group, *(Ack(partition, 2, poll.lease_id) for partition in partitions)
    )

    assert done == {1: (True, False), 2: (True, False), 3: (True, False)}


@pytest.mark.parametrize(
    ("offset", "status"), [(0, "completed"), (4, "completed"), (None, "completed"), (2, "failed"),
                           (2, "retry"), (2, "dlq")]
)  # fmt: skip
async def test_anything_but_a_known_message_completed_under_lease_is_left(log, offset, status):
    partition, group, lease = await leased_partition(log)
    before = await log.cursor(partition, group)

    assert await complete(log, group, Ack(partition, offset, lease, status)) == {}
    assert await log.cursor(partition, group) == before


async def test_an_ack_without_the_lease_is_left(log):
    partition, group, _ = await leased_partition(log)

    assert await complete(log, group, Ack(partition, 2, None)) == {}
    assert await complete(log, group, Ack(partition, 2, uuid4())) == {}
    assert (await log.cursor(partition, group))["acked"] == 0


async def test_an_ack_under_an_expired_lease_is_left(log):
    partition, group, lease = await leased_partition(log)
    await log.advance(30)

    assert await complete(log, group, Ack(partition, 3, lease)) == {}
    assert (await log.cursor(partition, group))["acked"] == 0


async def test_several_acks_of_one_partition_are_left(log):
    partition, group, lease = await leased_partition(log)

    assert await complete(log, group, Ack(partition, 1, lease), Ack(partition, 2, lease)) == {}
    assert (await log.cursor(partition, group))["acked"] == 0


async def test_a_partition_with_failures_on_record_is_left(log):
    partition, group, lease = await leased_partition(log)
    await log.ack(Ack(partition, 2, lease, "failed"))
    await log.advance()
    poll = Poll()
    await log.pop(group, poll)

    assert await complete(log, group, Ack(partition, 3, poll.lease_id)) == {}
    assert (await log.cursor(partition, group))["acked"] == 0


async def test_a_partition_with_messages_done_ahead_is_left(log):
    partition, group, lease = await leased_partition(log)
    await log.set_done(partition, group, "{[3,4)}")

    assert await complete(log, group, Ack(partition, 2, lease)) == {}
    assert (await log.cursor(partition, group))["acked"] == 0
