"""Single messages over HTTP: listed by state, shown, deleted, retried, given up, peeked at."""

import json
from urllib.parse import quote, urlencode

import pytest

from tests.support.broker import payloads

UNKNOWN_PARTITION = "00000000-0fff-8fff-8000-000000000000"


async def get(client, path, **parameters):
    answer = await client.call("GET", f"{path}?{urlencode(parameters)}")
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def listed(client, **parameters):
    return await get(client, "/api/v1/messages", **parameters)


async def names(client, **parameters):
    page = await listed(client, **parameters)
    return [message["transactionId"] for message in page["messages"]]


def path_of(partition_id, name, action=""):
    return f"/api/v1/messages/{partition_id}/{quote(name, safe='')}{action}"


async def send(client, method, path, members=None, status=200):
    body = b"" if members is None else json.dumps(members).encode()
    answer = await client.call(method, path, body)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def push_named(client, queue, *transaction_ids, partition="Default"):
    """Push messages one by one, their names as payloads; return the partition's id."""
    pushed = None
    for name in transaction_ids:
        (pushed,) = await client.push(
            {"queue": queue, "partition": partition, "transactionId": name, "payload": name}
        )
    return pushed["partition_id"]


async def test_a_list_shows_everything_but_the_payload(client, queue):
    name = f"shop.bill.{queue}"
    (pushed,) = await client.push(
        {"queue": name, "partition": "p", "transactionId": "t", "payload": {"secret": 1}}
    )

    page = await listed(client, queue=name)

    (message,) = page["messages"]
    assert message.pop("createdAt").endswith("Z")
    assert message == {
        "id": pushed["message_id"],
        "transactionId": "t",
        "partitionId": pushed["partition_id"],
        "queuePath": f"{name}/p",
        "queue": name,
        "partition": "p",
        "namespace": "shop",
        "task": "bill",
        "status": "pending",
        "queueStatus": "pending",
        "busStatus": {"consumedBy": 0, "totalGroups": 0},
        "traceId": None,
        "producerSub": None,
        "queuePriority": 0,
        "leaseExpiresAt": None,
        "preview": None,
    }
    assert page["mode"] == {"hasQueueMode": True, "busGroupsCount": 0, "type": "queue"}
    assert page["nextCursor"] is None


async def test_the_newest_message_comes_first_and_pages_follow_each_other(client, queue):
    await push_named(client, queue, "a", "b")
    await push_named(client, queue, "c", partition="q")
    await client.push_payloads(queue, 1, 2, partition="r")

    everything = await names(client, queue=queue)
    first = await listed(client, queue=queue, limit=4)
    second = await listed(client, queue=queue, limit=4, cursor=first["nextCursor"])

    assert everything[2:] == ["c", "b", "a"]
    assert [m["transactionId"] for m in first["messages"] + second["messages"]] == everything
    assert second["nextCursor"] is None
    assert await names(client, queue=queue, limit=2, offset=2) == ["c", "b"]
    assert await names(client, queue=queue, offset=5) == []


async def test_messages_of_all_queues_are_listed_in_the_order_of_their_pushes(client, queue):
    for number, name in enumerate(("first", "second", "first", "second")):
        await push_named(client, f"{queue}.{name}", f"{queue}-{number}")

    newest = await names(client, namespace=queue)

    assert newest == [f"{queue}-{number}" for number in (3, 2, 1, 0)]


async def test_a_search_of_headers_and_payloads_shows_what_it_found(client, queue):
    for tenant, customer in (("acme", 7), ("acme", 8), ("bees", 7)):
        item = {"queue": queue, "headers": {"tenant": tenant}, "payload": {"customer": customer}}
        await client.push(item)

    found = await listed(
        client, queue=queue, header="tenant=acme", payload="$.customer = 7", preview=14
    )

    assert [message["preview"] for message in found["messages"]] == ['{"customer": 7']
    assert found["searchedTo"] is None
    refused = await client.call("GET", "/api/v1/messages?payload=%24customer")
    assert refused.status == 400


