import json
from datetime import timedelta

import pytest

from skep.jobs.identifiers import new_id
from tests.sql.support.chains import Chains
from tests.support.sizes import sized

BACKLOG = sized(20_000, large=200_000)


async def claimed_inputs(chains, worker, *types, limit=10):
    return [json.loads(job["input"]) for job in await chains.claim(worker, *types, limit=limit)]


async def test_case_07_jobs_come_by_priority_then_due_time_then_the_order_of_their_start(
    chains, worker
):
    await chains.start_all(
        {"input": "third"},
        {"input": "fourth"},
        {"input": "second", "priority": -1, "due_at": chains.now},
        {"input": "first", "priority": -2},
        {"input": "last", "priority": 5},
    )

    assert await claimed_inputs(chains, worker) == ["first", "second", "third", "fourth", "last"]


async def test_of_the_same_priority_the_one_that_is_due_first_comes_first(chains, worker):
    await chains.start(input="late", delay_s=2)
    await chains.start(input="early", delay_s=1)
    await chains.advance(5)

    assert await claimed_inputs(chains, worker) == ["early", "late"]


async def test_case_08_a_scheduled_job_is_claimed_when_it_is_due_and_not_before(chains, worker):
    job_id = await chains.start(delay_s=10)

    (last,) = await chains.claim_rows(worker)
    assert last["job_id"] is None
    assert last["due_at"] == chains.now + timedelta(seconds=10)
    await chains.advance(10)
    assert [job["job_id"] for job in await chains.claim(worker)] == [job_id]


async def test_case_06_rows_that_others_hold_are_skipped_without_waiting(
    chains, open_chains, worker
):
    held, free = await chains.start(), await chains.start()
    other = await open_chains()
    async with other.connection.transaction():
        await other.rows("select from skep.open_job where job_id = $1 for update", held)

        await chains.connection.execute("set lock_timeout = '1s'")
        assert [job["job_id"] for job in await chains.claim(worker)] == [free]


async def test_case_12_defect_v06_an_empty_queue_says_that_there_is_no_more(chains, worker):
    await chains.start()

    (job, last) = await chains.claim_rows(worker, limit=5)

    assert job["job_id"] is not None
    assert (last["job_id"], last["due_at"]) == (None, None)


async def test_a_full_answer_says_nothing_about_later(chains, worker):
    await chains.start_all({}, {})

    assert len(await chains.claim_rows(worker, limit=1)) == 1


async def test_a_claim_counts_the_attempt_and_is_not_given_twice(chains, worker):
    await chains.start()

    (job,) = await chains.claim(worker)

    assert job["attempt"] == 1
    assert await chains.claim(worker) == []


async def test_other_types_are_left_alone(chains, worker):
    await chains.start("other")

    assert await chains.claim(worker, "work") == []


async def test_a_large_backlog_of_one_type_does_not_starve_another(chains, worker):
    await chains.start_all(*[{"type": "many"}] * 50)
    await chains.advance(1)
    await chains.start_all(*[{"type": "few"}] * 2)

    types = [job["type_id"] for job in await chains.claim(worker, "many", "few", limit=10)]

    (few,) = await chains.type_ids("few")
    assert types.count(few) == 2


async def test_a_worker_that_is_not_enrolled_gets_nothing(chains):
    await chains.start()

    assert await chains.claim_rows(new_id()) == []


async def test_a_claim_brings_what_its_blockers_yielded_in_order(chains, worker):
    first, second = await chains.start("a"), await chains.start("b")
    await chains.start(blockers=[second, first])
    for job in await chains.claim(worker, "a", "b"):
        await chains.settle(worker, job["job_id"], output={"of": str(job["job_id"])})

    (job,) = await chains.claim(worker)

    yielded = json.loads(job["blockers"])
    assert [each["type"] for each in yielded] == ["b", "a"]
    assert [each["output"] for each in yielded] == [{"of": str(second)}, {"of": str(first)}]


