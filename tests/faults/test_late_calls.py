"""The connection breaks while the server is still at work on the call, or before it begins.

A server does not notice at once that its client is gone: it goes on with the call it has, commits
it, and only then finds nobody to answer. A repetition that overtakes it must not be undone by it.
"""

import asyncio

import pytest

from skep.model.errors import Unavailable
from tests.faults.support.in_process import item, running
from tests.sql.support.waiting import eventually

LEASED_OR_NOT = pytest.mark.parametrize("auto_ack", [False, True], ids=["leased", "auto-acked"])
PUSH = "skep.push_"
POP = "skep.pop_messages("


async def stored(sql):
    query = 'select transaction_id from skep.message order by partition, "offset"'
    return [row[0] for row in await sql.fetch(query)]


def names(messages):
    return [message["transactionId"] for message in messages]


async def stall_commits(sql, table):
    """Make transactions that touch a table wait at their commit, while the lock is held."""
    await sql.execute(
        f"""
        create function public.stall() returns trigger language plpgsql as
          'begin perform pg_advisory_xact_lock_shared(1); return null; end';
        create constraint trigger stall after insert or update on skep.{table}
          deferrable initially deferred for each row execute function public.stall();
        """
    )


async def waiting_sessions(sql):
    return {row[0] for row in await sql.fetch("select pid from pg_locks where not granted")}


@LEASED_OR_NOT
async def test_a_claim_that_commits_after_the_break_is_found_all_the_same(proxy, sql, auto_ack):
    async with running(proxy.url) as broker:
        await broker.push(item("hive", "1"))
        await broker.pop("hive", group="warm up")
        await stall_commits(sql, "cursor")
        await sql.execute("select pg_advisory_lock(1)")
        poll = broker.start_poll("hive", auto_ack=auto_ack, wait_s=2)
        stalled = await eventually(lambda: waiting_sessions(sql))

        proxy.cut_all()
        await eventually(lambda: _is_parked_or_another_waits(broker, sql, stalled))
        await sql.execute("select pg_advisory_unlock(1)")
        messages = await poll.answered

    assert names(messages) == ["1"]


async def _is_parked_or_another_waits(broker, sql, stalled):
    return len(broker.long_polls) == 1 or await waiting_sessions(sql) - stalled


async def test_a_push_that_commits_after_the_break_is_stored_once(proxy, sql):
    async with running(proxy.url) as broker:
        await broker.configure("hive", dedupWindowSeconds=0)
        await broker.push(item("hive", "1"))
        await stall_commits(sql, "segment")
        await sql.execute("select pg_advisory_lock(1)")
        pushing = asyncio.ensure_future(broker.push(item("hive", "2")))
        stalled = await eventually(lambda: waiting_sessions(sql))

        proxy.cut_all()
        await eventually(lambda: _another_waits(sql, stalled))
        await sql.execute("select pg_advisory_unlock(1)")
        (result,) = await pushing

    assert result["status"] == "queued"
    assert await stored(sql) == ["1", "2"]


async def _another_waits(sql, stalled):
    return await waiting_sessions(sql) - stalled


@pytest.mark.parametrize("window_s", [3600, 0])
async def test_a_push_that_arrives_after_it_was_repeated_is_stored_once(proxy, sql, window_s):
    async with running(proxy.url) as broker:
        await broker.configure("hive", dedupWindowSeconds=window_s)
        await broker.push(item("hive", "1"))
        fault = proxy.at_next(PUSH, "late")

        (result,) = await broker.push(item("hive", "2"))
        fault.released.set()
        await fault.over.wait()

    assert result["status"] == "queued"
    assert await stored(sql) == ["1", "2"]


@LEASED_OR_NOT
async def test_a_claim_that_arrives_after_it_was_repeated_takes_nothing(proxy, sql, auto_ack):
    async with running(proxy.url) as broker:
        await broker.push(item("hive", "1"), item("hive", "2", partition="b"))
        await broker.pop("hive", group="warm up")
        fault = proxy.at_next(POP, "late")

        first = await broker.pop("hive", auto_ack=auto_ack)
        fault.released.set()
        await fault.over.wait()
        second = await broker.pop("hive", auto_ack=auto_ack)

    assert sorted(names(first) + names(second)) == ["1", "2"]


@LEASED_OR_NOT
@pytest.mark.parametrize("connections", [1, 2])
async def test_a_claim_that_arrives_after_its_poll_was_refused_is_given_back(
    proxy, sql, monkeypatch, caplog, auto_ack, connections
):
    monkeypatch.setattr("skep.app.parts.core.PATIENCE_S", 0.2)
    async with running(proxy.url, connections=connections) as broker:
        await broker.push(item("hive", "1"))
        await open_connections(broker, proxy, connections)
        fault = proxy.at_next(POP, "late")
        proxy.shut_door()
        poll = broker.start_poll("hive", auto_ack=auto_ack)
        with pytest.raises(Unavailable):
            await poll.answered
        await eventually(lambda: caplog.text.count("gave up 1 units") >= 2)  # it, and its undoing

        fault.released.set()
        await fault.over.wait()
        proxy.open_door()
        (message,) = await broker.pop("hive", wait_s=30)

    assert (message["transactionId"], message["deliveryAttempt"]) == ("1", 1)


async def open_connections(broker, proxy, count):
    """Let the broker have one or two connections for messages."""
    await broker.pop("hive", group="warm up")
    if count > 1:
        fault = proxy.at_next(POP, "hold")
        held = broker.start_poll("hive", group="warm up")
        await fault.struck.wait()
        await broker.pop("hive", group="other")
        fault.released.set()
        await held.answered
    assert broker.broker.core.hot.connected_count == count


async def test_the_next_claim_does_not_bury_one_that_was_acknowledged_for_a_client_that_is_gone(
    proxy, sql
):
    async with running(proxy.url) as broker:
        await broker.push(item("hive", "1"), item("hive", "2"))
        await open_connections(broker, proxy, 2)
        claim, next_claim = proxy.at_next(POP, "hold"), proxy.at_next(POP, "hold")
        release = proxy.at_next("skep.release_claims(", "hold")
        gone = broker.start_poll("hive", auto_ack=True)
        await claim.struck.wait()
        broker.broker.pop.pop.abort(gone)
        poll = broker.start_poll("hive", auto_ack=True)

        claim.released.set()
        await release.struck.wait()
        next_claim.released.set()
        first = await poll.answered
        release.released.set()
        second = await broker.pop("hive", auto_ack=True)

    assert sorted(names(first) + names(second)) == ["1", "2"]
