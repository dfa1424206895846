async def queues_of(log, *partition_ids):
    rows = await log.rows("select * from skep.queues_of_partitions($1)", list(partition_ids))
    return {row["partition_id"]: row["queue"] for row in rows}


async def test_a_partition_tells_its_queue(log):
    [first], [second] = await log.provision("orders", "a"), await log.provision("bills", "b")

    assert await queues_of(log, first, second) == {first: "orders", second: "bills"}


async def test_a_partition_that_does_not_exist_is_left_out(log):
    [partition_id] = await log.provision("orders", "a")

    assert await queues_of(log, partition_id, 987_654_321) == {partition_id: "orders"}


async def test_asking_for_nothing_is_answered_with_nothing(log):
    assert await queues_of(log) == {}
