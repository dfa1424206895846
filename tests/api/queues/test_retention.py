"""What is kept, for how long, and who may see what went."""

import asyncio
import json
from datetime import datetime, timedelta
from urllib.parse import quote

import pytest

from tests.support.broker import payloads

AGE_SEGMENTS = """
  update skep.segment s set created_at = s.created_at - interval '1 hour'
  from skep.queue q where q.id = s.queue_id and q.name = $1
"""
AGE_GROUPS = """
  update skep.consumer_group g set first_polled_at = g.first_polled_at - interval '2 hours'
  from skep.queue q where q.id = g.queue_id and q.name = $1
"""


LEAD_ELSEWHERE = """
  insert into skep.leadership (service, holder, expires_at)
  values ('housekeeping', gen_random_uuid(), now() + interval '1 day')
  on conflict (service) do update set holder = excluded.holder, expires_at = excluded.expires_at
"""


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker that deletes nothing by itself: a process that does not exist leads."""

    async def lead_elsewhere():
        async with broker.sql() as sql:
            await sql.execute(LEAD_ELSEWHERE)

    with start_broker("--workers", "1") as broker:
        asyncio.run(lead_elsewhere())
        yield broker


@pytest.fixture
def let_an_hour_pass(broker, queue):
    """Make everything in the queue an hour older."""

    async def age():
        async with broker.sql() as sql:
            await sql.execute(AGE_SEGMENTS, queue)
            await sql.execute(AGE_GROUPS, queue)

    return age


async def read(client, path, status=200, method="GET", body=b""):
    answer = await client.call(method, path, body)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def run(client):
    return await read(client, "/api/v1/retention/run", method="POST")


async def history(client, queue, **parameters):
    query = "".join(f"&{name}={value}" for name, value in parameters.items())
    return await read(client, f"/api/v1/retention/history?queue={queue}{query}")


class TestRun:
    async def test_it_deletes_what_is_too_old_and_says_how_much(
        self, client, queue, let_an_hour_pass
    ):
        await client.configure(queue, retentionEnabled=True, retentionSeconds=60)
        await client.push_payloads(queue, "old", "old, too")
        await let_an_hour_pass()
        await client.push_payloads(queue, "young")

        report = await run(client)

        assert report["retentionMsgs"] == report["totalMsgs"] == 2
        assert report["complete"]
        assert payloads(await client.pop(queue, batch=10)) == ["young"]

    async def test_completed_messages_go_and_others_stay(self, client, queue, let_an_hour_pass):
        await client.configure(queue, retentionEnabled=True, completedRetentionSeconds=60)
        for payload in (1, 2):
            await client.push_payloads(queue, payload)
        await client.pop(queue, batch=1, autoAck=True)
        await let_an_hour_pass()

        assert (await run(client))["completedRetentionMsgs"] == 1
        assert payloads(await client.pop(queue, batch=10)) == [2]

    async def test_a_ttl_is_kept_although_retention_is_not_enabled(
        self, client, queue, let_an_hour_pass
    ):
        await client.configure(queue, ttl=60)
        await client.push_payloads(queue, "old")
        await let_an_hour_pass()

        assert (await run(client))["retentionMsgs"] == 1

    async def test_a_queue_that_asks_for_nothing_keeps_everything(
        self, client, queue, let_an_hour_pass
    ):
        await client.push_payloads(queue, "old")
        await let_an_hour_pass()

        assert (await run(client))["totalMsgs"] == 0
        assert payloads(await client.pop(queue)) == ["old"]

    async def test_defect_43_what_waited_too_long_becomes_a_dead_letter_of_that_group_alone(
        self, broker, client, queue, let_an_hour_pass
    ):
        await client.configure(queue, maxWaitTimeSeconds=60)
        for group in ("slow", "busy"):
            await client.pop(queue, consumerGroup=group, subscriptionMode="all")
        await client.push_payloads(queue, "wanted")
        (leased,) = await client.pop(queue, consumerGroup="busy", leaseSeconds=600)
        await let_an_hour_pass()

        evicted = (await run(client))["evictionMsgs"]

        async with broker.sql() as sql:
            buried = await sql.fetch(
                "select g.name, d.error from skep.dead_letter d "
                "join skep.consumer_group g on g.id = d.group_id "
                "join skep.queue q on q.id = d.queue_id where q.name = $1",
                queue,
            )
        assert [tuple(row) for row in buried] == [("slow", "Waited too long")]
        assert evicted == 1
        metrics = (await client.call("GET", "/metrics/prometheus")).body.decode().splitlines()
        assert f'skep_dead_letters_total{{queue="{queue}"}} 1.0' in metrics
        assert (await client.ack(leased))["success"]
        assert await client.pop(queue, consumerGroup="slow") == []

    async def test_a_second_run_beside_the_first_is_refused(self, broker, client):
        async with broker.sql() as sql:
            await sql.execute(
                "insert into skep.leadership values "
                "('retention by request', gen_random_uuid(), now() + interval '1 hour')"
            )
            try:
                refused = await read(client, "/api/v1/retention/run", 409, "POST")
            finally:
                await sql.execute(
                    "delete from skep.leadership where service = 'retention by request'"
                )

        assert refused["error"] == "another requested retention run is under way; try again later"

    async def test_a_run_leaves_no_lease_behind(self, broker, client):
        await run(client)

        async with broker.sql() as sql:
            services = await sql.fetch("select service from skep.leadership")
        assert "retention by request" not in {row[0] for row in services}


class TestHistory:
    async def test_defect_45_expired_messages_are_on_record(self, client, queue, let_an_hour_pass):
        await client.configure(queue, retentionEnabled=True, retentionSeconds=60)
        await client.push_payloads(queue, 1, 2, 3)
        await let_an_hour_pass()
        report = await run(client)

        page = await history(client, queue)

        (entry,) = page["history"]
        assert entry["runId"] == report["runId"]
        assert (entry["queue"], entry["kind"], entry["messages"]) == (queue, "retention", 3)
        assert entry["startedAt"].endswith("Z")
        assert entry["durationMs"] >= 0
        assert page["nextCursor"] is None

    async def test_a_run_that_deleted_nothing_leaves_no_trace(self, client, queue):
        await client.configure(queue, retentionEnabled=True, retentionSeconds=60)
        await client.push_payloads(queue, "young")
        await run(client)

        assert (await history(client, queue))["history"] == []

    async def test_pages_follow_one_another_and_can_be_narrowed_to_a_kind(
        self, client, queue, let_an_hour_pass
    ):
        await client.configure(queue, retentionEnabled=True, retentionSeconds=60)
        for payload in range(3):
            await client.push_payloads(queue, payload)
            await let_an_hour_pass()
            await run(client)

        first = await history(client, queue, limit=2, kind="retention")
        second = await history(client, queue, limit=2, cursor=first["nextCursor"])

        assert len(first["history"]) == 2
        assert len(second["history"]) == 1
        assert second["nextCursor"] is None
        assert (await history(client, queue, kind="eviction"))["history"] == []

    @pytest.mark.parametrize(
        "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "cursor=0", "kind=arson"]
    )
    async def test_a_bad_parameter_is_a_400(self, client, query):
        await read(client, f"/api/v1/retention/history?{query}", 400)


class TestChart:
    async def test_it_counts_what_went_by_kind(self, client, queue, let_an_hour_pass):
        await client.configure(queue, retentionEnabled=True, retentionSeconds=60)
        await client.push_payloads(queue, 1, 2, 3)
        await let_an_hour_pass()
        await run(client)

        chart = await read(client, f"/api/v1/analytics/retention?queue={queue}")

        counts = {
            "retentionMsgs": 3,
            "completedRetentionMsgs": 0,
            "evictionMsgs": 0,
            "totalMsgs": 3,
            "eventCount": 1,
        }
        (point,) = chart["series"]
        datetime.strptime(point.pop("bucket"), "%Y-%m-%dT%H:%M:%S%z")
        assert point == chart["totals"] == counts
        assert chart["bucketMinutes"] == 1
        begin, end = (datetime.fromisoformat(chart["timeRange"][name]) for name in ("from", "to"))
        assert end - begin == timedelta(hours=1)

    async def test_the_time_that_was_asked_for_is_answered_in_utc(self, client):
        begin = quote("2026-01-01T12:00:00+02:00")

        chart = await read(
            client, f"/api/v1/analytics/retention?from={begin}&to=2026-01-03T12:00:00Z"
        )

        assert chart["timeRange"] == {
            "from": "2026-01-01T10:00:00.000Z",
            "to": "2026-01-03T12:00:00.000Z",
        }
        assert (chart["series"], chart["bucketMinutes"]) == ([], 15)

    @pytest.mark.parametrize(
        "query",
        [
            "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
            "from=yesterday",
            "to=0001-01-01T00:00:00Z",
            "from=0001-01-01T00:00:00%2B02:00",
        ],
    )
    async def test_a_time_that_makes_no_sense_is_a_400(self, client, query):
        await read(client, f"/api/v1/analytics/retention?{query}", 400)


class TestHolds:
    async def test_what_is_held_stays_until_it_is_released(self, client, queue, let_an_hour_pass):
        await client.configure(queue, retentionEnabled=True, retentionSeconds=60)
        await client.push_payloads(queue, "seen")
        path = f"/api/v1/retention/holds/{queue}/spark"
        placed = await read(client, path, method="PUT", body=b'{"keepSeconds": 600}')
        await client.push_payloads(queue, "unseen")
        await let_an_hour_pass()

        assert (await run(client))["retentionMsgs"] == 1
        assert placed["active"]
        assert await read(client, path, method="DELETE") == {"released": True}
        assert (await run(client))["retentionMsgs"] == 1

    async def test_holds_are_listed_with_their_total(self, client, queue):
        await client.configure(queue)
        placed = []
        for name in ("archive", "a b/c"):
            path = f"/api/v1/retention/holds/{queue}/{quote(name, safe='')}"
            placed.append(await read(client, path, method="PUT", body=b'{"position": "5:9:6,7"}'))

        page = await read(client, "/api/v1/retention/holds?limit=1000")

        mine = [hold for hold in page["holds"] if hold["queue"] == queue]
        assert sorted(mine, key=str) == sorted(placed, key=str)
        assert {hold["name"] for hold in mine} == {"archive", "a b/c"}
        assert {hold["position"] for hold in mine} == {"5:9:6,7"}
        assert page["total"] == len(page["holds"])
        beyond = await read(client, "/api/v1/retention/holds?offset=100000")
        assert beyond == {"holds": [], "total": page["total"]}

    async def test_a_queue_or_hold_that_does_not_exist_is_a_404(self, client, queue):
        path = f"/api/v1/retention/holds/{queue}/spark"

        await read(client, path, 404, "PUT", b"{}")
        await client.configure(queue)
        await read(client, path, 404, "DELETE")

    @pytest.mark.parametrize(
        "body",
        [
            b'{"keepSeconds": 0}',
            b'{"keepSeconds": "long"}',
            b'{"position": "here"}',
            b'{"position": "9:5:"}',
            b"[]",
            b"{",
        ],
    )
    async def test_a_hold_that_makes_no_sense_is_a_400(self, client, queue, body):
        await client.configure(queue)

        await read(client, f"/api/v1/retention/holds/{queue}/spark", 400, "PUT", body)

    @pytest.mark.parametrize("query", ["limit=0", "limit=1001", "offset=-1"])
    async def test_a_bad_page_is_a_400(self, client, query):
        await read(client, f"/api/v1/retention/holds?{query}", 400)
