from tests.sql.support.operating import PRIORITY, TIMEOUT_S, claim, defer

CALL = "select * from skep.stuck_operations($1, $2, $3)"


async def stuck(log, at_most=10):
    return [row["id"] for row in await log.rows(CALL, list(PRIORITY.values()), TIMEOUT_S, at_most)]


async def test_an_operation_is_stuck_when_nothing_claims_it_in_time(log):
    a, b = await log.provision("hive", "a", "b")
    first = await defer(log, a)
    await defer(log, a, "behind")
    second = await defer(log, b)
    assert await stuck(log) == []

    await log.advance(TIMEOUT_S + 1)

    assert set(await stuck(log)) == {first, second}
    assert len(await stuck(log, at_most=1)) == 1


async def test_an_operation_in_work_is_stuck_when_its_claim_ended_long_ago(log):
    (a,) = await log.provision("hive", "a")
    first = await defer(log, a)
    await log.advance(TIMEOUT_S + 1)
    await claim(log)
    await log.advance(2 * TIMEOUT_S - 1)
    assert await stuck(log) == []

    await log.advance(2)

    assert await stuck(log) == [first]
