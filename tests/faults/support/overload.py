"""Three times as much as fits: who is answered how, and what is left of it afterwards.

Capacity is the memory of a worker for pushes. So many producers send at the same time that their
pushes fill it three times over; half of them ask to be answered 202. Every one has a partition of
its own and sends the next message when it knows that the last one was accepted.
"""

import asyncio
import json
from collections import Counter
from contextlib import suppress

from tests.faults.support.instances import memory_watched
from tests.faults.support.ledger import Ack, Attempt, Delivery, Ledger, Stored
from tests.faults.support.load import GONE, GROUP, now
from tests.support.broker import ack_item

ENGINE_MIB = 4
PUSH_SHARE = 0.5
FACTOR = 3
PAYLOAD_BYTES = 128 << 10
PRODUCERS = round(FACTOR * PUSH_SHARE * (ENGINE_MIB << 20) / PAYLOAD_BYTES)
SETTINGS = {"engine_weight_mib": ENGINE_MIB, "overload_wait_s": 0.3, "connections": 1}
PATIENT = "Prefer: respond-async\r\n"
RETRY_S = 0.05
LEASE_S = 60


class Overload:
    """Producers that press, and what they were told."""

    def __init__(self, broker, queue):
        self.ledger = Ledger()
        self.statuses = Counter()
        self.unanswered = 0
        self.memory_mib = 0.0
        self._broker = broker
        self._queue = queue
        self._ends_at = 0.0
        self._sequences = Counter()

    async def press(self, seconds, producers=PRODUCERS):
        """Let so many send for so long; return how many messages a second were accepted."""
        before = len(self.ledger.stored)
        self._ends_at = now() + seconds
        async with memory_watched(lambda: [self._broker]) as memory:
            await asyncio.gather(*map(self._produce, range(producers)))
        self.memory_mib = max(self.memory_mib, memory.highest_mib)
        return (len(self.ledger.stored) - before) / seconds

    async def consume(self):
        """Take and complete everything that was accepted."""
        missing = {each.name for each in self.ledger.stored}
        async with self._broker.connect() as client:
            while missing:
                asked_at = now()
                messages = await client.pop(
                    self._queue,
                    consumerGroup=GROUP,
                    batch=50,
                    partitions=10,
                    wait=True,
                    timeout=9_000,
                    leaseSeconds=LEASE_S,
                )
                if not messages:
                    return
                await self._complete(client, messages, asked_at)
                missing -= {(each["partition"], each["transactionId"]) for each in messages}

    async def _produce(self, number):
        headers = PATIENT if number % 2 else ""
        async with self._broker.connect() as client:
            while now() < self._ends_at:
                self._sequences[number] += 1
                sequence = self._sequences[number]
                attempt = Attempt(f"{number}", f"{number}-{sequence}", f"{number}", sequence)
                self.ledger.attempts.append(attempt)
                await self._push(client, attempt, headers)

    async def _push(self, client, attempt, headers):
        item = {
            "queue": self._queue,
            "partition": attempt.partition,
            "transactionId": attempt.transaction_id,
            "payload": "x" * PAYLOAD_BYTES,
        }
        body = json.dumps({"items": [item]}).encode()
        while True:
            try:
                answer = await client.call("POST", "/api/v1/push", body, headers)
            except GONE:
                self.unanswered += 1
                raise
            self.statuses[answer.status] += 1
            if answer.status in {201, 202}:
                break
            await asyncio.sleep(RETRY_S)
        self.ledger.stored.append(Stored(attempt.partition, attempt.transaction_id, None))

    async def _complete(self, client, messages, asked_at):
        received_at = now()
        for message in messages:
            place = message["partition"], message["id"], message["transactionId"]
            self.ledger.deliveries.append(
                Delivery(GROUP, *place, message["leaseId"], LEASE_S, asked_at, received_at)
            )
        results = await client.ack_batch(*map(ack_item, messages), consumerGroup=GROUP)
        for message, result in zip(messages, results, strict=True):
            place = message["partition"], message["transactionId"], message["leaseId"]
            self.ledger.acks.append(
                Ack(
                    GROUP,
                    *place,
                    "completed",
                    received_at,
                    now(),
                    is_success=result["success"],
                )
            )


async def until_served(overload, *, producers, within_s):
    """Return how long it took until so many were all answered 201 again, or `within_s`.

    Answers are counted, not messages a second: how many those are depends on what else the machine
    has to do.
    """
    began = now()
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            is_served = False
            while not is_served:
                before = Counter(overload.statuses)
                await overload.press(0.5, producers)
                is_served = set(overload.statuses - before) == {201}
    return now() - began
