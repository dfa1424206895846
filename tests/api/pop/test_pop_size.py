"""What a pop returns is bounded in bytes; the rest comes with the next one."""

import asyncio

import pytest

from tests.support.broker import payloads

MIB = 1 << 20
LARGE = "x" * 400_000


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", pop_bytes_max=MIB) as broker:
        yield broker


async def test_a_pop_gets_as_many_large_messages_as_an_answer_may_hold(client, queue):
    for number in range(5):
        await client.push_payloads(queue, f"{number}{LARGE}", partition=str(number))

    answers = [await client.pop(queue, batch=100, partitions=100) for _ in range(3)]

    assert list(map(len, answers)) == [2, 2, 1]
    assert sorted(each[0] for answer in answers for each in payloads(answer)) == list("01234")


async def test_a_message_larger_than_an_answer_comes_alone(client, queue):
    await client.push_payloads(queue, "a", "b" * 2 * MIB, "c", partition="p")

    answers = [await client.pop(queue, batch=10, autoAck="true") for _ in range(3)]

    assert [[each[0] for each in payloads(answer)] for answer in answers] == [["a"], ["b"], ["c"]]


async def test_polls_that_wait_together_are_all_served_although_one_answer_is_full(
    client, open_client, queue
):
    consumers = [await open_client() for _ in range(6)]
    for consumer in consumers:
        consumer.send_poll(queue, wait=True, timeout=20_000)

    for number in range(6):
        await client.push_payloads(queue, f"{number}{LARGE}", partition=str(number))

    found = await asyncio.gather(*(consumer.popped() for consumer in consumers))
    assert sorted(each[0] for answer in found for each in payloads(answer)) == list("012345")
