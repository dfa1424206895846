import pytest

from tests.sql.support.log import QUEUE_MODE, Poll


async def readers(log):
    query = "select name from skep.consumer_group g where skep.counts_as_reader(g) order by name"
    return [row["name"] for row in await log.rows(query)]


async def test_queue_mode_counts_while_a_queue_has_no_other_group(log):
    await log.provision("hive", "a")

    assert await readers(log) == [QUEUE_MODE]


async def test_queue_mode_does_not_count_where_only_named_groups_poll(log):
    await log.subscribe("hive", "bees")

    assert await readers(log) == ["bees"]


@pytest.mark.parametrize("groups", [(QUEUE_MODE, "bees"), ("bees", QUEUE_MODE)])
async def test_queue_mode_counts_beside_others_once_somebody_polled_so(log, groups):
    for group in groups:
        await log.subscribe("hive", group)

    assert await readers(log) == [QUEUE_MODE, "bees"]


async def test_groups_of_other_queues_do_not_matter(log):
    await log.provision("wax", "a")
    await log.subscribe("hive", "bees")

    assert await readers(log) == [QUEUE_MODE, "bees"]


async def test_it_does_not_matter_in_which_of_many_partitions_queue_mode_was_used(log):
    partitions = await log.provision("hive", *(f"{number:03}" for number in range(102)))
    await log.subscribe("hive", "bees")
    group = await log.subscribe("hive")
    await log.push(partitions[-1], "x")
    await log.pop_partitions(group, Poll(partition_id=partitions[-1], auto_ack=True))

    assert await readers(log) == [QUEUE_MODE, "bees"]
