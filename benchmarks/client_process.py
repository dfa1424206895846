"""The process that `benchmarks.client` measures: one client that pushes, then consumes.

    python -m benchmarks.client_process URL QUEUE MESSAGES KIND

It prints its CPU time per message for both, as JSON.
"""

import asyncio
import random
import string
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial

import msgspec
import uvloop

from benchmarks.client import CONNECTIONS, ITEMS, PARTITIONS, PAYLOAD_BYTES, Cost, Kind
from skep.client import AsyncClient, Client
from skep.client.aio.consumption import Consumption

_LETTERS = string.ascii_letters + string.digits


def make_payloads() -> list[dict[str, str]]:
    """Return payloads of random letters, as the generator sends."""
    rng = random.Random(1)
    length = PAYLOAD_BYTES - len('{"note":""}')
    return [{"note": "".join(rng.choices(_LETTERS, k=length))} for _ in range(10 * ITEMS)]


PAYLOADS = make_payloads()


def requests_of(messages: int) -> list[tuple[int, str]]:
    """Return the requests to send: where their payloads begin, and the partition they go to."""
    return [
        (number % 10 * ITEMS, f"p{number % PARTITIONS:07d}") for number in range(messages // ITEMS)
    ]


async def push_async(client: AsyncClient, queue: str, messages: int) -> None:
    requests = requests_of(messages)

    async def send(mine: Sequence[tuple[int, str]]) -> None:
        for begin, partition in mine:
            results = await client.push_many(
                queue, PAYLOADS[begin : begin + ITEMS], partition=partition
            )
            assert results.counts.queued == ITEMS

    await asyncio.gather(*(send(requests[number::CONNECTIONS]) for number in range(CONNECTIONS)))


async def consume_async(client: AsyncClient, queue: str, messages: int, kind: Kind) -> None:
    seen = 0
    delivery = "websocket" if kind == "uvloop by websocket" else "poll"

    def consumption() -> Consumption:
        return client.consume(queue, batch=ITEMS, partitions=10, idle_s=0.5, delivery=delivery)

    async def take_each() -> None:
        nonlocal seen
        async for _ in consumption():
            seen += 1

    async def take_batches() -> None:
        nonlocal seen
        async for batch in consumption().batches():
            seen += len(batch)

    take = take_batches if kind == "uvloop by batch" else take_each
    await asyncio.gather(*(take() for _ in range(CONNECTIONS)))
    assert seen == messages, seen


def push_threads(client: Client, queue: str, messages: int) -> None:
    requests = requests_of(messages)

    def send(mine: Sequence[tuple[int, str]]) -> None:
        for begin, partition in mine:
            results = client.push_many(queue, PAYLOADS[begin : begin + ITEMS], partition=partition)
            assert results.counts.queued == ITEMS

    _in_threads([partial(send, requests[number::CONNECTIONS]) for number in range(CONNECTIONS)])


def consume_threads(client: Client, queue: str, messages: int) -> None:
    seen: list[int] = []

    def take() -> None:
        mine = 0
        for _ in client.consume(queue, batch=ITEMS, partitions=10, idle_s=0.5):
            mine += 1
        seen.append(mine)

    _in_threads([take] * CONNECTIONS)
    assert sum(seen) == messages, seen


def _in_threads(works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def measure_async(url: str, queue: str, messages: int, kind: Kind) -> Cost:
    async with AsyncClient(url) as client:
        await client.queues.find()
        begun = time.process_time()
        await push_async(client, queue, messages)
        pushed = time.process_time()
        await consume_async(client, queue, messages, kind)
        return _cost(begun, pushed, messages)


def measure_threads(url: str, queue: str, messages: int) -> Cost:
    with Client(url) as client:
        client.queues.find()
        begun = time.process_time()
        push_threads(client, queue, messages)
        pushed = time.process_time()
        consume_threads(client, queue, messages)
        return _cost(begun, pushed, messages)


def _cost(begun: float, pushed: float, messages: int) -> Cost:
    ended = time.process_time()
    return Cost((pushed - begun) / messages * 1e6, (ended - pushed) / messages * 1e6)


def main(url: str, queue: str, messages: int, kind: Kind) -> None:
    """Measure, and print the costs."""
    if kind == "threads":
        cost = measure_threads(url, queue, messages)
    else:
        run = asyncio.run if kind == "asyncio" else uvloop.run
        cost = run(measure_async(url, queue, messages, kind))
    sys.stdout.write(msgspec.json.encode(cost).decode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
