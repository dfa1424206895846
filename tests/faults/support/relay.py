"""Workers that consume from one partition and push into others, in one transaction each.

They write down what they did, saw and were told. A worker whose transaction got no answer asks
nothing more about it: what became of it must show in the end.
"""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

from tests.faults.support.histories import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    History,
    Read,
    Transaction,
)
from tests.faults.support.load import Line, now
from tests.support.broker import ack_item, pop_path

PARTITIONS = [f"partition {number}" for number in range(4)]
BATCH = 5
DOOMED = 0.05
"""Transactions that are undone, because they require a lease that does not exist."""
SEEDS = 24
"""Messages to begin with: so many are on their way from partition to partition."""


class Relay:
    """All workers of one run."""

    def __init__(self, broker, queue, seed, *, call_s=5):
        self.history = History()
        self.statuses = Counter()
        self._broker = broker
        self._queue = queue
        self._seed = seed
        self._call_s = call_s
        self._is_running = True
        self._workers = []
        self._committed = 0
        self._news = asyncio.Event()

    async def start(self, workers):
        line = self._line()
        items = [self._item(PARTITIONS[n % len(PARTITIONS)], f"seed {n}") for n in range(SEEDS)]
        pushed = tuple((item["partition"], item["transactionId"]) for item in items)
        sent_at = now()
        while await line.call("POST", "/api/v1/push", {"items": items}, expect=201) is None:
            pass
        seeds = Transaction("seeds", sent_at, now(), COMMITTED, pushed)
        self.history.transactions.append(seeds)
        line.close()
        self._workers = [asyncio.ensure_future(self._work(n)) for n in range(workers)]

    async def until_committed(self, count):
        while self._committed < count:
            for worker in self._workers:
                if worker.done():
                    worker.result()
            self._news.clear()
            async with asyncio.timeout(60):
                await self._news.wait()

    async def finish(self, sql):
        """Let everybody end what they are doing, and read what every partition holds."""
        self._is_running = False
        await asyncio.gather(*self._workers)
        rows = await sql.fetch(
            "select partition, transaction_id from skep.message where queue = $1 "
            'order by partition, "offset"',
            self._queue,
        )
        self.history.final = {partition: [] for partition in PARTITIONS}
        for partition, message in rows:
            self.history.final[partition].append(message)
        return self.history

    async def stop(self):
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def _line(self):
        return Line(self._broker, self._call_s, self.statuses)

    def _item(self, partition, name):
        return {
            "queue": self._queue,
            "partition": partition,
            "transactionId": name,
            "payload": name,
        }

    async def _work(self, number):
        random = Random(f"{self._seed} worker {number}")
        line = self._line()
        count = 0
        while self._is_running:
            messages = await self._pop(line, random, f"read {number}-{count}")
            if messages:
                await self._transact(line, random, messages, f"{number}-{count}")
            count += 1
        line.close()

    async def _pop(self, line, random, name):
        partition = random.choice(PARTITIONS)
        options = {"batch": BATCH, "wait": True, "timeout": 200, "leaseSeconds": 1}
        path = pop_path(self._queue, partition, consumerGroup="relay", **options)
        sent_at = now()
        answer = await line.call("GET", path, expect=200)
        messages = answer["messages"] if answer else []
        if messages:
            read = Read(
                name,
                sent_at,
                now(),
                partition,
                tuple(message["transactionId"] for message in messages),
                is_to_the_end=len(messages) < BATCH,
            )
            self.history.reads.append(read)
        return messages

    async def _transact(self, line, random, messages, name):
        # What a transaction leaves out keeps the partition from everybody until the lease ends.
        consumed = messages[: random.choice([len(messages)] * 9 + [1])]
        pushed = [
            self._item(random.choice(PARTITIONS), f"{name} {part}")
            for part in range(random.randint(1, 2 * len(consumed)))
        ]
        operations = [{"type": "ack", **ack_item(message)} for message in consumed]
        operations.append({"type": "push", "items": pushed})
        leases = sorted({message["leaseId"] for message in consumed})
        if random.random() < DOOMED:
            leases.append(str(UUID(int=0)))
        sent_at = now()
        body = {"operations": operations, "requiredLeases": leases}
        answer = await line.call("POST", "/api/v1/transaction", body, expect=200)
        answered_at = now() if answer is not None else None
        outcome = UNKNOWN if answer is None else COMMITTED if answer["success"] else ABORTED
        self.history.transactions.append(
            Transaction(
                name,
                sent_at,
                answered_at,
                outcome,
                tuple((item["partition"], item["transactionId"]) for item in pushed),
                tuple((each["partition"], each["transactionId"]) for each in consumed),
            )
        )
        self._committed += outcome == COMMITTED
        self._news.set()


@asynccontextmanager
async def relay_on(broker, queue, seed, *, workers=6, **options):
    """Run workers on a broker or a fleet; whatever happens, none is left behind."""
    relay = Relay(broker, queue, seed, **options)
    await relay.start(workers)
    try:
        yield relay
    finally:
        await relay.stop()
