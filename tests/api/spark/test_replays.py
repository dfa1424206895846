"""Replays over HTTP: ordered once, watched until they end, and refused before anything starts.

Spark is not needed here: a stand-in takes the orders. tests/spark/transfer/test_replay_worker.py
has the real worker behind the same routes.
"""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from skep.jobs import Ctx, Fail, JobTypes
from skep.jobs.service.replays import REPLAY_JOB, WORKER_COMMAND, ReplayOrder, ReplayResult
from tests.api.support.job_calls import Asking, replay_of_last_hour, start_worker
from tests.sql.support.waiting import eventually

NEVER_TAKEN = "update skep.open_job set due_at = due_at - interval '1 minute' where job_id = $1"
MISSING = "019ed5ec-5b26-7ebe-8000-000000000000"

stand_in = JobTypes("a worker without Spark")
doors = {}


@stand_in.job(REPLAY_JOB)
async def replay(ctx: Ctx[ReplayOrder, ReplayResult]) -> ReplayResult:
    if ctx.input.where == "nonsense":
        raise Fail("a column or function with name `nonsense` cannot be resolved")
    ctx.report(0.25, "1 of 4 tasks")
    await doors.setdefault(ctx.input.queue, asyncio.Event()).wait()
    return ReplayResult(
        messages=7, duplicates=1, rejected=0, is_repeated=False, committed_at=datetime.now(UTC)
    )


@pytest.fixture
def ask(client):
    return Asking(client)


@pytest.fixture
def order(queue, client, arun):
    """An order that can be met, of the last hour of a queue."""
    arun(client.push_payloads(queue, 1))
    return replay_of_last_hour(queue)


@pytest.fixture
def start(ask):
    async def start(order, status=202, **members):
        return await ask("POST", "/replays", {**order, **members}, status=status)

    return start


async def until(ask, replay_id, is_reached):
    """Return a replay once it has come so far."""

    async def look():
        found = await ask("GET", f"/replays/{replay_id}")
        return found if is_reached(found) else None

    return await eventually(look)


async def test_an_order_becomes_a_chain_and_says_where_to_look(ask, start, order):
    started = await start(
        order, where="length(payload) > 1", partition="Default", onError="dead-letter"
    )

    assert started == {
        "id": started["id"],
        "isDuplicate": False,
        "chain": f"/api/v1/chains/{started['id']}",
        "worker": WORKER_COMMAND,
    }
    chain = await ask("GET", f"/chains/{started['id']}")
    found = await ask("GET", f"/replays/{started['id']}")
    assert chain["type"] == REPLAY_JOB
    assert chain["input"] == found["order"]
    assert found["order"]["onError"] == "dead-letter"
    assert (found["state"], found["hint"], found["result"]) == ("ready", None, None)
    assert found["order"]["to"] == order["to"].replace("+00:00", "Z")


async def test_a_replay_is_watched_until_it_ends(ask, broker, start, order):
    replay_id = (await start(order))["id"]
    async with AsyncExitStack() as stack:
        await start_worker(stack, broker, stand_in, concurrency=100)

        running = await until(ask, replay_id, lambda found: found["progress"] is not None)
        doors[order["queue"]].set()
        ended = await until(ask, replay_id, lambda found: found["state"] == "completed")

    assert (running["state"], running["progress"]) == ("running", 0.25)
    assert running["progressNote"] == "1 of 4 tasks"
    assert (ended["result"]["messages"], ended["result"]["duplicates"]) == (7, 1)
    assert (ended["progress"], ended["error"]) == (None, None)


async def test_a_replay_that_cannot_be_done_says_why_in_one_line(ask, broker, start, order):
    replay_id = (await start(order, where="nonsense"))["id"]
    async with AsyncExitStack() as stack:
        await start_worker(stack, broker, stand_in, concurrency=100)

        failed = await until(ask, replay_id, lambda found: found["state"] == "failed")

    assert failed["error"] == "a column or function with name `nonsense` cannot be resolved"
    assert failed["attempts"] == 1


async def test_a_cancelled_chain_is_a_cancelled_replay(ask, start, order):
    started = await start(order)

    await ask("POST", f"/chains/{started['id']}/cancel", {"reason": "not today"})

    found = await ask("GET", f"/replays/{started['id']}")
    assert (found["state"], found["error"]) == ("cancelled", "not today")


async def test_a_replay_that_nobody_takes_says_what_to_start(ask, broker, start, order):
    replay_id = (await start(order))["id"]
    async with broker.sql() as sql:
        await sql.execute(NEVER_TAKEN, replay_id)

    found = await ask("GET", f"/replays/{replay_id}")

    assert found["state"] == "ready"
    assert found["hint"].startswith("No worker has taken it for 6")
    assert found["hint"].endswith(WORKER_COMMAND)


async def test_the_same_order_is_one_replay_while_it_is_open_however_it_is_spelled(
    ask, start, order
):
    first = await start(order)
    elsewhere = datetime.fromisoformat(order["from"]) + timedelta(hours=5, minutes=30)
    spelled = elsewhere.replace(tzinfo=None).isoformat() + "+05:30"

    again = await start(order, **{"from": spelled})
    other = await start(order, name="once more")

    assert (again["id"], again["isDuplicate"]) == (first["id"], True)
    assert other["id"] != first["id"]
    await ask("POST", f"/chains/{first['id']}/cancel")
    assert not (await start(order))["isDuplicate"]


