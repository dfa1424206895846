"""Scheduled messages over HTTP: listed, shown, cancelled, brought forward, and delivered."""

import json
from datetime import timedelta

import pytest

from tests.sql.support.log import Log, envelope, key_of
from tests.sql.support.scheduling import schedule
from tests.support.broker import payloads

SCHEDULED = "/api/v1/scheduled"


@pytest.fixture
def waiting(broker, queue):
    """Schedule messages as another process would; return their ids."""

    async def waiting(*names, **options):
        async with broker.sql() as connection:
            answers = await schedule(Log(connection), *names, queue=queue, **options)
        return [str(answer.scheduled_id) for answer in answers]

    return waiting


async def get(client, path):
    answer = await client.call("GET", path)
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def test_a_listing_shows_who_waits_until_when(client, queue, waiting):
    [waiting_id] = await waiting("x", delay_s=600, partition="p")

    page = await get(client, f"{SCHEDULED}?queue={queue}")

    [message] = page["messages"]
    assert [message["id"], message["queue"], message["partition"]] == [waiting_id, queue, "p"]
    assert message["transactionId"] == "x"
    assert message["deliverAt"].endswith("Z")
    assert message["deliverAt"] > message["createdAt"]
    assert "data" not in message
    assert [page["total"], page["isTotalExact"], page["nextAfter"]] == [1, True, None]


async def test_pages_follow_each_other_to_the_end(client, queue, waiting):
    await waiting(*"abcde", delay_s=600)
    names, after = [], 0

    while after is not None:
        page = await get(client, f"{SCHEDULED}?queue={queue}&limit=2&after={after}")
        names += [message["transactionId"] for message in page["messages"]]
        after = page["nextAfter"]
        assert page["total"] == 5

    assert names == list("abcde")


async def test_a_listing_can_be_of_one_partition(client, queue, waiting):
    await waiting("x", delay_s=600, partition="p")
    await waiting("y", delay_s=600, partition="r")

    page = await get(client, f"{SCHEDULED}?queue={queue}&partition=r")

    assert [message["transactionId"] for message in page["messages"]] == ["y"]


async def test_a_queue_that_does_not_exist_has_nothing_that_waits(client):
    page = await get(client, f"{SCHEDULED}?queue=never-heard-of")

    assert [page["messages"], page["total"]] == [[], 0]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "after=-1", f"after={2**63}"]
)
async def test_a_page_out_of_bounds_is_a_400(client, query):
    answer = await client.call("GET", f"{SCHEDULED}?{query}")

    assert answer.status == 400
    assert json.loads(answer.body)["code"] == "bad_request"


async def test_a_message_is_shown_with_its_payload_byte_for_byte(client, queue, broker):
    payload = '{"z": 1.50, "a": "\\u0000", "z": 2}'
    body = envelope("x", payload).replace(
        '"producerSub":null', '"producerSub":"s","headers":{"h":"1"}'
    )
    async with broker.sql() as connection:
        waiting_id = await connection.fetchval(
            """
            insert into skep.scheduled (
              queue_id, partition, key, transaction_id, envelope, deliver_at, created_at)
            select skep.ensure_queue($1), 'p', $2, 'x', $3, skep.now() + $4, skep.now()
            returning id
            """,
            queue,
            key_of("x"),
            body.encode(),
            timedelta(hours=1),
        )

    answer = await client.call("GET", f"{SCHEDULED}/{waiting_id}")

    assert answer.body.endswith(f'"data":{payload}}}'.encode())
    shown = json.loads(answer.body)
    assert [shown["traceId"], shown["producerSub"], shown["headers"]] == [None, "s", {"h": "1"}]
    assert [shown["id"], shown["queue"]] == [str(waiting_id), queue]


async def test_a_message_is_delivered_when_its_time_comes(client, queue, waiting):
    await waiting("x", delay_s=0.3)

    [message] = await client.pop(queue, wait=True, timeout=10_000)

    assert message["transactionId"] == "x"
    page = await get(client, f"{SCHEDULED}?queue={queue}")
    assert page["messages"] == []


async def test_a_waiting_message_does_not_hold_up_its_partition(client, queue, waiting):
    await waiting("x", delay_s=600)

    await client.push_payloads(queue, "now", partition="a")

    assert payloads(await client.pop(queue, batch=10)) == ["now"]


async def test_a_message_brought_forward_is_delivered_at_once(client, queue, waiting):
    [waiting_id] = await waiting("x", delay_s=600)

    answer = await client.call("POST", f"{SCHEDULED}/{waiting_id}/deliver")
    [message] = await client.pop(queue, wait=True, timeout=10_000)

    assert answer.status == 200
    assert json.loads(answer.body)["id"] == waiting_id
    assert message["transactionId"] == "x"


async def test_a_cancelled_message_is_gone(client, queue, waiting):
    [waiting_id] = await waiting("x", delay_s=600)

    answer = await client.call("DELETE", f"{SCHEDULED}/{waiting_id}")

    assert answer.status == 200
    assert json.loads(answer.body) == {"cancelled": True, "id": waiting_id}
    assert (await get(client, f"{SCHEDULED}?queue={queue}"))["total"] == 0


@pytest.mark.parametrize(("method", "suffix"), [("GET", ""), ("DELETE", ""), ("POST", "/deliver")])
async def test_what_does_not_wait_is_a_404(client, method, suffix):
    answer = await client.call(method, f"{SCHEDULED}/999999999999{suffix}")

    assert answer.status == 404
    assert json.loads(answer.body)["code"] == "not_found"


async def test_the_routes_are_in_the_document(client):
    document = await get(client, "/openapi.json")

    assert document["paths"][SCHEDULED]["get"]["operationId"] == "listScheduledMessages"
    single = document["paths"][SCHEDULED + "/{scheduled_id}"]
    assert all({"200", "400", "404"} <= set(each["responses"]) for each in single.values())
    detail = document["components"]["schemas"]["WaitingMessageDetail"]
    assert set(detail["properties"]) >= {"id", "deliverAt", "data", "headers"}


async def test_without_a_window_nothing_scheduled_is_a_duplicate(client, queue):
    await client.configure(queue, dedupWindowSeconds=0)
    one = {"queue": queue, "transactionId": "t", "delaySeconds": 600}

    results = await client.push({**one, "payload": 1}, {**one, "payload": 2})
    results += await client.push({**one, "payload": 3})

    assert [result["status"] for result in results] == ["scheduled"] * 3
    page = await get(client, f"{SCHEDULED}?queue={queue}")
    assert page["total"] == 3
