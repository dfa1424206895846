"""Maintenance, operations, metrics, traces and streams by command, against a broker."""

import asyncio
import re
from uuid import uuid4

import pytest

from tests.api.support.overload import TIGHT, accepted, ended, overload, standstill


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker of little memory, so that operations come about."""
    with start_broker("--workers", "1", **TIGHT) as broker:
        yield broker


@pytest.fixture
def ask(skep):
    """Run a command while the loop of the test goes on."""

    async def ask(*arguments, **options):
        return await asyncio.to_thread(skep, *arguments, **options)

    return ask


def test_maintenance_is_switched_on_shown_and_switched_off(skep, api, queue):
    api.push(queue, 1)

    on = skep("maintenance", "on", "--mode", "pop", "--yes")
    try:
        shown = skep("maintenance", "status", "-o", "json").json()
        delivered = api.pop(queue)
    finally:
        off = skep("maintenance", "off", "--mode", "pop")

    assert on.out == "Nothing is delivered.\n"
    assert (shown["popMaintenanceMode"], shown["maintenanceMode"]) == (True, False)
    assert delivered == []
    assert off.out == "Messages are delivered.\n"
    assert "Pop maintenance mode  no" in skep("maintenance", "status").out


def test_pushes_are_kept_on_disk_and_stored_again(skep, api, queue):
    skep("maintenance", "on", "--yes")
    try:
        kept = api.push(queue, 1)
        shown = skep("maintenance", "status", "-o", "json").json()
    finally:
        skep("maintenance", "off")

    assert kept.status == "buffered"
    assert shown["bufferedMessages"] == 1
    assert [message.data for message in api.pop(queue, wait_s=10)] == [1]


OVERDUE = """
update skep.operation set available_at = available_at - interval '1 day' where id = $1
"""


async def test_operations_are_listed_counted_and_shown(ask, broker, client, queue):
    async with standstill(broker):
        async with overload(broker, queue):
            first = (await accepted(client, queue, 1))["operationId"]
            second = (await accepted(client, queue, 2))["operationId"]
        listed = await ask("operations", "list", "--queue", queue, "-o", "ndjson")
        cut = await ask("operations", "list", "--queue", queue, "--limit", 1)
        async with broker.sql() as sql:
            await sql.execute("set session_replication_role = replica")  # past the standstill
            await sql.execute(OVERDUE, first)
        stats = await ask("operations", "stats")
        shown = await ask("operations", "show", first, "-o", "json")
    done = await ended(client, first)

    assert [each["operationId"] for each in listed.ndjson()] == [second, first]
    assert "--before" in cut.err
    counts, about, stuck = stats.out.split("\n\n")
    assert counts.splitlines()[0].split()[:2] == ["Type", "Waiting"]
    assert about.splitlines()[0].split() == ["System", "health", "stuck"]
    assert about.splitlines()[1].split()[0] == "Waiting"
    assert queue in stuck
    assert first in stuck
    assert "{" not in stats.out
    assert shown.json()["status"] in {"waiting", "processing"}
    assert done["status"] == "completed"
    assert (await ask("operations", "retry", first, code=1)).out == ""


async def test_operations_that_were_given_up_are_cancelled(ask, broker, client, queue):
    async with standstill(broker):
        async with overload(broker, queue):
            given_up = [(await accepted(client, queue, n))["operationId"] for n in range(2)]
        await client.call("DELETE", f"/api/v1/resources/queues/{queue}")
    for operation_id in given_up:
        await ended(client, operation_id)

    one = await ask("operations", "cancel", given_up[0], "--yes")
    refused = await ask("operations", "cleanup", code=1)
    cleaned = await ask("operations", "cleanup", "--yes")
    again = await ask("operations", "cleanup", "--yes")
    shown = [await ask("operations", "show", each, "-o", "json") for each in given_up]

    assert one.out == f"Cancelled operation {given_up[0]}\n"
    assert "Cancel 1 failed operation?" in refused.err
    assert cleaned.out == "Cancelled 1 operation\n"
    assert again.out == "No operations to cancel\n"
    assert [each.json()["status"] for each in shown] == ["cancelled", "cancelled"]


def test_an_operation_that_does_not_exist_is_the_callers_mistake(skep):
    assert "operation" in skep("operations", "show", uuid4(), code=1).err
    assert "valid UUID" in skep("operations", "show", "x", code=1).err


def test_a_search_for_metrics_says_what_it_goes_with(run):
    assert "--search requires --prometheus" in run("metrics", "--search", "parked", code=1).err


def test_metrics_are_shown_in_few_words_or_all(skep, api, queue):
    api.push(queue, 1)

    record = skep("metrics", "-o", "json").json()
    table = skep("metrics").out
    lines = skep("metrics", "--prometheus", "--search", "parked").out.splitlines()

    assert record["uptime"] > 0
    assert re.search(r"^Memory +\d+ MiB$", table, re.MULTILINE)
    assert "# TYPE skep_parked_polls gauge" in lines
    assert all("parked" in line for line in lines)


def test_traces_are_listed_and_shown(skep, api, queue):
    pushed = api.push(queue, 1)
    api.traces.record(pushed.partition_id, pushed.message_id, {"step": 1}, names=[queue])

    names = skep("traces", "names", "-o", "ndjson").ndjson()
    (by_name,) = skep("traces", "show", queue, "-o", "ndjson").ndjson()
    table = skep("traces", "message", pushed.partition_id, pushed.message_id).out

    assert queue in {each["trace_name"] for each in names}
    assert (by_name["data"], by_name["queue_name"]) == ({"step": 1}, queue)
    assert '{"step":1}' in table
    assert skep("traces", "show", "nobody").out == ""


def test_streams_are_listed_shown_and_deleted(skep, api, queue):
    api.queues.configure(queue)
    body = {"name": f"{queue}-query", "source_queue": queue, "config_hash": "h1"}
    api.request("POST", "/streams/v1/queries", body)

    rows = skep("streams", "list", "-o", "ndjson").ndjson()
    shown = skep("streams", "show", f"{queue}-query", "-o", "json").json()
    refused = skep("streams", "delete", f"{queue}-query", code=1)
    gone = skep("streams", "delete", f"{queue}-query", "--yes")

    assert [row["name"] for row in rows] == [f"{queue}-query"]
    assert shown["source_queue"] == queue
    assert "pass --yes" in refused.err
    assert gone.out == f"Deleted query {queue}-query\n"
    assert skep("streams", "show", f"{queue}-query", code=1).out == ""
