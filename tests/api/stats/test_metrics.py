import json
import re

import pytest

from skep.telemetry.families import FAMILIES
from tests.api.support.asking import ask, ask_until
from tests.sql.support.waiting import eventually

PROMETHEUS = "/metrics/prometheus"
LINE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")


@pytest.fixture(scope="module")
def broker(start_broker):
    """Two workers, of which either may be asked."""
    settings = {"metrics_interval_s": 0.1, "metrics_queues_max": 20}
    with start_broker("--workers", "2", **settings) as broker:
        yield broker


async def scrape(client):
    """Return the values of all series, by name and labels as they are spelled."""
    answer = await client.call("GET", PROMETHEUS)
    assert answer.status == 200
    lines = (line for line in answer.body.decode().splitlines() if not line.startswith("#"))
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


async def scrape_until(client, is_there):
    async def look():
        found = await scrape(client)
        return found if is_there(found) else None

    return await eventually(look)


async def scrape_counts(client, expected):
    """Scrape until the counts are there: a connection may have moved to the other worker."""
    return await scrape_until(client, lambda found: found.items() >= expected.items())


async def test_the_text_is_what_prometheus_reads(client):
    answer = await client.call("GET", PROMETHEUS)

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    for line in answer.body.decode().splitlines():
        assert line.startswith("# ") or LINE.fullmatch(line), line


async def test_what_happens_to_messages_is_counted_by_queue(client, queue):
    await client.push_payloads(queue, 1, 2, 3)
    await client.push({"queue": queue, "payload": 4, "transactionId": "twice"})
    await client.push({"queue": queue, "payload": 4, "transactionId": "twice"})
    first, *_ = await client.pop(queue, batch=2, consumerGroup="g")
    await client.ack(first)
    await client.pop(queue, partition="empty", consumerGroup="g")

    label = f'{{queue="{queue}"}}'
    found = await scrape_counts(
        client,
        {
            f"skep_push_requests_total{label}": 3,
            f"skep_pushed_messages_total{label}": 4,
            f"skep_push_duplicates_total{label}": 1,
            f"skep_popped_messages_total{label}": 2,
            f"skep_acked_messages_total{label}": 1,
            f"skep_empty_pops_total{label}": 1,
            f"skep_partitions_created_total{label}": 2,
        },
    )

    assert found[f"skep_pushed_bytes_total{label}"] > 4 * len('{"transactionId":""}')


async def test_what_fails_dies_and_comes_again_is_counted(client, queue):
    await client.configure(queue, retryLimit=1)
    await client.push_payloads(queue, 1)
    for _ in range(2):
        [message] = await client.pop(queue, wait=True, timeout=10_000)
        await client.ack(message, "failed")

    label = f'{{queue="{queue}"}}'
    assert await scrape_counts(
        client,
        {
            f"skep_failed_messages_total{label}": 2,
            f"skep_redelivered_messages_total{label}": 1,
            f"skep_dead_letters_total{label}": 1,
        },
    )


async def test_what_dies_without_an_answer_is_counted(broker, client, queue):
    await client.configure(queue, maxDeliveries=1)
    for partition in ("asked for", "found"):
        await client.push_payloads(queue, "deadly", "harmless", partition=partition)
    for place in ({"partition": "asked for"}, {}):
        await client.pop(queue, **place)
        await broker.end_leases(queue)
        # The consumer died of it. Another one is told nothing of that, only the next message.
        [message] = await client.pop(queue, **place)
        assert message["data"] == "harmless"
        await client.ack(message)

    assert await scrape_counts(client, {f'skep_dead_letters_total{{queue="{queue}"}}': 2})


async def test_what_a_transaction_staged_and_the_queue_refuses_is_counted(broker, client, queue):
    await client.configure(queue, jsonSchema={"type": "object"})
    async with broker.sql() as sql:
        await sql.execute("select skep.stage($1, null, '1'::json)", queue)

    name = f'skep_dead_letters_total{{queue="{queue}"}}'
    found = await scrape_until(client, lambda found: found.get(name, 0) > 0)

    assert found[name] == 1


async def test_what_is_given_up_by_hand_is_counted_for_each_group(client, queue):
    for group in ("a", "b"):
        await client.pop(queue, consumerGroup=group, subscriptionMode="all")
    [pushed] = await client.push_payloads(queue, "unwanted")
    path = f"/api/v1/messages/{pushed['partition_id']}/{pushed['transaction_id']}/dlq"
    await ask(client, path, method="POST")

    assert await scrape_counts(client, {f'skep_dead_letters_total{{queue="{queue}"}}': 2})


async def test_transactions_count_for_the_queues_they_touch(client, queue):
    await client.push_payloads(queue, 1)
    [message] = await client.pop(queue)
    operations = [
        {"type": "push", "items": [{"queue": f"{queue}-sink", "payload": 1}]},
        {
            "type": "ack",
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
        },
    ]
    answer = await client.post("/api/v1/transaction", {"operations": operations})
    assert json.loads(answer.body)["success"], answer

    assert await scrape_counts(
        client,
        {
            f'skep_transactions_total{{queue="{queue}"}}': 1,
            f'skep_acked_messages_total{{queue="{queue}"}}': 1,
            f'skep_pushed_messages_total{{queue="{queue}-sink"}}': 1,
        },
    )