async def test_a_page_may_end_within_a_segment(client, queue):
    await client.push_payloads(queue, *range(5))
    cursor, seen = {}, []

    while cursor is not None:
        page = await listed(client, queue=queue, limit=2, **cursor)
        seen += [message["id"] for message in page["messages"]]
        cursor = {"cursor": page["nextCursor"]} if page["nextCursor"] else None

    assert len(seen) == len(set(seen)) == 5
    assert seen == sorted(seen, reverse=True)


async def test_filters_narrow_the_list(client, queue):
    name = f"ns-{queue}.task-{queue}"
    await push_named(client, name, "a", partition="p1")
    await push_named(client, name, "b", partition="p2")
    page = await listed(client, queue=name, partition="p2")
    pushed_at = page["messages"][0]["createdAt"]

    assert [m["transactionId"] for m in page["messages"]] == ["b"]
    assert await names(client, ns=f"ns-{queue}") == ["b", "a"]
    assert await names(client, namespace=f"ns-{queue}") == ["b", "a"]
    assert await names(client, task=f"task-{queue}") == ["b", "a"]
    assert await names(client, task=f"task-{queue}", ns="other") == []
    assert await names(client, queue=name, transactionId="a") == ["a"]
    assert await names(client, queue=name, **{"from": pushed_at}) == ["b"]
    assert await names(client, queue=name, to="2020-01-01T00:00:00Z") == []
    assert await names(client, queue=name, **{"from": "2020-01-01T00:00:00"}) == ["b", "a"]


async def test_without_a_queue_the_youngest_queue_comes_first(client, queue):
    await push_named(client, f"{queue}-old", f"old-{queue}")
    await push_named(client, f"{queue}-new", f"new-{queue}")

    assert (await names(client, limit=2)) == [f"new-{queue}", f"old-{queue}"]


async def test_defect_41_a_status_knows_the_leases_of_every_group(client, queue):
    for group in ("one", "two"):
        await client.pop(queue, consumerGroup=group, subscriptionMode="all")
    await push_named(client, queue, "a", "b")

    async def statuses():
        page = await listed(client, queue=queue)
        return {m["transactionId"]: m["status"] for m in page["messages"]}

    assert await statuses() == {"a": "pending", "b": "pending"}
    (first,) = await client.pop(queue, consumerGroup="one")
    assert await statuses() == {"a": "processing", "b": "pending"}
    await client.ack(first)
    assert await statuses() == {"a": "pending", "b": "pending"}
    (second,) = await client.pop(queue, consumerGroup="two")
    await client.ack(second)
    assert await statuses() == {"a": "completed", "b": "pending"}
    (last,) = await client.pop(queue, consumerGroup="two")
    await client.ack(last, "dlq")
    assert await statuses() == {"a": "completed", "b": "dead_letter"}


async def states_everywhere(client, queue):
    """Return the states of a queue's messages as every listing and every single one tells them."""
    page = await listed(client, queue=queue)
    newest = await get(client, f"/api/v1/status/queues/{queue}/messages")
    single = [await get(client, path_of(m["partitionId"], m["id"])) for m in page["messages"]]
    filtered = {
        name: status
        for status in ("pending", "processing", "completed", "dead_letter")
        for name in await names(client, queue=queue, status=status)
    }
    told = [{m["transactionId"]: m["status"] for m in each} for each in (newest, single)]
    states = {m["transactionId"]: m["status"] for m in page["messages"]}
    assert [filtered, *told] == [states] * 3
    return states


async def counted(client, queue):
    totals = (await get(client, f"/api/v1/status/queues/{queue}"))["totals"]
    return totals["pending"], totals["processing"]


