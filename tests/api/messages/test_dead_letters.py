"""Dead letters over HTTP: found by any filter, deleted alone, redriven once."""

import asyncio
import json
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from tests.support.broker import payloads


async def get(client, path, **parameters):
    answer = await client.call("GET", f"{path}?{urlencode(parameters)}")
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def listed(client, **parameters):
    return await get(client, "/api/v1/dlq", **parameters)


async def send(client, method, path, body=b"", status=200):
    answer = await client.call(method, path, body)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def let_die(client, queue, *data, partition="Default", group="", error="stung"):
    """Push messages and let a group give up on each of them."""
    if group:
        await client.pop(queue, consumerGroup=group, subscriptionMode="all")
    await client.push_payloads(queue, *data, partition=partition)
    parameters = {"consumerGroup": group} if group else {}
    for _ in data:
        (message,) = await client.pop(queue, partition, **parameters)
        assert (await client.ack(message, "dlq", error=error))["success"]


async def until_ended(client, job):
    """Ask for a redrive until it is not running any more."""
    async with asyncio.timeout(60):
        while (found := await get(client, f"/api/v1/dlq/redrive/{job['id']}"))["state"] == (
            "running"
        ):
            pass
    return found


async def test_a_dead_letter_shows_its_message_and_what_happened(client, queue):
    await client.push(
        {"queue": queue, "partition": "p", "transactionId": "t-1", "payload": {"b": 1, "a": 2}}
    )
    (message,) = await client.pop(queue)
    await client.ack(message, "dlq", error="stung by a bee")

    page = await listed(client, queue=queue)

    (letter,) = page["messages"]
    assert letter["id"] == message["id"]
    assert letter["transactionId"] == "t-1"
    assert letter["partitionId"] == message["partitionId"]
    assert [letter["queue"], letter["partition"]] == [queue, "p"]
    assert letter["consumerGroup"] == "__QUEUE_MODE__"
    assert letter["errorMessage"] == "stung by a bee"
    assert letter["retryCount"] == letter["attempts"] == 1
    assert letter["data"] == {"b": 1, "a": 2}
    assert letter["producerSub"] is None
    assert letter["createdAt"] <= letter["failedAt"]
    assert letter["failedAt"].endswith("Z")
    assert page["pagination"] == {"limit": 100, "offset": 0}


async def test_the_payload_is_shown_byte_for_byte(client, queue):
    raw = rb'{"z":1.50,"a":"\u0000","z":2}'
    body = b'{"items":[{"queue":"%b","payload":%b}]}' % (queue.encode(), raw)
    await client.call("POST", "/api/v1/push", body)
    (message,) = await client.pop(queue)
    await client.ack(message, "dlq")

    answer = await client.call("GET", f"/api/v1/dlq?queue={queue}")

    assert b'"data":' + raw in answer.body


async def test_defect_36_limit_and_offset_page_through_all_and_total_counts_them(client, queue):
    await let_die(client, queue, *range(5))

    first = await listed(client, queue=queue, limit=2)
    second = await listed(client, queue=queue, limit=2, offset=2)
    third = await listed(client, queue=queue, limit=2, offset=4)
    beyond = await listed(client, queue=queue, offset=5)

    assert [payloads(page["messages"]) for page in (first, second, third)] == [[4, 3], [2, 1], [0]]
    assert beyond["messages"] == []
    assert {page["total"] for page in (first, second, third, beyond)} == {5}
    assert first["totalIsEstimate"] is False


