import json

import asyncpg
import pytest

GOOD = {
    "queue": "hive",
    "partition": None,
    "transaction_id": None,
    "payload": "{}",
    "headers": None,
    "ttl_s": None,
}


async def check(log, **members):
    given = {**GOOD, **members}
    await log.value("select skep.check_message($1, $2, $3, $4, $5, $6)", *given.values())


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"queue": "q" * 255, "partition": "p" * 255, "transaction_id": "ü" * 255},
        {"payload": '"\\u0000"'},
        {"payload": " null\n"},
        {"payload": "[" * 500 + "]" * 500},
        {"headers": json.dumps({str(number): number for number in range(64)})},
        {"headers": '{"a": "x", "b": 1.5, "c": true, "d": null}'},
        {"ttl_s": 0.001},
    ],
)
async def test_what_can_be_stored_passes(log, members):
    await check(log, **members)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"queue": None}, "needs a queue"),
        ({"queue": ""}, "needs a queue"),
        ({"queue": "q" * 256}, "queue is longer"),
        ({"partition": "p" * 256}, "partition is longer"),
        ({"transaction_id": "t" * 256}, "transaction_id is longer"),
        ({"payload": None}, "needs a payload"),
        ({"payload": json.dumps("x" * (16 << 20))}, "16 MiB"),
        ({"payload": "[" * 501 + "]" * 501}, "500 levels"),
        ({"headers": "[1]"}, "JSON object"),
        ({"headers": '{"a": {}}'}, "value of a header"),
        ({"headers": '{"a": [1]}'}, "value of a header"),
        ({"headers": json.dumps({str(number): 1 for number in range(65)})}, "64 headers"),
        ({"headers": json.dumps({"a": "x" * 8192})}, "8192 bytes"),
        ({"ttl_s": 0}, "ttl_s"),
        ({"ttl_s": float("nan")}, "ttl_s"),
        ({"ttl_s": 1e9}, "ttl_s"),
    ],
)
async def test_what_cannot_is_refused_with_the_reason(log, members, words):
    with pytest.raises(asyncpg.PostgresError, match=words) as refusal:
        await check(log, **members)

    assert refusal.value.sqlstate == "SK400"


@pytest.mark.parametrize("payload", ["", "{", "nul", "'x'", "[1,]"])
async def test_a_payload_that_is_no_json_is_refused(log, payload):
    with pytest.raises(asyncpg.InvalidTextRepresentationError):
        await check(log, payload=payload)
