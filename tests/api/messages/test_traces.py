"""Traces over HTTP: recorded by consumers, read by message and by name."""

import json
import re
from urllib.parse import quote, urlencode

import pytest

TRACES = "/api/v1/traces"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


async def trace(client, message, data=None, *, status=201, **members):
    """Record a trace of a pushed or popped message; return the answer's body."""
    named = {
        "transactionId": message.get("transactionId") or message["transaction_id"],
        "partitionId": message.get("partitionId") or message["partition_id"],
    }
    answer = await client.post(TRACES, {**named, "data": data, **members})
    assert answer.status == status, answer
    return json.loads(answer.body)


async def read(client, path, status=200, **parameters):
    query = f"?{urlencode(parameters)}" if parameters else ""
    answer = await client.call("GET", f"{TRACES}/{path}{query}")
    assert answer.status == status, answer
    return json.loads(answer.body)


async def pushed_message(client, queue, payload=None, **members):
    (result,) = await client.push({"queue": queue, "payload": payload, **members})
    return result


async def test_a_trace_is_answered_201_with_its_id(client, queue):
    message = await pushed_message(client, queue)

    recorded = await trace(client, message, {"step": 1})

    assert recorded["success"] is True
    assert UUID.fullmatch(recorded["traceId"])


async def test_the_traces_of_a_message_come_oldest_first(client, queue):
    await client.push_payloads(queue, {"n": 1})
    (message,) = await client.pop(queue)
    first = await trace(
        client, message, {"b": 1, "a": [2]}, traceNames=["y", "x", "y"], eventType="step",
        consumerGroup="g", workerId="w",
    )  # fmt: skip
    second = await trace(client, message, None)

    body = await read(client, f"{message['partitionId']}/{message['transactionId']}")

    created = [each.pop("created_at") for each in body["traces"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", each) for each in created)
    assert created == sorted(created)
    assert body["traces"] == [
        {
            "id": first["traceId"],
            "event_type": "step",
            "data": {"b": 1, "a": [2]},
            "consumer_group": "g",
            "worker_id": "w",
            "trace_names": ["x", "y"],
        },
        {
            "id": second["traceId"],
            "event_type": "info",
            "data": None,
            "consumer_group": None,
            "worker_id": None,
            "trace_names": [],
        },
    ]


async def test_a_message_may_be_named_by_its_id(client, queue):
    message = await pushed_message(client, queue)
    by_id = {**message, "transaction_id": message["message_id"]}
    await trace(client, by_id, 1)

    of_id = await read(client, f"{message['partition_id']}/{message['message_id']}")
    of_transaction = await read(client, f"{message['partition_id']}/{message['transaction_id']}")

    assert [each["data"] for each in of_id["traces"]] == [1]
    assert of_transaction["traces"] == of_id["traces"]


@pytest.mark.parametrize(
    "data", [r'{"a":"\u0000"}', '{"z":1,"a":2,"z":3}', "1e400", '"\\u00e9"'], ids=str
)
async def test_data_comes_back_byte_for_byte(client, queue, data):
    message = await pushed_message(client, queue)
    body = '{{"transactionId":"{transaction_id}","partitionId":"{partition_id}","data":{data}}}'

    answer = await client.call("POST", TRACES, body.format(**message, data=data).encode())
    listed = await client.call(
        "GET", f"{TRACES}/{message['partition_id']}/{message['transaction_id']}"
    )

    assert answer.status == 201
    assert f'"data":{data},'.encode() in listed.body


async def test_a_message_without_traces_has_an_empty_list(client, queue):
    message = await pushed_message(client, queue)

    body = await read(client, f"{message['partition_id']}/{message['transaction_id']}")

    assert body == {"traces": [], "pagination": {"limit": 1000, "offset": 0}}


async def test_a_name_shows_its_traces_with_their_messages(client, queue):
    name = f"order of {queue}"
    message = await pushed_message(
        client, queue, {"data": ',"data":', "n": 1}, partition="p", transactionId='t,"data":1'
    )
    recorded = await trace(client, message, {"step": 1}, traceNames=[name])

    body = await read(client, f"by-name/{quote(name)}")

    [filed] = body["traces"]
    del filed["created_at"]
    assert filed == {
        "id": recorded["traceId"],
        "event_type": "info",
        "data": {"step": 1},
        "consumer_group": None,
        "worker_id": None,
        "trace_names": [name],
        "transaction_id": 't,"data":1',
        "partition_id": message["partition_id"],
        "queue_name": queue,
        "partition_name": "p",
        "message_payload": {"data": ',"data":', "n": 1},
        "payload_error": None,
    }
    assert body["total"] == 1
    assert body["pagination"] == {"limit": 100, "offset": 0}


async def test_defect_36_limit_and_offset_of_traces_by_name_work(client, queue):
    message = await pushed_message(client, queue)
    for number in range(5):
        await trace(client, message, number, traceNames=[queue])

    page = await read(client, f"by-name/{queue}", limit=2, offset=3)
    beyond = await read(client, f"by-name/{queue}", limit=2, offset=5)

    assert [each["data"] for each in page["traces"]] == [3, 4]
    assert page["total"] == beyond["total"] == 5
    assert beyond["traces"] == []
    assert beyond["pagination"] == {"limit": 2, "offset": 5}


async def test_defect_36_a_name_nobody_used_is_an_empty_list_with_a_body(client, queue):
    assert await read(client, f"by-name/{queue}") == {
        "traces": [],
        "total": 0,
        "pagination": {"limit": 100, "offset": 0},
    }


@pytest.mark.parametrize("name", ["a/b", "a//b", "100 %/x", "é", "names", "?&=#"])
@pytest.mark.parametrize("safe", ["/", ""], ids=["slashes as they are", "slashes encoded"])
async def test_defect_36_names_in_the_path_are_decoded(client, queue, name, safe):
    name = f"{queue}/{name}"
    message = await pushed_message(client, queue, transactionId=name)
    await trace(client, message, 1, traceNames=[name])

    by_name = await read(client, f"by-name/{quote(name, safe=safe)}")
    of_message = await read(client, f"{message['partition_id']}/{quote(name, safe=safe)}")

    assert [each["trace_names"] for each in by_name["traces"]] == [[name]]
    assert [each["trace_names"] for each in of_message["traces"]] == [[name]]


async def test_names_are_listed_last_seen_first_with_their_counts(client, queue):
    message = await pushed_message(client, queue)
    other = await pushed_message(client, queue)
    await trace(client, message, 1, traceNames=[f"{queue} old"])
    await trace(client, message, 1, traceNames=[f"{queue} new"])
    await trace(client, other, 1, traceNames=[f"{queue} new"])

    body = await read(client, "names", limit=2)
    second = await read(client, "names", limit=1, offset=1)

    newest, older = body["trace_names"]
    assert newest.pop("last_seen") > older.pop("last_seen")
    assert newest == {"trace_name": f"{queue} new", "trace_count": 2, "message_count": 2}
    assert older == {"trace_name": f"{queue} old", "trace_count": 1, "message_count": 1}
    assert body["total"] == second["total"] >= 2
    assert body["total_is_estimate"] is False
    assert [each["trace_name"] for each in second["trace_names"]] == [f"{queue} old"]


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"transactionId": None}, "Expected `str`"),
        ({"transactionId": ""}, "transactionId and partitionId are required"),
        ({"partitionId": ""}, "transactionId and partitionId are required"),
        ({"transactionId": "t" * 256}, "transactionId is longer than 255 characters"),
        ({"transactionId": "\0"}, "transactionId contains a NUL character"),
        ({"traceNames": ["n" * 256]}, "traceName is longer than 255 characters"),
        ({"traceNames": ["\0"]}, "traceName contains a NUL character"),
        ({"traceNames": [""]}, "traceName must not be empty"),
        ({"traceNames": "one"}, "Expected `array | null`"),
        ({"traceNames": ["n"] * 101}, "too many traceNames: 101. Send at most 100"),
        ({"eventType": "\0"}, "eventType contains a NUL character"),
        ({"consumerGroup": "g" * 256}, "consumerGroup is longer than 255 characters"),
        ({"workerId": "\0"}, "workerId contains a NUL character"),
    ],
    ids=str,
)
async def test_what_cannot_be_recorded_is_a_400_that_says_why(client, queue, members, error):
    message = await pushed_message(client, queue)

    body = await trace(client, message, 1, status=400, **members)

    assert error in body["error"]
    assert body["code"] == "bad_request"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[]", ""),
        (b"{}", "transactionId and partitionId are required"),
        (b'{"transactionId":"a","partitionId":"b"}', "data is required"),
        (b'{"transactionId":"a","partitionId":"b","data":"\xff"}', ""),
        (b'{"transactionId":"a","partitionId":"b","data":"\\ud800"}', ""),
        (b'{"transactionId":"a","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
    ],
    ids=lambda each: str(each)[:60],
)
async def test_a_body_that_cannot_be_read_is_a_400(client, body, error):
    answer = await client.call("POST", TRACES, body)

    assert answer.status == 400, answer
    assert error in json.loads(answer.body)["error"]


