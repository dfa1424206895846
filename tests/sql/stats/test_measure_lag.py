from tests.sql.support.log import Poll


async def measure(log):
    return [round(value, 1) for value in await log.row("select * from skep.measure_lag(100)")]


async def test_nothing_is_unread_without_queues(log):
    assert await measure(log) == [0.0] * 8


async def test_partitions_with_something_to_read_are_measured(log):
    old, new, done = await log.provision("hive", "a", "b", "c")
    await log.push(done, "x")
    await log.pop(await log.subscribe(), Poll(partitions=1, auto_ack=True))
    await log.push(old, "x")
    await log.advance(20)
    await log.push(old, "y", "z")
    await log.push(new, "x")
    await log.advance(10)

    assert await measure(log) == [20.0, 20.0, 10.0, 30.0, 2.0, 2.0, 1.0, 3.0]


async def test_the_age_is_that_of_the_first_unread_message(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    await log.advance(20)
    await log.push(partition, "y")
    await log.pop(group, Poll(batch=1, auto_ack=True))
    await log.advance(5)

    assert (await measure(log))[:4] == [5.0] * 4
