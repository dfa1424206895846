"""Reading by offset over HTTP: what is read, what waits, what is refused."""

import asyncio
import json
from datetime import datetime, timedelta

import pytest

from tests.sql.support.waiting import eventually

KEY = "6b" * 32


@pytest.fixture(scope="module")
def broker(start_broker):
    """Two processes, so that a push and a read that waits may meet in different ones."""
    with start_broker("--workers", "2", encryption_keys=f"first:{KEY}") as broker:
        yield broker


async def ask(client, path, members):
    answer = await client.post(f"/api/v1/{path}", members)
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def fetch(client, queue, offset=0, *, partition="Default", **members):
    """Read one partition; return its entry."""
    entry = {"queue": queue, "partition": partition, "offset": offset}
    (found,) = (await ask(client, "fetch", {"entries": [entry], **members}))["entries"]
    return found


def payloads(entry):
    return [record["payload"] for record in entry["records"]]


async def waiting_reads(client):
    text = (await client.call("GET", "/metrics/prometheus")).body.decode()
    lines = [line for line in text.splitlines() if line.startswith("skep_waiting_fetches")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_messages_are_read_with_their_offsets_and_stay(client, queue):
    [pushed, _] = await client.push(
        {"queue": queue, "payload": {"n": [1, None]}, "transactionId": "t-1"},
        {"queue": queue, "payload": "é"},
    )

    first, second = (await fetch(client, queue), await fetch(client, queue))

    assert first == second
    assert (first["queue"], first["partition"]) == (queue, "Default")
    assert (first["highWatermark"], first["logStartOffset"], first["nextOffset"]) == (3, 1, 3)
    record = first["records"][0]
    assert (record["offset"], record["transactionId"]) == (1, pushed["transaction_id"])
    assert payloads(first) == [{"n": [1, None]}, "é"]
    assert record["ts"].endswith("Z")
    assert len(await client.pop(queue, batch=10)) == 2


async def test_reading_goes_on_where_it_ended(client, queue):
    await client.push_payloads(queue, *range(5))
    first = await fetch(client, queue, maxBytes=1)

    rest = await fetch(client, queue, first["nextOffset"])

    assert payloads(first) + payloads(rest) == [0, 1, 2, 3, 4]
    assert [record["offset"] for record in rest["records"]] == [2, 3, 4, 5]


async def test_entries_are_answered_in_their_order_each_with_its_own_error(client, queue):
    await client.push_payloads(queue, 1, partition="7")
    entries = [
        {"queue": queue, "partition": 7, "offset": 1},
        {"queue": queue, "partition": "never", "offset": 0},
        {"queue": queue, "partition": "7", "offset": 3},
        {"queue": f"{queue}-none", "offset": 0},
        {"queue": queue, "partition": "7", "offset": 2},
    ]

    found = (await ask(client, "fetch", {"entries": entries}))["entries"]

    assert [payloads(each) for each in found] == [[1], [], [], [], []]
    assert [each.get("error") for each in found] == [
        None,
        None,
        "OFFSET_OUT_OF_RANGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        None,
    ]
    assert [each["highWatermark"] for each in found] == [2, 1, 2, 0, 2]


async def test_below_the_log_the_answer_says_where_it_begins(client, broker, queue):
    await client.push_payloads(queue, 1, 2)
    assert payloads(await fetch(client, queue, 0)) == [1, 2]
    answer = await client.call("DELETE", f"/api/v1/queues/{queue}/clear")
    assert answer.status == 200, answer
    await client.push_payloads(queue, 3)

    below = await fetch(client, queue, 0)

    assert (below["error"], below["records"]) == ("OFFSET_OUT_OF_RANGE", [])
    assert payloads(await fetch(client, queue, below["logStartOffset"])) == [3]


async def test_a_deleted_message_leaves_a_gap(client, queue):
    await client.push_payloads(queue, "a", "b", "c")
    messages = await client.pop(queue, batch=10)
    path = f"/api/v1/messages/{messages[1]['partitionId']}/{messages[1]['transactionId']}"
    assert (await client.call("DELETE", path)).status == 200

    entry = await fetch(client, queue)

    assert [(each["offset"], each["payload"]) for each in entry["records"]] == [(1, "a"), (3, "c")]


async def test_encrypted_and_expiring_messages_are_read_as_they_were_sent(client, queue):
    await client.configure(queue, encryptionEnabled=True)
    await client.push({"queue": queue, "payload": {"a": 1}, "ttlSeconds": 1000})
    await client.push({"queue": queue, "payload": {"b": 2}})

    assert payloads(await fetch(client, queue)) == [{"a": 1}, {"b": 2}]


async def test_a_push_through_any_process_answers_a_read_that_waits(open_client, queue):
    clients = [await open_client() for _ in range(8)]
    await clients[0].push_payloads(queue, "first")
    reads = [
        asyncio.ensure_future(fetch(client, queue, 2, maxWaitMs=30_000)) for client in clients[1:]
    ]

    async def all_wait():
        return await waiting_reads(clients[0]) >= len(reads)

    await eventually(all_wait)
    await clients[0].push_payloads(queue, "second")

    assert [payloads(each) for each in await asyncio.gather(*reads)] == [["second"]] * len(reads)


async def test_a_time_has_an_offset(client, queue):
    await client.push_payloads(queue, 1)
    await client.push_payloads(queue, 2)
    second = (await fetch(client, queue))["records"][1]
    at = datetime.fromisoformat(second["ts"])
    later = (at + timedelta(seconds=1)).isoformat()
    entries = [
        {"queue": queue, "partition": "Default", "timestamp": second["ts"]},
        {"queue": queue, "timestamp": 0},
        {"queue": queue, "timestamp": later},
        {"queue": queue, "partition": "never", "timestamp": 0},
        {"queue": f"{queue}-none", "timestamp": 0},
    ]

    found = (await ask(client, "fetch/offsets", {"entries": entries}))["entries"]

    assert [each["offset"] for each in found] == [2, 1, None, None, None]
    assert found[0]["ts"] == second["ts"]
    assert [each["highWatermark"] for each in found] == [3, 3, 3, 1, 0]
    assert found[4]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


async def changed(client, queue, **members):
    answer = await ask(client, "partitions/changed", {"entries": [{"queue": queue, **members}]})
    return answer["entries"][0], answer


async def test_partitions_that_changed_are_listed_page_by_page(client, queue):
    for name in "cab":
        await client.push_payloads(queue, 1, 2, partition=name)

    first, _ = await changed(client, queue, limit=2)
    second, _ = await changed(client, queue, limit=2, after=first["next"])

    assert [each["name"] for each in first["partitions"] + second["partitions"]] == list("cab")
    assert second["next"] is None
    assert (first["partitions"][0]["lastOffset"], first["partitions"][0]["logStart"]) == (2, 1)


async def test_only_what_was_written_since_is_listed(client, queue):
    await client.push_payloads(queue, 1, partition="old")
    seen, answer = await changed(client, queue)
    await client.push_payloads(queue, 1, partition="new")
    since = seen["partitions"][0]["lastWriteAt"]
    late, _ = await changed(client, queue, since="2999-01-01")

    both, _ = await changed(client, queue, since=since)
    naive, _ = await changed(client, queue, since=since.removesuffix("Z"))

    assert [each["name"] for each in both["partitions"]] == ["old", "new"]
    assert naive == both
    assert late == {"queue": queue, "partitions": [], "next": None}
    assert answer["safeTimeDegraded"] is False


async def test_what_is_not_there_is_said_in_the_entry(client, queue):
    await client.push_payloads(queue, 1)
    other, _ = await changed(client, f"{queue}-none", after="nonsense")
    bad, _ = await changed(client, queue, after="nonsense")
    foreign, _ = await changed(client, queue, after="999999-1")
    start, _ = await changed(client, queue, after="")

    assert other == {"queue": f"{queue}-none", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert bad == foreign == {"queue": queue, "error": "BAD_CURSOR"}
    assert len(start["partitions"]) == 1


async def test_a_time_is_safe_only_when_what_was_stored_before_is_committed(client, broker, queue):
    """A push in an application's transaction takes its time long before it commits."""

    async def safe_time():
        return (await ask(client, "partitions/changed", {"entries": []}))["safeTime"]

    await client.push_payloads(queue, 1)
    async with broker.sql() as sql:
        transaction = sql.transaction()
        await transaction.start()
        await sql.execute("select skep.push($1, null, '2')", queue)
        stamp = await sql.fetchval(
            "select max(s.created_at) from skep.segment s join skep.queue q on q.id = s.queue_id"
            " where q.name = $1",
            queue,
        )
        held = [await safe_time() for _ in range(3)]
        await transaction.commit()

    async def has_come_past():
        return datetime.fromisoformat(await safe_time()) >= stamp

    assert all(datetime.fromisoformat(each) < stamp for each in held)
    await eventually(has_come_past)
    assert payloads(await fetch(client, queue)) == [1, 2]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("fetch", {}, "entries"),
        ("fetch", {"entries": [{"queue": "q"}]}, "offset"),
        ("fetch", {"entries": [{"queue": "q", "offset": -1}]}, "Invalid offset: -1"),
        ("fetch", {"entries": [{"queue": "q", "offset": "1"}]}, "offset"),
        ("fetch", {"entries": [{"queue": "", "offset": 1}]}, "queue must not be empty"),
        ("fetch", {"entries": [{"queue": "q", "partition": True, "offset": 1}]}, "partition"),
        ("fetch", {"entries": [], "maxWaitMs": -1}, "maxWaitMs"),
        ("fetch", {"entries": [{"queue": "q", "offset": 1}] * 1025}, "too many entries: 1025"),
        ("fetch/offsets", {}, "entries"),
        ("fetch/offsets", {"entries": [{"queue": "q"}]}, "timestamp"),
        ("fetch/offsets", {"entries": [{"queue": "q", "timestamp": "soon"}]}, "timestamp"),
        ("fetch/offsets", {"entries": [{"queue": "q", "timestamp": 10**18}]}, "timestamp"),
        ("fetch/offsets", {"entries": [{"queue": "", "timestamp": 1}]}, "queue must not be empty"),
        ("fetch/offsets", {"entries": [{"queue": "q", "timestamp": 1}] * 1025}, "too many"),
        ("partitions/changed", {}, "entries"),
        ("partitions/changed", {"entries": [{"queue": "q", "since": ""}]}, "since"),
        ("partitions/changed", {"entries": [{"queue": "q", "since": 5}]}, "since"),
        ("partitions/changed", {"entries": [{"queue": "q", "since": "soon"}]}, "since"),
        ("partitions/changed", {"entries": [{"queue": "q", "limit": "9"}]}, "limit"),
        ("partitions/changed", {"entries": [{"queue": ""}]}, "queue must not be empty"),
        ("partitions/changed", {"entries": [{"queue": "q"}] * 1025}, "too many entries: 1025"),
    ],
)
async def test_a_malformed_request_is_refused_and_told_why(client, path, body, text):
    answer = await client.post(f"/api/v1/{path}", body)

    assert answer.status == 400, answer
    assert text in json.loads(answer.body)["error"]


@pytest.mark.parametrize("path", ["fetch", "fetch/offsets", "partitions/changed"])
async def test_nothing_asked_for_is_nothing_found(client, path):
    assert (await ask(client, path, {"entries": []}))["entries"] == []
