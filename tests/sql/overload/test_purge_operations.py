from tests.sql.support.operating import carry_out, check_books, claim, defer, statuses

CALL = "select skep.purge_operations($1, $2, $3)"


async def test_what_ended_long_ago_is_deleted_by_its_own_age(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a)
    await carry_out(log)
    failed = await defer(log, b)
    claim_id, _ = await claim(log)
    await log.value("select skep.postpone_operation($1, $2, 'no', -1, 1, 1)", failed, claim_id)
    waiting = await defer(log, a)
    await log.advance(100)

    assert await log.value(CALL, 100.5, 100.5, 10) == 0
    assert await log.value(CALL, 99.0, 1000.0, 10) == 1
    assert await statuses(log, failed, waiting) == ["failed", "waiting"]
    await check_books(log)
    assert await log.value(CALL, 99.0, 99.0, 10) == 1
    await check_books(log)


async def test_a_step_deletes_so_many_the_oldest_first(log):
    [a] = await log.provision("hive", "a")
    done = []
    for name in "xyz":
        done.append(await defer(log, a, name))
        await carry_out(log)
        await log.advance(1)
    await log.advance(10)

    assert await log.value(CALL, 1.0, 1.0, 2) == 2
    assert await statuses(log, done[2]) == ["completed"]
    await check_books(log)
