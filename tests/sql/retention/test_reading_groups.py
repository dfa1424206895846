from tests.sql.support.log import QUEUE_MODE, Poll


async def reading(log, queue="hive"):
    rows = await log.rows(
        """
        select g.name from skep.queue q
        cross join lateral skep.reading_groups(q.id) r(id)
        join skep.consumer_group g on g.id = r.id
        where q.name = $1 order by g.name
        """,
        queue,
    )
    return [row[0] for row in rows]


async def test_a_queue_nobody_reads_is_read_in_queue_mode(log):
    await log.provision("hive", "a")

    assert await reading(log) == [QUEUE_MODE]


async def test_named_groups_stand_in_for_an_unused_queue_mode(log):
    await log.provision("hive", "a")
    await log.subscribe("hive", "bees")
    await log.subscribe("hive", "ants")

    assert await reading(log) == ["ants", "bees"]


async def test_queue_mode_counts_once_somebody_has_polled_in_it(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    await log.subscribe("hive", "bees")
    await log.pop(group, Poll(auto_ack=True))

    assert await reading(log) == [QUEUE_MODE, "bees"]


async def test_it_does_not_matter_in_which_of_many_partitions_queue_mode_was_used(log):
    partitions = await log.provision("hive", *(f"{number:03}" for number in range(102)))
    await log.subscribe("hive", "bees")
    group = await log.subscribe("hive")
    await log.push(partitions[-1], "x")
    await log.pop_partitions(group, Poll(partition_id=partitions[-1], auto_ack=True))

    assert await reading(log) == [QUEUE_MODE, "bees"]


async def test_groups_of_other_queues_do_not_count(log):
    await log.provision("hive", "a")
    await log.subscribe("nest", "wasps")

    assert await reading(log) == [QUEUE_MODE]
