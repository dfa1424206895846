"""What the streams SDK asks of a broker, over HTTP."""

import asyncio
import json
from uuid import uuid4

import pytest

from skep.model.limits import STREAM_STATE_VALUE_BYTES_MAX
from tests.support.broker import payloads

US = "\x1f"
WINDOW = {"acc": 1, "windowStart": 0, "windowEnd": 60_000}


async def ask(client, path, members, status=200):
    answer = await client.post(f"/streams/v1/{path}", members)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def register(client, queue, config_hash="h1", status=200, **members):
    body = {"name": f"{queue}-query", "source_queue": queue, "config_hash": config_hash}
    return await ask(client, "queries", {**body, **members}, status)


class Shard:
    """One query and one partition of its source."""

    def __init__(self, client, queue, query_id, partition_id):
        self.client = client
        self.queue = queue
        self.sink = f"{queue}-sink"
        self.group = f"streams.{queue}-query"
        self.ids = {"query_id": query_id, "partition_id": partition_id}

    async def cycle(self, *state_ops, push=(), status=200, **members):
        body = {
            **self.ids,
            "consumer_group": self.group,
            "state_ops": list(state_ops),
            "push_items": [
                {"queue": self.sink, "partition": "p", "payload": each} for each in push
            ],
            "ack": None,
            **members,
        }
        return await ask(self.client, "cycle", body, status)

    async def flush(self, *keys, push=()):
        """What an idle runner sends: it closes windows and acknowledges nothing."""
        return await self.cycle(*map(delete, keys), push=push)

    async def pop(self, **parameters):
        return await self.client.pop(self.queue, consumerGroup=self.group, batch=100, **parameters)

    async def state(self, **members):
        answer = await ask(self.client, "state/get", {**self.ids, "keys": [], **members})
        return {row["key"]: row["value"] for row in answer["rows"]}

    async def results(self):
        return payloads(await self.client.pop(self.sink, batch=100, autoAck=True))


@pytest.fixture
def shard(client, queue, arun):
    async def make():
        (pushed,) = await client.push({"queue": queue, "partition": "p", "payload": 0})
        query_id = (await register(client, queue))["query_id"]
        return Shard(client, queue, query_id, pushed["partition_id"])

    return arun(make())


def upsert(key, value=WINDOW, **members):
    return {"type": "upsert", "key": key, "value": value, **members}


def delete(key, **members):
    return {"type": "delete", "key": key, **members}


def ack_of(message, **members):
    names = ("transactionId", "leaseId")
    return {**{name: message[name] for name in names}, "status": "completed", "count": 1, **members}


# Queries


async def test_a_query_is_registered_once(client, queue):
    first = await register(client, queue, sink_queue="out")
    again = await register(client, queue)

    assert first == {
        "success": True,
        "query_id": first["query_id"],
        "name": f"{queue}-query",
        "config_hash": "h1",
        "fresh": True,
        "reset": False,
    }
    assert again == {**first, "fresh": False}


async def test_another_pipeline_is_refused_unless_it_resets(shard):
    await shard.cycle(upsert("k"))

    refused = await register(shard.client, shard.queue, "h2", status=409)
    kept = await shard.state()
    reset = await register(shard.client, shard.queue, "h2", reset=True)

    assert [refused["success"], refused["query_id"]] == [False, shard.ids["query_id"]]
    assert refused["error"].startswith("config_hash mismatch")
    assert kept == {"k": WINDOW}
    assert [reset["success"], reset["fresh"], reset["reset"]] == [True, False, True]
    assert await shard.state() == {}


async def test_a_reset_with_the_same_pipeline_keeps_the_state(shard):
    await shard.cycle(upsert("k"))

    again = await register(shard.client, shard.queue, reset=True)

    assert again["reset"] is False
    assert await shard.state() == {"k": WINDOW}


@pytest.mark.parametrize("missing", ["name", "source_queue", "config_hash"])
async def test_a_registration_needs_its_fields(client, missing):
    body = {"name": "n", "source_queue": "q", "config_hash": "h"}
    del body[missing]

    answer = await ask(client, "queries", body, 400)

    assert f"{missing} is required" in answer["error"]


