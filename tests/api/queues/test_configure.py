"""Configure over HTTP: what a queue is created with, and what a change leaves alone."""

import json

import pytest

DEFAULTS = {
    "leaseTime": 300,
    "maxSize": 0,
    "ttl": 0,
    "retryLimit": 3,
    "retryDelay": 0,
    "deadLetterQueue": True,
    "dlqAfterMaxRetries": True,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "retentionEnabled": False,
    "encryptionEnabled": False,
    "maxWaitTimeSeconds": 0,
    "dedupWindowSeconds": 3600,
    "maxDeliveries": 0,
    "retryDelayMax": 300_000,
    "ackMode": "cumulative",
    "overflow": "reject",
    "jsonSchema": None,
    "archiveAfterSeconds": 0,
    "archiveBeforeDelete": False,
    "lakeTable": "raw",
    "deferral": "asked",
    "strict": False,
}

SCHEMA = {"type": "object", "required": ["bee"], "properties": {"bee": {"type": "string"}}}


async def test_a_queue_is_answered_201_with_all_its_options(client, queue):
    answer = await client.post("/api/v1/configure", {"queue": queue})
    body = json.loads(answer.body)

    assert answer.status == 201
    assert list(body) == [
        "configured",
        "queueId",
        "partitionId",
        "queue",
        "namespace",
        "task",
        "options",
    ]
    assert body["configured"] is True
    assert [body["queue"], body["namespace"], body["task"]] == [queue, "", ""]
    assert body["options"] == DEFAULTS


async def test_the_default_partition_exists_from_then_on(client, queue):
    configured = await client.configure(queue)

    (pushed,) = await client.push_payloads(queue, 1)

    assert pushed["partition_id"] == configured["partitionId"]


async def test_what_is_left_out_keeps_its_value(client, queue):
    await client.configure(queue, {"namespace": "shop", "task": "bill"}, leaseTime=60, retryLimit=5)

    changed = await client.configure(queue, retryLimit=7)

    assert [changed["namespace"], changed["task"]] == ["shop", "bill"]
    assert changed["options"] == {**DEFAULTS, "leaseTime": 60, "retryLimit": 7}


async def test_null_restores_one_default(client, queue):
    await client.configure(queue, {"namespace": "shop"}, leaseTime=60, retryLimit=5)

    changed = await client.configure(queue, {"namespace": None}, leaseTime=None)

    assert changed["namespace"] == ""
    assert changed["options"] == {**DEFAULTS, "retryLimit": 5}


async def test_replacing_returns_everything_else_to_its_default(client, queue):
    await client.configure(queue, {"namespace": "shop", "task": "bill"}, leaseTime=60, retryLimit=5)

    changed = await client.configure(queue, {"mode": "replace", "task": "pack"}, leaseTime=70)

    assert [changed["namespace"], changed["task"]] == ["", "pack"]
    assert changed["options"] == {**DEFAULTS, "leaseTime": 70}


async def test_options_that_are_not_known_change_nothing_and_are_named(client, queue):
    configured = await client.configure(queue, colour="blue", size=7, leaseTime=60)

    assert configured["options"] == {**DEFAULTS, "leaseTime": 60}
    assert configured["ignoredOptions"] == ["colour", "size"]


async def test_every_option_can_be_set(client, queue):
    chosen = {
        name: not default if isinstance(default, bool) else default + 1
        for name, default in DEFAULTS.items()
        if isinstance(default, int)
    }
    chosen |= {"ackMode": "individual", "overflow": "drop_oldest", "jsonSchema": SCHEMA}
    chosen |= {"encryptionEnabled": False, "deferral": "never", "lakeTable": "typed"}

    assert (await client.configure(queue, **chosen))["options"] == chosen


async def test_defect_38_configure_does_not_reset_what_is_left_out(client, queue):
    name = f"shop.{queue}.x"
    await client.push_payloads(name, 1)
    await client.configure(name, retentionSeconds=60, jsonSchema=SCHEMA)

    changed = await client.configure(name, leaseTime=5)

    assert changed["options"]["retentionSeconds"] == 60
    assert changed["options"]["jsonSchema"] == SCHEMA
    assert [changed["namespace"], changed["task"]] == ["shop", queue]


async def test_null_takes_the_schema_away(client, queue):
    await client.configure(queue, jsonSchema=SCHEMA)

    assert (await client.configure(queue, jsonSchema=None))["options"] == DEFAULTS


async def test_a_schema_comes_back_as_it_was_sent(client, queue):
    body = b'{"queue": "%b", "options": {"jsonSchema": {"maximum": 1e300, "minimum": -2.50}}}'

    answer = await client.call("POST", "/api/v1/configure", body % queue.encode())

    options = json.loads(answer.body)["options"]
    assert options["jsonSchema"] == {"maximum": 1e300, "minimum": -2.5}
    assert len(answer.body) < 1000  # the number has not been spelled out


async def test_encryption_is_refused_by_a_broker_without_a_key(client, queue):
    body = {"queue": queue, "options": {"encryptionEnabled": True}}

    answer = await client.post("/api/v1/configure", body)

    assert answer.status == 409
    assert "cannot encrypt" in json.loads(answer.body)["error"]


async def test_a_queue_made_by_a_push_has_the_same_defaults(client, queue):
    name = f"shop.{queue}.x"
    await client.push_payloads(name, 1)

    configured = await client.configure(name)

    assert configured["options"] == DEFAULTS
    assert [configured["namespace"], configured["task"]] == ["shop", queue]


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({}, "queue is required"),
        ({"queue": 5}, "queue is required"),
        ({"queue": "q" * 256}, "queue is longer than 255 characters"),
        ({"queue": "q\0"}, "queue contains a NUL character"),
        ({"queue": "q", "namespace": "n" * 256}, "namespace is longer than 255 characters"),
        ({"queue": "q", "task": "\0"}, "task contains a NUL character"),
        ({"queue": "q", "options": {"leaseTime": -1}}, "option leaseTime must be between"),
        ({"queue": "q", "options": {"leaseTime": 2**31}}, "option leaseTime must be between"),
        ({"queue": "q", "options": {"leaseTime": "long"}}, "Expected `int | null`"),
        ({"queue": "q", "options": {"retentionEnabled": 1}}, "Expected `bool | null`"),
        ({"queue": "q", "options": []}, "Expected `object | null`"),
        ({"queue": "q", "options": {"ackMode": "both"}}, "Invalid enum value 'both'"),
        ({"queue": "q", "options": {"overflow": ""}}, "Invalid enum value ''"),
        ({"queue": "q", "options": {"jsonSchema": []}}, "Expected `object | null`"),
        ({"queue": "q", "options": {"jsonSchema": {"type": "bee"}}}, "jsonSchema.type: "),
        ({"queue": "q", "options": {"jsonSchema": {"$ref": "http://x/y"}}}, "jsonSchema: "),
        ({"queue": "q", "options": {"jsonSchema": {"title": "x" * 65_536}}}, "jsonSchema is larg"),
        ({"queue": "q", "options": {"jsonSchema": {"title": "\0"}}}, "unsupported Unicode escape"),
        ({"queue": "q", "mode": "burn"}, "Invalid enum value 'burn'"),
    ],
    ids=str,
)
async def test_what_cannot_be_configured_is_a_400_that_says_why(client, members, error):
    answer = await client.post("/api/v1/configure", members)

    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith(error)