async def test_a_time_without_a_zone_is_utc(ask, start, order):
    bare = datetime.fromisoformat(order["from"]).replace(tzinfo=None).isoformat()

    started = await start(order, **{"from": bare})

    found = await ask("GET", f"/replays/{started['id']}")
    assert found["order"]["from"] == f"{bare}Z"


async def test_a_key_starts_one_replay_for_good_and_serves_no_other(ask, start, order, queue):
    first = await start(order, key=queue)
    await ask("POST", f"/chains/{first['id']}/cancel")

    again = await start(order, key=queue)
    refused = await start(order, status=409, key=queue, where="true")

    assert (again["id"], again["isDuplicate"]) == (first["id"], True)
    assert refused["code"] == "replay_key_taken"


async def test_of_many_that_order_the_same_at_once_one_starts_it(open_client, order):
    clients = [Asking(await open_client()) for _ in range(8)]

    answers = await asyncio.gather(*(ask("POST", "/replays", order, status=202) for ask in clients))

    assert len({answer["id"] for answer in answers}) == 1
    assert [answer["isDuplicate"] for answer in answers].count(False) == 1


async def test_a_queue_is_replayed_into_itself_if_somebody_says_so(start, order, queue):
    assert not (await start(order, into=queue))["isDuplicate"]


@pytest.mark.parametrize(
    ("members", "status", "words"),
    [
        ({"queue": "nowhere"}, 404, "there is no queue 'nowhere'"),
        ({"partition": "nope"}, 404, "has no partition 'nope'"),
        ({"from": "2026-02-01", "to": "2026-01-01"}, 400, "Invalid RFC3339"),
        ({"to": "2001-01-01T00:00:00Z"}, 400, "from must be before to"),
        ({"from": "1969-12-31T23:00:00Z"}, 400, "before 1970"),
        ({"to": "2999-01-01T00:00:00Z"}, 400, "future of the database"),
        ({"to": "9999-12-31T23:59:59-14:00"}, 400, "the time cannot be stored"),
        ({"into": ""}, 400, "into"),
        ({"into": "x" * 5000}, 400, "into is longer than"),
        ({"partition": "a\0"}, 400, "partition contains a NUL"),
        ({"where": "a\0"}, 400, "where contains a NUL"),
        ({"key": "a\0"}, 400, "key contains a NUL"),
        ({"name": "x" * 101}, 400, "name"),
        ({"onError": "ignore"}, 400, "onError"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_starts(
    ask, start, order, members, status, words
):
    before = [each["id"] for each in (await ask("GET", "/replays"))["items"]]

    refused = await start(order, status=status, **members)

    assert words in refused["error"]
    assert [each["id"] for each in (await ask("GET", "/replays"))["items"]] == before


async def test_sealed_messages_stay_sealed_unless_somebody_says_otherwise(
    broker, start, order, queue
):
    async with broker.sql() as sql:
        await sql.execute("update skep.queue set encryption_enabled = true where name = $1", queue)

    refused = await start(order, status=409)

    assert "in the clear" in refused["error"]
    assert not (await start(order, decrypt=True))["isDuplicate"]
    assert not (await start(order, into=queue))["isDuplicate"]


async def test_replays_are_listed_page_by_page_the_newest_first(ask, start, order):
    ids = [(await start(order, name=f"{number}"))["id"] for number in range(3)]

    first = await ask("GET", "/replays?limit=2")
    second = await ask("GET", f"/replays?limit=2&after={first['after']}")

    assert [each["id"] for each in first["items"]] == [ids[2], ids[1]]
    assert second["items"][0]["id"] == ids[0]
    assert (await ask("GET", "/replays?limit=0", status=400))["code"] == "bad_request"


async def test_a_chain_of_the_type_with_any_other_input_does_not_spoil_the_list(ask):
    chain_id = await ask.start(REPLAY_JOB, {"not": "an order"})

    (found,) = (await ask("GET", "/replays?limit=1"))["items"]

    assert (found["id"], found["order"]) == (chain_id, None)


async def test_what_is_no_replay_is_not_found(ask, queue):
    other = await ask.start(f"job of {queue}")

    assert (await ask("GET", f"/replays/{other}", status=404))["code"] == "not_found"
    assert (await ask("GET", f"/replays/{MISSING}", status=404))["code"] == "not_found"


async def test_the_context_of_a_trace_goes_with_the_order(client, ask, order):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    started = await ask("POST", "/replays", order, status=202, headers=f"traceparent: {parent}\r\n")

    assert parent in (await ask("GET", f"/chains/{started['id']}"))["trace"]


def test_the_shape_of_an_order_is_that_of_the_wire():
    fields = {each.encode_name for each in msgspec.structs.fields(ReplayOrder)}

    assert fields == {
        "queue", "from", "to", "into", "where", "partition", "name", "keepIds", "decrypt", "onError"
    }  # fmt: skip
