PASS = "select skep.pass_cursors($1, $2)"


async def test_cursors_that_lag_are_moved_in_every_partition_and_the_others_are_not_written(log):
    a, b = await log.provision("hive", "a", "b")
    slow, fast = await log.subscribe("hive", "slow"), await log.subscribe("hive", "fast")
    await log.execute("update skep.cursor set acked = 9 where group_id = $1", fast)
    places = "select partition_id, group_id, ctid from skep.cursor where group_id = $1 order by 1"
    before = await log.rows(places, fast)

    await log.rows(PASS, [a, b], [4, 2])

    assert [(await log.cursor(partition, slow))["acked"] for partition in (a, b)] == [4, 2]
    assert await log.rows(places, fast) == before


async def test_a_partition_without_cursors_is_no_error(log):
    [partition] = await log.provision("hive", "a")

    await log.rows(PASS, [partition], [4])
