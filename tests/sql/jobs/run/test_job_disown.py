DISOWN = "select * from skep.job_disown($1, $2, $3)"


async def test_a_claim_that_the_worker_knows_of_stays(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    assert await chains.rows(DISOWN, worker, [chain_id], [1]) == []
    assert await chains.settle(worker, chain_id) == "settled"


async def test_a_claim_that_the_worker_does_not_know_of_is_free_again(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    assert [row["type"] for row in await chains.rows(DISOWN, worker, [], [])] == ["work"]

    (job,) = await chains.claim(await chains.enroll())
    assert (job["job_id"], job["attempt"], job["failures"]) == (chain_id, 2, 0)
    history = await chains.rows("select * from skep.job_attempts($1, 0, 10)", chain_id)
    assert "released" in [row["outcome"] for row in history]
    assert await chains.settle(worker, chain_id, attempt=1) == "lost"


async def test_an_older_claim_of_the_same_job_does_not_guarantee_for_the_new_one(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)
    await chains.settle(worker, chain_id, outcome="released")
    await chains.claim(worker)

    assert len(await chains.rows(DISOWN, worker, [chain_id], [1])) == 1


async def test_jobs_of_others_are_left_alone(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    assert await chains.rows(DISOWN, await chains.enroll(), [], []) == []
    assert await chains.settle(worker, chain_id) == "settled"
