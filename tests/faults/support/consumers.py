"""Consumers in processes of their own, which can be killed and frozen."""

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager

from tests.support.broker import pop_path

PATIENCE_S = 60


class Consumer:
    """A consumer that holds a batch, and completes what it is told to."""

    def __init__(self, process):
        self.process = process
        self.messages = []

    async def read(self):
        async with asyncio.timeout(PATIENCE_S):
            return json.loads(await self.process.stdout.readline())

    async def ack(self, position):
        """Complete one of its messages; return the result."""
        self.process.stdin.write(b"%d\n" % position)
        await self.process.stdin.drain()
        return await self.read()


@asynccontextmanager
async def consuming(broker, queue, **parameters):
    """Run a consumer that has taken a batch."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.support.consumer",
        broker.url,
        pop_path(queue, **parameters),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    consumer = Consumer(process)
    try:
        consumer.messages = await consumer.read()
        yield consumer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def cursor_of(broker, queue):
    """Return where the only cursor of a queue stands."""
    query = """
        select c.acked, c.leased, c.lease_id, c.failed_count from skep.cursor c
        join skep.queue q on q.id = c.queue_id where q.name = $1"""
    async with broker.sql() as sql:
        return tuple(await sql.fetchrow(query, queue))


@asynccontextmanager
async def overslept(broker, client, queue):
    """Freeze a consumer past its lease; yield it awake, and the message that another now holds."""
    await client.push_payloads(queue, 1)
    async with consuming(broker, queue, leaseSeconds=1) as sleeper:
        sleeper.process.send_signal(signal.SIGSTOP)
        (again,) = await client.pop(queue, wait=True, timeout=20_000, leaseSeconds=30)
        sleeper.process.send_signal(signal.SIGCONT)
        yield sleeper, again


async def freeze_consumers(broker, queue, *, times):
    """Let consumers oversleep and acknowledge; count what should not have happened."""
    counted = {"frozen": times, "accepted after expiry": 0, "cursors moved": 0, "lost": 0}
    async with broker.connect() as client:
        for number in range(times):
            partition = f"{queue}-{number}"
            async with overslept(broker, client, partition) as (sleeper, again):
                before = await cursor_of(broker, partition)
                counted["accepted after expiry"] += (await sleeper.ack(0))["success"]
                counted["cursors moved"] += await cursor_of(broker, partition) != before
            counted["lost"] += not (await client.ack(again))["success"]
    return counted
