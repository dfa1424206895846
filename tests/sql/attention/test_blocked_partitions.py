BLOCKED = "select * from skep.blocked_partitions($1, $2, 3)"


async def test_partitions_whose_first_message_comes_again_and_again_are_found(log):
    partitions = await log.provision("hive", "a", "b", "c")
    bees, ants = await log.subscribe("hive", "bees"), await log.subscribe("hive", "ants")
    for partition, deliveries in zip(partitions, (3, 7, 2), strict=True):
        await log.execute(
            "update skep.cursor set deliveries = $3 where partition_id = $1 and group_id = $2",
            partition,
            bees,
            deliveries,
        )

    assert [tuple(row) for row in await log.rows(BLOCKED, [bees, ants], 100)] == [(bees, 2, "b", 7)]
    await log.execute("update skep.cursor set available_at = null")
    assert await log.rows(BLOCKED, [bees, ants], 100) == []