async def test_defect_36_every_filter_filters(client, queue):
    await let_die(client, queue, "a", partition="p1", error="red")
    await let_die(client, queue, "b", partition="p2", error="blue")
    await let_die(client, queue, "c", partition="p3", group="g", error="green")
    everything = (await listed(client, queue=queue))["messages"]
    moment = everything[1]["failedAt"]

    async def found(**parameters):
        page = await listed(client, queue=queue, **parameters)
        assert page["total"] == len(page["messages"])
        return payloads(page["messages"])

    assert payloads(everything) == ["c", "b", "a"]
    assert await found(partition="p1") == ["a"]
    assert await found(consumerGroup="g") == ["c"]
    assert await found(error="lu") == ["b"]
    assert await found(**{"from": moment}) == ["c", "b"]
    assert await found(to=moment) == ["b", "a"]
    assert await found(partition="p1", consumerGroup="g") == []
    assert await found(partition="no such") == []


async def test_a_queue_that_does_not_exist_has_no_dead_letters(client):
    page = await listed(client, queue="nobody made this")

    assert (page["messages"], page["total"]) == ([], 0)


async def test_one_letter_is_shown_with_its_payload(client, queue):
    await let_die(client, queue, {"honey": 1})
    (letter,) = (await listed(client, queue=queue))["messages"]

    shown = await get(client, f"/api/v1/dlq/{letter['dlqId']}")

    assert shown == {**letter, "state": "dead", "redrivenAt": None, "redrivenTo": None}


async def test_defect_37_deleting_a_letter_leaves_the_message_to_other_groups(client, queue):
    await client.pop(queue, consumerGroup="slow", subscriptionMode="all")
    await let_die(client, queue, "a")
    (letter,) = (await listed(client, queue=queue))["messages"]

    deleted = await send(client, "DELETE", f"/api/v1/dlq/{letter['dlqId']}")

    assert deleted == {"deleted": 1}
    assert (await listed(client, queue=queue))["total"] == 0
    assert payloads(await client.pop(queue, consumerGroup="slow")) == ["a"]


async def test_a_filter_deletes_what_it_lists(client, queue):
    await let_die(client, queue, "a", "b", error="red")
    await let_die(client, queue, "c", error="blue")

    deleted = await send(client, "DELETE", f"/api/v1/dlq?queue={queue}&error=red")

    assert deleted == {"deleted": 2}
    assert payloads((await listed(client, queue=queue))["messages"]) == ["c"]


async def test_deleting_everything_must_be_meant(client):
    refused = await send(client, "DELETE", "/api/v1/dlq", status=400)

    assert "all=true" in refused["error"]


async def replay(client, letter, body=b"", status=200):
    return await send(client, "POST", f"/api/v1/dlq/{letter['dlqId']}/replay", body, status)


async def dead_letter(client, queue, data="a", **options):
    await let_die(client, queue, data, **options)
    (letter,) = (await listed(client, queue=queue))["messages"]
    return letter


async def test_defect_37_a_dead_letter_is_replayed_to_where_it_was(client, queue):
    letter = await dead_letter(client, queue, {"a": 1}, partition="p")

    replayed = await replay(client, letter)
    (message,) = await client.pop(queue)

    assert replayed["result"] == "moved"
    assert replayed["dlqId"] == letter["dlqId"]
    assert replayed["replayedAs"] == message["id"]
    assert replayed["originalTransactionId"] == letter["transactionId"]
    assert replayed["consumerGroup"] == "__QUEUE_MODE__"
    assert message["transactionId"] == f"dlq:{letter['dlqId']}"
    assert (message["partition"], message["data"]) == ("p", {"a": 1})
    assert (await listed(client, queue=queue))["total"] == 0


async def test_a_replay_may_go_to_another_queue(client, queue):
    letter = await dead_letter(client, queue)
    body = json.dumps({"queue": f"{queue}-spare", "partition": "z"}).encode()

    replayed = await replay(client, letter, body)

    assert [replayed["queue"], replayed["partition"]] == [f"{queue}-spare", "z"]
    assert payloads(await client.pop(f"{queue}-spare", "z")) == ["a"]
    assert await client.pop(queue) == []