async def test_every_listing_tells_the_same_state_of_a_message(client, queue):
    for group in ("fast", "slow"):
        await client.pop(queue, consumerGroup=group, subscriptionMode="all")
    await push_named(client, queue, "a", "b", "c")
    (first,) = await client.pop(queue, consumerGroup="fast")
    await client.ack(first)
    await client.pop(queue, consumerGroup="fast")

    assert await states_everywhere(client, queue) == {
        "a": "pending",
        "b": "processing",
        "c": "pending",
    }
    assert await counted(client, queue) == (3, 1)
    await client.pop(queue, autoAck="true", batch=3)
    await client.pop(queue, consumerGroup="slow", autoAck="true", batch=3)
    assert await states_everywhere(client, queue) == {
        "a": "completed",
        "b": "processing",
        "c": "pending",
    }
    assert await counted(client, queue) == (2, 1)


async def test_a_message_that_waits_for_its_retry_is_pending_although_its_lease_goes_on(
    client, queue
):
    await client.configure(queue, ackMode="individual", retryDelay=60_000)
    await push_named(client, queue, "a", "b")
    (failed, _) = await client.pop(queue, batch=2)
    await client.ack(failed, "failed")

    assert await states_everywhere(client, queue) == {"a": "pending", "b": "processing"}
    assert await counted(client, queue) == (2, 1)


async def test_the_default_group_counts_in_every_partition_once_it_was_polled(client, queue):
    await client.pop(queue, consumerGroup="g", subscriptionMode="all")
    await push_named(client, queue, "a", partition="p")
    await push_named(client, queue, "b", partition="q")
    await client.pop(queue, consumerGroup="g", autoAck="true", batch=9, partitions=9)
    alone = await states_everywhere(client, queue)
    await client.pop(queue, partition="p", autoAck="true")

    assert alone == {"a": "completed", "b": "completed"}
    assert await states_everywhere(client, queue) == {"a": "completed", "b": "pending"}
    assert await counted(client, queue) == (1, 0)


@pytest.mark.parametrize(
    ("status", "expected"),
    [("pending", ["d"]), ("processing", ["c"]), ("completed", ["a"]), ("dead_letter", ["b"])],
)
async def test_a_list_of_one_status(client, queue, status, expected):
    await push_named(client, queue, "a", "b", "c", "d")
    for outcome in ("completed", "dlq"):
        (message,) = await client.pop(queue)
        await client.ack(message, outcome)
    await client.pop(queue)

    assert await names(client, queue=queue, status=status) == expected


async def test_groups_that_share_a_queue_with_queue_mode_are_a_hybrid(client, queue):
    await client.pop(queue, consumerGroup="g", subscriptionMode="all")
    await push_named(client, queue, "a")
    bus = await listed(client, queue=queue)
    await client.pop(queue)
    hybrid = await listed(client, queue=queue)

    assert bus["mode"] == {"hasQueueMode": False, "busGroupsCount": 1, "type": "bus"}
    assert bus["messages"][0]["queueStatus"] is None
    assert hybrid["mode"] == {"hasQueueMode": True, "busGroupsCount": 1, "type": "hybrid"}
    assert hybrid["messages"][0]["queueStatus"] == "processing"
    assert hybrid["messages"][0]["leaseExpiresAt"].endswith("Z")


async def test_an_empty_list_has_no_mode(client):
    page = await listed(client, queue="nobody made this")

    assert page == {
        "messages": [],
        "mode": {"hasQueueMode": False, "busGroupsCount": 0, "type": "none"},
        "nextCursor": None,
        "searchedTo": None,
    }


async def test_a_message_is_shown_with_its_payload_and_its_groups(client, queue):
    await client.pop(queue, consumerGroup="slow", subscriptionMode="all")
    (pushed,) = await client.push({"queue": queue, "transactionId": "t", "payload": {"b": 1}})
    (message,) = await client.pop(queue)

    shown = await get(client, path_of(pushed["partition_id"], "t"))

    assert shown["id"] == pushed["message_id"]
    assert shown["payload"] == {"b": 1}
    assert shown["status"] == "processing"
    assert [shown["isEncrypted"], shown["errorMessage"], shown["retryCount"]] == [False, None, None]
    assert shown["queueConfig"]["leaseTime"] == 300
    assert shown["mode"] == {
        "hasQueueMode": True,
        "busGroupsCount": 1,
        "type": "hybrid",
        "consumedByGroups": 0,
    }
    leased, waiting = shown["consumerGroups"]
    assert (leased["name"], leased["consumed"]) == ("__QUEUE_MODE__", False)
    assert leased["leaseExpiresAt"] == shown["leaseExpiresAt"] > shown["createdAt"]
    assert waiting == {"name": "slow", "consumed": False, "leaseExpiresAt": None}
    assert message["id"] == shown["id"]


