"""What is pushed is given to polls that wait, as if they had popped it."""

import pytest

from tests.sql.support.log import NOON, Ack, Poll


@pytest.fixture(params=[True, False], ids=["alone", "as many"])
def log(log, request):
    """A log that pushes a single partition by a function of its own, or by that for many."""
    log.pushes_to_polls = request.param
    yield log
    log.pushes_to_polls = True


async def drained(log, *partitions):
    """Return the ids of partitions whose messages are read, and of the group that read them."""
    ids = await log.provision("hive", *partitions)
    group = await log.subscribe("hive")
    await log.push_writes(dict.fromkeys(ids, "z"))
    await log.pop(group, Poll(partitions=len(ids), auto_ack=True))
    return *ids, group


@pytest.mark.parametrize("batch", [1, 2, 100])
async def test_the_cursor_becomes_what_a_push_and_a_pop_make_of_it(log, batch):
    popped, handed, group = await drained(log, "a", "b")
    await log.push_guaranteed({popped: "xy"}, {popped: 1})
    [taken] = await log.pop(group, Poll(batch, lease_s=30))

    claims = await log.hand_over(
        {handed: "xy"}, {handed: 1}, {handed: (group, Poll(batch, lease_s=30))}
    )

    assert claims == {handed: (taken.taken_from, taken.taken_to, taken.is_individual, True)}
    cursors = [dict(await log.cursor(id_, group)) for id_ in (popped, handed)]
    for cursor in cursors:
        del cursor["partition_id"], cursor["lease_id"]
    assert cursors[0] == cursors[1]


async def test_what_was_handed_over_is_acknowledged_and_the_rest_follows(log):
    partition, group = await drained(log, "a")
    poll = Poll(1)
    await log.hand_over({partition: "xy"}, {partition: 1}, {partition: (group, poll)})

    [answer] = await log.ack(Ack(partition, 2, poll.lease_id))

    assert (answer.outcome, answer.has_more) == ("acked", True)
    assert (await log.pop(group)).offsets == [3]


async def test_other_partitions_and_other_groups_are_woken(log):
    a, b, group = await drained(log, "a", "b")
    other = await log.subscribe("hive", "bees")
    await log.pop(other, Poll(partitions=2, auto_ack=True))

    claims = await log.hand_over({a: "x", b: "y"}, {a: 1, b: 1}, {a: (group, Poll())})

    assert claims == {a: (1, 2, False, False)}
    assert sorted((await log.pop(other, Poll(partitions=2))).partitions) == [a, b]
    assert (await log.pop(group, Poll(partitions=2))).partitions == [b]


async def test_a_claim_that_reaches_no_consumer_is_undone(log):
    partition, group = await drained(log, "a")
    poll = Poll()
    await log.hand_over({partition: "x"}, {partition: 1}, {partition: (group, poll)})

    await log.execute("select skep.undo_claims(null, $1)", [poll.lease_id])

    [row] = await log.pop(group)
    assert (row.taken_from, row.taken_to, row.delivery) == (1, 2, 1)


@pytest.mark.parametrize(
    "change",
    [
        "update skep.queue set is_paused = true",
        "update skep.consumer_group set is_paused = true",
        "update skep.queue set max_deliveries = 3",
        "update skep.consumer_group set conflation = true",
        "update skep.cursor set failed_offset = '{3}', failed_count = '{1}'",
        "update skep.cursor set done = '{[3,4)}'",
        "update skep.cursor set acked = 0, delivered = 1, deliveries = 1",
    ],
)
async def test_what_is_more_than_a_plain_claim_is_left_to_a_poll(log, change):
    partition, group = await drained(log, "a")
    await log.execute(change)

    claims = await log.hand_over({partition: "x"}, {partition: 1}, {partition: (group, Poll())})

    assert claims == {}
    cursor = await log.cursor(partition, group)
    assert (cursor["available_at"], cursor["leased"]) == (NOON, None)


async def test_what_is_held_back_is_ready_when_it_may_be_read(log):
    partition, group = await drained(log, "a")
    await log.configure("hive", delayed_processing_s=5)

    assert not await log.hand_over({partition: "x"}, {partition: 1}, {partition: (group, Poll())})

    assert await log.next_available(group, partition) == 5


async def test_a_partition_under_lease_is_not_handed_over(log):
    partition, group = await drained(log, "a")
    await log.push_guaranteed({partition: "x"}, {partition: 1})
    await log.pop(group, Poll(lease_s=60))

    claims = await log.hand_over({partition: "y"}, {partition: 2}, {partition: (group, Poll())})

    assert claims == {}
    assert await log.next_available(group, partition) == 60


async def test_what_is_not_stored_is_not_handed_over(log):
    partition, group = await drained(log, "a")

    claims = await log.hand_over({partition: "x"}, {partition: 0}, {partition: (group, Poll())})

    assert claims == {}
