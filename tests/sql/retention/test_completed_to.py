COMPLETED = "select skep.completed_to($1, (select queue_id from skep.partition where id = $1))"


async def test_the_group_that_lags_most_decides(log):
    partition, group = await log.partition()
    slow = await log.subscribe("hive", "slow")
    for id_, acked in ((group, 9), (slow, 4)):
        await log.execute("update skep.cursor set acked = $2 where group_id = $1", id_, acked)

    assert await log.value(COMPLETED, partition) == 4


async def test_without_a_group_nothing_is_completed(log):
    [partition] = await log.provision("hive", "a")

    assert await log.value(COMPLETED, partition) == 0


async def test_queue_mode_counts_from_its_first_poll_on_in_every_partition(log):
    [partition] = await log.provision("hive", "a")
    reader = await log.subscribe("hive", "reader")
    await log.execute("update skep.cursor set acked = 9 where group_id = $1", reader)

    assert await log.value(COMPLETED, partition) == 9
    await log.subscribe("hive")
    assert await log.value(COMPLETED, partition) == 0


async def test_a_group_without_a_cursor_has_completed_nothing(log):
    partition, group = await log.partition()
    slow = await log.subscribe("hive", "slow")
    await log.execute("update skep.cursor set acked = 9 where group_id = $1", group)
    await log.execute("delete from skep.cursor where group_id = $1", slow)

    assert await log.value(COMPLETED, partition) == 0


async def test_other_partitions_and_queues_do_not_count(log):
    partition, group = await log.partition()
    await log.provision("hive", "b")
    await log.partition("comb")
    await log.execute(
        "update skep.cursor set acked = 5 where group_id = $1 and partition_id = $2",
        group,
        partition,
    )

    assert await log.value(COMPLETED, partition) == 5
