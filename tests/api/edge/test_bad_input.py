"""Bad and odd input: each gets its own clear answer or is carried exactly, and harms nobody else.

Requests are fused into shared SQL calls, so every kind of bad request is also sent together with
good ones. That the broker never met an error it did not expect is checked when it is stopped.
"""

import asyncio
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.broker import ack_item, payloads, pop_path

MIB = 1 << 20
PUSH = "/api/v1/push"
ACK = "/api/v1/ack"
ACK_BATCH = "/api/v1/ack/batch"
CONFIGURE = "/api/v1/configure"
LEASE = "/api/v1/lease/0198c1a2-0000-7000-8000-000000000001/extend"


def push_body(queue, payload, members=b""):
    """Spell a push whose payload is exactly these bytes."""
    return b'{"items":[{"queue":%b,"payload":%b%b}]}' % (
        json.dumps(queue).encode(),
        payload,
        members,
    )


async def carry(client, queue, payload):
    """Push a payload given as bytes and return the bytes that a pop brings back."""
    pushed = await client.call("POST", PUSH, push_body(queue, payload))
    assert pushed.status == 201, pushed
    popped = await client.call("GET", pop_path(queue, autoAck=True))
    return re.search(rb'"data":(.*)\}\]\}\Z', popped.body, re.DOTALL)[1]


def refusal(answer):
    """Return the status and the text of an answer that says no."""
    body = json.loads(answer.body)
    assert set(body) == {"error", "code"}
    return answer.status, body["error"]


# Carried exactly


@pytest.mark.parametrize(
    "payload",
    [
        rb'"a\u0000b"',
        rb'{"\u0000":"\u0000"}',
        rb'"\ud83d\ude00 \u00e9 \/ \b\f\n\r\t \" \\"',
        '"é 🐝 \u2028 \x7f"'.encode(),
        b'{"b":1,"a":2,"b":3}',
        b'{ "b" :\t[ 1 ,\n2 ] ,\r"a":{ } }',
        b"1.0",
        b"1e5",
        b"-0",
        b"-0.0",
        b"1E+400",
        b"1e-400",
        b"123456789012345678901234567890.12345678901234567890",
        b"1" * 5000,
        b"null",
        b'""',
        b"[]",
        b"{}",
        b'"' + b"x" * MIB + b'"',
        b"[" + b"0," * (MIB // 2) + b"0]",
        b"[" * 500 + b"]" * 500,
    ],
    ids=lambda payload: payload[:24].decode(errors="replace").replace("\x7f", ""),
)
async def test_a_payload_is_carried_byte_for_byte(client, queue, payload):
    assert await carry(client, queue, payload) == payload


async def test_space_around_a_payload_is_not_part_of_it(client, queue):
    assert await carry(client, queue, b' \t\r\n{"a": 1}\n ') == b'{"a": 1}'


whitespace = st.text(" \t\n\r", max_size=2)
numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
escapes = st.one_of(
    st.sampled_from(["\\" + letter for letter in '"\\/bfnrt']),
    st.integers(0, 0xD7FF).map(lambda code: f"\\u{code:04x}"),
    st.integers(0xE000, 0xFFFF).map(lambda code: f"\\u{code:04X}"),
    st.tuples(st.integers(0xD800, 0xDBFF), st.integers(0xDC00, 0xDFFF)).map(
        lambda pair: f"\\u{pair[0]:04x}\\u{pair[1]:04X}"
    ),
)
plain = st.characters(min_codepoint=0x20, exclude_characters='"\\', exclude_categories=["Cs"])
strings = st.lists(plain | escapes, max_size=8).map(lambda parts: f'"{"".join(parts)}"')


def array_of(values):
    return st.tuples(whitespace, st.lists(values, max_size=4)).map(
        lambda parts: f"[{parts[0]}{f'{parts[0]},'.join(parts[1])}]"
    )


def object_of(values):
    """Spell objects; their few names make some occur twice."""
    names = strings | st.sampled_from(['"a"', '"b"'])
    members = st.tuples(names, whitespace, values).map(lambda m: f"{m[0]}{m[1]}:{m[1]}{m[2]}")
    return st.tuples(whitespace, st.lists(members, max_size=4)).map(
        lambda parts: f"{{{parts[0]}{f',{parts[0]}'.join(parts[1])}{parts[0]}}}"
    )


json_texts = st.recursive(
    st.sampled_from(["null", "true", "false"]) | numbers | strings,
    lambda values: array_of(values) | object_of(values),
    max_leaves=12,
)


# One broker and one queue serve all examples: each takes out what it put in.
@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=json_texts)
def test_any_json_is_carried_byte_for_byte(arun, client, queue, text):
    payload = text.encode()

    assert arun(carry(client, queue, payload)) == payload


