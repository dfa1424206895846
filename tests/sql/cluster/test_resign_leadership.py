from uuid import uuid4

import pytest

from tests.sql.support.housekeeping import SERVICE, Keeper

RESIGN = "select skep.resign_leadership($1, $2)"


@pytest.fixture
def leader(arun, log):
    return arun(Keeper.appoint(log))


async def test_after_a_resignation_another_leads_at_once(log, leader):
    assert await log.value(RESIGN, SERVICE, leader.holder)
    assert await leader.take(10, uuid4())


async def test_nobody_can_resign_for_another(log, leader):
    assert not await log.value(RESIGN, SERVICE, uuid4())
    assert not await leader.take(10, uuid4())
