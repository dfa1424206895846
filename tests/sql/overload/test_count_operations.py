CALL = "select skep.count_operations($1, $2, $3, $4, $5)"
TOTALS = "select type, status, operations, bytes from skep.operation_total order by 1, 2"


async def test_changes_add_up_by_type_and_status(log):
    await log.value(
        CALL,
        [1, 17, 1],
        ["push", "push", "push"],
        ["waiting", "waiting", "failed"],
        [1, 1, 1],
        [10, 5, 7],
    )
    await log.value(CALL, [1], ["push"], ["waiting"], [-1], [-10])

    found = [tuple(row) for row in await log.rows(TOTALS)]
    assert found == [("push", "failed", 1, 7), ("push", "waiting", 1, 5)]


async def test_partitions_are_counted_in_different_rows(log):
    await log.value(CALL, [1, 2], ["push"] * 2, ["waiting"] * 2, [1, 1], [1, 1])

    assert len(await log.rows(TOTALS)) == 2


async def test_nothing_is_counted_for_nothing(log):
    await log.value(CALL, None, None, None, None, None)

    assert await log.rows(TOTALS) == []
