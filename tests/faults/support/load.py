"""Producers and consumers that go on whatever happens, and write down what they see.

A producer sends to each partition one push at a time, and repeats it with the same transaction ids
until it is answered. A consumer completes most of what it gets, fails some, and forgets some; it
too repeats what it has to say until it is answered.
"""

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager, suppress
from random import Random

from tests.faults.support.ledger import Ack, Attempt, Delivery, Ledger, Stored
from tests.support.broker import ack_item, pop_path

GROUP = "bees"
LEASE_S = 2
WAIT_MS = 500
PARTITIONS = [f"partition {number}" for number in range(12)]
GONE = (OSError, asyncio.IncompleteReadError, TimeoutError)
RECONNECT_PAUSE_S = 0.02
CALL_S = 15
DRAIN_S = 90
FORGOTTEN, FAILED = 0.005, 0.02
ACCEPTED = frozenset({"queued", "duplicate", "buffered"})


class Load:
    """Everybody who talks to one broker during a run.

    Args:
        broker: Where to.
        queue: Its queue.
        seed: Decides everything that is left to chance here.
        backlog_max: Messages by which the consumers may be behind.
        lease_s: For how long a consumer takes messages.
        call_s: How long an answer may take before nobody believes in it any more.
        drain_s: How long consumers go on at the end.
        partitions: Where producers send to.
    """

    def __init__(
        self,
        broker,
        queue,
        seed,
        *,
        backlog_max=1_000,
        lease_s=LEASE_S,
        call_s=CALL_S,
        drain_s=DRAIN_S,
        partitions=PARTITIONS,
    ):
        self.ledger = Ledger()
        self.statuses = Counter()
        """How often each status of HTTP was answered."""
        self.stalls = Stalls()
        self._lease_s = lease_s
        self._call_s = call_s
        self._drain_s = drain_s
        self._partitions = partitions
        self._broker = broker
        self._queue = queue
        self._seed = seed
        self.buffered_count = 0
        """How many messages were kept on disk at first."""
        self._is_producing = True
        self._is_consuming = True
        self._producers = []
        self._consumers = []
        # A message may be done before its producer hears that it is stored.
        self._stored = set()
        self._done = set()
        self._backlog_max = backlog_max
        self._news = asyncio.Event()
        self._progress = asyncio.Event()

    def start(self, *, producers, consumers):
        self._producers = [
            asyncio.ensure_future(self._produce(number)) for number in range(producers)
        ]
        self._consumers = [
            asyncio.ensure_future(self._consume(number)) for number in range(consumers)
        ]

    @property
    def done_count(self):
        """How many messages were completed."""
        return len(self._done)

    async def until_stored(self, count):
        """Wait until so many messages in all were acknowledged to their producers."""
        await self._until(lambda: len(self._stored) >= count)

    async def until_done(self, count):
        """Wait until so many messages in all were completed by consumers."""
        await self._until(lambda: self.done_count >= count)

    async def drain(self):
        """Stop producing, wait until everything stored is completed, and stop consuming.

        What does not come in all that time is lost, and the checker will say which it is.
        """
        self._is_producing = False
        self._progress.set()
        await asyncio.gather(*self._producers)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                await self._until(lambda: self._stored <= self._done)
        self._is_consuming = False
        await asyncio.gather(*self._consumers)

    async def stop(self):
        """Stop everybody, whatever they are doing."""
        for task in (*self._producers, *self._consumers):
            task.cancel()
        await asyncio.gather(*self._producers, *self._consumers, return_exceptions=True)

    async def _until(self, is_so):
        while not is_so():
            for task in (*self._producers, *self._consumers):
                if task.done():
                    task.result()  # somebody fell over: say why instead of waiting
            self._news.clear()
            with suppress(TimeoutError):
                # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with news.
                async with asyncio.timeout(1):
                    await self._news.wait()

    # Producing

    async def _produce(self, number):
        random = Random(f"{self._seed} producer {number}")
        sequences = dict.fromkeys(self._partitions, 0)
        line = Line(self._broker, self._call_s, self.statuses)
        while self._is_producing:
            await self._until_wanted()
            partition = random.choice(self._partitions)
            items = []
            for _ in range(random.randint(1, 5)):
                sequences[partition] += 1
                name = f"{number}-{partition}-{sequences[partition]}"
                attempt = Attempt(partition, name, str(number), sequences[partition])
                self.ledger.attempts.append(attempt)
                items.append(self._item(attempt))
            await self._push_until_stored(line, partition, items)
        line.close()

    async def _until_wanted(self):
        """Wait while consumers are far behind, so that a run can be drained in seconds."""
        while self._is_producing and len(self._stored) - len(self._done) > self._backlog_max:
            self._progress.clear()
            await self._progress.wait()

    def _item(self, attempt):
        payload = {"producer": attempt.producer, "sequence": attempt.sequence}
        name = attempt.transaction_id
        return {
            "queue": self._queue,
            "partition": attempt.partition,
            "transactionId": name,
            "payload": payload,
        }

    async def _push_until_stored(self, line, partition, items):
        while True:
            results = await line.call("POST", "/api/v1/push", {"items": items}, expect=201)
            if results and all(each["status"] in ACCEPTED for each in results):
                break
        for result in results:
            name = result["transaction_id"]
            self.ledger.stored.append(Stored(partition, name, result.get("message_id")))
            self._stored.add(name)
            self.buffered_count += result["status"] == "buffered"
        self.stalls.note(now())
        self._news.set()

    # Consuming

    async def _consume(self, number):
        random = Random(f"{self._seed} consumer {number}")
        line = Line(self._broker, self._call_s, self.statuses)
        while self._is_consuming:
            messages = await self._pop(line, random)
            if not messages:
                continue
            chance = random.random() if self._is_producing else 1
            if chance < FORGOTTEN:
                continue  # they come again when the lease has ended
            status = "retry" if chance < FORGOTTEN + FAILED else "completed"
            await self._ack(line, messages, status)
        line.close()

    async def _pop(self, line, random):
        path = pop_path(
            self._queue,
            consumerGroup=GROUP,
            batch=random.randint(1, 100),
            partitions=random.randint(1, 3),
            wait=True,
            timeout=WAIT_MS,
            leaseSeconds=self._lease_s,
        )
        asked_at = now()
        answer = await line.call("GET", path, expect=200)
        received_at = now()
        messages = answer["messages"] if answer else []
        self.ledger.deliveries += [
            Delivery(
                GROUP,
                message["partition"],
                message["id"],
                message["transactionId"],
                message["leaseId"],
                self._lease_s,
                asked_at,
                received_at,
            )
            for message in messages
        ]
        return messages

    async def _ack(self, line, messages, status):
        sent_at = now()
        body = {"acknowledgments": [ack_item(message, status) for message in messages]}
        results = None
        while results is None:
            results = await line.call("POST", "/api/v1/ack/batch", body, expect=200)
        answered_at = now()
        for position, message in enumerate(messages):
            ack = Ack(
                GROUP,
                message["partition"],
                message["transactionId"],
                message["leaseId"],
                status,
                sent_at,
                answered_at,
                is_success=results[position]["success"],
            )
            self.ledger.acks.append(ack)
            if ack.is_done:
                self._done.add(ack.transaction_id)
        self._news.set()
        self._progress.set()


