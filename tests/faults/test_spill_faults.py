"""PostgreSQL dies, workers die, the disk is full: what was acknowledged is stored, once, in order.

Real processes: a PostgreSQL of the test's own and a `skep serve` with several workers.
"""

import asyncio
import json
import os
import resource
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from tests.faults.support.full_disks import run_sql
from tests.faults.support.instances import end_well, instance, kill_instance, worker_pids
from tests.sql.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds the worker processes in /proc"),
]

PRODUCERS = 6
PARTITIONS = ["a", "b", "c"]
MAINTENANCE = "/api/v1/system/maintenance"


def serving(database_url, spill_dir, *flags, **settings):
    """Run a broker that keeps pushes on disk soon after the database is gone."""
    return instance(
        database_url, *flags, **{"spill_dir": spill_dir, "spill_after_s": 0.1, **settings}
    )


class Producer:
    """Pushes one message after the other, each on another connection, and notes what was said."""

    def __init__(self, broker, queue, number):
        self._broker = broker
        self._queue = queue
        self._number = number
        self.accepted = []
        """(partition, transaction id, status) of what was acknowledged, in order."""

    async def run(self, is_over):
        sequence = 0
        while not is_over.is_set():
            sequence += 1
            partition = PARTITIONS[sequence % len(PARTITIONS)]
            name = f"{self._number}-{sequence}"
            status = await self._push_until_accepted(partition, name)
            self.accepted.append((partition, name, status))

    async def _push_until_accepted(self, partition, name):
        item = {"queue": self._queue, "partition": partition, "transactionId": name, "payload": 1}
        while True:
            try:
                async with asyncio.timeout(20), self._broker.connect() as connection:
                    answer = await connection.post("/api/v1/push", {"items": [item]})
            except (OSError, EOFError, asyncio.IncompleteReadError):
                continue  # a worker died: nobody knows, so once more
            if answer.status == 201:
                (result,) = json.loads(answer.body)
                return result["status"]


@asynccontextmanager
async def producing(broker, queue):
    producers = [Producer(broker, queue, number) for number in range(PRODUCERS)]
    is_over = asyncio.Event()
    tasks = [asyncio.ensure_future(producer.run(is_over)) for producer in producers]
    try:
        yield producers
    finally:
        is_over.set()
        await asyncio.gather(*tasks)


def count(producers, status):
    return sum(each[2] == status for producer in producers for each in producer.accepted)


async def until_more(producers, status, more):
    """Wait for so many further answers of a kind."""
    wanted = count(producers, status) + more
    await eventually(lambda: count(producers, status) >= wanted)


async def call(broker, method, path, body=b""):
    async with asyncio.timeout(20), broker.connect() as connection:
        return await connection.call(method, path, body)


async def until_drained(broker):
    async def is_empty():
        try:
            answer = await call(broker, "GET", MAINTENANCE)
        except (OSError, EOFError, asyncio.IncompleteReadError):
            return False
        stats = json.loads(answer.body)["bufferStats"] if answer.status == 200 else None
        return bool(stats) and stats["pendingCount"] == 0 and stats["dbHealthy"]

    await eventually(is_empty)


async def require_all_stored(broker, queue, producers):
    """Every acknowledged message is there once, and in the order of its producer."""
    async with broker.sql() as sql:
        query = """
            select partition, transaction_id from skep.message
            where queue = $1 order by partition, "offset" """
        stored = [tuple(row) for row in await sql.fetch(query, queue)]
    assert len(stored) == len(set(stored))
    for producer in producers:
        for partition in PARTITIONS:
            sent = [name for place, name, _ in producer.accepted if place == partition]
            its_stored = [each for each in stored if each in {(partition, name) for name in sent}]
            assert [name for _, name in its_stored] == sent


async def test_postgres_killed_under_pushes_from_many_clients(postgres, tmp_path, queue):
    with serving(postgres.dsn, tmp_path, "--workers", "2") as broker:
        async with producing(broker, queue) as producers:
            await until_more(producers, "queued", 100)
            for _ in range(2):
                await asyncio.to_thread(postgres.end)
                await until_more(producers, "buffered", 300)
                await asyncio.to_thread(postgres.start)
                await until_more(producers, "queued", 100)
        await until_drained(broker)

        await require_all_stored(broker, queue, producers)
        end_well(broker)


async def test_workers_killed_while_there_are_messages_on_disk(postgres, tmp_path, queue):
    with serving(postgres.dsn, tmp_path, "--workers", "2") as broker:
        async with producing(broker, queue) as producers:
            await until_more(producers, "queued", 50)
            await asyncio.to_thread(postgres.end)
            await until_more(producers, "buffered", 100)
            for pid in worker_pids(broker):
                os.kill(pid, signal.SIGKILL)
            await until_more(producers, "buffered", 100)
            await asyncio.to_thread(postgres.start)
            await until_more(producers, "queued", 50)
        await until_drained(broker)

        await require_all_stored(broker, queue, producers)
        end_well(broker)


