"""A broker in the test's own process, spoken to without HTTP.

It is wired as in a worker process, so that a test can put a proxy before its database and decide
what happens to a single call.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
from msgspec import Raw

from skep.app.parts.broker import Broker
from skep.app.processes.assignment import assign_workers, bind_listener
from skep.broker.directory import Subscription
from skep.broker.pop.accept import Poll, PollOptions
from skep.broker.queues.configure import Configure
from skep.db.access.functions import Functions
from skep.model.wire import QUEUE_MODE, AckItem, PushItem, TransactionBody
from skep.settings import Settings

PATIENCE_S = 60


class InProcessBroker:
    """What clients ask of a broker, as coroutines."""

    def __init__(self, broker):
        self.broker = broker
        self.long_polls = broker.pop.long_polls

    async def configure(self, queue, **options):
        configure = Configure(Functions(self.broker.core.query))
        await configure.configure_queue(queue, namespace=None, task=None, options=options)

    async def push(self, *items):
        """Push items made by `item`; return their results."""
        answered = asyncio.get_running_loop().create_future()
        self.broker.push.push.push_messages(items, answered.set_result, size=100)
        request = await _patiently(answered)
        return [json.loads(result) for result in request.results]

    def start_poll(self, queue, partition=None, **options):
        """Begin a poll; its messages are the result of the poll's future `answered`."""
        answered = asyncio.get_running_loop().create_future()
        wait_s = options.pop("wait_s", 0)
        defaults = {
            "group": QUEUE_MODE,
            "batch": 1,
            "partitions": 1,
            "auto_ack": False,
            "lease_s": 0,
        }
        poll = ObservedPoll(
            PollOptions(
                queue=queue,
                partition=partition,
                subscription=Subscription(),
                **{**defaults, **options},
            ),
            deadline=asyncio.get_running_loop().time() + wait_s,
            answer=lambda body: _deliver(answered, body),
            refuse=answered.set_exception,
        )
        poll.answered = answered
        self.broker.pop.pop.pop_messages(poll)
        return poll

    async def pop(self, queue, partition=None, **options):
        """Return the messages a poll gets."""
        return await _patiently(self.start_poll(queue, partition, **options).answered)

    async def ack(self, *messages, status="completed", is_fenced=True):
        """Say of messages what became of them; return the results."""
        answered = asyncio.get_running_loop().create_future()
        items = [
            AckItem(
                transaction_id=message["transactionId"],
                partition_id=message["partitionId"],
                lease_id=message["leaseId"] if is_fenced else None,
                status=status,
            )
            for message in messages
        ]
        self.broker.pop.ack.ack_messages(items, messages[0]["consumerGroup"], answered.set_result)
        request = await _patiently(answered)
        assert request.error is None, request.error
        return [json.loads(result) for result in request.results]

    async def commit(self, *operations, leases=()):
        """Commit a transaction; return its answer."""
        members = {"operations": operations, "requiredLeases": leases}
        body = msgspec.json.decode(msgspec.json.encode(members), type=TransactionBody)
        answered = asyncio.get_running_loop().create_future()
        client = SimpleNamespace(
            respond=lambda _, answer: answered.set_result(answer), refuse=answered.set_exception
        )
        self.broker.transaction.transaction.commit(body, client)
        return json.loads(await _patiently(answered))


class ObservedPoll(Poll):
    """A poll whose answer can be awaited."""


def item(queue, transaction_id=None, *, partition="a", payload=b"{}"):
    return PushItem(queue, partition, Raw(payload), transaction_id)


def _deliver(answered, body):
    if answered.done():
        return False
    answered.set_result([] if body is None else json.loads(body)["messages"])
    return True


async def _patiently(waiting):
    async with asyncio.timeout(PATIENCE_S):
        return await waiting


@asynccontextmanager
async def running(database_url, **settings):
    """Run a broker on this database."""
    with bind_listener("127.0.0.1", 0) as listener:
        # Without a spill requests wait for the database, unless the test gives one a directory.
        few = {"workers": 1, "connections": 2, "query_connections": 1, "spill_bytes_max": 0}
        (assignment,) = assign_workers(
            Settings(**{**few, **settings}), dsn=database_url, listener=listener
        )
        broker = Broker(assignment)
        await broker.start()
        try:
            yield InProcessBroker(broker)
        finally:
            await broker.stop()
