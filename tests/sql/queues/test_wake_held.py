from tests.sql.support.log import Ack, Poll


async def wake(log, queue="hive"):
    return await log.value("select skep.wake_held(id) from skep.queue where name = $1", queue)


async def test_partitions_whose_messages_are_held_back_are_looked_at_again(log):
    await log.configure("hive", delayed_processing_s=600)
    partition, group = await log.partition()
    await log.pop(group)
    await log.push(partition, "a")
    assert await log.next_available(group) > 0

    assert await wake(log) == 1

    assert await log.next_available(group) <= 0


async def test_leased_partitions_and_those_with_a_failure_are_left_alone(log):
    await log.configure("hive", retry_delay_ms=60_000)
    failed, group = await log.partition("hive", "a")
    [leased] = await log.provision("hive", "b")
    await log.push_writes({failed: "x", leased: "y"})
    poll = Poll(partition_id=failed)
    await log.pop_partitions(group, poll, Poll(partition_id=leased))
    await log.ack(Ack(failed, 1, poll.lease_id, "failed"))

    assert await wake(log) == 0


async def test_other_queues_are_not_touched(log):
    await log.configure("hive", delayed_processing_s=600)
    partition, group = await log.partition()
    await log.pop(group)
    await log.push(partition, "a")
    await log.configure("wax")

    assert await wake(log, "wax") == 0
    assert await log.next_available(group) > 0


async def test_a_queue_configured_to_hold_back_less_long_delivers_at_once(log):
    await log.configure("hive", delayed_processing_s=600)
    partition, group = await log.partition()
    await log.pop(group)
    await log.push(partition, "a")

    await log.configure("hive", delayed_processing_s=0)

    assert (await log.pop(group)).offsets == [1]


async def test_a_failure_of_what_is_done_since_keeps_no_partition_asleep(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "failed"))
    await log.advance(3600)
    await log.pop(group, Poll(auto_ack=True))
    await log.advance()
    await log.pop(group)
    await log.configure("hive", delayed_processing_s=600)
    await log.push(partition, "b")

    assert await wake(log) == 1