async def test_defect_62_queries_are_listed_with_their_size_and_deleted(shard):
    name = f"{shard.queue}-query"
    await shard.cycle(upsert("k", 12345))

    async def call(method, path):
        answer = await shard.client.call(method, f"/streams/v1/queries{path}")
        return answer.status, json.loads(answer.body)

    _, page = await call("GET", "?limit=1000")
    (listed,) = [query for query in page["queries"] if query["name"] == name]
    status, found = await call("GET", f"/{name}")
    assert [status, found] == [200, listed]
    assert [found["query_id"], found["source_queue"]] == [shard.ids["query_id"], shard.queue]
    assert [found["partitions"], found["state_rows"], found["state_bytes"]] == [1, 1, 6]
    assert found["created_at"].endswith("Z")
    assert page["total"] >= 1

    assert await call("DELETE", f"/{name}") == (200, {"deleted": True, "name": name})
    assert (await call("GET", f"/{name}"))[0] == 404
    assert (await call("DELETE", f"/{name}"))[0] == 404
    refused = await shard.cycle(upsert("k"))
    assert refused["error"].startswith("query not found")
    assert (await ask(shard.client, "state/get", shard.ids, 404))["code"] == "not_found"


async def test_a_list_pages(client, queue):
    for number in range(3):
        await register(client, f"{queue}-{number}")

    async def page(query):
        answer = await client.call("GET", f"/streams/v1/queries?{query}")
        return answer.status, json.loads(answer.body)

    _, first = await page("limit=2")
    _, second = await page("limit=1000&offset=2")
    _, beyond = await page("offset=100000")
    names = [query["name"] for query in first["queries"] + second["queries"]]
    assert names == sorted(names)
    assert len(names) == first["total"] == beyond["total"]
    assert beyond["queries"] == []
    assert [(await page(bad))[0] for bad in ("limit=0", "limit=1001", "offset=-1")] == [400] * 3


# Cycles


async def test_a_cycle_changes_state_pushes_and_acknowledges(shard):
    (message,) = await shard.pop()

    answer = await shard.cycle(upsert("k"), push=[{"sum": 1}], ack=ack_of(message, count=7))

    (pushed,) = answer["push_results"]
    assert answer == {
        "success": True,
        **shard.ids,
        "queueName": shard.queue,
        "state_ops_applied": 1,
        "push_results": [
            {
                "index": 0,
                "transaction_id": pushed["transaction_id"],
                "status": "queued",
                "message_id": pushed["message_id"],
                "partition_id": pushed["partition_id"],
                "trace_id": None,
                "queueName": shard.sink,
            }
        ],
        "ack_result": {"success": True, "count": 7, "lease_released": True, "dlq": False},
    }
    assert await shard.state() == {"k": WINDOW}
    assert await shard.results() == [{"sum": 1}]
    assert await shard.pop() == []


async def test_a_refused_cycle_changes_nothing(shard):
    (message,) = await shard.pop()
    stale = ack_of(message, leaseId=str(uuid4()))

    answer = await shard.cycle(upsert("k"), push=[1], ack=stale)

    assert [answer["success"], answer["error"]] == [False, "Invalid or expired lease"]
    assert await shard.state() == {}
    assert await shard.results() == []
    assert (await shard.client.ack(message))["success"]


@pytest.mark.parametrize("lease", ["", None])
async def test_defect_63_a_cycle_without_a_lease_is_not_let_through(shard, lease):
    (message,) = await shard.pop()

    answer = await shard.cycle(upsert("k"), ack=ack_of(message, leaseId=lease))

    assert answer["error"].startswith("ack.leaseId is required")
    assert await shard.state() == {}


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"transactionId": None}, "ack.transactionId is required"),
        ({"transactionId": "unknown"}, "Message not found"),
        ({"messageId": "no id"}, "Message not found: 'no id' is not a message id"),
        ({"offset": 0}, "Message not found: 0 is not an offset"),
        ({"offset": 99}, "Message not found"),
        ({"status": "done"}, "unknown status 'done'"),
    ],
)
async def test_an_ack_that_cannot_be_refuses_the_cycle(shard, members, error):
    (message,) = await shard.pop()

    answer = await shard.cycle(upsert("k"), ack=ack_of(message, **members))

    assert answer["success"] is False
    assert answer["error"].startswith(error)
    assert await shard.state() == {}


