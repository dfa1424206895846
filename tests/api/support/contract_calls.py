"""One call that succeeds for each route of the wire contract that is done.

`{queue}` and the like are filled in from a `Stage`: a queue with a message that was delivered to
a group, one that is dead for it, a trace and a registered query.
"""

import json
import re
from urllib.parse import quote

GROUP = "readers"

CALLS = {
    "POST /api/v1/configure": {"queue": "{queue}", "options": {"leaseTime": 60}},
    "POST /api/v1/push": {"items": [{"queue": "{queue}", "payload": 1}]},
    "GET /api/v1/pop/queue/{queue}": None,
    "GET /api/v1/pop/queue/{queue}/partition/{partition}": None,
    "GET /api/v1/pop?namespace={namespace}": None,
    "POST /api/v1/ack": {
        "transactionId": "{transactionId}",
        "partitionId": "{partitionId}",
        "leaseId": "{leaseId}",
        "consumerGroup": GROUP,
    },
    "POST /api/v1/ack/batch": {
        "acknowledgments": [{"transactionId": "{transactionId}", "partitionId": "{partitionId}"}],
        "consumerGroup": GROUP,
    },
    "POST /api/v1/transaction": {
        "operations": [
            {"type": "push", "items": [{"queue": "{queue}", "payload": 2}]},
            {
                "type": "ack",
                "transactionId": "{transactionId}",
                "partitionId": "{partitionId}",
                "consumerGroup": GROUP,
            },
        ],
        "requiredLeases": ["{leaseId}"],
    },
    "POST /api/v1/lease/{leaseId}/extend": {},
    "GET /api/v1/resources/queues": None,
    "GET /api/v1/resources/queues/{queue}": None,
    "DELETE /api/v1/resources/queues/{queue}": None,
    "GET /api/v1/resources/namespaces": None,
    "GET /api/v1/resources/tasks": None,
    "GET /api/v1/resources/overview": None,
    "GET /api/v1/resources/partitions": None,
    "GET /api/v1/messages?queue={queue}": None,
    "GET /api/v1/messages/{partitionId}/{transactionId}": None,
    "DELETE /api/v1/messages/{partitionId}/{transactionId}": None,
    "POST /api/v1/messages/{partitionId}/{deadId}/retry": {},
    "POST /api/v1/messages/{partitionId}/{transactionId}/dlq": {"consumerGroup": GROUP},
    "GET /api/v1/dlq?queue={queue}": None,
    "POST /api/v1/dlq/{dlqId}/replay": {},
    "POST /api/v1/traces": {
        "transactionId": "{transactionId}",
        "partitionId": "{partitionId}",
        "data": {"step": 1},
        "traceNames": ["steps"],
    },
    "GET /api/v1/traces/{partitionId}/{transactionId}": None,
    "GET /api/v1/traces/by-name/{traceName}": None,
    "GET /api/v1/traces/names": None,
    "GET /api/v1/consumer-groups": None,
    "GET /api/v1/consumer-groups/lagging?minLagSeconds=0": None,
    "GET /api/v1/consumer-groups/{group}": None,
    "DELETE /api/v1/consumer-groups/{group}": None,
    "POST /api/v1/consumer-groups/{group}/subscription": {
        "subscriptionTimestamp": "2026-01-01T00:00:00Z"
    },
    "DELETE /api/v1/consumer-groups/{group}/queues/{queue}": None,
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/seek": {"toEnd": True},
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek": None,
    "POST /api/v1/stats/refresh": None,
    "GET /api/v1/status": None,
    "GET /api/v1/status/analytics": None,
    "GET /api/v1/status/queues": None,
    "GET /api/v1/status/queues/{queue}": None,
    "GET /api/v1/status/queues/{queue}/messages": None,
    "GET /api/v1/analytics/system-metrics": None,
    "GET /api/v1/analytics/worker-metrics": None,
    "GET /api/v1/analytics/queue-lag": None,
    "GET /api/v1/analytics/queue-ops": None,
    "GET /api/v1/analytics/queue-parked-replicas": None,
    "GET /api/v1/analytics/retention": None,
    "GET /api/v1/analytics/postgres-stats": None,
    "GET /health": None,
    "GET /metrics": None,
    "GET /metrics/prometheus": None,
    "GET /api/v1/system/shared-state": None,
    "GET /internal/api/shared-state/stats": None,
    "GET /internal/api/inter-instance/stats": None,
    "POST /internal/api/notify": {"queue": "{queue}", "partition": "{partition}"},
    "POST /streams/v1/queries": {
        "name": "{queue}-new",
        "source_queue": "{queue}",
        "config_hash": "abc",
    },
    "POST /streams/v1/cycle": {
        "query_id": "{queryId}",
        "partition_id": "{partitionId}",
        "consumer_group": GROUP,
        "state_ops": [{"type": "upsert", "key": "k", "value": {"n": 1}}],
        "push_items": [{"queue": "{queue}", "payload": 3}],
        "ack": {"transactionId": "{transactionId}", "leaseId": "{leaseId}"},
    },
    "POST /streams/v1/state/get": {"query_id": "{queryId}", "partition_id": "{partitionId}"},
    "DELETE /api/v1/queues/{queue}/clear": None,
    "GET /api/me": None,
    "POST /api/logout": None,
    "GET /api/v1/status/buffers": None,
    "GET /api/v1/system/maintenance": None,
    "POST /api/v1/system/maintenance": {"enabled": False},
    "GET /api/v1/system/maintenance/pop": None,
    "POST /api/v1/system/maintenance/pop": {"enabled": False},
    "POST /api/v1/migration/test-connection": {},
    "POST /api/v1/migration/start": {},
    "GET /api/v1/migration/status": None,
    "POST /api/v1/migration/validate": {},
    "POST /api/v1/migration/reset": {},
}
"""Bodies by route. What follows a question mark is no part of the route."""


REFUSED = {
    "POST /api/v1/migration/test-connection",
    "POST /api/v1/migration/start",
    "POST /api/v1/migration/validate",
}
"""Routes that are there to say no."""


async def set_stage(client, queue):
    """Make what the calls are about; return the names that stand in them."""
    await client.configure(queue, {"namespace": queue, "task": "t"}, retryLimit=0)
    await client.push_payloads(queue, "dies")
    (dead,) = await client.pop(queue, consumerGroup=GROUP)
    await client.ack(dead, "dlq", error="no")
    await client.push_payloads(queue, "lives")
    (message,) = await client.pop(queue, consumerGroup=GROUP)
    names = {
        "queue": queue,
        "namespace": queue,
        "group": GROUP,
        "traceName": f"{queue}/steps",
        **{
            name: message[name] for name in ("transactionId", "partitionId", "leaseId", "partition")
        },
        "deadId": dead["transactionId"],
    }
    letters = json.loads((await client.call("GET", f"/api/v1/dlq?queue={queue}")).body)
    names["dlqId"] = str(letters["messages"][0]["dlqId"])
    trace = {
        **{name: names[name] for name in ("transactionId", "partitionId")},
        "data": {"step": 0},
        "traceNames": [names["traceName"]],
    }
    assert (await client.post("/api/v1/traces", trace)).status == 201
    query = {"name": queue, "source_queue": queue, "config_hash": "abc"}
    names["queryId"] = json.loads((await client.post("/streams/v1/queries", query)).body)[
        "query_id"
    ]
    return names


def fill(text, names):
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], text)


def fill_path(path, names):
    return fill(path, {name: quote(value, safe="") for name, value in names.items()})
