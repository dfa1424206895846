"""Keys and values over HTTP: every operation, every refusal."""

import asyncio
import json
import os
from itertools import count

import pytest

_names = count()
FOREVER = {"forever": True}


@pytest.fixture
def ns():
    """A namespace that no other test uses."""
    return f"ns-{os.getpid()}-{next(_names)}"


async def call(client, *operations, status=200):
    """Send a call; return its answer."""
    answer = await client.post("/api/v1/kv", {"operations": operations})
    assert answer.status == status, answer.body
    return json.loads(answer.body)


async def one(client, op, ns, key="k", **members):
    """Carry out one operation; return its result."""
    [result] = (await call(client, {"op": op, "ns": ns, "key": key, **members}))["results"]
    return result


async def test_what_is_put_is_got(client, ns):
    put = await one(client, "put", ns, value={"a": [1, None]}, **FOREVER)
    got = await one(client, "get", ns)

    assert (put["index"], put["op"], put["applied"]) == (0, "put", True)
    assert put["value"] == got["value"] == {"a": [1, None]}
    assert (got["found"], got["version"], got["expiresAt"]) == (True, put["version"], None)
    assert got["updatedAt"].endswith("Z")


async def test_a_key_that_does_not_exist_is_answered_as_that_alone(client, ns):
    assert await one(client, "get", ns) == {"index": 0, "op": "get", "found": False, "key": "k"}


async def test_null_is_a_value(client, ns):
    await one(client, "put", ns, value=None, **FOREVER)

    got = await one(client, "get", ns)

    assert (got["found"], got["value"]) == (True, None)


async def test_of_many_that_create_a_key_one_wins(open_client, ns):
    clients = [await open_client() for _ in range(8)]
    puts = [
        one(client, "putIfAbsent", ns, value=place, ttlSeconds=60)
        for place, client in enumerate(clients)
    ]

    results = await asyncio.gather(*puts)

    winners = [each for each in results if each["applied"]]
    losers = [each for each in results if not each["applied"]]
    assert len(winners) == 1
    assert {each["reason"] for each in losers} == {"exists"}
    assert {(each["value"], each["version"]) for each in losers} == {
        (winners[0]["value"], winners[0]["version"])
    }


async def test_increments_of_many_add_up(open_client, ns):
    clients = [await open_client() for _ in range(6)]

    async def add(client):
        return [(await one(client, "incr", ns, delta=1, **FOREVER))["value"] for _ in range(5)]

    seen = await asyncio.gather(*map(add, clients))

    assert sorted(value for each in seen for value in each) == list(range(1, 31))


async def test_an_increment_is_exact_and_admits_up_to_its_bounds(client, ns):
    await one(client, "incr", ns, delta=0.1, **FOREVER)
    await one(client, "incr", ns, delta=0.2, **FOREVER)
    refused = await one(client, "incr", ns, delta=1, max=1, **FOREVER)

    assert (refused["applied"], refused["reason"], refused["value"]) == (False, "limit", 0.3)


async def test_a_lost_condition_changes_nothing_and_no_neighbour(client, ns):
    version = (await one(client, "put", ns, value=1, **FOREVER))["version"]

    answer = await call(
        client,
        {"op": "put", "ns": ns, "key": "k", "value": 2, "expect": version + 1000, **FOREVER},
        {"op": "put", "ns": ns, "key": "other", "value": 3, **FOREVER},
    )

    lost, kept = answer["results"]
    assert (lost["applied"], lost["reason"]) == (False, "version")
    assert (lost["value"], lost["version"]) == (1, version)
    assert kept["applied"] is True


async def test_a_required_operation_that_is_lost_undoes_the_call(client, ns):
    version = (await one(client, "put", ns, key="b", value="mine", **FOREVER))["version"]

    answer = await call(
        client,
        {"op": "put", "ns": ns, "key": "a", "value": 1, **FOREVER},
        {"op": "check", "ns": ns, "key": "b", "expect": 0, "required": True},
    )

    results = answer.pop("results")
    assert answer == {
        "ok": False,
        "reason": "kv_precondition",
        "failedIndex": 1,
        "kvReason": "exists",
        "version": version,
        "value": "mine",
    }
    assert [each["applied"] for each in results] == [False, False]
    assert (await one(client, "get", ns, key="a"))["found"] is False


