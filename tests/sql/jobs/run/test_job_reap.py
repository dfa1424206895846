import pytest


async def reap(chains, limit=100):
    return await chains.rows("select * from skep.job_reap($1)", limit)


async def test_case_28_jobs_of_a_worker_that_is_gone_come_back_in_one_call(chains, worker):
    ids = [await chains.start() for _ in range(3)]
    await chains.claim(worker)
    await chains.advance(31)

    rows = await reap(chains)

    assert {row["job_id"] for row in rows} == set(ids)
    assert [await chains.state(job_id) for job_id in ids] == ["ready"] * 3
    assert await chains.value("select count(*) from skep.job_worker") == 0


async def test_case_28_live_workers_keep_their_jobs(chains, worker):
    await chains.start()
    await chains.claim(worker)
    await chains.advance(29)

    assert await reap(chains) == []


async def test_more_jobs_than_one_call_takes_come_with_the_next(chains, worker):
    for _ in range(3):
        await chains.start()
    await chains.claim(worker)
    await chains.advance(31)

    first = await reap(chains, limit=2)
    second = await reap(chains, limit=2)

    assert [len(first), first[0]["has_more"]] == [2, True]
    assert [len(second), second[0]["has_more"]] == [1, False]


async def test_case_27_a_lost_attempt_is_counted_and_on_record(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)
    await chains.advance(31)
    await reap(chains)

    (job,) = await chains.claim(await chains.enroll())

    assert (job["attempt"], job["failures"]) == (2, 1)
    history = await chains.rows("select * from skep.job_attempts($1, 0, 10)", job_id)
    assert [row["outcome"] for row in history] == ["lost", "running"]


async def test_case_27_a_job_that_kills_every_worker_fails_in_the_end(chains):
    job_id = await chains.start(max_attempts=2)
    dependent = await chains.start("b", blockers=[job_id], on_failure="fail")
    for _ in range(2):
        assert len(await chains.claim(await chains.enroll())) == 1
        await chains.advance(31)
        (row,) = await reap(chains)

    assert row["is_failed"]
    assert await chains.chain_state(job_id) == "failed"
    assert await chains.chain_state(dependent) == "failed"
    assert await chains.claim(await chains.enroll()) == []
    history = await chains.rows("select * from skep.job_attempts($1, 0, 10)", job_id)
    assert [row["outcome"] for row in history] == ["lost", "lost"]


async def test_case_25_a_lease_that_ran_out_but_was_not_taken_can_be_renewed(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)
    await chains.advance(31)

    lost = await chains.rows("select * from skep.job_renew($1, 30, $2, '{1}')", worker, [job_id])

    assert lost == []
    assert await reap(chains) == []
    assert await chains.settle(worker, job_id) == "settled"


async def test_case_25_a_lease_that_was_taken_cannot_be_renewed(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)
    await chains.advance(31)
    await reap(chains)

    lost = await chains.rows("select * from skep.job_renew($1, 30, $2, '{1}')", worker, [job_id])

    assert [tuple(row) for row in lost] == [(None, "worker_lost"), (job_id, "worker_lost")]
    assert await chains.settle(worker, job_id) == "lost"


async def test_a_claim_under_way_keeps_the_reaper_from_forgetting_its_worker(
    chains, open_chains, worker
):
    other = await open_chains()
    await chains.start()
    await other.advance(31)
    async with chains.connection.transaction():
        await chains.claim(worker)
        assert await reap(other) == [], "the worker's row is held, so it is passed over"

    assert len(await reap(other)) == 1


async def test_a_chain_that_somebody_holds_is_left_for_later(chains, open_chains, worker):
    other = await open_chains()
    held, free = await chains.start(), await chains.start()
    await chains.claim(worker)
    await chains.advance(31)
    async with other.connection.transaction():
        await other.rows("select from skep.chain where id = $1 for update", held)
        assert [row["job_id"] for row in await reap(chains)] == [free]

    assert [row["job_id"] for row in await reap(chains)] == [held]


async def test_what_a_worker_still_has_when_it_leaves_comes_back_at_once(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)

    await chains.value("select skep.job_worker_leave($1)", worker)

    assert [row["job_id"] for row in await reap(chains)] == [job_id]


async def test_a_worker_that_leaves_with_nothing_is_forgotten(chains, worker):
    await chains.value("select skep.job_worker_leave($1)", worker)

    assert await chains.value("select count(*) from skep.job_worker") == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("select skep.chain_cancel(array[$1::uuid], false, '')", "cancelled"),
        ("select skep.chain_delete(array[$1::uuid], false)", "deleted"),
    ],
)
async def test_a_renewal_tells_why_a_job_is_lost(chains, worker, change, reason):
    job_id = await chains.start()
    await chains.claim(worker)
    await chains.rows(change, job_id)

    lost = await chains.rows("select * from skep.job_renew($1, 30, $2, '{1}')", worker, [job_id])

    assert [tuple(row) for row in lost] == [(job_id, reason)]


async def test_a_renewal_tells_of_a_job_that_runs_elsewhere(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)
    await chains.settle(worker, job_id, "released")
    await chains.claim(await chains.enroll())

    lost = await chains.rows("select * from skep.job_renew($1, 30, $2, '{1}')", worker, [job_id])

    assert [tuple(row) for row in lost] == [(job_id, "taken")]


async def test_a_worker_that_enrolls_again_is_one_worker_with_a_new_lease(chains, worker):
    await chains.advance(20)
    await chains.value("select skep.job_worker_enroll($1, 'test', 30)", worker)
    await chains.advance(20)

    assert await chains.rows("select * from skep.job_reap(10)") == []
    assert await chains.value("select count(*) from skep.job_worker") == 1
