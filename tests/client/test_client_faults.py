"""Brokers die, and the users of the client do not notice."""

import asyncio
import threading

import asyncpg
import pytest

from skep.client import AsyncClient, BufferLimits, Client, Item, Unreachable
from tests.client.support.scripted import scripted
from tests.support.ports import free_port


async def until(news, is_so):
    """Wait until something is so; `news` tells when to look."""
    async with asyncio.timeout(60):
        while not is_so():
            news.clear()
            await news.wait()


async def test_a_broker_killed_while_it_is_consumed_loses_nothing_and_is_waited_for(mortal, queue):
    seen, news = [], asyncio.Event()
    async with AsyncClient(mortal.url, max_retry_delay=0.2, retries=100) as client:
        await client.push_many(queue, range(100), partition=lambda number: str(number % 5))
        consumption = client.consume(
            queue, group="g", batch=10, partitions=2, lease_s=2, ack_every_s=0.01
        )

        async def consume():
            async for message in consumption:
                seen.append((message.partition, message.data))
                news.set()

        consuming = asyncio.ensure_future(consume())
        await until(news, lambda: len(seen) >= 30)
        await asyncio.to_thread(mortal.kill)
        restarting = asyncio.to_thread(mortal.start)
        pushing = client.push_many(queue, range(100, 150), partition=lambda number: str(number % 5))
        await asyncio.gather(restarting, pushing)
        await until(news, lambda: {data for _, data in seen} == set(range(150)))
        consumption.stop()
        await asyncio.wait_for(consuming, 20)
        lag = await client.groups.lag("g", queue)

    assert lag.offset_lag == 0
    for partition in "01234":
        firsts = list(dict.fromkeys(data for name, data in seen if name == partition))
        assert firsts == sorted(firsts)


async def test_a_broker_killed_during_buffered_pushes_stores_each_once_and_in_order(
    mortal, queue, database_url
):
    # A small backlog ties the producer to what is stored: there is always something in flight.
    limits = BufferLimits(count=10, bytes=1_000, age_s=0.005, backlog_bytes=2_000)
    news = asyncio.Event()
    async with (
        AsyncClient(mortal.url, max_retry_delay=0.2) as client,
        client.buffer(limits=limits) as buffer,
    ):

        async def produce():
            for number in range(600):
                await buffer.push(queue, number, partition=str(number % 3))
                news.set()

        producing = asyncio.ensure_future(produce())
        for stored in (50, 300):
            await until(news, lambda stored=stored: buffer.counts.total >= stored)
            assert buffer.waiting > 0
            mortal.kill()  # at once: nothing may be pushed meanwhile, or all could be done
            assert not producing.done()
            await asyncio.to_thread(mortal.start)
        await producing
    connection = await asyncpg.connect(database_url)
    rows = await connection.fetch(
        "select partition, payload::text::int as number from skep.message where queue = $1 "
        'order by partition, "offset"',
        queue,
    )
    await connection.close()

    assert buffer.counts.total == 600
    assert [tuple(row) for row in rows] == [
        (str(partition), number) for partition in range(3) for number in range(partition, 600, 3)
    ]


def test_the_blocking_client_survives_a_killed_broker_as_well(mortal, queue):
    seen, done = [], threading.Event()
    with Client(mortal.url, max_retry_delay=0.2, retries=100) as client:
        consumption = client.consume(queue, group="g", lease_s=2)

        def consume():
            for message in consumption:
                seen.append(message.data)
                if set(seen) == set(range(60)):
                    done.set()

        consumer = threading.Thread(target=consume)
        consumer.start()
        with client.buffer(limits=BufferLimits(count=5, age_s=0.005)) as buffer:
            for number in range(60):
                buffer.push(queue, number)
                if number == 20:
                    buffer.flush()
                    mortal.kill()
                    mortal.start()
        assert done.wait(60)
        consumption.stop()
        consumer.join(20)

    assert buffer.counts.total == 60


async def test_another_broker_takes_over_at_once(broker, queue):
    dead = f"http://127.0.0.1:{free_port()}"
    async with AsyncClient([dead, broker.url], retries=1) as client:
        for number in range(8):
            await client.push(f"{queue}-{number}", number)
        failures = [endpoint.failures for endpoint in client.session.endpoints.all]

    assert failures[0] == 1, "it is passed over after the first try"


async def test_a_connection_closed_while_idle_is_replaced_unnoticed(queue):
    answer = (201, [{"status": "queued", "queueName": queue, "transaction_id": "t", "index": 0}])
    async with (
        scripted(answer, None, answer) as broker,
        AsyncClient(broker.url, retries=0) as client,
    ):
        first = await client.push(queue, 1)
        second = await client.push(queue, 2)

    assert first.status == second.status == "queued"
    sent = [body["items"][0]["transactionId"] for body in broker.bodies()]
    assert sent[0] != sent[1] == sent[2]


async def test_items_are_repeated_with_the_ids_they_had(queue):
    busy = (503, {"error": "away", "code": "unavailable"}, "retry-after: 0\r\n")
    done = (201, [{"status": "duplicate", "queueName": queue}])
    async with scripted(busy, busy, done) as broker, AsyncClient(broker.url) as client:
        results = await client.push_items([Item(queue, 1)])

    assert results[0].status == "duplicate"
    assert len({body["items"][0]["transactionId"] for body in broker.bodies()}) == 1


async def test_a_change_of_a_key_whose_answer_is_lost_is_not_sent_again():
    found = (200, {"results": [{"found": False, "key": "k"}]})
    async with scripted(found, None) as broker, AsyncClient(broker.url) as client:
        await client.kv.get("n", "k")
        with pytest.raises(Unreachable):
            await client.kv.incr("n", "k", ttl_s=None)

    assert len(broker.requests) == 2


async def test_a_change_of_a_key_that_was_refused_for_lack_of_room_is_sent_again():
    busy = (429, {"error": "full", "code": "overloaded"}, "retry-after: 0\r\n")
    done = (200, {"results": [{"applied": True, "value": 1, "version": 7}]})
    async with scripted(busy, done) as broker, AsyncClient(broker.url) as client:
        changed = await client.kv.incr("n", "k", ttl_s=None)

    assert (bool(changed), changed.value, len(broker.requests)) == (True, 1, 2)


async def test_a_read_of_a_key_whose_answer_is_lost_is_sent_again():
    found = (200, {"results": [{"found": False, "key": "k"}]})
    async with scripted(None, found) as broker, AsyncClient(broker.url) as client:
        assert await client.kv.get("n", "k") is None

    assert len(broker.requests) == 2
