from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.housekeeping import SERVICE, Keeper

ASSERT = "select skep.assert_leadership($1, $2)"


@pytest.fixture
def leader(arun, log):
    keeper = arun(Keeper.appoint(log))
    arun(keeper.take(10))
    return keeper


async def test_the_leader_passes(log, leader):
    await log.value(ASSERT, SERVICE, leader.holder)


async def test_another_does_not_pass(log, leader):
    with pytest.raises(asyncpg.PostgresError) as caught:
        await log.value(ASSERT, SERVICE, uuid4())

    assert caught.value.sqlstate == "SK423"


async def test_a_lease_that_has_run_out_does_not_pass_though_nobody_took_it(log, leader):
    await log.advance(10)

    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await log.value(ASSERT, SERVICE, leader.holder)
