"""Every route of the wire contract has a method of the client, or a reason why not."""

import re
from datetime import UTC, datetime

import pytest

from skep.client import AsyncClient, Item
from skep.client.aio.message import Message, Settlement
from tools.wire_contract import CONTRACT

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Asked(Exception):
    """Instead of sending anything."""

    def __init__(self, method, path):
        self.route = f"{method} {path.partition('?')[0]}"


def message_of(client):
    message = Message(
        id="i",
        transaction_id="t",
        raw=b"1",
        created_at="",
        partition="p",
        partition_id="id",
        lease_id="l",
    )
    Settlement(client.session, [message]).adopt([message])
    return message


async def consume_one(client, *names, **options):
    async for _ in client.consume(*names, **options):
        return


async def commit_one(client):
    transaction = client.transaction()
    transaction.push("q", 1)
    await transaction.commit()


CALLS = {
    "POST /api/v1/configure": lambda client: client.queues.configure("q", leaseTime=60),
    "POST /api/v1/push": lambda client: client.push_items([Item("q", 1)]),
    "GET /api/v1/pop/queue/{queue}": lambda client: client.pop("q"),
    "GET /api/v1/pop/queue/{queue}/partition/{partition}": lambda client: client.pop(
        "q", partition="p"
    ),
    "GET /api/v1/pop": lambda client: consume_one(client, namespace="n"),
    "POST /api/v1/ack/batch": lambda client: message_of(client).ack(),
    "POST /api/v1/transaction": commit_one,
    "POST /api/v1/lease/{leaseId}/extend": lambda client: client.extend_lease(message_of(client)),
    "GET /api/v1/resources/queues": lambda client: client.queues.find(),
    "GET /api/v1/resources/queues/{queue}": lambda client: client.queues.describe("q"),
    "DELETE /api/v1/resources/queues/{queue}": lambda client: client.queues.delete("q"),
    "GET /api/v1/resources/overview": lambda client: client.overview(),
    "GET /api/v1/resources/partitions": lambda client: client.queues.partitions("q"),
    "GET /api/v1/messages": lambda client: client.messages.find(queue="q"),
    "GET /api/v1/messages/{partitionId}/{transactionId}": lambda client: client.messages.show(
        "p", "t"
    ),
    "DELETE /api/v1/messages/{partitionId}/{transactionId}": lambda client: client.messages.delete(
        "p", "t"
    ),
    "POST /api/v1/messages/{partitionId}/{transactionId}/retry": lambda client: (
        client.messages.retry("p", "t")
    ),
    "POST /api/v1/messages/{partitionId}/{transactionId}/dlq": lambda client: (
        client.messages.dead_letter("p", "t", group="g")
    ),
    "GET /api/v1/dlq": lambda client: client.dead_letters.find(queue="q"),
    "POST /api/v1/dlq/{dlqId}/replay": lambda client: client.dead_letters.replay(1),
    "POST /api/v1/traces": lambda client: client.traces.record("p", "t", {"step": 1}),
    "GET /api/v1/traces/{partitionId}/{transactionId}": lambda client: client.traces.of_message(
        "p", "t"
    ),
    "GET /api/v1/traces/by-name/{traceName}": lambda client: client.traces.by_name("steps"),
    "GET /api/v1/traces/names": lambda client: client.traces.names(),
    "GET /api/v1/consumer-groups": lambda client: client.groups.find(),
    "GET /api/v1/consumer-groups/lagging": lambda client: client.groups.lagging(),
    "GET /api/v1/consumer-groups/{group}": lambda client: client.groups.describe("g"),
    "DELETE /api/v1/consumer-groups/{group}": lambda client: client.groups.delete("g"),
    "DELETE /api/v1/consumer-groups/{group}/queues/{queue}": lambda client: client.groups.delete(
        "g", "q"
    ),
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/seek": lambda client: client.groups.seek(
        "g", "q", NOON
    ),
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek": (
        lambda client: client.groups.seek("g", "q", "end", partition="p")
    ),
    "GET /health": lambda client: client.health(),
    "DELETE /api/v1/queues/{queue}/clear": lambda client: client.queues.clear("q"),
}

PAGES = "what the dashboard shows; its shapes follow its pages"
MACHINES = "for monitoring, which scrapes it and needs no client"
OPERATORS = "switched by operators, with the command line"
SDK = "spoken by Queen's streams SDK, whose cycles it keeps"
MIGRATION = "Queen's own migration, which is refused here"

LEFT_OUT = {
    "POST /api/v1/ack": "a batch of one is the same",
    "GET /api/v1/resources/namespaces": PAGES,
    "GET /api/v1/resources/tasks": PAGES,
    "POST /api/v1/consumer-groups/{group}/subscription": "`start` of `consume`, or a seek, says it",
    "POST /api/v1/stats/refresh": "nothing to refresh: counts are always those of now",
    "GET /api/v1/status": PAGES,
    "GET /api/v1/status/queues": PAGES,
    "GET /api/v1/status/queues/{queue}": PAGES,
    "GET /api/v1/status/queues/{queue}/messages": PAGES,
    "GET /api/v1/status/analytics": PAGES,
    "GET /api/v1/status/buffers": PAGES,
    "GET /api/v1/analytics/system-metrics": PAGES,
    "GET /api/v1/analytics/worker-metrics": PAGES,
    "GET /api/v1/analytics/queue-lag": PAGES,
    "GET /api/v1/analytics/queue-ops": PAGES,
    "GET /api/v1/analytics/queue-parked-replicas": PAGES,
    "GET /api/v1/analytics/retention": PAGES,
    "GET /api/v1/analytics/postgres-stats": PAGES,
    "GET /metrics": MACHINES,
    "GET /metrics/prometheus": MACHINES,
    "GET /api/v1/system/maintenance": OPERATORS,
    "POST /api/v1/system/maintenance": OPERATORS,
    "GET /api/v1/system/maintenance/pop": OPERATORS,
    "POST /api/v1/system/maintenance/pop": OPERATORS,
    "GET /api/v1/system/shared-state": MACHINES,
    "GET /internal/api/shared-state/stats": MACHINES,
    "GET /internal/api/inter-instance/stats": MACHINES,
    "POST /internal/api/notify": "what instances of Queen tell each other",
    "POST /api/v1/migration/test-connection": MIGRATION,
    "POST /api/v1/migration/start": MIGRATION,
    "GET /api/v1/migration/status": MIGRATION,
    "POST /api/v1/migration/validate": MIGRATION,
    "POST /api/v1/migration/reset": MIGRATION,
    "POST /streams/v1/queries": SDK,
    "POST /streams/v1/cycle": SDK,
    "POST /streams/v1/state/get": SDK,
    "GET /api/me": PAGES,
    "POST /api/logout": PAGES,
}
"""Routes without a method, and why; `client.request` reaches them all the same."""


def test_every_route_of_the_contract_has_a_method_or_a_reason():
    routes = {f"{route.method} {route.path}" for route in CONTRACT}

    assert CALLS.keys() | LEFT_OUT.keys() == routes
    assert CALLS.keys() & LEFT_OUT.keys() == set()


@pytest.mark.parametrize("route", CALLS)
async def test_a_method_asks_for_the_route_it_stands_for(monkeypatch, route):
    async def ask(method, path, *_arguments, **_options):
        raise Asked(method, path)

    async with AsyncClient("http://nowhere") as client:
        monkeypatch.setattr(client.session, "request", ask)
        with pytest.raises(Asked) as raised:
            await CALLS[route](client)

    pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route))
    assert re.fullmatch(pattern, raised.value.route)
