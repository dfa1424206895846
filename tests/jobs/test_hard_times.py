"""Workers when much is to be done, much goes wrong, or they are to stop."""

import asyncio
import os
import sys
from random import Random, SystemRandom

import pytest

from skep.db.access.errors import NotExecuted, OutcomeUnknown
from skep.jobs import Start
from skep.jobs.errors import ChainFailed
from skep.jobs.identifiers import new_id
from skep.jobs.store import CLAIM_CALL, SETTLE_CALL
from tests.jobs.support.shop import Order, atomic, break_down, charge, hold, new_stage, price
from tests.sql.support.chains import STRANDED
from tests.sql.support.waiting import eventually
from tests.support.sizes import sized

OPEN_JOBS = "select count(*) from skep.open_job"


async def all_ended(sql):
    return await sql.fetchval(OPEN_JOBS) == 0


@pytest.fixture
def claims(monkeypatch, client):
    """The calls by which workers claimed, as the numbers of jobs that they asked for."""
    from skep.db.access.slots import Slots

    call, asked = Slots.call, []

    async def counted(slots, statement, *arguments):
        if statement == CLAIM_CALL:
            asked.append(arguments[2])
        return await call(slots, statement, *arguments)

    monkeypatch.setattr(Slots, "call", counted)
    return asked


async def test_case_28_a_busy_worker_takes_back_what_others_lost(client, start_worker, sql):
    stage = new_stage()
    await start_worker(concurrency=1)
    held = await client.start(hold, 1)
    await stage.entered.wait()
    chain = await client.start(price, 1)
    await sql.execute("select skep.job_worker_enroll($1, 'gone', 60)", gone := new_id())
    type_id = await sql.fetchval("select id from skep.job_type where name = 'price'")
    assert len(await sql.fetch("select * from skep.job_claim($1, $2, 1)", gone, [type_id])) == 1
    await sql.execute("update skep.job_worker set expires_at = skep.now() where id = $1", gone)

    outcome = "select outcome from skep.job_attempt where job_id = $1"
    assert await eventually(lambda: sql.fetchval(outcome, chain.id)) == "lost"

    stage.may_leave.set()
    assert await held.result(timeout=20) == "left"
    assert await chain.result(timeout=20) == 1


