"""A transaction for a partition in which operations wait: when it is tried again."""

import asyncio

import pytest

from skep.broker.directory import Directory
from skep.broker.kv.operations import Plan, Step
from skep.broker.overload.fallback import Fallback
from skep.broker.overload.waiting_line import Line, PartitionWatch, Turn
from skep.broker.transaction.transaction import Transaction
from skep.model.errors import Overloaded, PartitionDeferred
from skep.model.priorities import Priority
from skep.model.wire import TransactionBody, TransactionPush

BODY = TransactionBody([TransactionPush(queue="hive", transaction_id="t")])


class Engine:
    def when_relieved(self, callback):
        self.relieve = callback


class Settler:
    """Refuses every transaction as the database does, and counts them."""

    def __init__(self, error):
        self.error = error
        self.tried = []

    def submit(self, operation, settlement):
        self.tried.append(operation)
        asyncio.get_running_loop().call_soon(settlement.fail, self.error)


class Stager:
    def stage_push(self, item, *, producer):
        return item


class Partitions:
    """A database in which operations of a type wait in a partition."""

    def __init__(self, type_):
        self.type, self.asked = type_, 0

    async def call(self, _statement, partition_ids, type_):
        self.asked += 1
        return [(each,) for each in partition_ids] if type_ == self.type else []


class Client:
    prefers_async = False

    def __init__(self):
        self.errors = []

    def refuse(self, error):
        self.errors.append(error)


class Setting:
    def __init__(self, error, type_="push", wait_s=60.0, keys=None):
        self.engine, self.database = Engine(), Partitions(type_)
        self.line = Line(self.engine, wait_s=wait_s, weight_max=10_000)
        self.watch = PartitionWatch(self.database, self.line.free)
        fallback = Fallback(self.engine, self.line, self.watch, Directory(), deferral="never")
        self.settler, self.client = Settler(error), Client()
        Transaction(Stager(), self.settler, fallback).commit(BODY, self.client, keys=keys)

    async def calls_come_back(self, until):
        """Let calls of other requests come back, over and over."""
        async with asyncio.timeout(30):
            while not until():
                await asyncio.sleep(0)
                self.engine.relieve()


@pytest.mark.parametrize("type_", ["push", "ack_batch"])
async def test_it_is_tried_again_only_when_the_operations_are_done(type_):
    error = PartitionDeferred(partition_id=7, operation_type=type_)
    setting = Setting(error, type_)

    await setting.calls_come_back(until=lambda: setting.database.asked == 2)
    tried_meanwhile = len(setting.settler.tried)
    setting.database.type = None
    await setting.calls_come_back(until=lambda: len(setting.settler.tried) > 1)
    await setting.watch.stop()

    assert tried_meanwhile == 1
    assert not setting.line.has(Priority.PUSH)


async def test_it_is_refused_when_its_time_is_over():
    setting = Setting(PartitionDeferred(partition_id=7), wait_s=0.01)

    await setting.calls_come_back(until=lambda: setting.client.errors)
    await setting.watch.stop()

    assert [type(error) for error in setting.client.errors] == [Overloaded]


async def test_in_line_it_weighs_what_its_keys_hold():
    steps = [Step(0, ("ns", "key"), "put", f'"{"x" * 10_000}"')]
    keys = Plan([], steps, [], writes=True)
    setting = Setting(PartitionDeferred(partition_id=7), keys=keys)

    # A line that is empty takes a request of any weight.
    first = Turn(print, print)
    setting.line.stand(Priority.POP, first, weight=1, deadline=setting.line.deadline())

    await asyncio.sleep(0)  # the settler answers
    errors = [type(error) for error in setting.client.errors]
    await setting.watch.stop()

    assert errors == [Overloaded]
