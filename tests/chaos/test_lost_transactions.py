"""The connection breaks around a transaction: it happens once, and is answered as done."""

import asyncio
import json

import msgspec
import pytest

from skep.model.wire import TransactionBody
from tests.chaos.in_process import item, running

TRANSACT = "skep.transact("


@pytest.fixture(scope="module")
def database_url(postgres_server, migrated_template):
    """One database for all of these tests, which keep apart by their queues."""
    url = postgres_server.create_database(migrated_template)
    yield url
    postgres_server.drop_database(url)


async def commit(broker, *operations, leases=()):
    body = msgspec.convert(
        {"operations": list(operations), "requiredLeases": list(leases)}, TransactionBody
    )
    answered = asyncio.get_running_loop().create_future()
    broker.broker.transaction.commit(body, answered.set_result)
    async with asyncio.timeout(20):
        return json.loads(await answered)


async def stored(sql, queue):
    query = """select transaction_id from skep.message where queue = $1 order by "offset" """
    return [row[0] for row in await sql.fetch(query, queue)]


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("name", ["out", None], ids=["named", "unnamed"])
async def test_defect_19_a_transaction_whose_answer_is_lost_happens_once(
    proxy, sql, point, name, queue
):
    sink = f"{queue}-sink"
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "a"))
        (message,) = await broker.pop(queue)
        push = {"type": "push", "queue": sink, "transactionId": name}
        ack = {
            "type": "ack",
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
        }
        fault = proxy.at_next(TRANSACT, point)

        answer = await commit(broker, push, ack, leases=[message["leaseId"]])

    assert fault.struck.is_set()
    assert answer["success"], answer
    assert [result["success"] for result in answer["results"]] == [True, True]
    assert answer["results"][0]["status"] == "queued"
    assert await stored(sql, sink) == [answer["results"][0]["transactionId"]]


async def test_defect_19_a_failure_is_counted_once(proxy, sql, queue):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "a"))
        (message,) = await broker.pop(queue)
        nack = {
            "type": "ack",
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
            "status": "failed",
        }
        fault = proxy.at_next(TRANSACT, "after")

        answer = await commit(broker, nack)

    assert fault.struck.is_set()
    assert answer["success"], answer
    query = """
        select failed_count from skep.cursor c join skep.queue q on q.id = c.queue_id
        where q.name = $1"""
    assert await sql.fetchval(query, queue) == [1]


async def test_a_transaction_survives_one_break_after_the_other(proxy, sql, queue):
    async with running(proxy.url) as broker:
        faults = [proxy.at_next(TRANSACT, point) for point in ("before", "after", "after")]

        answer = await commit(broker, {"type": "push", "queue": queue, "transactionId": "a"})

    assert all(fault.struck.is_set() for fault in faults)
    assert answer["results"][0]["status"] == "queued"
    assert await stored(sql, queue) == ["a"]