async def test_a_message_is_found_by_its_transaction_id_or_its_own_id(client, queue):
    partition = await push_named(client, queue, "with / slash", "b")
    by_name = await get(client, path_of(partition, "with / slash"))

    by_id = await get(client, path_of(partition, by_name["id"]))

    assert by_id == by_name
    assert by_id["payload"] == "with / slash"


async def test_a_dead_letter_tells_its_error_in_the_detail(client, queue):
    partition = await push_named(client, queue, "a")
    (message,) = await client.pop(queue)
    await client.ack(message, "dlq", error="stung")

    shown = await get(client, path_of(partition, "a"))

    assert [shown["status"], shown["errorMessage"], shown["retryCount"]] == [
        "dead_letter",
        "stung",
        1,
    ]


async def test_a_deleted_message_is_gone_for_all_and_deleting_again_is_harmless(client, queue):
    await client.pop(queue, consumerGroup="g", subscriptionMode="all")
    partition = await push_named(client, queue, "a", "b", "c")

    deleted = await send(client, "DELETE", path_of(partition, "b"))
    again = await send(client, "DELETE", path_of(partition, "b"))

    assert deleted["success"] is again["success"] is True
    assert (deleted["message"], again["message"]) == (
        "Message deleted",
        "Message was deleted already",
    )
    assert await names(client, queue=queue) == ["c", "a"]
    assert (await client.call("GET", path_of(partition, "b"))).status == 404
    assert payloads(await client.pop(queue, consumerGroup="g", batch=10)) == ["a", "c"]


async def test_defect_09_a_deleted_head_does_not_starve_other_partitions(client, queue):
    partition = await push_named(client, queue, "head", partition="p1")
    await send(client, "DELETE", path_of(partition, "head"))
    await push_named(client, queue, "other", partition="p2")

    assert payloads(await client.pop(queue, partitions=1)) == ["other"]
    await push_named(client, queue, "next", partition="p1")
    assert payloads(await client.pop(queue, partitions=1)) == ["next"]


async def test_deleting_a_message_deletes_its_dead_letter(client, queue):
    partition = await push_named(client, queue, "a")
    (message,) = await client.pop(queue)
    await client.ack(message, "dlq")

    await send(client, "DELETE", path_of(partition, "a"))

    assert (await get(client, "/api/v1/dlq", queue=queue))["total"] == 0


async def test_defect_37_retry_lets_a_message_that_backs_off_be_delivered_now(client, queue):
    await client.configure(queue, retryDelay=300_000)
    partition = await push_named(client, queue, "a")
    (message,) = await client.pop(queue)
    await client.ack(message, "failed")
    assert await client.pop(queue) == []

    retried = await send(client, "POST", path_of(partition, "a", "/retry"))

    assert retried["consumerGroups"] == ["__QUEUE_MODE__"]
    assert payloads(await client.pop(queue)) == ["a"]


async def test_defect_37_retry_redrives_a_dead_letter(client, queue):
    partition = await push_named(client, queue, "a")
    (message,) = await client.pop(queue)
    await client.ack(message, "dlq")

    retried = await send(client, "POST", path_of(partition, "a", "/retry"), {})
    (message,) = await client.pop(queue)

    assert retried["replayedAs"] == message["id"]
    assert message["data"] == "a"