async def test_case_37_a_burst_of_jobs_is_claimed_in_few_calls(client, start_worker, sql, claims):
    new_stage()
    count = sized(1_000, large=10_000)
    for _ in range(3):
        await start_worker(concurrency=100, poll_s=60)

    for _ in range(count // 500):
        await client.start_many([Start(price, n) for n in range(500)])
    await eventually(lambda: all_ended(sql))

    # A quarter of the slots or more per claim, and some looks that find nothing.
    assert len(claims) < count / 25 + 3 * 20


async def test_a_slot_that_becomes_free_is_not_left_idle(client, start_worker, sql, claims):
    """One slot of eight is no quarter of them; jobs go through it all the same."""
    stage = new_stage()
    await start_worker(concurrency=8, poll_s=60)
    held = await client.start_many([Start(hold, n) for n in range(7)])
    await stage.entered.wait()

    chains = await client.start_many([Start(price, n) for n in range(20)])

    assert [await chain.result(timeout=20) for chain in chains] == list(range(20))
    stage.may_leave.set()
    assert {await chain.result(timeout=20) for chain in held} == {"left"}


async def test_case_39_a_long_backlog_does_not_delay_the_end(client, start_worker, sql):
    """Once told to stop a worker claims nothing more, however much there is."""
    new_stage()
    worker = await start_worker(concurrency=5)
    await client.start_many([Start(price, n) for n in range(1_000)])

    await eventually(lambda: worker.running > 0)
    await worker.stop()

    assert await sql.fetchval(OPEN_JOBS) > 0
    assert await sql.fetchval("select count(*) from skep.open_job where worker_id is not null") == 0


@pytest.mark.parametrize("job", [price, atomic])
async def test_case_38_calls_that_fail_at_random_harm_no_job(
    client, start_worker, sql, monkeypatch, job
):
    """A call may fail before it reached the server, or after: then it has happened."""
    seed = os.environ.get("SKEP_CHAOS_SEED") or str(SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"SKEP_CHAOS_SEED={seed}\n")
    chance = Random(seed)
    stage, failed = new_stage(), []
    await sql.execute("create table note (value int)")
    numbers = range(sized(40, large=1_000))
    chains = await client.start_many([Start(job, n) for n in numbers])
    worker = await start_worker(concurrency=10, poll_s=0.1, lease_s=1.0)
    call = worker._slots.call

    async def call_or_fail(statement, *arguments):
        # The first one in any case: jobs are done in so few calls that chance may spare them all.
        dice = chance.random() if failed else 0.0
        if dice < 0.1:
            failed.append(statement)
            raise NotExecuted
        rows = await call(statement, *arguments)
        if dice < 0.2:
            failed.append(statement)
            raise OutcomeUnknown
        return rows

    monkeypatch.setattr(worker._slots, "call", call_or_fail)

    async with asyncio.timeout(60):
        assert [await chain.result() for chain in chains] == list(numbers)
    if job is atomic:
        assert await sql.fetchval("select array_agg(value order by value) from note") == list(
            numbers
        )
    else:
        assert set(stage.seen) == set(numbers)
    assert await sql.fetch(STRANDED) == []
    assert failed


async def test_case_38_defect_v11_the_pause_after_a_failure_is_short_again_after_a_success(
    client, start_worker, monkeypatch
):
    new_stage()
    worker = await start_worker(poll_s=0.01)
    call, pauses = worker._slots.call, []
    is_away = [True, True, True, False, True, False]

    async def call_or_fail(statement, *arguments):
        if statement == CLAIM_CALL and is_away and is_away.pop(0):
            raise NotExecuted
        return await call(statement, *arguments)

    async def rest(seconds):
        pauses.append(seconds)
        await asyncio.sleep(0.001)

    monkeypatch.setattr(worker._slots, "call", call_or_fail)
    monkeypatch.setattr(worker, "_rest", rest)
    worker.hurry()
    await client.start(charge, Order(1))

    await eventually(lambda: not is_away)
    failures = [seconds for seconds in pauses if seconds >= 0.2]
    assert failures == [0.2, 0.4, 0.8, 0.2]


async def test_case_27_a_job_whose_worker_is_killed_each_time_fails_in_the_end(
    client, start_worker, sql
):
    """The attempts of a worker that is gone count, so nothing is tried for ever."""
    chain = await client.start(price, 1)
    type_id = await sql.fetchval("select id from skep.job_type where name = 'price'")
    for _ in range(3):
        await sql.execute("select skep.job_worker_enroll($1, 'gone', 0)", gone := new_id())
        claimed = await sql.fetch("select * from skep.job_claim($1, $2, 1)", gone, [type_id])
        assert claimed[0]["job_id"] == chain.id
        await sql.fetch("select * from skep.job_reap(10)")

    assert await sql.fetchval("select state from skep.chain where id = $1", chain.id) == "failed"


@pytest.mark.parametrize("words", ["a\0b", "new\nline"])
async def test_an_error_that_cannot_be_stored_is_an_error_all_the_same(client, start_worker, words):
    new_stage()
    await start_worker()
    chain = await client.start(break_down, words)

    with pytest.raises(ChainFailed, match="RuntimeError"):
        await chain.result(timeout=20)


async def test_settlements_leave_in_few_calls(client, start_worker, sql, monkeypatch):
    new_stage()
    await client.start_many([Start(price, n) for n in range(400)])
    worker = await start_worker(concurrency=200)
    call, settled = worker._slots.call, []

    async def counted(statement, *arguments):
        if statement == SETTLE_CALL:
            settled.append(len(arguments[1]))
        return await call(statement, *arguments)

    monkeypatch.setattr(worker._slots, "call", counted)

    await eventually(lambda: all_ended(sql))

    assert len(settled) < 100
