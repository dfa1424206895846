"""Pushing with the client, one, many and buffered."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from skep.client import (
    AsyncClient,
    BadRequest,
    BufferLimits,
    Item,
    PushFailed,
    Stopped,
    Unreachable,
    by_field,
)
from skep.model.errors import InvalidPayload
from tests.support.ports import free_port


async def taken(client, queue, **options):
    messages = [message async for message in client.consume(queue, idle_s=0, **options)]
    return [message.data for message in messages]


async def test_a_message_comes_back_as_it_was_pushed(queen, queue):
    payload = {"total": 42, "notes": ["ä", None]}

    result = await queen.push(
        queue, payload, partition="customer 7/a", headers={"source": "web"}, transaction_id="t-1"
    )
    (message,) = await queen.pop(queue, group="g")

    assert result.status == "queued"
    assert result.message_id == message.id
    assert message.data == payload
    assert message.headers == {"source": "web"}
    assert (message.queue, message.partition) == (queue, "customer 7/a")
    assert (message.transaction_id, message.consumer_group) == ("t-1", "g")
    assert message.delivery_attempt == 1


async def test_the_same_transaction_id_stores_nothing_twice(queen, queue):
    first = await queen.push(queue, 1, transaction_id="same")
    second = await queen.push(queue, 2, transaction_id="same")

    assert (second.status, second.message_id) == ("duplicate", first.message_id)
    assert await taken(queen, queue) == [1]


async def test_many_messages_have_a_result_each_in_their_order(queen, queue):
    orders = [{"customer": number % 3, "number": number} for number in range(30)]

    results = await queen.push_many(queue, orders, partition=by_field("customer"))

    assert len(results) == results.counts.queued == 30
    assert len({result.message_id for result in results}) == 30
    assert len({result.partition_id for result in results}) == 3
    assert results.failures == []


async def test_items_may_go_to_many_queues_and_wait_or_expire(queen, queue):
    later = datetime.now(UTC) + timedelta(hours=1)
    items = [
        Item(queue, "now"),
        Item(f"{queue}-other", "there"),
        Item(queue, "later", delay_seconds=3600),
        Item(queue, "then", deliver_at=later.replace(tzinfo=None)),
        Item(queue, "brief", ttl_seconds=600),
    ]

    results = await queen.push_items(items)
    waiting = await queen.scheduled.find(queue=queue)

    assert [result.status for result in results] == ["queued"] * 2 + ["scheduled"] * 2 + ["queued"]
    assert {message.id for message in waiting} == {result.scheduled_id for result in results[2:4]}
    assert any(abs(message.deliver_at - later) < timedelta(seconds=1) for message in waiting)
    assert await taken(queen, queue) == ["now", "brief"]


async def test_an_item_that_is_refused_does_not_fail_its_neighbours(queen, queue):
    schema = {"type": "object", "required": ["total"]}
    await queen.queues.configure(queue, jsonSchema=schema)

    results = await queen.push_many(queue, [{"total": 1}, {"sum": 2}, {"total": 3}])

    assert [result.status for result in results] == ["queued", "failed", "queued"]
    assert results.counts.failed == 1
    with pytest.raises(PushFailed, match="total") as refused:
        results.raise_for_failures()
    assert refused.value.failures == [results[1]]


async def test_pushing_one_message_that_is_refused_raises(queen, queue):
    await queen.queues.configure(queue, jsonSchema={"type": "string"})

    with pytest.raises(InvalidPayload):
        await queen.push(queue, 5)


async def test_payloads_may_be_structs_dataclasses_and_json(queen, queue):
    class Order(msgspec.Struct):
        total: int

    @dataclass
    class Line:
        count: int

    await queen.push_many(queue, [Order(1), Line(2), msgspec.Raw(b'{"spaced" : 3}')])
    messages = await queen.pop(queue, batch=3)

    assert messages[0].data_as(Order) == Order(1)
    assert messages[1].data == {"count": 2}
    assert bytes(messages[2].raw) == b'{"spaced" : 3}'


async def test_pushing_nothing_asks_nobody(queue):
    async with AsyncClient(f"http://127.0.0.1:{free_port()}", retries=0) as client:
        results = await client.push_many(queue, [])

    assert list(results) == []


async def test_a_push_that_no_broker_takes_raises(queue):
    async with AsyncClient(f"http://127.0.0.1:{free_port()}", retries=1) as client:
        with pytest.raises(Unreachable):
            await client.push(queue, 1)


async def test_a_malformed_name_is_refused_at_once(queen):
    with pytest.raises(BadRequest, match="255"):
        await queen.push("q" * 300, 1)


async def test_buffered_messages_are_stored_in_order_when_the_block_ends(queen, queue):
    async with queen.buffer(limits=BufferLimits(count=7, age_s=60)) as buffer:
        for number in range(100):
            await buffer.push(queue, number, partition="one")
        assert buffer.waiting > 0

    assert buffer.counts.queued == 100
    assert buffer.waiting == 0
    assert await taken(queen, queue) == list(range(100))


async def test_a_buffered_message_leaves_when_it_is_old_enough(queen, queue):
    async with queen.buffer(limits=BufferLimits(age_s=0.01)) as buffer:
        await buffer.push(queue, "alone")

        (message,) = await queen.pop(queue, wait_s=10)

    assert message.data == "alone"


async def test_flush_waits_until_everything_is_stored(queen, queue):
    async with queen.buffer(limits=BufferLimits(age_s=60)) as buffer:
        await buffer.push(queue, 1)
        await buffer.flush()

        assert (await queen.queues.depth(queue))["queue"] == queue
        assert await taken(queen, queue) == [1]


async def test_refused_items_of_a_buffer_are_told(queen, queue):
    await queen.queues.configure(queue, jsonSchema={"type": "integer"})
    told = []

    async with queen.buffer(on_failure=told.append) as buffer:
        for payload in (1, "two", 3):
            await buffer.push(queue, payload)

    assert [result.status for result in told] == ["failed"]
    assert (buffer.counts.queued, buffer.counts.failed) == (2, 1)


async def test_refused_items_of_a_buffer_are_raised_if_nobody_listens(queen, queue):
    await queen.queues.configure(queue, jsonSchema={"type": "integer"})

    with pytest.raises(PushFailed):
        async with queen.buffer() as buffer:
            await buffer.push(queue, "two")


async def test_an_item_that_spoils_its_request_is_found_and_the_others_are_stored(queen, queue):
    told = []

    async with queen.buffer(limits=BufferLimits(age_s=60), on_failure=told.append) as buffer:
        for number in range(9):
            partition = "p" * 300 if number == 4 else "p"
            await buffer.push_item(Item(queue, number, partition))

    assert len(told) == 1
    assert await taken(queen, queue) == [0, 1, 2, 3, 5, 6, 7, 8]


async def test_a_full_buffer_lets_its_producer_wait(queen, queue):
    limits = BufferLimits(bytes=1_000, backlog_bytes=2_000, age_s=60)
    async with queen.buffer(limits=limits) as buffer:
        for number in range(200):
            await buffer.push(queue, {"number": number, "padding": "x" * 100})
            assert buffer.waiting < 40

    assert buffer.counts.queued == 200


async def test_a_closed_buffer_takes_nothing(queen, queue):
    async with queen.buffer() as buffer:
        pass

    with pytest.raises(Stopped):
        await buffer.push(queue, 1)


async def test_what_a_buffer_cannot_store_in_time_is_said(queue):
    async with AsyncClient(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(Unreachable, match="1 buffered"):
            async with client.buffer(close_timeout_s=0.05) as buffer:
                await buffer.push(queue, 1)


async def test_everything_an_iterator_brings_is_stored(queen, queue):
    progress = []

    async def source():
        for number in range(50):
            yield Item(queue, number)
            await asyncio.sleep(0)

    counts = await queen.push_from(
        source(),
        limits=BufferLimits(count=10),
        on_progress=lambda each: progress.append(each.total),
    )

    assert counts.queued == 50
    assert progress == sorted(progress)
    assert await taken(queen, queue) == list(range(50))


def test_the_blocking_client_pushes_one_many_and_buffered(bee, queue):
    bee.push(queue, 0)
    bee.push_many(queue, [1, 2])
    with bee.buffer() as buffer:
        buffer.push(queue, 3)
    counts = bee.push_from(Item(queue, number) for number in (4, 5))

    assert counts.queued == 2
    assert [message.data for message in bee.consume(queue, idle_s=0)] == [0, 1, 2, 3, 4, 5]