async def test_an_unknown_kind_of_state_operation_refuses_the_cycle(shard):
    answer = await shard.cycle({"type": "increment", "key": "k"})

    assert answer["error"].startswith("Unknown state_op type 'increment'")


async def test_a_cycle_sent_again_is_done_once_and_said_to_be_done(shard):
    (message,) = await shard.pop()
    cycle = {"push": [1], "ack": ack_of(message)}
    first = await shard.cycle(upsert("k", 1), **cycle)
    await shard.cycle(upsert("k", 2))

    again = await shard.cycle(upsert("k", 1), **cycle)

    assert [again["success"], again["replayed"], again["state_ops_applied"]] == [True, True, 0]
    ids = [answer["push_results"][0]["transaction_id"] for answer in (first, again)]
    assert ids[0] == ids[1]
    assert await shard.results() == [1]
    assert await shard.state() == {"k": 2}


async def test_a_gate_keeps_the_lease_of_what_it_did_not_let_through(shard):
    await shard.client.push_payloads(shard.queue, 1, 2, partition="p")
    first, second, _ = await shard.pop()

    kept = await shard.cycle(ack=ack_of(first), release_lease=False)
    assert kept["ack_result"]["lease_released"] is False
    assert await shard.pop() == []
    released = await shard.cycle(ack=ack_of(second), release_lease=True)

    assert released["ack_result"]["lease_released"] is True
    assert payloads(await shard.pop()) == [2]


async def test_defect_60_what_a_gate_denied_comes_back_when_it_says(shard):
    await shard.client.push_payloads(shard.queue, 1, partition="p")
    first, _ = await shard.pop()

    await shard.cycle(ack=ack_of(first), release_delay_ms=300)

    assert await shard.pop() == []
    assert payloads(await shard.pop(wait=True, timeout=10_000)) == [1]


async def test_a_message_that_failed_in_a_cycle_is_delivered_again(shard):
    await shard.client.configure(shard.queue, retryDelay=0)
    (message,) = await shard.pop()

    answer = await shard.cycle(ack=ack_of(message, status="failed", error="boom"))

    assert answer["ack_result"]["lease_released"] is True
    (again,) = await shard.pop()
    assert again["retryCount"] == 1


async def test_a_cycle_wakes_who_waits_for_its_results(shard, open_client):
    waiting = await open_client()
    waiting.send_poll(shard.sink, wait=True, timeout=30_000)
    await shard.client.push_payloads(shard.queue, 1)

    await shard.cycle(push=[{"n": 1}])

    async with asyncio.timeout(20):
        assert payloads(await waiting.popped()) == [{"n": 1}]


# Naming the source


async def lease_twins(shard):
    """Lease 0 to 4 of the shard, of which 2 and 4 have the same transaction id."""
    await shard.client.configure(shard.queue, dedupWindowSeconds=0, retryDelay=0)
    names = ["a", "twin", "b", "twin"]
    await shard.client.push(
        *(
            {"queue": shard.queue, "partition": "p", "payload": number, "transactionId": name}
            for number, name in enumerate(names, 1)
        )
    )
    return await shard.pop()


def by_id(message, name="messageId", **members):
    return {name: message["id"], "leaseId": message["leaseId"], **members}


@pytest.mark.parametrize("name", ["messageId", "id"])
@pytest.mark.parametrize("place", [2, 4])
async def test_a_cycle_that_names_a_message_id_acknowledges_that_message(shard, place, name):
    messages = await lease_twins(shard)

    answer = await shard.cycle(ack=by_id(messages[place], name))

    assert answer["success"], answer
    assert payloads(await shard.pop()) == list(range(place + 1, 5))


