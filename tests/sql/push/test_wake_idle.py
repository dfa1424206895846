from tests.sql.support.log import Poll


async def test_only_idle_cursors_of_the_partitions_named_are_woken(log):
    partition, idle = await log.partition("hive", "a")
    [other] = await log.provision("hive", "b")
    leased = await log.subscribe("hive", "bees")
    await log.push_writes({partition: "x", other: "y"})
    await log.pop(idle, Poll(partitions=2, auto_ack=True))
    await log.pop(leased, Poll(partitions=2, lease_s=60))
    await log.advance()

    await log.execute("select skep.wake_idle($1, skep.now())", [partition])

    assert await log.next_available(idle, partition) == 0
    assert await log.next_available(idle, other) is None
    assert await log.next_available(leased, partition) == 59