async def test_the_trace_id_survives_a_replay(client, queue):
    trace = str(uuid4())
    await client.push({"queue": queue, "payload": 1, "traceId": trace})
    (message,) = await client.pop(queue)
    await client.ack(message, "dlq")
    (letter,) = (await listed(client, queue=queue))["messages"]

    await replay(client, letter)

    (message,) = await client.pop(queue)
    assert message["traceId"] == letter["traceId"] == trace


async def test_a_second_replay_is_a_404_that_says_where_the_message_went(client, queue):
    letter = await dead_letter(client, queue)
    replayed = await replay(client, letter)

    refused = await replay(client, letter, status=404)
    shown = await get(client, f"/api/v1/dlq/{letter['dlqId']}")

    assert refused["code"] == "gone"
    assert replayed["replayedAs"] in refused["error"]
    assert (shown["state"], shown["redrivenTo"]) == ("redriven", replayed["replayedAs"])
    assert shown["data"] is None


async def test_a_replay_of_what_the_queue_holds_already_keeps_the_letter(client, queue):
    letter = await dead_letter(client, queue)
    await client.push({"queue": queue, "transactionId": f"dlq:{letter['dlqId']}", "payload": 2})

    replayed = await replay(client, letter)

    assert replayed["result"] == "duplicate"
    assert (await listed(client, queue=queue))["total"] == 1


async def test_a_replay_wakes_a_poll_that_waits(client, open_client, queue):
    letter = await dead_letter(client, queue)
    waiting = await open_client()
    waiting.send_poll(queue, wait=True, timeout=20_000)

    await replay(client, letter)

    assert payloads(await waiting.popped()) == ["a"]


async def redrive(client, **members):
    answer = await client.post("/api/v1/dlq/redrive", members)
    assert answer.status == 202, answer
    return json.loads(answer.body)


async def test_a_redrive_moves_everything_that_matches_and_counts_it(client, queue):
    await let_die(client, queue, *range(4), error="red")
    await let_die(client, queue, "other", error="blue")

    begun = await redrive(client, queue=queue, error="red")
    ended = await until_ended(client, begun)

    assert (begun["total"], begun["filter"]) == (4, {"queue": queue, "error": "red"})
    assert (ended["state"], ended["moved"], ended["duplicates"]) == ("done", 4, 0)
    assert ended["finishedAt"] is not None
    assert payloads((await listed(client, queue=queue))["messages"]) == ["other"]
    assert payloads(await client.pop(queue, batch=10)) == [0, 1, 2, 3]


async def test_a_redrive_keeps_partitions_in_another_queue(client, queue):
    await let_die(client, queue, "a", partition="p1")
    await let_die(client, queue, "b", partition="p2")
    spare = f"{queue}-spare"

    await until_ended(client, await redrive(client, queue=queue, target={"queue": spare}))

    assert payloads(await client.pop(spare, "p1")) == ["a"]
    assert payloads(await client.pop(spare, "p2")) == ["b"]


async def test_a_redrive_of_ids_and_with_a_limit_moves_no_more(client, queue):
    await let_die(client, queue, "a", "b", "c")
    letters = (await listed(client, queue=queue))["messages"]
    ids = [letter["dlqId"] for letter in letters[:2]]

    chosen = await until_ended(client, await redrive(client, ids=ids, limit=1))

    assert (chosen["total"], chosen["moved"], chosen["limit"]) == (1, 1, 1)
    assert payloads((await listed(client, queue=queue))["messages"]) == ["c", "a"]


async def pop_as(client, queue, group):
    return payloads(await client.pop(queue, batch=10, consumerGroup=group, autoAck="true"))