@asynccontextmanager
async def load_on(broker, queue, seed, *, producers=8, consumers=6, **options):
    """Put load on a broker or a fleet; whatever happens, nobody is left behind."""
    load = Load(broker, queue, seed, **options)
    load.start(producers=producers, consumers=consumers)
    try:
        yield load
    finally:
        await load.stop()


class Stalls:
    """How long at most nothing was stored."""

    def __init__(self):
        self.longest_s = 0.0
        self._last = None

    def note(self, moment):
        """Something was stored."""
        if self._last is not None:
            self.longest_s = max(self.longest_s, moment - self._last)
        self._last = moment


class Line:
    """A connection that is made anew when it breaks, or says nothing for too long."""

    def __init__(self, broker, call_s, statuses):
        self._broker = broker
        self._call_s = call_s
        self._statuses = statuses
        self._open = None
        self._connection = None

    async def call(self, method, path, members=None, *, expect):
        """Return the body of an answer with this status; None if nobody knows what happened."""
        body = b"" if members is None else json.dumps(members).encode()
        try:
            async with asyncio.timeout(self._call_s):
                if self._connection is None:
                    self._open = self._broker.connect()
                    self._connection = await self._open.__aenter__()
                answer = await self._connection.call(method, path, body)
        except GONE:
            self.close()
            await asyncio.sleep(RECONNECT_PAUSE_S)
            return None
        self._statuses[answer.status] += 1
        return json.loads(answer.body) if answer.status == expect else None

    def close(self):
        if self._connection is not None:
            self._connection.hang_up()
        self._connection = None


def now():
    return asyncio.get_running_loop().time()
