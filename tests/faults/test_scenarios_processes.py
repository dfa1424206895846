"""Brokers and consumers die or freeze, and the ledger of their clients must still add up.

Every run prints its seed; SKEP_FAULT_SEED repeats one.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from math import inf
from random import Random

import pytest

from tests.faults.support.clock import make_movable
from tests.faults.support.consumers import consuming, cursor_of, overslept
from tests.faults.support.in_process import item, running
from tests.faults.support.instances import fleet_of, well_ending_instance, worker_pids
from tests.faults.support.ledger import require_good
from tests.faults.support.load import DRAIN_S, GROUP, load_on
from tests.faults.support.storms import kill_brokers
from tests.sql.support.waiting import eventually
from tests.support.broker import elapsed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds the worker processes in /proc"),
]

WORKER_KILLS = 3
KILL_PAUSE_S = (0.3, 1.0)

IN_ORDER = """
select transaction_id from skep.message where queue = $1 and partition = $2 order by "offset"
"""


async def stored_in(sql, queue):
    query = "select partition, transaction_id from skep.message where queue = $1"
    return [tuple(row) for row in await sql.fetch(query, queue)]


@pytest.mark.parametrize("size", [1, 3])
async def test_scenario_04_brokers_killed_again_and_again_lose_and_repeat_nothing(
    database_url, sql, queue, seed, size
):
    async with fleet_of(size, database_url, seed, "--workers", "1") as fleet:
        async with load_on(fleet, queue, seed) as load:
            await load.until_done(50)
            await kill_brokers(fleet, size, kills=2, pause_s=(0.2, 0.5), random=Random(seed))
            with elapsed() as draining:
                await load.drain()
        stored = await stored_in(sql, queue)

    require_good(load.ledger, [GROUP])
    assert len(stored) == len(set(stored)) == len(load.ledger.stored)
    assert draining.seconds < DRAIN_S


async def test_scenario_04_workers_killed_again_and_again_lose_and_repeat_nothing(
    database_url, sql, queue, seed
):
    random = Random(f"{seed} kills")
    killed = set()
    with well_ending_instance(database_url, "--workers", "2") as broker:
        async with load_on(broker, queue, seed) as load:
            await load.until_done(50)
            for _ in range(WORKER_KILLS):
                await asyncio.sleep(random.uniform(*KILL_PAUSE_S))
                alive = await eventually(lambda: set(worker_pids(broker)) - killed)
                victim = random.choice(sorted(alive))
                os.kill(victim, signal.SIGKILL)
                killed.add(victim)
            await load.drain()
        stored = await stored_in(sql, queue)

    require_good(load.ledger, [GROUP])
    assert len(stored) == len(set(stored)) == len(load.ledger.stored)
    assert len(killed) == WORKER_KILLS


async def test_a_killed_worker_costs_no_producer_a_message_its_order_or_the_wait_for_another(
    database_url, sql, queue, seed
):
    producers = 6

    async def push_in_order(broker, partition, progress):
        names, clients = [], AsyncExitStack()
        client = await clients.enter_async_context(broker.connect())
        while not progress.is_set():
            name = f"{len(names):06}"
            item = {"queue": queue, "partition": partition, "payload": 1, "transactionId": name}
            while True:
                with suppress(OSError, EOFError):
                    await client.push(item)
                    break
                client = await clients.enter_async_context(broker.connect())
            names.append(name)
            pushed[partition] = len(names)
        await clients.aclose()
        return names

    async def until_each_pushed(count):
        goal = {partition: done + count for partition, done in pushed.items()}
        await eventually(lambda: all(pushed[each] >= goal[each] for each in goal))

    partitions = [f"p{number}" for number in range(producers)]
    pushed = dict.fromkeys(partitions, 0)
    with well_ending_instance(database_url, "--workers", "2") as broker:
        over = asyncio.Event()
        pushing = [asyncio.create_task(push_in_order(broker, each, over)) for each in partitions]
        await until_each_pushed(50)
        workers = worker_pids(broker)
        # A frozen supervisor starts no other worker: the survivor serves, or nobody.
        os.kill(broker.process.pid, signal.SIGSTOP)
        try:
            os.kill(Random(seed).choice(workers), signal.SIGKILL)
            await until_each_pushed(50)
        finally:
            os.kill(broker.process.pid, signal.SIGCONT)
        over.set()
        names = dict(zip(partitions, await asyncio.gather(*pushing), strict=True))

    for partition in partitions:
        stored = await sql.fetch(IN_ORDER, queue, partition)
        assert [row[0] for row in stored] == names[partition]


async def test_a_broker_asked_to_stop_under_load_keeps_what_it_answered_and_ends_well(
    database_url, queue, seed
):
    with well_ending_instance(database_url, "--workers", "2") as broker:
        async with broker.connect() as waiting, broker.sql() as sql:
            waiting.send_poll(f"{queue}-empty", wait=True, timeout=30_000)
            async with load_on(broker, queue, seed, consumers=0, backlog_max=inf) as load:
                await load.until_stored(200)

                exit_code = await asyncio.to_thread(broker.stop)
                answer = await waiting.answer()
            stored = await stored_in(sql, queue)

    assert exit_code == 0
    assert answer.status == 204
    answered = {each.name for each in load.ledger.stored}
    attempted = {(each.partition, each.transaction_id) for each in load.ledger.attempts}
    assert len(stored) == len(set(stored))
    assert answered <= set(stored) <= attempted


# Consumers in processes of their own


async def test_scenario_05_of_a_consumer_killed_mid_batch_only_the_tail_comes_again(
    broker, client, queue
):
    await client.push_payloads(queue, 1, 2, 3)
    async with consuming(broker, queue, batch=3, leaseSeconds=300) as consumer:
        attempts = [message["deliveryAttempt"] for message in consumer.messages]
        completed = await consumer.ack(0)
        consumer.process.kill()
    await broker.end_leases(queue)

    again = await client.pop(queue, batch=3, leaseSeconds=30)

    assert completed["success"]
    assert attempts == [1, 1, 1]
    assert [(message["data"], message["deliveryAttempt"]) for message in again] == [(2, 2), (3, 2)]
    assert (await cursor_of(broker, queue))[3] is None, "the budget of retries is not spent"
    assert (await client.ack(again[-1]))["success"]


async def test_scenario_06_a_consumer_that_slept_past_its_lease_is_refused(broker, client, queue):
    async with overslept(broker, client, queue) as (sleeper, again):
        before = await cursor_of(broker, queue)

        refused = await sleeper.ack(0)

        assert not refused["success"]
        assert refused["error"] == "Invalid or expired lease"
        assert await cursor_of(broker, queue) == before
    assert (await client.ack(again))["success"]


async def test_scenario_07_an_ack_without_a_lease_id_counts_for_any_lease(client, queue):
    await client.push_payloads(queue, 1, 2)
    (held,) = await client.pop(queue, leaseSeconds=30)

    # As on Queen's wire: no lease id, no check. It says so in the reference of `POST /ack`.
    unfenced = await client.ack(held, leaseId=None)
    late = await client.ack(held)

    assert unfenced["success"]
    assert late["success"], "what is done already stays done"
    assert [message["data"] for message in await client.pop(queue)] == [2]


async def test_scenario_07_where_a_lease_is_required_an_ack_without_one_is_refused(
    database_url, sql, queue
):
    async with running(database_url, require_lease=True) as broker:
        await broker.push(item(queue, "a"))
        (held,) = await broker.pop(queue)
        ack = {"type": "ack", **{name: held[name] for name in ("transactionId", "partitionId")}}

        (unfenced,) = await broker.ack(held, is_fenced=False)
        in_transaction = await broker.commit(ack)
        acked = await sql.fetchval("select max(acked) from skep.cursor")
        fenced = await broker.commit(ack, leases=[held["leaseId"]])

    assert not unfenced["success"]
    assert unfenced["error"] == "leaseId is required by this server"
    assert not in_transaction["success"]
    assert "leaseId is required by this server" in in_transaction["error"]
    assert acked == 0
    assert fenced["success"]


async def test_scenario_26_a_message_that_kills_its_consumer_stops_at_its_bound(
    database_url, sql, queue
):
    clock = await make_movable(sql)
    attempts = []
    async with running(database_url) as broker:
        await broker.configure(queue, maxDeliveries=3, leaseTime=60)
        await broker.push(item(queue, "deadly"), item(queue, "harmless"))
        while True:
            # The process dies: nobody answers, and the lease runs out.
            (message,) = await broker.pop(queue, wait_s=10)
            if message["transactionId"] != "deadly":
                break
            attempts.append(message["deliveryAttempt"])
            await clock.move(61)
    letters = await sql.fetch("select transaction_id from skep.dead_letter")

    assert attempts == [1, 2, 3]
    assert [row[0] for row in letters] == ["deadly"]
