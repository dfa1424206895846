"""Scheduled messages through a whole broker: accepted, sequenced, delivered; also when calls break.

Nothing here speaks HTTP: pushes hand their scheduled items to `Broker.schedule`.
"""

import asyncio

import pytest

from skep.broker.scheduled.accept import Moment, ScheduleItem, new_nonce
from tests.faults.support.in_process import item, running
from tests.sql.support.log import envelope, key_of
from tests.sql.support.waiting import eventually

SCHEDULE = "skep.schedule_messages("
SEQUENCE = "skep.sequence_due("


async def schedule(broker, queue_id, *names, delay_s, partition="a"):
    """Schedule messages and return the outcomes."""
    answered = asyncio.get_running_loop().create_future()

    def answer(outcomes, error):
        if error is None:
            answered.set_result(outcomes)
        else:
            answered.set_exception(error)

    items = [
        ScheduleItem(
            queue_id,
            partition,
            key_of(name),
            name,
            envelope(name).encode(),
            Moment(None, delay_s),
            new_nonce(),
        )
        for name in names
    ]
    broker.broker.push.schedule.schedule_messages(items, answer)
    async with asyncio.timeout(60):
        return await answered


async def queue_id_of(sql, queue):
    return await sql.fetchval("select skep.ensure_queue($1)", queue)


async def stored(sql, queue):
    query = 'select transaction_id from skep.message where queue = $1 order by "offset"'
    return [row[0] for row in await sql.fetch(query, queue)]


async def count_waiting(sql):
    return await sql.fetchval("select count(*) from skep.scheduled")


def names(messages):
    return [message["transactionId"] for message in messages]


async def test_a_parked_poll_gets_a_message_when_it_is_due(proxy, sql, queue):
    queue_id = await queue_id_of(sql, queue)
    async with running(proxy.url) as broker:
        poll = broker.start_poll(queue, batch=10, wait_s=20)
        [outcome] = await schedule(broker, queue_id, "x", delay_s=0.2)
        messages = await poll.answered

    delivered_after_s = await sql.fetchval(
        "select extract(epoch from skep.now() - $1)", outcome.deliver_at
    )
    assert outcome.status == "scheduled"
    assert names(messages) == ["x"]
    assert delivered_after_s >= 0


async def test_messages_overtake_those_that_wait(proxy, sql, queue):
    queue_id = await queue_id_of(sql, queue)
    async with running(proxy.url) as broker:
        await schedule(broker, queue_id, "later", delay_s=3600)
        await schedule(broker, queue_id, "soon", delay_s=0.1)
        await broker.push(item(queue, "now"))

        await eventually(lambda: _has_arrived(sql, queue, "soon"))

    assert sorted(await stored(sql, queue)) == ["now", "soon"]
    assert await count_waiting(sql) == 1


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_broken_schedule_is_scheduled_once_and_says_so(proxy, sql, queue, point):
    queue_id = await queue_id_of(sql, queue)
    async with running(proxy.url) as broker:
        fault = proxy.at_next(SCHEDULE, point)

        outcomes = await schedule(broker, queue_id, "x", "y", delay_s=3600)

    assert fault.struck.is_set()
    assert [outcome.status for outcome in outcomes] == ["scheduled", "scheduled"]
    assert await count_waiting(sql) == 2


@pytest.mark.parametrize("point", ["before", "after"])
async def test_without_a_window_each_message_of_a_broken_schedule_waits_once(
    proxy, sql, queue, point
):
    queue_id = await queue_id_of(sql, queue)
    async with running(proxy.url) as broker:
        await broker.configure(queue, dedupWindowSeconds=0)
        fault = proxy.at_next(SCHEDULE, point)

        outcomes = await schedule(broker, queue_id, "x", "x", delay_s=3600)

    assert fault.struck.is_set()
    assert [outcome.status for outcome in outcomes] == ["scheduled", "scheduled"]
    assert await count_waiting(sql) == 2


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_broken_sequencing_delivers_once(proxy, sql, queue, point):
    queue_id = await queue_id_of(sql, queue)
    async with running(proxy.url) as broker:
        await schedule(broker, queue_id, "x", delay_s=0.1)
        fault = proxy.at_next(SEQUENCE, point)

        await fault.struck.wait()
        messages = await broker.pop(queue, batch=10, wait_s=20)
        await eventually(lambda: _is_empty(sql))

    assert names(messages) == ["x"]
    assert await stored(sql, queue) == ["x"]


async def test_what_a_stopped_broker_left_is_delivered_by_the_next(proxy, sql, queue):
    queue_id = await queue_id_of(sql, queue)
    async with running(proxy.url) as broker:
        await schedule(broker, queue_id, "x", delay_s=0.05)
    await eventually(lambda: _is_due(sql))

    async with running(proxy.url) as broker:
        messages = await broker.pop(queue, wait_s=20)

    assert names(messages) == ["x"]


async def _has_arrived(sql, queue, name):
    return name in await stored(sql, queue)


async def _is_empty(sql):
    return await count_waiting(sql) == 0


async def _is_due(sql):
    """The broker may have moved it before it stopped; then there is nothing to wait for."""
    return await sql.fetchval(
        "select not exists (select from skep.scheduled where deliver_at > skep.now())"
    )
