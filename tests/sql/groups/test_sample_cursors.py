from tests.sql.support.log import QUEUE_MODE
from tests.sql.support.partitions import many_partitions

SAMPLE = "select * from skep.sample_cursors($1, $2)"


async def test_a_small_table_is_read_whole_and_every_partition_stands_for_itself(log):
    partitions = await log.provision("hive", "a", "b", "c")
    group = await log.subscribe("hive", "bees")

    rows = await log.rows(SAMPLE, [group], 1000)

    assert sorted(row["partition_id"] for row in rows) == partitions
    assert {row["weight"] for row in rows} == {1}


async def test_other_groups_are_left_out(log):
    await log.provision("hive", "a")
    bees, ants = await log.subscribe("hive", "bees"), await log.subscribe("hive", "ants")
    await log.subscribe("hive", QUEUE_MODE)

    rows = await log.rows(SAMPLE, [bees, ants], 1000)

    assert {row["group_id"] for row in rows} == {bees, ants}


async def test_the_weight_makes_a_few_blocks_stand_for_all_partitions(log):
    group = await many_partitions(log, 3000)

    rows = await log.rows(SAMPLE, [group], 10)

    assert len(rows) < 1500
    assert abs(sum(row["weight"] for row in rows) - 3000) < 600