async def test_the_deepest_payload_that_is_accepted_is_also_delivered_and_buried(client, queue):
    accepted, refused = 1, 100_000
    while refused - accepted > 1:
        depth = (accepted + refused) // 2
        body = push_body(f"{queue}-search", b"[" * depth + b"]" * depth)
        answer = await client.call("POST", PUSH, body)
        accepted, refused = (depth, refused) if answer.status == 201 else (accepted, depth)
    deepest = b"[" * accepted + b"]" * accepted

    assert await carry(client, queue, deepest) == deepest


@pytest.mark.parametrize(
    "payload", [rb'"\u0000"', rb'{"\u0000":1}', b"1e400", b"[" * 500 + b"]" * 500], ids=repr
)
async def test_a_message_with_any_payload_can_become_a_dead_letter(client, queue, broker, payload):
    await client.call("POST", PUSH, push_body(queue, payload, b',"transactionId":"\\u00fc\\""'))
    (message,) = await client.pop(queue)

    result = await client.ack(message, "dlq")

    async with broker.sql() as sql:
        (letter,) = await sql.fetch(
            "select d.transaction_id, d.envelope::text from skep.dead_letter d "
            "join skep.queue q on q.id = d.queue_id where q.name = $1",
            queue,
        )
    assert result["dlq"]
    assert letter["transaction_id"] == 'ü"'
    assert letter["envelope"].endswith(f'"data":{payload.decode()}}}')


async def test_any_payload_can_be_read_in_plain_sql(client, queue, broker):
    odd = [rb'"\u0000"', rb'{"\u0000":"}"}', b'{"a": 1.0, "a": [ ]}', '"ü,\\"data\\":"'.encode()]
    for number, payload in enumerate(odd):
        transaction_id = json.dumps(f',"data":{number}').encode()
        members = b',"transactionId":%b' % transaction_id
        await client.call("POST", PUSH, push_body(queue, payload, members))

    async with broker.sql() as sql:
        rows = await sql.fetch(
            "select transaction_id, payload::text, trace_id from skep.message where queue = $1 "
            'order by "offset"',
            queue,
        )

    assert [row["payload"].encode() for row in rows] == odd
    assert [row["transaction_id"] for row in rows] == [f',"data":{n}' for n in range(len(odd))]
    assert [row["trace_id"] for row in rows] == [None] * len(odd)


# Refused

NOT_JSON = [
    b"{",
    b"}",
    b"items",
    b"{'items':[]}",
    b'{"items":[{"queue":"q","payload":01}]}',
    b'{"items":[{"queue":"q","payload":1.}]}',
    b'{"items":[{"queue":"q","payload":NaN}]}',
    b'{"items":[{"queue":"q","payload":tru}]}',
    b'{"items":[{"queue":"q","payload":[1,]}]}',
    b'{"items":[{"queue":"q","payload":"a\nb"}]}',
    b'{"items":[{"queue":"q","payload":"\\x"}]}',
    b'{"items":[{"queue":"q","payload":"\\u12"}]}',
    b'{"items":[{"queue":"q","payload":1}]}{}',
]

HALF_A_PAIR = [rb"\ud800", rb"\udc00", rb"\uDBFF", rb"\ud800\ud800", rb"\ud83dA", rb"x\ude00"]


@pytest.mark.parametrize(
    ("path", "body"),
    [(PUSH, body) for body in NOT_JSON]
    + [(path, b'{"seconds":') for path in (ACK, ACK_BATCH, LEASE, CONFIGURE)],
    ids=repr,
)
async def test_malformed_json_is_a_400(client, path, body):
    status, error = refusal(await client.call("POST", path, body))

    assert status == 400
    assert error.startswith("the body is not valid JSON: ")


