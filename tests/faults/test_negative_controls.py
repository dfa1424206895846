"""A checker that finds nothing proves something only if it finds what was planted."""

import asyncio

import pytest

from tests.faults.support.in_process import item, running
from tests.faults.support.instances import instance
from tests.faults.support.ledger import Attempt, Delivery, Ledger, Stored, complaints
from tests.faults.support.load import DRAIN_S, GROUP, PARTITIONS, load_on
from tests.faults.support.planted_bugs import (
    UNLOCKED_PUSH,
    forgotten_ack,
    planted,
    provide_partitions,
    shared_lease,
)
from tests.sql.support.waiting import eventually

MESSAGES = 300
ROUNDS = 6
# Few, so that producers meet in them all the time, also where everything is slow.
FEW = PARTITIONS[:2]
PUSHES = ("push_segments", "push_guaranteed", "push_contested", "push_to_poll")
STALL = """
create or replace function public.stall() returns trigger language plpgsql as $$
begin
  if position('slow' in convert_from(new.body, 'UTF8')) > 0 then
    perform pg_advisory_xact_lock(1);
  end if;
  return new;
end $$;
create trigger stall before insert on skep.segment for each row execute function public.stall();
"""
WAITING = "select count(*) from pg_locks where not granted"


@pytest.fixture(scope="module")
def broker(start_broker):
    """Two workers push into the same partitions; without that no lock is missed."""
    with start_broker("--workers", "2") as broker:
        yield broker


async def offences_under_load(broker, queue, seed, *, drain_s=DRAIN_S):
    async with load_on(broker, queue, seed, drain_s=drain_s, partitions=FEW) as load:
        await load.until_stored(MESSAGES)
        await load.drain()
    return {offence.split(":")[0].split(" Ack(")[0] for offence in complaints(load.ledger, [GROUP])}


async def offences_in_rounds(broker, queue, seed, is_caught, *, before_round=None):
    """A planted bug strikes when two meet, and the more seldom the busier the machine: it gets a
    few chances."""
    offences = set()
    for number in range(ROUNDS):
        queue_of_round = f"{queue}-{number}"
        if before_round is not None:
            await before_round(queue_of_round)
        # What a bug has lost does not come, however long one waits.
        offences |= await offences_under_load(broker, queue_of_round, f"{seed} {number}", drain_s=8)
        if is_caught(offences):
            break
    return offences


async def test_the_checker_accepts_the_build_as_it_is(broker, queue, seed):
    assert await offences_under_load(broker, queue, seed) == set()


async def test_the_checker_catches_a_build_without_the_lock_of_the_partition(
    database_url, queue, seed
):
    def is_caught(offences):
        return bool(offences & {"lost", "disorder"})

    # The broker is the test's own, because it may well log what it makes of such a database.
    with instance(database_url, "--workers", "2") as broker:
        async with broker.sql() as sql, planted(sql, UNLOCKED_PUSH, *PUSHES):
            offences = await offences_in_rounds(
                broker,
                queue,
                seed,
                is_caught,
                before_round=lambda of_round: provide_partitions(sql, of_round, FEW),
            )

    assert is_caught(offences)


async def test_the_checker_catches_a_build_that_leases_a_partition_twice(broker, queue, seed):
    def is_caught(offences):
        return any(offence.startswith("two leases at once") for offence in offences)

    async with broker.sql() as sql, planted(sql, shared_lease(), "take_partitions"):
        offences = await offences_in_rounds(broker, queue, seed, is_caught)

    assert is_caught(offences)


async def test_the_checker_catches_a_build_that_forgets_an_ack(broker, queue, seed):
    async with (
        broker.sql() as sql,
        planted(sql, forgotten_ack(), "complete_lease", "complete_leases"),
    ):
        offences = await offences_in_rounds(
            broker, queue, seed, lambda offences: "delivered after" in offences
        )

    assert "delivered after" in offences


# Scenario 1: somebody takes an offset and commits late


async def race(database_url, sql, queue):
    """One push stops between its offset and its commit while another overtakes it, if it can."""
    ledger = Ledger()
    ledger.attempts += [Attempt("a", "slow", "1", 1), Attempt("a", "quick", "2", 1)]
    async with running(database_url) as one, running(database_url) as other:
        await one.pop(queue, group=GROUP)
        await sql.execute(STALL)
        await sql.execute("select pg_advisory_lock(1)")
        slow = asyncio.ensure_future(one.push(item(queue, "slow", payload=b'"slow"')))
        await eventually(lambda: sql.fetchval(WAITING))
        quick = asyncio.ensure_future(other.push(item(queue, "quick")))
        await eventually(lambda: is_overtaken_or_blocked(sql, quick))
        await consume(ledger, other, queue)
        await sql.execute("select pg_advisory_unlock(1)")
        for (result,) in (await slow, await quick):
            name = result["transaction_id"]
            ledger.stored.append(Stored("a", name, result["message_id"]))
        await consume(ledger, other, queue)
    return ledger


async def is_overtaken_or_blocked(sql, quick):
    return quick.done() or await sql.fetchval(WAITING) > 1


async def consume(ledger, broker, queue):
    while messages := await broker.pop(queue, group=GROUP, batch=10):
        now = asyncio.get_running_loop().time()
        ledger.deliveries += [
            Delivery(GROUP, "a", each["id"], each["transactionId"], each["leaseId"], 300, now, now)
            for each in messages
        ]
        await broker.ack(messages[-1])


async def test_scenario_01_a_push_that_commits_late_is_delivered(database_url, sql, queue):
    ledger = await race(database_url, sql, queue)

    assert complaints(ledger, [GROUP]) == []
    assert [each.transaction_id for each in ledger.deliveries] == ["slow", "quick"]


async def test_scenario_01_without_the_lock_the_push_that_commits_late_is_lost(
    database_url, sql, queue
):
    await provide_partitions(sql, queue, ["a"])
    async with planted(sql, UNLOCKED_PUSH, *PUSHES):
        ledger = await race(database_url, sql, queue)

    assert [each.transaction_id for each in ledger.deliveries] == ["quick"]
    lost = [each for each in complaints(ledger, [GROUP]) if each.startswith("lost: ")]
    assert len(lost) == 1
    assert "slow" in lost[0]
