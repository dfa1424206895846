from tests.sql.support.staging import WRITE

FIND = "select * from skep.find_staged_duplicates($1, 0, '{1}', $2, $3, $4, $5, $6)"


async def find(log, *partitions):
    """Compare partitions, given as id, name, upto and is_checked; return indexes by segment."""
    ids, partitions, uptos, checked = zip(*partitions, strict=True) if partitions else ((),) * 4
    rows = await log.rows(
        FIND, WRITE, list(ids), ["hive"] * len(ids), list(partitions), list(uptos), list(checked)
    )
    return {row["number"]: sorted(row["indexes"]) for row in rows}


async def test_keys_are_compared_with_the_log_and_with_each_other(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "b")
    await staging.segment("a", "b", "a")
    await staging.segment("a", "c")

    assert await find(log, (partition, "a", 0, False)) == {1: [1, 2], 2: [0]}


async def test_what_is_stored_up_to_an_offset_is_not_compared(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "seen")
    await log.push(partition, "unseen")
    await staging.segment("seen", "unseen")

    assert await find(log, (partition, "a", 1, False)) == {1: [1]}


async def test_staged_keys_of_a_partition_that_was_checked_are_not_compared_with_each_other(
    log, staging
):
    partition, _ = await log.partition()
    await log.push(partition, "x")
    await staging.segment("x", "x", "y", "y")

    assert await find(log, (partition, "a", 0, True)) == {1: [0, 1]}


async def test_only_the_partitions_that_are_named_are_compared(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "x")
    await staging.segment("x", "y", "y")

    assert await find(log) == {}
