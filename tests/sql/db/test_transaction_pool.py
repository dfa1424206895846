"""Connections lent for transactions; those that nobody used are lent again as they are."""

import asyncio
from contextlib import suppress

import pytest

from skep.db.access import transactions
from skep.db.access.transactions import Reuse, TransactionPool
from skep.model.errors import SkepError
from tests.sql.support.waiting import eventually

APPLICATION = "skep-pool-test"
LOOK = "select pg_backend_pid(), now()"
IDLE = "select count(*) from pg_stat_activity where application_name = $1 and state like 'idle in%'"


def unused(since=0.0, *, is_likely=True):
    return Reuse(lambda: False, since, is_likely=is_likely)


def used(since=0.0):
    return Reuse(lambda: True, since, is_likely=True)


@pytest.fixture
def open_pool(arun, database_url):
    pools = []

    async def open_pool(size=4):
        pools.append(TransactionPool(database_url, size=size, application_name=APPLICATION))
        await pools[-1].open()
        return pools[-1]

    yield open_pool
    for pool in pools:
        arun(pool.close())


@pytest.fixture
def patient(monkeypatch):
    """Spares are kept for as long as a test takes."""
    monkeypatch.setattr(transactions, "SPARE_S", 600.0)


async def seen(pool, reuse=None):
    async with pool.begin(reuse) as connection:
        return tuple(await connection.fetchrow(LOOK))


async def test_a_transaction_that_was_not_used_is_lent_again(open_pool, patient):
    pool = await open_pool()

    first = await seen(pool, unused())

    assert await seen(pool, used()) == first
    assert await seen(pool, used()) != first


async def test_one_that_was_used_is_committed(open_pool, connect):
    pool, sql = await open_pool(), await connect()
    async with pool.begin() as connection:
        await connection.execute("create table noted (number integer)")

    assert await sql.fetchval("select count(*) from noted") == 0


async def test_what_a_block_that_failed_did_is_undone(open_pool, connect):
    pool, sql = await open_pool(), await connect()

    await fail_after(pool, "create table noted (number integer)")

    assert await sql.fetchval("select to_regclass('noted')") is None


async def fail_after(pool, statement, reuse=None):
    """Let a block fail; return what the statement says."""
    with suppress(ZeroDivisionError):
        async with pool.begin(reuse) as connection:
            answer = await connection.fetchrow(statement)
            raise ZeroDivisionError
    return answer and tuple(answer)


async def test_a_block_that_failed_without_using_it_leaves_it_for_the_next(open_pool, patient):
    pool = await open_pool()

    first = await fail_after(pool, LOOK, unused())

    assert await seen(pool, used()) == first


async def test_a_spare_ends_soon_if_nobody_wants_it(open_pool, connect):
    pool, sql = await open_pool(), await connect()

    await seen(pool, unused())
    await eventually(lambda: no_longer_idle(sql))

    assert (await seen(pool))[0] > 0


async def no_longer_idle(sql):
    return await sql.fetchval(IDLE, APPLICATION) == 0


async def test_a_transaction_that_began_too_early_is_not_lent_again(open_pool, patient):
    pool, loop = await open_pool(), asyncio.get_running_loop()

    first = await seen(pool, unused())

    assert (await seen(pool, used(since=loop.time())))[1] > first[1]


async def test_one_that_nobody_said_may_be_reused_is_not_a_spare_one(open_pool, patient):
    pool = await open_pool()

    first = await seen(pool, unused())

    assert await seen(pool) != first


async def test_those_who_hardly_use_theirs_begin_one_between_them(open_pool, patient):
    pool = await open_pool(size=8)

    async def idle():
        async with pool.begin(unused()) as connection:
            return connection

    lent = await asyncio.gather(*(idle() for _ in range(8)))

    assert len(set(map(id, lent))) == 1


async def test_those_who_hardly_use_theirs_do_not_wait_for_one_another(open_pool, patient):
    pool, both = await open_pool(size=2), asyncio.Barrier(2)

    async def slow():
        async with pool.begin(unused()):
            await both.wait()

    await asyncio.wait_for(asyncio.gather(slow(), slow()), 30)


async def test_who_waits_for_a_connection_gets_the_one_that_was_not_used(open_pool, patient):
    pool = await open_pool(size=1)
    async with pool.begin(unused()) as connection:
        first = tuple(await connection.fetchrow(LOOK))
        waiting = asyncio.ensure_future(seen(pool, used()))
        await asyncio.sleep(0)
        assert not waiting.done()

    assert await asyncio.wait_for(waiting, 30) == first


async def test_a_connection_that_broke_is_not_lent_again(open_pool, patient, connect):
    pool, sql = await open_pool(), await connect()
    async with pool.begin(unused()) as connection:
        pid, _ = await connection.fetchrow(LOOK)
    await sql.execute("select pg_terminate_backend($1)", pid)
    await eventually(lambda: not transactions._is_open(connection))

    assert (await seen(pool, used()))[0] != pid


async def test_a_connection_that_breaks_while_it_is_lent_fails_its_block_alone(open_pool, connect):
    pool, sql = await open_pool(size=1), await connect()

    async def break_it():
        async with pool.begin() as connection:
            pid, _ = await connection.fetchrow(LOOK)
            await sql.execute("select pg_terminate_backend($1)", pid)
            await eventually(lambda: not transactions._is_open(connection))

    with pytest.raises(SkepError):
        await break_it()

    assert await seen(pool)


async def test_no_more_are_lent_than_there_may_be(open_pool, monkeypatch):
    pool = await open_pool(size=1)
    async with pool.begin():
        monkeypatch.setattr(transactions, "ACQUIRE_TIMEOUT_S", 0.01)
        with pytest.raises(SkepError):
            await seen(pool)
    monkeypatch.undo()

    assert await seen(pool)


async def test_who_is_stopped_while_it_begins_takes_no_connection_away(open_pool):
    pool = await open_pool(size=1)
    for _ in range(3):
        beginning = asyncio.ensure_future(seen(pool))
        await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.gather(beginning, return_exceptions=True)

    assert await asyncio.wait_for(seen(pool), 30)
