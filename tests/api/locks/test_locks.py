"""Locks and semaphores over HTTP: every operation, waiters in order, every refusal."""

import asyncio
import json
import os
from itertools import count

import pytest

from tests.sql.support.waiting import eventually

PATH = "/api/v1/locks"
_names = count()


@pytest.fixture
def name():
    """A lock that no other test uses."""
    return f"lock-{os.getpid()}-{next(_names)}"


async def call(client, *operations):
    answer = await client.post(PATH, {"operations": operations})
    assert answer.status == 200, answer.body
    return json.loads(answer.body)["results"]


async def one(client, op, name, **members):
    [result] = await call(client, {"op": op, "name": name, **members})
    return result


async def acquire(client, name, owner=None, **members):
    owned = {} if owner is None else {"owner": owner}
    return await one(client, "acquire", name, **{"ttlSeconds": 60, **owned, **members})


async def run_out(broker, name):
    """Let the permits of a lock expire."""
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.kv_entry set expires_at = now() - interval '1 s'"
            " where ns = 'queen-locks' and starts_with(key, $1 || '#')",
            name,
        )


async def until_in_line(broker, name, count):
    """Wait until so many stand in the line of a lock."""
    query = """
      select jsonb_array_length(value -> 'tickets') from skep.kv
      where ns = 'skep-lock-lines' and key = $1
    """
    async with broker.sql() as sql:

        async def is_there():
            return (await sql.fetchval(query, name) or 0) == count

        await eventually(is_there)


async def test_a_lock_is_acquired_by_one_renewed_and_released(client, name):
    mine = await acquire(client, name, "me")
    theirs = await acquire(client, name, "you")
    renewed = await one(client, "renew", name, token=mine["token"], ttlSeconds=60)
    stale = await one(client, "release", name, token=mine["token"])
    released = await one(client, "release", name, token=renewed["token"])
    next_ = await acquire(client, name, "you")

    guard = {"op": "check", "ns": "queen-locks", "key": f"{name}#0", "required": True}
    assert mine == {
        "index": 0,
        "op": "acquire",
        "name": name,
        "acquired": True,
        "slot": 0,
        "token": mine["token"],
        "owner": "me",
        "guard": {**guard, "expect": mine["token"]},
    }
    holders = [{"slot": 0, "owner": "me"}]
    assert (theirs["acquired"], theirs["reason"], theirs["holders"]) == (False, "held", holders)
    assert renewed["guard"] == {**guard, "expect": renewed["token"]}
    assert (stale["released"], stale["reason"], stale["holders"]) == (False, "lost", holders)
    assert (released["released"], released["slot"]) == (True, 0)
    assert mine["token"] < renewed["token"] < next_["token"]


async def test_an_owner_that_asks_again_gets_its_permit_again(client, name):
    first = await acquire(client, name, "me")
    again = await acquire(client, name, "me")
    renewed = await one(client, "renew", name, token=first["token"], ttlSeconds=60, owner="me")
    late = await one(client, "renew", name, token=first["token"], ttlSeconds=60, owner="me")
    nameless = await one(client, "renew", name, token=first["token"], ttlSeconds=60)

    assert (again["acquired"], again["already"], again["token"]) == (True, True, first["token"])
    assert late["renewed"] is True
    assert late["token"] > renewed["token"] > first["token"]
    assert (nameless["renewed"], nameless["reason"]) == (False, "lost")


async def test_who_holds_a_lock_is_shown_with_times_that_renewals_keep(client, name):
    free = await one(client, "get", name)
    mine = await acquire(client, name, "me")
    [before] = (await one(client, "get", name))["holders"]
    await one(client, "renew", name, token=mine["token"], ttlSeconds=60)
    held = await one(client, "get", name)

    [after] = held["holders"]
    assert (free["held"], free["holders"], held["held"]) == (False, [], True)
    assert (before["slot"], before["owner"], before["token"]) == (0, "me", mine["token"])
    assert after["since"] == before["since"] == before["renewedAt"]
    assert after["renewedAt"] > after["since"]
    assert after["expiresAt"] > after["renewedAt"]