async def test_a_redrive_reaches_the_group_that_failed_and_all_groups_on_request(client, queue):
    await client.push({"queue": queue, "payload": 1})
    assert await pop_as(client, queue, "audit") == [1]
    (message,) = await client.pop(queue, consumerGroup="billing")
    await client.ack(message, "dlq", consumerGroup="billing")

    await until_ended(client, await redrive(client, queue=queue))

    assert await pop_as(client, queue, "audit") == []
    (again,) = await client.pop(queue, consumerGroup="billing")
    await client.ack(again, "dlq", consumerGroup="billing")
    await until_ended(client, await redrive(client, queue=queue, target={"groups": "all"}))
    assert await pop_as(client, queue, "audit") == [1]
    assert await pop_as(client, queue, "billing") == [1]


async def test_letters_that_were_redriven_are_refused_unless_it_is_meant(client, queue):
    letter = await dead_letter(client, queue)
    ids = [letter["dlqId"]]
    moved = await replay(client, letter)
    name = str(uuid4())

    refused = await client.post("/api/v1/dlq/redrive", {"ids": ids})
    again = await until_ended(client, await redrive(client, ids=ids, again=True, id=name))

    assert refused.status == 409
    problem = json.loads(refused.body)
    assert problem["code"] == "already_redriven"
    assert moved["replayedAs"] in problem["error"]
    assert (again["state"], again["moved"]) == ("done", 1)
    assert await redrive(client, ids=ids, id=name) == again
    assert payloads(await client.pop(queue, batch=10)) == ["a", "a"]


async def test_a_redrive_repeated_with_its_id_is_the_same_one(client, queue):
    await let_die(client, queue, "a")
    name = str(uuid4())

    first = await until_ended(client, await redrive(client, queue=queue, id=name))
    await let_die(client, queue, "b")
    again = await redrive(client, queue=queue, id=name)

    assert again == first
    assert (await listed(client, queue=queue))["total"] == 1
    redrives = (await get(client, "/api/v1/dlq/redrive", limit=1))["redrives"]
    assert [job["id"] for job in redrives] == [name]


async def test_a_redrive_that_has_ended_cannot_be_cancelled(client, queue):
    job = await until_ended(client, await redrive(client, queue=queue))

    refused = await send(client, "POST", f"/api/v1/dlq/redrive/{job['id']}/cancel", status=409)

    assert "done" in refused["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/dlq/999999999"),
        ("DELETE", "/api/v1/dlq/999999999"),
        ("POST", "/api/v1/dlq/999999999/replay"),
        ("GET", "/api/v1/dlq/redrive/00000000-0000-4000-8000-000000000000"),
        ("POST", "/api/v1/dlq/redrive/00000000-0000-4000-8000-000000000000/cancel"),
    ],
)
async def test_what_does_not_exist_is_a_404(client, method, path):
    assert (await client.call(method, path)).status == 404


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=0",
        "offset=-1",
        "limit=many",
        "from=yesterday",
        "partition=p",
        "queue=%00",
    ],
)
async def test_a_bad_question_is_a_400(client, query):
    assert (await client.call("GET", f"/api/v1/dlq?{query}")).status == 400


@pytest.mark.parametrize("query", ["limit=0", "offset=-1", "from=yesterday"])
async def test_a_refusal_names_the_parameter_as_it_was_sent(client, query):
    answer = await client.call("GET", f"/api/v1/dlq?{query}")

    assert json.loads(answer.body)["error"].startswith(f"{query.partition('=')[0]}: ")


async def test_a_page_larger_than_there_are_is_the_largest(client, queue):
    # Queen's clients take a refused list for an empty one.
    page = await listed(client, queue=queue, limit=100_000)

    assert page["pagination"] == {"limit": 1000, "offset": 0}


@pytest.mark.parametrize(
    "members",
    [
        {"limit": 0},
        {"partition": "p"},
        {"ids": ["a"]},
        {"ids": list(range(10_001))},
        {"target": {"queue": "q" * 256}},
        {"id": "no uuid"},
        {"from": "yesterday"},
    ],
    ids=lambda members: str(members)[:40],
)
async def test_a_bad_redrive_is_a_400(client, members):
    assert (await client.post("/api/v1/dlq/redrive", members)).status == 400
