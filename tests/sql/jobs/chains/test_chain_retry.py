from skep.jobs.identifiers import new_id


async def retry(chains, *ids):
    rows = await chains.rows("select * from skep.chain_retry($1)", list(ids))
    return {row["chain_id"]: row["outcome"] for row in rows}


async def failed(chains, worker, **item):
    chain_id = await chains.start(**item)
    await chains.run(worker, outcome="failed", error="broken")
    return chain_id


async def test_a_failed_chain_goes_on_at_the_job_that_failed(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)
    second = await chains.go_on(worker, chain_id, "second")
    await chains.run(worker, "second", outcome="failed", error="broken")

    assert await retry(chains, chain_id) == {chain_id: "retried"}

    (job,) = await chains.claim(worker, "second")
    assert (job["job_id"], job["attempt"], job["failures"]) == (second, 2, 0)
    assert await chains.settle(worker, second, attempt=2) == "settled"
    assert await chains.chain_state(chain_id) == "completed"


async def test_the_owner_of_before_cannot_write_after_a_retry(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)
    await chains.rows("select skep.chain_cancel($1, false, '')", [chain_id])
    await retry(chains, chain_id)

    await chains.claim(worker)

    assert await chains.settle(worker, chain_id, attempt=1) == "lost"
    assert await chains.settle(worker, chain_id, attempt=2) == "settled"


async def test_chains_that_cannot_be_retried_say_why(chains, worker):
    completed = await chains.start()
    await chains.run(worker)
    running, missing = await chains.start(), new_id()

    assert await retry(chains, completed, running, missing) == {
        completed: "completed",
        running: "open",
        missing: "missing",
    }


async def test_a_chain_whose_key_another_holds_is_refused(chains, worker):
    chain_id = await failed(chains, worker, key="k")
    await chains.start(key="k")

    assert await retry(chains, chain_id) == {chain_id: "key_taken"}
    assert await chains.chain_state(chain_id) == "failed"


async def test_a_retried_chain_holds_its_key_again(chains, worker):
    chain_id = await failed(chains, worker, key="k")
    await retry(chains, chain_id)

    ((_, holder, outcome),) = await chains.start_all({"key": "k"})
    assert (holder, outcome) == (chain_id, "duplicate")


async def test_those_who_waited_on_run_when_the_retried_chain_completes(chains, worker):
    blocker = await failed(chains, worker)
    waiting = await chains.start("b", blockers=[blocker])
    await retry(chains, blocker)
    await chains.run(worker)

    assert await chains.state(waiting) == "ready"
    assert await chains.stranded() == []


async def test_a_retried_job_waits_for_blockers_that_are_still_open(chains, worker):
    blocker = await chains.start("b")
    chain_id = await chains.start(blockers=[blocker])
    await chains.rows("select skep.chain_cancel($1, false, '')", [chain_id])

    await retry(chains, chain_id)

    assert await chains.state(chain_id) == "blocked"
    assert await chains.stranded() == []
