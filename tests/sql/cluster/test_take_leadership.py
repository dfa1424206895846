from uuid import uuid4

import pytest

from tests.sql.support.housekeeping import SERVICE, Keeper


@pytest.fixture
def leader(arun, log):
    keeper = arun(Keeper.appoint(log))
    arun(keeper.take(10))
    return keeper


async def test_nobody_else_can_take_a_lease_that_is_running(log, leader):
    await log.advance(9.9)

    assert not await leader.take(10, uuid4())


async def test_the_leader_renews_its_lease_and_keeps_others_out(log, leader):
    await log.advance(9)

    assert await leader.take(10)
    await log.advance(9)
    assert not await leader.take(10, uuid4())


async def test_a_lease_that_has_run_out_is_anybodys(log, leader):
    successor = uuid4()
    await log.advance(10)

    assert await leader.take(10, successor)
    assert not await leader.take(10), "the former leader took it back from its successor"


async def test_kinds_of_work_have_leaders_of_their_own(log, leader):
    query = "select skep.take_leadership($1, $2, 10)"

    assert await log.value(query, f"not {SERVICE}", uuid4())


async def test_of_two_that_ask_at_once_one_gets_it(log, open_log, leader):
    other = await open_log()
    await log.advance(10)
    await other.advance(10)
    query = "select skep.take_leadership($1, $2, 10)"

    async with log.connection.transaction():
        assert await log.value(query, SERVICE, uuid4())
        await other.execute("set lock_timeout = '50ms'")
        with pytest.raises(Exception, match="lock timeout"):
            await other.value(query, SERVICE, uuid4())

    assert not await other.value(query, SERVICE, uuid4())
