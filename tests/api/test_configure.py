"""Configure over HTTP: what a queue is created with, and what a change leaves alone."""

import json

import pytest

DEFAULTS = {
    "leaseTime": 300,
    "maxSize": 0,
    "ttl": 3600,
    "retryLimit": 3,
    "retryDelay": 1000,
    "deadLetterQueue": False,
    "dlqAfterMaxRetries": False,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "retentionEnabled": False,
    "encryptionEnabled": False,
    "maxWaitTimeSeconds": 0,
    "dedupWindowSeconds": 3600,
}


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


async def test_options_that_are_not_known_are_dropped(client, queue):
    assert (await client.configure(queue, colour="blue"))["options"] == DEFAULTS


async def test_every_option_can_be_set(client, queue):
    chosen = {
        name: not default if isinstance(default, bool) else default + 1
        for name, default in DEFAULTS.items()
    }
    chosen["encryptionEnabled"] = False

    assert (await client.configure(queue, **chosen))["options"] == chosen


async def test_encryption_is_refused_rather_than_promised(client, queue):
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
        ({"queue": "q", "mode": "burn"}, "Invalid enum value 'burn'"),
    ],
    ids=str,
)
async def test_what_cannot_be_configured_is_a_400_that_says_why(client, members, error):
    answer = await client.post("/api/v1/configure", members)

    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith(error)