async def test_scenario_10_what_was_buffered_is_delivered_after_the_instance_was_killed(
    postgres, tmp_path, queue
):
    with serving(postgres.dsn, tmp_path, "--workers", "1") as broker:
        async with producing(broker, queue) as producers:
            await until_more(producers, "queued", 50)
            await asyncio.to_thread(postgres.end)
            await until_more(producers, "buffered", 100)
        kill_instance(broker.process)
    await asyncio.to_thread(postgres.start)
    with serving(postgres.dsn, tmp_path, "--workers", "2") as broker:
        await until_drained(broker)

        await require_all_stored(broker, queue, producers)
        end_well(broker)


async def test_defect_34_an_instance_serves_pushes_before_there_is_a_database(
    postgres, tmp_path, queue
):
    await asyncio.to_thread(postgres.end)
    always = {"start_without_database": "always"}
    with serving(postgres.dsn, tmp_path, "--workers", "2", **always) as broker:
        alive = await call(broker, "GET", "/livez")
        ready = await call(broker, "GET", "/readyz")
        poll = await call(broker, "GET", f"/api/v1/pop/queue/{queue}")
        async with producing(broker, queue) as producers:
            await until_more(producers, "buffered", 100)
            await asyncio.to_thread(postgres.start)
            await until_more(producers, "queued", 50)
        await until_drained(broker)
        ready_again = await call(broker, "GET", "/readyz")

        assert (alive.status, ready.status, poll.status) == (200, 503, 503)
        assert ready_again.status == 200
        await require_all_stored(broker, queue, producers)
        end_well(broker)


async def test_where_it_is_told_to_an_instance_waits_also_for_a_database_that_nobody_created(
    postgres, tmp_path, queue
):
    url = f"{postgres.dsn.rpartition('/')[0]}/{queue}"
    settings = {"start_without_database": "always", "migrate": "always"}
    with serving(url, tmp_path, "--workers", "1", **settings) as broker:
        told = broker.log()
        async with producing(broker, queue) as producers:
            await until_more(producers, "buffered", 20)
            await run_sql(postgres, f'create database "{queue}"')
            await until_more(producers, "queued", 20)
        await until_drained(broker)

        await require_all_stored(broker, queue, producers)
        assert f'database "{queue}" does not exist; starting without it' in told
        end_well(broker)


async def test_an_instance_that_served_a_database_starts_without_it_and_keeps_what_it_has(
    postgres, tmp_path, queue
):
    with serving(postgres.dsn, tmp_path, "--workers", "1") as broker:
        end_well(broker)
    await asyncio.to_thread(postgres.end)
    with serving(postgres.dsn, tmp_path, "--workers", "1") as broker:
        async with producing(broker, queue) as producers:
            await until_more(producers, "buffered", 50)
        end_well(broker)
    await asyncio.to_thread(postgres.start)
    with serving(postgres.dsn, tmp_path, "--workers", "1") as broker:
        await until_drained(broker)

        await require_all_stored(broker, queue, producers)
        end_well(broker)


async def test_scenario_11_a_full_spool_disk_is_told_and_nothing_is_called_buffered(
    postgres, tmp_path, queue
):
    with serving(postgres.dsn, tmp_path, "--workers", "1") as broker:
        (worker,) = worker_pids(broker)
        await asyncio.to_thread(postgres.end)
        unlimited = resource.prlimit(worker, resource.RLIMIT_FSIZE)
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (1 << 20, unlimited[1]))
        answers = [await push_large(broker, queue, number) for number in range(6)]
        resource.prlimit(worker, resource.RLIMIT_FSIZE, unlimited)
        answers.append(await push_large(broker, queue, 6))
        await asyncio.to_thread(postgres.start)
        await until_drained(broker)

        async with broker.sql() as sql:
            query = 'select transaction_id from skep.message where queue = $1 order by "offset"'
            stored = [row[0] for row in await sql.fetch(query, queue)]
        statuses = [answer.status for answer in answers]
        assert 503 in statuses
        assert statuses[-1] == 201
        assert stored == [f"{n}" for n, status in enumerate(statuses) if status == 201]
        refused = next(answer for answer in answers if answer.status == 503)
        assert json.loads(refused.body)["code"] == "spill_refused"
        end_well(broker)


async def push_large(broker, queue, number):
    item = {"queue": queue, "transactionId": f"{number}", "payload": "x" * 300_000}
    return await call(broker, "POST", "/api/v1/push", json.dumps({"items": [item]}).encode())


async def test_beyond_its_bound_the_spill_refuses(postgres, tmp_path, queue):
    with serving(postgres.dsn, tmp_path, "--workers", "1", spill_bytes_max=700_000) as broker:
        await asyncio.to_thread(postgres.end)

        statuses = [(await push_large(broker, queue, number)).status for number in range(4)]

        assert statuses == [201, 201, 503, 503]
        end_well(broker)