@pytest.mark.parametrize("name", ["transaction_id", "partition_id"])
async def test_defect_36_a_message_that_does_not_exist_is_a_404(client, queue, name):
    message = {**await pushed_message(client, queue), name: "nobody"}

    body = await trace(client, message, 1, status=404)

    assert body == {"error": "Message not found", "code": "not_found"}


async def test_a_message_id_nobody_has_is_a_404(client, queue):
    message = await pushed_message(client, queue)
    beyond = f"{message['message_id'][:-1]}9"

    await trace(client, {**message, "transaction_id": beyond}, 1, status=404)


@pytest.mark.parametrize(
    "partition", ["0198c1a2-0000-7000-8000-000000000001", "00000fff-ffff-8fff-8000-000000000000"]
)
async def test_traces_of_an_unknown_partition_are_a_404(client, partition):
    body = await read(client, f"{partition}/x", status=404)

    assert body == {"error": "Partition not found", "code": "not_found"}


@pytest.mark.parametrize("path", ["names", "by-name/x", "00000000-0000-8001-8000-000000000000/x"])
@pytest.mark.parametrize(
    "parameters", [{"limit": -1}, {"limit": 0}, {"limit": 1001}, {"offset": -1}, {"limit": "x"}]
)
async def test_a_page_that_cannot_be_is_a_400(client, path, parameters):
    await read(client, path, status=400, **parameters)


async def test_the_document_describes_the_routes(client):
    document = json.loads((await client.call("GET", "/openapi.json")).body)

    operations = {
        operation["operationId"]: operation
        for path, methods in document["paths"].items()
        if path.startswith(TRACES)
        for operation in methods.values()
    }
    assert set(operations) == {
        "recordTrace",
        "listTraceNames",
        "listTracesByName",
        "listTracesOfMessage",
    }
    assert all(operation["summary"] for operation in operations.values())
