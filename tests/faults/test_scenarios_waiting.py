"""Those who wait: what their waiting costs, and what wakes them when signals are lost or late."""

import asyncio
import json
import os
import signal
import sys
from datetime import datetime, timedelta

import pytest

from skep.jobs import JobClient, Worker
from tests.faults.support.clock import make_movable
from tests.faults.support.in_process import item, running
from tests.faults.support.load import now
from tests.jobs.support.shop import new_stage, price, shop
from tests.sql.support.waiting import eventually
from tests.support.broker import elapsed

POLLS, PARTITIONS = 1_000, 10_000
SETTLING_S, WATCHED_S = 2, 3
CALLS_PER_S_MAX = 20
SLACK_S = 8


async def test_scenario_18_a_thousand_idle_polls_ask_the_database_almost_nothing(proxy, sql, queue):
    provide = "select count(*) from skep.provision_partitions($1, $2)"
    await sql.fetch(provide, [queue] * PARTITIONS, [f"{number}" for number in range(PARTITIONS)])
    async with running(proxy.url) as broker:
        polls = [
            broker.start_poll(queue if number % 2 else f"{queue}-{number % 50}", wait_s=60)
            for number in range(POLLS)
        ]
        await eventually(lambda: len(broker.long_polls) == POLLS)
        await asyncio.sleep(SETTLING_S)
        before = proxy.calls.total()
        await asyncio.sleep(WATCHED_S)
        calls_per_s = (proxy.calls.total() - before) / WATCHED_S
        still_parked = len(broker.long_polls)
        for poll in polls:
            broker.broker.pop.pop.abort(poll)

    assert still_parked == POLLS
    assert calls_per_s < CALLS_PER_S_MAX, proxy.calls


# Scenario 19: everything that makes a message deliverable wakes who waits for it


@pytest.fixture(scope="module")
def sleepy_broker(start_broker):
    """A broker whose polls look for themselves only once a minute: who is answered was woken."""
    with start_broker(
        "--workers", "1", poll_interval_ms=60_000, poll_interval_ms_max=60_000
    ) as broker:
        yield broker


class Waiting:
    """A connection that parks polls, and one that makes something happen."""

    def __init__(self, parked, acting, queue):
        self.parked = parked
        self.acting = acting
        self.queue = queue

    async def push(self):
        await self.acting.push_payloads(self.queue, "x")

    async def push_and_take(self):
        await self.push()
        (message,) = await self.acting.pop(self.queue, leaseSeconds=300)
        return message

    async def post(self, path, body):
        answer = await self.acting.post(path, body)
        assert answer.status == 200, answer
        return json.loads(answer.body)


async def by_push(waiting):
    yield None
    yield await waiting.push()


async def by_nack(waiting):
    message = await waiting.push_and_take()
    yield None
    yield await waiting.acting.ack(message, status="retry")


async def by_seek(waiting):
    await waiting.acting.ack(await waiting.push_and_take())
    yield None
    group = "__QUEUE_MODE__"
    path = f"/api/v1/consumer-groups/{group}/queues/{waiting.queue}/seek"
    yield await waiting.post(path, {"toStart": True})


async def by_replay(waiting):
    await waiting.acting.ack(await waiting.push_and_take(), status="dlq")
    listed = await waiting.acting.call("GET", f"/api/v1/dlq?queue={waiting.queue}")
    letter = json.loads(listed.body)["messages"][0]["dlqId"]
    yield None
    yield await waiting.post(f"/api/v1/dlq/{letter}/replay", {})


async def by_drain(waiting):
    await waiting.post("/api/v1/system/maintenance", {"enabled": True})
    await waiting.push()
    yield None
    yield await waiting.post("/api/v1/system/maintenance", {"enabled": False})


@pytest.mark.parametrize("cause", [by_push, by_nack, by_seek, by_replay, by_drain])
async def test_scenario_19_what_makes_a_message_deliverable_wakes_a_parked_poll(
    sleepy_broker, queue, cause
):
    async with sleepy_broker.connect() as parked, sleepy_broker.connect() as acting:
        waiting = Waiting(parked, acting, queue)
        steps = cause(waiting)
        await anext(steps)
        parked.send_poll(queue, wait=True, timeout=20_000, autoAck=True)
        await until_parked(waiting)

        await anext(steps)

        assert len(await parked.popped()) == 1
        await steps.aclose()


async def until_parked(waiting):
    """Return when the poll has looked once: the answer to a later request says so."""
    assert await waiting.acting.pop(waiting.queue, "no such partition") == []


async def test_scenario_19_the_end_of_a_lease_wakes_a_parked_poll(open_client, queue):
    holder, parked = await open_client(), await open_client()
    await holder.push_payloads(queue, "x")
    asked_at = now()
    await holder.pop(queue, leaseSeconds=1)
    leased_at = now()

    messages = await parked.pop(queue, wait=True, timeout=9_000, autoAck=True)

    assert len(messages) == 1
    assert now() >= asked_at + 1, "the lease was still held"
    assert now() - leased_at < 1 + SLACK_S


