from datetime import timedelta
from uuid import uuid4

from tests.sql.support.operating import check_books, claim, defer, ids, operation

CALL = "select skep.postpone_operation($1, $2, $3, $4, $5, $6)"


async def postpone(log, id_, claim_id, *, retries_max=3, pause_s_max=30.0):
    return await log.value(CALL, id_, claim_id, "no luck", retries_max, 2.0, pause_s_max)


async def test_an_operation_comes_again_after_a_pause_that_doubles(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a)
    for pause_s in (2, 4, 5):
        claim_id, _ = await claim(log)

        assert await postpone(log, only, claim_id, pause_s_max=5.0) == "waiting"

        assert (await operation(log, only))["available_at"] == log.now + timedelta(seconds=pause_s)
        await log.advance(pause_s - 1)
        assert (await claim(log))[1] == []
        await log.advance(1)
    assert (await operation(log, only))["error"] == "no luck"
    await check_books(log)


async def test_its_partition_waits_behind_it(log):
    [a] = await log.provision("hive", "a")
    first, second = [await defer(log, a) for _ in range(2)]
    claim_id, _ = await claim(log)

    await postpone(log, first, claim_id)

    assert (await claim(log))[1] == []
    await log.advance(2)
    assert ids((await claim(log))[1]) == [first, second]


async def test_one_that_failed_too_often_is_given_up_and_its_partition_goes_on(log):
    [a] = await log.provision("hive", "a")
    first, second = [await defer(log, a, name) for name in "xy"]
    claim_id, _ = await claim(log)

    assert await postpone(log, first, claim_id, retries_max=0) == "failed"

    found = await operation(log, first)
    assert [found["status"], found["error"], found["payload"]] == ["failed", "no luck", b"x"]
    assert ids((await claim(log))[1]) == [second]
    await check_books(log)


async def test_who_lost_the_claim_decides_nothing(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a)
    await claim(log)

    assert await postpone(log, only, uuid4()) is None
    assert (await operation(log, only))["status"] == "processing"
