from datetime import UTC, datetime, timedelta

import pytest

from tests.api.support.asking import ask, ask_until

STATUS = "/api/v1/status"


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker that reports often."""
    with start_broker("--workers", "1", metrics_interval_s=0.1) as broker:
        yield broker


async def use(client, queue):
    """Push three messages, take two, complete one and let one die."""
    await client.configure(queue, {"namespace": f"ns-{queue}", "task": f"task-{queue}"})
    await client.push_payloads(queue, 1, 2, 3)
    first, second = await client.pop(queue, batch=2)
    await client.ack(first)
    await client.ack(second, "dlq", error="stung")


def point_of(status):
    return {name: sum(point[name] or 0 for point in status["throughput"]) for name in
            ("ingested", "processed", "popMessages", "dlqCount", "ackFailed")}  # fmt: skip


async def status_of(client, queue):
    return await ask_until(
        client, f"{STATUS}?queue={queue}", lambda status: point_of(status)["dlqCount"] == 1
    )


async def test_a_queue_is_summed_up(client, queue):
    await use(client, queue)

    status = await status_of(client, queue)

    assert point_of(status) == {
        "ingested": 3,
        "processed": 1,
        "popMessages": 2,
        "dlqCount": 1,
        "ackFailed": 1,
    }
    messages = status["messages"]
    assert [messages[name] for name in ("total", "pending", "completed", "deadLetter")] == [
        3,
        1,
        2,
        1,
    ]
    assert messages["requests"] == {"push": 1, "pop": 1, "ack": 2}
    assert messages["batchEfficiency"] == {"push": 3.0, "pop": 2.0, "ack": 1.0}
    assert [each["name"] for each in status["queues"]] == [queue]
    assert status["errors"] == {"dbErrors": 0, "ackFailed": 1, "dlqMessages": 1}


async def test_the_answer_has_every_member_of_the_wire(client, queue):
    await use(client, queue)

    status = await status_of(client, queue)

    assert status.keys() >= {
        "timeRange",
        "bucketMinutes",
        "pointCount",
        "throughput",
        "queues",
        "messages",
        "leases",
        "deadLetterQueue",
        "workers",
        "errors",
        "statsAge",
    }
    assert status["throughput"][0].keys() == {
        "timestamp",
        "ingested",
        "processed",
        "popMessages",
        "ingestedPerSecond",
        "processedPerSecond",
        "popPerSecond",
        "avgLagMs",
        "p50LagMs",
        "p95LagMs",
        "p99LagMs",
        "maxLagMs",
        "avgEventLoopLagMs",
        "maxEventLoopLagMs",
        "minFreeSlots",
        "dbErrors",
        "ackFailed",
        "dlqCount",
        "queenCpuUserPct",
        "queenCpuSysPct",
        "queenRssMb",
        "dbPoolActive",
        "dbPoolIdle",
        "dbPoolSize",
    }
    [worker] = status["workers"]
    assert worker.keys() == {
        "hostname",
        "workerId",
        "avgEventLoopLagMs",
        "maxEventLoopLagMs",
        "freeSlots",
        "dbConnections",
        "jobQueueSize",
        "messagesProcessed",
    }
    assert status["timeRange"]["to"].endswith("Z")
    assert 0 <= status["statsAge"] < 60


async def test_namespaces_and_tasks_can_be_chosen(client, queue):
    await use(client, queue)
    await status_of(client, queue)

    for choice in (f"namespace=ns-{queue}", f"task=task-{queue}"):
        status = await ask(client, f"{STATUS}?{choice}")
        assert point_of(status)["ingested"] == 3
        assert status["messages"]["total"] == 3
    assert point_of(await ask(client, f"{STATUS}?namespace=other-{queue}"))["ingested"] == 0


async def test_without_a_choice_everything_counts(client, queue):
    before = point_of(await ask(client, STATUS))["ingested"]
    await use(client, queue)

    await ask_until(client, STATUS, lambda status: point_of(status)["ingested"] >= before + 3)


async def test_beside_the_leases_stands_how_much_was_acknowledged(client, queue):
    await use(client, queue)

    status = await ask_until(
        client, f"{STATUS}?queue={queue}", lambda status: status["leases"]["totalAcked"]
    )

    assert status["leases"]["totalAcked"] == 1


async def test_leases_and_letters_are_those_of_now(client, queue):
    await use(client, queue)
    await client.pop(queue)

    status = await ask(client, STATUS)

    assert status["leases"]["active"] >= 1
    assert status["leases"]["totalBatchSize"] >= 1
    letters = status["deadLetterQueue"]
    assert letters["totalMessages"] >= letters["affectedPartitions"] >= 1
    assert {"error": "stung", "count": letters["topErrors"][0]["count"]} in letters["topErrors"]


@pytest.mark.parametrize(
    "query",
    [
        "from=yesterday",
        "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
        "from=2020-01-01T00:00:00Z",
        "queue=%00",
    ],
)
async def test_a_time_or_name_that_makes_no_sense_is_refused(client, query):
    for path in (STATUS, f"{STATUS}/analytics"):
        assert "error" in await ask(client, f"{path}?{query}", status=400)


async def test_a_time_without_anything_in_it_is_empty(client):
    status = await ask(client, f"{STATUS}?from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z")

    assert [status["throughput"], status["workers"], status["statsAge"]] == [[], [], None]
    assert status["bucketMinutes"] == 60


async def test_a_moment_without_a_zone_is_utc(client):
    status = await ask(client, f"{STATUS}?from=2026-01-01T00:00:00&to=2026-01-01T01:00:00")

    assert status["timeRange"] == {
        "from": "2026-01-01T00:00:00.000Z",
        "to": "2026-01-01T01:00:00.000Z",
    }


@pytest.mark.parametrize("interval", ["minute", "hour", "day"])
async def test_pushed_messages_are_charted_by_interval(client, queue, interval):
    await use(client, queue)
    path = f"{STATUS}/analytics?queue={queue}&interval={interval}"

    chart = await ask_until(client, path, lambda chart: chart["dataPoints"])

    assert sum(point["messages"] for point in chart["dataPoints"]) == 3
    assert chart.keys() == {"dataPoints", "interval", "from", "to"}
    since, until = (datetime.fromisoformat(chart[name]) for name in ("from", "to"))
    assert until - since == timedelta(days=1)
    assert abs(until - datetime.now(UTC)) < timedelta(minutes=1)


async def test_an_unknown_interval_is_refused(client):
    assert "error" in await ask(client, f"{STATUS}/analytics?interval=year", status=400)


@pytest.mark.parametrize("chosen", ["", "?queue={}", "?namespace=ns-{}"])
async def test_percentiles_of_lag_are_filled_and_never_above_the_maximum(client, queue, chosen):
    await use(client, queue)

    status = await ask_until(
        client, STATUS + chosen.format(queue), lambda found: point_of(found)["popMessages"] >= 2
    )

    delivered = [point for point in status["throughput"] if point["popMessages"]]
    for point in delivered:
        assert 0 <= point["p50LagMs"] <= point["p95LagMs"] <= point["p99LagMs"] <= point["maxLagMs"]
    assert delivered


async def test_the_start_of_the_broker_is_marked(client):
    found = await ask_until(client, "/api/v1/analytics/markers", lambda found: found["markers"])

    [marker] = found["markers"]
    assert (marker["kind"], marker["text"].split()[0]) == ("deploy", "Version")