async def test_a_permit_that_expired_is_given_to_the_next(client, broker, name):
    first = await acquire(client, name, "me")
    await run_out(broker, name)

    second = await acquire(client, name, "you")
    renewed = await one(client, "renew", name, token=first["token"], ttlSeconds=60, owner="me")
    released = await one(client, "release", name, token=first["token"])

    assert second["token"] > first["token"]
    assert (renewed["renewed"], renewed["holders"]) == (False, [{"slot": 0, "owner": "you"}])
    assert released["released"] is False


async def test_a_semaphore_has_as_many_permits_as_its_limit(open_client, name):
    clients = [await open_client() for _ in range(5)]

    results = await asyncio.gather(
        *(acquire(each, name, f"w{at}", limit=3, waitMs=0) for at, each in enumerate(clients))
    )

    taken = [each for each in results if each["acquired"]]
    assert sorted(each["slot"] for each in taken) == [0, 1, 2]
    assert {each["reason"] for each in results if not each["acquired"]} <= {"held", "contended"}
    assert len({each["token"] for each in taken}) == 3


async def test_the_largest_semaphore_gives_a_permit(client, name):
    result = await acquire(client, name, limit=1024)

    assert result["acquired"] is True
    assert result["slot"] in range(1024)


async def test_a_key_of_another_value_holds_its_slot(client, name):
    put = {"op": "put", "ns": "queen-locks", "key": f"{name}#0", "value": 7, "forever": True}
    await client.post("/api/v1/kv", [put])

    refused = await acquire(client, name)

    assert (refused["acquired"], refused["holders"]) == (False, [{"slot": 0, "owner": None}])


async def test_operations_of_a_call_are_independent(client, name):
    other = f"{name}-other"
    await acquire(client, name)

    held, taken, lost = await call(
        client,
        {"op": "acquire", "name": name, "ttlSeconds": 60},
        {"op": "acquire", "name": other, "ttlSeconds": 60},
        {"op": "release", "name": f"{name}-none", "token": 7},
    )

    assert [each["index"] for each in (held, taken, lost)] == [0, 1, 2]
    assert (held["acquired"], taken["acquired"], lost["released"]) == (False, True, False)
    assert lost["holders"] == []


# Waiters.


async def test_waiters_get_a_lock_in_the_order_in_which_they_came(open_client, broker, name):
    first, *waiting = [await open_client() for _ in range(5)]
    token = (await acquire(first, name, "first"))["token"]
    tasks, order = [], []

    async def wait(client, at):
        result = await acquire(client, name, f"w{at}", waitMs=60_000)
        order.append(at)
        await one(client, "release", name, token=result["token"])
        return result["token"]

    for at, client in enumerate(waiting):
        tasks.append(asyncio.create_task(wait(client, at)))
        await until_in_line(broker, name, at + 1)
    overtaking = await acquire(first, f"{name}", "other")
    await one(first, "release", name, token=token)
    tokens = await asyncio.gather(*tasks)

    assert overtaking["acquired"] is False
    assert order == [0, 1, 2, 3]
    assert [token, *tokens] == sorted([token, *tokens])
    await until_gone(broker, name)


async def until_gone(broker, name):
    query = "select count(*) = 0 from skep.kv_entry where ns = 'skep-lock-lines' and key = $1"
    async with broker.sql() as sql:
        await eventually(lambda: sql.fetchval(query, name))


async def test_a_waiter_follows_a_holder_that_died(open_client, broker, name):
    holder, waiter = [await open_client() for _ in range(2)]
    await acquire(holder, name, "dead", ttlSeconds=1)

    result = await acquire(waiter, name, "next", waitMs=60_000)

    assert result["acquired"] is True


async def test_who_waits_in_vain_is_told_who_holds_the_lock_and_leaves_the_line(
    client, broker, name
):
    await acquire(client, name, "me")

    refused = await acquire(client, name, "you", waitMs=50)

    assert (refused["reason"], refused["holders"]) == ("held", [{"slot": 0, "owner": "me"}])
    await until_gone(broker, name)


async def test_a_waiter_that_hangs_up_makes_room_for_the_next(open_client, broker, name):
    holder, waiter = [await open_client() for _ in range(2)]
    token = (await acquire(holder, name, "holder"))["token"]
    async with broker.connect() as gone:
        operation = {"op": "acquire", "name": name, "ttlSeconds": 60, "waitMs": 60_000}
        gone.request("POST", PATH, json.dumps([operation]).encode())
        await until_in_line(broker, name, 1)
        waiting = asyncio.create_task(acquire(waiter, name, "next", waitMs=60_000))
        await until_in_line(broker, name, 2)

    await until_in_line(broker, name, 1)
    await one(holder, "release", name, token=token)

    assert (await waiting)["acquired"] is True


