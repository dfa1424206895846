"""Nothing runs, waits or stays open in the database for longer than it may."""

import json
from contextlib import AsyncExitStack

import pytest

from skep.app.parts.core import PATIENCE_S
from tests.sql.support.waiting import eventually
from tests.support.broker import elapsed, payloads

WAITING = """
select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock'
  and application_name = 'skep worker 0 queries'
"""
LOCK_QUEUES = "lock table skep.queue in access exclusive mode"
TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", lock_timeout_s=TIMEOUT_S) as broker:
        yield broker


async def test_a_listing_that_waits_for_a_lock_too_long_is_given_up(broker, client):
    async with broker.sql() as sql, sql.transaction():
        await sql.execute(LOCK_QUEUES)
        with elapsed() as waited:
            answer = await client.call("GET", "/api/v1/resources/queues")

    assert answer.status == 503
    assert "55P03" in json.loads(answer.body)["error"]
    assert TIMEOUT_S <= waited.seconds < PATIENCE_S


@pytest.fixture(scope="module")
def patient_broker(start_broker):
    with start_broker("--workers", "1", query_connections=1, lock_timeout_s=60) as broker:
        yield broker


async def test_the_statement_of_a_client_that_is_gone_ends(patient_broker):
    broker = patient_broker
    async with broker.sql() as sql, broker.sql() as observer, sql.transaction():
        await sql.execute(LOCK_QUEUES)
        async with broker.connect() as leaving:
            leaving.request("GET", "/api/v1/resources/queues")
            await eventually(lambda: observer.fetchval(WAITING))
        with elapsed() as waited:
            await eventually(lambda: _is_zero(observer.fetchval(WAITING)))

    assert waited.seconds < PATIENCE_S - 2, "it ended by a timeout of its own"
    async with broker.connect() as client:
        assert (await client.call("GET", "/api/v1/resources/queues")).status == 200


async def test_listings_that_hang_stop_neither_messages_nor_the_leader(patient_broker, queue):
    broker, limited = patient_broker, f"{queue}-limited"
    expiry = "select expires_at from skep.leadership"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        sql, observer = await enter(broker.sql()), await enter(broker.sql())
        client, consumer = await enter(broker.connect()), await enter(broker.connect())
        listings = [await enter(broker.connect()) for _ in range(2)]
        await client.configure(limited, {"maxSize": 10})
        await client.push_payloads(queue, 1)
        await client.pop(queue)
        await enter(sql.transaction())
        await sql.execute("lock table skep.trace_name_total in access exclusive mode")
        for listing in listings:
            listing.request("GET", "/api/v1/traces/names")
        await eventually(lambda: observer.fetchval(WAITING))
        leads_until = await eventually(lambda: observer.fetchval(expiry))

        consumer.send_poll(queue, wait=True, timeout=20_000)
        assert await client.pop(queue) == []  # so the other one waits
        await broker.end_leases(queue)  # no wake-up tells of it: only a sweep finds it

        with elapsed() as waited:
            assert payloads(await consumer.popped()) == [1]
        await client.push_payloads(limited, 1)
        assert (await client.call("GET", "/readyz")).status == 200
        await eventually(lambda: _is_later(observer.fetchval(expiry), leads_until))
        assert await observer.fetchval(WAITING), "the listings ended before the rest was done"

    assert waited.seconds < PATIENCE_S


async def _is_later(reading, then):
    return await reading > then


async def _is_zero(counting):
    return await counting == 0


async def test_the_write_of_a_client_that_is_gone_is_done(patient_broker, queue):
    broker = patient_broker
    async with broker.sql() as sql, broker.sql() as observer:
        async with sql.transaction():
            await sql.execute(LOCK_QUEUES)
            async with broker.connect() as leaving:
                body = json.dumps({"queue": queue, "options": {"leaseTime": 77}}).encode()
                leaving.request("POST", "/api/v1/configure", body)
                await eventually(lambda: observer.fetchval(WAITING))
        lease_time = "select lease_time_s from skep.queue where name = $1"

        assert await eventually(lambda: observer.fetchval(lease_time, queue)) == 77
