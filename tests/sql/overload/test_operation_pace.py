from tests.sql.support.operating import carry_out, claim, defer

CALL = "select skep.operation_pace()"


async def carried_out(log, partition, count, every_s):
    for number in range(count):
        await defer(log, partition, f"{log.now} {number}")
        await carry_out(log)
        await log.advance(every_s)


async def test_it_is_the_average_of_the_last_ones(log):
    [a] = await log.provision("hive", "a")
    await carried_out(log, a, 5, 3)

    assert await log.value(CALL) == 3


async def test_one_alone_has_no_pace(log):
    [a] = await log.provision("hive", "a")
    await carried_out(log, a, 1, 3)

    assert await log.value(CALL) is None


async def test_what_was_long_ago_does_not_count(log):
    [a] = await log.provision("hive", "a")
    await carried_out(log, a, 3, 1)
    await log.advance(301)

    assert await log.value(CALL) is None


async def test_what_failed_does_not_count(log):
    [a] = await log.provision("hive", "a")
    await carried_out(log, a, 2, 4)
    failed = await defer(log, a)
    claim_id, _ = await claim(log)
    await log.value("select skep.postpone_operation($1, $2, 'no', -1, 1, 1)", failed, claim_id)

    assert await log.value(CALL) == 4
