"""Processes die under load, and the ledger of their clients must still add up.

Every run prints its seed; SKEP_CHAOS_SEED repeats one.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from math import inf
from pathlib import Path
from random import Random, SystemRandom

import pytest

from skep.db.migrate import migrate
from tests.faults.ledger import complaints
from tests.faults.load import GROUP, Load
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.slow

KILLS = 8
KILL_PAUSE_S = (0.5, 1.5)


@pytest.fixture
def seed():
    seed = os.environ.get("SKEP_CHAOS_SEED") or str(SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"SKEP_CHAOS_SEED={seed}\n")
    return seed


@contextmanager
def serving(database_url, *flags):
    """Run a broker on a database of the test's own; it must end well, and without a stack trace."""
    command = [sys.executable, "-m", "skep", "serve", "--port", "0", *flags]
    command += ["--database-url", database_url]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            broker = Broker(process, log, database_url)
            yield broker
            assert broker.stop() == 0, broker.log()
            assert "Traceback" not in broker.log(), broker.log()
        finally:
            process.kill()


@asynccontextmanager
async def load_on(broker, queue, seed, *, producers=12, consumers=8, **options):
    """Put load on a broker; whatever happens, nobody is left behind."""
    load = Load(broker, queue, seed, **options)
    load.start(producers=producers, consumers=consumers)
    try:
        yield load
    finally:
        await load.stop()


def worker_pids(broker):
    """Return the worker processes of a broker, not its other children."""
    supervisor = broker.process.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in command_of(pid)]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


async def stored_in(sql, queue):
    query = "select partition, transaction_id from skep.message where queue = $1"
    return [tuple(row) for row in await sql.fetch(query, queue)]


def require_good(ledger):
    offences = complaints(ledger, [GROUP])
    assert offences == [], f"{len(offences)} of {len(ledger.deliveries)} deliveries"


@pytest.mark.skipif(sys.platform != "linux", reason="finds the worker processes in /proc")
async def test_worker_processes_killed_again_and_again_lose_and_repeat_nothing(
    database_url, queue, seed
):
    random = Random(f"{seed} kills")
    killed = set()
    with serving(database_url, "--workers", "2") as broker:
        async with load_on(broker, queue, seed) as load:
            await load.until_done(50)
            for _ in range(KILLS):
                await asyncio.sleep(random.uniform(*KILL_PAUSE_S))
                if alive := worker_pids(broker):
                    victim = random.choice(alive)
                    os.kill(victim, signal.SIGKILL)
                    killed.add(victim)
            await load.drain()
        async with broker.sql() as sql:
            stored = await stored_in(sql, queue)

    require_good(load.ledger)
    assert len(stored) == len(set(stored)) == len(load.ledger.stored)
    assert len(killed) > KILLS / 2


async def test_a_database_killed_under_load_loses_and_repeats_nothing(
    durable_postgres, queue, seed
):
    server = durable_postgres()
    server.start()
    await migrate(server.dsn)
    with serving(server.dsn, "--workers", "2") as broker:
        async with load_on(broker, queue, seed) as load:
            for _ in range(2):
                await load.until_done(load.done_count + 100)
                os.kill(server.pid, signal.SIGKILL)
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
            await load.until_done(load.done_count + 100)
            await load.drain()
        async with broker.sql() as sql:
            stored = await stored_in(sql, queue)

    require_good(load.ledger)
    assert len(stored) == len(set(stored)) == len(load.ledger.stored)


async def test_a_broker_asked_to_stop_under_load_keeps_what_it_answered_and_ends_well(
    database_url, queue, seed
):
    with serving(database_url, "--workers", "2") as broker:
        async with broker.connect() as waiting, broker.sql() as sql:
            waiting.send_poll(f"{queue}-empty", wait=True, timeout=30_000)
            async with load_on(broker, queue, seed, consumers=0, backlog_max=inf) as load:
                await load.until_stored(200)

                exit_code = await asyncio.to_thread(broker.stop)
                answer = await waiting.answer()
            stored = await stored_in(sql, queue)

    assert exit_code == 0
    assert answer.status == 204
    answered = {(each.partition, each.transaction_id) for each in load.ledger.stored}
    attempted = {(each.partition, each.transaction_id) for each in load.ledger.attempts}
    assert len(stored) == len(set(stored))
    assert answered <= set(stored) <= attempted


async def test_the_messages_of_a_consumer_that_died_come_again_after_its_lease(open_client, queue):
    mortal, other = await open_client(), await open_client()
    await mortal.push_payloads(queue, 1, 2, 3)
    first = await mortal.pop(queue, batch=3, leaseSeconds=1)
    await mortal.ack(first[0])
    leased_at = asyncio.get_running_loop().time()

    mortal.hang_up()
    again = await other.pop(queue, batch=3, wait=True, timeout=8_000)

    assert [message["deliveryAttempt"] for message in first] == [1, 1, 1]
    assert [(message["data"], message["deliveryAttempt"]) for message in again] == [(2, 2), (3, 2)]
    assert asyncio.get_running_loop().time() - leased_at > 0.8
    assert (await other.ack(again[-1]))["success"]
