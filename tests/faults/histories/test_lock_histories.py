"""A lock has one holder at a time and its tokens grow, whatever is killed meanwhile."""

import asyncio
import sys
from random import Random

import pytest

from tests.faults.support.instances import fleet_of
from tests.faults.support.lock_histories import Hold, LockLoad, violations
from tests.faults.support.storms import kill_brokers, under


def test_holders_that_took_turns_are_accepted():
    assert list(violations([Hold(5, "b", 8), Hold(3, "a", 4), Hold(5, "b", 9)])) == []


def test_two_holders_of_one_token_are_found():
    found = list(violations([Hold(3, "a", 4), Hold(3, "b", 5)]))

    assert found == ["token 3 was held by a and by b"]


def test_a_holder_that_writes_after_it_was_replaced_is_found():
    found = list(violations([Hold(3, "a", 6), Hold(5, "b", 4)]))

    assert found == ["the holder of 3 wrote after that of 5"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills process groups")
async def test_a_lock_has_one_holder_while_brokers_are_killed(database_url, queue, seed):
    async with fleet_of(2, database_url, seed, "--workers", "1") as fleet:
        load = LockLoad(fleet, queue)
        async with under(load):
            await load.until_held(20)
            await kill_brokers(fleet, 2, kills=3, pause_s=(0.1, 0.4), random=Random(seed))
            await load.until_held(len(load.holds) + 40)

    assert list(violations(load.holds)) == []


@pytest.mark.slow
async def test_a_lock_has_one_holder_while_postgresql_is_killed(postgres, queue, seed):
    async with fleet_of(1, postgres.dsn, seed, "--workers", "1") as fleet:
        load = LockLoad(fleet, queue)
        async with under(load):
            for _ in range(2):
                await load.until_held(len(load.holds) + 20)
                await asyncio.to_thread(postgres.end)
                await asyncio.to_thread(postgres.start)
            await load.until_held(len(load.holds) + 20)

    assert list(violations(load.holds)) == []
