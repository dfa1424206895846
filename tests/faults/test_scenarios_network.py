"""The network delays, truncates, cuts and swallows; clients repeat what nobody answered."""

import asyncio
import json
from contextlib import suppress
from random import Random

import pytest

from tests.faults.support.dying_sessions import POINTS, plant_death, transact_repeatedly
from tests.faults.support.instances import well_ending_instance
from tests.faults.support.ledger import require_good
from tests.faults.support.load import GONE, GROUP, load_on
from tests.faults.support.network import CLEAN, Treatment, network_to
from tests.faults.support.storms import treat_badly
from tests.support.broker import ack_item

MESSAGES = 300


@pytest.mark.slow
async def test_scenario_13_a_bad_network_makes_nothing_lost_or_twice(
    database_url, sql, queue, seed
):
    with well_ending_instance(database_url, "--workers", "1") as broker:
        async with network_to(broker.port) as network:
            random = Random(f"{seed} network")
            network.treat = lambda: treat_badly(random)
            async with load_on(network, queue, seed, call_s=1.5) as load:
                await load.until_done(MESSAGES)
                network.treat = lambda: CLEAN
                network.cut_all()
                await load.drain()
    query = "select partition, transaction_id from skep.message where queue = $1"
    stored = [tuple(row) for row in await sql.fetch(query, queue)]

    require_good(load.ledger, [GROUP])
    assert len(stored) == len(set(stored))
    assert network.treated > 10


@pytest.mark.parametrize(
    "treatment",
    [
        Treatment(latency_s=0.5),
        Treatment(answer_bytes=100),
        Treatment(is_half_open=True),
        Treatment(pause_s=1),
        Treatment(question_bytes=150),
    ],
    ids=["latency", "reset", "half-open", "a byte a second", "truncated request"],
)
async def test_scenario_13_a_push_of_unknown_outcome_sent_again_is_one_message(
    broker, queue, treatment
):
    push = {"items": [{"queue": queue, "transactionId": "once", "payload": "x" * 200}]}
    treatments = iter([treatment])
    async with network_to(broker.port, lambda: next(treatments, CLEAN)) as network:
        results = None
        for patience_s in (2, 30):
            with suppress(*GONE):
                results = await push_through(network, push, patience_s)
                break

        async with network.connect() as client:
            messages = await client.pop(queue, batch=10)

    assert results is not None
    assert [message["transactionId"] for message in messages] == ["once"]
    assert [result["message_id"] for result in results] == [messages[0]["id"]]


async def push_through(network, push, patience_s):
    async with asyncio.timeout(patience_s), network.connect() as client:
        answer = await client.post("/api/v1/push", push)
    return json.loads(answer.body)


# Scenario 14: the answer is dropped, and the client sends the same again


async def lose_answer(network, method, path, body):
    """Send a request whose answer gets lost."""
    lost = network.lose_next_answer(f"{method} {path}".encode())
    with suppress(*GONE):
        async with network.connect() as client:
            await client.post(path, body)
    assert lost.is_set()


async def test_scenario_14_a_push_whose_answer_was_dropped_is_a_duplicate(broker, client, queue):
    push = {"items": [{"queue": queue, "transactionId": "once", "payload": 1}]}
    async with network_to(broker.port) as network:
        await lose_answer(network, "POST", "/api/v1/push", push)

    (result,) = await client.push(*push["items"])
    (message,) = await client.pop(queue, batch=10)

    assert result["status"] == "duplicate"
    assert result["message_id"] == message["id"]


async def test_scenario_14_an_ack_whose_answer_was_dropped_is_done_already(broker, client, queue):
    await client.push_payloads(queue, 1, 2)
    (message,) = await client.pop(queue)
    async with network_to(broker.port) as network:
        await lose_answer(network, "POST", "/api/v1/ack", ack_item(message))

    again = await client.ack(message)

    assert again["success"]
    assert [each["data"] for each in await client.pop(queue, batch=10)] == [2]


async def test_scenario_14_a_transaction_whose_answer_was_dropped_is_applied_once(
    broker, client, queue
):
    await client.push_payloads(queue, 1, 2)
    (message,) = await client.pop(queue)
    sink = f"{queue}-sink"
    pushing = {"type": "push", "items": [{"queue": sink, "transactionId": "x", "payload": 1}]}
    body = {"operations": [{"type": "ack", **ack_item(message)}, pushing]}
    async with network_to(broker.port) as network:
        await lose_answer(network, "POST", "/api/v1/transaction", body)

    again = json.loads((await client.post("/api/v1/transaction", body)).body)

    assert again["success"], again
    assert [each["transactionId"] for each in await client.pop(sink, batch=10)] == ["x"]
    assert [each["data"] for each in await client.pop(queue, batch=10)] == [2]


@pytest.mark.parametrize("point", POINTS)
async def test_scenario_15_a_transaction_is_all_or_nothing_wherever_its_session_dies(
    proxy, sql, queue, point
):
    await plant_death(sql, point)
    await transact_repeatedly(proxy, sql, queue, point, times=3)
