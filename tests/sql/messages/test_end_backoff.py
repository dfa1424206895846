from tests.sql.support.log import QUEUE_MODE, Ack, Poll

QUERY = "select group_name from skep.end_backoff($1, $2, $3)"


async def failed_partition(log):
    await log.configure("hive", retry_delay_ms=1000)
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "failed"))
    return partition, group


async def end(log, partition, offset, group=None):
    return [row[0] for row in await log.rows(QUERY, partition, offset, group)]


async def test_a_message_that_failed_is_available_at_once(log):
    partition, group = await failed_partition(log)
    assert (await log.pop(group)).offsets == []

    assert await end(log, partition, 1) == [QUEUE_MODE]

    assert (await log.pop(group)).offsets == [1, 2]


async def test_only_the_message_that_failed_is_waited_for(log):
    partition, _ = await failed_partition(log)

    assert await end(log, partition, 2) == []
    assert await end(log, partition, 1, "g") == []
    assert await end(log, partition, 1, QUEUE_MODE) == [QUEUE_MODE]


async def test_what_is_ready_or_under_lease_is_not_touched(log):
    partition, group = await failed_partition(log)
    await log.advance(3600)
    assert await end(log, partition, 1) == []

    await log.pop(group)
    before = await log.cursor(partition, group)

    assert await end(log, partition, 1) == []
    assert await log.cursor(partition, group) == before


async def test_nobody_waits_for_a_message_that_failed_once_and_is_done(log):
    partition, group = await failed_partition(log)
    await log.advance(3600)
    await log.pop(group, Poll(auto_ack=True))
    await log.advance()
    await log.pop(group)
    await log.configure("hive", delayed_processing_s=600)
    await log.push(partition, "c")

    assert await end(log, partition, 1) == []
    assert await log.next_available(group) == 600
