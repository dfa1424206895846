from tests.sql.support.log import Ack, Poll

MEASURE = "select * from skep.measure_leases($1)"


async def test_partitions_messages_and_leases_are_counted(log):
    for name in ("a", "b", "c"):
        partition_id, group_id = await log.partition("hive", name)
        await log.push(partition_id, f"{name}1", f"{name}2", f"{name}3")
    poll = Poll(batch=5, partitions=2)
    await log.pop(group_id, poll)

    assert tuple(await log.row(MEASURE, 100)) == (1, 2, 5)


async def test_nothing_is_under_lease_at_first(log):
    await log.partition()

    assert tuple(await log.row(MEASURE, 100)) == (0, 0, 0)


async def test_what_was_acknowledged_of_a_lease_counts_no_more(log):
    partition_id, group_id = await log.partition()
    await log.push(partition_id, "x", "y", "z")
    poll = Poll()
    await log.pop(group_id, poll)
    await log.ack(Ack(partition_id, 1, poll.lease_id))

    assert tuple(await log.row(MEASURE, 100)) == (1, 1, 2)


async def test_no_more_partitions_are_looked_at_than_asked_for(log):
    for name in ("a", "b"):
        partition_id, group_id = await log.partition("hive", name)
        await log.push(partition_id, name)
    await log.pop(group_id, Poll(partitions=2))

    assert (await log.row(MEASURE, 1))["partitions"] == 1
