"""Polls that wait are served by the push itself, except where that could lose a message."""

import asyncio

import pytest

from tests.faults.support.in_process import item, running
from tests.sql.support.waiting import eventually
from tests.support.broker import until_blocked_by

LOCK = """
    select from skep.partition p join skep.queue q on q.id = p.queue_id
    where q.name = $1 and p.name = $2 for update of p"""


@pytest.fixture
def broker(arun, database_url):
    running_broker = running(database_url, connections=3)
    yield arun(running_broker.__aenter__())
    arun(running_broker.__aexit__(None, None, None))


async def waiting_poll(broker, queue, *partitions, **options):
    """Return a poll of a queue whose partitions have been read to their ends."""
    for partition in partitions:
        await broker.push(item(queue, "0", partition=partition))
    await broker.pop(queue, partitions=len(partitions), batch=len(partitions), auto_ack=True)
    poll = broker.start_poll(queue, wait_s=30, **options)
    await eventually(lambda: len(broker.long_polls) == 1)
    return poll


def names(messages):
    return [(message["transactionId"], message["deliveryAttempt"]) for message in messages]


async def test_a_push_that_waits_for_a_lock_does_not_keep_the_poll_it_was_to_serve(
    broker, sql, queue
):
    poll = await waiting_poll(broker, queue, "a", "b")

    async with sql.transaction():
        await sql.fetch(LOCK, queue, "b")
        stuck = asyncio.ensure_future(broker.push(item(queue, "1", partition="b")))
        await eventually(lambda: len(broker.long_polls) == 0)  # the push took it
        await eventually(lambda: len(broker.long_polls) == 1)
        await broker.push(item(queue, "2", partition="a"))
        messages = await poll.answered
    results = await stuck
    later = await broker.start_poll(queue, wait_s=30).answered

    assert names(messages) == [("2", 1)]
    assert [result["status"] for result in results] == ["queued"]
    assert names(later) == [("1", 1)]


async def test_no_push_claims_for_a_poll_that_acknowledges_on_delivery(broker, sql, queue):
    """The next claim would bury one that is to be undone, and its messages with it."""
    poll = await waiting_poll(broker, queue, "a", auto_ack=True)

    async with sql.transaction():
        await sql.fetch(LOCK, queue, "a")
        stuck = asyncio.ensure_future(broker.push(item(queue, "1", partition="a")))
        await until_blocked_by(sql)
        waiting = len(broker.long_polls)
    await stuck

    assert waiting == 1
    assert names(await poll.answered) == [("1", 1)]


async def test_nothing_is_handed_over_while_nothing_may_be_delivered(broker, queue):
    poll = await waiting_poll(broker, queue, "a")
    maintenance = broker.broker.failover.maintenance

    await maintenance.set_mode("pop", enabled=True)
    await broker.push(item(queue, "1", partition="a"))
    is_answered = poll.answered.done()
    await maintenance.set_mode("pop", enabled=False)

    assert not is_answered
    assert names(await poll.answered) == [("1", 1)]