async def blocks_read(chains, statement, *arguments):
    """Return how many blocks a statement touches."""
    ((text,),) = await chains.rows(
        f"explain (analyze, buffers, format json) {statement}", *arguments
    )
    plan = json.loads(text)[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


async def fill(chains, type_name, count, later_s=0, open_blockers=0, limit_key=None):
    """Add jobs as they are when they wait: an update would leave dead rows for a claim to read."""
    await chains.connection.execute(
        """
        with made as (
          select gen_random_uuid() as id, n from generate_series(1, $2) n
        ), chain as (
          insert into skep.chain (id, type_id, last_job_id, created_at)
          select id, $1, id, skep.now() from made
        ), job as (
          insert into skep.job (
            id, chain_id, position, type_id, priority, max_attempts, input, created_at)
          select id, id, 0, $1, 0, 3, 'null', skep.now() from made
        )
        insert into skep.open_job (
          job_id, chain_id, type_id, priority, due_at, max_attempts, open_blockers, limit_key)
        select id, id, $1, 0, skep.now() + make_interval(secs => $3 + n / 1e6), 3, $4, $5 from made
        """,
        (await chains.type_ids(type_name))[0],
        count,
        later_s,
        open_blockers,
        limit_key,
    )


@pytest.mark.slow
@pytest.mark.parametrize("types", [1, 20])
async def test_case_11_defect_v01_a_claim_costs_the_same_however_many_jobs_wait(
    chains, open_chains, types
):
    names = [f"type {number}" for number in range(types)]
    costs = {}
    for backlog in (100, BACKLOG):
        await chains.clear()
        session = await Chains.open((await open_chains()).connection)
        worker = await session.enroll()
        for name in names:
            await fill(session, name, backlog // types)
        await session.advance(60)
        ids = await session.type_ids(*names)
        statement = "select * from skep.job_claim($1, $2, 10)"
        await session.rows(statement, worker, ids)
        async with session.connection.transaction():
            costs[backlog] = await blocks_read(session, statement, worker, ids)

    assert costs[BACKLOG] <= costs[100] * 2, costs


@pytest.mark.slow
@pytest.mark.parametrize(
    "waits", [{"later_s": 86_400}, {"open_blockers": 1}, {"limit_key": "k"}], ids=str
)
async def test_defect_v01_a_claim_that_finds_nothing_costs_the_same_however_many_jobs_wait(
    chains, waits
):
    costs = {}
    for backlog in (100, BACKLOG):
        await chains.clear()
        worker = await chains.enroll()
        await fill(chains, "work", backlog, **waits)
        if "limit_key" in waits:
            # One that is ready keeps the others of its key from running.
            await limit(chains, concurrency=1)
            await chains.advance(60)
            assert len(await chains.claim(worker)) == 1
        ids = await chains.type_ids("work")
        statement = "select * from skep.job_claim($1, $2, 10)"
        assert [row["job_id"] for row in await chains.rows(statement, worker, ids)] == [None]
        costs[backlog] = await blocks_read(chains, statement, worker, ids)

    assert costs[BACKLOG] <= costs[100] * 2, costs


async def test_a_type_runs_no_more_than_its_limit_at_once(chains, worker):
    await limit(chains, concurrency=2)
    await chains.start_all(*[{}] * 5)

    first, second = await chains.claim(worker)

    assert await chains.claim(worker) == []
    await chains.settle(worker, first["job_id"])
    assert len(await chains.claim(worker)) == 1
    await chains.settle(worker, second["job_id"])


async def limit(chains, *, concurrency=None, per_key=None, rate=None, period_s=None):
    await chains.value(
        "select skep.job_type_limit('{work}', $1, $2, $3, $4)",
        [concurrency],
        [per_key],
        [rate],
        [period_s],
    )


async def test_two_sessions_that_claim_at_once_stay_within_the_limit(chains, open_chains, worker):
    await limit(chains, concurrency=2)
    await chains.start_all(*[{}] * 5)
    other = await open_chains()
    async with chains.connection.transaction():
        assert len(await chains.claim(worker)) == 2
        assert await other.claim(worker) == [], "another session claims this type at the moment"
    assert await other.claim(worker) == []


async def test_a_key_runs_no_more_than_its_limit_and_other_keys_go_on(chains, worker):
    await limit(chains, per_key=1)
    await chains.start_all(
        *[{"input": "a", "limit_key": "a"}] * 3,
        {"input": "b", "limit_key": "b"},
        *[{"input": None}] * 2,
    )

    inputs = await claimed_inputs(chains, worker)

    assert sorted(map(str, inputs)) == ["None", "None", "a", "b"]
    assert await chains.claim(worker) == []


async def test_jobs_of_a_key_run_in_their_order(chains, worker):
    await limit(chains, per_key=1)
    await chains.start_all(*({"input": n, "limit_key": "a"} for n in range(3)))

    order = []
    for _ in range(3):
        (job,) = await chains.claim(worker)
        order.append(json.loads(job["input"]))
        await chains.settle(worker, job["job_id"])

    assert order == [0, 1, 2]


async def test_a_rate_gives_a_period_s_worth_and_says_when_the_next_may_start(chains, worker):
    await limit(chains, rate=4, period_s=8)
    await chains.start_all(*[{}] * 10)

    rows = await chains.claim_rows(worker)
    assert [row["job_id"] is None for row in rows] == [False] * 4 + [True]
    assert rows[-1]["due_at"] == chains.now + timedelta(seconds=2)

    await chains.advance(2)
    assert len(await chains.claim(worker)) == 1
    await chains.advance(3600)
    assert len(await chains.claim(worker)) == 4, "a bucket holds one period's worth"


@pytest.mark.slow
async def test_a_long_backlog_of_a_busy_key_costs_nothing(chains, worker):
    costs = {}
    for backlog in (30, 3000):
        await chains.clear()
        worker = await chains.enroll()
        await limit(chains, per_key=1)
        await chains.start_all(*[{"limit_key": "busy"}] * backlog)
        await chains.claim(worker, limit=1)
        await chains.start(input="free", limit_key="free")
        ids = await chains.type_ids("work")
        statement = "select * from skep.job_claim($1, $2, 10)"
        for _ in range(2):  # the first time plans are made
            transaction = chains.connection.transaction()
            await transaction.start()
            costs[backlog] = await blocks_read(chains, statement, worker, ids)
            await transaction.rollback()

    assert costs[3000] <= costs[30] * 2, costs


async def claim_in_pools(chains, worker, *pools, room, limit=10):
    """Claim jobs of the types a and b, which draw on these pools; return their types and the row
    that says when to look again."""
    ids = await chains.type_ids("a", "b")
    statement = "select * from skep.job_claim($1, $2, $3, $4, $5)"
    rows = await chains.rows(statement, worker, ids, limit, list(pools), room)
    names = [("a", "b")[ids.index(row["type_id"])] for row in rows if row["job_id"] is not None]
    return sorted(names), [row["due_at"] for row in rows if row["job_id"] is None]


async def test_types_of_a_pool_share_its_room_and_others_take_the_rest(chains, worker):
    for name in ("a", "b"):
        await chains.start_all(*({"type": name} for _ in range(8)))

    names, again = await claim_in_pools(chains, worker, 1, None, room=[2])
    assert names == ["a"] * 2 + ["b"] * 8
    assert again == []
    names, _ = await claim_in_pools(chains, worker, 1, 1, room=[3])
    assert names == ["a"] * 3


async def test_a_full_pool_is_left_alone_and_says_nothing_of_when_to_look_again(chains, worker):
    await chains.start("a")
    await chains.start("a", delay_s=10)

    assert await claim_in_pools(chains, worker, 1, 1, room=[0]) == ([], [None])
    names, again = await claim_in_pools(chains, worker, 1, 1, room=[1])
    assert (names, again) == (["a"], [chains.now + timedelta(seconds=10)])


async def test_what_the_share_of_another_type_left_is_claimed_at_once(chains, worker):
    await chains.start_all(*({"type": "a"} for _ in range(8)))
    await chains.start("b", due_at=chains.now)

    names, again = await claim_in_pools(chains, worker, None, None, room=[])
    assert names == ["a"] * 5 + ["b"]
    assert again == [chains.now]
