from tests.sql.support.staging import WRITE

FIND = "select * from skep.find_staged_duplicates($1, 0, '{1}', $2, $3, $4, $5, $6)"


async def find(log, *lanes):
    """Compare lanes, given as id, partition, upto and is_checked; return indexes by segment."""
    ids, partitions, uptos, checked = zip(*lanes, strict=True) if lanes else ((),) * 4
    rows = await log.rows(
        FIND, WRITE, list(ids), ["hive"] * len(ids), list(partitions), list(uptos), list(checked)
    )
    return {row["number"]: sorted(row["indexes"]) for row in rows}


async def test_keys_are_compared_with_the_log_and_with_each_other(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "b")
    await staging.segment("a", "b", "a")
    await staging.segment("a", "c")

    assert await find(log, (lane, "a", 0, False)) == {1: [1, 2], 2: [0]}


async def test_what_is_stored_up_to_an_offset_is_not_compared(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "seen")
    await log.push(lane, "unseen")
    await staging.segment("seen", "unseen")

    assert await find(log, (lane, "a", 1, False)) == {1: [1]}


async def test_staged_keys_of_a_lane_that_was_checked_are_not_compared_with_each_other(
    log, staging
):
    lane, _ = await log.lane()
    await log.push(lane, "x")
    await staging.segment("x", "x", "y", "y")

    assert await find(log, (lane, "a", 0, True)) == {1: [0, 1]}


async def test_only_the_lanes_that_are_named_are_compared(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "x")
    await staging.segment("x", "y", "y")

    assert await find(log) == {}
