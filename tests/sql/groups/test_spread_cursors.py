import pytest

from tests.sql.support.partitions import many_partitions

SPREAD = "select * from skep.spread_cursors($1, $2)"


async def test_a_queue_with_few_partitions_is_read_whole_and_every_partition_stands_for_itself(log):
    partitions = await log.provision("hive", "a", "b", "c")
    group = await log.subscribe("hive", "bees")

    rows = await log.rows(SPREAD, [group], 10)

    assert sorted(row["partition_id"] for row in rows) == partitions
    assert {row["weight"] for row in rows} == {1}


async def test_groups_of_one_queue_are_read_in_the_same_partitions_and_others_left_out(log):
    partitions = await log.provision("hive", *"abcdefghij")
    bees, ants = [await log.subscribe("hive", name) for name in ("bees", "ants")]
    await log.subscribe("hive", "wasps")

    rows = await log.rows(SPREAD, [bees, ants], 5)

    seen = {
        group: {row["partition_id"] for row in rows if row["group_id"] == group}
        for group in (bees, ants)
    }
    assert len(rows) == 10
    assert seen[bees] == seen[ants] == set(partitions[::2])


@pytest.mark.parametrize("count", [100, 149, 2000])
async def test_the_weights_add_up_to_the_number_of_partitions(log, count):
    group = await many_partitions(log, count)

    rows = await log.rows(SPREAD, [group], 50)

    assert 50 <= len(rows) <= 100
    assert sum(row["weight"] for row in rows) == pytest.approx(count)


async def test_no_group_is_no_row(log):
    await log.partition()

    assert await log.rows(SPREAD, [], 10) == []
