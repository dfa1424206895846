"""Chains from start to result, through a real worker."""

import asyncio
import os

import pytest

from skep.db.access import transactions
from skep.db.access.transactions import TransactionPool
from skep.jobs import ChainFilter, Continue, Ctx, JobFilter, JobTypes, Start
from skep.jobs.errors import ChainCancelled, ChainFailed, ChainNotFound, ResultTimeout
from skep.jobs.identifiers import new_id
from tests.jobs.support.shop import (
    Basket,
    Order,
    Weight,
    atomic,
    break_down,
    charge,
    count_down,
    give_up,
    hold,
    in_process,
    in_thread,
    later,
    limited,
    new_stage,
    price,
    shop,
    slow,
    staged,
    total,
    weigh,
)
from tests.sql.support.chains import STRANDED
from tests.sql.support.waiting import eventually
from tests.support.sizes import sized


@pytest.fixture
def worker(arun, start_worker):
    return arun(start_worker())


@pytest.fixture
def notes(arun, sql):
    """A table of the user, and what is in it."""
    arun(sql.execute("create table note (value int)"))

    async def notes():
        return [row[0] for row in await sql.fetch("select value from note order by value")]

    return notes


async def result_of(chain):
    return await chain.result(timeout=20)


async def attempts_of(client, chain):
    return [each.outcome for each in await client.inspection.attempts(chain.id)]


async def test_a_chain_of_two_steps_yields_what_the_last_returns(client, worker):
    chain = await client.start(charge, Order(7))

    assert await result_of(chain) == "7 shipped for receipt 7"


async def test_a_job_can_continue_with_itself(client, worker):
    assert await result_of(await client.start(count_down, 4)) == "done at position 4"


async def test_models_of_pydantic_are_read_and_written(client, worker):
    assert await result_of(await client.start(weigh, Weight(grams=4))) == Weight(grams=8)


async def test_case_17_outputs_of_blockers_arrive_typed(client, worker):
    parts = [await client.start(price, number) for number in (1, 2, 3)]

    chain = await client.start(total, Basket("three", [part.ref for part in parts]))

    assert await result_of(chain) == 6


async def test_a_job_may_run_although_a_chain_that_it_waited_for_failed(client, start_worker):
    types = JobTypes("tolerant")

    @types.job("tolerant")
    async def tolerant(ctx: Ctx[None, str]) -> str:
        (result,) = ctx.blocker_results()
        with pytest.raises(ChainFailed):
            ctx.value(ctx.blockers[0])
        return result.state

    await start_worker(shop, types)
    hopeless = await client.start(give_up, "no")
    chain = await client.start(tolerant, None, blockers=[hopeless.ref], on_blocker_failure="ignore")

    assert await result_of(chain) == "failed"


async def test_handlers_run_in_threads_and_processes(client, worker):
    new_stage()

    assert await result_of(await client.start(in_thread, 1)) == 2
    assert await result_of(await client.start(in_process, 0)) not in (0, os.getpid())


@pytest.mark.slow
async def test_case_05_every_job_is_handled_exactly_once_by_several_workers(
    client, start_worker, sql
):
    stage = new_stage()
    for _ in range(3):
        await start_worker(concurrency=50)
    numbers = range(sized(1500, large=10_000))
    for begin in range(0, len(numbers), 500):
        await client.start_many([Start(price, n) for n in numbers[begin : begin + 500]])

    open_jobs = "select count(*) from skep.open_job"
    await eventually(lambda: sql.fetchval(f"select not exists ({open_jobs} having count(*) > 0)"))

    assert sorted(stage.seen) == list(numbers)
    assert await sql.fetchval("select count(*) from skep.chain where state = 'completed'") == len(
        numbers
    )


async def test_case_21_a_job_is_tried_as_often_as_it_may_and_then_fails(client, worker):
    stage = new_stage()
    chain = await client.start(break_down, "no bees")

    with pytest.raises(ChainFailed, match="no bees"):
        await result_of(chain)

    assert stage.seen == [1, 2, 3]
    assert await attempts_of(client, chain) == ["failed"] * 3


async def test_a_handler_can_give_up_at_once(client, worker):
    chain = await client.start(give_up, "hopeless")

    with pytest.raises(ChainFailed, match="hopeless"):
        await result_of(chain)
    assert await attempts_of(client, chain) == ["failed"]


async def test_case_22_a_reschedule_is_no_failure(client, worker):
    chain = await client.start(later, 0.01)

    assert await result_of(chain) == "attempt 2, failures 0"
    assert await attempts_of(client, chain) == ["rescheduled", "completed"]


async def test_a_job_that_takes_too_long_is_stopped(client, worker):
    chain = await client.start(slow, None)

    with pytest.raises(ChainFailed, match="TimeoutError"):
        await result_of(chain)