async def test_scenario_19_a_message_that_falls_due_wakes_a_parked_poll(open_client, queue):
    producer, parked = await open_client(), await open_client()
    parked.send_poll(queue, wait=True, timeout=9_000, autoAck=True)
    asked_at = now()
    await producer.push({"queue": queue, "payload": "x", "delaySeconds": 1})
    scheduled_at = now()

    messages = await parked.popped()

    assert len(messages) == 1
    assert now() >= asked_at + 1, "it was not due yet"
    assert now() - scheduled_at < 1 + SLACK_S


async def test_scenario_19_without_hints_a_poll_looks_by_itself(database_url, queue):
    floor_s = 1.0
    async with running(database_url) as waits, running(database_url) as pushes:
        await pushes.push(item(queue, "0"))
        await waits.pop(queue, auto_ack=True)
        poll = waits.start_poll(queue, wait_s=20, auto_ack=True)
        await eventually(lambda: len(waits.long_polls) == 1)
        with elapsed() as waited:
            # These two know nothing of each other.
            await pushes.push(item(queue, "1"))
            messages = await poll.answered

    assert [message["transactionId"] for message in messages] == ["1"]
    assert waited.seconds < floor_s + SLACK_S


async def test_scenario_19_the_end_of_maintenance_does_not_wait_for_the_next_look_at_the_spool(
    database_url, queue, tmp_path, monkeypatch
):
    monkeypatch.setattr("skep.broker.failover.drain.CHECK_S", 60)
    spool = {"spill_bytes_max": 1 << 20, "spill_dir": tmp_path}
    async with running(database_url, **spool) as broker:
        await broker.broker.failover.maintenance.set_mode("push", enabled=True)
        (result,) = await broker.push(item(queue, "x"))
        await broker.broker.failover.maintenance.set_mode("push", enabled=False)
        messages = await broker.pop(queue, wait_s=15, auto_ack=True)

    assert result["status"] == "buffered"
    assert [message["transactionId"] for message in messages] == ["x"]


# Scenario 20: LISTEN is what job workers use; brokers hear datagrams, which scenario 19 takes away

# Stopped before it waits for its client it would hold locks that everybody needs.
LISTENING = """
select pid from pg_stat_activity
where application_name = 'skep-listen' and wait_event = 'ClientRead'
"""


@pytest.mark.skipif(sys.platform != "linux", reason="stops a process of PostgreSQL")
async def test_scenario_20_a_silent_listener_delays_jobs_and_stops_none(database_url, sql):
    stage = new_stage()
    async with JobClient(database_url, types=[shop]) as client:
        worker = Worker(client, [shop], lease_s=3.0, poll_s=1.0, concurrency=5)
        await worker.start()
        pids = await eventually(lambda: pids_of(sql, LISTENING))
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)  # its connection stands, and says nothing
            chain = await client.start(price, 7)
            await eventually(lambda: stage.seen)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        result = await chain.result(timeout=30)
        await worker.stop(grace_s=1)

    assert result == 7


async def pids_of(sql, query):
    return [row[0] for row in await sql.fetch(query)]


# Scenario 21: clocks


def skewed(seconds):
    """A class of points in time whose present is off."""

    class Skewed(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(seconds=seconds)

    return Skewed


@pytest.mark.parametrize("skew_s", [600, -600])
async def test_scenario_21_the_clock_of_a_broker_decides_about_no_lease(
    database_url, sql, queue, skew_s, monkeypatch
):
    for module in (
        "skep.broker.pop.execute",
        "skep.broker.pop.batches",
        "skep.app.parts.core",
    ):
        monkeypatch.setattr(f"{module}.datetime", skewed(skew_s))
    clock = await make_movable(sql)
    async with running(database_url) as one, running(database_url) as other:
        await one.configure(queue, leaseTime=60, delayedProcessing=10)
        await one.push(item(queue, "x"))
        early = await other.pop(queue)
        await clock.move(11)
        held = await one.pop(queue)
        while_held = await other.pop(queue)
        await clock.move(61)
        after = await other.pop(queue)

    assert (early, while_held) == ([], [])
    assert [message["transactionId"] for message in (*held, *after)] == ["x", "x"]
    assert held[0]["leaseId"] != after[0]["leaseId"]


async def test_scenario_21_a_database_clock_that_steps_back_shortens_no_lease(
    database_url, sql, queue
):
    clock = await make_movable(sql)
    async with running(database_url) as one, running(database_url) as other:
        await one.configure(queue, leaseTime=30)
        await one.push(item(queue, "1"))
        held = await one.pop(queue)
        await clock.move(-5)
        await other.push(item(queue, "2"))
        while_held = await other.pop(queue)
        await clock.move(31)
        almost = await other.pop(queue)
        await clock.move(5)
        after = await other.pop(queue, batch=10)
    query = 'select "offset", created_at from skep.message order by "offset"'
    stored = [tuple(row) for row in await sql.fetch(query)]

    assert len(held) == 1
    assert while_held == []
    assert [message["transactionId"] for message in (*almost, *after)][-2:] == ["1", "2"]
    assert [offset for offset, _ in stored] == [1, 2]
    assert stored[0][1] <= stored[1][1]