async def test_the_tickets_of_a_process_that_died_are_passed_over(open_client, broker, name):
    holder, waiter = [await open_client() for _ in range(2)]
    token = (await acquire(holder, name, "holder"))["token"]
    line = {"tickets": [["ghost", "dead process"]], "beats": {"dead process": 7}}
    put = {"op": "put", "ns": "skep-lock-lines", "key": name, "value": line, "ttlSeconds": 60}
    await holder.post("/api/v1/kv", [put])

    waiting = asyncio.create_task(acquire(waiter, name, "next", waitMs=60_000))
    await until_in_line(broker, name, 2)
    await one(holder, "release", name, token=token)

    assert (await waiting)["acquired"] is True


async def test_a_guard_commits_only_for_the_holder(client, broker, name):
    mine = await acquire(client, name, "me")
    write = {"op": "put", "ns": "work", "key": name, "value": 1, "forever": True}

    async def guarded():
        return json.loads((await client.post("/api/v1/kv", [mine["guard"], write])).body)

    held = await guarded()
    await run_out(broker, name)
    theirs = await acquire(client, name, "you")
    lost = await guarded()

    assert [each["applied"] for each in held["results"]] == [True, True]
    assert (lost["ok"], lost["kvReason"], lost["version"]) == (False, "version", theirs["token"])
    assert lost["value"] == {"owner": "you"}


# What is refused, with its code.

A = {"op": "acquire", "name": "n", "ttlSeconds": 1}
R = {"op": "release", "name": "n", "token": 1}


def without(operation, name):
    return [{key: value for key, value in operation.items() if key != name}]


BAD = {
    "locks_bad_body": [b"{", b"{}", b'{"operations": 1}', b"[1]", b'[{"op": "\xff"}]'],
    "locks_unknown_op": [[{**A, "op": "steal"}], without(A, "op"), [{**A, "op": 1}]],
    "locks_bad_name": [
        [{**A, "name": name}] for name in ("", "a#0", "a\n", "n" * 257, 7, None, "\x85")
    ],
    "locks_ttl_required": [without(A, "ttlSeconds"), [{**R, "op": "renew"}]],
    "locks_bad_ttl": [[{**A, "ttlSeconds": ttl}] for ttl in (0, -1, 1.5, "1", None, 2**40)],
    "locks_bad_owner": [[{**A, "owner": owner}] for owner in ("", "a\0", "o" * 257, 7)],
    "locks_token_required": [without(R, "token"), [{**A, "op": "renew"}]],
    "locks_bad_token": [[{**R, "token": token}] for token in (0, -1, "1", None, 2**63)],
    "locks_bad_slot": [[{**R, "slot": slot}] for slot in (-1, 1024, "0", None)],
    "locks_bad_limit": [[{**A, "limit": limit}] for limit in (0, 1025, "1", None)],
    "locks_bad_wait": [[{**A, "waitMs": wait}] for wait in (-1, 300_001, "1")],
    "locks_too_many_ops": [[{**A, "name": f"n{at}"} for at in range(65)]],
    "locks_too_many_keys": [
        [{"op": "get", "name": f"n{at}"} for at in range(5)],
        [{**A, "name": f"n{at}", "limit": 1024} for at in range(5)],
    ],
    "locks_duplicate_in_call": [[A, R]],
    "locks_tenant_not_an_input": [[{**A, name: 1}] for name in ("tenant", "tenantId", "_tenant")],
}


@pytest.mark.parametrize("reason", BAD)
async def test_a_malformed_call_is_refused_with_its_reason(client, reason):
    for body in BAD[reason]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()

        answer = await client.call("POST", PATH, raw)

        found = json.loads(answer.body)
        code = "locks_bad_request"
        assert answer.status == 400, (raw[:200], found)
        assert (found["error"], found["code"], found["reason"]) == (code, code, reason), raw[:200]
        assert found["detail"]


async def test_a_call_without_operations_has_no_results(client):
    for body in (b"[]", b'{"operations":[]}'):
        answer = await client.call("POST", PATH, body)

        assert (answer.status, answer.body) == (200, b'{"results":[]}')
