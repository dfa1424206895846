from uuid import uuid4

from tests.sql.support.log import NOON, Ack, Poll


async def claimed_partition(log, **options):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    poll = Poll(**{"lease_s": 30, **options})
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def test_a_leased_partition_is_ready_at_once_and_counts_as_not_delivered(log):
    partition, group, lease_id = await claimed_partition(log)

    assert await log.release(partition, group, lease_id) == 1

    taken = await log.pop(group)
    assert [(m.offset, m.delivery) for m in taken.messages] == [(1, 1), (2, 1), (3, 1)]


async def test_an_earlier_delivery_still_counts(log):
    partition, group, _ = await claimed_partition(log)
    await log.advance(30)
    second = Poll()
    await log.pop(group, second)

    await log.release(partition, group, second.lease_id)

    assert (await log.pop(group)).messages[0].delivery == 2


async def test_messages_acknowledged_at_once_are_delivered_again(log):
    partition, group, lease_id = await claimed_partition(log, auto_ack=True, batch=2)

    assert await log.release(partition, group, lease_id) == 1

    await log.advance()
    taken = await log.pop(group)
    assert [(m.offset, m.delivery) for m in taken.messages] == [(1, 1), (2, 1), (3, 1)]


async def test_a_claim_is_given_back_only_once(log):
    partition, group, lease_id = await claimed_partition(log)
    await log.release(partition, group, lease_id)

    assert await log.release(partition, group, lease_id) == 0


async def test_a_claim_of_somebody_else_is_left_alone(log):
    partition, group, lease_id = await claimed_partition(log)

    assert await log.release(partition, group, uuid4()) == 0

    assert (await log.cursor(partition, group))["lease_id"] == lease_id
    assert await log.next_available(group) == 30


async def test_a_claim_that_was_taken_over_is_left_alone(log):
    partition, group, lease_id = await claimed_partition(log)
    await log.advance(30)
    await log.pop(group, Poll(lease_s=30))

    assert await log.release(partition, group, lease_id) == 0
    assert await log.next_available(group) == 30


async def test_messages_acknowledged_at_once_stay_done_when_the_cursor_moved_on(log):
    partition, group, lease_id = await claimed_partition(log, auto_ack=True, batch=1)
    await log.advance()
    await log.pop(group, Poll(auto_ack=True, batch=1))

    assert await log.release(partition, group, lease_id) == 0
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_what_was_acknowledged_of_a_lease_stays_done(log):
    partition, group, lease_id = await claimed_partition(log)
    await log.ack(Ack(partition, 2, lease_id))

    assert await log.release(partition, group, lease_id) == 1

    assert (await log.pop(group)).offsets == [3]


async def test_a_lease_that_was_completed_stays_done(log):
    partition, group, lease_id = await claimed_partition(log)
    await log.ack(Ack(partition, 3, lease_id))

    assert await log.release(partition, group, lease_id) == 0

    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["available_at"]) == (3, None)


async def test_a_lease_that_an_unfenced_ack_completed_stays_done(log):
    partition, group, lease_id = await claimed_partition(log)
    await log.ack(Ack(partition, 3))

    assert await log.release(partition, group, lease_id) == 0
    assert (await log.cursor(partition, group))["acked"] == 3


async def test_a_lease_that_ended_with_a_failure_stays_as_it_is(log):
    partition, group, lease_id = await claimed_partition(log)
    await log.ack(Ack(partition, 1, lease_id), Ack(partition, 2, lease_id, "failed"))
    before = await log.cursor(partition, group)

    assert await log.release(partition, group, lease_id) == 0
    assert await log.cursor(partition, group) == before


async def test_what_was_acknowledged_at_once_stays_done_when_somebody_acked_beyond_it(log):
    partition, group, lease_id = await claimed_partition(log, auto_ack=True, batch=1)
    await log.ack(Ack(partition, 2))

    assert await log.release(partition, group, lease_id) == 0
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_many_claims_of_many_groups_are_given_back_in_one_call(log):
    a, b = await log.provision("hive", "a", "b")
    groups = [await log.subscribe("hive"), await log.subscribe("hive", "bees")]
    await log.push_writes({a: "x", b: "y"})
    polls = [Poll(partitions=2), Poll(partitions=2)]
    for group, poll in zip(groups, polls, strict=True):
        await log.pop(group, poll)

    released = await log.value(
        "select skep.release_claims($1, $2, $3)",
        [a, b, a, b],
        [groups[0], groups[0], groups[1], groups[1]],
        [polls[0].lease_id, polls[0].lease_id, uuid4(), polls[1].lease_id],
    )

    assert released == 3
    cursors = await log.rows("select partition_id, group_id from skep.cursor where leased is null")
    assert set(map(tuple, cursors)) == {(a, groups[0]), (b, groups[0]), (b, groups[1])}
    assert log.now == NOON


async def test_a_message_deleted_after_it_was_acknowledged_at_once_does_not_come_again(log):
    partition, group, lease_id = await claimed_partition(log, auto_ack=True)
    await log.value("select skep.delete_message($1, 1)", partition)
    await log.value("select skep.delete_message($1, 3)", partition)

    await log.release(partition, group, lease_id)

    assert (await log.cursor(partition, group))["acked"] == 1
    assert await log.done(partition, group) == "{[3,4)}"
    assert (await log.pop(group)).offsets == [2]


async def test_a_pause_after_a_failure_outlives_the_claim_that_is_given_back(log):
    await log.configure("hive", ack_mode="individual", retry_delay_ms=20_000)
    partition, group, lease_id = await claimed_partition(log)
    await log.ack(Ack(partition, 1, lease_id, "failed"))

    await log.release(partition, group, lease_id)

    assert await log.next_available(group) == 20