async def test_a_limited_job_runs_alone(client, worker):
    stage = new_stage()
    chains = await client.start_many([Start(limited, n) for n in range(6)])

    assert [await result_of(chain) for chain in chains] == list(range(6))
    assert set(stage.seen) == {1}


async def test_case_24_an_sql_error_in_atomic_mode_undoes_everything_and_the_job_runs_again(
    client, worker, notes
):
    new_stage(**{"fails at attempt": 1})
    chain = await client.start(atomic, 5)

    assert await result_of(chain) == 5
    assert await notes() == [5]
    assert await attempts_of(client, chain) == ["failed", "completed"]


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize(
    ("breaks", "left"),
    [
        ("in prepare", [21, 22]),
        ("between", [11, 21, 22]),
        ("in complete", [11, 21, 22]),
        ("after complete", [11, 21, 22]),
    ],
)
async def test_case_23_what_a_staged_job_keeps_when_it_breaks(
    client, worker, notes, sql, breaks, left, continues
):
    """What `prepare` committed stays; what `complete` did is undone with the attempt."""
    new_stage(breaks=breaks, continues=continues)
    chain = await client.start(staged, 3)

    assert await result_of(chain) == 3

    assert await notes() == left
    assert await sql.fetchval("select count(*) from skep.job") == (2 if continues else 1)
    assert (await attempts_of(client, chain))[0] == "failed"


async def test_case_26_a_cancelled_job_is_told_and_writes_nothing(client, worker, notes):
    stage = new_stage()
    chain = await client.start(hold, 1)
    await stage.entered.wait()

    await client.cancel(chain.id, reason="not wanted")

    await eventually(lambda: stage.seen == ["cancelled"])
    with pytest.raises(ChainCancelled, match="not wanted"):
        await result_of(chain)


async def test_case_26_an_atomic_job_that_was_cancelled_keeps_nothing(client, worker, notes):
    stage = new_stage(holds=True)
    chain = await client.start(atomic, 9)
    await stage.entered.wait()

    await client.cancel(chain.id)
    await eventually(lambda: worker.running == 0)

    assert await notes() == []


async def test_case_29_a_job_that_is_completed_from_outside_stops_its_worker(client, worker):
    stage = new_stage()
    chain = await client.start(hold, 1)
    await stage.entered.wait()

    async with client.resolve(chain.id, hold) as pending:
        pending.finish("from outside")

    assert await result_of(chain) == "from outside"
    await eventually(lambda: worker.running == 0)
    assert stage.seen == ["completed"]


async def test_case_31_a_result_can_be_awaited_by_others_before_and_after(
    client, open_client, worker
):
    stage = new_stage()
    chain = await client.start(hold, 1)
    await stage.entered.wait()
    other = await open_client()
    waiting = asyncio.create_task(other.chain(hold, chain.id).result(timeout=20))
    with pytest.raises(ResultTimeout):
        await chain.result(timeout=0.05)

    stage.may_leave.set()

    assert await waiting == "left"
    assert await result_of(other.chain(hold, chain.id)) == "left"


async def test_case_31_a_chain_that_is_deleted_ends_the_wait(client):
    chain = await client.start(price, 1)
    waiting = asyncio.create_task(chain.result(timeout=20))
    await asyncio.sleep(0)

    await client.delete(chain.id)

    with pytest.raises(ChainNotFound):
        await waiting
    with pytest.raises(ChainNotFound):
        await client.chain(price, new_id()).result(timeout=20)


async def test_case_31_without_notifications_results_come_by_asking(start_worker, open_client):
    silent = await open_client(uses_notify=False, result_poll_s=0.05)
    await start_worker(client=silent, poll_s=0.05)

    chain = await silent.start(charge, Order(1))

    assert await result_of(chain) == "1 shipped for receipt 1"


async def test_case_39_a_worker_that_stops_returns_what_does_not_end_in_time(client, start_worker):
    stage = new_stage()
    worker = await start_worker()
    chain = await client.start(hold, 1)
    await stage.entered.wait()
    await client.start_many([Start(hold, n) for n in range(20)])

    await worker.stop(grace_s=0.05)

    jobs = await client.inspection.jobs(JobFilter())
    assert {job.state for job in jobs.items} == {"ready"}
    assert "shutdown" in stage.seen
    assert (await attempts_of(client, chain))[0] == "released"


async def test_case_39_a_job_that_ends_within_the_grace_is_completed(client, start_worker):
    stage = new_stage()
    worker = await start_worker()
    chain = await client.start(hold, 1)
    await stage.entered.wait()

    stopping = asyncio.create_task(worker.stop(grace_s=10))
    stage.may_leave.set()
    await stopping

    assert await result_of(chain) == "left"


async def test_case_36_a_worker_whose_listener_breaks_hears_again(client, worker, sql):
    new_stage()
    assert await result_of(await client.start(price, 1)) == 1

    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1"
    await sql.execute(cut, "skep-listen")

    assert await result_of(await client.start(price, 2)) == 2


