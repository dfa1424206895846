"""A broker in which every page of the dashboard has something to show."""

import json

from tests.dashboard.support.lake import archive, run_pipeline
from tests.dashboard.support.workshop import fill_workshop
from tests.support.broker import ack_item

QUEUES = ("orders", "invoices", "shipping.labels", "mail.outgoing")


async def fill(broker, client):
    """Push, deliver, fail, trace and register, in small amounts."""
    for number, queue in enumerate(QUEUES):
        await client.push(
            *(
                {
                    "queue": queue,
                    "partition": f"customer-{n % (12 * (number + 1))}",
                    "payload": {"order": n, "items": [{"sku": f"A-{n}", "count": n % 5}]},
                    "transactionId": f"{queue}-{n}",
                    "headers": {"tenant": "acme"},
                }
                for n in range(120)
            )
        )
    for group in ("billing", "search-index"):
        await client.pop("orders", consumerGroup=group, batch=200, partitions=8, autoAck="true")
    await _let_some_die(client)
    message = (await client.pop("orders", consumerGroup="billing", batch=1))[0]
    await client.post("/api/v1/traces", trace_of(message))
    await client.post("/streams/v1/queries", query())
    await client.push({"queue": "orders", "payload": {"later": True}, "delaySeconds": 3600})
    await fill_workshop(broker, client)
    await run_pipeline(broker, "revenue per minute")
    await run_pipeline(broker, "clicks", state="failed", error="the column `shop` does not exist")
    for queue in ("orders", "invoices"):
        await archive(broker, client, queue)
    await _order_replays(client)


async def _order_replays(client):
    """One that is done, and one that nobody runs."""
    order = {"queue": "orders", "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    first = await client.post("/api/v1/replays", {**order, "into": "orders-again"})
    output = {
        "messages": 1200,
        "duplicates": 0,
        "rejected": 0,
        "isRepeated": False,
        "committedAt": None,
    }
    chain = json.loads(first.body)["chain"]
    assert (await client.post(f"{chain}/complete", {"output": output})).status == 200
    await client.post("/api/v1/replays", {**order, "into": "orders-for-tests"})


async def _let_some_die(client):
    await client.configure("invoices", retryLimit=0)
    popped = await client.pop("invoices", consumerGroup="ledger", batch=30, partitions=12)
    for number, message in enumerate(popped[:9]):
        error = f"account {number} is closed" if number % 3 else "the ledger did not answer"
        await client.ack_batch(
            ack_item(message, "failed", {"error": error}), consumerGroup="ledger"
        )


def trace_of(message):
    return {
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "data": {"text": "charged the card"},
        "eventType": "step",
        "consumerGroup": "billing",
        "traceNames": ["order-journey"],
    }


def query():
    return {
        "name": "orders-per-minute",
        "source_queue": "orders",
        "sink_queue": "mail.outgoing",
        "config_hash": "1",
    }


async def chain_page(client, job):
    """Return the address of the newest chain of a type."""
    answer = await client.call("GET", f"/api/v1/chains?type={job}&limit=1")
    (chain,) = json.loads(answer.body)["items"]
    return f"/chains/{chain['id']}"


async def message_page(client, queue):
    """Return the address of some message of a queue."""
    answer = await client.call("GET", f"/api/v1/messages?queue={queue}&limit=1")
    (message,) = json.loads(answer.body)["messages"]
    return f"/messages/{message['partitionId']}/{message['id']}"
