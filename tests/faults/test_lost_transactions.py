"""The connection breaks around a transaction or a cycle of a stream.

It happens once, and is answered as done.
"""

import msgspec
import pytest

from skep.model.stream_wire import CycleAck, CycleBody, RegisterBody, StateOperation
from skep.model.wire import PushItem
from tests.faults.support.in_process import item, running

TRANSACT = "skep.transact("
CYCLE = "skep.commit_cycle("


@pytest.fixture(scope="module")
def database_url(postgres_server, migrated_template):
    """One database for all of these tests, which keep apart by their queues."""
    url = postgres_server.create_database(migrated_template)
    yield url
    postgres_server.drop_database(url)


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

        answer = await broker.commit(push, ack, leases=[message["leaseId"]])

    assert fault.struck.is_set()
    assert answer["success"], answer
    assert [result["success"] for result in answer["results"]] == [True, True]
    assert answer["results"][0]["status"] == "queued"
    assert await stored(sql, sink) == [answer["results"][0]["transactionId"]]


async def test_a_transaction_that_filled_its_queue_is_not_told_afterwards_that_it_is_full(
    proxy, sql, queue
):
    async with running(proxy.url) as broker:
        await broker.configure(queue, maxSize=1)
        fault = proxy.at_next(TRANSACT, "after")

        answer = await broker.commit({"type": "push", "queue": queue, "transactionId": "out"})

    assert fault.struck.is_set()
    assert answer["success"], answer
    assert await stored(sql, queue) == ["out"]


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

        answer = await broker.commit(nack)

    assert fault.struck.is_set()
    assert answer["success"], answer
    query = """
        select failed_count from skep.cursor c join skep.queue q on q.id = c.queue_id
        where q.name = $1"""
    assert await sql.fetchval(query, queue) == [1]


async def test_a_transaction_survives_one_break_after_the_other(proxy, sql, queue):
    async with running(proxy.url) as broker:
        faults = [proxy.at_next(TRANSACT, point) for point in ("before", "after", "after")]

        answer = await broker.commit({"type": "push", "queue": queue, "transactionId": "a"})

    assert all(fault.struck.is_set() for fault in faults)
    assert answer["results"][0]["status"] == "queued"
    assert await stored(sql, queue) == ["a"]


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("is_flush", [False, True], ids=["acknowledging", "flush"])
async def test_defect_59_a_cycle_whose_answer_is_lost_happens_once(
    proxy, sql, point, is_flush, queue
):
    sink, window = f"{queue}-sink", "tumb:60\x1f0\x1fa"
    async with running(proxy.url) as broker:
        streams = broker.broker.transaction.streams
        await broker.push(item(queue, "a"))
        (message,) = await broker.pop(queue)
        query = await streams.register(RegisterBody(queue, queue, "h"))
        shard = {"query_id": query.query_id, "partition_id": message["partitionId"]}
        opening = [StateOperation("upsert", window, msgspec.Raw(b"1"))]
        await streams.commit_cycle(CycleBody(**shard, state_ops=opening))
        ack = CycleAck(message["transactionId"], message["leaseId"])
        fault = proxy.at_next(CYCLE, point)

        answer = await streams.commit_cycle(
            CycleBody(
                **shard,
                state_ops=[StateOperation("delete", window)],
                push_items=[PushItem(sink)],
                ack=None if is_flush else ack,
            )
        )

    assert fault.struck.is_set()
    assert [answer.success, answer.state_ops_applied] == [True, 1]
    assert answer.push_results[0].status == "queued"
    assert await stored(sql, sink) == [answer.push_results[0].transaction_id]