async def test_a_call_reads_singly_before_and_severally_after_its_writes(client, ns):
    await one(client, "put", ns, value="old", **FOREVER)

    got, _, many, listed = (
        await call(
            client,
            {"op": "get", "ns": ns, "key": "k"},
            {"op": "put", "ns": ns, "key": "k", "value": "new", **FOREVER},
            {"op": "getMany", "ns": ns, "keys": ["none", "k"]},
            {"op": "getPrefix", "ns": ns, "prefix": "k"},
        )
    )["results"]

    assert got["value"] == "old"
    assert [row["value"] for row in many["rows"] + listed["rows"]] == ["new", "new"]
    assert (many["missing"], many["truncated"]) == (["none"], False)
    assert (listed["truncated"], listed["nextAfter"]) == (False, None)


async def test_a_list_is_paged_and_may_leave_out_values(client, ns):
    keys = ["a/1", "a/2", "a/3", "b"]
    await call(client, *({"op": "put", "ns": ns, "key": k, "value": k, **FOREVER} for k in keys))
    page = {"op": "getPrefix", "ns": ns, "prefix": "a/", "limit": 2, "keysOnly": True}

    [first] = (await call(client, page))["results"]
    [last] = (await call(client, {**page, "after": first["nextAfter"]}))["results"]

    assert [row["key"] for row in first["rows"]] == ["a/1", "a/2"]
    assert (first["truncated"], first["nextAfter"]) == (True, "a/2")
    assert [row["key"] for row in last["rows"]] == ["a/3"]
    assert "value" not in last["rows"][0]


async def test_reads_of_several_keys_return_four_mebibytes_at_most(client, ns):
    keys = [f"k{number:02}" for number in range(70)]
    text = "x" * 65_000
    for start in range(0, 70, 35):
        part = keys[start : start + 35]
        await call(
            client, *({"op": "put", "ns": ns, "key": k, "value": text, **FOREVER} for k in part)
        )

    many, listed = (
        await call(
            client,
            {"op": "getMany", "ns": ns, "keys": [*keys, "none"]},
            {"op": "getPrefix", "ns": ns, "prefix": "k"},
        )
    )["results"]

    assert len(many["rows"]) == 64
    assert (many["missing"], many["truncated"]) == (["none"], True)
    assert (listed["rows"], listed["truncated"]) == ([], True)


async def test_an_expired_key_does_not_exist_before_it_is_swept(client, broker, ns):
    await one(client, "put", ns, value=1, ttlSeconds=60)
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.kv_entry set expires_at = now() - interval '1 s' where ns = $1", ns
        )

    got = await one(client, "get", ns)
    put = await one(client, "putIfAbsent", ns, value=2, **FOREVER)

    assert (got["found"], put["applied"]) == (False, True)


async def test_keys_are_rows_for_plain_sql(client, broker, ns):
    await one(client, "put", ns, value={"total": 12}, **FOREVER)

    async with broker.sql() as sql:
        total = await sql.fetchval("select value ->> 'total' from skep.kv where ns = $1", ns)

    assert total == "12"


async def test_an_application_decides_in_its_own_transaction(client, broker, ns):
    version = (await one(client, "put", ns, value=1, **FOREVER))["version"]
    async with broker.sql() as sql:
        transaction = sql.transaction()
        await transaction.start()
        await sql.fetch("select * from skep.kv_put($1, 'k', '2', expect => $2)", ns, version)
        unseen = await one(client, "get", ns)
        await transaction.rollback()

    assert unseen["value"] == (await one(client, "get", ns))["value"] == 1


async def test_a_call_whose_key_is_locked_holds_up_no_other(open_client, broker, ns):
    first, second, third = [await open_client() for _ in range(3)]
    async with broker.sql() as sql:
        transaction = sql.transaction()
        await transaction.start()
        await sql.fetch("select * from skep.kv_put($1, 'locked', '1')", ns)
        waits = asyncio.create_task(one(first, "incr", ns, key="locked", delta=1, **FOREVER))
        others = [
            asyncio.create_task(one(client, "put", ns, key=key, value=1, **FOREVER))
            for client, key in ((second, "free"), (third, "too"))
        ]
        done = await asyncio.gather(*others)
        is_waiting = not waits.done()
        await transaction.commit()

    assert [each["applied"] for each in done] == [True, True]
    assert is_waiting
    assert (await waits)["value"] == 2


