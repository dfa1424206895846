"""The state of a message, from the cursors of all groups."""

from tests.sql.support.log import Ack, Poll

QUERY = "select * from skep.message_standing($1, $2, $3, skep.now())"


async def standing(log, partition, first=1, last=3):
    return await log.rows(QUERY, partition, first, last)


async def statuses(log, partition, **run):
    return [row["status"] for row in await standing(log, partition, **run)]


async def test_queue_mode_alone_goes_from_pending_to_completed(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    assert await statuses(log, partition) == ["pending"] * 3

    poll = Poll(batch=2)
    await log.pop(group, poll)
    assert await statuses(log, partition) == ["processing", "processing", "pending"]
    await log.ack(Ack(partition, 1, poll.lease_id))
    assert await statuses(log, partition) == ["completed", "processing", "pending"]
    assert [row["queue_status"] for row in await standing(log, partition)] == [
        "completed",
        "processing",
        "pending",
    ]


async def test_a_lease_that_expired_is_none(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.pop(group, Poll(lease_s=10))
    assert (await standing(log, partition, 1, 1))[0]["lease_until"] is not None

    await log.advance(11)

    [row] = await standing(log, partition, 1, 1)
    assert (row["status"], row["lease_until"]) == ("pending", None)


async def test_completed_means_by_every_group_that_counts(log):
    [partition] = await log.provision("hive", "a")
    one, two = await log.subscribe(group="one"), await log.subscribe(group="two")
    await log.push(partition, "a")

    await log.pop(one, Poll(auto_ack=True))
    [row] = await standing(log, partition, 1, 1)
    assert (row["status"], row["consumed_by"], row["total_groups"]) == ("pending", 1, 2)

    await log.pop(two, Poll(auto_ack=True))
    [row] = await standing(log, partition, 1, 1)
    assert (row["status"], row["consumed_by"], row["queue_status"]) == ("completed", 2, None)


async def test_queue_mode_counts_beside_named_groups_once_it_was_polled(log):
    [partition] = await log.provision("hive", "a")
    named = await log.subscribe(group="g")
    await log.push(partition, "a", "b")
    await log.pop(named, Poll(auto_ack=True))
    assert await statuses(log, partition, last=2) == ["completed", "completed"]

    await log.pop(await log.subscribe(), Poll(batch=1, auto_ack=True))

    assert await statuses(log, partition, last=2) == ["completed", "pending"]


async def test_what_was_nacked_under_a_lease_that_goes_on_is_pending(log):
    partition, group = await log.partition()
    await log.set_options("hive", ack_mode="individual")
    await log.push(partition, "a", "b")
    poll = Poll(lease_s=60)
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "failed"))

    assert await statuses(log, partition, last=2) == ["pending", "processing"]


async def test_what_is_done_out_of_order_is_completed(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    await log.execute("update skep.cursor set done = '{[2,3)}' where group_id = $1", group)

    assert await statuses(log, partition) == ["pending", "completed", "pending"]


async def test_a_dead_letter_of_any_group_shows(log):
    partition, group = await log.partition()
    await log.subscribe(group="g")
    await log.push(partition, "a", "b")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "dlq"))

    assert (await statuses(log, partition, last=2))[0] == "dead_letter"
