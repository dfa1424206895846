"""Two transactions that meet at a key."""

import asyncio

import pytest

from tests.sql.model.test_races import waiting

PUT = "select version from skep.kv_put('race', $1, '1')"


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


@pytest.fixture(autouse=True)
def no_keys(arun, log):
    arun(log.execute("delete from skep.kv_entry"))


async def test_who_waited_for_a_key_gets_the_higher_version_though_it_was_deleted(
    log, other, observer
):
    """A version that was drawn before the wait would be the lower one."""
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value(PUT, "k")

    async with waiting(observer, other, other.value(PUT, "k")) as second:
        await log.value("select skep.kv_delete('race', 'k')")
        last = await log.value(PUT, "k")
        await log.value("select skep.kv_delete('race', 'k')")
        await transaction.commit()

    assert second.result() > last


async def test_of_two_that_create_a_key_the_one_that_waits_sees_it_exist(log, other, observer):
    query = "select applied, reason from skep.kv_put_if_absent('race', 'k', $1)"
    transaction = log.connection.transaction()
    await transaction.start()
    first = await log.row(query, "1")

    async with waiting(observer, other, other.row(query, "2")) as second:
        await transaction.commit()

    assert tuple(first) == (True, None)
    assert tuple(second.result()) == (False, "exists")


async def test_if_the_first_rolls_back_the_one_that_waits_creates_the_key(log, other, observer):
    query = "select applied from skep.kv_put_if_absent('race', 'k', $1)"
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value(query, "1")

    async with waiting(observer, other, other.value(query, "2")) as second:
        await transaction.rollback()

    assert second.result() is True


async def test_increments_of_two_transactions_add_up(log, other, observer):
    query = "select value_now from skep.kv_incr('race', 'k')"
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value(query)

    async with waiting(observer, other, other.value(query)) as second:
        await transaction.commit()

    assert second.result() == "2"


async def test_a_checked_key_stays_as_it_is_until_the_transaction_ends(log, other, observer):
    version = await log.value(PUT, "k")
    transaction = log.connection.transaction()
    await transaction.start()
    await log.execute(f"select skep.kv_check('race', 'k', {version})")

    async with waiting(observer, other, other.value("select skep.kv_delete('race', 'k')")) as task:
        assert await log.value("select version from skep.kv where key = 'k'") == version
        await transaction.commit()
        await task

    assert await log.value("select count(*) from skep.kv") == 0


async def test_an_absent_key_that_was_checked_stays_absent_and_leaves_no_trace(
    log, other, observer
):
    transaction = log.connection.transaction()
    await transaction.start()
    await log.execute("select skep.kv_check('race', 'k', 0)")

    async with waiting(observer, other, other.value(PUT, "k")) as second:
        await transaction.commit()

    assert second.result() > 0
    assert await log.value("select count(*) from skep.kv_entry") == 1


async def test_the_sweep_leaves_out_a_key_that_is_locked(log, other):
    await log.value("select skep.kv_put('race', 'k', '1', ttl_seconds => 1)")
    for session in (log, other):
        await session.advance(5)
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value("select skep.kv_put_if_absent('race', 'k', '2')")

    swept = await other.value("select skep.sweep_kv(10)")
    await transaction.commit()

    assert swept == 0
    assert await log.value("select value from skep.kv where key = 'k'") == "2"


async def test_calls_over_the_same_keys_in_any_order_do_not_deadlock(log, other):
    query = """
      select count(*) from skep.kv_apply(
        $1, $2, array[1, 1, 1], array[1, 2, 3], array['put', 'put', 'put'],
        array['1', '2', '3']::jsonb[], array[null, null, null]::bigint[],
        array[null, null, null]::bigint[], array[false, false, false],
        array[null, null, null]::numeric[], array[null, null, null]::numeric[])
    """
    namespace = ["race"] * 3

    async def write(session, keys):
        for _ in range(50):
            await session.value(query, namespace, keys)
            await session.execute("select skep.kv_delete('race', 'b')")

    await asyncio.gather(write(log, ["a", "b", "c"]), write(other, ["c", "b", "a"]))

    assert await log.value("select count(*) from skep.kv_entry where key in ('a', 'c')") == 2