async def test_what_is_kept_on_disk_during_maintenance_is_shown(client, queue):
    path = "/api/v1/system/maintenance"
    await client.post(path, {"enabled": True})
    await client.push_payloads(queue, 1, 2)

    def is_kept(found):
        mode = found['skep_maintenance_mode{mode="push",worker="0"}']
        return mode == 1 and found['skep_spill_pending_messages{worker="0"}'] == 2

    def is_drained(found):
        return found['skep_spill_pending_messages{worker="0"}'] == 0

    kept = await scrape_until(client, is_kept)
    await client.post(path, {"enabled": False})
    await scrape_until(client, is_drained)

    assert kept["skep_spilled_messages_total"] >= 2
    assert kept["skep_spill_fsyncs_total"] >= 1


async def test_expired_messages_are_counted(client, queue, broker):
    before = await scrape(client)
    await client.push({"queue": queue, "payload": 1, "ttlSeconds": 0.001})
    await client.pop(queue)

    def is_there(found):
        return found["skep_expired_messages_total"] > before["skep_expired_messages_total"]

    await scrape_until(client, is_there)


async def test_requests_are_counted_by_route_and_status(client, queue):
    await client.push_payloads(queue, 1)
    await client.call("GET", f"/api/v1/resources/queues/{queue}-gone")
    await client.call("GET", "/no/such/path/at/all")

    found = await scrape(client)

    route = "GET /api/v1/resources/queues/{queue}"
    assert found['skep_http_requests_total{route="push",status="201"}'] >= 1
    assert found[f'skep_http_requests_total{{route="{route}",status="404"}}'] >= 1
    assert found['skep_http_request_duration_seconds_count{route="push"}'] >= 1
    assert not any("no/such/path" in name for name in found)
    assert found['skep_http_requests_total{route="unknown",status="404"}'] >= 1


async def test_calls_are_timed_by_sql_function_and_fusion_is_shown(client, queue):
    await client.push_payloads(queue, *range(5))

    found = await scrape(client)

    assert found['skep_sql_call_duration_seconds_count{function="push_guaranteed"}'] >= 1
    assert found['skep_engine_call_messages_sum{operation="push"}'] >= 5
    assert found['skep_engine_call_lots_count{operation="push"}'] >= 1


async def test_gauges_are_shown_for_each_worker(client, open_client, queue):
    waiting = await open_client()
    waiting.send_poll(queue, wait=True, timeout=20_000)

    def connections(found, worker):  # a housekeeping call may hold one just now
        name = 'skep_db_connections{{pool="hot",state="{}",worker="{}"}}'
        return found[name.format("busy", worker)] + found[name.format("idle", worker)]

    def is_there(found):
        parked = [found[f'skep_parked_polls{{worker="{worker}"}}'] for worker in "01"]
        return sum(parked) == 1 and all(connections(found, worker) >= 1 for worker in "01")

    found = await scrape_until(client, is_there)

    for worker in "01":
        assert found[f'skep_process_resident_memory_bytes{{worker="{worker}"}}'] > 2**20


async def test_a_scrape_shows_all_workers_whichever_is_asked(broker, queue):
    async def push_by_all(count):
        for _ in range(count):
            async with broker.connect() as client:  # each may be accepted by another worker
                await client.push_payloads(queue, 1)

    await push_by_all(20)
    name = f'skep_pushed_messages_total{{queue="{queue}"}}'

    for _ in range(10):
        async with broker.connect() as client:
            await scrape_until(client, lambda found: found.get(name) == 20)


async def test_queues_beyond_the_bound_have_no_label(broker, client):
    for number in range(40):
        await client.push_payloads(f"one-of-many-{number}", 1)

    found = await scrape(client)

    named = {name for name in found if name.startswith("skep_pushed_messages_total")}
    assert len(named) <= 2 * 20 + 1  # each worker has its own first queues
    assert found['skep_pushed_messages_total{queue=""}'] >= 20


async def test_families_with_names_of_queen_are_there(client, queue):
    await client.push_payloads(queue, 1)
    before = 'queen_cluster_push_messages_total{scope="cluster"}'

    found = await scrape_until(client, lambda found: found.get(before, 0) >= 1)

    for name in (
        "queen_uptime_seconds",
        "queen_cpu_user_microseconds_total",
        "queen_process_resident_memory_bytes",
        "queen_db_pool_size",
        "queen_queue_metrics_age_seconds",
        'queen_dlq_depth{scope="cluster"}',
        'queen_cluster_ack_total{result="success",scope="cluster"}',
        'queen_sidecar_op_count{op="push"}',
    ):
        assert name in found, name


async def test_defect_39_the_metrics_as_json_are_not_all_zeros(client, queue):
    await client.push_payloads(queue, 1, 2)

    # All connections may be in use just then, by housekeeping too.
    metrics = await ask_until(client, "/metrics", lambda now: now["database"]["idleConnections"])

    assert metrics["uptime"] > 0
    assert metrics["requests"]["total"] >= 1
    assert metrics["requests"]["rate"] > 0
    assert metrics["messages"]["total"] >= 2
    assert metrics["database"]["poolSize"] >= metrics["database"]["idleConnections"]
    assert metrics["memory"]["rss"] > 2**20
    assert metrics["cpu"]["user"] > 0
    assert metrics["memory"].keys() == {
        "rss",
        "heapTotal",
        "heapUsed",
        "external",
        "arrayBuffers",
    }


async def test_defect_54_latencies_are_histograms(client):
    found = await scrape(client)

    for family in FAMILIES:
        if family.kind == "histogram" and not family.labels:
            assert f'{family.name}_bucket{{le="+Inf"}}' in found