async def test_a_cycle_names_a_message_by_its_offset(shard):
    messages = await lease_twins(shard)

    answer = await shard.cycle(ack={"offset": 3, "leaseId": messages[0]["leaseId"]})

    assert answer["success"], answer
    assert payloads(await shard.pop()) == [3, 4]


async def test_in_a_cycle_a_message_id_counts_before_the_transaction_id(shard):
    messages = await lease_twins(shard)

    await shard.cycle(ack=by_id(messages[2], transactionId="twin"))

    assert payloads(await shard.pop()) == [3, 4]


async def test_a_cycle_with_individual_acks_completes_only_the_message_named(shard):
    await shard.client.configure(shard.queue, ackMode="individual")
    messages = await lease_twins(shard)

    await shard.cycle(ack=by_id(messages[4]))

    assert payloads(await shard.pop()) == [0, 1, 2, 3]


async def test_cycles_of_messages_with_the_same_transaction_id_have_results_of_their_own(shard):
    messages = await lease_twins(shard)
    cycles = [
        {"push": [place], "ack": by_id(messages[place], transactionId="twin")} for place in (2, 4)
    ]

    answers = [await shard.cycle(**each, release_lease=False) for each in cycles]
    again = await shard.cycle(**cycles[1])

    (first,), (second,), (repeated,) = [each["push_results"] for each in (*answers, again)]
    assert [first["status"], second["status"], again["replayed"]] == ["queued", "queued", True]
    assert repeated["transaction_id"] == second["transaction_id"]
    assert await shard.results() == [2, 4]


async def test_a_message_id_is_fenced_by_the_lease_as_well(shard):
    (message,) = await shard.pop()

    stale = await shard.cycle(upsert("k"), ack=by_id(message, leaseId=str(uuid4())))
    bare = await shard.cycle(upsert("k"), ack=by_id(message, leaseId=None))

    assert stale["error"] == "Invalid or expired lease"
    assert bare["error"].startswith("ack.leaseId is required")
    assert await shard.state() == {}


async def test_a_message_id_of_another_partition_refuses_the_cycle(shard):
    (message,) = await shard.pop()
    (other,) = await shard.client.push({"queue": shard.queue, "partition": "q", "payload": 1})

    answer = await shard.cycle(upsert("k"), ack=by_id(message, messageId=other["message_id"]))

    assert [answer["success"], "is not of partition" in answer["error"]] == [False, True]
    assert await shard.state() == {}


# Flushes


async def test_defect_58_a_window_is_flushed_by_one_runner_only(shard):
    key = f"tumb:60{US}2026-01-01T00:00:00.000Z{US}a"
    await shard.cycle(upsert(key))

    answers = [await shard.flush(key, push=[{"acc": 1}]) for _ in range(2)]

    assert [answer["success"] for answer in answers] == [True, False]
    assert answers[1]["error"].startswith("state conflict")
    assert await shard.results() == [{"acc": 1}]


async def test_defect_58_runners_that_flush_at_once_emit_once(shard, open_client):
    key = f"tumb:60{US}2026-01-01T00:00:00.000Z{US}a"
    await shard.cycle(upsert(key))
    runners = [Shard(await open_client(), shard.queue, *shard.ids.values()) for _ in range(6)]

    answers = await asyncio.gather(*(runner.flush(key, push=[1]) for runner in runners))

    assert sorted(answer["success"] for answer in answers) == [False] * 5 + [True]
    assert await shard.results() == [1]


async def test_defect_58_a_batch_computed_from_a_window_closed_meanwhile_comes_again(shard):
    key = f"tumb:60{US}2026-01-01T00:00:00.000Z{US}a"
    await shard.cycle(upsert(key))
    (message,) = await shard.pop()
    await shard.flush(key, push=["flushed"])

    answer = await shard.cycle(delete(key), push=["closed again"], ack=ack_of(message))

    assert answer["error"].startswith("state conflict")
    assert await shard.results() == ["flushed"]
    assert payloads(await shard.pop()) == [0]


