"""Staged messages while connections break and processes die: each of them arrives once."""

import asyncio
import json
import os
import signal
import sys
from random import Random, SystemRandom

import asyncpg
import pytest

from skep import enqueue
from skep.broker.staged.move import SEQUENCE_CALL
from skep.db.access.errors import RejectedData
from skep.db.access.slots import Slots
from skep.enqueue import Message
from tests.faults.support.in_process import running
from tests.faults.support.instances import well_ending_instance, worker_pids
from tests.sql.support.waiting import eventually

SEQUENCE = "skep.sequence_staged("
READ = "skep.read_staged("
REJECT = "skep.reject_staged("
KILLS = 4


@pytest.fixture
def sql(arun, connect):
    """A connection to the test's database, around any proxy."""
    return arun(connect())


@pytest.fixture
def seed():
    seed = os.environ.get("SKEP_CHAOS_SEED") or str(SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"SKEP_CHAOS_SEED={seed}\n")
    return seed


async def stage(sql, queue, *numbers, **options):
    async with sql.transaction():
        await enqueue.stage_many(
            sql, [Message(queue=queue, payload=number, **options) for number in numbers]
        )


async def stored(sql, queue):
    """Return the payloads in the log of a queue, in order."""
    rows = await sql.fetch(
        'select payload from skep.message where queue = $1 order by partition, "offset"', queue
    )
    return [json.loads(row[0]) for row in rows]


async def letters(sql):
    return [row[0] for row in await sql.fetch("select error from skep.dead_letter order by id")]


async def is_done(sql):
    return not await sql.fetchval("select exists (select from skep.staged)")


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_broken_sequencing_stores_once(proxy, sql, queue, point):
    async with running(proxy.url):
        fault = proxy.at_next(SEQUENCE, point)
        await stage(sql, queue, 1, 2)
        await eventually(lambda: is_done(sql))
        await stage(sql, queue, 3)
        await eventually(lambda: is_done(sql))

    assert fault.struck.is_set()
    assert await stored(sql, queue) == [1, 2, 3]


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_broken_read_is_repeated(proxy, sql, queue, point):
    async with running(proxy.url):
        fault = proxy.at_next(READ, point)
        await stage(sql, queue, 1)
        await eventually(lambda: is_done(sql))

    assert fault.struck.is_set()
    assert await stored(sql, queue) == [1]


async def test_a_broken_rejection_leaves_one_dead_letter(proxy, sql, queue):
    async with running(proxy.url) as broker:
        await broker.configure(queue, jsonSchema={"type": "string"})
        fault = proxy.at_next(REJECT, "after")
        await stage(sql, queue, 1, "a")
        await eventually(lambda: is_done(sql))

    assert fault.struck.is_set()
    assert len(await letters(sql)) == 1
    assert await stored(sql, queue) == ["a"]


async def test_two_brokers_at_once_store_once_and_in_order(database_url, sql, queue):
    async with running(database_url), running(database_url):
        for number in range(60):
            await sql.execute(f"set skep.stage_notify = {'on' if number % 3 else 'off'}")
            await stage(sql, queue, number)
        await eventually(lambda: is_done(sql))

    assert await stored(sql, queue) == list(range(60))


async def test_what_a_stopped_broker_left_is_moved_by_the_next(database_url, sql, queue):
    async with running(database_url):
        pass
    await stage(sql, queue, 1)

    async with running(database_url):
        await eventually(lambda: is_done(sql))

    assert await stored(sql, queue) == [1]


async def test_a_message_that_the_database_refuses_goes_alone(
    database_url, sql, queue, monkeypatch
):
    call = Slots.call
    await stage(sql, queue, *range(10, 20))
    guilty = await sql.fetchval("select id from skep.staged where payload::text = '13'")

    async def call_or_refuse(slots, statement, *arguments):
        if statement == SEQUENCE_CALL and guilty in arguments[0]:
            raise RejectedData("no place for it")
        return await call(slots, statement, *arguments)

    monkeypatch.setattr(Slots, "call", call_or_refuse)
    async with running(database_url):
        await eventually(lambda: is_done(sql))

    assert await stored(sql, queue) == [n for n in range(10, 20) if n != 13]
    assert await letters(sql) == ["no place for it"]


async def test_many_transactions_at_once_with_holds_and_rollbacks(database_url, sql, queue, seed):
    pool = await asyncpg.create_pool(database_url, min_size=1, max_size=64)
    committed = []

    async def work(number):
        random = Random(f"{seed} {number}")
        for turn in range(4):
            names = [f"{number}.{turn}.{part}" for part in range(random.randint(1, 4))]
            async with pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                for name in names:
                    partition = random.choice("abc")
                    await enqueue.stage(connection, queue, name, partition=partition)
                    await asyncio.sleep(random.random() ** 4 / 4)
                if random.random() < 0.2:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    committed.append(names)

    async with running(database_url), running(database_url):
        async with asyncio.timeout(60):
            await asyncio.gather(*map(work, range(64)))
        await eventually(lambda: is_done(sql))
    await pool.close()

    rows = await sql.fetch(
        'select partition, payload from skep.message where queue = $1 order by partition, "offset"',
        queue,
    )
    partitions = {}
    for partition, payload in rows:
        partitions.setdefault(partition, []).append(json.loads(payload))
    assert sorted(name for partition in partitions.values() for name in partition) == sorted(
        name for names in committed for name in names
    )
    for names in partitions.values():
        for number in range(64):
            mine = [name for name in names if name.startswith(f"{number}.")]
            # One worker commits one transaction after the other, and stages in order.
            assert mine == sorted(mine)
    assert 0 < len(committed) < 64 * 4


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the worker processes in /proc")
async def test_killed_brokers_lose_and_repeat_nothing(database_url, sql, queue, seed):
    random = Random(seed)
    killed, staged = set(), []
    stopped = asyncio.Event()

    async def stage_all_the_time():
        connection = await asyncpg.connect(database_url)
        while not stopped.is_set():
            numbers = list(range(len(staged), len(staged) + random.randint(1, 20)))
            await stage(connection, queue, *numbers)
            staged.extend(numbers)
        await connection.close(timeout=5)

    with well_ending_instance(database_url, "--workers", "2") as broker:
        staging = asyncio.ensure_future(stage_all_the_time())
        for _ in range(KILLS):
            await asyncio.sleep(random.uniform(0.3, 1.0))
            alive = await eventually(lambda: set(worker_pids(broker)) - killed)
            victim = random.choice(sorted(alive))
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        stopped.set()
        await staging
        await eventually(lambda: is_done(sql))

    assert await stored(sql, queue) == staged
