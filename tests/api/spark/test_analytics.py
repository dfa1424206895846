import pytest

from tests.api.support.asking import ask, ask_until

ANALYTICS = "/api/v1/analytics"
EMPTY_TIME = "from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z"


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker that reports often."""
    with start_broker("--workers", "1", metrics_interval_s=0.1) as broker:
        yield broker


async def use(client, queue):
    await client.push_payloads(queue, 1, 2, 3)
    first, _ = await client.pop(queue, batch=2, consumerGroup="g")
    await client.ack(first)


async def operations_of(client, queue):
    path = f"{ANALYTICS}/queue-ops?queue={queue}"

    def is_there(chart):
        return sum(point["ackSuccess"] for point in chart["series"]) == 1

    return await ask_until(client, path, is_there)


async def test_everything_that_happens_in_a_queue_is_charted(client, queue):
    await use(client, queue)

    chart = await operations_of(client, queue)

    assert chart["queues"] == [queue]
    assert chart["bucketMinutes"] == 1
    series = chart["series"]
    assert {point["queueName"] for point in series} == {queue}
    expected = {
        "pushRequests": 1,
        "pushMessages": 3,
        "popMessages": 2,
        "ackRequests": 1,
        "partitionsCreated": 1,
    }
    assert {name: sum(point[name] for point in series) for name in expected} == expected
    assert {point["partitionCount"] for point in series} == {1}
    assert any(point["maxLagMs"] >= 0 and point["p95LagMs"] is not None for point in series)


async def test_a_chart_of_operations_has_every_member_of_the_wire(client, queue):
    await use(client, queue)

    point = (await operations_of(client, queue))["series"][0]

    assert point.keys() >= {
        "bucket",
        "queueName",
        "pushRequests",
        "pushMessages",
        "popMessages",
        "popEmpty",
        "ackRequests",
        "ackSuccess",
        "ackFailed",
        "transactions",
        "partitionsCreated",
        "partitionsDeleted",
        "partitionCount",
        "avgLagMs",
        "maxLagMs",
        "pushPerSecond",
        "popPerSecond",
        "ackPerSecond",
        "emptyPerSecond",
        "parkedCount",
    }


async def test_the_busiest_queues_are_charted_when_none_is_named(client, queue):
    await use(client, queue)
    await operations_of(client, queue)

    chart = await ask(client, f"{ANALYTICS}/queue-ops")

    assert queue in chart["queues"]
    assert len(chart["queues"]) <= 20


async def test_the_lag_of_a_queue_is_charted(client, queue):
    await use(client, queue)
    await operations_of(client, queue)

    points = await ask(client, f"{ANALYTICS}/queue-lag?queue={queue}")

    assert sum(point["popCount"] for point in points) == 2
    assert points[0].keys() == {"queueName", "popCount", "avgLagMs", "maxLagMs", "bucketTime"}
    assert all(0 <= point["avgLagMs"] <= point["maxLagMs"] + 1 for point in points)


async def test_polls_that_wait_are_charted_by_worker(client, open_client, queue):
    waiting = await open_client()
    waiting.send_poll(queue, wait=True, timeout=20_000)
    path = f"{ANALYTICS}/queue-parked-replicas?queue={queue}"

    chart = await ask_until(client, path, lambda chart: chart["series"])

    point = chart["series"][0]
    assert point.keys() == {"bucket", "queueName", "hostname", "workerId", "parkedCount"}
    assert [point["queueName"], point["workerId"], point["parkedCount"]] == [queue, 0, 1]
    assert chart["replicas"] == [{"hostname": point["hostname"], "workerId": 0}]


async def test_what_workers_did_is_charted(client, queue):
    await use(client, queue)
    await operations_of(client, queue)

    chart = await ask(client, f"{ANALYTICS}/worker-metrics")

    assert chart["pointCount"] == len(chart["timeSeries"]) >= 1
    assert chart["summary"]["totalPushMessages"] >= 3
    assert chart["summary"]["pendingMessages"] >= 1
    assert chart["timeSeries"][0].keys() == {
        "timestamp",
        "pushMessages",
        "popMessages",
        "ackMessages",
        "pushRequests",
        "popRequests",
        "ackRequests",
        "jobsDone",
        "pushPerSecond",
        "popPerSecond",
        "ackPerSecond",
        "avgEventLoopLagMs",
        "maxEventLoopLagMs",
        "avgFreeSlots",
        "minFreeSlots",
        "dbConnections",
        "avgJobQueueSize",
        "maxJobQueueSize",
        "backoffSize",
        "avgLagMs",
        "maxLagMs",
        "lagCount",
        "dbErrors",
        "ackSuccess",
        "ackFailed",
        "dlqCount",
    }
    [worker] = chart["workers"]
    assert worker.keys() == {
        "hostname",
        "workerId",
        "avgEventLoopLagMs",
        "maxEventLoopLagMs",
        "freeSlots",
        "dbConnections",
        "jobQueueSize",
        "backoffSize",
        "messagesProcessed",
        "lastSeen",
    }
    assert queue in [each["queueName"] for each in chart["queues"]]


async def test_what_each_worker_used_is_charted(client, broker):
    path = f"{ANALYTICS}/system-metrics"

    chart = await ask_until(client, path, lambda chart: chart["replicas"])

    [replica] = chart["replicas"]
    assert [replica["port"], replica["workerId"], chart["replicaCount"]] == [broker.port, 0, 1]
    point = replica["timeSeries"][0]
    assert point["sampleCount"] >= 1
    metrics = point["metrics"]
    assert metrics.keys() >= {
        "cpu",
        "memory",
        "database",
        "threadpool",
        "registries",
        "shared_state",
    }
    assert metrics["memory"]["rss_bytes"].keys() == {"avg", "min", "max", "last"}
    assert metrics["memory"]["rss_bytes"]["min"] > 2**20
    assert metrics["database"]["pool_size"]["max"] == 4


async def test_workers_can_be_chosen(client):
    for path in ("worker-metrics", "system-metrics"):
        everything = await ask_until(
            client, f"{ANALYTICS}/{path}?workerId=0", lambda chart: chart["pointCount"]
        )
        other = await ask(client, f"{ANALYTICS}/{path}?hostname=nobody")
        assert everything["pointCount"] > other["pointCount"] == 0


async def test_how_far_groups_are_behind_is_charted(client, queue):
    await use(client, queue)

    # The leader looks within seconds of its start, and once a minute from then on.
    chart = await ask(client, f"{ANALYTICS}/group-lag?queue={queue}&consumerGroup=g")

    assert chart.keys() == {"timeRange", "bucketMinutes", "series"}


async def test_postgres_is_described_in_the_words_of_the_wire(client):
    stats = await ask(client, f"{ANALYTICS}/postgres-stats")

    assert stats.keys() >= {
        "timestamp",
        "database",
        "databaseCache",
        "tableCache",
        "indexCache",
        "cacheSummary",
        "deadTuples",
        "hotUpdates",
        "activeQueries",
        "autovacuumStatus",
        "bufferConfig",
        "bufferUsage",
        "tableSizes",
        "locks",
        "longTransactions",
    }
    assert stats["databaseCache"].keys() == {
        "database",
        "diskReads",
        "cacheHits",
        "cacheHitRatio",
    }
    assert stats["bufferConfig"]["sharedBuffers"] > 0
    assert len(stats["tableSizes"]) <= 50


async def test_readers_are_listed_with_what_they_have_not_read(client, broker, queue):
    await client.push_payloads(queue, 1)
    async with broker.sql() as sql:
        name = f"reader-{queue}"
        await sql.fetchval("select skep.register_reader($1, '{}', '{}')", name)
        await sql.fetchrow("select * from skep.place_hold($1, $2, null, 60)", queue, name)
    await client.push_payloads(queue, 2, 3)

    page = await ask(client, f"/api/v1/readers?name=reader-{queue}")

    [reader] = page["readers"]
    assert [reader["queue"], reader["messages"], reader["active"]] == [queue, 2, True]
    assert reader["timeLagSeconds"] >= 0
    assert await ask(client, "/api/v1/readers?name=nobody") == {"readers": []}


@pytest.mark.parametrize(
    "path",
    ["queue-ops", "queue-lag", "queue-parked-replicas", "worker-metrics", "system-metrics"],
)
async def test_a_time_without_anything_in_it_has_no_points(client, path):
    chart = await ask(client, f"{ANALYTICS}/{path}?{EMPTY_TIME}")

    lists = [chart] if isinstance(chart, list) else [
        value for value in chart.values() if isinstance(value, list)
    ]  # fmt: skip
    assert lists
    assert not any(lists)


@pytest.mark.parametrize(
    "path",
    [
        f"{ANALYTICS}/queue-ops?from=x",
        f"{ANALYTICS}/queue-lag?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
        f"{ANALYTICS}/queue-parked-replicas?queue=%00",
        f"{ANALYTICS}/worker-metrics?workerId=-1",
        f"{ANALYTICS}/system-metrics?workerId=x",
        f"{ANALYTICS}/group-lag?consumerGroup=%00",
        "/api/v1/readers?limit=1001",
        "/api/v1/readers?name=%00",
    ],
)
async def test_what_makes_no_sense_is_refused(client, path):
    assert "error" in await ask(client, path, status=400)
