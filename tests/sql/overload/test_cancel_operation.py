from tests.sql.support.operating import carry_out, check_books, claim, defer, operation, stored

CALL = "select skep.cancel_operation($1)"


async def test_an_operation_that_waits_is_not_carried_out(log):
    [a] = await log.provision("hive", "a")
    await defer(log, a, "x")
    second = await defer(log, a, "y")
    await defer(log, a, "z")

    assert await log.value(CALL, second) == "cancelled"

    await check_books(log)
    await carry_out(log)
    assert await stored(log, a) == ["x", "z"]
    found = await operation(log, second)
    assert [found["status"], found["payload"]] == ["cancelled", None]


async def test_the_next_one_has_its_turn_when_the_oldest_is_cancelled(log):
    [a] = await log.provision("hive", "a")
    first, second = [await defer(log, a) for _ in range(2)]

    await log.value(CALL, first)

    await check_books(log)
    assert await carry_out(log) == [second]


async def test_one_that_was_given_up_is_not_counted_as_failed_any_more(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a)
    claim_id, _ = await claim(log)
    await log.value("select skep.postpone_operation($1, $2, 'no luck', -1, 1, 1)", only, claim_id)

    assert await log.value(CALL, only) == "cancelled"

    await check_books(log)
    assert await log.value(CALL, only) == "unfit"


async def test_one_in_work_is_left_to_whoever_has_it(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a)
    await claim(log)

    assert await log.value(CALL, only) == "unfit"
