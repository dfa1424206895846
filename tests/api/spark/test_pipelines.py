"""The record of pipelines over HTTP, as a runner on Spark writes it."""

import json
from urllib.parse import quote

import pytest

BEGIN = (
    "select run_id from skep.begin_pipeline($1, '{\"name\": \"x\"}', 'h', '/c', 'host:1', 'local', "
    "false)"
)
RECENT = [
    {"sink": "queue", "number": n, "startedAt": "2026-01-31T08:00:00Z", "rows": 10, "durationMs": n}
    for n in (7, 8)
]
EXPECTED = {"sink": "queue", "name": "odd", "otherwise": "drop", "rows": 9, "failed": 2}
REPORT = (
    "select * from skep.report_pipeline($1, $2, '{\"queue\": [1]}', 2, 20, 1.5, 5, 6, $3,"
    f" '{json.dumps(RECENT)}', '{json.dumps([EXPECTED])}')"
)


@pytest.fixture
def name(queue):
    return f"{queue}/counts"


async def begin(broker, name, state="running", error=None):
    async with broker.sql() as connection:
        run_id = await connection.fetchval(BEGIN, name)
        await connection.fetch(REPORT, run_id, state, error)
    return run_id


async def get(client, path, status=200):
    answer = await client.call("GET", f"/api/v1/pipelines{path}")
    assert answer.status == status, answer
    return json.loads(answer.body)


async def test_a_pipeline_is_listed_and_shown_with_what_it_reported(broker, client, name):
    await begin(broker, name)

    page = await get(client, "?limit=1000")
    (listed,) = [each for each in page["pipelines"] if each["name"] == name]
    shown = await get(client, f"/{quote(name, safe='')}")

    assert page["total"] == len(page["pipelines"])
    assert listed["state"] == "running"
    assert listed["isAlive"]
    assert (listed["messages"], listed["lagMessages"], listed["lagSeconds"]) == (20, 5, 6)
    assert listed["reportedAt"].endswith("Z")
    assert listed["endedAt"] is None
    assert {**listed, "reportedAt": shown["reportedAt"]}.items() <= shown.items()
    assert shown["definition"] == {"name": "x"}
    assert shown["position"] == {"queue": [1]}
    assert shown["definitionHash"] == "h"
    assert (listed["lastBatch"], shown["recent"]) == (RECENT[-1], RECENT)
    assert shown["expectations"] == [EXPECTED]


async def test_a_page_beyond_the_end_is_empty_and_still_knows_the_total(broker, client, name):
    await begin(broker, name)

    page = await get(client, "?limit=1&offset=1000000")

    assert page["pipelines"] == []
    assert page["total"] >= 1


async def test_a_stop_reaches_whoever_runs_it(broker, client, name):
    run_id = await begin(broker, name)

    answer = await client.call("POST", f"/api/v1/pipelines/{quote(name, safe='')}/stop")

    assert answer.status == 200
    assert json.loads(answer.body) == {"name": name, "state": "running", "isStopping": True}
    assert (await get(client, f"/{quote(name, safe='')}"))["isStopping"]
    async with broker.sql() as connection:
        assert await connection.fetchval(REPORT, run_id, "stopped", None)


async def test_a_pipeline_that_failed_says_why_and_has_nothing_to_stop(broker, client, name):
    await begin(broker, name, "failed", "the queue is gone")

    shown = await get(client, f"/{quote(name, safe='')}")
    answer = await client.call("POST", f"/api/v1/pipelines/{quote(name, safe='')}/stop")

    assert (shown["state"], shown["lastError"]) == ("failed", "the queue is gone")
    assert not shown["isAlive"]
    assert shown["endedAt"] is not None
    assert not json.loads(answer.body)["isStopping"]


async def test_what_does_not_exist_is_not_found(client):
    assert "no pipeline nothing" in (await get(client, "/nothing", 404))["error"]
    answer = await client.call("POST", "/api/v1/pipelines/nothing/stop")
    assert answer.status == 404


@pytest.mark.parametrize("query", ["limit=-1", "limit=1001", "offset=-1", "limit=x"])
async def test_a_page_that_cannot_be_is_refused(client, query):
    await get(client, f"?{query}", 400)
