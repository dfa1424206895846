"""What Queen does wrong and we must not: defects of its message plane, each by its number.

Here are those that no other file is about; the rest stand with their topics, and
`tests/tidy/test_contract.py` counts them all.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from urllib.parse import quote

import pytest

from tests.faults.support.in_process import item, running
from tests.support.broker import elapsed, payloads, until_blocked_by

PATIENCE_S = 1.0
"""How long the brokers of these tests wait for a database that is away."""

BOUND_S = 10
"""Within which every request is answered, whatever happens to the database."""

KEY = "k1:" + "5a" * 32


@pytest.fixture
def impatient(monkeypatch):
    """Let brokers made in this process give up on the database soon."""
    monkeypatch.setattr("skep.app.parts.core.PATIENCE_S", PATIENCE_S)


def take_away(proxy):
    """End every connection to the database and let no other through."""
    proxy.shut_door()
    proxy.cut_all()


async def stored(sql, queue):
    query = """
        select transaction_id from skep.message where queue = $1 order by partition, "offset" """
    return [row[0] for row in await sql.fetch(query, queue)]


def statuses(results):
    return [result["status"] for result in results]


@pytest.fixture
def sql(arun, connect):
    """A connection to the database of this test, around any proxy."""
    return arun(connect())


# 11.1 Delivery


async def test_defect_02_a_clock_set_back_hides_no_message(broker, client, queue):
    await client.push_payloads(queue, "early")
    async with broker.sql() as sql:
        # What the log would say if it had been written by a server whose clock ran ahead.
        await sql.execute(
            """
            update skep.segment s set created_at = skep.now() + interval '1 hour'
            from skep.queue q where q.id = s.queue_id and q.name = $1""",
            queue,
        )
        await sql.execute(
            """
            update skep.partition p set pushed_at = skep.now() + interval '1 hour'
            from skep.queue q where q.id = p.queue_id and q.name = $1""",
            queue,
        )
    assert payloads(await client.pop(queue, consumerGroup="g", autoAck=True)) == ["early"]

    await client.push_payloads(queue, "late")

    assert payloads(await client.pop(queue, consumerGroup="g", autoAck=True)) == ["late"]


async def test_defect_07_a_new_partition_needs_nothing_but_its_commit_to_be_seen(
    database_url, queue
):
    async with running(database_url) as reader:
        assert await reader.pop(queue) == []
        async with running(database_url) as writer:
            # It is gone before it could have told anybody about the partition.
            await writer.push(item(queue, "first", partition="new"))

        (message,) = await reader.pop(queue)

    assert message["transactionId"] == "first"


async def test_defect_08_a_poll_after_the_answer_of_a_push_is_not_empty(client, queue):
    seen = []
    for number in range(30):
        await client.push_payloads(queue, number, partition=f"p{number}")
        seen += payloads(await client.pop(queue, autoAck=True))

    assert seen == list(range(30))


async def test_defect_21_an_ack_after_the_batch_failed_does_not_succeed_silently(client, queue):
    await client.configure(queue, retryDelay=0)
    await client.push_payloads(queue, 1, 2, 3)
    first, second, third = await client.pop(queue, batch=3)

    failed = await client.ack(first, "failed")
    rest = await client.ack_batch(
        *(
            {
                "transactionId": m["transactionId"],
                "partitionId": m["partitionId"],
                "leaseId": m["leaseId"],
            }
            for m in (second, third)
        )
    )

    assert failed["leaseReleased"]
    assert [result["success"] for result in rest] == [False, False]
    assert all(result["error"] for result in rest)
    again = await client.pop(queue, batch=3, wait=True, timeout=10_000)
    assert payloads(again) == [1, 2, 3]


# 11.2 Batching


async def test_defect_26_results_are_counted_by_request_and_not_by_call(open_client, queue):
    async def push(number):
        client = await open_client()
        return await client.push_payloads(queue, *range(3), partition=f"p{number}")

    answers = await asyncio.gather(*map(push, range(20)))

    assert [[result["index"] for result in results] for results in answers] == [[0, 1, 2]] * 20


async def test_defect_27_a_partition_that_never_runs_dry_does_not_starve_the_others(client, queue):
    for partition in "abcde":
        await client.push_payloads(queue, *([partition] * 10), partition=partition)

    served = []
    for _ in range(10):
        served += payloads(await client.pop(queue, autoAck=True))
        await client.push_payloads(queue, "a", partition="a")

    assert sorted(served[:5]) == sorted(served[5:]) == list("abcde")


@pytest.fixture
def narrow_broker(start_broker):
    """A broker with little memory for requests."""
    with start_broker("--workers", "1", engine_weight_mib=1) as broker:
        yield broker


async def test_defect_28_requests_beyond_the_memory_for_them_are_refused(narrow_broker, queue):
    body = json.dumps({"items": [{"queue": queue, "payload": "x" * 200_000}]}).encode()
    async with AsyncExitStack() as stack:
        sql = await stack.enter_async_context(narrow_broker.sql())
        clients = [await stack.enter_async_context(narrow_broker.connect()) for _ in range(12)]
        await clients[0].push_payloads(queue, "first")
        async with sql.transaction():
            await sql.execute("lock table skep.partition in exclusive mode")
            answers = [asyncio.ensure_future(push_body(each, body)) for each in clients]
            early, _ = await asyncio.wait(
                answers, timeout=BOUND_S, return_when=asyncio.FIRST_COMPLETED
            )
            await until_blocked_by(sql)
        all_answers = await asyncio.gather(*answers)

    assert {task.result().status for task in early} == {429}
    assert all(int(task.result().headers["retry-after"]) >= 1 for task in early)
    assert {answer.status for answer in all_answers} == {201, 429}


async def push_body(client, body):
    return await client.call("POST", "/api/v1/push", body)


# 11.3 Outages. Pushes are not written to files before issue 5: they fail, and say so.


async def test_defect_29_a_push_without_a_database_does_not_hang(proxy, impatient, queue):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "before"))
        take_away(proxy)

        with elapsed() as waiting:
            (result,) = await broker.push(item(queue, "during"))
        proxy.open_door()

    assert result["status"] == "failed"
    assert result["error"]
    assert waiting.seconds < BOUND_S


async def test_defect_30_a_stop_during_an_outage_loses_nothing_that_was_acknowledged(
    proxy, impatient, sql, queue
):
    async with running(proxy.url) as broker:
        before = await broker.push(item(queue, "1"), item(queue, "2"))
        take_away(proxy)
        during = asyncio.ensure_future(broker.push(item(queue, "3")))
    (last,) = await during

    acknowledged = [r["transaction_id"] for r in [*before, last] if r["status"] == "queued"]
    assert acknowledged[:2] == ["1", "2"]
    assert await stored(sql, queue) == acknowledged


async def test_defect_32_an_outage_does_not_change_the_order(proxy, sql, queue):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "0"))
        fault = proxy.at_next("skep.push_", "before")
        pushes = [asyncio.ensure_future(broker.push(item(queue, f"{n}"))) for n in range(1, 6)]
        await asyncio.wait_for(fault.struck.wait(), BOUND_S)
        take_away(proxy)
        pushes += [asyncio.ensure_future(broker.push(item(queue, f"{n}"))) for n in range(6, 11)]
        proxy.open_door()
        answers = await asyncio.gather(*pushes)

    assert [statuses(results) for results in answers] == [["queued"]] * 10
    assert await stored(sql, queue) == [f"{number}" for number in range(11)]


async def test_defect_33_an_outage_does_not_store_a_payload_in_clear(proxy, sql, queue):
    async with running(proxy.url, encryption_keys=KEY) as broker:
        await broker.broker.configure.configure_queue(
            queue, namespace=None, task=None, options={"encryptionEnabled": True}
        )
        await broker.push(item(queue, "0", payload=b'"secret 0"'))
        proxy.at_next("skep.push_", "after")
        proxy.at_next("skep.push_", "before")
        await broker.push(item(queue, "1", payload=b'"secret 1"'))
        messages = await broker.pop(queue, batch=10)

    bodies = await sql.fetch("select body from skep.segment")
    assert payloads(messages) == ["secret 0", "secret 1"]
    assert not any(b"secret" in row["body"] for row in bodies)


async def test_defect_34_work_goes_on_as_soon_as_the_database_is_back(proxy, impatient, sql, queue):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "1"))
        (message,) = await broker.pop(queue)
        take_away(proxy)
        (lost,) = await broker.push(item(queue, "2"))
        proxy.open_door()

        with elapsed() as recovery:
            (result,) = await broker.ack(message)
            (pushed,) = await broker.push(item(queue, "3"))
            (next_one,) = await broker.pop(queue)

    assert lost["status"] == "failed"
    assert result["success"]
    assert pushed["status"] == "queued"
    assert next_one["transactionId"] == "3"
    assert recovery.seconds < BOUND_S


async def test_defect_35_nothing_is_answered_as_kept_that_is_not_stored(
    proxy, impatient, sql, queue
):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "before"))
        take_away(proxy)
        answers = await asyncio.gather(*(broker.push(item(queue, f"{n}")) for n in range(5)))
        proxy.open_door()
        answers.append(await broker.push(item(queue, "after")))

    results = [result for results in answers for result in results]
    assert set(statuses(results)) == {"failed", "queued"}
    kept = [result["transaction_id"] for result in results if result["status"] == "queued"]
    assert await stored(sql, queue) == ["before", *kept]


# 11.4 The interface


@pytest.mark.parametrize("name", ["100%25", "a%2Fb", "\U0001f41d"])
async def test_defect_36_a_name_is_decoded_once_however_often_it_is_asked_for(client, queue, name):
    name = f"{queue} {name}"
    await client.configure(name)
    path = f"/api/v1/resources/queues/{quote(name, safe='')}"

    answers = [await client.call("GET", path) for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert {json.loads(answer.body)["name"] for answer in answers} == {name}
