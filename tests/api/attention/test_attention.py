"""What needs attention, of a broker with something of everything."""

import asyncio
import json

import pytest

from tests.api.support.asking import ask, ask_until
from tests.sql.support.waiting import eventually

PATH = "/api/v1/attention"


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker that reports often."""
    with start_broker("--workers", "1", metrics_interval_s=0.1) as broker:
        yield broker


def about(found, queue):
    return {item["kind"]: item for item in found["items"] if item.get("queue") == queue}


async def forget_activity(broker):
    """Let no consumer have been seen for years."""
    async with broker.sql() as sql:
        await sql.execute(
            """
            delete from skep.group_activity;
            update skep.consumer_group set first_polled_at = '2020-01-01'
            where first_polled_at is not null
            """
        )


async def test_what_is_stuck_failing_or_paused_needs_attention_and_has_an_action(
    client, broker, queue
):
    unread, paused, deadly = (f"{queue}-{name}" for name in ("unread", "paused", "deadly"))
    for each in (unread, paused, deadly):
        await client.pop(each, consumerGroup="bees")
        await client.push_payloads(each, 1, 2)
    await ask(client, f"/api/v1/queues/{paused}/pause", method="POST")
    message, *_ = await client.pop(deadly, consumerGroup="bees")
    await client.ack(message, "dlq", error="stung", consumerGroup="bees")

    async def look():
        await forget_activity(broker)  # again: the polls above may be reported only now
        found = await ask(client, PATH)
        is_there = (
            "group-no-consumers" in about(found, unread)
            and "queue-paused" in about(found, paused)
            and "dead-letters" in about(found, deadly)
        )
        return found if is_there else None

    found = await eventually(look)

    item = about(found, unread)["group-no-consumers"]
    assert (item["severity"], item["lag"], item["group"]) == ("notice", 2, "bees")
    assert item["action"] == {
        "label": "Open group",
        "kind": "open",
        "path": f"/groups/bees/{unread}",
    }
    letters = about(found, deadly)["dead-letters"]
    assert (letters["count"], letters["cause"]) == (1, "Most frequent error: stung")
    resume = about(found, paused)["queue-paused"]["action"]
    assert (resume["kind"], (await ask(client, resume["path"], method="POST"))["isPaused"]) == (
        "resume-queue",
        False,
    )
    redrive = letters["action"]
    answer = await client.call("POST", redrive["path"], json.dumps(redrive["body"]).encode())
    assert (answer.status, json.loads(answer.body)["total"]) == (202, 1)


async def test_the_states_of_everything_are_counted(client, queue):
    await client.push_payloads(queue, 1)

    found = await ask_until(client, PATH, lambda found: found["counts"]["messages"]["total"])

    assert set(found["counts"]) == {
        *("messages", "groups", "jobs", "pipelines", "instances", "queues"),
    }
    assert found["counts"]["instances"] == {"alive": 1}
    assert found["checkedAt"].endswith("Z")


async def test_all_who_ask_at_once_share_a_reading(client, open_client):
    all_clients = [client, *[await open_client() for _ in range(3)]]

    async def is_shared():  # an older reading may end its time just then
        found = await asyncio.gather(*(ask(each, PATH) for each in all_clients))
        return len({each["checkedAt"] for each in found}) == 1

    assert await eventually(is_shared)


async def test_a_group_with_a_parked_poll_and_nothing_to_read_consumes(client, broker, queue):
    await client.pop(queue, consumerGroup="bees")
    await forget_activity(broker)
    path = f"/api/v1/consumer-groups?queue={queue}"
    assert (await ask(client, path))[0]["condition"] == "empty"
    poll = asyncio.create_task(client.pop(queue, consumerGroup="bees", wait=True, timeout=20_000))
    async with broker.connect() as other:
        await ask_until(other, path, lambda found: found[0]["condition"] == "consuming")
        await other.push_payloads(queue, 1)
    assert len(await poll) == 1
