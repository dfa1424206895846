from tests.sql.support.log import key_of

WINDOW_S = 3600


async def guarantee(log, partition, *names):
    return await log.value(
        "select skep.guarantee_in_sql($1, $2)", partition, [key_of(n) for n in names]
    )


async def test_no_key_needs_no_look(log):
    assert await guarantee(log, -1) is True


async def test_keys_that_are_not_stored_are_guaranteed_for(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x", "y")

    assert await guarantee(log, partition, "new", "other") is True


async def test_a_stored_key_is_not_guaranteed_for_wherever_it_stands(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x", "y")
    await log.push(partition, "z")

    for name in ("x", "y", "z"):
        assert await guarantee(log, partition, "new", name) is False


async def test_what_has_left_the_window_does_not_matter(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "old")
    await log.advance(10)
    await log.push(partition, "young")
    await log.advance(WINDOW_S - 5)

    assert await guarantee(log, partition, "old") is True
    assert await guarantee(log, partition, "young") is False


async def test_without_a_window_nothing_is_a_duplicate(log):
    [partition] = await log.provision("hive", "a")
    await log.execute("update skep.queue set dedup_window_s = 0")
    await log.push(partition, "x")

    assert await guarantee(log, partition, "x") is True


async def test_many_keys_are_left_to_the_probe(log):
    [partition] = await log.provision("hive", "a")

    assert await guarantee(log, partition, *map(str, range(20))) is True
    assert await guarantee(log, partition, *map(str, range(21))) is False


async def test_a_partition_that_is_gone_is_not_guaranteed_for(log):
    assert await guarantee(log, -1, "x") is False