# What is refused, with its code.

K = {"ns": "n", "key": "k"}
PUT = {"op": "put", **K, "value": 1, **FOREVER}
BAD = {
    "kv_bad_body": [
        b"{",
        b'{"operations": 1}',
        b'[{"op": "put", "ns": "n", "key": "k", "forever": true}]',
        [{**PUT, "forever": "yes"}],
        [{"op": "incr", **K, **FOREVER}],
        [{"op": "incr", **K, "delta": "1", **FOREVER}],
        [{"op": "incr", **K, "delta": 1, "min": [], **FOREVER}],
        b'[{"op": "incr", "ns": "n", "key": "k", "forever": true, "delta": 1e999}]',
        [{**PUT, "value": "a NUL: \0"}],
        b'[{"op": "put", "ns": "n", "key": "k", "forever": true, "value": 1e999999}]',
        b'[{"op": "put", "ns": "n", "key": "k", "value": "\xff", "forever": true}]',
        b'[{"op": "put", "ns": "n", "key": "k", "forever": true, "value": '
        + b"[" * 20_000
        + b"]" * 20_000
        + b"}]",
    ],
    "kv_bad_namespace": [
        [{**PUT, "ns": ns}] for ns in ("", "A", "-a", "a" * 65, "a b", None, 7, "ä")
    ],
    "kv_bad_key": [
        [{**PUT, "key": ""}],
        [{**PUT, "key": "a\0"}],
        [{**PUT, "key": 7}],
        [{"op": "getMany", "ns": "n"}],
        [{"op": "getMany", "ns": "n", "keys": [""]}],
        [{"op": "getMany", "ns": "n", "keys": [1]}],
    ],
    "kv_unknown_op": [[{"op": "push", **K}], [K], [{"op": 1, **K}]],
    "kv_prefix_required": [[{"op": "getPrefix", "ns": "n"}]],
    "kv_expiry_not_specified": [
        [{"op": "put", **K, "value": 1}],
        [{"op": "incr", **K, "delta": 1}],
        [{**PUT, "ttlSeconds": 1}],
        [{"op": "putIfAbsent", **K, "value": 1, "forever": False}],
    ],
    "kv_bad_ttl": [
        [{"op": "put", **K, "value": 1, "ttlSeconds": ttl}]
        for ttl in (0, -1, 1.5, "1", None, 2**40)
    ],
    "kv_bad_expect": [
        *([{**PUT, "expect": expect}] for expect in (-1, None, 1.5, "1", 2**63)),
        [{"op": "incr", **K, "delta": 1, "expect": 0, **FOREVER}],
        [{**PUT, "op": "putIfAbsent", "expect": 1}],
        [{"op": "check", **K}],
    ],
    "kv_duplicate_key_in_call": [[PUT, {"op": "delete", **K}]],
    "kv_too_many_ops": [[{"op": "get", **K}] * 257],
    "kv_too_many_keys": [
        [{"op": "getMany", "ns": "n", "keys": [f"{n}" for n in range(1025)]}],
        [{"op": "getPrefix", "ns": "n", "prefix": "a", "limit": 600}] * 2,
    ],
    "kv_tenant_not_an_input": [[{**PUT, name: None}] for name in ("tenant", "tenantId", "_tenant")],
}
TOO_LARGE = {
    "kv_value_too_large": [[{**PUT, "value": "x" * 65_535}]],
    "kv_key_too_large": [
        [{**PUT, "key": "k" * 513}],
        [{"op": "getPrefix", "ns": "n", "prefix": "ä" * 257}],
    ],
}


@pytest.mark.parametrize("reason", [*BAD, *TOO_LARGE])
async def test_a_malformed_call_is_refused_with_its_reason(client, reason):
    status, code = (400, "kv_bad_request") if reason in BAD else (413, "payload_too_large")
    for body in (BAD | TOO_LARGE)[reason]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()

        answer = await client.call("POST", "/api/v1/kv", raw)

        found = json.loads(answer.body)
        assert answer.status == status, (raw[:200], found)
        assert (found["error"], found["code"], found["reason"]) == (code, code, reason), raw[:200]
        assert found["detail"]