async def test_defect_58_a_flush_of_a_window_that_grew_meanwhile_is_refused(shard):
    key = f"tumb:60{US}2026-01-01T00:00:00.000Z{US}a"
    await shard.cycle(upsert(key))
    (read,) = (await shard.state(ripe_at_or_before=60_000)).values()
    await shard.cycle(upsert(key, {**WINDOW, "acc": 2}))

    stale = await shard.flush(key, push=[read["acc"]])
    (read,) = (await shard.state(ripe_at_or_before=60_000)).values()
    fresh = await shard.flush(key, push=[read["acc"]])

    assert [stale["success"], fresh["success"]] == [False, True]
    assert await shard.results() == [2]


async def test_defect_58_a_window_emitted_by_a_flush_is_not_put_back(shard):
    key = f"tumb:60{US}2026-01-01T00:00:00.000Z{US}a"
    await shard.cycle(upsert(key))
    (message,) = await shard.pop()
    assert list(await shard.state()) == [key]
    await shard.flush(key, push=[1])

    stale = await shard.cycle(upsert(key, {**WINDOW, "acc": 2}), ack=ack_of(message))
    (again,) = await shard.pop()
    assert await shard.state() == {}
    fresh = await shard.cycle(upsert(key), ack=ack_of(again))

    assert [stale["success"], fresh["success"]] == [False, True]
    assert await shard.state() == {key: WINDOW}


async def test_defect_58_a_version_keeps_newer_state_from_being_overwritten(shard):
    await shard.cycle(upsert("k", 1))
    (row,) = (await ask(shard.client, "state/get", shard.ids))["rows"]
    await shard.cycle(upsert("k", 2))

    stale = await shard.cycle(upsert("k", 3, version=row["version"]))
    fresh = await shard.cycle(upsert("new", 1, version=0))

    assert [stale["success"], fresh["success"]] == [False, True]
    assert await shard.state() == {"k": 2, "new": 1}


async def test_a_window_opened_again_by_a_late_message_is_emitted_again(shard):
    key = f"tumb:60{US}2026-01-01T00:00:00.000Z{US}a"
    for _ in range(2):
        await shard.cycle(upsert(key))
        assert (await shard.flush(key, push=[{"acc": 1}]))["success"]

    assert await shard.results() == [{"acc": 1}] * 2


async def test_defect_59_results_have_ids_that_follow_from_the_cycle(shard):
    ops = [upsert("k", 1)]

    first = await shard.cycle(*ops, push=["x", "y"])
    again = await shard.cycle(*ops, push=["x", "y"])

    statuses = [result["status"] for answer in (first, again) for result in answer["push_results"]]
    assert statuses == ["queued", "queued", "duplicate", "duplicate"]
    assert await shard.results() == ["x", "y"]


async def test_an_id_chosen_by_the_client_stands(shard):
    item = {"queue": shard.sink, "payload": 1, "transactionId": "mine"}

    answer = await shard.cycle(push_items=[item])

    assert answer["push_results"][0]["transaction_id"] == "mine"


async def test_deleting_what_is_not_there_is_harmless_outside_of_windows(shard):
    (message,) = await shard.pop()

    answer = await shard.cycle(delete("gate key"), ack=ack_of(message))

    assert answer["success"] is True


# State


async def test_defect_61_a_prefix_is_taken_literally(shard):
    keys = ["a_b1", "axb1", "a%b", "a_b2", "b"]
    await shard.cycle(*(upsert(key, index) for index, key in enumerate(keys)))

    assert list(await shard.state(key_prefix="a_b")) == ["a_b1", "a_b2"]
    assert list(await shard.state(key_prefix="a%")) == ["a%b"]
    assert list(await shard.state(key_prefix="a_b", keys=["a_b2", "b"])) == ["a_b2"]
    assert list(await shard.state(keys=["b", "nothing"])) == ["b"]