@pytest.mark.parametrize("path", [PUSH, ACK, ACK_BATCH, CONFIGURE])
async def test_an_empty_body_is_a_400(client, path):
    status, error = refusal(await client.call("POST", path, b"", "content-length: 0\r\n"))

    assert (status, error) == (400, "the request body is empty; send a JSON object")


@pytest.mark.parametrize("escape", HALF_A_PAIR, ids=repr)
@pytest.mark.parametrize("place", [b'"%b"', b'{"%b":1}', b'["ok","%b"]'])
async def test_half_of_a_surrogate_pair_is_a_400(client, queue, place, escape):
    answer = await client.call("POST", PUSH, push_body(queue, place % escape))

    assert refusal(answer) == (
        400,
        "the body is not valid JSON: it escapes half of a surrogate pair",
    )


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80"])
async def test_a_body_that_is_not_utf8_is_a_400(client, queue, raw):
    answer = await client.call("POST", PUSH, push_body(queue, b'"%b"' % raw))

    status, error = refusal(answer)
    assert status == 400
    assert error.startswith("the body is not valid UTF-8")


@pytest.mark.parametrize("depth", [2_000, 1_000_000])
async def test_a_body_nested_too_deeply_is_a_400(client, queue, depth):
    answer = await client.call("POST", PUSH, push_body(queue, b"[" * depth + b"]" * depth))

    assert refusal(answer) == (400, "the body is nested too deeply")


def items(**members):
    return {"items": [{"queue": "good"}, {"queue": "bad", **members}]}


def acks(**members):
    item = {"transactionId": "t", "partitionId": "p", **members}
    return {"acknowledgments": [{name: value for name, value in item.items() if value != ...}]}


def an_ack(**members):
    return acks(**members)["acknowledgments"][0]


