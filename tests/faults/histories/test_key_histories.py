"""Keys are linearizable and no increment is lost or done twice, whatever is killed meanwhile."""

import asyncio
import sys
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.faults.support.instances import fleet_of
from tests.faults.support.key_histories import KeyHistory, KeyLoad, Read, Write, violations
from tests.faults.support.storms import kill_brokers, under


def write(value, expected, version, at=(0, 100)):
    return Write("k", value, expected, version, *at)


def read(value, version, at=(0, 100)):
    return Read("k", value, version, *at)


def test_writes_that_saw_each_other_are_accepted():
    history = KeyHistory([write("a", 0, 1), write("b", 1, 3)], [read("a", 1), read("b", 3)])

    assert violations(history) == []


def test_a_lost_update_is_found():
    history = KeyHistory([write("a", 1, 2), write("b", 1, 3)], [])

    assert violations(history) == ["k: 'b' was written over 'a' without having seen it"]


def test_a_write_that_may_have_happened_explains_a_read_and_a_gap():
    history = KeyHistory([write("a", 0, 1), write("b", 1, None), write("c", 2, 3)], [read("b", 2)])

    assert violations(history) == []


def test_a_value_that_was_never_written_is_found():
    assert violations(KeyHistory([], [read("a", 1)])) == ["k: 'a' was read and never written"]


def test_another_value_than_the_one_written_is_found():
    history = KeyHistory([write("a", 0, 1)], [read("b", 1)])

    assert violations(history) == ["k: version 1 was read as 'b', not 'a'"]


def test_a_read_of_what_was_overwritten_before_it_began_is_found():
    history = KeyHistory(
        [write("a", 0, 1, (0, 1)), write("b", 1, 2, (2, 3))], [read("a", 1, (4, 5))]
    )

    assert violations(history) == ["k: version 1 followed 2"]


@asynccontextmanager
async def load_on(fleet, queue, seed):
    load = KeyLoad(fleet, queue, seed)
    async with under(load):
        yield load


async def check(load, fleet, ns):
    query = "select value::text::integer from skep.kv where ns = $1 and key = 'count'"
    async with fleet.living()[0].sql() as sql:
        total = await sql.fetchval(query, ns)
    assert violations(load.history) == []
    assert len(load.history.writes) > 20
    assert len(set(load.counts)) == len(load.counts), "an increment was answered twice"
    assert len(load.counts) <= total <= len(load.counts) + load.maybe_counted


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills process groups")
async def test_no_update_is_lost_while_brokers_are_killed(database_url, queue, seed):
    async with fleet_of(2, database_url, seed, "--workers", "1") as fleet:
        async with load_on(fleet, queue, seed) as load:
            await load.until_written(100)
            await kill_brokers(fleet, 2, kills=2, pause_s=(0.2, 0.5), random=Random(seed))
            await load.until_written(len(load.counts) + 200)

        await check(load, fleet, queue)


@pytest.mark.slow
async def test_no_update_is_lost_while_postgresql_is_killed(postgres, queue, seed):
    async with fleet_of(1, postgres.dsn, seed, "--workers", "1") as fleet:
        async with load_on(fleet, queue, seed) as load:
            for _ in range(2):
                await load.until_written(len(load.counts) + 100)
                await asyncio.to_thread(postgres.end)
                await asyncio.to_thread(postgres.start)
            await load.until_written(len(load.counts) + 100)

        await check(load, fleet, queue)
