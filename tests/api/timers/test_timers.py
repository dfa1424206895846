"""Timers over HTTP: every operation, every refusal."""

import json
from base64 import b64decode, b64encode

import pytest

PATH = "/api/v1/timers"


def base64(value):
    return b64encode(json.dumps(value).encode()).decode()


async def ask(client, method, path, body=None):
    answer = await client.call(method, path, b"" if body is None else json.dumps(body).encode())
    return answer.status, json.loads(answer.body)


async def call(client, *operations):
    status, answer = await ask(client, "POST", PATH, {"operations": operations})
    assert status == 200, answer
    return answer["results"]


def scheduling(queue, key="k", value=1, delay_ms=600_000, **members):
    operation = {"op": "schedule", "queue": queue, "timerKey": key, "delayMs": delay_ms}
    return {**operation, "payload": base64(value), **members}


async def test_a_timer_is_delivered_with_its_transaction_id_when_its_time_has_come(client, queue):
    sent = scheduling(queue, value={"n": 1}, delay_ms=50, txn="t-1", partition="p")

    [result] = await call(client, sent)
    popped = await client.call("GET", f"/api/v1/pop/queue/{queue}?wait=true&timeout=30000")

    assert result["deliverAt"].endswith("Z")
    del result["deliverAt"]
    assert result == {
        "index": 0,
        "ok": True,
        "status": "scheduled",
        "queue": queue,
        "timerKey": "k",
        "txn": "t-1",
        "messageId": None,
    }
    [message] = json.loads(popped.body)["messages"]
    assert (message["transactionId"], message["partition"]) == ("t-1", "p")
    assert message["data"] == {"n": 1}
    assert await ask(client, "GET", f"{PATH}/{queue}/k") == (200, {"found": False})


async def test_a_timer_is_replaced_shown_listed_counted_and_cancelled(client, queue):
    [first] = await call(client, scheduling(queue, "a//b/", value=1))
    [second] = await call(
        client, scheduling(queue, "a//b/", value=2, op="reschedule", txn="t", partition="p")
    )
    one = f"{PATH}/{queue}/a//b%2F"

    _, shown = await ask(client, "GET", one)
    _, listed = await ask(client, "GET", f"{PATH}/{queue}")
    _, counted = await ask(client, "GET", f"{PATH}/{queue}?mode=count&prefix=a")
    _, cancelled = await ask(client, "DELETE", one)
    _, absent = await ask(client, "DELETE", f"{one}?txn=t%2F1")

    assert (first["status"], second["status"]) == ("scheduled", "rescheduled")
    assert first["txn"] not in (None, "t")
    assert json.loads(b64decode(shown["payload"])) == 2
    assert (shown["found"], shown["encrypted"], shown["partition"]) == (True, False, "p")
    assert shown["updatedAt"] > shown["createdAt"]
    [row] = listed["rows"]
    assert row == {name: shown[name] for name in row}
    assert "payload" not in row
    assert (listed["truncated"], listed["nextAfter"]) == (False, None)
    assert counted == {"count": 1}
    assert (cancelled["ok"], cancelled["status"], cancelled["txn"]) == (True, "cancelled", "t")
    assert cancelled["deliverAt"] == second["deliverAt"]
    assert (absent["ok"], absent["status"], absent["txn"]) == (False, "absent", "t/1")
    assert "index" not in cancelled


async def test_lists_are_paged(client, queue):
    await call(client, *(scheduling(queue, key) for key in "cab"))

    _, first = await ask(client, "GET", f"{PATH}/{queue}?limit=2")
    _, last = await ask(client, "GET", f"{PATH}/{queue}?limit=2&after={first['nextAfter']}")
    _, clamped = await ask(client, "GET", f"{PATH}/{queue}?limit=-5")

    assert [row["timerKey"] for row in first["rows"]] == ["a", "b"]
    assert (first["truncated"], first["nextAfter"]) == (True, "b")
    assert [row["timerKey"] for row in last["rows"]] == ["c"]
    assert [row["timerKey"] for row in clamped["rows"]] == ["a"]


async def test_a_call_is_one_commit_in_which_every_operation_has_its_result(client, queue):
    await call(client, scheduling(queue, "old"))

    results = await call(
        client,
        scheduling(queue, "new"),
        {"op": "cancel", "queue": queue, "timerKey": "old"},
        {"op": "cancel", "queue": queue, "timerKey": "none", "txn": "seen"},
    )

    assert [(each["index"], each["status"], each["ok"]) for each in results] == [
        (0, "scheduled", True),
        (1, "cancelled", True),
        (2, "absent", False),
    ]
    assert results[2]["txn"] == "seen"


async def test_a_timer_waits_among_the_scheduled_messages(client, queue):
    await call(client, scheduling(queue, txn="t"))

    _, page = await ask(client, "GET", f"/api/v1/scheduled?queue={queue}")

    assert [each["transactionId"] for each in page["messages"]] == ["t"]