async def test_ripe_windows_are_those_that_end_in_time(shard):
    ends = {"early": 1000, "late": 2000.5, "text": "1000", "none": None}
    await shard.cycle(*(upsert(key, {"windowEnd": end}) for key, end in ends.items()))
    await shard.cycle(upsert("number", 5), upsert("list", []))

    assert list(await shard.state(ripe_at_or_before=1999)) == ["early"]
    assert list(await shard.state(ripe_at_or_before=2001)) == ["early", "late"]


async def test_values_come_back_as_they_were_sent(shard):
    spelled = b'{"b": 1.50, "a":"\\u0000", "windowEnd":10}'
    body = json.dumps({**shard.ids, "state_ops": [upsert("k", "VALUE")]}).encode()
    await shard.client.call("POST", "/streams/v1/cycle", body.replace(b'"VALUE"', spelled))

    answer = await shard.client.post(
        "/streams/v1/state/get", {**shard.ids, "ripe_at_or_before": 10}
    )

    assert b'"value":' + spelled in answer.body
    (row,) = json.loads(answer.body)["rows"]
    assert row["updated_at"].endswith("Z")


@pytest.mark.parametrize(
    ("path", "members", "text"),
    [
        ("cycle", {"query_id": "x"}, "query_id must be a UUID"),
        ("cycle", {"partition_id": "x"}, "partition_id must be the id of a partition"),
        ("cycle", {"state_ops": [upsert("k" * 1025)]}, "longer than 1024 characters"),
        ("cycle", {"state_ops": [upsert("\0")]}, "contains a NUL"),
        ("cycle", {"state_ops": [{"type": "delete"}]}, "missing required field `key`"),
        ("cycle", {"state_ops": [delete("k")] * 10_001}, "more than 10000 state_ops"),
        ("cycle", {"push_items": [{"queue": "q"}] * 10_001}, "more than 10000 push_items"),
        ("cycle", {"push_items": [{"queue": "q" * 256}]}, "longer than 255 characters"),
        ("cycle", {"release_delay_ms": -1}, "release_delay_ms must be between"),
        ("state/get", {"query_id": "x"}, "query_id must be a UUID"),
        ("state/get", {"partition_id": "x"}, "partition_id must be the id of a partition"),
        ("state/get", {"keys": ["\0"]}, "contains a NUL"),
        ("state/get", {"keys": 1}, "Expected `array | null`"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(shard, path, members, text):
    answer = await ask(shard.client, path, {**shard.ids, **members}, 400)

    assert text in answer["error"]


@pytest.mark.parametrize("path", ["cycle", "state/get"])
@pytest.mark.parametrize("missing", ["query_id", "partition_id"])
async def test_a_shard_is_named_by_query_and_partition(shard, path, missing):
    members = {name: value for name, value in shard.ids.items() if name != missing}

    assert f"{missing} is required" in (await ask(shard.client, path, members, 400))["error"]


async def test_defect_61_a_state_row_has_a_largest_size(shard):
    answer = await shard.cycle(upsert("k", "x" * STREAM_STATE_VALUE_BYTES_MAX), status=400)

    assert "state value is larger than" in answer["error"]


async def test_a_cycle_for_a_partition_that_never_was_is_refused(shard):
    nowhere = shard.ids["partition_id"].replace("0000", "00ff", 1)

    answer = await shard.cycle(upsert("k"), partition_id=nowhere)

    assert answer["error"] == "partition not found"


async def test_the_document_describes_the_routes(client):
    answer = await client.call("GET", "/openapi.json")

    paths = json.loads(answer.body)["paths"]
    for path in ("/streams/v1/queries", "/streams/v1/cycle", "/streams/v1/state/get"):
        assert "requestBody" in paths[path]["post"]
    for name in ("messageId", "id", "offset"):
        assert f'"{name}"' in json.dumps(paths["/streams/v1/cycle"]["post"]["requestBody"])
    assert set(paths["/streams/v1/queries/{name}"]) == {"get", "delete"}
