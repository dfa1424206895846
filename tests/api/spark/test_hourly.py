"""What analytics found out, over HTTP. Queues are named after the test, so rows do not mix."""

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

HOUR = timedelta(hours=1)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
DAY = "from=2026-05-04T00:00:00Z&to=2026-05-05T00:00:00Z"
LAGS = [0] * 16


@pytest.fixture
def hours(broker, queue, arun):
    """Two hours of a queue, as a run has left them."""
    arun(store_hours(broker, queue))


async def store_hours(broker, queue):
    lags = [*LAGS]
    lags[3] = 4
    async with broker.sql() as sql:
        for hour, messages in ((NOON, 10), (NOON + HOUR, 4)):
            await sql.execute(
                "insert into skep.analytics_volume values ($1, $2, $3, 100, 4, 5)",
                hour,
                queue,
                messages,
            )
            for key in ("a", "b"):
                insert = "insert into skep.analytics_key values ($1, $2, 'partition', $3, 5, 50)"
                await sql.execute(insert, hour, queue, key)
        insert = "insert into skep.analytics_delivery values ($1, $2, 9, 4, 1, 3, 1, 28, 9, $3)"
        await sql.execute(insert, NOON, queue, lags)
        insert = "insert into skep.analytics_letter values ($1, $2, 'bees', 'late', 2, 5, 6, 7)"
        await sql.execute(insert, NOON, queue)
        insert = "insert into skep.analytics_lag values ($1, $2, 'bees', 60, 1.5, 3, 2.5, 9)"
        await sql.execute(insert, NOON, queue)


async def get(client, path, status=200):
    answer = await client.call("GET", f"/api/v1/analytics/lake/{path}")
    assert answer.status == status, answer
    return json.loads(answer.body)


async def rows(client, what, queue, more=""):
    return await get(client, f"{what}?{DAY}&queue={quote(queue, safe='')}{more}")


async def test_an_hour_of_a_queue_is_shown_with_what_the_log_and_the_brokers_know(
    client, queue, hours
):
    first, second = (await rows(client, "queues", queue))["rows"]

    assert first == {
        "hour": "2026-05-04T12:00:00.000Z",
        "queue": queue,
        "messages": 10,
        "bytes": 100,
        "partitions": 4,
        "busiestPartitionMessages": 5,
        "skew": 2.0,
        "pushed": 9,
        "delivered": 4,
        "redelivered": 1,
        "completed": 3,
        "failed": 1,
        "avgLagMs": 7.0,
        "p50LagMs": 7.0,
        "p95LagMs": 8.8,
        "p99LagMs": 8.96,
        "maxLagMs": 9,
    }
    assert second["messages"] == 4
    assert second["delivered"] is second["p50LagMs"] is second["maxLagMs"] is None


async def test_keys_causes_and_groups_are_shown(client, queue, hours):
    keys = (await rows(client, "keys", queue))["rows"]
    (cause,) = (await rows(client, "causes", queue))["rows"]
    (group,) = (await rows(client, "groups", queue))["rows"]

    hour = {"hour": "2026-05-04T12:00:00.000Z", "queue": queue}
    assert keys[0] == {**hour, "kind": "partition", "key": "a", "messages": 5, "bytes": 50}
    assert cause == {
        **hour,
        "consumerGroup": "bees",
        "cause": "late",
        "letters": 2,
        "p50AgeMs": 5,
        "p95AgeMs": 6,
        "maxAgeMs": 7,
    }
    assert group == {
        **hour,
        "consumerGroup": "bees",
        "samples": 60,
        "avgBacklog": 1.5,
        "maxBacklog": 3,
        "avgLagSeconds": 2.5,
        "maxLagSeconds": 9,
    }


@pytest.mark.parametrize(("what", "count"), [("queues", 2), ("keys", 4), ("causes", 1)])
async def test_pages_follow_each_other_and_end(client, queue, hours, what, count):
    whole = (await rows(client, what, queue))["rows"]
    found, cursor = [], ""
    for _ in range(count + 1):
        page = await rows(client, what, queue, "&limit=1" + (cursor and f"&cursor={cursor}"))
        found += page["rows"]
        cursor = page["nextCursor"]
        if cursor is None:
            break

    assert cursor is None
    assert found == whole
    assert len(whole) == count


async def test_by_default_the_last_day_is_shown(client, queue, hours):
    page = await get(client, f"queues?queue={quote(queue, safe='')}")

    assert page == {"rows": [], "nextCursor": None}


@pytest.mark.parametrize(
    "query",
    [
        "queues?cursor=nonsense!",
        "queues?cursor=WyJub3QiLCJhIl0=",
        "keys?cursor=WyIyMDI2LTAxLTAxVDAwOjAwOjAwKzAwOjAwIiwiYSJd",
        "groups?limit=-1",
        "groups?limit=1001",
        "causes?from=2026-05-05T00:00:00Z&to=2026-05-04T00:00:00Z",
        "causes?from=soon",
    ],
)
async def test_a_bad_question_is_refused(client, query):
    await get(client, query, status=400)


async def test_it_is_shown_how_far_analytics_have_come(broker, client):
    assert await get(client, "status") == {"watermark": None, "finishedAt": None, "messages": None}
    async with broker.sql() as sql:
        await sql.execute(
            "select skep.finish_analytics($1, $2, 7, $2, '{}', 36500)", NOON, NOON + HOUR
        )
    try:
        status = await get(client, "status")
    finally:
        async with broker.sql() as sql:
            await sql.execute("delete from skep.analytics_run")

    assert (status["watermark"], status["messages"]) == ("2026-05-04T13:00:00.000Z", 7)
    assert status["finishedAt"].endswith("Z")
