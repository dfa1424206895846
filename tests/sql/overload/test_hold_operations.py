import asyncio
from uuid import uuid4

from tests.sql.support.operating import claim, defer, ids
from tests.sql.support.waiting import eventually

CALL = "select skep.hold_operations($1, $2)"
BLOCKED = "select exists (select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))"


async def test_a_claim_may_carry_out_its_oldest_and_those_behind(log):
    a, b = await log.provision("hive", "a", "b")
    for partition in (a, a, b):
        await defer(log, partition)
    claim_id, claimed = await claim(log)

    assert await log.value(CALL, ids(claimed), claim_id) is True


async def test_not_what_is_behind_alone(log):
    [a] = await log.provision("hive", "a")
    _, second = [await defer(log, a) for _ in range(2)]
    claim_id, _ = await claim(log)

    assert await log.value(CALL, [second], claim_id) is False


async def test_not_what_another_claim_has(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a)
    await claim(log)

    assert await log.value(CALL, [only], uuid4()) is False


async def test_not_what_does_not_exist(log):
    assert await log.value(CALL, [uuid4()], uuid4()) is False


async def test_nobody_cancels_what_is_held(log, open_log):
    [a] = await log.provision("hive", "a")
    _, second = [await defer(log, a) for _ in range(2)]
    claim_id, claimed = await claim(log)
    other = await open_log()
    async with log.connection.transaction():
        await log.value(CALL, ids(claimed), claim_id)
        late = asyncio.ensure_future(other.value("select skep.cancel_operation($1)", second))
        await eventually(lambda: log.value(BLOCKED, log.connection.get_server_pid()))
        assert not late.done()

    assert await late == "cancelled"