@pytest.mark.parametrize(
    ("path", "members", "error"),
    [
        (PUSH, [], "Expected `object`"),
        (PUSH, {}, "items array is required"),
        (PUSH, {"items": None}, "items array is required"),
        (PUSH, {"items": {}}, "items array is required"),
        (PUSH, {"items": ["x"]}, "Expected `object`"),
        (PUSH, {"items": [{}]}, "Queue must be a string"),
        (PUSH, items(queue=None), "Queue must be a string"),
        (PUSH, items(queue=5), "Queue must be a string"),
        (PUSH, items(queue=["q"]), "Queue must be a string"),
        (PUSH, items(partition=5), "Partition must be a string"),
        (PUSH, items(transactionId=5), "TransactionId must be a string"),
        (PUSH, items(traceId=5), "TraceId must be a string"),
        (PUSH, {"items": [{"queue": "q"}] * 10_001}, "more than 10000 items"),
        (ACK, [], "Expected `object`"),
        (ACK, an_ack(transactionId=...), "transactionId is required"),
        (ACK, an_ack(transactionId=5), "transactionId is required"),
        (ACK, an_ack(partitionId=...), "partitionId is required to ensure message uniqueness"),
        (ACK, an_ack(partitionId=None), "partitionId is required to ensure message uniqueness"),
        (ACK, an_ack(status=True), "Expected `str | null`"),
        (ACK, an_ack(leaseId=5), "Expected `str | null`"),
        (ACK_BATCH, {}, "acknowledgments array is required"),
        (ACK_BATCH, {"acknowledgments": {}}, "acknowledgments array is required"),
        (ACK_BATCH, acks(transactionId=...), "Each acknowledgment must have a valid transactionId"),
        (ACK_BATCH, acks(partitionId=7), "Each acknowledgment must have a valid partitionId"),
        (
            ACK_BATCH,
            {"acknowledgments": [an_ack()] * 10_001},
            "more than 10000 acknowledgments",
        ),
        (CONFIGURE, {"queue": ""}, "queue must not be empty"),
        (LEASE, {"seconds": 0}, "seconds must be between 1 and"),
        (LEASE, {"seconds": -1}, "seconds must be between 1 and"),
        (LEASE, {"seconds": 10**30}, "seconds must be between 1 and"),
        (LEASE, {"seconds": "60"}, "Expected `int | null`"),
        (LEASE, {"seconds": 1.5}, "Expected `int | null`"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_a_body_of_another_shape_is_a_400_that_names_the_fault(client, path, members, error):
    status, text = refusal(await client.post(path, members))

    assert status == 400
    assert text.startswith(error)


BAD_ITEMS = [
    ({"queue": ""}, "queue must not be empty"),
    ({"queue": "q" * 256}, "queue is longer than 255 characters"),
    ({"queue": "🐝" * 256}, "queue is longer than 255 characters"),
    ({"queue": "\0"}, "queue contains a NUL character"),
    ({"partition": "p" * 256}, "partition is longer than 255 characters"),
    ({"partition": "p\0"}, "partition contains a NUL character"),
    ({"namespace": "\0"}, "namespace contains a NUL character"),
    ({"task": "t" * 256}, "task is longer than 255 characters"),
    ({"transactionId": "t" * 256}, "transactionId is longer than 255 characters"),
    ({"transactionId": "\0"}, "transactionId contains a NUL character"),
    ({"traceId": "not a UUID"}, "traceId must be a UUID"),
    ({"headers": {"a": "x" * 9000}}, "headers"),
    ({"ttlSeconds": 0}, "ttlSeconds"),
    ({"deliverAt": "soon"}, "deliverAt"),
    ({"delaySeconds": -1}, "delaySeconds"),
]


@pytest.mark.parametrize(("members", "error"), BAD_ITEMS, ids=lambda value: str(value)[:40])
async def test_a_bad_item_fails_alone_and_its_neighbours_are_stored(client, queue, members, error):
    bad = {"queue": queue, "payload": "bad", "transactionId": "b", **members}
    good = [{"queue": queue, "payload": number} for number in (1, 2)]

    results = await client.push(good[0], bad, good[1])

    assert [each["status"] for each in results] == ["queued", "failed", "queued"]
    assert [each["index"] for each in results] == [0, 1, 2]
    assert results[1]["error"].startswith(error)
    assert results[1]["queueName"] == bad["queue"]
    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


@pytest.mark.parametrize(("members", "error"), BAD_ITEMS, ids=lambda value: str(value)[:40])
async def test_a_push_of_nothing_but_bad_items_is_a_400_that_names_the_fault(
    client, queue, members, error
):
    bad = {"queue": queue, "payload": "bad", **members}

    status, text = refusal(await client.post(PUSH, {"items": [bad, bad]}))

    assert status == 400
    assert text.startswith(error)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("batch=abc", "batch must be a whole number"),
        ("batch=1.5", "batch must be a whole number"),
        ("batch=" + "9" * 5000, "batch must be a whole number"),
        ("batch=0", "batch must be at least 1"),
        ("batch=-1", "batch must be at least 1"),
        ("partitions=many", "partitions must be a whole number"),
        ("leaseSeconds=x", "leaseSeconds must be a whole number"),
        ("wait=true&timeout=soon", "timeout must be a whole number"),
        ("wait=true&timeout=-1", "timeout must not be negative"),
        ("consumerGroup=" + "g" * 256, "consumerGroup is longer than 255 characters"),
        ("consumerGroup=%00", "consumerGroup contains a NUL character"),
        ("consumerGroup=%ff", "A name or parameter in the URL is not UTF-8."),
        ("consumerGroup=g&subscriptionFrom=yesterday", "subscriptionFrom must be"),
        ("consumerGroup=g&subscriptionFrom=0001-01-01T00:00%2B01:00", "subscriptionFrom must be"),
        ("consumerGroup=g&subscriptionFrom=9999-12-31T23:59-01:00", "subscriptionFrom must be"),
    ],
    ids=lambda value: value[:40],
)
async def test_a_pop_with_a_bad_parameter_is_a_400_that_names_it(client, queue, query, error):
    status, text = refusal(await client.call("GET", f"/api/v1/pop/queue/{queue}?{query}"))

    assert status == 400
    assert text.startswith(error)


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/api/v1/pop/queue/" + "q" * 256, 400, "queue is longer than 255 characters"),
        ("/api/v1/pop/queue/%00", 400, "queue contains a NUL character"),
        ("/api/v1/pop/queue/", 400, "queue must not be empty"),
        ("/api/v1/pop/queue//partition/p", 400, "queue must not be empty"),
        ("/api/v1/pop/queue/%ff", 400, "A name or parameter in the URL is not UTF-8."),
        ("/api/v1/pop/queue/q/partition/%00", 400, "partition contains a NUL character"),
        ("/api/v1/pop/queue/a/b", 404, "no such path"),
        ("/api/v1/pop/queue/q/partition/a/b", 404, "no such path"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_pop_of_an_impossible_name_is_refused(client, path, status, error):
    answer = await client.call("GET", path)

    assert refusal(answer)[0] == status
    assert refusal(answer)[1].startswith(error)


# The size of bodies


async def test_a_body_announced_to_be_too_large_is_a_413_before_it_is_sent(client):
    client.send(b"POST /api/v1/push HTTP/1.1\r\nhost: x\r\ncontent-length: 16777217\r\n\r\n")

    assert refusal(await client.answer())[0] == 413


async def test_a_chunked_body_that_grows_too_large_is_a_413(client):
    client.send(b"POST /api/v1/push HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(17):
        client.send(b"100000\r\n%b\r\n" % (b" " * MIB))

    assert refusal(await client.answer())[0] == 413


async def test_a_body_just_within_the_limit_is_accepted(client, queue):
    padding = 16 * MIB - len(push_body(queue, b'""'))
    payload = b'"%b"' % (b"x" * padding)

    assert await carry(client, queue, payload) == payload


# Neighbours


BAD_PUSHES = [
    *NOT_JSON,
    b'{"items":[{"queue":5}]}',
    b'{"items":[{"queue":"q","traceId":"x"}]}',
    b'{"items":[{"queue":"\\u0000"}]}',
    b'{"items":[{"queue":"q","payload":"\\ud800"}]}',
    b'{"items":[{"queue":"q","payload":"\xff"}]}',
    b'{"items":[{"queue":"' + b"q" * 256 + b'"}]}',
    push_body("q", b"[" * 5_000 + b"]" * 5_000),
]


async def test_defect_22_a_bad_push_does_not_fail_those_beside_it(open_client, queue):
    async def send(number, body):
        client = await open_client()
        good = push_body(queue, b"%d" % number)
        client.send(b"".join(spelled(part) for part in (good, body, good)))
        return [(await client.answer()).status for _ in range(3)]

    answers = await asyncio.gather(*(send(*each) for each in enumerate(BAD_PUSHES)))

    assert answers == [[201, 400, 201]] * len(BAD_PUSHES)
    client = await open_client()
    stored = [message["data"] for message in await client.pop(queue, batch=1000)]
    assert sorted(stored) == sorted([*range(len(BAD_PUSHES))] * 2)


def spelled(body):
    return b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (
        PUSH.encode(),
        len(body),
        body,
    )


async def test_defect_22_a_bad_pop_does_not_fail_those_beside_it(open_client, queue):
    first = await open_client()
    for number in range(10):
        await first.push_payloads(queue, number, partition=f"p{number}")
    bad = ["batch=-1", "batch=abc", "consumerGroup=%00", "subscriptionFrom=x&consumerGroup=g"]

    async def poll(query):
        client = await open_client()
        return await client.call("GET", f"/api/v1/pop/queue/{queue}?{query}")

    queries = [bad[number // 2 % 4] if number % 2 else "batch=5" for number in range(20)]
    answers = await asyncio.gather(*map(poll, queries))

    assert [answer.status for answer in answers] == [200, 400] * 10


async def test_defect_22_a_bad_ack_does_not_fail_those_beside_it(open_client, queue):
    first = await open_client()
    for number in range(10):
        payload = rb'"\u0000"' if number % 2 else b"0"
        partition = b',"partition":"p%d"' % number
        await first.call("POST", PUSH, push_body(queue, payload, partition))
    messages = await first.pop(queue, batch=10, partitions=10)

    async def ack(message):
        client = await open_client()
        is_odd = message["data"] == "\0"
        results = [await client.ack(message, "dlq" if is_odd else "completed")]
        results += await client.ack_batch(ack_item(message, "failed", {"leaseId": "stale"}))
        return [result["success"] for result in results]

    assert await asyncio.gather(*map(ack, messages)) == [[True, False]] * 10