async def test_the_largest_that_is_allowed_is_stored(client, ns):
    value = "x" * 65_534

    put = await one(client, "put", ns, key="k" * 512, value=value, ttlSeconds=3_162_240_000)

    assert put["applied"] is True


async def test_a_call_without_operations_has_no_results(client):
    for body in (b"[]", b'{"operations":[]}'):
        answer = await client.call("POST", "/api/v1/kv", body)

        assert (answer.status, answer.body) == (200, b'{"results":[]}')


# Keys in the path.


async def ask(client, method, path, body=None):
    answer = await client.call(method, path, b"" if body is None else json.dumps(body).encode())
    return answer, json.loads(answer.body)


async def test_a_key_in_the_path_may_have_slashes_and_its_version_is_the_etag(client, ns):
    path = f"/api/v1/kv/{ns}/a//b%2Fc/"
    _, put = await ask(client, "PUT", path, {"value": 7, "forever": True, "expect": 0})
    answer, got = await ask(client, "GET", path)
    _, deleted = await ask(client, "DELETE", path, {"expect": got["version"]})
    missing, nothing = await ask(client, "GET", path)

    assert (put["applied"], put["key"]) == (True, "a//b/c/")
    assert answer.headers["etag"] == f'"{put["version"]}"'
    assert (got["value"], deleted["applied"], deleted["value"]) == (7, True, 7)
    assert (missing.status, nothing["found"], "etag" in missing.headers) == (200, False, False)


@pytest.mark.parametrize(
    ("method", "path", "body", "reason"),
    [
        ("GET", "n/k?x=1", None, "kv_no_query_string"),
        ("GET", "N/k", None, "kv_bad_namespace"),
        ("GET", "n/%00", None, "kv_bad_key"),
        ("PUT", "n/k", {"value": 1, "forever": True, "key": "k"}, "kv_field_in_path"),
        ("PUT", "n/k", [], "kv_bad_body"),
        ("PUT", "n/k", {"value": 1}, "kv_expiry_not_specified"),
        ("DELETE", "n/k", {"expect": -1}, "kv_bad_expect"),
    ],
)
async def test_a_malformed_path_route_is_refused_with_its_reason(
    client, method, path, body, reason
):
    answer, found = await ask(client, method, f"/api/v1/kv/{path}", body)

    assert (answer.status, found["error"], found["reason"]) == (400, "kv_bad_request", reason)


async def test_operators_list_namespaces_and_keys(client, broker, ns):
    await call(
        client,
        {"op": "put", "ns": ns, "key": "a", "value": 1, **FOREVER},
        {"op": "put", "ns": ns, "key": "b", "value": 2, "ttlSeconds": 60},
    )
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.kv_entry set expires_at = now() - interval '1 s'"
            " where ns = $1 and key = 'b'",
            ns,
        )
    path = "/api/v1/resources/kv"

    _, every = await ask(client, "GET", f"{path}/namespaces")
    _, live = await ask(client, "POST", f"{path}/list", {"namespace": ns})
    _, both = await ask(
        client,
        "POST",
        f"{path}/list",
        {"namespace": ns, "limit": 1, "keysOnly": True, "includeExpired": True},
    )

    assert {"namespace": ns, "keys": 2} in every["namespaces"]
    assert [(row["key"], row["value"], row["expired"]) for row in live["rows"]] == [("a", 1, False)]
    assert (live["truncated"], live["nextAfter"], live["bytes"]) == (False, None, 1)
    assert [row["key"] for row in both["rows"]] == ["a"]
    assert (both["truncated"], both["nextAfter"], both["bytes"]) == (True, "a", 0)
    assert "value" not in both["rows"][0]


@pytest.mark.parametrize("path", ["namespaces?x=1", "list?x=1"])
async def test_the_lists_take_no_query_string(client, path):
    method = "GET" if path.startswith("n") else "POST"
    answer, found = await ask(client, method, f"/api/v1/resources/kv/{path}", {"namespace": "n"})

    assert (answer.status, found["reason"]) == (400, "kv_no_query_string")