async def test_case_38_a_worker_outlives_broken_connections(client, worker, sql):
    stage = new_stage()
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1"
    numbers = range(sized(30, large=1000))
    chains = await client.start_many([Start(price, n) for n in numbers])
    for _ in range(sized(3, large=100)):
        await sql.execute(cut, "skep-worker")
        await sql.execute(cut, "skep-jobs-upkeep")

    assert [await result_of(chain) for chain in chains] == list(numbers)
    assert set(stage.seen) == set(numbers)
    assert await sql.fetch(STRANDED) == []


async def test_case_27_a_worker_that_vanishes_loses_its_jobs_to_another(client, start_worker, sql):
    stage = new_stage()
    chain = await client.start(price, 1)
    await sql.execute("select skep.job_worker_enroll($1, 'gone', 0)", gone := new_id())
    (type_id,) = [
        row[1] for row in await sql.fetch("select * from skep.job_type_ensure('{price}')")
    ]
    assert len(await sql.fetch("select * from skep.job_claim($1, $2, 1)", gone, [type_id])) == 1

    await start_worker()

    assert await result_of(chain) == 1
    assert stage.seen == [1]
    assert await attempts_of(client, chain) == ["lost", "completed"]


async def test_a_worker_that_lost_its_lease_begins_anew(client, worker, sql):
    new_stage()
    before = worker.worker_id
    await sql.execute("delete from skep.job_worker")

    chain = await client.start(price, 1)

    assert await result_of(chain) == 1
    assert worker.worker_id != before


async def test_a_handler_that_blocks_the_loop_does_not_cost_the_lease(client, start_worker, sql):
    """The upkeep renews from a thread of its own while the worker's loop stands still."""
    worker = await start_worker(lease_s=0.6)
    query = "select expires_at from skep.job_worker where id = $1"
    before = await sql.fetchval(query, worker.worker_id)

    def until_renewed():
        # A blocking look, from the loop that the worker lives on.
        import psycopg

        with psycopg.connect(client.dsn, autocommit=True) as other:
            while (
                other.execute(
                    "select expires_at from skep.job_worker where id = %s", [worker.worker_id]
                ).fetchone()[0]
                == before
            ):
                pass

    until_renewed()

    assert await sql.fetchval(query, worker.worker_id) > before


async def test_lists_show_chains_and_jobs(client, worker):
    chain = await client.start(charge, Order(1), key="order 1")
    await result_of(chain)

    (row,) = (await client.inspection.chains(ChainFilter(key="order 1"))).items
    assert (row.id, row.state, row.job_count) == (chain.id, "completed", 2)
    assert bytes(row.output) == b'"1 shipped for receipt 1"'
    jobs = await client.inspection.jobs(JobFilter(chain_id=chain.id), descending=False)
    assert [(job.type, job.state) for job in jobs.items] == [
        ("charge", "continued"),
        ("ship", "completed"),
    ]


async def test_atomic_jobs_that_do_not_use_their_transaction_leave_it_to_the_next(
    client, start_worker, monkeypatch
):
    begun = []
    begin = TransactionPool._begin

    async def counted(pool):
        begun.append(pool)
        return await begin(pool)

    monkeypatch.setattr(TransactionPool, "_begin", counted)
    monkeypatch.setattr(transactions, "SPARE_S", 600.0)
    types = JobTypes("idle")

    @types.job("idle", mode="atomic")
    async def idle(ctx: Ctx[int, int]) -> int:
        return ctx.input

    await start_worker(types, concurrency=40)
    first = await client.start(idle, 0)
    assert await first.result(timeout=20) == 0
    chains = await client.start_many([Start(idle, n) for n in range(40)])

    assert [await chain.result(timeout=20) for chain in chains] == list(range(40))
    assert len(begun) < 10


async def test_the_transaction_of_an_atomic_job_begins_after_the_step_before_was_committed(
    client, start_worker
):
    types, times = JobTypes("in order"), []

    @types.job("second", mode="atomic")
    async def second(ctx: Ctx[int, int]) -> int:
        if ctx.input % 2:  # the others leave theirs unused
            times.append(await ctx.connection.fetchval("select now()"))
        return ctx.input

    @types.job("first", mode="atomic")
    async def first(ctx: Ctx[int, int]) -> int | Continue[int]:
        if ctx.input % 2:
            times.append(await ctx.connection.fetchval("select now()"))
        return Continue(second, ctx.input)

    await start_worker(types, concurrency=8)
    for n in range(10):
        idle = await client.start_many([Start(first, 2 * each) for each in range(8)])
        chain = await client.start(first, 2 * n + 1)
        await asyncio.gather(*(each.result(timeout=20) for each in (*idle, chain)))

    assert len(times) == 20
    assert times == sorted(times)