async def test_what_did_not_fail_cannot_be_retried(client, queue):
    partition = await push_named(client, queue, "a")
    path = path_of(partition, "a", "/retry")

    pending = await send(client, "POST", path, status=409)
    (message,) = await client.pop(queue)
    processing = await send(client, "POST", path, status=409)
    await client.ack(message)
    completed = await send(client, "POST", path, status=409)

    assert "waits to be delivered" in pending["error"]
    assert "holds a lease" in processing["error"]
    assert "is completed" in completed["error"]


async def test_defect_37_a_message_is_moved_to_the_dead_letters_for_one_group(client, queue):
    for group in ("one", "two"):
        await client.pop(queue, consumerGroup=group, subscriptionMode="all")
    partition = await push_named(client, queue, "a", "b")

    moved = await send(
        client,
        "POST",
        path_of(partition, "a", "/dlq"),
        {"consumerGroup": "one", "error": "by hand"},
    )

    assert moved["consumerGroups"] == ["one"]
    (letter,) = (await get(client, "/api/v1/dlq", queue=queue))["messages"]
    assert (letter["transactionId"], letter["errorMessage"]) == ("a", "by hand")
    assert payloads(await client.pop(queue, consumerGroup="one", batch=10)) == ["b"]
    assert payloads(await client.pop(queue, consumerGroup="two", batch=10)) == ["a", "b"]


async def test_without_a_group_every_group_that_waits_gives_up(client, queue):
    for group in ("one", "two"):
        await client.pop(queue, consumerGroup=group, subscriptionMode="all")
    partition = await push_named(client, queue, "a")
    (message,) = await client.pop(queue, consumerGroup="two")
    await client.ack(message)

    moved = await send(client, "POST", path_of(partition, "a", "/dlq"))
    again = await send(client, "POST", path_of(partition, "a", "/dlq"), status=409)

    assert moved["consumerGroups"] == ["one"]
    assert "done with" in again["error"]


async def test_a_group_that_does_not_exist_cannot_give_up(client, queue):
    partition = await push_named(client, queue, "a")
    path = path_of(partition, "a", "/dlq")

    refused = await send(client, "POST", path, {"consumerGroup": "nobody"}, status=404)

    assert "nobody" in refused["error"]


async def test_peeking_shows_what_comes_next_and_claims_nothing(client, queue):
    await push_named(client, queue, "a", "b", "c")
    await client.pop(queue)

    peeked = await get(client, "/api/v1/messages/peek", queue=queue, limit=1)
    again = await get(client, "/api/v1/messages/peek", queue=queue, partition="Default")

    (message,) = peeked["messages"]
    assert (message["transactionId"], message["data"]) == ("b", "b")
    assert message["consumerGroup"] == "__QUEUE_MODE__"
    assert payloads(again["messages"]) == ["b", "c"]


async def test_peeking_needs_a_group_that_exists(client, queue):
    await push_named(client, queue, "a")

    path = f"/api/v1/messages/peek?queue={queue}&consumerGroup=nobody"

    assert (await client.call("GET", path)).status == 404


@pytest.mark.parametrize(
    ("method", "action"), [("GET", ""), ("DELETE", ""), ("POST", "/retry"), ("POST", "/dlq")]
)
@pytest.mark.parametrize("partition", ["0198c1a2-0000-7000-8000-000000000001", UNKNOWN_PARTITION])
@pytest.mark.parametrize("name", ["t", "00000000-0fff-8fff-8000-000000000007"])
async def test_a_message_that_does_not_exist_is_a_404(client, method, action, partition, name):
    assert (await client.call(method, path_of(partition, name, action))).status == 404


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=1001",
        "offset=-1",
        "status=lost",
        "from=yesterday",
        "partition=p",
        "cursor=nonsense",
        "cursor=W10=",
        "queue=%00",
    ],
)
async def test_a_bad_question_about_messages_is_a_400(client, query):
    assert (await client.call("GET", f"/api/v1/messages?{query}")).status == 400


@pytest.mark.parametrize("query", ["", "queue=q&limit=0", "queue=q&limit=1001"])
async def test_a_bad_peek_is_a_400(client, query):
    assert (await client.call("GET", f"/api/v1/messages/peek?{query}")).status == 400