async def test_what_the_schema_of_the_queue_refuses_is_refused_when_it_is_scheduled(client, queue):
    options = {"queue": queue, "options": {"jsonSchema": {"type": "object"}}}
    assert (await client.post("/api/v1/configure", options)).status == 201

    status, refused = await ask(client, "POST", PATH, [scheduling(queue, value=1)])

    assert (status, refused["reason"]) == (400, "timers_payload_refused")
    assert [each["ok"] for each in await call(client, scheduling(queue, value={}))] == [True]


# What is refused, with its code.

S = scheduling("q")


def without(name):
    return [{key: value for key, value in S.items() if key != name}]


BAD = {
    "timers_bad_body": [
        b"{",
        b"{}",
        b'{"operations": 1}',
        b"[1]",
        b'[{"op": "\xff"}]',
        b'[{"op": "cancel", "queue": "q", "timerKey": "\\ud800"}]',
        [{**S, "txn": 7}],
        b'[{"op": "cancel", "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}]",
    ],
    "timers_bad_op": [[{**S, "op": "fire"}], without("op"), [{**S, "op": 1}]],
    "timers_queue_required": [without("queue"), [{**S, "queue": "q" * 256}], [{**S, "queue": 1}]],
    "timers_key_required": [
        without("timerKey"),
        [{**S, "timerKey": "a\0"}],
        [{**S, "timerKey": 1}],
    ],
    "timers_delay_required": [without("delayMs"), [{**S, "delayMs": "soon"}]],
    "timers_payload_required": [without("payload"), [{**S, "payload": None}]],
    "timers_payload_not_base64": [[{**S, "payload": "ä"}], [{**S, "payload": {}}]],
    "timers_payload_not_json": [
        [{**S, "payload": b64encode(b"{").decode()}],
        [{**S, "payload": b64encode(b'"\xff"').decode()}],
        [{**S, "payloadZstd": True}],
        [{**S, "encrypted": True}],
    ],
    "timers_bad_partition": [[{**S, "partition": "p" * 256}]],
    "timers_bad_txn": [[{**S, "txn": "t" * 256}], [{**S, "txn": "\0"}]],
    "timers_server_owned_field": [
        [{**S, name: 1}]
        for name in ("producerSub", "messageId", "tenant", "deliverAt", "attempts", "_claim")
    ],
    "timers_too_many_ops": [[S] * 257],
    "timers_duplicate_in_call": [[S, {"op": "cancel", "queue": "q", "timerKey": "k"}]],
}
TOO_LARGE = {
    "timers_payload_too_large": [[scheduling("q", value="x" * (1 << 20))]],
    "timers_key_too_large": [[{**S, "timerKey": "ä" * 257}]],
}
TOO_FAR = {"timer_horizon_exceeded": [[{**S, "delayMs": 90 * 86_400_000 + 1}]]}
CODES = {
    **dict.fromkeys(BAD, (400, "timers_bad_request")),
    **dict.fromkeys(TOO_LARGE, (413, "payload_too_large")),
    **dict.fromkeys(TOO_FAR, (403, "timer_horizon_exceeded")),
}


@pytest.mark.parametrize("reason", CODES)
async def test_a_malformed_call_is_refused_with_its_reason(client, reason):
    status, code = CODES[reason]
    for body in (BAD | TOO_LARGE | TOO_FAR)[reason]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()

        answer = await client.call("POST", PATH, raw)

        found = json.loads(answer.body)
        assert answer.status == status, (raw[:200], found)
        assert (found["error"], found["code"], found["reason"]) == (code, code, reason), raw[:200]
        assert found["detail"]


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("GET", "q?mode=all", "timers_read_mode_unknown"),
        ("GET", "q?mode=count", "timers_count_bad_prefix"),
        ("GET", f"q?mode=count&prefix={'p' * 129}", "timers_count_bad_prefix"),
        ("GET", "q?mode=count&prefix=p&limit=1", "timers_count_takes_no_page"),
        ("GET", "q?mode=count&prefix=p&after=a", "timers_count_takes_no_page"),
        ("GET", "q?limit=many", "timers_bad_limit"),
        ("GET", "q?after=%00", "timers_key_required"),
        ("GET", f"{'q' * 256}", "timers_queue_required"),
        ("GET", "q/%00", "timers_key_required"),
        ("DELETE", "q/%00", "timers_key_required"),
        ("DELETE", f"{'q' * 256}/k", "timers_queue_required"),
    ],
)
async def test_a_malformed_path_or_query_is_refused_with_its_reason(client, method, path, reason):
    status, found = await ask(client, method, f"{PATH}/{path}")

    assert (status, found["error"], found["reason"]) == (400, "timers_bad_request", reason)


async def test_the_furthest_longest_and_largest_that_are_allowed_are_scheduled(client, queue):
    payload = "x" * ((1 << 20) - 2)

    [result] = await call(
        client, scheduling(queue, "k" * 512, value=payload, delay_ms=90 * 86_400_000, txn="t" * 255)
    )

    assert result["ok"] is True


async def test_a_call_without_operations_has_no_results(client):
    for body in (b"[]", b'{"operations":[]}'):
        answer = await client.call("POST", PATH, body)

        assert (answer.status, answer.body) == (200, b'{"results":[]}')
